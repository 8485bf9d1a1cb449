//! The slow log: what scripts are at that run for long, read without stopping them.

use std::fs;
use std::path::{Path, PathBuf};

use maitred_tests::Target;
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::peer::PeerSetup;
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{
    Server, Setup, document_root, give_to_web_user, is_root, public_folder,
};
use maitred_tests::wait;
use tempfile::TempDir;

/// Methods, closures, includes, evaluated code, callbacks of functions that are not PHP.
const CALLS: &str = "<?php
namespace Shop;
class Cart {
    function total() { $add = function ($price) { include __DIR__ . '/include.inc';
        return $price; }; return array_map($add, [1]); }
    static function count() { return (new Cart)->total(); }
    function __call($name, $arguments) { return self::count(); }
}
function checkout() { return call_user_func([new Cart, 'undefined']); }
checkout();
echo 'done';";

/// Waits that a signal, or being stopped and continued, would cut short. Each tells how long it
/// took, in seconds, and what came of it.
const WAITS: &str = "<?php
$from = hrtime(true);
switch ($_GET['how']) {
case 'sleep': $end = sleep(3); break;
case 'usleep': usleep(3000000); $end = 0; break;
case 'select': $pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
    $read = [$pair[0]]; $write = $except = null;
    $end = stream_select($read, $write, $except, 3); break;
case 'read': $pair = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
    stream_set_timeout($pair[0], 3); $end = strlen(fread($pair[0], 1)); break;
case 'flock': $file = fopen(__DIR__ . '/lock', 'r'); $end = flock($file, LOCK_EX) ? 0 : 1; break;
}
echo $end, ' ', (hrtime(true) - $from) / 1e9;";

/// capabilities(7), linux/capability.h.
const CAP_SYS_PTRACE: u32 = 19;

fn site() -> TempDir {
    let root = document_root(&[
        ("calls.php", CALLS),
        ("include.inc", "<?php\neval('sleep(3);');"),
        (
            "deep.php",
            "<?php\nfunction down($n) {\n if ($n) { down($n - 1); } else { sleep(3); }\n}\n\
             down(200); echo 'done';",
        ),
        ("waits.php", WAITS),
        (
            "lock.php",
            "<?php $file = fopen(__DIR__ . '/lock', 'r'); flock($file, LOCK_EX);
             echo 'locked'; while (ob_get_level()) { ob_end_flush(); } flush(); sleep(3);",
        ),
        ("lock", ""),
        (
            "generators.php",
            "<?php\nfunction inner() {\n sleep(3); yield 1; }\nfunction middle() {\n yield from \
             inner(); }\nfunction outer() {\n yield from middle(); }\nforeach (outer() as $x);\n\
             echo 'done';",
        ),
        (
            "cpu.php",
            "<?php\nfunction spin($until) {\n while (hrtime(true) < $until) {\n  strlen('x'); }\n\
             }\n\
             spin(hrtime(true) + 3_000_000_000); echo 'done';",
        ),
        (
            "wait.php",
            "<?php ignore_user_abort(true);
             echo 'waiting'; while (ob_get_level()) { ob_end_flush(); } flush();
             while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); }",
        ),
        ("short.php", "<?php usleep((int) $_GET['ms'] * 1000); echo 'slept';"),
        (
            "detach.php",
            "<?php fastcgi_finish_request(); usleep(700000); touch(__DIR__ . '/detached');",
        ),
    ]);
    give_to_web_user(root.path());
    root
}

/// A slow log in a folder of its own, and a server that uses it after `timeout`.
struct Slow {
    folder: TempDir,
}

impl Slow {
    fn new() -> Slow {
        Slow { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("slow.log")
    }

    fn setup(&self, root: &Path, timeout: &str) -> Setup {
        Setup::new(root)
            .pool(&format!("slowlog = {:?}", self.path()))
            .pool(&format!("request_slowlog_timeout = {timeout:?}"))
    }

    /// Waits for that many entries.
    fn entries(&self, count: usize) -> Vec<Entry> {
        entries_in(&self.path(), count)
    }
}

/// An entry of a slow log.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    pid: i32,
    script: String,
    /// `function() file:line`
    frames: Vec<String>,
    failure: Option<String>,
}

