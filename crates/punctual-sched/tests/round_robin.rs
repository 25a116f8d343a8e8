//! Round robin: exact timelines.

use punctual_sched::registry::{self, OptionValue, Options};
use punctual_sched::{Duration, UnitParams};
use punctual_testkit::driver::{Driver, at_ms, bound};

const MS: Duration = Duration::from_ms(1);

fn ms(ms: u64) -> Duration {
    Duration::from_ms(ms)
}

fn round_robin(cpus: usize, slice: Duration) -> Driver {
    Driver::named("round-robin", cpus, &Options::new().with("slice", OptionValue::Duration(slice)))
}

#[test]
fn hogs_take_turns_of_one_slice() {
    let mut driver = round_robin(1, ms(10));
    for _ in 0..3 {
        let unit = driver.insert(&UnitParams::default());
        driver.busy(unit, at_ms(0));
    }
    driver.run_until(at_ms(40));
    assert_eq!(driver.timeline(0, MS), "0:0-10 1:10-20 2:20-30 0:30-40");
}

#[test]
fn the_default_slice_is_that_of_linux() {
    let mut driver = Driver::named("round-robin", 1, &Options::new());
    for _ in 0..2 {
        let unit = driver.insert(&UnitParams::default());
        driver.busy(unit, at_ms(0));
    }
    driver.run_until(at_ms(200));
    assert_eq!(driver.timeline(0, MS), "0:0-100 1:100-200");
}

#[test]
fn a_wake_up_waits_for_the_end_of_the_slice() {
    let mut driver = round_robin(1, ms(10));
    let [hog, other] = [(); 2].map(|()| driver.insert(&UnitParams::default()));
    driver.busy(hog, at_ms(0));
    driver.release(other, at_ms(3), ms(2));
    driver.run_until(at_ms(15));
    assert_eq!(driver.timeline(0, MS), "0:0-10 1:10-12 0:12-15");
}

#[test]
fn a_lone_unit_runs_on_with_a_fresh_slice() {
    let mut driver = round_robin(1, ms(10));
    let [hog, other] = [(); 2].map(|()| driver.insert(&UnitParams::default()));
    driver.busy(hog, at_ms(0));
    driver.release(other, at_ms(15), ms(2));
    driver.run_until(at_ms(25));
    assert_eq!(driver.timeline(0, MS), "0:0-20 1:20-22 0:22-25");
}

#[test]
fn a_unit_that_sleeps_keeps_the_rest_of_its_slice_and_queues_at_the_end() {
    let mut driver = round_robin(1, ms(10));
    let [sleeper, a, b] = [(); 3].map(|()| driver.insert(&UnitParams::default()));
    driver.release(sleeper, at_ms(0), ms(6));
    driver.busy(a, at_ms(0));
    driver.busy(b, at_ms(0));
    driver.busy(sleeper, at_ms(8));
    driver.run_until(at_ms(36));
    assert_eq!(driver.timeline(0, MS), "0:0-6 1:6-16 2:16-26 0:26-30 1:30-36");
}

#[test]
fn two_processors_share_one_queue() {
    let mut driver = round_robin(2, ms(10));
    for _ in 0..3 {
        let unit = driver.insert(&UnitParams::default());
        driver.busy(unit, at_ms(0));
    }
    driver.run_until(at_ms(30));
    assert_eq!(driver.timeline(0, MS), "0:0-10 2:10-20 1:20-30");
    assert_eq!(driver.timeline(1, MS), "1:0-10 0:10-20 2:20-30");
}

#[test]
fn a_pinned_unit_waits_for_its_processor() {
    let mut driver = round_robin(2, ms(10));
    let pinned = bound(UnitParams::default(), &[0]);
    for params in [&pinned, &pinned, &UnitParams::default()] {
        let unit = driver.insert(params);
        driver.busy(unit, at_ms(0));
    }
    driver.run_until(at_ms(30));
    assert_eq!(driver.timeline(0, MS), "0:0-10 1:10-20 0:20-30");
    assert_eq!(driver.timeline(1, MS), "2:0-30");
}

#[test]
fn a_slice_of_no_length_is_refused() {
    let build = registry::find("round-robin").expect("registered").construct;
    let refused = build(1, &Options::new().with("slice", OptionValue::Duration(Duration::ZERO)));
    assert_eq!(refused.err().expect("refused").to_string(), "option `slice` must be longer than zero");
}
