//! Files whose lock a tenant holds in the kernel: some file systems take it to read a file, so that
//! a serving thread that read one would stop with all its sites.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;

use maitred_tests::fastcgi::{Wire, params};
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::http2::{self, DATA, END_STREAM, WINDOW_UPDATE, fields, frame};
use maitred_tests::locked_folder::{other, request, response, send};
use maitred_tests::server::{Server, Setup, give_to_web_user, public_folder, write_file};
use maitred_tests::stuck_files::StuckFiles;
use maitred_tests::tls::{self, Authority};
use maitred_tests::xfs::Xfs;
use maitred_tests::{Target, ports};

/// Writes a page of a file to another one, whose lock it holds until it can read the page.
const WRITES: &str = "<?php
$c = FFI::cdef('int open(const char *, int); long write(int, void *, size_t);
    void *mmap(void *, size_t, int, int, int, long);', 'libc.so.6');
$at = $c->mmap(null, 4096, 3, 0x01, $c->open($_GET['file'], 2), 0);
$c->write($c->open($_GET['locked'], 1), $at, 4096);
echo 'released';";

/// Bytes of a file that is not held in memory.
const LARGE: usize = 300_000;

/// The window of a stream and of a connection of HTTP/2 at its start (RFC 9113 §6.9.2).
const WINDOW: u32 = 65_535;

/// Bytes of a file that does not fit into the buffers of a socket.
const LARGER: usize = 32 << 20;

/// Lets the pool of the first site hold locks.
const FFI: &str = "php_admin_value = { \"ffi.enable\" = \"1\", extension = \"ffi\" }";

/// A pool of another user, with these lines.
fn neighbour(lines: &str) -> String {
    format!("[pools.neighbour]\npm = \"static\"\nmax_children = 1\nuser = \"nobody\"\n{lines}")
}

/// A server with one thread, whose second site has files on XFS.
struct LockedFile {
    // Dropped before the file system is unmounted, and before the server waits for its processes.
    files: StuckFiles,
    held: Option<Connection>,
    server: Server,
    authority: Authority,
    tls: SocketAddr,
    xfs: Xfs,
}

impl LockedFile {
    /// None without FUSE or XFS.
    fn start() -> Option<LockedFile> {
        LockedFile::with(|setup, root| setup.site(&other(root, "htaccess = true")))
    }

    /// The same with another configuration for these files.
    fn with(more: impl FnOnce(Setup, &Path) -> Setup) -> Option<LockedFile> {
        let Some((files, xfs)) = StuckFiles::mount().zip(Xfs::mount()) else {
            eprintln!(
                "skipped: only root may mount file systems; XFS needs xfsprogs and /dev/loop"
            );
            return None;
        };
        let root = xfs.path();
        let large = vec![b'x'; LARGE];
        let all: [(&str, &[u8]); 5] = [
            ("writes.php", WRITES.as_bytes()),
            ("pid.php", b"<?php echo getmypid();"),
            ("small.txt", b"small"),
            ("large.bin", &large),
            ("closed/.htaccess", b"Require all granted\n"),
        ];
        for (name, bytes) in all {
            write_file(root, name, bytes);
            give_to_web_user(&root.join(name));
        }
        write_file(root, "closed/a.txt", b"a");
        let (authority, tls) = (Authority::default(), ports::free_address());
        let certificate = authority.issue("site", &["localhost"]);
        let lines = format!("certificates = [{}]", certificate.toml());
        let setup = Setup::new(root).workers(1).top("front_threads = 1").tls(tls, &[lines]);
        let server = more(setup, root).start();
        Some(LockedFile { files, held: None, server, authority, tls, xfs })
    }

    /// Has the other pool hold the lock of a file until the files are released.
    fn hold(&mut self, name: &str) {
        let (locked, file) = (self.xfs.path().join(name), self.files.unreadable());
        let target = format!("/writes.php?file={}&locked={}", file.display(), locked.display());
        self.held = Some(send(&self.server, &target));
        self.files.wait_for_process();
    }

    fn insist_on_service(&self) {
        for _ in 0..20 {
            assert_eq!(http::get(self.server.address(), "/pid.php").status, 200);
        }
        assert_eq!(http::ask(self.server.address(), &request("/pid.php")).status, 200);
    }

    /// Has the lock of a file held of which a client has not all yet, and asks a neighbour.
    fn hold_while_sent(&mut self, ask: impl Fn(&LockedFile)) {
        write_file(self.xfs.path(), "larger.bin", &vec![b'x'; LARGER]);
        give_to_web_user(&self.xfs.path().join("larger.bin"));
        let mut reader = send(&self.server, "/larger.bin");
        assert_eq!(reader.read_head().expect("the response begins").status, 200);
        // The rest waits for room in the socket.
        self.hold("larger.bin");
        let rest = thread::spawn(move || reader.read_bytes(LARGER).map(|bytes| bytes.len()));
        (0..20).for_each(|_| ask(self));
        self.release();
        let rest = rest.join().expect("the client reads");
        assert_eq!(rest.expect("the response is whole"), LARGER);
    }

    fn release(&mut self) {
        self.files.release();
        if let Some(mut held) = self.held.take() {
            assert_eq!(response(&mut held).text(), "released");
        }
    }
}

#[test]
fn a_small_file_whose_lock_is_held_is_a_503_and_delays_no_other_request() {
    let Some(mut locked) = LockedFile::start() else { return };
    locked.hold("small.txt");
    let mut waiting: Vec<_> = (0..8).map(|_| send(&locked.server, "/small.txt")).collect();
    locked.insist_on_service();
    for waits in &mut waiting {
        assert_eq!(response(waits).status, 503);
    }
    locked.release();
    assert_eq!(http::ask(locked.server.address(), &request("/small.txt")).status, 200);
    locked.server.stop();
}

#[test]
fn a_large_file_whose_lock_is_held_is_sent_later_and_delays_no_other_request() {
    let Some(mut locked) = LockedFile::start() else { return };
    let before = http::ask(locked.server.address(), &request("/large.bin"));
    assert_eq!((before.status, before.body.len()), (200, LARGE));
    locked.hold("large.bin");
    let mut waiting: Vec<_> = (0..8).map(|_| send(&locked.server, "/large.bin")).collect();
    locked.insist_on_service();
    locked.release();
    for waits in &mut waiting {
        let sent = response(waits);
        assert_eq!((sent.status, sent.body.len()), (200, LARGE));
    }
    locked.server.stop();
}

#[test]
fn a_large_file_whose_lock_is_held_delays_no_pool_that_has_a_listener_and_no_site() {
    let folder = public_folder();
    let socket = folder.path().join("neighbour.sock");
    let lines = neighbour(&format!("listen = {socket:?}"));
    let locked = LockedFile::with(|setup, _| setup.workers(2).pool(FFI).site(&lines));
    let Some(mut locked) = locked else { return };
    locked.hold_while_sent(|locked| {
        let params = params(locked.xfs.path(), "/pid.php", &[]);
        let asked = Wire::connect(&socket).ask(1, &params, b"");
        assert!(asked.body().parse::<u32>().is_ok(), "{}", asked.stdout);
    });
    locked.server.stop();
}

#[test]
fn a_large_file_whose_lock_is_held_delays_no_pool_that_serves_some_paths_of_the_site() {
    let paths = "paths = [{ path = \"/pid.php\", pool = \"neighbour\" }]\n";
    let lines = format!("{paths}{}", neighbour(""));
    let locked = LockedFile::with(|setup, _| setup.workers(2).pool(FFI).site(&lines));
    let Some(mut locked) = locked else { return };
    locked.hold_while_sent(|locked| {
        assert_eq!(http::get(locked.server.address(), "/pid.php").status, 200);
    });
    locked.server.stop();
}

#[test]
fn a_large_file_whose_lock_is_held_leaves_the_windows_of_its_connection_to_other_streams() {
    let Some(mut locked) = LockedFile::start() else { return };
    let page = "<?php echo str_repeat('x', 60_000);";
    write_file(locked.xfs.path(), "page.php", page.as_bytes());
    let mut client = http2::Connection::open(locked.server.address(), &[]);
    let large =
        [(":method", "GET"), (":scheme", "http"), (":path", "/large.bin"), (":authority", "other")];
    client.ask_with(1, &fields(&large), END_STREAM);
    let left = Cell::new(WINDOW as usize);
    client.wait_for("as much as the window allows", |frame| {
        left.set(left.get() - if frame.kind == DATA { frame.payload.len() } else { 0 });
        left.get() == 0
    });
    locked.hold("large.bin");
    let widen = |client: &mut http2::Connection, stream, by: u32| {
        let update = frame(WINDOW_UPDATE, 0, stream, &by.to_be_bytes());
        client.send(&update).expect("the server takes it");
    };
    widen(&mut client, 1, LARGE as u32);
    widen(&mut client, 0, WINDOW);
    client.ask(3, "/page.php");
    // The first stream has taken all of the window, and waits for its file.
    assert_eq!(client.body(3).len(), 60_000);
    locked.release();
    widen(&mut client, 0, LARGE as u32);
    assert_eq!(client.body(1).len(), LARGE);
    locked.server.stop();
}

#[test]
fn a_large_file_on_such_a_file_system_is_whole_over_each_protocol() {
    let Some(locked) = LockedFile::start() else { return };
    let bytes: Vec<u8> = (0..LARGE as u32).flat_map(|number| number.to_le_bytes()).collect();
    write_file(locked.xfs.path(), "numbers.bin", &bytes);
    let url = "https://localhost/numbers.bin";
    for words in [["--http1.1", "-i"], ["--http2", "-i"], ["--http1.1", "-r0-"]] {
        let output = tls::curl(&locked.authority, locked.tls, words.into_iter().chain([url]));
        assert!(output.stdout.ends_with(&bytes), "{words:?}");
    }
    let plain = http::get(locked.server.address(), "/numbers.bin");
    assert!(plain.body == bytes, "over plain HTTP");
    let range = Request::new("GET", "/numbers.bin").header("Host", "localhost");
    let range = range.header("Range", "bytes=4-7,400000-");
    let parts = http::ask(locked.server.address(), &range);
    assert_eq!(parts.status, 206);
    let has = |part: &[u8]| parts.body.windows(part.len()).any(|window| window == part);
    assert!(has(&bytes[400_000..]));
    locked.server.stop();
}

#[test]
fn directives_in_a_file_whose_lock_is_held_delay_no_other_request() {
    let Some(mut locked) = LockedFile::start() else { return };
    locked.hold("closed/.htaccess");
    let mut waits = send(&locked.server, "/closed/a.txt");
    locked.insist_on_service();
    assert_eq!(response(&mut waits).status, 503);
    locked.release();
    locked.server.stop();
}
