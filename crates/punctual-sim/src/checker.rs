//! The invariants, judged during every simulation in debug and release builds alike:
//!
//! - time advances, and an instant comes to an end;
//! - a slice ends later than it begins; who is picked exists, has work, may run there, and runs nowhere else;
//! - a picked unit has budget, no unit executes longer than the budget it was picked with, and no unit that
//!   is picked holds more than its maximum;
//! - who executes was picked for that processor, and has work: who falls asleep is taken off its processor;
//! - a processor idles only if the policy's promise of work conservation allows it;
//! - the time of every processor is accounted for without a gap and once; what happens inside a vCPU takes
//!   exactly the time that the vCPU executed;
//! - one task at a time holds a resource, and a task that waits for one sleeps;
//! - packets keep their order, their segments add up to their latency, and all of them are accounted for.
//!
//! The checker judges from the events that it gets ([`Event`]), never from the engine's own state: an engine
//! that keeps wrong books is caught just like a policy that breaks its contract. The first violation stops
//! the run with the last decisions.

mod packets;

use std::fmt::Write as _;

use punctual_model::Host;
use punctual_model::index::TaskIx;
use punctual_sched::registry::{PolicyInfo, WorkConservation};
use punctual_sched::{CpuSet, Duration, Instant, Run, Slice, UnitId};

use crate::names;
use crate::observe::{Event, Observer, Occupant, ProcessorIx, Scheduler, SchedulerIx, UnitIx};
use packets::Packets;

/// How many of the last decisions the report of a violation shows.
const SHOWN: usize = 16;

/// A scheduler of more units than this is not checked for waiting units at every instant but at every
/// `LARGE_TURN`th, and then `LARGE_WINDOW` of them, going round.
const LARGE: usize = 128;
const LARGE_TURN: usize = 16;
const LARGE_WINDOW: usize = 32;

/// Checks the events of a machine.
pub struct Checker<'h> {
    host: &'h Host,
    now: Instant,
    /// Decisions and timers that there may be at one instant: each of them starts, stops or replenishes
    /// somebody.
    same_instant_max: u64,
    /// Decisions that there may have been by the end of this instant.
    decisions_max: u64,
    schedulers: Vec<SchedulerState>,
    /// What each pool has now.
    policies: Vec<&'static PolicyInfo>,
    /// The physical ones, then vCPUs.
    processors: Vec<ProcessorState>,
    physical: usize,
    units: Vec<UnitState>,
    /// By resource of all domains, the task that holds it.
    holders: Vec<Option<TaskIx>>,
    packets: Packets,
    /// The last decisions, in a ring.
    ring: [(Instant, ProcessorIx, Run); SHOWN],
    decisions: u64,
    violation: Option<String>,
}

struct SchedulerState {
    awake: u32,
    /// Units that some processor has picked.
    running: u32,
    /// In a large scheduler: how often its waiting units could have been checked.
    turn: u32,
    /// Timers that ran, and events of the host: budgets may have grown since a processor picked.
    timers: u32,
    /// What its policy promises about idle processors.
    promise: WorkConservation,
    /// Does it keep no budgets? It promises that no unit with work waits beside an idle processor, whatever
    /// the unit's budget, and its account of the first unit that it picked has none.
    without_budgets: bool,
    picked: bool,
}

struct ProcessorState {
    does: Occupant,
    asked: bool,
    /// Physical: `SchedulerState::timers` when it was picked for.
    timers: u32,
    /// Physical: what is left of the budget that its unit was picked with; `Duration::MAX` without a limit.
    left: Duration,
    /// Physical: its time is accounted for up to here. A vCPU: the time that it executed less the time spent
    /// inside it, in wrapping nanoseconds.
    account_ns: u64,
}

struct UnitState {
    standing: Standing,
    allowed: Allowed,
}

/// Where a unit is, and whether it has work, as one word.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Standing(u32);

impl Standing {
    const AWAKE: u32 = 1 << 31;
    const NOWHERE: u32 = Standing::AWAKE - 1;

    const ASLEEP_NOWHERE: Standing = Standing(Standing::NOWHERE);
    const AWAKE_NOWHERE: Standing = Standing(Standing::AWAKE | Standing::NOWHERE);

