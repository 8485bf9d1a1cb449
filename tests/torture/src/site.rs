//! The server under torture: its sites, pools and files, and the responses that are right.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use maitred_tests::ports;
use maitred_tests::server::{Setup, document_root, give_to_web_user, public_folder, write_file};
use maitred_tests::tls::Authority;
use tempfile::TempDir;

use crate::jobs::Jobs;
use crate::names::NAME;

/// Workers of the pool `www`.
pub const WORKERS: u32 = 4;
/// Sizes in bytes of the static files, one below and one above what is cached of a file.
pub const FILE_SIZES: [usize; 3] = [300, 40_000, 1_500_000];
/// Pages of the cached site.
pub const CACHED_PAGES: usize = 4;

/// The pools.
pub const POOLS: [&str; 3] = ["www", "worker", "snapshot"];

/// Hosts of the sites.
pub const CLASSIC: &str = "classic.test";
/// With a page cache.
pub const CACHED: &str = "cached.test";
/// With `.htaccess`.
pub const HTACCESS: &str = "htaccess.test";
/// In worker mode.
pub const WORKER: &str = "worker.test";
/// In snapshot mode.
pub const SNAPSHOT: &str = "snapshot.test";

/// The part of requests whose spans are exported.
const TRACED: f64 = 0.05;

const PAGE: &str = "<?php echo str_repeat($_GET['id'] . ' ', (int) ($_GET['times'] ?? 1));";
const UPLOAD: &str = "<?php
    $body = file_get_contents('php://input');
    echo $_GET['id'], ' ', strlen($body), ' ', hash('crc32b', $body);";
