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

use crate::overload;

/// So many of the longest period are simulated.
const PERIODS: u64 = 10;

/// No vCPU is simulated for more periods than this.
const PERIODS_MAX: u64 = 20_000;

/// Refutes those budgets about which nothing is known and that are not delivered in one of their periods, and
/// adds to those that the analysis refutes how much is missing.
pub(crate) fn refute(host: &Host, answers: &mut Answers) {
    let is_open = |answer: &Answer| match answer {
        Answer::Unknown(_) => true,
        Answer::Refuted(refutation) => refutation.short.is_none(),
        Answer::Guaranteed { .. } => false,
    };
    let open = answers.vcpus.iter().filter(|(_, of)| is_open(&of.answer));
    let open: BTreeMap<VcpuIx, Budget> =
        open.filter_map(|(vcpu, of)| Some((*vcpu, budget(host, *vcpu, of.period)?))).collect();
    let Some(longest) = open.values().map(|of| of.period).max() else { return };
    let shortest = open.values().map(|of| of.period).min().unwrap_or(longest);
    let wanted = (longest * PERIODS).max(overload::of_budgets(host).unwrap_or_default() + longest);
    let mut busy = busy(host);
    busy.duration = wanted.min(shortest * PERIODS_MAX).max(longest);
    let mut supplied = Supplied { physical: host.processors as u32, of: BTreeMap::new(), open: &open };
    if simulate_observed(&busy, &mut supplied).is_err() {
        return;
    }
    for (vcpu, of) in &open {
        let whole = busy.duration.div_floor(of.period);
        let got = |number: u64| supplied.of.get(&(*vcpu, number)).copied().unwrap_or_default();
        if let (Some((number, short)), Some(answer)) =
            (of.first_short(whole, got), answers.vcpus.get_mut(vcpu))
        {
            let by = of.period * (number + 1);
            answer.answer = Answer::Refuted(Refutation::all_busy(by, Some(short)));
        }
    }
}

/// In which periods a server that is busy from the start has its budget.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Periods {
    /// In each, from one multiple of the period to the next.
    Each,
    /// In the first; the others begin when it has run.
    First,
    /// By the end of each, as many budgets as there have been periods: it may be ahead.
    Together,
}

/// A budget in every period.
#[derive(Clone, Copy)]
struct Budget {
    budget: Duration,
    period: Duration,
    periods: Periods,
}

impl Budget {
    /// The first of so many periods whose budget is short, and by how much; `got`: what a period brought.
    fn first_short(&self, periods: u64, got: impl Fn(u64) -> Duration) -> Option<(u64, Duration)> {
        let mut together = Duration::ZERO;
        let mut short = |number: u64| {
            together += got(number);
            match self.periods {
                Periods::Each => self.budget.saturating_sub(got(number)),
                Periods::First if number > 0 => Duration::ZERO,
                Periods::First | Periods::Together => (self.budget * (number + 1)).saturating_sub(together),
            }
        };
        (0..periods).map(|number| (number, short(number))).find(|(_, short)| !short.is_zero())
    }
}

/// The vCPU's budget; `None` where its policy promises none.
fn budget(host: &Host, vcpu: VcpuIx, period: Duration) -> Option<Budget> {
    let domain = host.vcpus[vcpu.0].domain;
    // What others of its VM run is not counted here.
    let Parent::Pool(pool) = host.domains[domain.0].parent else { return None };
    if host.shares_budget(domain) {
        return None;
    }
    let info = host.pools[pool.0].policy.info;
    let budget = info.budget(&host.vcpus[vcpu.0].params)?;
    let periods = match info.test {
        SchedulabilityTest::FixedPriorityServers(ServerKind::Sporadic) => Periods::First,
        SchedulabilityTest::EdfServers | SchedulabilityTest::FixedPriorityServers(_) => Periods::Each,
        SchedulabilityTest::BandwidthServers => Periods::Together,
        _ => return None,
    };
    (!period.is_zero()).then_some(Budget { budget: budget.min(period), period, periods })
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
                sections: Vec::new(),
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
