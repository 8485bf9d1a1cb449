//! The rules of a site for paths and clients, with real PHP behind it, for every spelling of a
//! request for.

use std::fs;

use maitred_tests::Target;
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::rules::{said, serve};
use maitred_tests::server::{Setup, document_root, public_folder, write_file};
use tempfile::TempDir;

/// Says what PHP sees of a request, as JSON.
const SEEN: &str = "<?php header('X-Powered-By: a tester'); echo json_encode($_SERVER);";

fn site() -> TempDir {
    document_root(&[
        ("index.php", SEEN),
        ("uploads/evil.php", "<?php echo 'SECRET';"),
        ("uploads/picture.png", "a picture"),
        ("secret/plan.txt", "SECRET"),
        ("secret/tool.php", "<?php echo 'SECRET';"),
        (".env", "SECRET"),
        ("hidden.phps", "SECRET"),
        ("style.css", "p {}"),
        ("lost.html", "<p>nothing here</p>"),
        (
            "sorry.php",
            "<?php echo 'sorry ', $_SERVER['REDIRECT_STATUS'], ' ',
            $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['REQUEST_URI'], ' ',
                strlen(file_get_contents('php://input'));",
        ),
        ("own404.php", "<?php http_response_code(404); echo 'own words';"),
        (
            "own401.php",
            "<?php http_response_code(401); header('WWW-Authenticate: Basic realm=\"a\"');",
        ),
        (
            "own503.php",
            "<?php http_response_code(503); header('Set-Cookie: a=b'); \
                        echo 'own words';",
        ),
        (
            "wait.php",
            "<?php while (!file_exists(__DIR__ . '/go')) { clearstatcache(); \
                      usleep(2000); } echo 'done';",
        ),
    ])
}

#[test]
fn redirects_lead_where_they_say() {
    let root = site();
    let server = serve(
        &root,
        &["redirects = [{ from = \"/old\", to = \"/new\" }, \
             { from = \"/blog/*\", to = \"https://b.example/$1\", status = 308 }, \
             { from = '~^/p/(\\d+)$', to = \"/?id=$1\", status = 302 }]"],
    );
    for (asked, status, location) in [
        ("/old?a=1", 301, "/new?a=1"),
        ("/blog/a%20b%0d%0aX:y", 400, ""),
        ("/blog/a%20b", 308, "https://b.example/a%20b"),
        ("/p/12", 302, "/?id=12"),
    ] {
        let answer = http::get(server.address(), asked);
        assert_eq!(answer.status, status, "{asked}");
        assert_eq!(answer.header("Location").unwrap_or_default(), location, "{asked}");
    }
}

#[test]
fn a_script_sees_the_address_that_was_asked_for_and_the_query_of_the_rewrite() {
    let root = site();
    let server = serve(&root, &["rewrite = [{ from = \"/api/*\", to = \"/index.php?path=$1\" }]"]);
    let seen = http::get(server.address(), "/api/a%26b/c?x=y").json();
    assert_eq!(seen["REQUEST_URI"], "/api/a%26b/c?x=y");
    assert_eq!(seen["QUERY_STRING"], "path=a%26b/c&x=y");
    assert_eq!(seen["SCRIPT_NAME"], "/index.php");
}

#[test]
fn a_rewrite_to_what_is_never_served_serves_nothing() {
    let root = site();
    let server = serve(
        &root,
        &["rewrite = [{ from = \"/a\", to = \"/.env\" }, { from = \"/b\", \
             to = \"/hidden.phps\" }, \
           { from = \"/c/*\", to = \"/$1\" }]"],
    );
    for target in ["/a", "/b", "/c/.env", "/c/..%2f..%2fetc/passwd", "/c/hidden.phps"] {
        let answer = http::get(server.address(), target);
        assert!(answer.status == 404 || answer.status == 400, "{target}: {}", said(&answer));
        assert!(!answer.text().contains("SECRET"), "{target}");
    }
}

