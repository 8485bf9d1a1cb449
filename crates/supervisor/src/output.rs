//! What workers print when the server runs as php-fpm: two pipes for each worker of a pool with
//! `catch_workers_output`, read here and logged in php-fpm's form ([`crate::speech`]); otherwise it
//! is lost.
//!
//! A worker that prints faster than is read waits, as with php-fpm, so that nothing is lost. It
//! never waits for long: a pipe is read in every turn of the supervisor, which waits for no worker.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{SystemTime, UNIX_EPOCH};

use maitred_config::LogTarget;
use maitred_config::fpm::Level;
use maitred_control::{Incarnation, Seat, ToZygote};
use maitred_os::clock::local_time;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tracing::{error, warn};

use crate::run::Supervisor;
use crate::slowlog::stamp;
use crate::speech::{Decoration, Form, Source, Speech};
use crate::wait::Ready;

/// Most bytes taken from a pipe in one turn: what the kernel keeps in it.
const TURN_BYTES: usize = 64 * 1024;

/// Most bytes of a worker's last words that are logged.
const LAST_WORDS_BYTES: usize = 1 << 20;

/// Which worker.
pub(crate) type Key = (Seat, Incarnation);

/// The workers of a generation whose output is caught.
pub(crate) type Outputs = BTreeMap<Key, Output>;

/// The pipes of a worker.
#[derive(Debug)]
pub(crate) struct Output {
    /// The worker, once it has been announced.
    pid: Option<i32>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    speech: Option<Speech>,
}

/// The ends that a worker writes to: its standard output and error.
type Ends = (OwnedFd, OwnedFd);

impl Output {
    /// The pipes of a worker that is to be forked, and its ends of them.
    fn new() -> io::Result<(Output, Ends)> {
        let pipe = || -> io::Result<(OwnedFd, OwnedFd)> {
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
            rustix::io::ioctl_fionbio(&reader, true)?;
            Ok((reader, writer))
        };
        let (stdout, stderr) = (pipe()?, pipe()?);
        let output = Output::over(None, (Some(stdout.0), Some(stderr.0)));
        Ok((output, (stdout.1, stderr.1)))
    }

    /// Pipes that are there already.
    pub(crate) fn over(
        pid: Option<i32>,
        (stdout, stderr): (Option<OwnedFd>, Option<OwnedFd>),
    ) -> Output {
        Output {
            pid,
            stdout,
            stderr,
            speech: None,
        }
    }

    /// Whether its worker has been announced.
    pub(crate) fn is_known(&self) -> bool {
        self.pid.is_some()
    }

    /// The numbers of its descriptors, if its worker is known.
    pub(crate) fn descriptors(&self) -> Option<(Option<RawFd>, Option<RawFd>)> {
        self.pid?;
        let number = |pipe: &Option<OwnedFd>| pipe.as_ref().map(AsRawFd::as_raw_fd);
        Some((number(&self.stdout), number(&self.stderr)))
    }

    /// What to wait on: nothing as long as nobody knows whose words they are.
    pub(crate) fn listening(&self) -> impl Iterator<Item = (Source, BorrowedFd<'_>)> {
        let known = self.pid.is_some();
        let pipes = [
            (Source::Stdout, &self.stdout),
            (Source::Stderr, &self.stderr),
        ];
        let pipes = pipes.into_iter().filter(move |_| known);
        pipes.filter_map(|(source, pipe)| Some((source, pipe.as_ref()?.as_fd())))
    }

