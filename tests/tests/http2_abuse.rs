//! Clients that use HTTP/2 against the server: none costs it much, and the others are answered.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use maitred_tests::Target;
use maitred_tests::honest::Honest;
use maitred_tests::http::{Connection as Http1, Request};
use maitred_tests::http2::{
    CONTINUATION, Connection, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, Frame, GOAWAY,
    HEADERS, INITIAL_WINDOW_SIZE, NO_ERROR, PING, PROTOCOL_ERROR, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, fields, frame, get, integer,
};
use maitred_tests::proxied::rule;
use maitred_tests::server::{Server, Setup, document_root, write_file};
use maitred_tests::wait;
use tempfile::TempDir;

/// How long a client may go on that takes nothing of its answers.
const PATIENCE: Duration = Duration::from_secs(150);

/// Most that an attack may add to the front's own memory, in bytes.
const MEMORY: u64 = 48 << 20;

/// The line that tells of a connection which was cut.
const CUT: &str = "an HTTP/2 connection from 127.0.0.1 is closed";

fn site() -> TempDir {
    document_root(&[
        ("hello.txt", "hello, file"),
        ("hello.php", "<?php echo 'hello';"),
        (
            "large.php",
            "<?php for ($i = 0; $i < 16; $i++) { echo str_repeat('x', 65536); flush(); }",
        ),
    ])
}

/// Bytes of memory that the front has for itself.
fn private_memory(server: &Server) -> u64 {
    let front = server.front().expect("the front runs");
    let path = format!("/proc/{}/smaps_rollup", front.pid);
    let text = std::fs::read_to_string(path).expect("its memory can be seen");
    let lines = text.lines().filter(|line| line.starts_with("Private_"));
    let kib = lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.sum::<u64>() * 1024
}

/// Attacks with several connections beside honest clients; `attack` goes on until the server has
/// had enough. The server must have said so once and kept its memory.
fn withstands(attack: impl Fn(Connection) + Send + Sync + 'static) {
    let root = site();
    let server = Server::start(root.path());
    let before = private_memory(&server);
    let honest = Honest::ask(server.address());
    let attack = Arc::new(attack);
    let attackers: Vec<_> = (0..4)
        .map(|_| {
            let (attack, address) = (attack.clone(), server.address());
            std::thread::spawn(move || {
                for _ in 0..3 {
                    attack(Connection::open(address, &[]));
                }
            })
        })
        .collect();
    for attacker in attackers {
        attacker.join().expect("the attack is cut off");
    }
    honest.assert_well_served();
    let after = private_memory(&server);
    assert!(after < before + MEMORY, "{before} bytes became {after}");
    server.expect_log(0, CUT);
    let lines = server.log().lines();
    let told = lines.iter().filter(|line| line.contains(CUT)).count();
    assert_eq!(told, 1, "{lines:#?}");
    let gossip: Vec<_> = lines.iter().filter(|line| line.contains("WARN")).collect();
    assert!(gossip.len() <= 3, "{gossip:#?}");
}

/// Sends until the server does not take more, and returns the error code that it ends with. What
/// the server says is thrown away: without a reader of its responses it would stop reading.
fn flood(mut client: Connection, mut next: impl FnMut(u32) -> Vec<u8>) -> Option<u32> {
    let mut number = 0;
    loop {
        throw_away(client.stream());
        let bytes: Vec<u8> = (0..200)
            .flat_map(|_| {
                number += 1;
                next(number)
            })
            .collect();
        if client.send(&bytes).is_err() {
            break;
        }
        assert!(number < 2_000_000, "the server takes anything");
    }
    client.goaway()
}

fn throw_away(mut stream: &TcpStream) {
    stream.set_nonblocking(true).expect("a mode can be set");
    let mut bytes = [0; 64 * 1024];
    while matches!(stream.read(&mut bytes), Ok(1..)) {}
    stream.set_nonblocking(false).expect("a mode can be set");
}

fn assert_calmed(code: Option<u32>) {
    // A reset may have overtaken the word.
    assert!(matches!(code, None | Some(ENHANCE_YOUR_CALM)), "{code:?}");
}

