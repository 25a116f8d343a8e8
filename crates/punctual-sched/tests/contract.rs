//! Each assertion of the contract fires. They are debug assertions.
#![cfg(debug_assertions)]

use punctual_sched::contract::{Charges, Contract};
use punctual_sched::registry::{self, Options, XenScheduler};
use punctual_sched::wrap::{Wrapped, Wrapper};
use punctual_sched::{CpuId, CpuSet, Duration, Instant, ParamError, Policy, Run, Slice, UnitId, UnitParams};
use punctual_testkit::driver::{at_ms, server_ms};

const FIRST: CpuId = CpuId(0);
const SECOND: CpuId = CpuId(1);

/// How the policy inside breaks the contract.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    GivesOneUnitToAll,
    RunsSleepers,
    EndsSlicesAtOnce,
    GivesIdsTwice,
    AsksNobody,
}

struct Faulty(Fault);

impl Wrapper for Faulty {
    fn insert(
        &mut self,
        inside: &mut dyn Policy,
        now: Instant,
        params: &UnitParams,
    ) -> Result<UnitId, ParamError> {
        let unit = inside.insert(now, params)?;
        Ok(if self.0 == Fault::GivesIdsTwice { UnitId(0) } else { unit })
    }

    fn sleep(&mut self, inside: &mut dyn Policy, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        inside.sleep(now, unit, resched);
        if self.0 == Fault::AsksNobody {
            resched.clear();
        }
    }

    fn pick(&mut self, inside: &mut dyn Policy, now: Instant, cpu: CpuId, resched: &mut CpuSet) -> Slice {
        let slice = inside.pick(now, cpu, resched);
        match self.0 {
            Fault::GivesOneUnitToAll | Fault::RunsSleepers => Slice { run: Run::Unit(UnitId(0)), ..slice },
            Fault::EndsSlicesAtOnce => Slice { until: now, ..slice },
            _ => slice,
        }
    }
}

/// Two processors under the contract and RTDS, with one unit that is awake.
struct Scene {
    policy: Wrapped<Contract>,
    unit: UnitId,
    resched: CpuSet,
}

fn scene(fault: Fault, charges: Charges) -> Scene {
    let info = registry::find("rtds").expect("registered");
    let inside = (info.construct)(2, &Options::new()).expect("defaults are accepted");
    let inside = Wrapped::new(Faulty(fault), inside);
    let mut policy = Wrapped::new(Contract::new(2, charges), Box::new(inside));
    let unit = policy.insert(at_ms(0), &server_ms(2, 10, 0)).expect("valid");
    let mut resched = CpuSet::new(2);
    if fault != Fault::RunsSleepers {
        policy.wake(at_ms(0), unit, &mut resched);
    }
    Scene { policy, unit, resched }
}

impl Scene {
    fn pick(&mut self, ms: u64, cpu: CpuId) -> Slice {
        self.policy.pick(at_ms(ms), cpu, &mut self.resched)
    }

    fn charge(&mut self, ms: u64, cpu: CpuId, ran_ms: u64) {
        self.policy.charge(at_ms(ms), cpu, self.unit, Duration::from_ms(ran_ms));
    }
}

fn sound(charges: Charges) -> Scene {
    scene(Fault::None, charges)
}

#[test]
fn a_driver_that_keeps_to_the_contract_is_not_disturbed() {
    let mut scene = sound(Charges::Elapsed);
    assert_eq!(scene.pick(0, FIRST).run, Run::Unit(scene.unit));
    scene.pick(0, SECOND);
    scene.charge(10, FIRST, 10);
    scene.policy.on_timer(at_ms(10), &mut scene.resched);
    scene.policy.sleep(at_ms(10), scene.unit, &mut scene.resched);
    scene.pick(10, FIRST);
}

#[test]
#[should_panic(expected = "time goes back from t=3ms to t=2ms")]
fn time_never_goes_back() {
    let mut scene = sound(Charges::Reported);
    scene.pick(3, FIRST);
    scene.pick(2, FIRST);
}

#[test]
#[should_panic(expected = "UnitId(7) is not inserted")]
fn calls_name_units_that_are_inserted() {
    let mut scene = sound(Charges::Reported);
    scene.policy.wake(at_ms(0), UnitId(7), &mut scene.resched);
}

#[test]
#[should_panic(expected = "UnitId(0) is not inserted")]
fn calls_name_no_unit_that_was_removed() {
    let mut scene = sound(Charges::Reported);
    scene.policy.remove(at_ms(0), scene.unit, &mut scene.resched);
    scene.policy.sleep(at_ms(0), scene.unit, &mut scene.resched);
}

#[test]
#[should_panic(expected = "the account of UnitId(1), which is not inserted")]
fn accounts_are_those_of_units_that_are_inserted() {
    sound(Charges::Reported).policy.account(UnitId(1));
}

#[test]
#[should_panic(expected = "the pool has no CpuId(2)")]
fn calls_name_processors_of_the_pool() {
    sound(Charges::Reported).pick(0, CpuId(2));
}

