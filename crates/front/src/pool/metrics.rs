//! Counting a pool's requests: how each ended, how long it waited, how long its script took.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use maitred_scoreboard::{Page, QueueShare, Took};

use crate::pool::route_metrics::RouteClasses;

/// Where a pool's requests are counted.
#[derive(Debug)]
pub struct PoolMetrics {
    pub(crate) page: Page,
    share: QueueShare,
    /// How long requests took, by what their paths have in common.
    pub classes: RouteClasses,
}

impl PoolMetrics {
    /// Maps the pool's scoreboard for front number `epoch`.
    ///
    /// # Errors
    /// When it is none.
    pub fn open(scoreboard: OwnedFd, epoch: u32) -> io::Result<PoolMetrics> {
        let (page, share) = (Page::open(scoreboard)?, QueueShare::new(epoch));
        let classes = RouteClasses::new(page.threads());
        Ok(PoolMetrics {
            page,
            share,
            classes,
        })
    }

    /// The scoreboard.
    pub fn page(&self) -> &Page {
        &self.page
    }

    /// So many requests wait, and so many workers run one. The caller holds the pool's lock.
    pub fn show(&self, waiting: usize, busy: usize) {
        let short = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        self.share.show(&self.page, short(waiting), short(busy));
    }

    /// A request for `target` has taken this. Called on that thread.
    pub(crate) fn observe(&self, thread: u32, target: &str, took: &Took) {
        let board = self.page.thread(thread);
        board.observe(took, maitred_scoreboard::now());
        self.classes.count(thread, target, took);
    }

    /// For so long newer requests came before older ones.
    pub fn newest_first(&self, time: Duration) {
        self.page.newest_first(time);
    }

    /// A request found all workers busy that there may be.
    pub fn limit_reached(&self) {
        self.page.limit_reached();
    }
}
