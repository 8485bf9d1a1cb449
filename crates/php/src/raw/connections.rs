//! The connections that the boot of an application has opened.

use std::ffi::{CStr, c_char, c_int};

unsafe extern "C" {
    fn maitred_php_connected_at(descriptor: c_int, line: *mut u32) -> *const c_char;
}

/// The file and line in which the boot of an application has opened this connection, if known.
pub fn connected_at(descriptor: i32) -> Option<(String, u32)> {
    let mut line = 0;
    // SAFETY: it looks through a list of its own, in a process whose only thread is this one.
    let file = unsafe { maitred_php_connected_at(descriptor, &raw mut line) };
    if file.is_null() {
        return None;
    }
    // SAFETY: it ends with a zero, and stays until the next connect().
    let file = unsafe { CStr::from_ptr(file) };
    Some((file.to_string_lossy().into_owned(), line))
}
