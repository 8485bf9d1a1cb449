//! Sizes of pools of each kind.

use super::*;
use proptest::prelude::*;

const FOUR: Machine = Machine { cores: 4.0, memory: None };

fn pool(cap: usize) -> Controller {
    Controller::new(Limits { floor: 1, cap }, FOUR)
}

fn load(ready: usize, busy: usize, waiting: usize) -> Load {
    Load { ready, busy, waiting, parked: 0 }
}

fn spent(cpu_ms: u64, blocked_ms: u64) -> Spent {
    Spent {
        cpu: Duration::from_millis(cpu_ms),
        ready: Some(Duration::ZERO),
        blocked: Duration::from_millis(blocked_ms),
    }
}

#[test]
fn the_request_that_finds_nobody_idle_gets_a_worker_at_once() {
    let mut pool = pool(50);
    assert_eq!(pool.sizing().workers, 1);
    for waiting in 1..=5 {
        pool.arrived(load(1, 1, waiting));
    }
    assert_eq!(pool.sizing().workers, 6);
    assert_eq!(pool.sizing().binding, Binding::Demand);
}

#[test]
fn a_hundred_requests_that_work_get_as_many_workers_as_there_are_processors() {
    let mut pool = pool(50);
    (0..100).for_each(|_| pool.finished(spent(20, 0)));
    pool.look(Duration::from_secs(1), load(1, 1, 100));
    pool.arrived(load(1, 1, 100));
    assert_eq!((pool.sizing().workers, pool.sizing().binding), (4, Binding::Cpu));
}

#[test]
fn users_of_pages_that_all_wait_as_long_get_a_worker_each_and_others_a_few_less() {
    let workers = |blocked: fn(u64) -> u64| {
        let mut pool = pool(50);
        (0..2000).for_each(|page| pool.finished(spent(0, blocked(page))));
        pool.look(Duration::from_secs(1), load(1, 1, 31));
        pool.sizing().workers
    };
    assert_eq!(workers(|_| 40), 32);
    assert_eq!(workers(|page| 38 + page % 5), 32);
    let scattered = workers(|page| 1 + page * 37 % 80);
    assert!((20..30).contains(&scattered), "{scattered}");
}

#[test]
fn idle_processors_are_believed_when_they_are_seen_again_and_again_and_forgotten_later() {
    let mut pool = pool(50);
    (0..100).for_each(|_| pool.finished(spent(20, 0)));
    (0..4).for_each(|_| pool.arrived(load(1, 1, 100)));
    let looks = |pool: &mut Controller, seconds: std::ops::Range<u64>, waiting| {
        let each = |second| {
            pool.look(Duration::from_secs(second), load(4, 4, waiting));
            pool.sizing().terms.cpu
        };
        seconds.map(each).collect::<Vec<_>>()
    };
    // A crowd by chance in a pool that is half busy, now and then.
    assert_eq!(looks(&mut pool, 10..12, 5), [4, 4]);
    assert_eq!(looks(&mut pool, 12..13, 0), [4]);
    assert_eq!(looks(&mut pool, 13..16, 5), [4, 4, 8]);
    let calm = looks(&mut pool, 16..80, 0);
    assert_eq!((calm[0], calm[63]), (8, 4));
}

#[test]
fn doubt_doubles_up_to_a_limit_is_halved_in_calm_and_over_when_the_processors_are_full() {
    let mut pool = pool(5000);
    (0..100).for_each(|_| pool.finished(spent(20, 0)));
    let mut second = 10;
    let mut look = |pool: &mut Controller, waiting| {
        second += 1;
        let workers = pool.sizing().workers;
        pool.look(Duration::from_secs(second), load(workers, workers, waiting));
        pool.sizing().terms.cpu
    };
    let crowd = |pool: &mut Controller| pool.crowded(load(4, 4, 2000));
    crowd(&mut pool);
    look(&mut pool, 0);
    for cpu in [8, 16, 32, 64, 128, 256, 256] {
        crowd(&mut pool);
        let looks = [0; 3].map(|_| look(&mut pool, 2000));
        assert_eq!(looks[2], cpu, "{looks:?}");
    }
    for cpu in [128, 64] {
        let looks: Vec<usize> = (0..60).map(|_| look(&mut pool, 0)).collect();
        assert_eq!((looks[58], looks[59]), (2 * cpu, cpu));
    }
    (0..200).for_each(|_| pool.finished(spent(20, 0)));
    assert_eq!(look(&mut pool, 0), 4);
}

