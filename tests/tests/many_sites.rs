//! Hundreds of sites, and reloads of all of them while they are used.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use maitred_tests::http::{Connection, Request};
use maitred_tests::server::{Server, Setup, public_folder, set_mode, write_file};
use maitred_tests::{Target, wait};
use tempfile::TempDir;

/// Sites, beside the first; the bench row has 1 000.
const SITES: usize = 300;

/// Clients, each with one connection.
const CLIENTS: usize = 8;

/// Requests that are answered between two reloads.
const ENOUGH: u64 = 400;

const RELOADS: u32 = 6;

fn sites() -> TempDir {
    let folder = public_folder();
    for number in 0..=SITES {
        let name = format!("s{number}/name.txt");
        write_file(folder.path(), &name, format!("site {number}").as_bytes());
        let script = format!("<?php echo 'site {number}';");
        write_file(folder.path(), &format!("s{number}/name.php"), script.as_bytes());
        set_mode(&folder.path().join(format!("s{number}")), 0o755);
    }
    folder
}

/// All sites, with something in each that a version changes.
fn setup(folder: &Path, version: u32) -> Setup {
    let mut others = String::new();
    for number in 1..=SITES {
        let root = folder.join(format!("s{number}"));
        let _ = write!(
            others,
            "\n[[sites]]\nroot = {root:?}\npool = \"www\"\nhosts = [\"s{number}.example\"]\n\
             redirects = {{ from = \"/version\", to = \"/{version}\" }}\n"
        );
    }
    Setup::new(&folder.join("s0"))
        .hosts(&["s0.example"])
        .site(&format!("redirects = {{ from = \"/version\", to = \"/{version}\" }}"))
        .site(&others)
}

/// Asks one site after the other over one connection, which must never be closed.
fn ask_all(address: SocketAddr, first: usize, stop: &AtomicBool, answered: &AtomicU64) {
    let mut client = Connection::open(address);
    for number in (first..).step_by(7) {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let number = number % (SITES + 1);
        let page = if number.is_multiple_of(4) { "/name.php" } else { "/name.txt" };
        let mut request = Request::get(page);
        request.headers[0].1 = format!("s{number}.example");
        let answer = client.ask(&request).expect("the connection is kept");
        assert_eq!(answer.text(), format!("site {number}"));
        assert_eq!(answer.header("Connection"), None, "it is to stay");
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

fn version(server: &Server) -> String {
    let mut request = Request::get("/version");
    request.headers[0].1 = format!("s{SITES}.example");
    let answer = Connection::open(server.address()).ask(&request);
    let answer = answer.expect("an answer");
    answer.header("Location").expect("a redirect").to_owned()
}

#[test]
fn reloads_of_hundreds_of_sites_close_no_connection_and_lose_no_request() {
    let folder = sites();
    let server = setup(folder.path(), 0).start();
    let line = server.log_text();
    assert!(line.contains(&format!(", {} more on http", SITES + 1 - 8)), "{line}");
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for first in 0..CLIENTS {
            let (stop, answered) = (&stop, &answered);
            let address = server.address();
            scope.spawn(move || ask_all(address, first, stop, answered));
        }
        for number in 1..=RELOADS {
            let goal = answered.load(Ordering::Relaxed) + ENOUGH;
            wait::until_true("requests to be answered", || {
                answered.load(Ordering::Relaxed) >= goal
            });
            // Every other one changes nothing.
            if number % 2 == 0 {
                server.configure(&setup(folder.path(), number));
            }
            assert!(server.reload().contains("reloaded: "));
        }
        assert_eq!(version(&server), format!("/{RELOADS}"));
        stop.store(true, Ordering::Relaxed);
    });
    server.stop();
}

#[test]
fn an_upload_in_the_middle_of_a_reload_arrives_whole() {
    let folder = public_folder();
    let script = b"<?php echo strlen(file_get_contents('php://input')), ' ', getenv('VERSION');";
    write_file(folder.path(), "length.php", script);
    let setup = |version: u32| {
        Setup::new(folder.path())
            .pool(&format!("env = {{ VERSION = \"{version}\" }}"))
            .site(&format!("redirects = {{ from = \"/version\", to = \"/{version}\" }}"))
    };
    let server = setup(1).start();
    let half = vec![b'x'; 1 << 20];
    let length = 2 * half.len();
    let head = |framing: &str| format!("POST /length.php HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n");
    let chunk = [format!("{:x}\r\n", half.len()).as_bytes(), &half, b"\r\n"].concat();
    let plain = head(&format!("Content-Length: {length}"));
    let chunked = head("Transfer-Encoding: chunked");
    let uploads = [
        ([plain.as_bytes(), &half].concat(), half.clone()),
        ([chunked.as_bytes(), &chunk].concat(), [&chunk[..], b"0\r\n\r\n"].concat()),
    ];
    for (round, (first, second)) in uploads.iter().enumerate() {
        let version = round as u32 + 2;
        let mut client = Connection::open(server.address());
        client.send(first).expect("half of it is taken");
        server.configure(&setup(version));
        assert!(server.reload().contains("reloaded: pool www restarted"));
        client.send(second).expect("the rest is taken");
        let answer = client.read_response(false).expect("an answer comes");
        assert_eq!(answer.text(), format!("{length} {version}"));
        let again = client.ask(&Request::get("/version"));
        let again = again.expect("the connection is kept");
        assert_eq!(again.header("Location"), Some(&*format!("/{version}")));
    }
}

#[test]
fn a_root_that_becomes_unreadable_under_load_harms_no_other_site() {
    let folder = sites();
    let server = setup(folder.path(), 0).start();
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let root = folder.path().join("s2");
    let ask = |page: &str| {
        let mut request = Request::get(page);
        request.headers[0].1 = "s2.example".into();
        let answer = Connection::open(server.address()).ask(&request);
        answer.expect("an answer").status
    };
    thread::scope(|scope| {
        for first in [3, 4] {
            let (stop, answered, address) = (&stop, &answered, server.address());
            // Steps of seven around 301 sites would come to the second, too.
            scope.spawn(move || ask_some(address, first, stop, answered));
        }
        wait::until_true("requests to be answered", || answered.load(Ordering::Relaxed) > ENOUGH);
        assert_eq!((ask("/name.txt"), ask("/name.php")), (200, 200));
        set_mode(&root, 0o000);
        let is_lost = |status: u16| [403, 404, 500, 503].contains(&status);
        for page in ["/name.php", "/name.txt", "/new.txt"] {
            let status = ask(page);
            assert!(is_lost(status), "{page}: {status}");
        }
        set_mode(&root, 0o755);
        assert_eq!((ask("/name.txt"), ask("/name.php")), (200, 200));
        fs::remove_dir_all(&root).expect("it can be removed");
        assert!(is_lost(ask("/name.txt")) && is_lost(ask("/name.php")));
        write_file(folder.path(), "s2/name.txt", b"again");
        set_mode(&root, 0o755);
        assert_eq!(ask("/name.txt"), 200);
        stop.store(true, Ordering::Relaxed);
    });
    server.stop();
}

/// As [`ask_all`], of two sites only.
fn ask_some(address: SocketAddr, site: usize, stop: &AtomicBool, answered: &AtomicU64) {
    let mut client = Connection::open(address);
    while !stop.load(Ordering::Relaxed) {
        for page in ["/name.php", "/name.txt"] {
            let mut request = Request::get(page);
            request.headers[0].1 = format!("s{site}.example");
            let answer = client.ask(&request).expect("the connection is kept");
            assert_eq!(answer.text(), format!("site {site}"));
            answered.fetch_add(1, Ordering::Relaxed);
        }
    }
}
