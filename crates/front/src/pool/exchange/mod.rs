//! One request in a pool: it waits, is assigned to a worker, and gets a response.
//!
//! An exchange is shared by the task that serves the client, the pool's queue, and the front
//! thread that drains the response rings ([`crate::pool::thread_local`]).

pub(crate) mod ends;
pub(crate) mod events;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use maitred_scoreboard::RequestOutcome;
use maitred_seat::{AssignedSlot, FrontEnd, SlotProgress, Spent};
use tokio::sync::oneshot;

use crate::pool::Pool;
use crate::pool::generation::Generation;
use crate::pool::queue::{Priority, SeatId, SlotRef};

pub use crate::pool::exchange::events::{AfterDeath, ExchangeEvent, PumpResult};

/// Bytes of one response that are taken out of the ring ahead of the task that sends them on. The
/// rest stays in the ring, and its worker waits.
const READ_AHEAD_BYTES: usize = 256 * 1024;

/// The slot that an exchange uses, in one of the pool's generations.
#[derive(Debug)]
pub struct SlotLease {
    /// The generation of its worker.
    pub generation: Arc<Generation>,
    /// The slot.
    pub slot: AssignedSlot,
}

impl SlotLease {
    fn link(&self) -> &FrontEnd {
        self.generation.link()
    }

    /// Its position.
    pub fn slot_ref(&self) -> SlotRef {
        SlotRef {
            seat: SeatId { generation: self.generation.number, number: self.slot.seat() },
            slot: self.slot.slot(),
            incarnation: self.slot.incarnation(),
        }
    }
}

/// The parameters of a request in its pool's queue.
#[derive(Debug, Clone, Copy)]
pub struct QueueRequest {
    /// Its queue priority.
    pub priority: Priority,
    /// The longest time until a worker starts it.
    pub max_wait: Duration,
    /// Its kind ([`crate::pool::kind::of`]).
    pub kind: u64,
    /// Its route ([`crate::pool::crash_limit::route_of`]).
    pub route: u64,
}

/// One request in a pool.
#[derive(Debug)]
pub struct Exchange {
    /// Its pool.
    pub pool: Arc<Pool>,
    /// The front thread with the task that waits for the response.
    pub thread: u32,
    /// Its queue priority.
    pub priority: Priority,
    /// The longest time until a worker starts it.
    pub max_wait: Duration,
    /// When it was submitted, on the clock of the scoreboard.
    pub submitted: Duration,
    /// Its kind ([`crate::pool::kind::of`]).
    pub kind: u64,
    /// Its route ([`crate::pool::crash_limit::route_of`]).
    pub route: u64,
    /// The request's first FastCGI records: its header, and its body if that is small.
    request: Vec<u8>,
    /// Whether it counts as in flight for its thread.
    pub(crate) is_counted: AtomicBool,
    /// Whether it had to wait: no worker was free when it was submitted.
    pub(crate) has_queued: AtomicBool,
    /// Whether it counts among the accepted requests of its pool.
    pub(crate) accepted: AtomicBool,
    /// Whether it has taken a part of its route's budget ([`crate::pool::crash_limit`]).
    pub(crate) has_paid: AtomicBool,
    state: Mutex<ExchangeState>,
}

#[derive(Debug, Default)]
struct ExchangeState {
    lease: Option<SlotLease>,
    /// The task knows that it was assigned.
    assignment_sent: bool,
    was_assigned: bool,
    /// Bytes of the request that were written to the ring.
    sent: usize,
    wants_room: bool,
    /// The first and the last time at which it was found waiting in a slot.
    waits_since: Option<Instant>,
    waited_until: Option<Instant>,
    /// When it was last assigned to a worker.
    assigned_at: Option<Instant>,
    /// The part of its wait in which its worker was starting.
    boot: Option<Duration>,
    response: Vec<u8>,
    ended: Option<Result<(), RequestOutcome>>,
    /// No client waits for the response any more.
    left: bool,
    /// The response was complete by then.
    detached: bool,
    /// Its script was reported as slow.
    reported_slow: bool,
    /// Its worker was reported to be killed.
    is_terminated: bool,
    /// Its slot when it ended.
    was_at: Option<SlotRef>,
    script_micros: u32,
    /// Its cost, once it has ended.
    spent: Option<Spent>,
    /// Receivers of its end and its cost.
    at_end: Vec<oneshot::Sender<Option<Spent>>>,
    waker: Option<Waker>,
}