    /// Reads from a pipe what one turn takes. False when nothing is there any more.
    fn hear(&mut self, source: Source, form: &Form, lines: &mut Vec<Vec<u8>>) -> bool {
        let pipe = match source {
            Source::Stdout => &mut self.stdout,
            Source::Stderr => &mut self.stderr,
        };
        let Some(reader) = pipe else {
            return false;
        };
        let mut bytes = vec![0; TURN_BYTES];
        let speech = self.speech.get_or_insert_with(|| Speech::new(form.clone()));
        match rustix::io::read(reader, &mut bytes) {
            Ok(0) => {
                *pipe = None;
                lines.extend(speech.close());
                false
            }
            Ok(count) => {
                lines.extend(speech.say(source, &bytes[..count]));
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => false,
            Err(why) => {
                let pid = self.pid.unwrap_or(0);
                let name = format!("{source:?}").to_lowercase();
                error!(target: "fpm", "unable to read what child {pid} said into {name}: {why}");
                *pipe = None;
                false
            }
        }
    }

    /// Reads what a worker that has gone left behind.
    fn last_words(&mut self, form: &Form) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        for source in [Source::Stdout, Source::Stderr] {
            let turns = LAST_WORDS_BYTES / TURN_BYTES;
            // A process that the worker has left may hold the pipe and go on.
            (0..turns).any(|_| !self.hear(source, form, &mut lines));
        }
        if let Some(speech) = &mut self.speech {
            lines.extend(speech.close());
        }
        lines
    }
}

impl Supervisor {
    /// Orders a worker for a seat, with pipes for what it will print or nowhere for it to go.
    pub(crate) fn fill(&mut self, index: usize, key: Key) {
        let (seat, incarnation) = key;
        let ends = self.ends_for(index, key);
        let running = &mut self.pools[index];
        let Some(zygote) = &mut running.zygote else {
            return;
        };
        let order = ToZygote::FillSeat { seat, incarnation };
        match &ends {
            Some((stdout, stderr)) => zygote.peer.say(order, &[stdout.as_fd(), stderr.as_fd()]),
            None => zygote.peer.say(order, &[]),
        }
    }

    fn ends_for(&mut self, index: usize, key: Key) -> Option<Ends> {
        let plan = &self.pools[index].plan;
        let (pool, output) = (&plan.settings.pool, plan.settings.output.as_ref()?);
        let caught = output.caught.then(Output::new);
        let failed = match caught {
            Some(Ok((output, ends))) => {
                self.pools[index].outputs.insert(key, output);
                return Some(ends);
            }
            Some(Err(why)) => Some(why),
            None => None,
        };
        if let Some(why) = failed {
            error!(
                target: "fpm",
                "[pool {pool}] failed to prepare the stdout pipe: {why}; what the next child says \
                 is lost; raise rlimit_files"
            );
        }
        nowhere().ok()
    }

    /// A worker has been announced: its words are its own from now on.
    pub(crate) fn output_is_of(&mut self, index: usize, key: Key, pid: i32) {
        if let Some(output) = self.pools[index].outputs.get_mut(&key) {
            output.pid = Some(pid);
        }
    }

    /// Logs what workers have printed.
    pub(crate) fn hear_outputs(&mut self, ready: &Ready) {
        for &(index, key, source) in &ready.outputs {
            let mut lines = Vec::new();
            if let Some((output, form)) = self.output(index, key) {
                output.hear(source, &form, &mut lines);
            }
            self.log_output(index, lines);
        }
    }

    /// A worker has gone, or will never come: logs its last words.
    pub(crate) fn end_output(&mut self, index: usize, pid: i32) {
        let outputs = &self.pools[index].outputs;
        let key = outputs.iter().find(|(_, output)| output.pid == Some(pid));
        let Some(key) = key.map(|(key, _)| *key) else {
            return;
        };
        let lines = self
            .output(index, key)
            .map(|(output, form)| output.last_words(&form));
        self.pools[index].outputs.remove(&key);
        self.log_output(index, lines.unwrap_or_default());
    }

    /// Logs what is left of everybody's words, as when this program ends or becomes another.
    pub(crate) fn end_outputs(&mut self) {
        for index in 0..self.pools.len() {
            let outputs = &self.pools[index].outputs;
            let pids: Vec<i32> = outputs.values().filter_map(|output| output.pid).collect();
            for pid in pids {
                self.end_output(index, pid);
            }
        }
    }

