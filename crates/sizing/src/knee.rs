//! The number of workers that keeps the processors busy.
//!
//! With `u` the share of work in a request, `cores / u` workers have as much work as there are
//! processors, on average. Since they do not take turns, all of them may wait and a processor is
//! idle, so a few more are needed. The number is known: workers that work and wait in turns and
//! share the processors alike are the machine repairman's model, in product form, so only the
//! averages of both times count, however they scatter (Baskett, Chandy, Muntz and Palacios, 1975).

/// Processors busy to this part under full load are full.
const FULL: f64 = 0.985;

/// More workers are not distinguished.
const MOST: usize = 4096;

/// Numbers of workers whose throughput is computed.
const TABLE: usize = 256;

/// A number of workers that keeps the processors busy to this part is as good as any larger.
const FULLEST: f64 = 0.999;

/// More workers than keep the processors busy to this part under full load are never kept for
/// normal load.
const NEARLY_ALL: f64 = 0.975;

/// Least share of a request that is work.
const LEAST_SHARE: f64 = 1e-6;

/// Terms below this part of all likelier ones do not change a sum.
const NEGLIGIBLE: f64 = 1e-18;

/// A sum beyond this is scaled down.
const LARGE: f64 = 1e200;

/// Fewest workers that keep `cores` processors full, if `cpu_share` of a request is work.
pub fn knee(cores: f64, cpu_share: f64) -> usize {
    let is_full = |workers: usize| busy(workers, cores, cpu_share) >= FULL * cores;
    // Fewer would not be enough even if none of them ever waited for another. It takes little more.
    let least = FULL * cores / cpu_share.clamp(LEAST_SHARE, 1.0);
    let mut few = (least.ceil() as usize).saturating_sub(1);
    let (mut enough, mut step) = (few + 1, 1);
    while enough < MOST && !is_full(enough) {
        (few, enough, step) = (enough, enough + step, 2 * step);
    }
    enough = enough.min(MOST);
    while few + 1 < enough {
        let middle = few + (enough - few) / 2;
        if is_full(middle) { enough = middle } else { few = middle }
    }
    enough
}

/// Busy processors on average, of `cores`, with this many workers under full load.
fn busy(workers: usize, cores: f64, cpu_share: f64) -> f64 {
    let at_once = |working: usize| (working as f64).min(cores);
    let share = cpu_share.clamp(LEAST_SHARE, 1.0);
    if share == 1.0 {
        return at_once(workers);
    }
    let ratio = share / (1.0 - share);
    // Probabilities relative to no busy worker. They rise to the maximum, and fall from there.
    let (mut likely, mut all, mut sum) = (1.0, 1.0, 0.0);
    for working in 1..=workers {
        likely *= (workers - working + 1) as f64 * ratio / at_once(working);
        all += likely;
        sum += likely * at_once(working);
        if likely < NEGLIGIBLE * all {
            break;
        }
        if all > LARGE {
            (likely, all, sum) = (likely / LARGE, all / LARGE, sum / LARGE);
        }
    }
    sum / all
}

/// Throughput by the number of workers under full load.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    /// Busy processors by the number of workers, from none on.
    busy: Vec<f64>,
    cores: f64,
    share: f64,
}

impl Pace {
    /// For a share of a request that is work.
    pub fn new(cores: f64, cpu_share: f64) -> Pace {
        let share = cpu_share.clamp(LEAST_SHARE, 1.0);
        let all = (0..=TABLE).map(|workers| busy(workers, cores, share));
        let mut is_full = false;
        let all = all.take_while(|busy| !std::mem::replace(&mut is_full, *busy >= FULLEST * cores));
        Pace { busy: all.collect(), cores, share }
    }

    /// Whether the throughput is unknown.
    pub fn is_unknown(&self) -> bool {
        self.busy.is_empty()
    }

    /// Busy processors with this many workers.
    fn of(&self, workers: usize) -> f64 {
        let last = self.busy.len() - 1;
        match self.busy.get(workers) {
            Some(busy) => *busy,
            None => (self.busy[last] * workers as f64 / last as f64).min(self.cores),
        }
    }

    /// Fewest workers that keep this many processors busy, or nearly all of them.
    pub fn keeps_busy(&self, cores: f64) -> usize {
        let least = cores.min(NEARLY_ALL * self.cores);
        self.busy.partition_point(|busy| *busy < least)
    }

    /// Fewest workers with which `in_hand` requests end as soon as if each had one, but for
    /// `patience`, as a part of the time that one takes alone. More workers only move the wait for
    /// a processor elsewhere.
    pub fn enough(&self, in_hand: usize, patience: f64) -> usize {
        if in_hand == 0 || self.busy.is_empty() {
            return in_hand;
        }
        let longer = patience / (in_hand as f64 * self.share);
        let least = 1.0 / (1.0 / self.of(in_hand) + longer);
        let found = self.busy.partition_point(|busy| *busy < least);
        let enough = if found < self.busy.len() {
            found
        } else {
            // Beyond the table each adds as much as the last of it.
            let last = self.busy.len() - 1;
            (last as f64 * least / self.busy[last]).ceil() as usize
        };
        enough.min(in_hand)
    }
}

/// Highest rate of requests that the processors allow.
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
        // The result of an exhaustive search; cores / u would be 5.7, 8 and 40.
        let all = [0.7, 0.5, 0.1].map(|share| knee(4.0, share));
        assert_eq!(all, [8, 11, 49]);
    }

    #[test]
    fn no_fewer_keep_processors_full_and_so_many_do() {
        for cores in [0.5, 1.0, 2.5, 4.0, 64.0] {
            for share in [0.03, 0.1, 0.5, 0.7, 0.97, 1.0] {
                let enough = knee(cores, share);
                let is_full = |workers| busy(workers, cores, share) >= FULL * cores;
                assert!(is_full(enough) || enough == MOST, "{cores} {share}");
                assert!(!is_full(enough - 1), "{cores} {share}: {enough}");
            }
        }
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
    fn requests_that_only_wait_need_a_worker_each_but_for_patience() {
        let pace = Pace::new(4.0, 0.001);
        let all = [1, 2, 10, 11, 12, 22, 300].map(|in_hand| pace.enough(in_hand, 0.1));
        assert_eq!(all, [1, 2, 10, 10, 11, 20, 273]);
    }

    #[test]
    fn requests_that_only_work_need_one_for_each_processor_however_many_there_are() {
        let pace = Pace::new(4.0, 1.0);
        let all = [0, 1, 3, 4, 5, 100, 5000].map(|in_hand| pace.enough(in_hand, 0.1));
        assert_eq!(all, [0, 1, 3, 4, 4, 4, 4]);
        let fewer = [0.5, 2.5].map(|cores| Pace::new(cores, 1.0).enough(100, 0.1));
        assert_eq!(fewer, [1, 3]);
    }

    #[test]
    fn more_in_hand_never_need_fewer_workers_and_never_more_than_there_are_requests() {
        for share in [0.002, 0.1, 0.7, 1.0] {
            for patience in [0.0, 0.1, 0.8] {
                let pace = Pace::new(4.0, share);
                let all: Vec<usize> = (0..600).map(|n| pace.enough(n, patience)).collect();
                assert!(all.iter().enumerate().all(|(n, enough)| *enough <= n));
                assert!(all[1..].iter().all(|enough| *enough >= 1));
                assert!(all.is_sorted(), "{share}, {patience}: {all:?}");
            }
        }
    }

    #[test]
    fn capacity_is_what_the_utilisation_law_says() {
        assert!((capacity(4.0, 0.020) - 200.0).abs() < 1e-9);
    }
}
