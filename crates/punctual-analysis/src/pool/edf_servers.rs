//! RTDS and SEDF: servers that keep their budget while they sleep, by earliest deadline.

use punctual_model::index::{PoolIx, VcpuIx};
use punctual_sched::registry::PolicyInfo;
use punctual_sched::{Duration, rtds, sedf};

use super::decisions::{add_wakes, decisions};
use super::groups::{GLOBAL_MAX, Group};
use super::reserved::Reserved;
use super::supplied::{self, Budget};
use crate::answer::Test;
use crate::findings::Findings;
use crate::global_edf::{self, DeferrableServer};
use crate::guest::Cap;
use crate::inputs::{Inputs, UnitIx};
use crate::overhead::Decisions;
use crate::reason::Reason;
use crate::several_vcpus::{Kept, VcpuSupply};
use crate::supply::{Supply, Unsure};

/// Servers that share processors.
struct Servers {
    all: Vec<DeferrableServer>,
    processors: usize,
    costs: Decisions,
    /// Why the number of decisions has no bound, if it has none.
    unbounded: Option<Reason>,
    /// By server: its VM, or the unit itself.
    siblings: Vec<UnitIx>,
    /// Do all periods begin at multiples of their length? Those of SEDF begin with a wake-up.
    is_aligned: bool,
}

pub(super) fn servers(
    inputs: Inputs<'_>,
    pool: PoolIx,
    group: &Group,
    info: &PolicyInfo,
    wanted: Option<UnitIx>,
) -> Findings {
    let options = &inputs.pool(pool).policy.options;
    if info.option(sedf::UNBLOCK.name).is_some() && options.word(&sedf::UNBLOCK) == sedf::XEN {
        let units = group.units.iter().copied();
        return Findings::unknown_units(inputs, pool, units, Reason::LostSlice, Test::Policy(info.name));
    }
    let reserved = |unit: &UnitIx| Reserved::of(info, inputs.params(*unit));
    let reserved: Vec<Reserved> = group.units.iter().map(reserved).collect();
    let servers = Servers::new(inputs, pool, group, &reserved);
    let of_unit = |(i, (unit, own)): (usize, (&UnitIx, &Reserved))| {
        let cap = Cap { budget: own.budget, period: own.period, more: 0 };
        let budget = Budget {
            unit: *unit,
            period: own.period,
            time: servers.time(i),
            less: servers.less(i).into_iter().chain(servers.together(i)).collect(),
            cap: (!info.extratime(inputs.params(*unit))).then_some(cap),
            test: Test::Policy(info.name),
        };
        let mut found = supplied::unit(inputs, budget, wanted);
        found.supplies.extend(servers.supply_to_several(inputs, *unit, i));
        found
    };
    let found = group.units.iter().zip(&reserved).enumerate().map(of_unit);
    found.fold(Findings::default(), Findings::and)
}

impl Servers {
    fn new(inputs: Inputs<'_>, pool: PoolIx, group: &Group, reserved: &[Reserved]) -> Self {
        let mut costs = decisions(inputs, pool, group.processors);
        let chain = group.processors as u64;
        let mut unbounded = None;
        for (unit, own) in group.units.iter().zip(reserved) {
            unbounded = unbounded.or(add_wakes(inputs, *unit, chain, &mut costs));
            costs.every(own.period, 2 * chain);
            costs.also(2 * chain);
        }
        let server = |own: &Reserved| DeferrableServer { budget: own.budget, period: own.period };
        let sibling = |unit: &UnitIx| match *unit {
            UnitIx::Vcpu(vcpu) => UnitIx::Vcpu(VcpuIx(inputs.domain_of(vcpu).vcpus.start)),
            UnitIx::Task(_) => *unit,
        };
        Servers {
            all: reserved.iter().map(server).collect(),
            processors: group.processors,
            costs,
            unbounded,
            siblings: group.units.iter().map(sibling).collect(),
            is_aligned: inputs.pool(pool).policy.info.name == rtds::NAME,
        }
    }

