//! A network and a resolver of the run's own, where the system has namespaces for them.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Set in the namespaces.
const INSIDE: &str = "MAITRED_TORTURE_INSIDE";
/// The loopback interface is up, and the resolver uses the run's own name server.
const ENTER: &str = "ip link set lo up && file=$(mktemp) && echo nameserver 127.0.0.1 >$file && \
    chmod 644 $file && mount --bind $file /etc/resolv.conf && rm $file && exec \"$@\"";

/// Whether this process has a network and a resolver of its own.
pub fn is_own() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Starts this program again in namespaces of its own, in place of this process. Returns where that
/// is not possible, and in them.
pub fn enter() {
    let words = ["--net", "--mount", "--", "/bin/sh", "-c", ENTER, "sh"];
    let has_namespaces = || {
        let tried = Command::new("unshare").args(words).arg("true").output();
        tried.is_ok_and(|done| done.status.success())
    };
    if is_own() || !has_namespaces() {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let mut again = Command::new("unshare");
    again.args(words).arg(program).args(std::env::args_os().skip(1)).env(INSIDE, "1");
    // It returns only if the program is not started.
    println!("torture: no namespaces: {}", again.exec());
}
