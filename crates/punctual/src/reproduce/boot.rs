//! Domains that boot one after another.
//!
//! Replenishment periods are aligned to the start of a unit. A simulated host starts everything at once, so
//! all periods begin together; on a real machine domains are created one by one and their periods begin at
//! whatever time that was. [`boot_one_by_one`] gives a simulated host such a history: before the run, the
//! units are inserted one after the other, with a random gap in whole ms before each, drawn from the host's
//! seed.
//!
//! The pool's policy is wrapped for it: its time line starts `HISTORY` earlier than the machine's.

use std::cell::{Cell, RefCell};
use std::sync::OnceLock;

use punctual_model::Host;
use punctual_model::generate::RandomStream;
use punctual_sched::registry::{self, Build, OptionError, Options, PolicyInfo};
use punctual_sched::{
    Account, CpuId, CpuSet, Duration, Instant, ParamError, Policy, Slice, Timer, UnitId, UnitParams,
};

/// How much earlier the policy's time line starts than the machine's: a multiple of every period in Table 3.
const HISTORY: Duration = Duration::from_secs(2);
/// Before each unit's insertion passes a time from 0 to this, both included: five units fit into the history.
const GAP_MAX_MS: u64 = 399;

thread_local! {
    /// What [`build`] wraps: a `Build` is a plain function and can carry nothing along.
    static INNER: Cell<Option<Build>> = const { Cell::new(None) };
    static STARTS: RefCell<Vec<Instant>> = const { RefCell::new(Vec::new()) };
}

/// The registry's policies, wrapped.
fn wrapped(name: &str) -> Option<&'static PolicyInfo> {
    static WRAPPED: OnceLock<Vec<PolicyInfo>> = OnceLock::new();
    let all =
        WRAPPED.get_or_init(|| registry::policies().iter().map(|p| PolicyInfo { build, ..*p }).collect());
    all.iter().find(|p| p.name == name)
}

/// Gives the units of the host's only pool a random start each, for a simulation on this thread.
///
/// # Panics
/// When the host has more than one pool or more than five units.
pub fn boot_one_by_one(host: &mut Host) {
    assert!(host.pools.len() == 1 && host.vcpus.len() <= 5, "made for the five domains of RT-Xen");
    let mut stream = RandomStream::new(host.seed, "boot");
    let mut now = Instant::ZERO;
    let starts = host.vcpus.iter().map(|_| {
        now += Duration::from_ms(stream.whole(0, GAP_MAX_MS));
        now
    });
    STARTS.set(starts.collect());
    let info = host.pools[0].policy.info;
    INNER.set(Some(info.build));
    host.pools[0].policy.info = wrapped(info.name).expect("a host's policies are from the registry");
}

fn build(cpus: usize, options: &Options) -> Result<Box<dyn Policy>, OptionError> {
    let expected = || OptionError { option: "policy", expected: "run on the thread that prepared it".into() };
    let inner = INNER.get().ok_or_else(expected)?(cpus, options)?;
    Ok(Box::new(Booted { inner, starts: STARTS.take(), inserted: 0 }))
}

/// A policy whose units started before the machine's time 0.
struct Booted {
    inner: Box<dyn Policy>,
    starts: Vec<Instant>,
    inserted: usize,
}

fn inside(now: Instant) -> Instant {
    now + HISTORY
}

/// Times within the history are due at once.
fn outside(at: Instant) -> Instant {
    if at.is_never() { at } else { Instant::ZERO + at.since(Instant::ZERO + HISTORY) }
}

impl Policy for Booted {
    fn insert(&mut self, _now: Instant, params: &UnitParams) -> Result<UnitId, ParamError> {
        let start = self.starts[self.inserted];
        self.inserted += 1;
        self.inner.insert(start, params)
    }

    fn remove(&mut self, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        self.inner.remove(inside(now), unit, resched);
    }

    fn adjust(
        &mut self,
        now: Instant,
        unit: UnitId,
        params: &UnitParams,
        resched: &mut CpuSet,
    ) -> Result<(), ParamError> {
        self.inner.adjust(inside(now), unit, params, resched)
    }

    fn wake(&mut self, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        self.inner.wake(inside(now), unit, resched);
    }

    fn sleep(&mut self, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        self.inner.sleep(inside(now), unit, resched);
    }

    fn set_deadline(&mut self, now: Instant, unit: UnitId, deadline: Instant, resched: &mut CpuSet) {
        self.inner.set_deadline(inside(now), unit, inside(deadline), resched);
    }

    fn charge(&mut self, now: Instant, cpu: CpuId, unit: UnitId, ran: Duration) {
        self.inner.charge(inside(now), cpu, unit, ran);
    }

    fn pick(&mut self, now: Instant, cpu: CpuId, resched: &mut CpuSet) -> Slice {
        let slice = self.inner.pick(inside(now), cpu, resched);
        Slice { until: outside(slice.until), ..slice }
    }

    fn next_timer(&self) -> Timer {
        let timer = self.inner.next_timer();
        Timer { at: outside(timer.at), ..timer }
    }

    fn on_timer(&mut self, now: Instant, resched: &mut CpuSet) {
        self.inner.on_timer(inside(now), resched);
    }

    fn ranking(&self, cpu: CpuId, out: &mut Vec<UnitId>) {
        self.inner.ranking(cpu, out);
    }

    fn account(&self, unit: UnitId) -> Account {
        let account = self.inner.account(unit);
        Account { deadline: account.deadline.map(outside), ..account }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenario::Scenario;
    use super::*;

    fn host(seed: u64) -> Host {
        Scenario::new("rt-xen", "increasing").seed(seed).duration(Duration::from_secs(5)).host().unwrap()
    }

    /// With gaps of zero everything starts at once, a whole number of periods before the machine does.
    #[test]
    fn a_history_of_whole_periods_changes_nothing() {
        let plain = punctual_sim::simulate(&host(1)).unwrap();
        let mut booted = host(1);
        boot_one_by_one(&mut booted);
        STARTS.set(vec![Instant::ZERO; 5]);
        assert_eq!(punctual_sim::simulate(&booted).unwrap().tasks, plain.tasks);
    }

    #[test]
    fn a_seed_gives_one_history_and_another_seed_another() {
        let run = |seed: u64, boot_seed: u64| {
            let mut booted = host(seed);
            booted.seed = boot_seed;
            boot_one_by_one(&mut booted);
            punctual_sim::simulate(&booted).unwrap().vcpus
        };
        assert_eq!(run(1, 1), run(1, 1));
        assert_ne!(run(1, 1), run(1, 2));
    }
}
