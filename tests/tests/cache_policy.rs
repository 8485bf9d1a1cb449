//! What a site says about its cache, over HTTP/1.1 and HTTP/2, with real PHP.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use maitred_tests::Target;
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user, public_folder};
use maitred_tests::{http2, wait};
use tempfile::TempDir;

/// Says how often it has run for a host and path and what it saw, with the headers in `X-Say` and
/// the status in `X-Status`. What `X-Do` names it does first: wait for the file `go`, sleep, or
/// die.
const PAGE: &str = "<?php
    $file = __DIR__ . '/runs/' . md5($_SERVER['HTTP_HOST'] . strtok($_SERVER['REQUEST_URI'], '?'));
    file_put_contents($file, 'x', FILE_APPEND | LOCK_EX);
    clearstatcache();
    $run = filesize($file);
    switch ($_SERVER['HTTP_X_DO'] ?? '') {
        case 'wait':
            while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); }
            break;
        case 'sleep': sleep(60);
        case 'die': posix_kill(getmypid(), 9);
        case 'fail': nobody_has_defined_this();
    }
    foreach (explode('|', $_SERVER['HTTP_X_SAY'] ?? '') as $line) if ($line !== '') header($line,
        false);
    http_response_code((int) ($_SERVER['HTTP_X_STATUS'] ?? 200));
    if ($_SERVER['REQUEST_METHOD']
        === 'GET') echo \"run $run $_SERVER[REQUEST_URI] $_SERVER[QUERY_STRING]\";
    echo str_repeat(' ', (int) ($_SERVER['HTTP_X_MORE'] ?? 0));";

fn site() -> TempDir {
    let root = document_root(&[("index.php", PAGE), ("runs/.keep", "")]);
    give_to_web_user(&root.path().join("runs"));
    root
}

/// Sites of the same document root, each with lines for its cache.
fn sites(root: &Path, sites: &[(&str, &str)]) -> Setup {
    let mut text = String::new();
    for (index, (host, lines)) in sites.iter().enumerate() {
        if index > 0 {
            let _ =
                write!(text, "[[sites]]\nhosts = [{host:?}]\npool = \"www\"\nroot = {root:?}\n");
        }
        let _ = write!(text, "[sites.cache]\n{lines}\n");
    }
    Setup::new(root).hosts(&[sites[0].0]).site(&text)
}

/// A client that speaks one version of HTTP with a server.
#[derive(Clone, Copy)]
struct Client<'a> {
    server: &'a Server,
    is_http2: bool,
}

/// An answer, as far as these tests look at it.
#[derive(Debug)]
struct Said {
    status: u16,
    head: String,
    text: String,
}

impl Said {
    fn field(&self, name: &str) -> &str {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let named = lines.find(|(field, _)| field.eq_ignore_ascii_case(name));
        named.map_or("", |(_, value)| value)
    }

    fn verdict(&self) -> &str {
        self.field("Cache-Status").trim_start_matches("maitred; ")
    }

    fn is_run(&self, number: u32) -> bool {
        self.text.starts_with(&format!("run {number} "))
    }
}

impl Client<'_> {
    fn both(server: &Server) -> [Client<'_>; 2] {
        [false, true].map(|is_http2| Client { server, is_http2 })
    }

    fn ask(self, method: &str, (host, target): (&str, &str), fields: &[(&str, &str)]) -> Said {
        // The versions share pages: each has paths of its own here.
        let target = format!("/{}{target}", u8::from(self.is_http2) + 1);
        let said = if self.is_http2 {
            let url = format!("{}{target}", self.server.base_url());
            let mut words = vec!["-i".to_owned(), "-H".to_owned(), format!("Host: {host}")];
            words.extend(match method {
                "HEAD" => vec!["--head".to_owned()],
                method => vec!["-X".to_owned(), method.to_owned()],
            });
            for (name, value) in fields {
                words.extend(["-H".to_owned(), format!("{name}: {value}")]);
            }
            words.push(url);
            http2::curl(&words.iter().map(String::as_str).collect::<Vec<_>>())
        } else {
            let request = Request::new(method, &target).header("Host", host);
            let all = fields.iter().chain(&[("Connection", "close")]);
            let request = all.fold(request, |request, (name, value)| request.header(name, value));
            let answer = http::ask(self.server.address(), &request);
            let mut head = format!("HTTP/1.1 {}\r\n", answer.status);
            for (name, value) in &answer.headers {
                let _ = write!(head, "{name}: {value}\r\n");
            }
            format!("{head}\r\n{}", answer.text())
        };
        let (head, text) = said.split_once("\r\n\r\n").expect("an answer has a head");
        let status = head.split(' ').nth(1).and_then(|status| status.trim_end().get(..3));
        Said {
            status: status.and_then(|status| status.parse().ok()).expect("it has a status"),
            head: head.to_owned(),
            text: text.to_owned(),
        }
    }

    fn get(self, at: (&str, &str), fields: &[(&str, &str)]) -> Said {
        self.ask("GET", at, fields)
    }
}

