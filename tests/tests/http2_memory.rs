//! The front's memory while clients of HTTP/2 have it hold as much as they can: it stays within
//! bounds, and is given back afterwards.

use std::cell::Cell;
use std::fs::File;
use std::net::SocketAddr;
use std::time::Duration;

use maitred_tests::Target;
use maitred_tests::honest::Honest;
use maitred_tests::http2::{
    ACK, CONTINUATION, Connection, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS,
    INITIAL_WINDOW_SIZE, PING, PROTOCOL_ERROR, RST_STREAM, WINDOW_UPDATE, fields, frame, get,
    integer,
};
use maitred_tests::server::{Server, Setup, document_root, write_file};
use maitred_tests::{http, ports, wait};
use rustix::fs::Advice;
use tempfile::TempDir;

/// Connections of the flood.
const CONNECTIONS: usize = 200;
/// How many of them send at a time.
const PART: usize = 20;
/// Requests of each.
const STREAMS: u32 = 100;
/// Most memory that the flood may take at its height, in bytes. The pages of the program itself do
/// not count: how many are mapped depends on how the file lies in the page cache.
const HEIGHT: u64 = 96 << 20;
/// Most that it may have beyond what it had before, [`LATER`] after the flood.
const REST: u64 = 20 << 20;
/// When the memory of a flood must have been given back.
const LATER: Duration = Duration::from_secs(60);
/// The longest value that fits into HPACK's table of 4,096 bytes beside an authority (RFC 7541
/// §4.1).
const VALUE_BYTES: usize = 4000;
/// How often it fits into one header.
const TIMES: usize = 15;

