//! `rewinds_per_child`: a copy of a booted application goes back to what it was, and serves again.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use maitred_tests::booted::{
    PATIENCE, application, expect_nothing_grows, from_environment, snapshot,
};
use maitred_tests::http::{self, Request};
use maitred_tests::processes::Process;
use maitred_tests::server::{Server, Setup, is_root};
use maitred_tests::{Target, php_version};
use serde_json::Value;
use tempfile::TempDir;

fn rewinding(root: &Path, times: u32) -> Setup {
    snapshot(root).workers(1).pool(&format!("rewinds_per_child = {times}"))
}

fn get(server: &Server, target: &str) -> Value {
    let answer = http::ask(server.address(), &Request::get(target));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// What a script can see of what another has left, and what it leaves itself.
const STATE: &str = r#"
function state(): array {
    $status = file_get_contents('/proc/self/status');
    $numbers = function ($name) use ($status) { preg_match("/^$name:\\s+(.*)$/m", $status, $found);
    return $found[1]; };
    return [
        'global' => $GLOBALS['kept'], 'property' => Held::$value, 'static' => count_up(), 'object'
            => $GLOBALS['held']->seen,
        'constant' => defined('LATER'), 'class' => class_exists('Later', false), 'function'
            => function_exists('later'),
        'included' => count(get_included_files()), 'autoload' => count(spl_autoload_functions()),
        'ini' => ini_get('precision') . ini_get('memory_limit') . ini_get('date.timezone') .
            ini_get('max_execution_time'),
        'reporting' => error_reporting(), 'levels' => ob_get_level(), 'headers' => headers_list(),
            'status' => http_response_code(),
        'locale' => setlocale(LC_ALL, 0), 'number' => sprintf('%.1f', 1.5), 'zone'
            => date_default_timezone_get(),
        'env' => getenv('LATER'), 'cwd' => getcwd(), 'umask' => umask(), 'abort'
            => ignore_user_abort(), 'gc' => gc_enabled(),
        'wrappers' => stream_get_wrappers(), 'session' => session_status() . session_id(), 'error'
            => error_get_last(),
        'get' => array_keys($_GET), 'post' => $_POST, 'cookie' => $_COOKIE, 'files' => $_FILES,
            'tok' => strtok("\n"),
        'apcu' => function_exists('apcu_fetch') ? apcu_fetch('later') : false, 'libxml'
            => libxml_use_internal_errors(),
        'encoding' => mb_internal_encoding(), 'memory' => memory_get_usage(),
        'much' => md5(implode('', $GLOBALS['much']) . $GLOBALS['long']),
        'open' => array_map(fn ($fd) => is_link("/proc/self/fd/$fd") ? preg_replace('/\d+/', '',
            readlink("/proc/self/fd/$fd")) : '', scandir('/proc/self/fd')),
        'signals' => [$numbers('SigCgt'), $numbers('SigIgn'), $numbers('SigBlk')], 'threads'
            => $numbers('Threads'),
        'limit' => posix_getrlimit()['soft openfiles'], 'uploads' => glob(sys_get_temp_dir() .
            '/rewind-*'),
    ];
}"#;

const CHANGES: &str = r#"
$before = state();
$kept = 'mine'; Held::$value = 'mine'; $held->seen[] = 'mine'; count_up();
const LATER = 1;
eval('class Later { public $context; } function later() {}');
ini_set('precision', '5'); ini_set('memory_limit', '99M'); ini_set('date.timezone', 'Asia/Tokyo');
error_reporting(0); set_error_handler(fn () => true); spl_autoload_register(fn () => null);
register_shutdown_function(function () { $GLOBALS['kept'] = 'at the end'; });
setlocale(LC_ALL, 'C.UTF-8'); chdir('/'); umask(0); putenv('LATER=1'); gc_disable();
set_time_limit(7);
stream_wrapper_register('later', 'Later'); header('X-Later: 1'); ignore_user_abort(true);
@trigger_error('mine'); date_default_timezone_set('Europe/Paris');
mb_internal_encoding('ISO-8859-1');
libxml_use_internal_errors(true); strtok("a\nb", "\n");
pcntl_signal(SIGUSR1, fn () => null); pcntl_signal(SIGTERM, SIG_IGN);
pcntl_sigprocmask(SIG_BLOCK, [SIGUSR2]); pcntl_alarm(600);
$open = [tmpfile(), fopen(__FILE__, 'r'), stream_socket_server('tcp://127.0.0.1:0')];
$GLOBALS['open'] = $open; ob_start();
if (isset($_GET['big'])) { $all = []; for ($i = 0; $i < 200; $i++) {
    $all[] = str_repeat(chr(65 + $i % 26), 100000); } $GLOBALS['all'] = $all; }
unset($GLOBALS['much'], $GLOBALS['long'], $much, $long);
$database = new PDO('sqlite::memory:'); $database->exec('create table t (a)');
ob_end_clean();
echo json_encode(['pid' => getmypid(), 'before' => $before]);
"#;

/// The application of [`STATE`] and [`CHANGES`].
fn that_changes_all() -> TempDir {
    let boot = format!(
        "class Held {{ public static $value = 'booted'; public array $seen = []; }}
         function count_up() {{ static $n = 0; return ++$n; }}
         $held = new Held; $kept = 'booted'; $long = str_repeat('x', 5 << 20);
         $much = array_map(fn ($n) => str_repeat((string) ($n % 10), 3000), range(1, 2000));
         {STATE}
         state(); $warm = count_up();"
    );
    application(&boot, CHANGES)
}

/// The private writable memory of a process, by address; its stack is left out, where
/// what has ended lies until it is written over.
fn memory(process: &Process) -> Option<BTreeMap<u64, Vec<u8>>> {
    let file = fs::File::open(format!("/proc/{}/mem", process.pid)).ok()?;
    let maps = fs::read_to_string(format!("/proc/{}/maps", process.pid)).ok()?;
    let mut all = BTreeMap::new();
    for line in maps.lines().filter(|line| line.contains(" rw-p ")) {
        let (from, rest) = line.split_once('-')?;
        let to = rest.split(' ').next()?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (from, to) = (number(from)?, number(to)?);
        if !line.ends_with("[stack]") {
            let mut bytes = vec![0; usize::try_from(to - from).ok()?];
            file.read_exact_at(&mut bytes, from).ok()?;
            all.insert(from, bytes);
        }
    }
    Some(all)
}

/// The same as soon as it does nothing.
fn memory_at_rest(process: &Process) -> BTreeMap<u64, Vec<u8>> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let before = memory(process);
        std::thread::sleep(Duration::from_millis(20));
        let sleeps = Process::read(process.pid).is_some_and(|process| process.state == 'S');
        if let (true, Some(before)) = (sleeps && before == memory(process), before) {
            return before;
        }
    }
    panic!("{} does not come to rest", process.title);
}

