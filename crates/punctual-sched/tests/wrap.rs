//! Wrappers: what they let through, note and change.

use std::sync::mpsc;

use punctual_sched::registry::{self, Options, PolicyInfo};
use punctual_sched::wrap::{Call, Recorder, TimeShift, Wrapped, Wrapper};
use punctual_sched::{CpuId, CpuSet, Duration, Instant, Policy, Slice, UnitParams};
use punctual_testkit::driver::{Driver, Span, at_ms, server_ms};

const MS: Duration = Duration::from_ms(1);

fn build(info: &PolicyInfo) -> Box<dyn Policy> {
    info.build(2, &Options::new()).expect("defaults are valid")
}

/// What three units do in 100 ms on two processors, with one of them adjusted and one removed on the way.
fn run(info: &PolicyInfo, policy: Box<dyn Policy>) -> Vec<Span> {
    let mut driver = Driver::new(policy, 2, info.work_conservation);
    let params = |n| UnitParams { deadline: Some(MS * n), ..server_ms(n, 10, n as u32) };
    let units = [1, 2, 3].map(|n| driver.insert(&params(n)));
    for (n, unit) in (1..).zip(units) {
        (0..10).for_each(|k| driver.release(unit, at_ms(10 * k + n), MS * (2 * n)));
    }
    driver.run_until(at_ms(40));
    driver.adjust(units[0], &params(4)).expect("valid");
    driver.run_until(at_ms(60));
    driver.remove(units[1]);
    driver.run_until(at_ms(100));
    driver.gantt
}

/// A wrapper that overrides nothing.
struct Transparent;

impl Wrapper for Transparent {}

#[test]
fn a_wrapper_that_overrides_nothing_changes_nothing() {
    for info in registry::policies() {
        let twice = Wrapped::new(Transparent, Box::new(Wrapped::new(Transparent, build(info))));
        assert_eq!(run(info, Box::new(twice)), run(info, build(info)), "{}", info.name);
    }
}

/// The calls of a run and what happened in it.
fn record(info: &PolicyInfo) -> (Vec<Call>, Vec<Span>) {
    let (sender, calls) = mpsc::channel();
    let note = move |call| sender.send(call).expect("the receiver lives");
    let spans = run(info, Box::new(Wrapped::new(Recorder { note }, build(info))));
    (calls.into_iter().collect(), spans)
}

#[test]
fn a_recorder_notes_every_call_and_changes_nothing() {
    for info in registry::policies() {
        let (calls, spans) = record(info);
        assert_eq!(spans, run(info, build(info)), "{}", info.name);
        let count = |is: fn(&Call) -> bool| calls.iter().filter(|call| is(call)).count();
        assert_eq!(count(|call| matches!(call, Call::Insert(..))), 3, "{}", info.name);
        assert_eq!(count(|call| matches!(call, Call::Adjust(..))), 1, "{}", info.name);
        assert_eq!(count(|call| matches!(call, Call::Remove(..))), 1, "{}", info.name);
        assert!(count(|call| matches!(call, Call::Pick(..))) >= spans.len(), "{}", info.name);
    }
}

#[test]
fn calls_made_again_leave_a_policy_as_it_was_left() {
    for info in registry::policies() {
        let mut again = build(info);
        let (calls, _) = record(info);
        calls.iter().for_each(|call| call.make(&mut *again, &mut CpuSet::new(2)));
        let mut ranking = Vec::new();
        again.ranking(CpuId(0), &mut ranking);
        let (sender, second) = mpsc::channel();
        let note = move |call| sender.send(call).expect("the receiver lives");
        let mut recorded = Wrapped::new(Recorder { note }, build(info));
        calls.iter().for_each(|call| call.make(&mut recorded, &mut CpuSet::new(2)));
        let mut second_ranking = Vec::new();
        recorded.ranking(CpuId(0), &mut second_ranking);
        drop(recorded);
        assert_eq!(second.into_iter().collect::<Vec<_>>(), calls, "{}", info.name);
        assert_eq!(second_ranking, ranking, "{}", info.name);
    }
}

#[test]
fn a_time_line_that_began_earlier_decides_the_same() {
    for info in registry::policies() {
        let shifted = Wrapped::new(TimeShift { earlier: MS * 70 }, build(info));
        assert_eq!(run(info, Box::new(shifted)), run(info, build(info)), "{}", info.name);
    }
}

#[test]
fn instants_before_the_drivers_time_0_are_0() {
    /// Inserts its unit 65 ms before the driver's time 0.
    struct InsertedBefore;
    impl Wrapper for InsertedBefore {
        fn insert(
            &mut self,
            inside: &mut dyn Policy,
            now: Instant,
            params: &UnitParams,
        ) -> Result<punctual_sched::UnitId, punctual_sched::ParamError> {
            inside.insert(Instant::ZERO + MS * (now.as_ns() / MS.as_ns() - 65), params)
        }
    }
    let info = registry::find("deferrable").expect("registered");
    let started = Box::new(Wrapped::new(InsertedBefore, build(info)));
    let mut policy = Wrapped::new(TimeShift { earlier: MS * 70 }, started);
    policy.insert(Instant::ZERO, &server_ms(1, 10, 1)).expect("valid");
    assert_eq!(policy.next_timer().at, Instant::ZERO, "replenishments were due every 10 ms from -55 ms on");
}

/// Lets the first processor idle.
struct LeavesOneIdle;

impl Wrapper for LeavesOneIdle {
    fn pick(&mut self, inside: &mut dyn Policy, now: Instant, cpu: CpuId, resched: &mut CpuSet) -> Slice {
        let slice = inside.pick(now, cpu, resched);
        Slice { run: if cpu == CpuId(0) { punctual_sched::Run::Idle } else { slice.run }, ..slice }
    }
}

#[test]
#[should_panic(expected = "processor 0 idles though UnitId(0) waits")]
fn the_drivers_checks_see_a_fault_that_a_wrapper_injects() {
    let info = registry::find("fixed-priority").expect("registered");
    run(info, Box::new(Wrapped::new(LeavesOneIdle, build(info))));
}
