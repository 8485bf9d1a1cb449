//! Where the supervisor's words go, and what becomes of the words of others.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use maitred_config::{Config, LogTarget, Section, SiteLog};

use crate::error::Error;
use crate::logging::log_files;

/// Longest text of another process that is repeated in a message, in characters.
const MAX_QUOTED_CHARS: usize = 500;

/// Logs whose folder is not there.
pub fn log_mistakes(config: &Config) -> Vec<Error> {
    let file = |log: &LogTarget| match log {
        LogTarget::File(path) => Some(path.clone()),
        _ => None,
    };
    let access_log = config.access_log.as_ref().and_then(file);
    let servers = [
        (Section::Server, "error_log", file(&config.error_log)),
        (Section::Server, "access_log", access_log),
    ];
    let pools = config.pools.iter().map(|pool| {
        let section = Section::Pool(pool.name.clone());
        (section, "slowlog", pool.slowlog.as_ref().and_then(file))
    });
    let sites = config.sites.iter().enumerate().map(|(number, site)| {
        let path = match &site.access_log {
            SiteLog::File(path) => Some(path.clone()),
            SiteLog::Server | SiteLog::Off => None,
        };
        (Section::Site(number), "access_log", path)
    });
    let logs = servers.into_iter().chain(pools).chain(sites);
    let missing = logs.filter_map(|(section, setting, path)| {
        let path = path.filter(|path| !path.parent().is_some_and(Path::is_dir))?;
        let said = format!(
            "{setting} {} cannot be written: its folder does not exist; make it, or correct \
             {setting}",
            path.display()
        );
        Some(Error::Setting {
            section,
            setting,
            said,
        })
    });
    missing.collect()
}

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

/// The words of another process on one line, without control characters and not too long.
pub fn one_line(words: &str) -> String {
    let mut kept: String = words.chars().take(MAX_QUOTED_CHARS).collect();
    if kept.len() < words.len() {
        kept.push('…');
    }
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    kept.trim_end().chars().map(plain).collect()
}

/// Longest version of PHP that is repeated, in characters.
const MAX_VERSION_CHARS: usize = 64;

/// What a zygote says is its PHP's version, without what no version has: it becomes part of a
/// header.
pub fn version_in(words: &str) -> String {
    let is_of_versions = |c: &char| c.is_ascii_alphanumeric() || ".+~-_".contains(*c);
    let kept = words.chars().filter(is_of_versions);
    kept.take(MAX_VERSION_CHARS).collect()
}

/// So many workers, and at most so many in pools that find their size.
pub fn some_workers(workers: usize, most_of_auto: usize) -> String {
    let some = |number| match number {
        1 => "1 worker".to_owned(),
        _ => format!("{number} workers"),
    };
    match (workers, most_of_auto) {
        (_, 0) => some(workers),
        (0, most) => format!("auto, up to {}", some(most)),
        (_, most) => format!("{} and auto, up to {most} more", some(workers)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_of_php_has_nothing_in_it_that_no_version_has() {
        let debian = "8.2.29-1~deb12u1+b1";
        assert_eq!(version_in(debian), debian);
        assert_eq!(version_in("8.2\r\nSet-Cookie: a=b"), "8.2Set-Cookieab");
        assert_eq!(version_in(&"8".repeat(1000)).len(), MAX_VERSION_CHARS);
    }

    #[test]
    fn the_words_of_others_cannot_add_a_line_to_the_log() {
        assert_eq!(one_line("a\nb\x1b[31m\n"), "a b [31m");
        assert_eq!(
            one_line(&"x".repeat(600)).chars().count(),
            MAX_QUOTED_CHARS + 1
        );
    }

    #[test]
    fn workers_of_a_pool_that_finds_its_size_are_no_fixed_number() {
        let told = [(0, 0), (1, 0), (4, 0), (0, 64), (0, 1), (1, 64), (4, 64)];
        let told = told.map(|(workers, most)| some_workers(workers, most));
        let words = [
            "0 workers",
            "1 worker",
            "4 workers",
            "auto, up to 64 workers",
            "auto, up to 1 worker",
            "1 worker and auto, up to 64 more",
            "4 workers and auto, up to 64 more",
        ];
        assert_eq!(told, words);
    }
}
