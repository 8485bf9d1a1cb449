//! Which pipe is read next, and what happens if that takes too long. Pure: the process that reads
//! is in [`crate::processes::pipe_reader`].
//!
//! It works in order and reports each order, so the first one that is out is the one in progress.
//! If that is late because the process waits in the kernel, the pipe's lock is held: after a read,
//! the pool's output is not read for [`UNREAD_FOR`]. The other orders go to the next process.

use std::collections::{BTreeMap, VecDeque};

use crate::limits::{Moment, PIPE_ORDERS_OUT, PIPE_TIMEOUT, UNREAD_FOR};
use crate::logging::tenant_pipe::{PipeRead, ReadOutcome};

/// What became of a read.
#[derive(Debug, PartialEq, Eq)]
pub struct ReadReport {
    /// The number of the pipe.
    pub number: u64,
    /// The outcome.
    pub outcome: ReadOutcome,
}

/// An order that was sent.
#[derive(Debug)]
enum OrderOut {
    Read(PipeRead),
    Close(String),
}

/// The order that a process could not carry out, since a lock of this pool is held.
#[derive(Debug, PartialEq, Eq)]
pub enum LatePipeOrder {
    /// To read a pipe of it.
    Read(String),
    /// To close ends of it.
    Close(String),
}

/// The orders to the process that reads pipes.
#[derive(Debug, Default)]
pub struct PipeOrders {
    waiting: VecDeque<PipeRead>,
    out: VecDeque<OrderOut>,
    /// When the first one that is out is late.
    until: Option<Moment>,
    /// Pools whose output is not read, and until when.
    unread: BTreeMap<String, Moment>,
    reports: Vec<ReadReport>,
}

impl PipeOrders {
    /// A pipe is to be read.
    pub fn want(&mut self, read: PipeRead, now: Moment) {
        self.unread.retain(|_, until| *until > now);
        match self.unread.contains_key(&read.pool) {
            true => self.refuse(&read),
            false => self.waiting.push_back(read),
        }
    }

    /// A pipe is not read.
    pub fn refuse(&mut self, read: &PipeRead) {
        let why = "a program of the pool has held the lock of such a pipe".to_owned();
        self.reports.push(ReadReport { number: read.number, outcome: ReadOutcome::Failed(why) });
    }

    /// No pipe of this pool is read that was to be. The process that has orders is killed now.
    pub fn refuse_all(&mut self, pool: &str) {
        self.take_back();
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let (refused, others): (Vec<_>, Vec<_>) = waiting.partition(|read| read.pool == pool);
        self.waiting = others.into();
        refused.iter().for_each(|read| self.refuse(read));
    }

    /// Whether a pipe waits to be read.
    pub fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether no order waits or is out.
    pub fn are_done(&self) -> bool {
        self.waiting.is_empty() && self.out.is_empty() && self.reports.is_empty()
    }

    /// Whether another order may be sent.
    pub fn have_room(&self) -> bool {
        self.out.len() < PIPE_ORDERS_OUT
    }

    /// The next read, which counts as sent.
    pub fn next_read(&mut self, now: Moment) -> Option<&PipeRead> {
        if !self.have_room() {
            return None;
        }
        let read = self.waiting.pop_front()?;
        self.sent(OrderOut::Read(read), now);
        match self.out.back() {
            Some(OrderOut::Read(read)) => Some(read),
            Some(OrderOut::Close(_)) | None => None,
        }
    }

    /// An order to close ends of this pool was sent.
    pub fn close_sent(&mut self, pool: String, now: Moment) {
        self.sent(OrderOut::Close(pool), now);
    }

    fn sent(&mut self, order: OrderOut, now: Moment) {
        self.out.push_back(order);
        self.until.get_or_insert(now.saturating_add(PIPE_TIMEOUT));
    }

    /// A pipe was read. False if no such report is due.
    pub fn read(&mut self, outcome: ReadOutcome, now: Moment) -> bool {
        let Some(OrderOut::Read(read)) = self.out.pop_front() else {
            return false;
        };
        self.reports.push(ReadReport { number: read.number, outcome });
        self.goes_on(now);
        true
    }

    /// Pipes were closed. False if no such report is due.
    pub fn closed(&mut self, now: Moment) -> bool {
        let was_due = matches!(self.out.pop_front(), Some(OrderOut::Close(_)));
        self.goes_on(now);
        was_due
    }

    fn goes_on(&mut self, now: Moment) {
        self.until = (!self.out.is_empty()).then(|| now.saturating_add(PIPE_TIMEOUT));
    }

    /// When the first order is late.
    pub fn deadline(&self) -> Option<Moment> {
        self.until
    }

