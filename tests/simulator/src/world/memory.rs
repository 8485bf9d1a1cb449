//! The memory that workers have.

use maitred_sizing::sources::Memory;

use super::{Stage, World};

impl World<'_> {
    /// What its workers have, in bytes.
    pub(super) fn taken(&self) -> f64 {
        self.privates + self.peaks
    }

    pub(super) fn seen(&self) -> Option<Memory> {
        self.plant.memory.map(|memory| Memory {
            limit: memory.limit,
            used: memory.base + self.taken() + self.others,
            by_group: true,
        })
    }

    /// A worker has grown: it leaves its place to another when it has nothing to do.
    pub(super) fn wear_out(&mut self, id: Option<i32>) {
        let mut all = self.workers.iter().enumerate();
        let worn = all.find(|(_, worker)| Some(worker.id) == id && worker.is_alive());
        let Some((place, worker)) = worn.map(|(place, worker)| (place, *worker)) else {
            return;
        };
        self.workers[place].is_worn = true;
        if let Stage::Idle { .. } = worker.stage {
            self.idle.retain(|idle| *idle != place);
            self.leave(place);
        }
    }

    /// By which part of what there is memory is taken beyond it.
    pub(super) fn overcommit(&self) -> f64 {
        self.plant.memory.map_or(0.0, |memory| {
            let used = memory.base + self.taken() + self.others;
            ((used - memory.limit) / memory.limit).max(0.0)
        })
    }

    /// What is swapped out makes everybody slower.
    pub(super) fn press(&mut self) {
        if let Some(memory) = self.plant.memory {
            let slowness = 1.0 + memory.swap_drag * 100.0 * self.overcommit();
            self.cores.slow_down(slowness);
        }
    }
}
