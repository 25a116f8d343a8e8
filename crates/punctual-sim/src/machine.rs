//! The machine's state. `engine.rs` moves it through time.

use punctual_model::Histogram;
use punctual_model::Host;
use punctual_model::index::TaskIx;
use punctual_model::results::JobStats;
use punctual_sched::{CpuId, CpuSet, Duration, Instant, Policy, Run, UnitId};

use crate::arrivals::{Arrivals, Job};
use crate::index::{KernelIx, Occupant, ProcessorIx, SchedulerIx, UnitIx, indexes};
use crate::locks::Locks;
use crate::min_tree::MinTree;
use crate::net::Net;
use crate::observe::{Observer, Scheduler};
use crate::smp::Smp;

/// A scheduler: a pool's policy or a guest's.
pub(crate) struct Sched {
    pub(crate) policy: Box<dyn Policy>,
    /// Do its processors share one run queue, and so one lock?
    pub(crate) shared_queue: bool,
    /// Machine-wide processor index by [`CpuId`].
    pub(crate) procs: Box<[ProcessorIx]>,
    /// Machine-wide unit index by [`UnitId`].
    pub(crate) units: Vec<UnitIx>,
    /// Where the policy puts the processors that should pick again; emptied after each call.
    pub(crate) resched: CpuSet,
    /// The pool's lock is held until then.
    pub(crate) lock_free_at: Instant,
    /// Is it in `Machine::touched_scheds`?
    pub(crate) touched: bool,
}

/// How often a unit ran out of budget and got some.
#[derive(Clone, Copy, Default)]
pub(crate) struct BudgetCounts {
    pub(crate) exhaustions: u64,
    pub(crate) replenishments: u64,
}

impl Sched {
    /// The scheduler as observers see it.
    #[inline(always)]
    pub(crate) fn seen(&self, ix: SchedulerIx) -> Scheduler<'_> {
        Scheduler { ix, policy: &*self.policy, processors: &self.procs, units: &self.units }
    }

    /// What its policy picked, in the machine's terms.
    #[inline(always)]
    pub(crate) fn occupant(&self, run: Run) -> Occupant {
        match run {
            Run::Idle => Occupant::IDLE,
            Run::IdleFor(id) => Occupant::idle_for(self.units[id.index()]),
            Run::Unit(id) => Occupant::unit(self.units[id.index()]),
        }
    }
}

/// Something that a scheduler schedules on: a physical processor, or a vCPU seen from inside.
pub(crate) struct Proc {
    /// The scheduler that picks for it; none for a processor in no pool.
    pub(crate) sched: SchedulerIx,
    pub(crate) cpu: CpuId,
    /// The kernel that does network work on this vCPU ahead of what its guest picks, or none.
    pub(crate) kernel: KernelIx,
    /// What was picked last.
    pub(crate) occupant: Occupant,
    /// Does it execute? Always for a physical processor; a vCPU only while it is itself picked by an
    /// executing processor, and its kernel has nothing to do.
    pub(crate) powered: bool,
    /// The physical processor that it executes on while powered.
    pub(crate) root: ProcessorIx,
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
    pub(crate) sched: SchedulerIx,
    pub(crate) id: UnitId,
    pub(crate) awake: bool,
    pub(crate) running_on: ProcessorIx,
    /// The processor that last picked it, or none.
    pub(crate) last_on: ProcessorIx,
    pub(crate) context_switches: u64,
    pub(crate) migrations: u64,
}

/// What a vCPU has beyond a unit.
pub(crate) struct VcpuState {
    /// It woke then and has not run since; `Instant::NEVER` otherwise.
    pub(crate) woken_at: Instant,
    /// Time charged to it: execution and the cost of switching to it.
    pub(crate) charged: Duration,
    pub(crate) idled_away: Duration,
    pub(crate) wakes: u64,
    pub(crate) sleeps: u64,
    pub(crate) wake_latency: Histogram,
}

/// What a task has beyond a unit.
pub(crate) struct TaskState {
    pub(crate) arrivals: Arrivals,
    pub(crate) head: Job,
    /// The job being served, or to be served next.
    pub(crate) current: Job,
    /// Processor time that the current job still needs.
    pub(crate) remaining: Duration,
    /// What is left of that when the task next locks or unlocks something; nothing if it does not.
    pub(crate) pause: Duration,
    /// Processor time of all its jobs so far.
    pub(crate) executed: Duration,
    /// Has the current job executed at all?
    pub(crate) started: bool,
    pub(crate) jobs: JobStats,
}

