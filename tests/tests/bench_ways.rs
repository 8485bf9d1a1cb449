//! `maitred bench` against real PHP: every way to reach it, every list of requests it reads.

use std::fs;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;

use maitred_tests::bench::{Benched, bench};
use maitred_tests::browser::assert_readable;
use maitred_tests::fpm::{Daemon, Listener, Which, usual};
use maitred_tests::odd::{Odd, answer};
use maitred_tests::server::{Server, Setup, document_root};
use maitred_tests::tls::Authority;
use maitred_tests::{Target, ports};

/// Echoes the request and the visitor of the cookie.
const PAGE: &str = "<?php
$seen = (int) ($_COOKIE['seen'] ?? 0);
setcookie('seen', (string) ($seen + 1));
echo $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['REQUEST_URI'], ' ',
    file_get_contents('php://input'),
    ' accept=', $_SERVER['HTTP_ACCEPT'] ?? '', ' seen=', $seen, '.';";

fn server() -> (tempfile::TempDir, Server) {
    let root = document_root(&[("index.php", PAGE)]);
    let server = Server::start(root.path());
    (root, server)
}

fn expect_served(run: &Benched, count: u64) {
    assert_eq!(run.counts(), [count, 0, 0, 0, 0], "{run:?}");
    assert_eq!(run.code, Some(0));
}

#[test]
fn methods_bodies_and_fields_reach_php_as_they_were_given() {
    let (_root, server) = server();
    let url = format!("{}/a?b=c", server.base_url());
    let ask =
        |flags: &[&str]| bench(&[&[url.as_str(), "--users=2", "--requests=20"], flags].concat());
    let post = ["-d", "x=1&y=2", "-H", "Accept: text/test"];
    let wanted = "--contains=POST /a?b=c x=1&y=2 accept=text/test";
    expect_served(&ask(&[&post[..], &[wanted]].concat()), 20);
    expect_served(&ask(&["-X", "PUT", "--contains=PUT /a?b=c  accept=*/*"]), 20);
    let run = ask(&["-X", "HEAD"]);
    expect_served(&run, 20);
    assert_eq!(run.number("requests.body_bytes"), 0.0);
}

#[test]
fn each_user_keeps_its_cookies() {
    let (_root, server) = server();
    let url = server.base_url() + "/";
    // Two users with ten requests each: the tenth has been seen nine times.
    let run = bench(&[&url, "--users=1", "--requests=10", "--cookies", "--contains=seen=9."]);
    assert_eq!(run.counts(), [1, 0, 0, 0, 9], "{run:?}");
    let run = bench(&[&url, "--users=1", "--requests=10", "--contains=seen=0."]);
    expect_served(&run, 10);
}

#[test]
fn a_list_of_urls_is_sent_by_its_weights() {
    let (root, server) = server();
    let list = root.path().join("urls.txt");
    fs::write(&list, "# siege's\nPAGE = /page\n3 $(PAGE)\n/form POST a=1\n").expect("a file");
    let list = format!("--urls-file={}", list.display());
    let run = bench(&[&server.base_url(), &list, "--users=3", "--requests=400"]);
    expect_served(&run, 400);
    let urls = run.report["urls"].as_array().expect("rows");
    let names: Vec<_> = urls.iter().map(|row| row["url"].as_str().expect("a name")).collect();
    assert_eq!(names, ["GET /page", "POST /form"]);
    let page = run.number("urls.0.served");
    assert!((250.0..350.0).contains(&page), "{page}");
}

