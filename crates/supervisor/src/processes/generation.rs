//! The state of one generation of a pool: its zygote, and its seats.
//!
//! ```text
//!            zygote up             announced            is our child
//!   Empty ───────────────▶ Ordered ───────────▶ Announced ───────────▶ Taken
//!     ▲                       │ fork failed, too    │ died, too late     │ died
//!     │                       │ late, zygote gone   │ zygote gone        │
//!     ╰───────────────────────┴─────────────────────┴────────────────────╯
//! ```
//!
//! [`Growth`] decides how many seats are taken; the front reports which worker was idle for long,
//! and that one is dismissed. A worn worker stays until another is ready: for that there are
//! [`SPARE_SEATS`] more seats than workers. Every order has its own incarnation, so that late
//! reports are recognised.
//!
//! A generation on trial has a zygote, which shows whether PHP starts, and no worker. A leaving one
//! fills no seat any more, and ends when the last one is empty.

mod boot;
mod inherited;
mod queries;
mod retire;
mod seat_state;
mod spawn_delay;
mod zygote;

use std::time::Duration;

use maitred_control::token_bucket::TokenBucket;
use maitred_control::{Seat, WorkerId, exit};
use maitred_os::fork::HowEnded;

use crate::limits::{
    BOOT_BACKOFF_LONGEST, CRASHES_AT_ONCE, CRASHES_PER_SECOND, EARLY_DEATH, KILLED, LEAVE,
    LOOK_AGAIN, Moment, START_BACKOFF_LONGEST, WORKER_SPAWN, ZYGOTE_START,
};
use crate::processes::backoff::Backoff;
use crate::processes::growth::Growth;
pub use crate::processes::kill_reason::KillReason;
use crate::processes::life::Life;
pub use inherited::WorkerMark;
pub use seat_state::BootState;
use seat_state::{SeatSlot, SeatState};

/// Seats of a pool beyond `max_children`: for workers that are ready and get no request before
/// another has left.
pub const SPARE_SEATS: u32 = 2;

/// An event of a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GenerationEvent {
    /// Time has passed.
    Tick,
    /// The zygote reports that PHP runs.
    ZygoteStarted,
    /// The zygote cannot work, or broke the rules.
    ZygoteFailed(KillReason),
    /// The zygote has ended, and no process can report for it any more.
    ZygoteEnded,
    /// The zygote reports that it forked a worker.
    Announced { worker: WorkerId, pid: i32 },
    /// An announced process is our child, and runs as the pool's user.
    Adopted { pid: i32 },
    /// A worker reports that its script has booted.
    Booted { worker: WorkerId },
    /// The zygote reports that it could not fork.
    ForkFailed { worker: WorkerId },
    /// A child of ours with this pid has ended. `served`: it had started a request.
    Ended { pid: i32, how: HowEnded, served: bool },
    /// The front requests the end of a worker.
    EndWorker { worker: WorkerId },
    /// The same as php-fpm does it: SIGTERM before SIGKILL.
    TerminateWorker { worker: WorkerId },
    /// The front reports how many workers are needed; 0 also for a front that has ended.
    Wanted { workers: u32 },
    /// The front reports that the pool has had no request for long.
    Idle,
    /// The front reports that a worker has served, or grown, as much as it may.
    Worn { worker: WorkerId },
    /// Other generations of the pool leave this one as many workers.
    Allowed { workers: u32 },
    /// The trial is passed: workers may be ordered.
    Passed,
    /// Another generation takes over, or the pool is removed: no seat is filled any more.
    Leave,
    /// Another generation takes over in a new front. The old front still finishes its requests:
    /// a worker stays for them, and is replaced as long as the front runs.
    LeaveWithFront,
    /// The front gives a worker no further request.
    Retired { worker: WorkerId },
}

