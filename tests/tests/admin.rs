//! The server seen from outside: its admin socket, and the commands that use it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use maitred_tests::guard::Guarded;
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::outside::{command, let_go, occupy, pool, site, status, succeeded, text};
use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup};
use maitred_tests::{Target, maitred_program, wait};
use serde_json::Value;

#[test]
fn status_tells_what_every_worker_is_busy_with_and_who_waits() {
    let root = site();
    let server = Setup::new(root.path()).workers(1).start();
    assert_eq!(http::get(server.address(), "/nap.php").text(), "rested");
    let _busy = occupy(&server);
    let mut waiting = Connection::open(server.address());
    let request = Request::get("/hello.php").to_bytes();
    waiting.send(&request).expect("the server takes a request");
    wait::until_true("a request to wait", || pool(&server)["queue"]["now"] == 1);
    let all = status(&server);
    assert_eq!(all["phase"], "serving", "{all}");
    assert_eq!(all["listen"][0], server.address().to_string(), "{all}");
    let www = &all["pools"][0];
    assert_eq!(www["name"], "www", "{www}");
    assert_eq!(www["workers"]["busy"], 1, "{www}");
    assert_eq!(www["workers"]["idle"], 0, "{www}");
    assert_eq!(www["queue"]["limit"], 1000, "{www}");
    assert_eq!(www["outcomes"]["responded"], 1, "{www}");
    assert!(www["script_time"]["recent"]["p99_seconds"].is_number(), "{www}");
    assert!(www["memory"]["private_bytes"].as_u64() > Some(0), "{www}");
    let running = &www["running"][0];
    assert_eq!(running["uri"], "/wait.php", "{www}");
    assert_eq!(running["pid"], server.workers()[0].pid, "{www}");
    let table = text(&command(&server, &["status"]).stdout);
    assert!(table.contains("GET /wait.php"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    let picture = text(&command(&server, &["top", "--once"]).stdout);
    assert!(picture.contains("GET /wait.php") && picture.contains(" requests/s"), "{picture}");
    let details = text(&command(&server, &["status", "www"]).stdout);
    assert!(details.contains("1 busy, 0 idle"), "{details}");
    let_go(&root);
    assert_eq!(waiting.read_response(false).expect("an answer").text(), "hello");
    wait::until_true("the worker to be idle", || {
        pool(&server)["workers"]["idle"] == 1 && pool(&server)["requests"] == 3
    });
    assert!(pool(&server)["queue_wait"]["total"]["count"] == 3);
}

#[test]
fn status_and_top_show_where_the_slowest_scripts_are() {
    let root = site();
    let script = "<?php
        class Till { public function __destruct() {} public function wait($for) { nap($for); } }
        function nap($for) {
            while (!file_exists(__DIR__ . '/' . $for)) { clearstatcache(); usleep(50000); }
        }
        (new Till)->wait($_GET['for']);";
    maitred_tests::server::write_file(root.path(), "deep.php", script.as_bytes());
    let server = Setup::new(root.path()).workers(2).start();
    let mut asleep = Connection::open(server.address());
    let request = Request::get("/deep.php?for=go").to_bytes();
    asleep.send(&request).expect("the server takes a request");
    let stack = wait::until("a stack", || {
        let running = pool(&server)["running"][0].clone();
        let stack: Vec<String> = running["stack"]
            .as_array()?
            .iter()
            .filter_map(|call| Some(call.as_str()?.to_owned()))
            .collect();
        (!stack.is_empty()).then_some(stack)
    });
    let file = root.path().join("deep.php").display().to_string();
    // Between two naps it may be looking for the file.
    let [at @ .., nap, wait] = &stack[..] else {
        panic!("{stack:?}");
    };
    assert!(at.iter().all(|call| call.ends_with(&format!("{file}:4"))), "{stack:?}");
    assert_eq!(nap, &format!("nap() {file}:2"));
    assert_eq!(wait, &format!("Till->wait() {file}:6"));
    for arguments in [&["status"][..], &["status", "www"], &["top", "--once"]] {
        let shown = text(&command(&server, arguments).stdout);
        assert!(shown.contains("   Till->wait() "), "{arguments:?}: {shown}");
    }
    // A command that only reads gets the result all the same.
    let mut socket = UnixStream::connect(server.admin_socket()).expect("the socket is there");
    socket.write_all(b"{\"do\":\"status\"}\n").expect("a request");
    socket.shutdown(std::net::Shutdown::Write).expect("half a connection");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    assert!(answer.contains("Till->wait() "), "{answer}");
    let_go(&root);
    assert_eq!(asleep.read_response(false).expect("an answer").status, 200);
}

/// Asks until an answer has taken no time to speak of: the others took the time that a busy machine
/// has taken from the server.
fn at_once(mut ask: impl FnMut() -> Duration) {
    wait::until_true("an answer at once", || ask() < Duration::from_millis(50));
}

#[test]
fn status_waits_for_no_zygote_that_does_not_answer() {
    let root = site();
    let server = Setup::new(root.path()).workers(2).start();
    let _busy = occupy(&server);
    wait::until_true("a stack", || pool(&server)["running"][0]["stack"][0].is_string());
    let zygote = server.zygote().expect("a zygote runs");
    zygote.signal(Signal::STOP);
    let mut socket = UnixStream::connect(server.admin_socket()).expect("the socket is there");
    let mut lines = BufReader::new(socket.try_clone().expect("a descriptor")).lines();
    at_once(|| {
        let asked = Instant::now();
        // Two in one breath: each has its own answer.
        socket.write_all(b"{\"do\":\"status\"}\n{\"do\":\"status\"}\n").expect("a request");
        for _ in 0..2 {
            let answer = lines.next().expect("an answer").expect("an answer");
            assert!(answer.contains("/wait.php"), "{answer}");
        }
        asked.elapsed() / 2
    });
    zygote.signal(Signal::CONT);
    wait::until_true("a stack again", || pool(&server)["running"][0]["stack"][0].is_string());
    assert_eq!(server.zygote(), Some(zygote), "it was left alone");
    let_go(&root);
}

#[test]
fn status_is_answered_at_once_while_every_worker_is_busy() {
    let root = site();
    let server = Setup::new(root.path()).workers(2).start();
    let _busy = [occupy(&server), occupy(&server)];
    let mut socket = UnixStream::connect(server.admin_socket()).expect("the socket is there");
    let mut lines = BufReader::new(socket.try_clone().expect("a descriptor")).lines();
    at_once(|| {
        let asked = Instant::now();
        socket.write_all(b"{\"do\":\"status\"}\n").expect("a request");
        let answer = lines.next().expect("an answer").expect("an answer");
        let took = asked.elapsed();
        let answer: Value = serde_json::from_str(&answer).expect("an answer is JSON");
        assert_eq!(answer["status"]["pools"][0]["workers"]["busy"], 2, "{answer}");
        took
    });
    let_go(&root);
}

#[test]
fn requests_are_counted_by_how_they_ended_and_workers_too() {
    let root = site();
    let server = Setup::new(root.path())
        .workers(1)
        // Who comes while a worker has just ended waits for the next one.
        .pool("request_queue_length = 1")
        .pool("request_terminate_timeout = 2")
        .start();
    assert_eq!(http::get(server.address(), "/nap.php").status, 200);
    assert_eq!(http::get(server.address(), "/fatal.php").status, 500);
    let post = Request::post("/crash.php", "text/plain", b"");
    let mut connection = Connection::open(server.address());
    assert_eq!(connection.ask(&post).expect("an answer").status, 502);
    let busy = occupy(&server);
    let mut waiting = Connection::open(server.address());
    let request = Request::get("/hello.php").to_bytes();
    waiting.send(&request).expect("the server takes a request");
    wait::until_true("a request to wait", || pool(&server)["queue"]["now"] == 1);
    assert_eq!(http::get(server.address(), "/hello.php").status, 503);
    wait::until_true("all to be counted", || {
        let ended = &pool(&server)["workers"]["exited"];
        ended["terminated"] == 1 && ended["signal"] == 1 && ended["bailout"] == 1
    });
    drop(busy);
    assert_eq!(waiting.read_response(false).expect("an answer").status, 200);
    wait::until_true("the outcomes", || {
        let www = pool(&server);
        let failed = &www["failed"];
        www["outcomes"]["responded"] == 3
            && www["refused"]["queue_full"] == 1
            && www["refused"]["terminated"].is_null()
            && failed["queue_full"].is_null()
            && failed["terminated"] == 1
            && failed["worker_died"] == 1
            && www["requests"] == 6
    });
    let table = text(&command(&server, &["status"]).stdout);
    let mut rows = table.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        let row = |title| cells.first() == Some(&title) && cells.len() > 7;
        (row("POOL") || row("www")).then_some(cells.join(" "))
    });
    let (titles, www) = (rows.next().expect("titles"), rows.next().expect("a row"));
    assert!(titles.ends_with("REQUESTS REFUSED FAILED PRIVATE"), "{table}");
    let cells: Vec<&str> = www.split(' ').collect();
    assert!(cells.windows(3).any(|cells| cells == ["6", "1", "2"]), "{table}");
    let ended = pool(&server)["workers"]["exited"].clone();
    assert_eq!(ended["failed"], 0, "{ended}");
}