indexes!(SchedulerIx, Sched);
indexes!(ProcessorIx, Proc);
indexes!(UnitIx, Unit);

/// The events of the host that are still to come.
pub(crate) struct Changes {
    /// The next one happens then.
    pub(crate) at: Instant,
    /// The first instant at which the machine cannot simply go on: that of the next one, or the first after
    /// the end.
    pub(crate) pause: Instant,
    /// Its index.
    pub(crate) next: usize,
    /// By event, the policy that a pool gets, without units.
    pub(crate) policies: Vec<Option<Box<dyn Policy>>>,
    /// By pool, and in it by unit, what former policies counted; empty if there was none.
    pub(crate) counted: Vec<Vec<BudgetCounts>>,
}

impl Changes {
    /// What former policies of a scheduler counted of a unit.
    pub(crate) fn counted(&self, sched: SchedulerIx, id: UnitId) -> BudgetCounts {
        let of_sched = self.counted.get(sched.index());
        of_sched.and_then(|counted| counted.get(id.index())).copied().unwrap_or_default()
    }

    /// The next one is that of this index.
    pub(crate) fn set_next(&mut self, host: &Host, event: usize) {
        self.next = event;
        self.at = host.events.get(event).map_or(Instant::NEVER, |event| Instant::ZERO + event.at);
        self.pause = self.at.min(Instant::ZERO + host.duration + Duration::from_ns(1));
    }
}

pub(crate) struct Machine<'h, O> {
    pub(crate) host: &'h Host,
    pub(crate) observer: O,
    pub(crate) now: Instant,
    pub(crate) end: Instant,
    /// Pools, then domains.
    pub(crate) scheds: Vec<Sched>,
    /// Physical processors, then vCPUs.
    pub(crate) procs: Vec<Proc>,
    pub(crate) physical: usize,
    /// vCPUs, then tasks.
    pub(crate) units: Vec<Unit>,
    pub(crate) vcpus: Vec<VcpuState>,
    pub(crate) tasks: Vec<TaskState>,
    /// Next event of each physical processor and of what executes on it.
    pub(crate) proc_events: MinTree,
    pub(crate) timers: MinTree,
    pub(crate) releases: MinTree,
    /// Processors that pick at this instant: vCPUs and physical ones.
    pub(crate) pending_virtual: Vec<ProcessorIx>,
    pub(crate) pending_physical: Vec<ProcessorIx>,
    /// Physical processors whose next event may have changed.
    pub(crate) touched_procs: Vec<ProcessorIx>,
    pub(crate) touched_scheds: Vec<SchedulerIx>,
    /// Releases, completions, wake-ups and sleeps so far.
    pub(crate) events: u64,
    /// Driver domains, interfaces, flows.
    pub(crate) net: Net,
    pub(crate) locks: Locks,
    pub(crate) smp: Smp,
    pub(crate) changes: Changes,
}

impl<O: Observer> Machine<'_, O> {
    /// A vCPU as its guest sees it: the processor that a unit is. `None`: the unit is a task.
    #[inline]
    pub(crate) fn child_proc(&self, unit: UnitIx) -> Option<ProcessorIx> {
        (unit.index() < self.vcpus.len()).then(|| ProcessorIx::new(self.physical + unit.index()))
    }

    /// What executes inside a vCPU that this processor has picked, if it has picked one.
    #[inline]
    pub(crate) fn inside(&self, proc: ProcessorIx) -> Option<ProcessorIx> {
        self.child_proc(self.procs[proc].occupant.runs()?)
    }

    /// The vCPU that a processor is, as a unit; `None`: it is a physical one.
    #[inline]
    pub(crate) fn vcpu_of(&self, proc: ProcessorIx) -> Option<UnitIx> {
        proc.index().checked_sub(self.physical).map(UnitIx::new)
    }

    #[inline]
    pub(crate) fn unit_of(&self, task: TaskIx) -> UnitIx {
        UnitIx::new(self.vcpus.len() + task.0)
    }
}
