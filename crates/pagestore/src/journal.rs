//! The purge journal: each purge is appended to a file before it counts as done, so it survives a
//! crash of the front.
//!
//! It is not fsynced each time: losses are only possible when the whole machine crashes, which does
//! not justify a disk flush in every purge. Instead the file records the boot ID under which it was
//! written, and whether it was closed cleanly. After another boot without a clean close, or if the
//! journal is missing or damaged, the cached files cannot be trusted: a new era begins, and files
//! of another era are not used. So that no cleanly closed journal reappears after a crash of the
//! machine, its successor is synced once.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use maitred_os::own_files;
use maitred_pagecache::codec::{Reader, write_part};
use maitred_pagecache::purge::{Purge, PurgeMode};

use crate::disk::create;
use crate::purges::Purges;

/// File name.
const NAME: &str = "purges";
/// The first bytes of the file.
const MAGIC: &[u8; 8] = b"mtrdprg\x01";
/// Longest record in bytes: the longest URL, its host and its site.
const MAX_ENTRY_BYTES: usize = 64 * 1024;
/// Bytes of a file that is not read: it is not our journal, or lacks what is behind them.
const MAX_FILE_BYTES: u64 = if cfg!(test) { 256 << 10 } else { 1 << 30 };
/// A smaller journal is not compacted because of its size, in bytes.
const COMPACTED_FROM_BYTES: u64 = if cfg!(test) { 64 << 10 } else { 16 << 20 };

/// Bytes before a record's kind.
const PREFIX_BYTES: usize = 12;

const BOOT: u8 = b'B';
const CLOSED: u8 = b'C';
const ERA: u8 = b'E';
const NUMBERS: u8 = b'N';
const PURGE: u8 = b'P';

/// The journal of a directory.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    boot: String,
    /// Names the time since which every purge is known; files have it, too.
    pub era: u64,
    /// A purge is missing in it: it must be rewritten or removed.
    pub lacks_some: bool,
    /// Bytes of the file.
    bytes: u64,
    /// Bytes from which on it is compacted.
    compacted_from: u64,
}

/// The state of the journal when it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalState {
    /// Empty: there is no earlier content.
    New,
    /// Valid: the content can be used.
    Continued,
    /// After a crash of the machine, damaged, or rewritten since the start of this process, which
    /// could not read it then: the content is discarded.
    Distrusted,
    /// Another process is writing it: its directory is not used until that process releases it.
    InUse,
}

/// The number of the last purge in a directory that another process owns; 0 if unknown.
///
/// # Errors
/// When the journal exists and cannot be read.
pub fn last_number(dir: &Path) -> io::Result<u64> {
    let purges = Purges::default();
    let bytes = read_bytes(&dir.join(NAME))?;
    // A damaged journal is not continued.
    let _ = Former::read(&bytes, "", &purges);
    Ok(purges.last())
}

