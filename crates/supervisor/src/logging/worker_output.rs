//! Output of workers when the server runs as php-fpm: two pipes for each worker of a pool with
//! `catch_workers_output`, split into messages ([`crate::logging::line_framing`]) and
//! logged. Target `fpm::said` is written in php-fpm's format and `fpm::bare` unchanged. Without
//! `catch_workers_output` the output is discarded.
//!
//! A worker that prints faster than the supervisor reads is blocked, as in php-fpm, so that nothing
//! is lost. It is never blocked for long: another process reads the pipe as soon as it is ready
//! ([`crate::logging::tenant_pipe`]).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use maitred_control::WorkerId;
use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use tracing::error;

use crate::limits::Moment;
use crate::logging::line_framing::{LineFramer, Message, OutputStream};
use crate::logging::tenant_pipe::{PipeRead, ReadOutcome, TenantPipe};

/// Most bytes of unfinished messages of a generation: the longest message of two workers.
const UNFINISHED_BYTES: usize = 2 << 20;

/// The workers of a generation whose output is caught.
pub type WorkerOutputs = BTreeMap<WorkerId, WorkerOutput>;

/// The pipes of a worker.
#[derive(Debug)]
pub struct WorkerOutput {
    /// The worker, once it has been announced.
    pid: Option<i32>,
    stdout: Option<TenantPipe>,
    stderr: Option<TenantPipe>,
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
    /// Creates the pipes of a worker of this pool that is to be forked, and returns the worker's
    /// ends.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn new(pool: &str) -> io::Result<(WorkerOutput, PipeWriters)> {
        let (stdout, stdout_writer) = pipe()?;
        let (stderr, stderr_writer) = pipe()?;
        let readers = PipeReaders { stdout: Some(stdout), stderr: Some(stderr) };
        let writers = PipeWriters { stdout: stdout_writer, stderr: stderr_writer };
        Ok((WorkerOutput::over(None, readers, pool), writers))
    }

    /// Adds existing pipes of this pool.
    pub fn over(pid: Option<i32>, readers: PipeReaders, pool: &str) -> WorkerOutput {
        let pipe = |end: Option<OwnedFd>| end.map(|end| TenantPipe::new(end, pool));
        WorkerOutput {
            pid,
            stdout: pipe(readers.stdout),
            stderr: pipe(readers.stderr),
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

    /// Bytes of the message that has been started.
    fn unfinished(&self) -> usize {
        self.framer.unfinished()
    }

    /// Takes the complete messages.
    pub fn messages(&mut self) -> Vec<Message> {
        self.framer.messages()
    }

    /// The descriptor numbers, if the worker is known.
    pub fn descriptors(&self) -> Option<(Option<RawFd>, Option<RawFd>)> {
        self.pid?;
        let number = |pipe: &Option<TenantPipe>| pipe.as_ref().map(AsRawFd::as_raw_fd);
        Some((number(&self.stdout), number(&self.stderr)))
    }

    /// The pipes to poll, by their numbers: none until the worker is known.
    pub fn listening(&self) -> impl Iterator<Item = (u64, BorrowedFd<'_>)> {
        let known = self.pid.is_some();
        let pipes = [&self.stdout, &self.stderr].into_iter().flatten().filter(move |_| known);
        pipes.filter_map(|pipe| Some((pipe.number(), pipe.listening()?)))
    }

    /// The pipes with one of these numbers are to be read.
    pub fn order<'a>(&'a mut self, ready: &'a [u64]) -> impl Iterator<Item = PipeRead> + 'a {
        let pipes = [&mut self.stdout, &mut self.stderr].into_iter().flatten();
        pipes.filter(|pipe| ready.contains(&pipe.number())).map(TenantPipe::order)
    }

    /// A pipe was read. False if it is none of these.
    pub fn take_read(&mut self, number: u64, outcome: &ReadOutcome) -> bool {
        let pipes =
            [(OutputStream::Stdout, &mut self.stdout), (OutputStream::Stderr, &mut self.stderr)];
        let mut pipes = pipes.into_iter();
        let found = pipes.find(|(_, pipe)| pipe.as_ref().map(TenantPipe::number) == Some(number));
        let Some((source, pipe)) = found else { return false };
        if let Some(pipe) = pipe {
            pipe.was_read(outcome);
        }
        match outcome {
            ReadOutcome::Nothing => {}
            ReadOutcome::Bytes(bytes) => self.framer.take(source, bytes),
            ReadOutcome::End => {
                *pipe = None;
                self.framer.close();
            }
            ReadOutcome::Failed(why) => {
                let (pid, name) = (self.pid.unwrap_or(0), source.name());
                error!(target: "fpm", "unable to read what child {pid} said into {name}: {why}");
                *pipe = None;
            }
        }
        true
    }

    /// Whether nothing is left to be read, now that the worker has ended.
    pub fn is_drained(&mut self, now: Moment) -> bool {
        let mut pipes = [&mut self.stdout, &mut self.stderr].into_iter().flatten();
        pipes.all(|pipe| pipe.is_drained(now))
    }

    /// When reading the rest has taken too long.
    pub fn deadline(&self) -> Option<Moment> {
        let pipes = [&self.stdout, &self.stderr].into_iter().flatten();
        pipes.filter_map(TenantPipe::deadline).min()
    }

    /// Completes the last message of a worker that has ended.
    pub fn close(&mut self) {
        self.framer.close();
    }
}

/// The worker whose unfinished message is the longest, if all together have more than
/// [`UNFINISHED_BYTES`]: its message is to be completed. php-fpm has no such limit.
pub fn longest_beyond_limit(outputs: &WorkerOutputs) -> Option<WorkerId> {
    let total: usize = outputs.values().map(WorkerOutput::unfinished).sum();
    let longest = outputs.iter().max_by_key(|(_, output)| output.unfinished());
    longest.filter(|_| total > UNFINISHED_BYTES).map(|(worker, _)| *worker)
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
        let (mut output, _ends) = WorkerOutput::new("www").expect("two pipes");
        assert_eq!(output.listening().count(), 0);
        output.pid = Some(12);
        assert_eq!(output.listening().count(), 2);
    }

    #[test]
    fn what_was_read_is_of_the_stream_of_its_pipe_and_a_pipe_that_is_over_is_polled_no_more() {
        let (mut output, _ends) = WorkerOutput::new("www").expect("two pipes");
        output.attribute(12);
        let numbers: Vec<u64> = output.listening().map(|(number, _)| number).collect();
        assert_eq!(output.order(&numbers).count(), 2);
        assert_eq!(output.listening().count(), 0);
        assert!(output.take_read(numbers[0], &ReadOutcome::Bytes(b"out".to_vec())));
        assert!(output.take_read(numbers[1], &ReadOutcome::Bytes(b"one\ntwo".to_vec())));
        assert!(!output.take_read(u64::MAX, &ReadOutcome::Nothing));
        output.close();
        let texts = output.messages().into_iter();
        let texts: Vec<Vec<u8>> = texts.map(|message| message.text).collect();
        assert_eq!(texts, [&b"out"[..], b"one", b"two"]);
        assert!(output.take_read(numbers[0], &ReadOutcome::End));
        assert_eq!(output.listening().count(), 1);
    }

    #[test]
    fn beyond_the_limit_of_a_pool_its_longest_message_is_completed() {
        const PART: usize = 64 << 10;
        let mut outputs = WorkerOutputs::new();
        for seat in 0..50 {
            let output = WorkerOutput::over(Some(12), PipeReaders::default(), "www");
            outputs.insert(WorkerId { seat, incarnation: 1 }, output);
        }
        assert_eq!(longest_beyond_limit(&outputs), None);
        let mut completed = 0;
        for _ in 0..10 {
            for worker in outputs.keys().copied().collect::<Vec<_>>() {
                outputs.get_mut(&worker).unwrap().take(OutputStream::Stderr, &[b'x'; PART]);
                if let Some(longest) = longest_beyond_limit(&outputs) {
                    outputs.get_mut(&longest).unwrap().flush();
                    completed += 1;
                }
                let total: usize = outputs.values().map(WorkerOutput::unfinished).sum();
                assert!(total <= UNFINISHED_BYTES, "{total}");
            }
        }
        assert!(completed > 0);
        let texts = outputs.values_mut().flat_map(|output| {
            output.flush();
            output.messages()
        });
        let bytes: usize = texts.map(|message| message.text.len()).sum();
        assert_eq!(bytes, 50 * 10 * PART, "nothing is lost");
    }

    #[test]
    fn a_worker_is_drained_when_both_of_its_pipes_are() {
        let (mut output, ends) = WorkerOutput::new("www").expect("two pipes");
        output.attribute(12);
        assert!(output.is_drained(Moment::ZERO));
        rustix::io::write(&ends.stderr, b"last").expect("room");
        assert!(!output.is_drained(Moment::ZERO));
    }
}
