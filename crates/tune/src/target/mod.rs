//! The server that is tuned: changes its settings, checks them with its own test, reloads it, and
//! restores them.

mod fpm;
mod maitred;
pub mod replaced_file;

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use maitred_doctor::facts::PhpServer;
use maitred_os::{guarded, users};
use rustix::fs::{FlockOperation, flock};

use crate::measurement::Setting;
use crate::processes;
use crate::site::Site;
use fpm::FpmServer;
use maitred::MaitredServer;
use replaced_file::{ReplacedFile, Undo};

/// The folder of root's lock files, and their mode.
const LOCK_FILES: &str = "/run";
const LOCK_FILE_MODE: u32 = 0o600;

/// Reloads maitred; returns when that is done. It is an error if the pool has another number of
/// workers then, where one is given.
pub type Reload = Box<dyn FnMut(Option<u32>) -> Result<String, String>>;

/// The master process of the server.
struct Master {
    pid: i32,
    /// Its start time: with the process id it identifies the process.
    began: Option<u64>,
    /// The start of its workers' process titles.
    title: String,
    /// The user of its workers, if it is known.
    user: Option<u32>,
}

impl Master {
    fn of(site: &Site) -> Master {
        let began = processes::began(site.master);
        Master { pid: site.master, began, title: site.title(), user: None }
    }

    fn is_running(&self) -> bool {
        processes::began(self.pid) == self.began
    }

    fn workers(&self) -> Vec<i32> {
        processes::workers(self.pid, &self.title, self.user)
    }
}

/// A kind of server.
trait TunedServer {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Whether a file of its own can be added to its configuration.
    fn takes_file(&self) -> bool;

    /// The file for a trial of this setting, in place of `before`.
    fn trial(&self, before: &[u8], setting: Setting) -> Result<String, String>;

    /// Runs its own test of the configuration, and checks that the number of workers is in force.
    fn check(&self, master: &Master, workers: Option<u32>) -> Result<(), String>;

    /// Why it would reject its configuration at a reload, if its test says so.
    fn refusal(&self, master: &Master) -> Option<String>;

    /// Reloads it, and waits until it runs with the setting.
    fn reload(&mut self, master: &Master, setting: Setting) -> Result<(), String>;

    /// The command that starts it.
    fn start_command(&self) -> String;
}

/// A server with the pool that is tuned.
pub struct Target {
    server: Box<dyn TunedServer>,
    file: ReplacedFile,
    /// The original contents of its other configuration files.
    others: Vec<(PathBuf, Option<Vec<u8>>)>,
    now: Setting,
    is_released: bool,
    master: Master,
    /// Held until drop.
    _lock: File,
}

impl Target {
    /// The server of a site. Locks its configuration against other tunings; changes nothing yet.
    ///
    /// # Errors
    /// A message: another tuning is running, this user may not change the configuration, or it
    /// includes no further file.
    pub fn of(site: &Site, reload: Reload) -> Result<Target, String> {
        let main = main_file(site)?;
        let lock = lock(main)?;
        let is_ours = site.service.kind == PhpServer::Maitred;
        let (server, file): (Box<dyn TunedServer>, PathBuf) = if is_ours {
            (Box::new(MaitredServer::of(site, main, reload)), file_of_pool(main, site))
        } else {
            let fpm = FpmServer::of(site)?;
            let file = real(fpm.drop_in());
            (Box::new(fpm), file)
        };
        let files = site.service.files.iter().map(PathBuf::from);
        let others = files.filter(|path| real(path) != file);
        let others = others.map(|path| (path.clone(), std::fs::read(&path).ok())).collect();
        Ok(Target {
            server,
            file: ReplacedFile::of(&file, if is_ours { b'#' } else { b';' })?,
            others,
            now: Setting::AsItWas,
            is_released: false,
            master: Master::of(site),
            _lock: lock,
        })
    }

    /// The file that is written.
    pub fn file(&self) -> &Path {
        self.file.path()
    }

    /// Whether that is a file of its own, so that a setting can be written permanently.
    pub fn takes_file(&self) -> bool {
        self.server.takes_file()
    }

    /// The master process.
    pub fn master(&self) -> i32 {
        self.master.pid
    }

    /// The current setting.
    pub fn now(&self) -> Setting {
        self.now
    }

    /// Takes no process of another user for one of the pool's workers, whatever its title.
    pub fn trust_only(&mut self, uid: u32) {
        self.master.user = Some(uid);
    }

    /// The pool's workers.
    pub fn workers(&self) -> Vec<i32> {
        self.master.workers()
    }

