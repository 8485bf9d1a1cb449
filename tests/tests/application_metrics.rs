//! Counters of the application: from requests in every mode, commands and schedules, in `/metrics`.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use maitred_tests::booted;
use maitred_tests::http::{self, Request};
use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup, document_root, is_root};
use maitred_tests::spoilt::PoolMemory;
use maitred_tests::{Target, maitred_program, ports, wait};

/// Counts a request, and what the query asks for.
const COUNT: &str = "maitred_metric_add('orders_total', 1, ['kind' => $_GET['kind'] ?? 'b2c']);
    if (isset($_GET['other'])) {
        echo json_encode([
            maitred_metric_set('left', 7.5), maitred_metric_observe('pay_seconds', 0.3),
            maitred_metric_add('euros', 2.25), maitred_metric_add('euros', 3),
            maitred_metric_add('euros', -1), maitred_metric_add('no name'),
            maitred_metric_add('a', 1, ['pool' => 'x']), maitred_metric_set('a', NAN),
            maitred_metric_add(str_repeat('a', 101)), maitred_metric_add('a', 1, range(1, 9)),
            maitred_metric_set('le\u{ff}', 1)]);
    }
    if (isset($_GET['many'])) {
        for ($i = 0; $i < 1500; $i++) { $ok = maitred_metric_add('many', 1, ['id' => $i]); }
        echo json_encode($ok);
    }
    if (isset($_GET['die'])) { posix_kill(getmypid(), SIGKILL); }";

fn metrics(listener: SocketAddr) -> String {
    http::get(listener, "/metrics").text()
}

/// The value of a line of the metrics.
fn value(listener: SocketAddr, series: &str) -> Option<String> {
    let text = metrics(listener);
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map(str::to_owned)
}

#[track_caller]
fn expect(listener: SocketAddr, series: &str, wanted: &str) {
    let mut last = None;
    let is_there = || {
        last = value(listener, series);
        last.as_deref() == Some(wanted)
    };
    wait::until_true(&format!("{series} to be {wanted}"), is_there);
}

fn get(server: &Server, target: &str) -> String {
    http::ask(server.address(), &Request::get(target)).text()
}

/// What Prometheus' own parser finds wrong.
fn promtool(text: &str) -> String {
    use std::io::Write;
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool is installed");
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // Style: names and help are the application's.
    match output.status.code() {
        Some(0 | 3) => String::new(),
        _ => said,
    }
}

#[test]
fn requests_commands_and_schedules_count_in_one_place_that_outlives_them() {
    let root = document_root(&[("index.php", &format!("<?php {COUNT}"))]);
    let listener = ports::free_address();
    let job = |name: &str, kind: &str, when: &str| {
        let script = format!(
            "maitred_metric_add('runs', 1, ['of' => '{name}']); \
             echo count(scandir('/proc/self/fd')); sleep({when});"
        );
        let every = if kind == "schedules" { "every = \"1s\"" } else { "" };
        format!(
            "\n[[pools.www.{kind}]]\nname = \"{name}\"\ncommand = [\"php\", \"-r\", \"{script}\"]\n\
             {every}"
        )
    };
    let server = Setup::new(root.path())
        .top(&format!("admin = \"{listener}\""))
        .workers(2)
        .pool(&job("consumer", "commands", "1000"))
        .pool(&job("tick", "schedules", "0"))
        .start();
    for _ in 0..3 {
        get(&server, "/?kind=b2b%22%5C%0Ax");
    }
    let orders = "app_orders_total{pool=\"www\",kind=\"b2b\\\"\\\\\\nx\"}";
    expect(listener, orders, "3");
    let said = get(&server, "/?other=1");
    assert_eq!(said, "[true,true,true,true,false,false,false,false,false,false,false]");
    expect(listener, "app_left{pool=\"www\"}", "7.5");
    expect(listener, "app_euros_total{pool=\"www\"}", "5.25");
    expect(listener, "app_pay_seconds_bucket{pool=\"www\",le=\"0.25\"}", "0");
    expect(listener, "app_pay_seconds_bucket{pool=\"www\",le=\"0.5\"}", "1");
    expect(listener, "app_pay_seconds_sum{pool=\"www\"}", "0.3");
    expect(listener, "app_runs_total{pool=\"www\",of=\"consumer\"}", "1");
    server.expect_log(0, "a metric of the application is not counted: it has a name, a label");
    let ticks = "app_runs_total{pool=\"www\",of=\"tick\"}";
    wait::until_true("a run of the schedule", || value(listener, ticks).is_some());

    // It survives each process, a reload and an upgrade.
    let refused = http::try_ask(server.address(), &Request::get("/?die=1"));
    assert_eq!(refused.map(|response| response.status).unwrap_or(502), 502);
    let reload = Command::new(maitred_program())
        .args(["reload", "www", "--admin-socket"])
        .arg(server.admin_socket())
        .output()
        .expect("maitred runs");
    assert!(reload.status.success(), "{reload:?}");
    let mark = server.log().mark();
    server.signal(Signal::USR2);
    server.expect_log(mark, "upgraded to");
    get(&server, "/?kind=b2b%22%5C%0Ax");
    expect(listener, orders, "4");
    let run = Command::new(maitred_program())
        .args(["run", "www/tick", "--admin-socket"])
        .arg(server.admin_socket())
        .output()
        .expect("maitred runs");
    assert!(run.status.success(), "{run:?}");
    // `.`, `..`, the streams and the folder itself.
    assert_eq!(String::from_utf8_lossy(&run.stdout), "6", "{run:?}");

    assert_eq!(get(&server, "/?many=1"), "false");
    let lines = metrics(listener);
    let many = lines.lines().filter(|line| line.starts_with("app_many_total{")).count();
    assert!((900..1000).contains(&many), "{many}");
    expect(listener, "maitred_pool_application_series{pool=\"www\"}", "1000");
    assert_eq!(promtool(&lines), "");
    let told = server.log().lines();
    let told = told.iter().filter(|line| line.contains("more series than a pool may have")).count();
    assert_eq!(told, 1, "{}", server.log_text());
    server.stop();
}

