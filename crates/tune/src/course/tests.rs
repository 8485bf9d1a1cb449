//! Courses with simulated servers whose best number of workers is known.

use super::*;
use crate::decide::MemoryBudget;
use crate::measurement::{Load, Task};
use profile::Route;

mod quick;
mod unlawful;

const MB: f64 = 1_048_576.0;

/// A server whose pages compute and wait for this long, in seconds.
struct SimulatedSite {
    cores: f64,
    cpu: f64,
    waits: f64,
    as_it_was: u32,
    asked: Vec<Task>,
}

impl SimulatedSite {
    fn measure(&mut self, task: &Task, goal: Option<&Goal>) -> Measurement {
        self.asked.push(*task);
        let workers = match task.setting {
            Setting::AsItWas | Setting::Php(_) | Setting::OpcacheOff => self.as_it_was,
            Setting::Workers(workers) => workers,
        };
        let alone = self.cpu + self.waits;
        let most = (f64::from(workers) / alone).min(self.cores / self.cpu);
        let (rate, mean) = match task.load {
            Load::Users(users) => {
                let rate = (f64::from(users) / alone).min(most);
                (rate, f64::from(users) / rate)
            }
            // Beyond its capacity all requests wait long.
            Load::Rate(asked) if asked > most => (most, 10.0 * alone),
            Load::Rate(asked) => (asked, alone * 1.1),
        };
        let limit = goal.map_or(f64::INFINITY, Goal::limit);
        // Noise, the same in every run of the test.
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
    SimulatedSite { cores: 2.0, cpu, waits, as_it_was, asked: Vec::new() }
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
        now: PoolSetting { pm: pm.to_owned(), workers },
        most_workers: None,
        goal: None,
        routes: Vec::new(),
        despite_noise: false,
        seed: 1,
    }
}

/// A machine without load, of which other processes use this share.
fn rest(outside: Option<f64>) -> IdleSample {
    IdleSample { outside, ..IdleSample::default() }
}