    /// Applies a setting, unless it is the current one. Returns when the new workers run.
    ///
    /// # Errors
    /// A message. The file is restored, and the server reloaded if it used the file.
    pub fn set(&mut self, setting: Setting) -> Result<(), String> {
        if setting == self.now {
            return Ok(());
        }
        self.untouched()?;
        let workers = match setting {
            Setting::AsItWas => return self.restore(),
            Setting::Workers(workers) => Some(workers),
            Setting::Php(_) | Setting::OpcacheOff => None,
        };
        let before = self.file.before().unwrap_or_default();
        let text = self.server.trial(before, setting)?;
        self.file.put(text.as_bytes()).and_then(|()| self.check(workers)).inspect_err(|_| {
            // The first error is reported; it contains the file's path.
            let _ = self.file.restore();
        })?;
        self.now = setting;
        self.reload()
    }

    /// Whether the configuration is the original one, and the server would accept it.
    pub fn is_restored(&self) -> bool {
        self.file.is_restored() && self.untouched().is_ok() && self.refusal().is_none()
    }

    /// Writes a setting permanently, with a backup of the original file for `undo`.
    ///
    /// # Errors
    /// A message; everything is restored, or the message says what is not.
    pub fn write(&mut self, workers: u32, text: &str) -> Result<(), String> {
        self.untouched()?;
        self.file.put(text.as_bytes()).inspect_err(|_| {
            // The backup may exist already; the first error is reported.
            let _ = self.file.restore();
        })?;
        let done = self.check(Some(workers)).and_then(|()| {
            self.now = Setting::Workers(workers);
            self.reload()
        });
        done.map_err(|why| match self.restore() {
            Err(further) if !why.contains(&further) => format!("{why}; {further}"),
            _ => why,
        })
    }

    /// Keeps the current state on drop.
    pub fn release(&mut self) {
        self.is_released = true;
    }

    /// Restores everything. A server whose test rejects its configuration, which another program
    /// may have broken meanwhile, is not reloaded: php-fpm would exit.
    ///
    /// # Errors
    /// A message that says what is not restored.
    pub fn restore(&mut self) -> Result<(), String> {
        if self.now == Setting::AsItWas {
            return self.file.restore();
        }
        self.file.restore()?;
        let tried = std::mem::replace(&mut self.now, Setting::AsItWas);
        match self.refusal() {
            None => self.reload(),
            Some(why) => Err(format!(
                "{} is restored, but {} still runs with the trial ({}) and was not reloaded: \
                 {why}; fix that, and reload it",
                self.file.path().display(),
                self.server.name(),
                tried.words(),
            )),
        }
    }

    /// Checks that no other program has changed the configuration meanwhile.
    ///
    /// # Errors
    /// Which file was changed.
    fn untouched(&self) -> Result<(), String> {
        let changed = self.others.iter().find(|(path, before)| std::fs::read(path).ok() != *before);
        let changed = changed.map(|(path, _)| path.as_path());
        let changed = changed.or_else(|| (!self.file.is_untouched()).then(|| self.file.path()));
        match changed {
            Some(path) => Err(format!(
                "{} was changed by another program while the server was tuned: the results are of \
                 another configuration; tune again without such changes",
                path.display()
            )),
            None => Ok(()),
        }
    }

    /// Runs the server's own test before each reload: another program may have broken or added a
    /// file since the last.
    fn check(&self, workers: Option<u32>) -> Result<(), String> {
        self.server.check(&self.master, workers)
    }

    /// Why a running server would reject its configuration. A test that does not finish is no
    /// reason to keep a trial.
    fn refusal(&self) -> Option<String> {
        let is_running = self.master.is_running();
        is_running.then(|| self.server.refusal(&self.master))?
    }

    fn reload(&mut self) -> Result<(), String> {
        let done = self.server.reload(&self.master, self.now);
        done.or_else(|why| self.give_up(why))
    }

    /// The server did not come back: restores the file, and reloads it once more if it runs.
    fn give_up(&mut self, why: String) -> Result<(), String> {
        if let Err(further) = self.file.restore() {
            return Err(format!("{why}; {further}"));
        }
        self.now = Setting::AsItWas;
        if let Some(refusal) = self.refusal() {
            return Err(format!(
                "{why}; its settings are restored, but it was not reloaded: {refusal}; fix that, \
                 and reload it"
            ));
        }
        let again = self.server.reload(&self.master, Setting::AsItWas);
        Err(match again {
            Ok(()) => {
                format!("{why}; its settings are restored, and it serves with them")
            }
            Err(_) => format!(
                "{why}; its settings are restored, but it does not serve: start it ({})",
                self.server.start_command()
            ),
        })
    }
}

