//! TLS as curl and openssl see it: pages, bodies, versions, tickets, handshakes.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;

use maitred_tests::http::{self, Request};
use maitred_tests::outside::{succeeded, text};
use maitred_tests::processes::Signal;
use maitred_tests::server::{Setup, write_file};
use maitred_tests::tls::{Served, curl_command, served, served_with};
use maitred_tests::{Target, ports, wait};

#[test]
fn a_script_over_tls_is_told_so_and_one_over_plain_http_is_not() {
    let served = served(&[]);
    let mut lines: Vec<_> = served.page("/server.php").lines().map(str::to_owned).collect();
    lines.sort();
    let port = format!("SERVER_PORT={}", served.address.port());
    assert_eq!(lines, ["HTTPS=on", "REQUEST_SCHEME=https", &port]);
    let plain = http::get(served.server.address(), "/server.php").text();
    assert!(plain.contains("REQUEST_SCHEME=http\n"), "{plain}");
    assert!(!plain.contains("HTTPS"), "{plain}");
    assert_eq!(served.page("/hello.txt"), "Hello, world!");
}

#[test]
fn a_connection_over_tls_serves_several_requests() {
    let served = served(&[]);
    let urls = ["https://localhost/hello.php", "https://localhost/hello.txt"];
    let connects = ["-w", " %{num_connects} "];
    let output = served.curl(&[urls[0], urls[1], urls[0], connects[0], connects[1]]);
    assert_eq!(succeeded(&output), "hello 1 Hello, world! 0 hello 0 ");
}

#[test]
fn large_files_arrive_whole_and_ranges_too() {
    let served = served(&[]);
    for size in [1_000_000, 100_000_000] {
        let bytes: Vec<u8> = (0..size).map(|at: u32| (at / 7) as u8).collect();
        write_file(served.root.path(), "large.bin", &bytes);
        let got = served.file("got");
        succeeded(&served.curl(&["https://localhost/large.bin", "-o", &got]));
        assert!(fs::read(&got).unwrap() == bytes, "{size} bytes");
    }
    let piece = served.curl(&["https://localhost/large.bin", "-r", "70-76"]);
    assert_eq!(piece.stdout, [10; 7]);
    let tail = served.curl(&["https://localhost/large.bin", "-r", "-3"]);
    assert_eq!(tail.stdout.len(), 3);
}

#[test]
fn a_slow_reader_gets_all_of_a_script_and_of_a_file() {
    let served = served(&[]);
    let bytes: Vec<u8> = (0..6_000_000_u32).map(|at| (at / 11) as u8).collect();
    write_file(served.root.path(), "large.bin", &bytes);
    let got = served.file("got");
    let slow = ["--limit-rate", "3M", "-o", &got];
    succeeded(&served.curl(&[&["https://localhost/large.bin"], &slow[..]].concat()));
    assert!(fs::read(&got).unwrap() == bytes);
    succeeded(&served.curl(&["https://localhost/large.php", "--limit-rate", "10M", "-o", &got]));
    let got = fs::read(&got).unwrap();
    assert_eq!(got.len(), 20_000_000);
    let right = |(at, byte): (usize, &u8)| *byte == b'A' + (at / 100_000 % 26) as u8;
    assert!(got.iter().enumerate().all(right));
}

#[test]
fn bodies_arrive_whole_however_they_are_framed() {
    let served = served(&[]);
    let body: Vec<u8> = (0..5_000_000_u32).map(|at| (at / 3) as u8).collect();
    let path = served.authority.write("body", &body);
    let plain = Request::post("/body.php", "application/octet-stream", &body);
    let expected = http::ask(served.server.address(), &plain).text();
    let data = format!("@{}", path.display());
    let url = "https://localhost/body.php";
    let kind = "Content-Type: application/octet-stream";
    let with_length = served.curl(&[url, "-H", kind, "--data-binary", &data]);
    assert_eq!(succeeded(&with_length), expected);
    let chunked = ["-H", "Transfer-Encoding: chunked", "--data-binary", &data];
    let chunked = served.curl(&[&[url, "-H", kind], &chunked[..]].concat());
    assert_eq!(succeeded(&chunked), expected);
}

#[test]
fn plain_http_to_the_port_of_tls_is_told_so() {
    let served = served(&[]);
    let answer = http::get(served.address, "/hello.txt");
    assert_eq!(answer.status, 400);
    let why = "This port speaks HTTPS, and this was plain HTTP.";
    assert!(answer.text().contains(why), "{}", answer.text());
    assert_eq!(served.page("/hello.txt"), "Hello, world!");
}

