//! The dashboard: who may open it, what its stream says, and how it looks in Chromium.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use maitred_tests::browser::screenshot_folder;
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::outside::{let_go, occupy, site};
use maitred_tests::server::{Server, Setup, give_to_web_user, set_mode, write_file};
use maitred_tests::tls::Authority;
use maitred_tests::{Target, node, ports, project_root, wait};
use serde_json::{Value, json};
use tempfile::TempDir;

const TOKEN: &str = "uHqUJ3tnW6rQ0T1kVbcz";

const VIEWS: [&str; 8] =
    ["pools", "latency", "routes", "sizing", "cache", "errors", "changes", "certificates"];

/// The stream of a dashboard.
struct Events {
    input: BufReader<TcpStream>,
    bytes: usize,
}

impl Events {
    fn open(admin: SocketAddr, query: &str, headers: &str) -> Events {
        let mut stream = TcpStream::connect(admin).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let request =
            format!("GET /dashboard/events{query} HTTP/1.0\r\nHost: localhost\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut events = Events { input: BufReader::new(stream), bytes: 0 };
        let status = events.line();
        assert!(status.contains(" 200 "), "{status}");
        while !events.line().is_empty() {}
        events
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.bytes += self.input.read_line(&mut line).expect("the stream goes on");
        line.trim_end().to_owned()
    }

    /// The next event of this name.
    fn next(&mut self, name: &str) -> Value {
        loop {
            let line = self.line();
            let Some(found) = line.strip_prefix("event: ") else { continue };
            let data = self.line();
            if found == name {
                let data = data.strip_prefix("data: ").expect("an event has data");
                return serde_json::from_str(data).expect("the data is JSON");
            }
        }
    }
}

/// RFC 7396 §2.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, change) in changes {
        match change {
            Value::Null => drop(target.as_object_mut().unwrap().remove(name)),
            change => merge(&mut target[name.as_str()], change),
        }
    }
}

fn start(root: &Path, lines: &str) -> (Server, SocketAddr) {
    let admin = ports::free_address();
    let server = Setup::new(root)
        .top(&format!("admin = \"{admin}\"\n{lines}"))
        // A browser may take its time on a busy machine.
        .pool("request_queue_timeout = \"2m\"")
        .site("\n[sites.cache]\nvalid = \"1m\"")
        .start();
    (server, admin)
}

#[test]
fn the_dashboard_loads_nothing_from_elsewhere_and_is_small() {
    let root = site();
    let (server, admin) = start(root.path(), "");
    let mut bytes = 0;
    for (path, kind) in [
        ("/dashboard", "text/html; charset=utf-8"),
        ("/dashboard/style.css", "text/css; charset=utf-8"),
        ("/dashboard/app.js", "text/javascript; charset=utf-8"),
    ] {
        let zipped = http::ask(admin, &Request::get(path).header("Accept-Encoding", "br, gzip"));
        assert_eq!((zipped.status, zipped.header("content-type")), (200, Some(kind)));
        assert_eq!(zipped.header("content-encoding"), Some("gzip"));
        let policy = zipped.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{policy}");
        bytes += zipped.body.len();
        let plain = http::get(admin, path);
        assert!(plain.header("content-encoding").is_none() && plain.body.len() > zipped.body.len());
        assert!(
            http::ask(admin, &Request::new("HEAD", path).header("Host", "localhost"))
                .body
                .is_empty()
        );
    }
    assert!(bytes < 60 * 1024, "{bytes} bytes");
    assert!(http::get(admin, "/").text().contains("href=\"/dashboard\""));
    assert_eq!(http::get(admin, "/dashboard/other").status, 404);
    assert_eq!(http::get(server.address(), "/dashboard").status, 404, "not for clients");
    server.stop();
}

