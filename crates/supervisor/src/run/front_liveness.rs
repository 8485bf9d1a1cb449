//! Replacing a front that hangs.

use maitred_control::ToFront;
use maitred_os::signals::Signal;
use maitred_os::{proc, thread_stack};
use tracing::{error, warn};

use super::Supervisor;
use crate::fronts::liveness::{LivenessStep, SILENT_MAX, ThreadStack};
use crate::logging::native_stack;

/// Most threads of a front whose stacks are captured.
const THREADS_MAX: usize = 256;

/// The beginning of the names of a front's threads. Others only read files.
const THREAD_NAME: &str = "front ";

impl Supervisor {
    /// Asks the front for a sign of life, or ends one that has given none.
    pub(super) fn keep_front_alive(&mut self) {
        let (now, is_busy) = (self.now(), self.reloader.awaits_front());
        let Some(liveness) = &mut self.fronts.current_mut().liveness else {
            return;
        };
        match liveness.due(is_busy, now) {
            Some(LivenessStep::Check) => {
                if let Some(peer) = self.fronts.peer() {
                    peer.say(ToFront::CheckLiveness, &[]);
                }
            }
            Some(LivenessStep::CaptureStacks) => self.capture_front_stacks(),
            Some(LivenessStep::Kill) => {
                self.kill_front(&format!("no sign of life for {} s", SILENT_MAX.as_secs()));
            }
            None => {}
        }
    }

    /// A front has replied.
    pub(super) fn front_is_alive(&mut self, line: u32) {
        let now = self.now();
        let front = self.fronts.current_mut();
        if let Some(liveness) = front.liveness.as_mut().filter(|_| front.line == line) {
            liveness.alive(now);
        }
    }

    fn capture_front_stacks(&mut self) {
        let epoch = self.fronts.current().epoch;
        let Some(peer) = self.fronts.peer() else {
            return;
        };
        let pid = peer.pid();
        let state = proc::read(pid, "status")
            .and_then(|text| proc::value(&text, "State").map(|state| state.to_owned()));
        let state = state.unwrap_or_else(|| "unknown".to_owned());
        error!("front {epoch} hangs, process {pid}, state {state}; it is replaced");
        for thread in threads_of(pid) {
            if let Err(why) = thread_stack::request(pid, thread) {
                warn!("the stack of thread {thread} of the front cannot be captured: {why}");
            }
        }
        // Without it, a stopped process handles no signal.
        peer.signal(Signal::SIGCONT);
    }

    /// A thread of a front has reported its stack. To name the calls takes time, in which the front
    /// would not be replaced.
    pub(super) fn take_front_stack(&mut self, line: u32, thread: i32, calls: Vec<i64>) {
        let front = self.fronts.current();
        let is_requested = front.liveness.is_some_and(|liveness| liveness.is_hung());
        if front.line == line && is_requested && self.fronts.hung_stacks.len() < THREADS_MAX {
            let epoch = front.epoch;
            self.fronts.hung_stacks.push(ThreadStack { epoch, thread, calls });
        }
    }

    /// Logs the stacks of a front that hung.
    pub(super) fn log_hung_stacks(&mut self) {
        for ThreadStack { epoch, thread, calls } in std::mem::take(&mut self.fronts.hung_stacks) {
            let stack = native_stack::describe(&calls);
            error!("front {epoch}, thread {thread}, innermost call first: {stack}");
        }
    }
}

/// The ids of a front's threads that serve clients.
fn threads_of(pid: i32) -> Vec<i32> {
    let serves = |thread: &i32| {
        let name = proc::read(format!("{pid}/task/{thread}"), "comm");
        *thread == pid || name.is_some_and(|name| name.starts_with(THREAD_NAME))
    };
    proc::threads(pid).filter(serves).take(THREADS_MAX).collect()
}