#[test]
fn what_hangs_leaves_its_processor_to_others() {
    let mut pool = pool(50);
    (0..100).for_each(|_| pool.finished(spent(20, 0)));
    let hangs = Load { parked: 7, ..load(11, 11, 100) };
    pool.arrived(hangs);
    pool.look(Duration::from_secs(1), hangs);
    assert_eq!(pool.sizing().workers, 11);
}

#[test]
fn other_limits_and_another_machine_leave_what_was_learned() {
    let mut pool = pool(50);
    pool.arrived(load(1, 1, 20));
    let before = pool.sizing().workers;
    pool.limit(Limits { floor: 1, cap: 10 });
    assert_eq!((pool.sizing().workers, pool.sizing().binding), (10, Binding::User));
    pool.see(Machine { memory: Some(3), ..FOUR });
    assert_eq!((pool.sizing().workers, pool.sizing().binding), (3, Binding::Memory));
    pool.see(FOUR);
    pool.limit(Limits { floor: 1, cap: 50 });
    assert_eq!(pool.sizing().workers, before);
}

#[test]
fn a_quiet_pool_gives_its_workers_up_when_five_minutes_are_over() {
    let mut pool = pool(50);
    pool.look(Duration::ZERO, load(1, 0, 0));
    for busy in 1..=20 {
        pool.arrived(load(20, busy, 0));
    }
    let at = |pool: &mut Controller, second| {
        pool.look(Duration::from_secs(second), load(20, 0, 0));
        pool.sizing().workers
    };
    assert_eq!(at(&mut pool, 200), 18, "19 are met with a short wait, one is not");
    (301..340).for_each(|second| assert!(at(&mut pool, second) <= 18));
    assert_eq!(at(&mut pool, 340), 1);
}

#[derive(Debug, Clone)]
enum Action {
    Arrive(Load),
    /// A request of this kind gets a worker, and one ends.
    Begin(u64),
    End(u64, Spent),
    /// This many requests of this kind have a worker, and this many of them hang.
    Hang(u64, usize, usize),
    Look(u64, Load),
    See(Machine),
}

fn any_load() -> impl Strategy<Value = Load> {
    (0..5000_usize, 0..5000_usize, 0..5000_usize, 0..5000_usize)
        .prop_map(|(ready, busy, waiting, parked)| Load { ready, busy, waiting, parked })
}

fn step() -> impl Strategy<Value = Action> {
    let time = || (0..u64::MAX / 2).prop_map(Duration::from_nanos);
    let spent = (time(), time(), time()).prop_map(|(cpu, ready, blocked)| Spent {
        cpu,
        ready: Some(ready),
        blocked,
    });
    let machine = (0.01..512.0_f64, proptest::option::of(0..1000_usize))
        .prop_map(|(cores, memory)| Machine { cores, memory });
    prop_oneof![
        4 => any_load().prop_map(Action::Arrive),
        2 => (0..4_u64).prop_map(Action::Begin),
        4 => (0..4_u64, spent).prop_map(|(kind, spent)| Action::End(kind, spent)),
        2 => (0..4_u64, 0..200_usize, 0..200_usize)
            .prop_map(|(kind, held, hang)| Action::Hang(kind, held, hang)),
        2 => (any::<u64>(), any_load()).prop_map(|(at, load)| Action::Look(at, load)),
        1 => machine.prop_map(Action::See),
    ]
}

