//! The dashboard: who may open it, what its stream says, and how it looks in Chromium.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::io::BufRead;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use maitred_tests::browser::{axe, browse, screenshot_folder};
use maitred_tests::dashboard_events::{Events, merge};
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::outside::{let_go, occupy, site};
use maitred_tests::redis::Redis;
use maitred_tests::server::{Server, Setup, give_to_web_user, set_mode, write_file};
use maitred_tests::tls::Authority;
use maitred_tests::{Target, ports, wait};
use serde_json::{Value, json};
use tempfile::TempDir;

const TOKEN: &str = "uHqUJ3tnW6rQ0T1kVbcz";

const VIEWS: [&str; 10] = [
    "pools",
    "latency",
    "routes",
    "requests",
    "sizing",
    "cache",
    "errors",
    "changes",
    "certificates",
    "nodes",
];

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

    // Another site's page, in a browser on this machine, opens none.
    for from in ["cross-site", "same-site"] {
        let request = Request::get("/dashboard/events").header("Sec-Fetch-Site", from);
        assert_eq!(http::ask(admin, &request).status, 403);
    }

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
fn a_slow_or_failed_request_can_be_opened_and_shows_no_secret() {
    let root = site();
    write_file(
        root.path(),
        "fails.php",
        b"<?php error_log('the database is gone'); http_response_code(500); echo 'no';",
    );
    write_file(root.path(), "sleeps.php", b"<?php function rests() { usleep(2500000); } rests();");
    give_to_web_user(root.path());
    let folder = tempfile::tempdir().unwrap();
    let (file, slowlog) = (folder.path().join("token"), folder.path().join("slow.log"));
    std::fs::write(&file, TOKEN).unwrap();
    set_mode(&file, 0o600);
    let admin = ports::free_address();
    let start = |token: &str| {
        Setup::new(root.path())
            .top(&format!("admin = \"{admin}\"\n{token}"))
            .pool(&format!("request_slowlog_timeout = \"1s\"\nslowlog = {slowlog:?}"))
            .site("\n[traces]\nendpoint = \"off\"")
            .start()
    };
    let server = start(&format!("admin_token_file = {file:?}"));
    let (address, token) = (server.address(), format!("Bearer {TOKEN}"));
    let mut events = Events::open(admin, "", &format!("Authorization: {token}\r\n"));
    let mut state = events.next("state");
    let secret = Request::get("/fails.php?secret=1").header("Cookie", "secret=2");
    assert_eq!(http::ask(address, &secret).status, 500);
    assert_eq!(http::get(address, "/sleeps.php").status, 200);
    http::get(address, "/hello.php");
    wait::until_true("both requests and the stack", || {
        merge(&mut state, &events.next("patch"));
        let requests = state["requests"].as_object().map_or(0, serde_json::Map::len);
        requests == 2 && state["stacks"].as_object().is_some_and(|all| all.len() == 1)
    });
    let requests = state["requests"].as_object().unwrap();
    let number = |name: &str| {
        let found = requests.iter().find(|(_, row)| row[2] == name);
        found.unwrap_or_else(|| panic!("{name} in {requests:?}")).0.clone()
    };
    let stack = state["stacks"].as_object().unwrap().values().next().unwrap().to_string();
    assert!(stack.contains("usleep()") && stack.contains("rests() "), "{stack}");
    let detail = |name: &str| {
        let path = format!("/dashboard/request?n={}", number(name));
        let response = http::ask(admin, &Request::get(&path).header("Authorization", &token));
        assert_eq!(response.header("cache-control"), Some("no-store"));
        (response.json(), response.text())
    };
    let (failed, text) = detail("GET /fails.php");
    assert!(!text.contains("secret"), "{text}");
    assert_eq!((&failed["status"], &failed["pool"]), (&json!(500), &json!("www")));
    assert_eq!(failed["lines"], json!(["the database is gone"]));
    assert_eq!(failed["trace"].as_str().map(str::len), Some(32));
    let (slow, _) = detail("GET /sleeps.php");
    assert!(slow["took"].as_f64() > Some(2400.0) && slow["blocked"].as_f64() > Some(2400.0));
    let path = format!("/dashboard/request?n={}", number("GET /fails.php"));
    assert_eq!(http::get(admin, &path).status, 401);
    let other = Request::get("/dashboard/request?n=99").header("Authorization", &token);
    assert_eq!(http::ask(admin, &other).status, 404);
    server.stop();

    // Over loopback without a token, log lines may hold another's secrets.
    let server = start("");
    assert_eq!(http::get(server.address(), "/fails.php").status, 500);
    let shown = http::get(admin, "/dashboard/request?n=0").json();
    assert_eq!((&shown["status"], &shown["lines"]), (&json!(500), &json!([])));
    server.stop();
}

