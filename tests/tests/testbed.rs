//! The testbed itself: that it notices what it is there to notice.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};

use maitred_tests::Target;
use maitred_tests::corpus::{self, Difference, Exchange, Known, Masks, Outcome};
use maitred_tests::guard::Guarded;
use maitred_tests::http::{Connection, Response};
use maitred_tests::processes::{self, Process, Signal};
use maitred_tests::{picture, ports, wait};

/// A target without requests.
struct Silent(SocketAddr);

impl Target for Silent {
    fn address(&self) -> SocketAddr {
        self.0
    }

    fn log_text(&self) -> String {
        String::new()
    }
}

fn exchange(folder: &Path) -> Exchange {
    fs::write(folder.join("a.php"), "<?php\n// request: GET {self}?x\n// expect: two\n")
        .expect("a file can be written");
    let mut scripts = corpus::load(folder);
    assert_eq!(scripts[0].exchanges[0].request.target, "/a.php?x");
    scripts.remove(0).exchanges.remove(0)
}

fn outcome(status: u16, headers: &[(&str, &str)], body: &str) -> Outcome {
    let headers = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    let response = Response {
        status,
        status_line: format!("HTTP/1.1 {status}"),
        headers,
        body: body.into(),
        interim: Vec::new(),
    };
    Outcome { response: Ok(response), missing_log: Vec::new() }
}

fn known(folder: &Path, text: &str) -> Known {
    let file = folder.join("differences.toml");
    fs::write(&file, text).expect("a file can be written");
    Known::read(&file)
}

fn differences(
    known: &Known,
    exchange: &Exchange,
    ours: &Outcome,
    theirs: &Outcome,
) -> Vec<Difference> {
    let masks = |port| Masks::of(&Silent(SocketAddr::from(([127, 0, 0, 1], port))));
    let (our_masks, their_masks) = (masks(12_001), masks(12_002));
    let script = ("a.php", 1, exchange);
    corpus::compare(known, script, (ours, &our_masks), (theirs, &their_masks))
}

fn places(differences: &[Difference]) -> Vec<&str> {
    differences.iter().map(|difference| difference.place.as_str()).collect()
}

#[test]
fn answers_that_differ_are_told_apart_place_by_place() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let exchange = exchange(folder.path());
    let known = known(folder.path(), "[[ignored_header]]\nname = 'date'\nreason = 'time'\n");
    let ours = outcome(200, &[("Date", "1"), ("X-A", "1"), ("x-b", "b")], r#"{"k": 1, "same": 0}"#);
    let theirs =
        outcome(404, &[("date", "2"), ("x-a", "2"), ("X-B", "b")], r#"{"k": 2, "same": 0}"#);
    let found = differences(&known, &exchange, &ours, &theirs);
    assert_eq!(places(&found), ["body.k", "header.x-a", "status"]);
    let repeated = outcome(200, &[("X-A", "1"), ("X-A", "1")], "two");
    let single = outcome(200, &[("X-A", "1")], "two");
    let found = differences(&known, &exchange, &repeated, &single);
    assert_eq!(places(&found), ["header.x-a"]);
}

#[test]
fn a_servers_own_port_is_no_difference_but_another_number_is() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let exchange = exchange(folder.path());
    let known = known(folder.path(), "");
    let (ours, theirs) = (outcome(200, &[], "at :12001"), outcome(200, &[], "at :12002"));
    assert!(differences(&known, &exchange, &ours, &theirs).is_empty());
    let (ours, theirs) = (outcome(200, &[], "no 12001"), outcome(200, &[], "no 12002"));
    assert_eq!(places(&differences(&known, &exchange, &ours, &theirs)), ["body"]);
}

