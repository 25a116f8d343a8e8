//! Chooses processors for pools that say how many they want instead of which.
//!
//! The choice is a pure function of the machine and of the file. The order of processors, devices and slots
//! does not matter. Pools that want isolated processors choose first, then those near a slot, then all
//! others, each in the order of the file; one near a slot that a class publishes after that class's pool.
//! These rules always hold:
//!
//! - A processor is in one pool at most, and not in a slot that lists it.
//! - An SMT sibling of a pool's processor, a hardware thread of the same core, is in the same pool or idle:
//!   no other pool and no helper runs there. Processor 0 and those that slots list are exempt.
//! - `isolated` and the NUMA node of `near` are conditions: the pool gets what fits, or there is an error.
//!
//! The best choice has, the most important first: no processor 0; nothing of the core of processor 0;
//! isolated processors; no processors with interrupts of a slot's device; whole cores; the last-level cache
//! of `near`; one cache, then one NUMA node; low numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::topology::{Processor, Topology};

/// What a pool wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Number of processors.
    pub count: usize,
    /// Only isolated processors will do.
    pub isolated: bool,
    /// Index of the slot on whose NUMA node they are to be.
    pub near: Option<usize>,
    /// What happens with SMT siblings.
    pub smt: Smt,
}

/// What happens with the hardware threads of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Smt {
    /// The pool has all of them, but for a last core of which it needs fewer.
    #[default]
    Whole,
    /// The pool has one of them, the others are idle.
    Idle,
}

/// Processors with a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    /// Name.
    pub name: String,
    /// Which processors.
    pub place: SlotPlace,
}

/// Which processors a slot is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SlotPlace {
    /// Those that the file lists. No pool chooses them.
    Processors(BTreeSet<usize>),
    /// Those that interrupts of this network interface or PCI device go to. Pools choose others first.
    Interrupts(String),
    /// Those on which the vCPUs of a class may run, which publishes them.
    Class(Published),
}

/// What a class publishes as a slot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Published {
    /// The class.
    pub class: String,
    /// Its pool.
    pub pool: String,
    /// The slot that it is near itself.
    pub near: Option<String>,
    /// The processors; none until [`publish`] knows them.
    pub processors: BTreeSet<usize>,
}

impl Slot {
    /// Has its class published it, if it is of a class?
    pub fn is_known(&self) -> bool {
        !matches!(&self.place, SlotPlace::Class(own) if own.processors.is_empty())
    }
}

/// The choice for a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The processors, ascending.
    pub processors: Vec<usize>,
    /// Why these, and what stays idle.
    pub choice: Choice,
}

/// Why a pool has its processors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The reason, a sentence without its beginning and full stop: "isolated, whole cores, one cache".
    pub reason: String,
    /// SMT siblings that stay idle, ascending.
    pub idle: Vec<usize>,
}

/// There are too few processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// What the pool wants, and how many there are.
    pub message: String,
    /// How many it can have, and why it cannot have the others.
    pub expected: String,
}

/// Chooses for the pools of `wanted`, by name and in the order of the file, beside pools that `listed` gives
/// processors. The results are in the order of `wanted`.
///
/// Slots of devices that the machine does not have are nowhere.
pub fn place(
    topology: &Topology,
    wanted: &[(&str, &Request)],
    listed: &[(&str, &[usize])],
    slots: &[Slot],
) -> Vec<Result<Placement, Shortage>> {
    let mut machine = Machine::new(topology, listed, slots);
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    // A pool with fewer wishes must not take what only one with more of them needs.
    order.sort_by_key(|&pool| (!wanted[pool].1.isolated, wanted[pool].1.near.is_none()));
    let mut placed: BTreeMap<usize, Result<Placement, Shortage>> = BTreeMap::new();
    while !order.is_empty() {
        machine.publish();
        // A pool near a slot of another pool chooses after that one.
        let ready = order.iter().position(|&pool| machine.knows_slot_of(wanted[pool].1));
        let is_circle = ready.is_none() && placed.values().all(Result::is_ok);
        let pool = order.remove(ready.unwrap_or(0));
        let (name, request) = wanted[pool];
        let chosen =
            if is_circle { Err(machine.circle(name, request)) } else { machine.choose(name, request) };
        placed.insert(pool, chosen);
    }
    placed.into_values().collect()
}

