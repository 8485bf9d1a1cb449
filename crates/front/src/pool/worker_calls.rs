//! What scripts wish the front to do for them while they wait: a worker writes it into its seat,
//! the thread that looks after its exchange finds it there, and one task hears them all, of each
//! pool one in turn.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::pool::exchange::SlotLease;
use crate::pool::generation::Generation;

/// WorkerCalls of one pool that have not been granted. A worker has one at a time, as long as it keeps
/// to the rules; one that does not takes the room of its own pool only.
const MAX_PENDING: usize = 512;

/// What a script is told that wishes for something while too many of its pool do.
const TOO_MANY_CALLS: u32 = 0;

/// A wish of a script.
#[derive(Debug)]
pub struct WorkerCall {
    /// The script's pool.
    pub pool: String,
    /// What the script wants, by the word of its worker.
    pub bytes: Vec<u8>,
    slot: CallSlot,
    /// Its room among those of its pool.
    _room: OwnedSemaphorePermit,
}

/// Which script waits for it.
#[derive(Debug)]
struct CallSlot {
    generation: Arc<Generation>,
    seat: u32,
    slot: usize,
    number: u32,
}

impl CallSlot {
    fn reply(&self, verdict: u32) {
        let link = self.generation.link();
        link.grant(self.seat, self.slot, self.number, verdict);
    }
}

impl WorkerCall {
    /// The script may go on; `verdict` says what came of it.
    pub fn reply(self, verdict: u32) {
        self.slot.reply(verdict);
    }
}

/// Queued items by their sender, served in turns (round robin).
#[derive(Debug)]
struct RoundRobin<T>(VecDeque<(String, VecDeque<T>)>);

impl<T> RoundRobin<T> {
    fn put(&mut self, pool: &str, item: T) {
        match self.0.iter_mut().find(|(name, _)| name == pool) {
            Some((_, items)) => items.push_back(item),
            None => self.0.push_back((pool.to_owned(), [item].into())),
        }
    }

    fn take(&mut self) -> Option<T> {
        let (pool, mut items) = self.0.pop_front()?;
        let item = items.pop_front();
        if !items.is_empty() {
            self.0.push_back((pool, items));
        }
        item
    }
}

#[derive(Debug)]
struct CallQueue {
    turns: Mutex<RoundRobin<WorkerCall>>,
    more: Notify,
}

/// The wishes of all pools that have not been heard.
#[derive(Debug, Clone)]
pub struct WorkerCalls(Arc<CallQueue>);

impl Default for WorkerCalls {
    fn default() -> WorkerCalls {
        WorkerCalls(Arc::new(CallQueue {
            turns: Mutex::new(RoundRobin(VecDeque::new())),
            more: Notify::new(),
        }))
    }
}

impl WorkerCalls {
    /// The way there for a pool.
    pub fn of_a_pool(&self) -> PoolCalls {
        PoolCalls {
            all: self.clone(),
            room: Arc::new(Semaphore::new(MAX_PENDING)),
        }
    }

    /// The next one. Others have their turn before.
    pub async fn next(&self) -> WorkerCall {
        tokio::task::yield_now().await;
        loop {
            let more = self.0.more.notified();
            if let Some(call) = self.turns().take() {
                return call;
            }
            more.await;
        }
    }

    fn turns(&self) -> MutexGuard<'_, RoundRobin<WorkerCall>> {
        let turns = self.0.turns.lock();
        turns.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the wishes of a pool's scripts go.
#[derive(Debug)]
pub struct PoolCalls {
    all: WorkerCalls,
    room: Arc<Semaphore>,
}

impl PoolCalls {
    /// Looks whether the script of a lease has one. True if it has.
    pub fn look(&self, pool: &str, lease: &mut SlotLease) -> bool {
        let Some((number, bytes)) = lease.generation.link().wish(&mut lease.assignment) else {
            return false;
        };
        let slot = CallSlot {
            generation: lease.generation.clone(),
            seat: lease.assignment.seat(),
            slot: lease.assignment.slot(),
            number,
        };
        let Ok(room) = self.room.clone().try_acquire_owned() else {
            slot.reply(TOO_MANY_CALLS);
            return true;
        };
        let call = WorkerCall {
            pool: pool.to_owned(),
            bytes,
            slot: slot,
            _room: room,
        };
        self.all.turns().put(pool, call);
        self.all.0.more.notify_one();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wishes_for_much_waits_and_not_who_wishes_for_little() {
        let mut turns = RoundRobin(VecDeque::new());
        for number in 0..100 {
            turns.put("much", number);
        }
        turns.put("little", 1000);
        assert_eq!(turns.take(), Some(0));
        assert_eq!(turns.take(), Some(1000));
        turns.put("little", 1001);
        assert_eq!([turns.take(), turns.take()], [Some(1), Some(1001)]);
        let rest: Vec<i32> = std::iter::from_fn(|| turns.take()).collect();
        assert_eq!(rest, Vec::from_iter(2..100));
    }
}
