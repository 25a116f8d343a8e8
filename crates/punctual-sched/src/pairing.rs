//! A family of pairing heaps over the same dense ids: each id is in at most one of them.
//!
//! Run queues per processor or per affinity need many queues over one set of units. The links live in one
//! table of nodes, so memory is linear in the ids whatever the number of heaps, and an id moves from one heap
//! to another without allocation. Equal keys are ordered by id, so give the key a sequence number where FIFO
//! order matters. Amortised cost: constant for insertion, logarithmic for removal (Fredman, Sedgewick,
//! Sleator and Tarjan, *The Pairing Heap*, Algorithmica 1986).
//!
//! Not a crate: heaps own their elements elsewhere; here an id moves between heaps without allocation.

use alloc::vec::Vec;

const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Node<K> {
    key: K,
    /// Heap that the id is in, or `NONE`.
    heap: u32,
    /// First child.
    child: u32,
    /// Next sibling.
    next: u32,
    /// Previous sibling, or the parent of a first child.
    prev: u32,
}

/// Min-heaps `0..heaps` over ids `0..capacity`.
#[derive(Clone, Debug)]
pub struct PairingHeaps<K> {
    nodes: Vec<Node<K>>,
    roots: Vec<u32>,
}

impl<K: Ord + Copy + Default> PairingHeaps<K> {
    /// `heaps` empty heaps with room for no id yet.
    pub fn new(heaps: usize) -> Self {
        PairingHeaps { nodes: Vec::new(), roots: alloc::vec![NONE; heaps] }
    }

    /// Makes room for ids below `capacity`; never shrinks.
    pub fn grow(&mut self, capacity: usize) {
        if capacity > self.nodes.len() {
            let vacant = Node { key: K::default(), heap: NONE, child: NONE, next: NONE, prev: NONE };
            self.nodes.resize(capacity, vacant);
        }
    }

    /// Makes room for heaps below `heaps`; never shrinks.
    pub fn grow_heaps(&mut self, heaps: usize) {
        if heaps > self.roots.len() {
            self.roots.resize(heaps, NONE);
        }
    }

    /// The least id of `heap` and its key.
    #[inline]
    pub fn peek(&self, heap: usize) -> Option<(usize, K)> {
        match self.roots[heap] {
            NONE => None,
            root => Some((root as usize, self.nodes[root as usize].key)),
        }
    }

    /// Is `id` in any heap?
    #[inline]
    pub fn contains(&self, id: usize) -> bool {
        self.nodes[id].heap != NONE
    }

    /// Puts `id` into `heap` with this key, wherever it was before.
    ///
    /// # Panics
    /// When `id` or `heap` is beyond what was made room for.
    #[inline(always)]
    pub fn set(&mut self, heap: usize, id: usize, key: K) {
        if self.contains(id) {
            self.remove(id);
        }
        self.nodes[id] = Node { key, heap: heap as u32, child: NONE, next: NONE, prev: NONE };
        let root = self.roots[heap];
        self.roots[heap] = if root == NONE { id as u32 } else { self.join(root, id as u32) };
    }

    /// Removes `id` from the heap that it is in, if any.
    #[inline(always)]
    pub fn remove(&mut self, id: usize) {
        let Node { ref mut heap, child, next, prev, .. } = self.nodes[id];
        let heap = core::mem::replace(heap, NONE) as usize;
        if heap == NONE as usize {
            return;
        }
        let orphans = if child == NONE { NONE } else { self.meld_siblings(child) };
        if self.roots[heap] == id as u32 {
            self.roots[heap] = orphans;
        } else {
            self.unlink(id as u32, prev, next);
            self.roots[heap] = self.meld(self.roots[heap], orphans);
        }
    }

    fn unlink(&mut self, id: u32, prev: u32, next: u32) {
        let before = &mut self.nodes[prev as usize];
        if before.child == id {
            before.child = next;
        } else {
            before.next = next;
        }
        if next != NONE {
            self.nodes[next as usize].prev = prev;
        }
    }

    /// Joins two trees, or what there is of them.
    #[inline]
    fn meld(&mut self, a: u32, b: u32) -> u32 {
        match (a, b) {
            (NONE, tree) | (tree, NONE) => tree,
            _ => self.join(a, b),
        }
    }

    /// Joins two trees; the root with the greater key becomes the first child of the other.
    fn join(&mut self, a: u32, b: u32) -> u32 {
        let (at_a, at_b) = (self.nodes[a as usize].key, self.nodes[b as usize].key);
        // Branches: most keys differ.
        let less = at_a < at_b || (at_a == at_b && a < b);
        let (top, below) = if less { (a, b) } else { (b, a) };
        let first = self.nodes[top as usize].child;
        if first != NONE {
            self.nodes[first as usize].prev = below;
        }
        let node = &mut self.nodes[below as usize];
        (node.next, node.prev) = (first, top);
        let node = &mut self.nodes[top as usize];
        (node.child, node.next, node.prev) = (below, NONE, NONE);
        top
    }

    /// Joins a list of siblings: in pairs from left to right, then the pairs from right to left.
    fn meld_siblings(&mut self, first: u32) -> u32 {
        let mut pairs = NONE;
        let mut at = first;
        while at != NONE {
            let second = self.nodes[at as usize].next;
            let rest = match second {
                NONE => NONE,
                second => self.nodes[second as usize].next,
            };
            let pair = self.meld(at, second);
            self.nodes[pair as usize].next = pairs;
            pairs = pair;
            at = rest;
        }
        let mut root = NONE;
        while pairs != NONE {
            let rest = self.nodes[pairs as usize].next;
            let node = &mut self.nodes[pairs as usize];
            (node.next, node.prev) = (NONE, NONE);
            root = self.meld(root, pairs);
            pairs = rest;
        }
        root
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agree_with_sorted_lists_under_random_updates(
            steps in proptest::collection::vec((0usize..20, 0usize..3, 0u64..50, 0u8..4), 0..300)
        ) {
            let mut heaps = PairingHeaps::new(2);
            heaps.grow_heaps(3);
            heaps.grow(20);
            let mut model: [Option<(usize, u64)>; 20] = [None; 20];
            for (id, heap, key, action) in steps {
                if action == 0 {
                    heaps.remove(id);
                    model[id] = None;
                } else {
                    heaps.set(heap, id, key);
                    model[id] = Some((heap, key));
                }
                prop_assert_eq!(heaps.contains(id), model[id].is_some());
                for heap in 0..3 {
                    let least = model.iter().enumerate()
                        .filter_map(|(id, at)| at.filter(|at| at.0 == heap).map(|at| (at.1, id)))
                        .min().map(|(key, id)| (id, key));
                    prop_assert_eq!(heaps.peek(heap), least);
                }
            }
        }
    }
}
