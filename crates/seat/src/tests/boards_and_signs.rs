//! What the front and other processes read of a pool: boards, signs and slots.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

use crate::board::SeatBoard;
use crate::layout::Layout;
use crate::*;

const SEATS: u32 = 3;
const THREADS: u32 = 2;

struct Pool {
    file: OwnedFd,
    front: FrontEnd,
}

fn pool() -> Pool {
    let file = create("boards", SEATS, THREADS).unwrap();
    let front = FrontEnd::take_over(&file, THREADS, 5).unwrap();
    Pool { file, front }
}

fn event() -> OwnedFd {
    rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap()
}

impl Pool {
    fn worker(&self, seat: u32, incarnation: u32) -> WorkerEnd {
        WorkerEnd::new(&self.file, vec![event(), event()], seat, incarnation).unwrap()
    }
}

fn is_empty(board: &SeatBoard) -> bool {
    let numbers = [
        &board.started_at,
        &board.request_at,
        &board.request_took,
        &board.requests,
        &board.content_length,
        &board.cpu_micros,
        &board.memory_peak,
        &board.private_bytes,
        &board.used_cpu,
        &board.used_core_wait,
        &board.request_since,
        &board.program_most,
        &board.started_since,
        &board.realpath_used,
        &board.realpath_limit,
    ];
    let texts = [board.method.get(), board.uri.get(), board.query.get(), board.script.get()];
    [&board.pid, &board.running].iter().all(|word| word.load(Relaxed) == 0)
        && numbers.iter().all(|word| word.load(Relaxed) == 0)
        && texts.iter().all(Vec::is_empty)
        && board.user.get().is_empty()
}

#[test]
fn a_new_worker_starts_with_an_empty_board_and_the_copies_of_its_seat_are_counted_on() {
    let pool = pool();
    let board = pool.front.seat_board(1);
    assert!(is_empty(board));
    board.pid.store(7, Relaxed);
    board.running.store(1, Relaxed);
    board.requests.store(3, Relaxed);
    board.program_most.store(4096, Relaxed);
    board.copies.went_back.store(9, Relaxed);
    for text in [&board.uri, &board.query, &board.script] {
        text.set(b"/srv/index.php");
    }
    board.method.set(b"GET");
    board.user.set(b"ann");
    assert!(!is_empty(board));
    board.clear();
    assert!(is_empty(board));
    assert_eq!(board.copies.went_back.load(Relaxed), 9);
}

#[test]
fn a_script_runs_since_its_start_by_the_monotonic_clock_or_else_by_the_wall_clock() {
    let pool = pool();
    let (board, now) = (pool.front.seat_board(0), Duration::from_secs(1000));
    board.request_since.store(7_000_000_000, Relaxed);
    assert_eq!(board.runs_since(now), None, "no script runs");
    board.running.store(1, Relaxed);
    assert_eq!(board.runs_since(now), Some(Duration::from_secs(7)));
    // A worker of an older version.
    board.request_since.store(0, Relaxed);
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let began = wall - Duration::from_secs(600);
    board.request_at.store(u64::try_from(began.as_micros()).unwrap(), Relaxed);
    let since = board.runs_since(now).unwrap();
    let (earliest, latest) = (Duration::from_secs(100), Duration::from_secs(400));
    assert!(since > earliest && since <= latest, "{since:?}");
}

#[test]
fn other_processes_read_the_boards_of_the_seats_that_there_are() {
    let pool = pool();
    let boards = Boards::map(&pool.file).unwrap();
    pool.front.board().accepted.store(12, Relaxed);
    assert_eq!(boards.pool().accepted.load(Relaxed), 12);
    for seat in 0..SEATS {
        pool.front.seat_board(seat).pid.store(100 + seat, Relaxed);
        assert_eq!(boards.seat(seat).unwrap().pid.load(Relaxed), 100 + seat);
    }
    assert!(boards.seat(SEATS).is_none() && boards.seat(u32::MAX).is_none());
    assert!(!boards.client_has_left(SEATS));
}

