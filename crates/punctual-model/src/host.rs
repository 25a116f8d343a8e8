//! The validated description of a machine and what runs on it: what `check`, `sim`, `run` and `export` take.
//!
//! Everything is flat and indexed, so an entity's index is its identity everywhere: in results, traces and
//! the simulator. A scheduler is either a pool's policy (over processors) or a domain's guest scheduler
//! (over the domain's vCPUs). Its units are vCPUs of child domains and tasks.

use punctual_jobs::JobStream;
use punctual_sched::registry::{Options, PolicyInfo};
use punctual_sched::{Duration, UnitParams};

use crate::index::{DomainIx, NetworkIx, PoolIx, TaskIx, VcpuIx};
use crate::live::Live;
use crate::locks::{CriticalSection, Resource};
use crate::network::{Chain, Endpoint, Flow, Network};
use crate::placement::Choice;
use crate::smp::SmpWork;

/// The scheduler that a vCPU or task is a unit of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Parent {
    /// The pool's policy: the hypervisor's level.
    Pool(PoolIx),
    /// The domain's guest scheduler: a task in a guest, or the vCPU of a nested domain.
    Domain(DomainIx),
}

/// A machine, its pools, domains, vCPUs, tasks and networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name for titles and results.
    pub name: String,
    /// Seed of everything random: generated tasks, sporadic arrivals, varying costs.
    pub seed: u64,
    /// How long to simulate or run.
    pub duration: Duration,
    /// Number of physical processors; they are numbered from 0.
    pub processors: usize,
    /// What scheduling itself costs on this machine.
    pub overheads: Overheads,
    /// What enforces the policies in a live run.
    pub enforce: Enforce,
    /// Pools, each processor in at most one.
    pub pools: Vec<Pool>,
    /// Domains; a nested domain stands after the domain that it runs in.
    pub domains: Vec<Domain>,
    /// All vCPUs, those of one domain contiguous and in its order.
    pub vcpus: Vec<Vcpu>,
    /// All tasks, those of one parent contiguous and in its order.
    pub tasks: Vec<Task>,
    /// Networks; without one there are no flows and no chains.
    pub networks: Vec<Network>,
    /// What is sent over the networks.
    pub flows: Vec<Flow>,
    /// Tasks that release each other by packets.
    pub chains: Vec<Chain>,
    /// What changes while it runs, in the order of time.
    pub events: Vec<Event>,
    /// The domains whose vCPUs wait for each other, in their order. Such a domain has one task on each vCPU,
    /// which always has work, and no others.
    pub smp: Vec<(DomainIx, SmpWork)>,
}

/// What enforces the policies in a live run: what the host file asks for. The run chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Enforce {
    /// The best that the machine has and the user allows.
    #[default]
    Auto,
    /// An enforcer in user space: real-time priorities, and the freezer of cgroups.
    Freezer,
    /// A scheduler in the kernel, loaded as a BPF program.
    SchedExt,
}

impl Enforce {
    /// The names in the host file and on the command line, in the order of the variants.
    pub const NAMES: [&str; 3] = ["auto", "freezer", "sched-ext"];

    const ALL: [Enforce; 3] = [Enforce::Auto, Enforce::Freezer, Enforce::SchedExt];

    /// Its name in the host file and on the command line.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The one of this name.
    pub fn find(name: &str) -> Option<Enforce> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }
}

/// The machine's scheduling costs. Each is taken from the processor that decides and, as in Xen where the
/// new unit's clock starts before the switch, charged to the unit that is about to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Overheads {
    /// Each scheduling decision of a pool's policy (`do_schedule`).
    pub decision: Duration,
    /// Each change of the unit that a processor runs.
    pub context_switch: Duration,
    /// Added to a context switch when the unit last ran on another processor.
    pub migration: Duration,
    /// How long a decision holds the pool's lock; decisions of other processors of the pool wait for it.
    /// Applies to pools of more than one processor whose policy keeps one queue for all of them.
    pub lock: Duration,
}

/// What to say where scheduling counts as free, and how to change that.
pub const FREE_SCHEDULING: &str = "scheduling costs are taken as zero; \
                                   `punctual calibrate --write HOST.toml` measures them, \
                                   `--overheads xen-4.0` takes published ones";

/// A change of the host at a time of its run (`[event.NAME]`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Name.
    pub name: String,
    /// When, from the beginning of the run.
    pub at: Duration,
    /// What changes.
    pub change: Change,
}

/// What an [`Event`] changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// All vCPUs of a domain get other parameters.
    Params {
        /// The domain.
        domain: DomainIx,
        /// The parameters that change; those that are not set stay. Affinity, best effort and sharing of a
        /// budget never change.
        given: UnitParams,
    },
    /// A pool gets another policy. Its units begin in it as in a new host, with what they have of work.
    Policy {
        /// The pool.
        pool: PoolIx,
        /// The policy.
        policy: PolicyChoice,
    },
}

