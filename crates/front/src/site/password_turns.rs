//! Turns to verify passwords. Each takes a processor for tens of milliseconds or more, so few are
//! verified at a time, and no site or users file has more than its share of them.

use std::collections::HashMap;
use std::hash::Hash;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Passwords that are verified at a time.
pub const AT_A_TIME: usize = 2;
/// Requests that may wait for that, with those whose password is being verified.
const MAX_WAITING: usize = 256;
/// Of these, the requests of one group.
const MAX_WAITING_OF_GROUP: usize = MAX_WAITING / 4;
/// Shares in a table, beyond which those without a request are removed.
const MAX_SHARES: usize = 2 * MAX_WAITING;

/// The right to verify one password, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    _share: Arc<Share>,
    _permits: [OwnedSemaphorePermit; 4],
}

/// Turns for all requests. A group is a site or a users file: each gets a turn after the other.
#[derive(Debug)]
pub struct PasswordTurns {
    all: Share,
    groups: Shares<PathBuf>,
    /// Passwords of one group that are verified at a time.
    of_group: usize,
}

impl PasswordTurns {
    /// Turns of which one group has this many at a time at most.
    pub fn new(of_group: usize) -> PasswordTurns {
        PasswordTurns {
            all: Share::new(AT_A_TIME, MAX_WAITING),
            groups: Shares::default(),
            of_group,
        }
    }

    /// Waits for a turn. `None` if too many requests wait.
    pub async fn take(&self, group: &Path) -> Option<Turn> {
        let waits = self.all.enter()?;
        let share = || Share::new(self.of_group, MAX_WAITING_OF_GROUP);
        let group = self.groups.of(group.to_owned(), share);
        let waits_in_group = group.enter()?;
        // Only those who have a turn of their group wait for one of all: so each group has few
        // in that line, however many of its requests wait.
        let turn_of_group = group.turn().await?;
        let turn = self.all.turn().await?;
        Some(Turn { _share: group, _permits: [waits, waits_in_group, turn_of_group, turn] })
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

/// The shares that requests have now.
#[derive(Debug)]
struct Shares<K>(Mutex<HashMap<K, Weak<Share>>>);

impl<K> Default for Shares<K> {
    fn default() -> Shares<K> {
        Shares(Mutex::default())
    }
}

impl<K: Eq + Hash> Shares<K> {
    fn of(&self, key: K, new: impl FnOnce() -> Share) -> Arc<Share> {
        let mut shares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(&key).and_then(Weak::upgrade) {
            return share;
        }
        if shares.len() >= MAX_SHARES {
            shares.retain(|_, share| share.strong_count() > 0);
        }
        let share = Arc::new(new());
        shares.insert(key, Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// The turn, if it does not have to wait.
    fn at_once(turns: &PasswordTurns, group: &str) -> Option<Turn> {
        match poll(pin!(turns.take(Path::new(group)))) {
            Poll::Ready(turn) => turn,
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_site_that_has_its_turn_leaves_the_other_one_to_another_site() {
        let turns = PasswordTurns::new(1);
        let held = at_once(&turns, "/a");
        assert!(held.is_some());
        let mut next = pin!(turns.take(Path::new("/a")));
        assert!(poll(next.as_mut()).is_pending());
        let other = at_once(&turns, "/b");
        assert!(other.is_some());
        // Both are taken.
        let mut third = pin!(turns.take(Path::new("/c")));
        assert!(poll(third.as_mut()).is_pending());
        drop(held);
        // The third site waits for a turn of all, the second request of the first one as well.
        assert!(matches!(poll(third.as_mut()), Poll::Ready(Some(_))));
        assert!(matches!(poll(next.as_mut()), Poll::Ready(Some(_))));
    }

    #[test]
    fn the_requests_of_one_site_leave_room_for_those_of_others() {
        let turns = PasswordTurns::new(1);
        let held = at_once(&turns, "/a");
        let more = (0..2 * MAX_WAITING).map(|_| Box::pin(turns.take(Path::new("/a"))));
        let mut waiting: Vec<_> = more.collect();
        let states: Vec<_> = waiting.iter_mut().map(|one| poll(one.as_mut())).collect();
        let pending = states.iter().filter(|state| state.is_pending()).count();
        assert_eq!(pending, MAX_WAITING_OF_GROUP - 1);
        assert!(states.iter().all(|state| !matches!(state, Poll::Ready(Some(_)))));
        assert!(at_once(&turns, "/b").is_some());
        drop((held, waiting));
        assert!(at_once(&turns, "/a").is_some());
    }

    #[test]
    fn shares_without_a_request_do_not_stay() {
        let turns = PasswordTurns::new(1);
        for site in 0..4 * MAX_SHARES {
            assert!(at_once(&turns, &format!("/{site}")).is_some());
        }
        assert!(turns.groups.0.lock().unwrap().len() <= MAX_SHARES);
    }
}
