//! What a worker says beside its answer when the server runs as php-fpm: where it goes, and when it
//! is complete.

use std::io::Write as _;
use std::os::fd::OwnedFd;

use maitred_control::ZygoteSettings;

/// What php-fpm's workers write at the end of a request: all they have said is complete
/// (`fpm_stdio_flush_child`).
const FLUSH: &[u8] = b"\0fscf\0";

/// Makes standard output and error what the supervisor has sent, if it has.
pub fn speak_into(output: Vec<OwnedFd>) {
    let mut output = output.into_iter();
    if let (Some(stdout), Some(stderr)) = (output.next(), output.next()) {
        // It cannot fail: both are open.
        let _ = rustix::stdio::dup2_stdout(&stdout).and(rustix::stdio::dup2_stderr(&stderr));
    }
}

/// The request is over: what was said without the end of a line is a whole message.
pub fn complete(settings: &ZygoteSettings) {
    if settings.catches_output {
        let _ = std::io::stderr().write_all(FLUSH);
    }
}
