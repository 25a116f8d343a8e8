//! The machine's state. `engine.rs` moves it through time.

use punctual_model::Host;
use punctual_model::results::JobStats;
use punctual_model::trace::{Entity, TraceEvent, TraceSink};
use punctual_model::{Recorder, index};
use punctual_sched::registry::PolicyInfo;
use punctual_sched::{CpuId, CpuSet, Duration, Instant, Policy, Run, UnitId};

use crate::arrivals::{Arrivals, Job};
use crate::checks::History;
use crate::min_tree::MinTree;
use crate::net::Net;

/// "No unit", "no processor".
pub(crate) const NONE: u32 = u32::MAX;

/// A scheduler: a pool's policy or a guest's.
pub(crate) struct Sched {
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) info: &'static PolicyInfo,
    /// Machine-wide processor index by [`CpuId`].
    pub(crate) procs: Box<[u32]>,
    /// Machine-wide unit index by [`UnitId`].
    pub(crate) units: Vec<u32>,
    /// Where the policy puts the processors that should pick again; emptied after each call.
    pub(crate) resched: CpuSet,
    /// Units that have work.
    pub(crate) awake: u32,
    /// Units that some processor of this scheduler has picked.
    pub(crate) running: u32,
    /// The pool's lock is held until then.
    pub(crate) lock_free_at: Instant,
    /// Is it in `Machine::touched_scheds`?
    pub(crate) touched: bool,
    /// In a large scheduler: how often its waiting units could have been checked, see `checks.rs`.
    pub(crate) check_turn: u32,
}

/// Something that a scheduler schedules on: a physical processor, or a vCPU seen from inside.
pub(crate) struct Proc {
    /// The scheduler that picks for it; `NONE` for a processor in no pool.
    pub(crate) sched: u32,
    pub(crate) cpu: CpuId,
    /// The kernel that does network work on this vCPU ahead of what its guest picks, or `NONE`.
    pub(crate) kernel: u32,
    /// What was picked last.
    pub(crate) run: Run,
    /// Machine-wide index of the unit in `run`, or `NONE`.
    pub(crate) unit: u32,
    /// Does it execute? Always for a physical processor; a vCPU only while it is itself picked by an
    /// executing processor, and its kernel has nothing to do.
    pub(crate) powered: bool,
    /// The physical processor that it executes on while powered.
    pub(crate) root: u32,
    /// Must it pick when it next can? For a vCPU without power, or a processor that is in the middle of a
    /// context switch.
    pub(crate) resched: bool,
    /// Is it in a list of processors that pick at this instant?
    pub(crate) pending: bool,
    /// Physical: is it in `Machine::touched_procs`?
    pub(crate) touched: bool,
    /// The slice ends then; valid while powered.
    pub(crate) until: Instant,
    /// What is left of the slice while it has no power; `Duration::MAX` for an unlimited slice.
    pub(crate) slice_left: Duration,
    /// Charged up to here. In the future while a switch to it is under way.
    pub(crate) charged_to: Instant,
    /// The picked unit executes from then on; before that, the scheduler does.
    pub(crate) exec_from: Instant,
    pub(crate) busy: Duration,
    pub(crate) idle: Duration,
    pub(crate) overhead: Duration,
    pub(crate) decisions: u64,
    pub(crate) context_switches: u64,
}

/// Something that is scheduled: a vCPU or a task. vCPUs come first in `Machine::units`.
pub(crate) struct Unit {
    pub(crate) sched: u32,
    pub(crate) id: UnitId,
    /// Where it may run, at hand for the check of every decision.
    pub(crate) allowed: Allowed,
    /// Has it work?
    pub(crate) awake: bool,
    /// The processor that has picked it, or `NONE`.
    pub(crate) running_on: u32,
    /// The processor that last picked it, or `NONE`.
    pub(crate) last_on: u32,
    /// Time charged to it: execution and the cost of switching to it.
    pub(crate) charged: Duration,
    pub(crate) context_switches: u64,
    pub(crate) migrations: u64,
}

/// A unit's affinity in short.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// It may run on every processor of its scheduler.
    All,
    /// On this one only.
    Only(CpuId),
    /// On several: the host says which.
    Several,
}

/// What a vCPU has beyond a unit.
pub(crate) struct VcpuState {
    /// It woke then and has not run since; `Instant::NEVER` otherwise.
    pub(crate) woken_at: Instant,
    pub(crate) idled_away: Duration,
    pub(crate) wakes: u64,
    pub(crate) sleeps: u64,
    pub(crate) wake_latency: Recorder,
}

