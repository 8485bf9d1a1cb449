//! The server that is tuned: its settings are changed, checked by its own test, used by a reload, and put
//! back.

mod fpm;
mod maitred;
pub mod replaced_file;

use std::fs::File;
use std::path::{Path, PathBuf};

use maitred_doctor::facts::PhpServer;
use rustix::fs::{FlockOperation, flock};

use crate::measurement::Setting;
use crate::processes;
use crate::site::Site;
use fpm::FpmServer;
use maitred::MaitredServer;
use replaced_file::{ReplacedFile, Undo};

/// Has a server of ours read its configuration; answers when that is done.
pub type Reload = Box<dyn FnMut() -> Result<String, String>>;

/// Which server, and how it is told.
enum ServerKind {
    Fpm(FpmServer),
    Maitred(MaitredServer),
}

/// A server with the pool that is tuned.
pub struct Target {
    server: ServerKind,
    file: ReplacedFile,
    /// The other files of its configuration, as they were.
    others: Vec<(PathBuf, Option<Vec<u8>>)>,
    now: Setting,
    is_released: bool,
    master: i32,
    began: Option<u64>,
    title: String,
    /// Held as long as we are here.
    _lock: File,
}

impl Target {
    /// Of a site, whose configuration nobody else may tune meanwhile. Nothing is changed yet.
    ///
    /// # Errors
    /// One sentence: another tune is at it, it cannot be changed by this user, or its configuration takes
    /// no further file.
    pub fn of(site: &Site, reload: Reload) -> Result<Target, String> {
        let main = site
            .service
            .files
            .first()
            .ok_or("the server has no configuration file")?;
        let main = Path::new(main);
        let lock = lock(main)?;
        let is_ours = site.service.kind == PhpServer::Maitred;
        let (server, file) = match is_ours {
            true => (
                ServerKind::Maitred(MaitredServer::of(site, main, reload)),
                real(main),
            ),
            false => {
                let fpm = FpmServer::of(site)?;
                let file = real(fpm.drop_in());
                (ServerKind::Fpm(fpm), file)
            }
        };
        let files = site.service.files.iter().map(PathBuf::from);
        let others = files.filter(|path| real(path) != file);
        let others = others
            .map(|path| (path.clone(), std::fs::read(&path).ok()))
            .collect();
        Ok(Target {
            server,
            file: ReplacedFile::of(&file, if is_ours { b'#' } else { b';' })?,
            others,
            now: Setting::AsItWas,
            is_released: false,
            master: site.master,
            began: processes::began(site.master),
            title: site.title(),
            _lock: lock,
        })
    }

    /// The file that is written.
    pub fn file(&self) -> &Path {
        self.file.path()
    }

    /// Whether that is a file of its own, so that a setting can be written down for good.
    pub fn takes_file(&self) -> bool {
        matches!(self.server, ServerKind::Fpm(_))
    }

    /// The first process.
    pub fn master(&self) -> i32 {
        self.master
    }

    /// How the pool is set now.
    pub fn now(&self) -> Setting {
        self.now
    }

    /// The pool's workers.
    pub fn workers(&self) -> Vec<i32> {
        processes::workers(self.master, &self.title)
    }

    /// Has the pool set so, if it is not yet. Returns when the new workers are there.
    ///
    /// # Errors
    /// One sentence. The file is as it was; where it was in use, the server was told so.
    pub fn set(&mut self, setting: Setting) -> Result<(), String> {
        if setting == self.now {
            return Ok(());
        }
        self.untouched()?;
        let Setting::Workers(workers) = setting else {
            return self.restore();
        };
        let text = match &self.server {
            ServerKind::Fpm(fpm) => fpm.trial(workers),
            ServerKind::Maitred(ours) => {
                ours.trial(self.file.before().unwrap_or_default(), workers)?
            }
        };
        self.file
            .put(text.as_bytes())
            .and_then(|()| self.check(Some(workers)))
            .inspect_err(|_| {
                // The first error is the one to tell, and the file's path is in it.
                let _ = self.file.restore();
            })?;
        self.now = setting;
        self.reload()
    }

