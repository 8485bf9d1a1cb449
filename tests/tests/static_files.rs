//! Files are served as they should be, and what must not be served is not, under any spelling.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{lchown, symlink};
use std::time::Duration;

use maitred_tests::Target;
use maitred_tests::http::{self, Request, Response};
use maitred_tests::server::{Server, Setup, document_root, is_root, user_ids, write_file};
use maitred_tests::wait;
use tempfile::TempDir;

const SECRET: &str = "SECRET-THAT-MUST-STAY";

fn get_with(address: SocketAddr, target: &str, headers: &[(&str, &str)]) -> Response {
    let mut request = Request::get(target);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    http::ask(address, &request)
}

fn site() -> TempDir {
    document_root(&[
        ("index.html", "<p>front page</p>"),
        ("digits.txt", "0123456789"),
        ("style.css", "p {}"),
        ("script.js", "1;"),
        ("data.json", "{}"),
        ("picture.png", "not really"),
        ("picture.svg", "<svg/>"),
        ("page.html", "<p>"),
        ("font.woff2", "w"),
        ("unknown.zzz", "?"),
        ("no_extension", "?"),
        ("with space.txt", "spaced"),
        ("folder/index.html", "<p>folder</p>"),
        (".env", SECRET),
        (".git/config", SECRET),
        ("folder/.htpasswd", SECRET),
        (".well-known/acme-challenge/token", "challenge"),
        ("source.php", "<?php /* SECRET-THAT-MUST-STAY */ echo 'ran';"),
        ("upper.PHP", "<?php /* SECRET-THAT-MUST-STAY */ echo 'ran';"),
    ])
}

fn serve(root: &TempDir) -> Server {
    Setup::new(root.path()).site("front_controller = \"\"").start()
}

#[test]
fn files_have_the_type_of_their_extension() {
    let root = site();
    let server = serve(&root);
    let expected = [
        ("/", "text/html"),
        ("/digits.txt", "text/plain"),
        ("/style.css", "text/css"),
        ("/script.js", "text/javascript"),
        ("/data.json", "application/json"),
        ("/picture.png", "image/png"),
        ("/picture.svg", "image/svg+xml"),
        ("/font.woff2", "font/woff2"),
        ("/unknown.zzz", "application/octet-stream"),
        ("/no_extension", "application/octet-stream"),
        ("/with%20space.txt", "text/plain"),
        ("/.well-known/acme-challenge/token", "application/octet-stream"),
    ];
    for (target, media_type) in expected {
        let response = http::get(server.address(), target);
        let found = response.header("Content-Type").unwrap_or_default();
        let found = found.split(';').next().unwrap_or_default();
        assert_eq!((response.status, found), (200, media_type), "{target}");
    }
}

#[test]
fn an_unchanged_file_is_answered_with_304() {
    let root = site();
    let server = serve(&root);
    let first = http::get(server.address(), "/digits.txt");
    let tag = first.header("ETag").expect("a file has an ETag").to_owned();
    let date = first.header("Last-Modified").expect("a file has a date").to_owned();
    let weak = format!("W/{tag}");
    let list = format!("\"other\", {tag}");
    let unchanged: [&[(&str, &str)]; 6] = [
        &[("If-None-Match", &tag)],
        &[("If-None-Match", &weak)],
        &[("If-None-Match", &list)],
        &[("If-None-Match", "*")],
        &[("If-Modified-Since", &date)],
        &[("If-None-Match", &tag), ("If-Modified-Since", "Thu, 01 Jan 1970 00:00:00 GMT")],
    ];
    for headers in unchanged {
        let response = get_with(server.address(), "/digits.txt", headers);
        assert_eq!((response.status, response.body.len()), (304, 0), "{headers:?}");
        assert_eq!(response.header("ETag"), Some(tag.as_str()), "{headers:?}");
    }
    let changed: [&[(&str, &str)]; 3] = [
        &[("If-None-Match", "\"other\"")],
        &[("If-None-Match", "\"other\""), ("If-Modified-Since", &date)],
        &[("If-Modified-Since", "Thu, 01 Jan 1970 00:00:00 GMT")],
    ];
    for headers in changed {
        let response = get_with(server.address(), "/digits.txt", headers);
        assert_eq!((response.status, response.text().as_str()), (200, "0123456789"), "{headers:?}");
    }
}