fn run(site: &mut SimulatedSite, input: CourseInput) -> Course {
    let mut course = Course::new(input);
    for _ in 0..500 {
        match course.next() {
            NextStep::Idle(_) => course.idled(rest(Some(0.01))),
            NextStep::Measure(task) => {
                let seen = site.measure(&task, course.goal.as_ref());
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
    let before = course.before.as_ref().and_then(RateSearch::highest).expect("a rate");
    let after = course.after.as_ref().and_then(RateSearch::highest).expect("a rate");
    assert!((110.0..=126.0).contains(&before) && after > 3_500.0, "{before} {after}");
    let goal = course.goal.as_ref().expect("a goal").text.clone();
    assert!(goal.starts_with("p99<1") && goal.ends_with("ms,error<0.1%"), "{goal}");
    assert!(course.broken.is_empty() && course.settled);
    let seconds: f64 = waiting.asked.iter().map(|task| task.seconds + task.warm_up).sum();
    assert!(seconds < 900.0, "{seconds}");
    let after = course.after.as_ref().expect("a search");
    assert!(after.is_confirmed && after.tries.iter().any(|each| each.seconds >= 60.0));
    let beyond = &course.overload.as_ref().expect("an overload").beyond;
    assert_eq!(beyond.len(), 2);
    assert!(beyond[1].times == 3.0 && beyond[1].goodput < 0.1, "all wait for long");
}

#[test]
fn a_page_that_computes_is_not_given_what_the_guides_give_it() {
    let course = run(&mut site(0.02, 0.0, 50), input("static", 50));
    let choice = course.choice.as_ref().expect("a choice");
    assert_eq!(choice.workers, 2);
    assert!(matches!(course.verdict, Some(Verdict::NoGain(_))), "{:?}", course.verdict);
}

#[test]
fn what_is_right_already_is_left_alone_and_auto_has_nothing_to_gain() {
    let course = run(&mut site(0.02, 0.02, 4), input("static", 4));
    assert!(matches!(course.verdict, Some(Verdict::NothingToGain(_))), "{:?}", course.verdict);
    assert!(course.pairs.is_empty());
    assert_eq!(course.overload.map(|overload| overload.beyond.len()), Some(2));
    let auto = run(&mut site(0.0005, 0.0395, 170), input("auto", 200));
    let Some(Verdict::NothingToGain(why)) = &auto.verdict else { panic!("{:?}", auto.verdict) };
    assert!(why.contains("pm = auto serves as much as") && auto.pairs.len() >= 6);
}

#[test]
fn that_auto_serves_as_much_is_said_only_where_the_pairs_show_it() {
    let mut course = Course::new(input("auto", 200));
    let seen = |goodput: f64| Measurement { goodput, ..Measurement::default() };
    let rates = [3.0, 400.0, 90.0, 2.0, 700.0];
    let pairs = rates.map(|rate| (seen(100.0), seen(rate)));
    course.rows = proof::rows(&pairs, 1);
    let Verdict::NothingToGain(why) = course.judge() else { panic!("{:?}", course.rows) };
    assert!(why.contains("vary too much to show"), "{why}");
}

#[test]
fn no_limit_that_cannot_be_read_is_grown_into() {
    let mut input = input("dynamic", 5);
    input.memory.budget = Err("/sys/fs/cgroup/memory.max cannot be read".to_owned());
    let mut site = site(0.0005, 0.0395, 5);
    let course = run(&mut site, input);
    assert!(course.choice.as_ref().is_some_and(|choice| choice.workers <= 5));
    let most = site.asked.iter().filter_map(|task| match task.setting {
        Setting::Workers(workers) => Some(workers),
        Setting::AsItWas | Setting::Php(_) | Setting::OpcacheOff => None,
    });
    assert_eq!(most.max(), Some(5));
}

#[test]
fn a_target_slower_than_the_goal_is_told_before_anything_is_changed() {
    let mut input = input("dynamic", 5);
    input.goal = Some(Goal::read("p99<200ms").unwrap());
    let mut slow = site(0.001, 0.999, 5);
    let course = run(&mut slow, input);
    let Some(Verdict::CannotSay(why)) = &course.verdict else { panic!("{:?}", course.verdict) };
    assert!(why.contains("one request alone takes 99") && why.contains("p99<200ms"), "{why}");
    assert!(slow.asked.iter().all(|task| task.setting == Setting::AsItWas));
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
    let Some(Verdict::CannotSay(why)) = &course.verdict else { panic!("{:?}", course.verdict) };
    assert!(why.contains("40 % ") && why.contains("502 Bad Gateway"), "{why}");
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
    let Some(Verdict::CannotSay(why)) = &course.verdict else { panic!("{:?}", course.verdict) };
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
fn a_machine_in_use_ends_the_tuning_except_with_despite_noise() {
    let mut course = Course::new(input("dynamic", 5));
    let mut looks = 0;
    while course.next() != NextStep::Over {
        assert!(matches!(course.next(), NextStep::Idle(_)), "there is no load");
        course.idled(rest(Some(0.35)));
        looks += 1;
    }
    assert_eq!(looks, 3, "it may only have been a moment");
    let Some(Verdict::CannotSay(why)) = &course.verdict else { panic!("{:?}", course.verdict) };
    assert!(
        why.starts_with("other processes use 35 % of the processors")
            && why.contains("--despite-noise"),
        "{why}"
    );
    let mut goes_on = Course::new(CourseInput { despite_noise: true, ..input("dynamic", 5) });
    goes_on.idled(rest(Some(0.35)));
    assert!(matches!(goes_on.next(), NextStep::Measure(_)));
    assert_eq!(goes_on.troubles.len(), 1);
    let mut rests = Course::new(input("dynamic", 5));
    rests.idled(rest(Some(0.35)));
    rests.idled(rest(Some(0.02)));
    assert!(matches!(rests.next(), NextStep::Measure(_)) && rests.troubles.is_empty());
}

#[test]
fn a_high_noise_floor_ends_the_tuning_except_with_despite_noise() {
    let upto_noise = |input: CourseInput| {
        let mut course = Course::new(input);
        course.idled(rest(Some(0.01)));
        let mut runs = 0.0;
        while course.phase <= Phase::Noise {
            runs += 1.0;
            let wobble = if course.phase == Phase::Noise && runs % 4.0 < 2.0 { 2.0 } else { 1.0 };
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
    let Some(Verdict::CannotSay(why)) = &course.verdict else { panic!("{:?}", course.verdict) };
    assert!(why.contains("differs from itself by"), "{why}");
    let goes_on = upto_noise(CourseInput { despite_noise: true, ..input("dynamic", 5) });
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
    let route = |name: &str, share| Route { name: name.to_owned(), share };
    let mut input = input("dynamic", 5);
    input.routes = vec![route("GET /", 0.9), route("GET /slow", 0.1)];
    let mut site = site(0.001, 0.02, 5);
    let course = run(&mut site, input);
    let routes = site.asked.iter().filter(|task| task.route.is_some());
    let routes: Vec<_> = routes.map(|task| (task.route, task.load)).collect();
    assert_eq!(routes, [(Some(0), Load::Users(1)), (Some(1), Load::Users(1))]);
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
