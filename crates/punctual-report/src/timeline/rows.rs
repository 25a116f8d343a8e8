//! The rows of a timeline.

#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RowKind {
    Processor,
    Vcpu,
    /// What a domain's kernel does for the network: a slice per step, also while its vCPU waits.
    Network,
    Task,
}

/// How a slice is to be understood.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    Execution,
    /// A domain's kernel works for the network.
    Network,
    /// The vCPU has a processor and nothing to do.
    Idle,
    IdleFor,
    Overhead,
    Away,
}

/// Something that lasted. Slices of a row do not overlap and are in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice {
    pub begin_ns: u64,
    /// Absolute time, greater than `begin_ns`.
    pub end_ns: u64,
    /// Index into [`Timeline::labels`].
    pub label: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    pub number: u64,
    /// Absolute time; may lie before the window.
    pub release_ns: u64,
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
    pub name: String,
    pub kind: RowKind,
    pub slices: Vec<Slice>,
    /// Steps of the budget: time and what is left from then on, both in ns. Times ascend.
    pub budget: Vec<(u64, u64)>,
    pub jobs: Vec<Job>,
}

impl Row {
    /// Time in which something executed, in ns; idling does not count. Not known of [`RowKind::Network`],
    /// whose steps last while their vCPU waits.
    pub(crate) fn executing_ns(&self, labels: &[(String, Use)]) -> Option<u64> {
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
    pub from_ns: u64,
    pub to_ns: u64,
    /// Was the end chosen because there would have been too many items?
    pub cut: bool,
    pub labels: Vec<(String, Use)>,
    /// In the order in which they should be shown; those of a group stand together.
    pub rows: Vec<Row>,
}

impl Timeline {
    /// Slices, steps of budgets and jobs.
    pub fn items(&self) -> usize {
        self.rows.iter().map(|row| row.slices.len() + row.budget.len() + row.jobs.len()).sum()
    }

    pub fn length_ns(&self) -> u64 {
        self.to_ns - self.from_ns
    }
}
