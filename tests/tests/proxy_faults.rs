//! Servers behind that fail, clients that leave, and bodies larger than anybody keeps.

use std::io::ErrorKind::WouldBlock;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use maitred_tests::http::{self, Connection, Request};
use maitred_tests::http2::{
    ACK, Connection as Http2, DATA, END_STREAM, Frame, SETTINGS, WINDOW_UPDATE, fields, frame,
};
use maitred_tests::node::{ByHand, Node, answer, read_head};
use maitred_tests::processes::Signal;
use maitred_tests::proxied::{MIB, proxied, rule, said, site};
use maitred_tests::server::Setup;
use maitred_tests::tls::served_with;
use maitred_tests::wait::DEADLINE;
use maitred_tests::{Target, wait};

#[test]
fn an_upload_of_100_megabytes_takes_next_to_no_memory_and_no_disk() {
    let (root, node) = (site(), Node::start());
    let server = proxied(&root, &node.url(), "");
    assert_eq!(http::get(server.address(), "/app/seen").status, 200);
    let before = server.front_peak();
    let mut client = Connection::open(server.address());
    let length = 100 * MIB;
    let head = format!("PUT /app/digest HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    client.send(head.as_bytes()).unwrap();
    let piece = vec![b'x'; MIB];
    for _ in 0..100 {
        client.send(&piece).unwrap();
        assert_eq!(std::fs::read_dir(server.spool()).unwrap().count(), 0);
    }
    let answer = client.read_response(false).unwrap();
    assert!(answer.text().starts_with(&format!("{length} ")), "{}", said(&answer));
    let grown = server.front_peak().saturating_sub(before);
    assert!(grown < 16 * MIB as u64, "the front has grown by {grown} bytes");
}

#[test]
fn what_a_client_does_not_read_is_not_fetched() {
    let root = site();
    let (told, written) = std::sync::mpsc::channel();
    let back = ByHand::start(move |mut stream, _| {
        read_head(&mut stream);
        stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1usize << 30);
        stream.write_all(head.as_bytes()).unwrap();
        let piece = vec![b'x'; MIB];
        let mut sent = 0;
        while sent < 1 << 30 {
            match stream.write(&piece) {
                Ok(count) => sent += count,
                Err(_) => break,
            }
        }
        told.send(sent).unwrap();
    });
    let server = proxied(&root, &back.url(), "");
    let mut client = Connection::open(server.address());
    client.send(&Request::get("/app/large").to_bytes()).unwrap();
    let sent = written.recv().expect("the server behind stops");
    assert!(sent < 64 * MIB, "{sent} bytes were fetched without a client");
    assert!(server.front_peak() < 128 * MIB as u64);
    assert_eq!(client.read_head().unwrap().status, 200);
}

