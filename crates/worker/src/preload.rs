//! Preloading: PHP links the classes of a list of scripts at its start, and every request has them.
//! OPcache does not look at their files again, so the zygote watches them.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use maitred_control::{ZygoteSettings, scripts};
use maitred_os::users;
use maitred_php::{Engine, Params, Settings};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::warm::read_list;

/// Most watched folders.
const FOLDERS_MAX: usize = 4096;

/// Bytes of events read at once.
const EVENT_BYTES: usize = 16 * 1024;

/// The scripts that PHP preloads at its start.
pub struct Preload {
    files: Vec<PathBuf>,
    /// From before PHP reads the files.
    watch: FileWatch,
    /// Folders of the scripts that the pool's requests have used.
    folders: HashSet<PathBuf>,
}

impl Preload {
    /// Reads the list of an earlier zygote ([`ToZygote::ListPreloadable`]), and watches its files.
    /// One in a folder that cannot be watched is left out.
    ///
    /// # Errors
    /// When the system is out of descriptors or memory, the user has too many instances or watches
    /// of inotify (`fs.inotify`), or there are too many folders.
    ///
    /// [`ToZygote::ListPreloadable`]: maitred_control::ToZygote::ListPreloadable
    pub fn of_list(list: OwnedFd) -> io::Result<Preload> {
        let all = scripts::read(&read_list(&File::from(list))?);
        let (folders, files): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|path| path.as_os_str().as_bytes().ends_with(b"/"));
        let watch = FileWatch::new(&files)?;
        let watched: HashSet<&Path> = watch.folders.values().map(PathBuf::as_path).collect();
        let is_watched = |file: &PathBuf| file.parent().is_some_and(|own| watched.contains(own));
        let files = files.into_iter().filter(is_watched).collect();
        Ok(Preload { files, watch, folders: folders.into_iter().collect() })
    }

    /// Adds the scripts to the settings of PHP's start.
    pub fn apply(&self, php: &mut Settings) {
        php.preload.clone_from(&self.files);
        let me = users::current();
        if me.uid == 0 {
            // PHP does not preload as root without it.
            php.defines.push(("opcache.preload_user".to_owned(), me.name));
        }
    }

    /// What is left of it after PHP's start. With `opcache.validate_timestamps = 0`, a reload says
    /// that files have changed.
    pub fn started(self, engine: &Engine) -> Preloaded {
        let watch = Some(self.watch).filter(|_| engine.validates_scripts());
        Preloaded { watch, folders: Some(KnownFolders(self.folders)) }
    }
}

/// What a zygote keeps of preloading.
#[derive(Default)]
pub struct Preloaded {
    /// The files, until one has changed.
    pub watch: Option<FileWatch>,
    pub folders: Option<KnownFolders>,
}

/// Without the list, nothing is preloaded.
pub fn read_preload(settings: &ZygoteSettings, list: OwnedFd) -> Option<Preload> {
    Preload::of_list(list)
        .map_err(|why| eprintln!("maitred-php: pool {} preloads nothing: {why}", settings.pool))
        .ok()
}

/// The folders of a pool's scripts. A request for a script elsewhere may be for another release of
/// the application, whose classes have the same names.
#[derive(Debug)]
pub struct KnownFolders(HashSet<PathBuf>);

impl KnownFolders {
    /// Whether the script of a request is in one of them.
    pub fn have(&self, params: &Params) -> bool {
        let script = params.get(b"SCRIPT_FILENAME").map(OsStr::from_bytes);
        let Some(script) = script.map(Path::new) else {
            return true;
        };
        let is_known = |path: &Path| path.parent().is_some_and(|folder| self.0.contains(folder));
        // A missing script runs nothing. A link is followed only where the name is not known.
        is_known(script)
            || script.canonicalize().is_ok_and(|real| is_known(&real))
            || !script.exists()
    }
}

/// Watched files.
#[derive(Debug)]
pub struct FileWatch {
    inotify: OwnedFd,
    /// The files, and the folders above them.
    paths: HashSet<PathBuf>,
    folders: HashMap<i32, PathBuf>,
}