#[test]
fn a_loop_of_rewrites_is_a_500_that_the_log_tells_once() {
    let root = site();
    let server = serve(
        &root,
        &["rewrite = [{ from = \"/a\", to = \"/b\" }, { from = \"/b\", to = \"/a\" }]"],
    );
    let mark = server.log().mark();
    for _ in 0..3 {
        assert_eq!(http::get(server.address(), "/a").status, 500);
    }
    server.expect_log(mark, "the site's rewrites lead in a circle");
    let told = server.log().since(mark);
    let told = told.iter().filter(|line| line.contains("ERROR") && line.contains("circle"));
    assert_eq!(told.count(), 1);
    assert_eq!(http::get(server.address(), "/style.css").status, 200);
}

#[test]
fn what_is_denied_is_denied_in_every_spelling() {
    let root = site();
    let server = serve(
        &root,
        &[
            "deny = [\"/secret/*\", { path = \"*.css\", status = 404 }]",
            "deny_php = \"/uploads/*\"",
            "rewrite = [{ from = \"/in\", to = \"/secret/plan.txt\" }]",
        ],
    );
    for target in [
        "/secret/plan.txt",
        "//secret///plan.txt",
        "/x/../secret/plan.txt",
        "/s%65cret/plan.txt",
        "/secret%2fplan.txt",
        "/secret/tool.php/info",
        "/in",
        "/uploads/evil.php",
        "/uploads/evil.php/picture.png",
        "/uploads/%65vil.php",
    ] {
        let answer = http::get(server.address(), target);
        assert_eq!(answer.status, 403, "{target}: {}", said(&answer));
        assert!(!answer.text().contains("SECRET"), "{target}");
    }
    assert_eq!(http::get(server.address(), "/style.css").status, 404);
    assert_eq!(http::get(server.address(), "/uploads/picture.png").status, 200);
}

#[test]
fn what_is_denied_by_its_name_does_not_stand_for_its_folder_either() {
    let root = site();
    for folder in ["file", "script", "open"] {
        std::fs::create_dir(root.path().join(folder)).expect("a folder");
    }
    for index in ["file/index.html", "script/index.php", "open/index.html"] {
        std::fs::write(root.path().join(index), "INDEX").expect("an index");
    }
    let server = serve(&root, &["deny = [\"/file/index.html\", \"/script/index.php\"]"]);
    for target in ["/file/", "/file/index.html", "//file/./", "/script/"] {
        let answer = http::get(server.address(), target);
        assert_eq!(answer.status, 403, "{target}: {}", said(&answer));
    }
    assert_eq!(http::get(server.address(), "/open/").status, 200);
}

#[test]
fn only_the_scripts_that_are_allowed_run() {
    let root = site();
    let server = serve(&root, &["allow_php = \"/index.php\""]);
    assert_eq!(http::get(server.address(), "/index.php/x").status, 200);
    assert_eq!(http::get(server.address(), "/").status, 200);
    let refused = http::get(server.address(), "/sorry.php");
    let denied = "403 403 Forbidden\nAccess to this page is denied.\nRequest ";
    assert!(said(&refused).starts_with(denied), "{}", said(&refused));
}

#[test]
fn header_fields_are_set_on_files_scripts_and_errors() {
    let root = site();
    let server = serve(
        &root,
        &["headers = [{ set = { X-Frame-Options = \"DENY\" }, unset = [\"X-Powered-By\", \
             \"etag\"] }, \
           { path = \"/index.php\", add = { Link = \"</style.css>\" } }]"],
    );
    for target in ["/style.css", "/index.php", "/nothing"] {
        let answer = http::get(server.address(), target);
        assert_eq!(answer.header("X-Frame-Options"), Some("DENY"), "{target}");
        assert_eq!(answer.header("X-Powered-By"), None, "{target}");
        assert_eq!(answer.header("ETag"), None, "{target}");
        assert_eq!(answer.header("Link").is_some(), target == "/index.php");
    }
}

