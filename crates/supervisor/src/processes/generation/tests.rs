//! What a pool does in an invented world ([`World`]).

mod world;

use proptest::prelude::*;

use maitred_config::ProcessManager;

use super::*;
use crate::limits::{BACKOFF_FIRST, START_BACKOFF_LONGEST};
use world::{RATE, SEATS, World, ZygoteState, growth};

const MANAGERS: [ProcessManager; 4] = [
    ProcessManager::Static,
    ProcessManager::Dynamic,
    ProcessManager::Ondemand,
    ProcessManager::Auto,
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn whatever_happens_no_seat_has_two_workers_and_every_seat_is_filled_again(
        pm in prop::sample::select(MANAGERS.to_vec()),
        steps in prop::collection::vec((0u8..26, 0usize..100, 0u64..3000), 0..120))
    {
        let mut world = World::new(pm);
        for (kind, pick, pass) in steps {
            world.step(kind, pick, pass);
        }
        let took = world.recover();
        prop_assert!(took <= 2 * (WORKER_SPAWN + START_BACKOFF_LONGEST), "it took {took:?}");
        let full = world.pool.seated().count();
        let worn = world.pool.places.iter().filter(|place| place.is_worn());
        let ready = worn.count().min(SPARE_SEATS as usize);
        prop_assert_eq!(full, SEATS as usize + ready);
    }

    #[test]
    fn whatever_happens_a_pool_has_its_fewest_workers_again_and_no_zygote_that_nobody_needs(
        pm in prop::sample::select(MANAGERS.to_vec()),
        steps in prop::collection::vec((0u8..26, 0usize..100, 0u64..3000), 0..120))
    {
        let mut world = World::new(pm);
        for (kind, pick, pass) in steps {
            world.step(kind, pick, pass);
        }
        world.allowed = u32::MAX;
        world.tell(GenerationEvent::Allowed { workers: u32::MAX });
        world.tell(GenerationEvent::Wanted { workers: 0 });
        world.settle();
        for (seat, incarnation) in world.last.clone() {
            world.tell(GenerationEvent::Retired { worker: WorkerId { seat, incarnation } });
        }
        world.settle();
        let fewest = match pm {
            ProcessManager::Static => SEATS as usize,
            ProcessManager::Dynamic => 1,
            ProcessManager::Ondemand => 0,
            ProcessManager::Auto => 1,
        };
        prop_assert_eq!(world.pool.seated().count(), fewest);
        for _ in 0..100 {
            world.now = world.now.max(world.pool.deadline().unwrap_or(world.now));
            world.tell(GenerationEvent::Tick);
            world.settle();
        }
        let zygote = world.zygote != ZygoteState::None && world.zygote != ZygoteState::Dismissed;
        prop_assert_eq!(zygote, pm != ProcessManager::Ondemand);
    }
}

#[test]
fn an_ondemand_pool_has_nothing_until_workers_are_wanted_and_then_all_of_them_at_once() {
    let mut world = World::new(ProcessManager::Ondemand);
    world.tell(GenerationEvent::Tick);
    assert!(world.pool.is_full());
    assert_eq!((world.pool.deadline(), &world.zygote), (None, &ZygoteState::None));
    world.tell(GenerationEvent::Wanted { workers: 3 });
    assert_eq!(world.zygote, ZygoteState::Starting);
    world.step(1, 0, 0);
    assert_eq!(world.orders, [(0, 1), (1, 1), (2, 1)]);
}

