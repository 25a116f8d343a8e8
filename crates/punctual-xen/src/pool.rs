//! A pool of processors under a policy, as a hypervisor drives it: it says what happens, and when; what units
//! ran is reckoned here.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use punctual_sched::{
    Account, CpuId, CpuSet, Instant, ParamError, Policy, Run, Running, Slice, Timer, UnitId, UnitParams,
};

/// Why something was refused. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The pool has as many units as it was made for.
    Full {
        /// How many.
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
            Error::Full { units } => write!(f, "the pool has {units} units already"),
            Error::NoUnit { unit } => write!(f, "there is no unit {unit}"),
            Error::NoProcessor { cpu } => write!(f, "there is no processor {cpu}"),
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
/// Every call has the time at which it happens; an earlier one than before counts as that. What the policy
/// does by itself until then is done first, each thing at its own time. The work of a call is bounded by the
/// policy's own and by the number of replenishments that became due since the call before.
pub struct Pool {
    policy: Box<dyn Policy>,
    now: Instant,
    /// The policy's own, as of the last call of this pool.
    timer: Timer,
    processors: Vec<Running>,
    /// By number of a unit: is it there?
    is_there: Vec<bool>,
    units_max: usize,
    /// See [`Pool::break_policy`].
    is_broken: bool,
    /// Processors that must pick.
    resched: CpuSet,
}

impl Pool {
    /// A pool of `cpus` processors for at most `units` units at once; memory for that many is taken now.
    pub fn new(policy: Box<dyn Policy>, cpus: usize, units: usize) -> Pool {
        Pool {
            timer: policy.next_timer(),
            policy,
            now: Instant::ZERO,
            processors: vec![Running::IDLE; cpus],
            is_there: vec![false; units],
            units_max: units,
            is_broken: false,
            resched: CpuSet::new(cpus),
        }
    }

    /// Processors that must pick, since they were taken last.
    pub fn take_resched(&mut self) -> impl Iterator<Item = CpuId> + '_ {
        core::iter::from_fn(|| self.resched.pop())
    }

    /// As [`Pool::take_resched`]: bits, the lowest is processor 0.
    #[inline(always)]
    pub fn take_resched_words<const N: usize>(&mut self, words: &mut [u64; N]) {
        self.resched.take_words(words);
    }

    /// When [`Pool::timer`] must be called at the latest.
    pub fn next_timer(&self) -> Instant {
        self.timer.at
    }

    /// Adds a unit, asleep.
    ///
    /// # Errors
    /// The pool is full, or the policy refuses a parameter.
    pub fn insert(&mut self, now: Instant, params: &UnitParams) -> Result<UnitId, Error> {
        self.settle(now);
        if self.is_there.iter().filter(|is_there| **is_there).count() == self.units_max {
            return Err(Error::Full { units: self.units_max });
        }
        params.check_affinity(self.processors.len())?;
        let inserted = self.policy.insert(self.now, params);
        self.timer = self.policy.next_timer();
        let unit = inserted?;
        if self.is_there.len() <= unit.index() {
            self.is_there.resize(unit.index() + 1, false);
        }
        self.is_there[unit.index()] = true;
        Ok(unit)
    }

    /// Removes a unit, wherever it is.
    ///
    /// # Errors
    /// There is none.
    pub fn remove(&mut self, now: Instant, unit: u32) -> Result<(), Error> {
        self.settle(now);
        let unit = self.charged(unit)?;
        self.policy.remove(self.now, unit, &mut self.resched);
        self.timer = self.policy.next_timer();
        self.is_there[unit.index()] = false;
        for processor in self.processors.iter_mut().filter(|processor| processor.run.charged() == Some(unit))
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
        self.settle(now);
        let unit = self.charged(unit)?;
        let checked = params.check_affinity(self.processors.len());
        let adjusted = checked.and_then(|()| self.policy.adjust(self.now, unit, params, &mut self.resched));
        self.timer = self.policy.next_timer();
        Ok(adjusted?)
    }

    /// The unit has work.
    ///
    /// # Errors
    /// There is no such unit.
    #[inline(always)]
    pub fn wake(&mut self, now: Instant, unit: u32) -> Result<(), Error> {
        self.settle(now);
        let unit = self.known(unit)?;
        self.timer = self.policy.wake_and_timer(self.now, unit, &mut self.resched);
        Ok(())
    }

    /// The unit has no more work. What the policy does by itself at this very instant comes after that, as in
    /// the simulator.
    ///
    /// # Errors
    /// There is no such unit.
    pub fn sleep(&mut self, now: Instant, unit: u32) -> Result<(), Error> {
        self.settle_before(now);
        let unit = self.known(unit)?;
        match self.processors.iter().position(|running| running.run.charged() == Some(unit)) {
            Some(cpu) => self.put_to_sleep(unit, CpuId(cpu as u32)),
            None => {
                self.policy.sleep(self.now, unit, &mut self.resched);
                self.timer = self.policy.next_timer();
            }
        }
        Ok(())
    }

    /// The unit has no more work, and the processor, which ran it, picks: [`Pool::sleep`], then
    /// [`Pool::pick`].
    ///
    /// # Errors
    /// There is no such unit, or no such processor.
    #[inline(always)]
    pub fn sleep_and_pick(&mut self, now: Instant, unit: u32, cpu: u32) -> Result<Slice, Error> {
        let Some(running) = self.processors.get(cpu as usize) else {
            return Err(Error::NoProcessor { cpu });
        };
        if running.run == Run::Unit(UnitId(unit)) {
            self.settle_before(now);
            self.put_to_sleep(UnitId(unit), CpuId(cpu));
        } else {
            self.sleep(now, unit)?;
        }
        // It picks now, whoever asked for it.
        self.resched.remove(CpuId(cpu));
        self.pick(now, cpu)
    }

    /// Now; the processor runs it.
    #[inline(always)]
    fn put_to_sleep(&mut self, unit: UnitId, cpu: CpuId) {
        let running = &mut self.processors[cpu.index()];
        self.timer = self.policy.charge_and_sleep(self.now, unit, (cpu, running), &mut self.resched);
    }

    /// The unit's work is due then.
    ///
    /// # Errors
    /// There is no such unit.
    pub fn set_deadline(&mut self, now: Instant, unit: u32, deadline: Instant) -> Result<(), Error> {
        self.settle(now);
        let unit = self.known(unit)?;
        self.policy.set_deadline(self.now, unit, deadline, &mut self.resched);
        self.timer = self.policy.next_timer();
        Ok(())
    }

    /// What the processor does from now on, and until when at most.
    ///
    /// # Errors
    /// There is no such processor.
    ///
    /// # Panics
    /// If [`Pool::break_policy`] was called.
    #[inline(always)]
    pub fn pick(&mut self, now: Instant, cpu: u32) -> Result<Slice, Error> {
        assert!(!self.is_broken, "the policy was broken on purpose");
        self.settle(now);
        let Some(running) = self.processors.get_mut(cpu as usize) else {
            return Err(Error::NoProcessor { cpu });
        };
        let (slice, timer) = self.policy.charge_and_pick(self.now, CpuId(cpu), running, &mut self.resched);
        self.timer = timer;
        Ok(slice)
    }

    /// The time has come that [`Pool::next_timer`] said.
    pub fn timer(&mut self, now: Instant) {
        self.settle(now);
    }

    /// The account of a unit, as of what was charged.
    ///
    /// # Errors
    /// There is no such unit.
    pub fn account(&self, unit: u32) -> Result<Account, Error> {
        Ok(self.policy.account(self.known(unit)?))
    }

    /// The policy panics at its next decision: to see what a caller does then.
    pub fn break_policy(&mut self) {
        self.is_broken = true;
    }

    /// Time goes on until `now`. All that the policy does by itself until then is done, each thing at its own
    /// time.
    #[inline(always)]
    fn settle(&mut self, now: Instant) {
        let now = now.max(self.now);
        if self.timer.at <= now {
            self.catch_up(|timer| timer <= now);
        }
        self.now = now;
    }

    /// As [`Pool::settle`], but for what the policy does at `now`.
    #[inline(always)]
    fn settle_before(&mut self, now: Instant) {
        let now = now.max(self.now);
        if self.timer.at < now {
            self.catch_up(|timer| timer < now);
        }
        self.now = now;
    }

    fn catch_up(&mut self, is_due: impl Fn(Instant) -> bool) {
        while is_due(self.timer.at) {
            self.now = self.timer.at.max(self.now);
            let processors = &mut self.processors;
            let running = self.timer.charge.map(|cpu| (cpu, &mut processors[cpu.index()]));
            self.timer = self.policy.charge_and_timer(self.now, running, &mut self.resched);
        }
    }

    /// Charges what the processor did until now.
    fn charge(&mut self, cpu: CpuId) {
        if let Some((unit, ran)) = self.processors[cpu.index()].take(self.now) {
            self.policy.charge(self.now, cpu, unit, ran);
        }
    }

    fn known(&self, unit: u32) -> Result<UnitId, Error> {
        match self.is_there.get(unit as usize) {
            Some(true) => Ok(UnitId(unit)),
            _ => Err(Error::NoUnit { unit }),
        }
    }

    /// The unit, charged for what it ran until now.
    fn charged(&mut self, unit: u32) -> Result<UnitId, Error> {
        let unit = self.known(unit)?;
        for cpu in 0..self.processors.len() {
            if self.processors[cpu].run.charged() == Some(unit) {
                self.charge(CpuId(cpu as u32));
            }
        }
        Ok(unit)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("now", &self.now).finish_non_exhaustive()
    }
}
