//! The papers' host files, what an experiment changes in them, and running many of them at once.

use punctual_model::Host;
use punctual_model::Results;
use punctual_model::file::{self, Overrides};
use punctual_model::host::{Arrival, Cost, Parent, Work};
use punctual_model::index::{DomainIx, TaskIx};
use punctual_sched::Duration;
use rayon::prelude::*;

use crate::boot::simulate_booted_one_by_one;
use crate::error::Error;

/// The domain of a Xen host that runs the experiments there.
#[cfg(feature = "live")]
pub(crate) const MANAGER: &str = "Domain-0";

/// Told after every finished simulation: what runs, how many are done, how many there are.
pub type Progress<'a> = &'a (dyn Fn(&str, usize, usize) + Sync);

/// Pairs each path with the text of the file.
macro_rules! files {
    ($($path:literal),* $(,)?) => {
        [$(($path, include_str!(concat!("../../../", $path)))),*]
    };
}

/// Host files by their path in the repository.
const FILES: [(&str, &str); 19] = files![
    "papers/rt-xen/decreasing.toml",
    "papers/rt-xen/even.toml",
    "papers/rt-xen/increasing.toml",
    "papers/rt-xen/quantum-1ms.toml",
    "papers/rt-xen/quantum-100us.toml",
    "papers/rt-xen/quantum-10us.toml",
    "papers/nautilus/global-default.toml",
    "papers/nautilus/global-tuned.toml",
    "papers/nautilus/partitioned.toml",
    "papers/nautilus/mixed.toml",
    "papers/nautilus/ping.toml",
    "papers/rtca/example.toml",
    "papers/rtca/same-core.toml",
    "papers/rtca/other-cores.toml",
    "papers/rtca/end-to-end.toml",
    "papers/rtca/live.toml",
    "papers/vmm-io/guests.toml",
    "papers/vmm-io/live.toml",
    "papers/rt-stack/host.toml",
];

/// A host file of a paper with what an experiment changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scenario {
    /// Path in the repository.
    pub file: String,
    /// Policy of every pool, if changed.
    pub policy: Option<&'static str>,
    /// `path=value`, as for `punctual sim --set`.
    pub set: Vec<String>,
    /// What the host file has besides.
    pub more: String,
    pub seed: Option<u64>,
    pub duration: Option<Duration>,
    /// Do domains boot one after the other before the run, see [`crate::boot`]? Otherwise all start with it.
    pub boots_one_by_one: bool,
}

impl Scenario {
    /// The host file `papers/PAPER/NAME.toml` as it stands.
    pub(crate) fn new(paper: &str, name: &str) -> Self {
        Scenario { file: format!("papers/{paper}/{name}.toml"), ..Scenario::default() }
    }

    /// With another policy in every pool.
    #[must_use]
    pub(crate) fn policy(mut self, policy: &'static str) -> Self {
        self.policy = Some(policy);
        self
    }

    /// With `path=value` set.
    #[must_use]
    pub(crate) fn set(mut self, assignment: impl Into<String>) -> Self {
        self.set.push(assignment.into());
        self
    }

    /// With more in the host file.
    #[must_use]
    pub(crate) fn append(mut self, more: impl Into<String>) -> Self {
        self.more = more.into();
        self
    }

    #[must_use]
    pub(crate) fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    #[must_use]
    pub(crate) fn duration(mut self, duration: Duration) -> Self {
        self.duration = Some(duration);
        self
    }

    /// With domains that boot one after the other before the run.
    #[must_use]
    pub(crate) fn boot_one_by_one(mut self) -> Self {
        self.boots_one_by_one = true;
        self
    }

    pub(crate) fn host(&self) -> Result<Host, Error> {
        let (text, overrides) = self.text_and_overrides()?;
        file::parse(&text, &self.file, &overrides).map_err(Error::Host)
    }

    /// Simulates the validated host with `host_stack`.
    pub(crate) fn simulate_host_stack(&self) -> Result<Results, Error> {
        let (text, overrides) = self.text_and_overrides()?;
        let stack = file::parse_host_stack(text.as_bytes(), &self.file, &overrides).map_err(Error::Host)?;
        punctual_host_stack_sim::simulate(&stack).map_err(|error| Error::Simulation {
            what: self.command(),
            error: punctual_sim::Error::Violation(error.0),
        })
    }

    fn text_and_overrides(&self) -> Result<(String, Overrides), Error> {
        let text = FILES.iter().find(|(path, _)| *path == self.file).map(|(_, text)| *text);
        let text = text.ok_or_else(|| Error::File(self.file.clone()))?;
        let overrides = Overrides {
            overheads: None,
            policy: self.policy.map(str::to_string),
            set: self.set.clone(),
            seed: self.seed,
            duration: self.duration.map(|d| d.to_string()),
        };
        Ok((format!("{text}{}", self.more), overrides))
    }

    /// Simulates `host`, which is that of the scenario or what an experiment made of it.
    pub(crate) fn simulate(&self, host: &Host) -> Result<Results, Error> {
        let simulate =
            if self.boots_one_by_one { simulate_booted_one_by_one } else { punctual_sim::simulate };
        simulate(host).map_err(|error| Error::Simulation { what: self.command(), error })
    }

    /// The command that shows the same run.
    pub(crate) fn command(&self) -> String {
        let mut text = format!("punctual sim {}", self.file);
        self.policy.iter().for_each(|p| text += &format!(" --policy {p}"));
        self.set.iter().for_each(|s| text += &format!(" --set '{s}'"));
        self.seed.iter().for_each(|s| text += &format!(" --seed {s}"));
        self.duration.iter().for_each(|d| text += &format!(" --duration {d}"));
        text
    }
}