#[test]
fn a_zygote_that_is_kept_waits_for_nobody_and_one_that_did_not_start_does() {
    let mut world = World::new(ProcessManager::Ondemand);
    assert!(world.pool.may_rest() && world.pool.keep_zygote(true));
    assert!(!world.pool.keep_zygote(true), "that is no news");
    world.tell(GenerationEvent::Tick);
    assert_eq!(world.zygote, ZygoteState::Starting);
    world.step(1, 0, 0);
    assert_eq!((world.pool.deadline(), world.seated.len()), (None, 0));
    assert!(world.pool.keep_zygote(false));
    world.tell(GenerationEvent::Tick);
    world.now = world.pool.deadline().unwrap();
    world.tell(GenerationEvent::Tick);
    assert_eq!(world.zygote, ZygoteState::Dismissed);
    world.zygote_dies();
    world.pool.keep_zygote(true);
    world.tell(GenerationEvent::Tick);
    assert_eq!(world.zygote, ZygoteState::Starting);
    world.tell(GenerationEvent::ZygoteFailed(KillReason::StartFailed));
    world.zygote_dies();
    world.tell(GenerationEvent::Tick);
    assert_eq!(
        (world.pool.deadline(), &world.zygote),
        (None, &ZygoteState::None),
        "it is not requested"
    );
    world.tell(GenerationEvent::Wanted { workers: 1 });
    world.settle();
    assert_eq!(world.seated.len(), 1);
}

#[test]
fn a_pool_whose_php_does_not_start_waits_longer_each_time_until_it_may_have_been_mended() {
    let mut world = World::new(ProcessManager::Static);
    world.tell(GenerationEvent::Tick);
    assert_eq!(world.pool.next_start(), None, "it starts");
    for _ in 0..10 {
        world.tell(GenerationEvent::ZygoteFailed(KillReason::StartFailed));
        world.zygote_dies();
        world.now = world.pool.next_start().unwrap();
        world.tell(GenerationEvent::Tick);
        assert_eq!(world.zygote, ZygoteState::Starting);
    }
    world.tell(GenerationEvent::ZygoteFailed(KillReason::StartFailed));
    world.zygote_dies();
    assert_eq!(world.pool.next_start(), Some(world.now + START_BACKOFF_LONGEST));
    world.pool.retry_start(world.now);
    world.tell(GenerationEvent::Tick);
    assert_eq!(world.zygote, ZygoteState::Starting);
    world.settle();
    assert_eq!((world.pool.next_start(), world.seated.len()), (None, SEATS as usize));
}

#[test]
fn a_dynamic_pool_starts_with_its_start_servers_and_falls_to_no_less_than_its_fewest() {
    let mut world = World::new(ProcessManager::Dynamic);
    world.tell(GenerationEvent::Tick);
    world.settle();
    assert_eq!(world.seated.len(), 2);
    world.tell(GenerationEvent::Wanted { workers: 0 });
    for seat in 0..2 {
        world.tell(GenerationEvent::Retired { worker: WorkerId { seat, incarnation: 1 } });
    }
    world.settle();
    assert_eq!(world.pool.seated().count(), 1);
}

#[test]
fn no_more_workers_are_ordered_in_a_second_than_the_rate_allows() {
    let mut world = World::new(ProcessManager::Ondemand);
    world.tell(GenerationEvent::Wanted { workers: SEATS });
    world.step(1, 0, 0);
    assert_eq!(world.orders.len(), RATE);
    let next = world.pool.deadline().unwrap();
    assert_eq!(next, world.now + Duration::from_secs(1));
    world.now = next;
    world.tell(GenerationEvent::Tick);
    assert_eq!(world.orders.len(), SEATS as usize);
}

#[test]
fn a_pool_that_finds_its_size_has_all_ordered_at_once_that_there_is_memory_for() {
    for room in [SEATS, SEATS - 1] {
        let mut world = World::new(ProcessManager::Auto);
        world.pool.give_room(room);
        world.tell(GenerationEvent::Wanted { workers: SEATS });
        world.step(1, 0, 0);
        assert_eq!(world.orders.len(), room as usize);
    }
}

#[test]
fn workers_that_die_early_do_not_make_others_come_in_their_stead_at_once() {
    let mut world = World::new(ProcessManager::Ondemand);
    world.tell(GenerationEvent::Wanted { workers: 1 });
    world.settle();
    let pid = world.seated[&0];
    world.worker_dies(pid, true);
    assert!(world.orders.is_empty(), "no other seat is filled instead");
    assert_eq!(world.settle(), BACKOFF_FIRST);
}

