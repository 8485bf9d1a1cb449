//! `.htaccess` files of a site in what Apache has no part in: the page cache, files outside of the
//! document root, listings, `maitred check` and `maitred explain`.

use maitred_tests::http::{self, Request, Response};
use maitred_tests::server::{
    Server, Setup, document_root, give_to_web_user, is_root, public_folder, write_file,
};
use maitred_tests::{Target, run_maitred};
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

#[test]
fn check_lists_lines_that_have_no_effect_or_are_wrong() {
    let root = document_root(&[
        (
            ".htaccess",
            "<IfModule mod_security.c>\nSecRule x\n</IfModule>\nRewriteEngine On\n\
             AddOutputFilterByType DEFLATE text/html\n<IfModule !mod_rewrite.c>\nRedirect / /x\n\
             </IfModule>\nRewriteRule ^api/(.*) http://127.0.0.1:1/$1 [P]\n",
        ),
        ("a/b/.htaccess", "Require all denied\nSecRuleEngine Off\n"),
        ("c/.htaccess", "AuthType Basic\nAuthUserFile /home/x/users\nRequire valid-user\n"),
    ]);
    let server = serve(&root, &[]);
    let file = server.configuration();
    let (went_well, said) = run_maitred(&["check", file.to_str().expect("its name is UTF-8")]);
    assert!(went_well, "{said}");
    let root = root.path().display();
    for line in [
        "/.htaccess:1: `<IfModule mod_security.c>` has no effect: the server has no such module",
        "/.htaccess:5: `AddOutputFilterByType DEFLATE text/html` has no effect: the site's",
        "/.htaccess:9: `RewriteRule ^api/(.*) http://127.0.0.1:1/$1 [P]` has no effect: the flag P",
        "/a/b/.htaccess:2: `SecRuleEngine Off` is wrong, and requests for its folder get a 500: \
         Invalid command",
        "/c/.htaccess: AuthUserFile /home/x/users is neither in the document root nor",
    ] {
        assert!(said.contains(&format!("warning: {root}{line}")), "{line} is not in {said}");
    }
    assert_eq!(said.matches(".htaccess").count(), 5, "{said}");
}

#[test]
fn explain_shows_the_files_and_directives_that_decide() {
    let root = document_root(&[
        (
            ".htaccess",
            "RewriteEngine On\nRewriteRule ^old$ /new [R=301,L]\nRewriteCond %{HTTP:X-Beta} 1\n\
             RewriteRule ^page$ beta.php [E=beta:yes,L]\nRedirect 302 /moved /style.css\n\
             php_value memory_limit 99M\n",
        ),
        ("beta.php", "<?php echo 'beta';"),
        ("style.css", "p {}"),
        ("private/.htaccess", "<Files \"*.txt\">\nDeny from all\n</Files>\n"),
        ("private/x.txt", "x"),
        ("wrong/.htaccess", "Nonsense\n"),
    ]);
    let server = serve(&root, &[]);
    let file = server.configuration();
    let file = file.to_str().expect("its name is UTF-8");
    let real = root.path().canonicalize().expect("the root is there").display().to_string();
    let beta = ["--header", "X-Beta: 1"];
    for (path, headers, status, words) in [
        ("/old", &[][..], 301, format!("RewriteRule      {real}/.htaccess:2 matches: now http")),
        (
            "/page",
            &beta,
            200,
            format!("RewriteRule      {real}/.htaccess:4 matches: now {real}/beta"),
        ),
        ("/page", &beta, 200, "variable         REDIRECT_beta=yes".to_owned()),
        ("/page", &beta, 200, "php_value        memory_limit = 99M".to_owned()),
        ("/page", &[], 404, "response         404".to_owned()),
        ("/moved", &[], 302, "Redirect         matches: 302 http".to_owned()),
        (
            "/private/x.txt",
            &[],
            403,
            format!("access           {real}/private/.htaccess:2: Deny from all"),
        ),
        ("/wrong/x", &[], 500, format!("500: {real}/wrong/.htaccess:1: Invalid command")),
        ("/style.css", &[], 200, format!(".htaccess        {real}/.htaccess")),
    ] {
        let (went_well, said) =
            run_maitred(&[&["explain", path, "--config", file], headers].concat());
        assert!(went_well && said.contains(&words), "{path}: {words} is not in {said}");
        let fields: &[_] = if headers.is_empty() { &[] } else { &[("X-Beta", "1")] };
        assert_eq!(get(&server, path, fields).status, status, "{path}");
    }
}

#[test]
fn index_files_that_lead_to_their_own_folder_end() {
    let lines = format!("DirectoryIndex{}\n", " ./".repeat(60));
    let root = document_root(&[("a/.htaccess", &lines), ("a/x.txt", "x")]);
    let server = serve(&root, &[]);
    let begun = std::time::Instant::now();
    assert_eq!(get(&server, "/a/", &[]).status, 403);
    assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
}
