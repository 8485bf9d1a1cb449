//! http-cache-tests (`tests/http-cache-tests`): its origin in PHP, its tests run by Node, and
//! Varnish as one of those they are run against.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use serde::Deserialize;
use tempfile::TempDir;

use crate::guard::Guarded;
use crate::processes::Signal;
use crate::server::{document_root, give_to_web_user, public_folder};
use crate::{Target, ports, project_root, wait};

/// What came of a test.
#[derive(Debug, Deserialize)]
pub struct Outcome {
    /// The test's id.
    pub id: String,
    /// What it wants, in the suite's words.
    pub name: String,
    /// Whether the suite requires it of caches that are no browser's.
    pub is_required: bool,
    /// `passed`, `failed`, `setup` (something else than what is tested went wrong), or `needs`
    /// (another test, on which it depends, has not passed).
    pub word: String,
    /// What went wrong, or which test it needs.
    pub why: String,
}

impl Outcome {
    /// Whether it has passed, and all on which it depends.
    pub fn has_passed(&self) -> bool {
        self.word == "passed"
    }
}

fn file(name: &str) -> std::path::PathBuf {
    project_root().join("tests/http-cache-tests").join(name)
}

/// A document root with the suite's origin as its front controller.
///
/// # Panics
/// When it cannot be written.
pub fn origin() -> TempDir {
    let script = fs::read_to_string(file("origin.php")).expect("the origin can be read");
    let root = document_root(&[("index.php", &script), ("stash/.keep", "")]);
    give_to_web_user(&root.path().join("stash"));
    root
}

/// Runs the tests that are required, and those they depend on, against a cache before the origin.
/// It takes ten seconds, in which nearly all wait for pages to become stale.
///
/// # Panics
/// When they cannot be run.
pub fn run(cache: &impl Target) -> Vec<Outcome> {
    run_some(cache, &[])
}

/// Runs these tests, and those they depend on; all that are required if none is named.
///
/// # Panics
/// When they cannot be run.
pub fn run_some(cache: &impl Target, ids: &[String]) -> Vec<Outcome> {
    let mut command = Command::new("node");
    command.arg(file("run.mjs")).arg(cache.base_url()).args(ids);
    let output = command.output().expect("node is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{}", cache.log_text());
    let outcomes: Vec<Outcome> = serde_json::from_slice(&output.stdout).expect("run.mjs says JSON");
    outcomes.into_iter().filter(|o| o.is_required).collect()
}

/// Varnish before another server; it ends when this is dropped.
#[derive(Debug)]
pub struct Varnish {
    _server: Guarded,
    address: SocketAddr,
    folder: TempDir,
}

impl Varnish {
    /// Varnish with its built-in rules, and the parameters with which the suite's authors run it:
    /// nothing is fresh that does not say so, and nothing stale is sent.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(origin: &impl Target) -> Varnish {
        let folder = public_folder();
        let (address, behind) = (ports::free_address(), origin.address());
        let rules = folder.path().join("rules.vcl");
        let text = format!(
            "vcl 4.1;\nbackend default {{ .host = \"{}\"; .port = \"{}\"; }}\n",
            behind.ip(),
            behind.port()
        );
        fs::write(&rules, text).expect("a file can be written");
        let log = fs::File::create(folder.path().join("varnish.log")).expect("a log can be made");
        let mut command = Command::new("varnishd");
        command.arg("-F").arg("-n").arg(folder.path().join("work"));
        command.arg("-a").arg(address.to_string()).arg("-f").arg(rules);
        for parameter in ["default_ttl=0", "default_grace=0", "default_keep=3600"] {
            command.args(["-p", parameter]);
        }
        command.args(["-s", "malloc,64M", "-T", "none"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut server = Guarded::spawn(&mut command, Signal::TERM);
        let read = || fs::read_to_string(folder.path().join("varnish.log")).unwrap_or_default();
        wait::until_true("Varnish to listen", || {
            assert!(server.ended().is_none(), "Varnish ended:\n{}", read());
            TcpStream::connect(address).is_ok()
        });
        Varnish { _server: server, address, folder }
    }
}

impl Target for Varnish {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn log_text(&self) -> String {
        fs::read_to_string(self.folder.path().join("varnish.log")).unwrap_or_default()
    }
}
