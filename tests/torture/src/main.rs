//! `maitred-torture`: injects faults into a server under load, and ends with 1 if an invariant is
//! violated.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use maitred_torture::campaign::Campaign;
use maitred_torture::namespace;
use maitred_torture::plan::{FAULTS, Fault};

/// Injects faults into a server under load.
#[derive(Debug, Parser)]
#[command(name = "torture")]
struct Options {
    /// How long, in minutes.
    #[arg(long, default_value_t = 10.0, value_name = "MINUTES")]
    minutes: f64,
    /// Chooses the faults and their order; without, one of the clock.
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// These faults only, with commas between them.
    #[arg(long, value_delimiter = ',', value_parser = fault, value_name = "FAULTS")]
    only: Vec<Fault>,
    /// The nodes pass purges on without Redis.
    #[arg(long)]
    peers: bool,
    /// Lists the faults.
    #[arg(long)]
    list: bool,
}

fn fault(name: &str) -> Result<Fault, String> {
    let found = FAULTS.into_iter().find(|fault| fault.name() == name);
    found.ok_or_else(|| format!("no fault has the name `{name}`; --list has the names"))
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.list {
        FAULTS.iter().for_each(|fault| println!("{}", fault.name()));
        return ExitCode::SUCCESS;
    }
    namespace::enter();
    let of_the_clock =
        || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let seed = options.seed.unwrap_or_else(of_the_clock);
    let faults = if options.only.is_empty() { FAULTS.to_vec() } else { options.only };
    let lasts = Duration::from_secs_f64(options.minutes.max(0.0) * 60.0);
    println!("torture: seed {seed}");
    let report = Campaign { seed, lasts, faults, are_peers: options.peers }.run();
    report.print();
    let violations = report.shared.violations();
    println!(
        "torture: {}: {} faults with seed {seed}, violations: {}",
        if violations == 0 { "OK" } else { "FAILED" },
        report.steps,
        violations
    );
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
