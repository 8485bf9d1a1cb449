//! Watching the folders of an application (inotify(7)).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::ReadDir;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

/// Most events read in one turn.
const EVENTS_PER_TURN: usize = 4096;

/// Most entries of folders that are read in one turn, of each application.
const ENTRIES_PER_TURN: usize = 4096;

/// The same when the first watch of an application begins.
const ENTRIES_AT_FIRST: usize = 131_072;

/// To watch and to open a folder takes about as long as to read this many entries.
const A_FOLDER: usize = 16;

/// Most entries of a folder that are read: folders among those behind are not watched.
const ENTRIES_OF_FOLDER: usize = 100_000;

/// Bytes of events read at once.
const EVENT_BYTES: usize = 16 * 1024;

/// Extensions of files that a boot reads.
const SOURCES: [&str; 10] =
    ["php", "inc", "phtml", "module", "install", "theme", "ini", "neon", "yaml", "yml"];

/// Subfolders with generated files, or other people's.
const NOT_ITS_OWN: [&str; 8] =
    ["cache", "log", "logs", "node_modules", "storage", "tmp", "var", "vendor"];

/// The folder of an application: the nearest one above its script with a `composer.json`, or that
/// of the script.
pub fn of_application(script: &Path) -> PathBuf {
    let script = script.canonicalize().unwrap_or(script.to_path_buf());
    let mut above = script.ancestors().skip(1);
    let own = above.find(|folder| folder.join("composer.json").is_file());
    let own = own.or(script.parent()).unwrap_or(Path::new("/"));
    own.to_path_buf()
}

/// Whether a boot may read a file of this name.
fn is_source(name: &OsStr) -> bool {
    let extension = Path::new(name).extension().and_then(OsStr::to_str);
    extension.is_some_and(|extension| SOURCES.contains(&extension))
        || name.as_bytes().starts_with(b".env")
}

/// Whether a folder of this name has the application's own files.
fn is_own(name: &OsStr) -> bool {
    let is_another = name.to_str().is_some_and(|name| NOT_ITS_OWN.contains(&name));
    !is_another && !name.as_bytes().starts_with(b".")
}

/// A folder that is being read.
#[derive(Debug)]
struct FolderReading {
    folder: PathBuf,
    entries: ReadDir,
    /// How many have been read.
    read: usize,
}

/// Watched folders.
#[derive(Debug)]
pub struct Folders {
    inotify: OwnedFd,
    root: PathBuf,
    paths: HashMap<i32, PathBuf>,
    /// The root was removed or moved.
    gone: bool,
    most: usize,
    /// Folders to be watched and read.
    ahead: BTreeSet<PathBuf>,
    reading: Option<FolderReading>,
    /// All folders are being found again, and those that have not been are here.
    rescans: bool,
    stale: HashSet<i32>,
    /// Further events have been lost since.
    is_outdated: bool,
    /// Some have not been watched since all were to be found the last time.
    has_lack: bool,
    /// Why some are not watched.
    lacks: Option<String>,
    /// The reason that was logged last, unless all have been watched since.
    logged: Option<String>,
}

impl Folders {
    /// Watches `root` and its subfolders, `most` folders in all. Which ones these are is
    /// [still to be read](Folders::is_reading).
    ///
    /// # Errors
    /// When the user has too many descriptors or instances of inotify.
    pub fn below(root: &Path, most: usize) -> io::Result<Folders> {
        let mut folders = Folders {
            inotify: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            root: root.to_path_buf(),
            paths: HashMap::new(),
            gone: false,
            most,
            ahead: BTreeSet::new(),
            reading: None,
            rescans: false,
            stale: HashSet::new(),
            is_outdated: false,
            has_lack: false,
            lacks: None,
            logged: None,
        };
        folders.queue(root.to_path_buf());
        Ok(folders)
    }

    /// As [`Folders::read_on`] of an application that is watched for the first time: a boot comes
    /// with that, which takes longer.
    pub fn read_at_first(&mut self) -> usize {
        self.read_most(ENTRIES_AT_FIRST)
    }

    /// How many are watched.
    pub fn count(&self) -> usize {
        self.paths.len()
    }

    /// The root, without symbolic links.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the root was removed or moved away. Its replacement is not watched.
    pub fn are_gone(&self) -> bool {
        self.gone
    }

    /// Takes the reason why some are not watched, once.
    pub fn take_lack(&mut self) -> Option<String> {
        let logged = self.logged.as_ref();
        let lack = self.lacks.take().filter(|lack| logged != Some(lack))?;
        self.logged = Some(lack.clone());
        Some(lack)
    }

    /// Whether folders are still to be read.
    pub fn is_reading(&self) -> bool {
        self.reading.is_some() || !self.ahead.is_empty()
    }

