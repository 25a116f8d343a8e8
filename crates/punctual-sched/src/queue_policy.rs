//! A policy over one run queue: all that such policies do alike, around the rules of each.
//!
//! A policy gives [`QueueRules`]: what a unit's parameters mean, how urgent the unit is, when its budget is
//! consumed and comes back. [`QueuePolicy`] makes a [`Policy`] of them. It checks affinities, knows which
//! units are awake, keeps the [`RunQueue`] and the timers in step with each unit's state, and ends slices.
//!
//! # Rules
//! - A unit with an urgency is ready while it is awake; one without ([`QueueRules::urgency`]) is throttled.
//! - The state of a unit changes at its insertion, at a wake-up, a sleep, a charge, the end of its turn and
//!   its timer, and with new parameters. After each, the queue has the unit where its state says.
//! - A wake-up of an awake unit and a sleep of a sleeping one change nothing.

use alloc::vec::Vec;

use crate::affinity::allowed;
use crate::cpuset::{CpuId, CpuSet};
use crate::decision::{Run, Slice, Timer, UnitId};
use crate::heap::IndexedHeap;
use crate::params::{ParamError, UnitParams};
use crate::policy::{Account, Ahead, Policy};
use crate::run_queue::RunQueue;
use crate::time::{Duration, Instant};

/// Which units have a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timers {
    /// None has.
    Never,
    /// Awake units that are throttled. They do not run, so there is nothing to charge first.
    Throttled,
    /// All awake units. One that runs is charged before its timer is handled.
    Awake,
}

/// What a charge did to a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Charged {
    /// It goes on.
    GoesOn,
    /// Its urgency changed, or its turn is over: it goes behind its equals.
    Demoted,
    /// It has no budget left.
    Throttled,
}

/// The rules that make a queue policy the one that it is. Nothing but [`QueueRules::insert`] and
/// [`QueueRules::adjust`] may allocate.
pub(crate) trait QueueRules: Send {
    /// Urgency; smaller is more urgent.
    type Key: Ord + Copy + Default + Send;
    /// A unit's parameters, checked.
    type Params;
    /// A unit's state. The queue knows which units are awake.
    type Unit: Send;
    /// Which units have a timer.
    const TIMERS: Timers;
    /// Does running use up anything, so that a slice ends by itself?
    const SLICES_END: bool;

    /// Checks the parameters that the policy reads, apart from the affinity.
    ///
    /// # Errors
    /// [`ParamError`] names the parameter.
    fn check(params: &UnitParams) -> Result<Self::Params, ParamError>;

    /// A new unit's state. `cpus` holds the processors that its affinity allows; a partitioned policy leaves
    /// one of them.
    fn insert(&mut self, now: Instant, params: Self::Params, cpus: &mut CpuSet) -> Self::Unit;

    /// The unit gets new parameters; `cpus` as for [`QueueRules::insert`].
    fn adjust(&mut self, unit: &mut Self::Unit, params: Self::Params, cpus: &mut CpuSet);

    /// The unit is removed.
    fn remove(&mut self, unit: &Self::Unit) {
        let _ = unit;
    }

    /// How urgent the unit is, awake or not. `None`: it is throttled.
    fn urgency(unit: &Self::Unit) -> Option<Self::Key>;

    /// When the timer of an awake unit is due.
    fn timer(unit: &Self::Unit) -> Option<Instant> {
        let _ = unit;
        None
    }

    /// How long the unit may run before its processor must pick again. By default without end.
    fn slice(unit: &Self::Unit) -> Duration {
        let _ = unit;
        Duration::MAX
    }

    /// The unit wakes up.
    fn wake(&mut self, unit: &mut Self::Unit, now: Instant) {
        let _ = (unit, now);
    }

    /// The unit goes to sleep.
    fn sleep(&mut self, unit: &mut Self::Unit) {
        let _ = unit;
    }

    /// The driver sets the deadline of the unit's current work. Does that change the urgency?
    fn set_deadline(&mut self, unit: &mut Self::Unit, deadline: Instant) -> bool {
        let _ = (unit, deadline);
        false
    }

    /// The unit ran.
    fn charge(&mut self, unit: &mut Self::Unit, ran: Duration) -> Charged {
        let _ = (unit, ran);
        Charged::GoesOn
    }

    /// The unit has got a processor. Does its urgency change while it runs there?
    fn picked(&mut self, unit: &mut Self::Unit) -> bool {
        let _ = unit;
        false
    }

    /// The unit that has just been picked gives way to a vCPU of the same VM, without having run.
    fn gave_way(&mut self, unit: &mut Self::Unit) {
        let _ = unit;
    }

    /// The unit's processor is about to pick. Is the unit's turn over? Then it gets a new one behind its
    /// equals.
    fn ends_turn(&mut self, unit: &mut Self::Unit) -> bool {
        let _ = unit;
        false
    }

