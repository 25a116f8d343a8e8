//! A host on its way from an imported file to a host file.

use std::collections::BTreeSet;

use punctual_sched::{Duration, UnitParams, fixed_priority};
use toml_edit::Value;

use super::input::Input;
use super::settings::Settings;
use crate::file::UNITS_MAX;
use crate::file::source::Place;
use crate::host::Cost;

/// What was read of a host.
#[derive(Default)]
pub(super) struct HostDraft {
    /// Number of processors: one more than the highest that is named.
    pub(super) processors: usize,
    /// How long to run.
    pub(super) duration: Option<Duration>,
    pub(super) pools: Vec<PoolDraft>,
    pub(super) domains: Vec<DomainDraft>,
    /// vCPUs so far.
    vcpus: usize,
}

/// A pool, with the tasks directly in it.
pub(super) struct PoolDraft {
    pub(super) name: String,
    /// Empty: all of the machine's.
    pub(super) processors: Vec<usize>,
    pub(super) policy: &'static str,
    /// Options of the policy as they stand in a host file.
    pub(super) options: Vec<(&'static str, Value)>,
    pub(super) tasks: Vec<TaskDraft>,
    pub(super) place: Place,
}

/// A domain.
pub(super) struct DomainDraft {
    pub(super) name: String,
    pub(super) owner: Owner,
    pub(super) guest: &'static str,
    /// At least one.
    pub(super) vcpus: Vec<UnitDraft>,
    pub(super) tasks: Vec<TaskDraft>,
    pub(super) helpers: Helpers,
    /// The domain of libvirt that `attach` names.
    pub(super) attach: Option<String>,
    pub(super) place: Place,
}

impl DomainDraft {
    /// A task of a pool as a best-effort domain of one vCPU.
    pub(super) fn of_task(mut task: TaskDraft, pool: usize) -> Self {
        let affinity = task.unit.affinity.take();
        let weight = task.unit.weight.take();
        task.unit.priority = None;
        DomainDraft {
            name: task.name.clone(),
            owner: Owner::Pool(pool),
            guest: fixed_priority::NAME,
            vcpus: vec![UnitDraft { affinity, weight, best_effort: true, ..UnitDraft::default() }],
            place: task.place,
            tasks: vec![task],
            helpers: Helpers::default(),
            attach: None,
        }
    }
}

/// Threads of the domain that are no vCPUs.
#[derive(Clone, Default)]
pub(super) struct Helpers {
    /// Ascending; empty: not given.
    pub(super) processors: Vec<usize>,
    /// Of SCHED_FIFO.
    pub(super) priority: Option<i64>,
}

/// The pool or domain that a domain runs in: an index into the draft's.
#[derive(Clone, Copy)]
pub(super) enum Owner {
    Pool(usize),
    Domain(usize),
}

/// Parameters of a unit.
#[derive(Clone, Default, PartialEq)]
pub(super) struct UnitDraft {
    pub(super) budget: Option<Duration>,
    pub(super) period: Option<Duration>,
    pub(super) deadline: Option<Duration>,
    pub(super) priority: Option<u32>,
    pub(super) weight: Option<u32>,
    pub(super) cap_percent: Option<u32>,
    pub(super) extratime: Option<bool>,
    /// Ascending; of the machine, in a domain of its vCPUs.
    pub(super) affinity: Option<Vec<usize>>,
    /// Below all others; of a vCPU in a pool.
    pub(super) best_effort: bool,
}

impl UnitDraft {
    /// The names of the parameters that are given and that a policy may read.
    pub(super) fn given(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            (UnitParams::BUDGET, self.budget.is_some()),
            (UnitParams::PERIOD, self.period.is_some()),
            (UnitParams::PRIORITY, self.priority.is_some()),
            (UnitParams::WEIGHT, self.weight.is_some()),
            (UnitParams::CAP_PERCENT, self.cap_percent.is_some()),
            (UnitParams::EXTRATIME, self.extratime.is_some()),
        ];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name)
    }
}

/// A task; what it does and its parameters as a unit.
pub(super) struct TaskDraft {
    pub(super) name: String,
    pub(super) work: WorkDraft,
    /// `budget` and `period` make its server.
    pub(super) unit: UnitDraft,
    pub(super) place: Place,
}

/// What a task does.
#[derive(Clone, Copy)]
pub(super) enum WorkDraft {
    Hog { start: Duration },
    Periodic { period: Duration, offset: Duration, cost: Cost },
    Sporadic { separation: Duration, offset: Duration, cost: Cost },
}

impl HostDraft {
    /// Counts `vcpus` more vCPUs. `None` and an error when there are too many.
    pub(super) fn reserve(&mut self, input: &mut Input, place: Place, vcpus: usize) -> Option<()> {
        self.vcpus += vcpus;
        if self.vcpus > UNITS_MAX {
            input.error(place, "there are too many vCPUs", format!("expected at most {UNITS_MAX}"));
            return None;
        }
        Some(())
    }

    /// Adds a pool and returns its index.
    pub(super) fn add_pool(&mut self, name: &str, policy: &'static str, place: Place) -> usize {
        let (processors, options, tasks) = (Vec::new(), Vec::new(), Vec::new());
        self.pools.push(PoolDraft { name: name.into(), processors, policy, options, tasks, place });
        self.pools.len() - 1
    }

    /// Gives the machine the chosen number of processors. Otherwise it has those that are named, and at least
    /// one; with `at_least`, nothing lists all of them, and the number is noted as a guess.
    pub(super) fn size(&mut self, input: &mut Input, settings: &Settings<'_>, at_least: Option<usize>) {
        if let Some(processors) = settings.processors {
            self.processors = self.processors.max(processors);
            return;
        }
        if self.processors == 0 {
            self.processors = at_least.unwrap_or(1).max(1);
        }
        if at_least.is_some() {
            let text = format!(
                "nothing says how many processors the machine has; taken as {} (--processors)",
                self.processors
            );
            input.note(Place::TOP, text);
        }
    }

    /// Makes the machine large enough for the processors of these numbers.
    pub(super) fn include_processors(&mut self, processors: &[usize]) {
        self.processors = self.processors.max(processors.iter().max().map_or(0, |n| n + 1));
    }
}

/// Ranks Linux's priorities, of which the greatest is the most urgent, as priorities of a host file, of which
/// 1 is.
pub(super) struct LinuxPriorities {
    descending: Vec<i64>,
}

impl LinuxPriorities {
    pub(super) fn new(given: impl Iterator<Item = i64>) -> Self {
        let ascending: BTreeSet<i64> = given.collect();
        LinuxPriorities { descending: ascending.into_iter().rev().collect() }
    }

    pub(super) fn rank(&self, priority: i64) -> u32 {
        self.descending.partition_point(|p| *p > priority) as u32 + 1
    }
}
