//! The disk tier: one file for each page, named after its key, written to a temporary file and
//! renamed. A page is found by its name, so no index has to be loaded first. All functions block.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use maitred_os::own_files;
use maitred_pagecache::Millis;
use maitred_pagecache::fingerprint::fingerprint;
use maitred_pagecache::key::Key;
use sha2::{Digest as _, Sha256};

use crate::index::{Digest, Index};
use crate::object::{Entry, FIRST_BYTES, file_bytes, head_bytes};

/// Largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// Age after which an unfinished temporary file is removed, in milliseconds: its writer has died.
const ABANDONED_MILLIS: Millis = 3_600_000;
/// Most failed removals of an eviction before writing pauses.
const MAX_FAILED_REMOVALS: u32 = 16;
/// Pause after a failed write or eviction, in milliseconds.
const PAUSE_MILLIS: Millis = 10_000;
/// Bytes by which files grow on the disk: the blocks of nearly all file systems.
const BLOCK_BYTES: u64 = 4096;
/// The directory of temporary files.
const BEGUN: &str = "begun";

/// The limits of the disk tier.
#[derive(Debug, Clone)]
pub struct DiskLimits {
    /// Its directory, for this server alone.
    pub dir: PathBuf,
    /// Bytes of all files (nginx's `max_size`), each rounded up to [`BLOCK_BYTES`].
    pub max_size: u64,
    /// Milliseconds without a request after which a page is removed.
    pub inactive: Millis,
}

/// Whether a file is kept, by its key and its content without the body.
pub type KeepFilter<'a> = &'a mut dyn FnMut(&Key, &Entry) -> bool;

/// The disk tier.
#[derive(Debug)]
pub struct Disk {
    limits: DiskLimits,
    era: u64,
    index: Mutex<Index>,
    opened: Millis,
    next: AtomicU64,
    paused_until: AtomicU64,
    damaged: AtomicU64,
    evicted: AtomicU64,
    failed: AtomicU64,
}

/// The result of a lookup.
#[derive(Debug)]
pub enum Fetched {
    /// An entry.
    Entry(Entry),
    /// Nothing usable.
    Nothing,
    /// A file that is not read.
    Unread(Unread),
}

/// Why a file is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// It takes long.
    Large,
    /// There is no memory for it.
    NoMemory,
}

/// The result of a sweep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweepResult {
    /// Pages that remain.
    pub kept: u64,
    /// Pages that were removed.
    pub removed: u64,
}

impl Disk {
    /// Opens a directory, and creates it if necessary. Files of another era are not used.
    ///
    /// # Errors
    /// When the directory cannot be created.
    pub fn open(limits: DiskLimits, era: u64, now: Millis) -> io::Result<Disk> {
        make_dir(&limits.dir.join(BEGUN))?;
        Ok(Disk {
            limits,
            era,
            index: Mutex::default(),
            opened: now,
            next: AtomicU64::new(0),
            paused_until: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }

    /// The entry under a key, if `admit` admits the bytes of its file. A damaged file is removed
    /// and counts as absent.
    pub fn read(
        &self,
        key: &Key,
        now: Millis,
        admit: impl FnOnce(u64) -> Result<(), Unread>,
    ) -> Fetched {
        let digest = digest(key);
        let path = self.path(&digest);
        let bytes = match read_file(&path, self.era, admit) {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(why)) => return Fetched::Unread(why),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.index().forget(&digest);
                return Fetched::Nothing;
            }
            Err(error) if own_files::is_foreign(&error) => return self.discard(&digest),
            Err(_) => return Fetched::Nothing,
        };
        let size = bytes.len() as u64;
        match Entry::read(&bytes, self.era) {
            Ok((found, entry)) if found == *key => {
                self.note(digest, Some(site_of(key)), size, now);
                Fetched::Entry(entry)
            }
            // A collision of the file name, which is infeasible.
            Ok(_) => Fetched::Nothing,
            Err(_) => self.discard(&digest),
        }
    }

    /// Removes a damaged file.
    fn discard(&self, digest: &Digest) -> Fetched {
        self.damaged.fetch_add(1, Ordering::Relaxed);
        self.remove_file(digest);
        Fetched::Nothing
    }

