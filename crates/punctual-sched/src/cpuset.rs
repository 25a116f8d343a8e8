//! A set of processors of one pool, as a bit set sized once and reused: no allocation per decision.
//!
//! Not a crate: up to 64 processors need no memory of their own here, and a policy has no dependencies.

use alloc::boxed::Box;

/// A processor of the pool that one policy instance schedules: `0..cpus`, not the machine's numbering.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CpuId(pub u32);

impl CpuId {
    /// As an array index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A set of processors. Its capacity is fixed at construction; up to 64 processors need no memory of their
/// own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct CpuSet {
    /// Processors 0 to 63.
    low: u64,
    /// The others, 64 a word.
    high: Box<[u64]>,
}

impl CpuSet {
    /// An empty set that can hold processors `0..cpus`.
    pub fn new(cpus: usize) -> Self {
        CpuSet { low: 0, high: alloc::vec![0; cpus.div_ceil(64).saturating_sub(1)].into() }
    }

    /// The set of all processors `0..cpus`.
    pub fn all(cpus: usize) -> Self {
        let mut set = CpuSet::new(cpus);
        for cpu in 0..cpus {
            set.insert(CpuId(cpu as u32));
        }
        set
    }

    #[inline]
    fn word(&self, i: usize) -> u64 {
        if i == 0 { self.low } else { self.high.get(i - 1).copied().unwrap_or(0) }
    }

    fn word_count(&self) -> usize {
        1 + self.high.len()
    }

    /// Adds `cpu`.
    ///
    /// # Panics
    /// When `cpu` is beyond the capacity given at construction, rounded up to a multiple of 64.
    #[inline]
    pub fn insert(&mut self, cpu: CpuId) {
        let word = match cpu.index() / 64 {
            0 => &mut self.low,
            i => &mut self.high[i - 1],
        };
        *word |= 1 << (cpu.index() % 64);
    }

    /// Removes `cpu` if present.
    #[inline]
    pub fn remove(&mut self, cpu: CpuId) {
        let word = match cpu.index() / 64 {
            0 => Some(&mut self.low),
            i => self.high.get_mut(i - 1),
        };
        if let Some(word) = word {
            *word &= !(1 << (cpu.index() % 64));
        }
    }

    /// Removes all processors but `cpu`.
    pub fn keep_only(&mut self, cpu: CpuId) {
        self.clear();
        self.insert(cpu);
    }

    /// Is `cpu` in the set?
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.word(cpu.index() / 64) >> (cpu.index() % 64) & 1 == 1
    }

    /// Is the set empty?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.low == 0 && self.high.iter().all(|&word| word == 0)
    }

    /// How many processors are in the set.
    pub fn len(&self) -> usize {
        (0..self.word_count()).map(|i| self.word(i).count_ones() as usize).sum()
    }

    /// Removes all processors.
    #[inline]
    pub fn clear(&mut self) {
        self.low = 0;
        // An empty fill still calls memset, which may take longer than a decision.
        if !self.high.is_empty() {
            self.high.fill(0);
        }
    }

    /// Removes and returns the lowest processor.
    #[inline]
    pub fn pop(&mut self) -> Option<CpuId> {
        let low = self.low;
        if low != 0 {
            self.low = low & (low - 1);
            return Some(CpuId(low.trailing_zeros()));
        }
        let (i, word) = self.high.iter_mut().enumerate().find(|(_, word)| **word != 0)?;
        let bit = word.trailing_zeros();
        *word &= *word - 1;
        Some(CpuId((i as u32 + 1) * 64 + bit))
    }

    /// The first processor in both sets, searched upwards from `start` and then from 0.
    #[inline]
    pub fn first_common(&self, other: &CpuSet, start: CpuId) -> Option<CpuId> {
        if self.high.is_empty() || other.high.is_empty() {
            // Rotated, the search goes upwards only.
            let from = if start.0 < 64 { start.0 } else { 0 };
            let common = (self.low & other.low).rotate_right(from);
            return (common != 0).then(|| CpuId((common.trailing_zeros() + from) % 64));
        }
        self.first_common_of_many(other, start)
    }

    #[inline(never)]
    fn first_common_of_many(&self, other: &CpuSet, start: CpuId) -> Option<CpuId> {
        let common = |i: usize| self.word(i) & other.word(i);
        let words = self.word_count().min(other.word_count());
        let (first, bit) = (start.index() / 64, start.index() % 64);
        let found = |i: usize, word: u64| (word != 0).then(|| CpuId(i as u32 * 64 + word.trailing_zeros()));
        let above = (first < words).then(|| found(first, common(first) >> bit << bit)).flatten();
        let after = || (first + 1..words).find_map(|i| found(i, common(i)));
        let around = || (0..words.min(first + 1)).find_map(|i| found(i, common(i)));
        above.or_else(after).or_else(around)
    }

    /// The processors in ascending order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        let (mut first, mut rest, mut words) = (0, self.low, self.high.iter());
        core::iter::from_fn(move || {
            while rest == 0 {
                rest = *words.next()?;
                first += 64;
            }
            let bit = rest.trailing_zeros();
            rest &= rest - 1;
            Some(CpuId(first + bit))
        })
    }

    /// Moves the set into words of 64 processors, as many as there are; the set is empty then. Words beyond
    /// the set's capacity are left as they are.
    #[inline(always)]
    pub fn take_words<const N: usize>(&mut self, words: &mut [u64; N]) {
        if let Some(word) = words.first_mut() {
            *word = core::mem::take(&mut self.low);
        }
        if !self.high.is_empty() {
            self.take_high_words(words);
        }
    }

    #[inline(never)]
    fn take_high_words(&mut self, words: &mut [u64]) {
        for (word, high) in words.iter_mut().skip(1).zip(&mut self.high) {
            *word = core::mem::take(high);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn first_common_goes_round_from_the_start() {
        let set = |cpus: &[u32]| {
            let mut set = CpuSet::new(200);
            cpus.iter().for_each(|&cpu| set.insert(CpuId(cpu)));
            set
        };
        let common = set(&[3, 70, 71, 190]);
        let other = set(&[3, 4, 70, 72, 190]);
        let from = |start| common.first_common(&other, CpuId(start)).map(|cpu| cpu.0);
        assert_eq!([0, 3, 4, 70, 71, 190, 191].map(from), [3, 3, 70, 70, 190, 190, 3].map(Some));
        assert_eq!(common.first_common(&set(&[4]), CpuId(0)), None);
    }

    #[test]
    fn iterates_and_pops_in_ascending_order_across_words() {
        let mut set = CpuSet::new(130);
        for cpu in [129, 0, 64, 63] {
            set.insert(CpuId(cpu));
        }
        assert_eq!(set.iter().map(|c| c.0).collect::<Vec<_>>(), [0, 63, 64, 129]);
        assert_eq!(set.len(), 4);
        assert_eq!(set.pop(), Some(CpuId(0)));
        assert_eq!(set.pop(), Some(CpuId(63)));
        set.remove(CpuId(64));
        assert_eq!(set.pop(), Some(CpuId(129)));
        assert!(set.is_empty() && set.pop().is_none());
    }
}
