//! Clients that send or read as slowly as they can: those that do so on purpose are cut, slow but
//! honest ones are served, without an effect on others.

use std::io::Read;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use maitred_tests::Target;
use maitred_tests::guard::Guarded;
use maitred_tests::honest::{Honest, PAGES};
use maitred_tests::http::{Connection, Request};
use maitred_tests::http2::{
    self, DATA, END_HEADERS, END_STREAM, HEADERS, INITIAL_WINDOW_SIZE, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, fields, frame,
};
use maitred_tests::processes::Signal;
use maitred_tests::server::{Server, Setup, document_root, write_file};
use maitred_tests::tls::{Authority, Secure};
use maitred_tests::{ports, wait};
use tempfile::TempDir;

/// The longest wait for a slow client; the longest grace is a minute.
const PATIENCE: Duration = Duration::from_secs(150);

/// How long an honest client takes its time: longer than the grace of anybody slow, and what it is
/// given on top.
const LONG: Duration = Duration::from_secs(75);

/// After how long who takes too little has been cut, whether it has noticed or not: what it had
/// been sent before, it can still read.
const CERTAIN: Duration = Duration::from_secs(85);

/// Bytes of a file that no socket's buffers hold.
const LARGE: usize = 12 << 20;

/// Bytes per second of a slow phone, and of an attacker.
const PHONE: usize = 10 * 1024;
const DRIP: usize = 50;

fn site() -> TempDir {
    let root = document_root(&[
        ("hello.txt", PAGES[0].1),
        ("hello.php", "<?php echo 'hello';"),
        ("length.php", "<?php echo strlen(file_get_contents('php://input'));"),
    ]);
    write_file(root.path(), "large.bin", &vec![b'x'; LARGE]);
    root
}

/// Does something once a second until it says that it is over, or `PATIENCE` has passed; returns
/// how long it took.
fn every_second(mut step: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    let mut next = begun;
    wait::until_within("a slow client to be done", PATIENCE, || {
        if Instant::now() < next {
            return None;
        }
        next += Duration::from_secs(1);
        step().then_some(())
    });
    begun.elapsed()
}

/// Reads a response at `rate` bytes a second for as long as `lasts`, then as fast as it can;
/// returns how much came.
fn read_slowly(address: SocketAddr, rate: usize, lasts: Duration) -> usize {
    let mut client = Connection::open(address);
    client.send(&Request::get("/large.bin").to_bytes()).expect("a request is taken");
    let mut stream = client.stream();
    let mut bytes = vec![0; rate];
    let (begun, mut total) = (Instant::now(), 0);
    every_second(|| match stream.read(&mut bytes) {
        Ok(0) | Err(_) => true,
        Ok(count) => {
            total += count;
            begun.elapsed() > lasts
        }
    });
    let mut rest = Vec::new();
    // Who was cut has a reset coming.
    let _ = stream.read_to_end(&mut rest);
    total + rest.len()
}

/// The same over HTTP/2, whose client says how much it takes; returns whether all came.
fn read_slowly_over_http2(address: SocketAddr, rate: usize, lasts: Duration) -> bool {
    let mut client = http2::Connection::open(address, &[(INITIAL_WINDOW_SIZE, 1)]);
    client.ask(1, "/large.bin");
    let (begun, mut is_reset) = (Instant::now(), false);
    let more = |bytes: u32| {
        let bytes = bytes.to_be_bytes();
        [0, 1].map(|stream| frame(WINDOW_UPDATE, 0, stream, &bytes)).concat()
    };
    every_second(|| {
        if client.send(&more(rate as u32)).is_err() {
            is_reset = true;
        }
        let mut wanted = rate;
        while wanted > 0 && !is_reset {
            match client.next_frame() {
                Ok(Some(frame)) if frame.kind == DATA => {
                    wanted = wanted.saturating_sub(frame.payload.len());
                }
                Ok(Some(frame)) if frame.kind != RST_STREAM => {}
                _ => is_reset = true,
            }
        }
        is_reset || begun.elapsed() > lasts
    });
    if is_reset {
        return false;
    }
    client.send(&more(LARGE as u32)).expect("a window is taken");
    client.body(1).len() == LARGE
}

