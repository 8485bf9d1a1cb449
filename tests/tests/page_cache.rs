//! The page cache keeps what may be kept, with real PHP behind it, and nothing else.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use maitred_tests::Target;
use maitred_tests::http::{self, Connection, Request, Response};
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user};
use maitred_tests::wait;
use rustix::process::Signal;
use tempfile::TempDir;

/// Counts how often it runs for a path, sends the `h`, `status` and `body` of the query, and
/// waits for the file `go` if the query has `wait`.
const PAGE: &str = "<?php
    $file = __DIR__ . '/runs/' . md5(strtok($_SERVER['REQUEST_URI'], '?'));
    file_put_contents($file, 'x', FILE_APPEND | LOCK_EX);
    clearstatcache();
    $run = filesize($file);
    $wait = isset($_GET['wait']) || file_exists(__DIR__ . '/wait');
    while ($wait && !file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); }
    if (file_exists(__DIR__ . '/gone')) { http_response_code(404); exit; }
    if (file_exists(__DIR__ . '/broken')) { http_response_code(503); echo 'broken'; exit; }
    foreach ($_GET['h'] ?? [] as $header) header($header, false);
    if (isset($_GET['etag'])) {
        header('ETag: \"1\"');
        if (($_SERVER['HTTP_IF_NONE_MATCH'] ?? '') === '\"1\"') { http_response_code(304); exit; }
    }
    http_response_code((int) ($_GET['status'] ?? 200));
    if (isset($_GET['session'])) { session_start(); $_SESSION['a'] = 1; }
    echo $_GET['body'] ?? \"run $run\";";

const MAX_AGE: &str = "h[]=Cache-Control:%20max-age=600";

fn site() -> TempDir {
    let root = document_root(&[("index.php", PAGE), ("runs/.keep", "")]);
    give_to_web_user(&root.path().join("runs"));
    root
}

fn serve(root: &TempDir, lines: &[&str]) -> Server {
    setup(root, lines).start()
}

fn setup(root: &TempDir, lines: &[&str]) -> Setup {
    let setup = Setup::new(root.path()).site("[sites.cache]");
    lines.iter().fold(setup, |setup, line| setup.site(line))
}

fn status(answer: &Response) -> &str {
    answer.header("Cache-Status").unwrap_or_default()
}

fn with(server: &Server, target: &str, fields: &[(&str, &str)]) -> Response {
    let request = Request::get(target).header("Connection", "close");
    let request = fields.iter().fold(request, |request, (name, value)| request.header(name, value));
    http::ask(server.address(), &request)
}

fn get(server: &Server, target: &str) -> Response {
    http::get(server.address(), target)
}

#[test]
fn a_page_is_made_once_and_then_kept() {
    let root = site();
    let server = serve(&root, &[]);
    let target = format!("/a?{MAX_AGE}");
    let first = with(&server, &target, &[]);
    assert_eq!(first.text(), "run 1");
    let stored = "maitred; fwd=uri-miss; fwd-status=200; stored; ttl=600";
    assert_eq!(status(&first), stored);
    let second = get(&server, &target);
    assert_eq!(second.text(), "run 1");
    assert!(status(&second).starts_with("maitred; hit; ttl="), "{}", status(&second));
    assert_eq!(second.header("Date"), first.header("Date"));
    assert_eq!(second.all("Date").count(), 1);
    assert!(second.header("Age").is_some());
    assert_eq!(second.header("Content-Type"), first.header("Content-Type"));
    let head = Request::new("HEAD", &target);
    let head = head.header("Host", "localhost").header("Connection", "close");
    let head = http::ask(server.address(), &head);
    assert_eq!((head.status, head.header("Content-Length")), (200, Some("5")));
}

#[test]
fn what_is_not_for_all_is_made_for_each() {
    let root = site();
    let server = serve(&root, &["valid = \"10m\""]);
    for (target, why) in [
        ("/a?h[]=Cache-Control:%20private", "private"),
        ("/b?h[]=Set-Cookie:%20a=b", "set-cookie"),
        ("/c?session", "no-store"),
        ("/d?h[]=Vary:%20*", "vary-star"),
        ("/e?status=500", "no-lifetime"),
    ] {
        for _ in 0..2 {
            let answer = get(&server, target);
            assert!(status(&answer).ends_with(&format!("detail={why}")), "{}", status(&answer));
        }
        let again = get(&server, target);
        assert_eq!(again.text(), "run 3", "{target}");
    }
    get(&server, "/f");
    let cookie = [("Cookie", "PHPSESSID=1")];
    let own = with(&server, "/f", &cookie);
    assert_eq!(own.text(), "run 2");
    assert_eq!(status(&own), "maitred; fwd=bypass; fwd-status=200; detail=private-cookie");
    assert_eq!(get(&server, "/f").text(), "run 1");
    let poison = with(&server, "/g", &[("X-Forwarded-Host", "evil.example")]);
    assert!(status(&poison).ends_with("detail=unkeyed-header"));
    let password = with(&server, "/f", &[("Authorization", "Basic YTpi")]);
    assert_eq!(password.text(), "run 3");
}

