//! `.htaccess` files of a site in what Apache has no part in: the page cache, files outside of the
//! document root, listings, `maitred check` and `maitred explain`.

use std::process::Command;

use maitred_tests::http::{self, Request, Response};
use maitred_tests::server::{
    Server, Setup, document_root, give_to_web_user, is_root, public_folder, write_file,
};
use maitred_tests::{Target, maitred_program};
use tempfile::TempDir;

/// `bob` with the password `bcrypt`, and its `Authorization` header.
const BOB: &str = "bob:$apr1$lZL6V/ci$PR6QJXkRFUzdUuaYcwrI//\n";
const AS_BOB: (&str, &str) = ("Authorization", "Basic Ym9iOnNlY3JldA==");

fn serve(root: &TempDir, lines: &[&str]) -> Server {
    let setup = Setup::new(root.path()).site("htaccess = true");
    lines.iter().fold(setup, |setup, line| setup.site(line)).start()
}

fn get(server: &Server, target: &str, fields: &[(&str, &str)]) -> Response {
    let request = Request::get(target).header("Connection", "close");
    let request = fields.iter().fold(request, |request, (name, value)| request.header(name, value));
    http::ask(server.address(), &request)
}

#[test]
fn a_response_that_a_header_of_the_client_decides_is_not_cached_for_others() {
    let root = document_root(&[
        (
            ".htaccess",
            "SetEnvIf User-Agent Phone layout=small\nRewriteEngine On\n\
             RewriteCond %{HTTP:X-Beta} 1\nRewriteRule ^page$ /beta.php [L]\n\
             RewriteRule ^page$ /page.php [L]\n",
        ),
        (
            "page.php",
            "<?php header('Cache-Control: max-age=600'); echo $_SERVER['layout'] ?? 'usual';",
        ),
        ("beta.php", "<?php header('Cache-Control: max-age=600'); echo 'beta';"),
    ]);
    let server = serve(&root, &["[sites.cache]"]);
    let ask = |fields: &[(&str, &str)]| {
        let response = get(&server, "/page", fields);
        (response.text(), response.header("Cache-Status").unwrap_or_default().to_owned())
    };
    for _ in 0..2 {
        let (text, status) = ask(&[("User-Agent", "Phone")]);
        assert_eq!(text, "small");
        assert!(status.contains("detail=htaccess"), "{status}");
        let (text, status) = ask(&[("X-Beta", "1")]);
        assert_eq!(text, "beta");
        assert!(status.contains("detail=htaccess"), "{status}");
    }
    let (text, status) = ask(&[]);
    assert!(text == "usual" && status.contains("stored"), "{status}");
    let (text, status) = ask(&[("User-Agent", "Other")]);
    assert!(text == "usual" && status.contains("hit"), "{status}");
    assert_eq!(ask(&[("User-Agent", "Phone")]).0, "small");
}

#[test]
fn users_outside_of_the_document_root_have_to_be_allowed() {
    let (root, other) = (document_root(&[("x", "page")]), public_folder());
    write_file(other.path(), "users", BOB.as_bytes());
    let users = other.path().join("users").display().to_string();
    let lines = format!("AuthType Basic\nAuthName x\nAuthUserFile {users}\nRequire valid-user\n");
    write_file(root.path(), ".htaccess", lines.as_bytes());
    if is_root() {
        give_to_web_user(root.path());
    }
    let server = serve(&root, &[]);
    let mark = server.log().mark();
    assert_eq!(get(&server, "/x", &[AS_BOB]).status, 500);
    server.expect_log(mark, "is neither in the document root nor in a folder of `htaccess_users`");
    drop(server);
    let setting = format!("htaccess_users = {:?}", other.path());
    let server = serve(&root, &[&setting]);
    assert_eq!(get(&server, "/x", &[AS_BOB]).text(), "page");
    assert_eq!(get(&server, "/x", &[]).status, 401);
}

#[test]
fn a_listing_leaves_out_what_is_ignored() {
    let root = document_root(&[
        (".htaccess", "Options +Indexes\nIndexIgnore *.bak private-*\n"),
        ("list/a.txt", "a"),
        ("list/a.bak", "b"),
        ("list/private-x", "c"),
    ]);
    let server = serve(&root, &[]);
    let text = get(&server, "/list/", &[]).text();
    assert!(
        text.contains("a.txt") && !text.contains("a.bak") && !text.contains("private"),
        "{text}"
    );
}
