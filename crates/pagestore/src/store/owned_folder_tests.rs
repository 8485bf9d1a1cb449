use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use super::*;
use crate::journal::tests::set_while_written;
use crate::store::APART;
use crate::store::tests::{NOW, keep, load, on_disk, purge, tag};

#[test]
fn one_process_has_the_folder_and_the_next_one_purges_what_the_first_has_kept_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let (old, _) = on_disk(dir.path(), 1 << 20);
    for name in ["a", "b", "c", "d"] {
        keep(&old, &format!("/{name}"), &[name], name.as_bytes()).unwrap();
    }
    purge(&old, "site", &tag("a"), PurgeMode::Hard).unwrap();
    let (new, opened) = on_disk(dir.path(), 1 << 20);
    assert_eq!(opened, JournalState::InUse);
    assert!(new.awaits_folder() && !new.has_disk());
    // Purged while the folder is the other's, and looked through twice before it is ours.
    purge(&new, "site", &tag("b"), PurgeMode::Hard).unwrap();
    assert_eq!(load(&new, "/b"), None);
    new.sweep(NOW).unwrap();
    new.sweep(NOW).unwrap();
    purge(&old, "site", &tag("c"), PurgeMode::Hard).unwrap();
    keep(&old, "/a", &["a"], b"again").unwrap();
    old.leave_folder().unwrap();
    assert!(!old.has_disk());
    assert_eq!(new.claim_folder(|| NOW).unwrap(), JournalState::Continued);
    assert!(new.has_disk() && !new.awaits_folder());
    let now = || ["/a", "/b", "/c", "/d"].map(|page| load(&new, page));
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(now(), [some("again"), None, None, some("d")]);
    // The old one goes on in memory, and writes nothing any more.
    keep(&old, "/e", &[], b"e").unwrap();
    assert_eq!(load(&old, "/e").unwrap(), "e");
    assert_eq!(load(&new, "/e"), None);
    purge(&new, "site", &tag("d"), PurgeMode::Hard).unwrap();
    drop(new);
    // All of it was written down, in whichever process it was purged.
    let (third, opened) = on_disk(dir.path(), 1 << 20);
    assert_eq!(opened, JournalState::Continued);
    let now = ["/a", "/b", "/c", "/d"].map(|page| load(&third, page));
    assert_eq!(now, [some("again"), None, None, None]);
}

#[test]
fn who_waits_for_a_folder_gets_it_when_the_other_is_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let (old, _) = on_disk(dir.path(), 1 << 20);
    keep(&old, "/a", &[], b"a").unwrap();
    let (new, _) = on_disk(dir.path(), 1 << 20);
    std::thread::scope(|scope| {
        let claims = scope.spawn(|| new.claim_folder(|| NOW).unwrap());
        drop(old);
        assert_eq!(claims.join().unwrap(), JournalState::Continued);
    });
    assert_eq!(load(&new, "/a").unwrap(), "a");
    // One that has handed its own over takes none.
    let (late, opened) = on_disk(dir.path(), 1 << 20);
    assert_eq!(opened, JournalState::InUse);
    late.leave_folder().unwrap();
    assert!(!late.awaits_folder());
    assert_eq!(late.claim_folder(|| NOW).unwrap(), JournalState::New);
    assert!(!late.has_disk());
}

#[test]
fn a_purge_does_not_wait_for_the_disk_and_is_done_when_it_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = on_disk(dir.path(), 1 << 20);
    keep(&store, "/a", &["t"], b"a").unwrap();
    // A write to the journal that does not end.
    let stuck = store.folder();
    let number = store.purge("site", &tag("t"), PurgeMode::Hard).unwrap();
    assert_eq!(load(&store, "/a"), None);
    assert!(store.recorded() < number);
    drop(stuck);
    store.write_purges().unwrap();
    assert_eq!(store.recorded(), number);
    drop(store);
    let (store, opened) = on_disk(dir.path(), 1 << 20);
    assert_eq!((opened, load(&store, "/a")), (JournalState::Continued, None));
}

#[test]
fn purges_that_the_queue_has_no_room_for_are_recorded_from_the_table_or_nothing_is_trusted() {
    for is_mended in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = on_disk(dir.path(), 1 << 20);
        keep(&store, "/a", &["t"], b"a").unwrap();
        keep(&store, "/b", &["u"], b"b").unwrap();
        let first = store.purge("site", &tag("t"), PurgeMode::Hard).unwrap();
        for number in 0..1000 {
            store.purge("site", &tag(&format!("other {number}")), PurgeMode::Hard);
        }
        assert!(store.recorded() < first);
        let in_the_way = dir.path().join("purges.new");
        if !is_mended {
            std::fs::create_dir(&in_the_way).unwrap();
        }
        assert_eq!(store.write_purges().is_ok(), is_mended);
        assert_eq!(store.recorded(), first + 1000);
        drop(store);
        let _ = std::fs::remove_dir(&in_the_way);
        let (store, opened) = on_disk(dir.path(), 1 << 20);
        let expected = if is_mended { JournalState::Continued } else { JournalState::New };
        assert_eq!(opened, expected);
        assert_eq!(load(&store, "/a"), None);
        assert_eq!(load(&store, "/b").is_some(), is_mended);
    }
}

