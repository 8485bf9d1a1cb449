//! The course against servers whose best number of workers is known.

use super::*;
use crate::decide::MemoryBudget;
use crate::measurement::{Load, Task};
use profile::Route;

mod unlawful;

const MB: f64 = 1_048_576.0;

/// A server of pages that compute and wait for so long, in seconds.
struct SimulatedSite {
    cores: f64,
    cpu: f64,
    waits: f64,
    as_it_was: u32,
    asked: Vec<Task>,
}

impl SimulatedSite {
    fn answer(&mut self, task: &Task, goal: Option<&Goal>) -> Measurement {
        self.asked.push(*task);
        let workers = match task.setting {
            Setting::AsItWas => self.as_it_was,
            Setting::Workers(workers) => workers,
        };
        let alone = self.cpu + self.waits;
        let most = (f64::from(workers) / alone).min(self.cores / self.cpu);
        let (rate, mean) = match task.load {
            Load::Users(users) => {
                let rate = (f64::from(users) / alone).min(most);
                (rate, f64::from(users) / rate)
            }
            // OverloadResult its capacity everybody waits for long.
            Load::Rate(asked) if asked > most => (most, 10.0 * alone),
            Load::Rate(asked) => (asked, alone * 1.1),
        };
        let limit = goal.map_or(f64::INFINITY, Goal::limit);
        // Chance, the same in every run of the test.
        let wobble = 1.0 + 0.002 * (self.asked.len() % 5) as f64;
        Measurement {
            seconds: task.seconds,
            served: (rate * task.seconds) as u64,
            rate: rate * wobble,
            goodput: if mean < limit { rate * wobble } else { 0.0 },
            holds: mean < limit,
            p50: Some(mean / wobble),
            p95: Some(mean / wobble * 1.1),
            p99: Some(mean / wobble * 1.3),
            mean: Some(mean / wobble),
            cpu: Some(self.cpu / wobble / wobble),
            workers,
            private: Some(10.0 * MB),
            ..Measurement::default()
        }
    }
}

fn site(cpu: f64, waits: f64, as_it_was: u32) -> SimulatedSite {
    SimulatedSite {
        cores: 2.0,
        cpu,
        waits,
        as_it_was,
        asked: Vec::new(),
    }
}

fn input(pm: &str, workers: u32) -> CourseInput {
    CourseInput {
        seconds: 600.0,
        ends: false,
        first: None,
        cores: 2.0,
        memory: MemoryBudget {
            budget: Ok((4_096.0 * MB, "the machine's memory".to_owned())),
            base: Ok(1_000.0 * MB),
        },
        now: PoolSetting {
            pm: pm.to_owned(),
            workers,
        },
        most_workers: None,
        goal: None,
        routes: Vec::new(),
        despite_noise: false,
        seed: 1,
    }
}

/// A machine of which others use so much while nothing is asked.
fn rest(outside: Option<f64>) -> IdleSample {
    IdleSample {
        outside,
        ..IdleSample::default()
    }
}

fn run(site: &mut SimulatedSite, input: CourseInput) -> Course {
    let mut course = Course::new(input);
    for _ in 0..500 {
        match course.next() {
            NextStep::Idle(_) => course.idled(rest(Some(0.01))),
            NextStep::Measure(task) => {
                let seen = site.answer(&task, course.goal.as_ref());
                course.seen(seen);
            }
            NextStep::Over => return course,
        }
    }
    panic!("it comes to no end");
}