#[test]
fn cached_pages_are_purged_with_the_token_for_that_alone() {
    let root = site();
    let folder = tempfile::tempdir().unwrap();
    let token_file = |name: &str, token: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, token).unwrap();
        set_mode(&file, 0o600);
        file
    };
    let purge_token = "p3rG4-t0kEn-0f-tHe-dAshb0ard";
    let (seen, purges) = (token_file("token", TOKEN), token_file("purge", purge_token));
    let lines = format!("admin_token_file = {seen:?}\nadmin_purge_token_file = {purges:?}");
    let (server, admin) = start(root.path(), &lines);
    let address = server.address();
    for _ in 0..300 {
        assert_eq!(http::get(address, "/hello.php?n=1").status, 200);
    }
    let token = format!("Bearer {TOKEN}");
    let pages = || {
        let request = Request::get("/dashboard/pages").header("Authorization", &token);
        http::ask(admin, &request).json()
    };
    let url = pages()[0][1].as_str().expect("a page was sent often").to_owned();
    assert!(url.ends_with("/hello.php?n=1") && pages()[0][2].as_u64() > Some(15), "{}", pages());
    assert_eq!(http::get(admin, "/dashboard/pages").status, 401);
    let purge = |method: &str, sent: Option<&str>| {
        let path = format!("/dashboard/purge?url={}", url.replace('?', "%3F"));
        let request = Request::new(method, &path).header("Host", "localhost");
        let request = request.header("Authorization", &token);
        let sent = sent.map(|sent| request.clone().header("X-Maitred-Purge-Token", sent));
        http::ask(admin, &sent.unwrap_or(request)).status
    };
    assert_eq!((purge("POST", None), purge("POST", Some(TOKEN))), (403, 403));
    assert_eq!(purge("GET", Some(purge_token)), 405);
    assert_eq!(pages()[0][1], url.as_str());
    assert_eq!(purge("POST", Some(purge_token)), 200);
    assert_eq!(pages(), json!([]));
    server.stop();

    let (server, admin) = start(root.path(), "");
    assert_eq!(http::get(admin, "/dashboard/pages").status, 404, "addresses have queries");
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
    let redis = Redis::start();
    let node = |name: &str| {
        format!("purge_log = {{ url = \"unix:{}\", node = {name:?} }}", redis.socket().display())
    };
    let link = "admin_url = \"https://node2.example:9180\"";
    let other = Setup::new(root.path()).top(&node("node2")).top(link).start();
    let server = Setup::new(root.path())
        .top(&format!("admin = \"{admin}\"\n{}", node("node1")))
        .tls(ports::free_address(), &[format!("certificates = [{}]", certificate.toml())])
        .pool("[[pools.www.schedules]]\nname = \"tidy\"\nevery = \"1h\"\ncommand = [\"true\"]")
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
    let found = browse(&json!({
        "url": format!("http://{admin}/dashboard"),
        "views": VIEWS,
        "widths": [1280, 390],
        "schemes": ["light", "dark"],
        "folder": folder,
        "axe": axe(),
        "ready": "(history_ && history_.all.some(one => one.scripts > 0)) && nodes().length === 2",
        "evaluate": ["document.querySelector('#node-rows a').href"],
        "open": { "requests": {
            "click": "#request-rows button",
            "until": "document.querySelector('#request h3')",
        } },
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
    assert!(text("requests").contains("GET /dies.php"), "{}", text("requests"));
    assert!(text("requests").contains("request id"), "{}", text("requests"));
    assert!(text("sizing").contains("of the nearest limit"), "{}", text("sizing"));
    assert!(text("changes").contains("serves, as generation"), "{}", text("changes"));
    assert!(text("changes").contains("www/tidy\tschedule"), "{}", text("changes"));
    assert!(text("certificates").contains("shop.example"), "{}", text("certificates"));
    let nodes = text("nodes");
    assert!(nodes.contains("node1 (this node)") && nodes.contains("node2"), "{nodes}");
    assert_eq!(found["values"][0], "https://node2.example:9180/dashboard");
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
    other.stop();
}

/// Whether the memory of a pool looks like a leak: one that leaks, one that gets more workers, one
/// that gets fewer beside its zygote, one whose memory was measured before its workers came, and
/// one that leaks while it gets fewer workers.
const LEAKS: &str = "(() => {
    const before = history_;
    const leaks = (memory, workers) => {
        const sample = n => ({ at: n * 1e4, memory: memory(n) * 2 ** 20, workers: workers(n) });
        history_ = { all: [], pool: [...Array(20).keys()].map(sample) };
        return memoryGrowth('www') !== null;
    };
    const found = [
        leaks(n => 40 + 20 * n, () => 4),
        leaks(n => 20 * (n + 1), n => n + 1),
        leaks(n => n < 10 ? 200 : 60, n => n < 10 ? 9 : 1),
        leaks(n => n < 6 ? 40 : 400, n => n < 5 ? 2 : 20),
        leaks(n => (n < 10 ? 8 : 4) * (40 + 10 * n), n => n < 10 ? 8 : 4),
    ];
    history_ = before;
    return found;
})()";