/// An action for a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GenerationAction {
    /// Start a zygote.
    StartZygote,
    /// Kill the zygote.
    KillZygote(KillReason),
    /// Terminate the zygote, which is not needed.
    DismissZygote,
    /// Order the zygote to fill a seat.
    Fill { worker: WorkerId },
    /// Check whether this process has become our child.
    CheckChild { pid: i32 },
    /// Have the front use the worker in this seat.
    Open { worker: WorkerId, pid: i32 },
    /// Kill this worker.
    KillWorker { pid: i32 },
    /// Terminate this idle worker.
    DismissWorker { pid: i32 },
    /// Terminate this worker, whatever it does.
    TerminateWorker { pid: i32 },
    /// Log that a killed worker does not end, and keeps its seat.
    ReportStuck { seat: Seat, pid: i32 },
    /// Log that a worker failed.
    Report {
        worker: WorkerId,
        pid: i32,
        how: HowEnded,
        /// How far its script had booted.
        boot: BootState,
        retry: Duration,
    },
}

/// A worker that has ended.
#[derive(Debug, Clone, Copy)]
struct DeadWorker {
    pid: i32,
    how: HowEnded,
    /// It had started a request.
    served: bool,
}

/// A worker that sits in a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seated {
    /// Its seat and incarnation.
    pub worker: WorkerId,
    /// Its process id.
    pub pid: i32,
}

/// The state of a generation.
#[derive(Debug)]
pub struct GenerationState {
    zygote: Life,
    places: Vec<SeatSlot>,
    backoff: Backoff,
    /// Early deaths by requests, whose successors do not wait.
    crashes: TokenBucket,
    growth: Growth,
    /// Timeout of the boot of a worker; none: workers do not boot a script.
    boots_within: Option<Duration>,
    /// The last worker that was to boot has failed.
    boots_in_vain: bool,
    /// PHP has yet to show that it starts.
    trial: bool,
    /// No seat is filled any more.
    leaving: bool,
    /// It is leaving, and its front still finishes requests.
    drains: bool,
    /// Since when the zygote has had no workers and none was needed.
    unneeded_since: Option<Moment>,
    /// When workers were last needed, or the last one ended.
    asked_at: Option<Moment>,
    /// The zygote stays although no workers are needed.
    keeps_zygote: bool,
    /// The last zygote did not start.
    has_failed: bool,
    /// Other zygotes start first,
    is_held: bool,
    /// or did.
    was_held: bool,
}

impl GenerationState {
    /// A generation with `seats` empty seats and no zygote; `growth` decides how many are filled.
    pub fn new(seats: u32, growth: Growth) -> GenerationState {
        GenerationState {
            zygote: Life::new(ZYGOTE_START).waiting_up_to(START_BACKOFF_LONGEST),
            places: (0..seats).map(|_| SeatSlot::empty()).collect(),
            backoff: Backoff::default(),
            crashes: TokenBucket::full(CRASHES_AT_ONCE, CRASHES_PER_SECOND),
            growth,
            boots_within: None,
            boots_in_vain: false,
            trial: false,
            leaving: false,
            drains: false,
            unneeded_since: None,
            asked_at: None,
            keeps_zygote: false,
            has_failed: false,
            is_held: false,
            was_held: false,
        }
    }

    /// The same, whose zygote has yet to show that PHP starts.
    pub fn on_trial(seats: u32, growth: Growth) -> GenerationState {
        GenerationState { trial: true, ..GenerationState::new(seats, growth) }
    }

    /// The same, whose zygote boots an application: waits after failed starts are shorter.
    pub fn booting_in_zygote(self) -> GenerationState {
        GenerationState { zygote: self.zygote.waiting_up_to(BOOT_BACKOFF_LONGEST), ..self }
    }

