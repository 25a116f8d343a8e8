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

/// The least id of a heap.
#[derive(Debug)]
pub(crate) struct Head<'a, K> {
    /// The id.
    pub id: usize,
    root: &'a mut u32,
    nodes: &'a mut [Node<K>],
}

impl<K: Ord + Copy + Default> Head<'_, K> {
    /// Its key.
    #[inline(always)]
    pub(crate) fn key(&self) -> &K {
        &self.nodes[self.id].key
    }

    /// Removes it from its heap.
    #[inline(always)]
    pub(crate) fn take(self) {
        let node = &mut self.nodes[self.id];
        node.heap = NONE;
        *self.root = match node.child {
            NONE => NONE,
            child => PairingHeaps::meld_siblings(self.nodes, child),
        };
    }
}

/// Min-heaps `0..heaps` over ids `0..capacity`.
#[derive(Clone, Debug)]
pub(crate) struct PairingHeaps<K> {
    nodes: Vec<Node<K>>,
    roots: Vec<u32>,
}

impl<K: Ord + Copy + Default> PairingHeaps<K> {
    /// `heaps` empty heaps with room for no id yet.
    pub(crate) fn new(heaps: usize) -> Self {
        PairingHeaps { nodes: Vec::new(), roots: alloc::vec![NONE; heaps] }
    }

    /// Makes room for ids below `capacity`; never shrinks.
    pub(crate) fn grow(&mut self, capacity: usize) {
        if capacity > self.nodes.len() {
            let vacant = Node { key: K::default(), heap: NONE, child: NONE, next: NONE, prev: NONE };
            self.nodes.resize(capacity, vacant);
        }
    }

    /// Makes room for heaps below `heaps`; never shrinks.
    pub(crate) fn grow_heaps(&mut self, heaps: usize) {
        if heaps > self.roots.len() {
            self.roots.resize(heaps, NONE);
        }
    }

    /// The least id of `heap` and its key; `None` also for a heap beyond the last.
    #[inline(always)]
    pub(crate) fn peek(&self, heap: usize) -> Option<(usize, &K)> {
        let root = *self.roots.get(heap)? as usize;
        // The root of an empty heap names no node.
        self.nodes.get(root).map(|node| (root, &node.key))
    }

    /// Is `id` in any heap?
    #[inline]
    pub(crate) fn contains(&self, id: usize) -> bool {
        self.nodes[id].heap != NONE
    }

    /// Puts `id` into `heap` with this key, wherever it was before.
    ///
    /// # Panics
    /// When `id` or `heap` is beyond what was made room for.
    #[inline(always)]
    pub(crate) fn set(&mut self, heap: usize, id: usize, key: K) {
        if self.contains(id) {
            self.remove(id);
        }
        self.insert(heap, id, key);
    }

    /// Puts `id`, which is in no heap, into `heap` with this key.
    ///
    /// # Panics
    /// When `id` or `heap` is beyond what was made room for.
    #[inline(always)]
    pub(crate) fn insert(&mut self, heap: usize, id: usize, key: K) {
        debug_assert!(!self.contains(id), "{id} is in a heap");
        self.nodes[id] = Node { key, heap: heap as u32, child: NONE, next: NONE, prev: NONE };
        let root = self.roots[heap];
        self.roots[heap] =
            if root == NONE { id as u32 } else { Self::join(&mut self.nodes, root, id as u32) };
    }

