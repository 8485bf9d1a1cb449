//! The requests that wait for a worker: it selects the next request, those to reject, and those
//! that have timed out. Part of the queue's state machine; `overload.rs` detects overload.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use maitred_scoreboard::RequestOutcome;

use crate::pool::overload::{OrderChange, Overload, Workload};

/// The waiting requests, the oldest at the front.
#[derive(Debug)]
pub struct WaitList<T> {
    entries: VecDeque<WaitEntry<T>>,
    /// `request_queue_length`.
    limit: usize,
    /// `request_queue_timeout`.
    timeout: Duration,
    overload: Overload,
    /// Time in LIFO mode since the last [`WaitList::take_lifo_time`].
    lifo_time: Duration,
    lifo_checked_at: Option<Instant>,
    /// How often LIFO mode has started.
    lifo_starts: u64,
}

#[derive(Debug)]
struct WaitEntry<T> {
    item: T,
    since: Instant,
}

impl<T: PartialEq> WaitList<T> {
    /// An empty list that accepts no requests.
    pub fn new() -> WaitList<T> {
        WaitList {
            entries: VecDeque::new(),
            limit: 0,
            timeout: Duration::MAX,
            overload: Overload::default(),
            lifo_time: Duration::ZERO,
            lifo_checked_at: None,
            lifo_starts: 0,
        }
    }

    /// Sets the limit of waiting requests.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The limit of waiting requests.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Sets the longest time that a request waits.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Number of waiting requests.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the newest request is served first.
    pub fn is_lifo(&self) -> bool {
        self.overload.is_lifo()
    }

    /// Number of times that LIFO mode has started.
    pub fn lifo_starts(&self) -> u64 {
        self.lifo_starts
    }

    /// Adds a request that arrives `now` and may wait for `max_wait`. In LIFO mode, a full list
    /// drops its oldest request instead, and returns it.
    ///
    /// # Errors
    /// The request is rejected.
    pub fn enqueue(
        &mut self,
        item: T,
        now: Instant,
        max_wait: Duration,
        workload: &Workload,
    ) -> Result<Option<T>, RequestOutcome> {
        if let Some(rejection) = self.would_reject(now, max_wait, workload) {
            return Err(rejection);
        }
        let mut replaced = None;
        if self.len() >= self.limit {
            let oldest = self.entries.pop_front().ok_or(RequestOutcome::QueueFull)?;
            self.overload.note_rejection();
            replaced = Some(oldest.item);
        }
        self.entries.push_back(WaitEntry { item, since: now });
        Ok(replaced)
    }

    /// The reason why [`WaitList::enqueue`] would reject a request that arrives `now`. In LIFO mode
    /// it drops another request instead.
    pub fn would_reject(
        &mut self,
        now: Instant,
        max_wait: Duration,
        workload: &Workload,
    ) -> Option<RequestOutcome> {
        self.pass_time(now, workload);
        if self.is_lifo() {
            return None;
        }
        if self.len() >= self.limit {
            self.overload.note_rejection();
            return Some(RequestOutcome::QueueFull);
        }
        let wait = self.overload.wait_estimate(self.len() + 1, now);
        if wait.is_none_or(|wait| wait <= max_wait) {
            return None;
        }
        // A request with a shorter deadline than the pool's says nothing about the queue.
        if max_wait >= self.timeout {
            self.overload.note_rejection();
        }
        Some(RequestOutcome::WaitTooLong)
    }

    /// Returns a request from a worker to the head of the list. It counts as having waited as long
    /// as the oldest, so that the queue appears no younger than it is.
    pub fn put_back(&mut self, item: T, now: Instant) {
        if self.is_lifo() {
            self.entries.push_back(WaitEntry { item, since: now });
        } else {
            let since = self.longest().map_or(now, |longest| longest.min(now));
            self.entries.push_front(WaitEntry { item, since });
        }
    }

    /// The next request.
    pub fn first(&self) -> Option<&T> {
        let entry = if self.is_lifo() { self.entries.back() } else { self.entries.front() };
        entry.map(|entry| &entry.item)
    }

    /// Removes the next request without assigning it.
    pub fn withdraw(&mut self) -> Option<T> {
        let entry = if self.is_lifo() { self.entries.pop_back() } else { self.entries.pop_front() };
        entry.map(|entry| entry.item)
    }

    /// Removes the next request for a worker.
    pub fn take(&mut self) -> Option<T> {
        let taken = self.withdraw();
        if taken.is_some() {
            self.overload.note_dequeue();
        } else {
            self.overload.note_empty();
            self.lifo_checked_at = None;
        }
        taken
    }

    /// Removes the next request to shed: newer ones have overtaken it for too long.
    pub fn next_to_shed(&mut self, now: Instant, workload: &Workload) -> Option<T> {
        let oldest = self.entries.front().filter(|_| self.is_lifo())?;
        let waited = now.saturating_duration_since(oldest.since);
        let is_overdue = waited > workload.patience(self.timeout);
        let entry = is_overdue.then(|| self.entries.pop_front()).flatten()?;
        Some(entry.item)
    }

    /// Removes a request after its client has left. False if it does not wait.
    pub fn cancel(&mut self, item: &T, now: Instant) -> bool {
        let oldest = self.longest();
        let found = self.entries.iter().position(|entry| entry.item == *item);
        let Some(entry) = found.and_then(|position| self.entries.remove(position)) else {
            return false;
        };
        // A client that leaves long before its turn says nothing about the queue's delay.
        let waited = now.saturating_duration_since(entry.since);
        let longest = oldest.map_or(waited, |oldest| now.saturating_duration_since(oldest));
        if waited >= longest / 2 {
            self.overload.note_departure();
        }
        true
    }

    /// Records that a request has timed out in the queue.
    pub fn note_timeout(&mut self) {
        self.overload.note_rejection();
    }

    /// Removes all requests.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.entries.drain(..).map(|entry| entry.item)
    }

    /// The arrival time of the oldest request.
    pub fn longest(&self) -> Option<Instant> {
        self.entries.front().map(|entry| entry.since)
    }

    /// The estimated time until all waiting requests have a worker; none: unknown.
    pub fn wait_estimate(&self, now: Instant) -> Option<Duration> {
        self.overload.wait_estimate(self.len(), now)
    }

    /// Time in LIFO mode since the last call.
    pub fn take_lifo_time(&mut self) -> Duration {
        std::mem::take(&mut self.lifo_time)
    }

    /// Updates the overload detection. Call it before assigning waiting requests to workers.
    pub fn pass_time(&mut self, now: Instant, workload: &Workload) {
        let since = self.longest();
        let oldest = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let before = self.lifo_checked_at.replace(now);
        if let Some(before) = before.filter(|_| self.is_lifo()) {
            self.lifo_time += now.saturating_duration_since(before);
        }
        if self.overload.check(now, oldest, workload) == OrderChange::Lifo {
            self.lifo_starts += 1;
        }
    }
}

#[cfg(test)]
mod tests;
