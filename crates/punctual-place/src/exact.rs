//! Optimal plans of small fleets.
//!
//! An integer program assigns items to hosts under what is linear: lists of hosts, groups, memory, shares.
//! Whether a set of VMs is guaranteed on a host is no linear condition. So each host of a solution is
//! searched for nodes and processors; if there are none, the smallest subset that does not fit becomes a
//! constraint for all hosts of the kind, and the program is solved again (logic-based Benders decomposition:
//! Hooker, Ottosson, *Logic-based Benders decomposition*, Mathematical Programming 96, 2003). A VM more on a
//! host never makes a guarantee, so what holds a subset that does not fit does not fit either.
//!
//! The program is solved three times: for the fewest refused VMs, then for the fewest hosts, then for the
//! least cost of moving. All coefficients but the costs are whole numbers up to a thousand or MiB.

use std::collections::{BTreeMap, BTreeSet};

use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Problem as Program, SolutionStatus};
use microlp::{SolveOptions, Variable};

use crate::bound::Bound;
use crate::heuristic::Found;
use crate::problem::{Problem, WHOLE};
use crate::slice::Oracle;
use crate::state::{Spot, State};

/// A fleet is small up to so many items, and items times hosts.
const ITEMS_MAX: usize = 16;
const CHOICES_MAX: usize = 96;
/// Limits of the search where the caller has not asked for it.
const NODES_MAX: u64 = 2_000;
const ROUNDS_MAX: usize = 60;
const SPOTS_MAX: usize = 20_000;
/// What does not fit is forbidden in so many ways, with others of the same kinds in its place.
const VARIANTS_MAX: usize = 64;

/// How long to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    Limited,
    Unlimited,
}

/// Is the fleet so small that it is solved exactly without being asked?
pub(crate) fn is_small(problem: &Problem<'_>) -> bool {
    let items = problem.items.len();
    items <= ITEMS_MAX && items * problem.fleet.hosts.len() <= CHOICES_MAX
}

/// The best plan, given a good one; the good one where the search ends without proof.
pub(crate) fn improve(problem: &Problem<'_>, bound: &Bound, found: Found, effort: Effort) -> Found {
    if found.is_optimal {
        return found;
    }
    let oracle = Oracle::default();
    let mut exact = Exact { problem, bound, effort, oracle, known: BTreeMap::new(), cuts: BTreeSet::new() };
    match exact.solve(&found) {
        Some(best) => Found { is_optimal: true, ..best },
        None => found,
    }
}

/// What is minimized, given the best values of what comes before.
#[derive(Clone, Copy, Debug)]
enum Goal {
    Refused,
    Hosts { refused: usize },
    Cost { refused: usize, hosts: usize },
}

/// Where VMs are on a host.
type Spots = BTreeMap<usize, Spot>;

struct Exact<'p, 'f> {
    problem: &'p Problem<'f>,
    bound: &'p Bound,
    effort: Effort,
    oracle: Oracle,
    /// By kind of hosts and items: where they fit.
    known: BTreeMap<(usize, Vec<usize>), Option<Spots>>,
    cuts: BTreeSet<Cut>,
}

/// Of these items fewer than `count` fit on a host of a kind together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cut {
    kind: usize,
    items: Vec<usize>,
    count: usize,
}

impl Exact<'_, '_> {
    /// `None`: no proof within the limits.
    fn solve(&mut self, start: &Found) -> Option<Found> {
        let mut best = start.clone();
        if start.refused(self.problem) > 0 {
            best = self.optimum(Goal::Refused)?;
        }
        let refused = best.refused(self.problem);
        if refused > 0 || best.used() > self.bound.hosts(self.problem, &best.placed(self.problem)) {
            best = self.optimum(Goal::Hosts { refused })?;
        }
        if best.cost(self.problem) > 0 {
            best = self.optimum(Goal::Cost { refused, hosts: best.used() })?;
        }
        Some(best)
    }

