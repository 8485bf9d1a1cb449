//! PHP's memory.

unsafe extern "C" {
    fn maitred_php_peak_memory() -> usize;
}

/// The most memory that PHP's allocator has taken from the system for the request in hand, in bytes;
/// 0 when there is none.
pub fn peak_memory() -> usize {
    // SAFETY: it reads two numbers of an engine that has one thread, which is this one: a process
    // that runs PHP has no other.
    unsafe { maitred_php_peak_memory() }
}
