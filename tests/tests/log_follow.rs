//! `maitred logs`: what was logged about a pool, a command or a request, and what comes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use maitred_tests::http::{self, Request};
use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup, document_root, public_folder};
use maitred_tests::{Target, maitred_program};

fn logs(server: &Server, words: &[&str]) -> Command {
    let mut command = Command::new(maitred_program());
    command.arg("logs").args(words).arg("--admin-socket").arg(server.admin_socket());
    command
}

fn output(server: &Server, words: &[&str]) -> Output {
    logs(server, words).output().expect("maitred runs")
}

fn lines(server: &Server, words: &[&str]) -> Vec<String> {
    let output = output(server, words);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// A command that follows the log; it ends when this is dropped.
struct Follower {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Follower {
    fn start(server: &Server, words: &[&str]) -> Follower {
        let mut child = logs(server, words).stdout(Stdio::piped()).spawn().expect("maitred runs");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Follower { child, lines }
    }

    /// The next line. The test runner has a limit of time.
    fn next(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("it can be read");
        line
    }

    fn next_with(&mut self, text: &str) {
        while !self.next().contains(text) {}
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// As in `maitred logs -f | head -1`, though no further line comes.
fn ends_without_a_reader(server: &Server, words: &[&str]) {
    let mut child = logs(server, words).stdout(Stdio::piped()).spawn().expect("maitred runs");
    let mut reader = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    reader.read_line(&mut line).expect("it can be read");
    drop(reader);
    let has_ended = || child.try_wait().expect("a child").is_some();
    maitred_tests::wait::until_true("maitred logs to end", has_ended);
}

#[test]
fn the_lines_about_a_pool_a_command_or_a_request_are_shown_and_followed_through_a_rotation() {
    let root = document_root(&[("index.php", "<?php error_log(\"first\\nsecond\"); echo 'done';")]);
    let folder = public_folder();
    let log = folder.path().join("error.log");
    let command = "\n[[pools.www.commands]]\nname = \"talk\"\ncommand = [\"sh\", \"-c\", \
                   \"while sleep 0.2; do echo I talk; done\"]";
    let server = Setup::new(root.path())
        .top(&format!("error_log = {log:?}"))
        .top("send_request_id = true")
        .pool(command)
        .start();
    let mut follower = Follower::start(&server, &["www/talk", "--follow"]);
    for _ in 0..2 {
        assert!(follower.next().contains("pool www: command talk: I talk"));
    }
    let response = http::ask(server.address(), &Request::get("/"));
    let id = response.header("X-Request-Id").expect("an id").to_owned();
    let mut of_pool = Follower::start(&server, &["www", "-f", "-n", "10000"]);
    of_pool.next_with(&format!("[request {id}]"));
    let of_request = lines(&server, &["--request", &id]);
    assert!(of_request[0].contains("first"), "{of_request:?}");
    assert!(of_request.iter().all(|line| !line.contains("I talk")), "{of_request:?}");
    ends_without_a_reader(&server, &["-f", "-n", "1", "--request", &id]);
    assert_eq!(lines(&server, &["www/talk", "-n", "1"]).len(), 1);
    let refused = |name, why| {
        let output = output(&server, &[name]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(why), "{output:?}");
    };
    refused("other", "there is no pool `other`; expected one of `www`");
    refused("www/walk", "no command or schedule `walk`; expected one of `talk`");
    let none = output(&server, &["--request", "zzz"]);
    assert!(none.status.success() && none.stdout.is_empty(), "{none:?}");
    assert!(String::from_utf8_lossy(&none.stderr).contains("no line of the log matches"));

    fs::rename(&log, folder.path().join("error.log.1")).unwrap();
    server.signal(Signal::USR1);
    let is_new = || fs::read_to_string(&log).is_ok_and(|text| text.contains("I talk"));
    maitred_tests::wait::until_true("lines in the new file", is_new);
    let response = http::ask(server.address(), &Request::get("/"));
    let id = response.header("X-Request-Id").expect("an id").to_owned();
    of_pool.next_with(&format!("[request {id}]"));
    follower.next_with("I talk");
    server.stop();
}

#[test]
fn a_log_that_cannot_be_read_is_said_to_be_where_it_is() {
    let root = document_root(&[]);
    let server = Setup::new(root.path()).start();
    let output = output(&server, &["www"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("the log goes to the standard error output of process"), "{said}");
    assert!(said.contains("which is pipe:["), "{said}");
    server.stop();
}
