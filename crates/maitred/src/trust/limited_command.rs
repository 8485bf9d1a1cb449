//! Programs that are run to their end, within limits of time and output.

use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::process::Stdio;
use std::time::Duration;

use maitred_os::signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long a program may run: `update-ca-certificates` takes a few seconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Most bytes of its output that are read.
const MAX_OUTPUT_BYTES: u64 = 1 << 20;

/// Runs a program without input, and returns its standard output.
///
/// # Errors
/// If it does not run, fails or takes too long: a sentence that starts with its name, with the last
/// line of its errors.
pub fn output(program: &str, arguments: &[&str]) -> Result<String, String> {
    let ended = run(program, arguments).map_err(|why| format!("{program} cannot be run: {why}"))?;
    match ended {
        Ended::Success(text) => Ok(text),
        Ended::Failure(line) => Err(format!("{program} failed: {line}")),
        Ended::Timeout => Err(format!("{program} has not ended within {} s", TIMEOUT.as_secs())),
    }
}

enum Ended {
    /// With its standard output.
    Success(String),
    /// With the last line of its errors.
    Failure(String),
    Timeout,
}

fn run(program: &str, arguments: &[&str]) -> io::Result<Ended> {
    // A program that fills a pipe would wait for a reader.
    let (mut output, mut errors) = (tempfile::tempfile()?, tempfile::tempfile()?);
    let mut child = maitred_os::spawn::command(program);
    child.args(arguments).stdin(Stdio::null());
    let mut child = child.stdout(output.try_clone()?).stderr(errors.try_clone()?).spawn()?;
    let has_ended = wait(&child);
    if !matches!(has_ended, Ok(true)) {
        let _ = child.kill();
    }
    let status = child.wait()?;
    if !has_ended? {
        return Ok(Ended::Timeout);
    }
    if status.success() {
        return Ok(Ended::Success(text(&mut output)?));
    }
    let errors = text(&mut errors)?;
    let line = errors.lines().rfind(|line| !line.trim().is_empty());
    Ok(Ended::Failure(line.map_or_else(|| status.to_string(), |line| line.trim().to_owned())))
}

/// Whether the child ends within the timeout.
fn wait(child: &std::process::Child) -> io::Result<bool> {
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    let pidfd = signals::pidfd(pid)?;
    let limit = Timespec::try_from(TIMEOUT).map_err(io::Error::other)?;
    let mut fds = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
    Ok(poll(&mut fds, Some(&limit))? > 0)
}

fn text(file: &mut std::fs::File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_is_returned_and_of_a_failure_the_last_line_of_the_errors() {
        assert_eq!(output("echo", &["a"]).as_deref(), Ok("a\n"));
        let script = "echo first >&2; echo 'second: last' >&2; exit 3";
        assert_eq!(output("sh", &["-c", script]), Err("sh failed: second: last".to_owned()));
        let silent = output("sh", &["-c", "exit 3"]).unwrap_err();
        assert_eq!(silent, "sh failed: exit status: 3");
        let missing = output("/nowhere/certutil", &[]).unwrap_err();
        assert!(missing.starts_with("/nowhere/certutil cannot be run: "), "{missing}");
    }
}
