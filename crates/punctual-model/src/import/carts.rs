//! CARTS: systems of components, each with a scheduler, over tasks; and its results, which add each
//! component's resource.
//!
//! Input: `<system os_scheduler="EDF">` with `<component name scheduler min_period max_period>` and `<task
//! name p d e/>`. Results repeat the components with `<resource><model period execution_time
//! cpus/></resource>`, and call the scheduler `algorithm` (Phan, Lee, Easwaran, Ramaswamy, Chen, Sokolsky,
//! Lee: "CARTS: A Tool for Compositional Analysis of Real-Time Systems", SIGBED Review 2011). Times have no
//! unit; fractions are exact.

use punctual_sched::servers::periodic;
use punctual_sched::{Duration, edf, fixed_priority, rtds};
use roxmltree::Node;

use super::draft::{DomainDraft, Helpers, HostDraft, Owner, TaskDraft, UnitDraft, WorkDraft};
use super::input::{Input, shorten};
use super::xml::{attribute, child, document, elements, place, required};
use crate::file::source::Place;
use crate::file::{NESTING_MAX, PROCESSORS_MAX};
use crate::host::Cost;

/// Elements of systems and components.
const ELEMENTS: [&str; 3] = ["component", "task", "resource"];

/// Attributes of systems and components. The periods of a system are no constraint.
const ATTRIBUTES: [&str; 6] = ["name", "os_scheduler", "scheduler", "algorithm", "min_period", "max_period"];

/// A scheduler of CARTS.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scheduler {
    /// The earliest deadline first, `EDF` or global `gEDF`.
    Edf,
    /// Fixed priorities, `RM` or `DM`.
    Fixed,
}

impl Scheduler {
    fn guest(self) -> &'static str {
        match self {
            Scheduler::Edf => edf::NAME,
            Scheduler::Fixed => fixed_priority::NAME,
        }
    }
}

/// The reader of one file.
struct Reader<'a> {
    input: &'a mut Input,
    draft: &'a mut HostDraft,
    file: usize,
    unit: Duration,
    /// Components for which no resource is given.
    without_budget: usize,
}

pub(super) fn read(input: &mut Input, unit: Duration) -> HostDraft {
    let mut draft = HostDraft::default();
    let several = input.files() > 1;
    for file in 0..input.files() {
        // Results have a component for the whole system at the root.
        let results = input.text(file).contains("<component") && !input.text(file).contains("<system");
        let root = if results { "component" } else { "system" };
        document(input, file, root, |input, node| {
            let name = if several { format!("system{}", file + 1) } else { "system".into() };
            let mut reader = Reader { input, draft: &mut draft, file, unit, without_budget: 0 };
            reader.system(node, &name);
        });
    }
    draft
}

