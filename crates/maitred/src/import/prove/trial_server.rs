//! maitred beside the old server: on spare loopback ports, with a temporary folder for its files.

use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use maitred_config::Config;
use tempfile::TempDir;

use super::trial_config::{TrialAddresses, trial_config};

/// Timeout of the start.
const PATIENCE: Duration = Duration::from_secs(60);

/// Timeout of the end, before it is killed.
const FAREWELL: Duration = Duration::from_secs(10);

/// Polling interval.
const PAUSE: Duration = Duration::from_millis(20);

/// Lines of its log in an error.
const LOG_LINES: usize = 20;

/// Settings in the environment, which are those of the real server.
const SETTINGS: [&str; 4] =
    ["MAITRED_LISTEN", "MAITRED_POOL_", "MAITRED_SITE_", "MAITRED_ADMIN_SOCKET"];

/// The server; dropping it stops it and removes its folder.
pub struct TrialServer {
    child: Child,
    folder: TempDir,
    /// Its addresses.
    pub addresses: TrialAddresses,
}

impl TrialServer {
    /// Starts it, and waits until it accepts connections.
    ///
    /// # Errors
    /// Why it does not serve: one sentence and the end of its log.
    pub fn start(toml: &str, config: &Config) -> Result<TrialServer, String> {
        let cannot = |why: std::io::Error| format!("maitred cannot be started beside it: {why}");
        let folder = tempfile::Builder::new().prefix("maitred-prove-").tempdir().map_err(cannot)?;
        // Pools' users write PHP's log, and read spooled bodies.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).map_err(cannot)?;
        let addresses = spare_addresses().map_err(cannot)?;
        let made = trial_config(toml, addresses, folder.path())?;
        let file = |name: &str| folder.path().join(name);
        create(&folder, "maitred.toml", OURS)
            .and_then(|()| fs::write(file("maitred.toml"), made))
            .map_err(cannot)?;
        create(&folder, "php.log", EVERYBODYS).map_err(cannot)?;
        create(&folder, "log", OURS).map_err(cannot)?;
        fs::create_dir(file("spool")).map_err(cannot)?;
        let child = spawn(&folder).map_err(cannot)?;
        let mut trial = TrialServer { child, folder, addresses };
        trial.wait_for(addresses.plain)?;
        if config.tls.is_some() {
            trial.wait_for(addresses.tls)?;
        }
        Ok(trial)
    }

    fn wait_for(&mut self, address: SocketAddr) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            if !matches!(self.child.try_wait(), Ok(None)) || Instant::now() > until {
                let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let end = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n  ");
                return Err(format!(
                    "maitred does not serve at {address} with this configuration; its log:\n  {end}"
                ));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

impl Drop for TrialServer {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok();
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let until = Instant::now() + FAREWELL;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Starts the program with the files in its folder.
fn spawn(folder: &TempDir) -> std::io::Result<Child> {
    let file = |name: &str| folder.path().join(name);
    let log = OpenOptions::new().append(true).open(file("log"))?;
    let mut command = maitred_os::spawn::command(std::env::current_exe()?);
    for (name, _) in std::env::vars_os() {
        let is_setting = |name: &str| SETTINGS.iter().any(|start| name.starts_with(start));
        if name.to_str().is_some_and(is_setting) {
            command.env_remove(&name);
        }
    }
    command.args(["serve", "--config"]).arg(file("maitred.toml"));
    command.arg("--admin-socket").arg(file("admin.sock"));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()
}

/// Mode of files for the owner only: the configuration holds the pools' secrets.
const OURS: u32 = 0o600;

/// Mode of a file that pools' users write.
const EVERYBODYS: u32 = 0o666;

/// Creates a file with this mode, whatever the umask is.
fn create(folder: &TempDir, name: &str, mode: u32) -> std::io::Result<()> {
    let path = folder.path().join(name);
    let file: File = OpenOptions::new().write(true).create_new(true).mode(OURS).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(mode))
}

/// Two loopback addresses without a listener.
fn spare_addresses() -> std::io::Result<TrialAddresses> {
    let [plain, tls] = [0, 1].map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let (plain, tls) = (plain?, tls?);
    Ok(TrialAddresses { plain: plain.local_addr()?, tls: tls.local_addr()? })
}
