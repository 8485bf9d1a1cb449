//! A worker's messages beside its response, as php-fpm's workers write them: PHP's messages, and
//! the scripts' standard output and error.

use std::borrow::Cow;
use std::io::Write as _;
use std::os::fd::OwnedFd;

use maitred_control::{WorkersOutput, ZygoteSettings};
use maitred_php::Level;

/// The marker that php-fpm's workers write at the end of a request: all output is complete
/// (`fpm_stdio_flush_child`).
const FLUSH: &[u8] = b"\0fscf\0";

/// Prefix of a worker's message (`zlog.c`).
const NOTICE: &[u8] = b"NOTICE: ";

/// End of a truncated message.
const CUT: &[u8] = b"...";

/// Sets standard output and error to the supervisor's descriptors, if there are any.
pub fn redirect_output(output: &[OwnedFd]) {
    let mut output = output.iter();
    if let (Some(stdout), Some(stderr)) = (output.next(), output.next()) {
        // It cannot fail: both are open.
        let _ = rustix::stdio::dup2_stdout(stdout).and(rustix::stdio::dup2_stderr(stderr));
    }
}

/// Ends a request's output: an incomplete line counts as a message.
pub fn complete(settings: &ZygoteSettings) {
    if settings.output.as_ref().is_some_and(|output| output.caught) {
        let _ = std::io::stderr().write_all(FLUSH);
    }
}

/// Logs a line to standard error.
pub fn say(line: &str) {
    // `eprintln!` would panic if standard error is closed.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The form of a message for the web server; if output is captured, it is printed, too, unless it
/// is a debug message.
pub fn message<'a>(settings: &ZygoteSettings, level: Level, message: &'a [u8]) -> Cow<'a, [u8]> {
    let Some(output) = &settings.output else {
        return Cow::Borrowed(message);
    };
    let message = cut(output, message);
    if output.caught && level > Level::Debug {
        let name: &[u8] = match level {
            Level::Error => b"ERROR: ",
            Level::Warning => b"WARNING: ",
            _ if output.notices => NOTICE,
            _ => b"",
        };
        let _ = std::io::stderr().write_all(&[name, &message, b"\n"].concat());
    }
    message
}

/// A line of php-fpm's log has at most `limit` bytes, including its end.
fn cut<'a>(output: &WorkersOutput, message: &'a [u8]) -> Cow<'a, [u8]> {
    let name = if output.notices { NOTICE.len() } else { 0 };
    let room = output.limit.saturating_sub(name + 1).max(CUT.len());
    if message.len() <= room {
        return Cow::Borrowed(message);
    }
    Cow::Owned([&message[..room - CUT.len()], CUT].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_where_php_fpm_cuts_them() {
        let output = WorkersOutput { caught: true, limit: 2048, notices: true };
        let long = [&b"PHP message: "[..], &[b't'; 4000]].concat();
        let expected = [&b"PHP message: "[..], &[b't'; 2023], b"..."].concat();
        assert_eq!(cut(&output, &long), expected);
        let whole = vec![b't'; 2039];
        assert_eq!(cut(&output, &whole), whole);
    }
}
