//! The FastCGI listener: what web servers may do, what they must not, and that none of it holds a
//! worker.

use std::fs;
use std::path::{Path, PathBuf};

use maitred_fastcgi::ProtocolStatus;
use maitred_tests::fastcgi::{Answered, Wire, begin, head, params, record, request};
use maitred_tests::fpm::{Daemon, Listener, Which, usual};
use maitred_tests::processes::Signal;
use maitred_tests::server::{Setup, document_root};
use maitred_tests::wait;
use tempfile::TempDir;

/// Types of records (§8).
const BEGIN_REQUEST: u8 = 1;
const ABORT_REQUEST: u8 = 2;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const GET_VALUES: u8 = 9;
const GET_VALUES_RESULT: u8 = 10;
const UNKNOWN_TYPE: u8 = 11;

/// A type that no specification knows.
const OF_NOBODY: u8 = 42;
const RESPONDER: u8 = 1;
const FILTER: u8 = 3;
const NO_ROLE: u8 = 9;

/// Seed of the random records; printed with what fails.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

struct Site {
    daemon: Daemon,
    root: TempDir,
}

impl Site {
    /// A pool of one worker, with further lines of configuration.
    fn new(lines: &str) -> Site {
        let root = document_root(&[
            ("hello.php", "<?php echo 'hello';"),
            (
                "echo.php",
                "<?php $body = file_get_contents('php://input');
                 echo $_SERVER['FCGI_ROLE'], ' ', strlen($body), ' ', md5($body), ' ',
                     strlen($_SERVER['HTTP_BIG'] ?? '');",
            ),
            (
                "begun.php",
                "<?php touch(__DIR__ . '/state/' . $_GET['name']); echo 'begun';
                 while (!file_exists(__DIR__ . '/state/go')) { clearstatcache(); usleep(1000); }",
            ),
            ("log.php", "<?php error_log('a message'); echo 'logged';"),
            (
                "die.php",
                "<?php touch(__DIR__ . '/state/died-' . hrtime(true));
                 posix_kill(getmypid(), 9);",
            ),
            (
                "log_and_die.php",
                "<?php touch(__DIR__ . '/state/tried-' . hrtime(true));
                 for ($i = 0; $i < 1000; $i++) { error_log(str_repeat('z', 4000)); }
                 posix_kill(getmypid(), 9);",
            ),
            (
                "half.php",
                "<?php echo str_repeat('x', 100000); ob_flush(); flush();
                 touch(__DIR__ . '/state/half');
                 while (!file_exists(__DIR__ . '/state/go')) { clearstatcache(); usleep(1000); }
                 posix_kill(getmypid(), 9);",
            ),
            ("large.php", "<?php for ($i = 0; $i < 1000; $i++) { echo str_repeat('y', 65536); }"),
            (
                "finish.php",
                "<?php echo 'finished'; fastcgi_finish_request();
                 while (!file_exists(__DIR__ . '/state/go')) { clearstatcache(); usleep(1000); }",
            ),
        ]);
        let state = root.path().join("state");
        fs::create_dir(&state).expect("a folder can be made");
        maitred_tests::server::set_mode(&state, 0o777);
        let daemon = Daemon::start(Which::Maitred, &usual(lines));
        Site { daemon, root }
    }

    fn connect(&self) -> Wire {
        match self.daemon.listener() {
            Listener::Unix(path) => Wire::connect(&path),
            Listener::Tcp(address) => panic!("the pool listens on {address}"),
        }
    }

    fn params(&self, target: &str, further: &[(&str, &str)]) -> Vec<(String, String)> {
        params(self.root.path(), target, further)
    }

    /// What a script answers on a connection of its own.
    fn get(&self, target: &str) -> Answered {
        self.connect().ask(1, &self.params(target, &[]), b"")
    }

    /// Insists that the one worker is there for others.
    fn expect_served(&self) {
        assert_eq!(self.get("/hello.php").body(), "hello");
    }

    fn state(&self, name: &str) -> PathBuf {
        self.root.path().join("state").join(name)
    }

