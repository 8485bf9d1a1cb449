//! `pm = auto`: the very controller of the server.

use std::time::Duration;

use maitred_sizing::memory::Room;
use maitred_sizing::{Controller, Limits, Load, Machine, Sizing, Spent};

use super::{Policy, Seen, View};
use crate::plant::Plant;
use crate::world::seen;

/// Ours.
#[derive(Debug)]
pub struct Auto {
    controller: Controller,
    parked: usize,
}

impl Auto {
    /// For a plant, as it is when it begins.
    pub fn new(plant: &Plant) -> Auto {
        let machine = Machine {
            cores: plant.segments[0].cores,
            memory: seen(plant, 0.0, 0.0).and_then(room),
        };
        let cap = plant.cap;
        Auto {
            controller: Controller::new(Limits { floor: 1, cap }, machine),
            parked: 0,
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
}

/// How many workers there is memory for, all of them busy.
fn room(seen: Seen) -> Option<usize> {
    let room = Room {
        limit: seen.limit,
        base: seen.base,
        worker: seen.worker,
        peak: seen.peak,
        peak_most: seen.peak_most,
        peak_deviation: seen.peak_deviation,
    };
    room.workers(1.0)
}

impl Policy for Auto {
    fn arrived(&mut self, view: &View) {
        self.controller.arrived(self.load(view));
    }

    fn finished(&mut self, _view: &View, spent: Spent) {
        self.controller.finished(spent);
    }

    fn running(&mut self, ages: &mut dyn Iterator<Item = f64>) {
        let after = self.controller.parks_after();
        self.parked = ages.filter(|age| *age > after).count();
    }

    fn tick(&mut self, view: &View) {
        self.controller.see(Machine {
            cores: view.cores,
            memory: view.memory.and_then(room),
        });
        let load = self.load(view);
        self.controller
            .look(Duration::from_secs_f64(view.now), load);
    }

    fn wants(&self, _view: &View) -> usize {
        self.sizing().workers
    }

    fn lets_go(&self, view: &View) -> usize {
        let alive = view.alive();
        alive.saturating_sub(self.sizing().workers).min(view.idle)
    }

    fn is_surplus(&self, view: &View) -> bool {
        view.alive() > self.sizing().workers
    }
}
