//! A plane's budget: the processor time of its threads, limited by a server policy.
//!
//! The policy is an object of `punctual-sched` with a single unit: the plane and its uplinks together. Each
//! of their threads reads its own processor time and charges it; when the budget is exhausted, the thread
//! sleeps until the policy replenishes it. A plane sleeps between two packets and never holds a lock then.
//!
//! # Precision
//! Processor time never passes faster than real time. A thread with `left` of its budget cannot exceed it
//! earlier than in `left`, so it reads its processor time, a system call, only then. Several awake threads
//! share what is left. A plane reads the clock every few packets and after each long one; an overrun until
//! then is charged to the next budget.

use std::sync::Arc;

use punctual_sched::registry::{Options, PolicyInfo};
use punctual_sched::{CpuId, CpuSet, Duration, Instant, ParamError, UnitId, UnitParams};
use punctual_sched::{Policy, Run, Slice, Timer};

use crate::lock::PiMutex;
use crate::sys::processor_time;

/// The policy's only processor, whatever processor a thread runs on.
const CPU: CpuId = CpuId(0);

/// A thread does not check its budget more often than this, even when almost nothing is left.
const CHECK_INTERVAL_MIN: Duration = Duration::from_us(5);

/// After a sleep of this many periods the policy restarts, so that catching up takes bounded time.
const CATCH_UP_PERIODS_MAX: u64 = 32;

/// The budget of a plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// A server policy.
    pub policy: &'static PolicyInfo,
    pub options: Options,
    /// Budget, period and the policy's other parameters.
    pub params: UnitParams,
}

/// Why a budget is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("policy {policy} does not accept `{option}`")]
    Option { policy: &'static str, option: &'static str },
    #[error("policy {policy}: {source}")]
    Params {
        policy: &'static str,
        #[source]
        source: ParamError,
    },
}

/// The budget that the threads of a plane share.
#[derive(Debug)]
pub(crate) struct PlaneBudget(PiMutex<Server>);

impl PlaneBudget {
    pub(crate) fn new(budget: &Budget) -> Result<PlaneBudget, Error> {
        Ok(PlaneBudget(PiMutex::new(Server::new(budget.clone())?)))
    }

    /// How often the budget was exhausted.
    pub(crate) fn exhaustions(&self) -> u64 {
        self.0.with(|server| server.exhaustions())
    }
}

/// Drives the policy with its only unit.
struct Server {
    budget: Budget,
    policy: Box<dyn Policy>,
    unit: UnitId,
    slice: Slice,
    resched: CpuSet,
    /// The policy is up to date until then.
    now: Instant,
    /// Awake threads.
    awake: u64,
    /// Processor time that is not charged yet.
    uncharged: Duration,
    /// Exhaustions before the last restart.
    exhaustions: u64,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({}, {} awake)", self.budget.policy.name, self.awake)
    }
}

impl Server {
    fn new(budget: Budget) -> Result<Server, Error> {
        let policy = budget.policy.name;
        let built = budget.policy.build(1, &budget.options);
        let mut built = built.map_err(|error| Error::Option { policy, option: error.option })?;
        let unit = built.insert(Instant::ZERO, &budget.params);
        let unit = unit.map_err(|source| Error::Params { policy, source })?;
        let mut resched = CpuSet::new(1);
        let slice = built.pick(Instant::ZERO, CPU, &mut resched);
        let (now, uncharged) = (Instant::ZERO, Duration::ZERO);
        Ok(Server { budget, policy: built, unit, slice, resched, now, awake: 0, uncharged, exhaustions: 0 })
    }

    fn exhaustions(&self) -> u64 {
        self.exhaustions + self.policy.account(self.unit).exhaustions
    }

    /// Charges the time until `now`, in which the policy had nothing to decide.
    fn charge_until(&mut self, now: Instant) {
        let passed = now.since(self.now);
        match self.slice.run {
            Run::Unit(unit) => {
                // A policy ignores time beyond the budget. It stays uncharged and counts against the next
                // one.
                let left = self.policy.account(unit).left.unwrap_or(Duration::MAX);
                let ran = self.uncharged.min(left);
                self.uncharged -= ran;
                self.policy.charge(now, CPU, unit, ran);
            }
            Run::IdleFor(unit) => self.policy.charge(now, CPU, unit, passed),
            Run::Idle => {}
        }
        self.now = now;
    }

