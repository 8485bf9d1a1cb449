//! The requests of a pool for workers.

use std::cell::RefCell;

use maitred_config::ProcessManager;
use maitred_control::{Received, hear_report};
use maitred_os::channel::{Channel, SupervisorEnd};
use maitred_sizing::cost::Spent;

use super::*;
use crate::pool::growth::{Growth, tend};
use crate::pool::queue::Priority;

const REQUEST: QueueRequest = QueueRequest {
    priority: Priority::Normal,
    max_wait: Duration::from_secs(30),
    kind: 0,
    route: 0,
};

const SEAT: SeatId = SeatId { generation: 1, number: 0 };

/// A pool of zero to four workers with a queue of `length` requests, and the other end of its
/// channel.
fn pool(pm: ProcessManager, length: usize) -> (Arc<Pool>, RefCell<SupervisorEnd>) {
    let (theirs, ours) = Channel::pair().unwrap();
    let mut settings = Settings::named("www");
    settings.pm = pm;
    settings.min_spare_servers = Some(0);
    let growth = Growth::of(&settings, 4);
    let inboxes: Arc<[Inbox]> = Arc::new([Inbox::default()]);
    let supervisor = Arc::new(Supervisor::new(ours));
    let (settings, calls) = (Arc::new(settings), WorkerCalls::default());
    let pool = Pool::new(settings, inboxes, supervisor, Arc::default(), &calls, false);
    let pool = Arc::new(pool);
    let mut state = pool.lock();
    state.queue.add(1, 4, 0);
    state.queue.replace(1, 4, length);
    state.growth = growth;
    drop(state);
    (pool, RefCell::new(theirs))
}

/// The numbers of workers that were requested, one after the other.
fn asked(supervisor: &RefCell<SupervisorEnd>) -> Vec<u32> {
    let wanted = |report| match report {
        FromFront::WorkersNeeded { workers, .. } => Some(workers),
        _ => None,
    };
    reports(supervisor).into_iter().filter_map(wanted).collect()
}

/// The reports to the supervisor.
fn reports(supervisor: &RefCell<SupervisorEnd>) -> Vec<FromFront> {
    let mut reports = Vec::new();
    while let Ok(Received::Message(report, _)) = hear_report(&mut supervisor.borrow_mut()) {
        reports.push(report);
    }
    reports
}

/// A worker arrives, and gets a request.
fn one_comes_and_is_busy(pool: &Arc<Pool>) {
    let mut state = pool.lock();
    state.queue.arrive(SEAT.worker(1), Vec::new());
    let busy = Exchange::new(pool.clone(), 0, Vec::new(), REQUEST);
    let placed = state.queue.submit(busy, REQUEST.priority, pool.depth());
    assert!(matches!(placed, Submission::Placed(_)));
}

/// A pool with `pm = auto` and one busy worker, and a request that waits for a second one.
fn with_one_busy() -> (Arc<Pool>, RefCell<SupervisorEnd>, Arc<Exchange>) {
    let (pool, supervisor) = pool(ProcessManager::Auto, 100);
    one_comes_and_is_busy(&pool);
    let waiting = pool.submit(0, Vec::new(), REQUEST).unwrap();
    assert_eq!(asked(&supervisor), [2]);
    (pool, supervisor, waiting)
}

