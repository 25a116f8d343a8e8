//! Shared by both ways to execute a task set: the start of a run, the order of tasks, the interval of
//! progress reports, and the result.

use crate::log::TaskLog;
use crate::os;
use crate::protocol::{FlowReport, Run};

/// The result of an execution.
#[derive(Debug)]
pub(crate) struct Executed {
    /// A log for each task, in the request's order.
    pub(crate) logs: Vec<TaskLog>,
    /// Reports of flows and chains.
    pub(crate) flows: Vec<FlowReport>,
    /// Instant, since the run's start, by which everything had stopped.
    pub(crate) ended_ns: u64,
}

/// Start of the run by this machine's clock; it may have passed.
pub(crate) fn start_ns(run: &Run) -> u64 {
    if run.start_at_ns == 0 { os::now_ns() } else { run.start_at_ns }
}

/// The tasks' places in the request from most to least urgent.
pub(crate) fn by_urgency(run: &Run) -> Vec<usize> {
    let mut order: Vec<usize> = (0..run.tasks.len()).collect();
    order.sort_by_key(|&task| run.tasks[task].priority);
    order
}

/// Interval of progress reports: a second, or half of a shorter run.
pub(crate) fn progress_interval_ns(duration_ns: u64) -> u64 {
    (duration_ns / 2).clamp(1, 1_000_000_000)
}
