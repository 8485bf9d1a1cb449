//! `watch`: booted applications are restarted when one of their files is saved. The generation
//! before serves until the new one is ready, or for good if that does not boot.

mod debounce;
mod folders;
mod root_looks;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use maitred_config::Mode;
use maitred_control::Generation;
use maitred_control::episode::{LogThrottle, News};
use maitred_text::humanize::lasted;
use tracing::{error, info, warn};

use crate::limits::Moment;
use crate::logging::text::one_line;
use crate::processes::pools::Pools;
use crate::processes::running_pool::RunningPool;
use crate::reload::restart_requests::{RestartRequests, SaveNotice};
use debounce::Debounce;
use folders::Folders;
use root_looks::RootLooks;

/// Most watched folders of an application.
const FOLDERS_MAX: usize = 4096;

/// The pause after each part of an application's folders that is read: what others need of the
/// supervisor goes on meanwhile.
const BETWEEN_PARTS: Duration = Duration::from_millis(50);

/// How long an application's folder may not have gone until that is logged again. Longer than the
/// longest pause before a look for it.
const GONE_CALM: Duration = Duration::from_secs(120);

/// The watched applications, by the names of their pools.
#[derive(Debug, Default)]
pub struct Watches(BTreeMap<String, Watch>);

#[derive(Debug)]
struct Watch {
    script: PathBuf,
    /// The generation that the watch was started for, or a later one of the same folder.
    generation: Generation,
    /// None if watching is not possible, which was logged.
    folders: Option<Folders>,
    changes: Debounce,
    /// The looks for its folder, if it was removed.
    looks: RootLooks,
    /// How often its folder has gone.
    gone: LogThrottle<()>,
    /// That it is watched again is logged, as that it has gone was.
    logs_return: bool,
    /// Its folder is back: it boots once its folders have been read.
    is_back: bool,
    /// When the next part of its folders is read; `None`: at once.
    reads_at: Option<Moment>,
}

impl Watches {
    /// Descriptors to poll.
    pub fn listening(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let folders = self.0.values().filter_map(|watch| watch.folders.as_ref());
        folders.map(Folders::as_fd)
    }

    /// When saved files are acted upon.
    pub fn deadline(&self) -> Option<Moment> {
        let watches = self.0.values();
        let deadlines = watches.flat_map(|watch| {
            let looks = watch.looks.deadline();
            [watch.changes.deadline(), looks, watch.gone.deadline(), watch.reads_at]
        });
        deadlines.flatten().min()
    }

    /// Reads which files have been saved.
    pub fn read(&mut self, now: Moment) {
        for watch in self.0.values_mut() {
            let saved = watch.folders.as_mut().map(Folders::take_saved);
            for file in saved.into_iter().flatten() {
                watch.changes.note(file, now);
            }
        }
    }

    /// Watches the folders of the current generations, and requests restarts for saved files.
    pub fn keep(&mut self, pools: &Pools, restarts: &mut RestartRequests, now: Moment) {
        let watched = pools.iter().filter_map(RunningPool::watched);
        if self.0.is_empty() && watched.count() == 0 {
            return;
        }
        let wanted = pools.iter().filter_map(|pool| {
            let script = pool.watched()?.clone();
            Some((pool.name().to_owned(), (script, pool.generation)))
        });
        let wanted: BTreeMap<String, (PathBuf, Generation)> = wanted.collect();
        self.0.retain(|pool, _| wanted.contains_key(pool));
        for (pool, (script, generation)) in wanted {
            match self.0.entry(pool) {
                Entry::Vacant(new) => {
                    let watch = Watch::begin(new.key(), script, generation);
                    new.insert(watch);
                }
                Entry::Occupied(mut watch) => {
                    let pool = watch.key().clone();
                    watch.get_mut().follow(&pool, script, generation);
                }
            }
        }
        for (pool, watch) in &mut self.0 {
            watch.look_for_root(pool, now);
            watch.read_on(now);
            watch.log_gone(pool, now);
            let lack = watch.folders.as_mut().and_then(Folders::take_lack);
            if let Some(lack) = lack.as_deref().map(one_line) {
                warn!(
                    "pool {pool}: {lack}, and files in some folders may be saved without being \
                     seen (watch); use `maitred reload {pool}` for those"
                );
            }
            if let Some((file, at)) = watch.changes.take_due(now) {
                let notice = restarts.want_saved(pool, at);
                log_saved(pool, &file, notice);
            }
        }
    }
}

impl RunningPool {
    /// The script of an application to watch.
    fn watched(&self) -> Option<&PathBuf> {
        let pool = &self.plan.pool;
        let is_watched = pool.watch && pool.mode != Mode::Classic && self.is_current();
        pool.script.as_ref().filter(|_| is_watched)
    }
}

/// The name of a saved file, on one line.
fn in_words(file: &Path) -> String {
    match file.as_os_str().is_empty() {
        true => "more than the kernel has kept".to_owned(),
        false => one_line(&file.to_string_lossy()),
    }
}