#[test]
fn a_page_that_waits_gets_the_workers_that_five_lack_and_they_are_proven() {
    // 0.5 ms on one of two processors, 39.5 ms of waiting: 160 workers.
    let mut waiting = site(0.0005, 0.0395, 5);
    let course = run(&mut waiting, input("dynamic", 5));
    let choice = course.choice.as_ref().expect("a choice");
    assert!((144..=176).contains(&choice.workers), "{choice:?}");
    assert_eq!(course.verdict, Some(Verdict::Gain));
    let before = course
        .before
        .as_ref()
        .and_then(RateSearch::highest)
        .expect("a rate");
    let after = course
        .after
        .as_ref()
        .and_then(RateSearch::highest)
        .expect("a rate");
    assert!(
        (110.0..=126.0).contains(&before) && after > 3_500.0,
        "{before} {after}"
    );
    let goal = course.goal.as_ref().expect("a goal").text.clone();
    assert!(
        goal.starts_with("p99<1") && goal.ends_with("ms,error<0.1%"),
        "{goal}"
    );
    assert!(course.broken.is_empty() && course.settled);
    let seconds: f64 = waiting
        .asked
        .iter()
        .map(|task| task.seconds + task.warm_up)
        .sum();
    assert!(seconds < 900.0, "{seconds}");
    let after = course.after.as_ref().expect("a search");
    assert!(after.is_confirmed && after.tries.iter().any(|each| each.seconds >= 60.0));
    let beyond = &course.overload.as_ref().expect("an overload").beyond;
    assert_eq!(beyond.len(), 2);
    assert!(
        beyond[1].times == 3.0 && beyond[1].goodput < 0.1,
        "all wait for long"
    );
}

#[test]
fn a_page_that_computes_is_not_given_what_the_guides_give_it() {
    let course = run(&mut site(0.02, 0.0, 50), input("static", 50));
    let choice = course.choice.as_ref().expect("a choice");
    assert_eq!(choice.workers, 2);
    assert!(
        matches!(course.verdict, Some(Verdict::NoGain(_))),
        "{:?}",
        course.verdict
    );
}

#[test]
fn what_is_right_already_is_left_alone_and_auto_has_nothing_to_gain() {
    let course = run(&mut site(0.02, 0.02, 4), input("static", 4));
    assert!(
        matches!(course.verdict, Some(Verdict::NothingToGain(_))),
        "{:?}",
        course.verdict
    );
    assert!(course.pairs.is_empty());
    assert_eq!(
        course.overload.map(|overload| overload.beyond.len()),
        Some(2)
    );
    let auto = run(&mut site(0.0005, 0.0395, 170), input("auto", 200));
    let Some(Verdict::NothingToGain(why)) = &auto.verdict else {
        panic!("{:?}", auto.verdict)
    };
    assert!(why.contains("pm = auto serves as much as") && auto.pairs.len() >= 6);
}

#[test]
fn that_auto_serves_as_much_is_said_only_where_the_pairs_show_it() {
    let mut course = Course::new(input("auto", 200));
    let seen = |goodput: f64| Measurement {
        goodput,
        ..Measurement::default()
    };
    let rates = [3.0, 400.0, 90.0, 2.0, 700.0];
    let pairs = rates.map(|rate| (seen(100.0), seen(rate)));
    course.rows = proof::rows(&pairs, 1);
    let Verdict::NothingToGain(why) = course.judge() else {
        panic!("{:?}", course.rows)
    };
    assert!(why.contains("differ by too much to say"), "{why}");
}

#[test]
fn no_limit_that_cannot_be_read_is_grown_into() {
    let mut input = input("dynamic", 5);
    input.memory.budget = Err("/sys/fs/cgroup/memory.max cannot be read".to_owned());
    let mut site = site(0.0005, 0.0395, 5);
    let course = run(&mut site, input);
    assert!(
        course
            .choice
            .as_ref()
            .is_some_and(|choice| choice.workers <= 5)
    );
    let most = site.asked.iter().filter_map(|task| match task.setting {
        Setting::Workers(workers) => Some(workers),
        Setting::AsItWas => None,
    });
    assert_eq!(most.max(), Some(5));
}

#[test]
fn a_target_slower_than_the_goal_is_told_before_anything_is_changed() {
    let mut input = input("dynamic", 5);
    input.goal = Some(Goal::read("p99<200ms").unwrap());
    let mut slow = site(0.001, 0.999, 5);
    let course = run(&mut slow, input);
    let Some(Verdict::CannotSay(why)) = &course.verdict else {
        panic!("{:?}", course.verdict)
    };
    assert!(
        why.contains("one request alone takes 99") && why.contains("p99<200ms"),
        "{why}"
    );
    assert!(
        slow.asked
            .iter()
            .all(|task| task.setting == Setting::AsItWas)
    );
}

