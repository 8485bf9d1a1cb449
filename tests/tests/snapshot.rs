//! `mode = "snapshot"`: an application is booted once, and every request is served by a copy of
//! that.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use maitred_tests::booted::{
    PATIENCE, application, expect_nothing_grows, from_environment, snapshot,
};
use maitred_tests::changes::CHANGES_ALL;
use maitred_tests::http::{self, Request};
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user, is_root};
use maitred_tests::{Target, php_version, wait};
use serde_json::Value;

fn ask(server: &Server, request: &Request) -> Value {
    let answer = http::ask(server.address(), request);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn get(server: &Server, target: &str) -> Value {
    ask(server, &Request::get(target))
}

#[test]
fn an_application_is_booted_once_and_each_request_gets_a_process_of_its_own() {
    let root = application(
        "file_put_contents(__DIR__ . '/boots', 'x', FILE_APPEND);
         $booted_in = getmypid();
         class Counter { public static int $value = 0; }
         function count_up() { static $n = 0; return ++$n; }
         $count = 0;",
        "echo json_encode(['boot' => $booted_in, 'pid' => getmypid(), 'global' => ++$count,
             'static' => count_up(), 'property' => ++Counter::$value, 'path'
                 => $_SERVER['REQUEST_URI']]);",
    );
    let server = snapshot(root.path()).workers(3).start();
    let mut processes = HashSet::new();
    for n in 0..20 {
        let path = format!("/page/{n}?a=b");
        let seen = get(&server, &path);
        assert_eq!(seen["path"], path);
        for count in ["global", "static", "property"] {
            assert_eq!(seen[count], 1, "{seen}");
        }
        assert_ne!(seen["pid"], seen["boot"]);
        assert!(processes.insert(seen["pid"].as_i64()), "{seen}");
    }
    assert_eq!(fs::read(root.path().join("boots")).unwrap(), b"x");
    server.wait_for_full_strength(5, PATIENCE);
    server.stop();
}

#[test]
fn no_request_sees_anything_of_another() {
    let root = application("$kept = 'booted'; $first = 1;", CHANGES_ALL);
    fs::write(root.path().join("later.php"), "<?php class Later { public $context; }").unwrap();
    let server = snapshot(root.path()).workers(2).start();
    let first = get(&server, "/");
    assert_eq!(first["before"]["global"], "booted");
    for _ in 0..6 {
        assert_eq!(get(&server, "/"), first);
    }
    server.stop();
}

#[test]
fn what_belongs_to_a_request_is_that_of_the_copy() {
    let root = application(
        "$booted = [$_SERVER['REQUEST_TIME_FLOAT'], $_GET, $_POST, $_COOKIE, $_REQUEST, $_ENV, \
         $_FILES];
         mt_srand(7); $drawn = [mt_rand(), lcg_value(), rand(), uniqid('', true)];
         function uri() { return $_SERVER['REQUEST_URI']; }
         uri(); header('X-Boot: kept'); echo 'printed at boot'; str_repeat('x', 30 << 20);",
        "usleep(1000);
         echo json_encode(['uri' => uri(), 'get' => $_GET, 'post' => $_POST, 'cookie' => $_COOKIE,
             'request' => $_REQUEST, 'method' => $_SERVER['REQUEST_METHOD'],
             'body' => file_get_contents('php://input'),
             'files' => array_map(fn($file) => file_get_contents($file['tmp_name']), $_FILES),
             'headers' => getallheaders()['X-Mine'] ?? null,
             'age' => microtime(true) - $_SERVER['REQUEST_TIME_FLOAT'],
             'peak' => memory_get_peak_usage(), 'query' => $_SERVER['QUERY_STRING'],
             'user' => $_SERVER['PHP_AUTH_USER'] ?? null,
             'drawn' => [mt_rand(), lcg_value(), rand(), uniqid('', true), random_int(0, \
             PHP_INT_MAX)]]);",
    );
    let server = snapshot(root.path()).workers(2).start();
    let form = "application/x-www-form-urlencoded";
    let request = Request::post("/a/b?x=1", form, b"y=2")
        .header("Cookie", "z=3")
        .header("X-Mine", "yes")
        .header("Authorization", "Basic bWU6cGFzcw==");
    let answer = http::ask(server.address(), &request);
    assert_eq!(answer.header("X-Boot"), Some("kept"), "{}", answer.text());
    let seen = answer.json();
    assert_eq!(seen["uri"], "/a/b?x=1");
    assert_eq!(seen["method"], "POST");
    assert_eq!(seen["get"], serde_json::json!({"x": "1"}));
    assert_eq!(seen["post"], serde_json::json!({"y": "2"}));
    assert_eq!(seen["cookie"], serde_json::json!({"z": "3"}));
    assert_eq!(seen["request"], serde_json::json!({"x": "1", "y": "2"}));
    assert_eq!(seen["body"], "y=2");
    assert_eq!(seen["query"], "x=1");
    assert_eq!(seen["headers"], "yes");
    assert_eq!(seen["user"], "me");
    // PHP 8.1 counts the most memory since the boot.
    if !php_version().starts_with("8.1.") {
        assert!(seen["peak"].as_u64().unwrap() < 20 << 20, "{seen}");
    }
    let age = seen["age"].as_f64().unwrap();
    assert!((0.0..60.0).contains(&age), "{seen}");
    let parts = b"--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f.txt\"\r\n\
        Content-Type: text/plain\r\n\r\nuploaded\r\n--B--\r\n";
    let upload = Request::post("/up", "multipart/form-data; boundary=B", parts);
    assert_eq!(ask(&server, &upload)["files"]["f"], "uploaded");
    let mut drawn = HashSet::new();
    for _ in 0..6 {
        let seen = get(&server, "/");
        for number in seen["drawn"].as_array().unwrap() {
            assert!(drawn.insert(number.to_string()), "{seen}");
        }
    }
    server.stop();
}

