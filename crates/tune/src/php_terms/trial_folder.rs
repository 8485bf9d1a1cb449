//! The folder of compiled scripts (`opcache.file_cache`) during its trial.

use std::fs::{self, DirBuilder};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, lchown};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use maitred_os::users;

use crate::processes::{self, ProcessOwner};

/// Where root makes it: a folder in which no other user can put anything. A service may have a
/// folder of its own for temporary files.
const OF_ROOT: &str = "/var/cache";

/// PHP executes what is in it, so no other user may read or write there.
const MODE: u32 = 0o700;

const PERMISSIONS: u32 = 0o7777;

/// Longest time of its removal: processes of the pool's user that have it open can create files
/// there without end.
const REMOVAL: Duration = Duration::from_secs(10);

/// Longest wait for the end of a killed removal.
const KILL: Duration = Duration::from_secs(1);

/// How often to check whether it is removed.
const LOOK: Duration = Duration::from_millis(10);

/// Longest pause between tries to remove it.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The start of its name; the process id of the tuning and the pool's name follow.
const NAME: &str = "maitred-tune-";

fn parent() -> PathBuf {
    let of_root = Path::new(OF_ROOT);
    if users::is_root() && of_root.is_dir() { of_root.to_owned() } else { std::env::temp_dir() }
}

/// The folder for trials in a pool. There is one tuning at a time.
pub fn path(section: &str) -> PathBuf {
    parent().join(format!("{NAME}{}-{section}", std::process::id()))
}

/// The process id in the name of a folder for trials in a pool.
fn process_of(name: &str, section: &str) -> Option<i32> {
    name.strip_prefix(NAME)?.strip_suffix(section)?.strip_suffix('-')?.parse().ok()
}

/// Removes the folders of tunings that were killed. Call it before a trial is in force, which
/// would stay so for as long as that takes.
pub fn remove_left(section: &str) {
    let (until, user) = (Instant::now() + REMOVAL, users::current().uid);
    for entry in fs::read_dir(parent()).into_iter().flatten().flatten() {
        let process = process_of(&entry.file_name().to_string_lossy(), section);
        let is_left = process.is_some_and(|process| processes::began(process).is_none());
        let is_own = || entry.metadata().is_ok_and(|found| may_remove(user, found.uid()));
        if is_left && is_own() {
            remove(&entry.path(), until);
        }
    }
}

/// Whether `user` can remove a folder of `owner` among the temporary files of all users.
fn may_remove(user: u32, owner: u32) -> bool {
    user == 0 || user == owner
}

/// Removes a folder and what the pool's user has made of it, as far as there is time before
/// `until`, and names one that stays.
fn remove(folder: &Path, until: Instant) {
    if users::is_root() {
        // From now on, a process of that user must have it open to create anything there.
        let _ = lchown(folder, Some(0), None);
    }
    let mut pause = LOOK;
    while fs::symlink_metadata(folder).is_ok() && Instant::now() < until {
        match start_removal(folder) {
            Ok(mut command) => wait_until(&mut command, until),
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                // There is no rm(1).
                let _ = fs::remove_dir_all(folder);
                break;
            }
            Err(_) => {}
        }
        sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    if fs::symlink_metadata(folder).is_ok() {
        let line = format!("maitred: {} cannot be removed: remove it", folder.display());
        let _ = writeln!(io::stderr(), "{line}");
    }
}

/// Waits for the end of a removal, which is killed when its time has passed. One that waits for the
/// lock of a folder does not end by that before the pool's user releases it: it is left alone then.
fn wait_until(command: &mut Child, until: Instant) {
    if has_ended(command, until) {
        return;
    }
    let _ = command.kill();
    has_ended(command, Instant::now() + KILL);
}

/// Whether it ends before that time.
fn has_ended(command: &mut Child, until: Instant) -> bool {
    while matches!(command.try_wait(), Ok(None)) {
        if Instant::now() >= until {
            return false;
        }
        sleep(LOOK);
    }
    true
}

