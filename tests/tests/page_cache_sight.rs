//! The page cache in status, metrics, the access log and `maitred explain`.

use std::fs;

use maitred_tests::Target;
use maitred_tests::http::{self, Request, Response};
use maitred_tests::outside::{command, page_cache, status, text};
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user, public_folder};
use maitred_tests::{ports, wait};

const PAGE: &str = "<?php
    if (isset($_GET['wait'])) {
        file_put_contents(__DIR__ . '/open/began', 'x');
        while (!file_exists(__DIR__ . '/open/go')) { clearstatcache(); usleep(2000); }
    }
    if (isset($_GET['cookie'])) setcookie('a', 'b');
    if (file_exists(__DIR__ . '/open/broken')) { http_response_code(503); exit; }
    if (isset($_GET['etag'])) {
        header('Cache-Control: no-cache');
        header('ETag: \"1\"');
        if (($_SERVER['HTTP_IF_NONE_MATCH'] ?? '') === '\"1\"') { http_response_code(304); exit; }
    }
    if (isset($_GET['old'])) { header('Cache-Control: max-age=10'); header('Age: 20'); }
    usleep(20000);
    echo str_repeat('0123456789', 100);";

fn with(server: &Server, method: &str, target: &str, fields: &[(&str, &str)]) -> Response {
    let request = Request::new(method, target).header("Connection", "close");
    let host = [("Host", "shop.example")];
    let all = host.iter().chain(fields);
    let request = all.fold(request, |request, (name, value)| request.header(name, value));
    http::ask(server.address(), &request)
}

#[test]
fn status_metrics_and_log_tell_the_same_of_each_request() {
    let root = document_root(&[("index.php", PAGE), ("open/.keep", "")]);
    give_to_web_user(&root.path().join("open"));
    let pages = public_folder();
    give_to_web_user(pages.path());
    let logs = public_folder();
    let log = logs.path().join("access.log");
    let listener = ports::free_address();
    let setup = Setup::new(root.path())
        .hosts(&["shop.example"])
        .top(&format!("admin = \"{listener}\""))
        .top(&format!("cache_dir = {:?}", pages.path()))
        .top(&format!("access_log = {log:?}"))
        .top("access_log_format = \"$upstream_cache_status $request_uri\"")
        .site("[sites.cache]\nvalid = \"10m\"\nstale_if_error = \"1h\"\nlock_timeout = \"60s\"")
        .site("purge_from = \"127.0.0.1\"");
    let server = setup.clone().start();
    let get = |target: &str| with(&server, "GET", target, &[]);
    for _ in 0..3 {
        assert_eq!(get("/a").body.len(), 1000);
    }
    get("/b?cookie");
    get("/c?etag");
    assert_eq!(get("/c?etag").status, 200);
    get("/d?old");
    get("/d?old");
    with(&server, "GET", "/a", &[("Cookie", "PHPSESSID=1")]);
    with(&server, "POST", "/x", &[]);
    fs::write(root.path().join("open/broken"), "").unwrap();
    assert_eq!(get("/d?old").status, 200);
    fs::remove_file(root.path().join("open/broken")).unwrap();
    with(&server, "PURGE", "/y", &[]);

    let told = page_cache(&server);
    let site = &told["sites"][0];
    assert_eq!(site["site"], "shop.example", "{told}");
    for (result, count) in [
        ("hit", 2),
        ("stale", 1),
        ("revalidated", 1),
        ("miss", 4),
        ("expired", 1),
        ("bypass", 2),
        ("updating", 0),
    ] {
        assert_eq!(site["requests"][result], count, "{result} in {told}");
    }
    assert_eq!(site["bypasses"]["private-cookie"], 1, "{told}");
    assert_eq!(site["bypasses"]["method"], 1, "{told}");
    assert_eq!(site["not_stored"]["set-cookie"], 1, "{told}");
    assert_eq!(site["not_stored"]["incomplete"], 0, "{told}");
    // A POST drops the page of its address, and PURGE another.
    assert_eq!(site["purges"], 2, "{told}");
    assert_eq!(site["saved_bytes"], 4000, "{told}");
    let saved = site["saved_script_seconds"].as_f64().unwrap();
    // Twice what the page has slept, at least.
    assert!(saved >= 0.04, "{told}");
    assert_eq!(told["memory"]["pages"], 3, "{told}");
    assert_eq!(told["disk"]["pages"], 3, "{told}");
    assert_eq!(told["disk"]["limit_bytes"], 1u64 << 30, "{told}");
    let text = text(&command(&server, &["status"]).stdout);
    for words in ["page cache: memory 3 pages, ", "not stored: 1 set-cookie"] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
    let metrics = http::get(listener, "/metrics").text();
    for line in [
        "maitred_cache_requests_total{site=\"shop.example\",result=\"hit\"} 2",
        "maitred_cache_requests_total{site=\"shop.example\",result=\"stale\"} 1",
        "maitred_cache_bypasses_total{site=\"shop.example\",reason=\"method\"} 1",
        "maitred_cache_not_stored_total{site=\"shop.example\",reason=\"set-cookie\"} 1",
        "maitred_cache_saved_bytes_total{site=\"shop.example\"} 4000",
        "maitred_cache_pages{tier=\"disk\"} 3",
        "maitred_cache_waiting 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in\n{metrics}");
    }
    let lines = wait::until("all lines of the log", || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        (text.lines().count() == 12).then_some(text)
    });
    let logged: Vec<&str> = lines.lines().collect();
    assert_eq!(
        logged,
        [
            "MISS /a",
            "HIT /a",
            "HIT /a",
            "MISS /b?cookie",
            "MISS /c?etag",
            "REVALIDATED /c?etag",
            "MISS /d?old",
            "EXPIRED /d?old",
            "BYPASS /a",
            "BYPASS /x",
            "STALE /d?old",
            "- /y",
        ]
    );

    // While one has a page made, all see that it is and who waits.
    std::thread::scope(|scope| {
        let asking = || with(&server, "GET", "/z?wait", &[]);
        let first = scope.spawn(asking);
        let began = root.path().join("open/began");
        wait::until_true("the page to be made", || began.exists());
        let second = scope.spawn(asking);
        wait::until_true("the other to wait", || {
            let told = page_cache(&server);
            (told["filling"].as_u64(), told["waiting"].as_u64()) == (Some(1), Some(1))
        });
        fs::write(root.path().join("open/go"), "").unwrap();
        for asked in [first, second] {
            assert_eq!(asked.join().unwrap().status, 200);
        }
    });
    assert_eq!(page_cache(&server)["waiting"], 0);

    // Figures go on when the site's settings change.
    let before = page_cache(&server)["sites"][0]["requests"].clone();
    server.configure(&setup.site("max_object_size = \"1M\""));
    let reloaded = server.reload();
    assert!(reloaded.contains("reloaded: "), "{reloaded}");
    assert_eq!(page_cache(&server)["sites"][0]["requests"], before);
    get("/a");
    wait::until_true("one hit more", || {
        let now = page_cache(&server)["sites"][0]["requests"].clone();
        now["hit"].as_u64() == before["hit"].as_u64().map(|hits| hits + 1)
    });
}

