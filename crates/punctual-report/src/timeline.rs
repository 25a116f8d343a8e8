//! What happened, as rows that a chart can show: the report's form of a trace.
//!
//! A [`Timeline`] is read from the Perfetto trace that [`crate::trace`] writes, whether from a file or while
//! it is written ([`Reader`] is a [`std::io::Write`]). So there is one place that knows how execution nests,
//! and simulated and live runs need nothing of their own. A row is a processor, a vCPU or a task: what
//! executes there, its budget, its jobs.

mod encode;
mod read;

pub use encode::{Encoded, RowHeader};
pub use read::{Error, Reader, Window};

/// What a row stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RowKind {
    /// A physical processor.
    Processor,
    /// A virtual processor.
    Vcpu,
    /// What a domain's kernel does for the network: a slice per step, also while its vCPU waits.
    Network,
    /// A task.
    Task,
}

/// How a slice is to be understood.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// Something executes.
    Execution,
    /// A domain's kernel works for the network.
    Network,
    /// The vCPU has a processor and nothing to do.
    Idle,
    /// A budget idles away.
    IdleFor,
    /// The scheduler itself.
    Overhead,
    /// The processor was taken away.
    Away,
}

/// Something that lasted. Slices of a row do not overlap and are in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice {
    /// Absolute time.
    pub begin_ns: u64,
    /// Absolute time, greater than `begin_ns`.
    pub end_ns: u64,
    /// Index into [`Timeline::labels`].
    pub label: u32,
}

/// One job of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// Its number within the task.
    pub number: u64,
    /// Absolute time; may lie before the window.
    pub release_ns: u64,
    /// Absolute time.
    pub deadline_ns: u64,
    /// Absolute time of completion; `None` when it was not finished at the end of the window.
    pub end_ns: Option<u64>,
}

impl Job {
    /// Was its deadline missed, as far as it is known at `to_ns`?
    pub fn missed(&self, to_ns: u64) -> bool {
        match self.end_ns {
            Some(end) => end > self.deadline_ns,
            None => self.deadline_ns <= to_ns,
        }
    }
}

/// A processor, vCPU or task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Where it stands: `processors`, a domain, `pool NAME`.
    pub group: String,
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: RowKind,
    /// What executes.
    pub slices: Vec<Slice>,
    /// Steps of the budget: time and what is left from then on, both in ns. Times ascend.
    pub budget: Vec<(u64, u64)>,
    /// Jobs by release.
    pub jobs: Vec<Job>,
}

impl Row {
    /// Time in which something executed, in ns; idling does not count. Not known of [`RowKind::Network`],
    /// whose steps last while their vCPU waits.
    pub fn executing_ns(&self, labels: &[(String, Use)]) -> Option<u64> {
        let executes =
            |slice: &&Slice| matches!(labels[slice.label as usize].1, Use::Execution | Use::Network);
        let time = self.slices.iter().filter(executes).map(|slice| slice.end_ns - slice.begin_ns).sum();
        (self.kind != RowKind::Network).then_some(time)
    }

    /// Jobs whose deadline was missed in the window that ends at `to_ns`.
    pub fn missed(&self, to_ns: u64) -> usize {
        self.jobs.iter().filter(|job| job.missed(to_ns)).count()
    }
}

/// An interval of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timeline {
    /// Its begin, absolute.
    pub from_ns: u64,
    /// Its end, absolute.
    pub to_ns: u64,
    /// Was the end chosen because there would have been too many items?
    pub cut: bool,
    /// Names of slices.
    pub labels: Vec<(String, Use)>,
    /// In the order in which they should be shown; those of a group stand together.
    pub rows: Vec<Row>,
}

impl Timeline {
    /// Slices, steps of budgets and jobs.
    pub fn items(&self) -> usize {
        self.rows.iter().map(|row| row.slices.len() + row.budget.len() + row.jobs.len()).sum()
    }

    /// Its length in ns.
    pub fn length_ns(&self) -> u64 {
        self.to_ns - self.from_ns
    }
}

#[cfg(test)]
mod tests;
