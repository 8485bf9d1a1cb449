//! Children that never outlive the test that started them, even when it fails.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use crate::processes::{self, Signal};
use crate::wait;

/// A child process that leads its own process group; the whole group is killed when this is
/// dropped.
#[derive(Debug)]
pub struct Guarded {
    child: Child,
    stop_signal: Signal,
}

impl Guarded {
    /// Starts `command` in a process group of its own; `stop_signal` is what asks it to end.
    ///
    /// # Panics
    /// When the program cannot be started.
    pub fn spawn(command: &mut Command, stop_signal: Signal) -> Self {
        let child = command
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        Self { child, stop_signal }
    }

    /// The child's process id, which is also its group's.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// The child itself, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// How the child ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Waits for the child's end, at most `within`.
    pub fn wait(&mut self, within: Duration) -> Option<ExitStatus> {
        wait::poll(within, || self.child.try_wait().expect("a child can be waited for"))
    }

    /// Asks the child to end and waits for it until the deadline; nothing if it had to be left
    /// running.
    pub fn stop(&mut self) -> Option<ExitStatus> {
        if self.ended().is_none()
            && let Some(process) = processes::Process::read(self.pid())
        {
            process.signal(self.stop_signal);
        }
        self.wait(wait::DEADLINE)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.stop();
        processes::signal_group(self.pid(), Signal::KILL);
        let _ = self.child.wait();
    }
}
