//! Plans by heuristics: VMs in the order of what they ask for, each on the fullest host where it fits (best
//! fit decreasing), from several orders and from today's placement; then hosts are emptied, and VMs return
//! to where they are today.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;

use crate::bound::Bound;
use crate::patterns::counted;
use crate::problem::{Problem, WHOLE};
use crate::slice::Oracle;
use crate::state::{Cause, Spot, State};

/// After so many hosts that the analysis refuses, another host is opened. More bring next to nothing: what
/// fits on none of these fits on few of the others.
const REFUSALS_MAX: usize = 48;
/// So many hosts, the emptiest first, are tried to be emptied before no other one is.
const EMPTY_TRIES: usize = 40;
/// Rounds in which VMs return to their hosts of today.
const HOME_ROUNDS: usize = 3;

/// A plan in the making.
#[derive(Clone)]
pub(crate) struct Found {
    /// By host.
    pub(crate) states: Vec<State>,
    /// By item, its host.
    pub(crate) hosts: Vec<Option<usize>>,
    /// No plan is better.
    pub(crate) is_optimal: bool,
}

impl Found {
    pub(crate) fn empty(problem: &Problem<'_>) -> Self {
        Found {
            states: (0..problem.fleet.hosts.len()).map(|host| State::empty(problem, host)).collect(),
            hosts: vec![None; problem.items.len()],
            is_optimal: false,
        }
    }

    pub(crate) fn refused(&self, problem: &Problem<'_>) -> usize {
        let refused = self.hosts.iter().zip(&problem.items).filter(|(host, _)| host.is_none());
        refused.map(|(_, vms)| vms.len()).sum()
    }

    pub(crate) fn used(&self) -> usize {
        self.states.iter().filter(|state| !state.is_empty()).count()
    }

    pub(crate) fn cost(&self, problem: &Problem<'_>) -> u64 {
        let of = |(item, host): (usize, &Option<usize>)| host.map_or(0, |host| cost(problem, item, host));
        self.hosts.iter().enumerate().map(of).sum()
    }

    /// VMs that are placed.
    pub(crate) fn placed(&self, problem: &Problem<'_>) -> Vec<usize> {
        let placed = self.hosts.iter().zip(&problem.items).filter(|(host, _)| host.is_some());
        placed.flat_map(|(_, vms)| vms.iter().copied()).collect()
    }

    /// The less, the better.
    fn rank(&self, problem: &Problem<'_>) -> (usize, usize, u64) {
        (self.refused(problem), self.used(), self.cost(problem))
    }

    pub(crate) fn put(&mut self, problem: &Problem<'_>, item: usize, host: usize, spots: Vec<Spot>) {
        for (vm, spot) in problem.items[item].iter().zip(spots) {
            self.states[host].add(problem, *vm, spot);
        }
        self.hosts[item] = Some(host);
    }

    /// Takes an item from its host; what puts it back.
    fn take(&mut self, problem: &Problem<'_>, item: usize) -> Option<(usize, Vec<Spot>)> {
        let host = self.hosts[item].take()?;
        let spots = problem.items[item].iter().map(|vm| {
            let spot = self.states[host].vms.get(vm).cloned().unwrap_or_default();
            self.states[host].remove(problem, *vm);
            spot
        });
        Some((host, spots.collect()))
    }
}

fn cost(problem: &Problem<'_>, item: usize, host: usize) -> u64 {
    problem.items[item].iter().map(|vm| problem.move_cost(*vm, host)).sum()
}

/// In which order VMs are placed.
#[derive(Clone, Copy)]
enum Key {
    /// The greater of its shares of processors and memory.
    Greater,
    Processors,
    Memory,
    Sum,
}

#[derive(Clone, Copy)]
struct Start {
    key: Key,
    first: First,
}

/// What comes before all VMs are placed in order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    Nothing,
    /// VMs stay where they are today, if they fit.
    Stay,
    /// Whole patterns of the bound's program go onto empty processors.
    Patterns,
}