#[test]
fn pages_are_kept_for_as_long_as_the_answer_or_the_site_says() {
    let root = site();
    let server = sites(
        root.path(),
        &[
            ("times", "valid = { 200 = \"10m\", 404 = \"1m\", 410 = 0 }"),
            (
                "ignore",
                "valid = \"10m\"\nignore_headers = [\"Cache-Control\", \"Expires\", \
                        \"Set-Cookie\", \"Vary\", \"X-Accel-Expires\"]",
            ),
            ("guess", "heuristic = true"),
            ("big", "valid = \"10m\"\nmax_object_size = \"1k\""),
            ("off", "valid = \"10m\"\nenabled = false"),
            ("strict", "revalidate = false"),
        ],
    )
    .start();
    for client in Client::both(&server) {
        let said = |host: &str, path: &str, say: &str, status: &str| {
            let said = client.get((host, path), &[("X-Say", say), ("X-Status", status)]);
            said.verdict().to_owned()
        };
        let is = |host: &str, path: &str, say: &str, status: &str, end: &str| {
            let verdict = said(host, path, say, status);
            assert!(verdict.ends_with(end), "{host}{path}: {verdict}");
        };
        is("times", "/a", "", "200", "stored; ttl=600");
        is("times", "/b", "", "404", "stored; ttl=60");
        is("times", "/c", "", "410", "detail=no-store");
        is("times", "/d", "", "301", "detail=no-lifetime");
        is("times", "/e", "Cache-Control: max-age=7", "200", "stored; ttl=7");
        is(
            "times",
            "/f",
            "X-Accel-Expires: 9|Cache-Control: no-cache, max-age=7",
            "200",
            "stored; ttl=9",
        );
        is("times", "/g", "X-Accel-Expires: 9|Cache-Control: max-age=7", "200", "stored; ttl=9");
        // What is said to caches alone counts before what is said to all (RFC 9213).
        is(
            "times",
            "/h",
            "CDN-Cache-Control: max-age=8|Cache-Control: no-store",
            "200",
            "stored; ttl=8",
        );
        is(
            "times",
            "/i",
            "CDN-Cache-Control: no-store|Cache-Control: max-age=7",
            "200",
            "detail=no-store",
        );
        is(
            "times",
            "/j",
            "Maitred-Cache-Control: max-age=5|CDN-Cache-Control: no-store",
            "200",
            "stored; ttl=5",
        );
        let all = "Cache-Control: private|Expires: 0|Set-Cookie: a=b|Vary: *|X-Accel-Expires: 0";
        is("ignore", "/a", all, "200", "stored; ttl=600");
        let old = "Last-Modified: Thu, 01 Jan 2015 00:00:00 GMT";
        is("guess", "/a", old, "200", "stored; ttl=86400");
        is("guess", "/b", "", "200", "detail=no-lifetime");
        is("off", "/a", "", "200", "");
        assert_eq!(said("off", "/a", "", "200"), "");
        is("strict", "/a", "ETag: \"a\"|Cache-Control: no-cache", "200", "detail=no-cache");
        is("times", "/k", "ETag: \"a\"|Cache-Control: no-cache", "200", "stored; ttl=0");
        for run in 1..3 {
            let large = client.get(("big", "/a"), &[("X-More", "2000")]);
            assert!(large.is_run(run), "{large:?}");
            // All of it has come before the header goes, so that does not say that it is kept.
            let verdict = large.verdict();
            assert!(verdict.ends_with("fwd-status=200; detail=too-large"), "{verdict}");
        }
        client.get(("big", "/b"), &[("X-More", "900")]);
        assert!(client.get(("big", "/b"), &[]).verdict().starts_with("hit"));
    }
}