    /// Writes a file, and evicts others if space runs out.
    ///
    /// # Errors
    /// When it cannot be written; the old file is removed, too.
    pub fn write(&self, key: &Key, entry: &Entry, now: Millis) -> io::Result<()> {
        let digest = digest(key);
        if self.is_paused(now) {
            self.failed.fetch_add(1, Ordering::Relaxed);
            self.remove_file(&digest);
            return Err(io::ErrorKind::StorageFull.into());
        }
        let (head, body) = entry.write(key, self.era);
        let size = (head.len() + body.len()) as u64;
        if disk_bytes(size) > self.limits.max_size {
            self.remove_file(&digest);
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if let Err(error) = self.put_in_place(&digest, &[&head, &body]) {
            self.remove_file(&digest);
            self.failed.fetch_add(1, Ordering::Relaxed);
            // A directory in place of one page's file does not affect the others.
            if error.kind() != io::ErrorKind::IsADirectory {
                self.pause(now);
            }
            return Err(error);
        }
        self.note(digest, Some(site_of(key)), size, now);
        self.make_room(Some(&digest), now);
        Ok(())
    }

    /// Records a file with this many bytes of content.
    fn note(&self, digest: Digest, site: Option<u64>, size: u64, used: Millis) {
        self.index().note(digest, site, disk_bytes(size), used);
    }

    fn pause(&self, now: Millis) {
        self.paused_until.store(now.saturating_add(PAUSE_MILLIS), Ordering::Relaxed);
    }

    /// Whether a write or an eviction has failed recently. A clock that was set back must not
    /// extend the pause.
    fn is_paused(&self, now: Millis) -> bool {
        let until = self.paused_until.load(Ordering::Relaxed);
        now < until && until - now <= PAUSE_MILLIS
    }

    fn put_in_place(&self, digest: &Digest, pieces: &[&[u8]]) -> io::Result<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", std::process::id());
        let begun = self.limits.dir.join(BEGUN).join(name);
        let path = self.path(digest);
        let write = || {
            let mut file = create(&begun)?;
            for piece in pieces {
                file.write_all(piece)?;
            }
            match fs::rename(&begun, &path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    make_dir(path.parent().unwrap_or(&self.limits.dir))?;
                    fs::rename(&begun, &path)
                }
                other => other,
            }
        };
        let written = write();
        if written.is_err() {
            // If that fails, too, a sweep removes it.
            let _ = fs::remove_file(&begun);
        }
        written
    }

    /// Evicts unused files until the size limit is met. Where files cannot be removed, writing
    /// pauses: each further file would be beyond the limit.
    fn make_room(&self, but: Option<&Digest>, now: Millis) {
        let mut failures = 0;
        while failures < MAX_FAILED_REMOVALS {
            let victim = {
                let mut index = self.index();
                if index.bytes() <= self.limits.max_size {
                    return;
                }
                index.victim(but)
            };
            let Some(victim) = victim else { return };
            if self.try_remove(&victim).is_ok() {
                self.evicted.fetch_add(1, Ordering::Relaxed);
            } else {
                failures += 1;
                // It still takes space: others are tried first.
                self.index().touch(&victim, now);
            }
        }
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.pause(now);
    }

    /// Removes the file of a key.
    pub fn remove(&self, key: &Key) {
        self.remove_file(&digest(key));
    }

    /// A file that cannot be removed is still validated on reading and checked against purges.
    fn remove_file(&self, digest: &Digest) {
        let _ = self.try_remove(digest);
    }

    fn try_remove(&self, digest: &Digest) -> io::Result<()> {
        match fs::remove_file(self.path(digest)) {
            Err(error) if !is_gone(error.kind()) => Err(error),
            _ => {
                self.index().forget(digest);
                Ok(())
            }
        }
    }

    /// Marks the file of a page as used that was served from memory.
    pub fn touch(&self, key: &Key, now: Millis) {
        self.index().touch(&digest(key), now);
    }

    /// Visits all files: inactive and damaged ones are removed, and those that `keep` rejects.
    /// `keep` gets a file's content without the body; with `None` no file is read.
    ///
    /// # Errors
    /// The first one, after all other files are visited: a file can be neither read nor removed, or
    /// a directory cannot be read. Unwanted files may remain.
    pub fn sweep(&self, now: Millis, keep: Option<KeepFilter<'_>>) -> io::Result<SweepResult> {
        let mut sweep = Sweep { now, keep, result: SweepResult::default(), failed: None };
        let dir = &self.limits.dir;
        for folder in entries(dir).map_err(|error| about(dir, &error))? {
            match folder {
                Ok(folder) if is_page_folder(&folder) => {
                    let folder = folder.path();
                    if let Err(error) = self.sweep_folder(&folder, &mut sweep) {
                        sweep.fail(&folder, &error);
                    }
                }
                Ok(_) => {}
                Err(error) => sweep.fail(dir, &error),
            }
        }
        self.make_room(None, now);
        sweep.failed.map_or(Ok(sweep.result), Err)
    }

    fn sweep_folder(&self, folder: &Path, sweep: &mut Sweep<'_>) -> io::Result<()> {
        for file in entries(folder)? {
            let file = file?;
            let Some(digest) = file.file_name().to_str().and_then(digest_of_name) else {
                continue;
            };
            // Another thread may have removed it meanwhile.
            let Ok(meta) = file.metadata() else { continue };
            if meta.is_dir() {
                continue;
            }
            match self.is_kept(&digest, &file.path(), &meta, sweep) {
                Ok(true) => sweep.result.kept += 1,
                Ok(false) => match self.try_remove(&digest) {
                    Ok(()) => sweep.result.removed += 1,
                    Err(error) => sweep.fail(&file.path(), &error),
                },
                Err(error) => sweep.fail(&file.path(), &error),
            }
        }
        Ok(())
    }

    fn is_kept(
        &self,
        digest: &Digest,
        path: &Path,
        meta: &fs::Metadata,
        sweep: &mut Sweep<'_>,
    ) -> io::Result<bool> {
        let now = sweep.now;
        let written = written_at(meta);
        // The clock may have been set back since.
        let used = self.index().used(digest).unwrap_or(written).min(now);
        // The last use of a file from before the start is unknown: its time starts again.
        let idle = now.saturating_sub(used.max(self.opened));
        if idle > self.limits.inactive {
            return Ok(false);
        }
        let mut site = None;
        if let Some(keep) = &mut sweep.keep {
            match read_first(path, self.era) {
                Ok(Some((key, entry))) if keep(&key, &entry) => site = Some(site_of(&key)),
                Ok(_) => return Ok(false),
                // A page that this process may not read is no use to it.
                Err(error) if is_useless(error.kind()) || own_files::is_foreign(&error) => {
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        self.note(*digest, site, meta.len(), used);
        Ok(true)
    }

    /// Removes the temporary files of writers that have died.
    ///
    /// # Errors
    /// When their directory cannot be read.
    pub fn clear_begun(&self, now: Millis) -> io::Result<()> {
        let begun = self.limits.dir.join(BEGUN);
        for file in entries(&begun).map_err(|error| about(&begun, &error))? {
            let file = file?;
            let Ok(meta) = file.metadata() else { continue };
            if now.saturating_sub(written_at(&meta)) > ABANDONED_MILLIS {
                let _ = fs::remove_file(file.path());
            }
        }
        Ok(())
    }

    /// Bytes on the disk and number of the known files. Before the first sweep after a start, not
    /// all are known.
    pub fn size(&self) -> (u64, usize) {
        let index = self.index();
        (index.bytes(), index.len())
    }

    /// Damaged files.
    pub fn damaged(&self) -> u64 {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Failed writes and evictions.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Evicted files.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        let name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        self.limits.dir.join(&name[..2]).join(name)
    }
}

/// A sweep that goes on.
struct Sweep<'a> {
    now: Millis,
    keep: Option<KeepFilter<'a>>,
    result: SweepResult,
    /// The first error.
    failed: Option<io::Error>,
}

impl Sweep<'_> {
    fn fail(&mut self, path: &Path, error: &io::Error) {
        self.failed.get_or_insert_with(|| about(path, error));
    }
}

