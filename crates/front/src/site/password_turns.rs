//! Turns to verify passwords. Each takes a processor for tens of milliseconds or more, so few are
//! verified at a time, and no client, site or users file has more than its share of them. Requests
//! with the same password share its verification.

use std::collections::HashMap;
use std::hash::Hash;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task;

/// Passwords that are verified at a time.
pub const AT_A_TIME: usize = 2;
/// Passwords that may wait for that, with those that are being verified, beyond the places of each
/// group.
const MAX_WAITING: usize = 256;
/// Passwords for one group that may wait, with those in its own places.
const MAX_WAITING_OF_GROUP: usize = MAX_WAITING / 4;
/// Places of each group that no other group takes. The configuration limits the number of groups.
const OWN_PLACES: usize = 4;
/// Passwords from one client that may wait: a browser sends one, an office a few.
const MAX_WAITING_OF_CLIENT: usize = 8;
/// Passwords of one client that are verified at a time.
const AT_A_TIME_OF_CLIENT: usize = 1;
/// Requests with the same password that may wait for its verification.
const MAX_WITH_ONE_PASSWORD: usize = 256;
/// Entries of a table, beyond which those without a request are removed.
const MAX_ENTRIES: usize = 2 * MAX_WAITING;

/// A request with a password.
#[derive(Debug, Clone, Copy)]
pub struct Applicant<'a> {
    /// The site or users file.
    pub group: &'a Path,
    /// The client, by the key for limits.
    pub client: u128,
    /// A digest of the password and all else that decides whether it is right.
    pub digest: [u8; 32],
}

/// The right to verify one password, until it is dropped.
#[derive(Debug)]
struct Turn {
    _group: Arc<Group>,
    _client: Arc<Share>,
    _permits: [OwnedSemaphorePermit; 6],
}

/// Turns for all requests. A group is a site or a users file: each gets a turn after the other, and
/// within it each client.
#[derive(Debug)]
pub struct PasswordTurns {
    all: Share,
    groups: Entries<PathBuf, Group>,
    clients: Entries<u128, Share>,
    verifications: Entries<[u8; 32], Verification>,
    /// Passwords of one group that are verified at a time.
    of_group: usize,
}

impl PasswordTurns {
    /// Turns of which one group has this many at a time at most.
    pub fn new(of_group: usize) -> PasswordTurns {
        PasswordTurns {
            all: Share::new(AT_A_TIME, MAX_WAITING),
            groups: Entries::default(),
            clients: Entries::default(),
            verifications: Entries::default(),
            of_group,
        }
    }

    /// Whether the password is right, by `verify` on another thread. `None` if too many wait.
    pub async fn verify(
        &self,
        applicant: Applicant<'_>,
        verify: impl FnOnce() -> bool + Send + 'static,
    ) -> Option<bool> {
        let verification = self.verifications.of(applicant.digest, Verification::new);
        let _waits = verification.requests.enter()?;
        let turn_of_request = verification.requests.turn().await?;
        if let Some(is_right) = verification.outcome.get() {
            return Some(*is_right);
        }
        let turn = self.take(applicant.group, applicant.client).await?;
        let verified = task::spawn_blocking(move || {
            // Released here: a request that ends meanwhile leaves its turn to no other before its
            // password is verified. One that waits keeps its place if its client disconnects.
            let _held = (turn, turn_of_request);
            *verification.outcome.get_or_init(verify)
        });
        Some(verified.await.unwrap_or(false))
    }

    async fn take(&self, group: &Path, client: u128) -> Option<Turn> {
        let group = self.groups.of(group.to_owned(), || Group::new(self.of_group));
        let waits_in_group = group.share.enter()?;
        let share = || Share::new(AT_A_TIME_OF_CLIENT, MAX_WAITING_OF_CLIENT);
        let client = self.clients.of(client, share);
        let waits_of_client = client.enter()?;
        let waits = group.enter_own_place().or_else(|| self.all.enter())?;
        // Only those who have the turn of their client wait for one of their group, and only those
        // who have this for one of all: so each has few in these lines, however many wait.
        let turn_of_client = client.turn().await?;
        let turn_in_group = group.share.turn().await?;
        let turn = self.all.turn().await?;
        Some(Turn {
            _group: group,
            _client: client,
            _permits: [waits, waits_in_group, waits_of_client, turn_of_client, turn_in_group, turn],
        })
    }
}

