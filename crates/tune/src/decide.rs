//! Chooses the number of workers from the measurements.

use serde::Serialize;

use crate::usl::{self, Model};

/// The share of the memory that may be used (doctor's D1 warns above it).
const MEMORY_SHARE: f64 = 0.85;

/// The share of the highest throughput that is enough, since more workers for the rest cost more
/// than they bring. It is lower if the noise floor is higher, down to the least.
const ENOUGH: f64 = 0.97;
const LEAST_ENOUGH: f64 = 0.9;

/// The same after short measurements, whose throughput varies more than that of the pairs that show
/// the noise floor.
pub const ENOUGH_IN_HASTE: f64 = 0.95;

/// Most workers that are tried.
pub const MOST_WORKERS: u32 = 512;

/// Estimates of the knee that differ by more than this share are reported.
const AGREE: f64 = 0.3;

/// Numbers of workers within this share of each other count as the same.
const SAME: f64 = 0.1;

/// The share of the highest throughput that is enough with this noise floor: numbers that differ by
/// less cannot be ranked, and the highest of many is so by chance.
pub fn enough(noise: Option<f64>) -> f64 {
    (1.0 - noise.unwrap_or(0.0)).clamp(LEAST_ENOUGH, ENOUGH)
}

/// An upper bound of the number of workers, and its reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ceiling {
    /// The bound.
    pub workers: u32,
    /// Its reason.
    pub why: String,
}

/// Memory for the server's workers.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryBudget {
    /// The lowest limit around the server, in bytes, and where it is set.
    pub budget: Result<(f64, String), String>,
    /// Memory in use by everything but the pool's workers, in bytes; their shared memory is part of
    /// it.
    pub base: Result<f64, String>,
}

/// The upper bound by memory and by the user's limit.
pub fn ceiling(
    memory: &MemoryBudget,
    private: Option<f64>,
    now: u32,
    most: Option<u32>,
) -> Ceiling {
    let found = memory_ceiling(memory, private, now);
    match most {
        Some(most) if most < found.workers => {
            Ceiling { workers: most.max(1), why: "the given limit (--most-workers)".to_owned() }
        }
        _ => found,
    }
}

/// The upper bound by memory. If a limit cannot be read, the pool does not grow.
fn memory_ceiling(memory: &MemoryBudget, private: Option<f64>, now: u32) -> Ceiling {
    let stays =
        |why: &str| Ceiling { workers: now, why: format!("no more workers than now: {why}") };
    let (budget, whose) = match &memory.budget {
        Ok(budget) => budget,
        Err(why) => return stays(&format!("the memory limit is not known ({why})")),
    };
    let base = match &memory.base {
        Ok(base) => *base,
        Err(why) => {
            return stays(&format!("the memory of other processes is not known ({why})"));
        }
    };
    let Some(private) = private.filter(|private| *private > 0.0) else {
        return stays("the memory of a worker is not known (/proc/PID/smaps_rollup)");
    };
    let fits = ((MEMORY_SHARE * budget - base) / private).floor();
    let workers = fits.clamp(1.0, f64::from(MOST_WORKERS)) as u32;
    let why = match fits {
        fits if fits > f64::from(MOST_WORKERS) => {
            format!("most that are tried; memory allows {fits:.0}")
        }
        _ => format!("85 % of the memory ({whose})"),
    };
    Ceiling { workers, why }
}

/// The chosen number of workers, and its reasons.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// The number.
    pub workers: u32,
    /// What limits it: `throughput`, or the reason of the ceiling.
    pub binding: String,
    /// The throughput with that number, measured or interpolated, in requests a second.
    pub rate: f64,
    /// The share of the highest throughput that is enough.
    pub enough: f64,
    /// The model of throughput by workers.
    pub model: Option<Model>,
    /// The models with each measurement left out.
    pub models: Vec<Model>,
    /// The bend of the curve.
    pub bend: Option<f64>,
    /// The number at which all processors are busy, K / u.
    pub knee: Option<f64>,
    /// That the estimates disagree, as a message.
    pub doubt: Option<String>,
}

