//! A server that a command starts for itself, with the files of a folder: `maitred leaks` and
//! `maitred import --prove`.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use maitred_config::is_env_setting;
use maitred_os::signals::{Awaited, Signal};

use crate::exit_code::EXIT_STOPPED;

/// The name of its configuration, which exists before it starts.
pub const CONFIG: &str = "maitred.toml";

/// The name of its admin socket.
pub const ADMIN_SOCKET: &str = "admin.sock";

/// The name of its log.
pub const LOG: &str = "log";

/// Mode of the log, to which scripts write, too.
const LOG_MODE: u32 = 0o600;

/// How long requests may take to end before a second signal ends their scripts.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// How long the server may take to end after that before it is killed.
const FAREWELL: Duration = Duration::from_secs(5);

/// Polling interval.
const PAUSE: Duration = Duration::from_millis(10);

/// The server; dropping it stops it. It also stops when this process ends.
pub struct PrivateServer(Child);

impl PrivateServer {
    /// Starts the program with the configuration in `folder`, and creates its log there.
    ///
    /// # Errors
    /// The log cannot be created, or the process not be started.
    pub fn start(folder: &Path) -> io::Result<PrivateServer> {
        let log = folder.join(LOG);
        let log = OpenOptions::new().append(true).create_new(true).mode(LOG_MODE).open(log)?;
        let mut command = maitred_os::spawn::command(std::env::current_exe()?);
        // They replace settings of the file, and are for the real server.
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(is_env_setting) {
                command.env_remove(&name);
            }
        }
        command.args(["serve", "--config"]).arg(folder.join(CONFIG));
        command.arg("--admin-socket").arg(folder.join(ADMIN_SOCKET));
        command.arg("--stop-with-parent").arg(std::process::id().to_string());
        // A signal of the terminal is for this program, which ends the server after it.
        command.process_group(0);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(PrivateServer(command.spawn()?))
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Sends SIGTERM, and waits for the end.
    fn stop_within(&mut self, limit: Duration) {
        let pid = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid.filter(|_| !self.has_ended()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let until = Instant::now() + limit;
        while !self.has_ended() && Instant::now() < until {
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        self.stop_within(STOP_PATIENCE);
        self.stop_within(FAREWELL);
        if !self.has_ended() {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// Installs the signal handling: the first signal asks the command to end, and a second one ends
/// it at once; the server ends, too. `folder` is that of the server. Call it while the process has
/// one thread.
///
/// # Errors
/// There is no thread for it.
pub fn stop_on_signals(folder: &Path) -> io::Result<Arc<AtomicBool>> {
    let signals =
        Awaited::take_over(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT])?;
    let stopped = Arc::new(AtomicBool::new(false));
    let (requested, folder) = (Arc::clone(&stopped), folder.to_owned());
    std::thread::Builder::new().spawn(move || {
        while signals.wait().is_ok() {
            if requested.swap(true, Ordering::SeqCst) {
                // It has the pools' secrets.
                let _ = std::fs::remove_dir_all(&folder);
                std::process::exit(i32::from(EXIT_STOPPED));
            }
        }
    })?;
    Ok(stopped)
}