#[test]
fn shutdown_functions_and_destructors_of_the_boot_run_in_every_copy_and_not_where_it_booted() {
    let root = application(
        "class Held { function __destruct() { note('destructor'); } }
         function note($what) { file_put_contents(__DIR__ . '/notes', $what . ' ' . getmypid() .
             \"\\n\", FILE_APPEND); }
         register_shutdown_function(fn() => note('shutdown'));
         $held = new Held; $booted_in = getmypid();",
        "echo json_encode(['pid' => getmypid(), 'boot' => $booted_in]);",
    );
    let server = snapshot(root.path()).workers(1).start();
    let copies: Vec<_> = (0..2).map(|_| get(&server, "/")).collect();
    server.stop();
    let notes = fs::read_to_string(root.path().join("notes")).unwrap();
    for copy in &copies {
        for what in ["shutdown", "destructor"] {
            assert!(notes.contains(&format!("{what} {}\n", copy["pid"])), "{notes}");
        }
    }
    assert_eq!(notes.lines().count(), 4, "{notes}");
}

/// A pool beside `www` whose `mode` is snapshot.
fn further_pool(name: &str, script: &Path, line: &str) -> String {
    format!(
        "[pools.{name}]\npm = \"static\"\nmax_children = 1\nmode = \"snapshot\"\n\
         script = {script:?}\n{line}\n\n"
    )
}

#[test]
fn a_boot_that_fails_or_must_not_be_copied_is_told_with_its_reason() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = listener.local_addr().unwrap();
    let connects = format!("$s = stream_socket_client('tcp://{peer}');");
    let connected = format!("a connection to {peer} (");
    let ffi = "php_admin_value = { \"ffi.enable\" = \"1\", extension = \"ffi\" }";
    let jit =
        "php_admin_value = { \"opcache.jit\" = \"tracing\", \"opcache.jit_buffer_size\" = \"8M\" }";
    let limit = "php_admin_value = { max_execution_time = \"1\" }";
    let cases = [
        ("throws", "throw new Exception('no database');", "", "no database"),
        ("exits", "exit(3);", "", "before it called maitred_snapshot()"),
        ("misspelt", "function (", "", "syntax error"),
        ("loops", "while (true) {}", limit, "Maximum execution time"),
        ("connects", &*connects, "", &*connected),
        (
            "stores",
            "$d = new SQLite3(__DIR__ . '/data.db'); $d->exec('create table t (a)');",
            "",
            "the SQLite database ",
        ),
        ("reads", "$f = fopen(__FILE__ . '.txt', 'c+');", "", "one position"),
        ("follows", "$f = fopen(__FILE__ . '.log', 'a+');", "", "one position"),
        ("pipes", "$p = popen('cat', 'w');", "", "pipe:["),
        (
            "session",
            "ini_set('session.save_path', __DIR__); \
                     session_start();",
            "",
            "a session is open",
        ),
        (
            "cookie",
            "session_name('a'); header('set-cookie:visitor=1'); header('X: y');",
            "",
            "the boot sets a cookie (visitor)",
        ),
        (
            "persists",
            "$p = pfsockopen('udp://127.0.0.1', \
                      9);",
            "",
            "a persistent connection is open",
        ),
        ("jit", "", jit, "OPcache's JIT is on"),
        (
            "threads",
            "$c = FFI::cdef('typedef void *(*start)(void *); \
                     int pthread_create(unsigned long *, void *, start, void *); \
                     void *malloc(size_t); unsigned sleep(unsigned);', 'libc.so.6');
             $id = $c->new('unsigned long'); $seconds = $c->new('unsigned long[1]');
             $c->pthread_create(FFI::addr($id), null, $c->cast('start', $c->sleep),
                 $c->cast('void *', 600));",
            ffi,
            "has started threads (2 run)",
        ),
    ];
    let root = document_root(&[("index.php", "<?php echo 'classic';")]);
    give_to_web_user(root.path());
    let mut setup = Setup::new(root.path()).workers(1);
    // Within a root of its own, where there is no /proc to see it in.
    let jailed = ["connects", "reads", "follows", "threads"];
    let jailed = jailed.map(|name| format!("{name}_in_jail"));
    let mut expected = Vec::new();
    for (name, boot, line, reason) in &cases {
        let file = root.path().join(format!("{name}.php"));
        fs::write(&file, format!("<?php\n{boot}\nmaitred_snapshot();")).unwrap();
        setup = setup.pool(&further_pool(name, &file, line));
        expected.push((*name, *reason));
        let jail = format!("{line}\nchroot = {:?}", root.path());
        if let Some(jailed) = jailed.iter().find(|of| of.starts_with(name) && is_root()) {
            setup = setup.pool(&further_pool(jailed, &file, &jail));
            expected.push((jailed, *reason));
        }
    }
    let server = setup.start();
    for (name, reason) in &expected {
        let line = server.expect_log(0, &format!("PHP could not start for pool `{name}`"));
        assert!(line.contains(reason), "{name}: {line}");
        let name = name.trim_end_matches("_in_jail");
        assert!(line.contains(&format!("{name}.php")), "{line}");
        // The line that has connected.
        assert!(name != "connects" || line.contains("connects.php:2) is open"), "{line}");
    }
    assert_eq!(http::get(server.address(), "/index.php").text(), "classic");
    server.stop();
}

/// An extension that does nothing and is called `name`, made by the compiler that PHP's headers are
/// there for.
fn extension(name: &str, folder: &Path) -> PathBuf {
    let version = std::env::var("MAITRED_PHP_VERSION").unwrap_or_default();
    let told = std::env::var("PHP_CONFIG").unwrap_or(format!("php-config{version}"));
    let told = Command::new(told).arg("--includes").output();
    let headers = told.expect("php-config can be run").stdout;
    let headers = String::from_utf8(headers).expect("paths in UTF-8");
    let source = folder.join(format!("{name}.c"));
    let text = format!(
        "#include <php.h>\nzend_module_entry {name}_module_entry = {{ STANDARD_MODULE_HEADER, \
         \"{name}\", \
         NULL, NULL, NULL, NULL, NULL, NULL, \"1\", STANDARD_MODULE_PROPERTIES }};\n\
         ZEND_GET_MODULE({name})\n"
    );
    fs::write(&source, text).expect("a file can be written");
    let library = folder.join(format!("{name}.so"));
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library);
    let compiled = compiler.arg(&source).args(headers.split_whitespace()).status();
    assert!(compiled.is_ok_and(|status| status.success()), "{compiler:?}");
    library
}

