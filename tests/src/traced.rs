//! Processes that run, under strace(1).

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;

use crate::guard::Guarded;
use crate::processes::{Process, Signal};

/// Attaches strace with these options to all threads of a process, until it is stopped. Nothing
/// where that is not permitted, or the process has ended.
///
/// # Panics
/// When strace says something else than that it is attached.
pub fn attach(process: &Process, options: &[impl AsRef<OsStr>]) -> Option<Guarded> {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-p", &process.pid.to_string()]);
    strace.args(options).stderr(Stdio::piped());
    let mut strace = Guarded::spawn(&mut strace, Signal::TERM);
    let said = strace.child().stderr.take().expect("stderr is a pipe");
    let mut line = String::new();
    let mut said = BufReader::new(said);
    said.read_line(&mut line).expect("strace says something");
    if line.contains("not permitted") || line.contains("No such process") {
        return None;
    }
    assert!(line.contains("attached"), "{line}");
    // More output may follow, and needs a reader.
    thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    Some(strace)
}
