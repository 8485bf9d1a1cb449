//! Processor time, and peak memory of processes.

use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeVal;

/// Processor time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// By the program itself, in microseconds.
    pub user_micros: u64,
    /// By the kernel for it, in microseconds.
    pub system_micros: u64,
}

impl CpuTime {
    /// The difference to `before`.
    pub fn since(self, before: CpuTime) -> CpuTime {
        CpuTime {
            user_micros: self.user_micros.saturating_sub(before.user_micros),
            system_micros: self.system_micros.saturating_sub(before.system_micros),
        }
    }

    /// The sum, in microseconds.
    pub fn micros(self) -> u64 {
        self.user_micros.saturating_add(self.system_micros)
    }
}

/// Processor time of this process since its start, and of the children it has collected. Zero if it
/// cannot be read (`getrusage(2)`: never).
pub fn used() -> CpuTime {
    let all = [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN];
    let all = all.into_iter().filter_map(|who| getrusage(who).ok());
    all.fold(CpuTime::default(), |sum, usage| CpuTime {
        user_micros: sum.user_micros + micros(usage.user_time()),
        system_micros: sum.system_micros + micros(usage.system_time()),
    })
}

/// Processor time of this process since its start, in microseconds, with all its threads. Unlike
/// `RUSAGE_THREAD`, this includes time since the kernel's last tick.
pub fn of_this_process() -> u64 {
    of_this_process_with_waits().0
}

/// The same, and its voluntary context switches.
pub fn of_this_process_with_waits() -> (u64, u64) {
    getrusage(UsageWho::RUSAGE_SELF).map_or((0, 0), |usage| {
        let waits = u64::try_from(usage.voluntary_context_switches()).unwrap_or(0);
        (sum(&usage), waits)
    })
}

/// Processor time of the children that this process has collected, in microseconds, and the peak
/// resident memory of one of them or of their children, in bytes. Until it calls exec, a child has
/// the memory of its parent: peaks up to this process's own are not reported.
pub fn of_children_with_most() -> (u64, u64) {
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or((0, 0), |usage| {
        let most = most_resident(&usage);
        let own = || getrusage(UsageWho::RUSAGE_SELF).map_or(u64::MAX, |own| most_resident(&own));
        let is_a_programs = most > 0 && most > own();
        (sum(&usage), if is_a_programs { most } else { 0 })
    })
}

/// In bytes; `ru_maxrss` of getrusage(2) is in kilobytes.
fn most_resident(usage: &Usage) -> u64 {
    u64::try_from(usage.max_rss()).map_or(0, |kilobytes| kilobytes.saturating_mul(1024))
}

fn sum(usage: &Usage) -> u64 {
    micros(usage.user_time()).saturating_add(micros(usage.system_time()))
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
    fn who_sleeps_gives_its_processor_up() {
        let (_, before) = of_this_process_with_waits();
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(of_this_process_with_waits().1 > before);
    }

    #[test]
    fn what_a_program_has_had_is_told_if_it_is_more_than_this_process_has_had() {
        let run = |script: &str| {
            let status = std::process::Command::new("sh").args(["-c", script]).status();
            assert!(status.is_ok_and(|status| status.success()));
        };
        run("true");
        let (_, most) = of_children_with_most();
        assert_eq!(most, 0, "a shell has little");
        let bytes: u64 = 100 << 20;
        run(&format!("head -c {bytes} /dev/zero | tail -c {bytes} >/dev/null; :"));
        let (_, most) = of_children_with_most();
        assert!((bytes..2 * bytes).contains(&most), "{most}");
    }

    #[test]
    fn both_ways_to_ask_agree() {
        let (before, first) = (used(), of_this_process());
        while of_this_process() < first + 1_000 {}
        let took = of_this_process() - first;
        assert!(used().since(before).micros() >= took);
    }
}
