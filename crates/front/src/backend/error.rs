//! Why a request to a backend fails.

/// Why a script gave no (complete) answer.
#[derive(Debug)]
pub enum Failure {
    /// As many requests wait as may.
    QueueFull,
    /// The pool has no workers and will not get any.
    NoPool,
    /// It waited for a worker as long as it may.
    QueueTimeout,
    /// Those who wait before it take longer than it may wait.
    Hopeless,
    /// It waited, and newer ones have passed it for too long.
    Passed,
    /// There is no worker for it within the time that its client gives it.
    Deadline,
    /// The client left before the script began.
    LeftQueue,
    /// The client left.
    ClientLeft,
    /// The script ran longer than `request_terminate_timeout`.
    Terminated,
    /// The worker died.
    WorkerDied,
    /// What the worker said is no answer.
    Invalid(String),
    /// The foreign server could not be reached.
    Unreachable(String),
    /// The foreign server said nothing for too long.
    Silent,
    /// The script answered with this status, for which the site has a page.
    Intercepted(u16),
    /// The script has named a file that is to be sent in place of its answer.
    FileNamed,
    /// The request's body could not be read back.
    Body(std::io::Error),
}

/// A request as the end of a line that is about it, by its id if it has one.
#[derive(Debug, Clone, Copy)]
pub struct Concerned<'a>(pub(crate) &'a str);

impl std::fmt::Display for Concerned<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            "" => Ok(()),
            id => write!(out, " [request {id}]"),
        }
    }
}