fn entries_in(path: &Path, count: usize) -> Vec<Entry> {
    wait::until(&format!("{count} entries in {}", path.display()), || {
        let text = fs::read_to_string(path).ok()?;
        // php-fpm writes an entry line by line; this runs after the end of its script.
        let entries: Vec<Entry> =
            text.split("\n\n").filter(|entry| !entry.is_empty()).map(read_entry).collect();
        (entries.len() >= count && text.ends_with('\n')).then_some(entries)
    })
}

fn read_entry(text: &str) -> Entry {
    let mut lines = text.trim_start_matches('\n').lines();
    let head = lines.next().expect("a first line");
    let (stamp, worker) = head.split_once("  ").expect("a time and a worker");
    let shape: String = stamp
        .chars()
        .map(|c| match c {
            '0'..='9' => '0',
            'a'..='z' | 'A'..='Z' => 'M',
            _ => c,
        })
        .collect();
    // php-fpm writes no zone.
    let shape = shape.replace(" +0000]", "]").replace(" -0000]", "]");
    assert_eq!(shape, "[00-MMM-0000 00:00:00]", "{head}");
    let pid = worker.strip_prefix("[pool www] pid ").expect("a pid");
    let script = lines.next().expect("a script");
    let mut entry = Entry {
        pid: pid.parse().expect("a number"),
        script: script.strip_prefix("script_filename = ").expect("a script").to_owned(),
        frames: Vec::new(),
        failure: None,
    };
    for line in lines {
        if let Some(failure) = line.strip_prefix("+++ dump failed") {
            entry.failure = Some(failure.to_owned());
            continue;
        }
        // php-fpm's entries do not have them.
        let ours = ["request_id", "cpu_time", "core_wait_time", "blocked_time"];
        if line.split_once(" = ").is_some_and(|(name, _)| ours.contains(&name)) {
            continue;
        }
        let (address, frame) = line.split_once("] ").expect("an address and a call");
        assert_eq!(address.len(), "[0x00007f6748a15230".len(), "{line}");
        entry.frames.push(frame.to_owned());
    }
    entry
}

/// Frames as php-fpm tells them: without classes.
fn without_classes(frames: &[String]) -> Vec<String> {
    let plain = |frame: &String| {
        let (call, place) = frame.split_once("() ").expect("a call and a place");
        let call = call.rsplit_once("->").map_or(call, |(_, name)| name);
        let call = call.rsplit_once("::").map_or(call, |(_, name)| name);
        format!("{call}() {place}")
    };
    frames.iter().map(plain).collect()
}

fn send(server: &Server, path: &str) -> Connection {
    let mut connection = Connection::open(server.address());
    connection.send(&Request::get(path).to_bytes()).expect("the server takes a request");
    connection
}

#[test]
fn the_stacks_are_those_of_php_fpm_and_have_classes_too() {
    let root = site();
    let slow = Slow::new();
    let server = slow.setup(root.path(), "1s").start();
    let theirs = slow.folder.path().join("fpm.log");
    let fpm = PeerSetup::new(root.path())
        .pool(&format!("slowlog = {}", theirs.display()))
        .pool("request_slowlog_timeout = 1")
        .start();
    let scripts = ["/calls.php", "/deep.php"];
    let ask = |address: std::net::SocketAddr| {
        let asked =
            scripts.map(|script| std::thread::spawn(move || http::get(address, script).text()));
        for answer in asked {
            assert_eq!(answer.join().expect("an answer"), "done");
        }
    };
    ask(server.address());
    ask(fpm.address());
    let (ours, theirs) = (slow.entries(2), entries_in(&theirs, 2));
    for script in scripts {
        let script = root.path().join(&script[1..]).display().to_string();
        let of = |entries: &[Entry]| {
            let mut found = entries.iter().filter(|entry| entry.script == script);
            found.next().expect("an entry").frames.clone()
        };
        assert_eq!(without_classes(&of(&ours)), without_classes(&of(&theirs)));
        assert!(of(&ours).len() > 5);
    }
    let calls = ours.iter().find(|entry| entry.script.ends_with("calls.php")).expect("an entry");
    let folder = root.path().display();
    // From PHP 8.4 on a closure has the name of the function that it is made in.
    let closures = ["Shop\\Cart->Shop\\{closure}() ", "Shop\\Cart->{closure:Shop\\Cart::total():"];
    let is_closure = |frame: &String| closures.iter().any(|start| frame.starts_with(start));
    assert!(calls.frames.iter().any(is_closure), "{:#?}", calls.frames);
    for (call, line) in [
        ("array_map()", "calls.php:5"),
        ("Shop\\Cart->total()", "calls.php:6"),
        ("Shop\\Cart::count()", "calls.php:7"),
        ("Shop\\checkout()", "calls.php:10"),
        ("sleep()", "include.inc(2) : eval()'d code:1"),
    ] {
        let start = format!("{call} {folder}/{line}");
        let found = calls.frames.iter().any(|frame| frame.starts_with(&start));
        assert!(found, "{start} in {:#?}", calls.frames);
    }
}

