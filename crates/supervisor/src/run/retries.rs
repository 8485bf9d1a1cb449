//! The next start of a pool whose PHP does not start: after a wait that doubles, at a reload, or
//! once a file has changed that decides whether PHP starts.

use maitred_text::humanize::lasted;
use tracing::info;

use super::Supervisor;
use crate::limits::{Moment, PHP_FILES_CHECKED_EVERY, START_BACKOFF_LOGGED};
use crate::processes::generation::GenerationEvent;
use crate::processes::php_files::PhpFiles;
use crate::processes::pools::PoolId;
use crate::processes::running_pool::RunningPool;

impl Supervisor {
    /// Starts the pools whose files have changed, when the check is due.
    pub(super) fn retry_after_changes(&mut self) {
        let now = self.now();
        if self.php_files_deadline().is_none_or(|due| due > now) {
            return;
        }
        self.php_files_checked = now;
        let system = PhpFiles::of_system();
        let has_changed = |pool: &RunningPool| {
            let before = pool.php_files.filter(|_| pool.state.next_start().is_some());
            before.is_some_and(|before| before != system.with_pool(&pool.plan))
        };
        let changed = self.pools.iter().filter(|pool| has_changed(pool)).map(RunningPool::id);
        for id in changed.collect::<Vec<_>>() {
            info!(
                "pool {}: files of PHP have changed, so it is started again",
                self.pools[id].name()
            );
            self.retry_start(id);
        }
    }

    /// When the files of pools whose PHP does not start are checked next.
    pub(super) fn php_files_deadline(&self) -> Option<Moment> {
        let waits = |pool: &RunningPool| {
            pool.php_files.is_some()
                && pool.state.next_start().is_some_and(|next| next > self.now())
        };
        let is_checked = self.phase.is_serving() && self.pools.iter().any(waits);
        is_checked.then(|| self.php_files_checked + PHP_FILES_CHECKED_EVERY)
    }

    /// Starts all pools whose last start failed: a reload may have mended what they lack.
    pub(super) fn retry_all_starts(&mut self) {
        for id in self.pools.ids() {
            if self.pools[id].state.next_start().is_some() {
                self.retry_start(id);
            }
        }
    }

    fn retry_start(&mut self, id: PoolId) {
        let now = self.now();
        self.pools[id].state.retry_start(now);
        self.pool_event(id, GenerationEvent::Tick);
    }
}

impl RunningPool {
    /// Records the files of PHP before another start after a failed one.
    pub(super) fn note_php_files(&mut self) {
        let has_failed = self.state.has_failed();
        self.php_files = has_failed.then(|| PhpFiles::of_system().with_pool(&self.plan));
    }

    /// Logs that the next start has to wait, once in an episode of failed starts.
    pub(super) fn log_wait(&mut self, now: Moment) {
        let wait = self.state.next_start().map(|next| next.saturating_sub(now));
        let Some(wait) = wait.filter(|wait| *wait >= START_BACKOFF_LOGGED) else {
            return;
        };
        if !std::mem::replace(&mut self.wait_logged, true) {
            let longest = self.state.longest_start_wait().as_secs();
            info!(
                "pool {}: PHP is started again in {}, and then after longer waits of up to \
                 {longest} s; at once when its files change, or with `maitred reload`",
                self.name(),
                lasted(wait)
            );
        }
    }

    /// Why it does not start, and when it is tried again.
    pub(super) fn shown_start_error(&self, now: Moment) -> Option<String> {
        let why = self.start_error.clone()?;
        Some(match self.state.next_start() {
            Some(next) => format!(
                "{why}; it is started again in {}, or with `maitred reload`",
                lasted(next.saturating_sub(now))
            ),
            None => why,
        })
    }
}