/// Enters the processors of the slots that classes publish, as far as their pools have some: `processors_of`
/// gives those of a pool by its name, ascending.
pub fn publish(topology: &Topology, slots: &mut [Slot], processors_of: impl Fn(&str) -> Vec<usize>) {
    let mut is_new = true;
    while std::mem::take(&mut is_new) {
        for index in 0..slots.len() {
            let SlotPlace::Class(own) = &slots[index].place else { continue };
            if !own.processors.is_empty() {
                continue;
            }
            let among = processors_of(&own.pool);
            let near = own.near.as_ref().and_then(|near| slots.iter().find(|slot| slot.name == *near));
            let found = match near {
                Some(slot) if slot.is_known() => near_slot(topology, slot, &among).unwrap_or_default(),
                Some(_) => Vec::new(),
                None => among,
            };
            if let SlotPlace::Class(own) = &mut slots[index].place {
                is_new |= !found.is_empty();
                own.processors = found.into_iter().collect();
            }
        }
    }
}

/// Of the processors `among`, those that share a last-level cache with one of `with`; if none does, those on
/// the NUMA node of one; if there are none either, all.
pub fn closest(topology: &Topology, with: &[usize], among: &[usize]) -> Vec<usize> {
    let processors = topology.by_number();
    let own = || with.iter().filter_map(|number| processors.get(number));
    let near =
        Near { nodes: own().map(|one| one.node).collect(), caches: own().map(|one| one.cache).collect() };
    near.of(&processors, among).unwrap_or_else(|| among.to_vec())
}

/// Of the processors `among`, those that share a last-level cache with the slot; if none does, those on its
/// NUMA node; `None` if there are none. Of a slot that is nowhere known, all.
pub fn near_slot(topology: &Topology, slot: &Slot, among: &[usize]) -> Option<Vec<usize>> {
    let processors = topology.by_number();
    let near = Near::of_slot(topology, &processors, slot);
    if topology.is_flat || near.nodes.is_empty() {
        return Some(among.to_vec());
    }
    near.of(&processors, among)
}

/// The processors of a slot; none where the machine does not tell.
pub fn slot_processors(topology: &Topology, slot: &Slot) -> BTreeSet<usize> {
    match &slot.place {
        SlotPlace::Processors(own) => own.clone(),
        SlotPlace::Interrupts(device) => {
            topology.devices.get(device).map(|device| device.interrupts.clone()).unwrap_or_default()
        }
        SlotPlace::Class(published) => published.processors.clone(),
    }
}

/// Who has a processor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Pool(String),
    Slot(String),
    /// Nobody: it is a sibling of a processor of this pool.
    Idle(String),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Pool(name) => write!(f, "in pool {name}"),
            Owner::Slot(name) => write!(f, "in slot {name}"),
            Owner::Idle(name) => write!(f, "idle beside pool {name}"),
        }
    }
}

/// The machine while pools choose.
struct Machine<'t> {
    topology: &'t Topology,
    slots: &'t [Slot],
    /// The same, with what classes have published.
    known: Vec<Slot>,
    processors: BTreeMap<usize, Processor>,
    /// The processors of each core that are online.
    cores: BTreeMap<usize, BTreeSet<usize>>,
    owners: BTreeMap<usize, Owner>,
    /// The slots whose interrupts go to a processor.
    interrupts: BTreeMap<usize, BTreeSet<&'t str>>,
}

/// What speaks against a selection, the most important first; less is better.
type Penalty = (bool, usize, usize, usize, usize, usize, usize, Vec<usize>);

