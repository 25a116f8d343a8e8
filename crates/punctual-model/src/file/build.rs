//! Puts the parts of a [`Host`] together: ranks, generated tasks, and the policies' own judgement.

use std::collections::BTreeSet;

use punctual_sched::registry::PolicyInfo;
use punctual_sched::{Duration, Instant, ParamError};

use super::error::Place;
use super::fields::{Problems, Tab};
use super::keys::{GENERATED_MAX, UNITS_MAX};
use super::quantity::{Share, WHOLE, show_percent};
use super::read::{Chosen, DomainDraft, PoolDraft};
use super::task::{TaskDraft, Tasks, derived_params};
use super::unit::{Unit, UnitKind};
use crate::generate::{self, Extent, Stream, TaskSpec};
use crate::host::{Arrival, Cost, Domain, DomainIx, Host, Parent, Pool, PoolIx, Task, Vcpu, Work};

/// Unit parameters that a task has among its own keys.
const TASK_OWN: [&str; 2] = ["priority", "affinity"];

/// Every unit with its places, as [`Host::vcpus`] and [`Host::tasks`] are ordered.
#[derive(Default)]
struct Units {
    vcpus: Vec<Unit>,
    tasks: Vec<Unit>,
}

/// Fills the host. `None` when something is wrong, which `problems` then says.
pub(crate) fn complete(
    mut host: Host,
    pools: Vec<PoolDraft<'_>>,
    domains: Vec<DomainDraft<'_>>,
    problems: &mut Problems,
) -> Option<Host> {
    let mut units = Units::default();
    let mut schedulers: Vec<(Parent, usize, Chosen)> = Vec::new();
    for (i, draft) in pools.into_iter().enumerate() {
        let parent = Parent::Pool(PoolIx(i));
        add_tasks(&mut host, &mut units, parent, &draft.name, draft.tasks, None, problems)?;
        let chosen = draft.chosen?;
        let policy = chosen.choice.clone();
        schedulers.push((parent, draft.processors.len(), chosen));
        host.pools.push(Pool { name: draft.name, processors: draft.processors, policy });
    }
    for (i, draft) in domains.into_iter().enumerate() {
        let parent = Parent::Domain(DomainIx(i));
        let share = draft.vcpus.iter().map(share_of).sum::<Option<Share>>();
        let vcpu = |(n, unit): (usize, &Unit)| Vcpu {
            name: format!("{}.{n}", draft.name),
            domain: DomainIx(i),
            params: unit.params.clone(),
        };
        let first = host.vcpus.len();
        host.vcpus.extend(draft.vcpus.iter().enumerate().map(vcpu));
        let vcpus = first..host.vcpus.len();
        units.vcpus.extend(draft.vcpus);
        add_tasks(&mut host, &mut units, parent, &draft.name, draft.tasks, Some(share), problems)?;
        let guest = draft.guest.choice.clone();
        schedulers.push((parent, vcpus.len(), draft.guest));
        let (name, parent, live) = (draft.name, draft.parent, draft.live);
        host.domains.push(Domain { name, parent, vcpus, guest, live });
    }
    insert_all(&host, &units, &schedulers, problems);
    Some(host)
}

/// Budget / period of a vCPU.
fn share_of(unit: &Unit) -> Option<Share> {
    let (budget, period) = (unit.params.budget?.as_ns(), unit.params.period?.as_ns());
    u64::try_from(u128::from(budget) * u128::from(WHOLE) / u128::from(period.max(1))).ok()
}

/// Adds a parent's tasks to the host. `share` is that of the domain; pools have none.
fn add_tasks(
    host: &mut Host,
    units: &mut Units,
    parent: Parent,
    name: &str,
    tasks: Tasks<'_>,
    share: Option<Option<Share>>,
    problems: &mut Problems,
) -> Option<()> {
    let mut drafts = tasks.drafts;
    if let Some(tab) = tasks.generate {
        let specs = generated(tab, host.seed, name, share, problems)?;
        add_generated(&mut drafts, &specs, tab.place);
    }
    if host.tasks.len() + drafts.len() > UNITS_MAX {
        let place = drafts.last().map_or(Place::top(), |d| d.unit.place.clone());
        problems.add(&place, "the host has too many tasks", format!("expected at most {UNITS_MAX}"));
        return None;
    }
    rank(&mut drafts);
    for draft in drafts {
        host.tasks.push(Task {
            name: draft.name,
            parent,
            params: draft.unit.params.clone(),
            work: draft.work,
        });
        units.tasks.push(draft.unit);
    }
    Some(())
}

