//! Random hosts and release patterns.

use punctual_model::Host;
use punctual_model::host::{Arrival, Parent, Work};
use punctual_model::index::{DomainIx, PoolIx};
use punctual_model::locks::{CriticalSection, Protocol, Resource, guest_order};
use punctual_sched::registry::OptionValue;
use punctual_sched::{Duration, UnitParams};

use crate::hosts::*;

/// The same random numbers everywhere, by their seed.
pub struct Random {
    seed: u64,
    drawn: u64,
}

impl Random {
    /// Numbers from the beginning of the seed's sequence.
    pub fn new(seed: u64) -> Self {
        Random { seed, drawn: 0 }
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.drawn += 1;
        punctual_jobs::mix(self.seed, self.drawn - 1)
    }

    /// A number from `low` to `high`, both included.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.number() % (high - low + 1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.number().is_multiple_of(n)
    }

    /// One of the list.
    pub fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.within(0, list.len() as u64 - 1) as usize]
    }
}

/// The policies that random hosts are scheduled by.
pub const POLICIES: [&str; 9] =
    ["deferrable", "periodic", "polling", "sporadic", "rtds", "sedf", "cbs", "fixed-priority", "edf"];

/// Periods are multiples of this many ns.
const UNIT: u64 = 100_000;

/// `n` nanoseconds.
pub fn ns(n: u64) -> Duration {
    Duration::from_ns(n)
}

/// A host with one pool. Loads are spread around what can just be guaranteed.
pub fn random_host(random: &mut Random) -> Host {
    let name = random.of(&POLICIES);
    let processors = random.of(&[1, 1, 1, 2, 3]);
    let mut choice = policy(name);
    if ["deferrable", "periodic", "polling", "sporadic"].contains(&name) {
        if random.one_in(2) {
            choice.options.set("quantum", OptionValue::Word("exact"));
        } else if random.one_in(3) {
            choice.options.set("idle", OptionValue::Word("quantum"));
        }
        if name == "sporadic" && random.one_in(3) {
            choice.options.set("refills_max", OptionValue::Count(random.within(1, 4)));
        }
    }
    let mut host = pooled(processors, ms(400), choice);
    host.seed = random.number();
    if random.one_in(4) {
        host.overheads.decision = ns(random.within(0, 3_000));
        host.overheads.context_switch = ns(random.within(0, 8_000));
        host.overheads.migration = ns(random.within(0, 10_000));
        host.overheads.lock = ns(random.within(0, 500));
    }
    let pinned_all = random.one_in(2);
    let budgets = host.pools[0].policy.info.unit_params.iter().any(|p| p.name == "budget");
    let domains = if name == "edf" { 0 } else { random.within(1, 4) as usize };
    for d in 0..domains {
        let guest = random.of(&["fixed-priority", "fixed-priority", "edf"]);
        let guest = if budgets { guest } else { "fixed-priority" };
        let params = random_server(random, domains, processors, pinned_all, d);
        let (budget, period) = params.budget.zip(params.period).expect("of a server");
        let share = budget.as_ns() * 1000 / period.as_ns();
        let vcpus = random.of(&[1, 1, 1, 1, 2]);
        let shares_budget = vcpus > 1 && budgets && random.one_in(3);
        let params = UnitParams { shares_budget, ..params };
        let vm = domain(&mut host, Parent::Pool(PoolIx(0)), guest, vec![params.clone(); vcpus]);
        random_tasks(random, &mut host, vm, &params, share, vcpus);
        if guest == "fixed-priority" && vcpus == 1 && random.one_in(6) {
            let priority = Some(random.within(1, 9) as u32);
            let inner = vec![UnitParams { priority, ..UnitParams::default() }];
            let nested = domain(&mut host, vm, "fixed-priority", inner);
            random_tasks(random, &mut host, nested, &params, share / 4, 1);
        }
    }
    if domains == 0 || random.one_in(4) {
        let count = random.within(1, 5);
        for _ in 0..count {
            let share = 1000 * processors as u64 / (count + domains as u64);
            random_task(
                random,
                &mut host,
                Parent::Pool(PoolIx(0)),
                random_share(share),
                processors,
                pinned_all,
            );
        }
    }
    host
}

