//! A cached page, and its file format.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use maitred_pagecache::codec::{Damaged, Reader, write_part};
use maitred_pagecache::key::Key;
use maitred_pagecache::stored::Stored;
use maitred_pagecache::vary::Vary;

use crate::body::Body;

/// What a page is about, in the terms of purges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The site.
    pub site: Box<str>,
    /// The host, in lower case.
    pub host: Box<str>,
    /// Path and canonical query.
    pub target: Box<str>,
}

/// A cached page.
#[derive(Debug)]
pub struct Object {
    /// What it is about.
    pub subject: Subject,
    /// Its header, with the caching decisions.
    pub stored: Stored,
    /// Its body.
    pub body: Body,
    /// Worker time that it took to generate.
    pub cost: Duration,
    /// The outcome of the last check against purges: the number of the last purge then, times two,
    /// plus one if the page is stale.
    checked: AtomicU64,
    /// How often it was sent, about.
    hits: AtomicU64,
}

impl Object {
    /// A page that has not been checked against purges.
    pub fn new(subject: Subject, stored: Stored, body: impl Into<Body>) -> Object {
        let checked = AtomicU64::new(stored.stamp.saturating_mul(2));
        let hits = AtomicU64::new(0);
        Object { subject, stored, body: body.into(), cost: Duration::ZERO, checked, hits }
    }

    /// Sets the worker time.
    pub fn of_cost(self, cost: Duration) -> Object {
        Object { cost, ..self }
    }

    /// Whether it is stale, if it was last checked at the purge with this number.
    pub fn known(&self, purge: u64) -> Option<bool> {
        let checked = self.checked.load(Ordering::Acquire);
        (checked / 2 == purge).then_some(checked % 2 == 1)
    }

    /// Records the outcome of a check at the purge with this number.
    pub fn learn(&self, purge: u64, is_stale: bool) {
        let checked = purge.saturating_mul(2) | u64::from(is_stale);
        self.checked.store(checked, Ordering::Release);
    }

    /// Counts that it was sent this often.
    pub fn add_hits(&self, count: u64) {
        self.hits.fetch_add(count, Ordering::Relaxed);
    }

    /// How often it was sent since it is in memory, about.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Its approximate size in memory, in bytes.
    pub fn weight(&self) -> usize {
        let Subject { site, host, target } = &self.subject;
        let subject = site.len() + host.len() + target.len();
        size_of::<Object>() + subject + self.stored.weight() + self.body.weight()
    }
}

/// The value of a key.
#[derive(Debug, Clone)]
pub enum Entry {
    /// A page.
    Page(std::sync::Arc<Object>),
    /// Several variants, which differ in these request headers.
    Varies(std::sync::Arc<Vary>),
}

/// The first bytes of a file; the last of them is the format's version.
const MAGIC: &[u8; 8] = b"maitred\x03";
/// Length of the prefix: magic, era, length of the header, length of the body, checksums of both,
/// kind.
const PREFIX_BYTES: usize = 8 + 8 + 4 + 8 + 4 + 4 + 1;
/// Longest header of a file in bytes.
const MAX_HEAD_BYTES: usize = 1 << 20;

const PAGE: u8 = 1;
const VARIES: u8 = 2;

impl Entry {
    /// The file content in this era, in two pieces.
    pub fn write(&self, key: &Key, era: u64) -> (Vec<u8>, Bytes) {
        let mut head = Vec::with_capacity(512);
        write_part(&mut head, key.as_bytes());
        let (kind, body) = match self {
            Entry::Page(object) => {
                let Subject { site, host, target } = &object.subject;
                for part in [site, host, target] {
                    write_part(&mut head, part.as_bytes());
                }
                let cost = u64::try_from(object.cost.as_micros()).unwrap_or(u64::MAX);
                head.extend_from_slice(&cost.to_le_bytes());
                object.stored.write(&mut head);
                (PAGE, Bytes::clone(&object.body))
            }
            Entry::Varies(vary) => {
                for name in vary.names() {
                    write_part(&mut head, name.as_bytes());
                }
                (VARIES, Bytes::new())
            }
        };
        let mut out = Vec::with_capacity(PREFIX_BYTES + head.len());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&era.to_le_bytes());
        out.extend_from_slice(&u32::try_from(head.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&(body.len() as u64).to_le_bytes());
        out.extend_from_slice(&crc32fast::hash(&head).to_le_bytes());
        out.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
        out.push(kind);
        out.extend_from_slice(&head);
        (out, body)
    }

