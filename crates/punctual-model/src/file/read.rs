//! From the document to the parts of a [`Host`]; `build` puts them together and asks the policies.

use std::collections::BTreeMap;
use std::path::Path;

use punctual_sched::registry::{self, OptionValue, Options, ParamInfo, ParamKind, PolicyInfo};

use super::build;
use super::error::{Place, nearest};
use super::fields::{Problems, Tab, header, shorten};
use super::keys::{Kind, NESTING_MAX, Optioned, PROCESSORS_MAX, ROOT, UNITS_MAX};
use super::live;
use super::network;
use super::quantity;
use super::task::{Tasks, tasks};
use super::tree::{Entry, Table, Value};
use super::unit::{Processors, Unit, UnitKind, of_domain, of_pool, unit_params};
use crate::host::{DomainIx, Host, Overheads, Parent, PolicyChoice, PoolIx};
use crate::live::Live;

/// A policy with its options and where they were given.
pub(crate) struct Chosen {
    pub(crate) choice: PolicyChoice,
    pub(crate) name_place: Place,
    pub(crate) option_places: OptionPlaces,
}

/// A pool before its host is put together.
pub(crate) struct PoolDraft<'t> {
    pub(crate) name: String,
    pub(crate) processors: Vec<usize>,
    /// `None` when the file names no valid policy.
    pub(crate) chosen: Option<Chosen>,
    pub(crate) tasks: Tasks<'t>,
}

/// A domain before its host is put together.
pub(crate) struct DomainDraft<'t> {
    pub(crate) name: String,
    pub(crate) parent: Parent,
    pub(crate) vcpus: Vec<Unit>,
    pub(crate) guest: Chosen,
    pub(crate) live: Live,
    pub(crate) tasks: Tasks<'t>,
}

/// Reads the whole document. `None` when something is wrong, which `problems` then says.
pub(crate) fn host(root: &Table, file_name: &str, problems: &mut Problems) -> Option<Host> {
    let top = Place::top();
    let tab = Tab { table: root, info: &ROOT, place: &top, name: "" };
    problems.check_keys(tab);
    let name = host_name(tab, file_name, problems);
    let seed = problems.count_or(tab, "seed");
    let duration = problems.duration_or(tab, "duration");
    let (processors, overheads) = machine(tab, problems);
    let pools = pools(tab, processors, problems);
    let domains = domains(tab, processors, &pools, problems);
    let networks = network::read(tab, problems);
    if !problems.list.is_empty() {
        return None;
    }
    let host = Host {
        name,
        seed,
        duration,
        processors,
        overheads,
        pools: Vec::new(),
        domains: Vec::new(),
        vcpus: Vec::new(),
        tasks: Vec::new(),
        networks: Vec::new(),
        flows: Vec::new(),
        chains: Vec::new(),
    };
    let mut host = build::complete(host, pools, domains, problems)?;
    networks.resolve(&mut host, problems);
    Some(host)
}

fn host_name(tab: Tab<'_>, file_name: &str, problems: &mut Problems) -> String {
    let stem =
        || Path::new(file_name).file_stem().map_or("host".into(), |s| s.to_string_lossy().into_owned());
    let Some(name) = problems.text(tab, "name") else { return stem() };
    if let (Some(entry), true) = (tab.get("name"), name.is_empty() || name.chars().any(char::is_control)) {
        problems.add(&entry.node.place, "`name` is empty or has control characters", "expected a short text");
    }
    name.to_string()
}

/// The number of processors and the overheads. When they are not known, the greatest possible number, so that
/// the rest of the file can still be checked.
fn machine(tab: Tab<'_>, problems: &mut Problems) -> (usize, Overheads) {
    let mut overheads = Overheads::default();
    let Some(machine) = problems.table(tab, "machine") else { return (PROCESSORS_MAX as usize, overheads) };
    if let Some(costs) = problems.table(machine, "overheads") {
        let mut cost = |key| problems.duration_or(costs, key);
        overheads = Overheads {
            decision: cost("decision"),
            context_switch: cost("context_switch"),
            migration: cost("migration"),
            lock: cost("lock"),
        };
    }
    (problems.count(machine, "processors").unwrap_or(PROCESSORS_MAX) as usize, overheads)
}

