//! A reload of a server that was started as php-fpm, where another program has come to lie in the
//! place of ours: that takes over first.

use std::fs;
use std::path::Path;

use maitred_tests::fpm::{Daemon, usual};
use maitred_tests::installed::{install, installed, replace};
use maitred_tests::maitred_program;
use maitred_tests::processes::{Process, Signal};

/// What is said of upgrades has the level DEBUG there.
const DEBUG: &str = "[global]\nlog_level = debug\n[www]\n";

const UPGRADED: &str = "upgraded to maitred";
const READY: &str = "ready to handle connections";

fn start(program: &Path) -> Daemon {
    Daemon::start_program(program, &usual(DEBUG))
}

fn front(daemon: &Daemon) -> Option<Process> {
    let mut all = daemon.processes().into_iter();
    all.find(|process| process.title.starts_with("php-fpm: front"))
}

/// Reloads, and waits for a line that says what came of it, or of the upgrade before it.
fn reload(daemon: &mut Daemon, outcome: &str) {
    let mark = daemon.log().mark();
    daemon.signal(Signal::USR2);
    daemon.expect_log(mark, outcome);
    // Whatever came of the upgrade, the reload comes after it.
    daemon.expect_log(mark, READY);
}

#[test]
fn a_program_that_could_not_take_over_is_asked_again_at_the_next_reload() {
    let folder = installed();
    let program = folder.path().join("maitred");
    let (real, can) = (folder.path().join("real"), folder.path().join("can"));
    let mut daemon = start(&program);
    let before = front(&daemon).expect("a front runs");
    fs::rename(&program, &real).expect("a program can be renamed");
    let script = format!("[ -e {} ] || exit 3\nexec {} \"$@\"", can.display(), real.display());
    replace(&program, &script);
    reload(&mut daemon, "the upgrade is refused");
    assert_eq!(front(&daemon), Some(before));
    // The same file as before, which can take over now.
    fs::write(can, "").expect("a file can be written");
    reload(&mut daemon, UPGRADED);
    daemon.stop();
}

#[test]
fn a_program_that_took_over_without_coming_to_serve_does_so_again_at_the_next_reload() {
    let folder = installed();
    let mut daemon = start(&folder.path().join("maitred"));
    for name in ["maitred", "maitred-php"] {
        install(&maitred_program().with_file_name(name), folder.path());
    }
    let php = folder.path().join("maitred-php");
    let good = folder.path().join("good");
    fs::rename(&php, &good).expect("a program can be renamed");
    replace(&php, "exit 1");
    let mark = daemon.log().mark();
    daemon.signal(Signal::USR2);
    daemon.expect_log(mark, "with the front and the workers of the one before");
    daemon.expect_log(mark, "pool www goes on as it was");
    fs::rename(&good, &php).expect("a program can be renamed");
    reload(&mut daemon, UPGRADED);
    daemon.stop();
}
