//! A host with the VMs on it, and where another one fits.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use punctual_model::Host;
use punctual_model::fleet::HostKind;

use crate::problem::{Demand, Problem, Refusal, WHOLE};
use crate::slice::{self, Member, Oracle};

/// Where a VM is on a host.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Spot {
    /// The node of its memory and vCPUs, by its place in the host's nodes; `None`: any.
    pub(crate) node: Option<usize>,
    /// By unit, its processor by the place in the pool; empty where the policy chooses.
    pub(crate) processors: Vec<usize>,
}

/// Why a host cannot take a VM, cheaply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    NoPool,
    Excluded,
    Apart {
        group: usize,
        vm: usize,
    },
    Memory {
        lacks_mib: u64,
    },
    Node {
        lacks_mib: u64,
    },
    Reaches {
        pool: usize,
    },
    Share {
        wanted: u64,
        free: u64,
    },
    /// The analysis refuses; on this processor of the pool, or in the pool with these nodes.
    Check {
        place: Option<usize>,
    },
}

/// In which order processors are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    FullestFirst,
    EmptiestFirst,
}

/// What a pool has.
#[derive(Clone, Debug)]
struct PoolState {
    /// By processor, or of all together where the policy moves vCPUs: the share that is taken.
    load: Vec<u64>,
    /// By processor: the VMs with units there, ascending, with how many.
    on: Vec<Vec<(usize, usize)>>,
    /// The greatest share that a processor, or the pool, has left.
    free: u64,
    /// VMs for which the pool is analysed as a whole.
    linked: usize,
}

/// A host with VMs on it.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) host: usize,
    kind: usize,
    pub(crate) vms: BTreeMap<usize, Spot>,
    pools: Vec<PoolState>,
    memory_mib: u64,
    /// By node: memory of VMs that must be in one.
    node_mib: Vec<u64>,
    load: u64,
    /// Kinds of VMs that the analysis has refused since the last change, and why.
    refused: Vec<(usize, Cause)>,
}

