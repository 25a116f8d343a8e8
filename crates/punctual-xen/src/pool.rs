//! A pool of processors under a policy, as a hypervisor drives it: the hypervisor reports what happens, and
//! when; the pool accounts what units ran.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use punctual_sched::{
    Account, CpuId, Decision, DriverState, Instant, ParamError, Policy, Run, Slice, UnitId, UnitParams,
};

/// Why a call was refused. It has changed nothing then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The pool has its maximum of units.
    Full {
        /// The maximum.
        units: usize,
    },
    /// No unit has this number.
    NoUnit {
        /// The number.
        unit: u32,
    },
    /// The pool has no such processor.
    NoProcessor {
        /// The number.
        cpu: u32,
    },
    /// The policy refuses a parameter.
    Parameter(ParamError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Full { units } => write!(f, "the pool is full: it has {units} units"),
            Error::NoUnit { unit } => write!(f, "no such unit: {unit}"),
            Error::NoProcessor { cpu } => write!(f, "no such processor: {cpu}"),
            Error::Parameter(error) => error.fmt(f),
        }
    }
}

impl From<ParamError> for Error {
    fn from(error: ParamError) -> Self {
        Error::Parameter(error)
    }
}

/// A pool.
///
/// Every call has the time at which it happens; an earlier time than that of the last call is treated as that
/// one. The policy's own events up to then (replenishments) come first, each at its own time. The work of a
/// call is bounded by that of the policy, and by the number of replenishments that became due since the last
/// call.
pub struct Pool {
    policy: Box<dyn Policy>,
    driver: DriverState,
    /// By number of a unit: does it exist?
    exists: Vec<bool>,
    units_max: usize,
    /// See [`Pool::break_policy`].
    is_broken: bool,
}

impl Pool {
    /// A pool of `cpus` processors for at most `units` units at a time.
    pub fn new(policy: Box<dyn Policy>, cpus: usize, units: usize) -> Pool {
        Pool {
            driver: DriverState::new(cpus, policy.next_timer().at),
            policy,
            exists: vec![false; units],
            units_max: units,
            is_broken: false,
        }
    }

