//! A request's way to an answer, and what is said when there is none.
//!
//! A script is never run twice for one request: nobody but its worker knows what it had done when it
//! died, and a GET that counts, sends or charges is no rarity in PHP, whatever RFC 9110 §9.2.2 hopes. What a
//! dead worker had not begun has gone to another by then (`pool/generations.rs` `recover`).

use std::time::{Duration, Instant};

use crate::backend::encoder::ResponseEncoder;
use crate::backend::error::Failure;
use crate::backend::progress::Sent;
use crate::backend::run::Run;
use crate::http::client::Client;

/// Longest time in seconds that a refused client is told to wait: nobody knows what will be then.
const MOST_RETRY_AFTER: u64 = 30;

/// What became of a request.
pub struct Tried {
    /// Whether there was a complete answer.
    pub outcome: Result<(), Failure>,
    /// How it went.
    pub sent: Sent,
    /// When it began.
    pub begun: Instant,
    /// After how many seconds a refused client may come again, if it was refused.
    pub retry_after: Option<u64>,
}

/// Runs a script, and says why if there is no answer.
pub async fn attempt<C: Client>(
    client: &mut C,
    form: &mut impl ResponseEncoder<Head = C::Head>,
    thread: u32,
    run: &Run<'_>,
    request: Vec<u8>,
) -> Tried {
    let begun = Instant::now();
    let mut sent = Sent::default();
    let outcome = run
        .run(client, form, (thread, begun), request, &mut sent)
        .await;
    conclude(run, thread, (outcome, sent), begun)
}

/// What becomes of a request whose pool is certain to turn it away: its records need not be written. Nothing
/// if it may have a worker, and has to ask for one ([`attempt`]).
pub fn turned_away(thread: u32, run: &Run<'_>) -> Option<Tried> {
    let failure = run.is_turned_away()?;
    let begun = Instant::now();
    let nothing = Sent::default();
    Some(conclude(run, thread, (Err(failure), nothing), begun))
}

/// Counts what came of a request, and says why if there is no answer.
fn conclude(
    run: &Run<'_>,
    thread: u32,
    (outcome, sent): (Result<(), Failure>, Sent),
    begun: Instant,
) -> Tried {
    crate::backend::accounting::count(run, thread, &outcome, &sent, begun);
    let mut again = None;
    if let Err(failure) = &outcome {
        let waited = begun.elapsed();
        tell(run, failure, waited);
        let is_refused = explain(failure).0 == 503;
        again =
            is_refused.then(|| retry_after(run.backend.takes(failure, &sent).unwrap_or(waited)));
    }
    Tried {
        outcome,
        sent,
        begun,
        retry_after: again,
    }
}

/// Logs why there is no answer.
fn tell(run: &Run<'_>, failure: &Failure, took: Duration) {
    let (status, why) = explain(failure);
    let bytes = run.body.len();
    let (backend, script) = (run.backend, run.script);
    let (method, target) = run.asked;
    let concerned = run.concerned();
    match failure {
        Failure::Intercepted(_) | Failure::FileNamed => {}
        Failure::ClientLeft | Failure::LeftQueue => {
            tracing::debug!("{backend}: {script}: {why} ({method} {target}){concerned}");
        }
        Failure::QueueFull
        | Failure::QueueTimeout
        | Failure::Hopeless
        | Failure::Passed
        | Failure::Deadline
        | Failure::NoPool => {
            let words = || {
                let after = format!("{status} after {:.3} s", took.as_secs_f64());
                format!("{script}: {after}: {why} ({method} {target}, {bytes} bytes){concerned}")
            };
            tracing::debug!("{}: {}", run.backend, words());
            run.backend.refused(failure, words);
        }
        Failure::Body(error) => run.backend.log(&format_args!(
            "{script}: {status}: {why} {error} ({method} {target}){concerned}"
        )),
        Failure::Invalid(detail) | Failure::Unreachable(detail) => {
            run.backend.log(&format_args!(
                "{script}: {status}: {why} {detail} ({method} {target}){concerned}"
            ));
        }
        _ => run.backend.log(&format_args!(
            "{script}: {status} after {:.3} s: {why} ({method} {target}, {bytes} bytes){concerned}",
            took.as_secs_f64()
        )),
    }
}

/// Which status each failure gets, and the sentence that goes with it.
pub fn explain(failure: &Failure) -> (u16, &'static str) {
    match failure {
        Failure::QueueFull => (503, "All workers are busy and the queue is full."),
        Failure::NoPool => (
            503,
            "The pool of this site has no workers and will not get any.",
        ),
        Failure::QueueTimeout => (503, "No worker became free in time."),
        Failure::Hopeless => (503, "More requests wait than can be answered in time."),
        Failure::Passed => (503, "More requests come than can be answered."),
        Failure::Deadline => (503, "There is no worker for it in the time it was given."),
        Failure::LeftQueue => (499, "The client left before its script began."),
        Failure::ClientLeft => (499, "The client left."),
        Failure::Terminated => (504, "The script ran longer than request_terminate_timeout."),
        Failure::WorkerDied => (502, "The worker died while it ran the script."),
        Failure::Invalid(_) => (502, "The script's answer is not valid."),
        Failure::Unreachable(_) => (502, "The upstream server cannot be reached."),
        Failure::Silent => (504, "The upstream server said nothing for too long."),
        Failure::Intercepted(status) => (*status, "The script answered with an error."),
        Failure::FileNamed => (200, "The script has named a file."),
        Failure::Body(_) => (500, "The request's body could not be read back from disk."),
    }
}

/// How long a refused client should wait before it tries again, in whole seconds: as long as its
/// request would take if it came now. Up to half as much is added by chance, so that not all come
/// again at once.
fn retry_after(takes: Duration) -> u64 {
    let seconds = takes.as_secs_f64() * (1.0 + fastrand::f64() / 2.0);
    (seconds.ceil() as u64).clamp(1, MOST_RETRY_AFTER)
}
