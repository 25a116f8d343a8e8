//! Reads a fleet file.

use std::collections::BTreeMap;
use std::path::Path;

use punctual_sched::Duration;
use punctual_sched::registry::Placement;

use super::keys::{ANY_NODE, FLEET, HOSTS_MAX, PAIRS_MAX, VMS_MAX};
use crate::file::copies::{Names, copy_name};
use crate::file::entry::{expected_names, shorten};
use crate::file::error::Errors;
use crate::file::host::build;
use crate::file::host::domain::{check_reserved, guest, shares_budget};
use crate::file::host::draft::{DomainDraft, PoolDraft};
use crate::file::host::locks::check_guest;
use crate::file::host::place::{Machine, slots};
use crate::file::host::pool::pools;
use crate::file::host::read::{MachineKeys, machine};
use crate::file::host::task::tasks;
use crate::file::host::unit::{UnitDraft, UnitKind, of_domain, own_priority, server_params};
use crate::file::key::Kind;
use crate::file::limits::{NAME_MAX, PROCESSORS_MAX, UNITS_MAX};
use crate::file::load::{as_text, read_tree};
use crate::file::nearest::nearest;
use crate::file::section::Section;
use crate::file::source::Place;
use crate::file::tree::{Entry, Table, Value};
use crate::fleet::{Fleet, FleetHost, FleetVm, HostKind, Node, VmKind};
use crate::host::{Enforce, Host, Overheads, Parent};
use crate::index::{DomainIx, PoolIx};
use crate::live::Live;
use crate::placement::{Slot, near_slot};
use crate::topology::Topology;

/// Validates a fleet file; `file_name` is what errors call it, and its stem is the fleet's name when the file
/// gives none.
///
/// # Errors
/// All that is wrong with it: each with its line, what was expected, and the nearest name.
pub fn parse_fleet(bytes: &[u8], file_name: &str) -> Result<Fleet, Errors> {
    let text = as_text(bytes, file_name)?;
    let mut errors = Errors::in_file(file_name, text);
    let Some(mut root) = read_tree(text, 0, &mut errors) else { return Err(errors.sorted()) };
    Section { table: &root, info: &FLEET, place: Place::TOP, name: "" }.check_keys(&mut errors);
    check_classes(&root, &mut errors);
    take_classes(&mut root, &mut errors);
    let stem =
        Path::new(file_name).file_stem().map_or("fleet".into(), |stem| stem.to_string_lossy().into_owned());
    match fleet(&root, stem, &mut errors) {
        Some(fleet) if errors.count() == 0 => Ok(fleet),
        _ => Err(errors.sorted()),
    }
}

/// Adds the errors about keys of classes: their values are read with the VMs.
fn check_classes(root: &Table, errors: &mut Errors) {
    Section { table: root, info: &FLEET, place: Place::TOP, name: "" }.named("class", errors);
}

/// Gives each VM the keys of its class that it has not itself.
fn take_classes(root: &mut Table, errors: &mut Errors) {
    let classes: BTreeMap<String, Table> = match root.get("class").map(|entry| &entry.node.value) {
        Some(Value::Table(classes)) => classes.entries.iter().filter_map(named_table).collect(),
        _ => BTreeMap::new(),
    };
    let Some(Value::Table(vms)) = root.get_mut("vm").map(|entry| &mut entry.node.value) else { return };
    for vm in &mut vms.entries {
        let Value::Table(vm) = &mut vm.node.value else { continue };
        let Some(entry) = vm.get("class") else { continue };
        let Some(name) = entry.text("expected the name of a class", errors) else { continue };
        let Some(class) = classes.get(name) else {
            let message = format!("there is no class `{}`", shorten(name));
            let names = || classes.keys().map(String::as_str);
            errors.add_nearest(entry.node.place, message, expected_names(names()), nearest(name, names()));
            continue;
        };
        let missing = class.entries.iter().filter(|entry| vm.get(&entry.key).is_none()).cloned();
        let missing: Vec<Entry> = missing.collect();
        vm.entries.extend(missing);
    }
}