#[test]
fn answers_are_kept_as_long_as_expires_says_unless_they_say_so_themselves() {
    let root = site();
    write_file(
        root.path(),
        "own.php",
        b"<?php header('Cache-Control: private'); header('Content-Type: text/css'); echo 'p {}';",
    );
    let server = serve(&root, &["expires = [{ type = \"text/css\", after = \"1d\" }]"]);
    let kept = |target: &str| {
        let answer = http::get(server.address(), target);
        // Caches of HTTP/1.0 read the date, which nginx sends, too.
        let is_dated = answer.header("Expires").is_some_and(|date| date.ends_with(" GMT"));
        let kept = answer.header("Cache-Control").map(str::to_owned);
        assert_eq!(is_dated, kept.is_some() && target != "/own.php", "{target}");
        kept
    };
    assert_eq!(kept("/style.css").as_deref(), Some("max-age=86400"));
    assert_eq!(kept("/own.php").as_deref(), Some("private"));
    assert_eq!(kept("/lost.html"), None);
}

#[test]
fn errors_have_pages_of_the_sites_own() {
    let root = site();
    let pages = "error_pages = { 401 = \"/lost.html\", 404 = \"/lost.html\", \
                 403 = \"/sorry.php\", 503 = \"/gone.html\" }";
    let server = serve(&root, &[pages, "deny = \"/secret/*\""]);
    let lost = http::get(server.address(), "/nothing");
    assert_eq!(said(&lost), "404 <p>nothing here</p>");
    assert_eq!(lost.header("Content-Type"), Some("text/html; charset=utf-8"));
    let sorry = http::ask(server.address(), &Request::post("/secret/x?y", "text/plain", b"abc"));
    assert_eq!(said(&sorry), "403 sorry 403 GET /secret/x?y 0");
    // A script's own errors are its own, unless it is said otherwise.
    assert_eq!(said(&http::get(server.address(), "/own404.php")), "404 own words");
    let mut head = Request::get("/nothing");
    head.method = "HEAD".into();
    let head = http::ask(server.address(), &head);
    assert_eq!((head.status, head.body.len()), (404, 0));
    drop(server);

    let server = serve(&root, &[pages, "intercept_errors = true"]);
    assert_eq!(said(&http::get(server.address(), "/own404.php")), "404 <p>nothing here</p>");
    let gone = http::get(server.address(), "/own503.php");
    assert_eq!(gone.status, 503, "the page is missing: the server's own words");
    assert_eq!(gone.header("Set-Cookie"), None);
    let asks = http::get(server.address(), "/own401.php");
    assert_eq!(said(&asks), "401 <p>nothing here</p>");
    assert_eq!(asks.header("WWW-Authenticate"), Some("Basic realm=\"a\""));
    let lines = ["error_pages = { 401 = \"/sorry.php\" }", "intercept_errors = true"];
    let by_script = serve(&root, &lines);
    let asks = http::get(by_script.address(), "/own401.php");
    assert_eq!(said(&asks), "401 sorry 401 GET /own401.php 0");
    assert_eq!(asks.all("WWW-Authenticate").collect::<Vec<_>>(), ["Basic realm=\"a\""]);
    // The connection lives on.
    let mut connection = Connection::open(server.address());
    for _ in 0..3 {
        let answer = connection.ask(&Request::get("/own404.php")).expect("an answer comes");
        assert_eq!(answer.status, 404);
    }
}

#[test]
fn an_error_page_whose_script_sends_another_status_has_the_framing_of_its_own() {
    let root = site();
    write_file(root.path(), "empty.php", b"<?php http_response_code(204);");
    let server = serve(&root, &["error_pages = { 404 = \"/empty.php\" }"]);
    let mut connection = Connection::open(server.address());
    for _ in 0..2 {
        let lost = connection.ask(&Request::get("/nothing")).expect("a response");
        let length = lost.header("Content-Length");
        assert_eq!((lost.status, length, lost.body.len()), (404, Some("0"), 0));
    }
}

