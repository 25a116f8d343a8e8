//! Tasks that a `generate` table asks for.

use std::collections::BTreeSet;

use punctual_sched::Duration;

use super::task::{TaskDraft, derived_params};
use super::unit::{Unit, UnitKind};
use crate::file::error::Place;
use crate::file::fields::{Problems, Tab};
use crate::file::limits::GENERATED_MAX;
use crate::file::quantity::{Share, WHOLE, show_percent};
use crate::generate::{self, Extent, RandomStream, TaskSpec};
use crate::host::{Arrival, Cost, Work};

/// Appends generated tasks under the names t1, t2, ... that no other task of the parent has.
pub(crate) fn add_generated(drafts: &mut Vec<TaskDraft>, specs: &[TaskSpec], place: &Place) {
    let taken: BTreeSet<String> = drafts.iter().map(|d| d.name.clone()).collect();
    let names = (1..).map(|n| format!("t{n}")).filter(|name| !taken.contains(name));
    for (spec, name) in specs.iter().zip(names) {
        let work = Work::Jobs {
            arrival: Arrival::Periodic { period: spec.period, offset: Duration::ZERO },
            cost: Cost { min: spec.cost, max: spec.cost },
            deadline: spec.deadline,
        };
        let mut unit = Unit::new(place, UnitKind::Generated(name.clone()));
        unit.params = derived_params(&work);
        drafts.push(TaskDraft { name, unit, work });
    }
}

/// What a `generate` table asks for.
pub(crate) fn generated(
    tab: Tab<'_>,
    host_seed: u64,
    parent: &str,
    share: Option<Option<Share>>,
    problems: &mut Problems,
) -> Option<Vec<TaskSpec>> {
    let before = problems.list.len();
    let recipe = problems.word(tab, "recipe")?;
    let seed = problems.count(tab, "seed");
    let tasks = problems.count(tab, "tasks").map(|n| n as usize);
    let load = problems.percent(tab, "load");
    let utilization = problems.percent(tab, "utilization");
    let utilizations = problems.word(tab, "utilizations");
    let periods = problems.word(tab, "periods");
    let deadlines = problems.word(tab, "deadlines");
    check_recipe_keys(tab, recipe, problems);
    if problems.list.len() > before {
        return None;
    }
    let mut stream =
        seed.map_or_else(|| RandomStream::new(host_seed, parent), |seed| RandomStream::new(seed, ""));
    let periods = periods.unwrap_or_else(|| tab.default("periods"));
    let deadlines = deadlines.unwrap_or_else(|| tab.default("deadlines"));
    let fraction = |share: Share| share as f64 / WHOLE as f64;
    if recipe == "schedcat" {
        let extent = Extent {
            tasks_max: tasks.unwrap_or(GENERATED_MAX as usize),
            utilization_max: utilization.map(fraction),
        };
        return Some(generate::schedcat(&mut stream, extent, periods, utilizations?, deadlines));
    }
    let n = tasks?;
    if recipe == "rt-xen" {
        let total = domain_utilization(tab, share, load?, n, problems)?;
        return drawn(tab, generate::rt_xen(&mut stream, n, fraction(total)), problems);
    }
    let total = utilization?;
    let most = if recipe == "uunifast" { WHOLE } else { WHOLE * n as u64 };
    check_total(tab, "utilization", total, most, recipe, problems)?;
    let set = match recipe {
        "uunifast" => Some(generate::uunifast(&mut stream, n, fraction(total))),
        "uunifast-discard" => generate::uunifast_discard(&mut stream, n, fraction(total)),
        _ => Some(generate::randfixedsum(&mut stream, n, fraction(total))),
    };
    let set = drawn(tab, set, problems)?;
    Some(generate::with_periods(&mut stream, &set, periods, deadlines))
}

/// The result of a drawing that may have given up.
fn drawn<T>(tab: Tab<'_>, set: Option<T>, problems: &mut Problems) -> Option<T> {
    if set.is_none() {
        let place = tab.get("recipe").map_or(tab.place, |e| &e.node.place);
        let message = "UUniFast-Discard finds no such set: the utilisation is too near the number of tasks";
        problems.add(place, message, "expected more tasks, a lower utilisation, or \"randfixedsum\"");
    }
    set
}

/// Keys that the recipe needs and does not get, or gets and does not read.
fn check_recipe_keys(tab: Tab<'_>, recipe: &str, problems: &mut Problems) {
    let (needs, reads): (&[&str], &[&str]) = match recipe {
        "rt-xen" => (&["tasks", "load"], &[]),
        "schedcat" => (&["utilizations"], &["tasks", "utilization", "periods", "deadlines"]),
        _ => (&["tasks", "utilization"], &["periods", "deadlines"]),
    };
    for key in needs.iter().filter(|key| tab.get(key).is_none()) {
        let message = format!("`{key}` is missing: recipe \"{recipe}\" needs it");
        let help = tab.info.key(key).map_or("", |k| k.help);
        problems.add(tab.place, message, format!("expected `{key}`: {help}"));
    }
    if recipe == "schedcat" && tab.get("tasks").is_none() && tab.get("utilization").is_none() {
        problems.add(
            tab.place,
            "recipe \"schedcat\" does not know when to stop",
            "expected `tasks` or `utilization`",
        );
    }
    for entry in &tab.table.entries {
        let common = ["recipe", "seed"].iter().chain(needs).chain(reads).any(|key| *key == entry.key);
        if !common && tab.info.key(&entry.key).is_some() {
            let all = needs.iter().chain(reads).copied().collect::<Vec<_>>().join(", ");
            let message = format!("recipe \"{recipe}\" does not read `{}`", entry.key);
            problems.add(&entry.key_place, message, format!("it reads {all}"));
        }
    }
}

/// RT-Xen's recipe: the domain's share times the load.
fn domain_utilization(
    tab: Tab<'_>,
    share: Option<Option<Share>>,
    load: Share,
    tasks: usize,
    problems: &mut Problems,
) -> Option<Share> {
    let place = tab.get("recipe").map_or(tab.place, |e| &e.node.place);
    let Some(share) = share.flatten() else {
        let expected = "it distributes the domain's budget / period: give the domain both, or another recipe";
        problems.add(place, "recipe \"rt-xen\" needs a domain with a budget and a period", expected);
        return None;
    };
    let total = (u128::from(share) * u128::from(load) / u128::from(WHOLE)) as Share;
    check_total(tab, "load", total, WHOLE * tasks as u64, "rt-xen", problems)?;
    Some(total)
}

fn check_total(
    tab: Tab<'_>,
    key: &'static str,
    total: Share,
    most: Share,
    recipe: &str,
    problems: &mut Problems,
) -> Option<()> {
    if (1..=most).contains(&total) {
        return Some(());
    }
    let place = tab.get(key).map_or(tab.place, |e| &e.node.place);
    let message = format!("the tasks' utilisation is {}", show_percent(total));
    let expected = match recipe {
        "uunifast" => "expected at most 100%; \"uunifast-discard\" and \"randfixedsum\" go beyond".into(),
        _ => format!("expected more than 0%, at most {} for that many tasks", show_percent(most)),
    };
    problems.add(place, message, expected);
    None
}