/// How many clients the log says were cut, in all that is over.
fn told_as_cut(server: &Server) -> u32 {
    let lines = server.log().lines();
    let numbers = lines.iter().filter_map(|line| {
        let (_, number) = line.split_once("disconnected because they are too slow was ")?;
        number.trim().parse::<u32>().ok()
    });
    numbers.sum()
}

#[test]
fn who_reads_too_slowly_is_cut_and_a_slow_phone_gets_everything() {
    let (root, authority) = (site(), Authority::default());
    let certificate = authority.issue("localhost", &["localhost"]).toml();
    let secure = ports::free_address();
    let lines = [format!("certificates = [{certificate}]"), "redirect = false".into()];
    let server = Setup::new(root.path()).tls(secure, &lines).start();
    let (address, honest) = (server.address(), Honest::ask(server.address()));
    let phone = thread::spawn(move || read_slowly(address, PHONE, LONG));
    let drip = thread::spawn(move || read_slowly(address, DRIP, CERTAIN));
    let phone2 = thread::spawn(move || read_slowly_over_http2(address, PHONE, LONG));
    let drip2 = thread::spawn(move || read_slowly_over_http2(address, DRIP, CERTAIN));
    let request = Request::get("/large.bin").to_bytes();
    let settings = [0, 4, 0x7f, 0xff, 0xff, 0xff];
    let ask = frame(HEADERS, END_HEADERS | END_STREAM, 1, &http2::get("/large.bin"));
    let more = frame(WINDOW_UPDATE, 0, 0, &0x7000_0000_u32.to_be_bytes());
    let begin = [http2::PREFACE, &frame(SETTINGS, 0, 0, &settings), &more, &ask].concat();
    // These two read nothing.
    let silent =
        [Secure::connect(secure, "http/1.1", &request), Secure::connect(secure, "h2", &begin)];
    assert!(phone.join().expect("the phone reads") > LARGE, "file and head");
    assert!(drip.join().expect("a drip reads") < LARGE, "it is cut");
    assert!(phone2.join().expect("the phone reads"));
    assert!(!drip2.join().expect("a drip reads"), "it is reset");
    honest.assert_well_served();
    server.expect_log(0, "it reads its response too slowly (min_response_rate)");
    wait::until_within("word of all four", PATIENCE, || (told_as_cut(&server) == 4).then_some(()));
    drop(silent);
}

/// Sends a body at `rate` bytes a second after a beginning; returns the status of the response.
fn upload_slowly(address: SocketAddr, beginning: usize, rate: usize, total: usize) -> u16 {
    let mut client = Connection::open(address);
    let head = format!("POST /length.php HTTP/1.1\r\nHost: a\r\nContent-Length: {total}\r\n\r\n");
    let mut sent = beginning;
    client.send(&[head.as_bytes(), &vec![b'x'; beginning]].concat()).expect("a beginning is taken");
    every_second(|| {
        let piece = rate.min(total - sent);
        sent += piece;
        let is_over = client.send(&vec![b'x'; piece]).is_err() || sent == total;
        is_over || has_response(&client)
    });
    client.read_response(false).expect("an answer comes").status
}

/// Whether something can be read, without reading it.
fn has_response(client: &Connection) -> bool {
    let stream = client.stream();
    stream.set_nonblocking(true).expect("a mode can be set");
    let has = stream.peek(&mut [0]).is_ok();
    stream.set_nonblocking(false).expect("a mode can be set");
    has
}