/// The part of the turns that some requests have.
#[derive(Debug)]
struct Share {
    turns: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl Share {
    fn new(turns: usize, waiting: usize) -> Share {
        let [turns, waiting] = [turns, waiting].map(|count| Arc::new(Semaphore::new(count)));
        Share { turns, waiting }
    }

    /// A place in the line, if there is one.
    fn enter(&self) -> Option<OwnedSemaphorePermit> {
        self.waiting.clone().try_acquire_owned().ok()
    }

    /// First come, first served.
    async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        self.turns.clone().acquire_owned().await.ok()
    }
}

/// The turns of a site or users file.
#[derive(Debug)]
struct Group {
    share: Share,
    own_places: Arc<Semaphore>,
}

impl Group {
    fn new(turns: usize) -> Group {
        let share = Share::new(turns, MAX_WAITING_OF_GROUP);
        Group { share, own_places: Arc::new(Semaphore::new(OWN_PLACES)) }
    }

    fn enter_own_place(&self) -> Option<OwnedSemaphorePermit> {
        self.own_places.clone().try_acquire_owned().ok()
    }
}

/// The verification of one password, for all requests that have it now.
#[derive(Debug)]
struct Verification {
    /// One of them verifies it, the next one if the client of that disconnects.
    requests: Share,
    outcome: OnceLock<bool>,
}

impl Verification {
    fn new() -> Verification {
        Verification { requests: Share::new(1, MAX_WITH_ONE_PASSWORD), outcome: OnceLock::new() }
    }
}

/// What requests share now. An entry ends with its last request.
#[derive(Debug)]
struct Entries<K, T>(Mutex<HashMap<K, Weak<T>>>);

impl<K, T> Default for Entries<K, T> {
    fn default() -> Entries<K, T> {
        Entries(Mutex::default())
    }
}

impl<K: Eq + Hash, T> Entries<K, T> {
    fn of(&self, key: K, new: impl FnOnce() -> T) -> Arc<T> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get(&key).and_then(Weak::upgrade) {
            return entry;
        }
        if entries.len() >= MAX_ENTRIES {
            entries.retain(|_, entry| entry.strong_count() > 0);
        }
        let entry = Arc::new(new());
        entries.insert(key, Arc::downgrade(&entry));
        entry
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// The turn, if it does not have to wait.
    fn at_once(turns: &PasswordTurns, group: &str, client: u128) -> Option<Turn> {
        match poll(pin!(turns.take(Path::new(group), client))) {
            Poll::Ready(turn) => turn,
            Poll::Pending => None,
        }
    }

