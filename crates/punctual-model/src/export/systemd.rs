//! systemd: a drop-in for the service of each domain and of each task in a pool.
//!
//! Keys: systemd.exec(5) and systemd.resource-control(5). They hold for the service as a whole: a QEMU
//! process has its helper threads in them, and its vCPUs share one quota.

use punctual_sched::{Duration, UnitParams};

use super::linux::{BudgetMeans, GroupWeight, LinuxPool, LinuxScheduling, group_weights};
use super::loss::{Loss, Losses};
use super::quota::{Quota, percent, quota};
use super::target::{ExportFile, Keep};
use super::text::{cpu_list, header};
use super::units::{domains, task_name};
use crate::host::{Host, Parent};
use crate::index::PoolIx;
use crate::live::Helpers;

/// CPUWeight of systemd.
const WEIGHTS: std::ops::RangeInclusive<u32> = 1..=10_000;

pub(super) fn files(host: &Host, keep: Keep, losses: &mut Losses) -> Vec<ExportFile> {
    let pools: Vec<LinuxPool> = (0..host.pools.len())
        .map(|i| LinuxPool::new(host, PoolIx(i), keep, BudgetMeans::Quota, losses))
        .collect();
    losses.add_nested(host);
    let mut files = Vec::new();
    let mut services: Vec<Service> = Vec::new();
    for (i, pool) in pools.iter().enumerate() {
        for (_, task) in host.tasks_of(Parent::Pool(PoolIx(i))) {
            let item = task_name(pool.pool, &task.name);
            let name = format!("{}.{}", pool.pool.name, task.name);
            services.push(Service::new(name, (i, pool), vec![(item.clone(), &task.params)], item, losses));
        }
    }
    for (domain, PoolIx(pool)) in domains(host) {
        let vcpus = host.vcpus[domain.vcpus.clone()].iter();
        let units: Vec<(String, &UnitParams)> = vcpus.map(|v| (v.name.clone(), &v.params)).collect();
        if domain.live.helpers != Helpers::default() {
            losses.add(&domain.name, "helpers", "helper threads belong to the service and have its settings");
        }
        let name = domain.name.clone();
        services.push(Service::new(name.clone(), (pool, &pools[pool]), units, name, losses));
    }
    for ix in 0..pools.len() {
        let members = || services.iter().filter(|service| service.ix == ix);
        let groups: Vec<Vec<LinuxScheduling>> = members().map(|service| service.rules.clone()).collect();
        let weights = group_weights(&groups, &WEIGHTS);
        let members = services.iter_mut().filter(|service| service.ix == ix);
        members.zip(weights).for_each(|(service, weight)| service.weight = weight);
    }
    files.extend(services.iter().map(|service| drop_in(host, service, losses)));
    files
}

/// A service and what it becomes.
struct Service<'a> {
    name: String,
    /// Its pool's index.
    ix: usize,
    pool: &'a LinuxPool<'a>,
    /// Names and parameters.
    units: Vec<(String, &'a UnitParams)>,
    rules: Vec<LinuxScheduling>,
    weight: Option<GroupWeight>,
    /// The domain or task.
    item: String,
}

