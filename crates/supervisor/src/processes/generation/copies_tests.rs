//! A pool whose workers are copies of a booted application.

use std::time::Duration;

use maitred_config::{Config, Mode, ProcessManager};
use maitred_control::Incarnation;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn pool(pm: ProcessManager, limit: u32) -> GenerationState {
    let config = Config::for_directory("/".as_ref(), Vec::new(), Some(limit)).unwrap();
    let configured = maitred_config::Pool { pm, mode: Mode::Snapshot, ..config.pools[0].clone() };
    let mut pool = GenerationState::new(limit + SPARE_SEATS, Growth::of(&configured, limit));
    assert!(pool.on(GenerationEvent::Tick, SECOND).contains(&GenerationAction::StartZygote));
    pool
}

fn fills(actions: &[GenerationAction]) -> Vec<(Seat, Incarnation)> {
    let fills = actions.iter().filter_map(|action| match action {
        GenerationAction::Fill { worker: WorkerId { seat, incarnation } } => {
            Some((*seat, *incarnation))
        }
        _ => None,
    });
    fills.collect()
}

#[test]
fn a_copy_in_its_zygotes_last_words_keeps_its_seat_and_the_others_are_ordered_again() {
    let mut pool = pool(ProcessManager::Static, 1);
    let ordered = pool.on(GenerationEvent::ZygoteStarted, SECOND);
    assert_eq!(fills(&ordered), [(0, 1), (1, 1), (2, 1)]);
    let now = 10 * SECOND;
    let announced =
        GenerationEvent::Announced { worker: WorkerId { seat: 0, incarnation: 1 }, pid: 10 };
    assert_eq!(pool.on(announced, now), [GenerationAction::CheckChild { pid: 10 }]);
    let opened = GenerationAction::Open { worker: WorkerId { seat: 0, incarnation: 1 }, pid: 10 };
    assert_eq!(pool.on(GenerationEvent::Adopted { pid: 10 }, now), [opened]);
    // It had lived for long: another is started at once.
    let ended = pool.on(GenerationEvent::ZygoteEnded, now);
    assert_eq!(ended, [GenerationAction::StartZygote]);
    let ordered = pool.on(GenerationEvent::ZygoteStarted, now);
    assert_eq!(fills(&ordered), [(1, 2), (2, 2)]);
}

#[test]
fn where_memory_is_short_the_copies_that_would_wait_are_the_first_not_to_be_made() {
    for (room, copies) in [(u32::MAX, 6), (6, 6), (5, 5), (4, 4), (3, 3), (1, 1)] {
        let mut pool = pool(ProcessManager::Auto, 4);
        pool.give_room(room);
        pool.on(GenerationEvent::Wanted { workers: 4 }, SECOND);
        let ordered = pool.on(GenerationEvent::ZygoteStarted, SECOND);
        assert_eq!(fills(&ordered).len(), copies, "with room for {room}");
    }
}

#[test]
fn a_pool_that_finds_its_size_has_copies_ready_beyond_those_that_serve_at_rest_too() {
    let mut pool = pool(ProcessManager::Auto, 8);
    let ordered = pool.on(GenerationEvent::ZygoteStarted, SECOND);
    assert_eq!(fills(&ordered), [(0, 1), (1, 1), (2, 1)], "one is to serve");
    for (seat, pid) in [(0, 10), (1, 11), (2, 12)] {
        let incarnation = 1;
        let announced = GenerationEvent::Announced { worker: WorkerId { seat, incarnation }, pid };
        pool.on(announced, SECOND);
        pool.on(GenerationEvent::Adopted { pid }, SECOND);
    }
    let how = HowEnded::Exited(0);
    let served = pool.on(GenerationEvent::Ended { pid: 10, how, served: true }, 2 * SECOND);
    assert_eq!(fills(&served), [(0, 2)]);
    let asked = pool.on(GenerationEvent::Wanted { workers: 3 }, 2 * SECOND);
    assert_eq!(fills(&asked), [(3, 1), (4, 1)]);
}

#[test]
fn who_says_how_many_idle_workers_to_keep_gets_no_others_before_all_serve() {
    let mut pool = pool(ProcessManager::Dynamic, 2);
    pool.on(GenerationEvent::ZygoteStarted, SECOND);
    for (workers, copies) in [(1, 1), (2, 3)] {
        let ordered = pool.on(GenerationEvent::Wanted { workers }, SECOND);
        assert_eq!(fills(&ordered).len(), copies);
    }
}

#[test]
fn copies_that_have_served_are_ordered_again_without_one_waiting_for_another() {
    let mut pool = pool(ProcessManager::Static, 4);
    let ordered = fills(&pool.on(GenerationEvent::ZygoteStarted, SECOND));
    assert_eq!(ordered.len(), 6, "all that lack are ordered at once");
    for (seat, incarnation) in ordered {
        let pid = 10 + i32::try_from(seat).unwrap();
        let announced = GenerationEvent::Announced { worker: WorkerId { seat, incarnation }, pid };
        pool.on(announced, SECOND);
        pool.on(GenerationEvent::Adopted { pid }, SECOND);
    }
    let how = HowEnded::Exited(0);
    let ended = (10..14).flat_map(|pid| {
        fills(&pool.on(GenerationEvent::Ended { pid, how, served: true }, 2 * SECOND))
    });
    assert_eq!(
        ended.collect::<Vec<_>>(),
        [(0, 2), (1, 2), (2, 2), (3, 2)],
        "none of them has been forked yet"
    );
}

#[test]
fn a_generation_that_leaves_with_its_front_makes_one_copy_after_the_other_until_that_has_ended() {
    let mut pool = pool(ProcessManager::Static, 1);
    let ordered = pool.on(GenerationEvent::ZygoteStarted, SECOND);
    for (seat, incarnation) in fills(&ordered) {
        let worker = WorkerId { seat, incarnation };
        let pid = 10 + i32::try_from(seat).unwrap();
        pool.on(GenerationEvent::Announced { worker, pid }, SECOND);
        pool.on(GenerationEvent::Adopted { pid }, SECOND);
    }
    assert_eq!(fills(&pool.on(GenerationEvent::LeaveWithFront, SECOND)), []);
    let ended = |pid| GenerationEvent::Ended { pid, how: HowEnded::Exited(0), served: true };
    assert_eq!(fills(&pool.on(ended(10), SECOND)), [], "others are ready");
    assert_eq!(fills(&pool.on(ended(11), SECOND)), []);
    assert_eq!(fills(&pool.on(ended(12), SECOND)), [(0, 2)]);
    let worker = WorkerId { seat: 0, incarnation: 2 };
    pool.on(GenerationEvent::Announced { worker, pid: 13 }, SECOND);
    let opened = pool.on(GenerationEvent::Adopted { pid: 13 }, SECOND);
    assert_eq!(opened, [GenerationAction::Open { worker, pid: 13 }]);
    pool.on(GenerationEvent::Leave, SECOND);
    let left = pool.on(ended(13), SECOND);
    assert_eq!((fills(&left), left.contains(&GenerationAction::DismissZygote)), (vec![], true));
}
