//! Where the configuration comes from: it is asked for at the start and at every reload.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use maitred_config::Config;
use maitred_os::users;

use crate::system::identity;

/// The environment variable that sets the log level of our processes.
pub const LOG_VARIABLE: &str = "MAITRED_LOG";

/// Reads the configuration, checked, or says what is wrong with it in one sentence or more.
type Load = Box<dyn Fn() -> Result<Config, String>>;

/// What the program around the supervisor does when the server has come so far. By default nothing.
pub trait Host: std::fmt::Debug {
    /// Everything is there that the server needs, its sockets too, and no process was started yet.
    ///
    /// # Errors
    /// One sentence, when the server must not start.
    fn set_up(&mut self, config: &Config) -> Result<(), String> {
        let _ = config;
        Ok(())
    }

    /// The server serves for the first time.
    fn serves(&mut self) {}

    /// Another configuration is in use from now on. Returns what [`LOG_VARIABLE`] says from now
    /// on to processes that are started, if that is something else.
    fn follow(&mut self, config: &Config) -> Option<String> {
        let _ = config;
        None
    }
}

/// How this program was started, so that another can be started in its place.
#[derive(Debug)]
pub struct Invocation {
    /// The file it was started from.
    pub program: PathBuf,
    /// Its arguments, without its name and without the order to take over.
    pub arguments: Vec<OsString>,
    /// The descriptor of what the program before this one has left, if there was one.
    pub take_over: Option<RawFd>,
    /// The program around the supervisor.
    pub host: Box<dyn Host>,
}

/// Where the configuration comes from.
pub struct Source {
    load: Load,
    file: Option<PathBuf>,
}

impl Source {
    /// A source that is read by `load`.
    pub fn new(load: impl Fn() -> Result<Config, String> + 'static) -> Source {
        Source {
            load: Box::new(load),
            file: None,
        }
    }

    /// The same, of the one file `path`: mistakes say where they are written in it.
    pub fn of_file(self, path: &Path) -> Source {
        Source {
            file: Some(path.to_path_buf()),
            ..self
        }
    }

    /// The one file it is read from, if it is one of `maitred.toml`'s form.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Reads the configuration, with what this process alone can find out of it.
    ///
    /// # Errors
    /// All its mistakes.
    pub fn load(&self) -> Result<Config, String> {
        let mut config = (self.load)()?;
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
