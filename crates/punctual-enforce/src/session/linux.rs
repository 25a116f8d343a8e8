//! Plain Linux instead of a policy: how its schedulers are given a unit, and how they differ from the file.

use punctual_sched::UnitParams;

use crate::unit::{self, HIGHEST, LOWEST, LiveUnit};
use punctual_linux::os::sched::{self, Attributes};
use punctual_linux::preflight;

/// A scheduler of plain Linux; nothing is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinuxScheduler {
    /// The fair scheduler: the units are confined to the processors, nothing else.
    Cfs,
    /// SCHED_FIFO by the units' priorities, no budgets.
    Fifo,
    /// SCHED_DEADLINE with budget and period as runtime and period. The kernel admits it only for threads
    /// that may run on all processors, so these are not confined to the pool.
    Deadline,
}

impl LinuxScheduler {
    /// All of them with their names on the command line and in results.
    pub const ALL: [(&str, LinuxScheduler); 3] = [
        ("linux-cfs", LinuxScheduler::Cfs),
        ("linux-fifo", LinuxScheduler::Fifo),
        ("linux-deadline", LinuxScheduler::Deadline),
    ];

    /// The one of that name.
    pub fn find(name: &str) -> Option<LinuxScheduler> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, scheduler)| scheduler)
    }

    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        let own = Self::ALL.into_iter().find(|(_, scheduler)| *scheduler == self);
        own.map_or("linux", |(name, _)| name)
    }

    /// Schedules a unit of a pool with these processors.
    ///
    /// # Errors
    /// Its threads are gone or may not be changed, or it lacks what the scheduler needs.
    pub(super) fn schedule(
        self,
        unit: &LiveUnit,
        params: &UnitParams,
        processors: &[usize],
    ) -> Result<(), unit::Error> {
        let attributes = self.attributes(params).ok_or(unit::Error::NoBudget)?;
        // The kernel admits SCHED_DEADLINE only for threads that may run everywhere.
        if attributes.policy != sched::DEADLINE {
            unit.set_affinity(processors)?;
        }
        unit.set_attributes(&attributes)
    }

    /// The attributes of a unit with these parameters; `None` where they lack what the scheduler needs.
    pub(super) fn attributes(self, params: &UnitParams) -> Option<Attributes> {
        match self {
            _ if params.best_effort => Some(Attributes::other()),
            LinuxScheduler::Cfs => Some(Attributes::other()),
            LinuxScheduler::Fifo => {
                let below = params.priority.unwrap_or(u32::MAX).min(HIGHEST - LOWEST);
                Some(Attributes::fifo(HIGHEST - below))
            }
            LinuxScheduler::Deadline => {
                let (budget, period) = params.budget.zip(params.period)?;
                Some(Attributes::deadline(budget.as_ns(), period.as_ns()))
            }
        }
    }

    /// How far it is from what the host file says; for SCHED_DEADLINE, from RTDS, which it comes nearest to.
    pub(super) fn differences(self, processors: &[usize]) -> Vec<String> {
        match self {
            LinuxScheduler::Cfs => {
                vec!["no budgets and no priorities: everybody gets the same share".into()]
            }
            LinuxScheduler::Fifo => {
                vec!["no budgets: the most urgent that is ready runs for as long as it likes".into()]
            }
            LinuxScheduler::Deadline => deadline_differences(processors),
        }
    }
}

fn deadline_differences(processors: &[usize]) -> Vec<String> {
    let mut differences = vec![
        "a vCPU that wakes up after its deadline, or with more budget left than its share, begins a new \
         period then (kernel/sched/deadline.c, update_dl_entity); RTDS's periods follow each other from its \
         start"
            .to_owned(),
        "the end of a budget is noticed at the kernel's tick, unless its feature HRTICK_DL is on; the \
         overrun is paid back from the next budget"
            .into(),
        "budgets are hard: there is no extra time, which RTDS gives by default".into(),
    ];
    let online = preflight::online();
    if processors.len() < online.len() {
        differences.push(format!(
            "vCPUs may run on processors {}, not only on the pool's {}: Linux admits SCHED_DEADLINE threads \
             only with the whole root domain",
            preflight::list(&online),
            preflight::list(processors)
        ));
    }
    differences
}
