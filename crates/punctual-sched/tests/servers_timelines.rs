//! Each server's schedule, instant by instant, on examples small enough to draw by hand.
//!
//! Timelines are in milliseconds: `0:0-2` unit 0 runs, `(0):2-3` the processor idles for unit 0, `-` it
//! idles.

use punctual_sched::registry::{OptionValue, Options};
use punctual_sched::{CpuId, CpuSet, Duration, Instant, ParamError, Run, UnitId, UnitParams};
use punctual_testkit::driver::{Driver, at_ms, at_us, bound, server_ms};

const MS: Duration = Duration::from_ms(1);

/// One processor under the default options.
fn server(name: &str) -> Driver {
    Driver::named(name, 1, &Options::new())
}

fn left(driver: &Driver, unit: UnitId) -> Duration {
    driver.policy.account(unit).left.expect("servers keep one")
}

#[test]
fn a_deferrable_server_keeps_its_budget_for_late_work() {
    let mut driver = server("deferrable");
    let urgent = driver.insert(&server_ms(2, 10, 1));
    let other = driver.insert(&server_ms(10, 10, 2));
    driver.busy(other, at_ms(0));
    driver.release(urgent, at_ms(7), MS * 5);
    driver.run_until(at_ms(30));
    // 2 ms before the boundary would be 7-9; the refill at 10 lets it go on, and 1 ms is left for the third.
    assert_eq!(driver.timeline(0, MS), "1:0-7 0:7-9 1:9-10 0:10-12 1:12-20 0:20-21 1:21-30");
    assert_eq!(driver.completions_of(urgent), [at_ms(21)]);
    let account = driver.policy.account(urgent);
    assert_eq!((account.exhaustions, account.replenishments), (2, 3));
}

#[test]
fn unused_deferrable_budget_is_lost_not_added_up() {
    let mut driver = server("deferrable");
    let unit = driver.insert(&server_ms(2, 10, 1));
    driver.busy(unit, at_ms(25));
    driver.run_until(at_ms(40));
    assert_eq!(driver.timeline(0, MS), "-:0-25 0:25-27 -:27-30 0:30-32 -:32-40");
}

#[test]
fn a_deferrable_server_delivers_its_budget_twice_without_a_break_around_the_boundary() {
    let mut driver = server("deferrable");
    let urgent = driver.insert(&server_ms(3, 10, 1));
    let other = driver.insert(&server_ms(10, 10, 2));
    driver.busy(other, at_ms(0));
    driver.busy(urgent, at_ms(7));
    driver.run_until(at_ms(20));
    assert_eq!(driver.timeline(0, MS), "1:0-7 0:7-13 1:13-20");
}

#[test]
fn a_periodic_and_a_sporadic_server_never_deliver_twice_without_a_break() {
    for (name, expected) in
        [("periodic", "(0):0-3 1:3-10 0:10-13 1:13-20"), ("sporadic", "1:0-7 0:7-10 1:10-17 0:17-20")]
    {
        let mut driver = server(name);
        let urgent = driver.insert(&server_ms(3, 10, 1));
        let other = driver.insert(&server_ms(10, 10, 2));
        driver.busy(other, at_ms(0));
        driver.busy(urgent, at_ms(7));
        driver.run_until(at_ms(20));
        assert_eq!(driver.timeline(0, MS), expected, "{name}");
    }
}

#[test]
fn a_periodic_server_idles_its_budget_away_while_the_less_urgent_waits() {
    let mut driver = server("periodic");
    let urgent = driver.insert(&server_ms(4, 10, 1));
    let other = driver.insert(&server_ms(5, 10, 2));
    driver.busy(other, at_ms(0));
    driver.release(urgent, at_ms(12), MS);
    driver.run_until(at_ms(20));
    // At 12 the work runs at once in what is left; at 13 the rest idles away again.
    assert_eq!(driver.timeline(0, MS), "(0):0-4 1:4-9 -:9-10 (0):10-12 0:12-13 (0):13-14 1:14-19 -:19-20");
    assert_eq!(driver.policy.account(urgent).exhaustions, 2);
}

#[test]
fn a_less_urgent_periodic_server_keeps_its_budget_while_a_more_urgent_one_runs() {
    let mut driver = server("periodic");
    let urgent = driver.insert(&server_ms(4, 10, 1));
    let other = driver.insert(&server_ms(3, 10, 2));
    driver.busy(urgent, at_ms(0));
    driver.release(other, at_ms(5), MS);
    driver.run_until(at_ms(10));
    assert_eq!(driver.timeline(0, MS), "0:0-4 (1):4-5 1:5-6 (1):6-7 -:7-10");
}

