//! Audsley's assignment of priorities (1991), for servers as Davis & Burns (RTNS 2008) use it.

use std::cmp::Reverse;

use super::search::Search;
use super::trial::Placed;
use crate::demand::NANOSECOND;
use crate::inputs::UnitIx;
use crate::watch::Stopped;

/// Rounds with the budgets of the round before.
const ROUNDS: usize = 8;

/// The least urgent place goes to the unit that needs least more there than alone, and so on upwards. Budgets
/// of those above are what the round before found.
pub(super) fn audsley(search: &mut Search<'_, '_>) -> Result<(), Stopped> {
    let Some(alone) = all_alone(search)? else { return Ok(()) };
    let mut current = alone.clone();
    let mut before: Vec<UnitIx> = Vec::new();
    for _ in 0..ROUNDS {
        let Some(order) = order(search, &current, &alone)? else { return Ok(()) };
        if order == before {
            return Ok(());
        }
        let mut list: Vec<Placed> = Vec::new();
        for unit in &order {
            let period = current.iter().find(|p| p.unit == *unit).map_or(NANOSECOND, |p| p.period);
            let Some(longer) = search.extend(&list, *unit, period)? else { break };
            list = longer;
        }
        if list.len() == order.len() {
            search.complete(&list)?;
        }
        for placed in list {
            current.iter_mut().filter(|p| p.unit == placed.unit).for_each(|p| *p = placed);
        }
        before = order;
    }
    Ok(())
}

/// The cheapest parameters of each unit alone; `None` if one has none.
fn all_alone(search: &mut Search<'_, '_>) -> Result<Option<Vec<Placed>>, Stopped> {
    let mut all = Vec::new();
    for unit in search.units.clone() {
        let mut choices = Vec::new();
        for period in search.trial.periods(unit) {
            choices.extend(search.extend(&[], unit, period)?.map(|list| list[0]));
        }
        let cheapest = choices.into_iter().min_by_key(|p| (p.share(), Reverse(p.period)));
        let Some(alone) = cheapest else { return Ok(None) };
        all.push(alone);
    }
    Ok(Some(all))
}

/// An order, most urgent first; `None` if no unit may have some place.
fn order(
    search: &mut Search<'_, '_>,
    current: &[Placed],
    alone: &[Placed],
) -> Result<Option<Vec<UnitIx>>, Stopped> {
    let mut above = current.to_vec();
    let mut order = Vec::new();
    while !above.is_empty() {
        let mut cheapest: Option<(u64, usize)> = None;
        for at in 0..above.len() {
            if let Some(more) = need_below(search, &above, at, alone)?
                && cheapest.is_none_or(|(least, _)| more < least)
            {
                cheapest = Some((more, at));
            }
        }
        let Some((_, at)) = cheapest else { return Ok(None) };
        order.insert(0, above.remove(at).unit);
    }
    Ok(Some(order))
}

/// How much more than alone the unit at `at` needs below all the others; `None` if it may not be there or
/// has no budget there.
fn need_below(
    search: &mut Search<'_, '_>,
    all: &[Placed],
    at: usize,
    alone: &[Placed],
) -> Result<Option<u64>, Stopped> {
    let own = all[at].unit;
    if all.iter().any(|other| other.unit != own && !search.may_lead(other.unit, &[own])) {
        return Ok(None);
    }
    let mut list: Vec<Placed> = all.iter().copied().filter(|p| p.unit != own).collect();
    let alone = alone.iter().find(|p| p.unit == own).copied().unwrap_or(all[at]);
    list.push(alone);
    let last = list.len() - 1;
    let budget = search.trial.smallest(&list, last, search.processors)?;
    Ok(budget.map(|budget| Placed { budget, ..alone }.share() - alone.share()))
}
