//! One attempt to get a response from a script: runs it, counts the outcome, and logs a failure.
//!
//! A script never runs twice for one request: only its worker knows what it had done when it died,
//! and a GET that counts, sends or charges is no rarity in PHP, whatever RFC 9110 §9.2.2 hopes. A
//! request that a dead worker had not begun went to another by then (`pool/generations.rs`
//! `recover`).

use std::time::Duration;

use maitred_scoreboard::{LogLevel, RequestOutcome};

use crate::backend::accounting;
use crate::backend::encoder::ResponseEncoder;
use crate::backend::error::Failure;
use crate::backend::progress::ScriptProgress;
use crate::backend::run::Run;
use crate::http::client::Client;
use crate::logging::script_messages::printable;

/// Longest `Retry-After`, in seconds: the load after that is unknown.
const MAX_RETRY_AFTER: u64 = 30;

/// The result of an attempt.
pub struct Attempt {
    /// Whether the response was complete.
    pub outcome: Result<(), Failure>,
    /// Its times.
    pub progress: ScriptProgress,
    /// `Retry-After` in seconds, if the request was rejected.
    pub retry_after: Option<u64>,
}

/// Runs a script.
pub async fn attempt<C: Client>(
    client: &mut C,
    encoder: &mut impl ResponseEncoder<Head = C::Head>,
    thread: u32,
    run: &Run<'_>,
    request: Vec<u8>,
) -> Attempt {
    let mut progress = ScriptProgress::new();
    let outcome = run.run(client, encoder, thread, request, &mut progress).await;
    conclude(run, thread, outcome, progress)
}

/// The rejection of a request, if the pool is certain to reject it: then its records need not be
/// encoded. None if it may get a worker ([`attempt`]).
pub fn reject_early(thread: u32, run: &Run<'_>) -> Option<Attempt> {
    let rejection = run.would_be_rejected()?;
    let progress = ScriptProgress::new();
    Some(conclude(run, thread, Err(rejection.into()), progress))
}

/// Counts the outcome, and logs a failure.
fn conclude(
    run: &Run<'_>,
    thread: u32,
    result: Result<(), Failure>,
    progress: ScriptProgress,
) -> Attempt {
    let failure = result.as_ref().err();
    let outcome = failure.map_or(RequestOutcome::Responded, Failure::outcome);
    accounting::count(run, thread, outcome, &progress);
    let mut retry_after = None;
    if let Some(Failure::Ended { outcome, detail }) = failure {
        let took = progress.began.elapsed();
        log_failure(run, *outcome, detail, took);
        if outcome.is_rejection() {
            let estimate = run.backend.response_estimate(*outcome, &progress);
            retry_after = Some(retry_seconds(estimate.unwrap_or(took)));
        }
    }
    Attempt { outcome: result, progress, retry_after }
}

/// Logs why there is no complete response.
fn log_failure(run: &Run<'_>, outcome: RequestOutcome, detail: &str, took: Duration) {
    let line = || {
        let (script, method, target) = (run.script, run.method, run.target);
        let (status, why, bytes) = (outcome.status(), outcome.sentence(), run.body.len());
        let (seconds, suffix) = (took.as_secs_f64(), run.log_suffix());
        // A web server in front sends decoded paths, which may have line ends and escapes in them.
        printable(&format!(
            "{script}: {status} after {seconds:.3} s: {why}{detail} \
             ({method} {target}, {bytes} bytes){suffix}"
        ))
    };
    match outcome.log_level() {
        LogLevel::Silent => {}
        LogLevel::Debug => tracing::debug!("{}: {}", run.backend, line()),
        LogLevel::Summary => {
            tracing::debug!("{}: {}", run.backend, line());
            run.backend.note_rejection(outcome, line);
        }
        LogLevel::Error => {
            let line = line();
            run.lines.add(|| line.clone());
            run.backend.log(&line);
        }
    }
}

/// `Retry-After` in whole seconds: the time until a response to the same request, if it arrived
/// now. A random half is added, so that rejected clients do not return all at once.
fn retry_seconds(estimate: Duration) -> u64 {
    let seconds = estimate.as_secs_f64() * (1.0 + fastrand::f64() / 2.0);
    (seconds.ceil() as u64).clamp(1, MAX_RETRY_AFTER)
}
