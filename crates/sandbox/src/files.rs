//! Landlock (landlock(7)): restricts which files a process can open, beyond its user's permissions.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope, make_bitflags, path_beneath_rules,
};

use crate::folders::{self, FOR_NAMES, OF_SITES, OF_THE_SYSTEM, part_of};
use crate::{Needs, Part, Readable};

/// The newest version of Landlock that is known to work. An older kernel enforces the restrictions
/// that it supports.
const KNOWN: ABI = ABI::V6;

/// Most folders of `/` that are read.
const MOST_FOLDERS: usize = 256;

/// Restricts this thread, and threads that it starts: files are readable below the folders of
/// `needs`, of the system and of sites, and writable in those of `needs.written`. Executing
/// programs, controlling devices and signalling other processes are denied.
///
/// # Errors
/// Why nothing is restricted.
/// Why nothing is restricted.
pub fn restrict(needs: &Needs) -> Result<Readable, String> {
    let read = readable(needs);
    let parts = parts(&read, &needs.written);
    let status = enforce(&read, &needs.written).map_err(|error| error.to_string())?;
    match status {
        RulesetStatus::NotEnforced => Err("the kernel has none, or it is switched off".to_owned()),
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => {
            Ok(Readable::Beneath(parts))
        }
    }
}

/// The folders of the rules.
fn parts(read: &BTreeSet<PathBuf>, written: &[PathBuf]) -> Vec<Part> {
    let read = read.iter().map(|path| Part::of(path, false));
    let written = written.iter().map(|path| {
        let real = path.canonicalize();
        Part::of(real.as_deref().unwrap_or(path), true)
    });
    read.chain(written).collect()
}

fn enforce(read: &BTreeSet<PathBuf>, written: &[PathBuf]) -> Result<RulesetStatus, RulesetError> {
    let reading = make_bitflags!(AccessFs::{ReadFile | ReadDir});
    let writing: BitFlags<AccessFs> = reading
        | make_bitflags!(AccessFs::{
            WriteFile | Truncate | MakeReg | MakeDir | RemoveFile | RemoveDir | Refer
        });
    let restricted = Ruleset::default()
        .handle_access(AccessFs::from_all(KNOWN))?
        .scope(Scope::from_all(KNOWN))?
        .create()?
        .add_rules(path_beneath_rules(read, reading))?
        .add_rules(path_beneath_rules(written, writing))?
        .restrict_self()?;
    Ok(restricted.ruleset)
}

/// The readable parts of the file system; missing ones are skipped.
fn readable(needs: &Needs) -> BTreeSet<PathBuf> {
    let mut read: BTreeSet<PathBuf> = OF_THE_SYSTEM.iter().map(PathBuf::from).collect();
    let real = FOR_NAMES.iter().filter_map(|file| Path::new(file).canonicalize().ok());
    read.extend(real.map(folders::around));
    if needs.sites {
        read.extend(OF_SITES.iter().map(PathBuf::from));
        read.extend(top_folders());
    }
    for path in &needs.read {
        read.insert(part_of(path));
        // The target of a link may be in another part.
        read.extend(path.canonicalize().ok().map(|real| part_of(&real)));
    }
    read.retain(|folder| folder.exists());
    read
}

/// Folders of `/` in which a later configuration may have sites.
fn top_folders() -> Vec<PathBuf> {
    let entries = Path::new("/").read_dir().into_iter().flatten().flatten();
    let may_hold_sites = |name: &std::ffi::OsStr| {
        let name = name.to_str();
        name.is_none_or(folders::may_hold_sites)
    };
    entries
        .filter(|entry| may_hold_sites(&entry.file_name()))
        .filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_file()))
        .map(|entry| entry.path())
        .take(MOST_FOLDERS)
        .collect()
}
