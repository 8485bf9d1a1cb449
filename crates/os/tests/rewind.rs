//! Going back, in a program with one thread.
#![allow(unsafe_code, reason = "memory that a fork empties is asked for")]
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::fs::File;
use std::os::fd::AsFd;
use std::process::exit;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use maitred_os::channel::Channel;
use maitred_os::errand::{Errand, Returned, fork_errand};
use maitred_os::fork::{HowEnded, OwnProc, exit_now, mark_children};
use maitred_os::rewind::{Image, Rewind, Turn};

/// Longer than any of these waits should last.
const LONG: Duration = Duration::from_secs(60);

/// A page of memory for each of what happens to it.
const PAGE: usize = 4096;

static COUNT: AtomicU32 = AtomicU32::new(7);

/// New memory of `pages` pages.
fn map(pages: usize) -> *mut u8 {
    let (rights, kind) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: it is new memory.
    let memory = unsafe { libc::mmap(ptr::null_mut(), pages * PAGE, rights, kind, -1, 0) };
    assert_ne!(memory, libc::MAP_FAILED);
    memory.cast()
}

fn main() {
    let proc = OwnProc::open().unwrap();
    let (ours, _theirs) = Channel::pair().unwrap();
    let wiped = map(1);
    // SAFETY: it is memory of ours.
    unsafe {
        assert_eq!(libc::madvise(wiped.cast(), PAGE, libc::MADV_WIPEONFORK), 0);
        *wiped = 1;
    }
    let kept = map(64);
    // SAFETY: as above.
    unsafe { *kept = 2 };
    let image = Image::take(&proc).unwrap();
    let Errand::Parent(child) = fork_errand(&proc).unwrap() else {
        mark_children();
        exit_now(copy(&proc, image, wiped, kept));
    };
    let came = child.wait(LONG, ours.as_fd()).unwrap();
    match came {
        Returned::Ended(HowEnded::Exited(0)) => {
            println!("test a_process_that_goes_back_is_what_it_was ... ok");
        }
        how => {
            eprintln!("the copy came back as {how:?}; a code is the number of what failed");
            exit(1);
        }
    }
}

/// Returns 0, or the number of what is not as it should be.
fn copy(proc: &OwnProc, image: Image, wiped: *mut u8, kept: *mut u8) -> i32 {
    let mut list = vec![1, 2, 3];
    let mut rewind = Rewind::prepare(proc, image).unwrap();
    // SAFETY: it is memory of ours. A library that has drawn a random number does the same.
    unsafe { *wiped = 9 };
    rewind.carried()[0] = 0;
    let turn = rewind.mark().unwrap();
    let times = rewind.carried()[0];
    // SAFETY: as above.
    let (secret, own) = unsafe { (*wiped, *kept) };
    let expected = if times == 0 { Turn::First } else { Turn::Again };
    if turn != expected {
        return 1;
    }
    if (COUNT.load(Relaxed), own, list.len()) != (7, 2, 3) {
        return 2;
    }
    if secret != if times == 0 { 9 } else { 0 } {
        return 3;
    }
    let next = File::open("/dev/null").unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&next);
    if times == 0 {
        rewind.carried()[1] = number as u64;
    } else if rewind.carried()[1] != number as u64 {
        return 4;
    }
    rewind.carried()[0] += 1;
    COUNT.store(0, Relaxed);
    list.extend(4..100_000);
    std::mem::forget((next, list.clone()));
    let more = map(100);
    // SAFETY: as above.
    unsafe {
        (*wiped, *kept, *more) = (5, 5, 5);
        kept.add(63 * PAGE).write(5);
    }
    std::env::set_current_dir("/").unwrap();
    match times {
        // It does not return.
        0..4 => drop(rewind.back()),
        4 => {
            // SAFETY: nobody needs it any more.
            assert_eq!(unsafe { libc::munmap(kept.cast(), PAGE) }, 0);
            let why = rewind.back();
            return if why.contains("mappings") { 0 } else { 5 };
        }
        _ => return 6,
    }
    7
}
