//! CBS: exact timelines of every rule, and the isolation that it is for. The excerpts of the guide that
//! builds it are checked against the source.

use proptest::prelude::*;
use punctual_sched::registry::Options;
use punctual_sched::{Duration, UnitId, UnitParams};
use punctual_testkit::driver::{Driver, at_ms};

const MS: Duration = Duration::from_ms(1);

fn ms(ms: u64) -> Duration {
    Duration::from_ms(ms)
}

fn cbs(cpus: usize) -> Driver {
    Driver::named("cbs", cpus, &Options::new())
}

fn server(budget_ms: u64, period_ms: u64) -> UnitParams {
    UnitParams { budget: Some(ms(budget_ms)), period: Some(ms(period_ms)), ..UnitParams::default() }
}

fn busy(driver: &mut Driver, params: &UnitParams) -> UnitId {
    let unit = driver.insert(params);
    driver.busy(unit, driver.now());
    unit
}

#[test]
fn an_exhausted_unit_is_throttled_until_its_deadline() {
    let mut driver = cbs(1);
    busy(&mut driver, &server(4, 10));
    driver.run_until(at_ms(24));
    assert_eq!(driver.timeline(0, MS), "0:0-4 -:4-10 0:10-14 -:14-20 0:20-24");
}

#[test]
fn a_wake_up_within_the_bandwidth_goes_on_with_budget_and_deadline() {
    let mut driver = cbs(1);
    let unit = driver.insert(&server(4, 10));
    driver.release(unit, at_ms(0), ms(3));
    driver.release(unit, at_ms(5), ms(2));
    driver.run_until(at_ms(12));
    // At 5, 1 ms left until 10 is less than the bandwidth of 0.4.
    assert_eq!(driver.timeline(0, MS), "0:0-3 -:3-5 0:5-6 -:6-10 0:10-11 -:11-12");
}

#[test]
fn a_wake_up_beyond_the_bandwidth_restarts() {
    let mut driver = cbs(1);
    let unit = driver.insert(&server(4, 10));
    driver.release(unit, at_ms(0), ms(1));
    driver.release(unit, at_ms(6), ms(8));
    driver.run_until(at_ms(22));
    // At 6, 3 ms left until 10 is more than 0.4. A deferrable server would run 6-9 and 10-14.
    assert_eq!(driver.timeline(0, MS), "0:0-1 -:1-6 0:6-10 -:10-16 0:16-20 -:20-22");
}

#[test]
fn a_wake_up_at_exactly_the_bandwidth_goes_on() {
    let mut driver = cbs(1);
    let unit = driver.insert(&server(4, 10));
    driver.release(unit, at_ms(0), ms(2));
    driver.release(unit, at_ms(5), ms(1));
    driver.run_until(at_ms(5));
    let account = driver.policy.account(unit);
    assert_eq!((account.left, account.deadline), (Some(ms(2)), Some(at_ms(10))));
}

#[test]
fn a_throttled_unit_that_sleeps_and_wakes_stays_throttled() {
    let mut driver = cbs(1);
    let unit = driver.insert(&server(4, 10));
    driver.release(unit, at_ms(0), ms(4));
    driver.release(unit, at_ms(6), ms(1));
    driver.run_until(at_ms(12));
    assert_eq!(driver.timeline(0, MS), "0:0-4 -:4-10 0:10-11 -:11-12");
}

#[test]
fn new_parameters_take_effect_at_the_next_replenishment() {
    let mut driver = cbs(1);
    let unit = busy(&mut driver, &server(4, 10));
    driver.run_until(at_ms(1));
    driver.adjust(unit, &server(1, 5)).expect("valid");
    driver.run_until(at_ms(16));
    assert_eq!(driver.timeline(0, MS), "0:0-4 -:4-10 0:10-11 -:11-15 0:15-16");
}

#[test]
fn on_two_processors_the_earliest_deadlines_run() {
    let mut driver = cbs(2);
    for period in [30, 20, 10] {
        busy(&mut driver, &server(4, period));
    }
    driver.run_until(at_ms(8));
    assert_eq!(driver.timeline(0, MS), "2:0-4 0:4-8");
    assert_eq!(driver.timeline(1, MS), "1:0-4 -:4-8");
}

#[test]
fn missing_and_impossible_parameters_are_refused_by_name() {
    let mut driver = cbs(1);
    let mut refusal = |params: UnitParams| driver.try_insert(&params).expect_err("refused").to_string();
    assert_eq!(refusal(UnitParams::default()), "`budget` is missing and has no default");
    assert_eq!(refusal(server(11, 10)), "`budget` must be longer than zero and at most the period (10ms)");
}

/// The code in the guide is the code in the tree.
#[test]
fn every_rust_excerpt_of_the_guide_is_in_the_source() {
    let guide = include_str!("../../../docs/write-a-policy.md");
    let source = include_str!("../src/cbs.rs");
    let excerpts: Vec<&str> =
        guide.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(excerpts.len() >= 5, "the guide quotes the policy step by step");
    for excerpt in excerpts {
        assert!(source.contains(excerpt), "not in src/cbs.rs:\n{excerpt}");
    }
}

proptest! {
    /// Bandwidth isolation: a task of C <= Q every T meets its deadlines beside neighbours that release
    /// whatever they like, as long as the bandwidths add up to at most one. (Q is reserved whole, so C = Q is
    /// the hardest.)
    #[test]
    fn a_periodic_task_in_its_server_misses_nothing_whatever_the_others_do(
        own in (1u64..6, 0u64..10),
        others in prop::collection::vec(
            ((1u64..6, 0u64..20), prop::collection::vec((0u64..100, 1u64..30), 0..10)), 0..5),
    ) {
        let mut driver = cbs(1);
        let (budget, period) = (own.0, own.0 + own.1);
        let mut bandwidth = budget as f64 / period as f64;
        let task = driver.insert(&server(budget, period));
        driver.periodic(task, at_ms(0), ms(period), ms(budget), at_ms(120));
        for ((budget, slack), jobs) in others {
            bandwidth += budget as f64 / (budget + slack) as f64;
            if bandwidth > 1.0 {
                break;
            }
            let unit = driver.insert(&server(budget, budget + slack));
            for (at, demand) in jobs {
                driver.release(unit, at_ms(at), ms(demand));
            }
        }
        driver.run_until(at_ms(200));
        for done in driver.completions.iter().filter(|done| done.unit == task) {
            prop_assert!(done.at <= done.release + ms(period), "{:?} is late", done);
        }
    }
}
