//! Synchronous calls of workers to the front: a worker writes the call into its seat and waits, the
//! thread that polls its exchange finds it there, and one task executes the calls of all pools in
//! turn.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::pool::Pool;
use crate::pool::exchange::SlotLease;
use crate::pool::generation::Generation;
use crate::pool::pool_key::PoolKey;

/// Most calls of one pool without a reply. A worker has one at a time; one that violates the
/// protocol only exhausts its own pool.
const MAX_PENDING: usize = 512;

/// The reply while too many calls of the pool wait.
const TOO_MANY_CALLS: u32 = 0;

/// A call of a worker.
#[derive(Debug)]
pub struct WorkerCall {
    /// The worker's pool.
    pub pool: PoolKey,
    /// The arguments, as received.
    pub bytes: Vec<u8>,
    slot: CallSlot,
    /// Its share of [`MAX_PENDING`].
    _permit: OwnedSemaphorePermit,
}

/// The position of the call.
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
        link.reply(self.seat, self.slot, self.number, verdict);
    }
}

impl WorkerCall {
    /// Replies with `verdict`: the script continues.
    pub fn reply(self, verdict: u32) {
        self.slot.reply(verdict);
    }
}

/// Queued items by pool, one of each pool in turn.
#[derive(Debug)]
struct RoundRobin<T>(VecDeque<(PoolKey, VecDeque<T>)>);

impl<T> RoundRobin<T> {
    fn put(&mut self, pool: &PoolKey, item: T) {
        match self.0.iter_mut().find(|(key, _)| key == pool) {
            Some((_, items)) => items.push_back(item),
            None => self.0.push_back((pool.clone(), [item].into())),
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

/// The queued calls of all pools.
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
    /// The queue for the calls of one pool.
    pub fn of_a_pool(&self) -> PoolCalls {
        PoolCalls { all: self.clone(), permits: Arc::new(Semaphore::new(MAX_PENDING)) }
    }

    /// The next call, after other tasks have had their turn.
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

/// The calls of one pool.
#[derive(Debug)]
pub struct PoolCalls {
    all: WorkerCalls,
    permits: Arc<Semaphore>,
}

impl PoolCalls {
    /// Queues the call of a leased slot. False if there is none.
    pub fn take_call(&self, pool: &Pool, lease: &mut SlotLease) -> bool {
        let Some((number, bytes)) = lease.generation.link().take_call(&mut lease.slot) else {
            return false;
        };
        let slot = CallSlot {
            generation: lease.generation.clone(),
            seat: lease.slot.seat(),
            slot: lease.slot.slot(),
            number,
        };
        let Ok(permit) = self.permits.clone().try_acquire_owned() else {
            slot.reply(TOO_MANY_CALLS);
            return true;
        };
        let pool = pool.key();
        let call = WorkerCall { pool: pool.clone(), bytes, slot, _permit: permit };
        self.all.turns().put(&pool, call);
        self.all.0.more.notify_one();
        true
    }
}

#[cfg(test)]
mod tests {
    use maitred_config::PoolUser;

    use super::*;

    fn of_user(uid: u32) -> PoolKey {
        PoolKey { name: "shop".into(), user: PoolUser::Known { uid, gid: 1 } }
    }

    #[test]
    fn a_pool_with_many_calls_waits_and_one_with_few_does_not() {
        let (much, little) = (of_user(1), of_user(2));
        let mut turns = RoundRobin(VecDeque::new());
        for number in 0..100 {
            turns.put(&much, number);
        }
        turns.put(&little, 1000);
        assert_eq!(turns.take(), Some(0));
        assert_eq!(turns.take(), Some(1000));
        turns.put(&little, 1001);
        assert_eq!([turns.take(), turns.take()], [Some(1), Some(1001)]);
        let rest: Vec<i32> = std::iter::from_fn(|| turns.take()).collect();
        assert_eq!(rest, Vec::from_iter(2..100));
    }
}