#[test]
fn a_known_difference_is_accepted_and_an_idle_entry_is_reported() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let exchange = exchange(folder.path());
    let entry =
        |place| format!("[[difference]]\nscript = 'a.php'\nplace = '{place}'\nreason = 'r'\n");
    let known = known(folder.path(), &(entry("status") + &entry("header.x-gone")));
    let (ours, theirs) = (outcome(200, &[], "two"), outcome(404, &[], "three"));
    let (unexplained, idle) = known.judge(differences(&known, &exchange, &ours, &theirs));
    assert_eq!(places(&unexplained), ["body"]);
    assert_eq!(idle.len(), 1);
    assert!(idle[0].contains("header.x-gone"), "{idle:?}");
}

#[test]
#[should_panic(expected = "no reason given")]
fn a_known_difference_without_a_reason_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    known(folder.path(), "[[difference]]\nscript = 'a.php'\nplace = 'body'\nreason = ' '\n");
}

#[test]
fn what_a_script_expects_is_looked_for_in_the_answer() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let exchange = exchange(folder.path());
    assert!(corpus::unmet_expectations(&exchange, &outcome(200, &[], "one two")).is_empty());
    assert_eq!(corpus::unmet_expectations(&exchange, &outcome(500, &[], "one")).len(), 2);
}

#[test]
#[should_panic(expected = "has no `// request:` line")]
fn a_script_without_a_request_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    fs::write(folder.path().join("mute.php"), "<?php\n").expect("a file can be written");
    corpus::load(folder.path());
}

#[test]
fn a_guarded_child_takes_its_own_children_along() {
    let mut shell = Command::new("sh");
    shell.args(["-c", "sleep 600 & sleep 600 & wait"]).stdout(Stdio::null());
    let guarded = Guarded::spawn(&mut shell, Signal::TERM);
    let family: Vec<Process> = wait::until("the shell's children", || {
        Some(processes::family(guarded.pid())).filter(|family| family.len() == 3)
    });
    drop(guarded);
    wait::until_true("all three to end", || !family.iter().any(Process::is_running));
}

#[test]
fn a_listening_port_is_seen_as_such() {
    let address = ports::free_address();
    assert!(!ports::is_listening(address));
    let listener = TcpListener::bind(address).expect("a free port");
    assert!(ports::is_listening(address));
    assert!(!ports::is_free_again(address));
    drop(listener);
    // A process that another test starts at this moment has the socket until it runs its program.
    wait::until_true("the port to be free", || !ports::is_listening(address));
    wait::until_true("the port to be free again", || ports::is_free_again(address));
}

#[test]
fn a_cut_answer_is_an_error_and_not_a_shorter_answer() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Le",
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let mut connection = Connection::open(address);
        let (mut accepted, _) = listener.accept().expect("a connection");
        std::io::Write::write_all(&mut accepted, answer.as_bytes()).expect("bytes are taken");
        drop(accepted);
        assert!(connection.read_response(false).is_err(), "{answer:?}");
    }
}

#[test]
#[should_panic(expected = "is blank")]
fn a_picture_of_one_colour_is_blank() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("blank.png");
    fs::write(&file, picture::png(2, 2)).expect("a file can be written");
    picture::assert_not_blank(&file);
    let mut encoder = png::Encoder::new(fs::File::create(&file).expect("a file"), 100, 100);
    encoder.set_color(png::ColorType::Grayscale);
    let mut writer = encoder.write_header().expect("a header");
    writer.write_image_data(&[255; 10_000]).expect("pixels");
    writer.finish().expect("an end");
    picture::assert_not_blank(&file);
}

#[test]
fn a_log_is_read_line_by_line_and_waited_for() {
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo one >&2; read line; echo two >&2"]);
    shell.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut guarded = Guarded::spawn(&mut shell, Signal::TERM);
    let pipe = guarded.child().stderr.take().expect("stderr is a pipe");
    let log = maitred_tests::log::Log::collect(pipe);
    assert!(log.find_since(0, wait::DEADLINE, |line| line == "one").is_some());
    let mark = log.mark();
    assert!(log.find_since(mark, std::time::Duration::ZERO, |line| line == "two").is_none());
    drop(guarded.child().stdin.take());
    assert!(log.find_since(mark, wait::DEADLINE, |line| line == "two").is_some());
}