fn upload_slowly_over_http2(address: SocketAddr, rate: usize, total: usize) -> String {
    let mut client = http2::Connection::open(address, &[]);
    let post = fields(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/length.php"),
        (":authority", "localhost"),
    ]);
    client.send(&frame(HEADERS, END_HEADERS, 1, &post)).expect("a head is taken");
    let mut sent = 0;
    let stream = client.stream().try_clone().expect("a socket has a copy");
    every_second(|| {
        let piece = rate.min(total - sent);
        sent += piece;
        let flags = if sent == total { END_STREAM } else { 0 };
        let data = frame(DATA, flags, 1, &vec![b'x'; piece]);
        let is_over = client.send(&data).is_err() || sent == total;
        // What comes first are settings, and a window that grows.
        is_over || frames_waiting(&stream) > 200
    });
    client.text(1)
}

/// Bytes in the receive buffer, if the kernel reports it.
fn frames_waiting(stream: &std::net::TcpStream) -> usize {
    stream.set_nonblocking(true).expect("a mode can be set");
    let count = stream.peek(&mut [0; 4096]).unwrap_or(0);
    stream.set_nonblocking(false).expect("a mode can be set");
    count
}

#[test]
fn who_sends_too_slowly_is_cut_and_a_slow_phone_is_not() {
    let root = site();
    let server = Server::start(root.path());
    let (address, honest) = (server.address(), Honest::ask(server.address()));
    let whole = PHONE * 30;
    let phone = thread::spawn(move || upload_slowly(address, 0, PHONE, whole));
    let drip = thread::spawn(move || upload_slowly(address, 0, DRIP, whole));
    // Who begins fast has earned nothing.
    let turncoat = thread::spawn(move || upload_slowly(address, 1 << 20, DRIP, 2 << 20));
    let phone2 = thread::spawn(move || upload_slowly_over_http2(address, PHONE, whole));
    let drip2 = thread::spawn(move || upload_slowly_over_http2(address, DRIP, whole));
    assert_eq!(phone.join().expect("the phone sends"), 200);
    assert_eq!(drip.join().expect("a drip sends"), 408);
    assert_eq!(turncoat.join().expect("a turncoat sends"), 408);
    assert_eq!(phone2.join().expect("the phone sends"), whole.to_string());
    let refused = drip2.join().expect("a drip sends");
    assert!(refused.starts_with("408 "), "{refused}");
    honest.assert_well_served();
    server.expect_log(0, "it sends its request too slowly (min_request_rate)");
}

#[test]
fn who_is_slow_is_decided_by_the_rates_that_are_set() {
    let root = site();
    let setup = |rate: usize| {
        Setup::new(root.path())
            .top(&format!("min_request_rate = {rate}"))
            .top(&format!("min_response_rate = {rate}"))
    };
    let server = setup(PHONE * 10).start();
    let (address, whole) = (server.address(), PHONE * 75);
    let sends = thread::spawn(move || upload_slowly(address, 0, PHONE, whole));
    let reads = thread::spawn(move || read_slowly_over_http2(address, PHONE, PATIENCE));
    assert_eq!(sends.join().expect("the phone sends"), 408);
    assert!(!reads.join().expect("the phone reads"), "it is reset");
    server.configure(&setup(0));
    assert!(server.reload().contains("reloaded"));
    let drips = upload_slowly(address, 0, DRIP, DRIP * 40);
    assert_eq!(drips, 200, "a byte in 20 seconds would do");
    server.stop();
}

/// Connections of each of slowhttptest's attacks here. The bench row has 2 000.
const ATTACKERS: usize = 300;

/// Duration of slowhttptest's attacks in seconds; more than [`PATIENCE`].
const ATTACK_SECONDS: &str = "170";

/// Begins one of slowhttptest's attacks.
fn attack(url: &str, words: &[&str]) -> Guarded {
    let count = ATTACKERS.to_string();
    let mut command = Command::new("slowhttptest");
    command
        .args(words)
        .args(["-c", &count, "-r", &count, "-l", ATTACK_SECONDS])
        .args(["-p", "10", "-u", url])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Guarded::spawn(&mut command, Signal::TERM)
}

