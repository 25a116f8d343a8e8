//! A domain as its XML describes it.

use crate::file::source::Place;
use crate::import::draft::Helpers;

/// A domain as its XML describes it.
pub(super) struct XmlDomain {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) vcpus: Vec<VcpuThread>,
    pub(super) shares: Option<u32>,
    pub(super) quota: Quota,
    /// Of all threads of the domain together.
    pub(super) global_quota: Quota,
    pub(super) helpers: Helpers,
    /// Does the XML say where the helper threads run?
    pub(super) helpers_are_pinned: bool,
    /// Is it run by QEMU?
    pub(super) is_qemu: bool,
}

/// Processor time in every period: an upper limit of the fair class.
#[derive(Clone, Copy)]
pub(super) struct Quota {
    /// `None`: no limit.
    pub(super) quota_us: Option<i64>,
    pub(super) period_us: i64,
    pub(super) place: Place,
}

/// A vCPU's thread.
#[derive(Clone)]
pub(super) struct VcpuThread {
    /// `None`: anywhere.
    pub(super) processors: Option<Vec<usize>>,
    pub(super) class: Class,
    /// Is it plugged in when the domain starts?
    pub(super) is_online: bool,
}

/// How Linux schedules a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// SCHED_OTHER or SCHED_BATCH.
    Fair,
    /// SCHED_IDLE.
    Idle,
    /// SCHED_FIFO or SCHED_RR of this priority.
    Realtime(i64),
}