    #[inline(always)]
    fn awake_on(processor: ProcessorIx) -> Self {
        Standing(Standing::AWAKE | processor.0)
    }

    #[inline(always)]
    fn is_awake(self) -> bool {
        self.0 & Standing::AWAKE != 0
    }

    #[inline(always)]
    fn on(self) -> Option<ProcessorIx> {
        let processor = self.0 & Standing::NOWHERE;
        (processor != Standing::NOWHERE).then_some(ProcessorIx(processor))
    }

    #[inline(always)]
    fn wake(&mut self) {
        self.0 |= Standing::AWAKE;
    }

    #[inline(always)]
    fn sleep(&mut self) {
        self.0 &= Standing::NOWHERE;
    }

    #[inline(always)]
    fn put(&mut self, processor: ProcessorIx) {
        self.0 = self.0 & Standing::AWAKE | processor.0;
    }

    #[inline(always)]
    fn take_off(&mut self) {
        self.0 |= Standing::NOWHERE;
    }
}

/// A unit's affinity as one word: all processors of its scheduler, one of them, or several, which the host
/// names.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Allowed(u32);

impl Allowed {
    const ALL: Allowed = Allowed(u32::MAX);
    const SEVERAL: Allowed = Allowed(u32::MAX - 1);

    fn new(affinity: Option<&CpuSet>) -> Self {
        match affinity {
            None => Allowed::ALL,
            Some(set) if set.len() == 1 => set.iter().next().map_or(Allowed::SEVERAL, |cpu| Allowed(cpu.0)),
            Some(_) => Allowed::SEVERAL,
        }
    }
}

impl<'h> Checker<'h> {
    /// For a machine that simulates `host`.
    pub fn new(host: &'h Host) -> Self {
        let (vcpus, tasks) = (host.vcpus.len(), host.tasks.len());
        let affinities = host.vcpus.iter().map(|v| &v.params).chain(host.tasks.iter().map(|t| &t.params));
        let units = affinities.map(|params| UnitState {
            standing: Standing::ASLEEP_NOWHERE,
            allowed: Allowed::new(params.affinity.as_ref()),
        });
        let idle = || ProcessorState {
            does: Occupant::IDLE,
            asked: false,
            timers: 0,
            left: Duration::MAX,
            account_ns: 0,
        };
        let pools: Vec<_> = host.pools.iter().map(|pool| pool.policy.info).collect();
        let policies = pools.iter().copied().chain(host.domains.iter().map(|domain| domain.guest.info));
        let same_instant_max = 1000 + 16 * (host.processors + 2 * vcpus + tasks) as u64;
        let scheduler = |info: &PolicyInfo| SchedulerState {
            awake: 0,
            running: 0,
            turn: 0,
            timers: 0,
            promise: info.work_conservation,
            without_budgets: false,
            picked: false,
        };
        Checker {
            host,
            now: Instant::ZERO,
            same_instant_max,
            decisions_max: same_instant_max,
            schedulers: policies.map(scheduler).collect(),
            policies: pools,
            processors: (0..host.processors + vcpus).map(|_| idle()).collect(),
            physical: host.processors,
            units: units.collect(),
            holders: vec![None; host.domains.iter().map(|domain| domain.resources.len()).sum()],
            packets: Packets::new(host),
            ring: [(Instant::ZERO, ProcessorIx::NONE, Run::Idle); SHOWN],
            decisions: 0,
            violation: None,
        }
    }

    // ---- time ---------------------------------------------------------------------------------------

    #[inline(always)]
    fn instant(&mut self, now: Instant) {
        if now < self.now {
            self.violated(&format!("the next event lies in the past, at {} ns", now.as_ns()));
        } else if now > self.now {
            self.now = now;
            self.decisions_max = self.decisions + self.same_instant_max;
        }
    }

    /// A timer of the scheduler ran, or its units were adjusted, which is as good as a decision.
    #[inline(always)]
    fn timer(&mut self, scheduler: SchedulerIx) {
        self.schedulers[scheduler.index()].timers += 1;
        self.decisions_max -= 1;
        if self.decisions > self.decisions_max {
            self.judge_time(ProcessorIx::NONE, Instant::NEVER);
        }
    }

