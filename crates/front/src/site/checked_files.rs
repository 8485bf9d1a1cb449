//! Parsed files of users and groups, read again when they change.
//!
//! A tenant may write any number of them, of any size, in folders of its own: they are read and
//! parsed on other threads, a few of each tenant at a time, the table has a limit of bytes, and the
//! log one of lines.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use maitred_os::walk;

use crate::runtime::file_identity::Identity;
use crate::runtime::lookup_turns::{Deadline, Tenant};
use crate::site::logged_paths::{LogTurn, LoggedPaths};
use crate::site::name_lookups;

/// Least interval between two checks of a file.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Most bytes of all files in a table, as they are on the disk.
const MAX_TOTAL_BYTES: u64 = 64 << 20;
/// Least bytes that a file counts as, so that a table has 4096 files at most.
const LEAST_BYTES: u64 = MAX_TOTAL_BYTES / 4096;
/// Interval between two log lines with one mistake.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

static LOGGED: LoggedPaths = LoggedPaths::every(LOGGED_EVERY);

/// A file as the table needs it.
#[derive(Debug, Clone, Copy)]
pub struct FileToCheck<'a, T> {
    /// The file.
    pub path: &'a Path,
    /// Whose share of the table and of the log it uses: the document root of its site, or the file
    /// itself if the configuration names it.
    pub owner: &'a Path,
    /// The setting that names it, for the log.
    pub setting: &'static str,
    /// Its last content stays in use if the file is removed. Not so for a file that a `.htaccess`
    /// names: Apache reads it with each request, and without it there are no users.
    pub outlives_removal: bool,
    /// Reads and parses it. The error is one sentence, with the file and the line.
    pub load: fn(&Path) -> Result<T, String>,
    /// What is wrong with a part of it, as one sentence.
    pub complaint: fn(&Path, &T) -> Option<String>,
}

impl<T> FileToCheck<'_, T> {
    /// Logs a mistake, unless it was logged recently.
    fn log(&self, sentence: &str) {
        let setting = self.setting;
        match LOGGED.turn(self.owner, sentence.as_bytes(), Instant::now()) {
            LogTurn::Subject => tracing::error!("{setting}: {sentence}"),
            LogTurn::Excess => tracing::error!(
                "{setting}: {}: there are more mistakes in files of users and groups than are \
                 logged in a minute",
                walk::printable(self.owner)
            ),
            LogTurn::Nothing => {}
        }
    }
}

/// A file takes too long to read.
#[derive(Debug, Clone, Copy)]
pub struct TakesTooLong;

/// Parsed files by their paths.
#[derive(Debug)]
pub struct CheckedFiles<T> {
    files: Mutex<HashMap<PathBuf, CheckedFile<T>>>,
}

#[derive(Debug)]
struct CheckedFile<T> {
    owner: PathBuf,
    parsed: Option<Arc<T>>,
    /// Size of what is parsed, or [`LEAST_BYTES`].
    bytes: u64,
    identity: Option<Identity>,
    /// A later change shows in the identity.
    is_settled: bool,
    checked: Instant,
}

/// A file that was read.
struct LoadedFile<T> {
    identity: Option<Identity>,
    is_settled: bool,
    parsed: Result<T, String>,
}

impl<T> Default for CheckedFiles<T> {
    fn default() -> CheckedFiles<T> {
        CheckedFiles { files: Mutex::default() }
    }
}

