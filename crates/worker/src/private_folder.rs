//! The folder of the pool's user for temporary files and sessions, where other pools have other
//! users.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use maitred_control::ZygoteSettings;
use maitred_os::environment;
use maitred_php::Engine;

/// Mode of its parts.
const MODE: u32 = 0o700;

/// The variable that names the folder of temporary files to PHP and to programs.
const VARIABLE: &str = "TMPDIR";

/// The directives of PHP that name it.
const TEMPORARY: [&str; 2] = ["sys_temp_dir", "upload_tmp_dir"];

/// The directive of the folder of sessions.
const SAVE_PATH: &str = "session.save_path";

/// The directive that has PHP delete old sessions. Debian's php.ini has 0, since a job of the
/// system deletes those in the shared folder.
const COLLECTION: &str = "session.gc_probability";

/// A user's folder, divided.
pub struct PrivateFolder {
    temporary: PathBuf,
    sessions: PathBuf,
}

impl PrivateFolder {
    /// Makes the parts of a pool's folder. To be called as the pool's user. None: the pool has no
    /// such folder.
    ///
    /// # Errors
    /// One sentence, if a required folder cannot be used.
    pub fn prepare(settings: &ZygoteSettings) -> Result<Option<PrivateFolder>, String> {
        let Some(folder) = &settings.private_folder else {
            return Ok(None);
        };
        let part = |name: &str| {
            let path = folder.path.join(name);
            make(&path).map(|()| path)
        };
        let divided = part("tmp").and_then(|temporary| {
            part("sessions").map(|sessions| PrivateFolder { temporary, sessions })
        });
        match divided {
            Ok(divided) => Ok(Some(divided)),
            Err(why) if folder.is_required => Err(format!(
                "`private_dir` cannot be used for {}: {why}; the pool's user must be able to \
                 reach it",
                folder.path.display()
            )),
            Err(why) => {
                let path = folder.path.display();
                eprintln!("maitred-php: {path} cannot be used: {why}; php.ini's folders are");
                Ok(None)
            }
        }
    }

    /// The folder of sessions.
    pub fn sessions(&self) -> &Path {
        &self.sessions
    }

    /// The variable for the environment, unless the pool decides about temporary files itself.
    pub fn variable(&self, settings: &ZygoteSettings) -> Option<(String, String)> {
        let is_set = settings.env.iter().any(|(name, _)| name == VARIABLE)
            || sets(settings, TEMPORARY[0])
            || own_value(settings, "open_basedir").is_some_and(|list| !self.is_within(list));
        (!is_set).then(|| (VARIABLE.to_owned(), self.temporary.display().to_string()))
    }

    /// Has PHP use the folder for what neither php.ini nor the pool decides. To be called when PHP
    /// was started with the [variable](Self::variable) that it gave.
    pub fn apply(&self, settings: &ZygoteSettings, engine: &mut Engine) {
        let allowed = engine.configured("open_basedir");
        let excludes = allowed.is_some_and(|list| !list.is_empty() && !self.is_within(&list));
        let is_set = |engine: &Engine, name| is_configured(settings, engine, name);
        if self.variable(settings).is_some() && excludes {
            // Scripts could not open what they are to create there.
            environment::remove(VARIABLE);
        } else if self.variable(settings).is_some() && !is_set(engine, TEMPORARY[0]) {
            for name in TEMPORARY {
                if !is_set(engine, name) {
                    engine.set_default(name, &self.temporary.display().to_string());
                }
            }
        }
        let handler = engine.configured("session.save_handler");
        let is_files = handler.is_none_or(|handler| handler == "files");
        if is_files && !is_set(engine, SAVE_PATH) {
            engine.set_default(SAVE_PATH, &self.sessions.display().to_string());
            let probability = engine.configured(COLLECTION);
            if !sets(settings, COLLECTION) && probability.is_none_or(|value| value == "0") {
                engine.set_default(COLLECTION, "1");
            }
        }
    }

    /// Whether a list of `open_basedir` contains the folder of temporary files.
    fn is_within(&self, list: &str) -> bool {
        let mut folders = list.split(':').filter(|folder| !folder.is_empty());
        folders.any(|folder| self.temporary.starts_with(Path::new(folder)))
    }
}

/// Makes a folder of this user, unless there is one.
fn make(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(MODE).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // One that cannot be entered is none.
            fs::metadata(path.join(".")).map(drop)
        }
        made => made,
    }
}

/// The value of a directive that the pool sets.
fn own_value<'a>(settings: &'a ZygoteSettings, name: &str) -> Option<&'a str> {
    let own = [&settings.defines, &settings.php_values, &settings.php_admin_values];
    let found = own.into_iter().flatten().rfind(|(own, _)| own == name);
    found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
}

fn sets(settings: &ZygoteSettings, name: &str) -> bool {
    own_value(settings, name).is_some()
}

/// Whether the pool, php.ini or one of its further files sets a directive.
fn is_configured(settings: &ZygoteSettings, engine: &Engine, name: &str) -> bool {
    sets(settings, name) || engine.configured(name).is_some_and(|value| !value.is_empty())
}