/// A host with guests of several vCPUs whose tasks may run on each of them, under a policy that supplies
/// these surely, with loads around what can just be guaranteed.
pub fn random_several(random: &mut Random) -> Host {
    let name = random.of(&["rtds", "rtds", "sedf", "deferrable", "deferrable", "fixed-priority", "edf"]);
    let processors = random.within(2, 4) as usize;
    let mut host = pooled(processors, ms(400), policy(name));
    host.seed = random.number();
    if random.one_in(3) {
        host.overheads.decision = ns(random.within(0, 3_000));
        host.overheads.context_switch = ns(random.within(0, 5_000));
        host.overheads.migration = ns(random.within(0, 5_000));
        host.overheads.lock = ns(random.within(0, 300));
    }
    let has_own_processors = ["fixed-priority", "edf"].contains(&name);
    let domains = if has_own_processors { 1 } else { random.within(1, 3) as usize };
    let is_pinned = name == "deferrable" || has_own_processors || random.one_in(3);
    for d in 0..domains {
        let vcpus = random.within(2, processors as u64) as usize;
        let period = random.of(&[10, 20, 25, 40, 50]) * UNIT;
        let fair = 1000 / domains as u64;
        let vcpu = |random: &mut Random, cpu: usize| {
            let share = if random.one_in(4) { fair } else { random.within(fair * 2 / 5, fair) };
            let budget = (period * share / 1000).max(50_000);
            // Under fixed priorities each may have a period of its own.
            let period = if name == "deferrable" { period * random.within(2, 4) / 2 } else { period };
            let mut params = server(ns(budget.min(period)), ns(period), d as u32 + 1);
            params.extratime = random.of(&[None, Some(true), Some(false)]);
            if is_pinned { pinned(params, cpu as u32, processors) } else { params }
        };
        let params: Vec<UnitParams> = (0..vcpus).map(|cpu| vcpu(random, cpu)).collect();
        let supplied =
            params.iter().map(|of| of.budget.expect("set").as_ns() * 1000 / of.period.expect("set").as_ns());
        let supplied: u64 = if has_own_processors { 1000 * vcpus as u64 } else { supplied.sum() };
        let guest = random.of(&["fixed-priority", "edf"]);
        let vm = domain(&mut host, Parent::Pool(PoolIx(0)), guest, params);
        let count = random.within(1, 6);
        let asked = supplied * random.within(5, 80) / 100;
        for _ in 0..count {
            let own = period * random.within(150, 2_000) / 100;
            let cost = (own * asked / 1000 / count * random.within(30, 170) / 100).clamp(1_000, own);
            let priority = random.within(1, 4) as u32;
            let at = add_job(random, &mut host, vm, priority, cost, own);
            // Rate-monotonic, now and then not.
            if !random.one_in(4) {
                host.tasks[at].params.priority = Some((own / UNIT) as u32);
            }
        }
        if random.one_in(3) {
            hog(&mut host, vm, if random.one_in(4) { 1 } else { u32::MAX });
        }
    }
    if random.one_in(3) {
        let params = UnitParams { best_effort: true, ..UnitParams::default() };
        let spare = vm(&mut host, params);
        task(&mut host, spare, 1, ns(random.within(1_000, 500_000)), ms(random.within(1, 3)));
    }
    host
}

/// A host with one pool whose budgets are more than can be guaranteed; in half of its guests the tasks ask
/// for little of the budget.
pub fn random_overbooked(random: &mut Random) -> Host {
    let name = random.of(&["rtds", "sedf", "deferrable", "periodic", "polling"]);
    let processors = if ["rtds", "sedf"].contains(&name) { random.of(&[1, 1, 2]) } else { 1 };
    let mut host = pooled(processors, ms(400), policy(name));
    host.seed = random.number();
    if random.one_in(4) {
        host.overheads.decision = ns(random.within(0, 3_000));
        host.overheads.context_switch = ns(random.within(0, 8_000));
    }
    let domains = random.within(2, 4);
    for d in 0..domains {
        let period = random.of(&[20, 25, 30, 40, 50, 60, 80, 100, 120]) * UNIT;
        let share = random.within(800, 1_300) * processors as u64 / domains;
        let budget = (period * share / 1000).clamp(50_000, period);
        let mut params = server(ns(budget), ns(period), d as u32 + 1);
        params.extratime = random.of(&[None, Some(true), Some(false)]);
        let guest = random.of(&["fixed-priority", "edf"]);
        let vm = domain(&mut host, Parent::Pool(PoolIx(0)), guest, vec![params.clone()]);
        if random.one_in(2) {
            random_tasks(random, &mut host, vm, &params, share / 4, 1);
        } else {
            hog(&mut host, vm, 9);
            random_tasks(random, &mut host, vm, &params, share, 1);
        }
    }
    host
}

