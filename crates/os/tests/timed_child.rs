//! Forking, in a program with one thread.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use maitred_os::cgroup::Group;
use maitred_os::fork::{HowEnded, OwnProc, Side, exit_now, fork_orphan, reap};
use maitred_os::forked_task::{fork_task, run_task};
use maitred_os::packets::Packets;
use maitred_os::preemption::PreemptionProbe;
use maitred_os::sigterm;
use maitred_os::timed_child::{ChildResult, TimedChild, TimedFork, fork_timed};
use maitred_os::users;
use nix::sys::signal::Signal;

/// Longer than any of these waits should last.
const LONG: Duration = Duration::from_secs(60);

fn main() {
    let tests: [(&str, fn()); 11] = [
        ("a_child_that_ends_says_how", a_child_that_ends_says_how as fn()),
        ("a_child_that_takes_too_long_is_killed", a_child_that_takes_too_long_is_killed),
        (
            "a_child_that_nobody_waits_for_any_more_is_killed",
            a_child_that_nobody_waits_for_any_more_is_killed,
        ),
        ("a_child_prints_to_nowhere", a_child_prints_to_nowhere),
        (
            "a_task_has_no_descriptors_but_those_for_it_and_ends_by_a_panic",
            a_task_has_no_descriptors_but_those_for_it_and_ends_by_a_panic,
        ),
        (
            "a_task_that_takes_too_long_is_killed_and_not_waited_for",
            a_task_that_takes_too_long_is_killed_and_not_waited_for,
        ),
        (
            "a_limit_of_memory_of_a_used_group_is_written_by_another_process",
            a_limit_of_memory_of_a_used_group_is_written_by_another_process,
        ),
        (
            "a_task_dies_with_who_began_it_also_with_the_rights_of_another_user",
            a_task_dies_with_who_began_it_also_with_the_rights_of_another_user,
        ),
        ("a_child_dies_with_who_sent_it", a_child_dies_with_who_sent_it),
        (
            "a_child_of_one_that_heeds_sigterm_ends_by_it",
            a_child_of_one_that_heeds_sigterm_ends_by_it,
        ),
        (
            "an_orphan_knows_whether_it_has_kept_its_processor_if_its_origin_does",
            an_orphan_knows_whether_it_has_kept_its_processor_if_its_origin_does,
        ),
    ];
    for (name, test) in tests {
        test();
        assert!(matches!(reap(), Ok(None)), "{name} left a child uncollected");
        println!("test {name} ... ok");
    }
}

/// Sends a child to do `work`.
fn send(work: impl FnOnce()) -> TimedChild {
    match fork_timed(&OwnProc::open().unwrap()).unwrap() {
        TimedFork::Parent(runner) => runner,
        TimedFork::Child => {
            work();
            exit_now(7)
        }
    }
}

fn hang() {
    loop {
        std::thread::park();
    }
}

fn a_child_that_ends_says_how() {
    let (ours, _theirs) = Packets::pair().unwrap();
    let returned = send(|| {}).wait(LONG, ours.as_fd()).unwrap();
    assert_eq!(returned, ChildResult::Ended(HowEnded::Exited(7)));
    let returned = send(|| std::process::abort()).wait(LONG, ours.as_fd()).unwrap();
    assert_eq!(returned, ChildResult::Ended(HowEnded::Signaled(6)));
}

fn a_child_that_takes_too_long_is_killed() {
    let (ours, _theirs) = Packets::pair().unwrap();
    let runner = send(hang);
    let returned = runner.wait(Duration::from_millis(20), ours.as_fd());
    assert_eq!(returned.unwrap(), ChildResult::TimedOut);
}

fn a_child_that_nobody_waits_for_any_more_is_killed() {
    let (ours, theirs) = Packets::pair().unwrap();
    // The child has a copy of the other end, and must let go of it.
    let runner = match fork_timed(&OwnProc::open().unwrap()).unwrap() {
        TimedFork::Parent(runner) => runner,
        TimedFork::Child => {
            drop(theirs);
            hang();
            exit_now(0)
        }
    };
    drop(theirs);
    let begun = Instant::now();
    let returned = runner.wait(LONG, ours.as_fd()).unwrap();
    assert_eq!(returned, ChildResult::Cancelled);
    assert!(begun.elapsed() < LONG);
}

fn a_child_prints_to_nowhere() {
    let (read, write) = rustix::pipe::pipe().unwrap();
    let kept = rustix::io::dup(rustix::stdio::stdout()).unwrap();
    rustix::stdio::dup2_stdout(&write).unwrap();
    drop(write);
    let runner = send(|| {
        println!("heard");
        let _ = std::io::stdout().flush();
    });
    rustix::stdio::dup2_stdout(&kept).unwrap();
    let (ours, _theirs) = Packets::pair().unwrap();
    runner.wait(LONG, ours.as_fd()).unwrap();
    let mut heard = String::new();
    File::from(read).read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "");
}

