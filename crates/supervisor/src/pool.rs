//! One pool: its zygote's life, and who sits in its seats.
//!
//! ```text
//!            zygote up             announced            is our child
//!   Empty ───────────────▶ Ordered ───────────▶ Announced ───────────▶ Taken
//!     ▲                       │ fork failed, too    │ died, too late     │ died
//!     │                       │ late, zygote gone   │ zygote gone        │
//!     ╰───────────────────────┴─────────────────────┴────────────────────╯
//! ```
//!
//! How many seats are to be taken, [`Growth`] says; the front says which worker has had nothing to
//! do for long, and that one is asked to leave. Every order carries an incarnation of its own, so
//! that whatever comes late is known for late.

use std::time::Duration;

use maitred_control::{Incarnation, Seat, exit};
use maitred_os::fork::HowEnded;

use crate::backoff::Backoff;
use crate::growth::Growth;
use crate::life::{Life, Step};
use crate::limits::{EARLY_DEATH, LEAVE, LOOK_AGAIN, Moment, WORKER_SPAWN, ZYGOTE_START};
pub use crate::reason::Reason;

/// What happened to a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Nothing but that time went by.
    Tick,
    /// The zygote says that PHP runs.
    ZygoteStarted,
    /// The zygote cannot do its work, or broke the rules.
    ZygoteFailed(Reason),
    /// The zygote has ended, and nobody is left who could speak for it.
    ZygoteEnded,
    /// The zygote says that it forked a worker.
    Announced {
        seat: Seat,
        incarnation: Incarnation,
        pid: i32,
    },
    /// An announced process has been seen to be our child, of the pool's user.
    Adopted { pid: i32 },
    /// The zygote says that it could not fork.
    ForkFailed {
        seat: Seat,
        incarnation: Incarnation,
    },
    /// A child of ours with this pid has ended.
    Ended { pid: i32, how: HowEnded },
    /// The front asks for the end of a worker.
    EndWorker {
        seat: Seat,
        incarnation: Incarnation,
    },
    /// The front says how many workers are needed; 0 also for a front that has gone.
    Wanted { workers: u32 },
    /// The front gives a worker nothing more to do.
    Retired {
        seat: Seat,
        incarnation: Incarnation,
    },
}

/// What is to be done for a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Start a zygote.
    StartZygote,
    /// Kill the zygote.
    KillZygote(Reason),
    /// Ask the zygote to leave: nobody needs it.
    DismissZygote,
    /// Order the zygote to fill a seat.
    Fill {
        seat: Seat,
        incarnation: Incarnation,
    },
    /// See whether this process has become our child.
    Look { pid: i32 },
    /// Tell the front of the worker in this seat.
    Open {
        seat: Seat,
        incarnation: Incarnation,
        pid: i32,
    },
    /// Kill this worker.
    KillWorker { pid: i32 },
    /// Ask this worker, which has nothing to do, to leave.
    DismissWorker { pid: i32 },
    /// Say in the log that a worker failed.
    Report {
        seat: Seat,
        incarnation: Incarnation,
        pid: i32,
        how: HowEnded,
        retry: Duration,
    },
}

/// A worker that sits in a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seated {
    /// Its seat.
    pub seat: Seat,
    /// Which worker of that seat it is.
    pub incarnation: Incarnation,
    /// Its process id.
    pub pid: i32,
}

/// One pool.
#[derive(Debug)]
pub struct Pool {
    zygote: Life,
    places: Vec<Place>,
    backoff: Backoff,
    growth: Growth,
    /// Since when the zygote has had no workers and nobody has asked for one.
    unneeded_since: Option<Moment>,
}

#[derive(Debug)]
struct Place {
    /// That of the last order given.
    incarnation: Incarnation,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Empty {
        not_before: Moment,
    },
    Ordered {
        deadline: Moment,
    },
    Announced {
        pid: i32,
        since: Moment,
        look_at: Moment,
        deadline: Moment,
    },
    Taken {
        pid: i32,
        born: Moment,
        sentenced: bool,
        /// When it is killed, if it was asked to leave and has not.
        kill_at: Option<Moment>,
    },
}

impl Pool {
    /// A pool of `seats` empty seats and no zygote, as many of which are filled as `growth` says.
    pub fn new(seats: u32, growth: Growth) -> Pool {
        let empty = || Place {
            incarnation: 0,
            state: State::Empty {
                not_before: Moment::ZERO,
            },
        };
        Pool {
            zygote: Life::new(ZYGOTE_START),
            places: (0..seats).map(|_| empty()).collect(),
            backoff: Backoff::default(),
            growth,
            unneeded_since: None,
        }
    }

