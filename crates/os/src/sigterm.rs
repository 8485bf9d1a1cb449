//! Graceful exit on SIGTERM, for a process that may be asleep on a word of shared memory.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};

static ASKED: AtomicBool = AtomicBool::new(false);
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
/// The process that heeds it: a child has the handler and the shared word, too.
static HEEDS: AtomicU32 = AtomicU32::new(0);

extern "C" fn note(_: i32) {
    if std::process::id() != HEEDS.load(Ordering::SeqCst) {
        end_as_any_other();
        return;
    }
    ASKED.store(true, Ordering::SeqCst);
    // SAFETY: it is null or comes from a `&'static AtomicU32`, see `install_handler`.
    if let Some(word) = unsafe { WORD.load(Ordering::SeqCst).as_ref() } {
        word.store(0, Ordering::SeqCst);
    }
}

/// In a forked child: SIGTERM's default action. The signal is blocked while its handler runs, and
/// arrives when that returns.
fn end_as_any_other() {
    let usual = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action is no code of ours.
    if unsafe { sigaction(Signal::SIGTERM, &usual) }.is_ok() {
        let _ = raise(Signal::SIGTERM);
    }
}

/// From now on SIGTERM does not end this process, but makes [`has_arrived`] true and sets `word` to
/// 0: a futex(2) wait on it for another value returns at once, and a running wait is interrupted by
/// the signal. A process that publishes that it sleeps, then checks [`has_arrived`], and then
/// waits, misses nothing. A child ends by SIGTERM, and leaves the word alone.
///
/// # Errors
/// No known error.
pub fn install_handler(word: &'static AtomicU32) -> io::Result<()> {
    HEEDS.store(std::process::id(), Ordering::SeqCst);
    WORD.store(ptr::from_ref(word).cast_mut(), Ordering::SeqCst);
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler reads its process id, stores to atomics, and in a child calls
    // sigaction(2) and raise(3): all of it is safe in a handler (signal-safety(7)).
    unsafe { sigaction(Signal::SIGTERM, &action) }?;
    Ok(())
}

/// Whether SIGTERM has arrived since [`install_handler`].
pub fn has_arrived() -> bool {
    ASKED.load(Ordering::SeqCst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_asked_to_leave_knows_it_and_does_not_sleep() {
        static WORD: AtomicU32 = AtomicU32::new(1);
        install_handler(&WORD).unwrap();
        assert!(!has_arrived());
        raise(Signal::SIGTERM).unwrap();
        assert!(has_arrived());
        assert_eq!(WORD.load(Ordering::SeqCst), 0);
    }
}
