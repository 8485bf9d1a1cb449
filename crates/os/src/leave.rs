//! Being asked to leave by SIGTERM, for a process that comes to its end by itself then, and may be
//! asleep on a word of shared memory.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

static ASKED: AtomicBool = AtomicBool::new(false);
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

extern "C" fn note(_: i32) {
    ASKED.store(true, Ordering::SeqCst);
    // SAFETY: it is null or comes from a `&'static AtomicU32`, see `heed_sigterm`.
    if let Some(word) = unsafe { WORD.load(Ordering::SeqCst).as_ref() } {
        word.store(0, Ordering::SeqCst);
    }
}

/// From now on SIGTERM does not end this process, but makes [`asked`] true and sets `word` to 0:
/// whoever is about to wait on it for another value (futex(2)) does not, and whoever waits is woken
/// by the signal. Who says first that it sleeps, then looks at [`asked`], and then waits, misses
/// nothing.
///
/// # Errors
/// Nothing that is known to happen.
pub fn heed_sigterm(word: &'static AtomicU32) -> io::Result<()> {
    WORD.store(ptr::from_ref(word).cast_mut(), Ordering::SeqCst);
    let action = SigAction::new(
        SigHandler::Handler(note),
        SaFlags::SA_RESTART,
        SigSet::empty(),
    );
    // SAFETY: the handler does nothing but store to atomics.
    unsafe { sigaction(Signal::SIGTERM, &action) }?;
    Ok(())
}

/// Whether SIGTERM has come since [`heed_sigterm`].
pub fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::raise;

    #[test]
    fn who_is_asked_to_leave_knows_it_and_does_not_sleep() {
        static WORD: AtomicU32 = AtomicU32::new(1);
        heed_sigterm(&WORD).unwrap();
        assert!(!asked());
        raise(Signal::SIGTERM).unwrap();
        assert!(asked());
        assert_eq!(WORD.load(Ordering::SeqCst), 0);
    }
}