#[test]
fn a_worker_that_does_not_leave_is_killed() {
    let mut world = World::new(ProcessManager::Ondemand);
    world.tell(GenerationEvent::Wanted { workers: 2 });
    world.settle();
    let stubborn = world.seated.iter().find(|(_, pid)| **pid % 2 == 1);
    let (seat, pid) = stubborn.map(|(seat, pid)| (*seat, *pid)).unwrap();
    world.tell(GenerationEvent::Wanted { workers: 1 });
    let incarnation = world.last[&seat];
    world.tell(GenerationEvent::Retired { worker: WorkerId { seat, incarnation } });
    assert!(world.workers.contains_key(&pid));
    assert_eq!(world.pool.deadline(), Some(world.now + LEAVE));
    world.now += LEAVE;
    world.tell(GenerationEvent::Tick);
    assert!(!world.workers.contains_key(&pid));
    assert!(world.orders.is_empty(), "no worker needs a successor");
}

fn full_pool() -> World {
    let mut world = World::new(ProcessManager::Static);
    world.tell(GenerationEvent::Tick);
    world.recover();
    world
}

#[test]
fn a_worker_that_lived_long_is_replaced_at_once_however_it_died() {
    let mut world = full_pool();
    world.now += EARLY_DEATH;
    let pid = world.seated[&2];
    world.worker_dies(pid, true);
    assert_eq!(world.orders, [(2, 2)]);
}

#[test]
fn workers_that_die_early_again_and_again_make_the_pool_wait_longer() {
    let mut world = full_pool();
    let mut waits = Vec::new();
    for _ in 0..9 {
        let pid = world.seated[&0];
        let died = world.now;
        world.worker_dies(pid, true);
        assert!(world.orders.is_empty(), "the seat has to wait");
        world.recover();
        waits.push((world.now - died).as_millis());
    }
    assert_eq!(waits, [100, 200, 400, 800, 1000, 1000, 1000, 1000, 1000]);
}

#[test]
fn a_worker_that_a_request_has_ended_is_replaced_at_once_within_a_rate() {
    let mut world = full_pool();
    let crash = |world: &mut World| {
        let pid = world.seated[&0];
        world.worker_crashes(pid);
        world.recover()
    };
    for _ in 0..CRASHES_AT_ONCE {
        assert_eq!(crash(&mut world), Duration::ZERO);
    }
    assert_eq!(crash(&mut world), BACKOFF_FIRST, "the forks themselves would be the load");
    world.now += EARLY_DEATH / 2;
    assert_eq!(crash(&mut world), Duration::ZERO);
}

#[test]
fn workers_that_die_together_wait_once() {
    let mut world = full_pool();
    for seat in 0..SEATS {
        let pid = world.seated[&seat];
        world.worker_dies(pid, true);
    }
    assert_eq!(world.recover(), BACKOFF_FIRST);
}

#[test]
fn a_worker_that_ends_as_it_should_never_makes_the_pool_wait() {
    let mut world = full_pool();
    for _ in 0..50 {
        let pid = world.seated[&1];
        world.worker_dies(pid, false);
        assert_eq!(world.recover(), Duration::ZERO);
    }
}

#[test]
fn a_worker_that_not_even_a_kill_ends_keeps_its_seat_and_is_told_of_once() {
    let mut world = full_pool();
    let (seat, incarnation) = (0, world.last[&0]);
    let pid = world.seated[&seat];
    let now = world.now;
    let killed =
        world.pool.on(GenerationEvent::EndWorker { worker: WorkerId { seat, incarnation } }, now);
    assert_eq!(killed[0], GenerationAction::KillWorker { pid });
    assert_eq!(world.pool.deadline(), Some(now + KILLED));
    let late = world.pool.on(GenerationEvent::Tick, now + KILLED);
    assert_eq!(late, [GenerationAction::ReportStuck { seat, pid }]);
    let later = world.pool.on(GenerationEvent::Tick, now + KILLED * 3 / 2);
    assert_eq!(later, [], "its seat is not filled, and it is reported once");
    assert!(world.pool.knows(pid));
}

#[test]
fn a_worker_that_was_sentenced_is_replaced_at_once() {
    let mut world = full_pool();
    let (seat, incarnation) = (3, world.last[&3]);
    world.tell(GenerationEvent::EndWorker { worker: WorkerId { seat, incarnation } });
    assert_eq!(world.orders, [(SEATS, 1)], "before it is dead");
}

