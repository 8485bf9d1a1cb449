//! Settings that no other test sets: who the processes are, which INI files and values PHP has,
//! when pages go from the disk.

use std::fs;
use std::time::Duration;

use maitred_tests::Target;
use maitred_tests::cached::{self, files, pages};
use maitred_tests::http;
use maitred_tests::processes::Process;
use maitred_tests::server::{
    Setup, document_root, is_root, public_folder, set_mode, user_ids, write_file,
};
use maitred_tests::wait;

/// Longest until the pages on disk are looked through: it is done once a minute.
const SWEPT: Duration = Duration::from_secs(150);

/// User and group of a process, as numbers.
fn ids(process: &Process) -> (u32, u32) {
    let path = format!("/proc/{}/status", process.pid);
    let text = fs::read_to_string(path).expect("a process tells of itself");
    let id = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        number.unwrap_or_else(|| panic!("{name} in {text}"))
    };
    (id("Uid:"), id("Gid:"))
}

#[test]
fn the_front_and_the_workers_are_who_they_are_to_be() {
    if !is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let root = document_root(&[
        ("hello.txt", "hello, file"),
        ("index.php", "<?php echo posix_geteuid(), ' ', posix_getegid();"),
    ]);
    let spool = public_folder();
    set_mode(spool.path(), 0o777);
    let server = Setup::new(root.path())
        .spool(spool.path())
        .top("front_user = \"nobody\"")
        .pool("user = \"games\"\ngroup = \"www-data\"")
        .start();
    let front = server.front().expect("a front runs");
    assert_eq!(ids(&front), user_ids("nobody"));
    let worker = (user_ids("games").0, user_ids("www-data").1);
    for process in server.workers() {
        assert_eq!(ids(&process), worker, "{}", process.title);
    }
    assert_eq!(http::get(server.address(), "/hello.txt").text(), "hello, file");
    let said = http::get(server.address(), "/").text();
    assert_eq!(said, format!("{} {}", worker.0, worker.1));
    server.stop();
}

#[test]
fn php_has_the_ini_file_and_the_values_of_its_pool_and_scripts_change_what_they_may() {
    let says = "<?php
        $change = fn (string $name, string $to) => [ini_get($name), ini_set($name, $to) !== false];
        echo json_encode([
            basename(php_ini_loaded_file()),
            ini_get('memory_limit'),
            get_cfg_var('told.in_the_scan_dir'),
            $change('precision', '3'), $change('display_errors', '0'),
            $change('log_errors', '0'), $change('default_charset', 'x'),
        ]);";
    let root = document_root(&[("index.php", says)]);
    let folder = public_folder();
    let ini = b"memory_limit = 77M\nprecision = 5\ndefault_charset = latin1\n";
    write_file(folder.path(), "shop.ini", ini);
    write_file(folder.path(), "conf.d/own.ini", b"told.in_the_scan_dir = here\n");
    let server = Setup::new(root.path())
        .pool(&format!("php_ini = {:?}", folder.path().join("shop.ini")))
        .pool(&format!("php_ini_scan_dir = {:?}", folder.path().join("conf.d")))
        .pool("php_value = { precision = 6 }\nphp_flag = { display_errors = true }")
        .pool(
            "php_admin_flag = { log_errors = true }\nphp_admin_value = { \
               default_charset = \"utf-8\" }",
        )
        .start();
    for _ in 0..3 {
        let said = http::get(server.address(), "/").text();
        let expected = concat!(
            r#"["shop.ini","77M","here",["6",true],"#,
            r#"["1",true],["1",false],["utf-8",false]]"#
        );
        assert_eq!(said, expected);
    }
    server.stop();
}

#[test]
fn a_page_that_nobody_asks_for_goes_from_the_disk() {
    let root = cached::site();
    let (folder, dir) = pages();
    let setup = |inactive: &str| {
        let inactive = format!("cache_inactive = {inactive:?}");
        cached::setup(&root, &[]).top(&dir).top(&inactive)
    };
    let server = setup("1s").start();
    cached::get(&server, "/a");
    wait::until_true("the page on disk", || files(folder.path()).len() == 1);
    wait::until_within("the page to go", SWEPT, || files(folder.path()).is_empty().then_some(()));
    server.stop();
}
