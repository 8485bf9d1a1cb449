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
use sha2::{Digest as _, Sha256};

use crate::index::{Digest, Index};
use crate::object::{Entry, FIRST_BYTES, head_bytes};

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
        })
    }

    /// What is under a key. A file that is damaged is as if it were not there, and is taken away.
    pub fn read(&self, key: &Key, now: Millis) -> Option<Entry> {
        let digest = digest(key);
        let path = self.path(&digest);
        let bytes = match read_file(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.index().forget(&digest);
                return None;
            }
            Err(_) => return None,
        };
        let size = bytes.len() as u64;
        match Entry::read(&bytes, self.era) {
            Ok((found, entry)) if found == *key => {
                self.index().note(digest, size, now);
                Some(entry)
            }
            // Another key with the same name, which nobody can bring about.
            Ok(_) => None,
            Err(_) => {
                self.damaged.fetch_add(1, Ordering::Relaxed);
                self.remove_file(&digest);
                None
            }
        }
    }

    /// Writes a file, and takes others away if there is no room.
    ///
    /// # Errors
    /// When it cannot be written; then what was there before is not there any more.
    pub fn write(&self, key: &Key, entry: &Entry, now: Millis) -> io::Result<()> {
        let digest = digest(key);
        if now < self.paused_until.load(Ordering::Relaxed) {
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
            let until = now.saturating_add(PAUSE_MILLIS);
            self.paused_until.store(until, Ordering::Relaxed);
            return Err(error);
        }
        self.index().note(digest, size, now);
        self.make_room(&digest);
        Ok(())
    }

    fn put_in_place(&self, digest: &Digest, pieces: &[&[u8]]) -> io::Result<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", std::process::id());
        let begun = self.limits.dir.join(BEGUN).join(name);
        let path = self.path(digest);
        let write = || {
            let mut file = File::create(&begun)?;
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
        for folder in fs::read_dir(&self.limits.dir)? {
            let folder = folder?.path();
            if folder.ends_with(BEGUN) || !folder.is_dir() {
                continue;
            }
            for file in fs::read_dir(folder)? {
                let file = file?;
                let Some(digest) = file.file_name().to_str().and_then(digest_of_name) else {
                    continue;
                };
                // Another may have taken it away just now.
                let Ok(meta) = file.metadata() else { continue };
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
        let used = self.index().used(digest).unwrap_or(written);
        // Of one from before the start nobody knows when it was used: it gets its time once more.
        let idle = now.saturating_sub(used.max(self.opened));
        if idle > self.limits.inactive {
            return Ok(false);
        }
        if let Some(keep) = keep {
            match read_first(path, self.era) {
                Ok(Some((key, entry))) if keep(&key, &entry) => {}
                Ok(_) => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.index().note(*digest, meta.len(), used);
        Ok(true)
    }

    fn clear_begun(&self, now: Millis) -> io::Result<()> {
        for file in fs::read_dir(self.limits.dir.join(BEGUN))? {
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

fn read_file(path: &Path) -> io::Result<Bytes> {
    let file = File::open(path)?;
    let size = file.metadata()?.len().min(MAX_FILE_BYTES);
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

/// What is in a file, without the body; nothing if it is damaged or of another era.
fn read_first(path: &Path, era: u64) -> io::Result<Option<(Key, Entry)>> {
    let mut file = File::open(path)?;
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
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::object::tests::{key, page};

    fn open(dir: &Path, max_size: u64) -> Disk {
        let limits = DiskLimits {
            dir: dir.join("pages"),
            max_size,
            inactive: 600_000,
        };
        Disk::open(limits, 7, now()).unwrap()
    }

    fn now() -> Millis {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        u64::try_from(since.unwrap().as_millis()).unwrap()
    }

    fn put(disk: &Disk, name: &str, body: &[u8]) {
        let entry = Entry::Page(Arc::new(page(name, &[name], 0, body)));
        disk.write(&key(name), &entry, now()).unwrap();
    }

    fn body(disk: &Disk, name: &str) -> Option<Bytes> {
        match disk.read(&key(name), now())? {
            Entry::Page(page) => Some(page.body.clone()),
            Entry::Varies(_) => None,
        }
    }

    #[test]
    fn who_is_started_anew_finds_what_was_kept_without_looking_for_it_first() {
        let dir = tempfile::tempdir().unwrap();
        put(&open(dir.path(), 1 << 20), "a", b"body");
        let again = open(dir.path(), 1 << 20);
        assert_eq!(again.size(), (0, 0));
        assert_eq!(body(&again, "a").unwrap(), "body");
        assert_eq!(again.size().1, 1);
        assert_eq!(body(&again, "b"), None);
    }

    #[test]
    fn a_damaged_file_is_as_if_it_were_not_there_and_goes() {
        let dir = tempfile::tempdir().unwrap();
        let disk = open(dir.path(), 1 << 20);
        put(&disk, "a", b"body");
        let path = disk.path(&digest(&key("a")));
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
        assert_eq!(body(&disk, "a"), None);
        assert!(!path.exists());
        assert_eq!((disk.damaged(), disk.size()), (1, (0, 0)));
    }

    #[test]
    fn a_file_of_another_key_is_none_of_ours() {
        let dir = tempfile::tempdir().unwrap();
        let disk = open(dir.path(), 1 << 20);
        put(&disk, "a", b"body");
        put(&disk, "b", b"other");
        fs::copy(disk.path(&digest(&key("b"))), disk.path(&digest(&key("a")))).unwrap();
        assert_eq!(body(&disk, "a"), None);
    }

    #[test]
    fn there_is_never_more_than_there_may_be() {
        let dir = tempfile::tempdir().unwrap();
        let disk = open(dir.path(), 100_000);
        for number in 0..100 {
            put(&disk, &number.to_string(), &[0; 5000]);
            assert!(disk.size().0 <= 100_000);
        }
        assert!(disk.evicted() > 70 && body(&disk, "99").is_some());
        let entry = Entry::Page(Arc::new(page("x", &[], 0, &[0; 200_000])));
        assert!(disk.write(&key("99"), &entry, now()).is_err());
        // What was there is out of date.
        assert_eq!(body(&disk, "99"), None);
    }

    #[test]
    fn a_sweep_takes_away_what_is_not_wanted_not_used_damaged_or_never_finished() {
        let dir = tempfile::tempdir().unwrap();
        let disk = open(dir.path(), 1 << 20);
        for name in ["a", "b", "c"] {
            put(&disk, name, b"body");
        }
        let path = disk.path(&digest(&key("c")));
        fs::write(&path, b"short").unwrap();
        let begun = disk.limits.dir.join(BEGUN).join("1-1");
        fs::write(&begun, b"x").unwrap();
        let again = open(dir.path(), 1 << 20);
        let mut keep = |found: &Key, _: &Entry| *found != key("a");
        let swept = again.sweep(now(), Some(&mut keep)).unwrap();
        assert_eq!(
            swept,
            Swept {
                kept: 1,
                removed: 2
            }
        );
        assert_eq!(again.size().1, 1);
        assert!(begun.exists());
        let later = now() + 2 * ABANDONED_MILLIS;
        assert_eq!(
            again.sweep(later, None).unwrap(),
            Swept {
                kept: 0,
                removed: 1
            }
        );
        assert!(!begun.exists());
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_let_alone_for_a_while() {
        let dir = tempfile::tempdir().unwrap();
        let disk = open(dir.path(), 1 << 20);
        put(&disk, "a", b"old");
        // A file where the folder should be: this fails for root, too.
        let begun = disk.limits.dir.join(BEGUN);
        fs::remove_dir(&begun).unwrap();
        fs::write(&begun, b"").unwrap();
        let entry = Entry::Page(Arc::new(page("a", &[], 0, b"new")));
        let start = now();
        assert!(disk.write(&key("a"), &entry, start).is_err());
        assert_eq!(body(&disk, "a"), None);
        fs::remove_file(&begun).unwrap();
        fs::create_dir(&begun).unwrap();
        assert!(disk.write(&key("a"), &entry, start + 1).is_err());
        assert!(disk.write(&key("a"), &entry, start + PAUSE_MILLIS).is_ok());
        assert_eq!(body(&disk, "a").unwrap(), "new");
    }
}