impl<T: Send + Sync + 'static> CheckedFiles<T> {
    /// The file as it is now, or as it was last usable; a missing one as `file` says.
    ///
    /// # Errors
    /// When it takes too long to read, from a folder of the `tenant`.
    pub async fn get(
        &self,
        file: FileToCheck<'_, T>,
        tenant: &Arc<Tenant>,
    ) -> Result<Option<Arc<T>>, TakesTooLong> {
        if let Some(current) = self.current(file.path) {
            return Ok(current);
        }
        let until = Deadline::start();
        let _turn = tenant.turn_to_read(until).await.ok_or(TakesTooLong)?;
        // Another request may have read it while this one waited.
        if let Some(current) = self.current(file.path) {
            return Ok(current);
        }
        let (path, load) = (file.path.to_owned(), file.load);
        let read = move || {
            let now = SystemTime::now();
            let identity = identity_of(&path);
            let is_settled = identity.is_none_or(|identity| identity.is_settled(now));
            LoadedFile { identity, is_settled, parsed: load(&path) }
        };
        let loaded = tenant.look_up(until, read).await.ok_or(TakesTooLong)?;
        Ok(self.store(file, loaded))
    }

    /// The file without a read: it was checked a moment ago, or is unchanged.
    fn current(&self, path: &Path) -> Option<Option<Arc<T>>> {
        let mut files = self.lock();
        let known = files.get_mut(path)?;
        let now = Instant::now();
        if now.duration_since(known.checked) < CHECK_INTERVAL {
            return Some(known.parsed.clone());
        }
        let is_same = || known.is_settled && identity_of(path) == known.identity;
        if known.parsed.is_none() || name_lookups::if_cached(is_same) != Some(true) {
            return None;
        }
        known.checked = now;
        Some(known.parsed.clone())
    }

    fn store(&self, file: FileToCheck<'_, T>, loaded: LoadedFile<T>) -> Option<Arc<T>> {
        let LoadedFile { identity, is_settled, parsed } = loaded;
        let mut files = self.lock();
        let before = files.remove(file.path);
        let is_news = before.as_ref().is_none_or(|known| known.identity != identity);
        let (parsed, bytes, mistake) = match parsed {
            Ok(parsed) => {
                let mistake = (file.complaint)(file.path, &parsed);
                (Some(Arc::new(parsed)), identity.as_ref().map_or(0, |file| file.size), mistake)
            }
            Err(why) => {
                // A file that is being written does not lock everybody out.
                let stays = identity.is_some() || file.outlives_removal;
                let former = before.filter(|_| stays);
                let (parsed, bytes) = former.map_or((None, 0), |known| (known.parsed, known.bytes));
                let effect = match parsed {
                    Some(_) => "the former users stay",
                    None => "all requests are refused",
                };
                (parsed, bytes, Some(format!("{why}; {effect}")))
            }
        };
        if let Some(mistake) = mistake.filter(|_| is_news) {
            file.log(&mistake);
        }
        let (checked, bytes) = (Instant::now(), bytes.max(LEAST_BYTES));
        make_room(&mut files, bytes);
        let (owner, now) = (file.owner.to_owned(), parsed.clone());
        let known = CheckedFile { owner, parsed, bytes, identity, is_settled, checked };
        files.insert(file.path.to_owned(), known);
        now
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, CheckedFile<T>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the files of the owners with most bytes, until `bytes` more have room.
fn make_room<T>(files: &mut HashMap<PathBuf, CheckedFile<T>>, bytes: u64) {
    while files.values().map(|known| known.bytes).sum::<u64>() + bytes > MAX_TOTAL_BYTES {
        let mut owners: BTreeMap<&Path, u64> = BTreeMap::new();
        for known in files.values() {
            *owners.entry(&known.owner).or_default() += known.bytes;
        }
        let largest = owners.into_iter().max_by_key(|(_, bytes)| *bytes);
        let Some(owner) = largest.map(|(owner, _)| owner.to_owned()) else { return };
        files.retain(|_, known| known.owner != owner);
    }
}

/// The identity of a file; none if there is no such file.
fn identity_of(path: &Path) -> Option<Identity> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    name_lookups::stat(&path).ok().map(|stat| Identity::of(&stat))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::runtime::lookup_turns::AllTurns;

    const MEBIBYTE: usize = 1 << 20;

    fn load(path: &Path) -> Result<usize, String> {
        fs::read(path).map(|text| text.len()).map_err(|error| error.to_string())
    }

    fn file(path: &Path) -> FileToCheck<'_, usize> {
        let (owner, complaint) = (Path::new("/srv/www"), |_: &Path, _: &usize| None);
        let setting = "AuthUserFile";
        FileToCheck { path, owner, setting, outlives_removal: false, load, complaint }
    }

    fn get(files: &CheckedFiles<usize>, file: FileToCheck<'_, usize>) -> Option<usize> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime
            .block_on(files.get(file, &AllTurns::default().of("www")))
            .unwrap()
            .map(|length| *length)
    }

    #[test]
    fn a_table_holds_no_more_than_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let files = CheckedFiles::default();
        for number in 0..40 {
            let path = folder.path().join(number.to_string());
            fs::write(&path, vec![b'x'; 4 * MEBIBYTE]).unwrap();
            assert_eq!(get(&files, file(&path)), Some(4 * MEBIBYTE));
            assert!(files.lock().len() <= 16);
        }
    }

    #[test]
    fn large_files_of_one_owner_leave_the_small_ones_of_others_in_the_table() {
        let folder = tempfile::tempdir().unwrap();
        let files = CheckedFiles::default();
        let small = folder.path().join("small");
        fs::write(&small, "anna").unwrap();
        let of_other = FileToCheck { owner: Path::new("/srv/other"), ..file(&small) };
        assert_eq!(get(&files, of_other), Some(4));
        let large = folder.path().join("large");
        fs::write(&large, vec![b'x'; 4 * MEBIBYTE]).unwrap();
        for number in 0..40 {
            let path = folder.path().join(number.to_string());
            fs::hard_link(&large, &path).unwrap();
            assert_eq!(get(&files, file(&path)), Some(4 * MEBIBYTE));
        }
        assert!(files.lock().contains_key(&small));
    }

    #[test]
    fn a_file_that_may_have_changed_again_within_a_tick_of_the_clock_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        fs::write(&path, "anna").unwrap();
        for is_settled in [true, false] {
            let files = CheckedFiles::default();
            let former = LoadedFile { identity: identity_of(&path), is_settled, parsed: Ok(3) };
            files.store(file(&path), former);
            for known in files.lock().values_mut() {
                known.checked -= CHECK_INTERVAL;
            }
            assert_eq!(get(&files, file(&path)), Some(if is_settled { 3 } else { 4 }));
        }
    }

    #[test]
    fn a_removed_file_stays_as_it_was_where_the_setting_says_so_and_any_unusable_one_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        for outlives_removal in [true, false] {
            let files = CheckedFiles::default();
            let get_later = || {
                for known in files.lock().values_mut() {
                    known.checked -= CHECK_INTERVAL;
                }
                get(&files, FileToCheck { outlives_removal, ..file(&path) })
            };
            assert_eq!(get_later(), None);
            fs::write(&path, "anna").unwrap();
            assert_eq!(get_later(), Some(4));
            fs::remove_file(&path).unwrap();
            fs::create_dir(&path).unwrap();
            assert_eq!(get_later(), Some(4), "it cannot be read");
            fs::remove_dir(&path).unwrap();
            assert_eq!(get_later(), outlives_removal.then_some(4));
        }
    }
}
