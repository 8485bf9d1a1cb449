//! `maitred top` on a terminal.

use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use maitred_tests::guard::Guarded;
use maitred_tests::http::{Connection, Request};
use maitred_tests::outside::{command, let_go, pool, site, text};
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{
    Server, Setup, document_root, give_to_web_user, public_folder, write_file,
};
use maitred_tests::terminal::Terminal;
use maitred_tests::{Target, maitred_program, ports, wait};

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

/// The lines of the last whole picture. Each begins with a move of the cursor to its row.
fn picture(terminal: &Terminal) -> Vec<String> {
    let all = terminal.text();
    let pictures: Vec<&str> = all.split("\x1b[1;1H\x1b[1;1H").skip(1).collect();
    let whole = pictures.iter().rev().find(|picture| picture.contains("\x1b[J"));
    let rows = whole.iter().flat_map(|picture| picture.split("\x1b[K"));
    // A line may have an `H` as well, such as in the name of a folder.
    let line = |row: &str| Some(row.strip_prefix("\x1b[")?.split_once('H')?.1.to_owned());
    let rows = rows.map(|row| line(row).unwrap_or_else(|| row.to_owned()));
    rows.take_while(|row| !row.contains('\x1b')).collect()
}

fn row(lines: &[String], start: &str) -> Option<usize> {
    lines.iter().position(|line| line.trim_start().starts_with(start))
}

#[test]
fn top_of_sixty_pools_shows_on_eighty_columns_which_one_hangs_and_where() {
    let root = site();
    let folder = root.path();
    let mut others = String::new();
    for number in 0..59 {
        let _ = write!(
            others,
            "\n[[sites]]\nroot = {folder:?}\npool = \"t{number:03}\"\nhosts = \
             \"t{number:03}.example\"\n[pools.t{number:03}]\npm = \"ondemand\"\nmax_children = 4\n"
        );
    }
    let server = Setup::new(folder).pm("ondemand").hosts(&["main.example"]).site(&others).start();
    let hanging = [3, 4, 5].map(|product| {
        let mut request = Request::get(&format!("/wait.php?p={product}&lang=de"));
        request.headers[0].1 = "t055.example".to_owned();
        let mut connection = Connection::open(server.address());
        connection.send(&request.to_bytes()).expect("the server takes a request");
        connection
    });
    let terminal = Terminal::new();
    let mut top = top(&server, &terminal);
    let lines = wait::poll(wait::DEADLINE, || {
        let lines = picture(&terminal);
        let hanging = lines.iter().filter(|line| line.contains(" GET /wait.php?p=…&lang=…"));
        (hanging.count() == 3 && row(&lines, "usleep()").is_some()).then_some(lines)
    });
    let lines = lines.unwrap_or_else(|| panic!("not all of it: {:#?}", picture(&terminal)));
    assert_eq!(lines.len(), 24, "{lines:#?}");
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
    let titles = row(&lines, "POOL").expect("titles");
    assert!(lines[titles].ends_with(" REQUESTS REFUSED FAILED"), "{lines:#?}");
    assert!(lines[titles + 1].starts_with("t055") && lines[titles + 1].contains(" 3/4 "));
    assert!(lines[titles + 2].starts_with("59 pools idle ("), "{lines:#?}");
    assert!(lines[23].contains("s sorts (by load)"), "{lines:#?}");
    terminal.press(b"sa");
    wait::until_true("another order, with each idle pool", || {
        let lines = picture(&terminal);
        let last = lines.last().is_some_and(|line| line.contains("by requests"));
        last && row(&lines, "t001").is_some() && row(&lines, "RUNNING").is_some()
    });
    terminal.press(b"\x1b[B\x1b[B\x1b[B");
    wait::until_true("pools further down", || {
        let lines = picture(&terminal);
        row(&lines, "POOL").is_none() && row(&lines, "RUNNING").is_some()
    });
    terminal.press(b"q");
    assert!(top.wait(wait::DEADLINE).is_some_and(|ended| ended.success()));
    let status = text(&command(&server, &["status"]).stdout);
    assert!(status.contains("\n59 pools idle (0 requests, 0 refused, 0 failed"), "{status}");
    let all = text(&command(&server, &["status", "--all"]).stdout);
    assert!(all.contains("\nt001 ") && !all.contains("pools idle"), "{all}");
    assert_eq!(pool(&server)["name"], "t000");
    let_go(&root);
    for mut connection in hanging {
        assert_eq!(connection.read_response(false).expect("a response").status, 200);
    }
}