#[test]
fn an_access_log_is_sent_again_with_its_spacing() {
    let (root, server) = server();
    let log = root.path().join("access.log");
    let line = |second: u32, path: &str| {
        format!("::1 - - [22/Nov/2026:07:00:{second:02} +0000] \"GET {path} HTTP/1.1\" 200 5\n")
    };
    let mut text = "no line of a log\n".to_owned();
    (0..60).for_each(|number| text += &line(number / 20, &format!("/old?{number}")));
    text += "::1 - - [22/Nov/2026:07:00:03 +0000] \"POST /cart HTTP/1.1\" 200 5\n";
    fs::write(&log, &text).expect("a file");
    let replay = format!("--replay={}", log.display());
    let run = bench(&[&server.base_url(), &replay, "--speed=2", "--contains=GET /old?"]);
    expect_served(&run, 60);
    assert!((1.4..10.0).contains(&run.number("run.seconds")), "{run:?}");
    fs::write(&log, "{\"path\": \"/\"}\n").expect("a file");
    let run = bench(&[&server.base_url(), &replay]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("is no access log with requests to send"), "{run:?}");
}

#[test]
fn what_a_browser_has_saved_is_sent_in_its_order() {
    let (root, server) = server();
    let har = root.path().join("visit.har");
    let entry = |url: &str| format!("{{\"request\":{{\"method\":\"GET\",\"url\":\"{url}\"}}}}");
    let entries = [entry("https://shop.example/a"), entry("https://shop.example/b")].join(",");
    fs::write(&har, format!("{{\"log\":{{\"entries\":[{entries}]}}}}")).expect("a file");
    let har = format!("--har={}", har.display());
    let run = bench(&[&server.base_url(), &har, "--users=2", "--requests=40"]);
    expect_served(&run, 40);
    assert_eq!(run.number("urls.0.served"), 20.0);
    assert_eq!(run.number("urls.1.served"), 20.0);
}

#[test]
fn tls_is_spoken_with_whom_is_trusted() {
    let root = document_root(&[("index.php", PAGE)]);
    let authority = Authority::default();
    let certificate = authority.issue("site", &["localhost"]);
    let address = ports::free_address();
    let lines = [format!("certificates = [{}]", certificate.toml())];
    let _server = Setup::new(root.path()).tls(address, &lines).start();
    let url = format!("https://localhost:{}/", address.port());
    let ca = format!("--ca={}", authority.ca().display());
    let load = ["--users=2", "--requests=50"];
    expect_served(&bench(&[&[url.as_str(), &ca], &load[..]].concat()), 50);
    expect_served(&bench(&[&[url.as_str(), "--insecure"], &load[..]].concat()), 50);
    let run = bench(&[&[url.as_str()], &load[..]].concat());
    assert_eq!(run.counts(), [0, 0, 50, 0, 0], "{run:?}");
}

#[test]
fn a_pool_and_php_fpm_are_asked_over_fastcgi() {
    let root = document_root(&[("index.php", PAGE), ("sleep.php", "<?php usleep(50000);")]);
    for which in [Which::PhpFpm, Which::Maitred] {
        let daemon = Daemon::start(which, &usual("pm.max_children = 2"));
        let Listener::Unix(socket) = daemon.listener() else { panic!("a socket") };
        let ask = |url: &str, flags: &[&str]| {
            let unix = format!("--unix={}", socket.display());
            let fastcgi = format!("--fastcgi={}", root.path().display());
            bench(&[&[url, &unix, &fastcgi], flags].concat())
        };
        let counted = ["--users=3", "--requests=60"];
        let post = ["-d", "x=1", "--contains=POST /index.php?a=b x=1"];
        let url = "http://localhost/index.php?a=b";
        let run = ask(url, &[&counted[..], &post].concat());
        expect_served(&run, 60);
        assert_eq!(run.report["run"]["protocol"], "FastCGI");
        let run = ask("http://localhost/none.php", &counted);
        assert_eq!(run.counts(), [0, 0, 0, 0, 60], "{run:?}");
        // Two workers that sleep for 50 ms serve no more than 40 requests a second.
        let run = ask("http://localhost/sleep.php", &["--users=6", "--duration=2s"]);
        let rate = run.number("requests.rate");
        assert!(rate < 40.8 && rate > 20.0, "{rate}");
        daemon.stop();
    }
}

