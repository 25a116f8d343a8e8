//! SchedCAT: sets of sporadic tasks, alone or as a test point of an experiment.
//!
//! Elements and attributes are those of `schedcat/model/serialize.py`
//! (<https://github.com/brandenburg/schedcat>): `<taskset>` with `<task period wcet deadline id partition/>`;
//! `<testpoint>` with several of them; a `<task>` alone. Times have no unit; SchedCAT's generators and
//! overheads count microseconds.

use punctual_sched::Duration;
use roxmltree::Node;

use super::draft::{HostDraft, TaskDraft, UnitDraft, WorkDraft};
use super::input::{Input, shorten};
use super::settings::Settings;
use super::task_set::{Round, TaskSet, partition};
use super::xml::{attribute, document, elements, place, required};
use crate::file::source::Place;
use crate::host::Cost;

/// Attributes of a task that are read, or are results of SchedCAT's own analyses.
const ATTRIBUTES: [&str; 6] = ["id", "period", "wcet", "deadline", "partition", "response_time"];

pub(super) fn read(input: &mut Input, settings: &Settings<'_>) -> HostDraft {
    let mut set = TaskSet::default();
    for file in 0..input.files() {
        let text = input.text(file);
        let roots = ["testpoint", "taskset", "task"];
        let root = roots.into_iter().find(|root| text.contains(&format!("<{root}"))).unwrap_or(roots[1]);
        document(input, file, root, |input, node| {
            let unit = settings.unit.unwrap_or(Duration::from_us(1));
            let mut reader = Reader { input, set: &mut set, file, unit, partitioned: None };
            reader.root(node, settings);
        });
    }
    set.assemble(input, settings)
}

/// The reader of one file.
struct Reader<'a> {
    input: &'a mut Input,
    set: &'a mut TaskSet,
    file: usize,
    unit: Duration,
    /// The first attribute `partition`.
    partitioned: Option<Place>,
}

impl Reader<'_> {
    fn root(&mut self, root: Node<'_, '_>, settings: &Settings<'_>) {
        let here = place(self.input, self.file, root);
        let before = self.set.len();
        match root.tag_name().name() {
            "task" => {
                self.task(root);
            }
            "taskset" => self.task_set(root),
            _ => self.test_point(root, here, settings),
        }
        if let Some(partitioned) = self.partitioned {
            self.input.note(partitioned, "a partition is taken as the processor of this number");
        }
        if self.set.len() == before && self.input.errors.count() == 0 {
            self.input.error(here, "there is no task", "expected <task period=\"...\" wcet=\"...\"/>");
        } else if settings.unit.is_none() {
            self.input.note(here, "times have no unit: taken as microseconds (--unit)");
        }
    }

    /// The chosen task set of a test point, or its only one.
    fn test_point(&mut self, node: Node<'_, '_>, here: Place, settings: &Settings<'_>) {
        self.note_others(node, &["config", "taskset"]);
        let sets: Vec<Node<'_, '_>> = elements(node).filter(|n| n.tag_name().name() == "taskset").collect();
        let chosen = match (sets.as_slice(), settings.task_set) {
            ([only], None) => Some(only),
            (_, number) => number.and_then(|number| sets.get(number.checked_sub(1)?)),
        };
        match (chosen, settings.task_set) {
            (Some(chosen), _) => self.task_set(*chosen),
            (None, _) if sets.is_empty() => {}
            (None, given) => {
                let message = match given {
                    Some(number) => format!("there is no task set {number}"),
                    None => format!("the test point has {} task sets", sets.len()),
                };
                let expected = format!("expected one of them: --task-set 1 to --task-set {}", sets.len());
                self.input.error(here, message, expected);
            }
        }
    }

    fn task_set(&mut self, node: Node<'_, '_>) {
        self.note_others(node, &["properties", "task"]);
        for task in elements(node).filter(|n| n.tag_name().name() == "task") {
            self.task(task);
        }
    }

    /// Notes the elements that are not known.
    fn note_others(&mut self, node: Node<'_, '_>, known: &[&str]) {
        for other in elements(node).filter(|n| !known.contains(&n.tag_name().name())) {
            let at = place(self.input, self.file, other);
            let tag = shorten(other.tag_name().name());
            self.input.note(at, format!("<{tag}> is not known and not carried over"));
        }
    }

    fn task(&mut self, node: Node<'_, '_>) -> Option<()> {
        let here = place(self.input, self.file, node);
        self.note_others(node, &["resources"]);
        let period = self.time(node, "period", Round::Down)?;
        let cost = self.time(node, "wcet", Round::Up)?;
        let deadline = if node.has_attribute("deadline") {
            Some(self.time(node, "deadline", Round::Down)?)
        } else {
            None
        };
        let name = match attribute(self.input, self.file, node, "id") {
            Some((id, _)) => format!("T{}", id.trim().strip_suffix(".0").unwrap_or(id.trim())),
            None => format!("T{}", self.set.len() + 1),
        };
        let affinity = match attribute(self.input, self.file, node, "partition") {
            Some((text, at)) => {
                self.partitioned.get_or_insert(at);
                Some(partition(self.input, at, text)?)
            }
            None => None,
        };
        self.note_lost(node, &name);
        let work = WorkDraft::Sporadic {
            separation: period,
            offset: Duration::ZERO,
            cost: Cost { min: cost, max: cost },
        };
        let unit = UnitDraft { deadline, affinity, ..UnitDraft::default() };
        self.set.add(self.input, TaskDraft { name, work, unit, place: here })
    }

    /// Notes what a task of a host file does not have.
    fn note_lost(&mut self, node: Node<'_, '_>, name: &str) {
        for other in node.attributes().filter(|attribute| !ATTRIBUTES.contains(&attribute.name())) {
            let at = self.input.place(self.file, other.range());
            let text = format!("{name}: attribute `{}` is not carried over", shorten(other.name()));
            self.input.note(at, text);
        }
        let resources = elements(node).filter(|n| n.tag_name().name() == "resources");
        if let Some(first) = resources.flat_map(elements).next() {
            let at = place(self.input, self.file, first);
            self.input
                .note(at, format!("{name}: critical sections of shared resources are not carried over"));
        }
    }

    fn time(&mut self, node: Node<'_, '_>, key: &str, round: Round) -> Option<Duration> {
        let given = required(self.input, self.file, node, key)?;
        self.set.time(self.input, given, &format!("`{key}`"), self.unit, round)
    }
}
