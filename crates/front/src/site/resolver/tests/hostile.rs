//! Files that must never be sent, and every spelling of a request for them.

use std::os::unix::fs::lchown;

use proptest::prelude::*;

use super::*;

#[test]
fn a_path_that_climbs_above_the_root_is_a_bad_request() {
    let mut site = TestSite::new(&[("index.php", ""), ("sub/a.txt", "A")]);
    write(&site.home.path().join("secret.txt"), "SECRET");
    for target in [
        "/../secret.txt",
        "/..",
        "/%2e%2e/secret.txt",
        "/.%2E/secret.txt",
        "/sub/../../secret.txt",
        "/sub/%2e%2e/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/sub%2f..%2f..%2fsecret.txt",
        "/sub/..%2f../secret.txt",
    ] {
        assert_eq!(site.get(target), "refused 400", "{target}");
    }
    for target in ["/..\\secret.txt", "/%2e%2e%5csecret.txt", "/...", "/.../a"] {
        assert_eq!(site.get(target), "refused 404", "{target} is a name with a dot");
    }
    for target in ["/%252e%252e/secret.txt", "/%c0%ae%c0%ae/secret.txt", "/sub\\..\\a"] {
        assert_eq!(site.get(target), "script /index.php ", "{target} is a name");
    }
}

#[test]
fn an_invalid_encoding_or_a_control_byte_is_a_bad_request() {
    let mut site = TestSite::new(&[("index.php", ""), ("x.php", "")]);
    for target in [
        "/%",
        "/%4",
        "/%zz",
        "/a%2",
        "/a%%41",
        "/x.php%00",
        "/x.php%00.txt",
        "/%0a",
        "/%7f",
        "/a\tb",
        "",
        "x.php",
        "*",
        "http://host/x.php",
    ] {
        assert_eq!(site.get(target), "refused 400", "{target}");
    }
}

#[test]
fn names_with_a_leading_dot_are_hidden_whether_they_exist_or_not() {
    let mut site = TestSite::new(&[
        ("index.php", ""),
        (".env", "SECRET"),
        (".git/config", "SECRET"),
        (".git/index.html", "SECRET"),
        ("sub/.htaccess", "SECRET"),
        ("sub/.x/y.php", "SECRET"),
        (".well-known/acme-challenge/token", "TOKEN"),
        (".well-known/.secret", "SECRET"),
        ("sub/.well-known/x", "SECRET"),
    ]);
    for target in [
        "/.env",
        "/%2eenv",
        "/.git/config",
        "/.git",
        "/.git/",
        "/sub/.htaccess",
        "/sub/.x/y.php",
        "/.nothing",
        "/sub/../.env",
        "/.git%2fconfig",
        "/.well-known/.secret",
        "/.well-known/../.env",
        "/.well-known%2f..%2f.env",
        "/sub/.well-known/x",
        "/.env/",
    ] {
        assert_eq!(site.get(target), "refused 404", "{target}");
    }
    assert_eq!(site.get("/.well-known/acme-challenge/token"), "file TOKEN");
    assert_eq!(site.get("/.well-known/openid-configuration"), "script /index.php ");
}

#[test]
fn php_source_is_not_sent_under_any_spelling() {
    let names = [
        "x.PHP",
        "x.Php",
        "x.php.",
        "x.php ",
        "x.php~",
        "x.php.bak",
        "x.php.swp",
        "x.php_old",
        "x.php-1",
        "x.php.1",
        "x.phtml",
        "x.PHTML",
        "x.phar",
        "x.php5",
        "x.php8",
        "x.phps",
        "x.pht",
        "x.phpt",
        "x.php.save",
        "x.php,v",
        "x.php::$DATA",
        "x.php.tar.gz",
        "x.php;.foo",
        "#x.php#",
    ];
    let files: Vec<_> = names.iter().map(|name| (*name, "<?php SECRET")).collect();
    let mut site = TestSite::new(&files);
    for name in names {
        let target = path::encode_path(format!("/{name}").as_bytes());
        assert_eq!(site.get(&target), "refused 404", "{target}");
    }
    for (name, contents) in [("x.php.html", "PAGE"), ("php.txt", "T"), ("phpinfo.css", "C")] {
        write(&site.root().join(name), contents);
        assert_eq!(site.get(&format!("/{name}")), format!("file {contents}"));
    }
}

#[test]
fn a_link_gives_php_source_and_hidden_files_no_other_name() {
    let mut site = TestSite::without_front_controller(&[("x.php", "SECRET"), (".env", "SECRET")]);
    let root = site.root();
    symlink("x.php", root.join("source.txt")).unwrap();
    symlink(".env", root.join("env.txt")).unwrap();
    symlink("source.txt", root.join("twice.txt")).unwrap();
    for target in ["/source.txt", "/env.txt", "/twice.txt"] {
        assert_eq!(site.get(target), "refused 404", "{target}");
    }
}

#[test]
fn links_out_of_the_root_to_another_owner_are_refused() {
    let mut site = TestSite::new(&[("index.php", "")]);
    let (home, root) = (site.home.path().to_owned(), site.root());
    link_to_another_owner(&home, &root.join("link.txt"));
    assert_eq!(site.get("/link.txt"), "refused 404");
    symlink("/proc/self/root/etc/hostname", root.join("magic.txt")).unwrap();
    assert_eq!(site.get("/magic.txt"), "refused 404");
    symlink("loop", root.join("loop")).unwrap();
    assert_eq!(site.get("/loop"), "refused 404");
}