/// What a task has beyond a unit.
pub(crate) struct TaskState {
    pub(crate) arrivals: Arrivals,
    /// The job to be released next.
    pub(crate) head: Job,
    /// The job being served, or to be served next.
    pub(crate) current: Job,
    /// Processor time that the current job still needs.
    pub(crate) remaining: Duration,
    /// Processor time of all its jobs so far.
    pub(crate) executed: Duration,
    /// Has the current job executed at all?
    pub(crate) started: bool,
    pub(crate) jobs: JobStats,
}

/// Everything.
pub(crate) struct Machine<'h, T> {
    pub(crate) host: &'h Host,
    pub(crate) trace: &'h mut T,
    /// Trace events that lie in the future: the end of a context switch.
    pub(crate) trace_later: Vec<(Instant, TraceEvent)>,
    /// Budgets last told to the trace, by unit.
    pub(crate) traced_budgets: Vec<Option<Duration>>,
    pub(crate) now: Instant,
    pub(crate) end: Instant,
    /// Pools, then domains.
    pub(crate) scheds: Vec<Sched>,
    /// Physical processors, then vCPUs.
    pub(crate) procs: Vec<Proc>,
    /// Number of physical processors.
    pub(crate) physical: usize,
    /// vCPUs, then tasks.
    pub(crate) units: Vec<Unit>,
    pub(crate) vcpus: Vec<VcpuState>,
    pub(crate) tasks: Vec<TaskState>,
    /// Next event of each physical processor and of what executes on it.
    pub(crate) proc_events: MinTree,
    /// Next timer of each scheduler.
    pub(crate) timers: MinTree,
    /// Next release of each task.
    pub(crate) releases: MinTree,
    /// Processors that pick at this instant: vCPUs and physical ones.
    pub(crate) pending_virtual: Vec<u32>,
    pub(crate) pending_physical: Vec<u32>,
    /// Physical processors whose next event may have changed.
    pub(crate) touched_procs: Vec<u32>,
    /// Schedulers whose policy was called.
    pub(crate) touched_scheds: Vec<u32>,
    /// Releases, completions, wake-ups and sleeps so far.
    pub(crate) events: u64,
    /// Driver domains, interfaces, flows.
    pub(crate) net: Net,
    pub(crate) history: History,
    pub(crate) violation: Option<String>,
}

impl<T: TraceSink> Machine<'_, T> {
    /// The processor index of a vCPU's unit, or `None` for a task.
    #[inline]
    pub(crate) fn child_proc(&self, unit: u32) -> Option<usize> {
        let unit = unit as usize;
        (unit < self.vcpus.len()).then(|| self.physical + unit)
    }

    /// The task index of a unit, or `None` for a vCPU.
    #[inline]
    pub(crate) fn task_of(&self, unit: u32) -> Option<usize> {
        (unit as usize).checked_sub(self.vcpus.len())
    }

    pub(crate) fn entity(&self, unit: u32) -> Entity {
        match self.task_of(unit) {
            Some(task) => Entity::Task(index::TaskIx(task)),
            None => Entity::Vcpu(index::VcpuIx(unit as usize)),
        }
    }

    pub(crate) fn unit_name(&self, unit: u32) -> String {
        match self.task_of(unit) {
            Some(task) => {
                let task = &self.host.tasks[task];
                format!("task {}/{}", self.host.parent_name(task.parent), task.name)
            }
            None => format!("vCPU {}", self.host.vcpus[unit as usize].name),
        }
    }

    pub(crate) fn proc_name(&self, proc: usize) -> String {
        match proc.checked_sub(self.physical) {
            Some(vcpu) => format!("vCPU {}", self.host.vcpus[vcpu].name),
            None => format!("processor {proc}"),
        }
    }

    /// May the unit run on this processor of its scheduler?
    #[inline]
    pub(crate) fn may_run_on(&self, unit: u32, cpu: CpuId) -> bool {
        match self.units[unit as usize].allowed {
            Allowed::All => true,
            Allowed::Only(only) => only == cpu,
            Allowed::Several => self.affinity(unit).is_some_and(|set| set.contains(cpu)),
        }
    }

    /// The processors of its scheduler that a unit may run on; `None`: all.
    fn affinity(&self, unit: u32) -> Option<&CpuSet> {
        match self.task_of(unit) {
            Some(task) => self.host.tasks[task].params.affinity.as_ref(),
            None => self.host.vcpus[unit as usize].params.affinity.as_ref(),
        }
    }
}
