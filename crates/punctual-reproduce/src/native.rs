//! What a policy's own code costs on this machine.
//!
//! A simulation runs once with the policy wrapped in a recorder of all calls and their arguments. The calls
//! are then replayed on a fresh policy, natively and back to back:
//!
//! - *mean*: the whole replay, timed as one piece, without clock readings in between; the least of several
//!   rounds, because everything else on the machine only adds to it. Divided by the number of decisions.
//! - *quantiles*: each decision between two clock readings, less the median distance of two readings with
//!   nothing in between. A decision is what the policy does from the first charge or timer to the pick.
//! - *cold*: the same after a walk through more memory than the second-level cache holds, as a hypervisor
//!   that decides once per millisecond finds its data.

use std::hint::black_box;
use std::sync::mpsc;
use std::time::Instant as Clock;

use punctual_model::Host;
use punctual_model::host::Parent;
use punctual_model::index::PoolIx;
use punctual_sched::wrap::{Call, Recorder, Wrapped};
use punctual_sched::{CpuSet, Policy};

use crate::error::Error;

/// Rounds of the timing without clock readings in between.
const ROUNDS: usize = 7;
/// Decisions timed with cold caches.
const COLD_DECISIONS: usize = 2_000;
/// Walked through before each cold decision.
const COLD_BYTES: usize = 8 << 20;

/// What decisions cost, in ns, less what reading the clock costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecisionCost {
    pub decisions: usize,
    /// The whole replay divided by the decisions: wake-ups, sleeps and timers included.
    pub mean_ns: f64,
    pub median_ns: f64,
    pub p99_ns: f64,
    /// Greatest: includes whatever interrupted the measurement.
    pub max_ns: f64,
    /// Median with cold caches.
    pub cold_median_ns: f64,
    pub cold_p99_ns: f64,
    /// Distance of two clock readings that was taken off.
    pub clock_ns: f64,
}

/// Measures the policy of the host's first pool on the calls that a simulation of `host` makes.
pub(crate) fn measure(host: &Host) -> Result<DecisionCost, Error> {
    let info = host.pools[0].policy.info;
    let options = &host.pools[0].policy.options;
    let calls = record(host)?;
    let fresh = || {
        info.build(host.pools[0].processors.len(), options)
            .map_err(|error| Error::Policy { policy: info.name, error })
    };
    let decisions = calls.iter().filter(|c| matches!(c, Call::Pick(..))).count();
    let mut whole = u128::MAX;
    for _ in 0..ROUNDS {
        let mut policy = fresh()?;
        let start = Clock::now();
        replay(policy.as_mut(), &calls);
        whole = whole.min(start.elapsed().as_nanos());
    }
    let clock_ns = clock_distance_ns();
    let mut warm = timed_replay(fresh()?.as_mut(), &calls, usize::MAX, || {});
    let memory = vec![1u8; COLD_BYTES];
    let evict = || {
        black_box(memory.iter().step_by(64).map(|&b| u64::from(b)).sum::<u64>());
    };
    let mut cold = timed_replay(fresh()?.as_mut(), &calls, COLD_DECISIONS, evict);
    let net =
        |samples: &mut Vec<u64>, per_million| (quantile(samples, per_million) as f64 - clock_ns).max(0.0);
    Ok(DecisionCost {
        decisions,
        mean_ns: whole as f64 / decisions.max(1) as f64,
        median_ns: net(&mut warm, 500_000),
        p99_ns: net(&mut warm, 990_000),
        max_ns: net(&mut warm, 1_000_000),
        cold_median_ns: net(&mut cold, 500_000),
        cold_p99_ns: net(&mut cold, 990_000),
        clock_ns,
    })
}

/// The value below or at which `per_million` of the samples lie; zero when there are none.
fn quantile(samples: &mut [u64], per_million: usize) -> u64 {
    samples.sort_unstable();
    let rank = (samples.len() * per_million).div_ceil(1_000_000).max(1);
    samples.get(rank - 1).copied().unwrap_or(0)
}

/// Median distance of two readings of the clock.
fn clock_distance_ns() -> f64 {
    let mut samples: Vec<u64> = (0..20_000)
        .map(|_| {
            let start = Clock::now();
            start.elapsed().as_nanos() as u64
        })
        .collect();
    quantile(&mut samples, 500_000) as f64
}

