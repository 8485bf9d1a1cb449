//! Lookups in folders of tenants on other threads: by few at a time for each tenant, and no request
//! waits long for one. A lookup that a tenant holds up keeps its thread until the tenant lets go.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

/// Most threads in lookups of one tenant.
const THREADS_OF_ONE: usize = 4;

/// Most threads that read folders of one tenant for listings.
const LISTINGS_OF_ONE: usize = 2;

/// Most threads in lookups and listings of all tenants.
const THREADS: usize = 256;

/// Most requests of one tenant that wait for a lookup.
const WAITING_OF_ONE: usize = 4096;

/// Most files and document roots of one tenant that requests hold open after a lookup.
const FILES_OF_ONE: usize = 64;

/// Files of users of one tenant that are read at a time.
const READS_OF_ONE: usize = 2;

/// Longest wait of a request for all its lookups.
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
    lookups: Arc<Semaphore>,
    listings: Arc<Semaphore>,
    files: Arc<Semaphore>,
    waiting: Semaphore,
    reads: Semaphore,
}

/// The end of a request's wait.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// The deadline of a wait that begins now.
    pub fn start() -> Deadline {
        Deadline(Instant::now() + PATIENCE)
    }
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
            lookups: Arc::new(Semaphore::new(THREADS_OF_ONE)),
            listings: Arc::new(Semaphore::new(LISTINGS_OF_ONE)),
            files: Arc::new(Semaphore::new(FILES_OF_ONE)),
            waiting: Semaphore::new(WAITING_OF_ONE),
            reads: Semaphore::new(READS_OF_ONE),
        });
        tenants.insert(name.to_owned(), Arc::downgrade(&tenant));
        tenant
    }
}

impl Tenant {
    /// Runs a lookup on another thread. None if it takes too long (then it ends without the
    /// caller), if too many wait, or if no thread is free.
    pub async fn look_up<T: Send + 'static>(
        self: &Arc<Tenant>,
        until: Deadline,
        lookup: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let _waiting = self.waiting.try_acquire().ok()?;
        let looked_up = async {
            let turn = Arc::clone(&self.lookups).acquire_owned().await.ok()?;
            self.run(turn, lookup).await
        };
        timeout_at(until.0, looked_up).await.ok()?
    }

    /// A turn to read a folder for a listing. None if there is none in time, or too many wait.
    pub async fn turn_to_list(&self, until: Deadline) -> Option<OwnedSemaphorePermit> {
        let _waiting = self.waiting.try_acquire().ok()?;
        timeout_at(until.0, Arc::clone(&self.listings).acquire_owned()).await.ok()?.ok()
    }

    /// Reads a folder for a listing on another thread, in this turn; none as for
    /// [`Tenant::look_up`].
    pub async fn list<T: Send + 'static>(
        self: &Arc<Tenant>,
        until: Deadline,
        turn: OwnedSemaphorePermit,
        list: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        timeout_at(until.0, self.run(turn, list)).await.ok()?
    }

    /// The right to hold a file open. None if there is none in time.
    pub async fn file(&self, until: Deadline) -> Option<OwnedSemaphorePermit> {
        timeout_at(until.0, Arc::clone(&self.files).acquire_owned()).await.ok()?.ok()
    }

    /// A turn to read a file of users. None if there is none in time.
    pub async fn turn_to_read(&self, until: Deadline) -> Option<SemaphorePermit<'_>> {
        timeout_at(until.0, self.reads.acquire()).await.ok()?.ok()
    }

    async fn run<T: Send + 'static>(
        self: &Arc<Tenant>,
        turn: OwnedSemaphorePermit,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let any = Arc::clone(&self.all).acquire_owned().await.ok()?;
        // While the thread runs, the tenant has no other turns.
        let tenant = Arc::clone(self);
        let running = tokio::task::spawn_blocking(move || {
            let done = work();
            drop((turn, any, tenant));
            done
        });
        running.await.ok()
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
                tokio::spawn(async move { stuck.look_up(Deadline::start(), lookup).await })
            })
            .collect();
        for one in waiting {
            assert!(one.await.expect("it ends").is_none(), "the lookup does not end");
        }
        assert_eq!(stuck.lookups.available_permits(), 0);
        assert_eq!(stuck.waiting.available_permits(), WAITING_OF_ONE);
        assert_eq!(all.all.available_permits(), THREADS - THREADS_OF_ONE);
        let turn = stuck.turn_to_list(Deadline::start()).await.expect("listings have their own");
        assert_eq!(stuck.list(Deadline::start(), turn, || 7).await, Some(7));
        assert_eq!(other.look_up(Deadline::start(), || 7).await, Some(7));
        drop(stuck);
        let stuck = all.of("stuck");
        assert_eq!(stuck.lookups.available_permits(), 0, "its threads are its own after a reload");
        drop(release);
        while stuck.lookups.available_permits() < THREADS_OF_ONE {
            tokio::task::yield_now().await;
        }
        assert_eq!(stuck.look_up(Deadline::start(), || 7).await, Some(7));
    }

    #[tokio::test]
    async fn many_lookups_at_once_have_their_turn() {
        let tenant = AllTurns::default().of("www");
        let all = (0..1000).map(|number| {
            let tenant = Arc::clone(&tenant);
            tokio::spawn(async move { tenant.look_up(Deadline::start(), move || number).await })
        });
        for (number, one) in all.collect::<Vec<_>>().into_iter().enumerate() {
            assert_eq!(one.await.expect("it ends"), Some(number));
        }
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
