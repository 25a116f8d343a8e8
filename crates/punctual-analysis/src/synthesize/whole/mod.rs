//! Budgets of units that have to be chosen together, because a deadline depends on several of them: a flow's
//! or chain's on the sender's, the driver domain's and the receiver's, and that of a task which may move
//! between vCPUs on all of these.
//!
//! There is no least solution: one budget can be less where another one is more. So the search does what a
//! user would do by hand, with the analysis of the whole host as the judge ([`rise`]): it starts from what
//! the work asks for in the long run, raises the budgets on which an unmet deadline depends, and then lowers
//! every budget as far as all deadlines still hold. All other units are placed, ordered and given their
//! smallest budgets pool by pool first, beside these.
//!
//! Priorities that the file does not give are by deadline, the shortest first (Leung & Whitehead 1982).

mod blocks;
mod rise;
mod variants;

use punctual_model::Host;
use punctual_model::index::PoolIx;

use super::chosen::{chosen, keeps_budgets};
use super::error::{Error, Shortfall};
use super::options::Options;
use super::outcome::{Synthesis, verified};
use super::pools::{solve_pool, widened};
use crate::analyse::answers;
use crate::inputs::{Index, Inputs};
use crate::network::{Routes, State, load};
use crate::watch::Watch;
use blocks::Blocks;
use rise::Rise;
use variants::variants;

/// The cheapest of the solutions for the periods and priorities to choose from.
pub(super) fn synthesize(host: &Host, options: &Options, watch: Watch<'_>) -> Result<Synthesis, Error> {
    let index = Index::new(host);
    let routes = Routes::new(host);
    let blocks = Blocks::of(Inputs::new(host, &index), &routes, &answers(host));
    let mut best: Option<Synthesis> = None;
    let mut unmet = None;
    for start in variants(host, &index, &blocks, options) {
        match solve(host, start, &blocks, options, watch) {
            Ok(found) if best.as_ref().is_none_or(|best| found.bandwidth_ppm() < best.bandwidth_ppm()) => {
                best = Some(found);
            }
            Ok(_) => {}
            Err(stopped @ Error::Stopped(_)) => return Err(stopped),
            Err(error) => unmet = unmet.or(Some(error)),
        }
    }
    let none = || Error::Unmet { name: host.name.clone(), why: vec![Shortfall::NoPlacement] };
    best.ok_or_else(|| unmet.unwrap_or_else(none))
}

/// A solution with the periods and priorities of `start`, compared with `given`.
fn solve(
    given: &Host,
    start: Host,
    blocks: &Blocks,
    options: &Options,
    watch: Watch<'_>,
) -> Result<Synthesis, Error> {
    let index = Index::new(&start);
    let grown = widened(&start, options.margin_ppm);
    let routes = Routes::new(&grown);
    let load = load(&routes, &State::first(&routes));
    let beside = blocks.beside(Inputs { host: &grown, index: &index, load: &load }, options)?;
    let others = blocks.other_starts(Inputs { host: &grown, index: &index, load: &load }, options);
    let mut result = start;
    // The order of priority is chosen already.
    let inner = Options { free_priorities: false, ..options.clone() };
    for pool in (0..given.pools.len()).map(PoolIx) {
        if keeps_budgets(given.pools[pool.0].policy.info) {
            solve_pool(&mut result, pool, &inner, &beside, watch)?;
        }
    }
    let mut rise = Rise::new(widened(&result, options.margin_ppm), blocks, options, watch);
    let together = rise.search(&others, options)?;
    blocks.units().for_each(|unit| rise.give_budget(unit, &mut result));
    let answers = verified(&result)?;
    let chosen = chosen(given, &result);
    Ok(Synthesis { host: result, chosen, exact: false, together, answers })
}