/// An error that names its path.
fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Whether there is no file to remove: nothing has its name, or a directory that is not ours.
fn is_gone(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
    matches!(kind, NotFound | IsADirectory | NotADirectory)
}

fn is_useless(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

/// Whether a directory is one of pages. Others are not ours, such as `lost+found` of a file system.
/// Links are not followed: their targets are not ours either.
fn is_page_folder(folder: &fs::DirEntry) -> bool {
    let name = folder.file_name();
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let has_name = name.len() == 2 && name.as_encoded_bytes().iter().all(is_digit);
    has_name && folder.file_type().is_ok_and(|kind| kind.is_dir())
}

/// Bytes that a file with this many bytes of content takes on the disk.
fn disk_bytes(size: u64) -> u64 {
    size.next_multiple_of(BLOCK_BYTES)
}

/// When a file was last written, in milliseconds since 1970.
fn written_at(meta: &fs::Metadata) -> Millis {
    let seconds = u64::try_from(meta.mtime()).unwrap_or(0);
    seconds.saturating_mul(1000)
}

/// The site of a key, for the index.
fn site_of(key: &Key) -> u64 {
    fingerprint(key.site().iter().copied())
}

/// The file name of a key: stable across restarts and versions.
pub fn digest(key: &Key) -> Digest {
    let mut digest = Digest::default();
    let sum = Sha256::digest(key.as_bytes());
    digest.copy_from_slice(&sum[..16]);
    digest
}

fn digest_of_name(name: &str) -> Option<Digest> {
    let mut digest = Digest::default();
    if name.len() != 2 * digest.len() {
        return None;
    }
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(name.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(digest)
}

/// Creates a directory with mode 0700.
///
/// # Errors
/// When it cannot be created.
pub fn make_dir(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(dir)
}

/// The entries of a directory; none if it does not exist.
fn entries(dir: &Path) -> io::Result<impl Iterator<Item = io::Result<fs::DirEntry>>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => Some(entries),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    Ok(entries.into_iter().flatten())
}

/// Creates a new file ([`own_files::create`]), and its directory if that has been removed.
///
/// # Errors
/// When it cannot be created.
pub fn create(path: &Path) -> io::Result<File> {
    match own_files::create(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_dir(path.parent().unwrap_or(path))?;
            own_files::create(path)
        }
        other => other,
    }
}

