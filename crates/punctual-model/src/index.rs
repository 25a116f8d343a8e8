//! Indices into the lists of a [`Host`](crate::Host): an entity's identity in results, traces and the
//! simulator.

/// Index into [`Host::pools`](crate::Host::pools).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PoolIx(pub usize);

/// Index into [`Host::domains`](crate::Host::domains).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DomainIx(pub usize);

/// Index into [`Host::vcpus`](crate::Host::vcpus).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VcpuIx(pub usize);

/// Index into [`Host::tasks`](crate::Host::tasks).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TaskIx(pub usize);

/// Index into [`Host::networks`](crate::Host::networks).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NetworkIx(pub usize);
