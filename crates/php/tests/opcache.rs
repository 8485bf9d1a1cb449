//! Telling what OPcache holds, and filling it for requests that have not come yet.

mod php;

use php::{Php, Run};

/// An OPcache that keeps files that were written just now.
fn cache() -> Php {
    Php::new().with(&["--fork", "--cached"]).opcache().ini("opcache.file_update_protection=0")
}

/// Has these scripts compiled, in this order, before the first request.
fn compile(php: Php, scripts: &[&str]) -> Php {
    scripts.iter().fold(php, |php, script| {
        let path = php.path(script).display().to_string();
        php.with(&["--compile", &path])
    })
}

/// What the program printed that begins like this, without that beginning.
fn lines(run: &Run, beginning: &str) -> Vec<String> {
    let text = String::from_utf8_lossy(&run.output.stdout).into_owned();
    text.lines().filter_map(|line| line.strip_prefix(beginning)).map(str::to_owned).collect()
}

/// Serves and checks that nothing was printed but answers and results.
fn serve(php: &Php, scripts: &[&str]) -> Run {
    let run = php.serve_plainly(scripts);
    assert!(run.output.status.success(), "{:?}", run.output);
    assert_eq!(String::from_utf8_lossy(&run.output.stderr), "");
    run
}

fn compiled(run: &Run) -> u32 {
    let lines = lines(run, "compiled ");
    assert_eq!(lines.len(), 1, "{:?}", run.output);
    lines[0].parse().expect("a number")
}

/// Names of the cached scripts, in their order, without the folder.
fn cached(run: &Run, php: &Php) -> Vec<String> {
    let folder = format!("{}/", php.root().display());
    lines(run, "cached ").iter().map(|line| line.replace(&folder, "")).collect()
}

#[test]
fn the_cached_scripts_are_told_most_used_first() {
    let php = cache().file("rare.php", "rare").file("often.php", "often");
    let run = serve(&php, &["rare.php", "often.php", "often.php", "often.php"]);
    assert_eq!(cached(&run, &php), ["2 often.php", "0 rare.php"]);
    assert_eq!(lines(&run, "figures "), ["2 2"]);
}

#[test]
fn what_scripts_may_not_ask_is_told_to_the_server() {
    let php = cache()
        .ini(
            "opcache.restrict_api=/nowhere\ndisable_functions=opcache_get_status,\
             opcache_compile_file,opcache_is_script_cached",
        )
        .file("a.php", "a");
    let php = compile(php, &["a.php"]);
    let run = serve(&php, &["a.php"]);
    assert_eq!(compiled(&run), 1);
    assert_eq!(cached(&run, &php), ["1 a.php"]);
    assert_eq!(lines(&run, "figures "), ["1 1"]);
}

#[test]
fn without_opcache_nothing_is_cached_and_nothing_compiled() {
    for (php, ini) in [
        (Php::new(), "opcache.enable=0"),
        (Php::new().opcache(), "opcache.enable=0"),
        (Php::new().opcache(), "opcache.file_cache_only=1\nopcache.file_cache=/tmp"),
    ] {
        let php = php.with(&["--fork", "--cached"]).ini(ini).file("a.php", "a");
        let php = compile(php, &["a.php"]);
        let run = serve(&php, &["a.php"]);
        assert_eq!(compiled(&run), 0, "{ini}");
        assert_eq!(cached(&run, &php), [""; 0], "{ini}");
        assert_eq!(lines(&run, "figures "), [""; 0], "{ini}");
    }
}

