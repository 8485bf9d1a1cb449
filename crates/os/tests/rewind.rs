//! Going back, in a program with one thread.
#![allow(unsafe_code, reason = "it requests memory that a fork empties")]
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::fs::File;
use std::os::fd::AsFd;
use std::process::exit;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use maitred_os::fork::{HowEnded, OwnProc, exit_now, mark_children};
use maitred_os::packets::Packets;
use maitred_os::rewind::{Image, Rewind, Turn};
use maitred_os::timed_child::{ChildResult, TimedFork, fork_timed};

/// Longer than any of these waits should last.
const LONG: Duration = Duration::from_secs(60);

/// A page of memory for each of what happens to it.
const PAGE: usize = 4096;

static COUNT: AtomicU32 = AtomicU32::new(7);

/// New memory of `pages` pages.
fn map(pages: usize) -> *mut u8 {
    let (rights, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: it is new memory.
    let memory = unsafe { libc::mmap(ptr::null_mut(), pages * PAGE, rights, kind, -1, 0) };
    assert_ne!(memory, libc::MAP_FAILED);
    memory.cast()
}

/// What is written to one by one and could be one huge page.
const HUGE: usize = 2 << 20;

/// Memory that could be one huge page, each page of it written to.
fn map_huge() -> *mut u8 {
    let all = map(2 * HUGE / PAGE);
    // SAFETY: it stays within the memory.
    unsafe {
        let huge = all.add(all.align_offset(HUGE));
        ptr::write_bytes(huge, 4, HUGE);
        huge
    }
}

fn main() {
    let proc = OwnProc::open().unwrap();
    let (ours, _theirs) = Packets::pair().unwrap();
    let wiped = map(1);
    // SAFETY: it is memory of ours.
    unsafe {
        assert_eq!(libc::madvise(wiped.cast(), PAGE, libc::MADV_WIPEONFORK), 0);
        *wiped = 1;
    }
    // There is room behind it.
    let kept = map(128);
    // SAFETY: as above.
    unsafe {
        *kept = 2;
        assert_eq!(libc::munmap(kept.add(64 * PAGE).cast(), 64 * PAGE), 0);
    }
    let huge = map_huge();
    let image = Image::take(&proc).unwrap();
    let forked = |name: &str, copy: &dyn Fn() -> i32| {
        let TimedFork::Parent(child) = fork_timed(&proc).unwrap() else {
            mark_children();
            exit_now(copy());
        };
        match child.wait(LONG, ours.as_fd()).unwrap() {
            ChildResult::Ended(HowEnded::Exited(0)) => println!("test {name} ... ok"),
            how => {
                eprintln!("{name}: {how:?}; a code is the number of what failed");
                exit(1);
            }
        }
    };
    forked("a_process_that_goes_back_is_what_it_was", &|| copy(&proc, image, wiped, kept));
    forked("no_write_is_missed_because_memory_became_a_huge_page", &|| {
        collapsed(&proc, image, huge)
    });
    forked("what_has_grown_shrinks_and_a_thread_ends_it", &|| grown(&proc, image, kept));
    forked("a_filter_that_refuses_unshare_hides_no_thread", &|| {
        refuse_unshare();
        grown(&proc, image, kept)
    });
    forked("who_has_too_much_open_does_not_go_back", &|| with_much_open(&proc, image));
}

/// As [`copy`]. What was there at the mark is taken away together with what was mapped behind it,
/// as PHP does with a large string of the boot that has grown; and then a thread runs, on memory of
/// the boot.
fn grown(proc: &OwnProc, image: Image, kept: *mut u8) -> i32 {
    let mut rewind = Rewind::prepare(proc, image).unwrap();
    rewind.carried()[0] = 0;
    rewind.mark().unwrap();
    let turn = rewind.carried()[0];
    rewind.carried()[0] += 1;
    let behind = kept.wrapping_add(64 * PAGE);
    // SAFETY: it is memory of ours; what is mapped goes where nothing is, and the thread does
    // nothing.
    unsafe {
        if *kept != 2 {
            return 1;
        }
        *kept = 8;
        if turn < 3 {
            let (rights, kind) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
            );
            let more = libc::mmap(behind.cast(), 64 * PAGE, rights, kind, -1, 0);
            if more != behind.cast() {
                return 3;
            }
            libc::munmap(kept.cast(), 128 * PAGE);
        } else {
            let flags = libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD;
            let stack = kept.add(32 * PAGE).cast();
            if libc::clone(waits, stack, flags, ptr::null_mut()) < 0 {
                return 4;
            }
        }
    }
    let why = rewind.back();
    if turn == 3 && why == "it has threads" {
        return 0;
    }
    eprintln!("turn {turn}: {why}");
    2
}

/// As container engines do for processes without `CAP_SYS_ADMIN`.
fn refuse_unshare() {
    let (load, equals, result) = (
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    );
    let step = |code: u32, jf: u8, k: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt: 0,
        jf,
        k,
    };
    let refused = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).unwrap();
    let program = [
        step(load, 0, 0), // The number of the call.
        step(equals, 1, u32::try_from(libc::SYS_unshare).unwrap()),
        step(result, 0, refused),
        step(result, 0, libc::SECCOMP_RET_ALLOW),
    ];
    // SAFETY: it takes numbers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    maitred_os::seccomp::install(&program).unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_VM) }, -1);
}

extern "C" fn waits(_: *mut libc::c_void) -> libc::c_int {
    loop {
        // SAFETY: it waits for a signal.
        unsafe { libc::pause() };
    }
}

/// As [`copy`]. More is open than can be kept in mind.
fn with_much_open(proc: &OwnProc, image: Image) -> i32 {
    let open: Vec<File> = (0..300).map(|_| File::open("/dev/null").unwrap()).collect();
    let why = Rewind::prepare(proc, image).unwrap_err().to_string();
    i32::from(!why.contains("descriptors are open") || open.len() != 300)
}

/// As [`copy`]. In the third turn the memory becomes a huge page if it can, as khugepaged does
/// where it is at work, and nothing that is done has a page fault.
fn collapsed(proc: &OwnProc, image: Image, huge: *mut u8) -> i32 {
    let mut rewind = Rewind::prepare(proc, image).unwrap();
    rewind.carried()[0] = 0;
    rewind.mark().unwrap();
    let turn = rewind.carried()[0];
    rewind.carried()[0] += 1;
    let (asked, written) =
        if turn == 2 { (huge, huge.wrapping_add(100 * PAGE)) } else { (ptr::null_mut(), huge) };
    // SAFETY: it is memory of ours, or unmapped, which is an error.
    unsafe {
        if *huge.add(100 * PAGE) != 4 || *huge != 4 {
            return 1;
        }
        libc::madvise(asked.cast(), HUGE, libc::MADV_COLLAPSE);
        *written = 6;
    }
    if turn == 3 {
        return 0;
    }
    rewind.back();
    2
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
            // SAFETY: it is not used any more.
            assert_eq!(unsafe { libc::syscall(libc::SYS_munmap, kept, PAGE) }, 0);
            let why = rewind.back();
            return if why.contains("mappings") { 0 } else { 5 };
        }
        _ => return 6,
    }
    7
}
