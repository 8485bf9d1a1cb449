//! Courses without a server.

use maitred_doctor::facts::Opcache;

use super::php_term::CACHE_SIZES;
use super::*;

const MB: f64 = 1_048_576.0;

fn input() -> PhpInput {
    PhpInput {
        seconds: 120.0,
        cores: 2.0,
        workers: 16,
        candidates: vec![PhpTerm::Preload, PhpTerm::Jit],
        sizes: Vec::new(),
        memory: None,
        pool: TunedPool { section: "blog".to_owned(), ..TunedPool::default() },
        seed: 1,
    }
}

fn seen(cpu: Option<f64>, rate: f64) -> Measurement {
    Measurement { cpu, rate, ..Measurement::default() }
}

/// Runs a course in which a request costs what `cpu` says of the setting.
fn run(cpu: impl Fn(PhpTerms) -> Option<f64>, rate: impl Fn(PhpTerms) -> f64) -> PhpCourse {
    let mut course = PhpCourse::new(input());
    for at in 0..200 {
        match course.next() {
            PhpStep::Over => return course,
            PhpStep::Compare(_) => course.compared(Ok(())),
            PhpStep::Look(_) | PhpStep::ColdStart(_) => panic!("{course:?}"),
            PhpStep::Measure(task) => {
                let terms = match task.setting {
                    Setting::Php(terms) => terms,
                    _ => PhpTerms::default(),
                };
                let wobble = 1.0 + 0.002 * f64::from(at % 3);
                let cpu = cpu(terms).map(|cpu| cpu * wobble);
                course.seen(seen(cpu, rate(terms) / wobble));
            }
        }
    }
    panic!("it does not end: {course:?}");
}

#[test]
fn a_setting_that_saves_processor_time_stays_and_one_that_does_not_is_left_out() {
    let cpu = |terms: PhpTerms| if terms.preload { 0.006 } else { 0.010 };
    let course = run(|terms| Some(cpu(terms)), |terms| 1.0 / cpu(terms));
    let gains: Vec<bool> = course.results.iter().map(|result| result.gain).collect();
    assert_eq!(gains, [true, false], "{:?}", course.results);
    assert_eq!(course.accepted().terms(), [PhpTerm::Preload]);
    let ratio = course.results[0].cpu.expect("a ratio");
    assert!((ratio.mean - 0.6).abs() < 0.01 && ratio.high < 0.65, "{ratio:?}");
    assert_eq!(course.left(), 0.0);
}

#[test]
fn a_setting_is_tried_on_top_of_the_accepted_ones() {
    let cpu = |terms: PhpTerms| {
        0.010 * if terms.preload { 0.6 } else { 1.0 } * if terms.jit { 0.9 } else { 1.0 }
    };
    let course = run(|terms| Some(cpu(terms)), |terms| 1.0 / cpu(terms));
    assert_eq!(course.accepted(), PhpTerms::default().with(PhpTerm::Preload).with(PhpTerm::Jit));
    let ratio = course.results[1].cpu.expect("a ratio");
    assert!((ratio.mean - 0.9).abs() < 0.01, "against preload alone: {ratio:?}");
}

#[test]
fn a_trial_that_shows_nothing_ends_with_its_share_of_the_time() {
    let pairs = |seconds: f64| {
        let mut course = PhpCourse::new(input());
        course.compared(Ok(()));
        for at in 0..100 {
            course.at(seconds);
            if !course.results.is_empty() {
                break;
            }
            // It varies by a third.
            course.seen(seen(Some(0.010 + 0.001 * f64::from(at * at % 4)), 100.0));
        }
        let result = &course.results[0];
        assert!(!result.gain, "{result:?}");
        result.pairs
    };
    assert_eq!((pairs(10.0), pairs(60.0)), (PAIRS.1, PAIRS.0));
}

#[test]
fn less_processor_time_is_no_gain_if_fewer_requests_are_served() {
    let course = run(
        |terms| Some(if terms.preload { 0.006 } else { 0.010 }),
        |terms| if terms.preload { 50.0 } else { 100.0 },
    );
    assert!(!course.results[0].gain);
    assert_eq!(course.results[0].why, "fewer requests are served with it");
}

