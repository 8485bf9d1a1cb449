//! What a client could do to the pages of others: each request here would have a page kept that its
//! key says nothing of, or had once.

use std::net::SocketAddr;

use maitred_tests::Target;
use maitred_tests::cached::{is_hit, setup, site, status};
use maitred_tests::http::{self, Request, Response};
use maitred_tests::ports;
use maitred_tests::server::{Server, Setup, document_root, write_file};

fn at(address: SocketAddr, method: &str, target: &str, fields: &[(&str, &str)]) -> Response {
    let request =
        Request::new(method, target).header("Host", "localhost").header("Connection", "close");
    let request = fields.iter().fold(request, |request, (name, value)| request.header(name, value));
    http::ask(address, &request)
}

fn with(server: &Server, target: &str, fields: &[(&str, &str)]) -> Response {
    at(server.address(), "GET", target, fields)
}

fn is_unkeyed(answer: &Response) -> bool {
    status(answer).ends_with("; detail=unkeyed-header")
}

#[test]
fn what_is_never_kept_of_a_script_is_not_kept_with_a_path_behind_it() {
    let root = site();
    let account = b"<?php echo 'account of ', $_COOKIE['who'] ?? 'guest';";
    write_file(root.path(), "account.php", account);
    let server = setup(&root, &["no_store_paths = [\"/account.php\"]"]).start();
    for target in ["/account.php", "/account.php/style.css"] {
        // A visitor who follows a link sees his own account, and no other visitor does.
        let own = with(&server, target, &[("Cookie", "who=anna")]);
        assert_eq!(own.text(), "account of anna", "{target}");
        let other = with(&server, target, &[]);
        assert_eq!(other.text(), "account of guest", "{target}");
        let says = status(&other);
        assert!(says.ends_with("; detail=rule"), "{target}: {says}");
    }
}

#[test]
fn a_cookie_that_php_reads_otherwise_than_the_key_makes_no_page() {
    let root = site();
    let lines = ["key_cookies = [\"lang\"]", "public_cookies = \"*\""];
    let server = setup(&root, &lines).start();
    let many = "x=;".repeat(1000);
    let many = format!("{many} lang=de");
    for cookie in ["lang =de; lang=fr", "lang\t=de; lang=fr", "lang= de", "lang=de ; a=b", &many] {
        let answer = with(&server, "/a", &[("Cookie", cookie)]);
        assert!(is_unkeyed(&answer), "{cookie}: {}", status(&answer));
    }
    let german = with(&server, "/a", &[("Cookie", "a=b;  lang=de")]);
    assert!(status(&german).ends_with("; stored; ttl=600"));
    // It does no harm to be answered with what is kept.
    assert!(is_hit(&with(&server, "/a", &[("Cookie", "lang=de ; a=b")])));
}

#[test]
fn a_cookie_in_an_array_makes_a_page_only_if_php_has_what_the_key_has() {
    let script =
        "<?php $lang = $_COOKIE['prefs']['lang'] ?? 'none'; $first = $_COOKIE['list'][0] ?? 'none';
        echo is_string($lang) ? $lang : json_encode($lang), ' ', $first;";
    let root = document_root(&[("index.php", script)]);
    let key = "key_cookies = [\"prefs[lang]\", \"list[0]\"]";
    let server = setup(&root, &[key, "public_cookies = \"*\""]).start();
    for (cookie, shown) in [
        ("prefs[lang][a]=evil", "{\"a\":\"evil\"} none"),
        ("prefs[lang]x=evil", "evil none"),
        ("prefs[lang][=evil", "evil none"),
        ("prefs[lang]=de; prefs[lang]=evil", "evil none"),
        ("prefs[lang]=de; prefs[lang]]=evil", "evil none"),
        ("list[]=evil", "none evil"),
        ("list[ ]=evil", "none evil"),
        ("list=evil", "none e"),
    ] {
        let answer = with(&server, "/a", &[("Cookie", cookie)]);
        assert_eq!(answer.text(), shown, "what PHP makes of {cookie}");
        assert!(is_unkeyed(&answer), "{cookie}: {}", status(&answer));
    }
    for (cookie, shown) in [
        ("prefs[lang]=de; prefs[theme]=dark", "de none"),
        ("prefs[lang]=fr; list[0]=a; prefs[ lang]=x", "fr a"),
        ("prefs[theme]=dark", "none none"),
    ] {
        for is_kept in [false, true] {
            let answer = with(&server, "/a", &[("Cookie", cookie)]);
            assert_eq!(answer.text(), shown, "{cookie}");
            assert_eq!(is_hit(&answer), is_kept, "{cookie}: {}", status(&answer));
        }
    }
    assert_eq!(with(&server, "/a", &[]).text(), "none none");
}