    fn optimum(&mut self, goal: Goal) -> Option<Found> {
        let rounds = if self.effort == Effort::Limited { ROUNDS_MAX } else { usize::MAX };
        for _ in 0..rounds {
            let hosts = self.relaxed(goal)?;
            let mut by_host: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
            for (item, host) in hosts.iter().enumerate() {
                if let Some(host) = *host {
                    by_host.entry(host).or_default().push(item);
                }
            }
            let mut found = Found::empty(self.problem);
            let mut is_whole = true;
            for (host, items) in by_host {
                match self.fit(host, &items)? {
                    Some(spots) => {
                        for item in items {
                            let spot = |vm: &usize| spots.get(vm).cloned().unwrap_or_default();
                            let own = self.problem.items[item].iter().map(spot).collect();
                            found.put(self.problem, item, host, own);
                        }
                    }
                    None => {
                        self.cut(host, items)?;
                        is_whole = false;
                    }
                }
            }
            if is_whole {
                return Some(found);
            }
        }
        None
    }

    /// Forbids a smallest part of the items on all hosts of the kind.
    fn cut(&mut self, host: usize, mut items: Vec<usize>) -> Option<()> {
        let mut at = 0;
        while at < items.len() {
            let mut fewer = items.clone();
            fewer.remove(at);
            if self.fit(host, &fewer)?.is_none() {
                items = fewer;
            } else {
                at += 1;
            }
        }
        self.forbid(self.problem.fleet.hosts[host].kind, &items);
        Some(())
    }

    /// Forbids items that do not fit together, and others of the same kinds.
    fn forbid(&mut self, kind: usize, items: &[usize]) {
        let problem = self.problem;
        let alike = |item: usize| {
            let kinds = problem.kinds(item);
            (0..problem.items.len()).filter(|other| problem.kinds(*other) == kinds).collect::<Vec<usize>>()
        };
        let Some(first) = items.first() else { return };
        if items.iter().all(|item| problem.kinds(*item) == problem.kinds(*first)) {
            self.cuts.insert(Cut { kind, items: alike(*first), count: items.len() });
            return;
        }
        // The first one is what was found.
        let mut variants: BTreeSet<Vec<usize>> = BTreeSet::from([items.to_vec()]);
        let mut chosen: Vec<Vec<usize>> = vec![Vec::new()];
        for item in items {
            let longer = chosen.iter().flat_map(|variant| {
                let others = alike(*item).into_iter().filter(|other| !variant.contains(other));
                others.map(|other| [&variant[..], &[other]].concat())
            });
            chosen = longer.take(VARIANTS_MAX).collect();
        }
        for mut variant in chosen {
            variant.sort_unstable();
            variants.insert(variant);
        }
        for items in variants {
            self.cuts.insert(Cut { kind, count: items.len(), items });
        }
    }

    /// Where the items fit on a host; the outer `None`: too many ways to look at.
    #[expect(clippy::option_option, reason = "no answer is another thing than the answer no")]
    fn fit(&mut self, host: usize, items: &[usize]) -> Option<Option<Spots>> {
        let key = (self.problem.fleet.hosts[host].kind, items.to_vec());
        if let Some(known) = self.known.get(&key) {
            return Some(known.clone());
        }
        let mut vms: Vec<usize> =
            items.iter().flat_map(|item| self.problem.items[*item].iter().copied()).collect();
        let share = |vm: usize| self.problem.demand(host, vm).map_or(0, |demand| demand.unit);
        vms.sort_by_key(|vm| (std::cmp::Reverse(share(*vm)), *vm));
        let mut left = if self.effort == Effort::Limited { SPOTS_MAX } else { usize::MAX };
        let mut state = State::empty(self.problem, host);
        let fits = self.search(&mut state, &vms, &mut left)?;
        let found = fits.then(|| state.vms.clone());
        self.known.insert(key, found.clone());
        Some(found)
    }

    /// Puts all VMs on the host, if there is a way; `None`: too many ways.
    fn search(&self, state: &mut State, vms: &[usize], left: &mut usize) -> Option<bool> {
        let Some((vm, rest)) = vms.split_first() else { return Some(true) };
        for spot in state.every_spot(self.problem, &self.oracle, *vm) {
            *left = left.checked_sub(1)?;
            state.add(self.problem, *vm, spot);
            if self.search(state, rest, left)? {
                return Some(true);
            }
            state.remove(self.problem, *vm);
        }
        Some(false)
    }

