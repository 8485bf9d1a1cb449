//! `.htaccess` files of a site in what Apache has no part in: the page cache, files outside of the
//! document root, listings, `maitred check` and `maitred explain`, ways to run scripts, HTTP/2.

use maitred_tests::booted;
use maitred_tests::http::{self, Connection, Request, Response};
use maitred_tests::http2;
use maitred_tests::peer::Peer;
use maitred_tests::server::{
    Server, Setup, document_root, give_to_web_user, is_root, public_folder, write_file,
};
use maitred_tests::{Target, run_maitred};
use tempfile::TempDir;

/// `bob` with the password `secret`, and its `Authorization` header.
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
fn a_user_of_one_file_is_none_of_another_behind_an_internal_redirect() {
    let root =
        document_root(&[("admin/x", "secret"), ("staff/x", "for staff"), ("both/x", "both")]);
    let ann = BOB.replace("bob", "ann");
    write_file(root.path(), "users", BOB.as_bytes());
    write_file(root.path(), "admins", ann.as_bytes());
    write_file(root.path(), "everybody", format!("{BOB}{ann}").as_bytes());
    write_file(root.path(), "groups", b"staff: bob\n");
    write_file(root.path(), "other_groups", b"staff: ann\n");
    let folder = root.path().display();
    let with = |users: &str, groups: &str, requires: &str| {
        format!(
            "AuthType Basic\nAuthName x\nAuthUserFile {folder}/{users}\n\
             AuthGroupFile {folder}/{groups}\nRequire {requires}\n"
        )
    };
    let rewrite = "RewriteEngine On\nRewriteRule ^to/(.*) /$1 [L]\n";
    for (name, lines) in [
        (".htaccess", format!("{rewrite}{}", with("users", "groups", "group staff"))),
        ("admin/.htaccess", with("admins", "groups", "valid-user")),
        ("staff/.htaccess", with("users", "other_groups", "group staff")),
        ("both/.htaccess", with("everybody", "groups", "group staff")),
    ] {
        write_file(root.path(), name, lines.as_bytes());
    }
    if is_root() {
        give_to_web_user(root.path());
    }
    let server = serve(&root, &[]);
    for (target, expected) in [("/admin/x", 401), ("/staff/x", 401), ("/both/x", 200)] {
        for path in [target.to_owned(), format!("/to{target}")] {
            assert_eq!(get(&server, &path, &[AS_BOB]).status, expected, "{path}");
        }
    }
    assert_eq!(get(&server, "/to/both/x", &[]).status, 401);
}

#[test]
fn many_patterns_that_are_slow_together_end_their_request_and_no_other() {
    let condition = "RewriteCond %{QUERY_STRING} ^(a|aa)+$ [OR]\n".repeat(4000);
    let lines = format!(
        "RewriteEngine On\n{condition}RewriteCond %{{QUERY_STRING}} ^x$\nRewriteRule ^ - [F]\n"
    );
    let root = document_root(&[("slow/.htaccess", &lines), ("slow/x", "slow"), ("y", "page")]);
    let server = serve(&root, &[]);
    assert_eq!(get(&server, "/slow/x?a", &[]).status, 403);
    assert_eq!(get(&server, "/slow/x?b", &[]).text(), "slow");
    let mark = server.log().mark();
    let query = "a".repeat(20);
    assert_eq!(get(&server, &format!("/slow/x?{query}b"), &[]).status, 500);
    server.expect_log(mark, "or all take too long");
    assert_eq!(get(&server, "/y", &[]).text(), "page");
}

