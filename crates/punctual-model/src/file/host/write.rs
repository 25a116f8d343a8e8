//! A [`Host`] as a host file.

use punctual_host_stack::HostStack;
use punctual_sched::{CpuSet, Duration, UnitParams};
use toml_edit::{DocumentMut, Table, Value};

use super::keys::OF_VM;
use super::task::derived_params;
use crate::any_host::AnyHost;
use crate::file::host_stack::{self, HOST_STACK};
use crate::file::live::write::live_tables;
use crate::file::network::write as network;
use crate::file::writer::{Keys, inline, named, number, numbered, numbers, options, table, time};
use crate::host::{Arrival, Cost, Domain, Enforce, Host, Overheads, Parent, PolicyChoice, Pool, Task, Work};
use crate::host::{Change, Event};
use crate::index::{DomainIx, PoolIx};
use crate::locks::{CriticalSection, Resource};
use crate::smp::{SmpKind, SmpWork};

/// Writes `host` as a host file with everything spelled out, generated tasks included. Parsing it gives the
/// same host again, provided `host` came out of the parser; processors that were chosen are listed, and the
/// reason is a comment.
pub fn to_toml(host: &Host) -> String {
    document(host).to_string()
}

impl AnyHost {
    /// Writes the host as a host file, as [`to_toml`] does.
    pub fn to_toml(&self) -> String {
        match self {
            AnyHost::Pools(host) => to_toml(host),
            AnyHost::Stack(stack) => {
                let HostStack { name, seed, duration, processors, .. } = stack;
                // Its costs are its own.
                let mut root = head(name, *seed, *duration, *processors, None);
                root.insert(HOST_STACK, host_stack::write::table(stack).into());
                DocumentMut::from(root).to_string()
            }
        }
    }
}

/// What [`to_toml`] prints.
pub(crate) fn document(host: &Host) -> DocumentMut {
    let mut root = head(&host.name, host.seed, host.duration, host.processors, Some(host));
    let pools = host.pools.iter().enumerate().map(|(i, one)| (one.name.clone(), pool(host, PoolIx(i), one)));
    root.insert("pool", named(pools));
    let domains =
        host.domains.iter().enumerate().map(|(i, one)| (one.name.clone(), domain(host, DomainIx(i), one)));
    root.insert("domain", named(domains));
    let networks = host.networks.iter().map(|one| (one.name.clone(), network::network(host, one)));
    root.insert("network", named(networks));
    let flows = host.flows.iter().map(|one| (one.name.clone(), network::flow(host, one)));
    root.insert("flow", named(flows));
    let chains = host.chains.iter().map(|one| (one.name.clone(), network::chain(host, one)));
    root.insert("chain", named(chains));
    let events = host.events.iter().map(|one| (one.name.clone(), event(host, one)));
    root.insert("event", named(events));
    root.into()
}

/// The keys and the machine that hosts of both kinds have.
fn head(name: &str, seed: u64, duration: Duration, processors: usize, pooled: Option<&Host>) -> Table {
    let mut root = table(vec![("name", name.into()), ("seed", number(seed)), ("duration", time(duration))]);
    let mut machine = table(vec![("processors", number(processors))]);
    if let Some(host) = pooled {
        machine.insert("overheads", table(overheads(&host.overheads)).into());
        if host.enforce != Enforce::default() {
            machine.insert("enforce", host.enforce.name().into());
        }
    }
    root.insert("machine", machine.into());
    root
}

fn overheads(costs: &Overheads) -> Keys {
    vec![
        ("decision", time(costs.decision)),
        ("context_switch", time(costs.context_switch)),
        ("migration", time(costs.migration)),
        ("lock", time(costs.lock)),
    ]
}