#[test]
fn the_stream_says_what_changes_and_ends_with_the_server() {
    let root = site();
    let (server, admin) = start(root.path(), "");
    let mut events = Events::open(admin, "?pool=www", "");
    let state = events.next("state");
    assert_eq!(state["pools"]["www"]["seats"], "ii", "{state}");
    assert_eq!(state["server"]["ready"], true);
    assert_eq!(state["sites"][0]["runs"], "pool www");
    events.next("history");
    let _busy = occupy(&server);
    let mut state = state;
    wait::until_true("the busy seat and its script", || {
        let patch = events.next("patch");
        assert!(patch.to_string().len() < 4000, "only what has changed is sent: {patch}");
        merge(&mut state, &patch);
        let seats = state["pools"]["www"]["seats"].as_str().unwrap();
        seats.contains('b') && state["running"][0]["request"] == "GET /wait.php?***"
    });
    let_go(&root);
    let sample = events.next("sample");
    assert!(sample["all"]["requests"].is_u64() && sample["all"]["times"].is_array(), "{sample}");

    // There are four at most without a token, and each is closed when the server stops.
    let others: Vec<Events> = (0..3).map(|_| Events::open(admin, "", "")).collect();
    assert_eq!(http::get(admin, "/dashboard/events").status, 503);
    drop(others);
    wait::until_true("room for another", || {
        let mut one = Connection::open(admin);
        one.send(&Request::get("/dashboard/events").to_bytes()).unwrap();
        one.read_head().unwrap().status == 200
    });
    server.stop();
    let mut rest = String::new();
    while events.input.read_line(&mut rest).unwrap_or(0) > 0 {}
}

#[test]
fn the_dashboard_shows_no_more_than_the_status() {
    let root = site();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, TOKEN).unwrap();
    set_mode(&file, 0o600);
    let (server, admin) = start(root.path(), &format!("admin_token_file = {file:?}"));
    for path in ["/dashboard", "/dashboard/app.js", "/dashboard/events"] {
        let refused = http::get(admin, path);
        assert_eq!(refused.status, 401, "{path}");
        assert!(refused.header("www-authenticate").unwrap().starts_with("Basic "), "{path}");
    }
    let pair = "Basic YW55b25lOnVIcVVKM3RuVzZyUTBUMWtWYmN6";
    let page = http::ask(admin, &Request::get("/dashboard").header("Authorization", pair));
    assert_eq!(page.status, 200);
    let mut events = Events::open(admin, "", &format!("Authorization: Bearer {TOKEN}\r\n"));
    assert_eq!(events.next("state")["server"]["view"], "whole");
    server.stop();

    // Over loopback without a token, query strings may be another tenant's.
    let (server, admin) = start(root.path(), "");
    let mut busy = Connection::open(server.address());
    busy.send(&Request::get("/wait.php?secret=1").to_bytes()).unwrap();
    let mut events = Events::open(admin, "", "");
    let mut seen = events.next("state");
    let running = wait::until("the running script", || {
        let running = seen["running"][0]["request"].as_str().map(str::to_owned);
        if running.is_none() {
            seen = events.next("patch");
        }
        running
    });
    assert_eq!(running, "GET /wait.php?***");
    let_go(&root);
    server.stop();
}

#[test]
fn a_page_of_another_host_cannot_read_the_dashboard() {
    let root = site();
    let (server, admin) = start(root.path(), "");
    for path in ["/dashboard", "/dashboard/events"] {
        let request = Request::new("GET", path).header("Host", "evil.example");
        assert_eq!(http::ask(admin, &request).status, 421, "{path}");
    }
    server.stop();
}

