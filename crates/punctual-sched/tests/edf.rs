//! Global EDF: exact timelines and the classical results.

use proptest::prelude::*;
use punctual_sched::registry::Options;
use punctual_sched::{Duration, Instant, ParamError, UnitId, UnitParams};
use punctual_testkit::driver::{Driver, at_ms, bound};

const MS: Duration = Duration::from_ms(1);

fn edf(cpus: usize) -> Driver {
    Driver::named("edf", cpus, &Options::new())
}

fn on(cpus: &[u32]) -> UnitParams {
    bound(UnitParams::default(), cpus)
}

fn ms(ms: u64) -> Duration {
    Duration::from_ms(ms)
}

#[test]
fn the_earlier_deadline_preempts_and_the_displaced_job_resumes() {
    let mut driver = edf(1);
    let [late, early] = [(); 2].map(|()| driver.insert(&UnitParams::default()));
    driver.release_due(late, at_ms(0), ms(5), at_ms(20));
    driver.release_due(early, at_ms(2), ms(3), at_ms(10));
    driver.run_until(at_ms(10));
    assert_eq!(driver.timeline(0, MS), "0:0-2 1:2-5 0:5-8 -:8-10");
}

#[test]
fn a_running_unit_keeps_its_processor_against_an_equal_deadline() {
    let mut driver = edf(1);
    let [first, second] = [(); 2].map(|()| driver.insert(&UnitParams::default()));
    driver.release_due(second, at_ms(0), ms(2), at_ms(9));
    driver.release_due(first, at_ms(1), ms(2), at_ms(9));
    driver.run_until(at_ms(4));
    assert_eq!(driver.timeline(0, MS), "1:0-2 0:2-4");
}

#[test]
fn a_displaced_unit_keeps_its_place_among_equals() {
    let mut driver = edf(1);
    let units = [(); 3].map(|()| driver.insert(&UnitParams::default()));
    driver.release_due(units[2], at_ms(0), ms(3), at_ms(20));
    driver.release_due(units[0], at_ms(1), ms(3), at_ms(20));
    driver.release_due(units[1], at_ms(2), ms(1), at_ms(5));
    driver.run_until(at_ms(7));
    assert_eq!(driver.timeline(0, MS), "2:0-2 1:2-3 2:3-4 0:4-7");
}

#[test]
fn a_job_without_its_own_deadline_is_due_after_the_relative_one_or_the_period() {
    let mut driver = edf(1);
    let by_period = driver.insert(&UnitParams { period: Some(ms(9)), ..UnitParams::default() });
    let by_deadline =
        driver.insert(&UnitParams { period: Some(ms(50)), deadline: Some(ms(7)), ..UnitParams::default() });
    let by_nothing = driver.insert(&UnitParams::default());
    for unit in [by_nothing, by_period, by_deadline] {
        driver.release(unit, at_ms(3), ms(1));
    }
    driver.run_until(at_ms(3));
    let due = |unit: UnitId| driver.policy.account(unit).deadline;
    assert_eq!(due(by_period), Some(at_ms(12)));
    assert_eq!(due(by_deadline), Some(at_ms(10)));
    assert_eq!(due(by_nothing), Some(Instant::NEVER));
    driver.run_until(at_ms(6));
    assert_eq!(driver.timeline(0, MS), "-:0-3 1:3-4 0:4-5 2:5-6");
}

#[test]
fn queued_work_with_a_later_deadline_gives_the_processor_up() {
    let mut driver = edf(1);
    let [burst, other] = [(); 2].map(|()| driver.insert(&UnitParams::default()));
    driver.release_due(burst, at_ms(0), ms(2), at_ms(4));
    driver.release_due(burst, at_ms(0), ms(2), at_ms(12));
    driver.release_due(other, at_ms(0), ms(2), at_ms(8));
    driver.run_until(at_ms(6));
    assert_eq!(driver.timeline(0, MS), "0:0-2 1:2-4 0:4-6");
}

#[test]
fn on_two_processors_the_two_earliest_deadlines_run() {
    let mut driver = edf(2);
    let units = [(); 3].map(|()| driver.insert(&UnitParams::default()));
    driver.release_due(units[0], at_ms(0), ms(6), at_ms(30));
    driver.release_due(units[1], at_ms(0), ms(6), at_ms(20));
    driver.release_due(units[2], at_ms(1), ms(2), at_ms(10));
    driver.run_until(at_ms(8));
    assert_eq!(driver.timeline(0, MS), "1:0-6 -:6-8");
    assert_eq!(driver.timeline(1, MS), "0:0-1 2:1-3 0:3-8");
}

#[test]
fn a_woken_unit_prefers_the_idle_processor_it_ran_on() {
    let mut driver = edf(3);
    let units = [(); 3].map(|()| driver.insert(&UnitParams::default()));
    for unit in units {
        driver.release_due(unit, at_ms(0), ms(2), at_ms(50));
    }
    driver.release_due(units[2], at_ms(5), ms(2), at_ms(50));
    driver.run_until(at_ms(8));
    assert_eq!(driver.timeline(2, MS), "2:0-2 -:2-5 2:5-7 -:7-8");
}

