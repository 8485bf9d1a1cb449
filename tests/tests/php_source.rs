//! PHP source is never sent, whatever its name; and what clients read of a refusal does not say
//! what there is.

use std::os::unix::fs::{lchown, symlink};

use maitred_tests::Target;
use maitred_tests::http::{self, Request};
use maitred_tests::rules::serve;
use maitred_tests::server::{Setup, document_root, is_root, set_mode, write_file};

/// What no client may ever read.
const SECRET: &str = "hunter2";

fn source() -> String {
    format!("<?php\ndefine('DB_PASSWORD', '{SECRET}');\n")
}

#[test]
fn php_source_is_not_sent_under_any_name() {
    let source = source();
    let template = format!("<html <?php echo '{SECRET}'; ?>>");
    let short = format!("<?$db_password=\"{SECRET}\";");
    let comment = format!("<?/**/ $db_password = '{SECRET}';");
    let late = format!("<p>{}</p><?= '{SECRET}' ?>", "x".repeat(300));
    let marked = format!("\u{feff}\n#!/usr/bin/php\n{source}");
    let large = format!("{source}{}", "// filler\n".repeat(20_000));
    let names = [
        ("config.php.txt", &source),
        ("config.php.html", &source),
        ("config.php.json", &source),
        ("a.phpbak", &source),
        ("a.phpold", &source),
        ("a.phpx", &source),
        ("settings.inc", &source),
        ("settings.bak", &source),
        ("wp-config.old", &source),
        ("wp-config.txt", &source),
        ("views.module", &source),
        ("no-extension", &source),
        ("style.css", &source),
        ("data.json", &source),
        ("header.tpl", &template),
        ("page.html", &source),
        ("page.htm", &short),
        ("short.inc", &short),
        ("comment.txt", &comment),
        ("late.inc", &late),
        ("header.php.txt", &template),
        ("marked.txt", &marked),
        ("large.inc", &large),
        ("UPPER.TXT", &source.replace("php", "PHP")),
    ];
    let files: Vec<(&str, &str)> =
        names.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let root = document_root(&files);
    let server = serve(&root, &[]);
    let missing = http::get(server.address(), "/missing");
    for (name, _) in names {
        let ranged = Request::get(&format!("/{name}")).header("Range", "bytes=10-200");
        for answer in [
            http::get(server.address(), &format!("/{name}")),
            http::ask(server.address(), &ranged),
            http::get(server.address(), &format!("/{name}")),
        ] {
            assert_eq!(answer.status, 404, "{name}: {}", answer.text());
            assert_eq!(answer.text_without_id(), missing.text_without_id(), "{name}");
        }
    }
    server.expect_log(0, "the file begins as PHP source, and is not a .php script");
}

#[test]
fn a_file_that_becomes_source_is_looked_at_again() {
    let root = document_root(&[("notes.txt", "nothing to hide")]);
    let server = serve(&root, &[]);
    assert_eq!(http::get(server.address(), "/notes.txt").status, 200);
    write_file(root.path(), "notes.txt", source().as_bytes());
    assert_eq!(http::get(server.address(), "/notes.txt").status, 404);
    write_file(root.path(), "notes.txt", b"nothing to hide any more");
    assert_eq!(http::get(server.address(), "/notes.txt").status, 200);
}

#[test]
fn what_only_speaks_of_php_is_sent() {
    let files = [
        ("readme.md", "# How to\n\n```php\n<?php echo 1;\n```\n"),
        ("notes.txt", "Begin the file with <?php and a line break.\n"),
        ("feed.xml", "<?xml version=\"1.0\"?>\n<a/>\n"),
        ("page.html", "<?xml version=\"1.0\"?>\n<html><code>&lt;?php</code></html>"),
        ("icon.svg", "<?XML version=\"1.0\"?><svg/>"),
        ("prism.js", "var tag = \"<?php\"; var short = /<\\?=/;"),
        ("answer.php.html", "<html>a response that was saved</html>"),
        ("data.json", "{\"code\": \"<?php echo 1;\"}"),
        ("picture.png", "\u{1}PNG <?php "),
        ("blob.bin", "\u{0}\u{1}\u{2}<?= \u{0}"),
        ("empty.txt", ""),
        ("fix.patch", "--- /dev/null\n+++ b/a.php\n@@ -0,0 +1 @@\n+<?php echo 1;\n"),
        ("fix.diff", "--- /dev/null\n+++ b/a.php\n@@ -0,0 +1 @@\n+<?php echo 1;\n"),
        ("lesson.html", "<title>What <?php begins</title><p><?php ?>"),
        ("lesson.ipynb", "{\"cells\": [{\"source\": \"<?php echo 1;\"}]}"),
        ("lesson.tex", "\\verb|<?php echo 1;|"),
        ("make.py", "print('<?php echo 1;')"),
        ("make.sh", "echo '<?php echo 1;' >a.php"),
        ("style.xml", "<?xml-stylesheet href=\"a.xsl\"?><a/>"),
    ];
    let root = document_root(&files);
    let server = serve(&root, &[]);
    for (name, text) in files {
        let answer = http::get(server.address(), &format!("/{name}"));
        assert_eq!(answer.status, 200, "{name}");
        assert_eq!(answer.body, text.as_bytes(), "{name}");
    }
}

