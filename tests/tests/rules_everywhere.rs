//! What a site says about paths and clients holds over TLS and HTTP/2 as it does over plain
//! HTTP/1.1.

use std::net::SocketAddr;
use std::path::Path;

use maitred_tests::rules::{USER, basic, setup};
use maitred_tests::server::{Server, document_root, public_folder, write_file};
use maitred_tests::tls::{Authority, curl};
use maitred_tests::{Target, ports, wait};
use tempfile::TempDir;

/// A pool beside the site's, for some of its paths.
const SLOW_POOL: &str =
    "\n[pools.slow]\npm = \"static\"\nmax_children = 1\nenv = { POOL = \"slow\" }\n";

fn site() -> TempDir {
    let root = document_root(&[
        ("index.php", "<?php echo 'index ', getenv('POOL') ?: 'www';"),
        ("import/run.php", "<?php echo 'run ', getenv('POOL') ?: 'www';"),
        ("staff.php", "<?php echo $_SERVER['REMOTE_USER'];"),
        ("length.php", "<?php echo strlen(file_get_contents('php://input'));"),
        ("style.css", "p {}"),
        ("secret/plan.txt", "SECRET"),
        ("lost.php", "<?php echo 'lost ', $_SERVER['REQUEST_URI'];"),
        (
            "wait.php",
            "<?php while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); } \
             echo 'done';",
        ),
    ]);
    write_file(root.path(), "body", &[b'x'; 50]);
    root
}

/// How a client asks: arguments for curl, and the beginning of the addresses.
struct Listener<'a> {
    name: &'static str,
    arguments: Vec<String>,
    base: String,
    authority: &'a Authority,
    address: SocketAddr,
}

impl Listener<'_> {
    /// Status, header and body in one text, in lines.
    fn ask(&self, arguments: &[&str], path: &str) -> String {
        let url = format!("{}{path}", self.base);
        let own = self.arguments.iter().map(String::as_str);
        let all = own.chain(["--include"]).chain(arguments.iter().copied());
        let output = curl(self.authority, self.address, all.chain([&*url]));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}, {path}: {said}", self.name);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Insists on a status and on texts in the answer.
    fn expect(&self, arguments: &[&str], path: &str, status: u16, texts: &[&str]) {
        let answer = self.ask(arguments, path);
        let first = answer.lines().next().unwrap_or_default();
        let what = format!("{}, {path}: {answer}", self.name);
        assert_eq!(first.split(' ').nth(1), Some(&*status.to_string()), "{what}");
        let lower = answer.to_lowercase();
        for text in texts {
            assert!(lower.contains(&text.to_lowercase()), "{text} in {what}");
        }
        assert!(!answer.contains("SECRET"), "{what}");
    }
}

/// The same site behind four listeners.
fn listeners<'a>(
    server: &Server,
    secure: SocketAddr,
    authority: &'a Authority,
) -> Vec<Listener<'a>> {
    let plain = server.address();
    let listener = |name, argument: &str, base: &str, address| Listener {
        name,
        arguments: vec![argument.to_owned()],
        base: base.to_owned(),
        authority,
        address,
    };
    vec![
        listener("HTTP/1.1", "--http1.1", "http://localhost", plain),
        listener("HTTP/2", "--http2-prior-knowledge", "http://localhost", plain),
        listener("HTTP/1.1 over TLS", "--http1.1", "https://localhost", secure),
        listener("HTTP/2 over TLS", "--http2", "https://localhost", secure),
    ]
}

fn start(
    root: &TempDir,
    users: &Path,
    authority: &Authority,
    lines: &[&str],
) -> (Server, SocketAddr) {
    let certificate = authority.issue("site", &["localhost"]).toml();
    let secure = ports::free_address();
    let tls = [format!("certificates = [{certificate}]"), "redirect = false".into()];
    let auth = format!("basic_auth = {{ path = \"/staff.php\", users = {users:?} }}");
    let all: Vec<&str> = [&auth[..]].iter().chain(lines).copied().collect();
    (setup(root, &[], &all).tls(secure, &tls).start(), secure)
}

