//! Faults caused on purpose: only what was inside the killed process fails, and the server is whole
//! again soon after.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use maitred_tests::Target;
use maitred_tests::fastcgi::{self, Wire};
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::load::{ECHO_PAGE, Load, Tally};
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{
    Server, Setup, document_root, give_to_web_user, is_root, public_folder, set_mode,
};
use maitred_tests::{maitred_program, ports, wait};
use tempfile::TempDir;

/// How long a script says nothing that has to wait for its client, and how long it takes at least
/// to go on.
const STOPPED: Duration = Duration::from_millis(300);
const A_MOMENT: Duration = Duration::from_millis(20);

/// Far more than the time after which a script that writes without end is ended.
const FLOODS: Duration = Duration::from_secs(60);

/// Workers in the tests under load, and connections that load them.
const WORKERS: usize = 4;
const CONNECTIONS: usize = 8;

/// Answers a load must get before and after a fault.
const ENOUGH: u64 = 500;

fn echo_site() -> TempDir {
    document_root(&[ECHO_PAGE, ("hello.php", "<?php echo 'hello';")])
}

/// Runs a load on a server of four workers, does harm in the middle, and waits for full strength.
fn under_load(harm: impl FnOnce(&Server) -> Vec<Process>) -> (Tally, Server, TempDir) {
    let root = echo_site();
    let server = Setup::new(root.path()).workers(WORKERS as u32).start();
    server.wait_for_full_strength(WORKERS, wait::DEADLINE);
    let load = Load::start(server.address(), CONNECTIONS);
    load.wait_for_ok(ENOUGH);
    let victims = harm(&server);
    assert!(!victims.is_empty(), "there was a process to kill");
    victims.iter().for_each(|victim| victim.signal(Signal::KILL));
    wait::until_true("the victims to die", || !victims.iter().any(Process::is_running));
    server.wait_for_full_strength(WORKERS, wait::DEADLINE);
    load.wait_for_ok(ENOUGH);
    let tally = load.stop();
    assert_eq!(tally.mixed_up, 0, "no client got another's response: {tally:?}");
    (tally, server, root)
}

#[test]
fn a_killed_worker_costs_at_most_its_own_request() {
    let (tally, server, _root) = under_load(|server| server.workers()[..1].to_vec());
    assert!(tally.failed() <= 1, "{tally:?}");
    server.stop();
}

#[test]
fn when_all_workers_are_killed_only_their_own_requests_fail() {
    let (tally, server, _root) = under_load(Server::workers);
    assert!(tally.failed() <= WORKERS as u64, "{tally:?}");
    server.stop();
}

#[test]
fn a_killed_zygote_costs_no_request() {
    let (tally, server, _root) = under_load(|server| server.zygote().into_iter().collect());
    assert_eq!(tally.failed(), 0, "{tally:?}");
    server.stop();
}

#[test]
fn workers_go_on_serving_while_their_zygote_is_dead() {
    let root = echo_site();
    let server = Setup::new(root.path()).workers(1).start();
    let zygote = server.zygote().expect("a zygote runs");
    zygote.signal(Signal::KILL);
    wait::until_true("the zygote to die", || !zygote.is_running());
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    server.wait_for_full_strength(1, wait::DEADLINE);
    server.stop();
}

#[test]
fn a_killed_front_costs_each_connection_one_request() {
    let (tally, server, _root) = under_load(|server| server.front().into_iter().collect());
    assert!(tally.failed() <= CONNECTIONS as u64, "{tally:?}");
    assert_eq!(tally.unconnected, 0, "the listening socket outlives the front: {tally:?}");
    server.stop();
}

#[test]
fn everything_killed_but_the_supervisor_comes_back() {
    let (tally, server, _root) = under_load(|server| {
        let supervisor = server.supervisor().pid;
        server.processes().into_iter().filter(|process| process.pid != supervisor).collect()
    });
    assert_eq!(tally.unconnected, 0, "{tally:?}");
    server.stop();
}

