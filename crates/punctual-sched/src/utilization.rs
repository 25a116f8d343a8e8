//! Sums of utilizations, compared exactly.

use core::cmp::Ordering;
use core::ops::{AddAssign, SubAssign};

use crate::time::Duration;

/// A sum of shares of processors.
///
/// Fractions are added over a common denominator while that fits 128 bits. Beyond that each is rounded up to
/// a multiple of 2^-62, so the sum is never too small, and too great by at most 2^-62 per share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Utilization {
    /// Numerator and denominator in lowest terms.
    part: u128,
    whole: u128,
}

/// Denominator of fractions that had to be rounded.
const ROUNDED_BITS: u32 = 62;

/// The same as a number.
const ROUNDED: u128 = 1 << ROUNDED_BITS;

/// Denominators stay below this, so that twice a numerator below one still fits.
const WHOLE_MAX: u128 = 1 << 120;

impl Utilization {
    /// Nothing.
    pub const NONE: Utilization = Utilization { part: 0, whole: 1 };

    /// `cost / period`; the period is above zero.
    pub fn share(cost: Duration, period: Duration) -> Self {
        Utilization::reduced(cost.as_ns().into(), period.as_ns().into())
    }

    /// The sum of `cost / period`; periods above zero.
    pub fn of(shares: impl IntoIterator<Item = (Duration, Duration)>) -> Self {
        let mut sum = Utilization::NONE;
        shares.into_iter().for_each(|(cost, period)| sum += Utilization::share(cost, period));
        sum
    }

    /// Is it no more than so many whole processors?
    pub fn fits(self, processors: usize) -> bool {
        self <= Utilization { part: processors as u128, whole: 1 }
    }

    /// Is it no more than `budget / period`?
    pub fn at_most(self, budget: Duration, period: Duration) -> bool {
        self <= Utilization::share(budget, period)
    }

    /// In parts per million, rounded up.
    pub fn ppm(self) -> u64 {
        let scaled = self.part.checked_mul(1_000_000).map(|scaled| scaled.div_ceil(self.whole));
        // A part too great for that is many processors, or a share of 2^-62 more or less.
        let ppm = scaled.unwrap_or_else(|| (self.rounded_up() * 1_000_000) >> ROUNDED_BITS);
        u64::try_from(ppm).unwrap_or(u64::MAX)
    }

    fn reduced(part: u128, whole: u128) -> Self {
        let divisor = gcd(part, whole).max(1);
        Utilization { part: part / divisor, whole: whole / divisor }
    }

    /// Both over their common denominator, if that fits.
    fn over_common(self, other: Self) -> Option<(u128, u128, u128)> {
        let common = self.whole.checked_mul(other.whole / gcd(self.whole, other.whole))?;
        let over = |share: Utilization| share.part.checked_mul(common / share.whole);
        (common < WHOLE_MAX).then_some(())?;
        Some((over(self)?, over(other)?, common))
    }

    /// In multiples of 2^-62, by long division in base two.
    fn rounded_up(self) -> u128 {
        let (mut quotient, mut rest) = (self.part / self.whole, self.part % self.whole);
        for _ in 0..ROUNDED_BITS {
            rest *= 2;
            quotient = quotient.saturating_mul(2).saturating_add(rest / self.whole);
            rest %= self.whole;
        }
        quotient.saturating_add(u128::from(rest > 0))
    }
}

impl Default for Utilization {
    fn default() -> Self {
        Utilization::NONE
    }
}

impl AddAssign for Utilization {
    fn add_assign(&mut self, other: Self) {
        let exact = self.over_common(other).and_then(|(a, b, common)| Some((a.checked_add(b)?, common)));
        *self = match exact {
            Some((sum, common)) => Utilization::reduced(sum, common),
            None => {
                let sum = self.rounded_up().saturating_add(other.rounded_up());
                Utilization::reduced(sum, ROUNDED)
            }
        };
    }
}

impl SubAssign for Utilization {
    /// Not below nothing.
    fn sub_assign(&mut self, other: Self) {
        *self = match self.over_common(other) {
            Some((a, b, common)) => Utilization::reduced(a.saturating_sub(b), common),
            None => {
                let rest = self.rounded_up().saturating_sub(other.rounded_up());
                Utilization::reduced(rest, ROUNDED)
            }
        };
    }
}

impl PartialOrd for Utilization {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Utilization {
    /// Compares by continued fractions: no product that could overflow.
    fn cmp(&self, other: &Self) -> Ordering {
        let (mut a, mut b, mut c, mut d) = (self.part, self.whole, other.part, other.whole);
        loop {
            let (left, right) = (a / b, c / d);
            if left != right {
                return left.cmp(&right);
            }
            let (rest_left, rest_right) = (a % b, c % d);
            if rest_left == 0 || rest_right == 0 {
                return rest_left.cmp(&rest_right);
            }
            // With equal whole parts a/b stands to c/d as d/rest_right to b/rest_left.
            (a, b, c, d) = (d, rest_right, b, rest_left);
        }
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(shares: impl IntoIterator<Item = (u64, u64)>) -> Utilization {
        let ns = Duration::from_ns;
        Utilization::of(shares.into_iter().map(|(cost, period)| (ns(cost), ns(period))))
    }

    #[test]
    fn thirds_and_sixths_add_up_exactly() {
        assert!(sum([(1, 3), (1, 3), (1, 6), (1, 6)]).fits(1));
        assert!(!sum([(1, 3), (1, 3), (1, 3), (1, u64::MAX)]).fits(1));
    }

    #[test]
    fn sums_whose_denominator_does_not_fit_are_rounded_up() {
        // Large primes: their product needs more than 128 bits.
        let primes = [18_446_744_073_709_551_557, 18_446_744_073_709_551_533, 18_446_744_073_709_551_521];
        let quarters = sum(primes.map(|p| (p / 4, p)));
        assert!(quarters.at_most(Duration::from_ns(3_000_000_001), Duration::from_ns(4_000_000_000)));
        assert!(!sum(primes.map(|p| (p / 3 + 1, p))).fits(1));
    }

    #[test]
    fn what_was_added_can_be_taken_off_again() {
        let share = |cost, period| Utilization::share(Duration::from_ns(cost), Duration::from_ns(period));
        let mut load = sum([(2, 11), (2, 11)]);
        assert_eq!(load, share(4, 11));
        load -= share(2, 11);
        load -= share(2, 11);
        assert_eq!(load, Utilization::NONE);
        assert_eq!([share(1, 3).ppm(), share(2, 1).ppm(), share(0, 3).ppm()], [333_334, 2_000_000, 0]);
        assert!(share(1, 3) < share(333_333_334, 1_000_000_000) && share(0, 7) == Utilization::NONE);
    }
}