#[test]
fn no_wait_is_cut_short_and_what_was_waited_for_is_told() {
    let root = site();
    let slow = Slow::new();
    let server = slow.setup(root.path(), "500ms").workers(6).start();
    let mut locker = send(&server, "/lock.php");
    locker.read_head().expect("the lock is held");
    let ways = ["sleep", "usleep", "select", "read", "flock"];
    let mut asked: Vec<Connection> =
        ways.iter().map(|how| send(&server, &format!("/waits.php?how={how}"))).collect();
    let mut entries = slow.entries(6);
    for (how, connection) in ways.iter().zip(&mut asked) {
        let text = connection.read_response(false).expect("an answer").text();
        let (end, took) = text.split_once(' ').expect("two numbers");
        assert_eq!(end, "0", "{how}");
        let took: f64 = took.parse().expect("a number");
        assert!(*how == "flock" || took >= 2.99, "{how} took {took} s");
    }
    entries.retain(|entry| entry.script.ends_with("waits.php"));
    let calls: Vec<&str> = ["sleep() ", "usleep() ", "stream_select() ", "fread() ", "flock() "]
        .into_iter()
        .filter(|call| entries.iter().any(|entry| entry.frames[0].starts_with(call)))
        .collect();
    assert_eq!(calls.len(), ways.len(), "{entries:#?}");
}

#[test]
fn a_script_that_computes_is_shown_in_its_loop() {
    let root = site();
    let slow = Slow::new();
    let server = slow.setup(root.path(), "1s").start();
    assert_eq!(http::get(server.address(), "/cpu.php").text(), "done");
    let [entry] = &slow.entries(1)[..] else { panic!("one entry") };
    let last = entry.frames.last().expect("a frame");
    assert!(last.starts_with("spin() ") && last.ends_with("cpu.php:6"), "{entry:#?}");
}

#[test]
fn a_deep_stack_is_cut_where_the_settings_say() {
    let root = site();
    let slow = Slow::new();
    let server = slow.setup(root.path(), "500ms").pool("request_slowlog_trace_depth = 5").start();
    assert_eq!(http::get(server.address(), "/deep.php").text(), "done");
    let entry = slow.entries(1).remove(0);
    let place = format!("{}/deep.php:3", root.path().display());
    let mut expected = vec![format!("down() {place}"); 5];
    expected[0] = format!("sleep() {place}");
    assert_eq!((entry.frames, entry.failure), (expected, None));
}

#[test]
fn generators_that_delegate_are_in_the_stack() {
    let root = site();
    let slow = Slow::new();
    let server = slow.setup(root.path(), "500ms").start();
    assert_eq!(http::get(server.address(), "/generators.php").text(), "done");
    let file = root.path().join("generators.php").display().to_string();
    let expected = [("sleep", 3), ("inner", 5), ("middle", 7), ("outer", 8)]
        .map(|(call, line)| format!("{call}() {file}:{line}"));
    assert_eq!(slow.entries(1)[0].frames, expected);
}

