//! A host on its way from an imported file to the text of a host file.

use std::collections::BTreeSet;
use std::fmt::{Display, Write};

use super::input::Input;
use super::names::Names;
use crate::file::UNITS_MAX;
use crate::file::source::Place;

/// What was read of a host.
#[derive(Default)]
pub(super) struct Draft {
    /// Number of processors: one more than the highest that is named.
    pub(super) processors: usize,
    /// How long to run, ns.
    pub(super) duration_ns: Option<u64>,
    pub(super) pools: Vec<Pool>,
    pub(super) domains: Vec<Domain>,
    /// vCPUs so far.
    vcpus: usize,
}

/// A pool, with the tasks directly in it.
pub(super) struct Pool {
    pub(super) name: String,
    /// Empty: all of the machine's.
    pub(super) processors: Vec<usize>,
    pub(super) policy: &'static str,
    /// Options of the policy as they stand in a host file.
    pub(super) options: Vec<(&'static str, String)>,
    pub(super) tasks: Vec<Task>,
    pub(super) place: Place,
}

/// A domain.
pub(super) struct Domain {
    pub(super) name: String,
    pub(super) owner: Owner,
    pub(super) guest: &'static str,
    /// At least one.
    pub(super) vcpus: Vec<UnitDraft>,
    pub(super) tasks: Vec<Task>,
    pub(super) helpers: Helpers,
    pub(super) place: Place,
}

/// Threads of the domain that are no vCPUs.
#[derive(Clone, Default)]
pub(super) struct Helpers {
    /// Ascending; empty: not given.
    pub(super) processors: Vec<usize>,
    /// Of SCHED_FIFO.
    pub(super) priority: Option<i64>,
}

/// Whose units a domain's vCPUs are; an index into the draft's pools or domains.
#[derive(Clone, Copy)]
pub(super) enum Owner {
    Pool(usize),
    Domain(usize),
}

/// Parameters of a unit; times in ns.
#[derive(Clone, Default, PartialEq)]
pub(super) struct UnitDraft {
    pub(super) budget_ns: Option<u64>,
    pub(super) period_ns: Option<u64>,
    pub(super) deadline_ns: Option<u64>,
    pub(super) priority: Option<u32>,
    pub(super) weight: Option<u32>,
    pub(super) cap_percent: Option<u32>,
    pub(super) extratime: Option<bool>,
    /// Ascending; of the machine, in a domain of its vCPUs.
    pub(super) affinity: Option<Vec<usize>>,
}

/// A task; what it does and its parameters as a unit.
pub(super) struct Task {
    pub(super) name: String,
    pub(super) work: Work,
    /// `budget` and `period` make its server.
    pub(super) unit: UnitDraft,
    pub(super) place: Place,
}

/// What a task does; times in ns.
pub(super) enum Work {
    Hog { start_ns: u64 },
    Periodic { period_ns: u64, offset_ns: u64, cost_ns: (u64, u64) },
    Sporadic { separation_ns: u64, offset_ns: u64, cost_ns: (u64, u64) },
}

/// The text, and where in the imported files its lines come from.
#[derive(Default)]
pub(super) struct Written {
    pub(super) text: String,
    lines: usize,
    /// First line of each part, ascending, and its place.
    places: Vec<(usize, Place)>,
}

impl Written {
    /// Where the part with this line (from 1) comes from.
    pub(super) fn place_of(&self, line: usize) -> Place {
        let after = self.places.partition_point(|(first, _)| *first <= line);
        self.places[..after].last().map_or(Place::default(), |(_, place)| *place)
    }

    fn line(&mut self, line: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
        self.lines += 1;
    }

    fn table(&mut self, path: &str, place: Place) {
        self.line("");
        self.places.push((self.lines + 1, place));
        self.line(format_args!("[{path}]"));
    }

