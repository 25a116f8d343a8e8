//! Tasks: what they do, and their parameters as units.

use punctual_sched::{Duration, UnitParams};

use super::keys::COST;
use super::locks::{resources, sections};
use super::unit::{Processors, UnitDraft, UnitKind, placement, server_params};
use crate::file::copies::{Copies, Names};
use crate::file::error::Errors;
use crate::file::section::Section;
use crate::file::tree::Value;
use crate::host::{Arrival, Cost, Work};
use crate::locks::{CriticalSection, Resource};

/// A task before its host is put together.
pub(crate) struct TaskDraft {
    pub(crate) name: String,
    pub(crate) unit: UnitDraft,
    pub(crate) work: Work,
    pub(crate) sections: Vec<CriticalSection>,
}

/// The tasks of a pool or domain, what to generate after them, and what they share.
pub(crate) struct Tasks<'t> {
    pub(crate) resources: Vec<Resource>,
    /// Each table with how many tasks it makes.
    pub(crate) drafts: Vec<(TaskDraft, Copies)>,
    pub(crate) generate: Option<Section<'t>>,
}

/// Reads the tasks of a pool or domain.
pub(crate) fn tasks<'t>(section: Section<'t>, of: &Processors<'_>, errors: &mut Errors) -> Tasks<'t> {
    let resources = if of.is_pool() { Vec::new() } else { resources(section, errors) };
    let mut drafts = Vec::new();
    for task_section in section.named("task", errors) {
        let copies = Copies::read(task_section, &["offset", "start"], errors);
        drafts.extend(task(task_section, of, &resources, errors).map(|draft| (draft, copies)));
    }
    Tasks { resources, drafts, generate: section.table("generate", errors) }
}

/// Every task that the tables make.
pub(crate) fn spelled_out(tables: Vec<(TaskDraft, Copies)>, errors: &mut Errors) -> Vec<TaskDraft> {
    let mut names = Names::default();
    let mut drafts = Vec::new();
    for (draft, copies) in tables {
        for (name, later) in copies.each(&draft.name) {
            if !names.add("task", &name, draft.unit.place, errors) {
                break;
            }
            let (unit, work, sections) =
                (draft.unit.clone(), delayed(draft.work, later), draft.sections.clone());
            drafts.push(TaskDraft { name, unit, work, sections });
        }
    }
    drafts
}

/// The same work, beginning later.
fn delayed(work: Work, later: Duration) -> Work {
    match work {
        Work::Jobs { arrival: Arrival::Periodic { period, offset }, cost, deadline } => {
            Work::Jobs { arrival: Arrival::Periodic { period, offset: offset + later }, cost, deadline }
        }
        Work::Jobs { arrival: Arrival::Sporadic { separation, slack_mean, offset }, cost, deadline } => {
            let arrival = Arrival::Sporadic { separation, slack_mean, offset: offset + later };
            Work::Jobs { arrival, cost, deadline }
        }
        Work::Hog { start } => Work::Hog { start: start + later },
        Work::Served { .. } => work,
    }
}

fn task(
    section: Section<'_>,
    of: &Processors<'_>,
    resources: &[Resource],
    errors: &mut Errors,
) -> Option<TaskDraft> {
    let flag = |key, errors: &mut Errors| match section.get(key) {
        None => Some(false),
        Some(_) => section.flag(key, errors),
    };
    let (hog, on_packet) = (flag("hog", errors), flag("on_packet", errors));
    let work = match (hog, on_packet) {
        (Some(true), Some(true)) => {
            let place = section.get("on_packet").map_or(section.place, |e| e.key_place);
            errors.add(place, "a hog has no `on_packet`", "expected one of them");
            None
        }
        (Some(true), Some(false)) => hog_work(section, errors),
        (Some(false), Some(true)) => served_work(section, of, errors),
        (Some(false), Some(false)) => jobs(section, errors),
        _ => None,
    };
    let mut unit = UnitDraft::new(section.place, UnitKind::Task);
    if let Some(work) = &work {
        unit.params = derived_params(work);
        for (field, key) in [("budget", "cost"), ("period", "period"), ("period", "separation")] {
            unit.note_place(section, key, field);
        }
        for key in ["period", "separation", "deadline"] {
            unit.note_place(section, key, "deadline");
        }
    }
    if let Some(server) = section.table("server", errors) {
        unit = server_params(server, unit, errors);
    }
    let unit = placement(section, of, unit, errors);
    if let (true, Some(entry)) = (of.is_pool(), section.get("sections")) {
        let expected = "expected `sections` in a domain's task";
        errors.add(entry.key_place, "a task of a pool shares no resources", expected);
        return None;
    }
    let work = work?;
    let sections = sections(section, &work, resources, errors);
    Some(TaskDraft { name: section.name.into(), unit, work, sections })
}