    /// The scheduler's processors do nothing until they pick by another policy.
    fn replaced(&mut self, scheduler: Scheduler<'_>, policy: &'static PolicyInfo) {
        let state = &mut self.schedulers[scheduler.ix.index()];
        (state.promise, state.without_budgets, state.picked) = (policy.work_conservation, false, false);
        self.policies[scheduler.ix.index()] = policy;
        for &processor in scheduler.processors {
            self.take_note(processor, scheduler.ix, Occupant::IDLE, Duration::MAX);
        }
    }

    // ---- work ---------------------------------------------------------------------------------------

    #[inline(always)]
    fn wake(&mut self, unit: UnitIx, scheduler: SchedulerIx) {
        let standing = &mut self.units[unit.index()].standing;
        if standing.is_awake() {
            return self.violated(&format!("{} wakes and is awake", self.unit_name(unit)));
        }
        standing.wake();
        self.schedulers[scheduler.index()].awake += 1;
    }

    #[inline(always)]
    fn sleep(&mut self, unit: UnitIx, scheduler: SchedulerIx) {
        let standing = &mut self.units[unit.index()].standing;
        if !standing.is_awake() {
            return self.violated(&format!("{} falls asleep and is asleep", self.unit_name(unit)));
        }
        standing.sleep();
        self.schedulers[scheduler.index()].awake -= 1;
    }

    /// A unit that fell asleep must not keep its processor.
    #[inline(always)]
    fn asleep(&mut self, unit: UnitIx) {
        let standing = self.units[unit.index()].standing;
        if let Some(on) = standing.on()
            && !standing.is_awake()
            && !self.processors[on.index()].asked
        {
            let (unit, on) = (self.unit_name(unit), self.processor_name(on));
            self.violated(&format!("{unit} fell asleep and {on} was not asked to pick"));
        }
    }

    // ---- locks --------------------------------------------------------------------------------------

    /// The resource has another holder, or none.
    fn held(&mut self, resource: usize, before: Option<TaskIx>, after: Option<TaskIx>) {
        let Some(holder) = self.holders.get_mut(resource) else {
            return self.violated(&format!("there is no resource {resource}"));
        };
        let found = std::mem::replace(holder, after);
        if found != before {
            let name = |task: Option<TaskIx>| {
                task.map_or("no task".into(), |task| self.unit_name(names::unit_of(self.host, task)))
            };
            let what = format!("resource {resource} is held by {}, not by {}", name(found), name(before));
            self.violated(&what);
        }
    }

    /// The task waits for a resource.
    fn blocked(&mut self, task: TaskIx) {
        let unit = names::unit_of(self.host, task);
        if self.units[unit.index()].standing.is_awake() {
            self.violated(&format!("{} waits for a resource and is awake", self.unit_name(unit)));
        }
    }

    // ---- decisions ----------------------------------------------------------------------------------

    #[inline(always)]
    fn picked(&mut self, now: Instant, processor: ProcessorIx, scheduler: Scheduler<'_>, slice: Slice) {
        self.ring[self.decisions as usize % SHOWN] = (now, processor, slice.run);
        self.decisions += 1;
        if self.decisions > self.decisions_max || slice.until <= now {
            return self.judge_time(processor, slice.until);
        }
        let state = &mut self.schedulers[scheduler.ix.index()];
        let mut left = Duration::MAX;
        let does = match slice.run {
            Run::Idle => Occupant::IDLE,
            Run::Unit(id) | Run::IdleFor(id) => {
                let Some(&unit) = scheduler.units.get(id.index()) else {
                    return self.picked_a_stranger(processor, id);
                };
                if !state.without_budgets {
                    let account = scheduler.policy.account(id);
                    let limited = !account.may_overrun;
                    if let Some(budget) = account.left {
                        if budget.is_zero() && limited || account.max.is_some_and(|max| budget > max) {
                            return self.wrong_budget(processor, unit, budget, account.max);
                        }
                        left = if limited { budget } else { Duration::MAX };
                    } else if !state.picked && limited {
                        state.without_budgets = state.promise == WorkConservation::Always;
                    }
                    state.picked = true;
                }
                let does = match slice.run {
                    Run::Unit(_) => Occupant::unit(unit),
                    _ => Occupant::idle_for(unit),
                };
                let standing = self.units[unit.index()].standing;
                // A unit that goes on where it was, and has work, may do so.
                if standing != Standing::awake_on(processor) || does.runs().is_none() {
                    let state = &self.units[unit.index()];
                    let expected = if does.runs().is_some() {
                        Standing::AWAKE_NOWHERE
                    } else {
                        Standing::ASLEEP_NOWHERE
                    };
                    if !(standing == expected && state.allowed == Allowed::ALL)
                        && let Err(reason) = self.judge_choice(processor, scheduler.processors, does, unit)
                    {
                        return self.wrongly_picked(processor, unit, &reason);
                    }
                }
                does
            }
        };
        self.take_note(processor, scheduler.ix, does, left);
    }

