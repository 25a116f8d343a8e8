//! The retransmission timeout of RFC 6298 in whole nanoseconds.

/// Before the first round trip was measured (RFC 6298, rule 2.1; Linux `TCP_TIMEOUT_INIT`).
const INITIAL_NS: u64 = 1_000_000_000;
/// The longest (Linux `TCP_RTO_MAX`; RFC 6298, rule 2.5 wants at least 60 s).
const MAX_NS: u64 = 120_000_000_000;

#[derive(Clone, Debug)]
pub(super) struct Rto {
    least_ns: u64,
    timeout_ns: u64,
    /// The smoothed round trip and its mean deviation, once one was measured.
    measured: Option<(u64, u64)>,
}

impl Rto {
    pub(super) fn new(least_ns: u64) -> Self {
        let least_ns = least_ns.min(MAX_NS);
        Rto { least_ns, timeout_ns: INITIAL_NS.max(least_ns), measured: None }
    }

    pub(super) fn timeout_ns(&self) -> u64 {
        self.timeout_ns
    }

    /// The smoothed round trip.
    pub(super) fn srtt_ns(&self) -> Option<u64> {
        self.measured.map(|(srtt_ns, _)| srtt_ns)
    }

    /// A packet that was sent once took so long to be acknowledged (rules 2.2 to 2.4).
    pub(super) fn measure(&mut self, round_trip_ns: u64) {
        let round_trip_ns = round_trip_ns.min(MAX_NS);
        let (srtt_ns, deviation_ns) = match self.measured {
            None => (round_trip_ns, round_trip_ns / 2),
            Some((srtt_ns, deviation_ns)) => {
                ((7 * srtt_ns + round_trip_ns) / 8, (3 * deviation_ns + srtt_ns.abs_diff(round_trip_ns)) / 4)
            }
        };
        self.measured = Some((srtt_ns, deviation_ns));
        self.timeout_ns = (srtt_ns + 4 * deviation_ns).clamp(self.least_ns, MAX_NS);
    }

    /// The timer expired (rule 5.5). The doubled timeout holds until a round trip is measured.
    pub(super) fn back_off(&mut self) {
        self.timeout_ns = self.timeout_ns.saturating_mul(2).min(MAX_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// R = 100 ms: SRTT 100, RTTVAR 50, RTO 300. R = 180: RTTVAR 3/4 * 50 + 1/4 * 80 = 57.5, SRTT 110, RTO
    /// 340. R = 110: RTTVAR 43.125, SRTT 110, RTO 282.5.
    #[test]
    fn the_timeout_follows_the_rfc_by_hand() {
        let mut rto = Rto::new(200 * MS);
        assert_eq!(rto.timeout_ns(), 1_000 * MS);
        for (round_trip, expected) in [(100 * MS, 300 * MS), (180 * MS, 340 * MS), (110 * MS, 282_500_000)] {
            rto.measure(round_trip);
            assert_eq!(rto.timeout_ns(), expected);
        }
    }

    #[test]
    fn the_timeout_keeps_within_its_ends_and_doubles_until_something_is_measured() {
        let mut rto = Rto::new(200 * MS);
        rto.measure(MS);
        assert_eq!(rto.timeout_ns(), 200 * MS);
        for doubled in [400, 800, 1600] {
            rto.back_off();
            assert_eq!(rto.timeout_ns(), doubled * MS);
        }
        rto.measure(MS);
        assert_eq!(rto.timeout_ns(), 200 * MS);
        for _ in 0..20 {
            rto.back_off();
        }
        assert_eq!(rto.timeout_ns(), 120_000 * MS);
        rto.measure(u64::MAX);
        assert_eq!(rto.timeout_ns(), 120_000 * MS);
    }
}
