//! A pool of processors under a policy, as a hypervisor drives it: the hypervisor reports what happens, and
//! when; the pool accounts what units ran.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use punctual_sched::turns::{Known, Turns};
use punctual_sched::wrap::Wrapped;
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
///
/// From the second vCPU of a VM on ([`UnitParams::vm`]) the policy stands in [`Turns`]. Before that it does
/// not, because they cost instructions in each decision.
pub struct Pool {
    /// Nothing only while it is put into [`Turns`].
    policy: Option<Box<dyn Policy>>,
    takes_turns: bool,
    driver: DriverState,
    /// By number: the units that exist.
    units: Vec<Option<Known>>,
    units_max: usize,
    /// See [`Pool::break_policy`].
    is_broken: bool,
}

impl Pool {
    /// A pool of `cpus` processors for at most `units` units at a time.
    pub fn new(policy: Box<dyn Policy>, cpus: usize, units: usize) -> Pool {
        let mut known = Vec::with_capacity(units);
        known.resize(units, None);
        Pool {
            driver: DriverState::new(cpus, policy.next_timer().at),
            policy: Some(policy),
            takes_turns: false,
            units: known,
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
        if self.units.iter().flatten().count() == self.units_max {
            return Err(Error::Full { units: self.units_max });
        }
        params.check_affinity(self.driver.processors.len())?;
        if params.vm.is_some() && self.units.iter().flatten().any(|known| known.vm == params.vm) {
            self.take_turns();
        }
        let policy = policy_of(&mut self.policy);
        let inserted = policy.insert(self.driver.now, params);
        self.driver.timer_at = policy.next_timer().at;
        let unit = inserted?;
        debug_assert!(self.known(unit.0).is_err(), "the policy numbers {unit:?} twice");
        if self.units.len() <= unit.index() {
            self.units.resize(unit.index() + 1, None);
        }
        let (vm, affinity) = (params.vm, params.affinity.clone());
        self.units[unit.index()] = Some(Known { vm, affinity, awake: false });
        Ok(unit)
    }

    /// Puts the policy into [`Turns`], if it is not there.
    fn take_turns(&mut self) {
        if core::mem::replace(&mut self.takes_turns, true) {
            return;
        }
        let runs = |run| match run {
            Run::Unit(unit) => Some(unit),
            Run::Idle | Run::IdleFor(_) => None,
        };
        let processors = self.driver.processors.iter().map(|processor| runs(processor.run));
        let units = (0..).map(UnitId).zip(&self.units);
        let units = units.filter_map(|(id, known)| Some((id, known.clone()?)));
        let turns = Turns::of(processors, units, self.driver.now);
        let wrap = |inside| -> Box<dyn Policy> { Box::new(Wrapped::new(turns, inside)) };
        self.policy = self.policy.take().map(wrap);
    }

    /// Removes a unit, which may be asleep, waiting or running.
    ///
    /// # Errors
    /// There is no such unit.
    pub fn remove(&mut self, now: Instant, unit: u32) -> Result<(), Error> {
        self.settle(now, true);
        let unit = self.charged(unit)?;
        let policy = policy_of(&mut self.policy);
        policy.remove(self.driver.now, unit, &mut self.driver.resched);
        self.driver.timer_at = policy.next_timer().at;
        self.units[unit.index()] = None;
        for processor in
            self.driver.processors.iter_mut().filter(|processor| processor.run.charged() == Some(unit))
        {
            processor.run = Run::Idle;
        }
        Ok(())
    }

    /// Gives a unit other parameters. It stays a vCPU of its VM.
    ///
    /// # Errors
    /// There is no such unit, or the policy refuses a parameter.
    pub fn adjust(&mut self, now: Instant, unit: u32, params: &UnitParams) -> Result<(), Error> {
        self.settle(now, true);
        let unit = self.charged(unit)?;
        params.check_affinity(self.driver.processors.len())?;
        let vm = self.units[unit.index()].as_ref().and_then(|known| known.vm);
        let params = UnitParams { vm, ..params.clone() };
        let policy = policy_of(&mut self.policy);
        let adjusted = policy.adjust(self.driver.now, unit, &params, &mut self.driver.resched);
        self.driver.timer_at = policy.next_timer().at;
        adjusted?;
        if let Some(known) = &mut self.units[unit.index()] {
            known.affinity = params.affinity;
        }
        Ok(())
    }

    /// The unit has work.
    ///
    /// # Errors
    /// There is no such unit.
    #[inline(always)]
    pub fn wake(&mut self, now: Instant, unit: u32) -> Result<(), Error> {
        let unit = self.known(unit)?;
        self.set_awake(unit, true);
        policy_of(&mut self.policy).drive_wake(&mut self.driver, now, unit);
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
        self.set_awake(unit, false);
        let policy = policy_of(&mut self.policy);
        policy.sleep(self.driver.now, unit, &mut self.driver.resched);
        self.driver.timer_at = policy.next_timer().at;
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
        self.set_awake(UnitId(unit), false);
        let policy = policy_of(&mut self.policy);
        policy.drive_pick(&mut self.driver, now, CpuId(cpu), decision, Some(UnitId(unit)));
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
        let policy = policy_of(&mut self.policy);
        policy.set_deadline(self.driver.now, unit, deadline, &mut self.driver.resched);
        self.driver.timer_at = policy.next_timer().at;
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
        policy_of(&mut self.policy).drive_pick(&mut self.driver, now, CpuId(cpu), decision, None);
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
        let unit = self.known(unit)?;
        Ok(self.policy.as_ref().map(|policy| policy.account(unit)).unwrap_or_default())
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
            policy_of(&mut self.policy).drive_timer(&mut self.driver);
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
        match self.units.get(unit as usize) {
            Some(Some(_)) => Ok(UnitId(unit)),
            _ => Err(Error::NoUnit { unit }),
        }
    }

    #[inline(always)]
    fn set_awake(&mut self, unit: UnitId, awake: bool) {
        if let Some(Some(known)) = self.units.get_mut(unit.index()) {
            known.awake = awake;
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
                policy_of(&mut self.policy).charge(now, cpu, unit, ran);
            }
        }
        Ok(unit)
    }
}