fn named_table(entry: &Entry) -> Option<(String, Table)> {
    match &entry.node.value {
        Value::Table(table) => Some((entry.key.clone(), table.clone())),
        _ => None,
    }
}

fn fleet(root: &Table, stem: String, errors: &mut Errors) -> Option<Fleet> {
    let section = Section { table: root, info: &FLEET, place: Place::TOP, name: "" };
    let name = section.text("name", errors).map_or(stem, str::to_owned);
    let kinds = host_kinds(section, errors);
    let hosts = hosts(&kinds, errors);
    let vms = some_named(section, "vm", "VM", errors);
    let mut read =
        Reading { hosts: &hosts, kinds: &kinds, together: Groups::default(), apart: Groups::default() };
    let (vm_kinds, all) = vm_kinds(&vms, &mut read, errors);
    let (together, apart) = (read.together.0, read.apart.0);
    check_size(section, kinds.len(), &vms, errors);
    let pools = vms.iter().map(|vm| pool_of(*vm, &kinds, errors)).collect::<Vec<_>>();
    if errors.count() > 0 {
        return None;
    }
    let wanted: Vec<(Section<'_>, &str)> = vms.iter().copied().zip(pools.into_iter().flatten()).collect();
    let kinds: Option<Vec<HostKind>> =
        kinds.into_iter().enumerate().map(|(i, kind)| complete(kind, i == 0, &wanted, errors)).collect();
    Some(Fleet { name, kinds: kinds?, hosts, vm_kinds, vms: all, together, apart })
}

/// What is judged stays within bounds.
fn check_size(root: Section<'_>, kinds: usize, vms: &[Section<'_>], errors: &mut Errors) {
    let place = root.get("vm").map_or(root.place, |entry| entry.key_place);
    if kinds * vms.len() > PAIRS_MAX {
        let message = format!("there are {kinds} kinds of hosts and {} tables of VMs", vms.len());
        errors.add(place, message, format!("expected at most {PAIRS_MAX} pairs of both"));
    }
    let vcpus: u64 = vms.iter().map(|vm| vm.count_or_default("vcpus", &mut Errors::default())).sum();
    if vcpus > UNITS_MAX as u64 {
        let message = format!("the tables have {vcpus} vCPUs");
        errors.add(place, message, format!("expected at most {UNITS_MAX}"));
    }
}

/// The tables under `key`, of which there must be one at least.
fn some_named<'t>(
    section: Section<'t>,
    key: &'static str,
    what: &str,
    errors: &mut Errors,
) -> Vec<Section<'t>> {
    let before = errors.count();
    let found = section.named(key, errors);
    if found.is_empty() && errors.count() == before {
        let place = section.get(key).map_or(section.place, |entry| entry.key_place);
        errors.add(place, format!("the fleet has no {what}"), format!("expected at least one [{key}.NAME]"));
    }
    found
}

/// A kind of hosts before VMs are on it.
struct KindDraft<'t> {
    section: Section<'t>,
    copies: Option<u64>,
    processors: usize,
    overheads: Overheads,
    enforce: Enforce,
    pools: Vec<PoolDraft<'t>>,
    slots: Vec<Slot>,
    topology: Topology,
    memory_mib: u64,
    nodes: Vec<Node>,
    is_pinned: Vec<bool>,
}

fn host_kinds<'t>(root: Section<'t>, errors: &mut Errors) -> Vec<KindDraft<'t>> {
    some_named(root, "host", "host", errors).into_iter().map(|section| host_kind(section, errors)).collect()
}

fn host_kind<'t>(section: Section<'t>, errors: &mut Errors) -> KindDraft<'t> {
    let MachineKeys { processors, overheads, enforce } = machine(section, errors);
    let nodes = nodes(section, processors, errors);
    let topology = topology(processors, &nodes);
    let place = Machine { processors, topology: &topology };
    let pools = pools(section, place, errors);
    // What is wrong with slots has been said with the pools.
    let slots = slots(section, place, &mut Errors::default());
    let is_pinned = pinned(section, &pools, errors);
    let (memory_mib, nodes) = memory(section, processors, nodes, errors);
    let copies = section.count("copies", errors);
    KindDraft {
        section,
        copies,
        processors,
        overheads,
        enforce,
        pools,
        slots,
        topology,
        memory_mib,
        nodes,
        is_pinned,
    }
}