fn site() -> TempDir {
    document_root(&[
        ("hello.txt", "hello, file"),
        ("hello.php", "<?php echo 'hello';"),
        ("index.php", "<?php echo 'hello';"),
        ("page.php", "<?php echo str_repeat('x', 400_000);"),
        (
            "short.php",
            "<?php header('Content-Type: text/plain'); header('Content-Length: 100000000');
            echo bin2hex(random_bytes(100_000)); flush(); usleep(20_000); echo 'x';",
        ),
    ])
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

/// A text without Huffman's code (RFC 7541 §5.2).
fn text(bytes: &mut Vec<u8>, text: &str) {
    integer(bytes, 0, 7, text.len());
    bytes.extend(text.as_bytes());
}

/// The headers of a POST that are in the table already: method, scheme, path, and the authority.
const POST: [u8; 4] = [0x83, 0x86, 0x84, 0x80 | 63];
/// The header that was remembered last, by its place in the table.
const NEWEST: u8 = 0x80 | 62;

/// The first header: it has the server remember the authority and one long header.
fn remembered() -> Vec<u8> {
    let mut head = vec![0x83, 0x86, 0x84, 0x41];
    text(&mut head, "localhost");
    head.push(0x40);
    text(&mut head, "x");
    text(&mut head, &"a".repeat(VALUE_BYTES));
    head
}

/// Begins as many POSTs as one connection may, each with a header of a few bytes that are many when
/// they have been unpacked, and sends no body. Returns when the server has read all of it.
fn bomb(server: &Server) -> Connection {
    bomb_of(Connection::open(server.address(), &[]))
}

/// The same on this connection.
fn bomb_of(mut client: Connection) -> Connection {
    let mut bytes = frame(HEADERS, END_HEADERS, 1, &remembered());
    let head = [&POST[..], &[NEWEST; TIMES]].concat();
    for number in 1..STREAMS {
        bytes.extend(frame(HEADERS, END_HEADERS, 1 + 2 * number, &head));
    }
    bytes.extend(frame(PING, 0, 0, &[7; 8]));
    client.send(&bytes).expect("the server takes the requests");
    client
}

/// Waits until the server has read everything.
fn is_read(client: &mut Connection) {
    let pong = client
        .wait_for("an answer to a ping", |frame| frame.kind == PING && frame.flags & ACK != 0);
    pong.expect("the connection stays open");
}

#[test]
fn heads_that_are_larger_unpacked_than_sent_are_held_within_bounds_and_given_back() {
    let root = site();
    let server = Setup::new(root.path()).workers(2).start();
    let honest = Honest::ask(server.address());
    let mut warm = Connection::open(server.address(), &[]);
    warm.ask(1, "/hello.php");
    assert_eq!(warm.text(1), "hello");
    let before = server.front_memory();
    let mut clients: Vec<_> = Vec::new();
    // All are held together, but sent in parts: a front without optimization that unpacks all of
    // them at once, on a busy machine, shows no sign of life for so long that it is replaced.
    while clients.len() < CONNECTIONS {
        let mut part: Vec<_> = (0..PART).map(|_| bomb(&server)).collect();
        part.iter_mut().for_each(is_read);
        clients.append(&mut part);
    }
    // The warm connection is served beside them.
    warm.ask(3, "/hello.php");
    assert_eq!(warm.text(3), "hello");
    let height = server.front_peak();
    println!("{} MiB before, {} MiB at its height", mib(before), mib(height));
    let taken = height.saturating_sub(before);
    assert!(taken <= HEIGHT, "{} MiB became {}", mib(before), mib(height));
    drop(clients);
    wait::until_within("the memory to be given back", LATER, || {
        (server.front_memory() <= before + REST).then_some(())
    });
    println!("{} MiB afterwards", mib(server.front_memory()));
    honest.assert_well_served();
    server.stop();
}

#[test]
fn answers_that_wait_for_one_client_are_bounded_together_where_a_site_has_rules() {
    let root = site();
    let setup = Setup::new(root.path()).workers(2);
    let server = setup.site("deny = \"/secret/*\"").start();
    let mut client = Connection::open(server.address(), &[(INITIAL_WINDOW_SIZE, 0)]);
    client.ask(1, "/page.php");
    client.wait_for("the head", |frame| frame.kind == HEADERS && frame.stream == 1);
    let before = server.front_memory();
    for number in 1..STREAMS {
        client.ask(1 + 2 * number, "/page.php");
    }
    let heads = Cell::new(1);
    client.wait_for("all heads", |frame| {
        heads.set(heads.get() + u32::from(frame.kind == HEADERS));
        heads.get() == STREAMS
    });
    // An answer comes after all that scripts have said was taken.
    let mut other = Connection::open(server.address(), &[]);
    other.ask(1, "/hello.php");
    assert_eq!(other.text(1), "hello");
    let height = server.front_peak();
    println!("{} MiB before, {} MiB at its height", mib(before), mib(height));
    assert!(height <= before + REST, "{} MiB became {}", mib(before), mib(height));
    drop(client);
    server.stop();
}

#[test]
fn compressed_responses_that_end_early_hold_no_encoders_while_their_clients_read_nothing() {
    let root = site();
    let setup = Setup::new(root.path()).workers(2);
    let server = setup.site("compression = [\"br\"]").start();
    let head = fields(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/short.php"),
        (":authority", "localhost"),
        ("accept-encoding", "br"),
    ]);
    let before = server.front_memory();
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = Connection::open(server.address(), &[(INITIAL_WINDOW_SIZE, 0)]);
        for number in 0..STREAMS {
            let asked = frame(HEADERS, END_HEADERS | END_STREAM, 1 + 2 * number, &head);
            client.send(&asked).expect("the server takes the request");
        }
        let heads = Cell::new(0);
        client.wait_for("all heads", |frame| {
            heads.set(heads.get() + u32::from(frame.kind == HEADERS));
            heads.get() == STREAMS
        });
        clients.push(client);
    }
    // A response comes after all that scripts have said was taken.
    let mut other = Connection::open(server.address(), &[]);
    other.ask(1, "/hello.php");
    assert_eq!(other.text(1), "hello");
    wait::until("the memory to be given back", || {
        (server.front_memory() <= before + HEIGHT).then_some(())
    });
    println!("{} MiB before, {} MiB now", mib(before), mib(server.front_memory()));
    drop(clients);
    server.stop();
}

/// Waits until each request of a connection has its headers, or is refused.
fn wait_for_heads(client: &mut Connection) {
    let heads = Cell::new(0);
    client.wait_for("all heads", |frame| {
        heads.set(heads.get() + u32::from(matches!(frame.kind, HEADERS | RST_STREAM)));
        heads.get() == STREAMS
    });
}

