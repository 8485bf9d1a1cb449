//! The invented world: zygotes that work, fail, lie and die, workers that die, and time.

use std::collections::HashMap;

use maitred_config::{Config, ProcessManager};
use maitred_control::Incarnation;

use super::super::*;
use crate::limits::BACKOFF_LONGEST;

pub(super) const SEATS: u32 = 4;

/// `max_spawn_rate`, `start_servers` and `process_idle_timeout` in the invented world.
pub(super) const RATE: usize = 3;
pub(super) const START: u32 = 2;
pub(super) const REST: Duration = Duration::from_secs(2);

pub(super) fn growth(pm: ProcessManager) -> Growth {
    let config = Config::for_directory("/".as_ref(), Vec::new(), Some(SEATS)).unwrap();
    let pool = maitred_config::Pool {
        pm,
        start_servers: Some(START),
        min_spare_servers: Some(1),
        max_spare_servers: Some(3),
        max_spawn_rate: u32::try_from(RATE).unwrap(),
        process_idle_timeout: REST,
        ..config.pools[0].clone()
    };
    Growth::of(&pool, SEATS)
}

#[derive(Debug, PartialEq)]
pub(super) enum ZygoteState {
    None,
    Starting,
    Up,
    Dismissed,
    Killed,
}

/// What is true in the world, whatever the pool believes.
pub(super) struct World {
    pub(super) pool: GenerationState,
    pub(super) now: Moment,
    pub(super) zygote: ZygoteState,
    pub(super) orders: Vec<(Seat, Incarnation)>,
    pub(super) announced: Vec<i32>,
    pub(super) workers: HashMap<i32, (Seat, Incarnation)>,
    pub(super) seated: HashMap<Seat, i32>,
    pub(super) last: HashMap<Seat, Incarnation>,
    pub(super) next_pid: i32,
    pub(super) pm: ProcessManager,
    pub(super) fills: Vec<Moment>,
    pub(super) allowed: u32,
}

impl World {
    pub(super) fn new(pm: ProcessManager) -> World {
        World {
            pm,
            fills: Vec::new(),
            allowed: u32::MAX,
            pool: GenerationState::new(SEATS + SPARE_SEATS, growth(pm)),
            now: Moment::ZERO,
            zygote: ZygoteState::None,
            orders: Vec::new(),
            announced: Vec::new(),
            workers: HashMap::new(),
            seated: HashMap::new(),
            last: HashMap::new(),
            next_pid: 100,
        }
    }

    pub(super) fn tell(&mut self, event: GenerationEvent) {
        for action in self.pool.on(event, self.now) {
            self.carry_out(action);
        }
        let deadline = self.pool.deadline();
        assert!(
            deadline.is_none_or(|deadline| deadline > self.now),
            "what is due is done, or the supervisor never sleeps: {:?}",
            self.pool
        );
    }