/// A file in a folder is replaced or removed, or such a folder.
const MOVED: WatchFlags = WatchFlags::DELETE.union(WatchFlags::MOVE).union(WatchFlags::ONLYDIR);

impl FileWatch {
    fn new(files: &[PathBuf]) -> io::Result<FileWatch> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let own: HashSet<&Path> = files.iter().filter_map(|file| file.parent()).collect();
        let above = own.iter().flat_map(|folder| folder.ancestors().skip(1));
        let above: HashSet<&Path> = above.filter(|folder| !own.contains(folder)).collect();
        if own.len() + above.len() > FOLDERS_MAX {
            return Err(io::Error::other(format!("there are more than {FOLDERS_MAX} folders")));
        }
        let own = own.into_iter().map(|folder| (folder, MOVED | WatchFlags::CLOSE_WRITE));
        let mut folders = HashMap::new();
        for (folder, what) in own.chain(above.into_iter().map(|folder| (folder, MOVED))) {
            match inotify::add_watch(&inotify, folder, what) {
                Ok(number) => drop(folders.insert(number, folder.to_owned())),
                // It was removed, or belongs to another user.
                Err(Errno::ACCESS | Errno::NOENT | Errno::NOTDIR) => {}
                Err(why) => return Err(why.into()),
            }
        }
        let paths = files.iter().flat_map(|file| file.ancestors()).map(Path::to_owned).collect();
        Ok(FileWatch { inotify, paths, folders })
    }

    /// A watched file or its folder that has changed; none: only others have.
    pub fn changed(&self) -> Option<String> {
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut events = Reader::new(&self.inotify, &mut buffer);
        while let Ok(event) = events.next() {
            let how = event.events();
            if how.contains(ReadFlags::QUEUE_OVERFLOW) {
                return Some("a file".to_owned());
            }
            let Some(folder) = self.folders.get(&event.wd()) else {
                continue;
            };
            let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
            let path = name.map_or_else(|| folder.clone(), |name| folder.join(name));
            if name.is_none() || self.paths.contains(&path) {
                return Some(path.display().to_string());
            }
        }
        None
    }
}

impl AsFd for FileWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_watched_file_is_seen_when_it_is_saved_replaced_or_removed_and_its_neighbour_is_not() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("app/src/A.php");
        let write = |name: &str| fs::write(root.path().join(name), "<?php").unwrap();
        let changes: [&dyn Fn(); 5] = [
            &|| write("app/src/A.php"),
            &|| {
                write("app/src/A.php.new");
                fs::rename(root.path().join("app/src/A.php.new"), &file).unwrap();
            },
            &|| fs::remove_file(&file).unwrap(),
            &|| fs::rename(root.path().join("app/src"), root.path().join("app/old")).unwrap(),
            &|| fs::rename(root.path().join("app"), root.path().join("app.old")).unwrap(),
        ];
        for change in changes {
            fs::create_dir_all(root.path().join("app/src")).unwrap();
            write("app/src/A.php");
            let watch = FileWatch::new(std::slice::from_ref(&file)).unwrap();
            write("app/src/B.php");
            assert_eq!(watch.changed(), None);
            change();
            let seen = watch.changed().expect("the change is seen");
            assert!(Path::new(&seen).starts_with(root.path()), "{seen}");
        }
    }

    #[test]
    fn a_script_of_another_release_is_not_known() {
        let root = tempfile::tempdir().unwrap();
        for release in ["1", "2"] {
            fs::create_dir(root.path().join(release)).unwrap();
            fs::write(root.path().join(release).join("index.php"), "<?php").unwrap();
        }
        let link = root.path().join("current");
        std::os::unix::fs::symlink(root.path().join("1"), &link).unwrap();
        let folder = root.path().join("1").canonicalize().unwrap();
        let known = KnownFolders(HashSet::from([folder]));
        let has = |script: &Path| {
            let mut params = Params::new();
            params.push(b"SCRIPT_FILENAME", script.as_os_str().as_bytes()).unwrap();
            known.have(&params)
        };
        assert!(has(&root.path().join("1/index.php")) && has(&link.join("index.php")));
        assert!(has(&root.path().join("2/missing.php")), "it runs no class");
        assert!(!has(&root.path().join("2/index.php")));
    }
}
