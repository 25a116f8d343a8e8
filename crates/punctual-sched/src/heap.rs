//! A binary min-heap over dense ids with update and removal by id, for run and replenishment queues.
//!
//! Equal keys are ordered by id, so give the key a sequence number where FIFO order matters. No operation
//! but [`IndexedHeap::grow`] allocates.
//!
//! Not a crate: `BinaryHeap` cannot remove an id, and queues that can hash their ids; these are dense.

use alloc::vec::Vec;

use crate::vec_growth;

const ABSENT: u32 = u32::MAX;

/// Ids `0..capacity`, each at most once, ordered by key.
#[derive(Clone, Debug, Default)]
pub struct IndexedHeap<K> {
    /// The heap: (key, id), the parent never greater than its children.
    entries: Vec<(K, u32)>,
    /// Position of each id in `entries`, or `ABSENT`.
    position: Vec<u32>,
}

impl<K: Ord + Copy> IndexedHeap<K> {
    /// An empty heap for ids below `capacity`.
    pub fn new(capacity: usize) -> Self {
        IndexedHeap { entries: Vec::with_capacity(capacity), position: alloc::vec![ABSENT; capacity] }
    }

    /// Makes room for ids below `capacity`; never shrinks.
    pub fn grow(&mut self, capacity: usize) {
        if capacity > self.position.len() {
            vec_growth::reserve(&mut self.position, capacity);
            self.position.resize(capacity, ABSENT);
            vec_growth::reserve(&mut self.entries, capacity);
        }
    }

    /// The least entry: its id and key.
    #[inline]
    pub fn peek(&self) -> Option<(usize, K)> {
        self.entries.first().map(|&(key, id)| (id as usize, key))
    }

    /// Removes and returns the least entry.
    #[inline]
    pub fn pop(&mut self) -> Option<(usize, K)> {
        let (id, key) = self.peek()?;
        self.remove(id);
        Some((id, key))
    }

    /// The key of `id`, if it is in the heap.
    #[inline]
    pub fn key(&self, id: usize) -> Option<K> {
        match self.position.get(id) {
            Some(&at) if at != ABSENT => Some(self.entries[at as usize].0),
            _ => None,
        }
    }

    /// Is `id` in the heap?
    #[inline]
    pub fn contains(&self, id: usize) -> bool {
        self.position.get(id).is_some_and(|&at| at != ABSENT)
    }

    /// Inserts `id`, or changes its key.
    ///
    /// # Panics
    /// When `id` is beyond the capacity.
    #[inline(always)]
    pub fn set(&mut self, id: usize, key: K) {
        let entry = (key, id as u32);
        let at = match self.position[id] {
            ABSENT => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
            at if self.entries[at as usize].0 < key => return self.sift_down(at as usize, entry),
            at => at as usize,
        };
        self.sift_up(at, entry);
    }

    /// Changes the key of the least entry, if there is one.
    #[inline]
    pub fn set_first(&mut self, key: K) {
        if let Some(&(_, id)) = self.entries.first() {
            self.sift_down(0, (key, id));
        }
    }

    /// Removes `id` if it is in the heap.
    #[inline(always)]
    pub fn remove(&mut self, id: usize) {
        let Some(position) = self.position.get_mut(id) else {
            return;
        };
        let at = core::mem::replace(position, ABSENT);
        if at == ABSENT {
            return;
        }
        let at = at as usize;
        if let Some(last) = self.entries.pop()
            && at < self.entries.len()
        {
            if at > 0 && Self::less(&last, &self.entries[(at - 1) / 2]) {
                self.sift_up(at, last)
            } else {
                self.sift_down(at, last)
            }
        }
    }

    /// How many ids are in the heap.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Is the heap empty?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The least entry whose id `accept`s. Visits only entries smaller than the answer and their children.
    #[inline]
    pub fn peek_where(&self, mut accept: impl FnMut(usize) -> bool) -> Option<(usize, K)> {
        match self.peek() {
            Some((id, key)) if accept(id) => Some((id, key)),
            Some(_) => self.search(0, None, &mut accept),
            None => None,
        }
    }

    fn search(
        &self,
        at: usize,
        best: Option<(usize, K)>,
        accept: &mut impl FnMut(usize) -> bool,
    ) -> Option<(usize, K)> {
        let Some(&(key, id)) = self.entries.get(at) else {
            return best;
        };
        if best.is_some_and(|(best_id, best_key)| (best_key, best_id) <= (key, id as usize)) {
            return best;
        }
        if accept(id as usize) {
            return Some((id as usize, key));
        }
        let best = self.search(2 * at + 1, best, accept);
        self.search(2 * at + 2, best, accept)
    }

    #[inline]
    fn less(a: &(K, u32), b: &(K, u32)) -> bool {
        // Branches: most keys differ.
        a.0 < b.0 || (a.0 == b.0 && a.1 < b.1)
    }

    /// Puts the entry at `at`, or above where its key is less.
    fn sift_up(&mut self, mut at: usize, entry: (K, u32)) {
        let (entries, position) = (&mut self.entries[..], &mut self.position[..]);
        while at > 0 {
            let parent = (at - 1) / 2;
            let above = entries[parent];
            if !Self::less(&entry, &above) {
                break;
            }
            entries[at] = above;
            position[above.1 as usize] = at as u32;
            at = parent;
        }
        entries[at] = entry;
        position[entry.1 as usize] = at as u32;
    }

    /// Puts the entry at `at`, or below where its key is greater.
    fn sift_down(&mut self, mut at: usize, entry: (K, u32)) {
        let (entries, position) = (&mut self.entries[..], &mut self.position[..]);
        loop {
            let mut child = 2 * at + 1;
            let Some(mut below) = entries.get(child).copied() else {
                break;
            };
            if let Some(other) = entries.get(child + 1)
                && Self::less(other, &below)
            {
                (child, below) = (child + 1, *other);
            }
            if !Self::less(&below, &entry) {
                break;
            }
            entries[at] = below;
            position[below.1 as usize] = at as u32;
            at = child;
        }
        entries[at] = entry;
        position[entry.1 as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_sorted_list_under_random_updates(
            steps in proptest::collection::vec((0usize..20, 0u64..50, any::<bool>()), 0..200)
        ) {
            let mut heap = IndexedHeap::new(20);
            let mut model: [Option<u64>; 20] = [None; 20];
            for (id, key, insert) in steps {
                if insert {
                    heap.set(id, key);
                    model[id] = Some(key);
                } else {
                    heap.remove(id);
                    model[id] = None;
                }
                let least = |even: bool| {
                    model.iter().enumerate()
                        .filter(|(id, _)| !even || id % 2 == 0)
                        .filter_map(|(id, k)| k.map(|k| (k, id))).min().map(|(k, id)| (id, k))
                };
                prop_assert_eq!(heap.peek(), least(false));
                prop_assert_eq!(heap.peek_where(|id| id % 2 == 0), least(true));
                prop_assert_eq!(heap.len(), model.iter().flatten().count());
            }
        }
    }
}
