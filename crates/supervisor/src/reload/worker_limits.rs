//! How many workers each generation of a pool may have.

use crate::processes::generation;
use crate::processes::pools::PoolId;
use crate::run::Supervisor;

impl Supervisor {
    /// A generation is the one that its pool's requests go to from now on. The worker that a pool
    /// has beside while it moves is not one more to replace.
    pub fn take_place(&mut self, id: PoolId) {
        let (name, own) = (self.name(id), self.pools[id].generation);
        let named = self.pools.iter().filter(|one| {
            one.plan.settings.pool == name && one.generation < own && one.pool.workers() > 0
        });
        let moves = named.clone().any(|one| one.pool.is_leaving());
        let workers: u32 = named.map(|one| one.pool.workers()).sum();
        let before = self.pools.iter();
        let before = before.filter(|one| one.generation < own && one.plan.settings.pool == name);
        let asked_at = before.map(|one| one.pool.asked_at()).max().flatten();
        self.pools[id].pool.was_asked_at(asked_at);
        self.pools[id].replaces = workers.saturating_sub(u32::from(moves));
        self.pools[id].introduced = true;
    }

    /// Tells every generation how many workers the others of its pool leave it: together they have
    /// no more than `max_children` of the newest and the spare ones, and one more while a
    /// generation is on trial.
    pub(super) fn share_out(&mut self) {
        let most = self.share_process_max();
        for id in self.pools.ids() {
            if self.pools[id].pool.is_leaving() {
                continue;
            }
            let name = self.name(id);
            let others = self.pools.named(name).filter(|other| other.id() != id);
            let taken: u32 = others.map(|pool| pool.pool.workers()).sum();
            let seats = self.pools[id].plan.settings.seats;
            let workers = match self.holds_still() {
                true => 0,
                // One that is on trial has to show a worker, and the others may all be busy for long.
                false => seats
                    .min(most.get(name).copied().unwrap_or(u32::MAX))
                    .saturating_sub(taken)
                    .max(u32::from(!self.pools[id].introduced)),
            };
            if self.pools[id].allowed != workers {
                self.pools[id].allowed = workers;
                self.pool_event(id, generation::GenerationEvent::Allowed { workers });
            }
        }
    }
}