/// The nodes that the file has.
fn nodes(section: Section<'_>, processors: usize, errors: &mut Errors) -> Vec<Node> {
    let Some(entry) = section.get("node") else { return Vec::new() };
    let Some(Kind::Numbered(info)) = section.info.key("node").map(|key| key.kind) else {
        unreachable!("nodes are numbered")
    };
    let Value::Table(by_number) = &entry.node.value else {
        entry.wrong_kind(format!("expected tables by number: {}", info.title), errors);
        return Vec::new();
    };
    let mut owner: BTreeMap<usize, usize> = BTreeMap::new();
    let mut nodes = Vec::new();
    for entry in &by_number.entries {
        let number = entry.key.parse::<u64>().ok().filter(|number| number.to_string() == entry.key);
        let Some(number) = number.filter(|&number| number < PROCESSORS_MAX) else {
            let message = format!("`{}` is not the number of a node", shorten(&entry.key));
            let expected = format!("expected a whole number from 0 to {}", PROCESSORS_MAX - 1);
            errors.add(entry.key_place, message, expected);
            continue;
        };
        let Some(table) = Section::of(entry, info, errors) else { continue };
        table.check_keys(errors);
        let listed = table.get("processors");
        let listed = listed.and_then(|list| list.indices(processors, "processors of the machine", errors));
        let mut own = Vec::new();
        for (processor, place) in listed.unwrap_or_default() {
            if let Some(other) = owner.insert(processor, number as usize) {
                let message = format!("processor {processor} is in node {other} already");
                errors.add(place, message, "expected each processor in one node");
            }
            own.push(processor);
        }
        own.sort_unstable();
        let memory_mib = table.count("memory_mib", errors).unwrap_or_default();
        nodes.push(Node { number: number as usize, processors: own, memory_mib });
    }
    if errors.count() == 0
        && let Some(lost) = (0..processors).find(|processor| !owner.contains_key(processor))
    {
        let message = format!("processor {lost} is in no node");
        errors.add(entry.key_place, message, "expected each processor in one node");
    }
    nodes
}

/// What is known of the machine: which processors are in which node.
fn topology(processors: usize, nodes: &[Node]) -> Topology {
    let mut topology = Topology::flat(processors);
    topology.is_flat = nodes.is_empty();
    for processor in &mut topology.processors {
        let node = nodes.iter().find(|node| node.processors.contains(&processor.number));
        (processor.node, processor.cache) = node.map_or((0, 0), |node| (node.number, node.number));
    }
    topology
}

/// The memory of a host, and its nodes: one with everything where the file has none.
fn memory(
    section: Section<'_>,
    processors: usize,
    nodes: Vec<Node>,
    errors: &mut Errors,
) -> (u64, Vec<Node>) {
    let own = section.count("memory_mib", errors);
    if nodes.is_empty() {
        let memory_mib = own.unwrap_or_default();
        return (memory_mib, vec![Node { number: 0, processors: (0..processors).collect(), memory_mib }]);
    }
    let sum = nodes.iter().map(|node| node.memory_mib).sum();
    if own.is_some_and(|own| own != sum) {
        let message = format!("`memory_mib` is not the sum of the nodes' memory, {sum}");
        errors.add(section.place_of("memory_mib"), message, "expected none: the nodes have it");
    }
    (sum, nodes)
}