#[test]
fn what_makes_a_difference_is_what_the_site_says() {
    let root = site();
    let server = sites(
        root.path(),
        &[
            (
                "key",
                "valid = \"10m\"\nignore_parameters = \"utm_*\"\nsort_parameters = true\n\
                 key_headers = \"X-Device\"\nkey_cookies = \"currency\"",
            ),
            ("plain", "valid = \"10m\""),
        ],
    )
    .start();
    for client in Client::both(&server) {
        let get = |target: &str, fields: &[(&str, &str)]| client.get(("key", target), fields);
        assert!(get("/a", &[]).is_run(1));
        for (name, value) in [("X-Device", "phone"), ("Cookie", "_ga=b; currency=eur")] {
            let other = get("/a", &[(name, value)]);
            assert!(!other.is_run(1), "{name}: {other:?}");
            assert_eq!(get("/a", &[(name, value)]).text, other.text);
        }
        assert!(get("/a", &[("Cookie", "a=b"), ("X-Other", "1")]).is_run(1));
        // The script sees what is in the key, and nothing else.
        let first = get("/s?b=1&utm_source=x&a=2&a=1", &[]);
        let own = u8::from(client.is_http2) + 1;
        assert_eq!(first.text, format!("run 1 /{own}/s?a=2&a=1&b=1 a=2&a=1&b=1"));
        assert!(first.verdict().ends_with("stored; ttl=600"), "{first:?}");
        for same in ["/s?a=2&a=1&b=1", "/s?utm_source=y&b=1&a=2&a=1&utm_medium=z"] {
            assert_eq!(get(same, &[]).text, first.text, "{same}");
        }
        assert!(get("/s?a=1&a=2&b=1", &[]).is_run(2));
        assert_eq!(get("/t?utm_source=x", &[]).text, format!("run 1 /{own}/t "));
        assert!(get("/t", &[]).verdict().starts_with("hit"));
        // The script of a private or uncacheable response sees the whole query.
        let mine = get("/t?utm_source=x", &[("Cookie", "PHPSESSID=a")]);
        assert_eq!(mine.text, format!("run 2 /{own}/t?utm_source=x utm_source=x"));
        let plain = |target: &str| client.get(("plain", target), &[]);
        assert!(plain("/a?a=1&b=2").is_run(1) && plain("/a?b=2&a=1").is_run(2));
    }
}