fn pools<'t>(root: Tab<'t>, processors: usize, problems: &mut Problems) -> Vec<PoolDraft<'t>> {
    let tabs = problems.named(root, "pool");
    if let (Some(entry), true) = (root.get("pool"), tabs.is_empty() && problems.list.is_empty()) {
        problems.add(&entry.key_place, "there is no pool", "expected at least one [pool.NAME] with a policy");
    }
    let mut owner: BTreeMap<usize, String> = BTreeMap::new();
    let mut pools = Vec::new();
    for tab in &tabs {
        let own = pool_processors(*tab, tabs.len() == 1, processors, &mut owner, problems);
        let chosen = pool_policy(*tab, own.len(), problems);
        let tasks = tasks(*tab, &of_pool(&own, processors), problems);
        pools.push(PoolDraft { name: tab.name.into(), processors: own, chosen, tasks });
    }
    pools
}

/// The pool's processors, ascending, and entered in `owner`.
fn pool_processors(
    tab: Tab<'_>,
    only: bool,
    processors: usize,
    owner: &mut BTreeMap<usize, String>,
    problems: &mut Problems,
) -> Vec<usize> {
    let Some(entry) = tab.get("processors") else {
        if !only {
            let message = format!("`processors` is missing in {}", header(tab));
            problems.add(tab.place, message, "several pools share the machine: each lists its processors");
        }
        return (0..processors).collect();
    };
    let Some(numbers) = problems.numbers(entry, processors, "processors of the machine") else {
        return (0..processors).collect();
    };
    for (n, place) in &numbers {
        if let Some(other) = owner.insert(*n, tab.name.into()) {
            let message = format!("processor {n} is in pool `{other}` already");
            problems.add(place, message, "expected each processor in at most one pool");
        }
    }
    let mut own: Vec<usize> = numbers.into_iter().map(|(n, _)| n).collect();
    own.sort_unstable();
    own
}

/// The pool's policy, after validating the options of every policy that the pool has a table for.
fn pool_policy(tab: Tab<'_>, cpus: usize, problems: &mut Problems) -> Option<Chosen> {
    let entry = tab.get("policy");
    let info = entry.and_then(|e| problems.policy_of(e));
    let mut chosen = None;
    for policy in registry::policies() {
        let options = tab.table.get(policy.name);
        if options.is_none() && info != Some(policy) {
            continue;
        }
        let place = options.or(entry).map_or(tab.place, |e| &e.key_place);
        let built = policy_options(policy, options, place, &[], problems);
        build::check_options(&built, cpus, problems);
        if info == Some(policy) {
            chosen = Some(built);
        }
    }
    chosen
}