#[test]
fn json_is_printed_in_place_of_text_or_written_to_a_file_as_well() {
    let root = site();
    let server = Server::start(root.path());
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("status.json");
    let option = format!("--json={}", file.display());
    let shown = succeeded(&command(&server, &["status", &option, "www"]));
    assert!(shown.starts_with("maitred ") && shown.contains("\nworkers "), "{shown}");
    let written = std::fs::read_to_string(&file).expect("the file is there");
    let printed = succeeded(&command(&server, &["status", "--json", "www"]));
    for json in [written, printed] {
        let status: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(status["pools"][0]["name"], "www", "{json}");
        assert_eq!(json.lines().count(), 1, "{json}");
    }
    let nowhere = command(&server, &["status", "--json=/nowhere/status.json"]);
    assert_eq!(nowhere.status.code(), Some(1));
    let said = text(&nowhere.stderr);
    assert!(said.contains("/nowhere/status.json cannot be written"), "{said}");
}

#[test]
fn counters_go_on_when_the_front_is_replaced() {
    let root = site();
    let server = Server::start(root.path());
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    wait::until_true("it to be counted", || pool(&server)["requests"] == 1);
    let front = server.front().expect("a front runs");
    front.signal(Signal::KILL);
    wait::until_true("another front", || {
        status(&server)["front_epoch"] == 2 && server.front().is_some()
    });
    wait::until_true("another answer", || {
        let again = http::try_ask(server.address(), &Request::get("/hello.php"));
        again.is_ok_and(|answer| answer.status == 200)
    });
    wait::until_true("both to be counted", || pool(&server)["outcomes"]["responded"] == 2);
}

