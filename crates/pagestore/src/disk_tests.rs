//! Tests of the disk tier.

use std::sync::Arc;

use super::*;
use crate::object::tests::{key, page};

fn open(dir: &Path, max_size: u64) -> Disk {
    let limits = DiskLimits { dir: dir.join("pages"), max_size, inactive: 600_000 };
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
    let Fetched::Entry(entry) = disk.read(&key(name), now(), |_| Ok(())) else {
        return None;
    };
    match entry {
        Entry::Page(page) => Some(Bytes::clone(&page.body)),
        Entry::Varies(_) => None,
    }
}

#[test]
fn stored_pages_are_found_after_a_restart_before_any_sweep() {
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
fn a_small_page_counts_with_the_block_that_it_takes() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path(), 40 << 10);
    for number in 0..100 {
        put(&disk, &number.to_string(), &[0; 500]);
    }
    assert_eq!(disk.size(), (40 << 10, 10));
    // The same as found after a restart, by a sweep and by a request.
    let swept = open(dir.path(), 40 << 10);
    swept.sweep(now(), None).unwrap();
    assert_eq!(swept.size(), (40 << 10, 10));
    let again = open(dir.path(), 40 << 10);
    assert!(body(&again, "99").is_some());
    assert_eq!(again.size(), (4 << 10, 1));
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
    assert_eq!(swept, SweepResult { kept: 1, removed: 2 });
    assert_eq!(again.size().1, 1);
    let later = now() + 2 * ABANDONED_MILLIS;
    again.clear_begun(now()).unwrap();
    assert!(begun.exists());
    assert_eq!(again.sweep(later, None).unwrap(), SweepResult { kept: 0, removed: 1 });
    again.clear_begun(later).unwrap();
    assert!(!begun.exists());
}

/// Runs on a thread to which modes apply even if root runs the tests.
pub(crate) fn without_capabilities(run: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective = rustix::thread::CapabilitySet::empty();
            rustix::thread::set_capabilities(None, sets).unwrap();
            run();
        });
        run.join().unwrap();
    });
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_sweep_goes_on_after_a_folder_that_it_cannot_read() {
    let dir = tempfile::tempdir().unwrap();
    without_capabilities(|| {
        let disk = open(dir.path(), 1 << 20);
        for name in ["a", "b", "c"] {
            put(&disk, name, b"body");
        }
        // As in a volume's mount point; and a folder that has the name of one of pages.
        let [foreign, ours] = ["lost+found", "00"].map(|name| disk.limits.dir.join(name));
        fs::create_dir(&foreign).unwrap();
        set_mode(&foreign, 0);
        set_mode(&disk.path(&digest(&key("a"))), 0);
        let swept = disk.sweep(now(), Some(&mut |_, _| true)).unwrap();
        assert_eq!(swept, SweepResult { kept: 2, removed: 1 });
        fs::create_dir(&ours).unwrap();
        set_mode(&ours, 0);
        let error = disk.sweep(now() + 2 * 600_000, None).unwrap_err().to_string();
        assert!(error.contains("/00: "), "{error}");
        assert!(["b", "c"].iter().all(|name| body(&disk, name).is_none()));
        [foreign, ours].iter().for_each(|folder| set_mode(folder, 0o700));
    });
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

#[test]
fn where_no_file_can_be_removed_writing_pauses_and_all_of_them_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let max_size = 100_000;
    let names: Vec<String> = (0..30).map(|number| number.to_string()).collect();
    let (ends, end) = std::sync::mpsc::channel();
    let path = dir.path().to_owned();
    // A thread that would never end fails the test all the same.
    std::thread::spawn(move || {
        without_capabilities(|| {
            let disk = open(&path, 1 << 20);
            names.iter().for_each(|name| put(&disk, name, &[0; 5000]));
            let folders: Vec<PathBuf> =
                names.iter().map(|name| disk.path(&digest(&key(name)))).collect();
            let set_modes = |mode| {
                folders.iter().for_each(|file| set_mode(file.parent().unwrap(), mode));
            };
            set_modes(0o500);
            let again = open(&path, max_size);
            let start = now();
            let swept = again.sweep(start, None);
            let (size, is_paused) = (again.size(), again.is_paused(start));
            set_modes(0o700);
            again.sweep(start + 1, None).unwrap();
            ends.send((swept.unwrap().kept, size, is_paused, again.size())).unwrap();
        });
    });
    let (kept, size, is_paused, later_size) =
        end.recv_timeout(std::time::Duration::from_secs(60)).expect("the sweep ends");
    assert_eq!((kept, size.1, is_paused), (30, 30, true));
    assert!(size.0 > max_size && later_size.0 <= max_size, "{size:?} {later_size:?}");
}

