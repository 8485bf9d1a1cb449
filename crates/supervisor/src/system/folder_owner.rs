//! The user that a private folder was made for, by name. The number of a deleted user is given
//! again, and what the former user's sessions hold is not for the next one.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use maitred_os::users::{self, Identity};
use tracing::warn;

/// Mode of the note.
const NOTE_MODE: u32 = 0o600;

/// Mode of a former user's folder: its number is the next user's.
const FORMER_MODE: u32 = 0o700;

/// Folders of former users of one number.
const MOST_FORMER: u32 = 1000;

/// Sets a folder aside that was made for a user whose number is another one's now. The directory
/// that contains it is root's alone.
///
/// # Errors
/// When it cannot be set aside: the folder is not for this user.
pub fn set_former_aside(folder: &Path, user: &Identity) -> io::Result<()> {
    let Some(former) = noted(folder).filter(|former| is_former(former, user)) else {
        return Ok(());
    };
    if let Some(aside) = rename(folder)? {
        let Identity { name, uid, gid, .. } = user;
        let (path, aside) = (folder.display(), aside.display());
        warn!(
            "{path} was made for user `{former}`, and user `{name}` has its number now: the \
             sessions and temporary files of `{former}` are in {aside}, for root alone, and can be \
             deleted; if the same user has another name, stop the server and run: rm -r {path} && \
             mv {aside} {path} && chown {uid}:{gid} {path}"
        );
    }
    fs::remove_file(note_of(folder))
}

/// Notes the user of a folder, unless one is noted: older folders have no note.
pub fn note(folder: &Path, user: &Identity) {
    if noted(folder).is_some() || is_nameless(user) {
        return;
    }
    let note = note_of(folder);
    let mut options = fs::File::options();
    let written = options.write(true).create(true).truncate(true).mode(NOTE_MODE).open(&note);
    let written = written.and_then(|mut file| file.write_all(user.name.as_bytes()));
    if let Err(why) = written {
        let path = note.display();
        warn!("the user of a private folder cannot be noted ({path}: {why})");
    }
}

/// `users/1001.user` for `users/1001`.
fn note_of(folder: &Path) -> PathBuf {
    folder.with_extension("user")
}

fn noted(folder: &Path) -> Option<String> {
    let name = fs::read_to_string(note_of(folder)).ok()?;
    Some(name).filter(|name| !name.is_empty())
}

/// A user without a name may have one that is not found now.
fn is_nameless(user: &Identity) -> bool {
    user.name == user.uid.to_string()
}

/// Whether a name is not this user's: a number may have several.
fn is_former(name: &str, user: &Identity) -> bool {
    name != user.name
        && !is_nameless(user)
        && users::can_be_looked_up(name, None)
        && users::look_up(name, None).map_or(true, |found| found.uid != user.uid)
}

/// The new path of a folder, if it was there.
fn rename(folder: &Path) -> io::Result<Option<PathBuf>> {
    let mut paths =
        (1..=MOST_FORMER).map(|number| folder.with_extension(format!("former-{number}")));
    let aside = paths.find(|path| fs::symlink_metadata(path).is_err());
    let aside = aside.ok_or_else(|| io::Error::other("there are too many of former users"))?;
    // Before it is renamed: an error leaves all as it was, to be tried again.
    match lchown(folder, Some(0), Some(0)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        made => made?,
    }
    fs::set_permissions(folder, Permissions::from_mode(FORMER_MODE))?;
    fs::rename(folder, &aside)?;
    Ok(Some(aside))
}