#[test]
fn a_server_that_fails_gets_its_client_a_502_or_a_504_and_the_log_a_line() {
    let root = site();
    let huge = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1_000_000));
    let cases: [(&str, &'static [u8], u16); 9] = [
        ("nothing", b"", 502),
        ("half a head", b"HTTP/1.1 200 OK\r\nContent-", 502),
        ("rubbish", b"\x16\x03\x01 what\r\n\r\n", 502),
        ("too much", Box::leak(huge.into_boxed_str()).as_bytes(), 502),
        (
            "two framings",
            b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            502,
        ),
        (
            "two lengths",
            b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
            502,
        ),
        ("another coding", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc", 502),
        (
            "an unexpected change of protocol",
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
            502,
        ),
        ("a length that is none", b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", 502),
    ];
    for (what, bytes, status) in cases {
        let back = ByHand::start(move |mut stream, _| answer(&mut stream, bytes, 1));
        let server = proxied(&root, &back.url(), "");
        let mark = server.log().mark();
        for _ in 0..2 {
            let mut client = Connection::open(server.address());
            let answer = client.ask(&Request::get("/app/x")).expect(what);
            assert_eq!(answer.status, status, "{what}: {}", said(&answer));
            let next = client.ask(&Request::get("/style.css")).expect(what);
            assert_eq!(next.text(), "p {}", "{what}");
        }
        assert!(back.accepted() >= 2, "{what}: no connection is used again");
        let line = server.expect_log(mark, "proxy: http://127.0.0.1:");
        assert!(line.contains(": 502: "), "{line}");
        let lines = server.log().since(mark);
        let told = lines.iter().filter(|line| line.contains("proxy: http"));
        assert_eq!(told.count(), 1, "{lines:?}");
    }
}

#[test]
fn a_server_that_is_not_there_or_hangs_is_not_waited_for_longer_than_it_says() {
    let root = site();
    let unused = maitred_tests::ports::free_address();
    let server = proxied(&root, &format!("http://{unused}"), "");
    let mark = server.log().mark();
    assert_eq!(http::get(server.address(), "/app/x").status, 502);
    server.expect_log(mark, "it cannot be reached: Connection refused");
    drop(server);
    let hangs = ByHand::start(|mut stream, _| {
        read_head(&mut stream);
        let _ = stream.read(&mut [0]);
    });
    let server = proxied(&root, &hangs.url(), ", read_timeout = \"300ms\"");
    let mark = server.log().mark();
    let answer = http::get(server.address(), "/app/x");
    assert_eq!(answer.status, 504, "{}", said(&answer));
    server.expect_log(mark, "it sent nothing for 0.3 s (read_timeout)");
    drop(server);
    let (over, waits) = std::sync::mpsc::channel::<()>();
    let waits = Arc::new(Mutex::new(waits));
    let takes_nothing = ByHand::start(move |mut stream, _| {
        read_head(&mut stream);
        let _ = waits.lock().map(|waits| waits.recv());
    });
    let server = proxied(&root, &takes_nothing.url(), ", send_timeout = \"300ms\"");
    let request = Request::post("/app/x", "a/b", &vec![b'x'; 32 * MIB]);
    let answer = http::ask(server.address(), &request);
    assert_eq!(answer.status, 504, "{}", said(&answer));
    drop(over);
}

#[test]
fn a_server_that_responds_without_end_and_takes_nothing_is_not_waited_for_either() {
    let root = site();
    let back = ByHand::start(|mut stream, _| {
        read_head(&mut stream);
        let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        let mut is_open = stream.write_all(head).is_ok();
        while is_open {
            is_open = stream.write_all(b"data: 1\n\n").is_ok();
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let server = proxied(&root, &back.url(), ", send_timeout = \"300ms\"");
    let mut client = Connection::open(server.address());
    // The front reads no more of it than the server does.
    let _ = client.send(&Request::post("/app/x", "a/b", &vec![b'x'; 32 * MIB]).to_bytes());
    server.expect_log(0, "it took nothing of a request for 0.3 s (send_timeout)");
}

#[test]
fn a_server_that_waits_for_its_client_to_read_has_its_whole_time_to_take_the_next_piece() {
    const LENGTH: usize = 32 * MIB;
    let root = site();
    let (blocked, waits) = channel();
    let echoes = ByHand::start(move |mut stream, _| {
        read_head(&mut stream);
        stream.set_write_timeout(Some(Duration::from_secs(3))).unwrap();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut piece = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = stream.read(&mut piece) {
            let mut sent = 0;
            while sent < count {
                match stream.write(&piece[sent..count]) {
                    Ok(count) => sent += count,
                    Err(error) if error.kind() == WouldBlock => drop(blocked.send(())),
                    Err(_) => return,
                }
            }
        }
    });
    let server = proxied(&root, &echoes.url(), ", send_timeout = \"1s\"");
    let mut client = Connection::open(server.address());
    let mut sending = client.stream().try_clone().unwrap();
    let request = Request::post("/app/x", "a/b", &vec![b'x'; LENGTH]).to_bytes();
    let sender = std::thread::spawn(move || sending.write_all(&request));
    waits.recv_timeout(DEADLINE).expect("the server waits for its client");
    let answer = client.read_response(false).expect("a whole response");
    assert_eq!(answer.body.len(), LENGTH);
    sender.join().unwrap().expect("the front takes the whole body");
}

#[test]
fn what_a_server_says_behind_its_answer_answers_nobody() {
    let root = site();
    let back = ByHand::start(|mut stream, _| {
        let two = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\
                    Content-Length: 4\r\n\r\nevil";
        answer(&mut stream, two, 2);
    });
    let server = Setup::new(root.path()).top("front_threads = 1");
    let server = server.site(&rule(&back.url(), "")).start();
    for _ in 0..5 {
        assert_eq!(said(&http::get(server.address(), "/app/x")), "200 ok");
    }
    drop(server);
    // A connection that is reset before anything was said.
    let resets = ByHand::start(|_, _| {});
    let server = proxied(&root, &resets.url(), "");
    assert_eq!(http::get(server.address(), "/app/x").status, 502);
}

#[test]
fn an_answer_that_breaks_in_the_middle_breaks_for_the_client_too() {
    let root = site();
    for bytes in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"[..],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n",
    ] {
        let back = ByHand::start(move |mut stream, _| answer(&mut stream, bytes, 1));
        let server = proxied(&root, &back.url(), "");
        let broken = http::try_ask(server.address(), &Request::get("/app/x"));
        assert!(broken.is_err(), "{broken:?}");
        let url = format!("{}/app/x", server.base_url());
        let output = Command::new("curl")
            .args(["-sS", "--http2-prior-knowledge", &url])
            .output()
            .expect("curl is installed");
        assert!(!output.status.success(), "over HTTP/2");
    }
}

#[test]
fn events_with_a_length_are_complete_though_the_server_stops_meanwhile() {
    let root = site();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let gone = Arc::new(Mutex::new(gone));
    let back = ByHand::start(move |mut stream, _| {
        let request = read_head(&mut stream).expect("a request");
        let is_endless = request.starts_with("GET /app/endless ");
        let length = if is_endless { "" } else { "Content-Length: 18\r\n" };
        let first = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\
             {length}\r\ndata: 1\n\n"
        );
        stream.write_all(first.as_bytes()).unwrap();
        if is_endless {
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        } else if gone.lock().unwrap().recv().is_ok() {
            stream.write_all(b"data: 2\n\n").unwrap();
        }
    });
    let setup = Setup::new(root.path()).top("process_control_timeout = 60");
    let mut server = setup.site(&rule(&back.url(), "")).start();
    let mut endless = Connection::open(server.address());
    endless.send(&Request::get("/app/endless").to_bytes()).unwrap();
    assert_eq!(endless.read_head().unwrap().status, 200);
    assert_eq!(endless.read_chunk().unwrap(), b"data: 1\n\n");
    let mut client = Connection::open(server.address());
    // A response to the second request must not be read as the rest of the first.
    let two = [Request::get("/app/whole").to_bytes(), Request::get("/style.css").to_bytes()];
    client.send(&two.concat()).unwrap();
    assert_eq!(client.read_head().unwrap().header("Content-Length"), Some("18"));
    assert_eq!(client.read_bytes(9).unwrap(), b"data: 1\n\n");
    server.signal(Signal::TERM);
    assert_eq!(endless.read_chunk().unwrap(), b"", "the front stops");
    go.send(()).unwrap();
    assert_eq!(client.read_bytes(9).unwrap(), b"data: 2\n\n");
    drop((client, endless));
    assert!(server.wait_for_end().success());
    server.assert_nothing_left();
}

#[test]
fn connections_are_kept_and_one_that_was_closed_meanwhile_does_no_harm() {
    let root = site();
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let back = ByHand::start(|mut stream, _| answer(&mut stream, OK, usize::MAX));
    let server = Setup::new(root.path()).top("front_threads = 1");
    let server = server.site(&rule(&back.url(), "")).start();
    for _ in 0..10 {
        assert_eq!(http::get(server.address(), "/app/x").text(), "ok");
    }
    assert_eq!(back.accepted(), 1);
    drop((server, back));
    // The second request of a connection gets no answer, but is read.
    let fickle = ByHand::start(|mut stream, _| {
        answer(&mut stream, OK, 1);
        read_head(&mut stream);
    });
    let server = Setup::new(root.path()).top("front_threads = 1");
    let server = server.site(&rule(&fickle.url(), "")).start();
    for _ in 0..5 {
        assert_eq!(http::get(server.address(), "/app/x").text(), "ok");
    }
    let post = Request::post("/app/x", "a/b", b"");
    let twice = [http::ask(server.address(), &post), http::ask(server.address(), &post)];
    let mut statuses = twice.map(|answer| answer.status);
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 502], "what may have been done is not done again");
}

#[test]
fn a_connection_that_a_client_may_have_authenticated_serves_no_other_request() {
    let root = site();
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    const BASIC: &[u8] = b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"a\"\r\n\
                           Content-Length: 2\r\n\r\nno";
    const NEGOTIATE: &[u8] =
        b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"a\"\r\n\
                               www-authenticate: negotiate abc\r\nContent-Length: 2\r\n\r\nno";
    const LISTED: &[u8] = b"HTTP/1.1 200 OK\r\nWWW-Authenticate: Basic realm=\"a\", NTLM\r\n\
                            Content-Length: 2\r\n\r\nok";
    let cases = [
        ("NTLM x", OK, 2),
        ("ntlm x", OK, 2),
        ("Negotiate x", OK, 2),
        ("", NEGOTIATE, 2),
        ("", LISTED, 2),
        ("Basic eDp5", BASIC, 1),
        ("Bearer NTLM", OK, 1),
    ];
    for (credentials, response, connections) in cases {
        let back = ByHand::start(move |mut stream, _| answer(&mut stream, response, usize::MAX));
        let setup = Setup::new(root.path()).top("front_threads = 1");
        let server = setup.site(&rule(&back.url(), "")).start();
        let first = Request::get("/app/x").header("Authorization", credentials);
        for request in [first, Request::get("/app/x")] {
            let status = http::ask(server.address(), &request).status;
            assert!(response.starts_with(format!("HTTP/1.1 {status} ").as_bytes()));
        }
        assert_eq!(back.accepted(), connections, "{credentials}");
        server.stop();
    }
}

#[test]
fn a_client_that_leaves_is_worked_for_no_longer() {
    let root = site();
    let (told, left) = std::sync::mpsc::channel();
    let back = ByHand::start(move |mut stream, _| {
        read_head(&mut stream);
        // Nothing more comes: the end does.
        told.send(matches!(stream.read(&mut [0]), Ok(0) | Err(_))).unwrap();
    });
    let server = proxied(&root, &back.url(), "");
    let mut client = Connection::open(server.address());
    client.send(&Request::get("/app/x").to_bytes()).unwrap();
    wait::until_true("the request to be there", || back.accepted() == 1);
    drop(client);
    assert!(left.recv().unwrap());
    // Half a body is not passed on as if it were all.
    let (told, ended) = std::sync::mpsc::channel();
    let back = ByHand::start(move |mut stream: TcpStream, _| {
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        told.send(String::from_utf8_lossy(&all).into_owned()).unwrap();
    });
    drop(server);
    let server = proxied(&root, &back.url(), "");
    let mut client = Connection::open(server.address());
    let head = "POST /app/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(format!("{head}4\r\nhalf\r\n").as_bytes()).unwrap();
    wait::until_true("the request to be there", || back.accepted() == 1);
    drop(client);
    let got = ended.recv().unwrap();
    assert!(!got.ends_with("0\r\n\r\n"), "{got}");
}

#[test]
fn a_refusal_before_the_end_of_a_body_reaches_the_client() {
    let root = site();
    let back = ByHand::start(|mut stream, _| {
        read_head(&mut stream);
        let refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno";
        let _ = stream.write_all(refusal);
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let server = proxied(&root, &back.url(), "");
    let mut client = Connection::open(server.address());
    let head = "POST /app/x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nfirst";
    client.send(head.as_bytes()).unwrap();
    let answer = client.read_response(false).unwrap();
    assert_eq!(said(&answer), "403 no");
    assert_eq!(answer.header("Connection"), Some("close"));
}

/// A server that reads the whole body of a request, and meanwhile sends it back: neither waits for
/// the other.
fn echo() -> ByHand {
    ByHand::start(|mut stream, _| {
        let head = read_head(&mut stream).expect("a request");
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().ok())?
        });
        let length = length.expect("a length");
        let mut out = stream.try_clone().expect("a socket can be duplicated");
        let (pieces, taken) = std::sync::mpsc::channel::<Vec<u8>>();
        let writer = std::thread::spawn(move || {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            out.write_all(head.as_bytes())?;
            taken.into_iter().try_for_each(|piece| out.write_all(&piece))
        });
        let (mut piece, mut left) = (vec![0; MIB], length);
        while left > 0 {
            let count = stream.read(&mut piece).unwrap_or(0);
            if count == 0 {
                break;
            }
            let _ = pieces.send(piece[..count].to_vec());
            left -= count;
        }
        drop(pieces);
        let _ = writer.join();
    })
}

