//! A fixed number of workers (`pm = static`).

use super::{Policy, View};

/// This many workers.
#[derive(Debug, Clone, Copy)]
pub struct Fixed(pub usize);

impl Policy for Fixed {
    fn wants(&self, _view: &View) -> usize {
        self.0
    }
}
