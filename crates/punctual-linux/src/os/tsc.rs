//! The rate of the processor's time-stamp counter.

#![expect(unsafe_code, reason = "rdtsc")]

use std::sync::OnceLock;

/// How fast the time-stamp counter counts, in kHz, measured once against the monotonic clock; `None` where
/// there is no such counter.
pub fn khz() -> Option<u64> {
    static KHZ: OnceLock<Option<u64>> = OnceLock::new();
    *KHZ.get_or_init(measure)
}

#[cfg(target_arch = "x86_64")]
fn measure() -> Option<u64> {
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};

    /// Long enough that 1 us of error at either end is 20 millionths.
    const LENGTH: Duration = Duration::from_millis(100);
    /// Readings at either end; the one least disturbed counts.
    const READINGS: usize = 20;

    fn now_ns() -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    /// An instant by both clocks: ns and ticks.
    fn reading() -> (u64, u64) {
        let one = |_| {
            let before_ns = now_ns();
            // SAFETY: reads a register that every x86-64 processor has, and that Linux lets programs read
            // unless one asks it not to, which we do not.
            let ticks = unsafe { core::arch::x86_64::_rdtsc() };
            let after_ns = now_ns();
            (after_ns - before_ns, before_ns.midpoint(after_ns), ticks)
        };
        let (_, ns, ticks) = (0..READINGS).map(one).min().unwrap_or_default();
        (ns, ticks)
    }

    let (from_ns, from) = reading();
    std::thread::sleep(LENGTH);
    let (to_ns, to) = reading();
    let ticks = u128::from(to.checked_sub(from)?);
    let khz = ticks * 1_000_000 / u128::from((to_ns - from_ns).max(1));
    u64::try_from(khz).ok().filter(|&khz| khz > 0)
}

#[cfg(not(target_arch = "x86_64"))]
fn measure() -> Option<u64> {
    None
}