#[test]
fn listings_that_their_client_does_not_read_are_bounded_together() {
    let root = site();
    let name = "\"".repeat(240);
    for number in 0..4000 {
        write_file(root.path(), &format!("list/{number}{name}"), b"");
    }
    write_file(root.path(), "few/one.txt", b"");
    let setup = Setup::new(root.path()).workers(2).top("request_memory = \"4M\"");
    let server = setup.site("autoindex = [\"/list/*\", \"/few/*\"]").start();
    let before = server.front_memory();
    let mut client = Connection::open(server.address(), &[(INITIAL_WINDOW_SIZE, 0)]);
    let asked = |number| frame(HEADERS, END_HEADERS | END_STREAM, 1 + 2 * number, &get("/list/"));
    client.send(&(0..STREAMS).flat_map(asked).collect::<Vec<_>>()).expect("they are taken");
    wait_for_heads(&mut client);
    let height = server.front_peak();
    println!("{} MiB before, {} MiB at its height", mib(before), mib(height));
    assert!(height <= before + REST, "{} MiB became {}", mib(before), mib(height));
    server.expect_log(0, "all requests in progress would exceed `request_memory`");
    // Refusals that are not read take no turn of the tenant.
    let mut other = Connection::open(server.address(), &[]);
    other.ask(1, "/few/");
    let page = other.text(1);
    assert!(page.contains("one.txt"), "{page}");
    drop(client);
    server.stop();
}

/// Connections whose clients do not read a large file.
const READERS: usize = 8;
/// Bytes from one range of the large file to the next: more than the kernel reads ahead.
const APART: u32 = 600_000;

#[test]
fn pieces_of_files_that_are_not_cached_are_bounded_for_each_connection() {
    let root = site();
    write_file(root.path(), "large.bin", &vec![b'x'; (STREAMS * APART) as usize]);
    let file = File::open(root.path().join("large.bin")).expect("the file is there");
    file.sync_all().expect("the file is written");
    let server = Setup::new(root.path()).start();
    let before = server.front_memory();
    let asked = |number: u32| {
        let head = fields(&[
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/large.bin"),
            (":authority", "localhost"),
            ("range", &format!("bytes={}-", number * APART)),
        ]);
        frame(HEADERS, END_HEADERS | END_STREAM, 1 + 2 * number, &head)
    };
    let mut clients = Vec::new();
    for _ in 0..READERS {
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).expect("the cache can be emptied");
        let mut client = Connection::open(server.address(), &[(INITIAL_WINDOW_SIZE, 1 << 20)]);
        let window = frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
        let all = (0..STREAMS).flat_map(asked);
        client.send(&window.into_iter().chain(all).collect::<Vec<_>>()).expect("they are taken");
        wait_for_heads(&mut client);
        clients.push(client);
    }
    let height = server.front_peak();
    println!("{} MiB before, {} MiB at its height", mib(before), mib(height));
    assert!(height <= before + REST, "{} MiB became {}", mib(before), mib(height));
    drop(clients);
    server.stop();
}

/// The headers of a GET of a file that its client does not take, the authority and the path of
/// which are remembered.
fn file() -> Vec<u8> {
    let mut head = vec![0x82, 0x86, 0x44];
    text(&mut head, "/large.txt");
    head.push(0x41);
    text(&mut head, "localhost");
    head
}

#[test]
fn fields_that_follow_bodies_are_bounded_for_each_connection() {
    let root = site();
    write_file(root.path(), "large.txt", &[b'x'; 300_000]);
    let server = Setup::new(root.path()).start();
    let honest = Honest::ask(server.address());
    let before = server.front_memory();
    let many = vec![0x80 | 62; 1900];
    for _ in 0..20 {
        let mut client = Connection::open(server.address(), &[(INITIAL_WINDOW_SIZE, 0)]);
        for number in 0..STREAMS {
            client.ask_with(1 + 2 * number, &file(), 0);
        }
        // A header without a value, and then over and over.
        let first = [0x40, 1, b'x', 0];
        let mut bytes = frame(HEADERS, END_HEADERS | END_STREAM, 1, &first);
        for number in 1..STREAMS {
            bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, 1 + 2 * number, &many));
        }
        // The server may have had enough before all of it is sent.
        let _ = client.send(&bytes);
        let code = client.goaway();
        assert!(matches!(code, None | Some(ENHANCE_YOUR_CALM)), "{code:?}");
    }
    let height = server.front_peak();
    println!("{} MiB before, {} MiB at its height", mib(before), mib(height));
    assert!(height <= before + REST, "{} MiB became {}", mib(before), mib(height));
    honest.assert_well_served();
    server.stop();
}

