//! Decisions of `.htaccess` files are cached, and hold only for what they were made of.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use maitred_tests::http::{self, Connection, Request, Response};
use maitred_tests::lowered::Lowered;
use maitred_tests::server::{
    Server, Setup, WEB_USER, document_root, give_to_web_user, public_folder, write_file,
};
use maitred_tests::{Target, run_maitred, wait};

/// A file that was changed a shorter time ago is not cached.
const SETTLED: Duration = Duration::from_millis(100);

fn serve(root: &tempfile::TempDir) -> Server {
    give_to_web_user(root.path());
    Setup::new(root.path()).site("htaccess = true").start()
}

fn ask(server: &Server, path: &str, headers: &[(&str, &str)]) -> Response {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    http::ask(server.address(), &request)
}

#[test]
fn a_decision_by_a_header_holds_for_requests_with_that_header_alone() {
    let rules = "RewriteEngine on\n\
                 RewriteCond %{HTTP_COOKIE} beta\n\
                 RewriteRule ^page$ beta.txt [L]\n\
                 RewriteCond %{HTTP:X-Kind} =a\n\
                 RewriteRule ^page$ a.txt [L]\n\
                 RewriteRule ^page$ b.txt [L]\n\
                 Header echo ^X-Tag\n\
                 <If \"%{HTTP_USER_AGENT} =~ /bot/\">\nRequire all denied\n</If>\n";
    let files = [(".htaccess", rules), ("a.txt", "a"), ("b.txt", "b"), ("beta.txt", "beta")];
    let root = document_root(&files);
    let server = serve(&root);
    for round in 0..3 {
        for (headers, expected) in [
            (&[("X-Kind", "a")][..], "a"),
            (&[("X-Kind", "b")], "b"),
            (&[("Cookie", "x=beta"), ("X-Kind", "a")], "beta"),
            (&[("Cookie", "x=other"), ("X-Kind", "a")], "a"),
            (&[], "b"),
        ] {
            let tag = format!("{round}-{expected}");
            let headers = [headers, &[("X-Tag", &*tag)]].concat();
            let response = ask(&server, "/page", &headers);
            assert_eq!(response.text(), expected, "{headers:?}");
            assert_eq!(response.header("X-Tag"), Some(&*tag));
        }
        assert_eq!(ask(&server, "/page", &[("User-Agent", "a bot")]).status, 403);
        assert_eq!(ask(&server, "/page", &[("User-Agent", "a browser")]).status, 200);
        assert_eq!(ask(&server, "/page", &[]).header("X-Tag"), None);
    }
    server.stop();
}

#[test]
fn a_decision_by_the_host_header_is_none_for_another_one_with_the_same_forwarded_host() {
    let rules = "RewriteEngine on\nRewriteCond %{HTTP_HOST} ^a\\.\nRewriteRule ^page$ a.txt [L]\n\
                 RewriteRule ^page$ b.txt [L]\n";
    let root = document_root(&[(".htaccess", rules), ("a.txt", "a"), ("b.txt", "b")]);
    give_to_web_user(root.path());
    let server = Setup::new(root.path())
        .top("trusted_proxies = [\"127.0.0.1\"]")
        .top("trusted_headers = [\"X-Forwarded-For\", \"X-Forwarded-Host\"]")
        .site("htaccess = true")
        .start();
    let begun = Instant::now();
    while begun.elapsed() < 4 * SETTLED {
        for host in ["a", "b"] {
            let request = Request::new("GET", "/page")
                .header("Host", &format!("{host}.internal"))
                .header("X-Forwarded-For", "192.0.2.1")
                .header("X-Forwarded-Host", "site.test");
            assert_eq!(http::ask(server.address(), &request).text(), host);
        }
    }
    server.stop();
}