fn pool(host: &Host, ix: PoolIx, pool: &Pool) -> Table {
    let mut keys = vec![("processors", numbers(pool.processors.iter().copied()))];
    keys.extend(policy(&pool.policy));
    keys.extend(pool.isolate.then(|| ("isolate", true.into())));
    let mut table = table(keys);
    if let (Some(choice), Some(mut key)) = (&pool.choice, table.key_mut("processors")) {
        key.leaf_decor_mut().set_prefix(format!("# Chosen: {}.\n", choice.reason));
    }
    table.insert("task", named(tasks(host, Parent::Pool(ix))));
    table
}

fn domain(host: &Host, ix: DomainIx, domain: &Domain) -> Table {
    let parent = match domain.parent {
        Parent::Pool(pool) => ("pool", host.pools[pool.0].name.as_str().into()),
        Parent::Domain(outer) => ("in", host.domains[outer.0].name.as_str().into()),
    };
    let mut table =
        table(vec![parent, ("vcpus", number(domain.vcpus.len())), ("guest", guest(&domain.guest))]);
    let vcpus = &host.vcpus[domain.vcpus.clone()];
    let params = |vcpu: &crate::host::Vcpu| unit_params(host, domain.parent, &vcpu.params);
    match vcpus.first().filter(|first| vcpus.iter().all(|v| v.params == first.params)) {
        Some(common) => table.extend(params(common)),
        None => {
            table.insert("vcpu", numbered(vcpus.iter().map(params)));
        }
    }
    // Of a single vCPU, too: it means nothing there, and the file says it.
    let of_vm = vcpus.iter().any(|vcpu| vcpu.params.shares_budget);
    table.extend(of_vm.then(|| (UnitParams::BUDGET_OF, Value::from(OF_VM))));
    table.extend(domain.live.threads_max.map(|max| ("threads_max", number(max))));
    for (key, inner) in live_tables(&domain.live) {
        table.insert(key, inner.into());
    }
    if !domain.resources.is_empty() {
        table.insert("resource", named(domain.resources.iter().map(resource)));
    }
    match host.smp_of(ix) {
        Some(work) => table.insert("smp", smp(work).into()),
        None => table.insert("task", named(tasks(host, Parent::Domain(ix)))),
    };
    table
}

fn smp(work: SmpWork) -> Table {
    let mut keys = vec![("work", work.kind.name().into()), ("cost", time(work.cost))];
    match work.kind {
        SmpKind::Spinlock { held } | SmpKind::Mutex { held } => keys.push(("held", time(held))),
        SmpKind::Interrupt { answer, callers } => {
            keys.extend([("answer", time(answer)), ("callers", number(callers))]);
        }
        SmpKind::Barrier | SmpKind::Pipe => {}
    }
    table(keys)
}

fn resource(resource: &Resource) -> (String, Table) {
    (resource.name.clone(), table(vec![("protocol", resource.protocol.name().into())]))
}

fn event(host: &Host, event: &Event) -> Table {
    let mut keys = vec![("at", time(event.at))];
    match &event.change {
        Change::Params { domain, given } => {
            let domain = &host.domains[domain.0];
            keys.push(("domain", domain.name.as_str().into()));
            keys.extend(unit_params(host, domain.parent, given));
        }
        Change::Policy { pool, policy: chosen } => {
            keys.push(("pool", host.pools[pool.0].name.as_str().into()));
            keys.extend(policy(chosen));
        }
    }
    table(keys)
}

/// A policy's name, and a table of its options if it has any.
fn policy(chosen: &PolicyChoice) -> Keys {
    let given = options(&chosen.options);
    let own = (!given.is_empty()).then(|| (chosen.info.name, inline(given)));
    [("policy", chosen.info.name.into())].into_iter().chain(own).collect()
}

/// A policy's name, or a table of it and its options.
fn guest(policy: &PolicyChoice) -> Value {
    let given = options(&policy.options);
    if given.is_empty() {
        return policy.info.name.into();
    }
    let name = ("policy", policy.info.name.into());
    inline([name].into_iter().chain(given).collect())
}

