//! Servers by fixed priority on one processor: deferrable, periodic, polling and sporadic.

use punctual_model::index::{DomainIx, PoolIx, VcpuIx};
use punctual_sched::Duration;
use punctual_sched::registry::ServerKind;
use punctual_sched::servers::{self, sporadic};

use super::decisions::{add_starts, add_wakes, decisions, paid_decisions};
use super::reserved::Reserved;
use super::supplied::service;
use crate::answer::Test;
use crate::demand::{Demand, fixed_point, requested};
use crate::findings::{BudgetAnswer, Findings};
use crate::fixed_priority::Server;
use crate::guest::{self, Cap, Content, Supplier};
use crate::inputs::{Inputs, UnitIx};
use crate::overhead::Decisions;
use crate::reason::Reason;
use crate::several_vcpus::{Kept, VcpuSupply};
use crate::supply::Supply;

/// A unit as a server below more urgent ones.
struct Placed {
    unit: UnitIx,
    reserved: Reserved,
    server: Server,
    /// From a replenishment to the end of the budget; `None` beyond the period.
    time: Option<Duration>,
    /// Why it has no guarantee whatever its response time.
    obstacle: Option<Reason>,
    /// Does it surely not get its budget in its first period when all vCPUs are busy?
    is_late_when_busy: bool,
}

/// One processor's servers.
pub(super) fn servers(
    inputs: Inputs<'_>,
    pool: PoolIx,
    units: &[UnitIx],
    kind: ServerKind,
    wanted: Option<UnitIx>,
) -> Findings {
    let options = &inputs.pool(pool).policy.options;
    if options.word(&servers::ACCOUNTING) == servers::IN_QUANTA {
        let units = units.iter().copied();
        return Findings::unknown_units(inputs, pool, units, Reason::QuantumAccounting, Test::Servers);
    }
    let has_one_refill = kind == ServerKind::Sporadic && options.count(&sporadic::REFILLS_MAX) == 1;
    let placed = by_urgency(inputs, pool, units, kind, has_one_refill);
    let decisions = all_decisions(inputs, pool, units);
    let has_turns = Turns::of(inputs, units).any();
    let found = placed.into_iter().map(|placed| {
        let supplied = decisions
            .as_ref()
            .filter(|_| !has_turns)
            .and_then(|costs| supply_to_several(inputs, &placed, kind, costs));
        let mut found = of_server(inputs, placed, kind, wanted);
        found.supplies.extend(supplied);
        found
    });
    found.fold(Findings::default(), Findings::and)
}

/// The servers, most urgent first, each with what delays it.
fn by_urgency(
    inputs: Inputs<'_>,
    pool: PoolIx,
    units: &[UnitIx],
    kind: ServerKind,
    has_one_refill: bool,
) -> Vec<Placed> {
    let policy = &inputs.pool(pool).policy;
    let mut units = units.to_vec();
    // Stable: equal priorities rank in the order of insertion.
    units.sort_by_key(|unit| inputs.priority(*unit));
    let reserved = |unit: &UnitIx| Reserved::of(policy.info, inputs.params(*unit));
    let reserved: Vec<Reserved> = units.iter().map(reserved).collect();
    let mut costs = paid_decisions(inputs, pool);
    if kind == ServerKind::Polling {
        // A replenishment without work asks for a decision whatever runs.
        reserved.iter().for_each(|own| costs.every(own.period, 1));
    }
    let turns = Turns::of(inputs, &units);
    let mut more_urgent: Vec<Demand> = Vec::new();
    let mut surely: Vec<Demand> = Vec::new();
    let mut unbounded = None;
    let mut placed = Vec::new();
    for (at, (unit, own)) in units.into_iter().zip(reserved.iter().copied()).enumerate() {
        // Its budget comes back: it begins to run, or goes on.
        costs.every(own.period, 1);
        let mut paid = costs.clone();
        if let Some(quantum) = servers::quantum(&policy.options).filter(|quantum| *quantum <= own.budget) {
            paid.quantum(quantum, inputs.host.overheads.decision);
        }
        unbounded = unbounded.or(add_starts(inputs, unit, &mut costs));
        let obstacle = if !costs.free() && kind == ServerKind::Sporadic {
            Some(Reason::FragmentedBudget)
        } else {
            let one_refill = has_one_refill.then_some(Reason::OneRefill);
            unbounded.filter(|_| !costs.free()).or(one_refill)
        };
        let server = Server {
            budget: own.budget,
            period: own.period,
            gap: if kind == ServerKind::Polling { own.period } else { own.period - own.budget },
            more_urgent: more_urgent.iter().copied().chain(turns.delaying(at, &reserved)).collect(),
            costs: paid,
        };
        let time = server.time_for_budget();
        let is_in_order = !turns.any();
        more_urgent.push(if is_in_order { as_more_urgent(own, kind, &costs, time) } else { saved_up(own) });
        // A switch to a less urgent unit may be under way whenever its budget comes back.
        let sure = Demand::implicit(own.budget.saturating_sub(costs.change()), own.period);
        // Who takes turns may be served before its place.
        let is_late_when_busy = is_in_order && is_late(sure, &surely);
        if !is_late_when_busy {
            surely.push(sure);
        }
        placed.push(Placed { unit, reserved: own, server, time, obstacle, is_late_when_busy });
    }
    placed
}