    fn output(&mut self, index: usize, key: Key) -> Option<(&mut Output, Form)> {
        let fpm = self.plan.config.fpm.as_ref()?;
        let running = &mut self.pools[index];
        let output = running.outputs.get_mut(&key)?;
        let pid = output.pid?;
        let is_decorated = running.plan.pool.decorate_workers_output;
        // As php-fpm: words that are no warning any more go without their decoration.
        let is_decorated = is_decorated && fpm.log_level <= Level::Warning;
        let form = Form {
            limit: fpm.log_limit,
            decoration: is_decorated.then(|| Decoration {
                stamp_bytes: level_stamp(fpm.log_level).len(),
                pool: running.plan.settings.pool.clone(),
                pid,
            }),
        };
        Some((output, form))
    }

    fn log_output(&self, index: usize, lines: Vec<Vec<u8>>) {
        let Some(fpm) = self.plan.config.fpm.as_ref().filter(|_| !lines.is_empty()) else {
            return;
        };
        if self.plan.config.error_log == LogTarget::Syslog {
            for line in &lines {
                warn!(target: "fpm", "{}", String::from_utf8_lossy(line));
            }
            return;
        }
        let is_decorated = self.pools[index].plan.pool.decorate_workers_output;
        let stamp = match is_decorated && fpm.log_level <= Level::Warning {
            true => level_stamp(fpm.log_level),
            false => String::new(),
        };
        for line in &lines {
            let line = [stamp.as_bytes(), line, b"\n"].concat();
            // A log that cannot be written must not stop the server it is about.
            let _ = io::stderr().write_all(&line);
        }
    }
}

/// Time and level as php-fpm's log has them.
fn level_stamp(level: Level) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default();
    let time = i64::try_from(now.as_secs()).ok().and_then(local_time);
    let stamp = stamp(time);
    let Some(inner) = stamp.strip_suffix(']').filter(|_| level == Level::Debug) else {
        return format!("{stamp} WARNING: ");
    };
    let (micros, pid) = (now.subsec_micros(), std::process::id());
    format!("{inner}.{micros:06}] WARNING: pid {pid}, fpm_stdio_child_said(), line 0: ")
}

/// Where words are lost.
fn nowhere() -> io::Result<Ends> {
    let null = rustix::fs::open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok((null.try_clone()?, null))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form() -> Form {
        Form {
            limit: 1024,
            decoration: None,
        }
    }

    #[test]
    fn nobody_listens_before_it_is_known_whose_words_they_are() {
        let (mut output, _ends) = Output::new().expect("two pipes");
        assert_eq!(output.listening().count(), 0);
        output.pid = Some(12);
        assert_eq!(output.listening().count(), 2);
    }

    #[test]
    fn last_words_are_heard_though_somebody_holds_the_pipe() {
        let (mut output, ends) = Output::new().expect("two pipes");
        rustix::io::write(&ends.0, b"out").expect("room");
        rustix::io::write(&ends.1, b"one\ntwo").expect("room");
        let lines = output.last_words(&form());
        assert_eq!(lines, [&b"out"[..], b"one", b"two"]);
    }

    #[test]
    fn a_pipe_that_is_closed_is_waited_for_no_more() {
        let (mut output, ends) = Output::new().expect("two pipes");
        output.pid = Some(12);
        drop(ends.0);
        assert!(!output.hear(Source::Stdout, &form(), &mut Vec::new()));
        assert_eq!(output.listening().count(), 1);
    }

    #[test]
    fn the_stamp_has_the_length_of_php_fpms() {
        assert_eq!(level_stamp(Level::Notice).len(), 32);
        let debug = level_stamp(Level::Debug);
        assert!(debug.contains("] WARNING: pid "), "{debug}");
    }
}
