//! Pools and domains before their host is put together.

use super::task::Tasks;
use super::unit::UnitDraft;
use crate::file::options::PolicyDraft;
use crate::host::Event;
use crate::host::Parent;
use crate::live::Live;
use crate::placement::Choice;
use crate::smp::SmpWork;

/// A pool before its host is put together.
pub(crate) struct PoolDraft<'t> {
    pub(crate) name: String,
    pub(crate) processors: Vec<usize>,
    pub(crate) choice: Option<Choice>,
    /// `None` when the file names no valid policy.
    pub(crate) chosen: Option<PolicyDraft>,
    pub(crate) isolate: bool,
    pub(crate) tasks: Tasks<'t>,
}

/// A domain before its host is put together.
pub(crate) struct DomainDraft<'t> {
    pub(crate) name: String,
    pub(crate) parent: Parent,
    pub(crate) vcpus: Vec<UnitDraft>,
    pub(crate) guest: PolicyDraft,
    pub(crate) live: Live,
    pub(crate) tasks: Tasks<'t>,
    pub(crate) smp: Option<SmpWork>,
}

/// An event before its host is put together.
pub(crate) struct EventDraft {
    pub(crate) event: Event,
    /// The parameters of a domain's vCPUs that it gives, and where.
    pub(crate) unit: UnitDraft,
}
