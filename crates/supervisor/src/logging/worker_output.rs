//! Output of workers when the server runs as php-fpm: two pipes for each worker of a pool with
//! `catch_workers_output`, read here, split into messages ([`crate::logging::line_framing`]) and
//! logged. Target `fpm::said` is written in php-fpm's format and `fpm::bare` unchanged. Without
//! `catch_workers_output` the output is discarded.
//!
//! A worker that prints faster than the supervisor reads is blocked, as in php-fpm, so that nothing
//! is lost. It is never blocked for long: every turn of the loop reads the pipe, and the loop does
//! not wait for workers.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use maitred_control::WorkerId;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tracing::error;

use crate::logging::line_framing::{LineFramer, Message, OutputStream};

/// Most bytes read from a pipe in one turn, since everything else waits for it.
const TURN_BYTES: usize = 8 * 1024;

/// Most bytes logged of the remaining output of a worker that has ended: the size of a pipe.
/// Processes that it left behind may keep writing.
const LAST_WORDS_BYTES: usize = 64 * 1024;

/// The workers of a generation whose output is caught.
pub type WorkerOutputs = BTreeMap<WorkerId, WorkerOutput>;

/// The pipes of a worker.
#[derive(Debug)]
pub struct WorkerOutput {
    /// The worker, once it has been announced.
    pid: Option<i32>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    framer: LineFramer,
}

/// The worker's ends of its pipes.
#[derive(Debug)]
pub struct PipeWriters {
    /// Its standard output.
    pub stdout: OwnedFd,
    /// Its standard error.
    pub stderr: OwnedFd,
}

/// The supervisor's ends of the pipes.
#[derive(Debug, Default)]
pub struct PipeReaders {
    /// The worker's standard output.
    pub stdout: Option<OwnedFd>,
    /// The worker's standard error.
    pub stderr: Option<OwnedFd>,
}

impl WorkerOutput {
    /// Creates the pipes of a worker that is to be forked, and returns the worker's ends.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn new() -> io::Result<(WorkerOutput, PipeWriters)> {
        let (stdout, stdout_writer) = pipe()?;
        let (stderr, stderr_writer) = pipe()?;
        let readers = PipeReaders { stdout: Some(stdout), stderr: Some(stderr) };
        let writers = PipeWriters { stdout: stdout_writer, stderr: stderr_writer };
        Ok((WorkerOutput::over(None, readers), writers))
    }

    /// Adds existing pipes.
    pub fn over(pid: Option<i32>, readers: PipeReaders) -> WorkerOutput {
        WorkerOutput {
            pid,
            stdout: readers.stdout,
            stderr: readers.stderr,
            framer: LineFramer::default(),
        }
    }

    /// The worker has been announced.
    pub fn attribute(&mut self, pid: i32) {
        self.pid = Some(pid);
    }

    /// The process id of the worker, once it was announced.
    pub fn pid(&self) -> Option<i32> {
        self.pid
    }

    /// Adds output that was not read from a pipe.
    pub fn take(&mut self, stream: OutputStream, bytes: &[u8]) {
        self.framer.take(stream, bytes);
    }

    /// Completes the message that has been started.
    pub fn flush(&mut self) {
        self.framer.flush();
    }

    /// Takes the complete messages.
    pub fn messages(&mut self) -> Vec<Message> {
        self.framer.messages()
    }

    /// The descriptor numbers, if the worker is known.
    pub fn descriptors(&self) -> Option<(Option<RawFd>, Option<RawFd>)> {
        self.pid?;
        let number = |pipe: &Option<OwnedFd>| pipe.as_ref().map(AsRawFd::as_raw_fd);
        Some((number(&self.stdout), number(&self.stderr)))
    }

    /// What to poll: nothing until the worker is known.
    pub fn listening(&self) -> impl Iterator<Item = (OutputStream, BorrowedFd<'_>)> {
        let known = self.pid.is_some();
        let pipes = [(OutputStream::Stdout, &self.stdout), (OutputStream::Stderr, &self.stderr)];
        let pipes = pipes.into_iter().filter(move |_| known);
        pipes.filter_map(|(source, pipe)| Some((source, pipe.as_ref()?.as_fd())))
    }

    /// Reads what one turn takes from a pipe. False at the end of the stream.
    pub fn hear(&mut self, source: OutputStream) -> bool {
        let pipe = match source {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        };
        let Some(reader) = pipe else {
            return false;
        };
        let mut bytes = vec![0; TURN_BYTES];
        match rustix::io::read(reader, &mut bytes) {
            Ok(0) => {
                *pipe = None;
                self.framer.close();
                false
            }
            Ok(count) => {
                self.framer.take(source, &bytes[..count]);
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => false,
            Err(why) => {
                let (pid, name) = (self.pid.unwrap_or(0), source.name());
                error!(target: "fpm", "unable to read what child {pid} said into {name}: {why}");
                *pipe = None;
                false
            }
        }
    }

    /// Reads the remaining output of a worker that has ended.
    pub fn hear_last_words(&mut self) {
        for source in [OutputStream::Stdout, OutputStream::Stderr] {
            // A process that the worker has left behind may hold the pipe and keep writing.
            for _ in 0..LAST_WORDS_BYTES / TURN_BYTES {
                if !self.hear(source) {
                    break;
                }
            }
        }
        self.framer.close();
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&reader, true)?;
    Ok((reader, writer))
}

