use std::time::{Duration, Instant};

use maitred_os::clock::monotonic_nanos;

use crate::*;

fn both() -> (FrontEnd, WorkerEnd) {
    let file = create("test", 1, 1).unwrap();
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
    let front = FrontEnd::take_over(&file, 1, 1).unwrap();
    (front, WorkerEnd::new(&file, vec![event], 0, 1).unwrap())
}

const MICROSECOND: Duration = Duration::from_micros(1);

#[test]
fn what_a_request_has_cost_comes_with_its_answer_and_is_gone_with_the_next() {
    let (front, mut worker) = both();
    let (lent, _) = front.offer(0, 0, 1, 0, b"one");
    assert_eq!(front.spent(&lent), None);
    assert!(worker.try_claim());
    let spent = Spent {
        held: 9 * MICROSECOND,
        cpu: 4 * MICROSECOND,
        core_wait: Some(Duration::ZERO),
        children: 7 * MICROSECOND,
        peak_memory: 2 << 20,
    };
    worker.tell_spent(&spent);
    worker.finish();
    assert_eq!(front.spent(&lent), Some(spent));
    assert_eq!(spent.blocked(), Some(5 * MICROSECOND));
    front.release(lent);
    let (lent, _) = front.offer(0, 0, 1, 0, b"two");
    assert_eq!(front.spent(&lent), None);
}

#[test]
fn how_long_a_script_took_is_told_with_its_request_and_not_with_the_next() {
    let (front, mut worker) = both();
    let (lent, _) = front.offer(0, 0, 1, 0, b"one");
    assert_eq!(front.took(&lent), None);
    assert!(worker.try_claim());
    worker.tell_took(17);
    worker.finish();
    assert_eq!(front.took(&lent), Some(17));
    front.release(lent);
    let (lent, _) = front.offer(0, 0, 1, 0, b"two");
    assert_eq!(front.took(&lent), None);
    assert!(worker.try_claim());
    worker.tell_took(0);
    assert_eq!(
        front.took(&lent),
        Some(1),
        "less than a microsecond is said, too"
    );
    worker.tell_took(u64::MAX);
    assert_eq!(front.took(&lent), Some(u32::MAX));
}

#[test]
fn who_is_not_told_how_long_it_waited_for_a_processor_does_not_know_what_it_waited_for() {
    let (front, mut worker) = both();
    let (lent, _) = front.offer(0, 0, 1, 0, b"one");
    assert!(worker.try_claim());
    let spent = Spent {
        held: 9 * MICROSECOND,
        cpu: 4 * MICROSECOND,
        ..Spent::default()
    };
    worker.tell_spent(&spent);
    assert_eq!(front.spent(&lent), Some(spent));
    assert_eq!(spent.blocked(), None);
}

#[test]
fn a_worker_and_its_front_mean_the_same_moment() {
    let (front, mut worker) = both();
    let before = monotonic_nanos();
    let (lent, _) = front.offer(0, 0, 1, 0, b"one");
    assert!(worker.try_claim());
    let after = monotonic_nanos();
    // Both clocks were read one after the other when the link was taken over.
    let between = before.saturating_sub(1_000_000)..=after + 1_000_000;
    assert!(between.contains(&worker.lent_at()));
    assert!(lent.at() <= Instant::now());
}

#[test]
fn times_that_no_request_takes_are_cut() {
    let (front, mut worker) = both();
    let (lent, _) = front.offer(0, 0, 1, 0, b"one");
    assert!(worker.try_claim());
    worker.tell_spent(&Spent {
        held: Duration::MAX,
        cpu: Duration::MAX,
        core_wait: Some(Duration::MAX),
        children: Duration::MAX,
        peak_memory: u64::MAX,
    });
    let spent = front.spent(&lent).unwrap();
    assert!(spent.held < Duration::from_secs(60 * 86_400));
    assert!(spent.cpu + spent.children < Duration::from_secs(120 * 86_400));
    assert_eq!(spent.blocked(), Some(Duration::ZERO));
}