#[inline(always)]
fn policy_of(policy: &mut Option<Box<dyn Policy>>) -> &mut dyn Policy {
    &mut **policy.as_mut().expect("a pool has a policy")
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("now", &self.driver.now).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;
    use punctual_sched::Duration;
    use punctual_sched::registry::{self, Options, PolicyInfo};

    fn empty(info: &PolicyInfo, cpus: usize) -> Pool {
        Pool::new(info.build(cpus, &Options::new()).expect("a policy"), cpus, 8)
    }

    /// A unit of one of three VMs.
    fn unit(number: u32) -> UnitParams {
        UnitParams {
            budget: Some(Duration::from_us(500 * u64::from(number % 5 + 1))),
            period: Some(Duration::from_us(4_000 + 1_000 * u64::from(number % 3))),
            priority: Some(number % 4),
            vm: Some(number % 3),
            ..UnitParams::default()
        }
    }

    proptest! {
        /// The second vCPU of a VM may come while others run, wait and sleep.
        #[test]
        fn turns_that_begin_late_are_those_of_a_pool_that_takes_them_from_the_start(
            cpus in 1u32..4,
            calls in prop::collection::vec((0u64..3_000, 0u8..6, 0u32..6), 1..200),
        ) {
            for info in registry::policies() {
                let [mut early, mut late] = [(), ()].map(|()| empty(info, cpus as usize));
                early.take_turns();
                let (mut units, mut now) = (0, Instant::ZERO);
                for &(later_us, what, number) in &calls {
                    now += Duration::from_us(later_us);
                    let (at, cpu) = (number % units.max(1), number % cpus);
                    match what {
                        0 if units < 6 => {
                            units += 1;
                            let new = unit(number);
                            let inserted = [&mut early, &mut late].map(|pool| pool.insert(now, &new));
                            prop_assert_eq!(&inserted[0], &inserted[1], "{}", info.name);
                        }
                        1 | 2 if units > 0 => {
                            for pool in [&mut early, &mut late] {
                                pool.wake(now, at).expect("it is there");
                            }
                        }
                        3 if units > 0 => {
                            for pool in [&mut early, &mut late] {
                                pool.sleep(now, at).expect("it is there");
                            }
                        }
                        _ => {
                            let picked = [&mut early, &mut late].map(|pool| pool.pick(now, cpu));
                            prop_assert_eq!(&picked[0], &picked[1], "{}", info.name);
                        }
                    }
                    // Who is asked to pick does so soon, and that has an end.
                    for round in 0.. {
                        prop_assert!(round < 100, "{}", info.name);
                        now += Duration::from_ns(700);
                        let ask = |pool: &mut Pool| pool.take_resched().collect::<Vec<_>>();
                        let asked = [&mut early, &mut late].map(ask);
                        prop_assert_eq!(&asked[0], &asked[1], "{}", info.name);
                        let Some(&cpu) = asked[0].first() else { break };
                        let picked = [&mut early, &mut late].map(|pool| pool.pick(now, cpu.0));
                        prop_assert_eq!(&picked[0], &picked[1], "{}", info.name);
                        for pool in [&mut early, &mut late] {
                            asked[0][1..].iter().for_each(|cpu| pool.driver.resched.insert(*cpu));
                        }
                    }
                    prop_assert_eq!(early.next_timer(), late.next_timer(), "{}", info.name);
                }
            }
        }
    }
}
