//! Between a policy and the kernel: what was observed goes in, what each unit may do comes out. Pure code.
//!
//! In the simulator a driver knows of every wake-up and every switch. On Linux the kernel handles those
//! itself, by real-time priorities, and an enforcer takes a *look* only now and then: when a budget can be
//! used up, when one comes back, at the end of a quantum. This module turns what can be read at a look
//! (processor time per unit and, where the policy needs it, which units have work) into the calls that the
//! policy's contract asks for, and the policy's ranking into one [`Order`] per unit.
//!
//! # Rules
//! - **Replay** (`replay.rs`). The policy is charged for what ran since the last look one unit after the
//!   other, back to back up to now: first the units without work now, in order of urgency, then those with
//!   work, the most urgent last. That is the sequence that preemption by priority gives when each unit ran
//!   once. A unit that woke and has not run comes last, at the look: what others ran, a tick of Credit among
//!   it, must not find it on the processor.
//! - **Overrun is owed.** A unit that ran longer than its budget, because the look came late, pays the rest
//!   out of its next budgets, at most four whole ones (after the machine stood still, a unit must not pay
//!   without limit). So the share over a long time is the budget, whatever the lateness. With
//!   [`LateOverrun::Forgiven`] it does not pay for what it ran because the look came later than it was due.
//! - **Stolen time is nobody's** (`stolen.rs`): no budget pays for it.
//! - **Idling away** (periodic server): only the most urgent unit with budget may run, and it is charged for
//!   all the time that passes.
//! - **Next look** (`orders.rs`). The earliest of the policy's timer, the end of the slice, and, for each
//!   unit that may run, the instant at which it would have used up its budget had it run from now on. A unit
//!   that has not run since the last look gets its next look later and later, up to
//!   [`Settings::lateness_max`]: otherwise a sleeping unit with little left would cost a look every few
//!   microseconds.

mod orders;
mod replay;
mod stolen;

use punctual_sched::registry::{OptionError, PolicyInfo, WorkConservation};
use punctual_sched::{
    Account, CpuId, CpuSet, Duration, Instant, ParamError, Policy, Run, UnitId, UnitParams, registry::Options,
};

use replay::Step;

pub use stolen::{Judgement, Lateness, subtract_stolen};

/// How often and how exactly enforcers look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The shortest time between two looks that serve nothing but an exhaustion.
    pub granularity: Duration,
    /// The longest that an exhaustion of a unit that slept may go unnoticed.
    pub lateness_max: Duration,
    /// Who pays for an overrun because of a late look.
    pub late_overrun: LateOverrun,
}

/// What happens to the part of an overrun that arose because a look came later than it was due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LateOverrun {
    /// The unit owes it: its share over a long time is its budget.
    #[default]
    Owed,
    /// It is forgiven: a unit is never short of budget because its enforcer was late, and can get more than
    /// its budget over a long time.
    Forgiven,
}

impl Default for Settings {
    /// 20 us (a look costs a few of them) and 500 us; overruns are owed.
    fn default() -> Self {
        Settings {
            granularity: Duration::from_us(20),
            lateness_max: Duration::from_us(500),
            late_overrun: LateOverrun::Owed,
        }
    }
}

/// What a unit may do until the next look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// It does not run, even where the processor is idle otherwise.
    Parked,
    /// It runs when it has work; 0 is the most urgent of its processor (or pool, with one run queue for all).
    Ranked(u16),
}

/// What was read of a unit at a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Processor time since the unit was last observed.
    pub ran: Duration,
    /// Has it work? `None` when that was not read: then it has if it ran.
    pub has_work: Option<bool>,
}

