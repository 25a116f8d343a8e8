//! Rate limits: so many bytes per window.
//!
//! # Rules
//! The credit scheduler of netback (Linux `drivers/net/xen-netback`, `tx_credit_exceeded` and
//! `tx_add_credit`; rtca s.II.D), except where it loses credit.
//!
//! - **State.** Credit in bytes; the start of the current window. A bucket starts full.
//! - **Consumed** by the length of each packet sent. A packet longer than the credit waits.
//! - **Comes back** at `k` x window after the start (k = 1, 2, ...): `bytes` for each window. The windows
//!   never shift, however late the driver asks. (Netback starts a window when it looks, so a late look loses
//!   time.)
//! - **Upper limit.** An idle interface saves up to `burst_bytes`. What is left because the waiting packet
//!   does not fit is carried on top of that, so an interface that always has something to send gets exactly
//!   its rate, and a packet longer than the burst goes out after enough windows. (Netback cuts such a
//!   remainder off, and lets the burst grow to the length of the waiting packet, up to 128 KiB.)
//! - **Overflow.** Credit saturates at `u64::MAX` bytes, which no sum of packets reaches.

use punctual_sched::time::{Duration, Instant};

/// A rate limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// Credited per window, in bytes; at least one.
    pub bytes: u64,
    /// The window; longer than zero.
    pub window: Duration,
    /// Credit that an idle interface saves up at most, in bytes; at least `bytes`.
    pub burst_bytes: u64,
}

impl Rate {
    /// The window of a guest's `rate` in an xl configuration that names none (`xl-network-configuration`).
    pub const WINDOW_DEFAULT: Duration = Duration::from_ms(50);

    /// `bytes` per window, of which one window's worth can be saved up.
    pub const fn new(bytes: u64, window: Duration) -> Rate {
        Rate { bytes, window, burst_bytes: bytes }
    }
}

/// A [`Rate`] at work; see the module's rules.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate: Rate,
    credit: u64,
    /// Credit that was left when a packet did not fit, and that a refill may not cut off.
    carried: u64,
    window_start: Instant,
}

impl TokenBucket {
    /// A full bucket whose first window starts at `now`.
    pub fn new(now: Instant, rate: Rate) -> Self {
        TokenBucket { rate, credit: rate.burst_bytes, carried: 0, window_start: now }
    }

    /// May a packet of `bytes` be sent at `now`?
    ///
    /// # Errors
    /// When to ask again: the start of the next window.
    #[inline]
    pub fn check(&mut self, now: Instant, bytes: u32) -> Result<(), Instant> {
        self.refill(now);
        if u64::from(bytes) <= self.credit {
            return Ok(());
        }
        self.carried = self.credit;
        Err(self.window_start + self.rate.window)
    }

    /// A packet of `bytes`, for which [`TokenBucket::check`] said yes, is sent.
    #[inline]
    pub fn consume(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_sub(u64::from(bytes));
        self.carried = 0;
    }

    /// Credit in bytes, as of the last check.
    pub fn credit(&self) -> u64 {
        self.credit
    }

    #[inline]
    fn refill(&mut self, now: Instant) {
        let elapsed = now.since(self.window_start);
        if elapsed < self.rate.window {
            return;
        }
        let windows = elapsed.div_floor(self.rate.window);
        self.window_start += self.rate.window * windows;
        let full = self.rate.burst_bytes.saturating_add(self.carried);
        let added = self.rate.bytes.saturating_mul(windows);
        self.credit = self.credit.saturating_add(added).min(full.max(self.credit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WINDOW: Duration = Duration::from_ms(50);

    fn at_ms(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_ms(ms)
    }

    #[test]
    fn a_full_bucket_pays_until_it_is_empty_and_says_when_to_ask_again() {
        let mut bucket = TokenBucket::new(at_ms(7), Rate::new(3000, WINDOW));
        for _ in 0..2 {
            assert_eq!(bucket.check(at_ms(8), 1500), Ok(()));
            bucket.consume(1500);
        }
        assert_eq!(bucket.check(at_ms(8), 1), Err(at_ms(57)));
        assert_eq!(bucket.check(at_ms(57), 1500), Ok(()));
    }

    #[test]
    fn an_idle_bucket_saves_no_more_than_its_burst() {
        let mut bucket = TokenBucket::new(at_ms(0), Rate { burst_bytes: 4000, ..Rate::new(1000, WINDOW) });
        assert_eq!(bucket.check(at_ms(50_000), 4000), Ok(()));
        assert_eq!(bucket.credit(), 4000);
    }

    #[test]
    fn a_packet_longer_than_the_burst_goes_out_after_enough_windows() {
        let mut bucket = TokenBucket::new(at_ms(0), Rate::new(1000, WINDOW));
        for window in 0..3 {
            assert_eq!(bucket.check(at_ms(50 * window), 3500), Err(at_ms(50 * (window + 1))));
        }
        assert_eq!(bucket.check(at_ms(150), 3500), Ok(()));
        bucket.consume(3500);
        assert_eq!(bucket.credit(), 500);
    }

    #[test]
    fn a_late_look_shifts_no_window() {
        let mut bucket = TokenBucket::new(at_ms(0), Rate::new(1000, WINDOW));
        bucket.consume(1000);
        assert_eq!(bucket.check(at_ms(99), 1000), Ok(()));
        bucket.consume(1000);
        assert_eq!(bucket.check(at_ms(99), 1000), Err(at_ms(100)));
    }

    proptest! {
        /// Always something to send: after `k` windows the sum sent is the burst and `k` windows' bytes,
        /// short of less than one packet, for every `k`: no drift.
        #[test]
        fn a_busy_interface_gets_exactly_its_rate_in_the_long_run(
            bytes in 1u64..20_000,
            window_ns in 1u64..100_000_000,
            lengths in proptest::collection::vec(1u32..9_000, 1..20),
        ) {
            let window = Duration::from_ns(window_ns);
            let mut bucket = TokenBucket::new(Instant::ZERO, Rate::new(bytes, window));
            let mut lengths = lengths.iter().cycle();
            let mut length = *lengths.next().expect("not empty");
            let mut sent = 0u64;
            let mut now = Instant::ZERO;
            for windows in 0..2_000u64 {
                let again = loop {
                    match bucket.check(now, length) {
                        Ok(()) => {
                            bucket.consume(length);
                            sent += u64::from(length);
                            length = *lengths.next().expect("endless");
                        }
                        Err(again) => break again,
                    }
                };
                let entitled = bytes * (windows + 1);
                prop_assert!(sent <= entitled);
                prop_assert!(entitled - sent < u64::from(length));
                prop_assert_eq!(again, Instant::ZERO + window * (windows + 1));
                now = again;
            }
        }
    }
}