/// How many bytes differ, and how many there are.
fn difference(one: &BTreeMap<u64, Vec<u8>>, other: &BTreeMap<u64, Vec<u8>>) -> (usize, usize) {
    let ranges = |all: &BTreeMap<u64, Vec<u8>>| -> Vec<(u64, usize)> {
        all.iter().map(|(from, bytes)| (*from, bytes.len())).collect()
    };
    assert_eq!(ranges(one), ranges(other));
    let words = |all: &BTreeMap<u64, Vec<u8>>| -> Vec<u64> {
        let words = all.values().flat_map(|bytes| bytes.chunks_exact(8));
        words.map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes"))).collect()
    };
    let pairs = words(one).into_iter().zip(words(other));
    let mut apart: BTreeMap<u64, usize> = BTreeMap::new();
    for (one, other) in pairs.filter(|(one, other)| one != other) {
        *apart.entry(one ^ other).or_default() += 1;
    }
    if has_key_of_copy() {
        let keys = apart.iter().max_by_key(|(_, words)| **words);
        let keys = *keys.expect("the keys are apart").0;
        apart.remove(&keys);
    }
    let bytes = |apart: u64| apart.to_ne_bytes().into_iter().filter(|&byte| byte != 0);
    let differing = apart.iter().map(|(n, words)| words * bytes(*n).count());
    (differing.sum(), one.values().map(Vec::len).sum())
}

