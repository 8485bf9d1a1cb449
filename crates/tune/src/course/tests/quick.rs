//! Tunings with `--quick`, which end in time.

use super::*;

/// The overhead of a server's measurements, in seconds.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Reading configurations and checking the pages.
    prepare: f64,
    reload: f64,
    /// All waits take as long as they may.
    is_worst: bool,
}

/// How long a tuning with `--quick` takes from the command to its end, in seconds.
fn quick(site: &mut SimulatedSite, input: CourseInput, pace: Pace) -> (f64, Course) {
    let alone = site.cpu + site.waits;
    let mut course =
        Course::new(CourseInput { seconds: 120.0, ends: true, first: Some(alone), ..input });
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
                let (ask, end) =
                    if pace.is_worst { (limits.page, limits.timeout) } else { (alone, alone) };
                if set != task.setting {
                    now += pace.reload + if limits.times_second { ask } else { 0.0 };
                    course.reloaded(pace.reload);
                    course.booted(WorkerStart { cpu: None, first: alone, second: None });
                }
                set = task.setting;
                let seen = Measurement {
                    recovery: limits.recovery.filter(|_| !pace.is_worst),
                    ..site.measure(&task, course.goal.as_ref())
                };
                now += if limits.checks_idle { ask } else { 0.0 };
                now += task.warm_up + task.seconds + end;
                now += limits.recovery.unwrap_or(0.0);
                course.seen(seen);
            }
            NextStep::Over => {
                // Restored, written, and requested once.
                let reloads = if course.verdict == Some(Verdict::Gain) { 2.0 } else { 1.0 };
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
            for (prepare, reload, is_worst) in
                [(0.8, 0.05, false), (0.8, 0.5, true), (5.0, 3.0, false), (20.0, 3.0, true)]
            {
                let pace = Pace { prepare, reload, is_worst };
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
    let pace = Pace { prepare: 0.8, reload: 0.3, is_worst: false };
    let (took, course) = quick(&mut site(0.001, 0.1, 5), input("dynamic", 5), pace);
    assert_eq!(course.left_out, [""; 0], "{took}");
    assert_eq!(course.verdict, Some(Verdict::Gain));
    let (took, slow) = quick(&mut site(0.002, 0.998, 5), input("dynamic", 5), pace);
    assert_eq!(slow.verdict, Some(Verdict::Gain), "{took} {:?}", slow.left_out);
    assert!(slow.left_out.contains(&"noise floor".to_owned()));
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
        (Phase::Routes, Some("2 of 2 routes alone")),
        (Phase::Noise, Some("noise floor")),
        (Phase::Before, Some("highest rate before")),
        (Phase::Sweep, Some("1 workers and more")),
        (Phase::After, Some("highest rate after")),
        (Phase::Overload, Some("overload")),
        (Phase::Proof, Some("proof in pairs")),
    ] {
        let route = Route { name: "GET /".to_owned(), share: 0.5 };
        let mut site = site(0.0005, 0.0395, 5);
        let mut course = Course::new(CourseInput { routes: vec![route; 2], ..input("dynamic", 5) });
        let mut was_ready = true;
        for _ in 0..500 {
            match course.next() {
                NextStep::Idle(_) => course.idled(rest(Some(0.01))),
                NextStep::Measure(_) if course.phase == phase => {
                    course.leave_out();
                    was_ready = false;
                }
                NextStep::Measure(task) => course.seen(site.measure(&task, course.goal.as_ref())),
                NextStep::Over => break,
            }
        }
        assert!(!was_ready, "{phase:?} never came");
        let is_named = |named: &str| course.left_out.iter().any(|left| left == named);
        assert!(named.is_none_or(is_named), "{phase:?}: {:?}", course.left_out);
        let verdict = format!("{:?}", course.verdict);
        let why = match phase {
            Phase::Alone => "CannotSay(\"there was no time to request a page alone",
            Phase::Proof => "NoGain(\"there was no time for enough pairs",
            _ => "Some(",
        };
        assert!(verdict.contains(why), "{phase:?}: {verdict}");
    }
}