/// The gap that Xen's tickle rule leaves: processor 0 is tickled for the unit that may run anywhere and then
/// taken by a more urgent one that may run nowhere else.
#[test]
fn a_unit_that_loses_the_processor_it_tickled_asks_for_another() {
    let mut driver = edf(2);
    let anywhere = driver.insert(&UnitParams::default());
    let pinned = driver.insert(&on(&[0]));
    driver.release_due(anywhere, at_ms(1), ms(2), at_ms(20));
    driver.release_due(pinned, at_ms(1), ms(2), at_ms(10));
    driver.run_until(at_ms(4));
    assert_eq!(driver.timeline(0, MS), "-:0-1 1:1-3 -:3-4");
    assert_eq!(driver.timeline(1, MS), "-:0-1 0:1-3 -:3-4");
}

#[test]
fn a_new_affinity_moves_a_running_unit_at_once() {
    let mut driver = edf(2);
    let unit = driver.insert(&UnitParams::default());
    driver.busy(unit, at_ms(0));
    driver.run_until(at_ms(2));
    driver.adjust(unit, &on(&[1])).expect("valid");
    driver.run_until(at_ms(4));
    assert_eq!(driver.timeline(0, MS), "0:0-2 -:2-4");
    assert_eq!(driver.timeline(1, MS), "-:0-2 0:2-4");
}

#[test]
fn an_affinity_outside_the_pool_and_a_zero_deadline_are_refused_by_name() {
    let mut driver = edf(2);
    let outside = driver.try_insert(&on(&[5]));
    assert_eq!(
        outside.expect_err("processor 5 of 2").to_string(),
        "`affinity` must be at least one of the pool's processors (0..2)"
    );
    let zero = driver.try_insert(&UnitParams { deadline: Some(Duration::ZERO), ..UnitParams::default() });
    assert_eq!(zero.as_ref().map_err(ParamError::field), Err("deadline"));
}

/// Dhall and Liu's example: two light tasks and one whose deadline is a little later occupy two processors so
/// that the heavy one misses although the utilization is hardly above one.
#[test]
fn global_edf_shows_the_dhall_effect() {
    let mut driver = edf(2);
    let units = [(); 3].map(|()| driver.insert(&UnitParams::default()));
    driver.release_due(units[0], at_ms(0), ms(2), at_ms(10));
    driver.release_due(units[1], at_ms(0), ms(2), at_ms(10));
    driver.release_due(units[2], at_ms(0), ms(10), at_ms(11));
    driver.run_until(at_ms(20));
    assert_eq!(driver.completions_of(units[2]), [at_ms(12)]);
}

/// (period, demand) in milliseconds; periods divide 120.
fn task_sets() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let period = prop::sample::select(vec![4u64, 5, 6, 8, 10, 12, 15, 20, 24, 30, 40, 60]);
    prop::collection::vec(period.prop_flat_map(|p| (Just(p), 1..=p)), 1..7)
}

/// Deadlines missed in one hyperperiod of synchronous release, unfinished jobs included.
fn misses(tasks: &[(u64, u64)]) -> usize {
    let end = at_ms(120);
    let mut driver = edf(1);
    let units: Vec<_> = tasks.iter().map(|_| driver.insert(&UnitParams::default())).collect();
    for (&unit, &(period, demand)) in units.iter().zip(tasks) {
        driver.periodic(unit, Instant::ZERO, ms(period), ms(demand), end);
    }
    driver.run_until(end);
    let met = |unit: UnitId, period: u64| {
        let of_unit = driver.completions.iter().filter(|done| done.unit == unit);
        of_unit.filter(|done| done.at <= done.release + ms(period)).count()
    };
    units.iter().zip(tasks).map(|(&unit, &(period, _))| 120 / period as usize - met(unit, period)).sum()
}

proptest! {
    #[test]
    fn on_one_processor_deadlines_are_missed_exactly_when_utilization_exceeds_one(tasks in task_sets()) {
        let demand: u64 = tasks.iter().map(|&(period, demand)| demand * (120 / period)).sum();
        prop_assert_eq!(misses(&tasks) > 0, demand > 120, "{}/120 of the processor", demand);
    }

    #[test]
    fn a_feasible_set_filled_to_the_brim_misses_nothing(tasks in task_sets()) {
        let mut room = 120;
        let mut fitting = Vec::new();
        for (period, demand) in tasks {
            let fits = demand.min(room * period / 120);
            if fits > 0 {
                fitting.push((period, fits));
                room -= fits * (120 / period);
            }
        }
        if room > 0 {
            fitting.push((120, room));
        }
        prop_assert_eq!(misses(&fitting), 0);
    }
}
