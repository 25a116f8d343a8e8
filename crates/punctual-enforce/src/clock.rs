//! The clock of policies.

use punctual_sched::Instant;

/// Now, as policies see it: CLOCK_MONOTONIC.
pub fn now() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Instant::from_ns((time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64))
}