#[test]
fn the_rate_decides_if_the_processor_time_cannot_be_read() {
    let course = run(|_| None, |terms| if terms.jit { 130.0 } else { 100.0 });
    let gains: Vec<bool> = course.results.iter().map(|result| result.gain).collect();
    assert_eq!(gains, [false, true], "{:?}", course.results);
}

#[test]
fn a_page_that_differs_or_fails_rejects_the_setting() {
    let mut course = PhpCourse::new(input());
    assert!(matches!(course.next(), PhpStep::Compare(pages) if pages.old == Setting::AsItWas));
    course.compared(Err("/ differs".to_owned()));
    assert_eq!(course.results[0].why, "/ differs");
    let new = Setting::Php(PhpTerms::default().with(PhpTerm::Jit));
    let pages = Comparison { old: Setting::AsItWas, new };
    assert_eq!(course.next(), PhpStep::Compare(pages));
    course.compared(Ok(()));
    for _ in 0..4 {
        let fails = Measurement { error_share: 0.5, ..seen(Some(0.01), 100.0) };
        course.seen(fails);
    }
    assert_eq!(course.next(), PhpStep::Over, "{course:?}");
    assert!(course.results[1].why.starts_with("50 % of the requests"), "{course:?}");
    assert_eq!(course.accepted(), PhpTerms::default());
}

/// A full buffer of strings of this many MB, in an OPcache of 128.
fn full_strings(megabytes: f64) -> PoolCaches {
    let opcache = Opcache {
        used: 40.0 * MB,
        free: 88.0 * MB,
        keys: Some((900, 16_229)),
        strings: Some((megabytes * MB, megabytes * MB)),
        ..Opcache::default()
    };
    PoolCaches { opcache: Some(opcache), real_paths: None }
}

fn enough() -> PoolCaches {
    let mut caches = full_strings(16.0);
    if let Some(opcache) = &mut caches.opcache {
        opcache.strings = Some((9.0 * MB, 16.0 * MB));
    }
    caches
}

fn sized() -> PhpCourse {
    PhpCourse::new(PhpInput { candidates: Vec::new(), sizes: CACHE_SIZES.to_vec(), ..input() })
}

#[test]
fn a_size_that_is_too_small_is_proposed_and_looked_at_again() {
    let mut course = sized();
    assert_eq!(course.next(), PhpStep::Look(Setting::AsItWas));
    course.looked(&full_strings(8.0));
    let term = PhpTerm::Size(CacheSize::Strings, 16);
    let new = Setting::Php(PhpTerms::default().with(term));
    assert_eq!(course.next(), PhpStep::Compare(Comparison { old: Setting::AsItWas, new }));
    course.compared(Ok(()));
    assert_eq!(course.next(), PhpStep::Look(new));
    course.looked(&enough());
    assert_eq!(course.next(), PhpStep::Over);
    let result = &course.results[0];
    assert!(result.gain && result.term == term && result.pairs == 0, "{result:?}");
    assert_eq!(
        result.why,
        "8 MiB of 8 MiB are in use, and further strings take the memory of scripts; with it it \
         suffices: 9 MiB of 16 MiB are in use"
    );
    assert_eq!(course.stays.len(), 3, "{:?}", course.stays);
    assert!(course.stays[0].starts_with("opcache.memory_consumption: it suffices"));
}

#[test]
fn sizes_that_suffice_are_not_tried() {
    let mut course = sized();
    course.looked(&enough());
    assert_eq!(course.next(), PhpStep::Over);
    assert_eq!((course.results.len(), course.stays.len()), (0, CACHE_SIZES.len()));
}

#[test]
fn a_size_that_does_not_suffice_is_doubled_a_few_times() {
    let mut course = sized();
    course.looked(&full_strings(1.0));
    let mut tried = Vec::new();
    while let PhpStep::Compare(Comparison { new: Setting::Php(terms), .. }) = course.next() {
        let value = terms.size(CacheSize::Strings).expect("a size");
        tried.push(value);
        course.compared(Ok(()));
        course.looked(&full_strings(value as f64));
    }
    assert_eq!(tried, [2, 4, 8, 16]);
    let result = &course.results[0];
    assert!(result.gain && result.why.ends_with("tune again"), "{result:?}");
    assert_eq!(course.accepted().size(CacheSize::Strings), Some(16));
}

