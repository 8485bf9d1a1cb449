//! `preload = true`: PHP links the classes that a pool uses at its start, and its pages stay the
//! same.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use maitred_tests::http;
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user, write_file};
use maitred_tests::{Target, maitred_program, wait};
use serde_json::Value;

/// How long something may take on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(90);

/// Classes that are autoloaded.
const CLASSES: usize = 20;

/// Requests between two looks at the result: a pool learns only while it is used.
const BURST: usize = 10;

/// Names the classes that exist at the start of the request, and prints what all of them say.
const PAGE: &str = r#"<?php
$names = array_merge(array_map(fn ($n) => "C$n", range(1, 20)),
    ['ByPath', 'Twin', 'WithFunction', 'Conditional', 'WithAlias']);
$early = array_values(array_filter($names, fn ($name) => class_exists("App\\$name", false)));
$src = __DIR__ . '/../src';
if (isset($_GET['other'])) { require "$src/Other.php"; }
if (isset($_GET['reset'])) { opcache_reset(); }
spl_autoload_register(fn ($name) => require $src . strtr(substr($name, 3), '\\', '/') . '.php');
require "$src/ByPath.php";
require $src . (($_GET['twin'] ?? 'A') === 'A' ? '/TwinA.php' : '/TwinB.php');
require "$src/WithFunction.php";
require "$src/Conditional.php";
require "$src/WithAlias.php";
class_exists('App\\C20');
require "$src/GuardedC20.php";
$said = '';
foreach ($names as $name) { $said .= "App\\$name"::says() . ' '; }
echo json_encode(['early' => $early, 'said' => $said . App\helper() . ' ' . Alias::says()]);
"#;

fn class(name: &str, says: &str) -> String {
    format!("<?php namespace App; class {name} {{ static function says() {{ return '{says}'; }} }}")
}

/// Files of a release below `root`.
fn write_release(root: &Path, says: &str) {
    let mut files: Vec<(String, String)> =
        (1..=CLASSES).map(|n| (format!("C{n}"), class(&format!("C{n}"), says))).collect();
    let with = |name: &str, more: &str| class(name, says) + more;
    files.extend(
        [
            ("ByPath", with("ByPath", "")),
            ("TwinA", class("Twin", "A")),
            ("TwinB", class("Twin", "B")),
            ("WithFunction", with("WithFunction", " function helper() { return 'helped'; }")),
            ("WithAlias", with("WithAlias", r" class_alias('App\WithAlias', 'Alias');")),
            (
                "Conditional",
                "<?php namespace App; if (PHP_VERSION_ID > 1) { class Conditional {
                    static function says() { return 'conditional'; } } }"
                    .to_owned(),
            ),
            ("Other", class("C1", "other")),
            (
                "GuardedC20",
                "<?php namespace App; if (!class_exists('App\\C20')) { class C20 {} }".to_owned(),
            ),
        ]
        .map(|(name, text)| (name.to_owned(), text)),
    );
    for (name, text) in files {
        write_file(root, &format!("src/{name}.php"), text.as_bytes());
    }
    write_file(root, "public/index.php", PAGE.as_bytes());
}

fn application() -> tempfile::TempDir {
    let root = document_root(&[("composer.json", "{}")]);
    write_release(root.path(), "one");
    give_to_web_user(root.path());
    root
}

fn pool(public: &Path) -> Setup {
    Setup::new(public).workers(1).pool("preload = true").site("front_controller = \"/index.php\"")
}

fn page(server: &Server, target: &str) -> Value {
    http::get(server.address(), target).json()
}

/// The page of a pool that preloads, after as many requests as it takes.
fn learned(server: &Server) -> Value {
    wait::until_within("preloading", PATIENCE, || {
        for _ in 0..BURST {
            page(server, "/?twin=B");
        }
        let page = page(server, "/");
        (!page["early"].as_array().expect("a list").is_empty()).then_some(page)
    })
}

/// Waits until `target` says `text`, and returns that page.
fn expect(server: &Server, target: &str, text: &str) -> Value {
    wait::until_within(text, PATIENCE, || {
        let response = http::get(server.address(), target);
        let page: Value = serde_json::from_str(&response.text()).ok()?;
        page["said"].as_str()?.contains(text).then_some(page)
    })
}