/// The best of all plans from all starts, and what is known about better ones.
pub(crate) fn search(problem: &Problem<'_>) -> (Found, Bound) {
    let start = |key, first| Start { key, first };
    let is_anywhere = problem.fleet.vms.iter().any(|vm| vm.today.is_some());
    let first = [start(Key::Greater, First::Stay), start(Key::Greater, First::Nothing)];
    let mut bound = Bound::plain();
    let mut best = Found::empty(problem);
    attempt(problem, &bound, &first[usize::from(!is_anywhere)..], &mut best);
    if !best.is_optimal {
        bound = Bound::new(problem);
        best.is_optimal = is_optimal(problem, &bound, &best);
    }
    // Each later batch is for what those before it leave open.
    let patterns = [start(Key::Greater, First::Patterns)];
    if bound.weights.values().any(|weights| !weights.packing.is_empty()) {
        attempt(problem, &bound, &patterns, &mut best);
    }
    let others = [Key::Processors, Key::Memory, Key::Sum].map(|key| start(key, First::Nothing));
    attempt(problem, &bound, &others, &mut best);
    (best, bound)
}

/// Searches from these starts, if what is known may be improved.
fn attempt(problem: &Problem<'_>, bound: &Bound, starts: &[Start], best: &mut Found) {
    if best.is_optimal {
        return;
    }
    let found: Vec<Found> = starts.par_iter().map(|start| from(problem, bound, *start)).collect();
    for one in found {
        if one.rank(problem) < best.rank(problem) {
            *best = one;
        }
    }
    best.is_optimal = is_optimal(problem, bound, best);
}

/// Is no plan better, by the bound alone?
fn is_optimal(problem: &Problem<'_>, bound: &Bound, found: &Found) -> bool {
    let placed = found.placed(problem);
    found.refused(problem) == 0 && found.cost(problem) == 0 && found.used() == bound.hosts(problem, &placed)
}

fn from(problem: &Problem<'_>, bound: &Bound, start: Start) -> Found {
    let (oracle, found) = (Oracle::default(), Found::empty(problem));
    let mut search = Search { problem, bound, oracle, found, open: BTreeSet::new() };
    let order = ordered(problem, start.key);
    match start.first {
        First::Nothing => {}
        First::Stay => order.iter().for_each(|item| search.stay(*item)),
        First::Patterns => search.place_patterns(),
    }
    for item in &order {
        if search.found.hosts[*item].is_none() {
            search.place(*item);
        }
    }
    search.empty_hosts();
    let mut found = search.found;
    relabel(problem, &mut found);
    return_home(problem, &search.oracle, &mut found);
    fill(problem, &search.oracle, &mut found);
    found
}

/// Places what has found no host before VMs moved.
fn fill(problem: &Problem<'_>, oracle: &Oracle, found: &mut Found) {
    for item in 0..problem.items.len() {
        if found.hosts[item].is_some() {
            continue;
        }
        let fits = (0..found.states.len()).find_map(|host| {
            let spots = found.states[host].find_item(problem, oracle, item).ok()?;
            Some((host, spots))
        });
        if let Some((host, spots)) = fits {
            found.put(problem, item, host, spots);
        }
    }
}

