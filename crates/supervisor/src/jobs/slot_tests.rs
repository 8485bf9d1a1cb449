use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const NONE: Chance = Chance(0.0);

fn job() -> Job {
    Job { stop_timeout: 10 * SECOND, ..Job::default() }
}

fn up(pid: i32, job: &Job, now: Moment) -> Slot {
    let mut slot = Slot::new(now);
    assert_eq!(slot.due(true, now), Some(JobStep::Start));
    assert_eq!(slot.started(pid, job, NONE, now), None);
    slot
}

#[test]
fn a_process_that_ends_well_is_started_again_at_once_and_a_failed_one_after_growing_waits() {
    let job = job();
    let mut slot = up(1, &job, SECOND);
    let end = slot.ended(1, true, &job, NONE, 5 * SECOND).unwrap();
    assert_eq!((end.failed, end.again_in), (false, Some(Duration::ZERO)));
    let mut now = 5 * SECOND;
    let mut waits = Vec::new();
    for pid in 2..14 {
        assert_eq!(slot.due(true, now), Some(JobStep::Start));
        slot.started(pid, &job, NONE, now);
        let end = slot.ended(pid, false, &job, NONE, now).unwrap();
        assert!(end.failed && !end.was_asked);
        let wait = end.again_in.unwrap();
        assert_eq!(slot.deadline(true), Some(now + wait));
        assert_eq!(slot.due(true, now), None);
        waits.push(wait.as_millis());
        now += wait;
    }
    let doubled = [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 51_200, 60_000, 60_000];
    assert_eq!(waits, doubled);
    slot.due(true, now);
    slot.started(20, &job, NONE, now);
    let end = slot.ended(20, false, &job, NONE, now + 60 * SECOND).unwrap();
    assert_eq!(end.again_in, Some(Duration::from_millis(100)), "it ran for long");
}

#[test]
fn a_process_whose_end_becomes_known_while_its_successor_is_started_has_ended() {
    let job = Job { max_runtime: SECOND, ..job() };
    let mut slot = up(1, &job, SECOND);
    assert_eq!(slot.due(true, 9 * SECOND), Some(JobStep::Start));
    // The successor has its number.
    assert!(slot.ended(1, true, &job, NONE, 9 * SECOND).unwrap().was_asked);
    assert_eq!(slot.started(1, &job, NONE, 9 * SECOND), None);
    assert_eq!((slot.processes().count(), slot.word()), (1, "running"));
}

#[test]
fn one_that_ends_at_once_counts_as_failed_unless_it_is_not_started_again() {
    let always = job();
    let end = up(1, &always, SECOND).ended(1, true, &always, NONE, SECOND).unwrap();
    assert!(end.failed);
    let once = Job { restart: Restart::OnFailure, ..job() };
    let mut slot = up(1, &once, SECOND);
    let end = slot.ended(1, true, &once, NONE, SECOND).unwrap();
    assert_eq!((end.failed, end.again_in, slot.word()), (false, None, "ended"));
    assert_eq!(slot.deadline(true), None);
    assert_eq!(slot.renew(&once, 2 * SECOND), None);
    assert_eq!(slot.due(true, 2 * SECOND), Some(JobStep::Start), "a reload starts it again");
}

#[test]
fn a_reload_stops_the_process_first_and_kills_it_after_the_timeout() {
    let job = job();
    let mut slot = up(1, &job, SECOND);
    assert_eq!(slot.renew(&job, 2 * SECOND), Some(JobStep::Stop(1)));
    assert_eq!(slot.renew(&job, 3 * SECOND), None, "it is stopped once");
    assert_eq!(slot.deadline(true), Some(12 * SECOND));
    assert_eq!(slot.due(true, 12 * SECOND), Some(JobStep::Kill(1)));
    assert_eq!(slot.due(true, 13 * SECOND), None, "it is killed once");
    let end = slot.ended(1, false, &job, NONE, 13 * SECOND).unwrap();
    assert!(end.was_asked && !end.failed);
    assert_eq!(slot.due(true, 13 * SECOND), Some(JobStep::Start));
}

#[test]
fn a_successor_runs_before_the_old_process_is_stopped() {
    let job = Job { max_runtime: 100 * SECOND, ..job() };
    let mut slot = up(1, &job, Duration::ZERO);
    assert_eq!(slot.due(true, 99 * SECOND), None);
    assert_eq!(slot.due(true, 100 * SECOND), Some(JobStep::Start));
    let again = slot.start_failed(&job, NONE, 100 * SECOND);
    assert_eq!(slot.up().map(|process| process.pid), Some(1), "the old one runs on");
    let now = 100 * SECOND + again;
    assert_eq!(slot.due(true, now), Some(JobStep::Start));
    assert_eq!(slot.started(2, &job, NONE, now), Some(JobStep::Stop(1)));
    assert_eq!(slot.processes().count(), 2);
    assert!(slot.ended(1, true, &job, NONE, now + SECOND).unwrap().was_asked);
    assert_eq!(slot.deadline(true), Some(now + 100 * SECOND));
}

#[derive(Debug, Clone)]
enum Event {
    Pass(u64),
    End(bool),
    Renew,
    Replace,
    FailStart,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0u64..30_000).prop_map(Event::Pass),
        any::<bool>().prop_map(Event::End),
        Just(Event::Renew),
        Just(Event::Replace),
        Just(Event::FailStart),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_a_slot_has_two_processes_at_most_and_a_stop_ends_all(
        events in prop::collection::vec(event(), 1..100), runtime in 0u64..60)
    {
        let job = Job { max_runtime: Duration::from_secs(runtime), ..job() };
        let (mut slot, mut now, mut next) = (Slot::new(Duration::ZERO), Duration::ZERO, 1);
        let (mut fails, mut lives) = (false, std::collections::BTreeSet::new());
        for event in events {
            match event {
                Event::Pass(millis) => now += Duration::from_millis(millis),
                Event::End(well) => if let Some(pid) = lives.pop_first() {
                    prop_assert!(slot.ended(pid, well, &job, Chance(0.5), now).is_some());
                },
                Event::Renew => drop(slot.renew(&job, now)),
                Event::Replace => slot.replace(now),
                Event::FailStart => fails = true,
            }
            while let Some(step) = slot.due(true, now) {
                match step {
                    JobStep::Start if std::mem::take(&mut fails) => {
                        slot.start_failed(&job, Chance(0.5), now);
                    }
                    JobStep::Start => {
                        lives.insert(next);
                        slot.started(next, &job, Chance(0.5), now);
                        next += 1;
                    }
                    JobStep::Stop(_) => {}
                    JobStep::Kill(pid) => {
                        lives.remove(&pid);
                        slot.ended(pid, false, &job, Chance(0.5), now);
                    }
                }
            }
            let known: Vec<i32> = slot.processes().map(|process| process.pid).collect();
            prop_assert!(known.len() <= 2);
            prop_assert!(known.iter().all(|pid| lives.contains(pid)) && lives.len() == known.len());
            prop_assert!(slot.deadline(true).is_none_or(|at| at > now));
        }
        slot.retire(&job, now);
        while let Some(at) = slot.deadline(true) {
            now = now.max(at);
            while let Some(step) = slot.due(true, now) {
                let JobStep::Kill(pid) = step else { panic!("{step:?} of a retired slot") };
                slot.ended(pid, false, &job, Chance(0.5), now);
            }
        }
        prop_assert!(slot.is_gone(), "{slot:?}");
    }
}
