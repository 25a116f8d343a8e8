//! SimSo: tasks on processors under a scheduler.
//!
//! Elements and attributes are those that `simso/configuration/parser.py` and `GenerateConfiguration.py` of
//! SimSo 0.8.5 read and write (<https://github.com/MaximeCheramy/simso>). Times of tasks are in ms; the
//! duration and overheads are in cycles.

use std::collections::BTreeSet;

use punctual_sched::{Duration, edf, fixed_priority};
use roxmltree::Node;

use super::draft::{HostDraft, LinuxPriorities, TaskDraft, UnitDraft, WorkDraft};
use super::input::{Input, shorten};
use super::settings::Settings;
use super::task_set::{Round, TaskSet};
use super::xml::{attribute, child, document, elements, place, required};
use crate::file::PROCESSORS_MAX;
use crate::file::source::Place;
use crate::host::Cost;

/// Cycles of a millisecond where the file does not say.
const CYCLES_PER_MS: i64 = 1_000_000;

/// The name of the pool.
const POOL: &str = "host";

/// The attribute that FP schedules by, of which the greatest is the most urgent.
const PRIORITY: &str = "priority";

/// What is read, by element.
const KNOWN: [(&str, &[&str]); 6] = [
    (
        "simulation",
        &["etm", "use_wcet", "duration", "cycles_per_ms", "penalty_preemption", "penalty_migration"],
    ),
    ("sched", &["class", "className", "overhead", "overhead_activate", "overhead_terminate"]),
    ("caches", &["memory_access_time"]),
    ("processors", &["migration_overhead"]),
    ("processor", &["name", "id", "cl_overhead", "cs_overhead", "speed"]),
    (
        "task",
        &[
            "name",
            "id",
            "task_type",
            "periodic",
            "abort_on_miss",
            "period",
            "activationDate",
            "list_activation_dates",
            "deadline",
            "base_cpi",
            "instructions",
            "mix",
            "stack",
            "WCET",
            "ACET",
            "et_stddev",
            "preemption_cost",
            "followed_by",
        ],
    ),
];

/// Children that are read, by element.
const CHILDREN: [(&str, &[&str]); 5] = [
    ("simulation", &["sched", "caches", "processors", "tasks"]),
    ("sched", &["field"]),
    ("caches", &["cache"]),
    ("processors", &["field", "processor"]),
    ("tasks", &["field", "task"]),
];

/// How the scheduler orders tasks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Deadlines,
    Periods,
    /// By the attribute [`PRIORITY`].
    Field,
}

/// A task, with what its scheduler may order it by.
struct Ordered {
    period: Duration,
    priority: Option<i64>,
}

pub(super) fn read(input: &mut Input, settings: &Settings<'_>) -> HostDraft {
    let mut draft = HostDraft::default();
    if input.files() > 1 {
        input.error(Place::TOP, "there are several simulations", "expected one file");
        return draft;
    }
    document(input, 0, "simulation", |input, node| {
        let unit = settings.unit.unwrap_or(Duration::from_ms(1));
        let mut reader = Reader { input, set: TaskSet::default(), ordered: Vec::new(), unit };
        reader.simulation(node, settings, &mut draft);
    });
    draft
}

/// The reader of the file.
struct Reader<'a> {
    input: &'a mut Input,
    set: TaskSet,
    ordered: Vec<Ordered>,
    unit: Duration,
}

