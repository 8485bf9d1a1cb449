//! Reads of `/proc` for which the kernel takes the lock of a process's memory: the command line and
//! counts of pages. A tenant can hold that lock for as long as they like (a file system in user
//! space that does not respond). A thread of its own waits for it, and ends with this process.

use std::collections::BTreeSet;
use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Longest wait for a lock.
const WAIT: Duration = Duration::from_secs(2);

/// Most processes whose locks threads wait for; with as many, no other process is read.
const HELD_MOST: usize = 8;

/// The processes whose locks threads still wait for.
static HELD: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn held() -> MutexGuard<'static, BTreeSet<i32>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The result of `read`, which takes the lock of the memory of process `pid`. `None` while that is
/// held: after 2 s the first time, and at once from then on.
pub fn read<T: Send + 'static>(pid: i32, read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    {
        let held = held();
        if held.contains(&pid) || held.len() >= HELD_MOST {
            return None;
        }
    }
    let (done, result) = channel();
    let waits = move || {
        // After the timeout there is no receiver.
        let _ = done.send(read());
        held().remove(&pid);
    };
    thread::Builder::new().spawn(waits).ok()?;
    result.recv_timeout(WAIT).ok().or_else(|| {
        let mut held = held();
        // The thread removes it after it has sent a result.
        let late = result.try_recv().ok();
        if late.is_none() {
            held.insert(pid);
        }
        late
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_held_delays_one_read_and_no_other_process() {
        let (release, released) = channel::<()>();
        let (holder, other) = (i32::MAX, i32::MAX - 1);
        assert_eq!(read(holder, || 1), Some(1));
        assert_eq!(read(holder, move || released.recv().is_err()), None);
        assert_eq!(read(holder, || 1), None, "it is not tried while it is held");
        assert_eq!(read(other, || 1), Some(1));
        drop(release);
        while held().contains(&holder) {
            thread::yield_now();
        }
        assert_eq!(read(holder, || 1), Some(1));
    }
}