#[test]
fn only_a_running_script_whose_request_is_abandoned_has_lost_its_client() {
    let pool = pool();
    let boards = Boards::map(&pool.file).unwrap();
    let mut worker = pool.worker(2, 1);
    let (waits, _) = pool.front.offer(2, 4, 1, 0, b"waits");
    pool.front.leave(&waits);
    assert!(!boards.client_has_left(2), "it has not begun");
    assert!(pool.front.take_back(&waits));
    let (runs, _) = pool.front.offer(2, 3, 1, 0, b"runs");
    assert!(worker.try_claim());
    assert!(!boards.client_has_left(2), "its client waits");
    pool.front.leave(&runs);
    assert!(boards.client_has_left(2));
    assert!(!boards.client_has_left(0) && !boards.client_has_left(1));
    worker.finish();
    assert!(!boards.client_has_left(2), "it has ended");
}

#[test]
fn both_ends_know_where_they_are() {
    let pool = pool();
    assert_eq!((pool.front.seats(), pool.front.threads(), pool.front.epoch()), (SEATS, THREADS, 5));
    let before = std::time::Instant::now();
    let (assigned, _) = pool.front.offer(2, 7, 9, 1, b"x");
    assert_eq!((assigned.seat(), assigned.slot(), assigned.incarnation()), (2, 7, 9));
    assert!(assigned.at() >= before && assigned.at() <= std::time::Instant::now());
    let mut worker = pool.worker(2, 9);
    assert_eq!((worker.seat(), worker.seats()), (2, SEATS));
    assert!(!worker.has_request() && !worker.is_cut_off());
    assert!(worker.try_claim() && worker.has_request() && worker.assigned_at() > 0);
    worker.finish();
    assert!(!worker.has_request());
    assert_eq!(worker.verdict(), Verdict::ClientGone, "there is no request");
    assert_eq!(worker.pool_board().accepted.load(Relaxed), 0);
    worker.seat_board(1).pid.store(8, Relaxed);
    assert_eq!(pool.front.seat_board(1).pid.load(Relaxed), 8);
}

#[test]
fn a_worker_or_a_word_of_a_seat_that_the_pool_does_not_have_is_refused() {
    let pool = pool();
    let map = PoolMap::map(&pool.file, THREADS).unwrap();
    for seat in [SEATS, u32::MAX] {
        assert!(WorkerEnd::new(&pool.file, Vec::new(), seat, 1).is_err());
        assert!(map.worker_end(Vec::new(), seat, 1).is_err());
        assert!(map.sleep_word(seat).is_err());
    }
    assert!(map.sleep_word(SEATS - 1).is_ok());
}

#[test]
fn a_worker_that_inherits_the_mapping_serves_after_its_file_is_closed() {
    let Pool { file, front } = pool();
    let map = PoolMap::map(&file, THREADS).unwrap();
    drop(file);
    let mut worker = map.worker_end(vec![event(), event()], 1, 7).unwrap();
    let boards = map.boards();
    drop(map);
    let (assigned, _) = front.offer(1, 0, 7, 0, b"request");
    assert!(worker.try_claim());
    worker.seat_board(1).pid.store(8, Relaxed);
    assert_eq!(boards.seat(1).unwrap().pid.load(Relaxed), 8);
    worker.finish();
    assert_eq!(front.progress(&assigned), Ok(SlotProgress::Done));
}

#[test]
fn a_script_that_goes_on_and_a_full_cache_are_two_signs_of_one_request() {
    let pool = pool();
    let mut worker = pool.worker(0, 1);
    let signs = |assigned: &AssignedSlot| {
        (pool.front.goes_on(assigned), pool.front.finds_cache_full(assigned))
    };
    for report in [[false, false], [true, false], [false, true], [true, true]] {
        let (assigned, _) = pool.front.offer(0, 0, 1, 0, b"x");
        while !worker.try_claim() {}
        assert_eq!(signs(&assigned), (false, false), "none is of the request before");
        if report[0] {
            worker.report_continuation();
        }
        if report[1] {
            worker.report_cache_full();
        }
        assert_eq!(signs(&assigned), (report[0], report[1]));
        worker.finish();
        pool.front.release(assigned);
    }
}

