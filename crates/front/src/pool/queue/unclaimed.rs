//! Workers that leave requests unclaimed. Such a worker looks idle: its last request has ended, and
//! its script hangs before it takes the next one.

use std::time::Duration;

use crate::pool::queue::{Queue, SeatId, WorkerRef};

impl<T: Clone + PartialEq> Queue<T> {
    /// Notes that a request is about to be withdrawn from the head of its seat, where it has
    /// waited for this long. If it was the last one there, the seat gets another only if no other
    /// seat is idle, until its worker has finished one. Other requests there
    /// have waited during the same time, so only the last one counts.
    pub fn note_unclaimed(&mut self, worker: WorkerRef, waited: Duration) {
        if let Some(entry) = self.seat_of(worker).filter(|entry| entry.taken() == 1) {
            entry.unclaimed = entry.unclaimed.saturating_add(waited);
        }
    }

    /// Whether the worker of a seat has left its last request unclaimed.
    pub fn is_stalled(&self, seat: SeatId) -> bool {
        self.seat(seat).is_some_and(|entry| entry.is_stalled())
    }

    /// The time for which a worker has left requests unclaimed, with `waited` of the one that is
    /// at the head of its seat now, if that has reached `limit`. Returned once.
    pub fn give_up(
        &mut self,
        worker: WorkerRef,
        waited: Duration,
        limit: Duration,
    ) -> Option<Duration> {
        let entry = self.seat_of(worker).filter(|entry| !entry.given_up)?;
        let unclaimed = entry.unclaimed.saturating_add(waited);
        entry.given_up = unclaimed >= limit;
        entry.given_up.then_some(unclaimed)
    }

    /// The report of [`Queue::give_up`] was lost, and is due again.
    pub fn report_again(&mut self, worker: WorkerRef) {
        if let Some(entry) = self.seat_of(worker) {
            entry.given_up = false;
        }
    }

    /// Adds a seat to the idle ones: as the first to be used, or as the last if it is stalled.
    pub(super) fn push_idle(&mut self, seat: SeatId, is_stalled: bool) {
        let at = if is_stalled { 0 } else { self.idle.len() };
        self.idle.insert(at, seat);
    }
}