/// However a tuning ends, a panic included, no trial remains.
impl Drop for Target {
    fn drop(&mut self) {
        if !self.is_released {
            // Any error was reported before, or there is no one to report it to.
            let _ = self.restore();
        }
    }
}

/// Restores the file from before the last setting that tune has written, and reloads the server.
///
/// # Errors
/// A message.
pub fn undo(site: &Site, mut reload: Reload) -> Result<String, String> {
    let main = main_file(site)?;
    let _lock = lock(main)?;
    let master = Master::of(site);
    if site.service.kind == PhpServer::Maitred {
        let file = file_of_pool(main, site);
        let undo = Undo::begin(&file)?;
        finish(undo, maitred::check(main))?;
        let done = reload(None)?;
        return Ok(format!("{} is restored: {done}", file.display()));
    }
    let mut fpm = FpmServer::of(site)?;
    let file = real(fpm.drop_in());
    let undo = Undo::begin(&file)?;
    let is_there = undo.is_there();
    finish(undo, fpm.check(&master, None))?;
    fpm.reload(&master, Setting::AsItWas)?;
    Ok(if is_there {
        format!("{} is restored, and php-fpm uses it", file.display())
    } else {
        format!("{} is removed, and php-fpm serves without it", file.display())
    })
}

/// Reverts an undo that the server's own test rejects.
fn finish(undo: Undo, checked: Result<(), String>) -> Result<(), String> {
    let Err(why) = checked else {
        return undo.finish();
    };
    Err(match undo.take_back() {
        Ok(()) => format!("{why}; nothing is undone"),
        Err(further) => format!("{why}; {further}"),
    })
}

/// The server's main configuration file.
fn main_file(site: &Site) -> Result<&Path, String> {
    let main = site.service.files.first();
    let main = main.ok_or("the server has no configuration file")?;
    Ok(Path::new(main))
}

/// The file of maitred's configuration that has the pool, which may be an included one.
fn file_of_pool(main: &Path, site: &Site) -> PathBuf {
    real(&maitred_config::file_of_pool(main, &site.pool.section))
}

/// The target of a symlink: a replacement must not replace the link.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Locks the configuration's directory against other tunings until the file is closed. The
/// configuration itself may be replaced meanwhile, and a lock on the replaced file would lock
/// nothing.
fn lock(main: &Path) -> Result<File, String> {
    let main = real(main);
    let directory = main.parent().unwrap_or(Path::new("/"));
    let shown = directory.display();
    let file = match users::is_root() {
        true => lock_file(directory),
        false => File::open(directory),
    };
    let file = file.map_err(|why| format!("{shown} cannot be locked: {why}"))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(format!(
            "another `maitred tune` is running on {}, or on another configuration in its \
             directory; wait until it has ended",
            main.display()
        )),
        Err(why) => Err(format!("{shown} cannot be locked: {why}")),
    }
}

