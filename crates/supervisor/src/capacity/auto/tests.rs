use super::*;
use crate::capacity::memory_reads::count_at_once;

/// Files of a machine with so much memory, in megabytes.
struct Small {
    total: u64,
    available: u64,
}

impl Files for Small {
    fn read(&self, path: &str) -> Option<String> {
        let (total, available) = (self.total * 1024, self.available * 1024);
        let text = format!("MemTotal: {total} kB\nMemAvailable: {available} kB\n");
        (path == "/proc/meminfo").then_some(text)
    }
}

const NOW: Moment = Moment::ZERO;

impl CapacityManager {
    /// Measures some workers, whose pages are counted at once.
    fn measure_at_once(&mut self, files: &dyn Files, pools: &[SizedPool]) {
        let mut reads = MemoryReads::default();
        self.measure(files, pools, &mut reads, NOW);
        for reading in count_at_once(&mut reads, NOW) {
            self.take_reading(files, &reading);
        }
        assert!(!self.are_awaited());
    }

    fn check(&mut self, now: Moment, files: &dyn Files, pools: &[SizedPool]) {
        self.measure_at_once(files, pools);
        self.look(now, files, &CheckedPools { sized: pools, jobs: &[], groups: &[] });
    }
}

fn pool(name: &str, workers: Vec<i32>) -> SizedPool<'static> {
    SizedPool {
        name: name.to_owned(),
        workers,
        coming: 0,
        requests: 0,
        counters: Vec::new(),
        group: None,
    }
}

fn looked(total: u64, available: u64) -> CapacityManager {
    let mut room = CapacityManager::default();
    let files = Small { total, available };
    room.check(NOW, &files, &[pool("www", Vec::new())]);
    room
}

#[test]
fn a_pool_gets_the_workers_there_is_memory_for() {
    // 1600 MB are free beside a tenth of 4000, and a worker takes 128 until it was measured.
    assert_eq!(looked(4000, 2000).workers("www", 3), 12);
    assert_eq!(looked(0, 0).workers("www", 3), 3, "nothing can be read");
}

/// A large machine with a pool's group that has 2000 MB, of which this many are in use.
struct Apart(u64);

impl Files for Apart {
    fn read(&self, path: &str) -> Option<String> {
        let megabytes = match path {
            "/group/memory.max" => 2000,
            "/group/memory.current" => self.0,
            "/group/memory.high" => return Some("max\n".to_owned()),
            _ => {
                let (total, available) = (16_000, 14_000);
                return Small { total, available }.read(path);
            }
        };
        Some(format!("{}\n", megabytes << 20))
    }
}

#[test]
fn a_pool_has_no_more_processors_than_its_own_group_allows() {
    let room = looked(4000, 2000);
    assert!(room.cores >= 1000, "{}", room.cores);
    assert_eq!(room.cores_within(Some(500)), 500);
    assert_eq!(room.cores_within(Some(u32::MAX)), room.cores);
    assert_eq!(room.cores_within(None), room.cores);
}

#[test]
fn a_pool_gets_no_more_workers_than_its_own_group_has_memory_for() {
    let mut room = CapacityManager::default();
    let mut limited = pool("www", Vec::new());
    limited.group = Some("/group".into());
    let pools = [limited, pool("other", Vec::new())];
    room.check(NOW, &Apart(520), &pools);
    assert_eq!(room.workers("www", 3), 10, "1280 MB of 2000 are free");
    assert_eq!(room.workers("other", 3), 96, "12,400 MB of 16,000 are");
    let later = NOW + 2 * STIRRED_FOR;
    assert_eq!(room.wait(later, 2), STEADY_LOOK_EVERY);
    room.check(later, &Apart(1950), &pools);
    assert_eq!(room.workers("www", 10), 8);
    assert_eq!(room.wait(later, 2), LOOK_EVERY, "its own is nearly full");
}

/// A machine that is nearly full, and the number of pages that it has read from swap. A pool's
/// group has 2000 MB.
struct Swapping {
    pages: u64,
    /// In use in the group, in megabytes.
    used: u64,
}

impl Files for Swapping {
    fn read(&self, path: &str) -> Option<String> {
        match path {
            "/proc/vmstat" => Some(format!("pswpin {}\n", self.pages)),
            "/proc/meminfo" => Small { total: 16_000, available: 2000 }.read(path),
            _ => Apart(self.used).read(path),
        }
    }
}

#[test]
fn a_pool_that_swaps_at_its_own_limit_makes_no_other_smaller() {
    let workers = |used: u64| {
        let mut room = CapacityManager::default();
        let (sized, groups) = ([pool("other", Vec::new())], [PathBuf::from("/group")]);
        for pages in 1..3 {
            let files = Swapping { pages, used };
            let checked = CheckedPools { sized: &sized, jobs: &[], groups: &groups };
            room.look(NOW, &files, &checked);
        }
        room.workers("other", 10)
    };
    assert_eq!(workers(1950), 10);
    assert_eq!(workers(1000), 9, "the machine itself swaps");
}