/// Removes the journal of a directory that is not used, so that no file in it is trusted later:
/// purges of the meantime are recorded nowhere.
///
/// # Errors
/// When it cannot be removed.
pub fn discard(dir: &Path) -> io::Result<()> {
    remove(&dir.join(NAME))
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match own_files::open(path) {
        Ok(file) => {
            file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
            if bytes.len() as u64 >= MAX_FILE_BYTES {
                bytes = vec![0];
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        // A link, a FIFO or another user's file: an invalid journal.
        Err(error) if own_files::is_foreign(&error) => bytes.push(0),
        Err(error) => return Err(error),
    }
    Ok(bytes)
}

impl Journal {
    /// Opens the journal of a directory and loads it into `purges`. `boot` is the machine's boot
    /// ID. One with a number above `highest` is not trusted: the purges of this process have lower
    /// ones than some of the files that they concern.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn open(
        dir: &Path,
        boot: &str,
        purges: &Purges,
        highest: u64,
    ) -> io::Result<(Journal, JournalState)> {
        let path = dir.join(NAME);
        let bytes = read_bytes(&path)?;
        let former = Former::read(&bytes, boot, purges);
        let must_last = former.as_ref().is_some_and(|former| former.is_closed);
        let former = former.filter(|former| former.last <= highest);
        let opened = match former {
            Some(_) => JournalState::Continued,
            None if bytes.is_empty() => JournalState::New,
            None => JournalState::Distrusted,
        };
        let new_era = || RandomState::new().hash_one(boot);
        let era = former.as_ref().map_or_else(new_era, |former| former.era);
        let file = rewrite(&path, boot, era, purges)?;
        if must_last {
            sync(&file)?;
            sync(&File::open(dir)?)?;
        }
        let boot = boot.to_owned();
        let (bytes, compacted_from) = (0, 0);
        let mut journal =
            Journal { file, path, boot, era, lacks_some: false, bytes, compacted_from };
        journal.is_compacted();
        Ok((journal, opened))
    }

    /// Appends records.
    ///
    /// # Errors
    /// When they cannot be written; then they may be lost after a restart. `FileTooLarge` if the
    /// journal could not be read with them.
    pub fn append(&mut self, records: &[u8]) -> io::Result<()> {
        let bytes = self.bytes + records.len() as u64;
        if bytes >= MAX_FILE_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes = bytes;
        #[cfg(test)]
        tests::while_written();
        self.file.write_all(records)
    }

    /// Whether it has doubled since it was compacted, and is worth it.
    pub fn is_grown(&self) -> bool {
        self.bytes >= self.compacted_from
    }

    /// Has it compacted when it has doubled from its present size, and no earlier.
    pub fn compact_later(&mut self) {
        let doubled = COMPACTED_FROM_BYTES.max(2 * self.bytes);
        self.compacted_from = doubled.min(MAX_FILE_BYTES / 8 * 7);
    }

    fn is_compacted(&mut self) {
        self.bytes = self.file.metadata().map_or(0, |meta| meta.len());
        self.compact_later();
    }

    /// Makes later writes fail: the file is reopened read-only.
    #[cfg(test)]
    pub(crate) fn break_for_test(&mut self) {
        self.file = File::open(&self.path).unwrap();
    }

    /// Removes the journal because it is incomplete: without a journal, no file is trusted.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn discard(&mut self) -> io::Result<()> {
        self.lacks_some = true;
        remove(&self.path)
    }

    /// Rewrites the journal without the purges that `purges` has forgotten.
    ///
    /// # Errors
    /// When it cannot be written; the old one then remains.
    pub fn compact(&mut self, purges: &Purges) -> io::Result<()> {
        self.file = rewrite(&self.path, &self.boot, self.era, purges)?;
        self.lacks_some = false;
        self.is_compacted();
        Ok(())
    }

    /// Records a clean close; nothing is stored afterwards.
    ///
    /// # Errors
    /// When it cannot be written or synced.
    pub fn close(&mut self, purges: &Purges) -> io::Result<()> {
        if self.lacks_some {
            self.compact(purges)?;
        }
        self.file.write_all(&entry(CLOSED, &[]))?;
        sync(&self.file)
    }
}

/// Waits until a file or directory is on the disk.
fn sync(file: &File) -> io::Result<()> {
    #[cfg(test)]
    tests::SYNCED.with_borrow_mut(|synced| synced.push(file.metadata().unwrap().is_dir()));
    file.sync_all()
}

fn rewrite(path: &Path, boot: &str, era: u64, purges: &Purges) -> io::Result<File> {
    let beside = path.with_extension("new");
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&entry(BOOT, boot.as_bytes()));
    bytes.extend_from_slice(&entry(ERA, &era.to_le_bytes()));
    let numbers = [purges.forgotten().to_le_bytes(), purges.last().to_le_bytes()].concat();
    bytes.extend_from_slice(&entry(NUMBERS, &numbers));
    purges.each(|site, purge, how, number| {
        bytes.extend_from_slice(&record(site, purge, how, number));
    });
    let mut file = create(&beside)?;
    file.write_all(&bytes)?;
    // Later writes go to this file, whatever file has its name then. Once it has, nothing fails.
    rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::APPEND)?;
    std::fs::rename(&beside, path)?;
    Ok(file)
}

/// A journal that can be trusted.
struct Former {
    era: u64,
    /// It was closed cleanly: it would be trusted after another boot, too.
    is_closed: bool,
    /// The number of its last purge.
    last: u64,
}

