//! The cache lock: one request for each key runs the script, the others wait (nginx's
//! `fastcgi_cache_lock`).
//!
//! ```text
//!            join                    finish(Stored)
//!  (nothing) ────▶ filling, waiters ───────────────▶ (nothing; waiters look up again)
//!                    │ finish(Failed): the first waiter fills, the others wait for it
//!                    │ finish(ServedStale): waiters get the stale page; the next request fills
//!                    │ finish(NotStored): waiters pass through, and so do requests for a while
//!                    │ finish(OfRequest): waiters pass through; the next request fills
//!                    ╰ the fill is older than `age`: the next request fills beside it; if the
//!                      old fill stores a page after all, waiters look up again at once
//! ```
//!
//! A fill is identified by a ticket. Its holder must call `finish` on every path, also when it is
//! dropped: no key stays locked by a request that has ended.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use crate::Millis;
use crate::key::Key;

/// Independently locked parts.
const SHARDS: usize = 16;
/// Most keys that are remembered as uncacheable.
const MAX_UNCACHEABLE: usize = 64 * 1024;
/// How long a key is remembered as uncacheable, in milliseconds (Varnish's hit-for-miss has 120 s;
/// a page that becomes cacheable should not have to wait that long).
const UNCACHEABLE_MILLIS: Millis = 30_000;
/// Most waiters for one key. Further requests pass through.
const MAX_WAITERS: usize = 16 * 1024;

/// Identifies a running fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

/// What to do about a key without a usable entry. `W` wakes a waiter.
#[derive(Debug, PartialEq, Eq)]
pub enum Joined {
    /// Run the script, store the response, and report how that ended.
    Fill(Ticket),
    /// Run the script without the lock; the response is stored if it may be.
    PassThrough,
    /// Wait for the running fill.
    Wait,
}

/// How a fill ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FillResult {
    /// The response was stored.
    Stored,
    /// There is a response, and it was not stored.
    NotStored,
    /// There is a response, which its own request kept from being stored: those of others may be.
    OfRequest,
    /// There is no response.
    Failed,
    /// There is no response; a stale entry is served, also to all waiters.
    ServedStale,
}

/// The notice that a waiter gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FillNotice {
    /// Look up again: the response is stored.
    Retry,
    /// Run the script for this request alone.
    PassThrough,
    /// Run the script and fill the entry for all waiters.
    Fill(Ticket),
    /// The fill failed: use the stale entry, if there is one.
    UseStale,
}

/// All running fills. `W` wakes a waiter.
#[derive(Debug)]
pub struct Fills<W> {
    hasher: RandomState,
    shards: [Mutex<Shard<W>>; SHARDS],
}

#[derive(Debug)]
struct Shard<W> {
    filling: HashMap<Key, Filling<W>>,
    /// Until when a key is known to be uncacheable; `order` has the oldest first. By hash: of two
    /// keys with the same hash, both pass through for that time.
    uncacheable: HashMap<u64, Millis>,
    order: VecDeque<u64>,
    next: u64,
}

#[derive(Debug)]
struct Filling<W> {
    ticket: Ticket,
    since: Millis,
    waiters: VecDeque<W>,
}

impl<W> Default for Shard<W> {
    fn default() -> Shard<W> {
        Shard {
            filling: HashMap::new(),
            uncacheable: HashMap::new(),
            order: VecDeque::new(),
            next: 0,
        }
    }
}

