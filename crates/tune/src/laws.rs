//! Laws that hold for every server. Measurements that break one are wrong, and are not reported.

use crate::measurement::Measurement;

/// The tolerance of a law, since the ends of a measurement cut requests in two.
const TOLERANCE: f64 = 0.05;

/// The tolerance of the utilisation law. Its figure is processor time that was measured over the
/// same seconds, so only the clocks may differ.
const CLOCKS: f64 = 0.02;

/// Above this error rate Little's law does not apply to users.
const MANY_ERRORS: f64 = 0.01;

/// Little's law: users = rate x time. The deviation as a share; `None` if it is unknown.
pub fn little(users: u32, seen: &Measurement) -> Option<f64> {
    let mean = seen.mean.filter(|_| seen.error_share <= MANY_ERRORS)?;
    Some(seen.rate * mean / f64::from(users) - 1.0)
}

/// Utilisation law: the processors that the workers must have used; `None` if unknown.
pub fn processors(seen: &Measurement) -> Option<f64> {
    Some(seen.rate * seen.cpu?)
}

/// Checks the measurement of this many users on a machine with this many processors.
///
/// # Errors
/// Which law is broken, as a message.
pub fn obeys(users: Option<u32>, cores: f64, seen: &Measurement) -> Result<(), String> {
    // At the ends of a measurement one round of each user may be missing or too many.
    let ends = seen.mean.unwrap_or(0.0) / seen.seconds.max(1e-9);
    let off = users.and_then(|users| little(users, seen));
    if let (Some(off), Some(users)) = (off, users)
        && off.abs() > TOLERANCE + ends
    {
        return Err(format!(
            "Little's law: {}, but {:.1} responses/s of {:.1} ms each make {:.1}",
            maitred_text::humanize::plural(u64::from(users), "user"),
            seen.rate,
            seen.mean.unwrap_or(0.0) * 1e3,
            f64::from(users) * (1.0 + off)
        ));
    }
    match processors(seen) {
        Some(needed) if needed > cores * (1.0 + CLOCKS) => Err(format!(
            "the utilisation law: {:.1} responses/s of {:.1} ms of processor time each need \
             {needed:.2} processors, and there are {cores}",
            seen.rate,
            seen.cpu.unwrap_or(0.0) * 1e3,
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(rate: f64, mean: f64, cpu: f64) -> Measurement {
        Measurement {
            seconds: 10.0,
            rate,
            mean: Some(mean),
            cpu: Some(cpu),
            ..Measurement::default()
        }
    }

    #[test]
    fn figures_that_break_littles_law_are_refused() {
        assert_eq!(obeys(Some(10), 2.0, &seen(100.0, 0.1, 0.01)), Ok(()));
        let why = obeys(Some(10), 2.0, &seen(100.0, 0.2, 0.01)).unwrap_err();
        assert!(why.contains("Little's law: 10 users") && why.contains("make 20.0"), "{why}");
        let failing = Measurement { error_share: 0.5, ..seen(100.0, 0.2, 0.01) };
        assert_eq!(obeys(Some(10), 2.0, &failing), Ok(()));
    }

    #[test]
    fn an_article_that_promises_more_than_the_processors_can_do_is_refused() {
        // W24: 200 requests a second with 30 ms of processor time each, on two processors.
        let why = obeys(None, 2.0, &seen(200.0, 0.1, 0.03)).unwrap_err();
        assert!(why.contains("need 6.00 processors, and there are 2"), "{why}");
    }

    #[test]
    fn a_sample_slightly_above_the_processors_is_refused_too() {
        // 3.43 ms of processor time for each request, on two processors.
        let why = obeys(Some(128), 2.0, &seen(609.0, 0.21, 0.00343)).unwrap_err();
        assert!(why.contains("need 2.09 processors, and there are 2"), "{why}");
        assert_eq!(obeys(Some(32), 2.0, &seen(557.0, 0.0575, 0.0035)), Ok(()));
        assert_eq!(obeys(Some(124), 2.0, &seen(540.0, 0.23, 0.0037)), Ok(()), "all of them");
    }
}