fn a_task_has_no_descriptors_but_those_for_it_and_ends_by_a_panic() {
    let files: Vec<File> = (0..4).map(|_| File::open("/dev/null").unwrap()).collect();
    let kept = [files[2].as_fd(), files[0].as_fd()];
    let numbers: Vec<i32> = kept.iter().map(AsRawFd::as_raw_fd).collect();
    let task = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        let open: Vec<i32> =
            all.map(|fd| fd.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
        let is_known = |fd: &i32| *fd < 3 || numbers.contains(fd);
        // One more lists them.
        let others = open.iter().filter(|fd| !is_known(fd)).count();
        let are_kept = numbers.iter().all(|fd| open.contains(fd));
        if are_kept && others == 1 { 7 } else { 8 }
    };
    let pid = fork_task(&kept, task).unwrap();
    assert_eq!(collect(), (pid, HowEnded::Exited(7)));
    std::panic::set_hook(Box::new(|_| {}));
    let pid = fork_task(&[], || panic!("in the task")).unwrap();
    let _ = std::panic::take_hook();
    assert_eq!(collect(), (pid, HowEnded::Exited(101)));
}

fn a_task_that_takes_too_long_is_killed_and_not_waited_for() {
    assert_eq!(run_task(LONG, &[], || 7).unwrap(), Some(7));
    let sleeps = || {
        std::thread::sleep(LONG);
        8
    };
    assert_eq!(run_task(Duration::from_millis(50), &[], sleeps).unwrap(), None);
    assert_eq!(collect().1, HowEnded::Signaled(9));
}

fn a_limit_of_memory_of_a_used_group_is_written_by_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let group = Group::of_this_process().and_then(|own| own.make(&folder.path().to_string_lossy()));
    let Ok(group) = group else { return println!("skipped: no control group") };
    for (name, text) in [("memory.current", "4096\n"), ("memory.max", "")] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    group.limit_memory("memory.max", "8192", LONG).unwrap();
    assert!(group.has("memory.max", "8192") && group.has("memory.max", "8195"));
    assert!(!group.has("memory.max", "4096") && !group.has("memory.max", "max"));
    let missing = group.limit_memory("memory.high", "8192", LONG).unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
    assert!(reap().unwrap().is_none(), "the process was collected");
}

fn a_task_dies_with_who_began_it_also_with_the_rights_of_another_user() {
    if !users::is_root() {
        return println!("skipped: only root can take the rights of another user");
    }
    let user = users::look_up("nobody", None).unwrap();
    let dies = || nix::sys::prctl::get_pdeathsig().unwrap() == Some(Signal::SIGKILL);
    let task = || {
        let meanwhile = users::with_rights_of(&user, dies).unwrap();
        if meanwhile && dies() { 7 } else { 8 }
    };
    let pid = fork_task(&[], task).unwrap();
    assert_eq!(collect(), (pid, HowEnded::Exited(7)));
}

/// Waits for the end of the only child.
fn collect() -> (i32, HowEnded) {
    let until = Instant::now() + LONG;
    while Instant::now() < until {
        if let Some(ended) = reap().unwrap() {
            return (ended.pid, ended.how);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("no child ended");
}

fn a_child_dies_with_who_sent_it() {
    let (read, write) = rustix::pipe::pipe().unwrap();
    // A process that forks a child and exits at once; the child holds the pipe while it lives.
    let sender = send(move || {
        let _runner = send(hang);
        drop(write);
    });
    let (ours, _theirs) = Packets::pair().unwrap();
    sender.wait(LONG, ours.as_fd()).unwrap();
    // Ends when no process holds the pipe.
    let mut rest = Vec::new();
    File::from(read).read_to_end(&mut rest).unwrap();
}

fn a_child_of_one_that_heeds_sigterm_ends_by_it() {
    static WORD: AtomicU32 = AtomicU32::new(1);
    sigterm::install_handler(&WORD).unwrap();
    let child = send(|| {
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::TERM).unwrap();
    });
    let (ours, _theirs) = Packets::pair().unwrap();
    let returned = child.wait(LONG, ours.as_fd()).unwrap();
    assert_eq!(returned, ChildResult::Ended(HowEnded::Signaled(15)));
    assert!(!sigterm::has_arrived());
}

fn an_orphan_knows_whether_it_has_kept_its_processor_if_its_origin_does() {
    let knows = || u8::from(PreemptionProbe::of_this_thread().is_some());
    let (reads, writes) = nix::unistd::pipe().unwrap();
    let (mut reads, mut writes) = (File::from(reads), File::from(writes));
    if let Side::Orphan = fork_orphan(&OwnProc::open().unwrap(), |_| {}).unwrap() {
        let said = writes.write_all(&[knows()]);
        exit_now(i32::from(said.is_err()))
    }
    drop(writes);
    let mut said = Vec::new();
    reads.read_to_end(&mut said).unwrap();
    assert_eq!(said, [knows()]);
}
