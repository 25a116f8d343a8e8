//! The result: which VM is where, and why others are nowhere.

use std::collections::BTreeMap;

use punctual_model::Host;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::bound::Bound;
use crate::heuristic::Found;
use crate::problem::{Problem, Refusal};
use crate::slice::{self, Oracle};
use crate::state::{Cause, Spot, State};

/// Refusals by the analysis that are explained for one VM; further hosts are only named.
const EXPLAINED_MAX: usize = 6;

/// Which VM goes where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The fleet's name.
    pub fleet: String,
    /// Number of VMs.
    pub vms: usize,
    /// Number of hosts of the fleet.
    pub hosts_total: usize,
    /// Hosts with VMs.
    pub hosts_used: usize,
    /// Hosts that any plan for the placed VMs has at least.
    pub hosts_min: usize,
    /// What is known about better plans.
    pub proof: Proof,
    /// VMs that change their host.
    pub moves: usize,
    /// What that costs.
    pub move_cost: u64,
    /// The hosts with VMs.
    pub hosts: Vec<HostPlan>,
    /// The VMs that fit nowhere.
    pub refused: Vec<RefusedVm>,
    #[serde(skip)]
    files: Vec<Host>,
}

/// What is known about better plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proof {
    /// There is none.
    Optimal,
    /// None has fewer hosts than `hosts_min`.
    Bound,
}

/// A host with its VMs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPlan {
    /// Its name.
    pub name: String,
    /// The name of its kind.
    pub kind: String,
    /// The shares that its VMs take of the processors of its pools, in parts per million of one processor.
    pub share_ppm: u64,
    /// Processors of its pools.
    pub processors: usize,
    /// Memory of its VMs in MiB.
    pub memory_used_mib: u64,
    /// Memory for VMs in MiB.
    pub memory_mib: u64,
    /// Its VMs, in the order of the fleet.
    pub vms: Vec<VmPlan>,
}

/// Where a VM is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmPlan {
    /// Its name.
    pub name: String,
    /// The NUMA node of its memory and vCPUs; `None`: any.
    pub node: Option<usize>,
    /// By vCPU, its processor; one for all of them where they share a budget. Empty where the policy of the
    /// pool moves them, or the VM is best effort.
    pub processors: Vec<usize>,
    /// The host where it is today, if that is another one.
    pub moved_from: Option<String>,
}

/// A VM that fits nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedVm {
    /// Its name.
    pub name: String,
    /// Why, for all hosts.
    pub why: Vec<Why>,
}

/// Why some hosts cannot take a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// Names of the hosts.
    pub hosts: Vec<String>,
    /// What is wrong with each of them: "2 GiB of memory are missing".
    pub reason: String,
}

impl Plan {
    /// The host files of the hosts with VMs, in the order of [`Plan::hosts`]. `punctual check` guarantees
    /// each of them.
    pub fn files(&self) -> &[Host] {
        &self.files
    }

    /// The same, which the plan then has no more; the rest of it is what serde keeps.
    pub fn take_files(&mut self) -> Vec<Host> {
        std::mem::take(&mut self.files)
    }

    /// By how much there are more hosts than any plan has, in percent of these.
    pub fn gap_percent(&self) -> f64 {
        let more = self.hosts_used.saturating_sub(self.hosts_min);
        if self.proof == Proof::Optimal { 0.0 } else { 100.0 * more as f64 / self.hosts_min.max(1) as f64 }
    }
}

/// The plan that was found, every host of it judged once more as a whole.
pub(crate) fn plan(problem: &Problem<'_>, bound: &Bound, mut found: Found) -> Plan {
    let fleet = problem.fleet;
    let used: Vec<usize> = (0..fleet.hosts.len()).filter(|host| !found.states[*host].is_empty()).collect();
    let judged: Vec<(Host, bool)> = used
        .par_iter()
        .map(|host| {
            let file = found.states[*host].to_host(problem);
            let is_guaranteed = slice::is_guaranteed(&file);
            (file, is_guaranteed)
        })
        .collect();
    let mut files = Vec::new();
    for (host, (file, is_guaranteed)) in used.iter().zip(judged) {
        if is_guaranteed {
            files.push(file);
        } else {
            found.hosts.iter_mut().filter(|at| **at == Some(*host)).for_each(|at| *at = None);
            found.states[*host] = State::empty(problem, *host);
            found.is_optimal = false;
        }
    }
    let hosts: Vec<HostPlan> = used
        .iter()
        .map(|host| &found.states[*host])
        .filter(|state| !state.is_empty())
        .map(|state| host_plan(problem, state))
        .collect();
    let moves = hosts.iter().flat_map(|host| &host.vms).filter(|vm| vm.moved_from.is_some()).count();
    let placed = found.placed(problem);
    let hosts_min = if found.is_optimal { found.used() } else { bound.hosts(problem, &placed) };
    Plan {
        fleet: fleet.name.clone(),
        vms: fleet.vms.len(),
        hosts_total: fleet.hosts.len(),
        hosts_used: hosts.len(),
        hosts_min,
        proof: if found.is_optimal { Proof::Optimal } else { Proof::Bound },
        moves,
        move_cost: found.cost(problem),
        hosts,
        refused: refused(problem, &mut found),
        files,
    }
}

