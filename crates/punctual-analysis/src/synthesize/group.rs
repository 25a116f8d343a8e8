//! Units that share processors: in which order of priority, with which periods, and with which smallest
//! budgets.

use super::audsley::audsley;
use super::error::Error;
use super::search::{Search, Solution};
use super::trial::Trial;
use crate::inputs::UnitIx;

/// Finds the smallest budgets for `units`, which share this many processors.
///
/// # Errors
/// Which unit cannot be guaranteed.
pub(super) fn solve(trial: &mut Trial<'_>, units: &[UnitIx], processors: usize) -> Result<Solution, Error> {
    let effort = trial.options.effort;
    solve_within(trial, units, processors, effort)
}

/// The same with at most this many analyses, apart from those of the first solution.
pub(super) fn solve_within(
    trial: &mut Trial<'_>,
    units: &[UnitIx],
    processors: usize,
    effort: u64,
) -> Result<Solution, Error> {
    let mut search = Search::new(trial, units, processors, effort);
    if search.free_order {
        if search.all_given {
            // The file's order is as good a guess as any, and so much faster to search that it bounds the
            // rest.
            search.free_order = false;
            search.descend(&[])?;
            (search.free_order, search.exact) = (true, true);
        }
        audsley(&mut search)?;
    }
    search.descend(&[])?;
    search.finish()
}
