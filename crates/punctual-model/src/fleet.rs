//! A fleet: hosts of some kinds, and the VMs that are to be placed on them. `punctual place` takes this
//! value, which [`parse_fleet`](crate::file::parse_fleet) reads from a file.

use crate::host::Host;
use crate::index::DomainIx;

/// Hosts and VMs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// Name for titles and results.
    pub name: String,
    /// Kinds of hosts, in the order of the file.
    pub kinds: Vec<HostKind>,
    /// The hosts, those of one kind contiguous.
    pub hosts: Vec<FleetHost>,
    /// Kinds of VMs: one for each table of the file, in its order.
    pub vm_kinds: Vec<VmKind>,
    /// The VMs, those of one kind contiguous.
    pub vms: Vec<FleetVm>,
    /// Names of groups of VMs that must be together on one host.
    pub together: Vec<String>,
    /// Names of groups of VMs of which no two may be on one host.
    pub apart: Vec<String>,
}

/// Hosts that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostKind {
    /// Name of its table.
    pub name: String,
    /// The machine with its pools, and as domains one VM of each kind that has its pool here. It is no host
    /// that could run: it has the parameters that hosts of this kind are made of.
    pub template: Host,
    /// By kind of VM: its domain in the template; `None` where its pool or its slot is missing.
    pub domains: Vec<Option<DomainIx>>,
    /// By kind of VM: the processors of its pool that it may use, by their places in the pool, ascending.
    /// Empty without a domain.
    pub allowed: Vec<Vec<usize>>,
    /// Memory for VMs in MiB.
    pub memory_mib: u64,
    /// NUMA nodes; one with everything where the file has none.
    pub nodes: Vec<Node>,
    /// By pool of the template: does each vCPU get one processor of it? Otherwise the pool's policy moves the
    /// vCPUs among all of its processors.
    pub is_pinned: Vec<bool>,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The kernel's number.
    pub number: usize,
    /// Its processors, ascending.
    pub processors: Vec<usize>,
    /// Its memory for VMs in MiB.
    pub memory_mib: u64,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetHost {
    /// Name.
    pub name: String,
    /// Index of its kind.
    pub kind: usize,
}

/// VMs that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmKind {
    /// Name of its table.
    pub name: String,
    /// Its memory in MiB.
    pub memory_mib: u64,
    /// Must its memory and its vCPUs be in one NUMA node?
    pub one_node: bool,
    /// What it costs to move it from the host where it is today.
    pub move_cost: u64,
    /// By host: may it be there, as far as `hosts` and `avoid` say?
    pub may_be_on: Vec<bool>,
    /// Its groups in [`Fleet::together`].
    pub together: Vec<usize>,
    /// Its groups in [`Fleet::apart`].
    pub apart: Vec<usize>,
}

/// A VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetVm {
    /// Name.
    pub name: String,
    /// Index of its kind.
    pub kind: usize,
    /// Index of the host where it is today.
    pub today: Option<usize>,
}

impl Fleet {
    /// The kind of a host.
    pub fn kind_of(&self, host: usize) -> &HostKind {
        &self.kinds[self.hosts[host].kind]
    }

    /// The kind of a VM.
    pub fn vm_kind(&self, vm: usize) -> &VmKind {
        &self.vm_kinds[self.vms[vm].kind]
    }
}
