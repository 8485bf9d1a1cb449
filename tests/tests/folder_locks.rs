//! Folders of tenants, who can hold the lock of such a folder in the kernel for as long as they
//! like: the supervisor looks up no name in them while it serves.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use maitred_tests::http::{self, Connection, Request, Response};
use maitred_tests::outside::status;
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user};
use maitred_tests::stuck_files::StuckFiles;
use maitred_tests::{Target, wait};

/// Lists a folder into a page of a file. The kernel reads the page with the lock of the folder.
const LISTS: &str = "<?php
$c = FFI::cdef('int open(const char *, int); long syscall(long, int, void *, size_t);
    void *mmap(void *, size_t, int, int, int, long);', 'libc.so.6');
$at = $c->mmap(null, 4096, 3, 0x01, $c->open($_GET['file'], 2), 0);
$list = php_uname('m') === 'x86_64' ? 217 : 61;
$c->syscall($list, $c->open($_GET['folder'], 0200000), $at, 4096);
echo 'released';";

/// Waits for the lock of a folder to change it. Others that want to read it wait behind.
const CHANGES: &str = "<?php
file_put_contents(__DIR__ . '/changes', '');
mkdir($_GET['folder'] . '/changed');
echo 'released';";

/// A pool and its site, beside a pool that boots a script.
fn other(root: &Path) -> String {
    format!(
        "[pools.other]\npm = \"static\"\nmax_children = 3\n\
         php_admin_value = {{ \"ffi.enable\" = \"1\", extension = \"ffi\" }}\n\
         [[sites]]\nhosts = [\"other\"]\npool = \"other\"\nroot = {root:?}"
    )
}

fn request(target: &str) -> Request {
    Request::new("GET", target).header("Host", "other")
}

fn send(server: &Server, target: &str) -> Connection {
    let mut sent = Connection::open(server.address());
    sent.send(&request(target).to_bytes()).expect("the server takes a request");
    sent
}

fn response(sent: &mut Connection) -> Response {
    sent.read_response(false).expect("a response")
}

/// Makes the script of the pool a link to another file.
fn link(root: &Path, to: &str) {
    symlink(to, root.join("next")).expect("a link can be made");
    fs::rename(root.join("next"), root.join("app.php")).expect("a link can be renamed");
}

#[test]
fn a_pool_whose_script_is_behind_a_locked_folder_of_its_tenant_delays_no_other() {
    let Some(files) = StuckFiles::mount() else {
        eprintln!("skipped: only root may mount a file system in user space, with /dev/fuse");
        return;
    };
    let root = document_root(&[
        ("fails.php", "<?php throw new Exception('not yet');"),
        ("lists.php", LISTS),
        ("changes.php", CHANGES),
        ("pid.php", "<?php echo getmypid();"),
        ("locked/hello.html", "hello"),
    ]);
    give_to_web_user(root.path());
    let locked = root.path().join("locked");
    give_to_web_user(&locked);
    link(root.path(), "fails.php");
    let booted = format!("mode = \"snapshot\"\nscript = {:?}", root.path().join("app.php"));
    let server = Setup::new(root.path()).pool(&booted).site(&other(root.path())).start();
    // It is dropped before the server, which waits for its processes.
    let files = files;
    server.expect_log(0, "not yet");
    let folder = locked.display();
    let file = files.unreadable();
    let list = format!("/lists.php?file={}&folder={folder}", file.display());
    let mut lists = send(&server, &list);
    files.wait_for_process();
    let mut changes = send(&server, &format!("/changes.php?folder={folder}"));
    wait::until_true("the change to begin", || root.path().join("changes").exists());
    link(root.path(), "locked/never-seen.php");
    // It boots behind the lock.
    wait::until_true("the zygote to wait", || {
        server.zygote().is_some_and(|zygote| zygote.state == 'D')
    });
    assert_eq!(http::ask(server.address(), &request("/pid.php")).status, 200);
    assert_eq!(status(&server)["pools"].as_array().map(Vec::len), Some(2));
    files.release();
    assert_eq!(response(&mut lists).text(), "released");
    assert_eq!(response(&mut changes).text(), "released");
    server.stop();
}
