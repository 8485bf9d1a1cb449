//! Always as many (`pm = static`).

use super::{Policy, View};

/// Always as many.
#[derive(Debug, Clone, Copy)]
pub struct Fixed(pub usize);

impl Policy for Fixed {
    fn wants(&self, _view: &View) -> usize {
        self.0
    }
}