#[test]
fn links_and_fifos_in_place_of_a_page_are_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path(), 1 << 20);
    put(&disk, "a", b"body");
    let path = disk.path(&digest(&key("a")));
    let aside = dir.path().join("aside");
    let replace = |kind: &str| match kind {
        "link" => std::os::unix::fs::symlink(&aside, &path).unwrap(),
        "pipe" => {
            let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
            let kind = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        }
        "socket" => drop(std::os::unix::net::UnixListener::bind(&path).unwrap()),
        _ => fs::create_dir(&path).unwrap(),
    };
    fs::rename(&path, &aside).unwrap();
    for kind in ["link", "pipe", "socket"] {
        replace(kind);
        assert_eq!(body(&disk, "a"), None, "{kind}");
        assert!(fs::symlink_metadata(&path).is_err(), "{kind}");
        replace(kind);
        let swept = disk.sweep(now(), Some(&mut |_, _| true)).unwrap();
        assert_eq!((swept.kept, swept.removed), (0, 1), "{kind}");
    }
    assert!(aside.exists());
    replace("folder");
    assert_eq!(body(&disk, "a"), None);
    let entry = Entry::Page(Arc::new(page("a", &[], 0, b"new")));
    assert!(disk.write(&key("a"), &entry, now()).is_err());
    assert_eq!(disk.size(), (0, 0));
    assert!(disk.sweep(now(), None).is_ok());
    put(&disk, "b", b"others are kept all the same");
}

#[test]
fn who_takes_all_files_away_leaves_an_empty_store_and_no_broken_one() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path(), 1 << 20);
    put(&disk, "a", b"body");
    fs::remove_dir_all(&disk.limits.dir).unwrap();
    assert_eq!(body(&disk, "a"), None);
    assert_eq!(disk.size(), (0, 0));
    assert_eq!(disk.sweep(now(), None).unwrap(), SweepResult::default());
    put(&disk, "a", b"again");
    assert_eq!(body(&disk, "a").unwrap(), "again");
}

#[test]
fn a_clock_that_is_set_back_makes_no_pause_last_and_no_file_stay() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path(), 1 << 20);
    let begun = disk.limits.dir.join(BEGUN);
    fs::remove_dir(&begun).unwrap();
    fs::write(&begun, b"").unwrap();
    let entry = Entry::Page(Arc::new(page("a", &[], 0, b"new")));
    let (start, day) = (now(), 86_400_000);
    assert!(disk.write(&key("a"), &entry, start + day).is_err());
    fs::remove_file(&begun).unwrap();
    fs::create_dir(&begun).unwrap();
    assert!(disk.write(&key("a"), &entry, start).is_ok());
    disk.touch(&key("a"), start + day);
    disk.sweep(start, None).unwrap();
    disk.touch(&key("a"), start);
    let later = start + 2 * 600_000;
    assert_eq!(disk.sweep(later, None).unwrap().removed, 1);
}

#[test]
fn a_leftover_temporary_file_with_our_pid_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path(), 1 << 20);
    let mine = disk.limits.dir.join(BEGUN).join(format!("{}-0", std::process::id()));
    let aside = dir.path().join("aside");
    fs::write(&aside, b"not ours").unwrap();
    std::os::unix::fs::symlink(&aside, mine).unwrap();
    put(&disk, "a", b"body");
    assert_eq!(body(&disk, "a").unwrap(), "body");
    assert_eq!(fs::read(&aside).unwrap(), b"not ours");
    let mode = fs::metadata(disk.path(&digest(&key("a")))).unwrap().mode();
    assert_eq!(mode & 0o077, 0);
}

#[test]
fn what_is_as_long_as_no_page_of_ours_is_not_read_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path(), 1 << 20);
    put(&disk, "a", b"body");
    let path = disk.path(&digest(&key("a")));
    // Sparse: it would take all the memory there is, and none of the disk.
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(1 << 40).unwrap();
    assert_eq!(body(&disk, "a"), None);
    assert!(!path.exists());
    let other = fs::File::create(&path).unwrap();
    other.set_len(1 << 29).unwrap();
    assert_eq!(body(&disk, "a"), None);
    assert_eq!(disk.damaged(), 2);
}

#[test]
fn a_site_that_fills_the_disk_evicts_its_own_pages() {
    let dir = tempfile::tempdir().unwrap();
    let disk = open(dir.path(), 400_000);
    let key = |site: u8, number: u32| {
        let parts = [&[0, 0, 0, 1, site][..], &number.to_be_bytes()];
        Key::of(parts.concat()).unwrap()
    };
    let put = |site, number| {
        let entry = Entry::Page(Arc::new(page("/", &[], 0, &[0; 10_000])));
        disk.write(&key(site, number), &entry, now()).unwrap();
    };
    (0..10).for_each(|number| put(b'a', number));
    (0..200).for_each(|number| put(b'b', number));
    assert!(disk.evicted() > 100);
    let is_there = |number: &u32| {
        let read = disk.read(&key(b'a', *number), now(), |_| Ok(()));
        matches!(read, Fetched::Entry(_))
    };
    assert_eq!((0..10).filter(is_there).count(), 10);
}
