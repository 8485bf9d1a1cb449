//! The original standard error of the server.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use maitred_config::LogTarget;

use crate::error::Error;
use crate::logging::log_files;

/// The original standard error of the server.
#[derive(Debug)]
pub struct Terminal {
    /// The descriptor to write to, if standard error has become a log file.
    aside: Option<File>,
    /// Nothing is written to the terminal: everything is logged.
    is_silent: bool,
}

impl Terminal {
    /// Redirects standard error of this process and all its children to the file in `log`, if it is
    /// a file.
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
            // The embedding program handles these.
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

    /// For a server whose embedding program handles the log and writes everything there.
    pub fn silent() -> Terminal {
        Terminal { aside: None, is_silent: true }
    }

    /// For a server that was started by an upgrade.
    pub fn over(aside: Option<OwnedFd>) -> Terminal {
        Terminal { aside: aside.map(File::from), is_silent: false }
    }

    /// The descriptor to write to, if standard error has become a log file.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.aside.as_ref().map(AsFd::as_fd)
    }

    /// Writes one line to the original standard error. Write errors are ignored.
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

    /// Whether log lines do not appear on the terminal.
    pub fn is_aside(&self) -> bool {
        self.aside.is_some()
    }
}
