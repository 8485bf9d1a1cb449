//! The source of the configuration: it is read at the start and at every reload.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use maitred_config::Config;
use maitred_os::users;

use crate::system::faults::Examined;
use crate::system::identity;

/// The environment variable that sets the log level of our processes.
pub const LOG_VARIABLE: &str = "MAITRED_LOG";

/// Reads and checks the configuration, or returns its mistakes in one sentence or more.
type Load = Box<dyn Fn() -> Result<Config, String>>;

/// Callbacks of the program around the supervisor. By default, they do nothing.
pub trait Host: std::fmt::Debug {
    /// Everything is set up, sockets too, and no process was started yet.
    ///
    /// # Errors
    /// One sentence, when the server must not start.
    fn set_up(&mut self, config: &Config) -> Result<(), String> {
        let _ = config;
        Ok(())
    }

    /// The server serves for the first time; a browser on this machine opens `url`, if there are
    /// sites.
    fn serves(&mut self, url: Option<&str>) {
        let _ = url;
    }

    /// Another configuration is used from now on. Returns the new value of [`LOG_VARIABLE`] for
    /// processes, if it changes.
    fn follow(&mut self, config: &Config) -> Option<String> {
        let _ = config;
        None
    }
}

/// The command line of this program, so that another can be started in its place.
#[derive(Debug)]
pub struct Invocation {
    /// The file it was started from.
    pub program: PathBuf,
    /// Its arguments, without its name and the order to take over.
    pub arguments: Vec<OsString>,
    /// The descriptor of the state that the previous program has handed over, if there was one.
    pub take_over: Option<RawFd>,
    /// A fault of a single site or pool prevents the start, and a reload.
    pub strict: bool,
    /// The program around the supervisor.
    pub host: Box<dyn Host>,
}

/// The source of the configuration.
pub struct Source {
    load: Load,
    file: Option<PathBuf>,
    is_watched: bool,
}

impl Source {
    /// A source that is read by `load`.
    pub fn new(load: impl Fn() -> Result<Config, String> + 'static) -> Source {
        Source { load: Box::new(load), file: None, is_watched: false }
    }

    /// The same, from the one file `path`: mistakes get their position in it.
    pub fn of_file(self, path: &Path) -> Source {
        Source { file: Some(path.to_path_buf()), ..self }
    }

    /// The same; with `is_watched`, the server reloads when the file changes.
    pub fn watched(self, is_watched: bool) -> Source {
        Source { is_watched, ..self }
    }

    /// The file whose changes reload the server.
    pub fn watched_file(&self) -> Option<&Path> {
        self.file().filter(|_| self.is_watched)
    }

    /// The one file it is read from, if it is in `maitred.toml`'s format.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Reads the configuration, and adds what only this process knows.
    ///
    /// # Errors
    /// All its mistakes.
    pub fn load(&self) -> Result<Config, String> {
        let mut config = (self.load)()?;
        identity::find_root_owners(&mut config, &Examined::All);
        let access = &mut config.admin_access;
        access.users.push(users::current().uid);
        config.admin_access.has_several_users = identity::has_several_users(&config);
        Ok(config)
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Source")
    }
}
