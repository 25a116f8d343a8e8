//! Reads the files of the service's configuration and merges their tables by name.

use punctual_sched::{CpuId, CpuSet, Instant, UnitParams};

use super::keys::{
    ENFORCE, MATCH, NEAR, OFF, REFUSED, Refused, SAMPLES, SERVICE, STRICT, SWITCHES, TRACEPOINTS,
};
use super::slots::{check_published, joins, published};
use crate::file::entry::{check_line, shorten};
use crate::file::error::Errors;
use crate::file::host::domain::{check_reserved, domain_pool, shares_budget};
use crate::file::host::draft::PoolDraft;
use crate::file::host::place::{Machine, PoolPlace, check_device, pool_places, slot};
use crate::file::host::pool::pool_policy;
use crate::file::host::scheduler::refused;
use crate::file::host::task::Tasks;
use crate::file::host::unit::{UnitDraft, UnitKind};
use crate::file::live::read::helper_policy;
use crate::file::load::{as_text, read_tree};
use crate::file::nearest::nearest as nearest_of;
use crate::file::section::{Section, unknown_key};
use crate::file::source::{Origin, Place, Source};
use crate::file::tree::{Entry, Table, Value};
use crate::host::Pool;
use crate::index::PoolIx;
use crate::placement::{Slot, near_slot, slot_processors};
use crate::service::{
    Class, ExecName, Helper, INIT_SCOPE, Match, Mode, PathPattern, Pattern, ServiceConfig, ThreadPlace,
    Threads, WaitSource,
};
use crate::topology::Topology;

/// A file of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// Its name in errors.
    pub name: String,
    /// What is in it; may be anything.
    pub bytes: Vec<u8>,
}

/// Validates the configuration of the service of the machine with this topology. Tables of several files are
/// merged by name; their order is that of `files`.
///
/// # Errors
/// All that is wrong with the files. None of them counts then.
pub fn parse_service(files: &[ConfigFile], topology: &Topology) -> Result<ServiceConfig, Errors> {
    let mut errors = Errors::default();
    let mut root = Table::default();
    for file in files {
        let text = as_text(&file.bytes, &file.name)?;
        let source = errors.add_source(Source::new(Origin::File(file.name.clone()), text.to_owned()));
        let Some(table) = read_tree(text, source, &mut errors) else { continue };
        merge(&mut root, table, &mut errors);
    }
    if errors.count() > 0 {
        return Err(errors.sorted());
    }
    let config = service(&mut root, topology, &mut errors);
    if errors.count() > 0 { Err(errors.sorted()) } else { Ok(config) }
}

/// Tables with names of the user's choice.
const COLLECTIONS: [&str; 3] = ["pool", "slot", "class"];

/// Adds the keys of another file.
fn merge(into: &mut Table, from: Table, errors: &mut Errors) {
    for entry in from.entries {
        let Some(first) = into.get_mut(&entry.key) else {
            into.entries.push(entry);
            continue;
        };
        let is_collection = COLLECTIONS.contains(&entry.key.as_str());
        let (key, key_place) = (entry.key, entry.key_place);
        match (&mut first.node.value, entry.node.value) {
            (Value::Table(first), Value::Table(more)) if is_collection => {
                for inner in more.entries {
                    match first.get(&inner.key).map(|there| there.key_place) {
                        None => first.entries.push(inner),
                        Some(there) => {
                            let name = format!("[{key}.{}]", shorten(&inner.key));
                            twice(&name, inner.key_place, there, errors);
                        }
                    }
                }
            }
            _ => twice(&format!("`{}`", shorten(&key)), key_place, first.key_place, errors),
        }
    }
}

/// Adds the error that something stands in two files.
fn twice(what: &str, place: Place, first: Place, errors: &mut Errors) {
    let source = &errors.sources()[first.source];
    let (line, _) = source.line_and_column(first.start);
    let file = source.file_name().unwrap_or_default();
    let expected = format!("expected it once; it is in {file}, line {line} first");
    errors.add(place, format!("{what} is there twice"), expected);
}

