//! Counting a pool's requests: how each ended, how long it waited, how long its script took.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use maitred_scoreboard::{Page, QueueShare, RequestOutcome, Took};
use maitred_seat::Spent;

use crate::backend::Backend;
use crate::backend::run::{Failure, Run, Sent};
use crate::pool::exchange::Exchange;
use crate::pool::route_metrics::Classes;

/// Where a pool's requests are counted.
#[derive(Debug)]
pub struct Tally {
    page: Page,
    share: QueueShare,
    /// How long requests took, by what their paths have in common.
    pub classes: Classes,
}

impl Tally {
    /// Maps the pool's scoreboard for front number `epoch`.
    ///
    /// # Errors
    /// When it is none.
    pub fn open(scoreboard: OwnedFd, epoch: u32) -> io::Result<Tally> {
        let (page, share) = (Page::open(scoreboard)?, QueueShare::new(epoch));
        let classes = Classes::new(page.threads());
        Ok(Tally {
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
    fn observe(&self, thread: u32, target: &str, took: &Took) {
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

/// Counts what became of a request that began at `begun`, on a thread of the front.
pub fn count(
    run: &Run<'_>,
    thread: u32,
    outcome: &Result<(), Failure>,
    sent: &Sent,
    begun: Instant,
) {
    let Backend::Pool(pool) = run.backend else {
        return;
    };
    let Some(tally) = pool.tally() else { return };
    tally.page.thread(thread).count(name(outcome));
    let waited = match outcome {
        Err(Failure::QueueTimeout | Failure::LeftQueue | Failure::Passed | Failure::Deadline) => {
            Some(begun.elapsed())
        }
        _ => sent.queued,
    };
    let Some(waited) = waited else { return };
    match &sent.going_on {
        None => tally.observe(thread, run.asked.1, &took(waited, sent.script, sent.spent)),
        Some(exchange) => {
            let until_then = (waited, sent.script, sent.spent);
            observe_later(exchange, tally, (thread, run.asked.1), until_then);
        }
    }
}

/// What a script does after its answer is its request's, too: it is counted when all of it is known.
fn observe_later(
    exchange: &Exchange,
    tally: &Arc<Tally>,
    (thread, target): (u32, &str),
    (waited, script, spent): (Duration, Option<Duration>, Option<Spent>),
) {
    let (tally, target, ends) = (tally.clone(), target.to_owned(), exchange.at_end());
    crate::runtime::background::write(async move {
        let took = match ends.await {
            Ok(Some(all)) => took(waited, Some(all.held), Some(all)),
            // Its worker died: what was known then is all that is.
            Ok(None) | Err(_) => took(waited, script, spent),
        };
        tally.observe(thread, &target, &took);
    });
}

fn took(waited: Duration, script: Option<Duration>, spent: Option<Spent>) -> Took {
    let mut took = Took {
        waited,
        script,
        ..Took::default()
    };
    if let Some(spent) = &spent {
        (took.cpu, took.children) = (Some(spent.cpu), spent.children);
        (took.core_wait, took.blocked) = (spent.core_wait, spent.blocked());
        took.peak_memory = spent.peak_memory;
    }
    took
}

fn name(outcome: &Result<(), Failure>) -> RequestOutcome {
    match outcome {
        // A page or a file takes the place of an answer that came.
        Ok(()) | Err(Failure::Intercepted(_) | Failure::FileNamed) => RequestOutcome::Responded,
        Err(Failure::QueueFull) => RequestOutcome::QueueFull,
        Err(Failure::NoPool) => RequestOutcome::NoPool,
        Err(Failure::QueueTimeout) => RequestOutcome::QueueTimeout,
        Err(Failure::Hopeless) => RequestOutcome::WaitTooLong,
        Err(Failure::Passed) => RequestOutcome::Shed,
        Err(Failure::Deadline) => RequestOutcome::Deadline,
        Err(Failure::LeftQueue) => RequestOutcome::LeftQueue,
        Err(Failure::ClientLeft) => RequestOutcome::ClientLeft,
        Err(Failure::Terminated) => RequestOutcome::Terminated,
        Err(Failure::WorkerDied) => RequestOutcome::WorkerDied,
        // The last two are those of a foreign server, which no pool has.
        Err(Failure::Invalid(_) | Failure::Unreachable(_) | Failure::Silent) => {
            RequestOutcome::InvalidResponse
        }
        Err(Failure::Body(_)) => RequestOutcome::BodyLost,
    }
}