    fn keys(&mut self, keys: &[(&'static str, String)]) {
        for (key, value) in keys {
            self.line(format_args!("{key} = {value}"));
        }
    }
}

impl Draft {
    /// Is there room for so many more vCPUs? If not, that is an error.
    pub(super) fn reserve(&mut self, input: &mut Input, place: Place, vcpus: usize) -> Option<()> {
        self.vcpus += vcpus;
        if self.vcpus > UNITS_MAX {
            input.error(place, "there are too many vCPUs", format!("expected at most {UNITS_MAX}"));
            return None;
        }
        Some(())
    }

    /// A pool and its index.
    pub(super) fn add_pool(&mut self, name: &str, policy: &'static str, place: Place) -> usize {
        let (processors, options, tasks) = (Vec::new(), Vec::new(), Vec::new());
        self.pools.push(Pool { name: name.into(), processors, policy, options, tasks, place });
        self.pools.len() - 1
    }

    /// At least as many processors as these numbers need.
    pub(super) fn see(&mut self, processors: &[usize]) {
        self.processors = self.processors.max(processors.iter().max().map_or(0, |n| n + 1));
    }

    /// The host file.
    pub(super) fn write(&self, name: &str, heading: &str) -> Written {
        let mut out = Written { text: heading.into(), lines: heading.lines().count(), places: Vec::new() };
        let mut names = Names::default();
        let pools: Vec<String> = self.pools.iter().map(|p| names.give(&p.name)).collect();
        let domains: Vec<String> = self.domains.iter().map(|d| names.give(&d.name)).collect();
        out.line(format_args!("name = {}", quoted(name)));
        out.keys(&self.duration_ns.map(|ns| ("duration", time(ns))).into_iter().collect::<Vec<_>>());
        out.line("\n[machine]");
        out.lines += 1;
        out.line(format_args!("processors = {}", self.processors));
        for (pool, name) in self.pools.iter().zip(&pools) {
            out.table(&format!("pool.{name}"), pool.place);
            let processors = Some(numbers(&pool.processors)).filter(|_| !pool.processors.is_empty());
            out.keys(&processors.map(|list| ("processors", list)).into_iter().collect::<Vec<_>>());
            out.line(format_args!("policy = {}", quoted(pool.policy)));
            if !pool.options.is_empty() {
                out.line(format_args!("{} = {{ {} }}", pool.policy, inline(&pool.options)));
            }
            tasks(&mut out, &pool.tasks, &format!("pool.{name}"));
        }
        for (domain, name) in self.domains.iter().zip(&domains) {
            let owner = match domain.owner {
                Owner::Pool(pool) => ("pool", quoted(&pools[pool])),
                Owner::Domain(outer) => ("in", quoted(&domains[outer])),
            };
            write_domain(&mut out, domain, name, owner);
        }
        out
    }
}

fn write_domain(out: &mut Written, domain: &Domain, name: &str, owner: (&'static str, String)) {
    let path = format!("domain.{name}");
    out.table(&path, domain.place);
    out.keys(&[owner, ("vcpus", domain.vcpus.len().to_string()), ("guest", quoted(domain.guest))]);
    let first = &domain.vcpus[0];
    if domain.vcpus.iter().all(|unit| unit == first) {
        out.keys(&parameters(first));
    } else {
        for (n, unit) in domain.vcpus.iter().enumerate() {
            out.line(format_args!("vcpu.{n} = {{ {} }}", inline(&parameters(unit))));
        }
    }
    let Helpers { processors, priority } = &domain.helpers;
    let mut helpers = Vec::new();
    helpers.extend(Some(("processors", numbers(processors))).filter(|_| !processors.is_empty()));
    helpers.extend(priority.iter().flat_map(|n| [("policy", quoted("fifo")), ("priority", n.to_string())]));
    if !helpers.is_empty() {
        out.line(format_args!("helpers = {{ {} }}", inline(&helpers)));
    }
    tasks(out, &domain.tasks, &path);
}

fn tasks(out: &mut Written, tasks: &[Task], path: &str) {
    let mut names = Names::default();
    for task in tasks {
        out.table(&format!("{path}.task.{}", names.give(&task.name)), task.place);
        let mut unit = task.unit.clone();
        let offset = |ns: u64| Some(("offset", time(ns))).filter(|_| ns > 0);
        let mut keys = Vec::new();
        match task.work {
            Work::Hog { start_ns } => {
                keys.push(("hog", "true".into()));
                keys.extend(Some(("start", time(start_ns))).filter(|_| start_ns > 0));
            }
            Work::Periodic { period_ns, offset_ns, cost_ns } => {
                keys.extend([("period", time(period_ns)), ("cost", cost(cost_ns))]);
                keys.extend(offset(offset_ns));
            }
            Work::Sporadic { separation_ns, offset_ns, cost_ns } => {
                keys.extend([("separation", time(separation_ns)), ("cost", cost(cost_ns))]);
                keys.extend(offset(offset_ns));
            }
        }
        keys.extend(unit.deadline_ns.take().map(|ns| ("deadline", time(ns))));
        keys.extend(unit.priority.take().map(|n| ("priority", n.to_string())));
        keys.extend(unit.affinity.take().map(|list| ("affinity", numbers(&list))));
        let server = parameters(&unit);
        if !server.is_empty() {
            keys.push(("server", format!("{{ {} }}", inline(&server))));
        }
        out.keys(&keys);
    }
}

fn parameters(unit: &UnitDraft) -> Vec<(&'static str, String)> {
    let given = [
        unit.budget_ns.map(|ns| ("budget", time(ns))),
        unit.period_ns.map(|ns| ("period", time(ns))),
        unit.deadline_ns.map(|ns| ("deadline", time(ns))),
        unit.priority.map(|n| ("priority", n.to_string())),
        unit.weight.map(|n| ("weight", n.to_string())),
        unit.cap_percent.map(|n| ("cap_percent", n.to_string())),
        unit.extratime.map(|flag| ("extratime", flag.to_string())),
        unit.affinity.as_ref().map(|list| ("affinity", numbers(list))),
    ];
    given.into_iter().flatten().collect()
}

fn inline(keys: &[(&'static str, String)]) -> String {
    keys.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join(", ")
}

fn time(ns: u64) -> String {
    format!("\"{}\"", punctual_sched::Duration::from_ns(ns))
}

fn cost((min_ns, max_ns): (u64, u64)) -> String {
    match min_ns == max_ns {
        true => time(max_ns),
        false => format!("{{ min = {}, max = {} }}", time(min_ns), time(max_ns)),
    }
}

fn numbers(list: &[usize]) -> String {
    let list: Vec<String> = list.iter().map(usize::to_string).collect();
    format!("[{}]", list.join(", "))
}

fn quoted(text: &str) -> String {
    let clean = text.replace(|c: char| c.is_control(), " ").replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{clean}\"")
}

/// Priorities of a host file, 1 the most urgent, for those of Linux, where the greatest is: the order is
/// kept.
pub(super) struct LinuxPriorities {
    descending: Vec<i64>,
}

impl LinuxPriorities {
    pub(super) fn new(given: impl Iterator<Item = i64>) -> Self {
        let ascending: BTreeSet<i64> = given.collect();
        LinuxPriorities { descending: ascending.into_iter().rev().collect() }
    }

    pub(super) fn rank(&self, priority: i64) -> u32 {
        self.descending.partition_point(|p| *p > priority) as u32 + 1
    }
}
