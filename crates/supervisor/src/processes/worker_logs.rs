//! Logging what a generation's processes print: each worker's own pipes where the server runs as
//! php-fpm, and the pool's pipe.

use std::os::fd::AsFd;

use maitred_config::fpm::Level;
use maitred_control::{ToZygote, WorkerId};
use tracing::{error, warn};

use crate::limits::Moment;
use crate::logging::line_framing::OutputStream;
use crate::logging::worker_output::{PipeWriters, WorkerOutput, discard};
use crate::processes::pools::{PoolId, Pools};
use crate::processes::running_pool::RunningPool;

/// The end of a worker's last message, if the message was incomplete.
const CLOSED: &str = ", pipe is closed";

/// The pipe of a worker.
#[derive(Debug, Clone, Copy)]
pub struct OutputRef {
    /// The generation of its pool.
    pub pool: PoolId,
    /// The worker.
    pub worker: WorkerId,
    /// Which of its pipes.
    pub stream: OutputStream,
}

impl Pools {
    /// Logs the output of workers from pipes that can be read. `level` is php-fpm's `log_level`.
    pub fn log_workers(&mut self, ready: &[OutputRef], level: Option<Level>) {
        for output in ready {
            self[output.pool].log_worker(output.worker, output.stream, level);
        }
    }

    /// Logs the output of pools; the pipes of those that are `ready` can be read.
    pub fn log_outputs(&mut self, ready: &[PoolId], now: Moment) {
        for running in self.iter_mut() {
            let is_ready = ready.contains(&running.id());
            running.log_output(is_ready, now);
        }
    }
}

impl RunningPool {
    /// Orders a worker for a seat, with pipes for its output where that is caught.
    pub fn order_worker(&mut self, worker: WorkerId) {
        let writers = self.output_for(worker);
        let Some(zygote) = &mut self.zygote else {
            return;
        };
        let order = ToZygote::FillSeat { worker };
        match &writers {
            Some(writers) => zygote.say(order, &[writers.stdout.as_fd(), writers.stderr.as_fd()]),
            None => zygote.say(order, &[]),
        }
    }

    fn output_for(&mut self, worker: WorkerId) -> Option<PipeWriters> {
        let settings = &self.plan.settings;
        if !settings.fpm {
            return None;
        }
        if !settings.output.as_ref().is_some_and(|output| output.caught) {
            return discard().ok();
        }
        match WorkerOutput::new() {
            Ok((output, writers)) => {
                self.outputs.insert(worker, output);
                Some(writers)
            }
            Err(why) => {
                let pool = &settings.pool;
                error!(
                    target: "fpm",
                    "[pool {pool}] failed to prepare the stdout pipe: {why}; what the next child \
                     says is lost; raise rlimit_files"
                );
                discard().ok()
            }
        }
    }

    /// A worker was announced: its output can be attributed from now on.
    pub fn attribute_output(&mut self, worker: WorkerId, pid: i32) {
        if let Some(output) = self.outputs.get_mut(&worker) {
            output.attribute(pid);
        }
    }

    /// Reads and logs a worker's output. `level` is php-fpm's `log_level`.
    fn log_worker(&mut self, worker: WorkerId, stream: OutputStream, level: Option<Level>) {
        if let Some(output) = self.outputs.get_mut(&worker) {
            output.hear(stream);
            self.log_messages(worker, level);
        }
    }

    /// A worker has ended: logs the rest of its output.
    pub fn end_output(&mut self, pid: i32, level: Option<Level>) {
        if let Some(worker) = self.worker_with_output(pid) {
            if let Some(output) = self.outputs.get_mut(&worker) {
                output.hear_last_words();
            }
            self.log_messages(worker, level);
            self.outputs.remove(&worker);
        }
    }

    /// The server ends: logs the rest of all output.
    pub fn end_outputs(&mut self, level: Option<Level>, now: Moment) {
        let pids: Vec<i32> = self.outputs.values().filter_map(WorkerOutput::pid).collect();
        for pid in pids {
            self.end_output(pid, level);
        }
        let lines = self.plan.output.last_words(now);
        self.log_lines(lines);
    }

    /// No process will be forked any more for outputs that were not attributed.
    pub fn drop_unattributed_outputs(&mut self) {
        self.outputs.retain(|_, output| output.pid().is_some());
    }

    /// Logs `lines` as a worker's standard error, if that is caught.
    pub fn log_for_worker(&mut self, pid: i32, lines: &str, level: Option<Level>) {
        if let Some(worker) = self.worker_with_output(pid) {
            if let Some(output) = self.outputs.get_mut(&worker) {
                output.take(OutputStream::Stderr, lines.as_bytes());
            }
            self.log_messages(worker, level);
        }
    }

    /// Logs incomplete messages: the next program starts without them.
    pub fn flush_outputs(&mut self, level: Option<Level>) {
        let workers: Vec<WorkerId> = self.outputs.keys().copied().collect();
        for worker in workers {
            if let Some(output) = self.outputs.get_mut(&worker) {
                output.flush();
            }
            self.log_messages(worker, level);
        }
    }

    fn worker_with_output(&self, pid: i32) -> Option<WorkerId> {
        let mut outputs = self.outputs.iter();
        let found = outputs.find(|(_, output)| output.pid() == Some(pid));
        found.map(|(worker, _)| *worker)
    }

    fn log_messages(&mut self, worker: WorkerId, level: Option<Level>) {
        let is_decorated = self.plan.pool.decorate_workers_output;
        // As php-fpm: decorated lines are warnings, which a higher log level would hide.
        let is_decorated = is_decorated && level.is_none_or(|level| level <= Level::Warning);
        let pool = &self.plan.settings.pool;
        let Some(output) = self.outputs.get_mut(&worker) else {
            return;
        };
        let pid = output.pid().unwrap_or(0);
        for message in output.messages() {
            let text = &message.text[..];
            if is_decorated {
                let name = message.stream.name();
                let who = format!("[pool {pool}] child {pid} said into {name}: ");
                let ending = if message.is_cut_off { CLOSED } else { "" };
                warn!(target: "fpm::said", who = who.as_str(), text, ending);
            } else {
                error!(target: "fpm::bare", text);
            }
        }
    }

    /// Reads the pool's pipe if it `is_ready`, and logs its lines.
    fn log_output(&mut self, is_ready: bool, now: Moment) {
        let output = &mut self.plan.output;
        let mut lines = if is_ready { output.lines(now) } else { Vec::new() };
        lines.extend(output.dropped(now));
        self.log_lines(lines);
    }

    fn log_lines(&self, lines: Vec<String>) {
        for line in lines {
            warn!("pool {}: {line}", self.name());
        }
    }
}
