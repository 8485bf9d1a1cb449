//! TLS as curl and openssl see it: pages, bodies, names, clients' certificates, tickets.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use maitred_tests::http::{self, Request};
use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup, document_root, write_file};
use maitred_tests::tls::{
    Authority, Certificate, ECDSA, RSA, curl, curl_command, page, s_client, shown,
};
use maitred_tests::{Target, ports, wait};
use tempfile::TempDir;

/// A site with what the tests ask for.
fn site() -> TempDir {
    document_root(&[
        ("hello.txt", "Hello, world!"),
        ("hello.php", "<?php echo 'hello';"),
        (
            "server.php",
            "<?php foreach ($_SERVER as $name => $value) {
                 if (preg_match('/^(HTTPS|REQUEST_SCHEME|SERVER_PORT|SSL_.*)$/', $name))
                     echo \"$name=$value\\n\";
             }",
        ),
        (
            "body.php",
            "<?php echo md5(file_get_contents('php://input'));",
        ),
        (
            "large.php",
            "<?php for ($i = 0; $i < 200; $i++) echo str_repeat(chr(65 + $i % 26), 100000);",
        ),
        (
            "dies.php",
            "<?php echo str_repeat('x', 2000000); flush(); posix_kill(getmypid(), SIGKILL);",
        ),
        (
            "own.php",
            "<?php header('Strict-Transport-Security: max-age=7');",
        ),
    ])
}

struct Served {
    authority: Authority,
    certificate: Certificate,
    address: SocketAddr,
    root: TempDir,
    setup: Setup,
    server: Server,
}

/// A server with one certificate, for localhost, and further lines for `[tls]`.
fn served(lines: &[&str]) -> Served {
    served_with(lines, |setup| setup)
}

fn served_with(lines: &[&str], change: impl Fn(Setup) -> Setup) -> Served {
    let (authority, root) = (Authority::default(), site());
    let certificate = authority.issue("site", &["localhost"]);
    let address = ports::free_address();
    let ca = authority.folder().display().to_string();
    let mut all = vec![format!("certificates = [{}]", certificate.toml())];
    all.extend(lines.iter().map(|line| line.replace("DIR", &ca)));
    let setup = change(Setup::new(root.path()).tls(address, &all));
    let server = setup.clone().start();
    Served {
        authority,
        certificate,
        address,
        root,
        setup,
        server,
    }
}

impl Served {
    fn curl(&self, words: &[&str]) -> Output {
        curl(&self.authority, self.address, words)
    }

    fn page(&self, path: &str) -> String {
        page(&self.authority, self.address, path)
    }

    fn shown(&self, words: &[&str]) -> String {
        shown(&self.authority, self.address, words)
    }

    fn s_client(&self, words: &[&str]) -> String {
        s_client(&self.authority, self.address, words)
    }

    /// Sends a request by openssl, and waits until the server closes the connection.
    fn ask(&self, words: &[&str], request: &str) -> Output {
        let mut client = Command::new("openssl")
            .args(["s_client", "-connect", &self.address.to_string(), "-quiet"])
            .arg("-CAfile")
            .arg(self.authority.ca())
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("openssl runs");
        let mut pipe = client.stdin.take().expect("stdin is a pipe");
        let sent = pipe.write_all(request.as_bytes());
        sent.expect("openssl takes a request");
        client.wait_with_output().expect("openssl ends")
    }