fn replay(policy: &mut dyn Policy, calls: &[Call]) {
    let mut resched = CpuSet::new(1);
    for call in calls {
        call.make(policy, &mut resched);
        resched.clear();
    }
}

/// Replays, timing up to `decisions_max` decisions; `before` runs ahead of each, outside the timing.
fn timed_replay(
    policy: &mut dyn Policy,
    calls: &[Call],
    decisions_max: usize,
    before: impl Fn(),
) -> Vec<u64> {
    let mut resched = CpuSet::new(1);
    let mut samples = Vec::with_capacity(decisions_max.min(calls.len()));
    let mut rest = calls;
    while samples.len() < decisions_max && !rest.is_empty() {
        let prelude = rest.iter().take_while(|c| !part_of_decision(c)).count();
        rest[..prelude].iter().for_each(|call| call.make(policy, &mut resched));
        rest = &rest[prelude..];
        let length = rest.iter().position(|c| matches!(c, Call::Pick(..))).map_or(rest.len(), |at| at + 1);
        before();
        let start = Clock::now();
        for call in &rest[..length] {
            call.make(policy, &mut resched);
        }
        samples.push(start.elapsed().as_nanos() as u64);
        resched.clear();
        rest = &rest[length..];
    }
    samples
}

fn part_of_decision(call: &Call) -> bool {
    matches!(call, Call::Charge(..) | Call::Pick(..) | Call::OnTimer(..) | Call::NextTimer)
}

/// Simulates `host` and returns the calls of the first pool's policy.
fn record(host: &Host) -> Result<Vec<Call>, Error> {
    let (sender, calls) = mpsc::channel();
    let wrap = |parent, policy| match parent {
        Parent::Pool(PoolIx(0)) => recorded(policy, sender.clone()),
        _ => policy,
    };
    let simulated = punctual_sim::simulate_wrapped(host, wrap);
    simulated.map_err(|error| Error::Simulation { what: format!("recording {}", host.name), error })?;
    Ok(calls.try_iter().collect())
}

/// The policy with its calls sent to `calls`.
fn recorded(policy: Box<dyn Policy>, calls: mpsc::Sender<Call>) -> Box<dyn Policy> {
    let note = move |call| calls.send(call).expect("the receiver outlives the run");
    Box::new(Wrapped::new(Recorder { note }, policy))
}

#[cfg(test)]
mod tests {
    use punctual_sched::Duration;

    use super::*;
    use crate::scenario::Scenario;

    fn host() -> Host {
        Scenario::new("rt-xen", "even").duration(Duration::from_ms(500)).host().unwrap()
    }

    #[test]
    fn the_recorder_sees_every_decision_of_the_simulation_and_changes_none() {
        let host = host();
        let calls = record(&host).unwrap();
        let picks = calls.iter().filter(|c| matches!(c, Call::Pick(..))).count() as u64;
        let results = punctual_sim::simulate(&host).unwrap();
        assert_eq!(Some(picks), results.pools[0].decisions);
        assert_eq!(calls.iter().filter(|c| matches!(c, Call::Insert(..))).count(), 5);
    }

    #[test]
    fn a_replay_makes_the_recorded_decisions_again() {
        let host = host();
        let calls = record(&host).unwrap();
        let policy = host.pools[0].policy.info.build(1, &host.pools[0].policy.options).unwrap();
        let (sender, again) = mpsc::channel();
        replay(recorded(policy, sender).as_mut(), &calls);
        assert_eq!(again.try_iter().collect::<Vec<_>>(), calls);
    }

    #[test]
    fn every_decision_is_timed_once() {
        let host = host();
        let cost = measure(&host).unwrap();
        let calls = record(&host).unwrap();
        let mut policy = host.pools[0].policy.info.build(1, &host.pools[0].policy.options).unwrap();
        let samples = timed_replay(policy.as_mut(), &calls, usize::MAX, || {});
        assert!(samples.len() == cost.decisions || samples.len() == cost.decisions + 1);
        assert!(cost.mean_ns > 0.0 && cost.median_ns <= cost.p99_ns && cost.p99_ns <= cost.max_ns);
    }
}
