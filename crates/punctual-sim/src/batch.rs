//! Many independent simulations on all cores.

use rayon::prelude::*;

use crate::error::Error;

/// Simulates every host by `simulate`, on all cores of this machine, and returns the outcomes in the hosts'
/// order. `done` is called after each one, from any thread. The results do not depend on the number of
/// threads.
pub fn simulate_all<H: Sync, R: Send>(
    hosts: &[H],
    simulate: impl Fn(&H) -> Result<R, Error> + Sync,
    done: impl Fn() + Sync,
) -> Vec<Result<R, Error>> {
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
