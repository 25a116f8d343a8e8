//! The units of a pool under its lock: one look, and what is asked of the pool between looks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};

use punctual_model::host::PolicyChoice;
use punctual_sched::{CpuId, Duration, Instant, UnitParams};
use punctual_scx::Event;

use super::account::Account;
use super::history::{Entry, Writer, short};
use super::kernel::Kernel;
use super::shared::Shared;
use crate::clock::now;
use crate::driver::{Driver, Judgement, Observation, Order, subtract_stolen};
use crate::notice::Notice;
use crate::unit::{self, LiveUnit, UnitCounters, priority_of};

/// How long a move of threads waits for enforcers to be ready for it.
pub(super) const PAUSE_WAIT_MAX: std::time::Duration = std::time::Duration::from_millis(500);

/// Between two looks at most this long is spent in the kernel and the enforcer itself, charged to no unit.
const SWITCHING: Duration = Duration::from_us(5);

/// How long an enforcer sleeps at most: its looks show that it is alive.
pub(super) const SLEEP_MAX: Duration = Duration::from_ms(100);

/// What can be asked of a pool while it runs.
#[derive(Debug)]
pub enum Command {
    /// Put units under enforcement. The periods of their servers begin at this instant.
    Add(Vec<(LiveUnit, UnitParams)>, Instant),
    /// End the enforcement of the unit with this name: it is thawed, in the fair class, and no longer read.
    /// The rest is put back when the journal is undone.
    Remove(String),
    /// As [`Command::Remove`], for this reason. The watchdog has lowered the unit's priority already.
    GiveUp(String, unit::Error),
    /// Give the unit with this name other parameters.
    Adjust(String, UnitParams),
    /// Give the pool another policy.
    Replace(PolicyChoice),
    /// The unit with this name is parked and holds a lock of its VMM: see [`Driver::begin_grace`].
    BeginGrace(String),
    /// The unit with this name has released that lock.
    EndGrace(String),
    /// Threads came to the unit with this name: give all of them what it has.
    Renew(String),
    /// Park by priority and not by the freezer until [`Command::ResumeFreezing`]; the answer comes when no
    /// unit is frozen any more. Asked for by [`super::Enforcement::without_freezer`] and by the watchdog.
    PauseFreezing(Sender<()>),
    /// The freezer may be used again, unless another pause lasts.
    ResumeFreezing,
}

/// A pool under enforcement, as its enforcers share it.
pub(super) struct Pool {
    pub driver: Driver,
    pub units: Vec<Option<LiveUnit>>,
    /// The scheduler in the kernel that has the units, if one has.
    pub(super) kernel: Option<Kernel>,
    pub(super) observed: Vec<(usize, Observation)>,
    /// By run queue, the units that may run since its last look: rank and number.
    ranked: Vec<Vec<(u16, usize)>>,
    /// By unit: among the vCPUs of its VM that stand beside it, the one whose turn it was at the last look.
    first_in_turn: Vec<Option<usize>>,
    /// By unit: must it be read at the next look, whatever the others ran?
    pub(super) must_read: Vec<bool>,
    /// By processor.
    pub(super) last_look: Vec<Instant>,
    /// By processor: when its next look is due.
    pub(super) due: Vec<Instant>,
    /// By unit: the order in the history.
    written: Vec<Option<(Order, bool)>>,
    pub history: Writer,
    commands: Receiver<Command>,
    notices: Sender<Notice>,
    shared: Arc<Shared>,
    processors: Vec<usize>,
    /// Pauses of freezing that last; see [`super::Enforcement::without_freezer`].
    pauses: u32,
}

impl Pool {
    pub(super) fn new(
        driver: Driver,
        processors: &[usize],
        commands: Receiver<Command>,
        notices: Sender<Notice>,
        shared: Arc<Shared>,
        kernel: Option<Kernel>,
    ) -> Pool {
        Pool {
            driver,
            units: Vec::new(),
            kernel,
            observed: Vec::with_capacity(64),
            ranked: processors.iter().map(|_| Vec::with_capacity(64)).collect(),
            first_in_turn: Vec::new(),
            must_read: Vec::new(),
            last_look: vec![now(); processors.len()],
            due: vec![Instant::NEVER; processors.len()],
            written: Vec::new(),
            history: Writer::new(),
            commands,
            notices,
            shared,
            processors: processors.to_vec(),
            pauses: 0,
        }
    }

