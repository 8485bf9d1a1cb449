//! What `.htaccess` files make of responses: their types, encodings, cookies and users, and which
//! of them are cached.

use std::time::{Duration, Instant};

use maitred_tests::http::{self, Connection, Request, Response};
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user, write_file};
use maitred_tests::{Target, wait};
use tempfile::TempDir;

/// `bob` with the password `secret`, and its `Authorization` header.
const BOB: &str = "bob:$apr1$lZL6V/ci$PR6QJXkRFUzdUuaYcwrI//\n";
const AS_BOB: (&str, &str) = ("Authorization", "Basic Ym9iOnNlY3JldA==");

/// A file that was changed a shorter time ago is not cached; longer than the server's limit.
const SETTLED: Duration = Duration::from_millis(400);

fn serve(root: &TempDir, lines: &[&str]) -> Server {
    give_to_web_user(root.path());
    let setup = Setup::new(root.path()).site("htaccess = true");
    lines.iter().fold(setup, |setup, line| setup.site(line)).start()
}

fn get(server: &Server, target: &str, fields: &[(&str, &str)]) -> Response {
    let request = Request::get(target).header("Connection", "close");
    let request = fields.iter().fold(request, |request, (name, value)| request.header(name, value));
    http::ask(server.address(), &request)
}

#[test]
fn a_page_that_rules_of_two_rounds_make_for_one_client_is_not_cached_for_others() {
    let rules = "RewriteEngine On\nRewriteCond %{HTTP:X-Beta} 1\n\
                 RewriteRule ^page$ /beta/page [L]\nRewriteRule ^page$ /usual/page [L]\n\
                 RewriteRule ^(beta|usual)/ /index.php [L]\n\
                 <If \"%{REQUEST_URI} == '/signed.php' && %{HTTP:X-Beta} == '1'\">\n\
                 ServerSignature On\n</If>\n";
    let script = "<?php header('Cache-Control: max-age=600'); \
                  echo $_SERVER['REDIRECT_URL'] ?? '-', \
                  empty($_SERVER['SERVER_SIGNATURE']) ? '' : ' signed';";
    let files = [(".htaccess", rules), ("index.php", script), ("signed.php", script)];
    let root = document_root(&files);
    let server = serve(&root, &["[sites.cache]"]);
    for (page, of_beta, usual) in
        [("/page", "/beta/page", "/usual/page"), ("/signed.php", "- signed", "-")]
    {
        for _ in 0..2 {
            let response = get(&server, page, &[("X-Beta", "1")]);
            let status = response.header("Cache-Status").unwrap_or_default();
            assert!(status.contains("detail=htaccess"), "{page}: {status}");
            assert_eq!(response.text(), of_beta, "{page}");
        }
        assert_eq!(get(&server, page, &[]).text(), usual);
    }
    server.stop();
}

/// Directives about types: of files, and of scripts by their names.
const TYPES: &str = "DefaultLanguage en\nAddCharset iso-8859-1 .css\nAddType video/x-own .mp4\n\
                     AddType application/x-httpd-php .php\n";

#[track_caller]
fn media_type(response: &Response) -> &str {
    response.header("Content-Type").expect("a response has a type")
}

#[test]
fn parts_of_a_file_are_apart_and_have_the_type_of_its_directive() {
    let root =
        document_root(&[(".htaccess", TYPES), ("a.css", "0123456789"), ("a.mp4", "0123456789")]);
    let server = serve(&root, &[]);
    for (path, own) in [("/a.css", "text/css; charset=iso-8859-1"), ("/a.mp4", "video/x-own")] {
        let one = get(&server, path, &[("Range", "bytes=2-3")]);
        assert_eq!((one.status, &*one.text(), media_type(&one)), (206, "23", own));
        let parts = get(&server, path, &[("Range", "bytes=0-1,8-9")]);
        let whole = media_type(&parts);
        assert!(whole.starts_with("multipart/byteranges; boundary="), "{whole}");
        let text = parts.text();
        assert_eq!(parts.status, 206);
        assert_eq!(text.matches(&format!("Content-Type: {own}\r\n")).count(), 2, "{text}");
    }
    server.stop();
}

#[test]
fn a_file_that_a_script_names_has_its_own_type() {
    let sends = "<?php header('Content-Type: application/pdf'); \
                 header('X-Accel-Redirect: /files/a.pdf');";
    let root = document_root(&[(".htaccess", TYPES), ("sends.php", sends)]);
    let files = document_root(&[("a.pdf", "named")]);
    give_to_web_user(files.path());
    let roots = format!("sendfile_roots = {{ \"/files/\" = {:?} }}", files.path());
    let server = serve(&root, &[&roots]);
    let named = get(&server, "/sends.php", &[]);
    assert_eq!((&*named.text(), media_type(&named)), ("named", "application/pdf"));
    server.stop();
}