    /// Parses a file: its key and its entry.
    ///
    /// # Errors
    /// When it is incomplete, or of another era.
    pub fn read(bytes: &Bytes, era: u64) -> Result<(Key, Entry), Damaged> {
        let prefix = Prefix::read(bytes)?.of(era)?;
        let end = PREFIX_BYTES.checked_add(prefix.head).ok_or(Damaged)?;
        let body = bytes.len().checked_sub(end).ok_or(Damaged)?;
        if body as u64 != prefix.body {
            return Err(Damaged);
        }
        let (head, body) = (bytes.slice(PREFIX_BYTES..end), bytes.slice(end..));
        if crc32fast::hash(&head) != prefix.head_sum || crc32fast::hash(&body) != prefix.body_sum {
            return Err(Damaged);
        }
        Entry::read_head(prefix.kind, head, body)
    }

    /// Parses the beginning of a file, whose length `head_bytes` returns: its key and its entry
    /// without the body.
    ///
    /// # Errors
    /// When it is incomplete, or of another era.
    pub fn read_first(bytes: &Bytes, era: u64) -> Result<(Key, Entry), Damaged> {
        let prefix = Prefix::read(bytes)?.of(era)?;
        let end = PREFIX_BYTES.checked_add(prefix.head).ok_or(Damaged)?;
        if bytes.len() < end {
            return Err(Damaged);
        }
        let head = bytes.slice(PREFIX_BYTES..end);
        if crc32fast::hash(&head) != prefix.head_sum {
            return Err(Damaged);
        }
        Entry::read_head(prefix.kind, head, Bytes::new())
    }

    fn read_head(kind: u8, head: Bytes, body: Bytes) -> Result<(Key, Entry), Damaged> {
        let mut reader = Reader::new(&head);
        let key = Key::of(reader.part()?.into()).map_err(|_| Damaged)?;
        let entry = match kind {
            PAGE => {
                let subject = Subject {
                    site: reader.text()?.into(),
                    host: reader.text()?.into(),
                    target: reader.text()?.into(),
                };
                let cost = Duration::from_micros(reader.long()?);
                let object = Object::new(subject, Stored::read(reader.rest())?, body).of_cost(cost);
                Entry::Page(std::sync::Arc::new(object))
            }
            VARIES => {
                let mut names = Vec::new();
                while !reader.rest().is_empty() {
                    names.push(reader.text()?);
                }
                Entry::Varies(std::sync::Arc::new(Vary::of_names(names)))
            }
            _ => return Err(Damaged),
        };
        Ok((key, entry))
    }

    /// Its approximate size in memory, in bytes.
    pub fn weight(&self) -> usize {
        match self {
            Entry::Page(object) => object.weight(),
            Entry::Varies(vary) => {
                let names = vary.names().iter().map(|name| name.len() + size_of::<String>());
                size_of::<Vary>() + names.sum::<usize>()
            }
        }
    }
}

/// Length of a file's prefix and header, from its first [`FIRST_BYTES`].
///
/// # Errors
/// When it is no page file.
pub fn head_bytes(first: &[u8]) -> Result<usize, Damaged> {
    Ok(PREFIX_BYTES + Prefix::read(first)?.head)
}

/// Length of a file, from its first bytes, if it is of this era.
///
/// # Errors
/// When it is no such file.
pub fn file_bytes(first: &[u8], era: u64) -> Result<u64, Damaged> {
    let prefix = Prefix::read(first)?.of(era)?;
    let head = (PREFIX_BYTES + prefix.head) as u64;
    head.checked_add(prefix.body).ok_or(Damaged)
}

/// Bytes that [`head_bytes`] and [`file_bytes`] need.
pub const FIRST_BYTES: usize = PREFIX_BYTES;

struct Prefix {
    era: u64,
    head: usize,
    body: u64,
    head_sum: u32,
    body_sum: u32,
    kind: u8,
}