#[test]
fn a_session_in_an_array_is_one_however_its_cookie_is_written() {
    let root = site();
    let server = setup(&root, &["private_cookies = \"user[id]\""]).start();
    for cookie in ["user[id]=1", "user[id]x=1", "user[id][=1", "user[id][a]=1"] {
        let answer = with(&server, "/a", &[("Cookie", cookie)]);
        let said = status(&answer);
        assert!(said.ends_with("; detail=private-cookie"), "{cookie}: {said}");
    }
    let other = with(&server, "/a", &[("Cookie", "user[theme]=1")]);
    assert!(status(&other).ends_with("; stored; ttl=600"));
}

#[test]
fn who_comes_to_another_port_makes_no_page_for_those_who_come_to_this_one() {
    let root = document_root(&[("index.php", "<?php echo $_SERVER['SERVER_PORT'];")]);
    let (address, other) = (ports::free_address(), ports::free_address());
    let both = format!("listen = [\"{address}\", \"{other}\"]");
    let server = Setup::new(root.path())
        .at(address)
        .listen(&both)
        .site("[sites.cache]\nvalid = \"10m\"\npurge_from = \"127.0.0.1\"")
        .start();
    for round in 0..2 {
        for to in [other, address] {
            let answer = at(to, "GET", "/a", &[]);
            assert_eq!(answer.text(), to.port().to_string());
            assert_eq!(is_hit(&answer), round > 0);
        }
    }
    // It is one address all the same.
    assert_eq!(at(address, "PURGE", "/a", &[]).status, 200);
    for to in [other, address] {
        assert!(!is_hit(&at(to, "GET", "/a", &[])));
    }
    server.stop();
}

#[test]
fn what_a_forwarded_says_beside_addresses_is_part_of_the_key() {
    let root = site();
    let server = setup(&root, &[])
        .top("trusted_proxies = [\"127.0.0.1\"]\ntrusted_headers = [\"Forwarded\"]")
        .start();
    let run = |said: &str| with(&server, "/a", &[("Forwarded", said)]).text();
    const OF_PROXY: &str = "for=192.0.2.1;proto=https;host=localhost";
    assert_eq!(run(OF_PROXY), "run 1 ");
    let elsewhere = "for=\"[2001:db8::1]:4711\", for=192.0.2.2;by=_me;proto=https;host=localhost";
    assert_eq!(run(elsewhere), "run 1 ");
    let evil = ["host=evil.example", "proto=http", "for=\"x;host=evil.example\""];
    for (count, made_up) in (2..).zip(evil) {
        let told = format!("{made_up}, {OF_PROXY}");
        assert_eq!(run(&told), format!("run {count} "), "{made_up}");
    }
    for malformed in ["for=host=evil.example", "evil.example"] {
        let line = format!("{malformed}, {OF_PROXY}");
        let refused = with(&server, "/a", &[("Forwarded", &line)]);
        assert_eq!(refused.status, 400, "{malformed}");
    }
    assert_eq!(run(OF_PROXY), "run 1 ");
}

