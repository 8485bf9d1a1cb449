//! The memory tier under many more pages than it has room for: the limit holds, also for the
//! front's own memory, and the cached pages are the requested ones.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use maitred_tests::cached::pages;
use maitred_tests::fastcgi::record;
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::http2::{self, INITIAL_WINDOW_SIZE};
use maitred_tests::odd::Odd;
use maitred_tests::outside::page_cache;
use maitred_tests::server::{Server, Setup, document_root};
use maitred_tests::{Target, wait};

/// Types of FastCGI records (§8).
const END_REQUEST: u8 = 3;
const STDOUT: u8 = 6;

/// The server's limit. The bar is 64 MB under a gigabyte: `MAITRED_MEMORY_BAR=1`.
struct Load {
    /// Room in megabytes.
    room: u64,
    pages: usize,
    requests: usize,
}

const SMALL: Load = Load { room: 4, pages: 3300, requests: 5000 };

const FULL: Load = Load { room: 64, pages: 52_429, requests: 120_000 };

/// Bytes of a page's body.
const PAGE_BYTES: usize = 20 * 1024;

/// Bytes of memory that the front may need beside its pages: tables, buffers, what the allocator
/// holds.
const BESIDE_BYTES: u64 = 32 << 20;

/// The frequency of pages: this power of n for the n-th.
const ZIPF: f64 = 0.9;

/// The requested pages, one after the other; the same in each run.
fn asked(load: &Load) -> Vec<usize> {
    let mut sum = 0.0;
    let mut reach = |page: usize| {
        sum += 1.0 / (page as f64).powf(ZIPF);
        sum
    };
    let reached: Vec<f64> = (1..=load.pages).map(&mut reach).collect();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let part = (state >> 11) as f64 / (1u64 << 53) as f64;
        reached.partition_point(|reached| *reached < part * sum)
    };
    (0..load.requests).map(|_| draw().min(load.pages - 1)).collect()
}

/// The hits among these in a cache with `room` entries that drops the least recently used.
fn of_lru(asked: &[usize], room: usize) -> Vec<bool> {
    let (mut used, mut oldest) = (HashMap::new(), BTreeSet::new());
    let ask = |(now, page): (usize, &usize)| {
        let before = used.insert(*page, now);
        if let Some(before) = before {
            oldest.remove(&(before, *page));
        }
        oldest.insert((now, *page));
        if oldest.len() > room
            && let Some((_, gone)) = oldest.pop_first()
        {
            used.remove(&gone);
        }
        before.is_some()
    };
    asked.iter().enumerate().map(ask).collect()
}

/// The part of hits in the second half, when all room is used.
fn rate(hits: &[bool]) -> f64 {
    let later = &hits[hits.len() / 2..];
    later.iter().filter(|hit| **hit).count() as f64 / later.len() as f64
}

/// Bytes of memory that are the front's alone.
fn private_bytes(server: &Server) -> Option<u64> {
    let front = server.front().expect("there is a front");
    let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", front.pid)).ok()?;
    let lines = rollup.lines().filter(|line| line.starts_with("Private"));
    let sizes = lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    Some(sizes.sum::<u64>() * 1024)
}

