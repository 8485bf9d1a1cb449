//! Where the time of a request goes: in a queue, on a processor, waiting for one, or for anything
//! else.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use maitred_tests::fastcgi::{Wire, params};
use maitred_tests::http;
use maitred_tests::http2::curl;
use maitred_tests::outside::{command, pool, text};
use maitred_tests::server::{
    Server, Setup, document_root, give_to_web_user, public_folder, write_file,
};
use maitred_tests::{Target, ports, wait};
use serde_json::Value;
use tempfile::TempDir;

/// Everything that a line says of a request's time, in milliseconds, and its memory.
const FORMAT: &str = concat!(
    r#"{"uri":"$uri","args":"$args","status":$status,"queue":$queue_ms,"#,
    r#""script":$script_ms,"cpu":$cpu_ms,"core":$core_wait_ms,"blocked":$blocked_ms,"#,
    r#""children":$children_cpu_ms,"memory":$peak_memory}"#,
);

fn site() -> TempDir {
    let root = document_root(&[
        ("hello.php", "<?php echo 'hello';"),
        ("hello.txt", "hello, file"),
        ("sleeps.php", "<?php usleep(100000); echo 'rested';"),
        // Processor time, not elapsed time: other processes may use the processor meanwhile.
        (
            "computes.php",
            "<?php function used() { $used = getrusage();
             return $used['ru_utime.tv_sec'] * 1e6 + $used['ru_utime.tv_usec']
                  + $used['ru_stime.tv_sec'] * 1e6 + $used['ru_stime.tv_usec']; }
             $until = used() + 1000 * $_GET['ms']; while (used() < $until);
             echo 'computed';",
        ),
        (
            "shells.php",
            "<?php exec('i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done'); echo 'done';",
        ),
        ("eats.php", "<?php $eaten = str_repeat('x', 20 << 20); echo 'eaten';"),
        (
            "goes_on.php",
            "<?php echo 'answered'; fastcgi_finish_request(); usleep(200000);
             $eaten = str_repeat('x', 20 << 20);",
        ),
        (
            "cut.php",
            "<?php echo 'answered'; fastcgi_finish_request(); posix_kill(getmypid(), SIGKILL);",
        ),
        ("dies.php", "<?php posix_kill(getmypid(), SIGKILL);"),
    ]);
    give_to_web_user(root.path());
    root
}

/// A folder that the front may write to.
fn folder() -> TempDir {
    let folder = public_folder();
    give_to_web_user(folder.path());
    folder
}

fn setup(root: &Path, log: &Path) -> Setup {
    Setup::new(root)
        .top(&format!("access_log = {log:?}"))
        .top(&format!("access_log_format = '{FORMAT}'"))
}

/// The first line about a target, once it has been written.
fn line(log: &Path, uri: &str, args: &str) -> Value {
    wait::until("the line to be written", || {
        let text = fs::read_to_string(log).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        lines.into_iter().find(|line: &Value| {
            line["uri"] == uri && line["args"].as_str().unwrap_or_default() == args
        })
    })
}

fn ask(server: &Server, log: &Path, uri: &str, args: &str) -> Value {
    let separator = if args.is_empty() { "" } else { "?" };
    http::get(server.address(), &format!("{uri}{separator}{args}"));
    line(log, uri, args)
}

fn millis(line: &Value, field: &str) -> f64 {
    let number = line[field].as_f64();
    number.unwrap_or_else(|| panic!("{field} is a number in {line}"))
}

