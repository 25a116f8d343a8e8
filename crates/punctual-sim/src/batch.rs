//! Many independent simulations on all cores.

use punctual_model::{Host, Results};
use rayon::prelude::*;

use crate::{Error, simulate};

/// Simulates every host, on all cores of this machine, and returns the results in the hosts' order.
/// `done` is called after each one, from any thread. The results do not depend on the number of threads.
pub fn simulate_all(hosts: &[Host], done: impl Fn() + Sync) -> Vec<Result<Results, Error>> {
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
