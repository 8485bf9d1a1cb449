//! Rate and connection limits per client. The caller supplies the time.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::settings::RateLimit;

/// Most clients in one limit; beyond that, the least recent ones are evicted.
const MAX_CLIENTS: usize = 64 * 1024;
/// Independently locked parts of a limit.
const SHARDS: usize = 16;
/// The weight of one request, large enough that one request an hour still leaks a whole number per
/// millisecond.
const REQUEST: u64 = 1_000_000_000_000;

/// A leaky bucket for each client (nginx's `limit_req` with `nodelay`): each request adds one, it
/// leaks at a steady rate, and a request that would exceed `burst` is rejected.
#[derive(Debug)]
pub struct Limiter {
    /// Leak per millisecond.
    leak: u64,
    /// Limit after a request.
    burst: u64,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    by_client: HashMap<u128, usize>,
    buckets: Vec<Bucket>,
    hand: usize,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    client: u128,
    excess: u64,
    /// Milliseconds, as in [`Limiter::take`].
    last: u64,
    /// Used since the clock hand last passed it.
    used: bool,
}

impl Limiter {
    /// A limit without clients.
    pub fn new(limit: &RateLimit) -> Limiter {
        let millis = limit.per.as_millis().max(1);
        let leak = (u128::from(limit.requests) * u128::from(REQUEST)).div_ceil(millis);
        Limiter {
            leak: u64::try_from(leak).unwrap_or(u64::MAX).max(1),
            burst: u64::from(limit.burst) * REQUEST,
            hasher: RandomState::new(),
            shards: Default::default(),
        }
    }

    /// Counts a request of a client; `now` is in milliseconds since an arbitrary fixed time.
    ///
    /// # Errors
    /// The time until the client may retry.
    pub fn take(&self, client: u128, now: u64) -> Result<(), Duration> {
        let hash = self.hasher.hash_one(client);
        let shard = &self.shards[usize::try_from(hash).unwrap_or(0) % SHARDS];
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = shard.by_client.get(&client).copied() else {
            shard.insert(client, now);
            return Ok(());
        };
        let bucket = &mut shard.buckets[at];
        bucket.used = true;
        let leaked = self.leak.saturating_mul(now.saturating_sub(bucket.last));
        let excess = bucket.excess.saturating_add(REQUEST).saturating_sub(leaked);
        if excess > self.burst {
            let wait = (excess - self.burst).div_ceil(self.leak);
            return Err(Duration::from_millis(wait));
        }
        (bucket.excess, bucket.last) = (excess, now);
        Ok(())
    }

    /// Number of clients.
    pub fn clients(&self) -> usize {
        let count = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.buckets.len()
        };
        self.shards.iter().map(count).sum()
    }
}

impl Shard {
    fn insert(&mut self, client: u128, now: u64) {
        let bucket = Bucket { client, excess: 0, last: now, used: false };
        if self.buckets.len() < MAX_CLIENTS / SHARDS {
            self.by_client.insert(client, self.buckets.len());
            self.buckets.push(bucket);
            return;
        }
        // Second chance (clock algorithm): clients that have been active since the last pass stay.
        loop {
            self.hand = (self.hand + 1) % self.buckets.len();
            let old = &mut self.buckets[self.hand];
            if !std::mem::take(&mut old.used) {
                break;
            }
        }
        self.by_client.remove(&self.buckets[self.hand].client);
        self.buckets[self.hand] = bucket;
        self.by_client.insert(client, self.hand);
    }
}

/// Running requests per client.
#[derive(Debug, Default)]
pub struct Running {
    hasher: RandomState,
    shards: [Mutex<HashMap<u128, u32>>; SHARDS],
}

impl Running {
    /// Starts a request, unless `limit` requests of the client are running. [`Running::leave`] ends
    /// it.
    pub fn enter(&self, client: u128, limit: u32) -> bool {
        let mut shard = self.shard(client);
        let running = shard.entry(client).or_insert(0);
        let may = *running < limit;
        if may {
            *running += 1;
        }
        may
    }

    /// Ends a request.
    pub fn leave(&self, client: u128) {
        let mut shard = self.shard(client);
        if let Some(running) = shard.get_mut(&client) {
            *running = running.saturating_sub(1);
            if *running == 0 {
                shard.remove(&client);
            }
        }
    }

    fn shard(&self, client: u128) -> std::sync::MutexGuard<'_, HashMap<u128, u32>> {
        let hash = self.hasher.hash_one(client);
        let shard = &self.shards[usize::try_from(hash).unwrap_or(0) % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;

    fn limiter(requests: u32, per: u64, burst: u32) -> Limiter {
        Limiter::new(&RateLimit {
            path: Pattern::all(),
            requests,
            per: Duration::from_secs(per),
            burst,
        })
    }

    #[test]
    fn a_burst_passes_and_then_one_request_for_each_interval() {
        let limit = limiter(10, 1, 2);
        let at = |now| limit.take(1, now).is_ok();
        assert_eq!([at(0), at(0), at(0), at(0)], [true, true, true, false]);
        assert_eq!(limit.take(1, 0), Err(Duration::from_millis(100)));
        assert_eq!([at(100), at(100), at(250), at(250)], [true, false, true, false]);
        assert!(limit.take(2, 0).is_ok(), "another client has a bucket of its own");
    }

    #[test]
    fn without_a_burst_the_second_request_has_to_wait_for_its_turn() {
        let limit = limiter(6, 60, 0);
        assert!(limit.take(1, 1000).is_ok());
        assert_eq!(limit.take(1, 2000), Err(Duration::from_millis(9_000)));
        assert!(limit.take(1, 11_000).is_ok());
    }

    #[test]
    fn a_flood_of_clients_takes_a_bounded_table() {
        let limit = limiter(1, 1, 0);
        for client in 0..3 * MAX_CLIENTS as u128 {
            let _ = limit.take(client, 0);
        }
        assert!(limit.clients() <= MAX_CLIENTS);
    }

    #[test]
    fn who_leaves_makes_room() {
        let running = Running::default();
        assert!(running.enter(1, 2) && running.enter(1, 2) && !running.enter(1, 2));
        assert!(running.enter(2, 2));
        running.leave(1);
        assert!(running.enter(1, 2));
    }
}
