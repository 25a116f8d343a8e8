//! The judgement of a certificate, computed from its measurements and limits alone.
//!
//! - *Failed*: a limit is exceeded, whatever else is missing.
//! - *Incomplete*: no limit is exceeded, but something that has a limit was not measured, a guest could not
//!   be measured, the test was stopped, took less time than the limits file asks for, or ran without a load
//!   that it asks for.
//! - *Passed*: every limit holds.
//! - *Measured*: there is no limits file.

use punctual_model::acceptance::{Limit, Limits, Measure, PlaceLimits, Statistic};

use crate::certificate::{Check, Conduct, Measurement, Outcome, Place, Verdict};

/// A statistic of a measurement, in ns, or in millionths for lost time.
pub fn statistic(of: &Measurement, statistic: Statistic) -> u64 {
    match statistic.ppm() {
        Some(1_000_000) => of.latencies.max().as_ns(),
        Some(ppm) => of.latencies.quantile_ppm(ppm).as_ns(),
        None => of.lost_ppm(),
    }
}

/// Judges measurements by limits.
pub fn judge(limits: Option<&Limits>, measurements: &[Measurement], conduct: &Conduct) -> Verdict {
    let mut missing = conduct.missing.clone();
    if conduct.stopped {
        missing.push("the test was stopped before its time".to_owned());
    }
    let mut checks = Vec::new();
    if let Some(limits) = limits {
        missing.extend(left_out(limits, conduct));
        checks.extend(place(None, &limits.host, measurements));
        for (guest, limits) in &limits.guests {
            checks.extend(place(Some(guest), limits, measurements));
        }
    }
    for check in checks.iter().filter(|check| check.found.is_none()) {
        let what = format!("{} was not measured", check.place());
        if !missing.contains(&what) {
            missing.push(what);
        }
    }
    let is_exceeded = checks.iter().any(|check| check.holds() == Some(false));
    let outcome = match (is_exceeded, missing.is_empty()) {
        (true, _) => Outcome::Failed,
        (false, false) => Outcome::Incomplete,
        (false, true) if limits.is_some() => Outcome::Passed,
        (false, true) => Outcome::Measured,
    };
    Verdict { outcome, missing, checks }
}

/// No gap is a result; no wake-up is none.
fn is_measured(one: &Measurement) -> bool {
    one.watched_ns > 0 && (one.measure != Measure::Wakeup || one.latencies.count() > 0)
}

/// What the limits ask of the test that it did not do.
fn left_out(limits: &Limits, conduct: &Conduct) -> Vec<String> {
    let mut missing = Vec::new();
    if conduct.measured_ms < limits.seconds_min.saturating_mul(1000) {
        let (s, ms) = (conduct.measured_ms / 1000, conduct.measured_ms % 1000 / 100);
        missing.push(format!("the test took {s}.{ms} s, the limits ask for {} s", limits.seconds_min));
    }
    for load in limits.loads.iter().filter(|load| !conduct.loads.contains(load)) {
        missing.push(format!("the load {load} did not run"));
    }
    missing
}

