use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use maitred_pagecache::purge::{Purge, PurgeMode};

use super::*;
use crate::body::FILE_LEAST_BYTES;
use crate::disk::digest;
use crate::disk::tests::{set_mode, without_capabilities};
use crate::journal::Journal;
use crate::object::tests::{key, page};

pub(super) const NOW: Millis = 1_000_000;
const FILES: usize = 100;

fn memory_only() -> Store {
    let limits = Limits { memory: 64 << 20, files: FILES, disk: None };
    Store::open(limits, "boot", NOW).unwrap().0
}

pub(super) fn on_disk(dir: &Path, memory: u64) -> (Store, JournalState) {
    let disk = DiskLimits { dir: PathBuf::from(dir), max_size: 1 << 30, inactive: u64::MAX };
    Store::open(Limits { memory, files: FILES, disk: Some(disk) }, "boot", NOW).unwrap()
}

pub(super) fn keep(
    store: &Store,
    target: &str,
    tags: &[&str],
    body: &[u8],
) -> Result<(), NotStored> {
    let page = page(target, tags, store.stamp(), body);
    let kept = store.insert(&key(target), &Vary::default(), [].into_iter(), page, NOW);
    kept.map(|_| ())
}

fn found(looked: Lookup) -> Option<String> {
    match looked {
        Lookup::Page { page, .. } => Some(String::from_utf8(page.body.to_vec()).unwrap()),
        Lookup::Miss { .. } | Lookup::Large { .. } | Lookup::NoMemory { .. } => None,
    }
}

pub(super) fn load(store: &Store, target: &str) -> Option<String> {
    found(store.load(&key(target), [].into_iter(), NOW, u64::MAX))
}

pub(super) fn purge(store: &Store, site: &str, purge: &Purge, how: PurgeMode) -> io::Result<()> {
    store.purge(site, purge, how);
    store.write_purges()
}

pub(super) fn tag(tag: &str) -> Purge {
    Purge::Tag(tag.to_owned())
}

#[test]
fn a_page_is_found_until_it_is_purged() {
    let store = memory_only();
    keep(&store, "/a", &["t"], b"a").unwrap();
    keep(&store, "/b", &["u"], b"b").unwrap();
    purge(&store, "site", &tag("t"), PurgeMode::Hard).unwrap();
    assert_eq!(load(&store, "/a"), None);
    assert_eq!(load(&store, "/b").unwrap(), "b");
    keep(&store, "/a", &["t"], b"new").unwrap();
    assert_eq!(load(&store, "/a").unwrap(), "new");
}

#[test]
fn what_was_asked_for_before_a_purge_is_not_kept_after_it() {
    let store = memory_only();
    let stamp = store.stamp();
    purge(&store, "site", &tag("t"), PurgeMode::Hard).unwrap();
    let late = page("/a", &["t"], stamp, b"old");
    let kept = store.insert(&key("/a"), &Vary::default(), [].into_iter(), late, NOW);
    assert_eq!(kept.err(), Some(NotStored::Purged));
    assert_eq!(load(&store, "/a"), None);
}

#[test]
fn a_soft_purge_leaves_the_page_there_as_stale() {
    let store = memory_only();
    keep(&store, "/a", &[], b"a").unwrap();
    purge(&store, "site", &Purge::All, PurgeMode::Soft).unwrap();
    let looked = store.lookup(&key("/a"), [].into_iter());
    assert!(matches!(looked, Lookup::Page { is_stale: true, .. }));
}

#[test]
fn requests_get_the_variant_that_is_theirs() {
    let store = memory_only();
    let vary = Vary::of([&b"X-A"[..]].into_iter()).unwrap();
    for value in ["one", "two"] {
        let fields = [(&b"x-a"[..], value.as_bytes())];
        let page = page("/a", &[], 0, value.as_bytes());
        store.insert(&key("/a"), &vary, fields.into_iter(), page, NOW).unwrap();
    }
    let look = |value: &str| {
        let fields = [(&b"X-A"[..], value.as_bytes())];
        found(store.lookup(&key("/a"), fields.into_iter()))
    };
    assert_eq!(look("one").unwrap(), "one");
    assert_eq!(look("two").unwrap(), "two");
    assert_eq!(look("three"), None);
    let looked = store.lookup(&key("/a"), [].into_iter());
    assert!(matches!(looked, Lookup::Miss { has_variants: true, .. }));
    // From now on it does not vary.
    keep(&store, "/a", &[], b"all").unwrap();
    assert_eq!(look("three").unwrap(), "all");
}