    /// What the processor does from now on, with what limits its execution.
    #[inline(always)]
    fn take_note(&mut self, processor: ProcessorIx, scheduler: SchedulerIx, does: Occupant, left: Duration) {
        let state = &mut self.schedulers[scheduler.index()];
        let place = &mut self.processors[processor.index()];
        place.left = left;
        place.timers = state.timers;
        place.asked = false;
        let before = std::mem::replace(&mut place.does, does);
        if before == does {
            return;
        }
        if let Some(unit) = before.runs() {
            self.units[unit.index()].standing.take_off();
            state.running -= 1;
        }
        if let Some(unit) = does.runs() {
            self.units[unit.index()].standing.put(processor);
            state.running += 1;
        }
    }

    /// The slice would end at once, or there are too many decisions.
    #[cold]
    fn judge_time(&mut self, processor: ProcessorIx, until: Instant) {
        if until <= self.now {
            let name = self.processor_name(processor);
            self.violated(&format!("{name}: the slice would end at {until:?}"));
        }
        let most = self.same_instant_max;
        self.violated(&format!("more than {most} decisions and timers at one instant, without an end"));
    }

    #[cold]
    fn picked_a_stranger(&mut self, processor: ProcessorIx, id: UnitId) {
        let name = self.processor_name(processor);
        self.violated(&format!("{name}: picked {id:?}, which is not there"));
    }

    #[cold]
    fn wrong_budget(&mut self, processor: ProcessorIx, unit: UnitIx, left: Duration, max: Option<Duration>) {
        let reason = match max {
            Some(max) if left > max => format!("holds {left:?} of at most {max:?}"),
            _ => "has no budget left".to_string(),
        };
        self.wrongly_picked(processor, unit, &reason);
    }

    /// May the unit, which did not run there before, run there, or idle its budget away? If not: why.
    #[inline(never)]
    fn judge_choice(
        &self,
        processor: ProcessorIx,
        processors: &[ProcessorIx],
        does: Occupant,
        unit: UnitIx,
    ) -> Result<(), String> {
        let UnitState { standing, .. } = self.units[unit.index()];
        if let Some(on) = standing.on()
            && on != processor
        {
            return Err(format!("already runs on {}", self.processor_name(on)));
        }
        if !self.may_run(unit, processor, processors) {
            return Err("may not run there (affinity)".to_string());
        }
        match (does.runs(), standing.is_awake()) {
            (Some(_), false) => Err("has no work".to_string()),
            (None, true) => Err("has work, yet its budget idles away".to_string()),
            _ => Ok(()),
        }
    }

    #[cold]
    fn wrongly_picked(&mut self, processor: ProcessorIx, unit: UnitIx, reason: &str) {
        let (processor, unit) = (self.processor_name(processor), self.unit_name(unit));
        self.violated(&format!("{processor} picked {unit}, which {reason}"));
    }

    /// May the unit run on this processor of its scheduler?
    #[inline]
    fn may_run(&self, unit: UnitIx, processor: ProcessorIx, processors: &[ProcessorIx]) -> bool {
        let at = |cpu: u32| processors.get(cpu as usize) == Some(&processor);
        match self.units[unit.index()].allowed {
            Allowed::ALL => true,
            Allowed::SEVERAL => self.affinity(unit).is_some_and(|set| set.iter().any(|cpu| at(cpu.0))),
            Allowed(cpu) => at(cpu),
        }
    }