    fn pick(&mut self) {
        self.slice = self.policy.pick(self.now, CPU, &mut self.resched);
    }

    /// Brings the policy up to `now`.
    fn advance(&mut self, now: Instant) {
        let now = now.max(self.now);
        let period = self.budget.params.period.unwrap_or(Duration::MAX);
        if now.since(self.now).as_ns() / CATCH_UP_PERIODS_MAX > period.as_ns() {
            self.restart(now);
        }
        loop {
            let Timer { at, .. } = self.policy.next_timer();
            let next = self.slice.until.min(at);
            if next > now {
                break;
            }
            // A timer that fires late has its own time.
            self.charge_until(next.max(self.now));
            if at == next {
                self.policy.on_timer(self.now, &mut self.resched);
            }
            self.pick();
        }
        self.charge_until(now);
        self.pick();
    }

    /// Inserts the unit again, after a long sleep.
    fn restart(&mut self, now: Instant) {
        self.exhaustions = self.exhaustions();
        self.policy.remove(now, self.unit, &mut self.resched);
        self.now = now;
        // The policy has accepted these parameters before.
        if let Ok(unit) = self.policy.insert(now, &self.budget.params) {
            self.unit = unit;
        }
        if self.awake > 0 {
            self.policy.wake(now, self.unit, &mut self.resched);
        }
        self.pick();
    }

    fn wake(&mut self, now: Instant) {
        self.advance(now);
        self.awake += 1;
        if self.awake == 1 {
            self.policy.wake(self.now, self.unit, &mut self.resched);
            self.pick();
        }
    }

    fn sleep(&mut self, now: Instant) {
        self.advance(now);
        self.awake = self.awake.saturating_sub(1);
        if self.awake == 0 {
            self.policy.sleep(self.now, self.unit, &mut self.resched);
            self.pick();
        }
    }

    fn verdict(&self) -> Verdict {
        let until = self.slice.until.min(self.policy.next_timer().at);
        match self.slice.run {
            Run::Unit(_) => {
                let part = Duration::from_ns(until.since(self.now).as_ns() / self.awake.max(1));
                Verdict::Run { check_at: self.now + part.max(CHECK_INTERVAL_MIN) }
            }
            Run::Idle | Run::IdleFor(_) => Verdict::Throttled { until },
        }
    }
}

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Run, and check the budget again at this time.
    Run { check_at: Instant },
    /// The budget is exhausted: sleep until then.
    Throttled { until: Instant },
}

/// One thread's use of its plane's budget. It stays in the thread that made it.
#[derive(Debug)]
pub(crate) struct Meter {
    budget: Arc<PlaneBudget>,
    charged: Duration,
    check_at: Instant,
}

impl Meter {
    /// The meter of the calling thread, which is awake.
    pub(crate) fn new(budget: Arc<PlaneBudget>, now: Instant) -> Meter {
        let charged = processor_time();
        budget.0.with(|server| server.wake(now));
        Meter { budget, charged, check_at: now }
    }

