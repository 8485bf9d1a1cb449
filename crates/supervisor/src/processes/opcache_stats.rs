//! How the pools' OPcaches are doing: zygotes are asked, when somebody wants to know, and not often.

use std::time::Duration;

use maitred_control::admin::Opcache;
use maitred_control::{CacheFigures, ToZygote};
use maitred_scoreboard::Cache;

use crate::limits::Moment;
use crate::processes::pools::PoolId;
use crate::processes::running_pool::RunningPool;
use crate::run::Supervisor;

/// How long figures are good: to look at OPcache takes a process and a request to PHP.
const FRESH: Duration = Duration::from_secs(10);

/// What a zygote has told of its OPcache.
#[derive(Debug, Default)]
pub struct OpcacheStats {
    /// It was asked and has not answered yet.
    asked: bool,
    /// Its answer decides whether there has to be a larger one.
    judges: bool,
    /// When it answered last, and what.
    told: Option<(Moment, Option<CacheFigures>)>,
}

impl OpcacheStats {
    /// Whether it is to be asked now. It is asked one thing at a time, however long it takes.
    fn ask(&mut self, now: Moment) -> bool {
        let is_fresh = self.told.is_some_and(|(at, _)| now < at + FRESH);
        let asks = !self.asked && !is_fresh;
        self.asked |= asks;
        asks
    }

    /// Its workers say that it is full. Whether it is to be asked now.
    pub fn ask_whether_full(&mut self) -> bool {
        self.judges = true;
        !std::mem::replace(&mut self.asked, true)
    }

    /// It has answered. False when it was not asked.
    fn answered(&mut self, figures: Option<CacheFigures>, now: Moment) -> bool {
        let was_asked = std::mem::take(&mut self.asked);
        if was_asked {
            self.told = Some((now, figures));
        }
        was_asked
    }
}

impl Supervisor {
    /// Has the zygotes tell how their OPcaches are doing, as far as that is not known.
    pub fn look_at_caches(&mut self) {
        let now = self.now();
        for running in self.pools.iter_mut().filter(|pool| pool.is_current()) {
            let is_up = running.pool.zygote_is_up();
            let zygote = running.zygote.as_mut().filter(|_| is_up);
            let page = self.scores.page(&running.plan.settings.pool);
            let Some(zygote) = zygote else {
                // What it told is gone with it.
                page.inspect(|page| page.workers().show_cache(None));
                continue;
            };
            if zygote.cache.ask(now) {
                zygote.peer.say(ToZygote::ReportOpcache, &[]);
            } else if let Some(page) = page.filter(|_| !zygote.cache.asked) {
                page.workers().cache_is_fresh();
            }
        }
    }

    /// A zygote tells how its OPcache is doing.
    pub fn cache_told(&mut self, id: PoolId, figures: Option<CacheFigures>) {
        let now = self.now();
        let running = &mut self.pools[id];
        let look = running.zygote.as_mut().map(|zygote| &mut zygote.cache);
        let Some(look) = look.filter(|look| look.asked) else {
            return;
        };
        look.answered(figures, now);
        let judges = std::mem::take(&mut look.judges);
        if !running.is_current() {
            return;
        }
        if let Some(figures) = figures.filter(|_| judges) {
            self.judge_fullness(id, &figures);
        }
        let running = &self.pools[id];
        if let Some(page) = self.scores.page(&running.plan.settings.pool) {
            page.workers().show_cache(figures.map(shown));
        }
    }

    /// Whether a zygote of the pool `name` is about to tell.
    pub fn cache_comes(&self, name: &str) -> bool {
        self.cache_look(name).is_some_and(|look| look.asked)
    }

    /// The OPcache of the pool `name`, if it is known.
    pub fn opcache(&self, name: &str) -> Option<Opcache> {
        let (at, figures) = self.cache_look(name)?.told?;
        Some(Opcache {
            age_seconds: self.now().saturating_sub(at).as_secs_f64(),
            figures: figures?,
        })
    }

    fn cache_look(&self, name: &str) -> Option<&OpcacheStats> {
        let is_it = |pool: &&RunningPool| pool.is_current() && pool.plan.settings.pool == name;
        let current = self.pools.iter().rfind(is_it)?;
        current.zygote.as_ref().map(|zygote| &zygote.cache)
    }
}

fn shown(figures: CacheFigures) -> Cache {
    Cache {
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
        assert!(!look.answered(None, at(1)), "it was not asked");
        assert!(look.ask(at(1)));
        assert!(!look.ask(at(1)) && !look.ask(at(100)), "it is still at it");
        assert!(look.answered(Some(CacheFigures::default()), at(100)));
        assert!(!look.answered(None, at(101)));
        assert!(matches!(look.told, Some((_, Some(_)))));
        assert!(!look.ask(at(109)) && look.ask(at(110)));
    }
}