    /// Writes a setting down for good. What was before is kept beside it, for `undo`.
    ///
    /// # Errors
    /// One sentence; all is as it was, or it is said what is not.
    pub fn keep(&mut self, workers: u32, text: &str) -> Result<(), String> {
        self.untouched()?;
        self.file.put(text.as_bytes()).inspect_err(|_| {
            // The backup may be there already; the first error is the one to tell.
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

    /// All stays as it is now, whatever becomes of this.
    pub fn release(&mut self) {
        self.is_released = true;
    }

    /// Has everything as it was. A server that would refuse its configuration, which another hand may have
    /// broken meanwhile, is not told to reload: php-fpm would end.
    ///
    /// # Errors
    /// One sentence: what is not.
    pub fn restore(&mut self) -> Result<(), String> {
        if self.now == Setting::AsItWas {
            return self.file.restore();
        }
        self.file.restore()?;
        let tried = std::mem::replace(&mut self.now, Setting::AsItWas);
        match self.refusal() {
            None => self.reload(),
            Some(why) => Err(format!(
                "{} is as it was, but {} still runs with the trial ({}) and was not told to reload: {why}; mend \
                 that, and reload it",
                self.file.path().display(),
                self.server(),
                tried.words(),
            )),
        }
    }

    /// Whether nobody else has changed the configuration meanwhile.
    ///
    /// # Errors
    /// Scope file was changed.
    fn untouched(&self) -> Result<(), String> {
        let changed = self
            .others
            .iter()
            .find(|(path, before)| std::fs::read(path).ok() != *before);
        let changed = changed.map(|(path, _)| path.as_path());
        let changed = changed.or_else(|| (!self.file.is_untouched()).then(|| self.file.path()));
        match changed {
            Some(path) => Err(format!(
                "{} was changed by another hand while the server was tuned: its figures are of another \
                 configuration; tune again when nobody else is at it",
                path.display()
            )),
            None => Ok(()),
        }
    }

    /// The server's own test, before each reload: another hand may have broken a file, or added one,
    /// since the last.
    fn check(&self, workers: Option<u32>) -> Result<(), String> {
        match &self.server {
            ServerKind::Fpm(fpm) => fpm.check(self.master, workers),
            ServerKind::Maitred(ours) => ours.check(),
        }
    }

    /// Why a server that lives would not take its configuration. Where its own test comes to no end, nobody
    /// knows, and a trial does not stay for that.
    fn refusal(&self) -> Option<String> {
        if processes::began(self.master) != self.began {
            return None;
        }
        match &self.server {
            ServerKind::Fpm(fpm) => fpm.refusal(self.master),
            ServerKind::Maitred(ours) => ours.check().err(),
        }
    }

    fn reload(&mut self) -> Result<(), String> {
        let done = match &mut self.server {
            ServerKind::Fpm(fpm) => fpm.reload(self.master, self.began, &self.title, self.now),
            ServerKind::Maitred(ours) => ours.reload(),
        };
        done.or_else(|why| self.give_up(why))
    }

    /// The server did not come back: the file is put back, and it is told once more if it lives.
    fn give_up(&mut self, why: String) -> Result<(), String> {
        if let Err(further) = self.file.restore() {
            return Err(format!("{why}; {further}"));
        }
        self.now = Setting::AsItWas;
        if let Some(refusal) = self.refusal() {
            return Err(format!(
                "{why}; its settings are as they were again, but it was not told so: {refusal}; mend that, and \
                 reload it"
            ));
        }
        let again = match &mut self.server {
            ServerKind::Fpm(fpm) => {
                fpm.reload(self.master, self.began, &self.title, Setting::AsItWas)
            }
            ServerKind::Maitred(ours) => ours.reload(),
        };
        Err(match again {
            Ok(()) => {
                format!("{why}; its settings are as they were again, and it serves with them")
            }
            Err(_) => format!(
                "{why}; its settings are as they were again, but it does not serve: start it \
                 ({})",
                self.how_to_start()
            ),
        })
    }

    fn server(&self) -> &'static str {
        match &self.server {
            ServerKind::Fpm(_) => "php-fpm",
            ServerKind::Maitred(_) => "maitred",
        }
    }

    fn how_to_start(&self) -> String {
        match &self.server {
            ServerKind::Fpm(fpm) => fpm.how_to_start(),
            ServerKind::Maitred(_) => "systemctl start maitred".to_owned(),
        }
    }
}

/// Whatever ends a tuning, a fault in it too, a trial does not stay.
impl Drop for Target {
    fn drop(&mut self) {
        if !self.is_released {
            // Who could say what is wrong has said so, or is gone.
            let _ = self.restore();
        }
    }
}

/// Puts back what was before the last setting that tune has written, and has the server use it.
///
/// # Errors
/// One sentence.
pub fn undo(site: &Site, mut reload: Reload) -> Result<String, String> {
    let main = site
        .service
        .files
        .first()
        .ok_or("the server has no configuration file")?;
    let main = Path::new(main);
    let _lock = lock(main)?;
    let title = site.title();
    let began = processes::began(site.master);
    if site.service.kind == PhpServer::Maitred {
        let undo = Undo::begin(&real(main))?;
        finish(undo, maitred::check(main))?;
        let done = reload()?;
        return Ok(format!("{} is as it was before: {done}", main.display()));
    }
    let fpm = FpmServer::of(site)?;
    let file = real(fpm.drop_in());
    let undo = Undo::begin(&file)?;
    let is_there = undo.is_there();
    finish(undo, fpm.check(site.master, None))?;
    fpm.reload(site.master, began, &title, Setting::AsItWas)?;
    Ok(match is_there {
        true => format!(
            "{} is as it was before, and php-fpm uses it",
            file.display()
        ),
        false => format!("{} is gone, and php-fpm serves without it", file.display()),
    })
}

/// Takes an undo back that the server's own test refuses.
fn finish(undo: Undo, checked: Result<(), String>) -> Result<(), String> {
    let Err(why) = checked else {
        return undo.finish();
    };
    Err(match undo.take_back() {
        Ok(()) => format!("{why}; nothing is undone"),
        Err(further) => format!("{why}; {further}"),
    })
}

/// The file that a link leads to: what replaces it has to leave the link.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Nobody else tunes a configuration of this folder as long as the file is open. The configuration itself
/// may be replaced meanwhile, and a lock on it would lie on a file that nobody finds any more.
fn lock(main: &Path) -> Result<File, String> {
    let main = real(main);
    let folder = main.parent().unwrap_or(Path::new("/"));
    let shown = folder.display();
    let file = File::open(folder).map_err(|why| format!("{shown} cannot be read: {why}"))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(format!(
            "another `maitred tune` is at work on {}, or on another configuration in its folder; wait until \
             it has ended",
            main.display()
        )),
        Err(why) => Err(format!("{shown} cannot be locked: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_is_replaced_stays_locked_and_so_does_one_behind_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let main = folder.path().join("maitred.toml");
        let link = elsewhere.path().join("maitred.toml");
        std::fs::write(&main, "mine").unwrap();
        std::os::unix::fs::symlink(&main, &link).unwrap();
        let held = lock(&main).unwrap();
        ReplacedFile::of(&main, b'#')
            .unwrap()
            .put(b"trial")
            .unwrap();
        let why = lock(&main).unwrap_err();
        assert!(
            why.contains("another `maitred tune` is at work on"),
            "{why}"
        );
        assert!(lock(&link).is_err());
        drop(held);
        assert!(lock(&link).is_ok());
    }

    const MINE: &str = "listen = [\"127.0.0.1:0\"]\n\n[pools.www]\nmax_children = 2\n\n\
                        [[sites]]\nhosts = [\"localhost\"]\nroot = \"/tmp\"\n";

    /// A server of ours that is told to reload by `reload`.
    fn target(folder: &Path, reload: Reload) -> Target {
        let config = folder.join("maitred.toml");
        std::fs::write(&config, MINE).unwrap();
        Target {
            file: ReplacedFile::of(&config, b'#').unwrap(),
            _lock: lock(&config).unwrap(),
            server: ServerKind::Maitred(MaitredServer {
                config,
                section: "www".to_owned(),
                reload,
            }),
            others: Vec::new(),
            now: Setting::AsItWas,
            is_released: false,
            master: 0,
            began: None,
            title: String::new(),
        }
    }

    fn fine() -> Reload {
        Box::new(|| Ok("done".to_owned()))
    }

    fn expect_mine(folder: &Path) {
        let text = std::fs::read_to_string(folder.join("maitred.toml")).unwrap();
        assert_eq!(text, MINE);
        assert!(!replaced_file::can_undo(&folder.join("maitred.toml")));
    }

    #[test]
    fn a_fault_in_tuning_itself_leaves_no_trial() {
        let folder = tempfile::tempdir().unwrap();
        let caught = std::panic::catch_unwind(|| {
            let mut target = target(folder.path(), fine());
            target.set(Setting::Workers(4)).unwrap();
            assert!(replaced_file::can_undo(target.file()));
            panic!("a fault");
        });
        assert!(caught.is_err());
        expect_mine(folder.path());
    }

    #[test]
    fn what_stays_stays_and_what_cannot_be_written_leaves_no_backup() {
        let folder = tempfile::tempdir().unwrap();
        let full = folder.path().join(".maitred.toml.tune-new");
        std::fs::create_dir_all(full.join("taken")).unwrap();
        let mut target = target(folder.path(), fine());
        let why = target.keep(4, MINE).unwrap_err();
        assert!(why.contains("cannot be written"), "{why}");
        expect_mine(folder.path());
        std::fs::remove_dir_all(&full).unwrap();
        target.keep(4, &MINE.replace('2', "4")).unwrap();
        target.release();
        let path = target.file().to_owned();
        drop(target);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.contains("max_children = 4") && replaced_file::can_undo(&path),
            "{text}"
        );
    }

    #[test]
    fn what_another_hand_writes_during_a_reload_that_fails_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("maitred.toml");
        let theirs = path.clone();
        let reload = move || {
            std::fs::write(&theirs, "theirs").unwrap();
            Err("it does not come back".to_owned())
        };
        let mut target = target(folder.path(), Box::new(reload));
        let why = target.set(Setting::Workers(4)).unwrap_err();
        assert!(
            why.contains("it does not come back") && why.contains("another hand"),
            "{why}"
        );
        assert!(target.restore().is_err());
        drop(target);
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
        assert_eq!(
            std::fs::read(replaced_file::backup(&path)).unwrap(),
            MINE.as_bytes()
        );
    }

    #[test]
    fn a_link_stays_one() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("real"), folder.path().join("link"));
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
