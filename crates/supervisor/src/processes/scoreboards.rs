//! The pools' scoreboards, by the name of the pool, which outlive all processes of it; and the
//! counts of workers.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use maitred_control::{Wear, WorkerId, exit};
use maitred_os::fork::HowEnded;
use maitred_os::signals::Signal;
use maitred_scoreboard::{Cause, Counter, Page, WaitCounts};

use crate::error::Error;
use crate::processes::application_memory::ApplicationMemories;
use crate::processes::running_pool::RunningPool;

/// The signals that we send (signal(7)).
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// All scoreboards, and why workers that are still running are to end.
#[derive(Debug)]
pub struct Scoreboards {
    threads: u32,
    pages: BTreeMap<String, Page>,
    /// What the applications of pools count themselves.
    pub applications: ApplicationMemories,
    /// By process id.
    leaving: HashMap<i32, Cause>,
}

impl Scoreboards {
    /// No scoreboards yet, for a front of `threads` threads.
    pub fn new(threads: u32) -> Scoreboards {
        let (pages, leaving) = (BTreeMap::new(), HashMap::new());
        Scoreboards { threads, pages, applications: ApplicationMemories::default(), leaving }
    }

    /// The scoreboards that the previous program has handed over, by pool. One of another version
    /// is dropped: counting starts again.
    pub fn inherited(threads: u32, left: Vec<(String, OwnedFd)>) -> Scoreboards {
        let mut scores = Scoreboards::new(threads);
        for (pool, file) in left {
            if let Ok(page) = Page::open(file) {
                page.workers().forget_shown();
                page.workers().show_waits(WaitCounts::default());
                scores.pages.insert(pool, page);
            }
        }
        scores
    }

    /// The descriptors of all scoreboards, by pool.
    pub fn descriptors(&self) -> Vec<(String, RawFd)> {
        let pages = self.pages.iter();
        pages.map(|(pool, page)| (pool.clone(), page.as_fd().as_raw_fd())).collect()
    }

    /// Creates the scoreboards of these pools, where there is none.
    ///
    /// # Errors
    /// If the system is out of descriptors or memory.
    pub fn add_all<'n>(&mut self, pools: impl Iterator<Item = &'n str>) -> Result<(), Error> {
        for pool in pools {
            let what = "a pool's scoreboard could not be made";
            self.add(pool).map_err(Error::system(what))?;
        }
        Ok(())
    }

    /// Creates the scoreboard of a pool, if there is none.
    ///
    /// # Errors
    /// If the system is out of descriptors or memory.
    pub fn add(&mut self, pool: &str) -> io::Result<()> {
        if !self.pages.contains_key(pool) {
            let page = Page::create(pool, self.threads)?;
            self.pages.insert(pool.to_owned(), page);
        }
        Ok(())
    }

    /// Removes the scoreboard of a removed pool.
    pub fn forget(&mut self, pool: &str) {
        self.pages.remove(pool);
        self.applications.forget(pool);
    }

    /// The scoreboard of a pool.
    pub fn page(&self, pool: &str) -> Option<&Page> {
        self.pages.get(pool)
    }

    /// The scoreboards of all pools.
    pub fn pages(&self) -> impl Iterator<Item = &Page> {
        self.pages.values()
    }

    /// Front number `epoch` starts, or has ended: it has no waiting and no running request.
    pub fn clear_front(&self, epoch: u32) {
        self.pages.values().for_each(|page| page.clear_front(epoch));
    }

    /// Adds an event to a counter of a pool.
    pub fn count(&self, pool: &str, counter: Counter) {
        if let Some(page) = self.page(pool) {
            page.workers().add(counter);
        }
    }

    /// A worker is to be ended. The first cause counts: a worker that is killed because it did not
    /// leave has still left for the first reason.
    pub fn leaves(&mut self, pid: i32, cause: Cause) {
        self.leaving.entry(pid).or_insert(cause);
    }

    /// Why a worker is to be ended, if the supervisor ends it.
    pub fn cause(&self, pid: i32) -> Option<Cause> {
        self.leaving.get(&pid).copied()
    }

    /// Ends a worker with a signal, for a cause that is counted.
    pub fn end_worker(&mut self, running: &RunningPool, pid: i32, cause: Cause, signal: Signal) {
        self.leaves(pid, cause);
        running.signal_worker(pid, signal);
    }

    /// A worker is to be replaced, and the front has reported why.
    pub fn wears(&mut self, running: &RunningPool, worker: WorkerId, why: Wear) {
        let cause = match why {
            Wear::Requests => Cause::MaxRequests,
            Wear::Memory => Cause::MaxPrivateMemory,
            Wear::Grown => Cause::Grown,
        };
        if let Some(pid) = running.state.pid_of(worker) {
            self.leaves(pid, cause);
        }
    }

    /// Shows how many workers of a generation sit in seats, and how many are starting.
    pub fn show_workers(&self, running: &mut RunningPool) {
        let seated = running.state.seated().count() as u64;
        let now = (seated, running.state.coming() as u64);
        if let Some(page) = self.page(running.name()).filter(|_| running.shown != now) {
            page.workers().show(running.shown, now);
            running.shown = now;
        }
    }

    /// A worker of a pool has ended; `stopping`: with the whole server. Returns why, if the
    /// supervisor has ended it.
    pub fn ended(&mut self, pool: &str, pid: i32, how: HowEnded, stopping: bool) -> Option<Cause> {
        let noted = self.leaving.remove(&pid).or(stopping.then_some(Cause::Stop));
        if let Some(page) = self.page(pool) {
            let (cause, signal) = cause_of(noted, how);
            page.workers().ended(cause, signal);
        }
        noted
    }
}

