//! `maitred top` on a terminal.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use maitred_tests::guard::Guarded;
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{Server, document_root};
use maitred_tests::terminal::Terminal;
use maitred_tests::{Target, maitred_program, wait};

/// The control sequences of a terminal for another screen, and for the usual one.
const OTHER_SCREEN: &str = "\x1b[?1049h";
const USUAL_SCREEN: &str = "\x1b[?1049l";

fn top(server: &Server, terminal: &Terminal) -> Guarded {
    let mut command = Command::new(maitred_program());
    let socket = server.admin_socket();
    command.arg("top").arg("--admin-socket").arg(socket);
    command.stdin(terminal.stdio()).stdout(terminal.stdio());
    Guarded::spawn(&mut command, Signal::TERM)
}

fn send(top: &Guarded, signal: Signal) {
    Process::read(top.pid()).expect("it runs").signal(signal);
}

#[test]
fn however_top_is_ended_the_terminal_is_as_it_was() {
    let root = document_root(&[("hello.php", "<?php echo 'hello';")]);
    let server = Server::start(root.path());
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let terminal = Terminal::new();
        assert!(!terminal.is_raw());
        let mut top = top(&server, &terminal);
        wait::until_true("a picture", || {
            terminal.shows(OTHER_SCREEN) && terminal.shows("requests/s")
        });
        assert!(terminal.is_raw());
        send(&top, signal);
        let ended = top.wait(wait::DEADLINE).expect("it ends");
        assert_eq!(ended.signal(), Some(signal.as_raw()), "{ended}");
        wait::until_true("the usual screen", || terminal.shows(USUAL_SCREEN));
        assert!(!terminal.is_raw(), "{signal:?}");
    }
}

#[test]
fn top_that_waits_for_the_server_gives_the_terminal_back_at_once() {
    let root = document_root(&[("hello.php", "<?php echo 'hello';")]);
    let server = Server::start(root.path());
    let terminal = Terminal::new();
    let mut top = top(&server, &terminal);
    wait::until_true("a picture", || terminal.shows("requests/s"));
    server.signal(Signal::STOP);
    send(&top, Signal::TERM);
    let ended = top.wait(wait::DEADLINE).expect("it ends");
    server.signal(Signal::CONT);
    assert_eq!(ended.signal(), Some(Signal::TERM.as_raw()), "{ended}");
    assert!(!terminal.is_raw());
}

#[test]
fn the_key_q_ends_top_and_the_terminal_is_as_it_was() {
    let root = document_root(&[("hello.php", "<?php echo 'hello';")]);
    let server = Server::start(root.path());
    let terminal = Terminal::new();
    let mut top = top(&server, &terminal);
    wait::until_true("a picture", || terminal.shows("requests/s"));
    terminal.press(b"q");
    let ended = top.wait(wait::DEADLINE).expect("it ends");
    assert!(ended.success(), "{ended}");
    wait::until_true("the usual screen", || terminal.shows(USUAL_SCREEN));
    assert!(!terminal.is_raw());
}

#[test]
fn a_load_test_shows_how_it_is_going_and_leaves_the_terminal_as_it_was() {
    let root = document_root(&[("hello.php", "<?php echo 'hello';")]);
    let server = Server::start(root.path());
    let terminal = Terminal::new();
    let mut command = Command::new(maitred_program());
    let url = format!("{}/hello.php", server.base_url());
    command.args(["bench", &url, "--rate=50", "--duration=10m", "--warm-up=0"]);
    command.stdin(terminal.stdio()).stdout(terminal.stdio());
    command.stderr(terminal.stdio());
    let mut bench = Guarded::spawn(&mut command, Signal::TERM);
    wait::until_true("a picture", || terminal.shows("measuring") && terminal.shows("last second"));
    assert!(!terminal.is_raw() && !terminal.shows(OTHER_SCREEN));
    send(&bench, Signal::INT);
    let ended = bench.wait(wait::DEADLINE).expect("it ends");
    assert_eq!(ended.code(), Some(130), "{ended}");
    wait::until_true("a report", || terminal.shows("PARTIAL"));
    assert!(!terminal.is_raw());
}