    fn file(&self, name: &str) -> String {
        let path = self.authority.folder().join(name);
        path.to_str().expect("a path is text").to_owned()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_script_over_tls_is_told_so_and_one_over_plain_http_is_not() {
    let served = served(&[]);
    let mut lines: Vec<_> = served
        .page("/server.php")
        .lines()
        .map(str::to_owned)
        .collect();
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
    succeeded(&served.curl(&[
        "https://localhost/large.php",
        "--limit-rate",
        "10M",
        "-o",
        &got,
    ]));
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
    for garbage in [
        &[0_u8; 100][..],
        &[22, 3, 1, 0, 5, 1, 2, 3, 4, 5],
        &[0x80, 0x2e, 1, 0, 2],
    ] {
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
    let ask = |path: &str| {
        served.ask(
            &[],
            &format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n"),
        )
    };
    let said = "unexpected eof while reading";
    let broken = ask("/dies.php");
    assert!(
        text(&broken.stderr).contains(said),
        "{}",
        text(&broken.stderr)
    );
    let whole = ask("/large.php");
    assert!(
        !text(&whole.stderr).contains(said),
        "{}",
        text(&whole.stderr)
    );
    assert!(whole.stdout.len() > 20_000_000);
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
fn each_host_is_shown_its_certificate_of_a_kind_that_the_client_understands() {
    let authority = Authority::default();
    let certificates = [
        authority.issue("first", &["localhost"]),
        authority.issue_as("first-rsa", &["localhost"], RSA, 30),
        authority.issue("shop", &["shop.example.com"]),
        authority.issue("wild", &["*.example.com", "example.com"]),
    ];
    let (root, address) = (site(), ports::free_address());
    let items: Vec<_> = certificates.iter().map(Certificate::toml).collect();
    let line = format!("certificates = [{}]", items.join(", "));
    let _server = Setup::new(root.path()).tls(address, &[line]).start();
    let shown = |words: &[&str]| shown(&authority, address, words);
    assert_eq!(shown(&["-servername", "localhost"]), "first");
    assert_eq!(shown(&["-servername", "SHOP.example.com"]), "shop");
    assert_eq!(shown(&["-servername", "blog.example.com"]), "wild");
    assert_eq!(shown(&["-servername", "example.com"]), "wild");
    assert_eq!(shown(&["-servername", "a.b.example.com"]), "first");
    assert_eq!(shown(&["-noservername"]), "first");
    let rsa = ["-servername", "localhost", "-sigalgs", "RSA-PSS+SHA256"];
    assert_eq!(shown(&rsa), "first-rsa");
    let old = [
        "-tls1_2",
        "-cipher",
        "ECDHE-RSA-AES128-GCM-SHA256",
        "-servername",
    ];
    assert_eq!(shown(&[&old[..], &["localhost"]].concat()), "first-rsa");
}

#[test]
fn old_versions_are_refused_and_which_is_old_can_be_said() {
    let served = served(&["min_version = \"1.3\""]);
    let said = served.s_client(&["-tls1_2"]);
    assert!(said.contains("alert protocol version"), "{said}");
    let said = served.s_client(&["-alpn", "http/1.1"]);
    assert!(
        said.contains("TLSv1.3") && said.contains("ALPN protocol: http/1.1"),
        "{said}"
    );
    let served = self::served(&[]);
    assert!(
        served
            .s_client(&["-tls1_2"])
            .contains("Verify return code: 0 (ok)")
    );
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
fn clients_show_certificates_that_our_authority_has_issued() {
    let served = served(&[
        "client_certificates = \"required\"",
        "client_ca = \"DIR/ca.pem\"",
    ]);
    let url = "https://localhost/server.php";
    let without = served.curl(&[url]);
    assert!(!without.status.success(), "{}", text(&without.stdout));
    let client = served.authority.issue("Ann", &[]);
    let shows = |client: &Certificate, url: &str| {
        let (cert, key) = (client.cert.to_str().unwrap(), client.key.to_str().unwrap());
        served.curl(&[url, "--cert", cert, "--key", key])
    };
    let answer = succeeded(&shows(&client, url));
    for line in [
        "SSL_CLIENT_VERIFY=SUCCESS\n",
        "SSL_CLIENT_S_DN=CN=Ann,O=Tests\\, Inc.,C=AT\n",
        "SSL_CLIENT_S_DN_CN=Ann\n",
        "SSL_CLIENT_I_DN=CN=Test CA\n",
        "SSL_CLIENT_CERT=-----BEGIN CERTIFICATE-----\n",
    ] {
        assert!(answer.contains(line), "{line} is not in {answer}");
    }
    for (name, flags) in [
        ("SSL_CLIENT_M_SERIAL", &["-serial"][..]),
        ("SSL_CLIENT_V_START", &["-startdate"]),
        ("SSL_CLIENT_V_END", &["-enddate"]),
        ("SSL_CLIENT_FINGERPRINT", &["-fingerprint", "-sha1"]),
    ] {
        let mut openssl = Command::new("openssl");
        let said = openssl.args(["x509", "-noout", "-in"]).arg(&client.cert);
        let said = text(&said.args(flags).output().unwrap().stdout);
        let (_, value) = said.trim().split_once('=').unwrap();
        let value = match name {
            "SSL_CLIENT_FINGERPRINT" => value.replace(':', "").to_lowercase(),
            _ => value.to_owned(),
        };
        let line = format!("{name}={value}\n");
        assert!(answer.contains(&line), "{line} is not in {answer}");
    }
    let expired = served.authority.issue_as("Old", &[], ECDSA, -1);
    assert!(!shows(&expired, url).status.success());
    let stranger = Authority::new("Stranger").issue("Eve", &[]);
    assert!(!shows(&stranger, url).status.success());
}

#[test]
fn a_client_may_come_without_a_certificate_where_that_is_optional() {
    let served = served(&[
        "client_certificates = \"optional\"",
        "client_ca = \"DIR/ca.pem\"",
    ]);
    let answer = served.page("/server.php");
    assert!(answer.contains("SSL_CLIENT_VERIFY=NONE\n"), "{answer}");
    assert!(!answer.contains("SSL_CLIENT_S_DN"), "{answer}");
}

#[test]
fn what_somebody_with_a_certificate_sees_is_kept_for_nobody() {
    let lines = [
        "client_certificates = \"optional\"",
        "client_ca = \"DIR/ca.pem\"",
    ];
    let served = served(&lines);
    let lines = [
        format!("certificates = [{}]", served.certificate.toml()),
        format!("client_ca = {:?}", served.authority.ca()),
        "client_certificates = \"optional\"".to_owned(),
    ];
    let cached = Setup::new(served.root.path())
        .tls(served.address, &lines)
        .site("[sites.cache]")
        .site("valid = \"10m\"");
    served.server.configure(&cached);
    assert!(served.server.reload().contains("reloaded"));
    let client = served.authority.issue("Ann", &[]);
    let (cert, key) = (client.cert.to_str().unwrap(), client.key.to_str().unwrap());
    let url = "https://localhost/server.php";
    let anns = || succeeded(&served.curl(&["-i", url, "--cert", cert, "--key", key]));
    let others = || succeeded(&served.curl(&["-i", url]));
    assert!(anns().contains("detail=client-certificate"), "{}", anns());
    assert!(others().contains("; stored; ttl=600"));
    let said = others();
    assert!(
        said.contains("; hit; ttl=") && said.contains("VERIFY=NONE"),
        "{said}"
    );
    assert!(anns().contains("SSL_CLIENT_S_DN_CN=Ann"));
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
    assert!(
        !served
            .curl(&["https://localhost/hello.txt"])
            .status
            .success()
    );
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

/// A client that has sent the first bytes of a handshake and sends no more. One that sends nothing at
/// all stays with the kernel.
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
    let said = "too many clients have begun TLS and not gone on";
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

/// What `maitred check` says of a configuration with these certificates, without its path.
fn checked(root: &Path, authority: &Authority, certificates: &str) -> (Option<i32>, String) {
    let file = authority.folder().join("maitred.toml");
    let text = format!(
        "[tls]\nlisten = \"127.0.0.1:443\"\ncertificates = {certificates}\n\
         [[sites]]\nroot = {root:?}\n"
    );
    fs::write(&file, text).expect("a file can be written");
    let mut check = Command::new(maitred_tests::maitred_program());
    let output = check.args(["check", "--config"]).arg(&file).output();
    let output = output.expect("maitred runs");
    let said = self::text(&[output.stdout, output.stderr].concat());
    let folder = format!("{}/", authority.folder().display());
    (output.status.code(), said.replace(&folder, ""))
}

#[test]
fn what_is_wrong_with_a_certificate_is_said_with_its_file_and_line() {
    let (authority, root) = (Authority::default(), site());
    let good = authority.issue("good", &["localhost"]);
    let other = authority.issue("other", &["localhost"]);
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    let (cert, ca, key) = (read(&good.cert), read(&authority.ca()), read(&good.key));
    let lines = |text: &str| text.lines().count();
    let reversed = authority.write("reversed.pem", format!("{ca}{cert}"));
    let strange = authority.write("strange.pem", format!("{cert}{}", read(&other.cert)));
    let rubbish = authority.write("rubbish.pem", [0, 159, 146, 150, 10, 255]);
    let damaged = authority.write("damaged.pem", cert.replacen('M', "!", 1));
    let cut = authority.write("cut.pem", &cert[..cert.len() / 2]);
    let empty = authority.write("empty.pem", "");
    let chain = authority.write("chain.pem", format!("{cert}{ca}"));
    let secret = authority.write("secret.key", format!("{ENCRYPTED}{key}"));
    let at = lines(&ca) + 1;
    let after = lines(&cert) + 1;
    let cases = [
        (&good.cert, &other.key, "good.pem:1: the certificate that begins here is not that of the key in other.key; name the two files that belong together".to_owned()),
        (&reversed, &good.key, format!("reversed.pem:{at}: the certificate of the key in good.key begins here; expected it first, and after it those that lead to its root")),
        (&strange, &good.key, format!("strange.pem:{after}: the certificate that begins here did not issue the one before it; expected the chain in order: each followed by its issuer")),
        (&rubbish, &good.key, "rubbish.pem: there is no certificate in it; expected PEM, with -----BEGIN CERTIFICATE-----".to_owned()),
        (&empty, &good.key, "empty.pem: there is no certificate in it; expected PEM, with -----BEGIN CERTIFICATE-----".to_owned()),
        (&damaged, &good.key, "damaged.pem:1: the certificate that begins here is damaged; copy the file again".to_owned()),
        (&cut, &good.key, "cut.pem:1: what begins here has no `-----END CERTIFICATE-----`; copy the whole file again".to_owned()),
        (&good.key, &good.cert, "good.key: there is a private key here and no certificate; are `cert` and `key` swapped?".to_owned()),
        (&good.cert, &rubbish, "rubbish.pem: there is no private key in it; expected PEM, with -----BEGIN PRIVATE KEY-----".to_owned()),
        (&good.cert, &secret, "secret.key:1: the private key needs a passphrase, which nobody could type in here; write it without one, with openssl pkey -in OLD -out NEW".to_owned()),
    ];
    for (cert, key, sentence) in cases {
        let files = Certificate {
            cert: cert.clone(),
            key: key.clone(),
        };
        let (code, said) = checked(root.path(), &authority, &files.toml());
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(&sentence), "{said}\nis not\n{sentence}");
    }
    let files = Certificate {
        cert: chain,
        key: good.key.clone(),
    };
    assert_eq!(checked(root.path(), &authority, &files.toml()).0, Some(0));
    let folder = format!("{{ cert = {:?}, key = {:?} }}", root.path(), good.key);
    let (_, said) = checked(root.path(), &authority, &folder);
    assert!(
        said.contains("maitred.toml:3:25: `certificates.cert` is"),
        "{said}"
    );
    assert!(said.contains("is a directory; name the file"), "{said}");
}

/// The beginning of a key that needs a passphrase.
const ENCRYPTED: &str =
    "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIGj\n-----END ENCRYPTED PRIVATE KEY-----\n";

#[test]
fn an_expired_certificate_is_warned_about_and_used() {
    let (authority, root) = (Authority::default(), site());
    let old = authority.issue_as("old", &["localhost"], ECDSA, -1);
    let (code, said) = checked(root.path(), &authority, &old.toml());
    assert_eq!(code, Some(0), "{said}");
    let sentence = "old.pem: the certificate has expired a day ago; renew it";
    assert!(said.contains(sentence), "{said}");
    let address = ports::free_address();
    let line = format!("certificates = [{}]", old.toml());
    let server = Setup::new(root.path()).tls(address, &[line]).start();
    server.expect_log(0, "the certificate has expired a day ago; renew it");
    assert_eq!(shown(&authority, address, &[]), "old");
}

#[test]
fn a_server_does_not_start_with_a_key_of_another_certificate_nor_take_it_in_a_reload() {
    let served = served(&[]);
    let other = served.authority.issue("other", &["localhost"]);
    let mismatched = Certificate {
        cert: served.certificate.cert.clone(),
        key: other.key,
    };
    let line = format!("certificates = [{}]", mismatched.toml());
    let wrong = Setup::new(served.root.path()).tls(served.address, &[line]);
    served.server.configure(&wrong);
    let said = served.server.reload();
    assert!(said.contains("is not that of the key in"), "{said}");
    assert_eq!(served.shown(&[]), "site");
    served.server.configure(&served.setup);
    assert!(served.server.reload().contains("reloaded"));
    let mut maitred = Command::new(maitred_tests::maitred_program());
    let (code, said) = checked(served.root.path(), &served.authority, &mismatched.toml());
    assert_eq!(code, Some(2), "{said}");
    let file = served.authority.folder().join("maitred.toml");
    let output = maitred.args(["serve", "--config"]).arg(file).output();
    let output = output.expect("maitred runs");
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("is not that of the key in"), "{said}");
}

#[test]
fn changed_files_are_noticed_while_the_server_runs_and_rubbish_is_said_once() {
    // As long as the server may take to look, and a little.
    let within = Duration::from_secs(100);
    let (good, bad) = (served(&[]), served(&[]));
    let renewed = good.authority.issue("renewed", &["localhost"]);
    let mark = bad.server.log().mark();
    renewed.replace(&good.certificate);
    fs::write(&bad.certificate.cert, "rubbish").unwrap();
    wait::until_within("the new certificate", within, || {
        (good.shown(&[]) == "renewed").then_some(())
    });
    let said = "the certificates that were read before are used further";
    wait::until_within("the complaint", within, || {
        let lines = bad.server.log().since(mark);
        lines.iter().any(|line| line.contains(said)).then_some(())
    });
    assert_eq!(bad.shown(&[]), "site");
    assert!(bad.server.reload().contains("reload is refused"));
    let renewed = bad.authority.issue("renewed", &["localhost"]);
    renewed.replace(&bad.certificate);
    assert!(bad.server.reload().contains("reloaded"));
    assert_eq!(bad.shown(&[]), "renewed");
    let lines = bad.server.log().since(mark);
    assert_eq!(lines.iter().filter(|line| line.contains(said)).count(), 1);
}