#[test]
fn a_client_that_speaks_neither_is_let_go_and_harms_nobody() {
    let served = served(&[]);
    for garbage in [&[0_u8; 100][..], &[22, 3, 1, 0, 5, 1, 2, 3, 4, 5], &[0x80, 0x2e, 1, 0, 2]] {
        let mut stream = TcpStream::connect(served.address).unwrap();
        stream.set_read_timeout(Some(wait::DEADLINE)).unwrap();
        stream.write_all(garbage).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() < 20, "an alert at most: {rest:?}");
    }
    assert_eq!(served.page("/hello.txt"), "Hello, world!");
}

#[test]
fn an_answer_that_breaks_off_does_not_pass_for_a_whole_one() {
    let served = served(&[]);
    // Without a length and without chunks the end of the connection is that of the answer. curl
    // takes every end for it, openssl not.
    let ask =
        |path: &str| served.ask(&[], &format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n"));
    let said = "unexpected eof while reading";
    let broken = ask("/dies.php");
    assert!(text(&broken.stderr).contains(said), "{}", text(&broken.stderr));
    let whole = ask("/large.php");
    assert!(!text(&whole.stderr).contains(said), "{}", text(&whole.stderr));
    assert!(whole.stdout.len() > 20_000_000);
}

#[test]
fn a_compressed_response_that_is_shorter_than_its_length_does_not_pass_for_a_whole_one() {
    let served = served_with(&[], |setup| setup.site("compression = [\"gzip\"]"));
    for (name, length) in [("short.php", 3_000_000), ("whole.php", 2_000_000)] {
        let script = format!(
            "<?php header('Content-Length: {length}');
             for ($i = 0; $i < 20; $i++) {{ echo str_repeat('x', 100000); flush(); }}"
        );
        write_file(served.root.path(), name, script.as_bytes());
    }
    let ends_in_the_middle = |path: &str| {
        let head = "HTTP/1.0\r\nHost: localhost\r\nAccept-Encoding: gzip";
        let output = served.ask(&[], &format!("GET {path} {head}\r\n\r\n"));
        let said = text(&output.stdout);
        assert!(said.contains("Content-Encoding: gzip"), "{said}");
        assert!(!said.contains("Content-Length"), "{said}");
        text(&output.stderr).contains("unexpected eof while reading")
    };
    assert!(ends_in_the_middle("/short.php"));
    assert!(!ends_in_the_middle("/whole.php"));
}

#[test]
fn plain_http_is_sent_to_https_if_that_is_wanted() {
    let hsts = "hsts = \"366d\"\nhsts_include_subdomains = true\nhsts_preload = true";
    let served = served(&["redirect = true", hsts]);
    let port = served.address.port();
    let request = Request::new("POST", "/a%20b?c=d").header("Host", "localhost:80");
    let answer = http::ask(served.server.address(), &request);
    assert_eq!(answer.status, 308);
    let location = format!("https://localhost:{port}/a%20b?c=d");
    assert_eq!(answer.header("Location"), Some(location.as_str()));
    assert_eq!(answer.header("Strict-Transport-Security"), None);
    let said = "strict-transport-security: max-age=31622400; includesubdomains; preload\r\n";
    for version in ["--http1.1", "--http2"] {
        let told = |path: &str| {
            let url = format!("https://localhost/{path}");
            let output = served.curl(&["-i", version, &url]);
            text(&output.stdout).to_lowercase()
        };
        for path in ["hello.txt", "nothing.txt", "hello.php"] {
            let answer = told(path);
            assert_eq!(answer.matches(said).count(), 1, "{answer}");
        }
        let own = told("own.php");
        let its = "strict-transport-security: max-age=7\r\n";
        assert!(own.contains(its) && !own.contains(said), "{own}");
    }
}

#[test]
fn a_client_that_may_purge_is_not_sent_to_https_for_it() {
    for (purge_from, status) in [("127.0.0.1", 200), ("192.0.2.1", 308)] {
        let lines = format!("[sites.cache]\nvalid = \"10m\"\npurge_from = {purge_from:?}");
        let served = served_with(&["redirect = true"], |setup| setup.site(&lines));
        let page = || {
            let output = served.curl(&["-i", "https://localhost/hello.php"]);
            text(&output.stdout).to_lowercase().contains("maitred; hit")
        };
        page();
        assert!(page(), "{purge_from}");
        let purge = Request::new("PURGE", "/hello.php").header("Host", "localhost");
        let answer = http::ask(served.server.address(), &purge);
        assert_eq!(answer.status, status, "{purge_from}: {}", answer.text());
        assert_eq!(page(), status == 308, "{purge_from}");
        let plain = http::get(served.server.address(), "/hello.php");
        assert_eq!(plain.status, 308, "{purge_from}");
    }
}

#[test]
fn old_versions_are_refused_and_which_is_old_can_be_said() {
    let served = served(&["min_version = \"1.3\""]);
    let said = served.s_client(&["-tls1_2"]);
    assert!(said.contains("alert protocol version"), "{said}");
    let said = served.s_client(&["-alpn", "http/1.1"]);
    assert!(said.contains("TLSv1.3") && said.contains("ALPN protocol: http/1.1"), "{said}");
    let served = self::served(&[]);
    assert!(served.s_client(&["-tls1_2"]).contains("Verify return code: 0 (ok)"));
    let said = served.s_client(&["-tls1_1", "-cipher", "ALL@SECLEVEL=0"]);
    assert!(said.contains("no peer certificate available"), "{said}");
}

/// Comes once and leaves a session in a file, then comes again with it. What openssl says then.
fn come_again(served: &Served, version: &str, between: impl FnOnce()) -> String {
    let session = served.file("session");
    let _ = fs::remove_file(&session);
    // The ticket comes with the answer, so there has to be one.
    let request = "GET /hello.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let output = served.ask(&[version, "-sess_out", &session], request);
    assert!(text(&output.stdout).ends_with("Hello, world!"));
    between();
    served.s_client(&[version, "-sess_in", &session])
}

#[test]
fn a_client_comes_back_with_a_ticket_in_either_version() {
    let served = served(&[]);
    for version in ["-tls1_2", "-tls1_3"] {
        let said = come_again(&served, version, || {});
        assert!(said.contains("\nReused, TLSv1."), "{version}: {said}");
    }
}

#[test]
fn a_ticket_of_the_front_before_an_upgrade_or_a_crash_or_a_reload_is_good() {
    let served = served(&[]);
    let server = &served.server;
    let said = come_again(&served, "-tls1_3", || {
        let mark = server.log().mark();
        server.signal(Signal::USR2);
        server.expect_log(mark, "upgraded to maitred");
    });
    assert!(said.contains("\nReused, TLSv1.3"), "{said}");
    let said = come_again(&served, "-tls1_2", || {
        let mark = server.log().mark();
        server.front().expect("a front runs").signal(Signal::KILL);
        server.expect_log(mark, "accepts clients");
    });
    assert!(said.contains("\nReused, TLSv1.2"), "{said}");
    let said = come_again(&served, "-tls1_3", || {
        assert!(server.reload().contains("reloaded"));
    });
    assert!(said.contains("\nReused, TLSv1.3"), "{said}");
}

#[test]
fn a_ticket_of_before_clients_showed_certificates_lets_nobody_in() {
    let served = served(&[]);
    let ca = served.authority.ca();
    let lines = [
        format!("certificates = [{}]", served.certificate.toml()),
        format!("client_ca = {ca:?}"),
        "client_certificates = \"required\"".to_owned(),
    ];
    let asks = Setup::new(served.root.path()).tls(served.address, &lines);
    let said = come_again(&served, "-tls1_2", || {
        served.server.configure(&asks);
        assert!(served.server.reload().contains("reloaded"));
    });
    assert!(!said.contains("\nReused"), "{said}");
    assert!(!served.curl(&["https://localhost/hello.txt"]).status.success());
}

#[test]
fn a_connection_of_before_clients_showed_certificates_ends_with_its_next_request() {
    let held = "<?php while (ob_get_level()) ob_end_clean(); echo 'begun'; flush();
        while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); }";
    for protocol in ["--http1.1", "--http2"] {
        for (setting, next) in [("required", " 421 0 "), ("optional", "Hello, world! 200 0 ")] {
            let served = served(&[]);
            write_file(served.root.path(), "held.php", held.as_bytes());
            let held = "https://localhost/held.php";
            let file = "https://localhost/hello.txt";
            let client = curl_command(&served.authority, served.address)
                .args([protocol, "-N", "-w", " %{http_code} %{num_connects} ", held, file, file])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn();
            let mut client = client.expect("curl runs");
            let mut begun = [0; 5];
            let pipe = client.stdout.as_mut().expect("stdout is a pipe");
            pipe.read_exact(&mut begun).expect("the response has begun");
            let ca = served.authority.ca();
            let lines = [
                format!("certificates = [{}]", served.certificate.toml()),
                format!("client_ca = {ca:?}"),
                format!("client_certificates = {setting:?}"),
            ];
            let asks = Setup::new(served.root.path()).tls(served.address, &lines);
            served.server.configure(&asks);
            assert!(served.server.reload().contains("reloaded"));
            write_file(served.root.path(), "go", b"");
            let output = client.wait_with_output().expect("curl ends");
            let said = text(&output.stdout);
            assert!(said.starts_with(" 200 1 ") && said.contains(next), "{protocol}: {said}");
            // The last request is one over another connection, for which a certificate is needed.
            let is_served = said.ends_with("Hello, world! 200 1 ");
            assert_eq!(is_served, setting == "optional", "{protocol}: {said}");
            assert_eq!(output.status.success(), is_served, "{protocol}: {said}");
        }
    }
}