/// More than the sockets of a client, the front and a server have room for.
const SENT_BEFORE_READ: usize = 64 * MIB;

#[test]
fn a_client_may_send_all_of_its_body_before_it_reads() {
    let (root, back) = (site(), echo());
    let limit = format!("max_body_size = {SENT_BEFORE_READ}");
    let server = Setup::new(root.path()).site(&limit).site(&rule(&back.url(), "")).start();
    let mut client = Connection::open(server.address());
    let head =
        format!("POST /app/x HTTP/1.1\r\nHost: a\r\nContent-Length: {SENT_BEFORE_READ}\r\n\r\n");
    client.send(head.as_bytes()).unwrap();
    let pieces = (0..SENT_BEFORE_READ / MIB).map(|number| vec![u8::try_from(number).unwrap(); MIB]);
    for piece in pieces.clone() {
        client.send(&piece).unwrap();
    }
    assert_eq!(client.read_head().unwrap().status, 200);
    for piece in pieces {
        assert!(client.read_bytes(MIB).unwrap() == piece);
    }
}

/// A client that does so under TLS: port, certificate of the authority, mebibytes.
const TLS_CLIENT: &str = r#"
import socket, ssl, sys
port, ca, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
tcp = socket.create_connection(("127.0.0.1", port), 120)
client = ssl.create_default_context(cafile=ca).wrap_socket(tcp, server_hostname="localhost")
head = "POST /app/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
client.sendall((head % (count << 20)).encode())
for number in range(count):
    client.sendall(bytes([number]) * (1 << 20))
