//! The Universal Scalability Law: X(N) = λN / (1 + σ(N − 1) + κN(N − 1)).

use serde::Serialize;

/// Fewest points that determine three coefficients.
const FEWEST: usize = 4;

/// Throughput by the number of workers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Model {
    /// The throughput of one worker, a second.
    pub lambda: f64,
    /// Contention: the share that cannot run in parallel.
    pub sigma: f64,
    /// Crosstalk: the cost of each pair of workers. Above zero, more workers are slower at some
    /// point.
    pub kappa: f64,
}

impl Model {
    /// The throughput with this many workers.
    pub fn at(&self, workers: f64) -> f64 {
        let others = workers - 1.0;
        self.lambda * workers / (1.0 + self.sigma * others + self.kappa * workers * others)
    }

    /// The derivatives of the throughput by each coefficient.
    fn slopes(&self, workers: f64) -> [f64; 3] {
        let others = workers - 1.0;
        let below = 1.0 + self.sigma * others + self.kappa * workers * others;
        let by = -self.lambda * workers / (below * below);
        [workers / below, by * others, by * workers * others]
    }

    /// The number of workers with the highest throughput; `None` if more are never slower.
    pub fn peak(&self) -> Option<f64> {
        let square = (1.0 - self.sigma) / self.kappa;
        (self.kappa > 0.0 && square > 0.0).then(|| square.sqrt())
    }
}

/// Most iterations of the fit.
const STEPS: usize = 200;

/// Fits the law to points of workers and throughput, by least squares (Levenberg-Marquardt),
/// starting from the polynomial N / X = a + bN + cN². `None` for fewer than four points, or if they
/// do not determine it.
pub fn fit(points: &[(f64, f64)]) -> Option<Model> {
    let usable = points.iter().filter(|(workers, rate)| *workers > 0.0 && *rate > 0.0);
    let inverse: Vec<(f64, f64)> =
        usable.map(|(workers, rate)| (*workers, workers / rate)).collect();
    if inverse.len() < FEWEST {
        return None;
    }
    let first = model(&polynomial(&inverse, 3)?).or_else(|| model(&polynomial(&inverse, 2)?))?;
    let full = nearest(points, first, 3);
    if full.kappa >= 0.0 && full.sigma >= 0.0 {
        Some(full)
    } else {
        // Noise made crosstalk negative: there is none.
        let without = Model { kappa: 0.0, ..first };
        let without = nearest(points, without, 2);
        Some(Model { sigma: without.sigma.max(0.0), ..without })
    }
}

/// The models with each of the points left out (jackknife), which show the influence of a single
/// measurement. Empty if there are too few points.
pub fn without_each(points: &[(f64, f64)]) -> Vec<Model> {
    let left = |at: usize| {
        let mut left = points.to_vec();
        left.remove(at);
        fit(&left)
    };
    (0..points.len()).filter_map(left).collect()
}

/// Optimises `model` for the points; only the first `terms` coefficients may change.
fn nearest(points: &[(f64, f64)], mut model: Model, terms: usize) -> Model {
    let error = |model: &Model| -> f64 {
        points.iter().map(|(workers, rate)| (rate - model.at(*workers)).powi(2)).sum()
    };
    let mut damping = 1e-3;
    for _ in 0..STEPS {
        let mut rows = vec![vec![0.0; terms + 1]; terms];
        for (workers, rate) in points {
            let slopes = model.slopes(*workers);
            let residual = rate - model.at(*workers);
            for (row, left) in rows.iter_mut().zip(slopes) {
                for (cell, right) in
                    row.iter_mut().zip(slopes.iter().take(terms).chain([&residual]))
                {
                    *cell += left * right;
                }
            }
        }
        for (place, row) in rows.iter_mut().enumerate() {
            row[place] *= 1.0 + damping;
        }
        let Some(step) = solve(rows) else { break };
        let at = |place: usize| step.get(place).copied().unwrap_or(0.0);
        let next = Model {
            lambda: model.lambda + at(0),
            sigma: model.sigma + at(1),
            kappa: model.kappa + at(2),
        };
        if error(&next) < error(&model) {
            model = next;
            damping *= 0.3;
        } else {
            damping *= 10.0;
        }
    }
    model
}