#[test]
fn a_new_process_finds_what_was_kept_and_not_what_was_purged() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = on_disk(dir.path(), 1 << 20);
    for number in 0..100 {
        let tags = [if number % 2 == 0 { "even" } else { "odd" }];
        keep(&store, &format!("/{number}"), &tags, b"body").unwrap();
    }
    purge(&store, "site", &tag("even"), PurgeMode::Hard).unwrap();
    // As if it were killed: nothing is closed.
    drop(store);
    let (store, opened) = on_disk(dir.path(), 1 << 20);
    assert_eq!(opened, JournalState::Continued);
    for number in 0..100 {
        let is_there = load(&store, &format!("/{number}")).is_some();
        assert_eq!(is_there, number % 2 == 1, "{number}");
    }
}

#[test]
fn a_purge_that_cannot_be_written_down_is_done_and_nothing_is_trusted_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = on_disk(dir.path(), 1 << 20);
    keep(&store, "/a", &["t"], b"a").unwrap();
    keep(&store, "/b", &[], b"b").unwrap();
    let mut folder = store.folder();
    folder.as_mut().unwrap().journal.break_for_test();
    drop(folder);
    assert!(purge(&store, "site", &tag("t"), PurgeMode::Hard).is_err());
    assert_eq!(load(&store, "/a"), None);
    assert_eq!(load(&store, "/b").unwrap(), "b");
    drop(store);
    let (store, opened) = on_disk(dir.path(), 1 << 20);
    assert_eq!(opened, JournalState::New);
    assert_eq!((load(&store, "/a"), load(&store, "/b")), (None, None));
}

#[test]
fn a_purge_that_could_not_be_written_down_is_as_soon_as_it_can_be() {
    for mend in [0, 1, 2] {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = on_disk(dir.path(), 1 << 20);
        keep(&store, "/a", &["t"], b"a").unwrap();
        keep(&store, "/b", &["u"], b"b").unwrap();
        let journal = |act: &mut dyn FnMut(&mut Journal)| {
            act(&mut store.folder().as_mut().unwrap().journal);
        };
        journal(&mut Journal::break_for_test);
        assert!(purge(&store, "site", &tag("t"), PurgeMode::Hard).is_err());
        journal(&mut |journal| assert!(journal.lacks_some));
        match mend {
            0 => _ = store.sweep(1).unwrap(),
            1 => store.close().unwrap(),
            _ => {
                journal(&mut |journal| journal.compact(&store.purges).unwrap());
                purge(&store, "site", &tag("u"), PurgeMode::Hard).unwrap();
            }
        }
        drop(store);
        let (store, opened) = on_disk(dir.path(), 1 << 20);
        assert_eq!(opened, JournalState::Continued, "{mend}");
        assert_eq!(load(&store, "/a"), None, "{mend}");
        assert_eq!(load(&store, "/b").is_some(), mend != 2, "{mend}");
    }
}

#[test]
fn a_purge_that_the_journal_has_no_room_for_is_one_of_all_pages_and_does_not_spoil_it() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = on_disk(dir.path(), 1 << 20);
    keep(&store, "/a", &["t"], b"a").unwrap();
    purge(&store, "other", &tag(&"x".repeat(70_000)), PurgeMode::Hard).unwrap();
    assert_eq!(load(&store, "/a").unwrap(), "a");
    drop(store);
    let (store, opened) = on_disk(dir.path(), 1 << 20);
    assert_eq!(opened, JournalState::Continued);
    assert_eq!(load(&store, "/a").unwrap(), "a");
    purge(&store, "site", &tag(&"x".repeat(70_000)), PurgeMode::Hard).unwrap();
    assert_eq!(load(&store, "/a"), None);
}