impl State {
    pub(crate) fn empty(problem: &Problem<'_>, host: usize) -> Self {
        let kind = problem.fleet.hosts[host].kind;
        let of = &problem.fleet.kinds[kind];
        let pool = |(pool, is_pinned): (_, &bool)| {
            let processors = processors(of, pool);
            let (places, free) =
                if *is_pinned { (processors, WHOLE) } else { (1, WHOLE * processors as u64) };
            PoolState { load: vec![0; places], on: vec![Vec::new(); places], free, linked: 0 }
        };
        State {
            host,
            kind,
            vms: BTreeMap::new(),
            pools: of.is_pinned.iter().enumerate().map(pool).collect(),
            memory_mib: 0,
            node_mib: vec![0; of.nodes.len()],
            load: 0,
            refused: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.vms.is_empty()
    }

    /// How full it is: shares of processors and of memory, in parts of a fleet's greatest.
    pub(crate) fn fullness(&self, problem: &Problem<'_>) -> u64 {
        let kind = self.of(problem);
        let processors: usize = kind.template.pools.iter().map(|pool| pool.processors.len()).sum();
        let memory = u128::from(self.memory_mib) * u128::from(WHOLE) / u128::from(kind.memory_mib.max(1));
        self.load / processors.max(1) as u64 + u64::try_from(memory).unwrap_or(WHOLE)
    }

    fn of<'p>(&self, problem: &'p Problem<'_>) -> &'p HostKind {
        &problem.fleet.kinds[self.kind]
    }

    fn demand<'p>(&self, problem: &'p Problem<'_>, vm: usize) -> Option<&'p Demand> {
        problem.demands[self.kind][problem.fleet.vms[vm].kind].as_ref()
    }

    /// Where all VMs of an item fit together; the state is as before.
    pub(crate) fn find_item(
        &mut self,
        problem: &Problem<'_>,
        oracle: &Oracle,
        item: usize,
    ) -> Result<Vec<Spot>, (usize, Cause)> {
        if let [vm] = problem.items[item][..] {
            let kind = problem.fleet.vms[vm].kind;
            if let Some((_, cause)) = self.refused.iter().find(|(known, _)| *known == kind) {
                return Err((vm, *cause));
            }
            let found = self.find(problem, oracle, vm);
            if let Err(cause @ Cause::Check { .. }) = found {
                self.refused.push((kind, cause));
            }
            return found.map(|spot| vec![spot]).map_err(|cause| (vm, cause));
        }
        let mut spots = Vec::new();
        let mut failed = None;
        for vm in &problem.items[item] {
            match self.find(problem, oracle, *vm) {
                Ok(spot) => {
                    self.add(problem, *vm, spot.clone());
                    spots.push(spot);
                }
                Err(cause) => {
                    failed = Some((*vm, cause));
                    break;
                }
            }
        }
        problem.items[item].iter().take(spots.len()).for_each(|vm| self.remove(problem, *vm));
        failed.map_or(Ok(spots), Err)
    }

    /// Where the VM fits.
    pub(crate) fn find(&self, problem: &Problem<'_>, oracle: &Oracle, vm: usize) -> Result<Spot, Cause> {
        let demand = self.could(problem, vm)?;
        let (kind, of) = (self.of(problem), problem.fleet.vm_kind(vm));
        if !of.one_node || kind.nodes.len() == 1 {
            return self
                .processors(problem, oracle, vm, demand, None)
                .map(|processors| Spot { node: None, processors });
        }
        let room = |node: &usize| kind.nodes[*node].memory_mib.saturating_sub(self.node_mib[*node]);
        let mut nodes: Vec<usize> =
            (0..kind.nodes.len()).filter(|node| room(node) >= of.memory_mib).collect();
        nodes.sort_by_key(|node| (room(node), *node));
        let most = (0..kind.nodes.len()).map(|node| room(&node)).max().unwrap_or_default();
        let mut cause = Cause::Node { lacks_mib: of.memory_mib.saturating_sub(most) };
        for node in nodes {
            match self.processors(problem, oracle, vm, demand, Some(node)) {
                Ok(processors) => return Ok(Spot { node: Some(node), processors }),
                Err(other) => cause = other,
            }
        }
        Err(cause)
    }

    /// Where these VMs of one unit each have an empty processor of the pool together, as far as memory and
    /// lists of hosts say.
    pub(crate) fn empty_processor(
        &self,
        problem: &Problem<'_>,
        pool: usize,
        vms: &[usize],
    ) -> Option<Vec<Spot>> {
        let (fleet, kind) = (problem.fleet, self.of(problem));
        let memory: u64 = vms.iter().map(|vm| fleet.vm_kind(*vm).memory_mib).sum();
        let may = |vm: &usize| fleet.vm_kind(*vm).may_be_on[self.host];
        if self.memory_mib + memory > kind.memory_mib || !vms.iter().all(may) {
            return None;
        }
        let is_bound = |vm: &usize| fleet.vm_kind(*vm).one_node && kind.nodes.len() > 1;
        let bound_mib: u64 =
            vms.iter().filter(|vm| is_bound(vm)).map(|vm| fleet.vm_kind(*vm).memory_mib).sum();
        let node_of = |place: usize| {
            let number = kind.template.pools[pool].processors[place];
            kind.nodes.iter().position(|node| node.processors.binary_search(&number).is_ok())
        };
        let fits = |place: &usize| {
            let has_room = |node: usize| self.node_mib[node] + bound_mib <= kind.nodes[node].memory_mib;
            self.pools[pool].on[*place].is_empty()
                && (bound_mib == 0 || node_of(*place).is_some_and(has_room))
                && vms.iter().all(|vm| kind.allowed[fleet.vms[*vm].kind].contains(place))
        };
        let place = (0..self.pools[pool].on.len()).find(fits)?;
        let spot = |vm: &usize| {
            let node = if is_bound(vm) { node_of(place) } else { None };
            Spot { node, processors: vec![place] }
        };
        Some(vms.iter().map(spot).collect())
    }

    /// Every place where the VM fits; of processors that differ in nothing and are empty only the first.
    pub(crate) fn every_spot(&self, problem: &Problem<'_>, oracle: &Oracle, vm: usize) -> Vec<Spot> {
        let Ok(demand) = self.could(problem, vm) else { return Vec::new() };
        let (kind, of) = (self.of(problem), problem.fleet.vm_kind(vm));
        let room = |node: usize| kind.nodes[node].memory_mib.saturating_sub(self.node_mib[node]);
        let nodes: Vec<Option<usize>> = if of.one_node && kind.nodes.len() > 1 {
            (0..kind.nodes.len()).filter(|node| room(*node) >= of.memory_mib).map(Some).collect()
        } else {
            vec![None]
        };
        let mut spots = Vec::new();
        for node in nodes {
            if demand.units > 0 && kind.is_pinned[demand.pool] {
                let allowed = self.allowed(problem, vm, demand.pool, node);
                let mut own = Vec::new();
                self.every_pin(problem, oracle, (vm, demand), &allowed, &mut own, &mut |own| {
                    spots.push(Spot { node, processors: own.to_vec() });
                });
            } else if let Ok(processors) = self.processors(problem, oracle, vm, demand, node) {
                spots.push(Spot { node, processors });
            }
        }
        spots
    }

    fn every_pin(
        &self,
        problem: &Problem<'_>,
        oracle: &Oracle,
        (vm, demand): (usize, &Demand),
        allowed: &[usize],
        own: &mut Vec<usize>,
        found: &mut impl FnMut(&[usize]),
    ) {
        if own.len() == demand.units {
            if !self.is_whole(problem, demand) || self.ask_pool(problem, oracle, demand.pool, Some((vm, own)))
            {
                found(own);
            }
            return;
        }
        let pool = &self.pools[demand.pool];
        let mut empty: Vec<Vec<bool>> = Vec::new();
        for place in allowed {
            let used = own.iter().filter(|other| **other == *place).count();
            // vCPUs without tasks are all alike.
            let is_behind = !demand.is_linked && own.last().is_some_and(|last| last > place);
            if is_behind || pool.load[*place] + demand.unit * (used as u64 + 1) > WHOLE {
                continue;
            }
            if pool.on[*place].is_empty() && used == 0 {
                let twin = self.twin(problem, demand.pool, *place);
                if empty.contains(&twin) {
                    continue;
                }
                empty.push(twin);
            }
            let more = Some((vm, used + 1));
            if self.is_whole(problem, demand)
                || self.ask_processor(problem, oracle, demand.pool, *place, more)
            {
                own.push(*place);
                self.every_pin(problem, oracle, (vm, demand), allowed, own, found);
                own.pop();
            }
        }
    }

    /// Equal for processors that differ in nothing: the nodes that they are in, and who may use them.
    fn twin(&self, problem: &Problem<'_>, pool: usize, place: usize) -> Vec<bool> {
        let kind = self.of(problem);
        let number = kind.template.pools[pool].processors[place];
        let nodes = kind.nodes.iter().map(|node| node.processors.contains(&number));
        let demands = problem.demands[self.kind].iter().zip(&kind.allowed);
        let may = demands.map(|(demand, allowed)| {
            demand.as_ref().is_some_and(|of| of.pool == pool) && allowed.contains(&place)
        });
        nodes.chain(may).collect()
    }

    /// What costs nothing to find out.
    fn could<'p>(&self, problem: &'p Problem<'_>, vm: usize) -> Result<&'p Demand, Cause> {
        let of = problem.fleet.vm_kind(vm);
        let demand = self.demand(problem, vm).ok_or(Cause::NoPool)?;
        if !of.may_be_on[self.host] {
            return Err(Cause::Excluded);
        }
        let pool = &self.pools[demand.pool];
        let wanted = if pool.load.len() == 1 { demand.total } else { demand.unit };
        if wanted > pool.free {
            return Err(Cause::Share { wanted, free: pool.free });
        }
        let lacks_mib = (self.memory_mib + of.memory_mib).saturating_sub(self.of(problem).memory_mib);
        if lacks_mib > 0 {
            return Err(Cause::Memory { lacks_mib });
        }
        for group in &of.apart {
            let is_of = |vm: &&usize| problem.fleet.vm_kind(**vm).apart.contains(group);
            if let Some(other) = self.vms.keys().find(is_of) {
                return Err(Cause::Apart { group: *group, vm: *other });
            }
        }
        Ok(demand)
    }

    /// The processors of its units, in a node or anywhere.
    fn processors(
        &self,
        problem: &Problem<'_>,
        oracle: &Oracle,
        vm: usize,
        demand: &Demand,
        node: Option<usize>,
    ) -> Result<Vec<usize>, Cause> {
        if demand.units == 0 {
            return Ok(Vec::new());
        }
        let allowed = self.allowed(problem, vm, demand.pool, node);
        if self.of(problem).is_pinned[demand.pool] {
            let fullest = self.pin(problem, oracle, vm, demand, &allowed, Order::FullestFirst);
            return match fullest {
                // Where tasks depend on several processors, other ones may do.
                Err(Cause::Check { .. }) if self.is_whole(problem, demand) => {
                    self.pin(problem, oracle, vm, demand, &allowed, Order::EmptiestFirst)
                }
                other => other,
            };
        }
        if allowed.len() < processors(self.of(problem), demand.pool) {
            return Err(Cause::Reaches { pool: demand.pool });
        }
        let (wanted, free) = (demand.total, self.pools[demand.pool].free);
        if wanted > free {
            return Err(Cause::Share { wanted, free });
        }
        let fits = self.ask_pool(problem, oracle, demand.pool, Some((vm, &[])));
        if fits { Ok(Vec::new()) } else { Err(Cause::Check { place: None }) }
    }

    /// The processors of the pool that the VM may use, by their places, ascending.
    fn allowed(&self, problem: &Problem<'_>, vm: usize, pool: usize, node: Option<usize>) -> Vec<usize> {
        let kind = self.of(problem);
        let allowed = &kind.allowed[problem.fleet.vms[vm].kind];
        let Some(node) = node else { return allowed.clone() };
        let numbers = &kind.template.pools[pool].processors;
        let is_there = |place: &&usize| kind.nodes[node].processors.binary_search(&numbers[**place]).is_ok();
        allowed.iter().filter(is_there).copied().collect()
    }

    /// Is the pool analysed as a whole with such a VM in it?
    fn is_whole(&self, problem: &Problem<'_>, demand: &Demand) -> bool {
        problem.has_tasks[self.kind][demand.pool] || demand.is_linked || self.pools[demand.pool].linked > 0
    }

    fn pin(
        &self,
        problem: &Problem<'_>,
        oracle: &Oracle,
        vm: usize,
        demand: &Demand,
        allowed: &[usize],
        order: Order,
    ) -> Result<Vec<usize>, Cause> {
        let pool = &self.pools[demand.pool];
        let is_whole = self.is_whole(problem, demand);
        let mut own: Vec<usize> = Vec::new();
        for _ in 0..demand.units {
            let used = |place: usize| own.iter().filter(|other| **other == place).count();
            let load = |place: usize| pool.load[place] + demand.unit * used(place) as u64;
            let mut places: Vec<usize> = allowed.to_vec();
            match order {
                Order::FullestFirst => {
                    places.sort_by_key(|place| (used(*place), Reverse(load(*place)), *place))
                }
                Order::EmptiestFirst => places.sort_by_key(|place| (used(*place), load(*place), *place)),
            }
            let free =
                places.iter().map(|place| WHOLE.saturating_sub(load(*place))).max().unwrap_or_default();
            let mut cause = Cause::Share { wanted: demand.unit, free };
            let mut chosen = None;
            for place in places.into_iter().filter(|place| load(*place) + demand.unit <= WHOLE) {
                let more = Some((vm, used(place) + 1));
                if is_whole || self.ask_processor(problem, oracle, demand.pool, place, more) {
                    chosen = Some(place);
                    break;
                }
                // The emptiest one, which is the last, says most.
                cause = Cause::Check { place: Some(place) };
            }
            own.push(chosen.ok_or(cause)?);
        }
        if is_whole && !self.ask_pool(problem, oracle, demand.pool, Some((vm, &own))) {
            return Err(Cause::Check { place: None });
        }
        Ok(own)
    }

    /// Are all units on the processor guaranteed, with so many units of another VM?
    fn ask_processor(
        &self,
        problem: &Problem<'_>,
        oracle: &Oracle,
        pool: usize,
        place: usize,
        more: Option<(usize, usize)>,
    ) -> bool {
        let on = self.on_processor(pool, place, more);
        let mut key = vec![self.kind as u32, pool as u32, 0];
        for (vm, count) in &on {
            key.extend([problem.fleet.vms[*vm].kind as u32, *count as u32]);
        }
        oracle.ask(&key, || self.processor_host(problem, pool, &on))
    }

    fn on_processor(&self, pool: usize, place: usize, more: Option<(usize, usize)>) -> Vec<(usize, usize)> {
        let mut on = self.pools[pool].on[place].clone();
        if let Some((vm, count)) = more {
            let at = on.partition_point(|(other, _)| *other < vm);
            on.insert(at, (vm, count));
        }
        on
    }

    fn processor_host(&self, problem: &Problem<'_>, pool: usize, on: &[(usize, usize)]) -> Host {
        let member = |(vm, count): &(usize, usize)| {
            let shares = self.demand(problem, *vm).is_some_and(|demand| demand.units < demand.vcpus);
            let vcpus =
                if shares { self.demand(problem, *vm).map_or(0, |demand| demand.vcpus) } else { *count };
            let of = &problem.fleet.vms[*vm];
            Member { kind: of.kind, name: &of.name, processors: Some(vec![vec![0]; vcpus]), vcpus }
        };
        let members: Vec<Member<'_>> = on.iter().map(member).collect();
        slice::host(self.of(problem), &problem.fleet.hosts[self.host].name, &members, Some(pool))
    }

    /// Is the whole pool guaranteed, with another VM on these processors?
    fn ask_pool(
        &self,
        problem: &Problem<'_>,
        oracle: &Oracle,
        pool: usize,
        more: Option<(usize, &[usize])>,
    ) -> bool {
        let all = self.in_pool(problem, pool, more);
        let mut key = vec![self.kind as u32, pool as u32, 1];
        for (vm, own) in &all {
            key.extend([problem.fleet.vms[*vm].kind as u32, own.len() as u32]);
            key.extend(own.iter().map(|place| *place as u32));
        }
        oracle.ask(&key, || self.pool_host(problem, pool, &all))
    }

    /// The VMs with units in the pool, with their processors.
    fn in_pool(
        &self,
        problem: &Problem<'_>,
        pool: usize,
        more: Option<(usize, &[usize])>,
    ) -> BTreeMap<usize, Vec<usize>> {
        let is_here =
            |vm: &usize| self.demand(problem, *vm).is_some_and(|of| of.pool == pool && of.units > 0);
        let here = self.vms.iter().filter(|(vm, _)| is_here(vm));
        let mut all: BTreeMap<usize, Vec<usize>> =
            here.map(|(vm, spot)| (*vm, spot.processors.clone())).collect();
        all.extend(more.map(|(vm, own)| (vm, own.to_vec())));
        all
    }

    fn pool_host(&self, problem: &Problem<'_>, pool: usize, all: &BTreeMap<usize, Vec<usize>>) -> Host {
        let members: Vec<Member<'_>> =
            all.iter().map(|(vm, own)| self.member(problem, *vm, None, own)).collect();
        slice::host(self.of(problem), &problem.fleet.hosts[self.host].name, &members, Some(pool))
    }

    fn member<'f>(&self, problem: &Problem<'f>, vm: usize, node: Option<usize>, own: &[usize]) -> Member<'f> {
        let fleet = problem.fleet;
        let of = &fleet.vms[vm];
        let demand = self.demand(problem, vm);
        let vcpus = demand.map_or(0, |demand| demand.vcpus);
        let processors = match (own, demand) {
            ([], Some(demand)) => {
                let allowed = self.allowed(problem, vm, demand.pool, node);
                let is_part = allowed.len() < processors(self.of(problem), demand.pool);
                is_part.then(|| vec![allowed; vcpus])
            }
            ([one], _) => Some(vec![vec![*one]; vcpus]),
            _ => Some(own.iter().map(|place| vec![*place]).collect()),
        };
        Member { kind: of.kind, name: &of.name, processors, vcpus }
    }

    /// The whole host, as its host file has it.
    pub(crate) fn to_host(&self, problem: &Problem<'_>) -> Host {
        let members: Vec<Member<'_>> = self
            .vms
            .iter()
            .map(|(vm, spot)| self.member(problem, *vm, spot.node, &spot.processors))
            .collect();
        slice::host(self.of(problem), &problem.fleet.hosts[self.host].name, &members, None)
    }

    pub(crate) fn add(&mut self, problem: &Problem<'_>, vm: usize, spot: Spot) {
        self.change(problem, vm, &spot, true);
        self.vms.insert(vm, spot);
    }

    pub(crate) fn remove(&mut self, problem: &Problem<'_>, vm: usize) {
        if let Some(spot) = self.vms.remove(&vm) {
            self.change(problem, vm, &spot, false);
        }
    }

    fn change(&mut self, problem: &Problem<'_>, vm: usize, spot: &Spot, is_new: bool) {
        let Some(demand) = self.demand(problem, vm) else { return };
        self.refused.clear();
        let memory_mib = problem.fleet.vm_kind(vm).memory_mib;
        let by = |to: &mut u64, amount: u64| *to = if is_new { *to + amount } else { *to - amount };
        by(&mut self.memory_mib, memory_mib);
        by(&mut self.load, demand.total);
        if let Some(node) = spot.node {
            by(&mut self.node_mib[node], memory_mib);
        }
        let all = processors(self.of(problem), demand.pool) as u64;
        let is_pinned = self.of(problem).is_pinned[demand.pool];
        let pool = &mut self.pools[demand.pool];
        if demand.is_linked {
            pool.linked = if is_new { pool.linked + 1 } else { pool.linked - 1 };
        }
        if !is_pinned {
            by(&mut pool.load[0], demand.total);
            pool.free = (WHOLE * all).saturating_sub(pool.load[0]);
            return;
        }
        for place in &spot.processors {
            by(&mut pool.load[*place], demand.unit);
            let on = &mut pool.on[*place];
            let at = on.partition_point(|(other, _)| *other < vm);
            match (is_new, on.get_mut(at)) {
                (true, Some((other, count))) if *other == vm => *count += 1,
                (true, _) => on.insert(at, (vm, 1)),
                (false, _) => on.remove_if_last(at),
            }
        }
        pool.free = pool.load.iter().map(|load| WHOLE.saturating_sub(*load)).max().unwrap_or_default();
    }

    /// The cause in words.
    pub(crate) fn refusal(&self, problem: &Problem<'_>, vm: usize, cause: Cause) -> Refusal {
        let fleet = problem.fleet;
        match cause {
            Cause::NoPool => Refusal::NoPool,
            Cause::Excluded => Refusal::Excluded,
            Cause::Apart { group, vm } => {
                Refusal::Apart { group: fleet.apart[group].clone(), vm: fleet.vms[vm].name.clone() }
            }
            Cause::Memory { lacks_mib } => Refusal::Memory { lacks_mib },
            Cause::Node { lacks_mib } => Refusal::Node { lacks_mib },
            Cause::Reaches { pool } => {
                Refusal::Reaches { pool: self.of(problem).template.pools[pool].name.clone() }
            }
            Cause::Share { wanted, free } => Refusal::Share { wanted, free },
            Cause::Check { place } => self.objection(problem, vm, place),
        }
    }

    fn objection(&self, problem: &Problem<'_>, vm: usize, place: Option<usize>) -> Refusal {
        let pool = self.demand(problem, vm).map_or(0, |demand| demand.pool);
        let of = &self.of(problem).template.pools[pool];
        let (host, place) = match place {
            Some(place) => {
                let on = self.on_processor(pool, place, Some((vm, 1)));
                (self.processor_host(problem, pool, &on), format!("processor {}", of.processors[place]))
            }
            None => {
                let units = self.demand(problem, vm).map_or(0, |demand| demand.units);
                let is_pinned = self.of(problem).is_pinned[pool];
                let count = processors(self.of(problem), pool);
                let own: Vec<usize> =
                    if is_pinned { (0..units).map(|unit| unit % count).collect() } else { Vec::new() };
                let all = self.in_pool(problem, pool, Some((vm, &own)));
                (self.pool_host(problem, pool, &all), format!("pool `{}`", of.name))
            }
        };
        let why = slice::objection(&host).unwrap_or_else(|| "not all deadlines would be guaranteed".into());
        Refusal::Check { place, why }
    }
}

fn processors(kind: &HostKind, pool: usize) -> usize {
    kind.template.pools[pool].processors.len()
}

/// The counted VMs of a processor.
trait Counted {
    /// Takes away one unit at `at`, and the VM with its last one.
    fn remove_if_last(&mut self, at: usize);
}

impl Counted for Vec<(usize, usize)> {
    fn remove_if_last(&mut self, at: usize) {
        match self.get_mut(at) {
            Some((_, count)) if *count > 1 => *count -= 1,
            Some(_) => drop(self.remove(at)),
            None => {}
        }
    }
}
