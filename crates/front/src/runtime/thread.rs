//! A thread of the front: its number, its epoch of events, its tick, and the pace of its tasks.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::Notify;

/// A busy thread polls its workers at least this often, in polls of its tasks. tokio polls sockets
/// every 61.
const POLLS_BETWEEN_HOOKS: u32 = 16;

struct ThreadState {
    number: u32,
    /// Runs when tasks have been polled [`POLLS_BETWEEN_HOOKS`] times.
    when_busy: fn(),
    polls: Cell<u32>,
    moment: Cell<u64>,
    arrival: Cell<u64>,
    tick: Arc<Notify>,
}

thread_local! {
    static LOCAL: RefCell<Option<ThreadState>> = const { RefCell::new(None) };
}

/// Sets up this thread. `when_busy` runs while its tasks keep it from sleeping, and calls
/// [`advance`].
pub fn set_up(number: u32, when_busy: fn()) {
    LOCAL.with(|local| {
        *local.borrow_mut() = Some(ThreadState {
            number,
            when_busy,
            polls: Cell::new(0),
            moment: Cell::new(1),
            arrival: Cell::new(1),
            tick: Arc::default(),
        });
    });
}

/// The number of this thread, from 0. 0 on a thread that is not set up.
pub fn number() -> u32 {
    with(|local| local.number).unwrap_or_default()
}

/// A number that changes whenever this thread has waited for events, and before its tasks have been
/// polled [`POLLS_BETWEEN_HOOKS`] times. 0 on a thread that is not set up.
pub fn moment() -> u64 {
    with(|local| local.moment.get()).unwrap_or_default()
}

/// Changes the [`moment`].
pub fn advance() {
    with(|local| local.moment.set(local.moment.get() + 1));
}

/// A number that changes with each arrival of a request: a check in the same arrival is later than
/// whatever its client did before it sent the request. A [`moment`] may be as long as other threads
/// and processes keep this one from a processor. 0 on a thread that is not set up.
pub fn arrival() -> u64 {
    with(|local| local.arrival.get()).unwrap_or_default()
}

/// Changes the [`arrival`]: called when bytes of a request have been read.
pub fn note_arrival() {
    with(|local| local.arrival.set(local.arrival.get() + 1));
}

/// Waits for the next [`notify_tick`]. This needs no timer, which would cost more than most
/// requests.
pub async fn tick() {
    match with(|local| local.tick.clone()) {
        Some(tick) => tick.notified().await,
        None => std::future::pending().await,
    }
}

/// Ends each wait for a [`tick`]. Called periodically while the thread has connections.
pub fn notify_tick() {
    with(|local| local.tick.notify_waiters());
}

fn with<T>(read: impl FnOnce(&ThreadState) -> T) -> Option<T> {
    LOCAL.with(|local| local.borrow().as_ref().map(read))
}

pin_project_lite::pin_project! {
    /// A task that gives its thread the chance to poll its workers while it is busy.
    pub struct Paced<F> {
        #[pin]
        task: F,
    }
}

impl<F> Paced<F> {
    /// Paces `task`.
    pub fn new(task: F) -> Paced<F> {
        Paced { task }
    }
}

impl<F: Future> Future for Paced<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let when_busy = with(|local| {
            let polls = local.polls.get() + 1;
            local.polls.set(polls % POLLS_BETWEEN_HOOKS);
            (polls == POLLS_BETWEEN_HOOKS).then_some(local.when_busy)
        });
        if let Some(when_busy) = when_busy.flatten() {
            when_busy();
        }
        self.project().task.poll(cx)
    }
}
