//! Policies that break the contract are stopped with an account that a person can read.

use punctual_model::host::{Parent, PolicyChoice};
use punctual_model::index::PoolIx;
use punctual_sched::registry::{OptionError, Options, PolicyInfo, WorkConservation};
use punctual_sched::{
    Account, CpuId, CpuSet, Duration, Instant, ParamError, Policy, Run, Slice, Timer, UnitId, UnitParams,
};
use punctual_sim::{Error, simulate};
use punctual_testkit::hosts::*;

/// How the policy misbehaves.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    RunsWhoSleeps,
    RunsTwice,
    EndsInThePast,
    RunsWithoutBudget,
    HoldsTooMuch,
    Idles,
    IgnoresSleep,
    TimerStandsStill,
    KeepsAsking,
    PicksAStranger,
}

/// Picks unit 0, then the others, and misbehaves in one way.
struct Broken {
    fault: Fault,
    awake: Vec<bool>,
    cpus: usize,
}

impl Policy for Broken {
    fn insert(&mut self, _: Instant, _: &UnitParams) -> Result<UnitId, ParamError> {
        self.awake.push(false);
        Ok(UnitId(self.awake.len() as u32 - 1))
    }
    fn remove(&mut self, _: Instant, _: UnitId, _: &mut CpuSet) {}
    fn adjust(&mut self, _: Instant, _: UnitId, _: &UnitParams, _: &mut CpuSet) -> Result<(), ParamError> {
        Ok(())
    }
    fn wake(&mut self, _: Instant, unit: UnitId, resched: &mut CpuSet) {
        self.awake[unit.index()] = true;
        *resched = CpuSet::all(self.cpus);
    }
    fn sleep(&mut self, _: Instant, unit: UnitId, resched: &mut CpuSet) {
        self.awake[unit.index()] = false;
        if self.fault != Fault::IgnoresSleep {
            *resched = CpuSet::all(self.cpus);
        }
    }
    fn charge(&mut self, _: Instant, _: CpuId, _: UnitId, _: Duration) {}
    fn pick(&mut self, now: Instant, cpu: CpuId, resched: &mut CpuSet) -> Slice {
        let first = match self.fault {
            Fault::RunsTwice => self.awake.iter().position(|awake| *awake),
            _ if cpu.0 > 0 => None,
            _ => self.awake.iter().position(|awake| *awake),
        };
        let run = match self.fault {
            Fault::RunsWhoSleeps => Run::Unit(UnitId(self.awake.len() as u32 - 1)),
            Fault::PicksAStranger => Run::Unit(UnitId(77)),
            Fault::Idles => Run::Idle,
            _ => first.map_or(Run::Idle, |unit| Run::Unit(UnitId(unit as u32))),
        };
        if self.fault == Fault::KeepsAsking {
            resched.insert(CpuId(0));
        }
        Slice { run, until: if self.fault == Fault::EndsInThePast { now } else { Instant::NEVER } }
    }
    fn next_timer(&self) -> Timer {
        match self.fault {
            Fault::TimerStandsStill => Timer { at: Instant::from_ns(5), charge: None },
            _ => Timer::NEVER,
        }
    }
    fn on_timer(&mut self, _: Instant, _: &mut CpuSet) {}
    fn ranking(&self, _: CpuId, _: &mut Vec<UnitId>) {}
    fn account(&self, _: UnitId) -> Account {
        match self.fault {
            Fault::RunsWithoutBudget => Account { left: Some(Duration::ZERO), ..Account::default() },
            Fault::HoldsTooMuch => Account { left: Some(ms(2)), max: Some(ms(1)), ..Account::default() },
            _ => Account::default(),
        }
    }
}

macro_rules! builders {
    ($($fault:ident => $name:ident),* $(,)?) => {
        $(fn $name(cpus: usize, _: &Options) -> Result<Box<dyn Policy>, OptionError> {
            Ok(Box::new(Broken { fault: Fault::$fault, awake: vec![], cpus }))
        })*
        static BROKEN: &[PolicyInfo] = &[$(PolicyInfo {
            name: stringify!($name),
            summary: "misbehaves",
            source: "this test",
            unit_params: &[],
            options: &[],
            work_conservation: WorkConservation::Always,
            shared_queue: false,
            build: $name,
            ..punctual_sched::round_robin::INFO
        }),*];
    };
}

builders! {
    RunsWhoSleeps => runs_who_sleeps,
    RunsTwice => runs_twice,
    EndsInThePast => ends_in_the_past,
    RunsWithoutBudget => runs_without_budget,
    HoldsTooMuch => holds_too_much,
    Idles => idles,
    IgnoresSleep => ignores_sleep,
    TimerStandsStill => timer_stands_still,
    KeepsAsking => keeps_asking,
    PicksAStranger => picks_a_stranger,
}

#[test]
fn every_fault_is_named_with_time_processor_and_unit() {
    let expected = [
        ("runs_who_sleeps", "at 0 ns: processor 0 picked task pool/t2, which has no work"),
        ("runs_twice", "processor 1 picked task pool/t1, which already runs on processor 0"),
        ("ends_in_the_past", "processor 0: the slice would end at t=0ns"),
        ("runs_without_budget", "picked task pool/t1, which has no budget left"),
        ("holds_too_much", "picked task pool/t1, which holds Some(2ms) of at most Some(1ms)"),
        ("idles", "processor 0 idles under idles while task pool/t1 waits"),
        ("ignores_sleep", "at 1000000 ns: task pool/t1 fell asleep and processor 0 was not asked to pick"),
        ("timer_stands_still", "decisions and timers at one instant, without an end"),
        ("keeps_asking", "decisions and timers at one instant, without an end"),
        ("picks_a_stranger", "processor 0: picked UnitId(77), which is not there"),
    ];
    assert_eq!(expected.len(), BROKEN.len());
    for (name, text) in expected {
        let info = BROKEN.iter().find(|info| info.name == name).unwrap();
        let processors = if name == "runs_twice" { 2 } else { 1 };
        let mut host = pooled(processors, ms(100), PolicyChoice { info, options: Options::new() });
        let pool = Parent::Pool(PoolIx(0));
        task(&mut host, pool, 1, ms(1), ms(10));
        released_at(&mut host, pool, 2, ms(1), ms(10), ms(5));
        match simulate(&host) {
            Err(Error::Violation(account)) => {
                assert!(account.contains(text), "{name}: {account}");
                assert!(account.contains("last decisions:"), "{name}: {account}");
            }
            other => panic!("{name}: not stopped: {other:?}"),
        }
    }
}