    /// The best assignment under the constraints that are known.
    fn relaxed(&self, goal: Goal) -> Option<Vec<Option<usize>>> {
        let model = Model::new(self.problem, goal, &self.cuts);
        let mut options = SolveOptions::default();
        options.node_limit = (self.effort == Effort::Limited).then_some(NODES_MAX);
        let solution = model.program.solve_with(options).ok()?.into_solution().ok()?;
        if solution.status() != SolutionStatus::Optimal {
            return None;
        }
        let is_set = |variable: &Variable| solution.var_value(*variable) > 0.5;
        let host = |choices: &BTreeMap<usize, Variable>| {
            choices.iter().find(|(_, variable)| is_set(variable)).map(|(host, _)| *host)
        };
        Some(model.at.iter().map(host).collect())
    }
}

/// The integer program.
struct Model {
    program: Program,
    /// By item and host: is it there?
    at: Vec<BTreeMap<usize, Variable>>,
}

impl Model {
    fn new(problem: &Problem<'_>, goal: Goal, cuts: &BTreeSet<Cut>) -> Self {
        let fleet = problem.fleet;
        let mut program = Program::new(OptimizationDirection::Minimize);
        let is_cost = matches!(goal, Goal::Cost { .. });
        let cost = |item: usize, host: usize| {
            let costs = problem.items[item].iter().map(|vm| problem.move_cost(*vm, host));
            if is_cost { costs.sum::<u64>() as f64 } else { 0.0 }
        };
        let of_host = if matches!(goal, Goal::Hosts { .. }) { 1.0 } else { 0.0 };
        let used: Vec<Variable> = fleet.hosts.iter().map(|_| program.add_binary_var(of_host)).collect();
        let mut at: Vec<BTreeMap<usize, Variable>> = Vec::new();
        let mut refused = Vec::new();
        for (item, vms) in problem.items.iter().enumerate() {
            let may =
                (0..fleet.hosts.len()).filter(|host| problem.may(item, *host) && !is_torn(problem, item));
            let own: BTreeMap<usize, Variable> =
                may.map(|host| (host, program.add_binary_var(cost(item, host)))).collect();
            let count = vms.len() as f64;
            let none = program.add_binary_var(if matches!(goal, Goal::Refused) { count } else { 0.0 });
            let all = own.values().copied().chain([none]).map(|variable| (variable, 1.0));
            program.add_constraint(all, ComparisonOp::Eq, 1.0);
            for (host, variable) in &own {
                program.add_constraint([(*variable, 1.0), (used[*host], -1.0)], ComparisonOp::Le, 0.0);
            }
            refused.push((none, count));
            at.push(own);
        }
        let mut model = Model { program, at };
        model.resources(problem, &used);
        model.groups(problem);
        model.cuts(problem, cuts);
        model.order(problem, &used);
        model.order_alike(problem, &refused);
        if let Goal::Hosts { refused: most } | Goal::Cost { refused: most, .. } = goal {
            model.program.add_constraint(refused.iter().copied(), ComparisonOp::Le, most as f64);
        }
        if let Goal::Cost { hosts, .. } = goal {
            let all = used.into_iter().map(|variable| (variable, 1.0));
            model.program.add_constraint(all, ComparisonOp::Le, hosts as f64);
        }
        model
    }

    /// Adds `sum of amounts <= most` over the items of a host, where any of them asks for something.
    fn at_most(&mut self, host: usize, amount: impl Fn(usize) -> f64, most: f64, used: Option<Variable>) {
        let mut sum = LinearExpr::empty();
        let mut asked = 0.0;
        for (item, at) in self.at.iter().enumerate() {
            if let Some(variable) = at.get(&host).filter(|_| amount(item) > 0.0) {
                sum.add(*variable, amount(item));
                asked += amount(item);
            }
        }
        if asked <= most {
            return;
        }
        let rest = if used.is_some() { 0.0 } else { most };
        used.into_iter().for_each(|used| sum.add(used, -most));
        self.program.add_constraint(sum, ComparisonOp::Le, rest);
    }