#[test]
fn stop_waits_for_what_runs_and_a_second_one_does_not() {
    let root = site();
    let mut server = Server::start(root.path());
    let mut busy = occupy(&server);
    let stop = || {
        let mut command = Command::new(maitred_program());
        let socket = server.admin_socket();
        command.arg("stop").arg("--admin-socket").arg(socket);
        command.stdout(Stdio::piped());
        Guarded::spawn(&mut command, Signal::TERM)
    };
    let supervisor = server.supervisor();
    let mut first = stop();
    wait::until_true("the server to drain", || status(&server)["phase"] == "draining");
    let pipe = first.child().stdout.take().expect("stdout is a pipe");
    let mut said = BufReader::new(pipe).lines().map_while(Result::ok);
    assert_eq!(said.next().as_deref(), Some("waiting for 1 script"));
    assert!(first.ended().is_none(), "it waits");
    // Wishes of one breath are one: who is in a hurry asks until it has ended.
    let mut hurried: Vec<Guarded> = Vec::new();
    wait::until_true("the server to end at once", || {
        hurried.push(stop());
        !supervisor.is_running()
    });
    drop(hurried);
    assert_eq!(said.next().as_deref(), Some("stopped"));
    assert!(first.wait(wait::DEADLINE).is_some_and(|ended| ended.success()));
    assert_eq!(server.wait_for_end().code(), Some(0));
    let rest = text(&busy.read_to_end());
    assert!(!rest.contains("0\r\n\r\n"), "the script was cut: {rest}");
    server.expect_killed();
}