impl Former {
    /// Reads all records; `None` if the journal cannot be trusted.
    fn read(bytes: &[u8], boot: &str, purges: &Purges) -> Option<Former> {
        let mut rest = bytes.strip_prefix(MAGIC)?;
        let (mut is_same_boot, mut is_closed, mut era, mut last) = (false, false, None, 0);
        while !rest.is_empty() {
            let (kind, content) = match take_entry(&mut rest) {
                Record::Entry(kind, content) => (kind, content),
                // The writer was killed before the purge was acknowledged.
                Record::CutShort => break,
                Record::Damaged => return None,
            };
            is_closed = kind == CLOSED;
            match kind {
                BOOT => is_same_boot = content == boot.as_bytes(),
                CLOSED => {}
                ERA => era = Some(u64::from_le_bytes(content.try_into().ok()?)),
                NUMBERS => {
                    let (forgotten, number) = content.split_first_chunk::<8>()?;
                    purges.restore_forgotten(u64::from_le_bytes(*forgotten));
                    last = last.max(u64::from_le_bytes(number.try_into().ok()?));
                    purges.restore_last(last);
                }
                PURGE => {
                    let (site, purge, how, number) = read_purge(content)?;
                    purges.restore(&site, &purge, how, number);
                    last = last.max(number);
                }
                _ => return None,
            }
        }
        let era = era.filter(|_| is_same_boot || is_closed)?;
        Some(Former { era, is_closed, last })
    }
}

/// Length, checksum of the length, checksum of the rest; then kind and content.
fn entry(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len() + 1).unwrap_or(u32::MAX).to_le_bytes();
    let mut bytes = length.to_vec();
    bytes.extend_from_slice(&crc32fast::hash(&length).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.push(kind);
    bytes.extend_from_slice(content);
    let sum = crc32fast::hash(&bytes[PREFIX_BYTES..]).to_le_bytes();
    bytes[8..PREFIX_BYTES].copy_from_slice(&sum);
    bytes
}

enum Record<'a> {
    Entry(u8, &'a [u8]),
    CutShort,
    Damaged,
}

fn take_entry<'a>(rest: &mut &'a [u8]) -> Record<'a> {
    let Some((prefix, after)) = rest.split_first_chunk::<PREFIX_BYTES>() else {
        return Record::CutShort;
    };
    let word = |at: usize| prefix.get(at..at + 4).and_then(|word| word.try_into().ok());
    let word = |at: usize| word(at).map_or(0, u32::from_le_bytes);
    let length = usize::try_from(word(0)).unwrap_or(usize::MAX);
    if crc32fast::hash(&prefix[..4]) != word(4) || length > MAX_ENTRY_BYTES {
        return Record::Damaged;
    }
    let Some((body, after)) = after.split_at_checked(length) else {
        return Record::CutShort;
    };
    match body.split_first() {
        Some((kind, content)) if crc32fast::hash(body) == word(8) => {
            *rest = after;
            Record::Entry(*kind, content)
        }
        _ => Record::Damaged,
    }
}

/// The record of a purge that fits into one ([`fits`]).
pub fn record(site: &str, purge: &Purge, how: PurgeMode, number: u64) -> Vec<u8> {
    entry(PURGE, &purge_bytes(site, purge, how, number))
}

/// Whether a purge fits into a record: a longer one would be taken for damage.
pub fn fits(site: &str, purge: &Purge) -> bool {
    purge_bytes(site, purge, PurgeMode::Hard, 0).len() < MAX_ENTRY_BYTES
}

fn purge_bytes(site: &str, purge: &Purge, how: PurgeMode, number: u64) -> Vec<u8> {
    let (kind, host, text) = match purge {
        Purge::All => (b'a', "", ""),
        Purge::Host(host) => (b'h', host.as_str(), ""),
        Purge::Url { host, target } => (b'u', host.as_str(), target.as_str()),
        Purge::Prefix { host: None, path } => (b'p', "", path.as_str()),
        Purge::Prefix { host: Some(host), path } => (b'q', host.as_str(), path.as_str()),
        Purge::Tag(tag) => (b't', "", tag.as_str()),
    };
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.push(kind);
    bytes.push(u8::from(how == PurgeMode::Soft));
    for part in [site, host, text] {
        write_part(&mut bytes, part.as_bytes());
    }
    bytes
}

