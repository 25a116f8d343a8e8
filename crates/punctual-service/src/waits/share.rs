//! How a time is shared out among those who may have caused it, where nobody saw the order.

use std::collections::HashMap;

use super::account::{Because, Segment};

/// Splits a time in proportion to weights, exactly: the parts add up to it, unless all weights are 0. Weights
/// are times too, and add up to less than 2^64.
pub(crate) fn split(time_ns: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    if sum == 0 {
        return vec![0; weights.len()];
    }
    // Each part is the difference of two rounded sums, so nothing is lost by rounding.
    let mut before = 0u128;
    let part = |weight: &u64| {
        let from = u128::from(time_ns) * before / sum;
        before += u128::from(*weight);
        (u128::from(time_ns) * before / sum - from) as u64
    };
    weights.iter().map(part).collect()
}

/// Which segments of threads of one cgroup were due to its limit, if the kernel counts that the limit kept
/// processors from it for `limit_ns` in this time. Segments are of threads that were ready.
///
/// A processor that idles although a thread is ready for it is the sure sign. If that does not explain at
/// least half of the time, others had the processors meanwhile: then the longest segments are taken, because
/// a limit keeps a thread away for longer than a competitor does.
pub(crate) fn throttled(segments: &[&Segment], limit_ns: u64) -> Vec<bool> {
    let mut is = vec![false; segments.len()];
    let mut taken = Taken::default();
    let mut longest: Vec<usize> = (0..segments.len()).collect();
    longest.sort_by_key(|index| std::cmp::Reverse(segments[*index].length_ns()));
    let is_idle = |index: &usize| segments[*index].because == Because::Idle;
    for index in longest.iter().copied().filter(is_idle) {
        if taken.sum_ns < limit_ns {
            is[index] = true;
            taken.add(segments[index]);
        }
    }
    let waits: std::collections::HashSet<u64> =
        segments.iter().zip(&is).filter(|(_, is)| **is).map(|(segment, _)| segment.wait).collect();
    let is_sure = |index: usize| waits.contains(&segments[index].wait);
    let rest: Vec<usize> = longest.into_iter().filter(|index| !is[*index]).collect();
    for index in rest.iter().copied().filter(|index| is_sure(*index)) {
        if taken.sum_ns < limit_ns {
            is[index] = true;
            taken.add(segments[index]);
        }
    }
    if taken.sum_ns < limit_ns / 2 {
        for index in rest {
            if !is[index] && taken.sum_ns < limit_ns {
                is[index] = true;
                taken.add(segments[index]);
            }
        }
    }
    is
}

/// Spans of processors that are explained.
#[derive(Default)]
struct Taken {
    spans: HashMap<u32, Vec<(u64, u64)>>,
    /// Their length; what several threads wait through together counts once.
    sum_ns: u64,
}

impl Taken {
    fn add(&mut self, segment: &Segment) {
        let known = self.spans.entry(segment.processor).or_default();
        let mut new = vec![(segment.from_ns, segment.until_ns)];
        for (from, until) in known.iter().copied() {
            let cut = |(start, end): (u64, u64)| [(start, end.min(from)), (start.max(until), end)];
            new = new.into_iter().flat_map(cut).filter(|(start, end)| start < end).collect();
        }
        self.sum_ns += new.iter().map(|(start, end)| end - start).sum::<u64>();
        known.extend(new);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn segment(wait: u64, from_ns: u64, until_ns: u64, because: Because) -> Segment {
        Segment { thread: wait as u32, wait, processor: 0, from_ns, until_ns, because }
    }

    #[test]
    fn an_idle_processor_beside_a_ready_thread_is_the_limit_and_a_competitor_is_not() {
        let all = [
            segment(1, 0, 80, Because::Idle),
            segment(2, 100, 103, Because::Behind(9)),
            segment(3, 200, 260, Because::Idle),
            segment(3, 260, 280, Because::Behind(9)),
            segment(4, 300, 301, Because::Idle),
        ];
        let all: Vec<&Segment> = all.iter().collect();
        assert_eq!(throttled(&all, 150), [true, false, true, true, true]);
        assert_eq!(throttled(&all, 140), [true, false, true, false, false]);
        assert_eq!(throttled(&all, 0), [false; 5]);
    }

    #[test]
    fn where_others_run_meanwhile_the_longest_waits_are_the_limit() {
        let all = [segment(1, 0, 80, Because::Behind(9)), segment(2, 100, 103, Because::Behind(9))];
        let all: Vec<&Segment> = all.iter().collect();
        assert_eq!(throttled(&all, 79), [true, false]);
    }

    #[test]
    fn what_threads_wait_through_together_counts_once() {
        let all = [
            segment(1, 0, 80, Because::Idle),
            segment(2, 10, 80, Because::Idle),
            segment(3, 100, 150, Because::Idle),
        ];
        let all: Vec<&Segment> = all.iter().collect();
        assert_eq!(throttled(&all, 120), [true, true, true]);
    }

    proptest! {
        #[test]
        fn parts_add_up_to_the_whole(
            time in any::<u64>(),
            weights in prop::collection::vec(0..1u64 << 60, 0..9),
        ) {
            let parts = split(time, &weights);
            let expected = if weights.iter().all(|weight| *weight == 0) { 0 } else { u128::from(time) };
            prop_assert_eq!(parts.iter().map(|part| u128::from(*part)).sum::<u128>(), expected);
            for (part, weight) in parts.iter().zip(&weights) {
                prop_assert!(*weight > 0 || *part == 0);
            }
        }
    }
}