/// The items, the greatest first.
fn ordered(problem: &Problem<'_>, key: Key) -> Vec<usize> {
    let fleet = problem.fleet;
    let hosts = fleet.hosts.len().max(1) as u64;
    let memory: u64 = (0..fleet.hosts.len()).map(|host| fleet.kind_of(host).memory_mib).sum();
    let memory = (memory / hosts).max(1);
    let size = |item: usize| {
        let (mut share, mut units) = (0u64, 0);
        for vm in &problem.items[item] {
            let of = problem.demands.iter().zip(&fleet.kinds);
            let of = of.filter_map(|(of, kind)| Some((of[fleet.vms[*vm].kind].as_ref()?, kind)));
            let part = of.map(|(of, kind)| {
                let processors = kind.template.pools[of.pool].processors.len().max(1) as u64;
                (of.total / processors, of.unit)
            });
            let (total, unit) = part.max().unwrap_or_default();
            share += total;
            units = units.max(unit);
        }
        let part = u128::from(problem.memory(item)) * u128::from(WHOLE) / u128::from(memory);
        let part = u64::try_from(part).unwrap_or(u64::MAX / 2);
        match key {
            Key::Greater => (share.max(part), units),
            Key::Processors => (units, share),
            Key::Memory => (part, share),
            Key::Sum => (share + part, units),
        }
    };
    let mut order: Vec<usize> = (0..problem.items.len()).collect();
    // What may go to few hosts goes first.
    let choices = |item: usize| {
        let kinds = problem.items[item].iter().map(|vm| fleet.vm_kind(*vm));
        kinds.map(|kind| kind.may_be_on.iter().filter(|may| **may).count()).min().unwrap_or_default()
    };
    order.sort_by_cached_key(|item| (choices(*item), Reverse(size(*item)), *item));
    order
}

struct Search<'p, 'f> {
    problem: &'p Problem<'f>,
    bound: &'p Bound,
    oracle: Oracle,
    found: Found,
    /// Hosts with VMs, the fullest first.
    open: BTreeSet<(Reverse<u64>, usize)>,
}

impl Search<'_, '_> {
    fn key(&self, host: usize) -> (Reverse<u64>, usize) {
        (Reverse(self.found.states[host].fullness(self.problem)), host)
    }

    fn put(&mut self, item: usize, host: usize, spots: Vec<Spot>) {
        self.open.remove(&self.key(host));
        self.found.put(self.problem, item, host, spots);
        self.open.insert(self.key(host));
    }

    fn take(&mut self, item: usize) -> Option<(usize, Vec<Spot>)> {
        let host = self.found.hosts[item]?;
        self.open.remove(&self.key(host));
        let taken = self.found.take(self.problem, item);
        if !self.found.states[host].is_empty() {
            self.open.insert(self.key(host));
        }
        taken
    }

    fn try_host(&mut self, item: usize, host: usize) -> Result<(), Cause> {
        let spots = self.found.states[host].find_item(self.problem, &self.oracle, item);
        spots.map(|spots| self.put(item, host, spots)).map_err(|(_, cause)| cause)
    }

    /// Leaves an item on its host of today.
    fn stay(&mut self, item: usize) {
        if let Some(host) = self.problem.fleet.vms[self.problem.items[item][0]].today {
            // What does not fit there is placed with the others.
            let _ = self.try_host(item, host);
        }
    }

