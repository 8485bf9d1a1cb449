//! `watch = true`: a file is saved, and requests see it soon.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use maitred_tests::http;
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user, write_file};
use maitred_tests::wait;
use maitred_tests::{Target, maitred_program};

/// How long something may take on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

fn application(script: &str) -> tempfile::TempDir {
    let root = document_root(&[
        ("composer.json", "{}"),
        ("src/version.php", "<?php const VERSION = 1;"),
        ("public/index.php", script),
    ]);
    give_to_web_user(root.path());
    root
}

fn watched(root: &Path, mode: &str) -> Setup {
    let script = root.join("public/index.php");
    Setup::new(&root.join("public"))
        .workers(1)
        .pool(&format!("mode = {mode:?}"))
        .pool(&format!("script = {script:?}"))
        .pool("watch = true")
        .site("front_controller = \"/index.php\"")
}

fn says(server: &Server) -> String {
    http::get(server.address(), "/").text()
}

fn save(root: &Path, version: &str) {
    let text = format!("<?php const VERSION = {version};");
    write_file(root, "src/version.php", text.as_bytes());
}

fn expect(server: &Server, version: &str) {
    wait::until_within("the file that was saved", PATIENCE, || {
        (says(server) == version).then_some(())
    });
}

/// Saves, saves something that does not compile, and saves again.
fn develop(script: &str, mode: &str) {
    let root = application(script);
    let server = watched(root.path(), mode).start();
    server.expect_log(0, "are watched (watch = true)");
    assert_eq!(says(&server), "1");
    save(root.path(), "2");
    expect(&server, "2");
    let mark = server.log().mark();
    save(root.path(), "");
    server.expect_log(mark, "src/version.php was saved");
    server.expect_log(mark, "syntax error");
    server.expect_log(mark, "pool www goes on as it was");
    assert_eq!(says(&server), "2");
    // As many editors save: beside it, and into its place.
    let (new, old) = (root.path().join("src/new~"), root.path().join("src/version.php"));
    fs::write(&new, "<?php const VERSION = 3;").expect("a file can be written");
    fs::rename(new, old).expect("it can take its place");
    expect(&server, "3");
    server.stop();
}

#[test]
fn a_file_that_is_saved_is_booted_and_one_that_does_not_compile_keeps_what_serves() {
    develop(
        "<?php require __DIR__ . '/../src/version.php'; maitred_snapshot(); echo VERSION;",
        "snapshot",
    );
}

#[test]
fn workers_boot_what_was_saved_too() {
    develop(
        "<?php require __DIR__ . '/../src/version.php';
         while (frankenphp_handle_request(function () { echo VERSION; }));",
        "worker",
    );
}

/// Most boots in the minute that the test below may take: they are 0, 1, 2, 4 and so on seconds
/// apart.
const FEW: usize = 12;

#[test]
fn an_application_whose_boot_writes_files_is_not_booted_without_end_and_it_is_said_which_file() {
    let root = application(
        "<?php require __DIR__ . '/../src/version.php';
         file_put_contents(__DIR__ . '/../src/compiled.php', '<?php // ' . hrtime(true));
         maitred_snapshot(); echo VERSION;",
    );
    give_to_web_user(&root.path().join("src"));
    let server = watched(root.path(), "snapshot").start();
    server.expect_log(0, "are watched (watch = true)");
    assert_eq!(says(&server), "1");
    save(root.path(), "2");
    server.expect_log(0, "src/compiled.php was saved, and so was a file during");
    // It rests, and then has what was saved meanwhile.
    save(root.path(), "3");
    expect(&server, "3");
    let log = server.log().since(0);
    let count = |words: &str| log.iter().filter(|line| line.contains(words)).count();
    assert!(count("is restarted") <= FEW, "{log:?}");
    assert_eq!(count("src/compiled.php was saved, and so"), 1, "{log:?}");
    server.stop();
}

#[test]
fn a_reload_watches_another_release_and_an_application_that_replaces_another() {
    let inside = document_root(&[]);
    let [first, second] = ["1", "2"].map(|release| {
        let root = inside.path().join(release);
        let script =
            "<?php require __DIR__ . '/../src/version.php'; maitred_snapshot(); echo VERSION;";
        write_file(&root, "composer.json", b"{}");
        write_file(&root, "public/index.php", script.as_bytes());
        save(&root, release);
        root
    });
    let current = inside.path().join("current");
    symlink(&first, &current).expect("a link can be made");
    let server = watched(&current, "snapshot").start();
    assert_eq!(says(&server), "1");
    let next = inside.path().join("next");
    symlink(&second, &next).expect("a link can be made");
    fs::rename(next, &current).expect("it can take the other's place");
    let mark = server.log().mark();
    let reload = Command::new(maitred_program())
        .args(["reload", "www", "--admin-socket"])
        .arg(server.admin_socket())
        .output()
        .expect("it runs");
    assert!(reload.status.success(), "{reload:?}");
    let watched = format!("folders from {} on are watched", second.display());
    server.expect_log(mark, &watched);
    assert_eq!(says(&server), "2");
    save(&second, "3");
    expect(&server, "3");
    // Moved away, and another one in its place.
    let mark = server.log().mark();
    let old = inside.path().join("old");
    fs::rename(&second, old).expect("it can be moved away");
    server.expect_log(mark, "has gone, and is watched again once it is back");
    save(&first, "4");
    fs::rename(&first, &second).expect("another can be put in its place");
    server.expect_log(mark, &watched);
    expect(&server, "4");
    save(&second, "5");
    expect(&server, "5");
    server.stop();
}
