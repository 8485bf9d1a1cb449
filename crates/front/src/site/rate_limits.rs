//! The rate limits of sites, per client, shared by all threads. A reload keeps the state of
//! unchanged limits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use maitred_config::Site;
use maitred_rules::rate::{Limiter, Running};

/// All limits in use, by site and rule.
#[derive(Debug)]
pub struct AllLimits {
    began: Instant,
    rates: Mutex<HashMap<String, Weak<Limiter>>>,
    running: Mutex<HashMap<String, Weak<Running>>>,
}

impl Default for AllLimits {
    fn default() -> AllLimits {
        AllLimits { began: Instant::now(), rates: Mutex::default(), running: Mutex::default() }
    }
}

/// The limits of one site.
#[derive(Debug, Default)]
pub struct SiteLimits {
    /// The state of each `rate_limit`.
    pub rates: Vec<Arc<Limiter>>,
    /// The number of concurrent requests of each client, if limited.
    pub running: Option<(Arc<Running>, u32)>,
}

impl AllLimits {
    /// Drops the limits that no site uses.
    pub fn forget_unused(&self) {
        lock(&self.rates).retain(|_, kept| kept.strong_count() > 0);
        lock(&self.running).retain(|_, kept| kept.strong_count() > 0);
    }

    /// The limits of a site.
    pub fn of(&self, site: &Site) -> SiteLimits {
        let hosts = &site.hosts;
        let rates = site.rules.rate_limit.iter().map(|limit| {
            let key = format!("{hosts:?} {limit:?}");
            shared(lock(&self.rates), key, || Limiter::new(limit))
        });
        let running = site.rules.connection_limit.map(|limit| {
            let running = shared(lock(&self.running), format!("{hosts:?}"), Running::default);
            (running, limit)
        });
        SiteLimits { rates: rates.collect(), running }
    }

    /// Milliseconds since the front started.
    pub fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// A concurrent request, counted until drop.
pub struct RunningRequest<'a>(&'a Running, u128);

impl SiteLimits {
    /// Counts a request of this client, if there is a limit.
    ///
    /// # Errors
    /// When the limit is reached.
    pub fn enter(&self, client: u128) -> Result<Option<RunningRequest<'_>>, ()> {
        let Some((running, limit)) = &self.running else {
            return Ok(None);
        };
        match running.enter(client, *limit) {
            true => Ok(Some(RunningRequest(running, client))),
            false => Err(()),
        }
    }
}

impl Drop for RunningRequest<'_> {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}

fn lock<T>(table: &Mutex<T>) -> MutexGuard<'_, T> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shared<T>(
    mut table: MutexGuard<'_, HashMap<String, Weak<T>>>,
    key: String,
    make: impl FnOnce() -> T,
) -> Arc<T> {
    if let Some(kept) = table.get(&key).and_then(Weak::upgrade) {
        return kept;
    }
    let made = Arc::new(make());
    table.insert(key, Arc::downgrade(&made));
    made
}