/// Takes keys out of a table that this version cannot carry out.
fn refuse(table: &mut Table, of: &str, keys: &[Refused], errors: &mut Errors) {
    table.entries.retain(|entry| {
        let Some(refused) = keys.iter().find(|refused| refused.name == entry.key) else { return true };
        let version = env!("CARGO_PKG_VERSION");
        let message =
            format!("`{}` in {of} is not supported by the service of punctual {version}", entry.key);
        errors.add(entry.key_place, message, refused.instead);
        false
    });
}

fn service(root: &mut Table, topology: &Topology, errors: &mut Errors) -> ServiceConfig {
    refuse(root, SERVICE.title, REFUSED, errors);
    let section = Section { table: root, info: &SERVICE, place: Place::TOP, name: "" };
    section.check_keys(errors);
    let mode = if section.word("mode", errors) == Some(ENFORCE) { Mode::Enforce } else { Mode::Observe };
    let is_strict = section.word("admission", errors) == Some(STRICT);
    let waits = match section.word("waits", errors) {
        Some(TRACEPOINTS) => WaitSource::Tracepoints,
        Some(SWITCHES) => WaitSource::Switches,
        Some(SAMPLES) => WaitSource::Samples,
        Some(OFF) => WaitSource::Off,
        _ => WaitSource::Bpf,
    };
    let machine = section.get("machine").and_then(|_| section.table("machine", errors));
    let own = machine.and_then(|machine| machine.count("processors", errors));
    // A file may be for a part of the machine, or list processors of a greater one.
    let processors = own.map_or(topology.count(), |count| count as usize);
    let mut topology = topology.clone();
    topology.processors.retain(|processor| processor.number < processors);
    let (slots, pools) = pools(section, Machine { processors, topology: &topology }, errors);
    let places = Places { topology: &topology, slots: &slots, pools: &pools };
    let classes = classes(section, places, errors);
    check_published(section, &slots, errors);
    let joins = joins(section, &classes);
    ServiceConfig {
        mode,
        is_strict,
        waits,
        pools: pools
            .into_iter()
            .filter_map(|pool| {
                let PoolDraft { name, processors, choice, chosen, .. } = pool;
                Some(Pool { name, processors, choice, policy: chosen?.choice, isolate: false })
            })
            .collect(),
        slots,
        classes,
        joins,
    }
}

fn pools<'t>(
    root: Section<'t>,
    machine: Machine<'_>,
    errors: &mut Errors,
) -> (Vec<Slot>, Vec<PoolDraft<'t>>) {
    let sections = root.named("pool", errors);
    let published = published(root, errors);
    let (slots, places) = pool_places(root, &sections, machine, published, errors);
    let mut pools = Vec::new();
    for (section, place) in sections.iter().zip(places) {
        let PoolPlace { processors, choice } = place;
        let chosen = pool_policy(*section, processors.len(), errors);
        let tasks = Tasks { resources: Vec::new(), drafts: Vec::new(), generate: None };
        let (name, isolate) = (section.name.into(), false);
        pools.push(PoolDraft { name, processors, choice, chosen, isolate, tasks });
    }
    (slots, pools)
}

/// What classes can be placed on.
#[derive(Clone, Copy)]
struct Places<'p> {
    topology: &'p Topology,
    slots: &'p [Slot],
    pools: &'p [PoolDraft<'p>],
}

fn classes(root: Section<'_>, places: Places<'_>, errors: &mut Errors) -> Vec<Class> {
    let mut classes = Vec::new();
    for section in root.named("class", errors) {
        let matches =
            section.get("match").map_or(Vec::new(), |entry| matches(entry, places.topology, errors));
        let pool = domain_pool(section, places.pools, errors);
        let mut unit = class_params(section, errors);
        unit.params.affinity = near(section, pool.map(|pool| &places.pools[pool]), places, errors);
        let helper = helper(section, "helpers", places, errors).unwrap_or_default();
        let interrupts = interrupts(section, places, errors).unwrap_or_else(|| helper.place.clone());
        let threads = threads(section, helper, places, errors);
        // Interrupts have no budget.
        let is_of_units = matches.iter().any(|one| !matches!(one, Match::Interrupts(_)));
        if let (Some(pool), true) = (pool, is_of_units) {
            check_class(&places.pools[pool], &unit, errors);
        } else {
            check_pair(section, &unit.params, errors);
        }
        let (name, pool) = (section.name.to_owned(), pool.map(PoolIx));
        classes.push(Class { name, matches, pool, params: unit.params, threads, interrupts });
    }
    classes
}

