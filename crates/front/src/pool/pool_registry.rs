//! All pools of a front, by name and user, and by generation.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use maitred_config::Pool as Settings;
use maitred_control::Generation as Number;

use crate::pool::generation::Generation;
use crate::pool::listen_backlog::ListenBacklog;
use crate::pool::pool_key::PoolKey;
use crate::pool::thread_local::Inbox;
use crate::pool::worker_calls::WorkerCalls;
use crate::pool::{Pool, growth, saturation_log};
use crate::runtime::supervisor_channel::Supervisor;

/// After another front has taken over, a pool keeps one idle worker for each client that remains,
/// but no more than its limit divided by this. The rest is for the other front.
const LAST_SHARE: usize = 2;

/// The pools.
#[derive(Debug)]
pub struct Pools {
    index: Mutex<PoolIndex>,
    inboxes: Arc<[Inbox]>,
    supervisor: Arc<Supervisor>,
    /// Connections that wait at the FastCGI listeners.
    pub listen_backlog: Arc<ListenBacklog>,
    worker_calls: WorkerCalls,
    is_fpm: bool,
}

#[derive(Debug, Default)]
struct PoolIndex {
    by_key: HashMap<PoolKey, Arc<Pool>>,
    by_generation: HashMap<Number, Arc<Pool>>,
}

impl Pools {
    /// An empty registry. `is_fpm`: the server was started as php-fpm, and uses its log messages.
    pub fn new(
        inboxes: Arc<[Inbox]>,
        supervisor: Arc<Supervisor>,
        worker_calls: WorkerCalls,
        is_fpm: bool,
    ) -> Pools {
        Pools {
            index: Mutex::default(),
            inboxes,
            supervisor,
            listen_backlog: Arc::default(),
            worker_calls,
            is_fpm,
        }
    }

    fn lock(&self) -> MutexGuard<'_, PoolIndex> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pool of a generation.
    pub fn of(&self, generation: Number) -> Option<Arc<Pool>> {
        self.lock().by_generation.get(&generation).cloned()
    }

    /// The pool of this name and user, which may be a new one without a generation.
    pub fn named(&self, settings: &Arc<Settings>) -> Arc<Pool> {
        self.lock().named(settings, self)
    }

    /// Adds a generation to its pool.
    pub fn add(&self, generation: Generation) -> Arc<Generation> {
        let mut index = self.lock();
        let pool = index.named(&generation.settings, self);
        index.by_generation.insert(generation.number, pool.clone());
        pool.add(generation)
    }

    /// Removes a generation.
    pub fn forget(&self, generation: Number) {
        let pool = self.lock().by_generation.remove(&generation);
        if let Some(pool) = pool {
            pool.forget(generation);
        }
        self.sweep();
    }

    /// Removes pools without a generation that no site uses.
    pub fn sweep(&self) {
        let is_used = |pool: &Arc<Pool>| Arc::strong_count(pool) > 1 || !pool.is_void();
        self.lock().by_key.retain(|_, pool| is_used(pool));
    }

    /// All pools, by name, including removed ones with requests in flight. Of a name, the one with
    /// the newest generation.
    pub fn all(&self) -> Vec<Arc<Pool>> {
        self.sweep();
        let mut all: Vec<_> = self.lock().by_key.values().cloned().collect();
        all.sort_by_cached_key(|pool| (pool.name.clone(), Reverse(pool.current_generation())));
        all.dedup_by(|other, newest| other.name == newest.name);
        all
    }

    /// Whether no request waits or runs in any pool.
    pub fn are_quiet(&self) -> bool {
        self.lock().by_key.values().all(|pool| pool.is_quiet())
    }

    /// Retires idle workers, except for a few in each pool for the clients of this number of
    /// connections.
    pub fn shrink(&self, connections: usize) {
        let all: Vec<_> = self.lock().by_key.values().cloned().collect();
        for pool in all {
            pool.keep_only(connections.max(1), LAST_SHARE);
        }
    }
}

impl PoolIndex {
    fn named(&mut self, settings: &Arc<Settings>, pools: &Pools) -> Arc<Pool> {
        let key = PoolKey::of(settings);
        if let Some(pool) = self.by_key.get(&key) {
            return pool.clone();
        }
        let (inboxes, supervisor) = (pools.inboxes.clone(), pools.supervisor.clone());
        let listen_backlog = pools.listen_backlog.clone();
        let pool = Pool::new(
            settings.clone(),
            inboxes,
            supervisor,
            listen_backlog,
            &pools.worker_calls,
            pools.is_fpm,
        );
        let pool = Arc::new(pool);
        look_after(&pool);
        self.by_key.insert(key, pool.clone());
        pool
    }
}

/// Starts the tasks of a new pool.
pub fn look_after(pool: &Arc<Pool>) {
    tokio::spawn(growth::tend(Arc::downgrade(pool)));
    tokio::spawn(saturation_log::watch(Arc::downgrade(pool)));
}
