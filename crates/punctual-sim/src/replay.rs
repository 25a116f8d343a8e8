//! The jobs of a live run once more, on a machine that is taken away as the real one was.
//!
//! A level is added below the host, because a virtual CPU is a processor to the level below: what was a pool
//! becomes a domain with a vCPU on each of the pool's processors, and its policy becomes that domain's
//! scheduler. Beside it, and more urgent, a task for each interval of [`Disturbance`] keeps the processor for
//! as long as it was away. So the machine, the policies and the invariants are those of every simulation. A
//! processor that is away is charged to no budget, as in a live run.
//!
//! Tasks keep their places in the host, and with them their releases and costs.

use punctual_model::host::{Arrival, Cost, Domain, Host, Parent, PolicyChoice, Task, Vcpu, Work};
use punctual_model::index::{DomainIx, PoolIx};
use punctual_model::results::{Disturbance, DomainResult, HostTimes, JobStats};
use punctual_model::{Results, live::Live};
use punctual_sched::registry::Options;
use punctual_sched::{CpuId, CpuSet, Duration, UnitParams, fixed_priority};

use crate::error::Error;
use crate::simulate::simulate;

/// Simulates `host` with its processors taken away as `live` measured: by the intervals of
/// [`Disturbance::intervals`], of which a run keeps the thousand longest.
///
/// Costs of scheduling ([`punctual_model::host::Overheads`]) are taken at the added level, for each time that
/// a processor comes or goes. Of a pool with several processors, a budget that idles away counts as executing
/// there.
///
/// # Errors
/// As [`simulate`]; [`Error::Refused`] also for hosts with networks, which do not run live.
pub fn simulate_disturbed(host: &Host, live: &Results) -> Result<Results, Error> {
    if !host.networks.is_empty() {
        return Err(Error::Refused("a host with networks cannot be replayed".into()));
    }
    let disturbance_of = |processor: usize| {
        live.processors.iter().find(|of| of.processor == processor).and_then(|of| of.disturbance.as_ref())
    };
    let outer =
        Outer { pools: host.pools.len(), vcpus: host.pools.iter().map(|pool| pool.processors.len()).sum() };
    let nested = nest(host, &outer, &disturbance_of);
    let results = simulate(&nested)?;
    Ok(outer.taken_out(host, results, &disturbance_of))
}

/// The added level: a domain for each pool.
struct Outer {
    pools: usize,
    vcpus: usize,
}

fn pinned(priority: u32, cpu: usize) -> UnitParams {
    let mut affinity = CpuSet::new(cpu + 1);
    affinity.insert(CpuId(cpu as u32));
    UnitParams { priority: Some(priority), affinity: Some(affinity), ..UnitParams::default() }
}

fn nest<'a>(host: &Host, outer: &Outer, disturbance_of: &impl Fn(usize) -> Option<&'a Disturbance>) -> Host {
    let mut nested = host.clone();
    let inner = |parent: Parent| match parent {
        Parent::Pool(pool) => Parent::Domain(DomainIx(pool.0)),
        Parent::Domain(domain) => Parent::Domain(DomainIx(domain.0 + outer.pools)),
    };
    for domain in &mut nested.domains {
        domain.parent = inner(domain.parent);
        domain.vcpus = domain.vcpus.start + outer.vcpus..domain.vcpus.end + outer.vcpus;
    }
    nested.vcpus.iter_mut().for_each(|vcpu| vcpu.domain.0 += outer.pools);
    nested.tasks.iter_mut().for_each(|task| task.parent = inner(task.parent));
    let (mut domains, mut vcpus) = (Vec::new(), Vec::new());
    for (ix, pool) in nested.pools.iter_mut().enumerate() {
        let above = PolicyChoice { info: &fixed_priority::INFO, options: Options::default() };
        let from = vcpus.len();
        for cpu in 0..pool.processors.len() {
            // No host file has a name with a space.
            let name = format!("pool {}.{cpu}", pool.name);
            vcpus.push(Vcpu { name, domain: DomainIx(ix), params: pinned(2, cpu) });
        }
        domains.push(Domain {
            name: format!("pool {}", pool.name),
            parent: Parent::Pool(PoolIx(ix)),
            vcpus: from..vcpus.len(),
            guest: std::mem::replace(&mut pool.policy, above),
            resources: Vec::new(),
            live: Live::default(),
        });
        for (cpu, &processor) in pool.processors.iter().enumerate() {
            let intervals = disturbance_of(processor).map_or(&[][..], |of| &of.intervals);
            nested.tasks.extend(intervals.iter().enumerate().filter(|(_, of)| of.length_ns() > 0).map(
                |(number, interval)| Task {
                    name: format!("away {processor} {number}"),
                    parent: Parent::Pool(PoolIx(ix)),
                    params: pinned(1, cpu),
                    work: away(interval.from_ns, interval.length_ns(), host.duration),
                    sections: Vec::new(),
                },
            ));
        }
    }
    nested.domains.splice(0..0, domains);
    nested.vcpus.splice(0..0, vcpus);
    nested
}

