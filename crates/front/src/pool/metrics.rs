//! A pool's metrics: outcomes, waiting times and script times of its requests.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use maitred_scoreboard::{ApplicationMemory, Counter, Page, QueueShare, RequestTimes};

use crate::pool::route_metrics::RouteClasses;

/// A pool's metrics.
#[derive(Debug)]
pub struct PoolMetrics {
    pub(crate) page: Page,
    share: QueueShare,
    /// Times by route.
    pub classes: RouteClasses,
    /// What the application counts, in the newest generation.
    pub application: ArcSwapOption<ApplicationMemory>,
}

impl PoolMetrics {
    /// Maps the pool's scoreboard for front number `epoch`.
    ///
    /// # Errors
    /// The descriptor is not a scoreboard.
    pub fn open(scoreboard: OwnedFd, epoch: u32) -> io::Result<PoolMetrics> {
        let (page, share) = (Page::open(scoreboard)?, QueueShare::new(epoch));
        let classes = RouteClasses::new(page.threads());
        Ok(PoolMetrics { page, share, classes, application: ArcSwapOption::empty() })
    }

    /// The scoreboard.
    pub fn page(&self) -> &Page {
        &self.page
    }

    /// Shows the number of waiting requests and busy workers. The caller holds the pool's lock.
    pub fn show(&self, waiting: usize, busy: usize) {
        let short = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        self.share.show(&self.page, short(waiting), short(busy));
    }

    /// Counts the times of a request for `target`. Call it on that thread.
    pub(crate) fn observe(&self, thread: u32, target: &str, took: &RequestTimes) {
        let board = self.page.thread(thread);
        board.observe(took, maitred_scoreboard::now());
        self.classes.count(thread, target, took);
    }

    /// Adds an event.
    pub fn add(&self, counter: Counter) {
        self.page.add(counter);
    }

    /// Adds a time.
    pub fn add_time(&self, counter: Counter, time: Duration) {
        self.page.add_time(counter, time);
    }
}
