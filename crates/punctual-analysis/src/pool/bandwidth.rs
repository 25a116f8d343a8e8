//! CBS: a bandwidth each, by earliest deadline.

use punctual_model::index::PoolIx;
use punctual_sched::Duration;
use punctual_sched::registry::PolicyInfo;
use punctual_sched::utilization::Utilization;

use super::decisions::decisions;
use super::groups::Group;
use super::reserved::Reserved;
use super::supplied::{self, Budget};
use crate::answer::Test;
use crate::findings::Findings;
use crate::global_edf;
use crate::guest::Cap;
use crate::inputs::{Inputs, UnitIx};
use crate::reason::Reason;
use crate::supply::Supply;

pub(super) fn servers(
    inputs: Inputs<'_>,
    pool: PoolIx,
    group: &Group,
    info: &PolicyInfo,
    wanted: Option<UnitIx>,
) -> Findings {
    let reserved = |unit: &UnitIx| Reserved::of(info, inputs.params(*unit));
    let reserved: Vec<Reserved> = group.units.iter().map(reserved).collect();
    let shares: Vec<(Duration, Duration)> = reserved.iter().map(|own| (own.budget, own.period)).collect();
    let fits = match group.processors {
        1 => Utilization::of(shares).fits(1),
        several => global_edf::density_test(&shares, several),
    };
    let obstacle = if !decisions(inputs, pool, group.processors).free() {
        Some(Reason::CbsDecisions)
    } else {
        (!fits).then_some(Reason::Bandwidths)
    };
    let of_unit = |(unit, own): (&UnitIx, &Reserved)| {
        let budget = Budget {
            unit: *unit,
            period: own.period,
            time: obstacle.map_or_else(|| Ok((own.period, Supply::periodic(own.budget, own.period))), Err),
            less: Vec::new(),
            // A fresh start may come before the end of a period.
            cap: Some(Cap { budget: own.budget, period: own.period, more: 1 }),
            test: Test::Policy(info.name),
        };
        supplied::unit(inputs, budget, wanted)
    };
    group.units.iter().zip(&reserved).map(of_unit).fold(Findings::default(), Findings::and)
}