/// `near`: the processors of the class's pool that are near a slot, by their places in the pool.
fn near(
    section: Section<'_>,
    pool: Option<&PoolDraft<'_>>,
    places: Places<'_>,
    errors: &mut Errors,
) -> Option<CpuSet> {
    let slot = slot(section, "near", places.slots, errors)?;
    let Some(pool) = pool else {
        let message = format!("{} is near a slot and has no pool", section.header());
        errors.add(section.place_of("near"), message, "expected a pool, whose processors it chooses");
        return None;
    };
    let Some(found) = near_slot(places.topology, slot, &pool.processors) else {
        let message =
            format!("no processor of pool `{}` is on a NUMA node of slot `{}`", pool.name, slot.name);
        errors.add(section.place_of("near"), message, "expected a slot that the pool is near as well");
        return None;
    };
    let mut set = CpuSet::new(pool.processors.len());
    for (place, number) in pool.processors.iter().enumerate() {
        if found.contains(number) {
            set.insert(CpuId(place as u32));
        }
    }
    // All of them is no restriction.
    (found.len() < pool.processors.len()).then_some(set)
}

/// `helpers`, and `threads` where it names a role.
fn threads(section: Section<'_>, helper: Helper, places: Places<'_>, errors: &mut Errors) -> Threads {
    let mut threads = Threads::from(helper);
    let Some(table) = section.get("threads").and_then(|_| section.table("threads", errors)) else {
        return threads;
    };
    for (role, all) in [
        ("main-loop", &mut threads.main_loop),
        ("io", &mut threads.io),
        ("vhost", &mut threads.vhost),
        ("rcu", &mut threads.rcu),
        ("other", &mut threads.other),
    ] {
        if let Some(own) = self::helper(table, role, places, errors) {
            *all = own;
        }
    }
    threads
}

/// A place by its word, or a table of where threads run and how they are scheduled.
fn helper(
    section: Section<'_>,
    key: &'static str,
    places: Places<'_>,
    errors: &mut Errors,
) -> Option<Helper> {
    if !matches!(section.get(key)?.node.value, Value::Table(_)) {
        return Some(Helper { place: place_of(section.word(key, errors)), ..Helper::default() });
    }
    let table = section.table(key, errors)?;
    Some(Helper { place: place_in(key, table, places, errors), policy: helper_policy(table, errors) })
}

fn place_of(word: Option<&str>) -> ThreadPlace {
    if word == Some(NEAR) { ThreadPlace::Near } else { ThreadPlace::Host }
}

/// `place` or `slot`.
fn place_in(key: &str, table: Section<'_>, places: Places<'_>, errors: &mut Errors) -> ThreadPlace {
    if let (Some(_), Some(second)) = (table.get("slot"), table.get("place")) {
        let message = format!("`{key}` has both `slot` and `place`");
        errors.add(second.key_place, message, "expected one of them");
    }
    match table.get("slot") {
        Some(_) => thread_slot(table, places, errors).unwrap_or_default(),
        None => place_of(table.word("place", errors)),
    }
}

/// Where the interrupts go that a class matches.
fn interrupts(section: Section<'_>, places: Places<'_>, errors: &mut Errors) -> Option<ThreadPlace> {
    const KEY: &str = "interrupts";
    if !matches!(section.get(KEY)?.node.value, Value::Table(_)) {
        return Some(place_of(section.word(KEY, errors)));
    }
    Some(place_in(KEY, section.table(KEY, errors)?, places, errors))
}

