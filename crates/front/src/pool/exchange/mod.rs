//! One request on its way through a pool: waiting, assignment to a worker, answered.
//!
//! An exchange is shared by the task that serves the client, the pool's queue, and the front
//! thread that empties answer rings ([`crate::pool::thread_local`]).

pub(crate) mod ends;
pub(crate) mod events;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use maitred_seat::{Began, FrontEnd, Lent, Spent};
use tokio::sync::oneshot;

use crate::pool::generation::Generation;
use crate::pool::queue::{Priority, SlotRef};
use crate::pool::{NotTaken, Pool, slot_of};

pub use crate::pool::exchange::events::{AfterDeath, ExchangeEnd, ExchangeEvent, PumpResult};

/// Bytes of one answer that are taken out of the ring ahead of the task that sends them on. What
/// is more stays in the ring, and a worker with more than that to say waits.
const ANSWER_AHEAD_BYTES: usize = 256 * 1024;

/// A slot that an exchange has in one of the pool's generations.
#[derive(Debug)]
pub struct SlotLease {
    /// Whose worker has it.
    pub generation: Arc<Generation>,
    /// The slot.
    pub assignment: Lent,
}

impl SlotLease {
    fn link(&self) -> &FrontEnd {
        self.generation.link()
    }

    fn place(&self) -> SlotRef {
        slot_of(&self.generation, &self.assignment)
    }
}

/// What a request claims of its pool.
#[derive(Debug, Clone, Copy)]
pub struct QueueRequest {
    /// Whom it waits before.
    pub priority: Priority,
    /// How long it may wait for a worker to begin it.
    pub max_wait: Duration,
    /// Of which kind it is ([`crate::pool::kind::of`]).
    pub kind: u64,
}

/// One request on its way.
#[derive(Debug)]
pub struct Exchange {
    /// The pool it is for.
    pub pool: Arc<Pool>,
    /// The front thread whose task waits for the answer.
    pub thread: u32,
    /// Whom it waits before.
    pub priority: Priority,
    /// How long it may wait for a worker to begin it.
    pub max_wait: Duration,
    /// What it asks for, as far as it matters when that hangs.
    pub kind: u64,
    /// The request's first FastCGI records; all of its head, and its body if that is small.
    request: Vec<u8>,
    /// Whether it counts as something its thread waits for.
    pub(crate) is_counted: AtomicBool,
    /// Whether it counts among the accepted ones of its pool.
    pub(crate) accepted: AtomicBool,
    state: Mutex<ExchangeState>,
}

#[derive(Debug, Default)]
struct ExchangeState {
    lease: Option<SlotLease>,
    /// Told the task that it was assignment.
    assignment_sent: bool,
    was_assigned: bool,
    /// Bytes of the request that are in the ring or have been.
    sent: usize,
    wants_room: bool,
    /// When it was first and last seen to wait behind another request.
    waits_since: Option<Instant>,
    waited_until: Option<Instant>,
    /// When a worker was last given it.
    assigned_at: Option<Instant>,
    answer: Vec<u8>,
    ended: Option<ExchangeEnd>,
    /// Nobody waits for the answer any more.
    left: bool,
    /// It had been answered completely by then.
    detached: bool,
    /// It was told that its script is slow.
    told_slow: bool,
    /// Where it was when it ended.
    was_at: Option<SlotRef>,
    script_micros: u32,
    /// What it has cost, once it has ended.
    spent: Option<Spent>,
    /// Who wants to know when it has ended, and what it has cost.
    at_end: Vec<oneshot::Sender<Option<Spent>>>,
    waker: Option<Waker>,
}

impl ExchangeState {
    /// Takes it off a worker that had not begun. What was sent of the body lies in that slot, so
    /// the task is told when there is another.
    fn take_off(&mut self) {
        self.lease = None;
        (self.was_assigned, self.assignment_sent, self.wants_room) = (false, false, false);
    }

    /// The slot that an exchange which is over still has; who wants to know of its end is told.
    fn take_over(&mut self) -> Option<SlotLease> {
        self.ended?;
        tell_end(self);
        let lease = self.lease.take();
        self.was_at = lease.as_ref().map(SlotLease::place).or(self.was_at);
        lease
    }
}