/// A server whose budget others see at any time of its period, so twice without a break; scheduling is free.
fn saved_up(own: Reserved) -> Demand {
    Demand::implicit(own.budget, own.period).late_by(own.period - own.budget)
}

/// Which units take [turns](punctual_sched::turns): a vCPU runs at the place of the most urgent vCPU of its
/// VM.
struct Turns {
    /// By unit, most urgent first: its VM, where others of it are here.
    vms: Vec<Option<DomainIx>>,
}

impl Turns {
    /// `units`: most urgent first.
    fn of(inputs: Inputs<'_>, units: &[UnitIx]) -> Self {
        let vm = |unit: &UnitIx| match unit {
            UnitIx::Vcpu(vcpu) => Some(inputs.host.vcpus[vcpu.0].domain),
            UnitIx::Task(_) => None,
        };
        let vms: Vec<_> = units.iter().map(vm).collect();
        let is_shared = |of: &Option<DomainIx>| vms.iter().filter(|other| *other == of).count() > 1;
        Turns { vms: vms.iter().map(|of| of.filter(|_| is_shared(of))).collect() }
    }

    fn any(&self) -> bool {
        self.vms.iter().any(Option::is_some)
    }

    /// What delays the unit at `at` although it comes after it: the other vCPUs of its VM, and those of VMs
    /// one of whose vCPUs comes before it.
    fn delaying(&self, at: usize, reserved: &[Reserved]) -> Vec<Demand> {
        let comes_before = |vm: DomainIx| self.vms[..=at].contains(&Some(vm));
        let later = (at + 1..self.vms.len()).filter(|later| self.vms[*later].is_some_and(comes_before));
        later.map(|later| saved_up(reserved[later])).collect()
    }
}

/// Is the demand not met in its period below these, all from 0 on? A server that loses budget itself uses
/// less than it has, so it is none of them.
fn is_late(own: Demand, surely: &[Demand]) -> bool {
    !own.cost.is_zero() && fixed_point(own.cost, own.period, |w| own.cost + requested(surely, w)).is_none()
}

/// A server as less urgent ones see it.
fn as_more_urgent(own: Reserved, kind: ServerKind, costs: &Decisions, time: Option<Duration>) -> Demand {
    // What has no guarantee itself may come late.
    let is_on_time = match kind {
        ServerKind::Sporadic => true,
        ServerKind::Deferrable => false,
        ServerKind::Periodic | ServerKind::Polling => costs.free() && time.is_some(),
    };
    let jitter = if is_on_time { Duration::ZERO } else { own.period - own.budget };
    // A switch may overrun the budget.
    Demand::implicit(own.budget + costs.change(), own.period).late_by(jitter)
}

/// All decisions on the processor, however often its units wake and sleep; `None` without a bound.
fn all_decisions(inputs: Inputs<'_>, pool: PoolIx, units: &[UnitIx]) -> Option<Decisions> {
    let mut costs = decisions(inputs, pool, 1);
    for unit in units {
        let unbounded = add_wakes(inputs, *unit, 1, &mut costs);
        if unbounded.is_some() && !costs.free() {
            return None;
        }
        let period = inputs.params(*unit).period.filter(|period| !period.is_zero())?;
        costs.every(period, 2);
        costs.also(2);
    }
    Some(costs)
}

