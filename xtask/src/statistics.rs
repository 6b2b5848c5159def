//! Statistics over the runs of a benchmark.

/// Returns the median, or `None` for an empty list. For an even number of values it is the mean of the middle two.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// Returns a percentile, from 0 for the minimum to 100 for the maximum. Between two values it is interpolated. Returns
/// `NAN` for an empty list.
pub(crate) fn percentile(values: &[f64], percent: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let at = percent / 100.0 * last as f64;
    let below = sorted[at.floor() as usize];
    let above = sorted[at.ceil() as usize];
    below + (above - below) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_interpolated_between_two_values() {
        let values = [4.0, 1.0, 3.0, 2.0, 5.0];
        assert_eq!(
            [0.0, 25.0, 60.0, 100.0].map(|percent| percentile(&values, percent)),
            [1.0, 2.0, 3.4, 5.0]
        );
        assert!(percentile(&[], 50.0).is_nan());
    }

    #[test]
    fn the_median_of_an_even_number_of_values_is_the_mean_of_the_middle_two() {
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }
}