#[test]
fn drain_lets_scripts_finish_however_often_it_is_said() {
    let root = site();
    let mut server = Server::start(root.path());
    let mut busy = occupy(&server);
    let mut drains: Vec<_> = (0..2)
        .map(|_| {
            let mut command = Command::new(maitred_program());
            let socket = server.admin_socket();
            command.arg("drain").arg("--admin-socket").arg(socket);
            command.stdout(Stdio::piped());
            let mut drain = Guarded::spawn(&mut command, Signal::TERM);
            wait::until_true("the server to drain", || status(&server)["phase"] == "draining");
            // Its command has reached the server.
            let pipe = drain.child().stdout.take().expect("stdout is a pipe");
            let mut said = BufReader::new(pipe).lines().map_while(Result::ok);
            assert_eq!(said.next().as_deref(), Some("waiting for 1 script"));
            (drain, said)
        })
        .collect();
    server.expect_log(0, "drain, asked for by process");
    let_go(&root);
    let rest = busy.read_to_end();
    assert!(text(&rest).contains("0\r\n\r\n"), "the script has finished");
    for (drain, _said) in &mut drains {
        assert!(drain.wait(wait::DEADLINE).is_some_and(|ended| ended.success()));
    }
    assert_eq!(server.wait_for_end().code(), Some(0));
    let socket = server.admin_socket();
    assert!(!socket.exists(), "the socket goes with the server");
    server.expect_killed();
}