#[test]
fn a_decision_by_files_is_made_again_when_they_have_changed() {
    let rules = "RewriteEngine on\n\
                 RewriteCond %{REQUEST_FILENAME} !-f\n\
                 RewriteCond %{REQUEST_FILENAME} !-d\n\
                 RewriteRule . /fallback.txt [L]\n";
    let files = [(".htaccess", rules), ("fallback.txt", "fallback"), ("a/b/c.txt", "c")];
    let root = document_root(&files);
    let server = serve(&root);
    let text = |path: &str| ask(&server, path, &[]).text();
    let write = |name: &str, text: &str| {
        fs::write(root.path().join(name), text).unwrap();
    };
    let remove = |name: &str| fs::remove_file(root.path().join(name)).unwrap();
    for round in 0..3 {
        for _ in 0..3 {
            assert_eq!(text("/new.txt"), "fallback", "round {round}");
            assert_eq!(text("/a/b/c.txt"), "c");
        }
        write("new.txt", "new");
        assert_eq!(text("/new.txt"), "new");
        assert_eq!(text("/new.txt"), "new");
        remove("new.txt");
        assert_eq!(text("/new.txt"), "fallback");
        // A plugin writes rules of its own between the root and the file.
        write("a/.htaccess", "RewriteEngine on\nRewriteRule ^b/c\\.txt$ /fallback.txt [L]\n");
        assert_eq!(text("/a/b/c.txt"), "fallback");
        write("a/.htaccess", "Require all denied\n");
        assert_eq!(ask(&server, "/a/b/c.txt", &[]).status, 403);
        assert_eq!(ask(&server, "/a/b/c.txt", &[]).status, 403);
        remove("a/.htaccess");
        assert_eq!(text("/a/b/c.txt"), "c");
    }
    server.stop();
}

#[test]
fn a_decision_by_the_address_of_a_client_is_none_for_another_client() {
    let files = [(".htaccess", "Require ip 127.0.0.1\n"), ("page.txt", "page")];
    let root = document_root(&files);
    let server = serve(&root);
    let status = |from: &str| {
        let url = format!("http://{}/page.txt", server.address());
        let mut curl = Command::new("curl");
        curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "--interface", from, &url]);
        String::from_utf8(curl.output().unwrap().stdout).unwrap()
    };
    for _ in 0..3 {
        assert_eq!(status("127.0.0.1"), "200");
        assert_eq!(status("127.0.0.2"), "403");
    }
    server.stop();
}

#[test]
fn a_script_is_run_with_the_headers_of_its_own_request() {
    let rules = "RewriteEngine on\n\
                 RewriteRule .* - [E=HTTP_AUTHORIZATION:%{HTTP:Authorization}]\n\
                 RewriteRule ^(.*)$ index.php [L]\n";
    let script = "<?php echo $_SERVER['HTTP_AUTHORIZATION'] ?? 'none', ' ', \
                  $_SERVER['HTTP_X_NAME'] ?? 'none';";
    let root = document_root(&[(".htaccess", rules), ("index.php", script)]);
    let server = serve(&root);
    for _ in 0..3 {
        for (authorization, name) in [("Bearer one", "x"), ("Bearer two", "x"), ("Bearer two", "y")]
        {
            let headers = [("Authorization", authorization), ("X-Name", name)];
            let text = ask(&server, "/any", &headers).text();
            assert_eq!(text, format!("{authorization} {name}"));
        }
        assert_eq!(ask(&server, "/any", &[]).text(), " none", "an empty variable");
    }
    server.stop();
}

#[test]
fn a_path_without_directives_gets_those_that_come_later() {
    let script = "<?php echo 'ran';";
    let root = document_root(&[("a/b/page.txt", "page"), ("a/b/page.php", script)]);
    let server = serve(&root);
    let status = |path: &str| ask(&server, path, &[]).status;
    for _ in 0..3 {
        for _ in 0..3 {
            assert_eq!(ask(&server, "/a/b/page.txt", &[]).text(), "page");
            assert_eq!(ask(&server, "/a/b/page.php", &[]).text(), "ran");
        }
        for folder in ["", "a/", "a/b/"] {
            let file = root.path().join(format!("{folder}.htaccess"));
            fs::write(&file, "Require all denied\n").unwrap();
            assert_eq!((status("/a/b/page.txt"), status("/a/b/page.php")), (403, 403));
            fs::remove_file(&file).unwrap();
            assert_eq!((status("/a/b/page.txt"), status("/a/b/page.php")), (200, 200));
        }
        fs::write(root.path().join("a/b/page.txt"), "other").unwrap();
        assert_eq!(ask(&server, "/a/b/page.txt", &[]).text(), "other");
        fs::write(root.path().join("a/b/page.txt"), "page").unwrap();
        fs::rename(root.path().join("a/b"), root.path().join("a/c")).unwrap();
        assert_eq!((status("/a/b/page.txt"), status("/a/b/page.php")), (404, 404));
        fs::rename(root.path().join("a/c"), root.path().join("a/b")).unwrap();
    }
    server.stop();
}

