//! Requests that two servers may read differently (request smuggling): maitred refuses them and
//! closes the connection, whichever listener they come through. What nginx and Apache do with the
//! same bytes is in docs/guide/smuggling.md, which is made from this table:
//! `MAITRED_WRITE_SMUGGLING=1 cargo test -p maitred-tests --test smuggling`.

mod cases;
mod frames;
mod generated;
mod generator;
mod origin;
mod reading;

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;

use maitred_tests::peer::Peer;
use maitred_tests::server::{Setup, document_root};
use maitred_tests::tls::{Authority, Secure};
use maitred_tests::wait::DEADLINE;
use maitred_tests::web::Web;
use maitred_tests::{Target, ports, project_root};
use tempfile::TempDir;

use cases::{CASES, Case, Wanted};
use frames::FRAMES;

/// Says what reached it. A server that guesses where a body ends shows what it took for one.
const ECHO: &str = "<?php echo '<', $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['REQUEST_URI'], ' ', \
    $_SERVER['HTTP_HOST'] ?? '-', ' ', json_encode(file_get_contents('php://input'), \
    JSON_UNESCAPED_SLASHES), '>';";

/// The query of a request that hides in another: no script may see it.
const HIDDEN: &str =
    "GET /echo.php?hidden HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";

/// Connections of one server at a time: Apache here has sixteen threads.
const AT_A_TIME: usize = 6;

fn site() -> TempDir {
    document_root(&[("echo.php", ECHO)])
}

/// Two sites, so that a request for one may try to reach the other.
fn setup(root: &TempDir) -> Setup {
    let second = format!(
        "\n[[sites]]\nroot = {:?}\npool = \"www\"\nfront_controller = \"\"\nhosts = \"b.example\"",
        root.path()
    );
    Setup::new(root.path())
        .hosts(&["a.example", "localhost"])
        .site("front_controller = \"\"")
        .site(&second)
}

/// The bytes of a case: the doubtful request, and after it one that is to be seen only if the first
/// was understood.
fn bytes(case: &Case) -> Vec<u8> {
    [case.bytes, HIDDEN.as_bytes()].concat()
}

/// All that a server says until it closes the connection.
fn over_tcp(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("a time-out can be set");
    // It may be refused before all of it has been sent.
    let _ = stream.write_all(bytes);
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the connection is not closed: {error}; it said {said:?}"),
    }
    said
}

/// All that a server says over TLS until it closes the connection.
fn over_tls(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut said = Vec::new();
    let mut client = Secure::connect(address, "http/1.1", bytes);
    client.output().read_to_end(&mut said).expect("openssl ends");
    said
}

/// An answer's status and what the script saw, for each answer; in the order they came.
fn outcome(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let mut rest = &*text;
    let mut parts = Vec::new();
    loop {
        let heads = rest.match_indices("HTTP/1.1 ").chain(rest.match_indices("HTTP/1.0 "));
        let is_status = |at: &usize| rest[at + 9..].starts_with(|c: char| c.is_ascii_digit());
        let head = heads.map(|(at, _)| at).filter(is_status).min();
        let head = head.map(|at| (at, true));
        let seen = rest.find('<').filter(|at| {
            let after = &rest[at + 1..];
            ["GET ", "POST ", "PUT ", "OPTIONS ", "HEAD "]
                .iter()
                .any(|method| after.starts_with(method))
        });
        let seen = seen.map(|at| (at, false));
        let next = [head, seen].into_iter().flatten().min();
        let Some((at, is_head)) = next else { break };
        let words = &rest[at..];
        if is_head {
            let status = words.get(9..12).unwrap_or("?");
            if status != "100" {
                parts.push(status.to_owned());
            }
            rest = &words[9.min(words.len())..];
        } else {
            let end = words.find('>').unwrap_or(words.len());
            parts.push(format!("`{}`", &words[1..end]));
            rest = &words[end..];
        }
    }
    match parts.is_empty() {
        true if said.is_empty() => "closed".to_owned(),
        true => "an answer without a head".to_owned(),
        false => parts.join(" "),
    }
}

/// Asks all of these of one server, several at a time.
fn ask_all<C: Sync>(cases: &[C], ask: impl Fn(&C) -> String + Sync) -> Vec<String> {
    let next = Mutex::new(0);
    let answers = Mutex::new(vec![String::new(); cases.len()]);
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let number = {
                        let mut next = next.lock().expect("no thread panics");
                        *next += 1;
                        *next - 1
                    };
                    let Some(case) = cases.get(number) else {
                        return;
                    };
                    let answer = ask(case);
                    answers.lock().expect("no thread panics")[number] = answer;
                }
            });
        }
    });
    answers.into_inner().expect("no thread panicked")
}

/// Whether an outcome is what is wanted of maitred.
fn is_as_wanted(wanted: Wanted, outcome: &str) -> bool {
    match wanted {
        Wanted::Refused(status) => outcome == status.to_string(),
        Wanted::Understood(seen) => outcome == seen,
    }
}

fn assert_all(what: &str, outcomes: &[String]) {
    let wrong: Vec<_> = CASES
        .iter()
        .zip(outcomes)
        .filter(|(case, outcome)| !is_as_wanted(case.wanted, outcome))
        .map(|(case, outcome)| format!("{}: {outcome}, not {:?}", case.name, case.wanted))
        .collect();
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}