#[test]
fn memory_for_a_larger_buffer_of_strings_comes_before_it() {
    let mut caches = full_strings(8.0);
    let opcache = caches.opcache.as_mut().expect("an OPcache");
    (opcache.used, opcache.free) = (27.0 * MB, 5.0 * MB);
    let mut course = sized();
    course.looked(&caches);
    let (memory, strings) =
        (PhpTerm::Size(CacheSize::Memory, 80), PhpTerm::Size(CacheSize::Strings, 16));
    assert_eq!(course.terms, [memory, strings]);
    course.reject("the reload is refused".to_owned());
    assert_eq!(course.term(), Some(strings), "it may do without");
}

#[test]
fn a_buffer_of_strings_that_memory_cannot_hold_stays() {
    let mut caches = full_strings(8.0);
    let opcache = caches.opcache.as_mut().expect("an OPcache");
    (opcache.used, opcache.free) = (12.0 * MB, 4.0 * MB);
    let mut course = PhpCourse::new(PhpInput { memory: Some(64.0 * MB), ..sized().input });
    course.looked(&caches);
    assert_eq!(course.next(), PhpStep::Over, "{course:?}");
    let why = "but 16 MB would leave opcache.memory_consumption no room for scripts";
    assert!(course.stays[0].ends_with(why), "{:?}", course.stays);
    assert!(course.stays[1].starts_with("opcache.memory_consumption: it suffices"));
}

#[test]
fn a_size_with_which_pages_differ_is_rejected() {
    let mut course = sized();
    course.looked(&full_strings(8.0));
    course.compared(Err("/ differs".to_owned()));
    assert!(!course.results[0].gain);
    let mut course = sized();
    course.looked(&full_strings(8.0));
    course.compared(Ok(()));
    course.looked(&PoolCaches::default());
    assert_eq!(course.results[0].why, "the pool reports no OPcache with it");
}

#[test]
fn a_cache_of_real_paths_is_proven_in_pairs() {
    let mut course = sized();
    let real_paths = Some(cache_sizes::RealPaths { used: 4_000_000.0, limit: 4.0 * MB });
    course.looked(&PoolCaches { real_paths, ..enough() });
    course.compared(Ok(()));
    let PhpStep::Measure(task) = course.next() else { panic!("{course:?}") };
    assert_eq!(task.what, "realpath_cache_size");
}

fn cold(old: f64, new: f64) -> PhpCourse {
    let mut course = PhpCourse::new(PhpInput { candidates: vec![PhpTerm::FileCache], ..input() });
    course.compared(Ok(()));
    for at in 0..100 {
        let PhpStep::ColdStart(setting) = course.next() else { break };
        let wobble = 1.0 + 0.002 * f64::from(at % 3);
        course.started(if setting == Setting::AsItWas { old } else { new } * wobble);
    }
    assert_eq!(course.next(), PhpStep::Over, "{course:?}");
    course
}

#[test]
fn a_file_cache_is_proven_by_first_pages_after_cold_starts() {
    let course = cold(0.263, 0.075);
    let result = &course.results[0];
    let pages = result.first_page.expect("figures");
    assert!(result.gain && pages.ratio.high < 0.5 && result.pairs == 4, "{result:?}");
    assert!(result.lines[2].contains("opcache.file_cache"), "{result:?}");
    let course = cold(0.1, 0.1);
    assert!(!course.results[0].gain, "{course:?}");
}

#[test]
fn a_file_cache_is_not_tried_with_the_compiler() {
    let terms = vec![PhpTerm::Jit, PhpTerm::FileCache];
    let mut course = PhpCourse::new(PhpInput { candidates: terms, ..input() });
    course.compared(Ok(()));
    while let PhpStep::Measure(task) = course.next() {
        let cpu = if task.setting == Setting::AsItWas { 0.010 } else { 0.008 };
        course.seen(seen(Some(cpu), 1.0 / cpu));
    }
    assert_eq!(course.next(), PhpStep::Over);
    assert_eq!(course.accepted().terms(), [PhpTerm::Jit]);
    assert_eq!(course.results[1].why, "OPcache stores no files with opcache.jit");
}
