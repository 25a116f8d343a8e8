//! SEDF: exact timelines of every rule, and what slices guarantee.

use proptest::prelude::*;
use punctual_sched::registry::{OptionValue, Options};
use punctual_sched::{CpuId, Duration, Instant, Run, UnitId, UnitParams};
use punctual_testkit::driver::{Driver, at_ms, at_us, bound};

const MS: Duration = Duration::from_ms(1);

fn ms(ms: u64) -> Duration {
    Duration::from_ms(ms)
}

fn sedf(cpus: usize) -> Driver {
    Driver::named("sedf", cpus, &Options::new())
}

fn slice(slice_ms: u64, period_ms: u64) -> UnitParams {
    UnitParams { budget: Some(ms(slice_ms)), period: Some(ms(period_ms)), ..UnitParams::default() }
}

fn extra(slice_ms: u64, period_ms: u64) -> UnitParams {
    UnitParams { extratime: Some(true), ..slice(slice_ms, period_ms) }
}

fn busy(driver: &mut Driver, params: &UnitParams) -> UnitId {
    let unit = driver.insert(params);
    driver.busy(unit, driver.now());
    unit
}

#[test]
fn slices_run_by_deadline_and_spare_time_stays_unused_without_extratime() {
    let mut driver = sedf(1);
    busy(&mut driver, &slice(4, 20));
    busy(&mut driver, &slice(3, 10));
    driver.run_until(at_ms(20));
    assert_eq!(driver.timeline(0, MS), "1:0-3 0:3-7 -:7-10 1:10-13 -:13-20");
}

#[test]
fn a_slice_is_kept_while_blocked_and_restored_at_the_next_period() {
    let mut driver = sedf(1);
    let unit = driver.insert(&slice(4, 10));
    driver.release(unit, at_ms(0), ms(1));
    driver.release(unit, at_ms(6), ms(20));
    driver.run_until(at_ms(22));
    assert_eq!(driver.timeline(0, MS), "0:0-1 -:1-6 0:6-9 -:9-10 0:10-14 -:14-20 0:20-22");
}

#[test]
fn a_late_wake_up_starts_a_new_period() {
    let mut driver = sedf(1);
    let unit = driver.insert(&slice(4, 10));
    driver.release(unit, at_ms(0), ms(1));
    driver.release(unit, at_ms(13), ms(20));
    driver.run_until(at_ms(25));
    // Unlike RTDS, whose periods would stay aligned to 0: the next slice comes at 23, not at 20.
    assert_eq!(driver.timeline(0, MS), "0:0-1 -:1-13 0:13-17 -:17-23 0:23-25");
}

#[test]
fn extratime_uses_only_what_slices_leave() {
    let mut driver = sedf(1);
    let reserved = busy(&mut driver, &slice(6, 10));
    let spare = busy(&mut driver, &extra(1, 10));
    driver.run_until(at_ms(100));
    for k in 0..10 {
        let (from, to) = (at_ms(10 * k), at_ms(10 * k + 10));
        assert_eq!(driver.executed(reserved, from, to), ms(6));
        assert_eq!(driver.executed(spare, from, to), ms(4));
    }
}

#[test]
fn spare_time_goes_round_in_turns_of_half_a_millisecond() {
    let mut driver = sedf(1);
    busy(&mut driver, &slice(2, 4));
    for _ in 0..2 {
        let best_effort = UnitParams { budget: Some(Duration::ZERO), ..extra(0, 100) };
        busy(&mut driver, &best_effort);
    }
    driver.run_until(at_ms(8));
    let half = Duration::from_us(500);
    // Turns that a slice interrupts are continued afterwards.
    assert_eq!(
        driver.timeline(0, half),
        "0:0-4 1:4-5 2:5-6 1:6-7 2:7-8 0:8-12 1:12-13 2:13-14 1:14-15 2:15-16"
    );
}

#[test]
fn a_period_that_begins_takes_the_processor_from_spare_time() {
    let mut driver = sedf(1);
    let spare = UnitParams { budget: Some(Duration::ZERO), ..extra(0, 100) };
    busy(&mut driver, &spare);
    let unit = driver.insert(&slice(1, 10));
    driver.release(unit, at_us(300), MS);
    driver.run_until(at_ms(2));
    assert_eq!(driver.completions_of(unit), [at_us(1300)]);
}

#[test]
fn an_overrun_is_taken_off_the_next_slice() {
    let mut driver = sedf(1);
    let unit = busy(&mut driver, &slice(4, 10));
    driver.run_until(at_ms(0));
    driver.pass(at_ms(5));
    driver.pick_early(CpuId(0));
    driver.pass(at_ms(10));
    driver.on_timer();
    assert_eq!(driver.policy.account(unit).left, Some(ms(3)));
    driver.pass(at_ms(20));
    driver.on_timer();
    assert_eq!(driver.policy.account(unit).left, Some(ms(4)));
}