#[test]
fn a_client_that_takes_all_its_requests_back_at_once_is_cut_off() {
    // CVE-2023-44487.
    withstands(|client| {
        let request = get("/hello.php");
        let code = flood(client, |number| {
            let stream = number * 2 - 1;
            let ask = frame(HEADERS, END_HEADERS | END_STREAM, stream, &request);
            [ask, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
        });
        assert_calmed(code);
    });
}

#[test]
fn a_client_that_takes_its_requests_back_as_they_run_is_cut_off() {
    withstands(|mut client| {
        let request = get("/large.php");
        for number in 0.. {
            let stream = number * 2 + 1;
            let ask = frame(HEADERS, END_HEADERS | END_STREAM, stream, &request);
            if client.send(&ask).is_err() {
                break;
            }
            // The answer to a ping says that what came before has been looked at.
            let _ = client.send(&frame(PING, 0, 0, &[0; 8]));
            let seen = client.wait_for("a ping", |frame| {
                frame.kind == PING || frame.error_code() == Some(ENHANCE_YOUR_CALM)
            });
            if seen.is_none_or(|frame| frame.kind != PING) {
                break;
            }
            let _ = client.send(&frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
            assert!(number < 10_000, "the server takes anything");
        }
    });
}

#[test]
fn a_head_without_end_is_cut_off() {
    // CVE-2024-27316: CONTINUATION after CONTINUATION, each with a header or with nothing.
    for content in [fields(&[("x", "y")]), Vec::new()] {
        let root = site();
        let server = Server::start(root.path());
        let honest = Honest::ask(server.address());
        let mut client = Connection::open(server.address(), &[]);
        client
            .send(&frame(HEADERS, END_STREAM, 1, &get("/hello.txt")))
            .expect("the server takes half a head");
        flood(client, |_| frame(CONTINUATION, 0, 1, &content));
        honest.assert_well_served();
    }
}

#[test]
fn a_flood_of_settings_is_cut_off() {
    withstands(|client| {
        let setting = [0, 4, 0, 0, 255, 255];
        assert_calmed(flood(client, |_| frame(SETTINGS, 0, 0, &setting)));
    });
}

#[test]
fn a_flood_of_pings_is_cut_off() {
    withstands(|client| assert_calmed(flood(client, |_| frame(PING, 0, 0, &[1; 8]))));
}

#[test]
fn a_flood_of_empty_frames_is_cut_off() {
    withstands(|mut client| {
        let post = fields(&[
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/hello.php"),
            (":authority", "localhost"),
        ]);
        client.ask_with(1, &post, 0);
        assert_calmed(flood(client, |_| frame(DATA, 0, 1, &[])));
    });
}

#[test]
fn uploads_that_are_refused_leave_the_other_streams_of_their_connection() {
    let root = site();
    let server = Server::start(root.path());
    let mut client = Connection::open(server.address(), &[(INITIAL_WINDOW_SIZE, 1000)]);
    client.wait_for("the server's settings", |frame| frame.kind == SETTINGS);
    let is_larger = |frame: &Frame| frame.kind == WINDOW_UPDATE && frame.stream == 0;
    client.wait_for("a larger window", is_larger);
    client.ask(1, "/large.php");
    let post = fields(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/hello.txt"),
        (":authority", "localhost"),
    ]);
    // All of them fit the window of the connection.
    for stream in (3..17).step_by(2) {
        client.ask_with(stream, &post, 0);
        for flags in [0, 0, 0, 0, 0, 0, 0, END_STREAM] {
            let piece = frame(DATA, flags, stream, &[b'x'; 16 * 1024]);
            client.send(&piece).expect("the server takes a body");
        }
        client.body(stream);
    }
    for stream in [0, 1] {
        let more = frame(WINDOW_UPDATE, 0, stream, &(2_u32 << 20).to_be_bytes());
        client.send(&more).expect("the server takes a window");
    }
    assert_eq!(client.body(1).len(), 16 * 65536);
}

#[test]
fn a_flood_of_window_updates_is_cut_off() {
    withstands(|client| {
        // The window grows by nothing worth mentioning, and never too far.
        flood(client, |_| frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()));
    });
}

