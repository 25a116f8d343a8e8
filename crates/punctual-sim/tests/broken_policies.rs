//! Policies that break the contract are stopped with a message that a person can read.

use punctual_model::Host;
use punctual_model::host::Parent;
use punctual_model::index::PoolIx;
use punctual_sched::wrap::{Wrapped, Wrapper};
use punctual_sched::{Account, CpuId, CpuSet, Duration, Instant, Policy, Run, Slice, Timer, UnitId};
use punctual_sim::{Error, simulate_wrapped};
use punctual_testkit::hosts::*;

/// What goes wrong in a policy that is otherwise sound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// The first processor always runs the second unit, awake or not.
    RunsWhoSleeps,
    /// The second processor runs what the first runs.
    RunsTwice,
    EndsInThePast,
    RunsWithoutBudget,
    HoldsTooMuch,
    Idles,
    IgnoresSleep,
    TimerStandsStill,
    KeepsAsking,
    PicksAStranger,
    /// Lets a server run for longer than its budget, which it says it keeps.
    ForgetsBudget,
    /// Lets the budget of a server that has work idle away.
    IdlesForWork,
    /// Runs on the second processor whom only the first may run.
    IgnoresAffinity,
}

/// Injects a fault.
struct Broken {
    fault: Fault,
    /// What the first processor was given last.
    first: Run,
}

impl Wrapper for Broken {
    fn sleep(&mut self, inside: &mut dyn Policy, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        inside.sleep(now, unit, resched);
        if self.fault == Fault::IgnoresSleep {
            resched.clear();
        }
    }

    fn pick(&mut self, inside: &mut dyn Policy, now: Instant, cpu: CpuId, resched: &mut CpuSet) -> Slice {
        let mut slice = inside.pick(now, cpu, resched);
        match self.fault {
            Fault::RunsWhoSleeps => slice.run = Run::Unit(UnitId(1)),
            Fault::RunsTwice if cpu.0 > 0 => slice.run = self.first,
            Fault::RunsTwice => self.first = slice.run,
            Fault::EndsInThePast => slice.until = now,
            Fault::Idles => slice.run = Run::Idle,
            Fault::KeepsAsking => resched.insert(CpuId(0)),
            Fault::PicksAStranger => slice.run = Run::Unit(UnitId(77)),
            Fault::ForgetsBudget => slice.until += ms(4),
            Fault::IdlesForWork => {
                if let Run::Unit(unit) = slice.run {
                    slice.run = Run::IdleFor(unit);
                }
            }
            Fault::IgnoresAffinity if cpu.0 > 0 => slice.run = Run::Unit(UnitId(0)),
            Fault::IgnoresAffinity => slice.run = Run::Idle,
            _ => {}
        }
        slice
    }

    fn on_timer(&mut self, inside: &mut dyn Policy, now: Instant, resched: &mut CpuSet) {
        // The policy inside has no timer that is due.
        if self.fault != Fault::TimerStandsStill {
            inside.on_timer(now, resched);
        }
    }

    fn next_timer(&self, inside: &dyn Policy) -> Timer {
        match self.fault {
            Fault::TimerStandsStill => Timer { at: Instant::from_ns(5), charge: None },
            _ => inside.next_timer(),
        }
    }

    fn account(&self, inside: &dyn Policy, unit: UnitId) -> Account {
        match self.fault {
            Fault::RunsWithoutBudget => Account { left: Some(Duration::ZERO), ..inside.account(unit) },
            Fault::HoldsTooMuch => Account { left: Some(ms(2)), max: Some(ms(1)), ..inside.account(unit) },
            _ => inside.account(unit),
        }
    }
}

/// Two tasks under fixed priorities with `fault`: why the simulation stops.
fn why_it_stops(fault: Fault) -> String {
    let processors = if fault == Fault::RunsTwice { 2 } else { 1 };
    let mut host = pooled(processors, ms(100), policy("fixed-priority"));
    let pool = Parent::Pool(PoolIx(0));
    task(&mut host, pool, 1, ms(1), ms(10));
    released_at(&mut host, pool, 2, ms(1), ms(10), ms(5));
    stopped(&host, fault)
}

/// A server of 1 ms in 10 ms on the first of two processors, whose task wants more, with `fault`.
fn why_servers_stop(fault: Fault) -> String {
    let mut host = pooled(2, ms(100), policy("deferrable"));
    let vm = vm(&mut host, pinned(server(ms(1), ms(10), 1), 0, 2));
    task(&mut host, vm, 1, ms(5), ms(10));
    stopped(&host, fault)
}

fn stopped(host: &Host, fault: Fault) -> String {
    let broken =
        |_, policy| -> Box<dyn Policy> { Box::new(Wrapped::new(Broken { fault, first: Run::Idle }, policy)) };
    match simulate_wrapped(host, broken) {
        Err(Error::Violation(violation)) => violation,
        other => panic!("{fault:?}: not stopped: {other:?}"),
    }
}

#[test]
fn every_fault_is_named_with_time_processor_and_unit() {
    let expected = [
        (Fault::RunsWhoSleeps, "at 0 ns: processor 0 picked task pool/t2, which has no work"),
        (Fault::RunsTwice, "processor 1 picked task pool/t1, which already runs on processor 0"),
        (Fault::EndsInThePast, "processor 0: the slice would end at t=0ns"),
        (Fault::RunsWithoutBudget, "picked task pool/t1, which has no budget left"),
        (Fault::HoldsTooMuch, "picked task pool/t1, which holds 2ms of at most 1ms"),
        (Fault::Idles, "processor 0 idles under fixed-priority while task pool/t1 waits"),
        (
            Fault::IgnoresSleep,
            "at 1000000 ns: task pool/t1 fell asleep and processor 0 was not asked to pick",
        ),
        (Fault::TimerStandsStill, "decisions and timers at one instant, without an end"),
        (Fault::KeepsAsking, "decisions and timers at one instant, without an end"),
        (Fault::PicksAStranger, "processor 0: picked UnitId(77), which is not there"),
    ];
    let of_servers = [
        (Fault::ForgetsBudget, "processor 0 executed vCPU d1.0 for 4ms more than its budget"),
        (Fault::IdlesForWork, "processor 0 picked vCPU d1.0, which has work, yet its budget idles away"),
        (Fault::IgnoresAffinity, "processor 1 picked vCPU d1.0, which may not run there (affinity)"),
    ];
    let violations = expected.map(|(fault, text)| (fault, text, why_it_stops(fault)));
    let of_servers = of_servers.map(|(fault, text)| (fault, text, why_servers_stop(fault)));
    for (fault, text, violation) in violations.into_iter().chain(of_servers) {
        assert!(violation.contains(text), "{fault:?}: {violation}");
        assert!(violation.contains("last decisions:"), "{fault:?}: {violation}");
    }
}
