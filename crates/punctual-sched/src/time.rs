//! Time as a type: an [`Instant`] is a point, a [`Duration`] a length, both whole nanoseconds.
//!
//! Policies never read a clock; the driver (simulator or live enforcer) passes `now` in. The origin of
//! the time line is the driver's choice (start of a simulation, CLOCK_MONOTONIC of a host).
//! Arithmetic saturates: [`Instant::NEVER`] plus anything stays [`Instant::NEVER`], so "no deadline"
//! needs no special case.

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Div, Mul, Rem, Sub, SubAssign};

/// A point in time, in nanoseconds since the driver's origin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

/// A length of time, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(u64);

impl Instant {
    /// The origin of the driver's time line.
    pub const ZERO: Instant = Instant(0);
    /// Later than every event: "not scheduled".
    pub const NEVER: Instant = Instant(u64::MAX);

    /// The instant `ns` nanoseconds after the origin.
    #[inline]
    pub const fn from_ns(ns: u64) -> Self {
        Instant(ns)
    }

    /// Nanoseconds since the origin.
    #[inline]
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`; zero when `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }

    /// Is this an instant that never comes?
    #[inline]
    pub const fn is_never(self) -> bool {
        self.0 == u64::MAX
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Duration = Duration(0);
    /// Longer than every interval.
    pub const MAX: Duration = Duration(u64::MAX);

    /// `ns` nanoseconds.
    #[inline]
    pub const fn from_ns(ns: u64) -> Self {
        Duration(ns)
    }

    /// `us` microseconds (saturating).
    #[inline]
    pub const fn from_us(us: u64) -> Self {
        Duration(us.saturating_mul(1_000))
    }

    /// `ms` milliseconds (saturating).
    #[inline]
    pub const fn from_ms(ms: u64) -> Self {
        Duration(ms.saturating_mul(1_000_000))
    }

    /// `s` seconds (saturating).
    #[inline]
    pub const fn from_secs(s: u64) -> Self {
        Duration(s.saturating_mul(1_000_000_000))
    }

    /// Whole nanoseconds.
    #[inline]
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Is it zero?
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// `self - other`, zero when `other` is longer.
    #[inline]
    pub const fn saturating_sub(self, other: Duration) -> Duration {
        Duration(self.0.saturating_sub(other.0))
    }

    /// `self - other`; `None` when `other` is longer.
    #[inline]
    pub const fn checked_sub(self, other: Duration) -> Option<Duration> {
        match self.0.checked_sub(other.0) {
            Some(ns) => Some(Duration(ns)),
            None => None,
        }
    }

    /// How many whole times `other` fits into `self`.
    ///
    /// # Panics
    /// When `other` is zero.
    #[inline]
    pub const fn div_floor(self, other: Duration) -> u64 {
        self.0 / other.0
    }

    /// How many times `other` covers `self`: [`Duration::div_floor`], rounded up.
    ///
    /// # Panics
    /// When `other` is zero.
    #[inline]
    pub const fn div_ceil(self, other: Duration) -> u64 {
        self.0.div_ceil(other.0)
    }

    /// Is `self` a whole number of times `other`?
    #[inline]
    pub const fn is_multiple_of(self, other: Duration) -> bool {
        self.0.is_multiple_of(other.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    #[inline]
    fn add(self, d: Duration) -> Instant {
        Instant(self.0.saturating_add(d.0))
    }
}

impl AddAssign<Duration> for Instant {
    #[inline]
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Add for Duration {
    type Output = Duration;
    #[inline]
    fn add(self, other: Duration) -> Duration {
        Duration(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Duration {
    #[inline]
    fn add_assign(&mut self, other: Duration) {
        *self = *self + other;
    }
}

impl Sub for Duration {
    type Output = Duration;
    /// # Panics
    /// In debug builds when `other` is longer; saturates in release builds.
    #[inline]
    fn sub(self, other: Duration) -> Duration {
        debug_assert!(self.0 >= other.0, "negative duration: {self} - {other}");
        self.saturating_sub(other)
    }
}

impl SubAssign for Duration {
    #[inline]
    fn sub_assign(&mut self, other: Duration) {
        *self = *self - other;
    }
}

impl Mul<u64> for Duration {
    type Output = Duration;
    #[inline]
    fn mul(self, n: u64) -> Duration {
        Duration(self.0.saturating_mul(n))
    }
}

impl Div<u64> for Duration {
    type Output = Duration;
    /// Rounded down to whole nanoseconds.
    ///
    /// # Panics
    /// When `n` is zero.
    #[inline]
    fn div(self, n: u64) -> Duration {
        Duration(self.0 / n)
    }
}

impl Rem for Duration {
    type Output = Duration;
    /// What is left after [`Duration::div_floor`].
    ///
    /// # Panics
    /// When `other` is zero.
    #[inline]
    fn rem(self, other: Duration) -> Duration {
        Duration(self.0 % other.0)
    }
}

impl Sum for Duration {
    fn sum<I: Iterator<Item = Duration>>(all: I) -> Duration {
        all.fold(Duration::ZERO, Add::add)
    }
}

impl fmt::Display for Duration {
    /// The shortest exact form with its unit: `4ms`, `1500us`, `2s`, `17ns`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0;
        match ns {
            0 => f.pad("0ns"),
            _ if ns.is_multiple_of(1_000_000_000) => write!(f, "{}s", ns / 1_000_000_000),
            _ if ns.is_multiple_of(1_000_000) => write!(f, "{}ms", ns / 1_000_000),
            _ if ns.is_multiple_of(1_000) => write!(f, "{}us", ns / 1_000),
            _ => write!(f, "{ns}ns"),
        }
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_never() {
            return f.write_str("never");
        }
        write!(f, "t={}", Duration(self.0))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn never_plus_anything_is_never() {
        assert!((Instant::NEVER + Duration::from_secs(1)).is_never());
    }

    #[test]
    fn a_duration_prints_its_shortest_exact_form() {
        assert_eq!(Duration::from_us(1500).to_string(), "1500us");
        assert_eq!(Duration::from_ms(4).to_string(), "4ms");
        assert_eq!(Duration::from_ns(17).to_string(), "17ns");
        assert_eq!(Duration::ZERO.to_string(), "0ns");
    }

    #[test]
    fn a_duration_is_divided_by_durations_and_numbers() {
        let [three, ten] = [3, 10].map(Duration::from_ns);
        assert_eq!((ten.div_floor(three), ten.div_ceil(three), ten % three), (3, 4, Duration::from_ns(1)));
        assert_eq!((ten / 4, three.checked_sub(ten)), (Duration::from_ns(2), None));
        assert!(Duration::from_ns(9).is_multiple_of(three) && !ten.is_multiple_of(three));
        assert_eq!([ten, Duration::MAX].into_iter().sum::<Duration>(), Duration::MAX);
    }

    #[test]
    fn since_a_later_instant_is_zero() {
        assert_eq!(Instant::from_ns(3).since(Instant::from_ns(5)), Duration::ZERO);
    }
}
