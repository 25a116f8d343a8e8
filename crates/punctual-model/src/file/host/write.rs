//! A [`Host`] as a host file.

use punctual_sched::{CpuSet, UnitParams};

use super::task::derived_params;
use crate::file::live::write::live;
use crate::file::network::write as network;
use crate::file::writer::{Writer, numbers, options, quoted};
use crate::host::{Arrival, Cost, Host, Parent, Pool, Task, Work};
use crate::index::{DomainIx, PoolIx};

/// Writes `host` as a host file with everything spelled out, generated tasks included. Parsing it gives the
/// same host again, provided `host` came out of the parser.
pub fn to_toml(host: &Host) -> String {
    let mut out = Writer::default();
    out.key("name", quoted(&host.name));
    out.key("seed", host.seed);
    out.key("duration", quoted(host.duration));
    out.table("machine");
    out.key("processors", host.processors);
    out.table("machine.overheads");
    let costs = host.overheads;
    out.key("decision", quoted(costs.decision));
    out.key("context_switch", quoted(costs.context_switch));
    out.key("migration", quoted(costs.migration));
    out.key("lock", quoted(costs.lock));
    for (i, pool) in host.pools.iter().enumerate() {
        out.table(&format!("pool.{}", pool.name));
        out.key("processors", numbers(pool.processors.iter().copied()));
        out.key("policy", quoted(pool.policy.info.name));
        if pool.policy.options.iter().next().is_some() {
            out.key(pool.policy.info.name, format!("{{ {} }}", options(&pool.policy.options)));
        }
        tasks(&mut out, host, Parent::Pool(PoolIx(i)), &format!("pool.{}", pool.name));
    }
    for i in 0..host.domains.len() {
        domain(&mut out, host, DomainIx(i));
    }
    for one in &host.networks {
        network::network(&mut out, host, one);
    }
    for flow in &host.flows {
        network::flow(&mut out, host, flow);
    }
    for chain in &host.chains {
        network::chain(&mut out, host, chain);
    }
    out.text
}

fn domain(out: &mut Writer, host: &Host, ix: DomainIx) {
    let domain = &host.domains[ix.0];
    let path = format!("domain.{}", domain.name);
    out.table(&path);
    match domain.parent {
        Parent::Pool(pool) => out.key("pool", quoted(&host.pools[pool.0].name)),
        Parent::Domain(outer) => out.key("in", quoted(&host.domains[outer.0].name)),
    }
    out.key("vcpus", domain.vcpus.len());
    let guest = match options(&domain.guest.options) {
        none if none.is_empty() => quoted(domain.guest.info.name),
        some => format!("{{ policy = {}, {some} }}", quoted(domain.guest.info.name)),
    };
    out.key("guest", guest);
    let vcpus = &host.vcpus[domain.vcpus.clone()];
    let common = vcpus.first().filter(|first| vcpus.iter().all(|v| v.params == first.params));
    for (key, value) in common.map(|v| params(host, domain.parent, &v.params)).unwrap_or_default() {
        out.key(key, value);
    }
    if common.is_none() {
        for (n, vcpu) in vcpus.iter().enumerate() {
            let given = params(host, domain.parent, &vcpu.params);
            let given: Vec<String> =
                given.into_iter().map(|(key, value)| format!("{key} = {value}")).collect();
            out.key(&format!("vcpu.{n}"), format!("{{ {} }}", given.join(", ")));
        }
    }
    live(out, &domain.live, &path);
    tasks(out, host, Parent::Domain(ix), &path);
}

/// The parameters that are set, as key and value.
fn params(host: &Host, parent: Parent, params: &UnitParams) -> Vec<(&'static str, String)> {
    let mut given = server(params, &UnitParams::default());
    given.extend(params.priority.map(|n| ("priority", n.to_string())));
    given.extend(params.affinity.as_ref().map(|set| ("affinity", affinity(host, parent, set))));
    given
}

/// The parameters of a `server` that differ from `default`.
fn server(params: &UnitParams, default: &UnitParams) -> Vec<(&'static str, String)> {
    let duration =
        |key, value: Option<_>, default| value.filter(|_| value != default).map(|d| (key, quoted(d)));
    let given = [
        duration("budget", params.budget, default.budget),
        duration("period", params.period, default.period),
        duration("deadline", params.deadline, default.deadline),
        params.weight.map(|n| ("weight", n.to_string())),
        params.cap_percent.map(|n| ("cap_percent", n.to_string())),
        params.extratime.map(|flag| ("extratime", flag.to_string())),
    ];
    given.into_iter().flatten().collect()
}

/// In the file's numbering.
fn affinity(host: &Host, parent: Parent, set: &CpuSet) -> String {
    match parent {
        Parent::Pool(pool) => {
            let Pool { processors, .. } = &host.pools[pool.0];
            numbers(set.iter().map(|cpu| processors[cpu.index()]))
        }
        Parent::Domain(_) => numbers(set.iter().map(|cpu| cpu.index())),
    }
}

fn tasks(out: &mut Writer, host: &Host, parent: Parent, path: &str) {
    for (_, task) in host.tasks_of(parent) {
        out.table(&format!("{path}.task.{}", task.name));
        work(out, task);
        let given = server(&task.params, &derived_params(&task.work));
        if !given.is_empty() {
            let given: Vec<String> =
                given.into_iter().map(|(key, value)| format!("{key} = {value}")).collect();
            out.key("server", format!("{{ {} }}", given.join(", ")));
        }
        if let Some(priority) = task.params.priority {
            out.key("priority", priority);
        }
        if let Some(set) = &task.params.affinity {
            out.key("affinity", affinity(host, parent, set));
        }
    }
}

fn work(out: &mut Writer, task: &Task) {
    let (arrival, cost, deadline) = match task.work {
        Work::Hog { start } => {
            out.key("hog", true);
            return out.key("start", quoted(start));
        }
        Work::Served { cost, deadline } => {
            out.key("on_packet", true);
            write_cost(out, cost);
            return out.key("deadline", quoted(deadline));
        }
        Work::Jobs { arrival, cost, deadline } => (arrival, cost, deadline),
    };
    let offset = match arrival {
        Arrival::Periodic { period, offset } => {
            out.key("period", quoted(period));
            offset
        }
        Arrival::Sporadic { separation, slack_mean, offset } => {
            out.key("separation", quoted(separation));
            out.key("slack_mean", quoted(slack_mean));
            offset
        }
    };
    write_cost(out, cost);
    out.key("deadline", quoted(deadline));
    out.key("offset", quoted(offset));
}

fn write_cost(out: &mut Writer, cost: Cost) {
    match cost.min == cost.max {
        true => out.key("cost", quoted(cost.max)),
        false => out.key("cost", format!("{{ min = {}, max = {} }}", quoted(cost.min), quoted(cost.max))),
    }
}
