//! Between a policy and the kernel: what was observed goes in, what each unit may do comes out. Pure code.
//!
//! In the simulator a driver sees every wake-up and every switch. On Linux the kernel handles those itself,
//! by real-time priorities, and the enforcer looks only now and then: when a budget can be used up, when one
//! comes back, at the end of a quantum. This module turns what can be read then (processor time per unit and,
//! where the policy needs it, who has work) into the calls that the policy's contract asks for, and the
//! policy's ranking into one [`Order`] per unit.
//!
//! # Rules
//! - **Replay.** What ran since the last look is told to the policy one unit after the other, back to back up
//!   to now: first those without work now, in order of urgency, then those with work, the most urgent last.
//!   That is the sequence that preemption by priority gives when each unit ran once.
//! - **Overrun is owed.** A unit that ran longer than its budget, because the look came late, pays the rest
//!   out of its next budgets, at most four whole ones (a machine that stood still must not punish a unit for
//!   ever). So the share over a long time is the budget, whatever the lateness.
//! - **Idling away** (periodic server): only the most urgent unit with budget may run, and it is charged for
//!   all the time that passes.
//! - **Next look.** The earliest of the policy's timer, the end of the slice, and, for each unit that may
//!   run, the instant at which it would have used up its budget had it run from now on. A unit that was not
//!   seen to run since the last look is looked at less and less often, down to every
//!   [`Settings::lateness_max`]: otherwise a sleeping unit with little left would cost a look every few
//!   microseconds.

use punctual_sched::registry::{OptionError, PolicyInfo, WorkConservation};
use punctual_sched::{
    Account, CpuId, CpuSet, Duration, Instant, ParamError, Policy, Run, UnitId, UnitParams, registry::Options,
};

/// Policies whose decisions are the same whether a unit without work sleeps or is eligible with nothing to
/// do: they need not be told of every sleep, which saves reading the state of each thread at each look. RTDS
/// and SEDF: a unit asleep over a deadline gets the same deadline and budget at its wake-up as at the
/// periods' ends.
const UNMOVED_BY_SLEEP: [&str; 5] = ["deferrable", "periodic", "rtds", "sedf", "fixed-priority"];

/// So many budgets can a unit owe at most.
const OWED_BUDGETS_MAX: u64 = 4;

/// How a driver looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The shortest time between two looks that serve nothing but an exhaustion.
    pub granularity: Duration,
    /// The longest that an exhaustion of a unit that slept may go unnoticed.
    pub lateness_max: Duration,
}

impl Default for Settings {
    /// 20 us (a look costs a few of them) and 500 us.
    fn default() -> Self {
        Settings { granularity: Duration::from_us(20), lateness_max: Duration::from_us(500) }
    }
}

/// What a unit may do until the next look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// It does not run, whoever else runs.
    Parked,
    /// It runs when it has work; 0 is the most urgent of its processor (or pool, with one run queue for all).
    Ranked(u16),
}

/// What was read of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Processor time since it was last seen.
    pub ran: Duration,
    /// Has it work? `None` when nobody looked: then it has if it ran.
    pub work: Option<bool>,
}

/// What enforcement itself did, as distributions in ns.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// How much longer than its budget a unit had run when that was noticed, one value per exhaustion.
    pub overrun: punctual_model::recorder::Recorder,
    /// How long after its time a replenishment took effect.
    pub replenishment_lateness: punctual_model::recorder::Recorder,
    /// Looks.
    pub looks: u64,
}

/// One entry of the replay.
#[derive(Clone, Copy, Debug)]
struct Ran {
    turn: (u8, i32),
    number: usize,
    pays: Duration,
    works: bool,
}

#[derive(Debug)]
struct Unit {
    id: UnitId,
    /// What it ran beyond its budget and still owes.
    owed: Duration,
    /// Looks in a row without it having run.
    quiet: u32,
    /// As the policy was told.
    awake: bool,
    order: Order,
    /// The order before.
    was: Order,
    /// Everything it was charged for, idling away included.
    charged: Duration,
    idled_away: Duration,
    wakes: u64,
    sleeps: u64,
}