#[test]
fn the_journal_of_purges_that_are_repeated_without_end_does_not_grow_without_end() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = on_disk(dir.path(), 1 << 20);
    keep(&store, "/a", &["t"], b"a").unwrap();
    keep(&store, "/b", &["u"], b"b").unwrap();
    let journal = dir.path().join("purges");
    let size = || std::fs::metadata(&journal).unwrap().len();
    let mut largest = 0;
    for number in 0..2000 {
        let long = format!("{}{}", "x".repeat(200), number % 10);
        purge(&store, "site", &tag(&long), PurgeMode::Hard).unwrap();
        largest = largest.max(size());
    }
    purge(&store, "site", &tag("t"), PurgeMode::Hard).unwrap();
    // Without compaction it has 490 KB.
    assert!((50_000..80_000).contains(&largest), "{largest}");
    drop(store);
    let (store, opened) = on_disk(dir.path(), 1 << 20);
    assert_eq!(opened, JournalState::Continued);
    assert_eq!((load(&store, "/a"), load(&store, "/b").unwrap()), (None, "b".into()));
}

#[test]
fn what_is_no_journal_is_neither_followed_nor_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = on_disk(dir.path(), 1 << 20);
    keep(&store, "/a", &["t"], b"a").unwrap();
    store.close().unwrap();
    drop(store);
    let journal = dir.path().join("purges");
    let aside = dir.path().join("aside");
    std::fs::rename(&journal, &aside).unwrap();
    std::os::unix::fs::symlink(&aside, &journal).unwrap();
    let before = std::fs::read(&aside).unwrap();
    let (store, opened) = on_disk(dir.path(), 1 << 20);
    assert_eq!(opened, JournalState::Distrusted);
    assert_eq!(load(&store, "/a"), None);
    assert_eq!(std::fs::read(&aside).unwrap(), before);
}

#[test]
fn a_page_too_large_for_memory_is_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = on_disk(dir.path(), 1 << 20);
    store.limit_detached(4 << 20);
    let large = vec![b'x'; 1 << 20];
    keep(&store, "/a", &[], &large).unwrap();
    assert!(found(store.lookup(&key("/a"), [].into_iter())).is_none());
    assert_eq!(load(&store, "/a").unwrap().len(), large.len());
    let store = memory_only();
    let too_large = usize::try_from(store.largest_body()).unwrap() + 1;
    assert_eq!(keep(&store, "/a", &[], &vec![0; too_large]), Err(NotStored::TooLarge));
}

#[test]
fn sweeps_forget_purges_when_nothing_is_left_that_they_were_about() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = on_disk(dir.path(), 1 << 20);
    for name in ["a", "b", "c"] {
        keep(&store, &format!("/{name}"), &[name], b"body").unwrap();
    }
    purge(&store, "site", &tag("a"), PurgeMode::Hard).unwrap();
    purge(&store, "site", &tag("b"), PurgeMode::Soft).unwrap();
    assert_eq!(store.sweep(NOW).unwrap(), SweepResult { kept: 2, removed: 1 });
    assert_eq!(store.stats().purges, 2);
    // The second forgets; what was made stale must not become fresh by that.
    assert_eq!(store.sweep(NOW).unwrap(), SweepResult { kept: 1, removed: 1 });
    assert_eq!(store.stats().purges, 0);
    drop(store);
    let (store, opened) = on_disk(dir.path(), 1 << 20);
    assert_eq!(opened, JournalState::Continued);
    assert_eq!((load(&store, "/a"), load(&store, "/b")), (None, None));
    assert_eq!(load(&store, "/c").unwrap(), "body");
}

