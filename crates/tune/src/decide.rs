//! How many workers a pool is to have, from what was measured.

use serde::Serialize;

use crate::usl::{self, Model};

/// The share of the memory that may be spoken for (doctor's D1 warns above it).
const MEMORY_SHARE: f64 = 0.85;

/// Throughput that is worth having: more workers for the last of it cost more than they bring. Where the same
/// setting differs from itself by more than the rest, that is enough, but no less than this.
const ENOUGH: f64 = 0.97;
const LEAST_ENOUGH: f64 = 0.9;

/// Most workers that are tried.
pub const MOST_WORKERS: u32 = 512;

/// How far estimates of the knee may lie apart before it is said.
const AGREE: f64 = 0.3;

/// A difference in the number of workers that is none.
const SAME: f64 = 0.1;

/// The share of the highest throughput that is enough where the same setting differs from itself by so much: of
/// numbers that differ by less nobody knows which is better, and the highest of many is so by chance.
pub fn enough(noise: Option<f64>) -> f64 {
    (1.0 - noise.unwrap_or(0.0)).clamp(LEAST_ENOUGH, ENOUGH)
}

/// A bound of the number of workers, and where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ceiling {
    /// At most so many.
    pub workers: u32,
    /// Why, in words.
    pub why: String,
}

/// MemoryBudget for the server's workers.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryBudget {
    /// The least limit around the server, in bytes, and whose it is.
    pub budget: Result<(f64, String), String>,
    /// What all but the pool's workers has of it, in bytes; what they share is part of that.
    pub base: Result<f64, String>,
}

/// How many workers there may be: for how many there is memory, and no more than somebody says.
pub fn ceiling(
    memory: &MemoryBudget,
    private: Option<f64>,
    now: u32,
    most: Option<u32>,
) -> Ceiling {
    let found = memory_ceiling(memory, private, now);
    match most {
        Some(most) if most < found.workers => Ceiling {
            workers: most.max(1),
            why: "the number that was given (--most-workers)".to_owned(),
        },
        _ => found,
    }
}

