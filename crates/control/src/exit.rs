//! Exit codes of zygotes and workers. Every other exit code, and every signal, counts as a failure.

/// A worker left as it should: it had served `max_requests`, or was asked to stop.
pub const RECYCLED: i32 = 0;

/// PHP could not start in this process. `EX_SOFTWARE` of sysexits.h.
pub const START_FAILED: i32 = 70;

/// A worker ended because PHP bailed out of a script (a fatal error, memory exhausted). A recycle
/// with a reason of its own, never a failure. `EX_TEMPFAIL` of sysexits.h.
pub const BAILOUT: i32 = 75;

/// A worker's script ended before it took a request. `EX_CONFIG` of sysexits.h.
pub const NOT_BOOTED: i32 = 78;

/// A worker left as it should, and its script has reported that scripts in memory are outdated: its
/// pool needs a new generation. Not one of sysexits.h.
pub const RENEW: i32 = 79;

/// Whether a worker that exited with `code` failed.
pub fn is_failure(code: i32) -> bool {
    !matches!(code, RECYCLED | BAILOUT | RENEW)
}
