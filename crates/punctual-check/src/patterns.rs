//! Release patterns that a host file permits, and that hurt.

use punctual_analysis::{FirstRelease, Pattern};
use punctual_model::Host;
use punctual_model::host::{Arrival, Parent, Task, Work};
use punctual_model::index::TaskIx;
use punctual_sched::Duration;
use punctual_sched::registry::{SchedulabilityTest, ServerKind};

/// How many random patterns are tried.
const RANDOM: usize = 12;

/// How many units are attacked one by one.
const ATTACKED_MAX: usize = 16;

/// Beyond this time the periods of servers do not coincide soon enough.
const COINCIDENCE_MAX: Duration = Duration::from_ms(500);

/// A budget in every period.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    budget: Duration,
    period: Duration,
}

/// The patterns to try, the likeliest first. In each, every task of the host releases its jobs as close
/// together as it may, and every job takes its greatest cost; they differ in the first releases.
pub fn patterns(host: &Host) -> Vec<Pattern> {
    let mut found = vec![Pattern::Synchronous];
    let budgets = budgets(host);
    let mut add = |first: Vec<Duration>| found.push(released(host, &first));
    let own: Vec<Duration> = host.tasks.iter().map(|task| first_release(&task.work)).collect();
    if own.iter().any(|at| !at.is_zero()) {
        add(own);
    }
    saved_budgets(&budgets).into_iter().for_each(&mut add);
    let mut random = Draws { number: 0 };
    (0..RANDOM).for_each(|_| add(at_random(host, &budgets, &mut random)));
    found
}

/// The pattern with these first releases, by task; those of tasks that are bound to the replenishments of
/// their server at the last one before.
pub(crate) fn released(host: &Host, first: &[Duration]) -> Pattern {
    let at = |task: usize, at: Duration| match bound_to(host, task) {
        Some(period) => at - at % period,
        None => at,
    };
    let first = first.iter().enumerate();
    let first = first.map(|(task, first)| FirstRelease::new(host, TaskIx(task), at(task, *first)));
    Pattern::Released(first.collect())
}

/// The period of the server to whose replenishments a task is bound: there alone a guarantee depends on the
/// offset in the file.
fn bound_to(host: &Host, task: usize) -> Option<Duration> {
    let Task { parent, work, params, .. } = &host.tasks[task];
    let Work::Jobs { arrival: Arrival::Periodic { period, offset }, .. } = work else { return None };
    let info = host.pools[host.pool_of(*parent).0].policy.info;
    let SchedulabilityTest::FixedPriorityServers(kind) = info.test else { return None };
    let server = match parent {
        Parent::Pool(_) => info.period(params).filter(|period| !period.is_zero())?,
        Parent::Domain(_) => budget_of(host, *parent)?.period,
    };
    let is_bound = period.is_multiple_of(server) && offset.is_multiple_of(server);
    (is_bound && kind != ServerKind::Sporadic).then_some(server)
}

/// When the file has the first job released.
fn first_release(work: &Work) -> Duration {
    match *work {
        Work::Jobs {
            arrival: Arrival::Periodic { offset, .. } | Arrival::Sporadic { offset, .. }, ..
        } => offset,
        Work::Hog { start } => start,
        Work::Served { .. } => Duration::ZERO,
    }
}

/// By task: the budget that it runs in.
pub(crate) fn budgets(host: &Host) -> Vec<Option<Budget>> {
    host.tasks.iter().map(|task| budget_of(host, task.parent)).collect()
}

/// Another first release for one of the tasks, whose budgets are these: where the budget has just been used
/// up, where it is saved until the period's end, together with another task, or anywhere.
pub(crate) fn move_one(host: &Host, budgets: &[Option<Budget>], random: &mut Draws, first: &mut [Duration]) {
    let task = random.below(first.len() as u64) as usize;
    let period = separation(&host.tasks[task].work);
    first[task] = match (budgets[task], random.below(5)) {
        (Some(of), 0) => of.period * random.below(3) + of.budget,
        (Some(of), 1) => of.period * (1 + random.below(3)) - of.budget,
        (_, 2) => first[random.below(first.len() as u64) as usize],
        (_, 3) => {
            let near = (period.as_ns() / 16).max(1);
            Duration::from_ns((first[task].as_ns() + random.below(2 * near)).saturating_sub(near))
        }
        _ => Duration::from_ns(random.below(2 * period.as_ns() + 1)),
    };
}