#[test]
fn a_site_without_a_cache_says_nothing_of_one() {
    let root = site();
    let server = Server::start(root.path());
    let target = format!("/a?{MAX_AGE}");
    get(&server, &target);
    let second = get(&server, &target);
    assert_eq!((second.text().as_str(), status(&second)), ("run 2", ""));
}

#[test]
fn a_change_makes_the_page_and_what_the_answer_names_be_made_anew() {
    let root = site();
    let server = serve(&root, &["valid = \"10m\""]);
    for target in ["/a", "/b", "/c"] {
        get(&server, target);
        assert_eq!(get(&server, target).text(), "run 1");
    }
    let post = Request::post("/a?h[]=Location:%20/b&status=303", "text/plain", b"x");
    let answer = http::ask(server.address(), &post.header("Connection", "close"));
    assert_eq!(answer.status, 303);
    // The address with its query is another page.
    assert_eq!(get(&server, "/a").text(), "run 1");
    assert_eq!(get(&server, "/b").text(), "run 2");
    let post = Request::post("/a", "text/plain", b"x").header("Connection", "close");
    assert_eq!(status(&http::ask(server.address(), &post)), "maitred; fwd=method; fwd-status=200");
    assert_eq!(get(&server, "/a").text(), "run 4");
    assert_eq!(get(&server, "/c").text(), "run 1");
}

#[test]
fn groups_are_dropped_together() {
    let root = site();
    let server = serve(&root, &["valid = \"10m\""]);
    let news = "/a?h[]=Cache-Groups:%20%22news%22";
    let other = "/b?h[]=Cache-Groups:%20%22other%22";
    for target in [news, other, news, other] {
        assert_eq!(get(&server, target).text(), "run 1");
    }
    let change = "/change?h[]=Cache-Group-Invalidation:%20%22news%22";
    get(&server, change);
    assert_eq!(get(&server, news).text(), "run 1", "a question changes nothing");
    let post = Request::post(change, "text/plain", b"x").header("Connection", "close");
    http::ask(server.address(), &post);
    assert_eq!(get(&server, news).text(), "run 2");
    assert_eq!(get(&server, other).text(), "run 1");
}

#[test]
fn who_has_the_page_is_told_so_and_who_wants_a_part_gets_it() {
    let root = site();
    let server = serve(&root, &[]);
    let target = format!("/a?{MAX_AGE}&etag&body=0123456789");
    // The script gives all of it, whatever the first who asks has already.
    let first = with(&server, &target, &[("If-None-Match", "\"1\""), ("Range", "bytes=0-1")]);
    assert_eq!((first.status, first.text().as_str()), (200, "0123456789"));
    let has = with(&server, &target, &[("If-None-Match", "\"1\"")]);
    assert_eq!((has.status, has.header("ETag"), has.text().as_str()), (304, Some("\"1\""), ""));
    let part = with(&server, &target, &[("Range", "bytes=2-4")]);
    assert_eq!((part.status, part.text().as_str()), (206, "234"));
    assert_eq!(part.header("Content-Range"), Some("bytes 2-4/10"));
    let none = with(&server, &target, &[("Range", "bytes=20-")]);
    assert_eq!((none.status, none.header("Content-Range")), (416, Some("bytes */10")));
}

#[test]
fn a_page_is_asked_for_again_with_its_own_tag() {
    let root = site();
    let server = serve(&root, &[]);
    let target = "/a?h[]=Cache-Control:%20no-cache&etag";
    assert_eq!(get(&server, target).text(), "run 1");
    let again = get(&server, target);
    // The script has run, and has said that nothing is new.
    assert_eq!((again.status, again.text().as_str()), (200, "run 1"));
    assert!(status(&again).ends_with("detail=revalidated"), "{}", status(&again));
}

