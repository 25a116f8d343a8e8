//! What an experiment measured, by name: the left side of every claim.
//!
//! A name is a dotted path such as `fig6.even.sedf.capacity_percent`. A measure holds one number for each
//! task set (seed), always in the same order, or a single number where no task set is involved.

use std::collections::BTreeMap;

use serde::Serialize;

/// Named measures.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Measures(BTreeMap<String, Vec<f64>>);

impl Measures {
    /// Sets a measure that holds one number for each task set.
    ///
    /// # Panics
    /// When `values` is empty or the name is taken: both are errors of an experiment's code.
    pub fn set(&mut self, name: impl Into<String>, values: Vec<f64>) {
        let name = name.into();
        assert!(!values.is_empty(), "{name} has no value");
        let before = self.0.insert(name, values);
        assert!(before.is_none(), "a measure was set twice");
    }

    /// Sets a measure that no task set influences.
    pub(crate) fn set_one(&mut self, name: impl Into<String>, value: f64) {
        self.set(name, vec![value]);
    }

    /// The measure's numbers, if it was taken.
    pub fn get(&self, name: &str) -> Option<&[f64]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// The numbers of every measure that `pattern` names, `(a|b)` standing for both: in all combinations, the
    /// first varying slowest. `None` when one of them was not taken.
    pub fn matching(&self, pattern: &str) -> Option<Vec<&[f64]>> {
        Self::names(pattern).iter().map(|name| self.get(name)).collect()
    }

    /// The names that `pattern` matches, in the order of [`Measures::matching`].
    pub fn names(pattern: &str) -> Vec<String> {
        expand(pattern)
    }

    /// Adds all measures of another experiment.
    pub fn extend(&mut self, other: Measures) {
        for (name, values) in other.0 {
            self.set(name, values);
        }
    }
}

/// Replaces each `(a|b)` by its alternatives, in all combinations, the first varying slowest.
fn expand(pattern: &str) -> Vec<String> {
    let split = pattern.split_once('(').and_then(|(head, rest)| Some((head, rest.split_once(')')?)));
    let Some((head, (choices, tail))) = split else { return vec![pattern.to_string()] };
    let tails = expand(tail);
    choices.split('|').flat_map(|c| tails.iter().map(move |t| format!("{head}{c}{t}"))).collect()
}

/// The mean of `values`; zero when empty.
pub(crate) fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// The least and the greatest of `values`.
pub(crate) fn range(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), &v| (lo.min(v), hi.max(v)))
}

/// The median of `values`, the mean of both middle ones for an even number; zero when empty.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n.is_multiple_of(2) => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
        n => sorted[n / 2],
    }
}

/// A number for readers: at most three decimals below 1, two below 10, one below 1000, none above, without
/// trailing zeros.
pub(crate) fn number(value: f64) -> String {
    let decimals = match value.abs() {
        v if v < 1.0 => 3,
        v if v < 10.0 => 2,
        v if v < 1000.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

/// Mean and, where the numbers differ, their range: `88 (85 to 95)`.
pub(crate) fn spread(values: &[f64]) -> String {
    let (low, high) = range(values);
    with_range(mean(values), low, high)
}

/// `value`, with its range where the ends differ: `88 (85 to 95)`.
pub(crate) fn with_range(value: f64, low: f64, high: f64) -> String {
    let (low, high) = (number(low), number(high));
    if low == high { low } else { format!("{} ({low} to {high})", number(value)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternatives_expand_in_all_combinations() {
        assert_eq!(expand("a.(x|y).d(1|2)"), ["a.x.d1", "a.x.d2", "a.y.d1", "a.y.d2"]);
        assert_eq!(expand("plain"), ["plain"]);
    }

    #[test]
    fn numbers_print_without_noise() {
        let shown: Vec<_> = [0.0, 0.08, 9.0, 12.345, 1435.2, 0.00049].map(number).into();
        assert_eq!(shown, ["0", "0.08", "9", "12.3", "1435", "0"]);
    }

    #[test]
    fn a_spread_shows_the_range_only_when_there_is_one() {
        assert_eq!(spread(&[3.0, 3.0]), "3");
        assert_eq!(spread(&[1.0, 2.0, 6.0]), "3 (1 to 6)");
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_both_middle_ones() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&[9.0, 1.0, 3.0]), 3.0);
    }
}