proptest! {
    /// Clocks that jump, impossible times, memory that comes and goes.
    #[test]
    fn whatever_is_measured_a_pool_keeps_to_its_limits(
        steps in proptest::collection::vec(step(), 1..100),
        cap in 1..2000_usize,
    ) {
        let (mut pool, mut kinds) = (pool(cap), Kinds::default());
        let mut room = None;
        for step in steps {
            match step {
                Action::Arrive(load) => pool.arrived(load),
                Action::Begin(kind) => kinds.began(kind),
                Action::End(kind, spent) => pool.ended(&mut kinds, kind, spent),
                Action::Hang(kind, held, hang) => {
                    let in_hand = (0..held).map(|one| (kind, one < hang));
                    kinds.look(pool.believes_up_to(), in_hand);
                }
                Action::Look(at, load) => {
                    kinds.pass_second();
                    pool.see_kinds(&kinds);
                    pool.look(Duration::from_secs(at), load);
                }
                Action::See(machine) => {
                    room = machine.memory;
                    pool.see(machine);
                }
            }
            let sizing = pool.sizing();
            prop_assert!((1..=cap).contains(&sizing.workers));
            prop_assert!(room.is_none_or(|room| sizing.workers <= room.max(1)));
            let after = pool.parks_after();
            prop_assert!(after.is_finite() && after > 0.0, "{} s", after);
            if let Some(most) = pool.most_that_hang() {
                prop_assert!((1..cap).contains(&most) && kinds.left(most) <= most);
            }
        }
    }
}

#[test]
fn who_hangs_leaves_as_many_workers_as_the_processors_can_use_and_a_quarter_at_most() {
    let most = |cap, cores| {
        let machine = Machine { cores, memory: None };
        let mut pool = Controller::new(Limits { floor: 1, cap }, machine);
        (0..100).for_each(|_| pool.finished(spent(20, 0)));
        pool.look(Duration::from_secs(1), load(1, 1, 0));
        pool.most_that_hang()
    };
    // Four processors are full with as many of these.
    let found = [1, 2, 4, 9, 64].map(|cap| most(cap, 4.0));
    assert_eq!(found, [None, Some(1), Some(3), Some(7), Some(60)]);
    assert_eq!(most(64, 32.0), Some(48));
}

#[test]
fn what_there_is_memory_for_bounds_those_that_hang() {
    let mut pool = pool(64);
    pool.see(Machine { memory: Some(20), ..FOUR });
    assert_eq!(pool.most_that_hang(), None, "the time of requests is unknown");
    (0..100).for_each(|_| pool.finished(spent(1, 9)));
    assert_eq!(pool.most_that_hang(), Some(15));
}

#[test]
fn a_pool_that_may_rest_without_workers_does_so_when_nobody_has_asked_for_five_minutes() {
    let mut pool = Controller::new(Limits { floor: 0, cap: 50 }, FOUR);
    assert_eq!(pool.sizing().workers, 0);
    pool.arrived(load(0, 0, 1));
    assert_eq!(pool.sizing().workers, 1);
    pool.finished(spent(1, 1));
    let workers = |pool: &mut Controller, second| {
        pool.look(Duration::from_secs(second), load(1, 0, 0));
        pool.sizing().workers
    };
    let kept: Vec<usize> = (1..=300).map(|second| workers(&mut pool, second)).collect();
    assert_eq!(kept, [1; 300]);
    let gone: Vec<usize> = (301..=340).map(|second| workers(&mut pool, second)).collect();
    assert_eq!(gone.last(), Some(&0), "{gone:?}");
    pool.arrived(load(0, 0, 1));
    assert_eq!(pool.sizing().workers, 1);
}

#[test]
fn no_more_may_hang_than_leave_some_of_the_workers_that_what_is_downstream_allows() {
    let mut pool = pool(64);
    let mut workers = 1;
    // Ten at a time are served, each in 10 ms.
    for second in 1..=60 {
        let served = workers.min(10);
        let waits = 10 * workers / served;
        (0..100 * served).for_each(|_| pool.finished(spent(0, waits as u64)));
        let crowd = load(workers, workers, 200);
        pool.look(Duration::from_secs(second), crowd);
        pool.arrived(crowd);
        workers = pool.sizing().workers;
    }
    let sizing = pool.sizing();
    assert_eq!(sizing.binding, Binding::Downstream, "{sizing:?}");
    assert!((10..24).contains(&sizing.workers), "{sizing:?}");
    let most = pool.most_that_hang();
    assert!(most.is_some_and(|most| most < sizing.workers), "{most:?}");
    let (floor, cap) = (40, 64);
    pool.limit(Limits { floor, cap });
    let most = pool.most_that_hang();
    assert!(most.is_some_and(|most| (30..40).contains(&most)), "{most:?}");
}

