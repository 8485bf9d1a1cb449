//! The process title that `ps` shows: it overwrites the memory of our arguments and environment.

use std::ffi::{CString, OsString};
use std::sync::Mutex;

use crate::proc::Stat;

struct Area {
    start: usize,
    bytes: usize,
}

static AREA: Mutex<Option<Area>> = Mutex::new(None);

/// Finds and frees the title's memory. Call it first thing in `main`, while there is one thread and
/// no pointer into the environment was stored.
pub fn prepare() {
    let Some(area) = argument_area() else { return };
    let environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    // SAFETY: there is one thread; `clearenv` gives up the kernel's strings, and every variable
    // is then set again, in memory of the allocator's.
    unsafe {
        libc::clearenv();
        for (name, value) in environment {
            std::env::set_var(name, value);
        }
    }
    if let Ok(mut slot) = AREA.lock() {
        *slot = Some(area);
    }
}

/// Sets the title, truncated to the available bytes, and its start as the name of the program.
pub fn set(title: &str) {
    set_with_name(title, title);
}

/// Sets the title, truncated to the available bytes, and the first 15 bytes of `name` as the name
/// of the program (`comm`), which `pgrep` and `killall` use.
pub fn set_with_name(title: &str, name: &str) {
    let short: String = name.chars().filter(char::is_ascii).take(15).collect();
    if let Ok(name) = CString::new(short) {
        let _ = nix::sys::prctl::set_name(&name);
    }
    let Ok(slot) = AREA.lock() else { return };
    let Some(area) = slot.as_ref() else { return };
    let length = title.len().min(area.bytes - 1);
    // SAFETY: the area is the kernel's argument and environment block, which stays mapped and
    // writable for the life of the process; `prepare` moved all users of it away.
    unsafe {
        let start = area.start as *mut u8;
        std::ptr::write_bytes(start, 0, area.bytes);
        std::ptr::copy_nonoverlapping(title.as_ptr(), start, length);
    }
}

/// Fields 48 to 51 of `/proc/self/stat` (proc(5)): the addresses of arguments and environment.
fn argument_area() -> Option<Area> {
    let own = Stat::of("self")?;
    let (arguments, arguments_end): (usize, usize) = (own.field(48)?, own.field(49)?);
    let (environment, environment_end): (usize, usize) = (own.field(50)?, own.field(51)?);
    let end = if environment == arguments_end { environment_end } else { arguments_end };
    (arguments != 0 && end > arguments).then(|| Area { start: arguments, bytes: end - arguments })
}
