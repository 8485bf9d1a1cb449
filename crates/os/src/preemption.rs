//! Whether a thread has kept its processor, without a system call.
//!
//! Restartable sequences (rseq(2)) make the kernel report this. A thread that is in none may leave
//! the address of one in its area; when the thread loses its processor, or yields it, the kernel
//! finds it outside of that sequence and clears the address ("when the kernel detects that it is
//! preempting or delivering a signal outside of the range targeted by the rseq_cs",
//! `linux/rseq.h`). An address that is still there shows that the thread has run all the time.
//! glibc registers the area (2.35 and later).

use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// glibc's mark before every abort handler of a sequence (`RSEQ_SIG` in `sys/rseq.h`).
#[cfg(target_arch = "x86_64")]
const MARK: u32 = 0x5305_3053;
#[cfg(not(target_arch = "x86_64"))]
const MARK: u32 = 0xd428_bc00;

/// The offset of the address in a thread's area (`struct rseq`).
const ADDRESS_AT: usize = 8;
/// A shorter area does not hold the address.
const LEAST_AREA_BYTES: u32 = 16;

/// How long a thread sleeps to test whether the kernel notices.
const PROOF: Duration = Duration::from_nanos(1);

/// A sequence that no thread is ever in: its range is data (`struct rseq_cs`).
#[derive(Debug)]
#[repr(C, align(32))]
struct Sequence {
    version: u32,
    flags: u32,
    start: u64,
    length: u64,
    left_to: u64,
}

/// The range, and the abort handler behind it; the mark is before that.
static RANGE: [AtomicU32; 2] = [AtomicU32::new(MARK), AtomicU32::new(0)];

static SEQUENCE: OnceLock<Sequence> = OnceLock::new();

fn sequence() -> u64 {
    let sequence = SEQUENCE.get_or_init(|| Sequence {
        version: 0,
        flags: 0,
        start: RANGE.as_ptr() as u64,
        length: size_of::<u32>() as u64,
        left_to: RANGE[1].as_ptr() as u64,
    });
    std::ptr::from_ref(sequence) as u64
}

/// Reports whether its thread has kept its processor. It stays on that thread, and is inherited by
/// a child that the thread forks.
#[derive(Debug)]
pub struct PreemptionProbe {
    /// In the thread's area, which lives as long as the thread.
    address: &'static AtomicU64,
    /// Neither sent to another thread nor shared with one.
    _stays: std::marker::PhantomData<*const ()>,
}

impl PreemptionProbe {
    /// `None` where the C library or the kernel does not support it, or it does not work as
    /// specified: that is tested once.
    pub fn of_this_thread() -> Option<PreemptionProbe> {
        let unbroken = PreemptionProbe { address: address()?, _stays: std::marker::PhantomData };
        unbroken.begin();
        std::thread::sleep(PROOF);
        (!unbroken.ran_through()).then_some(unbroken)
    }

    /// Until the next begin, the thread is not known to have kept its processor.
    pub fn forget(&self) {
        self.address.store(0, Relaxed);
    }

    /// From now on.
    pub fn begin(&self) {
        self.address.store(sequence(), Relaxed);
    }

    /// Whether the thread has had its processor all the time since [`begin`](Self::begin). Code
    /// that has sequences of its own makes this false.
    pub fn ran_through(&self) -> bool {
        self.address.load(Relaxed) == sequence()
    }
}

/// The kernel's slot for the address of the calling thread's sequence.
fn address() -> Option<&'static AtomicU64> {
    let (offset, size) = (symbol(c"__rseq_offset")?, symbol(c"__rseq_size")?);
    // SAFETY: glibc defines both, `const ptrdiff_t` and `const unsigned int` (sys/rseq.h), and they
    // do not change after the program has started.
    let (offset, size) = unsafe { (*offset.cast::<isize>(), *size.cast::<u32>()) };
    if size < LEAST_AREA_BYTES {
        // It is not registered: the kernel does not support it, or a setting of glibc's forbids it.
        return None;
    }
    let area = thread_pointer()?.wrapping_add_signed(offset);
    // SAFETY: the area is at this offset from the thread pointer (sys/rseq.h), aligned to 32 bytes,
    // and lives as long as the thread, on which the only owner of this reference stays. The kernel
    // writes it only while the thread does not run.
    Some(unsafe { &*((area + ADDRESS_AT) as *const AtomicU64) })
}

fn symbol(name: &CStr) -> Option<*const libc::c_void> {
    // SAFETY: the name is a C string, and looking up has no other effect.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found.cast_const())
}

#[cfg(target_arch = "x86_64")]
fn thread_pointer() -> Option<usize> {
    let pointer: usize;
    // SAFETY: on this processor the word that `fs` points to is its own address (ELF TLS ABI,
    // variant II); reading it changes nothing.
    unsafe {
        std::arch::asm!("mov {}, \
                         fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    Some(pointer)
}

#[cfg(target_arch = "aarch64")]
fn thread_pointer() -> Option<usize> {
    let pointer: usize;
    // SAFETY: this register is the thread pointer (ELF TLS ABI, variant I); reading it changes
    // nothing.
    unsafe {
        std::arch::asm!("mrs {}, \
                         tpidr_el0", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    Some(pointer)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn thread_pointer() -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use nix::sys::resource::{UsageWho, getrusage};

    use super::*;

    /// Context switches by the kernel's count of this thread.
    fn switches() -> i64 {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
        usage.voluntary_context_switches() + usage.involuntary_context_switches()
    }

    #[test]
    fn what_is_unbroken_the_kernel_counts_as_unbroken_too() {
        let Some(unbroken) = PreemptionProbe::of_this_thread() else {
            eprintln!("not tested: this system has no restartable sequences");
            return;
        };
        let (mut kept, mut lost) = (0, 0);
        while kept < 1_000 || lost < 100 {
            unbroken.begin();
            let before = switches();
            if kept > 10 * lost {
                std::thread::sleep(PROOF);
            }
            let after = switches();
            if unbroken.ran_through() {
                kept += 1
            } else {
                lost += 1
            }
            assert!(before == after || !unbroken.ran_through());
        }
    }

    #[test]
    fn code_that_has_a_sequence_of_its_own_breaks_it() {
        let Some(unbroken) = PreemptionProbe::of_this_thread() else {
            eprintln!("not tested: this system has no restartable sequences");
            return;
        };
        unbroken.begin();
        unbroken.address.store(0, Relaxed);
        assert!(!unbroken.ran_through());
    }
}