    pub(super) fn carry_out(&mut self, action: GenerationAction) {
        match action {
            GenerationAction::StartZygote => {
                assert_eq!(self.zygote, ZygoteState::None, "two zygotes in one pool");
                self.zygote = ZygoteState::Starting;
            }
            GenerationAction::KillZygote(_) => {
                assert!(!matches!(self.zygote, ZygoteState::None | ZygoteState::Killed));
                self.zygote = ZygoteState::Killed;
            }
            GenerationAction::Fill { worker: WorkerId { seat, incarnation } } => {
                assert_eq!(self.zygote, ZygoteState::Up, "an order without a zygote");
                assert!(!self.seated.contains_key(&seat), "two workers in seat {seat}");
                let last = self.last.insert(seat, incarnation).unwrap_or(0);
                assert!(incarnation > last, "incarnation {incarnation} after {last}");
                let recent = |fill: &&Moment| **fill + Duration::from_secs(1) > self.now;
                let recent = self.fills.iter().filter(recent).count();
                let start = match self.pm {
                    ProcessManager::Static | ProcessManager::Auto => usize::MAX - RATE,
                    ProcessManager::Dynamic => START as usize,
                    ProcessManager::Ondemand => 0,
                };
                assert!(recent < RATE + start, "{recent} workers in a second");
                let most = self.allowed.min(SEATS + SPARE_SEATS) as usize;
                let workers = self.pool.places.iter().filter(|place| place.has_worker());
                assert!(workers.count() <= most, "more workers than may be");
                assert!(!self.pool.leaving && !self.pool.trial);
                self.fills.push(self.now);
                self.orders.push((seat, incarnation));
            }
            GenerationAction::CheckChild { .. } => {}
            GenerationAction::TerminateWorker { pid } => {
                assert!(self.workers.contains_key(&pid), "no worker to end");
            }
            GenerationAction::Open { worker: WorkerId { seat, incarnation }, pid } => {
                assert_eq!(self.workers.get(&pid), Some(&(seat, incarnation)));
                let other = self.seated.insert(seat, pid);
                assert_eq!(other, None, "two workers in seat {seat}");
            }
            GenerationAction::KillWorker { pid } => {
                assert!(self.workers.contains_key(&pid), "a stranger is killed");
                self.worker_dies(pid, true);
            }
            GenerationAction::DismissWorker { pid } => {
                assert!(self.workers.contains_key(&pid), "a stranger is dismissed");
                // Every second one does not heed it.
                if pid % 2 == 0 {
                    self.worker_dies(pid, true);
                }
            }
            GenerationAction::DismissZygote => {
                assert_eq!(self.zygote, ZygoteState::Up);
                assert!(self.seated.is_empty() && self.orders.is_empty());
                self.zygote = ZygoteState::Dismissed;
            }
            GenerationAction::ReportStuck { .. } => {
                panic!("in this world a killed process is gone")
            }
            GenerationAction::Report { retry, .. } => assert!(retry <= BACKOFF_LONGEST),
        }
    }

    pub(super) fn zygote_carries_out(&mut self, pick: usize) {
        if self.zygote != ZygoteState::Up || self.orders.is_empty() {
            return;
        }
        let (seat, incarnation) = self.orders.swap_remove(pick % self.orders.len());
        let pid = self.next_pid;
        self.next_pid += 1;
        self.workers.insert(pid, (seat, incarnation));
        self.announced.push(pid);
        self.tell(GenerationEvent::Announced { worker: WorkerId { seat, incarnation }, pid });
    }

    /// Every announced process is a child by now; those without a seat are reaped.
    pub(super) fn intermediates_leave(&mut self) {
        for pid in std::mem::take(&mut self.announced) {
            self.tell(GenerationEvent::Adopted { pid });
            if !self.seated.values().any(|seated| *seated == pid) {
                self.workers.remove(&pid);
            }
        }
    }

    pub(super) fn zygote_dies(&mut self) {
        if self.zygote != ZygoteState::None {
            self.intermediates_leave();
            // What was ordered meanwhile is void, too.
            self.orders.clear();
            self.zygote = ZygoteState::None;
            self.tell(GenerationEvent::ZygoteEnded);
        }
    }

    pub(super) fn worker_dies(&mut self, pid: i32, failed: bool) {
        let how = if failed { HowEnded::Signaled(11) } else { HowEnded::Exited(exit::BAILOUT) };
        self.worker_ends(pid, how, false);
    }

    /// A request ends its worker.
    pub(super) fn worker_crashes(&mut self, pid: i32) {
        self.worker_ends(pid, HowEnded::Signaled(11), true);
    }

    fn worker_ends(&mut self, pid: i32, how: HowEnded, served: bool) {
        self.workers.remove(&pid);
        self.announced.retain(|announced| *announced != pid);
        self.seated.retain(|_, seated| *seated != pid);
        self.tell(GenerationEvent::Ended { pid, how, served });
    }

    pub(super) fn any_worker(&self, pick: usize) -> Option<i32> {
        let mut pids: Vec<i32> = self.workers.keys().copied().collect();
        pids.sort_unstable();
        (!pids.is_empty()).then(|| pids[pick % pids.len()])
    }

