//! php-fpm's policies, after `fpm_process_ctl.c`.

use super::{Policy, View};

/// Most workers that php-fpm starts at once.
const RATE_MOST: usize = 32;

/// `pm = dynamic`: checks once a second.
#[derive(Debug, Clone, Copy)]
pub struct Dynamic {
    max_children: usize,
    min_spare: usize,
    max_spare: usize,
    rate: usize,
    wants: usize,
    lets_go: bool,
}

impl Dynamic {
    /// The guides' ratios: a fifth and three fifths of `max_children`.
    pub fn by_the_guide(max_children: usize) -> Dynamic {
        let min_spare = (max_children / 5).max(1);
        let max_spare = (max_children * 3 / 5).max(min_spare);
        Dynamic {
            max_children,
            min_spare,
            max_spare,
            rate: 1,
            wants: (min_spare + max_spare) / 2,
            lets_go: false,
        }
    }
}

impl Policy for Dynamic {
    fn tick(&mut self, view: &View) {
        self.lets_go = view.idle > self.max_spare;
        self.wants = view.alive();
        if view.idle >= self.min_spare || self.lets_go {
            self.rate = 1;
            return;
        }
        let lacks = self.min_spare - view.idle;
        let room = self.max_children.saturating_sub(view.alive());
        self.wants += lacks.min(self.rate).min(room);
        self.rate = (self.rate * 2).min(RATE_MOST);
    }

    fn wants(&self, _view: &View) -> usize {
        self.wants
    }

    fn lets_go(&self, _view: &View) -> usize {
        usize::from(self.lets_go)
    }
}

/// `pm = ondemand`: a worker for each request that finds none idle, up to the limit.
#[derive(Debug, Clone, Copy)]
pub struct Ondemand {
    max_children: usize,
    /// `pm.process_idle_timeout`, in seconds.
    idle_timeout: f64,
    wants: usize,
}

impl Ondemand {
    /// With php-fpm's default of ten seconds.
    pub fn new(max_children: usize) -> Ondemand {
        Ondemand { max_children, idle_timeout: 10.0, wants: 0 }
    }
}

impl Policy for Ondemand {
    fn arrived(&mut self, view: &View) {
        self.wants = view.alive();
        if view.idle == 0 && view.waiting > view.booting && view.alive() < self.max_children {
            self.wants += 1;
        }
    }

    fn tick(&mut self, view: &View) {
        self.wants = view.alive();
    }

    fn wants(&self, _view: &View) -> usize {
        self.wants
    }

    fn lets_go(&self, view: &View) -> usize {
        usize::from(view.idle > 0 && view.rested > self.idle_timeout)
    }
}