    /// Puts patterns onto empty processors, those first that need most memory. Only VMs of one unit and
    /// without groups are in them; the others are placed afterwards.
    fn place_patterns(&mut self) {
        let (problem, bound) = (self.problem, self.bound);
        let fleet = problem.fleet;
        for (name, weights) in &bound.weights {
            let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); fleet.vm_kinds.len()];
            for (item, vms) in problem.items.iter().enumerate().rev() {
                if let [vm] = vms[..]
                    && fleet.vm_kind(vm).apart.is_empty()
                {
                    waiting[fleet.vms[vm].kind].push(item);
                }
            }
            let mut sets: Vec<(Reverse<u64>, usize, Vec<usize>)> = Vec::new();
            for ((kind, pattern), times) in &weights.packing {
                let has_one = |vm: usize| problem.demands[*kind][vm].as_ref().is_some_and(|of| of.units == 1);
                for _ in 0..*times {
                    let mut items = Vec::new();
                    for (vm, count) in counted(pattern).filter(|(vm, _)| has_one(*vm)) {
                        let left = waiting[vm].len();
                        items.extend(waiting[vm].drain(left.saturating_sub(count)..));
                    }
                    let memory = items.iter().map(|item| problem.memory(*item)).sum();
                    sets.push((Reverse(memory), *kind, items));
                }
            }
            sets.sort_unstable();
            sets.into_iter().for_each(|(_, kind, items)| self.place_set(name, kind, &items));
        }
    }

    /// Puts items on an empty processor of a host of the kind, if there is one with the memory.
    fn place_set(&mut self, pool: &str, kind: usize, items: &[usize]) {
        let fleet = self.problem.fleet;
        let Some(pool) = fleet.kinds[kind].template.pools.iter().position(|of| of.name == pool) else {
            return;
        };
        let vms: Vec<usize> = items.iter().map(|item| self.problem.items[*item][0]).collect();
        let is_of_kind = |host: &usize| fleet.hosts[*host].kind == kind;
        let open = self.open.iter().map(|(_, host)| *host).filter(is_of_kind);
        let empty = (0..fleet.hosts.len()).filter(|host| self.found.states[*host].is_empty());
        let mut hosts = open.chain(empty.filter(is_of_kind));
        let fits = hosts.find_map(|host| {
            Some((host, self.found.states[host].empty_processor(self.problem, pool, &vms)?))
        });
        if let Some((host, spots)) = fits {
            for (item, spot) in items.iter().zip(spots) {
                self.put(*item, host, vec![spot]);
            }
        }
    }

    fn place(&mut self, item: usize) {
        if self.place_in_open(item, None, REFUSALS_MAX) || self.open_host(item) {
            return;
        }
        self.place_in_open(item, None, usize::MAX);
    }

    /// Puts an item on a host that has VMs, but not on `except`.
    fn place_in_open(&mut self, item: usize, except: Option<usize>, refusals_max: usize) -> bool {
        let mut refusals = 0;
        let hosts: Vec<usize> =
            self.open.iter().map(|(_, host)| *host).filter(|host| Some(*host) != except).collect();
        for host in hosts {
            match self.try_host(item, host) {
                Ok(()) => return true,
                Err(Cause::Check { .. }) => refusals += 1,
                Err(_) => {}
            }
            if refusals >= refusals_max {
                return false;
            }
        }
        false
    }

    /// Puts an item on a host without VMs: that of today, or one of the largest kind.
    fn open_host(&mut self, item: usize) -> bool {
        let problem = self.problem;
        let today = problem.fleet.vms[problem.items[item][0]].today;
        if today.is_some_and(|host| self.found.states[host].is_empty() && self.try_host(item, host).is_ok()) {
            return true;
        }
        let mut kinds: BTreeMap<usize, usize> = BTreeMap::new();
        for (host, state) in self.found.states.iter().enumerate() {
            if state.is_empty() && problem.may(item, host) {
                kinds.entry(problem.fleet.hosts[host].kind).or_insert(host);
            }
        }
        let size = |kind: usize| {
            let kind = &problem.fleet.kinds[kind];
            (kind.template.pools.iter().map(|pool| pool.processors.len()).sum::<usize>(), kind.memory_mib)
        };
        let mut kinds: Vec<(usize, usize)> = kinds.into_iter().collect();
        kinds.sort_by_key(|(kind, _)| (Reverse(size(*kind)), *kind));
        kinds.into_iter().any(|(_, host)| self.try_host(item, host).is_ok())
    }

    /// Empties hosts whose VMs fit on others.
    fn empty_hosts(&mut self) {
        let least = self.bound.hosts(self.problem, &self.found.placed(self.problem));
        let mut tries = 0;
        let mut failed: BTreeSet<usize> = BTreeSet::new();
        while self.open.len() > least && tries < EMPTY_TRIES {
            let next = self.open.iter().rev().map(|(_, host)| *host).find(|host| !failed.contains(host));
            let Some(host) = next else { return };
            if self.empty_host(host) {
                tries = 0;
            } else {
                failed.insert(host);
                tries += 1;
            }
        }
    }

    fn empty_host(&mut self, host: usize) -> bool {
        let items = (0..self.problem.items.len()).filter(|item| self.found.hosts[*item] == Some(host));
        let mut undo = Vec::new();
        let mut is_empty = true;
        for item in items.collect::<Vec<_>>() {
            let Some((_, spots)) = self.take(item) else { continue };
            undo.push((item, spots));
            if !self.place_in_open(item, Some(host), REFUSALS_MAX) {
                is_empty = false;
                break;
            }
        }
        if !is_empty {
            for (item, _) in &undo {
                self.take(*item);
            }
            undo.into_iter().for_each(|(item, spots)| self.put(item, host, spots));
        }
        is_empty
    }
}

