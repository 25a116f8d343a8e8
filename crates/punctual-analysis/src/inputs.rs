//! What is analysed: the host, which unit belongs to which scheduler, and what networks add to the host's own
//! tasks. None of it changes during an analysis.

use std::collections::BTreeMap;

use punctual_model::Host;
use punctual_model::host::{Arrival, Domain, Parent, Pool, Task, Work};
use punctual_model::index::{DomainIx, PoolIx, TaskIx, VcpuIx};
use punctual_sched::{CpuId, CpuSet, Duration, UnitParams};

use crate::demand::{Demand, NANOSECOND};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum UnitIx {
    Vcpu(VcpuIx),
    Task(TaskIx),
}

#[derive(Clone, Default)]
pub(crate) struct Units {
    tasks: Vec<TaskIx>,
    pub(crate) vcpus: Vec<VcpuIx>,
}

impl Units {
    /// vCPUs before tasks, each in the host's order: the order in which they are inserted.
    pub(crate) fn all(&self) -> impl Iterator<Item = UnitIx> {
        let vcpus = self.vcpus.iter().copied().map(UnitIx::Vcpu);
        vcpus.chain(self.tasks.iter().copied().map(UnitIx::Task))
    }
}

/// Which unit belongs to which scheduler. It stays the same whatever parameters the units get.
pub(crate) struct Index {
    /// But for the best-effort ones, which no other unit meets.
    in_pool: Vec<Units>,
    in_domain: Vec<Units>,
    /// Best-effort units of pools.
    pub(crate) best_effort: Vec<UnitIx>,
    /// By domain: what its tasks share.
    sharing: Vec<Sharing>,
}

/// Whether the tasks of a domain share resources.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sharing {
    /// None has critical sections.
    Nothing,
    /// They cannot wait for each other forever.
    InOrder,
    /// They may wait for each other forever; a resource, by index, that they take in different orders.
    Deadlock(usize),
}

impl Sharing {
    fn of(host: &Host, domain: DomainIx) -> Self {
        let has_sections = |(_, task): (TaskIx, &Task)| !task.sections.is_empty();
        if host.domains[domain.0].resources.is_empty()
            || !host.tasks_of(Parent::Domain(domain)).any(has_sections)
        {
            return Sharing::Nothing;
        }
        host.deadlock(domain).map_or(Sharing::InOrder, |ring| Sharing::Deadlock(ring[0]))
    }
}

impl Index {
    pub(crate) fn new(host: &Host) -> Self {
        let mut index = Index {
            in_pool: vec![Units::default(); host.pools.len()],
            in_domain: vec![Units::default(); host.domains.len()],
            best_effort: Vec::new(),
            sharing: (0..host.domains.len()).map(|domain| Sharing::of(host, DomainIx(domain))).collect(),
        };
        for (v, vcpu) in host.vcpus.iter().enumerate() {
            if vcpu.params.best_effort {
                index.best_effort.push(UnitIx::Vcpu(VcpuIx(v)));
                continue;
            }
            // One that draws from the budget of another one is no server of its own.
            if host.has_own_budget(VcpuIx(v)) {
                index.units_mut(host.domains[vcpu.domain.0].parent).vcpus.push(VcpuIx(v));
            }
        }
        for (t, task) in host.tasks.iter().enumerate() {
            index.units_mut(task.parent).tasks.push(TaskIx(t));
        }
        index
    }

    fn units_mut(&mut self, parent: Parent) -> &mut Units {
        match parent {
            Parent::Pool(PoolIx(pool)) => &mut self.in_pool[pool],
            Parent::Domain(DomainIx(domain)) => &mut self.in_domain[domain],
        }
    }

    pub(crate) fn in_pool(&self, pool: PoolIx) -> &Units {
        &self.in_pool[pool.0]
    }

    /// What tasks of the domain share.
    pub(crate) fn sharing(&self, domain: DomainIx) -> Sharing {
        self.sharing[domain.0]
    }

    pub(crate) fn in_domain(&self, domain: DomainIx) -> &Units {
        &self.in_domain[domain.0]
    }
}

/// What networks add to the host's own tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// By vCPU: the work of its domain's kernel in interrupt context, ahead of all tasks.
    pub(crate) kernels: BTreeMap<VcpuIx, Vec<KernelWork>>,
    /// By task that packets release: what arrives. Without an entry it is unknown.
    pub(crate) served: BTreeMap<TaskIx, Demand>,
}

/// Hosts without networks.
pub(crate) static NO_LOAD: Load = Load { kernels: BTreeMap::new(), served: BTreeMap::new() };

/// What one flow makes a kernel do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KernelWork {
    /// For all packets of a burst together.
    pub(crate) demand: Demand,
    /// Packets in a burst; each of them may find the vCPU asleep.
    pub(crate) wakes: u64,
}

/// Everything that an analysis reads.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'h> {
    pub(crate) host: &'h Host,
    pub(crate) index: &'h Index,
    pub(crate) load: &'h Load,
}

