//! Hosts built in code, for tests of the machine.

use punctual_model::Host;
use punctual_model::host::{Arrival, Cost, Domain, Parent, PolicyChoice, Pool, Task, Vcpu, Work};
use punctual_model::index::{DomainIx, PoolIx};
use punctual_model::live::Live;
use punctual_sched::registry::{self, OptionValue, Options};
use punctual_sched::{CpuId, CpuSet, Duration, UnitParams};

/// `n` milliseconds.
pub const fn ms(n: u64) -> Duration {
    Duration::from_ms(n)
}

/// `n` microseconds.
pub const fn us(n: u64) -> Duration {
    Duration::from_us(n)
}

/// The policy called `name` with its defaults.
pub fn policy(name: &str) -> PolicyChoice {
    PolicyChoice {
        info: registry::find(name).unwrap_or_else(|| panic!("no policy {name}")),
        options: Options::new(),
    }
}

/// A server policy that decides at exhaustion and replenishment only.
pub fn exact(name: &str) -> PolicyChoice {
    let mut choice = policy(name);
    choice.options.set("quantum", OptionValue::Word("exact"));
    choice
}

/// A server policy that looks at budgets every `quantum`.
pub fn quantum(name: &str, quantum: Duration) -> PolicyChoice {
    let mut choice = policy(name);
    choice.options.set("quantum", OptionValue::Duration(quantum));
    choice
}

/// A host of `processors` processors with no pool yet.
pub fn host(processors: usize, duration: Duration) -> Host {
    Host::empty("test", processors, 1, duration)
}

/// A host with one pool of all its processors.
pub fn pooled(processors: usize, duration: Duration, policy: PolicyChoice) -> Host {
    let mut host = host(processors, duration);
    let (name, processors) = ("pool".into(), (0..processors).collect());
    host.pools.push(Pool { name, processors, choice: None, policy, isolate: false });
    host
}

/// Parameters of a server.
pub fn server(budget: Duration, period: Duration, priority: u32) -> UnitParams {
    UnitParams {
        budget: Some(budget),
        period: Some(period),
        priority: Some(priority),
        ..UnitParams::default()
    }
}

/// The same parameters, on one of `cpus` processors only.
pub fn pinned(mut params: UnitParams, cpu: u32, cpus: usize) -> UnitParams {
    let mut set = CpuSet::new(cpus);
    set.insert(CpuId(cpu));
    params.affinity = Some(set);
    params
}

/// Adds a domain with one vCPU per element of `vcpus` and returns its index.
pub fn domain(host: &mut Host, parent: Parent, guest: &str, vcpus: Vec<UnitParams>) -> Parent {
    let ix = DomainIx(host.domains.len());
    let first = host.vcpus.len();
    let name = format!("d{}", ix.0 + 1);
    for (i, params) in vcpus.into_iter().enumerate() {
        host.vcpus.push(Vcpu { name: format!("{name}.{i}"), domain: ix, params });
    }
    host.domains.push(Domain {
        name,
        parent,
        vcpus: first..host.vcpus.len(),
        guest: policy(guest),
        resources: Vec::new(),
        live: Live::default(),
    });
    Parent::Domain(ix)
}

/// Adds a domain with one vCPU to the first pool.
pub fn vm(host: &mut Host, params: UnitParams) -> Parent {
    domain(host, Parent::Pool(PoolIx(0)), "fixed-priority", vec![params])
}

/// Adds a periodic task, due at the end of its period.
pub fn task(host: &mut Host, parent: Parent, priority: u32, cost: Duration, period: Duration) -> usize {
    released_at(host, parent, priority, cost, period, Duration::ZERO)
}

/// Adds a periodic task that is first released at `offset`, due at the end of its period.
pub fn released_at(
    host: &mut Host,
    parent: Parent,
    priority: u32,
    cost: Duration,
    period: Duration,
    offset: Duration,
) -> usize {
    let work = Work::Jobs {
        arrival: Arrival::Periodic { period, offset },
        cost: Cost { min: cost, max: cost },
        deadline: period,
    };
    add(host, parent, priority, work)
}

/// Adds a busy loop.
pub fn hog(host: &mut Host, parent: Parent, priority: u32) -> usize {
    add(host, parent, priority, Work::Hog { start: Duration::ZERO })
}

fn add(host: &mut Host, parent: Parent, priority: u32, work: Work) -> usize {
    let params = UnitParams { priority: Some(priority), ..UnitParams::default() };
    let name = format!("t{}", host.tasks.len() + 1);
    host.tasks.push(Task { name, parent, params, work, sections: Vec::new() });
    host.tasks.len() - 1
}
