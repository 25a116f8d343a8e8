//! Parameters of units, vCPUs and tasks alike, and where in the file they were given.

use punctual_sched::{CpuId, CpuSet, UnitParams};

use crate::file::error::Place;
use crate::file::fields::{Problems, Tab};
use crate::file::tree::Entry;

/// A unit parameter's name and where it was given.
pub(crate) type ParamPlaces = Vec<(&'static str, Place)>;

/// Parameters of a unit, where they were given, and where to point when one is missing.
#[derive(Clone)]
pub(crate) struct Unit {
    pub(crate) params: UnitParams,
    pub(crate) places: ParamPlaces,
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

impl Unit {
    pub(crate) fn new(place: &Place, kind: UnitKind) -> Self {
        Unit { params: UnitParams::default(), places: Vec::new(), place: place.clone(), kind }
    }

    /// Where `field` was given, else where it is missing.
    pub(crate) fn place_of(&self, field: &str) -> &Place {
        self.places.iter().rev().find(|(name, _)| *name == field).map_or(&self.place, |(_, place)| place)
    }

    fn given(&mut self, tab: Tab<'_>, field: &'static str) {
        if let Some(entry) = tab.get(field) {
            self.places.push((field, entry.place()));
        }
    }
}

/// The unit parameters of a domain or vCPU on top of those in `unit`.
pub(crate) fn unit_params(tab: Tab<'_>, above: &Processors<'_>, unit: Unit, problems: &mut Problems) -> Unit {
    let unit = server_params(tab, unit, problems);
    placement(tab, above, unit, problems)
}

/// The parameters that a task's `server` has too.
pub(crate) fn server_params(tab: Tab<'_>, mut unit: Unit, problems: &mut Problems) -> Unit {
    for field in ["budget", "period", "deadline", "weight", "cap_percent", "extratime"] {
        unit.given(tab, field);
    }
    let params = &mut unit.params;
    params.budget = problems.duration(tab, "budget").or(params.budget);
    params.period = problems.duration(tab, "period").or(params.period);
    params.deadline = problems.duration(tab, "deadline").or(params.deadline);
    params.weight = problems.count(tab, "weight").map(|n| n as u32).or(params.weight);
    params.cap_percent = problems.count(tab, "cap_percent").map(|n| n as u32).or(params.cap_percent);
    params.extratime = problems.flag(tab, "extratime").or(params.extratime);
    unit
}

pub(crate) fn placement(
    tab: Tab<'_>,
    above: &Processors<'_>,
    mut unit: Unit,
    problems: &mut Problems,
) -> Unit {
    unit.given(tab, "priority");
    unit.given(tab, "affinity");
    unit.params.priority = problems.count(tab, "priority").map(|n| n as u32).or(unit.params.priority);
    if let Some(entry) = tab.get("affinity") {
        unit.params.affinity = affinity(entry, above, problems);
    }
    unit
}

fn affinity(entry: &Entry, above: &Processors<'_>, problems: &mut Problems) -> Option<CpuSet> {
    let numbers = problems.numbers(entry, above.limit, above.what)?;
    let mut set = CpuSet::new(above.count);
    for (n, place) in numbers {
        let position = above.numbers.map_or(Ok(n), |own| own.binary_search(&n));
        match position {
            Ok(position) => set.insert(CpuId(position as u32)),
            Err(_) => {
                let own = above.numbers.unwrap_or_default().iter().take(20).map(usize::to_string);
                let expected = format!("expected one of {}", own.collect::<Vec<_>>().join(", "));
                problems.add(&place, format!("{n} is not among the {}", above.what), expected);
            }
        }
    }
    Some(set)
}
