use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);

fn at(seconds: u64) -> Clocks {
    Clocks {
        moment: Duration::from_secs(seconds),
        wall: SystemTime::UNIX_EPOCH + 10_000 * DAY + Duration::from_secs(seconds),
    }
}

fn valid(from: Clocks, days: u32) -> Validity {
    Validity { from: from.wall, until: from.wall + DAY * days }
}

fn wanted(name: &str, valid: Option<Validity>) -> AcmeHost {
    AcmeHost { name: name.to_owned(), valid }
}

fn failed(cause: Cause) -> OrderFailure {
    OrderFailure { cause, why: "no".to_owned(), retry_after: None }
}

fn one() -> Schedule {
    let mut schedule = Schedule::default();
    schedule.set(&[wanted("a.com", None)]);
    schedule
}

/// The waits after this many failures in a row, in seconds.
fn waits(cause: Cause, count: usize) -> Vec<u64> {
    let mut schedule = one();
    let mut now = at(0);
    let mut waits = Vec::new();
    for _ in 0..count {
        assert_eq!(schedule.next(now).as_deref(), Some("a.com"));
        let retry = schedule.failed(&failed(cause), now, 0).unwrap();
        let due = schedule.deadline(now).unwrap();
        assert_eq!(due, now.moment + retry.wait);
        waits.push(retry.wait.as_secs());
        now = at(due.as_secs());
    }
    waits
}

#[test]
fn a_host_without_a_certificate_is_asked_for_at_once_and_one_at_a_time() {
    let mut schedule = Schedule::default();
    schedule.set(&[wanted("a.com", None), wanted("b.com", None)]);
    assert_eq!(schedule.deadline(at(5)), Some(at(5).moment));
    assert_eq!(schedule.next(at(5)).as_deref(), Some("a.com"));
    assert_eq!(schedule.next(at(5)), None);
    assert_eq!(schedule.deadline(at(5)), None);
    schedule.issued(valid(at(5), 90), at(5));
    assert_eq!(schedule.next(at(5)).as_deref(), Some("b.com"));
}

#[test]
fn a_certificate_is_renewed_after_two_thirds_of_its_life_or_a_little_earlier() {
    for name in ["a.com", "b.com", "shop.example.com"] {
        let life = valid(at(0), 90);
        let renewal = renewal_of(name, &life).duration_since(life.from).unwrap();
        assert!(renewal <= 60 * DAY && renewal > 55 * DAY, "{renewal:?}");
        let mut schedule = Schedule::default();
        schedule.set(&[wanted(name, Some(life))]);
        let due = renewal.as_secs();
        assert_eq!(schedule.next(at(due - 1)), None);
        assert_eq!(schedule.next(at(due + 1)).as_deref(), Some(name));
    }
}

#[test]
fn a_wait_is_never_slept_through_for_longer_than_the_clock_may_be_wrong() {
    let mut schedule = Schedule::default();
    schedule.set(&[wanted("a.com", Some(valid(at(0), 90)))]);
    assert_eq!(schedule.deadline(at(0)), Some(LOOK_AT_CLOCK));
    // The clock was a hundred days late.
    let mut now = at(3600);
    now.wall += 100 * DAY;
    assert_eq!(schedule.deadline(now), Some(now.moment));
    assert!(schedule.next(now).is_some());
}

#[test]
fn waits_double_and_those_that_the_authority_counts_are_longer() {
    assert_eq!(waits(Cause::Unreachable, 4), [10, 20, 40, 80]);
    assert_eq!(*waits(Cause::Unreachable, 20).last().unwrap(), 3600);
    assert_eq!(waits(Cause::Refused, 4), [300, 600, 1200, 2400]);
    assert_eq!(*waits(Cause::Refused, 20).last().unwrap(), 12 * 3600);
    assert_eq!(waits(Cause::Limited, 2), [3600, 7200]);
    let in_the_first_hour = [0, 300, 900, 2100];
    assert!(in_the_first_hour.len() < 5, "Let's Encrypt allows five");
}

#[test]
fn what_the_authority_asks_to_wait_is_waited_and_no_reload_hurries_it() {
    let mut schedule = Schedule::default();
    schedule.set(&[wanted("a.com", None), wanted("b.com", None)]);
    schedule.next(at(0));
    let limited =
        OrderFailure { retry_after: Some(Duration::from_secs(5000)), ..failed(Cause::Limited) };
    let retry = schedule.failed(&limited, at(0), 0).unwrap();
    assert_eq!(retry.wait, Duration::from_secs(5000));
    schedule.hurry();
    assert_eq!(schedule.next(at(59)), None, "no order is due for a while");
    assert_eq!(schedule.next(at(60)).as_deref(), Some("b.com"));
    schedule.issued(valid(at(60), 90), at(60));
    assert_eq!(schedule.next(at(4999)), None);
    assert_eq!(schedule.next(at(5000)).as_deref(), Some("a.com"));
}