/// What enforcement itself did, as distributions in ns.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// How much longer than its budget a unit had run when that was noticed, one value per exhaustion.
    pub overrun: punctual_model::histogram::Histogram,
    /// How long after its time a replenishment took effect.
    pub replenishment_lateness: punctual_model::histogram::Histogram,
    /// How much later than they were due looks came.
    pub look_lateness: punctual_model::histogram::Histogram,
    /// Time that the machine below took, the kernel charged to units, and was subtracted.
    pub stolen: Duration,
    /// Looks.
    pub looks: u64,
}

/// What a driver counted of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitCounts {
    /// Everything that it was charged for, idling away included.
    pub charged: Duration,
    /// Budget idled away.
    pub idled_away: Duration,
    /// How often it was observed to get work; adding it counts as well.
    pub wakes: u64,
    /// How often it was observed to run out of work.
    pub sleeps: u64,
}

#[derive(Debug)]
struct Unit {
    id: UnitId,
    /// What it ran beyond its budget and still owes.
    owed: Duration,
    /// Looks in a row without it having run.
    looks_idle: u32,
    /// As the policy knows it.
    is_awake: bool,
    order: Order,
    /// The order before.
    order_before: Order,
    counts: UnitCounts,
}

/// The units of one pool, driven. Units are numbered in the order of [`Driver::insert`]; a removed number is
/// not used again.
pub struct Driver {
    name: &'static str,
    policy: Box<dyn Policy>,
    settings: Settings,
    cpus: usize,
    shared_queue: bool,
    budget_idles_away: bool,
    idles_away: bool,
    sleep_matters: bool,
    units: Vec<Option<Unit>>,
    /// The unit number of each policy unit.
    numbers: Vec<usize>,
    now: Instant,
    resched: CpuSet,
    ranking: Vec<UnitId>,
    replay: Vec<Step>,
    /// What each processor's last pick chose.
    picked: Vec<Run>,
    /// When each processor was last charged for idling away.
    last_look: Vec<Instant>,
    evidence: Evidence,
    /// How late the look is that goes on.
    late: Duration,
    /// How long of that the machine stood still.
    stood_still: Duration,
    decisions: u64,
}

impl Driver {
    /// A driver for a pool of `cpus` processors under the policy.
    ///
    /// # Errors
    /// What the policy says about its options.
    pub fn new(
        info: &'static PolicyInfo,
        options: &Options,
        cpus: usize,
        settings: Settings,
    ) -> Result<Driver, OptionError> {
        Ok(Driver {
            name: info.name,
            policy: info.build(cpus, options)?,
            settings,
            cpus,
            shared_queue: info.shared_queue,
            budget_idles_away: info.budget_idles_away(),
            idles_away: info.work_conservation == WorkConservation::Never,
            sleep_matters: info.sleep_matters,
            units: Vec::new(),
            numbers: Vec::new(),
            now: Instant::ZERO,
            resched: CpuSet::new(cpus),
            ranking: Vec::new(),
            replay: Vec::new(),
            picked: vec![Run::Idle; cpus],
            last_look: vec![Instant::ZERO; cpus],
            evidence: Evidence::default(),
            late: Duration::ZERO,
            stood_still: Duration::ZERO,
            decisions: 0,
        })
    }

    /// Must observations say which units have work? Otherwise it is enough to know what ran.
    pub fn needs_work(&self) -> bool {
        self.sleep_matters
    }

    /// How often and how exactly enforcers look.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// Does one enforcer decide for all processors of the pool?
    pub fn shared_queue(&self) -> bool {
        self.shared_queue
    }

    /// Does a unit lose budget while it has no work?
    pub fn budget_idles_away(&self) -> bool {
        self.budget_idles_away
    }

