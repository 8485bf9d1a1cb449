//! The `X-Accel-Redirect` and `X-Sendfile` headers: files that a script has sent in place of its
//! own answer, with nginx beside as the measure.

use std::fs;
use std::os::unix::fs::symlink;

use maitred_tests::Target;
use maitred_tests::http::{self, Connection, Request, Response};
use maitred_tests::http2;
use maitred_tests::peer::Peer;
use maitred_tests::ports;
use maitred_tests::server::{Server, Setup, document_root, public_folder, write_file};
use maitred_tests::tls::{Authority, curl};
use maitred_tests::web::Web;
use tempfile::TempDir;

/// Larger than what is kept in memory, so that the kernel sends it.
const LARGE_BYTES: usize = 300_000;

/// Names a file as the query says, with a header such as applications give downloads.
const DOWNLOAD: &str = "<?php
    header('Content-Type: application/x-thing');
    header('Content-Disposition: attachment; filename=\"a.bin\"');
    header('Cache-Control: private, max-age=7');
    header('Expires: Thu, 01 Jan 2037 00:00:00 GMT');
    header('Set-Cookie: seen=1');
    header('ETag: \"of-the-script\"');
    header('Last-Modified: Thu, 01 Jan 1998 00:00:00 GMT');
    header('Content-Length: 3');
    if (isset($_GET['status'])) { http_response_code((int) $_GET['status']); }
    if (isset($_GET['path'])) { header('X-Accel-Redirect: ' . $_GET['path']); }
    if (isset($_GET['file'])) { header('X-Sendfile: ' . $_GET['file']); }
    echo 'own';";

struct Site {
    root: TempDir,
    files: TempDir,
}

impl Site {
    fn new() -> Site {
        let root = document_root(&[
            ("download.php", DOWNLOAD),
            ("public.txt", "anybody's"),
            (
                "type.php",
                "<?php echo json_encode([$_SERVER['HTTP_X_SENDFILE_TYPE'] ?? null,
                $_SERVER['HTTP_X_ACCEL_MAPPING'] ?? null]);",
            ),
        ]);
        let files = document_root(&[
            ("a b.txt", "0123456789"),
            ("sub/100%.txt", "percent"),
            (".hidden", "SECRET"),
            ("source.php", "<?php SECRET"),
        ]);
        write_file(files.path(), "large.bin", &large());
        Site { root, files }
    }

    fn setup(&self) -> Setup {
        let folder = self.files.path().display();
        let line = format!("sendfile_roots = {{ \"/protected/\" = \"{folder}\" }}");
        Setup::new(self.root.path()).site(&line)
    }

    fn file(&self, name: &str) -> String {
        let name = self.files.path().join(name).display().to_string();
        name.replace('%', "%25").replace(' ', "%20")
    }
}

fn large() -> Vec<u8> {
    (0..LARGE_BYTES).map(|at| (at * 7 % 251) as u8).collect()
}

fn by_path(path: &str) -> String {
    format!("/download.php?path={path}")
}

fn by_file(file: &str) -> String {
    format!("/download.php?file={file}")
}

/// Fails unless a script's own answer, and the headers by which it speaks to us, stay with us.
fn assert_nothing_leaks(answer: &Response) {
    for (name, _) in &answer.headers {
        let name = name.to_ascii_lowercase();
        assert!(!name.starts_with("x-accel") && name != "x-sendfile", "{name}");
    }
    assert!(!answer.text().contains("own") && !answer.text().contains("SECRET"));
}