#[test]
fn the_front_cannot_end_the_successor_of_the_worker_it_means() {
    let mut world = full_pool();
    let (seat, incarnation) = (3, world.last[&3]);
    let pid = world.seated[&seat];
    world.worker_dies(pid, false);
    world.recover();
    let successor = world.seated[&seat];
    world.tell(GenerationEvent::EndWorker { worker: WorkerId { seat, incarnation } });
    assert_eq!(world.seated[&seat], successor);
}

#[test]
fn workers_outlive_their_zygote_and_its_successor_fills_what_became_free() {
    let mut world = full_pool();
    world.now += EARLY_DEATH;
    world.zygote_dies();
    assert!(world.pool.is_full());
    let pid = world.seated[&0];
    world.worker_dies(pid, false);
    assert!(world.orders.is_empty());
    assert_eq!(
        world.zygote,
        ZygoteState::Starting,
        "a zygote that was up for long is replaced at once"
    );
    world.recover();
    assert_eq!(world.last[&0], 2);
    assert_eq!(world.last[&1], 1);
}

#[test]
fn a_zygote_that_does_not_fork_is_replaced() {
    let mut world = World::new(ProcessManager::Static);
    world.tell(GenerationEvent::Tick);
    world.step(1, 0, 0);
    assert_eq!(world.orders.len(), SEATS as usize);
    world.now += WORKER_SPAWN;
    world.tell(GenerationEvent::Tick);
    assert_eq!(world.zygote, ZygoteState::Killed);
}

#[test]
fn a_zygote_that_names_a_process_we_never_get_is_replaced() {
    let mut world = World::new(ProcessManager::Static);
    world.tell(GenerationEvent::Tick);
    world.step(1, 0, 0);
    let (seat, incarnation) = world.orders[0];
    world.tell(GenerationEvent::Announced { worker: WorkerId { seat, incarnation }, pid: 4000 });
    world.now += WORKER_SPAWN;
    world.tell(GenerationEvent::Tick);
    assert_eq!(world.zygote, ZygoteState::Killed);
}

#[test]
fn one_process_cannot_be_announced_for_two_seats() {
    let mut world = full_pool();
    let pid = world.seated[&0];
    let other = world.seated[&1];
    world.worker_dies(other, false);
    let (seat, incarnation) = world.orders[0];
    world.tell(GenerationEvent::Announced { worker: WorkerId { seat, incarnation }, pid });
    assert_eq!(world.zygote, ZygoteState::Killed);
    assert_eq!(world.pool.seated().filter(|seated| seated.pid == pid).count(), 1);
}

#[test]
fn a_worn_worker_stays_until_another_is_ready_and_only_as_many_come_early_as_there_are_spare_seats()
{
    let mut world = full_pool();
    for seat in 0..SEATS {
        world.tell(GenerationEvent::Worn { worker: WorkerId { seat, incarnation: 1 } });
    }
    assert_eq!(world.orders.len(), SPARE_SEATS as usize);
    world.settle();
    assert_eq!(world.seated.len(), (SEATS + SPARE_SEATS) as usize);
    world.tell(GenerationEvent::Retired { worker: WorkerId { seat: 1, incarnation: 1 } });
    world.now += LEAVE;
    world.tell(GenerationEvent::Tick);
    assert_eq!(world.orders, [(1, 2)], "the third comes when the first has gone");
}

#[test]
fn a_generation_on_trial_starts_php_and_no_worker_until_it_has_passed() {
    let mut world = World::new(ProcessManager::Static);
    world.pool = GenerationState::on_trial(SEATS + SPARE_SEATS, growth(ProcessManager::Static));
    world.tell(GenerationEvent::Tick);
    assert_eq!(world.zygote, ZygoteState::Starting);
    world.step(1, 0, 0);
    assert!(world.orders.is_empty() && world.pool.deadline().is_none());
    world.allowed = 2;
    world.tell(GenerationEvent::Allowed { workers: 2 });
    world.tell(GenerationEvent::Passed);
    assert_eq!(world.orders.len(), 2, "others have the rest");
    world.allowed = 3;
    world.tell(GenerationEvent::Allowed { workers: 3 });
    assert_eq!(world.orders.len(), 3);
}