/// Whether each copy mixes pointers of its heap with a key of its own, also one that has gone back:
/// all words with such a pointer then are apart by what the keys are apart.
fn has_key_of_copy() -> bool {
    let version = php_version();
    let mut numbers = version.split('.').map(|n| n.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(8), Some(5))
}

#[test]
fn the_memory_of_a_copy_that_has_gone_back_is_byte_for_byte_what_it_was() {
    if !is_root() {
        // No other user may look into a process.
        return;
    }
    let root = that_changes_all();
    let server = rewinding(root.path(), 1000).start();
    server.wait_for_full_strength(3, PATIENCE);
    let copies = server.workers();
    let before: Vec<_> = copies.iter().map(memory_at_rest).collect();
    let pid = get(&server, "/")["pid"].as_i64();
    for target in ["/?big", "/", "/a"] {
        assert_eq!(get(&server, target)["pid"].as_i64(), pid);
    }
    let served = copies.iter().position(|copy| Some(i64::from(copy.pid)) == pid);
    let served = served.unwrap();
    let after = memory_at_rest(&copies[served]);
    // What it hands to itself: when it has measured last, and the number of its last wish.
    let (differing, all) = difference(&before[served], &after);
    assert!(differing <= 128, "{differing} of {all} bytes differ");
    assert!(all > 1 << 20);
    server.stop();
}

#[test]
fn a_copy_that_has_gone_back_is_what_it_was_and_the_same_process() {
    let root = that_changes_all();
    let server = rewinding(root.path(), 1000).start();
    let first = get(&server, "/");
    assert_eq!(first["before"]["global"], "booted");
    for (n, target) in ["/", "/?big", "/", "/", "/?big=1", "/"].iter().enumerate() {
        let mut seen = get(&server, target);
        // What was asked for takes memory, too.
        for what in ["get", "memory"] {
            seen["before"][what] = first["before"][what].clone();
        }
        assert_eq!(seen, first, "request {n}");
    }
    server.stop();
}

#[test]
fn a_copy_goes_back_as_often_as_it_may_and_then_another_takes_its_place() {
    let root = application("$n = 0;", "echo json_encode([++$n, getmypid()]);");
    let server = rewinding(root.path(), 2).start();
    let mut processes = Vec::new();
    for _ in 0..9 {
        let seen = get(&server, "/");
        assert_eq!(seen[0], 1);
        processes.push(seen[1].as_i64().unwrap());
    }
    let all: HashSet<i64> = processes.iter().copied().collect();
    assert_eq!(all.len(), 3, "{processes:?}");
    processes.dedup();
    assert_eq!(processes.len(), 3);
    server.wait_for_full_strength(3, PATIENCE);
    server.stop();
}