#[test]
fn requests_get_the_variant_that_is_theirs() {
    let root = site();
    let server = serve(&root, &["valid = \"10m\""]);
    let target = "/a?h[]=Vary:%20X-Device";
    let as_device = |device: &str| with(&server, target, &[("X-Device", device)]);
    assert_eq!(as_device("phone").text(), "run 1");
    let other = as_device("desktop");
    assert_eq!(other.text(), "run 2");
    assert!(status(&other).starts_with("maitred; fwd=vary-miss"));
    assert_eq!(
        (as_device("phone").text().as_str(), as_device("desktop").text().as_str()),
        ("run 1", "run 2")
    );
}

#[test]
fn many_who_ask_for_one_cold_page_have_it_made_once() {
    let root = site();
    let server = serve(&root, &["lock_timeout = \"60s\""]);
    let target = format!("/a?wait&{MAX_AGE}");
    let texts = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let mut connections = Vec::new();
        for _ in 0..100 {
            let mut connection = Connection::open(server.address());
            connection.send(&Request::get(&target).to_bytes()).unwrap();
            connections.push(connection);
        }
        wait_for_runs(root.path(), "/a", 1);
        fs::write(root.path().join("go"), "").unwrap();
        for mut connection in connections {
            let texts = &texts;
            scope.spawn(move || {
                let answer = connection.read_response(false).unwrap();
                texts.lock().unwrap().push(answer.text());
            });
        }
    });
    let texts = texts.into_inner().unwrap();
    assert_eq!(texts.len(), 100);
    assert!(texts.iter().all(|text| text == "run 1"), "{texts:?}");
}

#[test]
fn a_request_with_credentials_takes_no_lock_from_those_without() {
    let root = site();
    let server = serve(&root, &["lock_timeout = \"60s\""]);
    let target = format!("/a?wait&{MAX_AGE}");
    let send = |request: &Request| {
        let mut connection = Connection::open(server.address());
        connection.send(&request.to_bytes()).unwrap();
        connection
    };
    let mut own = send(&Request::get(&target).header("Authorization", "Basic YTpi"));
    wait_for_runs(root.path(), "/a", 1);
    let others: Vec<Connection> = (0..20).map(|_| send(&Request::get(&target))).collect();
    // The first of the others has it made for all of them, beside the one with credentials.
    wait_for_runs(root.path(), "/a", 2);
    fs::write(root.path().join("go"), "").unwrap();
    let answer = own.read_response(false).unwrap();
    assert!(status(&answer).ends_with("; detail=authorization"), "{}", status(&answer));
    for mut other in others {
        assert_eq!(other.read_response(false).unwrap().text(), "run 2");
    }
    assert!(status(&get(&server, &target)).contains("; hit;"));
}

#[test]
fn a_request_that_keeps_its_own_response_out_leaves_the_lock_to_others() {
    let root = site();
    let server = serve(&root, &["lock_timeout = \"60s\""]);
    let target = format!("/a?{MAX_AGE}&h[]=Vary:%20X-Kind");
    let long = "k".repeat(20_000);
    let own = with(&server, &target, &[("X-Kind", &long)]);
    assert!(status(&own).ends_with("; detail=vary-too-long"), "{}", status(&own));
    fs::write(root.path().join("wait"), "").unwrap();
    let send = |_| {
        let mut connection = Connection::open(server.address());
        connection.send(&Request::get(&target).to_bytes()).unwrap();
        connection
    };
    let others: Vec<Connection> = (0..20).map(send).collect();
    wait_for_runs(root.path(), "/a", 2);
    fs::write(root.path().join("go"), "").unwrap();
    for mut other in others {
        assert_eq!(other.read_response(false).unwrap().text(), "run 2");
    }
}

fn wait_for_runs(root: &Path, path: &str, count: usize) {
    let folder = root.join("runs");
    let has = || {
        let files = fs::read_dir(&folder).expect("runs can be listed");
        let sizes = files.flatten().map(|file| file.metadata().map_or(0, |meta| meta.len()));
        sizes.sum::<u64>() >= count as u64
    };
    wait::until_true(&format!("run {count} for {path}"), has);
}

