//! Turns of the vCPUs of a VM: exact timelines, and every policy.

use proptest::prelude::*;
use punctual_sched::registry::{Options, PolicyInfo, policies};
use punctual_sched::turns::{TURN, Turns};
use punctual_sched::wrap::Wrapped;
use punctual_sched::{CpuId, CpuSet, Duration, Policy, Run, UnitId, UnitParams};
#[cfg(debug_assertions)]
use punctual_sched::{
    Instant, Slice,
    contract::{Charges, in_turns},
    wrap::Wrapper,
};
use punctual_testkit::driver::*;

const MS: Duration = Duration::from_ms(1);
const US: Duration = Duration::from_us(1);

/// A vCPU of this VM with this priority, and as much budget as it wants.
fn vcpu(vm: u32, priority: u32) -> UnitParams {
    UnitParams { vm: Some(vm), ..server_ms(100, 100, priority) }
}

fn info(name: &str) -> &'static PolicyInfo {
    policies().iter().find(|info| info.name == name).expect("a policy")
}

/// The policy on `cpus` processors, whose vCPUs take turns.
fn with_turns(info: &PolicyInfo, cpus: usize) -> Driver {
    Driver::in_turns(info, cpus, &Options::new()).expect("defaults are accepted")
}

#[test]
fn two_vcpus_of_a_vm_that_spin_alternate_every_millisecond_under_every_policy() {
    for info in policies() {
        let mut driver = with_turns(info, 1);
        let vcpus = [1, 2].map(|priority| driver.insert(&vcpu(0, priority)));
        vcpus.iter().for_each(|unit| driver.busy(*unit, at_ms(0)));
        driver.run_until(at_ms(20));
        let turns: Vec<_> = driver.gantt.iter().map(|span| (span.run, span.to.since(span.from))).collect();
        let expected: Vec<_> = (0..20).map(|turn| (Run::Unit(vcpus[turn % 2]), TURN)).collect();
        assert_eq!(turns, expected, "{}", info.name);
    }
}

#[test]
fn units_of_different_vms_or_of_none_take_no_turns() {
    for (first, second) in [(Some(0), Some(1)), (None, None), (Some(0), None)] {
        let mut driver = with_turns(info("fixed-priority"), 1);
        let units = [(first, 1), (second, 2)].map(|(vm, p)| driver.insert(&UnitParams { vm, ..vcpu(0, p) }));
        units.iter().for_each(|unit| driver.busy(*unit, at_ms(0)));
        driver.run_until(at_ms(10));
        assert_eq!(driver.timeline(0, MS), "0:0-10", "{first:?} {second:?}");
    }
}

#[test]
fn the_vm_stands_where_its_most_urgent_ready_vcpu_does() {
    let mut driver = with_turns(info("fixed-priority"), 1);
    let urgent = driver.insert(&vcpu(0, 1));
    let other = driver.insert(&vcpu(1, 2));
    let last = driver.insert(&vcpu(0, 3));
    driver.release(urgent, at_ms(2), MS * 3);
    driver.busy(other, at_ms(0));
    driver.busy(last, at_ms(0));
    driver.run_until(at_ms(12));
    // From 7 on the urgent one has no work, and the VM stands below the other one again.
    assert_eq!(driver.timeline(0, MS), "1:0-2 0:2-3 2:3-4 0:4-5 2:5-6 0:6-7 1:7-12");
}

#[test]
fn a_vcpu_that_wakes_up_after_turns_of_the_other_one_comes_first_for_the_rest_of_its_own() {
    let mut driver = with_turns(info("fixed-priority"), 1);
    let busy = driver.insert(&vcpu(0, 1));
    let wakes = driver.insert(&vcpu(0, 2));
    driver.busy(busy, at_ms(0));
    driver.release(wakes, at_us(5_200), US * 400);
    driver.release(wakes, at_us(7_000), US * 900);
    driver.run_until(at_ms(10));
    // The second job has 600 us of the turn left.
    let expected = "0:0-5200 1:5200-5600 0:5600-7000 1:7000-7600 0:7600-8600 1:8600-8900 0:8900-10000";
    assert_eq!(driver.timeline(0, US), expected);
}

#[test]
fn three_vcpus_share_two_processors_by_turns() {
    for name in ["fixed-priority", "edf", "rtds", "credit"] {
        let mut driver = with_turns(info(name), 2);
        let vcpus = [1, 2, 3].map(|priority| driver.insert(&vcpu(0, priority)));
        vcpus.iter().for_each(|unit| driver.busy(*unit, at_ms(0)));
        driver.run_until(at_ms(60));
        for unit in vcpus {
            let ran = service(&driver, unit);
            assert!((MS * 36..=MS * 44).contains(&ran), "{name}: {unit:?} ran for {ran}");
        }
    }
}

