//! Callbacks that come from within another one.

use std::rc::Rc;

use super::*;
use crate::foreign::Foreign;

/// An exchange that calls PHP while an application is booted, and PHP calls back.
struct Booting {
    /// What C would pass.
    live: Rc<Cell<*mut c_void>>,
    sent: Vec<Vec<u8>>,
    logged: Vec<Vec<u8>>,
    within: Vec<c_int>,
}

impl Booting {
    fn new() -> Booting {
        Booting {
            live: Rc::new(Cell::new(ptr::null_mut())),
            sent: Vec::new(),
            logged: Vec::new(),
            within: Vec::new(),
        }
    }
}

impl Exchange for Booting {
    fn read_body(&mut self, _buffer: &mut [u8]) -> Option<usize> {
        Some(0)
    }

    fn send(&mut self, bytes: &[u8]) -> Verdict {
        self.sent.push(bytes.to_vec());
        Verdict::Continue
    }

    fn flush(&mut self) -> Verdict {
        Verdict::Continue
    }

    fn hint(&mut self, _lines: &[u8]) -> Verdict {
        Verdict::Continue
    }

    fn finish(&mut self) {}

    fn translate(&mut self, _params: &mut Params, _paths: &Paths<'_>) -> Foreign {
        unreachable!("no web server has asked")
    }

    fn log(&mut self, _level: Level, _to_client: bool, message: &[u8]) {
        self.logged.push(message.to_vec());
    }

    fn purge(&mut self, _asked: &Purge<'_>) -> Purged {
        Purged::NoReply
    }

    fn freeze(&mut self, _obstacle: Option<String>) -> bool {
        let said = send(self.live.get(), c"within".as_ptr(), 6);
        log(self.live.get(), 2, false, c"within freeze".as_ptr(), 13);
        self.within.push(said);
        true
    }

    fn status(&mut self) -> Option<String> {
        panic!("asked for")
    }
}

#[test]
fn a_callback_within_another_returns_its_default_and_touches_nothing() {
    let mut booting = Booting::new();
    let passed = booting.live.clone();
    let live = CallbackState::new(&mut booting);
    passed.set(live.for_c());
    assert!(work::freeze(live.for_c(), ptr::null()));
    assert_eq!(send(live.for_c(), c"after".as_ptr(), 5), CONTINUE);
    log(live.for_c(), 2, false, c"after".as_ptr(), 5);
    assert!(live.with(|_| live.with(|_| ())).is_some_and(|inner| inner.is_none()));
    drop(live);
    assert_eq!(booting.within, [CLIENT_GONE]);
    assert_eq!((booting.sent.len(), booting.logged.len()), (1, 1));
}

#[test]
fn a_panic_within_a_callback_leaves_the_others_without_effect() {
    let mut booting = Booting::new();
    let live = CallbackState::new(&mut booting);
    assert!(status(live.for_c()).is_null());
    assert_eq!(send(live.for_c(), c"after".as_ptr(), 5), CLIENT_GONE);
    assert!(!live.taken.get());
    drop(live);
    assert!(booting.sent.is_empty());
}
