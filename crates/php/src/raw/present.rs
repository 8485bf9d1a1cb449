//! State of the running request, and of its process.

use std::ffi::c_int;

/// PHP's cache of real paths in this process, in bytes. `shim.h` has the same struct.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RealpathCache {
    /// Bytes in use.
    pub used: u64,
    /// Its size (`realpath_cache_size`). With `open_basedir`, PHP uses none of it.
    pub limit: u64,
}

unsafe extern "C" {
    fn maitred_php_peak_memory() -> usize;
    fn maitred_php_count_requests(started: u64);
    fn maitred_php_realpath_cache() -> RealpathCache;
    fn maitred_php_response_status() -> c_int;
    fn maitred_php_exit_status() -> c_int;
}

/// Peak memory that PHP's allocator took from the system for the running request, in bytes; 0 when
/// there is none.
pub fn peak_memory() -> usize {
    // SAFETY: it reads two numbers of an engine that has one thread, which is this one: a process
    // that runs PHP has no other.
    unsafe { maitred_php_peak_memory() }
}

/// Sets how many requests this process has started before the next one: its own count is that of
/// the process that it was forked from, or of before a rewind. [`read_stack`](crate::read_stack)
/// finds a request by its number.
pub fn count_requests(started: u64) {
    // SAFETY: as for `peak_memory`; it writes one number that another process may read.
    unsafe { maitred_php_count_requests(started) }
}

/// The current status of the response; 0 when there is none.
pub fn response_status() -> u16 {
    // SAFETY: as for `peak_memory`.
    let status = unsafe { maitred_php_response_status() };
    u16::try_from(status).unwrap_or(0)
}

/// The exit status of a program in its place: 255 after a fatal error.
pub fn exit_status() -> u32 {
    // SAFETY: as for `peak_memory`.
    let status = unsafe { maitred_php_exit_status() };
    u32::try_from(status).unwrap_or(0)
}

/// PHP's cache of real paths, which lives as long as this process.
pub fn realpath_cache() -> RealpathCache {
    // SAFETY: as for `peak_memory`.
    unsafe { maitred_php_realpath_cache() }
}
