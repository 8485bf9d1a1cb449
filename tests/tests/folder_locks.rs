//! Folders of tenants, who can hold the lock of such a folder in the kernel for as long as they
//! like: the supervisor looks up no name in them while it serves.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use maitred_tests::http::{self, Connection, Request, Response};
use maitred_tests::outside::status;
use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup, WEB_USER, document_root, give_to_web_user, write_file};
use maitred_tests::stuck_files::StuckFiles;
use maitred_tests::{Target, wait};
use tempfile::TempDir;

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

/// A document root with a folder `locked` that a tenant owns.
fn tenants_root() -> TempDir {
    let root = document_root(&[
        ("lists.php", LISTS),
        ("changes.php", CHANGES),
        ("pid.php", "<?php echo getmypid();"),
        ("locked/hello.html", "hello"),
    ]);
    give_to_web_user(root.path());
    give_to_web_user(&root.path().join("locked"));
    root
}

/// Has the other pool hold the lock of the folder until the files are released.
fn hold(server: &Server, files: &StuckFiles, root: &Path) -> [Connection; 2] {
    let (folder, file) = (root.join("locked"), files.unreadable());
    let (folder, file) = (folder.display(), file.display());
    let lists = send(server, &format!("/lists.php?file={file}&folder={folder}"));
    files.wait_for_process();
    let changes = send(server, &format!("/changes.php?folder={folder}"));
    wait::until_true("the change to begin", || root.join("changes").exists());
    [lists, changes]
}

/// Waits until a process of the server waits for the lock, and insists that a worker that ends
/// meanwhile is replaced.
fn insist_on_supervision(server: &Server) {
    wait::until_true("a process to wait for the lock", || {
        let mut all = server.processes().into_iter();
        all.any(|process| process.title.trim_end() == "maitred: lookups" && process.state == 'D')
    });
    let [worker] = server.workers().try_into().expect("there is one worker");
    worker.signal(Signal::KILL);
    wait::until_true("another worker", || {
        server.workers().iter().any(|other| other.pid != worker.pid)
    });
    assert_eq!(http::get(server.address(), "/pid.php").status, 200);
}

fn ask_third(server: &Server) -> u16 {
    http::ask(server.address(), &Request::new("GET", "/hello.html").header("Host", "third")).status
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
    let root = tenants_root();
    write_file(root.path(), "fails.php", b"<?php throw new Exception('not yet');");
    link(root.path(), "fails.php");
    let booted = format!("mode = \"snapshot\"\nscript = {:?}", root.path().join("app.php"));
    let server = Setup::new(root.path()).pool(&booted).site(&other(root.path())).start();
    // It is dropped before the server, which waits for its processes.
    let files = files;
    server.expect_log(0, "not yet");
    let mut held = hold(&server, &files, root.path());
    link(root.path(), "locked/never-seen.php");
    // It boots behind the lock.
    wait::until_true("the zygote to wait", || {
        server.zygote().is_some_and(|zygote| zygote.state == 'D')
    });
    assert_eq!(http::ask(server.address(), &request("/pid.php")).status, 200);
    assert_eq!(status(&server)["pools"].as_array().map(Vec::len), Some(2));
    files.release();
    held.iter_mut().for_each(|sent| assert_eq!(response(sent).text(), "released"));
    server.stop();
}

#[test]
fn a_reload_that_looks_for_a_root_in_a_locked_folder_delays_no_pool_and_says_which_it_is() {
    let Some(files) = StuckFiles::mount() else {
        eprintln!("skipped: only root may mount a file system in user space, with /dev/fuse");
        return;
    };
    let root = tenants_root();
    let setup = |more: &str| {
        let sites = format!("{}\n{more}", other(root.path()));
        Setup::new(root.path()).workers(1).site(&sites)
    };
    let server = setup("").start();
    // It is dropped before the server, which waits for its processes.
    let files = files;
    let mut held = hold(&server, &files, root.path());
    let third = root.path().join("locked/third");
    server.configure(&setup(&format!(
        "[[sites]]\nhosts = [\"third\", \"fourth\"]\npool = \"other\"\nroot = {third:?}"
    )));
    let mark = server.log().mark();
    server.signal(Signal::HUP);
    insist_on_supervision(&server);
    let said = format!(
        "the reload is refused, all is as before: a lookup of {} takes longer than 5 s",
        third.display()
    );
    server.expect_log(mark, &said);
    let line = server.reload();
    assert!(line.contains(&said), "while a process waits: {line}");
    assert_eq!(status(&server)["pools"].as_array().map(Vec::len), Some(2));

    files.release();
    held.iter_mut().for_each(|sent| assert_eq!(response(sent).text(), "released"));
    write_file(&third, "hello.html", b"hello");
    // The process that waits ends first, and the supervisor has to see that.
    let line = wait::until("a reload that is not refused", || {
        Some(server.reload()).filter(|line| !line.contains("the reload is refused"))
    });
    assert!(line.contains("reloaded: ") && !line.contains("third"), "{line}");
    assert_eq!(ask_third(&server), 200);
    server.stop();
}

