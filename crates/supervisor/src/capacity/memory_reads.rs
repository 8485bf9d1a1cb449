//! Which private memory is counted next, and what happens if that takes too long. Pure: the process
//! that counts is in [`crate::capacity::memory_reader`].
//!
//! The kernel counts private pages under the memory lock of the process, which its owner can hold
//! for as long as they like: with a file system in user space that does not respond, for example.
//! So an order to count has [`COUNT_TIMEOUT`]. If that of several pools is late, each of them is
//! counted alone; a pool that is late alone is not counted for [`UNCOUNTED_FOR`], and its memory is
//! that of `statm`, which takes no lock.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use maitred_control::memory_reader::{COUNTED_AT_ONCE, CountedMemory};

use crate::limits::{
    COUNT_TIMEOUT, COUNT_TIMEOUTS_MOST, COUNT_TIMEOUTS_PERIOD, COUNTS_QUEUED, Moment, UNCOUNTED_FOR,
};

/// A process whose memory is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedMemory {
    /// Its pool.
    pub pool: String,
    /// Its process id.
    pub pid: i32,
}

/// How a process is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// By its pages: a [`MemoryReading`] follows.
    Later,
    /// By `statm`, now.
    Roughly,
}

/// The outcome of counting the pages of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryReading {
    /// Its process id.
    pub pid: i32,
    /// The outcome.
    pub outcome: CountOutcome,
}

/// What is known of the pages of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountOutcome {
    /// Their count.
    Counted(CountedMemory),
    /// Nothing: it has ended, or its pages may not be counted.
    Refused,
    /// Nothing: they were not counted in time.
    Late,
}

/// An order was late.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LateOrder {
    /// The pool that is not counted from now on.
    pub uncounted: Option<String>,
    /// Its processes.
    pub readings: Vec<MemoryReading>,
}

#[derive(Debug)]
struct CountOrder {
    wanted: Vec<WantedMemory>,
    until: Moment,
}

/// The processes whose memory is wanted.
#[derive(Debug, Default)]
pub struct MemoryReads {
    queue: VecDeque<WantedMemory>,
    order: Option<CountOrder>,
    /// The process ids of both.
    asked: HashSet<i32>,
    /// Pools that were counted together when that was late.
    suspects: BTreeSet<String>,
    /// Pools that are not counted, and until when.
    uncounted: BTreeMap<String, Moment>,
    /// When the first late order of the present period was, and how many there were since.
    late: Option<(Moment, u32)>,
}

impl MemoryReads {
    /// Has the pages of a process counted, unless those of its pool are not, or too many wait.
    pub fn ask(&mut self, wanted: WantedMemory, now: Moment) -> Asked {
        if self.asked.contains(&wanted.pid) {
            return Asked::Later;
        }
        if self.is_uncounted(&wanted.pool, now) || self.queue.len() >= COUNTS_QUEUED {
            return Asked::Roughly;
        }
        self.asked.insert(wanted.pid);
        self.queue.push_back(wanted);
        Asked::Later
    }

    /// Whether the pages of a pool are not counted.
    fn is_uncounted(&mut self, pool: &str, now: Moment) -> bool {
        self.uncounted.retain(|_, until| now < *until);
        self.late = self.late.filter(|(since, _)| now < *since + COUNT_TIMEOUTS_PERIOD);
        let are_too_many = self.late.is_some_and(|(_, count)| count >= COUNT_TIMEOUTS_MOST);
        are_too_many || self.uncounted.contains_key(pool)
    }

    /// Whether any process waits to be counted.
    pub fn are_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// When the present order is late.
    pub fn deadline(&self) -> Option<Moment> {
        self.order.as_ref().map(|order| order.until)
    }

    /// The next order, unless one is being carried out: process ids of pools that are not
    /// suspected, or else of one that is.
    pub fn next_order(&mut self, now: Moment) -> Option<Vec<i32>> {
        if self.order.is_some() {
            return None;
        }
        let suspect = match self.queue.iter().any(|one| !self.suspects.contains(&one.pool)) {
            true => None,
            false => Some(self.queue.front()?.pool.clone()),
        };
        let is_next = |one: &WantedMemory| match &suspect {
            Some(pool) => one.pool == *pool,
            None => !self.suspects.contains(&one.pool),
        };
        let (mut wanted, mut rest) = (Vec::new(), VecDeque::new());
        for one in self.queue.drain(..) {
            match wanted.len() < COUNTED_AT_ONCE && is_next(&one) {
                true => wanted.push(one),
                false => rest.push_back(one),
            }
        }
        self.queue = rest;
        let pids = wanted.iter().map(|one| one.pid).collect();
        self.order = Some(CountOrder { wanted, until: now + COUNT_TIMEOUT });
        Some(pids)
    }