/// The file that root locks for a directory. Any user who may read the directory could hold a lock
/// of the directory itself.
fn lock_file(directory: &Path) -> io::Result<File> {
    let of = std::fs::metadata(directory)?;
    let name = format!("maitred-tune-{:x}-{:x}.lock", of.dev(), of.ino());
    let path = Path::new(LOCK_FILES).join(name);
    let opened = guarded::append(&path, LOCK_FILE_MODE);
    opened.map_err(|why| io::Error::new(why.kind(), format!("{}: {why}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::php_terms::php_term::{CacheSize, PhpTerm, PhpTerms};

    #[test]
    fn a_configuration_that_is_replaced_stays_locked_and_so_does_one_behind_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let main = directory.path().join("maitred.toml");
        let link = elsewhere.path().join("maitred.toml");
        std::fs::write(&main, "mine").unwrap();
        std::os::unix::fs::symlink(&main, &link).unwrap();
        let held = lock(&main).unwrap();
        ReplacedFile::of(&main, b'#').unwrap().put(b"trial").unwrap();
        let why = lock(&main).unwrap_err();
        assert!(why.contains("another `maitred tune` is running on"), "{why}");
        assert!(lock(&link).is_err());
        drop(held);
        assert!(lock(&link).is_ok());
    }

    #[test]
    fn a_lock_of_the_folder_by_another_user_does_not_stop_root() {
        if !users::is_root() {
            return eprintln!("skipped: other users cannot make files in {LOCK_FILES}");
        }
        let directory = tempfile::tempdir().unwrap();
        let main = directory.path().join("maitred.toml");
        std::fs::write(&main, "mine").unwrap();
        let folder = File::open(directory.path()).unwrap();
        flock(&folder, FlockOperation::NonBlockingLockExclusive).unwrap();
        let held = lock(&main).unwrap();
        assert_eq!(held.metadata().unwrap().mode() & 0o777, LOCK_FILE_MODE);
        assert!(lock(&main).unwrap_err().contains("another `maitred tune` is running on"));
    }

    const MINE: &str = "listen = [\"127.0.0.1:0\"]\n\n[pools.www]\nmax_children = 2\n\n\
                        [[sites]]\nhosts = [\"localhost\"]\nroot = \"/tmp\"\n";

    /// maitred, reloaded by `reload`.
    fn target(directory: &Path, reload: Reload) -> Target {
        let config = directory.join("maitred.toml");
        std::fs::write(&config, MINE).unwrap();
        Target {
            file: ReplacedFile::of(&config, b'#').unwrap(),
            _lock: lock(&config).unwrap(),
            server: Box::new(MaitredServer { config, section: "www".to_owned(), reload }),
            others: Vec::new(),
            now: Setting::AsItWas,
            is_released: false,
            master: Master { pid: 0, began: None, title: String::new(), user: None },
        }
    }

    fn fine() -> Reload {
        Box::new(|_| Ok("done".to_owned()))
    }

    fn expect_mine(directory: &Path) {
        let text = std::fs::read_to_string(directory.join("maitred.toml")).unwrap();
        assert_eq!(text, MINE);
        assert!(!replaced_file::can_undo(&directory.join("maitred.toml")));
    }

    #[test]
    fn a_fault_in_tuning_itself_leaves_no_trial() {
        let directory = tempfile::tempdir().unwrap();
        let caught = std::panic::catch_unwind(|| {
            let mut target = target(directory.path(), fine());
            target.set(Setting::Workers(4)).unwrap();
            assert!(replaced_file::can_undo(target.file()));
            panic!("a fault");
        });
        assert!(caught.is_err());
        expect_mine(directory.path());
    }

    #[test]
    fn a_refused_reload_leaves_the_original_file_unless_another_program_changes_it() {
        let directory = tempfile::tempdir().unwrap();
        let mut refusals = 1;
        let reload = move |_| match std::mem::take(&mut refusals) {
            0 => Ok("done".to_owned()),
            _ => Err("the reload is refused".to_owned()),
        };
        let mut target = target(directory.path(), Box::new(reload));
        let php = PhpTerms::default().with(PhpTerm::Size(CacheSize::Strings, 64));
        let why = target.set(Setting::Php(php)).unwrap_err();
        assert!(why.contains("refused") && why.ends_with("it serves with them"), "{why}");
        assert!(target.is_restored() && target.now() == Setting::AsItWas);
        target.set(Setting::Workers(4)).unwrap();
        assert!(!target.is_restored());
        target.restore().unwrap();
        assert!(target.is_restored());
        expect_mine(directory.path());
        std::fs::write(directory.path().join("maitred.toml"), "theirs").unwrap();
        assert!(!target.is_restored());
    }

    #[test]
    fn what_stays_stays_and_what_cannot_be_written_leaves_no_backup() {
        let directory = tempfile::tempdir().unwrap();
        let full = directory.path().join(".maitred.toml.tune-new");
        std::fs::create_dir_all(full.join("taken")).unwrap();
        let mut target = target(directory.path(), fine());
        let why = target.write(4, MINE).unwrap_err();
        assert!(why.contains("cannot be written"), "{why}");
        expect_mine(directory.path());
        std::fs::remove_dir_all(&full).unwrap();
        let four = MINE.replace("max_children = 2", "pm = \"static\"\nmax_children = 4");
        target.write(4, &four).unwrap();
        target.release();
        let path = target.file().to_owned();
        drop(target);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("max_children = 4") && replaced_file::can_undo(&path), "{text}");
    }

    #[test]
    fn what_another_hand_writes_during_a_reload_that_fails_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("maitred.toml");
        let theirs = path.clone();
        let reload = move |_| {
            std::fs::write(&theirs, "theirs").unwrap();
            Err("it does not come back".to_owned())
        };
        let mut target = target(directory.path(), Box::new(reload));
        let why = target.set(Setting::Workers(4)).unwrap_err();
        assert!(why.contains("it does not come back") && why.contains("another program"), "{why}");
        assert!(target.restore().is_err());
        drop(target);
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
        assert_eq!(std::fs::read(replaced_file::backup(&path)).unwrap(), MINE.as_bytes());
    }

    #[test]
    fn a_link_stays_one() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("real"), directory.path().join("link"));
        std::fs::write(&file, "mine").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut kept = ReplacedFile::of(&real(&link), b'#').unwrap();
        kept.put(b"trial").unwrap();
        assert!(std::fs::read(&file).unwrap().starts_with(b"trial"));
        kept.restore().unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    }
}