#[test]
fn a_small_head_that_unpacks_to_a_large_one_is_refused() {
    let root = site();
    let server = Server::start(root.path());
    let before = private_memory(&server);
    let honest = Honest::ask(server.address());
    let mut client = Connection::open(server.address(), &[]);
    // A header of 4000 bytes goes into the table, and is then named again and again with one byte.
    let mut remember = vec![0x40];
    integer(&mut remember, 0, 7, 1);
    remember.push(b'x');
    integer(&mut remember, 0, 7, 4000);
    remember.extend([b'y'; 4000]);
    for stream in (1..200).step_by(2) {
        let bomb = [get("/hello.txt"), remember.clone(), vec![0x80 | 62; 60]].concat();
        let request = frame(HEADERS, END_HEADERS | END_STREAM, stream, &bomb);
        if client.send(&request).is_err() {
            break;
        }
        let end = client.wait_for("an end", |frame| {
            frame.stream == stream && frame.flags & END_STREAM != 0 || frame.error_code().is_some()
        });
        let Some(end) = end else { break };
        assert!(end.kind != DATA, "it is not answered with the file: {end:?}");
    }
    honest.assert_well_served();
    let after = private_memory(&server);
    assert!(after < before + MEMORY, "{before} bytes became {after}");
}

#[test]
fn clients_that_take_nothing_of_large_answers_hold_no_memory_and_no_worker() {
    let root = site();
    let server = Setup::new(root.path())
        .workers(2)
        .pool("status_path = \"/status\"")
        .pool("request_queue_timeout = \"50s\"")
        .start();
    let before = private_memory(&server);
    let clients: Vec<_> = (0..8)
        .map(|number| {
            // Half of them take nothing; the others say they take everything, and do not read.
            let window = [0, i32::MAX as u32][number % 2];
            let mut client = Connection::open(server.address(), &[(INITIAL_WINDOW_SIZE, window)]);
            let more = 0x7fff_0000_u32 - 65_535;
            let _ = client.send(&frame(WINDOW_UPDATE, 0, 0, &more.to_be_bytes()));
            // Of 1 MiB each: four times what the front may hold, and an honest client waits behind
            // them.
            for stream in (1..50).step_by(2) {
                client.ask(stream, "/large.php");
            }
            client
        })
        .collect();
    let honest = Honest::ask(server.address());
    // Every script has run when the pool has nothing more to do, after it had something.
    wait::until_within("all scripts to have run", PATIENCE, || {
        let line = http_status(&server);
        let is_through = line.contains("\"active processes\":0") && honest.answers() > 0;
        is_through.then_some(())
    });
    honest.assert_well_served();
    let after = private_memory(&server);
    assert!(after < before + MEMORY, "{before} bytes became {after}");
    drop(clients);
}

fn http_status(server: &Server) -> String {
    let mut client = Http1::open(server.address());
    let page = client.ask(&Request::get("/status?json"));
    page.expect("the status page").text()
}

#[test]
fn a_client_whose_window_stays_shut_gets_its_stream_reset() {
    let root = site();
    let server = Server::start(root.path());
    let mut client = Connection::open(server.address(), &[(INITIAL_WINDOW_SIZE, 1)]);
    client.stream().set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
    client.ask(1, "/hello.txt");
    let reset = client.wait_for("a reset", |frame| frame.kind == RST_STREAM);
    assert_eq!(reset.map(|frame| frame.stream), Some(1));
}

/// A site whose slow page ends once there is a file `end`.
fn slow_site() -> TempDir {
    document_root(&[
        ("hello.php", "<?php echo 'hello';"),
        ("short.php", "<?php header('Content-Length: 9'); echo 'x';"),
        (
            "slow.php",
            "<?php while (!file_exists(__DIR__ . '/end')) { clearstatcache(); usleep(10_000); }
            echo 'slow';",
        ),
    ])
}

#[test]
fn broken_responses_of_one_site_leave_the_other_streams_of_a_connection() {
    let root = slow_site();
    let server = Setup::new(root.path()).workers(2).start();
    let mut client = Connection::open(server.address(), &[]);
    client.ask(1, "/slow.php");
    for stream in (3..303).step_by(2) {
        client.ask(stream, "/short.php");
        let reset = client.wait_for("a reset", |frame| frame.kind == RST_STREAM);
        assert_eq!(reset.map(|frame| frame.stream), Some(stream));
    }
    write_file(root.path(), "end", b"");
    assert_eq!(client.text(1), "slow");
    server.stop();
}

