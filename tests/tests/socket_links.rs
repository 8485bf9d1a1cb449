//! Unix sockets that root makes in folders of others, as Debian's `/run/php` is the web server's:
//! they are there with the rights that are set, and a link in the folder's place leads root
//! nowhere.

use std::fs;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::path::Path;
use std::process::Command;

use maitred_tests::fastcgi::{Wire, params, request};
use maitred_tests::server::{Setup, document_root, is_root, public_folder, set_mode, user_ids};
use maitred_tests::{Target, http, traced};
use tempfile::TempDir;

/// The owner of the folder.
const OWNER: &str = "www-data";

fn folder_of_owner() -> TempDir {
    let folder = public_folder();
    let (uid, gid) = user_ids(OWNER);
    lchown(folder.path(), Some(uid), Some(gid)).expect("root can give a folder away");
    folder
}

fn listened_on(socket: &Path) -> bool {
    let output = Command::new("ss").args(["-lxnH", "src"]).arg(socket).output();
    !output.expect("ss can be run").stdout.is_empty()
}

#[test]
fn a_socket_in_a_folder_of_the_web_servers_is_roots_and_has_the_mode_that_is_set() {
    if !is_root() {
        return eprintln!("skipped: only root makes sockets in folders of others");
    }
    let root = document_root(&[("hello.php", "<?php echo 'hello';")]);
    let folder = folder_of_owner();
    let list =
        Command::new("setfacl").args(["-d", "-m", "u:nobody:rwx"]).arg(folder.path()).status();
    assert!(list.expect("the tests need setfacl (package acl)").success());
    let socket = folder.path().join("www.sock");
    let setup = Setup::new(root.path()).pool(&format!("listen = {socket:?}"));
    let server = setup.pool("listen_mode = \"0660\"").start();
    let made = fs::symlink_metadata(&socket).expect("the socket is there");
    assert_eq!((made.uid(), made.gid(), made.mode() & 0o777), (0, 0, 0o660));
    assert!(listened_on(&socket), "its address is the path that is set");
    let list = Command::new("getfacl").args(["-cp"]).arg(&socket).output();
    let list = list.expect("getfacl can be run").stdout;
    assert!(!String::from_utf8_lossy(&list).contains("nobody"));
    let mut wire = Wire::connect(&socket);
    wire.send(&request(1, false, &params(root.path(), "/hello.php", &[]), b""));
    assert_eq!(wire.answer(1).expect("an answer").body(), "hello");
    server.stop();
    assert!(!socket.exists(), "the socket outlives its server");
}

#[test]
fn a_link_in_the_place_of_a_sockets_folder_leads_root_nowhere() {
    if !is_root() {
        return eprintln!("skipped: only root makes sockets in folders of others");
    }
    let root = document_root(&[("hello.php", "<?php echo 'hello';")]);
    let (folder, roots) = (folder_of_owner(), public_folder());
    set_mode(roots.path(), 0o700);
    let run = folder.path().join("run");
    symlink(roots.path(), &run).expect("a link can be made");
    let (uid, gid) = user_ids(OWNER);
    lchown(&run, Some(uid), Some(gid)).expect("root can give a link away");
    let setup = Setup::new(root.path());
    let server = setup.clone().start();
    for line in [
        format!("listen = {:?}", run.join("www.sock")),
        format!("slowlog = {:?}", run.join("slow.log")),
    ] {
        server.configure(&setup.clone().pool(&line));
        server.reload();
        let made = fs::read_dir(roots.path()).expect("root's folder is there");
        assert_eq!(made.count(), 0, "{line}");
    }
}

#[test]
fn a_tenants_link_in_the_place_of_an_upstream_leads_to_no_pool_of_anothers() {
    if !is_root() {
        return eprintln!("skipped: only root can give links away");
    }
    let root = document_root(&[("hello.php", "<?php echo 'hello';")]);
    let folder = public_folder();
    let (socket, link) = (folder.path().join("www.sock"), folder.path().join("link.sock"));
    let server = Setup::new(root.path())
        .pool(&format!("listen = {socket:?}"))
        .pool("listen_mode = \"0666\"")
        .upstream(&format!("unix:{}", link.display()))
        .start();
    symlink(&socket, &link).expect("a link can be made");
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    let (uid, gid) = user_ids("nobody");
    lchown(&link, Some(uid), Some(gid)).expect("root can give a link away");
    let mark = server.log().mark();
    assert_eq!(http::get(server.address(), "/hello.php").status, 502);
    server.expect_log(mark, "is of user `nobody` and leads to");
}

#[test]
fn the_socket_of_an_upstream_is_not_looked_up_for_each_request() {
    let root = document_root(&[("hello.php", "<?php echo 'hello';")]);
    let folder = public_folder();
    let socket = folder.path().join("www.sock");
    let server = Setup::new(root.path())
        .pool(&format!("listen = {socket:?}"))
        .pool("listen_mode = \"0666\"")
        .upstream(&format!("unix:{}", socket.display()))
        .start();
    let calls = folder.path().join("calls");
    let output = format!("--output={}", calls.display());
    let front = server.front().expect("there is a front");
    let Some(mut trace) = traced::attach(&front, &[output.as_str(), "--trace=openat"]) else {
        return eprintln!("skipped: strace is not permitted here");
    };
    const REQUESTS: usize = 100;
    for _ in 0..REQUESTS {
        assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    }
    trace.stop();
    let calls = fs::read_to_string(calls).expect("what strace saw");
    let looks = calls.lines().filter(|line| line.contains("\"www.sock\"")).count();
    // One look by name for each walk, of which there is one a second for each thread.
    assert!((1..REQUESTS).contains(&looks), "{looks}");
    server.stop();
}
