//! How copies of a booted application end their requests, and what they have that requests compile.

use std::fs;
use std::path::Path;

use maitred_tests::Target;
use maitred_tests::booted::{PATIENCE, application, snapshot};
use maitred_tests::http;
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user};
use tempfile::TempDir;

/// All that a script can notice of its own end, written down in the order in which it happens. `%s`
/// is the folder that it may write to.
const TELLS_ALL: &str = r#"<?php
$folder = '%s';
function tell($what) { file_put_contents($GLOBALS['folder'] . '/told', "$what\n", FILE_APPEND); }
class Told { public $more; function __construct(public $name) {} function __destruct() {
    tell("destructor $this->name"); } }
class Plain { public $more; static $first; }
class Lines {
    public $context; private $path;
    function stream_open($path) { $this->path = $path; return true; }
    function stream_write($data) { return strlen($data); }
    function stream_flush() { tell("flush $this->path"); return true; }
    function stream_close() { tell("close $this->path, new object " .
        (spl_object_id(new Plain) > spl_object_id(Plain::$first) ? 'after' : 'before')); }
}
class Sessions implements SessionHandlerInterface {
    function open($path, $name): bool { return true; }
    function close(): bool { tell('session close'); return true; }
    function read($id): string { return ''; }
    function write($id, $data): bool { tell("session $data"); return true; }
    function destroy($id): bool { return true; }
    function gc($most): int { return 0; }
}
stream_wrapper_register('lines', 'Lines');
$booted = Plain::$first = new Plain;
if (function_exists('maitred_snapshot')) { maitred_snapshot(); }
$how = $_GET['how'] ?? '';
if ($how === 'held') {
    // The holder has no destructor: the rest of the filter arrives when the holder is freed,
    // before output ends.
    $holder = new Plain; $holder->more = fopen('php://output', 'w');
    stream_filter_append($holder->more, 'convert.base64-encode', STREAM_FILTER_WRITE);
    fwrite($holder->more, '7777');
    return;
}
$plain = new Plain; $plain->more = new ArrayObject([new Plain, function () {}]);
$plain->more[0]->more = $plain;
if ($how === 'destructors') {
    $outer = new Told('outer'); $outer->more = new Told('inner');
    $booted->more = new Told('of what was booted');
    $circle = new Told('circle'); $circle->more = $circle; $held = [new Told('held')];
}
session_set_save_handler(new Sessions, true);
session_id('abcdefabcdefabcdefabcdef'); session_start(['use_cookies' => 0, 'use_only_cookies' => 0,
    'cache_limiter' => '']);
$_SESSION['how'] = $how;
register_shutdown_function(function () {
    tell('first function'); echo "first function\n";
    register_shutdown_function(function () { tell('third function'); });
});
register_shutdown_function(function () use ($how) { tell('second function'); if ($how === 'late') {
    $GLOBALS['late'] = new Told('late'); } });
ob_start(function ($text, $phase) { tell('output ' . ($phase & PHP_OUTPUT_HANDLER_FINAL ? 'final' :
    'begins')); return strtoupper($text); });
$zipped = gzopen("$folder/zipped.gz", 'w'); gzwrite($zipped, 'all of it');
$xml = new XMLWriter; $xml->openUri("$folder/written.xml"); $xml->writeElement('all', 'of it');
$lines = fopen('lines://one', 'w'); fwrite($lines, 'x');
$temporary = tmpfile(); fwrite($temporary, 'x');
tell('temporary ' . (int) is_file(stream_get_meta_data($temporary)['uri']));
file_put_contents("$folder/temporary", stream_get_meta_data($temporary)['uri']);
$database = new PDO("sqlite:$folder/data.sqlite");
$database->exec('create table if not exists t (a)');
$database->exec('insert into t values (1)'); tell('rows ' .
    $database->query('select count(*) from t')->fetchColumn());
$database->beginTransaction(); $database->exec('insert into t values (2)');
$GLOBALS['kept'] = new SplFileObject("$folder/kept", 'w'); $GLOBALS['kept']->fwrite('kept');
echo "answer of $how\n";
switch ($how) {
    case 'exit': exit("left\n");
    case 'exception': throw new LogicException('thrown');
    case 'fatal': undefined_function();
}
"#;

/// A folder with the script, and one that it may write to.
fn told_by(script: &str) -> (TempDir, TempDir) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    give_to_web_user(folder.path());
    let path = folder.path().display().to_string();
    let root = document_root(&[("index.php", &script.replacen("%s", &path, 1))]);
    give_to_web_user(root.path());
    (root, folder)
}

