//! Enums whose names are label values of metrics and keys of the JSON.

/// An enum that counts from 0, the list of its values and the name of each.
macro_rules! labels {
    ($(#[$meta:meta])* pub enum $enum:ident {
        $($(#[doc = $doc:literal])+ $value:ident = $name:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $enum { $($(#[doc = $doc])+ $value,)+ }

        impl $enum {
            /// All values, in the order of their numbers.
            pub const ALL: [$enum; Self::NAMES.len()] = [$($enum::$value,)+];

            /// Their names, in the same order.
            pub const NAMES: &[&str] = &[$($name,)+];

            /// Its name in metrics and JSON.
            pub fn name(self) -> &'static str {
                Self::NAMES[self as usize]
            }

            /// Its documentation.
            pub fn help(self) -> &'static str {
                [$(concat!($($doc),+).trim_ascii_start()),+][self as usize]
            }
        }
    };
}

labels! {
    /// Why a worker exited.
    pub enum Cause {
        /// It had served `max_requests`.
        MaxRequests = "max_requests",
        /// Its private memory exceeded `max_private_memory`.
        MaxPrivateMemory = "max_private_memory",
        /// PHP bailed out of a script: a fatal error, memory exhausted.
        Bailout = "bailout",
        /// A signal that we did not send killed it.
        Signal = "signal",
        /// It exited with an unexpected status.
        Failed = "failed",
        /// Killed because its script ran longer than `request_terminate_timeout`, or because it
        /// broke the protocol of its seat.
        Terminated = "terminated",
        /// It was idle.
        Idle = "idle",
        /// A reload replaced it.
        Reload = "reload",
        /// The server shut down.
        Stop = "shutdown",
        /// Its private memory grew far beyond what it started with while memory was short.
        Grown = "memory_growth",
    }
}