#[test]
fn it_is_looked_more_often_where_something_changes_or_memory_is_nearly_full() {
    let mut room = looked(4000, 3000);
    let later = NOW + 2 * STIRRED_FOR;
    assert_eq!(room.wait(NOW, 2), STEADY_LOOK_EVERY, "there is plenty");
    assert_eq!(looked(4000, 1900).wait(NOW, 1), LOOK_SOON);
    assert_eq!(room.wait(later, 1), CALM_LOOK_EVERY);
    assert_eq!(room.wait(later, 2), STEADY_LOOK_EVERY);
    room = looked(4000, 900);
    assert_eq!(room.wait(later, 1), LOOK_EVERY);
}

/// Notes whose pages were looked at.
struct Noted(std::cell::RefCell<HashSet<String>>);

impl Files for Noted {
    fn read(&self, path: &str) -> Option<String> {
        self.0.borrow_mut().insert(path.to_owned());
        None
    }
}

#[test]
fn however_many_workers_there_are_a_look_measures_no_more_and_the_next_goes_on() {
    let ours = std::process::id() as i32;
    let many = |number: i32| pool(&format!("p{number:03}"), vec![ours, -number]);
    let pools: Vec<SizedPool> = (1..=100).map(many).collect();
    let (mut room, mut seen) = (CapacityManager::default(), HashSet::new());
    for _ in 0..50 {
        let read = read_by(&mut room, &pools);
        assert!(read <= most_read(BUDGET), "{read}");
        seen.insert(room.next);
    }
    assert!(seen.len() > 5, "{seen:?}");
    let read = read_by(&mut looked(16_000, 14_000), &pools);
    assert!(read <= most_read(CALM_BUDGET), "{read}");
    assert!(read > 0);
}

#[test]
fn a_pool_that_takes_the_whole_budget_leaves_the_next_look_to_others() {
    let ours = std::process::id() as i32;
    // Of those nothing is ever known, so that they are always new.
    let cold = pool("cold", (-8..0).collect());
    let pools = [cold, pool("other", vec![ours])];
    let mut room = looked(16_000, 14_000);
    let files = Noted(std::cell::RefCell::default());
    (0..pools.len()).for_each(|_| room.measure_at_once(&files, &pools));
    let read = files.0.into_inner();
    assert!(read.contains(&format!("/proc/{ours}/statm")), "{read:?}");
}

/// Each worker has served three requests. Counts how often the counters were read.
struct Young(std::cell::Cell<u32>);

impl CounterSource for Young {
    fn reported_by_workers(&self) -> HashMap<i32, WorkerCounters> {
        self.0.set(self.0.get() + 1);
        let (program, requests) = (0, 3);
        HashMap::from([(std::process::id() as i32, WorkerCounters { program, requests })])
    }
}

#[test]
fn a_worker_that_may_be_young_is_asked_until_it_is_known_what_it_keeps_though_others_are_counted() {
    let young = Young(std::cell::Cell::new(0));
    let mut ours = pool("www", vec![std::process::id() as i32]);
    ours.counters = vec![&young];
    // Of the others nothing is ever known, and each takes what may be counted when it is the first.
    let cold = |name| pool(name, (-8..0).collect());
    let pools = [ours, cold("one"), cold("two"), cold("three")];
    let mut room = looked(16_000, 14_000);
    let mut asked = || {
        room.measure_at_once(&Machine, &pools);
        young.0.take()
    };
    let asked: Vec<u32> = (0..8).map(|_| asked()).collect();
    assert_eq!(asked, [1, 1, 0, 0, 1, 0, 0, 0]);
}

#[test]
fn what_is_known_of_a_pool_stays_while_another_generation_of_it_is_on_trial() {
    let ours = std::process::id() as i32;
    let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let pid = other.id() as i32;
    let current = || pool("www", vec![ours]);
    let mut room = looked(16_000, 14_000);
    room.check(NOW, &Machine, &joined([current()].into_iter()));
    let on_trial = || {
        let mut pool = pool("www", vec![pid]);
        pool.coming = 2;
        pool
    };
    for _ in 0..2 {
        let both = joined([current(), pool("other", Vec::new()), on_trial()].into_iter());
        let all: Vec<(&str, usize)> = both.iter().map(|pool| (&*pool.name, pool.coming)).collect();
        assert_eq!(all, [("www", 2), ("other", 0)]);
        room.check(NOW, &Machine, &both);
    }
    let mut budget = Budget { exactly: 0, roughly: 2 };
    let measured = room.rooms.due("www", &[ours, pid], 0, &mut budget);
    assert_eq!(measured.len(), 2, "{measured:?}");
    other.kill().unwrap();
    other.wait().unwrap();
}

/// Files that are read to measure workers once.
fn read_by(room: &mut CapacityManager, pools: &[SizedPool]) -> usize {
    let files = Noted(std::cell::RefCell::default());
    room.measure_at_once(&files, pools);
    files.0.into_inner().len()
}

fn most_read(budget: Budget) -> usize {
    3 * (budget.exactly + budget.roughly)
}

#[test]
fn a_file_of_the_kernel_with_bytes_that_are_not_utf_8_is_read() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"31 25 0:27 / /srv/\xff/c rw - tmpfs tmpfs rw\n").unwrap();
    let text = Machine.read(file.path().to_str().unwrap());
    assert_eq!(text.as_deref(), Some("31 25 0:27 / /srv/\u{fffd}/c rw - tmpfs tmpfs rw\n"));
}