#[test]
fn the_owner_is_checked_at_every_link_on_the_way() {
    if !is_root() {
        return;
    }
    let mut site = TestSite::without_front_controller(&[("own/a.txt", "A")]);
    let (home, root) = (site.home.path().to_owned(), site.root());
    write(&home.join("theirs/b.txt"), "SECRET");
    chown(home.join("theirs"), Some(4321), None).unwrap();
    symlink("../theirs", root.join("dir")).unwrap();
    lchown(root.join("dir"), Some(1234), None).unwrap();
    assert_eq!(site.get("/dir/b.txt"), "refused 404", "the directory is another's");
    lchown(root.join("dir"), Some(4321), None).unwrap();
    assert_eq!(site.get("/dir/b.txt"), "file SECRET", "link and directory are the same user's");
    symlink(home.join("theirs/b.txt"), home.join("theirs/c.txt")).unwrap();
    lchown(home.join("theirs/c.txt"), Some(4321), None).unwrap();
    assert_eq!(site.get("/dir/c.txt"), "refused 404", "the second link leads to another's file");
    symlink("own", root.join("inside")).unwrap();
    lchown(root.join("inside"), Some(4321), None).unwrap();
    assert_eq!(site.get("/inside/a.txt"), "file A", "what lies in the root is the site's");
}

#[test]
fn only_regular_files_are_sent_and_a_fifo_does_not_hang() {
    let mut site = TestSite::new(&[("index.php", "")]);
    let root = site.root();
    let fifo = |name: &str| {
        let mode = Mode::from_raw_mode(0o644);
        fs_node(&root.join(name), FileType::Fifo, mode);
    };
    fifo("pipe.txt");
    fifo("pipe.php");
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    symlink("/dev/null", root.join("null")).unwrap();
    for target in ["/pipe.txt", "/pipe.php", "/socket", "/null"] {
        assert_eq!(site.get(target), "refused 404", "{target}");
    }
    assert_eq!(site.get("/pipe.php/info"), "script /index.php ");
}

fn fs_node(path: &Path, kind: FileType, mode: Mode) {
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
}

/// Pieces of which paths are made that try to get somewhere.
fn hostile_path() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "/",
        "/",
        "/",
        "..",
        "%2e%2e",
        ".%2E",
        "%2f",
        "%2F..",
        "%252e%252e",
        "%5c",
        "\\",
        ".",
        "a",
        "a.txt",
        "secret.txt",
        "x.php",
        "x.PHP",
        ".env",
        "out",
        "other",
        "public",
        ".well-known",
        "%00",
        "~",
        ".bak",
        "%20",
        "%c0%af",
        ";",
        ":",
        "?",
    ]);
    prop::collection::vec(piece, 0..12).prop_map(|pieces| format!("/{}", pieces.concat()))
}

fn hostile_site() -> TestSite {
    let site = TestSite::new(&[
        ("index.php", "SECRET"),
        ("a.txt", "INSIDE"),
        ("a/a.txt", "INSIDE"),
        ("a/x.php", "SECRET"),
        ("x.PHP", "SECRET"),
        ("x.php.bak", "SECRET"),
        ("x.php~", "SECRET"),
        (".env", "SECRET"),
        ("a/.env", "SECRET"),
        (".well-known/a.txt", "INSIDE"),
    ]);
    let (home, root) = (site.home.path(), site.root());
    write(&home.join("secret.txt"), "SECRET");
    write(&home.join("a/secret.txt"), "SECRET");
    write(&home.join("out/a.txt"), "INSIDE");
    symlink("../out", root.join("out")).unwrap();
    link_to_another_owner(home, &root.join("other"));
    site
}

/// Printable text, ASCII, and what is made of the bytes that mean something in a path.
const ANY_PATH: &str = r"/?\PC*|[ -~]*|(/[.%2eEfF\\a]{0,6}){0,6}";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_path_reaches_what_is_not_to_be_sent(
        paths in prop::collection::vec(hostile_path(), 64)
    ) {
        let mut site = hostile_site();
        for path in paths {
            match site.resolver.resolve(&path, None) {
                Route::File(entry) => prop_assert_eq!(contents(&entry), "INSIDE", "{}", path),
                Route::Script(script) => {
                    let known: [&[u8]; 2] = [b"/index.php", b"/a/x.php"];
                    prop_assert!(known.contains(&&script.script_name[..]), "{}", path);
                }
                Route::RedirectSlash(location) => prop_assert!(!location.starts_with("//")),
                Route::Refused(refused) => {
                    prop_assert!(matches!(refused.status, 400 | 404), "{} {:?}", path, refused);
                }
            }
        }
    }

    #[test]
    fn no_text_makes_the_path_cleaner_panic_or_leave_a_dot_segment(text in ANY_PATH) {
        if let Ok(path) = clean_path(&text) {
            let bytes = path.as_bytes();
            prop_assert!(bytes.starts_with(b"/"));
            prop_assert!(path.names_end() <= bytes.len());
            prop_assert!(!bytes.iter().any(u8::is_ascii_control));
            let (last, before) = bytes[1..]
                .split(|byte| *byte == b'/')
                .collect::<Vec<_>>()
                .split_last()
                .map(|(last, before)| (*last, before.to_vec()))
                .unwrap();
            prop_assert!(last != b"." && last != b"..");
            prop_assert!(before.iter().all(|name| !matches!(*name, b"" | b"." | b"..")));
        }
    }
}