#[test]
fn a_file_takes_the_place_of_the_answer_and_keeps_its_header() {
    let site = Site::new();
    let server = site.setup().start();
    let by = [by_path("/protected/a%2520b.txt"), by_file(&site.file("a b.txt"))];
    for asked in by {
        let answer = http::get(server.address(), &asked);
        assert_eq!((answer.status, answer.text()), (200, "0123456789".into()), "{asked}");
        for (name, value) in [
            ("Content-Type", "application/x-thing"),
            ("Content-Disposition", "attachment; filename=\"a.bin\""),
            ("Cache-Control", "private, max-age=7"),
            ("Set-Cookie", "seen=1"),
            ("Content-Length", "10"),
            ("Accept-Ranges", "bytes"),
        ] {
            assert_eq!(answer.all(name).collect::<Vec<_>>(), [value], "{name}");
        }
        for name in ["ETag", "Last-Modified"] {
            let value = answer.header(name).expect("the file's");
            assert!(!value.contains("script") && !value.contains("1998"), "{value}");
        }
        assert_nothing_leaks(&answer);
    }
}

#[test]
fn a_path_may_be_encoded_as_a_whole_and_a_file_name_is_taken_as_it_is() {
    let site = Site::new();
    let server = site.setup().start();
    // As Symfony writes it: every slash encoded, too. PHP decodes the query once.
    let symfony = by_path("%252Fprotected%252Fsub%252F100%2525.txt");
    assert_eq!(http::get(server.address(), &symfony).text(), "percent");
    let file = by_file(&site.file("sub/100%.txt"));
    assert_eq!(http::get(server.address(), &file).text(), "percent");
}

#[test]
fn ranges_conditions_and_head_are_a_static_files() {
    let site = Site::new();
    let server = site.setup().start();
    let mut connection = Connection::open(server.address());
    for asked in [by_path("/protected/large.bin"), by_file(&site.file("large.bin"))] {
        let whole = connection.ask(&Request::get(&asked)).expect("an answer");
        assert_eq!(whole.body, large());
        let etag = whole.header("ETag").expect("an entity tag").to_owned();
        let part = Request::get(&asked).header("Range", "bytes=10-19,200000-200009");
        let part = connection.ask(&part).expect("an answer");
        assert_eq!(part.status, 206);
        assert!(part.header("Content-Type").is_some_and(|kind| kind.starts_with("multipart/")));
        assert_eq!(part.text().matches("application/x-thing").count(), 2);
        let one = Request::get(&asked).header("Range", "bytes=-5");
        let one = connection.ask(&one).expect("an answer");
        assert_eq!((one.status, &one.body[..]), (206, &large()[LARGE_BYTES - 5..]));
        let known = Request::get(&asked).header("If-None-Match", &etag);
        let known = connection.ask(&known).expect("an answer");
        assert_eq!((known.status, known.header("Set-Cookie")), (304, Some("seen=1")));
        let head = Request::new("HEAD", &asked).header("Host", "localhost");
        let head = connection.ask(&head).expect("an answer");
        assert_eq!(head.status, 200);
        assert_eq!(head.header("Content-Length"), Some("300000"));
        // What asks with another method gets the file as with GET.
        let post = Request::post(&asked, "text/plain", b"x");
        assert_eq!(connection.ask(&post).expect("an answer").body, large());
    }
}

#[test]
fn nothing_outside_of_the_roots_is_reached_and_the_log_says_which_is_needed() {
    let site = Site::new();
    let server = site.setup().start();
    for (asked, told) in [
        (
            by_path("/public.txt"),
            "begins with none of the paths of the site's sendfile_roots (/protected/)",
        ),
        (by_path("/protected/../public.txt"), "begins with none"),
        (by_path("/protected/..%252f..%252f..%252fetc/passwd"), "X-Accel-Redirect"),
        (by_path("/protected/.hidden"), "begin with a dot"),
        (by_path("/protected/source.php"), "PHP source is never sent"),
        (by_path("/protected/sub"), "/protected/sub"),
        (by_path("/protected/gone"), "there is no such file"),
        (by_path("@named"), "does not begin with a slash"),
        (by_file("/etc/passwd"), "lies in none of the folders of the site's sendfile_roots"),
        (by_file("a%20b.txt"), "lies in none of the folders"),
        (by_file(&site.file("../../../../../etc/passwd")), "X-Sendfile"),
        (by_file(&site.file(".hidden")), "begin with a dot"),
        (by_file(&format!("{}evil", site.file(""))), "X-Sendfile"),
        (by_file(&format!("{}2/a", site.files.path().display())), "lies in none of the folders"),
    ] {
        let mark = server.log().mark();
        let answer = http::get(server.address(), &asked);
        assert_eq!(answer.status, 404, "{asked}: {}", answer.text());
        assert_nothing_leaks(&answer);
        let line = server.expect_log(mark, told);
        assert!(line.contains("download.php"), "{line}");
    }
    let answer = http::get(server.address(), "/protected/a%20b.txt");
    assert_eq!(answer.status, 404, "a client cannot ask for it: {}", answer.text());
}