#[test]
fn slowhttptests_four_attacks_are_cut_and_everybody_else_is_answered() {
    let root = site();
    let server = Server::start(root.path());
    let honest = Honest::ask(server.address());
    let url = |path: &str| format!("{}{path}", server.base_url());
    let (script, file) = (url("/length.php"), url("/large.bin"));
    let slowly = ["-w", "512", "-y", "1024", "-n", "5", "-z", "32", "-k", "3"];
    let attacks = [
        attack(&script, &["-H", "-i", "5"]),
        attack(&script, &["-B", "-i", "5", "-s", "8192"]),
        attack(&file, &["-R", "-a", "10", "-b", "3000"]),
        attack(&file, &[&["-X"][..], &slowly].concat()),
    ];
    let ours = || ports::connections(server.address());
    // Those who ask for ranges are soon answered.
    wait::until_true("the attackers to be there", || ours() > ATTACKERS * 5 / 2);
    // Nothing is left of those that were cut in the kernel either: they had megabytes there.
    wait::until_within("the attackers to be cut", PATIENCE, || {
        (ours() < ATTACKERS / 10).then_some(())
    });
    honest.assert_well_served();
    server.expect_log(0, " too slowly (min_");
    drop(attacks);
}

/// How long a connection without a request may stay, at most: twice 75 seconds, and what it takes.
const IDLE: Duration = Duration::from_secs(170);

/// Open files of the server in the test about them, and the connections that fit: 512 are kept
/// back.
const OPEN_FILES: usize = 600;
const FITTING: usize = OPEN_FILES - 512;

#[test]
fn slow_heads_that_take_all_room_are_cut_and_who_waits_is_answered() {
    let root = site();
    let limit = format!("--nofile={OPEN_FILES}:{OPEN_FILES}");
    let server = Setup::new(root.path()).under(&["prlimit", &limit]).start();
    let mut old = Connection::open(server.address());
    old.send(b"GET /hello.php HTTP/1.1\r\n").expect("a beginning is taken");
    let attackers: Vec<_> = (0..FITTING + 100)
        .map(|_| {
            let mut attacker = Connection::open(server.address());
            let sent = attacker.send(b"GET /hello.php HTTP/1.1\r\n");
            sent.expect("the kernel takes a beginning");
            attacker
        })
        .collect();
    server.expect_log(0, &format!("{FITTING} connections are open"));
    // Who was there goes on.
    old.send(b"Host: a\r\n\r\n").expect("the rest is taken");
    let answer = old.read_response(false).expect("an answer");
    assert_eq!(answer.text(), "hello");
    // Who comes waits, behind more attackers than there is room for, until those are cut.
    let mut late = Connection::open(server.address());
    late.stream().set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
    let answer = late.ask(&Request::get("/hello.php")).expect("an answer");
    assert_eq!(answer.text(), "hello");
    let mut cut = 0;
    for mut attacker in attackers {
        let answer = attacker.read_response(false).expect("word that it is too slow");
        assert_eq!(answer.status, 408);
        cut += 1;
    }
    assert_eq!(cut, FITTING + 100);
    let told = server.log_text().matches("connections are open").count();
    assert_eq!(told, 1, "{}", server.log_text());
}

#[test]
fn a_connection_of_http2_without_a_request_is_closed_after_a_while_whatever_it_has_begun() {
    let root = site();
    let server = Server::start(root.path());
    let open = || {
        let client = http2::Connection::open(server.address(), &[]);
        let set = client.stream().set_read_timeout(Some(IDLE));
        set.expect("a time-out can be set");
        client
    };
    let (mut unused, mut used, mut begun) = (open(), open(), open());
    used.ask(1, "/hello.txt");
    assert_eq!(used.text(1), "hello, file");
    // Half a header, of which the rest never comes.
    let half = frame(HEADERS, 1, 1, &http2::get("/hello.txt"));
    begun.send(&half).expect("half a head is taken");
    assert_eq!(used.goaway(), Some(0));
    assert_eq!(unused.goaway(), Some(0));
    // In the middle of a header nothing else can be said.
    let closed = begun.wait_for("the end", |_| false);
    assert_eq!(closed, None);
}