#[test]
fn answers_that_are_not_the_expected_ones_end_it() {
    let mut course = Course::new(input("dynamic", 5));
    course.idled(IdleSample::default());
    course.seen(Measurement {
        error_share: 0.4,
        cause: Some("502 Bad Gateway".to_owned()),
        ..Measurement::default()
    });
    let Some(Verdict::CannotSay(why)) = &course.verdict else {
        panic!("{:?}", course.verdict)
    };
    assert!(
        why.contains("40 % ") && why.contains("502 Bad Gateway"),
        "{why}"
    );
    assert_eq!(course.next(), NextStep::Over);
}

#[test]
fn figures_that_break_a_law_are_not_used() {
    let mut course = Course::new(input("dynamic", 5));
    course.phase = Phase::Sweep;
    course.sweep = Some(Sweep::new(
        decide::ceiling(&course.input.memory, Some(MB), 5, None),
        None,
        decide::enough(None),
    ));
    while course.phase == Phase::Sweep {
        course.seen(Measurement {
            seconds: 1_000.0,
            served: 100_000,
            rate: 100.0,
            mean: Some(9.0),
            ..Measurement::default()
        });
        assert!(course.broken.len() < 30);
    }
    let Some(Verdict::CannotSay(why)) = &course.verdict else {
        panic!("{:?}", course.verdict)
    };
    assert!(why.contains("Little's law"), "{why}");
}

#[test]
fn the_time_left_goes_down() {
    let mut course = Course::new(input("dynamic", 5));
    let first = course.left();
    assert!((300.0..=720.0).contains(&first), "{first}");
    course.idled(IdleSample::default());
    assert!(course.left() < first);
}

#[test]
fn a_machine_that_others_use_ends_it_unless_somebody_wants_to_go_on() {
    let mut course = Course::new(input("dynamic", 5));
    let mut looks = 0;
    while course.next() != NextStep::Over {
        assert!(
            matches!(course.next(), NextStep::Idle(_)),
            "nobody is asked"
        );
        course.idled(rest(Some(0.35)));
        looks += 1;
    }
    assert_eq!(looks, 3, "it may only have been a moment");
    let Some(Verdict::CannotSay(why)) = &course.verdict else {
        panic!("{:?}", course.verdict)
    };
    assert!(
        why.starts_with("others use 35 % of the processors") && why.contains("--despite-noise"),
        "{why}"
    );
    let mut goes_on = Course::new(CourseInput {
        despite_noise: true,
        ..input("dynamic", 5)
    });
    goes_on.idled(rest(Some(0.35)));
    assert!(matches!(goes_on.next(), NextStep::Measure(_)));
    assert_eq!(goes_on.troubles.len(), 1);
    let mut rests = Course::new(input("dynamic", 5));
    rests.idled(rest(Some(0.35)));
    rests.idled(rest(Some(0.02)));
    assert!(matches!(rests.next(), NextStep::Measure(_)) && rests.troubles.is_empty());
}

#[test]
fn a_setting_that_differs_from_itself_ends_it_unless_somebody_wants_to_go_on() {
    let upto_noise = |input: CourseInput| {
        let mut course = Course::new(input);
        course.idled(rest(Some(0.01)));
        let mut runs = 0.0;
        while course.phase <= Phase::Noise {
            runs += 1.0;
            let wobble = if course.phase == Phase::Noise && runs % 4.0 < 2.0 {
                2.0
            } else {
                1.0
            };
            course.seen(Measurement {
                seconds: 10.0,
                served: 1_000,
                rate: 100.0 * wobble,
                mean: Some(0.01),
                p50: Some(0.01),
                ..Measurement::default()
            });
        }
        course
    };
    let course = upto_noise(input("dynamic", 5));
    let Some(Verdict::CannotSay(why)) = &course.verdict else {
        panic!("{:?}", course.verdict)
    };
    assert!(why.contains("differs from itself by"), "{why}");
    let goes_on = upto_noise(CourseInput {
        despite_noise: true,
        ..input("dynamic", 5)
    });
    assert_eq!((goes_on.phase, goes_on.troubles.len()), (Phase::Before, 1));
}

