//! php-fpm's configuration: finding the file, and adapting it for maitred.

use std::cell::RefCell;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use maitred_config::fpm::{Level, Options};
use maitred_config::{Config, LogTarget, Pool};
use maitred_os::users;
use tracing::{debug, error, info, warn};

use super::flags::Flags;
use super::php;
use super::system_error::system_error;
use crate::log;

/// Fallback paths of `php-fpm.conf`, if PHP's own folder has none.
const FILES: [&str; 2] = ["/etc/php-fpm.conf", "/usr/local/etc/php-fpm.conf"];

/// The php.ini entry that names the configuration file.
const CONFIG_ENTRY: &str = "fpm.config";

/// Candidates for the front's user: the first that exists and that no pool has. The front opens
/// only temporary files, so any user will do: its sockets and logs are passed to it.
const FRONT_USERS: [&str; 5] = ["maitred", "nobody", "daemon", "www-data", "http"];

/// The settings with which php-fpm's configuration is read, now and at every reload.
#[derive(Debug)]
pub struct Settings {
    flags: Flags,
    /// The PHP version in the program's name.
    version: Option<String>,
    file: PathBuf,
    /// Standard error was a terminal at the start.
    is_terminal: bool,
    /// The configuration read for the start, until it is used.
    read: RefCell<Option<Config>>,
}

/// Lines for the log.
pub type Messages = Vec<(Level, String)>;

impl Settings {
    /// Those of this command line.
    pub fn new(flags: Flags, version: Option<String>) -> Settings {
        let file = file(&flags, version.as_deref());
        Settings {
            file: std::path::absolute(&file).unwrap_or(file),
            flags,
            version,
            is_terminal: std::io::stderr().is_terminal(),
            read: RefCell::new(None),
        }
    }

    /// Reads the configuration, opens the log, and says what there is to say of it.
    ///
    /// # Errors
    /// What php-fpm would log.
    pub fn load(&self) -> Result<Config, Messages> {
        let (config, messages, dump) = self.read_files()?;
        if let Some(fpm) = &config.fpm {
            log::fpm::follow(&config, fpm);
        }
        if let Err(why) = self.open_log(&config) {
            let post = "failed to post process the configuration".to_owned();
            return Err(vec![(Level::Error, why), (Level::Error, post)]);
        }
        say(&messages);
        if self.flags.tests > 1 {
            for line in dump {
                info!(target: "fpm", "{line}");
            }
        }
        let config = self.adapt(config);
        self.read.replace(Some(config.clone()));
        Ok(config)
    }

    /// Returns the configuration read for the start, once. Then reads it again for the running
    /// server, and logs its messages.
    ///
    /// # Errors
    /// The lines that php-fpm would log.
    pub fn load_again(&self) -> Result<Config, String> {
        if let Some(config) = self.read.take() {
            return Ok(config);
        }
        let read = self.read_files().map_err(|messages| {
            let lines = messages.into_iter().map(|(_, line)| line);
            lines.collect::<Vec<String>>().join("\n")
        });
        let (config, messages, _) = read?;
        say(&messages);
        Ok(self.adapt(config))
    }

    fn read_files(&self) -> Result<(Config, Messages, Vec<String>), Messages> {
        let flags = &self.flags;
        let options = Options {
            file: self.file.clone(),
            prefix: flags.prefix.clone(),
            pid: flags.pid.clone(),
            allow_root: flags.allow_root,
            force_stderr: flags.force_stderr,
            daemonize: flags.daemonize,
            is_root: users::is_root(),
            php_ini: flags.php.ini.clone(),
            no_php_ini: flags.php.no_ini,
            defines: flags.php.defines.clone(),
            test: flags.tests > 0,
            environment: None,
        };
        let entries = php::Entries::new(&flags.php, self.version.as_deref());
        match maitred_config::fpm::load(&options, &|name| entries.value(name)) {
            Ok(loaded) => Ok((loaded.config, loaded.messages, loaded.dump)),
            Err(failed) => {
                log::fpm::set_level(failed.log_level);
                Err(failed.messages)
            }
        }
    }

    /// Whether the error log is used: not in the foreground on a terminal, nor with `-O`
    /// (`fpm_stdio.c`).
    fn uses_log(&self, config: &Config) -> bool {
        let daemonize = config.fpm.as_ref().is_some_and(|fpm| fpm.daemonize);
        daemonize || (!self.is_terminal && !self.flags.force_stderr)
    }

    /// Opens the error log, which must succeed even if it is not used. Until the server is set up,
    /// lines go there and to standard error.
    fn open_log(&self, config: &Config) -> Result<(), String> {
        let LogTarget::File(path) = &config.error_log else {
            return Ok(());
        };
        let opened = maitred_supervisor::open_as_fpm(path).map_err(|why| {
            let (path, why) = (path.display(), system_error(&why));
            format!("failed to open error_log ({path}){why}")
        });
        let file = opened?;
        if self.uses_log(config) {
            log::fpm::write_also_to(file);
        }
        Ok(())
    }

