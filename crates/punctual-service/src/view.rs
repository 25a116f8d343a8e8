//! What the control interface shows: the values of `io.punctual.Host`, by its field names.

use std::collections::BTreeMap;
use std::path::Path;

use punctual_hold::protocol::{HeldActor, HeldRole, HeldVcpu, RefusedInterrupt};
use punctual_linux::os::proc::{parse_processor, parse_rt_priority};
use punctual_linux::os::sched;
use punctual_linux::vmm::Role;
use punctual_model::placement::{Slot, SlotPlace, slot_processors};
use punctual_model::service::{Adjustment, Class, Match, ServiceConfig};
use punctual_model::topology::Topology;
use punctual_sched::{Duration, UnitParams};
use serde::{Deserialize, Serialize};

use crate::actor::{Actor, State, What};
use crate::hints::HintsView;
use crate::log::Entry;
use crate::registry::Registry;
use crate::sample::{Sampled, share};
use crate::waits::{CauseView, PartView, SourceView};

/// A thread of a VM or a unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    pub tid: u32,
    pub name: String,
    pub role: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpu: Option<u32>,
    /// The processor on which it was last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<usize>,
    /// The processors on which it may run.
    pub processors: Vec<usize>,
    /// Its real-time priority; 0 in the fair classes.
    pub rt_priority: u32,
    pub run_ns: u64,
    pub wait_ns: u64,
    /// Shares of a processor in the last interval between two samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_share: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_share: Option<f64>,
}

/// All threads of a VM or a unit with one role, those that have ended included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleTotal {
    pub role: String,
    /// How many live.
    pub threads: usize,
    pub run_ns: u64,
    pub wait_ns: u64,
}

/// Something that the operator should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    pub kind: String,
    pub text: String,
}

/// A VM, or a unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActorView {
    /// `vm`, `unit`, or `cgroup`.
    pub kind: String,
    pub name: String,
    /// The VM's; the oldest one of a unit.
    pub process: u32,
    /// How many processes it has.
    pub processes: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monitor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    pub is_libvirt: bool,
    pub owner: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The path of its cgroup below the root of version 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// When it was seen, in us since 1970.
    pub seen_us: u64,
    pub threads: Vec<Thread>,
    pub roles: Vec<RoleTotal>,
    /// What it gets instead of what its class gives.
    #[serde(default, skip_serializing_if = "Adjustment::is_empty")]
    pub adjustment: Adjustment,
    /// Is it to be left alone?
    #[serde(default)]
    pub is_paused: bool,
    /// Why it is not held although it is to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_held: Option<String>,
    /// What its vCPUs that are held get.
    #[serde(default)]
    pub budgets: Vec<HeldVcpu>,
    /// Where its threads are that are no vCPUs, and why, by their role.
    #[serde(default)]
    pub helpers: Vec<HeldRole>,
    /// What its vCPUs and helpers waited for.
    #[serde(default)]
    pub waits: Vec<PartView>,
    /// What all its threads waited for in the last hour, to five minutes; the greatest first.
    #[serde(default)]
    pub lately: Vec<CauseView>,
    /// What KVM counts of a VM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hints: Option<HintsView>,
    pub warnings: Vec<Warning>,
}

/// A class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassView {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    pub best_effort: bool,
    /// Do the vCPUs of a VM draw from one budget?
    pub shares_budget: bool,
    /// Names for `punctual exec` that it matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exec: Vec<String>,
    /// VMs and units that belong to it now.
    pub actors: usize,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolView {
    pub name: String,
    pub processors: Vec<usize>,
    /// Why these; absent where the configuration lists them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// SMT siblings that stay idle.
    #[serde(default)]
    pub idle: Vec<usize>,
    pub policy: String,
    /// The sum of budget / period of all vCPUs of its classes that run now, in processors.
    pub asked: f64,
}

/// A slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotView {
    pub name: String,
    /// Whose processors they are, if the configuration does not list them: a class, or a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    pub processors: Vec<usize>,
    /// Pools and classes that are near it, and those whose helper threads are in it.
    pub joined: Vec<String>,
}