    /// The first processes of the order were counted. `None`: there is no such order.
    pub fn counted(&mut self, memory: &[Option<CountedMemory>]) -> Option<Vec<MemoryReading>> {
        let mut order = self.order.take()?;
        if memory.is_empty() || memory.len() > order.wanted.len() {
            self.order = Some(order);
            return None;
        }
        let rest = order.wanted.split_off(memory.len());
        self.put_back(rest);
        for one in &order.wanted {
            self.suspects.remove(&one.pool);
            self.asked.remove(&one.pid);
        }
        let outcomes =
            memory.iter().map(|memory| memory.map_or(CountOutcome::Refused, CountOutcome::Counted));
        let pids = order.wanted.iter().map(|one| one.pid);
        Some(pids.zip(outcomes).map(|(pid, outcome)| MemoryReading { pid, outcome }).collect())
    }

    /// The order is late: the process that carries it out is stuck.
    pub fn order_timed_out(&mut self, now: Moment) -> LateOrder {
        let Some(CountOrder { wanted, .. }) = self.order.take() else {
            return LateOrder::default();
        };
        let (since, count) = self.late.unwrap_or((now, 0));
        self.late = Some((since, count.saturating_add(1)));
        let pools: BTreeSet<String> = wanted.iter().map(|one| one.pool.clone()).collect();
        if pools.len() > 1 {
            self.suspects.extend(pools);
            self.put_back(wanted);
            return LateOrder::default();
        }
        let uncounted = pools.into_iter().next();
        let mut all: Vec<WantedMemory> = wanted;
        if let Some(pool) = &uncounted {
            self.suspects.remove(pool);
            self.uncounted.insert(pool.clone(), now + UNCOUNTED_FOR);
            let (of_pool, rest) = self.queue.drain(..).partition(|one| one.pool == *pool);
            let of_pool: VecDeque<WantedMemory> = of_pool;
            self.queue = rest;
            all.extend(of_pool);
        }
        LateOrder { uncounted, readings: self.late(all) }
    }

    /// No process counts, and none is started now.
    pub fn give_up(&mut self) -> Vec<MemoryReading> {
        let order = self.order.take().into_iter().flat_map(|order| order.wanted);
        let all = order.chain(std::mem::take(&mut self.queue)).collect();
        self.late(all)
    }

    fn late(&mut self, wanted: Vec<WantedMemory>) -> Vec<MemoryReading> {
        let late = |one: WantedMemory| {
            self.asked.remove(&one.pid);
            MemoryReading { pid: one.pid, outcome: CountOutcome::Late }
        };
        wanted.into_iter().map(late).collect()
    }

    fn put_back(&mut self, wanted: Vec<WantedMemory>) {
        for one in wanted.into_iter().rev() {
            self.queue.push_front(one);
        }
    }
}

