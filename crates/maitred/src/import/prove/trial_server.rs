//! maitred beside the old server: on spare loopback ports, with a temporary folder for its files.

use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, fchown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use maitred_config::Config;
use maitred_control::admin::{Reply, Request};
use tempfile::TempDir;

use super::trial_config::{TrialAddresses, php_log, trial_config};
use crate::client::Client;

/// Timeout of the start.
const PATIENCE: Duration = Duration::from_secs(60);

/// Timeout of the end, before it is killed.
const FAREWELL: Duration = Duration::from_secs(10);

/// Polling interval.
const PAUSE: Duration = Duration::from_millis(20);

/// The name of its admin socket.
const ADMIN_SOCKET: &str = "admin.sock";

/// The phase in which it accepts connections.
const SERVING: &str = "serving";

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

/// A folder for a trial.
///
/// # Errors
/// It cannot be made.
pub fn new_folder() -> Result<TempDir, String> {
    let folder = tempfile::Builder::new().prefix("maitred-prove-").tempdir().map_err(cannot)?;
    // Pools' users write PHP's logs, and read spooled bodies.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).map_err(cannot)?;
    Ok(folder)
}

impl TrialServer {
    /// Starts it, and waits until it accepts connections.
    ///
    /// # Errors
    /// Why it does not serve: one sentence and the end of its log.
    pub fn start(folder: TempDir, toml: &str, config: &Config) -> Result<TrialServer, String> {
        TrialServer::start_at(spare_addresses().map_err(cannot)?, folder, toml, config)
    }

    fn start_at(
        addresses: TrialAddresses,
        folder: TempDir,
        toml: &str,
        config: &Config,
    ) -> Result<TrialServer, String> {
        let made = trial_config(toml, addresses, folder.path())?;
        create(folder.path(), "maitred.toml")
            .and_then(|_| fs::write(folder.path().join("maitred.toml"), made))
            .map_err(cannot)?;
        create_php_logs(folder.path(), config)?;
        create(folder.path(), "log").map_err(cannot)?;
        fs::create_dir(folder.path().join("spool")).map_err(cannot)?;
        let child = spawn(&folder).map_err(cannot)?;
        let mut trial = TrialServer { child, folder, addresses };
        trial.wait_until_it_serves()?;
        Ok(trial)
    }

    /// Its admin socket says so. A connection to its addresses would prove nothing: another program
    /// may have taken a port since it was spare.
    fn wait_until_it_serves(&mut self) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        let socket = self.folder.path().join(ADMIN_SOCKET);
        let is_serving = || {
            let request = Request::Status { pool: None };
            let reply = Client::connect(Some(&socket)).and_then(|mut client| client.ask(&request));
            matches!(reply, Ok(Reply::Status(status)) if status.phase == SERVING)
        };
        while !is_serving() {
            if !matches!(self.child.try_wait(), Ok(None)) || Instant::now() > until {
                let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let end = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n  ");
                return Err(format!(
                    "maitred does not serve at {} with this configuration; its log:\n  {end}",
                    self.addresses
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
    command.arg("--admin-socket").arg(file(ADMIN_SOCKET));
    command.arg("--stop-with-parent").arg(std::process::id().to_string());
    // A signal of the terminal is for this program, which ends the trial after it.
    command.process_group(0);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()
}

fn cannot(why: std::io::Error) -> String {
    format!("maitred cannot be started beside it: {why}")
}

/// Mode of all files: the configuration holds the pools' secrets, and PHP's logs those of scripts.
const MODE: u32 = 0o600;

/// Creates a file for its owner only, whatever the umask is.
fn create(folder: &Path, name: &str) -> std::io::Result<File> {
    let path = folder.join(name);
    let file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(MODE))?;
    Ok(file)
}

/// Creates the files of PHP's logs, each for the user of its pool only.
fn create_php_logs(folder: &Path, config: &Config) -> Result<(), String> {
    for pool in &config.pools {
        let user = maitred_supervisor::user_of_pool(pool, config).map_err(|why| why.to_string())?;
        let log = create(folder, &php_log(&pool.name)).map_err(cannot)?;
        if let Some(user) = user {
            fchown(&log, Some(user.uid), None).map_err(cannot)?;
        }
    }
    Ok(())
}

/// Two loopback addresses without a listener.
fn spare_addresses() -> std::io::Result<TrialAddresses> {
    let [plain, tls] = [0, 1].map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let (plain, tls) = (plain?, tls?);
    Ok(TrialAddresses { plain: plain.local_addr()?, tls: tls.local_addr()? })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// The configuration of two pools with users of their own, where this process may have some.
    fn two_pools() -> (String, Config) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("maitred.toml");
        let user = |name: &str| match maitred_os::users::is_root() {
            true => format!("user = \"{name}\"\n"),
            false => String::new(),
        };
        let pool = |name: &str, of: &str| {
            let root = folder.path();
            let site =
                format!("[[sites]]\nhosts = [\"{name}\"]\npool = \"{name}\"\nroot = {root:?}\n");
            format!("[pools.{name}]\n{}{site}", user(of))
        };
        let text = pool("a", "daemon") + &pool("b", "nobody");
        fs::write(&file, &text).unwrap();
        let config = maitred_config::load(&file).unwrap();
        (text, config)
    }

    #[test]
    fn the_php_log_of_a_pool_is_its_users_alone() {
        let (_, config) = two_pools();
        let folder = tempfile::tempdir().unwrap();
        create_php_logs(folder.path(), &config).unwrap();
        let log = |pool: &str| fs::metadata(folder.path().join(php_log(pool))).unwrap();
        assert_eq!([log("a").mode() & 0o777, log("b").mode() & 0o777], [0o600; 2]);
        if maitred_os::users::is_root() {
            let uid = |name: &str| maitred_os::users::look_up(name, None).unwrap().uid;
            assert_eq!([log("a").uid(), log("b").uid()], [uid("daemon"), uid("nobody")]);
        }
    }

    #[test]
    fn another_program_that_has_taken_a_spare_port_is_not_the_trial_server() {
        let (text, config) = two_pools();
        let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let plain = other.local_addr().unwrap();
        // This test program takes no arguments of a server, and ends at once.
        let started = TrialServer::start_at(
            TrialAddresses { plain, tls: plain },
            new_folder().unwrap(),
            &text,
            &config,
        );
        let why = started.err().unwrap();
        assert!(why.contains(&format!("does not serve at {plain}")), "{why}");
    }
}
