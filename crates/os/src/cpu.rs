//! Processor time.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// Processor time that was used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// By the program itself, in microseconds.
    pub user_micros: u64,
    /// By the kernel for it, in microseconds.
    pub system_micros: u64,
}

impl CpuTime {
    /// What came after `before`.
    pub fn since(self, before: CpuTime) -> CpuTime {
        CpuTime {
            user_micros: self.user_micros.saturating_sub(before.user_micros),
            system_micros: self.system_micros.saturating_sub(before.system_micros),
        }
    }

    /// Both together, in microseconds.
    pub fn micros(self) -> u64 {
        self.user_micros.saturating_add(self.system_micros)
    }
}

/// What this process has used since it began, and those of its children that it has collected. One
/// that cannot be asked for (`getrusage(2)`: never) is nothing.
pub fn used() -> CpuTime {
    let all = [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN];
    let all = all.into_iter().filter_map(|who| getrusage(who).ok());
    all.fold(CpuTime::default(), |sum, usage| CpuTime {
        user_micros: sum.user_micros + micros(usage.user_time()),
        system_micros: sum.system_micros + micros(usage.system_time()),
    })
}

/// What this process has used since it began, and how often it has left a processor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in microseconds, of all its threads.
    pub micros: u64,
    /// Times that it gave its processor up, or lost it. As long as this stays the same it has run
    /// all the time.
    pub switches: u64,
}

/// What this process has used now. Unlike `RUSAGE_THREAD`, this takes in what came since the kernel's
/// last tick. One that cannot be asked for (`getrusage(2)`: never) is nothing.
pub fn usage() -> Usage {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
        return Usage::default();
    };
    let count = |times: i64| times.unsigned_abs();
    Usage {
        micros: micros(usage.user_time()).saturating_add(micros(usage.system_time())),
        switches: count(usage.voluntary_context_switches())
            .wrapping_add(count(usage.involuntary_context_switches())),
    }
}

/// What those children of this process have used that it has collected, in microseconds.
pub fn of_children() -> u64 {
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0, |usage| {
        micros(usage.user_time()).saturating_add(micros(usage.system_time()))
    })
}

fn micros(time: TimeVal) -> u64 {
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec()).unwrap_or(0);
    seconds.saturating_mul(1_000_000).saturating_add(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_does_counts() {
        let before = used();
        while used().since(before).micros() < 1_000 {}
        assert!(used().micros() >= 1_000);
        assert_eq!(before.since(used()), CpuTime::default());
    }

    #[test]
    fn who_waits_leaves_its_processor_and_uses_none() {
        let before = usage();
        std::thread::sleep(std::time::Duration::from_millis(30));
        let after = usage();
        assert!(after.switches > before.switches);
        assert!(after.micros >= before.micros);
    }
}
