//! Parameters of units, vCPUs and tasks alike, and where in the file they were given.

use punctual_sched::{CpuId, CpuSet, UnitParams};

use crate::file::error::Errors;
use crate::file::limits::PROCESSORS_MAX;
use crate::file::section::Section;
use crate::file::source::{Place, Places};
use crate::file::tree::Entry;

/// Parameters of a unit, where they were given, and where to point when one is missing.
#[derive(Clone)]
pub(crate) struct UnitDraft {
    pub(crate) params: UnitParams,
    pub(crate) places: Places,
    pub(crate) place: Place,
    pub(crate) kind: UnitKind,
}

/// What a unit is, for errors.
#[derive(Clone)]
pub(crate) enum UnitKind {
    Vcpu,
    Task,
    /// A generated task of this name.
    Generated(String),
}

/// The processors of a scheduler as the file numbers them, and what they are called.
pub(crate) struct Processors<'a> {
    /// Numbers in the file, ascending: position = processor of the policy. `None`: both are the same.
    numbers: Option<&'a [usize]>,
    count: usize,
    /// The file's numbers are below this.
    limit: usize,
    what: &'static str,
}

/// A pool's processors, on a machine with so many.
pub(crate) fn of_pool(processors: &[usize], machine: usize) -> Processors<'_> {
    let count = processors.len();
    Processors { numbers: Some(processors), count, limit: machine, what: "processors of the pool" }
}

/// A domain's vCPUs.
pub(crate) fn of_domain(vcpus: usize, what: &'static str) -> Processors<'static> {
    Processors { numbers: None, count: vcpus, limit: vcpus, what }
}

impl Processors<'_> {
    /// Are they a pool's?
    pub(crate) fn is_pool(&self) -> bool {
        self.numbers.is_some()
    }
}

impl UnitDraft {
    pub(crate) fn new(place: Place, kind: UnitKind) -> Self {
        UnitDraft { params: UnitParams::default(), places: Places::default(), place, kind }
    }

    /// Where `field` was given, else where it is missing.
    pub(crate) fn place_of(&self, field: &str) -> Place {
        self.places.of(field).unwrap_or(self.place)
    }

    /// Notes where `key` of the section gives the parameter `field`, if it does.
    pub(crate) fn note_place(&mut self, section: Section<'_>, key: &str, field: &'static str) {
        if let Some(entry) = section.get(key) {
            self.places.add(field, entry.place());
        }
    }
}

/// The unit parameters of a domain or vCPU on top of those in `unit`.
pub(crate) fn unit_params(
    section: Section<'_>,
    above: &Processors<'_>,
    unit: UnitDraft,
    errors: &mut Errors,
) -> UnitDraft {
    let mut unit = server_params(section, unit, errors);
    unit.note_place(section, "best_effort", UnitParams::BEST_EFFORT);
    unit.params.best_effort = section.flag("best_effort", errors).unwrap_or(unit.params.best_effort);
    placement(section, above, unit, errors)
}

/// The parameters that a task's `server` has too.
pub(crate) fn server_params(section: Section<'_>, mut unit: UnitDraft, errors: &mut Errors) -> UnitDraft {
    for field in ["budget", "period", "deadline", "weight", "cap_percent", "extratime"] {
        unit.note_place(section, field, field);
    }
    let params = &mut unit.params;
    params.budget = section.duration("budget", errors).or(params.budget);
    params.period = section.duration("period", errors).or(params.period);
    params.deadline = section.duration("deadline", errors).or(params.deadline);
    params.weight = section.count("weight", errors).map(|n| n as u32).or(params.weight);
    params.cap_percent = section.count("cap_percent", errors).map(|n| n as u32).or(params.cap_percent);
    params.extratime = section.flag("extratime", errors).or(params.extratime);
    unit
}

pub(crate) fn placement(
    section: Section<'_>,
    above: &Processors<'_>,
    mut unit: UnitDraft,
    errors: &mut Errors,
) -> UnitDraft {
    unit = own_priority(section, unit, errors);
    unit.note_place(section, "affinity", "affinity");
    if let Some(entry) = section.get("affinity") {
        unit.params.affinity = affinity(entry, above, errors);
    }
    unit
}

/// `priority` on top of that of `unit`.
pub(crate) fn own_priority(section: Section<'_>, mut unit: UnitDraft, errors: &mut Errors) -> UnitDraft {
    unit.note_place(section, "priority", "priority");
    unit.params.priority = section.count("priority", errors).map(|n| n as u32).or(unit.params.priority);
    unit
}

/// The end of an error: what gives a domain vCPU `n`.
pub(crate) fn more_vcpus(n: u64) -> String {
    match n {
        0..PROCESSORS_MAX => format!("; `vcpus = {}` gives the domain vCPU {n}", n + 1),
        _ => String::new(),
    }
}

fn affinity(entry: &Entry, above: &Processors<'_>, errors: &mut Errors) -> Option<CpuSet> {
    let cure = |n| if above.is_pool() { String::new() } else { more_vcpus(n) };
    let numbers = entry.indices_or(above.limit, above.what, cure, errors)?;
    let mut set = CpuSet::new(above.count);
    for (n, place) in numbers {
        let position = above.numbers.map_or(Ok(n), |own| own.binary_search(&n));
        match position {
            Ok(position) => set.insert(CpuId(position as u32)),
            Err(_) => {
                let own = above.numbers.unwrap_or_default();
                let list = own.iter().take(20).map(usize::to_string).collect::<Vec<_>>().join(", ");
                let expected = match own {
                    [_] => format!("expected {list}, the only one"),
                    _ => format!("expected one of {list}"),
                };
                errors.add(place, format!("{n} is not among the {}", above.what), expected);
            }
        }
    }
    Some(set)
}
