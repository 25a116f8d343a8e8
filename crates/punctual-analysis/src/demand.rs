//! What tasks and servers ask for: request and demand bounds, and the fixed points built on them.
//!
//! All times are whole nanoseconds. Sums saturate at [`u64::MAX`], which stands for "beyond every limit".

/// A sporadic or periodic demand: a task, or a server as those below it see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Demand {
    /// Greatest processor time of a job, in ns.
    pub cost: u64,
    /// Least distance of releases, in ns; above zero.
    pub period: u64,
    /// Relative deadline, in ns.
    pub deadline: u64,
    /// How long after its arrival a job may become ready, in ns.
    pub jitter: u64,
}

impl Demand {
    /// A demand without jitter that is due at the end of its period.
    pub fn implicit(cost: u64, period: u64) -> Self {
        Demand { cost, period, deadline: period, jitter: 0 }
    }

    /// The same with another relative deadline.
    #[must_use]
    pub fn due(self, deadline: u64) -> Self {
        Demand { deadline, ..self }
    }

    /// The same with release jitter.
    #[must_use]
    pub fn late_by(self, jitter: u64) -> Self {
        Demand { jitter, ..self }
    }

    /// Request bound: the most work released in any half-open interval of length `window` (Joseph & Pandya
    /// 1986; with jitter Audsley et al. 1993).
    #[inline]
    pub fn requested(&self, window: u64) -> u64 {
        window.saturating_add(self.jitter).div_ceil(self.period).saturating_mul(self.cost)
    }

    /// Demand bound: the most work released and due in any interval of length `window` (Baruah, Mok, Rosier
    /// 1990).
    #[inline]
    pub fn due_within(&self, window: u64) -> u64 {
        match window.checked_sub(self.deadline) {
            Some(rest) => (rest / self.period + 1).saturating_mul(self.cost),
            None => 0,
        }
    }
}

/// A sum of utilisations as an exact comparison: is the sum of `part / whole` at most `limit.0 / limit.1`?
///
/// Fractions are added over a common denominator while that fits 128 bits; beyond that each is rounded up to
/// a multiple of 2^-62, so a `true` is always right and a `false` may be off by 2^-62 per term.
pub fn utilization_at_most(terms: impl Iterator<Item = (u64, u64)>, limit: (u64, u64)) -> bool {
    let mut sum = Fraction { part: 0, whole: 1 };
    for (part, whole) in terms {
        sum = sum.plus(u128::from(part), u128::from(whole));
    }
    sum.at_most(u128::from(limit.0), u128::from(limit.1))
}

/// A non-negative fraction in lowest terms.
#[derive(Clone, Copy, Debug)]
struct Fraction {
    part: u128,
    whole: u128,
}

/// Denominator of fractions that had to be rounded.
const ROUNDED_BITS: u32 = 62;

/// Denominators stay below this, so that twice a numerator below one still fits.
const WHOLE_MAX: u128 = 1 << 120;

impl Fraction {
    fn plus(self, part: u128, whole: u128) -> Fraction {
        self.exact_plus(part, whole).unwrap_or_else(|| {
            let sum = self.rounded_up().saturating_add(Fraction { part, whole }.rounded_up());
            Fraction { part: sum, whole: 1 << ROUNDED_BITS }
        })
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

    fn exact_plus(self, part: u128, whole: u128) -> Option<Fraction> {
        let common = self.whole.checked_mul(whole / gcd(self.whole, whole)).filter(|c| *c < WHOLE_MAX)?;
        let sum =
            self.part.checked_mul(common / self.whole)?.checked_add(part.checked_mul(common / whole)?)?;
        let divisor = gcd(sum, common).max(1);
        Some(Fraction { part: sum / divisor, whole: common / divisor })
    }

    /// Compares by continued fractions: no product that could overflow.
    fn at_most(self, part: u128, whole: u128) -> bool {
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

/// The least fixed point of the monotone `step` at or above `start`; `None` if it lies beyond `limit`.
pub fn fixed_point(start: u64, limit: u64, step: impl Fn(u64) -> u64) -> Option<u64> {
    let mut at = start;
    while at <= limit {
        let next = step(at);
        if next <= at {
            return Some(at);
        }
        at = next;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_demands_count_whole_jobs() {
        let task = Demand::implicit(3, 10).due(7);
        assert_eq!([1, 10, 11].map(|w| task.requested(w)), [3, 3, 6]);
        assert_eq!([6, 7, 16, 17].map(|w| task.due_within(w)), [0, 3, 3, 6]);
        assert_eq!(task.late_by(4).requested(7), 6);
    }

    #[test]
    fn thirds_and_sixths_add_up_exactly() {
        assert!(utilization_at_most([(1, 3), (1, 3), (1, 6), (1, 6)].into_iter(), (1, 1)));
        assert!(!utilization_at_most([(1, 3), (1, 3), (1, 3), (1, u64::MAX)].into_iter(), (1, 1)));
    }

    #[test]
    fn sums_whose_denominator_does_not_fit_are_rounded_up() {
        // Large primes: their product needs more than 128 bits.
        let primes = [18_446_744_073_709_551_557, 18_446_744_073_709_551_533, 18_446_744_073_709_551_521];
        assert!(utilization_at_most(primes.into_iter().map(|p| (p / 4, p)), (3_000_000_001, 4_000_000_000)));
        assert!(!utilization_at_most(primes.into_iter().map(|p| (p / 3 + 1, p)), (1, 1)));
    }
}
