//! Lookups in folders of tenants, and reads of their files, on other threads: by few at a time for
//! each tenant, and no request waits long for one. A lookup that a tenant holds up keeps its thread
//! until the tenant lets go.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

/// Most threads in lookups of one tenant.
const THREADS_OF_ONE: usize = 4;

/// Most threads that read folders of one tenant for listings.
const LISTINGS_OF_ONE: usize = 2;

/// Most threads in lookups and listings of all tenants, besides one that each has for itself.
const THREADS: usize = 256;

/// Most threads that read files of one tenant that are sent.
const SENDERS_OF_ONE: usize = 8;

/// Most threads that read files of all tenants that are sent, besides one that each has for itself.
const SENDERS: usize = 128;

/// Longest wait for a file that is read to be compressed.
const COMPRESSION_PATIENCE: Duration = Duration::from_secs(5);

/// Longest wait for a piece of a file that is sent.
const SEND_PATIENCE: Duration = Duration::from_secs(60);

/// Most contents of one tenant's files, in KiB, that are read for requests and not yet in use.
const CONTENTS_OF_ONE: usize = 16 << 10;

/// Contents of each tenant's files, in KiB, for which no other tenant takes the room: those of a
/// `.htaccess` file of the largest size, and of files in memory.
const OWN_CONTENTS: usize = 2 << 10;

/// Most contents of all tenants' files, in KiB, that are read for requests and not yet in use.
const CONTENTS: usize = 128 << 10;

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
    all: Arc<SharedTurns>,
    tenants: Mutex<HashMap<String, Weak<Tenant>>>,
}

/// What tenants share.
#[derive(Debug)]
struct SharedTurns {
    threads: Arc<Semaphore>,
    senders: Arc<Semaphore>,
    contents: Arc<Semaphore>,
    /// There are several tenants.
    are_several: AtomicBool,
}

/// The turns of one tenant.
#[derive(Debug)]
pub struct Tenant {
    all: Arc<SharedTurns>,
    /// Its own thread for lookups, whatever others do.
    own: Arc<Semaphore>,
    /// Its own thread for files that are sent.
    own_sender: Arc<Semaphore>,
    senders: Arc<Semaphore>,
    contents: Arc<Semaphore>,
    own_contents: Arc<Semaphore>,
    lookups: Arc<Semaphore>,
    listings: Arc<Semaphore>,
    files: Arc<Semaphore>,
    waiting: Semaphore,
    reads: Semaphore,
}

/// The right to hold bytes of a file.
#[derive(Debug)]
pub struct Room {
    /// As part of the tenant's limit.
    _within_limit: OwnedSemaphorePermit,
    /// As part of its own bytes, or of those of all tenants.
    _taken: OwnedSemaphorePermit,
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
        let semaphore = |most| Arc::new(Semaphore::new(most));
        let all = SharedTurns {
            threads: semaphore(THREADS),
            senders: semaphore(SENDERS),
            contents: semaphore(CONTENTS),
            are_several: AtomicBool::new(false),
        };
        AllTurns { all: Arc::new(all), tenants: Mutex::default() }
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
        let semaphore = |most| Arc::new(Semaphore::new(most));
        let tenant = Arc::new(Tenant {
            all: Arc::clone(&self.all),
            own: semaphore(1),
            own_sender: semaphore(1),
            senders: semaphore(SENDERS_OF_ONE),
            contents: semaphore(CONTENTS_OF_ONE),
            own_contents: semaphore(OWN_CONTENTS),
            lookups: semaphore(THREADS_OF_ONE),
            listings: semaphore(LISTINGS_OF_ONE),
            files: semaphore(FILES_OF_ONE),
            waiting: Semaphore::new(WAITING_OF_ONE),
            reads: Semaphore::new(READS_OF_ONE),
        });
        tenants.insert(name.to_owned(), Arc::downgrade(&tenant));
        self.all.are_several.store(tenants.len() > 1, Ordering::Relaxed);
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

