//! Tasks that a `generate` table asks for.

use std::collections::BTreeSet;

use punctual_sched::Duration;

use super::task::{TaskDraft, derived_params};
use super::unit::{UnitDraft, UnitKind};
use crate::file::error::Errors;
use crate::file::limits::GENERATED_MAX;
use crate::file::quantity::{Share, WHOLE, show_percent};
use crate::file::section::Section;
use crate::file::source::Place;
use crate::generate::{self, RandomStream, SetLimits, TaskSpec};
use crate::host::{Arrival, Cost, Work};

/// Processors that the recipe `automotive` fills at most: far below [`GENERATED_MAX`] tasks.
const AUTOMOTIVE_MAX: Share = 100;

/// Appends generated tasks under the names t1, t2, ... that no other task of the parent has.
pub(crate) fn add_generated(drafts: &mut Vec<TaskDraft>, specs: &[TaskSpec], place: Place) {
    let taken: BTreeSet<String> = drafts.iter().map(|d| d.name.clone()).collect();
    let names = (1..).map(|n| format!("t{n}")).filter(|name| !taken.contains(name));
    for (spec, name) in specs.iter().zip(names) {
        let work = Work::Jobs {
            arrival: Arrival::Periodic { period: spec.period, offset: Duration::ZERO },
            cost: Cost { min: spec.cost_min, max: spec.cost },
            deadline: spec.deadline,
        };
        let mut unit = UnitDraft::new(place, UnitKind::Generated(name.clone()));
        unit.params = derived_params(&work);
        drafts.push(TaskDraft { name, unit, work, sections: Vec::new() });
    }
}

/// Draws what a `generate` table asks for.
pub(crate) fn generated(
    section: Section<'_>,
    host_seed: u64,
    parent: &str,
    share: Option<Share>,
    errors: &mut Errors,
) -> Option<Vec<TaskSpec>> {
    let before = errors.count();
    let recipe = section.word("recipe", errors)?;
    let seed = section.count("seed", errors);
    let tasks = section.count("tasks", errors).map(|n| n as usize);
    let load = section.percent("load", errors);
    let utilization = section.percent("utilization", errors);
    let utilizations = section.word("utilizations", errors);
    let periods = section.word("periods", errors);
    let deadlines = section.word("deadlines", errors);
    check_recipe_keys(section, recipe, errors);
    if errors.count() > before {
        return None;
    }
    let mut stream =
        seed.map_or_else(|| RandomStream::new(host_seed, parent), |seed| RandomStream::new(seed, ""));
    let periods = periods.unwrap_or_else(|| section.default("periods"));
    let deadlines = deadlines.unwrap_or_else(|| section.default("deadlines"));
    let fraction = |share: Share| share as f64 / WHOLE as f64;
    if recipe == "schedcat" {
        let limits = SetLimits {
            tasks_max: tasks.unwrap_or(GENERATED_MAX as usize),
            utilization_max: utilization.map(fraction),
        };
        return Some(generate::schedcat(&mut stream, limits, periods, utilizations?, deadlines));
    }
    if recipe == "automotive" {
        check_total(section, "utilization", utilization?, WHOLE * AUTOMOTIVE_MAX, recipe, errors)?;
        return Some(generate::automotive(&mut stream, fraction(utilization?)));
    }
    let n = tasks?;
    if recipe == "rt-xen" {
        let total = domain_utilization(section, share, load?, n, errors)?;
        return drawn(section, generate::rt_xen(&mut stream, n, fraction(total)), errors);
    }
    let total = utilization?;
    let most = if recipe == "uunifast" { WHOLE } else { WHOLE * n as u64 };
    check_total(section, "utilization", total, most, recipe, errors)?;
    let set = match recipe {
        "uunifast" => Some(generate::uunifast(&mut stream, n, fraction(total))),
        "uunifast-discard" => generate::uunifast_discard(&mut stream, n, fraction(total)),
        _ => Some(generate::randfixedsum(&mut stream, n, fraction(total))),
    };
    let set = drawn(section, set, errors)?;
    Some(generate::with_periods(&mut stream, &set, periods, deadlines))
}

/// What was drawn; an error where the drawing gave up.
fn drawn<T>(section: Section<'_>, set: Option<T>, errors: &mut Errors) -> Option<T> {
    if set.is_none() {
        let place = section.get("recipe").map_or(section.place, |e| e.node.place);
        let message = "UUniFast-Discard finds no such set: the utilization is too near the number of tasks";
        errors.add(place, message, "expected more tasks, a lower utilization, or \"randfixedsum\"");
    }
    set
}

/// Adds an error for each key that the recipe needs and lacks, and for each that it does not read.
fn check_recipe_keys(section: Section<'_>, recipe: &str, errors: &mut Errors) {
    let (needs, reads): (&[&str], &[&str]) = match recipe {
        "rt-xen" => (&["tasks", "load"], &[]),
        "schedcat" => (&["utilizations"], &["tasks", "utilization", "periods", "deadlines"]),
        "automotive" => (&["utilization"], &[]),
        _ => (&["tasks", "utilization"], &["periods", "deadlines"]),
    };
    for key in needs.iter().filter(|key| section.get(key).is_none()) {
        let message = format!("`{key}` is missing: recipe \"{recipe}\" needs it");
        let help = section.info.key(key).map_or("", |k| k.help);
        errors.add(section.place, message, format!("expected `{key}`: {help}"));
    }
    if recipe == "schedcat" && section.get("tasks").is_none() && section.get("utilization").is_none() {
        errors.add(
            section.place,
            "recipe \"schedcat\" does not know when to stop",
            "expected `tasks` or `utilization`",
        );
    }
    for entry in &section.table.entries {
        let common = ["recipe", "seed"].iter().chain(needs).chain(reads).any(|key| *key == entry.key);
        if !common && section.info.key(&entry.key).is_some() {
            let all = needs.iter().chain(reads).copied().collect::<Vec<_>>().join(", ");
            let message = format!("recipe \"{recipe}\" does not read `{}`", entry.key);
            errors.add(entry.key_place, message, format!("it reads {all}"));
        }
    }
}

/// The utilization that RT-Xen's recipe distributes: the domain's share times the load.
fn domain_utilization(
    section: Section<'_>,
    share: Option<Share>,
    load: Share,
    tasks: usize,
    errors: &mut Errors,
) -> Option<Share> {
    let place = section.get("recipe").map_or(section.place, |e| e.node.place);
    let Some(share) = share else {
        let expected = "it distributes the domain's budget / period: give the domain both, or another recipe";
        errors.add(place, "recipe \"rt-xen\" needs a domain with a budget and a period", expected);
        return None;
    };
    let total = (u128::from(share) * u128::from(load) / u128::from(WHOLE)) as Share;
    check_total(section, "load", total, WHOLE * tasks as u64, "rt-xen", errors)?;
    Some(total)
}

fn check_total(
    section: Section<'_>,
    key: &'static str,
    total: Share,
    most: Share,
    recipe: &str,
    errors: &mut Errors,
) -> Option<()> {
    if (1..=most).contains(&total) {
        return Some(());
    }
    let place = section.get(key).map_or(section.place, |e| e.node.place);
    let message = format!("the tasks' utilization is {}", show_percent(total));
    let expected = match recipe {
        "uunifast" => "expected at most 100%; \"uunifast-discard\" and \"randfixedsum\" go beyond".into(),
        "automotive" => format!("expected more than 0%, at most {}", show_percent(most)),
        _ => format!("expected more than 0%, at most {} for that many tasks", show_percent(most)),
    };
    errors.add(place, message, expected);
    None
}
