//! Exit codes of zygotes and workers. Every other exit code, and every signal, counts as a failure.

/// A planned exit of a worker: after `max_requests`, or at the supervisor's request.
pub const RECYCLED: i32 = 0;

/// PHP could not start in this process. `EX_SOFTWARE` of sysexits.h.
pub const START_FAILED: i32 = 70;

/// Exit of a worker after PHP bailed out of a script (a fatal error, memory exhausted). The worker
/// is replaced, and does not count as failed. `EX_TEMPFAIL` of sysexits.h.
pub const BAILOUT: i32 = 75;

/// A script has closed the descriptors that a worker notifies the front with: it cannot serve as it
/// should, and is replaced. `EX_PROTOCOL` of sysexits.h.
pub const CUT_OFF: i32 = 76;

/// A worker's script ended before it took a request. `EX_CONFIG` of sysexits.h.
pub const NOT_BOOTED: i32 = 78;

/// A planned exit of a worker whose script has reported that the scripts in memory are outdated:
/// its pool needs a new generation. Not a code of sysexits.h.
pub const RENEW: i32 = 79;

/// A planned exit of a worker whose script declares a name that exists: its pool needs a generation
/// without preloading. Not a code of sysexits.h.
pub const CONFLICT: i32 = 80;

/// Whether a worker that exited with `code` failed.
pub fn is_failure(code: i32) -> bool {
    !matches!(code, RECYCLED | BAILOUT | RENEW | CONFLICT)
}
