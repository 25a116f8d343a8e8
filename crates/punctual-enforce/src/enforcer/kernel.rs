//! A scheduler in the kernel that runs the units of a pool: what it is told, and what it reports.
//!
//! A limit is an absolute amount of charged time: what a unit had been charged at the look, and what the
//! policy says is left of its budget. So it does not matter when the limit arrives, and the unit runs on
//! meanwhile.
//!
//! Where the policy says replenishments ahead of time, the kernel carries them out, and the looks, which are
//! rare then, replay them to the policy: each event by what the unit was charged up to it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use punctual_sched::{Ahead, Duration, Instant, Urgency};
use punctual_scx::{
    Asleep, Decision, Event, Loaded, Mechanism, NEVER_NS, State, Table, UNITS_MAX, UnitState,
};

use crate::clock::now;
use crate::driver::{Driver, Observation, Order};
use crate::unit::LiveUnit;

/// A limit that differs by less from the one that the kernel has is left: the clock of a unit that runs is
/// read at another instant than the one at which the kernel charges it.
const DIFFERENCE_MIN_NS: u64 = 5_000;

/// No limit: years.
const UNLIMITED_NS: u64 = u64::MAX / 4;

/// A scheduler in the kernel that has the units of a pool of one processor.
pub struct Kernel {
    pub(super) scheduler: Loaded,
    pub(super) decided: Decided,
    /// Room for what a look reads and says.
    pub(super) events: Vec<Event>,
    pub(super) said: Vec<Said>,
    /// By unit, the id of its group.
    groups: Vec<Option<u64>>,
    /// When it was last asked whether units have ended.
    pub(super) asked: Instant,
}

/// What the kernel was told, and how much of what it did the policy knows.
#[derive(Debug)]
pub struct Decided {
    table: Table,
    /// By unit, up to what the policy was charged.
    seen: [UnitState; UNITS_MAX],
    /// By unit, up to what [`Decided::ran`] has told, without what idled away.
    told_ns: [u64; UNITS_MAX],
    /// By unit, its limit and next replenishment in the kernel.
    known: [UnitState; UNITS_MAX],
    /// Events that were lost.
    lost: u32,
}

/// What the policy says about a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// Its number.
    pub unit: usize,
    /// What it may do.
    pub order: Order,
    /// How long it may run until the policy must know, less what it owes; `None` without end.
    pub left_ns: Option<i64>,
    /// Its replenishments, where they are known.
    pub ahead: Option<Ahead>,
}

impl Said {
    /// What the driver's policy says about a unit.
    pub fn of(driver: &Driver, unit: usize) -> Said {
        let account = driver.account(unit).unwrap_or_default();
        let owed_ns = driver.owed(unit).as_ns() as i64;
        // A unit that may overrun is limited only while it has budget.
        let left = account.left.filter(|left| !(account.may_overrun && left.is_zero()));
        let left_ns = left.map(|left| left.as_ns() as i64 - owed_ns);
        Said { unit, order: driver.order(unit), left_ns, ahead: driver.ahead(unit) }
    }
}

impl Default for Decided {
    fn default() -> Decided {
        let none = [UnitState { next_ns: NEVER_NS, ..UnitState::default() }; UNITS_MAX];
        Decided { table: Table::default(), seen: none, told_ns: [0; UNITS_MAX], known: none, lost: 0 }
    }
}

impl Decided {
    /// What a unit ran and idled away since this was asked last, and whether it has work.
    pub fn observe(&mut self, unit: usize, now: &UnitState) -> Observation {
        let replays = self.replays();
        let seen = &mut self.seen[unit];
        let charged_ns = now.used_ns.saturating_sub(seen.used_ns);
        let idled_ns = now.idled_ns.saturating_sub(seen.idled_ns).min(charged_ns);
        seen.used_ns = now.used_ns.max(seen.used_ns);
        seen.idled_ns = now.idled_ns.max(seen.idled_ns);
        let [ran, idled] = [charged_ns - idled_ns, idled_ns].map(Duration::from_ns);
        Observation { ran, idled: Some(idled).filter(|_| replays), has_work: Some(now.runnable > 0) }
    }