impl<W> Default for Fills<W> {
    fn default() -> Fills<W> {
        Fills { hasher: RandomState::new(), shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl<W> Fills<W> {
    /// Registers a request that found no usable entry. `waiter` creates the waker if it has to
    /// wait; a fill older than `age` milliseconds is not waited for.
    pub fn join(&self, key: &Key, now: Millis, age: Millis, waiter: impl FnOnce() -> W) -> Joined {
        self.with(key, |shard, hash| {
            if shard.is_uncacheable(hash, now) {
                return Joined::PassThrough;
            }
            if let Some(filling) = shard.filling.get_mut(key) {
                if now.abs_diff(filling.since) < age {
                    if filling.waiters.len() >= MAX_WAITERS {
                        return Joined::PassThrough;
                    }
                    filling.waiters.push_back(waiter());
                    return Joined::Wait;
                }
                // The old fill continues, but its ticket is no longer valid.
                shard.next += 1;
                (filling.ticket, filling.since) = (Ticket(shard.next), now);
                return Joined::Fill(filling.ticket);
            }
            Joined::Fill(shard.begin(key, now, VecDeque::new()))
        })
    }

    /// Starts the background update of a stale entry; `None` if a fill is already running.
    pub fn refresh(&self, key: &Key, now: Millis, age: Millis) -> Option<Ticket> {
        self.with(key, |shard, _| match shard.filling.get_mut(key) {
            Some(filling) if now.abs_diff(filling.since) < age => None,
            Some(filling) => {
                shard.next += 1;
                (filling.ticket, filling.since) = (Ticket(shard.next), now);
                Some(filling.ticket)
            }
            None => Some(shard.begin(key, now, VecDeque::new())),
        })
    }

    /// Ends a fill. `notify` sends a notice to a waiter, and returns whether that waiter still
    /// exists: if not, the next one becomes the filler.
    pub fn finish(
        &self,
        key: &Key,
        ticket: Ticket,
        how: FillResult,
        now: Millis,
        mut notify: impl FnMut(W, FillNotice) -> bool,
    ) {
        let ended = self.with(key, |shard, hash| {
            let is_current = shard.filling.get(key).is_some_and(|now| now.ticket == ticket);
            if !is_current {
                // A newer fill has replaced this one and continues; the entry stored now serves the
                // waiters.
                let overtaken = shard.filling.get_mut(key);
                let overtaken = overtaken.filter(|_| how == FillResult::Stored)?;
                let waiters = std::mem::take(&mut overtaken.waiters);
                shard.forget_uncacheable(hash);
                return Some(waiters);
            }
            let filling = shard.filling.remove(key)?;
            match how {
                FillResult::NotStored => shard.remember_uncacheable(hash, now),
                FillResult::Stored => shard.forget_uncacheable(hash),
                FillResult::OfRequest | FillResult::Failed | FillResult::ServedStale => {}
            }
            Some(filling.waiters)
        });
        let Some(mut waiters) = ended else { return };
        let notified = match how {
            FillResult::Stored => FillNotice::Retry,
            FillResult::NotStored | FillResult::OfRequest => FillNotice::PassThrough,
            FillResult::ServedStale => FillNotice::UseStale,
            FillResult::Failed => return self.pass_on(key, waiters, now, &mut notify),
        };
        for waiter in waiters.drain(..) {
            notify(waiter, notified);
        }
    }

    /// The first waiter that still exists fills for the others.
    fn pass_on(
        &self,
        key: &Key,
        mut waiters: VecDeque<W>,
        now: Millis,
        notify: &mut impl FnMut(W, FillNotice) -> bool,
    ) {
        while let Some(next) = waiters.pop_front() {
            let begun = self.with(key, |shard, _| match shard.filling.get_mut(key) {
                Some(other) => {
                    // Another fill has started meanwhile: the waiters join it.
                    other.waiters.append(&mut waiters);
                    Err(other.ticket)
                }
                None => Ok(shard.begin(key, now, std::mem::take(&mut waiters))),
            });
            let ticket = match begun {
                Ok(ticket) => ticket,
                Err(_) => {
                    notify(next, FillNotice::PassThrough);
                    return;
                }
            };
            if notify(next, FillNotice::Fill(ticket)) {
                return;
            }
            let left = self.with(key, |shard, _| {
                let is_current = shard.filling.get(key).is_some_and(|now| now.ticket == ticket);
                is_current.then(|| shard.filling.remove(key)).flatten()
            });
            match left {
                Some(filling) => waiters = filling.waiters,
                None => return,
            }
        }
    }

    /// Number of running fills.
    pub fn len(&self) -> usize {
        let count = |shard: &Mutex<Shard<W>>| lock(shard).filling.len();
        self.shards.iter().map(count).sum()
    }

    /// Number of waiters; `is_there` says whether one still waits.
    pub fn waiting(&self, is_there: impl Fn(&W) -> bool) -> usize {
        let count = |shard: &Mutex<Shard<W>>| {
            let shard = lock(shard);
            let waiters = shard.filling.values().flat_map(|filling| &filling.waiters);
            waiters.filter(|waiter| is_there(waiter)).count()
        };
        self.shards.iter().map(count).sum()
    }

    /// Whether no fill is running.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn with<T>(&self, key: &Key, then: impl FnOnce(&mut Shard<W>, u64) -> T) -> T {
        let hash = self.hasher.hash_one(key);
        let at = usize::try_from(hash % SHARDS as u64).unwrap_or(0);
        then(&mut lock(&self.shards[at]), hash)
    }
}

fn lock<W>(shard: &Mutex<Shard<W>>) -> std::sync::MutexGuard<'_, Shard<W>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<W> Shard<W> {
    fn begin(&mut self, key: &Key, since: Millis, waiters: VecDeque<W>) -> Ticket {
        self.next += 1;
        let ticket = Ticket(self.next);
        let filling = Filling { ticket, since, waiters };
        self.filling.insert(key.clone(), filling);
        ticket
    }

    fn is_uncacheable(&self, hash: u64, now: Millis) -> bool {
        let until = self.uncacheable.get(&hash);
        // A clock that was set back must not extend it.
        until.is_some_and(|until| now < *until && until - now <= UNCACHEABLE_MILLIS)
    }

    fn remember_uncacheable(&mut self, hash: u64, now: Millis) {
        let until = now.saturating_add(UNCACHEABLE_MILLIS);
        if self.uncacheable.insert(hash, until).is_none() {
            self.order.push_back(hash);
        }
        while self.order.len() > MAX_UNCACHEABLE / SHARDS {
            if let Some(oldest) = self.order.pop_front() {
                self.uncacheable.remove(&oldest);
            }
        }
    }

    fn forget_uncacheable(&mut self, hash: u64) {
        if self.uncacheable.remove(&hash).is_some() {
            self.order.retain(|other| *other != hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const AGE: Millis = 5_000;

    fn key(text: &str) -> Key {
        Key::of(text.as_bytes().to_vec()).unwrap()
    }

    fn fill(fills: &Fills<u32>, now: Millis) -> Ticket {
        match fills.join(&key("a"), now, AGE, || 0) {
            Joined::Fill(ticket) => ticket,
            other => panic!("{other:?}"),
        }
    }

    fn finish(
        fills: &Fills<u32>,
        ticket: Ticket,
        how: FillResult,
        now: Millis,
    ) -> Vec<(u32, FillNotice)> {
        let mut notified = Vec::new();
        fills.finish(&key("a"), ticket, how, now, |who, what| {
            notified.push((who, what));
            true
        });
        notified
    }

    #[test]
    fn one_fills_and_all_others_wait_and_then_look() {
        let fills = Fills::default();
        let ticket = fill(&fills, 0);
        for who in 1..1000 {
            assert_eq!(fills.join(&key("a"), 1, AGE, || who), Joined::Wait);
        }
        assert!(matches!(fills.join(&key("b"), 1, AGE, || 0), Joined::Fill(_)));
        let notified = finish(&fills, ticket, FillResult::Stored, 2);
        assert_eq!(notified.len(), 999);
        assert!(notified.iter().all(|(_, notified)| *notified == FillNotice::Retry));
        assert_eq!(fills.len(), 1);
    }

    #[test]
    fn no_more_than_16384_wait_for_one_key() {
        let fills = Fills::default();
        fill(&fills, 0);
        let joined = (0..20_000).map(|who| fills.join(&key("a"), 1, AGE, || who));
        assert_eq!(joined.filter(|joined| *joined == Joined::Wait).count(), 16_384);
        assert_eq!(fills.join(&key("a"), 1, AGE, || 0), Joined::PassThrough);
    }

    #[test]
    fn when_a_filler_fails_the_next_fills_and_the_others_wait_on() {
        let fills = Fills::default();
        let ticket = fill(&fills, 0);
        for who in 1..4 {
            fills.join(&key("a"), 0, AGE, || who);
        }
        let mut notified = Vec::new();
        // The first who waits has gone in the meantime.
        fills.finish(&key("a"), ticket, FillResult::Failed, 1, |who, what| {
            notified.push((who, what));
            who != 1
        });
        let [(1, FillNotice::Fill(_)), (2, FillNotice::Fill(next))] = notified[..] else {
            panic!("{notified:?}")
        };
        assert_eq!(finish(&fills, next, FillResult::Stored, 2), [(3, FillNotice::Retry)]);
        assert!(fills.is_empty());
    }

    #[test]
    fn uncacheable_keys_have_no_waiters() {
        let fills = Fills::default();
        let ticket = fill(&fills, 0);
        fills.join(&key("a"), 0, AGE, || 1);
        assert_eq!(
            finish(&fills, ticket, FillResult::NotStored, 1),
            [(1, FillNotice::PassThrough)]
        );
        assert_eq!(fills.join(&key("a"), 2, AGE, || 2), Joined::PassThrough);
        // A later request tries again, and from then on the response is stored.
        let ticket = fill(&fills, 1 + UNCACHEABLE_MILLIS);
        finish(&fills, ticket, FillResult::Stored, UNCACHEABLE_MILLIS);
        fill(&fills, 0);
    }

    #[test]
    fn a_request_that_keeps_its_own_response_out_keeps_out_no_other() {
        let fills = Fills::default();
        let ticket = fill(&fills, 0);
        fills.join(&key("a"), 0, AGE, || 1);
        assert_eq!(
            finish(&fills, ticket, FillResult::OfRequest, 1),
            [(1, FillNotice::PassThrough)]
        );
        let ticket = fill(&fills, 2);
        assert_eq!(fills.join(&key("a"), 2, AGE, || 2), Joined::Wait);
        assert_eq!(finish(&fills, ticket, FillResult::Stored, 3), [(2, FillNotice::Retry)]);
    }

    #[test]
    fn who_fills_for_too_long_is_not_waited_for_any_more() {
        let fills = Fills::default();
        let slow = fill(&fills, 0);
        fills.join(&key("a"), AGE - 1, AGE, || 1);
        let second = fill(&fills, AGE);
        assert_ne!(slow, second);
        // The slow fill has no waiters left; the second one notifies them all.
        assert_eq!(finish(&fills, slow, FillResult::Failed, AGE), []);
        assert_eq!(finish(&fills, second, FillResult::Stored, AGE), [(1, FillNotice::Retry)]);
    }

    #[test]
    fn a_page_of_one_who_was_overtaken_is_there_for_those_who_wait() {
        let fills = Fills::default();
        let slow = fill(&fills, 0);
        fills.join(&key("a"), AGE - 1, AGE, || 1);
        let second = fill(&fills, AGE);
        fills.join(&key("a"), AGE, AGE, || 2);
        let notified = finish(&fills, slow, FillResult::Stored, AGE);
        assert_eq!(notified, [(1, FillNotice::Retry), (2, FillNotice::Retry)]);
        // The other one goes on, and who comes now waits for that.
        assert_eq!(fills.join(&key("a"), AGE, AGE, || 3), Joined::Wait);
        assert_eq!(finish(&fills, second, FillResult::Stored, AGE), [(3, FillNotice::Retry)]);
        assert!(fills.is_empty());
    }

    #[test]
    fn who_waits_gets_what_the_filler_got_when_nothing_better_could_be_had() {
        let fills = Fills::default();
        let ticket = fill(&fills, 0);
        for who in 1..3 {
            fills.join(&key("a"), 0, AGE, || who);
        }
        assert_eq!(fills.waiting(|who| *who == 1), 1);
        let notified = finish(&fills, ticket, FillResult::ServedStale, 1);
        assert_eq!(notified, [(1, FillNotice::UseStale), (2, FillNotice::UseStale)]);
        assert!(fills.is_empty() && fills.waiting(|_| true) == 0);
        // It is not taken for one that is never kept.
        fill(&fills, 2);
    }

    #[test]
    fn a_clock_that_is_set_back_extends_no_wait() {
        let fills = Fills::default();
        let hung = fill(&fills, 100 * AGE);
        assert_ne!(hung, fill(&fills, 1), "it is not known how old it is");
        assert!(fills.refresh(&key("a"), 100 * AGE, AGE).is_some());
    }

    #[test]
    fn one_refreshes_at_a_time() {
        let fills: Fills<u32> = Fills::default();
        let ticket = fills.refresh(&key("a"), 0, AGE).unwrap();
        assert_eq!(fills.refresh(&key("a"), 1, AGE), None);
        finish(&fills, ticket, FillResult::Failed, 2);
        assert!(fills.refresh(&key("a"), 3, AGE).is_some());
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let fills: Fills<u32> = Fills::default();
        for number in 0..128 * 1024 {
            let key = key(&number.to_string());
            let Joined::Fill(ticket) = fills.join(&key, 0, AGE, || 0) else { panic!() };
            fills.finish(&key, ticket, FillResult::NotStored, 0, |_, _| true);
        }
        for shard in &fills.shards {
            let shard = lock(shard);
            // A sixteenth of 65,536, as keys are spread over the parts at random.
            assert_eq!(shard.uncacheable.len(), 4096);
            assert_eq!(shard.uncacheable.len(), shard.order.len());
        }
    }

    proptest! {
        /// Every waiter gets a notice in the end, and there is one fill at a time.
        #[test]
        fn all_waiters_are_told(steps in proptest::collection::vec((0u8..7, 0u64..3000), 1..200)) {
            let fills: Fills<u32> = Fills::default();
            let (mut now, mut waiting, mut next) = (0, BTreeSet::new(), 0);
            let mut tickets: Vec<Ticket> = Vec::new();
            let run = |tickets: &mut Vec<Ticket>, how, now, waiting: &mut BTreeSet<u32>| {
                let Some(ticket) = tickets.pop() else { return };
                let mut begun = None;
                fills.finish(&key("a"), ticket, how, now, |who, notified| {
                    assert!(waiting.remove(&who));
                    if let FillNotice::Fill(ticket) = notified {
                        begun = Some(ticket);
                    }
                    // One in four has gone by then.
                    let is_there = who % 4 != 0;
                    if !is_there && begun.is_some() {
                        begun = None;
                    }
                    is_there
                });
                tickets.extend(begun);
            };
            for (what, passed) in steps {
                now += passed;
                match what {
                    0..3 => {
                        next += 1;
                        match fills.join(&key("a"), now, AGE, || next) {
                            Joined::Fill(ticket) => tickets.push(ticket),
                            Joined::Wait => _ = waiting.insert(next),
                            Joined::PassThrough => {}
                        }
                    }
                    3 => run(&mut tickets, FillResult::Stored, now, &mut waiting),
                    4 => run(&mut tickets, FillResult::NotStored, now, &mut waiting),
                    5 => run(&mut tickets, FillResult::OfRequest, now, &mut waiting),
                    _ => run(&mut tickets, FillResult::Failed, now, &mut waiting),
                }
            }
            while !tickets.is_empty() {
                run(&mut tickets, FillResult::Failed, now, &mut waiting);
            }
            prop_assert!(waiting.is_empty(), "{waiting:?}");
            prop_assert!(fills.is_empty());
        }
    }
}
