//! `pm = auto`: the controller of the server, with the supervisor's memory accounting.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use maitred_sizing::ledger::{Budget, MemoryLedger, WorkerMemory};
use maitred_sizing::memory::Signs;
use maitred_sizing::{Controller, Kinds, Limits, Load, Machine, Sizing, Spent};

use super::{Policy, View};
use crate::plant::Plant;

/// How often memory is measured until the workers' memory is known, in seconds, and how many of
/// these measurements there are to one of everything else.
const SOON_SECONDS: f64 = 0.1;
const SOON_PER_LOOK: u32 = 10;

/// Workers that are measured each time, as in the server.
const BUDGET: Budget = Budget { exactly: 16, roughly: 128 };

/// Our policy.
#[derive(Debug)]
pub struct Auto {
    controller: Controller,
    /// The pool's name, and those of all pools with the same memory.
    pool: String,
    pools: Rc<[String]>,
    rooms: Rc<RefCell<MemoryLedger>>,
    counts_memory: bool,
    /// Workers that fit into memory, by the last measurement.
    told: Option<usize>,
    parked: usize,
    kinds: Kinds,
    /// Whether some workers are reserved from kinds that hang.
    shares: bool,
    soon: u32,
    /// Wanted numbers of workers over time, without those limited by memory.
    pub wanted: Vec<(f64, usize)>,
}

impl Auto {
    /// For a plant at its start.
    pub fn new(plant: &Plant) -> Auto {
        Auto::one_of(plant, "www".to_owned(), Rc::new(["www".to_owned()]), Rc::default())
    }

    /// For plants that share their memory.
    pub fn together(plants: &[Plant]) -> Vec<Auto> {
        let names = (0..plants.len()).map(|number| format!("p{number}"));
        let names: Rc<[String]> = names.collect();
        let rooms = Rc::<RefCell<MemoryLedger>>::default();
        let each = plants.iter().zip(&*names);
        each.map(|(plant, name)| Auto::one_of(plant, name.clone(), names.clone(), rooms.clone()))
            .collect()
    }

    fn one_of(
        plant: &Plant,
        pool: String,
        pools: Rc<[String]>,
        rooms: Rc<RefCell<MemoryLedger>>,
    ) -> Auto {
        let machine = Machine { cores: plant.segments[0].cores, memory: None };
        let cap = plant.cap;
        Auto {
            controller: Controller::new(Limits { floor: 1, cap }, machine),
            pool,
            pools,
            rooms,
            counts_memory: plant.memory.is_some(),
            told: None,
            parked: 0,
            kinds: Kinds::default(),
            shares: true,
            soon: 0,
            wanted: Vec::new(),
        }
    }

    /// Without the reserve: requests that hang may take all workers.
    pub fn without_shares(mut self) -> Auto {
        self.shares = false;
        self
    }

    /// Its current decision.
    pub fn sizing(&self) -> Sizing {
        self.controller.sizing()
    }

    fn load(&self, view: &View) -> Load {
        Load {
            ready: view.busy + view.idle,
            busy: view.busy,
            waiting: view.waiting,
            parked: self.parked,
        }
    }

    fn room(&self, view: &View) -> Option<usize> {
        let room = || self.rooms.borrow().workers(&self.pool, view.alive());
        self.counts_memory.then(room)
    }

    /// One pool measures when all workers were counted.
    fn looks(&self) -> bool {
        self.counts_memory && self.pools.last() == Some(&self.pool)
    }
}

impl Policy for Auto {
    fn arrived(&mut self, view: &View) {
        self.controller.arrived(self.load(view));
    }

    fn holds_back(&self, kind: u64) -> bool {
        let most = self.controller.most_that_hang().filter(|_| self.shares);
        most.is_some_and(|most| self.kinds.hangs(kind) && self.kinds.left(most) == 0)
    }

    fn began(&mut self, kind: u64) {
        self.kinds.began(kind);
    }

    fn finished(&mut self, _view: &View, kind: u64, spent: Spent) {
        self.controller.ended(&mut self.kinds, kind, spent);
    }

    fn running(&mut self, waits: &mut dyn Iterator<Item = (u64, f64)>) {
        if self.soon == 0 {
            self.all_busy(waits);
        }
    }

    fn all_busy(&mut self, waits: &mut dyn Iterator<Item = (u64, f64)>) {
        let after = self.controller.parks_after();
        let hang: Vec<(u64, bool)> = waits.map(|(kind, wait)| (kind, wait > after)).collect();
        self.parked = hang.iter().filter(|(_, hangs)| *hangs).count();
        let believed = self.controller.believes_up_to();
        self.kinds.look(believed, hang.into_iter());
    }

    fn measures(&mut self, workers: &mut dyn Iterator<Item = (i32, WorkerMemory)>, ended: u64) {
        let mut rooms = self.rooms.borrow_mut();
        if !self.counts_memory || self.soon > 0 && rooms.are_known() {
            return;
        }
        let all: Vec<(i32, WorkerMemory)> = workers.collect();
        let ids: Vec<i32> = all.iter().map(|(id, _)| *id).collect();
        let mut budget = BUDGET;
        for due in rooms.due(&self.pool, &ids, ended, &mut budget) {
            for (_, has) in all.iter().filter(|(id, _)| *id == due.worker) {
                let most = has.most.filter(|_| due.exactly);
                rooms.measured(&self.pool, due, WorkerMemory { most, ..*has });
            }
        }
    }

    fn every(&self) -> f64 {
        SOON_SECONDS
    }

    fn tick(&mut self, view: &View) {
        let now = Duration::from_secs_f64(view.now);
        let is_look = self.soon == 0;
        self.soon = (self.soon + 1) % SOON_PER_LOOK;
        let is_due = is_look || !self.rooms.borrow().are_known();
        if self.looks() && is_due {
            let part = view.memory.map(|memory| memory.used / memory.limit);
            let signs = Signs {
                used: part,
                swaps_in: part.is_some_and(|part| part > 1.0),
                ..Signs::default()
            };
            let pools: HashSet<&str> = self.pools.iter().map(String::as_str).collect();
            let mut rooms = self.rooms.borrow_mut();
            rooms.look(now, view.memory, &signs, &pools);
        }
        if is_due {
            // As the front, which is notified of a measurement: pressure removes workers once.
            self.told = self.room(view);
        }
        self.controller.see(Machine { cores: view.cores, memory: self.told });
        if is_look {
            let load = self.load(view);
            self.controller.see_kinds(&self.kinds);
            self.controller.look(now, load);
            self.kinds.pass_second();
            self.wanted.push((view.now, self.sizing().workers));
        }
    }

    fn wants(&self, view: &View) -> usize {
        let workers = self.sizing().workers;
        self.room(view).map_or(workers, |room| room.min(workers))
    }

    fn forked(&mut self, workers: usize) {
        self.rooms.borrow_mut().promise(&self.pool, workers);
    }

    fn lets_go(&self, view: &View) -> usize {
        let alive = view.alive();
        alive.saturating_sub(self.sizing().workers).min(view.idle)
    }

    fn outgrown(&self) -> Option<i32> {
        let mut rooms = self.rooms.borrow_mut();
        let (pool, grown) = rooms.outgrown()?;
        let is_due = self.soon == 1 && pool == self.pool;
        is_due.then(|| {
            rooms.replaces(&self.pool, grown.worker);
            grown.worker
        })
    }

    fn is_surplus(&self, view: &View) -> bool {
        view.alive() > self.sizing().workers
    }
}
