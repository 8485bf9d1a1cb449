//! `spool_dir`, with the account of all that is in its files.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use maitred_budget::SharedBudget;
use maitred_control::episode::{LogThrottle, News};
use maitred_text::humanize::{self, lasted};
use tokio::sync::Notify;

use crate::http::body::blocking;

/// How long the free space of the file system counts as known.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// An episode without space ends after this long with enough of it.
const CALM: Duration = Duration::from_secs(60);

/// Quarters of the free space of a file system that all spooled bytes may take by default.
const DEFAULT_QUARTERS: u64 = 3;

/// What bytes are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpoolPurpose {
    /// A response that its client has not read yet. Without space its script waits.
    Response,
    /// The body of a request, which is refused without space: bodies may take more, so that slow
    /// readers of a pool leave space to its uploads.
    Body,
}

impl SpoolPurpose {
    /// Bytes that an owner may have for each byte that is free.
    fn share(self) -> u64 {
        match self {
            SpoolPurpose::Response => 1,
            SpoolPurpose::Body => 4,
        }
    }
}

/// All files that are spooled by this front.
#[derive(Debug)]
pub struct SpoolSpace {
    started: Instant,
    state: Mutex<SpaceState>,
    /// Notified when a file is gone.
    freed: Notify,
}

#[derive(Debug, Default)]
struct SpaceState {
    budget: SharedBudget,
    /// The files themselves: each has a descriptor.
    files: SharedBudget,
    /// `spool_max_size`; none: it follows from the free space.
    setting: Option<u64>,
    looked: Option<Instant>,
    /// By owner, of which there are as many as the configuration names.
    refused: BTreeMap<String, LogThrottle<()>>,
}

impl Default for SpoolSpace {
    fn default() -> SpoolSpace {
        SpoolSpace { started: Instant::now(), state: Mutex::default(), freed: Notify::new() }
    }
}

/// What there is too little of.
#[derive(Debug, Clone, Copy)]
enum SpoolLack {
    Bytes,
    Files,
}

/// A file that is to become longer.
struct FileGrowth<'a> {
    owner: &'a str,
    bytes: u64,
    purpose: SpoolPurpose,
    /// It is created for these bytes.
    is_new: bool,
}

impl SpaceState {
    fn admits(&self, growth: &FileGrowth<'_>) -> Result<(), SpoolLack> {
        let &FileGrowth { owner, bytes, purpose, is_new } = growth;
        let share = purpose.share();
        if is_new && !self.files.admits(owner, 1, share) {
            return Err(SpoolLack::Files);
        }
        if self.budget.admits(owner, bytes, share) { Ok(()) } else { Err(SpoolLack::Bytes) }
    }

    fn take(&mut self, growth: &FileGrowth<'_>) -> Result<(), SpoolLack> {
        self.admits(growth)?;
        let &FileGrowth { owner, bytes, purpose, is_new } = growth;
        let _ = is_new && self.files.take(owner, 1, purpose.share());
        let _ = self.budget.take(owner, bytes, purpose.share());
        Ok(())
    }
}

impl SpoolSpace {
    /// The account of at most this many files.
    pub fn of(files: u64) -> SpoolSpace {
        let space = SpoolSpace::default();
        space.lock().files.limit_to(files);
        space
    }

    /// Applies `spool_max_size`; none: the limit follows from the free space.
    pub fn configure(&self, setting: Option<u64>) {
        let mut state = self.lock();
        (state.setting, state.looked) = (setting, None);
        if let Some(bytes) = setting {
            state.budget.limit_to(bytes);
        }
    }

    /// Bytes in files, and their limit if it is known.
    pub fn read(&self) -> (u64, Option<u64>) {
        let state = self.lock();
        (state.budget.used(), state.budget.limit())
    }

    /// Bytes in files of this owner, by its name in log lines.
    pub fn used_by(&self, owner: &str) -> u64 {
        self.lock().budget.used_by(owner)
    }

    /// Whether the free space of the file system is to be found out.
    fn wants_look(&self) -> bool {
        let mut state = self.lock();
        let now = Instant::now();
        let is_known = state.looked.is_some_and(|at| now.duration_since(at) < LOOK_EVERY);
        if state.setting.is_some() || is_known {
            return false;
        }
        state.looked = Some(now);
        true
    }

    fn set_free(&self, free: u64) {
        let mut state = self.lock();
        if state.setting.is_none() {
            let all = free.saturating_add(state.budget.used());
            state.budget.limit_to(all / 4 * DEFAULT_QUARTERS);
        }
    }