#[test]
fn a_changed_file_is_served_anew() {
    let root = site();
    let server = serve(&root);
    let old = http::get(server.address(), "/digits.txt");
    for length in 1..50 {
        let text = "x".repeat(length);
        write_file(root.path(), "digits.txt", text.as_bytes());
        let new = http::get(server.address(), "/digits.txt");
        assert_eq!(new.text(), text);
        assert_ne!(new.header("ETag"), old.header("ETag"));
    }
    fs::remove_file(root.path().join("digits.txt")).expect("a file can be removed");
    assert_eq!(http::get(server.address(), "/digits.txt").status, 404);
}

#[test]
fn ranges_are_cut_out_as_asked() {
    let root = site();
    let server = serve(&root);
    let cases = [
        ("bytes=0-3", 206, "0123", "bytes 0-3/10"),
        ("bytes=5-", 206, "56789", "bytes 5-9/10"),
        ("bytes=-2", 206, "89", "bytes 8-9/10"),
        ("bytes=8-100", 206, "89", "bytes 8-9/10"),
        ("bytes=-100", 206, "0123456789", "bytes 0-9/10"),
    ];
    for (range, status, body, content_range) in cases {
        let response = get_with(server.address(), "/digits.txt", &[("Range", range)]);
        assert_eq!((response.status, response.text().as_str()), (status, body), "{range}");
        assert_eq!(response.header("Content-Range"), Some(content_range), "{range}");
    }
    for range in ["bytes=10-", "bytes=100-200", "bytes=-0"] {
        let response = get_with(server.address(), "/digits.txt", &[("Range", range)]);
        assert_eq!(response.status, 416, "{range}");
        assert_eq!(response.header("Content-Range"), Some("bytes */10"), "{range}");
    }
    for range in ["bytes=3-1", "bytes=a-b", "lines=1-2", "bytes=", "0-3"] {
        let response = get_with(server.address(), "/digits.txt", &[("Range", range)]);
        assert_eq!((response.status, response.body.len()), (200, 10), "{range} is ignored");
    }
}

#[test]
fn several_ranges_come_as_multipart() {
    let root = site();
    let server = serve(&root);
    let response = get_with(server.address(), "/digits.txt", &[("Range", "bytes=0-1,5-6")]);
    assert_eq!(response.status, 206);
    let media_type = response.header("Content-Type").expect("a type");
    let boundary = media_type.strip_prefix("multipart/byteranges; boundary=").expect("a boundary");
    let text = response.text();
    for part in ["bytes 0-1/10\r\n\r\n01\r\n", "bytes 5-6/10\r\n\r\n56\r\n"] {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    assert!(text.trim_end().ends_with(&format!("--{}--", boundary.trim_matches('"'))), "{text:?}");
    let many = format!("bytes={}", "0-1,".repeat(5000) + "3-4");
    let response = get_with(server.address(), "/digits.txt", &[("Range", &many)]);
    assert!(response.body.len() < 100_000, "thousands of ranges do not multiply the file");
}

#[test]
fn if_range_decides_between_part_and_whole() {
    let root = site();
    let server = serve(&root);
    let first = http::get(server.address(), "/digits.txt");
    let tag = first.header("ETag").expect("a file has an ETag");
    let range = ("Range", "bytes=0-3");
    let part = get_with(server.address(), "/digits.txt", &[range, ("If-Range", tag)]);
    assert_eq!((part.status, part.text().as_str()), (206, "0123"));
    let whole = get_with(server.address(), "/digits.txt", &[range, ("If-Range", "\"other\"")]);
    assert_eq!((whole.status, whole.body.len()), (200, 10));
}

#[test]
fn a_folder_is_redirected_to_its_slash() {
    let root = site();
    let server = serve(&root);
    let response = http::get(server.address(), "/folder?a=b");
    assert_eq!(response.status, 301);
    let location = response.header("Location").unwrap_or_default();
    assert!(location.ends_with("/folder/?a=b"), "{location}");
    assert_eq!(http::get(server.address(), "/folder/").text(), "<p>folder</p>");
    let evil = http::get(server.address(), "//evil.test/..%2ffolder");
    let location = evil.header("Location").unwrap_or_default();
    assert!(!location.starts_with("//"), "{location} leads to another host");
}

#[test]
fn a_file_answers_only_get_and_head() {
    let root = site();
    let server = serve(&root);
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        let request = Request::new(method, "/digits.txt").header("Host", "localhost").body(b"x");
        let response = http::ask(server.address(), &request);
        assert_eq!(response.status, 405, "{method}");
        assert!(response.header("Allow").is_some_and(|allow| allow.contains("GET")), "{method}");
    }
}