/// The interrupts of a device that a class matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptsView {
    pub device: String,
    pub class: String,
    pub numbers: Vec<usize>,
    /// To which they went when they were looked at last.
    pub processors: Vec<usize>,
    /// To which they may go by the class; absent while nothing is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<Vec<usize>>,
    /// Why these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Those that stay where they are.
    pub refused: Vec<RefusedInterrupt>,
}

/// The service and what it knows of the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostView {
    pub version: String,
    /// `observe` or `enforce`.
    pub mode: String,
    /// The directory of its configuration.
    pub configuration: String,
    /// When the service started, in us since 1970.
    pub started_us: u64,
    pub processors: usize,
    pub actors: usize,
    /// Since the service started.
    pub actors_seen: u64,
    pub actors_released: u64,
    pub classes: Vec<ClassView>,
    pub pools: Vec<PoolView>,
    #[serde(default)]
    pub slots: Vec<SlotView>,
    #[serde(default)]
    pub interrupts: Vec<InterruptsView>,
    /// Why the last reload was refused; absent when it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reload_error: Option<String>,
    pub hook_messages: u64,
    pub hook_garbage: u64,
    pub clients: usize,
    /// Clients that were disconnected because they sent garbage or did not read.
    pub clients_dropped: u64,
    /// Processor time of the service.
    pub cpu_ns: u64,
    /// Processor time of the enforcing process, while it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforcer_cpu_ns: Option<u64>,
    /// What enforces, by its name in host files; absent while nothing is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Where the service knows from what VMs wait for.
    #[serde(default)]
    pub waits: SourceView,
    pub warnings: Vec<Warning>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventView {
    pub kind: String,
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
}

impl From<&Entry> for EventView {
    fn from(entry: &Entry) -> EventView {
        let (actor, process) = entry.actor.clone().unzip();
        let (kind, text) = (entry.kind.name().to_owned(), entry.text.clone());
        EventView { kind, text, actor, process, class: entry.class.clone() }
    }
}

/// Shows an actor, with what the enforcing process says of it; reads where its threads are now.
pub fn actor(proc: &Path, registry: &Registry, actor: &Actor, held: Option<&HeldActor>) -> ActorView {
    let class = class_of(registry.config(), actor);
    let interval = actor.threads.interval();
    let threads: Vec<Thread> = actor.threads.list().iter().map(|one| thread(proc, one, interval)).collect();
    let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
    for one in actor.threads.list() {
        *counts.entry(one.thread.role.name()).or_default() += 1;
    }
    let roles = ROLES.map(|role| {
        let total = actor.threads.total(role);
        let threads = counts.get(role).copied().unwrap_or(0);
        RoleTotal { role: role.into(), threads, run_ns: total.ran.as_ns(), wait_ns: total.waited.as_ns() }
    });
    ActorView {
        kind: actor.what.name().into(),
        name: actor.name.clone(),
        process: actor.process,
        processes: actor.threads.processes().len(),
        monitor: match actor.what {
            What::Vm(monitor) => Some(monitor.name().into()),
            What::Unit | What::Cgroup => None,
        },
        uuid: actor.uuid.clone(),
        is_libvirt: actor.libvirt.is_some(),
        owner: actor.owner,
        unit: actor.unit.clone(),
        cgroup: actor.cgroup.clone(),
        state: actor.state().name().into(),
        class: actor.class().map(Into::into),
        pool: class.and_then(|class| pool_name(registry.config(), class)),
        seen_us: actor.seen_realtime_us,
        threads,
        roles: roles.into_iter().filter(|role| role.threads > 0 || role.run_ns > 0).collect(),
        adjustment: registry.params(actor).map(|(_, adjustment)| adjustment).unwrap_or_default(),
        is_paused: actor.is_paused(),
        not_held: held.and_then(|held| held.not_held.clone()),
        budgets: held.map(|held| held.vcpus.clone()).unwrap_or_default(),
        helpers: held.map(|held| held.helpers.clone()).unwrap_or_default(),
        waits: Vec::new(),
        lately: Vec::new(),
        hints: None,
        warnings: warnings(registry, actor),
    }
}

