//! OPcache statistics. They are read in a child, as in `warm.rs`: a zygote runs no request, and the
//! suspended request of a booted application must not be changed by its zygote.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use maitred_control::CacheFigures;
use maitred_os::channel::Channel;
use maitred_os::fork::{HowEnded, OwnProc, exit_now};
use maitred_os::timed_child::{ChildResult, TimedFork, fork_timed};
use maitred_os::{shared, signals};
use maitred_php::Engine;

/// Longest time that it may keep the zygote from forking workers. It takes a few milliseconds.
const STATS_TIMEOUT: Duration = Duration::from_millis(250);

/// Longest text of the statistics in bytes.
const TEXT_BYTES: usize = 1024;

/// The process in which [`read_stats`] returned.
pub enum StatsSide {
    /// The child, with its task.
    Child(StatsTask),
    /// The zygote, with the statistics, if there are any.
    Zygote(Option<CacheFigures>),
}

/// A task for reading the statistics; the file receives them, as JSON.
pub struct StatsTask(File);

/// Returns in the zygote when the child has exited, and before that in the child, which must drop
/// the control channel and `proc`, and call [`run`](StatsTask::run).
pub fn read_stats(control: &Channel, proc: &OwnProc) -> StatsSide {
    // A failure is not reported: the statistics will be requested again.
    begin(control, proc).unwrap_or(StatsSide::Zygote(None))
}

fn begin(control: &Channel, proc: &OwnProc) -> io::Result<StatsSide> {
    let file: File = shared::file_with("maitred-figures", b"")?.into();
    let child = match fork_timed(proc)? {
        TimedFork::Child => return Ok(StatsSide::Child(StatsTask(file))),
        TimedFork::Parent(child) => child,
    };
    match child.wait(STATS_TIMEOUT, control.as_fd())? {
        ChildResult::Ended(HowEnded::Exited(0)) => {}
        _ => return Ok(StatsSide::Zygote(None)),
    }
    let mut text = [0; TEXT_BYTES];
    let length = file.read_at(&mut text, 0)?;
    Ok(StatsSide::Zygote(serde_json::from_slice(&text[..length])?))
}

impl StatsTask {
    /// In the child: runs the task and exits.
    pub fn run(self, engine: &mut Engine) -> ! {
        signals::reset(&[]);
        engine.after_fork();
        self.tell(engine.cache_figures())
    }

    /// In the child of a zygote with a suspended script: runs the task and exits.
    pub fn run_within(self) -> ! {
        signals::reset(&[]);
        self.tell(maitred_php::cache_figures_within())
    }

    fn tell(self, figures: Option<maitred_php::CacheFigures>) -> ! {
        let text = serde_json::to_vec(&figures.map(to_control)).map_err(io::Error::other);
        let done = text.and_then(|text| self.0.write_all_at(&text, 0));
        exit_now(i32::from(done.is_err()))
    }
}

fn to_control(figures: maitred_php::CacheFigures) -> CacheFigures {
    CacheFigures {
        memory_used_bytes: figures.used_bytes,
        memory_free_bytes: figures.free_bytes,
        memory_wasted_bytes: figures.wasted_bytes,
        cached_scripts: figures.scripts,
        hits: figures.hits,
        misses: figures.misses,
        oom_restarts: figures.oom_restarts,
        hash_restarts: figures.hash_restarts,
        manual_restarts: figures.manual_restarts,
        keys: (figures.keys, figures.all_keys),
        strings_bytes: (figures.strings_bytes, figures.all_strings_bytes),
        is_full: figures.is_full,
        strings_are_full: figures.strings_are_full,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_figures_fit_their_text() {
        let most = CacheFigures {
            memory_used_bytes: u64::MAX,
            memory_free_bytes: u64::MAX,
            memory_wasted_bytes: u64::MAX,
            cached_scripts: u64::MAX,
            hits: u64::MAX,
            misses: u64::MAX,
            oom_restarts: u64::MAX,
            hash_restarts: u64::MAX,
            manual_restarts: u64::MAX,
            keys: (u64::MAX, u64::MAX),
            strings_bytes: (u64::MAX, u64::MAX),
            is_full: false,
            strings_are_full: false,
        };
        assert!(serde_json::to_vec(&most).unwrap().len() <= TEXT_BYTES);
    }
}