const VERSION: &str = "<?php
    $page = (int) $_GET['page'];
    echo 'page ', $page, ' version ', file_get_contents(__DIR__ . \"/versions/$page\");";
const CRASH: &str = "<?php posix_kill(getmypid(), SIGSEGV);";
const HUNGRY: &str = "<?php
    ini_set('memory_limit', -1);
    echo strlen(str_repeat('x', 128 << 20));";
const WORKER_SCRIPT: &str = "<?php
    $handle = static function (): void { echo $_GET['id']; };
    while (frankenphp_handle_request($handle)) { }";
const SNAPSHOT_SCRIPT: &str = "<?php
    $requests = 0;
    if (function_exists('maitred_snapshot')) maitred_snapshot();
    $requests++;
    echo $_GET['id'], ' ', $requests;";

/// The files and addresses of a run.
#[derive(Debug)]
pub struct Site {
    /// The document root of the sites.
    pub root: TempDir,
    /// Where the dashboard is.
    pub admin: SocketAddr,
    /// Where TLS is spoken.
    pub tls: SocketAddr,
    /// Signs the certificate of that.
    pub authority: Authority,
    /// `spool_dir`, where it is a file system of its own.
    pub spool: Option<SmallDisk>,
    /// Its command and its schedule.
    pub jobs: Jobs,
}

/// The content of a static file of this size.
pub fn content(size: usize) -> Vec<u8> {
    // The period is a prime, so that a shifted part is noticed.
    (0..size).map(|at| b' ' + (at % 89) as u8).collect()
}

impl Site {
    /// Writes all files.
    pub fn write() -> Site {
        let root = document_root(&[
            ("page.php", PAGE),
            ("upload.php", UPLOAD),
            ("crash.php", CRASH),
            ("hungry.php", HUNGRY),
            ("cached/version.php", VERSION),
            ("worker/index.php", WORKER_SCRIPT),
            ("snapshot/index.php", SNAPSHOT_SCRIPT),
            ("htaccess/changing/page.html", "open"),
        ]);
        for size in FILE_SIZES {
            write_file(root.path(), &format!("{size}.bin"), &content(size));
        }
        for page in 0..CACHED_PAGES {
            write_file(root.path(), &format!("cached/versions/{page}"), b"0");
        }
        let spool = SmallDisk::mount();
        if spool.is_none() {
            println!("torture: skipped: full-disk, since no file system can be mounted here");
        }
        let authority = Authority::new("Torture");
        let (tls, admin) = (ports::free_address(), ports::free_address());
        Site { root, tls, admin, authority, spool, jobs: Jobs::new() }
    }

    /// The configuration. `upstream` is the address of the `proxy`, `collector` that of the traces.
    pub fn setup(&self, upstream: &str, collector: &str) -> Setup {
        let root = self.root.path();
        let folder = |name: &str| root.join(name);
        let certificate = self.authority.issue("classic", &[CLASSIC]);
        let listen = [format!("certificates = [{}]", certificate.toml())];
        let setup = Setup::new(root)
            .hosts(&[CLASSIC])
            .workers(WORKERS)
            .top(&format!("admin = \"{}\"", self.admin))
            .pool(&self.jobs.sections())
            .tls(self.tls, &listen)
            .site(&format!("[[sites.proxy]]\npath = \"/upstream/*\"\nto = {upstream:?}"))
            .site(&named(upstream))
            .site(&site(CACHED, &folder("cached"), "www"))
            .site("[sites.cache]\nvalid = \"1h\"\npurge_from = \"127.0.0.1\"")
            .site(&site(HTACCESS, &folder("htaccess"), "www"))
            .site("htaccess = true")
            .site(&site(WORKER, &folder("worker"), "worker"))
            .site(&site(SNAPSHOT, &folder("snapshot"), "snapshot"))
            .site(&pool("worker", &folder("worker/index.php")))
            .site(&pool("snapshot", &folder("snapshot/index.php")))
            .site(&format!("[traces]\nendpoint = {collector:?}\nratio = {TRACED}"));
        match &self.spool {
            Some(disk) => setup.spool(&disk.path()),
            None => setup,
        }
    }

    /// The version of a cached page from now on.
    pub fn set_version(&self, page: usize, version: u64) {
        replace(&self.root.path().join("cached/versions"), &page.to_string(), &version.to_string());
    }

    /// The `.htaccess` of the changing folder from now on.
    pub fn set_htaccess(&self, text: &str) {
        replace(&self.root.path().join("htaccess/changing"), ".htaccess", text);
    }
}

fn site(host: &str, root: &Path, pool: &str) -> String {
    format!("[[sites]]\nhosts = [{host:?}]\nroot = {root:?}\npool = {pool:?}")
}

/// The same upstream, given by a name, which is looked up again for each connection. Its timeout is
/// longer than a fault lasts: a server that is stopped for a while fails no request by that.
fn named(upstream: &str) -> String {
    let port = upstream.rsplit(':').next().unwrap_or_default();
    let to = format!("http://{NAME}:{port}");
    let path = "path = \"/named/*\"\nconnect_timeout = \"8s\"";
    format!("[[sites.proxy]]\n{path}\nto = {to:?}")
}

/// A pool that is named by its mode.
fn pool(mode: &str, script: &Path) -> String {
    format!(
        "[pools.{mode}]\npm = \"static\"\nmax_children = 2\nmode = {mode:?}\nscript = {script:?}"
    )
}

/// Replaces a file at once: no reader sees a part of it.
fn replace(folder: &Path, name: &str, text: &str) {
    write_file(folder, "new", text.as_bytes());
    fs::rename(folder.join("new"), folder.join(name)).expect("a file can be renamed");
}

/// A small file system in memory, mounted until this is dropped.
#[derive(Debug)]
pub struct SmallDisk {
    folder: TempDir,
}

/// Megabytes of it.
const DISK_MB: u32 = 64;

impl SmallDisk {
    /// None where nothing can be mounted.
    fn mount() -> Option<SmallDisk> {
        let folder = public_folder();
        let options = format!("size={DISK_MB}m");
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(folder.path())
            .output();
        mounted.is_ok_and(|done| done.status.success()).then_some(())?;
        let disk = SmallDisk { folder };
        fs::create_dir(disk.path()).expect("a folder can be made");
        give_to_web_user(&disk.path());
        Some(disk)
    }

    /// The spool folder on it.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("spool")
    }

    /// Fills it until the ballast is dropped.
    pub fn fill(&self) -> Ballast {
        let file = self.folder.path().join("ballast");
        // It ends with ENOSPC.
        let _ = fs::write(&file, vec![0; (DISK_MB as usize) << 20]);
        Ballast(file)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.folder.path()).output();
    }
}

/// A file that fills a [`SmallDisk`].
#[derive(Debug)]
pub struct Ballast(PathBuf);

impl Drop for Ballast {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
