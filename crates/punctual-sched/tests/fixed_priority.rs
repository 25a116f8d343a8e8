//! Plain fixed priority: order among equals, preemption, push and pull between processors.

use proptest::prelude::*;
use punctual_sched::registry::Options;
use punctual_sched::{CpuId, Duration, Instant, Run, UnitId, UnitParams};
use punctual_testkit::driver::{Driver, at_ms, bound};

const MS: Duration = Duration::from_ms(1);

fn pool(cpus: usize) -> Driver {
    Driver::named("fixed-priority", cpus, &Options::new())
}

fn priority(priority: u32) -> UnitParams {
    UnitParams { priority: Some(priority), ..UnitParams::default() }
}

#[test]
fn equals_run_in_the_order_of_waking_and_a_preempted_unit_goes_first() {
    let mut driver = pool(1);
    let [a, b, c] = [5, 5, 5].map(|p| driver.insert(&priority(p)));
    let urgent = driver.insert(&priority(1));
    driver.release(b, at_ms(0), MS * 3);
    driver.release(c, at_ms(1), MS * 2);
    driver.release(a, at_ms(1), MS * 2);
    driver.release(urgent, at_ms(2), MS);
    driver.run_until(at_ms(9));
    assert_eq!(driver.timeline(0, MS), "1:0-2 3:2-3 1:3-4 2:4-6 0:6-8 -:8-9");
    assert_eq!(driver.completions_of(a), [at_ms(8)]);
}

#[test]
fn a_slice_ends_by_events_only() {
    let mut driver = pool(1);
    let unit = driver.insert(&priority(1));
    driver.release(unit, at_ms(0), MS * 1000);
    driver.run_until(at_ms(999));
    assert_eq!(driver.picks, 1);
    assert!(driver.policy.next_timer().at.is_never());
}

#[test]
fn a_preempted_unit_is_pushed_to_a_processor_that_runs_something_less_urgent() {
    let mut driver = pool(2);
    let [low, middle] = [9, 5].map(|p| driver.insert(&priority(p)));
    let urgent = driver.insert(&bound(priority(1), &[0]));
    driver.busy(low, at_ms(0));
    driver.busy(middle, at_ms(0));
    driver.release(urgent, at_ms(2), MS * 2);
    driver.run_until(at_ms(6));
    // At 2 unit 1 loses processor 0 and takes 1 from unit 0, which comes back when 0 is idle.
    assert_eq!(driver.timeline(0, MS), "1:0-2 2:2-4 0:4-6");
    assert_eq!(driver.timeline(1, MS), "0:0-2 1:2-6");
}

#[test]
fn a_unit_wakes_on_its_last_processor_if_that_is_idle() {
    let mut driver = pool(3);
    let [a, b] = [1, 2].map(|p| driver.insert(&priority(p)));
    driver.release(a, at_ms(0), MS);
    driver.release(b, at_ms(0), MS * 2);
    driver.release(b, at_ms(5), MS);
    driver.run_until(at_ms(6));
    assert_eq!(driver.timeline(0, MS), "0:0-1 -:1-6");
    assert_eq!(driver.timeline(1, MS), "1:0-2 -:2-5 1:5-6");
}

#[test]
fn a_new_priority_counts_at_once_and_puts_the_unit_behind_its_new_equals() {
    let mut driver = pool(1);
    let [a, b, c] = [1, 2, 3].map(|p| driver.insert(&priority(p)));
    for unit in [a, b, c] {
        driver.release(unit, at_ms(0), MS * 3);
    }
    driver.run_until(at_ms(1));
    driver.adjust(a, &priority(3)).expect("valid");
    driver.run_until(at_ms(9));
    assert_eq!(driver.timeline(0, MS), "0:0-1 1:1-4 2:4-7 0:7-9");
}

#[test]
fn a_unit_that_may_no_longer_run_where_it_runs_moves() {
    let mut driver = pool(2);
    let unit = driver.insert(&priority(1));
    driver.busy(unit, at_ms(0));
    driver.run_until(at_ms(1));
    driver.adjust(unit, &bound(priority(1), &[1])).expect("valid");
    driver.run_until(at_ms(2));
    assert_eq!(driver.cpu_of(unit), Some(CpuId(1)));
    let nowhere = driver.adjust(unit, &bound(priority(1), &[3]));
    assert_eq!(nowhere.expect_err("outside the pool").field(), "affinity");
}

