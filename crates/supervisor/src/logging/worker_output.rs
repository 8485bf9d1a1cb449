//! What workers print when the server runs as php-fpm: two pipes for each worker of a pool with
//! `catch_workers_output`, read here, made into messages ([`crate::logging::line_framing`]) and handed to the log,
//! which writes `fpm::said` as php-fpm writes it and `fpm::bare` as it is; otherwise it is lost.
//!
//! A worker that prints faster than is read waits, as with php-fpm, so that nothing is lost. It
//! never waits for long: a pipe is read in every turn of the supervisor, which waits for no worker.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use maitred_config::fpm::Level;
use maitred_control::{ToZygote, WorkerId};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tracing::{error, warn};

use crate::logging::line_framing::{LineFramer, OutputStream};
use crate::processes::pools::PoolId;
use crate::run::Supervisor;
use crate::run::wait::Ready;

/// Most bytes taken from a pipe in one turn: all else waits for it to end.
const TURN_BYTES: usize = 8 * 1024;

/// Most bytes of a worker's last words that are logged: what the kernel keeps in a pipe. What it left
/// behind may go on filling it.
const LAST_WORDS_BYTES: usize = 64 * 1024;

/// What the last message of a worker ends with that had not completed it.
const CLOSED: &str = ", pipe is closed";

/// Which worker.
pub type Key = WorkerId;

/// The workers of a generation whose output is caught.
pub type WorkerOutputs = BTreeMap<Key, WorkerOutput>;

/// The pipes of a worker.
#[derive(Debug)]
pub struct WorkerOutput {
    /// The worker, once it has been announced.
    pid: Option<i32>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    speech: LineFramer,
}

/// The ends that a worker writes to: its standard output and error.
type Ends = (OwnedFd, OwnedFd);

impl WorkerOutput {
    /// The pipes of a worker that is to be forked, and its ends of them.
    fn new() -> io::Result<(WorkerOutput, Ends)> {
        let pipe = || -> io::Result<(OwnedFd, OwnedFd)> {
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
            rustix::io::ioctl_fionbio(&reader, true)?;
            Ok((reader, writer))
        };
        let (stdout, stderr) = (pipe()?, pipe()?);
        let output = WorkerOutput::over(None, (Some(stdout.0), Some(stderr.0)));
        Ok((output, (stdout.1, stderr.1)))
    }

    /// Pipes that are there already.
    pub fn over(
        pid: Option<i32>,
        (stdout, stderr): (Option<OwnedFd>, Option<OwnedFd>),
    ) -> WorkerOutput {
        WorkerOutput {
            pid,
            stdout,
            stderr,
            speech: LineFramer::default(),
        }
    }

    /// Whether its worker has been announced.
    pub fn is_known(&self) -> bool {
        self.pid.is_some()
    }

    /// The numbers of its descriptors, if its worker is known.
    pub fn descriptors(&self) -> Option<(Option<RawFd>, Option<RawFd>)> {
        self.pid?;
        let number = |pipe: &Option<OwnedFd>| pipe.as_ref().map(AsRawFd::as_raw_fd);
        Some((number(&self.stdout), number(&self.stderr)))
    }

    /// What to wait on: nothing as long as nobody knows whose words they are.
    pub fn listening(&self) -> impl Iterator<Item = (OutputStream, BorrowedFd<'_>)> {
        let known = self.pid.is_some();
        let pipes = [
            (OutputStream::Stdout, &self.stdout),
            (OutputStream::Stderr, &self.stderr),
        ];
        let pipes = pipes.into_iter().filter(move |_| known);
        pipes.filter_map(|(source, pipe)| Some((source, pipe.as_ref()?.as_fd())))
    }

    /// Reads from a pipe what one turn takes. False when nothing is there any more.
    fn hear(&mut self, source: OutputStream) -> bool {
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
                self.speech.close();
                false
            }
            Ok(count) => {
                self.speech.say(source, &bytes[..count]);
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

    /// Reads what a worker that has gone left behind.
    fn hear_last_words(&mut self) {
        for source in [OutputStream::Stdout, OutputStream::Stderr] {
            // A process that the worker has left may hold the pipe and go on.
            for _ in 0..LAST_WORDS_BYTES / TURN_BYTES {
                if !self.hear(source) {
                    break;
                }
            }
        }
        self.speech.close();
    }
}

impl Supervisor {
    /// Orders a worker for a seat, with pipes for what it will print or nowhere for it to go.
    pub fn fill(&mut self, id: PoolId, worker: WorkerId) {
        let ends = self.ends_for(id, worker);
        let running = &mut self.pools[id];
        let Some(zygote) = &mut running.zygote else {
            return;
        };
        let order = ToZygote::FillSeat { worker };
        match &ends {
            Some((stdout, stderr)) => zygote.peer.say(order, &[stdout.as_fd(), stderr.as_fd()]),
            None => zygote.peer.say(order, &[]),
        }
    }

    fn ends_for(&mut self, id: PoolId, key: Key) -> Option<Ends> {
        let plan = &self.pools[id].plan;
        if !plan.settings.fpm {
            return None;
        }
        let output = plan.settings.output.as_ref();
        if !output.is_some_and(|output| output.caught) {
            return nowhere().ok();
        }
        match WorkerOutput::new() {
            Ok((output, ends)) => {
                self.pools[id].outputs.insert(key, output);
                Some(ends)
            }
            Err(why) => {
                let pool = &plan.settings.pool;
                error!(
                    target: "fpm",
                    "[pool {pool}] failed to prepare the stdout pipe: {why}; what the next child \
                     says is lost; raise rlimit_files"
                );
                nowhere().ok()
            }
        }
    }