/// The fewest workers with enough throughput. `points` are numbers of workers and throughput,
/// ascending.
pub fn choose(
    points: &[(f64, f64)],
    ceiling: &Ceiling,
    knee: Option<f64>,
    enough: f64,
) -> Option<Choice> {
    let best = points.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    if best <= 0.0 {
        return None;
    }
    let wanted = best * enough;
    let first = points.iter().position(|(_, rate)| *rate >= wanted)?;
    let crossing = match first.checked_sub(1).and_then(|before| points.get(before)) {
        // Linear interpolation between the two.
        Some((few, less)) => {
            let (many, more) = points[first];
            few + (many - few) * (wanted - less) / (more - less).max(1e-9)
        }
        None => points[first].0,
    };
    let workers = (crossing.ceil() as u32).clamp(1, ceiling.workers.max(1));
    let last = points.last().map_or(0.0, |(workers, _)| *workers);
    // Only the last point is enough, and the ceiling forbids more.
    let still_grows =
        points.len() > 1 && last + 0.5 >= f64::from(ceiling.workers) && first + 1 == points.len();
    let model = usl::fit(points);
    let bend = bend(points);
    let doubt = doubt(workers, points, bend, knee).filter(|_| !still_grows);
    Some(Choice {
        workers,
        binding: if still_grows {
            ceiling.why.clone()
        } else {
            "throughput: more workers serve no more".to_owned()
        },
        rate: wanted,
        enough,
        model,
        models: usl::without_each(points),
        bend,
        knee,
        doubt,
    })
}

fn doubt(
    workers: u32,
    points: &[(f64, f64)],
    bend: Option<f64>,
    knee: Option<f64>,
) -> Option<String> {
    let chosen = f64::from(workers);
    let mut apart = Vec::new();
    // Between measured numbers the position of the bend is unknown.
    let tried = |at: f64| points.iter().position(|(workers, _)| *workers == at);
    if let Some((bend, at)) = bend.and_then(|bend| Some((bend, tried(bend)?))) {
        let low = points[at.saturating_sub(1)].0;
        let high = points.get(at + 1).map_or(bend, |point| point.0);
        if chosen < low / (1.0 + AGREE) || chosen > high * (1.0 + AGREE) {
            apart.push(format!("its bend (Kneedle) is at {bend:.0}"));
        }
    }
    if let Some(knee) = knee.filter(|knee| (knee / chosen).ln().abs() > (1.0 + AGREE).ln()) {
        apart.push(format!("K / u is {knee:.0}"));
    }
    (!apart.is_empty()).then(|| format!("the estimates differ: {}", apart.join(", ")))
}

/// The point farthest above the line between the ends of the curve (Satopaa et al., Kneedle).
fn bend(points: &[(f64, f64)]) -> Option<f64> {
    let ((from, low), (to, _)) = (points.first()?, points.last()?);
    let high = points.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    if points.len() < 4 || high <= *low {
        return None;
    }
    let above =
        |(workers, rate): &(f64, f64)| (rate - low) / (high - low) - (workers - from) / (to - from);
    let most = points.iter().max_by(|a, b| above(a).total_cmp(&above(b)))?;
    Some(most.0)
}