/// From an eighth of a share to all of it.
fn random_share(share: u64) -> (u64, u64) {
    (share / 8 + 1, share)
}

fn random_server(
    random: &mut Random,
    domains: usize,
    processors: usize,
    pinned_all: bool,
    d: usize,
) -> UnitParams {
    let period = random.of(&[20, 25, 30, 40, 50, 60, 80, 100, 120]) * UNIT;
    let fair = 1000 * processors as u64 / domains as u64;
    let share = random.within(fair / 4, fair * 11 / 10).clamp(20, 1000);
    let budget = (period * share / 1000).max(20_000).min(period);
    let mut params = server(ns(budget), ns(period), random.within(1, domains as u64) as u32);
    params.extratime = random.of(&[None, Some(true), Some(false)]);
    if pinned_all {
        params = pinned(params, (d % processors) as u32, processors);
    }
    params
}

/// Tasks that ask for a good part of the share (in thousandths of a processor), on several vCPUs mostly
/// pinned.
fn random_tasks(
    random: &mut Random,
    host: &mut Host,
    vm: Parent,
    own: &UnitParams,
    share: u64,
    vcpus: usize,
) {
    let period = own.period.expect("of a server").as_ns();
    let count = random.within(1, 4);
    let unpinned = random.one_in(5);
    let asked = share * random.within(20, 110) / 100;
    for i in 0..count {
        let multiple = random.within(2, 9);
        let own_period =
            if random.one_in(3) { period * multiple } else { period * random.within(150, 900) / 100 };
        let cost = (own_period * asked / 1000 / count).max(1_000);
        let at = add_job(random, host, vm, i as u32, cost, own_period);
        let params = &mut host.tasks[at].params;
        params.priority = Some(random.within(1, 4) as u32 * (1 + i as u32));
        if vcpus > 1 && !unpinned {
            *params = pinned(params.clone(), (i % vcpus as u64) as u32, vcpus);
        }
    }
    if random.one_in(2) {
        let at = hog(host, vm, u32::MAX);
        host.tasks[at].work = Work::Hog { start: ns(random.within(0, 3 * period)) };
        if vcpus > 1 && !unpinned {
            host.tasks[at].params = pinned(host.tasks[at].params.clone(), 0, vcpus);
        }
    }
}

fn random_task(
    random: &mut Random,
    host: &mut Host,
    pool: Parent,
    share: (u64, u64),
    processors: usize,
    pinned_all: bool,
) {
    let period = random.within(20, 200) * UNIT;
    let cost = (period * random.within(share.0, share.1) / 1000).max(20_000);
    let priority = random.within(1, 9) as u32;
    let at = add_job(random, host, pool, priority, cost, period);
    let Work::Jobs { cost, deadline, .. } = host.tasks[at].work else { unreachable!() };
    let params = &mut host.tasks[at].params;
    params.budget = Some(cost.max.min(ns(period)));
    params.period = Some(ns(period));
    params.deadline = Some(deadline);
    if pinned_all {
        *params = pinned(params.clone(), (at % processors) as u32, processors);
    }
}

fn add_job(
    random: &mut Random,
    host: &mut Host,
    parent: Parent,
    priority: u32,
    cost: u64,
    period: u64,
) -> usize {
    let at = task(host, parent, priority, ns(cost), ns(period));
    if let Work::Jobs { deadline, cost, arrival } = &mut host.tasks[at].work {
        if random.one_in(3) {
            *deadline = ns(random.within(cost.max.as_ns().min(period), period));
        }
        if random.one_in(6) {
            cost.min = ns(cost.max.as_ns() / 2);
        }
        if random.one_in(5) {
            let slack_mean = ns(period / 10);
            *arrival = Arrival::Sporadic { separation: ns(period), slack_mean, offset: Duration::ZERO };
        }
    }
    at
}

/// First released, or started, at `to` ns.
pub fn set_offset(host: &mut Host, task: usize, to: u64) {
    match &mut host.tasks[task].work {
        Work::Jobs {
            arrival: Arrival::Periodic { offset, .. } | Arrival::Sporadic { offset, .. }, ..
        } => {
            *offset = ns(to);
        }
        Work::Served { .. } => unreachable!("these hosts have no networks"),
        Work::Hog { start } => *start = ns(to),
    }
}