/// The content of a file, if its length matches its header and `admit` admits it. Foreign files
/// may have any length.
fn read_file(
    path: &Path,
    era: u64,
    admit: impl FnOnce(u64) -> Result<(), Unread>,
) -> io::Result<Result<Bytes, Unread>> {
    let mut file = own_files::open(path)?;
    let size = file.metadata()?.len();
    let mut first = [0; FIRST_BYTES];
    file.read_exact(&mut first).map_err(|_| io::ErrorKind::InvalidData)?;
    if size > MAX_FILE_BYTES || file_bytes(&first, era) != Ok(size) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    if let Err(why) = admit(size) {
        return Ok(Err(why));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    bytes.extend_from_slice(&first);
    file.take(size - first.len() as u64).read_to_end(&mut bytes)?;
    Ok(Ok(bytes.into()))
}

/// The content of a file without the body; `None` if it is damaged or of another era.
fn read_first(path: &Path, era: u64) -> io::Result<Option<(Key, Entry)>> {
    let mut file = own_files::open(path)?;
    let mut bytes = vec![0; FIRST_BYTES];
    let read = file.read_exact(&mut bytes);
    let Some(length) = read.ok().and_then(|()| head_bytes(&bytes).ok()) else {
        return Ok(None);
    };
    bytes.resize(length, 0);
    if file.read_exact(&mut bytes[FIRST_BYTES..]).is_err() {
        return Ok(None);
    }
    Ok(Entry::read_first(&bytes.into(), era).ok())
}

#[cfg(test)]
#[path = "disk_tests.rs"]
pub(crate) mod tests;
