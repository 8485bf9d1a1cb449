//! `--find-capacity`: the highest rate at which a server meets its objective, and its behaviour
//! beyond that.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use maitred_measure::arrivals::{Profile, Spacing};
use maitred_measure::capacity::{CapacitySearch, Shape};
use maitred_measure::clock;
use maitred_measure::plan::{Load, Plan};
use maitred_measure::report::{MAX_LATE_SHARE, Report};
use maitred_measure::slo::Slo;
use maitred_text::humanize;
use serde::Serialize;

use super::bench_error::BenchError;
use super::measured_run::{EXIT_MISSED, EXIT_PARTIAL, measure};
use super::options::Run;
use super::setup;
use crate::exit_code::EXIT_SUCCESS;
use crate::report_file;

/// Multiple of a step's time for which the highest rate has to hold.
const LASTS: f64 = 4.0;

/// How many rates may fail that longer run.
const MAX_SETBACKS: usize = 3;

/// Attempts at a rate at which the load generator, not the server, was late.
const TRIES: usize = 3;

/// Multiple of a step's time that it may take if its percentiles need more requests.
const LONGEST: f64 = 20.0;

/// Factor on the number of requests that a step's percentiles need.
const MORE_SAMPLES: f64 = 1.05;

/// Rates beyond capacity to try, as factors.
const BEYOND: [f64; 2] = [1.2, 1.5];

/// Warm-up at each rate, as a share of the step.
const WARM_UP: f64 = 0.1;

/// The result at one rate.
#[derive(Debug, Clone, Serialize)]
struct RateStep {
    rate: f64,
    seconds: f64,
    holds: bool,
    generator_late: bool,
    served_rate: f64,
    goodput: Option<f64>,
    p50: Option<f64>,
    p99: Option<f64>,
    error_share: f64,
    late_share: f64,
}

impl RateStep {
    fn of(rate: f64, seconds: f64, report: &Report) -> RateStep {
        let requests = &report.requests;
        // Waiting for a connection is the server's slowness; a late generator is not.
        let own = requests.late.saturating_sub(requests.late_for_connections);
        let generator_late = own as f64 > MAX_LATE_SHARE * requests.sent.max(1) as f64;
        RateStep {
            rate,
            seconds,
            holds: !report.partial && report.valid && report.holds(),
            generator_late,
            served_rate: requests.rate,
            goodput: requests.goodput,
            p50: report.corrected.p50,
            p99: report.corrected.p99,
            error_share: requests.error_share,
            late_share: requests.late_share,
        }
    }
}

/// The result as JSON.
#[derive(Debug, Serialize)]
struct CapacityReport {
    schema: &'static str,
    objective: String,
    capacity: Option<f64>,
    cliff: Option<f64>,
    shape: Option<&'static str>,
    steps: Vec<RateStep>,
}

/// Tries rates.
struct RateProber<'a> {
    plan: Arc<Plan>,
    slo: Slo,
    stop: &'a Arc<AtomicBool>,
    step: f64,
    quiet: bool,
    steps: Vec<RateStep>,
}

/// Finds the capacity, and prints it.
///
/// # Errors
/// One sentence.
pub fn find(run: &Run, objective: &str, stop: &Arc<AtomicBool>) -> Result<u8, BenchError> {
    let output = &run.output;
    let page = output.html.is_some() || output.csv.is_some();
    if page || output.slo.is_some() || output.watch.is_some() {
        return Err(
            "--find-capacity makes many runs: --html, --csv, --slo and --watch are for one; \
                    --json lists its steps"
                .to_owned()
                .into(),
        );
    }
    output.check_files()?;
    let slo = Slo::read(objective)?;
    let plan = setup::plan(run)?;
    let Load::Open { profile, .. } = &plan.load else {
        return Err("--find-capacity needs an open loop: give --rate, not --users"
            .to_owned()
            .into());
    };
    let mut search = CapacitySearch::new(profile.peak());
    let step = humanize::parse_duration(&run.load.step)?;
    let mut prober = RateProber {
        plan: plan.clone(),
        slo,
        stop,
        step,
        quiet: output.json.is_stdout(),
        steps: Vec::new(),
    };
    prober.say(&heading(&plan, objective));
    let mut setbacks = 0;
    loop {
        while let Some(rate) = search.next() {
            search.tried(prober.holds(rate, step)?);
        }
        let Some(highest) = search.highest() else {
            break;
        };
        if prober.holds(highest, step * LASTS)? || setbacks == MAX_SETBACKS {
            break;
        }
        setbacks += 1;
        search.did_not_last();
    }
    let found = prober.sum_up(objective, search.highest())?;
    let partial = stop.load(Ordering::Relaxed);
    let json = serde_json::to_string_pretty(&found).map_err(|why| why.to_string())?;
    if output.json.is_stdout() {
        let _ = writeln!(io::stdout(), "{json}");
    } else {
        let _ = writeln!(io::stdout(), "{}", conclusion(&found));
        if let Some(file) = output.json.file() {
            report_file::write(file, &json).map_err(BenchError::Now)?;
        }
    }
    Ok(match found.capacity {
        _ if partial => EXIT_PARTIAL,
        Some(_) => EXIT_SUCCESS,
        None => EXIT_MISSED,
    })
}