#[test]
fn what_is_no_request_is_refused_and_harms_nobody() {
    let root = site();
    let server = Server::start(root.path());
    let ask = |bytes: &[u8]| {
        let mut socket = UnixStream::connect(server.admin_socket()).expect("the socket is there");
        socket.write_all(bytes).expect("a request");
        let mut answer = String::new();
        let read = BufReader::new(socket).read_line(&mut answer);
        read.map(|_| answer).unwrap_or_default()
    };
    for wrong in [&b"{\"do\":\"dance\"}\n"[..], b"\n", b"\xff\xfe\n", b"[]\n"] {
        let answer = ask(wrong);
        assert!(answer.starts_with(r#"{"refused":{"why":"this is no request"#), "{answer}");
    }
    let endless = ask(&[b'x'; 8192]);
    assert!(endless.contains("at most 4096 bytes"), "{endless}");
    let unknown = command(&server, &["status", "wwww"]);
    assert_eq!(unknown.status.code(), Some(2));
    let said = text(&unknown.stderr);
    assert!(said.contains("there is no pool `wwww`; expected one of `www`"), "{said}");
    // More connections than are let in at once wait for their turn, and it comes.
    let mut crowd: Vec<UnixStream> = (0..40)
        .map(|_| UnixStream::connect(server.admin_socket()).expect("the socket is there"))
        .collect();
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    let last = crowd.pop().expect("a connection");
    drop(crowd);
    (&last).write_all(b"{\"do\":\"status\"}\n").expect("a request");
    let mut answer = String::new();
    BufReader::new(last).read_line(&mut answer).expect("an answer");
    assert!(answer.starts_with(r#"{"status":"#), "{answer}");
}

#[test]
fn a_reload_of_a_wrong_configuration_says_what_is_wrong_and_changes_nothing() {
    let root = site();
    let server = Server::start(root.path());
    let file = server.configuration();
    let right = std::fs::read_to_string(&file).expect("the configuration can be read");
    std::fs::write(&file, format!("lisen = 1\n{right}")).expect("a file can be written");
    let output = command(&server, &["reload"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("did you mean `listen`?"), "{said}");
    let other = "\n[pools.other]\nuser = \"no-such-user\"\n";
    std::fs::write(&file, format!("{right}{other}")).expect("a file can be written");
    let output = command(&server, &["reload"]);
    let line = right.lines().count() + 3;
    let place = format!("maitred.toml:{line}:8: pool `other`: user `no-such-user`");
    // That pool alone is left out.
    let said = succeeded(&output);
    assert!(said.contains(&place), "{said}");
    std::fs::write(&file, right).expect("a file can be written");
    let unknown = command(&server, &["reload", "wwww"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(text(&unknown.stderr).contains("wwww"), "{}", text(&unknown.stderr));
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
}

#[test]
fn a_reload_is_told_when_it_is_done_and_counters_go_on() {
    let root = site();
    let server = Server::start(root.path());
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    wait::until_true("it to be counted", || pool(&server)["requests"] == 1);
    let output = command(&server, &["reload", "www"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("reloaded: pool www restarted"), "{said}");
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    wait::until_true("the workers to have moved over", || {
        let www = pool(&server);
        let workers = &www["workers"];
        www["requests"] == 2 && workers["exited"]["reload"] == 2 && workers["idle"] == 2
    });
    let counters = pool(&server)["counters"].clone();
    assert_eq!(counters["workers_started"], 4, "{counters}");
    let workers = pool(&server)["workers"].clone();
    assert_eq!(workers["starting"], 0, "{workers}");
}

#[test]
fn the_socket_is_for_its_owner_only() {
    let root = site();
    let server = Server::start(root.path());
    let mode = std::fs::metadata(server.admin_socket()).expect("the socket is there");
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
}

#[test]
fn without_a_server_the_socket_is_named_and_the_exit_code_is_1() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("none.sock");
    for verb in ["status", "stop", "drain"] {
        let output = Command::new(maitred_program())
            .arg(verb)
            .arg("--admin-socket")
            .arg(&socket)
            .output()
            .expect("the program can be started");
        assert_eq!(output.status.code(), Some(1), "{verb}");
        let said = text(&output.stderr);
        let expected = format!("no server listens on {}", socket.display());
        assert!(said.contains(&expected) && said.contains("--admin-socket"), "{said}");
    }
}

#[test]
fn a_second_server_is_refused_the_socket_of_the_first_and_steps_aside_from_a_default() {
    let root = site();
    let first = Server::start(root.path());
    let serve = |more: &[&std::ffi::OsStr], runtime: &Path| {
        let mut command = Command::new(maitred_program());
        command.arg("serve").arg(root.path()).args(["--listen", "127.0.0.1:0"]);
        command.args(more).env("XDG_RUNTIME_DIR", runtime);
        command.stderr(Stdio::piped());
        command
    };
    let taken = first.admin_socket();
    let named = [std::ffi::OsStr::new("--admin-socket"), taken.as_os_str()];
    let refused = serve(&named, root.path()).output().expect("the program can be started");
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stderr);
    assert!(said.contains("another server listens on the admin socket"), "{said}");
    assert_eq!(status(&first)["phase"], "serving");
    // Two servers that name none, whichever of them has the default one.
    let runtime = tempfile::tempdir().expect("a temporary folder");
    let mut servers: Vec<Guarded> = Vec::new();
    let mut told = String::new();
    for _ in 0..2 {
        let mut server = Guarded::spawn(&mut serve(&[], runtime.path()), Signal::TERM);
        let pipe = server.child().stderr.take().expect("stderr is a pipe");
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            told.push_str(&line);
            told.push('\n');
            if line.contains("maitred: serving ") {
                break;
            }
        }
        servers.push(server);
    }
    assert_eq!(told.matches("maitred: serving ").count(), 2, "{told}");
    let aside = told.split("--admin-socket ").last().expect("a path");
    let aside = aside.lines().next().unwrap_or_default();
    let output = Command::new(maitred_program())
        .args(["stop", "--admin-socket", aside])
        .output()
        .expect("the program can be started");
    assert!(output.status.success(), "{told}\n{}", text(&output.stderr));
    let mut second = servers.pop().expect("two servers");
    assert!(second.wait(wait::DEADLINE).is_some_and(|ended| ended.success()));
    assert!(!Path::new(aside).exists());
}

#[test]
fn a_diff_of_two_statuses_says_what_failed_in_between() {
    let root = site();
    let dies = b"<?php posix_kill(getmypid(), SIGKILL);";
    maitred_tests::server::write_file(root.path(), "dies.php", dies);
    let server = Setup::new(root.path()).start();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let before = folder.path().join("before.json");
    let save = command(&server, &["status", "--json"]).stdout;
    std::fs::write(&before, save).expect("a file can be written");
    let before = before.to_str().expect("a path is text");
    let same = command(&server, &["diff", before]);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same.stdout));
    assert_eq!(http::get(server.address(), "/dies.php").status, 502);
    let worse = command(&server, &["diff", before]);
    assert_eq!(worse.status.code(), Some(3));
    let said = text(&worse.stdout);
    assert!(said.contains("worse: pool www: 1 of 1 requests failed (worker died)"), "{said}");
    let wrong = command(&server, &["diff", "/nowhere.json"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
    server.stop();
}