    /// Carries out what was asked of the pool since the last look.
    pub(super) fn run_commands(&mut self) {
        if self.shared.demoted.swap(false, Ordering::Relaxed) {
            self.units.iter_mut().flatten().for_each(LiveUnit::forget_priority);
        }
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Add(units, at) => self.add(units, at),
                Command::Remove(name) => {
                    if let Some(number) = self.find(&name) {
                        self.release(number, UnitCounters::GONE);
                    }
                }
                Command::PauseFreezing(done) => {
                    self.pauses += 1;
                    for number in 0..self.units.len() {
                        self.park(number);
                    }
                    // The thread that asked may have stopped waiting.
                    let _ = done.send(());
                }
                Command::ResumeFreezing => self.pauses = self.pauses.saturating_sub(1),
                Command::BeginGrace(name) => {
                    if let Some(number) = self.find(&name) {
                        self.driver.begin_grace(now(), number);
                    }
                }
                Command::EndGrace(name) => {
                    if let Some(number) = self.find(&name) {
                        self.driver.end_grace(now(), number);
                    }
                }
                Command::Renew(name) => {
                    let unit = self.find(&name).and_then(|number| self.units[number].as_mut());
                    unit.into_iter().for_each(LiveUnit::forget_priority);
                }
                Command::GiveUp(name, error) => {
                    if let Some(number) = self.find(&name) {
                        self.lose(number, name, error);
                    }
                }
                Command::Replace(PolicyChoice { info, options }) => {
                    match self.driver.replace(now(), info, &options) {
                        Ok(()) => self.must_read.fill(true),
                        Err(error) => self.notify(Notice::NotReplaced { policy: info.name, error }),
                    }
                }
                Command::Adjust(name, params) => {
                    let Some(number) = self.find(&name) else { continue };
                    match self.driver.adjust(now(), number, &params) {
                        Ok(()) => self.shared.adjust_unit(number, &params),
                        Err(error) => self.notify(Notice::Refused { unit: name, error }),
                    }
                }
            }
        }
    }

    pub(super) fn notify(&self, notice: Notice) {
        // Fails only when the run does not read notices any more.
        let _ = self.notices.send(notice);
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.units.iter().position(|unit| unit.as_ref().is_some_and(|unit| unit.name == name))
    }

    /// The policy has all of them before the first one is scheduled, which takes the kernel a while.
    fn add(&mut self, units: Vec<(LiveUnit, UnitParams)>, at: Instant) {
        let mut inserted = Vec::with_capacity(units.len());
        for (unit, params) in units {
            match self.driver.insert(at, &params) {
                Ok(number) => inserted.push((number, unit, params)),
                Err(error) => self.notify(Notice::Refused { unit: unit.name, error }),
            }
        }
        for (number, unit, params) in inserted {
            self.schedule(number, unit, &params);
        }
    }

    fn schedule(&mut self, number: usize, mut unit: LiveUnit, params: &UnitParams) {
        let home = self.driver.home(number).index();
        let processors =
            if self.driver.shared_queue() { &self.processors[..] } else { &self.processors[home..=home] };
        // The kernel has no trouble with many threads.
        let confined = match self.kernel {
            Some(_) => unit.set_affinity(processors),
            None => unit.confine(processors),
        };
        unit.begin_account();
        // The others keep their numbers, whichever one the driver gives.
        let count = self.units.len().max(number + 1);
        self.units.resize_with(count, || None);
        self.must_read.resize(count, true);
        self.first_in_turn.resize(count, None);
        self.written.resize(count, None);
        self.must_read[number] = true;
        self.written[number] = None;
        self.observed.reserve(number + 1);
        self.ranked.iter_mut().for_each(|ranked| ranked.reserve(number + 1));
        self.shared.add_unit(&unit, number, params, processors);
        let name = unit.name.clone();
        self.units[number] = Some(unit);
        if let Err(error) = confined.and_then(|()| self.add_to_kernel(number)) {
            self.lose(number, name, error);
        }
    }

    /// Ends the enforcement of a unit, which is thawed; `order` is what its counters say from now on.
    fn release(&mut self, number: usize, order: u64) {
        self.driver.remove(now(), number);
        if let Some(kernel) = &mut self.kernel {
            kernel.remove(number);
        }
        if let Some(mut unit) = self.units.get_mut(number).and_then(Option::take) {
            self.shared.remove_unit(&unit.name);
            // A failure means that it is gone; any other failure is reported when the journal is undone.
            let _ = unit.release();
            unit.counters.order.store(order, Ordering::Relaxed);
        }
    }

    /// Ends the enforcement of a unit because of an error; that of a crowd until it has fewer threads.
    pub(super) fn lose(&mut self, number: usize, unit: String, error: unit::Error) {
        if let (unit::Error::Crowd, Some(crowd)) = (&error, self.units[number].as_mut()) {
            match crowd.set_aside() {
                Ok(()) => {
                    self.must_read[number] = true;
                    return self.notify(Notice::Crowd { unit });
                }
                Err(error) => return self.lose(number, unit, error),
            }
        }
        let is_gone = matches!(error, unit::Error::Gone);
        self.release(number, if is_gone { UnitCounters::GONE } else { UnitCounters::GIVEN_UP });
        self.notify(if is_gone { Notice::Gone { unit } } else { Notice::Failed { unit, error } });
    }

    /// One look: reads what the units of `cpu` ran, lets the policy decide, and carries out its orders.
    /// Returns when the next look is due. `account` is that of the calling enforcer.
    pub(super) fn look(&mut self, cpu: CpuId, account: &mut Account) -> Instant {
        let at = now();
        if self.kernel.is_some() {
            return self.look_at_kernel(cpu, at, account).unwrap_or(at);
        }
        let due = self.due[cpu.index()].min(at);
        let elapsed = at.since(std::mem::replace(&mut self.last_look[cpu.index()], at));
        let queue = if self.driver.shared_queue() { CpuId(0) } else { cpu };
        self.observe_units(queue, elapsed);
        self.judge_lateness(at.since(due), elapsed, account);
        let mut next = self.driver.observe(at, queue, &self.observed);
        let parked = self.park_units(queue);
        let admitted = self.admit_units(queue);
        if !(parked && admitted) {
            next = at;
        }
        // A look may take longer than the time to the next one. If the next look came at once, the units
        // would never run, and so never use up what that look waits for (the rest of a slice).
        let end = now();
        let next = if next > at { next.max(end + self.driver.settings().granularity) } else { next };
        self.due[cpu.index()] = next.min(end + SLEEP_MAX);
        self.write_history(cpu, queue, due, at, end);
        next
    }

    /// Finds out why a look is late, subtracts stolen time from what was observed, and writes that down.
    fn judge_lateness(&mut self, late: Duration, elapsed: Duration, account: &mut Account) {
        let lateness = account.judge(late);
        // Which of several processors a unit ran on is not known.
        let has_own_units = !self.driver.shared_queue() || self.processors.len() == 1;
        let judgement = if has_own_units {
            subtract_stolen(&mut self.observed, elapsed, &lateness)
        } else {
            Judgement { ran_on: lateness.was_stopped, ..Judgement::default() }
        };
        self.driver.set_lateness(late, &judgement);
        let Judgement { stolen, ran_on, .. } = judgement;
        for &(number, Observation { ran, .. }) in &self.observed {
            let account = self.units[number].as_ref().map(LiveUnit::since_last_look).unwrap_or_default();
            if !ran.is_zero() || account.arrivals > 0 {
                let (ran_ns, waited_ns) = (short(ran), short(account.waited));
                let arrivals = u16::try_from(account.arrivals).unwrap_or(u16::MAX);
                self.history.push(Entry::Ran { unit: number as u32, ran_ns, waited_ns, arrivals });
            }
        }
        if ran_on || !lateness.waited.is_zero() || !stolen.is_zero() {
            let (waited_ns, stolen_ns) = (short(lateness.waited), short(stolen));
            self.history.push(Entry::Late { waited_ns, stolen_ns, ran_on });
        }
    }

    /// Writes a look and the orders that it changed.
    pub(super) fn write_history(
        &mut self,
        cpu: CpuId,
        queue: CpuId,
        due: Instant,
        at: Instant,
        end: Instant,
    ) {
        self.history.look(cpu.0 as u16, due, at, end);
        for number in 0..self.units.len() {
            if self.units[number].is_none() || !self.is_in(queue, number) {
                continue;
            }
            let order = self.driver.order(number);
            let left = self.driver.account(number).and_then(|account| account.left);
            let has_budget = left.is_none_or(|left| !left.is_zero());
            if self.written[number].replace((order, has_budget)) != Some((order, has_budget)) {
                self.history.push(Entry::Order { unit: number as u32, order, has_budget });
            }
        }
        self.history.hand_over(end, &self.shared.exchange);
    }

    /// Writes that units have used up their budgets, all at one time.
    pub(super) fn write_exhaustions(&mut self, cpu: CpuId, at: Instant, events: &[Event]) {
        self.history.look(cpu.0 as u16, at, at, at);
        for &Event { unit, .. } in events {
            let (order, has_budget) = (Order::Parked, false);
            let Some(Some(written)) = self.written.get_mut(unit as usize) else { continue };
            if std::mem::replace(written, (order, has_budget)) != (order, has_budget) {
                self.history.push(Entry::Order { unit, order, has_budget });
            }
        }
        self.history.hand_over(at, &self.shared.exchange);
    }

    /// Does this run queue decide about the unit?
    fn is_in(&self, queue: CpuId, number: usize) -> bool {
        self.driver.shared_queue() || self.driver.home(number) == queue
    }

    /// Reads the units that must be read, then those that could run, the most urgent first: once all the time
    /// is accounted for, the others have not run and need not be read.
    fn observe_units(&mut self, queue: CpuId, elapsed: Duration) {
        let with_work = self.driver.needs_work();
        let reads_all = self.driver.shared_queue() || with_work;
        self.observed.clear();
        for number in 0..self.units.len() {
            if self.must_read[number] && self.is_in(queue, number) {
                self.must_read[number] = false;
                self.observe_unit(number, elapsed, false);
            }
        }
        let mut ran = self.observed.iter().fold(Duration::ZERO, |sum, (_, observed)| sum + observed.ran);
        let ranked = std::mem::take(&mut self.ranked[queue.index()]);
        for &(_, number) in &ranked {
            if !reads_all && ran + SWITCHING >= elapsed {
                break;
            }
            if self.observed.iter().all(|(known, _)| *known != number) {
                self.observe_unit(number, elapsed, with_work);
                ran = self.observed.last().map_or(ran, |(_, observed)| ran + observed.ran);
            }
        }
        self.ranked[queue.index()] = ranked;
    }

    fn observe_unit(&mut self, number: usize, elapsed: Duration, with_work: bool) {
        let Some(unit) = self.units[number].as_mut() else { return };
        if unit.has_dispersed(elapsed) {
            let unit = unit.name.clone();
            self.notify(Notice::Dispersed { unit });
        }
        let Some(unit) = self.units[number].as_mut() else { return };
        match unit.observe(elapsed, with_work) {
            // No other unit wanted that time, and it was of no budget.
            Ok(observed) if unit.is_idle() => {
                self.observed.push((number, Observation { ran: Duration::ZERO, ..observed }));
            }
            Ok(observed) => self.observed.push((number, observed)),
            Err(error) => {
                let name = unit.name.clone();
                self.lose(number, name, error);
            }
        }
    }

    /// Publishes the orders of the queue's units, parks those that are to park, and collects the others in
    /// `ranked`. False when a unit was lost.
    fn park_units(&mut self, queue: CpuId) -> bool {
        let mut all_there = true;
        let mut ranked = std::mem::take(&mut self.ranked[queue.index()]);
        ranked.clear();
        for number in 0..self.units.len() {
            if !self.is_in(queue, number) {
                continue;
            }
            let order = self.driver.order(number);
            self.publish(number, order);
            match order {
                Order::Ranked(rank) => ranked.push((rank, number)),
                Order::Parked => all_there &= self.park(number),
            }
        }
        ranked.sort_unstable();
        self.ranked[queue.index()] = ranked;
        all_there
    }

    /// Gives the units in `ranked` real-time priorities in their order; vCPUs of a VM that stand side by side
    /// get the same one, so that none interrupts another one's turn when it wakes up. False when a unit was
    /// lost.
    fn admit_units(&mut self, queue: CpuId) -> bool {
        let mut all_there = true;
        let ranked = std::mem::take(&mut self.ranked[queue.index()]);
        let keep = self.priorities_are_in_order(&ranked);
        let mut position = 0;
        while let Some(&(_, first)) = ranked.get(position) {
            let beside = ranked[position..].iter().take_while(|(_, unit)| self.is_beside(first, *unit));
            let group = &ranked[position..position + beside.count()];
            let priority = match self.units[first].as_ref().and_then(LiveUnit::priority) {
                Some(priority) if keep => priority,
                _ => priority_of(position as u16),
            };
            let is_new = self.begins_turn(group);
            for (place, &(_, number)) in group.iter().enumerate() {
                let Some(unit) = self.units[number].as_mut() else { continue };
                // One that ran beside another one's turn: that one may have woken up meanwhile.
                let has_run = !unit.since_last_look().ran.is_zero();
                let is_behind = place > 0 && (is_new || has_run || unit.priority() != Some(priority));
                let admitted = unit.admit(priority);
                let admitted = if is_behind { admitted.and_then(|()| unit.yield_turn()) } else { admitted };
                if let Err(error) = admitted {
                    let name = unit.name.clone();
                    self.lose(number, name, error);
                    all_there = false;
                }
            }
            position += group.len();
        }
        self.ranked[queue.index()] = ranked;
        all_there
    }

    /// Has a unit the same place as the one before it?
    fn is_beside(&self, first: usize, unit: usize) -> bool {
        first == unit || self.driver.take_turns(first, unit)
    }

    /// Is it another one's turn in this group than at the last look, or has its priority changed?
    fn begins_turn(&mut self, group: &[(u16, usize)]) -> bool {
        let first = group.first().map(|(_, number)| *number);
        let priority = |number: &usize| self.units[*number].as_ref().and_then(LiveUnit::priority);
        let has_moved =
            first.is_some_and(|first| group.iter().any(|(_, unit)| priority(unit) != priority(&first)));
        let is_other = group.iter().any(|(_, unit)| self.first_in_turn[*unit] != first);
        group.iter().for_each(|(_, unit)| self.first_in_turn[*unit] = first);
        has_moved || is_other
    }

    /// Parks a unit whose order is to park; it may still run where no other thread wants to, while the
    /// freezer may not be used. False when the unit was lost.
    fn park(&mut self, number: usize) -> bool {
        let Some(unit) = self.units[number].as_mut() else { return true };
        if self.driver.order(number) != Order::Parked || self.kernel.is_some() {
            return true;
        }
        let parked = if self.pauses == 0 { unit.park() } else { unit.park_by_priority() };
        // What it runs all the same is read at each look, so that it is not taken for what it does with a
        // budget.
        self.must_read[number] |= unit.is_idle();
        let Err(error) = parked else { return true };
        let name = unit.name.clone();
        self.lose(number, name, error);
        false
    }

    /// Do the priorities that units have already order them as they are ranked? With fixed priorities they
    /// do, whichever units are parked meanwhile, which saves most of the system calls.
    fn priorities_are_in_order(&self, ranked: &[(u16, usize)]) -> bool {
        let mut above = (u32::MAX, None);
        ranked.iter().all(|&(_, number)| {
            let Some(priority) = self.units[number].as_ref().and_then(LiveUnit::priority) else {
                return false;
            };
            let (before, first) = above;
            match first {
                Some(first) if self.is_beside(first, number) => priority == before,
                _ => {
                    above = (priority, Some(number));
                    priority < before
                }
            }
        })
    }

    pub(super) fn publish(&mut self, number: usize, order: Order) {
        let Some(unit) = self.units[number].as_ref() else { return };
        let counters = &unit.counters;
        if order == Order::Parked && counters.order.load(Ordering::Relaxed) != UnitCounters::PARKED {
            // It may run a little until the freezer has it.
            self.must_read[number] = true;
        }
        if unit.is_crowd() {
            counters.order.store(UnitCounters::UNMANAGED, Ordering::Relaxed)
        } else {
            counters.set_order(Some(order))
        }
        if let Some(account) = self.driver.account(number) {
            let left_ns = account.left.map_or(u64::MAX, Duration::as_ns);
            counters.left_ns.store(left_ns, Ordering::Relaxed);
            counters.exhaustions.store(account.exhaustions, Ordering::Relaxed);
            counters.replenishments.store(account.replenishments, Ordering::Relaxed);
        }
    }
}
