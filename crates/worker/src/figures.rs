//! Telling how OPcache is doing. It is asked in a child, as in `warm.rs`: a zygote runs no request, and the
//! one that a booted application stands still in is not its zygote's to change.

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

/// How long the zygote may be kept from forking workers by it. It takes a few milliseconds.
const LOOKING: Duration = Duration::from_millis(250);

/// Longest text of the figures in bytes.
const TEXT_BYTES: usize = 1024;

/// Which process returned from [`look`].
pub enum Side {
    /// The child, with what it has to do.
    Child(Look),
    /// The zygote, with the figures, if there are any.
    Zygote(Option<CacheFigures>),
}

/// A look at OPcache; the file is where the figures go, as JSON.
pub struct Look(File);

/// Returns in the zygote when the child has ended, and before in the child, which has to let go of
/// the control channel and `proc`, and to [`run`](Look::run).
pub fn look(control: &Channel, proc: &OwnProc) -> Side {
    // Why there are no figures is not told: they are asked for again.
    begin(control, proc).unwrap_or(Side::Zygote(None))
}

fn begin(control: &Channel, proc: &OwnProc) -> io::Result<Side> {
    let file: File = shared::file_with("maitred-figures", b"")?.into();
    let child = match fork_timed(proc)? {
        TimedFork::Child => return Ok(Side::Child(Look(file))),
        TimedFork::Parent(child) => child,
    };
    match child.wait(LOOKING, control.as_fd())? {
        ChildResult::Ended(HowEnded::Exited(0)) => {}
        _ => return Ok(Side::Zygote(None)),
    }
    let mut text = [0; TEXT_BYTES];
    let length = file.read_at(&mut text, 0)?;
    Ok(Side::Zygote(serde_json::from_slice(&text[..length])?))
}

impl Look {
    /// In the child: does it, and ends.
    pub fn run(self, engine: &mut Engine) -> ! {
        signals::reset(&[]);
        engine.after_fork();
        self.tell(engine.cache_figures())
    }

    /// In the child of a zygote in which a script stands still: does it, and ends.
    pub fn run_within(self) -> ! {
        signals::reset(&[]);
        self.tell(maitred_php::cache_figures_within())
    }

    fn tell(self, figures: Option<maitred_php::CacheFigures>) -> ! {
        let text = serde_json::to_vec(&figures.map(told)).map_err(io::Error::other);
        let done = text.and_then(|text| self.0.write_all_at(&text, 0));
        exit_now(i32::from(done.is_err()))
    }
}

fn told(figures: maitred_php::CacheFigures) -> CacheFigures {
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
