//! Which directives hold in copies of a booted application, and when they look at files again.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use maitred_tests::booted::{PATIENCE, application, snapshot};
use maitred_tests::server::{Server, document_root, give_to_web_user};
use maitred_tests::{Target, http, wait};

#[test]
fn what_the_boot_has_set_holds_over_what_is_set_for_the_folder() {
    let root = application(
        "$before = ini_get('memory_limit') . ' ' . ini_get('precision');
         ini_set('memory_limit', '256M');",
        "echo $before, ', ', ini_get('memory_limit'), ' ', ini_get('precision');",
    );
    fs::write(root.path().join(".user.ini"), "memory_limit = 64M\nprecision = 7\n").unwrap();
    for line in ["", "rewinds_per_child = 100"] {
        let server = snapshot(root.path()).workers(1).pool(line).start();
        for _ in 0..3 {
            let answer = http::get(server.address(), "/");
            assert_eq!(answer.text(), "64M 7, 256M 7", "{line}");
        }
        server.stop();
    }
}

/// Writes a file that was last changed so long ago.
fn write_of_age(path: &Path, text: &str, seconds: u64) {
    fs::write(path, text).expect("it may be written");
    let file = fs::File::options().write(true).open(path);
    let time = SystemTime::now() - Duration::from_secs(seconds);
    let set = file.and_then(|file| file.set_modified(time));
    set.expect("its time may be set");
}

#[track_caller]
fn expect_twice(server: &Server, text: &str) {
    for _ in 0..2 {
        assert_eq!(http::get(server.address(), "/").text(), text);
    }
}

#[test]
fn a_file_that_the_boot_has_not_loaded_is_seen_by_the_next_request_when_it_has_changed() {
    let root = application(
        "",
        "$is_cached = opcache_is_script_cached(__DIR__ . '/page.php');
         echo require __DIR__ . '/page.php', isset($_GET['cached']) ? (int) $is_cached : '';",
    );
    let page = root.path().join("page.php");
    for lines in ["", "rewinds_per_child = 100"] {
        write_of_age(&page, "<?php return 'one';", 300);
        let server = snapshot(root.path()).workers(1).pool(lines).start();
        expect_twice(&server, "one");
        let answer = http::get(server.address(), "/?cached");
        assert_eq!(answer.text(), "one1", "OPcache holds it");
        write_of_age(&page, "<?php return 'two';", 200);
        expect_twice(&server, "two");
        write_of_age(&page, "<?php return 'three';", 100);
        expect_twice(&server, "three");
        server.stop();
    }
}

#[test]
fn a_pool_may_say_that_files_are_not_looked_at_again() {
    let root = application("", "echo require __DIR__ . '/page.php';");
    let page = root.path().join("page.php");
    for setting in ["opcache.validate_timestamps\" = \"0\"", "opcache.revalidate_freq\" = \"3600\""]
    {
        write_of_age(&page, "<?php return 'one';", 300);
        let setting = format!("php_admin_value = {{ \"{setting} }}");
        let server = snapshot(root.path()).workers(1).pool(&setting).start();
        expect_twice(&server, "one");
        write_of_age(&page, "<?php return 'two';", 200);
        expect_twice(&server, "one");
        server.stop();
    }
}

#[test]
fn a_copy_whose_boot_is_outdated_serves_none_of_its_remaining_requests() {
    let script = "<?php $boot = file_get_contents(__DIR__ . '/version');
        while (frankenphp_handle_request(function () use ($boot) {
            if (isset($_GET['update'])) { opcache_reset(); }
            echo $boot;
        })) { }";
    let root = document_root(&[("index.php", script), ("version", "1")]);
    give_to_web_user(root.path());
    let server = snapshot(root.path()).workers(1).pool("requests_per_child = 1000000").start();
    let get = |target: &str| http::get(server.address(), target).text();
    assert_eq!(get("/"), "1");
    fs::write(root.path().join("version"), "2").unwrap();
    assert_eq!(get("/?update"), "1");
    wait::until_within("the new boot to serve", PATIENCE, || (get("/") == "2").then_some(()));
    server.stop();
}

#[test]
fn copies_that_may_use_ffi_are_not_rewound() {
    let root = application("", "echo getmypid();");
    for (enable, stays) in [("true", false), ("On", false), ("preload", true), ("0", true)] {
        let enable = format!("{{ \"ffi.enable\" = {enable:?}, extension = \"ffi\" }}");
        let server = snapshot(root.path())
            .workers(1)
            .pool("rewinds_per_child = 10")
            .pool(&format!("php_admin_value = {enable}"))
            .start();
        let [first, second] = [(); 2].map(|()| http::get(server.address(), "/").text());
        assert_eq!(first == second, stays, "{enable}");
        server.stop();
    }
}
