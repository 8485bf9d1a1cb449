//! Log collectors: syslog, near and far, and the journal; and logs on a disk that is
//! full.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use maitred_tests::Target;
use maitred_tests::http;
use maitred_tests::log::told;
use maitred_tests::server::{Server, Setup, document_root, is_root, public_folder, set_mode};
use maitred_tests::wait;
use tempfile::TempDir;

fn site() -> TempDir {
    document_root(&[
        ("hello.txt", "hello"),
        ("hello.php", "<?php echo $_SERVER['REQUEST_ID'];"),
        ("complains.php", "<?php error_log('the roof leaks'); echo 'it does';"),
    ])
}

/// A socket that everybody may write to.
fn collector(folder: &TempDir) -> (PathBuf, UnixDatagram) {
    let path = folder.path().join("collector");
    let socket = UnixDatagram::bind(&path).expect("a socket can be made");
    socket.set_read_timeout(Some(wait::DEADLINE)).expect("a socket can have a timeout");
    set_mode(&path, 0o666);
    (path, socket)
}

/// The fields of a message to the journal, none of which has several lines.
fn fields(message: &str) -> BTreeMap<String, String> {
    let pairs = message.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn both_logs_go_to_the_machine_s_syslog_with_priority_and_tag() {
    let (root, folder) = (site(), public_folder());
    let (path, socket) = collector(&folder);
    let target = format!("syslog:server=unix:{},facility=local3,tag=shop", path.display());
    let server = Setup::new(root.path())
        .top(&format!("access_log = \"{target},severity=notice\""))
        .top(&format!("error_log = {target:?}"))
        .top("access_log_format = '$request $status'")
        .start();
    http::get(server.address(), "/complains.php");
    let said = told(&socket, "GET /complains.php HTTP/1.1 200");
    let line = said.iter().find(|line| line.contains("GET ")).expect("a line");
    // local3 is 19, and notice 5.
    assert!(line.starts_with("<157>"), "{line}");
    assert!(line.contains(" shop["), "{line}");
    let complaint = said.iter().find(|line| line.contains("the roof leaks"));
    let complaint = complaint.expect("what PHP says is there before its answer");
    assert!(complaint.starts_with("<156>") && !complaint.contains("WARN"), "{complaint}");
    server.stop();
    told(&socket, "stop");
}

#[test]
fn lines_go_to_a_syslog_server_elsewhere_over_udp_with_this_machine_s_name() {
    let root = site();
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket can be made");
    socket.set_read_timeout(Some(wait::DEADLINE)).expect("a socket can have a timeout");
    let address = socket.local_addr().expect("it has an address");
    let server = Setup::new(root.path())
        .top(&format!("access_log = \"syslog:server={address}\""))
        .top("access_log_format = '$request $status'")
        .start();
    http::get(server.address(), "/hello.txt");
    let mut bytes = [0; 4096];
    let count = socket.recv(&mut bytes).expect("a line comes");
    let line = String::from_utf8_lossy(&bytes[..count]);
    let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("it has a name");
    assert!(line.starts_with("<190>"), "{line}");
    assert!(line.contains(&format!(" {} maitred[", host.trim())), "{line}");
    assert!(line.ends_with(": GET /hello.txt HTTP/1.1 200"), "{line}");
    server.stop();
}

#[test]
fn the_journal_gets_fields_that_it_can_be_searched_for() {
    let (root, folder) = (site(), public_folder());
    let (path, socket) = collector(&folder);
    let server = Setup::new(root.path())
        .top(&format!("access_log = \"journald:{}\"", path.display()))
        .top("access_log_format = '$request $status'")
        .start();
    let id = http::get(server.address(), "/hello.php").text();
    let said = told(&socket, "GET /hello.php");
    let line = fields(said.last().expect("a line"));
    let expected = [
        ("MESSAGE", "GET /hello.php HTTP/1.1 200"),
        ("PRIORITY", "6"),
        ("SYSLOG_IDENTIFIER", "maitred"),
        ("MAITRED_STATUS", "200"),
        ("MAITRED_POOL", "www"),
        ("MAITRED_METHOD", "GET"),
        ("MAITRED_URI", "/hello.php"),
        ("MAITRED_REMOTE_ADDR", "127.0.0.1"),
        ("MAITRED_REQUEST_ID", id.as_str()),
    ];
    for (name, value) in expected {
        assert_eq!(line.get(name).map(String::as_str), Some(value), "{name}: {line:?}");
    }
    server.stop();
}

#[test]
fn a_collector_that_takes_nothing_holds_nobody_up_and_is_found_again_when_it_comes_back() {
    let (root, folder) = (site(), public_folder());
    let (path, socket) = collector(&folder);
    let server = Setup::new(root.path())
        .top(&format!("access_log = \"syslog:server=unix:{}\"", path.display()))
        .top("access_log_format = '$request $status'")
        .start();
    let get = |path: &str| assert_eq!(http::get(server.address(), path).status, 200);
    // Without a reader: net.unix.max_dgram_qlen, which is 10 or 512, bounds what fits.
    let mut asked = 0;
    wait::until_true("the queue to be full", || {
        (0..100).for_each(|_| get("/hello.txt"));
        asked += 100;
        server.log_text().contains("the access log cannot be written: ")
    });
    server.expect_log(0, "the access log was not written for");
    assert_eq!(server.log_text().matches("cannot be written").count(), 1);
    drop(socket);
    fs::remove_file(&path).expect("a socket can be removed");
    get("/hello.txt");
    let (_, socket) = collector(&folder);
    get("/hello.php");
    told(&socket, "GET /hello.php HTTP/1.1 200");
    server.stop();
}

#[test]
fn messages_that_nobody_collects_go_to_standard_error() {
    let (root, folder) = (site(), public_folder());
    let path = folder.path().join("collector");
    let server = Setup::new(root.path())
        .top(&format!("error_log = \"journald:{}\"", path.display()))
        .start();
    http::get(server.address(), "/complains.php");
    server.expect_log(0, "the roof leaks");
    let (_, socket) = collector(&folder);
    http::get(server.address(), "/complains.php");
    let said = told(&socket, "the roof leaks");
    let line = fields(said.last().expect("a message"));
    assert_eq!(line.get("PRIORITY").map(String::as_str), Some("4"), "{line:?}");
    assert_eq!(line.get("MAITRED_LOG").map(String::as_str), Some("error"));
    server.stop();
}

/// Fills a disk.
fn fill(disk: &Path) -> PathBuf {
    let filler = disk.join("filler");
    let mut file = fs::File::create(&filler).expect("a file can be made");
    while std::io::Write::write_all(&mut file, &[b'x'; 512]).is_ok() {}
    filler
}

/// A server with these lines whose disk of 64 KiB at `disk` goes with it, and that disk as we see
/// it.
fn on_a_small_disk(root: &Path, disk: &Path, lines: &[String]) -> (Server, PathBuf) {
    fs::create_dir(disk).expect("a folder");
    set_mode(disk, 0o777);
    let mount = format!("mount -t tmpfs -o size=64k,mode=777 none {disk:?} && exec \"$@\"");
    let setup = Setup::new(root).under(&["unshare", "--mount", "sh", "-c", &mount, "sh"]);
    let server = lines.iter().fold(setup, |setup, line| setup.top(line)).start();
    let seen = PathBuf::from(format!("/proc/{}/root", server.supervisor().pid));
    let seen = seen.join(disk.strip_prefix("/").expect("an absolute path"));
    (server, seen)
}

#[test]
fn an_access_log_on_a_disk_that_is_full_goes_on_when_there_is_room_again() {
    if !is_root() {
        return;
    }
    let (root, folder) = (site(), public_folder());
    let disk = folder.path().join("disk");
    let log = format!("access_log = {:?}", disk.join("access.log"));
    let format = "access_log_format = '$uri $status'".to_owned();
    let (server, seen) = on_a_small_disk(root.path(), &disk, &[log, format]);
    let written = || fs::read_to_string(seen.join("access.log")).unwrap_or_default();
    let get = |path: &str| assert_eq!(http::get(server.address(), path).status, 200);
    get("/hello.txt");
    wait::until_true("the first line", || written().contains("/hello.txt 200\n"));
    let filler = fill(&seen);
    // What is left of the log's last page is filled, too.
    wait::until_true("the disk to be full", || {
        (0..50).for_each(|_| get("/hello.txt"));
        let log = server.log_text();
        log.contains("the access log cannot be written: No space left")
    });
    (0..50).for_each(|_| get("/hello.txt"));
    fs::remove_file(filler).expect("a file can be removed");
    get("/hello.php");
    wait::until_true("the line", || written().ends_with("/hello.php 200\n"));
    let all = written();
    let cut_off: Vec<&str> =
        all.lines().filter(|line| !line.ends_with(" 200") || line.len() > 14).collect();
    assert_eq!(cut_off.len(), 1, "a line is cut off, and none follows it: {cut_off:?}");
    assert!("/hello.txt 200".starts_with(cut_off[0]), "{cut_off:?}");
    server.expect_log(0, "the access log was not written for");
    assert_eq!(server.log_text().matches("cannot be written").count(), 1);
    server.stop();
}

#[test]
fn an_error_log_on_a_disk_that_is_full_goes_on_and_says_how_much_it_lacks() {
    if !is_root() {
        return;
    }
    let (root, folder) = (site(), public_folder());
    let disk = folder.path().join("disk");
    let log = format!("error_log = {:?}", disk.join("error.log"));
    let (server, seen) = on_a_small_disk(root.path(), &disk, &[log]);
    let written = || fs::read_to_string(seen.join("error.log")).unwrap_or_default();
    let complain = || {
        let answer = http::get(server.address(), "/complains.php");
        assert_eq!(answer.text(), "it does");
    };
    complain();
    wait::until_true("the first line", || written().contains("the roof leaks"));
    let filler = fill(&seen);
    // A page holds some forty of them.
    (0..100).for_each(|_| complain());
    assert!(written().matches("the roof leaks").count() < 100);
    fs::remove_file(filler).expect("a file can be removed");
    wait::until_true("what was lost to be told", || {
        complain();
        written().contains("of the log were dropped here: no reader took them")
    });
    server.stop();
}