#[test]
fn a_page_is_kept_although_the_client_who_asked_for_it_has_gone() {
    let root = site();
    let server = serve(&root, &[]);
    let target = format!("/a?wait&{MAX_AGE}");
    let mut connection = Connection::open(server.address());
    connection.send(&Request::get(&target).to_bytes()).unwrap();
    wait_for_runs(root.path(), "/a", 1);
    drop(connection);
    let asks = std::thread::scope(|scope| {
        let waits = scope.spawn(|| get(&server, &target));
        fs::write(root.path().join("go"), "").unwrap();
        waits.join().unwrap()
    });
    assert_eq!(asks.text(), "run 1");
}

#[test]
fn when_the_worker_that_makes_a_page_dies_the_next_who_waits_has_it_made() {
    let root = site();
    let server = serve(&root, &["lock_timeout = \"60s\""]);
    let target = format!("/a?wait&{MAX_AGE}");
    std::thread::scope(|scope| {
        let first = scope.spawn(|| get(&server, &target));
        wait_for_runs(root.path(), "/a", 1);
        let second = scope.spawn(|| get(&server, &target));
        for worker in server.workers() {
            worker.signal(Signal::KILL);
        }
        // The first is over; the second takes its place.
        wait_for_runs(root.path(), "/a", 2);
        fs::write(root.path().join("go"), "").unwrap();
        let answers = [first.join().unwrap(), second.join().unwrap()];
        assert_eq!(answers.map(|answer| answer.status), [502, 200]);
    });
    assert!(status(&get(&server, &target)).contains("; hit;"));
}

#[test]
fn a_stale_page_stands_in_for_an_error() {
    let root = site();
    let server = serve(&root, &["stale_if_error = \"1h\""]);
    let target = "/a?h[]=Cache-Control:%20max-age=600&h[]=Age:%20700";
    // Stale when it comes: it is there for errors alone.
    assert_eq!(get(&server, target).text(), "run 1");
    fs::write(root.path().join("broken"), "").unwrap();
    let stale = get(&server, target);
    assert_eq!((stale.status, stale.text().as_str()), (200, "run 1"));
    assert!(status(&stale).ends_with("detail=error"), "{}", status(&stale));
    fs::remove_file(root.path().join("broken")).unwrap();
    assert_eq!(get(&server, target).text(), "run 3");
}

#[test]
fn pages_on_disk_are_there_after_a_front_was_killed_and_after_a_restart() {
    let root = site();
    let pages = maitred_tests::server::public_folder();
    give_to_web_user(pages.path());
    let dir = format!("cache_dir = {:?}", pages.path());
    let address = maitred_tests::ports::free_address();
    let of_files = || setup(&root, &["valid = \"10m\""]).top(&dir);
    let server = of_files().at(address).start();
    for target in ["/a", "/b"] {
        assert_eq!(get(&server, target).text(), "run 1");
    }
    let post = Request::post("/b", "text/plain", b"x").header("Connection", "close");
    http::ask(server.address(), &post);
    let mark = server.log().mark();
    server.front().unwrap().signal(Signal::KILL);
    server.expect_log(mark, "front");
    wait::until_true("the page is found again", || {
        http::try_ask(server.address(), &Request::get("/a").header("Connection", "close"))
            .is_ok_and(|answer| status(&answer).contains("; hit;"))
    });
    assert_eq!(get(&server, "/b").text(), "run 3");
    server.stop();
    let server = of_files().at(address).start();
    assert_eq!(get(&server, "/a").text(), "run 1");
    assert_eq!(get(&server, "/b").text(), "run 3");
}

#[test]
fn parameters_that_make_no_difference_are_seen_by_no_script() {
    let root = site();
    let server = serve(&root, &["valid = \"10m\"", "ignore_parameters = \"utm_*\""]);
    let first = get(&server, "/a?utm_body=x&utm_source=x");
    assert!(status(&first).ends_with("; stored; ttl=600"));
    assert_eq!(get(&server, "/a").text(), "run 1");
    assert_eq!(get(&server, "/a?utm_source=y").text(), "run 1");
}

#[test]
fn a_host_that_is_written_in_another_way_makes_no_page() {
    let root = site();
    let server = serve(&root, &["valid = \"10m\""]);
    let of = |host: &str| {
        let request = Request::new("GET", "/a").header("Host", host);
        http::ask(server.address(), &request.header("Connection", "close"))
    };
    for host in ["localhost:80", "LocalHost"] {
        let answer = of(host);
        assert!(status(&answer).ends_with("; detail=unkeyed-header"));
    }
    assert!(status(&of("localhost")).ends_with("; stored; ttl=600"));
    for host in ["localhost:80", "LocalHost", "localhost"] {
        assert_eq!(of(host).text(), "run 3", "{host}");
    }
}

