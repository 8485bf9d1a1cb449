//! The counters of the application.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The functions that count, as an extension for PHP's command line of this program's version.
pub const METRICS_EXTENSION: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/maitred_metrics.so"));

/// The variable of the environment that names the extension's descriptors: its own file, and the
/// memory that it counts in, with a comma.
pub const METRICS_VARIABLE: &str = "MAITRED_METRICS";

unsafe extern "C" {
    fn maitred_metrics_map(fd: c_int);
}

/// Has scripts count in this memory, from the next request on. Another file is left out: nothing is
/// counted then.
pub fn count_in(memory: BorrowedFd<'_>) {
    // SAFETY: it maps the file, whose size it checks, and closes nothing; the mapping stays as long
    // as the process, whose only thread is this one.
    unsafe { maitred_metrics_map(memory.as_raw_fd()) }
}
