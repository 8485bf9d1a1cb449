//! The last process that the kernel killed for lack of memory, from its log.

use std::io::ErrorKind;
use std::os::fd::AsFd;

use rustix::fs::{Mode, OFlags};

use maitred_os::clock::local_iso_8601;
use maitred_os::proc;

use super::world::World;
use crate::facts::{Fact, Killed, Unknown};

/// The log (`/dev/kmsg`, Documentation/ABI/testing/dev-kmsg): one record per read.
const LOG: &str = "/dev/kmsg";

/// Longest record (`CONSOLE_EXT_LOG_MAX`), and most records that are read.
const MAX_RECORD_BYTES: usize = 8_192;
const MAX_RECORDS: usize = 200_000;

/// The text of such a record (`__oom_kill_process`, mm/oom_kill.c).
const SAYS: [&str; 2] = ["ut of memory: Killed process ", "oom_reaper: reaped process "];

/// The last one in the log, if any.
pub(super) fn last_kill(world: &World) -> Fact<Option<Killed>> {
    if !world.is_here() {
        return Unknown::because("the kernel's log is of this machine");
    }
    let since = world.read("/proc/stat")?;
    let booted =
        proc::number(&since, "btime").ok_or_else(|| Unknown("/proc/stat is odd".to_owned()))?;
    let text = records().map_err(|why| Unknown(format!("{LOG} cannot be read ({why})")))?;
    Ok(text.iter().rev().find_map(|record| killed(record, booted)))
}

/// All records now.
fn records() -> std::io::Result<Vec<String>> {
    let file =
        rustix::fs::open(LOG, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    let mut found = Vec::new();
    let mut record = vec![0; MAX_RECORD_BYTES];
    for _ in 0..MAX_RECORDS {
        match rustix::io::read(file.as_fd(), &mut record) {
            Ok(0) => break,
            Ok(read) => found.push(String::from_utf8_lossy(&record[..read]).into_owned()),
            // The next one was overwritten before it was read: there is another.
            Err(rustix::io::Errno::PIPE) => {}
            Err(why) if std::io::Error::from(why).kind() == ErrorKind::WouldBlock => break,
            Err(why) => return Err(why.into()),
        }
    }
    Ok(found)
}

/// `4,1234,56789012,-;Out of memory: Killed process 99 (php-fpm8.2) total-vm:…`: the third number
/// is microseconds since the boot.
fn killed(record: &str, booted: u64) -> Option<Killed> {
    let (head, text) = record.split_once(';')?;
    let rest = SAYS.iter().find_map(|says| text.split_once(says))?.1;
    let micros: u64 = head.split(',').nth(2)?.parse().ok()?;
    let (pid, rest) = rest.split_once(" (")?;
    let name = rest.split_once(')')?.0;
    let second = booted.saturating_add(micros / 1_000_000).cast_signed();
    Some(Killed { when: local_iso_8601(second), who: format!("{name} (process {pid})") })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_the_kernel_says_of_a_kill_is_understood() {
        let record = "3,812,65000000,-;Memory cgroup out of memory: Killed process 4321 \
                      (php-fpm8.2) total-vm:300000kB, anon-rss:90000kB\n SUBSYSTEM=x\n";
        let found = killed(record, 1_795_000_000).unwrap();
        assert_eq!(found.who, "php-fpm8.2 (process 4321)");
        assert_eq!(found.when, local_iso_8601(1_795_000_065));
        assert_eq!(killed("6,1,2,-;usb 1-1: new device", 0), None);
    }

    #[test]
    fn a_log_that_may_not_be_read_is_not_known_and_another_root_has_none() {
        let root = tempfile::tempdir().unwrap();
        let world = World::new(Some(root.path()), Duration::from_secs(60));
        assert!(last_kill(&world).unwrap_err().0.contains("of this machine"));
        let here = World::new(None, Duration::from_secs(60));
        // Root can read it, unless a container has no such file.
        if let Err(why) = last_kill(&here) {
            assert!(why.0.contains(LOG), "{why:?}");
        }
    }
}
