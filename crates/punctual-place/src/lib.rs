//! Which VM of a fleet goes to which host, with all guarantees kept.
//!
//! [`place`] takes a validated [`Fleet`] and returns a [`Plan`]: the host of each VM, the NUMA node of its
//! memory and the processors of its vCPUs; for each VM that fits no host, why. A host gets a set of VMs only
//! if the analysis of `punctual check` guarantees all budgets and deadlines on it. In this order, a plan has
//! as few refused VMs, as few hosts and as small costs of moving as possible.
//! `docs/place.md` describes the file and the results.
//!
//! # Floors
//!
//! Each module uses those above it in this list, never those below:
//!
//! 1. `slice`: hosts for the analysis, made of some VMs of a fleet; what is guaranteed on them.
//! 2. `problem`: what is placed, how much each VM asks for, and refusals.
//! 3. `state`: a host with the VMs on it; where another one fits.
//! 4. `patterns`: what units need of processors that are never used in full.
//! 5. `bound`: how many hosts any plan needs.
//! 6. `heuristic`: plans for fleets of any size.
//! 7. `exact`: the best plans of small ones.
//! 8. `plan`: the result.
//! 9. `what_if`: the question about one VM.
//!
//! Everything is deterministic: the same fleet gives the same plan, whatever the number of threads.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod bound;
mod exact;
mod heuristic;
mod patterns;
mod plan;
mod problem;
mod slice;
mod state;
mod what_if;

use punctual_model::fleet::Fleet;

pub use plan::{HostPlan, Plan, Proof, RefusedVm, VmPlan, Why};
pub use what_if::{Answer, Standing};

/// How to search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Exactly where the fleet is small, otherwise by heuristics.
    #[default]
    Auto,
    /// Exactly, however long it takes.
    Exact,
    /// By heuristics alone.
    Heuristic,
}

/// Places the VMs of a fleet.
pub fn place(fleet: &Fleet, method: Method) -> Plan {
    let problem = problem::Problem::new(fleet);
    let (found, bound) = heuristic::search(&problem);
    let found = match method {
        Method::Heuristic => found,
        Method::Auto if !exact::is_small(&problem) => found,
        Method::Auto => exact::improve(&problem, &bound, found, exact::Effort::Limited),
        Method::Exact => exact::improve(&problem, &bound, found, exact::Effort::Unlimited),
    };
    plan::plan(&problem, &bound, found)
}