/// Two kinds of requests, of which the first may hang: this many of each end in a second.
struct Outage {
    pool: Controller,
    kinds: Kinds,
    second: u64,
    others: usize,
    /// Requests that wait for a worker.
    waiting: usize,
}

impl Outage {
    const KIND: u64 = 1;
    const OTHERS: u64 = 2;

    fn new(others: usize) -> Outage {
        Outage { pool: pool(64), kinds: Kinds::default(), second: 0, others, waiting: 0 }
    }

    /// Seconds pass in each of which ten of the kind end that waited this long.
    fn pass(&mut self, seconds: u64, blocked_ms: u64) {
        let waits = spent(1, blocked_ms);
        for _ in 0..seconds {
            let after = self.pool.parks_after();
            let hangs = waits.blocked.as_secs_f64() > after;
            let in_hand = std::iter::repeat_n((Outage::KIND, hangs), 10);
            self.kinds.look(self.pool.believes_up_to(), in_hand);
            self.kinds.pass_second();
            let (pool, kinds) = (&mut self.pool, &mut self.kinds);
            (0..self.others).for_each(|_| pool.ended(kinds, Outage::OTHERS, spent(2, 3)));
            (0..10).for_each(|_| pool.ended(kinds, Outage::KIND, waits));
            self.second += 1;
            pool.see_kinds(kinds);
            let workers = pool.sizing().workers;
            let load = load(workers, workers, self.waiting);
            pool.look(Duration::from_secs(self.second), load);
        }
    }

    fn hangs(&self) -> bool {
        self.kinds.hangs(Outage::KIND)
    }
}

#[test]
fn however_long_a_kind_hangs_it_does_not_make_that_usual_while_others_answer() {
    for others in [3, 10, 70] {
        let mut outage = Outage::new(others);
        outage.pass(60, 10);
        assert!(!outage.hangs());
        outage.pass(1800, 15_000);
        let after = outage.pool.parks_after();
        assert!(outage.hangs() && after < 1.0, "{others}: {after} s");
    }
}

#[test]
fn pages_that_have_hung_while_others_answered_are_known_again_when_they_take_what_they_took() {
    // Without their times, 50 ms would be long.
    let mut outage = Outage::new(4);
    outage.pass(60, 50);
    assert!(!outage.hangs());
    outage.pass(600, 15_000);
    assert!(outage.hangs());
    outage.pass(30, 50);
    assert!(!outage.hangs());
}

#[test]
fn while_a_kind_hangs_and_others_answer_no_worker_is_taken_from_them_to_try_whether_fewer_do() {
    let mut outage = Outage::new(30);
    outage.pass(60, 10);
    outage.waiting = 200;
    for _ in 0..300 {
        outage.pass(1, 15_000);
        let sizing = outage.pool.sizing();
        assert_eq!(sizing.terms.downstream, None, "{}", outage.second);
    }
    assert!(outage.hangs());
    // All of them wait for the same thing: a trial.
    outage.others = 0;
    let tried = (0..60).any(|_| {
        outage.pass(1, 15_000);
        outage.pool.sizing().terms.downstream.is_some()
    });
    assert!(tried);
}

#[test]
fn pages_that_wait_for_long_from_a_cold_start_beside_quick_ones_are_soon_known_for_what_they_take()
{
    for (others, blocked_ms) in [(10, 500), (30, 500), (10, 1500)] {
        let mut outage = Outage::new(others);
        outage.pass(120, blocked_ms);
        let after = outage.pool.parks_after();
        assert!(!outage.hangs(), "{others} {blocked_ms}: {after} s");
    }
}

#[test]
fn what_is_dead_at_a_cold_start_does_not_become_usual_while_others_answer() {
    for others in [3, 10, 70] {
        let mut outage = Outage::new(others);
        outage.pass(1800, 15_000);
        let after = outage.pool.parks_after();
        assert!(outage.hangs() && after < 6.5, "{others}: {after} s");
    }
}

#[test]
fn where_all_pages_have_become_slow_that_is_what_they_take() {
    let mut outage = Outage::new(30);
    outage.pass(60, 10);
    outage.others = 0;
    outage.pass(2, 2000);
    assert!(outage.hangs());
    outage.pass(120, 2000);
    let after = outage.pool.parks_after();
    assert!(!outage.hangs() && after > 2.0, "{after} s");
}