#[test]
fn a_connection_may_send_fields_after_bodies_as_often_as_it_likes() {
    let root = site();
    let server = Setup::new(root.path()).workers(2).start();
    let mut client = Connection::open(server.address(), &[]);
    let trailers = fields(&[("x-checksum", &"a".repeat(200))]);
    for number in 0..300 {
        let stream = 1 + 2 * number;
        client.ask_with(stream, &get("/hello.php"), 0);
        let body = [
            frame(DATA, 0, stream, b"body"),
            frame(HEADERS, END_HEADERS | END_STREAM, stream, &trailers),
        ];
        client.send(&body.concat()).expect("a body is taken");
        assert_eq!(client.text(stream), "hello");
    }
    server.stop();
}

/// An address of the Internet that has a flood come, and one that does not.
const HOSTILE: &str = "203.0.113.1";
/// See [`HOSTILE`].
const HONEST: &str = "203.0.113.2";
/// Connections of the flood of one address.
const OF_ADDRESS: usize = 60;
/// Requests that an honest client sends at once.
const AT_ONCE: u32 = 30;

/// A server before which a proxy says who its clients are, and its admin listener.
fn behind_a_proxy(root: &TempDir, memory: &str) -> (Server, SocketAddr) {
    let listener = ports::free_address();
    let setup = Setup::new(root.path()).workers(2);
    let setup = setup.top("proxy_protocol = true").top(memory);
    let setup = setup.top("trusted_proxies = \"127.0.0.1\"");
    (setup.top(&format!("admin = \"{listener}\"")).start(), listener)
}

/// A connection of the client at this address.
fn client_at(server: &Server, address: &str) -> Connection {
    let header = format!("PROXY TCP4 {address} 192.0.2.1 4711 80\r\n");
    Connection::open_after(server.address(), header.as_bytes(), &[])
}

/// A figure of the metrics.
fn metric(listener: SocketAddr, name: &str) -> u64 {
    let text = http::get(listener, "/metrics").text();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let figure = line.and_then(|figure| figure.trim().parse().ok());
    figure.unwrap_or_else(|| panic!("no {name} in {text}"))
}

fn held(listener: SocketAddr) -> u64 {
    metric(listener, "maitred_request_memory_bytes ")
}

/// All requests that an honest client sends at once are served.
fn assert_served(server: &Server, address: &str) {
    let mut client = client_at(server, address);
    let ask = |number| {
        let stream = 1 + 2 * number;
        frame(HEADERS, END_HEADERS | END_STREAM, stream, &get("/hello.php"))
    };
    let all: Vec<_> = (0..AT_ONCE).map(ask).collect();
    client.send(&all.concat()).expect("they are taken");
    for number in 0..AT_ONCE {
        assert_eq!(client.text(1 + 2 * number), "hello", "request {number}");
    }
}

#[test]
fn one_address_cannot_have_the_requests_of_others_refused() {
    let root = site();
    let (server, listener) = behind_a_proxy(&root, "request_memory = \"48M\"");
    let hostile = |_| bomb_of(client_at(&server, HOSTILE));
    let mut clients: Vec<_> = (0..OF_ADDRESS).map(hostile).collect();
    for client in &mut clients {
        is_read(client);
    }
    assert!(metric(listener, "maitred_rejected_requests_total ") > 0);
    assert_served(&server, HONEST);
    assert!(held(listener) <= 6 << 20, "{} bytes", held(listener));
    // Half of the clients take their requests back, and the others leave.
    for client in clients.iter_mut().take(OF_ADDRESS / 2) {
        let reset = |number| frame(RST_STREAM, 0, 1 + 2 * number, &[0, 0, 0, 8]);
        let resets: Vec<_> = (0..STREAMS).map(reset).collect();
        // The server may have had enough of that before all are sent.
        let _ = client.send(&resets.concat());
    }
    clients.truncate(OF_ADDRESS / 2);
    wait::until("all memory to be given back", || (held(listener) == 0).then_some(()));
    drop(clients);
    // Its share is free as well.
    let _client = bomb_of(client_at(&server, HOSTILE));
    assert_served(&server, HOSTILE);
    server.stop();
}