    /// How many of these many requests wait; the others are turned away.
    fn waiting<'t>(requests: &mut [Pin<Box<impl Future<Output = Option<Turn>> + 't>>]) -> usize {
        let states: Vec<_> = requests.iter_mut().map(|one| poll(one.as_mut())).collect();
        assert!(states.iter().all(|state| !matches!(state, Poll::Ready(Some(_)))));
        states.iter().filter(|state| state.is_pending()).count()
    }

    #[test]
    fn a_site_that_has_its_turn_leaves_the_other_one_to_another_site() {
        let turns = PasswordTurns::new(1);
        let held = at_once(&turns, "/a", 1);
        assert!(held.is_some());
        let mut next = pin!(turns.take(Path::new("/a"), 2));
        assert!(poll(next.as_mut()).is_pending());
        let other = at_once(&turns, "/b", 3);
        assert!(other.is_some());
        // Both are taken.
        let mut third = pin!(turns.take(Path::new("/c"), 4));
        assert!(poll(third.as_mut()).is_pending());
        drop(held);
        assert!(matches!(poll(third.as_mut()), Poll::Ready(Some(_))));
        drop(other);
        assert!(matches!(poll(next.as_mut()), Poll::Ready(Some(_))));
    }

    #[test]
    fn the_requests_of_one_site_leave_room_for_those_of_others() {
        let turns = PasswordTurns::new(1);
        let held = at_once(&turns, "/a", 0);
        let more = (1..512).map(|client| Box::pin(turns.take(Path::new("/a"), client)));
        let mut more: Vec<_> = more.collect();
        assert_eq!(waiting(&mut more), MAX_WAITING_OF_GROUP - 1);
        assert!(at_once(&turns, "/b", 1000).is_some());
        drop((held, more));
        assert!(at_once(&turns, "/a", 1000).is_some());
    }

    #[test]
    fn a_few_sites_that_take_all_common_places_leave_each_other_site_its_own() {
        let turns = PasswordTurns::new(1);
        let held = [at_once(&turns, "/x", 1000), at_once(&turns, "/y", 1001)];
        assert!(held.iter().all(Option::is_some));
        let of_group = |group: &'static str, first_client: u128| {
            let count = u128::try_from(MAX_WAITING_OF_GROUP).unwrap();
            let clients = (0..count).map(move |number| first_client + number / 8);
            clients.map(|client| Box::pin(turns.take(Path::new(group), client)))
        };
        let attacked = ["/a", "/b", "/c", "/d"].into_iter().zip((0..).step_by(8));
        let mut requests: Vec<_> =
            attacked.flat_map(|(group, client)| of_group(group, client)).collect();
        assert_eq!(waiting(&mut requests), 4 * MAX_WAITING_OF_GROUP);
        // As many are in common places, but for those in the places of the four.
        let mut more: Vec<_> = of_group("/f", 32).collect();
        assert_eq!(waiting(&mut more), OWN_PLACES + 4 * OWN_PLACES);
        let other = |client| Box::pin(turns.take(Path::new("/e"), client));
        let mut others: Vec<_> = (40..).map(other).take(OWN_PLACES + 1).collect();
        assert_eq!(waiting(&mut others), OWN_PLACES);
    }

    #[test]
    fn a_client_with_many_passwords_leaves_its_site_to_other_clients() {
        let turns = PasswordTurns::new(AT_A_TIME);
        let held = at_once(&turns, "/a", 1);
        let more = (0..512).map(|_| Box::pin(turns.take(Path::new("/a"), 1)));
        let mut more: Vec<_> = more.collect();
        assert_eq!(waiting(&mut more), MAX_WAITING_OF_CLIENT - 1);
        assert!(at_once(&turns, "/b", 1).is_none());
        assert!(at_once(&turns, "/a", 2).is_some());
        drop((held, more));
        assert!(at_once(&turns, "/b", 1).is_some());
    }

    #[test]
    fn entries_without_a_request_do_not_stay() {
        let turns = PasswordTurns::new(1);
        for client in 0..4 * MAX_ENTRIES {
            let group = format!("/{client}");
            assert!(at_once(&turns, &group, u128::try_from(client).unwrap()).is_some());
        }
        assert!(turns.groups.0.lock().unwrap().len() <= MAX_ENTRIES);
        assert!(turns.clients.0.lock().unwrap().len() <= MAX_ENTRIES);
    }

    #[test]
    fn requests_with_one_password_share_its_verification() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _entered = runtime.enter();
        let turns = PasswordTurns::new(1);
        let applicant = Applicant { group: Path::new("/a"), client: 1, digest: [7; 32] };
        let (end, ended) = mpsc::channel::<()>();
        let mut first = Box::pin(turns.verify(applicant, move || ended.recv().is_err()));
        assert!(poll(first.as_mut()).is_pending());
        let runs = Arc::new(AtomicUsize::new(0));
        let again = || {
            let runs = runs.clone();
            Box::pin(turns.verify(applicant, move || runs.fetch_add(1, Ordering::Relaxed) > 0))
        };
        let mut others: Vec<_> = (0..MAX_WITH_ONE_PASSWORD).map(|_| again()).collect();
        let states = others.iter_mut().map(|one| poll(one.as_mut()));
        let states: Vec<Poll<Option<bool>>> = states.collect();
        // The last one is beyond the limit.
        assert_eq!(states.last(), Some(&Poll::Ready(None)));
        let pending = states.iter().filter(|state| state.is_pending()).count();
        assert_eq!(pending, MAX_WITH_ONE_PASSWORD - 1);
        // Its client disconnects, and the verification goes on for the others.
        drop((first, end));
        for mut other in others.into_iter().take(pending) {
            assert_eq!(runtime.block_on(other.as_mut()), Some(true));
        }
        assert_eq!(runs.load(Ordering::Relaxed), 0);
        assert_eq!(runtime.block_on(again()), Some(false));
    }
}
