use super::*;

const MS: Duration = Duration::from_millis(1);
const WORK: Workload = Workload { script: Duration::from_millis(5), workers: 4 };

/// Looks every 10 ms for `times` times, in which the first in the queue has waited for `oldest`.
fn looks(
    overload: &mut Overload,
    now: &mut Instant,
    times: u32,
    oldest: Duration,
) -> Vec<OrderChange> {
    let lifo_starts = (0..times).map(|_| {
        *now += 10 * MS;
        overload.check(*now, oldest, &WORK)
    });
    lifo_starts.filter(|turn| *turn != OrderChange::Unchanged).collect()
}

#[test]
fn a_queue_that_stands_is_turned_round_only_if_some_are_refused_and_some_are_not() {
    let (mut overload, mut now) = (Overload::default(), Instant::now());
    overload.note_dequeue();
    assert_eq!(looks(&mut overload, &mut now, 100, 2000 * MS), []);
    overload.note_rejection();
    assert_eq!(looks(&mut overload, &mut now, 20, 2000 * MS), [], "and nothing moves");
    overload.note_rejection();
    overload.note_dequeue();
    let lifo_starts = looks(&mut overload, &mut now, 20, 2000 * MS);
    assert_eq!(lifo_starts, [OrderChange::Lifo]);
    assert!(overload.is_lifo());
}

#[test]
fn a_queue_that_stands_is_turned_round_if_many_clients_leave_it_and_not_if_few_do() {
    let (mut overload, mut now) = (Overload::default(), Instant::now());
    overload.check(now, Duration::ZERO, &WORK);
    let mut interval = |left, served, oldest| {
        (0..left).for_each(|_| overload.note_departure());
        (0..served).for_each(|_| overload.note_dequeue());
        looks(&mut overload, &mut now, 10, oldest)
    };
    interval(0, 0, Duration::ZERO);
    for (left, served) in [(0, 20), (4, 20), (5, 0)] {
        assert_eq!(interval(left, served, 2000 * MS), [], "{left} of {served}");
    }
    assert_eq!(interval(5, 20, MS), [], "it was short");
    assert_eq!(interval(5, 20, 2000 * MS), [OrderChange::Lifo]);
}

#[test]
fn a_queue_that_refuses_some_and_was_short_once_stays_in_order() {
    let (mut overload, mut now) = (Overload::default(), Instant::now());
    for _ in 0..20 {
        overload.note_rejection();
        overload.note_dequeue();
        assert_eq!(looks(&mut overload, &mut now, 9, 300 * MS), []);
        overload.note_empty();
    }
}

#[test]
fn order_comes_back_after_two_calm_intervals_and_not_after_one() {
    let (mut overload, mut now) = (Overload::default(), Instant::now());
    overload.note_rejection();
    overload.note_dequeue();
    looks(&mut overload, &mut now, 12, 300 * MS);
    assert!(overload.is_lifo());
    assert_eq!(looks(&mut overload, &mut now, 9, MS), []);
    assert_eq!(looks(&mut overload, &mut now, 10, 300 * MS), []);
    assert_eq!(looks(&mut overload, &mut now, 20, MS), [OrderChange::Fifo]);
}

#[test]
fn order_has_come_back_when_somebody_waits_after_a_long_rest() {
    let (mut overload, mut now) = (Overload::default(), Instant::now());
    overload.note_rejection();
    overload.note_dequeue();
    looks(&mut overload, &mut now, 12, 300 * MS);
    overload.note_empty();
    now += Duration::from_secs(60);
    assert_eq!(overload.check(now, Duration::ZERO, &WORK), OrderChange::Fifo);
}

#[test]
fn how_long_a_queue_takes_is_known_from_what_leaves_it() {
    let (mut overload, mut now) = (Overload::default(), Instant::now());
    overload.check(now, Duration::ZERO, &WORK);
    assert_eq!(overload.wait_estimate(100, now), None, "nothing has left it yet");
    for _ in 0..60 {
        now += 5 * MS;
        overload.note_dequeue();
        overload.check(now, 50 * MS, &WORK);
    }
    let wait_estimate = overload.wait_estimate(100, now).expect("a rate");
    assert!(wait_estimate > 490 * MS && wait_estimate < 510 * MS, "{wait_estimate:?}");
    // All workers hang.
    now += 5000 * MS;
    let wait_estimate = overload.wait_estimate(100, now).expect("a rate");
    assert!(wait_estimate > 5000 * MS, "{wait_estimate:?}");
    overload.note_empty();
    assert_eq!(overload.wait_estimate(1, now), None, "what comes next is another crowd");
}

#[test]
fn a_few_long_scripts_do_not_make_a_queue_hopeless() {
    let (mut overload, mut now) = (Overload::default(), Instant::now());
    overload.check(now, Duration::ZERO, &WORK);
    for _ in 0..2 {
        for _ in 0..16 {
            now += 20 * MS;
            overload.note_dequeue();
            overload.check(now, 50 * MS, &WORK);
        }
    }
    // Both workers of a pool have a script of 1.3 s, and 35 short ones wait.
    now += 1300 * MS;
    let wait_estimate = overload.wait_estimate(35, now).expect("a rate");
    assert!(wait_estimate < 4000 * MS, "{wait_estimate:?}");
}

#[test]
fn scripts_that_take_long_are_given_time() {
    let slow = Workload { script: Duration::from_secs(2), workers: 4 };
    assert_eq!(slow.target(), Duration::from_secs(1));
    assert_eq!(slow.interval(), Duration::from_secs(10));
    assert_eq!(slow.patience(Duration::from_secs(10)), Duration::from_secs(2));
    assert_eq!(WORK.target(), MIN_TARGET);
    assert_eq!(WORK.interval(), MIN_INTERVAL);
    assert_eq!(WORK.patience(Duration::from_secs(10)), PATIENCE);
    assert_eq!(WORK.patience(200 * MS), 200 * MS);
    let empty = Workload { workers: 0, ..slow };
    assert_eq!(empty.target(), Duration::from_secs(4));
}