    /// Watches and reads folders that are still to be read, for one turn. Returns how many entries
    /// it has read: an application decides how many there are, and how often they are to be read
    /// again, and must not hold up the server.
    pub fn read_on(&mut self) -> usize {
        self.read_most(ENTRIES_PER_TURN)
    }

    fn read_most(&mut self, most: usize) -> usize {
        let mut read = 0;
        while read < most {
            if let Some(reading) = self.reading.take() {
                read += self.read(reading, most - read);
            } else if let Some(folder) = self.ahead.pop_first() {
                read += A_FOLDER;
                self.reading = self.watch(folder);
            } else {
                break;
            }
        }
        if !self.is_reading() {
            self.end_of_rescan();
        }
        read
    }

    /// Has a folder watched and read, once, however often it was created or moved meanwhile.
    fn queue(&mut self, folder: PathBuf) {
        if self.ahead.len() < self.most || self.ahead.contains(&folder) {
            self.ahead.insert(folder);
        } else {
            self.lack(format!("there are more than {} folders", self.most));
        }
    }

    fn lack(&mut self, why: String) {
        self.has_lack = true;
        self.lacks = Some(why);
    }

    /// Watches a folder, whose entries are to be read then.
    fn watch(&mut self, folder: PathBuf) -> Option<FolderReading> {
        let watched = self.paths.len().saturating_sub(self.stale.len());
        if watched >= self.most {
            self.ahead.clear();
            self.lack(format!("there are more than {} folders", self.most));
            return None;
        }
        let what = WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR
            | WatchFlags::DONT_FOLLOW;
        match inotify::add_watch(&self.inotify, &folder, what) {
            Ok(number) => {
                self.stale.remove(&number);
                self.paths.insert(number, folder.clone());
                let entries = std::fs::read_dir(&folder).ok()?;
                Some(FolderReading { folder, entries, read: 0 })
            }
            // It was removed meanwhile.
            Err(Errno::NOENT | Errno::NOTDIR) => {
                self.gone |= folder == self.root;
                None
            }
            Err(Errno::NOSPC) => {
                self.ahead.clear();
                let why = "the kernel lets this user watch no more (fs.inotify.max_user_watches)";
                self.lack(why.to_owned());
                None
            }
            Err(error) => {
                self.lack(format!("{}: {error}", folder.display()));
                None
            }
        }
    }

    /// Reads `most` entries of a folder, and queues its folders. Returns how many it has read.
    fn read(&mut self, mut reading: FolderReading, most: usize) -> usize {
        for read in 0..most {
            let Some(entry) = reading.entries.next() else {
                return read;
            };
            reading.read += 1;
            if reading.read > ENTRIES_OF_FOLDER {
                let folder = reading.folder.display();
                self.lack(format!("{folder} has more than {ENTRIES_OF_FOLDER} entries"));
                return read;
            }
            let Ok(entry) = entry else { continue };
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) && is_own(&entry.file_name()) {
                self.queue(entry.path());
            }
        }
        self.reading = Some(reading);
        most
    }

    /// Finds all folders again: events may have been lost. If they are being found again already,
    /// once more after that.
    fn add_anew(&mut self) {
        if self.rescans {
            self.is_outdated = true;
            return;
        }
        self.stale = self.paths.keys().copied().collect();
        (self.rescans, self.is_outdated, self.has_lack) = (true, false, false);
        (self.lacks, self.reading) = (None, None);
        self.ahead.clear();
        self.queue(self.root.clone());
    }

    fn end_of_rescan(&mut self) {
        if !std::mem::take(&mut self.rescans) {
            return;
        }
        if !self.has_lack {
            self.logged = None;
        }
        for number in std::mem::take(&mut self.stale) {
            // A removed folder is not watched any more.
            let _ = inotify::remove_watch(&self.inotify, number);
            self.paths.remove(&number);
        }
        if self.is_outdated {
            self.add_anew();
        }
    }

    /// Files that were saved or removed since the last call, if a boot may read them. An empty path
    /// stands for lost events. New folders are [to be read](Folders::read_on) then.
    pub fn take_saved(&mut self) -> Vec<PathBuf> {
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let (mut saved, mut new) = (Vec::new(), Vec::new());
        let mut has_missed_some = false;
        let mut events = Reader::new(&self.inotify, &mut buffer);
        let mut taken = 0;
        // A filled buffer is processed whole; the rest waits for the next turn.
        while taken < EVENTS_PER_TURN || !events.is_buffer_empty() {
            let Ok(event) = events.next() else { break };
            taken += 1;
            let how = event.events();
            has_missed_some |= how.contains(ReadFlags::QUEUE_OVERFLOW);
            if how.intersects(ReadFlags::IGNORED | ReadFlags::MOVE_SELF) {
                self.gone |= self.paths.get(&event.wd()) == Some(&self.root);
                if how.contains(ReadFlags::IGNORED) {
                    self.paths.remove(&event.wd());
                    self.stale.remove(&event.wd());
                }
                continue;
            }
            let Some(folder) = self.paths.get(&event.wd()) else {
                continue;
            };
            let Some(name) = event.file_name() else {
                continue;
            };
            let name = OsStr::from_bytes(name.to_bytes());
            let path = folder.join(name);
            let comes = how.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
            if how.contains(ReadFlags::ISDIR) {
                if comes && is_own(name) {
                    new.push(path.clone());
                    saved.push(path);
                }
            } else if is_source(name) && !how.contains(ReadFlags::CREATE) {
                saved.push(path);
            }
        }
        if has_missed_some {
            self.add_anew();
            saved.push(PathBuf::new());
        } else {
            new.into_iter().for_each(|folder| self.queue(folder));
        }
        saved
    }
}