#[test]
fn an_extension_that_does_not_survive_a_fork_is_named_and_serves_in_a_classic_pool() {
    let root = application("", "echo (int) extension_loaded('swoole');");
    let library = extension("swoole", root.path());
    let line = format!("php_admin_value.extension = {library:?}");
    let server = snapshot(root.path()).workers(1).pool(&line).start();
    let said = server.expect_log(0, "PHP could not start for pool `www`");
    assert!(said.contains("the extension swoole does not survive a fork; leave it out"), "{said}");
    server.stop();
    let classic = Setup::new(root.path()).workers(1).pool(&line).start();
    assert_eq!(http::get(classic.address(), "/").text(), "1");
    classic.stop();
}

#[test]
fn a_boot_that_forks_speaks_for_itself_and_its_children_do_not() {
    let root = application(
        "$ended = [];
         foreach (['exits', 'copies', 'throws'] as $what) {
             if (($child = pcntl_fork()) === 0) {
                 if ($what === 'exits') { exit; }
                 if ($what === 'throws') { throw new Exception('in a child'); }
                 maitred_snapshot();
             }
             $ended[] = pcntl_waitpid($child, $status) === $child && pcntl_wifexited($status);
         }",
        "echo json_encode($ended);",
    );
    // The buffer of the JIT is there by default from PHP 8.4 on, where it is not used.
    let without_jit =
        "php_admin_value = { \"opcache.jit\" = \"off\", \"opcache.jit_buffer_size\" = \"8M\" }";
    let server = snapshot(root.path()).workers(1).pool(without_jit).start();
    for _ in 0..4 {
        assert_eq!(get(&server, "/"), serde_json::json!([true, true, true]));
    }
    server.wait_for_full_strength(3, PATIENCE);
    server.stop();
}