    /// Takes an event and returns actions.
    pub fn on(&mut self, event: GenerationEvent, now: Moment) -> Vec<GenerationAction> {
        let mut actions = Vec::new();
        match event {
            GenerationEvent::Tick => {}
            GenerationEvent::ZygoteStarted => {
                self.has_failed = false;
                if self.zygote.ready(now).is_err() {
                    self.drop_zygote(KillReason::BrokeRules, &mut actions);
                }
            }
            GenerationEvent::ZygoteFailed(reason) => self.drop_zygote(reason, &mut actions),
            GenerationEvent::ZygoteEnded => self.zygote_ended(now),
            GenerationEvent::Announced { worker, pid } => {
                self.announce(worker, pid, now, &mut actions)
            }
            GenerationEvent::Adopted { pid } => self.adopted(pid, now, &mut actions),
            GenerationEvent::Booted { worker } => self.booted(worker, &mut actions),
            GenerationEvent::ForkFailed { worker } => self.fork_failed(worker, now, &mut actions),
            GenerationEvent::Ended { pid, how, served } => {
                let end = DeadWorker { pid, how, served };
                self.ended(end, now, &mut actions)
            }
            GenerationEvent::EndWorker { worker } => self.kill_worker(worker, now, &mut actions),
            GenerationEvent::TerminateWorker { worker } => {
                self.terminate_worker(worker, now, &mut actions)
            }
            GenerationEvent::Wanted { workers } => self.want(workers, now),
            GenerationEvent::Idle => self.growth.rest(),
            GenerationEvent::Worn { worker } => self.wear(worker),
            GenerationEvent::Allowed { workers } => self.growth.allow(workers),
            GenerationEvent::Passed => self.trial = false,
            GenerationEvent::Leave => self.leave(now, &mut actions),
            GenerationEvent::LeaveWithFront => self.leave_with_front(),
            GenerationEvent::Retired { worker } => self.retire(worker, now, &mut actions),
        }
        self.due(now, &mut actions);
        actions
    }

    /// When something is due without an event.
    pub fn deadline(&self) -> Option<Moment> {
        let places = self.places.iter().filter_map(|place| match place.state {
            SeatState::Empty { .. } => None,
            SeatState::Ordered { deadline } => Some(deadline),
            SeatState::Announced { look_at, deadline, .. } => Some(look_at.min(deadline)),
            SeatState::Taken { kill_at, gone_by, boot, .. } => {
                kill_at.or(gone_by).or(boot.deadline())
            }
        });
        let zygote = self.zygote.deadline().filter(|_| self.heeds_zygote() && !self.is_held());
        let rest = self.unneeded_since.zip(self.zygote_rest());
        places
            .chain(zygote)
            .chain(rest.map(|(since, rest)| since + rest))
            .chain(self.order_deadline())
            .min()
    }

    /// Whether there are as many workers as wanted.
    pub fn is_full(&self) -> bool {
        self.seated().count() >= self.growth.wants().min(self.growth.allowed())
    }

    /// How many workers are missing, besides those being started.
    fn lacks(&self) -> usize {
        let workers = self.places.iter().filter(|place| place.has_worker());
        if self.leaving {
            return usize::from(self.drains).saturating_sub(workers.count());
        }
        let worn = self.places.iter().filter(|place| place.is_worn());
        let replaced = worn.count().max(self.growth.ahead());
        let replaced = replaced.min(SPARE_SEATS as usize);
        let wants = (self.growth.wants() + replaced).min(self.growth.allowed());
        wants.saturating_sub(workers.count())
    }

    /// Whether workers can be ordered.
    fn orders(&self) -> bool {
        self.zygote.is_up() && !self.trial
    }

    /// There is memory for this many workers: no more are ordered as long as that is so.
    pub fn give_room(&mut self, workers: u32) {
        self.growth.give_room(workers);
    }

    /// Whether more workers are wanted than there is memory for.
    pub fn lacks_room(&self) -> bool {
        self.growth.lacks_room()
    }

    /// How many workers there are, including those that are starting or leaving.
    pub fn workers(&self) -> u32 {
        let taken = self.places.iter().filter(|place| !place.is_empty());
        u32::try_from(taken.count()).unwrap_or(u32::MAX)
    }

    /// Whether no seat is taken, or about to be.
    fn is_empty(&self) -> bool {
        self.places.iter().all(SeatSlot::is_empty)
    }

    /// Whether it is leaving and nothing of it is left.
    pub fn is_gone(&self) -> bool {
        self.leaving && self.is_empty() && self.zygote.is_absent()
    }

    /// Whether it is leaving.
    pub fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// It is leaving, and its front still finishes requests.
    pub fn leave_with_front(&mut self) {
        (self.leaving, self.drains) = (true, true);
    }

    /// Whether it is leaving, and its front still finishes requests.
    pub fn leaves_with_front(&self) -> bool {
        self.leaving && self.drains
    }

    /// Whether it is leaving, with no front that still needs workers.
    fn fills_no_seat(&self) -> bool {
        self.leaving && !self.drains
    }