#[test]
fn a_client_of_a_trusted_proxy_does_not_end_the_requests_of_others() {
    let root = slow_site();
    let setup = Setup::new(root.path()).workers(3);
    let server = setup.top("trusted_proxies = \"127.0.0.1\"").start();
    let of = |method, path| {
        fields(&[
            (":method", method),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
            ("x-forwarded-for", "203.0.113.1"),
        ])
    };
    let mut proxy = Connection::open(server.address(), &[]);
    proxy.ask_with(1, &of("GET", "/slow.php"), END_STREAM);
    proxy.ask_with(3, &of("POST", "/slow.php"), 0);
    let trailers = fields(&[("x-checksum", &"a".repeat(8000))]);
    let body = [
        frame(DATA, 0, 3, b"body"),
        frame(HEADERS, END_HEADERS | END_STREAM, 3, &trailers),
        frame(PING, 0, 0, &[0; 8]),
    ];
    proxy.send(&body.concat()).expect("a body is taken");
    let pong = proxy.wait_for("an answer to a ping", |frame| frame.kind == PING);
    assert!(pong.is_some(), "the connection is closed");
    let request = of("GET", "/hello.php");
    let taken_back = |stream| {
        let ask = frame(HEADERS, END_HEADERS | END_STREAM, stream, &request);
        [ask, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
    };
    let all: Vec<_> = (5..505).step_by(2).flat_map(taken_back).collect();
    proxy.send(&all).expect("the server takes resets");
    proxy.ask_with(505, &request, END_STREAM);
    assert_eq!(proxy.text(505), "hello");
    write_file(root.path(), "end", b"");
    assert_eq!([1, 3].map(|stream| proxy.text(stream)), ["slow", "slow"]);
    server.stop();
}

#[test]
fn a_malformed_header_that_closes_the_connection_of_a_trusted_proxy_is_in_the_log_once() {
    let root = slow_site();
    let server = Setup::new(root.path()).top("trusted_proxies = \"127.0.0.1\"").start();
    let malformed = [("x", "\u{1}"), ("x\u{1}", "y")];
    for field in malformed {
        let mut proxy = Connection::open(server.address(), &[]);
        let head = [get("/hello.php"), fields(&[field])].concat();
        proxy.ask_with(1, &head, END_STREAM);
        let code = proxy.goaway();
        assert!(matches!(code, None | Some(PROTOCOL_ERROR)), "{code:?}");
    }
    let line = server.expect_log(0, CUT);
    assert!(line.contains("one of trusted_proxies passes on a malformed header"), "{line}");
    let lines = server.log().lines();
    assert_eq!(lines.iter().filter(|line| line.contains(CUT)).count(), 1, "{lines:#?}");
    server.stop();
}

/// The header of a request for a path that no request may have, so that h2 resets the stream.
fn malformed() -> Vec<u8> {
    fields(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/?q=\"x\""),
        (":authority", "localhost"),
    ])
}

/// Sends malformed requests, one after the other.
fn ask_malformed(client: &mut Connection, streams: Range<u32>) {
    let head = malformed();
    for number in streams {
        let stream = 2 * number + 1;
        let body = frame(DATA, END_STREAM, stream, &[b'x'; 4096]);
        let asked = [frame(HEADERS, END_HEADERS, stream, &head), body].concat();
        if client.send(&asked).is_err() {
            return;
        }
        let is_end = |frame: &Frame| frame.error_code().is_some();
        let reset = client.wait_for("a reset", is_end);
        if reset.is_none_or(|frame| frame.kind == GOAWAY) {
            return;
        }
    }
}

/// Sends malformed requests at once, and their bodies after all of the resets. Returns the error
/// code of GOAWAY.
fn ask_malformed_at_once(client: &mut Connection, numbers: Range<u32>) -> Option<u32> {
    const PIECES: usize = 8;
    let head = malformed();
    let streams: Vec<u32> = numbers.map(|number| 2 * number + 1).collect();
    let heads = streams.iter().flat_map(|stream| frame(HEADERS, END_HEADERS, *stream, &head));
    client.send(&heads.collect::<Vec<_>>()).expect("the server takes requests");
    for _ in &streams {
        let is_end = |frame: &Frame| frame.error_code().is_some();
        let end = client.wait_for("a reset", is_end).expect("the connection stays open");
        if end.kind == GOAWAY {
            return end.error_code();
        }
    }
    // Not small for h2, and together no more than half of the connection's window.
    let body = |stream: &u32| frame(DATA, 0, *stream, &[b'x'; 256]).repeat(PIECES);
    let bodies: Vec<u8> = streams.iter().flat_map(body).collect();
    client.send(&bodies).expect("the server takes bodies");
    None
}