#[test]
fn a_response_whose_headers_take_too_long_to_determine_is_not_sent_without_them() {
    let slow = "%{QUERY_STRING} =~ /^(a|aa)+$/";
    let directives = [
        ("set", format!("Header always set X-Frame-Options DENY \"expr={slow}\"\n")),
        ("value", format!("Header set X-Value \"expr=%{{QUERY_STRING}}\" \"expr={slow}\"\n")),
        ("edit", "Header edit X-Query ^(a|aa)+$ safe\n".to_owned()),
        ("request", format!("RequestHeader unset X-Private \"expr={slow}\"\n")),
    ];
    let script = "<?php header('X-Query: ' . $_SERVER['QUERY_STRING']); echo 'page';";
    let root = document_root(&[("x.php", script), ("y", "page")]);
    for (folder, directive) in &directives {
        write_file(root.path(), &format!("{folder}/.htaccess"), directive.repeat(1000).as_bytes());
        write_file(root.path(), &format!("{folder}/x.php"), script.as_bytes());
        write_file(root.path(), &format!("{folder}/x"), b"page");
    }
    let server = serve(&root, &[]);
    let long = format!("{}b", "a".repeat(22));
    for (folder, _) in &directives {
        for name in ["x", "x.php"] {
            let quick = get(&server, &format!("/{folder}/{name}?b"), &[]);
            assert_eq!((quick.status, quick.text().as_str()), (200, "page"), "{folder}/{name}");
            if (*folder, name) == ("edit", "x") {
                continue;
            }
            let mark = server.log().mark();
            let late = get(&server, &format!("/{folder}/{name}?{long}"), &[]);
            assert_eq!(late.status, 500, "{folder}/{name}");
            assert_ne!(late.text(), "page", "{folder}/{name}");
            server.expect_log(mark, &format!("/{folder}/{name}: a regular expression takes"));
        }
    }
    let quick = get(&server, "/set/x?aa", &[]);
    assert_eq!((quick.status, quick.header("X-Frame-Options")), (200, Some("DENY")));
    assert_eq!(get(&server, "/set/x.php?b", &[]).header("X-Frame-Options"), None);
    assert_eq!(get(&server, "/edit/x.php?aa", &[]).header("X-Query"), Some("safe"));
    assert_eq!(get(&server, "/y", &[]).text(), "page");
}

#[test]
fn a_section_whose_pattern_is_too_slow_for_a_name_neither_grants_nor_denies() {
    let pattern = "<FilesMatch \"^(a|aa)+$\">\nRequire all";
    let grants = format!("Require all denied\n{pattern} granted\n</FilesMatch>\n");
    let denies = format!("{pattern} denied\n</FilesMatch>\n");
    let slow = format!("{}b", "a".repeat(40));
    let root = document_root(&[("grants/.htaccess", &grants), ("denies/.htaccess", &denies)]);
    for (folder, name) in
        ["grants", "denies"].iter().flat_map(|folder| ["aa", "b", &slow].map(|name| (folder, name)))
    {
        write_file(root.path(), &format!("{folder}/{name}"), b"page");
    }
    let server = serve(&root, &[]);
    let status = |folder: &str, name: &str| get(&server, &format!("/{folder}/{name}"), &[]).status;
    assert_eq!(["aa", "b", &slow].map(|name| status("grants", name)), [200, 403, 500]);
    assert_eq!(["aa", "b", &slow].map(|name| status("denies", name)), [403, 200, 500]);
}