#[test]
fn a_server_without_a_cache_tells_of_none() {
    let root = document_root(&[("index.php", PAGE)]);
    let listener = ports::free_address();
    let server = Setup::new(root.path()).top(&format!("admin = \"{listener}\"")).start();
    assert!(status(&server)["page_cache"].is_null());
    assert!(!http::get(listener, "/metrics").text().contains("maitred_cache"));
    let text = text(&command(&server, &["status"]).stdout);
    assert!(!text.contains("CACHE"), "{text}");
}

#[test]
fn explain_says_what_the_cache_would_do() {
    let root = document_root(&[("index.php", PAGE)]);
    let server = Setup::new(root.path())
        .hosts(&["shop.example"])
        .site("[sites.cache]\nvalid = \"10m\"\nstale_if_error = \"1h\"")
        .site("ignore_parameters = \"utm_*\"")
        .start();
    let explain = |arguments: &[&str]| {
        let config = server.configuration();
        let output = std::process::Command::new(maitred_tests::maitred_program())
            .args(["explain", "--config"])
            .arg(config)
            .args(arguments)
            .output()
            .unwrap();
        text(&output.stdout)
    };
    let says = |arguments: &[&str], words: &[&str]| {
        let said = explain(arguments);
        for words in words {
            assert!(said.contains(words), "{words} in\n{said}");
        }
    };
    says(
        &["http://Shop.example:80/a?b=c"],
        &[
            "cache            looks for http://shop.example/a?b=c",
            "the response is cached for as long as it says; or else 600 s for 200, 600 s for 301",
            "stale, it will do for 3600 s when no other can be had (stale_if_error)",
            "private_cookies  with one of PHPSESSID",
        ],
    );
    says(
        &["/a?utm_source=x"],
        &["looks for http://shop.example/a\n", "the script sees the query \"\" instead"],
    );
    says(&["/a", "--header", "Cookie: PHPSESSID=1"], &["bypass (private-cookie): the script runs"]);
    says(&["/a", "--method", "POST"], &["bypass (method)"]);
    says(
        &["/a", "--header", "X-Forwarded-Host: evil.example"],
        &["the response is not cached (unkeyed-header)"],
    );
    // And so it is.
    let poison = with(&server, "GET", "/a", &[("X-Forwarded-Host", "evil.example")]);
    let said = poison.header("Cache-Status").unwrap();
    assert!(said.ends_with("detail=unkeyed-header"), "{said}");
}