/// The period or separation of the task at that place, in ns.
pub fn period_of(host: &Host, task: usize) -> u64 {
    period_of_work(&host.tasks[task].work)
}

/// The period or separation, in ns; for a hog some time.
pub fn period_of_work(work: &Work) -> u64 {
    match work {
        Work::Jobs { arrival: Arrival::Periodic { period, .. }, .. } => period.as_ns(),
        Work::Jobs { arrival: Arrival::Sporadic { separation, .. }, .. } => separation.as_ns(),
        Work::Served { .. } => unreachable!("these hosts have no networks"),
        Work::Hog { .. } => 10_000_000,
    }
}

/// Releases just when the vCPU's budget may have been used up.
pub fn exhausting_offsets(random: &mut Random, host: &mut Host) {
    for task in 0..host.tasks.len() {
        let Parent::Domain(domain) = host.tasks[task].parent else { continue };
        let vcpu = &host.vcpus[host.domains[domain.0].vcpus.start].params;
        let (Some(budget), Some(period)) = (vcpu.budget, vcpu.period) else { continue };
        let (budget, period) = (budget.as_ns(), period.as_ns());
        let hog = matches!(host.tasks[task].work, Work::Hog { .. });
        let just = if hog { 0 } else { budget + random.within(0, 1) };
        set_offset(host, task, period * random.within(0, 2) + just);
    }
}

/// First releases within two periods.
pub fn random_offsets(random: &mut Random, host: &mut Host) {
    for task in 0..host.tasks.len() {
        let period = period_of(host, task);
        set_offset(host, task, random.within(0, 2 * period));
    }
}

/// A random host in which tasks of a guest share resources.
pub fn random_shared(random: &mut Random) -> Host {
    loop {
        let mut host = random_host(random);
        for domain in 0..host.domains.len() {
            share_resources(random, &mut host, DomainIx(domain));
        }
        if host.tasks.iter().any(|task| !task.sections.is_empty()) {
            return host;
        }
    }
}

/// Gives the domain resources, and its tasks critical sections, if its guest can have any.
fn share_resources(random: &mut Random, host: &mut Host, domain: DomainIx) {
    let of = &mut host.domains[domain.0];
    if of.vcpus.len() != 1 || guest_order(of.guest.info).is_none() {
        return;
    }
    let [none, inherit, ceiling] = [Protocol::None, Protocol::Inherit, Protocol::Ceiling];
    let mostly = random.of(&[inherit, inherit, inherit, ceiling, ceiling, ceiling, none]);
    let count = random.within(1, 3) as usize;
    for n in 0..count {
        let protocol = if random.one_in(6) { random.of(&[none, inherit, ceiling]) } else { mostly };
        of.resources.push(Resource { name: format!("r{n}"), protocol });
    }
    for task in host.tasks.iter_mut().filter(|task| task.parent == Parent::Domain(domain)) {
        if let Work::Jobs { cost, .. } = task.work
            && !random.one_in(3)
        {
            task.sections = random_sections(random, cost.max.as_ns(), count);
        }
    }
}

/// Sections of a job of this cost, mostly short ones. Most tasks take resources in the same order.
fn random_sections(random: &mut Random, cost: u64, resources: usize) -> Vec<CriticalSection> {
    let mut sections = Vec::new();
    let mut from = 0;
    let section =
        |resource, after, length| CriticalSection { resource, after: ns(after), length: ns(length) };
    for _ in 0..random.within(1, 2) {
        let after = from + random.within(0, (cost - from) / 2);
        let most = (cost * random.within(1, 40) / 100).max(1);
        let length = random.within(1, most).min(cost - after);
        if length == 0 {
            break;
        }
        let resource = random.within(0, resources as u64 - 1) as usize;
        sections.push(section(resource, after, length));
        let inner =
            if random.one_in(8) { random.within(0, resources as u64 - 1) as usize } else { resource + 1 };
        if length > 2 && inner < resources && inner != resource && random.one_in(2) {
            let later = random.within(0, length / 2);
            sections.push(section(inner, after + later, random.within(1, length - later)));
        }
        from = after + length;
    }
    sections
}
