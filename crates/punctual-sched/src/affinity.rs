//! The distinct affinities in use: units of equal affinity share a queue.

use alloc::vec::Vec;

use crate::cpuset::{CpuId, CpuSet};
use crate::params::{ParamError, UnitParams};

#[derive(Debug)]
struct Class {
    cpus: CpuSet,
    /// How many units have this affinity; the index is free when none has.
    units: u32,
}

/// Affinities by index, and for each processor the affinities that contain it.
#[derive(Debug)]
pub(crate) struct Affinities {
    classes: Vec<Class>,
    served: Vec<Vec<u32>>,
}

/// The processors of `0..cpus` that `affinity` allows.
///
/// # Errors
/// When there is none.
pub(crate) fn allowed(cpus: usize, affinity: Option<&CpuSet>) -> Result<CpuSet, ParamError> {
    let Some(affinity) = affinity else {
        return Ok(CpuSet::all(cpus));
    };
    let mut set = CpuSet::new(cpus);
    for cpu in affinity.iter().filter(|cpu| cpu.index() < cpus) {
        set.insert(cpu);
    }
    if set.is_empty() {
        Err(ParamError::OutOfRange {
            field: UnitParams::AFFINITY,
            expected: alloc::format!("at least one of the pool's processors (0..{cpus})").into(),
        })
    } else {
        Ok(set)
    }
}

impl Affinities {
    /// No affinity in use, over `cpus` processors.
    pub(crate) fn new(cpus: usize) -> Self {
        Affinities { classes: Vec::new(), served: alloc::vec![Vec::new(); cpus] }
    }

    /// One more than the greatest index in use.
    pub(crate) fn len(&self) -> usize {
        self.classes.len()
    }

    /// The processors of the affinity `class`.
    #[inline]
    pub(crate) fn cpus(&self, class: u32) -> &CpuSet {
        &self.classes[class as usize].cpus
    }

    /// The affinities that contain `cpu`.
    #[inline]
    pub(crate) fn serving(&self, cpu: CpuId) -> &[u32] {
        &self.served[cpu.index()]
    }

    /// One more unit has the affinity `cpus`; returns its index.
    pub(crate) fn join(&mut self, cpus: CpuSet) -> u32 {
        let in_use = |class: &Class| class.units > 0 && class.cpus == cpus;
        if let Some(class) = self.classes.iter().position(in_use) {
            self.classes[class].units += 1;
            return class as u32;
        }
        let vacant = self.classes.iter().position(|class| class.units == 0);
        let index = vacant.unwrap_or(self.classes.len());
        for cpu in cpus.iter() {
            self.served[cpu.index()].push(index as u32);
        }
        let class = Class { cpus, units: 1 };
        match vacant {
            Some(index) => self.classes[index] = class,
            None => self.classes.push(class),
        }
        index as u32
    }

    /// One unit less has the affinity `class`.
    pub(crate) fn leave(&mut self, class: u32) {
        let left = &mut self.classes[class as usize];
        left.units -= 1;
        if left.units == 0 {
            for cpu in left.cpus.iter() {
                self.served[cpu.index()].retain(|&served| served != class);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cpus: &[u32]) -> CpuSet {
        let mut set = CpuSet::new(3);
        cpus.iter().for_each(|&cpu| set.insert(CpuId(cpu)));
        set
    }

    #[test]
    fn equal_affinities_share_an_index_and_unused_ones_are_given_out_again() {
        let mut affinities = Affinities::new(3);
        let all = affinities.join(set(&[0, 1, 2]));
        let pair = affinities.join(set(&[0, 1]));
        assert_eq!(affinities.join(set(&[0, 1])), pair);
        assert_eq!(affinities.serving(CpuId(1)), [all, pair]);
        affinities.leave(pair);
        assert_eq!(affinities.serving(CpuId(1)), [all, pair]);
        affinities.leave(pair);
        assert_eq!(affinities.serving(CpuId(1)), [all]);
        assert_eq!(affinities.join(set(&[2])), pair);
        assert_eq!((affinities.serving(CpuId(2)), affinities.len()), (&[all, pair][..], 2));
    }
}