#[test]
fn a_reload_has_a_host_tried_once_whose_order_another_node_failed_unless_it_was_limited() {
    let put_off = |is_limited| PutOff { wait: 5000 * SECOND, why: "no".to_owned(), is_limited };
    let mut schedule = one();
    schedule.hurry();
    assert!(schedule.next(at(0)).is_some());
    assert!(!schedule.is_hurried(), "it had not failed");
    schedule.put_off(put_off(false), at(0).moment);
    assert_eq!(schedule.next(at(1)), None);
    schedule.hurry();
    assert!(schedule.next(at(1)).is_some() && schedule.is_hurried());
    schedule.failed(&failed(Cause::Refused), at(1), 0);
    assert!(schedule.next(at(301)).is_some() && !schedule.is_hurried());
    schedule.put_off(put_off(true), at(301).moment);
    schedule.hurry();
    assert_eq!(schedule.next(at(5300)), None);
    assert!(schedule.next(at(5301)).is_some() && !schedule.is_hurried());
}

#[test]
fn a_reload_has_what_failed_tried_soon_but_not_again_and_again() {
    let mut schedule = one();
    schedule.next(at(0));
    schedule.failed(&failed(Cause::Refused), at(0), 0);
    schedule.hurry();
    assert_eq!(schedule.next(at(9)), None);
    assert!(schedule.next(at(10)).is_some());
    let retry = schedule.failed(&failed(Cause::Refused), at(10), 0).unwrap();
    assert_eq!(retry.wait.as_secs(), 600, "it is still in a row");
}

#[test]
fn a_failure_is_news_once_and_the_certificate_before_stays() {
    let mut schedule = Schedule::default();
    let life = valid(at(0), 1);
    schedule.set(&[wanted("a.com", Some(life))]);
    let mut now = at(80_000);
    for is_news in [true, false, false] {
        schedule.next(now);
        let second = now.moment.as_secs();
        let why = format!("the authority refuses it: token {second} (dns)");
        let failure = OrderFailure { why, ..failed(Cause::Refused) };
        let retry = schedule.failed(&failure, now, 0).unwrap();
        assert_eq!(retry.is_news, is_news);
        now = at(now.moment.as_secs() + retry.wait.as_secs());
    }
    let (_, entry, _) = schedule.hosts(now).next().unwrap();
    assert_eq!((entry.valid, entry.failures), (Some(life), 3));
    schedule.next(now);
    schedule.issued(valid(now, 1), now);
    let (_, entry, _) = schedule.hosts(now).next().unwrap();
    assert_eq!((entry.failures, &entry.error), (0, &None));
}

#[test]
fn an_authority_that_is_not_there_is_asked_and_told_of_once_for_all_hosts() {
    let names: Vec<String> = (0..1000).map(|number| format!("{number}.com")).collect();
    let wanted: Vec<_> = names.iter().map(|name| wanted(name, None)).collect();
    let mut schedule = Schedule::default();
    schedule.set(&wanted);
    let (mut now, mut news, mut tries) = (at(0), 0, 0);
    while now.moment < DAY {
        if schedule.next(now).is_some() {
            let retry = schedule.failed(&failed(Cause::Unreachable), now, 0).unwrap();
            news += u32::from(retry.is_news);
            tries += 1;
        }
        now = at(schedule.deadline(now).unwrap().as_secs());
    }
    assert_eq!(news, 1);
    assert!((20..40).contains(&tries), "{tries} tries in a day");
    schedule.hurry();
    let due = schedule.deadline(now).unwrap();
    assert!(due <= now.moment + HURRY, "a reload has it asked soon");
    now = at(due.as_secs());
    assert!(schedule.next(now).is_some());
    schedule.issued(valid(now, 90), now);
    assert!(schedule.next(now).is_some(), "and the others follow");
}

