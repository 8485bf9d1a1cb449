//! Quantiles.

/// The quantile `p`: the smallest value that is not exceeded by this share of the values. `None`
/// without values.
pub fn quantile(mut values: Vec<f64>, p: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    let at = (p * values.len() as f64).ceil() as usize;
    values.get(at.saturating_sub(1).min(last)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_values() {
        assert_eq!(quantile(vec![3.0, 1.0, 2.0], 0.5), Some(2.0));
        assert_eq!(quantile(vec![3.0, 1.0, 2.0], 0.95), Some(3.0));
        assert_eq!(quantile(Vec::new(), 0.5), None);
    }
}
