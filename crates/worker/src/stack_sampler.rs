//! A profile: the stacks of all running scripts, read at a fixed rate by the zygote, which counts
//! them.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use maitred_control::folded::{FoldedStacks, RATE_MAX};
use maitred_control::{FromZygote, ProfileSamples, Seat};
use maitred_os::fork::OwnProc;
use maitred_os::shared;
use maitred_php::{OpcacheMemory, Sampler};
use maitred_seat::Boards;

use crate::stack_reader::StackReader;

/// Longest profile.
const DURATION_MAX: Duration = Duration::from_secs(600);

/// Where the stacks come from.
pub struct StackSource {
    sampler: Sampler,
    /// Which seats are busy.
    boards: Boards,
}

impl StackSource {
    /// For the workers of this process, whose pool has these boards.
    pub fn new(proc: &OwnProc, boards: Boards) -> StackSource {
        let maps = proc.file("maps").and_then(io::read_to_string);
        let opcache = maps.ok().and_then(|maps| OpcacheMemory::find(&maps));
        StackSource { sampler: Sampler::new(opcache), boards }
    }
}

/// Whether a script runs in a seat, as its board says.
fn is_busy(boards: &Boards, seat: Seat) -> bool {
    boards.seat(seat).is_some_and(|board| board.running.load(Ordering::Relaxed) != 0)
}

/// A profile that is going on.
pub struct Profile {
    number: u64,
    result: OwnedFd,
    interval: Duration,
    next: Instant,
    end: Instant,
    samples: ProfileSamples,
    stacks: FoldedStacks,
    source: StackSource,
}

impl Profile {
    /// Begins with the first sample at once.
    pub fn begin(
        number: u64,
        rate: u32,
        duration: Duration,
        result: OwnedFd,
        source: StackSource,
    ) -> Profile {
        let now = Instant::now();
        Profile {
            number,
            result,
            interval: Duration::from_secs(1) / rate.clamp(1, RATE_MAX),
            next: now,
            end: now + duration.min(DURATION_MAX),
            samples: ProfileSamples::default(),
            stacks: FoldedStacks::default(),
            source,
        }
    }

    /// Time until the next sample.
    pub fn wait(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Reads the stacks, if that is due. True at the end of the profile.
    pub fn sample(&mut self, workers: &StackReader) -> bool {
        let now = Instant::now();
        if now < self.next {
            return false;
        }
        // Samples that were missed are not made up for: they would see the same moment.
        self.next = (self.next + self.interval).max(now + self.interval / 2);
        self.samples.looks += 1;
        let Profile { samples, stacks, source: StackSource { sampler, boards }, .. } = self;
        workers.sample(
            sampler,
            |seat| is_busy(boards, seat),
            |sample| {
                samples.stacks += 1;
                stacks.count(sample.calls());
            },
        );
        now >= self.end
    }

    /// Writes the result. The report for the supervisor.
    pub fn finish(self) -> FromZygote {
        let written = shared::fill(&self.result, self.stacks.lines().as_bytes());
        let samples = written.map(|()| self.samples).map_err(|why: io::Error| {
            format!("the result of the profile could not be written: {why}")
        });
        FromZygote::Profiled { profile: self.number, samples }
    }
}
