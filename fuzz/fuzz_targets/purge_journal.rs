//! Whatever a purge journal holds, also one whose checksums are right: it is continued or
//! distrusted, and one that is continued has the same purges after the next start.
#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use maitred_pagecache::purge::{Purge, PurgeMode};
use maitred_pagestore::journal::{Journal, JournalState};
use maitred_pagestore::purges::Purges;

const BOOT: &str = "one";

static DIR: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder"));

/// A record: length, checksum of the length, checksum of the rest, kind and content.
fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32 + 1).to_le_bytes();
    let body = [&[kind], content].concat();
    let sums = [crc32fast::hash(&length), crc32fast::hash(&body)].map(u32::to_le_bytes).concat();
    [&length[..], &sums, &body].concat()
}

fn open(dir: &Path) -> (Vec<(String, Purge, bool, u64)>, JournalState, Journal) {
    let purges = Purges::default();
    let (journal, state) = Journal::open(dir, BOOT, &purges, u64::MAX).expect("a journal");
    let mut all = Vec::new();
    purges.each(|site, purge, how, number| {
        all.push((site.to_owned(), purge.clone(), how == PurgeMode::Soft, number));
    });
    all.sort_by_key(|one| format!("{one:?}"));
    all.push((String::new(), Purge::All, false, purges.last()));
    all.push((String::new(), Purge::All, true, purges.forgotten()));
    (all, state, journal)
}

fuzz_target!(|input: (Vec<(u8, Vec<u8>)>, Vec<u8>)| {
    let (records, rest) = input;
    let dir = DIR.path();
    let mut bytes = b"mtrdprg\x01".to_vec();
    bytes.extend(record(b'B', BOOT.as_bytes()));
    for (kind, content) in &records {
        let kind = b"BCENPX"[usize::from(*kind) % 6];
        bytes.extend(record(kind, content));
    }
    bytes.extend(rest);
    std::fs::write(dir.join("purges"), &bytes).expect("a file");
    let (before, state, journal) = open(dir);
    drop(journal);
    if state != JournalState::Continued {
        return;
    }
    let (after, state, _) = open(dir);
    assert_eq!(state, JournalState::Continued);
    assert_eq!(before, after);
});
