//! Domains that boot one after another.
//!
//! Replenishment periods are aligned to the start of a unit. A simulated host starts everything at once, so
//! all periods begin together; on a real machine domains are created one by one and their periods begin at
//! whatever time that was. [`simulate_booted_one_by_one`] gives a simulated host such a history: before the
//! run, the units are inserted one after the other, with a random gap in whole ms before each, drawn from the
//! host's seed.
//!
//! The pool's policy is wrapped for it: its time line starts `HISTORY` earlier than the machine's.

use punctual_model::Host;
use punctual_model::generate::RandomStream;
use punctual_model::host::Parent;
use punctual_model::results::Results;
use punctual_sched::wrap::{TimeShift, Wrapped, Wrapper};
use punctual_sched::{Duration, Instant, ParamError, Policy, UnitId, UnitParams};

/// How much earlier the policy's time line starts than the machine's: a multiple of every period in Table 3.
const HISTORY: Duration = Duration::from_secs(2);
/// Before each unit's insertion passes a time from 0 to this, both included: five units fit into the history.
const GAP_MAX_MS: u64 = 399;

/// Simulates `host`, each unit of whose only pool starts at a random instant before the run.
///
/// # Panics
/// When the host has more than one pool or more than five units.
pub(crate) fn simulate_booted_one_by_one(host: &Host) -> Result<Results, punctual_sim::Error> {
    assert!(host.pools.len() == 1 && host.vcpus.len() <= 5, "made for the five domains of RT-Xen");
    let mut stream = RandomStream::new(host.seed, "boot");
    let mut now = Instant::ZERO;
    let starts = host.vcpus.iter().map(|_| {
        now += Duration::from_ms(stream.whole(0, GAP_MAX_MS));
        now
    });
    simulate_booted_at(host, &starts.collect::<Vec<_>>())
}

/// Simulates `host`; the units of its pool start at these instants of the policy's time line.
fn simulate_booted_at(host: &Host, starts: &[Instant]) -> Result<Results, punctual_sim::Error> {
    punctual_sim::simulate_wrapped(host, |parent, policy| match parent {
        Parent::Pool(_) => {
            let booted = Wrapped::new(Booted { starts: starts.to_vec(), inserted: 0 }, policy);
            Box::new(Wrapped::new(TimeShift { earlier: HISTORY }, Box::new(booted)))
        }
        Parent::Domain(_) => policy,
    })
}

/// A policy whose units start at these instants, in the order in which they are inserted.
struct Booted {
    starts: Vec<Instant>,
    inserted: usize,
}

impl Wrapper for Booted {
    fn insert(
        &mut self,
        inside: &mut dyn Policy,
        _now: Instant,
        params: &UnitParams,
    ) -> Result<UnitId, ParamError> {
        let start = self.starts[self.inserted];
        self.inserted += 1;
        inside.insert(start, params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    fn host(seed: u64) -> Host {
        Scenario::new("rt-xen", "increasing").seed(seed).duration(Duration::from_secs(5)).host().unwrap()
    }

    /// With gaps of zero everything starts at once, a whole number of periods before the machine does.
    #[test]
    fn a_history_of_whole_periods_changes_nothing() {
        let plain = punctual_sim::simulate(&host(1)).unwrap();
        let booted = simulate_booted_at(&host(1), &[Instant::ZERO; 5]).unwrap();
        assert_eq!(booted.tasks, plain.tasks);
    }

    #[test]
    fn a_seed_gives_one_history_and_another_seed_another() {
        let run = |seed: u64, boot_seed: u64| {
            let mut booted = host(seed);
            booted.seed = boot_seed;
            simulate_booted_one_by_one(&booted).unwrap().vcpus
        };
        assert_eq!(run(1, 1), run(1, 1));
        assert_ne!(run(1, 1), run(1, 2));
    }
}
