//! The scoreboards by the name of the pool: they outlive every process of it.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use maitred_control::{Incarnation, Seat, Wear, exit};
use maitred_os::fork::HowEnded;
use maitred_scoreboard::{Cause, Counter, Page};

use crate::error::Error;

/// The signals that we send (signal(7)).
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// All scoreboards, and the reasons for which workers that still run will exit.
#[derive(Debug)]
pub struct Scores {
    threads: u32,
    pages: BTreeMap<String, Page>,
    /// By process id.
    leaving: HashMap<i32, Cause>,
}

impl Scores {
    /// No scoreboards yet, for a front of `threads` threads.
    pub fn new(threads: u32) -> Scores {
        Scores {
            threads,
            pages: BTreeMap::new(),
            leaving: HashMap::new(),
        }
    }

    /// The scoreboards of the previous program, by pool. Those of a version with other counters are
    /// left out: their counters restart from 0.
    pub fn inherited(threads: u32, left: Vec<(String, OwnedFd)>) -> Scores {
        let mut scores = Scores::new(threads);
        for (pool, file) in left {
            if let Ok(page) = Page::open(file) {
                page.workers().forget_shown();
                scores.pages.insert(pool, page);
            }
        }
        scores
    }

    /// The descriptors of all scoreboards, by pool.
    pub fn descriptors(&self) -> Vec<(String, RawFd)> {
        let pages = self.pages.iter();
        pages
            .map(|(pool, page)| (pool.clone(), page.as_fd().as_raw_fd()))
            .collect()
    }

    /// Creates the missing scoreboards of these pools.
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

    /// Creates the scoreboard of a pool, if it has none.
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
    }

    /// The scoreboard of a pool.
    pub fn page(&self, pool: &str) -> Option<&Page> {
        self.pages.get(pool)
    }

    /// The scoreboards of all pools.
    pub fn pages(&self) -> impl Iterator<Item = &Page> {
        self.pages.values()
    }

    /// Front number `epoch` starts, or has exited: its queues are empty.
    pub fn clear_front(&self, epoch: u32) {
        self.pages.values().for_each(|page| page.clear_front(epoch));
    }

    /// Sets the seated and starting workers of a generation of a pool; `shown` are the previous
    /// numbers.
    pub fn show_workers(&self, pool: &str, shown: &mut (u64, u64), seated: usize, coming: usize) {
        let now = (seated as u64, coming as u64);
        if let Some(page) = self.page(pool).filter(|_| *shown != now) {
            page.workers().show(*shown, now);
            *shown = now;
        }
    }

    /// Adds an event to a counter of a pool.
    pub fn count(&self, pool: &str, counter: Counter) {
        if let Some(page) = self.page(pool) {
            page.workers().add(counter);
        }
    }

    /// Notes why a worker will exit. The first reason counts: a worker that is killed because it
    /// ignored its order to exit has still exited for the first one.
    pub fn leaves(&mut self, pid: i32, cause: Cause) {
        self.leaving.entry(pid).or_insert(cause);
    }

    /// The noted reason why a worker will exit.
    pub fn cause(&self, pid: i32) -> Option<Cause> {
        self.leaving.get(&pid).copied()
    }

    /// Counts a worker of a pool that has exited; `stopping`: with the whole server. Returns the noted
    /// reason.
    pub fn ended(&mut self, pool: &str, pid: i32, how: HowEnded, stopping: bool) -> Option<Cause> {
        let noted = self
            .leaving
            .remove(&pid)
            .or(stopping.then_some(Cause::Stop));
        if let Some(page) = self.page(pool) {
            let (cause, signal) = cause_of(noted, how);
            page.workers().ended(cause, signal);
        }
        noted
    }
}

impl crate::run::Supervisor {
    /// The front reports that a worker has reached `max_requests` or its memory limit.
    pub(crate) fn note_wear(
        &mut self,
        index: usize,
        seat: Seat,
        incarnation: Incarnation,
        why: Wear,
    ) {
        let cause = match why {
            Wear::Requests => Cause::MaxRequests,
            Wear::Memory => Cause::MaxPrivateMemory,
            Wear::Grown => Cause::Grown,
        };
        let mut seated = self.pools[index].pool.seated();
        let worn = seated.find(|one| one.seat == seat && one.incarnation == incarnation);
        if let Some(worn) = worn {
            self.scores.leaves(worn.pid, cause);
        }
    }
}

/// Why a worker exited for which this was `noted`, and the signal that killed it and that we did not
/// send. A worker that crashed on its way out has crashed.
fn cause_of(noted: Option<Cause>, how: HowEnded) -> (Cause, Option<i32>) {
    match (noted, how) {
        (Some(cause @ (Cause::Terminated | Cause::Stop)), _)
        | (Some(cause), HowEnded::Exited(exit::RECYCLED) | HowEnded::Signaled(SIGTERM | SIGKILL)) => {
            (cause, None)
        }
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
        let mut scores = Scores::new(1);
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
        assert_eq!(
            (counted(Cause::Bailout), counted(Cause::MaxRequests)),
            (1, 1)
        );
        assert_eq!((counted(Cause::Failed), counted(Cause::Stop)), (1, 1));
    }
}