/// What is seen of a request, in its answer and in files, once it is all over.
fn all_of(server: &Server, folder: &Path, how: &str) -> Vec<String> {
    let told = folder.join("told");
    let answer = http::get(server.address(), &format!("/?how={how}"));
    // Who answers the next request has ended the one before.
    let next = http::get(server.address(), "/?how=next");
    assert_eq!(next.status, 200, "{}", next.text());
    let text = fs::read_to_string(&told).unwrap_or_default();
    let mut seen = vec![
        format!("{} {}", answer.status, answer.text()),
        // All is recorded before the next request begins.
        text.split_inclusive('\n')
            .take_while(|line| !line.starts_with("session how|s:4:\"next\""))
            .collect(),
    ];
    for name in ["zipped.gz", "written.xml", "kept"] {
        let bytes = fs::read(folder.join(name)).unwrap_or_default();
        seen.push(format!("{name} {bytes:?}"));
    }
    let temporary = fs::read_to_string(folder.join("temporary")).unwrap_or_default();
    seen.push(format!("temporary file: {}", Path::new(&temporary).exists()));
    for name in ["told", "data.sqlite"] {
        fs::remove_file(folder.join(name)).expect("the script has made it");
    }
    seen
}

#[test]
fn a_copy_ends_its_request_as_a_classic_pool_does() {
    let (root, folder) = told_by(TELLS_ALL);
    let classic = Setup::new(root.path()).workers(1).start();
    let copied = snapshot(root.path()).workers(1).start();
    let rewinding = snapshot(root.path()).workers(1).pool("rewinds_per_child = 100").start();
    for how in ["held", "plain", "destructors", "late", "exit", "exception", "fatal"] {
        let expected = all_of(&classic, folder.path(), how);
        match how {
            "held" => assert_eq!(expected[0], "200 Nzc3Nw=="),
            _ => {
                assert!(expected[1].contains("session close"), "{expected:?}");
                assert!(expected[1].contains("new object after"), "{expected:?}");
            }
        }
        for (server, name) in [(&copied, "new"), (&rewinding, "gone back")] {
            let seen = all_of(server, folder.path(), how);
            assert_eq!(seen, expected, "{how}, {name}");
        }
    }
    for server in [classic, copied, rewinding] {
        server.stop();
    }
}

#[test]
fn what_is_asked_ahead_has_its_regular_expressions_compiled_for_all_copies() {
    // That of `alike` was never compiled, and takes as long as that of the application did.
    let script = "<?php
        function pattern($seed) { mt_srand($seed); $all = []; for ($i = 0; $i < 700; $i++) {
            $all[] = 'a' . mt_rand() . '[b-f]+' . mt_rand() . '?'; }
            return '/' . implode('|', $all) . '/i'; }
        function took($pattern) { $begun = hrtime(true); preg_match($pattern, 'xyz');
        return hrtime(true) - $begun; }
        $known = pattern(1); $alike = pattern(2);
        maitred_snapshot();
        $took = took($known);
        echo json_encode(str_contains($_SERVER['REQUEST_URI'], 'ahead') ? [] : [$took,
            took($alike)]);";
    let (root, _folder) = told_by(script);
    for lines in [&[][..], &["rewinds_per_child = 100"]] {
        let setup = snapshot(root.path()).workers(1).pool("warm_requests = [\"/ahead\"]");
        let setup = lines.iter().fold(setup, |setup, line| setup.pool(line));
        let server = setup.start();
        // The least of some, since others take the processor now and then.
        let mut least = [u64::MAX; 2];
        for _ in 0..5 {
            let seen = http::get(server.address(), "/").json();
            for (least, took) in least.iter_mut().zip([&seen[0], &seen[1]]) {
                *least = took.as_u64().unwrap_or(u64::MAX).min(*least);
            }
        }
        assert!(least[0] < least[1] / 4, "{least:?}");
        server.wait_for_full_strength(3, PATIENCE);
        server.stop();
    }
}

/// Serves with more memory than booted, but for `/most`, which asks for 100 MB of what it has.
/// `$length`, `$most`, `$held` and `$n` are of what booted.
const ASKS_FOR_MEMORY: &str = "if ($_SERVER['REQUEST_URI'] === '/most') { \
                               echo strlen(str_repeat('q', 100 << 20)); return; }
     $before = ini_set('memory_limit', '256M');
     $found = preg_match('/a' . str_repeat(' ', $length) . '/x', 'a');
     echo json_encode([$before === $most, $found, error_get_last(), preg_last_error_msg(),
         count(array_filter($held)) === $n]);";

/// The expression of a warm-up request harms no copy, and each has the limit of what
/// booted.
#[track_caller]
fn expect_a_limit(boot: &str) {
    let root = application(boot, ASKS_FOR_MEMORY);
    let server = snapshot(root.path()).workers(1).pool("warm_requests = [\"/ahead\"]").start();
    for _ in 0..3 {
        let seen = http::get(server.address(), "/").json();
        assert_eq!(seen, serde_json::json!([true, 1, null, "No error", true]));
    }
    server.wait_for_full_strength(3, PATIENCE);
    let log = server.log_text();
    assert!(!log.contains("Allowed memory size"), "{log}");
    let mark = server.log().mark();
    let answer = http::get(server.address(), "/most");
    assert_eq!(answer.status, 500, "{}", answer.text());
    let line = server.expect_log(mark, "Allowed memory size");
    // PHP rounds it up to pages.
    assert!(line.contains("tried to allocate 1048"), "{line}");
    server.stop();
}