/// The budget that a parent's unit has, if it is one vCPU with a budget or a part of one.
fn budget_of(host: &Host, parent: Parent) -> Option<Budget> {
    let Parent::Domain(domain) = parent else { return None };
    let domain = &host.domains[domain.0];
    let params = &host.vcpus.get(domain.vcpus.start)?.params;
    match params.budget.zip(params.period) {
        Some((budget, period)) if !period.is_zero() => Some(Budget { budget: budget.min(period), period }),
        _ => budget_of(host, domain.parent),
    }
}

/// Servers that kept their budgets until the end of a period and get new ones then: each serves two budgets
/// without a break, all of them at one time. Once for everybody, and once for each server that is released
/// when the others come back.
fn saved_budgets(budgets: &[Option<Budget>]) -> Vec<Vec<Duration>> {
    let periods = budgets.iter().flatten().map(|of| of.period);
    let Some(end) = periods.reduce(|a, b| common(a, b).unwrap_or(a.max(b))) else { return Vec::new() };
    let saved = |of: &Option<Budget>| of.map_or(Duration::ZERO, |of| end.saturating_sub(of.budget));
    let mut found = vec![budgets.iter().map(saved).collect::<Vec<_>>()];
    let mut servers: Vec<Budget> = Vec::new();
    budgets.iter().flatten().for_each(|of| {
        if !servers.contains(of) {
            servers.push(*of);
        }
    });
    for victim in servers.iter().take(ATTACKED_MAX) {
        let earliest = budgets.iter().map(saved).min().unwrap_or_default();
        for at in [earliest, end, end.saturating_sub(victim.period) + victim.budget] {
            found.push(budgets.iter().map(|of| if *of == Some(*victim) { at } else { saved(of) }).collect());
        }
    }
    found
}

/// The least common multiple, unless it is too far away.
fn common(a: Duration, b: Duration) -> Option<Duration> {
    let (mut x, mut y) = (a.as_ns(), b.as_ns());
    while y != 0 {
        (x, y) = (y, x % y);
    }
    let multiple = (a.as_ns() / x).checked_mul(b.as_ns()).map(Duration::from_ns);
    multiple.filter(|multiple| *multiple <= COINCIDENCE_MAX)
}

/// Random numbers, the same for every host.
pub(crate) struct Draws {
    pub(crate) number: u64,
}

impl Draws {
    /// One below `limit`, which is above zero.
    fn below(&mut self, limit: u64) -> u64 {
        self.number += 1;
        punctual_jobs::mix(1, self.number) % limit
    }
}

/// First releases within two periods of the tasks, some of them where the budget of their server has just
/// been used up.
fn at_random(host: &Host, budgets: &[Option<Budget>], random: &mut Draws) -> Vec<Duration> {
    let at = |(task, budget): (&Task, &Option<Budget>)| match (budget, random.below(3)) {
        (Some(of), 0) => of.period * random.below(3) + of.budget,
        (Some(of), 1) => of.period * (1 + random.below(3)) - of.budget,
        _ => Duration::from_ns(random.below(2 * separation(&task.work).as_ns() + 1)),
    };
    host.tasks.iter().zip(budgets).map(at).collect()
}

/// The least distance of two releases; for a busy loop some time.
pub(crate) fn separation(work: &Work) -> Duration {
    match *work {
        Work::Jobs { arrival: Arrival::Periodic { period, .. }, .. } => period,
        Work::Jobs { arrival: Arrival::Sporadic { separation, .. }, .. } => separation,
        Work::Served { .. } | Work::Hog { .. } => Duration::from_ms(10),
    }
}