#[test]
fn nothing_outlives_a_killed_supervisor() {
    let root = echo_site();
    let server = Setup::new(root.path()).workers(2).start();
    server.wait_for_full_strength(2, wait::DEADLINE);
    server.processes();
    server.signal(Signal::KILL);
    server.expect_killed();
}

fn fault_site() -> TempDir {
    document_root(&[
        ("hello.php", "<?php echo 'hello';"),
        (
            "segfault.php",
            // A chain that is freed link within link: calls of scripts have a limit from PHP 8.3
            // on.
            "<?php gc_disable(); class Link { public $next; }
             for ($n = 0, $last = null; $n < 1000000; $n++) {
                 $link = new Link; $link->next = $last; $last = $link;
             }
             $link = $last = null;",
        ),
        ("hoard.php", "<?php $a = []; while (true) { $a[] = str_repeat('x', 1000000); }"),
        ("loop.php", "<?php while (true) { }"),
        (
            "stopped.php",
            "<?php $say = function (int $pieces) {
                 for ($i = 0; $i < $pieces; $i++) { echo str_repeat('x', 4096); flush(); }
             };
             for ($said = 0; !file_exists(__DIR__ . '/marks/stop'); $said++) {
                 $say(1);
                 file_put_contents(__DIR__ . '/marks/said', $said);
                 clearstatcache();
             }
             touch(__DIR__ . '/marks/stops'); $say(48); touch(__DIR__ . '/marks/ends');",
        ),
        (
            "flood.php",
            "<?php for ($text = ''; strlen($text) < 8192; ) { $text .= md5($text); }
             while (true) { echo $text; }",
        ),
        ("sleep.php", "<?php sleep(300); echo 'woke';"),
        (
            "half.php",
            "<?php echo str_repeat('half', 1000);
             while (ob_get_level()) { ob_end_flush(); } flush();
             posix_kill(getmypid(), 9); sleep(60);",
        ),
        (
            "invalid_header.php",
            "<?php header('No colon here'); header(\"Bad Name: x\"); header(': nothing');
             header(\"X-Control: a\\x01b\"); header('X-Good: yes'); echo 'body';",
        ),
        (
            "many_headers.php",
            "<?php for ($i = 0; $i < 10000; $i++) { header(\"X-Number-$i: $i\"); } echo 'body';",
        ),
        (
            "endless_headers.php",
            "<?php $v = str_repeat('x', 8000);
             for ($i = 0; $i < 5000; $i++) { header(\"X-Number-$i: $v\"); } echo 'body';",
        ),
        (
            "gigabyte.php",
            "<?php $m = str_repeat('0123456789abcdef', 65536);
             for ($i = 0; $i < 1024; $i++) { echo $m; }",
        ),
        (
            "length.php",
            "<?php $input = fopen('php://input', 'rb');
             for ($n = 0; !feof($input); $n += strlen(fread($input, 1 << 20))) { } echo $n;",
        ),
    ])
}

fn assert_serves(server: &Server) {
    let answered = || {
        let response = http::try_ask(server.address(), &Request::get("/hello.php")).ok()?;
        (response.text() == "hello").then_some(())
    };
    wait::until("hello.php to be answered", answered);
}

#[test]
fn a_script_that_crashes_php_is_a_502_that_the_log_explains() {
    let root = fault_site();
    let server = Setup::new(root.path()).workers(1).start();
    let mark = server.log().mark();
    let request = Request::post("/segfault.php", "text/plain", b"");
    assert_eq!(http::ask(server.address(), &request).status, 502);
    server.expect_log(mark, "segfault.php");
    // A stack that overflows is SIGSEGV, or SIGABRT where a handler has said so first.
    let line = server.expect_log(mark, "SIG");
    assert!(line.contains("SIGSEGV") || line.contains("SIGABRT"), "{line}");
    assert_serves(&server);
}

#[test]
fn a_script_that_crashes_every_time_does_not_take_the_site_down() {
    let root = fault_site();
    let server = Setup::new(root.path()).workers(2).start();
    for _ in 0..20 {
        let request = Request::post("/segfault.php", "text/plain", b"");
        let status = http::ask(server.address(), &request).status;
        assert!([502, 503].contains(&status), "{status}");
    }
    assert_serves(&server);
    server.wait_for_full_strength(2, wait::DEADLINE);
}

#[test]
fn a_script_over_its_memory_limit_is_a_500_and_the_next_is_answered() {
    let root = fault_site();
    let server = Setup::new(root.path()).workers(1).start();
    let mark = server.log().mark();
    for _ in 0..10 {
        assert_eq!(http::get(server.address(), "/hoard.php").status, 500);
    }
    server.expect_log(mark, "Allowed memory size of");
    assert_serves(&server);
}

#[test]
fn scripts_past_their_time_are_a_504_that_the_log_explains() {
    let root = fault_site();
    let setup = Setup::new(root.path()).workers(1).pool("request_terminate_timeout = \"1s\"");
    let server = setup.start();
    for script in ["/loop.php", "/sleep.php"] {
        let mark = server.log().mark();
        assert_eq!(http::get(server.address(), script).status, 504, "{script}");
        server.expect_log(mark, script.trim_start_matches('/'));
        assert_serves(&server);
    }
}

#[test]
fn a_script_that_writes_without_a_pause_is_slow_and_past_its_time_as_any_other() {
    let root = fault_site();
    let folder = public_folder();
    let slow_log = folder.path().join("slow.log");
    let server = Setup::new(root.path())
        .workers(1)
        .pool("request_terminate_timeout = \"3s\"")
        .pool(&format!("request_slowlog_timeout = \"1s\"\nslowlog = {slow_log:?}"))
        .start();
    let mark = server.log().mark();
    let mut reader = Connection::open(server.address());
    let request = Request::get("/flood.php").header("Accept-Encoding", "br");
    reader.send(&request.to_bytes()).expect("the server takes a request");
    let begun = Instant::now();
    let mut piece = [0; 1 << 16];
    // What was sent is no whole response: the connection ends.
    while reader.stream().read(&mut piece).is_ok_and(|count| count > 0) {
        assert!(begun.elapsed() < FLOODS, "the script still writes");
    }
    server.expect_log(mark, "flood.php");
    let entries = || fs::read_to_string(&slow_log).ok().filter(|text| !text.is_empty());
    let entries = wait::until("an entry of the slow log", entries);
    assert_eq!(entries.matches("script_filename").count(), 1, "{entries}");
    assert_serves(&server);
    server.stop();
}

#[test]
fn a_script_that_has_ended_is_not_past_its_time_while_its_client_reads_slowly() {
    let root = fault_site();
    let marks = root.path().join("marks");
    fs::create_dir(&marks).expect("a folder can be made");
    give_to_web_user(&marks);
    let folder = public_folder();
    let listener = folder.path().join("www.sock");
    let server = Setup::new(root.path())
        .pool("request_terminate_timeout = \"5s\"")
        .pool("spool_limit = 0")
        .pool(&format!("listen = {listener:?}"))
        .start();
    let mut slow = Wire::connect(&listener);
    let params = fastcgi::params(root.path(), "/stopped.php", &[]);
    slow.send(&fastcgi::request(1, false, &params, b""));
    // It says what there is room for on the way to the client, and stops.
    let said = || fs::read_to_string(marks.join("said")).unwrap_or_default();
    let (mut last, mut since) = (said(), Instant::now());
    wait::until_true("the script to be stopped", || {
        let now = said();
        if now != last || now.is_empty() {
            (last, since) = (now, Instant::now());
        }
        since.elapsed() > STOPPED
    });
    // With a little room it goes on, and ends with its last words still in its worker's memory: it
    // says more than the front takes on its way, and less than fits there, too.
    fs::write(marks.join("stop"), "").expect("a file can be written");
    let stops = || marks.join("stops").exists().then_some(());
    while wait::poll(A_MOMENT, stops).is_none() {
        slow.record();
    }
    wait::until_true("the script to end", || marks.join("ends").exists());
    // The time of one that began later is over, and so is that of the first.
    assert_eq!(http::get(server.address(), "/loop.php").status, 504);
    assert!(slow.answer(1).is_some(), "it comes whole, however late it is read");
    server.stop();
}

#[test]
fn a_full_queue_is_a_503_with_retry_after_and_a_cause() {
    let root = fault_site();
    let server = Setup::new(root.path())
        .workers(1)
        .pool("request_queue_timeout = \"1s\"")
        .pool("request_terminate_timeout = \"5s\"")
        .start();
    let mut busy = Connection::open(server.address());
    busy.send(&Request::get("/sleep.php").to_bytes()).expect("the server takes a request");
    let mark = server.log().mark();
    let refused = wait::until("a request to be refused", || {
        let response = http::get(server.address(), "/hello.php");
        (response.status != 200).then_some(response)
    });
    assert_eq!(refused.status, 503);
    assert!(refused.header("Retry-After").is_some(), "{refused:?}");
    assert!(!refused.body.is_empty(), "a refusal says why");
    server.expect_log(mark, "hello.php");
}

#[test]
fn half_an_answer_is_not_passed_off_as_a_whole_one() {
    let root = fault_site();
    let server = Setup::new(root.path()).workers(1).start();
    let mark = server.log().mark();
    let request = Request::get("/half.php");
    let cut = http::try_ask(server.address(), &request);
    match cut {
        Err(_) => {}
        Ok(response) => assert_eq!(response.status, 502, "{response:?}"),
    }
    server.expect_log(mark, "half.php");
    assert_serves(&server);
}

#[test]
fn an_invalid_header_never_reaches_the_client() {
    let root = fault_site();
    let server = Setup::new(root.path()).workers(1).start();
    let response = http::get(server.address(), "/invalid_header.php");
    assert!([200, 502].contains(&response.status), "{}", response.status_line);
    let is_token = |c: char| c.is_ascii_alphanumeric() || c == '-';
    for (name, value) in &response.headers {
        assert!(!name.is_empty() && name.chars().all(is_token), "{name:?}");
        assert!(!value.chars().any(|c| c.is_control() && c != '\t'), "{name}: {value:?}");
    }
    assert_serves(&server);
}

#[test]
fn ten_thousand_headers_reach_the_client() {
    let root = fault_site();
    let server = Setup::new(root.path()).workers(1).start();
    let response = http::get(server.address(), "/many_headers.php");
    assert_eq!((response.status, response.text().as_str()), (200, "body"));
    let count = response.headers.iter().filter(|(name, _)| name.starts_with("X-Number-")).count();
    assert_eq!(count, 10_000);
}

#[test]
fn headers_without_bound_are_a_502_that_the_log_explains() {
    let root = fault_site();
    let server = Setup::new(root.path()).workers(1).start();
    let mark = server.log().mark();
    assert_eq!(http::get(server.address(), "/endless_headers.php").status, 502);
    server.expect_log(mark, "endless_headers.php");
    assert_serves(&server);
}

/// The resident memory of a process in kB (`VmHWM` of proc(5): its highest ever).
fn peak_memory(process: &Process) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("it has memory");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).expect("a number of kB")
}