    pub(super) fn step(&mut self, kind: u8, pick: usize, pass: u64) {
        self.now += Duration::from_millis(pass);
        let seat = u32::try_from(pick).unwrap() % (SEATS + SPARE_SEATS + 1);
        match kind {
            0 => self.tell(GenerationEvent::Tick),
            1 | 2 if self.zygote == ZygoteState::Starting => {
                self.zygote = ZygoteState::Up;
                self.tell(GenerationEvent::ZygoteStarted);
            }
            1 => self.tell(GenerationEvent::ZygoteStarted),
            3 => self.zygote_dies(),
            4..=9 => self.zygote_carries_out(pick),
            10..=12 => self.intermediates_leave(),
            13 if self.zygote == ZygoteState::Up && !self.orders.is_empty() => {
                let (seat, incarnation) = self.orders.swap_remove(pick % self.orders.len());
                self.tell(GenerationEvent::ForkFailed { worker: WorkerId { seat, incarnation } });
            }
            14 | 15 => {
                if let Some(pid) = self.any_worker(pick) {
                    self.worker_dies(pid, kind == 14);
                }
            }
            16 => {
                let incarnation = self.last.get(&seat).copied().unwrap_or(0);
                self.tell(GenerationEvent::EndWorker { worker: WorkerId { seat, incarnation } });
            }
            17 if self.zygote == ZygoteState::Up => {
                let pid = self.any_worker(pick).unwrap_or(1);
                let incarnation = self.last.get(&seat).copied().unwrap_or(9);
                self.tell(GenerationEvent::Announced {
                    worker: WorkerId { seat, incarnation },
                    pid,
                });
                self.orders.retain(|order| order.0 != seat);
            }
            18 => self.tell(GenerationEvent::ZygoteFailed(KillReason::StartFailed)),
            19 | 20 => {
                let workers = u32::try_from(pick).unwrap() % (SEATS + 3);
                self.tell(GenerationEvent::Wanted { workers });
            }
            21 | 22 => {
                let incarnation = self.last.get(&seat).copied().unwrap_or(0);
                self.tell(GenerationEvent::Retired { worker: WorkerId { seat, incarnation } });
            }
            23 | 24 => {
                let incarnation = self.last.get(&seat).copied().unwrap_or(0);
                self.tell(GenerationEvent::Worn { worker: WorkerId { seat, incarnation } });
            }
            25 => {
                self.allowed = u32::try_from(pick).unwrap() % (SEATS + 3);
                let workers = self.allowed;
                self.tell(GenerationEvent::Allowed { workers });
            }
            _ => {}
        }
    }

    /// From now on everything works, and as many workers are wanted as may be. Returns how long
    /// it took until every seat was taken.
    pub(super) fn recover(&mut self) -> Duration {
        self.allowed = u32::MAX;
        self.tell(GenerationEvent::Allowed { workers: u32::MAX });
        self.tell(GenerationEvent::Wanted { workers: SEATS });
        self.settle()
    }

    /// From now on everything works. Returns how long it took until there were as many workers as
    /// are wanted.
    pub(super) fn settle(&mut self) -> Duration {
        let begun = self.now;
        for _ in 0..1000 {
            if matches!(self.zygote, ZygoteState::Killed | ZygoteState::Dismissed) {
                self.zygote_dies();
            }
            if self.zygote == ZygoteState::Starting {
                self.step(1, 0, 0);
            }
            while self.zygote == ZygoteState::Up && !self.orders.is_empty() {
                self.zygote_carries_out(0);
            }
            self.intermediates_leave();
            let idle = self.pm == ProcessManager::Ondemand && self.zygote == ZygoteState::None;
            if self.pool.is_full()
                && self.pool.lacks() == 0
                && (self.zygote == ZygoteState::Up || idle)
            {
                return self.now - begun;
            }
            if let Some(deadline) = self.pool.deadline() {
                self.now = self.now.max(deadline);
            }
            self.tell(GenerationEvent::Tick);
        }
        panic!("the pool is never full again: {:?}", self.pool);
    }
}