/// The unit parameters that follow from what a task does: its greatest cost, period and deadline.
pub(crate) fn derived_params(work: &Work) -> UnitParams {
    match *work {
        Work::Jobs { arrival, cost, deadline } => {
            let (Arrival::Periodic { period, .. } | Arrival::Sporadic { separation: period, .. }) = arrival;
            UnitParams {
                budget: Some(cost.max),
                period: Some(period),
                deadline: Some(deadline),
                ..UnitParams::default()
            }
        }
        Work::Served { cost, deadline } => UnitParams {
            budget: Some(cost.max),
            period: Some(deadline),
            deadline: Some(deadline),
            ..UnitParams::default()
        },
        Work::Hog { .. } => UnitParams::default(),
    }
}

fn hog_work(section: Section<'_>, errors: &mut Errors) -> Option<Work> {
    for key in ["period", "separation", "slack_mean", "cost", "deadline", "offset"] {
        if let Some(entry) = section.get(key) {
            let expected =
                "a hog always has work: it takes `start`, `server`, `priority`, `affinity`, `copies`";
            errors.add(entry.key_place, format!("a hog has no `{key}`"), expected);
        }
    }
    Some(Work::Hog { start: section.duration_or_default("start", errors) })
}

/// The work of a task that packets release. Only domains have an interface.
fn served_work(section: Section<'_>, of: &Processors<'_>, errors: &mut Errors) -> Option<Work> {
    if of.is_pool() {
        let place = section.get("on_packet").map_or(section.place, |e| e.key_place);
        errors.add(place, "a task of a pool gets no packets", "expected `on_packet` in a domain's task");
    }
    for key in ["period", "separation", "slack_mean", "offset", "start", "stagger"] {
        if let Some(entry) = section.get(key) {
            let expected = "its jobs are released by packets: it takes `cost`, `deadline`, `server`, \
                            `priority`, `affinity`, `copies`";
            errors.add(entry.key_place, format!("a task with `on_packet` has no `{key}`"), expected);
        }
    }
    if section.get("deadline").is_none() {
        let message = format!("`deadline` is missing in {}", section.header());
        let expected = "expected when a job is due after its packet, for example deadline = \"5ms\"";
        errors.add(section.place, message, expected);
    }
    let (cost, deadline) = (cost(section, errors), section.duration("deadline", errors));
    Some(Work::Served { cost: cost?, deadline: deadline? })
}

fn jobs(section: Section<'_>, errors: &mut Errors) -> Option<Work> {
    if let Some(entry) = section.get("start") {
        errors.add(entry.key_place, "only a hog has a `start`", "expected `offset`, or `hog = true`");
    }
    let arrival = arrival(section, errors);
    let cost = cost(section, errors);
    let (arrival, cost) = (arrival?, cost?);
    let (Arrival::Periodic { period, .. } | Arrival::Sporadic { separation: period, .. }) = arrival;
    let deadline = section.duration("deadline", errors).unwrap_or(period);
    Some(Work::Jobs { arrival, cost, deadline })
}

fn arrival(section: Section<'_>, errors: &mut Errors) -> Option<Arrival> {
    let offset = section.duration_or_default("offset", errors);
    let slack_mean = section.duration_or_default("slack_mean", errors);
    match (section.get("period"), section.get("separation")) {
        (Some(_), None) => {
            if let Some(entry) = section.get("slack_mean") {
                errors.add(
                    entry.key_place,
                    "a periodic task has no `slack_mean`",
                    "it goes with `separation`",
                );
            }
            Some(Arrival::Periodic { period: section.duration("period", errors)?, offset })
        }
        (None, Some(_)) => {
            let separation = section.duration("separation", errors)?;
            Some(Arrival::Sporadic { separation, slack_mean, offset })
        }
        (Some(_), Some(entry)) => {
            let message = format!("{} has both `period` and `separation`", section.header());
            errors.add(entry.key_place, message, "expected one: a task is periodic or sporadic");
            None
        }
        (None, None) => {
            let message = format!("`period` is missing in {}", section.header());
            errors.add(
                section.place,
                message,
                "expected `period` (periodic), `separation` (sporadic) or `hog = true`",
            );
            None
        }
    }
}

fn cost(section: Section<'_>, errors: &mut Errors) -> Option<Cost> {
    let Some(entry) = section.get("cost") else {
        let message = format!("`cost` is missing in {}", section.header());
        errors.add(
            section.place,
            message,
            "expected the processor time of a job, for example cost = \"5ms\"",
        );
        return None;
    };
    if !matches!(entry.node.value, Value::Table(_)) {
        let cost = entry.duration(Duration::from_ns(1), errors)?;
        return Some(Cost { min: cost, max: cost });
    }
    let range = Section::of(entry, &COST, errors)?;
    range.check_keys(errors);
    let (min, max) = (range.duration("min", errors), range.duration("max", errors));
    let (min, max) = (min?, max?);
    if min > max {
        let place = range.get("min").map_or(range.place, |e| e.node.place);
        errors.add(place, format!("`min` ({min}) is above `max` ({max})"), format!("expected at most {max}"));
    }
    Some(Cost { min, max })
}