#[test]
fn memory_has_no_more_than_it_may_and_what_is_asked_for_most() {
    let is_full = std::env::var_os("MAITRED_MEMORY_BAR").is_some();
    let load = if is_full { FULL } else { SMALL };
    let script = format!("<?php echo str_repeat('0123456789abcdef', {PAGE_BYTES} / 16);");
    let root = document_root(&[("index.php", &script)]);
    let server = Setup::new(root.path())
        .top(&format!("cache_memory = \"{}M\"", load.room))
        .site("[sites.cache]\nvalid = \"1d\"")
        .start();
    let asked = asked(&load);
    let mut connection = Connection::open(server.address());
    let mut ask = |page: usize| {
        let request = Request::get(&format!("/{page}"));
        let answer = connection.ask(&request).expect("an answer");
        assert_eq!(answer.body.len(), PAGE_BYTES);
        let said = answer.header("Cache-Status").unwrap_or_default();
        said.contains("; hit;")
    };
    ask(load.pages);
    let before = private_bytes(&server);
    let hits: Vec<bool> = asked.iter().map(|page| ask(*page)).collect();
    let after = private_bytes(&server);
    let memory = page_cache(&server)["memory"].clone();
    let told = |name: &str| memory[name].as_u64().expect("a figure");
    assert!(told("bytes") <= load.room << 20, "{memory}");
    assert!(told("evicted") > 0, "{memory}");
    let room =
        usize::try_from((load.room << 20) / (told("bytes") / told("pages"))).expect("a count");
    let (own, lru) = (rate(&hits), rate(&of_lru(&asked, room)));
    let grown = before.zip(after).map(|(before, after)| after.saturating_sub(before));
    println!(
        "{} requests for {} pages, room for {room}: {own:.3} are hits, {lru:.3} of an LRU's; \
         private bytes \
         of the front {before:?}, then {after:?}",
        load.requests, load.pages
    );
    assert!(own > 0.95 * lru, "{own} of {lru}");
    if let Some(grown) = grown {
        assert!(grown < (load.room << 20) + BESIDE_BYTES, "{grown}");
    }
}

#[test]
fn pages_that_are_not_complete_hold_bounded_memory_and_the_next_ones_are_stored() {
    const PAGES: u64 = 30;
    const BODY_BYTES: usize = 12 << 20;
    const LIMIT_BYTES: u64 = 64 << 20;
    let goes_on = Arc::new(AtomicBool::new(false));
    let may_end = goes_on.clone();
    let upstream = Odd::start(move |mut stream| {
        let mut bytes = [0; 16 * 1024];
        let _ = stream.read(&mut bytes);
        let head = b"Content-Type: text/plain\r\n\r\n";
        let _ = stream.write_all(&record(STDOUT, 1, head));
        let piece = record(STDOUT, 1, &[b'x'; 32 * 1024]);
        for _ in 0..BODY_BYTES / (32 * 1024) {
            let _ = stream.write_all(&piece);
        }
        wait::until_true("the test to go on", || may_end.load(Ordering::SeqCst));
        let _ = stream.write_all(&record(END_REQUEST, 1, &[0; 8]));
    });
    let (root, (_pages, cache_dir)) = (document_root(&[("index.php", "")]), pages());
    let server = Setup::new(root.path())
        .top(&cache_dir)
        .upstream(&upstream.address().to_string())
        .top("cache_memory = \"64M\"")
        .site("[sites.cache]\nvalid = \"1d\"")
        .start();
    let before = private_bytes(&server);
    let mut connections: Vec<Connection> = (0..PAGES)
        .map(|page| {
            let mut connection = Connection::open(server.address());
            let request = Request::get(&format!("/{page}"));
            connection.send(&request.to_bytes()).expect("it is sent");
            // In pieces, so that the test does not hold them.
            connection.read_until(b"\r\n\r\n").expect("a header");
            connection
        })
        .collect();
    for connection in &mut connections {
        for _ in 0..BODY_BYTES / (1 << 20) {
            connection.read_bytes(1 << 20).expect("a part of the body");
        }
    }
    let after = private_bytes(&server);
    let grown = before.zip(after).map(|(before, after)| after.saturating_sub(before));
    println!("private bytes of the front {before:?}, then {after:?}");
    if let Some(grown) = grown {
        assert!(grown < LIMIT_BYTES + BESIDE_BYTES, "{grown}");
    }
    goes_on.store(true, Ordering::SeqCst);
    for connection in &mut connections {
        connection.read_until(b"0\r\n\r\n").expect("the end of the body");
    }
    let ask = || http::get(server.address(), "/next").header("Cache-Status").map(str::to_owned);
    wait::until("a page to be stored", || ask().filter(|said| said.contains("; hit;")));
    server.stop();
}