#[test]
fn a_leaving_generation_fills_no_seat_and_is_gone_when_the_last_is_empty() {
    let mut world = full_pool();
    world.tell(GenerationEvent::Leave);
    let pid = world.any_worker(0).unwrap();
    world.worker_dies(pid, true);
    assert!(world.orders.is_empty() && !world.pool.is_gone());
    for (seat, incarnation) in world.last.clone() {
        world.tell(GenerationEvent::Retired { worker: WorkerId { seat, incarnation } });
    }
    world.now += LEAVE;
    world.tell(GenerationEvent::Tick);
    assert_eq!(world.zygote, ZygoteState::Dismissed);
    world.zygote_dies();
    assert!(world.pool.is_gone());
    assert_eq!(world.pool.deadline(), None);
}

#[test]
fn a_generation_that_leaves_while_php_starts_or_a_worker_is_on_its_way_takes_them_back() {
    let mut world = World::new(ProcessManager::Static);
    world.tell(GenerationEvent::Tick);
    world.tell(GenerationEvent::Leave);
    assert_eq!(world.zygote, ZygoteState::Killed);
    let mut world = World::new(ProcessManager::Static);
    world.tell(GenerationEvent::Tick);
    world.step(1, 0, 0);
    world.zygote_carries_out(0);
    world.tell(GenerationEvent::Leave);
    world.intermediates_leave();
    assert!(world.seated.is_empty(), "it is never shown to the front");
}

#[test]
fn a_worker_that_was_asked_to_leave_before_an_upgrade_leaves_after_it() {
    let who = |seat, pid| Seated { worker: WorkerId { seat, incarnation: 1 }, pid };
    let mut before = GenerationState::new(SEATS + SPARE_SEATS, growth(ProcessManager::Static));
    let all = [(who(0, 100), WorkerMark::Sentenced), (who(1, 101), WorkerMark::Worn)];
    before.take_over(&all, true, true, Moment::ZERO);
    let handed_over: Vec<(Seated, WorkerMark)> = before.all_seated().collect();
    assert_eq!(handed_over, all);
    let mut after = GenerationState::new(SEATS + SPARE_SEATS, growth(ProcessManager::Static));
    after.take_over(&handed_over, true, true, LEAVE);
    assert_eq!(after.seated().collect::<Vec<_>>(), [who(1, 101)]);
    let late = after.on(GenerationEvent::Tick, 2 * LEAVE);
    assert!(late.contains(&GenerationAction::KillWorker { pid: 100 }), "{late:?}");
    let how = HowEnded::Signaled(15);
    let ended = after.on(GenerationEvent::Ended { pid: 100, how, served: false }, 2 * LEAVE);
    let reported = |action: &GenerationAction| matches!(action, GenerationAction::Report { .. });
    assert!(!ended.iter().any(reported), "{ended:?}");
}

#[test]
fn a_pool_that_was_busy_for_long_was_asked_last_when_its_last_worker_went() {
    let mut world = World::new(ProcessManager::Ondemand);
    world.tell(GenerationEvent::Tick);
    assert_eq!(world.pool.asked_at(), None);
    world.tell(GenerationEvent::Wanted { workers: 2 });
    world.settle();
    let asked = world.pool.asked_at();
    assert_eq!(asked, Some(Moment::ZERO));
    world.now += Duration::from_secs(3600);
    let pids: Vec<i32> = world.seated.values().copied().collect();
    assert_eq!(pids.len(), 2);
    world.tell(GenerationEvent::Wanted { workers: 0 });
    world.worker_dies(pids[0], false);
    assert_eq!(world.pool.asked_at(), asked, "one still works");
    world.worker_dies(pids[1], false);
    assert_eq!(world.pool.asked_at(), Some(world.now));
    // The next generation knows it; what it has been asked itself later counts.
    let mut next = GenerationState::new(SEATS + SPARE_SEATS, growth(ProcessManager::Ondemand));
    next.was_asked_at(world.pool.asked_at());
    assert_eq!(next.asked_at(), Some(world.now));
    next.was_asked_at(asked);
    assert_eq!(next.asked_at(), Some(world.now));
}
