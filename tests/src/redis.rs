//! A private Redis. By default it listens on a Unix socket only and keeps nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::guard::Guarded;
use crate::processes::{Process, Signal};
use crate::server::public_folder;
use crate::wait;

/// A running Redis; it ends when this is dropped.
#[derive(Debug)]
pub struct Redis {
    server: Guarded,
    folder: TempDir,
    flags: Vec<String>,
}

impl Redis {
    /// Starts one, and waits until it listens.
    ///
    /// # Panics
    /// When Redis is not installed or does not start.
    pub fn start() -> Self {
        Redis::with(&[])
    }

    /// The same with further flags.
    ///
    /// # Panics
    /// As [`Redis::start`].
    pub fn with(flags: &[&str]) -> Self {
        let folder = public_folder();
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let server = spawn(folder.path(), &flags);
        Self { server, folder, flags }
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// What `redis-cli` says to a command.
    ///
    /// # Panics
    /// When it cannot be run.
    pub fn cli(&self, words: &[&str]) -> String {
        let mut command = Command::new("redis-cli");
        let output = command.arg("-s").arg(self.socket()).args(words).output();
        let output = output.expect("redis-cli is installed");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it does not run.
    pub fn signal(&self, signal: Signal) {
        Process::read(self.server.pid()).expect("Redis runs").signal(signal);
    }

    /// Kills it, and starts it again with the data of the last `SAVE`.
    pub fn crash(&mut self) {
        self.signal(Signal::KILL);
        self.server.wait(wait::DEADLINE).expect("it ends");
        self.server = spawn(self.folder.path(), &self.flags);
    }
}

fn spawn(folder: &Path, flags: &[String]) -> Guarded {
    let mut command = Command::new("redis-server");
    let socket = folder.join("redis.sock");
    command
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocketperm", "777"])
        .arg("--dir")
        .arg(folder)
        .arg("--unixsocket")
        .arg(&socket)
        .args(flags)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut server = Guarded::spawn(&mut command, Signal::TERM);
    wait::until_true("Redis to listen", || {
        let ended = server.ended();
        assert!(ended.is_none(), "Redis ended: {ended:?}");
        std::os::unix::net::UnixStream::connect(&socket).is_ok()
    });
    server
}
