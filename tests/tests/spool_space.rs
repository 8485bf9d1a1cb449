//! The space in `spool_dir`: what a pool may have of it, and what happens without any.

use std::fs;
use std::net::SocketAddr;

use maitred_tests::http::{self, Connection, Request};
use maitred_tests::http2::{
    Connection as Http2, DATA, END_HEADERS, SETTINGS, WINDOW_UPDATE, fields, frame,
};
use maitred_tests::server::{Server, Setup, document_root};
use maitred_tests::{Target, ports, wait};
use tempfile::TempDir;

/// Bytes of all files. One pool alone has half of them for its responses.
const LIMIT: u64 = 2 << 20;
/// Blocks of a response that no socket's buffers hold, together with memory and the file.
const BLOCKS: usize = 400;
const BLOCK_BYTES: usize = 60_000;

fn site() -> TempDir {
    let long = format!(
        "<?php for ($i = 0; $i < {BLOCKS}; $i++) {{ echo str_pad($i, {BLOCK_BYTES}, '.'); }}"
    );
    document_root(&[
        ("long.php", &long),
        ("hello.php", "<?php echo 'hello';"),
        ("length.php", "<?php echo strlen(file_get_contents('php://input'));"),
    ])
}

/// A client that does not read.
fn slow(server: &Server, host: &str) -> Connection {
    let mut client = Connection::open(server.address());
    let request = Request::new("GET", "/long.php").header("Host", host);
    client.send(&request.to_bytes()).expect("a request is taken");
    client
}

fn assert_whole(client: &mut Connection) {
    let response = client.read_response(false).expect("a response");
    let expected: String = (0..BLOCKS).map(|number| format!("{number:.<BLOCK_BYTES$}")).collect();
    assert_eq!((response.status, response.body.len()), (200, expected.len()));
    assert!(response.body == expected.as_bytes(), "each block is in its place");
}

fn upload(server: &Server, host: &str, bytes: usize) -> http::Response {
    let body = vec![b'x'; bytes];
    let request = Request::new("PUT", "/length.php").header("Host", host).body(&body);
    http::ask(server.address(), &request)
}

/// A figure of the metrics; 0 if it is missing.
fn metric(listener: SocketAddr, name: &str) -> u64 {
    let text = http::get(listener, "/metrics").text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map_or(0, |figure| figure.trim().parse().expect("a number"))
}

#[test]
fn slow_readers_of_a_pool_leave_space_to_others_and_lose_nothing() {
    let root = site();
    let listener = ports::free_address();
    let other = format!(
        "[pools.other]\npm = \"static\"\nmax_children = 2\n[[sites]]\nroot = {:?}\n\
         hosts = [\"other.test\"]\npool = \"other\"",
        root.path()
    );
    let setup = Setup::new(root.path()).workers(3).hosts(&["www.test"]);
    let setup = setup.top(&format!("spool_max_size = {LIMIT}"));
    let server = setup.top(&format!("admin = \"{listener}\"")).site(&other).start();
    let figure = |name: &str| metric(listener, name);
    let of_www = |name: &str| figure(&format!("maitred_pool_{name}{{pool=\"www\"}}"));

    let mut first = slow(&server, "www.test");
    wait::until_true("a script to wait", || of_www("spool_waits_total") == 1);
    let used = of_www("spool_bytes");
    assert!((LIMIT / 4..=LIMIT / 2).contains(&used), "{used}");
    assert_eq!((figure("maitred_spool_bytes"), figure("maitred_spool_limit_bytes")), (used, LIMIT));
    server.expect_log(0, "pool www: its files in spool_dir have");

    // Bodies have space still, but not for ever.
    assert_eq!(upload(&server, "www.test", 256 << 10).text(), (256 << 10).to_string());
    let refused = upload(&server, "www.test", 3 << 20);
    assert_eq!((refused.status, refused.header("Retry-After")), (503, Some("10")));
    assert_eq!(of_www("bodies_refused_total"), 1);

    // The other pool spools and serves, and so does this one, with a worker.
    let mut others = slow(&server, "other.test");
    let name = "maitred_pool_spool_bytes{pool=\"other\"}";
    wait::until_true("the other pool to spool", || figure(name) >= LIMIT / 8);
    for host in ["www.test", "other.test"] {
        let hello = Request::new("GET", "/hello.php").header("Host", host);
        assert_eq!(http::ask(server.address(), &hello).text(), "hello");
    }

    // A client that leaves makes space for another that reads nothing.
    let mut second = slow(&server, "www.test");
    wait::until_true("another script to wait", || of_www("spool_waits_total") == 2);
    let left = "maitred_pool_requests_total{pool=\"www\",outcome=\"client_closed\"}";
    assert_eq!(figure(left), 0);
    drop(first);
    wait::until_true("the first one to be gone", || figure(left) == 1);
    wait::until_true("the second to spool", || of_www("spool_bytes") >= LIMIT / 8);

    assert_whole(&mut second);
    assert_whole(&mut others);
    wait::until_true("all to be given back", || figure("maitred_spool_bytes") == 0);
    first = slow(&server, "www.test");
    wait::until_true("there to be space again", || of_www("spool_bytes") >= LIMIT / 4);
    assert_whole(&mut first);
    assert_eq!(figure("maitred_spool_bytes"), 0);
    server.stop();
}

/// Bytes of a frame; of five of them a body has a file.
const PIECE: usize = 14_000;

/// Sends a frame with a piece once the window of the connection admits it.
fn send_within(client: &mut Http2, window: &mut usize, piece: &[u8]) {
    while *window < PIECE {
        let frame = client.next_frame().expect("the server reads").expect("and goes on");
        if frame.kind == WINDOW_UPDATE && frame.stream == 0 {
            let more = frame.payload.try_into().expect("four bytes");
            *window += u32::from_be_bytes(more) as usize;
        }
    }
    *window -= PIECE;
    client.send(piece).expect("it is taken");
}

#[test]
fn bodies_in_files_leave_descriptors_to_connections() {
    /// Streams of a connection, and connections: more than the server may have open files.
    const STREAMS: u32 = 100;
    const CONNECTIONS: usize = 7;
    let root = site();
    fs::write(root.path().join("hello.txt"), "hello, file").expect("a file can be written");
    let setup = Setup::new(root.path()).under(&["prlimit", "--nofile=600:600"]);
    let server = setup.start();
    let post = fields(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/length.php"),
        (":authority", "localhost"),
    ]);
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let mut client = Http2::open(server.address(), &[]);
            client.wait_for("the server's settings", |frame| frame.kind == SETTINGS);
            let mut window = 65_535;
            for stream in (0..STREAMS).map(|number| 2 * number + 1) {
                client.ask_with(stream, &post, END_HEADERS);
                for _ in 0..5 {
                    // It is refused, perhaps.
                    send_within(&mut client, &mut window, &frame(DATA, 0, stream, &[b'x'; PIECE]));
                }
            }
            client
        })
        .collect();
    server.expect_log(0, "pool www: its files in spool_dir have");
    assert_eq!(http::get(server.address(), "/hello.txt").text(), "hello, file");
    assert_eq!(http::get(server.address(), "/hello.php").text(), "hello");
    drop(clients);
    server.stop();
}
