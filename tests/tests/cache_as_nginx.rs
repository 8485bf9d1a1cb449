//! The page cache does what nginx's `fastcgi_cache` does that is set up to the same, as the guide's
//! page for those who come from there says.

use std::fs;
use std::time::{Duration, Instant};

use maitred_tests::http::{self, Request, Response};
use maitred_tests::imported::import;
use maitred_tests::outside::text;
use maitred_tests::peer::PeerSetup;
use maitred_tests::server::{Setup, document_root, give_to_web_user, public_folder};
use maitred_tests::{Target, project_root, wait};
use tempfile::TempDir;

/// Says how often it has run for a path, with the headers in `X-Say` and the status in `X-Status`.
const PAGE: &str = "<?php
    $file = __DIR__ . '/runs/' . md5($_SERVER['REQUEST_URI']);
    file_put_contents($file, 'x', FILE_APPEND | LOCK_EX);
    clearstatcache();
    foreach (explode('|', $_SERVER['HTTP_X_SAY'] ?? '') as $line) if ($line !== '') header($line,
        false);
    http_response_code((int) ($_SERVER['HTTP_X_STATUS'] ?? 200));
    echo 'run ', filesize($file);";

const NGINX: &[&str] = &[
    "fastcgi_cache pages;",
    "fastcgi_cache_key $scheme$request_method$host$request_uri;",
    "fastcgi_cache_valid 10m;",
    "fastcgi_cache_valid 404 1m;",
    "fastcgi_cache_bypass $cookie_fresh $http_x_refresh $arg_fresh;",
    "fastcgi_no_cache $cookie_probe $http_x_probe $arg_probe;",
    "fastcgi_cache_use_stale error timeout invalid_header updating http_500 http_503;",
    "fastcgi_cache_background_update on;",
    "fastcgi_cache_revalidate on;",
    "fastcgi_cache_lock on;",
    "add_header X-Cache $upstream_cache_status always;",
];

const MAITRED: &[&str] = &[
    "[sites.cache]",
    "valid = { 200 = \"10m\", 301 = \"10m\", 302 = \"10m\", 404 = \"1m\" }",
    // nginx caches responses to requests with any cookie.
    "public_cookies = \"*\"",
    "bypass_cookies = \"fresh\"",
    "bypass_headers = \"X-Refresh\"",
    "bypass_parameters = \"fresh\"",
    "no_store_cookies = \"probe\"",
    "no_store_headers = \"X-Probe\"",
    "no_store_parameters = \"probe\"",
    "stale_if_error = \"1h\"",
    "stale_while_revalidate = \"1h\"",
];

/// Requests in order: headers of the response, in `X-Say` and `X-Status`; then targets. Each
/// begins with a target; what follows are headers.
const CASES: &[(&str, &str, &[&[&str]])] = &[
    ("", "200", &[&["/a"], &["/a"], &["/a?x"], &["/a?x"]]),
    ("", "301", &[&["/b"], &["/b"]]),
    ("", "404", &[&["/c"], &["/c"]]),
    ("", "403", &[&["/d"], &["/d"]]),
    ("Cache-Control: max-age=60", "403", &[&["/e"], &["/e"]]),
    ("Cache-Control: max-age=0", "200", &[&["/f"], &["/f"]]),
    ("Cache-Control: no-store", "200", &[&["/g"], &["/g"]]),
    ("Cache-Control: private, max-age=60", "200", &[&["/h"], &["/h"]]),
    ("Expires: Thu, 01 Dec 1994 16:00:00 GMT", "200", &[&["/i"], &["/i"]]),
    ("Expires: Wed, 01 Dec 2094 16:00:00 GMT", "404", &[&["/j"], &["/j"]]),
    ("Set-Cookie: a=b", "200", &[&["/k"], &["/k"]]),
    ("X-Accel-Expires: 0", "200", &[&["/l"], &["/l"]]),
    ("X-Accel-Expires: 60|Cache-Control: no-store", "200", &[&["/m"], &["/m"]]),
    ("X-Accel-Expires: @4000000000", "403", &[&["/n"], &["/n"]]),
    ("Vary: *", "200", &[&["/o"], &["/o"]]),
    (
        "Vary: X-Device",
        "200",
        &[
            &["/p", "X-Device: phone"],
            &["/p", "X-Device: desktop"],
            &["/p", "X-Device: phone"],
            &["/p", "X-Device: desktop"],
        ],
    ),
    (
        "",
        "200",
        &[
            &["/q"],
            &["/q", "Cookie: a=b; fresh=1"],
            &["/q"],
            &["/q", "X-Refresh: 1"],
            &["/q", "X-Refresh: 0"],
            &["/q?fresh=1"],
            &["/q?fresh=1"],
        ],
    ),
    (
        "",
        "200",
        &[
            &["/r", "Cookie: probe=1"],
            &["/r", "X-Probe: 1"],
            &["/r", "X-Probe: 0"],
            &["/r", "X-Probe: 1"],
            &["/r?probe=1"],
            &["/r?probe=1"],
        ],
    ),
];

fn site() -> TempDir {
    let root = document_root(&[("index.php", PAGE), ("runs/.keep", "")]);
    give_to_web_user(&root.path().join("runs"));
    root
}