    /// The processors of its scheduler that a unit may run on; `None`: all.
    fn affinity(&self, unit: UnitIx) -> Option<&CpuSet> {
        match names::task_of(self.host, unit) {
            Some(TaskIx(task)) => self.host.tasks[task].params.affinity.as_ref(),
            None => self.host.vcpus[unit.index()].params.affinity.as_ref(),
        }
    }

    // ---- execution ----------------------------------------------------------------------------------

    #[inline(always)]
    fn slice(
        &mut self,
        now: Instant,
        processor: ProcessorIx,
        occupant: Occupant,
        (from, start): (Instant, Instant),
    ) {
        let place = &mut self.processors[processor.index()];
        if occupant != place.does {
            return self.did_otherwise(processor, occupant);
        }
        let executed = now.since(start);
        if processor.index() < self.physical {
            let accounted = Instant::from_ns(std::mem::replace(&mut place.account_ns, now.as_ns()));
            let left = place.left;
            place.left = left.saturating_sub(executed);
            if accounted != from || executed > left {
                self.judge_account(processor, accounted, from, executed.saturating_sub(left));
            }
        } else {
            place.account_ns = place.account_ns.wrapping_sub(now.since(from).as_ns());
        }
        if let Some(unit) = occupant.runs() {
            // It may have fallen asleep during a context switch to it, which nothing interrupts.
            if !executed.is_zero() && !self.units[unit.index()].standing.is_awake() {
                let (processor, unit) = (self.processor_name(processor), self.unit_name(unit));
                return self.violated(&format!(
                    "{processor} executed {unit}, which has no work, from {} ns on",
                    from.as_ns()
                ));
            }
            // A task has no place among processors.
            if let Some(inside) = self.processors.get_mut(self.physical + unit.index()) {
                inside.account_ns = inside.account_ns.wrapping_add(executed.as_ns());
            }
        }
    }

    #[cold]
    fn did_otherwise(&mut self, processor: ProcessorIx, occupant: Occupant) {
        let did = match (occupant.runs(), occupant.charged()) {
            (Some(unit), _) => format!("executed {}", self.unit_name(unit)),
            (None, Some(unit)) => format!("idled for {}", self.unit_name(unit)),
            (None, None) => "idled".to_string(),
        };
        self.violated(&format!("{} {did}, which was not picked", self.processor_name(processor)));
    }

    /// The time of a physical processor has a gap or an overlap, or its unit executed longer than its budget.
    #[cold]
    fn judge_account(&mut self, processor: ProcessorIx, accounted: Instant, from: Instant, over: Duration) {
        let name = self.processor_name(processor);
        if accounted != from {
            let (accounted, from) = (accounted.as_ns(), from.as_ns());
            return self.violated(&format!(
                "{name} is accounted for up to {accounted} ns, and then from {from} ns on"
            ));
        }
        let Some(unit) = self.processors[processor.index()].does.runs() else { return };
        let timers = self.schedulers[names::scheduler_of(self.host, unit).index()].timers;
        // A replenishment since then may have added to the budget.
        if self.processors[processor.index()].timers == timers {
            let unit = self.unit_name(unit);
            self.violated(&format!("{name} executed {unit} for {over} more than its budget"));
        }
    }

    #[inline(always)]
    fn kernel_ran(&mut self, unit: UnitIx, ran: Duration) {
        let inside = &mut self.processors[self.physical + unit.index()];
        inside.account_ns = inside.account_ns.wrapping_sub(ran.as_ns());
    }

    // ---- idle processors ----------------------------------------------------------------------------

    /// After all decisions of an instant: no processor idles against the policy's promise.
    #[inline(always)]
    fn settled(&mut self, scheduler: Scheduler<'_>) {
        let state = &self.schedulers[scheduler.ix.index()];
        if state.awake > state.running
            && (state.running as usize) < scheduler.processors.len()
            && state.promise != WorkConservation::Never
        {
            self.judge_idle(scheduler);
        }
    }