fn write_tree(root: &Path, tree: &[(&str, &str)]) {
    for (name, text) in tree {
        write_file(root, name, text.as_bytes());
    }
    give_to_web_user(root);
}

/// Puts another tree in the place of a document root. The former one stays beside it.
fn replace_root(root: &Path, tree: &[(&str, &str)]) -> PathBuf {
    let (new, former) = (root.with_extension("new"), root.with_extension("former"));
    write_tree(&new, tree);
    fs::rename(root, &former).expect("a folder can be renamed");
    fs::rename(&new, root).expect("a folder can be renamed");
    former
}

#[test]
fn a_root_that_is_replaced_and_removed_stays_denied_on_every_thread() {
    let tree = [
        ("p/.htaccess", "Require all denied\n"),
        ("p/page.txt", "page"),
        ("p/page.php", "<?php echo 'ran';"),
    ];
    let folder = public_folder();
    let root = folder.path().join("www");
    write_tree(&root, &tree);
    let server = Setup::new(&root).top("front_threads = 2").site("htaccess = true").start();
    let assert_denied = || {
        // Connections are accepted by all threads.
        for _ in 0..16 {
            for path in ["/p/page.txt", "/p/page.php"] {
                assert_eq!(ask(&server, path, &[]).status, 403, "{path}");
            }
        }
    };
    for _ in 0..3 {
        let begun = Instant::now();
        while begun.elapsed() < 2 * SETTLED {
            assert_denied();
        }
        fs::remove_dir_all(replace_root(&root, &tree)).unwrap();
        assert_denied();
    }
    server.stop();
}

#[test]
fn rules_of_a_new_root_apply_at_once_though_the_former_one_is_still_there() {
    let [open, closed] = ["Require all granted\n", "Require all denied\n"].map(|rules| {
        [(".htaccess", rules), ("page.php", "<?php echo 'ran';"), ("list/a.txt", rules)]
    });
    let folder = public_folder();
    let root = folder.path().join("www");
    write_tree(&root, &open);
    let server = Setup::new(&root).site("htaccess = true").start();
    let status = || ask(&server, "/page.php", &[]).status;
    for (tree, before, after) in [(&closed, 200, 403), (&open, 403, 200)] {
        let begun = Instant::now();
        while begun.elapsed() < 2 * SETTLED {
            assert_eq!(status(), before);
        }
        let former = replace_root(&root, tree);
        assert_eq!(status(), after);
        fs::remove_dir_all(former).unwrap();
    }
    server.stop();
}

/// The status and the text of the response to `POST /page.php`, whose body ends after `before_end`.
fn post(server: &Server, before_end: impl FnOnce()) -> (u16, String) {
    let mut client = Connection::open(server.address());
    let head = "POST /page.php HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n\
                Content-Length: 4\r\n\r\n";
    client.send(head.as_bytes()).expect("a request is taken");
    let interim = client.read_until(b"\r\n\r\n").expect("an interim response");
    assert_eq!(interim, b"HTTP/1.1 100 Continue");
    client.send(b"bod").expect("a part of a body is taken");
    before_end();
    client.send(b"y").expect("the end of a body is taken");
    let response = client.read_response(false).expect("a response");
    (response.status, response.text())
}

const FORMER: (&str, &str) = ("page.php", "<?php echo 'former';");
const CLOSED: [(&str, &str); 2] =
    [("page.php", "<?php echo 'new';"), (".htaccess", "Require all denied\n")];

#[test]
fn a_script_of_a_new_root_does_not_run_by_the_rules_of_the_former_one() {
    for other in ["a.txt", ".htaccess"] {
        let folder = public_folder();
        let root = folder.path().join("www");
        write_tree(&root, &[FORMER, (other, "SetEnv A b\n")]);
        let server = Setup::new(&root).site("htaccess = true").start();
        let begun = Instant::now();
        while begun.elapsed() < 2 * SETTLED {
            assert_eq!(post(&server, || {}), (200, "former".to_owned()));
        }
        let (status, text) = post(&server, || drop(replace_root(&root, &CLOSED)));
        assert_eq!(status, 503, "{text}");
        assert_eq!(ask(&server, "/page.php", &[]).status, 403);
        server.stop();
    }
}