#[test]
fn purges_are_not_forgotten_while_pages_cannot_be_checked() {
    let dir = tempfile::tempdir().unwrap();
    without_capabilities(|| {
        let (store, _) = on_disk(dir.path(), 1 << 20);
        keep(&store, "/a", &["a"], b"body").unwrap();
        purge(&store, "site", &tag("a"), PurgeMode::Hard).unwrap();
        let folder = dir.path().join(format!("{:02x}", digest(&key("/a"))[0]));
        set_mode(&folder, 0);
        for _ in 0..3 {
            assert!(store.sweep(NOW).is_err());
        }
        assert_eq!(store.stats().purges, 1);
        set_mode(&folder, 0o700);
        assert_eq!(store.sweep(NOW).unwrap().removed, 1);
        assert_eq!(store.stats().purges, 0);
    });
}

#[test]
fn a_hundred_thousand_pages_are_kept_and_ten_thousand_of_them_purged_at_once() {
    let store =
        Store::open(Limits { memory: 512 << 20, files: FILES, disk: None }, "boot", NOW).unwrap().0;
    for number in 0..100_000 {
        let tags = [if number % 10 == 0 { "tenth" } else { "other" }];
        keep(&store, &format!("/{number}"), &tags, b"body").unwrap();
    }
    let begun = Instant::now();
    purge(&store, "site", &tag("tenth"), PurgeMode::Hard).unwrap();
    let took = begun.elapsed();
    let purged = (0..100_000).filter(|number| load(&store, &format!("/{number}")).is_none());
    assert_eq!(purged.count(), 10_000);
    assert!(took.as_millis() < 50, "{took:?}");
}

#[test]
fn no_purged_page_is_served_under_concurrent_inserts_and_purges() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = on_disk(dir.path(), 8 << 20);
    // Each page says which version of the truth it was made from. A purge comes with each new one.
    let (truth, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let (store, truth, over) = (&store, &truth, &over);
            scope.spawn(move || {
                let mut number = thread;
                while !over.load(Ordering::Relaxed) {
                    number = (number * 5 + 1) % 8;
                    let target = format!("/{number}");
                    let stamp = store.stamp();
                    let version = truth.load(Ordering::SeqCst).to_string();
                    let page = page(&target, &["t"], stamp, version.as_bytes());
                    let _ =
                        store.insert(&key(&target), &Vary::default(), [].into_iter(), page, NOW);
                }
            });
        }
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                store.sweep(NOW).unwrap();
            }
        });
        let mut wrong = Vec::new();
        for version in 1..300u64 {
            truth.store(version, Ordering::SeqCst);
            purge(&store, "site", &tag("t"), PurgeMode::Hard).unwrap();
            for number in 0..8 {
                let found = load(&store, &format!("/{number}"));
                let found = found.map_or(version, |found| found.parse().unwrap());
                if found < version {
                    wrong.push((found, version));
                }
            }
        }
        over.store(true, Ordering::Relaxed);
        assert_eq!(wrong, [], "found after a later purge");
    });
}

#[test]
fn a_page_that_is_dropped_is_gone_wherever_it_is_and_a_newer_one_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = on_disk(dir.path(), 1 << 20);
    keep(&store, "/a", &[], b"a").unwrap();
    let old = match store.lookup(&key("/a"), [].into_iter()) {
        Lookup::Page { page, .. } => page,
        other => panic!("{other:?}"),
    };
    store.drop_page(&key("/a"), &old);
    assert_eq!(load(&store, "/a"), None);
    let mut newer = page("/a", &[], store.stamp(), b"new");
    newer.stored.came += 1;
    let kept = store.insert(&key("/a"), &Vary::default(), [].into_iter(), newer, NOW);
    assert!(kept.is_ok());
    store.drop_page(&key("/a"), &old);
    assert_eq!(load(&store, "/a").unwrap(), "new");
    // What is on disk alone is gone, too.
    drop(store);
    let (store, _) = on_disk(dir.path(), 1 << 20);
    store.drop_page(&key("/a"), &old);
    assert_eq!(load(&store, "/a"), None);
}