/// Gives the tasks without a priority their rank by relative deadline; equal ones in their order, hogs last.
/// With deadline = period this is rate-monotonic.
fn rank(drafts: &mut [TaskDraft]) {
    let mut unranked: Vec<&mut TaskDraft> =
        drafts.iter_mut().filter(|d| d.unit.params.priority.is_none()).collect();
    unranked.sort_by_key(|d| match d.work {
        Work::Jobs { deadline, .. } | Work::Served { deadline, .. } => (0, deadline),
        Work::Hog { .. } => (1, Duration::ZERO),
    });
    for (draft, priority) in unranked.into_iter().zip(1..) {
        draft.unit.params.priority = Some(priority);
    }
}

/// Appends generated tasks under the names t1, t2, ... that no other task of the parent has.
fn add_generated(drafts: &mut Vec<TaskDraft>, specs: &[TaskSpec], place: &Place) {
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
fn generated(
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
    let mut stream = seed.map_or_else(|| Stream::new(host_seed, parent), |seed| Stream::new(seed, ""));
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

/// Builds the policy once to hear what it says about its options.
pub(crate) fn check_options(chosen: &Chosen, cpus: usize, problems: &mut Problems) {
    if let Err(e) = (chosen.choice.info.build)(cpus, &chosen.choice.options) {
        let given = chosen.option_places.iter().find(|(name, _)| *name == e.option);
        let place = given.map_or(&chosen.name_place, |(_, place)| place);
        let message = format!("policy `{}` refuses `{}`", chosen.choice.info.name, e.option);
        problems.add(place, message, format!("expected {}", e.expected));
    }
}

/// Inserts every unit into its policy to hear what the policy says about its parameters.
fn insert_all(host: &Host, units: &Units, schedulers: &[(Parent, usize, Chosen)], problems: &mut Problems) {
    let mut of_pool = vec![Vec::new(); host.pools.len()];
    let mut of_domain = vec![Vec::new(); host.domains.len()];
    let mut add = |parent: Parent, unit| match parent {
        Parent::Pool(PoolIx(i)) => of_pool[i].push(unit),
        Parent::Domain(DomainIx(i)) => of_domain[i].push(unit),
    };
    host.vcpus.iter().zip(&units.vcpus).for_each(|(v, unit)| add(host.domains[v.domain.0].parent, unit));
    host.tasks.iter().zip(&units.tasks).for_each(|(t, unit)| add(t.parent, unit));
    for (parent, cpus, chosen) in schedulers {
        let units = match *parent {
            Parent::Pool(PoolIx(i)) => &of_pool[i],
            Parent::Domain(DomainIx(i)) => &of_domain[i],
        };
        let Ok(mut policy) = (chosen.choice.info.build)(*cpus, &chosen.choice.options) else { continue };
        for unit in units {
            if let Err(e) = policy.insert(Instant::ZERO, &unit.params) {
                refused(chosen.choice.info, unit, &e, problems);
            }
        }
    }
}

fn refused(policy: &PolicyInfo, unit: &Unit, error: &ParamError, problems: &mut Problems) {
    let place = unit.place_of(error.field());
    match error {
        ParamError::Missing { field } => {
            let help = policy.unit_params.iter().find(|p| p.name == *field).map_or("", |p| p.help);
            let own = matches!(unit.kind, UnitKind::Vcpu) || TASK_OWN.contains(field);
            let in_server = if own { "" } else { " in the task's `server`" };
            let message = format!("`{field}` is missing: policy `{}` needs it", policy.name);
            problems.add(place, message, format!("expected `{field}`{in_server}: {help}"));
        }
        ParamError::OutOfRange { field, expected } => {
            let of = match &unit.kind {
                UnitKind::Generated(name) => format!(" of generated task `{name}`"),
                UnitKind::Vcpu | UnitKind::Task => String::new(),
            };
            let message = format!("policy `{}` refuses `{field}`{of}", policy.name);
            problems.add(place, message, format!("expected {expected}"));
        }
    }
}
