//! Responses from the page cache equal the script's, for every client and request: errors with a
//! page of the site, codings, headers of the server's own, large pages.

use std::fs;
use std::io::Read;
use std::path::Path;

use maitred_tests::Target;
use maitred_tests::http::{self, Request, Response};
use maitred_tests::http2;
use maitred_tests::outside::page_cache;
use maitred_tests::server::{
    Server, Setup, document_root, give_to_web_user, public_folder, write_file,
};
use maitred_tests::wait;
use tempfile::TempDir;

/// Counts its runs for a path, and says what the query asks for.
const PAGE: &str = "<?php
    $file = __DIR__ . '/runs/' . md5(strtok($_SERVER['REQUEST_URI'], '?'));
    file_put_contents($file, 'x', FILE_APPEND | LOCK_EX);
    clearstatcache();
    $run = filesize($file);
    foreach ($_GET['h'] ?? [] as $header) header($header);
    http_response_code((int) ($_GET['status'] ?? 200));
    echo \"run $run \", str_repeat(\"words and more \", (int) ($_GET['words'] ?? 1));";

fn site() -> TempDir {
    let files = [("index.php", PAGE), ("runs/.keep", ""), ("lost.html", "lost")];
    let root = document_root(&files);
    give_to_web_user(&root.path().join("runs"));
    root
}

fn setup(root: &Path) -> Setup {
    Setup::new(root)
}

fn cached(setup: Setup, lines: &[&str]) -> Setup {
    let setup = setup.site("[sites.cache]\nvalid = { any = \"1d\" }");
    lines.iter().fold(setup, |setup, line| setup.site(line))
}

fn with(server: &Server, method: &str, target: &str, fields: &[(&str, &str)]) -> Response {
    let request = Request::new(method, target).header("Connection", "close");
    let has_host = fields.iter().any(|(name, _)| *name == "Host");
    let host = (!has_host).then_some(("Host", "localhost"));
    let fields = host.iter().chain(fields);
    let request = fields.fold(request, |request, (name, value)| request.header(name, value));
    http::ask(server.address(), &request)
}

fn get(server: &Server, target: &str) -> Response {
    with(server, "GET", target, &[])
}

fn status(answer: &Response) -> &str {
    answer.header("Cache-Status").unwrap_or_default()
}

#[test]
fn a_kept_error_is_answered_as_the_script_answered_it() {
    let root = site();
    let pages = "error_pages = { 404 = \"/lost.html\" }";
    let server = cached(setup(root.path()).site(pages), &[]).start();
    for run in ["first", "again"] {
        let answer = get(&server, "/a?status=404");
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (404, "run 1 words and more "),
            "{run}"
        );
    }
    assert!(status(&get(&server, "/a?status=404")).contains("; hit;"));
    server.stop();
    // Where a page takes its place, it does for all.
    let intercepts = setup(root.path()).site(pages).site("intercept_errors = true");
    let server = cached(intercepts, &[]).start();
    for run in ["first", "again"] {
        let answer = get(&server, "/b?status=404");
        assert_eq!((answer.status, answer.text().as_str()), (404, "lost"), "{run}");
    }
}

