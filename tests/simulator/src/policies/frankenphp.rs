//! FrankenPHP's scaling of threads, after `scaling.go`: a request that has waited for 5 ms while
//! the processors are less than 80 % busy over 120 ms gets one more thread.

use super::{Policy, View};

const STALLED_SECONDS: f64 = 0.005;
const BUSY: f64 = 0.8;
const PROBE_SECONDS: f64 = 0.120;
const RETIRES_EVERY_SECONDS: f64 = 5.0;
const RETIRES: usize = 10;

/// FrankenPHP.
#[derive(Debug, Clone, Copy)]
pub struct Frankenphp {
    first: usize,
    most: usize,
    wants: usize,
    retired_at: f64,
    lets_go: usize,
}

impl Frankenphp {
    /// Two threads a processor initially, and at most `most`.
    pub fn new(cores: f64, most: usize) -> Frankenphp {
        let first = ((2.0 * cores) as usize).clamp(1, most);
        Frankenphp { first, most, wants: first, retired_at: 0.0, lets_go: 0 }
    }
}

impl Policy for Frankenphp {
    fn every(&self) -> f64 {
        PROBE_SECONDS
    }

    fn tick(&mut self, view: &View) {
        self.lets_go = 0;
        if view.waiting > 0 && view.waited >= STALLED_SECONDS && view.cpu_used < BUSY {
            self.wants = (view.alive() + 1).min(self.most);
        }
        if view.now - self.retired_at >= RETIRES_EVERY_SECONDS {
            self.retired_at = view.now;
            if view.rested > RETIRES_EVERY_SECONDS {
                let spare = view.alive().saturating_sub(self.first);
                self.lets_go = spare.min(RETIRES).min(view.idle);
                self.wants -= self.lets_go.min(self.wants);
            }
        }
    }

    fn wants(&self, _view: &View) -> usize {
        self.wants
    }

    fn lets_go(&self, _view: &View) -> usize {
        self.lets_go
    }
}
