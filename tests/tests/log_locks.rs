//! Logs in folders of tenants, who can hold the lock of such a file in the kernel for as long as
//! they like: the front and the supervisor go on, and only lines of that log wait or are lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use maitred_tests::http::{self, Connection, Request};
use maitred_tests::outside::status;
use maitred_tests::processes::Signal;
use maitred_tests::server::{
    Server, Setup, document_root, give_to_web_user, is_root, public_folder,
};
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

/// Lists a folder into a page of a file, which the kernel reads with the lock of the folder.
const HOLDS_FOLDER: &str = "<?php
$c = FFI::cdef('int open(const char *, int); int close(int);
    long getdents64(int, void *, size_t);
    void *mmap(void *, size_t, int, int, int, long); int munmap(void *, size_t);', 'libc.so.6');
$file = $c->open($_GET['file'], 0);
$at = $c->mmap(null, 4096, 3, 0x02, $file, 0);
$c->getdents64($c->open($_GET['log'], 0), $at, 4096);
$c->munmap($at, 4096);
$c->close($file);
echo 'released';";

const FFI: &str = "php_admin_value = { \"ffi.enable\" = \"1\", extension = \"ffi\" }";

/// Requests to each site while the lock is held: more than the front has threads, several times.
const REQUESTS: usize = 20;

fn site() -> TempDir {
    document_root(&[
        ("holds.php", HOLDS),
        ("holds_folder.php", HOLDS_FOLDER),
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
    hold_by(server, files, "holds.php", log)
}

/// Has the tenant hold the lock of a log or a folder by this script.
fn hold_by(server: &Server, files: &StuckFiles, script: &str, log: &Path) -> Connection {
    let mut held = Connection::open(server.address());
    let (file, log) = (files.unreadable(), log.display());
    let target = format!("/{script}?file={}&log={log}", file.display());
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

/// A setup whose first site logs to a folder, and a third one too if `is_more`.
fn logging_to(root: &Path, folder: &Path, is_more: bool) -> Setup {
    let log = |name: &str| folder.join(name);
    let mut more = format!("access_log = {:?}\n{}", log("access.log"), other(root));
    if is_more {
        let third = log("third.log");
        more += &format!(
            "\n[[sites]]\nhosts = [\"third\"]\npool = \"other\"\nroot = {root:?}\n\
             access_log = {third:?}"
        );
    }
    Setup::new(root).workers(1).pool(FFI).site(&more)
}

/// No process of the server opens logs.
fn wait_for_openers(server: &Server) {
    wait::until_true("the processes that open logs to end", || {
        let all = server.processes().into_iter();
        !all.map(|process| process.title).any(|title| title.trim_end() == "maitred: logs")
    });
}

#[test]
fn a_tenant_who_holds_the_lock_of_the_folder_of_a_log_delays_no_reload_and_no_rotation() {
    let Some(files) = StuckFiles::mount() else {
        eprintln!("skipped: only root may mount a file system in user space, with /dev/fuse");
        return;
    };
    let (root, folder) = (site(), tenants_folder());
    let (log, third) = (folder.path().join("access.log"), folder.path().join("third.log"));
    let server = logging_to(root.path(), folder.path(), false).start();
    // It is dropped before the server, which waits for its processes.
    let files = files;
    http::get(server.address(), "/hello.html");
    wait::until_true("a line in the log", || count(&log, "/hello.html") == 1);
    let rotated = folder.path().join("access.log.1");
    fs::rename(&log, &rotated).expect("the log is there");
    let mut held = hold_by(&server, &files, "holds_folder.php", folder.path());

    let mark = server.log().mark();
    server.signal(Signal::USR1);
    server.expect_log(mark, "cannot be opened again: opening it takes longer than 2 s");
    request_pages(&server);
    wait::until_true("lines in the rotated log", || count(&rotated, "/hello.html") > REQUESTS);
    let mark = server.log().mark();
    server.configure(&logging_to(root.path(), folder.path(), true));
    server.reload();
    server.expect_log(mark, "third.log of a site cannot be opened: opening it takes longer");
    let mark = server.log().mark();
    server.signal(Signal::USR1);
    server.expect_log(mark, "the process that was to open it before still waits");
    let of_third = Request::new("GET", "/hello.html").header("Host", "third");
    assert_eq!(http::ask(server.address(), &of_third).text(), "hello");
    request_pages(&server);
    assert_eq!(status(&server)["pools"].as_array().map(Vec::len), Some(2));

    files.release();
    assert_eq!(held.read_response(false).expect("a response").text(), "released");
    wait_for_openers(&server);
    // The server may see their end after a first reload.
    wait::until_true("a line in the third log", || {
        server.reload();
        http::ask(server.address(), &of_third);
        count(&third, "/hello.html") > 0
    });
    let mark = server.log().mark();
    server.signal(Signal::USR1);
    server.expect_log(mark, "access.log was opened again");
    http::get(server.address(), "/hello.html");
    wait::until_true("a line in the new log", || count(&log, "/hello.html") > 0);
    server.stop();
}

#[test]
fn a_fifo_in_a_tenants_folder_is_no_log_of_a_site_and_the_site_is_served_without_it() {
    if !is_root() {
        return eprintln!("skipped: only root opens logs in folders of tenants");
    }
    let (root, folder) = (site(), tenants_folder());
    let fifo = folder.path().join("access.log");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    give_to_web_user(&fifo);
    let _reader = fs::File::options().read(true).write(true).open(&fifo).expect("it is there");
    let server = logging_to(root.path(), folder.path(), false).start();
    server.expect_log(0, "is no regular file");
    assert_eq!(http::get(server.address(), "/hello.html").text(), "hello");
    server.stop();
}