#[test]
fn a_certificate_that_is_due_when_it_is_issued_is_not_ordered_again_at_once() {
    let mut schedule = one();
    let (mut now, mut waits) = (at(200 * 24 * 3600), Vec::new());
    for _ in 0..7 {
        assert!(schedule.next(now).is_some());
        // By a clock that is ahead: two thirds of its life are over.
        let wait = schedule.issued(valid(at(now.moment.as_secs() - 61 * 24 * 3600), 90), now);
        waits.push(wait.unwrap().as_secs() / 3600);
        schedule.hurry();
        assert_eq!(schedule.next(now), None);
        now = at(schedule.deadline(now).unwrap().as_secs());
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 24, 24]);
    assert!(schedule.next(now).is_some());
    assert_eq!(schedule.issued(valid(now, 90), now), None);
    let later = at(now.moment.as_secs() + 59 * 24 * 3600);
    assert_eq!(schedule.next(at(later.moment.as_secs() - 5 * 24 * 3600)), None);
}

#[test]
fn a_certificate_of_another_node_that_is_due_is_followed_by_an_order() {
    let mut schedule = one();
    let now = at(200 * 24 * 3600);
    assert!(schedule.next(now).is_some());
    schedule.adopted(valid(at(now.moment.as_secs() - 89 * 24 * 3600), 90));
    assert_eq!(schedule.next(now).as_deref(), Some("a.com"));
}

#[test]
fn what_is_configured_no_more_is_forgotten_even_while_it_is_asked_for() {
    let mut schedule = one();
    schedule.next(at(0));
    schedule.set(&[wanted("b.com", None)]);
    assert_eq!(schedule.failed(&failed(Cause::Refused), at(1), 0), None);
    assert_eq!(schedule.next(at(1)).as_deref(), Some("b.com"));
}

#[test]
fn what_another_node_does_is_waited_for_and_is_no_failure() {
    let mut schedule = Schedule::default();
    schedule.set(&[wanted("a.com", None), wanted("b.com", None)]);
    assert_eq!(schedule.next(at(0)).as_deref(), Some("a.com"));
    schedule.postponed(Duration::from_secs(3), None, at(0).moment);
    assert_eq!(schedule.next(at(2)), None);
    assert_eq!(schedule.next(at(3)).as_deref(), Some("a.com"), "it has not failed");
    let why = "elsewhere".to_owned();
    schedule.put_off(PutOff { wait: 300 * SECOND, why, is_limited: false }, at(3).moment);
    assert_eq!(schedule.next(at(3)).as_deref(), Some("b.com"));
    schedule.issued(valid(at(3), 90), at(3));
    assert_eq!(schedule.next(at(302)), None);
    schedule.renewed("a.com", valid(at(302), 90));
    assert_eq!(schedule.next(at(303)), None);
    assert_eq!(schedule.hosts(at(303)).next().unwrap().1.error, None);
}

proptest! {
    #[test]
    fn whatever_happens_one_is_asked_for_at_a_time_and_every_one_again(
        steps in prop::collection::vec((0u64..20_000, 0u8..6, any::<u8>()), 1..200))
    {
        let names = ["a.com", "b.com", "c.com"];
        let mut schedule = Schedule::default();
        schedule.set(&names.map(|name| wanted(name, None)));
        let (mut now, mut asked) = (at(0), None);
        for (pass, what, random) in steps {
            now = at(now.moment.as_secs() + pass);
            match what {
                0 | 1 => {
                    let next = schedule.next(now);
                    prop_assert!(asked.is_none() || next.is_none());
                    asked = asked.or(next);
                }
                2 if asked.take().is_some() => {
                    prop_assert_eq!(schedule.issued(valid(now, 1), now), None);
                }
                3..=5 if asked.take().is_some() => {
                    let cause = [Cause::Unreachable, Cause::Refused, Cause::Limited];
                    let failure = failed(cause[usize::from(what) - 3]);
                    let retry = schedule.failed(&failure, now, random).unwrap();
                    prop_assert!(retry.wait >= UNREACHABLE.0);
                    prop_assert!(retry.wait <= LIMITED.1 * 5 / 4);
                }
                _ => schedule.hurry(),
            }
        }
        schedule.given_up();
        // All of them come to their turn within two days.
        let mut seen = std::collections::BTreeSet::new();
        let until = now.moment + 2 * DAY;
        while let Some(due) = schedule.deadline(now).filter(|due| *due <= until) {
            now = at(due.as_secs().max(now.moment.as_secs()) + 1);
            if let Some(name) = schedule.next(now) {
                seen.insert(name);
                schedule.issued(valid(now, 90), now);
            }
        }
        prop_assert_eq!(seen.len(), names.len());
    }
}
