//! The exchanges that a front thread follows, and the hooks that poll them when the thread is about to
//! sleep, has woken, or has been busy for a while.
//!
//! A worker wakes a front thread only if the thread has announced that it sleeps. So the thread announces
//! it and then polls once more before it sleeps; a thread that never sleeps polls at every hook of
//! [`thread`].

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

/// How long a request may wait behind another before an idle worker is looked for. Requests are
/// put behind others only where scripts take a fraction of this.
const RESCUE_AFTER: Duration = Duration::from_millis(2);

/// Exchanges that another thread found a place for.
#[derive(Debug, Default)]
pub struct Inbox {
    any: AtomicBool,
    exchanges: Mutex<Vec<Arc<Exchange>>>,
}

impl Inbox {
    /// Leaves an exchange for the thread it belongs to. That thread need not be woken: the worker
    /// will do so.
    pub fn put(&self, exchange: Arc<Exchange>) {
        self.exchanges
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(exchange);
        self.any.store(true, Ordering::Release);
    }

    fn empty_into(&self, list: &mut Vec<Arc<Exchange>>) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut exchanges = self
            .exchanges
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.any.store(false, Ordering::Relaxed);
        list.append(&mut exchanges);
        true
    }
}

struct Local {
    thread: u32,
    /// The generations of all pools.
    generations: RefCell<Vec<Arc<Generation>>>,
    inboxes: Arc<[Inbox]>,
    followed: RefCell<Vec<Arc<Exchange>>>,
    announced: RefCell<Vec<(usize, Asleep)>>,
    /// Whether the rescuer is at work.
    rescuing: Cell<bool>,
    rescue: Arc<Notify>,
}

thread_local! {
    static LOCAL: RefCell<Option<Local>> = const { RefCell::new(None) };
}

/// Prepares this thread.
pub fn set_up(thread: u32, inboxes: Arc<[Inbox]>) {
    thread::set_up(thread, was_busy);
    LOCAL.with(|local| {
        *local.borrow_mut() = Some(Local {
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

/// From now on this thread listens to a generation's workers.
pub fn add(generation: Arc<Generation>) {
    with(|local| local.generations.borrow_mut().push(generation));
}

/// Nothing is left of a generation.
pub fn remove(number: Number) {
    with(|local| {
        let mut generations = local.generations.borrow_mut();
        generations.retain(|generation| generation.number != number);
    });
}

/// Looks after an exchange from now on, until it is over; `is_behind`: it waits behind another for
/// its worker.
pub fn follow(exchange: Arc<Exchange>, is_behind: bool) {
    with(|local| {
        local.followed.borrow_mut().push(exchange);
        if is_behind {
            local.start_rescuer();
        }
    });
}

/// Has requests looked for that a worker does not begin although nothing is before them; once in a while, as
/// long as the thread has connections.
pub fn rescue_forgotten() {
    with(|local| {
        if local.rescue_waiting() {
            local.start_rescuer();
        }
    });
}

/// Looks, while requests are with workers, for one that waits behind a script which turned out
/// long. One task per thread.
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

/// The thread is about to sleep: unless looking has woken one of its tasks, it does.
pub fn before_park() {
    with(|local| {
        if !local.look() {
            local.announce();
            local.look();
        }
    });
}

/// The thread has woken.
pub fn after_unpark() {
    with(|local| {
        local.withdraw();
        local.catch_up();
    });
}

/// A task of this thread has used as much time as many polls of others do: what workers have written
/// meanwhile is taken.
pub fn was_busy() {
    with(Local::catch_up);
}

fn with(act: impl FnOnce(&Local)) {
    LOCAL.with(|local| {
        if let Some(local) = local.borrow().as_ref() {
            act(local);
        }
    });
}

impl Local {
    fn catch_up(&self) {
        thread::advance();
        self.look();
    }

    /// Takes what workers have written. True when that woke a task of this thread, which then
    /// does not sleep.
    fn look(&self) -> bool {
        // Emptying a ring can place further exchanges, which are followed while we go.
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

    /// False when no request waits behind another, and the rescuer may rest.
    fn rescue_waiting(&self) -> bool {
        let followed: Vec<_> = self.followed.borrow().clone();
        let now = std::time::Instant::now();
        let mut any = false;
        for exchange in followed {
            let Some(waited) = exchange.waits_behind(now) else {
                continue;
            };
            any = true;
            if waited > exchange.within {
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
            if generation.interests(self.thread) {
                announced.push((index, generation.link().announce_sleep(self.thread)));
            }
        }
    }

    fn withdraw(&self) {
        // The list is the one that was announced: no task has run in between.
        let generations = self.generations.borrow();
        for (index, asleep) in self.announced.borrow_mut().drain(..) {
            generations[index].link().awake(self.thread, asleep);
        }
    }
}
