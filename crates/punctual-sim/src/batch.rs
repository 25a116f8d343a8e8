//! Many independent simulations on all cores.

use punctual_model::{Host, Results};
use rayon::prelude::*;

use crate::Error;

/// Simulates every host by `simulate`, on all cores of this machine, and returns the results in the hosts'
/// order. `done` is called after each one, from any thread. The results do not depend on the number of
/// threads.
pub fn simulate_all(
    hosts: &[Host],
    simulate: fn(&Host) -> Result<Results, Error>,
    done: impl Fn() + Sync,
) -> Vec<Result<Results, Error>> {
    hosts
        .par_iter()
        .with_max_len(1)
        .map(|host| {
            let results = simulate(host);
            done();
            results
        })
        .collect()
}
