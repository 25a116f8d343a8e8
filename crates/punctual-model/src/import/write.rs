//! The host file of a draft, and where in the imported files its tables come from.

use toml_edit::{Decor, DocumentMut, Table};

use super::draft::{DomainDraft, Helpers, HostDraft, Owner, PoolDraft, TaskDraft, UnitDraft, WorkDraft};
use crate::file::host::write::cost_value;
use crate::file::source::Place;
use crate::file::writer::{Keys, inline, named, number, numbered, numbers, table, time};

/// A host file and the places that its tables come from.
pub(super) struct Written {
    pub(super) text: String,
    /// Of each table that has a header, in the order of the text.
    places: Vec<Place>,
}

impl Written {
    /// Where the table with this line (from 1) comes from.
    pub(super) fn place_of(&self, line: usize) -> Place {
        let headers = self.text.lines().take(line).filter(|line| line.starts_with('[')).count();
        headers.checked_sub(1).map_or(Place::default(), |table| self.places[table])
    }
}

/// Writes the draft as a host file called `name`, which begins with `heading`.
pub(super) fn write(draft: &HostDraft, name: &str, heading: &str) -> Written {
    // Of `[machine]`, which comes from no place of its own.
    let mut places = vec![Place::default()];
    let pools: Vec<String> = draft.pools.iter().map(|pool| pool.name.clone()).collect();
    let domains: Vec<String> = draft.domains.iter().map(|domain| domain.name.clone()).collect();
    let mut keys: Keys = vec![("name", name.replace(char::is_control, " ").into())];
    keys.extend(draft.duration.map(|duration| ("duration", time(duration))));
    let mut root = table(keys);
    root.insert("machine", table(vec![("processors", number(draft.processors))]).into());
    let pool_tables: Vec<Table> = draft.pools.iter().map(|one| pool(one, &mut places)).collect();
    root.insert("pool", named(pools.iter().cloned().zip(pool_tables)));
    let mut domain_tables = Vec::new();
    for one in &draft.domains {
        let owner = match one.owner {
            Owner::Pool(pool) => ("pool", pools[pool].as_str().into()),
            Owner::Domain(outer) => ("in", domains[outer].as_str().into()),
        };
        let mut keys: Keys = vec![owner];
        keys.extend([("vcpus", number(one.vcpus.len())), ("guest", one.guest.into())]);
        domain_tables.push(domain(one, keys, &mut places));
    }
    root.insert("domain", named(domains.iter().cloned().zip(domain_tables)));
    let mut document = DocumentMut::from(root);
    *document.decor_mut() = Decor::new(heading, "");
    Written { text: document.to_string(), places }
}

fn pool(pool: &PoolDraft, places: &mut Vec<Place>) -> Table {
    places.push(pool.place);
    let mut keys = Keys::new();
    if !pool.processors.is_empty() {
        keys.push(("processors", numbers(pool.processors.iter().copied())));
    }
    keys.push(("policy", pool.policy.into()));
    if !pool.options.is_empty() {
        keys.push((pool.policy, inline(pool.options.clone())));
    }
    let mut table = table(keys);
    table.insert("task", named(tasks(&pool.tasks, places)));
    table
}

/// The table of a domain, after `keys`.
fn domain(domain: &DomainDraft, keys: Keys, places: &mut Vec<Place>) -> Table {
    places.push(domain.place);
    let mut table = table(keys);
    let first = &domain.vcpus[0];
    if domain.vcpus.iter().all(|unit| unit == first) {
        table.extend(unit_params(first));
    } else {
        table.insert("vcpu", numbered(domain.vcpus.iter().map(unit_params)));
    }
    let helpers = helpers(&domain.helpers);
    if !helpers.is_empty() {
        table.insert("helpers", inline(helpers).into());
    }
    if let Some(name) = &domain.attach {
        table.insert("attach", inline(vec![("libvirt", name.as_str().into())]).into());
    }
    table.insert("task", named(tasks(&domain.tasks, places)));
    table
}

fn helpers(helpers: &Helpers) -> Keys {
    let mut keys = Keys::new();
    if !helpers.processors.is_empty() {
        keys.push(("processors", numbers(helpers.processors.iter().copied())));
    }
    if let Some(priority) = helpers.priority {
        keys.extend([("policy", "fifo".into()), ("priority", number(priority))]);
    }
    keys
}

fn tasks(tasks: &[TaskDraft], places: &mut Vec<Place>) -> Vec<(String, Table)> {
    places.extend(tasks.iter().map(|task| task.place));
    tasks.iter().map(|one| (one.name.clone(), table(task(one)))).collect()
}

fn task(task: &TaskDraft) -> Keys {
    let (mut keys, later) = match task.work {
        WorkDraft::Hog { start } => (vec![("hog", true.into())], ("start", start)),
        WorkDraft::Periodic { period, offset, cost } => {
            (vec![("period", time(period)), ("cost", cost_value(cost))], ("offset", offset))
        }
        WorkDraft::Sporadic { separation, offset, cost } => {
            (vec![("separation", time(separation)), ("cost", cost_value(cost))], ("offset", offset))
        }
    };
    let (key, start) = later;
    if !start.is_zero() {
        keys.push((key, time(start)));
    }
    // The server has the parameters that are not the task's own.
    let mut server = task.unit.clone();
    keys.extend(server.deadline.take().map(|deadline| ("deadline", time(deadline))));
    keys.extend(server.priority.take().map(|priority| ("priority", number(priority))));
    keys.extend(server.affinity.take().map(|list| ("affinity", numbers(list))));
    let server = unit_params(&server);
    if !server.is_empty() {
        keys.push(("server", inline(server)));
    }
    keys
}

fn unit_params(unit: &UnitDraft) -> Keys {
    let given = [
        unit.budget.map(|budget| ("budget", time(budget))),
        unit.period.map(|period| ("period", time(period))),
        unit.deadline.map(|deadline| ("deadline", time(deadline))),
        unit.priority.map(|priority| ("priority", number(priority))),
        unit.weight.map(|weight| ("weight", number(weight))),
        unit.cap_percent.map(|cap| ("cap_percent", number(cap))),
        unit.extratime.map(|flag| ("extratime", flag.into())),
        unit.best_effort.then(|| ("best_effort", true.into())),
        unit.affinity.as_ref().map(|list| ("affinity", numbers(list.iter().copied()))),
    ];
    given.into_iter().flatten().collect()
}
