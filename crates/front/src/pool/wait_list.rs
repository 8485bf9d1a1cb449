//! Those who wait for a worker: who comes next, who is lifo_time away, and who has waited for long
//! enough. Part of the queue's state machine; `overload.rs` says when it holds too much.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::pool::NotTaken;
use crate::pool::overload::{OrderChange, Overload, Workload};

/// What becomes of a request that comes to wait.
#[derive(Debug, PartialEq, Eq)]
pub enum Joined<T> {
    /// It waits.
    Waits,
    /// It waits in the place of this one, which has waited for longest.
    Replaces(T),
    /// As many wait as may.
    Full,
    /// Those before it take longer than it may wait.
    Hopeless,
}

impl<T> Joined<T> {
    /// Why it does not wait, if it does not.
    pub fn in_vain(&self) -> Option<NotTaken> {
        match self {
            Joined::Waits | Joined::Replaces(_) => None,
            Joined::Full => Some(NotTaken::QueueFull),
            Joined::Hopeless => Some(NotTaken::Hopeless),
        }
    }
}

/// The requests that wait, the one that came first at the front.
#[derive(Debug)]
pub struct WaitList<T> {
    entries: VecDeque<WaitEntry<T>>,
    /// Most of them.
    limit: usize,
    /// How long one may wait.
    timeout: Duration,
    overload: Overload,
    /// For how long newer requests have come before older ones, since somebody asked.
    lifo_time: Duration,
    lifo_checked_at: Option<Instant>,
    /// How often that has begun.
    lifo_starts: u64,
}

#[derive(Debug)]
struct WaitEntry<T> {
    item: T,
    since: Instant,
}

impl<T: PartialEq> WaitList<T> {
    /// Nobody, and nobody may.
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

    /// From now on at most `most` wait.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Most that may wait.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// From now on nobody waits for longer than this.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nobody does.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the newest comes first.
    pub fn is_lifo(&self) -> bool {
        self.overload.is_lifo()
    }

    /// How often the newest have begun to come first.
    pub fn lifo_starts(&self) -> u64 {
        self.lifo_starts
    }

    /// A request comes at `now` that may wait for `within`.
    pub fn enqueue(
        &mut self,
        item: T,
        (now, max_wait): (Instant, Duration),
        workload: &Workload,
    ) -> Joined<T> {
        if let Some(in_vain) = self.would_reject((now, max_wait), workload) {
            return in_vain;
        }
        let replaced = match self.len() >= self.limit {
            true => match self.entries.pop_front() {
                None => return Joined::Full,
                replaced => replaced,
            },
            false => None,
        };
        self.entries.push_back(WaitEntry { item, since: now });
        replaced.map_or(Joined::Waits, |entry| {
            self.overload.note_rejection();
            Joined::Replaces(entry.item)
        })
    }

    /// What a request is told that comes at `now` and may wait for `within`, if it is lifo_time away in order:
    /// where the newest comes first, it takes the place of another.
    pub fn would_reject(
        &mut self,
        (now, max_wait): (Instant, Duration),
        workload: &Workload,
    ) -> Option<Joined<T>> {
        self.check(now, workload);
        if self.is_lifo() {
            return None;
        }
        if self.len() >= self.limit {
            self.overload.note_rejection();
            return Some(Joined::Full);
        }
        let before = self.overload.wait_estimate(self.len() + 1, now);
        if before.is_none_or(|before| before <= max_wait) {
            return None;
        }
        // Who is in more of a hurry than others says nothing about the queue.
        if max_wait >= self.timeout {
            self.overload.note_rejection();
        }
        Some(Joined::Hopeless)
    }

    /// One that was with a worker comes back: it is the next. It has waited for as long as those that it
    /// comes before, so that the queue looks no younger than it is.
    pub fn put_back(&mut self, item: T, now: Instant) {
        if self.is_lifo() {
            self.entries.push_back(WaitEntry { item, since: now });
        } else {
            let since = self.longest().map_or(now, |longest| longest.min(now));
            self.entries.push_front(WaitEntry { item, since });
        }
    }

    /// The one that comes next.
    pub fn first(&self) -> Option<&T> {
        let entry = match self.is_lifo() {
            true => self.entries.back(),
            false => self.entries.front(),
        };
        entry.map(|entry| &entry.item)
    }

    /// The same, which waits here no more and has no worker.
    pub fn withdraw(&mut self) -> Option<T> {
        let entry = match self.is_lifo() {
            true => self.entries.pop_back(),
            false => self.entries.pop_front(),
        };
        entry.map(|entry| entry.item)
    }

    /// The next that gets a worker.
    pub fn take(&mut self) -> Option<T> {
        match self.withdraw() {
            Some(item) => {
                self.overload.note_dequeue();
                Some(item)
            }
            None => {
                self.overload.note_empty();
                self.lifo_checked_at = None;
                None
            }
        }
    }

    /// Time has passed. Call it before anybody is given a worker while some wait.
    pub fn pass_time(&mut self, now: Instant, workload: &Workload) {
        self.check(now, workload);
    }

    /// The next that newer ones have passed for too long.
    pub fn next_to_shed(&mut self, now: Instant, workload: &Workload) -> Option<T> {
        let oldest = self.entries.front().filter(|_| self.is_lifo())?;
        let waited = now.saturating_duration_since(oldest.since);
        let is_passed = waited > workload.patience(self.timeout);
        let entry = is_passed.then(|| self.entries.pop_front()).flatten()?;
        Some(entry.item)
    }

    /// Forgets one that is not wanted any more. False when it does not wait.
    pub fn cancel(&mut self, item: &T, now: Instant) -> bool {
        let oldest = self.longest();
        let found = self.entries.iter().position(|entry| entry.item == *item);
        let Some(entry) = found.and_then(|position| self.entries.remove(position)) else {
            return false;
        };
        // Who leaves long before its turn says nothing of how long people wait.
        let waited = now.saturating_duration_since(entry.since);
        let longest = oldest.map_or(waited, |oldest| now.saturating_duration_since(oldest));
        if waited >= longest / 2 {
            self.overload.note_departure();
        }
        true
    }

    /// One has waited as long as it may, in vain.
    pub fn note_timeout(&mut self) {
        self.overload.note_rejection();
    }

    /// Everybody, who wait no more.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.entries.drain(..).map(|entry| entry.item)
    }

    /// Since when the one that came first has waited.
    pub fn longest(&self) -> Option<Instant> {
        self.entries.front().map(|entry| entry.since)
    }

    /// How long those who wait now take to get a worker, as far as that can be known.
    pub fn wait_estimate(&self, now: Instant) -> Option<Duration> {
        self.overload.wait_estimate(self.len(), now)
    }

    /// For how long newer requests came before older ones, since this was asked last.
    pub fn take_lifo_time(&mut self) -> Duration {
        std::mem::take(&mut self.lifo_time)
    }

    fn check(&mut self, now: Instant, workload: &Workload) {
        let since = self.longest();
        let oldest = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if let Some(before) = self.lifo_checked_at.replace(now).filter(|_| self.is_lifo()) {
            self.lifo_time += now.saturating_duration_since(before);
        }
        if self.overload.check(now, oldest, workload) == OrderChange::Lifo {
            self.lifo_starts += 1;
        }
    }
}

#[cfg(test)]
mod tests;
