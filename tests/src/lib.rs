//! The testbed: starts maitred and its peers, talks to them byte by byte, and insists that nothing
//! is left when they stop.
//!
//! Everything here panics with a sentence when something is not as it must be, since its callers
//! are tests. Waiting is always for an event with a deadline; see [`wait`].

pub mod acme;
pub mod applications;
pub mod bench;
pub mod booted;
pub mod browser;
pub mod cache_suite;
pub mod cached;
pub mod changes;
pub mod coding;
pub mod collector;
pub mod container;
pub mod control_group;
pub mod corpus;
pub mod crawl;
pub mod dashboard_events;
pub mod disk_group;
pub mod fastcgi;
pub mod fpm;
pub mod guard;
pub mod honest;
pub mod hostile;
pub mod http;
pub mod http2;
pub mod imported;
pub mod injected;
pub mod installed;
pub mod jobs;
pub mod load;
pub mod locked_folder;
pub mod log;
pub mod lowered;
pub mod mariadb;
pub mod mediawiki;
pub mod memory_group;
pub mod node;
pub mod odd;
pub mod outside;
pub mod pebble;
pub mod peer;
pub mod picture;
pub mod ports;
pub mod processes;
pub mod processor_group;
pub mod prometheus;
pub mod proxied;
pub mod redis;
pub mod rules;
pub mod server;
pub mod session;
pub mod spoilt;
pub mod stuck_files;
pub mod terminal;
pub mod tls;
pub mod traced;
pub mod tuned;
pub mod wait;
pub mod web;
pub mod websocket;
pub mod wordpress;
pub mod xfs;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Something that answers HTTP and writes a log: maitred, or a peer.
pub trait Target {
    /// Where it listens for plain HTTP.
    fn address(&self) -> SocketAddr;

    /// All it has logged so far, PHP's messages included.
    fn log_text(&self) -> String;

    /// The address as the start of a URL, without a slash at the end.
    fn base_url(&self) -> String {
        format!("http://{}", self.address())
    }
}

/// The root of the project's checkout.
pub fn project_root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("the tests package lies inside the project").to_path_buf()
}

/// Runs `maitred` with these arguments to its end. Returns whether it went well, and its output.
///
/// # Panics
/// When it cannot be run.
pub fn run_maitred(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(maitred_program()).args(arguments).output();
    let output = output.expect("maitred can be run");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// The maitred program under test: `MAITRED_BIN`, or the release build of this checkout.
pub fn maitred_program() -> PathBuf {
    let program = std::env::var_os("MAITRED_BIN")
        .map_or_else(|| project_root().join("target/release/maitred"), PathBuf::from);
    assert!(
        program.is_file(),
        "{} does not exist: run `make build`, or set MAITRED_BIN to a maitred program",
        program.display()
    );
    program
}

/// The PHP that `maitred-php` beside the program under test runs, as `8.2.35`.
pub fn php_version() -> String {
    let mut program = Command::new(maitred_program().with_file_name("maitred-php"));
    let said = program.arg("--version").output().expect("it can be run");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let version = said.trim().rsplit_once("runs PHP ").map(|(_, php)| php);
    version.expect("it says what it runs").to_owned()
}
