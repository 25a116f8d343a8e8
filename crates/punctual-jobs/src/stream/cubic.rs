//! The window of CUBIC (RFC 9438) in whole numbers.
//!
//! Windows are in parts of a packet, [`PACKET`] of them each; times are nanoseconds. With C = 0.4 the cubic
//! function grows by `d^3 / CUBE` parts in `d` ns, so its inverse, the RFC's K, is an exact cube root.

/// Parts of a packet.
const PACKET: u64 = 1 << 20;
/// Cubic nanoseconds for a part: 10^27 / (0.4 * 2^20), which is whole.
const CUBE: u128 = 2_384_185_791_015_625_000_000;
/// Times from the cubic function's saddle count as this at most: 2^42 ns, more than an hour.
const TIME_MAX_NS: u64 = 1 << 42;

/// The greatest number whose cube is at most `n`.
fn cube_root(n: u128) -> u64 {
    let mut root = 0_u64;
    for bit in (0..43).rev() {
        let greater = root | 1 << bit;
        if u128::from(greater).checked_pow(3).is_some_and(|cube| cube <= n) {
            root = greater;
        }
    }
    root
}

#[derive(Clone, Debug)]
pub(super) struct Cubic {
    /// The congestion window beyond whole packets, in parts.
    rest: u64,
    /// W_max, the window before the last reduction, lowered by fast convergence.
    before: u64,
    /// cwnd_prior: the same, not lowered.
    prior: u64,
    /// The congestion avoidance under way.
    epoch: Option<Epoch>,
}

/// Congestion avoidance between two reductions.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    began_ns: u64,
    /// K: from the beginning to the saddle.
    saddle_ns: u64,
    /// The window at the saddle.
    origin: u64,
    /// W_est: the window that Reno would have.
    reno: u64,
}

impl Cubic {
    pub(super) fn new() -> Self {
        Cubic { rest: 0, before: 0, prior: 0, epoch: None }
    }

    /// The slow start threshold after a loss with so many packets on their way: 0.7 of them, at least 2.
    pub(super) fn threshold(on_its_way: u32) -> u32 {
        (u64::from(on_its_way) * 7 / 10).max(2) as u32
    }

    /// A loss with a congestion window of so many packets (sections 4.6 and 4.7).
    pub(super) fn lose(&mut self, window: u32) {
        let window = u64::from(window) * PACKET + self.rest;
        self.prior = window;
        // Fast convergence: a window that did not come back to where it was leaves room for others.
        self.before = if window < self.before { window * 17 / 20 } else { window };
        self.restart();
    }

    /// The timer expired (section 4.8): the next congestion avoidance begins at its saddle.
    pub(super) fn expire(&mut self, window: u32) {
        self.prior = u64::from(window) * PACKET + self.rest;
        self.before = 0;
        self.restart();
    }

    /// The congestion window is set to a whole number.
    fn restart(&mut self) {
        self.rest = 0;
        self.epoch = None;
    }

    /// So many packets were acknowledged in congestion avoidance at `now_ns`: the congestion window that was
    /// `window` packets (sections 4.2 to 4.5). `srtt_ns` is the smoothed round trip.
    pub(super) fn grow(&mut self, window: u32, acknowledged: u32, now_ns: u64, srtt_ns: u64) -> u32 {
        let size = u64::from(window) * PACKET + self.rest;
        let acknowledged = u64::from(acknowledged);
        let before = self.before;
        let epoch = self.epoch.get_or_insert_with(|| {
            let missing = before.saturating_sub(size);
            let saddle_ns = cube_root(u128::from(missing) * CUBE);
            Epoch { began_ns: now_ns, saddle_ns, origin: size + missing, reno: size }
        });
        // Alpha is 3 (1 - beta) / (1 + beta) = 9/17 until the window before the loss is reached, then 1.
        let alpha = if epoch.reno < self.prior { PACKET * 9 / 17 } else { PACKET };
        epoch.reno += mul_div(acknowledged * PACKET, alpha, size);
        let elapsed_ns = now_ns.saturating_sub(epoch.began_ns);
        let grown = if epoch.at(elapsed_ns) < epoch.reno {
            size.max(epoch.reno)
        } else {
            let target = epoch.at(elapsed_ns.saturating_add(srtt_ns)).clamp(size, size + size / 2);
            size + mul_div(acknowledged * PACKET, target - size, size)
        };
        self.rest = grown % PACKET;
        u32::try_from(grown / PACKET).unwrap_or(u32::MAX)
    }

