//! The host as a whole.

use punctual_model::Host;
use punctual_model::index::PoolIx;

use super::chosen::{chosen, keeps_budgets};
use super::error::{Error, Shortfall};
use super::options::Options;
use super::outcome::{Synthesis, verified};
use super::pools::solve_pool;
use super::trial::Beside;
use super::whole;
use crate::needs::is_whole;
use crate::watch::Watch;

/// Finds the smallest total bandwidth that guarantees every deadline of the host.
///
/// # Errors
/// For which unit nothing suffices, or that the watch stopped the search.
pub fn synthesize(host: &Host, options: &Options, watch: Watch<'_>) -> Result<Synthesis, Error> {
    if !host.events.is_empty() {
        return Err(Error::Unmet { name: host.name.clone(), why: vec![Shortfall::Changes] });
    }
    if is_whole(host) {
        return whole::synthesize(host, options, watch);
    }
    let mut result = host.clone();
    let mut exact = true;
    for pool in (0..host.pools.len()).map(PoolIx) {
        if keeps_budgets(host.pools[pool.0].policy.info) {
            exact &= solve_pool(&mut result, pool, options, &Beside::nothing(), watch)?;
        }
    }
    let answers = verified(&result)?;
    let chosen = chosen(host, &result);
    Ok(Synthesis { host: result, chosen, exact, together: false, answers })
}
