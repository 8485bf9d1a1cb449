//! `maitred bench`: a load test, its report, and an exit code for it.

mod capacity;
mod compare;
mod live;
pub mod options;
mod presets;
mod setup;
mod watch;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use maitred_measure::generate::{self, Progress};
use maitred_measure::other_tools::{self, Tool};
use maitred_measure::plan::Plan;
use maitred_measure::report::Report;
use maitred_measure::slo::Slo;
use maitred_measure::{html, series, text};
use maitred_os::signals::{Awaited, Signal};

use crate::{EXIT_SUCCESS, fail, refuse};
use live::Live;
use options::{Bench, BenchCommand, OutputOptions, Run};
use setup::BenchError;
use watch::ServerWatch;

/// No request was served.
const EXIT_NOTHING_SERVED: u8 = 1;

/// Too many requests were sent late: the results are not reliable.
const EXIT_INVALID: u8 = 3;

/// `--slo` is missed.
const EXIT_MISSED: u8 = 4;

/// The run was interrupted; the exit code of a shell for SIGINT.
const EXIT_PARTIAL: u8 = 130;

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
    check_files(&run.output)?;
    let plan = setup::plan(run)?;
    let watching = run
        .output
        .watch
        .as_deref()
        .map(ServerWatch::start)
        .transpose()?;
    let mut report = measure(&plan, &slo, stop)?;
    report.server = watching.map(ServerWatch::end);
    publish(&report, tool, &run.output)?;
    Ok(exit_code(&report))
}

fn slo(run: &Run) -> Result<Slo, BenchError> {
    let slo = run.output.slo.as_deref().map(Slo::read).transpose()?;
    Ok(slo.unwrap_or_default())
}

fn measure(plan: &Arc<Plan>, slo: &Slo, stop: &Arc<AtomicBool>) -> Result<Report, BenchError> {
    let url = plan
        .requests
        .first()
        .map(|first| first.spec.url.to_string());
    let mut live = Live::new(&url.unwrap_or_default());
    let mut watch = |progress: &Progress<'_>| live.show(progress);
    let measured = generate::run(plan, stop, &mut watch).map_err(BenchError::Now)?;
    drop(live);
    Ok(Report::of(plan, &measured, slo))
}

/// Prints the report and writes its files.
fn publish(report: &Report, tool: Option<Tool>, output: &OutputOptions) -> Result<(), BenchError> {
    let to_json = || serde_json::to_string_pretty(report).map_err(|why| why.to_string());
    if only_json(output) {
        let _ = writeln!(io::stdout(), "{}", to_json()?);
    } else {
        let _ = writeln!(io::stdout(), "{}", text::lines(report).join("\n"));
        if let Some(tool) = tool {
            let lines = other_tools::lines(tool, report).join("\n");
            let _ = writeln!(io::stdout(), "\nAS {} SAYS IT\n{lines}", tool.name());
        }
        if let Some(file) = &output.json {
            write_file(file, &to_json()?)?;
        }
    }
    if let Some(file) = &output.csv {
        write_file(file, &series::csv(&report.series))?;
    }
    if let Some(file) = &output.html {
        write_file(file, &html::page(report))?;
    }
    Ok(())
}

/// Whether JSON is all that is printed.
fn only_json(output: &OutputOptions) -> bool {
    output.json.as_deref() == Some(Path::new("-"))
}

/// Checks that the files of the report can be written, before an hour is spent on it.
fn check_files(output: &OutputOptions) -> Result<(), BenchError> {
    let json = output.json.iter().filter(|_| !only_json(output));
    for file in json.chain(&output.csv).chain(&output.html) {
        let opened = OpenOptions::new().create(true).append(true).open(file);
        opened.map_err(|why| unwritable(file, &why))?;
    }
    Ok(())
}

fn unwritable(file: &Path, why: &io::Error) -> BenchError {
    BenchError::Now(format!("{} cannot be written: {why}", file.display()))
}

fn write_file(file: &Path, text: &str) -> Result<(), BenchError> {
    std::fs::write(file, text).map_err(|why| unwritable(file, &why))
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
    let told = stop.clone();
    std::thread::Builder::new().spawn(move || {
        if signals.wait().is_ok() {
            told.store(true, Ordering::Relaxed);
        }
        let _ = signals.wait();
        std::process::exit(EXIT_PARTIAL.into())
    })?;
    Ok(stop)
}
