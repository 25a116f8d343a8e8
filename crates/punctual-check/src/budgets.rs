//! Budgets that are not delivered in a simulation in which every vCPU always has work.

use std::collections::BTreeMap;

use punctual_analysis::{Answer, Answers, Refutation};
use punctual_model::Host;
use punctual_model::host::{Parent, Task, Work};
use punctual_model::index::{DomainIx, VcpuIx};
use punctual_sched::registry::{SchedulabilityTest, ServerKind};
use punctual_sched::{Duration, Instant, UnitParams};
use punctual_sim::observe::{Event, Observer, UnitIx};
use punctual_sim::simulate_observed;

/// So many of the longest period are simulated.
const PERIODS: u64 = 10;

/// No vCPU is simulated for more periods than this.
const PERIODS_MAX: u64 = 20_000;

/// Refutes those budgets about which nothing is known and that are not delivered in one of their periods.
pub(crate) fn refute(host: &Host, answers: &mut Answers) {
    let open = answers.vcpus.iter().filter(|(_, of)| matches!(of.answer, Answer::Unknown(_)));
    let open = open.filter(|(vcpu, _)| has_fixed_periods(host, **vcpu));
    let open: BTreeMap<VcpuIx, Budget> =
        open.filter_map(|(vcpu, of)| Some((*vcpu, budget(host, *vcpu, of.period)?))).collect();
    let Some(longest) = open.values().map(|of| of.period).max() else { return };
    let shortest = open.values().map(|of| of.period).min().unwrap_or(longest);
    let mut busy = busy(host);
    busy.duration = (longest * PERIODS).min(shortest * PERIODS_MAX).max(longest);
    let mut supplied = Supplied { physical: host.processors as u32, of: BTreeMap::new(), open: &open };
    if simulate_observed(&busy, &mut supplied).is_err() {
        return;
    }
    for (vcpu, of) in &open {
        let whole = busy.duration.div_floor(of.period);
        let got = |number: u64| supplied.of.get(&(*vcpu, number)).copied().unwrap_or_default();
        let short = (0..whole).find(|number| got(*number) < of.budget);
        if let (Some(number), Some(answer)) = (short, answers.vcpus.get_mut(vcpu)) {
            answer.answer = Answer::Refuted(Refutation::all_busy(of.period * (number + 1)));
        }
    }
}

/// A budget in every period.
#[derive(Clone, Copy)]
struct Budget {
    budget: Duration,
    period: Duration,
}

fn budget(host: &Host, vcpu: VcpuIx, period: Duration) -> Option<Budget> {
    let Parent::Pool(pool) = host.domains[host.vcpus[vcpu.0].domain.0].parent else { return None };
    let budget = host.pools[pool.0].policy.info.budget(&host.vcpus[vcpu.0].params)?;
    (!period.is_zero()).then_some(Budget { budget: budget.min(period), period })
}

/// Do the periods of a busy server begin at multiples of the period? Those of sporadic and bandwidth servers
/// begin when they are used.
fn has_fixed_periods(host: &Host, vcpu: VcpuIx) -> bool {
    let Parent::Pool(pool) = host.domains[host.vcpus[vcpu.0].domain.0].parent else { return false };
    match host.pools[pool.0].policy.info.test {
        SchedulabilityTest::EdfServers => true,
        SchedulabilityTest::FixedPriorityServers(kind) => kind != ServerKind::Sporadic,
        _ => false,
    }
}

/// The host with a busy loop on every vCPU and in place of every task of a pool.
fn busy(host: &Host) -> Host {
    let hog = Work::Hog { start: Duration::ZERO };
    let mut busy = host.clone();
    busy.tasks.retain(|task| matches!(task.parent, Parent::Pool(_)));
    for task in &mut busy.tasks {
        task.work = hog;
    }
    for (i, domain) in host.domains.iter().enumerate() {
        for number in 0..domain.vcpus.len() {
            busy.tasks.push(Task {
                name: format!("busy{number}"),
                parent: Parent::Domain(DomainIx(i)),
                params: UnitParams { priority: Some(u32::MAX), ..UnitParams::default() },
                work: hog,
            });
        }
    }
    busy
}

/// Adds up what vCPUs are charged for on physical processors, by period.
struct Supplied<'a> {
    physical: u32,
    of: BTreeMap<(VcpuIx, u64), Duration>,
    open: &'a BTreeMap<VcpuIx, Budget>,
}

impl Observer for Supplied<'_> {
    const STEPS: bool = false;

    fn observe(&mut self, now: Instant, event: Event<'_>) {
        let Event::Slice { processor, occupant, from, .. } = event else { return };
        let Some(UnitIx(unit)) = occupant.charged().filter(|_| processor.0 < self.physical) else { return };
        let vcpu = VcpuIx(unit as usize);
        let Some(of) = self.open.get(&vcpu) else { return };
        let mut at = from;
        while at < now {
            let number = at.since(Instant::ZERO).div_floor(of.period);
            let end = (Instant::ZERO + of.period * (number + 1)).min(now);
            *self.of.entry((vcpu, number)).or_default() += end.since(at);
            at = end;
        }
    }
}
