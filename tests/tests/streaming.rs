//! Answers that leave while their script runs: flushed pieces, a finished answer, early hints.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use maitred_tests::http::{self, Connection, Request};
use maitred_tests::server::{Setup, document_root, give_to_web_user};
use maitred_tests::tls::{self, Authority};
use maitred_tests::{Target, ports};
use tempfile::TempDir;

/// Waits for a file beside the script, which the test makes when it has seen what it wanted to.
const WAIT: &str = "function wait($name) {
    for ($i = 0; $i < 5000 && !file_exists(__DIR__ . '/' . $name); $i++) { clearstatcache();
    usleep(2000); }
}";

fn site() -> TempDir {
    let script =
        |code: &str| format!("<?php {WAIT} while (ob_get_level()) {{ ob_end_clean(); }} {code}");
    let events = script(
        "header('Content-Type: text/event-stream'); header('X-Accel-Buffering: no');
         echo \"data: one\\n\\n\"; flush(); wait('go'); echo \"data: two\\n\\n\";",
    );
    let finish = script(
        "echo 'done'; fastcgi_finish_request(); wait('go'); echo 'lost';
         touch(__DIR__ . '/went-on');",
    );
    let hints = script(
        "header('Link: </style.css>; rel=preload; as=style'); header('Set-Cookie: a=b');
         echo headers_send(103), ' '; flush(); echo headers_send(103);",
    );
    let early = script(
        "header('Link: </style.css>; rel=preload; as=style'); header('Set-Cookie: a=b');
         header('X-Accel-Expires: 0'); $sent = headers_send(103); wait('go');
         header('Link: </other.css>', false); echo $sent;",
    );
    let many = script(
        "for ($i = 0; $i < 20; $i++) { header('Link: </' . $i . '>'); headers_send(103); } \
         echo 'over';",
    );
    let dies = script("header('Link: </a>'); headers_send(103); posix_kill(getmypid(), 9);");
    document_root(&[
        ("events.php", &events),
        ("finish.php", &finish),
        ("late-hints.php", &hints),
        ("early.php", &early),
        ("many.php", &many),
        ("dies.php", &dies),
        ("status.php", &script("headers_send(404); echo 'not here';")),
        (
            "wrong.php",
            &script(
                "try { headers_send(5); } catch (ValueError $e) { echo get_class($e); } \
            echo headers_send(101);",
            ),
        ),
        ("other.php", "<?php echo 'free';"),
    ])
}

fn go(root: &TempDir) {
    fs::write(root.path().join("go"), "").expect("a file can be written");
}

#[test]
fn each_flush_of_a_script_reaches_its_client_at_once() {
    for version in ["HTTP/1.1", "HTTP/1.0"] {
        let root = site();
        let server = Setup::new(root.path()).start();
        let mut connection = Connection::open(server.address());
        let mut request = Request::get("/events.php");
        request.version = version.into();
        connection.send(&request.to_bytes()).expect("it can be sent");
        let head = connection.read_head().expect("a head");
        assert_eq!(head.header("Content-Type"), Some("text/event-stream;charset=UTF-8"));
        assert_eq!(head.header("X-Accel-Buffering"), None);
        if version == "HTTP/1.0" {
            let first = connection.read_bytes(11).expect("the first event");
            assert_eq!(first, b"data: one\n\n");
            go(&root);
            assert_eq!(connection.read_to_end(), b"data: two\n\n");
        } else {
            assert_eq!(connection.read_chunk().expect("a chunk"), b"data: one\n\n");
            go(&root);
            assert_eq!(connection.read_chunk().expect("a chunk"), b"data: two\n\n");
            assert_eq!(connection.read_chunk().expect("the end"), b"");
        }
    }
}