#[test]
fn a_part_of_a_cached_page_has_the_type_of_the_page() {
    let page = "<?php header('Cache-Control: max-age=600'); header('ETag: \"a\"'); \
                header('Content-Type: application/x-page'); echo '0123456789';";
    let root = document_root(&[(".htaccess", TYPES), ("page.php", page)]);
    let server = serve(&root, &["[sites.cache]"]);
    assert_eq!(media_type(&get(&server, "/page.php", &[])), "application/x-page");
    let part = get(&server, "/page.php", &[("Range", "bytes=3-4")]);
    assert_eq!((part.status, &*part.text()), (206, "34"));
    assert_eq!(media_type(&part), "application/x-page");
    server.stop();
}

#[test]
fn a_file_with_an_encoding_of_its_own_is_not_compressed_again() {
    let rules = "AddType image/svg+xml svg svgz\nAddEncoding gzip svgz\n";
    let image = "<svg>".repeat(1000);
    let root = document_root(&[(".htaccess", rules), ("a.svgz", &image), ("a.svg", &image)]);
    let server = serve(&root, &["compression = [\"br\", \"gzip\"]"]);
    for accepted in ["br", "gzip", "br, gzip"] {
        let encoding = |path: &str| {
            let response = get(&server, path, &[("Accept-Encoding", accepted)]);
            let is_whole = response.body == image.as_bytes();
            (response.header("Content-Encoding").unwrap_or_default().to_owned(), is_whole)
        };
        assert_eq!(encoding("/a.svgz"), ("gzip".to_owned(), true), "{accepted}");
        let (named, is_whole) = encoding("/a.svg");
        assert!(accepted.starts_with(&named) && !is_whole, "{accepted}: {named}");
    }
    server.stop();
}

#[test]
fn a_query_that_a_rule_makes_has_the_bytes_of_the_path() {
    let rules = "RewriteEngine On\nRewriteRule ^p/(.*)$ /q.php?q=$1 [L]\n";
    let root = document_root(&[(".htaccess", rules), ("q.php", "<?php echo bin2hex($_GET['q']);")]);
    let server = serve(&root, &[]);
    for (path, bytes) in [("/p/%E4", "e4"), ("/p/%C3%A4", "c3a4"), ("/p/x%FFy%E4%C3", "78ff79e4c3")]
    {
        assert_eq!(get(&server, path, &[]).text(), bytes);
    }
    server.stop();
}

#[test]
fn an_index_file_that_alone_needs_a_user_is_for_users() {
    let root = document_root(&[("users", BOB), ("fallback/x.txt", "x")]);
    let users = root.path().join("users").display().to_string();
    let of_users = |names: &str| {
        format!(
            "<FilesMatch \"{names}\">\nAuthType Basic\nAuthName Staff\nAuthUserFile {users}\n\
             Require valid-user\n</FilesMatch>\n"
        )
    };
    let fallback = format!("FallbackResource page.php\n{}", of_users("^page"));
    for (name, text) in [
        (".htaccess", of_users("\\.php$")),
        ("index.php", "<?php echo 'index of ', $_SERVER['REMOTE_USER'];".to_owned()),
        ("fallback/.htaccess", fallback),
        ("fallback/page.php", "<?php echo 'page of ', $_SERVER['REMOTE_USER'];".to_owned()),
    ] {
        write_file(root.path(), name, text.as_bytes());
    }
    let server = serve(&root, &[]);
    for (path, page) in
        [("/index.php", "index of bob"), ("/", "index of bob"), ("/fallback/none", "page of bob")]
    {
        for fields in [&[][..], &[("Authorization", "Basic Ym9iOndyb25n")]] {
            let refused = get(&server, path, fields);
            assert_eq!(refused.status, 401, "{path}");
            assert_eq!(refused.header("WWW-Authenticate"), Some("Basic realm=\"Staff\""));
        }
        assert_eq!(get(&server, path, &[AS_BOB]).text(), page);
    }
    server.stop();
}

#[test]
fn a_cookie_of_a_rule_expires_by_the_time_of_its_own_response() {
    let rules = "RewriteEngine On\nRewriteRule ^$ /intro [R,L,CO=seen:1:.example.org:60]\n";
    let root = document_root(&[(".htaccess", rules)]);
    let server = serve(&root, &[]);
    // Each thread of the front caches its own decisions, and one serves a connection.
    let mut connection = Connection::open(server.address());
    let mut cookie = || {
        let response = connection.ask(&Request::get("/")).expect("a response");
        assert_eq!(response.status, 302);
        response.header("Set-Cookie").expect("the rule sets a cookie").to_owned()
    };
    // Decisions on files changed just now are not cached.
    let begun = Instant::now();
    wait::until_true("decisions to be cached", || {
        begun.elapsed() > SETTLED && !cookie().is_empty()
    });
    let first = cookie();
    assert!(first.contains("expires="), "{first}");
    wait::until_true("a cookie that expires later", || cookie() != first);
    server.stop();
}