/// Reads the options of `policy` from a table; `own` keys of that table are not options.
fn policy_options(
    policy: &'static PolicyInfo,
    entry: Option<&Entry>,
    name_place: &Place,
    own: &[&'static str],
    problems: &mut Problems,
) -> Chosen {
    let (options, option_places) = option_values(policy.into(), entry, own, problems);
    let choice = PolicyChoice { info: policy, options };
    Chosen { choice, name_place: name_place.clone(), option_places }
}

/// Where options were given.
pub(crate) type OptionPlaces = Vec<(&'static str, Place)>;

/// Reads the options of a policy or discipline from a table; `own` keys of that table are not options.
pub(crate) fn option_values(
    of: Optioned,
    entry: Option<&Entry>,
    own: &[&'static str],
    problems: &mut Problems,
) -> (Options, OptionPlaces) {
    let mut options = Options::new();
    let mut option_places = Vec::new();
    match entry.map(|e| (e, &e.node.value)) {
        Some((_, Value::Table(table))) => {
            problems.check_options(table, of, own);
            for option in of.options {
                let Some(given) = table.get(option.name) else { continue };
                option_places.push((option.name, given.place()));
                let value = problems.option(given, option.kind);
                if let Some(value) = value.filter(|v| default_value(option) != Some(*v)) {
                    options.set(option.name, value);
                }
            }
        }
        Some((entry, other)) => {
            let message = format!("`{}` is {}", shorten(&entry.key), other.kind());
            let names: Vec<&str> = of.options.iter().map(|o| o.name).collect();
            problems.add(
                &entry.place(),
                message,
                format!("expected a table of options: {}", names.join(", ")),
            );
        }
        None => {}
    }
    (options, option_places)
}

/// An option's default as a value.
pub(crate) fn default_value(option: &ParamInfo) -> Option<OptionValue> {
    let text = option.default?;
    let word = |words: &[&'static str]| words.iter().find(|w| **w == text).map(|w| OptionValue::Word(w));
    let duration = || quantity::duration(text).ok().map(OptionValue::Duration);
    match option.kind {
        ParamKind::Duration => duration(),
        ParamKind::DurationOr(words) => word(words).or_else(duration),
        ParamKind::Count { .. } => text.parse().ok().map(OptionValue::Count),
        ParamKind::Flag => text.parse().ok().map(OptionValue::Flag),
        ParamKind::Choice(words) => word(words),
    }
}

/// The domains in their final order: the file's, but each after the one it runs in.
fn domains<'t>(
    root: Tab<'t>,
    processors: usize,
    pools: &[PoolDraft<'t>],
    problems: &mut Problems,
) -> Vec<DomainDraft<'t>> {
    let tabs = problems.named(root, "domain");
    let by_name: BTreeMap<&str, usize> = tabs.iter().enumerate().map(|(i, t)| (t.name, i)).collect();
    for tab in tabs.iter().filter(|t| pools.iter().any(|p| p.name == t.name)) {
        let message = format!("a pool is called `{}` too", tab.name);
        problems.add(tab.place, message, "expected different names for pools and domains");
    }
    let outer: Vec<Option<usize>> = tabs.iter().map(|t| outer_domain(*t, &by_name, problems)).collect();
    let Some(order) = outer_first(&tabs, &outer, problems) else { return Vec::new() };
    let mut final_index = vec![0; tabs.len()];
    order.iter().enumerate().for_each(|(new, &old)| final_index[old] = new);
    let counts: Vec<usize> = tabs.iter().map(|t| problems.count_or(*t, "vcpus") as usize).collect();
    let total: usize = counts.iter().sum();
    if total > UNITS_MAX {
        let place = root.get("domain").map_or(root.place, |e| &e.key_place);
        problems.add(
            place,
            format!("the domains have {total} vCPUs"),
            format!("expected at most {UNITS_MAX}"),
        );
        return Vec::new();
    }
    let mut domains = Vec::new();
    for old in order {
        let draft = match outer[old] {
            Some(outer) => {
                let above = of_domain(counts[outer], "vCPUs of the outer domain");
                live::refuse_nested(tabs[old], problems);
                domain(tabs[old], Parent::Domain(DomainIx(final_index[outer])), counts[old], &above, problems)
            }
            None => {
                let Some(pool) = domain_pool(tabs[old], pools, problems) else { continue };
                let above = of_pool(&pools[pool].processors, processors);
                let live = live::live(tabs[old], counts[old], processors, problems);
                let draft = domain(tabs[old], Parent::Pool(PoolIx(pool)), counts[old], &above, problems);
                draft.map(|draft| DomainDraft { live, ..draft })
            }
        };
        domains.extend(draft);
    }
    domains
}

/// The domain that this one runs in.
fn outer_domain(tab: Tab<'_>, by_name: &BTreeMap<&str, usize>, problems: &mut Problems) -> Option<usize> {
    let name = problems.text(tab, "in")?;
    let entry = tab.get("in")?;
    if let Some(pool) = tab.get("pool") {
        let message = format!("{} has both `pool` and `in`", header(tab));
        problems.add(
            &pool.key_place,
            message,
            "expected one of them: a nested domain follows its outer domain",
        );
    }
    let found = by_name.get(name).copied();
    if found.is_none() {
        let message = format!("there is no domain `{}`", shorten(name));
        let expected = expected_names(by_name.keys().copied());
        problems.add_nearest(&entry.node.place, message, expected, nearest(name, by_name.keys().copied()));
    }
    found
}

/// An order in which every domain stands after its outer one, otherwise that of the file.
fn outer_first(tabs: &[Tab<'_>], outer: &[Option<usize>], problems: &mut Problems) -> Option<Vec<usize>> {
    let mut order = Vec::with_capacity(tabs.len());
    let mut placed = vec![false; tabs.len()];
    let before = problems.list.len();
    for (start, tab) in tabs.iter().enumerate() {
        let mut chain = vec![start];
        let mut depth = 0;
        let mut at = start;
        while let Some(next) = outer[at] {
            depth += 1;
            if next == start || depth > NESTING_MAX {
                break;
            }
            chain.push(next);
            at = next;
        }
        // A cycle is told once, by its first domain.
        let first = outer[at] != Some(start) || chain.iter().all(|&d| d >= start);
        if let (Some(next), Some(entry), true) = (outer[at], tab.get("in"), first) {
            let names: Vec<&str> = chain.iter().chain([&next]).map(|&d| tabs[d].name).collect();
            let message = match next == start {
                true => format!("domain `{}` runs inside itself: {}", tab.name, names.join(" in ")),
                false => format!("domain `{}` is nested more than {NESTING_MAX} deep", tab.name),
            };
            problems.add(&entry.node.place, message, "expected a chain of domains that ends at a pool");
        }
        for &d in chain.iter().rev() {
            if !std::mem::replace(&mut placed[d], true) {
                order.push(d);
            }
        }
    }
    (problems.list.len() == before).then_some(order)
}

/// The pool of a domain that is not nested.
fn domain_pool(tab: Tab<'_>, pools: &[PoolDraft<'_>], problems: &mut Problems) -> Option<usize> {
    let names = || pools.iter().map(|p| p.name.as_str());
    let Some(entry) = tab.get("pool") else {
        if pools.len() > 1 && tab.get("in").is_none() {
            let message = format!("`pool` is missing in {}", header(tab));
            problems.add(tab.place, message, format!("there are several pools; {}", expected_names(names())));
        }
        return (!pools.is_empty()).then_some(0);
    };
    let name = problems.text(tab, "pool")?;
    let found = names().position(|n| n == name);
    if found.is_none() {
        let message = format!("there is no pool `{}`", shorten(name));
        problems.add_nearest(&entry.node.place, message, expected_names(names()), nearest(name, names()));
    }
    found
}

pub(crate) fn expected_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.take(20).collect();
    if names.is_empty() { "there is none".into() } else { format!("expected one of {}", names.join(", ")) }
}

fn domain<'t>(
    tab: Tab<'t>,
    parent: Parent,
    count: usize,
    above: &Processors<'_>,
    problems: &mut Problems,
) -> Option<DomainDraft<'t>> {
    let common = unit_params(tab, above, Unit::new(tab.place, UnitKind::Vcpu), problems);
    let mut vcpus = vec![common; count];
    single_vcpus(tab, &mut vcpus, above, problems);
    let guest = guest(tab, problems);
    let tasks = tasks(tab, &of_domain(count, "vCPUs of the domain"), problems);
    let guest = guest?;
    build::check_options(&guest, count, problems);
    Some(DomainDraft { name: tab.name.into(), parent, vcpus, guest, live: Live::default(), tasks })
}