    /// Memory and shares: those of pools in thousandths of a processor, rounded down.
    fn resources(&mut self, problem: &Problem<'_>, used: &[Variable]) {
        let fleet = problem.fleet;
        for (host, used) in used.iter().enumerate() {
            let kind = fleet.kind_of(host);
            let memory = |item: usize| problem.memory(item) as f64;
            self.at_most(host, memory, kind.memory_mib as f64, Some(*used));
            for (pool, of) in kind.template.pools.iter().enumerate() {
                let share = |item: usize| {
                    let demands = problem.items[item].iter().filter_map(|vm| problem.demand(host, *vm));
                    let sum: u64 = demands.filter(|of| of.pool == pool).map(|of| of.total).sum();
                    (sum / (WHOLE / 1000)) as f64
                };
                self.at_most(host, share, 1000.0 * of.processors.len() as f64, Some(*used));
            }
        }
    }

    fn groups(&mut self, problem: &Problem<'_>) {
        for group in 0..problem.fleet.apart.len() {
            let is_of = |item: usize| {
                let is_member =
                    problem.items[item].iter().any(|vm| problem.fleet.vm_kind(*vm).apart.contains(&group));
                f64::from(u8::from(is_member))
            };
            (0..problem.fleet.hosts.len()).for_each(|host| self.at_most(host, is_of, 1.0, None));
        }
    }

    fn cuts(&mut self, problem: &Problem<'_>, cuts: &BTreeSet<Cut>) {
        let hosts = &problem.fleet.hosts;
        for cut in cuts {
            let is_in = |item: usize| f64::from(u8::from(cut.items.contains(&item)));
            for host in (0..hosts.len()).filter(|host| hosts[*host].kind == cut.kind) {
                self.at_most(host, is_in, cut.count as f64 - 1.0, None);
            }
        }
    }

    /// Of hosts that differ in nothing the first ones are used.
    fn order(&mut self, problem: &Problem<'_>, used: &[Variable]) {
        let fleet = problem.fleet;
        let is_plain = |host: usize| fleet.vms.iter().all(|vm| vm.today != Some(host));
        for host in 1..fleet.hosts.len() {
            let before = host - 1;
            let is_same = fleet.hosts[host].kind == fleet.hosts[before].kind
                && is_plain(host)
                && is_plain(before)
                && fleet.vm_kinds.iter().all(|vm| vm.may_be_on[host] == vm.may_be_on[before]);
            if is_same {
                let pair = [(used[host], 1.0), (used[before], -1.0)];
                self.program.add_constraint(pair, ComparisonOp::Le, 0.0);
            }
        }
    }

    /// Of VMs that differ in nothing the first ones are on the first hosts.
    fn order_alike(&mut self, problem: &Problem<'_>, refused: &[(Variable, f64)]) {
        let fleet = problem.fleet;
        for item in 1..problem.items.len() {
            let ([one], [other]) = (&problem.items[item - 1][..], &problem.items[item][..]) else { continue };
            let (one, other) = (&fleet.vms[*one], &fleet.vms[*other]);
            if (one.kind, one.today) != (other.kind, other.today) {
                continue;
            }
            let mut sum = LinearExpr::empty();
            for (item, sign) in [(item - 1, 1.0), (item, -1.0)] {
                self.at[item].iter().for_each(|(host, at)| sum.add(*at, sign * (*host as f64 + 1.0)));
                sum.add(refused[item].0, sign * (fleet.hosts.len() as f64 + 1.0));
            }
            self.program.add_constraint(sum, ComparisonOp::Le, 0.0);
        }
    }
}

/// Must two VMs of an item be apart?
fn is_torn(problem: &Problem<'_>, item: usize) -> bool {
    let mut groups = BTreeSet::new();
    let mut all = problem.items[item].iter().flat_map(|vm| &problem.fleet.vm_kind(*vm).apart);
    !all.all(|group| groups.insert(group))
}
