//! What is placed: VMs with what they ask for, in items that cannot be parted; and why a host is refused.

use std::collections::BTreeMap;
use std::fmt;

use punctual_model::fleet::{Fleet, HostKind};
use punctual_model::host::{Arrival, Parent, Work};
use punctual_model::index::DomainIx;
use punctual_sched::Duration;

/// A whole processor, in the unit of shares.
pub(crate) const WHOLE: u64 = 1_000_000_000;

/// What a VM of some kind asks of a host of some kind.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    /// Its pool in the template.
    pub(crate) pool: usize,
    /// vCPUs.
    pub(crate) vcpus: usize,
    /// Units that get a processor each: its vCPUs, or one where they share a budget; none of best effort.
    pub(crate) units: usize,
    /// The share of a processor that each unit surely takes, rounded down.
    pub(crate) unit: u64,
    /// The share of all units and tasks together, rounded down.
    pub(crate) total: u64,
    /// Does what happens on one processor depend on others? Tasks move between vCPUs then.
    pub(crate) is_linked: bool,
}

/// A fleet as the search needs it.
pub(crate) struct Problem<'f> {
    pub(crate) fleet: &'f Fleet,
    /// By kind of hosts and kind of VMs; `None`: never there.
    pub(crate) demands: Vec<Vec<Option<Demand>>>,
    /// VMs that must be on one host, each VM in one item, in the order of the fleet.
    pub(crate) items: Vec<Vec<usize>>,
    /// By kind of hosts and pool: does the pool have tasks of its own?
    pub(crate) has_tasks: Vec<Vec<bool>>,
}

impl<'f> Problem<'f> {
    pub(crate) fn new(fleet: &'f Fleet) -> Self {
        let of_kind = |kind: &HostKind| {
            let of_vm = |vm: usize| kind.domains[vm].and_then(|domain| demand(kind, domain));
            (0..fleet.vm_kinds.len()).map(of_vm).collect()
        };
        let has_tasks = |kind: &HostKind| {
            let pools = 0..kind.template.pools.len();
            let has = |pool| kind.template.tasks.iter().any(|task| is_of_pool(task.parent, pool));
            pools.map(has).collect()
        };
        Problem {
            fleet,
            demands: fleet.kinds.iter().map(of_kind).collect(),
            items: items(fleet),
            has_tasks: fleet.kinds.iter().map(has_tasks).collect(),
        }
    }

    /// What the VM asks of the host.
    pub(crate) fn demand(&self, host: usize, vm: usize) -> Option<&Demand> {
        self.demands[self.fleet.hosts[host].kind][self.fleet.vms[vm].kind].as_ref()
    }

    /// What it costs if the VM is on the host.
    pub(crate) fn move_cost(&self, vm: usize, host: usize) -> u64 {
        let is_elsewhere = self.fleet.vms[vm].today.is_some_and(|today| today != host);
        if is_elsewhere { self.fleet.vm_kind(vm).move_cost } else { 0 }
    }

    /// May all VMs of the item be on the host, as far as kinds and lists of hosts say?
    pub(crate) fn may(&self, item: usize, host: usize) -> bool {
        self.items[item]
            .iter()
            .all(|vm| self.fleet.vm_kind(*vm).may_be_on[host] && self.demand(host, *vm).is_some())
    }

    /// The kinds of the item's VMs: equal for items that ask for the same.
    pub(crate) fn kinds(&self, item: usize) -> Vec<usize> {
        self.items[item].iter().map(|vm| self.fleet.vms[*vm].kind).collect()
    }

    /// The memory of all VMs of the item in MiB.
    pub(crate) fn memory(&self, item: usize) -> u64 {
        self.items[item].iter().map(|vm| self.fleet.vm_kind(*vm).memory_mib).sum()
    }
}

fn is_of_pool(parent: Parent, pool: usize) -> bool {
    matches!(parent, Parent::Pool(of) if of.0 == pool)
}

