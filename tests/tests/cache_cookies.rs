//! Session cookies of an application without a preset, and the page cache.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::process::Command;

use maitred_tests::cached::{get, is_hit, kill_front, pages, status, with};
use maitred_tests::http::{self, Connection, Request, Response};
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user};
use maitred_tests::{Target, maitred_program, wait};
use tempfile::TempDir;

/// Greets a user who is logged in, and sends the public page without caching headers; `/login`
/// logs in by a cookie of its own.
const SHOP: &str = "<?php
    if (str_starts_with($_SERVER['REQUEST_URI'], '/login')) {
        setcookie('shop.user[id]', 'anna', ['path' => '/']); setcookie('lang', 'de');
    }
    echo 'hello ', $_COOKIE['shop_user']['id'] ?? $_COOKIE['old_user'] ?? 'guest';";

/// Counts its runs, and sets the cookies that the query says (`set=NAME`, `many=COUNT` of them).
const COUNTING: &str = "<?php
    $file = __DIR__ . '/runs';
    file_put_contents($file, 'x', FILE_APPEND | LOCK_EX);
    clearstatcache();
    if (isset($_GET['set'])) setcookie($_GET['set'], '1');
    for ($i = 0; $i < (int) ($_GET['many'] ?? 0); $i++) setcookie(\"seen_$i\", '1');
    echo 'run ', filesize($file), ' for ', json_encode($_COOKIE);";

const ANNA: (&str, &str) = ("Cookie", "_ga=1; shop.user[id]=anna");

fn shop(lines: &str) -> (TempDir, Setup) {
    let root = document_root(&[("index.php", SHOP)]);
    give_to_web_user(root.path());
    let setup = Setup::new(root.path()).site(&format!("[sites.cache]\nvalid = \"10m\"\n{lines}"));
    (root, setup)
}

fn counting(lines: &str) -> (TempDir, Setup) {
    let root = document_root(&[("index.php", COUNTING), ("runs", "")]);
    give_to_web_user(root.path());
    give_to_web_user(&root.path().join("runs"));
    let setup = Setup::new(root.path()).site(&format!("[sites.cache]\nvalid = \"10m\"\n{lines}"));
    (root, setup)
}

fn cookie(server: &Server, path: &str, cookie: &str) -> Response {
    with(server, path, &[("Cookie", cookie)])
}

fn anna(server: &Server, path: &str) -> Response {
    with(server, path, &[ANNA])
}

fn is_site_cookie(answer: &Response) -> bool {
    status(answer).contains("fwd=bypass") && status(answer).contains("detail=site-cookie")
}

#[test]
fn whoever_is_logged_in_gets_no_kept_page_and_nobody_gets_hers() {
    let (_root, setup) = shop("");
    let server = setup.start();
    assert_eq!(get(&server, "/page").text(), "hello guest");
    assert!(is_hit(&get(&server, "/page")));
    assert!(get(&server, "/login").header("Set-Cookie").is_some());
    let hers = anna(&server, "/page");
    assert_eq!(hers.text(), "hello anna");
    assert!(is_site_cookie(&hers), "{}", status(&hers));
    // One that was not kept yet, and in the form that PHP takes for the same.
    assert_eq!(anna(&server, "/other").text(), "hello anna");
    let mangled = with(&server, "/page", &[("Cookie", "shop_user[id]=anna")]);
    assert_eq!(mangled.text(), "hello anna");
    for path in ["/page", "/other"] {
        assert_eq!(get(&server, path).text(), "hello guest", "{path}");
    }
    server.stop();
}

#[test]
fn a_cookie_that_an_error_page_sets_keeps_its_requests_out_of_the_cache() {
    let lost = "<?php setcookie('basket', '1'); echo 'lost';";
    let root =
        document_root(&[("index.php", "<?php echo json_encode($_COOKIE);"), ("lost.php", lost)]);
    give_to_web_user(root.path());
    let server = Setup::new(root.path())
        .site("front_controller = \"\"\nerror_pages = { 404 = \"/lost.php\" }")
        .site("[sites.cache]\nvalid = \"10m\"")
        .start();
    assert_eq!(get(&server, "/index.php").text(), "[]");
    assert!(is_hit(&get(&server, "/index.php")));
    let lost = get(&server, "/nothing");
    assert_eq!((lost.status, lost.text().as_str()), (404, "lost"));
    assert!(lost.header("Set-Cookie").is_some());
    let own = cookie(&server, "/index.php", "basket=1");
    assert_eq!(own.text(), r#"{"basket":"1"}"#);
    assert!(is_site_cookie(&own), "{}", status(&own));
    server.stop();
}

#[test]
fn a_page_that_was_asked_for_with_a_cookie_nobody_knows_is_not_kept() {
    let (_root, setup) = shop("");
    let server = setup.start();
    // From before this server: no response has set it.
    let hers = with(&server, "/page", &[("Cookie", "old_user=anna")]);
    assert_eq!(hers.text(), "hello anna");
    assert!(status(&hers).contains("detail=unknown-cookie"), "{}", status(&hers));
    assert_eq!(get(&server, "/page").text(), "hello guest");
    let counted = with(&server, "/page", &[("Cookie", "_ga=GA1.2; _pk_id.1.f=2")]);
    assert!(is_hit(&counted), "{}", status(&counted));
    let first = with(&server, "/new", &[("Cookie", "_ga_X=1")]);
    assert!(status(&first).contains("; stored"), "{}", status(&first));
    server.stop();
}

#[test]
fn a_site_says_which_of_its_cookies_make_no_difference() {
    let (root, setup) = shop("public_cookies = \"lang\"");
    let server = setup.start();
    get(&server, "/login");
    let german = [("Cookie", "lang=de; _ga=1")];
    assert!(status(&with(&server, "/page", &german)).contains("; stored"));
    assert!(is_hit(&with(&server, "/page", &german)));
    assert_eq!(anna(&server, "/page").text(), "hello anna");
    for named in ["private_cookies = \"shop_user*\"", "public_cookies = \"*\""] {
        let lines = format!("[sites.cache]\nvalid = \"10m\"\n{named}");
        server.configure(&Setup::new(root.path()).site(&lines));
        assert!(server.reload().contains("reloaded"));
        // By other rules, the page is stored again.
        assert!(status(&get(&server, "/page")).contains("; stored"), "{named}");
        let other = with(&server, "/page", &[("Cookie", "any=1")]);
        assert!(is_hit(&other), "{named}: {}", status(&other));
    }
    server.stop();
}

#[test]
fn what_a_site_has_set_is_known_after_a_reload_a_dead_front_and_a_restart() {
    let (root, _) = shop("");
    let (_pages, dir) = pages();
    let setup = || {
        let lines = "[sites.cache]\nvalid = \"10m\"";
        Setup::new(root.path()).top(&dir).site(lines)
    };
    let server = setup().start();
    assert_eq!(get(&server, "/page").text(), "hello guest");
    get(&server, "/login");
    assert!(is_site_cookie(&anna(&server, "/page")));
    server.configure(&setup().top("send_request_id = true"));
    assert!(server.reload().contains("reloaded"));
    assert!(is_site_cookie(&anna(&server, "/page")));
    kill_front(&server);
    assert!(is_site_cookie(&anna(&server, "/page")));
    let address = server.address();
    server.stop();
    let server = setup().at(address).start();
    assert_eq!(anna(&server, "/page").text(), "hello anna");
    assert!(is_hit(&get(&server, "/page")), "the page from before is there");
    server.stop();
}

#[test]
fn a_front_that_has_no_folder_learns_of_the_cookies_from_the_one_before() {
    let (_root, setup) = shop("");
    let server = setup.start();
    get(&server, "/login");
    assert!(is_site_cookie(&anna(&server, "/page")));
    kill_front(&server);
    assert_eq!(get(&server, "/page").text(), "hello guest");
    assert!(is_site_cookie(&anna(&server, "/page")));
    server.stop();
}

#[test]
fn another_front_learns_of_cookies_with_names_of_kilobytes() {
    let long = "<?php for ($i = 0; $i < 8; $i++) setcookie($i . str_repeat('x', 9000), '1');";
    let root = document_root(&[("index.php", SHOP), ("long.php", long)]);
    give_to_web_user(root.path());
    let server = Setup::new(root.path()).site("[sites.cache]\nvalid = \"10m\"").start();
    assert_eq!(get(&server, "/long.php").all("Set-Cookie").count(), 8);
    kill_front(&server);
    assert_eq!(get(&server, "/page").text(), "hello guest");
    for name in [0, 7] {
        let own = cookie(&server, "/page", &format!("{name}{}=1", "x".repeat(9000)));
        assert!(is_site_cookie(&own), "{}", status(&own));
    }
    server.stop();
}

/// Length of a name whose report is as long as a message may be, at a site for `localhost`.
const LONGEST_NAME: usize = 65_466;

#[test]
fn the_next_front_survives_a_cookie_of_the_one_that_drains_and_learns_its_name() {
    let late = format!(
        "<?php touch(__DIR__ . '/runs');
         while (!file_exists(__DIR__ . '/go')) {{ clearstatcache(); usleep(2000); }}
         setcookie(str_repeat('x', {LONGEST_NAME}), '1');"
    );
    let root = document_root(&[("index.php", SHOP), ("late.php", &late)]);
    give_to_web_user(root.path());
    let cache = "[sites.cache]\nvalid = \"10m\"";
    let server = Setup::new(root.path()).hosts(&["localhost"]).site(cache).start();
    let mut draining = Connection::open(server.address());
    draining.send(&Request::get("/late.php").to_bytes()).unwrap();
    wait::until_true("the script runs", || root.path().join("runs").exists());
    let old = server.front().expect("a front");
    server.signal(Signal::USR2);
    server.expect_log(0, "upgraded to");
    let mut processes = server.processes().into_iter();
    let is_next = |one: &Process| one.title.starts_with("maitred: front") && *one != old;
    let next = processes.find(is_next).expect("the next front");
    std::fs::write(root.path().join("go"), "").unwrap();
    let late = draining.read_response(false).expect("a response");
    assert!(late.header("Set-Cookie").is_some());
    let own = format!("{}=1", "x".repeat(64));
    wait::until_true("the name to be known", || is_site_cookie(&cookie(&server, "/page", &own)));
    assert!(server.processes().contains(&next));
    server.stop();
}

#[test]
fn check_warns_of_a_cache_that_knows_nobodys_login() {
    let (_root, setup) = shop("");
    let server = setup.start();
    let said = |file: &std::path::Path| {
        let check = Command::new(maitred_program()).args(["check", "--config"]).arg(file).output();
        String::from_utf8_lossy(&check.unwrap().stderr).into_owned()
    };
    let warned = said(&server.configuration());
    assert!(warned.contains("neither `app` nor `private_cookies`"), "{warned}");
    let text = std::fs::read_to_string(server.configuration()).unwrap();
    server.configure_as(&text.replace("valid =", "private_cookies = \"shop_user\"\nvalid ="));
    let warned = said(&server.configuration());
    assert!(!warned.contains("private_cookies"), "{warned}");
    server.stop();
}

#[test]
fn a_cookie_that_the_site_itself_sets_counts_also_if_browsers_set_such_ones() {
    let (_root, setup) = counting("");
    let server = setup.start();
    // Unknown, and of a name that scripts in browsers use.
    assert!(status(&cookie(&server, "/a", "mp_auth=x")).contains("; stored"));
    assert!(is_hit(&cookie(&server, "/a", "mp_auth=y; cookieyes-consent=1")));
    get(&server, "/login?set=mp_auth");
    for path in ["/a", "/b"] {
        let hers = cookie(&server, path, "mp_auth=alice");
        assert!(is_site_cookie(&hers), "{}", status(&hers));
    }
    assert!(!get(&server, "/b").text().contains("alice"));
    let others = "AWSALBCORS=1; cookieyes-consent=1; _cfuvid=1";
    assert!(status(&cookie(&server, "/c", others)).contains("; stored"));
    server.stop();
}

#[test]
fn a_site_with_too_many_names_is_as_others_once_its_settings_say_which_count() {
    let (root, setup) = counting("");
    let server = setup.start();
    get(&server, "/login?set=login");
    get(&server, "/?many=300");
    assert!(is_site_cookie(&cookie(&server, "/a", "any=1")));
    let lines = "[sites.cache]\nvalid = \"10m\"\npublic_cookies = \"seen_*\"";
    server.configure(&Setup::new(root.path()).site(lines));
    assert!(server.reload().contains("reloaded"));
    get(&server, "/a");
    let check = || {
        assert!(is_hit(&cookie(&server, "/a", "any=1")));
        assert!(is_hit(&cookie(&server, "/a", "seen_1=1")));
        assert!(is_site_cookie(&cookie(&server, "/a", "login=1")));
    };
    check();
    // Names that make no difference are not counted.
    get(&server, "/?many=300");
    check();
    kill_front(&server);
    get(&server, "/a");
    check();
    server.stop();
}

#[test]
fn a_site_that_names_its_logins_learns_and_writes_nothing() {
    let (pages, dir) = pages();
    let (_root, setup) = counting("private_cookies = \"login\"");
    let server = setup.top(&dir).start();
    get(&server, "/?many=300");
    assert!(status(&cookie(&server, "/a", "any=1")).contains("; stored"));
    server.stop();
    let file = pages.path().join("cookies");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    assert!(!text.contains("localhost") && !text.contains("*"), "{text}");
}

#[test]
fn a_stale_page_does_for_a_visitor_with_an_unknown_cookie_and_is_made_again_without_it() {
    let lines = "key_cookies = \"size\"\nstale_while_revalidate = \"1h\"\n\
                 background_update = false\npurge_from = \"127.0.0.1\"";
    let (_root, setup) = counting(lines);
    let server = setup.start();
    let first = cookie(&server, "/a", "size=l");
    assert_eq!(first.text(), "run 1 for {\"size\":\"l\"}");
    let purge = Request::new("PURGE", "/a")
        .header("Host", "localhost")
        .header("Soft-Purge", "1")
        .header("Connection", "close");
    assert_eq!(http::ask(server.address(), &purge).status, 200);
    let old = cookie(&server, "/a", "any=anna; size=l");
    assert_eq!(old.text(), first.text());
    assert!(status(&old).contains("updating"), "{}", status(&old));
    wait::until_true("the page is made again", || {
        cookie(&server, "/a", "size=l; any=anna").text() == "run 2 for {\"size\":\"l\"}"
    });
    assert!(is_hit(&cookie(&server, "/a", "size=l")));
    server.stop();
}
