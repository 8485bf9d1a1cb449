//! Those who wait for a worker: who comes next, who is turned away, and who has waited for long
//! enough. Part of the queue's state machine; `overload.rs` says when it holds too much.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::pool::NotTaken;
use crate::pool::overload::{Overload, Turn, Work};

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
pub struct Waiting<T> {
    entries: VecDeque<Entry<T>>,
    /// Most of them.
    limit: usize,
    /// How long one may wait.
    timeout: Duration,
    overload: Overload,
    /// For how long newer requests have come before older ones, since somebody asked.
    turned: Duration,
    turned_at: Option<Instant>,
    /// How often that has begun.
    turns: u64,
}

#[derive(Debug)]
struct Entry<T> {
    item: T,
    since: Instant,
}

impl<T: PartialEq> Waiting<T> {
    /// Nobody, and nobody may.
    pub fn new() -> Waiting<T> {
        Waiting {
            entries: VecDeque::new(),
            limit: 0,
            timeout: Duration::MAX,
            overload: Overload::default(),
            turned: Duration::ZERO,
            turned_at: None,
            turns: 0,
        }
    }

    /// From now on at most `most` wait.
    pub fn limit(&mut self, most: usize) {
        self.limit = most;
    }

    /// Most that may wait.
    pub fn most(&self) -> usize {
        self.limit
    }

    /// From now on nobody waits for longer than this.
    pub fn limit_time(&mut self, timeout: Duration) {
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
    pub fn is_newest_first(&self) -> bool {
        self.overload.is_newest_first()
    }

    /// How often the newest have begun to come first.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// A request comes at `now` that may wait for `within`.
    pub fn join(&mut self, item: T, (now, within): (Instant, Duration), work: &Work) -> Joined<T> {
        if let Some(in_vain) = self.turns_away((now, within), work) {
            return in_vain;
        }
        let replaced = match self.len() >= self.limit {
            true => match self.entries.pop_front() {
                None => return Joined::Full,
                replaced => replaced,
            },
            false => None,
        };
        self.entries.push_back(Entry { item, since: now });
        replaced.map_or(Joined::Waits, |entry| {
            self.overload.refuses();
            Joined::Replaces(entry.item)
        })
    }

    /// What a request is told that comes at `now` and may wait for `within`, if it is turned away in order:
    /// where the newest comes first, it takes the place of another.
    pub fn turns_away(
        &mut self,
        (now, within): (Instant, Duration),
        work: &Work,
    ) -> Option<Joined<T>> {
        self.look(now, work);
        if self.is_newest_first() {
            return None;
        }
        if self.len() >= self.limit {
            self.overload.refuses();
            return Some(Joined::Full);
        }
        let before = self.overload.takes(self.len() + 1, now);
        if before.is_none_or(|before| before <= within) {
            return None;
        }
        // Who is in more of a hurry than others says nothing about the queue.
        if within >= self.timeout {
            self.overload.refuses();
        }
        Some(Joined::Hopeless)
    }

    /// One that was with a worker comes back: it is the next. It has waited for as long as those that it
    /// comes before, so that the queue looks no younger than it is.
    pub fn put_back(&mut self, item: T, now: Instant) {
        if self.is_newest_first() {
            self.entries.push_back(Entry { item, since: now });
        } else {
            let since = self.longest().map_or(now, |longest| longest.min(now));
            self.entries.push_front(Entry { item, since });
        }
    }

    /// The one that comes next.
    pub fn first(&self) -> Option<&T> {
        let entry = match self.is_newest_first() {
            true => self.entries.back(),
            false => self.entries.front(),
        };
        entry.map(|entry| &entry.item)
    }

    /// The same, which waits here no more and has no worker.
    pub fn withdraw(&mut self) -> Option<T> {
        let entry = match self.is_newest_first() {
            true => self.entries.pop_back(),
            false => self.entries.pop_front(),
        };
        entry.map(|entry| entry.item)
    }

    /// The next that gets a worker.
    pub fn take(&mut self) -> Option<T> {
        match self.withdraw() {
            Some(item) => {
                self.overload.serves();
                Some(item)
            }
            None => {
                self.overload.is_empty_now();
                self.turned_at = None;
                None
            }
        }
    }

    /// Time has passed. Call it before anybody is given a worker while some wait.
    pub fn pass(&mut self, now: Instant, work: &Work) {
        self.look(now, work);
    }

    /// The next that newer ones have passed for too long.
    pub fn next_passed(&mut self, now: Instant, work: &Work) -> Option<T> {
        let oldest = self.entries.front().filter(|_| self.is_newest_first())?;
        let waited = now.saturating_duration_since(oldest.since);
        let is_passed = waited > work.patience(self.timeout);
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
            self.overload.loses();
        }
        true
    }

    /// One has waited as long as it may, in vain.
    pub fn gave_up(&mut self) {
        self.overload.refuses();
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
    pub fn takes(&self, now: Instant) -> Option<Duration> {
        self.overload.takes(self.len(), now)
    }

    /// For how long newer requests came before older ones, since this was asked last.
    pub fn take_turned(&mut self) -> Duration {
        std::mem::take(&mut self.turned)
    }

    fn look(&mut self, now: Instant, work: &Work) {
        let since = self.longest();
        let oldest = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if let Some(before) = self
            .turned_at
            .replace(now)
            .filter(|_| self.is_newest_first())
        {
            self.turned += now.saturating_duration_since(before);
        }
        if self.overload.look(now, oldest, work) == Turn::NewestFirst {
            self.turns += 1;
        }
    }
}

#[cfg(test)]
mod tests;