/// Roles in the order in which they are shown.
pub const ROLES: [&str; 7] = ["vcpu", "main-loop", "io", "vhost", "rcu", "other", TASK];
/// The kind of a VM.
pub const VM: &str = "vm";
/// The role of each thread of a unit.
pub const TASK: &str = "task";

fn thread(proc: &Path, one: &Sampled, interval: std::time::Duration) -> Thread {
    let tid = one.thread.tid;
    let stat = std::fs::read_to_string(proc.join(format!("{tid}/task/{tid}/stat"))).unwrap_or_default();
    let share = |ns: u64| (!interval.is_zero()).then(|| share(ns, interval));
    Thread {
        tid,
        name: one.thread.name.clone(),
        role: one.thread.role.name().into(),
        vcpu: match one.thread.role {
            Role::Vcpu(number) => Some(number),
            _ => None,
        },
        processor: parse_processor(&stat),
        processors: i32::try_from(tid).ok().and_then(|tid| sched::affinity(tid).ok()).unwrap_or_default(),
        rt_priority: parse_rt_priority(&stat).unwrap_or(0),
        run_ns: one.total.ran.as_ns(),
        wait_ns: one.total.waited.as_ns(),
        run_share: one.recent.and_then(|recent| share(recent.ran.as_ns())),
        wait_share: one.recent.and_then(|recent| share(recent.waited.as_ns())),
    }
}

fn class_of<'c>(config: &'c ServiceConfig, actor: &Actor) -> Option<&'c Class> {
    config.classes.iter().find(|class| Some(class.name.as_str()) == actor.class())
}

fn pool_name(config: &ServiceConfig, class: &Class) -> Option<String> {
    Some(config.pools[class.pool?.0].name.clone())
}

/// Budget / period.
fn share_of(params: &UnitParams) -> Option<f64> {
    let (budget, period) = (params.budget?.as_ns(), params.period?.as_ns());
    Some(budget as f64 / period.max(1) as f64)
}