    /// Whether PHP has yet to show that it starts.
    pub fn is_on_trial(&self) -> bool {
        self.trial
    }

    /// Whether it needs no workers now.
    pub fn wants_none(&self) -> bool {
        self.growth.wants() == 0
    }

    fn announce(
        &mut self,
        worker: WorkerId,
        pid: i32,
        now: Moment,
        actions: &mut Vec<GenerationAction>,
    ) {
        let is_expected = self.expects(worker, pid);
        match self.state_of(worker) {
            Some(state) if is_expected && let SeatState::Ordered { deadline } = *state => {
                *state =
                    SeatState::Announced { pid, since: now, look_at: now, deadline, booted: false };
            }
            Some(_) | None => self.drop_zygote(KillReason::BrokeRules, actions),
        }
    }

    fn adopted(&mut self, pid: i32, now: Moment, actions: &mut Vec<GenerationAction>) {
        let is_late = self.fills_no_seat();
        for (seat, place) in (0..).zip(&mut self.places) {
            if let SeatState::Announced { pid: announced, booted, .. } = place.state
                && announced == pid
            {
                let within = self.boots_within.filter(|_| !booted);
                let boot = BootState::begin(within, now);
                place.state = SeatState::Taken {
                    pid,
                    born: now,
                    boot,
                    sentenced: is_late,
                    worn: false,
                    kill_at: is_late.then_some(now + LEAVE),
                    gone_by: None,
                };
                if is_late {
                    actions.push(GenerationAction::DismissWorker { pid });
                    continue;
                }
                if boot != BootState::Done {
                    continue;
                }
                actions.push(GenerationAction::Open { worker: place.worker(seat), pid });
            }
        }
    }

    fn fork_failed(&mut self, worker: WorkerId, now: Moment, actions: &mut Vec<GenerationAction>) {
        if !matches!(self.state_of(worker), Some(SeatState::Ordered { .. })) {
            return self.drop_zygote(KillReason::BrokeRules, actions);
        }
        let not_before = self.backoff.failed(now);
        if let Some(state) = self.state_of(worker) {
            *state = SeatState::Empty { not_before };
        }
    }

    fn ended(&mut self, end: DeadWorker, now: Moment, actions: &mut Vec<GenerationAction>) {
        let DeadWorker { pid, how, served } = end;
        let found = self.places.iter().position(|place| place.state.pid() == Some(pid));
        let Some(index) = found else { return };
        let (born, sentenced, boot) = match self.places[index].state {
            SeatState::Taken { born, sentenced, boot, .. } => (born, sentenced, boot),
            SeatState::Announced { .. } | SeatState::Empty { .. } | SeatState::Ordered { .. } => {
                (now, false, BootState::begin(self.boots_within, now))
            }
        };
        let failed = !sentenced && has_failed(how);
        // A script that has not booted counts as an early death, however long it took.
        let has_booted = boot == BootState::Done;
        let early = failed && (!has_booted || now < born + EARLY_DEATH);
        // One that a request has ended could serve, and so can its successor.
        let early = early && !(has_booted && served && self.crashes.take(now));
        self.boots_in_vain |= failed && boot != BootState::Done;
        if !early || self.somebody_lives(now) {
            self.backoff.succeeded();
        }
        let not_before = if early { self.backoff.failed(now) } else { now };
        let place = &mut self.places[index];
        place.state = SeatState::Empty { not_before };
        let seat = Seat::try_from(index).unwrap_or(Seat::MAX);
        let worker = place.worker(seat);
        self.asked_at = self.asked_at.max(self.is_empty().then_some(now));
        if failed {
            let retry = not_before - now;
            actions.push(GenerationAction::Report { worker, pid, how, boot, retry });
        }
    }

    /// Whether a worker that was started after the last failure has outlived the age of early
    /// deaths. Older ones prove nothing: a script that crashes meets the newest worker first.
    fn somebody_lives(&self, now: Moment) -> bool {
        let Some(failed_at) = self.backoff.failed_at() else {
            return true;
        };
        self.places.iter().any(|place| match place.state {
            SeatState::Taken { born, boot, .. } => {
                boot == BootState::Done && born > failed_at && now >= born + EARLY_DEATH
            }
            SeatState::Empty { .. } | SeatState::Ordered { .. } | SeatState::Announced { .. } => {
                false
            }
        })
    }