#[test]
fn booted_applications_count_as_well() {
    let boot = "maitred_metric_add('boots');";
    let root = booted::application(boot, COUNT);
    let listener = ports::free_address();
    let server = booted::snapshot(root.path()).top(&format!("admin = \"{listener}\"")).start();
    for _ in 0..5 {
        get(&server, "/");
    }
    expect(listener, "app_orders_total{pool=\"www\",kind=\"b2c\"}", "5");
    assert!(value(listener, "app_boots_total{pool=\"www\"}").is_some());
    server.stop();
    let script =
        format!("<?php while (frankenphp_handle_request(function () {{ {COUNT} }})) {{ }}");
    let (_root, setup) = booted::worker(&[("index.php", &script)]);
    let server = setup.top(&format!("admin = \"{listener}\"")).start();
    for _ in 0..5 {
        get(&server, "/");
    }
    expect(listener, "app_orders_total{pool=\"www\",kind=\"b2c\"}", "5");
    server.stop();
}

#[test]
fn an_application_that_writes_anything_into_its_counters_harms_no_page_and_no_other_pool() {
    if !is_root() {
        eprintln!("skipped: only root can write to a pool's memory");
        return;
    }
    let root = document_root(&[("index.php", &format!("<?php {COUNT}"))]);
    let listener = ports::free_address();
    let second = format!("[[sites]]\nroot = {:?}\nhosts = [\"b\"]\npool = \"b\"", root.path());
    let server = Setup::new(root.path())
        .top(&format!("admin = \"{listener}\""))
        .hosts(&["a"])
        .pool("\n[pools.b]\npm = \"static\"\nmax_children = 1")
        .site(&second)
        .start();
    let ask = |host: &str| {
        http::ask(server.address(), &Request::new("GET", "/").header("Host", host)).status
    };
    assert_eq!((ask("a"), ask("b")), (200, 200));
    let memory = PoolMemory::of(&server.supervisor(), "application-www");
    let [memory] = memory.try_into().expect("one file");
    let mut looks = 0;
    for seed in 1..=20 {
        memory.spoil(seed);
        assert_eq!((ask("a"), ask("b")), (200, 200));
        let text = metrics(listener);
        assert_eq!(promtool(&text), "", "{text}");
        looks +=
            text.lines().filter(|line| line.starts_with("app_orders_total{pool=\"b\"")).count();
    }
    assert_eq!(looks, 20);
    expect(listener, "app_orders_total{pool=\"b\",kind=\"b2c\"}", "21");
    server.stop();
}
