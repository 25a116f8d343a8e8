//! Maps by ids of threads. The kernel gives the ids, so nobody can choose them to collide, and a lookup for
//! each event of the machine must be cheap.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by the id of a thread.
pub(crate) type ById<V> = HashMap<u32, V, BuildHasherDefault<IdHasher>>;

/// Multiplies by 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, 6.4).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, id: u32) {
        let product = (self.0 ^ u64::from(id)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The map takes its bucket from the low bits, which depend on the low bits of the id alone.
        self.0 = product ^ (product >> 32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_and_spread() {
        let map: ById<u32> = (0..10_000).map(|id| (id, id + 1)).collect();
        assert!((0..10_000).all(|id| map.get(&id) == Some(&(id + 1))));
        let low = |id: u32| {
            let mut hasher = IdHasher::default();
            hasher.write_u32(id << 16);
            hasher.finish() & 0xff
        };
        let distinct: std::collections::HashSet<u64> = (0..1000).map(low).collect();
        assert!(distinct.len() > 200, "{}", distinct.len());
    }
}
