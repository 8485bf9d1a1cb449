//! `maitred bench`: a load test, its report, and an exit code for it.

mod bench_error;
mod capacity;
mod compare;
mod live;
mod measured_run;
pub mod options;
mod presets;
mod setup;
mod watch;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use maitred_measure::other_tools::{self, Tool};
use maitred_measure::report::Report;
use maitred_measure::slo::Slo;
use maitred_measure::{html, series, text};
use maitred_os::signals::{Awaited, Signal};

use crate::exit_code::{EXIT_SUCCESS, complain, fail, refuse};
use crate::report_file;
use bench_error::BenchError;
use measured_run::{EXIT_INVALID, EXIT_MISSED, EXIT_PARTIAL, measure};
use options::{Bench, BenchCommand, OutputOptions, Run};
use watch::ServerWatch;

/// No request was served.
const EXIT_NOTHING_SERVED: u8 = 1;

/// Runs the command.
pub fn bench(bench: &Bench) -> ExitCode {
    match carry_out(bench) {
        Ok(code) => ExitCode::from(code),
        Err(BenchError::Usage(why)) => refuse(&why),
        Err(BenchError::Now(why)) => fail(&why),
    }
}

fn carry_out(bench: &Bench) -> Result<u8, BenchError> {
    let stop = stop_on_signals().map_err(|why| {
        let why: io::Error = why;
        BenchError::Now(format!("cannot wait for signals: {why}"))
    })?;
    if let Some(BenchCommand::Compare(asked)) = &bench.command {
        return compare::compare(asked, &stop);
    }
    if !bench.run.preset.is_empty() {
        let (tool, run) = presets::apply(&bench.run)?;
        return test(&run, Some(tool), &stop);
    }
    if let Some(objective) = &bench.run.load.find_capacity {
        return capacity::find(&bench.run, objective, &stop);
    }
    test(&bench.run, None, &stop)
}

/// One run; with `tool`, also prints its result as that tool does.
fn test(run: &Run, tool: Option<Tool>, stop: &Arc<AtomicBool>) -> Result<u8, BenchError> {
    let slo = slo(run)?;
    run.output.check_files()?;
    let plan = setup::plan(run)?;
    if let Some(line) = setup::default_load(run, &plan) {
        complain(&line);
    }
    let watching = run.output.watch.as_deref().map(ServerWatch::start).transpose()?;
    let mut report = measure(&plan, &slo, stop)?;
    report.server = watching.map(ServerWatch::end);
    publish(&report, tool, &run.output)?;
    Ok(exit_code(&report))
}

fn slo(run: &Run) -> Result<Slo, BenchError> {
    let slo = run.output.slo.as_deref().map(Slo::read).transpose()?;
    Ok(slo.unwrap_or_default())
}

/// Prints the report and writes its files.
fn publish(report: &Report, tool: Option<Tool>, output: &OutputOptions) -> Result<(), BenchError> {
    let write = |file: &Path, text: &str| report_file::write(file, text).map_err(BenchError::Now);
    let to_json = || serde_json::to_string_pretty(report).map_err(|why| why.to_string());
    if output.json.is_stdout() {
        let _ = writeln!(io::stdout(), "{}", to_json()?);
    } else {
        let _ = writeln!(io::stdout(), "{}", text::lines(report).join("\n"));
        if let Some(tool) = tool {
            let lines = other_tools::lines(tool, report).join("\n");
            let _ = writeln!(io::stdout(), "\nAS {} SAYS IT\n{lines}", tool.name());
        }
        if let Some(file) = output.json.file() {
            write(file, &to_json()?)?;
        }
    }
    if let Some(file) = &output.csv {
        write(file, &series::csv(&report.series))?;
    }
    if let Some(file) = &output.html {
        write(file, &html::page(report))?;
    }
    Ok(())
}

fn exit_code(report: &Report) -> u8 {
    if report.partial {
        EXIT_PARTIAL
    } else if !report.valid {
        EXIT_INVALID
    } else if !report.holds() {
        EXIT_MISSED
    } else if report.requests.served == 0 {
        EXIT_NOTHING_SERVED
    } else {
        EXIT_SUCCESS
    }
}

/// Installs the signal handling: the first signal ends the run, a second one the program.
fn stop_on_signals() -> io::Result<Arc<AtomicBool>> {
    let signals = Awaited::take_over(&[Signal::SIGINT, Signal::SIGTERM])?;
    let stop = Arc::new(AtomicBool::new(false));
    let requested = stop.clone();
    std::thread::Builder::new().spawn(move || {
        if signals.wait().is_ok() {
            requested.store(true, Ordering::Relaxed);
        }
        let _ = signals.wait();
        std::process::exit(EXIT_PARTIAL.into())
    })?;
    Ok(stop)
}