answer = client.makefile("rb")
while answer.readline() != b"\r\n":
    pass
print(all(answer.read(1 << 20) == bytes([number]) * (1 << 20) for number in range(count)))
"#;

#[test]
fn a_client_may_send_all_of_its_body_before_it_reads_under_tls() {
    let back = echo();
    let limit = format!("max_body_size = {SENT_BEFORE_READ}");
    let line = rule(&back.url(), "");
    let served = served_with(&[], |setup| setup.site(&limit).site(&line));
    let output = Command::new("python3")
        .args(["-c", TLS_CLIENT, &served.address.port().to_string()])
        .arg(served.authority.ca())
        .arg((SENT_BEFORE_READ / MIB).to_string())
        .output()
        .expect("python3 can be started (apt install python3)");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "True\n", "{errors}");
}

#[test]
fn a_client_may_send_all_of_its_body_before_it_reads_over_http2() {
    let (root, back) = (site(), echo());
    let server = proxied(&root, &back.url(), "");
    let mut client = Http2::open(server.address(), &[]);
    let is_settings = |frame: &Frame| frame.kind == SETTINGS && frame.flags & ACK == 0;
    let settings = client.wait_for("settings", is_settings).expect("settings");
    let of_stream = settings.payload.chunks(6).find(|setting| setting[..2] == [0, 4]);
    // What it may send on the connection, and on the stream.
    let mut windows = [65_535, of_stream.map_or(65_535, |setting| number(&setting[2..]))];
    let length = 8 * MIB;
    let post = fields(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/app/x"),
        (":authority", "localhost"),
        ("content-length", &length.to_string()),
    ]);
    client.ask_with(1, &post, 0);
    let mut left = length;
    while left > 0 {
        let count = left.min(windows[0]).min(windows[1]).min(16 * 1024);
        if count == 0 {
            let larger = client.wait_for("a window", |frame| frame.kind == WINDOW_UPDATE);
            let larger = larger.expect("a window");
            windows[usize::from(larger.stream == 1)] += number(&larger.payload);
            continue;
        }
        left -= count;
        let flags = if left == 0 { END_STREAM } else { 0 };
        client.send(&frame(DATA, flags, 1, &vec![b'x'; count])).unwrap();
        windows = windows.map(|window| window - count);
    }
    // Now it reads.
    let bytes = 0x7000_0000_u32.to_be_bytes();
    let all = [0, 1].map(|stream| frame(WINDOW_UPDATE, 0, stream, &bytes)).concat();
    client.send(&all).unwrap();
    assert!(client.body(1) == vec![b'x'; length]);
}