/// The processors of a slot that no pool has.
fn thread_slot(section: Section<'_>, places: Places<'_>, errors: &mut Errors) -> Option<ThreadPlace> {
    let slot = slot(section, "slot", places.slots, errors)?;
    let is_taken = |number: &usize| {
        places.pools.iter().any(|pool| {
            let idle = pool.choice.as_ref().map_or(&[][..], |choice| &choice.idle);
            pool.processors.contains(number) || idle.contains(number)
        })
    };
    let own = slot_processors(places.topology, slot);
    let processors: Vec<usize> = own.iter().copied().filter(|number| !is_taken(number)).collect();
    // Where pools are wrong, they have all processors.
    if processors.is_empty() && !own.is_empty() && errors.count() == 0 {
        let message = format!("pools have all processors of slot `{}`", slot.name);
        let expected = "expected a slot with another processor: helper threads never run on a pool's";
        errors.add(section.place_of("slot"), message, expected);
    }
    Some(ThreadPlace::Slot { name: slot.name.clone(), processors })
}

fn class_params(section: Section<'_>, errors: &mut Errors) -> UnitDraft {
    let mut unit = UnitDraft::new(section.place, UnitKind::Vcpu);
    let fields = [
        ("budget", UnitParams::BUDGET),
        ("period", "period"),
        ("priority", "priority"),
        ("best_effort", UnitParams::BEST_EFFORT),
    ];
    for (key, field) in fields {
        unit.note_place(section, key, field);
    }
    unit.params.budget = section.duration("budget", errors);
    unit.params.period = section.duration("period", errors);
    unit.params.priority = section.count("priority", errors).and_then(|n| u32::try_from(n).ok());
    unit.params.best_effort = section.flag("best_effort", errors).unwrap_or(false);
    if shares_budget(section, errors) {
        unit.params.shares_budget = true;
        check_reserved(section, &unit, errors);
    }
    unit
}

/// Has the policy of its pool check the parameters of a class.
fn check_class(pool: &PoolDraft<'_>, unit: &UnitDraft, errors: &mut Errors) {
    let Some(chosen) = &pool.chosen else { return };
    let (info, options) = (chosen.choice.info, &chosen.choice.options);
    let built = info.build_for(pool.processors.len(), options, std::iter::once(&unit.params));
    // Options that the policy refuses are reported with the pool.
    let Ok(mut policy) = built else { return };
    if let Err(error) = policy.insert(Instant::ZERO, &unit.params) {
        refused(info, unit, &error, errors);
    }
}

/// Without a pool, a budget is a share all the same: it takes a period.
fn check_pair(section: Section<'_>, params: &UnitParams, errors: &mut Errors) {
    let lone = match (params.budget, params.period) {
        (Some(_), None) => Some(("budget", "period")),
        (None, Some(_)) => Some(("period", "budget")),
        _ => None,
    };
    if let Some((given, missing)) = lone {
        let message = format!("`{given}` stands without `{missing}` in {}", section.header());
        errors.add(section.place_of(given), message, format!("expected `{missing}` as well"));
    }
    if let (Some(budget), Some(period)) = (params.budget, params.period)
        && budget > period
    {
        let expected = format!("expected at most the period, {period}");
        errors.add(section.place_of("budget"), format!("`budget` is {budget}"), expected);
    }
}

/// The items of `match`.
fn matches(entry: &Entry, topology: &Topology, errors: &mut Errors) -> Vec<Match> {
    const EXPECTED: &str = "expected a list of matches, for example [{ libvirt = \"relay-*\" }]";
    let Value::List(items) = &entry.node.value else {
        entry.wrong_kind(EXPECTED, errors);
        return Vec::new();
    };
    if items.is_empty() {
        errors.add(entry.node.place, "`match` is empty", EXPECTED);
    }
    let mut matches = Vec::new();
    for item in items {
        match &item.value {
            Value::Table(table) => match &table.entries[..] {
                [one] => matches.extend(one_match(one, topology, errors)),
                _ => errors.add(item.place, "an item of `match` has one key", EXPECTED),
            },
            other => errors.add(item.place, format!("`match` has {}", other.kind()), EXPECTED),
        }
    }
    matches
}