#[test]
fn a_front_that_adopts_a_seat_waits_for_what_its_worker_runs_and_for_nothing_else() {
    let pool = pool();
    let slots = [0, 1, 2, 3];
    let mut worker = pool.worker(1, 8);
    let (done, _) = pool.front.offer(1, slots[0], 8, 0, b"done");
    assert!(worker.try_claim());
    assert_eq!(worker.write(b"what the other front has not read"), Verdict::Continue);
    worker.finish();
    let (runs, _) = pool.front.offer(1, slots[1], 8, 0, b"runs");
    assert!(worker.try_claim());
    let (waits, _) = pool.front.offer(1, slots[2], 8, 0, b"waits");
    let (stale, _) = pool.front.offer(1, slots[3], 7, 0, b"its predecessor's");
    let next = FrontEnd::take_over(&pool.file, THREADS, 6).unwrap();
    let adopted = next.adopt(1, 8, 1);
    let places: Vec<_> = adopted.iter().map(|slot| (slot.seat(), slot.slot())).collect();
    assert_eq!(places, [(1, done.slot()), (1, runs.slot())]);
    for slot in &adopted {
        assert!(!next.has_response(slot), "what was written is another front's");
    }
    assert_eq!(next.progress(&adopted[0]), Ok(SlotProgress::Done));
    assert_eq!(next.progress(&adopted[1]), Ok(SlotProgress::Running));
    assert_eq!(worker.verdict(), Verdict::ClientGone);
    let layout = Layout::map(&pool.file, THREADS).unwrap();
    for slot in [waits.slot(), stale.slot()] {
        assert_eq!(layout.slot(1, slot).state.get().0, SlotState::Free);
    }
    let threads = adopted.iter().map(|at| layout.slot(1, at.slot()).front.thread.load(Relaxed));
    assert!(threads.eq([1, 1]), "the new front's thread waits");
}

#[test]
fn a_worker_that_is_rewound_goes_on_counting_its_calls() {
    let pool = pool();
    let (mut worker, soon) = (pool.worker(0, 3), Duration::from_millis(1));
    let first = worker.last_call();
    pool.front.offer(0, 0, 3, 0, b"x");
    assert!(worker.try_claim());
    assert_eq!(worker.call(b"one", soon), None);
    assert_eq!(worker.last_call(), first + 1);
    let mut rewound = pool.worker(0, 3);
    rewound.set_last_call(worker.last_call());
    assert_eq!(rewound.last_call(), first + 1);
    assert_ne!(pool.worker(0, 4).last_call(), first, "another worker's are others");
}

#[test]
fn a_worker_whose_event_is_another_file_takes_no_second_request_though_the_front_is_awake() {
    let pool = pool();
    let file = || std::fs::File::options().write(true).open("/dev/null").unwrap().into();
    let mut worker = WorkerEnd::new(&pool.file, (0..THREADS).map(|_| file()).collect(), 0, 1);
    let worker = worker.as_mut().unwrap();
    pool.front.offer(0, 0, 1, 1, b"x");
    assert!(worker.try_claim());
    worker.finish();
    assert!(!worker.is_cut_off(), "it has not looked");
    pool.front.offer(0, 1, 1, 1, b"y");
    assert!(!worker.try_claim() && worker.is_cut_off());
    assert!(!worker.claim(), "it has to exit");
    // One with its events goes on.
    let mut other = pool.worker(1, 1);
    for slot in [0, 1] {
        pool.front.offer(1, slot, 1, 1, b"x");
        assert!(other.try_claim());
        other.finish();
    }
}

#[test]
fn a_worker_that_cannot_reach_its_front_is_cut_off() {
    let pool = pool();
    // A descriptor that a script has put in the place of the event.
    let events = (0..THREADS).map(|_| std::fs::File::open("/dev/null").unwrap().into());
    let mut worker = WorkerEnd::new(&pool.file, events.collect(), 0, 1).unwrap();
    pool.front.offer(0, 0, 1, 1, b"x");
    assert!(worker.try_claim());
    assert_eq!(worker.write(b"response"), Verdict::Continue);
    worker.show();
    assert!(!worker.is_cut_off(), "the front is awake");
    assert!(!worker.claim_unless(|| true), "and it leaves if it has to");
    let asleep = pool.front.announce_sleep(1);
    worker.finish();
    pool.front.awake(1, asleep);
    assert!(worker.is_cut_off());
    assert!(!worker.claim(), "it has to exit");
}
