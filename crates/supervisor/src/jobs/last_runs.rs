//! When schedules with `missed = "once"` ran last, in a small file that outlives the server.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use maitred_config::{Config, Job, Missed};
use maitred_os::users;
use tracing::{error, warn};

use crate::limits::CLOCK_SET_BACK;
use crate::system::private_folders::state_directory;

/// The folder within that of the server's state.
const FOLDER: &str = "schedules";

/// Its mode.
const FOLDER_MODE: u32 = 0o700;

/// Largest file that is read, in bytes: a thousand schedules with long names need half of it.
const MAX_FILE_BYTES: u64 = 256 * 1024;

/// Longest part of the name of a configuration in the name of the file, in bytes.
const MAX_NAME_BYTES: usize = 60;

/// The times of the last runs, by pool and name.
#[derive(Debug, Default)]
pub struct LastRuns {
    file: Option<PathBuf>,
    /// In seconds since 1970.
    times: BTreeMap<String, i64>,
    is_changed: bool,
    has_failed: bool,
}

fn name(job: &Job) -> String {
    format!("{}/{}", job.pool, job.name)
}

/// Whether the last run of a job is to be known after a restart.
pub fn is_remembered(job: &Job) -> bool {
    job.schedule.as_ref().is_some_and(|schedule| schedule.missed == Missed::Once)
}

impl LastRuns {
    /// Reads the file of the server with this configuration, unless it was read before, or no
    /// schedule needs it and there is none.
    pub fn follow(&mut self, config: &Config, config_file: Option<&Path>) {
        let is_needed = config.jobs.iter().any(is_remembered);
        let file = file_of(config_file.unwrap_or(Path::new("/")));
        if self.file.is_none() && (is_needed || file.exists()) {
            match read(&file) {
                // What has run meanwhile is later.
                Ok(times) => {
                    for (name, time) in times {
                        self.times.entry(name).or_insert(time);
                    }
                }
                Err(why) => warn!(
                    "the last runs of schedules cannot be read from {}: {why}; those that were \
                     missed are not made up",
                    file.display()
                ),
            }
            self.file = Some(file);
        }
        let known: Vec<String> =
            config.jobs.iter().filter(|job| is_remembered(job)).map(name).collect();
        let before = self.times.len();
        self.times.retain(|name, _| known.contains(name));
        self.is_changed |= self.times.len() != before;
    }

    /// When a schedule ran last. Of a schedule that is new, that is now. A time that is far ahead
    /// is one of a clock that was wrong.
    pub fn of(&mut self, job: &Job, now: i64) -> i64 {
        let ahead = i64::try_from(CLOCK_SET_BACK.as_secs()).unwrap_or(0);
        let last = self.times.get(&name(job)).copied();
        let last = last.filter(|last| *last <= now.saturating_add(ahead));
        if last.is_none() {
            self.ran(job, now);
        }
        last.unwrap_or(now)
    }

    /// The runs that were due until now were begun, or left out.
    pub fn ran(&mut self, job: &Job, now: i64) {
        if is_remembered(job) {
            self.times.insert(name(job), now);
            self.is_changed = true;
        }
    }

    /// Writes the file, if anything has changed. It is complete or as before, whatever happens to
    /// this process; after a power failure it may be older.
    pub fn write(&mut self) {
        let Some(file) = self.file.as_deref().filter(|_| self.is_changed) else { return };
        self.is_changed = false;
        match write(file, &self.times) {
            Ok(()) => self.has_failed = false,
            Err(why) => {
                if !self.has_failed {
                    error!(
                        "the last runs of schedules cannot be written to {}: {why}; after a \
                         restart, runs may be made up that were not missed",
                        file.display()
                    );
                }
                self.has_failed = true;
            }
        }
    }
}

/// The file of the server with this configuration: a machine may have several.
fn file_of(config_file: &Path) -> PathBuf {
    let plain = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' => c,
        _ => '-',
    };
    let last = config_file.file_name().unwrap_or_default().to_string_lossy();
    let last: String = last.chars().map(plain).take(MAX_NAME_BYTES).collect();
    // FNV-1a: the name has to be the same for each version of the program.
    let bytes = config_file.as_os_str().as_encoded_bytes().iter();
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    folder().join(format!("{last}-{hash:016x}.json"))
}

fn folder() -> PathBuf {
    if users::is_root() || std::env::var_os("STATE_DIRECTORY").is_some() {
        return state_directory().join(FOLDER);
    }
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.filter(|folder| folder.is_absolute());
    let state = state.unwrap_or_else(|| Path::new(&users::current().home).join(".local/state"));
    state.join("maitred").join(FOLDER)
}

fn read(path: &Path) -> io::Result<BTreeMap<String, i64>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        file => file?,
    };
    let mut text = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(io::Error::from)
}

fn write(path: &Path, times: &BTreeMap<String, i64>) -> io::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.is_dir()) {
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
    }
    let folder = path.parent().map(fs::symlink_metadata).transpose()?;
    let is_ours = folder.is_some_and(|folder| {
        folder.is_dir() && folder.uid() == users::current().uid && folder.mode() & 0o022 == 0
    });
    if !is_ours {
        let why = "others may write to its folder";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let beside = path.with_extension("new");
    fs::write(&beside, serde_json::to_vec(times)?)?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_runs_are_read_as_they_were_written_and_a_wrong_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("schedules/maitred.toml.json");
        assert_eq!(read(&file).unwrap(), BTreeMap::new());
        let times = BTreeMap::from([("shop/report".to_owned(), 1_767_225_600)]);
        write(&file, &times).unwrap();
        write(&file, &times).unwrap();
        assert_eq!(read(&file).unwrap(), times);
        let beside = fs::read_dir(file.parent().unwrap()).unwrap().count();
        assert_eq!(beside, 1, "nothing lies beside it");
        fs::write(&file, "{\"shop/report\":").unwrap();
        assert!(read(&file).is_err());
        fs::write(&file, vec![b' '; 1 << 20]).unwrap();
        assert!(read(&file).is_err());
        fs::set_permissions(
            file.parent().unwrap(),
            std::os::unix::fs::PermissionsExt::from_mode(0o777),
        )
        .unwrap();
        assert!(write(&file, &times).is_err());
    }

    #[test]
    fn configurations_of_one_name_have_files_of_their_own() {
        let name = |path: &str| {
            let file = file_of(Path::new(path));
            file.file_name().unwrap().to_str().unwrap().to_owned()
        };
        assert!(name("/etc/maitred/maitred.toml").starts_with("maitred.toml-"));
        assert_ne!(name("/etc/maitred/maitred.toml"), name("/srv/maitred.toml"));
        assert!(name(&format!("/{}", "\u{e9}/../".repeat(100))).len() < 90);
    }
}
