//! What if one VM comes, or has to move, while all others stay where they are today?

use std::cmp::Reverse;

use punctual_model::fleet::Fleet;
use serde::Serialize;

use crate::plan::{self, VmPlan, Why};
use crate::problem::Problem;
use crate::slice::Oracle;
use crate::state::State;

/// A fleet as it is today.
pub struct Standing<'f> {
    problem: Problem<'f>,
    oracle: Oracle,
    states: Vec<State>,
    /// VMs that are not guaranteed where they are today.
    loose: Vec<usize>,
}

/// Where a VM could go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// Its name.
    pub vm: String,
    /// The host where it is today.
    pub today: Option<String>,
    /// The host that would take it: the fullest one that can.
    pub host: Option<String>,
    /// Where it would be there, with the VMs that must be together with it.
    pub vms: Vec<VmPlan>,
    /// Why no host takes it; empty if one does.
    pub why: Vec<Why>,
    /// VMs that are not guaranteed where they are today. They are left out.
    pub not_guaranteed_today: Vec<String>,
}

impl<'f> Standing<'f> {
    /// The VMs on the hosts where the fleet file says they are today.
    pub fn new(fleet: &'f Fleet) -> Self {
        let problem = Problem::new(fleet);
        let oracle = Oracle::default();
        let mut states: Vec<State> =
            (0..fleet.hosts.len()).map(|host| State::empty(&problem, host)).collect();
        let mut loose = Vec::new();
        // The greatest first: a processor of its own is harder to find for it.
        let share =
            |vm: usize| fleet.vms[vm].today.and_then(|host| problem.demand(host, vm)).map(|of| of.unit);
        let mut order: Vec<usize> = (0..fleet.vms.len()).collect();
        order.sort_by_cached_key(|vm| (Reverse(share(*vm)), *vm));
        for vm in order {
            let Some(host) = fleet.vms[vm].today else { continue };
            match states[host].find(&problem, &oracle, vm) {
                Ok(spot) => states[host].add(&problem, vm, spot),
                Err(_) => loose.push(vm),
            }
        }
        loose.sort_unstable();
        Standing { problem, oracle, states, loose }
    }

    /// Where the VM could go, with the VMs that must be together with it: it comes, or it leaves its host of
    /// today. `None`: there is no such VM.
    pub fn ask(&mut self, name: &str) -> Option<Answer> {
        let fleet = self.problem.fleet;
        let vm = fleet.vms.iter().position(|vm| vm.name == name)?;
        let item = self.problem.items.iter().position(|item| item.contains(&vm))?;
        let today = fleet.vms[vm].today;
        let mut taken = Vec::new();
        for vm in &self.problem.items[item] {
            let Some(host) = fleet.vms[*vm].today else { continue };
            if let Some(spot) = self.states[host].vms.get(vm).cloned() {
                self.states[host].remove(&self.problem, *vm);
                taken.push((host, *vm, spot));
            }
        }
        let mut answer = self.answer(vm, item, today);
        answer.today = today.map(|host| fleet.hosts[host].name.clone());
        for (host, vm, spot) in taken {
            self.states[host].add(&self.problem, vm, spot);
        }
        Some(answer)
    }

    fn answer(&mut self, vm: usize, item: usize, today: Option<usize>) -> Answer {
        let Standing { problem, oracle, states, loose } = self;
        let fleet = problem.fleet;
        let mut order: Vec<usize> = (0..states.len()).filter(|host| Some(*host) != today).collect();
        order.sort_by_key(|host| (Reverse(states[*host].fullness(problem)), *host));
        let fits =
            |host: &usize| states[*host].find_item(problem, oracle, item).ok().map(|spots| (*host, spots));
        let found = order.iter().find_map(fits);
        let but: Vec<usize> = today.into_iter().collect();
        let why = match &found {
            Some(_) => Vec::new(),
            None => plan::reasons(problem, oracle, states, item, &but),
        };
        let names = |vms: &[usize]| vms.iter().map(|vm| fleet.vms[*vm].name.clone()).collect();
        let vms = found.iter().flat_map(|(host, spots)| {
            problem.items[item].iter().zip(spots).map(|(vm, spot)| plan::vm_plan(problem, *host, *vm, spot))
        });
        Answer {
            vm: fleet.vms[vm].name.clone(),
            today: None,
            host: found.as_ref().map(|(host, _)| fleet.hosts[*host].name.clone()),
            vms: vms.collect(),
            why,
            not_guaranteed_today: names(loose),
        }
    }
}