/// The units of one pool, driven. Units are numbered in the order of [`Driver::insert`]; a removed number is
/// not used again.
pub struct Driver {
    name: &'static str,
    policy: Box<dyn Policy>,
    settings: Settings,
    cpus: usize,
    shared_queue: bool,
    idles_away: bool,
    sleep_matters: bool,
    units: Vec<Option<Unit>>,
    /// The unit number of each policy unit.
    numbers: Vec<usize>,
    now: Instant,
    resched: CpuSet,
    ranking: Vec<UnitId>,
    replay: Vec<Ran>,
    /// What each processor's last pick chose.
    picked: Vec<Run>,
    /// When each processor was last charged for idling away.
    looked: Vec<Instant>,
    evidence: Evidence,
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
            policy: (info.build)(cpus, options)?,
            settings,
            cpus,
            shared_queue: info.shared_queue,
            idles_away: info.work_conservation == WorkConservation::Never,
            sleep_matters: !UNMOVED_BY_SLEEP.contains(&info.name),
            units: Vec::new(),
            numbers: Vec::new(),
            now: Instant::ZERO,
            resched: CpuSet::new(cpus),
            ranking: Vec::new(),
            replay: Vec::new(),
            picked: vec![Run::Idle; cpus],
            looked: vec![Instant::ZERO; cpus],
            evidence: Evidence::default(),
            decisions: 0,
        })
    }

    /// Must somebody say which units have work? Otherwise it is enough to know what ran.
    pub fn needs_work(&self) -> bool {
        self.sleep_matters
    }

    /// How it looks.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// Does one enforcer decide for all processors of the pool?
    pub fn shared_queue(&self) -> bool {
        self.shared_queue
    }

    /// Adds a unit and returns its number. It counts as having work until it is seen not to.
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
            quiet: 0,
            awake: true,
            order: Order::Parked,
            was: Order::Parked,
            charged: Duration::ZERO,
            idled_away: Duration::ZERO,
            wakes: 1,
            sleeps: 0,
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

    /// What the unit was charged and idled away so far, how often it was seen to get work and to run out of
    /// it.
    pub fn counts(&self, number: usize) -> (Duration, Duration, u64, u64) {
        let unit = self.units.get(number).and_then(Option::as_ref);
        unit.map_or((Duration::ZERO, Duration::ZERO, 0, 0), |u| (u.charged, u.idled_away, u.wakes, u.sleeps))
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

    /// Looks at the units that `cpu` decides about, at `now`. `seen` holds what was read of each, by number.
    /// GuardianOptions change; returns when to look again at the latest.
    pub fn observe(&mut self, now: Instant, cpu: CpuId, seen: &[(usize, Observation)]) -> Instant {
        let told = self.now;
        let now = self.advance_clock(now);
        self.evidence.looks += 1;
        self.tell(told, now, cpu, seen);
        self.timers(now);
        self.settle(now, cpu);
        let until = self.decide(now, cpu);
        self.rank(now, cpu, until)
    }

    /// Time as the policy sees it never goes back.
    fn advance_clock(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        self.now
    }

    /// Tells the policy what ran since `told`, the last time it was told anything.
    fn tell(&mut self, told: Instant, now: Instant, cpu: CpuId, seen: &[(usize, Observation)]) {
        let before = core::mem::replace(&mut self.looked[cpu.index()], now);
        let top = if self.idles_away { self.most_urgent(cpu) } else { None };
        self.replay.clear();
        for &(number, Observation { ran, work }) in seen {
            let Some(unit) = self.units.get_mut(number).and_then(Option::as_mut) else { continue };
            unit.quiet = if ran.is_zero() { unit.quiet.saturating_add(1) } else { 0 };
            let mut pays = ran;
            if top == Some(number) {
                // What it did not run idled away.
                pays = ran.max(now.since(before));
                unit.idled_away += pays.saturating_sub(ran);
            }
            // A parked unit cannot show whether it has work: it counts as having some until it is seen free.
            let free = unit.order != Order::Parked;
            let works = !free || work.unwrap_or(unit.awake || !ran.is_zero());
            if !pays.is_zero() || works != unit.awake {
                let rank = match unit.order {
                    Order::Ranked(rank) => i32::from(rank),
                    Order::Parked => i32::from(u16::MAX) + 1,
                };
                let turn = if works { (1, -rank) } else { (0, rank) };
                self.replay.push(Ran { turn, number, pays, works });
            }
        }
        self.replay.sort_unstable_by_key(|ran| (ran.turn, ran.number));
        let total = self.replay.iter().fold(0, |sum: u64, ran| sum.saturating_add(ran.pays.as_ns()));
        let mut at = Instant::from_ns(now.as_ns().saturating_sub(total)).max(told);
        for index in 0..self.replay.len() {
            let Ran { number, pays, works, .. } = self.replay[index];
            if works || !pays.is_zero() {
                self.set_awake(at, number, true);
            }
            self.decide(at, cpu);
            at = (at + pays).min(now);
            self.charge(at, cpu, number, pays);
            self.set_awake(at, number, works);
        }
    }

    fn charge(&mut self, at: Instant, cpu: CpuId, number: usize, pays: Duration) {
        let Some(unit) = self.units[number].as_mut() else { return };
        let account = self.policy.account(unit.id);
        unit.charged += pays;
        let mut due = pays + core::mem::take(&mut unit.owed);
        if let (Some(left), false) = (account.left, account.may_overrun)
            && due >= left
        {
            let over = due.saturating_sub(left);
            unit.owed = over.min(account.max.unwrap_or(left) * OWED_BUDGETS_MAX);
            if !left.is_zero() {
                self.evidence.overrun.record(over);
            }
            due = left;
        }
        if !due.is_zero() {
            let cpu = if self.shared_queue { CpuId(0) } else { cpu };
            self.policy.charge(at, cpu, unit.id, due);
        }
    }

    /// Whoever owes pays as soon as there is budget again.
    fn settle(&mut self, now: Instant, cpu: CpuId) {
        for number in 0..self.units.len() {
            let Some(unit) = self.units[number].as_ref() else { continue };
            let left = self.policy.account(unit.id).left;
            if !unit.owed.is_zero() && left.is_some_and(|left| !left.is_zero()) {
                self.charge(now, cpu, number, Duration::ZERO);
            }
        }
    }

    fn set_awake(&mut self, at: Instant, number: usize, awake: bool) {
        let Some(unit) = self.units[number].as_mut() else { return };
        if unit.awake == awake {
            return;
        }
        unit.awake = awake;
        if awake {
            unit.wakes += 1;
            self.policy.wake(at, unit.id, &mut self.resched);
        } else {
            unit.sleeps += 1;
            self.policy.sleep(at, unit.id, &mut self.resched);
        }
    }

    fn timers(&mut self, now: Instant) {
        // Each entry is handled once; a policy's timer always moves on, the bound is for a broken one.
        for _ in 0..=4 * self.units.len() + 16 {
            let timer = self.policy.next_timer();
            if timer.at > now {
                return;
            }
            self.evidence.replenishment_lateness.record(now.since(timer.at));
            self.policy.on_timer(now, &mut self.resched);
        }
    }

    /// Lets every processor that was asked pick, and `cpu`. Returns the end of `cpu`'s slice.
    fn decide(&mut self, now: Instant, cpu: CpuId) -> Instant {
        let mut until = Instant::NEVER;
        self.resched.insert(cpu);
        // A pick may ask for another; each takes a unit off a queue, so this ends. The bound is for a broken
        // policy.
        for _ in 0..=8 * (self.units.len() + self.cpus) {
            let Some(next) = self.resched.pop() else { break };
            let slice = self.policy.pick(now, next, &mut self.resched);
            self.decisions += 1;
            if slice.until <= now {
                // The unit picked had nothing left: it was charged while another was current.
                self.resched.insert(next);
            } else if next == cpu {
                until = slice.until;
                self.picked[cpu.index()] = slice.run;
                // The end of a budget is looked for in `rank`, unit by unit; the end of a quantum stays.
                let left = slice.run.charged().and_then(|unit| self.policy.account(unit).left);
                if left.is_some_and(|left| now + left == until) {
                    until = Instant::NEVER;
                }
            }
        }
        until
    }

    fn most_urgent(&mut self, cpu: CpuId) -> Option<usize> {
        self.policy.ranking(cpu, &mut self.ranking);
        self.ranking.first().map(|id| self.numbers[id.index()])
    }

    /// Among units with work the policy's choice comes first: a policy that takes turns (Credit) ranks equals
    /// by arrival. More urgent units without work stay above it, for they would preempt it.
    fn lift_picked(&mut self, cpu: CpuId) {
        let Run::Unit(picked) = self.picked[cpu.index()] else { return };
        let awake = |id: &UnitId| {
            let unit = self.numbers.get(id.index()).and_then(|&number| self.units.get(number)?.as_ref());
            unit.is_some_and(|unit| unit.awake)
        };
        let first = self.ranking.iter().position(awake);
        let at = self.ranking.iter().position(|id| *id == picked);
        if let (Some(first), Some(at)) = (first, at)
            && first < at
        {
            self.ranking[first..=at].rotate_right(1);
        }
    }

    /// Turns the ranking into orders and finds the next look.
    fn rank(&mut self, now: Instant, cpu: CpuId, until: Instant) -> Instant {
        // The end of a slice waits for the granularity as that of a budget does: looking again before the
        // unit could run at all would leave the slice as it is, for ever.
        let until = until.max(now + self.settings.granularity);
        let mut next = until.min(self.policy.next_timer().at);
        self.policy.ranking(cpu, &mut self.ranking);
        for number in 0..self.units.len() {
            let here = self.shared_queue || self.home(number) == cpu;
            if let (true, Some(unit)) = (here, self.units[number].as_mut()) {
                unit.was = core::mem::replace(&mut unit.order, Order::Parked);
            }
        }
        self.lift_picked(cpu);
        let mut rank = 0u16;
        for index in 0..self.ranking.len() {
            let number = self.numbers[self.ranking[index].index()];
            let Some(unit) = self.units[number].as_mut() else { continue };
            let account = self.policy.account(unit.id);
            if account.left.is_some_and(|left| left.is_zero()) && !account.may_overrun {
                continue;
            }
            if unit.was == Order::Parked {
                // It could not run, which says nothing about whether it will.
                unit.quiet = 0;
                if self.sleep_matters {
                    next = next.min(now + self.settings.lateness_max);
                }
            }
            unit.order = Order::Ranked(rank);
            rank = rank.saturating_add(1);
            // Where a unit may go on without budget (extratime), its urgency changes when the budget ends.
            if let Some(left) = account.left {
                let gap = match unit.quiet {
                    0 => left,
                    quiet => {
                        let step = self.settings.granularity * (1u64 << quiet.min(10));
                        // At most one budget late, so that what is owed can be paid.
                        let budget = account.max.unwrap_or(left);
                        left.max(step.min(self.settings.lateness_max).min(budget))
                    }
                };
                next = next.min(now + gap.max(self.settings.granularity));
            }
            if self.idles_away {
                break;
            }
        }
        next.max(now + Duration::from_ns(1))
    }
}
