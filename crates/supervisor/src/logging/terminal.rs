//! The standard error output that the server was started with.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use maitred_config::LogTarget;

use crate::error::Error;
use crate::logging::log_files;

/// The standard error output that the server was started with.
#[derive(Debug)]
pub struct Terminal {
    /// Where it has to be written to, if standard error has become a log file.
    aside: Option<File>,
    /// Nothing is written for the person who started the server: all there is to say is logged.
    is_silent: bool,
}

impl Terminal {
    /// Makes standard error, ours and that of everything we start, the file `log` names, if it is one.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn redirect(log: &LogTarget) -> Result<Terminal, Error> {
        let aside = || {
            let aside = std::io::stderr().as_fd().try_clone_to_owned();
            aside.map_err(Error::system("standard error cannot be kept"))
        };
        let path = match log {
            LogTarget::File(path) => path,
            LogTarget::Stderr | LogTarget::Syslog => return Ok(Terminal::over(None)),
            // The program around the supervisor sees to that.
            LogTarget::Collector(_) => return Ok(Terminal::over(Some(aside()?))),
        };
        let file = log_files::open(path).map_err(|why| {
            Error::Configuration(format!(
                "the log {} cannot be opened: {why}; correct error_log or the rights of its folder",
                path.display()
            ))
        })?;
        let aside = aside()?;
        rustix::stdio::dup2_stderr(&file)
            .map_err(|why| Error::system("standard error cannot be replaced")(why.into()))?;
        Ok(Terminal::over(Some(aside)))
    }

    /// That of a server whose log is seen to by the program around the supervisor, and which says
    /// everything there.
    pub fn silent() -> Terminal {
        Terminal {
            aside: None,
            is_silent: true,
        }
    }

    /// The terminal of a server that was started by the program before this one.
    pub fn over(aside: Option<OwnedFd>) -> Terminal {
        Terminal {
            aside: aside.map(File::from),
            is_silent: false,
        }
    }

    /// What is written to if standard error has become a log file.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.aside.as_ref().map(AsFd::as_fd)
    }

    /// Writes one line for the person who started the server. That nobody reads it is no error.
    pub fn tell(&self, line: &str) {
        if self.is_silent {
            return;
        }
        let line = format!("maitred: {line}\n");
        let _ = match &self.aside {
            Some(aside) => (&mut &*aside).write_all(line.as_bytes()),
            None => std::io::stderr().write_all(line.as_bytes()),
        };
    }

    /// Whether the terminal sees nothing of the log.
    pub fn is_aside(&self) -> bool {
        self.aside.is_some()
    }
}