#[test]
fn classes_that_a_pool_uses_exist_from_the_start_and_its_pages_stay_the_same() {
    let root = application();
    let server = pool(&root.path().join("public")).start();
    let before = page(&server, "/");
    assert_eq!(before["early"], serde_json::json!([]));
    let after = learned(&server);
    assert_eq!(after["said"], before["said"]);
    assert!(after["said"].as_str().is_some_and(|said| said.ends_with("helped one")), "{after}");
    // Another script declares the last one as well, if it does not exist.
    let early: Vec<String> = (1..CLASSES).map(|n| format!("C{n}")).collect();
    let early = [early, vec!["ByPath".to_owned()]].concat();
    assert_eq!(after["early"], serde_json::json!(early), "those of one file each, and no other");
    let twins = page(&server, "/?twin=B");
    assert!(twins["said"].as_str().is_some_and(|said| said.contains(" B ")), "{twins}");

    // A file is saved: its class is the new one, and so it is after the pool has learned again.
    let mark = server.log().mark();
    write_file(root.path(), "src/C7.php", class("C7", "seven").as_bytes());
    expect(&server, "/", "seven");
    server.expect_log(mark, "src/C7.php of a preloaded class was saved");
    let again = learned(&server);
    assert!(again["said"].as_str().is_some_and(|said| said.contains("seven")), "{again}");

    // A script declares a class that is preloaded: the pool goes back.
    let mark = server.log().mark();
    assert_eq!(http::get(server.address(), "/?other").status, 500);
    server.expect_log(mark, "a script declares a class that is preloaded");
    let without = expect(&server, "/?other", "other");
    assert_eq!(without["early"], serde_json::json!([]));
    server.stop();
}

#[test]
fn another_release_behind_the_link_of_the_document_root_is_not_served_with_the_classes_before() {
    let root = document_root(&[]);
    for (release, says) in [("1", "one"), ("2", "two")] {
        write_release(&root.path().join(release), says);
    }
    let current = root.path().join("current");
    symlink(root.path().join("1"), &current).expect("a link can be made");
    give_to_web_user(root.path());
    let server = pool(&current.join("public")).start();
    learned(&server);
    let mark = server.log().mark();
    symlink(root.path().join("2"), root.path().join("next")).expect("a link can be made");
    fs::rename(root.path().join("next"), &current).expect("a link can be renamed");
    expect(&server, "/", "two two two");
    server.expect_log(mark, "its scripts have changed since its start");
    server.stop();
}

#[test]
fn a_script_that_resets_opcache_after_a_deployment_gets_the_new_classes() {
    let root = application();
    let values = "php_admin_value = { \"opcache.validate_timestamps\" = \"0\" }";
    let server = pool(&root.path().join("public")).pool(values).start();
    learned(&server);
    write_file(root.path(), "src/C7.php", class("C7", "seven").as_bytes());
    let unchanged = page(&server, "/");
    assert!(!unchanged["said"].as_str().is_some_and(|said| said.contains("seven")), "{unchanged}");
    page(&server, "/?reset");
    expect(&server, "/", "seven");
    server.stop();
}

#[test]
fn a_check_runs_no_script_that_php_preloads() {
    let root = document_root(&[("hello.php", "<?php echo 'hello';")]);
    let path = |name: &str| root.path().join(name);
    let notes = |name: &str| format!("<?php touch({:?});", path(&format!("{name}.ran")));
    for name in ["own", "ini"] {
        write_file(root.path(), &format!("{name}.php"), notes(name).as_bytes());
    }
    let ini = format!("opcache.enable = 1\nopcache.preload = {:?}\n", path("ini.php"));
    write_file(root.path(), "php.ini", ini.as_bytes());
    give_to_web_user(root.path());
    let have_run = || ["own", "ini"].map(|name| path(&format!("{name}.ran")).exists());
    let server = Setup::new(root.path())
        .pool(&format!(
            "php_admin_value = {{ \"opcache.enable\" = 1, \"opcache.preload\" = {:?} }}",
            path("own.php")
        ))
        .site(&format!(
            "[pools.ini]\nmax_children = 1\npm = \"static\"\nphp_ini = {:?}",
            path("php.ini")
        ))
        .start();
    wait::until_true("both pools to preload", || have_run() == [true; 2]);
    for name in ["own.ran", "ini.ran"] {
        fs::remove_file(path(name)).expect("a note can be removed");
    }
    let checked = Command::new(maitred_program()).arg("check").arg(server.configuration()).output();
    let checked = checked.expect("check runs");
    assert!(checked.status.success(), "{checked:?}");
    assert_eq!(have_run(), [false; 2]);
    server.stop();
}
