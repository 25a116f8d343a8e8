//! Sets of utilizations with a given sum.

use super::random::RandomStream;

/// Sets drawn by [`uunifast_discard`] before it gives up, counted in single utilizations.
const DISCARD_DRAWS_MAX: usize = 1_000_000;

/// `n` utilizations with sum `total`, uniform over all such sets; a single one may exceed 1 when `total`
/// does.
pub fn uunifast(stream: &mut RandomStream, n: usize, total: f64) -> Vec<f64> {
    let mut rest = total;
    let mut set = Vec::with_capacity(n);
    for left in (1..n).rev() {
        let next = rest * libm::pow(stream.unit(), 1.0 / left as f64);
        set.push(rest - next);
        rest = next;
    }
    if n > 0 {
        set.push(rest);
    }
    set
}

/// As [`uunifast`], drawn again until no utilization exceeds 1. `None` when that does not happen soon, which
/// is so when `total` is near `n`: [`randfixedsum`] has no such limit.
pub(crate) fn uunifast_discard(stream: &mut RandomStream, n: usize, total: f64) -> Option<Vec<f64>> {
    (0..DISCARD_DRAWS_MAX / n.max(1))
        .map(|_| uunifast(stream, n, total))
        .find(|set| set.iter().all(|&u| u <= 1.0))
}

/// `n` utilizations in [0, 1] with sum `total`, uniform over all such sets, without discarding (Stafford's
/// algorithm: the set is a point of a simplex found by walking a table of volumes). The table has `n`²
/// numbers.
///
/// # Panics
/// When `total` is not between 0 and `n`.
pub fn randfixedsum(stream: &mut RandomStream, n: usize, total: f64) -> Vec<f64> {
    assert!((0.0..=n as f64).contains(&total), "no {n} numbers of [0, 1] add up to {total}");
    if n <= 1 {
        return vec![total; n];
    }
    let k = libm::floor(total).min((n - 1) as f64);
    let moves = simplex_moves(n, total, k);
    let mut set = Vec::with_capacity(n);
    let (mut rest, mut column, mut sum, mut product) = (total, k as usize, 0.0, 1.0);
    for i in (1..n).rev() {
        let up = stream.unit() < moves[(i - 1) * n + column];
        let step = if up { 1.0 } else { 0.0 };
        let shrink = libm::pow(stream.unit(), 1.0 / i as f64);
        sum += (1.0 - shrink) * product * rest / (i + 1) as f64;
        product *= shrink;
        set.push(sum + product * step);
        rest -= step;
        column = column.saturating_sub(usize::from(up));
    }
    set.push(sum + product * rest);
    stream.shuffle(&mut set);
    set
}

/// Row i, column j: with i + 1 dimensions left and j whole units to place, the probability of the step that
/// places one. Rows of `n`.
fn simplex_moves(n: usize, total: f64, k: f64) -> Vec<f64> {
    let below: Vec<f64> = (0..n).map(|i| total - (k - i as f64)).collect();
    let above: Vec<f64> = (0..n).map(|i| (k + (n - i) as f64) - total).collect();
    let mut volumes = vec![0.0; n + 1];
    volumes[1] = f64::MAX;
    let mut moves = vec![0.0; (n - 1) * n];
    for i in 2..=n {
        let mut next = vec![0.0; n + 1];
        for j in 0..i {
            let up = volumes[j + 1] * below[j] / i as f64;
            let down = volumes[j] * above[n - i + j] / i as f64;
            next[j + 1] = up + down;
            let volume = next[j + 1] + f64::MIN_POSITIVE;
            // Of two nearly complementary quotients, take the one that loses less to rounding.
            let move_down = above[n - i + j] > below[j];
            moves[(i - 2) * n + j] = if move_down { down / volume } else { 1.0 - up / volume };
        }
        volumes = next;
    }
    moves
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::statistics::{assert_mean, mean_of, stream};
    use super::*;

    #[test]
    fn every_task_of_uunifast_and_randfixedsum_has_the_same_mean_share() {
        let mut s = stream("shares");
        for (n, total) in [(2, 0.5), (5, 0.7), (5, 3.0), (8, 7.5), (20, 10.0)] {
            for task in 0..n {
                let expected = total / n as f64;
                let draws = mean_of(4000, || uunifast(&mut s, n, total)[task]);
                assert_mean("uunifast", expected, draws);
                let draws = mean_of(4000, || randfixedsum(&mut s, n, total)[task]);
                assert_mean("randfixedsum", expected, draws);
            }
        }
    }

    /// Uniform over a simplex, the share of one of n tasks has the variance of Beta(1, n - 1).
    #[test]
    fn uunifast_has_the_variance_of_the_uniform_simplex() {
        let mut s = stream("variance");
        let n = 5usize;
        let square = mean_of(20_000, || uunifast(&mut s, n, 1.0)[2].powi(2));
        assert_mean("square", 2.0 / (n * (n + 1)) as f64, square);
    }

    /// Where no utilization can exceed 1, and where discarding is still practical, RandFixedSum and
    /// UUniFast-Discard draw from the same distribution.
    #[test]
    fn randfixedsum_and_uunifast_discard_agree() {
        let mut s = stream("agree");
        for (n, total) in [(5, 0.8), (4, 2.0), (6, 3.5)] {
            let ours = mean_of(20_000, || randfixedsum(&mut s, n, total)[0].powi(2));
            let discard = mean_of(20_000, || uunifast_discard(&mut s, n, total).unwrap()[0].powi(2));
            let error = ours.1.hypot(discard.1);
            assert!((ours.0 - discard.0).abs() <= 4.0 * error, "{n} {total}: {ours:?} {discard:?}");
        }
    }

    #[test]
    fn uunifast_discard_gives_up_where_nearly_every_set_is_discarded() {
        assert_eq!(uunifast_discard(&mut stream("hopeless"), 20, 19.9), None);
        assert!(uunifast_discard(&mut stream("one"), 1, 1.0).is_some());
    }

    #[test]
    fn randfixedsum_stays_within_bounds_for_the_largest_sets() {
        for total in [0.0, 1.0, 500.0, 999.5, 1000.0] {
            let set = randfixedsum(&mut stream("large"), 1000, total);
            assert!((set.iter().sum::<f64>() - total).abs() < 1e-6);
            assert!(set.iter().all(|&u| (-1e-9..=1.0 + 1e-9).contains(&u)), "{total}");
        }
    }

    proptest! {
        #[test]
        fn sums_equal_the_target_and_nothing_is_negative(
            seed in any::<u64>(),
            n in 1usize..60,
            part in 0.001f64..1.0,
        ) {
            let mut s = RandomStream::new(seed, "sum");
            for (total, most) in [(part, 1.0), (part * n as f64, n as f64)] {
                let set = uunifast(&mut s, n, total);
                prop_assert!((set.iter().sum::<f64>() - total).abs() < 1e-9);
                prop_assert!(set.len() == n && set.iter().all(|&u| (0.0..=most).contains(&u)));
                let set = randfixedsum(&mut s, n, total);
                prop_assert!((set.iter().sum::<f64>() - total).abs() < 1e-9, "{set:?}");
                prop_assert_eq!(set.len(), n);
                prop_assert!(set.iter().all(|&u| (-1e-9..=1.0 + 1e-9).contains(&u)), "{set:?}");
            }
        }
    }
}