#[test]
fn a_large_page_is_read_by_a_caller_that_may_block() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = on_disk(dir.path(), 1 << 20);
    keep(&store, "/a", &[], &[b'a'; 5000]).unwrap();
    drop(store);
    let (store, _) = on_disk(dir.path(), 1 << 20);
    let looked = store.load(&key("/a"), [].into_iter(), NOW, 5000);
    let Lookup::Large { key, has_variants } = looked else { panic!("{looked:?}") };
    assert!(!has_variants);
    let read = found(store.load_large(key, false, NOW));
    assert_eq!(read.map(|body| body.len()), Some(5000));
    let looked = store.lookup(&crate::object::tests::key("/a"), [].into_iter());
    assert!(matches!(looked, Lookup::Page { .. }), "it is in memory now");
}

#[test]
fn a_large_page_in_memory_has_a_file_wherever_it_comes_from() {
    let has_file = |looked: Lookup| match looked {
        Lookup::Page { page, .. } => Some(page.body.file().is_some()),
        _ => None,
    };
    let dir = tempfile::tempdir().unwrap();
    let body = vec![b'x'; FILE_LEAST_BYTES];
    let (store, _) = on_disk(dir.path(), 64 << 20);
    keep(&store, "/a", &[], &body).unwrap();
    assert_eq!(has_file(store.lookup(&key("/a"), [].into_iter())), Some(true));
    let coded = page("/a", &[], store.stamp(), &body);
    let coded = store.insert_derived(key("/a in a coding"), coded).unwrap();
    assert!(coded.body.file().is_some());
    drop(store);
    let (store, _) = on_disk(dir.path(), 64 << 20);
    let loaded = store.load(&key("/a"), [].into_iter(), NOW, u64::MAX);
    assert_eq!(has_file(loaded), Some(true));
    drop(store);
    // There is no room for it in memory.
    let (store, _) = on_disk(dir.path(), FILE_LEAST_BYTES as u64);
    store.limit_detached(1 << 20);
    let loaded = store.load(&key("/a"), [].into_iter(), NOW, u64::MAX);
    assert_eq!(has_file(loaded), Some(false));
}

/// Opens a store whose memory tier is too small for its pages, of which clients may read two and a
/// half at a time.
fn too_small_for(pages: &[&str], body: &[u8], dir: &Path) -> Store {
    let (store, _) = on_disk(dir, 1 << 20);
    for page in pages {
        keep(&store, page, &[], body).unwrap();
    }
    drop(store);
    let (store, _) = on_disk(dir, 4096);
    store.limit_detached(body.len() as u64 * 5);
    store
}

fn read_large(store: &Store, target: &str) -> Lookup {
    store.load_large(key(target), false, NOW)
}

fn page_of(looked: Lookup) -> Option<Arc<Object>> {
    match looked {
        Lookup::Page { page, .. } => Some(page),
        _ => None,
    }
}

#[test]
fn all_that_read_a_page_without_a_place_in_memory_have_one_copy() {
    let dir = tempfile::tempdir().unwrap();
    let store = too_small_for(&["/a"], &[b'a'; 20_000], dir.path());
    let reads = || page_of(read_large(&store, "/a")).unwrap();
    let threads: Vec<_> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..8).map(|_| scope.spawn(reads)).collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    assert!(threads.iter().all(|page| Arc::ptr_eq(page, &threads[0])));
    let used = store.memory.detached().used();
    assert!((20_000..21_000).contains(&used), "{used}");
    // HTTP/2 has the bytes after the page.
    let bytes = threads[0].body.slice(1..2);
    drop(threads);
    assert_eq!(store.memory.detached().used(), used);
    drop(bytes);
    assert_eq!(store.memory.detached().used(), 0);
}

#[test]
fn a_page_that_replaces_one_that_is_read_is_what_the_next_ones_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = too_small_for(&["/a"], &[b'a'; 20_000], dir.path());
    let old = page_of(read_large(&store, "/a")).unwrap();
    keep(&store, "/a", &[], &[b'b'; 20_000]).unwrap();
    let new = page_of(read_large(&store, "/a")).unwrap();
    assert_eq!((old.body[0], new.body[0]), (b'a', b'b'));
    store.drop_page(&key("/a"), &new);
    assert!(matches!(read_large(&store, "/a"), Lookup::Miss { .. }));
}

