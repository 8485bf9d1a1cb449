//! The limit of log lines of several pipes together: a pool may have many processes of commands.

use std::cell::RefCell;
use std::rc::Rc;

use maitred_control::log_limit::{Admission, LogLimit};

use crate::limits::Moment;

/// A limit with which several pipes are read.
#[derive(Debug, Clone, Default)]
pub struct SharedLimit(Rc<RefCell<LogLimit>>);

impl SharedLimit {
    /// As [`LogLimit::admit`].
    pub fn admit(&self, bytes: usize, now: Moment) -> Admission {
        self.0.borrow_mut().admit(bytes, now)
    }

    /// As [`LogLimit::used_up_until`].
    pub fn used_up_until(&self, now: Moment) -> Option<Moment> {
        self.0.borrow().used_up_until(now)
    }

    /// As [`LogLimit::due`].
    pub fn due(&self, now: Moment) -> Option<String> {
        self.0.borrow_mut().due(now)
    }

    /// As [`LogLimit::deadline`].
    pub fn deadline(&self) -> Option<Moment> {
        self.0.borrow().deadline()
    }

    /// Whether no pipe is read with it any more.
    pub fn is_unused(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }
}