#[test]
fn units_settle_on_the_least_reserved_processor_and_stay_there() {
    let mut driver = sedf(2);
    let units = [slice(6, 10), slice(3, 10), slice(2, 10)].map(|params| busy(&mut driver, &params));
    driver.run_until(at_ms(10));
    assert_eq!(
        units.map(|unit| driver.policy.account(unit).home.map(|cpu| cpu.0)),
        [Some(0), Some(1), Some(1)]
    );
    assert_eq!(driver.timeline(0, MS), "0:0-6 -:6-10");
    assert_eq!(driver.timeline(1, MS), "1:0-3 2:3-5 -:5-10");
}

#[test]
fn a_new_affinity_moves_the_home_and_new_parameters_wait_for_the_next_period() {
    let mut driver = sedf(2);
    let unit = busy(&mut driver, &slice(4, 10));
    driver.run_until(at_ms(1));
    driver.adjust(unit, &bound(slice(1, 5), &[1])).expect("valid");
    driver.run_until(at_ms(16));
    assert_eq!(driver.timeline(0, MS), "0:0-1 -:1-16");
    assert_eq!(driver.timeline(1, MS), "-:0-1 0:1-4 -:4-10 0:10-11 -:11-15 0:15-16");
}

#[test]
fn missing_and_impossible_parameters_are_refused_by_name() {
    let mut driver = sedf(1);
    let mut refusal = |params: UnitParams| driver.try_insert(&params).expect_err("refused").to_string();
    assert_eq!(refusal(UnitParams::default()), "`budget` is missing and has no default");
    assert_eq!(
        refusal(slice(0, 10)),
        "`budget` must be at least 5us (or 0 with extratime) and at most the period (10ms)"
    );
    assert_eq!(refusal(slice(1, 10_001)), "`period` must be between 10us and 10s");
}

proptest! {
    /// Every unit gets its slice, however much time the others want.
    #[test]
    fn busy_units_that_fit_get_exactly_their_slice_in_every_period(
        wanted in prop::collection::vec((1u64..10, 0u64..20), 1..6),
        with_hog in any::<bool>(),
    ) {
        let mut driver = sedf(1);
        if with_hog {
            busy(&mut driver, &UnitParams { budget: Some(Duration::ZERO), ..extra(0, 7) });
        }
        let mut used = 0.0;
        let mut units = Vec::new();
        for (budget, slack) in wanted {
            let period = budget + slack;
            used += budget as f64 / period as f64;
            if used <= 1.0 {
                units.push((busy(&mut driver, &slice(budget, period)), budget, period));
            }
        }
        driver.run_until(at_ms(200));
        for (unit, budget, period) in units {
            for k in 0..200 / period {
                let got = driver.executed(unit, at_ms(k * period), at_ms((k + 1) * period));
                prop_assert_eq!(got, ms(budget));
            }
        }
        if with_hog {
            prop_assert!(driver.gantt.iter().all(|span| span.run != Run::Idle), "spare time is not used");
        }
    }
}

fn unblocking(how: &'static str) -> Driver {
    Driver::named("sedf", 1, &Options::new().with("unblock", OptionValue::Word(how)))
}

/// A unit of 4 ms in 20 ms with three jobs, beside a hog of 15 ms in 20 ms whose deadlines are the earlier.
fn finished_beside_a_hog(how: &'static str) -> Vec<Instant> {
    let mut driver = unblocking(how);
    busy(&mut driver, &slice(15, 20));
    let unit = driver.insert(&slice(4, 20));
    for (at, us) in [(1, 1000), (17, 1500), (19, 2000)] {
        driver.release(unit, at_ms(at), Duration::from_us(us));
    }
    driver.run_until(at_ms(60));
    driver.completions_of(unit)
}

/// The wake-up at 17 loses 3 ms of slice and gets one turn of 500 us in return; the rest of its job waits for
/// the period from 21 on. The hog is first then, since its deadline is at 40 and the unit's at 41.
#[test]
fn under_xens_unblocking_an_early_wake_up_gets_one_turn_and_waits_for_its_next_period() {
    assert_eq!(finished_beside_a_hog("xen"), [at_ms(16), at_ms(36), at_ms(38)]);
    // The slice that is kept ends at 20.5, when 500 us of the last job are left. They wait for the hog.
    assert_eq!(finished_beside_a_hog("resume"), [at_ms(16), at_us(18_500), at_ms(36)]);
}