/// By pool: does each unit get one processor?
fn pinned(section: Section<'_>, pools: &[PoolDraft<'_>], errors: &mut Errors) -> Vec<bool> {
    let names = || pools.iter().map(|pool| pool.name.as_str());
    let listed = section.get("pinned").and_then(|entry| entry.texts("expected a list of pools", errors));
    let listed = listed.unwrap_or_default();
    for (name, place) in &listed {
        if !names().any(|pool| pool == *name) {
            let message = format!("there is no pool `{}`", shorten(name));
            errors.add_nearest(*place, message, expected_names(names()), nearest(name, names()));
        }
    }
    let is_pinned = |pool: &PoolDraft<'_>| {
        let info = pool.chosen.as_ref().map(|chosen| chosen.choice.info);
        info.is_some_and(|info| info.placement == Placement::Partitioned)
            || pool.processors.len() == 1
            || listed.iter().any(|(name, _)| *name == pool.name)
    };
    pools.iter().map(is_pinned).collect()
}

/// The hosts of all kinds.
fn hosts(kinds: &[KindDraft<'_>], errors: &mut Errors) -> Vec<FleetHost> {
    let mut names = Names::default();
    let mut hosts = Vec::new();
    for (index, kind) in kinds.iter().enumerate() {
        for name in copy_names(kind.section, kind.copies, errors) {
            if !names.add("host", &name, kind.section.place, errors) {
                break;
            }
            hosts.push(FleetHost { name, kind: index });
        }
        if hosts.len() > HOSTS_MAX {
            errors.add(
                kind.section.place,
                "the fleet has too many hosts",
                format!("expected at most {HOSTS_MAX}"),
            );
            break;
        }
    }
    hosts
}

/// The names of what a table makes.
fn copy_names(section: Section<'_>, copies: Option<u64>, errors: &mut Errors) -> Vec<String> {
    let Some(copies) = copies else { return vec![section.name.to_owned()] };
    if copy_name(section.name, copies).len() > NAME_MAX {
        let message = format!("`{}` is too long a name", copy_name(section.name, copies));
        errors.add(section.place, message, format!("expected at most {NAME_MAX} characters with the number"));
    }
    (1..=copies).map(|n| copy_name(section.name, n)).collect()
}

/// Names of groups in the order in which they are met.
#[derive(Default)]
struct Groups(Vec<String>, BTreeMap<String, usize>);

impl Groups {
    fn index(&mut self, name: &str) -> usize {
        *self.1.entry(name.to_owned()).or_insert_with(|| {
            self.0.push(name.to_owned());
            self.0.len() - 1
        })
    }
}

/// What the tables of VMs refer to.
struct Reading<'r, 't> {
    hosts: &'r [FleetHost],
    kinds: &'r [KindDraft<'t>],
    together: Groups,
    apart: Groups,
}

fn vm_kinds(
    sections: &[Section<'_>],
    read: &mut Reading<'_, '_>,
    errors: &mut Errors,
) -> (Vec<VmKind>, Vec<FleetVm>) {
    let by_name: BTreeMap<&str, usize> =
        read.hosts.iter().enumerate().map(|(index, host)| (host.name.as_str(), index)).collect();
    let (mut kinds, mut vms) = (Vec::new(), Vec::new());
    let mut names = Names::default();
    for (index, section) in sections.iter().enumerate() {
        kinds.push(vm_kind(*section, read, &by_name, errors));
        let copies = section.count("copies", errors);
        let own = copy_names(*section, copies, errors);
        let today = today(*section, own.len(), &by_name, errors);
        for (copy, name) in own.into_iter().enumerate() {
            if !names.add("VM", &name, section.place, errors) {
                break;
            }
            if read.kinds.iter().any(|kind| kind.pools.iter().any(|pool| pool.name == name)) {
                let message = format!("a pool is called `{name}` too");
                errors.add(section.place, message, "expected different names for pools and VMs");
            }
            vms.push(FleetVm { name, kind: index, today: today.get(copy).copied() });
        }
        if vms.len() > VMS_MAX {
            errors.add(section.place, "the fleet has too many VMs", format!("expected at most {VMS_MAX}"));
            break;
        }
    }
    (kinds, vms)
}

fn vm_kind(
    section: Section<'_>,
    read: &mut Reading<'_, '_>,
    by_name: &BTreeMap<&str, usize>,
    errors: &mut Errors,
) -> VmKind {
    let only = host_set(section, "hosts", read, by_name, errors);
    let not = host_set(section, "avoid", read, by_name, errors);
    let may =
        |host: usize| only.as_ref().is_none_or(|set| set[host]) && not.as_ref().is_none_or(|set| !set[host]);
    let may_be_on = (0..read.hosts.len()).map(may).collect();
    check_slot(section, read.kinds, errors);
    let mut groups = |key: &'static str, names: &mut Groups| -> Vec<usize> {
        let texts = section.get(key).and_then(|entry| entry.texts("expected a list of groups", errors));
        let mut all: Vec<usize> =
            texts.unwrap_or_default().iter().map(|(name, _)| names.index(name)).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let (together, apart) = (groups("together", &mut read.together), groups("apart", &mut read.apart));
    VmKind {
        name: section.name.to_owned(),
        memory_mib: section.count("memory_mib", errors).unwrap_or_default(),
        one_node: section.word("numa", errors) != Some(ANY_NODE),
        move_cost: section.count_or_default("move_cost", errors),
        may_be_on,
        together,
        apart,
    }
}

/// A slot that `near` names is there on one kind of hosts at least.
fn check_slot(section: Section<'_>, kinds: &[KindDraft<'_>], errors: &mut Errors) {
    let (Some(name), Some(entry)) = (section.text("near", errors), section.get("near")) else { return };
    let names = || kinds.iter().flat_map(|kind| kind.slots.iter().map(|slot| slot.name.as_str()));
    if !names().any(|slot| slot == name) {
        let message = format!("there is no slot `{}`", shorten(name));
        errors.add_nearest(entry.node.place, message, expected_names(names()), nearest(name, names()));
    }
}