#[test]
fn an_answer_of_a_gigabyte_arrives_whole_without_being_held_in_memory() {
    let root = fault_site();
    let server = Setup::new(root.path()).workers(1).start();
    let mut connection = Connection::open(server.address());
    connection.send(&Request::get("/gigabyte.php").to_bytes()).expect("a request is taken");
    let head = connection.read_head().expect("an answer begins");
    assert_eq!(head.header("Transfer-Encoding"), Some("chunked"));
    let mut total = 0;
    loop {
        let chunk = connection.read_chunk().expect("a whole chunk");
        if chunk.is_empty() {
            break;
        }
        total += chunk.len();
    }
    assert_eq!(total, 1 << 30);
    let front = server.front().expect("the front runs");
    assert!(peak_memory(&front) < 200_000, "the front took {} kB", peak_memory(&front));
}

#[test]
fn a_body_too_large_for_memory_goes_through_the_spool_folder() {
    let root = fault_site();
    let server = Setup::new(root.path()).workers(1).start();
    let body = vec![b'x'; 100 << 20];
    let request = Request::new("PUT", "/length.php").header("Host", "localhost").body(&body);
    assert_eq!(http::ask(server.address(), &request).text(), "104857600");
    let front = server.front().expect("the front runs");
    assert!(peak_memory(&front) < 100_000, "the front took {} kB", peak_memory(&front));
    server.stop();
}