    /// Takes the processors that must pick.
    pub fn take_resched(&mut self) -> impl Iterator<Item = CpuId> + '_ {
        core::iter::from_fn(|| self.driver.resched.pop())
    }

    /// [`Pool::take_resched`] as bits, from processor 0. Words beyond the pool's processors are not written.
    #[inline(always)]
    pub fn take_resched_words<const N: usize>(&mut self, words: &mut [u64; N]) {
        self.driver.resched.take_words(words);
    }

    /// When [`Pool::timer`] must be called at the latest.
    #[inline(always)]
    pub fn next_timer(&self) -> Instant {
        self.driver.timer_at
    }

    /// Adds a unit, asleep.
    ///
    /// # Errors
    /// The pool is full, or the policy refuses a parameter.
    pub fn insert(&mut self, now: Instant, params: &UnitParams) -> Result<UnitId, Error> {
        self.settle(now, true);
        if self.exists.iter().filter(|exists| **exists).count() == self.units_max {
            return Err(Error::Full { units: self.units_max });
        }
        params.check_affinity(self.driver.processors.len())?;
        let inserted = self.policy.insert(self.driver.now, params);
        self.driver.timer_at = self.policy.next_timer().at;
        let unit = inserted?;
        debug_assert!(self.known(unit.0).is_err(), "the policy numbers {unit:?} twice");
        if self.exists.len() <= unit.index() {
            self.exists.resize(unit.index() + 1, false);
        }
        self.exists[unit.index()] = true;
        Ok(unit)
    }

    /// Removes a unit, which may be asleep, waiting or running.
    ///
    /// # Errors
    /// There is no such unit.
    pub fn remove(&mut self, now: Instant, unit: u32) -> Result<(), Error> {
        self.settle(now, true);
        let unit = self.charged(unit)?;
        self.policy.remove(self.driver.now, unit, &mut self.driver.resched);
        self.driver.timer_at = self.policy.next_timer().at;
        self.exists[unit.index()] = false;
        for processor in
            self.driver.processors.iter_mut().filter(|processor| processor.run.charged() == Some(unit))
        {
            processor.run = Run::Idle;
        }
        Ok(())
    }

    /// Gives a unit other parameters.
    ///
    /// # Errors
    /// There is no such unit, or the policy refuses a parameter.
    pub fn adjust(&mut self, now: Instant, unit: u32, params: &UnitParams) -> Result<(), Error> {
        self.settle(now, true);
        let unit = self.charged(unit)?;
        let checked = params.check_affinity(self.driver.processors.len());
        let adjusted = checked
            .and_then(|()| self.policy.adjust(self.driver.now, unit, params, &mut self.driver.resched));
        self.driver.timer_at = self.policy.next_timer().at;
        Ok(adjusted?)
    }

    /// The unit has work.
    ///
    /// # Errors
    /// There is no such unit.
    #[inline(always)]
    pub fn wake(&mut self, now: Instant, unit: u32) -> Result<(), Error> {
        let unit = self.known(unit)?;
        self.policy.drive_wake(&mut self.driver, now, unit);
        Ok(())
    }

    /// The unit has no more work. The policy's own events at this very instant come after that, as in the
    /// simulator.
    ///
    /// # Errors
    /// There is no such unit.
    pub fn sleep(&mut self, now: Instant, unit: u32) -> Result<(), Error> {
        self.settle(now, false);
        let unit = self.charged(unit)?;
        self.policy.sleep(self.driver.now, unit, &mut self.driver.resched);
        self.driver.timer_at = self.policy.next_timer().at;
        Ok(())
    }

    /// The unit has no more work, and the processor that ran it decides: [`Pool::sleep`], then
    /// [`Pool::decide`].
    ///
    /// # Errors
    /// There is no such unit, or no such processor.
    ///
    /// # Panics
    /// If [`Pool::break_policy`] was called.
    #[inline(always)]
    pub fn sleep_and_decide(
        &mut self,
        now: Instant,
        unit: u32,
        cpu: u32,
        decision: &mut Decision,
    ) -> Result<(), Error> {
        let Some(running) = self.driver.processors.get(cpu as usize) else {
            return Err(Error::NoProcessor { cpu });
        };
        if running.run != Run::Unit(UnitId(unit)) {
            return self.sleep_elsewhere_and_decide(now, unit, cpu, decision);
        }
        assert!(!self.is_broken, "the policy was broken on purpose");
        self.policy.drive_pick(&mut self.driver, now, CpuId(cpu), decision, Some(UnitId(unit)));
        self.check(CpuId(cpu), decision);
        Ok(())
    }

    /// [`Pool::sleep_and_decide`] of a unit that the processor does not run.
    #[cold]
    fn sleep_elsewhere_and_decide(
        &mut self,
        now: Instant,
        unit: u32,
        cpu: u32,
        decision: &mut Decision,
    ) -> Result<(), Error> {
        self.sleep(now, unit)?;
        // It picks now, so it need not be asked to.
        self.driver.resched.remove(CpuId(cpu));
        self.decide(now, cpu, decision)
    }

    /// Sets the deadline of the unit's work.
    ///
    /// # Errors
    /// There is no such unit.
    pub fn set_deadline(&mut self, now: Instant, unit: u32, deadline: Instant) -> Result<(), Error> {
        self.settle(now, true);
        let unit = self.known(unit)?;
        self.policy.set_deadline(self.driver.now, unit, deadline, &mut self.driver.resched);
        self.driver.timer_at = self.policy.next_timer().at;
        Ok(())
    }

    /// Decides what the processor does from now on, and until when at most.
    ///
    /// # Errors
    /// There is no such processor.
    ///
    /// # Panics
    /// If [`Pool::break_policy`] was called.
    pub fn pick(&mut self, now: Instant, cpu: u32) -> Result<Slice, Error> {
        let mut decision = Decision::IDLE;
        self.decide(now, cpu, &mut decision)?;
        Ok(decision.slice())
    }

    /// [`Pool::pick`] into `decision`, which stays unchanged on an error.
    ///
    /// # Errors
    /// There is no such processor.
    ///
    /// # Panics
    /// If [`Pool::break_policy`] was called.
    #[inline(always)]
    pub fn decide(&mut self, now: Instant, cpu: u32, decision: &mut Decision) -> Result<(), Error> {
        assert!(!self.is_broken, "the policy was broken on purpose");
        if cpu as usize >= self.driver.processors.len() {
            return Err(Error::NoProcessor { cpu });
        }
        self.policy.drive_pick(&mut self.driver, now, CpuId(cpu), decision, None);
        self.check(CpuId(cpu), decision);
        Ok(())
    }

    /// The time of [`Pool::next_timer`] has come.
    #[inline(always)]
    pub fn timer(&mut self, now: Instant) {
        self.settle(now, true);
    }

    /// What the policy keeps about a unit, as of the last charge.
    ///
    /// # Errors
    /// There is no such unit.
    pub fn account(&self, unit: u32) -> Result<Account, Error> {
        Ok(self.policy.account(self.known(unit)?))
    }

    /// For tests of callers: the policy panics at its next decision.
    pub fn break_policy(&mut self) {
        self.is_broken = true;
    }

    /// Advances the time to `now`. The policy's own events up to then come first, each at its own time; those
    /// at `now` itself only if that `is_included`.
    #[inline(always)]
    fn settle(&mut self, now: Instant, is_included: bool) {
        let now = now.max(self.driver.now);
        while self.driver.is_due(now, is_included) {
            self.policy.drive_timer(&mut self.driver);
        }
        self.driver.now = now;
    }

    /// What the contract promises about a decision, in debug builds.
    #[inline(always)]
    fn check(&self, cpu: CpuId, decision: &Decision) {
        if !cfg!(debug_assertions) {
            return;
        }
        debug_assert!(
            decision.until_ns > self.driver.now.as_ns(),
            "{cpu:?} picks until a time that has passed"
        );
        let Some(unit) = decision.slice().run.charged() else { return };
        debug_assert!(self.known(unit.0).is_ok(), "{cpu:?} picks {unit:?}, which does not exist");
        for (other, running) in (0..).map(CpuId).zip(&self.driver.processors) {
            let is_left =
                other == cpu || running.run.charged() != Some(unit) || self.driver.resched.contains(other);
            debug_assert!(is_left, "{cpu:?} picks {unit:?}, which {other:?} keeps");
        }
    }

    #[inline(always)]
    fn known(&self, unit: u32) -> Result<UnitId, Error> {
        match self.exists.get(unit as usize) {
            Some(true) => Ok(UnitId(unit)),
            _ => Err(Error::NoUnit { unit }),
        }
    }

    /// The unit, after what it has run is charged.
    fn charged(&mut self, unit: u32) -> Result<UnitId, Error> {
        let unit = self.known(unit)?;
        let now = self.driver.now;
        for (cpu, running) in (0..).map(CpuId).zip(&mut self.driver.processors) {
            if running.run.charged() == Some(unit)
                && let Some((unit, ran)) = running.take(now)
            {
                self.policy.charge(now, cpu, unit, ran);
            }
        }
        Ok(unit)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("now", &self.driver.now).finish_non_exhaustive()
    }
}