#[test]
fn source_is_sent_where_a_script_chooses_the_file() {
    let root = document_root(&[(
        "get.php",
        "<?php header('Content-Type: text/plain'); header('X-Accel-Redirect: /files/upload.txt');",
    )]);
    let files = document_root(&[("upload.txt", &source())]);
    let roots = format!("sendfile_roots = {{ \"/files/\" = {:?} }}", files.path());
    let server = serve(&root, &[&roots]);
    let answer = http::get(server.address(), "/get.php");
    assert_eq!((answer.status, answer.text()), (200, source()));
}

#[test]
fn every_refusal_of_a_status_reads_the_same() {
    let root = document_root(&[
        ("a.php.bak", "source by its name"),
        ("b.inc", &source()),
        (".env", "hidden"),
        ("folder/no-index.txt", "x"),
        ("run/evil.php", "<?php echo 1;"),
        ("closed.txt", "not for the front"),
        ("denied/x.txt", "x"),
        ("gone/x.txt", "x"),
    ]);
    let beside = document_root(&[("foreign.txt", "another owner's")]);
    symlink(beside.path().join("foreign.txt"), root.path().join("link.txt")).expect("a link");
    symlink("link-to-itself", root.path().join("link-to-itself")).expect("a link");
    symlink("a.php.bak", root.path().join("innocent.txt")).expect("a link");
    if is_root() {
        set_mode(&root.path().join("closed.txt"), 0o600);
        let foreign = Some(5001);
        std::os::unix::fs::chown(beside.path().join("foreign.txt"), foreign, None).expect("root");
        lchown(root.path().join("link.txt"), Some(5002), None).expect("root");
    }
    let server = serve(
        &root,
        &["deny = [\"/denied/*\", { path = \"/gone/*\", status = 404 }]", "deny_php = \"/run/*\""],
    );
    let missing = http::get(server.address(), "/missing").text_without_id();
    for path in [
        "/a.php.bak",
        "/b.inc",
        "/.env",
        "/folder/",
        "/gone/x.txt",
        "/gone/missing",
        "/link-to-itself",
        "/innocent.txt",
        "/index.html/missing",
    ] {
        let answer = http::get(server.address(), path);
        assert_eq!((answer.status, answer.text_without_id()), (404, missing.clone()), "{path}");
    }
    let denied = http::get(server.address(), "/denied/missing");
    assert_eq!(denied.status, 403);
    for path in ["/denied/x.txt", "/run/evil.php"] {
        let answer = http::get(server.address(), path);
        assert_eq!(
            (answer.status, answer.text_without_id()),
            (403, denied.text_without_id()),
            "{path}"
        );
    }
    if is_root() {
        let foreign = http::get(server.address(), "/link.txt");
        assert_eq!((foreign.status, foreign.text_without_id()), (404, missing));
        let closed = http::get(server.address(), "/closed.txt");
        assert_eq!((closed.status, closed.text_without_id()), (403, denied.text_without_id()));
        server.expect_log(0, "link.txt is of user `5002` and leads out of the document root");
        server.expect_log(0, "/closed.txt: 403: the front may not read the file");
    }
    server.expect_log(0, "/a.php.bak: 404: the file holds PHP source by its name");
    let bad = http::get(server.address(), "/%2e%2e/x");
    assert_eq!((bad.status, bad.text().contains("document root")), (400, false), "{}", bad.text());
}

#[test]
fn a_refused_file_is_as_good_as_missing_where_there_is_a_front_controller() {
    let root = document_root(&[
        ("index.php", "<?php http_response_code(404); echo 'ours';"),
        ("a.php.bak", "source by its name"),
        ("b.inc", &source()),
        ("closed.txt", "not for the front"),
        ("fine.txt", "fine"),
    ]);
    symlink("a.php.bak", root.path().join("innocent.txt")).expect("a link");
    if is_root() {
        set_mode(&root.path().join("closed.txt"), 0o600);
    }
    let beside = document_root(&[("c.inc", &source())]);
    let alias = format!("aliases = {{ \"/beside/\" = {:?} }}", beside.path());
    let server = Setup::new(root.path()).site(&alias).start();
    let get = |path: &str| {
        let answer = http::get(server.address(), path);
        (answer.status, answer.text_without_id())
    };
    let missing = get("/missing");
    assert_eq!(missing, (404, "ours".to_owned()));
    for path in ["/a.php.bak", "/b.inc", "/innocent.txt", "/b.inc"] {
        assert_eq!(get(path), missing, "{path}");
    }
    if is_root() {
        assert_eq!(get("/closed.txt"), missing);
        server.expect_log(0, "/closed.txt: 403: the front may not read the file");
    }
    server.expect_log(0, "/a.php.bak: 404: the file holds PHP source by its name");
    assert_eq!(get("/beside/c.inc"), get("/beside/missing"));
    assert_eq!(get("/fine.txt"), (200, "fine".to_owned()));
}

#[test]
fn a_host_without_a_site_is_not_told_from_a_path_without_a_file() {
    let root = document_root(&[("index.html", "x")]);
    let setup = Setup::new(root.path()).hosts(&["a.example"]);
    let server = setup.site("front_controller = \"\"").start();
    let ask = |host: &str, path: &str| {
        let request = Request::new("GET", path).header("Host", host);
        let answer = http::ask(server.address(), &request);
        (answer.status, answer.text_without_id())
    };
    assert_eq!(ask("b.example", "/").0, 404);
    assert_eq!(ask("b.example", "/"), ask("a.example", "/missing"));
}
