//! A thread of a workload.

use crate::import::draft::TaskDraft;

/// What Linux does with a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Niceness.
    Fair(i64),
    /// SCHED_IDLE.
    Idle,
    Realtime(i64),
    /// Runtime, period and deadline, us.
    Deadline(i64, i64, i64),
}

/// A thread and the task that it becomes.
pub(super) struct Thread {
    pub(super) task: TaskDraft,
    pub(super) class: Class,
}