#[test]
fn requests_pass_the_cache_by_for_which_the_site_says_so() {
    let root = site();
    let server = sites(
        root.path(),
        &[
            (
                "bypass",
                "valid = \"10m\"\nbypass_cookies = \"nocache_*\"\nbypass_headers = \"X-Refresh\"\n\
                 bypass_paths = [\"/1/live/*\", \"/2/live/*\"]\nbypass_parameters = \"fresh\"\n\
                 bypass_methods = \"HEAD\"",
            ),
            (
                "no-store",
                "valid = \"10m\"\nno_store_cookies = \"probe\"\nno_store_headers = \"X-Probe\"\n\
                 no_store_paths = [\"/1/cart*\", \"/2/cart*\"]\nno_store_parameters = \"s\"",
            ),
            ("uses", "valid = \"10m\"\nmin_uses = 3"),
            ("obey", "valid = \"10m\"\nobey_requests = true"),
        ],
    )
    .start();
    for client in Client::both(&server) {
        let bypass = |target: &str, field: (&str, &str)| client.get(("bypass", target), &[field]);
        let (none, detail) = (("X-None", ""), "fwd=bypass; fwd-status=200; stored; ttl=600");
        let mut run = 1;
        assert!(bypass("/a", none).is_run(run));
        for field in [("Cookie", "nocache_1=a"), ("X-Refresh", "1")] {
            let passed = bypass("/a", field);
            run += 1;
            assert!(passed.is_run(run) && passed.verdict() == detail, "{passed:?}");
            // What was made is kept in place of what was there.
            assert!(bypass("/a", none).is_run(run));
        }
        assert!(bypass("/a", ("X-Refresh", "0")).is_run(run));
        for target in ["/live/a", "/b?fresh=1&a"] {
            for run in 1..3 {
                assert!(bypass(target, none).is_run(run), "{target}");
            }
        }
        let head = client.ask("HEAD", ("bypass", "/a"), &[]);
        assert!(head.verdict().starts_with("fwd=bypass"), "{head:?}");
        let not_kept = |target: &str, field: (&str, &str)| {
            let said = client.get(("no-store", target), &[field]);
            assert!(said.verdict().ends_with("detail=rule"), "{target}: {said:?}");
        };
        not_kept("/a", ("Cookie", "probe=1"));
        not_kept("/a", ("X-Probe", "1"));
        not_kept("/cart/1", none);
        not_kept("/a?s=word", none);
        let uses = || client.get(("uses", "/a"), &[]);
        assert!(uses().verdict().ends_with("detail=min-uses"));
        assert!(uses().verdict().ends_with("detail=min-uses"));
        assert!(uses().verdict().ends_with("stored; ttl=600"));
        assert!(uses().is_run(3));
        let obey =
            |target: &str, wish: &str| client.get(("obey", target), &[("Cache-Control", wish)]);
        let none_kept = obey("/a", "only-if-cached");
        assert_eq!(none_kept.status, 504, "{none_kept:?}");
        assert!(obey("/a", "no-store").verdict().ends_with("detail=request-no-store"));
        assert!(obey("/a", "max-age=9").is_run(2));
        assert!(obey("/a", "only-if-cached").is_run(2));
        assert!(obey("/a", "no-cache").is_run(3));
    }
}

#[test]
fn tags_and_fields_of_others_caches_are_understood_and_no_client_sees_them() {
    let root = site();
    let server = sites(
        root.path(),
        &[(
            "tags",
            "key_cookies = \"currency\"\nlitespeed = true\ntag_headers = \"Surrogate-Key\"\n\
             purge_from = \"127.0.0.1\"",
        )],
    )
    .start();
    for client in Client::both(&server) {
        let get = |target: &str, say: &str| client.get(("tags", target), &[("X-Say", say)]);
        let say = "X-LiteSpeed-Cache-Control: public,max-age=90|X-LiteSpeed-Tag: blog,Po.1|\
                   Surrogate-Key: home news|Cache-Control: no-cache";
        let first = get("/a", say);
        assert!(first.verdict().ends_with("stored; ttl=90"), "{first:?}");
        let hit = get("/a", "");
        assert!(hit.is_run(1), "{hit:?}");
        for answer in [&first, &hit] {
            let names = ["X-LiteSpeed-Tag", "X-LiteSpeed-Cache-Control", "Surrogate-Key"];
            assert!(names.iter().all(|name| answer.field(name).is_empty()), "{answer:?}");
            assert_eq!(answer.field("Cache-Control"), "no-cache");
        }
        get("/purge", "X-LiteSpeed-Purge: tag=Po.1");
        assert!(get("/a", say).is_run(2));
        client.ask("PURGE", ("tags", "/a"), &[("Cache-Groups", "\"news\"")]);
        assert!(get("/a", say).is_run(3));
        let change = [("X-Say", "Cache-Group-Invalidation: \"blog\"")];
        client.ask("POST", ("tags", "/change"), &change);
        assert!(get("/a", say).is_run(4));
        let public = "X-LiteSpeed-Cache-Control: public,max-age=90|X-LiteSpeed-Vary: cookie=";
        for (path, cookie, end) in [("/c", "currency", "stored; ttl=90"), ("/d", "a", "vary-star")]
        {
            let said = get(path, &format!("{public}{cookie}"));
            assert!(said.verdict().ends_with(end), "{said:?}");
        }
        let own = get("/b", "X-LiteSpeed-Cache-Control: private,max-age=90");
        assert!(own.verdict().ends_with("detail=private"), "{own:?}");
        let parts = get("/e", "X-LiteSpeed-Cache-Control: public,max-age=90,esi=on");
        assert!(parts.verdict().ends_with("detail=vary-star"), "{parts:?}");
    }
}

