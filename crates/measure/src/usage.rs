//! The generator's own use of the machine.

use maitred_os::schedstat::Schedstat;
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
            wait: self.wait.zip(before.wait).map(|(now, then)| (now - then).max(0.0)),
        }
    }
}

/// The usage of the current thread.
pub fn this_thread() -> ThreadUsage {
    let cpu = getrusage(UsageWho::RUSAGE_THREAD)
        .map_or(0.0, |usage| seconds(usage.user_time()) + seconds(usage.system_time()));
    let schedstat = Schedstat::of_this_thread();
    ThreadUsage { cpu, wait: schedstat.map(|times| crate::clock::seconds(times.waited)) }
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
    }
}
