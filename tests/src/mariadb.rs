//! A private MariaDB that listens on a Unix socket only.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::guard::Guarded;
use crate::log::Log;
use crate::processes::{Process, Signal};
use crate::server::{is_root, public_folder, user_ids};
use crate::wait;

/// The user MariaDB runs as when tests run as root.
const DATABASE_USER: &str = "mysql";

/// A running database server; it ends and its data go when this is dropped.
#[derive(Debug)]
pub struct MariaDb {
    server: Guarded,
    folder: TempDir,
}

impl MariaDb {
    /// Makes an empty data folder and starts a server on it.
    ///
    /// # Panics
    /// When MariaDB is not installed or does not start.
    pub fn start() -> Self {
        let folder = public_folder();
        if is_root() {
            let (uid, gid) = user_ids(DATABASE_USER);
            let given = std::os::unix::fs::chown(folder.path(), Some(uid), Some(gid));
            given.expect("root can give a folder away");
        }
        install(folder.path());
        let server = serve(folder.path());
        Self { server, folder }
    }

    /// Ends the server; its data stay.
    ///
    /// # Panics
    /// When it does not end.
    pub fn stop(&mut self) {
        assert!(self.server.stop().is_some(), "MariaDB does not end");
    }

    /// Starts it again on the same data and socket.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_again(&mut self) {
        self.server = serve(self.folder.path());
    }

    /// Sends it a signal, such as the one that has it stand still.
    ///
    /// # Panics
    /// When it does not run.
    pub fn signal(&self, signal: Signal) {
        let process = Process::read(self.server.pid());
        process.expect("MariaDB runs").signal(signal);
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        socket(self.folder.path())
    }

    /// The result of a query without the names of its columns, as text.
    ///
    /// # Panics
    /// When it fails.
    pub fn query(&self, sql: &str) -> String {
        let mut client = client(self.folder.path(), sql);
        let output = client.arg("--skip-column-names").stdout(Stdio::piped()).output();
        let output = output.expect("the client can be started");
        assert!(output.status.success(), "MariaDB refused: {sql}");
        String::from_utf8(output.stdout).expect("it is text")
    }

    /// Runs SQL as the database's root.
    ///
    /// # Panics
    /// When it fails.
    pub fn run(&self, sql: &str) {
        let mut client = client(self.folder.path(), sql);
        let status = client.stderr(Stdio::inherit()).status();
        assert!(status.is_ok_and(|status| status.success()), "MariaDB refused: {sql}");
    }
}

/// Starts a server on the data in a folder, and waits until it answers.
fn serve(folder: &Path) -> Guarded {
    let mut command = Command::new("mariadbd");
    command
        .arg("--no-defaults")
        .args(["--skip-networking", "--innodb-flush-log-at-trx-commit=0"])
        .arg(format!("--datadir={}", data(folder).display()))
        .arg(format!("--socket={}", socket(folder).display()))
        .arg(format!("--pid-file={}", folder.join("pid").display()))
        .args(is_root().then(|| format!("--user={DATABASE_USER}")))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut server = Guarded::spawn(&mut command, Signal::TERM);
    let log = Log::collect(server.child().stderr.take().expect("stderr is a pipe"));
    wait::until_true("MariaDB to answer", || {
        let ended = server.ended();
        assert!(ended.is_none(), "MariaDB ended:\n{}", log.lines().join("\n"));
        let status = client(folder, "SELECT 1").status();
        status.is_ok_and(|status| status.success())
    });
    server
}

fn client(folder: &Path, sql: &str) -> Command {
    let mut command = Command::new("mariadb");
    command
        .arg("--no-defaults")
        .arg(format!("--socket={}", socket(folder).display()))
        .args(["--user=root", "--execute", sql])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("mysqld.sock")
}

/// Makes the database's own tables. MariaDB's script failed once in many runs on a busy machine.
fn install(folder: &Path) {
    const ATTEMPTS: usize = 3;
    for _ in 0..ATTEMPTS {
        let output = Command::new("mariadb-install-db")
            .arg("--no-defaults")
            .args([
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--skip-name-resolve",
            ])
            .arg(format!("--datadir={}", data(folder).display()))
            .args(is_root().then(|| format!("--user={DATABASE_USER}")))
            .output()
            .expect("mariadb-install-db can be started (apt install mariadb-server)");
        if output.status.success() {
            return;
        }
        for said in [output.stdout, output.stderr] {
            eprintln!("mariadb-install-db: {}", String::from_utf8_lossy(&said));
        }
        for entry in fs::read_dir(data(folder)).into_iter().flatten().flatten() {
            let path = entry.path();
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
    }
    panic!("mariadb-install-db failed {ATTEMPTS} times");
}
