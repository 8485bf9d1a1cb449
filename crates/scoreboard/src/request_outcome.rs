//! How a request to a script ended: one table of all that clients, logs and metrics say about it.

/// How an outcome is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// One line for each request, at debug level.
    Debug,
    /// Nothing beside the request's line in the access log.
    Silent,
    /// The first one as a line of its own, the rest summarised: no worker ran the request.
    Summary,
    /// One line for each request, at error level.
    Error,
}

/// An enum that counts from 0, with the facts about each value: its name in metrics and JSON, the
/// status and the sentence for the client, the level for the log.
macro_rules! outcomes {
    ($(#[$meta:meta])* pub enum $enum:ident {
        counted { $($(#[doc = $doc:literal])+ $value:ident => $metric:literal $status:literal
            $level:ident $sentence:literal,)+ }
        upstream { $($(#[$updoc:meta])* $up:ident => $upmetric:literal $upstatus:literal
            $uplevel:ident $upsentence:literal,)+ }
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub enum $enum { $($(#[doc = $doc])+ $value,)+ $($(#[$updoc])* $up,)+ }

        impl $enum {
            /// All values that pools count, in the order of their numbers.
            pub const ALL: [$enum; Self::NAMES.len()] = [$($enum::$value,)+];

            /// Their names in metrics and JSON, in the same order.
            pub const NAMES: &[&str] = &[$($metric,)+];

            /// Its documentation; none for those that no pool counts.
            pub fn help(self) -> Option<&'static str> {
                let help = [$(concat!($($doc),+).trim_ascii_start()),+];
                help.get(self as usize).copied()
            }

            /// Its name in metrics and JSON.
            pub fn metric_name(self) -> &'static str {
                match self { $($enum::$value => $metric,)+ $($enum::$up => $upmetric,)+ }
            }

            /// The status for the client and the access log.
            pub fn status(self) -> u16 {
                match self { $($enum::$value => $status,)+ $($enum::$up => $upstatus,)+ }
            }

            /// One sentence for the client and the log.
            pub fn sentence(self) -> &'static str {
                match self { $($enum::$value => $sentence,)+ $($enum::$up => $upsentence,)+ }
            }

            /// How it is logged.
            pub fn log_level(self) -> LogLevel {
                match self {
                    $($enum::$value => LogLevel::$level,)+
                    $($enum::$up => LogLevel::$uplevel,)+
                }
            }
        }
    };
}

outcomes! {
    /// How a request to a script ended.
    pub enum RequestOutcome {
        counted {
            /// The script responded.
            Responded => "responded" 200 Silent "The script responded.",
            /// The client closed the connection while the script ran.
            ClientLeft => "client_closed" 499 Debug "The client closed the connection.",
            /// The client closed the connection while the request was queued; no script ran.
            LeftQueue => "client_closed_queued" 499 Debug
                "The client closed the connection before the script started.",
            /// The queue already held `request_queue_length` requests.
            QueueFull => "queue_full" 503 Summary "All workers are busy and the queue is full.",
            /// No worker became free within `request_queue_timeout`.
            QueueTimeout => "queue_timeout" 503 Summary "No worker became free in time.",
            /// The script ran longer than `request_terminate_timeout`.
            Terminated => "terminated" 504 Error
                "The script ran longer than request_terminate_timeout.",
            /// The worker died while it ran the script.
            WorkerDied => "worker_died" 502 Error "The worker died while it ran the script.",
            /// The script's output is not a valid response.
            InvalidResponse => "invalid_response" 502 Error "The script's response is not valid.",
            /// The request's body could not be read back from disk.
            BodyLost => "body_unreadable" 500 Error
                "The request's body could not be read back from disk.",
            /// PHP cannot be started for the pool, or the pool is not configured any more.
            NoPool => "no_workers" 503 Summary
                "The pool has no workers: PHP cannot be started for it (see `maitred status`).",
            /// Rejected on arrival: the predicted wait exceeds `request_queue_timeout`.
            WaitTooLong => "wait_too_long" 503 Summary
                "The queue is too long for a response in time.",
            /// Shed from the queue: newer requests were served first for too long.
            Shed => "shed" 503 Summary "The server is overloaded, and newer requests came first.",
            /// No worker became free before the deadline that the client set.
            Deadline => "deadline" 503 Summary "No worker became free before the deadline.",
            /// Requests of its route (script and path) have ended too many workers.
            CrashLimit => "crash_limit" 503 Summary
                "Too many workers died while they ran requests like this one.",
        }
        upstream {
            /// The FastCGI server of a site with `upstream` cannot be reached.
            Unreachable => "unreachable" 502 Error "The upstream server cannot be reached.",
            /// It has as many connections as the limit of open files allows it.
            UpstreamFull => "upstream_full" 503 Summary
                "Too many connections to the upstream server are open.",
            /// It sent nothing for too long.
            UpstreamTimeout => "upstream_timeout" 504 Error "The upstream server timed out.",
        }
    }
}

impl RequestOutcome {
    /// Whether the request failed otherwise than by a rejection: the client stayed, and got a 502
    /// or a 504, or a 500 for a lost body.
    pub fn is_failure(self) -> bool {
        self.status() >= 500 && !self.is_rejection()
    }

    /// Whether no worker ran the request, and another attempt may succeed.
    pub fn is_rejection(self) -> bool {
        self.log_level() == LogLevel::Summary
    }

    /// Whether the request had waited until then, without a worker.
    pub fn is_end_of_wait(self) -> bool {
        matches!(
            self,
            RequestOutcome::QueueTimeout
                | RequestOutcome::LeftQueue
                | RequestOutcome::Shed
                | RequestOutcome::Deadline
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_outcomes_is_in_the_order_of_their_numbers() {
        for (number, outcome) in RequestOutcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, number);
        }
    }

    #[test]
    fn rejections_are_refusals_with_503() {
        for outcome in RequestOutcome::ALL {
            assert_eq!(outcome.is_rejection(), outcome.status() == 503, "{outcome:?}");
            let is_error = outcome.status() >= 500;
            assert_eq!(outcome.is_failure(), is_error && !outcome.is_rejection(), "{outcome:?}");
        }
    }
}