/// The hosts that a key lists, by name or kind.
fn host_set(
    section: Section<'_>,
    key: &'static str,
    read: &Reading<'_, '_>,
    by_name: &BTreeMap<&str, usize>,
    errors: &mut Errors,
) -> Option<Vec<bool>> {
    let texts = section.get(key)?.texts("expected a list of hosts", errors)?;
    let mut set = vec![false; read.hosts.len()];
    for (name, place) in texts {
        let kind = read.kinds.iter().position(|kind| kind.section.name == name);
        if let Some(host) = by_name.get(name) {
            set[*host] = true;
        } else if kind.is_some() {
            (0..set.len())
                .filter(|host| Some(read.hosts[*host].kind) == kind)
                .for_each(|host| set[host] = true);
        } else {
            let names = || read.kinds.iter().map(|kind| kind.section.name).chain(by_name.keys().copied());
            no_host(name, place, names().collect(), errors);
        }
    }
    Some(set)
}

fn no_host(name: &str, place: Place, names: Vec<&str>, errors: &mut Errors) {
    let message = format!("there is no host `{}`", shorten(name));
    let near = nearest(name, names.iter().copied());
    errors.add_nearest(place, message, expected_names(names.into_iter()), near);
}

/// The hosts of today, of the first copies.
fn today(
    section: Section<'_>,
    copies: usize,
    by_name: &BTreeMap<&str, usize>,
    errors: &mut Errors,
) -> Vec<usize> {
    let Some(entry) = section.get("today") else { return Vec::new() };
    let Some(texts) = entry.texts("expected a list of hosts", errors) else { return Vec::new() };
    if texts.len() > copies {
        let message = format!("`today` has {} hosts", texts.len());
        errors.add(entry.node.place, message, format!("expected at most {copies}, one for each VM"));
    }
    let mut found = Vec::new();
    for (name, place) in texts {
        match by_name.get(name) {
            Some(host) => found.push(*host),
            None => no_host(name, place, by_name.keys().copied().collect(), errors),
        }
    }
    found
}

