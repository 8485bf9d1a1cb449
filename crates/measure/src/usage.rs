//! The generator's own use of the machine.

use std::fs;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::TimeVal;

/// File descriptors that are reserved for other uses than connections.
const OTHER_DESCRIPTORS: u64 = 64;

/// The resource usage of a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ThreadUsage {
    /// Processor time in seconds.
    pub cpu: f64,
    /// Time that it was runnable without a processor, in seconds, where the kernel reports it.
    pub wait: Option<f64>,
}

impl ThreadUsage {
    /// The usage since `before`.
    pub fn since(&self, before: &ThreadUsage) -> ThreadUsage {
        ThreadUsage {
            cpu: (self.cpu - before.cpu).max(0.0),
            wait: self
                .wait
                .zip(before.wait)
                .map(|(now, then)| (now - then).max(0.0)),
        }
    }
}

/// The usage of the current thread.
pub fn this_thread() -> ThreadUsage {
    let cpu = getrusage(UsageWho::RUSAGE_THREAD).map_or(0.0, |usage| {
        seconds(usage.user_time()) + seconds(usage.system_time())
    });
    let schedstat = fs::read_to_string("/proc/thread-self/schedstat").ok();
    ThreadUsage {
        cpu,
        wait: schedstat.and_then(|text| run_wait(&text)),
    }
}

/// The second value: nanoseconds of waiting for a processor.
fn run_wait(schedstat: &str) -> Option<f64> {
    let nanos: u64 = schedstat.split_whitespace().nth(1)?.parse().ok()?;
    Some(crate::clock::seconds(nanos))
}

fn seconds(time: TimeVal) -> f64 {
    time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6
}

/// The number of processors that this process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, Into::into)
}

/// The number of connections that the limit of open files allows, after raising it to the hard
/// limit.
pub fn descriptors() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return 1_024 - OTHER_DESCRIPTORS;
    };
    let raised = soft >= hard || setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    let limit = if raised { hard } else { soft };
    limit.saturating_sub(OTHER_DESCRIPTORS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_uses_is_seen() {
        let before = this_thread();
        while this_thread().since(&before).cpu < 0.002 {}
        assert_eq!(run_wait("12 3000000000 4\n"), Some(3.0));
        assert_eq!(run_wait(""), None);
    }
}
