//! Purges that scripts request by a call of their worker.

use std::collections::BTreeSet;
use std::future;
use std::sync::Arc;
use std::time::Instant;

use maitred_control::purge::{DroppedPages, Fate, PurgeMode, PurgeRequest, Target};
use maitred_pagecache::purge::Purge;

use crate::cache::Cache;
use crate::cache::pool_budgets::{MERGED_EVERY, PURGES_PER_SECOND, Passage, PoolBudgets, cost_of};
use crate::pool::pool_key::PoolKey;
use crate::pool::worker_calls::{WorkerCall, WorkerCalls};

/// Most purges of one call that are carried out one by one: its names, times the sites of its pool.
/// More are one of all pages for each site.
const MAX_OF_CALL: usize = 4096;

impl Cache {
    /// Carries out the purges of scripts while the front serves. The script waits until all fronts
    /// have dropped the pages.
    pub async fn hear(self: Arc<Cache>, calls: WorkerCalls) {
        let mut budgets = PoolBudgets::default();
        loop {
            let due = budgets.deadline();
            tokio::select! {
                call = calls.next() => self.take_call(call, &mut budgets),
                () = at(due) => {
                    for (pool, waiting) in budgets.take_due(Instant::now()) {
                        self.purge_all_of(&pool, waiting);
                    }
                }
            }
        }
    }

    fn take_call(&self, call: WorkerCall, budgets: &mut PoolBudgets<WorkerCall>) {
        let Ok(asked) = serde_json::from_slice::<PurgeRequest>(&call.bytes) else {
            // Only a worker that was tampered with sends anything else.
            return call.reply(Fate::Unheard as u32);
        };
        let resolved = self.known.load().resolve_for_pool(&call.pool, &asked);
        let mut dropped = match resolved {
            Ok(Some(dropped)) => dropped,
            Ok(None) => return call.reply(Fate::NoCache as u32),
            Err(_) => return call.reply(Fate::NotIts as u32),
        };
        if dropped.len() > MAX_OF_CALL {
            dropped = all_of_sites(&dropped);
        }
        let pool = call.pool.clone();
        match budgets.pass(&pool, cost(&asked), call, Instant::now()) {
            Passage::Now(call) => self.carry_out(&dropped, vec![call]),
            Passage::Merged { is_news: true } => tracing::warn!(
                "pool {}: its scripts request more than {PURGES_PER_SECOND} purges of cached \
                 pages a second; they are carried out as one of all pages of its sites, every {} s",
                pool.name,
                MERGED_EVERY.as_secs()
            ),
            Passage::Merged { is_news: false } => {}
        }
    }

    /// Carries out what was requested beyond a pool's budget.
    fn purge_all_of(&self, pool: &PoolKey, waiting: Vec<WorkerCall>) {
        let all =
            PurgeRequest { targets: vec![Target::Everything], how: PurgeMode::Hard, site: None };
        match self.known.load().resolve_for_pool(pool, &all) {
            Ok(Some(dropped)) => self.carry_out(&dropped, waiting),
            // A reload has removed its sites, and their pages.
            Ok(None) | Err(_) => reply(waiting, Fate::NoCache),
        }
    }

    fn carry_out(&self, dropped: &[DroppedPages], calls: Vec<WorkerCall>) {
        let Some(elsewhere) = self.purge(dropped) else {
            return reply(calls, Fate::Dropped);
        };
        tokio::spawn(async move {
            let complaint = elsewhere.done().await;
            reply(calls, complaint.map_or(Fate::Dropped, |_| Fate::Unconfirmed));
        });
    }
}

fn reply(calls: Vec<WorkerCall>, fate: Fate) {
    calls.into_iter().for_each(|call| call.reply(fate as u32));
}

/// Ready at this time; never without one.
async fn at(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => future::pending().await,
    }
}

/// The cost of a request, in purges. The number of a pool's sites does not count: the operator has
/// chosen it.
fn cost(asked: &PurgeRequest) -> u32 {
    let bytes = |target: &Target| match target {
        Target::Url(name) | Target::Prefix(name) | Target::Host(name) | Target::Tag(name) => {
            name.len()
        }
        Target::Everything => 0,
    };
    let costs = asked.targets.iter().map(|target| cost_of(bytes(target)));
    costs.fold(0, u32::saturating_add)
}

/// One purge of all pages for each site.
fn all_of_sites(dropped: &[DroppedPages]) -> Vec<DroppedPages> {
    let is_soft = dropped.iter().all(|one| one.how == PurgeMode::Soft);
    let how = if is_soft { PurgeMode::Soft } else { PurgeMode::Hard };
    let sites: BTreeSet<&String> = dropped.iter().map(|one| &one.site).collect();
    let all =
        sites.into_iter().map(|site| DroppedPages { site: site.clone(), purge: Purge::All, how });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_of_a_call_costs_one_purge_and_a_long_one_several() {
        let targets =
            vec![Target::Tag("t".to_owned()), Target::Url("u".repeat(4096)), Target::Everything];
        assert_eq!(cost(&PurgeRequest { targets, how: PurgeMode::Hard, site: None }), 1 + 5 + 1);
    }

    #[test]
    fn of_a_call_with_too_many_purges_each_site_has_one() {
        let one = |number: usize, how| DroppedPages {
            site: ["a", "b"][number % 2].to_owned(),
            purge: Purge::Tag(number.to_string()),
            how,
        };
        for how in [PurgeMode::Soft, PurgeMode::Hard] {
            let many: Vec<DroppedPages> = (0..10).map(|number| one(number, how)).collect();
            let all = all_of_sites(&many);
            let sites: Vec<&str> = all.iter().map(|one| one.site.as_str()).collect();
            assert_eq!(sites, ["a", "b"]);
            assert!(all.iter().all(|one| one.purge == Purge::All && one.how == how));
        }
    }
}
