//! A tournament tree: the least of a fixed number of instants, each of which may change at any time.

use punctual_sched::Instant;

/// One instant per slot, [`Instant::NEVER`] at first. Equal instants: the lowest slot comes first.
pub(crate) struct MinTree {
    keys: Vec<Instant>,
    /// Winners of the matches: node 1 is the root, the children of node i are 2i and 2i+1, and below the
    /// last nodes stand the slots themselves.
    winners: Vec<u32>,
    leaves: usize,
    least: (Instant, u32),
}

impl MinTree {
    pub(crate) fn new(slots: usize) -> Self {
        let leaves = slots.max(1).next_power_of_two();
        let mut tree = MinTree {
            keys: vec![Instant::NEVER; leaves],
            winners: vec![0; leaves],
            leaves,
            least: (Instant::NEVER, 0),
        };
        for node in (1..leaves).rev() {
            tree.winners[node] = tree.winner(2 * node);
        }
        tree
    }

    /// The slot that won at a node, or that stands there.
    #[inline]
    fn winner(&self, node: usize) -> u32 {
        if node < self.leaves { self.winners[node] } else { (node - self.leaves) as u32 }
    }

    /// The least instant and its slot.
    #[inline]
    pub(crate) fn min(&self) -> (Instant, usize) {
        (self.least.0, self.least.1 as usize)
    }

    #[inline]
    pub(crate) fn set(&mut self, slot: usize, key: Instant) {
        debug_assert!(slot < self.leaves, "slot {slot} of {}", self.leaves);
        if self.keys[slot] != key {
            self.keys[slot] = key;
            self.play_again(slot, key);
            debug_assert_eq!(self.keys[self.least.1 as usize], self.least.0, "the winner's own key");
        }
    }

    /// All matches of a slot whose instant has changed.
    fn play_again(&mut self, slot: usize, key: Instant) {
        let (mut least, mut winner) = (key, slot as u32);
        let mut node = self.leaves + slot;
        while node > 1 {
            let other = self.winner(node ^ 1);
            let key = self.keys[other as usize];
            // Of equal ones the lower slot wins, which is on the left.
            if key < least || (key == least && node % 2 == 1) {
                (least, winner) = (key, other);
            }
            node /= 2;
            let before = std::mem::replace(&mut self.winners[node], winner);
            // The winner is another slot and was before: nothing changes further up.
            if before == winner && winner != slot as u32 {
                return;
            }
        }
        self.least = (least, winner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_follows_every_change_and_ties_go_to_the_lowest_slot() {
        let mut tree = MinTree::new(5);
        assert_eq!(tree.min(), (Instant::NEVER, 0));
        let mut model = [Instant::NEVER; 5];
        let mut state = 1u64;
        for _ in 0..10_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (slot, key) = ((state >> 33) as usize % 5, Instant::from_ns(state >> 60));
            tree.set(slot, key);
            model[slot] = key;
            let least = model.iter().enumerate().map(|(slot, key)| (*key, slot)).min();
            assert_eq!(Some(tree.min()), least);
        }
    }
}