    /// Adds a unit and returns its number. It counts as having work until it is observed to have none.
    ///
    /// # Errors
    /// What the policy says about the parameters.
    pub fn insert(&mut self, now: Instant, params: &UnitParams) -> Result<usize, ParamError> {
        let now = self.advance_clock(now);
        let id = self.policy.insert(now, params)?;
        let number = self.units.len();
        if self.numbers.len() <= id.index() {
            self.numbers.resize(id.index() + 1, usize::MAX);
        }
        self.numbers[id.index()] = number;
        self.units.push(Some(Unit {
            id,
            owed: Duration::ZERO,
            looks_idle: 0,
            is_awake: true,
            order: Order::Parked,
            order_before: Order::Parked,
            counts: UnitCounts { wakes: 1, ..UnitCounts::default() },
        }));
        self.policy.wake(now, id, &mut self.resched);
        let reserve = self.units.len();
        self.ranking.reserve(reserve);
        self.replay.reserve(reserve);
        Ok(number)
    }

    /// Removes a unit; an unknown number does nothing.
    pub fn remove(&mut self, now: Instant, number: usize) {
        let now = self.advance_clock(now);
        if let Some(unit) = self.units.get_mut(number).and_then(Option::take) {
            self.policy.remove(now, unit.id, &mut self.resched);
        }
    }

    /// Gives a unit new parameters.
    ///
    /// # Errors
    /// What the policy says about them; the unit keeps its old ones then.
    pub fn adjust(&mut self, now: Instant, number: usize, params: &UnitParams) -> Result<(), ParamError> {
        let now = self.advance_clock(now);
        match self.units.get(number).and_then(Option::as_ref) {
            Some(unit) => self.policy.adjust(now, unit.id, params, &mut self.resched),
            None => Ok(()),
        }
    }

    /// The processor that decides about the unit: its home, or 0 with one run queue for all.
    pub fn home(&self, number: usize) -> CpuId {
        let home = |unit: &Unit| self.policy.account(unit.id).home;
        match self.shared_queue {
            true => CpuId(0),
            false => self.units.get(number).and_then(Option::as_ref).and_then(home).unwrap_or(CpuId(0)),
        }
    }

    /// The unit's order since the last look; parked when it is gone.
    pub fn order(&self, number: usize) -> Order {
        self.units.get(number).and_then(Option::as_ref).map_or(Order::Parked, |unit| unit.order)
    }

    /// The unit's account; `None` when it is gone.
    pub fn account(&self, number: usize) -> Option<Account> {
        let unit = self.units.get(number).and_then(Option::as_ref)?;
        Some(self.policy.account(unit.id))
    }

    /// What was counted of the unit so far; all zero when it is gone.
    pub fn counts(&self, number: usize) -> UnitCounts {
        self.units.get(number).and_then(Option::as_ref).map(|unit| unit.counts).unwrap_or_default()
    }

    /// Says how late the next call of [`Driver::observe`] is, and what follows from that: see
    /// [`subtract_stolen`].
    pub fn set_lateness(&mut self, late: Duration, judgement: &Judgement) {
        (self.late, self.stood_still) = (late, judgement.stood_still);
        self.evidence.look_lateness.record(late);
        self.evidence.stolen += judgement.stolen;
    }

    /// What enforcement itself did.
    pub fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// The policy's name.
    pub fn policy_name(&self) -> &'static str {
        self.name
    }

    /// Decisions taken.
    pub fn decisions(&self) -> u64 {
        self.decisions
    }

    /// One look at the units that `cpu` decides about, at `now`. `observed` holds what was read of each, by
    /// number. Orders change; returns when the next look is due at the latest.
    pub fn observe(&mut self, now: Instant, cpu: CpuId, observed: &[(usize, Observation)]) -> Instant {
        let charged_up_to = self.now;
        let now = self.advance_clock(now);
        self.evidence.looks += 1;
        self.replay(charged_up_to, now, cpu, observed);
        self.run_timers(now);
        self.collect_owed(now, cpu);
        let slice_end = self.decide(now, cpu);
        (self.late, self.stood_still) = (Duration::ZERO, Duration::ZERO);
        self.give_orders(now, cpu, slice_end)
    }

    /// Time as the policy knows it never goes back.
    fn advance_clock(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        self.now
    }
}
