//! When requests are due: a rate over time, and how requests are spaced on it.

use crate::clock;
use maitred_text::humanize;

/// The default duration of a profile, in seconds.
pub const DEFAULT_SECONDS: f64 = 30.0;

/// The highest rate that can be configured, in requests a second.
pub const MAX_RATE: f64 = 10_000_000.0;

/// A stretch of time in which the rate changes linearly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Segment {
    /// Its duration.
    pub seconds: f64,
    /// Requests a second at its beginning.
    pub from: f64,
    /// Requests a second at its end.
    pub to: f64,
}

impl Segment {
    /// The number of requests that are due in it.
    fn requests(&self) -> f64 {
        (self.from + self.to) / 2.0 * self.seconds
    }

    /// Due time, in seconds, of the request that follows `before` others of this segment.
    fn when(&self, before: f64) -> f64 {
        // before = from t + slope t² / 2, solved for t in the form that also holds for a slope of
        // zero.
        let slope = (self.to - self.from) / self.seconds;
        let root = (self.from * self.from + 2.0 * slope * before).max(0.0).sqrt();
        let sum = self.from + root;
        if sum > 0.0 { 2.0 * before / sum } else { 0.0 }
    }
}

/// The rate over time. It starts over after the last segment.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    segments: Vec<Segment>,
}

impl Profile {
    /// A constant rate, in requests a second.
    pub fn constant(rate: f64, seconds: f64) -> Profile {
        let segment = Segment { seconds, from: rate, to: rate };
        Profile { segments: vec![segment] }
    }

    /// Parses `200`, `10..200`, or `10@30s,10..200@1m,200@30s`. A segment without a time lasts
    /// `seconds`. `burst`, such as `2000@1s/10s`, replaces the rate for the first part of every
    /// period.
    ///
    /// # Errors
    /// A message that says what is wrong.
    pub fn read(text: &str, seconds: f64, burst: Option<&str>) -> Result<Profile, String> {
        let parts = text.split(',').map(|part| segment(part.trim(), seconds));
        let segments = parts.collect::<Result<Vec<_>, _>>()?;
        if segments.iter().all(|segment| segment.requests() <= 0.0) {
            return Err(format!("the rate '{text}' never sends anything"));
        }
        let Some(burst) = burst else {
            return Ok(Profile { segments });
        };
        let [only] = segments.as_slice() else {
            return Err("bursts come upon one rate: give --rate without commas".to_owned());
        };
        bursts(only.from, burst)
    }

    /// Its duration until it starts over.
    pub fn seconds(&self) -> f64 {
        self.segments.iter().map(|segment| segment.seconds).sum()
    }

    /// Its highest rate.
    pub fn peak(&self) -> f64 {
        let ends = self.segments.iter().flat_map(|found| [found.from, found.to]);
        ends.fold(0.0, f64::max)
    }

    /// A description for people.
    pub fn describe(&self) -> String {
        let words = |segment: &Segment| {
            if segment.from == segment.to {
                format!("{}/s", humanize::number(segment.from))
            } else {
                let (from, to) = (humanize::number(segment.from), humanize::number(segment.to));
                format!("{from} to {to}/s")
            }
        };
        match self.segments.as_slice() {
            [only] => words(only),
            several => {
                let several = several.iter().map(|segment| {
                    format!("{} for {}", words(segment), humanize::duration(segment.seconds))
                });
                several.collect::<Vec<_>>().join(", ")
            }
        }
    }
}

fn segment(text: &str, seconds: f64) -> Result<Segment, String> {
    let wrong = || {
        format!(
            "'{text}' is no rate; expected requests a second such as 200, 10..200, or \
             10@30s,200@1m"
        )
    };
    let (rates, time) = match text.split_once('@') {
        Some((rates, time)) => (rates, humanize::parse_duration(time)?),
        None => (text, seconds),
    };
    let (from, to) = rates.split_once("..").unwrap_or((rates, rates));
    let rate = |text: &str| {
        let rate: f64 = text.trim().trim_end_matches("/s").parse().map_err(|_| wrong())?;
        (0.0..=MAX_RATE).contains(&rate).then_some(rate).ok_or_else(wrong)
    };
    if time <= 0.0 {
        return Err(wrong());
    }
    Ok(Segment { seconds: time, from: rate(from)?, to: rate(to)? })
}

fn bursts(base: f64, text: &str) -> Result<Profile, String> {
    let wrong = || format!("'{text}' is no burst; expected one such as 2000@1s/10s");
    let (rate, times) = text.split_once('@').ok_or_else(wrong)?;
    let (on, every) = times.split_once('/').ok_or_else(wrong)?;
    let (on, every) = (humanize::parse_duration(on)?, humanize::parse_duration(every)?);
    if on <= 0.0 || every <= on {
        return Err(format!("'{text}': a burst is shorter than the time between two"));
    }
    let burst = segment(rate, on)?;
    let calm = Segment { seconds: every - on, from: base, to: base };
    Ok(Profile { segments: vec![burst, calm] })
}

/// How requests are spaced on a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spacing {
    /// Evenly.
    Even,
    /// Like users who act independently of each other (a Poisson process).
    Poisson,
}

/// Due times of requests: nanoseconds since the start, ascending, infinite.
#[derive(Debug)]
pub struct Arrivals {
    profile: Profile,
    spacing: Spacing,
    random: fastrand::Rng,
    /// The current segment, the second at which it starts, and the number of requests due before
    /// it.
    segment: usize,
    began: f64,
    before: f64,
    /// The number of requests before the next.
    next: f64,
}

