//! A set of ranks whose first member is found in a few steps: a tree of 64-way words.
//!
//! The bottom level has one bit per rank; a bit of a higher level says whether the word below it is not
//! empty. 64 ranks need one word, 4,096 two levels, 262,144 three.
//!
//! Not a crate: most bit sets scan for their first member, and room must be made ahead of decisions.

use alloc::vec::Vec;

use crate::vec_growth;

/// A set of ranks `0..capacity`; the smallest is the most urgent.
#[derive(Clone, Debug, Default)]
pub(crate) struct RankSet {
    /// All levels, bottom first.
    words: Vec<u64>,
    /// Where each level starts in `words`, bottom first; the last level has one word.
    levels: Vec<usize>,
}

impl RankSet {
    /// An empty set for ranks below `capacity`.
    pub(crate) fn new(capacity: usize) -> Self {
        let mut set = RankSet::default();
        set.reset(capacity);
        set
    }

    /// Makes sure that [`RankSet::reset`] up to `capacity` does not allocate.
    pub(crate) fn reserve(&mut self, capacity: usize) {
        let levels = widths(capacity).count();
        let words: usize = widths(capacity).sum();
        vec_growth::reserve(&mut self.levels, levels);
        vec_growth::reserve(&mut self.words, words);
    }

    /// Empties the set and lays it out for ranks below `capacity`.
    pub(crate) fn reset(&mut self, capacity: usize) {
        self.levels.clear();
        self.words.clear();
        for width in widths(capacity) {
            self.levels.push(self.words.len());
            self.words.resize(self.words.len() + width, 0);
        }
    }

    /// Adds `rank`.
    ///
    /// # Panics
    /// When `rank` is beyond the capacity.
    #[inline]
    pub(crate) fn insert(&mut self, rank: usize) {
        let mut at = rank;
        for &start in &self.levels {
            let word = &mut self.words[start + at / 64];
            let was_empty = *word == 0;
            *word |= 1 << (at % 64);
            if !was_empty {
                return;
            }
            at /= 64;
        }
    }

    /// Removes `rank` if present.
    ///
    /// # Panics
    /// When `rank` is beyond the capacity.
    #[inline]
    pub(crate) fn remove(&mut self, rank: usize) {
        let mut at = rank;
        for &start in &self.levels {
            let word = &mut self.words[start + at / 64];
            *word &= !(1 << (at % 64));
            if *word != 0 {
                return;
            }
            at /= 64;
        }
    }

    /// Adds or removes `rank`.
    #[inline]
    pub(crate) fn assign(&mut self, rank: usize, member: bool) {
        if member {
            self.insert(rank);
        } else {
            self.remove(rank);
        }
    }

    /// The smallest rank.
    #[inline]
    pub(crate) fn first(&self) -> Option<usize> {
        let mut at = 0;
        for &start in self.levels.iter().rev() {
            let word = self.words[start + at];
            if word == 0 {
                return None;
            }
            at = at * 64 + word.trailing_zeros() as usize;
        }
        Some(at)
    }
}

/// Words of each level, bottom first, the last being one.
fn widths(capacity: usize) -> impl Iterator<Item = usize> {
    let bottom = capacity.div_ceil(64).max(1);
    core::iter::successors(Some(bottom), |&width| (width > 1).then(|| width.div_ceil(64)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    #[test]
    fn an_empty_set_has_no_first_whatever_its_capacity() {
        for capacity in [0, 1, 64, 65, 4096, 4097] {
            assert_eq!(RankSet::new(capacity).first(), None);
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_set_at_one_two_and_three_levels(
            capacity in prop_oneof![1usize..65, 65usize..4097, 4097usize..9000],
            steps in proptest::collection::vec((any::<usize>(), any::<bool>()), 0..200),
        ) {
            let mut set = RankSet::new(capacity);
            let mut model = BTreeSet::new();
            for (rank, member) in steps {
                let rank = rank % capacity;
                set.assign(rank, member);
                if member { model.insert(rank); } else { model.remove(&rank); }
                prop_assert_eq!(set.first(), model.first().copied());
            }
            set.reset(capacity / 2);
            prop_assert_eq!(set.first(), None);
        }
    }
}