#[test]
fn what_proxies_say_is_part_of_the_key_in_whatever_order_fields_come() {
    const PART: (&str, &str) = ("X-Requested-With", "XMLHttpRequest");
    const TRUSTED: &str = "trusted_proxies = [\"127.0.0.1\"]";
    let trusts_forwarded = format!("{TRUSTED}\ntrusted_headers = [\"Forwarded\"]");
    for (top, of_proxy, evil) in [
        (TRUSTED, ("X-Forwarded-Proto", "http"), ("X-Forwarded-Host", "evil.example")),
        (
            &trusts_forwarded,
            ("Forwarded", "for=192.0.2.1;proto=http"),
            ("Forwarded", "host=evil.example"),
        ),
    ] {
        let root = site();
        let lines = ["key_headers = [\"X-Requested-With\"]"];
        let server = setup(&root, &lines).top(top).start();
        let fields = [PART, evil, of_proxy];
        for (target, order) in [("/a", [0, 1, 2]), ("/b", [1, 0, 2]), ("/c", [1, 2, 0])] {
            let made_up = with(&server, target, &order.map(|at| fields[at]));
            assert!(status(&made_up).ends_with("; stored; ttl=600"), "{evil:?}");
            for fields in [[PART, of_proxy], [of_proxy, PART]] {
                let answer = with(&server, target, &fields);
                assert_eq!(answer.text(), "run 2 ", "{evil:?} {target}");
            }
            assert_eq!(with(&server, target, &[of_proxy]).text(), "run 3 ");
        }
    }
}

#[test]
fn a_forwarded_by_a_stranger_makes_no_page() {
    let root = site();
    let server = setup(&root, &[])
        .top("trusted_proxies = [\"192.0.2.7\"]\ntrusted_headers = [\"Forwarded\"]")
        .start();
    let answer = with(&server, "/a", &[("Forwarded", "host=evil.example")]);
    assert!(is_unkeyed(&answer), "{}", status(&answer));
}

#[test]
fn what_is_asked_for_as_a_part_makes_no_page_unless_the_key_has_that() {
    const PART: (&str, &str) = ("X-Requested-With", "XMLHttpRequest");
    let root = site();
    let server = setup(&root, &[]).start();
    const CERTIFICATE: (&str, &str) = ("X-Forwarded-Tls-Client-Cert-Info", "Subject=\"CN=anna\"");
    let unkeyed = [
        ("X-Api-Key", "1"),
        ("HX-Request", "true"),
        ("turbo-frame", "list"),
        ("Cart-Token", "1"),
        CERTIFICATE,
        PART,
    ];
    for part in unkeyed {
        let answer = with(&server, "/a", &[part]);
        assert!(is_unkeyed(&answer), "{part:?}: {}", status(&answer));
    }
    let whole = with(&server, "/a", &[]);
    assert_eq!(whole.text(), "run 7 ", "{}", status(&whole));
    let lines = ["key_headers = [\"X-Requested-With\", \"X-Forwarded-Host\"]"];
    let server = setup(&root, &lines).start();
    for (count, field) in [(8, PART), (9, ("X-Forwarded-Host", "other.example"))] {
        let part = with(&server, "/a", &[field]);
        assert_eq!(part.text(), format!("run {count} "));
        assert!(status(&part).ends_with("; stored; ttl=600"));
    }
    assert_eq!(with(&server, "/a", &[]).text(), "run 10 ");
    assert_eq!(with(&server, "/a", &[PART]).text(), "run 8 ");
    // Another such header is as it was.
    let two = with(&server, "/b", &[PART, ("X-Original-URL", "/evil")]);
    assert!(is_unkeyed(&two), "{}", status(&two));
}

#[test]
fn a_page_in_the_format_of_one_client_is_none_for_browsers() {
    let script = "<?php $is_json = str_contains($_SERVER['HTTP_ACCEPT'] ?? '', 'json');
        echo $is_json ? '{}' : '<p>', ' ', hrtime(true);";
    let root = document_root(&[("index.php", script)]);
    let server = setup(&root, &[]).start();
    let low = with(&server, "/b", &[("Accept", "text/html, application/json;q=0.9")]);
    assert!(low.text().starts_with("{}") && status(&low).ends_with("; stored; ttl=600"));
    let chrome = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,\
        image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7";
    let page = with(&server, "/b", &[("Accept", chrome)]);
    assert!(page.text().starts_with("<p>"), "{page:?}");
    let ask = |accept: &str| with(&server, "/a", &[("Accept", accept)]);
    let json = ask("application/json");
    assert!(json.text().starts_with("{}") && status(&json).ends_with("; stored; ttl=600"));
    // An interface whose clients all send the same is cached.
    assert_eq!(ask("application/json").text(), json.text());
    let page = ask("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");
    assert!(page.text().starts_with("<p>"), "{page:?}");
    for accept in ["text/html", "*/*", "image/avif,image/webp,*/*;q=0.8"] {
        assert_eq!(ask(accept).text(), page.text(), "{accept}");
    }
    assert_eq!(ask("application/json").text(), json.text());
    at(server.address(), "POST", "/a", &[]);
    assert!(!is_hit(&ask("application/json")) && !is_hit(&ask("text/html")));
}

