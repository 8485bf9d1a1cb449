//! Measurements of one user alone that break a law.

use super::*;

/// Triples the latency that one user alone is reported to have.
fn run_wrongly(
    site: &mut SimulatedSite,
    input: CourseInput,
    is_wrong: impl Fn(&Task) -> bool,
) -> Course {
    let mut course = Course::new(input);
    for _ in 0..500 {
        match course.next() {
            NextStep::Idle(_) => course.idled(rest(Some(0.01))),
            NextStep::Measure(task) => {
                let seen = site.measure(&task, course.goal.as_ref());
                let mean = seen.mean.filter(|_| is_wrong(&task)).map(|mean| mean * 3.0);
                course.seen(Measurement { mean: mean.or(seen.mean), ..seen });
            }
            NextStep::Over => return course,
        }
    }
    panic!("it comes to no end");
}

fn is_alone(task: &Task) -> bool {
    task.what == "one user"
}

#[test]
fn times_that_break_littles_law_are_not_reported_and_counts_are() {
    let course = run_wrongly(&mut site(0.01, 0.03, 4), input("dynamic", 4), is_alone);
    let alone = course.alone.as_ref().expect("it was counted");
    assert_eq!((alone.mean, alone.cpu, alone.p99), (None, None, None));
    assert!(alone.served > 0 && alone.private.is_some());
    let [why] = &course.broken[..] else { panic!("{:?}", course.broken) };
    assert!(
        why.starts_with("Little's law: 1 user, but") && why.ends_with("(one user alone)"),
        "{why}"
    );
    let goal = course.goal.as_ref().expect("a goal");
    assert!((0.155..0.17).contains(&goal.limit()), "{}", goal.text);
    let rest = course.rest().expect("a pace");
    assert!((0.038..0.042).contains(&rest), "{rest}");
    assert!(course.choice.is_some());
}

#[test]
fn a_route_whose_times_break_a_law_is_named_and_has_none() {
    let route = |name: &str| Route { name: name.to_owned(), share: 0.5 };
    let input =
        CourseInput { routes: vec![route("GET /a"), route("GET /b")], ..input("static", 4) };
    let course = run_wrongly(&mut site(0.01, 0.03, 4), input, |task| task.route == Some(1));
    let times = course.profile.profiled.iter().map(|route| route.seen.mean);
    let times: Vec<bool> = times.map(|mean| mean.is_some()).collect();
    assert_eq!(times, [true, false]);
    assert!(
        matches!(&course.broken[..], [why] if why.ends_with("(GET /b alone)")),
        "{:?}",
        course.broken
    );
}

#[test]
fn one_user_whose_times_break_a_law_is_no_point_of_a_slow_pages_sweep() {
    let quick = CourseInput { seconds: 120.0, ends: true, first: Some(1.0), ..input("static", 4) };
    let has_one = |is_wrong: fn(&Task) -> bool| {
        let course = run_wrongly(&mut site(0.01, 0.99, 4), quick.clone(), is_wrong);
        let points = course.sweep.as_ref().map(|sweep| sweep.points.clone());
        let points = points.expect("a sweep");
        points.iter().any(|point| point.workers == 1)
    };
    assert!(has_one(|_| false));
    assert!(!has_one(is_alone));
}
