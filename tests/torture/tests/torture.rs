//! The program itself, in short runs.

use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

/// Two runs at a time have half a machine each, and too little time after a fault.
static ALONE: Mutex<()> = Mutex::new(());

fn torture(arguments: &[&str]) -> (Output, String) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new(env!("CARGO_BIN_EXE_maitred-torture"));
    if std::env::var_os("MAITRED_BIN").is_none() {
        command.env("MAITRED_BIN", maitred_tests::maitred_program());
    }
    let output = command.args(arguments).output().expect("torture can be started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, text)
}

#[test]
fn a_server_under_traffic_of_all_kinds_survives_some_faults() {
    let faults = "kill-workers,kill-front,reload,upgrade,leaving-clients,freeze-pool,little-memory,\
                  silent-names,kill-consumer,kill-redis,stop-redis,slow-redis,stop-purges,\
                  no-collector,slow-collector,broken-collector";
    let (output, text) = torture(&["--minutes", "0.25", "--seed", "1", "--only", faults]);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let last = text.lines().last().unwrap_or_default();
    assert!(last.starts_with("torture: OK: ") && last.ends_with("violations: 0"), "{text}");
    // Each kind of traffic was served.
    for kind in [
        "pages",
        "uploads",
        "cached pages",
        "other node",
        "purges",
        ".htaccess",
        "WebSocket",
        "TLS, HTTP/2",
        "dashboards",
        "exports",
    ] {
        let line = text.lines().find(|line| line.starts_with(&format!("torture: {kind} ")));
        assert!(line.is_some_and(|line| !line.contains(" 0 right")), "{kind}: {text}");
    }
}

#[test]
fn a_server_whose_node_is_its_peer_survives_some_faults() {
    let faults = "kill-purges,stop-purges,kill-front";
    let (output, text) = torture(&["--minutes", "0.1", "--seed", "1", "--peers", "--only", faults]);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let purges = text.lines().find(|line| line.starts_with("torture: purges "));
    assert!(purges.is_some_and(|line| !line.contains(" 0 right")), "{text}");
}

#[test]
fn a_fault_that_does_not_exist_is_refused() {
    let (output, _) = torture(&["--only", "kill-everybody"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no fault has the name"));
}