#[test]
fn a_page_that_php_has_compressed_is_for_those_who_take_it() {
    let root = site();
    let compresses = "php_admin_value = { \"zlib.output_compression\" = 1 }";
    let server = cached(setup(root.path()).pool(compresses), &[]).start();
    let coding = |fields: &[(&str, &str)]| {
        let answer = with(&server, "GET", "/a?words=50", fields);
        let coding = answer.header("Content-Encoding").map(str::to_owned);
        let body = match coding.as_deref() {
            None => answer.text(),
            Some(_) => {
                let mut text = String::new();
                let mut decoder = flate2::read::GzDecoder::new(&answer.body[..]);
                decoder.read_to_string(&mut text).expect("it is in gzip");
                text
            }
        };
        assert!(body.ends_with("words and more "), "{body}");
        (coding, status(&answer).to_owned())
    };
    let gzip = Some("gzip".to_owned());
    let refuses = [("Accept-Encoding", "gzip;q=0, br")];
    let (sent, said) = coding(&refuses);
    assert!(said.ends_with("detail=encoding"), "{said}");
    assert_eq!(sent, gzip, "PHP looks for the letters and nothing else");
    let (sent, said) = coding(&[("Accept-Encoding", "x-gzip")]);
    assert_eq!((sent, said.contains("; stored;")), (gzip.clone(), true), "{said}");
    let (sent, said) = coding(&[("Accept-Encoding", "gzip")]);
    assert_eq!((sent, said.contains("; hit;")), (gzip, true), "{said}");
    // PHP does not say that this depends on anything, and so all can have it.
    let (sent, said) = coding(&[]);
    assert_eq!((sent, said.contains("; stored;")), (None, true), "{said}");
    assert_eq!(coding(&[]).0, None);
}

#[test]
fn what_the_script_says_of_itself_is_not_said_twice() {
    let root = site();
    let server = cached(setup(root.path()).top("send_request_id = true"), &[]).start();
    for _ in 0..2 {
        let answer = get(&server, "/a?h[]=X-Request-Id:%20mine");
        let ids: Vec<&str> = answer.all("X-Request-Id").collect();
        assert_eq!(ids, ["mine"], "{}", status(&answer));
        let other = get(&server, "/b");
        assert_eq!(other.all("X-Request-Id").count(), 1);
    }
}

#[test]
fn a_large_page_is_kept_compressed_and_read_again_like_a_small_one() {
    let root = site();
    let pages = public_folder();
    give_to_web_user(pages.path());
    let address = maitred_tests::ports::free_address();
    let setup = || {
        let setup = setup(root.path()).top(&format!("cache_dir = {:?}", pages.path()));
        let setup = setup.at(address);
        cached(setup.site("compression = [\"br\"]"), &[])
    };
    let server = setup().start();
    let target = "/a?words=40000";
    let plain = get(&server, target);
    assert!(plain.body.len() > 512 * 1024 && status(&plain).contains("; stored;"));
    let takes = [("Accept-Encoding", "br")];
    // Those who come while it is compressed get it as it is.
    let coded = wait::until("the compressed page", || {
        let answer = with(&server, "GET", target, &takes);
        assert!(status(&answer).contains("; hit;"), "{}", status(&answer));
        let is_coded = answer.header("Content-Encoding") == Some("br");
        assert!(is_coded || answer.body == plain.body);
        is_coded.then_some(answer)
    });
    let mut decoded = Vec::new();
    let mut decoder = brotli::Decompressor::new(&coded.body[..], 4096);
    decoder.read_to_end(&mut decoded).expect("it is in br");
    assert!(decoded == plain.body, "what was compressed is the page");
    server.stop();
    let server = setup().start();
    let again = get(&server, target);
    assert!(status(&again).contains("; hit;"), "{}", status(&again));
    assert!(again.body == plain.body, "it was on disk");
    assert_eq!(page_cache(&server)["corrupt_files"], 0);
}

