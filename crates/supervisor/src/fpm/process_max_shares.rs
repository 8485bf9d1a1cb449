//! `process.max`: the demand of the pools, for [`process_max`] to compute their shares.

use std::collections::HashMap;

use maitred_config::fpm::Level;

use super::{FpmLogState, say};
use crate::capacity::process_max::{self, PoolDemand};
use crate::fpm::fpm_words as words;
use crate::limits::Moment;
use crate::processes::pools::Pools;
use crate::processes::running_pool::RunningPool;

/// A pool, with all its generations.
#[derive(Debug)]
struct PoolTotals<'a> {
    name: &'a str,
    need: PoolDemand,
    /// Workers of leaving generations.
    left: u32,
    /// How many workers the current generation is to replace.
    replaces: Option<u32>,
}

impl<'a> PoolTotals<'a> {
    fn none_of(name: &'a str) -> PoolTotals<'a> {
        PoolTotals { name, need: PoolDemand::default(), left: 0, replaces: None }
    }

    fn add(&mut self, running: &RunningPool) {
        let workers = running.state.workers();
        self.need.wants = self.need.wants.max(running.state.wants());
        self.need.has += workers;
        if running.state.is_leaving() {
            self.left += workers;
        } else if running.introduced {
            self.replaces = Some(running.replaces);
        }
    }

    fn need(&self) -> PoolDemand {
        let replaces = self.replaces.filter(|_| self.left > 0);
        let wanted = self.left + self.need.wants;
        PoolDemand { moves: replaces.map(|replaces| replaces.min(wanted)), ..self.need }
    }
}

impl FpmLogState {
    /// How many workers each pool may have when all may have `most` (`process.max`), by its name;
    /// empty if there is no limit.
    pub fn share_process_max(
        &mut self,
        pools: &Pools,
        most: u32,
        now: Moment,
    ) -> HashMap<String, u32> {
        if most == 0 {
            return HashMap::new();
        }
        let mut totals: Vec<PoolTotals<'_>> = Vec::new();
        for running in pools {
            let name = running.name();
            match totals.iter_mut().find(|pool| pool.name == name) {
                Some(pool) => pool.add(running),
                None => {
                    let mut pool = PoolTotals::none_of(name);
                    pool.add(running);
                    totals.push(pool);
                }
            }
        }
        let needs: Vec<PoolDemand> = totals.iter().map(PoolTotals::need).collect();
        let shares = process_max::share(&needs, most);
        let names = totals.iter().map(|pool| pool.name.to_owned());
        let shared = names.zip(shares.iter().copied()).collect();
        let mut pairs = needs.iter().zip(&shares);
        let held = pairs.any(|(need, share)| need.wants > *share);
        self.log_process_max(held, now);
        shared
    }

    fn log_process_max(&mut self, held: bool, now: Moment) {
        let _ = self.process_max.due(now);
        if held && self.process_max.happened(now, |()| {}) == 1 {
            say(Level::Warning, words::PROCESS_MAX);
        }
    }
}
