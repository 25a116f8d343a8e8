//! RTDS: exact timelines of every rule, and what the servers guarantee.

use proptest::prelude::*;
use punctual_sched::registry::Options;
use punctual_sched::{CpuId, Duration, Instant, ParamError, UnitId, UnitParams};
use punctual_testkit::driver::{Driver, at_ms, bound};

const MS: Duration = Duration::from_ms(1);

fn ms(ms: u64) -> Duration {
    Duration::from_ms(ms)
}

fn rtds(cpus: usize) -> Driver {
    Driver::named("rtds", cpus, &Options::new())
}

/// Xen 4.5, the paper's: no extratime.
fn plain(budget_ms: u64, period_ms: u64) -> UnitParams {
    UnitParams { extratime: Some(false), ..extra(budget_ms, period_ms) }
}

fn extra(budget_ms: u64, period_ms: u64) -> UnitParams {
    UnitParams { budget: Some(ms(budget_ms)), period: Some(ms(period_ms)), ..UnitParams::default() }
}

fn busy(driver: &mut Driver, params: &UnitParams) -> UnitId {
    let unit = driver.insert(params);
    driver.busy(unit, driver.now());
    unit
}

#[test]
fn defaults_are_those_of_xen() {
    let mut driver = rtds(1);
    let unit = driver.insert(&UnitParams::default());
    let account = driver.policy.account(unit);
    assert_eq!((account.max, account.deadline, account.may_overrun), (Some(ms(4)), Some(at_ms(10)), true));
}

#[test]
fn an_exhausted_unit_waits_for_its_next_period() {
    let mut driver = rtds(1);
    busy(&mut driver, &plain(4, 10));
    driver.run_until(at_ms(24));
    assert_eq!(driver.timeline(0, MS), "0:0-4 -:4-10 0:10-14 -:14-20 0:20-24");
}

#[test]
fn the_earlier_deadline_runs_first() {
    let mut driver = rtds(1);
    busy(&mut driver, &plain(4, 10));
    busy(&mut driver, &plain(2, 5));
    driver.run_until(at_ms(20));
    // At 10 both deadlines are equal for unit 0 (20) and later for unit 1 (15).
    assert_eq!(driver.timeline(0, MS), "1:0-2 0:2-6 1:6-8 -:8-10 1:10-12 0:12-16 1:16-18 -:18-20");
}

#[test]
fn budget_is_kept_while_asleep_until_the_deadline() {
    let mut driver = rtds(1);
    let unit = driver.insert(&plain(4, 10));
    driver.release(unit, at_ms(0), ms(1));
    driver.release(unit, at_ms(6), ms(20));
    driver.run_until(at_ms(22));
    // 3 ms are left at 6; at 10 they are replaced, not added to.
    assert_eq!(driver.timeline(0, MS), "0:0-1 -:1-6 0:6-9 -:9-10 0:10-14 -:14-20 0:20-22");
}

#[test]
fn a_unit_that_wakes_after_its_deadline_has_a_full_budget_and_its_periods_stay_aligned() {
    let mut driver = rtds(1);
    let unit = driver.insert(&plain(4, 10));
    driver.release(unit, at_ms(0), ms(3));
    driver.release(unit, at_ms(37), ms(20));
    driver.run_until(at_ms(37));
    let account = driver.policy.account(unit);
    assert_eq!((account.left, account.deadline), (Some(ms(4)), Some(at_ms(40))));
    driver.run_until(at_ms(46));
    // Deferrable: the saved budget and the next one run back to back.
    assert_eq!(driver.timeline(0, MS), "0:0-3 -:3-37 0:37-44 -:44-46");
}

#[test]
fn a_sleeping_unit_arms_no_timer() {
    let mut driver = rtds(1);
    let unit = driver.insert(&plain(4, 10));
    assert!(driver.policy.next_timer().at.is_never());
    driver.release(unit, at_ms(0), ms(1));
    driver.run_until(at_ms(0));
    assert_eq!(driver.policy.next_timer().at, at_ms(10));
    driver.run_until(at_ms(1));
    assert!(driver.policy.next_timer().at.is_never());
}

#[test]
fn extratime_continues_one_level_down_and_returns_at_the_replenishment() {
    let mut driver = rtds(1);
    busy(&mut driver, &extra(2, 10));
    busy(&mut driver, &extra(4, 20));
    driver.run_until(at_ms(14));
    // 0 is first by its deadline, 1 has a level-0 budget until 6; then 0 (level 1, due 10) twice, 1 at level
    // 1 ranks before 0 at level 2. At 10 unit 0 is back on level 0.
    assert_eq!(driver.timeline(0, MS), "0:0-2 1:2-6 0:6-8 1:8-10 0:10-12 1:12-14");
}

#[test]
fn extratime_never_takes_time_from_a_budget() {
    let mut driver = rtds(1);
    busy(&mut driver, &extra(1, 4));
    let reserved = busy(&mut driver, &plain(5, 10));
    driver.run_until(at_ms(100));
    for k in 0..10 {
        assert_eq!(driver.executed(reserved, at_ms(10 * k), at_ms(10 * k + 10)), ms(5), "period {k}");
    }
}

