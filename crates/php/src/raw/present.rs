//! State of the running request.

use std::ffi::c_int;

unsafe extern "C" {
    fn maitred_php_peak_memory() -> usize;
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