/// Logs why a pool is restarted.
fn log_saved(pool: &str, file: &Path, heard: SaveNotice) {
    let file = in_words(file);
    match heard {
        SaveNotice::News => info!("pool {pool}: {file} was saved"),
        SaveNotice::Echo(rest) => warn!(
            "pool {pool}: {file} was saved, and so was a file during the boot before, or less \
             than a second after it; if the application writes it itself, let it do so in a \
             folder named var, cache or storage; the next boot waits for {} s, and more each time \
             (watch); `maitred reload {pool}` boots at once",
            rest.as_secs()
        ),
        SaveNotice::Known => {}
    }
}

impl Watch {
    /// The first watch of a pool.
    fn begin(pool: &str, script: PathBuf, generation: Generation) -> Watch {
        let mut watch = Watch {
            folders: open(pool, &script),
            script,
            generation,
            changes: Debounce::default(),
            looks: RootLooks::default(),
            gone: LogThrottle::new(GONE_CALM),
            logs_return: false,
            is_back: false,
            reads_at: None,
        };
        watch.folders.as_mut().map(Folders::read_at_first);
        watch.log_begin(pool);
        watch
    }

    /// Watches the folders of the script, which are others than before. An application can have
    /// that happen again and again, so they are read in parts.
    fn begin_again(&mut self, pool: &str) {
        self.folders = open(pool, &self.script);
        self.reads_at = None;
        self.folders.as_mut().map(Folders::read_on);
    }

    fn log_begin(&self, pool: &str) {
        let Some(folders) = &self.folders else { return };
        let (count, root) = (folders.count(), in_words(folders.root()));
        let more = if folders.is_reading() { " so far" } else { "" };
        info!("pool {pool}: {count} folders from {root} on are watched{more} (watch = true)");
    }

    /// Reads a part of the folders that are still to be read.
    fn read_on(&mut self, now: Moment) {
        if self.reads_at.is_some_and(|at| at > now) {
            return;
        }
        self.reads_at = None;
        if let Some(folders) = self.folders.as_mut().filter(|folders| folders.is_reading()) {
            folders.read_on();
            self.reads_at = folders.is_reading().then_some(now + BETWEEN_PARTS);
        }
        if self.is_back && self.reads_at.is_none() {
            self.is_back = false;
            self.changes.note(self.script.clone(), now);
        }
    }

    /// Follows the script and the generation of the pool. Another generation may have booted
    /// another release, through a symbolic link.
    fn follow(&mut self, pool: &str, script: PathBuf, generation: Generation) {
        let is_other_script = self.script != script;
        let is_same = !is_other_script && self.generation == generation;
        (self.script, self.generation) = (script, generation);
        if is_same {
            return;
        }
        let root = self.folders.as_ref().map(Folders::root);
        let is_other_root =
            || root.is_some_and(|root| root != folders::of_application(&self.script));
        if is_other_script || is_other_root() {
            (self.changes, self.looks) = (Debounce::default(), RootLooks::default());
            self.is_back = false;
            self.begin_again(pool);
            self.log_begin(pool);
        }
    }

    /// Starts again once a removed folder is back: files that were saved meanwhile were not seen.
    fn look_for_root(&mut self, pool: &str, now: Moment) {
        let Some(folders) = self.folders.as_ref().filter(|folders| folders.are_gone()) else {
            return;
        };
        if self.looks.gone(now) {
            self.is_back = false;
            self.logs_return = self.gone.happened(now, |()| {}) == 1;
            if self.logs_return {
                let root = in_words(folders.root());
                warn!("pool {pool}: {root} has gone, and is watched again once it is back (watch)");
            }
        }
        if !self.looks.is_due(now) {
            return;
        }
        let is_there = self.script.is_file();
        self.looks.looked(is_there, now);
        if is_there {
            self.is_back = true;
            self.begin_again(pool);
            if self.logs_return {
                self.log_begin(pool);
            }
        }
    }

    /// Logs how often the folder has gone, if it was more than once.
    fn log_gone(&mut self, pool: &str, now: Moment) {
        let Some(News::GoesOn(account) | News::Over(account)) = self.gone.due(now) else { return };
        if account.times > 1 {
            warn!(
                "pool {pool}: its folder has gone {} times within {} (watch)",
                account.times,
                lasted(account.lasted)
            );
        }
    }
}

/// The folders of a script, of which none has been read. None: they cannot be watched, which is
/// logged.
fn open(pool: &str, script: &Path) -> Option<Folders> {
    let folders = Folders::below(&folders::of_application(script), FOLDERS_MAX);
    let folders = folders.map_err(|why| {
        error!(
            "pool {pool}: its files cannot be watched: {why}; raise \
             fs.inotify.max_user_instances, or use `maitred reload {pool}`"
        );
    });
    folders.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_file_adds_no_line_to_the_log_and_one_that_nobody_knows_is_said_to_be_so() {
        let forged = Path::new("/srv/a\n2026-11-22T20:00:00Z ERROR forged.php");
        assert_eq!(in_words(forged), "/srv/a 2026-11-22T20:00:00Z ERROR forged.php");
        assert_eq!(in_words(Path::new("")), "more than the kernel has kept");
    }
}