#[test]
fn a_demoted_unit_is_replenished_in_time() {
    let mut driver = rtds(1);
    let demoted = busy(&mut driver, &extra(1, 4));
    for _ in 0..3 {
        busy(&mut driver, &plain(1, 20));
    }
    driver.run_until(at_ms(40));
    for k in 0..10 {
        assert!(driver.executed(demoted, at_ms(4 * k), at_ms(4 * k + 4)) >= MS, "period {k}");
    }
}

#[test]
fn overrun_is_forgiven() {
    let mut driver = rtds(1);
    let unit = busy(&mut driver, &plain(4, 10));
    driver.run_until(at_ms(0));
    driver.pass(at_ms(7));
    driver.charge(CpuId(0));
    assert_eq!(driver.policy.account(unit).left, Some(Duration::ZERO));
    driver.pass(at_ms(10));
    driver.on_timer();
    assert_eq!(driver.policy.account(unit).left, Some(ms(4)));
}

#[test]
fn a_late_replenishment_does_not_shift_the_periods() {
    let mut driver = rtds(1);
    let unit = busy(&mut driver, &plain(4, 10));
    driver.run_until(at_ms(0));
    driver.pass(at_ms(33));
    driver.on_timer();
    assert_eq!(driver.policy.account(unit).deadline, Some(at_ms(40)));
}

#[test]
fn new_parameters_take_effect_at_the_next_replenishment() {
    let mut driver = rtds(1);
    let unit = busy(&mut driver, &plain(4, 10));
    driver.run_until(at_ms(1));
    driver.adjust(unit, &plain(1, 5)).expect("valid");
    driver.run_until(at_ms(21));
    assert_eq!(driver.timeline(0, MS), "0:0-4 -:4-10 0:10-11 -:11-15 0:15-16 -:16-20 0:20-21");
}

#[test]
fn a_wake_up_takes_an_idle_processor_before_it_preempts() {
    let mut driver = rtds(2);
    let late = driver.insert(&plain(8, 40));
    let early = driver.insert(&plain(2, 10));
    driver.release(late, at_ms(0), ms(5));
    driver.release(early, at_ms(1), ms(2));
    driver.run_until(at_ms(5));
    assert_eq!(driver.timeline(0, MS), "0:0-5");
    assert_eq!(driver.timeline(1, MS), "-:0-1 1:1-3 -:3-5");
}

#[test]
fn a_wake_up_preempts_the_least_urgent_of_the_running() {
    let mut driver = rtds(2);
    let units = [plain(9, 20), plain(9, 40), plain(2, 10)].map(|params| driver.insert(&params));
    driver.release(units[0], at_ms(0), ms(5));
    driver.release(units[1], at_ms(0), ms(5));
    driver.release(units[2], at_ms(1), ms(2));
    driver.run_until(at_ms(7));
    assert_eq!(driver.timeline(0, MS), "0:0-5 -:5-7");
    assert_eq!(driver.timeline(1, MS), "1:0-1 2:1-3 1:3-7");
}

#[test]
fn simultaneous_wake_ups_tickle_different_processors() {
    let mut driver = rtds(4);
    for _ in 0..4 {
        busy(&mut driver, &plain(10, 10));
    }
    driver.run_until(at_ms(1));
    for cpu in 0..4 {
        assert_eq!(driver.timeline(cpu, MS), format!("{cpu}:0-1"));
    }
}

#[test]
fn an_equal_deadline_does_not_preempt() {
    let mut driver = rtds(1);
    let [first, second] = [(); 2].map(|()| driver.insert(&plain(4, 10)));
    driver.release(second, at_ms(0), ms(3));
    driver.release(first, at_ms(1), ms(3));
    driver.run_until(at_ms(6));
    assert_eq!(driver.timeline(0, MS), "1:0-3 0:3-6");
}

#[test]
fn a_replenished_running_unit_gives_way_to_a_more_urgent_one() {
    let mut driver = rtds(1);
    busy(&mut driver, &plain(6, 6));
    driver.run_until(at_ms(5));
    busy(&mut driver, &plain(2, 5));
    driver.run_until(at_ms(9));
    // Due 6 before 10; from 6 on due 12 after 10.
    assert_eq!(driver.timeline(0, MS), "0:0-6 1:6-8 0:8-9");
}

#[test]
fn the_ranking_lists_units_with_budget_by_deadline_awake_or_not() {
    let mut driver = rtds(2);
    let spent = busy(&mut driver, &plain(1, 10));
    let asleep = driver.insert(&plain(1, 5));
    let waiting = driver.insert(&plain(1, 8));
    let elsewhere = driver.insert(&bound(plain(1, 4), &[1]));
    driver.run_until(at_ms(2));
    let rank = |cpu: u32| {
        let mut out = Vec::new();
        driver.policy.ranking(CpuId(cpu), &mut out);
        out
    };
    assert_eq!(rank(0), [asleep, waiting]);
    assert_eq!(rank(1), [elsewhere, asleep, waiting]);
    assert_eq!(driver.policy.account(spent).exhaustions, 1);
}

