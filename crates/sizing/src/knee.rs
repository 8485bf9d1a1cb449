//! How many workers the processors can keep busy.
//!
//! With `u` the share of a request that is work, `cores / u` workers have as much work as there are
//! processors, on average. Since they do not take turns, now and then all of them wait and a
//! processor is idle, so a few more are needed. How many is a known answer: workers that work and wait
//! in turns and share the processors alike are the machine repairman's model, in product form, so only
//! the averages of both times count, however they scatter (Baskett, Chandy, Muntz and Palacios, 1975).

/// The processors are full when they are busy to this part while there is more than enough to do.
const FULL: f64 = 0.99;

/// More workers than this are not told apart.
const MOST: usize = 4096;

/// A sum beyond this is scaled down.
const LARGE: f64 = 1e200;

/// Fewest workers that keep `cores` processors full, if `cpu_share` of a request is work.
pub fn knee(cores: f64, cpu_share: f64) -> usize {
    let is_full = |workers: usize| busy(workers, cores, cpu_share) >= FULL * cores;
    if !is_full(MOST) {
        return MOST;
    }
    let (mut few, mut enough) = (0, MOST);
    while few + 1 < enough {
        let middle = few + (enough - few) / 2;
        match is_full(middle) {
            true => enough = middle,
            false => few = middle,
        }
    }
    enough
}

/// How many of `cores` processors are busy on average with so many workers that all have something to
/// do.
fn busy(workers: usize, cores: f64, cpu_share: f64) -> f64 {
    let at_once = |working: usize| (working as f64).min(cores);
    let share = cpu_share.clamp(1e-6, 1.0);
    if share == 1.0 {
        return at_once(workers);
    }
    let ratio = share / (1.0 - share);
    // What is likely in proportion to nobody being at work.
    let (mut likely, mut all, mut sum) = (1.0, 1.0, 0.0);
    for working in 1..=workers {
        likely *= (workers - working + 1) as f64 * ratio / at_once(working);
        all += likely;
        sum += likely * at_once(working);
        if all > LARGE {
            (likely, all, sum) = (likely / LARGE, all / LARGE, sum / LARGE);
        }
    }
    sum / all
}

/// Requests a second that the processors can do.
pub fn capacity(cores: f64, cpu_seconds: f64) -> f64 {
    cores / cpu_seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_alone_needs_a_worker_for_each_processor() {
        assert_eq!(knee(4.0, 1.0), 4);
        assert_eq!(knee(0.5, 1.0), 1);
        assert_eq!(knee(2.5, 1.0), 3);
    }

    #[test]
    fn the_more_a_request_waits_the_more_workers_a_processor_can_have() {
        // What a search through all numbers finds; cores / u would be 5.7, 8 and 40.
        let all = [0.7, 0.5, 0.1].map(|share| knee(4.0, share));
        assert_eq!(all, [8, 12, 50]);
    }

    #[test]
    fn a_share_that_cannot_be_is_taken_for_the_nearest_that_can() {
        assert_eq!(knee(4.0, 7.0), 4);
        assert_eq!(knee(4.0, 0.0), MOST);
        assert_eq!(knee(4.0, -1.0), MOST);
    }

    #[test]
    fn one_processor_and_two_workers_are_busy_as_the_formula_says() {
        // p(0) : p(1) : p(2) = 1 : 2r : 2r² with r = u / (1 - u) = 1.
        assert!((busy(2, 1.0, 0.5) - 4.0 / 5.0).abs() < 1e-12);
    }

    #[test]
    fn many_workers_are_no_number_too_large() {
        let one = busy(MOST, 64.0, 0.5);
        assert!((one - 64.0).abs() < 1e-6, "{one}");
    }

    #[test]
    fn capacity_is_what_the_utilisation_law_says() {
        assert!((capacity(4.0, 0.020) - 200.0).abs() < 1e-9);
    }
}
