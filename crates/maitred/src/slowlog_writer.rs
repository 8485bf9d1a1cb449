//! The process that writes entries of a slow log with the rights of the pool's user, started by the
//! server. The tenant decides what the path leads to and who locks it, so this may wait for as long
//! as they like; the supervisor does not wait for it.

use std::fs::File;
use std::io::{self, Write};
use std::process::ExitCode;

use maitred_control::slowlog_entries::SlowlogEntries;
use maitred_os::{fork, guarded, spawn, title, users};

use crate::exit_code::{EXIT_SUCCESS, refuse};

/// The exit code of an error without a number (`EIO`).
const OTHER_ERROR: u8 = 5;

/// Writes the entries of the inherited file.
pub fn slowlog_writer() -> ExitCode {
    title::set("maitred: slow log");
    let Ok(order) = spawn::inherited(0) else {
        return refuse(&"`maitred slowlog-writer` is started by `maitred serve`, not by hand");
    };
    maitred_os::signals::ignore_sigpipe();
    // A stop waits for it, and kills it if it takes too long.
    maitred_os::signals::ignore_sigterm();
    match write(File::from(order)) {
        Ok(()) => ExitCode::from(EXIT_SUCCESS),
        Err(why) => {
            let number = why.raw_os_error().and_then(|number| u8::try_from(number).ok());
            ExitCode::from(number.unwrap_or(OTHER_ERROR))
        }
    }
}

fn write(order: File) -> io::Result<()> {
    let parent = i32::try_from(std::os::unix::process::parent_id()).unwrap_or(0);
    let order: SlowlogEntries = serde_json::from_reader(order)?;
    users::become_user(&order.identity)?;
    // The kernel forgets that with a change of the user.
    fork::die_with_parent(parent);
    let mut log = guarded::append_with_their_rights(&order.path, order.mode)?;
    // In one piece, so that entries of several pools do not mix.
    match log.write(order.entries.as_bytes())? == order.entries.len() {
        true => Ok(()),
        false => Err(rustix::io::Errno::NOSPC.into()),
    }
}
