//! A server that gets its certificates by ACME, as seen from outside.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::http::{self, Request};
use crate::pebble::Pebble;
use crate::processes::Process;
use crate::server::{Server, Setup, document_root, public_folder};
use crate::{maitred_program, wait};

/// What the log says when a certificate is there.
pub const ISSUED: &str = "has a new certificate";

/// What the log says when there is none.
pub const NONE: &str = "no certificate for";

/// A site whose certificates an authority issues.
#[derive(Debug)]
pub struct Site {
    /// Its document root.
    pub root: TempDir,
    /// Where its server keeps accounts and certificates.
    pub state: TempDir,
}

impl Default for Site {
    fn default() -> Site {
        let files = [("hello.txt", "Hello, world!"), ("hello.php", "<?php echo 'hello';")];
        Site { root: document_root(&files), state: public_folder() }
    }
}

impl Site {
    /// A server whose certificates Pebble issues, with `more` among the settings of `acme`.
    pub fn setup(&self, pebble: &Pebble, hosts: &[&str], more: &str) -> Setup {
        let lines = [pebble.toml(self.state.path(), more), "redirect = true".into()];
        Setup::new(self.root.path()).at(pebble.http).hosts(hosts).tls(pebble.tls, &lines)
    }

    /// The files that are kept, without the account.
    pub fn kept(&self) -> Vec<PathBuf> {
        let within = |folder: &Path| fs::read_dir(folder).expect("a folder can be read").flatten();
        let files = within(self.state.path()).flat_map(|folder| within(&folder.path()));
        let mut files: Vec<_> = files.map(|file| file.path()).collect();
        files.sort();
        files.retain(|file| file.extension().is_some_and(|kind| kind == "pem"));
        files
    }
}

/// All that a command has printed.
pub fn text(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&all).into_owned()
}

/// A page over plain HTTP.
pub fn plain(pebble: &Pebble, host: &str, path: &str) -> http::Response {
    http::ask(pebble.http, &Request::new("GET", path).header("Host", host))
}

/// Waits until a page of the host comes, with a certificate that Pebble has issued: the front uses
/// it a moment after the log says that it is there.
pub fn serves(pebble: &Pebble, host: &str) {
    let mut said = String::new();
    let served = wait::poll(wait::DEADLINE, || {
        said = text(&pebble.curl(host, "/hello.php"));
        (said == "hello").then_some(())
    });
    assert!(served.is_some(), "{host}: {said}");
}

/// The process that gets a certificate, when it has become who it is to be.
pub fn asking(server: &Server) -> Process {
    wait::until("the process that gets a certificate", || {
        let mut processes = server.processes().into_iter();
        let one = processes.find(|process| process.title.starts_with("maitred: acme"))?;
        let sockets = fs::read_dir(format!("/proc/{}/fd", one.pid)).ok()?.flatten();
        let sockets = sockets.filter_map(|fd| fs::read_link(fd.path()).ok());
        // One of them leads to the supervisor, another one to the authority.
        let sockets = sockets.filter(|to| to.to_string_lossy().starts_with("socket:"));
        (sockets.count() > 1).then_some(one)
    })
}

/// Nothing that gets a certificate runs any more.
pub fn expect_no_process(server: &Server) {
    wait::until_true("the process that gets certificates to be gone", || {
        let mut processes = server.processes().into_iter();
        !processes.any(|process| process.title.starts_with("maitred: acme"))
    });
}

/// What `maitred status --json` says of certificates.
pub fn status(server: &Server) -> Vec<Value> {
    // Between two programs no connection is accepted.
    wait::until("the server to say how it is", || {
        let output = Command::new(maitred_program())
            .args(["status", "--json", "--admin-socket"])
            .arg(server.admin_socket())
            .output()
            .expect("maitred status runs");
        let all: Value = serde_json::from_slice(&output.stdout).ok()?;
        all["certificates"].as_array().cloned()
    })
}