#[test]
fn what_a_trusted_proxy_passes_on_is_part_of_the_key() {
    let root = site();
    let server =
        setup(&root, &["valid = \"10m\""]).top("trusted_proxies = [\"127.0.0.1\"]").start();
    const PROTO: (&str, &str) = ("X-Forwarded-Proto", "https");
    let evil = with(&server, "/a", &[PROTO, ("X-Forwarded-Host", "evil.example")]);
    assert!(status(&evil).ends_with("; stored; ttl=600"));
    assert_eq!(with(&server, "/a", &[PROTO]).text(), "run 2");
    assert_eq!(with(&server, "/a", &[PROTO]).text(), "run 2");
    let port = with(&server, "/a", &[PROTO, ("X-Forwarded-Port", "444")]);
    assert_eq!(port.text(), "run 3");
    let said = with(&server, "/b", &[PROTO, ("Forwarded", "host=evil.example")]);
    assert!(status(&said).ends_with("; detail=unkeyed-header"));
}

#[test]
fn a_cookie_that_php_takes_for_one_of_the_keys_makes_no_page() {
    let root = site();
    let lines = ["valid = \"10m\"", "key_cookies = [\"my_lang\"]"];
    let server = serve(&root, &lines);
    for cookie in [
        "my.lang=xx",
        "my_lang[]=xx",
        "my lang=xx",
        "my[lang=xx",
        "my.lang[]=xx; my_lang=de",
        "my_lang=de; my.lang[]=xx",
        "my lang[a]=xx",
    ] {
        let answer = with(&server, "/a", &[("Cookie", cookie)]);
        assert!(status(&answer).ends_with("; detail=unkeyed-header"), "{cookie}");
    }
    let answer = with(&server, "/a", &[("Cookie", "my_lang=de")]);
    assert!(status(&answer).ends_with("; stored; ttl=600"));
}

#[test]
fn purge_is_refused_and_runs_no_script_where_nobody_may() {
    let root = site();
    let server = serve(&root, &["valid = \"10m\""]);
    assert_eq!(get(&server, "/a").text(), "run 1");
    let request = Request::new("PURGE", "/a").header("Host", "localhost");
    let refused = http::ask(server.address(), &request.header("Connection", "close"));
    assert_eq!(refused.status, 403);
    assert!(refused.text().starts_with("403 Forbidden\nAccess to this page is denied.\n"));
    let kept = get(&server, "/a");
    assert_eq!(kept.text(), "run 1");
    assert!(status(&kept).starts_with("maitred; hit; "));
}

#[test]
fn no_page_outlives_a_time_without_a_cache() {
    let root = site();
    let server = serve(&root, &["valid = \"10m\""]);
    assert_eq!(get(&server, "/a").text(), "run 1");
    assert_eq!(get(&server, "/a").text(), "run 1");
    server.configure(&Setup::new(root.path()));
    assert!(server.reload().contains("reloaded"));
    assert_eq!(get(&server, "/a").text(), "run 2");
    server.configure(&setup(&root, &["valid = \"10m\""]));
    assert!(server.reload().contains("reloaded"));
    assert_eq!(get(&server, "/a").text(), "run 3");
}

#[test]
fn a_page_that_is_there_no_more_is_not_shown_in_place_of_its_404() {
    let root = site();
    fs::write(root.path().join("404.html"), "not here").unwrap();
    let server = Setup::new(root.path())
        .site("error_pages = { \"404\" = \"/404.html\" }")
        .site("intercept_errors = true")
        .site("[sites.cache]")
        .site("stale_if_error = \"1h\"")
        .start();
    let target = "/a?h[]=Cache-Control:%20max-age=600&h[]=Age:%20700";
    assert_eq!(get(&server, target).text(), "run 1");
    fs::write(root.path().join("gone"), "").unwrap();
    let answer = get(&server, target);
    assert_eq!((answer.status, answer.text().as_str()), (404, "not here"));
}

#[test]
fn streams_of_http2_are_answered_from_the_cache_as_well() {
    let root = site();
    let server = serve(&root, &["valid = \"10m\""]);
    let url = format!("http://{}/a", server.address());
    let ask = || maitred_tests::http2::curl(&["--http2-prior-knowledge", "-si", &url]);
    assert!(ask().contains("; stored; ttl=600"));
    let said = ask();
    assert!(said.trim_end().ends_with("run 1"), "{said}");
    assert!(said.contains("cache-status: maitred; hit; ttl="), "{said}");
}