#[test]
fn a_body_that_an_error_leaves_unread_is_no_request_when_the_script_of_its_page_fails() {
    let root = site();
    write_file(root.path(), "dies.php", b"<?php posix_kill(getmypid(), SIGKILL);");
    write_file(root.path(), "docs/.htaccess", b"ErrorDocument 404 /dies.php\n");
    let server = serve(
        &root,
        &[
            "htaccess = true",
            "max_body_size = 1000",
            "error_pages = { 404 = \"/dies.php\", 413 = \"/dies.php\" }",
        ],
    );
    let hidden = Request::get("/style.css").to_bytes();
    for (target, framing) in [
        ("/nothing", "Content-Length: 60000"),
        ("/nothing", "Transfer-Encoding: chunked"),
        ("/docs/nothing", "Content-Length: 60000"),
        ("/docs/nothing", "Transfer-Encoding: chunked"),
        ("/index.php", "Content-Length: 60000"),
    ] {
        let mut connection = Connection::open(server.address());
        let head = format!("POST {target} HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n");
        connection.send(&[head.as_bytes(), &hidden].concat()).expect("it is sent");
        let response = connection.read_response(false).expect("a response");
        let ends = response.header("Connection");
        assert_eq!((response.status, ends), (502, Some("close")), "{target} {framing}");
        assert!(connection.is_closed_by_server(), "{target} {framing}");
    }
}

#[test]
fn what_follows_a_request_for_a_missing_classic_pool_is_the_next_request() {
    let root = site();
    write_file(root.path(), "classic.php", b"<?php header('X-Accel-Redirect: @classic');");
    let server = serve(&root, &[]);
    let mut connection = Connection::open(server.address());
    let mut bytes = Request::post("/classic.php", "text/plain", &[b'x'; 40]).to_bytes();
    for _ in 0..2 {
        bytes.extend(Request::get("/style.css").to_bytes());
    }
    connection.send(&bytes).expect("it is sent");
    let status = |connection: &mut Connection| connection.read_response(false).unwrap().status;
    assert_eq!([(); 3].map(|()| status(&mut connection)), [502, 200, 200]);
}

#[test]
fn a_folder_is_listed_where_that_is_asked_for_without_what_is_hidden() {
    let root = site();
    for (name, text) in [("files/b.txt", "b"), ("files/a<b>.txt", "a"), ("files/.secret", "")] {
        write_file(root.path(), name, text.as_bytes());
    }
    write_file(root.path(), "files/tool.php", b"<?php");
    write_file(root.path(), "files/sub/x.txt", b"x");
    let server = serve(&root, &["autoindex = \"/files/*\""]);
    let listing = http::get(server.address(), "/files/");
    assert_eq!(listing.header("Content-Type"), Some("text/html; charset=utf-8"));
    let text = listing.text();
    assert!(text.contains("href=\"./a%3Cb%3E.txt\">a&lt;b&gt;.txt<"), "{text}");
    assert!(text.contains("href=\"./sub/\"") && text.contains("b.txt"), "{text}");
    assert!(!text.contains(".secret") && !text.contains("tool.php"), "{text}");
    assert_eq!(http::get(server.address(), "/uploads/").status, 404);
}

#[test]
fn an_alias_is_a_folder_beside_the_root_with_its_scripts() {
    let (root, beside) = (site(), public_folder());
    write_file(beside.path(), "page.html", b"<p>manual</p>");
    write_file(beside.path(), "run.php", SEEN.as_bytes());
    write_file(beside.path(), ".env", b"SECRET");
    let alias =
        format!("aliases = {{ \"/manual/\" = {0:?}, \"/.assets/\" = {0:?} }}", beside.path());
    let server = serve(&root, &[&alias]);
    assert_eq!(said(&http::get(server.address(), "/manual/page.html")), "200 <p>manual</p>");
    let seen = http::get(server.address(), "/manual/run.php/info").json();
    assert_eq!(
        (&seen["SCRIPT_NAME"], &seen["PATH_INFO"]),
        (&"/manual/run.php".into(), &"/info".into())
    );
    let redirected = http::get(server.address(), "/manual?a=b");
    assert_eq!(redirected.header("Location"), Some("/manual/?a=b"));
    for target in [
        "/manual/.env",
        "/manual/nothing",
        "/manual/../manual/%2eenv",
        "/manualx",
        // A proxy with a rule for /manual/ does not see that these are below it.
        "/manual%2Fpage.html",
        "/manual%2Frun.php",
    ] {
        assert_eq!(http::get(server.address(), target).status, 404, "{target}");
    }
    // What the configuration names is no hidden file.
    assert_eq!(said(&http::get(server.address(), "/.assets/page.html")), "200 <p>manual</p>");
    assert_eq!(http::get(server.address(), "/.assets/.env").status, 404);
    let seen = http::get(server.address(), "/manual/run.php/a%2Fb/.c").json();
    assert_eq!(seen["PATH_INFO"], "/a/b/.c");
}

