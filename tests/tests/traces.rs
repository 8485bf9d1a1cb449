//! Traces: what a script sees of the trace of its request, what the logs have of it, and what a
//! collector receives.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::path::Path;

use maitred_tests::collector::{Collector, ReceivedSpan};
use maitred_tests::fastcgi::{Wire, params};
use maitred_tests::http::{self, Request, Response};
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user};
use maitred_tests::tls::Authority;
use maitred_tests::{Target, ports, wait};
use tempfile::TempDir;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn site() -> TempDir {
    let root = document_root(&[
        ("hello.php", "<?php echo 'hello';"),
        ("hello.txt", "hello, file"),
        (
            "sees.php",
            "<?php echo ($_SERVER['HTTP_TRACEPARENT'] ?? '-') . '|'
                 . ($_SERVER['HTTP_TRACESTATE'] ?? '-');",
        ),
        ("sleeps.php", "<?php usleep(300000); echo 'rested';"),
        ("fails.php", "<?php http_response_code(503); echo 'no';"),
        ("dies.php", "<?php posix_kill(getmypid(), SIGKILL);"),
        ("logs.php", "<?php error_log('from a script');"),
    ]);
    give_to_web_user(root.path());
    root
}

fn traced(root: &Path, lines: &str) -> Setup {
    Setup::new(root).site(&format!("\n[traces]\n{lines}"))
}

/// The response to a request with these headers.
fn with(address: SocketAddr, target: &str, headers: &[(&str, &str)]) -> Response {
    let request = headers
        .iter()
        .fold(Request::get(target), |request, (name, value)| request.header(name, value));
    http::ask(address, &request)
}

fn sees(server: &Server, headers: &[(&str, &str)]) -> (String, String) {
    let text = with(server.address(), "/sees.php", headers).text();
    let (parent, state) = text.split_once('|').unwrap();
    (parent.to_owned(), state.to_owned())
}

fn named<'s>(spans: &'s [ReceivedSpan], name: &str) -> &'s ReceivedSpan {
    let found = spans.iter().find(|span| span.name() == name);
    found.unwrap_or_else(|| panic!("no span {name} in {spans:?}"))
}

