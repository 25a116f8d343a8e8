//! Best-effort units around policies: exact timelines, and every policy beside them.

use punctual_sched::background::{Background, TURN};
use punctual_sched::registry::{Options, WorkConservation, policies};
use punctual_sched::wrap::Wrapped;
use punctual_sched::{Account, CpuSet, Duration, ParamError, Policy, UnitParams};
use punctual_testkit::driver::*;

const MS: Duration = Duration::from_ms(1);

fn best_effort() -> UnitParams {
    UnitParams { best_effort: true, ..UnitParams::default() }
}

/// The policy called `name` on `cpus` processors with best-effort units around it.
fn around(name: &str, cpus: usize) -> Driver {
    let info = policies().iter().find(|info| info.name == name).expect("a policy");
    let any = [best_effort()];
    let policy = info.build_for(cpus, &Options::new(), &any).expect("options are accepted");
    Driver::new(policy, cpus, info.work_conservation)
}

#[test]
fn best_effort_takes_what_budgets_leave_and_gives_way_at_once() {
    let mut driver = around("deferrable", 1);
    let spare = driver.insert(&best_effort());
    let urgent = driver.insert(&server_ms(3, 10, 1));
    driver.busy(spare, at_ms(0));
    driver.release(urgent, at_ms(2), MS * 5);
    driver.run_until(at_ms(20));
    // 3 of the 5 before the budget is used up, the rest from 10 on.
    assert_eq!(driver.timeline(0, MS), "0:0-2 1:2-5 0:5-10 1:10-12 0:12-20");
}

#[test]
fn a_budget_that_idles_away_leaves_nothing() {
    let mut driver = around("periodic", 1);
    let spare = driver.insert(&best_effort());
    driver.insert(&server_ms(3, 10, 1));
    driver.busy(spare, at_ms(0));
    driver.run_until(at_ms(20));
    assert_eq!(driver.timeline(0, MS), "(1):0-3 0:3-10 (1):10-13 0:13-20");
}

#[test]
fn best_effort_units_take_turns_and_keep_the_rest_of_one_that_was_cut() {
    let mut driver = around("fixed-priority", 1);
    let spare = [0, 1].map(|_| driver.insert(&best_effort()));
    let urgent = driver.insert(&UnitParams { priority: Some(1), ..UnitParams::default() });
    spare.iter().for_each(|unit| driver.busy(*unit, at_ms(0)));
    driver.release(urgent, at_ms(4), MS * 2);
    driver.run_until(at_ms(40));
    // The first has 6 of its turn of 10 left at 4.
    assert_eq!(TURN, MS * 10);
    assert_eq!(driver.timeline(0, MS), "0:0-4 2:4-6 0:6-12 1:12-22 0:22-32 1:32-40");
}

#[test]
fn best_effort_units_spread_over_idle_processors_as_their_affinity_allows() {
    let mut driver = around("rtds", 2);
    let (anywhere, second) = (driver.insert(&best_effort()), driver.insert(&bound(best_effort(), &[1])));
    driver.busy(second, at_ms(1));
    driver.busy(anywhere, at_ms(2));
    driver.run_until(at_ms(4));
    assert_eq!(driver.timeline(0, MS), "-:0-2 0:2-4");
    assert_eq!(driver.timeline(1, MS), "-:0-1 1:1-4");
}

#[test]
fn who_is_best_effort_stays_it_and_has_no_account() {
    let mut driver = around("sedf", 1);
    let (spare, urgent) = (driver.insert(&best_effort()), driver.insert(&server_ms(3, 10, 1)));
    assert_eq!(driver.policy.account(spare), Account { may_overrun: true, ..Account::default() });
    assert_eq!(driver.policy.account(urgent).left, Some(MS * 3));
    for (unit, params) in [(spare, server_ms(3, 10, 1)), (urgent, best_effort())] {
        let error = driver.adjust(unit, &params).expect_err("it stays what it is");
        assert_eq!(error.field(), "best_effort");
    }
    assert_eq!(driver.adjust(spare, &best_effort()), Ok(()));
    let nowhere = UnitParams { affinity: Some(CpuSet::new(1)), ..best_effort() };
    assert!(matches!(driver.try_insert(&nowhere), Err(ParamError::OutOfRange { field: "affinity", .. })));
}

#[test]
fn a_unit_that_leaves_while_it_runs_makes_room_for_the_next() {
    let mut driver = around("cbs", 1);
    let spare = [0, 1].map(|_| driver.insert(&best_effort()));
    spare.iter().for_each(|unit| driver.busy(*unit, at_ms(0)));
    driver.run_until(at_ms(1));
    driver.remove(spare[0]);
    driver.run_until(at_ms(3));
    assert_eq!(driver.timeline(0, MS), "0:0-1 1:1-3");
}

#[test]
fn only_pools_with_best_effort_units_have_the_wrapper() {
    for info in policies() {
        let plain = info.build_for(1, &Options::new(), &[UnitParams::default()]).expect("accepted");
        let mut driver = Driver::new(plain, 1, WorkConservation::Never);
        // Without the wrapper the policy judges the parameters as those of its own units.
        let own = driver.try_insert(&best_effort()).map(drop);
        assert_eq!(own, info.build(1, &Options::new()).unwrap().insert(at_ms(0), &best_effort()).map(drop));
        let mut wrapped = Wrapped::new(Background::new(1), info.build(1, &Options::new()).unwrap());
        assert!(wrapped.insert(at_ms(0), &best_effort()).is_ok(), "{}", info.name);
    }
}
