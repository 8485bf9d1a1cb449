//! `watch`: booted applications are restarted when one of their files is saved. The generation
//! before serves until the new one is ready, or for good if that does not boot.

mod debounce;
mod folders;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use maitred_config::Mode;
use maitred_control::Generation;
use tracing::{error, info, warn};

use crate::limits::Moment;
use crate::logging::text::one_line;
use crate::processes::pools::Pools;
use crate::processes::running_pool::RunningPool;
use crate::reload::restart_requests::{RestartRequests, SaveNotice};
use debounce::Debounce;
use folders::Folders;

/// Most watched folders of an application.
const FOLDERS_MAX: usize = 4096;

/// The pause after each part of an application's folders that is read: what others need of the
/// supervisor goes on meanwhile.
const BETWEEN_PARTS: Duration = Duration::from_millis(50);

/// How often a removed application folder is checked for.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

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
    /// The folder was removed: when to check for it again.
    look_at: Option<Moment>,
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
        let deadlines =
            watches.flat_map(|watch| [watch.changes.deadline(), watch.look_at, watch.reads_at]);
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
        self.0.retain(|pool, watch| {
            let wanted = wanted.get(pool);
            wanted.is_some_and(|(script, generation)| watch.goes_on(script, *generation))
        });
        for (pool, (script, generation)) in wanted {
            if let Entry::Vacant(new) = self.0.entry(pool) {
                let watch = Watch::begin(new.key(), script, generation);
                new.insert(watch);
            }
        }
        for (pool, watch) in &mut self.0 {
            watch.look_for_root(pool, now);
            watch.read_on(now);
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
    fn begin(pool: &str, script: PathBuf, generation: Generation) -> Watch {
        let root = folders::of_application(&script);
        let folders = match Folders::below(&root, FOLDERS_MAX) {
            Ok(folders) => {
                let count = folders.count();
                let root = one_line(&root.to_string_lossy());
                let more = if folders.is_reading() { " so far" } else { "" };
                info!(
                    "pool {pool}: {count} folders from {root} on are watched{more} (watch = true)"
                );
                Some(folders)
            }
            Err(why) => {
                error!(
                    "pool {pool}: its files cannot be watched: {why}; raise \
                     fs.inotify.max_user_instances, or use `maitred reload {pool}`"
                );
                None
            }
        };
        Watch {
            script,
            generation,
            folders,
            changes: Debounce::default(),
            look_at: None,
            reads_at: None,
        }
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
    }

    /// Whether the watch still fits this script and generation of the pool. Another generation may
    /// have booted another release, through a symbolic link.
    fn goes_on(&mut self, script: &Path, generation: Generation) -> bool {
        if self.script != script {
            return false;
        }
        if std::mem::replace(&mut self.generation, generation) == generation {
            return true;
        }
        let root = self.folders.as_ref().map(Folders::root);
        root.is_none_or(|root| root == folders::of_application(script))
    }

    /// Starts again once a removed folder is back: files that were saved meanwhile were not seen.
    fn look_for_root(&mut self, pool: &str, now: Moment) {
        if !self.folders.as_ref().is_some_and(Folders::are_gone) {
            return;
        }
        match self.look_at {
            None => {
                let root = self.folders.as_ref().map(Folders::root);
                let root = in_words(root.unwrap_or(&self.script));
                warn!("pool {pool}: {root} has gone, and is watched again once it is back (watch)");
            }
            Some(at) if at > now => return,
            Some(_) if self.script.is_file() => {
                *self = Watch::begin(pool, self.script.clone(), self.generation);
                self.changes.note(self.script.clone(), now);
                return;
            }
            Some(_) => {}
        }
        self.look_at = Some(now + LOOK_AGAIN);
    }
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