fn metric(admin: SocketAddr, result: &str) -> u64 {
    let text = http::get(admin, "/metrics").text();
    let start = format!("maitred_trace_spans_total{{result=\"{result}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("no {start}in {text}")).parse().unwrap()
}

#[test]
fn a_script_sees_a_span_of_the_server_as_its_caller() {
    let (root, collector) = (site(), Collector::start());
    let log = tempfile::tempdir().unwrap();
    let log = log.path().join("access.log");
    let server = traced(root.path(), &format!("endpoint = \"{}\"", collector.url()))
        .top(&format!("access_log = {log:?}"))
        .top("access_log_format = \"$uri trace=$trace_id\"")
        .start();
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let (seen, state) = sees(&server, &[("Traceparent", &parent), ("tracestate", "a=1, b=2")]);
    assert!(seen.starts_with(&format!("00-{TRACE}-")) && seen.ends_with("-01"), "{seen}");
    assert!(!seen.contains(PARENT), "{seen}");
    assert_eq!(state, "a=1,b=2");
    let spans = collector.trace_of("/sees.php");
    let script = named(&spans, "script");
    assert_eq!(script.json["spanId"], seen[36..52], "the caller is the span `script`");
    let whole = named(&spans, "GET /sees.php");
    assert_eq!(whole.json["parentSpanId"], PARENT);
    assert_eq!(whole.json["traceState"], "a=1,b=2");
    assert_eq!(script.json["parentSpanId"], whole.json["spanId"]);
    let line = wait::until("the line of the request", || {
        let text = std::fs::read_to_string(&log).ok()?;
        text.lines().next().map(str::to_owned)
    });
    assert_eq!(line, format!("/sees.php trace={TRACE}"));

    // A script's messages name the trace, too.
    let mark = server.log().mark();
    with(server.address(), "/logs.php", &[("traceparent", &parent)]);
    let said = server.expect_log(mark, "from a script");
    assert!(said.contains(&format!("[trace {TRACE}]")), "{said}");

    // What is malformed starts a new trace, and no client notices.
    let corpus = include_str!("../../crates/trace/tests/malformed.txt");
    let plain = corpus.lines().filter(|line| !line.starts_with('#') && line.is_ascii());
    for wrong in plain.filter(|line| !line.starts_with(' ')) {
        let (seen, state) = sees(&server, &[("traceparent", wrong), ("tracestate", "a=1")]);
        assert_eq!((seen.len(), state.as_str()), (55, "-"), "{wrong}");
        assert!(!seen.contains("4bf92f3577b34da6"), "{wrong}: {seen}");
    }
    let twice = [("traceparent", parent.as_str()), ("traceparent", parent.as_str())];
    assert!(!sees(&server, &twice).0.contains(TRACE));
    assert_eq!(sees(&server, &[("traceparent", &parent), ("tracestate", "=,")]).1, "-");
    server.stop();
}

#[test]
fn without_a_section_of_traces_headers_pass_as_they_are() {
    let root = site();
    let server = Setup::new(root.path()).start();
    let parent = format!("00-{TRACE}-{PARENT}-01");
    assert_eq!(sees(&server, &[("traceparent", &parent)]).0, parent);
    assert_eq!(sees(&server, &[("traceparent", "junk")]).0, "junk");
    assert_eq!(sees(&server, &[]), ("-".to_owned(), "-".to_owned()));
    server.stop();
}

#[test]
fn a_collector_gets_the_parts_of_a_request_s_time() {
    let (root, collector) = (site(), Collector::start());
    let lines = format!(
        "endpoint = {:?}\nheaders = \"x-key=a%20b\"\nservice_name = \"shop\"\n\
         resource_attributes = \"deployment.environment.name=test\"\nratio = 1",
        collector.url()
    );
    let server = traced(root.path(), &lines).start();
    assert_eq!(http::get(server.address(), "/sleeps.php?secret=1").text(), "rested");
    let spans = collector.trace_of("/sleeps.php");
    let names: Vec<&str> = spans.iter().map(ReceivedSpan::name).collect();
    assert_eq!(names, ["GET /sleeps.php", "queue", "script", "send"]);
    let whole = named(&spans, "GET /sleeps.php");
    assert_eq!(whole.json["kind"], 2);
    for (name, value) in [
        ("http.request.method", "GET"),
        ("http.response.status_code", "200"),
        ("http.response.body.size", "6"),
        ("server.address", "localhost"),
        ("network.protocol.version", "1.1"),
        ("maitred.selected_for", "ratio"),
    ] {
        assert_eq!(whole.text(name).as_deref(), Some(value), "{name}");
    }
    let of_headers = |text: &str| whole.headers.iter().any(|line| line.eq_ignore_ascii_case(text));
    assert!(of_headers("x-key: a b") && of_headers("content-type: application/json"));
    assert_eq!(whole.resource_text("service.name").as_deref(), Some("shop"));
    assert_eq!(whole.resource_text("deployment.environment.name").as_deref(), Some("test"));
    let script = named(&spans, "script");
    assert_eq!(script.text("maitred.pool").as_deref(), Some("www"));
    let blocked: f64 = script.text("maitred.blocked_ms").unwrap().parse().unwrap();
    assert!(blocked > 250.0 && script.milliseconds() > 290.0, "{script:?}");
    assert!(whole.milliseconds() >= script.milliseconds());
    assert!(!format!("{spans:?}").contains("secret"), "no query is exported");

    // A file has no script.
    http::get(server.address(), "/hello.txt");
    assert_eq!(collector.trace_of("/hello.txt").len(), 1);
    server.stop();
}

#[test]
fn slow_and_failed_requests_are_exported_whatever_the_ratio_is() {
    let (root, collector) = (site(), Collector::start());
    let lines = format!("endpoint = {:?}\nratio = 0\nslow = \"200ms\"", collector.url());
    let server = traced(root.path(), &lines).start();
    let unsampled = format!("00-{TRACE}-{PARENT}-00");
    for (path, status) in
        [("/hello.php", 200), ("/sleeps.php", 200), ("/fails.php", 503), ("/dies.php", 502)]
    {
        let response = with(server.address(), path, &[("traceparent", &unsampled)]);
        assert_eq!(response.status, status, "{path}");
    }
    let selected_for = |path: &str| {
        let spans = collector.trace_of(path);
        let all = spans.iter().find(|span| span.text("url.path").as_deref() == Some(path));
        all.unwrap().text("maitred.selected_for").unwrap()
    };
    assert_eq!(selected_for("/sleeps.php"), "slow");
    assert_eq!(selected_for("/fails.php"), "failed");
    assert_eq!(selected_for("/dies.php"), "failed");
    // A caller that has recorded its span decides for this one.
    let sampled = format!("00-{TRACE}-{PARENT}-01");
    with(server.address(), "/hello.txt", &[("traceparent", &sampled)]);
    collector.trace_of("/hello.txt");
    let all = collector.spans();
    assert!(!all.iter().any(|span| span.text("url.path").as_deref() == Some("/hello.php")));

    // Settings apply with a reload.
    let text = std::fs::read_to_string(server.configuration()).unwrap();
    server.configure_as(&text.replace("ratio = 0", "ratio = 1\nfollow_parent = false"));
    server.reload();
    with(server.address(), "/hello.php", &[("traceparent", &unsampled)]);
    collector.trace_of("/hello.php");
    server.stop();
}

#[test]
fn no_client_notices_a_collector_that_is_down_stuck_or_refuses() {
    let (root, collector, admin) = (site(), Collector::start(), ports::free_address());
    let lines = format!("endpoint = {:?}", collector.url());
    let server = traced(root.path(), &lines).top(&format!("admin = \"{admin}\"")).start();
    let address = server.address();
    let hello = || assert_eq!(http::get(address, "/hello.php").text(), "hello");

    // It refuses: what it has refused is counted and not sent again.
    let mark = server.log().mark();
    collector.respond_with(400);
    hello();
    wait::until_true("the refused spans", || metric(admin, "failed") == 4);
    let said = server.expect_log(mark, "spans are lost");
    assert!(said.contains("responds with status 400"), "{said}");
    assert_eq!((collector.exports(), metric(admin, "exported")), (1, 0));

    // It has no time: the spans are sent again.
    collector.respond_with(503);
    let before = collector.exports();
    hello();
    wait::until_true("an export", || collector.exports() > before);
    collector.respond_with(200);
    wait::until_true("the second attempt", || metric(admin, "exported") == 4);
    server.expect_log(mark, "takes spans again; 4 were lost");

    // It does not respond: the queue is full at last, and spans are dropped.
    collector.be_stuck(true);
    hello();
    wait::until_true("an export", || collector.exports() > before + 2);
    let mut connection = maitred_tests::http::Connection::open(address);
    for _ in 0..4200 {
        let response = connection.ask(&Request::get("/hello.txt")).unwrap();
        assert_eq!(response.status, 200);
    }
    wait::until_true("dropped spans", || metric(admin, "dropped") > 0);
    hello();
    collector.be_stuck(false);
    wait::until_true("the export of the rest", || metric(admin, "exported") > 4000);

    // Nothing listens there.
    let mark = server.log().mark();
    let text = std::fs::read_to_string(server.configuration()).unwrap();
    let nowhere = format!("http://{}", ports::free_address());
    server.configure_as(&text.replace(&collector.url(), &nowhere));
    server.reload();
    hello();
    server.expect_log(mark, "cannot be reached");
    hello();
    server.stop();
}

#[test]
fn a_collector_with_https_is_verified_with_the_ca_file() {
    let (root, collector) = (site(), Collector::start());
    // Another server ends TLS in front of the collector.
    let (authority, at) = (Authority::new("maitred test"), ports::free_address());
    let certificate = authority.issue("otel", &["localhost"]);
    let tls = Setup::new(root.path())
        .tls(at, &[format!("certificates = [{}]", certificate.toml())])
        .site(&format!("proxy = {{ path = \"/*\", to = \"{}\" }}", collector.url()))
        .start();
    let (admin, other) = (ports::free_address(), Authority::new("another"));
    let url = format!("https://localhost:{}", at.port());
    let lines = format!("endpoint = \"{url}\"\nca_file = {:?}", other.ca());
    let server = traced(root.path(), &lines).top(&format!("admin = \"{admin}\"")).start();
    let mark = server.log().mark();
    http::get(server.address(), "/hello.php");
    let said = server.expect_log(mark, "spans are lost");
    assert!(said.contains("cannot be reached over TLS"), "{said}");
    assert_eq!((collector.exports(), metric(admin, "exported")), (0, 0));

    let text = std::fs::read_to_string(server.configuration()).unwrap();
    let (wrong, right) = (format!("{:?}", other.ca()), format!("{:?}", authority.ca()));
    server.configure_as(&text.replace(&wrong, &right));
    server.reload();
    http::get(server.address(), "/sees.php");
    assert_eq!(named(&collector.trace_of("/sees.php"), "script").name(), "script");
    server.stop();
    tls.stop();
}

#[test]
fn a_trace_has_the_lookup_in_the_page_cache_and_the_start_of_a_worker() {
    let (root, collector, admin) = (site(), Collector::start(), ports::free_address());
    let server = traced(root.path(), &format!("endpoint = \"{}\"", collector.url()))
        .pm("ondemand")
        .top(&format!("admin = \"{admin}\""))
        .site("[sites.cache]\nvalid = \"1m\"")
        .start();
    let has = |text: &str| -> ReceivedSpan {
        wait::until("the span of the lookup", || {
            let all = collector.spans().into_iter();
            let mut all = all.filter(|span| span.name() == "cache");
            all.find(|span| span.text("maitred.cache").as_deref() == Some(text))
        })
    };
    assert_eq!(http::get(server.address(), "/sleeps.php").text(), "rested");
    has("MISS");
    let spans = collector.trace_of("/sleeps.php");
    let (queue, boot) = (named(&spans, "queue"), named(&spans, "boot"));
    assert_eq!(boot.json["parentSpanId"], queue.json["spanId"], "{spans:?}");
    assert!(boot.milliseconds() > 0.0 && boot.milliseconds() <= queue.milliseconds(), "{boot:?}");
    let metrics = http::get(admin, "/metrics").text();
    let counted = "maitred_pool_boot_wait_seconds_total{pool=\"www\"} ";
    let seconds = metrics.lines().find_map(|line| line.strip_prefix(counted));
    assert!(seconds.and_then(|text| text.parse::<f64>().ok()) > Some(0.0), "{metrics}");
    assert_eq!(http::get(server.address(), "/sleeps.php").text(), "rested");
    assert!(has("HIT").milliseconds() < 250.0);

    // A worker runs already; one of two requests for a page waits for that of the other.
    let address = server.address();
    let other = std::thread::spawn(move || http::get(address, "/sleeps.php?n=2").text());
    assert_eq!(http::get(address, "/sleeps.php?n=2").text(), "rested");
    assert_eq!(other.join().unwrap(), "rested");
    wait::until_true("a wait for a page", || {
        let all = collector.spans();
        all.iter().any(|span| {
            let waited = span.text("maitred.cache_wait_ms").unwrap_or_default();
            waited.parse::<f64>().is_ok_and(|waited| waited > 0.0)
        })
    });
    server.stop();
}

#[test]
fn a_request_of_a_web_server_over_fastcgi_has_its_spans_as_well() {
    let (root, collector) = (site(), Collector::start());
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("www.sock");
    let server = traced(root.path(), &format!("endpoint = \"{}\"", collector.url()))
        .pool(&format!("listen = {socket:?}"))
        .start();
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let further = [("HTTP_TRACEPARENT", parent.as_str()), ("HTTP_TRACESTATE", "a=1")];
    let mut wire = Wire::connect(&socket);
    let seen = wire.ask(1, &params(root.path(), "/sees.php", &further), b"");
    let (seen, state) = seen.body().split_once('|').map(|(a, b)| (a.to_owned(), b)).unwrap();
    assert!(seen.starts_with(&format!("00-{TRACE}-")) && !seen.contains(PARENT), "{seen}");
    assert_eq!(state, "a=1");
    let spans = collector.trace_of("/sees.php");
    let (whole, script) = (named(&spans, "GET /sees.php"), named(&spans, "script"));
    assert_eq!(
        (&whole.json["parentSpanId"], &script.json["spanId"]),
        (&PARENT.into(), &seen[36..52].into())
    );
    assert_eq!(whole.text("http.response.status_code").as_deref(), Some("200"));
    assert_eq!(whole.text("network.protocol.version"), None, "only the web server knows");

    // A failed one, after a malformed context.
    let further = [("HTTP_TRACEPARENT", "junk"), ("HTTP_TRACESTATE", "a=1")];
    let mut wire = Wire::connect(&socket);
    wire.ask(1, &params(root.path(), "/fails.php?secret=1", &further), b"");
    let spans = collector.trace_of("/fails.php");
    let whole = named(&spans, "GET /fails.php");
    assert_eq!(whole.text("http.response.status_code").as_deref(), Some("503"));
    assert!(whole.json.get("parentSpanId").is_none_or(|id| id == ""), "{whole:?}");
    server.stop();
}
