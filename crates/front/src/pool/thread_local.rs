//! The exchanges that a front thread polls, and the hooks that poll them when the thread is about
//! to sleep, has woken, or has been busy for a while.
//!
//! A worker wakes a front thread only if the thread has announced that it sleeps. So the thread
//! announces it and then polls once more before it sleeps; a thread that never sleeps polls at
//! every hook of [`thread`].

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use maitred_control::Generation as Number;
use maitred_seat::Asleep;
use tokio::sync::Notify;
use tokio::time::Duration;

use crate::pool::exchange::Exchange;
use crate::pool::generation::Generation;
use crate::runtime::thread;

/// Time that a request waits behind another before it is moved to an idle worker. Requests are put
/// behind others only where scripts take a fraction of this.
const RESCUE_AFTER: Duration = Duration::from_millis(2);

/// Exchanges that another thread has assigned.
#[derive(Debug, Default)]
pub struct Inbox {
    any: AtomicBool,
    exchanges: Mutex<Vec<Arc<Exchange>>>,
}

impl Inbox {
    /// Hands an exchange to its thread; its worker will wake the thread.
    pub fn put(&self, exchange: Arc<Exchange>) {
        self.exchanges.lock().unwrap_or_else(PoisonError::into_inner).push(exchange);
        self.any.store(true, Ordering::Release);
    }

    fn empty_into(&self, list: &mut Vec<Arc<Exchange>>) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut exchanges = self.exchanges.lock().unwrap_or_else(PoisonError::into_inner);
        self.any.store(false, Ordering::Relaxed);
        list.append(&mut exchanges);
        true
    }
}

struct PoolThread {
    thread: u32,
    /// The generations of all pools.
    generations: RefCell<Vec<Arc<Generation>>>,
    inboxes: Arc<[Inbox]>,
    followed: RefCell<Vec<Arc<Exchange>>>,
    announced: RefCell<Vec<(usize, Asleep)>>,
    /// Whether the rescue task is active.
    rescuing: Cell<bool>,
    rescue: Arc<Notify>,
}

thread_local! {
    static POOL_THREAD: RefCell<Option<PoolThread>> = const { RefCell::new(None) };
}

/// Prepares this thread.
pub fn set_up(thread: u32, inboxes: Arc<[Inbox]>) {
    thread::set_up(thread, was_busy);
    POOL_THREAD.with(|local| {
        *local.borrow_mut() = Some(PoolThread {
            thread,
            generations: RefCell::default(),
            inboxes,
            followed: RefCell::default(),
            announced: RefCell::default(),
            rescuing: Cell::new(false),
            rescue: Arc::default(),
        });
    });
}

/// Polls a generation's workers on this thread.
pub fn add(generation: Arc<Generation>) {
    with(|local| local.generations.borrow_mut().push(generation));
}

/// Stops polling a generation.
pub fn remove(number: Number) {
    with(|local| {
        let mut generations = local.generations.borrow_mut();
        generations.retain(|generation| generation.number != number);
    });
}

/// Polls an exchange until it has ended; `is_behind`: it waits behind another for its worker.
pub fn follow(exchange: Arc<Exchange>, is_behind: bool) {
    with(|local| {
        local.followed.borrow_mut().push(exchange);
        if is_behind {
            local.start_rescuer();
        }
    });
}

/// Checks, at the thread's tick, for requests at the head of their seat that a worker has not
/// started.
pub fn rescue_forgotten() {
    with(|local| {
        if local.rescue_waiting() {
            local.start_rescuer();
        }
    });
}

/// The rescue task, one per thread: moves requests away from slots where they wait behind a long
/// script.
pub async fn rescue() {
    let mut notify = None;
    with(|local| notify = Some(local.rescue.clone()));
    let Some(notify) = notify else { return };
    loop {
        notify.notified().await;
        let mut any = true;
        while any {
            tokio::time::sleep(RESCUE_AFTER).await;
            with(|local| {
                any = local.rescue_waiting();
                local.rescuing.set(any);
            });
        }
    }
}

/// Hook before the thread sleeps: polls, and announces the sleep unless that has woken a task.
pub fn before_park() {
    with(|local| {
        if !local.poll() {
            local.announce();
            local.poll();
        }
    });
}

/// Hook after the thread has woken.
pub fn after_unpark() {
    with(|local| {
        local.withdraw();
        local.catch_up();
    });
}

/// Hook after a task has used the thread for long: drains the output of workers.
pub fn was_busy() {
    with(PoolThread::catch_up);
}

fn with(act: impl FnOnce(&PoolThread)) {
    POOL_THREAD.with(|local| {
        if let Some(local) = local.borrow().as_ref() {
            act(local);
        }
    });
}

impl PoolThread {
    fn catch_up(&self) {
        thread::advance();
        self.poll();
    }

    /// Takes what workers have written. True when that woke a task of this thread, which then
    /// does not sleep.
    fn poll(&self) -> bool {
        // Draining a ring can assign further exchanges, which are added meanwhile.
        let mut list = std::mem::take(&mut *self.followed.borrow_mut());
        if self.inboxes[self.thread as usize].empty_into(&mut list) {
            self.start_rescuer();
        }
        let mut woke = false;
        list.retain(|exchange| {
            let pumped = exchange.pump();
            woke |= pumped.woke;
            !pumped.is_over
        });
        let mut followed = self.followed.borrow_mut();
        list.append(&mut followed);
        *followed = list;
        woke
    }

    fn start_rescuer(&self) {
        if !self.rescuing.replace(true) {
            self.rescue.notify_one();
        }
    }

    /// False when no request waits in a slot, and the rescue task may rest.
    fn rescue_waiting(&self) -> bool {
        let followed: Vec<_> = self.followed.borrow().clone();
        let now = std::time::Instant::now();
        let mut any = false;
        for exchange in followed {
            let Some(waited) = exchange.waits_behind(now) else {
                continue;
            };
            any = true;
            if waited > exchange.max_wait {
                exchange.withdraw();
            } else if !waited.is_zero() {
                exchange.pool.rescue(&exchange, waited);
            }
        }
        any
    }

    fn announce(&self) {
        let mut announced = self.announced.borrow_mut();
        for (index, generation) in self.generations.borrow().iter().enumerate() {
            if generation.has_in_flight(self.thread) {
                announced.push((index, generation.link().announce_sleep(self.thread)));
            }
        }
    }

    fn withdraw(&self) {
        // The list is unchanged since the announcement: no task has run in between.
        let generations = self.generations.borrow();
        for (index, asleep) in self.announced.borrow_mut().drain(..) {
            generations[index].link().awake(self.thread, asleep);
        }
    }
}
