//! Booted applications with more scripts than OPcache holds: another generation with a larger one
//! comes, once, and requests go on.

use std::path::Path;
use std::time::Duration;

use maitred_tests::http;
use maitred_tests::outside::{command, pool};
use maitred_tests::server::{
    Server, Setup, document_root, give_to_web_user, public_folder, write_file,
};
use maitred_tests::{Target, wait};
use serde_json::Value;
use tempfile::TempDir;

/// How long something may take on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// What requests ask for: to include a script, and what OPcache is like.
const ANSWER: &str = "
    if (isset($_GET['n'])) { require __DIR__ . \"/parts/{$_GET['n']}.php\"; }
    $all = opcache_get_configuration()['directives'];
    $held = opcache_get_status(true)['scripts'];
    if (isset($_GET['outdate'])) {
        foreach (array_keys($held) as $name) { if (str_contains($name, '/parts/')) {
            opcache_invalidate($name, true); } }
    }
    echo json_encode([
        'memory' => $all['opcache.memory_consumption'] >> 20, 'keys'
            => $all['opcache.max_accelerated_files'],
        'strings' => $all['opcache.interned_strings_buffer'],
        'held' => count(array_filter(array_keys($held), fn ($name) => str_contains($name,
            '/parts/'))),
    ]);";

/// An application that includes `parts` on request.
fn application(mode: &str, parts: &[String]) -> TempDir {
    let script = match mode {
        "worker" => format!(
            "<?php function answer() {{ {ANSWER} }} while (frankenphp_handle_request('answer'));"
        ),
        "snapshot" => format!("<?php maitred_snapshot(); {ANSWER}"),
        _ => format!("<?php {ANSWER}"),
    };
    let root = document_root(&[("index.php", &script)]);
    for (number, part) in parts.iter().enumerate() {
        write_file(root.path(), &format!("parts/{number}.php"), part.as_bytes());
    }
    give_to_web_user(root.path());
    root
}

/// How many scripts the application has that [`large`] makes.
const PARTS: usize = 100;

/// Scripts that take about 9 MB of OPcache all together.
fn large() -> Vec<String> {
    let numbers: String = (0..6000).map(|n| format!("{n},")).collect();
    let part = |number| format!("<?php return [{number}, {numbers}];");
    (0..PARTS).map(part).collect()
}

/// One with 8 MB of OPcache, of which strings have 1.
fn with_little(root: &Path, mode: &str) -> Setup {
    let script = root.join("index.php");
    Setup::new(root)
        .workers(2)
        .pool(&format!("mode = {mode:?}"))
        .pool(&format!("script = {script:?}"))
        .pool("php_admin_value.\"opcache.memory_consumption\" = 8")
        .pool("php_admin_value.\"opcache.interned_strings_buffer\" = 1")
        .pool("php_admin_value.\"opcache.file_update_protection\" = 0")
        .pool("php_value.memory_limit = \"512M\"")
        .site("front_controller = \"/index.php\"")
}

fn ask(server: &Server, target: &str) -> Value {
    let answer = http::get(server.address(), target);
    assert_eq!(answer.status, 200, "{target}: {}", answer.text());
    answer.json()
}

/// Asks for all parts again and again until OPcache holds them all, and returns how it is then.
fn ask_until_all_are_held(server: &Server, parts: usize) -> Value {
    wait::until_within("all parts are held", PATIENCE, || {
        let mut last = Value::Null;
        for part in 0..parts {
            last = ask(server, &format!("/?n={part}"));
        }
        (last["held"] == parts).then_some(last)
    })
}

fn times(server: &Server, words: &str) -> usize {
    let log = server.log().since(0);
    log.iter().filter(|line| line.contains(words)).count()
}

/// An application whose scripts take 9 MB.
fn expect_a_larger_one(mode: &str) {
    let root = application(mode, &large());
    let server = with_little(root.path(), mode).start();
    assert_eq!(ask(&server, "/")["memory"], 8);
    let then = ask_until_all_are_held(&server, PARTS);
    assert_eq!(then["memory"], 16);
    let line = server.expect_log(0, "OPcache is full");
    assert!(line.contains("pool `www`: OPcache is full (") && line.contains(" of 8 MiB in use"));
    assert!(line.contains("it is restarted with 16 MiB, "), "{line}");
    server.expect_log(0, "reloaded: pool www restarted");
    let told = wait::until("figures of the larger one", || {
        let told = pool(&server)["opcache"].clone();
        (told["cached_scripts"].as_u64() >= Some(PARTS as u64)).then_some(told)
    });
    assert!(told["memory_free_bytes"].as_u64() > Some(4 << 20), "{told}");
    // What was learned stays, and nothing comes after it.
    server.reload();
    assert_eq!(ask_until_all_are_held(&server, PARTS)["memory"], 16);
    assert_eq!(times(&server, "OPcache is full"), 1);
    assert_eq!(times(&server, "its scripts have changed"), 0);
    server.stop();
}

#[test]
fn workers_whose_opcache_is_full_are_replaced_by_such_with_a_larger_one() {
    expect_a_larger_one("worker");
}

#[test]
fn copies_whose_opcache_is_full_are_replaced_by_such_with_a_larger_one() {
    expect_a_larger_one("snapshot");
}

#[test]
fn copies_that_go_back_say_too_that_opcache_is_full() {
    let root = application("snapshot", &large());
    let server = with_little(root.path(), "snapshot").pool("rewinds_per_child = 1000").start();
    assert_eq!(ask_until_all_are_held(&server, PARTS)["memory"], 16);
    server.stop();
}

#[test]
fn an_application_that_fills_opcache_with_its_boot_gets_a_larger_one_too() {
    let root = application("snapshot", &large());
    let boot = "<?php foreach (range(0, 99) as $n) { require __DIR__ . \"/parts/$n.php\"; }";
    let script = format!("{boot} maitred_snapshot(); {ANSWER}");
    write_file(root.path(), "index.php", script.as_bytes());
    let server = with_little(root.path(), "snapshot").start();
    let then = wait::until_within("a larger one", PATIENCE, || {
        let then = ask(&server, "/");
        (then["memory"] == 16).then_some(then)
    });
    assert_eq!(then["held"], PARTS);
    assert_eq!(times(&server, "OPcache is full"), 1);
    server.stop();
}

#[test]
fn keys_that_are_used_up_are_doubled_and_the_memory_stays() {
    let small: Vec<String> = (0..300).map(|n| format!("<?php return {n};")).collect();
    let root = application("worker", &small);
    let server = with_little(root.path(), "worker")
        .pool("php_admin_value.\"opcache.max_accelerated_files\" = 200")
        .start();
    assert_eq!(ask(&server, "/")["keys"], 200);
    let then = ask_until_all_are_held(&server, 300);
    assert_eq!((&then["memory"], &then["keys"]), (&8.into(), &224.into()));
    server.stop();
}

#[test]
fn keys_are_doubled_also_where_opcache_has_more_memory_than_it_may_be_given() {
    let small: Vec<String> = (0..300).map(|n| format!("<?php return {n};")).collect();
    let root = application("worker", &small);
    let server = with_little(root.path(), "worker")
        .pool("opcache_memory_max = \"4M\"")
        .pool("php_admin_value.\"opcache.max_accelerated_files\" = 200")
        .start();
    let then = ask_until_all_are_held(&server, 300);
    assert_eq!((&then["memory"], &then["keys"]), (&8.into(), &224.into()));
    server.stop();
}

/// Has PHP use up `memory_limit`. A function for the end of the request gives some of it back and
/// writes to a file.
const FILLED_HEAP: &str = "
    if (isset($_GET['fill'])) {
        ini_set('display_errors', '0');
        ini_set('memory_limit', '64M');
        $GLOBALS['reserve'] = str_repeat('x', 1 << 20);
        register_shutdown_function(function () {
            unset($GLOBALS['reserve']);
            file_put_contents(__DIR__ . '/ended', 'at the end');
        });
        $GLOBALS['all'] = new SplFixedArray(1 << 20);
        for ($i = 0; ; $i++) { $GLOBALS['all'][$i] = ['one' => $i]; }
    }";

#[test]
fn a_request_that_has_compiled_something_and_runs_out_of_memory_comes_to_its_end() {
    for mode in ["worker", "snapshot"] {
        let root = application(mode, &["<?php return 1;".to_owned()]);
        let script = std::fs::read_to_string(root.path().join("index.php")).expect("the script");
        let script = script.replace("echo json_encode", &format!("{FILLED_HEAP} echo json_encode"));
        write_file(root.path(), "index.php", script.as_bytes());
        give_to_web_user(root.path());
        let server = with_little(root.path(), mode).start();
        let answer = http::get(server.address(), "/?n=0&fill");
        assert_eq!(answer.status, 500, "{mode}");
        server.expect_log(0, "Allowed memory size of");
        wait::until_true("what runs at the end", || {
            std::fs::read(root.path().join("ended")).is_ok_and(|text| text == b"at the end")
        });
        assert_eq!(ask(&server, "/?n=0")["memory"], 8);
        server.stop();
    }
}

#[test]
fn php_ini_that_was_given_more_than_was_learned_holds() {
    let root = application("worker", &large());
    let folder = public_folder();
    let ini = folder.path().join("php.ini");
    let of_size = |memory: u32| {
        let text = format!(
            "opcache.memory_consumption = {memory}\nopcache.interned_strings_buffer = 1\n\
             opcache.file_update_protection = 0\nmemory_limit = 512M\n"
        );
        write_file(folder.path(), "php.ini", text.as_bytes());
    };
    of_size(8);
    let script = root.path().join("index.php");
    let server = Setup::new(root.path())
        .workers(2)
        .pool("mode = \"worker\"")
        .pool(&format!("script = {script:?}"))
        .pool(&format!("php_ini = {ini:?}"))
        .site("front_controller = \"/index.php\"")
        .start();
    assert_eq!(ask_until_all_are_held(&server, PARTS)["memory"], 16);
    for (said, holds) in [(8, 16), (32, 32), (12, 16)] {
        of_size(said);
        let output = command(&server, &["reload", "www"]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(ask(&server, "/")["memory"], holds, "{said}");
    }
    server.stop();
}

#[test]
fn opcache_that_may_not_be_larger_is_told_once_and_nothing_is_booted_anew() {
    for mode in ["worker", "snapshot"] {
        let root = application(mode, &large());
        let server = with_little(root.path(), mode).pool("opcache_memory_max = \"8M\"").start();
        let zygote = server.zygote().expect("a zygote").pid;
        for part in 0..PARTS {
            ask(&server, &format!("/?n={part}"));
        }
        let line = server.expect_log(0, "OPcache is full");
        let why = "it has run out of memory and stays so, \
                   since it may have 8 MiB at most (`opcache_memory_max`, and a quarter";
        assert!(line.contains(why), "{line}");
        for part in 0..PARTS {
            assert_eq!(ask(&server, &format!("/?n={part}"))["memory"], 8);
        }
        assert_eq!(server.zygote().expect("a zygote").pid, zygote);
        assert_eq!(times(&server, "OPcache is full"), 1);
        server.stop();
    }
}

#[test]
fn one_that_stays_as_it_is_begins_anew_when_much_of_what_it_holds_is_outdated() {
    let root = application("snapshot", &large());
    let server = with_little(root.path(), "snapshot").pool("opcache_memory_max = \"8M\"").start();
    for part in 0..PARTS {
        ask(&server, &format!("/?n={part}"));
    }
    server.expect_log(0, "it has run out of memory and stays so");
    assert_eq!(times(&server, "it is restarted"), 0);
    ask(&server, "/?outdate");
    wait::until_within("another boot", PATIENCE, || {
        ask(&server, "/?n=0");
        (times(&server, "it is restarted with 8 MiB") > 0).then_some(())
    });
    server.stop();
}

#[test]
fn an_opcache_that_grows_more_than_the_pool_may_is_cut_to_that() {
    let root = application("worker", &large());
    let server = with_little(root.path(), "worker").pool("opcache_memory_max = \"12M\"").start();
    assert_eq!(ask_until_all_are_held(&server, PARTS)["memory"], 12);
    server.stop();
}

#[test]
fn a_larger_opcache_whose_boot_fails_leaves_what_serves_and_is_not_tried_again() {
    let root = application("snapshot", &large());
    let boot = "<?php if (ini_get('opcache.memory_consumption') > 8) { \
                throw new Exception('too large'); }";
    let script = format!("{boot} maitred_snapshot(); {ANSWER}");
    write_file(root.path(), "index.php", script.as_bytes());
    let server = with_little(root.path(), "snapshot").start();
    for part in 0..PARTS {
        ask(&server, &format!("/?n={part}"));
    }
    server.expect_log(0, "it is restarted with 16 MiB");
    server.expect_log(0, "pool www goes on as it was");
    for part in 0..PARTS {
        assert_eq!(ask(&server, &format!("/?n={part}"))["memory"], 8);
    }
    assert_eq!(times(&server, "OPcache is full"), 1);
    server.stop();
}

#[test]
fn a_classic_pool_keeps_the_opcache_it_was_given() {
    let root = application("classic", &large());
    let server = with_little(root.path(), "classic").start();
    for part in 0..PARTS {
        assert_eq!(ask(&server, &format!("/?n={part}"))["memory"], 8);
    }
    assert_eq!(times(&server, "OPcache is full"), 0);
    server.stop();
}
