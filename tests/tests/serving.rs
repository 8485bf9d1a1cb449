//! What a user sees of `maitred serve`: titles, streaming, stopping, configuration mistakes.

use std::fs;
use std::process::Command;

use maitred_tests::Target;
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::peer::Peer;
use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup, document_root, public_folder};
use maitred_tests::{maitred_program, wait};
use tempfile::TempDir;

/// `wait.php` answers `first`, and `second` once the file `go` exists.
fn site() -> TempDir {
    document_root(&[
        ("hello.php", "<?php echo 'hello';"),
        (
            "wait.php",
            "<?php echo 'first'; while (ob_get_level()) { ob_end_flush(); } flush();
             while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); }
             echo 'second';",
        ),
        (
            "early.php",
            "<?php echo 'done'; fastcgi_finish_request();
             while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); }
             error_log('and the script went on');",
        ),
    ])
}

#[test]
fn a_folder_is_served_without_any_configuration() {
    let root = site();
    let server = Server::serve(root.path(), &["--workers", "3"]);
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    assert_eq!(server.workers().len(), 3);
    server.stop();
}

#[test]
fn process_titles_name_role_pool_and_seat() {
    let root = site();
    let server = Setup::new(root.path()).workers(2).start();
    let mut titles: Vec<String> = server.processes().into_iter().map(|p| p.title).collect();
    titles.sort();
    assert_eq!(
        titles,
        [
            "maitred-php: worker pool www seat 0",
            "maitred-php: worker pool www seat 1",
            "maitred-php: zygote pool www",
            "maitred: front",
            "maitred: supervisor",
        ]
    );
}

#[test]
fn flushed_output_reaches_the_client_while_the_script_runs() {
    let root = site();
    let server = Server::start(root.path());
    let mut connection = Connection::open(server.address());
    connection.send(&Request::get("/wait.php").to_bytes()).expect("a request is taken");
    connection.read_head().expect("the head comes at once");
    assert_eq!(connection.read_chunk().expect("a chunk comes at once"), b"first");
    fs::write(root.path().join("go"), "").expect("a file can be written");
    assert_eq!(connection.read_chunk().expect("the rest comes"), b"second");
    assert!(connection.read_chunk().expect("an end comes").is_empty());
}

#[test]
fn a_finished_answer_does_not_wait_for_its_script() {
    let root = site();
    let server = Setup::new(root.path()).workers(1).start();
    assert_eq!(http::get(server.address(), "/early.php").text(), "done");
    let mark = server.log().mark();
    fs::write(root.path().join("go"), "").expect("a file can be written");
    server.expect_log(mark, "and the script went on");
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
}

#[test]
fn a_stopping_server_finishes_running_requests() {
    let root = site();
    for signal in [Signal::TERM, Signal::INT] {
        let _ = fs::remove_file(root.path().join("go"));
        let mut server = Server::start(root.path());
        let mut connection = Connection::open(server.address());
        connection.send(&Request::get("/wait.php").to_bytes()).expect("a request is taken");
        connection.read_head().expect("the head comes at once");
        server.processes();
        server.signal(signal);
        wait::until_true("the server to take no more connections", || {
            Connection::try_open(server.address()).is_err()
        });
        fs::write(root.path().join("go"), "").expect("a file can be written");
        assert_eq!(connection.read_chunk().expect("a chunk"), b"first");
        assert_eq!(connection.read_chunk().expect("the rest still comes"), b"second");
        assert!(server.wait_for_end().success());
        server.assert_nothing_left();
    }
}

#[test]
fn a_second_signal_stops_at_once() {
    let root = site();
    let mut server = Server::start(root.path());
    let mut connection = Connection::open(server.address());
    connection.send(&Request::get("/wait.php").to_bytes()).expect("a request is taken");
    connection.read_head().expect("the head comes at once");
    server.processes();
    server.signal(Signal::TERM);
    wait::until_true("the server to take no more connections", || {
        Connection::try_open(server.address()).is_err()
    });
    // Signals of one breath are one: who is in a hurry asks until it has ended.
    let supervisor = server.supervisor();
    wait::until_true("the server to end at once", || {
        supervisor.signal(Signal::TERM);
        !supervisor.is_running()
    });
    assert!(server.wait_for_end().success());
    server.assert_nothing_left();
    server.expect_killed();
}

#[test]
fn two_signals_of_one_breath_are_one_stop_that_loses_nothing() {
    let root = site();
    let mut server = Server::start(root.path());
    let mut connection = Connection::open(server.address());
    connection.send(&Request::get("/wait.php").to_bytes()).expect("a request is taken");
    connection.read_head().expect("the head comes at once");
    assert_eq!(connection.read_chunk().expect("a chunk"), b"first");
    server.processes();
    server.signal(Signal::TERM);
    server.signal(Signal::INT);
    server.expect_log(0, "SIGTERM: stopping");
    server.expect_log(0, "SIGINT: stopping");
    fs::write(root.path().join("go"), "").expect("a file can be written");
    assert_eq!(connection.read_chunk().expect("the rest"), b"second");
    assert!(server.wait_for_end().success());
    server.assert_nothing_left();
}

#[test]
fn a_stop_waits_for_process_control_timeout_and_no_longer() {
    let root = site();
    let setup = Setup::new(root.path()).top("process_control_timeout = \"1s\"");
    let mut server = setup.start();
    let mut connection = Connection::open(server.address());
    connection.send(&Request::get("/wait.php").to_bytes()).expect("a request is taken");
    connection.read_head().expect("the head comes at once");
    server.processes();
    let asked = std::time::Instant::now();
    server.signal(Signal::TERM);
    assert!(server.wait_for_end().success());
    assert!(asked.elapsed() >= std::time::Duration::from_secs(1));
    server.expect_log(0, "requests still run after process_control_timeout = 1 s");
    server.assert_nothing_left();
}

