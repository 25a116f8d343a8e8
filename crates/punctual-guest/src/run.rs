//! What both ways to execute a task set share: when a run starts, which task goes first, how often the guest
//! reports, and what a run hands back.

use crate::log::TaskLog;
use crate::os;
use crate::protocol::{FlowReport, Run};

/// What an execution hands back.
#[derive(Debug)]
pub struct Executed {
    /// A log for each task, in the request's order.
    pub logs: Vec<TaskLog>,
    /// What flows and chains did.
    pub flows: Vec<FlowReport>,
    /// When everything had stopped, since the run's start.
    pub ended_ns: u64,
}

/// When the run starts, or started, by this machine's clock.
pub fn start_ns(run: &Run) -> u64 {
    if run.start_at_ns == 0 { os::now_ns() } else { run.start_at_ns }
}

/// The tasks' places in the request from most to least urgent.
pub fn by_urgency(run: &Run) -> Vec<usize> {
    let mut order: Vec<usize> = (0..run.tasks.len()).collect();
    order.sort_by_key(|&task| run.tasks[task].priority);
    order
}

/// How often a run of that length reports its progress: once a second, or halfway through a shorter one.
pub fn progress_interval_ns(duration_ns: u64) -> u64 {
    (duration_ns / 2).clamp(1, 1_000_000_000)
}