#[test]
fn a_page_that_takes_longer_than_a_window_of_the_warm_up_does_not_keep_it_going_for_ever() {
    let mut course = Course::new(input("dynamic", 5));
    course.idled(rest(Some(0.01)));
    let mut windows = 0;
    while course.phase == Phase::Warm {
        windows += 1;
        assert!(windows <= MOST_WINDOWS);
        course.seen(Measurement::default());
    }
    assert!(course.phase == Phase::Alone && !course.settled);
}

#[test]
fn each_route_is_looked_at_by_one_user_alone() {
    let route = |name: &str, share| Route {
        name: name.to_owned(),
        share,
    };
    let mut input = input("dynamic", 5);
    input.routes = vec![route("GET /", 0.9), route("GET /slow", 0.1)];
    let mut site = site(0.001, 0.02, 5);
    let course = run(&mut site, input);
    let routes = site.asked.iter().filter(|task| task.route.is_some());
    let routes: Vec<_> = routes.map(|task| (task.route, task.load)).collect();
    assert_eq!(
        routes,
        [(Some(0), Load::Users(1)), (Some(1), Load::Users(1))]
    );
    assert_eq!(course.profile.profiled[1].name, "GET /slow");
}

#[test]
fn pairs_that_others_disturb_are_made_again_and_counted() {
    let mut course = Course::new(input("dynamic", 5));
    course.idled(rest(Some(0.01)));
    course.phase = Phase::Proof;
    let seen = |outside| Measurement {
        goodput: 100.0,
        p50: Some(0.01),
        outside: Some(outside),
        ..Measurement::default()
    };
    for outside in [0.01, 0.4, 0.01, 0.02] {
        course.seen(seen(outside));
    }
    assert_eq!((course.pairs.len(), course.repeated), (1, 1));
}

/// What a server takes beside what is measured of it, in seconds.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Reading configurations and looking at the pages.
    prepare: f64,
    reload: f64,
    /// All that is waited for takes as long as it may.
    is_worst: bool,
}

/// How long a tuning of `--quick` takes from the command to its end, in seconds.
fn quick(site: &mut SimulatedSite, input: CourseInput, pace: Pace) -> (f64, Course) {
    let alone = site.cpu + site.waits;
    let mut course = Course::new(CourseInput {
        seconds: 120.0,
        ends: true,
        first: Some(alone),
        ..input
    });
    let mut now = pace.prepare;
    let mut set = Setting::AsItWas;
    for _ in 0..500 {
        course.at(now);
        match course.next() {
            NextStep::Idle(seconds) => {
                now += seconds;
                course.idled(rest(Some(0.01)));
            }
            NextStep::Measure(task) => {
                let limits = task.limits;
                let (ask, end) = match pace.is_worst {
                    true => (limits.ask, limits.timeout),
                    false => (alone, alone),
                };
                if set != task.setting {
                    now += pace.reload + if limits.asks_again { ask } else { 0.0 };
                    course.reloaded(pace.reload);
                    course.booted(WorkerStart {
                        cpu: None,
                        first: alone,
                        second: None,
                    });
                }
                set = task.setting;
                let seen = Measurement {
                    recovery: limits.recovery.filter(|_| !pace.is_worst),
                    ..site.answer(&task, course.goal.as_ref())
                };
                now += if limits.looks { ask } else { 0.0 };
                now += task.warm_up + task.seconds + end;
                now += limits.recovery.unwrap_or(0.0);
                course.seen(seen);
            }
            NextStep::Over => {
                // Put back, written down, and asked for once.
                let reloads = if course.verdict == Some(Verdict::Gain) {
                    2.0
                } else {
                    1.0
                };
                let changes = set != Setting::AsItWas || reloads > 1.0;
                now += if changes { reloads * pace.reload } else { 0.0 };
                return (now + alone, course);
            }
        }
    }
    panic!("it comes to no end");
}