    /// From the start of a period to the end of the budget of the server at `i`, and what it supplies.
    fn time(&self, i: usize) -> Result<(Duration, Supply), Reason> {
        let DeferrableServer { budget, period } = self.all[i];
        let usable = budget.saturating_sub(self.costs.within(period));
        if budget.is_zero() {
            return Err(Reason::BestEffort);
        }
        if let Some(reason) = self.unbounded.filter(|_| !self.costs.free()) {
            return Err(reason);
        }
        if self.all.len() > GLOBAL_MAX {
            return Err(Reason::TooManyUnits);
        }
        if usable.is_zero() {
            return Err(Reason::NothingLeft { taken: self.costs.within(period), period, budget });
        }
        let time = global_edf::time_for_budget(&self.all, i, self.processors, &self.costs);
        let taken = || global_edf::taken_by_others(&self.all, i, self.processors, &self.costs, period);
        let time = time.ok_or_else(|| Reason::OtherVcpus { taken: taken().min(period), period, budget })?;
        Ok((time, self.supply(i, budget, time).ok_or(Reason::BestEffort)?))
    }

    /// What a server supplies that has `part` of its budget within `time`.
    fn supply(&self, i: usize, part: Duration, time: Duration) -> Option<Supply> {
        let period = self.all[i].period;
        let usable = part.checked_sub(self.costs.within(period)).filter(|usable| !usable.is_zero())?;
        Some(Supply { delay: (period - part) + (time - usable), budget: usable, period })
    }

    /// What the server at `i` supplies for sure although others may take some of its budget.
    fn less(&self, i: usize) -> Option<Supply> {
        if !matches!(self.time(i), Err(Reason::OtherVcpus { .. })) {
            return None;
        }
        let (part, time) = global_edf::sure_part(&self.all, i, self.processors, &self.costs)?;
        self.supply(i, part, time)
    }

    /// What the server at `i` supplies over several periods although others may take its budget in one.
    fn together(&self, i: usize) -> Vec<Supply> {
        if !matches!(self.time(i), Err(Reason::OtherVcpus { .. })) {
            return Vec::new();
        }
        let DeferrableServer { budget, period } = self.all[i];
        let own = Unsure { budget, period, decisions: self.costs.within(period), is_dropped: false };
        own.supplies(|count| global_edf::taken_of_periods(&self.all, i, self.processors, &self.costs, count))
    }

    /// What the server at `i` gives to a guest of several vCPUs, if it is a vCPU of one.
    ///
    /// In a period it stands still without budget only when it has used all of it, of which `usable` reached
    /// the guest; otherwise only for others and decisions.
    fn supply_to_several(&self, inputs: Inputs<'_>, unit: UnitIx, i: usize) -> Option<(VcpuIx, VcpuSupply)> {
        let UnitIx::Vcpu(vcpu) = unit else { return None };
        if inputs.domain_of(vcpu).vcpus.len() < 2 {
            return None;
        }
        let supply = self.time(i).map(|(_, supply)| supply).ok().or_else(|| self.less(i))?;
        let period = self.all[i].period;
        let taken = global_edf::taken_by_others(&self.all, i, self.processors, &self.costs, period);
        let still = taken.max(period - supply.budget).min(period);
        Some((vcpu, VcpuSupply { supply, still, period, kept: self.kept(i) }))
    }

    fn kept(&self, i: usize) -> Kept {
        let DeferrableServer { budget, period } = self.all[i];
        let is_like = |of: &usize| self.siblings[*of] == self.siblings[i] && self.all[*of].period == period;
        let like: Vec<usize> = (0..self.all.len()).filter(is_like).collect();
        let all = global_edf::taken_from_any(&self.all, &like, self.processors, &self.costs, budget);
        let own = || global_edf::taken_by_others(&self.all, i, self.processors, &self.costs, budget);
        // Where they share no processor with it, siblings may stand still at other times.
        let all = all.filter(|_| self.processors > 1);
        let taken = all.unwrap_or_else(own).min(budget);
        Kept { budget, taken, is_for_all: all.is_some(), is_aligned: self.is_aligned }
    }
}