#[test]
fn dotfiles_do_not_exist() {
    let root = site();
    let server = serve(&root);
    let targets =
        ["/.env", "/.git/config", "/folder/.htpasswd", "/%2eenv", "/.git/", "/.git", "/./.env"];
    for target in targets {
        let response = http::get(server.address(), target);
        assert_eq!(response.status, 404, "{target}");
        assert!(!response.text().contains(SECRET), "{target}");
    }
    let known = http::get(server.address(), "/.well-known/acme-challenge/token");
    assert_eq!(known.text(), "challenge");
}

#[test]
fn php_source_is_never_shown_under_any_spelling() {
    let root = site();
    let server = serve(&root);
    let spellings = [
        "/source.php",
        "/source.php/",
        "/source.php//",
        "/source.PHP",
        "/source.Php",
        "/upper.PHP",
        "/upper.php",
        "/source.php.",
        "/source.php%00",
        "/source.php%00.txt",
        "/source.php%20",
        "/source.php;",
        "/source.php;.txt",
        "/source.php%2f",
        "/source.php/.",
        "/source.php/..",
        "/source%2ephp",
        "/%73ource.php",
        "//source.php",
        "/./source.php",
        "/folder/../source.php",
        "/source.php::$DATA",
        "/source.php~",
        "/source.php/x.txt",
        "/source.php/x.css?v=1",
        "/upper.PHP/",
        "/upper.PHP/x.txt",
        "/upper%2ePHP",
        "/source.php%5c",
        "/source.php%0a",
    ];
    for target in spellings {
        for range in [None, Some(("Range", "bytes=0-60"))] {
            let response = get_with(server.address(), target, range.as_slice());
            assert!(!response.text().contains(SECRET), "{target} shows the source");
            assert!(response.status < 500, "{target} gives {}", response.status);
        }
    }
}

#[test]
fn nothing_outside_the_root_is_served_under_any_encoding() {
    let outer = document_root(&[
        ("outside.txt", SECRET),
        ("outside.php", "<?php echo 'SECRET-THAT-MUST-STAY';"),
        ("root/inside.txt", "inside"),
        ("root/deep/er/file.txt", "deep"),
        ("root-twin/outside.txt", SECRET),
    ]);
    let server = Setup::new(&outer.path().join("root")).site("front_controller = \"\"").start();
    let dots = [
        "..",
        "%2e%2e",
        ".%2e",
        "%2e.",
        "%2E%2E",
        "%252e%252e",
        "..%00",
        "%c0%ae%c0%ae",
        "..;",
        "%u002e%u002e",
        "...",
        "..%c0%af",
        "%ff%2e%2e",
    ];
    let slashes = ["/", "%2f", "%5c", "\\", "//", "/./", "%252f"];
    for dot in dots {
        for slash in slashes {
            for file in ["outside.txt", "outside.php", "root-twin/outside.txt", "etc/passwd"] {
                for start in ["/", "/deep/er/", "/inside.txt/", "/%2f"] {
                    let up =
                        format!("{dot}{slash}").repeat(if start == "/deep/er/" { 3 } else { 1 });
                    let target = format!("{start}{up}{file}");
                    let text = http::get(server.address(), &target).text();
                    assert!(!text.contains(SECRET) && !text.contains("root:"), "{target} leaks");
                }
            }
        }
    }
    assert_eq!(http::get(server.address(), "/deep/../inside.txt").text(), "inside");
}