/// Simulates every scenario on all cores, after applying `change` to the host, and keeps what `keep` takes
/// from the results; the order is that of the scenarios.
pub(crate) fn run_all<T: Send>(
    what: &str,
    scenarios: &[Scenario],
    progress: Progress<'_>,
    change: impl Fn(&Scenario, &mut Host) + Sync,
    keep: impl Fn(&Host, &Results) -> T + Sync,
) -> Result<Vec<T>, Error> {
    run_each(what, scenarios, progress, |scenario| {
        let mut host = scenario.host()?;
        change(scenario, &mut host);
        let results = scenario.simulate(&host)?;
        Ok(keep(&host, &results))
    })
}

/// Runs every scenario by `run` on all cores; the order is that of the scenarios.
///
/// # Errors
/// The first scenario (in order) that failed.
pub(crate) fn run_each<T: Send>(
    what: &str,
    scenarios: &[Scenario],
    progress: Progress<'_>,
    run: impl Fn(&Scenario) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    let done = std::sync::atomic::AtomicUsize::new(0);
    progress(what, 0, scenarios.len());
    scenarios
        .par_iter()
        .map(|scenario| {
            let kept = run(scenario)?;
            let finished = done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
            progress(what, finished, scenarios.len());
            Ok(kept)
        })
        .collect::<Vec<_>>()
        .into_iter()
        .collect()
}

/// No change, for [`run_all`].
pub(crate) fn as_written(_: &Scenario, _: &mut Host) {}

/// Jobs missed, in percent of those due.
pub(crate) fn miss_percent(jobs: &punctual_model::results::JobStats) -> f64 {
    if jobs.due == 0 { 0.0 } else { 100.0 * jobs.missed as f64 / jobs.due as f64 }
}

pub(crate) fn domain(host: &Host, name: &str) -> Result<DomainIx, Error> {
    let at = host.domains.iter().position(|d| d.name == name);
    at.map(DomainIx).ok_or_else(|| Error::Missing(format!("{} has no domain {name}", host.name)))
}

/// The periodic task of `domain` with the shortest deadline (the most urgent one under rate-monotonic
/// priorities), the first of several.
pub(crate) fn most_urgent_task(host: &Host, domain: DomainIx) -> Option<TaskIx> {
    let deadline = |work: &Work| match work {
        Work::Jobs { deadline, .. } | Work::Served { deadline, .. } => Some(*deadline),
        Work::Hog { .. } => None,
    };
    host.tasks_of(Parent::Domain(domain))
        .filter_map(|(ix, task)| Some((deadline(&task.work)?, ix)))
        .min_by_key(|(deadline, ix)| (*deadline, ix.0))
        .map(|(_, ix)| ix)
}

/// A task's relative deadline in ms; 0 for a hog.
pub(crate) fn deadline_ms(host: &Host, task: TaskIx) -> f64 {
    match host.tasks[task.0].work {
        Work::Jobs { deadline, .. } | Work::Served { deadline, .. } => deadline.as_ns() as f64 / 1e6,
        Work::Hog { .. } => 0.0,
    }
}

/// Misconfigures a periodic task: its cost becomes `percent` of its period.
pub(crate) fn set_utilization(host: &mut Host, task: TaskIx, percent: u64) {
    if let Work::Jobs { arrival: Arrival::Periodic { period, .. }, cost, .. } = &mut host.tasks[task.0].work {
        let ns = period.as_ns() * percent / 100;
        *cost = Cost { min: Duration::from_ns(ns), max: Duration::from_ns(ns) };
    }
}

/// Splits what the periodic tasks of `domain` ask for evenly among them: their costs stay, periods and
/// deadlines follow, in whole ms, rounded up as in RT-Xen's recipe.
pub(crate) fn split_evenly(host: &mut Host, domain: DomainIx) {
    let tasks: Vec<TaskIx> = host.tasks_of(Parent::Domain(domain)).map(|(ix, _)| ix).collect();
    let each = utilization_percent(host, Parent::Domain(domain)) / 100.0 / tasks.len().max(1) as f64;
    for task in tasks {
        if let Work::Jobs { arrival: Arrival::Periodic { period, .. }, cost, deadline } =
            &mut host.tasks[task.0].work
        {
            *period = Duration::from_ms((cost.max.as_ns() as f64 / 1e6 / each).ceil() as u64);
            *deadline = *period;
        }
    }
}

/// Makes the costs and periods of a domain's periodic tasks longer by its budget over `budget`.
pub(crate) fn scale_with_budget(host: &mut Host, budget: Duration) {
    for domain in (0..host.domains.len()).map(DomainIx) {
        let vcpu = host.domains[domain.0].vcpus.start;
        let Some(own) = host.vcpus[vcpu].params.budget else { continue };
        let tasks: Vec<TaskIx> = host.tasks_of(Parent::Domain(domain)).map(|(ix, _)| ix).collect();
        let scaled = |time: Duration| Duration::from_ns(time.as_ns() * own.as_ns() / budget.as_ns());
        for task in tasks {
            if let Work::Jobs { arrival: Arrival::Periodic { period, .. }, cost, deadline } =
                &mut host.tasks[task.0].work
            {
                *cost = Cost { min: scaled(cost.min), max: scaled(cost.max) };
                (*period, *deadline) = (scaled(*period), scaled(*deadline));
            }
        }
    }
}

/// Processor share that the periodic tasks of `parent` ask for.
pub(crate) fn utilization_percent(host: &Host, parent: Parent) -> f64 {
    let share = |work: &Work| match work {
        Work::Jobs { arrival: Arrival::Periodic { period, .. }, cost, .. } => {
            cost.max.as_ns() as f64 / period.as_ns() as f64
        }
        _ => 0.0,
    };
    100.0 * host.tasks_of(parent).map(|(_, task)| share(&task.work)).sum::<f64>()
}