#[test]
fn an_address_is_purged_however_it_was_written_by_those_who_asked() {
    let root = site();
    let lines =
        ["purge_from = \"127.0.0.1\"", "ignore_parameters = \"utm_*\"", "sort_parameters = true"];
    let server = cached(setup(root.path()).hosts(&["a.example"]), &lines).start();
    let ways = [
        ("a.example", "/news/x?a=1&b=2"),
        ("a.example.", "/news/x?b=2&a=1"),
        ("a.example", "/%6eews/x?a=1&b=2&utm_source=y"),
        ("a.example", "/news//x?a=%31&b=2"),
        ("a.example", "/./news/x?a=1&b=2"),
    ];
    let all = |wanted: &str| {
        for (host, target) in ways {
            let answer = with(&server, "GET", target, &[("Host", host)]);
            let said = status(&answer);
            assert!(said.contains(wanted), "{host}{target}: {said}");
        }
    };
    for (host, purged) in [
        ("A.Example:80", "/news/x?b=2&a=1"),
        ("a.example", "/n%65ws/x?utm_medium=z&a=1&b=2"),
        ("a.example.", "/news/*"),
    ] {
        all("; stored;");
        all("; hit;");
        let other = with(&server, "GET", "/other", &[("Host", "a.example")]);
        assert_eq!(other.text(), "run 1 words and more ");
        let answer = with(&server, "PURGE", purged, &[("Host", host)]);
        let said = answer.text();
        assert!(said.starts_with("dropped: a.example/news/"), "{said}");
        let head = with(&server, "HEAD", ways[0].1, &[("Host", "a.example")]);
        assert!(status(&head).contains("fwd=uri-miss"), "{}", status(&head));
    }
    let files = fs::read_dir(root.path().join("runs")).expect("runs can be listed");
    assert!(files.count() > ways.len());
}

#[test]
fn what_another_cache_says_of_an_answer_comes_before_what_ours_says() {
    let root = site();
    let server = cached(setup(root.path()), &[]).start();
    let target = "/a?h[]=Cache-Status:+Origin;+hit&h[]=ETag:+%22x%22";
    let said = |answer: &Response| -> String {
        let all: Vec<&str> = answer.all("Cache-Status").collect();
        all.join(", ")
    };
    let made = said(&get(&server, target));
    assert!(made.starts_with("Origin; hit, maitred; fwd=uri-miss;"), "{made}");
    for fields in [&[][..], &[("Range", "bytes=0-2")]] {
        let kept = said(&with(&server, "GET", target, fields));
        assert!(kept.starts_with("Origin; hit, maitred; hit;"), "{kept}");
    }
    let url = format!("{}{target}", server.base_url());
    // It names another host, which has pages of its own.
    http2::curl(&["-g", &url]);
    let kept = http2::curl(&["-g", "-D", "-", &url]);
    let lines = kept.lines().filter(|line| line.starts_with("cache-status"));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines[0], "cache-status: Origin; hit", "{kept}");
    assert!(lines[1].starts_with("cache-status: maitred; hit;"), "{kept}");
    // A 304 has none of what was kept but what may have changed (RFC 9110 §15.4.5).
    let same = with(&server, "GET", target, &[("If-None-Match", "\"x\"")]);
    assert_eq!(same.status, 304);
    assert!(said(&same).starts_with("maitred; hit;"), "{}", said(&same));
}

/// What each script of [`htaccess_site`] gets: a name, and the lines for it.
const OF_FILES: [(&str, &str); 6] = [
    ("private", "Header set Cache-Control \"private, no-store\""),
    ("cookie", "Header add Set-Cookie seen=1"),
    ("vary", "Header append Vary X-A"),
    ("expr", "Header set X-B yes \"expr=%{HTTP:X-A} == 'b'\""),
    ("coding", "Header append Vary Accept-Encoding"),
    ("brief", "ExpiresActive on\nExpiresDefault \"access plus 0 seconds\""),
];

fn htaccess_site() -> TempDir {
    let root = site();
    let mut rules =
        "RewriteEngine on\nRewriteCond %{HTTP:X-A} beta\nRewriteRule .* beta.php\n".to_owned();
    for (name, lines) in OF_FILES {
        write_file(root.path(), &format!("{name}.php"), PAGE.as_bytes());
        rules += &format!("<Files {name}.php>\n{lines}\n</Files>\n");
    }
    write_file(root.path(), ".htaccess", rules.as_bytes());
    give_to_web_user(root.path());
    root
}