#[test]
fn a_vcpu_goes_to_an_idle_processor_instead_of_taking_a_turn() {
    for info in policies() {
        let mut driver = with_turns(info, 2);
        let vcpus = [1, 2].map(|priority| driver.insert(&vcpu(0, priority)));
        driver.busy(vcpus[0], at_ms(0));
        driver.periodic(vcpus[1], at_ms(3), MS * 5, MS * 2, at_ms(40));
        driver.run_until(at_ms(40));
        let of_first: Vec<_> = driver.gantt.iter().filter(|span| span.run == Run::Unit(vcpus[0])).collect();
        assert_eq!(of_first.len(), 1, "{}: {of_first:?}", info.name);
    }
}

#[test]
fn a_vcpu_pays_from_its_own_budget_and_without_one_takes_no_turn() {
    let mut driver = with_turns(info("deferrable"), 1);
    let urgent = driver.insert(&UnitParams { vm: Some(0), ..server_ms(6, 20, 1) });
    let other = driver.insert(&UnitParams { vm: Some(0), ..server_ms(2, 20, 2) });
    [urgent, other].iter().for_each(|unit| driver.busy(*unit, at_ms(0)));
    driver.run_until(at_ms(20));
    assert_eq!(driver.timeline(0, MS), "0:0-1 1:1-2 0:2-3 1:3-4 0:4-8 -:8-20");
}

#[test]
fn extra_time_is_below_budgets_among_the_vcpus_of_a_vm_as_well() {
    let mut driver = with_turns(info("rtds"), 1);
    let extra = |extratime| UnitParams { vm: Some(0), extratime: Some(extratime), ..server_ms(4, 20, 1) };
    let first = driver.insert(&UnitParams { budget: Some(MS * 2), ..extra(true) });
    let second = driver.insert(&extra(false));
    [first, second].iter().for_each(|unit| driver.busy(*unit, at_ms(0)));
    driver.run_until(at_ms(20));
    assert_eq!(driver.timeline(0, MS), "0:0-1 1:1-2 0:2-3 1:3-6 0:6-20");
}

#[test]
fn best_effort_vcpus_of_a_vm_take_turns_below_all_others() {
    let best_effort = |vm| UnitParams { best_effort: true, vm, ..UnitParams::default() };
    let params = [best_effort(Some(0)), best_effort(Some(0)), vcpu(0, 1)];
    let policy = info("fixed-priority").build_for(1, &Options::new(), &params).expect("accepted");
    let mut driver = Driver::new(policy, 1, info("fixed-priority").work_conservation);
    let units: Vec<UnitId> = params.iter().map(|params| driver.insert(params)).collect();
    driver.busy(units[0], at_ms(0));
    driver.busy(units[1], at_ms(0));
    driver.release(units[2], at_ms(2), MS * 3);
    driver.run_until(at_ms(9));
    assert_eq!(driver.timeline(0, MS), "0:0-1 1:1-2 2:2-5 0:5-6 1:6-7 0:7-8 1:8-9");
}

/// A policy none of whose units yields.
#[cfg(debug_assertions)]
struct Strict;

#[cfg(debug_assertions)]
impl Wrapper for Strict {
    fn yield_to(
        &mut self,
        _inside: &mut dyn Policy,
        _now: Instant,
        _cpu: CpuId,
        _unit: UnitId,
        _resched: &mut CpuSet,
    ) -> Option<Slice> {
        None
    }
}

#[test]
#[cfg(debug_assertions)]
#[should_panic = "of the same VM has waited for 2ms"]
fn the_contract_finds_a_strict_order() {
    let inside = (info("fixed-priority").construct)(1, &Options::new()).expect("accepted");
    let strict = Box::new(Wrapped::new(Strict, inside));
    let policy = in_turns(strict, 1, Charges::Elapsed);
    let mut driver = Driver::new(policy, 1, info("fixed-priority").work_conservation);
    let vcpus = [1, 2].map(|priority| driver.insert(&vcpu(0, priority)));
    vcpus.iter().for_each(|unit| driver.busy(*unit, at_ms(0)));
    driver.run_until(at_ms(5));
}

/// A live enforcer has the order alone.
#[test]
fn the_ranking_has_the_vcpu_whose_turn_it_is_in_front_of_the_most_urgent_one() {
    let inside = (info("fixed-priority").construct)(1, &Options::new()).expect("accepted");
    let mut policy = Wrapped::new(Turns::new(1), inside);
    let mut resched = CpuSet::new(1);
    let params = [vcpu(0, 1), vcpu(1, 2), vcpu(0, 3)];
    let [first, other, last] = params.map(|params| policy.insert(at_ms(0), &params).expect("accepted"));
    let ranking = |policy: &Wrapped<Turns>| {
        let mut out = Vec::new();
        policy.ranking(CpuId(0), &mut out);
        out
    };
    [first, other, last].iter().for_each(|unit| policy.wake(at_ms(0), *unit, &mut resched));
    policy.pick(at_ms(0), CpuId(0), &mut resched);
    assert_eq!(ranking(&policy), [first, other, last]);
    policy.charge(at_ms(1), CpuId(0), first, TURN);
    assert_eq!(ranking(&policy), [last, first, other]);
    policy.pick(at_ms(1), CpuId(0), &mut resched);
    policy.charge(at_ms(2), CpuId(0), last, TURN);
    assert_eq!(ranking(&policy), [first, other, last]);
    // One that sleeps takes no turn, and lends no place.
    policy.charge(at_ms(3), CpuId(0), first, TURN);
    policy.sleep(at_ms(3), first, &mut resched);
    assert_eq!(ranking(&policy), [first, other, last]);
    // If the last one woke up now, it would be its turn.
    policy.sleep(at_ms(3), last, &mut resched);
    policy.wake(at_ms(3), first, &mut resched);
    assert_eq!(ranking(&policy), [last, first, other]);
}

