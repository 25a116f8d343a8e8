//! Puts the parts of a [`Host`] together: generates tasks, ranks them, and has the policies check all units.

use punctual_sched::Duration;

use super::draft::{DomainDraft, EventDraft, PoolDraft};
use super::generate::{add_generated, generated};
use super::scheduler::Scheduler;
use super::task::{TaskDraft, Tasks, spelled_out};
use super::unit::UnitDraft;
use crate::file::error::Errors;
use crate::file::limits::UNITS_MAX;
use crate::file::options::PolicyDraft;
use crate::file::quantity::{Share, WHOLE};
use crate::file::source::Place;
use crate::host::Change;
use crate::host::{Domain, Host, Parent, Pool, Task, Vcpu, Work};
use crate::index::{DomainIx, PoolIx};

/// Every unit with its places, as [`Host::vcpus`] and [`Host::tasks`] are ordered.
#[derive(Default)]
struct UnitDrafts {
    vcpus: Vec<UnitDraft>,
    tasks: Vec<UnitDraft>,
}

/// Fills the host. `None` when something is wrong, which is added to the errors.
pub(crate) fn complete(
    mut host: Host,
    pools: Vec<PoolDraft<'_>>,
    domains: Vec<DomainDraft<'_>>,
    events: Vec<EventDraft>,
    errors: &mut Errors,
) -> Option<Host> {
    let mut units = UnitDrafts::default();
    let mut schedulers: Vec<(Parent, usize, PolicyDraft)> = Vec::new();
    for (i, draft) in pools.into_iter().enumerate() {
        let parent = Parent::Pool(PoolIx(i));
        add_tasks(&mut host, &mut units, parent, &draft.name, draft.tasks, None, errors)?;
        let chosen = draft.chosen?;
        let policy = chosen.choice.clone();
        schedulers.push((parent, draft.processors.len(), chosen));
        let PoolDraft { name, processors, choice, isolate, .. } = draft;
        host.pools.push(Pool { name, processors, choice, policy, isolate });
    }
    for (i, mut draft) in domains.into_iter().enumerate() {
        let parent = Parent::Domain(DomainIx(i));
        let resources = std::mem::take(&mut draft.tasks.resources);
        let budgets = if draft.vcpus[0].params.shares_budget { 1 } else { draft.vcpus.len() };
        let share = draft.vcpus[..budgets].iter().map(share_of).sum::<Option<Share>>();
        let vcpu = |(n, unit): (usize, &UnitDraft)| Vcpu {
            name: format!("{}.{n}", draft.name),
            domain: DomainIx(i),
            params: unit.params.clone(),
        };
        let first = host.vcpus.len();
        host.vcpus.extend(draft.vcpus.iter().enumerate().map(vcpu));
        let vcpus = first..host.vcpus.len();
        units.vcpus.extend(draft.vcpus);
        add_tasks(&mut host, &mut units, parent, &draft.name, draft.tasks, share, errors)?;
        let guest = draft.guest.choice.clone();
        schedulers.push((parent, vcpus.len(), draft.guest));
        let DomainDraft { name, parent, live, smp, .. } = draft;
        host.smp.extend(smp.map(|work| (DomainIx(i), work)));
        host.domains.push(Domain { name, parent, vcpus, guest, resources, live });
    }
    insert_all(&host, &units, &schedulers, &events, errors);
    host.events = events.into_iter().map(|draft| draft.event).collect();
    Some(host)
}

/// Budget / period of a vCPU.
fn share_of(unit: &UnitDraft) -> Option<Share> {
    let (budget, period) = (unit.params.budget?.as_ns(), unit.params.period?.as_ns());
    u64::try_from(u128::from(budget) * u128::from(WHOLE) / u128::from(period.max(1))).ok()
}

/// Adds a parent's tasks to the host. `share` is budget / period of all vCPUs of a domain whose vCPUs have
/// both.
fn add_tasks(
    host: &mut Host,
    units: &mut UnitDrafts,
    parent: Parent,
    name: &str,
    tasks: Tasks<'_>,
    share: Option<Share>,
    errors: &mut Errors,
) -> Option<()> {
    let last = tasks.drafts.last().map(|(draft, _)| draft.unit.place);
    let count = tasks.drafts.iter().map(|(_, copies)| copies.count()).sum();
    check_count(host, count, last, errors)?;
    let mut drafts = spelled_out(tasks.drafts, errors);
    if let Some(section) = tasks.generate {
        let specs = generated(section, host.seed, name, share, errors)?;
        add_generated(&mut drafts, &specs, section.place);
        check_count(host, drafts.len(), Some(section.place), errors)?;
    }
    rank(&mut drafts);
    for draft in drafts {
        host.tasks.push(Task {
            name: draft.name,
            parent,
            params: draft.unit.params.clone(),
            work: draft.work,
            sections: draft.sections,
        });
        units.tasks.push(draft.unit);
    }
    Some(())
}

/// Adds an error at `last` when the host cannot have `more` tasks.
fn check_count(host: &Host, more: usize, last: Option<Place>, errors: &mut Errors) -> Option<()> {
    if host.tasks.len() + more <= UNITS_MAX {
        return Some(());
    }
    let place = last.unwrap_or(Place::TOP);
    errors.add(place, "the host has too many tasks", format!("expected at most {UNITS_MAX}"));
    None
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

/// Inserts every unit into its policy, which checks the unit's parameters, and lets all events happen.
fn insert_all(
    host: &Host,
    units: &UnitDrafts,
    schedulers: &[(Parent, usize, PolicyDraft)],
    events: &[EventDraft],
    errors: &mut Errors,
) {
    let mut of_pool: Vec<Vec<(Option<DomainIx>, &UnitDraft)>> = vec![Vec::new(); host.pools.len()];
    let mut of_domain = vec![Vec::new(); host.domains.len()];
    let vcpus = host.vcpus.iter().map(|vcpu| (host.domains[vcpu.domain.0].parent, Some(vcpu.domain)));
    let tasks = host.tasks.iter().map(|task| (task.parent, None));
    for ((parent, domain), unit) in vcpus.zip(&units.vcpus).chain(tasks.zip(&units.tasks)) {
        match parent {
            Parent::Pool(PoolIx(i)) => of_pool[i].push((domain, unit)),
            Parent::Domain(DomainIx(i)) => of_domain[i].push((domain, unit)),
        }
    }
    for (parent, cpus, chosen) in schedulers {
        let units = match *parent {
            Parent::Pool(PoolIx(i)) => &of_pool[i],
            Parent::Domain(DomainIx(i)) => &of_domain[i],
        };
        let Some(mut scheduler) = Scheduler::new(&chosen.choice, *cpus, units, errors) else { continue };
        for event in events {
            match &event.event.change {
                Change::Params { domain, .. } => scheduler.adjust(event, *domain, errors),
                Change::Policy { pool, policy } if *parent == Parent::Pool(*pool) => {
                    scheduler.change(policy, event.event.at, errors);
                }
                Change::Policy { .. } => {}
            }
        }
    }
}
