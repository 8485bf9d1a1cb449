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
    let (assigned, _) = front.offer(0, 0, 1, 0, b"one");
    assert_eq!(front.spent(&assigned), None);
    assert!(worker.try_claim());
    let spent = Spent {
        held: 9 * MICROSECOND,
        cpu: 4 * MICROSECOND,
        core_wait: Some(Duration::ZERO),
        children: 7 * MICROSECOND,
        peak_memory: 2 << 20,
    };
    worker.report_spent(&spent);
    worker.finish();
    assert_eq!(front.spent(&assigned), Some(spent));
    assert_eq!(spent.blocked(), Some(5 * MICROSECOND));
    front.release(assigned);
    let (assigned, _) = front.offer(0, 0, 1, 0, b"two");
    assert_eq!(front.spent(&assigned), None);
}

#[test]
fn how_long_a_script_took_is_told_with_its_request_and_not_with_the_next() {
    let (front, mut worker) = both();
    let (assigned, _) = front.offer(0, 0, 1, 0, b"one");
    assert_eq!(front.took(&assigned), None);
    assert!(worker.try_claim());
    worker.report_duration(17);
    worker.finish();
    assert_eq!(front.took(&assigned), Some(17));
    front.release(assigned);
    let (assigned, _) = front.offer(0, 0, 1, 0, b"two");
    assert_eq!(front.took(&assigned), None);
    assert!(worker.try_claim());
    worker.report_duration(0);
    assert_eq!(front.took(&assigned), Some(1), "less than a microsecond is said, too");
    worker.report_duration(u64::MAX);
    assert_eq!(front.took(&assigned), Some(u32::MAX));
}

#[test]
fn who_is_not_told_how_long_it_waited_for_a_processor_does_not_know_what_it_waited_for() {
    let (front, mut worker) = both();
    let (assigned, _) = front.offer(0, 0, 1, 0, b"one");
    assert!(worker.try_claim());
    let spent = Spent { held: 9 * MICROSECOND, cpu: 4 * MICROSECOND, ..Spent::default() };
    worker.report_spent(&spent);
    assert_eq!(front.spent(&assigned), Some(spent));
    assert_eq!(spent.blocked(), None);
}

#[test]
fn a_worker_and_its_front_mean_the_same_moment() {
    let (front, mut worker) = both();
    let before = monotonic_nanos();
    let (assigned, _) = front.offer(0, 0, 1, 0, b"one");
    assert!(worker.try_claim());
    let after = monotonic_nanos();
    // Both clocks were read one after the other when the link was taken over.
    let between = before.saturating_sub(1_000_000)..=after + 1_000_000;
    assert!(between.contains(&worker.assigned_at()));
    assert!(assigned.at() <= Instant::now());
}

#[test]
fn times_that_no_request_takes_are_cut() {
    let (front, mut worker) = both();
    let (assigned, _) = front.offer(0, 0, 1, 0, b"one");
    assert!(worker.try_claim());
    worker.report_spent(&Spent {
        held: Duration::MAX,
        cpu: Duration::MAX,
        core_wait: Some(Duration::MAX),
        children: Duration::MAX,
        peak_memory: u64::MAX,
    });
    let spent = front.spent(&assigned).unwrap();
    // The request has been running for a moment.
    assert!(spent.held < Duration::from_secs(60));
    let most = Duration::from_secs(60) * std::thread::available_parallelism().unwrap().get() as u32;
    assert!(spent.cpu < most && spent.children < most, "{spent:?}");
    assert_eq!(spent.blocked(), Some(Duration::ZERO));
}

#[test]
fn what_a_script_costs_after_its_response_is_added_to_what_it_has_cost() {
    let ms = std::time::Duration::from_millis;
    let before = Spent {
        held: ms(50),
        cpu: ms(10),
        core_wait: Some(ms(5)),
        children: ms(3),
        peak_memory: 4096,
    };
    let more = Spent { held: ms(7), cpu: ms(2), core_wait: Some(ms(1)), ..before };
    let all = before.and(Spent { peak_memory: 1, ..more });
    let expected = Spent {
        held: ms(57),
        cpu: ms(12),
        core_wait: Some(ms(6)),
        children: ms(6),
        peak_memory: 4096,
    };
    assert_eq!(all, expected);
    assert_eq!(all.blocked(), Some(ms(39)));
    let unknown = before.and(Spent { core_wait: None, ..more });
    assert_eq!((unknown.core_wait, unknown.blocked()), (None, None));
}
