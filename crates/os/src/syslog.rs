//! The system's log (syslog(3)).

use std::ffi::CString;
use std::sync::Mutex;

/// Severity of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Immediate action is required.
    Alert,
    /// An error.
    Error,
    /// A warning.
    Warning,
    /// Normal, but significant.
    Notice,
    /// For debugging.
    Debug,
}

/// The name that messages carry. The C library keeps a pointer into it.
static IDENT: Mutex<Option<CString>> = Mutex::new(None);

/// Opens the system's log: messages contain the name `ident` (without NUL) and our process id, and
/// belong to `facility`, as `syslog.h` numbers it.
pub fn open(ident: &str, facility: i32) {
    let Ok(name) = CString::new(ident.replace('\0', "")) else {
        return;
    };
    let Ok(mut kept) = IDENT.lock() else { return };
    // SAFETY: `closelog` forgets the previous name, so that it may be freed.
    unsafe { libc::closelog() };
    let name = kept.insert(name);
    // SAFETY: the name is kept until after the next `closelog`, above.
    unsafe { libc::openlog(name.as_ptr(), libc::LOG_PID | libc::LOG_CONS, facility) };
}

/// Writes one message. A NUL in it ends it; a missing reader is no error.
pub fn write(priority: Priority, message: &[u8]) {
    let end = message.iter().position(|byte| *byte == 0);
    let Ok(text) = CString::new(&message[..end.unwrap_or(message.len())]) else {
        return;
    };
    let priority = match priority {
        Priority::Alert => libc::LOG_ALERT,
        Priority::Error => libc::LOG_ERR,
        Priority::Warning => libc::LOG_WARNING,
        Priority::Notice => libc::LOG_NOTICE,
        Priority::Debug => libc::LOG_DEBUG,
    };
    // SAFETY: both strings end in NUL and outlive the call; the format takes one of them.
    unsafe { libc::syslog(priority, c"%s".as_ptr(), text.as_ptr()) };
}
