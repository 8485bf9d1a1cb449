//! Lookups on other threads: by few at a time for each tenant, and no request waits long for one.
//!
//! A lookup that a tenant holds up keeps its thread until the tenant lets go.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Most threads in lookups of one tenant.
const THREADS_OF_ONE: usize = 4;

/// Most threads in lookups of all tenants.
const THREADS: usize = 256;

/// Most requests of one tenant that wait for a lookup.
const WAITING_OF_ONE: usize = 256;

/// Files of users of one tenant that are read at a time.
const READS_OF_ONE: usize = 2;

/// Longest wait of a request for a lookup.
const PATIENCE: Duration = Duration::from_secs(5);

/// The turns of all tenants.
#[derive(Debug)]
pub struct AllTurns {
    all: Arc<Semaphore>,
    tenants: Mutex<HashMap<String, Weak<Tenant>>>,
}

/// The turns of one tenant.
#[derive(Debug)]
pub struct Tenant {
    all: Arc<Semaphore>,
    own: Arc<Semaphore>,
    waiting: Semaphore,
    reads: Semaphore,
}

impl Default for AllTurns {
    fn default() -> AllTurns {
        AllTurns { all: Arc::new(Semaphore::new(THREADS)), tenants: Mutex::default() }
    }
}

impl AllTurns {
    /// The turns of the tenant of this name.
    pub fn of(&self, name: &str) -> Arc<Tenant> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = tenants.get(name).and_then(Weak::upgrade) {
            return known;
        }
        tenants.retain(|_, tenant| tenant.strong_count() > 0);
        let tenant = Arc::new(Tenant {
            all: Arc::clone(&self.all),
            own: Arc::new(Semaphore::new(THREADS_OF_ONE)),
            waiting: Semaphore::new(WAITING_OF_ONE),
            reads: Semaphore::new(READS_OF_ONE),
        });
        tenants.insert(name.to_owned(), Arc::downgrade(&tenant));
        tenant
    }
}

impl Tenant {
    /// A turn to read a file of users. None if it takes too long.
    pub async fn turn_to_read(&self) -> Option<SemaphorePermit<'_>> {
        timeout(PATIENCE, self.reads.acquire()).await.ok()?.ok()
    }

    /// Runs a lookup on another thread. None if it takes too long (then it ends without the
    /// caller), if too many wait, or if no thread is free.
    pub async fn run<T: Send + 'static>(
        &self,
        lookup: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let _waiting = self.waiting.try_acquire().ok()?;
        let looked_up = async {
            let own = Arc::clone(&self.own).acquire_owned().await.ok()?;
            let any = Arc::clone(&self.all).try_acquire_owned().ok()?;
            let running = tokio::task::spawn_blocking(move || {
                let found = lookup();
                drop((own, any));
                found
            });
            running.await.ok()
        };
        timeout(PATIENCE, looked_up).await.ok()?
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_tenant_whose_lookups_do_not_end_has_few_threads_and_delays_no_other() {
        let all = AllTurns::default();
        let (stuck, other) = (all.of("stuck"), all.of("other"));
        let (release, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let waiting: Vec<_> = (0..3 * THREADS_OF_ONE)
            .map(|_| {
                let (stuck, held) = (Arc::clone(&stuck), Arc::clone(&held));
                let lookup = move || held.lock().is_ok_and(|held| held.recv().is_ok());
                tokio::spawn(async move { stuck.run(lookup).await })
            })
            .collect();
        for one in waiting {
            assert!(one.await.expect("it ends").is_none(), "the lookup does not end");
        }
        assert_eq!(stuck.own.available_permits(), 0);
        assert_eq!(stuck.waiting.available_permits(), WAITING_OF_ONE);
        assert_eq!(all.all.available_permits(), THREADS - THREADS_OF_ONE);
        assert_eq!(other.run(|| 7).await, Some(7));
        drop(release);
        while stuck.own.available_permits() < THREADS_OF_ONE {
            tokio::task::yield_now().await;
        }
        assert_eq!(stuck.run(|| 7).await, Some(7));
    }

    #[tokio::test]
    async fn the_turns_of_a_tenant_are_those_of_all_its_sites() {
        let all = AllTurns::default();
        let first = all.of("www");
        assert!(Arc::ptr_eq(&first, &all.of("www")));
        assert!(!Arc::ptr_eq(&first, &all.of("other")));
        drop(first);
        all.of("third");
        assert_eq!(all.tenants.lock().unwrap().len(), 1);
    }
}
