//! Counters of the copies of a booted application, added up on the scoreboard of their pool.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use maitred_scoreboard::CopyCounters;
use maitred_seat::Boards;

use crate::limits::WORKER_SPAWN;
use crate::processes::running_pool::RunningPool;
use crate::processes::scoreboards::Scoreboards;

/// Largest plausible increase of a counter between two reads: processes that run scripts write
/// them.
const PLAUSIBLE: u64 = 1 << 32;

impl RunningPool {
    /// The sum of what its copies have counted so far.
    pub fn copy_counters(&self) -> CopyCounters {
        let mut all = CopyCounters::default();
        // Mapped only now: a pool's memory is large, and this is rarely needed.
        let Ok(boards) = Boards::map(&self.plan.memory) else {
            return self.copies_shown;
        };
        let seats = 0..self.plan.settings.seats;
        for words in seats.filter_map(|seat| Some(&boards.seat(seat)?.copies)) {
            let add = |sum: &mut u64, word: &AtomicU64| {
                *sum = sum.saturating_add(word.load(Relaxed));
            };
            add(&mut all.rewound, &words.went_back);
            add(&mut all.pages, &words.pages);
            add(&mut all.measured, &words.measured);
            for (sum, word) in all.not_rewound.iter_mut().zip(&words.stayed) {
                add(sum, word);
            }
        }
        all
    }

    /// Counts a fork of a copy, whose duration the zygote has reported.
    pub fn count_fork(&self, scoreboards: &Scoreboards, took: Duration) {
        if let Some(page) = scoreboards.page(self.name())
            && self.boots()
        {
            page.workers().forked(took.min(WORKER_SPAWN));
        }
    }

    /// Shows that copies of this generation serve, or workers that are no copies.
    pub fn show_copied_generation(&self, scoreboards: &Scoreboards) {
        if let Some(page) = scoreboards.page(self.name()) {
            let generation = if self.boots() { self.generation } else { 0 };
            page.workers().copies_of(generation);
        }
    }

    /// Adds to the scoreboard what its copies have counted since this was called last.
    pub fn show_copy_counters(&mut self, scoreboards: &Scoreboards) {
        if !self.boots() {
            return;
        }
        let now = self.copy_counters();
        let before = std::mem::replace(&mut self.copies_shown, now);
        let more = |now: u64, before: u64| now.saturating_sub(before).min(PLAUSIBLE);
        let more = CopyCounters {
            rewound: more(now.rewound, before.rewound),
            not_rewound: std::array::from_fn(|reason| {
                more(now.not_rewound[reason], before.not_rewound[reason])
            }),
            pages: more(now.pages, before.pages),
            measured: more(now.measured, before.measured),
        };
        if let Some(page) = scoreboards.page(self.name()) {
            page.workers().copies_counted(more);
        }
    }
}
