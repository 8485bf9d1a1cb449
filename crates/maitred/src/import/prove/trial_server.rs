//! maitred beside the old server: on spare loopback ports, with a temporary folder for its files.

use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;
use std::time::{Duration, Instant};

use maitred_config::Config;
use maitred_control::admin::{Reply, Request};
use tempfile::TempDir;

use super::trial_config::{TrialAddresses, php_log, trial_config};
use crate::client::Client;
use crate::private_server::{ADMIN_SOCKET, CONFIG, LOG, PrivateServer};

/// Timeout of the start.
const PATIENCE: Duration = Duration::from_secs(60);

/// Polling interval.
const PAUSE: Duration = Duration::from_millis(20);

/// The phase in which it accepts connections.
const SERVING: &str = "serving";

/// Lines of its log in an error.
const LOG_LINES: usize = 20;

/// The server; dropping it stops it and removes its folder.
pub struct TrialServer {
    server: PrivateServer,
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
        create(folder.path(), CONFIG)
            .and_then(|_| fs::write(folder.path().join(CONFIG), made))
            .map_err(cannot)?;
        create_php_logs(folder.path(), config)?;
        fs::create_dir(folder.path().join("spool")).map_err(cannot)?;
        let server = PrivateServer::start(folder.path()).map_err(cannot)?;
        let mut trial = TrialServer { server, folder, addresses };
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
            if self.server.has_ended() || Instant::now() > until {
                let log = fs::read_to_string(self.folder.path().join(LOG)).unwrap_or_default();
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

fn cannot(why: std::io::Error) -> String {
    format!("maitred cannot be started beside it: {why}")
}

/// Mode of files: the configuration holds the pools' secrets, and PHP's logs those of scripts.
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