/// Whether two numbers of workers are the same as far as measurements can tell.
pub fn is_same(now: u32, chosen: u32) -> bool {
    f64::from(now.abs_diff(chosen)) <= SAME * f64::from(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1_048_576.0;

    fn points(rate: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        let tried = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0];
        tried.iter().map(|workers| (*workers, rate(*workers))).collect()
    }

    /// On a quiet machine.
    fn choose(points: &[(f64, f64)], ceiling: &Ceiling, knee: Option<f64>) -> Option<Choice> {
        super::choose(points, ceiling, knee, enough(None))
    }

    fn plenty() -> Ceiling {
        Ceiling { workers: 400, why: "memory".to_owned() }
    }

    #[test]
    fn pages_that_compute_get_as_many_workers_as_processors_and_those_that_wait_many() {
        let computes = choose(&points(|n| 50.0 * n.min(2.0)), &plenty(), Some(2.0)).unwrap();
        assert_eq!((computes.workers, computes.doubt), (2, None));
        let waits = choose(&points(|n| 25.0 * n.min(40.0)), &plenty(), Some(41.0)).unwrap();
        assert!((36..=47).contains(&waits.workers), "{waits:?}");
        assert_eq!(waits.doubt, None);
    }

    #[test]
    fn the_highest_of_many_that_differ_by_chance_is_not_worth_ten_times_the_workers() {
        // Two processors are saturated with 24 workers; the rest is noise.
        let rates = [22.0, 102.0, 208.0, 339.0, 379.0, 323.0, 374.0, 415.0, 428.0, 374.0];
        let counts = [1.0, 4.0, 8.0, 16.0, 24.0, 32.0, 48.0, 64.0, 192.0, 256.0];
        let points: Vec<_> = counts.into_iter().zip(rates).collect();
        let chosen = |noise| super::choose(&points, &plenty(), None, enough(noise)).unwrap();
        assert_eq!(chosen(Some(0.01)).workers, 66);
        let noisy = chosen(Some(0.15));
        assert!((48..=64).contains(&noisy.workers), "{noisy:?}");
        assert_eq!((noisy.enough, enough(None), enough(Some(0.05))), (0.9, 0.97, 0.95));
    }

    #[test]
    fn crosstalk_makes_the_peak_and_a_ceiling_binds_where_throughput_still_grows() {
        let model = Model { lambda: 100.0, sigma: 0.02, kappa: 0.004 };
        let found = choose(&points(|n| model.at(n)), &plenty(), None).unwrap();
        let best = model.at(model.peak().unwrap());
        assert!(model.at(f64::from(found.workers)) > 0.93 * best, "{found:?}");
        let low = Ceiling { workers: 16, why: "memory".to_owned() };
        let bound = choose(&points(|n| 25.0 * n)[..8], &low, None).unwrap();
        assert_eq!((bound.workers, bound.binding.as_str()), (16, "memory"));
        let falls = [(1.0, 3.0), (8.0, 6.0), (12.0, 2.0), (16.0, 1.0)];
        let bound = choose(&falls, &low, None).unwrap();
        assert!(bound.binding.starts_with("throughput"), "{bound:?}");
    }

    #[test]
    fn estimates_that_lie_apart_are_said() {
        let found = choose(&points(|n| 50.0 * n.min(4.0)), &plenty(), Some(40.0)).unwrap();
        assert!(found.doubt.unwrap().contains("K / u is 40"));
        assert_eq!(choose(&[], &plenty(), None), None);
    }

    #[test]
    fn memory_allows_what_fits_and_an_unreadable_limit_no_more_than_now() {
        let memory = |budget| MemoryBudget { budget, base: Ok(300.0 * MB) };
        let known = memory(Ok((1_000.0 * MB, "the machine's memory".to_owned())));
        let found = memory_ceiling(&known, Some(11.0 * MB), 5);
        assert_eq!(found.workers, 50);
        let unreadable = memory(Err("memory.max cannot be read".to_owned()));
        let found = memory_ceiling(&unreadable, Some(11.0 * MB), 5);
        assert_eq!(found.workers, 5);
        assert!(found.why.contains("memory.max cannot be read"), "{}", found.why);
        assert_eq!(memory_ceiling(&known, None, 7).workers, 7, "a worker's memory is not readable");
        assert_eq!(ceiling(&known, Some(11.0 * MB), 5, Some(9)).workers, 9);
        assert_eq!(ceiling(&known, Some(11.0 * MB), 5, Some(90)).workers, 50);
        let tiny = memory(Ok((100.0 * MB, "a group".to_owned())));
        assert_eq!(memory_ceiling(&tiny, Some(11.0 * MB), 5).workers, 1);
    }

    #[test]
    fn a_worker_more_or_less_of_many_is_the_same() {
        assert!(is_same(40, 42) && !is_same(5, 42) && !is_same(5, 6));
    }
}