#[test]
fn no_color_holds_for_the_commands_and_for_the_log() {
    let root = document_root(&[("hello.php", "<?php echo 'hello';")]);
    let server = Server::start(root.path());
    for (colors, no_color) in [(true, ""), (false, "1")] {
        let terminal = Terminal::new();
        let mut doctor = Command::new(maitred_program());
        doctor.arg("doctor").arg("--config").arg(server.configuration());
        doctor.env("NO_COLOR", no_color).stdin(Stdio::null()).stdout(terminal.stdio());
        assert!(doctor.status().is_ok_and(|ended| ended.code().is_some()));
        wait::until_true("the findings", || terminal.shows(" OK"));
        assert_eq!(terminal.shows("\x1b["), colors, "doctor: {}", terminal.text());
        let terminal = Terminal::new();
        let mut serve = Command::new(maitred_program());
        let port = ports::free_address().to_string();
        serve.args(["serve", "--production", "--listen", &port]).arg(root.path());
        serve.env("NO_COLOR", no_color).stdin(Stdio::null()).stderr(terminal.stdio());
        let mut serve = Guarded::spawn(&mut serve, Signal::TERM);
        wait::until_true("the log", || terminal.shows(" on http://"));
        send(&serve, Signal::TERM);
        assert!(serve.wait(wait::DEADLINE).is_some_and(|ended| ended.success()));
        wait::until_true("the log's end", || terminal.shows("SIGTERM"));
        assert_eq!(terminal.shows("\x1b["), colors, "serve: {}", terminal.text());
    }
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

#[test]
fn top_has_tabs_a_filter_and_several_servers() {
    let root = site();
    // A row of the screen has room for one of them at least.
    let says = b"<?php error_log(str_repeat('said-by-' . $_GET['who'] . ' ', 3)); echo 'said';";
    write_file(root.path(), "says.php", says);
    give_to_web_user(root.path());
    let (admin, logs) = (ports::free_address(), public_folder());
    let log = |name: &str| format!("error_log = {:?}", logs.path().join(name));
    let first = Setup::new(root.path())
        .top(&format!("admin = \"{admin}\"\n{}", log("first.log")))
        .pool("[pools.shop]\npm = \"static\"\nmax_children = 1")
        .start();
    let second = Setup::new(root.path()).top(&log("second.log")).start();
    // Routes are counted from here on.
    assert_eq!(maitred_tests::http::get(admin, "/metrics").status, 200);
    assert_eq!(maitred_tests::http::get(first.address(), "/hello.php").status, 200);
    let mut waits = Connection::open(first.address());
    waits.send(&Request::get("/wait.php").to_bytes()).expect("the server takes a request");
    let terminal = Terminal::new();
    let mut command = Command::new(maitred_program());
    command.arg("top").arg("--admin-socket").arg(first.admin_socket());
    command.arg("--and").arg(second.admin_socket()).env("NO_COLOR", "1");
    command.stdin(terminal.stdio()).stdout(terminal.stdio());
    let mut top = Guarded::spawn(&mut command, Signal::TERM);
    let shows = |what: &str, is_there: &dyn Fn(&[String]) -> bool| {
        wait::until_true(what, || is_there(&picture(&terminal)));
    };
    let has = |lines: &[String], text: &str| lines.iter().any(|line| line.contains(text));
    // Paths of sockets may hold an H, which ends a move of the cursor.
    let alive = |lines: &[String]| lines.iter().filter(|one| one.contains("workers busy")).count();
    let process = |server: &Server| format!("process {},", server.supervisor().pid);
    let (one, other) = (process(&first), process(&second));
    shows("a line for each server", &|lines| alive(lines) == 2 && has(lines, &one));
    shows("both pools", &|lines| has(lines, "[1 pools]") && has(lines, "shop"));
    terminal.press(b"2");
    shows("the running request", &|lines| has(lines, "[2 workers]") && has(lines, "GET /wait.php"));
    terminal.press(b"3");
    shows("the route", &|lines| has(lines, "[3 routes]") && has(lines, "/hello.php"));
    terminal.press(b"1/shop\r");
    shows("one pool", &|lines| row(lines, "shop").is_some() && row(lines, "www").is_none());
    terminal.press(b"\x1b");
    shows("both pools again", &|lines| row(lines, "www").is_some());
    terminal.press(b"n");
    shows("the other server", &|lines| has(lines, &other) && row(lines, "shop").is_none());
    let is_number = |c: char| c.is_ascii_digit() || c == ';';
    let is_colour = |part: &str| part.trim_start_matches(is_number).starts_with('m');
    assert!(!terminal.text().split("\x1b[").skip(1).any(is_colour), "no colours");
    let said = |server: &Server, who: &str| {
        let path = format!("/says.php?who={who}");
        assert_eq!(maitred_tests::http::get(server.address(), &path).status, 200);
    };
    said(&first, "first");
    terminal.press(b"5");
    shows("what was logged", &|lines| has(lines, "[5 logs]") && has(lines, "said-by-first"));
    said(&second, "second");
    shows("the other's", &|lines| has(lines, "said-by-first") && has(lines, "said-by-second"));
    for server in [&first, &second] {
        let socket = server.admin_socket();
        let parts: Vec<_> = socket.iter().map(|part| part.to_string_lossy()).collect();
        let mark = format!("{}: 20", parts[parts.len() - 2..].join("/"));
        assert!(terminal.shows(&mark), "{mark}");
    }
    terminal.press(b"/by-second\r");
    shows("one message", &|lines| !has(lines, "said-by-first") && has(lines, "said-by-second"));
    terminal.press(b"\x1b");
    shows("both messages", &|lines| has(lines, "said-by-first") && has(lines, "said-by-second"));
    terminal.press(b"6");
    shows("no nodes", &|lines| has(lines, "[6 nodes]") && has(lines, "nothing to show in nodes"));
    terminal.press(b"1");
    shows("the pools again", &|lines| has(lines, "[1 pools]"));
    // A server that is gone has a line all the same.
    let_go(&root);
    drop(waits);
    first.stop();
    shows("one server", &|lines| alive(lines) == 1 && has(lines, &other));
    terminal.press(b"q");
    assert!(top.wait(wait::DEADLINE).expect("it ends").success());
    second.stop();
}
