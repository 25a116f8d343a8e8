//! A guest's clock as seen from ours.

use punctual_enforce::clock::now;
use punctual_vm::workload::{Client, ClientError};

/// A guest's clock that is wrong by more is reported: more than any crystal, less than what changes a figure.
pub(super) const WRONG_MAX_PPM: u64 = 1000;

/// A reading of a guest's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct GuestClock {
    /// How far it was ahead of ours.
    pub ahead_ns: i64,
    /// How wrong that may be.
    error_ns: u64,
    /// When it was read, by our clock.
    at_ns: u64,
}

impl GuestClock {
    pub(super) fn read(client: &mut Client) -> Result<GuestClock, ClientError> {
        let (ahead_ns, error_ns) = client.clock_offset_ns()?;
        Ok(GuestClock { ahead_ns, error_ns, at_ns: now().as_ns() })
    }

    /// How much faster than ours it ran from this reading until `later`, in millionths; 0 where the readings
    /// are not exact enough to say.
    pub(super) fn wrong_ppm(&self, later: &GuestClock) -> i64 {
        let gained_ns = later.ahead_ns.saturating_sub(self.ahead_ns);
        let elapsed_ns = later.at_ns.saturating_sub(self.at_ns).max(1);
        if gained_ns.unsigned_abs() <= self.error_ns.saturating_add(later.error_ns) {
            return 0;
        }
        let ppm = i128::from(gained_ns) * 1_000_000 / i128::from(elapsed_ns);
        i64::try_from(ppm).unwrap_or(if ppm > 0 { i64::MAX } else { i64::MIN })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_wrong_by_what_it_gained_unless_the_readings_are_as_wrong_themselves() {
        let clock = |ahead_ns, error_ns, at_ns| GuestClock { ahead_ns, error_ns, at_ns };
        let first = clock(-5_000, 100, 1_000_000);
        assert_eq!(first.wrong_ppm(&clock(-4_000, 100, 2_000_000)), 1000);
        assert_eq!(first.wrong_ppm(&clock(-6_000, 100, 2_000_000)), -1000);
        assert_eq!(first.wrong_ppm(&clock(-4_800, 100, 2_000_000)), 0);
        assert_eq!(first.wrong_ppm(&clock(i64::MAX, 100, 1_000_000)), i64::MAX);
    }
}