    /// Must the budget be checked?
    #[inline]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now >= self.check_at
    }

    /// When the budget must be checked.
    pub(crate) fn check_at(&self) -> Instant {
        self.check_at
    }

    /// Charges what this thread has run. Returns until when it must sleep, if the budget is exhausted.
    pub(crate) fn settle(&mut self, now: Instant) -> Option<Instant> {
        let ran = self.ran();
        let verdict = self.budget.0.with(|server| {
            server.uncharged += ran;
            server.advance(now);
            server.verdict()
        });
        match verdict {
            Verdict::Run { check_at } => {
                self.check_at = check_at;
                None
            }
            Verdict::Throttled { until } => Some(until),
        }
    }

    /// The thread goes to sleep.
    pub(crate) fn sleep(&mut self, now: Instant) {
        let ran = self.ran();
        self.budget.0.with(|server| {
            server.uncharged += ran;
            server.sleep(now);
        });
    }

    /// The thread is awake again, and must check the budget.
    pub(crate) fn wake(&mut self, now: Instant) {
        self.budget.0.with(|server| server.wake(now));
        self.check_at = now;
    }

    fn ran(&mut self) -> Duration {
        let before = std::mem::replace(&mut self.charged, processor_time());
        self.charged.saturating_sub(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn server(policy: &str) -> Server {
        let params = UnitParams {
            budget: Some(Duration::from_ms(2)),
            period: Some(Duration::from_ms(10)),
            extratime: Some(false),
            ..UnitParams::default()
        };
        let policy = punctual_sched::registry::find(policy).expect("a policy");
        Server::new(Budget { policy, options: Options::new(), params }).expect("a server")
    }

    /// Runs a thread that always wants to run for `ns`, with checks that are late by `late_ns`. Returns what
    /// it got.
    fn greedy(server: &mut Server, ns: u64, late_ns: impl Fn(u64) -> u64) -> u64 {
        let (mut now, mut took) = (server.now.as_ns(), 0);
        let end = now + ns;
        server.wake(Instant::from_ns(now));
        for check in 0.. {
            if now >= end {
                break;
            }
            server.advance(Instant::from_ns(now));
            match server.verdict() {
                Verdict::Run { check_at } => {
                    let until = check_at.as_ns() + late_ns(check);
                    took += until - now;
                    server.uncharged += Duration::from_ns(until - now);
                    now = until;
                }
                Verdict::Throttled { until } => now = until.as_ns(),
            }
        }
        server.sleep(Instant::from_ns(now));
        took
    }

    #[test]
    fn a_greedy_thread_gets_the_budget_in_each_period() {
        for policy in ["deferrable", "sporadic", "periodic", "polling", "cbs", "rtds"] {
            let took = greedy(&mut server(policy), 1_000 * MS, |_| 0);
            assert!((196 * MS..=202 * MS).contains(&took), "{policy}: {took} ns of a second");
        }
    }

    #[test]
    fn the_overrun_of_a_late_check_is_charged_to_the_next_budget() {
        for late_us in [1, 100, 1_500] {
            let took = greedy(&mut server("deferrable"), 1_000 * MS, |check| check % 7 * late_us * 1_000 / 7);
            assert!(took <= 204 * MS, "checks late by up to {late_us} us: {took} ns of a second");
        }
    }

    #[test]
    fn a_pause_adds_at_most_one_kept_budget() {
        // Bursts with pauses of every length get a budget for each period, and one that was kept.
        for pause_ms in [1, 5, 9, 11, 33, 95, 321, 900] {
            let mut server = server("deferrable");
            let mut took = 0;
            while server.now < Instant::from_ns(10_000 * MS) {
                took += greedy(&mut server, 4 * MS, |_| 0);
                let next = server.now + Duration::from_ms(pause_ms);
                server.advance(next);
            }
            let periods = server.now.as_ns() / (10 * MS) + 2;
            assert!(took <= periods * 2 * MS + 100_000, "pauses of {pause_ms} ms: {took} ns in {periods}");
        }
    }

    #[test]
    fn catching_up_with_a_long_sleep_takes_no_time() {
        let mut server = server("periodic");
        let before = std::time::Instant::now();
        server.wake(Instant::from_ns(3_600_000 * MS));
        assert!(before.elapsed() < std::time::Duration::from_millis(100));
        assert!(matches!(server.verdict(), Verdict::Run { .. }));
    }

    #[test]
    fn threads_share_what_is_left() {
        let mut server = server("deferrable");
        server.wake(Instant::ZERO);
        server.wake(Instant::ZERO);
        let Verdict::Run { check_at } = server.verdict() else { panic!("a budget is there") };
        // The default quantum of 1 ms ends a slice.
        assert_eq!(check_at, Instant::from_ns(MS / 2));
    }
}
