//! Counts the outcome and the times of a request on its pool's scoreboard.

use std::sync::Arc;
use std::time::{Duration, Instant};

use maitred_scoreboard::{RequestOutcome, Took};
use maitred_seat::Spent;

use crate::backend::Backend;
use crate::backend::error::Failure;
use crate::backend::progress::Sent;
use crate::backend::run::Run;
use crate::pool::exchange::Exchange;
use crate::pool::metrics::Tally;

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
pub(crate) fn observe_later(
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

pub(crate) fn took(waited: Duration, script: Option<Duration>, spent: Option<Spent>) -> Took {
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

pub(crate) fn name(outcome: &Result<(), Failure>) -> RequestOutcome {
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