/// A process that counts at once.
#[cfg(test)]
pub fn count_at_once(reads: &mut MemoryReads, now: Moment) -> Vec<MemoryReading> {
    let mut readings = Vec::new();
    while let Some(pids) = reads.next_order(now) {
        let memory: Vec<_> = pids.iter().map(|pid| CountedMemory::of(*pid)).collect();
        readings.extend(reads.counted(&memory).unwrap());
    }
    readings
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_secs(9);

    fn wanted(pool: &str, pid: i32) -> WantedMemory {
        WantedMemory { pool: pool.to_owned(), pid }
    }

    fn asked(all: &[(&str, i32)]) -> MemoryReads {
        let mut reads = MemoryReads::default();
        for (pool, pid) in all {
            assert_eq!(reads.ask(wanted(pool, *pid), NOW), Asked::Later);
        }
        reads
    }

    /// Carries out orders as a process does that is stuck whenever it is to count one of `stuck`.
    /// The pools that are not counted after that, and how many orders were late.
    fn carry_out(reads: &mut MemoryReads, stuck: &[i32], now: Moment) -> (Vec<String>, u32) {
        let (mut uncounted, mut timeouts) = (Vec::new(), 0);
        while let Some(pids) = reads.next_order(now) {
            if pids.iter().any(|pid| stuck.contains(pid)) {
                timeouts += 1;
                uncounted.extend(reads.order_timed_out(now).uncounted);
                continue;
            }
            let counted = vec![Some(CountedMemory::default()); pids.len()];
            let readings = reads.counted(&counted).unwrap();
            assert_eq!(readings.iter().map(|one| one.pid).collect::<Vec<_>>(), pids);
        }
        (uncounted, timeouts)
    }

    #[test]
    fn all_that_wait_are_counted_with_one_order_and_no_process_twice() {
        let mut reads = asked(&[("a", 1), ("b", 2), ("a", 1)]);
        assert_eq!(reads.next_order(NOW), Some(vec![1, 2]));
        assert_eq!(reads.ask(wanted("b", 2), NOW), Asked::Later, "it is being counted");
        assert_eq!(reads.next_order(NOW), None);
        assert_eq!(reads.deadline(), Some(NOW + COUNT_TIMEOUT));
        let memory = CountedMemory { private: 5, ..CountedMemory::default() };
        let readings = reads.counted(&[Some(memory), None]).unwrap();
        let outcomes = [CountOutcome::Counted(memory), CountOutcome::Refused];
        assert_eq!(readings.iter().map(|one| one.outcome).collect::<Vec<_>>(), outcomes);
        assert!(!reads.are_waiting() && reads.next_order(NOW).is_none());
    }

    #[test]
    fn what_one_order_had_no_time_for_comes_first_in_the_next() {
        let mut reads = asked(&[("a", 1), ("a", 2), ("a", 3)]);
        reads.next_order(NOW).unwrap();
        reads.ask(wanted("a", 4), NOW);
        assert_eq!(reads.counted(&[None]).unwrap().len(), 1);
        assert_eq!(reads.next_order(NOW), Some(vec![2, 3, 4]));
    }

    #[test]
    fn a_report_that_fits_no_order_is_none() {
        let mut reads = asked(&[("a", 1)]);
        assert_eq!(reads.counted(&[None]), None, "there is no order yet");
        reads.next_order(NOW).unwrap();
        assert_eq!(reads.counted(&[]), None);
        assert_eq!(reads.counted(&[None, None]), None);
        assert!(reads.counted(&[None]).is_some());
    }

    #[test]
    fn of_pools_that_are_counted_together_the_one_that_is_stuck_is_found_and_no_other_suffers() {
        let mut reads = asked(&[("a", 1), ("bad", 2), ("b", 3), ("bad", 4)]);
        let (uncounted, timeouts) = carry_out(&mut reads, &[4], NOW);
        assert_eq!((uncounted, timeouts), (vec!["bad".to_owned()], 2));
        assert_eq!(reads.ask(wanted("bad", 5), NOW), Asked::Roughly, "also its other processes");
        for pool in ["a", "b"] {
            assert_eq!(reads.ask(wanted(pool, 6), NOW), Asked::Later);
        }
        let (uncounted, timeouts) = carry_out(&mut reads, &[4], NOW);
        assert_eq!((uncounted, timeouts), (Vec::new(), 0));
        let later = NOW + UNCOUNTED_FOR;
        assert_eq!(reads.ask(wanted("bad", 5), later), Asked::Later, "it is tried again");
        assert_eq!(carry_out(&mut reads, &[], later).0, Vec::<String>::new());
    }

    #[test]
    fn what_a_stuck_pool_has_in_the_queue_is_measured_otherwise() {
        let mut reads = asked(&[("bad", 1)]);
        reads.next_order(NOW).unwrap();
        reads.ask(wanted("bad", 2), NOW);
        reads.ask(wanted("a", 3), NOW);
        let late = reads.order_timed_out(NOW);
        assert_eq!(
            late.readings,
            [1, 2].map(|pid| MemoryReading { pid, outcome: CountOutcome::Late })
        );
        assert_eq!(reads.next_order(NOW), Some(vec![3]));
        assert_eq!(reads.give_up(), [MemoryReading { pid: 3, outcome: CountOutcome::Late }]);
        assert_eq!(reads.order_timed_out(NOW), LateOrder::default());
    }

    #[test]
    fn however_many_pools_are_stuck_few_orders_are_late_in_a_minute() {
        let mut reads = MemoryReads::default();
        let (mut now, mut timeouts) = (NOW, 0);
        for pool in 0..1000 {
            if reads.ask(wanted(&format!("bad{pool}"), pool), now) == Asked::Later {
                now += COUNT_TIMEOUT;
                timeouts += carry_out(&mut reads, &[pool], now).1;
            }
        }
        assert_eq!(timeouts, COUNT_TIMEOUTS_MOST);
        assert_eq!(reads.ask(wanted("a", 1), now), Asked::Roughly);
        let later = NOW + COUNT_TIMEOUT + COUNT_TIMEOUTS_PERIOD;
        assert_eq!(reads.ask(wanted("a", 1), later), Asked::Later);
    }

    #[test]
    fn no_more_wait_than_have_room() {
        let mut reads = MemoryReads::default();
        let many = i32::try_from(COUNTS_QUEUED).unwrap();
        let asked = (0..many + 5).filter(|pid| reads.ask(wanted("a", *pid), NOW) == Asked::Later);
        assert_eq!(asked.count(), COUNTS_QUEUED);
        assert_eq!(reads.next_order(NOW).map(|pids| pids.len()), Some(COUNTED_AT_ONCE));
    }
}