fn read_purge(content: &[u8]) -> Option<(String, Purge, PurgeMode, u64)> {
    let mut reader = Reader::new(&Bytes::copy_from_slice(content));
    let number = reader.long().ok()?;
    let [kind, soft] = reader.array().ok()?;
    let mut part = || reader.text().ok();
    let (site, host, text) = (part()?, part()?, part()?);
    let purge = match kind {
        b'a' => Purge::All,
        b'h' => Purge::Host(host),
        b'u' => Purge::Url { host, target: text },
        b'p' => Purge::Prefix { host: None, path: text },
        b'q' => Purge::Prefix { host: Some(host), path: text },
        b't' => Purge::Tag(text),
        _ => return None,
    };
    let how = if soft == 0 { PurgeMode::Hard } else { PurgeMode::Soft };
    Some((site, purge, how, number))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::object::tests::page;
    use crate::purges::PurgeState;

    thread_local! {
        /// What this thread has synced: whether each is a directory.
        pub(super) static SYNCED: std::cell::RefCell<Vec<bool>> = const {
            std::cell::RefCell::new(Vec::new())
        };
        /// What happens while this thread writes records.
        static WHILE_WRITTEN: std::cell::RefCell<Option<Box<dyn FnMut()>>> = const {
            std::cell::RefCell::new(None)
        };
    }

    /// Has something happen while this thread writes records.
    pub(crate) fn set_while_written(happens: impl FnMut() + 'static) {
        WHILE_WRITTEN.set(Some(Box::new(happens)));
    }

    pub(super) fn while_written() {
        WHILE_WRITTEN.with_borrow_mut(|happens| happens.as_mut().map(|happens| happens()));
    }

    fn open(dir: &Path, boot: &str) -> (Purges, Journal, JournalState) {
        let purges = Purges::default();
        let (journal, opened) = Journal::open(dir, boot, &purges, u64::MAX).unwrap();
        (purges, journal, opened)
    }

    fn purge(purges: &Purges, journal: &mut Journal, purge: &Purge) -> u64 {
        let number = purges.add("site", purge, PurgeMode::Hard);
        journal.append(&record("site", purge, PurgeMode::Hard, number)).unwrap();
        number
    }

    fn all() -> Vec<Purge> {
        let host = || "a.example".to_owned();
        vec![
            Purge::All,
            Purge::Host(host()),
            Purge::Url { host: host(), target: "/ä?x".to_owned() },
            Purge::Prefix { host: None, path: "/p".to_owned() },
            Purge::Prefix { host: Some(host()), path: String::new() },
            Purge::Tag("t\n1".to_owned()),
        ]
    }

    #[test]
    fn what_was_purged_is_purged_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let (purges, mut journal, opened) = open(dir.path(), "one");
        assert_eq!(opened, JournalState::New);
        let stamp = purges.last();
        for what in all() {
            purge(&purges, &mut journal, &what);
        }
        let last = purges.last();
        drop(journal);
        let (again, _, opened) = open(dir.path(), "one");
        assert_eq!(opened, JournalState::Continued);
        assert_eq!((again.last(), again.len()), (last, purges.len()));
        assert_eq!(again.fate(&page("/p", &[], stamp, b"")), PurgeState::Removed);
        assert_eq!(again.fate(&page("/p", &[], last, b"")), PurgeState::Valid);
    }

    #[test]
    fn after_a_machine_that_stopped_without_warning_a_new_era_begins() {
        let dir = tempfile::tempdir().unwrap();
        let (_, journal, _) = open(dir.path(), "one");
        let first = journal.era;
        let (purges, mut journal, opened) = open(dir.path(), "two");
        assert_eq!(opened, JournalState::Distrusted);
        assert_ne!(journal.era, first);
        let second = journal.era;
        journal.close(&purges).unwrap();
        let (_, mut journal, opened) = open(dir.path(), "three");
        assert_eq!((opened, journal.era), (JournalState::Continued, second));
        journal.discard().unwrap();
        let (_, journal, opened) = open(dir.path(), "three");
        assert_eq!(opened, JournalState::New);
        assert_ne!(journal.era, second);
    }

    #[test]
    fn the_successor_of_a_closed_journal_is_synced_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let synced = || SYNCED.take();
        let (purges, mut journal, _) = open(dir.path(), "one");
        assert_eq!(synced(), [], "there was none");
        journal.close(&purges).unwrap();
        assert_eq!(synced(), [false]);
        // A closed one that comes back after a crash would be trusted without later purges.
        let (purges, mut journal, opened) = open(dir.path(), "two");
        assert_eq!((opened, synced()), (JournalState::Continued, vec![false, true]));
        purge(&purges, &mut journal, &Purge::All);
        let (_, _, opened) = open(dir.path(), "two");
        assert_eq!((opened, synced()), (JournalState::Continued, vec![]));
    }

    #[test]
    fn an_entry_that_was_cut_short_was_never_done_and_one_that_is_wrong_spoils_all() {
        let dir = tempfile::tempdir().unwrap();
        let (purges, mut journal, _) = open(dir.path(), "one");
        let first = purge(&purges, &mut journal, &Purge::Tag("a".to_owned()));
        let whole = std::fs::read(&journal.path).unwrap();
        purge(&purges, &mut journal, &Purge::Tag("b".to_owned()));
        let longer = std::fs::read(&journal.path).unwrap();
        for end in whole.len()..longer.len() {
            std::fs::write(&journal.path, &longer[..end]).unwrap();
            let (again, _, opened) = open(dir.path(), "one");
            assert_eq!((opened, again.last()), (JournalState::Continued, first), "{end}");
        }
        for at in 0..whole.len() {
            let mut wrong = longer.clone();
            wrong[at] ^= 0x55;
            std::fs::write(&journal.path, &wrong).unwrap();
            let (_, _, opened) = open(dir.path(), "one");
            assert_eq!(opened, JournalState::Distrusted, "{at}");
        }
    }

    #[test]
    fn the_longest_purge_that_fits_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let (purges, mut journal, _) = open(dir.path(), "one");
        let tag = |length: usize| Purge::Tag("t".repeat(length));
        let most = (0..=MAX_ENTRY_BYTES).rev().find(|length| fits("site", &tag(*length)));
        let most = most.unwrap();
        assert!(most > MAX_ENTRY_BYTES - 64);
        let last = purge(&purges, &mut journal, &tag(most));
        let (again, _, opened) = open(dir.path(), "one");
        assert_eq!((opened, again.last()), (JournalState::Continued, last));
    }

    #[test]
    fn a_journal_that_is_too_large_to_be_read_is_not_continued_and_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let (purges, mut journal, _) = open(dir.path(), "one");
        let tag = Purge::Tag("t".repeat(1000));
        let mut add = || {
            let number = purges.add("site", &tag, PurgeMode::Hard);
            journal.append(&record("site", &tag, PurgeMode::Hard, number))
        };
        let refused = std::iter::repeat_with(&mut add).find_map(Result::err).unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        let (_, journal, opened) = open(dir.path(), "one");
        assert_eq!(opened, JournalState::Continued);
        let bytes = vec![0; MAX_FILE_BYTES as usize];
        let mut file = std::fs::OpenOptions::new().append(true).open(&journal.path).unwrap();
        file.write_all(&bytes).unwrap();
        // What is before that is whole.
        let (_, _, opened) = open(dir.path(), "one");
        assert_eq!(opened, JournalState::Distrusted);
    }

    #[test]
    fn a_compacted_journal_has_no_forgotten_purges() {
        let dir = tempfile::tempdir().unwrap();
        let (purges, mut journal, _) = open(dir.path(), "one");
        for number in 0..100 {
            purge(&purges, &mut journal, &Purge::Tag(number.to_string()));
        }
        let before = journal.file.metadata().unwrap().len();
        let last = purges.last();
        purges.forget_until(last);
        journal.compact(&purges).unwrap();
        assert!(journal.file.metadata().unwrap().len() < before / 10);
        let (again, _, opened) = open(dir.path(), "one");
        assert_eq!((opened, again.last(), again.len()), (JournalState::Continued, last, 0));
        assert!(again.refuses(&page("/", &[], last - 1, b"")));
    }
}
