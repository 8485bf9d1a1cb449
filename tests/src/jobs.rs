//! Commands and schedules of pool `www`: their sections, and their state.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::processes::Process;
use crate::server::Server;
use crate::{maitred_program, wait};

/// A section `[[pools.www.commands]]`.
pub fn command(name: &str, lines: &[&str]) -> String {
    format!("\n[[pools.www.commands]]\nname = \"{name}\"\n{}", lines.join("\n"))
}

/// A section `[[pools.www.schedules]]`.
pub fn schedule(name: &str, lines: &[&str]) -> String {
    format!("\n[[pools.www.schedules]]\nname = \"{name}\"\n{}", lines.join("\n"))
}

/// Runs a command of `maitred` on the admin socket of this server.
///
/// # Panics
/// When it cannot be run.
pub fn maitred(server: &Server, words: &[&str]) -> Output {
    let mut command = Command::new(maitred_program());
    command.args(words).arg("--admin-socket").arg(server.admin_socket());
    command.output().expect("maitred runs")
}

/// All jobs, as `maitred commands --json` has them.
///
/// # Panics
/// When that is not JSON.
pub fn all(server: &Server) -> Vec<Value> {
    let output = maitred(server, &["commands", "--json"]);
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

/// The job of this name, if it is there.
pub fn find(server: &Server, name: &str) -> Option<Value> {
    all(server).into_iter().find(|job| job["name"] == name)
}

/// The process ids of a job.
pub fn pids(server: &Server, name: &str) -> Vec<i32> {
    let job = find(server, name).unwrap_or_default();
    let processes = job["processes"].as_array().into_iter().flatten();
    let pids = processes.filter_map(|process| process["pid"].as_i64());
    pids.filter_map(|pid| i32::try_from(pid).ok()).collect()
}

/// The processes of a command, once there are this many and each has become its program.
///
/// # Panics
/// When that takes too long.
pub fn running(server: &Server, name: &str, count: usize) -> Vec<i32> {
    wait::until(&format!("{count} processes of {name}"), || {
        let pids = pids(server, name);
        let is_program = |pid: &i32| {
            Process::read(*pid).is_some_and(|process| !process.title.contains("maitred"))
        };
        (pids.len() == count && pids.iter().all(is_program)).then_some(pids)
    })
}

/// A field of `/proc/PID/status`.
///
/// # Panics
/// When there is none.
pub fn status_field(pid: i32, name: &str) -> String {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(Path::new(&path)).expect("the process runs");
    let line = status.lines().find(|line| line.starts_with(name)).expect("there is the field");
    line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
}
