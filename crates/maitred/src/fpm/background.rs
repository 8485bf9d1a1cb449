//! Going to the background: the starting process waits until the server serves, and reports whether
//! it does.

use std::fs::File;
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use maitred_os::fork::{self, Half};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

/// How long to wait for the server: longer than its own start timeout.
const START_WAIT: Duration = Duration::from_secs(70);

/// The byte with which the server reports that it serves.
const SERVES: u8 = 1;

/// The process in which [`go`] returns.
#[derive(Debug)]
pub enum ForkSide {
    /// The server.
    Server(StarterPipe),
    /// The starting process; and why the server does not serve, if it does not.
    Starter(Result<(), String>),
}

/// The pipe to the starting process, which waits for the server.
#[derive(Debug)]
pub struct StarterPipe(File);

impl StarterPipe {
    /// Reports that the server serves. It is no error if the starting process has exited.
    pub fn tell(mut self) {
        let _ = self.0.write_all(&[SERVES]);
    }
}

/// Forks the server. Returns in the starting process when the server serves, has exited, or timed
/// out.
///
/// # Errors
/// If there is no pipe or no process.
pub fn go() -> io::Result<ForkSide> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    match fork::into_background()? {
        Half::Background => {
            drop(reader);
            Ok(ForkSide::Server(StarterPipe(writer.into())))
        }
        Half::Foreground => {
            drop(writer);
            Ok(ForkSide::Starter(wait(reader.into(), START_WAIT)))
        }
    }
}

fn wait(mut server: File, limit: Duration) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let left = limit.saturating_sub(begun.elapsed());
        let left = Timespec::try_from(left).unwrap_or_default();
        match poll(&mut [PollFd::new(&server, PollFlags::IN)], Some(&left)) {
            Ok(0) => {
                return Err("the master process didn't send back its status (via the pipe to the \
                            calling process)"
                    .to_owned());
            }
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(why) => return Err(format!("failed to select: {why}")),
        }
    }
    let mut said = [0];
    match server.read(&mut said) {
        Ok(1) if said == [SERVES] => Ok(()),
        Ok(_) => Err("no data have been read from pipe".to_owned()),
        Err(why) => Err(format!("failed to read from pipe: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(said: &[u8]) -> Result<(), String> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        File::from(writer).write_all(said).unwrap();
        wait(reader.into(), START_WAIT)
    }

    #[test]
    fn only_the_word_of_a_server_that_serves_counts() {
        heard(&[SERVES]).unwrap();
        assert!(heard(&[0]).is_err());
        assert!(heard(&[]).unwrap_err().contains("no data"), "it has ended");
    }

    #[test]
    fn a_server_that_says_nothing_is_not_waited_for_for_ever() {
        let (reader, _writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let why = wait(reader.into(), Duration::from_millis(1)).unwrap_err();
        assert!(why.contains("didn't send back its status"), "{why}");
    }
}