#[test]
fn a_reload_in_the_middle_of_a_transfer_changes_the_certificate_of_those_who_come_later() {
    let served = served(&[]);
    let bytes = vec![b'x'; 20_000_000];
    write_file(served.root.path(), "large.bin", &bytes);
    let slow = curl_command(&served.authority, served.address)
        .args(["--limit-rate", "10M", "https://localhost/large.bin"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut slow = slow.expect("curl runs");
    let mut begun = vec![0; 1000];
    let pipe = slow.stdout.as_mut().expect("stdout is a pipe");
    pipe.read_exact(&mut begun).expect("the answer has begun");
    let renewed = served.authority.issue("renewed", &["localhost"]);
    let line = format!("certificates = [{}]", renewed.toml());
    let setup = Setup::new(served.root.path()).tls(served.address, &[line]);
    served.server.configure(&setup);
    assert!(served.server.reload().contains("reloaded"));
    assert_eq!(served.shown(&["-servername", "localhost"]), "renewed");
    let output = slow.wait_with_output().expect("curl ends");
    assert_eq!(succeeded(&output).len(), bytes.len() - begun.len());
}

/// A client that has sent the first bytes of a handshake and sends no more. One that sends nothing
/// at all stays with the kernel.
fn begun(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the server accepts");
    stream.write_all(&[22, 3, 1, 0]).expect("the server reads");
    let within = stream.set_read_timeout(Some(wait::DEADLINE));
    within.expect("a read can have a deadline");
    stream
}

#[test]
fn who_begins_tls_and_does_not_go_on_gives_way_to_others() {
    // Room for 88 connections, of which half may be at the beginning.
    let served = served_with(&[], |setup| setup.under(&["prlimit", "--nofile=600:600"]));
    let mark = served.server.log().mark();
    let silent: Vec<_> = (0..60).map(|_| begun(served.address)).collect();
    let said = "too many TLS handshakes are incomplete";
    served.server.expect_log(mark, said);
    assert_eq!(served.page("/hello.txt"), "Hello, world!");
    let mut oldest = &silent[0];
    assert_eq!(oldest.read(&mut [0]).unwrap_or(0), 0);
}

#[test]
fn a_handshake_that_is_not_gone_on_with_is_given_up() {
    let served = served(&[]);
    let mut slow = begun(served.address);
    assert_eq!(slow.read(&mut [0]).expect("it is closed in time"), 0);
}

#[test]
fn a_stop_waits_for_no_handshake() {
    let served = served(&[]);
    let _slow = begun(served.address);
    assert_eq!(served.page("/hello.txt"), "Hello, world!");
    served.server.stop();
    assert!(!ports::is_listening(served.address));
}

#[test]
fn no_key_shows_in_any_log_however_much_is_logged() {
    let served = served_with(&[], |setup| setup.under(&["env", "MAITRED_LOG=trace"]));
    served.page("/hello.php");
    assert!(served.server.reload().contains("reloaded"));
    let server = &served.server;
    let mark = server.log().mark();
    server.signal(Signal::USR2);
    server.expect_log(mark, "upgraded to maitred");
    let key = fs::read_to_string(&served.certificate.key).unwrap();
    let log = server.log_text();
    for line in key.lines().filter(|line| !line.starts_with('-')) {
        assert!(!log.contains(line), "a line of the key is in the log");
    }
}