/// Listens on a Unix socket, and passes on what comes to a server until the test ends.
fn listen_for(address: SocketAddr, socket: &Path) {
    let listener = UnixListener::bind(socket).expect("a socket");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(address) else {
                return;
            };
            thread::spawn(move || {
                let (mut answers, mut back) = (&server, &client);
                thread::scope(|scope| {
                    scope.spawn(|| {
                        let _ = io::copy(&mut &client, &mut &server);
                        let _ = server.shutdown(Shutdown::Write);
                    });
                    let _ = io::copy(&mut answers, &mut back);
                    let _ = client.shutdown(Shutdown::Both);
                });
            });
        }
    });
}

#[test]
fn http_is_spoken_over_a_unix_socket_whatever_the_urls_host_is() {
    let (_root, server) = server();
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("http.sock");
    listen_for(server.address(), &socket);
    let unix = format!("--unix={}", socket.display());
    for version in [&[][..], &["--http2"]] {
        let load = ["--users=3", "--requests=60", "--contains=GET /there"];
        let url = "http://no-such-host.invalid/there";
        let run = bench(&[&[url, &unix], version, &load].concat());
        expect_served(&run, 60);
    }
    let run = bench(&["http://localhost/", "--unix=/nowhere/at.sock", "--rate=10"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("/nowhere/at.sock"), "{run:?}");
}

#[test]
fn a_page_with_charts_loads_nothing_from_elsewhere() {
    let server = Odd::answering(|_| answer("200 OK", "hello"));
    let url =
        format!("http://{}/?a=<script>", server.address()).replace("<script>", "%3Cscript%3E");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("report.html");
    let html = format!("--html={}", file.display());
    let run = bench(&[&url, "--rate=200", "--duration=2s", "--warm-up=0", &html]);
    expect_served(&run, 400);
    let page = fs::read_to_string(&file).expect("a page");
    assert_eq!(page.matches("<svg").count(), 3);
    for word in ["href=", "url(", "<script", "@import"] {
        assert!(!page.contains(word), "{word}");
    }
    assert_readable(&file, "bench");
}

#[test]
fn the_server_is_watched_in_every_way_there_is() {
    // The kernel counts CPU time in ticks of 10 ms, so there has to be some.
    let script = "<?php usleep(100000); for ($i = 0; $i < 300000; $i++);";
    let root = document_root(&[("sleep.php", script)]);
    let setup = Setup::new(root.path()).workers(2).pool("status_path = \"/status\"");
    let server = setup.start();
    let url = format!("{}/sleep.php", server.base_url());
    let watched = |what: &str| {
        let watch = format!("--watch={what}");
        let run = bench(&[&url, "--users=5", "--duration=2s", "--warm-up=0", &watch]);
        assert_eq!(run.code, Some(0), "{run:?}");
        assert!(run.report["server"]["lost"].is_null(), "{run:?}");
        assert!(run.report["server"]["samples"].as_array().map_or(0, Vec::len) >= 3);
        run
    };
    let run = watched(&server.admin_socket().display().to_string());
    assert_eq!(run.number("server.most_busy"), 2.0, "{run:?}");
    assert!(run.number("server.most_queue") >= 1.0);
    assert!(run.number("server.most_private_bytes") > 100_000.0);
    assert!(run.number("server.cpu") > 0.0);
    let run = watched(&format!("{}/status", server.base_url()));
    assert_eq!(run.number("server.most_busy"), 2.0, "{run:?}");
    let run = watched(&server.supervisor().pid.to_string());
    assert!(run.number("server.samples.0.processes") >= 5.0, "{run:?}");
    for nothing in ["/nowhere/admin.sock", "2147483646", &url] {
        let run = bench(&[&url, "--users=1", "--duration=1s", &format!("--watch={nothing}")]);
        assert_eq!(run.code, Some(1), "{run:?}");
    }
}
