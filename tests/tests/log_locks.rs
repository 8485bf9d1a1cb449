//! Logs in folders of tenants, who can hold the lock of such a file in the kernel for as long as
//! they like: the front and the supervisor go on, and only lines of that log wait or are lost.

use std::fs;
use std::path::{Path, PathBuf};

use maitred_tests::http::{self, Connection, Request};
use maitred_tests::outside::status;
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user, public_folder};
use maitred_tests::stuck_files::StuckFiles;
use maitred_tests::{Target, wait};
use tempfile::TempDir;

/// Writes a page of a file to a log. The kernel reads the page with the lock of the log.
const HOLDS: &str = "<?php
$c = FFI::cdef('int open(const char *, int); long write(int, void *, size_t);
    void *mmap(void *, size_t, int, int, int, long);', 'libc.so.6');
$at = $c->mmap(null, 4096, 1, 0x01, $c->open($_GET['file'], 0), 0);
$c->write($c->open($_GET['log'], 02001), $at, 10);
echo 'released';";

const FFI: &str = "php_admin_value = { \"ffi.enable\" = \"1\", extension = \"ffi\" }";

/// Requests to each site while the lock is held: more than the front has threads, several times.
const REQUESTS: usize = 20;

fn site() -> TempDir {
    document_root(&[
        ("holds.php", HOLDS),
        ("pid.php", "<?php echo getmypid();"),
        ("hello.html", "hello"),
    ])
}

/// A tenant's folder of logs.
fn tenants_folder() -> TempDir {
    let folder = public_folder();
    give_to_web_user(folder.path());
    folder
}

/// A second site, with a pool of its own.
fn other(root: &Path) -> String {
    format!(
        "[pools.other]\npm = \"static\"\nmax_children = 1\n[[sites]]\nhosts = [\"other\"]\n\
         pool = \"other\"\nroot = {root:?}"
    )
}

/// Has the tenant hold the lock of a log.
fn hold(server: &Server, files: &StuckFiles, log: &Path) -> Connection {
    let mut held = Connection::open(server.address());
    let (file, log) = (files.unreadable(), log.display());
    let target = format!("/holds.php?file={}&log={log}", file.display());
    held.send(&Request::get(&target).to_bytes()).expect("the server takes a request");
    files.wait_for_process();
    held
}

/// Requests pages of both sites, each over a connection of its own.
fn request_pages(server: &Server) {
    for _ in 0..REQUESTS {
        assert_eq!(http::get(server.address(), "/hello.html").text(), "hello");
        let request = Request::new("GET", "/pid.php").header("Host", "other");
        assert_eq!(http::ask(server.address(), &request).status, 200);
    }
}

fn count(log: &Path, text: &str) -> usize {
    fs::read_to_string(log).map_or(0, |lines| lines.matches(text).count())
}

#[test]
fn a_site_whose_tenant_holds_the_lock_of_its_access_log_and_all_others_are_served() {
    let Some(files) = StuckFiles::mount() else {
        eprintln!("skipped: only root may mount a file system in user space, with /dev/fuse");
        return;
    };
    let (root, folder) = (site(), tenants_folder());
    let log: PathBuf = folder.path().join("access.log");
    let more = format!("access_log = {log:?}\n{}", other(root.path()));
    let server = Setup::new(root.path()).workers(1).pool(FFI).site(&more).start();
    // It is dropped before the server, which waits for its processes.
    let files = files;
    http::get(server.address(), "/hello.html");
    wait::until_true("a line in the log", || count(&log, "/hello.html") == 1);
    let mut held = hold(&server, &files, &log);
    request_pages(&server);
    assert_eq!(status(&server)["pools"].as_array().map(Vec::len), Some(2));
    assert_eq!(count(&log, "/hello.html"), 1);
    files.release();
    assert_eq!(held.read_response(false).expect("a response").text(), "released");
    wait::until_true("all lines in the log", || count(&log, "/hello.html") == 1 + REQUESTS);
    server.stop();
    assert_eq!(count(&log, "/holds.php"), 1);
}

#[test]
fn a_pool_whose_tenant_holds_the_lock_of_its_slow_log_delays_no_other_and_loses_its_entries() {
    let Some(files) = StuckFiles::mount() else {
        eprintln!("skipped: only root may mount a file system in user space, with /dev/fuse");
        return;
    };
    let (root, folder) = (site(), tenants_folder());
    let log = folder.path().join("slow.log");
    let slow = format!("slowlog = {log:?}\nrequest_slowlog_timeout = \"1s\"");
    let setup = Setup::new(root.path()).workers(1).pool(FFI).pool(&slow);
    let server = setup.site(&other(root.path())).start();
    let files = files;
    wait::until_true("the log to be created", || log.exists());
    let mut held = hold(&server, &files, &log);
    server.expect_log(0, "cannot be written: a write takes longer than 2 s");
    request_pages(&server);
    assert_eq!(status(&server)["pools"].as_array().map(Vec::len), Some(2));
    files.release();
    assert_eq!(held.read_response(false).expect("a response").text(), "released");
    http::get(server.address(), "/hello.html");
    server.stop();
}
