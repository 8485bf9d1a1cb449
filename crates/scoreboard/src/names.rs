//! Why workers end, by name.

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
        for (number, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, number);
        }
    }
}
