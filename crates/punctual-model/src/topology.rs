//! The processors of a machine as the choice of a pool's processors needs them: which share a core, a cache,
//! a NUMA node, which are isolated, and where the interrupts of its devices go.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The processors and devices of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// The processors, in any order, each number once.
    pub processors: Vec<Processor>,
    /// Network interfaces by name, and PCI devices by address.
    pub devices: BTreeMap<String, Device>,
    /// Only the number of processors is known, as of the machine of a host file.
    pub is_flat: bool,
}

/// A processor. Groups are numbers that are equal for all processors of a group, and for no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processor {
    /// Its number.
    pub number: usize,
    /// The kernel may run something on it.
    pub is_online: bool,
    /// The kernel's scheduler keeps ordinary threads away from it (`isolcpus`).
    pub is_isolated: bool,
    /// Its core, which hardware threads (SMT siblings) share.
    pub core: usize,
    /// Its last-level cache.
    pub cache: usize,
    /// Its package.
    pub package: usize,
    /// Its NUMA node, by the kernel's number.
    pub node: usize,
}

/// A device with interrupts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its NUMA node, if the kernel knows it.
    pub node: Option<usize>,
    /// The processors that its interrupts go to.
    pub interrupts: BTreeSet<usize>,
    /// The numbers of its interrupts.
    #[serde(default)]
    pub numbers: BTreeSet<usize>,
}

impl Topology {
    /// A machine of which nothing but the number of its processors is known.
    pub fn flat(processors: usize) -> Topology {
        let processor = |number| Processor {
            number,
            is_online: true,
            is_isolated: false,
            core: number,
            cache: 0,
            package: 0,
            node: 0,
        };
        let processors = (0..processors).map(processor).collect();
        Topology { processors, devices: BTreeMap::new(), is_flat: true }
    }

    /// One more than the highest number of a processor.
    pub fn count(&self) -> usize {
        self.processors.iter().map(|processor| processor.number + 1).max().unwrap_or(0)
    }

    /// The processors by number.
    pub(crate) fn by_number(&self) -> BTreeMap<usize, Processor> {
        self.processors.iter().map(|processor| (processor.number, *processor)).collect()
    }
}