/// `vcpu.N = { ... }`: parameters of single vCPUs.
fn single_vcpus(tab: Tab<'_>, vcpus: &mut [Unit], above: &Processors<'_>, problems: &mut Problems) {
    let Some(entry) = tab.get("vcpu") else { return };
    let Some(Kind::Numbered(info)) = tab.info.key("vcpu").map(|k| k.kind) else {
        unreachable!("vcpu is numbered")
    };
    let Value::Table(by_number) = &entry.node.value else {
        problems.add(
            &entry.place(),
            "`vcpu` is no table",
            "expected for example vcpu.0 = { affinity = [1] }",
        );
        return;
    };
    for entry in &by_number.entries {
        let canonical = entry.key.parse::<usize>().ok().filter(|n| n.to_string() == entry.key);
        let Some(vcpu) = canonical.and_then(|n| vcpus.get_mut(n)) else {
            let message = format!("{} has no vCPU `{}`", header(tab), shorten(&entry.key));
            problems.add(
                &entry.key_place,
                message,
                format!("expected a number from 0 to {}", vcpus.len() - 1),
            );
            continue;
        };
        let Some(inner) = problems.table_of(entry, info) else { continue };
        problems.check_keys(inner);
        *vcpu = unit_params(inner, above, vcpu.clone(), problems);
    }
}

/// The guest's scheduler: a name, or a table of `policy` and options.
fn guest(tab: Tab<'_>, problems: &mut Problems) -> Option<Chosen> {
    let Some(entry) = tab.get("guest") else {
        let Some(info) = registry::find(tab.default("guest")) else {
            problems.add(tab.place, "`guest` is missing", "expected the name of a policy");
            return None;
        };
        return Some(policy_options(info, None, tab.place, &[], problems));
    };
    let Value::Table(table) = &entry.node.value else {
        let info = problems.policy_of(entry)?;
        return Some(policy_options(info, None, &entry.node.place, &[], problems));
    };
    let Some(name) = table.get("policy") else {
        problems.add(&entry.key_place, "`policy` is missing in `guest`", "expected the name of a policy");
        return None;
    };
    let info = problems.policy_of(name)?;
    Some(policy_options(info, Some(entry), &name.node.place, &["policy"], problems))
}