/// Exchanges hosts of one kind, so that as many VMs as possible stay where they are.
fn relabel(problem: &Problem<'_>, found: &mut Found) {
    let fleet = problem.fleet;
    let mut gains: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for (item, host) in found.hosts.iter().enumerate() {
        let Some(host) = *host else { continue };
        for vm in &problem.items[item] {
            if let Some(today) = fleet.vms[*vm].today
                && fleet.hosts[today].kind == fleet.hosts[host].kind
            {
                *gains.entry((host, today)).or_default() += fleet.vm_kind(*vm).move_cost;
            }
        }
    }
    let mut wishes: Vec<((usize, usize), u64)> = gains.into_iter().collect();
    wishes.sort_by_key(|(hosts, gain)| (Reverse(*gain), *hosts));
    let mut to: Vec<Option<usize>> = vec![None; fleet.hosts.len()];
    let mut is_taken = vec![false; fleet.hosts.len()];
    let may = |found: &Found, from: usize, to: usize| {
        found.states[from].vms.keys().all(|vm| fleet.vm_kind(*vm).may_be_on[to])
    };
    for ((host, today), _) in wishes {
        if to[host].is_none() && !is_taken[today] && may(found, host, today) {
            (to[host], is_taken[today]) = (Some(today), true);
        }
    }
    let left = (0..fleet.hosts.len()).filter(|host| to[*host].is_none() && !found.states[*host].is_empty());
    for host in left.collect::<Vec<_>>() {
        let same = |other: &usize| fleet.hosts[*other].kind == fleet.hosts[host].kind;
        let free = |other: &usize| !is_taken[*other] && may(found, host, *other);
        let other = std::iter::once(host).chain((0..fleet.hosts.len()).filter(same)).find(free);
        // Nowhere else: then all stay as they are.
        let Some(other) = other else { return };
        (to[host], is_taken[other]) = (Some(other), true);
    }
    let mut states: Vec<State> = (0..fleet.hosts.len()).map(|host| State::empty(problem, host)).collect();
    for (host, to) in to.iter().enumerate() {
        if let Some(to) = *to {
            states[to] = found.states[host].clone();
            states[to].host = to;
        }
    }
    found.states = states;
    found.hosts.iter_mut().for_each(|host| *host = host.and_then(|host| to[host]));
}

/// Moves VMs back to where they are today, if there is room and VMs on that host.
fn return_home(problem: &Problem<'_>, oracle: &Oracle, found: &mut Found) {
    for _ in 0..HOME_ROUNDS {
        let mut away: Vec<(Reverse<u64>, usize)> = Vec::new();
        for (item, host) in found.hosts.iter().enumerate() {
            let now = host.map_or(0, |host| cost(problem, item, host));
            if now > 0 {
                away.push((Reverse(now), item));
            }
        }
        away.sort_unstable();
        let mut has_changed = false;
        for (Reverse(now), item) in away {
            let home = problem.items[item].iter().filter_map(|vm| problem.fleet.vms[*vm].today);
            let home = home.min_by_key(|home| (cost(problem, item, *home), *home));
            let Some(home) = home.filter(|home| cost(problem, item, *home) < now) else { continue };
            if found.states[home].is_empty() {
                continue;
            }
            let Some((host, spots)) = found.take(problem, item) else { continue };
            match found.states[home].find_item(problem, oracle, item) {
                Ok(there) => {
                    found.put(problem, item, home, there);
                    has_changed = true;
                }
                Err(_) => found.put(problem, item, host, spots),
            }
        }
        if !has_changed {
            return;
        }
    }
}