#[test]
#[should_panic(expected = "UnitId(0) is given out twice")]
fn an_id_is_given_out_once() {
    let mut scene = scene(Fault::GivesIdsTwice, Charges::Reported);
    let again = scene.policy.insert(at_ms(0), &server_ms(1, 10, 0));
    again.expect("it does not come to that");
}

#[test]
#[should_panic(expected = "CpuId(1) is given UnitId(0), which Some(CpuId(0)) has")]
fn no_processor_is_given_a_unit_that_another_has() {
    let mut scene = scene(Fault::GivesOneUnitToAll, Charges::Reported);
    scene.pick(0, FIRST);
    scene.pick(0, SECOND);
}

#[test]
#[should_panic(expected = "it runs if it is awake, and its budget idles away if it sleeps")]
fn a_unit_that_sleeps_does_not_run() {
    scene(Fault::RunsSleepers, Charges::Reported).pick(0, FIRST);
}

#[test]
#[should_panic(expected = "ends at once")]
fn a_slice_lasts() {
    scene(Fault::EndsSlicesAtOnce, Charges::Elapsed).pick(0, FIRST);
}

#[test]
#[should_panic(expected = "UnitId(0) leaves Some(CpuId(0)), which is not asked to pick")]
fn a_processor_whose_unit_goes_to_sleep_is_asked_to_pick() {
    let mut scene = scene(Fault::AsksNobody, Charges::Reported);
    scene.pick(0, FIRST);
    scene.policy.sleep(at_ms(0), scene.unit, &mut scene.resched);
}

#[test]
#[should_panic(expected = "t=1ms: CpuId(0) has Unit(UnitId(0)), charged up to t=0ns only")]
fn what_ran_is_charged_before_its_processor_picks() {
    let mut scene = sound(Charges::Elapsed);
    scene.pick(0, FIRST);
    scene.pick(1, FIRST);
}

#[test]
#[should_panic(expected = "charged up to t=0ns only")]
fn a_unit_is_charged_before_it_goes_to_sleep() {
    let mut scene = sound(Charges::Elapsed);
    scene.pick(0, FIRST);
    scene.policy.sleep(at_ms(1), scene.unit, &mut scene.resched);
}

#[test]
#[should_panic(expected = "charged up to t=0ns only")]
fn a_unit_is_charged_before_its_parameters_change() {
    let mut scene = sound(Charges::Elapsed);
    scene.pick(0, FIRST);
    let adjusted = scene.policy.adjust(at_ms(1), scene.unit, &server_ms(1, 10, 0), &mut scene.resched);
    adjusted.expect("it does not come to that");
}

#[test]
#[should_panic(expected = "charged up to t=0ns only")]
fn a_processor_that_a_timer_names_is_charged_before_the_timer() {
    let mut scene = sound(Charges::Elapsed);
    scene.pick(0, FIRST);
    scene.policy.on_timer(at_ms(10), &mut scene.resched);
}

#[test]
#[should_panic(expected = "UnitId(0) had CpuId(0) since t=0ns")]
fn charged_time_is_elapsed_time() {
    let mut scene = sound(Charges::Elapsed);
    scene.pick(0, FIRST);
    scene.charge(1, FIRST, 2);
}

#[test]
#[should_panic(expected = "CpuId(1) is charged for a unit that it does not have")]
fn a_processor_is_charged_for_what_it_was_given() {
    let mut scene = sound(Charges::Elapsed);
    scene.pick(0, FIRST);
    scene.pick(0, SECOND);
    scene.charge(1, SECOND, 1);
}

#[test]
#[should_panic(expected = "the timer of t=10ms is handled at t=9ms")]
fn no_timer_is_handled_before_it_is_due() {
    let mut scene = sound(Charges::Reported);
    scene.policy.on_timer(at_ms(9), &mut scene.resched);
}

#[test]
#[should_panic(expected = "UnitId(0) sleeps on another processor than the one that picks")]
fn who_sleeps_before_a_pick_has_that_processor() {
    let mut scene = sound(Charges::Reported);
    scene.pick(0, FIRST);
    scene.policy.sleep_before_pick(at_ms(0), scene.unit, SECOND, &mut scene.resched);
}

/// The tests of this file, and all others, run the policies as the registry builds them.
#[test]
#[should_panic(expected = "time goes back")]
fn the_registry_builds_policies_that_check_the_contract() {
    let policy = registry::find("cbs").expect("registered").build(1, &Options::new());
    let mut policy = policy.expect("defaults are accepted");
    let mut resched = CpuSet::new(1);
    policy.pick(at_ms(1), FIRST, &mut resched);
    policy.pick(at_ms(0), FIRST, &mut resched);
}

#[test]
fn xen_calls_its_schedulers_as_the_registry_does() {
    for scheduler in [XenScheduler::Rtds, XenScheduler::Credit] {
        let info = registry::find(scheduler.name()).expect("registered");
        assert_eq!(info.xen, Some(scheduler));
    }
}
