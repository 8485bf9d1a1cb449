//! Logging what a generation's processes print: each worker's own pipes where the server runs as
//! php-fpm, and the pool's pipe.

use std::os::fd::{AsFd, BorrowedFd};

use maitred_config::fpm::Level;
use maitred_control::{ToZygote, WorkerId};
use tracing::{error, warn};

use crate::limits::Moment;
use crate::logging::line_framing::OutputStream;
use crate::logging::tenant_pipe::PipeRead;
use crate::logging::worker_output::{self, PipeWriters, WorkerOutput, discard};
use crate::processes::pipe_orders::ReadReport;
use crate::processes::pools::Pools;
use crate::processes::running_pool::RunningPool;
use crate::system::deferred_close;

/// The end of a worker's last message, if the message was incomplete.
const CLOSED: &str = ", pipe is closed";

impl Pools {
    /// Logs how many lines of pools were dropped, where that is due.
    pub fn log_dropped(&mut self, now: Moment) {
        for running in self.iter_mut() {
            let lines = running.plan.output.dropped(now).into_iter().collect();
            running.log_lines(lines);
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
        if deferred_close::is_blocked(&settings.pool) {
            // That was logged. The worker serves all the same.
            return discard().ok();
        }
        match WorkerOutput::new(&settings.pool) {
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

    /// A worker was announced: its output can be attributed from now on. A false announcement
    /// attributes none: the output would have the end of another process, or none.
    pub fn attribute_output(&mut self, worker: WorkerId, pid: i32) {
        if !self.state.expects(worker, pid) {
            return;
        }
        if let Some(output) = self.outputs.get_mut(&worker) {
            output.attribute(pid);
        }
    }

    /// The pipes of its processes that can be polled, by their numbers.
    pub fn pipes(&self, now: Moment) -> impl Iterator<Item = (u64, BorrowedFd<'_>)> {
        let output = &self.plan.output;
        let own = output.listening(now).map(|pipe| (output.number(), pipe));
        own.into_iter().chain(self.outputs.values().flat_map(WorkerOutput::listening))
    }

    /// The pipes with one of these numbers are to be read.
    pub fn order_reads(&mut self, ready: &[u64]) -> Vec<PipeRead> {
        let output = &mut self.plan.output;
        let own = ready.contains(&output.number()).then(|| output.order());
        let of_workers = self.outputs.values_mut().flat_map(|output| output.order(ready));
        own.into_iter().chain(of_workers).collect()
    }

    /// A pipe was read: logs its output. False if it is none of these. `level` is php-fpm's
    /// `log_level`.
    pub fn take_read(&mut self, read: &ReadReport, level: Option<Level>, now: Moment) -> bool {
        if self.plan.output.number() == read.number {
            let lines = self.plan.output.take(&read.outcome, now);
            self.log_lines(lines);
            return true;
        }
        let mut outputs = self.outputs.iter_mut();
        let found = outputs.find_map(|(worker, output)| {
            output.take_read(read.number, &read.outcome).then_some(*worker)
        });
        if let Some(worker) = found {
            self.log_messages(worker, level);
        }
        if let Some(worker) = worker_output::longest_beyond_limit(&self.outputs) {
            self.flush_output(worker, level);
        }
        found.is_some()
    }

    /// Whether output of this worker, which has ended, is still to be read.
    pub fn awaits_output(&mut self, pid: i32, now: Moment) -> bool {
        let mut outputs = self.outputs.values_mut().filter(|output| output.pid() == Some(pid));
        outputs.any(|output| !output.is_drained(now))
    }

    /// Whether all output is read, now that its processes have ended.
    pub fn is_drained(&mut self, now: Moment) -> bool {
        let mut of_workers = self.outputs.values_mut();
        self.plan.output.is_drained(now) && of_workers.all(|output| output.is_drained(now))
    }

    /// When reading the rest of its output has taken too long, or lines that were dropped are due.
    pub fn output_deadline(&self, now: Moment) -> Option<Moment> {
        let of_workers = self.outputs.values().filter_map(WorkerOutput::deadline);
        of_workers.chain(self.plan.output.deadline(now)).min()
    }

    /// A worker has ended, and its output was read: logs its last message.
    pub fn end_output(&mut self, pid: i32, level: Option<Level>) {
        if let Some(worker) = self.worker_with_output(pid) {
            if let Some(output) = self.outputs.get_mut(&worker) {
                output.close();
            }
            self.log_messages(worker, level);
            self.outputs.remove(&worker);
        }
    }

    /// The server ends, and all output was read: logs unfinished lines.
    pub fn end_outputs(&mut self, level: Option<Level>, now: Moment) {
        let pids: Vec<i32> = self.outputs.values().filter_map(WorkerOutput::pid).collect();
        for pid in pids {
            self.end_output(pid, level);
        }
        let lines = self.plan.output.last_words(now);
        self.log_lines(lines);
    }

    /// Its zygote has ended: drops the outputs of workers that will never be our children, whatever
    /// process the zygote has announced. Those of its processes that are `held` are still being
    /// read.
    pub fn drop_outputs_without_worker(&mut self, held: &[i32]) {
        let state = &self.state;
        self.outputs.retain(|worker, output| {
            output.pid().is_some_and(|pid| state.has(*worker, pid) || held.contains(&pid))
        });
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
            self.flush_output(worker, level);
        }
    }

    fn flush_output(&mut self, worker: WorkerId, level: Option<Level>) {
        if let Some(output) = self.outputs.get_mut(&worker) {
            output.flush();
        }
        self.log_messages(worker, level);
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

    fn log_lines(&self, lines: Vec<String>) {
        for line in lines {
            warn!("pool {}: {line}", self.name());
        }
    }
}