fn assert_frames(what: &str, outcomes: &[String]) {
    let wrong: Vec<_> = FRAMES
        .iter()
        .zip(outcomes)
        .filter(|(case, outcome)| *outcome != case.wanted)
        .map(|(case, outcome)| format!("{}: {outcome}, not {}", case.name, case.wanted))
        .collect();
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}

#[test]
fn what_two_servers_may_read_differently_is_refused_and_nothing_hidden_in_it_is_answered() {
    let root = site();
    let server = setup(&root).start();
    let ours = ask_all(CASES, |case| outcome(&over_tcp(server.address(), &bytes(case))));
    assert_all("HTTP/1.1", &ours);
    let frames = ask_all(FRAMES, |case| case.ask(server.address()));
    assert_frames("HTTP/2", &frames);
    let page = fs::read_to_string(page_path()).unwrap_or_default();
    for (name, outcome) in names().zip(ours.iter().chain(&frames)) {
        let row = format!("| {name} | {} |", cell(outcome));
        let is_told = page.contains(&row) || writes_page();
        assert!(is_told, "docs/guide/smuggling.md does not have {row}");
    }
}

#[test]
fn what_is_refused_plain_is_refused_over_tls() {
    let (root, authority) = (site(), Authority::default());
    let certificate = authority.issue("localhost", &["localhost"]).toml();
    let secure = ports::free_address();
    let lines = [format!("certificates = [{certificate}]"), "redirect = false".into()];
    let server = setup(&root).tls(secure, &lines).start();
    let ours = ask_all(CASES, |case| outcome(&over_tls(secure, &bytes(case))));
    assert_all("HTTP/1.1 over TLS", &ours);
    let frames = ask_all(FRAMES, |case| {
        frames::outcome(Secure::connect(secure, "h2", &case.bytes()).output())
    });
    assert_frames("HTTP/2 over TLS", &frames);
    drop(server);
}

/// The configuration of nginx and Apache: the same two sites, and a short keep-alive timeout.
fn peers(root: &TempDir, fpm: &Peer) -> (Web, SocketAddr, Web) {
    let socket = fpm.fpm_socket();
    let (socket, root) = (socket.display(), root.path());
    let php = format!(
        "server_name a.example; root {};\n location ~ \\.php$ {{ include fastcgi.conf; \
         fastcgi_param HTTP_HOST $http_host; fastcgi_pass unix:{socket}; }}",
        root.display()
    );
    let second = php.replace("a.example", "b.example");
    let (plain, http2) = (ports::free_address(), ports::free_address());
    let http = format!(
        "keepalive_timeout 1; client_header_timeout 2; client_body_timeout 2; \
         lingering_close off;\n\
         server {{ listen {http2} http2; {php} }}\n server {{ listen {plain}; {second} }}"
    );
    let nginx = Web::nginx(&http, &php);
    let lines = format!(
        "LoadModule http2_module /usr/lib/apache2/modules/mod_http2.so\n\
         Protocols h2c http/1.1\nH2Direct on\nKeepAliveTimeout 1\nTimeout 2\n\
         <FilesMatch \\.php$>\nSetHandler \"proxy:unix:{socket}|fcgi://localhost/\"\n</FilesMatch>"
    );
    let apache = Web::apache(root, &lines);
    (nginx, http2, apache)
}

fn writes_page() -> bool {
    std::env::var_os("MAITRED_WRITE_SMUGGLING").is_some()
}

fn page_path() -> std::path::PathBuf {
    project_root().join("docs/guide/smuggling.md")
}

fn names() -> impl Iterator<Item = String> {
    let http1 = CASES.iter().map(|case| cell(case.name));
    http1.chain(FRAMES.iter().map(|case| cell(case.name)))
}

/// A cell of a table: what would end it is escaped.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[test]
fn nginx_and_apache_answer_the_same_bytes_and_the_page_says_how() {
    let root = site();
    let server = setup(&root).start();
    let fpm = Peer::nginx_php_fpm(root.path());
    let (nginx, nginx_http2, apache) = peers(&root, &fpm);
    let plain = [server.address(), nginx.address(), apache.address()];
    let http2 = [server.address(), nginx_http2, apache.address()];
    let http1 =
        plain.map(|address| ask_all(CASES, |case| outcome(&over_tcp(address, &bytes(case)))));
    let frames = http2.map(|address| ask_all(FRAMES, |case| case.ask(address)));
    let rows = |answers: &[Vec<String>; 3], names: Vec<&str>| {
        let mut text = String::new();
        for (number, name) in names.iter().enumerate() {
            let [ours, nginx, apache] = answers.each_ref().map(|all| cell(&all[number]));
            let _ = writeln!(text, "| {} | {ours} | {nginx} | {apache} |", cell(name));
        }
        text
    };
    let http1 = rows(&http1, CASES.iter().map(|case| case.name).collect());
    let frames = rows(&frames, FRAMES.iter().map(|case| case.name).collect());
    let page = include_str!("page.md")
        .replace("@HTTP1@", http1.trim_end())
        .replace("@HTTP2@", frames.trim_end());
    if writes_page() {
        fs::write(page_path(), page).expect("the page can be written");
    }
}