/// Pieces of a response that is sent before the body of its request is complete, with the pause of
/// the client before each: even without those that sockets have room for, it reads for longer than
/// the 20 s in which it has to send something while it does not read.
const EARLY_PIECES: usize = 16;
const EARLY_PIECE: usize = 4 * MIB;
const EARLY_PAUSE: Duration = Duration::from_secs(2);

/// A server that sends such a response, and waits for the sender before the last byte.
fn early() -> (ByHand, Sender<()>) {
    let (go_on, goes_on) = channel();
    let goes_on = Arc::new(Mutex::new(goes_on));
    let back = ByHand::start(move |mut stream, _| {
        read_head(&mut stream).expect("a request");
        let length = EARLY_PIECES * EARLY_PIECE + 1;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.write_all(&vec![b'x'; length - 1]);
        let _ = goes_on.lock().expect("no thread panics").recv();
        let _ = stream.write_all(b"x");
        let _ = stream.read(&mut [0; 64]);
    });
    (back, go_on)
}

#[test]
fn a_client_may_read_for_long_before_it_sends_the_rest_of_its_body() {
    let root = site();
    let (back, go_on) = early();
    let server = proxied(&root, &back.url(), "");
    let mut client = Connection::open(server.address());
    let head = "POST /app/x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n1";
    client.send(head.as_bytes()).unwrap();
    assert_eq!(client.read_head().unwrap().status, 200);
    for _ in 0..EARLY_PIECES {
        std::thread::sleep(EARLY_PAUSE);
        assert_eq!(client.read_bytes(EARLY_PIECE).unwrap().len(), EARLY_PIECE);
    }
    client.send(b"2").unwrap();
    go_on.send(()).unwrap();
    assert_eq!(client.read_bytes(1).unwrap(), b"x");
}

