//! Queries to PHP itself: its version, its modules, `phpinfo()`, the entries of php.ini. The
//! program that runs PHP replies.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::warn;

use super::flags::Php;
use super::system_error::{EXIT_OK, EXIT_SOFTWARE};

/// The role in which the PHP program replies.
const ROLE: &str = "fpm-info";

/// Shows `what` on standard output, as php-fpm does: `version`, `modules` or `phpinfo`.
pub fn show(what: &str, php: &Php, version: Option<&str>) -> u8 {
    let done = command(what, php, version).and_then(|mut command| {
        let program = command.get_program().to_string_lossy().into_owned();
        let status = command.status();
        status.map_err(|why| format!("{program} could not be started: {why}"))
    });
    match done {
        Ok(status) if status.success() => EXIT_OK,
        // It has printed why.
        Ok(_) => EXIT_SOFTWARE,
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "php-fpm: {why}");
            EXIT_SOFTWARE
        }
    }
}

/// The location of php-fpm's configuration, from PHP.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ConfigLocation {
    /// Its branch, as `8.2`.
    pub branch: Option<String>,
    /// `fpm.config` of php.ini.
    pub config: Option<String>,
}

/// Queries PHP for the location of php-fpm's configuration; empty if that fails.
pub fn ask_where(php: &Php, version: Option<&str>) -> ConfigLocation {
    let reply = command("where", php, version).and_then(|mut command| {
        let output = command.output().map_err(|why| why.to_string())?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    });
    read_where(&reply.unwrap_or_default())
}

/// Two lines: the branch, and the file if one is named.
fn read_where(reply: &str) -> ConfigLocation {
    let mut lines = reply.lines().map(|line| match line {
        "" => None,
        line => Some(line.to_owned()),
    });
    ConfigLocation { branch: lines.next().flatten(), config: lines.next().flatten() }
}

/// Timeout for PHP to start and to reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// The entries of php.ini. PHP is started at the first query: few configurations refer to any.
#[derive(Debug)]
pub struct Entries<'a> {
    php: &'a Php,
    version: Option<&'a str>,
    /// The program that answers; an error: it does not.
    program: RefCell<Option<Result<Child, ()>>>,
}

impl<'a> Entries<'a> {
    /// Those that PHP finds with these flags.
    pub fn new(php: &'a Php, version: Option<&'a str>) -> Entries<'a> {
        Entries { php, version, program: RefCell::new(None) }
    }

    /// The value of an entry, if there is one. It is said once if PHP cannot be asked.
    pub fn value(&self, name: &str) -> Option<String> {
        let mut program = self.program.borrow_mut();
        let started = match program.take() {
            Some(started) => started.map_err(|()| None),
            None => self.start().map_err(Some),
        };
        let asked = started.and_then(|mut child| match ask(&mut child, name) {
            Ok(value) => Ok((child, value)),
            Err(why) => {
                end(child);
                Err(Some(why.to_string()))
            }
        });
        match asked {
            Ok((child, value)) => {
                *program = Some(Ok(child));
                value
            }
            Err(why) => {
                if let Some(why) = why {
                    warn!(
                        target: "fpm",
                        "cannot read ${{{name}}} and later entries from php.ini; only the \
                         environment is used for them: {why}"
                    );
                }
                *program = Some(Err(()));
                None
            }
        }
    }

    fn start(&self) -> Result<Child, String> {
        let mut command = command("entries", self.php, self.version)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // The pools log messages of PHP's start.
        command.stderr(Stdio::null());
        let program = command.get_program().to_string_lossy().into_owned();
        let started = command.spawn();
        started.map_err(|why| format!("{program} could not be started: {why}"))
    }
}

impl Drop for Entries<'_> {
    fn drop(&mut self) {
        if let Some(Ok(child)) = self.program.take() {
            end(child);
        }
    }
}

/// Asks for one entry: its name is a line, and the answer ends with a NUL.
fn ask(child: &mut Child, name: &str) -> io::Result<Option<String>> {
    let (Some(stdin), Some(stdout)) = (&mut child.stdin, &mut child.stdout) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    writeln!(stdin, "{name}")?;
    let mut response = Vec::new();
    let within = Timespec::try_from(REPLY_TIMEOUT).map_err(io::Error::other)?;
    while response.last() != Some(&0) {
        let mut ready = [PollFd::new(stdout, PollFlags::IN)];
        if poll(&mut ready, Some(&within))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut bytes = [0; 1024];
        match stdout.read(&mut bytes)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => response.extend_from_slice(&bytes[..count]),
        }
    }
    response.pop();
    let value = response.strip_prefix(b"=");
    Ok(value.map(|value| String::from_utf8_lossy(value).into_owned()))
}

fn end(mut child: Child) {
    // One that has ended by itself cannot be killed, and is waited for all the same.
    let _ = child.kill();
    let _ = child.wait();
}

fn command(what: &str, php: &Php, version: Option<&str>) -> Result<Command, String> {
    let program = maitred_supervisor::php_program(version).map_err(|why| why.to_string())?;
    let mut command = maitred_os::spawn::command(program);
    command.args([ROLE, what]);
    if let Some(ini) = &php.ini {
        command.arg("-c").arg(ini);
    }
    if php.no_ini {
        command.arg("-n");
    }
    for (name, value) in &php.defines {
        command.args(["-d", &format!("{name}={value}")]);
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_may_leave_the_file_out_and_no_answer_says_nothing() {
        let found = read_where("8.2\n/etc/fpm.conf\n");
        assert_eq!(found.branch.as_deref(), Some("8.2"));
        assert_eq!(found.config.as_deref(), Some("/etc/fpm.conf"));
        assert_eq!(read_where("8.2\n\n").config, None);
        assert_eq!(read_where(""), ConfigLocation::default());
    }
}