#[test]
fn a_first_boot_that_fails_is_said_to_clients_and_tried_again() {
    let root = application(
        "if (!file_exists(__DIR__ . '/go')) { throw new Exception('not yet'); }",
        "echo 'up';",
    );
    let server = snapshot(root.path()).workers(1).pool("request_queue_timeout = \"300ms\"").start();
    server.expect_log(0, "not yet");
    let answer = http::get(server.address(), "/");
    assert_eq!(answer.status, 503, "{}", answer.text());
    fs::write(root.path().join("go"), "").unwrap();
    server.wait_for_full_strength(3, PATIENCE);
    assert_eq!(http::get(server.address(), "/").text(), "up");
    server.stop();
}

#[test]
fn new_code_comes_with_a_reload_and_a_boot_that_fails_keeps_the_old() {
    let root = application("define('VERSION', 1);", "echo VERSION;");
    let server = snapshot(root.path()).workers(2).start();
    let script = root.path().join("index.php");
    let deploy = |version: &str| {
        let text = fs::read_to_string(&script).unwrap();
        let line = text.lines().find(|line| line.contains("define(")).unwrap();
        fs::write(&script, text.replace(line, &format!("define('VERSION', {version});"))).unwrap();
    };
    assert_eq!(http::get(server.address(), "/").text(), "1");
    deploy("2");
    assert_eq!(http::get(server.address(), "/").text(), "1");
    let address = server.address();
    let reloaded = std::thread::scope(|threads| {
        let clients: Vec<_> = (0..3)
            .map(|_| {
                threads.spawn(move || {
                    let versions = (0..40).map(|_| http::get(address, "/").text());
                    versions.collect::<HashSet<String>>()
                })
            })
            .collect();
        let reload = command(&server, &["reload", "www"]);
        for client in clients {
            let seen = client.join().unwrap();
            assert!(seen.iter().all(|text| text == "1" || text == "2"), "{seen:?}");
        }
        reload
    });
    assert!(reloaded.contains("reloaded"), "{reloaded}");
    assert_eq!(http::get(server.address(), "/").text(), "2");
    deploy("undefined_function()");
    let refused = command(&server, &["reload", "www"]);
    assert!(refused.contains("undefined"), "{refused}");
    assert_eq!(http::get(server.address(), "/").text(), "2");
    server.stop();
}