#[test]
fn a_request_whose_body_comes_slowly_is_served_by_the_release_that_it_has_come_to() {
    let folder = public_folder();
    let [first, second, root] = ["1", "2", "current"].map(|name| folder.path().join(name));
    write_tree(&first, &[FORMER]);
    write_tree(&second, &CLOSED);
    symlink(&first, &root).unwrap();
    let server = Setup::new(&root).site("htaccess = true").start();
    let release = || {
        let new = folder.path().join("new");
        symlink(&second, &new).unwrap();
        fs::rename(new, &root).unwrap();
    };
    assert_eq!(post(&server, release), (200, "former".to_owned()));
    server.stop();
}

#[test]
fn an_index_without_directives_gives_way_to_one_before_it() {
    let root = document_root(&[("a/second.html", "second"), ("a/third.html", "third")]);
    give_to_web_user(root.path());
    let names = "index = [\"first.php\", \"second.html\", \"third.html\"]";
    let server = Setup::new(root.path()).site("htaccess = true").site(names).start();
    let expect = |text: &str| {
        let begun = Instant::now();
        while begun.elapsed() < SETTLED {
            assert_eq!(ask(&server, "/a/", &[]).text(), text);
        }
    };
    let file = |name: &str| root.path().join("a").join(name);
    expect("second");
    fs::write(file("first.php"), "<?php echo 'first';").unwrap();
    expect("first");
    fs::remove_file(file("first.php")).unwrap();
    expect("second");
    fs::remove_file(file("second.html")).unwrap();
    expect("third");
    fs::write(file(".htaccess"), "DirectoryIndex first.php second.html\n").unwrap();
    assert_eq!(ask(&server, "/a/", &[]).status, 403);
    fs::remove_file(file(".htaccess")).unwrap();
    expect("third");
    server.stop();
}

/// A user `bob` with the password `secret`.
const BOB: &str = "bob:$apr1$lZL6V/ci$PR6QJXkRFUzdUuaYcwrI//\n";
const AS_BOB: (&str, &str) = ("Authorization", "Basic Ym9iOnNlY3JldA==");

#[test]
fn users_and_groups_of_a_removed_file_are_none_while_the_front_runs() {
    let root = document_root(&[("page.txt", "page"), (".users", BOB), (".groups", "staff: bob")]);
    let folder = root.path().display();
    let rules = format!(
        "AuthType Basic\nAuthName x\nAuthUserFile {folder}/.users\n\
         AuthGroupFile {folder}/.groups\nRequire group staff\n"
    );
    write_file(root.path(), ".htaccess", rules.as_bytes());
    let server = serve(&root);
    let status = || ask(&server, "/page.txt", &[AS_BOB]).status;
    for (file, without) in [(".groups", 401), (".users", 500)] {
        assert_eq!(status(), 200);
        let removed = root.path().join("removed");
        fs::rename(root.path().join(file), &removed).unwrap();
        wait::until_true("the removed file to be noticed", || status() != 200);
        assert_eq!(status(), without, "{file}");
        fs::rename(&removed, root.path().join(file)).unwrap();
        wait::until_true("the file to be read again", || status() == 200);
    }
    server.stop();
}

#[test]
fn a_file_that_is_changed_by_another_of_its_links_is_found() {
    let root =
        document_root(&[("site/.htaccess", "Require all granted\n"), ("site/page.txt", "page")]);
    give_to_web_user(root.path());
    let site = root.path().join("site");
    let server = Setup::new(&site).site("htaccess = true").start();
    let status = || ask(&server, "/page.txt", &[]).status;
    // No event tells of a change that a link in another folder makes.
    let link = root.path().join("rules");
    fs::hard_link(site.join(".htaccess"), &link).unwrap();
    for (rules, before, after) in [("denied", 200, 403), ("granted", 403, 200)] {
        let begun = Instant::now();
        while begun.elapsed() < SETTLED {
            assert_eq!(status(), before);
        }
        fs::write(&link, format!("Require all {rules}\n")).unwrap();
        wait::until_true("the other rules to apply", || status() == after);
    }
    server.stop();
}

