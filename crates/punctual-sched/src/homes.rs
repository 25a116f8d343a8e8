//! Where the units of a partitioned policy live: each on one processor, its home.

use alloc::vec::Vec;
use core::ops::{AddAssign, SubAssign};

use crate::cpuset::{CpuId, CpuSet};

/// The load of each processor: a number of units, or their [utilization](crate::utilization::Utilization).
#[derive(Clone, Debug)]
pub(crate) struct Homes<L> {
    load: Vec<L>,
}

impl<L: Copy + Default + Ord + AddAssign + SubAssign> Homes<L> {
    /// `cpus` processors without load.
    pub(crate) fn new(cpus: usize) -> Self {
        Homes { load: alloc::vec![L::default(); cpus] }
    }

    /// Settles a unit of this load on the least loaded of the `allowed` processors, the lowest of several.
    pub(crate) fn settle(&mut self, allowed: &CpuSet, load: L) -> CpuId {
        let home = self.least_loaded(allowed.iter());
        self.settle_on(home, load);
        home
    }

    /// The least loaded of the `allowed` processors, the first of several.
    pub(crate) fn least_loaded(&self, allowed: impl Iterator<Item = CpuId>) -> CpuId {
        allowed.min_by_key(|cpu| self.load[cpu.index()]).unwrap_or(CpuId(0))
    }

    /// Settles a unit of this load on `home`.
    pub(crate) fn settle_on(&mut self, home: CpuId, load: L) {
        self.load[home.index()] += load;
    }

    /// A unit of this load leaves `home`.
    pub(crate) fn leave(&mut self, home: CpuId, load: L) {
        self.load[home.index()] -= load;
    }

    /// A unit whose load changes stays at `home` if that is still allowed; otherwise it gets another home.
    pub(crate) fn resettle(&mut self, home: CpuId, old: L, allowed: &CpuSet, new: L) -> CpuId {
        self.leave(home, old);
        if allowed.contains(home) {
            self.settle_on(home, new);
            return home;
        }
        self.settle(allowed, new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_loaded_allowed_processor_is_chosen_and_kept_while_it_is_allowed() {
        let mut homes = Homes::<u64>::new(3);
        let all = CpuSet::all(3);
        assert_eq!(
            [homes.settle(&all, 5), homes.settle(&all, 2), homes.settle(&all, 3)].map(|c| c.0),
            [0, 1, 2]
        );
        assert_eq!(homes.settle(&all, 9), CpuId(1));
        assert_eq!(homes.resettle(CpuId(1), 9, &all, 20), CpuId(1));
        let mut last = CpuSet::new(3);
        last.insert(CpuId(2));
        assert_eq!(homes.resettle(CpuId(1), 20, &last, 1), CpuId(2));
        homes.leave(CpuId(0), 5);
        assert_eq!(homes.settle(&all, 1), CpuId(0));
    }
}