/// A single job, which is due after the end.
fn away(from_ns: u64, length_ns: u64, duration: Duration) -> Work {
    let length = Duration::from_ns(length_ns);
    let beyond = duration + duration + length;
    Work::Jobs {
        arrival: Arrival::Periodic { period: beyond, offset: Duration::from_ns(from_ns) },
        cost: Cost { min: length, max: length },
        deadline: beyond,
    }
}

impl Outer {
    /// The results of the host as it was: without the added level, its processors' time away as steal.
    fn taken_out<'a>(
        &self,
        host: &Host,
        mut results: Results,
        disturbance_of: &impl Fn(usize) -> Option<&'a Disturbance>,
    ) -> Results {
        let added: Vec<_> = results.tasks.drain(host.tasks.len()..).collect();
        results.vcpus.drain(..self.vcpus);
        let pools: Vec<_> = results.domains.drain(..self.pools).collect();
        for (task, result) in host.tasks.iter().zip(&mut results.tasks) {
            result.parent = host.parent_name(task.parent).into();
        }
        for processor in &mut results.processors {
            let number = processor.processor;
            let name = format!("away {number} ");
            let of_it = added.iter().filter(|task| task.name.starts_with(&name));
            let steal_ns = of_it.map(|task| task.cpu_time_ns).sum();
            processor.busy_ns = processor.busy_ns.saturating_sub(steal_ns);
            processor.disturbance = disturbance_of(number).cloned();
            processor.host =
                processor.disturbance.is_some().then_some(HostTimes { steal_ns, ..HostTimes::default() });
        }
        for (ix, (pool, of)) in host.pools.iter().zip(&pools).enumerate() {
            restore_pool(host, PoolIx(ix), of, &mut results);
            results.pools[ix].policy = pool.policy.info.name.into();
        }
        results
    }
}

/// The sums of a pool, from what the domain in its place did.
fn restore_pool(host: &Host, ix: PoolIx, of: &DomainResult, results: &mut Results) {
    let numbers = &host.pools[ix.0].processors;
    let units = || host.vcpus.iter().zip(&results.vcpus);
    let in_pool = |vcpu: &Vcpu| host.domains[vcpu.domain.0].parent == Parent::Pool(ix);
    let mut sums = (0, 0, 0);
    for (_, vcpu) in units().filter(|(vcpu, _)| in_pool(vcpu)) {
        let counts = vcpu.counts.unwrap_or_default();
        sums.0 += counts.exhaustions;
        sums.1 += counts.replenishments;
        // The added vCPU executed while a budget inside it idled away.
        sums.2 += counts.idled_away_ns;
    }
    let mut jobs = JobStats::default();
    let of_pool = host.tasks.iter().zip(&results.tasks);
    of_pool.filter(|(task, _)| host.pool_of(task.parent) == ix).for_each(|(_, task)| jobs.merge(&task.jobs));
    if let [processor] = numbers.as_slice() {
        let processor = &mut results.processors[*processor];
        processor.busy_ns = processor.busy_ns.saturating_sub(sums.2);
        processor.idle_ns += sums.2;
    }
    let busy_ns =
        results.processors.iter().filter(|of| numbers.contains(&of.processor)).map(|of| of.busy_ns).sum();
    let result = &mut results.pools[ix.0];
    (result.jobs, result.busy_ns) = (jobs, busy_ns);
    (result.exhaustions, result.replenishments) = (Some(sums.0), Some(sums.1));
    result.decisions = of.decisions;
    result.context_switches = of.context_switches;
    result.migrations = of.migrations;
}