#[test]
fn a_compiled_script_is_a_hit_for_another_process_and_declares_nothing_there() {
    let script = "<?php class C extends Base {} interface I {} function f() {}
        const K = 1; file_put_contents(__DIR__ . '/executed', 'x');";
    let php = cache().file("lib.php", script).file(
        "t.php",
        "<?php $lib = __DIR__ . '/lib.php';
            var_dump(opcache_is_script_cached($lib), opcache_is_script_cached(__FILE__));
            var_dump(function_exists('f'), class_exists('C'), interface_exists('I'), defined('K'));
            class Base {} include $lib;
            var_dump(function_exists('f'), class_exists('C'), interface_exists('I'), defined('K'));
            echo opcache_get_status()['scripts'][$lib]['hits'], ' ',
                opcache_get_status()['opcache_statistics']['misses'];",
    );
    let php = compile(php, &["lib.php", "t.php"]);
    let run = serve_without_executing(&php);
    assert_eq!(compiled(&run), 2);
    let text = String::from_utf8_lossy(&run.output.stdout).into_owned();
    let (_, body) = text.split_once("\r\n\r\n").expect("an answer");
    let found: Vec<&str> = body.split_whitespace().collect();
    let (yes, no) = ("bool(true)", "bool(false)");
    assert_eq!(found[..10], [yes, yes, no, no, no, no, yes, yes, yes, yes]);
    // The two misses are those of the process that compiled.
    assert_eq!(found[10..12], ["1", "2"]);
}

fn serve_without_executing(php: &Php) -> Run {
    let before = serve(php, &[]);
    assert_eq!(compiled(&before), 2);
    assert!(!php.path("executed").exists());
    serve(php, &["t.php"])
}

#[test]
fn scripts_that_declare_the_same_are_all_compiled() {
    let php = cache()
        .file("a.php", "<?php function f() {} class C {}")
        .file("b.php", "<?php function f() {} class C {}");
    let php = compile(php, &["a.php", "b.php"]);
    let run = serve(&php, &[]);
    assert_eq!(compiled(&run), 2);
    assert_eq!(cached(&run, &php), ["0 a.php", "0 b.php"]);
}

#[test]
fn what_cannot_be_compiled_is_passed_over_in_silence() {
    let php = cache()
        .ini("display_errors=1\nlog_errors=1\nhtml_errors=0")
        .file("parse.php", "<?php function (")
        .file("compile.php", "<?php class C { abstract function f(); }")
        .file("warns.php", "<?php function f($a = 1, $b) {} switch (1) { case 2: continue; }")
        .file("folder/x", "")
        .file("good.php", "good");
    std::os::unix::fs::symlink("nothing", php.path("dangling.php")).expect("a link");
    let php = compile(
        php,
        &[
            "missing.php",
            "dangling.php",
            "folder",
            "parse.php",
            "compile.php",
            "warns.php",
            "good.php",
            "good.php",
        ],
    );
    let php = php.with(&["--compile", "relative.php", "--compile", "http://localhost/a.php"]);
    let run = serve(&php, &[]);
    assert_eq!(compiled(&run), 2, "{:?}", run.output);
    assert_eq!(cached(&run, &php), ["0 good.php", "0 warns.php"]);
}

#[test]
fn a_script_that_another_short_open_tag_would_change_is_left_to_its_request() {
    let php = cache()
        .ini("short_open_tag=0")
        .file(".user.ini", "short_open_tag=1")
        .file("short.php", "<? echo 'run';")
        .file("xml.php", "<?php echo '<?xml version=\"1.0\"?>';")
        .file("odd.php", "<?phpinfo();")
        .file("last.php", "<?php echo 1; ?> <?")
        .file("plain.php", "a<?php echo 1 ?>b<?= 2 ?>c<?PHP\necho 3; ?>d<?php");
    let names = ["short.php", "xml.php", "odd.php", "last.php", "plain.php"];
    let php = compile(php, &names);
    let run = serve(&php, &["short.php"]);
    assert_eq!(compiled(&run), 1);
    assert_eq!(cached(&run, &php), ["0 plain.php", "0 short.php"]);
    assert!(String::from_utf8_lossy(&run.output.stdout).contains("\r\n\r\nrun"));
}

#[test]
fn a_fifo_among_the_scripts_does_not_block() {
    let php = cache().file("good.php", "good");
    let made = std::process::Command::new("mkfifo").arg(php.path("pipe.php")).status();
    assert!(made.expect("mkfifo runs").success());
    let php = compile(php, &["pipe.php", "good.php"]);
    assert_eq!(compiled(&serve(&php, &[])), 1);
}