impl RateProber<'_> {
    /// Whether the objective holds at a rate. An interrupted run fails; a run whose generator was
    /// late is repeated.
    fn holds(&mut self, rate: f64, seconds: f64) -> Result<bool, BenchError> {
        let needed = self.slo.samples() * MORE_SAMPLES / rate;
        let seconds = seconds.max(needed.min(seconds * LONGEST));
        for _ in 0..TRIES {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let report = self.measure(rate, seconds)?;
            let step = RateStep::of(rate, seconds, &report);
            self.say(&row(&step));
            let (holds, again) = (step.holds, step.generator_late);
            self.steps.push(step);
            if !again {
                return Ok(holds);
            }
        }
        Ok(false)
    }

    fn measure(&self, rate: f64, seconds: f64) -> Result<Report, BenchError> {
        let mut plan = Plan::clone(&self.plan);
        let warm_up = seconds * WARM_UP;
        let connections = match &plan.load {
            Load::Open { connections, .. } => *connections,
            _ => 1,
        };
        plan.load = Load::Open {
            profile: Profile::constant(rate, seconds),
            spacing: match &self.plan.load {
                Load::Open { spacing, .. } => *spacing,
                _ => Spacing::Even,
            },
            connections,
        };
        plan.warm_up = clock::nanos(warm_up);
        plan.duration = clock::nanos(seconds + warm_up);
        measure(&Arc::new(plan), &self.slo, self.stop)
    }

    /// Tries rates beyond the capacity, and summarises.
    fn sum_up(
        &mut self,
        objective: &str,
        highest: Option<f64>,
    ) -> Result<CapacityReport, BenchError> {
        let mut shape = None;
        if let Some(highest) = highest {
            let good = |step: &RateStep| step.goodput.unwrap_or(step.served_rate);
            let held = self.steps.iter().rfind(|step| step.holds && step.rate == highest);
            let at_capacity = held.map(good);
            let before = self.steps.len();
            for factor in BEYOND {
                self.holds(highest * factor, self.step)?;
            }
            let least = self.steps[before..].iter().map(good).reduce(f64::min);
            shape = at_capacity.zip(least).map(|(at, beyond)| Shape::of(at, beyond).words());
        }
        let failed = self.steps.iter().filter(|step| !step.holds).map(|step| step.rate);
        let above = failed.filter(|rate| highest.is_none_or(|highest| *rate > highest));
        Ok(CapacityReport {
            schema: "maitred-bench-capacity/1",
            objective: objective.to_owned(),
            capacity: highest,
            cliff: above.reduce(f64::min),
            shape,
            steps: std::mem::take(&mut self.steps),
        })
    }

    fn say(&self, line: &str) {
        if !self.quiet {
            let _ = writeln!(io::stdout(), "{line}");
        }
    }
}

fn heading(plan: &Plan, objective: &str) -> String {
    let url = plan.requests.first().map(|first| first.spec.url.to_string());
    format!(
        "maitred bench {}: the highest rate with {objective}\n\n\
         {:>12}{:>10}{:>12}{:>10}{:>10}{:>9}{:>8}",
        url.unwrap_or_default(),
        "RATE",
        "FOR",
        "SERVED",
        "p50",
        "p99",
        "ERRORS",
        "LATE",
    )
}

fn row(step: &RateStep) -> String {
    let latency = |found: Option<f64>| found.map_or("n/a".to_owned(), humanize::duration);
    format!(
        "{:>10}/s{:>10}{:>10}/s{:>10}{:>10}{:>7.2} %{:>6.1} %  {}",
        humanize::digits(step.rate),
        humanize::duration(step.seconds),
        humanize::digits(step.served_rate),
        latency(step.p50),
        latency(step.p99),
        step.error_share * 100.0,
        step.late_share * 100.0,
        match step {
            RateStep { generator_late: true, .. } => "invalid: the generator was late",
            RateStep { holds: true, .. } => "holds",
            _ => "does not hold",
        },
    )
}

fn conclusion(found: &CapacityReport) -> String {
    let Some(capacity) = found.capacity else {
        return format!("\n{} holds at none of the tried rates", found.objective);
    };
    let cliff = found
        .cliff
        .map_or(String::new(), |cliff| format!("; at {}/s it does not", humanize::digits(cliff)));
    let shape = found.shape.unwrap_or("unknown");
    format!(
        "\n{} holds up to {}/s{cliff}\nbeyond it: {shape}",
        found.objective,
        humanize::digits(capacity)
    )
}