    /// The least id of `heap`, to be looked at and taken; `None` also for a heap beyond the last.
    #[inline(always)]
    pub(crate) fn head(&mut self, heap: usize) -> Option<Head<'_, K>> {
        let root = self.roots.get_mut(heap)?;
        let id = *root as usize;
        let nodes = &mut self.nodes[..];
        // The root of an empty heap names no node.
        (id < nodes.len()).then_some(Head { id, root, nodes })
    }

    /// Removes `id` from the heap that it is in, if any.
    #[inline(always)]
    pub(crate) fn remove(&mut self, id: usize) {
        let Node { ref mut heap, child, next, prev, .. } = self.nodes[id];
        let heap = core::mem::replace(heap, NONE) as usize;
        if heap == NONE as usize {
            return;
        }
        let nodes = &mut self.nodes[..];
        let orphans = if child == NONE { NONE } else { Self::meld_siblings(nodes, child) };
        let root = &mut self.roots[heap];
        if *root == id as u32 {
            *root = orphans;
        } else {
            Self::unlink(nodes, id as u32, prev, next);
            *root = Self::meld(nodes, *root, orphans);
        }
    }

    fn unlink(nodes: &mut [Node<K>], id: u32, prev: u32, next: u32) {
        let before = &mut nodes[prev as usize];
        if before.child == id {
            before.child = next;
        } else {
            before.next = next;
        }
        if next != NONE {
            nodes[next as usize].prev = prev;
        }
    }

    /// Joins two trees, or what there is of them.
    #[inline]
    fn meld(nodes: &mut [Node<K>], a: u32, b: u32) -> u32 {
        match (a, b) {
            (NONE, tree) | (tree, NONE) => tree,
            _ => Self::join(nodes, a, b),
        }
    }

    /// Joins two trees; the root with the greater key becomes the first child of the other.
    fn join(nodes: &mut [Node<K>], a: u32, b: u32) -> u32 {
        let (at_a, at_b) = (nodes[a as usize].key, nodes[b as usize].key);
        // Branches: most keys differ.
        let less = at_a < at_b || (at_a == at_b && a < b);
        let (top, below) = if less { (a, b) } else { (b, a) };
        let first = nodes[top as usize].child;
        if first != NONE {
            nodes[first as usize].prev = below;
        }
        let node = &mut nodes[below as usize];
        (node.next, node.prev) = (first, top);
        let node = &mut nodes[top as usize];
        (node.child, node.next, node.prev) = (below, NONE, NONE);
        top
    }

    /// Joins a list of siblings: in pairs from left to right, then the pairs from right to left.
    fn meld_siblings(nodes: &mut [Node<K>], first: u32) -> u32 {
        let mut pairs = NONE;
        let mut at = first;
        while at != NONE {
            let second = nodes[at as usize].next;
            let rest = match second {
                NONE => NONE,
                second => nodes[second as usize].next,
            };
            let pair = Self::meld(nodes, at, second);
            nodes[pair as usize].next = pairs;
            pairs = pair;
            at = rest;
        }
        let mut root = NONE;
        while pairs != NONE {
            let rest = nodes[pairs as usize].next;
            let node = &mut nodes[pairs as usize];
            (node.next, node.prev) = (NONE, NONE);
            root = Self::meld(nodes, root, pairs);
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
            steps in proptest::collection::vec((0usize..20, 0usize..3, 0u64..50, 0u8..6), 0..300)
        ) {
            let mut heaps = PairingHeaps::new(2);
            heaps.grow_heaps(3);
            heaps.grow(20);
            let mut model: [Option<(usize, u64)>; 20] = [None; 20];
            for (id, heap, key, action) in steps {
                if action == 0 {
                    heaps.remove(id);
                    model[id] = None;
                } else if action == 1 {
                    if let Some(head) = heaps.head(heap) {
                        model[head.id] = None;
                        head.take();
                    }
                } else {
                    heaps.set(heap, id, key);
                    model[id] = Some((heap, key));
                }
                prop_assert_eq!(heaps.contains(id), model[id].is_some());
                for heap in 0..3 {
                    let least = model.iter().enumerate()
                        .filter_map(|(id, at)| at.filter(|at| at.0 == heap).map(|at| (at.1, id)))
                        .min().map(|(key, id)| (id, key));
                    prop_assert_eq!(heaps.peek(heap).map(|(id, key)| (id, *key)), least);
                }
            }
        }
    }
}
