//! Random numbers by distribution; the same seed gives the same numbers.

use fastrand::Rng;

/// A distribution of times, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Times {
    /// A constant.
    Fixed(f64),
    /// Exponential, with this mean.
    Exponential(f64),
    /// Lognormal.
    Lognormal {
        /// Its mean.
        mean: f64,
        /// Its variance, as a multiple of the square of the mean.
        cv2: f64,
    },
}

impl Times {
    /// Its mean, in seconds.
    pub fn mean(self) -> f64 {
        match self {
            Times::Fixed(mean) | Times::Exponential(mean) | Times::Lognormal { mean, .. } => mean,
        }
    }

    /// A random time.
    pub fn draw(self, rng: &mut Rng) -> f64 {
        match self {
            Times::Fixed(mean) => mean,
            Times::Exponential(mean) => mean * exponential(rng),
            Times::Lognormal { mean, cv2 } => {
                let variance = (1.0 + cv2).ln();
                mean * (variance.sqrt() * normal(rng) - variance / 2.0).exp()
            }
        }
    }
}

/// An exponentially distributed time with mean 1.
pub fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - rng.f64()).ln()
}

/// By the Box-Muller transform.
fn normal(rng: &mut Rng) -> f64 {
    let radius = (2.0 * exponential(rng)).sqrt();
    radius * (std::f64::consts::TAU * rng.f64()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_has_the_mean_and_the_variance_it_should_have() {
        let lognormal = Times::Lognormal { mean: 0.02, cv2: 4.0 };
        for (times, cv2) in
            [(Times::Fixed(0.02), 0.0), (Times::Exponential(0.02), 1.0), (lognormal, 4.0)]
        {
            let mut rng = Rng::with_seed(7);
            let all: Vec<f64> = (0..400_000).map(|_| times.draw(&mut rng)).collect();
            let mean = all.iter().sum::<f64>() / all.len() as f64;
            let square = all.iter().map(|one| one * one).sum::<f64>() / all.len() as f64;
            assert!((mean / 0.02 - 1.0).abs() < 0.02, "{times:?}: {mean}");
            let found = square / (mean * mean) - 1.0;
            assert!((found - cv2).abs() < 0.12 * cv2 + 0.01, "{times:?}: {found}");
        }
    }
}