#[test]
fn a_script_whose_client_has_left_is_told_of_and_each_script_once() {
    let root = site();
    let slow = Slow::new();
    let server = slow.setup(root.path(), "500ms").pool("status_path = \"/status\"").start();
    let mut leaver = send(&server, "/wait.php");
    leaver.read_head().expect("it runs");
    drop(leaver);
    slow.entries(1);
    let mut stayer = send(&server, "/wait.php");
    stayer.read_head().expect("it runs");
    slow.entries(2);
    // It leaves after it was told of.
    drop(stayer);
    assert_eq!(http::get(server.address(), "/status?json").json()["slow requests"], 2);
    fs::write(root.path().join("go"), "").expect("a file can be written");
    assert_eq!(http::get(server.address(), "/short.php?ms=600").text(), "slept");
    let entries = slow.entries(3);
    assert!(entries[2].script.ends_with("short.php"), "{entries:#?}");
    let said = |line: &&String| line.contains("request_slowlog_timeout");
    let lines = server.log().lines();
    let lines: Vec<_> = lines.iter().filter(said).collect();
    assert_eq!(lines.len(), 1, "once per episode: {lines:#?}");
    assert!(lines[0].contains("(GET /wait.php)"), "{lines:#?}");
}

#[test]
fn waiting_for_a_worker_and_work_after_the_answer_are_not_slow() {
    let root = site();
    let slow = Slow::new();
    let server =
        slow.setup(root.path(), "500ms").workers(1).pool("status_path = \"/status\"").start();
    let mut asked: Vec<Connection> = (0..3).map(|_| send(&server, "/short.php?ms=300")).collect();
    for connection in &mut asked {
        let answer = connection.read_response(false).expect("an answer");
        assert_eq!(answer.text(), "slept");
    }
    assert_eq!(http::get(server.address(), "/detach.php").status, 200);
    wait::until_true("the script to end", || root.path().join("detached").exists());
    assert_eq!(http::get(server.address(), "/status?json").json()["slow requests"], 0);
    assert_eq!(fs::read_to_string(slow.path()).expect("a slow log"), "");
}

#[test]
fn a_full_disk_loses_entries_and_nothing_else() {
    let root = site();
    let server = Setup::new(root.path())
        .pool("slowlog = \"/dev/full\"")
        .pool("request_slowlog_timeout = \"100ms\"")
        .start();
    for _ in 0..3 {
        assert_eq!(http::get(server.address(), "/short.php?ms=300").text(), "slept");
    }
    server.expect_log(0, "the slow log /dev/full cannot be written: No space left");
    let log = server.log_text();
    assert_eq!(log.matches("cannot be written").count(), 1, "{log}");
}

#[test]
fn no_capability_is_needed_although_workers_are_not_dumpable() {
    if !is_root() {
        eprintln!("skipped: only root's workers change their user and so are not dumpable");
        return;
    }
    let root = site();
    let slow = Slow::new();
    let dropped = "-sys_ptrace,-sys_admin,-dac_override,-dac_read_search,-perfmon,-bpf";
    let setpriv = ["setpriv", "--bounding-set", dropped];
    let server = slow.setup(root.path(), "500ms").under(&setpriv).start();
    server.wait_for_full_strength(2, wait::DEADLINE);
    let workers = server.workers();
    for worker in workers.iter().chain(&server.zygote()) {
        let owner = |name: &str| {
            use std::os::unix::fs::MetadataExt;
            fs::metadata(format!("/proc/{}/{name}", worker.pid)).map(|meta| meta.uid())
        };
        // proc(5): of a process that is not dumpable, root owns the files.
        assert_eq!(owner("environ").expect("an owner"), 0, "{worker:?}");
        assert_eq!(status_field(worker, "CapEff"), "0000000000000000");
        assert_ne!(status_field(worker, "Uid").split('\t').next(), Some("0"));
    }
    let bounds = status_field(&server.supervisor(), "CapEff");
    let bounds = u64::from_str_radix(&bounds, 16).expect("a number");
    assert_eq!(bounds >> CAP_SYS_PTRACE & 1, 0);
    assert_eq!(http::get(server.address(), "/short.php?ms=900").text(), "slept");
    let entry = slow.entries(1).remove(0);
    assert!(entry.frames[0].starts_with("usleep() "), "{entry:#?}");
    assert!(workers.iter().any(|worker| worker.pid == entry.pid));
}

fn status_field(process: &Process, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).expect("a status");
    let line = status.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.split_once(":\t"));
    value.expect("the field").1.to_owned()
}