#[test]
fn a_worker_is_replaced_after_max_requests() {
    let root = site();
    let server = Setup::new(root.path()).workers(1).pool("max_requests = 3").start();
    server.wait_for_full_strength(1, wait::DEADLINE);
    let first = server.workers();
    for _ in 0..10 {
        assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    }
    wait::until_true("another worker", || {
        let now = server.workers();
        now.len() == 1 && now[0].pid != first[0].pid
    });
}

#[test]
fn a_worker_serves_on_after_a_shutdown_function_that_exits_but_not_after_a_fatal_error() {
    let root = document_root(&[
        ("exits.php", "<?php register_shutdown_function(fn () => exit); echo 'page';"),
        (
            "fails.php",
            "<?php register_shutdown_function(function () { echo 'page'; exit; });
             ini_set('memory_limit', '4M'); $a = str_repeat('a', 8 << 20);",
        ),
    ]);
    let server = Setup::new(root.path()).workers(1).start();
    server.wait_for_full_strength(1, wait::DEADLINE);
    let first = server.workers();
    for _ in 0..5 {
        assert_eq!(http::get(server.address(), "/exits.php").text(), "page");
    }
    assert_eq!(server.workers()[0].pid, first[0].pid);
    assert!(http::get(server.address(), "/fails.php").text().contains("page"));
    wait::until_true("another worker", || {
        let now = server.workers();
        now.len() == 1 && now[0].pid != first[0].pid
    });
    server.stop();
}

#[test]
fn a_mistake_in_the_configuration_is_named_with_its_place_and_nothing_starts() {
    let folder = public_folder();
    let file = folder.path().join("maitred.toml");
    let root = site();
    let text = format!("[pools.www]\nmax_childen = 3\n\n[[sites]]\nroot = {:?}\n", root.path());
    fs::write(&file, text).expect("a file can be written");
    let output = Command::new(maitred_program()).arg("serve").arg("--config").arg(&file).output();
    let output = output.expect("maitred can be started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("maitred.toml:2"), "the file and line: {said}");
    assert!(said.contains("max_children"), "the nearest name: {said}");
}

#[test]
fn two_sites_are_told_apart_by_their_hosts() {
    let (first, second) = (site(), document_root(&[("hello.php", "<?php echo 'other';")]));
    let more = format!(
        "\n[[sites]]\nhosts = [\"*.other.test\"]\npool = \"www\"\nroot = {:?}",
        second.path()
    );
    let server = Setup::new(first.path()).hosts(&["first.test"]).site(&more).start();
    for (host, expected) in [("first.test", "hello"), ("a.other.test:80", "other")] {
        let request = Request::new("GET", "/hello.php").header("Host", host);
        assert_eq!(http::ask(server.address(), &request).text(), expected, "{host}");
    }
}

#[test]
fn a_foreign_php_fpm_runs_the_scripts_of_a_site_with_an_upstream() {
    let root = site();
    let peer = Peer::nginx_php_fpm(root.path());
    let upstream = format!("unix:{}", peer.fpm_socket().display());
    let server = Setup::new(root.path()).upstream(&upstream).start();
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    let mark = server.log().mark();
    drop(peer);
    assert_eq!(http::get(server.address(), "/hello.php").status, 502);
    server.expect_log(mark, "fpm.sock");
}

#[test]
fn a_document_root_that_is_switched_is_followed_by_files_and_scripts() {
    let home = public_folder();
    for release in ["1", "2"] {
        let folder = home.path().join(release);
        fs::create_dir(&folder).expect("a folder can be made");
        fs::write(folder.join("index.php"), "<?php echo basename(__DIR__), include 'part.php';")
            .expect("a file can be written");
        fs::write(folder.join("part.php"), format!("<?php return ' part {release}';"))
            .expect("a file can be written");
        fs::write(folder.join("a.txt"), release).expect("a file can be written");
    }
    let current = home.path().join("current");
    std::os::unix::fs::symlink("1", &current).expect("a link can be made");
    let server = Setup::new(&current).start();
    for _ in 0..3 {
        assert_eq!(http::get(server.address(), "/").text(), "1 part 1");
    }
    std::os::unix::fs::symlink("2", home.path().join("next")).expect("a link can be made");
    fs::rename(home.path().join("next"), &current).expect("the link can be replaced");
    assert_eq!(http::get(server.address(), "/").text(), "2 part 2");
    assert_eq!(http::get(server.address(), "/a.txt").text(), "2");
}

#[test]
fn both_families_can_listen_on_one_port() {
    let root = site();
    let port = maitred_tests::ports::free_address().port();
    let four = format!("0.0.0.0:{port}");
    let six = format!("[::]:{port}");
    let server = Server::serve(root.path(), &["--listen", &four, "--listen", &six]);
    for address in [format!("127.0.0.1:{port}"), format!("[::1]:{port}")] {
        let address = address.parse().expect("an address");
        assert_eq!(http::get(address, "/hello.php").text(), "hello");
    }
    server.stop();
}

#[test]
fn trace_is_not_answered() {
    let root = site();
    let server = Server::start(root.path());
    let mut connection = Connection::open(server.address());
    let request = b"TRACE /hello.php HTTP/1.1\r\nHost: localhost\r\n\r\n";
    connection.send(request).expect("a request is taken");
    assert_eq!(connection.read_response(false).expect("an answer").status, 405);
}
