//! Bodies over HTTP/2 that are not what `content-length` says, or that never end: such a request is
//! malformed (RFC 9113 §8.1.1), and no script runs, nor does a server behind a `proxy` see that it
//! is whole.

use std::fs;
use std::io::Read;
use std::net::Shutdown;
use std::path::Path;
use std::sync::{Arc, Mutex};

use maitred_tests::Target;
use maitred_tests::http2::{
    Connection, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, fields, frame,
};
use maitred_tests::odd::Odd;
use maitred_tests::proxied;
use maitred_tests::server::{Setup, document_root, give_to_web_user};
use maitred_tests::wait;
use tempfile::TempDir;

/// The flag of DATA that a length of padding comes first (RFC 9113 §6.1).
const PADDED: u8 = 8;
/// Why a malformed request's stream ends (§7).
const PROTOCOL_ERROR: u32 = 1;
/// The header `:status: 400`, by its place in the static table (RFC 7541, appendix A).
const STATUS_400: u8 = 0x80 | 12;
/// Why a client takes a request back (§7).
const CANCEL: [u8; 4] = [0, 0, 0, 8];

/// Writes down what reaches it.
const TELLS: &str = "<?php
    $body = file_get_contents('php://input');
    $names = ['REQUEST_URI', 'CONTENT_LENGTH', 'HTTP_HOST', 'HTTP_X_LATE'];
    foreach ($names as $name) { if (isset($_SERVER[$name])) $seen[$name] = $_SERVER[$name]; }
    file_put_contents(__DIR__ . '/told/bodies', \"[$body]\", FILE_APPEND);
    echo $body, ' ', json_encode($seen, JSON_UNESCAPED_SLASHES);";

fn site() -> TempDir {
    let root = document_root(&[("index.php", TELLS), ("told/.keep", "")]);
    give_to_web_user(&root.path().join("told"));
    root
}

/// The bodies that scripts have had.
fn told(root: &Path) -> String {
    fs::read_to_string(root.join("told/bodies")).unwrap_or_default()
}

fn post(path: &str, length: Option<&str>) -> Vec<u8> {
    let usual =
        [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost")];
    let length = length.map(|length| ("content-length", length));
    let all: Vec<_> = usual.into_iter().chain(length).collect();
    fields(&all)
}

fn data(flags: u8, payload: &[u8]) -> Vec<u8> {
    frame(DATA, flags, 1, payload)
}

/// The end of a request in the form of headers after its body.
fn trailers(with: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields(with))
}

/// A request that says this length, and what follows its header.
struct Lie {
    length: &'static str,
    is_all: bool,
    body: Vec<u8>,
}

fn lie(length: &'static str, body: &[Vec<u8>]) -> Lie {
    Lie { length, is_all: false, body: body.concat() }
}

fn lies() -> Vec<Lie> {
    let padded = [&[4][..], b"ab", &[0; 4]].concat();
    vec![
        Lie { is_all: true, ..lie("3", &[]) },
        lie("3", &[data(END_STREAM, b"")]),
        lie("3", &[data(0, b"a"), data(END_STREAM, b"b")]),
        lie("3", &[data(0, b"ab"), data(0, b"cd")]),
        lie("3", &[data(0, b"abc"), data(END_STREAM, b"d")]),
        lie("3", &[data(0, b"ab"), trailers(&[("x-late", "1")])]),
        lie("3", &[data(PADDED | END_STREAM, &padded)]),
        lie("0", &[data(END_STREAM, b"a")]),
        lie("18446744073709551616", &[data(END_STREAM, b"abc")]),
        lie("-3", &[data(END_STREAM, b"abc")]),
        lie("", &[data(END_STREAM, b"abc")]),
        lie("0x3", &[data(END_STREAM, b"abc")]),
        lie("3 ", &[data(END_STREAM, b"abc")]),
    ]
}

#[test]
fn a_body_that_is_not_as_long_as_its_request_says_reaches_no_script() {
    let root = site();
    let server = Setup::new(root.path()).workers(1).start();
    for (number, lie) in lies().into_iter().enumerate() {
        let mut client = Connection::open(server.address(), &[]);
        let flags = if lie.is_all { END_STREAM } else { 0 };
        client.ask_with(1, &post("/", Some(lie.length)), flags);
        client.send(&lie.body).expect("a body is taken");
        let what = format!("what becomes of lie {number}");
        let seen = client.wait_for(&what, |frame| frame.stream == 1 && frame.kind != 8);
        let seen = seen.expect("the connection stays");
        // What h2 takes for a 0 is refused in words if it is looked at before the body has come.
        let in_words = lie.length.is_empty() && seen.kind == HEADERS;
        if in_words {
            assert_eq!(seen.payload.first(), Some(&STATUS_400), "lie {number}");
        } else {
            assert_eq!(
                (seen.kind, seen.error_code()),
                (RST_STREAM, Some(PROTOCOL_ERROR)),
                "lie {number}: content-length: {}",
                lie.length
            );
        }
        // The connection is as good as before.
        client.ask_with(3, &post("/", Some("0")), END_STREAM);
        assert!(client.text(3).starts_with(' '), "after lie {number}");
    }
    let empty = "[]".repeat(lies().len());
    assert_eq!(told(root.path()), empty, "only those that say the truth");
    server.stop();
}

#[test]
fn a_body_without_an_end_reaches_no_script() {
    let root = site();
    let server = Setup::new(root.path()).workers(1).start();
    for length in [Some("3"), None] {
        let mut client = Connection::open(server.address(), &[]);
        client.ask_with(1, &post("/", length), 0);
        let reset = frame(RST_STREAM, 0, 1, &CANCEL);
        let taken_back = [data(0, b"ab"), reset].concat();
        client.send(&taken_back).expect("a request is taken back");
        client.ask_with(3, &post("/", Some("0")), END_STREAM);
        assert!(client.text(3).starts_with(' '));
        // All of the length, and no end.
        client.ask_with(5, &post("/", length), 0);
        let whole = frame(DATA, 0, 5, b"abc");
        client.send(&whole).expect("a body is taken");
        let shut = client.stream().shutdown(Shutdown::Both);
        shut.expect("a connection can be shut");
    }
    let mut client = Connection::open(server.address(), &[]);
    client.ask_with(1, &post("/", Some("3")), 0);
    client.send(&data(END_STREAM, b"abc")).expect("a body is taken");
    assert!(client.text(1).starts_with("abc "));
    assert_eq!(told(root.path()), "[][][abc]");
    server.stop();
}

#[test]
fn what_follows_a_body_changes_nothing_about_its_request() {
    let root = site();
    let server = Setup::new(root.path()).start();
    let fields = [("content-length", "5"), ("host", "b.example"), ("x-late", "1")];
    let pseudo = [(":path", "/other"), (":authority", "b.example")];
    for late in [&fields[..], &pseudo] {
        let mut client = Connection::open(server.address(), &[]);
        client.ask_with(1, &post("/", Some("3")), 0);
        let body = [data(0, b"abc"), trailers(late)].concat();
        client.send(&body).expect("a body is taken");
        let seen = "{\"REQUEST_URI\":\"/\",\"CONTENT_LENGTH\":\"3\",\"HTTP_HOST\":\"localhost\"}";
        assert_eq!(client.text(1), format!("abc {seen}"), "{late:?}");
    }
    assert_eq!(told(root.path()), "[abc][abc]");
    server.stop();
}

#[test]
fn a_server_behind_a_proxy_is_not_told_that_such_a_body_is_whole() {
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let hears = heard.clone();
    let behind = Odd::start(move |mut stream| {
        let mut bytes = Vec::new();
        // Cut off in whatever way.
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        hears.lock().expect("no thread panics").push(text);
    });
    let root = proxied::site();
    let server = proxied::proxied(&root, &format!("http://{}", behind.address()), "");
    let requests = [
        (Some("3"), data(END_STREAM, b"ab")),
        (Some("3"), [data(0, b"a"), data(END_STREAM, b"bcd")].concat()),
        (Some("3"), [data(0, b"ab"), frame(RST_STREAM, 0, 1, &CANCEL)].concat()),
        (None, [data(0, b"ab"), frame(RST_STREAM, 0, 1, &CANCEL)].concat()),
    ];
    for (length, body) in requests {
        let mut client = Connection::open(server.address(), &[]);
        client.ask_with(1, &post("/app/x", length), 0);
        client.send(&body).expect("a body is taken");
        // The answer to another request says that this one has been looked at.
        client.ask(3, "/style.css");
        assert_eq!(client.text(3), "p {}");
    }
    wait::until_true("the server behind to be let go of", || {
        let heard = heard.lock().expect("no thread panics");
        heard.len() as u64 == behind.accepted()
    });
    for said in heard.lock().expect("no thread panics").iter() {
        let body = said.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let most = if said.contains("content-length: 3") { 2 } else { "2\r\nab\r\n".len() };
        assert!(body.len() <= most && !body.contains("0\r\n"), "{said:?}");
    }
    server.stop();
}