#[test]
fn what_cannot_be_put_back_ends_the_copy_and_is_seen_by_nobody() {
    let root = application(
        "$n = 0;
         function lasting() { return [posix_getpgid(0), pcntl_getpriority(), \
         posix_getrlimit()['soft core']]; }
         lasting(); pcntl_waitpid(-1, $status, WNOHANG);",
        "$n++; $before = lasting(); unset($before[0]);
         $before['own'] = posix_getpgid(0) === getmypid();
         match ($_SERVER['REQUEST_URI']) {
             '/nice' => proc_nice(1),
             '/group' => posix_setpgid(0, posix_getsid(0)),
             '/limit' => posix_setrlimit(POSIX_RLIMIT_CORE, 0, 0),
             '/child' => pcntl_fork() || (sleep(1) || posix_kill(getmypid(), SIGKILL)),
             '/grandchild' => pcntl_fork() ? pcntl_wait($status)
                 : (pcntl_fork() ? posix_kill(getmypid(), SIGKILL) : (sleep(1) || \
                 posix_kill(getmypid(), SIGKILL))),
             '/fatal' => str_repeat('x', 1 << 30),
             default => null,
         };
         echo json_encode([$n, getmypid(), $before]);
         if ($_SERVER['REQUEST_URI'] === '/exit') { exit(3); }",
    );
    let server = rewinding(root.path(), 1000).start();
    for (target, stays) in [
        ("/", true),
        ("/nice", false),
        ("/group", false),
        ("/limit", false),
        ("/child", false),
        ("/grandchild", false),
        ("/exit", true),
        ("/", true),
    ] {
        let first = get(&server, "/");
        let changes = get(&server, target);
        let after = get(&server, "/");
        assert_eq!((&first[0], &changes[0], &after[0]), (&1.into(), &1.into(), &1.into()));
        assert_eq!(first[1], changes[1], "{target}");
        assert_eq!(after[1] == changes[1], stays, "{target}");
        assert_eq!(after[2], first[2], "{target}");
    }
    let first = get(&server, "/");
    let answer = http::get(server.address(), "/fatal");
    assert_eq!(answer.status, 500, "{}", answer.text());
    assert_ne!(get(&server, "/")[1], first[1]);
    let reason = "its signals, limits, identity or folder are not what they were";
    let said = server.expect_log(0, "exits instead of being rewound");
    assert!(said.contains(reason), "{said}");
    server.wait_for_full_strength(3, PATIENCE);
    server.stop();
}

#[test]
fn no_two_requests_of_a_copy_draw_the_same() {
    let root = application(
        "mt_srand(7); mt_rand(); lcg_value(); openssl_random_pseudo_bytes(8); uniqid('', true);",
        "usleep(1000);
         echo json_encode([getmypid(), [mt_rand(), lcg_value(), rand(), uniqid('', true), \
         bin2hex(random_bytes(8)),
             bin2hex(openssl_random_pseudo_bytes(8)), password_hash('a', PASSWORD_BCRYPT, \
             ['cost' => 4]), tempnam('/tmp', 'rewind'),
             openssl_encrypt('a', 'aes-128-cbc', 'k', 0, openssl_random_pseudo_bytes(16)),
             (function () { $key = openssl_pkey_new(['private_key_type' => OPENSSL_KEYTYPE_EC,
                 'curve_name' => 'prime256v1']);
                 openssl_pkey_export($key, $text); return sha1($text); })()]]);
         register_shutdown_function(fn () => array_map('unlink', glob('/tmp/rewind*')));",
    );
    let server = rewinding(root.path(), 1000).start();
    let mut drawn = HashSet::new();
    let first = get(&server, "/");
    for _ in 0..20 {
        let seen = get(&server, "/");
        assert_eq!(seen[0], first[0]);
        let numbers = seen[1].as_array().unwrap();
        for (at, number) in numbers.iter().enumerate() {
            assert!(drawn.insert((at, number.to_string())), "{seen}");
        }
    }
    server.stop();
}

#[test]
fn a_worker_script_goes_back_to_its_first_request() {
    let root = application(
        "$asked = 0;
         $handler = function () use (&$asked) {
             echo json_encode([++$asked, getmypid(), $_SERVER['REQUEST_URI']]); };
         while (frankenphp_handle_request($handler)) { gc_collect_cycles(); }
         return;",
        "",
    );
    let server = rewinding(root.path(), 100)
        .pool("requests_per_child = 2")
        .pool("warm_requests = [\"/first\"]")
        .start();
    let first = get(&server, "/0");
    for n in 1..8 {
        let seen = get(&server, &format!("/{n}"));
        assert_eq!(seen[0], 2 + n % 2, "{seen}");
        assert_eq!(seen[1], first[1]);
        assert_eq!(seen[2], format!("/{n}"));
    }
    server.stop();
}