#[test]
fn a_polling_server_drops_its_budget_when_it_has_no_work() {
    let mut driver = server("polling");
    let urgent = driver.insert(&server_ms(4, 10, 1));
    let other = driver.insert(&server_ms(10, 10, 2));
    driver.busy(other, at_ms(0));
    driver.release(urgent, at_ms(0), MS);
    driver.release(urgent, at_ms(2), MS * 2);
    driver.run_until(at_ms(20));
    // Work that comes at 2, after the unit went to sleep at 1, waits for the poll at 10.
    assert_eq!(driver.timeline(0, MS), "0:0-1 1:1-10 0:10-12 1:12-20");
    assert_eq!(left(&driver, urgent), Duration::ZERO);
}

#[test]
fn a_polling_server_that_finds_no_work_at_its_poll_waits_for_the_next() {
    let mut driver = server("polling");
    let unit = driver.insert(&server_ms(4, 10, 1));
    driver.release(unit, at_us(10_500), MS);
    driver.run_until(at_us(10_200));
    assert_eq!(left(&driver, unit), Duration::ZERO);
    driver.run_until(at_ms(30));
    assert_eq!(driver.timeline(0, MS), "-:0-20 0:20-21 -:21-30");
}

#[test]
fn polled_work_that_arrives_at_the_instant_of_the_poll_is_served() {
    let mut driver = server("polling");
    let unit = driver.insert(&server_ms(4, 10, 1));
    driver.release(unit, at_ms(10), MS);
    driver.run_until(at_ms(20));
    assert_eq!(driver.timeline(0, MS), "-:0-10 0:10-11 -:11-20");
}

#[test]
fn a_sporadic_server_gets_each_stretch_back_one_period_after_it_began() {
    let mut driver = server("sporadic");
    let top = driver.insert(&server_ms(2, 20, 0));
    let unit = driver.insert(&server_ms(5, 10, 1));
    driver.busy(unit, at_ms(1));
    driver.release(top, at_ms(3), MS * 2);
    driver.run_until(at_ms(25));
    // Stretches of 2 (from 1) and 3 (from 5) come back at 11 and 15, then at 21 and 25.
    assert_eq!(
        driver.timeline(0, MS),
        "-:0-1 1:1-3 0:3-5 1:5-8 -:8-11 1:11-13 -:13-15 1:15-18 -:18-21 1:21-23 -:23-25"
    );
}

#[test]
fn a_quantum_decision_that_chooses_the_same_sporadic_unit_continues_its_stretch() {
    let mut driver = server("sporadic");
    let unit = driver.insert(&server_ms(4, 10, 1));
    driver.busy(unit, at_ms(0));
    driver.run_until(at_ms(19));
    assert_eq!(driver.timeline(0, MS), "0:0-4 -:4-10 0:10-14 -:14-19");
    assert_eq!(driver.policy.account(unit).replenishments, 1);
}

#[test]
fn equal_priorities_are_served_in_order_of_insertion_and_no_priority_ranks_last() {
    let mut driver = server("deferrable");
    let unranked = UnitParams { priority: None, ..server_ms(1, 10, 0) };
    let last = driver.insert(&unranked);
    let first = driver.insert(&server_ms(1, 10, 7));
    let second = driver.insert(&server_ms(1, 10, 7));
    for unit in [last, second, first] {
        driver.busy(unit, at_ms(0));
    }
    driver.run_until(at_ms(4));
    assert_eq!(driver.timeline(0, MS), "1:0-1 2:1-2 0:2-3 -:3-4");
}

#[test]
fn the_quantum_bounds_a_slice_and_exact_leaves_only_the_budget() {
    for (options, picks) in [
        (Options::new(), 5),
        (Options::new().with("quantum", OptionValue::Duration(Duration::from_us(500))), 9),
        (Options::new().with("quantum", OptionValue::Word("exact")), 2),
    ] {
        let mut driver = Driver::named("deferrable", 1, &options);
        let unit = driver.insert(&server_ms(4, 10, 1));
        driver.busy(unit, at_ms(0));
        driver.run_until(at_ms(9));
        assert_eq!(driver.picks, picks, "{options:?}");
        assert_eq!(driver.timeline(0, MS), "0:0-4 -:4-9");
    }
}

#[test]
fn a_late_timer_does_not_shift_the_following_replenishments() {
    let mut resched = CpuSet::new(1);
    let info = punctual_sched::registry::find("deferrable").expect("it exists");
    let mut policy = info.build(1, &Options::new()).expect("defaults are accepted");
    let unit = policy.insert(at_ms(3), &server_ms(2, 10, 1)).expect("valid");
    assert_eq!(policy.next_timer().at, at_ms(13));
    policy.on_timer(at_ms(37), &mut resched);
    assert_eq!(policy.next_timer().at, at_ms(23));
    policy.on_timer(at_ms(37), &mut resched);
    policy.on_timer(at_ms(37), &mut resched);
    assert_eq!(policy.next_timer().at, at_ms(43));
    assert_eq!(policy.account(unit).replenishments, 3);
}