impl AsFd for Folders {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn begun(root: &Path, most: usize) -> Folders {
        let mut folders = Folders::below(root, most).unwrap();
        folders.read_at_first();
        folders
    }

    /// A turn of a server whose folders are small.
    fn take_saved(folders: &mut Folders) -> Vec<PathBuf> {
        let saved = folders.take_saved();
        read_all(folders);
        saved
    }

    fn find_again(folders: &mut Folders) {
        folders.add_anew();
        read_all(folders);
    }

    /// How many entries are read until none is left, in turns.
    fn read_all(folders: &mut Folders) -> usize {
        let mut all = 0;
        while folders.is_reading() {
            let read = folders.read_on();
            assert!(read < ENTRIES_PER_TURN + A_FOLDER, "{read} in one turn");
            all += read;
        }
        all
    }

    /// A folder in which there are several turns of entries.
    fn fill(folder: &Path) -> usize {
        let count = ENTRIES_PER_TURN * 2 + 100;
        fs::create_dir_all(folder).unwrap();
        let first = folder.join("0");
        fs::write(&first, "x").unwrap();
        (1..count)
            .for_each(|number| fs::hard_link(&first, folder.join(number.to_string())).unwrap());
        count
    }

    #[test]
    fn a_large_folder_that_is_moved_again_and_again_is_read_once_in_parts() {
        let root = tempfile::tempdir().unwrap();
        let (big, other) = (root.path().join("big"), root.path().join("other"));
        let count = fill(&big);
        let mut folders = begun(root.path(), 100);
        assert!(!folders.is_reading(), "a watch begins with more at once");
        for _ in 0..500 {
            fs::rename(&big, &other).unwrap();
            fs::rename(&other, &big).unwrap();
        }
        assert!(folders.take_saved().contains(&big));
        let read = read_all(&mut folders);
        assert!(read > count && read < count + 100, "{read} of {count}");
        assert_eq!((folders.count(), folders.take_lack()), (2, None));
        fs::write(big.join("a.php"), "x").unwrap();
        assert_eq!(take_saved(&mut folders), [big.join("a.php")]);
    }

    #[test]
    fn events_that_are_lost_while_all_is_found_again_have_it_found_once_more_and_not_at_once() {
        let root = tempfile::tempdir().unwrap();
        let count = fill(&root.path().join("big"));
        let mut folders = begun(root.path(), 100);
        folders.add_anew();
        folders.read_on();
        fs::create_dir(root.path().join("late")).unwrap();
        (0..100).for_each(|_| folders.add_anew());
        let read = read_all(&mut folders);
        assert!(read > count && read < 2 * count + 100, "{read} of {count}");
        assert_eq!((folders.count(), folders.take_lack()), (3, None));
    }

    #[test]
    fn what_somebody_saves_is_seen_and_what_the_application_writes_is_not() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["src/deep", "vendor/a", "var/cache", ".git"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let mut folders = begun(root.path(), 100);
        assert_eq!(folders.count(), 3);
        let write = |name: &str| fs::write(root.path().join(name), "x").unwrap();
        for other in
            ["vendor/a/a.php", "var/cache/a.php", ".git/a.php", "src/notes.txt", "src/.a.php.swp"]
        {
            write(other);
        }
        assert_eq!(take_saved(&mut folders), Vec::<PathBuf>::new());
        let is_seen = |folders: &mut Folders, name: &str| {
            let saved = take_saved(folders);
            assert!(saved.contains(&root.path().join(name)), "{name}: {saved:?}");
        };
        for name in ["src/deep/a.php", ".env.local", "services.yaml"] {
            write(name);
            is_seen(&mut folders, name);
        }
        // As many editors save: beside it, and into its place.
        write("src/a.php~");
        fs::rename(root.path().join("src/a.php~"), root.path().join("src/a.php")).unwrap();
        is_seen(&mut folders, "src/a.php");
        fs::remove_file(root.path().join("src/a.php")).unwrap();
        is_seen(&mut folders, "src/a.php");
        fs::create_dir(root.path().join("src/new")).unwrap();
        is_seen(&mut folders, "src/new");
        write("src/new/b.php");
        is_seen(&mut folders, "src/new/b.php");
        assert_eq!(folders.take_lack(), None);
    }

