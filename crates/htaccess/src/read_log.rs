//! What an evaluation has read of a request besides its method, target and host: another request
//! that is the same in this gets the same decision.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Most names; an evaluation that reads more is not repeatable.
const NAMES_MAX: usize = 16;

/// The inputs that were read.
#[derive(Debug, Default)]
pub struct ReadLog {
    names: Mutex<Vec<Vec<u8>>>,
    is_unrepeatable: AtomicBool,
}

impl ReadLog {
    /// A request header was read by its name.
    pub fn header(&self, name: &[u8]) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            return;
        }
        if names.len() >= NAMES_MAX {
            return self.unrepeatable();
        }
        names.push(name.to_vec());
    }

    /// An input was read that differs from request to request: an address, the time, all headers.
    pub fn unrepeatable(&self) {
        self.is_unrepeatable.store(true, Ordering::Relaxed);
    }

    /// The names of the headers that were read; none if the decision holds for this request alone.
    pub fn headers(&self) -> Option<Vec<Vec<u8>>> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        (!self.is_unrepeatable.load(Ordering::Relaxed)).then(|| names.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_named_once_and_an_address_makes_a_decision_unrepeatable() {
        let log = ReadLog::default();
        log.header(b"Cookie");
        log.header(b"cookie");
        assert_eq!(log.headers(), Some(vec![b"Cookie".to_vec()]));
        log.unrepeatable();
        assert_eq!(log.headers(), None);
    }

    #[test]
    fn many_headers_are_too_many_to_compare() {
        let log = ReadLog::default();
        for number in 0..=NAMES_MAX {
            log.header(number.to_string().as_bytes());
        }
        assert_eq!(log.headers(), None);
    }
}
