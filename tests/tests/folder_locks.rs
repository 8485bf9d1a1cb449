//! Folders of tenants, who can hold the lock of such a folder in the kernel for as long as they
//! like: the supervisor looks up no name in them while it serves.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use maitred_tests::http::{self, Request};
use maitred_tests::locked_folder::{hold, other, request, response, tenants_root};
use maitred_tests::outside::status;
use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup, WEB_USER, give_to_web_user, write_file};
use maitred_tests::stuck_files::StuckFiles;
use maitred_tests::{Target, wait};

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
    let server = Setup::new(root.path()).pool(&booted).site(&other(root.path(), "")).start();
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
        let sites = format!("{}\n{more}", other(root.path(), ""));
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
    let setup =
        |more: &str| Setup::new(path).workers(1).site(&format!("{}\n{more}", other(path, "")));
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
    let sites = format!("{}\n{more}", other(root.path(), ""));
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
    let sites = format!("{}\n{more}", other(root.path(), ""));
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
