//! What copies of booted applications have counted of themselves, on the scoreboards of their pools.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use maitred_scoreboard::CopiesTold;
use maitred_seat::Boards;

use crate::limits::WORKER_SPAWN;
use crate::processes::pools::PoolId;
use crate::processes::running_pool::RunningPool;
use crate::run::Supervisor;

/// Most that is believed of a counter between two looks: it is the word of processes that run scripts.
const BELIEVED: u64 = 1 << 32;

impl RunningPool {
    /// What its copies have counted so far, all together.
    pub fn told_by_copies(&self) -> CopiesTold {
        let mut all = CopiesTold::default();
        // Mapped for the moment only: a pool's memory is large, and this is rarely asked for.
        let Ok(boards) = Boards::map(&self.plan.memory) else {
            return self.told;
        };
        let seats = 0..self.plan.settings.seats;
        for words in seats.filter_map(|seat| Some(&boards.seat(seat)?.copies)) {
            let add = |sum: &mut u64, word: &AtomicU64| {
                *sum = sum.saturating_add(word.load(Relaxed));
            };
            add(&mut all.went_back, &words.went_back);
            add(&mut all.pages, &words.pages);
            add(&mut all.measured, &words.measured);
            for (sum, word) in all.stayed.iter_mut().zip(&words.stayed) {
                add(sum, word);
            }
        }
        all
    }
}

impl Supervisor {
    /// A copy was forked in this time, as its zygote says.
    pub fn copy_forked(&self, id: PoolId, took: Duration) {
        if let Some(page) = self.scores.page(self.name(id))
            && self.pools[id].boots()
        {
            page.workers().forked(took.min(WORKER_SPAWN));
        }
    }

    /// Copies of this generation serve, or workers that are no copies.
    pub fn show_whose_copies(&self, id: PoolId) {
        if let Some(page) = self.scores.page(self.name(id)) {
            let running = &self.pools[id];
            page.workers().copies_of(match running.boots() {
                true => running.generation,
                false => 0,
            });
        }
    }

    /// Shows what the copies of a generation have counted since this was done last.
    pub fn show_copies(&mut self, id: PoolId) {
        if !self.pools[id].boots() {
            return;
        }
        let now = self.pools[id].told_by_copies();
        let before = std::mem::replace(&mut self.pools[id].told, now);
        let more = |now: u64, before: u64| now.saturating_sub(before).min(BELIEVED);
        let more = CopiesTold {
            went_back: more(now.went_back, before.went_back),
            stayed: std::array::from_fn(|reason| more(now.stayed[reason], before.stayed[reason])),
            pages: more(now.pages, before.pages),
            measured: more(now.measured, before.measured),
        };
        if let Some(page) = self.scores.page(self.name(id)) {
            page.workers().copies_told(more);
        }
    }
}