impl<'a> Service<'a> {
    fn new(
        name: String,
        (ix, pool): (usize, &'a LinuxPool<'a>),
        units: Vec<(String, &'a UnitParams)>,
        item: String,
        losses: &mut Losses,
    ) -> Self {
        let rules = units.iter().map(|(name, params)| pool.rule(name, params, losses)).collect();
        Service { name, ix, pool, units, rules, weight: None, item }
    }
}

/// The settings of one service: its units share what the service gets.
fn drop_in(host: &Host, service: &Service<'_>, losses: &mut Losses) -> ExportFile {
    let Service { name, pool, units, rules, item, .. } = service;
    let mut keys = vec![format!("AllowedCPUs={}", cpu_list(&pool.pool.processors))];
    keys.extend(affinity(pool, units, item, losses));
    keys.extend(class(rules, item, losses));
    keys.extend(weight(service, losses).map(|n| format!("CPUWeight={n}")));
    keys.extend(quota_keys(rules, item, losses));
    let own = |loss: &&Loss| {
        let unit = units.iter().any(|(name, _)| *name == loss.item);
        unit || loss.item == *item || loss.item == pool.pool.name
    };
    let usage = [format!("Install as /etc/systemd/system/{name}.service.d/50-punctual.conf")];
    let text = header(host, &format!("Scheduling of {item}"), &usage, losses.list.iter().filter(own));
    let text = format!("{text}\n[Service]\n{}\n", keys.join("\n"));
    ExportFile { name: format!("{name}.service.d/50-punctual.conf"), text }
}

/// Where the process may run if that is less than the pool.
fn affinity(
    pool: &LinuxPool,
    units: &[(String, &UnitParams)],
    item: &str,
    losses: &mut Losses,
) -> Option<String> {
    let mut sets: Vec<Vec<usize>> = units.iter().map(|(_, params)| pool.processors(params)).collect();
    if sets.windows(2).any(|pair| pair[0] != pair[1]) {
        losses.add(item, "affinity", "the service has one affinity, the processors of all its vCPUs");
    }
    let mut all: Vec<usize> = sets.drain(..).flatten().collect();
    all.sort_unstable();
    all.dedup();
    (all != pool.pool.processors).then(|| format!("CPUAffinity={}", cpu_list(&all)))
}

/// The real-time class: that of the most urgent unit.
fn class(rules: &[LinuxScheduling], item: &str, losses: &mut Losses) -> Vec<String> {
    if rules.iter().any(|rule| matches!(rule, LinuxScheduling::Fifo(_)) && *rule != rules[0]) {
        losses.add(item, "priority", "the service has one priority, that of its most urgent vCPU");
    }
    let fifo = rules.iter().filter_map(|rule| match rule {
        LinuxScheduling::Fifo(priority) => Some(*priority),
        _ => None,
    });
    let keys = |policy: &str, priority: u8| {
        vec![format!("CPUSchedulingPolicy={policy}"), format!("CPUSchedulingPriority={priority}")]
    };
    match fifo.max() {
        Some(priority) => keys("fifo", priority),
        None if rules.contains(&LinuxScheduling::RoundRobin) => keys("rr", 1),
        None => Vec::new(),
    }
}

/// The weight of the service: those of its units together.
fn weight(service: &Service<'_>, losses: &mut Losses) -> Option<u32> {
    let GroupWeight { weight, sum, is_exact } = service.weight?;
    if !is_exact {
        let why = format!("{sum} is written as {weight}: systemd takes 1 to 10000");
        losses.add(&service.item, "weight", why);
    }
    if service.rules.len() > 1 {
        let why = "the service has one weight, the sum of its vCPUs', which they have in equal parts";
        losses.add(&service.item, "weight", why);
    }
    Some(weight)
}

/// The sum of the units' quotas, as systemd writes it: percent of a processor, over a period.
fn quota_keys(rules: &[LinuxScheduling], item: &str, losses: &mut Losses) -> Vec<String> {
    let mut asked: Vec<(Duration, Duration)> = Vec::new();
    for rule in rules {
        match *rule {
            LinuxScheduling::Budget { budget, period } => asked.push((budget, period)),
            LinuxScheduling::Fair { cap_percent: Some(cap), .. } => {
                let Quota { quota_us, period_us, .. } = percent(cap);
                asked.push((Duration::from_us(quota_us), Duration::from_us(period_us)));
            }
            // A unit without a limit is not to be limited because another one is.
            LinuxScheduling::Fair { cap_percent: None, .. }
            | LinuxScheduling::Fifo(_)
            | LinuxScheduling::RoundRobin => return Vec::new(),
        }
    }
    let Some(shortest) = asked.iter().map(|(_, period)| *period).min() else { return Vec::new() };
    if asked.len() > 1 {
        let why = "the service has one quota, the sum of its vCPUs' quotas over the shortest period";
        losses.add(item, "budget", why);
    }
    // Over the shortest period, each rounded up to a nanosecond.
    let over = |(budget, period): &(Duration, Duration)| {
        (u128::from(budget.as_ns()) * u128::from(shortest.as_ns()))
            .div_ceil(u128::from(period.as_ns().max(1)))
    };
    let sum: u128 = asked.iter().map(over).sum();
    let budget = Duration::from_ns(u64::try_from(sum).unwrap_or(u64::MAX));
    let given = quota(budget, shortest);
    let Quota { quota_us, period_us, .. } = given;
    // systemd reads parts of ten thousand at the finest; rounded up, so that no unit gets less.
    let parts = (u128::from(quota_us) * 10_000).div_ceil(u128::from(period_us));
    let exact = given.exact && parts * u128::from(period_us) == u128::from(quota_us) * 10_000;
    let share = format!("{}.{:02}", parts / 100, parts % 100);
    let share = share.trim_end_matches('0').trim_end_matches('.');
    if !exact {
        let why = format!(
            "{budget} in every {shortest} is written as {share}% over {period_us} us: Linux takes quotas \
             from 1 ms and periods from 1 ms to 1 s, systemd two decimals of a percentage"
        );
        losses.add(item, "budget", why);
    }
    let (whole, rest) = (period_us / 1_000, period_us % 1_000);
    let period = if rest == 0 { format!("{whole}ms") } else { format!("{period_us}us") };
    vec![format!("CPUQuota={share}%"), format!("CPUQuotaPeriodSec={period}")]
}
