//! The disk tier: one file for each page, named after its key, written beside and renamed. A page is
//! found by its name, so nothing has to be read before the first can be. All of this blocks.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use maitred_pagecache::Millis;
use maitred_pagecache::key::Key;
use rustix::fs::{Mode, OFlags};
use sha2::{Digest as _, Sha256};

use crate::index::{Digest, Index};
use crate::object::{Entry, FIRST_BYTES, file_bytes, head_bytes};

/// Largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// After how long a file that was begun and never finished is taken away, in milliseconds: whoever
/// wrote it is no more.
const ABANDONED_MILLIS: Millis = 3_600_000;
/// For how long nothing is written after a write has failed, in milliseconds.
const PAUSE_MILLIS: Millis = 10_000;
/// The folder of files that are being written.
const BEGUN: &str = "begun";

/// How much the disk tier may hold.
#[derive(Debug, Clone)]
pub struct DiskLimits {
    /// Its folder, which is nobody else's.
    pub dir: PathBuf,
    /// Bytes of all files (nginx's `max_size`).
    pub max_size: u64,
    /// After how long a page goes that nobody asked for, in milliseconds.
    pub inactive: Millis,
}

/// Whether a file is wanted, by its key and what is in it without the body.
pub type Wanted<'a> = &'a mut dyn FnMut(&Key, &Entry) -> bool;

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

/// What was found under a key.
#[derive(Debug)]
pub enum Fetched {
    /// It.
    Entry(Entry),
    /// Nothing that can be used.
    Nothing,
    /// A file that is larger than was asked for.
    Large,
}

/// What a sweep found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Pages that are there.
    pub kept: u64,
    /// Pages that were taken away.
    pub removed: u64,
}

impl Disk {
    /// Opens a folder, and makes it if it is not there. Files of another era are nobody's.
    ///
    /// # Errors
    /// When that cannot be.
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