#[test]
fn a_response_is_stored_by_the_headers_that_htaccess_files_give_it() {
    let root = htaccess_site();
    let server = cached(setup(root.path()).site("htaccess = true"), &[]).start();
    let ask = |name: &str, kind: &str| {
        let fields = [("X-A", kind), ("Accept-Encoding", kind)];
        with(&server, "GET", &format!("/{name}.php"), &fields)
    };
    for (name, why) in [("private", "no-store"), ("cookie", "set-cookie")] {
        for run in 1..3 {
            let response = ask(name, "a");
            assert!(response.text().starts_with(&format!("run {run} ")), "{name}");
            assert!(status(&response).ends_with(&format!("detail={why}")), "{response:?}");
        }
    }
    for name in ["vary", "expr"] {
        for (kind, run) in [("a", 1), ("b", 2), ("a", 1), ("b", 2)] {
            let response = ask(name, kind);
            assert!(response.text().starts_with(&format!("run {run} ")), "{response:?}");
        }
    }
    for name in ["coding", "brief"] {
        for kind in ["gzip", "br", "none"] {
            assert!(ask(name, kind).text().starts_with("run 1 "), "{name} {kind}");
        }
    }
}

#[test]
fn a_page_that_a_changed_htaccess_file_makes_private_is_not_stored_again() {
    let script = "<?php header('ETag: \"a\"'); header('Cache-Control: no-cache');
        if (isset($_SERVER['HTTP_IF_NONE_MATCH'])) { http_response_code(304); exit; }
        echo 'page';";
    let root = document_root(&[("index.php", script), (".htaccess", "\n")]);
    give_to_web_user(root.path());
    let server = cached(setup(root.path()).site("htaccess = true"), &[]).start();
    let detail = |end: &str| {
        let response = get(&server, "/index.php");
        assert_eq!(response.text(), "page");
        assert!(status(&response).contains(end), "{end}: {response:?}");
    };
    detail("; stored");
    detail("; detail=revalidated");
    write_file(root.path(), ".htaccess", b"Header set Cache-Control private\n");
    // The page is still valid for this client, and for no other.
    detail("; detail=revalidated");
    detail("; fwd=uri-miss; fwd-status=200; detail=private");
}

#[test]
fn a_response_is_stored_by_the_headers_of_the_site() {
    let root = site();
    let rules = "headers = [\
         { path = \"/members/*\", set = { Cache-Control = \"private\" } }, \
         { path = \"/kinds/*\", add = { Vary = \"X-A\" } }, \
         { set = { X-Frame-Options = \"DENY\" } }]";
    let server = cached(setup(root.path()).site(rules), &[]).start();
    let ask = |path: &str, kind: &str| with(&server, "GET", path, &[("X-A", kind)]);
    for (path, runs) in [("/members/a", [1, 2, 3]), ("/kinds/a", [1, 2, 1]), ("/a", [1, 1, 1])] {
        for (kind, run) in ["a", "b", "a"].into_iter().zip(runs) {
            let response = ask(path, kind);
            assert!(response.text().starts_with(&format!("run {run} ")), "{response:?}");
        }
    }
    let own = ask("/members/a", "a");
    assert!(status(&own).ends_with("detail=private"), "{own:?}");
}

#[test]
fn a_validated_page_stays_by_a_lifetime_for_the_cache_alone_beside_headers_of_the_site() {
    let script = "<?php header('ETag: \"a\"'); header('X-Accel-Expires: 1');
        header('Cache-Control: private, no-store');
        if (isset($_SERVER['HTTP_IF_NONE_MATCH'])) { http_response_code(304); exit; }
        echo 'page';";
    let root = document_root(&[("index.php", script)]);
    let rules = "headers = { set = { X-Frame-Options = \"DENY\" } }";
    let server = cached(setup(root.path()).site(rules), &[]).start();
    assert!(status(&get(&server, "/index.php")).ends_with("; stored; ttl=1"));
    for _ in 0..2 {
        // The page is stale after a second.
        wait::until_true("a validation", || {
            let response = get(&server, "/index.php");
            assert!(status(&response).starts_with("maitred; hit;"), "{response:?}");
            status(&response).ends_with("; detail=revalidated")
        });
    }
}
