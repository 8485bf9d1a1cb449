//! A run of the load generator, and its exit codes.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use maitred_measure::generate::{self, Progress};
use maitred_measure::plan::Plan;
use maitred_measure::report::Report;
use maitred_measure::slo::Slo;

use super::bench_error::BenchError;
use super::live::Live;

/// Too many requests were sent late: the results are not reliable.
pub const EXIT_INVALID: u8 = 3;

/// `--slo` is missed.
pub const EXIT_MISSED: u8 = 4;

/// The run was interrupted; the exit code of a shell for SIGINT.
pub const EXIT_PARTIAL: u8 = 130;

/// Measures, with live progress on the terminal.
///
/// # Errors
/// If the load generator cannot run.
pub fn measure(plan: &Arc<Plan>, slo: &Slo, stop: &Arc<AtomicBool>) -> Result<Report, BenchError> {
    let url = plan.requests.first().map(|first| first.spec.url.to_string());
    let mut live = Live::new(&url.unwrap_or_default());
    let mut watch = |progress: &Progress<'_>| live.show(progress);
    let measured = generate::run(plan, stop, &mut watch).map_err(BenchError::Now)?;
    drop(live);
    Ok(Report::of(plan, &measured, slo))
}