fn demand(kind: &HostKind, domain: DomainIx) -> Option<Demand> {
    let template = &kind.template;
    let own = &template.domains[domain.0];
    let Parent::Pool(pool) = own.parent else { return None };
    let info = template.pools[pool.0].policy.info;
    let params = &template.vcpus[own.vcpus.start].params;
    let vcpus = own.vcpus.len();
    let has_tasks = template.tasks.iter().any(|task| task.parent == Parent::Domain(domain));
    if params.best_effort {
        return Some(Demand { pool: pool.0, vcpus, units: 0, unit: 0, total: 0, is_linked: false });
    }
    let units = if template.shares_budget(domain) { 1 } else { vcpus };
    let unit = match (info.budget(params), info.period(params)) {
        (Some(budget), Some(period)) => share(budget, period),
        // Without a budget, tasks take what they cost; which of several vCPUs does is open.
        _ if vcpus == 1 => tasks_share(kind, domain),
        _ => 0,
    };
    let total = if unit > 0 { unit * units as u64 } else { tasks_share(kind, domain) };
    Some(Demand { pool: pool.0, vcpus, units, unit, total, is_linked: units > 1 && has_tasks })
}

fn share(cost: Duration, period: Duration) -> u64 {
    let share = u128::from(cost.as_ns()) * u128::from(WHOLE) / u128::from(period.as_ns().max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

fn tasks_share(kind: &HostKind, domain: DomainIx) -> u64 {
    let of = |work: &Work| match *work {
        Work::Jobs { arrival: Arrival::Periodic { period, .. }, cost, .. } => share(cost.max, period),
        Work::Jobs { arrival: Arrival::Sporadic { separation, .. }, cost, .. } => share(cost.max, separation),
        Work::Served { .. } | Work::Hog { .. } => 0,
    };
    kind.template.tasks_of(Parent::Domain(domain)).map(|(_, task)| of(&task.work)).sum()
}

/// VMs that groups tie together.
fn items(fleet: &Fleet) -> Vec<Vec<usize>> {
    let mut root: Vec<usize> = (0..fleet.vms.len()).collect();
    fn find(root: &mut [usize], mut vm: usize) -> usize {
        while root[vm] != vm {
            root[vm] = root[root[vm]];
            vm = root[vm];
        }
        vm
    }
    let mut first: Vec<Option<usize>> = vec![None; fleet.together.len()];
    for vm in 0..fleet.vms.len() {
        for group in &fleet.vm_kind(vm).together {
            let with = *first[*group].get_or_insert(vm);
            let (a, b) = (find(&mut root, with), find(&mut root, vm));
            // The first VM of an item names it.
            root[a.max(b)] = a.min(b);
        }
    }
    let mut items: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for vm in 0..fleet.vms.len() {
        items.entry(find(&mut root, vm)).or_default().push(vm);
    }
    items.into_values().collect()
}

/// Why a host cannot take a VM.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Refusal {
    /// It has no such pool, or no such slot.
    NoPool,
    /// `hosts` or `avoid` excludes it.
    Excluded,
    /// A VM of the same group is there.
    Apart { group: String, vm: String },
    /// So much memory is missing.
    Memory { lacks_mib: u64 },
    /// The memory is there, but not in one node.
    Node { lacks_mib: u64 },
    /// The pool reaches beyond the node or slot, and moves vCPUs among all of its processors.
    Reaches { pool: String },
    /// No processor, or not the pool together, has the share left.
    Share { wanted: u64, free: u64 },
    /// The analysis refuses; on this processor, or in the pool.
    Check { place: String, why: String },
    /// Another VM of its group finds no place there.
    Companion { vm: String, why: Box<Refusal> },
}

fn percent(share: u64) -> String {
    let tenths = u128::from(share) * 1000 / u128::from(WHOLE);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

fn memory(mib: u64) -> String {
    if mib >= 1024 && mib.is_multiple_of(1024) { format!("{} GiB", mib / 1024) } else { format!("{mib} MiB") }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoPool => f.write_str("no such pool or slot"),
            Refusal::Excluded => f.write_str("excluded by `hosts` or `avoid`"),
            Refusal::Apart { group, vm } => {
                write!(f, "{vm} of group `{group}` is there, which is to be apart")
            }
            Refusal::Memory { lacks_mib } => write!(f, "{} of memory are missing", memory(*lacks_mib)),
            Refusal::Node { lacks_mib } => {
                write!(f, "{} of memory are missing in one NUMA node", memory(*lacks_mib))
            }
            Refusal::Reaches { pool } => {
                write!(f, "pool `{pool}` moves vCPUs beyond the node or slot, unless it is in `pinned`")
            }
            Refusal::Share { wanted, free } => {
                write!(f, "{} of a processor needed, at most {} left", percent(*wanted), percent(*free))
            }
            Refusal::Check { place, why } => write!(f, "on {place}, {why}"),
            Refusal::Companion { vm, why } => write!(f, "no place for {vm} of its group: {why}"),
        }
    }
}