    #[test]
    fn no_more_folders_are_watched_than_may_be_and_that_is_said() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["a", "b", "c"] {
            fs::create_dir(root.path().join(folder)).unwrap();
        }
        let mut folders = begun(root.path(), 2);
        assert_eq!(folders.count(), 2);
        assert_eq!(folders.take_lack().as_deref(), Some("there are more than 2 folders"));
    }

    #[test]
    fn what_is_still_not_watched_is_not_said_again_until_all_was() {
        let root = tempfile::tempdir().unwrap();
        let inside = ["a", "b"].map(|name| root.path().join(name));
        let fill = || inside.iter().for_each(|path| fs::create_dir(path).unwrap());
        fill();
        let mut folders = begun(root.path(), 2);
        assert!(folders.take_lack().is_some());
        // As after each burst of which the kernel could not tell all.
        find_again(&mut folders);
        assert_eq!(folders.take_lack(), None);
        inside.iter().for_each(|path| fs::remove_dir(path).unwrap());
        find_again(&mut folders);
        assert_eq!((folders.count(), folders.take_lack()), (1, None));
        fill();
        find_again(&mut folders);
        assert!(folders.take_lack().is_some());
    }

    #[test]
    fn what_comes_while_the_kernel_keeps_no_more_is_watched_all_the_same() {
        // Beyond this, one that has been raised by far is not filled.
        const MOST_FILLED: usize = 200_000;
        let kept = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        let kept: usize = kept.trim().parse().unwrap();
        if kept > MOST_FILLED {
            eprintln!("skipped: the kernel keeps {kept} events");
            return;
        }
        let root = tempfile::tempdir().unwrap();
        for folder in ["a", "old"] {
            fs::create_dir(root.path().join(folder)).unwrap();
        }
        let mut folders = begun(root.path(), 3);
        let write = |name: &str| fs::write(root.path().join(name), "x").unwrap();
        // The same twice in a row would be one event.
        for number in 0..=kept {
            write(["a/a.php", "a/b.php"][number % 2]);
        }
        fs::create_dir(root.path().join("late")).unwrap();
        fs::remove_dir(root.path().join("old")).unwrap();
        // As many turns as it takes.
        let turns = std::iter::repeat_with(|| take_saved(&mut folders));
        let turns: Vec<_> = turns.take_while(|saved| !saved.is_empty()).collect();
        assert!(turns.len() > 1, "others have had their turn");
        assert!(turns.concat().contains(&PathBuf::new()));
        assert_eq!((folders.count(), folders.take_lack()), (3, None));
        take_saved(&mut folders);
        for name in ["late/a.php", "a/a.php"] {
            write(name);
            assert_eq!(take_saved(&mut folders), [root.path().join(name)]);
        }
        assert!(!folders.are_gone());
    }

    #[test]
    fn a_root_that_is_removed_or_moved_away_is_gone_and_a_folder_below_is_not() {
        let inside = tempfile::tempdir().unwrap();
        let root = inside.path().join("app");
        let begin = || {
            fs::create_dir_all(root.join("src")).unwrap();
            begun(&root, 100)
        };
        let mut folders = begin();
        fs::rename(root.join("src"), root.join("lib")).unwrap();
        take_saved(&mut folders);
        fs::remove_dir(root.join("lib")).unwrap();
        take_saved(&mut folders);
        assert!(!folders.are_gone());
        fs::remove_dir(&root).unwrap();
        take_saved(&mut folders);
        assert!(folders.are_gone());
        let mut folders = begin();
        assert!(!folders.are_gone());
        fs::rename(&root, inside.path().join("old")).unwrap();
        take_saved(&mut folders);
        assert!(folders.are_gone());
        assert!(begun(&root, 100).are_gone());
    }

    #[test]
    fn an_application_is_where_its_composer_json_is() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        fs::create_dir(root.join("public")).unwrap();
        let script = root.join("public/index.php");
        fs::write(&script, "<?php").unwrap();
        assert_eq!(of_application(&script), root.join("public"));
        fs::write(root.join("composer.json"), "{}").unwrap();
        assert_eq!(of_application(&script), root);
    }
}
