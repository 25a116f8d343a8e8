//! A policy's units by their ids; the id of a removed unit is given out again, the latest first.
//!
//! Not the `slab` crate: it checks at each access whether the slot is occupied, and accesses are what
//! decisions consist of. A driver never names a unit that it removed.

use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

use crate::decision::UnitId;
use crate::vec_growth;

/// The state of each unit, at the index that is its id. The slot of a removed unit keeps its last state.
#[derive(Clone, Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<T>,
    free: Vec<UnitId>,
}

impl<T> Slots<T> {
    /// No unit.
    pub(crate) fn new() -> Self {
        Slots { slots: Vec::new(), free: Vec::new() }
    }

    /// Puts a unit into a free slot, or a new one.
    pub(crate) fn insert(&mut self, unit: T) -> UnitId {
        if let Some(id) = self.free.pop() {
            self.slots[id.index()] = unit;
            return id;
        }
        vec_growth::push(&mut self.slots, unit);
        // Removing a unit allocates nothing.
        vec_growth::reserve(&mut self.free, self.slots.len());
        UnitId(self.slots.len() as u32 - 1)
    }

    /// Frees the slot of a unit, once.
    pub(crate) fn remove(&mut self, id: UnitId) {
        debug_assert!(id.index() < self.slots.len(), "{id:?} was given out");
        debug_assert!(!self.free.contains(&id), "{id:?} is removed once");
        self.free.push(id);
    }
}

impl<T> Deref for Slots<T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        &self.slots
    }
}

impl<T> DerefMut for Slots<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_freed_id_is_given_out_first() {
        let mut slots = Slots::new();
        assert_eq!(['a', 'b', 'c'].map(|unit| slots.insert(unit).0), [0, 1, 2]);
        slots.remove(UnitId(0));
        slots.remove(UnitId(2));
        assert_eq!(['d', 'e', 'f'].map(|unit| slots.insert(unit).0), [2, 0, 3]);
        assert_eq!(&slots[..], ['e', 'b', 'd', 'f']);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic = "is removed once"]
    fn a_unit_is_removed_once() {
        let mut slots = Slots::new();
        let unit = slots.insert('a');
        slots.remove(unit);
        slots.remove(unit);
    }
}