#[test]
fn a_site_without_roots_sends_nothing_and_tells_no_client_what_was_named() {
    let site = Site::new();
    let server = Server::start(site.root.path());
    for asked in [by_path("/protected/a"), by_file(&site.file("a b.txt"))] {
        let mark = server.log().mark();
        let answer = http::get(server.address(), &asked);
        assert_eq!(answer.status, 404, "{asked}");
        assert_nothing_leaks(&answer);
        server.expect_log(mark, "the site has no sendfile_roots");
    }
}

#[test]
fn the_rules_of_the_site_hold_for_a_file_that_a_script_names() {
    let site = Site::new();
    write_file(site.root.path(), "lost.html", b"nothing here");
    let server = site
        .setup()
        .site("headers = { X-Frame-Options = \"DENY\" }")
        .site("error_pages = { 404 = \"/lost.html\" }")
        .start();
    let sent = http::get(server.address(), &by_path("/protected/a%2520b.txt"));
    assert_eq!((sent.status, sent.text()), (200, "0123456789".into()));
    assert_eq!(sent.header("X-Frame-Options"), Some("DENY"));
    let lost = http::get(server.address(), &by_path("/protected/gone"));
    assert_eq!((lost.status, lost.text()), (404, "nothing here".into()));
}

#[test]
fn a_file_of_a_release_that_a_link_leads_to_since_the_start_is_sent_by_its_real_name() {
    let site = Site::new();
    let folder = public_folder();
    let (current, next) = (folder.path().join("current"), folder.path().join("next"));
    let switch = |number: u32| {
        let release = folder.path().join(number.to_string());
        write_file(&release, "a.txt", format!("release {number}").as_bytes());
        symlink(&release, &next).unwrap();
        fs::rename(&next, &current).unwrap();
        release.join("a.txt").display().to_string()
    };
    let first = switch(1);
    let server = Setup::new(site.root.path())
        .site(&format!("sendfile_roots = {{ \"/protected/\" = {current:?} }}"))
        .start();
    let sent = |file: &str| {
        let answer = http::get(server.address(), &by_file(file));
        (answer.status, answer.text())
    };
    assert_eq!(sent(&first), (200, "release 1".into()));
    let second = switch(2);
    assert_eq!(sent(&second), (200, "release 2".into()));
    assert_eq!(sent(&first).0, 404);
}

#[test]
fn an_error_page_may_be_a_script_that_names_a_file() {
    let site = Site::new();
    let page =
        "<?php header('Content-Type: text/plain'); header('X-Accel-Redirect: /protected/a b.txt');";
    write_file(site.root.path(), "lost.php", page.as_bytes());
    let server = site
        .setup()
        .site("front_controller = \"\"")
        .site("error_pages = { 404 = \"/lost.php\" }")
        .start();
    let ranged = Request::get("/nothing").header("Range", "bytes=0-0");
    let lost = http::ask(server.address(), &ranged.header("Connection", "close"));
    assert_eq!((lost.status, lost.text()), (404, "0123456789".into()));
}