/// What is shown of certificates when more have failed than are listed.
const CERTIFICATES: &str = "(() => {
    const before = state;
    state = { certificates: [{ names: ['a.example'], until: 2e9 }], hidden_failures: 3 };
    draw.certificates();
    state = before;
    return document.getElementById('certificates').textContent;
})()";

/// What is shown of other nodes: of one that is silent, of several, of those that a node lists that
/// does not reach the purge log, and that what is wrong here comes first.
const ELSEWHERE: &str = "(() => {
    const before = state;
    const node = (name, more) => ({ name, ready: true, ...more });
    const here = { here: true };
    const found = (list, problem) => {
        state = { ...before, nodes: { list, problem } };
        draw.pools();
        const all = [...document.querySelectorAll('#findings li')].map(one => one.textContent);
        const first = all.findIndex(text => text.startsWith('www: '));
        return [first, ...elsewhere().map(one => one.text)];
    };
    const silent = ['b', 'c'].map(name => node(name, { silent: 20 }));
    const unready = node('d', { ready: false, reason: 'a pool is starting' });
    const all = [
        found([node('a', here), silent[0], unready]),
        found([node('a', here), ...silent]),
        found([node('a', here), ...silent], 'no connection'),
        found([node('a', { ...here, silent: 20 }), ...silent]),
    ];
    state = before;
    return all;
})()";

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
        "evaluate": [LEAKS, CERTIFICATES, ELSEWHERE],
    }));
    assert!(since.elapsed() >= Duration::from_secs(9));
    let text = found["views"][0]["text"].as_str().unwrap();
    assert!(text.contains("www: 2 scripts have run for more than 10 s, in every worker"), "{text}");
    assert!(text.contains("all 2 workers are busy and 1 request waits"), "{text}");
    assert_eq!(found["values"][0], json!([true, false, false, false, true]));
    let certificates = found["values"][1].as_str().unwrap();
    let failed = "3 more certificates could not be got";
    assert!(certificates.contains(failed) && certificates.contains("may have failed"));
    let deaf = json!([0, "the purge log is not reached: how other nodes are is not known here."]);
    let expected = json!([
        [0, "node b: silent for 20 s.", "node d: not ready: a pool is starting."],
        [0, "2 nodes are silent: b, c."],
        deaf,
        deaf,
    ]);
    assert_eq!(found["values"][2], expected);
    let_go(&root);
    drop(busy);
    server.stop();
}