#[test]
fn what_is_to_end_within_two_minutes_does_with_any_page_pool_and_server() {
    for (cpu, waits) in [
        (0.0005, 0.0),
        (0.02, 0.0),
        (0.0005, 0.1),
        (0.01, 0.49),
        (0.002, 0.998),
        (0.01, 2.0),
        (0.01, 5.0),
        (0.5, 9.5),
    ] {
        for (pm, workers) in [("dynamic", 5), ("static", 50), ("auto", 128), ("static", 1)] {
            for (prepare, reload, is_worst) in [
                (0.8, 0.05, false),
                (0.8, 0.5, true),
                (5.0, 3.0, false),
                (20.0, 3.0, true),
            ] {
                let pace = Pace {
                    prepare,
                    reload,
                    is_worst,
                };
                let mut site = site(cpu, waits, workers);
                let (took, course) = quick(&mut site, input(pm, workers), pace);
                let of = format!("{pm} {workers}, {cpu} + {waits} s, {pace:?}");
                assert!(took <= 120.0, "{took:.1} s: {of}, {:?}", course.left_out);
                assert!(course.verdict.is_some(), "{of}");
            }
        }
    }
}

#[test]
fn two_minutes_leave_nothing_out_for_a_short_page_and_less_matters_first_for_a_slow_one() {
    let pace = Pace {
        prepare: 0.8,
        reload: 0.3,
        is_worst: false,
    };
    let (took, course) = quick(&mut site(0.001, 0.1, 5), input("dynamic", 5), pace);
    assert_eq!(course.left_out, [""; 0], "{took}");
    assert_eq!(course.verdict, Some(Verdict::Gain));
    let (took, slow) = quick(&mut site(0.002, 0.998, 5), input("dynamic", 5), pace);
    assert_eq!(
        slow.verdict,
        Some(Verdict::Gain),
        "{took} {:?}",
        slow.left_out
    );
    assert!(
        slow.left_out
            .contains(&"the same against itself".to_owned())
    );
    let (_, slower) = quick(&mut site(0.01, 2.0, 5), input("dynamic", 5), pace);
    let Some(Verdict::NoGain(why)) = &slower.verdict else {
        panic!("{:?} {:?}", slower.verdict, slower.left_out)
    };
    assert!(why.contains("no time for enough pairs"), "{why}");
    let choice = slower.choice.expect("numbers that were tried");
    assert!(choice.binding.contains("time to try"), "{choice:?}");
    let (_, slowest) = quick(&mut site(0.01, 5.0, 4), input("static", 4), pace);
    let Some(Verdict::CannotSay(why)) = &slowest.verdict else {
        panic!("{:?} {:?}", slowest.verdict, slowest.left_out)
    };
    assert!(why.contains("no time to try more than 4 workers"), "{why}");
}

#[test]
fn what_the_server_is_not_ready_for_in_time_is_left_out_and_the_course_comes_to_its_end() {
    for (phase, named) in [
        (Phase::Warm, None),
        (Phase::Alone, None),
        (Phase::Routes, Some("2 of 2 routes by themselves")),
        (Phase::Noise, Some("the same against itself")),
        (Phase::Before, Some("rates as it was")),
        (Phase::Sweep, Some("1 workers and more")),
        (Phase::After, Some("rates as proposed")),
        (Phase::Overload, Some("overload")),
        (Phase::Proof, Some("proof in pairs")),
    ] {
        let route = Route {
            name: "GET /".to_owned(),
            share: 0.5,
        };
        let mut site = site(0.0005, 0.0395, 5);
        let mut course = Course::new(CourseInput {
            routes: vec![route; 2],
            ..input("dynamic", 5)
        });
        let mut was_ready = true;
        for _ in 0..500 {
            match course.next() {
                NextStep::Idle(_) => course.idled(rest(Some(0.01))),
                NextStep::Measure(_) if course.phase == phase => {
                    course.leave_out();
                    was_ready = false;
                }
                NextStep::Measure(task) => course.seen(site.answer(&task, course.goal.as_ref())),
                NextStep::Over => break,
            }
        }
        assert!(!was_ready, "{phase:?} never came");
        let is_named = |named: &str| course.left_out.iter().any(|left| left == named);
        assert!(
            named.is_none_or(is_named),
            "{phase:?}: {:?}",
            course.left_out
        );
        let verdict = format!("{:?}", course.verdict);
        let why = match phase {
            Phase::Alone => "CannotSay(\"there was no time to ask for a page alone",
            Phase::Proof => "NoGain(\"there was no time for enough pairs",
            _ => "Some(",
        };
        assert!(verdict.contains(why), "{phase:?}: {verdict}");
    }
}