#[test]
fn rules_hold_through_every_listener() {
    let (root, beside, authority) = (site(), public_folder(), Authority::default());
    let users = beside.path().join("users");
    write_file(beside.path(), "users", USER.as_bytes());
    let lines = [
        "redirects = [{ from = \"/old\", to = \"/new\" }]",
        "rewrite = [{ from = \"/api/*\", to = \"/index.php?path=$1\" }]",
        "deny = \"/secret/*\"",
        "headers = [{ set = { X-Frame-Options = \"DENY\" } }]",
        "expires = [{ type = \"text/css\", after = \"1d\" }]",
        "error_pages = { 404 = \"/lost.php\" }",
        "max_body_size = 10",
        "paths = [{ path = \"/import/*\", pool = \"slow\", max_body_size = 100 }]",
        SLOW_POOL,
    ];
    let (server, secure) = start(&root, &users, &authority, &lines);
    let body = format!("@{}", root.path().join("body").display());
    let (token, wrong) = (basic("anna", "secret"), basic("anna", "wrong"));
    let right = format!("Authorization: {token}");
    let wrong = format!("Authorization: {wrong}");
    for listener in listeners(&server, secure, &authority) {
        let framed = "x-frame-options: deny";
        listener.expect(&[], "/old?a=1", 301, &["location: /new?a=1", framed]);
        listener.expect(&[], "/api/x", 200, &["index www", framed]);
        listener.expect(&[], "/secret/plan.txt", 403, &[framed]);
        listener.expect(&["--path-as-is"], "/x/../s%65cret/plan.txt", 403, &[]);
        listener.expect(&[], "/style.css", 200, &["cache-control: max-age=86400", "p {}"]);
        listener.expect(&[], "/nothing", 404, &["lost /nothing", framed]);
        listener.expect(&[], "/staff.php", 401, &["www-authenticate: basic realm="]);
        listener.expect(&["--header", &wrong], "/staff.php", 401, &[]);
        listener.expect(&["--header", &right], "/staff.php", 200, &["anna"]);
        listener.expect(&["--data-binary", &body], "/length.php", 413, &[]);
        listener.expect(&["--data-binary", &body], "/import/run.php", 200, &["run slow"]);
        listener.expect(&["--data-binary", "abc"], "/length.php", 200, &["3"]);
    }
    server.stop();
}

#[test]
fn limits_per_client_count_each_request_of_a_connection_over_http2() {
    let (root, beside, authority) = (site(), public_folder(), Authority::default());
    let users = beside.path().join("users");
    write_file(beside.path(), "users", USER.as_bytes());
    let lines = [
        "connection_limit = 2",
        "rate_limit = { path = \"/index.php\", rate = \"1/m\", burst = 2 }",
    ];
    let (server, secure) = start(&root, &users, &authority, &lines);
    // All streams of one connection, whichever it is.
    let mut client = maitred_tests::http2::Connection::open(server.address(), &[]);
    client.ask(1, "/wait.php");
    client.ask(3, "/wait.php");
    let mut stream = 5;
    wait::until_true("both to run", || {
        client.ask(stream, "/style.css");
        let answer = client.text(stream);
        stream += 2;
        answer.starts_with("429 ")
    });
    let all = listeners(&server, secure, &authority);
    all[2].expect(&[], "/style.css", 429, &["retry-after: "]);
    std::fs::write(root.path().join("go"), "").expect("a file can be written");
    assert_eq!((client.text(1), client.text(3)), ("done".into(), "done".into()));
    let mut answers = Vec::new();
    for _ in 0..5 {
        client.ask(stream, "/index.php");
        answers.push(client.text(stream).starts_with("429 "));
        stream += 2;
    }
    assert_eq!(answers, [false, false, false, true, true]);
    all[3].expect(&[], "/index.php", 429, &[]);
    server.stop();
}