/// The parameters of a unit that are set. Affinity is in the file's numbering of the processors of `parent`.
pub(crate) fn unit_params(host: &Host, parent: Parent, params: &UnitParams) -> Keys {
    let mut keys = server(params, &UnitParams::default());
    keys.extend(params.best_effort.then(|| (UnitParams::BEST_EFFORT, true.into())));
    keys.extend(priority_and_affinity(host, parent, params));
    keys
}

/// The parameters of a `server` that differ from `default`.
fn server(params: &UnitParams, default: &UnitParams) -> Keys {
    let different = |key, given: Option<Duration>, default| {
        given.filter(|_| given != default).map(|given| (key, time(given)))
    };
    let given = [
        different("budget", params.budget, default.budget),
        different("period", params.period, default.period),
        different("deadline", params.deadline, default.deadline),
        params.weight.map(|weight| ("weight", number(weight))),
        params.cap_percent.map(|cap| ("cap_percent", number(cap))),
        params.extratime.map(|flag| ("extratime", flag.into())),
    ];
    given.into_iter().flatten().collect()
}

fn priority_and_affinity(host: &Host, parent: Parent, params: &UnitParams) -> Keys {
    let priority = params.priority.map(|priority| ("priority", number(priority)));
    let affinity = params.affinity.as_ref().map(|set| ("affinity", affinity(host, parent, set)));
    [priority, affinity].into_iter().flatten().collect()
}

fn affinity(host: &Host, parent: Parent, set: &CpuSet) -> Value {
    match parent {
        Parent::Pool(pool) => {
            let processors = &host.pools[pool.0].processors;
            numbers(set.iter().map(|cpu| processors[cpu.index()]))
        }
        Parent::Domain(_) => numbers(set.iter().map(|cpu| cpu.index())),
    }
}

fn tasks(host: &Host, parent: Parent) -> impl Iterator<Item = (String, Table)> {
    host.tasks_of(parent).map(move |(_, one)| (one.name.clone(), table(task(host, parent, one))))
}

fn task(host: &Host, parent: Parent, task: &Task) -> Keys {
    let mut keys = work(&task.work);
    let server = server(&task.params, &derived_params(&task.work));
    if !server.is_empty() {
        keys.push(("server", inline(server)));
    }
    keys.extend(priority_and_affinity(host, parent, &task.params));
    if let (Parent::Domain(domain), false) = (parent, task.sections.is_empty()) {
        let resources = &host.domains[domain.0].resources;
        let sections = task.sections.iter().map(|one| inline(section(one, resources)));
        keys.push(("sections", Value::Array(sections.collect())));
    }
    keys
}

fn section(section: &CriticalSection, resources: &[Resource]) -> Keys {
    let name = resources[section.resource].name.as_str();
    vec![("resource", name.into()), ("after", time(section.after)), ("length", time(section.length))]
}

fn work(work: &Work) -> Keys {
    match *work {
        Work::Hog { start } => vec![("hog", true.into()), ("start", time(start))],
        Work::Served { cost, deadline } => {
            vec![("on_packet", true.into()), ("cost", cost_value(cost)), ("deadline", time(deadline))]
        }
        Work::Jobs { arrival, cost, deadline } => {
            let (mut keys, offset) = match arrival {
                Arrival::Periodic { period, offset } => (vec![("period", time(period))], offset),
                Arrival::Sporadic { separation, slack_mean, offset } => {
                    (vec![("separation", time(separation)), ("slack_mean", time(slack_mean))], offset)
                }
            };
            keys.extend([("cost", cost_value(cost)), ("deadline", time(deadline)), ("offset", time(offset))]);
            keys
        }
    }
}

/// One duration, or a table of `min` and `max`.
pub(crate) fn cost_value(cost: Cost) -> Value {
    if cost.min == cost.max {
        return time(cost.max);
    }
    inline(vec![("min", time(cost.min)), ("max", time(cost.max))])
}
