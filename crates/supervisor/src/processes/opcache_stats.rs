//! The state of the pools' OPcaches: zygotes are queried on demand, at a bounded rate.

use std::time::Duration;

use maitred_control::admin::Opcache;
use maitred_control::{CacheFigures, ToZygote};

use crate::limits::Moment;
use crate::processes::pools::Pools;
use crate::processes::running_pool::RunningPool;
use crate::processes::scoreboards::Scoreboards;

/// How long a report is fresh: reading the state of OPcache takes a process and a request to PHP.
const FRESH: Duration = Duration::from_secs(10);

/// The state of an OPcache, as its zygote has reported it.
#[derive(Debug, Default)]
pub struct OpcacheStats {
    /// The zygote was queried and has not replied.
    queried: bool,
    /// Its reply decides whether a larger OPcache is needed.
    may_be_full: bool,
    /// When it replied last, and its reply.
    reported: Option<(Moment, Option<CacheFigures>)>,
}

impl OpcacheStats {
    /// Whether to query the zygote now. One query at a time, however long it takes.
    fn query(&mut self, now: Moment) -> bool {
        let is_fresh = self.reported.is_some_and(|(at, _)| now < at + FRESH);
        let queries = !self.queried && !is_fresh;
        self.queried |= queries;
        queries
    }

    /// Workers report that it is full. Whether to query the zygote now.
    pub fn query_whether_full(&mut self) -> bool {
        self.may_be_full = true;
        !std::mem::replace(&mut self.queried, true)
    }

    /// The zygote has reported. False when it was not queried.
    fn report(&mut self, figures: Option<CacheFigures>, now: Moment) -> bool {
        let was_queried = std::mem::take(&mut self.queried);
        if was_queried {
            self.reported = Some((now, figures));
        }
        was_queried
    }
}

impl Pools {
    /// Queries the zygotes for the state of their OPcaches, where it is not known.
    pub fn query_opcaches(&mut self, scoreboards: &Scoreboards, now: Moment) {
        for running in self.iter_mut().filter(|pool| pool.is_current()) {
            let is_up = running.state.zygote_is_up();
            let zygote = running.zygote.as_mut().filter(|_| is_up);
            let page = scoreboards.page(&running.plan.settings.pool);
            let Some(zygote) = zygote else {
                page.inspect(|page| page.workers().show_cache(None));
                continue;
            };
            if zygote.opcache.query(now) {
                zygote.say(ToZygote::ReportOpcache, &[]);
            } else if let Some(page) = page.filter(|_| !zygote.opcache.queried) {
                page.workers().cache_is_fresh();
            }
        }
    }

    /// Whether the zygote of the pool `name` has yet to report.
    pub fn awaits_opcache(&self, name: &str) -> bool {
        self.opcache_stats(name).is_some_and(|stats| stats.queried)
    }

    /// The state of the OPcache of the pool `name`, if it is known.
    pub fn opcache(&self, name: &str, now: Moment) -> Option<Opcache> {
        let (at, figures) = self.opcache_stats(name)?.reported?;
        Some(Opcache { age_seconds: now.saturating_sub(at).as_secs_f64(), figures: figures? })
    }

    fn opcache_stats(&self, name: &str) -> Option<&OpcacheStats> {
        let current = self.current_of(name)?;
        current.zygote.as_ref().map(|zygote| &zygote.opcache)
    }
}

impl RunningPool {
    /// Queries the zygote for the state of its OPcache, unless it has yet to reply.
    pub fn query_opcache(&mut self) {
        if let Some(zygote) = &mut self.zygote
            && !std::mem::replace(&mut zygote.opcache.queried, true)
        {
            zygote.say(ToZygote::ReportOpcache, &[]);
        }
    }

    /// The zygote has reported the state of its OPcache. Returns it if it is to be checked for
    /// being full.
    pub fn opcache_reported(
        &mut self,
        figures: Option<CacheFigures>,
        scoreboards: &Scoreboards,
        now: Moment,
    ) -> Option<CacheFigures> {
        let stats = &mut self.zygote.as_mut()?.opcache;
        if !stats.report(figures, now) {
            return None;
        }
        let may_be_full = std::mem::take(&mut stats.may_be_full);
        if !self.is_current() {
            return None;
        }
        if let Some(page) = scoreboards.page(self.name()) {
            page.workers().show_cache(figures.map(shown));
        }
        figures.filter(|_| may_be_full)
    }
}

fn shown(figures: CacheFigures) -> maitred_scoreboard::OpcacheStats {
    maitred_scoreboard::OpcacheStats {
        used_bytes: figures.memory_used_bytes,
        free_bytes: figures.memory_free_bytes,
        wasted_bytes: figures.memory_wasted_bytes,
        scripts: figures.cached_scripts,
        hits: figures.hits,
        misses: figures.misses,
        oom_restarts: figures.oom_restarts,
        hash_restarts: figures.hash_restarts,
        manual_restarts: figures.manual_restarts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zygote_is_asked_one_thing_at_a_time_and_not_often() {
        let at = Duration::from_secs;
        let mut look = OpcacheStats::default();
        assert!(!look.report(None, at(1)), "it was not asked");
        assert!(look.query(at(1)));
        assert!(!look.query(at(1)) && !look.query(at(100)), "it is still at it");
        assert!(look.report(Some(CacheFigures::default()), at(100)));
        assert!(!look.report(None, at(101)));
        assert!(matches!(look.reported, Some((_, Some(_)))));
        assert!(!look.query(at(109)) && look.query(at(110)));
    }
}
