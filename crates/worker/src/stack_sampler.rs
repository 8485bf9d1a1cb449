//! A profile: the stacks of all running scripts, read at a fixed rate by the zygote, which counts
//! them.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use maitred_control::folded::{FoldedStacks, RATE_MAX};
use maitred_control::{FromZygote, ProfileSamples};
use maitred_os::shared;

use crate::stack_reader::StackReader;

/// Longest profile.
const DURATION_MAX: Duration = Duration::from_secs(600);

/// A profile that is going on.
pub struct Profile {
    number: u64,
    result: OwnedFd,
    interval: Duration,
    next: Instant,
    end: Instant,
    samples: ProfileSamples,
    stacks: FoldedStacks,
}

impl Profile {
    /// Begins with the first sample at once.
    pub fn begin(number: u64, rate: u32, duration: Duration, result: OwnedFd) -> Profile {
        let now = Instant::now();
        Profile {
            number,
            result,
            interval: Duration::from_secs(1) / rate.clamp(1, RATE_MAX),
            next: now,
            end: now + duration.min(DURATION_MAX),
            samples: ProfileSamples::default(),
            stacks: FoldedStacks::default(),
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
        for stack in workers.current_stacks() {
            self.samples.stacks += 1;
            let script = std::iter::once(stack.script.as_str()).filter(|script| !script.is_empty());
            let calls: Vec<String> =
                stack.frames.iter().rev().map(|frame| frame.call.to_string()).collect();
            self.stacks.count(script.chain(calls.iter().map(String::as_str)));
        }
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