/// Starts rm(1), which removes folders of any depth, and can be killed while it waits for a file
/// system of the user's.
fn start_removal(folder: &Path) -> io::Result<Child> {
    let mut command = maitred_os::spawn::command("rm");
    command.args(["-rf", "--"]).arg(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

/// A folder that exists until drop.
#[derive(Debug)]
pub struct TrialFolder {
    path: PathBuf,
    /// The user that it is of.
    uid: u32,
}

impl TrialFolder {
    /// Makes it for the pool's user.
    ///
    /// # Errors
    /// A message with its path.
    pub fn create(section: &str, owner: Option<ProcessOwner>) -> Result<TrialFolder, String> {
        let path = path(section);
        let failed = |why: io::Error| format!("{} cannot be created: {why}", path.display());
        DirBuilder::new().mode(MODE).create(&path).map_err(failed)?;
        let owner = owner.filter(|_| users::is_root());
        let uid = owner.map_or_else(|| users::current().uid, |owner| owner.uid);
        let folder = TrialFolder { path: path.clone(), uid };
        if let Some(owner) = owner {
            lchown(&path, Some(owner.uid), Some(owner.gid)).map_err(failed)?;
        }
        folder.check()?;
        Ok(folder)
    }

    /// Checks that it is still a folder of that user alone.
    ///
    /// # Errors
    /// A message with its path.
    pub fn check(&self) -> Result<(), String> {
        let shown = self.shown();
        let found = fs::symlink_metadata(&self.path);
        let found = found.map_err(|why| format!("{shown} is not there any more: {why}"))?;
        match found.is_dir() && found.uid() == self.uid && found.mode() & PERMISSIONS == MODE {
            true => Ok(()),
            false => Err(format!(
                "{shown} is not a folder of user `{}` with mode {MODE:o} any more: who has changed \
                 it could have PHP execute other code",
                users::name_of(self.uid)
            )),
        }
    }

    /// Whether PHP has stored anything in it.
    pub fn is_filled(&self) -> bool {
        fs::read_dir(&self.path).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Its path, for people.
    pub fn shown(&self) -> String {
        self.path.display().to_string()
    }
}

impl Drop for TrialFolder {
    fn drop(&mut self) {
        remove(&self.path, Instant::now() + REMOVAL);
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, OFlags};

    use super::*;

    #[test]
    fn the_folder_is_the_users_alone_and_is_removed_with_its_contents() {
        let folder = TrialFolder::create("unit-test", None).unwrap();
        let path = folder.path.clone();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, MODE);
        assert!(!folder.is_filled());
        assert!(TrialFolder::create("unit-test", None).is_err(), "another's is not used");
        assert!(path.is_dir(), "and is not removed");
        fs::create_dir(path.join("scripts")).unwrap();
        assert!(folder.is_filled());
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn the_folder_is_given_to_the_user_it_is_meant_for_and_one_that_has_changed_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let owner = ProcessOwner { uid: 5001, gid: 5002 };
        let folder = TrialFolder::create("unit-test-owner", Some(owner)).unwrap();
        let found = fs::metadata(&folder.path).unwrap();
        if users::is_root() {
            assert_eq!((found.uid(), found.gid()), (5001, 5002));
        }
        assert_eq!(folder.check(), Ok(()));
        fs::set_permissions(&folder.path, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(folder.check().unwrap_err().contains("with mode 700 any more"));
        fs::set_permissions(&folder.path, fs::Permissions::from_mode(MODE)).unwrap();
        assert_eq!(folder.check(), Ok(()));
        if users::is_root() {
            lchown(&folder.path, Some(5003), None).unwrap();
            assert!(folder.check().unwrap_err().contains("not a folder of user `5001`"));
        }
        fs::remove_dir(&folder.path).unwrap();
        std::os::unix::fs::symlink("/", &folder.path).unwrap();
        assert!(folder.check().is_err(), "a link is no folder");
        fs::remove_file(&folder.path).unwrap();
        assert!(folder.check().unwrap_err().contains("is not there any more"));
    }

    #[test]
    fn folders_that_are_deeper_than_a_process_may_have_files_open_are_removed() {
        let folder = TrialFolder::create("unit-test-deep", None).unwrap();
        let path = folder.path.clone();
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut inner = rustix::fs::open(&path, flags, Mode::empty()).unwrap();
        for _ in 0..5000 {
            rustix::fs::mkdirat(&inner, "a", Mode::RWXU).unwrap();
            inner = rustix::fs::openat(&inner, "a", flags, Mode::empty()).unwrap();
        }
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn a_removal_that_lasts_longer_than_its_time_is_killed() {
        let mut command = maitred_os::spawn::command("sleep").arg("600").spawn().unwrap();
        wait_until(&mut command, Instant::now());
        assert!(!command.wait().unwrap().success());
    }

    #[test]
    fn folders_of_killed_tunings_are_removed() {
        assert_eq!(process_of("maitred-tune-17-www", "www"), Some(17));
        assert_eq!(process_of("maitred-tune-17-www", "shop"), None);
        assert_eq!(process_of("maitred-tune-x-www", "www"), None);
        // No process has this number (PID_MAX_LIMIT in linux/threads.h).
        let left = parent().join(format!("{NAME}{}-left", i32::MAX));
        fs::create_dir_all(left.join("scripts")).unwrap();
        remove_left("left");
        assert!(!left.exists());
        assert!(may_remove(5001, 5001) && may_remove(0, 5001));
        assert!(!may_remove(5001, 5002), "it would be tried again until its time has passed");
    }
}