/// A policy with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyChoice {
    /// Which policy.
    pub info: &'static PolicyInfo,
    /// Options that differ from the policy's defaults.
    pub options: Options,
}

/// Processors scheduled together by one policy (Xen: cpupool).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Name.
    pub name: String,
    /// The machine's processors in this pool, ascending; position = [`punctual_sched::CpuId`] in the policy.
    pub processors: Vec<usize>,
    /// Why these, if the file does not list them.
    pub choice: Option<Choice>,
    /// The policy.
    pub policy: PolicyChoice,
    /// Live: an isolated cpuset partition keeps all other threads off its processors.
    pub isolate: bool,
}

/// A virtual machine: vCPUs to the level above, a guest scheduler over them to its tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Name.
    pub name: String,
    /// The scheduler that its vCPUs are units of.
    pub parent: Parent,
    /// Its vCPUs, a contiguous range of [`Host::vcpus`]; position in the range = processor of the guest.
    pub vcpus: core::ops::Range<usize>,
    /// The guest's scheduler.
    pub guest: PolicyChoice,
    /// Locks of the guest. A domain that has any has one vCPU, and a guest that orders its tasks by
    /// priorities or deadlines.
    pub resources: Vec<Resource>,
    /// Its backend on a real host. A nested domain has the default, which nothing reads.
    pub live: Live,
}

/// A virtual processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vcpu {
    /// Name: the domain's with `.N` appended.
    pub name: String,
    /// The domain it belongs to.
    pub domain: DomainIx,
    /// Its parameters under the policy above it. Affinity is in that policy's processor numbering.
    pub params: UnitParams,
}

/// Something that executes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Name, unique within its parent.
    pub name: String,
    /// The scheduler that it is a unit of.
    pub parent: Parent,
    /// Its parameters under its parent's policy.
    pub params: UnitParams,
    /// What it does.
    pub work: Work,
    /// The parts of its jobs in which it holds resources of its domain: by their beginning, outer ones first.
    pub sections: Vec<CriticalSection>,
}

impl Task {
    /// The most processor time of a job; a hog has no jobs.
    pub fn cost_max(&self) -> Option<Duration> {
        match self.work {
            Work::Jobs { cost, .. } | Work::Served { cost, .. } => Some(cost.max),
            Work::Hog { .. } => None,
        }
    }

    /// From the release of a job to its deadline; a hog has none.
    pub fn deadline(&self) -> Option<Duration> {
        match self.work {
            Work::Jobs { deadline, .. } | Work::Served { deadline, .. } => Some(deadline),
            Work::Hog { .. } => None,
        }
    }
}

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Releases jobs. A job that misses its deadline runs on; later jobs queue up behind it.
    Jobs {
        /// When jobs are released.
        arrival: Arrival,
        /// How much processor time each needs.
        cost: Cost,
        /// Deadline relative to the release.
        deadline: Duration,
    },
    /// Its jobs are released by packets: a step of a chain, or the server of a flow's requests. Jobs queue up
    /// as those of [`Work::Jobs`] do.
    Served {
        /// How much processor time each needs.
        cost: Cost,
        /// Deadline relative to the release.
        deadline: Duration,
    },
    /// Always has work: a busy loop.
    Hog {
        /// When it starts.
        start: Duration,
    },
}

/// When jobs are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// At `offset`, `offset + period`, ...
    Periodic {
        /// Distance of releases.
        period: Duration,
        /// First release.
        offset: Duration,
    },
    /// At least `separation` apart: the distance of two releases is `separation` plus an exponentially
    /// distributed time of mean `slack_mean`, drawn from the task's own seeded stream.
    Sporadic {
        /// Least distance of releases.
        separation: Duration,
        /// Mean of what is added to it.
        slack_mean: Duration,
        /// Earliest first release.
        offset: Duration,
    },
}

/// Processor time of a job: uniformly distributed between both bounds, drawn from the task's seeded stream;
/// constant when they are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Least processor time.
    pub min: Duration,
    /// Most processor time: the worst-case execution time.
    pub max: Duration,
}

impl Arrival {
    /// The jobs of a task that is released like this, in simulations and on real machines; `seed` is
    /// [`Host::task_seed`].
    pub fn jobs(self, cost: Cost, seed: u64) -> JobStream {
        let arrival = match self {
            Arrival::Periodic { period, offset } => {
                punctual_jobs::Arrival::Periodic { period_ns: period.as_ns(), offset_ns: offset.as_ns() }
            }
            Arrival::Sporadic { separation, slack_mean, offset } => punctual_jobs::Arrival::Sporadic {
                separation_ns: separation.as_ns(),
                slack_mean_ns: slack_mean.as_ns(),
                offset_ns: offset.as_ns(),
            },
        };
        JobStream { arrival, cost_min_ns: cost.min.as_ns(), cost_max_ns: cost.max.as_ns(), seed }
    }
}