#[test]
fn pages_without_a_place_in_memory_are_read_while_there_is_memory_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let store = too_small_for(&["/a", "/b", "/c"], &[b'a'; 20_000], dir.path());
    let [first, second, third] = ["/a", "/b", "/c"].map(|target| read_large(&store, target));
    let held = [first, second].map(|looked| page_of(looked).unwrap());
    assert!(matches!(third, Lookup::NoMemory { .. }), "{third:?}");
    let small = store.load(&key("/c"), [].into_iter(), NOW, u64::MAX);
    assert!(matches!(small, Lookup::NoMemory { .. }), "{small:?}");
    drop(held);
    assert!(page_of(read_large(&store, "/c")).is_some());
}

#[test]
fn large_pages_that_clients_read_do_not_keep_small_ones_on_disk_from_memory() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = on_disk(dir.path(), 1 << 20);
    for target in ["/a", "/b", "/c"] {
        keep(&store, target, &[], &[b'a'; 300_000]).unwrap();
    }
    keep(&store, "/small", &[], &[b'a'; 2000]).unwrap();
    drop(store);
    let (store, _) = on_disk(dir.path(), 1 << 20);
    store.limit_detached(4 << 20);
    let held = ["/a", "/b"].map(|target| page_of(read_large(&store, target)).unwrap());
    let used = store.memory.detached().used();
    // The site has more than is free.
    store.limit_detached(used + used / 4 * 3);
    assert!(matches!(read_large(&store, "/c"), Lookup::NoMemory { .. }));
    let load = || page_of(store.load(&key("/small"), [].into_iter(), NOW, u64::MAX));
    assert!(load().is_some());
    assert_eq!((store.memory.len(), store.memory.detached().used()), (1, used));
    drop(held);
    assert_eq!(store.memory.detached().used(), 0);
}

#[test]
fn pages_that_clients_read_after_they_lost_their_place_in_memory_are_bounded() {
    const BYTES: usize = 10_000;
    let limits = Limits { memory: 1 << 20, files: 0, disk: None };
    let (store, _) = Store::open(limits, "boot", NOW).unwrap();
    store.limit_detached(1 << 20);
    let read = |number: usize| {
        let target = format!("/{number}");
        let _ = keep(&store, &target, &[], &[b'a'; BYTES]);
        page_of(store.lookup(&key(&target), [].into_iter()))
    };
    let held: Vec<_> = (0..1000).filter_map(read).collect();
    let (bytes, used) = (held.len() * BYTES, store.memory.detached().used());
    assert!(bytes < 2 << 20, "{bytes}");
    assert!(used > 1 << 18, "{used}");
    purge(&store, "site", &Purge::All, PurgeMode::Hard).unwrap();
    store.sweep(NOW).unwrap();
    assert!(store.memory.detached().used() as usize >= bytes, "purged pages count as well");
    drop(held);
    assert_eq!(store.memory.detached().used(), 0);
    assert!(read(0).is_some());
}

#[test]
fn a_page_with_the_body_of_the_one_that_it_replaces_counts_once() {
    let store = memory_only();
    keep(&store, "/a", &[], b"body").unwrap();
    let old = page_of(store.lookup(&key("/a"), [].into_iter())).unwrap();
    let mut new = page("/a", &[], store.stamp(), b"");
    new.body = old.body.clone();
    store.insert(&key("/a"), &Vary::default(), [].into_iter(), new, NOW).unwrap();
    assert_eq!(store.memory.detached().used(), 0);
    let mut derived = page("/a", &[], store.stamp(), b"");
    derived.body = old.body.clone();
    store.insert_derived(key("/a derived"), derived).unwrap();
    keep(&store, "/a", &[], b"other").unwrap();
    assert_eq!(store.memory.detached().used(), 0, "the derived page has it");
    store.drop_from_memory(&key("/a derived"), &page("/a", &[], store.stamp(), b""));
    assert!(store.memory.detached().used() > 0);
    drop(old);
    assert_eq!(store.memory.detached().used(), 0);
}
