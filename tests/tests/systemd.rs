//! The notifications of systemd (sd_notify(3)), for every way of starting.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use maitred_tests::fpm::{Place, Which, usual};
use maitred_tests::guard::Guarded;
use maitred_tests::installed::{install, installed};
use maitred_tests::log::told;
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{Setup, document_root};
use maitred_tests::{maitred_program, wait};

/// A watchdog that waits for 2.5 s.
const WATCHDOG: (&str, &str) = ("WATCHDOG_USEC", "2500000");

/// A place, and the socket there on which systemd listens.
fn listening() -> (Place, UnixDatagram) {
    let place = Place::default();
    let socket = UnixDatagram::bind(place.file("notify")).unwrap();
    socket.set_read_timeout(Some(wait::DEADLINE)).unwrap();
    (place, socket)
}

/// Starts php-fpm's `command` in the foreground, with its standard error in a file.
fn start(command: &mut Command, place: &Place, lines: &str) -> Guarded {
    let file = place.file("php-fpm.conf");
    fs::write(&file, place.fill_in(&usual(lines))).unwrap();
    command.args(["-F", "-O", "-y"]).arg(&file);
    command.env("NOTIFY_SOCKET", place.file("notify"));
    command.stderr(fs::File::create(place.file("stderr")).unwrap());
    Guarded::spawn(command, Signal::TERM)
}

#[test]
fn systemd_is_told_how_the_server_is_and_when_it_reloads_and_stops() {
    let (place, socket) = listening();
    let mut command = Which::Maitred.command();
    let lines = "pm.max_children = 2\n[global]\nsystemd_interval = 1\n";
    let mut server = start(&mut command, &place, lines);
    let pid = server.pid();
    let ready = told(&socket, "READY=1");
    assert!(ready[0].contains("STATUS=Ready to handle connections\n"), "{ready:?}");
    assert!(ready[0].contains(&format!("MAINPID={pid}\n")), "{ready:?}");
    let status = told(&socket, "STATUS=Processes");
    let expected =
        "STATUS=Processes active: 0, idle: 2, Requests: 0, slow: 0, Traffic: 0.00req/sec";
    assert!(status.last().unwrap().contains(expected), "{status:?}");
    let master = Process::read(pid).unwrap();
    master.signal(Signal::USR2);
    let reloading = told(&socket, "RELOADING=1");
    assert!(reloading.last().unwrap().contains("MONOTONIC_USEC="), "{reloading:?}");
    told(&socket, "READY=1\nSTATUS=Ready to handle connections");
    master.signal(Signal::TERM);
    told(&socket, "STOPPING=1");
    let ended = server.wait(wait::DEADLINE).unwrap();
    assert!(ended.success(), "{ended}");
    drop(socket);
    fs::remove_file(place.file("notify")).unwrap();
}

#[test]
fn a_watchdog_hears_from_the_server_twice_as_often_as_it_has_to() {
    let (place, socket) = listening();
    let mut command = Which::Maitred.command();
    let mut server = start(command.env(WATCHDOG.0, WATCHDOG.1), &place, "");
    told(&socket, "WATCHDOG=1");
    told(&socket, "WATCHDOG=1");
    assert!(server.stop().unwrap().success());
}

#[test]
fn a_watchdog_hears_from_the_server_while_a_reload_takes_its_time() {
    let (place, socket) = listening();
    // PHP starts slowly once this file is there.
    let preload = place.file("preload.php");
    let slowly = "<?php if (file_exists(__DIR__ . '/slowly')) { sleep(4); }";
    fs::write(&preload, slowly).unwrap();
    let lines = format!(
        "php_admin_value[opcache.enable] = 1\nphp_admin_value[opcache.preload] = {}\n",
        preload.display()
    );
    let mut command = Which::Maitred.command();
    let mut server = start(command.env(WATCHDOG.0, WATCHDOG.1), &place, &lines);
    told(&socket, "READY=1");
    fs::write(place.file("slowly"), "").unwrap();
    Process::read(server.pid()).unwrap().signal(Signal::USR2);
    told(&socket, "RELOADING=1");
    let meanwhile = told(&socket, "READY=1");
    let heard = meanwhile.iter().filter(|said| said.contains("WATCHDOG=1"));
    assert!(heard.count() >= 2, "{meanwhile:#?}");
    assert!(meanwhile.last().unwrap().contains("STATUS=Ready to handle"));
    assert!(server.stop().unwrap().success());
}

#[test]
fn a_program_that_takes_over_says_that_it_is_ready_when_the_reload_is_over() {
    let (place, socket) = listening();
    let folder = installed();
    let program = folder.path().join("maitred");
    let mut command = Command::new(&program);
    let mut server = start(command.arg("fpm"), &place, "[global]\nlog_level = debug\n");
    told(&socket, "READY=1");
    let log = || fs::read_to_string(place.file("stderr")).unwrap();
    let count = |text: &str| log().matches(text).count();
    install(&maitred_program(), folder.path());
    Process::read(server.pid()).unwrap().signal(Signal::USR2);
    told(&socket, "RELOADING=1");
    let meanwhile = told(&socket, "READY=1");
    assert!(meanwhile.last().unwrap().contains("STATUS=Ready to handle"));
    assert_eq!(count("upgraded to"), 1, "{}", log());
    assert_eq!(count("ready to handle connections"), 2, "{}", log());
    assert_eq!(count("systemd monitor interval"), 1, "{}", log());
    assert!(server.stop().unwrap().success());
    let rest = told(&socket, "STOPPING=1");
    assert!(!rest.iter().any(|said| said.contains("READY=1")), "{rest:#?}");
}

#[test]
fn systemd_is_told_of_a_server_with_a_configuration_of_its_own_too() {
    let (place, socket) = listening();
    let root = document_root(&[("hello.php", "<?php echo 'hello';")]);
    let variable = format!("NOTIFY_SOCKET={}", place.file("notify").display());
    let server = Setup::new(root.path()).under(&["env", &variable]).start();
    let pid = server.supervisor().pid;
    let ready = told(&socket, "READY=1");
    assert!(ready[0].contains(&format!("MAINPID={pid}\n")), "{ready:?}");
    server.signal(Signal::HUP);
    told(&socket, "RELOADING=1");
    told(&socket, "READY=1");
    // The command, which is what the unit's ExecReload runs.
    let command = Command::new(maitred_program())
        .args(["reload", "--admin-socket"])
        .arg(server.admin_socket())
        .output()
        .unwrap();
    assert!(command.status.success(), "{command:?}");
    told(&socket, "RELOADING=1");
    told(&socket, "READY=1");
    server.stop();
    told(&socket, "STOPPING=1");
}
