//! Sites in a folder whose lock their tenant holds in the kernel: a serving thread that looked up a
//! name in there would stop with all its sites.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;

use maitred_tests::Target;
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::locked_folder::{hold, other, request, response, send, tenants_root};
use maitred_tests::server::{Server, Setup, give_to_web_user, write_file};
use maitred_tests::stuck_files::StuckFiles;
use tempfile::TempDir;

/// A server with one thread, so that nothing is served while that waits.
struct Locked {
    // Dropped before the folder is removed, and before the server waits for its processes.
    files: StuckFiles,
    held: Option<[Connection; 2]>,
    server: Server,
    root: TempDir,
}

fn setup_of(root: &Path, lines: &str) -> Setup {
    let setup = Setup::new(root).workers(1).top("front_threads = 1");
    setup.site(&other(root, lines))
}

impl Locked {
    /// A server whose second site has these lines; none without FUSE.
    fn start(lines: &str, prepare: impl FnOnce(&Path)) -> Option<Locked> {
        let Some(files) = StuckFiles::mount() else {
            eprintln!("skipped: only root may mount a file system in user space, with /dev/fuse");
            return None;
        };
        let root = tenants_root();
        prepare(root.path());
        let server = setup_of(root.path(), lines).start();
        Some(Locked { files, held: None, server, root })
    }

    /// The same server with these lines.
    fn setup(&self, lines: &str) -> Setup {
        setup_of(self.root.path(), lines)
    }

    fn hold(&mut self) {
        self.held = Some(hold(&self.server, &self.files, self.root.path()));
    }

    /// The status of a page of the tenant.
    fn status(&self, target: &str) -> u16 {
        http::ask(self.server.address(), &request(target)).status
    }

    /// Insists that requests which wait for the lock delay no other one, and fail in time.
    fn insist_on_service(&self, targets: &[&str], failed: u16) {
        let mut waiting: Vec<_> = targets.iter().map(|target| send(&self.server, target)).collect();
        for _ in 0..20 {
            assert_eq!(http::get(self.server.address(), "/pid.php").status, 200);
        }
        let cold = http::get(self.server.address(), "/new.html");
        assert_eq!(cold.status, 404, "a lookup of another tenant");
        for (sent, target) in waiting.iter_mut().zip(targets) {
            assert_eq!(response(sent).status, failed, "{target}");
        }
    }

    fn release(self) {
        let Locked { files, held, server, root: _root } = self;
        files.release();
        for mut sent in held.into_iter().flatten() {
            assert_eq!(response(&mut sent).text(), "released");
        }
        server.stop();
    }
}

#[test]
fn requests_for_names_behind_the_lock_get_a_503_and_delay_no_other_site() {
    let Some(mut locked) = Locked::start("", |_| {}) else { return };
    assert_eq!(locked.status("/locked/hello.html"), 200);
    locked.hold();
    let targets = ["/locked/new.html", "/locked/a/b.php", "/locked/c.php/info", "/locked/d/"];
    locked.insist_on_service(&targets, 503);
    assert_eq!(locked.status("/locked/hello.html"), 200, "the kernel has its name");
    assert_eq!(locked.status("/pid.php"), 200);
    locked.release();
}

#[test]
fn more_requests_than_a_tenant_has_lookups_delay_no_other_site() {
    let Some(mut locked) = Locked::start("", |_| {}) else { return };
    locked.hold();
    let targets: Vec<_> = (0..40).map(|number| format!("/locked/{number}.html")).collect();
    let targets: Vec<_> = targets.iter().map(String::as_str).collect();
    locked.insist_on_service(&targets, 503);
    assert_eq!(locked.status("/pid.php"), 200);
    locked.release();
}

#[test]
fn a_file_that_its_tenant_renames_before_it_locks_the_folder_delays_no_other_site() {
    let Some(mut locked) = Locked::start("", |_| {}) else { return };
    assert_eq!(locked.status("/locked/hello.html"), 200);
    let folder = locked.root.path().join("locked");
    fs::rename(folder.join("hello.html"), folder.join("hidden.html")).expect("a file is renamed");
    locked.hold();
    locked.insist_on_service(&["/locked/hello.html"], 503);
    locked.release();
}