impl<'t> Machine<'t> {
    fn new(topology: &'t Topology, listed: &[(&str, &[usize])], slots: &'t [Slot]) -> Machine<'t> {
        let processors = topology.by_number();
        let mut cores: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for processor in processors.values().filter(|processor| processor.is_online) {
            cores.entry(processor.core).or_default().insert(processor.number);
        }
        let mut owners = BTreeMap::new();
        let mut interrupts: BTreeMap<usize, BTreeSet<&str>> = BTreeMap::new();
        let mut by_name: Vec<&Slot> = slots.iter().collect();
        // The first name of several slots is the one that errors show.
        by_name.sort();
        for slot in by_name {
            match &slot.place {
                SlotPlace::Processors(own) => {
                    for number in own {
                        owners.entry(*number).or_insert_with(|| Owner::Slot(slot.name.clone()));
                    }
                }
                SlotPlace::Interrupts(device) => {
                    let device = topology.devices.get(device);
                    for number in device.iter().flat_map(|device| &device.interrupts) {
                        interrupts.entry(*number).or_default().insert(&slot.name);
                    }
                }
                // Its processors are those of a pool.
                SlotPlace::Class(_) => {}
            }
        }
        for (name, own) in listed {
            owners.extend(own.iter().map(|number| (*number, Owner::Pool((*name).to_owned()))));
        }
        let known = slots.to_vec();
        Machine { topology, slots, known, processors, cores, owners, interrupts }
    }

    /// Enters what classes publish whose pools have processors.
    fn publish(&mut self) {
        let owners = &self.owners;
        let of_pool = |name: &str| {
            let is_its = |owner: &Owner| matches!(owner, Owner::Pool(pool) if pool == name);
            owners.iter().filter(|(_, owner)| is_its(owner)).map(|(number, _)| *number).collect()
        };
        publish(self.topology, &mut self.known, of_pool);
    }

    /// Is it known where the slot is that a pool wants to be near?
    fn knows_slot_of(&self, request: &Request) -> bool {
        request.near.is_none_or(|slot| self.known[slot].is_known())
    }

    /// The error of a pool that is near a slot that depends on it.
    fn circle(&self, name: &str, request: &Request) -> Shortage {
        let slot = request.near.map_or("", |slot| &self.slots[slot].name);
        let message = format!("pool {name} is near slot {slot}, whose place depends on the pool's");
        Shortage { message, expected: "expected a slot that is placed without this pool".into() }
    }

    /// Chooses for a pool and enters the pool as the owner.
    fn choose(&mut self, name: &str, request: &Request) -> Result<Placement, Shortage> {
        let near = request.near.map(|slot| &self.known[slot]);
        let near = near.map(|slot| Near::of_slot(self.topology, &self.processors, slot)).unwrap_or_default();
        let mut refused: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
        let mut fitting = BTreeMap::new();
        for processor in self.processors.values() {
            match self.obstacle(processor, request, &near) {
                Some(obstacle) => drop(refused.entry(obstacle).or_default().insert(processor.number)),
                None => drop(fitting.insert(processor.number, *processor)),
            }
        }
        let scopes = scopes(&fitting);
        let selections = scopes.into_iter().filter_map(|(rank, scope)| {
            let taken = self.select(&scope, request, &near);
            (taken.len() == request.count).then(|| (self.penalty(&taken, rank, &near), taken))
        });
        let Some((_, taken)) = selections.min_by(|a, b| a.0.cmp(&b.0)) else {
            let most = self.select(&fitting, request, &near).len();
            return Err(self.shortage(name, request, most, &fitting, refused));
        };
        let idle = self.idle(&taken);
        let reason = self.reason(&taken, &idle, request, &near);
        self.owners.extend(taken.iter().map(|number| (*number, Owner::Pool(name.to_owned()))));
        self.owners.extend(idle.iter().map(|number| (*number, Owner::Idle(name.to_owned()))));
        let processors = taken.into_iter().collect();
        Ok(Placement { processors, choice: Choice { reason, idle: idle.into_iter().collect() } })
    }

    /// Why a pool cannot have a processor at all.
    fn obstacle(&self, processor: &Processor, request: &Request, near: &Near) -> Option<String> {
        if !processor.is_online {
            return Some("offline".into());
        }
        if let Some(owner) = self.owners.get(&processor.number) {
            return Some(owner.to_string());
        }
        let siblings = self.siblings(processor.core);
        let beside = siblings.iter().find_map(|number| match self.owners.get(number) {
            Some(Owner::Pool(name)) => Some(format!("on a core of pool {name}")),
            _ => None,
        });
        if beside.is_some() {
            return beside;
        }
        if self.topology.is_flat {
            return None;
        }
        if request.isolated && !processor.is_isolated {
            return Some("not isolated".into());
        }
        if !near.nodes.is_empty() && !near.nodes.contains(&processor.node) {
            return Some(format!("on NUMA node {}", processor.node));
        }
        if request.smt == Smt::Idle && siblings.len() > 1 {
            let free = |number: &usize| {
                !self.owners.contains_key(number)
                    && (!request.isolated || self.processors[number].is_isolated)
            };
            if siblings.contains(&0) {
                return Some("on the core of processor 0".into());
            }
            if !siblings.iter().all(free) {
                return Some("beside a sibling that cannot be idle".into());
            }
        }
        None
    }

    /// The processors of a core that are online.
    fn siblings(&self, core: usize) -> &BTreeSet<usize> {
        static NONE: BTreeSet<usize> = BTreeSet::new();
        self.cores.get(&core).unwrap_or(&NONE)
    }

    /// The best of the processors of a scope, core by core.
    fn select(&self, scope: &BTreeMap<usize, Processor>, request: &Request, near: &Near) -> BTreeSet<usize> {
        let mut cores: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for processor in scope.values() {
            cores.entry(processor.core).or_default().insert(processor.number);
        }
        let mut cores: Vec<BTreeSet<usize>> = cores.into_values().collect();
        cores.sort_by_cached_key(|own| self.core_key(own, near));
        let mut taken = BTreeSet::new();
        for own in cores {
            let left = request.count - taken.len();
            let most = match request.smt {
                Smt::Whole => left,
                Smt::Idle => left.min(1),
            };
            let mut own: Vec<usize> = own.into_iter().collect();
            own.sort_by_key(|number| {
                let is_isolated = self.processors[number].is_isolated;
                (*number == 0, !is_isolated, self.interrupts.contains_key(number), *number)
            });
            taken.extend(own.into_iter().take(most));
        }
        taken
    }

    /// Orders the cores whose threads `own` a pool could have, the best one first.
    fn core_key(&self, own: &BTreeSet<usize>, near: &Near) -> (bool, bool, bool, bool, bool, bool, usize) {
        let all = || own.iter().map(|number| &self.processors[number]);
        let is_split = all().any(|one| self.siblings(one.core).len() > own.len());
        (
            own.contains(&0),
            all().any(|one| self.siblings(one.core).contains(&0)),
            !all().all(|one| one.is_isolated),
            all().any(|one| self.interrupts.contains_key(&one.number)),
            is_split,
            all().any(|one| near.is_far(one)),
            own.first().copied().unwrap_or_default(),
        )
    }

    fn penalty(&self, selected: &BTreeSet<usize>, rank: usize, near: &Near) -> Penalty {
        let taken = || selected.iter().map(|number| &self.processors[number]);
        let beside_zero = |one: &&Processor| self.siblings(one.core).contains(&0);
        let is_split = |one: &&Processor| {
            // What stays idle is not split: nobody else runs there.
            self.siblings(one.core).iter().any(|number| {
                !selected.contains(number) && (*number == 0 || self.owners.contains_key(number))
            })
        };
        (
            selected.contains(&0),
            taken().filter(beside_zero).count(),
            taken().filter(|one| !one.is_isolated).count(),
            taken().filter(|one| self.interrupts.contains_key(&one.number)).count(),
            taken().filter(is_split).count(),
            taken().filter(|one| near.is_far(one)).count(),
            rank,
            selected.iter().copied().collect(),
        )
    }

    /// The siblings of these processors that nobody has.
    fn idle(&self, taken: &BTreeSet<usize>) -> BTreeSet<usize> {
        let siblings = taken.iter().flat_map(|number| self.siblings(self.processors[number].core));
        let is_idle =
            |number: &usize| *number != 0 && !taken.contains(number) && !self.owners.contains_key(number);
        siblings.copied().filter(is_idle).collect()
    }

    fn reason(
        &self,
        taken: &BTreeSet<usize>,
        idle: &BTreeSet<usize>,
        request: &Request,
        near: &Near,
    ) -> String {
        let mut parts: Vec<String> = Vec::new();
        if self.topology.is_flat {
            parts.push("the lowest free numbers because only the number of processors is known".into());
        } else {
            parts.push(self.isolation(taken));
            parts.extend(self.cores_of(taken, idle));
            parts.extend(self.sharing(taken));
        }
        if let (Some(slot), false) = (request.near, self.topology.is_flat) {
            parts.push(self.nearness(&self.slots[slot].name, taken, near));
        }
        let interrupted: Vec<usize> =
            taken.iter().filter(|number| self.interrupts.contains_key(number)).copied().collect();
        if !interrupted.is_empty() {
            let slots: BTreeSet<&str> =
                interrupted.iter().flat_map(|number| &self.interrupts[number]).copied().collect();
            let slots: Vec<&str> = slots.into_iter().collect();
            parts.push(format!("{} with interrupts of slot {}", ranges(interrupted), slots.join(", ")));
        }
        if taken.contains(&0) {
            parts.push("0 because nothing else is left".into());
        }
        parts.join(", ")
    }

    fn isolation(&self, taken: &BTreeSet<usize>) -> String {
        let is_isolated = |number: &usize| self.processors[number].is_isolated;
        let others: Vec<usize> = taken.iter().filter(|number| !is_isolated(number)).copied().collect();
        if others.is_empty() {
            return "isolated".into();
        }
        let machine_has = self.processors.values().any(|one| one.is_online && one.is_isolated);
        match (machine_has, others.len() == taken.len()) {
            (false, _) => "no processor is isolated".into(),
            (true, true) => "not isolated because no more isolated ones fit".into(),
            (true, false) => format!("{} not isolated because no more isolated ones fit", ranges(others)),
        }
    }

    /// The words about SMT siblings; none on a machine without.
    fn cores_of(&self, taken: &BTreeSet<usize>, idle: &BTreeSet<usize>) -> Vec<String> {
        if self.cores.values().all(|core| core.len() == 1) {
            return Vec::new();
        }
        let siblings: BTreeSet<usize> =
            taken.iter().flat_map(|number| self.siblings(self.processors[number].core)).copied().collect();
        let shared: Vec<usize> =
            siblings.difference(taken).filter(|number| !idle.contains(number)).copied().collect();
        let mut parts = Vec::new();
        if shared.is_empty() && idle.is_empty() {
            parts.push("whole cores".into());
        }
        if !idle.is_empty() {
            parts.push(format!("idle siblings {}", ranges(idle.iter().copied())));
        }
        if !shared.is_empty() {
            parts.push(format!("on a core with {}", ranges(shared)));
        }
        parts
    }

    /// What they share; nothing where the machine has one of it.
    fn sharing(&self, taken: &BTreeSet<usize>) -> Option<String> {
        let count = |group: fn(&Processor) -> usize, taken: Option<&BTreeSet<usize>>| {
            let all = self.processors.values().filter(|one| one.is_online);
            let own = all.filter(|one| taken.is_none_or(|taken| taken.contains(&one.number)));
            own.map(group).collect::<BTreeSet<usize>>()
        };
        let (cache, node) = (|one: &Processor| one.cache, |one: &Processor| one.node);
        let nodes = count(node, Some(taken));
        let on_nodes = match (count(node, None).len(), nodes.len()) {
            (1, _) => String::new(),
            (_, 1) => format!(" of NUMA node {}", ranges(nodes)),
            _ => format!(" of NUMA nodes {}", ranges(nodes)),
        };
        match (count(cache, None).len(), count(cache, Some(taken)).len()) {
            (1, _) => None,
            (_, 1) => Some(format!("one cache{on_nodes}")),
            (_, several) => Some(format!("{several} caches{on_nodes}")),
        }
    }

    fn nearness(&self, slot: &str, taken: &BTreeSet<usize>, near: &Near) -> String {
        let is_close = |number: &usize| near.caches.contains(&self.processors[number].cache);
        match (taken.iter().all(is_close), near.nodes.is_empty()) {
            (true, _) => format!("in the cache of slot {slot}"),
            (false, false) => format!("on the node of slot {slot}"),
            (false, true) => format!("on any node because that of slot {slot} is not known"),
        }
    }

    fn shortage(
        &self,
        name: &str,
        request: &Request,
        most: usize,
        fitting: &BTreeMap<usize, Processor>,
        refused: BTreeMap<String, BTreeSet<usize>>,
    ) -> Shortage {
        let isolated = if request.isolated { "isolated " } else { "" };
        let processors = if request.count == 1 { "processor" } else { "processors" };
        let cores = if request.smt == Smt::Idle { " on cores of their own" } else { "" };
        let near =
            request.near.map_or_else(String::new, |slot| format!(" near slot {}", self.slots[slot].name));
        let count = request.count;
        let there = match most {
            0 => "none is there".into(),
            1 => "1 is there".into(),
            more => format!("{more} are there"),
        };
        let message = format!("pool {name} wants {count} {isolated}{processors}{cores}{near}, and {there}");
        let free = (!fitting.is_empty()).then(|| format!("{} free", ranges(fitting.keys().copied())));
        let rest = refused.into_iter().map(|(why, numbers)| format!("{} {why}", ranges(numbers)));
        let all: Vec<String> = free.into_iter().chain(rest).collect();
        Shortage { message, expected: format!("expected at most {most}: {}", all.join(", ")) }
    }
}