fn one_match(entry: &Entry, topology: &Topology, errors: &mut Errors) -> Option<Match> {
    if MATCH.key(&entry.key).is_none() {
        unknown_key(MATCH.title, MATCH.names().collect(), entry, errors);
        return None;
    }
    let text = entry.text("expected a string", errors)?;
    check_line(&entry.key, text, entry.node.place, errors);
    Some(match entry.key.as_str() {
        "name" => Match::Name(Pattern::new(text)),
        "libvirt" => Match::Libvirt(Pattern::new(text)),
        "unit" => Match::Unit(unit(text, entry, errors)?),
        "cgroup" => Match::Cgroup(cgroup(text, entry, errors)?),
        "interrupts" => {
            Match::Interrupts(check_device(text, entry, topology, errors).then(|| text.to_owned())?)
        }
        "exec" => Match::Exec(exec(text, entry, errors)?),
        "metadata" => Match::Metadata(text.to_owned()),
        _ => Match::Uuid(uuid(text, entry, errors)?),
    })
}

/// The name of a service or scope, or a pattern that may match one.
fn unit(text: &str, entry: &Entry, errors: &mut Errors) -> Option<Pattern> {
    const ENDINGS: [&str; 2] = [".service", ".scope"];
    let message = || format!("`unit` cannot be \"{}\"", shorten(text));
    if text == INIT_SCOPE {
        let expected = "expected another unit: init.scope has process 1, which is never held";
        errors.add(entry.node.place, message(), expected);
        return None;
    }
    if text.contains('/') {
        let expected = "expected the name of a unit; a path is that of a `cgroup`";
        errors.add(entry.node.place, message(), expected);
        return None;
    }
    if !ENDINGS.iter().any(|ending| text.ends_with(ending)) && !text.ends_with(['*', '?']) {
        let expected = "expected a service or scope, for example \"sniffer.service\"";
        let stem = text.rsplit_once('.').map_or(text, |(stem, _)| stem);
        let nearest = ENDINGS.map(|ending| format!("{stem}{ending}"));
        let near = nearest_of(text, nearest.iter().map(String::as_str)).or_else(|| nearest.first().cloned());
        errors.add_nearest(entry.node.place, message(), expected, near);
        return None;
    }
    Some(Pattern::new(text))
}

/// The path of a cgroup.
fn cgroup(text: &str, entry: &Entry, errors: &mut Errors) -> Option<PathPattern> {
    match PathPattern::parse(text) {
        Ok(pattern) => Some(pattern),
        Err(expected) => {
            let message = format!("`cgroup` cannot be \"{}\"", shorten(text));
            let below = text.strip_prefix("/sys/fs/cgroup").unwrap_or(text);
            let below = below.strip_prefix("/unified").unwrap_or(below).trim_matches('/');
            let near = Some(format!("/{below}")).filter(|near| PathPattern::parse(near).is_ok());
            errors.add_nearest(entry.node.place, message, expected, near);
            None
        }
    }
}

/// A name for `punctual exec`.
fn exec(text: &str, entry: &Entry, errors: &mut Errors) -> Option<ExecName> {
    let name = ExecName::parse(text);
    if let Err(expected) = name {
        errors.add(entry.node.place, format!("`exec` cannot be \"{}\"", shorten(text)), expected);
    }
    name.ok()
}

/// A UUID in lower case.
fn uuid(text: &str, entry: &Entry, errors: &mut Errors) -> Option<String> {
    let groups: Vec<&str> = text.split('-').collect();
    let is_uuid = groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if !is_uuid {
        let message = format!("`uuid` cannot be \"{}\"", shorten(text));
        let expected = "expected a UUID, for example \"c7a5fdbd-cdaf-9455-926a-d65c16db1809\"";
        errors.add(entry.node.place, message, expected);
    }
    is_uuid.then(|| text.to_ascii_lowercase())
}