/// What a deferrable server gives to a guest of several vCPUs, if it is a vCPU of one; `all`: all decisions
/// on the processor. The other kinds lose budget when they have no work, and a vCPU beside others often has
/// none.
///
/// In a period it stands still without budget only when it has used all of it; otherwise only for more urgent
/// servers, which use no more in any window than requested, and decisions.
fn supply_to_several(
    inputs: Inputs<'_>,
    placed: &Placed,
    kind: ServerKind,
    all: &Decisions,
) -> Option<(VcpuIx, VcpuSupply)> {
    let UnitIx::Vcpu(vcpu) = placed.unit else { return None };
    if kind != ServerKind::Deferrable || inputs.domain_of(vcpu).vcpus.len() < 2 {
        return None;
    }
    if placed.obstacle.is_some() {
        return None;
    }
    let server = if placed.time.is_some() { placed.server.clone() } else { placed.server.reduced()? };
    let period = server.period;
    let decisions = all.within(period);
    let usable = placed.reserved.budget.checked_sub(decisions).filter(|usable| !usable.is_zero())?;
    let taken = requested(&server.more_urgent, period) + decisions;
    let still = taken.max(period - usable).min(period);
    let budget = placed.reserved.budget;
    let taken = requested(&server.more_urgent, budget) + all.within(budget);
    let kept = Kept { budget, taken: taken.min(budget), is_for_all: false, is_aligned: true };
    Some((vcpu, VcpuSupply { supply: server.supply()?, still, period, kept }))
}

fn of_server(inputs: Inputs<'_>, placed: Placed, kind: ServerKind, wanted: Option<UnitIx>) -> Findings {
    let Placed { unit, reserved: own, server, time, obstacle, is_late_when_busy } = placed;
    let decisions = server.taken_by_decisions();
    let content = guest::content(inputs, unit);
    let is_wanted = wanted.is_none_or(|wanted| wanted == unit);
    let light = match &content {
        Ok(Content::Ranked(tasks)) if is_wanted && kind == ServerKind::Deferrable && obstacle.is_none() => {
            guest::light(inputs, tasks, &server)
        }
        _ => Findings::default(),
    };
    let time = match (obstacle, time) {
        (Some(reason), _) => Err(reason),
        (None, None) => Err(Reason::MoreUrgentVcpus {
            taken: server.taken_by_others(own.period).min(own.period),
            period: own.period,
            budget: own.budget,
        }),
        (None, Some(_)) if decisions >= own.budget => {
            Err(Reason::NothingLeft { taken: decisions, period: own.period, budget: own.budget })
        }
        (None, Some(time)) => Ok(time),
    };
    let mut answer = BudgetAnswer::new(own.period, time);
    // A sporadic server that is delayed gets its budget back later, so it delays others less than this.
    if time.is_err() && kind != ServerKind::Sporadic && is_late_when_busy {
        answer = answer.refuted();
    }
    let mut found = Findings::default();
    found.budgets.insert(unit, answer);
    if !is_wanted {
        return found;
    }
    let less = match time {
        Err(Reason::MoreUrgentVcpus { .. }) if kind != ServerKind::Sporadic => {
            let reduced = server.reduced().filter(|of| of.taken_by_decisions() < of.budget);
            let together = server.supplies_together().into_iter().map(Supplier::Supply);
            guest::inside_less(inputs, &content, reduced.map(Supplier::Server).into_iter().chain(together))
        }
        _ => Findings::default(),
    };
    let supplier = time.map(|time| match kind {
        ServerKind::Sporadic => Supplier::Supply(sporadic_supply(own, time)),
        _ => Supplier::Server(server),
    });
    // Of sporadic servers only those that have a known content count as supplied.
    let is_known = kind != ServerKind::Sporadic || content.is_ok();
    if let Some(supply) = supplier.as_ref().ok().filter(|_| is_known).and_then(Supplier::supply) {
        found = found.and(service(inputs, unit, supply));
    }
    let cap = Cap { budget: own.budget, period: own.period, more: 0 };
    let found = found.and(match (content, supplier) {
        (Err(reason), _) => Findings::unknown_below(inputs, [unit], reason, Test::Servers),
        (Ok(content), Ok(supplier)) => guest::inside(inputs, &content, &supplier, Some(cap)),
        (Ok(content), Err(reason)) => guest::unsupplied(inputs, &content, cap, reason, Test::Servers),
    });
    found.improved_by(less).improved_by(light)
}

/// What a sporadic server supplies that gets its budget within `time` of having it.
///
/// A stretch of execution comes back one period after it began, or up to two periods when the table of
/// refills was full and it was merged with later ones. A server that waits with all its budget outstanding
/// has therefore run for its budget during the last two periods; a server with budget runs but for `time -
/// budget`. So any interval of two periods and `time - budget` in which it always has work contains its
/// budget.
fn sporadic_supply(own: Reserved, time: Duration) -> Supply {
    let period = own.period * 2 + (time - own.budget);
    Supply { delay: period - own.budget, budget: own.budget, period }
}