    /// No seat is filled any more. Seated workers stay until the front retires them; a zygote that
    /// is still starting is of no use.
    fn leave(&mut self, now: Moment, actions: &mut Vec<GenerationAction>) {
        self.leaving = true;
        self.drains = false;
        self.end_boots(now, actions);
        self.trial = false;
        if !self.zygote.is_up() && !self.zygote.is_leaving() {
            self.drop_zygote(KillReason::NotNeeded, actions);
        }
    }

    fn wear(&mut self, worker: WorkerId) {
        if let Some(SeatState::Taken { worn, .. }) = self.state_of(worker) {
            *worn = true;
        }
    }

    fn due(&mut self, now: Moment, actions: &mut Vec<GenerationAction>) {
        self.zygote_due(now, actions);
        if self.orders() {
            self.order(now, actions);
        }
        let mut stuck = false;
        for (seat, place) in (0..).zip(&mut self.places) {
            match &mut place.state {
                SeatState::Ordered { deadline } | SeatState::Announced { deadline, .. }
                    if *deadline <= now =>
                {
                    stuck = true;
                    place.state = SeatState::Empty { not_before: now };
                }
                SeatState::Announced { pid, since, look_at, .. } if *look_at <= now => {
                    *look_at = now + ((now - *since) / 2).max(LOOK_AGAIN);
                    actions.push(GenerationAction::CheckChild { pid: *pid });
                }
                SeatState::Taken { pid, kill_at, gone_by, .. }
                    if kill_at.is_some_and(|at| at <= now) =>
                {
                    *kill_at = None;
                    *gone_by = Some(now + KILLED);
                    actions.push(GenerationAction::KillWorker { pid: *pid });
                }
                SeatState::Taken { pid, gone_by, .. } if gone_by.is_some_and(|by| by <= now) => {
                    *gone_by = None;
                    actions.push(GenerationAction::ReportStuck { seat, pid: *pid });
                }
                SeatState::Taken { pid, boot, gone_by, .. }
                    if boot.deadline().is_some_and(|by| by <= now) =>
                {
                    *boot = BootState::Late;
                    *gone_by = Some(now + KILLED);
                    actions.push(GenerationAction::KillWorker { pid: *pid });
                }
                SeatState::Empty { .. }
                | SeatState::Ordered { .. }
                | SeatState::Announced { .. }
                | SeatState::Taken { .. } => {}
            }
        }
        if stuck {
            self.drop_zygote(KillReason::SlowFork, actions);
        }
    }

    /// Orders the missing workers. One whose seat has to wait after a failure is not ordered for
    /// another seat instead.
    fn order(&mut self, now: Moment, actions: &mut Vec<GenerationAction>) {
        let mut lacks = self.lacks().saturating_sub(self.waiting(now));
        for (seat, place) in (0..).zip(&mut self.places) {
            if lacks == 0 || self.growth.next_order() > now {
                return;
            }
            if matches!(place.state, SeatState::Empty { not_before } if not_before <= now) {
                lacks -= 1;
                place.incarnation = maitred_seat::next_incarnation(place.incarnation);
                place.state = SeatState::Ordered { deadline: now + WORKER_SPAWN };
                self.growth.ordered(now);
                actions.push(GenerationAction::Fill { worker: place.worker(seat) });
            }
        }
    }

    fn place(&mut self, seat: Seat) -> Option<&mut SeatSlot> {
        self.places.get_mut(usize::try_from(seat).ok()?)
    }

    /// The state of the seat of a worker, if no other was ordered for it since.
    fn state_of(&mut self, worker: WorkerId) -> Option<&mut SeatState> {
        let place = self.place(worker.seat)?;
        (place.incarnation == worker.incarnation).then_some(&mut place.state)
    }
}

/// Whether a worker that was not ended on purpose has failed.
pub fn has_failed(how: HowEnded) -> bool {
    match how {
        HowEnded::Exited(code) => exit::is_failure(code),
        HowEnded::Signaled(_) => true,
    }
}

#[cfg(test)]
mod boot_tests;
#[cfg(test)]
mod copies_tests;
#[cfg(test)]
mod tests;