    /// What a unit ran since this was asked last.
    pub fn ran(&mut self, unit: usize, now: &UnitState) -> Duration {
        let ran_ns = now.used_ns.saturating_sub(now.idled_ns);
        let told = &mut self.told_ns[unit];
        let before_ns = std::mem::replace(told, ran_ns.max(*told));
        Duration::from_ns(ran_ns.saturating_sub(before_ns))
    }

    /// Takes what happened to a unit in the kernel.
    pub fn learn(&mut self, event: &Event) {
        if let Some(known) = self.known.get_mut(event.unit as usize) {
            *known = event.state;
        }
    }

    /// Is the policy to be asked about every event, because the kernel gives budgets back? Otherwise it is
    /// told what units ran since the last look, together, as its charges have an order.
    pub fn replays(&self) -> bool {
        !self.table.wakes
    }

    /// Takes what the kernel has if events were lost.
    pub fn learn_all(&mut self, state: &State) {
        if std::mem::replace(&mut self.lost, state.lost) != state.lost {
            self.known = state.units;
        }
    }

    /// The latest instant up to `now` for which the policy may be asked: replenishments that are due later
    /// are the kernel's, and it has not said yet that they took place.
    pub fn settled(&self, state: &State, now: Instant) -> Instant {
        let units = self.table.order.iter().filter_map(|&unit| {
            let Decision { asleep, .. } = self.table.units.get(unit as usize)?;
            let waits = matches!(asleep, Asleep::Waits | Asleep::Restarts);
            let is_awake = state.units[unit as usize].runnable > 0;
            (is_awake || !waits).then_some(self.known[unit as usize].next_ns)
        });
        let first_ns = units.min().unwrap_or(NEVER_NS);
        now.min(Instant::from_ns(first_ns.saturating_sub(1)))
    }

    /// Takes what the policy says of all units. Returns the table that the kernel is to have if that differs
    /// from what it has.
    pub fn table(&mut self, state: &State, said: &[Said], idles_away: bool) -> Option<&Table> {
        let is_ahead = !said.is_empty() && said.iter().all(|said| said.ahead.is_some());
        let mut table = Table { wakes: !is_ahead, idles_away: is_ahead && idles_away, ..Table::default() };
        let mut is_new = false;
        let mut ranked: Vec<(u64, u32)> = Vec::with_capacity(UNITS_MAX);
        for said in said.iter().filter(|said| said.unit < UNITS_MAX) {
            let (unit, known) = (said.unit, self.known[said.unit]);
            let ahead = said.ahead.filter(|_| is_ahead);
            let mut decision = Decision { replenished: known.replenished, ..Decision::default() };
            table.by_deadline |= ahead.is_some_and(|ahead| ahead.urgency == Urgency::Deadline);
            decision.key = match (ahead.map(|ahead| ahead.urgency), said.order) {
                (Some(Urgency::Fixed(key)), _) => key,
                (_, Order::Ranked(rank)) => u64::from(rank),
                (_, Order::Parked) => u64::MAX,
            };
            if ahead.is_some() || said.order != Order::Parked {
                ranked.push((decision.key, unit as u32));
            }
            if let Some(ahead) = ahead {
                decision.next_ns = ahead.at.as_ns();
                (decision.period_ns, decision.budget_ns) = (ahead.period.as_ns(), ahead.budget.as_ns());
                decision.asleep = asleep(ahead.asleep);
            }
            let may_run = ahead.is_some() || said.order != Order::Parked;
            let left_ns = if may_run { said.left_ns } else { Some(0) };
            let limit_ns = left_ns
                .map_or(UNLIMITED_NS, |left_ns| self.seen[unit].used_ns.saturating_add_signed(left_ns));
            // One that the kernel has parked goes on with the least that is left.
            let is_used_up =
                state.units[unit].used_ns >= known.limit_ns && left_ns.is_none_or(|left| left > 0);
            let differs = limit_ns.abs_diff(known.limit_ns) > DIFFERENCE_MIN_NS || is_used_up;
            decision.limit_ns = if differs { limit_ns } else { known.limit_ns };
            is_new |= decision.limit_ns != known.limit_ns || decision.next_ns != known.next_ns;
            is_new |= !has_same_rules(&decision, &self.table.units[unit], table.by_deadline);
            table.units[unit] = decision;
        }
        ranked.sort_unstable();
        table.order.extend(ranked.iter().map(|(_, unit)| *unit));
        if !(is_new || self.differs(&table)) {
            return None;
        }
        for &unit in &table.order {
            let Decision { limit_ns, next_ns, .. } = table.units[unit as usize];
            let known = &mut self.known[unit as usize];
            (known.limit_ns, known.next_ns) = (limit_ns, next_ns);
        }
        self.table = table;
        Some(&self.table)
    }