fn model(found: &[f64]) -> Option<Model> {
    let at = |place: usize| found.get(place).copied().unwrap_or(0.0);
    let sum = at(0) + at(1) + at(2);
    if !(sum.is_finite() && sum > 0.0) {
        return None;
    }
    let lambda = 1.0 / sum;
    let kappa = at(2) * lambda;
    Some(Model { lambda, sigma: at(1) * lambda + kappa, kappa })
}

/// The coefficients of the polynomial with this many terms that is nearest to the points, relative
/// to their size, by the normal equations.
fn polynomial(points: &[(f64, f64)], terms: usize) -> Option<Vec<f64>> {
    let mut rows = vec![vec![0.0; terms + 1]; terms];
    for (x, y) in points {
        let powers: Vec<f64> = (0..terms).map(|power| x.powi(power as i32)).collect();
        for (row, left) in rows.iter_mut().zip(&powers) {
            for (cell, right) in row.iter_mut().zip(powers.iter().chain([y])) {
                *cell += left * right;
            }
        }
    }
    solve(rows)
}

/// Gaussian elimination with pivoting; the last column of a row is its right side.
fn solve(mut rows: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let size = rows.len();
    for column in 0..size {
        let pivot = (column..size).max_by(|a, b| {
            let of = |row: usize| rows[row][column].abs();
            of(*a).total_cmp(&of(*b))
        })?;
        rows.swap(column, pivot);
        let first = rows[column].clone();
        if first[column].abs() < 1e-30 {
            return None;
        }
        for (place, row) in rows.iter_mut().enumerate() {
            if place != column {
                let factor = row[column] / first[column];
                for (cell, of_first) in row.iter_mut().zip(&first) {
                    *cell -= factor * of_first;
                }
            }
        }
    }
    Some(rows.iter().enumerate().map(|(place, row)| row[size] / row[place]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The measurements of codahale/usl4j's tests, of Cisco's (Schwartz, Practical Scalability
    /// Analysis).
    const CISCO: [f64; 32] = [
        955.16, 1878.91, 2688.01, 3548.68, 4315.54, 5130.43, 5931.37, 6531.08, 7219.8, 7867.61,
        8278.71, 8646.7, 9047.84, 9426.55, 9645.37, 9897.24, 10097.6, 10240.5, 10532.39, 10798.52,
        11151.43, 11518.63, 11806.0, 12089.37, 12075.41, 12177.29, 12211.41, 12158.93, 12155.27,
        12118.04, 12140.4, 12074.39,
    ];

    #[test]
    fn the_known_answer_is_found() {
        let points: Vec<(f64, f64)> =
            CISCO.iter().enumerate().map(|(at, rate)| (at as f64 + 1.0, *rate)).collect();
        let model = fit(&points).expect("a fit");
        let near = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 2e-4;
        assert!(near(model.sigma, 0.026_715_91), "{model:?}");
        assert!(near(model.kappa, 7.690_945e-4), "{model:?}");
        assert!(near(model.lambda, 995.648_6), "{model:?}");
        let peak = model.peak().expect("a peak").floor();
        assert_eq!(peak, 35.0);
        assert!(near(model.at(peak), 12_341.0), "{}", model.at(peak));
    }

    #[test]
    fn what_scales_evenly_has_no_peak_and_too_little_no_fit() {
        let points: Vec<(f64, f64)> =
            (1..=8).map(|n| (f64::from(n), 25.0 * f64::from(n))).collect();
        let model = fit(&points).expect("a fit");
        assert!((model.at(100.0) - 2_500.0).abs() < 50.0, "{model:?}");
        assert_eq!(fit(&points[..3]), None);
        assert_eq!(without_each(&points).len(), 8);
        assert!(without_each(&points[..4]).is_empty());
        assert_eq!(fit(&[(1.0, 0.0); 8]), None);
    }
}