#[test]
fn malformed_requests_of_a_client_leave_those_of_the_others_behind_a_trusted_proxy() {
    let root = slow_site();
    let setup = Setup::new(root.path()).workers(2);
    let server = setup.top("trusted_proxies = \"127.0.0.1\"").start();
    let mut proxy = Connection::open(server.address(), &[]);
    proxy.ask(1, "/slow.php");
    ask_malformed(&mut proxy, 1..300);
    proxy.ask(601, "/hello.php");
    assert_eq!(proxy.text(601), "hello");
    // The proxy is to open another connection before h2 closes this one.
    let mut groups = (301..1501).step_by(100).map(|first| first..first + 100);
    let goaway = groups.find_map(|group| ask_malformed_at_once(&mut proxy, group));
    assert_eq!(goaway, Some(NO_ERROR));
    write_file(root.path(), "end", b"");
    assert_eq!(proxy.text(1), "slow");
    server.stop();
}

#[test]
fn a_client_with_many_malformed_requests_is_cut_off() {
    let root = slow_site();
    let server = Setup::new(root.path()).start();
    let mut client = Connection::open(server.address(), &[]);
    ask_malformed(&mut client, 0..300);
    server.expect_log(0, CUT);
    server.stop();
}

/// A listener that accepts no connection, and the one that fills its queue.
fn full_listener() -> (TcpListener, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    rustix::net::listen(&listener, 0).expect("the length of a queue can be set");
    let address = listener.local_addr().expect("it listens");
    let first = TcpStream::connect(address).expect("the queue has a place");
    (listener, first)
}

/// Waits until the window of the connection has room for `bytes`, and takes it.
fn take_window(client: &mut Connection, window: &mut u32, bytes: u32) {
    while *window < bytes {
        let is_larger = |frame: &Frame| frame.kind == WINDOW_UPDATE && frame.stream == 0;
        let frame = client.wait_for("a larger window", is_larger).expect("it stays open");
        *window += u32::from_be_bytes(frame.payload.try_into().expect("four bytes"));
    }
    *window -= bytes;
}

#[test]
fn bodies_that_an_upstream_server_does_not_read_leave_room_to_others_behind_a_trusted_proxy() {
    const PIECE_BYTES: u32 = 16 * 1024;
    let (listener, first) = full_listener();
    let to = listener.local_addr().expect("it listens");
    let root =
        document_root(&[("size.php", "<?php echo strlen(file_get_contents('php://input'));")]);
    let setup = Setup::new(root.path()).top("trusted_proxies = \"127.0.0.1\"");
    let waiting = rule(&format!("http://{to}"), ", connect_timeout = \"60s\"");
    let server = setup.site(&waiting).start();
    let mut proxy = Connection::open(server.address(), &[]);
    let mut window = 65_535;
    let post = |path| {
        fields(&[
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
        ])
    };
    for stream in (1..17).step_by(2) {
        proxy.ask_with(stream, &post("/app/x"), 0);
        // As much as the window of the stream has.
        for _ in 0..16 {
            take_window(&mut proxy, &mut window, PIECE_BYTES);
            let piece = frame(DATA, 0, stream, &[b'x'; PIECE_BYTES as usize]);
            proxy.send(&piece).expect("the server takes a body");
        }
    }
    proxy.ask_with(17, &post("/size.php"), 0);
    take_window(&mut proxy, &mut window, PIECE_BYTES);
    let body = frame(DATA, END_STREAM, 17, &[b'x'; PIECE_BYTES as usize]);
    proxy.send(&body).expect("the server takes a body");
    assert_eq!(proxy.text(17), PIECE_BYTES.to_string());
    // Streams that are reset while their requests wait leave room as well.
    let reset = |stream| frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
    proxy.send(&(1..17).step_by(2).flat_map(reset).collect::<Vec<_>>()).expect("they are taken");
    proxy.ask_with(19, &post("/size.php"), 0);
    proxy.send(&frame(DATA, END_STREAM, 19, b"body")).expect("the server takes a body");
    assert_eq!(proxy.text(19), "4");
    // Without a listener, the connections to it are refused.
    drop((proxy, listener, first));
    server.stop();
}