impl ExchangeState {
    /// Takes it from a worker that had not begun it. The sent part of the body is in that slot, so
    /// the task starts again with the next one.
    fn take_off(&mut self) {
        self.lease = None;
        (self.was_assigned, self.assignment_sent, self.wants_room) = (false, false, false);
    }

    /// The slot that an ended exchange still has. Notifies the receivers of its end.
    fn take_over(&mut self) -> Option<SlotLease> {
        let _ = self.ended?;
        notify_end(self);
        let lease = self.lease.take();
        self.was_at = lease.as_ref().map(SlotLease::slot_ref).or(self.was_at);
        lease
    }
}

impl PartialEq for Exchange {
    fn eq(&self, other: &Exchange) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Exchange {
    /// An exchange without a worker.
    pub fn new(
        pool: Arc<Pool>,
        thread: u32,
        request: Vec<u8>,
        QueueRequest { priority, max_wait, kind, route }: QueueRequest,
    ) -> Arc<Exchange> {
        Arc::new(Exchange {
            pool,
            thread,
            priority,
            max_wait,
            submitted: maitred_scoreboard::now(),
            kind,
            route,
            request,
            is_counted: AtomicBool::new(false),
            has_queued: AtomicBool::new(false),
            accepted: AtomicBool::new(false),
            has_paid: AtomicBool::new(false),
            state: Mutex::default(),
        })
    }

    /// An exchange that an earlier front began: its response is discarded.
    pub fn inherited(
        pool: &Arc<Pool>,
        generation: &Arc<Generation>,
        slot: AssignedSlot,
    ) -> Arc<Exchange> {
        let queue_request =
            QueueRequest { priority: Priority::Normal, max_wait: Duration::MAX, kind: 0, route: 0 };
        let exchange = Exchange::new(pool.clone(), 0, Vec::new(), queue_request);
        exchange.accepted.store(true, Ordering::Relaxed);
        let mut state = exchange.lock();
        let generation = generation.clone();
        state.lease = Some(SlotLease { generation, slot });
        (state.left, state.was_assigned) = (true, true);
        drop(state);
        exchange
    }

    fn lock(&self) -> MutexGuard<'_, ExchangeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the request into the slot that the queue has chosen.
    pub fn assign(&self, generation: Arc<Generation>, place: SlotRef) {
        let mut state = self.lock();
        let link = generation.link();
        let (slot, sent) = link.offer(
            place.seat.number,
            place.slot,
            place.incarnation,
            self.thread,
            &self.request,
        );
        state.sent = sent;
        state.was_assigned = true;
        state.assigned_at = Some(slot.at());
        if state.left {
            link.leave(&slot);
        }
        state.lease = Some(SlotLease { generation, slot });
        if !state.assignment_sent {
            wake(&mut state);
        }
    }

    /// The part of its wait in which the worker of this seat was starting, once that has begun it.
    /// None unless it has waited for the first request of a new worker: one that serves already
    /// would have got it at once.
    fn boot(&self, link: &FrontEnd, seat: u32) -> Option<Duration> {
        if !self.has_queued.load(Ordering::Relaxed) {
            return None;
        }
        let board = link.seat_board(seat);
        let time = |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Ordering::Relaxed));
        let (started, begun) = (time(&board.started_since), time(&board.request_since));
        let is_first = board.requests.load(Ordering::Relaxed) == 1 && !started.is_zero();
        is_first.then(|| begun.saturating_sub(started.max(self.submitted)))
    }

    /// The part of its wait in which its worker was starting, if it has waited for that.
    pub fn boot_time(&self) -> Option<Duration> {
        self.lock().boot
    }

    /// Withdraws the request from its slot, for another one. False when the worker has started it.
    pub fn take_back(&self) -> bool {
        let mut state = self.lock();
        let taken = state.lease.as_ref().is_some_and(|lease| lease.link().take_back(&lease.slot));
        if taken {
            state.take_off();
        }
        taken
    }

    /// Handles the death of its worker.
    pub fn worker_died(&self) -> AfterDeath {
        let mut state = self.lock();
        let Some(SlotLease { generation, mut slot }) = state.lease.take() else {
            let waits = state.ended.is_none() && !state.left;
            return if waits { AfterDeath::NotStarted } else { AfterDeath::Over };
        };
        let link = generation.link();
        if link.take_back(&slot) {
            state.take_off();
            if !state.left {
                return AfterDeath::NotStarted;
            }
            state.ended = Some(Err(RequestOutcome::QueueTimeout));
            return AfterDeath::Over;
        }
        let done = link.progress(&slot) == Ok(SlotProgress::Done);
        let drained = link.drain(&mut slot, usize::MAX, &mut state.response);
        // It may have responded before it died.
        state.spent = link.spent(&slot);
        link.release(slot);
        state.ended = Some(match (done, drained) {
            (true, Ok(_)) => Ok(()),
            (false, Ok(_)) => Err(RequestOutcome::WorkerDied),
            (_, Err(_)) => Err(RequestOutcome::WorkerDied),
        });
        wake(&mut state);
        if done { AfterDeath::Over } else { AfterDeath::Interrupted }
    }

    /// Drains the worker's output, and wakes the task that waits for it.
    pub fn pump(self: &Arc<Exchange>) -> PumpResult {
        let mut state = self.lock();
        let useful_events = self.take_response(&mut state);
        let pumped =
            PumpResult { woke: useful_events && wake(&mut state), is_over: state.ended.is_some() };
        let lease = state.take_over();
        drop(state);
        if let Some(lease) = lease {
            self.pool.finished(lease, self);
        }
        pumped
    }

    /// Returns the slot of an ended exchange to the pool, notifies the receivers of its end, and
    /// returns the lock.
    fn give_back<'a>(
        self: &'a Arc<Exchange>,
        mut state: MutexGuard<'a, ExchangeState>,
    ) -> MutexGuard<'a, ExchangeState> {
        let Some(lease) = state.take_over() else {
            return state;
        };
        drop(state);
        self.pool.finished(lease, self);
        self.lock()
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.lock().ended.is_some()
    }

    fn take_response(&self, state: &mut ExchangeState) -> bool {
        let has_news = self.read_response(state);
        if has_news && let Some(useful_events) = self.pool.useful_events.get(self.thread as usize) {
            useful_events.add_one();
        }
        has_news
    }

    fn read_response(&self, state: &mut ExchangeState) -> bool {
        let ExchangeState { lease: Some(lease), response, boot, .. } = state else {
            return false;
        };
        self.pool.worker_calls.take_call(&self.pool, lease);
        let SlotLease { generation, slot } = lease;
        let link = generation.link();
        // The state first: a finished worker has then written all of it.
        let began = link.progress(slot);
        if boot.is_none() && matches!(began, Ok(SlotProgress::Running | SlotProgress::Done)) {
            *boot = self.boot(link, slot.seat());
        }
        let ahead = if state.left { usize::MAX } else { READ_AHEAD_BYTES };
        let drained = link.drain(slot, ahead.saturating_sub(response.len()), response);
        if state.left {
            response.clear();
        }
        match (began, drained) {
            (Err(_), _) | (_, Err(_)) => {
                let place = lease.slot_ref();
                self.pool.broken(&lease.generation, place, "its counters are wrong");
                state.ended = Some(Err(RequestOutcome::WorkerDied));
                // The slot stays taken until the worker is dead.
                state.lease = None;
                true
            }
            (Ok(SlotProgress::Done), Ok(_)) if !link.has_response(slot) => {
                let took = link.took(slot).filter(|took| *took < u32::MAX);
                state.script_micros = took.unwrap_or(0);
                state.spent = link.spent(slot);
                state.ended = Some(Ok(()));
                true
            }
            (Ok(_), Ok(count)) => {
                let room = state.wants_room && link.room(slot).is_ok_and(|room| room > 0);
                count > 0 || room
            }
        }
    }

    /// Time for which it has waited without a start, since that was first observed; none when a
    /// worker has started it.
    pub fn waits_behind(&self, now: Instant) -> Option<Duration> {
        let mut state = self.lock();
        let waits = match &state.lease {
            Some(lease) => lease.link().progress(&lease.slot) == Ok(SlotProgress::NotStarted),
            None => state.ended.is_none(),
        };
        if !waits {
            state.waits_since = None;
            return None;
        }
        state.waited_until = Some(now);
        Some(now - *state.waits_since.get_or_insert(now))
    }

    /// Whether a worker has started it.
    pub fn has_begun(&self) -> bool {
        let state = self.lock();
        let lease = state.lease.as_ref();
        lease
            .is_some_and(|lease| lease.link().progress(&lease.slot) != Ok(SlotProgress::NotStarted))
    }

    /// The earliest possible start of its script: the time when it was assigned, or last observed
    /// waiting behind another. Now, if it has not been started; none when it has ended.
    pub fn began(&self) -> Option<Instant> {
        let state = self.lock();
        if state.ended.is_some() {
            return None;
        }
        let lease = state.lease.as_ref();
        let progress = lease.map(|lease| lease.link().progress(&lease.slot));
        if progress == Some(Ok(SlotProgress::Done)) {
            // It has finished; only the rest of its response has not been taken.
            return None;
        }
        let running = progress.is_some_and(|progress| progress != Ok(SlotProgress::NotStarted));
        let known = state.assigned_at.max(state.waited_until).filter(|_| running);
        Some(known.unwrap_or_else(Instant::now))
    }

    /// When it was last assigned to a worker.
    pub fn assigned_at(&self) -> Option<Instant> {
        self.lock().assigned_at
    }

    /// Its slot, if it is assigned to a worker.
    pub fn slot_ref(&self) -> Option<SlotRef> {
        let state = self.lock();
        state.lease.as_ref().map(SlotLease::slot_ref)
    }

    /// The next event, for the task.
    pub fn poll_event(self: &Arc<Exchange>, cx: &mut Context<'_>) -> Poll<ExchangeEvent> {
        let mut state = self.lock();
        self.take_response(&mut state);
        let mut state = self.give_back(state);
        if state.was_assigned && !state.assignment_sent {
            state.assignment_sent = true;
            return Poll::Ready(ExchangeEvent::Assigned);
        }
        if !state.response.is_empty() {
            return Poll::Ready(ExchangeEvent::Response(std::mem::take(&mut state.response)));
        }
        if let Some(ended) = state.ended {
            return Poll::Ready(ExchangeEvent::Ended(ended));
        }
        if let (true, Some(lease)) = (state.wants_room, &state.lease)
            && lease.link().room(&lease.slot).is_ok_and(|room| room > 0)
        {
            state.wants_room = false;
            return Poll::Ready(ExchangeEvent::Room);
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            waker => *waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Sends more of the request and returns the number of bytes written. Unless that is all, an
    /// [`ExchangeEvent::Room`] follows.
    pub fn feed(&self, bytes: &[u8]) -> usize {
        let mut state = self.lock();
        if !state.assignment_sent {
            // The task is about to start again.
            return 0;
        }
        let mut fed = 0;
        if state.sent < self.request.len() {
            state.wants_room = true;
            let from = state.sent;
            if let Some(SlotLease { generation, slot }) = &mut state.lease
                && let Ok(count) = generation.link().feed(slot, &self.request[from..])
            {
                state.sent += count;
            }
            if state.sent < self.request.len() {
                return 0;
            }
        }
        if let Some(SlotLease { generation, slot }) = &mut state.lease
            && let Ok(count) = generation.link().feed(slot, bytes)
        {
            fed = count;
        }
        state.wants_room = fed < bytes.len();
        fed
    }

    /// Marks the response as complete although the script continues (`fastcgi_finish_request`): its
    /// further output is discarded.
    pub fn detach(&self) {
        let mut state = self.lock();
        state.left = true;
        state.detached = true;
        state.waker = None;
    }

    /// Whether the script continues after its complete response.
    pub fn goes_on(&self) -> bool {
        let state = self.lock();
        let is_going_on = |lease: &SlotLease| lease.link().goes_on(&lease.slot);
        state.ended.is_none() && state.lease.as_ref().is_some_and(is_going_on)
    }

    /// Its total cost when it has ended; none if its worker did not report it.
    pub fn at_end(&self) -> oneshot::Receiver<Option<Spent>> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.lock();
        state.at_end.push(sender);
        if state.ended.is_some() {
            notify_end(&mut state);
        }
        receiver
    }

    /// Whether the response was complete before the script ended.
    pub fn is_detached(&self) -> bool {
        self.lock().detached
    }

    /// The worker's measurement of the script time, in microseconds, once the exchange has ended; 0
    /// if it is unknown, or does not fit (71 minutes).
    pub fn script_micros(&self) -> u32 {
        self.lock().script_micros
    }

    /// Its cost until the response was complete, as its worker reports it.
    pub fn spent(&self) -> Option<Spent> {
        let state = self.lock();
        let of_lease = || {
            let lease = state.lease.as_ref()?;
            lease.link().spent(&lease.slot)
        };
        state.spent.or_else(of_lease)
    }

    /// Marks the client as disconnected: its response is discarded.
    pub fn leave(self: &Arc<Exchange>) {
        {
            let mut state = self.lock();
            state.left = true;
            state.waker = None;
        }
        if !self.withdraw()
            && let Some(lease) = &self.lock().lease
        {
            lease.link().leave(&lease.slot);
        }
    }

    /// Withdraws the request if no worker has started it; the exchange has then ended.
    pub fn withdraw(self: &Arc<Exchange>) -> bool {
        let mut state = self.lock();
        if state.ended.is_some() {
            return false;
        }
        let unbegun = |lease: &mut SlotLease| lease.link().take_back(&lease.slot);
        let lease = match state.lease.take_if(unbegun) {
            None if state.lease.is_some() => return false,
            lease => lease,
        };
        if lease.is_some() {
            state.ended = Some(Err(RequestOutcome::QueueTimeout));
            wake(&mut state);
        }
        drop(state);
        match lease {
            Some(lease) => self.pool.taken_back(&lease, self),
            None if self.pool.cancel(self) => {
                let mut state = self.lock();
                state.ended = Some(Err(RequestOutcome::QueueTimeout));
                wake(&mut state);
            }
            None => return false,
        }
        true
    }

    /// Ends the exchange, because the queue has rejected the request.
    pub fn reject(&self, why: RequestOutcome) {
        let mut state = self.lock();
        state.ended = Some(Err(why));
        wake(&mut state);
    }
}

fn wake(state: &mut ExchangeState) -> bool {
    let is_received = state.ended.is_some() && notify_end(state);
    match state.waker.take() {
        Some(waker) => {
            waker.wake();
            true
        }
        None => is_received,
    }
}

/// Notifies the receivers of its end. False when there are none.
fn notify_end(state: &mut ExchangeState) -> bool {
    let mut is_received = false;
    for sender in state.at_end.drain(..) {
        is_received |= sender.send(state.spent).is_ok();
    }
    is_received
}