#[test]
fn new_budget_and_period_count_from_the_next_replenishment_and_priority_at_once() {
    let mut driver = server("deferrable");
    let unit = driver.insert(&server_ms(2, 10, 2));
    let other = driver.insert(&server_ms(10, 10, 1));
    driver.busy(unit, at_ms(0));
    driver.busy(other, at_ms(0));
    driver.run_until(at_ms(1));
    driver.adjust(unit, &server_ms(3, 5, 0)).expect("valid");
    assert_eq!(driver.policy.account(unit).max, Some(MS * 2));
    driver.run_until(at_ms(20));
    assert_eq!(driver.timeline(0, MS), "1:0-1 0:1-3 1:3-10 0:10-13 1:13-15 0:15-18 1:18-20");
}

#[test]
fn a_sporadic_unit_gets_more_budget_one_period_later_and_loses_it_at_once() {
    let mut driver = server("sporadic");
    let unit = driver.insert(&server_ms(2, 10, 1));
    driver.busy(unit, at_ms(0));
    driver.run_until(at_ms(1));
    driver.adjust(unit, &server_ms(4, 10, 1)).expect("valid");
    driver.run_until(at_ms(12));
    // 2 from the first stretch at 10, 2 more from the new budget at 11: one stretch of 4 until 14.
    assert_eq!(driver.timeline(0, MS), "0:0-2 -:2-10 0:10-12");
    driver.adjust(unit, &server_ms(1, 10, 1)).expect("valid");
    driver.run_until(at_ms(35));
    assert_eq!(driver.timeline(0, MS), "0:0-2 -:2-10 0:10-12 -:12-21 0:21-22 -:22-31 0:31-32 -:32-35");
}

#[test]
fn units_go_to_the_least_utilized_processor_their_affinity_allows() {
    let mut driver = Driver::named("deferrable", 3, &Options::new());
    let mut home = |budget_ms, affinity: Option<&[u32]>| {
        let params = server_ms(budget_ms, 10, 1);
        let params = affinity.map_or_else(|| params.clone(), |cpus| bound(params.clone(), cpus));
        let unit = driver.insert(&params);
        driver.policy.account(unit).home
    };
    assert_eq!(home(5, None), Some(CpuId(0)));
    assert_eq!(home(3, None), Some(CpuId(1)));
    assert_eq!(home(4, Some(&[0, 1])), Some(CpuId(1)));
    assert_eq!(home(1, Some(&[0])), Some(CpuId(0)));
    assert_eq!(home(2, None), Some(CpuId(2)));
}

#[test]
fn equal_utilizations_are_equal_whatever_their_fractions() {
    for name in ["deferrable", "sedf"] {
        let mut driver = Driver::named(name, 2, &Options::new());
        let mut home = |budget_ms| {
            let unit = driver.insert(&server_ms(budget_ms, 11, 1));
            driver.policy.account(unit).home
        };
        // 2/11 + 2/11 is 4/11: the fourth finds both processors alike and takes the lower number.
        assert_eq!([2, 4, 2, 1].map(&mut home), [0, 1, 0, 0].map(|cpu| Some(CpuId(cpu))), "{name}");
    }
}

#[test]
fn a_running_unit_moves_to_another_processor_when_its_new_affinity_asks_for_it() {
    let mut driver = Driver::named("sporadic", 2, &Options::new());
    let unit = driver.insert(&server_ms(4, 10, 1));
    driver.busy(unit, at_ms(0));
    driver.run_until(at_ms(2));
    driver.adjust(unit, &bound(server_ms(4, 10, 1), &[1])).expect("valid");
    driver.run_until(at_ms(14));
    assert_eq!(driver.timeline(0, MS), "0:0-2 -:2-14");
    assert_eq!(driver.timeline(1, MS), "-:0-2 0:2-4 -:4-10 0:10-14");
}