impl Arrivals {
    /// Arrivals from the start of the profile. The same seed gives the same arrivals.
    pub fn new(profile: &Profile, spacing: Spacing, seed: u64) -> Arrivals {
        let mut arrivals = Arrivals {
            profile: profile.clone(),
            spacing,
            random: fastrand::Rng::with_seed(seed),
            segment: 0,
            began: 0.0,
            before: 0.0,
            next: 0.0,
        };
        if spacing == Spacing::Poisson {
            arrivals.next = arrivals.gap();
        }
        arrivals
    }

    fn gap(&mut self) -> f64 {
        match self.spacing {
            Spacing::Even => 1.0,
            Spacing::Poisson => exponential(&mut self.random),
        }
    }
}

/// A random number from the exponential distribution with mean 1.
pub fn exponential(random: &mut fastrand::Rng) -> f64 {
    -(1.0 - random.f64()).ln()
}

impl Iterator for Arrivals {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        // Terminates, since at least one segment of a profile has requests.
        let segment = loop {
            let segment = *self.profile.segments.get(self.segment)?;
            if self.next - self.before < segment.requests() {
                break segment;
            }
            self.began += segment.seconds;
            self.before += segment.requests();
            self.segment = (self.segment + 1) % self.profile.segments.len();
        };
        let when = self.began + segment.when(self.next - self.before);
        self.next += self.gap();
        Some(clock::nanos(when))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(profile: &Profile, spacing: Spacing, count: usize) -> Vec<f64> {
        let arrivals = Arrivals::new(profile, spacing, 1);
        arrivals.take(count).map(clock::seconds).collect()
    }

    fn due_before(profile: &Profile, spacing: Spacing, second: f64) -> usize {
        let arrivals = Arrivals::new(profile, spacing, 1);
        arrivals.take_while(|at| clock::seconds(*at) < second).count()
    }

    fn read(text: &str) -> Profile {
        Profile::read(text, 10.0, None).expect("a profile")
    }

    #[test]
    fn a_constant_rate_is_even_and_does_not_drift() {
        let profile = read("2000");
        let due = first(&profile, Spacing::Even, 60_000);
        assert!((due[1] - 0.0005).abs() < 1e-8 && (due[59_999] - 29.9995).abs() < 1e-6);
        assert_eq!(due_before(&profile, Spacing::Even, 30.0), 60_000);
    }

    #[test]
    fn a_ramp_sends_the_area_below_it() {
        let profile = read("0..100");
        assert_eq!(due_before(&profile, Spacing::Even, 10.0), 500);
        let half = due_before(&profile, Spacing::Even, 5.0);
        assert!((124..=126).contains(&half), "{half}");
        assert_eq!(due_before(&read("100..0"), Spacing::Even, 10.0), 500);
    }

    #[test]
    fn steps_follow_each_other_and_start_over() {
        let profile = read("10@1s, 100@2s, 0@1s");
        assert_eq!(profile.seconds(), 4.0);
        for (second, wanted) in [(1.0, 10), (3.0, 210), (4.0, 210), (5.0, 220)] {
            assert_eq!(due_before(&profile, Spacing::Even, second), wanted, "{second}");
        }
        assert_eq!(profile.describe(), "10/s for 1 s, 100/s for 2 s, 0/s for 1 s");
    }

    #[test]
    fn bursts_come_upon_a_base_rate() {
        let profile = Profile::read("10", 30.0, Some("1000@1s/10s")).expect("a profile");
        assert_eq!(due_before(&profile, Spacing::Even, 1.0), 1_000);
        assert_eq!(due_before(&profile, Spacing::Even, 10.0), 1_090);
        assert_eq!(profile.peak(), 1_000.0);
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_the_spread_of_their_kind() {
        let due = first(&read("1000"), Spacing::Poisson, 100_000);
        let gaps: Vec<f64> = due.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 0.001).abs() < 0.00002, "{mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "{variance}");
        assert_eq!(due, first(&read("1000"), Spacing::Poisson, 100_000));
    }

    #[test]
    fn what_is_no_rate_is_refused_with_what_was_expected() {
        for text in ["", "fast", "0", "-1", "1..", "10@", "10@0s", "nan", "1e99"] {
            assert!(Profile::read(text, 10.0, None).is_err(), "{text}");
        }
        for burst in ["100", "100@1s", "100@2s/1s", "x@1s/2s"] {
            assert!(Profile::read("10", 10.0, Some(burst)).is_err(), "{burst}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_request_is_due_before_the_one_before_it(
            rates in proptest::collection::vec((0.0..500.0f64, 0.0..500.0f64, 0.1..5.0f64), 1..5),
            poisson: bool,
        ) {
            let segments: Vec<Segment> = rates
                .into_iter()
                .map(|(from, to, seconds)| Segment { seconds, from: from + 0.1, to })
                .collect();
            let spacing = if poisson { Spacing::Poisson } else { Spacing::Even };
            let arrivals = Arrivals::new(&Profile { segments }, spacing, 7);
            let due: Vec<u64> = arrivals.take(2_000).collect();
            assert!(due.windows(2).all(|pair| pair[0] <= pair[1] + 1));
        }
    }
}