/// A page of `?mb=` megabytes, which differ with `?n=`.
const LARGE: &str = "<?php echo str_repeat(md5($_GET['n'] ?? ''), $_GET['mb'] << 15);";

/// A server that has pages on disk which are too large for its memory tier.
fn server_of_large_pages(largest: &str) -> (Server, [tempfile::TempDir; 2]) {
    let (root, (folder, cache_dir)) = (document_root(&[("index.php", LARGE)]), pages());
    let server = Setup::new(root.path())
        .top(&cache_dir)
        .top("cache_memory = \"1M\"")
        .site(&format!("[sites.cache]\nvalid = \"1d\"\nmax_object_size = \"{largest}\""))
        .start();
    (server, [root, folder])
}

/// Whether the response is the page from the cache.
fn is_hit(server: &Server, target: &str) -> bool {
    let answer = http::get(server.address(), target);
    assert_eq!(answer.status, 200);
    answer.header("Cache-Status").is_some_and(|said| said.contains("; hit;"))
}

#[test]
fn clients_that_do_not_read_a_page_from_disk_share_one_copy_of_it() {
    const TARGET: &str = "/?mb=8";
    const CLIENTS: usize = 40;
    let (server, _folders) = server_of_large_pages("16M");
    assert!(!is_hit(&server, TARGET));
    assert!(is_hit(&server, TARGET), "it is on disk");
    let before = server.front_peak();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address()).expect("the server accepts");
            rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096).expect("a size");
            stream.write_all(&Request::get(TARGET).to_bytes()).expect("a request is taken");
            stream.set_read_timeout(Some(wait::DEADLINE)).expect("a timeout can be set");
            let mut head = [0; 512];
            let count = stream.read(&mut head).expect("a response begins");
            let head = String::from_utf8_lossy(&head[..count]).into_owned();
            assert!(head.contains("; hit;"), "{head}");
            stream
        })
        .collect();
    let mut streams = http2::Connection::open(server.address(), &[(INITIAL_WINDOW_SIZE, 0)]);
    for stream in (1..20).step_by(2) {
        streams.ask(stream, TARGET);
        let head = |frame: &http2::Frame| frame.kind == http2::HEADERS && frame.stream == stream;
        streams.wait_for("a response to begin", head).expect("a header");
    }
    assert!(is_hit(&server, TARGET), "who reads gets the page, too");
    let grown = server.front_peak().saturating_sub(before);
    println!("the front had {before} bytes, and {grown} more");
    assert!(grown < BESIDE_BYTES, "{grown}");
    drop((clients, streams));
    server.stop();
}

#[test]
fn pages_from_disk_that_clients_do_not_read_are_bounded_together_and_served_all_the_same() {
    const PAGES: u32 = 60;
    let (server, _folders) = server_of_large_pages("2M");
    let target = |page: u32| format!("/?mb=1&n={page}");
    for page in 0..PAGES {
        assert!(!is_hit(&server, &target(page)));
    }
    assert!(is_hit(&server, &target(0)));
    let before = server.front_peak();
    let connections: Vec<_> = (0..PAGES)
        .map(|page| {
            let settings = [(INITIAL_WINDOW_SIZE, 0)];
            let mut connection = http2::Connection::open(server.address(), &settings);
            connection.ask(1, &target(page));
            let head = |frame: &http2::Frame| frame.kind == http2::HEADERS;
            connection.wait_for("a response to begin", head).expect("a header");
            connection
        })
        .collect();
    let grown = server.front_peak().saturating_sub(before);
    println!("the front had {before} bytes, and {grown} more");
    assert!(grown < BESIDE_BYTES, "{grown}");
    let last = target(PAGES - 1);
    assert!(!is_hit(&server, &last), "there is no memory for it: its script runs");
    drop(connections);
    wait::until_true("the page to be read from disk", || is_hit(&server, &last));
    server.stop();
}