#[test]
fn over_http2_and_tls_too() {
    let root = site();
    let (authority, address) = (Authority::default(), ports::free_address());
    let certificate = authority.issue("site", &["localhost"]);
    let lines = [format!("certificates = [{}]", certificate.toml())];
    let _server = Setup::new(root.path()).tls(address, &lines).start();
    let mut child = tls::curl_command(&authority, address)
        .args(["--no-buffer", "https://localhost/events.php"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("curl runs");
    let mut output = child.stdout.take().expect("a pipe");
    let mut first = [0; 11];
    output.read_exact(&mut first).expect("the first event");
    assert_eq!(&first, b"data: one\n\n");
    go(&root);
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("the rest");
    assert_eq!(rest, "data: two\n\n");
    assert!(child.wait().expect("curl ends").success());
}

#[test]
fn a_finished_answer_releases_the_client_while_the_script_goes_on() {
    let root = site();
    give_to_web_user(root.path());
    let server = Setup::new(root.path()).start();
    let mut connection = Connection::open(server.address());
    let answer = connection.ask(&Request::get("/finish.php")).expect("an answer");
    assert_eq!((answer.status, answer.text()), (200, "done".into()));
    // The connection is free for the next request, too.
    let next = connection.ask(&Request::get("/other.php")).expect("an answer");
    assert_eq!(next.text(), "free");
    let mark = root.path().join("went-on");
    assert!(!mark.exists(), "the script still waits");
    go(&root);
    maitred_tests::wait::until_true("the script to go on", || mark.exists());
}

#[test]
fn early_hints_come_before_the_answer() {
    let root = site();
    let server = Setup::new(root.path()).start();
    let mut connection = Connection::open(server.address());
    let request = Request::get("/early.php");
    connection.send(&request.to_bytes()).expect("it can be sent");
    let hints = connection.read_until(b"\r\n\r\n").expect("hints");
    let hints = String::from_utf8_lossy(&hints).into_owned();
    assert_eq!(hints, "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload; as=style");
    go(&root);
    let answer = connection.read_response(false).expect("an answer");
    assert_eq!((answer.status, answer.text()), (200, "1".into()));
    assert_eq!(answer.all("Link").count(), 2);
    assert_eq!(answer.header("Set-Cookie"), Some("a=b"));
}

#[test]
fn early_hints_come_over_http2() {
    let root = site();
    let server = Setup::new(root.path()).start();
    let mut child = Command::new("curl")
        .args(["--silent", "--verbose", "--http2-prior-knowledge", "--max-time", "120"])
        .arg(format!("{}/early.php", server.base_url()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("curl runs");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let mut until = |wanted: &str| {
        let seen = lines.by_ref().map(|line| line.expect("curl writes text"));
        let mut all = Vec::new();
        for line in seen {
            let is_last = line.starts_with(wanted);
            all.push(line);
            if is_last {
                return all.join("\n");
            }
        }
        panic!("{wanted} did not come: {all:?}");
    };
    until("< HTTP/2 103");
    until("< link: </style.css>; rel=preload; as=style");
    go(&root);
    let between = until("< HTTP/2 200");
    assert!(!between.contains("set-cookie"), "{between}");
    until("< set-cookie: a=b");
    assert!(child.wait().expect("curl ends").success());
}

#[test]
fn hints_are_for_those_who_can_get_them_and_for_nobody_too_late() {
    let root = site();
    go(&root);
    let server = Setup::new(root.path()).start();
    let mut old = Request::get("/early.php");
    old.version = "HTTP/1.0".into();
    let answer = http::ask(server.address(), &old);
    assert_eq!((answer.status, answer.interim, answer.body), (200, vec![], b"1".to_vec()));
    // The answer has begun: `headers_send` says that it could not send.
    let late = http::get(server.address(), "/late-hints.php");
    assert_eq!((late.interim, late.body), (vec![103], b"1 3".to_vec()));
    let many = http::get(server.address(), "/many.php");
    assert_eq!((many.interim.len(), many.body), (8, b"over".to_vec()));
}

#[test]
fn other_statuses_send_the_header_or_are_refused() {
    let root = site();
    let server = Setup::new(root.path()).start();
    let status = http::get(server.address(), "/status.php");
    assert_eq!((status.status, status.text()), (404, "not here".into()));
    let wrong = http::get(server.address(), "/wrong.php");
    assert_eq!((wrong.status, wrong.text()), (200, "ValueError3".into()));
}

#[test]
fn a_worker_that_dies_after_its_hints_still_gets_an_answer_for_its_client() {
    let root = site();
    let server = Setup::new(root.path()).start();
    let answer = http::get(server.address(), "/dies.php");
    assert_eq!((answer.status, answer.interim.first()), (502, Some(&103)));
}
