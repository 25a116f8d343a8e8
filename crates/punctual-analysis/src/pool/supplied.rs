//! A unit with a budget and what is inside it.

use crate::answer::Test;
use crate::findings::{BudgetAnswer, Findings, Service};
use crate::guest::{self, Cap, Supplier};
use crate::inputs::{Inputs, UnitIx};
use crate::reason::Reason;
use crate::supply::Supply;

use punctual_sched::Duration;

/// What is known of a unit's budget.
pub(super) struct Budget {
    pub(super) unit: UnitIx,
    pub(super) period: Duration,
    /// From the start of a period to the end of the budget; and what the unit then supplies.
    pub(super) time: Result<(Duration, Supply), Reason>,
    /// What the unit supplies for sure where its whole budget is not.
    pub(super) less: Vec<Supply>,
    /// What the unit gets at most, if that has a limit.
    pub(super) cap: Option<Cap>,
    pub(super) test: Test,
}

/// Answers for a unit and what is inside it; `wanted`: the only unit whose tasks need answers.
pub(super) fn unit(inputs: Inputs<'_>, budget: Budget, wanted: Option<UnitIx>) -> Findings {
    let Budget { unit, period, time, less, cap, test } = budget;
    let mut found = Findings::default();
    found.budgets.insert(unit, BudgetAnswer::new(period, time.map(|(time, _)| time)));
    if wanted.is_some_and(|wanted| wanted != unit) {
        return found;
    }
    let supply = time.map(|(_, supply)| supply);
    if let Ok(supply) = supply {
        found = found.and(service(inputs, unit, supply));
    }
    let content = guest::content(inputs, unit);
    let in_less = guest::inside_less(inputs, &content, less.into_iter().map(Supplier::Supply));
    let found = found.and(match (content, supply, cap) {
        (Err(reason), ..) => Findings::unknown_below(inputs, [unit], reason, test),
        (Ok(content), Ok(supply), cap) => guest::inside(inputs, &content, &Supplier::Supply(supply), cap),
        (Ok(content), Err(reason), Some(cap)) => guest::unsupplied(inputs, &content, cap, reason, test),
        (Ok(_), Err(reason), None) => Findings::unknown_below(inputs, [unit], reason, test),
    });
    found.improved_by(in_less)
}

/// How a vCPU's kernel, if it has one, gets its time.
pub(super) fn service(inputs: Inputs<'_>, unit: UnitIx, supply: Supply) -> Findings {
    let mut found = Findings::default();
    if let UnitIx::Vcpu(vcpu) = unit
        && inputs.kernel(vcpu).is_some()
        && !inputs.shares_budget(vcpu)
    {
        found.services.insert(vcpu, Service::alone(supply));
    }
    found
}