    /// The first order is late since the process, which is killed now, waits for a lock: its pipe
    /// is given up. After a read, no output of the pool is read from now on.
    pub fn give_up_first(&mut self, now: Moment) -> Option<LatePipeOrder> {
        let read = match self.out.pop_front()? {
            OrderOut::Read(read) => read,
            OrderOut::Close(pool) => return Some(LatePipeOrder::Close(pool)),
        };
        self.unread.insert(read.pool.clone(), now.saturating_add(UNREAD_FOR));
        let why = format!("a read took more than {} s", PIPE_TIMEOUT.as_secs());
        let outcome = ReadOutcome::Failed(why);
        self.reports.push(ReadReport { number: read.number, outcome });
        self.refuse_all(&read.pool);
        Some(LatePipeOrder::Read(read.pool))
    }

    /// The process has gone: the orders that were out are for the next one, in the same order. What
    /// was to be closed it has closed by its end.
    pub fn take_back(&mut self) {
        while let Some(order) = self.out.pop_back() {
            if let OrderOut::Read(read) = order {
                self.waiting.push_front(read);
            }
        }
        self.until = None;
    }

    /// Whether something has become of reads.
    pub fn have_reports(&self) -> bool {
        !self.reports.is_empty()
    }

    /// Takes what has become of reads.
    pub fn take_reports(&mut self) -> Vec<ReadReport> {
        std::mem::take(&mut self.reports)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn read(number: u64, pool: &str) -> PipeRead {
        let pipe = std::fs::File::open("/dev/null").unwrap();
        PipeRead { number, pool: pool.to_owned(), pipe: Arc::new(pipe.into()) }
    }

    fn wanting(pools: &[&str]) -> PipeOrders {
        let mut orders = PipeOrders::default();
        for (number, pool) in (0..).zip(pools) {
            orders.want(read(number, pool), Moment::ZERO);
        }
        while orders.next_read(Moment::ZERO).is_some() {}
        orders
    }

    fn numbers(reports: &[ReadReport]) -> Vec<u64> {
        reports.iter().map(|report| report.number).collect()
    }

    #[test]
    fn reports_are_those_of_the_orders_in_their_order() {
        let mut orders = wanting(&["a", "b"]);
        orders.close_sent("a".to_owned(), Moment::ZERO);
        assert!(orders.read(ReadOutcome::Nothing, Moment::ZERO));
        assert!(orders.read(ReadOutcome::End, Moment::ZERO));
        assert!(orders.closed(Moment::ZERO));
        assert_eq!(numbers(&orders.take_reports()), [0, 1]);
        assert!(orders.are_done() && orders.deadline().is_none());
        assert!(!orders.read(ReadOutcome::Nothing, Moment::ZERO) && !orders.closed(Moment::ZERO));
    }

    #[test]
    fn a_late_pipe_is_given_up_with_its_pool_and_the_others_are_read_by_the_next_process() {
        let mut orders = wanting(&["bad", "good", "good", "bad"]);
        let late = orders.deadline().unwrap();
        assert_eq!(late, PIPE_TIMEOUT);
        assert_eq!(orders.give_up_first(late), Some(LatePipeOrder::Read("bad".to_owned())));
        assert!(orders.deadline().is_none() && orders.are_waiting());
        let reports = orders.take_reports();
        let have_failed = |report: &ReadReport| matches!(report.outcome, ReadOutcome::Failed(_));
        assert!(reports.iter().all(have_failed));
        assert_eq!(numbers(&reports), [0, 3]);
        let next: Vec<u64> =
            std::iter::from_fn(|| orders.next_read(late).map(|read| read.number)).collect();
        assert_eq!(next, [1, 2]);
        // Another pipe of the pool costs nothing any more, until the time is over.
        orders.want(read(7, "bad"), late);
        assert_eq!(numbers(&orders.take_reports()), [7]);
        orders.want(read(8, "bad"), late + UNREAD_FOR);
        assert!(orders.take_reports().is_empty() && orders.are_waiting());
    }

    #[test]
    fn a_late_close_is_one_of_its_pool_whose_output_is_read_on() {
        let mut orders = PipeOrders::default();
        orders.close_sent("bad".to_owned(), Moment::ZERO);
        orders.want(read(1, "bad"), Moment::ZERO);
        let late = orders.deadline().unwrap();
        assert_eq!(orders.give_up_first(late), Some(LatePipeOrder::Close("bad".to_owned())));
        assert!(orders.are_waiting() && !orders.have_reports());
        orders.refuse_all("good");
        assert!(orders.are_waiting());
        orders.refuse_all("bad");
        assert_eq!(numbers(&orders.take_reports()), [1]);
        assert!(orders.are_done());
    }

    #[test]
    fn no_more_orders_are_out_than_the_socket_takes_and_each_has_a_time_of_its_own() {
        let pools = vec!["a"; PIPE_ORDERS_OUT + 1];
        let mut orders = wanting(&pools);
        assert!(!orders.have_room() && orders.are_waiting());
        let later = PIPE_TIMEOUT / 2;
        assert!(orders.read(ReadOutcome::Nothing, later));
        assert_eq!(orders.deadline(), Some(later + PIPE_TIMEOUT));
        assert!(orders.next_read(later).is_some());
    }
}