    /// Reads a folder for a listing on another thread, in this turn, which the listing keeps; none
    /// as for [`Tenant::look_up`].
    pub async fn list<T: Send + 'static>(
        self: &Arc<Tenant>,
        until: Deadline,
        turn: OwnedSemaphorePermit,
        list: impl FnOnce(OwnedSemaphorePermit) -> T + Send + 'static,
    ) -> Option<T> {
        let listed = async {
            let thread = either(&self.own, &self.all.threads, 1).await?;
            self.run_in(thread, move || list(turn)).await
        };
        timeout_at(until.0, listed).await.ok()?
    }

    /// The right to hold a file open. None if there is none in time.
    pub async fn file(&self, until: Deadline) -> Option<OwnedSemaphorePermit> {
        timeout_at(until.0, Arc::clone(&self.files).acquire_owned()).await.ok()?.ok()
    }

    /// As [`Tenant::look_up`] of a file's contents: with the right to hold this many bytes for the
    /// request.
    pub async fn look_into<T: Send + 'static>(
        self: &Arc<Tenant>,
        until: Deadline,
        bytes: u64,
        read: impl FnOnce(Room) -> T + Send + 'static,
    ) -> Option<T> {
        let _waiting = self.waiting.try_acquire().ok()?;
        let read = async {
            // No turn is held while there is no room: others need it, and hold room.
            let room = self.room(bytes).await?;
            let turn = Arc::clone(&self.lookups).acquire_owned().await.ok()?;
            self.run(turn, move || read(room)).await
        };
        timeout_at(until.0, read).await.ok()?
    }

    /// Of its own contents a tenant always has some.
    async fn room(&self, bytes: u64) -> Option<Room> {
        let kilobytes = u32::try_from(bytes.div_ceil(1 << 10)).ok()?;
        let within_limit = Arc::clone(&self.contents).acquire_many_owned(kilobytes).await.ok()?;
        let taken = either(&self.own_contents, &self.all.contents, kilobytes).await?;
        Some(Room { _within_limit: within_limit, _taken: taken })
    }

    /// Whether other tenants are served, which a process of this one must not have wait.
    pub fn has_neighbours(&self) -> bool {
        self.all.are_several.load(Ordering::Relaxed)
    }

    /// Reads a piece of a file that is sent, on another thread. None if it takes too long. The turn
    /// ends when the caller has the piece: no more pieces wait for a caller than there are turns.
    pub async fn read_to_send<T: Send + 'static>(
        self: &Arc<Tenant>,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let read = async {
            let turn = Arc::clone(&self.senders).acquire_owned().await.ok()?;
            let thread = either(&self.own_sender, &self.all.senders, 1).await?;
            let (done, _turn) = self.run_in(thread, move || (read(), turn)).await?;
            Some(done)
        };
        timeout_at(Instant::now() + SEND_PATIENCE, read).await.ok()?
    }

    /// Reads a file that is to be compressed, on another thread. None if no thread is free at once,
    /// or it takes too long.
    pub async fn read_if_free<T: Send + 'static>(
        self: &Arc<Tenant>,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let turn = Arc::clone(&self.senders).try_acquire_owned().ok()?;
        let thread = Arc::clone(&self.all.senders).try_acquire_owned().ok()?;
        let until = Instant::now() + COMPRESSION_PATIENCE;
        timeout_at(until, self.run_in((turn, thread), read)).await.ok()?
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
        let thread = either(&self.own, &self.all.threads, 1).await?;
        self.run_in((turn, thread), work).await
    }

    async fn run_in<T: Send + 'static>(
        self: &Arc<Tenant>,
        permits: impl Send + 'static,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        // While the thread runs, the tenant has no other turns.
        let tenant = Arc::clone(self);
        let running = tokio::task::spawn_blocking(move || {
            let done = work();
            drop((permits, tenant));
            done
        });
        running.await.ok()
    }
}

/// This many of a tenant's own permits, or of those that all share.
async fn either(
    own: &Arc<Semaphore>,
    shared: &Arc<Semaphore>,
    count: u32,
) -> Option<OwnedSemaphorePermit> {
    let acquired = tokio::select! {
        biased;
        own = Arc::clone(own).acquire_many_owned(count) => own,
        shared = Arc::clone(shared).acquire_many_owned(count) => shared,
    };
    acquired.ok()
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
        assert_eq!(all.all.threads.available_permits(), THREADS - THREADS_OF_ONE + 1);
        let turn = stuck.turn_to_list(Deadline::start()).await.expect("listings have their own");
        assert_eq!(stuck.list(Deadline::start(), turn, |_| 7).await, Some(7));
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
    async fn tenants_whose_lookups_do_not_end_leave_one_thread_to_each_other() {
        let all = AllTurns::default();
        let _held: Vec<_> = (0..THREADS)
            .map(|_| Arc::clone(&all.all.threads).try_acquire_owned().expect("one is free"))
            .collect();
        assert_eq!(all.of("other").look_up(Deadline::start(), || 7).await, Some(7));
    }

    #[tokio::test]
    async fn tenants_with_many_contents_leave_room_to_each_other() {
        let all = AllTurns::default();
        let tenants: Vec<_> = (0..9).map(|number| all.of(&number.to_string())).collect();
        let most = (CONTENTS_OF_ONE as u64) << 10;
        let mut rooms = Vec::new();
        for tenant in &tenants[..8] {
            rooms.push(tenant.room(most).await.expect("there is room"));
        }
        let (other, until) = (&tenants[8], Deadline::start());
        let own = (OWN_CONTENTS as u64) << 10;
        assert_eq!(other.look_into(until, own, |_| 7).await, Some(7));
        assert_eq!(other.look_into(until, own + 1, |_| 7).await, None, "there is no more");
        drop(rooms);
        let until = Deadline::start();
        assert_eq!(other.look_into(until, most, |_| 7).await, Some(7));
        assert_eq!(other.look_into(until, most + 1, |_| 7).await, None, "beyond its limit");
    }

    #[tokio::test]
    async fn many_requests_that_hold_contents_have_their_turn_for_another_lookup() {
        let tenant = AllTurns::default().of("www");
        let all = (0..400).map(|_| {
            let tenant = Arc::clone(&tenant);
            tokio::spawn(async move {
                let until = Deadline::start();
                let room = tenant.look_into(until, 200 << 10, |room| room).await?;
                let found = tenant.look_up(until, || 7).await;
                drop(room);
                found
            })
        });
        for one in all.collect::<Vec<_>>() {
            assert_eq!(one.await.expect("it ends"), Some(7));
        }
    }

    #[tokio::test]
    async fn many_reads_at_once_wait_for_room() {
        let tenant = AllTurns::default().of("www");
        let all = (0..1000).map(|number| {
            let tenant = Arc::clone(&tenant);
            let read = async move {
                tenant.look_into(Deadline::start(), 60 << 10, move |room| (room, number)).await
            };
            tokio::spawn(read)
        });
        for (number, one) in all.collect::<Vec<_>>().into_iter().enumerate() {
            assert_eq!(one.await.expect("it ends").map(|(_, read)| read), Some(number));
        }
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