impl Prefix {
    fn read(bytes: &[u8]) -> Result<Prefix, Damaged> {
        let word = |from: usize| {
            let word = bytes.get(from..).and_then(|rest| rest.first_chunk());
            word.copied().map(u32::from_le_bytes).ok_or(Damaged)
        };
        let long = |from: usize| Ok(u64::from(word(from)?) | u64::from(word(from + 4)?) << 32);
        if !bytes.starts_with(MAGIC) {
            return Err(Damaged);
        }
        let head = usize::try_from(word(16)?).map_err(|_| Damaged)?;
        if head > MAX_HEAD_BYTES {
            return Err(Damaged);
        }
        Ok(Prefix {
            era: long(8)?,
            head,
            body: long(20)?,
            head_sum: word(28)?,
            body_sum: word(32)?,
            kind: *bytes.get(36).ok_or(Damaged)?,
        })
    }

    fn of(self, era: u64) -> Result<Prefix, Damaged> {
        (self.era == era).then_some(self).ok_or(Damaged)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use maitred_pagecache::freshness::Lifetimes;
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn page(target: &str, tags: &[&str], stamp: u64, body: &[u8]) -> Object {
        let subject =
            Subject { site: "site".into(), host: "a.example".into(), target: target.into() };
        let stored = Stored {
            status: 200,
            lines: Bytes::from_static(b"A: b\r\n"),
            came: 1,
            initial_age: 0,
            lifetimes: Lifetimes { fresh: 60, ..Lifetimes::default() },
            no_cache: false,
            must_revalidate: false,
            for_authorized: false,
            has_validator: false,
            server_compresses: false,
            has_own_lifetimes: false,
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            stamp,
        };
        Object::new(subject, stored, Bytes::copy_from_slice(body))
    }

    pub(crate) fn key(text: &str) -> Key {
        Key::of(text.as_bytes().to_vec()).unwrap()
    }

    fn file(entry: &Entry) -> Bytes {
        let (head, body) = entry.write(&key("k"), 7);
        [head, body.to_vec()].concat().into()
    }

    #[test]
    fn a_page_is_read_as_it_was_written() {
        let page = page("/a", &["t"], 5, b"body").of_cost(Duration::from_micros(70_001));
        let bytes = file(&Entry::Page(page.into()));
        let (read_key, entry) = Entry::read(&bytes, 7).unwrap();
        let Entry::Page(object) = entry else { panic!() };
        assert_eq!(read_key, key("k"));
        assert_eq!(object.subject.target.as_ref(), "/a");
        assert_eq!(object.cost.as_micros(), 70_001);
        assert_eq!((&object.body[..], object.stored.stamp), (&b"body"[..], 5));
        let first = bytes.slice(..head_bytes(&bytes).unwrap());
        let (_, Entry::Page(object)) = Entry::read_first(&first, 7).unwrap() else { panic!() };
        assert!(object.body.is_empty());
    }

    #[test]
    fn names_of_fields_are_read_as_they_were_written() {
        let vary = Vary::of([&b"b, A"[..]].into_iter()).unwrap();
        let bytes = file(&Entry::Varies(vary.clone().into()));
        let (_, Entry::Varies(read)) = Entry::read(&bytes, 7).unwrap() else { panic!() };
        assert_eq!(*read, vary);
    }

    #[test]
    fn a_file_in_which_one_bit_is_wrong_or_a_byte_is_missing_is_damaged() {
        let bytes = file(&Entry::Page(page("/a", &["t"], 5, b"body").into()));
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut wrong = bytes.to_vec();
                wrong[at] ^= 1 << bit;
                // The kind is not in the sum; a wrong one is no page, or not readable as one.
                assert!(Entry::read(&wrong.into(), 7).is_err(), "byte {at}, bit {bit}");
            }
            assert!(Entry::read(&bytes.slice(..at), 7).is_err());
        }
        assert!(Entry::read(&bytes, 8).is_err(), "another era");
        let longer = [&bytes[..], b"x"].concat();
        assert!(Entry::read(&longer.into(), 7).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_damaged(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let bytes: Bytes = [&MAGIC[..], &7u64.to_le_bytes(), &bytes].concat().into();
            let _ = Entry::read(&bytes, 7);
            let _ = Entry::read_first(&bytes, 7);
        }
    }
}