#[test]
fn a_client_may_read_for_long_before_it_sends_the_rest_of_its_body_over_http2() {
    let root = site();
    let (back, go_on) = early();
    let server = proxied(&root, &back.url(), "");
    let mut client = Http2::open(server.address(), &[]);
    let post = fields(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/app/x"),
        (":authority", "localhost"),
        ("content-length", "2"),
    ]);
    client.ask_with(1, &post, 0);
    client.send(&frame(DATA, 0, 1, b"1")).unwrap();
    let more = u32::try_from(EARLY_PIECE).unwrap().to_be_bytes();
    let mut left = EARLY_PIECES * EARLY_PIECE;
    for piece in (0..EARLY_PIECES).rev() {
        std::thread::sleep(EARLY_PAUSE);
        let room = [0, 1].map(|stream| frame(WINDOW_UPDATE, 0, stream, &more));
        client.send(&room.concat()).unwrap();
        while left > piece * EARLY_PIECE {
            let data = client.wait_for("data", |frame| frame.kind == DATA).expect("a response");
            left = left.saturating_sub(data.payload.len());
        }
    }
    client.send(&frame(DATA, END_STREAM, 1, b"2")).unwrap();
    go_on.send(()).unwrap();
    assert_eq!(client.body(1).len(), EARLY_PIECES * EARLY_PIECE + 1);
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
}
