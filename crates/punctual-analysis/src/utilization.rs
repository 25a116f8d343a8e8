//! Sums of utilisations, compared exactly.

use punctual_sched::Duration;

/// A sum of shares of processors.
///
/// Fractions are added over a common denominator while that fits 128 bits. Beyond that each is rounded up to
/// a multiple of 2^-62, so the sum is never too small, and too great by at most 2^-62 per share.
#[derive(Clone, Copy, Debug)]
pub struct Utilization {
    /// Numerator and denominator in lowest terms.
    part: u128,
    whole: u128,
}

/// Denominator of fractions that had to be rounded.
const ROUNDED_BITS: u32 = 62;

/// Denominators stay below this, so that twice a numerator below one still fits.
const WHOLE_MAX: u128 = 1 << 120;

impl Utilization {
    /// The sum of `cost / period`; periods above zero.
    pub fn of(shares: impl IntoIterator<Item = (Duration, Duration)>) -> Self {
        let none = Utilization { part: 0, whole: 1 };
        shares
            .into_iter()
            .fold(none, |sum, (cost, period)| sum.plus(cost.as_ns().into(), period.as_ns().into()))
    }

    /// Is it no more than so many whole processors?
    pub fn fits(self, processors: usize) -> bool {
        self.at_most_fraction(processors as u128, 1)
    }

    /// Is it no more than `budget / period`?
    pub fn at_most(self, budget: Duration, period: Duration) -> bool {
        self.at_most_fraction(budget.as_ns().into(), period.as_ns().into())
    }

    fn plus(self, part: u128, whole: u128) -> Self {
        self.exact_plus(part, whole).unwrap_or_else(|| {
            let sum = self.rounded_up().saturating_add(Utilization { part, whole }.rounded_up());
            Utilization { part: sum, whole: 1 << ROUNDED_BITS }
        })
    }

    fn exact_plus(self, part: u128, whole: u128) -> Option<Self> {
        let common = self.whole.checked_mul(whole / gcd(self.whole, whole)).filter(|c| *c < WHOLE_MAX)?;
        let sum =
            self.part.checked_mul(common / self.whole)?.checked_add(part.checked_mul(common / whole)?)?;
        let divisor = gcd(sum, common).max(1);
        Some(Utilization { part: sum / divisor, whole: common / divisor })
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

    /// Compares by continued fractions: no product that could overflow.
    fn at_most_fraction(self, part: u128, whole: u128) -> bool {
        let (mut a, mut b, mut c, mut d) = (self.part, self.whole, part, whole);
        loop {
            let (left, right) = (a / b, c / d);
            if left != right {
                return left < right;
            }
            let (rest_left, rest_right) = (a % b, c % d);
            if rest_left == 0 || rest_right == 0 {
                return rest_left == 0;
            }
            // a/b <= c/d with equal whole parts iff d/rest_right <= b/rest_left.
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
}
