//! What a request of a classic worker leaves behind: nothing that the next one or a disk has of it.

use std::fs;

use maitred_tests::http::{self, Connection, Request};
use maitred_tests::processes::Signal;
use maitred_tests::server::{Setup, document_root, give_to_web_user};
use maitred_tests::{Target, wait};

const MEGABYTE: usize = 1 << 20;

/// A form with a file and a field of these many bytes.
fn form(file: usize, field: usize) -> Vec<u8> {
    let part = |name: &str, bytes: usize| {
        let head = format!("--x\r\nContent-Disposition: form-data; name={name}\r\n\r\n");
        [head.into_bytes(), vec![b'x'; bytes], b"\r\n".to_vec()].concat()
    };
    let file = part("\"f\"; filename=\"n\"", file);
    [file, part("\"t\"", field), b"--x--\r\n".to_vec()].concat()
}

#[test]
fn uploads_of_a_request_that_php_has_no_memory_for_are_removed() {
    let root = document_root(&[("index.php", "<?php echo count($_FILES);")]);
    let uploads = tempfile::tempdir().unwrap();
    give_to_web_user(uploads.path());
    let server = Setup::new(root.path())
        .workers(1)
        .pool(&format!(
            "php_admin_value = {{ upload_tmp_dir = {:?}, post_max_size = \"64M\", \
             upload_max_filesize = \"64M\", memory_limit = \"16M\" }}",
            uploads.path()
        ))
        .site("max_body_size = \"64M\"")
        .start();
    let ask = |field| {
        let form = form(10 * MEGABYTE, field);
        let request = Request::post("/", "multipart/form-data; boundary=x", &form);
        http::ask(server.address(), &request)
    };
    assert_eq!(ask(1).text(), "1", "there is room for the file");
    assert_eq!(ask(20 * MEGABYTE).status, 500);
    server.expect_log(0, "Allowed memory size");
    assert_eq!(fs::read_dir(uploads.path()).unwrap().count(), 0);
    server.stop();
}

#[test]
fn what_a_request_sets_of_its_process_is_not_the_next_ones() {
    let root = document_root(&[
        ("alarm.php", "<?php pcntl_alarm(1); echo getmypid();"),
        ("ignore.php", "<?php pcntl_signal(SIGCHLD, SIG_IGN); echo getmypid();"),
        ("block.php", "<?php pcntl_sigprocmask(SIG_BLOCK, [SIGUSR1]); echo getmypid();"),
        (
            "next.php",
            "<?php for ($from = hrtime(true); hrtime(true) - $from < 2e9;) { }
             pcntl_sigprocmask(SIG_BLOCK, [], $blocked);
             echo json_encode([getmypid(), pcntl_signal_get_handler(SIGCHLD), $blocked]);",
        ),
        ("limit.php", "<?php posix_setrlimit(POSIX_RLIMIT_FSIZE, 9, 9); echo getmypid();"),
        ("nice.php", "<?php proc_nice(5); echo getmypid();"),
        ("pid.php", "<?php echo getmypid();"),
    ]);
    let server = Setup::new(root.path()).workers(1).start();
    let ask = |target: &str| {
        let answer = http::get(server.address(), target);
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer
    };
    assert_eq!(ask("/pid.php").text(), ask("/pid.php").text());
    for target in ["/alarm.php", "/ignore.php", "/block.php", "/limit.php", "/nice.php"] {
        let first = ask(target).text();
        let next = ask("/next.php").json();
        assert_ne!(next[0].to_string(), first, "{target}");
        assert_eq!((next[1].as_i64(), next[2].as_array().map(Vec::len)), (Some(0), Some(0)));
    }
    server.stop();
}

#[test]
fn a_script_takes_no_part_of_a_body_for_the_whole_when_the_front_that_has_it_ends() {
    let script = "<?php
        ignore_user_abort(true);
        register_shutdown_function(fn () => touch(__DIR__ . '/up/ended'));
        touch(__DIR__ . '/up/runs');
        while (!file_exists(__DIR__ . '/up/go')) { clearstatcache(); usleep(2000); }
        copy('php://input', __DIR__ . '/up/part');
        rename(__DIR__ . '/up/part', __DIR__ . '/up/copied');";
    let root = document_root(&[("index.php", script)]);
    let up = root.path().join("up");
    fs::create_dir(&up).unwrap();
    give_to_web_user(&up);
    let server = Setup::new(root.path()).workers(1).site("max_body_size = \"64M\"").start();
    let body = vec![b'x'; 4 * MEGABYTE];
    let mut client = Connection::open(server.address());
    // PHP reads the body of a POST before the script runs.
    let request = Request { method: "PUT".to_owned(), ..Request::post("/", "x/x", &body) };
    client.send(&request.to_bytes()).unwrap();
    wait::until_true("the script to run", || up.join("runs").exists());
    let front = server.front().expect("a front");
    front.signal(Signal::KILL);
    wait::until_true("the front to end", || !front.is_running());
    fs::write(up.join("go"), "").unwrap();
    wait::until_true("the script to end", || up.join("ended").exists());
    let copied = fs::metadata(up.join("copied")).map(|file| file.len());
    assert!(copied.is_err(), "the front had more of it than the worker: {copied:?}");
    server.stop();
}