fn host_plan(problem: &Problem<'_>, state: &State) -> HostPlan {
    let fleet = problem.fleet;
    let kind = fleet.kind_of(state.host);
    let share: u64 =
        state.vms.keys().filter_map(|vm| problem.demand(state.host, *vm)).map(|of| of.total).sum();
    HostPlan {
        name: fleet.hosts[state.host].name.clone(),
        kind: kind.name.clone(),
        share_ppm: share / 1000,
        processors: kind.template.pools.iter().map(|pool| pool.processors.len()).sum(),
        memory_used_mib: state.vms.keys().map(|vm| fleet.vm_kind(*vm).memory_mib).sum(),
        memory_mib: kind.memory_mib,
        vms: state.vms.iter().map(|(vm, spot)| vm_plan(problem, state.host, *vm, spot)).collect(),
    }
}

pub(crate) fn vm_plan(problem: &Problem<'_>, host: usize, vm: usize, spot: &Spot) -> VmPlan {
    let fleet = problem.fleet;
    let kind = fleet.kind_of(host);
    let pool = problem.demand(host, vm).map_or(0, |demand| demand.pool);
    let numbers = &kind.template.pools[pool].processors;
    let today = fleet.vms[vm].today.filter(|today| *today != host);
    VmPlan {
        name: fleet.vms[vm].name.clone(),
        node: spot.node.map(|node| kind.nodes[node].number),
        processors: spot.processors.iter().map(|place| numbers[*place]).collect(),
        moved_from: today.map(|today| fleet.hosts[today].name.clone()),
    }
}

/// The VMs without a host, with reasons. VMs of one kind have the same ones.
fn refused(problem: &Problem<'_>, found: &mut Found) -> Vec<RefusedVm> {
    let oracle = Oracle::default();
    let mut known: BTreeMap<Vec<usize>, Vec<Why>> = BTreeMap::new();
    let mut all = Vec::new();
    for (item, vms) in problem.items.iter().enumerate() {
        if found.hosts[item].is_some() {
            continue;
        }
        let why = known
            .entry(problem.kinds(item))
            .or_insert_with(|| reasons(problem, &oracle, &mut found.states, item, &[]));
        all.extend(vms.iter().map(|vm| (*vm, why.clone())));
    }
    all.sort_by_key(|(vm, _)| *vm);
    let of = |(vm, why): (usize, Vec<Why>)| RefusedVm { name: problem.fleet.vms[vm].name.clone(), why };
    all.into_iter().map(of).collect()
}

/// Why no host takes the item, for all hosts but these.
pub(crate) fn reasons(
    problem: &Problem<'_>,
    oracle: &Oracle,
    states: &mut [State],
    item: usize,
    but: &[usize],
) -> Vec<Why> {
    let mut by_reason: Vec<Why> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut explained = 0;
    for state in states.iter_mut().filter(|state| !but.contains(&state.host)) {
        let Err((vm, cause)) = state.find_item(problem, oracle, item) else { continue };
        let is_check = matches!(cause, Cause::Check { .. });
        explained += usize::from(is_check);
        let reason = if is_check && explained > EXPLAINED_MAX {
            "would not have all guarantees".to_owned()
        } else {
            let why = state.refusal(problem, vm, cause);
            let is_first = vm == problem.items[item][0];
            let name = || problem.fleet.vms[vm].name.clone();
            let why = if is_first { why } else { Refusal::Companion { vm: name(), why: Box::new(why) } };
            why.to_string()
        };
        let host = problem.fleet.hosts[state.host].name.clone();
        let place = *places.entry(reason.clone()).or_insert_with(|| {
            by_reason.push(Why { hosts: Vec::new(), reason });
            by_reason.len() - 1
        });
        by_reason[place].hosts.push(host);
    }
    by_reason
}