    /// Adapts a configuration of php-fpm for maitred.
    fn adapt(&self, mut config: Config) -> Config {
        if !self.uses_log(&config) {
            config.error_log = LogTarget::Stderr;
        }
        if let Some(user) = front_user(&config.pools) {
            config.front_user = user;
        }
        let files = config.fpm.as_ref().and_then(|fpm| fpm.rlimit_files);
        for pool in &mut config.pools {
            pool.php.clone_from(&self.version);
            // php-fpm's workers inherit its master's limit.
            let own = &mut pool.confinement.rlimit_files;
            *own = own.or(files);
        }
        config
    }

    /// Logs the front's user, for which php-fpm's configuration has no setting.
    pub fn log_front_user(&self, config: &Config) {
        if users::is_root() {
            debug!("the front runs as {}", config.front_user);
        }
    }

    /// Warns of pools that run as root. php-fpm does not.
    pub fn warn_of_root(&self, config: &Config) {
        if !self.flags.allow_root || !users::is_root() {
            return;
        }
        for pool in &config.pools {
            let user = pool.user.as_deref().unwrap_or("root");
            if users::look_up(user, None).is_ok_and(|user| user.uid == 0) {
                let name = &pool.name;
                warn!(
                    target: "fpm",
                    "[pool {name}] runs PHP as root: a fault in one script is a fault of the whole \
                     machine; set `user`, and start without --allow-to-run-as-root"
                );
            }
        }
    }
}

/// The front's user beside these pools: a script could send signals to a front of its own user.
fn front_user(pools: &[Pool]) -> Option<String> {
    let uid = |name: &str| Some(users::look_up(name, None).ok()?.uid);
    let pools = pools.iter().filter_map(|pool| pool.user.as_deref());
    let taken: Vec<u32> = pools.filter_map(uid).collect();
    let there = FRONT_USERS.iter().filter_map(|&name| Some((name, uid(name)?)));
    choose(there, &taken).map(str::to_owned)
}

/// The first of some users whose id is not taken, or else the first.
fn choose<'a>(
    users: impl Iterator<Item = (&'a str, u32)> + Clone,
    taken: &[u32],
) -> Option<&'a str> {
    let mut free = users.clone().filter(|(_, uid)| !taken.contains(uid));
    let chosen = free.next().or_else(|| users.clone().next());
    chosen.map(|(name, _)| name)
}

/// The configuration file: named, named in php.ini, or where php-fpm of this PHP has it.
fn file(flags: &Flags, version: Option<&str>) -> PathBuf {
    if let Some(file) = &flags.config {
        return file.clone();
    }
    let defines = flags.php.defines.iter().rev();
    let mut named = defines.filter(|(name, value)| name == CONFIG_ENTRY && !value.is_empty());
    if let Some((_, file)) = named.next() {
        return PathBuf::from(file);
    }
    let found = php::ask_where(&flags.php, version);
    if let Some(file) = found.config {
        return PathBuf::from(file);
    }
    if let Some(prefix) = &flags.prefix {
        return prefix.join("etc/php-fpm.conf");
    }
    let branch = version.map(str::to_owned).or(found.branch);
    let debian = branch.map(|branch| PathBuf::from(format!("/etc/php/{branch}/fpm/php-fpm.conf")));
    let others = FILES.iter().map(PathBuf::from);
    let mut all = debian.iter().cloned().chain(others);
    let found = all.find(|file| file.exists());
    found.or(debian).unwrap_or_else(|| Path::new(FILES[0]).to_owned())
}

/// Logs lines as php-fpm does.
pub fn say(messages: &Messages) {
    for (level, line) in messages {
        match level {
            Level::Debug => debug!(target: "fpm", "{line}"),
            Level::Notice => info!(target: "fpm", "{line}"),
            Level::Warning => warn!(target: "fpm", "{line}"),
            Level::Error => error!(target: "fpm", "{line}"),
            Level::Alert => error!(target: "fpm::alert", "{line}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_named_is_meant_and_d_names_one_as_y_does() {
        let mut flags = Flags::default();
        flags.php.defines = vec![
            (CONFIG_ENTRY.to_owned(), "/one".to_owned()),
            (CONFIG_ENTRY.to_owned(), "/two".to_owned()),
        ];
        assert_eq!(file(&flags, None), Path::new("/two"));
        flags.config = Some(PathBuf::from("/y"));
        assert_eq!(file(&flags, None), Path::new("/y"));
    }

    #[test]
    fn the_front_is_nobody_that_a_pool_is_as_long_as_there_is_somebody() {
        let users = [("nobody", 65534), ("daemon", 1)];
        let chosen = |taken: &[u32]| choose(users.into_iter(), taken);
        assert_eq!(chosen(&[33]), Some("nobody"));
        assert_eq!(chosen(&[33, 65534]), Some("daemon"));
        assert_eq!(chosen(&[1, 65534]), Some("nobody"));
        assert_eq!(choose([].into_iter(), &[]), None);
    }
}