    fn judge_idle(&mut self, scheduler: Scheduler<'_>) {
        let state = &self.schedulers[scheduler.ix.index()];
        let waiting = (state.awake - state.running) as usize;
        let promise = state.promise;
        // Processors that were asked to pick and have not yet: vCPUs without power. Each takes one of the
        // waiting units with it, also when another vCPU of the guest has power by then.
        let asked = |p: &&ProcessorIx| self.processors[p.index()].asked;
        let to_pick = scheduler.processors.iter().filter(asked).count();
        if waiting <= to_pick {
            return;
        }
        let total = scheduler.units.len();
        let (mut first, mut looked_at) = (0, total);
        if total > LARGE {
            let turn = self.schedulers[scheduler.ix.index()].turn as usize;
            self.schedulers[scheduler.ix.index()].turn = (turn as u32).wrapping_add(1);
            if !turn.is_multiple_of(LARGE_TURN) {
                return;
            }
            (first, looked_at) = (turn / LARGE_TURN * LARGE_WINDOW, LARGE_WINDOW);
        }
        // A processor that is still to pick may take the one that waits: a vCPU without power, or one in the
        // middle of a switch. It is checked when it has.
        if to_pick > 0 {
            return;
        }
        for id in (first..first + looked_at).map(|id| id % total) {
            let unit = scheduler.units[id];
            let standing = self.units[unit.index()].standing;
            if standing.is_awake()
                && standing.on().is_none()
                && let Some(processor) = self.idle_against_promise(scheduler, id, promise)
                && !self.is_beside_one_that_runs(unit)
            {
                let policy = self.policy(scheduler.ix).name;
                let (processor, unit) = (self.processor_name(processor), self.unit_name(unit));
                self.violated(&format!("{processor} idles under {policy} while {unit} waits"));
            }
        }
    }

    /// A processor of the scheduler that idles although this waiting unit could run on it.
    fn idle_against_promise(
        &self,
        scheduler: Scheduler<'_>,
        id: usize,
        promise: WorkConservation,
    ) -> Option<ProcessorIx> {
        let account = scheduler.policy.account(UnitId(id as u32));
        let broke = account.left == Some(Duration::ZERO) && !account.may_overrun;
        if broke && promise == WorkConservation::WithinBudget {
            return None;
        }
        let home = account.home.map(|cpu| scheduler.processors[cpu.index()]);
        scheduler.processors.iter().copied().find(|&processor| {
            self.processors[processor.index()].does == Occupant::IDLE
                && home.is_none_or(|home| home == processor)
                && self.may_run(scheduler.units[id], processor, scheduler.processors)
        })
    }

    /// Does another vCPU run that draws from the same budget? One of them runs at a time.
    fn is_beside_one_that_runs(&self, unit: UnitIx) -> bool {
        let Some(vcpu) = self.host.vcpus.get(unit.index()) else { return false };
        let mut vcpus = self.host.domains[vcpu.domain.0].vcpus.clone();
        self.host.shares_budget(vcpu.domain) && vcpus.any(|other| self.units[other].standing.on().is_some())
    }

    // ---- the end ------------------------------------------------------------------------------------

    /// What the engine counted for a processor.
    fn accounted(&mut self, processor: ProcessorIx, sum: Duration) {
        let elapsed = self.now.since(Instant::ZERO);
        let Some(place) = self.processors.get(processor.index()) else { return };
        let (told, name) = (Duration::from_ns(place.account_ns), self.processor_name(processor));
        if told != elapsed {
            self.violated(&format!("{name} is accounted for up to {} ns", told.as_ns()));
        }
        if sum != elapsed {
            self.violated(&format!("{name} accounts for {sum:?} of {elapsed:?}"));
        }
    }

    fn end(&mut self) {
        for vcpu in 0..self.host.vcpus.len() {
            let over_ns = self.processors[self.physical + vcpu].account_ns as i64;
            let name = &self.host.vcpus[vcpu].name;
            if over_ns > 0 {
                self.violated(&format!("vCPU {name} executed {over_ns} ns more than were spent inside it"));
            } else if over_ns < 0 {
                self.violated(&format!(
                    "{} ns more were spent inside vCPU {name} than it executed",
                    -over_ns
                ));
            }
        }
        // Results are put together next, and a large machine needs the room for them.
        self.units = Vec::new();
        self.processors = Vec::new();
        self.schedulers = Vec::new();
    }