#[test]
fn directives_of_a_locked_folder_delay_no_other_site() {
    let prepare = |root: &Path| {
        write_file(root, ".htaccess", b"Header set X-Here yes \"expr=-f '/locked/new'\"\n");
    };
    let Some(mut locked) = Locked::start("htaccess = true", prepare) else { return };
    assert_eq!(locked.status("/locked/hello.html"), 200);
    let folder = locked.root.path().join("locked");
    write_file(&folder, "moved/a.html", b"a");
    assert_eq!(locked.status("/locked/moved/a.html"), 200);
    fs::rename(folder.join("moved"), folder.join("away")).expect("a folder is renamed");
    locked.hold();
    let targets = ["/locked/moved/a.html", "/locked/new/a.html", "/locked/new.php"];
    locked.insist_on_service(&targets, 503);
    locked.release();
}

#[test]
fn listings_of_a_locked_folder_delay_no_other_listing() {
    let lines = "autoindex = [\"/*\"]\n[pools.third]\npm = \"static\"\nmax_children = 1\n";
    let (open, root) = (tempfile::tempdir().expect("a folder"), "list/a.html");
    write_file(open.path(), root, b"a");
    give_to_web_user(open.path());
    let third = format!(
        "{lines}user = \"nobody\"\n[[sites]]\nhosts = [\"third\"]\npool = \"third\"\n\
         autoindex = [\"/*\"]\nroot = {:?}",
        open.path()
    );
    let Some(mut locked) = Locked::start(&third, |_| {}) else { return };
    assert_eq!(locked.status("/locked/"), 200);
    locked.hold();
    let mut waiting: Vec<_> = (0..8).map(|_| send(&locked.server, "/locked/")).collect();
    let list = Request::new("GET", "/list/").header("Host", "third");
    let listing = http::ask(locked.server.address(), &list);
    assert_eq!((listing.status, listing.text().contains("a.html")), (200, true));
    for sent in &mut waiting {
        assert_ne!(response(sent).status, 200);
    }
    locked.release();
}

#[test]
fn users_in_a_locked_folder_delay_no_users_of_other_sites() {
    let prepare = |root: &Path| {
        let users = root.join("locked/users");
        write_file(root, "locked/users", b"ann:{SHA}qUqP5cyxm6YcTAhz05Hph5gvu9M=\n");
        let lines = format!(
            "AuthType Basic\nAuthName x\nAuthUserFile {}\nRequire valid-user\n",
            users.display()
        );
        write_file(root, "in/.htaccess", lines.as_bytes());
        write_file(root, "in/a.html", b"a");
    };
    let Some(mut locked) = Locked::start("htaccess = true", prepare) else { return };
    let ask = request("/in/a.html").header("Authorization", "Basic YW5uOnRlc3Q=");
    assert_eq!(http::ask(locked.server.address(), &ask).status, 200);
    let folder = locked.root.path().join("locked");
    fs::rename(folder.join("users"), folder.join("away")).expect("a file is renamed");
    locked.hold();
    let mut sent = Connection::open(locked.server.address());
    sent.send(&ask.to_bytes()).expect("the server takes a request");
    for _ in 0..20 {
        assert_eq!(http::get(locked.server.address(), "/pid.php").status, 200);
    }
    // What was read a second ago is not asked again.
    assert!(matches!(response(&mut sent).status, 200 | 500));
    locked.release();
}

#[test]
fn the_socket_of_a_server_in_a_locked_folder_delays_no_other_site() {
    let socket = |root: &Path| root.join("locked/app.sock");
    let prepare = |root: &Path| drop(UnixListener::bind(socket(root)).expect("a socket"));
    let folder = tempfile::tempdir().expect("a folder");
    write_file(folder.path(), "a.php", b"");
    give_to_web_user(folder.path());
    let Some(mut locked) = Locked::start("", prepare) else { return };
    let more = format!(
        "[[sites]]\nhosts = [\"third\"]\nroot = {:?}\nupstream = \"unix:{}\"\n",
        folder.path(),
        socket(locked.root.path()).display()
    );
    locked.server.configure(&locked.setup(&more));
    locked.server.reload();
    let ask = Request::new("GET", "/a.php").header("Host", "third");
    assert_eq!(http::ask(locked.server.address(), &ask).status, 502, "nothing listens");
    let away = locked.root.path().join("locked/away");
    fs::rename(socket(locked.root.path()), away).expect("a socket is renamed");
    locked.hold();
    let mut sent = Connection::open(locked.server.address());
    sent.send(&ask.to_bytes()).expect("the server takes a request");
    for _ in 0..20 {
        assert_eq!(http::get(locked.server.address(), "/pid.php").status, 200);
    }
    assert!(matches!(response(&mut sent).status, 502..=504));
    locked.release();
}