/// Rules of an application whose front controller serves every path without a file.
const PRETTY_URLS: &str = "RewriteEngine on\nRewriteCond %{REQUEST_FILENAME} !-f\n\
                           RewriteRule . /docs/page.txt [L]\n";

#[test]
fn a_file_of_another_folder_is_never_taken_for_one_of_the_root() {
    let (root, other) = (document_root(&[("docs/page.txt", "root")]), public_folder());
    fs::write(other.path().join("page.txt"), "one").unwrap();
    give_to_web_user(root.path());
    give_to_web_user(other.path());
    let aliases = format!("aliases = {{ \"/docs\" = {:?} }}", other.path());
    let server = Setup::new(root.path()).site("htaccess = true").site(&aliases).start();
    for (text, rules) in [("one", ""), ("two", "Options -Indexes\n"), ("three", PRETTY_URLS)] {
        fs::write(root.path().join(".htaccess"), rules).unwrap();
        fs::write(other.path().join("page.txt"), text).unwrap();
        for _ in 0..3 {
            assert_eq!(ask(&server, "/docs/page.txt", &[]).text(), text);
            assert_eq!(ask(&server, "/docs/missing.txt", &[]).status, 404);
            assert_eq!(ask(&server, "/docs", &[]).status, 301);
        }
    }
    let file = server.configuration();
    let file = file.to_str().expect("its name is UTF-8");
    let (_, said) = run_maitred(&["explain", "/docs/page.txt", "--config", file]);
    assert!(said.contains("200 with the file") && !said.contains(".htaccess"), "{said}");
    server.stop();
}

#[test]
fn a_file_that_cannot_be_looked_for_is_not_taken_for_a_missing_one() {
    let rules = "RewriteEngine on\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule . other.txt\n";
    let files = [(".htaccess", rules), ("page.txt", "page"), ("other.txt", "other")];
    let root = document_root(&files);
    let server = serve(&root);
    let mut client = Connection::open(server.address());
    let mut ask = |path| client.ask(&Request::get(path)).unwrap();
    assert_eq!(ask("/page.txt").text(), "page");
    let front = server.front().unwrap();
    // Without a free descriptor, no file can be looked for.
    let lowered = Lowered::new(front, WEB_USER, "Max open files", "--nofile", 3);
    let response = ask("/page.txt?not=cached");
    assert_eq!(response.status, 503, "{}", response.text());
    drop(lowered);
    assert_eq!(ask("/page.txt?not=cached").text(), "page");
    server.stop();
}

#[test]
fn a_file_to_which_a_rewrite_leads_is_denied_as_by_its_own_path() {
    let rules = "RewriteEngine on\nRewriteRule ^(?!public/|errors/|lists/)(.*)$ public/$1\n";
    let root = document_root(&[
        (".htaccess", rules),
        ("public/private/x.txt", "SECRET"),
        ("public/private/run.php", "<?php echo 'SECRET';"),
        ("public/open.txt", "open"),
        ("errors/.htaccess", "ErrorDocument 404 /public/private/run.php\n"),
        (
            "lists/.htaccess",
            "Options +Indexes\nRewriteEngine on\nRewriteRule ^x$ /public/private/\n",
        ),
        ("public/private/.htaccess", "Options +Indexes\n"),
    ]);
    give_to_web_user(root.path());
    let rules = "htaccess = true\ndeny = [\"/public/private/*\"]";
    let server = Setup::new(root.path()).site(rules).start();
    let begun = Instant::now();
    // At first it is evaluated, then the cached decision holds.
    while begun.elapsed() < 4 * SETTLED {
        assert_eq!(ask(&server, "/open.txt", &[]).text(), "open");
        for target in ["/private/x.txt", "/public/private/x.txt", "/private/run.php"] {
            assert_eq!(ask(&server, target, &[]).status, 403, "{target}");
        }
        let lost = ask(&server, "/errors/nothing", &[]);
        assert_eq!(lost.status, 404);
        assert!(!lost.text().contains("SECRET"));
        assert_eq!(ask(&server, "/lists/x", &[]).status, 403);
    }
    server.stop();
}
