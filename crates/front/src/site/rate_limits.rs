//! The limits of sites for one client. All threads share them, and a reload that does not change a
//! limit leaves what it counts alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use maitred_config::Site;
use maitred_rules::rate::{Limiter, Running};

/// All limits in use, by the site and the rule that they are of.
#[derive(Debug)]
pub struct AllLimits {
    began: Instant,
    rates: Mutex<HashMap<String, Weak<Limiter>>>,
    running: Mutex<HashMap<String, Weak<Running>>>,
}

impl Default for AllLimits {
    fn default() -> AllLimits {
        AllLimits {
            began: Instant::now(),
            rates: Mutex::default(),
            running: Mutex::default(),
        }
    }
}

/// The limits of one site.
#[derive(Debug, Default)]
pub struct SiteLimits {
    /// One for each of its `rate_limit`.
    pub rates: Vec<Arc<Limiter>>,
    /// How many requests of each client are being answered, if that is limited.
    pub running: Option<(Arc<Running>, u32)>,
}

impl AllLimits {
    /// Forgets those that no site has any more.
    pub fn forget_unused(&self) {
        lock(&self.rates).retain(|_, kept| kept.strong_count() > 0);
        lock(&self.running).retain(|_, kept| kept.strong_count() > 0);
    }

    /// Those of a site.
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
        SiteLimits {
            rates: rates.collect(),
            running,
        }
    }

    /// Milliseconds since the front began.
    pub fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Counts a request as running for as long as it lives.
pub struct RunningRequest<'a>(&'a Running, u128);

impl SiteLimits {
    /// Counts a request of this client, if there is a limit.
    ///
    /// # Errors
    /// When as many are running as may.
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