/// Nodes and caches of a slot; none where they are not known.
#[derive(Debug, Default)]
struct Near {
    nodes: BTreeSet<usize>,
    caches: BTreeSet<usize>,
}

impl Near {
    fn of_slot(topology: &Topology, processors: &BTreeMap<usize, Processor>, slot: &Slot) -> Near {
        let of = |numbers: &BTreeSet<usize>| -> Vec<Processor> {
            numbers.iter().filter_map(|number| processors.get(number)).copied().collect()
        };
        let (node, own) = match &slot.place {
            SlotPlace::Processors(numbers) => (None, of(numbers)),
            SlotPlace::Class(published) => (None, of(&published.processors)),
            SlotPlace::Interrupts(device) => match topology.devices.get(device) {
                Some(device) => (Some(device.node), of(&device.interrupts)),
                None => (None, Vec::new()),
            },
        };
        let nodes = match node {
            Some(node) => node.into_iter().collect(),
            None => own.iter().map(|processor| processor.node).collect(),
        };
        Near { nodes, caches: own.iter().map(|processor| processor.cache).collect() }
    }

    /// Of `among`, those with one of the caches; if there are none, those on one of the nodes.
    fn of(&self, processors: &BTreeMap<usize, Processor>, among: &[usize]) -> Option<Vec<usize>> {
        let with = |fits: &dyn Fn(&Processor) -> bool| {
            let found = among.iter().copied().filter(|number| processors.get(number).is_some_and(fits));
            Some(found.collect::<Vec<usize>>()).filter(|found| !found.is_empty())
        };
        with(&|one| self.caches.contains(&one.cache)).or_else(|| with(&|one| self.nodes.contains(&one.node)))
    }

    fn is_far(&self, processor: &Processor) -> bool {
        !self.caches.is_empty() && !self.caches.contains(&processor.cache)
    }
}

/// Each cache, each node and the whole machine, with a number that is greater for the wider ones.
fn scopes(fitting: &BTreeMap<usize, Processor>) -> Vec<(usize, BTreeMap<usize, Processor>)> {
    let groups = |rank: usize, group: fn(&Processor) -> usize| {
        let mut groups: BTreeMap<usize, BTreeMap<usize, Processor>> = BTreeMap::new();
        for (number, processor) in fitting {
            groups.entry(group(processor)).or_default().insert(*number, *processor);
        }
        groups.into_values().map(move |group| (rank, group)).collect::<Vec<_>>()
    };
    let mut all = groups(0, |one| one.cache);
    all.extend(groups(1, |one| one.node));
    all.push((2, fitting.clone()));
    all
}

/// Numbers as people write them: `0, 2-4`.
fn ranges(numbers: impl IntoIterator<Item = usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let range = |(first, last)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    ranges.into_iter().map(range).collect::<Vec<_>>().join(", ")
}
