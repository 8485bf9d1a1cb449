//! Large cached pages: their bodies are files in memory, which the kernel sends by itself. Every
//! client gets the same bytes, and the number of these files stays within its limit.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;

use maitred_tests::Target;
use maitred_tests::http::{self, Connection, Request, Response};
use maitred_tests::http2::{self, INITIAL_WINDOW_SIZE};
use maitred_tests::lowered::Lowered;
use maitred_tests::ports;
use maitred_tests::server::{Server, Setup, WEB_USER, document_root, write_file};
use maitred_tests::tls::{Authority, curl};
use maitred_tests::{traced, wait};
use rustix::process::{Resource, Signal, getrlimit};
use tempfile::TempDir;

/// A page of `?k=` kilobytes of its version, which the file `version` says: no two places in it are
/// the same. Version 0 is small.
const PAGE: &str = "<?php
    $version = trim(file_get_contents(__DIR__ . '/version'));
    header('ETag: \"v' . $version . '\"');
    if ($version === '0') exit('small');
    for ($line = 0; $line < 32 * (int) $_GET['k']; $line++) {
        printf(\"version %03d of the page, %6d\\n\", $version, $line);
    }";

/// Kilobytes of pages: just too small for a file, large enough, and more than is sent at a time.
const SIZES: [usize; 4] = [47, 48, 300, 5000];

/// Kilobytes that no socket's buffers hold.
const LONG: usize = 15_000;

/// Descriptors of which pages may have four: of what is beyond 4096, an eighth.
const DESCRIPTORS: u64 = 4128;

/// What the files of pages are called where a process's descriptors are listed.
const FILE: &str = "/memfd:cached page (deleted)";

fn site() -> TempDir {
    document_root(&[("index.php", PAGE), ("version", "1")])
}

/// Nothing, which is said for all to see, where no page may have a file.
fn setup(root: &TempDir) -> Option<Setup> {
    let hard = getrlimit(Resource::Nofile).maximum;
    if hard.is_some_and(|hard| hard < DESCRIPTORS) {
        return not_tested(&format!("fewer than {DESCRIPTORS} files may be open here"));
    }
    // The largest has room on a machine with any number of processors.
    let setup = Setup::new(root.path()).top("cache_memory = \"1G\"");
    Some(setup.site("[sites.cache]\nvalid = \"10m\"\npurge_from = \"127.0.0.1\""))
}

fn not_tested<T>(why: &str) -> Option<T> {
    // Past what is kept back of a test that passes, in one piece.
    let line = format!("NOT TESTED: page_cache_large: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    None
}

fn body(kilobytes: usize, version: u32) -> Vec<u8> {
    let line = |line| format!("version {version:03} of the page, {line:6}\n");
    let lines = (0..32 * kilobytes).map(line);
    lines.collect::<String>().into_bytes()
}

fn target(kilobytes: usize) -> String {
    format!("/?k={kilobytes}")
}

fn is_hit(answer: &Response) -> bool {
    let said = answer.header("Cache-Status").unwrap_or_default();
    said.contains("; hit;")
}

fn get(connection: &mut Connection, kilobytes: usize) -> Response {
    let asked = connection.ask(&Request::get(&target(kilobytes)));
    asked.expect("an answer")
}

fn purge_all(server: &Server) {
    let request = Request::new("PURGE", "/*").header("Host", "localhost");
    let answer = http::ask(server.address(), &request.header("Connection", "close"));
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// How many files of pages the front has.
fn files(server: &Server) -> usize {
    let front = server.front().expect("a front runs");
    let fds = fs::read_dir(format!("/proc/{}/fd", front.pid)).expect("its descriptors");
    let links = fds.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
    links.filter(|link| link.as_os_str() == FILE).count()
}

#[test]
fn a_large_page_arrives_as_it_is_whatever_is_asked_of_it() {
    let root = site();
    let Some(setup) = setup(&root) else { return };
    let server = setup.start();
    let mut connection = Connection::open(server.address());
    for kilobytes in SIZES {
        let whole = body(kilobytes, 1);
        assert_eq!(get(&mut connection, kilobytes).body, whole);
        let answer = get(&mut connection, kilobytes);
        assert!(is_hit(&answer) && answer.body == whole, "{kilobytes}");
        let with = |name: &str, value: &str| Request::get(&target(kilobytes)).header(name, value);
        let end = whole.len();
        let ranges = [
            ("bytes=1-", 1, end),
            ("bytes=4095-4097", 4095, 4098),
            ("bytes=-40000", end - 40_000, end),
            ("bytes=-1", end - 1, end),
        ];
        for (range, from, to) in ranges {
            let part = connection.ask(&with("Range", range)).expect("an answer");
            assert_eq!(part.status, 206, "{range}");
            assert!(part.body == whole[from..to], "{range} of {kilobytes}");
        }
        let known = with("If-None-Match", "\"v1\"");
        let known = connection.ask(&known).expect("an answer");
        assert_eq!((known.status, known.body.len()), (304, 0));
        let head = Request::new("HEAD", &target(kilobytes)).header("Host", "localhost");
        let head = connection.ask(&head).expect("an answer");
        let length = head.header("Content-Length").map(str::parse);
        assert_eq!((head.status, length), (200, Some(Ok(end))));
    }
    assert_eq!(files(&server), SIZES.len() - 1);
    let window = 1 << 30;
    let mut streams = http2::Connection::open(server.address(), &[(INITIAL_WINDOW_SIZE, window)]);
    let more = http2::frame(http2::WINDOW_UPDATE, 0, 0, &window.to_be_bytes());
    streams.send(&more).expect("the server listens");
    for (stream, kilobytes) in (1..).step_by(2).zip(SIZES) {
        streams.ask(stream, &target(kilobytes));
        assert!(streams.body(stream) == body(kilobytes, 1), "{kilobytes}");
    }
    server.stop();
}

#[test]
fn a_large_page_is_the_same_over_tls() {
    let (authority, root) = (Authority::default(), site());
    let certificate = authority.issue("site", &["localhost"]);
    let address = ports::free_address();
    let lines = [format!("certificates = [{}]", certificate.toml())];
    let Some(setup) = setup(&root) else { return };
    let server = setup.tls(address, &lines).start();
    for version in ["--http1.1", "--http2"] {
        for kilobytes in SIZES {
            let url = format!("https://localhost/{}", &target(kilobytes)[1..]);
            for _ in 0..2 {
                let output = curl(&authority, address, [version, url.as_str()]);
                assert!(output.status.success(), "{output:?}");
                assert!(output.stdout == body(kilobytes, 1), "{version}, {kilobytes}");
            }
            let range = ["--range", "1000-60000", version, url.as_str()];
            let end = (32 * 32 * kilobytes).min(60_001);
            let part = curl(&authority, address, range).stdout;
            assert!(part == body(kilobytes, 1)[1000..end], "{version}, {kilobytes}");
        }
    }
    assert_eq!(files(&server), SIZES.len() - 1);
    server.stop();
}

#[test]
fn who_reads_slowly_gets_the_page_that_was_there_when_it_asked() {
    let root = site();
    let Some(setup) = setup(&root) else { return };
    let server = setup.start();
    let mut others = Connection::open(server.address());
    get(&mut others, LONG);
    let mut slow = Connection::open(server.address());
    slow.send(&Request::get(&target(LONG)).to_bytes()).expect("a request is taken");
    assert!(is_hit(&slow.read_head().expect("a head")));
    let old = body(LONG, 1);
    let begin = slow.read_bytes(100_000).expect("the beginning");
    write_file(root.path(), "version", b"2");
    purge_all(&server);
    let new = get(&mut others, LONG);
    assert!(!is_hit(&new) && new.body == body(LONG, 2));
    assert_eq!(files(&server), 2, "one is being read yet");
    let rest = slow.read_bytes(old.len() - begin.len()).expect("the rest");
    assert!([begin, rest].concat() == old);
    let again = get(&mut slow, LONG);
    assert!(is_hit(&again) && again.body == new.body);
    assert_eq!(files(&server), 1);
    // What is in use when the client goes is not held for it.
    slow.send(&Request::get(&target(LONG)).to_bytes()).expect("a request is taken");
    slow.read_head().expect("a head");
    write_file(root.path(), "version", b"3");
    purge_all(&server);
    assert!(get(&mut others, LONG).body == body(LONG, 3));
    drop(slow);
    wait::until_true("the old page's file to go", || files(&server) == 1);
    server.stop();
}

#[test]
fn pages_have_no_more_files_than_they_may_and_those_go_with_them() {
    let root = site();
    // Two of them are for pages.
    let limit = ["prlimit", "--nofile=4112:4112"];
    let Some(setup) = setup(&root) else { return };
    let server = setup.under(&limit).start();
    let mut connection = Connection::open(server.address());
    let sizes = [60, 61, 62, 63, 64];
    for kilobytes in sizes.into_iter().chain(sizes) {
        assert!(get(&mut connection, kilobytes).body == body(kilobytes, 1));
    }
    assert_eq!(files(&server), 2);
    for kilobytes in sizes {
        assert!(is_hit(&get(&mut connection, kilobytes)));
    }
    write_file(root.path(), "version", b"2");
    purge_all(&server);
    for kilobytes in sizes {
        let answer = get(&mut connection, kilobytes);
        assert!(!is_hit(&answer) && answer.body == body(kilobytes, 2));
        assert!(files(&server) <= 2);
    }
    write_file(root.path(), "version", b"0");
    purge_all(&server);
    for kilobytes in sizes {
        assert_eq!(get(&mut connection, kilobytes).text(), "small");
    }
    assert_eq!(files(&server), 0);
    server.stop();
}

#[test]
fn a_cache_that_a_reload_brings_leaves_connections_the_descriptors_they_were_promised() {
    let root = site();
    let Some(cached) = setup(&root) else { return };
    let server = Setup::new(root.path()).top("cache_memory = \"1G\"").start();
    let mut connection = Connection::open(server.address());
    assert!(get(&mut connection, 60).body == body(60, 1));
    server.configure(&cached);
    assert!(server.reload().contains("reloaded"));
    let mut connection = Connection::open(server.address());
    for round in 0..2 {
        for kilobytes in SIZES {
            let answer = get(&mut connection, kilobytes);
            assert!(answer.body == body(kilobytes, 1), "{kilobytes}");
            assert_eq!(is_hit(&answer), round > 0, "{kilobytes}");
        }
    }
    assert_eq!(files(&server), 0, "its pages are where small ones are");
    // A front that starts with the cache can promise connections fewer.
    drop(connection);
    let before = server.front().expect("a front").pid;
    let mark = server.log().mark();
    server.signal(Signal::USR2);
    server.expect_log(mark, "upgraded to maitred");
    wait::until_true("the old front to go", || {
        let mut pids = server.processes().into_iter().map(|process| process.pid);
        pids.all(|pid| pid != before)
    });
    let mut connection = Connection::open(server.address());
    for kilobytes in SIZES {
        assert!(get(&mut connection, kilobytes).body == body(kilobytes, 1));
    }
    assert_eq!(files(&server), SIZES.len() - 1);
    server.stop();
}

#[test]
fn without_descriptors_a_large_page_is_kept_where_small_ones_are() {
    let root = site();
    let Some(setup) = setup(&root) else { return };
    let server = setup.start();
    let mut connection = Connection::open(server.address());
    get(&mut connection, 1);
    let front = server.front().expect("a front");
    // The first three are always used.
    let lowered = Lowered::new(front, WEB_USER, "Max open files", "--nofile", 3);
    for _ in 0..2 {
        assert!(get(&mut connection, 60).body == body(60, 1));
    }
    assert!(is_hit(&get(&mut connection, 60)));
    assert_eq!(files(&server), 0);
    drop(lowered);
    for _ in 0..2 {
        assert!(get(&mut connection, 61).body == body(61, 1));
    }
    assert_eq!(files(&server), 1);
    server.stop();
}

#[test]
fn where_files_may_not_be_so_large_pages_and_answers_wait_in_memory() {
    let root = site();
    let Some(setup) = setup(&root) else { return };
    let server = setup.start();
    let mut connection = Connection::open(server.address());
    get(&mut connection, 1);
    let front = server.front().expect("a front");
    let lowered = Lowered::new(front, WEB_USER, "Max file size", "--fsize", 1 << 20);
    let mark = server.log().mark();
    let mut slow = Connection::open(server.address());
    slow.send(&Request::get(&target(LONG)).to_bytes()).expect("a request is taken");
    server.expect_log(mark, "could not be spooled to disk");
    let answer = slow.read_response(false).expect("an answer");
    assert!(!is_hit(&answer) && answer.body == body(LONG, 1));
    let again = get(&mut connection, LONG);
    assert!(is_hit(&again) && again.body == answer.body);
    assert_eq!(files(&server), 0);
    get(&mut connection, 300);
    assert_eq!(files(&server), 1);
    drop(lowered);
    server.stop();
}

#[test]
fn a_large_page_is_put_into_its_file_beside_the_threads_that_serve() {
    let root = site();
    let Some(setup) = setup(&root) else { return };
    let server = setup.start();
    let mut connection = Connection::open(server.address());
    get(&mut connection, 1);
    let front = server.front().expect("a front");
    let calls = root.path().join("calls");
    let output = format!("--output={}", calls.display());
    let options = [output.as_str(), "--trace=memfd_create,?epoll_wait,?epoll_pwait"];
    let Some(mut trace) = traced::attach(&front, &options) else {
        not_tested::<()>("strace is not permitted here");
        return;
    };
    get(&mut connection, 300);
    assert!(is_hit(&get(&mut connection, 300)));
    trace.stop();
    let calls = fs::read_to_string(calls).expect("what strace saw");
    let threads = |call: &str| -> BTreeSet<&str> {
        let calls = calls.lines().filter(|line| line.contains(call));
        calls.filter_map(|line| line.split(' ').next()).collect()
    };
    let (copied, served) = (threads("memfd_create("), threads("epoll_"));
    assert!(copied.len() == 1 && !served.is_empty(), "{calls}");
    assert!(copied.is_disjoint(&served), "{calls}");
    server.stop();
}
