//! The same questions to `response-time-analysis`, the library of B. Brandenburg (also SchedCAT's author),
//! whose analyses follow proofs that a machine has checked (Prosa; Bozhko & Brandenburg, ECRTS 2020).

use proptest::prelude::*;
use punctual_analysis::demand::Demand;
use punctual_analysis::overhead::Decisions;
use punctual_analysis::supply::Supply;
use punctual_analysis::{edf, fixed_priority};
use punctual_sched::Duration as Time;
use response_time_analysis::arrival::Sporadic;
use response_time_analysis::demand::RBF;
use response_time_analysis::supply::{Constrained, Periodic, SupplyBound};
use response_time_analysis::time::{Duration, Service};
use response_time_analysis::wcet::Scalar;
use response_time_analysis::{edf as their_edf, fixed_priority as their_fixed_priority};

/// Busy intervals are looked for up to this length.
const LIMIT: u64 = 100_000;

fn ns(n: u64) -> Time {
    Time::from_ns(n)
}

fn rbf(task: &Demand) -> RBF<Sporadic, Scalar> {
    let arrivals = Sporadic::new_zero_jitter(Duration::from(task.period.as_ns()));
    RBF::new(arrivals, Scalar::new(Service::from(task.cost.as_ns())))
}

fn theirs_ranked(tasks: &[Demand], of: usize) -> Option<Time> {
    let above: Vec<_> = tasks[..of].iter().map(rbf).collect();
    let limit = Duration::from(LIMIT);
    let found =
        their_fixed_priority::fully_preemptive::dedicated_uniproc_rta(&rbf(&tasks[of]), &above, limit);
    found.ok().map(|time| ns(u64::from(time)))
}

fn theirs_edf(tasks: &[Demand], of: usize) -> Option<Time> {
    let rbfs: Vec<_> = tasks.iter().map(rbf).collect();
    let task = |i: usize| their_edf::fully_preemptive::Task {
        rbf: &rbfs[i],
        deadline: Duration::from(tasks[i].deadline.as_ns()),
    };
    let others: Vec<_> = (0..tasks.len()).filter(|i| *i != of).map(task).collect();
    let found = their_edf::fully_preemptive::dedicated_uniproc_rta(&task(of), &others, Duration::from(LIMIT));
    found.ok().map(|time| ns(u64::from(time)))
}

/// Tasks of up to about full utilization, deadlines before and after the periods.
fn tasks() -> impl Strategy<Value = Vec<Demand>> {
    prop::collection::vec((1u64..8, 4u64..60, 50u64..150), 1..6).prop_map(|tasks| {
        let demand = |(cost, period, part): (u64, u64, u64)| {
            Demand::implicit(ns(cost), ns(period)).due(ns((period * part / 100).max(cost)))
        };
        tasks.into_iter().map(demand).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn response_times_under_fixed_priorities_are_the_same(tasks in tasks()) {
        for of in 0..tasks.len() {
            let limit = tasks[of].period;
            let ours = fixed_priority::response(&tasks[of], &tasks[..of], &Decisions::default(), limit);
            prop_assert_eq!(ours, theirs_ranked(&tasks, of).filter(|time| *time <= limit));
        }
    }

    #[test]
    fn edf_holds_all_deadlines_by_both_or_by_neither_and_no_bound_is_below_theirs(tasks in tasks()) {
        let theirs: Vec<Option<Time>> = (0..tasks.len()).map(|of| theirs_edf(&tasks, of)).collect();
        let ours = edf::bounds(&tasks, &[], &Supply::WHOLE);
        let hold = theirs.iter().zip(&tasks).all(|(time, task)| time.is_some_and(|t| t <= task.deadline));
        if ours != Err(edf::Error::TooLong) {
            prop_assert_eq!(ours.is_ok(), hold, "{:?} {:?}", ours, theirs);
        }
        for (ours, theirs) in ours.into_iter().flatten().zip(theirs) {
            prop_assert!(theirs.is_some_and(|theirs| theirs <= ours));
        }
    }

    #[test]
    fn periodic_and_explicit_deadline_resources_supply_the_same(
        budget in 1u64..20, more in 0u64..20, later in 0u64..20, window in 0u64..200, work in 0u64..100,
    ) {
        let (deadline, period) = (budget + more, budget + more + later);
        let theirs = Periodic::new(Service::from(budget), Duration::from(period));
        let ours = Supply::periodic(ns(budget), ns(period));
        let provided = theirs.provided_service(Duration::from(window));
        prop_assert_eq!(ours.bound(ns(window)).as_ns(), u64::from(provided));
        let needed = theirs.service_time(Service::from(work));
        prop_assert_eq!(ours.time_for(ns(work)).as_ns(), u64::from(needed));
        let ours = Supply::explicit_deadline(ns(budget), ns(period), ns(deadline));
        let (deadline, period) = (Duration::from(deadline), Duration::from(period));
        let theirs = Constrained::new(Service::from(budget), deadline, period);
        let provided = theirs.provided_service(Duration::from(window));
        prop_assert_eq!(ours.bound(ns(window)).as_ns(), u64::from(provided));
    }
}