#[test]
fn parameters_outside_their_range_are_refused_by_name() {
    let mut driver = server("sporadic");
    let refused = |driver: &mut Driver, params: UnitParams| {
        let error = driver.try_insert(&params).expect_err("out of range");
        (error.field(), error.to_string())
    };
    let no_period = UnitParams { budget: Some(MS), ..UnitParams::default() };
    assert_eq!(driver.try_insert(&no_period), Err(ParamError::Missing { field: "period" }));
    assert_eq!(
        refused(&mut driver, server_ms(11, 10, 1)),
        ("budget", "`budget` must be longer than zero and at most the period (10ms)".into())
    );
    assert_eq!(refused(&mut driver, server_ms(0, 10, 1)).0, "budget");
    assert_eq!(refused(&mut driver, server_ms(0, 0, 1)).0, "period");
    let nowhere = UnitParams { affinity: Some(CpuSet::new(1)), ..server_ms(1, 10, 1) };
    assert_eq!(refused(&mut driver, nowhere).0, "affinity");
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let build = punctual_sched::registry::find("polling").expect("it exists").construct;
    let zero = Options::new().with("quantum", OptionValue::Duration(Duration::ZERO));
    assert_eq!(build(1, &zero).err().map(|e| e.option), Some("quantum"));
    let both = Options::new()
        .with("quantum", OptionValue::Word("exact"))
        .with("accounting", OptionValue::Word("quantum"));
    assert_eq!(build(1, &both).err().map(|e| e.option), Some("accounting"));
    let idle =
        Options::new().with("quantum", OptionValue::Word("exact")).with("idle", OptionValue::Word("quantum"));
    assert_eq!(build(1, &idle).err().map(|e| e.option), Some("idle"));
}

/// RT-Xen s.4.2: the tick decides in every quantum.
#[test]
fn with_idle_quanta_an_idle_processor_decides_after_each_quantum() {
    let ends = |idle: &'static str| {
        let options = Options::new().with("idle", OptionValue::Word(idle));
        let mut driver = Driver::named("deferrable", 1, &options);
        let unit = driver.insert(&server_ms(3, 10, 1));
        driver.release(unit, at_ms(0), MS);
        driver.run_until(at_us(1_500));
        driver.slices().next().map(|slice| (slice.run, slice.until))
    };
    assert_eq!(ends("quantum"), Some((Run::Idle, at_ms(2))));
    assert_eq!(ends("until-work"), Some((Run::Idle, Instant::NEVER)));
}

/// Two units on one processor; the more urgent one runs in bursts of `burst_us` every millisecond.
fn bursts(accounting: &'static str, burst_us: u64) -> Duration {
    let options = Options::new().with("accounting", OptionValue::Word(accounting));
    let mut driver = Driver::named("deferrable", 1, &options);
    let urgent = driver.insert(&server_ms(1, 10, 1));
    let other = driver.insert(&server_ms(10, 10, 2));
    driver.busy(other, at_ms(0));
    driver.periodic(urgent, at_ms(0), MS, Duration::from_us(burst_us), at_ms(100));
    driver.run_until(at_ms(100));
    driver.executed(urgent, at_ms(0), at_ms(100))
}

#[test]
fn quantum_accounting_never_charges_runs_below_half_a_quantum_and_so_breaks_isolation() {
    // A share of 10 % is 10 ms in 100 ms.
    assert_eq!(bursts("exact", 400), MS * 10);
    assert_eq!(bursts("quantum", 400), MS * 40);
    // From half a quantum on it charges a whole one: the first burst uses up the first budget; later budgets
    // meet a queue of bursts and are spent in one run of 1 ms each.
    assert_eq!(bursts("quantum", 500), Duration::from_us(500) + MS * 9);
    assert_eq!(bursts("exact", 500), MS * 10);
}

#[test]
fn a_more_urgent_wake_up_preempts_within_the_quantum() {
    let mut driver = server("deferrable");
    let urgent = driver.insert(&server_ms(2, 10, 1));
    let other = driver.insert(&server_ms(10, 10, 2));
    driver.busy(other, at_ms(0));
    driver.release(urgent, at_us(2_300), MS);
    driver.run_until(at_ms(4));
    assert_eq!(driver.timeline(0, Duration::from_us(100)), "1:0-23 0:23-33 1:33-40");
}

#[test]
fn the_timer_names_the_processor_only_if_the_replenished_unit_is_charged_there() {
    let mut driver = Driver::named("periodic", 2, &Options::new());
    let unit = driver.insert(&server_ms(10, 10, 1));
    driver.run_until(at_ms(0));
    assert_eq!(driver.gantt, []);
    assert_eq!(driver.policy.next_timer().charge, Some(CpuId(0)));
    driver.run_until(at_ms(1));
    assert_eq!(driver.gantt[0].run, Run::IdleFor(unit));
    let other = driver.insert(&server_ms(1, 5, 0));
    driver.run_until(at_ms(2));
    assert_eq!(driver.policy.account(other).home, Some(CpuId(1)));
    driver.run_until(at_ms(4));
    let timer = driver.policy.next_timer();
    assert_eq!((timer.at, timer.charge), (at_ms(6), None));
}