#[test]
fn a_status_without_content_leaves_the_connection_to_the_next_response() {
    let rules =
        [204, 205, 304, 100, 103].map(|status| format!("RewriteRule ^{status}$ /x [R={status}]\n"));
    let lines = format!("RewriteEngine On\n{}Redirect 204 /gone.ico\n", rules.concat());
    let root = document_root(&[(".htaccess", &lines), ("style.css", "a{}")]);
    let server = serve(&root, &[]);
    // No final response has a status below 200.
    let expected =
        [("204", 204), ("304", 304), ("gone.ico", 204), ("205", 205), ("100", 500), ("103", 500)];
    for (path, status) in expected {
        let mut connection = Connection::open(server.address());
        let both = ["/".to_owned() + path, "/style.css".to_owned()];
        let both = both.map(|target| Request::get(&target).to_bytes()).concat();
        connection.send(&both).expect("requests are sent");
        let first = connection.read_response(false).expect("a response");
        assert_eq!(first.status, status, "{path}");
        if matches!(status, 204 | 304) {
            assert_eq!((first.text().as_str(), first.header("Content-Length")), ("", None));
        }
        let next = connection.read_response(false).expect("the next response");
        assert_eq!((next.status, next.text().as_str()), (200, "a{}"), "{path}");
    }
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
fn no_variable_has_php_read_a_file_in_place_of_the_body() {
    let rules = "SetEnv REQUEST_BODY_FILE /etc/passwd\nRewriteEngine on\n\
                 RewriteRule ^ - [E=Request_Body_File:/etc/passwd]\n";
    let script = "<?php echo file_get_contents('php://input');";
    let root = document_root(&[(".htaccess", rules), ("x.php", script)]);
    let server = serve(&root, &[]);
    let request = Request::post("/x.php", "text/plain", b"its own body");
    assert_eq!(http::ask(server.address(), &request).text(), "its own body");
    server.stop();
}

#[test]
fn check_names_a_file_that_exceeds_a_limit_as_a_whole() {
    let lines = "Header set X-Name value\n".repeat(1100);
    let root = document_root(&[("large/.htaccess", &lines), ("large/x", "page")]);
    let server = serve(&root, &[]);
    let file = server.configuration();
    let (_, said) = run_maitred(&["check", file.to_str().expect("its name is UTF-8")]);
    let name = root.path().join("large/.htaccess");
    let sentence = format!("{}: more than 1024", name.display());
    assert!(said.contains(&sentence) && said.contains("get a 500"), "{said}");
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

#[test]
fn cookies_of_http2_that_come_one_by_one_stay_apart_for_rules_and_scripts() {
    let rules = "RequestHeader set X-A b\nRewriteEngine On\n\
         RewriteCond %{HTTP_COOKIE} ^a=1;\\ b=2$\nRewriteRule ^x$ /page.php?found [L]\n";
    let page = "<?php echo $_SERVER['QUERY_STRING'], ' ', $_SERVER['HTTP_COOKIE'];";
    let root = document_root(&[(".htaccess", rules), ("page.php", page)]);
    let server = serve(&root, &[]);
    let mut client = http2::Connection::open(server.address(), &[]);
    let cookies = http2::fields(&[("cookie", "a=1"), ("cookie", "b=2")]);
    client.ask_with(1, &[http2::get("/x"), cookies].concat(), http2::END_STREAM);
    assert_eq!(client.text(1), "found a=1; b=2");
}

/// A front controller below a folder that is denied, with what PHP sees.
const PRETTY: &str = "RewriteEngine On\nRewriteCond %{REQUEST_FILENAME} !-f\n\
     RewriteRule ^(.*)$ index.php [QSA,E=PAGE:$1,L]\nphp_value max_input_vars 77\n\
     Header set X-A \"%{REDIRECT_PAGE}e\" env=REDIRECT_PAGE\n";

/// What PHP sees of it.
const SEEN: &str = "echo implode(' ', [$_SERVER['REDIRECT_PAGE'] ?? $_SERVER['PAGE'] ?? 'none', \
     $_SERVER['QUERY_STRING'], $_SERVER['REDIRECT_URL'] ?? '-', ini_get('max_input_vars')]);";

fn denies_and_rewrites(root: &TempDir) {
    write_file(root.path(), ".htaccess", PRETTY.as_bytes());
    write_file(root.path(), "private/.htaccess", b"Require all denied\n");
    write_file(root.path(), "private/x.txt", b"SECRET");
    write_file(root.path(), "open.txt", b"open");
    if is_root() {
        give_to_web_user(root.path());
    }
}

/// `inputs` is PHP's `max_input_vars`.
#[track_caller]
fn expect_rewritten(server: &Server, inputs: u32) {
    // The second time, the decisions are cached.
    for _ in 0..2 {
        for page in ["a", "b/c"] {
            let response = get(server, &format!("/{page}?x=1"), &[]);
            assert_eq!(response.text(), format!("{page} x=1 /{page} {inputs}"));
            assert_eq!(response.header("X-A"), Some(page));
        }
        assert_eq!(get(server, "/open.txt", &[]).text(), "open");
        assert_eq!(get(server, "/private/x.txt", &[]).status, 403);
    }
}

/// What is booted before the request has its settings from the pool, php-fpm has its own, and
/// `maitred check` says so.
#[track_caller]
fn expect_no_settings(server: &Server, ignorer: &str) {
    let file = server.configuration();
    let (went_well, said) = run_maitred(&["check", file.to_str().expect("its name is UTF-8")]);
    assert!(went_well, "{said}");
    let words = format!("/.htaccess:4: `php_value max_input_vars 77` has no effect on {ignorer}");
    assert!(said.contains(&words), "{said}");
}

#[test]
fn a_snapshot_gets_rewritten_requests() {
    let root = booted::application("$booted = 1;", SEEN);
    denies_and_rewrites(&root);
    let server = Setup::new(root.path())
        .pool("mode = \"snapshot\"")
        .pool(&format!("script = {:?}", root.path().join("index.php")))
        .site("htaccess = true")
        .workers(2)
        .start();
    expect_rewritten(&server, 1000);
    expect_no_settings(&server, "the booted script");
    server.stop();
}

#[test]
fn a_worker_script_gets_rewritten_requests() {
    let script =
        format!("<?php\nwhile (frankenphp_handle_request(function () {{ {SEEN} }})) {{ }}\n");
    let root = document_root(&[("index.php", &script)]);
    denies_and_rewrites(&root);
    let server = Setup::new(root.path())
        .pool("mode = \"worker\"")
        .pool(&format!("script = {:?}", root.path().join("index.php")))
        .site("htaccess = true")
        .workers(1)
        .start();
    expect_rewritten(&server, 1000);
    expect_no_settings(&server, "the booted script");
    server.stop();
}

#[test]
fn a_php_fpm_behind_the_site_gets_rewritten_requests() {
    let root = document_root(&[("index.php", &format!("<?php {SEEN}"))]);
    denies_and_rewrites(&root);
    let peer = Peer::nginx_php_fpm(root.path());
    let upstream = format!("unix:{}", peer.fpm_socket().display());
    let server = Setup::new(root.path()).upstream(&upstream).site("htaccess = true").start();
    expect_rewritten(&server, 1000);
    expect_no_settings(&server, "an `upstream`");
    server.stop();
}

#[test]
fn streams_of_http2_get_what_the_files_decide() {
    let root = document_root(&[("index.php", &format!("<?php {SEEN}"))]);
    denies_and_rewrites(&root);
    let server = serve(&root, &[]);
    for _ in 0..2 {
        let ask =
            |path: &str| http2::curl(&["-D", "-", &format!("http://{}{path}", server.address())]);
        let [page, denied] = [ask("/a?x=1"), ask("/private/x.txt")];
        assert!(page.starts_with("HTTP/2 200") && page.contains("x-a: a\r\n"), "{page}");
        assert!(page.contains("a x=1 /a 77"), "{page}");
        assert!(denied.starts_with("HTTP/2 403") && !denied.contains("SECRET"), "{denied}");
    }
    server.stop();
}

#[test]
fn a_file_that_a_script_names_is_sent_with_the_headers_of_the_directives() {
    let root = document_root(&[
        (".htaccess", "RewriteEngine On\nRewriteRule ^get$ get.php\nHeader set X-A files\n"),
        ("get.php", "<?php header('X-Accel-Redirect: /protected/x.txt');"),
        ("protected/.htaccess", "Require all denied\n"),
    ]);
    let files = document_root(&[("x.txt", "named")]);
    let line = format!("sendfile_roots = {{ \"/protected/\" = {:?} }}", files.path());
    let server = serve(&root, &[&line]);
    for _ in 0..2 {
        let response = get(&server, "/get", &[]);
        assert_eq!((response.status, &*response.text()), (200, "named"));
        assert_eq!(response.header("X-A"), Some("files"));
        assert_eq!(response.header("X-Accel-Redirect"), None);
        assert_eq!(get(&server, "/protected/x.txt", &[]).status, 403);
    }
    server.stop();
}

#[test]
fn an_unknown_line_that_is_ignored_never_opens_what_is_denied() {
    let root = document_root(&[
        (
            ".htaccess",
            "PassengerEnabled on\nHeader set X-A a\n<Nonsense x>\nOther 1\n</Nonsense>\n",
        ),
        ("section/.htaccess", "<Nonsense x>\nDeny from all\n</Nonsense>\n"),
        ("section/x.txt", "SECRET"),
        ("x.txt", "x"),
        ("wrong/.htaccess", "Require nonsense\nHeader set X-A a\n"),
        ("wrong/x.txt", "SECRET"),
        ("order/.htaccess", "Order sideways\n"),
        ("order/x.txt", "SECRET"),
        ("denied/.htaccess", "SecRuleEngine On\nDeny from all\n"),
        ("denied/x.txt", "SECRET"),
    ]);
    let server = serve(&root, &["htaccess_unknown = \"ignore\""]);
    let response = get(&server, "/x.txt", &[]);
    assert_eq!((&*response.text(), response.header("X-A")), ("x", Some("a")));
    for denied in ["wrong", "order", "denied", "section"] {
        assert_eq!(get(&server, &format!("/{denied}/x.txt"), &[]).status, 403, "{denied}");
    }
    let file = server.configuration();
    let (went_well, said) = run_maitred(&["check", file.to_str().expect("its name is UTF-8")]);
    assert!(went_well && said.contains("/.htaccess:1: `PassengerEnabled on`"), "{said}");
    assert!(said.contains("access is denied"), "{said}");
    drop(server);
    let server = serve(&root, &["htaccess_unknown = \"error\""]);
    assert_eq!(get(&server, "/x.txt", &[]).status, 500);
    let strict = ["htaccess_override = [\"FileInfo\", \"Nonfatal=Unknown\"]"];
    drop(server);
    let server = serve(&root, &strict);
    assert_eq!(get(&server, "/x.txt", &[]).text(), "x");
    assert_eq!(get(&server, "/denied/x.txt", &[]).status, 500);
    server.stop();
}

#[test]
fn a_hash_of_crypt_is_reported_with_the_command_that_replaces_it() {
    let root = document_root(&[
        (".users", "old:nuQ5lH7Ev4I/g\nbob:$apr1$lZL6V/ci$PR6QJXkRFUzdUuaYcwrI//\n"),
        ("x", "page"),
    ]);
    let users = root.path().join(".users").display().to_string();
    let lines = format!("AuthType Basic\nAuthName x\nAuthUserFile {users}\nRequire valid-user\n");
    write_file(root.path(), ".htaccess", lines.as_bytes());
    if is_root() {
        give_to_web_user(root.path());
    }
    let server = serve(&root, &[]);
    let mark = server.log().mark();
    assert_eq!(get(&server, "/x", &[("Authorization", "Basic b2xkOnNlY3JldA==")]).status, 401);
    server.expect_log(mark, &format!("{users}:1: this line has a hash that is not of a supported"));
    server.expect_log(mark, "`htpasswd -B ");
    assert_eq!(get(&server, "/x", &[AS_BOB]).text(), "page");
    server.stop();
}

/// Puts a file of users in each of these folders, that `.htaccess` demands.
fn protect(root: &TempDir, folders: &[(&str, &str)]) {
    for (folder, users) in folders {
        let file = root.path().join(folder).join(".users");
        let lines = "AuthType Basic\nAuthName x\nRequire valid-user\nAuthUserFile";
        let lines = format!("{lines} {}\n", file.display());
        write_file(root.path(), &format!("{folder}/.users"), users.as_bytes());
        write_file(root.path(), &format!("{folder}/.htaccess"), lines.as_bytes());
    }
    if is_root() {
        give_to_web_user(root.path());
    }
}

#[test]
fn a_hash_that_would_take_all_memory_or_a_processor_for_days_ends_nothing() {
    let digits = "A".repeat(43);
    let argon2 = format!("bob:$argon2id$v=19$m=4294967295,t=1,p=1$c29tZXNhbHRzb21l${digits}\n");
    let bcrypt = format!("bob:$2y$31${}\n", ".".repeat(53));
    let folders = [("m", argon2.as_str()), ("t", &bcrypt), ("ok", BOB)];
    let root = document_root(&[("m/x", "page"), ("t/x", "page"), ("ok/x", "page")]);
    protect(&root, &folders);
    let server = serve(&root, &[]);
    let (front, mark) = (server.front().expect("a front runs").pid, server.log().mark());
    for _ in 0..5 {
        assert_eq!(get(&server, "/m/x", &[AS_BOB]).status, 401);
        assert_eq!(get(&server, "/t/x", &[AS_BOB]).status, 401);
    }
    server.expect_log(mark, "/m/.users:1: this line has an argon2 hash with m=4294967295");
    server.expect_log(mark, "/t/.users:1: this line has a bcrypt hash of cost 31");
    assert_eq!(get(&server, "/ok/x", &[AS_BOB]).text(), "page");
    assert_eq!(server.front().expect("a front runs").pid, front);
    server.stop();
}

#[test]
fn a_users_file_beyond_the_limit_is_refused_with_its_name() {
    let large = format!("{BOB}{}", "# a comment\n".repeat((4 << 20) / 12));
    let folders = [("ok", BOB), ("large", &large)];
    let root = document_root(&[("ok/x", "page"), ("large/x", "page")]);
    protect(&root, &folders);
    let server = serve(&root, &[]);
    let mark = server.log().mark();
    assert_eq!(get(&server, "/large/x", &[AS_BOB]).status, 500);
    server.expect_log(mark, "/large/.users is larger than 4 MiB, the limit of such a file");
    assert_eq!(get(&server, "/ok/x", &[AS_BOB]).text(), "page");
    server.stop();
}