    /// May `unit`, which has budget, take a turn at the place of `before`, a vCPU of the same VM?
    fn may_stand_in(unit: &Self::Unit, before: &Self::Unit) -> bool {
        let _ = (unit, before);
        true
    }

    /// The unit's timer, which was due at `at`, is handled at `now`.
    fn on_timer(&mut self, unit: &mut Self::Unit, at: Instant, now: Instant) {
        let _ = (unit, at, now);
    }

    /// The unit's timer has been handled while it ran. Does its processor pick at once?
    fn picks_after_timer(&mut self, unit: &mut Self::Unit) -> bool {
        let _ = unit;
        false
    }

    /// The unit's replenishments, if they can be said ahead of time.
    fn ahead(&self, unit: &Self::Unit) -> Option<Ahead> {
        let _ = unit;
        None
    }

    /// The unit's account.
    fn account(unit: &Self::Unit) -> Account {
        let _ = unit;
        Account::default()
    }
}

/// The policy that follows from `R`; see the module's rules.
#[derive(Debug)]
pub(crate) struct QueuePolicy<R: QueueRules> {
    rules: R,
    queue: RunQueue<R::Key, R::Unit>,
    /// When each unit's timer is due. Without [`QueueRules::TIMERS`] it stays empty.
    timers: IndexedHeap<Instant>,
}

impl<R: QueueRules> QueuePolicy<R> {
    /// A pool of `cpus` processors without units.
    pub(crate) fn new(cpus: usize, rules: R) -> Self {
        QueuePolicy { rules, queue: RunQueue::new(cpus), timers: IndexedHeap::new(0) }
    }

    #[inline(always)]
    fn got_processor(&mut self, unit: UnitId, cpu: CpuId) {
        let state = &mut self.queue[unit];
        if self.rules.picked(state)
            && let Some(urgency) = R::urgency(state)
        {
            self.queue.lend(cpu, urgency);
        }
    }

    #[inline(always)]
    fn clear_timer(&mut self, unit: UnitId) {
        if R::TIMERS != Timers::Never {
            self.timers.remove(unit.index());
        }
    }
}

/// Notes whether the unit has work. The unit's state, if that is a change. Where nothing is throttled, the
/// units that are ready are those that are awake.
#[inline(always)]
fn set_awake<R: QueueRules>(
    queue: &mut RunQueue<R::Key, R::Unit>,
    unit: UnitId,
    awake: bool,
) -> Option<&mut R::Unit> {
    match R::TIMERS {
        Timers::Never if queue.is_ready(unit) == awake => None,
        Timers::Never => Some(&mut queue[unit]),
        Timers::Throttled | Timers::Awake => queue.set_awake(unit, awake),
    }
}

impl<R: QueueRules> Policy for QueuePolicy<R> {
    fn insert(&mut self, now: Instant, params: &UnitParams) -> Result<UnitId, ParamError> {
        let checked = R::check(params)?;
        let mut cpus = allowed(self.queue.cpus(), params.affinity.as_ref())?;
        let state = self.rules.insert(now, checked, &mut cpus);
        let unit = self.queue.add(cpus, state);
        if R::TIMERS != Timers::Never {
            self.timers.grow(self.queue.capacity());
        }
        Ok(unit)
    }

    fn remove(&mut self, _now: Instant, unit: UnitId, resched: &mut CpuSet) {
        self.rules.remove(&self.queue[unit]);
        self.clear_timer(unit);
        self.queue.remove(unit, resched);
    }

    fn adjust(
        &mut self,
        _now: Instant,
        unit: UnitId,
        params: &UnitParams,
        resched: &mut CpuSet,
    ) -> Result<(), ParamError> {
        let checked = R::check(params)?;
        let mut cpus = allowed(self.queue.cpus(), params.affinity.as_ref())?;
        self.rules.adjust(&mut self.queue[unit], checked, &mut cpus);
        self.queue.set_affinity(unit, cpus, resched);
        Ok(())
    }

    #[inline(always)]
    fn wake(&mut self, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        let Some(state) = set_awake::<R>(&mut self.queue, unit, true) else {
            return;
        };
        self.rules.wake(state, now);
        let timer = R::timer(state);
        if let Some(urgency) = R::urgency(state) {
            self.queue.ready(unit, urgency, resched);
        }
        if R::TIMERS != Timers::Never
            && let Some(at) = timer
        {
            self.timers.set(unit.index(), at);
        }
    }

    #[inline(always)]
    fn sleep(&mut self, _now: Instant, unit: UnitId, resched: &mut CpuSet) {
        if let Some(state) = set_awake::<R>(&mut self.queue, unit, false) {
            self.rules.sleep(state);
            self.clear_timer(unit);
            self.queue.unready(unit, resched);
        }
    }