/// An adjustment for people: "budget 450us, priority 2".
pub fn adjustment(adjustment: &Adjustment) -> String {
    let time = |ns: Option<u64>, what: &str| ns.map(|ns| format!("{what} {}", Duration::from_ns(ns)));
    let parts = [
        time(adjustment.budget_ns, UnitParams::BUDGET),
        time(adjustment.period_ns, UnitParams::PERIOD),
        adjustment.priority.map(|priority| format!("{} {priority}", UnitParams::PRIORITY)),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// What the operator should know of an actor.
pub fn warnings(registry: &Registry, actor: &Actor) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |kind: &str, text: String| warnings.push(Warning { kind: kind.into(), text });
    if !actor.is_trusted {
        let owner = actor.owner;
        let text = if actor.is_group() {
            format!("its cgroup is user {owner}'s, who may give cgroups any name: no class fits")
        } else {
            format!("its process is user {owner}'s, who runs no VMs for the machine: no class fits")
        };
        warn("owner", text);
    }
    if let Some(libvirt) = &actor.libvirt {
        for wrong in &libvirt.wrong {
            warn("metadata", format!("its metadata: {wrong}"));
        }
        if let (Some(class), None) = (&libvirt.class, actor.class()) {
            warn("metadata", format!("its metadata names class `{class}`, which no class matches"));
        }
    }
    if let (Some(class), [_, ..]) = (actor.class(), &actor.other_classes[..]) {
        let others = actor.other_classes.join(", ");
        warn("classes", format!("class {class} is the first that fits; {others} fits as well"));
    }
    if let Some(refused) = registry.refused(actor) {
        warn("adjustment", format!("it gets what its class gives, not what it was adjusted to: {refused}"));
    }
    // One that is held runs no more than its budget, and one that is left alone may.
    let is_free = actor.state() == State::Held || actor.is_paused();
    let params = registry.params(actor).map(|(params, _)| params);
    let given = params.as_ref().and_then(share_of);
    let has_one = actor.is_group() || params.is_some_and(|params| params.shares_budget);
    if let Some(given) = given.filter(|_| !is_free && has_one) {
        let has_budget = |one: &&Sampled| actor.is_group() || matches!(one.thread.role, Role::Vcpu(_));
        let averages = actor.threads.list().iter().filter(has_budget).filter_map(|one| one.average);
        let average: f64 = averages.sum();
        if average > given {
            let [average, given] = [average, given].map(|share| share * 100.0);
            warn("budget", format!("it runs {average:.1} % of a processor, its budget is {given:.1} %"));
        }
    } else if let Some(given) = given.filter(|_| !is_free) {
        for one in actor.threads.list() {
            if let (Role::Vcpu(number), Some(average)) = (one.thread.role, one.average)
                && average > given
            {
                let [average, given] = [average, given].map(|share| share * 100.0);
                let text =
                    format!("vCPU {number} runs {average:.1} % of a processor, its budget is {given:.1} %");
                warn("budget", text);
            }
        }
    }
    warnings
}

fn exec_name(one: &Match) -> Option<String> {
    match one {
        Match::Exec(name) => Some(name.name().to_owned()),
        _ => None,
    }
}

/// Classes with how many VMs and units they have.
pub fn classes(registry: &Registry) -> Vec<ClassView> {
    let count = |name: &str| registry.actors().filter(|actor| actor.class() == Some(name)).count();
    let config = registry.config();
    let view = |class: &Class| ClassView {
        name: class.name.clone(),
        pool: pool_name(config, class),
        budget_ns: class.params.budget.map(|budget| budget.as_ns()),
        period_ns: class.params.period.map(|period| period.as_ns()),
        priority: class.params.priority,
        best_effort: class.params.best_effort,
        shares_budget: class.params.shares_budget,
        exec: class.matches.iter().filter_map(exec_name).collect(),
        actors: count(&class.name),
    };
    config.classes.iter().map(view).collect()
}

/// Pools with what is asked of them.
pub fn pools(registry: &Registry) -> Vec<PoolView> {
    let config = registry.config();
    let asked = |index: usize| {
        let of_actor = |actor: &Actor| {
            let pool = class_of(config, actor).filter(|_| !actor.is_paused())?.pool?;
            if pool.0 != index {
                return None;
            }
            let (params, _) = registry.params(actor)?;
            let budgets = if params.shares_budget { actor.vcpus().min(1) } else { actor.vcpus() };
            Some(share_of(&params)? * budgets as f64)
        };
        registry.actors().filter_map(of_actor).fold(0.0, |sum, asked| sum + asked)
    };
    let view = |(index, pool): (usize, &punctual_model::host::Pool)| PoolView {
        name: pool.name.clone(),
        processors: pool.processors.clone(),
        reason: pool.choice.as_ref().map(|choice| choice.reason.clone()),
        idle: pool.choice.as_ref().map_or(Vec::new(), |choice| choice.idle.clone()),
        policy: pool.policy.info.name.into(),
        asked: asked(index),
    };
    config.pools.iter().enumerate().map(view).collect()
}

/// Slots with who joined them, on a machine with this topology.
pub fn slots(config: &ServiceConfig, topology: &Topology) -> Vec<SlotView> {
    let view = |slot: &Slot| SlotView {
        name: slot.name.clone(),
        of: match &slot.place {
            SlotPlace::Processors(_) => None,
            SlotPlace::Interrupts(device) => Some(format!("interrupts of {device}")),
            SlotPlace::Class(published) => Some(format!("class {}", published.class)),
        },
        processors: slot_processors(topology, slot).into_iter().collect(),
        joined: config
            .joins
            .iter()
            .filter(|join| join.slot == slot.name)
            .map(|join| join.by.to_string())
            .collect(),
    };
    config.slots.iter().map(view).collect()
}

/// What the operator should know of pools: no policy guarantees more than all of their processors.
pub fn pool_warnings(pools: &[PoolView]) -> Vec<Warning> {
    let is_over = |pool: &&PoolView| pool.asked > pool.processors.len() as f64 + 1e-9;
    let text = |pool: &PoolView| {
        let count = pool.processors.len();
        format!("budgets in pool {} add up to {:.2} processors, and it has {count}", pool.name, pool.asked)
    };
    pools.iter().filter(is_over).map(|pool| Warning { kind: "pool".into(), text: text(pool) }).collect()
}