fn service(driver: &Driver, unit: UnitId) -> Duration {
    let spans = driver.gantt.iter().filter(|span| span.run == Run::Unit(unit));
    spans.fold(Duration::ZERO, |sum, span| sum + span.to.since(span.from))
}

/// What the vCPUs of VMs do: spin from an instant on, or wake up every so often.
#[derive(Clone, Debug)]
struct Vcpu {
    vm: u32,
    priority: u32,
    period_ms: u64,
    start_us: u64,
    /// Period and demand of its jobs in us; `None`: it spins.
    naps: Option<(u64, u64)>,
}

prop_compose! {
    fn any_vcpu()(
        vm in 0u32..3, priority in 0u32..6, period_ms in 50u64..100, start_us in 0u64..5_000,
        naps in proptest::option::of((200u64..5_000, 10u64..1_500)),
    ) -> Vcpu {
        Vcpu { vm, priority, period_ms, start_us, naps }
    }
}

/// Drives the vCPUs for 40 ms. None uses up its budget.
fn driven(mut driver: Driver, vcpus: &[Vcpu], vm: impl Fn(u32) -> Option<u32>) -> (Driver, Vec<UnitId>) {
    let end = at_ms(40);
    let insert = |of: &Vcpu| {
        let params = server_ms(of.period_ms, of.period_ms, of.priority);
        let unit = driver.insert(&UnitParams { vm: vm(of.vm), ..params });
        match of.naps {
            None => driver.busy(unit, at_us(of.start_us)),
            Some((period, demand)) => {
                driver.periodic(unit, at_us(of.start_us), US * period, US * demand, end);
            }
        }
        unit
    };
    let units = vcpus.iter().map(insert).collect();
    driver.run_until(end);
    (driver, units)
}

/// The longest that others of its VM ran, where it might have run, while `unit` had work and no processor.
fn longest_wait(driver: &Driver, unit: UnitId, siblings: &[UnitId], start: u64) -> Duration {
    let home = driver.policy.account(unit).home;
    let mut served: Vec<_> = driver.gantt.iter().filter(|span| span.run == Run::Unit(unit)).collect();
    served.sort_by_key(|span| span.from);
    let begins = std::iter::once(at_us(start)).chain(served.iter().map(|span| span.to));
    let ends = served.iter().map(|span| span.from).chain([at_ms(40)]);
    let waited = begins.zip(ends).map(|(from, to)| {
        let is_sibling = |run| siblings.iter().any(|other| *other != unit && run == Run::Unit(*other));
        let spans = driver.gantt.iter().filter(|span| is_sibling(span.run));
        let here = spans.filter(|span| home.is_none_or(|home| home == span.cpu));
        here.fold(Duration::ZERO, |sum, span| sum + span.to.min(to).since(span.from.max(from)))
    });
    waited.max().unwrap_or(Duration::ZERO)
}

proptest! {
    #[test]
    fn no_vcpu_waits_for_more_than_a_turn_of_each_other_one(
        vcpus in proptest::collection::vec(any_vcpu(), 2..8),
        cpus in 1usize..4,
        policy in any::<prop::sample::Index>(),
    ) {
        let info = policy.get(policies());
        let (driver, units) = driven(with_turns(info, cpus), &vcpus, Some);
        // A budget that idles away is not there when its vCPU wakes up.
        let spins = |at: &usize| vcpus[*at].naps.is_none() && !info.budget_idles_away();
        for at in (0..vcpus.len()).filter(spins) {
            let own = vcpus[at].vm;
            let siblings: Vec<UnitId> =
                (0..vcpus.len()).filter(|other| vcpus[*other].vm == own).map(|other| units[other]).collect();
            let waited = longest_wait(&driver, units[at], &siblings, vcpus[at].start_us);
            let most = TURN * (siblings.len() as u64);
            prop_assert!(waited <= most, "{} {:?} waited for {waited}", info.name, units[at]);
        }
    }

    #[test]
    fn vms_of_one_vcpu_run_as_without_turns(
        vcpus in proptest::collection::vec(any_vcpu(), 1..6),
        cpus in 1usize..4,
        policy in any::<prop::sample::Index>(),
    ) {
        let info = policy.get(policies());
        let plain = Driver::of(info, cpus, &Options::new()).expect("defaults are accepted");
        let (plain, _) = driven(plain, &vcpus, |_| None);
        let distinct = std::cell::Cell::new(0);
        let next = |_| {
            distinct.set(distinct.get() + 1);
            Some(distinct.get())
        };
        let (turns, _) = driven(with_turns(info, cpus), &vcpus, next);
        prop_assert_eq!(plain.gantt, turns.gantt);
        prop_assert_eq!(plain.picks, turns.picks);
    }
}