#[test]
fn purges_that_wait_are_recorded_before_the_folder_is_left_or_closed() {
    for is_left in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = on_disk(dir.path(), 1 << 20);
        keep(&store, "/a", &["t"], b"a").unwrap();
        let number = store.purge("site", &tag("t"), PurgeMode::Hard).unwrap();
        if is_left { store.leave_folder() } else { store.close() }.unwrap();
        assert_eq!(store.recorded(), number);
        drop(store);
        let (store, opened) = on_disk(dir.path(), 1 << 20);
        assert_eq!((opened, load(&store, "/a")), (JournalState::Continued, None));
    }
}

#[test]
fn a_purge_while_the_folder_is_left_is_recorded_before_another_process_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let old = Arc::new(on_disk(dir.path(), 1 << 20).0);
    keep(&old, "/a", &["t"], b"a").unwrap();
    keep(&old, "/b", &["u"], b"b").unwrap();
    let (new, _) = on_disk(dir.path(), 1 << 20);
    old.purge("site", &tag("before"), PurgeMode::Hard).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (store, purged) = (old.clone(), seen.clone());
    set_while_written(move || {
        let mut purged = purged.lock().unwrap();
        if purged.is_empty() {
            let number = store.purge("site", &tag("t"), PurgeMode::Hard);
            purged.push((number, store.recorded()));
        }
    });
    old.leave_folder().unwrap();
    let (number, recorded) = seen.lock().unwrap()[0];
    let number = number.expect("it is to be recorded");
    assert!(recorded < number);
    assert_eq!(old.recorded(), number);
    assert_eq!(old.purge("site", &tag("after"), PurgeMode::Hard), None);
    // The next process ends before it has taken the folder.
    drop(new);
    let (third, opened) = on_disk(dir.path(), 1 << 20);
    assert_eq!(opened, JournalState::Continued);
    assert_eq!((load(&third, "/a"), load(&third, "/b").unwrap()), (None, "b".into()));
}

#[test]
fn a_folder_is_left_however_many_purges_come_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let old = Arc::new(on_disk(dir.path(), 1 << 20).0);
    let store = old.clone();
    let purge = move || store.purge("site", &tag("t"), PurgeMode::Hard);
    let last = Arc::new(AtomicU64::new(purge().unwrap()));
    let recorded = last.clone();
    set_while_written(move || {
        if let Some(number) = purge() {
            recorded.store(number, Ordering::Relaxed);
        }
    });
    old.leave_folder().unwrap();
    assert_eq!(old.recorded(), last.load(Ordering::Relaxed));
    let (_, opened) = on_disk(dir.path(), 1 << 20);
    assert_eq!(opened, JournalState::Continued);
}

#[test]
fn pages_are_stored_and_purged_while_a_folder_changes_hands() {
    let dir = tempfile::tempdir().unwrap();
    let (old, _) = on_disk(dir.path(), 1 << 20);
    keep(&old, "/a", &["t"], b"a").unwrap();
    let (new, _) = on_disk(dir.path(), 1 << 20);
    let serve = |store: &Store, page: &str| {
        keep(store, page, &["t"], page.as_bytes()).unwrap();
        assert_eq!(load(store, page).unwrap(), page);
        store.purge("site", &tag("t"), PurgeMode::Hard);
        assert_eq!(load(store, page), None);
    };
    let is_on_it = |store: &Store| {
        while store.swept.try_lock().is_ok() {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        // Its disk does not respond.
        let stuck = old.folder();
        let leaves = scope.spawn(|| old.leave_folder());
        is_on_it(&old);
        serve(&old, "/b");
        drop(stuck);
        leaves.join().unwrap().unwrap();
        let stuck = new.folder();
        let claims = scope.spawn(|| new.claim_folder(|| NOW));
        is_on_it(&new);
        serve(&new, "/c");
        drop(stuck);
        assert_eq!(claims.join().unwrap().unwrap(), JournalState::Continued);
    });
    assert_eq!(load(&new, "/a"), None);
}

#[test]
fn a_folder_whose_journal_was_missing_at_the_start_is_not_used_if_purges_could_miss_its_pages() {
    for is_higher in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (old, _) = on_disk(dir.path(), 1 << 20);
        // Its own directory was handed over to it.
        old.purges.restore_last(if is_higher { APART + 5 } else { APART });
        keep(&old, "/a", &["t"], b"a").unwrap();
        keep(&old, "/b", &["u"], b"b").unwrap();
        old.folder().as_mut().unwrap().journal.discard().unwrap();
        let (new, opened) = on_disk(dir.path(), 1 << 20);
        assert_eq!(opened, JournalState::InUse);
        old.leave_folder().unwrap();
        new.purge("site", &tag("t"), PurgeMode::Hard);
        let expected = if is_higher { JournalState::Distrusted } else { JournalState::Continued };
        assert_eq!(new.claim_folder(|| NOW).unwrap(), expected);
        assert_eq!(load(&new, "/a"), None);
        assert_eq!(load(&new, "/b").is_none(), is_higher);
    }
}