    fn wait_for(&self, name: &str) {
        let state = self.state(name);
        wait::until_true("the script to begin", || state.exists());
    }

    /// Lets scripts end that wait for it.
    fn go(&self) {
        fs::write(self.state("go"), "").expect("a file can be written");
    }

    /// A request that has begun and keeps the one worker busy until [`Site::go`].
    fn busy(&self) -> Wire {
        let mut wire = self.connect();
        wire.send(&request(1, true, &self.params("/begun.php?name=busy", &[]), b""));
        self.wait_for("busy");
        wire
    }
}

fn with_body(length: usize) -> [(&'static str, String); 2] {
    [("REQUEST_METHOD", "POST".to_owned()), ("CONTENT_LENGTH", length.to_string())]
}

#[test]
fn a_kept_connection_carries_one_request_after_the_other_with_any_id() {
    let site = Site::new("");
    let mut wire = site.connect();
    for id in [1, 7, u16::MAX, 1] {
        let answered = wire.ask(id, &site.params("/hello.php", &[]), b"");
        assert_eq!(answered.body(), "hello");
        assert_eq!(answered.status, ProtocolStatus::RequestComplete);
    }
    wire.send(&request(3, false, &site.params("/hello.php", &[]), b""));
    assert!(wire.answer(3).is_some());
    wire.expect_closed();
}

#[test]
fn kept_connections_and_those_that_say_little_hold_no_worker() {
    let site = Site::new("");
    let whole = request(1, true, &site.params("/hello.php", &[]), b"");
    let mut held: Vec<Wire> = (0..20).map(|_| site.connect()).collect();
    for (number, wire) in held.iter_mut().enumerate() {
        match number % 5 {
            0 => drop(wire.ask(1, &site.params("/hello.php", &[]), b"")),
            // Nothing at all.
            1 => {}
            // Half a header, half of the parameters, and all but the last byte of them.
            2 => wire.send(&whole[..4]),
            3 => wire.send(&whole[..whole.len() / 2]),
            _ => wire.send(&whole[..whole.len() - 17]),
        }
    }
    site.expect_served();
    for wire in held.iter_mut().step_by(5) {
        let answered = wire.ask(1, &site.params("/hello.php", &[]), b"");
        assert_eq!(answered.body(), "hello");
    }
}

#[test]
fn records_are_understood_wherever_they_are_cut() {
    let site = Site::new("");
    let body = b"a body".repeat(10);
    let length = with_body(body.len());
    let length: Vec<(&str, &str)> = length.iter().map(|(n, v)| (*n, v.as_str())).collect();
    let all = site.params("/echo.php", &length);
    let mut wire = site.connect();
    let expected = wire.ask(1, &all, &body);
    assert!(expected.body().starts_with("RESPONDER 60 "), "{expected:?}");
    for byte in request(1, true, &all, &body) {
        wire.send(&[byte]);
    }
    assert_eq!(wire.answer(1), Some(expected));
}

#[test]
fn a_megabyte_of_parameters_and_of_body_reaches_the_script() {
    let site = Site::new("");
    let big = "p".repeat(1_000_000);
    let body: Vec<u8> = (0..1_000_000_u32).map(|i| i.to_le_bytes()[0]).collect();
    let length = body.len().to_string();
    let further = [
        ("REQUEST_METHOD", "POST"),
        ("CONTENT_LENGTH", length.as_str()),
        ("HTTP_BIG", big.as_str()),
    ];
    let mut wire = site.connect();
    let answered = wire.ask(1, &site.params("/echo.php", &further), &body);
    let text = answered.body();
    assert!(text.starts_with("RESPONDER 1000000 "), "{text}");
    assert!(text.ends_with(" 1000000"), "{text}");
}

#[test]
fn more_parameters_than_there_is_room_for_are_refused_in_words() {
    let site = Site::new("");
    let mark = site.daemon.log().mark();
    let big = "p".repeat(3_000_000);
    let mut wire = site.connect();
    // What it does not read any more cannot be sent.
    let bytes = request(5, true, &site.params("/echo.php", &[("HTTP_BIG", &big)]), b"");
    let _ = wire.try_send(&bytes);
    let answered = wire.answer(5).expect("a refusal is an answer");
    assert!(answered.stdout.starts_with("Status: 431 "), "{}", answered.stdout);
    wire.expect_closed();
    let told = |line: &str| line.contains("request has parameters over");
    assert!(site.daemon.log().find_since(mark, wait::DEADLINE, told).is_some());
    site.expect_served();
}

#[test]
fn a_method_that_is_too_long_reaches_no_script() {
    let site = Site::new("");
    let longest = "M".repeat(64);
    let mut wire = site.connect();
    let named = |method: &str| site.params("/hello.php", &[("REQUEST_METHOD", method)]);
    assert_eq!(wire.ask(1, &named(&longest), b"").body(), "hello");
    let refused = wire.ask(2, &named(&format!("{longest}M")), b"");
    assert!(refused.stdout.starts_with("Status: 501 "), "{}", refused.stdout);
    site.expect_served();
}

#[test]
fn a_body_that_never_ends_holds_no_worker_and_one_that_is_longer_is_cut() {
    let site = Site::new("");
    let further = [("REQUEST_METHOD", "POST"), ("CONTENT_LENGTH", "100")];
    let all = site.params("/echo.php", &further);
    let mut wire = site.connect();
    wire.send(&head(1, true, &all));
    wire.send(&record(STDIN, 1, &[b'x'; 60]));
    site.expect_served();
    wire.send(&record(STDIN, 1, &[b'x'; 60]));
    let answered = wire.answer(1).expect("a body of its length is complete");
    assert!(answered.body().starts_with("RESPONDER 100 "), "{answered:?}");
    // What is left of the body is nothing to the next request.
    wire.send(&record(STDIN, 1, b"more"));
    wire.send(&record(STDIN, 1, b""));
    let shorter = wire.ask(1, &all, b"short");
    assert!(shorter.body().starts_with("RESPONDER 5 "), "{shorter:?}");
}

#[test]
fn a_client_that_leaves_the_queue_is_never_executed() {
    let site = Site::new("");
    let mut busy = site.busy();
    let mut gone = site.connect();
    gone.send(&request(1, true, &site.params("/begun.php?name=gone", &[]), b""));
    drop(gone);
    let mut aborted = site.connect();
    aborted.send(&request(9, true, &site.params("/begun.php?name=aborted", &[]), b""));
    aborted.send(&record(ABORT_REQUEST, 9, b""));
    let end = aborted.answer(9).expect("an aborted request ends");
    assert_eq!((end.stdout.as_str(), end.status), ("", ProtocolStatus::RequestComplete));
    site.go();
    assert!(busy.answer(1).is_some());
    assert_eq!(aborted.ask(1, &site.params("/hello.php", &[]), b"").body(), "hello");
    assert!(!site.state("gone").exists());
    assert!(!site.state("aborted").exists());
}

#[test]
fn an_abort_ends_a_request_in_every_state_and_leaves_the_connection() {
    let site = Site::new("");
    let mut wire = site.connect();
    let all = site.params("/echo.php", &[("CONTENT_LENGTH", "10")]);
    let whole = head(1, true, &all);
    let abort = record(ABORT_REQUEST, 1, b"");
    let after_begin = begin(1, RESPONDER, true);
    let amid_params = [after_begin.clone(), record(PARAMS, 1, b"\x01\x01ab")].concat();
    for sent in [after_begin, amid_params] {
        wire.send(&sent);
        wire.send(&abort);
        let end = wire.answer(1).expect("an aborted request ends");
        assert_eq!(end.stdout, "");
    }
    // Without a request there is nothing to end.
    wire.send(&abort);
    assert_eq!(wire.ask(1, &site.params("/hello.php", &[]), b"").body(), "hello");
    wire.send(&whole);
    wire.send(&abort);
    let end = wire.answer(1).expect("an aborted request ends");
    assert_eq!(end.stdout, "");
    let mut running = site.busy();
    running.send(&abort);
    let end = running.answer(1).expect("an aborted request ends");
    assert_eq!(end.stdout, "");
    site.go();
    for wire in [&mut wire, &mut running] {
        let answered = wire.ask(2, &site.params("/hello.php", &[]), b"");
        assert_eq!(answered.body(), "hello");
    }
}

#[test]
fn questions_and_requests_that_are_not_for_us_are_answered_as_the_protocol_says() {
    let site = Site::new("");
    let mut wire = site.connect();
    wire.send(&record(GET_VALUES, 0, b"\x0f\x00FCGI_MPXS_CONNS\x01\x00x"));
    let result = (GET_VALUES_RESULT, 0, b"\x0f\x01FCGI_MPXS_CONNS0".to_vec());
    assert_eq!(wire.record(), result);
    wire.send(&record(GET_VALUES, 0, b"\x0e\x00FCGI_MAX_CONNS"));
    assert_eq!(wire.record(), (GET_VALUES_RESULT, 0, Vec::new()));
    wire.send(&record(OF_NOBODY, 0, b"anything"));
    let unknown = (UNKNOWN_TYPE, 0, vec![OF_NOBODY, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(wire.record(), unknown);
    // Ends of bodies without a request (bug 72185).
    wire.send(&[record(STDIN, 4, b""), record(STDIN, 4, b"")].concat());
    wire.send(&begin(4, NO_ROLE, true));
    let end = wire.answer(4).expect("an unknown role is an answer");
    assert_eq!(end.status, ProtocolStatus::UnknownRole);
    let all = site.params("/echo.php", &[]);
    let filter = [begin(4, FILTER, true), head(4, true, &all)[16..].to_vec()].concat();
    wire.send(&filter);
    wire.send(&record(STDIN, 4, b""));
    let answered = wire.answer(4).expect("a filter is run");
    assert!(answered.body().starts_with("FILTER 0 "), "{answered:?}");
}

#[test]
fn a_second_request_on_a_connection_is_refused_while_the_first_runs() {
    let site = Site::new("");
    let mut wire = site.connect();
    let first = request(1, true, &site.params("/hello.php", &[]), b"");
    // In one piece, so that the second is there before the first has its answer.
    wire.send(&[first, begin(2, RESPONDER, true)].concat());
    assert_eq!(wire.answer(1).map(|a| a.body().to_owned()), Some("hello".to_owned()));
    let (kind, id, content) = wire.record();
    assert_eq!((kind, id), (END_REQUEST, 2));
    assert_eq!(content[4], ProtocolStatus::CantMultiplex as u8);
    assert_eq!(wire.ask(3, &site.params("/hello.php", &[]), b"").body(), "hello");
}

#[test]
fn what_a_script_logs_goes_to_the_web_server() {
    let site = Site::new("");
    let answered = site.get("/log.php");
    assert_eq!(answered.body(), "logged");
    assert!(answered.stderr.contains("a message"), "{answered:?}");
}

#[test]
fn a_worker_that_dies_is_a_502_in_words_and_half_an_answer_is_no_whole_one() {
    let site = Site::new("");
    let answered = site.get("/die.php");
    assert!(answered.stdout.starts_with("Status: 502 "), "{answered:?}");
    assert!(answered.body().contains("An error on the server"), "{answered:?}");
    let mut wire = site.connect();
    wire.send(&request(1, true, &site.params("/half.php", &[]), b""));
    site.wait_for("half");
    site.go();
    assert_eq!(wire.answer(1), None);
    site.expect_served();
}

#[test]
fn a_path_of_the_web_server_adds_no_line_to_the_log() {
    let site = Site::new("");
    let mark = site.daemon.log().mark();
    let mut all = site.params("/die.php/x", &[]);
    let (_, script) = all.iter_mut().find(|(name, _)| name == "SCRIPT_FILENAME").expect("a script");
    script.push_str("\nforged \x1b[2J");
    let mut wire = site.connect();
    assert!(wire.ask(1, &all, b"").stdout.starts_with("Status: 502 "));
    let logged = |line: &str| line.contains("forged");
    let line = site.daemon.log().find_since(mark, wait::DEADLINE, logged).expect("it is logged");
    assert!(line.contains("die.php") && !line.contains('\x1b'), "{line:?}");
}

#[test]
fn such_a_path_adds_none_where_its_response_cannot_be_spooled() {
    let large = "<?php for ($i = 0; $i < 1000; $i++) { echo str_repeat('y', 65536); }";
    let root = document_root(&[("large.php", large)]);
    let folder = tempfile::tempdir().expect("a folder can be made");
    maitred_tests::server::set_mode(folder.path(), 0o755);
    let (spool, socket) = (folder.path().join("spool"), folder.path().join("www.sock"));
    let setup = Setup::new(root.path()).spool(&spool);
    let server = setup.pool(&format!("listen = {socket:?}")).start();
    fs::remove_dir(&spool).expect("a folder can be removed");
    let mark = server.log().mark();
    let mut all = params(root.path(), "/large.php/x", &[]);
    let (_, script) = all.iter_mut().find(|(name, _)| name == "SCRIPT_FILENAME").expect("a script");
    script.push_str("\nforged \x1b[2J");
    let mut wire = Wire::connect(&socket);
    wire.send(&request(1, true, &all, b""));
    let logged = |line: &str| line.contains("could not be spooled");
    let line = server.log().find_since(mark, wait::DEADLINE, logged).expect("it is logged");
    assert!(line.contains("/x forged ") && !line.contains('\x1b'), "{line:?}");
    drop(wire);
    server.stop();
}

#[test]
fn a_request_is_not_run_again_when_the_web_server_may_have_half_a_record() {
    let site = Site::new("");
    let mark = site.daemon.log().mark();
    let mut wire = site.connect();
    let all = site.params("/log_and_die.php", &[]);
    wire.send(&request(1, true, &all, b""));
    // Of its messages, more than a socket holds, the web server has read none by then.
    let died = |line: &str| line.contains("exited on signal 9");
    let line = site.daemon.log().find_since(mark, wait::DEADLINE, died);
    assert!(line.is_some(), "the worker dies");
    site.expect_served();
    assert_eq!(wire.answer(1), None);
    let entries = fs::read_dir(site.root.path().join("state")).expect("a folder");
    let names = entries.flatten().map(|entry| entry.file_name().into_string());
    let tries = names.flatten().filter(|name| name.starts_with("tried-")).count();
    assert_eq!(tries, 1);
}

#[test]
fn an_answer_that_nobody_reads_holds_no_worker_and_is_all_there_later() {
    let site = Site::new("");
    let mut wire = site.connect();
    wire.send(&request(1, true, &site.params("/large.php", &[]), b""));
    site.expect_served();
    let answered = wire.answer(1).expect("it is kept");
    assert_eq!(answered.body().len(), 1000 * 65536);
}

#[test]
fn an_answer_ends_with_fastcgi_finish_request_though_its_script_runs_on() {
    let site = Site::new("");
    let mut wire = site.connect();
    let answered = wire.ask(1, &site.params("/finish.php", &[]), b"");
    assert_eq!(answered.body(), "finished");
    wire.send(&request(2, true, &site.params("/hello.php", &[]), b""));
    site.go();
    assert_eq!(wire.answer(2).map(|a| a.body().to_owned()), Some("hello".to_owned()));
}

#[test]
fn status_and_ping_need_no_worker() {
    let site = Site::new("pm.status_path = /status\nping.path = /ping\nping.response = here\n");
    let mut busy = site.busy();
    let ping = site.get("/ping");
    assert_eq!(ping.body(), "here");
    assert!(ping.stdout.contains("Content-type: text/plain;charset=UTF-8\r\n"));
    assert!(ping.stdout.contains("Expires: Thu, 01 Jan 1970 00:00:00 GMT\r\n"));
    let status = site.get("/status?json");
    assert!(status.body().contains("\"active processes\":1,"), "{status:?}");
    let all = site.params("/ping", &[("REQUEST_METHOD", "HEAD")]);
    assert_eq!(site.connect().ask(1, &all, b"").body(), "");
    site.go();
    assert!(busy.answer(1).is_some());
}

#[test]
fn the_listener_for_status_answers_nothing_else() {
    let lines = "pm.status_listen = @FOLDER@/status.sock\nlisten.mode = 0666\n";
    let site = Site::new(lines);
    let mut wire = Wire::connect(&site.daemon.place().file("status.sock"));
    let status = wire.ask(1, &site.params("/", &[]), b"");
    assert!(status.body().starts_with("pool: "), "{status:?}");
    let other = wire.ask(1, &site.params("/hello.php", &[]), b"");
    assert!(other.stdout.starts_with("Status: 404 "), "{other:?}");
}

#[test]
fn a_web_server_that_is_killed_in_the_middle_costs_nobody_else_anything() {
    let site = Site::new("");
    let mut busy = site.busy();
    let whole = request(1, true, &site.params("/hello.php", &[]), b"");
    let many: Vec<Wire> = (0..40)
        .map(|number| {
            let mut wire = site.connect();
            wire.send(&whole[..whole.len() * number / 40]);
            wire
        })
        .collect();
    drop(many);
    site.go();
    assert!(busy.answer(1).is_some());
    site.expect_served();
    let status = site.daemon.processes();
    assert!(status.iter().all(|process| process.state != 'Z'));
}

#[test]
fn records_without_sense_end_their_connection_and_nothing_else() {
    let site = Site::new("");
    let mut state = SEED;
    let mut random = move || {
        // xorshift64 (Marsaglia 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let whole = request(1, true, &site.params("/hello.php", &[]), b"");
    for _ in 0..200 {
        let mut wire = site.connect();
        let mut bytes = whole.clone();
        for _ in 0..=random() % 4 {
            let at = usize::try_from(random()).unwrap_or(0) % bytes.len();
            bytes[at] = random().to_le_bytes()[0];
        }
        let cut = usize::try_from(random()).unwrap_or(0) % bytes.len();
        bytes.truncate(bytes.len() - cut / 8);
        let _ = wire.try_send(&bytes);
    }
    for _ in 0..200 {
        let mut wire = site.connect();
        for _ in 0..random() % 8 {
            let [kind, id, length, ..] = random().to_le_bytes();
            let content = vec![kind; length.into()];
            let _ = wire.try_send(&record(kind % 13, u16::from(id % 3), &content));
        }
    }
    let mut wire = site.connect();
    wire.send(&[record(BEGIN_REQUEST, 1, b"too short"), record(PARAMS, 1, b"")].concat());
    wire.expect_closed();
    site.expect_served();
}

#[test]
fn requests_for_nothing_are_refused_in_words() {
    let site = Site::new("");
    let mut wire = site.connect();
    wire.send(&begin(1, RESPONDER, false));
    // A pair that is longer than the stream.
    wire.send(&record(PARAMS, 1, b"\x20\x20REQUEST_METHOD"));
    wire.send(&record(PARAMS, 1, b""));
    let answered = wire.answer(1).expect("a refusal is an answer");
    assert!(answered.stdout.starts_with("Status: 400 "), "{answered:?}");
    site.expect_served();
}

#[test]
fn a_kept_connection_outlives_a_reload_and_meets_the_new_settings() {
    let site = Site::new("ping.path = /before\n");
    let mut wire = site.connect();
    assert_eq!(wire.ask(1, &site.params("/before", &[]), b"").body(), "pong");
    let mark = site.daemon.log().mark();
    rewrite(&site.daemon.place().file("php-fpm.conf"), "/before", "/after");
    site.daemon.signal(Signal::USR2);
    let ready = |line: &str| line.contains("ready to handle connections");
    assert!(site.daemon.log().find_since(mark, wait::DEADLINE, ready).is_some());
    wait::until_true("the new settings to hold", || {
        wire.ask(1, &site.params("/after", &[]), b"").body() == "pong"
    });
}

fn rewrite(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).expect("the configuration can be read");
    fs::write(file, text.replace(from, to)).expect("the configuration can be written");
}