/// How many workers there is memory for. A limit that cannot be read lets the pool not grow.
fn memory_ceiling(memory: &MemoryBudget, private: Option<f64>, now: u32) -> Ceiling {
    let stays = |why: &str| Ceiling {
        workers: now,
        why: format!("no more workers than now: {why}"),
    };
    let (budget, whose) = match &memory.budget {
        Ok(budget) => budget,
        Err(why) => return stays(&format!("the limit of memory is not known ({why})")),
    };
    let base = match &memory.base {
        Ok(base) => *base,
        Err(why) => return stays(&format!("what others use is not known ({why})")),
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

/// What was found out about the number of workers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Choice {
    /// So many.
    pub workers: u32,
    /// What binds: `throughput`, or what the ceiling says.
    pub binding: String,
    /// The throughput that was measured or follows with so many, a second.
    pub rate: f64,
    /// Scope share that is of what any number serves.
    pub enough: f64,
    /// What is served with one, and how that grows.
    pub model: Option<Model>,
    /// The same without each of the measurements.
    pub models: Vec<Model>,
    /// Where throughput bends, by the shape of the curve.
    pub bend: Option<f64>,
    /// Where processors are all busy, K / u.
    pub knee: Option<f64>,
    /// That those disagree, in words.
    pub doubt: Option<String>,
}

/// The fewest workers that serve that share of what any number does. `points` are numbers of workers and
/// throughput, in their order.
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
        // Between the two, as if it grew evenly.
        Some((few, less)) => {
            let (many, more) = points[first];
            few + (many - few) * (wanted - less) / (more - less).max(1e-9)
        }
        None => points[first].0,
    };
    let workers = (crossing.ceil() as u32).clamp(1, ceiling.workers.max(1));
    let last = points.last().map_or(0.0, |(workers, _)| *workers);
    // Only the last is enough, and nobody could try more.
    let still_grows =
        points.len() > 1 && last + 0.5 >= f64::from(ceiling.workers) && first + 1 == points.len();
    let model = usl::fit(points);
    let bend = bend(points);
    let doubt = doubt(workers, points, bend, knee).filter(|_| !still_grows);
    Some(Choice {
        workers,
        binding: match still_grows {
            true => ceiling.why.clone(),
            false => "throughput: more workers serve no more".to_owned(),
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
    // Between the numbers that were tried nobody knows where it bends.
    let tried = |at: f64| points.iter().position(|(workers, _)| *workers == at);
    if let Some((bend, at)) = bend.and_then(|bend| Some((bend, tried(bend)?))) {
        let low = points[at.saturating_sub(1)].0;
        let high = points.get(at + 1).map_or(bend, |point| point.0);
        if chosen < low / (1.0 + AGREE) || chosen > high * (1.0 + AGREE) {
            apart.push(format!("its bend (Kneedle) says {bend:.0}"));
        }
    }
    if let Some(knee) = knee.filter(|knee| (knee / chosen).ln().abs() > (1.0 + AGREE).ln()) {
        apart.push(format!("K / u says {knee:.0}"));
    }
    (!apart.is_empty()).then(|| format!("the estimates lie apart: {}", apart.join(", ")))
}

/// Where a curve lies farthest above the line between its ends (Satopaa et al., Kneedle).
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

/// Whether two numbers of workers are the same for all that can be measured.
pub fn is_same(now: u32, chosen: u32) -> bool {
    f64::from(now.abs_diff(chosen)) <= SAME * f64::from(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1_048_576.0;

    fn points(rate: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        let tried = [
            1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0,
        ];
        tried
            .iter()
            .map(|workers| (*workers, rate(*workers)))
            .collect()
    }

    /// On a quiet machine.
    fn choose(points: &[(f64, f64)], ceiling: &Ceiling, knee: Option<f64>) -> Option<Choice> {
        super::choose(points, ceiling, knee, enough(None))
    }

    fn plenty() -> Ceiling {
        Ceiling {
            workers: 400,
            why: "memory".to_owned(),
        }
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
        // Two processors are full with 24 workers; the rest is chance.
        let rates = [
            22.0, 102.0, 208.0, 339.0, 379.0, 323.0, 374.0, 415.0, 428.0, 374.0,
        ];
        let counts = [1.0, 4.0, 8.0, 16.0, 24.0, 32.0, 48.0, 64.0, 192.0, 256.0];
        let points: Vec<_> = counts.into_iter().zip(rates).collect();
        let chosen = |noise| super::choose(&points, &plenty(), None, enough(noise)).unwrap();
        assert_eq!(chosen(Some(0.01)).workers, 66);
        let noisy = chosen(Some(0.15));
        assert!((48..=64).contains(&noisy.workers), "{noisy:?}");
        assert_eq!(
            (noisy.enough, enough(None), enough(Some(0.05))),
            (0.9, 0.97, 0.95)
        );
    }

    #[test]
    fn crosstalk_makes_the_peak_and_a_ceiling_binds_where_throughput_still_grows() {
        let model = Model {
            lambda: 100.0,
            sigma: 0.02,
            kappa: 0.004,
        };
        let found = choose(&points(|n| model.at(n)), &plenty(), None).unwrap();
        let best = model.at(model.peak().unwrap());
        assert!(
            model.at(f64::from(found.workers)) > 0.93 * best,
            "{found:?}"
        );
        let low = Ceiling {
            workers: 16,
            why: "memory".to_owned(),
        };
        let bound = choose(&points(|n| 25.0 * n)[..8], &low, None).unwrap();
        assert_eq!((bound.workers, bound.binding.as_str()), (16, "memory"));
        let falls = [(1.0, 3.0), (8.0, 6.0), (12.0, 2.0), (16.0, 1.0)];
        let bound = choose(&falls, &low, None).unwrap();
        assert!(bound.binding.starts_with("throughput"), "{bound:?}");
    }

    #[test]
    fn estimates_that_lie_apart_are_said() {
        let found = choose(&points(|n| 50.0 * n.min(4.0)), &plenty(), Some(40.0)).unwrap();
        assert!(found.doubt.unwrap().contains("K / u says 40"));
        assert_eq!(choose(&[], &plenty(), None), None);
    }

    #[test]
    fn memory_allows_what_fits_and_an_unreadable_limit_no_more_than_now() {
        let memory = |budget| MemoryBudget {
            budget,
            base: Ok(300.0 * MB),
        };
        let known = memory(Ok((1_000.0 * MB, "the machine's memory".to_owned())));
        let found = memory_ceiling(&known, Some(11.0 * MB), 5);
        assert_eq!(found.workers, 50);
        let unreadable = memory(Err("memory.max cannot be read".to_owned()));
        let found = memory_ceiling(&unreadable, Some(11.0 * MB), 5);
        assert_eq!(found.workers, 5);
        assert!(
            found.why.contains("memory.max cannot be read"),
            "{}",
            found.why
        );
        assert_eq!(
            memory_ceiling(&known, None, 7).workers,
            7,
            "nobody may read a worker's memory"
        );
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