/// Pipes whose output is discarded.
///
/// # Errors
/// When the process is out of descriptors.
pub fn discard() -> io::Result<PipeWriters> {
    let null = rustix::fs::open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(PipeWriters { stdout: null.try_clone()?, stderr: null })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_listens_before_it_is_known_whose_words_they_are() {
        let (mut output, _ends) = WorkerOutput::new().expect("two pipes");
        assert_eq!(output.listening().count(), 0);
        output.pid = Some(12);
        assert_eq!(output.listening().count(), 2);
    }

    #[test]
    fn last_words_are_heard_though_somebody_holds_the_pipe() {
        let (mut output, ends) = WorkerOutput::new().expect("two pipes");
        rustix::io::write(&ends.stdout, b"out").expect("room");
        rustix::io::write(&ends.stderr, b"one\ntwo").expect("room");
        output.hear_last_words();
        let texts = output.framer.messages().into_iter();
        let texts: Vec<Vec<u8>> = texts.map(|message| message.text).collect();
        assert_eq!(texts, [&b"out"[..], b"one", b"two"]);
    }

    /// What the kernel keeps in a pipe, in bytes.
    const PIPE_BYTES: usize = 64 * 1024;

    #[test]
    fn a_pipe_that_is_full_is_read_in_many_turns() {
        let (mut output, ends) = WorkerOutput::new().expect("two pipes");
        rustix::io::write(&ends.stderr, &vec![b'x'; PIPE_BYTES]).expect("room");
        assert!(output.hear(OutputStream::Stderr));
        let reader = output.stderr.as_ref().expect("it is open");
        let left = rustix::io::ioctl_fionread(reader).expect("a pipe");
        assert!(left >= PIPE_BYTES as u64 / 8 * 7, "{left}");
    }

    #[test]
    fn last_words_end_though_there_is_always_something_to_hear() {
        let (mut output, ends) = WorkerOutput::new().expect("two pipes");
        // What a process writes that the worker has left behind, however fast it is.
        rustix::pipe::fcntl_setpipe_size(&ends.stderr, 8 * PIPE_BYTES).expect("a larger pipe");
        rustix::io::write(&ends.stderr, &b"x\n".repeat(4 * PIPE_BYTES)).expect("room");
        output.hear_last_words();
        let heard = output.framer.messages().len() * b"x\n".len();
        assert!(heard <= PIPE_BYTES, "{heard} bytes");
    }

    #[test]
    fn a_pipe_that_is_closed_is_waited_for_no_more() {
        let (mut output, ends) = WorkerOutput::new().expect("two pipes");
        output.pid = Some(12);
        drop(ends.stdout);
        assert!(!output.hear(OutputStream::Stdout));
        assert_eq!(output.listening().count(), 1);
    }
}