#[test]
fn a_line_says_what_a_script_waited_for_and_what_it_used() {
    let (root, folder) = (site(), folder());
    let log = folder.path().join("access.log");
    let server = setup(root.path(), &log).workers(1).start();

    let slept = ask(&server, &log, "/sleeps.php", "");
    let (script, blocked) = (millis(&slept, "script"), millis(&slept, "blocked"));
    assert!(blocked >= 70.0 && blocked <= script, "{slept}");
    assert!(millis(&slept, "cpu") < 50.0, "{slept}");

    let computed = ask(&server, &log, "/computes.php", "ms=50");
    let cpu = millis(&computed, "cpu");
    assert!((50.0..75.0).contains(&cpu), "{computed}");

    let shelled = ask(&server, &log, "/shells.php", "");
    let children = millis(&shelled, "children");
    assert!(children > 5.0, "{shelled}");
    assert!(millis(&shelled, "blocked") > children / 4.0, "a child is waited for: {shelled}");
    let after = ask(&server, &log, "/hello.php", "");
    assert_eq!(millis(&after, "children"), 0.0, "{after}");

    let eaten = ask(&server, &log, "/eats.php", "");
    assert!(millis(&eaten, "memory") > f64::from(20 << 20), "{eaten}");
    assert!(millis(&after, "memory") < f64::from(8 << 20), "{after}");

    // What a script does after its answer is its own, and not the next one's.
    let early = ask(&server, &log, "/goes_on.php", "");
    let (script, blocked) = (millis(&early, "script"), millis(&early, "blocked"));
    assert!(blocked >= 170.0 && blocked <= script, "{early}");
    assert!(millis(&early, "memory") > f64::from(20 << 20), "{early}");
    let next = ask(&server, &log, "/hello.php", "next");
    assert!(millis(&next, "blocked") < 150.0, "{next}");
    assert!(millis(&next, "memory") < f64::from(8 << 20), "{next}");
    let cut = ask(&server, &log, "/cut.php", "");
    assert_eq!(cut["status"], 200, "{cut}");
    assert!(millis(&cut, "script") >= millis(&cut, "blocked"), "{cut}");

    for uri in ["/hello.txt", "/dies.php"] {
        let nothing = ask(&server, &log, uri, "");
        for field in ["cpu", "core", "blocked", "children", "memory"] {
            assert!(nothing[field].is_null(), "{nothing}");
        }
    }

    // A stop waits for what goes on, and its line is written.
    http::get(server.address(), "/goes_on.php?last");
    server.stop();
    let last = line(&log, "/goes_on.php", "last");
    assert!(millis(&last, "blocked") >= 170.0, "{last}");
}

#[test]
fn more_scripts_than_processors_wait_for_one_and_use_no_more() {
    let (root, folder) = (site(), folder());
    let log = folder.path().join("access.log");
    let server = setup(root.path(), &log).workers(8).start();
    thread::scope(|scope| {
        for number in 0..8 {
            let target = format!("/computes.php?ms=40&n={number}");
            let address = server.address();
            scope.spawn(move || assert_eq!(http::get(address, &target).text(), "computed"));
        }
    });
    let lines: Vec<Value> =
        (0..8).map(|number| line(&log, "/computes.php", &format!("ms=40&n={number}"))).collect();
    for line in &lines {
        let cpu = millis(line, "cpu");
        assert!((40.0..60.0).contains(&cpu), "{line}");
        let parts = cpu + millis(line, "core") + millis(line, "blocked");
        let script = millis(line, "script");
        assert!((parts - script).abs() < 1.0 + script / 50.0, "the parts are the whole: {line}");
    }
    let processors = thread::available_parallelism().map_or(1, |count| count.get());
    if processors <= 4 {
        // Half of them, at least, cannot run while the others do.
        let waited: f64 = lines.iter().map(|line| millis(line, "core")).sum();
        assert!(waited > 40.0, "{lines:?}");
    }
}

/// Short requests, before each of which their worker sleeps.
const SHORT: usize = 200;

/// Few of them come from the kernel.
#[test]
fn what_short_requests_have_cost_together_is_what_their_worker_has_used() {
    let (root, folder) = (site(), folder());
    write_file(
        root.path(),
        "used.php",
        b"<?php $used = getrusage();
          echo $used['ru_utime.tv_sec'] * 1000000 + $used['ru_utime.tv_usec']
             + $used['ru_stime.tv_sec'] * 1000000 + $used['ru_stime.tv_usec'];",
    );
    let log = folder.path().join("access.log");
    let server = setup(root.path(), &log).workers(1).start();
    let used: Vec<f64> = (0..SHORT)
        .map(|number| {
            let said = http::get(server.address(), &format!("/used.php?{number}")).text();
            said.parse().expect("microseconds")
        })
        .collect();
    line(&log, "/used.php", &format!("{}", SHORT - 1));
    let text = fs::read_to_string(&log).expect("the log");
    let lines = text.lines().map(serde_json::from_str::<Value>);
    let cpu = lines.map(|line| millis(&line.expect("JSON"), "cpu"));
    // From one first line to the next there is as much as from one end to the next.
    let counted: f64 = cpu.skip(1).sum();
    let used = (used[SHORT - 1] - used[0]) / 1e3;
    assert!((0.9..1.1).contains(&(counted / used)), "{counted} of {used} ms");
}

/// Processes at work for each processor while scripts work, and processors that are kept busy so.
const OTHERS: usize = 3;
const KEPT_BUSY: usize = 4;

/// Clients that ask for such scripts, and how often each does.
const CLIENTS: usize = 8;
const TIMES: usize = 8;

