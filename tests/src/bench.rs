//! `maitred bench` as a test runs it.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdout, Command, Output, Stdio};

use serde_json::Value;

use crate::guard::Guarded;
use crate::maitred_program;
use crate::processes::Signal;

/// How a run of `maitred bench` ended.
#[derive(Debug)]
pub struct Benched {
    /// Its exit code.
    pub code: Option<i32>,
    /// The report, if there is one.
    pub report: Value,
    /// What it complained about.
    pub stderr: String,
}

impl Benched {
    /// Of a program's output.
    pub fn of(output: &Output) -> Benched {
        Benched {
            code: output.status.code(),
            report: serde_json::from_slice(&output.stdout).unwrap_or(Value::Null),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// A number of the report, by its path (`requests.served`).
    ///
    /// # Panics
    /// When there is none.
    pub fn number(&self, path: &str) -> f64 {
        let pointer = format!("/{}", path.replace('.', "/"));
        let found = self.report.pointer(&pointer).and_then(Value::as_f64);
        found.unwrap_or_else(|| panic!("no number {path}: {self:?}"))
    }

    /// How many requests ended in each way: served, refused, failed, timed out, wrong.
    pub fn counts(&self) -> [u64; 5] {
        ["served", "refused", "failed", "timed_out", "wrong"]
            .map(|name| self.number(&format!("requests.{name}")) as u64)
    }

    /// Why requests were not served, most often first.
    pub fn causes(&self) -> Vec<String> {
        let causes = self.report["causes"].as_array();
        let causes = causes.into_iter().flatten();
        let words = causes.filter_map(|cause| cause["cause"].as_str());
        words.map(str::to_owned).collect()
    }
}

/// `maitred bench` with a report in JSON, and so patient with the machine that a test does not fail
/// for its load.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(maitred_program());
    command.arg("bench").arg("--json").args(arguments);
    if !arguments.iter().any(|argument| argument.starts_with("--late-after")) {
        command.arg("--late-after=30s");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs it to its end.
///
/// # Panics
/// When it cannot be started.
pub fn bench(arguments: &[&str]) -> Benched {
    let output = command(arguments).output();
    Benched::of(&output.expect("maitred bench can be started"))
}

/// The program `standing-server`: a small web server that can be told to stand still.
#[derive(Debug)]
pub struct StandingServer {
    process: Guarded,
    says: BufReader<ChildStdout>,
    /// Its URL.
    pub url: String,
}

impl StandingServer {
    /// Starts it; Cargo says to tests only where the program is.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(program: &str) -> StandingServer {
        let mut command = Command::new(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Guarded::spawn(&mut command, Signal::TERM);
        let mut says = BufReader::new(process.child().stdout.take().expect("a pipe"));
        let mut address = String::new();
        says.read_line(&mut address).expect("an address");
        StandingServer { process, says, url: format!("http://{}/", address.trim()) }
    }

    /// Has it stand still, and returns for how many seconds it did.
    ///
    /// # Panics
    /// When it has ended.
    pub fn stand(&mut self, millis: u64) -> f64 {
        let stdin = self.process.child().stdin.as_mut().expect("a pipe");
        writeln!(stdin, "stand {millis}").expect("it listens");
        let mut stood = String::new();
        self.says.read_line(&mut stood).expect("it says so");
        stood.trim().parse().expect("seconds")
    }
}