    /// Takes note of what happened and says what to do.
    pub fn on(&mut self, event: Event, now: Moment) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Tick => {}
            Event::ZygoteStarted => {
                if self.zygote.ready(now).is_err() {
                    self.drop_zygote(Reason::BrokeRules, &mut actions);
                }
            }
            Event::ZygoteFailed(reason) => self.drop_zygote(reason, &mut actions),
            Event::ZygoteEnded => self.zygote_ended(now),
            Event::Announced {
                seat,
                incarnation,
                pid,
            } => {
                self.announce(seat, incarnation, pid, now, &mut actions);
            }
            Event::Adopted { pid } => self.adopted(pid, now, &mut actions),
            Event::ForkFailed { seat, incarnation } => {
                self.fork_failed(seat, incarnation, now, &mut actions);
            }
            Event::Ended { pid, how } => self.ended(pid, how, now, &mut actions),
            Event::EndWorker { seat, incarnation } => {
                self.sentence(seat, incarnation, &mut actions);
            }
            Event::Wanted { workers } => self.growth.want(workers),
            Event::Retired { seat, incarnation } => {
                self.retire(seat, incarnation, now, &mut actions);
            }
        }
        self.due(now, &mut actions);
        actions
    }

    /// When something is due without anything happening before.
    pub fn deadline(&self) -> Option<Moment> {
        let places = self.places.iter().filter_map(|place| match place.state {
            State::Empty { .. } => None,
            State::Ordered { deadline } => Some(deadline),
            State::Announced {
                look_at, deadline, ..
            } => Some(look_at.min(deadline)),
            State::Taken { kill_at, .. } => kill_at,
        });
        let zygote = self.zygote.deadline().filter(|_| self.heeds_zygote());
        let rest = self.unneeded_since.zip(self.growth.zygote_rest());
        places
            .chain(zygote)
            .chain(rest.map(|(since, rest)| since + rest))
            .chain(self.order_deadline())
            .min()
    }

    /// When [`Pool::order`] has something to order: as soon as fewer seats have to wait than lack
    /// a worker.
    fn order_deadline(&self) -> Option<Moment> {
        let lacks = self.lacks();
        if lacks == 0 || !self.zygote.is_up() {
            return None;
        }
        let empty = self.places.iter().filter_map(|place| match place.state {
            State::Empty { not_before } => Some(not_before),
            State::Ordered { .. } | State::Announced { .. } | State::Taken { .. } => None,
        });
        let mut empty: Vec<Moment> = empty.collect();
        empty.sort_unstable_by(|a, b| b.cmp(a));
        let decisive = empty.get(lacks.min(empty.len()).checked_sub(1)?)?;
        Some((*decisive).max(self.growth.next_order()))
    }

    /// Whether there are as many workers as there are to be.
    pub fn is_full(&self) -> bool {
        self.seated().count() >= self.growth.wants()
    }

    /// Whether the zygote was asked to leave.
    pub fn zygote_leaves(&self) -> bool {
        self.zygote.is_leaving()
    }

    /// How many workers there are too few, those not counted that are on their way.
    fn lacks(&self) -> usize {
        let coming = |place: &&Place| match place.state {
            State::Ordered { .. } | State::Announced { .. } => true,
            State::Taken { sentenced, .. } => !sentenced,
            State::Empty { .. } => false,
        };
        let coming = self.places.iter().filter(coming).count();
        self.growth.wants().saturating_sub(coming)
    }

    /// Whether the zygote is there, or has to be.
    fn heeds_zygote(&self) -> bool {
        !self.zygote.is_absent() || self.growth.zygote_rest().is_none() || self.lacks() > 0
    }

    /// The workers that are known to be our children and stay.
    pub fn seated(&self) -> impl Iterator<Item = Seated> {
        (0..)
            .zip(&self.places)
            .filter_map(|(seat, place)| match place.state {
                State::Taken {
                    pid,
                    sentenced: false,
                    ..
                } => Some(Seated {
                    seat,
                    incarnation: place.incarnation,
                    pid,
                }),
                State::Empty { .. }
                | State::Ordered { .. }
                | State::Announced { .. }
                | State::Taken { .. } => None,
            })
    }

    /// The processes that were announced and not yet seen to be our children.
    pub fn announced(&self) -> Vec<i32> {
        let pids = self.places.iter().filter_map(|place| match place.state {
            State::Announced { pid, .. } => Some(pid),
            State::Empty { .. } | State::Ordered { .. } | State::Taken { .. } => None,
        });
        pids.collect()
    }

    /// Whether this pid sits in a seat, or was announced for one.
    pub fn knows(&self, pid: i32) -> bool {
        self.places
            .iter()
            .any(|place| place.state.pid() == Some(pid))
    }

    fn announce(
        &mut self,
        seat: Seat,
        incarnation: Incarnation,
        pid: i32,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        let known = self.knows(pid);
        match self.place(seat) {
            Some(Place {
                incarnation: ordered,
                state,
            }) if *ordered == incarnation && !known && pid > 1 => {
                if let State::Ordered { deadline } = *state {
                    *state = State::Announced {
                        pid,
                        since: now,
                        look_at: now,
                        deadline,
                    };
                } else {
                    self.drop_zygote(Reason::BrokeRules, actions);
                }
            }
            Some(_) | None => self.drop_zygote(Reason::BrokeRules, actions),
        }
    }

    fn adopted(&mut self, pid: i32, now: Moment, actions: &mut Vec<Action>) {
        for (seat, place) in (0..).zip(&mut self.places) {
            if matches!(place.state, State::Announced { pid: announced, .. } if announced == pid) {
                place.state = State::Taken {
                    pid,
                    born: now,
                    sentenced: false,
                    kill_at: None,
                };
                actions.push(Action::Open {
                    seat,
                    incarnation: place.incarnation,
                    pid,
                });
            }
        }
    }

    fn fork_failed(
        &mut self,
        seat: Seat,
        incarnation: Incarnation,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        let ordered = self.place(seat).is_some_and(|place| {
            place.incarnation == incarnation && matches!(place.state, State::Ordered { .. })
        });
        if !ordered {
            return self.drop_zygote(Reason::BrokeRules, actions);
        }
        let not_before = self.backoff.failed(now);
        if let Some(place) = self.place(seat) {
            place.state = State::Empty { not_before };
        }
    }

    fn ended(&mut self, pid: i32, how: HowEnded, now: Moment, actions: &mut Vec<Action>) {
        let found = self
            .places
            .iter()
            .position(|place| place.state.pid() == Some(pid));
        let Some(index) = found else { return };
        let (born, sentenced) = match self.places[index].state {
            State::Taken {
                born, sentenced, ..
            } => (born, sentenced),
            State::Announced { .. } | State::Empty { .. } | State::Ordered { .. } => (now, false),
        };
        let failed = !sentenced
            && match how {
                HowEnded::Exited(code) => exit::is_failure(code),
                HowEnded::Signaled(_) => true,
            };
        if !failed || now >= born + EARLY_DEATH || self.somebody_lives(now) {
            self.backoff.succeeded();
        }
        let early = failed && now < born + EARLY_DEATH;
        let not_before = if early { self.backoff.failed(now) } else { now };
        let place = &mut self.places[index];
        place.state = State::Empty { not_before };
        if failed {
            let (incarnation, retry) = (place.incarnation, not_before - now);
            let seat = Seat::try_from(index).unwrap_or(Seat::MAX);
            actions.push(Action::Report {
                seat,
                incarnation,
                pid,
                how,
                retry,
            });
        }
    }

    /// Whether a worker that came after the last failure has outlived the age of early deaths.
    /// Older ones prove nothing: a script that crashes meets the newest worker first.
    fn somebody_lives(&self, now: Moment) -> bool {
        let Some(failed_at) = self.backoff.failed_at() else {
            return true;
        };
        self.places.iter().any(|place| match place.state {
            State::Taken { born, .. } => born > failed_at && now >= born + EARLY_DEATH,
            State::Empty { .. } | State::Ordered { .. } | State::Announced { .. } => false,
        })
    }

    fn sentence(&mut self, seat: Seat, incarnation: Incarnation, actions: &mut Vec<Action>) {
        let Some(place) = self.place(seat) else {
            return;
        };
        if let State::Taken {
            pid,
            sentenced,
            kill_at,
            ..
        } = &mut place.state
            && place.incarnation == incarnation
        {
            *sentenced = true;
            *kill_at = None;
            actions.push(Action::KillWorker { pid: *pid });
        }
    }

    /// Lets a worker go that the front gives nothing more to. Had it asked for its end before, it
    /// would be killed already.
    fn retire(
        &mut self,
        seat: Seat,
        incarnation: Incarnation,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        let Some(place) = self.place(seat) else {
            return;
        };
        if let State::Taken {
            pid,
            sentenced: sentenced @ false,
            kill_at,
            ..
        } = &mut place.state
            && place.incarnation == incarnation
        {
            *sentenced = true;
            *kill_at = Some(now + LEAVE);
            actions.push(Action::DismissWorker { pid: *pid });
        }
    }

    /// Orders that were not carried out are void. So are announcements: whoever could become our
    /// child has done so, or never will.
    fn zygote_ended(&mut self, now: Moment) {
        self.zygote.ended(now);
        for place in &mut self.places {
            if matches!(place.state, State::Ordered { .. } | State::Announced { .. }) {
                place.state = State::Empty { not_before: now };
            }
        }
    }

    fn drop_zygote(&mut self, reason: Reason, actions: &mut Vec<Action>) {
        if self.zygote.give_up().is_some() {
            actions.push(Action::KillZygote(reason));
        }
    }

    fn due(&mut self, now: Moment, actions: &mut Vec<Action>) {
        self.zygote_due(now, actions);
        if self.zygote.is_up() {
            self.order(now, actions);
        }
        let mut stuck = false;
        for place in &mut self.places {
            match &mut place.state {
                State::Ordered { deadline } | State::Announced { deadline, .. }
                    if *deadline <= now =>
                {
                    stuck = true;
                    place.state = State::Empty { not_before: now };
                }
                State::Announced {
                    pid,
                    since,
                    look_at,
                    ..
                } if *look_at <= now => {
                    *look_at = now + ((now - *since) / 2).max(LOOK_AGAIN);
                    actions.push(Action::Look { pid: *pid });
                }
                State::Taken { pid, kill_at, .. } if kill_at.is_some_and(|at| at <= now) => {
                    *kill_at = None;
                    actions.push(Action::KillWorker { pid: *pid });
                }
                State::Empty { .. }
                | State::Ordered { .. }
                | State::Announced { .. }
                | State::Taken { .. } => {}
            }
        }
        if stuck {
            self.drop_zygote(Reason::SlowFork, actions);
        }
    }

    fn zygote_due(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if !self.heeds_zygote() {
            self.unneeded_since = None;
            return;
        }
        let slow = match self.zygote.is_leaving() {
            true => Reason::SlowEnd,
            false => Reason::SlowStart,
        };
        match self.zygote.due(now) {
            Some(Step::Start) => actions.push(Action::StartZygote),
            Some(Step::Kill) => actions.push(Action::KillZygote(slow)),
            None => {}
        }
        let empty = |place: &Place| matches!(place.state, State::Empty { .. });
        let needed = self.growth.wants() > 0 || !self.places.iter().all(empty);
        let Some(rest) = self.growth.zygote_rest() else {
            return;
        };
        if needed || !self.zygote.is_up() {
            self.unneeded_since = None;
        } else if now >= *self.unneeded_since.get_or_insert(now) + rest {
            self.unneeded_since = None;
            self.zygote.dismiss(now);
            actions.push(Action::DismissZygote);
        }
    }

    /// Orders the workers that lack. One whose seat has to wait after a failure is not ordered
    /// for another seat instead.
    fn order(&mut self, now: Moment, actions: &mut Vec<Action>) {
        let waits =
            |place: &&Place| matches!(place.state, State::Empty { not_before } if not_before > now);
        let waiting = self.places.iter().filter(waits).count();
        let mut lacks = self.lacks().saturating_sub(waiting);
        for (seat, place) in (0..).zip(&mut self.places) {
            if lacks == 0 || self.growth.next_order() > now {
                return;
            }
            if matches!(place.state, State::Empty { not_before } if not_before <= now) {
                lacks -= 1;
                place.incarnation += 1;
                place.state = State::Ordered {
                    deadline: now + WORKER_SPAWN,
                };
                self.growth.ordered(now);
                actions.push(Action::Fill {
                    seat,
                    incarnation: place.incarnation,
                });
            }
        }
    }

    fn place(&mut self, seat: Seat) -> Option<&mut Place> {
        self.places.get_mut(usize::try_from(seat).ok()?)
    }
}

impl State {
    fn pid(&self) -> Option<i32> {
        match *self {
            State::Announced { pid, .. } | State::Taken { pid, .. } => Some(pid),
            State::Empty { .. } | State::Ordered { .. } => None,
        }
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
