//! The last-level cache: what others' copies evict of what a step uses.

use punctual_host_stack::Lines;
use punctual_sched::Duration;

use crate::machine::{Machine, Use};
use crate::watch::Watch;

impl<W: Watch> Machine<'_, W> {
    /// Counts a copy for the instance.
    pub(crate) fn copies(&mut self, instance: usize, bytes: u32) {
        self.copied += u64::from(bytes);
        self.instances[instance].copied += u64::from(bytes);
    }

    /// What each step uses of the cache.
    pub(crate) fn lines(&self) -> Lines {
        self.stack.cache.map_or(Lines::default(), |cache| cache.lines)
    }

    /// Reading again what others' copies have evicted of the `lines` that a step uses, in ns.
    pub(crate) fn refill(&mut self, instance: usize, part: Use, lines: u32) -> u64 {
        let Some(cache) = self.stack.cache else { return 0 };
        let others = self.copied - self.instances[instance].copied;
        let mark = &mut self.marks[instance * Use::COUNT + part as usize];
        let before = std::mem::replace(mark, others);
        let full = Duration::from_ns(u64::from(lines) * cache.miss.as_ns());
        let kept = kept(others.saturating_sub(before), u64::from(cache.size_kib) * 1024);
        let refill = full.as_ns() - ((u128::from(full.as_ns()) * u128::from(kept)) >> 32) as u64;
        self.varied(Duration::from_ns(refill))
    }
}

/// The share of lines, of 2^32, that a cache of `size` bytes keeps while others bring `bytes`, each line of
/// which replaces any line with equal chance: `exp(-bytes / size)`.
fn kept(bytes: u64, size: u64) -> u64 {
    /// `exp(-1/1024)` of 2^32.
    const LEAST: u64 = 4290775039;
    // After 16 sizes nothing is left.
    let steps = (u128::from(bytes) * 1024 / u128::from(size)).min(1 << 14) as u64;
    let (mut share, mut factor) = (1 << 32, LEAST);
    for bit in 0..15 {
        if (steps >> bit) & 1 == 1 {
            share = (share * factor) >> 32;
        }
        factor = (factor * factor) >> 32;
    }
    share
}

#[cfg(test)]
mod tests {
    use super::kept;

    #[test]
    fn a_cache_keeps_less_the_more_others_bring() {
        let size = 8 << 20;
        let percent = |bytes: u64| (kept(bytes, size) * 10_000) >> 32;
        // exp(-0), exp(-1/2), exp(-1), exp(-4), in hundredths of a percent.
        assert_eq!([0, size / 2, size, 4 * size].map(percent), [10_000, 6_065, 3_678, 183]);
        assert!(kept(u64::MAX, 1) < 1_000);
    }
}