/// What a command says to the server, whether it succeeds or not.
fn command(server: &Server, words: &[&str]) -> String {
    let mut command = Command::new(maitred_tests::maitred_program());
    command.args(words).arg("--admin-socket").arg(server.admin_socket());
    let output = command.output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn a_boot_whose_scripts_are_said_to_be_outdated_is_renewed_and_nothing_else_is() {
    let root = application(
        "file_put_contents(__DIR__ . '/boots', 'x', FILE_APPEND);
         $boot = file_get_contents(__DIR__ . '/version');",
        "match ($_GET['update'] ?? '') {
             'all' => opcache_reset(),
             'boot' => opcache_invalidate(__DIR__ . '/../' . basename(__DIR__) . '/index.php', \
             true),
             'data' => (function () {
                 $data = __DIR__ . '/data.php';
                 file_put_contents($data, '<?php return ' . $_GET['data'] . ';');
                 opcache_invalidate($data, true);
                 echo 'data ', require $data, ', boot ';
             })(),
             default => null,
         };
         if (isset($_GET['fails'])) { str_repeat('x', 1 << 30); }
         echo $boot;",
    );
    let version = |version: &str| fs::write(root.path().join("version"), version).unwrap();
    let boots = || fs::read(root.path().join("boots")).unwrap().len();
    version("1");
    let server = snapshot(root.path())
        .workers(1)
        .pool(
            "php_admin_value = { \"opcache.validate_timestamps\" = \"0\", \
               \"opcache.file_update_protection\" = \"0\" }",
        )
        .start();
    let get = |target: &str| http::get(server.address(), target).text();
    assert_eq!(get("/"), "1");
    // A file outside the boot is compiled again, without another boot.
    for n in 0..5 {
        assert_eq!(get(&format!("/?update=data&data={n}")), format!("data {n}, boot 1"));
    }
    assert_eq!(get("/"), "1");
    assert_eq!(boots(), 1);
    let expect_boot = |n: u32| {
        wait::until_within("the new boot to serve", PATIENCE, || {
            (get("/") == n.to_string()).then_some(())
        });
    };
    // A half-written configuration has no effect yet.
    let configuration = fs::read(server.configuration()).unwrap();
    fs::write(server.configuration(), b"[pools.www").unwrap();
    for (n, update) in [(2, "all"), (3, "boot")] {
        version(&n.to_string());
        assert_eq!(get(&format!("/?update={update}")), (n - 1).to_string());
        expect_boot(n);
    }
    // Its new code may be what makes the request fail.
    version("4");
    let failed = http::get(server.address(), "/?update=all&fails");
    assert_eq!(failed.status, 500, "{}", failed.text());
    expect_boot(4);
    assert_eq!(boots(), 4);
    fs::write(server.configuration(), configuration).unwrap();
    server.stop();
}

#[test]
fn whatever_a_copy_dies_of_the_next_request_is_served() {
    let root = application(
        "ini_set('memory_limit', '32M');",
        "switch ($_GET['a'] ?? '') {
             case 'crash': posix_kill(getmypid(), SIGSEGV); break;
             case 'memory': str_repeat('x', 64 << 20); break;
             case 'exit': echo 'left'; exit(9);
             case 'throw': throw new Exception('thrown');
             case 'fork': if (pcntl_fork() === 0) { echo 'child'; exit; } pcntl_wait($status);
             echo 'parent'; exit;
         }
         echo 'fine';",
    );
    let server = snapshot(root.path()).workers(1).start();
    for (what, status, text) in [
        ("crash", 502, None),
        ("memory", 500, None),
        ("exit", 200, Some("left")),
        ("throw", 500, None),
        ("fork", 200, Some("parent")),
    ] {
        let answer = http::get(server.address(), &format!("/?a={what}"));
        assert_eq!(answer.status, status, "{what}: {}", answer.text());
        if let Some(text) = text {
            assert_eq!(answer.text(), text);
        }
        assert_eq!(http::get(server.address(), "/").text(), "fine", "after {what}");
    }
    server.zygote().unwrap().signal(maitred_tests::processes::Signal::KILL);
    for _ in 0..5 {
        assert_eq!(http::get(server.address(), "/").text(), "fine");
    }
    server.wait_for_full_strength(3, PATIENCE);
    server.stop();
}