impl<'h> Inputs<'h> {
    /// A host whose networks, if it has any, carry no packets.
    pub(crate) fn new(host: &'h Host, index: &'h Index) -> Self {
        Inputs { host, index, load: &NO_LOAD }
    }

    pub(crate) fn pools(self) -> impl Iterator<Item = PoolIx> {
        (0..self.host.pools.len()).map(PoolIx)
    }

    pub(crate) fn pool(self, pool: PoolIx) -> &'h Pool {
        &self.host.pools[pool.0]
    }

    pub(crate) fn domain_of(self, vcpu: VcpuIx) -> &'h Domain {
        &self.host.domains[self.host.vcpus[vcpu.0].domain.0]
    }

    /// Is the vCPU one of several that share a budget?
    pub(crate) fn shares_budget(self, vcpu: VcpuIx) -> bool {
        self.host.shares_budget(self.host.vcpus[vcpu.0].domain)
    }

    /// What the scheduler inside a vCPU's domain schedules.
    pub(crate) fn units_beside(self, vcpu: VcpuIx) -> impl Iterator<Item = UnitIx> {
        self.index.in_domain(self.host.vcpus[vcpu.0].domain).all()
    }

    /// The tasks that the scheduler inside a vCPU's domain schedules.
    pub(crate) fn tasks_beside(self, vcpu: VcpuIx) -> impl Iterator<Item = TaskIx> {
        self.index.in_domain(self.host.vcpus[vcpu.0].domain).tasks.iter().copied()
    }

    pub(crate) fn params(self, unit: UnitIx) -> &'h UnitParams {
        params(self.host, unit)
    }

    /// The unit's priority; a smaller number is more urgent.
    pub(crate) fn priority(self, unit: UnitIx) -> u32 {
        self.params(unit).priority.unwrap_or(u32::MAX)
    }

    pub(crate) fn work(self, task: TaskIx) -> &'h Work {
        &self.host.tasks[task.0].work
    }

    /// What a task asks for; `None` for what has no bound: a busy loop, or jobs released by packets that may
    /// come at any rate.
    pub(crate) fn demand(self, task: TaskIx) -> Option<Demand> {
        match self.work(task) {
            Work::Jobs { arrival, cost, deadline } => {
                let period = separation(arrival).max(NANOSECOND);
                // The shortest job takes 1 ns.
                Some(Demand::implicit(cost.max.max(NANOSECOND), period).due(*deadline))
            }
            Work::Served { .. } => self.load.served.get(&task).copied(),
            Work::Hog { .. } => None,
        }
    }

    /// Do packets release the task's jobs?
    pub(crate) fn is_served(self, task: TaskIx) -> bool {
        matches!(self.work(task), Work::Served { .. })
    }

    /// Those of `tasks` that release jobs themselves, and what they ask for.
    pub(crate) fn releasing(self, tasks: &[TaskIx]) -> (Vec<TaskIx>, Vec<Demand>) {
        let own = tasks.iter().copied().filter(|task| !self.is_served(*task));
        own.filter_map(|task| Some((task, self.demand(task)?))).unzip()
    }

    /// The kernel's work on a vCPU, if it has any.
    pub(crate) fn kernel(self, vcpu: VcpuIx) -> Option<&'h [KernelWork]> {
        self.load.kernels.get(&vcpu).map(Vec::as_slice)
    }
}

pub(crate) fn params(host: &Host, unit: UnitIx) -> &UnitParams {
    match unit {
        UnitIx::Vcpu(v) => &host.vcpus[v.0].params,
        UnitIx::Task(t) => &host.tasks[t.0].params,
    }
}

pub(crate) fn name(host: &Host, unit: UnitIx) -> &str {
    match unit {
        UnitIx::Vcpu(v) => &host.vcpus[v.0].name,
        UnitIx::Task(t) => &host.tasks[t.0].name,
    }
}

/// The name of the domain that a task runs in, or of the pool that schedules it itself.
pub(crate) fn parent_of(host: &Host, task: TaskIx) -> &str {
    match host.tasks[task.0].parent {
        Parent::Pool(pool) => &host.pools[pool.0].name,
        Parent::Domain(domain) => &host.domains[domain.0].name,
    }
}

/// The least distance of two releases.
pub(crate) fn separation(arrival: &Arrival) -> Duration {
    match *arrival {
        Arrival::Periodic { period, .. } => period,
        Arrival::Sporadic { separation, .. } => separation,
    }
}

/// Does this affinity allow the processor?
pub(crate) fn may_run_on(affinity: Option<&CpuSet>, processor: usize) -> bool {
    affinity.is_none_or(|set| set.contains(CpuId(processor as u32)))
}

/// The only one of `processors` that a unit may run on, if there is only one.
pub(crate) fn only_processor(affinity: Option<&CpuSet>, processors: usize) -> Option<usize> {
    let mut allowed = (0..processors).filter(|p| may_run_on(affinity, *p));
    let first = allowed.next()?;
    allowed.next().is_none().then_some(first)
}