#[test]
fn a_unit_that_sleeps_and_wakes_at_once_goes_behind_its_equals_and_never_runs_twice() {
    let mut driver = pool(2);
    let [a, b] = [1, 1].map(|p| driver.insert(&bound(priority(p), &[0])));
    let anywhere = driver.insert(&priority(1));
    driver.release(a, at_ms(0), MS);
    driver.release(b, at_ms(0), MS);
    driver.release(a, at_ms(1), MS);
    driver.release(anywhere, at_ms(0), MS);
    driver.release(anywhere, at_ms(1), MS);
    driver.run_until(at_ms(3));
    assert_eq!(driver.timeline(0, MS), "0:0-1 1:1-2 0:2-3");
    assert_eq!(driver.timeline(1, MS), "2:0-2 -:2-3");
}

/// Priority, processors (bit set) and jobs (release, demand in quarters of a millisecond) of a unit.
type Load = (u32, u32, Vec<(u64, u64)>);

fn loads() -> impl Strategy<Value = Vec<Load>> {
    let jobs = prop::collection::vec((0u64..120, 1u64..30), 0..6);
    prop::collection::vec((0u32..5, 1u32..16, jobs), 1..9)
}

fn start(driver: &mut Driver, loads: &[Load], with_affinity: bool) -> Vec<(UnitId, UnitParams)> {
    let quarters = |n| Duration::from_us(250 * n);
    let mut units = Vec::new();
    for (level, cpus, jobs) in loads {
        let allowed: Vec<u32> = (0..4).filter(|cpu| cpus >> cpu & 1 == 1).collect();
        let params = if with_affinity { bound(priority(*level), &allowed) } else { priority(*level) };
        let unit = driver.insert(&params);
        for &(release, demand) in jobs {
            driver.release(unit, Instant::ZERO + quarters(release), quarters(demand));
        }
        units.push((unit, params));
    }
    units
}

proptest! {
    #[test]
    fn the_m_most_urgent_units_run(loads in loads(), cpus in 1usize..5) {
        let mut driver = pool(cpus);
        let units = start(&mut driver, &loads, false);
        while driver.now() < at_ms(60) {
            driver.run_until(driver.now() + Duration::from_us(250));
            let level = |(unit, params): &(UnitId, UnitParams)| {
                driver.is_awake(*unit).then_some((params.priority, driver.cpu_of(*unit).is_none()))
            };
            let mut levels: Vec<_> = units.iter().filter_map(level).collect();
            levels.sort();
            let running = levels.iter().filter(|(_, waits)| !waits).count();
            prop_assert_eq!(running, levels.len().min(cpus));
            // Among equals it does not matter who runs, but nobody less urgent than a waiting unit may.
            let least_running = levels.iter().filter(|(_, waits)| !waits).map(|(p, _)| *p).max();
            let most_waiting = levels.iter().filter(|(_, waits)| *waits).map(|(p, _)| *p).min();
            prop_assert!(most_waiting.is_none() || least_running <= most_waiting);
        }
    }

    #[test]
    fn no_unit_waits_for_a_less_urgent_one_where_it_may_run(loads in loads()) {
        let mut driver = pool(4);
        let units = start(&mut driver, &loads, true);
        while driver.now() < at_ms(60) {
            driver.run_until(driver.now() + Duration::from_us(250));
            for (unit, params) in &units {
                if !driver.is_awake(*unit) || driver.cpu_of(*unit).is_some() {
                    continue;
                }
                let allowed = params.affinity.as_ref().expect("all are bound");
                for (other, other_params) in &units {
                    let shares = driver.cpu_of(*other).is_some_and(|cpu| allowed.contains(cpu));
                    prop_assert!(!shares || other_params.priority <= params.priority);
                }
            }
        }
        prop_assert!(driver.gantt.iter().all(|span| !matches!(span.run, Run::IdleFor(_))));
    }
}