#[test]
fn who_may_purges_addresses_prefixes_and_groups_and_nobody_else_does() {
    let root = site();
    let server = serve(&root, &["valid = \"10m\"", "purge_from = \"127.0.0.1\""]);
    let grouped = "/c?h[]=Cache-Groups:%20%22g%22";
    let pages = ["/a", "/b/1", "/b/2", grouped];
    for target in pages {
        assert_eq!(get(&server, target).text(), "run 1");
    }
    let purge = |target: &str, fields: &[(&str, &str)]| {
        let request = Request::new("PURGE", target).header("Host", "localhost");
        let request =
            fields.iter().fold(request, |request, (name, value)| request.header(name, value));
        http::ask(server.address(), &request.header("Connection", "close"))
    };
    let purged = purge("/a", &[]);
    assert_eq!((purged.status, purged.text().as_str()), (200, "dropped: localhost/a\n"));
    let now = || pages.map(|target| get(&server, target).text());
    assert_eq!(now(), ["run 2", "run 1", "run 1", "run 1"]);
    purge("/b/*", &[]);
    assert_eq!(now(), ["run 2", "run 2", "run 2", "run 1"]);
    purge("/", &[("Cache-Groups", "\"g\"")]);
    assert_eq!(now(), ["run 2", "run 2", "run 2", "run 2"]);
    server.stop();
    let server = serve(&root, &["purge_from = \"192.0.2.1\""]);
    let purge = Request::new("PURGE", "/a").header("Host", "localhost");
    assert_eq!(http::ask(server.address(), &purge).status, 403);
}

#[test]
fn a_page_is_sent_in_the_coding_that_each_client_takes() {
    let root = site();
    let server = serve(&root, &["valid = \"10m\""]);
    let text = "a page ".repeat(500);
    let target = format!("/a?body={}", text.replace(' ', "%20"));
    for coding in ["gzip", "br", "gzip", "br", "zstd"] {
        let answer = with(&server, &target, &[("Accept-Encoding", coding)]);
        assert_eq!(answer.header("Content-Encoding"), Some(coding));
        assert_eq!(answer.header("Vary"), Some("Accept-Encoding"));
        assert!(answer.body.len() < text.len() / 4, "{}", answer.body.len());
    }
    let plain = get(&server, &target);
    assert_eq!((plain.text(), plain.header("Content-Encoding")), (text, None));
    assert_eq!(plain.header("Vary"), Some("Accept-Encoding"));
    assert!(status(&plain).contains("; hit;"));
    let part = [("Accept-Encoding", "gzip"), ("Range", "bytes=0-5")];
    assert_eq!(with(&server, &target, &part).text(), "a page");
}

#[test]
fn an_answer_that_is_shorter_than_it_says_is_not_kept() {
    let root = site();
    let server = serve(&root, &["valid = \"10m\""]);
    let target = "/a?h[]=Content-Length:%20200&body=short";
    for runs in 1..3 {
        let request = Request::get(target).header("Connection", "close");
        let _ = http::try_ask(server.address(), &request);
        wait_for_runs(root.path(), "/a", runs);
    }
}

#[test]
fn no_site_sees_or_drops_anothers_pages() {
    let root = site();
    let other = site();
    let lines = format!(
        "[sites.cache]\nvalid = \"10m\"\n[[sites]]\nhosts = [\"b.example\"]\npool = \"www\"\n\
         root = {:?}\n[sites.cache]\nvalid = \"10m\"",
        other.path()
    );
    let server = Setup::new(root.path()).hosts(&["a.example"]).site(&lines).start();
    let at = |method: &str, host: &str, target: &str| {
        let request = Request::new(method, target).header("Host", host);
        http::ask(server.address(), &request.header("Connection", "close"))
    };
    let grouped = "/a?h[]=Cache-Groups:%20%22g%22";
    for host in ["a.example", "b.example", "a.example", "b.example"] {
        assert_eq!(at("GET", host, grouped).text(), "run 1");
    }
    at("DELETE", "a.example", "/x?h[]=Cache-Group-Invalidation:%20%22g%22");
    assert_eq!(at("GET", "a.example", grouped).text(), "run 2");
    assert_eq!(at("GET", "b.example", grouped).text(), "run 1");
    assert_eq!(at("GET", "A.example:80", grouped).text(), "run 2");
}
