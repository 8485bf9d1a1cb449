//! A zygote and a command enter the control group that they inherit, and close it before code of
//! their pool runs.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use maitred_control::{FromZygote, Received, hear_report};
use maitred_os::cgroup::Group;
use maitred_os::channel::Channel;
use maitred_os::{shared, spawn};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// Longer than any start takes.
const LONG: Duration = Duration::from_secs(60);

/// A group of its own; none, with a message, where none can be made.
fn group(name: &str) -> Option<Group> {
    let name = format!("maitred-test-{name}-{}", std::process::id());
    match Group::of_this_process().and_then(|own| own.make(&name)) {
        Ok(group) => Some(group),
        Err(error) => {
            eprintln!("skipped: no control group can be made here: {error}");
            None
        }
    }
}

fn start(role: &str, inherit: &[BorrowedFd<'_>], group: BorrowedFd<'_>) -> i32 {
    spawn::start(&spawn::Program {
        path: Path::new(env!("CARGO_BIN_EXE_maitred-php")),
        name: OsStr::new("maitred-php"),
        arguments: &[OsStr::new(role)],
        environment: &[],
        inherit,
        output: None,
        group: Some(group),
    })
    .unwrap()
}

fn end(pid: i32, group: &Group) {
    let pid = Pid::from_raw(pid).unwrap();
    let _ = kill_process(pid, Signal::KILL);
    let _ = waitpid(Some(pid), WaitOptions::empty());
    group.remove().unwrap();
}

#[test]
fn a_zygote_enters_its_group_and_closes_the_way_in() {
    let Some(group) = group("zygote") else { return };
    let entrance = group.entrance().unwrap();
    let (_control, theirs) = Channel::pair().unwrap();
    let pid = start("zygote", &theirs.descriptors(), entrance.as_fd());
    let members = group.path().join("cgroup.procs");
    let has_entered = || {
        let listed = fs::read_to_string(&members).unwrap();
        let is_member = listed.lines().any(|one| one == pid.to_string());
        let opened = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let mut targets = opened.filter_map(|one| fs::read_link(one.path()).ok());
        is_member && !targets.any(|target| target.ends_with("cgroup.procs"))
    };
    let until = Instant::now() + LONG;
    while !has_entered() {
        assert!(Instant::now() < until, "the zygote has not entered its group");
        std::thread::sleep(Duration::from_millis(10));
    }
    end(pid, &group);
}

#[test]
fn a_zygote_that_cannot_enter_its_group_does_not_start() {
    let Some(group) = group("refused") else { return };
    let (mut control, theirs) = Channel::pair().unwrap();
    // It takes no `0`.
    let refuses = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let pid = start("zygote", &theirs.descriptors(), refuses.as_fd());
    drop(theirs);
    let mut reported = [PollFd::from_borrowed_fd(control.reports(), PollFlags::IN)];
    assert_eq!(poll(&mut reported, Some(&Timespec::try_from(LONG).unwrap())), Ok(1));
    let report = hear_report(&mut control).unwrap();
    let Received::Message(FromZygote::StartFailed { why }, _) = report else {
        panic!("expected a failure, got {report:?}");
    };
    assert!(why.starts_with("it cannot enter its pool's control group: "), "{why}");
    end(pid, &group);
}

#[test]
fn a_command_runs_in_its_group_without_the_way_in() {
    let Some(group) = group("command") else { return };
    let entrance = group.entrance().unwrap();
    let name = group.path().file_name().unwrap().to_str().unwrap();
    let looks = format!(
        "grep -q '^0::.*/{name}$' /proc/self/cgroup && ! ls -l /proc/self/fd | grep cgroup.procs"
    );
    let launch = serde_json::json!({
        "settings": {
            "pool": "www", "process_manager": "static", "supervisor": std::process::id(),
            "php_values": [], "php_admin_values": [], "env": [], "confinement": {}, "seats": 1,
            "max_requests": 0, "max_private_memory": 0,
        },
        "title": "command looks",
        "command": ["/bin/sh", "-c", looks],
    });
    let file = shared::file_with("launch", launch.to_string().as_bytes()).unwrap();
    let pid = Pid::from_raw(start("launch", &[file.as_fd()], entrance.as_fd()));
    let (_, status) = waitpid(pid, WaitOptions::empty()).unwrap().unwrap();
    group.remove().unwrap();
    assert_eq!(status.exit_status(), Some(0), "{status:?}");
}
