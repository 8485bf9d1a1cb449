//! `process.max`: what the pools have and want, for [`process_max`] to say what each may have.

use std::collections::HashMap;

use maitred_config::fpm::Level;

use super::say;
use crate::capacity::process_max::{self, PoolDemand};
use crate::fpm::fpm_words as words;
use crate::processes::running_pool::RunningPool;
use crate::run::Supervisor;

/// A pool, all its generations together.
#[derive(Debug)]
struct PoolTotals<'a> {
    name: &'a str,
    need: PoolDemand,
    /// Workers of generations that leave.
    left: u32,
    /// How many workers the current generation is to replace.
    replaces: Option<u32>,
}

impl<'a> PoolTotals<'a> {
    fn none_of(name: &'a str) -> PoolTotals<'a> {
        PoolTotals {
            name,
            need: PoolDemand::default(),
            left: 0,
            replaces: None,
        }
    }

    fn add(&mut self, running: &RunningPool) {
        let workers = running.pool.workers();
        self.need.wants = self.need.wants.max(running.pool.wants());
        self.need.has += workers;
        if running.pool.is_leaving() {
            self.left += workers;
        } else if running.introduced {
            self.replaces = Some(running.replaces);
        }
    }

    fn need(&self) -> PoolDemand {
        let replaces = self.replaces.filter(|_| self.left > 0);
        let wanted = self.left + self.need.wants;
        PoolDemand {
            moves: replaces.map(|replaces| replaces.min(wanted)),
            ..self.need
        }
    }
}

impl Supervisor {
    /// How many workers each pool may have because of `process.max`, by its name; nothing: it is
    /// not limited.
    pub fn share_process_max(&mut self) -> HashMap<String, u32> {
        let most = self.fpm().map_or(0, |fpm| fpm.process_max);
        if most == 0 {
            return HashMap::new();
        }
        let mut wholes: Vec<PoolTotals<'_>> = Vec::new();
        for running in &self.pools {
            let name = running.plan.settings.pool.as_str();
            match wholes.iter_mut().find(|whole| whole.name == name) {
                Some(whole) => whole.add(running),
                None => {
                    let mut whole = PoolTotals::none_of(name);
                    whole.add(running);
                    wholes.push(whole);
                }
            }
        }
        let needs: Vec<PoolDemand> = wholes.iter().map(PoolTotals::need).collect();
        let shares = process_max::share(&needs, most);
        let names = wholes.iter().map(|whole| whole.name.to_owned());
        let shared = names.zip(shares.iter().copied()).collect();
        let mut pairs = needs.iter().zip(&shares);
        let held = pairs.any(|(need, share)| need.wants > *share);
        self.tell_process_max(held);
        shared
    }

    fn tell_process_max(&mut self, held: bool) {
        let now = self.now();
        let _ = self.tidings.process_max.due(now);
        if held && self.tidings.process_max.happened(now, |()| {}) == 1 {
            say(Level::Warning, words::PROCESS_MAX);
        }
    }
}