/// The cause of the end of a worker that was `noted` before, and a signal that the supervisor has
/// not sent. A worker that crashed while it was to leave has crashed.
fn cause_of(noted: Option<Cause>, how: HowEnded) -> (Cause, Option<i32>) {
    match (noted, how) {
        (Some(cause @ (Cause::Terminated | Cause::Stop)), _)
        | (Some(cause), HowEnded::Exited(exit::RECYCLED))
        | (Some(cause), HowEnded::Signaled(SIGTERM | SIGKILL)) => (cause, None),
        (_, HowEnded::Signaled(signal)) => (Cause::Signal, Some(signal)),
        (_, HowEnded::Exited(exit::RECYCLED | exit::RENEW)) => (Cause::MaxRequests, None),
        (_, HowEnded::Exited(exit::BAILOUT)) => (Cause::Bailout, None),
        (_, HowEnded::Exited(_)) => (Cause::Failed, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_was_asked_to_leave_has_left_for_that_reason_however_it_ended() {
        let mut scores = Scoreboards::new(1);
        scores.add("www").unwrap();
        scores.leaves(7, Cause::Idle);
        scores.leaves(7, Cause::Terminated);
        scores.leaves(6, Cause::Idle);
        scores.ended("www", 6, HowEnded::Signaled(11), false);
        scores.ended("www", 7, HowEnded::Signaled(9), false);
        scores.ended("www", 7, HowEnded::Signaled(9), false);
        scores.ended("www", 8, HowEnded::Exited(exit::BAILOUT), false);
        scores.ended("www", 9, HowEnded::Exited(0), false);
        scores.ended("www", 10, HowEnded::Exited(255), false);
        scores.ended("www", 11, HowEnded::Exited(0), true);
        scores.add("www").unwrap();
        let read = scores.page("www").unwrap().read();
        let counted = |cause| read.ended[cause as usize];
        assert_eq!((counted(Cause::Idle), counted(Cause::Terminated)), (1, 0));
        assert_eq!((counted(Cause::Signal), read.signals.len()), (2, 2));
        assert_eq!((counted(Cause::Bailout), counted(Cause::MaxRequests)), (1, 1));
        assert_eq!((counted(Cause::Failed), counted(Cause::Stop)), (1, 1));
    }
}