#[test]
fn who_only_works_has_waited_for_nothing_but_a_processor_on_a_busy_machine_too() {
    let (root, folder) = (site(), folder());
    let log = folder.path().join("access.log");
    // It calls nothing, so that it loses its processor where the kernel counts worst.
    write_file(
        root.path(),
        "loops.php",
        b"<?php $until = hrtime(true) + 2e6; while (hrtime(true) < $until) { md5('x'); } \
          echo 'looped';",
    );
    let server = setup(root.path(), &log).workers(CLIENTS as u32).start();
    let processors = thread::available_parallelism().map_or(1, |count| count.get());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..OTHERS * processors.min(KEPT_BUSY) {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let ask = |client| {
            for time in 0..TIMES {
                let target = format!("/loops.php?n={client}-{time}");
                assert_eq!(http::get(server.address(), &target).text(), "looped");
            }
        };
        let clients: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(move || ask(client))).collect();
        let joined = clients.into_iter().map(|client| client.join().is_ok());
        let failed = joined.filter(|is_well| !is_well).count();
        over.store(true, Ordering::Relaxed);
        assert_eq!(failed, 0, "every client has its answers");
    });
    let (mut script, mut blocked) = (0.0, 0.0);
    for client in 0..CLIENTS {
        for time in 0..TIMES {
            let line = line(&log, "/loops.php", &format!("n={client}-{time}"));
            script += millis(&line, "script");
            blocked += millis(&line, "blocked");
        }
    }
    assert!(blocked < script / 5.0, "{blocked} of {script} ms");
}

#[test]
fn nothing_is_said_of_what_is_not_measured() {
    let (root, folder) = (site(), folder());
    let log = folder.path().join("access.log");
    let setup = setup(root.path(), &log).pool("request_accounting = false");
    let server = setup.start();
    let line = ask(&server, &log, "/sleeps.php", "");
    assert!(millis(&line, "script") >= 99.0, "{line}");
    for field in ["cpu", "core", "blocked", "children", "memory"] {
        assert!(line[field].is_null(), "{line}");
    }
}

/// A script that runs until the file `go` is there, and uses no processor to speak of.
const WAITS: &str =
    "<?php while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(20000); }";

#[test]
fn metrics_and_status_tell_where_the_time_of_a_pool_went() {
    let root = site();
    write_file(root.path(), "waits.php", WAITS.as_bytes());
    let listener = ports::free_address();
    let slow = folder();
    let slow_log = slow.path().join("slow.log");
    let server = Setup::new(root.path())
        .workers(2)
        .top(&format!("admin = \"{listener}\""))
        .pool(&format!("slowlog = {slow_log:?}"))
        .pool("request_slowlog_timeout = \"300ms\"")
        .start();
    // Routes are separate from the first request for them on.
    let metrics = http::get(listener, "/metrics").text();
    assert!(!metrics.contains("route=\""), "{metrics}");
    for target in ["/sleeps.php/17", "/computes.php?ms=50", "/shells.php", "/goes_on.php"] {
        assert_eq!(http::get(server.address(), target).status, 200);
    }
    let address = server.address();
    thread::scope(|scope| {
        scope.spawn(move || http::get(address, "/waits.php"));
        let running = wait::until("a script to have run for a while", || {
            let running = pool(&server)["running"][0].clone();
            (running["seconds"].as_f64() > Some(0.3)).then_some(running)
        });
        let part = |name: &str| running[name].as_f64().expect("a number");
        assert!(part("core_wait_seconds") >= 0.0, "{running}");
        assert!(part("blocked_seconds") > part("cpu_seconds"), "{running}");
        assert!(part("blocked_seconds") <= part("seconds"), "{running}");

        let top = text(&command(&server, &["top", "--once"]).stdout);
        for shown in [" CPU   CORE WAIT     BLOCKED", "  cpu ", ", blocked "] {
            assert!(top.contains(shown), "{shown} in\n{top}");
        }
        let entry = wait::until("an entry of the slow log", || {
            let entries = fs::read_to_string(&slow_log).unwrap_or_default();
            entries.contains("waits.php").then_some(entries)
        });
        let entry = entry.split("\n\n").find(|entry| entry.contains("waits.php"));
        let entry = entry.expect("it is there");
        let seconds = |name: &str| -> f64 {
            let line = entry.lines().find_map(|line| line.strip_prefix(name));
            line.expect(entry).trim_start_matches(" = ").parse().expect(entry)
        };
        assert!(seconds("blocked_time") > seconds("cpu_time"), "{entry}");
        assert!(seconds("core_wait_time") >= 0.0, "{entry}");
        write_file(root.path(), "go", b"");
    });

    let metrics = wait::until("all to be counted", || {
        let metrics = http::get(listener, "/metrics").text();
        (figure(&metrics, "maitred_pool_cpu_seconds_count") == 5.0).then_some(metrics)
    });
    let script = figure(&metrics, "maitred_pool_script_seconds_sum");
    let parts = ["cpu", "core_wait", "blocked"];
    let parts = parts.map(|part| figure(&metrics, &format!("maitred_pool_{part}_seconds_sum")));
    let whole: f64 = parts.iter().sum();
    assert!((whole - script).abs() < 0.01 * script, "{parts:?} of {script}");
    assert!(parts[0] >= 0.05 && parts[2] >= 0.4, "{parts:?}");
    assert!(figure(&metrics, "maitred_pool_children_cpu_seconds_total") > 0.005);
    assert_eq!(figure(&metrics, "maitred_pool_peak_memory_bytes_count"), 5.0);
    let of_route = |name: &str, route: &str, label: &str| {
        let labels = format!("{name}{{pool=\"www\",route=\"{route}\"{label}}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&labels));
        let value = line.and_then(|value| value.parse::<f64>().ok());
        value.unwrap_or_else(|| panic!("{labels} is in\n{metrics}"))
    };
    let route = "maitred_pool_route_seconds_total";
    assert!(of_route(route, "/computes.php", ",part=\"cpu\"") >= 0.05);
    assert!(of_route(route, "/sleeps.php/*", ",part=\"blocked\"") >= 0.05);
    assert!(of_route(route, "/goes_on.php", ",part=\"blocked\"") >= 0.17);
    let route = "maitred_pool_route_script_seconds_count";
    assert_eq!(of_route(route, "/waits.php", ""), 1.0);

    let status = pool(&server);
    assert_eq!(status["cpu_time"]["total"]["count"], 5, "{status}");
    assert!(status["peak_memory"]["p50_bytes"].as_u64() > Some(300_000), "{status}");
    let details = text(&command(&server, &["status", "www"]).stdout);
    for shown in ["  cpu    ", "  core wait  ", "  blocked ", "children CPU ", "peak memory  "] {
        assert!(details.contains(shown), "{shown} in\n{details}");
    }
}

/// The value of the only pool's metric of this name.
fn figure(metrics: &str, name: &str) -> f64 {
    let prefix = format!("{name}{{pool=\"www\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&prefix));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} is in\n{metrics}"))
}