    /// The congestion window was cut to a bound: nothing beyond whole packets is left.
    pub(super) fn cut(&mut self) {
        self.rest = 0;
    }
}

impl Epoch {
    /// W_cubic, in parts.
    fn at(&self, elapsed_ns: u64) -> u64 {
        let distance = u128::from(elapsed_ns.abs_diff(self.saddle_ns).min(TIME_MAX_NS));
        let change = u64::try_from(distance.pow(3) / CUBE).unwrap_or(u64::MAX);
        if elapsed_ns < self.saddle_ns {
            self.origin.saturating_sub(change)
        } else {
            self.origin.saturating_add(change)
        }
    }
}

fn mul_div(a: u64, b: u64, by: u64) -> u64 {
    u64::try_from(u128::from(a) * u128::from(b) / u128::from(by.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_cube_root_is_exact() {
        for root in [1_u64, 2, 3, 10, 999_999, 6_981_463_658_331] {
            let cube = u128::from(root).pow(3);
            assert_eq!([cube - 1, cube, cube + 1].map(cube_root), [root - 1, root, root]);
        }
        assert_eq!(cube_root(u128::MAX), 6_981_463_658_331);
    }

    /// W_max = 100 and beta = 0.7: K is the cube root of 30 / 0.4 s, 4.217163 s. The window is 70 at the
    /// beginning, 100 after K, and 100 + 0.4 * 1^3 a second later.
    #[test]
    fn the_cubic_function_has_the_rfcs_numbers() {
        let mut cubic = Cubic::new();
        cubic.lose(100);
        assert_eq!(Cubic::threshold(100), 70);
        assert_eq!(cubic.grow(70, 0, 0, 0), 70);
        let epoch = cubic.epoch.unwrap();
        assert_eq!(epoch.saddle_ns, 4_217_163_326);
        assert!(epoch.at(0).abs_diff(70 * PACKET) <= 1);
        assert_eq!(epoch.at(epoch.saddle_ns), 100 * PACKET);
        assert_eq!(epoch.at(epoch.saddle_ns + SECOND), 100 * PACKET + PACKET * 4 / 10);
    }

    #[test]
    fn a_window_that_did_not_come_back_converges_faster() {
        let mut cubic = Cubic::new();
        cubic.lose(100);
        cubic.lose(80);
        assert_eq!((cubic.before, cubic.prior), (68 * PACKET, 80 * PACKET));
        cubic.lose(90);
        assert_eq!(cubic.before, 90 * PACKET);
    }

    /// After a timeout K is 0 and the window of the beginning is the origin.
    #[test]
    fn after_a_timeout_the_window_grows_from_where_it_is() {
        let mut cubic = Cubic::new();
        cubic.lose(100);
        cubic.expire(60);
        cubic.grow(30, 1, SECOND, 0);
        let epoch = cubic.epoch.unwrap();
        assert_eq!((epoch.saddle_ns, epoch.origin), (0, 30 * PACKET));
    }

    /// In a network with short round trips Reno would be faster: the window follows it, by 9/17 of a packet
    /// for each window acknowledged.
    #[test]
    fn short_round_trips_grow_like_reno() {
        let mut cubic = Cubic::new();
        cubic.lose(100);
        let mut window = 70;
        for round in 0..17 {
            let acknowledged = window;
            for _ in 0..acknowledged {
                window = cubic.grow(window, 1, round * 1_000_000, 1_000_000);
            }
        }
        assert!((78..=79).contains(&window), "{window}");
    }
}
