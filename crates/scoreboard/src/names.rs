//! What is counted, by name.

/// How a request to a pool came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Outcome {
    /// It was answered by its script.
    Responded,
    /// The client left while its script ran.
    ClientLeft,
    /// The client left before its script began; the script was never run.
    LeftQueue,
    /// `request_queue_length` requests waited already.
    QueueFull,
    /// No worker became free within `request_queue_timeout`.
    QueueTimeout,
    /// Its script ran longer than `request_terminate_timeout`.
    Terminated,
    /// The worker died while it ran the script.
    WorkerDied,
    /// What the script said is no answer.
    InvalidAnswer,
    /// The request's body could not be read back from disk.
    BodyLost,
    /// The pool had no workers and would not get any.
    NoPool,
    /// Those that waited before it would have taken longer than `request_queue_timeout`.
    Hopeless,
    /// It waited, and newer ones were answered for too long.
    Passed,
    /// No worker became free in the time that its client gave it.
    Deadline,
}

impl Outcome {
    /// All of them, in the order of their numbers.
    pub const ALL: [Outcome; 13] = [
        Outcome::Responded,
        Outcome::ClientLeft,
        Outcome::LeftQueue,
        Outcome::QueueFull,
        Outcome::QueueTimeout,
        Outcome::Terminated,
        Outcome::WorkerDied,
        Outcome::InvalidAnswer,
        Outcome::BodyLost,
        Outcome::NoPool,
        Outcome::Hopeless,
        Outcome::Passed,
        Outcome::Deadline,
    ];

    /// Its name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Responded => "answered",
            Outcome::ClientLeft => "client_left",
            Outcome::LeftQueue => "left_queue",
            Outcome::QueueFull => "queue_full",
            Outcome::QueueTimeout => "queue_timeout",
            Outcome::Terminated => "terminated",
            Outcome::WorkerDied => "worker_died",
            Outcome::InvalidAnswer => "invalid_answer",
            Outcome::BodyLost => "body_lost",
            Outcome::NoPool => "no_pool",
            Outcome::Hopeless => "hopeless",
            Outcome::Passed => "passed",
            Outcome::Deadline => "deadline",
        }
    }

    /// Whether the client was there and got no answer from its script.
    pub fn is_refusal(self) -> bool {
        !matches!(
            self,
            Outcome::Responded | Outcome::ClientLeft | Outcome::LeftQueue
        )
    }
}

/// Why a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Cause {
    /// It had served `max_requests`.
    MaxRequests,
    /// It had more memory of its own than `max_private_memory`.
    MaxPrivateMemory,
    /// PHP bailed out of a script: a fatal error, memory exhausted.
    Bailout,
    /// A signal that was not ours ended it.
    Signal,
    /// It ended itself in a way that it should not.
    Failed,
    /// It was ended because its script ran longer than `request_terminate_timeout`, or because it
    /// broke the rules of its seat.
    Terminated,
    /// It had nothing to do.
    Idle,
    /// Another one took its place in a reload.
    Reload,
    /// The server ends.
    Stop,
    /// It had much more memory of its own than when it began to serve, and there was little left.
    Grown,
}

impl Cause {
    /// All of them, in the order of their numbers.
    pub const ALL: [Cause; 10] = [
        Cause::MaxRequests,
        Cause::MaxPrivateMemory,
        Cause::Bailout,
        Cause::Signal,
        Cause::Failed,
        Cause::Terminated,
        Cause::Idle,
        Cause::Reload,
        Cause::Stop,
        Cause::Grown,
    ];

    /// Its name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Cause::MaxRequests => "max_requests",
            Cause::MaxPrivateMemory => "max_private_memory",
            Cause::Bailout => "bailout",
            Cause::Signal => "signal",
            Cause::Failed => "failed",
            Cause::Terminated => "terminated",
            Cause::Idle => "idle",
            Cause::Reload => "reload",
            Cause::Stop => "stop",
            Cause::Grown => "grown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_names_is_in_the_order_of_the_numbers() {
        for (number, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, number);
        }
        for (number, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, number);
        }
    }
}
