//! Checks whether a process that a zygote announced is a worker of ours.
//!
//! A zygote runs as its pool's user and is not trusted. Two questions to the kernel settle it: is
//! the process our child, and does it run as the pool's user? What the supervisor has started for
//! another purpose is refused beside that (`run/children.rs`). At worst, a lying zygote can name an
//! orphan of its own user, which it could kill anyway.

use std::os::fd::{AsFd, OwnedFd};

use maitred_os::{proc, signals};
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, waitid};

/// The result of the check.
#[derive(Debug)]
pub enum ChildCheck {
    /// Our child, of the right user, and its pidfd.
    Ours(OwnedFd),
    /// Not our child, at least not yet: the intermediate process that forked it may still run.
    NotYet,
    /// Our child, of another user.
    Stranger,
}

/// Checks process `pid`, which has to run as `uid`.
///
/// `waitid(2)` on a pidfd refers to exactly the process of the descriptor, and fails (`ECHILD`) for
/// a process that is not the caller's child; a pid read from `/proc` could be reused between two
/// checks.
pub fn see(pid: i32, uid: u32) -> ChildCheck {
    let Ok(pidfd) = signals::pidfd(pid) else {
        return ChildCheck::NotYet;
    };
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::PidFd(pidfd.as_fd()), look) {
        Ok(_) if runs_as(pid, uid) => ChildCheck::Ours(pidfd),
        Ok(_) => ChildCheck::Stranger,
        Err(_) => ChildCheck::NotYet,
    }
}

/// Whether any child of ours is left, dead or alive.
pub fn any_child() -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::All, look), Err(Errno::CHILD))
}

/// All our children, including orphans of scripts.
pub fn children() -> Vec<i32> {
    let lists = proc::threads("self")
        .filter_map(|thread| proc::read(format!("self/task/{thread}"), "children"));
    lists.flat_map(|list| numbers(&list)).collect()
}

/// The first children of the first thread of a process: a tenant decides how many threads and
/// children it has. Those of the other threads become ours when it has ended.
pub fn children_of(pid: i32) -> Vec<i32> {
    let list = proc::read_once(format!("{pid}/task/{pid}"), "children");
    list.map_or_else(Vec::new, |list| numbers(&list))
}

fn numbers(list: &str) -> Vec<i32> {
    list.split_ascii_whitespace().flat_map(str::parse).collect()
}

/// Whether the real, effective, saved and filesystem user of `pid` are all `uid` (proc(5)).
pub fn runs_as(pid: i32, uid: u32) -> bool {
    let status = proc::read(pid, "status").unwrap_or_default();
    let Some(users) = proc::value(&status, "Uid") else {
        return false;
    };
    let mut count = 0;
    let same = users.split_ascii_whitespace().all(|user| {
        count += 1;
        user.parse() == Ok(uid)
    });
    same && count == 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    fn our_uid() -> u32 {
        maitred_os::users::current().uid
    }

    #[test]
    fn a_child_of_ours_is_ours_alive_and_dead() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(matches!(see(pid, our_uid()), ChildCheck::Ours(_)));
        assert!(matches!(see(pid, our_uid() + 1), ChildCheck::Stranger));
        assert!(children().contains(&pid));
        assert!(any_child());
        let ChildCheck::Ours(pidfd) = see(pid, our_uid()) else { panic!("it is ours") };
        drop(child.stdin.take());
        let mut ended = [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut ended, None).unwrap();
        assert!(
            matches!(see(pid, our_uid()), ChildCheck::Ours(_)),
            "it has ended and is not reaped"
        );
        child.wait().unwrap();
        assert!(matches!(see(pid, our_uid()), ChildCheck::NotYet));
    }

    #[test]
    fn our_parent_and_our_grandchild_are_not_ours() {
        let parent = i32::try_from(std::os::unix::process::parent_id()).unwrap();
        assert!(matches!(see(parent, our_uid()), ChildCheck::NotYet));
        let mut child = Command::new("sh")
            .args(["-c", "cat & echo $!; wait"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let grandchild = line.trim().parse().unwrap();
        assert!(matches!(see(grandchild, our_uid()), ChildCheck::NotYet));
        assert_eq!(children_of(i32::try_from(child.id()).unwrap()), [grandchild]);
        drop(child.stdin.take());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn of_a_process_only_the_first_thread_is_looked_at() {
        let looks = std::thread::spawn(|| {
            let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
            let pid = i32::try_from(child.id()).unwrap();
            let process = i32::try_from(std::process::id()).unwrap();
            let found = (children().contains(&pid), children_of(process).contains(&pid));
            drop(child.stdin.take());
            child.wait().unwrap();
            found
        });
        assert_eq!(looks.join().unwrap(), (true, false));
    }
}
