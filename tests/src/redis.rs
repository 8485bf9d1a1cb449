//! A private Redis that listens on a Unix socket only and keeps nothing.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::guard::Guarded;
use crate::processes::Signal;
use crate::server::public_folder;
use crate::wait;

/// A running Redis; it ends when this is dropped.
#[derive(Debug)]
pub struct Redis {
    _server: Guarded,
    folder: TempDir,
}

impl Redis {
    /// Starts one, and waits until it listens.
    ///
    /// # Panics
    /// When Redis is not installed or does not start.
    pub fn start() -> Self {
        let folder = public_folder();
        let mut command = Command::new("redis-server");
        command
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocketperm", "777"])
            .arg("--dir")
            .arg(folder.path())
            .arg("--unixsocket")
            .arg(folder.path().join("redis.sock"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut server = Guarded::spawn(&mut command, Signal::TERM);
        let socket = folder.path().join("redis.sock");
        wait::until_true("Redis to listen", || {
            let ended = server.ended();
            assert!(ended.is_none(), "Redis ended: {ended:?}");
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
        Self { _server: server, folder }
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }
}