fn ask(server: &impl Target, words: &[&str], say: &str, status: &str) -> Response {
    let fields = words[1..].iter().filter_map(|field| field.split_once(": "));
    let all = [("Connection", "close"), ("X-Say", say), ("X-Status", status)];
    let request = fields
        .chain(all)
        .fold(Request::get(words[0]), |request, (name, value)| request.header(name, value));
    http::ask(server.address(), &request)
}

/// What the cache did, in nginx's words; an old page is one whether it is being made again or not.
fn word(answer: &Response) -> String {
    if let Some(word) = answer.header("X-Cache") {
        return word.replace("UPDATING", "STALE");
    }
    let said = answer.header("Cache-Status").unwrap_or_default();
    let is = |text: &str| said.contains(text);
    let word = match () {
        () if is("detail=updating") || is("detail=error") => "STALE",
        () if is("; hit") => "HIT",
        () if is("fwd=bypass") => "BYPASS",
        () if is("fwd=stale") => "EXPIRED",
        () => "MISS",
    };
    word.to_owned()
}

#[test]
fn the_cache_does_what_nginxs_does() {
    let (root, other, pages) = (site(), site(), public_folder());
    give_to_web_user(pages.path());
    let maitred = Setup::new(root.path());
    let maitred = MAITRED.iter().fold(maitred, |setup, line| setup.site(line)).start();
    let zone = format!("fastcgi_cache_path {}/pages keys_zone=pages:1m;", pages.path().display());
    let nginx = PeerSetup::new(other.path()).http(&zone);
    let nginx = NGINX.iter().fold(nginx, |setup, line| setup.http(line)).start();
    for (say, status, requests) in CASES {
        for words in *requests {
            let (ours, theirs) =
                (ask(&maitred, words, say, status), ask(&nginx, words, say, status));
            let of = |answer: &Response| (answer.status, answer.text(), word(answer));
            assert_eq!(of(&ours), of(&theirs), "{say:?} {words:?}: {ours:?}");
        }
    }
    // A page that is old will do while it is made again, and when it cannot be.
    let say = "X-Accel-Expires: 1";
    let both = |status: &str| {
        let answers = [ask(&maitred, &["/old"], say, status), ask(&nginx, &["/old"], say, status)];
        answers.map(|answer| (answer.status, answer.text(), word(&answer)))
    };
    for (status, text) in both("200").map(|(status, text, _)| (status, text)) {
        assert_eq!((status, text.as_str()), (200, "run 1"));
    }
    let stored = Instant::now();
    wait::until_true("the pages are old", || stored.elapsed() > Duration::from_secs(2));
    for said in both("503") {
        assert_eq!(said, (200, "run 1".to_owned(), "STALE".to_owned()));
    }
}

/// `[sites.cache]` as the import of the usual recipe for WordPress writes it.
fn imported() -> String {
    let folder = public_folder();
    let [nginx, fpm] = ["nginx.conf", "fpm.conf"].map(|name| folder.path().join(name));
    let guide = project_root().join("tests/fixtures/nginx-guides/wordpress-cache.conf");
    let server = fs::read_to_string(guide).expect("it can be read");
    let server = server.replace("LISTEN", "8080").replace("FPM", "/run/www.sock");
    let server = server.replace("ROOT", "/srv");
    fs::write(&nginx, format!("events {{}}\nhttp {{\n{server}\n}}\n")).expect("it can be written");
    fs::write(&fpm, "[www]\nlisten = /run/www.sock\npm = static\npm.max_children = 3\n")
        .expect("it can be written");
    let toml = text(&import(&nginx, &fpm).stdout);
    let (_, section) = toml.split_once("[sites.cache]").unwrap_or_else(|| panic!("{toml}"));
    format!("[sites.cache]{}", section.split("\n[").next().unwrap_or_default())
}

#[test]
fn by_the_imported_recipe_no_page_of_a_logged_in_visitor_is_stored_or_served() {
    let root = site();
    let server = Setup::new(root.path()).site(&imported()).start();
    let detail = |path: &str, cookie: &str| {
        let answer = ask(&server, &[path, &format!("Cookie: {cookie}")], "", "200");
        assert_eq!(answer.status, 200);
        answer.header("Cache-Status").unwrap_or_default().to_owned()
    };
    let private =
        ["wp-postpass_x=1", "wordpress_logged_in_0a=1", "comment_author=x", "PHPSESSID=1"];
    for (number, cookie) in private.into_iter().enumerate() {
        let path = format!("/{number}");
        let seen = detail(&path, cookie);
        assert!(seen.contains("private-cookie"), "{cookie}: {seen}");
        assert!(!detail(&path, "lang=de").contains("; hit"), "{cookie}");
        assert!(detail(&path, "lang=de").contains("; hit"), "{cookie}");
        assert!(!detail(&path, cookie).contains("; hit"), "{cookie}");
    }
    for path in ["/wp-admin/a", "/de/feed/", "/wp-login.php", "/a?b"] {
        detail(path, "lang=de");
        assert!(!detail(path, "lang=de").contains("; hit"), "{path}");
    }
    server.stop();
}