    /// A worker has been announced: its words are its own from now on.
    pub fn output_is_of(&mut self, id: PoolId, key: Key, pid: i32) {
        if let Some(output) = self.pools[id].outputs.get_mut(&key) {
            output.pid = Some(pid);
        }
    }

    /// Logs what workers have printed.
    pub fn hear_outputs(&mut self, ready: &Ready) {
        for &(id, key, source) in &ready.outputs {
            if let Some(output) = self.pools[id].outputs.get_mut(&key) {
                output.hear(source);
                self.log_output(id, key);
            }
        }
    }

    /// A worker has gone: logs its last words.
    pub fn end_output(&mut self, id: PoolId, pid: i32) {
        let mut outputs = self.pools[id].outputs.iter_mut();
        let output = outputs.find(|(_, output)| output.pid == Some(pid));
        if let Some((&key, output)) = output {
            output.hear_last_words();
            self.log_output(id, key);
            self.pools[id].outputs.remove(&key);
        }
    }

    /// Logs what is left of everybody's words: the server ends.
    pub fn end_outputs(&mut self) {
        for id in self.pools.ids() {
            let outputs = &self.pools[id].outputs;
            let pids: Vec<i32> = outputs.values().filter_map(|output| output.pid).collect();
            for pid in pids {
                self.end_output(id, pid);
            }
        }
    }

    /// Logs `lines` as if a worker had written them to its standard error, if that is caught.
    pub fn say_for_worker(&mut self, id: PoolId, pid: i32, lines: &str) {
        let mut outputs = self.pools[id].outputs.iter_mut();
        let Some((key, output)) = outputs.find(|(_, output)| output.pid == Some(pid)) else {
            return;
        };
        let key = *key;
        output.speech.say(OutputStream::Stderr, lines.as_bytes());
        self.log_output(id, key);
    }

    /// Logs what has been said so far: the next program begins without it.
    pub fn flush_outputs(&mut self) {
        for id in self.pools.ids() {
            let keys: Vec<Key> = self.pools[id].outputs.keys().copied().collect();
            for key in keys {
                if let Some(output) = self.pools[id].outputs.get_mut(&key) {
                    output.speech.flush();
                }
                self.log_output(id, key);
            }
        }
    }

    fn log_output(&mut self, id: PoolId, key: Key) {
        let level = self.plan.config.fpm.as_ref().map(|fpm| fpm.log_level);
        let running = &mut self.pools[id];
        let is_decorated = running.plan.pool.decorate_workers_output;
        // As php-fpm: what is no warning for anybody any more is shown for what it is.
        let is_decorated = is_decorated && level.is_none_or(|level| level <= Level::Warning);
        let pool = &running.plan.settings.pool;
        let Some(output) = running.outputs.get_mut(&key) else {
            return;
        };
        let pid = output.pid.unwrap_or(0);
        for message in output.speech.messages() {
            let text = &message.text[..];
            if is_decorated {
                let name = message.source.name();
                let who = format!("[pool {pool}] child {pid} said into {name}: ");
                let ending = if message.is_cut_off { CLOSED } else { "" };
                warn!(target: "fpm::said", who = who.as_str(), text, ending);
            } else {
                error!(target: "fpm::bare", text);
            }
        }
    }
}

/// Where words are lost.
fn nowhere() -> io::Result<Ends> {
    let null = rustix::fs::open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok((null.try_clone()?, null))
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
        rustix::io::write(&ends.0, b"out").expect("room");
        rustix::io::write(&ends.1, b"one\ntwo").expect("room");
        output.hear_last_words();
        let texts = output.speech.messages().into_iter();
        let texts: Vec<Vec<u8>> = texts.map(|message| message.text).collect();
        assert_eq!(texts, [&b"out"[..], b"one", b"two"]);
    }

    /// What the kernel keeps in a pipe, in bytes.
    const PIPE_BYTES: usize = 64 * 1024;

    #[test]
    fn a_pipe_that_is_full_is_read_in_many_turns() {
        let (mut output, ends) = WorkerOutput::new().expect("two pipes");
        rustix::io::write(&ends.1, &vec![b'x'; PIPE_BYTES]).expect("room");
        assert!(output.hear(OutputStream::Stderr));
        let reader = output.stderr.as_ref().expect("it is open");
        let left = rustix::io::ioctl_fionread(reader).expect("a pipe");
        assert!(left >= PIPE_BYTES as u64 / 8 * 7, "{left}");
    }

    #[test]
    fn last_words_end_though_there_is_always_something_to_hear() {
        let (mut output, ends) = WorkerOutput::new().expect("two pipes");
        // What a process writes that the worker has left behind, however fast it is.
        rustix::pipe::fcntl_setpipe_size(&ends.1, 8 * PIPE_BYTES).expect("a larger pipe");
        rustix::io::write(&ends.1, &b"x\n".repeat(4 * PIPE_BYTES)).expect("room");
        output.hear_last_words();
        let heard = output.speech.messages().len() * b"x\n".len();
        assert!(heard <= PIPE_BYTES, "{heard} bytes");
    }

    #[test]
    fn a_pipe_that_is_closed_is_waited_for_no_more() {
        let (mut output, ends) = WorkerOutput::new().expect("two pipes");
        output.pid = Some(12);
        drop(ends.0);
        assert!(!output.hear(OutputStream::Stdout));
        assert_eq!(output.listening().count(), 1);
    }
}
