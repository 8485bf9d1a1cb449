//! `pm = auto`: the very controller of the server, and what the supervisor keeps of memory.

use std::collections::HashSet;
use std::time::Duration;

use maitred_sizing::memory::Signs;
use maitred_sizing::rooms::{Budget, Has, Rooms};
use maitred_sizing::{Controller, Limits, Load, Machine, Sizing, Spent};

use super::{Policy, View};
use crate::plant::Plant;

/// The name of the one pool there is.
const POOL: &str = "www";

/// How often memory is looked at until it is known what workers take, in seconds, and how many of
/// those looks there are to one of all else.
const SOON_SECONDS: f64 = 0.1;
const SOON_PER_LOOK: u32 = 10;

/// Workers that are measured at each, as in the server.
const BUDGET: Budget = Budget {
    exactly: 16,
    roughly: 128,
};

/// Ours.
#[derive(Debug)]
pub struct Auto {
    controller: Controller,
    rooms: Rooms,
    counts_memory: bool,
    /// Workers there is memory for, by the last look.
    told: Option<usize>,
    parked: usize,
    soon: u32,
    /// Numbers it has wanted, one after another, without those that memory gave.
    pub wanted: Vec<(f64, usize)>,
}

impl Auto {
    /// For a plant, as it is when it begins.
    pub fn new(plant: &Plant) -> Auto {
        let machine = Machine {
            cores: plant.segments[0].cores,
            memory: None,
        };
        let cap = plant.cap;
        Auto {
            controller: Controller::new(Limits { floor: 1, cap }, machine),
            rooms: Rooms::default(),
            counts_memory: plant.memory.is_some(),
            told: None,
            parked: 0,
            soon: 0,
            wanted: Vec::new(),
        }
    }

    /// What it says now.
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
        let room = || self.rooms.workers(POOL, view.alive());
        self.counts_memory.then(room)
    }
}

impl Policy for Auto {
    fn arrived(&mut self, view: &View) {
        self.controller.arrived(self.load(view));
    }

    fn finished(&mut self, _view: &View, spent: Spent) {
        self.controller.finished(spent);
    }

    fn running(&mut self, waits: &mut dyn Iterator<Item = f64>) {
        if self.soon == 0 {
            self.all_busy(waits);
        }
    }

    fn all_busy(&mut self, waits: &mut dyn Iterator<Item = f64>) {
        let after = self.controller.parks_after();
        self.parked = waits.filter(|wait| *wait > after).count();
    }

    fn measures(&mut self, workers: &mut dyn Iterator<Item = (i32, Has)>, ended: u64) {
        if !self.counts_memory || self.soon > 0 && self.rooms.are_known() {
            return;
        }
        let all: Vec<(i32, Has)> = workers.collect();
        let ids: Vec<i32> = all.iter().map(|(id, _)| *id).collect();
        let mut budget = BUDGET;
        for due in self.rooms.due(POOL, (&ids, ended), &mut budget) {
            for (_, has) in all.iter().filter(|(id, _)| *id == due.worker) {
                let most = has.most.filter(|_| due.exactly);
                self.rooms.measured(POOL, due, Has { most, ..*has });
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
        if self.counts_memory && (is_look || !self.rooms.are_known()) {
            let part = view.memory.map(|memory| memory.used / memory.limit);
            let signs = Signs {
                used: part,
                swaps_in: part.is_some_and(|part| part > 1.0),
                ..Signs::default()
            };
            self.rooms
                .look(now, view.memory, &signs, &HashSet::from([POOL]));
            // As the front, which is told when somebody has looked: what goes for pressure goes once.
            self.told = self.room(view);
        }
        self.controller.see(Machine {
            cores: view.cores,
            memory: self.told,
        });
        if is_look {
            let load = self.load(view);
            self.controller.look(now, load);
            self.wanted.push((view.now, self.sizing().workers));
        }
    }

    fn wants(&self, view: &View) -> usize {
        let workers = self.sizing().workers;
        self.room(view).map_or(workers, |room| room.min(workers))
    }

    fn forked(&mut self, workers: usize) {
        self.rooms.promise(POOL, workers);
    }

    fn lets_go(&self, view: &View) -> usize {
        let alive = view.alive();
        alive.saturating_sub(self.sizing().workers).min(view.idle)
    }

    fn is_surplus(&self, view: &View) -> bool {
        view.alive() > self.sizing().workers
    }
}