#[test]
fn a_regular_expression_for_which_a_boot_has_left_no_memory_harms_no_copy() {
    // What boots takes all that it may have, but for less than the expression is long. The one who
    // runs as a warm-up request may have more.
    expect_a_limit(
        "$held = array_fill(0, 4000, null); $n = 0; $length = 240000;
         do { $real = memory_get_usage(true); $held[$n++] = str_repeat('x', 20000 + $n); }
         while (memory_get_usage(true) === $real);
         for ($i = 0; $i < 90; $i++) { $held[$n++] = str_repeat('x', 20000 + $n); }
         $most = (string) memory_get_usage(true); ini_set('memory_limit', $most);",
    );
}

/// A worker script whose requests register functions that print.
const REGISTERS: &str = "<?php
    register_shutdown_function(fn () => print('by the boot '));
    while (frankenphp_handle_request(function () {
        $path = strtok($_SERVER['REQUEST_URI'], '?');
        register_shutdown_function(fn () => print(\"by $path \"));
        if (isset($_GET['exits'])) { exit('response '); }
        if (isset($_GET['fails'])) { str_repeat('x', 1 << 30); }
        echo 'response';
    })) { }";

#[test]
fn functions_of_warm_up_requests_write_to_no_response() {
    let root = document_root(&[("index.php", REGISTERS)]);
    give_to_web_user(root.path());
    for count in ["", "requests_per_child = 2", "rewinds_per_child = 10"] {
        let warm = "warm_requests = [\"/first\", \"/second\"]";
        let server = snapshot(root.path()).workers(1).pool(warm).pool(count).start();
        let get = |target: &str| http::get(server.address(), target).text();
        for _ in 0..2 {
            assert_eq!(get("/a"), "response", "{count}");
            assert_eq!(get("/b?exits"), "response by the boot by /b ", "{count}");
            let failed = get("/c?fails");
            assert!(failed.ends_with("by the boot by /c "), "{count}: {failed}");
        }
        server.stop();
    }
}

/// A worker script whose first request leaves an object that prints at its end.
const LEAVES_AN_OBJECT: &str = "<?php
    class Log {
        static $one;
        function __destruct() { echo 'object of ', $_SERVER['REQUEST_URI'] ?? 'none'; }
    }
    while (frankenphp_handle_request(function () {
        Log::$one ??= new Log;
        if (isset($_GET['exits'])) { exit('response'); }
        if (isset($_GET['fails'])) { str_repeat('x', 1 << 30); }
        echo 'response';
    })) { }";

#[test]
fn objects_of_warm_up_requests_write_to_no_response() {
    let root = document_root(&[("index.php", LEAVES_AN_OBJECT)]);
    give_to_web_user(root.path());
    for count in ["", "requests_per_child = 2", "rewinds_per_child = 10"] {
        let warm = "warm_requests = [\"/first\"]";
        let server = snapshot(root.path()).workers(1).pool(warm).pool(count).start();
        let get = |target: &str| http::get(server.address(), target).text();
        for _ in 0..2 {
            assert_eq!(get("/a"), "response", "{count}");
            assert_eq!(get("/b?exits"), "response", "{count}");
            let failed = get("/c?fails");
            assert!(!failed.contains("object of"), "{count}: {failed}");
        }
        server.stop();
    }
}

/// Takes all memory that it may have, but for holes of 6 pages. PHP has a place for what is as long
/// as the expression in runs of 7 pages only (`zend_alloc_sizes.h`), and none has one left.
const LEAVES_HOLES: &str = "gc_mem_caches();
    $held = array_fill(0, 2000, null); $n = 0; $length = 1700;
    function fill(...$lengths) {
        global $held, $n;
        $real = memory_get_usage(true);
        do { $held[$n] = str_repeat('x', $lengths[$n % count($lengths)]); $n++; }
        while (memory_get_usage(true) === $real);
        $held[--$n] = null; gc_mem_caches();
    }
    fill(4000); fill(24000, 4000); fill(4000); fill(1700);
    for ($at = $n, $holes = 0; $holes < 10; ) { if (strlen($held[--$at]) === 24000) {
        $held[$at] = null; $holes++; } }
    $n -= $holes; $most = (string) memory_get_usage(true);";

#[test]
fn a_short_regular_expression_that_needs_a_new_chunk_leaves_copies_their_limit() {
    expect_a_limit(&format!("{LEAVES_HOLES} ini_set('memory_limit', $most);"));
}

#[test]
fn a_chunk_that_php_keeps_for_later_leaves_copies_their_limit() {
    // It keeps one of which it has had need again and again. Not every build of PHP sets the limit
    // in the call that gives it back.
    expect_a_limit(&format!(
        "{LEAVES_HOLES}
         for ($i = 0; $i < 8; $i++) {{ $more = str_repeat('x', 1 << 19); $more = null; }}
         ini_set('memory_limit', $most); ini_set('memory_limit', $most);"
    ));
}