/// A look at the dashboard with Chromium.
fn browse(spec: &Value) -> Value {
    let output = node::command("browse.js").arg(spec.to_string()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn scripts() -> TempDir {
    let root = site();
    write_file(root.path(), "dies.php", b"<?php posix_kill(getmypid(), SIGKILL);");
    write_file(root.path(), "rests.php", b"<?php usleep(30000); echo 'rested';");
    give_to_web_user(root.path());
    root
}

#[test]
fn every_view_is_readable_at_each_width_in_light_and_dark() {
    let root = scripts();
    let admin = ports::free_address();
    let authority = Authority::new("maitred test");
    let certificate = authority.issue("shop", &["shop.example"]);
    let server = Setup::new(root.path())
        .top(&format!("admin = \"{admin}\""))
        .tls(ports::free_address(), &[format!("certificates = [{}]", certificate.toml())])
        .pool("[pools.shop]\npm = \"static\"\nmax_children = 4")
        .site("classic_paths = [\"/rests.php\"]\nclassic_pool = \"shop\"")
        .site("\n[sites.cache]\nvalid = \"1m\"")
        .start();
    assert_eq!(http::get(server.address(), "/dies.php").status, 502);
    let _busy = occupy(&server);
    let (address, over) = (server.address(), Arc::new(AtomicBool::new(false)));
    let traffic: Vec<_> = (0..3)
        .map(|number| {
            let over = over.clone();
            std::thread::spawn(move || {
                // Each page is another one for the page cache.
                for page in 0.. {
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                    http::get(address, &format!("/rests.php?n={number}.{page}"));
                    http::get(address, "/hello.php");
                }
            })
        })
        .collect();
    let folder = screenshot_folder();
    std::fs::create_dir_all(&folder).unwrap();
    let axe = project_root().join("target/tools/axe.min.js");
    assert!(axe.exists(), "scripts/setup-test has not fetched axe-core");
    let found = browse(&json!({
        "url": format!("http://{admin}/dashboard"),
        "views": VIEWS,
        "widths": [1280, 390],
        "schemes": ["light", "dark"],
        "folder": folder,
        "axe": axe,
        "ready": "(history_ && history_.all.some(one => one.scripts > 0))",
    }));
    over.store(true, Ordering::SeqCst);
    traffic.into_iter().for_each(|one| one.join().unwrap());
    assert_eq!(found["errors"], json!([]), "the console");
    let views = found["views"].as_array().unwrap();
    assert_eq!(views.len(), VIEWS.len() * 4);
    let text = |name: &str| {
        let view = views.iter().find(|view| view["view"] == name).unwrap();
        view["text"].as_str().unwrap().to_owned()
    };
    for view in views {
        let name = view["name"].as_str().unwrap();
        assert_eq!(view["violations"], json!([]), "{name}");
        assert!(view["overflow"].as_i64() <= Some(0), "{name} scrolls sideways");
        maitred_tests::picture::assert_not_blank(&folder.join(format!("{name}.png")));
    }
    assert!(text("pools").contains("4/4") || text("pools").contains("/4"), "{}", text("pools"));
    assert!(text("routes").contains("/rests.php"), "{}", text("routes"));
    assert!(text("errors").contains("failed: worker died"), "{}", text("errors"));
    assert!(text("sizing").contains("of the nearest limit"), "{}", text("sizing"));
    assert!(text("changes").contains("serves, as generation"), "{}", text("changes"));
    assert!(text("certificates").contains("shop.example"), "{}", text("certificates"));
    let requests = found["requests"].as_array().unwrap();
    let own = format!("http://{admin}/");
    let is_own = |url: &Value| url.as_str().is_some_and(|url| url.starts_with(&own));
    assert!(requests.iter().all(is_own), "{requests:?}");
    let focused = found["focused"].as_array().unwrap();
    for view in VIEWS {
        assert!(focused.contains(&json!(format!("#{view}"))), "{view}: {focused:?}");
    }
    let (first, axe, all) = (&found["firstView"], &found["inAxe"], &found["took"]);
    eprintln!("first view: {first} ms; {all} ms in all, {axe} ms of them in axe-core");
    let_go(&root);
    server.stop();
}

#[test]
fn the_page_names_what_is_wrong() {
    let root = scripts();
    let (server, admin) = start(root.path(), "");
    let address = server.address();
    // Scripts hang in every worker, and a request waits.
    let busy: Vec<Connection> = (0..3)
        .map(|_| {
            let mut one = Connection::open(address);
            one.send(&Request::get("/wait.php").to_bytes()).unwrap();
            one
        })
        .collect();
    let since = Instant::now();
    let found = browse(&json!({
        "url": format!("http://{admin}/dashboard"),
        "views": ["pools"],
        "pool": "www",
        "widths": [1280],
        "schemes": ["light"],
        "ready": "document.getElementById('findings').innerText.includes('hangs')",
    }));
    assert!(since.elapsed() >= Duration::from_secs(9));
    let text = found["views"][0]["text"].as_str().unwrap();
    assert!(text.contains("www: 2 scripts have run for more than 10 s, in every worker"), "{text}");
    assert!(text.contains("all 2 workers are busy and 1 request waits"), "{text}");
    let_go(&root);
    drop(busy);
    server.stop();
}

/// Requests in a loop until `over`.
fn keep_asking(
    address: SocketAddr,
    host: &'static str,
    path: &'static str,
    over: &Arc<AtomicBool>,
) -> JoinHandle<()> {
    let over = over.clone();
    std::thread::spawn(move || {
        let request = Request::new("GET", path).header("Host", host);
        while !over.load(Ordering::SeqCst) {
            http::ask(address, &request);
        }
    })
}

#[test]
fn a_stranger_finds_too_few_workers_a_full_opcache_and_a_slow_database_on_the_page() {
    let root = site();
    write_file(root.path(), "slow.php", b"<?php usleep(300000); echo 'slow';");
    let numbers: String = (0..6000).map(|number| format!("{number},")).collect();
    for part in 0..100 {
        let text = format!("<?php return [{part}, {numbers}];");
        write_file(root.path(), &format!("parts/{part}.php"), text.as_bytes());
    }
    let loads = b"<?php for ($n = 0; $n < 100; $n++) { require __DIR__ . \"/parts/$n.php\"; }";
    write_file(root.path(), "loads.php", loads);
    give_to_web_user(root.path());
    let admin = ports::free_address();
    let of = |pool: &str| {
        format!("\n[[sites]]\nroot = {:?}\nhosts = [\"{pool}\"]\npool = \"{pool}\"", root.path())
    };
    let server = Setup::new(root.path())
        .top(&format!("admin = \"{admin}\""))
        .pool("[pools.few]\npm = \"static\"\nmax_children = 1")
        .pool("[pools.slow]\npm = \"static\"\nmax_children = 8")
        .pool("[pools.full]\npm = \"static\"\nmax_children = 1\n[pools.full.php_admin_value]")
        .pool("\"opcache.memory_consumption\" = \"8\"")
        .pool("\"opcache.interned_strings_buffer\" = \"1\"")
        .site(&format!("{}{}{}", of("few"), of("slow"), of("full")))
        .start();
    let (address, over) = (server.address(), Arc::new(AtomicBool::new(false)));
    let mut traffic = vec![keep_asking(address, "full", "/loads.php", &over)];
    traffic.extend((0..4).map(|_| keep_asking(address, "few", "/slow.php", &over)));
    traffic.extend((0..4).map(|_| keep_asking(address, "slow", "/slow.php", &over)));
    let shown = "document.getElementById('findings').innerText";
    let sentences =
        ["few: its only worker is busy", "slow: scripts are blocked", "full: OPcache is full"];
    let found = browse(&json!({
        "url": format!("http://{admin}/dashboard"),
        "views": ["pools"],
        "widths": [1280],
        "schemes": ["light"],
        "ready": sentences.map(|one| format!("{shown}.includes({one:?})")).join(" && "),
    }));
    over.store(true, Ordering::SeqCst);
    traffic.into_iter().for_each(|one| one.join().unwrap());
    let text = found["views"][0]["text"].as_str().unwrap();
    assert!(text.contains("more workers would help"), "{text}");
    server.stop();
}