#[test]
fn a_request_for_another_format_hides_no_page_of_browsers() {
    let root = site();
    let server = setup(&root, &["stale_if_error = \"1h\""]).start();
    let ask = |target: &str, accept: &str, codings: &str| {
        with(&server, target, &[("Accept", accept), ("Accept-Encoding", codings)])
    };
    for target in ["/a", "/b?h[]=Vary:%20Accept-Encoding"] {
        let page = ask(target, "text/html", "br, gzip");
        for (accept, codings) in [("application/json", "zstd"), ("application/xml", "br, gzip")] {
            let other = ask(target, accept, codings);
            assert!(status(&other).ends_with("; stored; ttl=600"), "{target} {}", status(&other));
            let again = ask(target, "text/html", "br, gzip");
            assert!(is_hit(&again), "{target} {accept} {}", status(&again));
            assert_eq!(again.text(), page.text(), "{target} {accept}");
        }
    }
}

#[test]
fn a_field_with_an_empty_member_is_not_taken_for_one_without() {
    let root = site();
    let server = setup(&root, &["key_headers = [\"X-Device\"]"]).start();
    let run = |device: &str| with(&server, "/a", &[("X-Device", device)]).text();
    assert_eq!([run("phone,"), run("phone")], ["run 1 ", "run 2 "]);
    let vary = |device: &str| {
        let fields = [("X-Kind", device)];
        with(&server, "/b?h[]=Vary:%20X-Kind", &fields).text()
    };
    assert_eq!([vary("phone,"), vary("phone")], ["run 1 ", "run 2 "]);
}

#[test]
fn head_and_ranges_leave_nothing_that_is_less_than_the_page() {
    let root = site();
    let server = setup(&root, &[]).start();
    let head = at(server.address(), "HEAD", "/a?body=whole", &[]);
    assert!(status(&head).ends_with("; detail=head"), "{}", status(&head));
    let part = with(&server, "/a?body=whole", &[("Range", "bytes=0-1")]);
    assert!(!is_hit(&part));
    let whole = with(&server, "/a?body=whole", &[]);
    assert_eq!((whole.status, whole.text().as_str()), (200, "whole"));
    assert!(is_hit(&whole));
}

#[test]
fn what_is_more_than_is_remembered_is_answered_and_not_kept() {
    let root = site();
    let lines = ["max_object_size = \"1K\"", "key_headers = [\"X-Key\"]"];
    let server = setup(&root, &lines).start();
    let many = |count: usize, text: &dyn Fn(usize) -> String| {
        let all: Vec<String> = (0..count).map(text).collect();
        all.join(",")
    };
    let names = format!("/a?h[]=Vary:%20{}", many(20, &|name| format!("x{name}")));
    let groups = many(257, &|group| format!("%22{group}%22"));
    let groups = format!("/b?h[]=Cache-Groups:%20{groups}");
    let long = "y".repeat(16 * 1024);
    for (target, fields, why) in [
        (names.as_str(), &[][..], "vary-too-much"),
        ("/d?h[]=Vary:%20X-Kind", &[("X-Kind", long.as_str())], "vary-too-long"),
        (&groups, &[], "too-many-tags"),
        ("/c", &[("X-Key", &long)], "key-too-long"),
        ("/e?size=40&h[]=Content-Length:%201286", &[], "too-large"),
        ("/g", &[("If-Match", "*")], "precondition"),
    ] {
        for _ in 0..2 {
            let answer = with(&server, target, fields);
            assert_eq!(answer.status, 200, "{why}");
            let said = status(&answer);
            assert!(said.ends_with(&format!("; detail={why}")), "{why}: {said}");
        }
    }
    let body = Request::get("/h").header("Connection", "close").body(b"a=b");
    let answer = http::ask(server.address(), &body);
    assert!(status(&answer).ends_with("; detail=body"), "{}", status(&answer));
}