#[test]
fn a_few_bytes_of_fields_that_are_not_complete_hold_no_memory_of_others() {
    let root = site();
    let (server, listener) = behind_a_proxy(&root, "request_memory = \"16M\"");
    let mut clients: Vec<_> = (0..2 * OF_ADDRESS).map(|_| client_at(&server, HOSTILE)).collect();
    for client in &mut clients {
        let ping = frame(PING, 0, 0, &[7; 8]);
        let begun = frame(HEADERS, 0, 1, &POST[..1]);
        client.send(&[ping, begun].concat()).expect("the server takes them");
    }
    for client in &mut clients {
        is_read(client);
    }
    assert_eq!(held(listener), 0);
    assert_served(&server, HONEST);
    server.stop();
}

#[test]
fn a_connection_ends_on_which_the_fields_of_a_request_never_become_complete() {
    let root = site();
    let server = Setup::new(root.path()).start();
    let mut clients = [HEADERS, CONTINUATION].map(|last| {
        let mut client = Connection::open(server.address(), &[]);
        client.ask(1, "/hello.php");
        assert_eq!(client.text(1), "hello");
        let mut bytes = frame(HEADERS, 0, 3, &POST[..1]);
        if last == CONTINUATION {
            // Of this one, a byte is missing.
            bytes.extend(frame(CONTINUATION, END_HEADERS, 3, &POST[1..]));
            bytes.pop();
        }
        client.send(&bytes).expect("the server takes it");
        client
    });
    for client in &mut clients {
        let code = client.goaway();
        assert!(matches!(code, None | Some(PROTOCOL_ERROR)), "{code:?}");
    }
    server.expect_log(0, "it sends its request too slowly");
    server.stop();
}

/// Clients whose bodies never become complete, each with an address of its own.
const UPLOADERS: usize = 150;
/// Requests of each.
const UPLOADS: u32 = 8;
/// Bytes of each body that arrive.
const SENT_BYTES: usize = 60_000;
/// `request_memory` of that server, in bytes.
const UPLOAD_MEMORY: u64 = 16 << 20;
/// What each connection may hold in any case, in bytes.
const OWN: u64 = 96 << 10;

/// Sends the first part of `UPLOADS` bodies. Each is too small for a file.
fn upload_parts(client: &mut Connection) {
    let ping = frame(PING, 0, 0, &[7; 8]);
    // The server's windows are open once it has read the preface.
    client.send(&ping).expect("the server takes a ping");
    is_read(client);
    let head = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "localhost"),
        (":path", "/hello.php"),
        ("content-length", "70000"),
    ];
    let head = fields(&head);
    for number in 0..UPLOADS {
        let stream = 1 + 2 * number;
        let mut bytes = frame(HEADERS, END_HEADERS, stream, &head);
        for part in vec![b'b'; SENT_BYTES].chunks(15_000) {
            bytes.extend(frame(DATA, 0, stream, part));
        }
        client.send(&bytes).expect("the server takes the parts");
    }
    client.send(&ping).expect("the server takes a ping");
    is_read(client);
}

#[test]
fn bodies_that_never_become_complete_hold_bounded_memory_and_refuse_no_header() {
    let root = site();
    let (server, listener) = behind_a_proxy(&root, "request_memory = \"16M\"");
    assert_served(&server, HONEST);
    let before = server.front_memory();
    let address = |number: usize| format!("203.0.{}.{}", 100 + number / 100, 1 + number % 100);
    let mut clients = Vec::new();
    for number in 0..UPLOADERS {
        let mut client = client_at(&server, &address(number));
        upload_parts(&mut client);
        clients.push(client);
    }
    assert_served(&server, HONEST);
    assert!(held(listener) <= UPLOAD_MEMORY, "{} bytes", held(listener));
    let taken = server.front_memory().saturating_sub(before);
    println!("{} MiB before, {} MiB more", mib(before), mib(taken));
    // What streams and tasks take beside that, in a build without optimization.
    let allowed = UPLOAD_MEMORY + OWN * UPLOADERS as u64 + REST;
    assert!(taken <= allowed, "{} MiB of {}", mib(taken), mib(allowed));
    assert_eq!(metric(listener, "maitred_rejected_requests_total "), 0);
    drop(clients);
    wait::until("all memory to be given back", || (held(listener) == 0).then_some(()));
    server.stop();
}