/// What a `Server-Timing` header says, in milliseconds.
fn durations(field: &str) -> BTreeMap<String, f64> {
    let metrics = field.split(", ").map(|metric| {
        let (name, duration) = metric.split_once(";dur=").expect(field);
        (name.to_owned(), duration.parse().expect(field))
    });
    metrics.collect()
}

#[test]
fn an_answer_says_where_its_time_went_if_its_pool_is_to() {
    let (root, folder) = (site(), folder());
    write_file(root.path(), "own.php", b"<?php header('Server-Timing: db;dur=53'); echo 'own';");
    write_file(
        root.path(),
        "streams.php",
        b"<?php echo 'first'; ob_flush(); flush(); usleep(50000); echo 'last';",
    );
    let listener = folder.path().join("listener.sock");
    let server = Setup::new(root.path())
        .pool("server_timing = true")
        .pool(&format!("listen = {listener:?}"))
        .pool("listen_mode = \"0666\"")
        .start();
    let address = server.address();
    let slept = http::get(address, "/sleeps.php");
    let said = durations(slept.header("Server-Timing").expect("the header"));
    assert!(said["blocked"] >= 70.0 && said["blocked"] <= said["script"], "{said:?}");
    let parts = said["cpu"] + said["core_wait"] + said["blocked"];
    assert!((parts - said["script"]).abs() < 2.0, "{said:?}");
    assert!(said["queue"] >= 0.0 && !said.contains_key("children_cpu"), "{said:?}");

    let own = http::get(address, "/own.php");
    let fields: Vec<&str> = own.all("Server-Timing").collect();
    assert_eq!((fields.len(), fields[0]), (2, "db;dur=53"), "{fields:?}");

    // Its header has gone when its time is known; a file's went nowhere.
    for target in ["/streams.php", "/hello.txt"] {
        let answer = http::get(address, target);
        assert_eq!(answer.header("Server-Timing"), None, "{target}");
    }

    let url = format!("http://{address}/hello.php");
    let said = curl(&["--http2-prior-knowledge", "-sS", "-i", &url]);
    assert!(said.contains("\nserver-timing: queue;dur="), "{said}");

    let mut wire = Wire::connect(&listener);
    let answer = wire.ask(1, &params(root.path(), "/shells.php", &[]), b"");
    let field = answer.stdout.lines().find_map(|line| line.strip_prefix("Server-Timing: "));
    let said = durations(field.expect(&answer.stdout));
    assert!(said["children_cpu"] > 5.0, "{said:?}");
    assert_eq!(answer.body(), "done");
}