#[test]
fn where_nobody_may_wait_whoever_is_refused_asks_for_a_worker() {
    for pm in [ProcessManager::Auto, ProcessManager::Ondemand] {
        let (pool, supervisor) = pool(pm, 0);
        let refused = pool.submit(0, Vec::new(), REQUEST).err();
        assert_eq!(refused, Some(RequestOutcome::QueueFull));
        assert_eq!(asked(&supervisor), [1], "{pm:?}");
        assert_eq!(pool.would_reject(REQUEST), refused);
        let again = asked(&supervisor);
        assert!(again.is_empty(), "one is on its way: {again:?}");
        one_comes_and_is_busy(&pool);
        assert_eq!(pool.would_reject(REQUEST), refused);
        assert_eq!(asked(&supervisor), [2], "{pm:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_while_there_is_no_worker_has_one_asked_for_though_that_was_done_before() {
    let (pool, supervisor) = pool(ProcessManager::Auto, 100);
    tokio::spawn(tend(Arc::downgrade(&pool)));
    let first = pool.submit(0, Vec::new(), REQUEST).unwrap();
    assert_eq!(asked(&supervisor), [1]);
    // The front has no descriptor for the new worker, and the client leaves: the supervisor then
    // knows of no request that needs one.
    pool.give_back(SEAT.worker(1));
    assert!(pool.cancel(&first));
    tokio::time::sleep(Duration::from_secs(5)).await;
    asked(&supervisor);
    let second = pool.submit(0, Vec::new(), REQUEST).unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(asked(&supervisor).first(), Some(&1));
    assert!(pool.cancel(&second));
}

/// A seat of a worker that the front has no descriptor for.
const OTHER_SEAT: SeatId = SeatId { generation: 1, number: 1 };

#[tokio::test(start_paused = true)]
async fn who_waits_beside_a_busy_worker_has_another_asked_for_when_one_was_given_back() {
    let (pool, supervisor, waiting) = with_one_busy();
    tokio::spawn(tend(Arc::downgrade(&pool)));
    pool.give_back(OTHER_SEAT.worker(1));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(asked(&supervisor), [2]);
    assert!(pool.cancel(&waiting));
}

#[tokio::test(start_paused = true)]
async fn who_was_asked_for_before_a_late_word_of_one_that_goes_is_asked_for_again_after_it() {
    let (pool, supervisor, waiting) = with_one_busy();
    while pool.supervisor.report(&FromFront::Alive) {}
    pool.give_back(OTHER_SEAT.worker(1));
    reports(&supervisor);
    // It accepts reports again, and gets the request for a third worker before the report of the
    // retired one.
    let third = pool.submit(0, Vec::new(), REQUEST).unwrap();
    assert_eq!(asked(&supervisor), [3]);
    tokio::spawn(tend(Arc::downgrade(&pool)));
    tokio::time::sleep(Duration::from_secs(3)).await;
    let told = reports(&supervisor);
    let told = told.as_slice();
    let is_asked_again = matches!(
        told,
        [
            FromFront::SeatRetired { worker: maitred_control::WorkerId { seat: 1, .. }, .. },
            FromFront::WorkersNeeded { workers: 3, .. }
        ]
    );
    assert!(is_asked_again, "{told:?}");
    assert!(pool.cancel(&waiting) && pool.cancel(&third));
}

#[test]
fn a_limited_route_gets_back_what_requests_have_paid_that_reach_no_worker() {
    let (pool, _supervisor) = pool(ProcessManager::Auto, 100);
    one_comes_and_is_busy(&pool);
    let crashing = QueueRequest { route: 1, ..REQUEST };
    let limit = || {
        for _ in 0..100 {
            pool.lock().crashes.crashed(crashing.route, clock::monotonic());
        }
    };
    limit();
    assert_eq!(pool.submit(0, Vec::new(), crashing).err(), Some(RequestOutcome::CrashLimit));
    pool.lock().crashes.refund(crashing.route);
    for number in 0..100 {
        let waiting = pool.submit(0, Vec::new(), crashing);
        let waiting = waiting.unwrap_or_else(|why| panic!("{why:?}, number {number}"));
        assert!(pool.cancel(&waiting));
    }
    // Neither do those cost it anything that find no place.
    pool.lock().queue.waiting.set_limit(0);
    for _ in 0..100 {
        let refused = pool.submit(0, Vec::new(), crashing).err();
        assert_eq!(refused, Some(RequestOutcome::QueueFull));
    }
}

#[test]
fn the_load_of_a_pool_is_the_part_of_its_processors_that_it_uses_however_few_it_has() {
    let (pool, _supervisor) = pool(ProcessManager::Auto, 100);
    let mut state = pool.lock();
    state.meter.arrived(maitred_scoreboard::now());
    let spent = Spent { cpu: Duration::from_secs(1), ..Spent::default() };
    state.meter.ended(maitred_scoreboard::now(), 0, spent);
    drop(state);
    for thousandths in [500, 16_000] {
        pool.set_capacity(thousandths, None);
        let load = pool.load_now();
        let part = load.cores * 1000.0 / f64::from(thousandths);
        assert!(load.cores > 0.0 && (load.value - part).abs() < 0.01 * part, "{load:?}");
    }
}