#[test]
fn a_link_to_another_owners_file_is_not_followed() {
    let outer = document_root(&[("outside.txt", SECRET), ("mine.txt", "mine")]);
    let root = site();
    symlink(outer.path().join("outside.txt"), root.path().join("theirs.txt")).expect("a link");
    symlink("/etc/passwd", root.path().join("passwd.txt")).expect("a link");
    symlink(root.path().join("digits.txt"), root.path().join("alias.txt")).expect("a link");
    if !is_root() {
        eprintln!("skipped: only root can make files of several owners");
        return;
    }
    // A link of root is followed; one of the web user to a file of root is not.
    let theirs = root.path().join("theirs.txt");
    let (uid, gid) = user_ids("www-data");
    lchown(&theirs, Some(uid), Some(gid)).expect("a link can be given away");
    let server = serve(&root);
    assert_eq!(http::get(server.address(), "/alias.txt").text(), "0123456789");
    assert_ne!(http::get(server.address(), "/theirs.txt").status, 200);
}

#[test]
fn a_large_file_arrives_whole_while_others_are_answered() {
    let root = site();
    let large: Vec<u8> = (0..64_u32 << 20).map(|at| (at % 251) as u8).collect();
    write_file(root.path(), "large.bin", &large);
    let server = serve(&root);
    let mut lazy = http::Connection::open(server.address());
    lazy.send(&Request::get("/large.bin").to_bytes()).expect("the server takes a request");
    for _ in 0..50 {
        assert_eq!(http::get(server.address(), "/digits.txt").text(), "0123456789");
    }
    let response = lazy.read_response(false).expect("an answer");
    assert!(response.body == large, "the file differs");
    let tail = get_with(server.address(), "/large.bin", &[("Range", "bytes=-1000")]);
    assert!(tail.body == large[large.len() - 1000..], "the file's end differs");
}

#[test]
fn a_missing_file_is_404_without_a_front_controller_and_its_with_one() {
    let root = site();
    let server = serve(&root);
    assert_eq!(http::get(server.address(), "/missing.txt").status, 404);
    assert_eq!(http::get(server.address(), "/missing.php").status, 404);
    server.stop();
    write_file(root.path(), "index.php", b"<?php echo 'controller ', $_SERVER['REQUEST_URI'];");
    let server = Server::start(root.path());
    assert_eq!(http::get(server.address(), "/missing.txt").text(), "controller /missing.txt");
}

#[test]
fn a_large_file_that_is_deleted_is_closed_after_a_while() {
    let root = site();
    let file = root.path().join("large.bin");
    fs::write(&file, vec![b'x'; 100 * 1024]).expect("a file");
    let server = serve(&root);
    // A file that has just been written may still change, and is not held.
    wait::until_true("the file to be held open", || {
        http::get(server.address(), "/large.bin");
        server.holds(&file)
    });
    fs::remove_file(&file).expect("it can be deleted");
    let deleted = root.path().join("large.bin (deleted)");
    assert!(server.holds(&deleted));
    let closed = || (!server.holds(&deleted)).then_some(());
    wait::until_within("it to be closed", Duration::from_secs(120), closed);
    server.stop();
}