#[test]
fn a_script_that_needs_too_much_memory_ends_it_and_what_was_compiled_stays() {
    let large = format!("<?php return [{}];", "[1, [2]],".repeat(60_000));
    let php = cache()
        .ini("memory_limit=8M")
        .file("a.php", "a")
        .file("large.php", &large)
        .file("b.php", "b");
    let php = compile(php, &["a.php", "large.php", "b.php"]);
    // Some releases end the process by themselves when a compiler needs twice the limit.
    let run = php.serve_plainly(&[]);
    assert_eq!(cached(&run, &php), ["0 a.php"], "{:?}", run.output);
}

#[test]
fn a_small_memory_limit_does_not_shorten_the_list() {
    let mut php = cache().ini("memory_limit=2M\nopcache.max_accelerated_files=8000");
    let names: Vec<String> = (0..3000).map(|number| format!("{number}.php")).collect();
    for name in &names {
        php = php.file(name, "x");
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let php = compile(php, &names);
    let run = serve(&php, &[]);
    assert_eq!(compiled(&run), 3000);
    assert_eq!(cached(&run, &php).len(), 3000);
}

#[test]
fn warming_leaves_room_for_requests_and_causes_no_restart() {
    let body = format!("<?php return ['{}'];", "x".repeat(100_000));
    let mut php = cache().ini("opcache.memory_consumption=8\nopcache.interned_strings_buffer=1");
    let names: Vec<String> = (0..120).map(|number| format!("{number}.php")).collect();
    for (number, name) in names.iter().enumerate() {
        php = php.file(name, &body.replace("['", &format!("['{number}")));
    }
    let php = php.file(
        "t.php",
        "<?php $s = opcache_get_status(false); $m = $s['memory_usage'];
        echo $s['cache_full'] || $s['restart_pending'] ? 'full ' : 'room ';
        echo $m['free_memory'] >= 1048576 - 4096 ? 'kept' : $m['free_memory'];",
    );
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let php = compile(php, &names);
    let run = serve(&php, &["t.php"]);
    assert!((20..100).contains(&compiled(&run)), "{}", compiled(&run));
    let text = String::from_utf8_lossy(&run.output.stdout).into_owned();
    assert!(text.contains("room kept"), "{text}");
}

#[test]
fn filling_the_cache_leaves_keys_for_requests() {
    let mut php = cache().ini("opcache.max_accelerated_files=200");
    let names: Vec<String> = (0..300).map(|number| format!("{number}.php")).collect();
    for name in &names {
        php = php.file(name, "x");
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let php = compile(php, &names);
    // OPcache takes the next prime of its own list, 223; an eighth of it is left.
    assert_eq!(compiled(&serve(&php, &[])), 223 - 223 / 8);
}

#[test]
fn preloaded_scripts_are_left_as_they_are() {
    let php = cache()
        .file("preload.php", "<?php require_once __DIR__ . '/lib.php';")
        .file("lib.php", "<?php class Preloaded {} function preloaded() {}")
        .file("t.php", "<?php var_dump(class_exists('Preloaded'));");
    let preload = format!(
        "opcache.preload={}\nopcache.preload_user={}",
        php.path("preload.php").display(),
        php::owner(php.root()),
    );
    let php = compile(php.ini(&preload), &["lib.php", "preload.php", "t.php"]);
    let run = serve(&php, &["t.php"]);
    assert_eq!(compiled(&run), 1);
    assert!(String::from_utf8_lossy(&run.output.stdout).contains("bool(true)"));
}

#[test]
fn compiling_begins_no_session_prepends_nothing_and_has_no_time_limit() {
    let php = cache()
        .file("prepended.php", "<?php file_put_contents(__DIR__ . '/executed', 'x');")
        .file("a.php", "a");
    let folder = php.root().display().to_string();
    let php = php.ini(&format!(
        "extension=session\nsession.auto_start=1\nsession.save_path={folder}/sessions
        auto_prepend_file={folder}/prepended.php\nmax_execution_time=1\noutput_buffering=4096"
    ));
    std::fs::create_dir(php.path("sessions")).expect("a folder");
    let php = compile(php, &["a.php"]);
    assert_eq!(compiled(&serve(&php, &[])), 1);
    assert!(!php.path("executed").exists());
    let sessions = std::fs::read_dir(php.path("sessions")).expect("the folder");
    assert_eq!(sessions.count(), 0);
}