impl Reader<'_> {
    fn simulation(&mut self, node: Node<'_, '_>, settings: &Settings<'_>, draft: &mut HostDraft) {
        let here = self.known(node, &BTreeSet::new());
        draft.duration = self.duration(node);
        self.execution_times(node);
        let order = child(node, "sched").map_or(Order::Deadlines, |sched| self.scheduler(sched));
        if let Some(caches) = child(node, "caches") {
            self.known(caches, &BTreeSet::new());
            self.first_of(caches, "cache", "caches are not carried over");
        }
        draft.processors = child(node, "processors").map_or(0, |node| self.processors(node));
        draft.size(self.input, settings, None);
        let Some(tasks) = child(node, "tasks") else {
            return self.input.error(here, "<simulation> has no <tasks>", "expected <tasks> with a <task>");
        };
        let fields = self.fields(tasks);
        self.known(tasks, &fields);
        for task in elements(tasks).filter(|n| n.tag_name().name() == "task") {
            self.task(task, &fields);
        }
        if self.ordered.is_empty() && self.input.errors.count() == 0 {
            self.input.error(
                here,
                "there is no task with a period",
                "expected a periodic or sporadic <task>",
            );
        }
        let policy = if order == Order::Deadlines { edf::NAME } else { fixed_priority::NAME };
        let pool = draft.add_pool(POOL, policy, here);
        let ranks = self.ranks(order);
        let mut tasks = std::mem::take(&mut self.set).into_tasks(self.input);
        for (task, rank) in tasks.iter_mut().zip(ranks) {
            task.unit.priority = rank;
        }
        draft.pools[pool].tasks = tasks;
    }

    /// Notes attributes and children that are not known; `fields` are those that the file declares.
    fn known(&mut self, node: Node<'_, '_>, fields: &BTreeSet<String>) -> Place {
        let tag = node.tag_name().name();
        let of = |known: &[(&str, &'static [&'static str])]| {
            known.iter().find(|(element, _)| *element == tag).map_or(&[][..], |(_, names)| *names)
        };
        let is_known = |name: &str| of(&KNOWN).contains(&name) || fields.contains(name);
        for other in node.attributes().filter(|attribute| !is_known(attribute.name())) {
            let at = self.input.place(0, other.range());
            let text = format!("attribute `{}` is not known and not carried over", shorten(other.name()));
            self.input.note(at, text);
        }
        for other in elements(node).filter(|n| !of(&CHILDREN).contains(&n.tag_name().name())) {
            let at = place(self.input, 0, other);
            let name = shorten(other.tag_name().name());
            self.input.note(at, format!("<{name}> is not known and not carried over"));
        }
        place(self.input, 0, node)
    }

    /// Notes the first child of this name.
    fn first_of(&mut self, node: Node<'_, '_>, name: &str, text: &str) {
        if let Some(first) = elements(node).find(|n| n.tag_name().name() == name) {
            let at = place(self.input, 0, first);
            self.input.note(at, text);
        }
    }

    /// Notes an attribute that costs time, unless it is zero.
    fn cost(&mut self, node: Node<'_, '_>, name: &str) {
        if let Some((text, at)) = attribute(self.input, 0, node, name)
            && text.trim().parse() != Ok(0.0)
        {
            self.input.note(at, format!("`{name}` is not carried over; [machine.overheads] has such costs"));
        }
    }

    /// The duration is in cycles.
    fn duration(&mut self, node: Node<'_, '_>) -> Option<Duration> {
        let (text, at) = attribute(self.input, 0, node, "duration")?;
        let cycles = self.input.integer(at, "`duration`", text, 1, i64::MAX)?;
        let per_ms = match attribute(self.input, 0, node, "cycles_per_ms") {
            Some((text, at)) => self.input.integer(at, "`cycles_per_ms`", text, 1, i64::MAX)?,
            None => CYCLES_PER_MS,
        };
        let ns = u128::from(cycles.unsigned_abs()) * 1_000_000 / u128::from(per_ms.unsigned_abs());
        Some(Duration::from_ns(u64::try_from(ns).unwrap_or(u64::MAX)))
    }

    /// How SimSo draws execution times: here each job takes the worst one.
    fn execution_times(&mut self, node: Node<'_, '_>) {
        let given = attribute(self.input, 0, node, "etm");
        let old = attribute(self.input, 0, node, "use_wcet");
        let is_wcet = match (given, old) {
            (Some((etm, _)), _) => etm == "wcet",
            (None, Some((uses, _))) => ["true", "yes"].contains(&uses),
            (None, None) => true,
        };
        if let (false, Some((_, at))) = (is_wcet, given.or(old)) {
            self.input.note(at, "execution times are not drawn: each job takes the WCET");
        }
        for penalty in ["penalty_preemption", "penalty_migration"] {
            self.cost(node, penalty);
        }
    }

    fn scheduler(&mut self, node: Node<'_, '_>) -> Order {
        let here = self.known(node, &BTreeSet::new());
        for cost in ["overhead", "overhead_activate", "overhead_terminate"] {
            self.cost(node, cost);
        }
        self.first_of(node, "field", "fields of the scheduler are not carried over");
        let given = |name| attribute(self.input, 0, node, name).filter(|(text, _)| !text.is_empty());
        let Some((text, at)) = given("class").or_else(|| given("className")) else {
            self.input.note(here, "no scheduler is named: taken as EDF");
            return Order::Deadlines;
        };
        let file = text.strip_suffix(".py");
        let class = file.unwrap_or(text).rsplit(['.', '/']).next().unwrap_or_default();
        let (order, is_same) = match class {
            "EDF" | "EDF2" | "EDF_mono" => (Order::Deadlines, true),
            "RM" | "RM_mono" => (Order::Periods, true),
            "FP" => (Order::Field, true),
            "P_RM" => (Order::Periods, false),
            _ => (Order::Deadlines, false),
        };
        let name = if order == Order::Deadlines { edf::NAME } else { fixed_priority::NAME };
        if !is_same {
            self.input.note(at, format!("scheduler {} is taken as {name}", shorten(class)));
        } else if file.is_some() {
            let text = format!("scheduler {} is taken as {name}: its file is not read", shorten(text));
            self.input.note(at, text);
        }
        order
    }

    /// How many processors there are.
    fn processors(&mut self, node: Node<'_, '_>) -> usize {
        self.known(node, &BTreeSet::new());
        self.cost(node, "migration_overhead");
        let fields = self.fields(node);
        let mut count = 0;
        for processor in elements(node).filter(|n| n.tag_name().name() == "processor") {
            count += 1;
            self.known(processor, &fields);
            for cost in ["cl_overhead", "cs_overhead"] {
                self.cost(processor, cost);
            }
            if let Some((text, at)) = attribute(self.input, 0, processor, "speed")
                && text.trim().parse() != Ok(1.0)
            {
                self.input.note(at, "all processors have the same speed here");
            }
        }
        if count > PROCESSORS_MAX as usize {
            let here = place(self.input, 0, node);
            let expected = format!("expected at most {PROCESSORS_MAX}");
            self.input.error(here, format!("there are {count} processors"), expected);
        }
        count
    }

    /// The names that the file declares for attributes of its own.
    fn fields(&mut self, node: Node<'_, '_>) -> BTreeSet<String> {
        let fields = elements(node).filter(|n| n.tag_name().name() == "field");
        fields.filter_map(|field| field.attribute("name")).map(String::from).collect()
    }

    fn task(&mut self, node: Node<'_, '_>, fields: &BTreeSet<String>) -> Option<()> {
        let here = self.known(node, fields);
        let (name, _) = required(self.input, 0, node, "name")?;
        let kind = match (node.attribute("task_type"), node.attribute("periodic")) {
            (Some(kind @ ("APeriodic" | "Sporadic")), _) => kind,
            (None, Some("no")) => "APeriodic",
            _ => "Periodic",
        };
        if kind == "APeriodic" {
            self.input.note(here, format!("{}: an aperiodic task is left out", shorten(name)));
            return None;
        }
        let period = self.time(node, "period", Round::Down)?;
        let cost = self.time(node, "WCET", Round::Up)?;
        let deadline = self.time(node, "deadline", Round::Down)?;
        let offset = if node.has_attribute("activationDate") {
            self.time(node, "activationDate", Round::Down)?
        } else {
            Duration::ZERO
        };
        self.lost(node, here, name, kind);
        let priority = match attribute(self.input, 0, node, PRIORITY) {
            Some((text, at)) if fields.contains(PRIORITY) => {
                Some(self.input.integer(at, "`priority`", text, i64::MIN, i64::MAX)?)
            }
            _ => None,
        };
        let cost = Cost { min: cost, max: cost };
        let work = match kind {
            "Sporadic" => WorkDraft::Sporadic { separation: period, offset, cost },
            _ => WorkDraft::Periodic { period, offset, cost },
        };
        let unit = UnitDraft { deadline: Some(deadline), ..UnitDraft::default() };
        let task = TaskDraft { name: name.into(), work, unit, place: here };
        self.set.add(self.input, task)?;
        self.ordered.push(Ordered { period, priority });
        Some(())
    }

    /// Notes what a task of a host file does not have.
    fn lost(&mut self, node: Node<'_, '_>, here: Place, name: &str, kind: &str) {
        let name = shorten(name);
        if node.attribute("abort_on_miss").is_none_or(|text| text == "yes") {
            let text = format!("{name}: a job goes on after its deadline, and is not aborted");
            self.input.note(here, text);
        }
        if let Some((_, at)) = attribute(self.input, 0, node, "followed_by") {
            self.input.note(at, format!("{name}: the task that follows is not released by it"));
        }
        let dates = attribute(self.input, 0, node, "list_activation_dates");
        if let Some((_, at)) = dates.filter(|(text, _)| kind == "Sporadic" && !text.trim().is_empty()) {
            let text = format!("{name}: releases are drawn, at least a period apart, not those of the list");
            self.input.note(at, text);
        }
        self.cost(node, "preemption_cost");
    }

    fn time(&mut self, node: Node<'_, '_>, key: &str, round: Round) -> Option<Duration> {
        let given = required(self.input, 0, node, key)?;
        self.set.time(self.input, given, &format!("`{key}`"), self.unit, round)
    }

    /// The priorities of the tasks, 1 the most urgent.
    fn ranks(&self, order: Order) -> Vec<Option<u32>> {
        let periods: BTreeSet<Duration> = self.ordered.iter().map(|task| task.period).collect();
        let fields = LinuxPriorities::new(self.ordered.iter().filter_map(|task| task.priority));
        let rank = |task: &Ordered| match order {
            Order::Deadlines => None,
            Order::Periods => Some(periods.range(..task.period).count() as u32 + 1),
            Order::Field => Some(task.priority.map_or(u32::MAX, |priority| fields.rank(priority))),
        };
        self.ordered.iter().map(rank).collect()
    }
}
