//! A pool's policy and its units, and what is known of them between looks.

use punctual_sched::registry::{OptionError, Options, PolicyInfo, WorkConservation};
use punctual_sched::{
    Account, Ahead, CpuId, CpuSet, Duration, Instant, ParamError, Policy, Run, UnitId, UnitParams,
};

use super::look::{Evidence, Order, UnitCounts};
use super::settings::Settings;
use super::stolen::Judgement;

/// Why a pool keeps its policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplaceError {
    /// One has a queue for the whole pool, the other one for each processor.
    #[error("one policy has a queue for the whole pool, and the other one for each processor")]
    Queues,
    #[error(transparent)]
    Options(#[from] OptionError),
    #[error(transparent)]
    Params(#[from] ParamError),
}

#[derive(Debug)]
pub(super) struct Unit {
    pub(super) id: UnitId,
    pub(super) params: UnitParams,
    /// Exhaustions and replenishments under earlier policies.
    pub(super) counted: [u64; 2],
    /// The VM that it is one of several vCPUs of.
    pub(super) vm: Option<u32>,
    /// Does it draw from one budget with the others of its VM?
    pub(super) shares_budget: bool,
    /// What it ran beyond its budget and still owes.
    pub(super) owed: Duration,
    /// Its last grace: when it began, and when it ends.
    pub(super) grace: Option<(Instant, Instant)>,
    /// Looks in a row without it having run.
    pub(super) looks_idle: u32,
    /// As the policy knows it.
    pub(super) is_awake: bool,
    pub(super) order: Order,
    /// The order before.
    pub(super) order_before: Order,
    pub(super) counts: UnitCounts,
}

/// A unit's part of the time since the last look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Its place in the sequence: units without work by urgency, those with work that ran, the most urgent
    /// last, then those that have not run.
    pub(super) turn: (u8, i32),
    pub(super) number: usize,
    pub(super) charge: Duration,
    pub(super) has_work: bool,
}