    #[inline(always)]
    fn sleep_before_pick(&mut self, _now: Instant, unit: UnitId, cpu: CpuId, _resched: &mut CpuSet) {
        debug_assert_eq!(self.queue.current(cpu), Some(unit), "{cpu:?} does not run the unit that sleeps");
        if let Some(state) = set_awake::<R>(&mut self.queue, unit, false) {
            self.rules.sleep(state);
            self.clear_timer(unit);
            self.queue.stop_current(cpu);
        }
    }

    fn set_deadline(&mut self, _now: Instant, unit: UnitId, deadline: Instant, resched: &mut CpuSet) {
        if self.rules.set_deadline(&mut self.queue[unit], deadline)
            && self.queue.is_ready(unit)
            && let Some(urgency) = R::urgency(&self.queue[unit])
        {
            self.queue.ready(unit, urgency, resched);
        }
    }

    #[inline(always)]
    fn charge(&mut self, _now: Instant, _cpu: CpuId, unit: UnitId, ran: Duration) {
        if !R::SLICES_END {
            return;
        }
        let state = &mut self.queue[unit];
        match self.rules.charge(state, ran) {
            Charged::GoesOn => {}
            Charged::Demoted => {
                if let Some(urgency) = R::urgency(state) {
                    self.queue.demote(unit, urgency);
                }
            }
            Charged::Throttled => {
                if R::TIMERS == Timers::Throttled
                    && let Some(at) = R::timer(state)
                    && self.queue.is_awake(unit)
                {
                    self.timers.set(unit.index(), at);
                }
            }
        }
    }

    #[inline(always)]
    fn pick(&mut self, now: Instant, cpu: CpuId, resched: &mut CpuSet) -> Slice {
        if R::SLICES_END
            && let Some(unit) = self.queue.current(cpu)
        {
            let state = &mut self.queue[unit];
            let ends_turn = self.rules.ends_turn(state);
            match R::urgency(state) {
                None => self.queue.stop_current(cpu),
                Some(urgency) if ends_turn => self.queue.demote(unit, urgency),
                Some(_) => {}
            }
        }
        let picked = self.queue.pick(cpu, resched);
        if let Some(unit) = picked {
            self.got_processor(unit, cpu);
        }
        let until = match picked {
            Some(unit) if R::SLICES_END => now + R::slice(&self.queue[unit]),
            _ => Instant::NEVER,
        };
        Slice { run: picked.map_or(Run::Idle, Run::Unit), until }
    }

    fn yield_to(&mut self, now: Instant, cpu: CpuId, unit: UnitId, resched: &mut CpuSet) -> Option<Slice> {
        let before = self.queue.current(cpu)?;
        R::urgency(&self.queue[unit])?;
        if !R::may_stand_in(&self.queue[unit], &self.queue[before])
            || !self.queue.yield_to(cpu, unit, resched)
        {
            return None;
        }
        self.rules.gave_way(&mut self.queue[before]);
        self.got_processor(unit, cpu);
        let until = if R::SLICES_END { now + R::slice(&self.queue[unit]) } else { Instant::NEVER };
        Some(Slice { run: Run::Unit(unit), until })
    }

    #[inline(always)]
    fn next_timer(&self) -> Timer {
        match self.timers.peek() {
            Some((id, at)) if R::TIMERS == Timers::Awake => {
                Timer { at, charge: self.queue.cpu_of(UnitId(id as u32)) }
            }
            Some((_, at)) if R::TIMERS == Timers::Throttled => Timer { at, charge: None },
            _ => Timer::NEVER,
        }
    }

    #[inline(always)]
    fn on_timer(&mut self, now: Instant, resched: &mut CpuSet) {
        if R::TIMERS == Timers::Never {
            return;
        }
        let Some((id, at)) = self.timers.peek() else {
            return;
        };
        if at > now {
            return;
        }
        let unit = UnitId(id as u32);
        let state = &mut self.queue[unit];
        self.rules.on_timer(state, at, now);
        let picks = self.rules.picks_after_timer(state);
        match R::timer(state) {
            Some(next) => self.timers.set_first(next),
            None => self.timers.remove(id),
        }
        match R::urgency(state) {
            Some(urgency) => self.queue.ready(unit, urgency, resched),
            None => self.queue.unready(unit, resched),
        }
        if picks && let Some(cpu) = self.queue.cpu_of(unit) {
            resched.insert(cpu);
        }
    }

    fn ranking(&self, cpu: CpuId, out: &mut Vec<UnitId>) {
        self.queue.ranking(cpu, out, R::urgency);
    }

    fn account(&self, unit: UnitId) -> Account {
        R::account(&self.queue[unit])
    }

    fn ahead(&self, unit: UnitId) -> Option<Ahead> {
        self.rules.ahead(&self.queue[unit])
    }
}
