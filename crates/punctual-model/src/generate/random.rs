//! Random numbers that are the same on every machine.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A stream of random numbers that is the same on every machine.
pub struct RandomStream(ChaCha8Rng);

impl RandomStream {
    /// The stream of `seed` for the thing called `name`: independent for different names.
    pub fn new(seed: u64, name: &str) -> Self {
        // FNV-1a spreads the name over 64 bits; ChaCha does the mixing.
        let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let name_hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, fnv);
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&name_hash.to_le_bytes());
        RandomStream(ChaCha8Rng::from_seed(key))
    }

    /// Uniform over [0, 1), in steps of 2^-53.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform over [`min`, `max`).
    pub fn uniform(&mut self, min: f64, max: f64) -> f64 {
        min + (max - min) * self.unit()
    }

    /// Uniform over the whole numbers from `min` to `max`, both included.
    ///
    /// # Panics
    /// When `max < min`.
    pub fn whole(&mut self, min: u64, max: u64) -> u64 {
        assert!(min <= max, "{min}..={max} is empty");
        let count = max.wrapping_sub(min).wrapping_add(1);
        if count == 0 {
            return self.0.next_u64();
        }
        // Values beyond the greatest multiple of `count` would favour small results: draw again.
        let beyond = (u64::MAX % count + 1) % count;
        loop {
            let drawn = self.0.next_u64();
            if drawn <= u64::MAX - beyond {
                return min + drawn % count;
            }
        }
    }

    /// Exponentially distributed with mean `mean`.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -libm::log(1.0 - self.unit()) * mean
    }

    /// Puts the values into a random order.
    pub(super) fn shuffle(&mut self, values: &mut [f64]) {
        for i in (1..values.len()).rev() {
            values.swap(i, self.whole(0, i as u64) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::statistics::stream;
    use super::*;

    #[test]
    fn streams_are_stable_across_machines_and_versions() {
        let mut s = RandomStream::new(1, "vm1");
        assert_eq!(s.0.next_u64(), 12_539_598_378_874_017_024);
        assert_eq!(s.unit().to_bits(), 4_604_931_041_550_481_996);
        assert_eq!((0..8).map(|_| s.whole(5, 10)).collect::<Vec<_>>(), [8, 10, 8, 7, 8, 10, 7, 10]);
    }

    #[test]
    fn whole_numbers_are_uniform() {
        let mut s = stream("whole");
        let mut counts = [0u32; 6];
        (0..60_000).for_each(|_| counts[(s.whole(5, 10) - 5) as usize] += 1);
        let chi_squared: f64 = counts.iter().map(|&c| (f64::from(c) - 1e4).powi(2) / 1e4).sum();
        // 5 degrees of freedom: 20.5 is exceeded with probability 0.001.
        assert!(chi_squared < 20.5, "{counts:?}");
    }
}
