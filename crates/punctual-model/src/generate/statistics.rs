//! What the tests of random draws share.

use super::random::RandomStream;

pub(super) fn stream(name: &str) -> RandomStream {
    RandomStream::new(20_111_009, name)
}

/// Mean and standard error of the mean of `n` draws.
pub(super) fn mean_of(n: usize, mut draw: impl FnMut() -> f64) -> (f64, f64) {
    let values: Vec<f64> = (0..n).map(|_| draw()).collect();
    let mean = values.iter().sum::<f64>() / n as f64;
    let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1) as f64;
    (mean, (variance / n as f64).sqrt())
}

/// Four standard errors: an unbiased generator fails one seed in 16,000, and the seed is fixed.
pub(super) fn assert_mean(what: &str, expected: f64, (mean, error): (f64, f64)) {
    assert!((mean - expected).abs() <= 4.0 * error, "{what}: mean {mean} ± {error}, expected {expected}");
}