#[test]
fn a_burst_is_served_by_as_many_copies_as_it_takes_and_what_waits_has_them_coming() {
    let root = application("", "usleep(20000); echo getmypid();");
    let server = snapshot(root.path()).workers(4).start();
    let address = server.address();
    let pids: HashSet<String> = std::thread::scope(|threads| {
        let clients: Vec<_> =
            (0..16).map(|_| threads.spawn(move || http::get(address, "/").text())).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert_eq!(pids.len(), 16, "{pids:?}");
    server.wait_for_full_strength(6, PATIENCE);
    server.stop();
}

#[test]
fn what_is_asked_before_clients_are_fills_opcache_and_leaves_no_trace() {
    let root = application(
        "$boot = getmypid(); $asked = 0;",
        "require __DIR__ . '/page.php';
         file_put_contents(__DIR__ . '/asked', $_SERVER['REQUEST_URI'] . \"\\n\", FILE_APPEND);
         echo json_encode(['asked' => ++$asked, 'cached' => opcache_is_script_cached(__DIR__ .
             '/page.php')]);",
    );
    fs::write(root.path().join("page.php"), "<?php $cached = 1;").unwrap();
    let server =
        snapshot(root.path()).workers(1).pool("warm_requests = [\"/\", \"/search?q=a\"]").start();
    let asked = fs::read_to_string(root.path().join("asked")).unwrap();
    assert_eq!(asked, "/\n/search?q=a\n");
    let seen = get(&server, "/");
    assert_eq!(seen["asked"], 1);
    // Though it was written just before the boot.
    assert_eq!(seen["cached"], true);
    server.stop();
}

#[test]
fn a_script_that_asks_for_requests_in_a_loop_is_copied_where_it_asks_for_the_first() {
    let root = application(
        "$boot = getmypid(); $asked = 0; $marked = !empty($_SERVER['FRANKENPHP_WORKER']);
         $handler = function () use (&$asked, $boot, $marked) {
             $asked++;
             echo json_encode(['asked' => $asked, 'boot' => $boot, 'pid' => getmypid(), 'marked'
                 => $marked,
                 'path' => $_SERVER['REQUEST_URI'], 'get' => $_GET]);
         };
         while (frankenphp_handle_request($handler)) { gc_collect_cycles(); }
         file_put_contents(__DIR__ . '/ended', $asked . ' ', FILE_APPEND); return;",
        "",
    );
    let server = snapshot(root.path())
        .workers(1)
        .pool("requests_per_child = 3")
        .pool("warm_requests = [\"/first\", \"/second\"]")
        .start();
    let mut processes = Vec::new();
    for n in 0..9 {
        let seen = get(&server, &format!("/page?n={n}"));
        // Those that were asked ahead of clients are in every copy.
        assert_eq!(seen["asked"], 3 + n % 3, "{seen}");
        assert_eq!(seen["path"], format!("/page?n={n}"));
        assert_eq!(seen["get"]["n"], n.to_string());
        assert_eq!(seen["marked"], true);
        assert_ne!(seen["pid"], seen["boot"]);
        processes.push(seen["pid"].as_i64());
    }
    processes.dedup();
    assert_eq!(processes.len(), 3);
    server.stop();
    let ended = fs::read_to_string(root.path().join("ended")).unwrap();
    assert_eq!(ended, "5 5 5 ");
}

#[test]
fn a_boot_that_ends_within_a_request_that_is_asked_ahead_serves_its_copies() {
    let root = application(
        "$handler = function () { maitred_snapshot(); echo json_encode($_SERVER['REQUEST_URI']); };
         while (frankenphp_handle_request($handler)) { }
         return;",
        "",
    );
    let server = snapshot(root.path()).workers(1).pool("warm_requests = [\"/ahead\"]").start();
    for target in ["/one", "/two"] {
        assert_eq!(get(&server, target), target);
    }
    server.stop();
}

#[test]
fn nothing_of_a_request_is_left_after_many_and_nothing_grows() {
    let root = application(
        "class Leak { public static array $seen = []; public static string $waste = ''; }",
        "if (Leak::$seen !== [] || Leak::$waste !== '' || getenv('SEEN') !== false) { \
         http_response_code(500); }
         Leak::$seen[] = $_SERVER['REQUEST_URI']; Leak::$waste = str_repeat('x', 1 << 20);
         putenv('SEEN=1'); echo 'fine';",
    );
    let server = snapshot(root.path()).workers(3).start();
    let rounds = from_environment("MAITRED_SNAPSHOT_REQUESTS", 200);
    expect_nothing_grows(&server, 5, rounds);
    server.stop();
}