#[test]
fn over_http2_and_tls_it_is_the_same() {
    let site = Site::new();
    let authority = Authority::default();
    let certificate = authority.issue("site", &["localhost", "127.0.0.1"]);
    let address = ports::free_address();
    let lines = [format!("certificates = [{}]", certificate.toml())];
    let server = site.setup().tls(address, &lines).start();
    let target = by_path("/protected/large.bin");
    let mut connection = http2::Connection::open(server.address(), &[]);
    connection.ask(1, &by_path("/protected/a%2520b.txt"));
    assert_eq!(connection.text(1), "0123456789");
    let url = format!("https://localhost{target}");
    let output = curl(&authority, address, ["-D", "-", "-r", "0-4", "-o", "/dev/null", &url]);
    let text = String::from_utf8_lossy(&output.stdout).to_ascii_lowercase();
    assert!(text.starts_with("http/2 206"), "{text}");
    assert!(text.contains("content-type: application/x-thing"), "{text}");
    assert!(!text.contains("x-accel"), "{text}");
}

#[test]
fn scripts_are_told_how_to_name_files_and_clients_cannot_say_it() {
    let site = Site::new();
    let asked = || {
        Request::get("/type.php")
            .header("X-Sendfile-Type", "X-Accel-Redirect")
            .header("X-Accel-Mapping", "/=/protected/")
            .header("Connection", "close")
    };
    let server = site.setup().start();
    let told = http::ask(server.address(), &asked()).json();
    assert_eq!(told.to_string(), "[\"X-Sendfile\",null]");
    drop(server);
    let without = Server::start(site.root.path());
    let told = http::ask(without.address(), &asked()).json();
    assert_eq!(told[0], "X-Accel-Redirect");
}

#[test]
fn nginx_answers_the_same() {
    let site = Site::new();
    let server = site.setup().start();
    let fpm = Peer::nginx_php_fpm(site.root.path());
    let (root, files) = (site.root.path().display(), site.files.path().display());
    let socket = fpm.fpm_socket();
    let nginx = Web::nginx(
        "",
        &format!(
            "root {root}; location /protected/ {{ internal; alias {files}/; }} \
             location ~ \\.php$ {{ include /etc/nginx/fastcgi.conf; fastcgi_pass unix:{}; }}",
            socket.display()
        ),
    );
    let path = by_path("/protected/a%2520b.txt");
    let missing = by_path("/protected/gone");
    let failing = format!("{path}&status=500");
    let requests = [
        Request::get(&path),
        Request::get(&path).header("Range", "bytes=2-4"),
        Request::get(&path).header("Range", "bytes=90-"),
        Request::get(&path).header("If-Unmodified-Since", "Thu, 01 Jan 1998 00:00:00 GMT"),
        Request::new("HEAD", &path).header("Host", "localhost"),
        Request::post(&path, "text/plain", b"x"),
        Request::get(&failing),
        Request::get(&missing),
        Request::get("/protected/a%20b.txt"),
    ];
    for request in requests {
        let request = request.header("Connection", "close");
        let ours = http::ask(server.address(), &request);
        let theirs = http::ask(nginx.address(), &request);
        let what = format!("{} {} {:?}", request.method, request.target, request.headers);
        assert_eq!(ours.status, theirs.status, "{what}");
        if ours.status >= 400 {
            continue;
        }
        assert_eq!(ours.body, theirs.body, "{what}");
        for name in [
            "Content-Disposition",
            "Cache-Control",
            "Expires",
            "Set-Cookie",
            "Content-Range",
            "Last-Modified",
            "Content-Type",
        ] {
            if ours.status == 304 && name == "Content-Type" {
                continue;
            }
            assert_eq!(ours.header(name), theirs.header(name), "{what}: {name}");
        }
    }
}

#[test]
fn the_worker_is_free_while_a_slow_client_takes_the_file() {
    let site = Site::new();
    // Far more than a socket takes at once.
    let huge = fs::File::create(site.files.path().join("huge.bin")).expect("a file can be made");
    huge.set_len(256 << 20).expect("a file can be lengthened");
    let server = site.setup().workers(1).start();
    let mut slow = Connection::open(server.address());
    let request = Request::get(&by_path("/protected/huge.bin"));
    slow.send(&request.to_bytes()).expect("it can be sent");
    let head = slow.read_head().expect("a head");
    assert_eq!(head.header("Content-Length"), Some("268435456"));
    let other = http::get(server.address(), "/type.php");
    assert_eq!(other.status, 200);
}