impl PartialEq for Exchange {
    fn eq(&self, other: &Exchange) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Exchange {
    /// An exchange that nobody has taken yet.
    pub fn new(
        pool: Arc<Pool>,
        thread: u32,
        request: Vec<u8>,
        QueueRequest {
            priority,
            max_wait,
            kind,
        }: QueueRequest,
    ) -> Arc<Exchange> {
        Arc::new(Exchange {
            pool,
            thread,
            priority,
            max_wait,
            kind,
            request,
            is_counted: AtomicBool::new(false),
            accepted: AtomicBool::new(false),
            state: Mutex::default(),
        })
    }

    /// One that an earlier front began: it is waited for and its answer thrown away.
    pub fn orphan(
        pool: &Arc<Pool>,
        generation: &Arc<Generation>,
        assignment: Lent,
    ) -> Arc<Exchange> {
        let generation = generation.clone();
        let state = ExchangeState {
            lease: Some(SlotLease {
                generation,
                assignment,
            }),
            left: true,
            was_assigned: true,
            ..ExchangeState::default()
        };
        Arc::new(Exchange {
            pool: pool.clone(),
            thread: 0,
            priority: Priority::Normal,
            max_wait: Duration::MAX,
            kind: 0,
            request: Vec::new(),
            is_counted: AtomicBool::new(false),
            accepted: AtomicBool::new(true),
            state: Mutex::new(state),
        })
    }

    fn lock(&self) -> MutexGuard<'_, ExchangeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue found a place: writes the request there.
    pub fn assign(&self, generation: Arc<Generation>, place: SlotRef) {
        let mut state = self.lock();
        let link = generation.link();
        let (assignment, sent) = link.offer(
            place.seat.number,
            place.slot,
            place.incarnation,
            self.thread,
            &self.request,
        );
        state.sent = sent;
        state.was_assigned = true;
        state.assigned_at = Some(assignment.at());
        if state.left {
            link.leave(&assignment);
        }
        state.lease = Some(SlotLease {
            generation,
            assignment,
        });
        if !state.assignment_sent {
            wake(&mut state);
        }
    }

    /// The queue needs the request elsewhere. False when the worker has begun it.
    pub fn take_back(&self) -> bool {
        let mut state = self.lock();
        let taken = state
            .lease
            .as_ref()
            .is_some_and(|lease| lease.link().take_back(&lease.assignment));
        if taken {
            state.take_off();
        }
        taken
    }

    /// The worker it was assignment to is dead.
    pub fn worker_died(&self) -> AfterDeath {
        let mut state = self.lock();
        let Some(SlotLease {
            generation,
            mut assignment,
        }) = state.lease.take()
        else {
            let waits = state.ended.is_none() && !state.left;
            return if waits {
                AfterDeath::NotStarted
            } else {
                AfterDeath::Over
            };
        };
        let link = generation.link();
        if link.take_back(&assignment) {
            state.take_off();
            if !state.left {
                return AfterDeath::NotStarted;
            }
            state.ended = Some(ExchangeEnd::TakenBack);
            return AfterDeath::Over;
        }
        let done = link.progress(&assignment) == Ok(Began::Done);
        let drained = link.drain(&mut assignment, usize::MAX, &mut state.answer);
        // It may have answered before it died.
        state.spent = link.spent(&assignment);
        link.release(assignment);
        state.ended = Some(match (done, drained) {
            (true, Ok(_)) => ExchangeEnd::Finished,
            (false, Ok(_)) => ExchangeEnd::WorkerDied,
            (_, Err(_)) => ExchangeEnd::Broken,
        });
        wake(&mut state);
        if done {
            AfterDeath::Over
        } else {
            AfterDeath::Interrupted
        }
    }

    /// Looks whether the worker has written something, takes it, and wakes the task that waits for
    /// it.
    pub fn pump(self: &Arc<Exchange>) -> PumpResult {
        let mut state = self.lock();
        let useful_events = self.take_answer(&mut state);
        let pumped = PumpResult {
            woke: useful_events && wake(&mut state),
            is_over: state.ended.is_some(),
        };
        let lease = state.take_over();
        drop(state);
        if let Some(lease) = lease {
            self.pool.finished(lease, self);
        }
        pumped
    }

    /// Gives the slot of an exchange that is over back to the pool, tells who wants to know, and gives the
    /// lock to the caller.
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

    /// Whether there is nothing more to look after.
    pub fn is_over(&self) -> bool {
        self.lock().ended.is_some()
    }

    fn take_answer(&self, state: &mut ExchangeState) -> bool {
        let has_news = self.look_for_answer(state);
        if has_news && let Some(useful_events) = self.pool.useful_events.get(self.thread as usize) {
            useful_events.add_one();
        }
        has_news
    }

    fn look_for_answer(&self, state: &mut ExchangeState) -> bool {
        let ExchangeState {
            lease: Some(lease),
            answer,
            ..
        } = state
        else {
            return false;
        };
        self.pool.worker_calls.look(&self.pool.name, lease);
        let SlotLease {
            generation,
            assignment,
        } = lease;
        let link = generation.link();
        // The state first: what a finished worker has written is then all there.
        let began = link.progress(assignment);
        let ahead = if state.left {
            usize::MAX
        } else {
            ANSWER_AHEAD_BYTES
        };
        let drained = link.drain(assignment, ahead.saturating_sub(answer.len()), answer);
        if state.left {
            answer.clear();
        }
        match (began, drained) {
            (Err(_), _) | (_, Err(_)) => {
                let place = lease.place();
                self.pool
                    .broken(&lease.generation, place, "its counters are wrong");
                state.ended = Some(ExchangeEnd::Broken);
                // The slot stays taken until the worker is dead.
                state.lease = None;
                true
            }
            (Ok(Began::Done), Ok(_)) if !link.has_answer(assignment) => {
                let took = link.took(assignment).filter(|took| *took < u32::MAX);
                state.script_micros = took.unwrap_or(0);
                state.spent = link.spent(assignment);
                state.ended = Some(ExchangeEnd::Finished);
                true
            }
            (Ok(_), Ok(count)) => {
                let room = state.wants_room && link.room(assignment).is_ok_and(|room| room > 0);
                count > 0 || room
            }
        }
    }

    /// How long no worker has begun it, as far as was looked; nothing when one has.
    pub fn waits_behind(&self, now: Instant) -> Option<Duration> {
        let mut state = self.lock();
        let waits = match &state.lease {
            Some(lease) => lease.link().progress(&lease.assignment) == Ok(Began::NotYet),
            None => state.ended.is_none(),
        };
        if !waits {
            state.waits_since = None;
            return None;
        }
        state.waited_until = Some(now);
        Some(now - *state.waits_since.get_or_insert(now))
    }

    /// Whether a worker has begun it.
    pub fn has_begun(&self) -> bool {
        let state = self.lock();
        let lease = state.lease.as_ref();
        lease.is_some_and(|lease| lease.link().progress(&lease.assignment) != Ok(Began::NotYet))
    }

    /// When its script began at the earliest, if it runs: when it was assignment, or when it was last
    /// seen to wait behind another. Now, if it has not begun; nothing when it has ended.
    pub fn began(&self) -> Option<Instant> {
        let state = self.lock();
        if state.ended.is_some() {
            return None;
        }
        let lease = state.lease.as_ref();
        let progress = lease.map(|lease| lease.link().progress(&lease.assignment));
        if progress == Some(Ok(Began::Done)) {
            // It is through; only its last words have not been taken.
            return None;
        }
        let running = progress.is_some_and(|progress| progress != Ok(Began::NotYet));
        let known = state
            .assigned_at
            .max(state.waited_until)
            .filter(|_| running);
        Some(known.unwrap_or_else(Instant::now))
    }

    /// When a worker was last given it.
    pub fn assigned_at(&self) -> Option<Instant> {
        self.lock().assigned_at
    }

    /// Where it is, if a worker has it.
    pub fn place(&self) -> Option<SlotRef> {
        let state = self.lock();
        state.lease.as_ref().map(SlotLease::place)
    }

    /// What happens next. The task's side.
    pub fn poll_event(self: &Arc<Exchange>, cx: &mut Context<'_>) -> Poll<ExchangeEvent> {
        let mut state = self.lock();
        self.take_answer(&mut state);
        let mut state = self.give_back(state);
        if state.was_assigned && !state.assignment_sent {
            state.assignment_sent = true;
            return Poll::Ready(ExchangeEvent::Assigned);
        }
        if !state.answer.is_empty() {
            return Poll::Ready(ExchangeEvent::Response(std::mem::take(&mut state.answer)));
        }
        if let Some(ended) = state.ended {
            return Poll::Ready(ExchangeEvent::Ended(ended));
        }
        if let (true, Some(lease)) = (state.wants_room, &state.lease)
            && lease
                .link()
                .room(&lease.assignment)
                .is_ok_and(|room| room > 0)
        {
            state.wants_room = false;
            return Poll::Ready(ExchangeEvent::Room);
        }
        if !state
            .waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()))
        {
            state.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Sends more of the request and returns how many bytes found room; asks to be told
    /// ([`ExchangeEvent::Room`]) when that is not all of them.
    pub fn feed(&self, bytes: &[u8]) -> usize {
        let mut state = self.lock();
        if !state.assignment_sent {
            // The task is about to begin anew.
            return 0;
        }
        let mut fed = 0;
        if state.sent < self.request.len() {
            state.wants_room = true;
            let from = state.sent;
            if let Some(SlotLease {
                generation,
                assignment,
            }) = &mut state.lease
                && let Ok(count) = generation.link().feed(assignment, &self.request[from..])
            {
                state.sent += count;
            }
            if state.sent < self.request.len() {
                return 0;
            }
        }
        if let Some(SlotLease {
            generation,
            assignment,
        }) = &mut state.lease
            && let Ok(count) = generation.link().feed(assignment, bytes)
        {
            fed = count;
        }
        state.wants_room = fed < bytes.len();
        fed
    }

    /// The answer is complete although the script runs on (`fastcgi_finish_request`): it is left
    /// to run, and what it still says is thrown away.
    pub fn detach(&self) {
        let mut state = self.lock();
        state.left = true;
        state.detached = true;
        state.waker = None;
    }

    /// Whether the script goes on, of a request whose answer is complete.
    pub fn goes_on(&self) -> bool {
        let state = self.lock();
        let is_going_on = |lease: &SlotLease| lease.link().goes_on(&lease.assignment);
        state.ended.is_none() && state.lease.as_ref().is_some_and(is_going_on)
    }

    /// Tells what all of it has cost when it has ended; nothing if its worker did not say.
    pub fn at_end(&self) -> oneshot::Receiver<Option<Spent>> {
        let (tells, hears) = oneshot::channel();
        let mut state = self.lock();
        state.at_end.push(tells);
        if state.ended.is_some() {
            tell_end(&mut state);
        }
        hears
    }

    /// Whether the answer was complete before the script was.
    pub fn is_detached(&self) -> bool {
        self.lock().detached
    }

    /// How long the worker says that the script took, in microseconds, once the exchange has ended; 0 if
    /// it does not say, or it was more than fits (71 minutes).
    pub fn script_micros(&self) -> u32 {
        self.lock().script_micros
    }

    /// What it has cost until its answer was complete, by the word of its worker, once the end of
    /// the answer is there.
    pub fn spent(&self) -> Option<Spent> {
        let state = self.lock();
        let of_lease = || {
            let lease = state.lease.as_ref()?;
            lease.link().spent(&lease.assignment)
        };
        state.spent.or_else(of_lease)
    }

    /// Nobody wants the answer any more.
    pub fn leave(self: &Arc<Exchange>) {
        {
            let mut state = self.lock();
            state.left = true;
            state.waker = None;
        }
        if !self.withdraw()
            && let Some(lease) = &self.lock().lease
        {
            lease.link().leave(&lease.assignment);
        }
    }

    /// Takes the request back if no worker has begun it; it has then ended.
    pub fn withdraw(self: &Arc<Exchange>) -> bool {
        let mut state = self.lock();
        if state.ended.is_some() {
            return false;
        }
        let unbegun = |lease: &mut SlotLease| lease.link().take_back(&lease.assignment);
        let lease = match state.lease.take_if(unbegun) {
            None if state.lease.is_some() => return false,
            lease => lease,
        };
        if lease.is_some() {
            state.ended = Some(ExchangeEnd::TakenBack);
            wake(&mut state);
        }
        drop(state);
        match lease {
            Some(lease) => self.pool.taken_back(&lease, self),
            None if self.pool.cancel(self) => {
                let mut state = self.lock();
                state.ended = Some(ExchangeEnd::TakenBack);
                wake(&mut state);
            }
            None => return false,
        }
        true
    }

    /// It waits in vain, and has been taken out of the queue.
    pub fn reject(&self, why: NotTaken) {
        let mut state = self.lock();
        state.ended = Some(ExchangeEnd::TurnedAway(why));
        wake(&mut state);
    }

    /// Ready when it is over. For those who do not want the answer.
    pub fn poll_over(self: &Arc<Exchange>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        self.take_answer(&mut state);
        let mut state = self.give_back(state);
        if state.ended.is_some() {
            return Poll::Ready(());
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

fn wake(state: &mut ExchangeState) -> bool {
    let has_told = state.ended.is_some() && tell_end(state);
    match state.waker.take() {
        Some(waker) => {
            waker.wake();
            true
        }
        None => has_told,
    }
}

/// Tells who wants to know that it has ended. False when nobody does.
fn tell_end(state: &mut ExchangeState) -> bool {
    let mut has_told = false;
    for tells in state.at_end.drain(..) {
        has_told |= tells.send(state.spent).is_ok();
    }
    has_told
}