#[test]
fn a_path_may_have_a_limit_of_its_own_on_bodies() {
    let root = site();
    let server = serve(
        &root,
        &[
            "max_body_size = 10",
            "paths = [{ path = \"/import/*\", max_body_size = 100 }]",
            "rewrite = [{ from = \"/import/*\", to = \"/import/x\" , end = true }]",
            "error_pages = { 404 = \"/sorry.php\" }",
        ],
    );
    let post = |target: &str, bytes: usize| {
        let body = vec![b'x'; bytes];
        http::ask(server.address(), &Request::post(target, "text/plain", &body)).status
    };
    assert_eq!(post("/index.php", 11), 413);
    assert_eq!(post("/index.php", 10), 200);
    assert_eq!(post("/import/x", 50), 404);
}

#[test]
fn a_host_that_is_missing_or_doubled_is_refused_and_one_of_nobody_is_not_found() {
    let root = site();
    let server = Setup::new(root.path()).hosts(&["a.example"]).site("deny = \"/secret/*\"").start();
    let raw = |text: &str| {
        let mut connection = Connection::open(server.address());
        connection.send(text.as_bytes()).expect("it is taken");
        connection.read_response(false).expect("an answer comes").status
    };
    assert_eq!(raw("GET /style.css HTTP/1.1\r\n\r\n"), 400);
    assert_eq!(raw("GET /style.css HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n\r\n"), 400);
    assert_eq!(raw("GET /style.css HTTP/1.1\r\nHost: b.example\r\n\r\n"), 404);
    assert_eq!(raw("GET /style.css HTTP/1.1\r\nHost: A.example:80\r\n\r\n"), 200);
    assert_eq!(raw("GET http://a.example/secret/x HTTP/1.1\r\nHost: a.example\r\n\r\n"), 403);
}

#[test]
fn a_root_that_vanishes_is_a_503_until_it_is_back_and_the_rules_hold_meanwhile() {
    let beside = public_folder();
    let root = beside.path().join("root");
    write_file(&root, "page.html", b"here");
    let server = Setup::new(&root)
        .site("front_controller = \"\"")
        .site("redirects = [{ from = \"/old\", to = \"/new\" }]")
        .start();
    assert_eq!(http::get(server.address(), "/page.html").text(), "here");
    fs::rename(&root, beside.path().join("away")).expect("it can be moved");
    let gone = http::get(server.address(), "/page.html").status;
    assert!(gone == 503 || gone == 404, "{gone}");
    assert_eq!(http::get(server.address(), "/other.html").status, 503);
    assert_eq!(http::get(server.address(), "/old").status, 301);
    fs::rename(beside.path().join("away"), &root).expect("it can be moved back");
    assert_eq!(http::get(server.address(), "/page.html").text(), "here");
}

#[test]
fn a_reload_changes_rules_in_place_and_a_wrong_one_leaves_them() {
    let root = site();
    let setup = Setup::new(root.path()).site("front_controller = \"\"");
    let server = setup.clone().site("deny = \"/secret/*\"").start();
    let mut connection = Connection::open(server.address());
    let mut ask = |target: &str| {
        let answer = connection.ask(&Request::get(target)).expect("the connection is kept");
        answer.status
    };
    assert_eq!(ask("/secret/plan.txt"), 403);
    server.configure(&setup.clone().site("deny = \"*.css\""));
    server.reload();
    assert_eq!((ask("/secret/plan.txt"), ask("/style.css")), (200, 403));
    server.configure(&setup.clone().site("deny = \"~(a{1000}){1000}\""));
    let why = server.reload();
    assert!(why.contains("takes more than 1024 KiB"), "{why}");
    assert_eq!((ask("/secret/plan.txt"), ask("/style.css")), (200, 403));
}