/// The pool of a VM, by its name on every host.
fn pool_of<'t>(section: Section<'t>, kinds: &[KindDraft<'t>], errors: &mut Errors) -> Option<&'t str> {
    let mut names: Vec<&str> =
        kinds.iter().flat_map(|kind| kind.pools.iter().map(|pool| &*pool.name)).collect();
    names.sort_unstable();
    names.dedup();
    let Some(entry) = section.get("pool") else {
        let mut pools = kinds.iter().flat_map(|kind| kind.section.table.get("pool")).filter_map(only_key);
        if names.len() > 1 {
            let message = format!("`pool` is missing in {}", section.header());
            let expected = format!("there are several pools; {}", expected_names(names.into_iter()));
            errors.add(section.place, message, expected);
        }
        return pools.next();
    };
    let name = section.text("pool", errors)?;
    if !names.contains(&name) {
        let message = format!("there is no pool `{}`", shorten(name));
        let near = nearest(name, names.iter().copied());
        errors.add_nearest(entry.node.place, message, expected_names(names.into_iter()), near);
    }
    Some(name)
}

/// The first key of the table that the entry holds.
fn only_key(entry: &Entry) -> Option<&str> {
    match &entry.node.value {
        Value::Table(table) => table.entries.first().map(|entry| entry.key.as_str()),
        _ => None,
    }
}

/// Puts one VM of each kind into the template of a kind of hosts.
fn complete(
    kind: KindDraft<'_>,
    is_first: bool,
    wanted: &[(Section<'_>, &str)],
    errors: &mut Errors,
) -> Option<HostKind> {
    let mut domains = Vec::new();
    let (mut of_vm, mut allowed) = (Vec::new(), Vec::new());
    // What is wrong with a VM is the same on every kind of hosts; all of them have it read once.
    let mut same = Errors::default();
    for (section, pool) in wanted {
        let said: &mut Errors = if is_first { errors } else { &mut same };
        let index = kind.pools.iter().position(|known| known.name == *pool);
        let near = index.and_then(|index| allowed_processors(*section, &kind, index, said));
        let draft = domain(*section, PoolIx(index.unwrap_or_default()), said);
        let there = draft.filter(|_| near.is_some());
        of_vm.push(there.is_some().then_some(DomainIx(domains.len())));
        allowed.push(near.unwrap_or_default());
        domains.extend(there);
    }
    let KindDraft { section, processors, overheads, enforce, pools, memory_mib, nodes, is_pinned, .. } = kind;
    // Nothing is simulated, so seed and duration do not matter.
    let host =
        Host { overheads, enforce, ..Host::empty(section.name, processors, 1, Duration::from_secs(10)) };
    let template = build::complete(host, pools, domains, Vec::new(), errors)?;
    let name = section.name.to_owned();
    Some(HostKind { name, template, domains: of_vm, allowed, memory_mib, nodes, is_pinned })
}

/// The places in the pool that a VM may use; `None`: none, because the host lacks its slot.
fn allowed_processors(
    section: Section<'_>,
    kind: &KindDraft<'_>,
    pool: usize,
    errors: &mut Errors,
) -> Option<Vec<usize>> {
    let processors = &kind.pools[pool].processors;
    let Some(name) = section.text("near", errors) else { return Some((0..processors.len()).collect()) };
    let slot = kind.slots.iter().find(|slot| slot.name == name)?;
    let near = near_slot(&kind.topology, slot, processors)?;
    Some((0..processors.len()).filter(|place| near.contains(&processors[*place])).collect())
}

/// A VM as a domain of a pool.
fn domain<'t>(section: Section<'t>, pool: PoolIx, errors: &mut Errors) -> Option<DomainDraft<'t>> {
    let count = section.count_or_default("vcpus", errors) as usize;
    let mut unit = server_params(section, UnitDraft::new(section.place, UnitKind::Vcpu), errors);
    unit = own_priority(section, unit, errors);
    unit.params.best_effort = section.flag("best_effort", errors).unwrap_or(false);
    if shares_budget(section, errors) {
        unit.params.shares_budget = true;
        check_reserved(section, &unit, errors);
    }
    let guest = guest(section, errors);
    let tasks = tasks(section, &of_domain(count, "vCPUs of the domain"), errors);
    let guest = guest?;
    check_guest(section, count, &guest, errors);
    Some(DomainDraft {
        name: section.name.into(),
        parent: Parent::Pool(pool),
        vcpus: vec![unit; count],
        guest,
        live: Live::default(),
        tasks,
        smp: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(text: &str) -> String {
        parse_fleet(text.as_bytes(), "fleet.toml").expect_err("it is wrong").render(false)
    }

    const HOST: &str = "[host.rack]\ncopies = 2\nmachine = { processors = 5 }\n\
                        slot.nic = { processors = [0] }\n\
                        node.0 = { processors = [0, 1, 2], memory_mib = 100 }\n\
                        node.1 = { processors = [3, 4], memory_mib = 200 }\n\
                        pool.rt = { processors = [1, 2, 3, 4], policy = 'rtds' }\n";

    #[test]
    fn hosts_and_vms_are_read_with_their_classes() {
        let text = format!(
            "{HOST}pinned = ['rt']\n[class.plc]\nbudget = '1ms'\nperiod = '10ms'\nmemory_mib = 7\n\
             [vm.p]\nclass = 'plc'\ncopies = 3\nbudget = '2ms'\nnear = 'nic'\napart = ['p']\n\
             today = ['rack-2', 'rack-1']\n[vm.q]\nclass = 'plc'\navoid = ['rack-1']\nnuma = 'any'\n"
        );
        let fleet = parse_fleet(text.as_bytes(), "fleet.toml").expect("valid");
        assert_eq!(fleet.name, "fleet");
        let names: Vec<&str> = fleet.vms.iter().map(|vm| vm.name.as_str()).collect();
        assert_eq!(names, ["p-1", "p-2", "p-3", "q"]);
        assert_eq!(fleet.vms.iter().map(|vm| vm.today).collect::<Vec<_>>(), [Some(1), Some(0), None, None]);
        let kind = &fleet.kinds[0];
        let params = |vm: usize| &kind.template.vcpus[vm].params;
        assert_eq!(
            (params(0).budget, params(1).budget),
            (Some(Duration::from_ms(2)), Some(Duration::from_ms(1)))
        );
        // Processors 1 and 2 are on the node of processor 0.
        assert_eq!(kind.allowed, [vec![0, 1], vec![0, 1, 2, 3]]);
        assert_eq!((kind.memory_mib, kind.is_pinned[0]), (300, true));
        assert_eq!(fleet.vm_kinds[1].may_be_on, [false, true]);
        assert!(fleet.vm_kinds[0].one_node && !fleet.vm_kinds[1].one_node);
    }

    #[test]
    fn errors_have_the_line_what_was_expected_and_the_nearest_name() {
        let text = format!(
            "{HOST}pinned = ['tr']\n[class.plc]\nbudgte = '1ms'\n[vm.a]\nclass = 'plv'\npool = 'tr'\n\
             [vm.b]\nhosts = ['rakc']\ntoday = ['rack-1', 'rack-9']\nmemory_mib = 0\n"
        );
        insta::assert_snapshot!(errors(&text));
    }

    #[test]
    fn the_policy_of_every_kind_of_hosts_judges_the_vms() {
        let text = format!("{HOST}[vm.a]\nbudget = '3ms'\nperiod = '2ms'\n");
        assert!(errors(&text).contains("fleet.toml:9"), "{}", errors(&text));
    }

    #[test]
    fn a_fleet_that_is_too_large_is_refused() {
        let vms: String = (0..65).map(|n| format!("[vm.v{n}]\nvcpus = 1024\n")).collect();
        assert!(errors(&(HOST.to_owned() + &vms)).contains("the tables have 66560 vCPUs"));
        let vms = "[vm.a]\ncopies = 65536\nbest_effort = true\n[vm.b]\nbest_effort = true\n";
        assert!(errors(&(HOST.to_owned() + vms)).contains("the fleet has too many VMs"));
        let hosts = HOST.replace("copies = 2", "copies = 4096").replace("rack", "r");
        let text = HOST.to_owned() + &hosts + "[vm.a]\nbest_effort = true\n";
        assert!(errors(&text).contains("the fleet has too many hosts"));
    }

    #[test]
    fn a_fleet_without_hosts_or_vms_is_refused() {
        assert!(errors("").contains("the fleet has no host"));
        assert!(errors(HOST).contains("the fleet has no VM"));
    }
}
