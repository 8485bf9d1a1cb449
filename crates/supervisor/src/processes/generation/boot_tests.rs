//! Workers that boot a script: when requests go to them, and what becomes of those that do not
//! boot.

use super::*;
use crate::limits::{BACKOFF_FIRST, LEAVE};
use maitred_config::ProcessManager;
use maitred_control::Incarnation;

const LIMIT: Duration = Duration::from_secs(5);
const SEAT: Seat = 0;
const PID: i32 = 100;

/// A pool of one worker, which is about to boot.
fn booting() -> (GenerationState, Incarnation) {
    let mut configured = maitred_config::Pool::named("www");
    configured.pm = ProcessManager::Static;
    let pool = GenerationState::new(1 + SPARE_SEATS, Growth::of(&configured, 1));
    let mut pool = pool.booting(Some(LIMIT));
    pool.on(GenerationEvent::Tick, Moment::ZERO);
    let incarnation = ordered(&pool.on(GenerationEvent::ZygoteStarted, Moment::ZERO));
    adopt(&mut pool, incarnation, PID, Moment::ZERO);
    (pool, incarnation)
}

fn ordered(actions: &[GenerationAction]) -> Incarnation {
    let order = actions.iter().find_map(|action| match action {
        GenerationAction::Fill { worker } => Some(worker.incarnation),
        _ => None,
    });
    order.expect("a worker is ordered")
}

fn adopt(pool: &mut GenerationState, incarnation: Incarnation, pid: i32, now: Moment) {
    let seat = SEAT;
    let announced = GenerationEvent::Announced { worker: WorkerId { seat, incarnation }, pid };
    pool.on(announced, now);
    let adopted = pool.on(GenerationEvent::Adopted { pid }, now);
    assert!(!adopted.iter().any(is_open), "{adopted:?}");
}

fn is_open(action: &GenerationAction) -> bool {
    matches!(action, GenerationAction::Open { .. })
}

fn end(pool: &mut GenerationState, code: i32, now: Moment) -> (BootState, Duration) {
    let how = HowEnded::Exited(code);
    let actions = pool.on(GenerationEvent::Ended { pid: PID, how, served: false }, now);
    let reported = actions.into_iter().find_map(|action| match action {
        GenerationAction::Report { boot, retry, .. } => Some((boot, retry)),
        _ => None,
    });
    reported.expect("a report")
}

#[test]
fn requests_go_to_a_worker_when_its_script_has_booted() {
    let (mut pool, incarnation) = booting();
    assert!(!pool.is_full() && pool.is_seated() && pool.seated().next().is_none());
    assert_eq!((pool.coming(), pool.deadline()), (1, Some(LIMIT)));
    let seat = SEAT;
    let stale = incarnation + 1;
    let stale = pool.on(
        GenerationEvent::Booted { worker: WorkerId { seat, incarnation: stale } },
        Moment::ZERO,
    );
    assert!(stale.is_empty(), "{stale:?}");
    let booted =
        pool.on(GenerationEvent::Booted { worker: WorkerId { seat, incarnation } }, Moment::ZERO);
    assert!(booted.iter().any(is_open), "{booted:?}");
    assert!(pool.is_full());
    let again =
        pool.on(GenerationEvent::Booted { worker: WorkerId { seat, incarnation } }, Moment::ZERO);
    assert!(again.is_empty(), "{again:?}");
}

#[test]
fn a_script_that_boots_before_its_worker_is_seen_to_be_ours_is_not_overheard() {
    let (mut pool, _) = booting();
    let (_, retry) = end(&mut pool, exit::NOT_BOOTED, Moment::ZERO);
    let incarnation = ordered(&pool.on(GenerationEvent::Tick, retry));
    let (seat, pid) = (SEAT, PID + 1);
    let announced = GenerationEvent::Announced { worker: WorkerId { seat, incarnation }, pid };
    pool.on(announced, retry);
    pool.on(GenerationEvent::Booted { worker: WorkerId { seat, incarnation } }, retry);
    let adopted = pool.on(GenerationEvent::Adopted { pid }, retry);
    assert!(adopted.iter().any(is_open), "{adopted:?}");
}

#[test]
fn a_script_that_does_not_boot_is_tried_again_after_a_pause_however_long_it_took() {
    let (mut pool, _) = booting();
    let late = LIMIT - BACKOFF_FIRST;
    let (boot, retry) = end(&mut pool, exit::NOT_BOOTED, late);
    assert_eq!((boot, retry), (BootState::Until(LIMIT), BACKOFF_FIRST));
    assert!(pool.boots_in_vain());
    let incarnation = ordered(&pool.on(GenerationEvent::Tick, late + retry));
    adopt(&mut pool, incarnation, PID, late + retry);
    let (_, longer) = end(&mut pool, exit::NOT_BOOTED, late + retry);
    assert!(longer > retry, "{longer:?}");
}

#[test]
fn a_boot_that_takes_too_long_is_killed() {
    let (mut pool, _) = booting();
    let killed = pool.on(GenerationEvent::Tick, LIMIT);
    assert!(killed.contains(&GenerationAction::KillWorker { pid: PID }), "{killed:?}");
    let (boot, _) = end(&mut pool, exit::RECYCLED + 1, LIMIT);
    assert_eq!(boot, BootState::Late);
}

#[test]
fn who_boots_for_a_generation_that_leaves_is_let_go() {
    let (mut pool, _) = booting();
    let left = pool.on(GenerationEvent::Leave, Moment::ZERO);
    assert!(left.contains(&GenerationAction::DismissWorker { pid: PID }), "{left:?}");
    let late = pool.on(GenerationEvent::Tick, LEAVE);
    assert!(late.contains(&GenerationAction::KillWorker { pid: PID }), "{late:?}");
}

#[test]
fn a_boot_goes_on_through_an_upgrade() {
    let (pool, incarnation) = booting();
    let handed_over: Vec<(Seated, WorkerMark)> = pool.all_seated().collect();
    assert_eq!(handed_over.iter().map(|(_, mark)| *mark).collect::<Vec<_>>(), [WorkerMark::Boots]);
    let (mut after, _) = booting();
    after.take_over(&handed_over, true, false, Moment::ZERO);
    let seat = SEAT;
    let booted =
        after.on(GenerationEvent::Booted { worker: WorkerId { seat, incarnation } }, Moment::ZERO);
    assert!(booted.iter().any(is_open), "{booted:?}");
}