#[test]
fn a_reload_that_looks_for_time_zones_behind_a_locked_folder_of_a_chroot_says_which_it_is() {
    let Some(files) = StuckFiles::mount() else {
        eprintln!("skipped: only root may mount a file system in user space, with /dev/fuse");
        return;
    };
    let root = tenants_root();
    let path = root.path();
    let jailed = format!(
        "[pools.jailed]\nmax_children = 1\nuser = {WEB_USER:?}\nchroot = {path:?}\n\
         [[sites]]\nhosts = [\"jailed\"]\npool = \"jailed\"\nroot = {path:?}"
    );
    let setup = |more: &str| Setup::new(path).workers(1).site(&format!("{}\n{more}", other(path)));
    let server = setup("").start();
    // It is dropped before the server, which waits for its processes.
    let files = files;
    let mut held = hold(&server, &files, path);
    symlink("locked/never-seen", path.join("usr")).expect("a link can be made");
    server.configure(&setup(&jailed));
    let line = server.reload();
    let said = format!("a lookup of {}/usr/share/zoneinfo takes longer than 5 s", path.display());
    assert!(line.contains(&said), "{line}");

    files.release();
    held.iter_mut().for_each(|sent| assert_eq!(response(sent).text(), "released"));
    server.stop();
}

#[test]
fn checks_of_a_site_whose_root_is_behind_a_locked_folder_delay_no_pool() {
    let Some(files) = StuckFiles::mount() else {
        eprintln!("skipped: only root may mount a file system in user space, with /dev/fuse");
        return;
    };
    let root = tenants_root();
    let third = root.path().join("app.php");
    link(root.path(), "missing");
    let more = format!("[[sites]]\nhosts = [\"third\"]\npool = \"other\"\nroot = {third:?}");
    let sites = format!("{}\n{more}", other(root.path()));
    let server = Setup::new(root.path()).workers(1).site(&sites).start();
    // It is dropped before the server, which waits for its processes.
    let files = files;
    server.expect_log(0, "does not exist");
    let mut held = hold(&server, &files, root.path());
    let mark = server.log().mark();
    link(root.path(), "locked/never-seen");
    insist_on_supervision(&server);
    server.expect_log(mark, "a lookup of it takes longer than 5 s");

    files.release();
    held.iter_mut().for_each(|sent| assert_eq!(response(sent).text(), "released"));
    link(root.path(), "locked");
    server.expect_log(mark, "mended: ");
    wait::until_true("the site to be served", || ask_third(&server) == 200);
    server.stop();
}

#[test]
fn a_mended_pool_whose_reload_another_tenant_delays_serves_once_that_is_over() {
    let Some(files) = StuckFiles::mount() else {
        eprintln!("skipped: only root may mount a file system in user space, with /dev/fuse");
        return;
    };
    let root = tenants_root();
    let (third, late) = (root.path().join("app.php"), root.path().join("late"));
    link(root.path(), ".");
    let more = format!(
        "[[sites]]\nhosts = [\"third\"]\npool = \"other\"\nroot = {third:?}\n\
         [pools.late]\npm = \"static\"\nmax_children = 1\n\
         [[sites]]\nhosts = [\"late\"]\npool = \"late\"\nroot = {late:?}"
    );
    let sites = format!("{}\n{more}", other(root.path()));
    let server = Setup::new(root.path()).workers(1).site(&sites).start();
    // It is dropped before the server, which waits for its processes.
    let files = files;
    server.expect_log(0, "does not exist");
    let mut held = hold(&server, &files, root.path());
    link(root.path(), "locked/never-seen");
    let mark = server.log().mark();
    write_file(&late, "hello.php", b"<?php echo 'hello';");
    give_to_web_user(&late);
    server.expect_log(mark, "the mended sites need a reload, which is refused: ");

    files.release();
    held.iter_mut().for_each(|sent| assert_eq!(response(sent).text(), "released"));
    link(root.path(), ".");
    let ask = Request::new("GET", "/hello.php").header("Host", "late");
    wait::until_true("the pool to serve", || http::ask(server.address(), &ask).status == 200);
    server.stop();
}