#[test]
fn nothing_of_a_request_is_left_after_many_and_nothing_grows() {
    let root = application(
        "class Leak { public static array $seen = []; public static string $waste = ''; }",
        "if (Leak::$seen !== [] || Leak::$waste !== '' || getenv('SEEN') !== false) { \
         http_response_code(500); }
         Leak::$seen[] = $_SERVER['REQUEST_URI']; Leak::$waste = str_repeat('x', rand(1, 3 << 20));
         putenv('SEEN=1'); $f = fopen(__FILE__, 'r'); preg_match('/' . rand() . '/', '');
         echo 'fine';",
    );
    let server = rewinding(root.path(), 50).workers(3).start();
    let rounds = from_environment("MAITRED_SNAPSHOT_REQUESTS", 300);
    expect_nothing_grows(&server, 5, rounds);
    server.stop();
}

/// What a server runs under that is to have no rights; nothing if this user can run none.
fn without_rights() -> Option<Vec<&'static str>> {
    const AS_WEB_USER: &str =
        "exec setpriv --reuid=www-data --regid=www-data --clear-groups \"$@\"";
    const OWNING_ITS_FOLDER: &str = "chown www-data \"${4%/*}\" && exec setpriv --reuid=www-data \
                                     --regid=www-data --clear-groups \"$@\"";
    if !is_root() {
        return Some(Vec::new());
    }
    let program = maitred_tests::maitred_program();
    let runs = std::process::Command::new("sh")
        .args(["-c", AS_WEB_USER, "sh"])
        .arg(program)
        .arg("--version")
        .output();
    runs.is_ok_and(|output| output.status.success())
        .then(|| vec!["sh", "-c", OWNING_ITS_FOLDER, "sh"])
}

#[test]
fn no_script_writes_to_its_own_process_through_proc() {
    let root = application(
        "$n = 0;",
        "$tried = [];
         foreach (['mem', 'oom_score_adj', 'clear_refs', 'coredump_filter'] as $name) {
             $tried[$name] = (bool) @fopen(\"/proc/self/$name\", 'r+')
                 || (bool) @fopen(\"/proc/thread-self/$name\", 'w');
         }
         $own = [file_get_contents('/proc/self/comm'),
             file_get_contents('/proc/self/timerslack_ns')];
         file_put_contents('/proc/thread-self/comm', 'mine'); \
         file_put_contents('/proc/self/timerslack_ns', '60000');
         $set = [file_get_contents('/proc/self/comm'),
             file_get_contents('/proc/self/timerslack_ns')];
         echo json_encode([++$n, getmypid(), array_keys(array_filter($tried)), $own, $set]);",
    );
    let Some(under) = without_rights() else {
        eprintln!("skipped: the web user cannot run the program where it lies");
        return;
    };
    let mut setup = rewinding(root.path(), 1000);
    if !under.is_empty() {
        setup = setup.under(&under);
    }
    let server = setup.start();
    let first = get(&server, "/");
    assert_eq!(first[2], Value::Array(Vec::new()));
    assert_eq!(first[4][0], "mine\n");
    assert_ne!(first[3], first[4]);
    assert_eq!(get(&server, "/"), first);
    server.stop();
}

#[test]
fn copies_of_every_zygote_go_back() {
    let root = that_changes_all();
    let server = rewinding(root.path(), 1000).start();
    // Each zygote has a memory layout of its own.
    for n in 0..5 {
        let first = get(&server, "/")["pid"].clone();
        for target in ["/?big", "/", "/"] {
            assert_eq!(get(&server, target)["pid"], first, "zygote {n}");
        }
        server.reload();
    }
    server.stop();
}