#[test]
fn the_purges_of_litespeeds_plugins_are_carried_out() {
    let root = site();
    let server = sites(root.path(), &[("tags", "litespeed = true")]).start();
    let page = "X-LiteSpeed-Cache-Control: public,max-age=604800|\
                X-LiteSpeed-Tag: 4c8_Po.1,4c8_URL.66,4c8_,PS1_P17";
    for client in Client::both(&server) {
        let get = |target: &str, say: &str| client.get(("tags", target), &[("X-Say", say)]);
        let first = get("/a", page);
        assert!(first.verdict().ends_with("stored; ttl=604800"), "{first:?}");
        assert!(get("/a", page).is_run(1));
        // The plugin for WordPress, of a saved post and of all pages; that for PrestaShop.
        let purges = [
            "-Purge: public,4c8_Po.1,4c8_F,4c8_H",
            "-Purge: public,4c8_;private,4c8_",
            "-Purge2: tag=PS1_P17,tag=PS1_H",
        ];
        for (index, purge) in purges.iter().enumerate() {
            get("/change", &format!("X-LiteSpeed{purge}"));
            let run = u32::try_from(index).unwrap() + 2;
            let page = get("/a", page);
            assert!(page.is_run(run), "{purge}: {page:?}");
        }
    }
}

#[test]
fn a_page_of_one_customer_group_is_for_that_group_alone() {
    let root = site();
    let server = sites(
        root.path(),
        &[
            ("plain", "litespeed = true"),
            ("variants", "litespeed = true\nkey_cookies = \"_lscache_vary\""),
        ],
    )
    .start();
    let say = ("X-Say", "X-LiteSpeed-Cache-Control: public,max-age=90");
    let group = ("Cookie", "currency=2; _lscache_vary=cg~4~");
    for client in Client::both(&server) {
        for run in 1..3 {
            let own = client.get(("plain", "/a"), &[say, group]);
            assert!(own.is_run(run) && own.verdict().ends_with("detail=vary-cookie"), "{own:?}");
        }
        let plain = client.get(("plain", "/a"), &[say]);
        assert!(plain.is_run(3) && plain.verdict().ends_with("stored; ttl=90"), "{plain:?}");
        // The page for all is not the group's either.
        assert!(client.get(("plain", "/a"), &[say, group]).is_run(4));
        for (run, fields) in [(1, &[say, group][..]), (2, &[say])] {
            for _ in 0..2 {
                let page = client.get(("variants", "/a"), fields);
                assert!(page.is_run(run), "{page:?}");
            }
        }
    }
}

/// Stale when it comes, and good enough while another is made.
const WHILE: &str = "Cache-Control: max-age=60, stale-while-revalidate=600|Age: 90";

#[test]
fn nobody_waits_for_a_page_that_will_do_until_there_is_another() {
    let root = site();
    let server = sites(root.path(), &[("now", ""), ("first", "background_update = false")]).start();
    for client in Client::both(&server) {
        let _ = fs::remove_file(root.path().join("go"));
        let slow = [("X-Say", WHILE), ("X-Do", "wait")];
        client.get(("now", "/a"), &[("X-Say", WHILE)]);
        // The script of the first who asks cannot end, and all have an answer.
        let first = client.get(("now", "/a"), &slow);
        assert!(first.is_run(1) && first.verdict().contains("ttl=-30"), "{first:?}");
        assert!(first.verdict().ends_with("detail=updating"), "{first:?}");
        assert!(client.get(("now", "/a"), &slow).is_run(1));
        fs::write(root.path().join("go"), "").unwrap();
        wait::until_true("the new page is kept", || {
            client.get(("now", "/a"), &[("X-Say", WHILE)]).text.starts_with("run 2 ")
        });
        client.get(("first", "/a"), &[("X-Say", WHILE)]);
        assert!(client.get(("first", "/a"), &[("X-Say", WHILE)]).is_run(2));
    }
    // The connection is free for the next request while the page is made.
    let mut connection = Connection::open(server.address());
    let request = Request::new("GET", "/1/b").header("Host", "now").header("X-Say", WHILE);
    for _ in 0..3 {
        connection.send(&request.to_bytes()).unwrap();
        let answer = connection.read_response(false).unwrap();
        assert_eq!(answer.header("Connection"), None, "{answer:?}");
    }
}