/// Of two that woke early, the one that lost more of its period comes first; who may use spare time anyway
/// comes behind both.
#[test]
fn spare_time_is_for_those_first_that_lost_most_of_their_periods() {
    let mut driver = unblocking("xen");
    busy(&mut driver, &extra(1, 100));
    let [less, more] = [slice(2, 20), slice(4, 20)].map(|params| {
        let unit = driver.insert(&params);
        driver.release(unit, at_ms(1), Duration::from_us(1));
        driver.release(unit, at_ms(5), Duration::from_us(400));
        unit
    });
    driver.run_until(at_ms(10));
    let finished = [less, more].map(|unit| driver.completions_of(unit)[1]);
    assert_eq!(finished, [at_us(5_800), at_us(5_400)]);
}

/// `desched_extra_dom` forgets a loss when the turn ends, however little of it was made up for.
#[test]
fn a_loss_is_good_for_one_turn() {
    let mut driver = unblocking("xen");
    let unit = driver.insert(&slice(2, 20));
    driver.release(unit, at_ms(1), ms(1));
    driver.release(unit, at_ms(5), ms(4));
    driver.run_until(at_ms(60));
    let half = Duration::from_us(500);
    // 1 ms was lost at 5; the next periods begin at 21 and 41.
    assert_eq!(
        driver.timeline(0, half),
        "-:0-2 0:2-4 -:4-10 0:10-11 -:11-42 0:42-46 -:46-82 0:82-85 -:85-120"
    );
}

/// A unit that has used up its slice, and sleeps past the beginning of its next period, loses all of that
/// period's slice; one that sleeps through it starts a new one.
#[test]
fn a_period_that_begins_in_sleep_is_lost_as_well() {
    let mut driver = unblocking("xen");
    let unit = driver.insert(&slice(2, 20));
    driver.release(unit, at_ms(1), ms(2));
    driver.release(unit, at_ms(25), ms(2));
    driver.release(unit, at_ms(90), ms(2));
    driver.run_until(at_ms(100));
    let half = Duration::from_us(500);
    // The second period is 21 to 41. The third ends the second job at 42.5, and ends at 61: 90 is later than
    // the end of the fourth.
    assert_eq!(
        driver.timeline(0, half),
        "-:0-2 0:2-6 -:6-50 0:50-51 -:51-82 0:82-85 -:85-180 0:180-184 -:184-200"
    );
}

fn best_effort(weight: Option<u32>) -> UnitParams {
    UnitParams { budget: Some(Duration::ZERO), weight, ..extra(0, 100) }
}

fn by_score() -> Driver {
    let options = Options::new().with("extra", OptionValue::Word("score"));
    Driver::named("sedf", 1, &options.with("unblock", OptionValue::Word("xen")))
}

/// Scores of 2 and 1 times 2^16: after both have had a turn, the second has two for each of the first.
#[test]
fn spare_time_by_score_is_in_proportion_to_weights() {
    let mut driver = by_score();
    let units = [1, 2].map(|weight| busy(&mut driver, &best_effort(Some(weight))));
    driver.run_until(at_ms(6));
    let half = Duration::from_us(500);
    // Scores (first, second), in 2^16: (0, 0), (2, 0), (2, 1), (1, 1) where the first came earlier, ...
    assert_eq!(driver.timeline(0, half), "0:0-1 1:1-3 0:3-4 1:4-6 0:6-7 1:7-9 0:9-10 1:10-12");
    driver.run_until(at_ms(306));
    let of = |unit| driver.executed(unit, at_ms(6), at_ms(306));
    assert_eq!(units.map(of), [ms(100), ms(200)]);
}

/// Without weights a slice of 4 ms in 10 ms counts twice as much as one of 2 ms.
#[test]
fn spare_time_by_score_is_in_proportion_to_slices() {
    let mut driver = by_score();
    let units = [2, 4].map(|slice_ms| busy(&mut driver, &extra(slice_ms, 10)));
    driver.run_until(at_ms(600));
    let extras = units.map(|unit| driver.executed(unit, at_ms(0), at_ms(600)));
    // 4 of each 10 ms are spare: a third of them and two thirds.
    let ideal = [ms(60 * 2 + 80), ms(60 * 4 + 160)];
    for (got, ideal) in extras.into_iter().zip(ideal) {
        assert!(got.max(ideal).saturating_sub(got.min(ideal)) <= ms(1), "{got:?} instead of {ideal:?}");
    }
}

/// The score is kept in sleep: who comes back does not make up for turns that it slept through, and waits
/// for one turn of each other.
#[test]
fn a_sleeper_comes_back_behind_all_others_of_its_weight() {
    let mut driver = by_score();
    for _ in 0..3 {
        busy(&mut driver, &best_effort(None));
    }
    let sleeper = driver.insert(&best_effort(None));
    driver.release(sleeper, at_ms(0), Duration::from_us(100));
    driver.release(sleeper, at_us(50_000), Duration::from_us(100));
    driver.run_until(at_ms(60));
    // The first turns are those of the others. 50 ms is 400 us into the first one's 33rd; the two others'
    // follow.
    assert_eq!(driver.completions_of(sleeper), [at_us(1_600), at_us(51_200)]);
}