#[test]
fn parameters_out_of_range_are_refused_by_name() {
    let mut driver = rtds(1);
    let us = |budget, period| UnitParams {
        budget: Some(Duration::from_us(budget)),
        period: Some(Duration::from_us(period)),
        ..UnitParams::default()
    };
    let field = |refused: Result<UnitId, ParamError>| refused.expect_err("out of range").to_string();
    assert_eq!(
        field(driver.try_insert(&us(5, 100))),
        "`budget` must be at least 10us and at most the period (100us)"
    );
    assert_eq!(
        field(driver.try_insert(&us(200, 100))),
        "`budget` must be at least 10us and at most the period (100us)"
    );
    assert_eq!(field(driver.try_insert(&us(9, 9))), "`period` must be at least 10us");
    assert!(driver.try_insert(&us(10, 10)).is_ok());
}

#[derive(Clone, Debug)]
struct Server {
    budget: u64,
    period: u64,
    jobs: Vec<(u64, u64)>,
}

fn servers() -> impl Strategy<Value = Vec<Server>> {
    let server = (1u64..10, 0u64..20, prop::collection::vec((0u64..100, 1u64..12), 0..8));
    let server = server.prop_map(|(budget, slack, jobs)| Server { budget, period: budget + slack, jobs });
    prop::collection::vec(server, 1..6)
}

fn play(
    driver: &mut Driver,
    servers: &[Server],
    params: impl Fn(usize, &Server) -> UnitParams,
) -> Vec<UnitId> {
    let inserted = servers.iter().enumerate().map(|(i, server)| driver.insert(&params(i, server)));
    let units: Vec<_> = inserted.collect();
    for (&unit, server) in units.iter().zip(servers) {
        for &(at, demand) in &server.jobs {
            driver.release(unit, at_ms(at), ms(demand));
        }
    }
    driver.run_until(at_ms(150));
    units
}

proptest! {
    #[test]
    fn supply_per_period_never_exceeds_the_budget(servers in servers(), cpus in 1usize..4) {
        let mut driver = rtds(cpus);
        let units = play(&mut driver, &servers, |_, server| plain(server.budget, server.period));
        for (unit, server) in units.iter().zip(&servers) {
            for k in 0..150 / server.period {
                let (from, to) = (at_ms(k * server.period), at_ms((k + 1) * server.period));
                prop_assert!(driver.executed(*unit, from, to) <= ms(server.budget));
            }
        }
    }

    #[test]
    fn busy_units_that_fit_get_exactly_their_budget_in_every_period(servers in servers()) {
        let mut driver = rtds(1);
        let mut used = 0.0;
        let mut units = Vec::new();
        for server in &servers {
            used += server.budget as f64 / server.period as f64;
            if used <= 1.0 {
                units.push((busy(&mut driver, &plain(server.budget, server.period)), server));
            }
        }
        driver.run_until(at_ms(200));
        for (unit, server) in units {
            for k in 0..200 / server.period {
                let (from, to) = (at_ms(k * server.period), at_ms((k + 1) * server.period));
                prop_assert_eq!(driver.executed(unit, from, to), ms(server.budget));
            }
        }
    }

    /// With distinct deadlines nothing depends on the order in which units are inserted.
    #[test]
    fn the_order_of_insertion_does_not_matter(servers in servers()) {
        let distinct = |i: usize, server: &Server| UnitParams {
            period: Some(ms(server.period) + Duration::from_us(100 + 7 * i as u64)),
            ..plain(server.budget, server.period)
        };
        let mut forward = rtds(1);
        let units = play(&mut forward, &servers, distinct);
        let mut reversed = servers.clone();
        reversed.reverse();
        let n = servers.len();
        let mut backward = rtds(1);
        let mirrored = play(&mut backward, &reversed, |i, server| distinct(n - 1 - i, server));
        for (i, unit) in units.iter().enumerate() {
            prop_assert_eq!(forward.completions_of(*unit), backward.completions_of(mirrored[n - 1 - i]));
        }
    }

    #[test]
    fn pinned_units_are_scheduled_as_by_independent_pools(servers in servers(), cpus in 2u32..4) {
        let mut whole = rtds(cpus as usize);
        let units = play(&mut whole, &servers, |i, server| {
            bound(extra(server.budget, server.period), &[i as u32 % cpus])
        });
        for cpu in 0..cpus {
            let here = |i: &usize| *i as u32 % cpus == cpu;
            let own: Vec<_> = (0..servers.len()).filter(here).collect();
            let subset: Vec<_> = own.iter().map(|&i| servers[i].clone()).collect();
            let mut alone = rtds(1);
            let mirrored = play(&mut alone, &subset, |_, server| extra(server.budget, server.period));
            for (&i, &unit) in own.iter().zip(&mirrored) {
                prop_assert_eq!(whole.completions_of(units[i]), alone.completions_of(unit));
                let all = (Instant::ZERO, at_ms(150));
                prop_assert_eq!(whole.executed(units[i], all.0, all.1), alone.executed(unit, all.0, all.1));
            }
        }
    }
}