    /// What is under a key, if its file has no more than `most` bytes. A file that is damaged is as if
    /// it were not there, and is taken away.
    pub fn read(&self, key: &Key, now: Millis, most: u64) -> Fetched {
        let digest = digest(key);
        let path = self.path(&digest);
        let bytes = match read_file(&path, self.era, most) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Fetched::Large,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.index().forget(&digest);
                return Fetched::Nothing;
            }
            Err(error) if is_no_file(&error) => {
                self.damaged.fetch_add(1, Ordering::Relaxed);
                self.remove_file(&digest);
                return Fetched::Nothing;
            }
            Err(_) => return Fetched::Nothing,
        };
        let size = bytes.len() as u64;
        match Entry::read(&bytes, self.era) {
            Ok((found, entry)) if found == *key => {
                self.index().note(digest, size, now);
                Fetched::Entry(entry)
            }
            // Another key with the same name, which nobody can bring about.
            Ok(_) => Fetched::Nothing,
            Err(_) => {
                self.damaged.fetch_add(1, Ordering::Relaxed);
                self.remove_file(&digest);
                Fetched::Nothing
            }
        }
    }

    /// Writes a file, and takes others away if there is no room.
    ///
    /// # Errors
    /// When it cannot be written; then what was there before is not there any more.
    pub fn write(&self, key: &Key, entry: &Entry, now: Millis) -> io::Result<()> {
        let digest = digest(key);
        if self.is_paused(now) {
            self.failed.fetch_add(1, Ordering::Relaxed);
            self.remove_file(&digest);
            return Err(io::ErrorKind::StorageFull.into());
        }
        let (head, body) = entry.write(key, self.era);
        let size = (head.len() + body.len()) as u64;
        if size > self.limits.max_size {
            self.remove_file(&digest);
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if let Err(error) = self.put_in_place(&digest, &[&head, &body]) {
            self.remove_file(&digest);
            self.failed.fetch_add(1, Ordering::Relaxed);
            // Somebody's folder in the place of one page says nothing of the others.
            if error.kind() != io::ErrorKind::IsADirectory {
                let until = now.saturating_add(PAUSE_MILLIS);
                self.paused_until.store(until, Ordering::Relaxed);
            }
            return Err(error);
        }
        self.index().note(digest, size, now);
        self.make_room(&digest);
        Ok(())
    }

    /// Whether a write has failed just now. A clock that was set back must not make it last longer.
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
            let mut file = match create(&begun) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    // Somebody has emptied the folder.
                    make_dir(begun.parent().unwrap_or(&self.limits.dir))?;
                    create(&begun)?
                }
                other => other?,
            };
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
            // If that fails, too, a sweep will find it.
            let _ = fs::remove_file(&begun);
        }
        written
    }

    /// Takes away what is not used, until there is room.
    fn make_room(&self, but: &Digest) {
        loop {
            let victim = {
                let mut index = self.index();
                if index.bytes() <= self.limits.max_size {
                    return;
                }
                index.victim()
            };
            match victim {
                Some(victim) if victim == *but && self.index().len() == 1 => return,
                Some(victim) if victim == *but => {}
                Some(victim) => {
                    self.evicted.fetch_add(1, Ordering::Relaxed);
                    self.remove_file(&victim);
                }
                None => return,
            }
        }
    }

    /// Takes away what is under a key.
    pub fn remove(&self, key: &Key) {
        self.remove_file(&digest(key));
    }

    /// One that cannot be removed is still checked when it is read, and held against what was purged.
    fn remove_file(&self, digest: &Digest) {
        let _ = self.try_remove(digest);
    }

    fn try_remove(&self, digest: &Digest) -> io::Result<()> {
        match fs::remove_file(self.path(digest)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => {
                self.index().forget(digest);
                Ok(())
            }
        }
    }

    /// A page was answered with from memory, so its file is used, too.
    pub fn use_now(&self, key: &Key, now: Millis) {
        self.index().use_now(&digest(key), now);
    }

    /// Looks at all files: those go that nobody asked for in a long time, that are damaged, or that
    /// `keep` does not want. It gets what is in a file without the body; `None` if nobody wants to
    /// know.
    ///
    /// # Errors
    /// When a file can be neither read nor taken away, or the folder cannot be read: something may be
    /// left that is not wanted.
    pub fn sweep(&self, now: Millis, mut keep: Option<Wanted<'_>>) -> io::Result<Swept> {
        let mut swept = Swept::default();
        self.clear_begun(now)?;
        for folder in entries(&self.limits.dir)? {
            let folder = folder?;
            // No link is followed: what it leads to is somebody else's.
            let is_folder = folder.file_type().is_ok_and(|kind| kind.is_dir());
            if folder.file_name() == BEGUN || !is_folder {
                continue;
            }
            for file in entries(&folder.path())? {
                let file = file?;
                let Some(digest) = file.file_name().to_str().and_then(digest_of_name) else {
                    continue;
                };
                // Another may have taken it away just now.
                let Ok(meta) = file.metadata() else { continue };
                if meta.is_dir() {
                    continue;
                }
                match self.is_kept(&digest, &file.path(), &meta, now, &mut keep)? {
                    true => swept.kept += 1,
                    false => {
                        self.try_remove(&digest)?;
                        swept.removed += 1;
                    }
                }
            }
        }
        self.make_room(&[0; 16]);
        Ok(swept)
    }

    fn is_kept(
        &self,
        digest: &Digest,
        path: &Path,
        meta: &fs::Metadata,
        now: Millis,
        keep: &mut Option<Wanted<'_>>,
    ) -> io::Result<bool> {
        let written = u64::try_from(meta.mtime())
            .unwrap_or(0)
            .saturating_mul(1000);
        // The clock may have been set back since.
        let used = self.index().used(digest).unwrap_or(written).min(now);
        // Of one from before the start nobody knows when it was used: it gets its time once more.
        let idle = now.saturating_sub(used.max(self.opened));
        if idle > self.limits.inactive {
            return Ok(false);
        }
        if let Some(keep) = keep {
            match read_first(path, self.era) {
                Ok(Some((key, entry))) if keep(&key, &entry) => {}
                Ok(_) => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::NotFound || is_no_file(&error) => {
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        self.index().note(*digest, meta.len(), used);
        Ok(true)
    }

    fn clear_begun(&self, now: Millis) -> io::Result<()> {
        for file in entries(&self.limits.dir.join(BEGUN))? {
            let file = file?;
            let Ok(meta) = file.metadata() else { continue };
            let begun = u64::try_from(meta.mtime())
                .unwrap_or(0)
                .saturating_mul(1000);
            if now.saturating_sub(begun) > ABANDONED_MILLIS {
                let _ = fs::remove_file(file.path());
            }
        }
        Ok(())
    }

    /// Bytes of all files that are known, and how many they are. Before the first sweep after a start
    /// that is not all.
    pub fn size(&self) -> (u64, usize) {
        let index = self.index();
        (index.bytes(), index.len())
    }

    /// Files that were damaged.
    pub fn damaged(&self) -> u64 {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Pages that could not be written.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Files that had to make room for others.
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

/// The name of a key's file: the same for each start of each version.
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

/// Makes a folder that only its owner can look into.
///
/// # Errors
/// When it cannot be made.
pub fn make_dir(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
}

/// What is in a folder; nothing if somebody has taken it away.
fn entries(dir: &Path) -> io::Result<impl Iterator<Item = io::Result<fs::DirEntry>>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => Some(entries),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    Ok(entries.into_iter().flatten())
}

/// Makes a file that was not there, for nobody else to read. What is there can only be left from
/// somebody who had our process id.
///
/// # Errors
/// When it cannot be made.
pub fn create(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let open = || rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR);
    let opened = match open() {
        Err(rustix::io::Errno::EXIST) => {
            fs::remove_file(path)?;
            open()?
        }
        other => other?,
    };
    Ok(opened.into())
}

/// Opens a page's file. Whatever else is in its place is not waited for, and no link is followed.
///
/// # Errors
/// When there is none; [`is_no_file`] if there is something else.
pub fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Whether there is something else in a file's place: a link, a pipe, a socket, what is no page.
pub fn is_no_file(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let of_others = [Errno::LOOP, Errno::NXIO].map(|errno| Some(errno.raw_os_error()));
    error.kind() == io::ErrorKind::InvalidData || of_others.contains(&error.raw_os_error())
}

/// What is in a file, if it is as long as its beginning says; nothing if that is more than `most`. What
/// is not ours may be of any length.
fn read_file(path: &Path, era: u64, most: u64) -> io::Result<Option<Bytes>> {
    let mut file = open_file(path)?;
    let size = file.metadata()?.len();
    let mut first = [0; FIRST_BYTES];
    file.read_exact(&mut first)
        .map_err(|_| io::ErrorKind::InvalidData)?;
    if size > MAX_FILE_BYTES || file_bytes(&first, era) != Ok(size) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    if size > most {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    bytes.extend_from_slice(&first);
    file.take(size - first.len() as u64)
        .read_to_end(&mut bytes)?;
    Ok(Some(bytes.into()))
}

/// What is in a file, without the body; nothing if it is damaged or of another era.
fn read_first(path: &Path, era: u64) -> io::Result<Option<(Key, Entry)>> {
    let mut file = open_file(path)?;
    let mut bytes = vec![0; FIRST_BYTES];
    let read = file.read_exact(&mut bytes);
    let Ok(length) = read
        .map_err(|_| ())
        .and_then(|()| head_bytes(&bytes).map_err(|_| ()))
    else {
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
mod tests;
