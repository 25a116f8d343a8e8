//! A two-level bit set in which the next member from any position on is found in a few steps.
//!
//! The second level has one bit per member; a bit of the first level says that a word of the second is not
//! empty. It is the shape of Xen's event-channel pending array, whose 64 x 64 bits need one first-level word.

use alloc::vec::Vec;

/// A set of numbers below its capacity.
#[derive(Clone, Debug, Default)]
pub struct Bitmap {
    first: Vec<u64>,
    second: Vec<u64>,
}

impl Bitmap {
    /// An empty set for numbers below `capacity`.
    pub fn new(capacity: usize) -> Self {
        let mut set = Bitmap::default();
        set.grow(capacity);
        set
    }

    /// Makes room for numbers below `capacity`; never shrinks.
    pub fn grow(&mut self, capacity: usize) {
        let words = capacity.div_ceil(64).max(self.second.len());
        self.second.resize(words, 0);
        self.first.resize(words.div_ceil(64), 0);
    }

    /// Empties the set.
    pub fn clear(&mut self) {
        self.first.fill(0);
        self.second.fill(0);
    }

    /// Adds `member`; was it absent?
    ///
    /// # Panics
    /// When it is beyond the capacity.
    #[inline]
    pub fn insert(&mut self, member: usize) -> bool {
        let word = member / 64;
        let bit = 1 << (member % 64);
        let absent = self.second[word] & bit == 0;
        self.second[word] |= bit;
        self.first[word / 64] |= 1 << (word % 64);
        absent
    }

    /// Removes `member` if present.
    #[inline]
    pub fn remove(&mut self, member: usize) {
        let word = member / 64;
        if let Some(bits) = self.second.get_mut(word) {
            *bits &= !(1 << (member % 64));
            if *bits == 0 {
                self.first[word / 64] &= !(1 << (word % 64));
            }
        }
    }

    /// Is `member` in the set?
    #[inline]
    pub fn contains(&self, member: usize) -> bool {
        self.second.get(member / 64).is_some_and(|word| word >> (member % 64) & 1 == 1)
    }

    /// The smallest member.
    #[inline]
    pub fn first(&self) -> Option<usize> {
        self.first_from(0)
    }

    /// The smallest member that is not below `start`.
    #[inline]
    pub fn first_from(&self, start: usize) -> Option<usize> {
        let word = start / 64;
        let bits = self.second.get(word)? & (u64::MAX << (start % 64));
        if bits != 0 {
            return Some(word * 64 + bits.trailing_zeros() as usize);
        }
        let word = first_bit(&self.first, word + 1)?;
        Some(word * 64 + self.second[word].trailing_zeros() as usize)
    }

    /// The smallest member of the 64 that share second-level word `word`.
    #[inline]
    pub fn first_in_word(&self, word: usize) -> Option<usize> {
        match self.second.get(word) {
            None | Some(0) => None,
            Some(bits) => Some(word * 64 + bits.trailing_zeros() as usize),
        }
    }

    /// The first level: bit `n` of the whole says that second-level word `n` is not empty.
    #[inline]
    pub fn first_level(&self) -> &[u64] {
        &self.first
    }
}

/// A set of numbers of which those below 64 are at hand: most hosts have no more guests and priorities.
#[derive(Clone, Debug, Default)]
pub(crate) struct Set {
    near: u64,
    /// The others, less 64.
    far: Bitmap,
}

impl Set {
    /// Makes room for numbers below `capacity`; never shrinks.
    pub(crate) fn grow(&mut self, capacity: usize) {
        self.far.grow(capacity.saturating_sub(64));
    }

    pub(crate) fn clear(&mut self) {
        self.near = 0;
        self.far.clear();
    }

    #[inline]
    pub(crate) fn insert(&mut self, member: usize) {
        match member.checked_sub(64) {
            None => self.near |= 1 << member,
            Some(member) => drop(self.far.insert(member)),
        }
    }

    /// Removes `member` if present.
    #[inline]
    pub(crate) fn remove(&mut self, member: usize) {
        match member.checked_sub(64) {
            None => self.near &= !(1 << member),
            Some(member) => self.far.remove(member),
        }
    }

    /// The smallest member.
    #[inline]
    pub(crate) fn first(&self) -> Option<usize> {
        self.first_from(0)
    }

    /// The smallest member that is not below `start`.
    #[inline]
    pub(crate) fn first_from(&self, start: usize) -> Option<usize> {
        let near = if start < 64 { self.near & u64::MAX << start } else { 0 };
        if near != 0 {
            return Some(near.trailing_zeros() as usize);
        }
        self.far.first_from(start.saturating_sub(64)).map(|member| member + 64)
    }
}

/// The first set bit of `words` that is not below `start`.
#[inline]
fn first_bit(words: &[u64], start: usize) -> Option<usize> {
    let mut mask = u64::MAX << (start % 64);
    for (at, bits) in words.iter().enumerate().skip(start / 64) {
        let bits = bits & core::mem::replace(&mut mask, u64::MAX);
        if bits != 0 {
            return Some(at * 64 + bits.trailing_zeros() as usize);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_sorted_set(
            capacity in prop_oneof![1usize..65, 65usize..4097, 4097usize..9000],
            steps in proptest::collection::vec((any::<usize>(), any::<bool>(), any::<usize>()), 0..200),
        ) {
            let mut set = Bitmap::new(capacity);
            let mut near = Set::default();
            near.grow(capacity);
            let mut model = BTreeSet::new();
            for (member, insert, start) in steps {
                let (member, start) = (member % capacity, start % (capacity + 70));
                if insert {
                    prop_assert_eq!(set.insert(member), model.insert(member));
                    near.insert(member);
                } else {
                    set.remove(member);
                    near.remove(member);
                    model.remove(&member);
                }
                prop_assert_eq!(set.contains(member), model.contains(&member));
                prop_assert_eq!(set.first(), model.first().copied());
                prop_assert_eq!(set.first_from(start), model.range(start..).next().copied());
                prop_assert_eq!(near.first(), set.first());
                prop_assert_eq!(near.first_from(start), set.first_from(start));
                let word = start / 64;
                prop_assert_eq!(
                    set.first_in_word(word),
                    model.range(word * 64..(word + 1) * 64).next().copied()
                );
            }
        }
    }
}