impl Host {
    /// A host of so many processors on which nothing runs, whose scheduling costs nothing.
    pub fn empty(name: impl Into<String>, processors: usize, seed: u64, duration: Duration) -> Host {
        Host {
            name: name.into(),
            seed,
            duration,
            processors,
            overheads: Overheads::default(),
            enforce: Enforce::default(),
            pools: Vec::new(),
            domains: Vec::new(),
            vcpus: Vec::new(),
            tasks: Vec::new(),
            networks: Vec::new(),
            flows: Vec::new(),
            chains: Vec::new(),
            events: Vec::new(),
            smp: Vec::new(),
        }
    }

    /// What to say of a simulated or analysed host without overheads.
    pub fn free_scheduling(&self) -> Option<&'static str> {
        (self.overheads == Overheads::default()).then_some(FREE_SCHEDULING)
    }

    /// What the vCPUs of a domain do together, if they do.
    pub fn smp_of(&self, domain: DomainIx) -> Option<SmpWork> {
        self.smp.iter().find(|(of, _)| *of == domain).map(|(_, work)| *work)
    }

    /// The seed of everything random about the task's jobs.
    pub fn task_seed(&self, task: TaskIx) -> u64 {
        punctual_jobs::task_seed(self.seed, task.0)
    }

    /// The seed of everything random about the `flow`-th flow.
    pub fn flow_seed(&self, flow: usize) -> u64 {
        punctual_jobs::flow::seed(self.seed, flow)
    }

    /// The tasks whose unit belongs to `parent`, with their indices.
    pub fn tasks_of(&self, parent: Parent) -> impl Iterator<Item = (TaskIx, &Task)> {
        self.tasks.iter().enumerate().filter(move |(_, t)| t.parent == parent).map(|(i, t)| (TaskIx(i), t))
    }

    /// The vCPUs whose unit belongs to `parent`, with their indices.
    pub fn vcpus_of(&self, parent: Parent) -> impl Iterator<Item = (VcpuIx, &Vcpu)> {
        self.vcpus
            .iter()
            .enumerate()
            .filter(move |(_, v)| self.domains[v.domain.0].parent == parent)
            .map(|(i, v)| (VcpuIx(i), v))
    }

    /// The parameters of a vCPU as the policy above it gets them: with its VM, if that has several vCPUs.
    pub fn vcpu_params(&self, vcpu: VcpuIx) -> UnitParams {
        let vcpu = &self.vcpus[vcpu.0];
        let has_several = self.domains[vcpu.domain.0].vcpus.len() > 1;
        let vm = u32::try_from(vcpu.domain.0).ok().filter(|_| has_several);
        UnitParams { vm, ..vcpu.params.clone() }
    }

    /// Do the vCPUs of a domain draw from one budget ([`punctual_sched::vm_server`])? A single one does not.
    pub fn shares_budget(&self, domain: DomainIx) -> bool {
        let vcpus = &self.vcpus[self.domains[domain.0].vcpus.clone()];
        vcpus.len() > 1 && vcpus[0].params.shares_budget
    }

    /// Does the vCPU have a budget of its own? Where all vCPUs of a VM share one, the first has it.
    pub fn has_own_budget(&self, vcpu: VcpuIx) -> bool {
        let domain = self.vcpus[vcpu.0].domain;
        vcpu.0 == self.domains[domain.0].vcpus.start || !self.shares_budget(domain)
    }

    /// The name of a pool or domain.
    pub fn parent_name(&self, parent: Parent) -> &str {
        match parent {
            Parent::Pool(pool) => &self.pools[pool.0].name,
            Parent::Domain(domain) => &self.domains[domain.0].name,
        }
    }

    /// The pool that `parent` is, or that its outermost domain is in.
    pub fn pool_of(&self, mut parent: Parent) -> PoolIx {
        loop {
            match parent {
                Parent::Pool(pool) => return pool,
                // The loop ends: a nested domain stands after the domain that it runs in.
                Parent::Domain(domain) => parent = self.domains[domain.0].parent,
            }
        }
    }

    /// The name of an end of a flow over `network`.
    pub fn endpoint_name(&self, network: NetworkIx, end: Endpoint) -> &str {
        match end {
            Endpoint::Guest(domain) => &self.domains[domain.0].name,
            Endpoint::Outside(outside) => &self.networks[network.0].outside[outside].name,
        }
    }
}