    // ---- names --------------------------------------------------------------------------------------

    fn policy(&self, scheduler: SchedulerIx) -> &'static PolicyInfo {
        match scheduler.index().checked_sub(self.host.pools.len()) {
            Some(domain) => self.host.domains[domain].guest.info,
            None => self.policies[scheduler.index()],
        }
    }

    fn unit_name(&self, unit: UnitIx) -> String {
        names::unit(self.host, unit)
    }

    fn processor_name(&self, processor: ProcessorIx) -> String {
        names::processor(self.host, processor)
    }

    /// Notes the first violation, with what led to it.
    #[cold]
    fn violated(&mut self, what: &str) {
        if self.violation.is_some() {
            return;
        }
        let mut report = format!("invariant violated at {} ns: {what}\nlast decisions:", self.now.as_ns());
        let shown = (self.decisions as usize).min(SHOWN);
        for back in (1..=shown).rev() {
            let (at, processor, run) = self.ring[(self.decisions as usize - back) % SHOWN];
            let Some(scheduler) = names::scheduler_at(self.host, processor) else { continue };
            let run = match run {
                Run::Idle => "idle".to_string(),
                Run::IdleFor(id) => format!("idle for {}", self.name_of_id(scheduler, id)),
                Run::Unit(id) => self.name_of_id(scheduler, id),
            };
            let (policy, processor) = (self.policy(scheduler).name, self.processor_name(processor));
            let _ = write!(report, "\n  {:>15} ns  {processor} ({policy}): {run}", at.as_ns());
        }
        self.violation = Some(report);
    }

    /// The unit that a policy calls `id`: policies number their units in the host's order.
    fn name_of_id(&self, scheduler: SchedulerIx, id: UnitId) -> String {
        let units = (0..self.units.len() as u32).map(UnitIx);
        let unit = units.filter(|&unit| names::scheduler_of(self.host, unit) == scheduler).nth(id.index());
        unit.map_or_else(|| format!("unknown {id:?}"), |unit| self.unit_name(unit))
    }
}

impl Observer for Checker<'_> {
    const STEPS: bool = false;

    #[inline(always)]
    fn observe(&mut self, now: Instant, event: Event<'_>) {
        match event {
            Event::Instant => self.instant(now),
            Event::Timer { scheduler } | Event::Adjusted { scheduler, .. } => self.timer(scheduler),
            Event::Replaced { scheduler, policy, .. } => self.replaced(scheduler, policy),
            Event::Wake { unit, scheduler } => self.wake(unit, scheduler),
            Event::Sleep { unit, scheduler } => self.sleep(unit, scheduler),
            Event::Asleep { unit } => self.asleep(unit),
            Event::Asked { processor } => self.processors[processor.index()].asked = true,
            Event::Picked { processor, scheduler, slice } => self.picked(now, processor, scheduler, slice),
            Event::Slice { processor, occupant, from, start } => {
                self.slice(now, processor, occupant, (from, start));
            }
            Event::KernelRan { unit, ran } => self.kernel_ran(unit, ran),
            Event::Settled { scheduler } => self.settled(scheduler),
            Event::Locked { task, resource } => self.held(resource, None, Some(task)),
            Event::Unlocked { task, resource } => self.held(resource, Some(task), None),
            Event::Blocked { task, .. } => self.blocked(task),
            Event::Packet(event) => {
                if let Err(what) = self.packets.judge(self.host, &event) {
                    self.violated(&what);
                }
            }
            Event::Accounted { processor, busy, idle, overhead } => {
                self.accounted(processor, busy + idle + overhead);
            }
            Event::End => self.end(),
            _ => {}
        }
    }

    #[inline]
    fn stops(&self) -> bool {
        self.violation.is_some()
    }

    fn verdict(&mut self) -> Option<String> {
        self.violation.take()
    }
}