    /// Does a table have other units, or other rules for all?
    fn differs(&self, table: &Table) -> bool {
        let rules = |table: &Table| (table.by_deadline, table.idles_away, table.wakes);
        let is_in = |unit: &u32| self.table.order.contains(unit);
        rules(table) != rules(&self.table)
            || table.order.len() != self.table.order.len()
            || !table.order.iter().all(is_in)
    }

    /// A unit that has the number from now on.
    fn begin(&mut self, unit: usize, state: &UnitState) {
        if let (Some(seen), Some(known)) = (self.seen.get_mut(unit), self.known.get_mut(unit)) {
            (*seen, *known) = (*state, *state);
            self.told_ns[unit] = state.used_ns.saturating_sub(state.idled_ns);
            self.table.units[unit] = Decision::default();
        }
    }
}

/// Does the kernel do the same with the unit when its budget comes back, and rank it in the same way?
fn has_same_rules(one: &Decision, other: &Decision, by_deadline: bool) -> bool {
    let rules = |of: &Decision| (of.period_ns, of.budget_ns, of.asleep);
    rules(one) == rules(other) && (by_deadline || one.key == other.key)
}

fn asleep(asleep: punctual_sched::Asleep) -> Asleep {
    match asleep {
        punctual_sched::Asleep::Replenished => Asleep::Replenished,
        punctual_sched::Asleep::Discarded => Asleep::Discarded,
        punctual_sched::Asleep::Waits => Asleep::Waits,
        punctual_sched::Asleep::Restarts => Asleep::Restarts,
    }
}

impl Kernel {
    /// Loads the scheduler for a pool with these processors. `tells_sleep`: the policy asks for work.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn load(processors: &[usize], tells_sleep: bool) -> Result<Kernel, punctual_scx::Error> {
        let scheduler = Loaded::load(processors.first().copied().unwrap_or(0), tells_sleep)?;
        let (events, said) = (Vec::new(), Vec::with_capacity(UNITS_MAX));
        let decided = Decided::default();
        Ok(Kernel { scheduler, decided, events, said, groups: Vec::new(), asked: now() })
    }

    /// Readable when the scheduler has something to tell.
    pub(super) fn events(&self) -> io::Result<OwnedFd> {
        self.scheduler.as_fd().try_clone_to_owned()
    }

    /// Makes the threads of a unit its number's.
    pub(super) fn add(&mut self, number: usize, unit: &LiveUnit) -> io::Result<()> {
        if number >= UNITS_MAX {
            return Err(io::Error::other(format!("it has {UNITS_MAX} units")));
        }
        let group = std::fs::metadata(unit.group().directory())?.ino();
        let state = self.scheduler.read(now().as_ns())?;
        self.decided.begin(number, &state.units[number]);
        self.groups.resize(self.groups.len().max(number + 1), None);
        self.groups[number] = Some(group);
        self.scheduler.add(number as u32, group)
    }

    pub(super) fn remove(&mut self, number: usize) {
        if let Some(group) = self.groups.get_mut(number).and_then(Option::take) {
            self.scheduler.remove(group);
        }
    }
}