#[test]
fn no_worker_can_read_another() {
    let root = site();
    let server = Setup::new(root.path()).workers(4).start();
    let holders = || {
        let all = server.processes();
        let open = |process: &Process| {
            let links = fs::read_dir(format!("/proc/{}/fd", process.pid)).expect("descriptors");
            links
                .flatten()
                .filter_map(|link| fs::read_link(link.path()).ok())
                .filter(|link| link.ends_with("mem"))
                .count()
        };
        all.iter()
            .map(|process| (process.title.clone(), open(process)))
            .filter(|(_, open)| *open > 0)
            .collect::<Vec<_>>()
    };
    // The zygote takes in what workers have sent when it has its next order.
    server.wait_for_full_strength(4, wait::DEADLINE);
    server.workers()[0].signal(Signal::KILL);
    server.wait_for_full_strength(4, wait::DEADLINE);
    wait::until_true("the zygote alone to see workers", || {
        let holders = holders();
        holders.len() == 1 && holders[0].0.contains("zygote") && holders[0].1 == 4
    });
}

#[test]
fn a_zygote_that_is_new_or_stuck_costs_the_stack_and_nothing_else() {
    let root = site();
    let slow = Slow::new();
    let server = slow.setup(root.path(), "300ms").workers(1).start();
    let zygote = server.zygote().expect("a zygote");
    zygote.signal(Signal::KILL);
    wait::until_true("another zygote", || server.zygote().is_some_and(|next| next != zygote));
    assert_eq!(http::get(server.address(), "/short.php?ms=600").text(), "slept");
    let failure = slow.entries(1).remove(0).failure.expect("a reason");
    assert!(failure.contains("older than this zygote"), "{failure}");
    let zygote = server.zygote().expect("a zygote");
    zygote.signal(Signal::STOP);
    assert_eq!(http::get(server.address(), "/short.php?ms=600").text(), "slept");
    let failure = slow.entries(2).remove(1).failure.expect("a reason");
    assert!(failure.contains("did not answer"), "{failure}");
    zygote.signal(Signal::CONT);
}

#[test]
fn a_tenants_link_leads_root_nowhere_and_its_own_folder_has_its_own_log() {
    let root = site();
    let folder = public_folder();
    let (tenants, roots) = (folder.path().join("logs"), folder.path().join("roots.log"));
    fs::create_dir(&tenants).unwrap();
    give_to_web_user(&tenants);
    fs::write(&roots, "").unwrap();
    let is_tenants_own = |path: &Path| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(path).is_ok_and(|meta| meta.uid() == fs::metadata(&tenants).unwrap().uid())
    };
    for (name, says) in [("link.log", "cannot be written: Permission denied"), ("slow.log", "")] {
        let log = tenants.join(name);
        if !says.is_empty() {
            std::os::unix::fs::symlink(&roots, &log).unwrap();
        }
        let server = Setup::new(root.path())
            .pool(&format!("slowlog = {log:?}"))
            .pool("request_slowlog_timeout = \"100ms\"")
            .start();
        http::get(server.address(), "/short.php?ms=300").text();
        if is_root() {
            server.expect_log(0, says);
        }
    }
    assert!(is_tenants_own(&tenants.join("slow.log")));
    if is_root() {
        assert_eq!(fs::read_to_string(&roots).unwrap(), "");
    }
}

#[test]
fn copies_that_are_rewound_or_have_warmed_up_have_their_stack_there() {
    const HANDLE: &str = "<?php function naps() { usleep(1_500_000); }
        $handle = function () { if (isset($_GET['nap'])) { naps(); } echo getmypid(); };";
    let takes = [
        ("maitred_snapshot(); $handle();", "rewinds_per_child = 10"),
        ("while (frankenphp_handle_request($handle)) { }", "warm_requests = [\"/\"]"),
    ];
    for (takes, line) in takes {
        let root = document_root(&[("index.php", &format!("{HANDLE}\n{takes}\n"))]);
        let script = root.path().join("index.php");
        let slow = Slow::new();
        let server = slow
            .setup(root.path(), "300ms")
            .workers(1)
            .pool("mode = \"snapshot\"")
            .pool(&format!("script = {script:?}"))
            .pool(line)
            .start();
        http::get(server.address(), "/");
        let napping = http::get(server.address(), "/?nap=1").text();
        let entry = &slow.entries(1)[0];
        assert_eq!(entry.failure, None, "{line}");
        assert_eq!(entry.pid.to_string(), napping);
        let shown = entry.frames.iter().any(|frame| frame.starts_with("naps()"));
        assert!(shown, "{line}: {:?}", entry.frames);
        server.stop();
    }
}