/// A folder on a file system of its own of 1 MB, unmounted when dropped.
struct TinyDisk(TempDir);

impl TinyDisk {
    fn mount() -> Option<Self> {
        let folder = public_folder();
        let mounted = is_root()
            && Command::new("mount")
                .args(["-t", "tmpfs", "-o", "size=1m,mode=1777", "tmpfs"])
                .arg(folder.path())
                .status()
                .is_ok_and(|status| status.success());
        mounted.then_some(Self(folder))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_while_spooling_refuses_that_request_only() {
    let Some(disk) = TinyDisk::mount() else {
        eprintln!("skipped: only root may mount a file system that is full soon");
        return;
    };
    let root = fault_site();
    let setup = Setup::new(root.path()).workers(1).spool(disk.path());
    // By default no more would be stored than fits.
    let server = setup.top("spool_max_size = \"1G\"").start();
    let mark = server.log().mark();
    let body = vec![b'x'; 64 << 20];
    let request = Request::new("PUT", "/length.php").header("Host", "localhost").body(&body);
    let refused = http::ask(server.address(), &request);
    assert!([500, 503, 507].contains(&refused.status), "{}", refused.status_line);
    server.expect_log(mark, "No space left on device");
    assert_serves(&server);

    let mut lazy = Connection::open(server.address());
    lazy.send(&Request::get("/gigabyte.php").to_bytes()).expect("a request is taken");
    lazy.read_head().expect("an answer begins");
    drop(lazy);
    assert_serves(&server);
    server.stop();
}

/// Runs maitred until it ends; its exit code and what it said.
fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(maitred_program());
    let output = command.args(arguments).output().expect("maitred can be started");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_document_root_that_does_not_exist_is_a_usage_error() {
    let address = ports::free_address().to_string();
    let (code, said) = run(&["serve", "/no/such/folder", "--listen", &address]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("/no/such/folder"), "{said}");
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn a_port_in_use_is_a_failure_that_names_the_address() {
    let root = fault_site();
    let folder = root.path().to_str().expect("a path");
    let address = ports::free_address();
    let holder = std::net::TcpListener::bind(address).expect("a free port");
    let (code, said) = run(&["serve", folder, "--listen", &address.to_string()]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&address.to_string()), "{said}");
    drop(holder);
}

#[test]
fn a_port_in_use_by_another_maitred_is_a_failure_too() {
    let root = fault_site();
    let folder = root.path().to_str().expect("a path");
    let server = Server::start(root.path());
    let (code, said) = run(&["serve", folder, "--listen", &server.address().to_string()]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&server.address().to_string()), "{said}");
    assert_serves(&server);
}

#[test]
fn an_unreadable_script_is_refused_and_named_in_the_log() {
    if !is_root() {
        eprintln!("skipped: only root can make a script that its own workers cannot read");
        return;
    }
    let root = fault_site();
    set_mode(&root.path().join("length.php"), 0o600);
    let server = Server::start(root.path());
    let mark = server.log().mark();
    assert_eq!(http::get(server.address(), "/length.php").status, 403);
    server.expect_log(mark, "length.php");
    assert_serves(&server);
}