/// The limits of the host or a guest with what was measured there.
fn place(guest: Option<&str>, limits: &PlaceLimits, measurements: &[Measurement]) -> Vec<Check> {
    let there = measurements.iter().filter(|one| one.guest.as_deref() == guest);
    let mut processors: Vec<usize> = there.map(|one| one.processor).collect();
    processors.extend(limits.single.iter().map(|(processor, _)| *processor));
    processors.sort_unstable();
    processors.dedup();
    if processors.is_empty() {
        // So that the limits show what is missing.
        processors.push(0);
    }
    let of = |&processor: &usize| {
        limits.of(processor).into_iter().map(move |Limit { measure, statistic: what, most }| {
            let place = Place { guest, processor, measure };
            let measured = measurements.iter().find(|one| one.place() == place && is_measured(one));
            let found = measured.map(|measured| statistic(measured, what));
            Check { guest: guest.map(str::to_owned), processor, measure, statistic: what, most, found }
        })
    };
    processors.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::{conduct, measurement};
    use proptest::prelude::*;

    fn limits(statistic: Statistic, most: u64) -> Limits {
        let every = vec![Limit { measure: Measure::Wakeup, statistic, most }];
        Limits { host: PlaceLimits { every, single: Vec::new() }, ..Limits::default() }
    }

    fn wakeups(latencies_ns: &[u64]) -> Vec<Measurement> {
        vec![measurement(None, 1, Measure::Wakeup, latencies_ns)]
    }

    #[test]
    fn a_limit_holds_up_to_and_with_its_value() {
        for (most, outcome) in [(5, Outcome::Passed), (4, Outcome::Failed)] {
            let verdict = judge(Some(&limits(Statistic::Max, most)), &wakeups(&[5_000, 1_000]), &conduct());
            assert_eq!((verdict.outcome, verdict.checks.len()), (outcome, 1));
        }
        let verdict = judge(Some(&limits(Statistic::Max, 5)), &wakeups(&[5_001]), &conduct());
        assert_eq!(verdict.outcome, Outcome::Failed);
    }

    #[test]
    fn what_was_not_measured_makes_it_incomplete_and_an_exceeded_limit_fails_all_the_same() {
        let mut wanted = limits(Statistic::Max, 5);
        wanted.guests = vec![("vm1".into(), wanted.host.clone())];
        wanted.loads = vec!["net".into()];
        wanted.seconds_min = 60;
        let verdict = judge(Some(&wanted), &wakeups(&[1_000]), &conduct());
        assert_eq!(verdict.outcome, Outcome::Incomplete);
        let missing = [
            "the test took 10.0 s, the limits ask for 60 s",
            "the load net did not run",
            "wakeup of vCPU 0 of vm1 was not measured",
        ];
        assert_eq!(verdict.missing, missing);
        let verdict = judge(Some(&wanted), &wakeups(&[9_000]), &conduct());
        assert_eq!(verdict.outcome, Outcome::Failed);
        let none = judge(Some(&limits(Statistic::Max, 5)), &wakeups(&[]), &conduct());
        assert_eq!(none.outcome, Outcome::Incomplete, "no wake-up is no proof");
        let stopped = Conduct { stopped: true, ..conduct() };
        assert_eq!(judge(None, &wakeups(&[1]), &stopped).outcome, Outcome::Incomplete);
        assert_eq!(judge(None, &wakeups(&[1]), &conduct()).outcome, Outcome::Measured);
    }

    proptest! {
        /// More time never fails, less time never passes, and a verdict of failure names a latency above the
        /// limit.
        #[test]
        fn a_verdict_is_monotonous(
            latencies in proptest::collection::vec(1u64..10_000_000, 1..200),
            most in 1u64..10_000,
            more in 0u64..10_000,
            which in 0usize..4,
        ) {
            let which = [Statistic::P50, Statistic::P99, Statistic::P999, Statistic::Max][which];
            let outcome = |most| judge(Some(&limits(which, most)), &wakeups(&latencies), &conduct()).outcome;
            if outcome(most) == Outcome::Passed {
                prop_assert_eq!(outcome(most + more), Outcome::Passed);
            }
            let greatest = latencies.iter().max().expect("one");
            if *greatest <= most * 1000 {
                prop_assert_eq!(outcome(most), Outcome::Passed);
            }
            if which == Statistic::Max {
                prop_assert_eq!(outcome(most) == Outcome::Failed, *greatest > most * 1000);
            }
            // The share that exceeds a limit decides, to the width of a bucket.
            let ppm = u64::from(which.ppm().expect("a quantile"));
            let above = latencies.iter().filter(|ns| **ns > most * 1000).count() as u64;
            let allowed = latencies.len() as u64 * (1_000_000 - ppm);
            if above * 1_000_000 > allowed {
                prop_assert_eq!(outcome(most), Outcome::Failed);
            }
        }
    }
}
