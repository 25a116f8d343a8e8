//! Work that takes a known time: iterations of a loop, calibrated to a number in a millisecond.

use std::hint::black_box;

use crate::os;
use crate::protocol::Calibration;

/// Rough length of a calibration's sample: short, so that few samples are disturbed, but long compared with
/// reading the clock.
const SAMPLE_NS: u64 = 100_000;

/// Samples that decide whether a number of iterations is enough.
const TRIES: usize = 5;

/// Longest calibration.
pub(crate) const CALIBRATION_MAX_NS: u64 = 60_000_000_000;

/// Works for `iterations`. The time depends only on the speed of the processor: the loop uses no memory and
/// makes no system call.
///
/// An iteration is a chain of 128 dependent multiplications, so its time follows from the latency of a
/// multiplication and not from the processor's throughput. A busy neighbour on the core's other hardware
/// thread takes up to half of the throughput away; work that needs throughput, such as code that QEMU
/// translates, can take twice as long from one second to the next. The chain is long because translated code
/// moves the guest's registers through memory between two blocks.
#[inline(never)]
pub(crate) fn burn(iterations: u64) {
    let mut x: u64 = 1;
    for _ in 0..iterations {
        x = sixty_four(sixty_four(x));
    }
    black_box(x);
}

#[inline(always)]
fn sixty_four(x: u64) -> u64 {
    sixteen(sixteen(sixteen(sixteen(x))))
}

#[inline(always)]
fn sixteen(x: u64) -> u64 {
    four(four(four(four(x))))
}

/// Four multiplications: squares with an exclusive or between them, so that compilers cannot shorten the
/// chain.
#[inline(always)]
fn four(mut x: u64) -> u64 {
    x = x.wrapping_mul(x) ^ 0x9e37;
    x = x.wrapping_mul(x) ^ 0x79b9;
    x = x.wrapping_mul(x) ^ 0x7f4a;
    x.wrapping_mul(x) ^ 0x7c15
}

/// The iterations that take `ns`, at least one.
pub(crate) fn iterations_of(ns: u64, iterations_per_ms: u64) -> u64 {
    let iterations = u128::from(ns) * u128::from(iterations_per_ms) / 1_000_000;
    u64::try_from(iterations).unwrap_or(u64::MAX).max(1)
}

/// The time that `iterations` take.
pub(crate) fn ns_of(iterations: u64, iterations_per_ms: u64) -> u64 {
    let ns = u128::from(iterations) * 1_000_000 / u128::from(iterations_per_ms.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

fn time_ns(iterations: u64) -> u64 {
    let start_ns = os::now_ns();
    burn(iterations);
    os::now_ns() - start_ns
}

/// Measures for `duration_ns` (at most [`CALIBRATION_MAX_NS`]; at least 20 samples are taken).
///
/// The result is the median of many short samples, because interrupts and other programs disturb only some of
/// them. A sample without work measures the cost of reading the clock, in some guests more than 1 % of a
/// sample. The least such cost is subtracted, because disturbances only add.
pub(crate) fn calibrate(duration_ns: u64) -> Calibration {
    let end_ns = os::now_ns().saturating_add(duration_ns.min(CALIBRATION_MAX_NS));
    // The first samples take longer (page faults, caches, translation), so the fastest of a few decides.
    let mut iterations = 16;
    while (0..TRIES).map(|_| time_ns(iterations)).min() < Some(SAMPLE_NS) {
        iterations *= 2;
    }
    let mut clock_ns = u64::MAX;
    let mut samples = Vec::new();
    while samples.len() < 20 || os::now_ns() < end_ns {
        clock_ns = clock_ns.min(time_ns(0));
        samples.push(time_ns(iterations));
    }
    summary(iterations, clock_ns, &mut samples)
}

fn summary(iterations: u64, clock_ns: u64, samples_ns: &mut [u64]) -> Calibration {
    debug_assert!(!samples_ns.is_empty());
    samples_ns.sort_unstable();
    let decile = |n: usize| samples_ns[(samples_ns.len() - 1) * n / 10];
    let median_ns = decile(5).saturating_sub(clock_ns).max(1);
    Calibration {
        iterations_per_ms: (iterations.saturating_mul(1_000_000).saturating_add(median_ns / 2) / median_ns)
            .max(1),
        samples: samples_ns.len() as u64,
        spread_ppm: (decile(9) - decile(1)).saturating_mul(1_000_000) / median_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calibration_is_the_median_with_the_distance_of_the_deciles() {
        let mut samples = [100_000; 21];
        samples[..3].fill(50_000);
        samples[17..].fill(9_000_000);
        let found = summary(25_000, 0, &mut samples);
        assert_eq!(found, Calibration { iterations_per_ms: 250_000, samples: 21, spread_ppm: 89_500_000 });
    }

    #[test]
    fn reading_the_clock_is_no_work() {
        let found = summary(64, 2_300, &mut [133_372; 20]);
        // 64 iterations in 131.072 us are 488.28 in a ms.
        assert_eq!(found.iterations_per_ms, 488);
        assert_eq!(summary(64, 9, &mut [9; 20]).iterations_per_ms, 64_000_000);
    }

    #[test]
    fn iterations_of_a_millisecond_are_rounded_to_the_nearest() {
        assert_eq!(summary(64, 0, &mut [130_680; 20]).iterations_per_ms, 490);
    }

    #[test]
    fn work_converts_to_iterations_and_back_without_overflow() {
        assert_eq!(iterations_of(2_500_000, 400_001), 1_000_002);
        assert_eq!(ns_of(1_000_002, 400_001), 2_499_998);
        assert_eq!(iterations_of(1, 10), 1);
        assert_eq!(iterations_of(u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(ns_of(u64::MAX, 0), u64::MAX);
    }
}
