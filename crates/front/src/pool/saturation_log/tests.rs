//! The lines about waiting, rejections and the limit of workers, and their number.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn seen(pm: ProcessManager) -> SaturationState {
    let config = maitred_config::Config::for_directory("/".as_ref(), Vec::new(), Some(4));
    let pool = maitred_config::Pool { pm, ..config.unwrap().pools[0].clone() };
    let mut seen = SaturationState::new(false);
    seen.configure(&pool, 4);
    seen
}

fn look(seen: &mut SaturationState, sample: &QueueSample, second: u32) -> Vec<String> {
    let running = || "4 × /srv/slow.php".to_owned();
    seen.check(sample.clone(), running, SECOND * second)
}

#[test]
fn a_limit_is_said_when_it_is_reached_and_its_end_tells_how_many_waited() {
    let mut seen = seen(ProcessManager::Dynamic);
    let mut sample =
        QueueSample { waiting: 5, met_limit: 5, longest: SECOND, ..QueueSample::default() };
    let lines = look(&mut seen, &sample, 1);
    assert!(lines[0].starts_with("all max_children = 4 workers are busy"), "{lines:?}");
    (sample.waiting, sample.met_limit) = (9, 20);
    assert!(look(&mut seen, &sample, 2).is_empty());
    sample.waiting = 0;
    assert!(look(&mut seen, &sample, 3).is_empty());
    assert!(!seen.is_quiet());
    assert_eq!(
        look(&mut seen, &sample, 12),
        ["max_children = 4 was reached for 1 s: 20 requests waited; at most 9 waited at \
             once, the longest for 1 s"]
    );
    assert!(seen.is_quiet());
}

#[test]
fn as_php_fpm_a_limit_is_said_once_in_its_words_each_time_it_is_reached() {
    for (pm, setting) in
        [(ProcessManager::Dynamic, "pm.max_children"), (ProcessManager::Ondemand, "max_children")]
    {
        let mut seen = seen(pm);
        seen.is_fpm = true;
        let expected = format!("server reached {setting} setting (4), consider raising it");
        let mut sample = QueueSample { waiting: 1, ..QueueSample::default() };
        sample.met_limit = 1;
        assert_eq!(look(&mut seen, &sample, 1), [expected.as_str()]);
        sample.met_limit = 2;
        assert!(look(&mut seen, &sample, 2).is_empty());
        assert!(look(&mut seen, &sample, 20).is_empty(), "its end is not told");
        sample.met_limit = 3;
        assert_eq!(look(&mut seen, &sample, 30), [expected]);
    }
}

#[test]
fn a_static_pool_is_always_at_its_limit_and_says_so_only_if_its_queue_stands() {
    let mut seen = seen(ProcessManager::Static);
    let mut sample = QueueSample { waiting: 5, met_limit: 5, busy: 4, ..QueueSample::default() };
    assert!(look(&mut seen, &sample, 1).is_empty());
    sample.longest = STALLED;
    assert_eq!(
        look(&mut seen, &sample, 3),
        ["requests are not moving: 5 requests wait, the longest for 2 s; 4 of 4 workers are \
             busy: 4 × /srv/slow.php"]
    );
    (sample.waiting, sample.longest) = (0, Duration::ZERO);
    assert_eq!(
        look(&mut seen, &sample, 13),
        ["requests were not moving for 2 s; at most 5 waited at once, the longest for 2 s"]
    );
}

#[test]
fn a_pool_that_finds_its_size_is_not_said_to_have_as_many_workers_as_it_may_have() {
    let sample = QueueSample { waiting: 5, longest: STALLED, busy: 2, ..QueueSample::default() };
    let said = look(&mut seen(ProcessManager::Auto), &sample, 3);
    assert_eq!(said.len(), 1, "{said:?}");
    let words = "; 2 workers (auto, up to 4) are busy: ";
    assert!(said[0].contains(words), "{said:?}");
}

fn counts(by_cause: &[(RequestOutcome, u64)]) -> [u64; OUTCOMES] {
    let mut counts = [0; OUTCOMES];
    for (cause, count) in by_cause {
        counts[*cause as usize] = *count;
    }
    counts
}

#[test]
fn a_thousand_refusals_are_two_lines() {
    let mut seen = seen(ProcessManager::Static);
    let mut lines = Vec::new();
    for second in 1..=50 {
        let sample = QueueSample {
            rejected: counts(&[
                (RequestOutcome::QueueFull, 15 * u64::from(second)),
                (RequestOutcome::QueueTimeout, 5 * u64::from(second)),
            ]),
            first_rejected: Some(format!("/srv/a.php: 503 for {second}")),
            ..QueueSample::default()
        };
        lines.extend(look(&mut seen, &sample, second));
    }
    assert_eq!(lines, ["/srv/a.php: 503 for 1; further rejections are counted"]);
    let sample = seen.last.clone();
    assert_eq!(
        look(&mut seen, &sample, 60),
        ["503 was the status of 1000 requests in 49 s: 750 queue_full, 250 queue_timeout \
             (request_queue_length = 1000, request_queue_timeout = 10 s)"]
    );
}

#[test]
fn a_queue_that_answers_the_newest_first_is_two_lines() {
    let mut seen = seen(ProcessManager::Static);
    let mut lines = Vec::new();
    for second in 1..=20 {
        let sample = QueueSample {
            lifo_starts: 1 + u64::from(second > 10),
            is_lifo: second != 10,
            waiting: 30,
            ..QueueSample::default()
        };
        lines.extend(look(&mut seen, &sample, second));
    }
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("overload: the newest requests are served first"));
    let calm = QueueSample { lifo_starts: 2, ..QueueSample::default() };
    let over = "overload: for 19 s, more requests came than could be served; the newest were \
                served first";
    assert_eq!(look(&mut seen, &calm, 31), [over]);
}

#[test]
fn requests_that_wait_for_others_which_hang_are_two_lines() {
    let mut seen = seen(ProcessManager::Auto);
    let mut sample = QueueSample { held_back: 5, may_hang: 3, ..QueueSample::default() };
    let lines = look(&mut seen, &sample, 1);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("requests hang, and 5 of the same kind are held back"));
    assert!(lines[0].contains("may have 3 workers"));
    sample.held_back = 9;
    assert!(look(&mut seen, &sample, 2).is_empty());
    sample.held_back = 0;
    assert!(look(&mut seen, &sample, 3).is_empty());
    assert!(!seen.is_quiet());
    let lines = look(&mut seen, &sample, 12);
    assert_eq!(lines, ["requests of hanging kinds were held back for 1 s, at most 9 at once"]);
    assert!(seen.is_quiet());
}

#[test]
fn the_scripts_that_run_most_are_named() {
    let scripts = ["a", "b", "b", "c", "d", "e", "e", "e"].map(str::to_owned);
    let named = count_scripts(scripts.to_vec());
    assert_eq!(named, "3 × e, 2 × b, 1 × a, 2 × others");
    assert_eq!(count_scripts(vec!["a".to_owned(); 4]), "a");
}