/// The units of one pool, driven. Units are numbered in the order of [`Driver::insert`]; a removed number is
/// used again only where [`Settings::reuses_numbers`] says that.
pub struct Driver {
    pub(super) name: &'static str,
    pub(super) policy: Box<dyn Policy>,
    pub(super) settings: Settings,
    pub(super) cpus: usize,
    pub(super) shared_queue: bool,
    pub(super) budget_idles_away: bool,
    pub(super) idles_away: bool,
    pub(super) sleep_matters: bool,
    pub(super) units: Vec<Option<Unit>>,
    /// The unit number of each policy unit.
    pub(super) numbers: Vec<usize>,
    pub(super) now: Instant,
    pub(super) resched: CpuSet,
    pub(super) ranking: Vec<UnitId>,
    pub(super) replay: Vec<Step>,
    /// What each processor's last pick chose.
    pub(super) picked: Vec<Run>,
    /// When each processor was last charged for idling away.
    pub(super) last_look: Vec<Instant>,
    pub(super) evidence: Evidence,
    /// How late the look is that goes on.
    pub(super) late: Duration,
    /// How long of that the machine stood still.
    pub(super) stood_still: Duration,
    pub(super) decisions: u64,
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
        let mut driver = Driver {
            name: info.name,
            policy: info.build_in_turns(cpus, options)?,
            settings,
            cpus,
            shared_queue: false,
            budget_idles_away: false,
            idles_away: false,
            sleep_matters: false,
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
        };
        driver.take_facts(info, options);
        Ok(driver)
    }

    /// Must observations say which units have work? Otherwise it is enough to know what ran.
    pub fn needs_work(&self) -> bool {
        self.sleep_matters
    }

    /// How often and how exactly enforcers look.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// The kernel reports nothing any more: looks notice the ends of budgets.
    pub fn look_for_all(&mut self) {
        self.settings.kernel_tells = false;
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
        let free = || self.units.iter().position(Option::is_none);
        let number = self.settings.reuses_numbers.then(free).flatten().unwrap_or(self.units.len());
        if self.numbers.len() <= id.index() {
            self.numbers.resize(id.index() + 1, usize::MAX);
        }
        self.numbers[id.index()] = number;
        let unit = Some(Unit {
            id,
            params: params.clone(),
            counted: [0; 2],
            vm: params.vm,
            shares_budget: params.vm.is_some() && params.shares_budget,
            owed: Duration::ZERO,
            grace: None,
            looks_idle: 0,
            is_awake: true,
            order: Order::Parked,
            order_before: Order::Parked,
            counts: UnitCounts { wakes: 1, ..UnitCounts::default() },
        });
        match self.units.get_mut(number) {
            Some(slot) => *slot = unit,
            None => self.units.push(unit),
        }
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
        let Some(unit) = self.units.get_mut(number).and_then(Option::as_mut) else { return Ok(()) };
        self.policy.adjust(now, unit.id, params, &mut self.resched)?;
        unit.params.clone_from(params);
        Ok(())
    }

    /// The units go on under another policy, as new ones with the work that they have; what they owe is
    /// forgotten. Nothing changes if the policy refuses its options or the parameters of a unit.
    ///
    /// # Errors
    /// What it refuses, or that it keeps its units in queues of another kind.
    pub fn replace(
        &mut self,
        now: Instant,
        info: &'static PolicyInfo,
        options: &Options,
    ) -> Result<(), ReplaceError> {
        if self.cpus > 1 && self.shared_queue != info.shared_queue {
            return Err(ReplaceError::Queues);
        }
        let now = self.advance_clock(now);
        let mut policy = info.build_in_turns(self.cpus, options)?;
        let mut ids = Vec::with_capacity(self.units.len());
        for unit in self.units.iter().flatten() {
            ids.push(policy.insert(now, &unit.params)?);
        }
        self.resched = CpuSet::new(self.cpus);
        let units =
            self.units.iter_mut().enumerate().filter_map(|(number, unit)| Some((number, unit.as_mut()?)));
        for ((number, unit), id) in units.zip(ids) {
            let Account { exhaustions, replenishments, .. } = self.policy.account(unit.id);
            unit.counted = [unit.counted[0] + exhaustions, unit.counted[1] + replenishments];
            (unit.id, unit.owed, unit.looks_idle) = (id, Duration::ZERO, 0);
            if self.numbers.len() <= id.index() {
                self.numbers.resize(id.index() + 1, usize::MAX);
            }
            self.numbers[id.index()] = number;
            if unit.is_awake {
                policy.wake(now, id, &mut self.resched);
            }
        }
        self.picked.fill(Run::Idle);
        self.policy = policy;
        self.take_facts(info, options);
        Ok(())
    }

    /// What the driver needs to know of its policy.
    fn take_facts(&mut self, info: &'static PolicyInfo, options: &Options) {
        self.name = info.name;
        self.shared_queue = info.shared_queue;
        self.budget_idles_away = info.budget_idles_away();
        self.idles_away = info.work_conservation == WorkConservation::Never;
        self.sleep_matters = (info.sleep_matters)(options);
    }

    /// The processor that decides about the unit: its home, or 0 with one run queue for all.
    pub fn home(&self, number: usize) -> CpuId {
        let home = |unit: &Unit| self.policy.account(unit.id).home;
        if self.shared_queue {
            CpuId(0)
        } else {
            self.units.get(number).and_then(Option::as_ref).and_then(home).unwrap_or(CpuId(0))
        }
    }

    /// The unit's order since the last look; parked when it is gone.
    pub fn order(&self, number: usize) -> Order {
        self.units.get(number).and_then(Option::as_ref).map_or(Order::Parked, |unit| unit.order)
    }

    /// Are two units vCPUs of one VM that take turns where they share a processor?
    pub fn take_turns(&self, one: usize, other: usize) -> bool {
        let vm = |number: usize| self.units.get(number)?.as_ref()?.vm;
        (!self.shared_queue || self.cpus == 1) && vm(one).is_some() && vm(one) == vm(other)
    }

    /// The unit's account; `None` when it is gone. It counts from the beginning, under all policies.
    pub fn account(&self, number: usize) -> Option<Account> {
        let unit = self.units.get(number).and_then(Option::as_ref)?;
        let mut account = self.policy.account(unit.id);
        account.exhaustions += unit.counted[0];
        account.replenishments += unit.counted[1];
        Some(account)
    }

    /// The unit's replenishments, if the policy can say them ahead of time.
    pub fn ahead(&self, number: usize) -> Option<Ahead> {
        self.policy.ahead(self.units.get(number)?.as_ref()?.id)
    }

    /// What the unit ran beyond its budget and still owes.
    pub fn owed(&self, number: usize) -> Duration {
        self.units.get(number).and_then(Option::as_ref).map_or(Duration::ZERO, |unit| unit.owed)
    }

    /// Does only the most urgent unit with budget run, and lose it while it has no work?
    pub fn idles_away(&self) -> bool {
        self.idles_away
    }

    /// What was counted of the unit so far; all zero when it is gone.
    pub fn counts(&self, number: usize) -> UnitCounts {
        self.units.get(number).and_then(Option::as_ref).map(|unit| unit.counts).unwrap_or_default()
    }

    /// Says how late the next call of [`Driver::observe`] is, and what follows from that: see
    /// [`super::subtract_stolen`].
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

    /// Time as the policy knows it never goes back.
    pub(super) fn advance_clock(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        self.now
    }
}