#[test]
fn a_stale_page_stands_in_whatever_keeps_the_script_from_answering() {
    let root = site();
    let server = sites(root.path(), &[("stale", "stale_if_error = \"1h\""), ("never", "")])
        .pool("request_terminate_timeout = \"2s\"")
        // Longer than workers that die one after the other are waited for.
        .pool("request_queue_timeout = \"50s\"")
        .start();
    let say = ("X-Say", "Cache-Control: max-age=60|Age: 90|ETag: \"a\"");
    for client in Client::both(&server) {
        for host in ["stale", "never"] {
            assert!(client.get((host, "/a"), &[say]).is_run(1));
        }
        let check = |field: (&str, &str), status: u16| {
            let stale = client.get(("stale", "/a"), &[say, field]);
            assert!(stale.status == 200 && stale.is_run(1), "{field:?}: {stale:?}");
            assert!(stale.verdict().ends_with("detail=error"), "{field:?}: {stale:?}");
            assert_eq!(client.get(("never", "/a"), &[say, field]).status, status, "{field:?}");
        };
        // An answer that is none of the server's faults is an answer.
        client.get(("stale", "/n"), &[say]);
        let none = client.get(("stale", "/n"), &[say, ("X-Status", "404")]);
        assert_eq!(none.status, 404);
        check(("X-Status", "503"), 503);
        check(("X-Do", "fail"), 500);
        check(("X-Do", "sleep"), 504);
        check(("X-Do", "die"), 502);
    }
    server.stop();
    refused_by_the_queue(root.path(), say);
}

/// Both workers are busy, and what waits is refused.
fn refused_by_the_queue(root: &Path, say: (&str, &str)) {
    let _ = fs::remove_file(root.join("go"));
    let server = sites(root, &[("stale", "stale_if_error = \"1h\""), ("never", "")])
        .pool("request_queue_timeout = \"200ms\"")
        .start();
    let clients = Client::both(&server);
    for client in clients {
        client.get(("stale", "/q"), &[say]);
    }
    let before = fs::read_dir(root.join("runs")).unwrap().count();
    std::thread::scope(|scope| {
        for target in ["/w", "/x"] {
            scope.spawn(move || clients[0].get(("never", target), &[("X-Do", "wait")]));
        }
        wait::until_true("both workers are busy", || {
            fs::read_dir(root.join("runs")).unwrap().count() == before + 2
        });
        for client in clients {
            let stale = client.get(("stale", "/q"), &[say]);
            assert!(stale.status == 200 && stale.verdict().ends_with("detail=error"), "{stale:?}");
            assert_eq!(client.get(("never", "/q"), &[say]).status, 503);
        }
        fs::write(root.join("go"), "").unwrap();
    });
}

/// Bytes of all files below a folder, and how many they are.
fn size_of(folder: &Path) -> (u64, usize) {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let sizes = entries.filter_map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => Some(size_of(&entry.path())),
        Ok(meta) => Some((meta.len(), 1)),
        // It was renamed just now.
        Err(_) => None,
    });
    sizes.fold((0, 0), |(bytes, files), (more, count)| (bytes + more, files + count))
}

#[test]
fn the_folder_of_pages_has_no_more_than_it_may_and_what_was_used_last_is_there() {
    let (root, pages) = (site(), public_folder());
    give_to_web_user(pages.path());
    let server = sites(root.path(), &[("a", "valid = \"10m\"")])
        .top(&format!("cache_dir = {:?}", pages.path()))
        .top("cache_max_size = \"1M\"")
        .top("cache_memory = \"1M\"")
        .start();
    let [client, _] = Client::both(&server);
    for page in 0..30 {
        client.get(("a", &format!("/{page}")), &[("X-More", "100000")]);
        client.get(("a", "/0"), &[]);
    }
    let (bytes, files) = size_of(pages.path());
    assert!(bytes <= 1 << 20 && files >= 5, "{bytes} bytes in {files} files");
    assert!(client.get(("a", "/29"), &[]).verdict().starts_with("hit"));
    assert!(client.get(("a", "/0"), &[]).verdict().starts_with("hit"));
    assert!(client.get(("a", "/1"), &[]).verdict().starts_with("fwd=uri-miss"));
}