    /// Logs that an owner has no space left, once an episode and then at growing intervals.
    fn log_refusal(&self, owner: &str, lack: SpoolLack) {
        let mut state = self.lock();
        let now = self.started.elapsed();
        let throttle =
            state.refused.entry(owner.to_owned()).or_insert_with(|| LogThrottle::new(CALM));
        let news = throttle.due(now);
        let is_first = throttle.happened(now, |()| {}) == 1;
        let budget = match lack {
            SpoolLack::Bytes => &state.budget,
            SpoolLack::Files => &state.files,
        };
        let (used, limit) = (budget.used_by(owner), budget.limit().unwrap_or(0));
        drop(state);
        let (used, limit, remedy) = match lack {
            SpoolLack::Bytes => (
                humanize::bytes(used as f64),
                humanize::bytes(limit as f64),
                "free space there or raise spool_max_size",
            ),
            SpoolLack::Files => (
                format!("{used} descriptors"),
                limit.to_string(),
                "raise the server's limit of open files",
            ),
        };
        match news {
            Some(News::GoesOn(so_far)) => tracing::warn!(
                "{owner}: for {} its files in spool_dir have had their share of space, now {used} \
                 of {limit}; {} times scripts had to wait, or bodies were refused",
                lasted(so_far.lasted),
                so_far.times
            ),
            _ if is_first => tracing::warn!(
                "{owner}: its files in spool_dir have {used}, its share of {limit}: scripts wait \
                 for clients that read slowly, and large bodies are refused with a 503; {remedy}; \
                 further ones are counted"
            ),
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, SpaceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `spool_dir`.
#[derive(Debug, Clone)]
pub struct SpoolFolder {
    /// Its path.
    pub path: PathBuf,
    /// The account of all files.
    pub space: Arc<SpoolSpace>,
}

/// `spool_dir` as the requests of one pool or upstream server use it.
#[derive(Clone, Copy)]
pub struct SpoolPlace<'a> {
    /// The folder.
    pub folder: &'a SpoolFolder,
    /// The pool or upstream server, as log lines name it.
    pub owner: &'a (dyn Display + Sync),
}

impl fmt::Debug for SpoolPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {}", self.folder.path.display(), self.owner)
    }
}

impl SpoolPlace<'_> {
    /// A new file without a byte.
    ///
    /// # Errors
    /// When it cannot be created.
    pub async fn create(&self) -> io::Result<std::fs::File> {
        let dir = self.folder.path.clone();
        blocking(move || tempfile::tempfile_in(dir)).await
    }

    /// The account of a file that is still to be created. Finds out the free space before, if need
    /// be.
    pub async fn account(&self, purpose: SpoolPurpose) -> SpooledBytes {
        let space = self.folder.space.clone();
        let account = SpooledBytes {
            space,
            owner: self.owner.to_string(),
            purpose,
            bytes: 0,
            has_file: false,
        };
        self.look().await;
        account
    }

    /// Finds out the free space if it is not known, or no longer.
    pub async fn look(&self) {
        if !self.folder.space.wants_look() {
            return;
        }
        let path = self.folder.path.clone();
        let free = blocking(move || {
            let of = rustix::fs::statvfs(&path)?;
            Ok(of.f_bavail.saturating_mul(of.f_frsize))
        });
        // An error of the folder is one of the file as well.
        if let Ok(free) = free.await {
            self.folder.space.set_free(free);
        }
    }

    /// Whether a response may have this many bytes more, in a new file or its own.
    pub fn admits_response(&self, bytes: usize, is_new: bool) -> bool {
        let (space, owner) = (&self.folder.space, &self.owner.to_string());
        let purpose = SpoolPurpose::Response;
        space.lock().admits(&FileGrowth { owner, bytes: bytes as u64, purpose, is_new }).is_ok()
    }

    /// Returns when a response may have this many bytes more, after other files have gone.
    pub async fn space_for_response(&self, bytes: usize, is_new: bool) {
        loop {
            let freed = self.folder.space.freed.notified();
            if self.admits_response(bytes, is_new) {
                return;
            }
            freed.await;
        }
    }
}

/// The bytes of one file, until it is dropped.
#[derive(Debug)]
pub struct SpooledBytes {
    space: Arc<SpoolSpace>,
    owner: String,
    purpose: SpoolPurpose,
    bytes: u64,
    /// The file counts as well, from its first byte on.
    has_file: bool,
}

impl SpooledBytes {
    /// Takes this many bytes more, and logs if there is no space.
    #[must_use]
    pub fn take(&mut self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        let (owner, purpose) = (&self.owner, self.purpose);
        let growth = FileGrowth { owner, bytes, purpose, is_new: !self.has_file };
        let taken = self.space.lock().take(&growth);
        match taken {
            Ok(()) => {
                self.bytes += bytes;
                self.has_file = true;
            }
            Err(lack) => self.space.log_refusal(&self.owner, lack),
        }
        taken.is_ok()
    }

    /// Gives back bytes that could not be written.
    pub fn give_back(&mut self, bytes: usize) {
        self.shrink_to(self.bytes.saturating_sub(bytes as u64));
    }

    /// Gives back all but this many bytes: the file is shorter now.
    pub fn shrink_to(&mut self, bytes: u64) {
        let released = self.bytes.saturating_sub(bytes);
        self.space.lock().budget.release(&self.owner, released);
        self.bytes -= released;
    }
}

impl Drop for SpooledBytes {
    fn drop(&mut self) {
        self.shrink_to(0);
        if self.has_file {
            self.space.lock().files.release(&self.owner, 1);
        }
        self.space.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_three_quarters_of_what_is_free_without_spooled_bytes() {
        let space = SpoolSpace::of(10);
        let growth =
            FileGrowth { owner: "a", bytes: 400, purpose: SpoolPurpose::Body, is_new: true };
        space.lock().take(&growth).expect("nothing is known yet");
        space.set_free(600);
        assert_eq!(space.read(), (400, Some(750)));
    }
}