impl Reader<'_> {
    fn system(&mut self, node: Node<'_, '_>, name: &str) {
        let here = place(self.input, self.file, node);
        let Some(scheduler) = self.scheduler(node, "os_scheduler") else { return };
        let pool = self.draft.add_pool(name, rtds::NAME, here);
        let tasks = self.tasks(node);
        self.draft.pools[pool].tasks = tasks;
        let first = self.draft.domains.len();
        for component in elements(node).filter(|n| n.tag_name().name() == "component") {
            self.component(component, Owner::Pool(pool), 1);
        }
        let policy = match (scheduler, self.without_budget == 0) {
            (Scheduler::Edf, true) => rtds::NAME,
            (Scheduler::Fixed, true) => periodic::NAME,
            (Scheduler::Edf, false) => edf::NAME,
            (Scheduler::Fixed, false) => fixed_priority::NAME,
        };
        self.draft.pools[pool].policy = policy;
        // Deadline-monotonic among components, as CARTS schedules their interfaces.
        let mut periods: Vec<Duration> =
            self.draft.domains[first..].iter().filter_map(|d| d.vcpus[0].period).collect();
        periods.sort_unstable();
        periods.dedup();
        for domain in &mut self.draft.domains[first..] {
            for unit in &mut domain.vcpus {
                unit.priority = unit.period.map(|period| periods.partition_point(|p| *p < period) as u32 + 1);
            }
        }
        if self.without_budget > 0 {
            let text = format!(
                "{} components have no resource, so their domains have no budget",
                self.without_budget
            );
            self.input.note(here, text);
        }
        if let Some((cpus, _)) = child(node, "resource")
            .and_then(|r| child(r, "model"))
            .and_then(|m| attribute(self.input, self.file, m, "cpus"))
        {
            self.draft.processors =
                self.draft.processors.max(cpus.parse().unwrap_or(0).min(PROCESSORS_MAX as usize));
        }
    }

    fn component(&mut self, node: Node<'_, '_>, owner: Owner, depth: usize) -> Option<()> {
        let here = place(self.input, self.file, node);
        if depth > NESTING_MAX {
            let expected = format!("expected at most {NESTING_MAX} levels");
            self.input.error(here, "components are nested too deeply", expected);
            return None;
        }
        let (name, _) = required(self.input, self.file, node, "name")?;
        let scheduler = self.scheduler(node, "scheduler")?;
        let vcpus = self.resource(node, here, name)?;
        let tasks = self.tasks(node);
        self.draft.processors = self.draft.processors.max(vcpus.len());
        let (name, guest) = (name.to_string(), scheduler.guest());
        self.draft.domains.push(DomainDraft {
            name,
            owner,
            guest,
            vcpus,
            tasks,
            helpers: Helpers::default(),
            attach: None,
            place: here,
        });
        let this = Owner::Domain(self.draft.domains.len() - 1);
        for inner in elements(node).filter(|n| n.tag_name().name() == "component") {
            self.component(inner, this, depth + 1);
        }
        Some(())
    }

    /// `EDF`, `gEDF`, `RM`, `DM`; `algorithm` in results.
    fn scheduler(&mut self, node: Node<'_, '_>, key: &str) -> Option<Scheduler> {
        let given = attribute(self.input, self.file, node, key)
            .or_else(|| attribute(self.input, self.file, node, "algorithm"));
        let (name, at) = match given {
            Some(given) => given,
            None => required(self.input, self.file, node, key)?,
        };
        match name.to_ascii_uppercase().as_str() {
            "EDF" | "GEDF" => Some(Scheduler::Edf),
            "RM" | "DM" => Some(Scheduler::Fixed),
            _ => {
                let message = format!("`{key}` is {:?}", shorten(name));
                self.input.error(at, message, "expected EDF, gEDF, RM or DM");
                None
            }
        }
    }

    /// The component's vCPUs: from its resource, else one without a budget.
    fn resource(&mut self, node: Node<'_, '_>, here: Place, name: &str) -> Option<Vec<UnitDraft>> {
        let model = child(node, "resource").and_then(|resource| child(resource, "model"));
        let Some(model) = model else {
            self.without_budget += 1;
            return Some(vec![UnitDraft { period: self.only_period(node), ..UnitDraft::default() }]);
        };
        let cpus = match attribute(self.input, self.file, model, "cpus") {
            Some((text, at)) if text.trim() == "0" => {
                let message = format!("CARTS found no interface for {}: `cpus` is 0", shorten(name));
                self.input.error(at, message, "expected a component that CARTS can schedule");
                return None;
            }
            Some((text, at)) => self.input.integer(at, "`cpus`", text, 1, PROCESSORS_MAX as i64)? as u64,
            None => 1,
        };
        self.draft.reserve(self.input, here, cpus as usize)?;
        let period = self.time(model, "period")?;
        let Some(_) = attribute(self.input, self.file, model, "execution_time") else {
            let at = place(self.input, self.file, model);
            self.input.note(at, format!("{name}: a resource without execution_time is not carried over"));
            self.without_budget += 1;
            return Some(vec![UnitDraft { period: Some(period), ..UnitDraft::default() }]);
        };
        let total = self.time(model, "execution_time")?;
        if cpus > 1 {
            self.input.note(here, format!("{name}: the resource is divided equally among its {cpus} vCPUs"));
        }
        let unit = UnitDraft {
            budget: Some(Duration::from_ns(total.as_ns().div_ceil(cpus))),
            period: Some(period),
            extratime: Some(false),
            ..UnitDraft::default()
        };
        Some(vec![unit; cpus as usize])
    }

    /// The component's period, if only one is possible.
    fn only_period(&mut self, node: Node<'_, '_>) -> Option<Duration> {
        let (least, at) = attribute(self.input, self.file, node, "min_period")?;
        let (most, _) = attribute(self.input, self.file, node, "max_period")?;
        if least != most {
            self.input.note(
                at,
                format!("periods from {} to {}: one has to be chosen", shorten(least), shorten(most)),
            );
            return None;
        }
        self.input.time(at, "`min_period`", least, self.unit).filter(|period| !period.is_zero())
    }

    fn time(&mut self, node: Node<'_, '_>, key: &str) -> Option<Duration> {
        let (text, at) = required(self.input, self.file, node, key)?;
        self.input.time(at, &format!("`{key}`"), text, self.unit)
    }

    /// The tasks directly in a component or system. Notes elements and attributes that are not known.
    fn tasks(&mut self, node: Node<'_, '_>) -> Vec<TaskDraft> {
        let mut tasks = Vec::new();
        for attribute in node.attributes().filter(|attribute| !ATTRIBUTES.contains(&attribute.name())) {
            let at = self.input.place(self.file, attribute.range());
            let text = format!("attribute `{}` is not known and not carried over", shorten(attribute.name()));
            self.input.note(at, text);
        }
        for other in elements(node).filter(|n| !ELEMENTS.contains(&n.tag_name().name())) {
            let at = place(self.input, self.file, other);
            let tag = shorten(other.tag_name().name());
            self.input.note(at, format!("<{tag}> is not known and not carried over"));
        }
        for task in elements(node).filter(|n| n.tag_name().name() == "task") {
            tasks.extend(self.task(task));
        }
        tasks
    }

    fn task(&mut self, node: Node<'_, '_>) -> Option<TaskDraft> {
        let here = place(self.input, self.file, node);
        let (name, _) = required(self.input, self.file, node, "name")?;
        let (period, deadline, cost) = (self.time(node, "p"), self.time(node, "d"), self.time(node, "e"));
        let (period, deadline, cost) = (period?, deadline?, cost?);
        let cost = Cost { min: cost, max: cost };
        let work = WorkDraft::Periodic { period, offset: Duration::ZERO, cost };
        let unit = UnitDraft { deadline: Some(deadline), ..UnitDraft::default() };
        Some(TaskDraft { name: name.into(), work, unit, place: here })
    }
}
