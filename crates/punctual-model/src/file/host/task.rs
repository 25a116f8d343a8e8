//! Tasks: what they do, and their parameters as units.

use punctual_sched::UnitParams;

use super::keys::COST;
use super::unit::{Processors, Unit, UnitKind, placement, server_params};
use crate::file::fields::{Problems, Tab, header};
use crate::file::tree::Value;
use crate::host::{Arrival, Cost, Work};

/// A task before its host is put together.
pub(crate) struct TaskDraft {
    pub(crate) name: String,
    pub(crate) unit: Unit,
    pub(crate) work: Work,
}

/// The tasks of a pool or domain, and what to generate after them.
pub(crate) struct Tasks<'t> {
    pub(crate) drafts: Vec<TaskDraft>,
    pub(crate) generate: Option<Tab<'t>>,
}

/// Reads the tasks of a pool or domain.
pub(crate) fn tasks<'t>(tab: Tab<'t>, of: &Processors<'_>, problems: &mut Problems) -> Tasks<'t> {
    let mut drafts: Vec<TaskDraft> = Vec::new();
    for task_tab in problems.named(tab, "task") {
        drafts.extend(task(task_tab, of, problems));
    }
    Tasks { drafts, generate: problems.table(tab, "generate") }
}

fn task(tab: Tab<'_>, of: &Processors<'_>, problems: &mut Problems) -> Option<TaskDraft> {
    let flag = |key, problems: &mut Problems| match tab.get(key) {
        None => Some(false),
        Some(_) => problems.flag(tab, key),
    };
    let (hog, on_packet) = (flag("hog", problems), flag("on_packet", problems));
    let work = match (hog, on_packet) {
        (Some(true), Some(true)) => {
            let place = tab.get("on_packet").map_or(tab.place, |e| &e.key_place);
            problems.add(place, "a hog has no `on_packet`", "expected one of them");
            None
        }
        (Some(true), Some(false)) => hog_work(tab, problems),
        (Some(false), Some(true)) => served_work(tab, of, problems),
        (Some(false), Some(false)) => jobs(tab, problems),
        _ => None,
    };
    let mut unit = Unit::new(tab.place, UnitKind::Task);
    if let Some(work) = &work {
        unit.params = derived_params(work);
        for (field, key) in [("budget", "cost"), ("period", "period"), ("period", "separation")] {
            unit.places.extend(tab.get(key).map(|e| (field, e.place())));
        }
        for key in ["period", "separation", "deadline"] {
            unit.places.extend(tab.get(key).map(|e| ("deadline", e.place())));
        }
    }
    if let Some(server) = problems.table(tab, "server") {
        unit = server_params(server, unit, problems);
    }
    let unit = placement(tab, of, unit, problems);
    Some(TaskDraft { name: tab.name.into(), unit, work: work? })
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

fn hog_work(tab: Tab<'_>, problems: &mut Problems) -> Option<Work> {
    for key in ["period", "separation", "slack_mean", "cost", "deadline", "offset"] {
        if let Some(entry) = tab.get(key) {
            let expected = "a hog always has work: it takes `start`, `server`, `priority`, `affinity`";
            problems.add(&entry.key_place, format!("a hog has no `{key}`"), expected);
        }
    }
    Some(Work::Hog { start: problems.duration_or(tab, "start") })
}

/// A task that packets release; only domains have an interface.
fn served_work(tab: Tab<'_>, of: &Processors<'_>, problems: &mut Problems) -> Option<Work> {
    if of.is_pool() {
        let place = tab.get("on_packet").map_or(tab.place, |e| &e.key_place);
        problems.add(place, "a task of a pool gets no packets", "expected `on_packet` in a domain's task");
    }
    for key in ["period", "separation", "slack_mean", "offset", "start"] {
        if let Some(entry) = tab.get(key) {
            let expected = "its jobs are released by packets: it takes `cost`, `deadline`, `server`, `priority`, `affinity`";
            problems.add(&entry.key_place, format!("a task with `on_packet` has no `{key}`"), expected);
        }
    }
    if tab.get("deadline").is_none() {
        let message = format!("`deadline` is missing in {}", header(tab));
        let expected = "expected when a job is due after its packet, for example deadline = \"5ms\"";
        problems.add(tab.place, message, expected);
    }
    let (cost, deadline) = (cost(tab, problems), problems.duration(tab, "deadline"));
    Some(Work::Served { cost: cost?, deadline: deadline? })
}

fn jobs(tab: Tab<'_>, problems: &mut Problems) -> Option<Work> {
    if let Some(entry) = tab.get("start") {
        problems.add(&entry.key_place, "only a hog has a `start`", "expected `offset`, or `hog = true`");
    }
    let arrival = arrival(tab, problems);
    let cost = cost(tab, problems);
    let (arrival, cost) = (arrival?, cost?);
    let (Arrival::Periodic { period, .. } | Arrival::Sporadic { separation: period, .. }) = arrival;
    let deadline = problems.duration(tab, "deadline").unwrap_or(period);
    Some(Work::Jobs { arrival, cost, deadline })
}

fn arrival(tab: Tab<'_>, problems: &mut Problems) -> Option<Arrival> {
    let offset = problems.duration_or(tab, "offset");
    let slack_mean = problems.duration_or(tab, "slack_mean");
    match (tab.get("period"), tab.get("separation")) {
        (Some(_), None) => {
            if let Some(entry) = tab.get("slack_mean") {
                problems.add(
                    &entry.key_place,
                    "a periodic task has no `slack_mean`",
                    "it goes with `separation`",
                );
            }
            Some(Arrival::Periodic { period: problems.duration(tab, "period")?, offset })
        }
        (None, Some(_)) => {
            let separation = problems.duration(tab, "separation")?;
            Some(Arrival::Sporadic { separation, slack_mean, offset })
        }
        (Some(_), Some(entry)) => {
            let message = format!("{} has both `period` and `separation`", header(tab));
            problems.add(&entry.key_place, message, "expected one: a task is periodic or sporadic");
            None
        }
        (None, None) => {
            let message = format!("`period` is missing in {}", header(tab));
            problems.add(
                tab.place,
                message,
                "expected `period` (periodic), `separation` (sporadic) or `hog = true`",
            );
            None
        }
    }
}

fn cost(tab: Tab<'_>, problems: &mut Problems) -> Option<Cost> {
    let Some(entry) = tab.get("cost") else {
        let message = format!("`cost` is missing in {}", header(tab));
        problems.add(tab.place, message, "expected the processor time of a job, for example cost = \"5ms\"");
        return None;
    };
    if !matches!(entry.node.value, Value::Table(_)) {
        let cost = problems.duration_of(entry, 1)?;
        return Some(Cost { min: cost, max: cost });
    }
    let range = problems.table_of(entry, &COST)?;
    problems.check_keys(range);
    let (min, max) = (problems.duration(range, "min"), problems.duration(range, "max"));
    let (min, max) = (min?, max?);
    if min > max {
        let place = range.get("min").map_or(range.place, |e| &e.node.place);
        problems.add(place, format!("`min` is {min}"), format!("expected at most `max` ({max})"));
    }
    Some(Cost { min, max })
}
