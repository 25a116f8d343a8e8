//! Blame: the observer that splits the response time of every job into its causes.
//!
//! # Rules
//! A job's time runs from its release to its completion; if a packet released it, from the creation of the
//! packet, and until it arrived the parts of its way are the causes. At every instant after that:
//!
//! - Its task is picked by its scheduler: what happens to the processor happens to the job. A physical
//!   processor executes it, or an earlier job of the task, after scheduling. A vCPU executes it, or waits
//!   itself, and then the job waits for what the vCPU waits for; while the guest's kernel works on the
//!   network, the job waits for that.
//! - It is not picked and its budget is used up: it waits for budget. A vCPU's budget was used up by the unit
//!   that executed inside it last, or idled away.
//! - It sleeps for a resource of its guest: it waits for the task that holds that, or, while its vCPU does
//!   not execute, for what the vCPU waits for.
//! - It is not picked otherwise: it waits for the unit that has the processor, and if that is a vCPU that
//!   does not execute, for what that vCPU waits for. Of several processors that it may run on, the first that
//!   executes a unit counts.
//!
//! What units and processors are at is written down when it changes, once for each thing that does, and read
//! when a job has finished: what happens to units that wait costs nothing, and where many wait for one
//! processor, what jobs read of it is shared. A unit that is not picked loses
//! its budget only by having executed, and gets some only from a timer of its policy or
//! an event of the host.

mod history;
mod log;
mod open;
mod parts;
mod shared;

use std::collections::VecDeque;

use punctual_model::Host;
use punctual_model::Results;
use punctual_model::host::Work;
use punctual_model::index::TaskIx;
use punctual_model::results::{JobBlame, TaskBlame};
use punctual_sched::{CpuId, CpuSet, Duration, Instant, UnitId};

use crate::names;
use crate::observe::{Event, Observer, Occupant, ProcessorIx, Scheduler, SchedulerIx, UnitIx};
use history::{History, State};
use log::{Sight, ViewIx};
use open::OpenJob;
use parts::{Jobs, Parts};

/// Entries of the history after which it is read for all jobs that are under way, and forgotten.
const HISTORY_MAX: usize = 1 << 14;

/// With this many units, jobs share what they waited for. With 15 units it took 3 to 16 % of a simulation
/// more than it saved, with 300 it saved 5 % (instructions, 23 November 2026).
const SHARED_MIN: usize = 64;

/// Splits response times.
pub struct Blamer<'h> {
    host: &'h Host,
    units: Vec<UnitState>,
    schedulers: Vec<SchedulerState>,
    /// Units that are undecided, and schedulers whose timer has run.
    unsettled: usize,
    /// What each processor does.
    places: Vec<Occupant>,
    /// Views of several processors, and by processor those that it is in and somebody has used.
    wide: Vec<WideView>,
    wide_of: Vec<Vec<u32>>,
    /// By vCPU: who executed inside last; none: its budget idled away.
    last_inside: Vec<UnitIx>,
    history: History,
    history_max: usize,
    /// By task.
    open: Vec<OpenJob>,
    /// By task: its unfinished jobs that a packet released, with the parts of the packet's way.
    ways: Vec<VecDeque<(u64, Vec<Duration>)>>,
    jobs: Jobs,
    /// Of the job that is being explained.
    parts: Parts,
    wrong: Option<String>,
}

struct UnitState {
    /// What its scheduler calls it.
    id: UnitId,
    scheduler: SchedulerIx,
    standing: Standing,
    awake: bool,
    /// Is it among those whose budget was used up?
    listed: bool,
    /// The task that holds the resource for which it sleeps; none otherwise.
    holder: UnitIx,
    allowed: Allowed,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Picked,
    /// It is not, and what it waits for is found out when all decisions of the instant are taken.
    Undecided,
    Waiting,
    Broke,
}

#[derive(Clone, Copy)]
enum Allowed {
    One(ProcessorIx),
    /// Those of a wide view.
    Several(u32),
}

#[derive(Default)]
struct SchedulerState {
    undecided: Vec<UnitIx>,
    /// Units whose budget was used up, and maybe some that have got some since.
    broke: Vec<UnitIx>,
    timer: bool,
}

struct WideView {
    processors: Vec<ProcessorIx>,
    /// Which of them counts; none while no unit uses the view.
    front: Option<usize>,
}

impl<'h> Blamer<'h> {
    /// For a machine that simulates `host`.
    pub fn new(host: &'h Host) -> Self {
        Blamer::with_limits(host, HISTORY_MAX, SHARED_MIN)
    }

    /// As [`Blamer::new`], with the number of changes after which it adds up and forgets, and the number of
    /// units from which on jobs share what they waited for. Parts do not depend on either.
    pub fn with_limits(host: &'h Host, changes_max: usize, shared_min: usize) -> Self {
        let (vcpus, tasks) = (host.vcpus.len(), host.tasks.len());
        let schedulers = host.pools.len() + host.domains.len();
        let processors = host.processors + vcpus;
        let history_max = changes_max.max(8 * (processors + tasks));
        // The last instant may write more than there is room for.
        let room = history_max.min(HISTORY_MAX) + processors;
        let mut blamer = Blamer {
            host,
            units: Vec::with_capacity(vcpus + tasks),
            schedulers: (0..schedulers).map(|_| SchedulerState::default()).collect(),
            unsettled: 0,
            places: vec![Occupant::IDLE; processors],
            wide: Vec::new(),
            wide_of: vec![Vec::new(); processors],
            last_inside: vec![UnitIx::NONE; vcpus],
            history: History::new((host.processors, vcpus, tasks), shared_min, room),
            history_max,
            open: (0..tasks).map(|_| OpenJob::default()).collect(),
            ways: vec![VecDeque::new(); tasks],
            jobs: Jobs::new(tasks),
            parts: Parts::new(vcpus + tasks),
            wrong: None,
        };
        blamer.add_units();
        for processor in 0..processors {
            let sight = Sight { processor: ProcessorIx::new(processor), occupant: Occupant::IDLE };
            blamer.history.views.write(processor, Instant::ZERO, sight);
        }
        blamer
    }

    fn add_units(&mut self) {
        let host = self.host;
        let mut members = vec![Vec::new(); self.schedulers.len()];
        for (pool, members) in host.pools.iter().zip(&mut members) {
            *members = pool.processors.iter().map(|&processor| ProcessorIx::new(processor)).collect();
        }
        for (domain, members) in host.domains.iter().zip(&mut members[host.pools.len()..]) {
            *members = domain.vcpus.clone().map(|v| ProcessorIx::new(host.processors + v)).collect();
        }
        let mut ids = vec![0; members.len()];
        // By scheduler: affinities with their views.
        let mut known: Vec<Vec<(Option<&CpuSet>, Allowed)>> = vec![Vec::new(); members.len()];
        let params = host.vcpus.iter().map(|v| &v.params).chain(host.tasks.iter().map(|t| &t.params));
        for (unit, params) in params.enumerate() {
            let scheduler = names::scheduler_of(host, UnitIx::new(unit));
            let affinity = params.affinity.as_ref();
            let known = &mut known[scheduler.index()];
            let allowed = match known.iter().find(|(of, _)| *of == affinity) {
                Some(&(_, allowed)) => allowed,
                None => {
                    let allowed = self.new_view(&members[scheduler.index()], affinity);
                    known.push((affinity, allowed));
                    allowed
                }
            };
            // Schedulers number their units in the host's order.
            let id = UnitId(ids[scheduler.index()]);
            ids[scheduler.index()] += 1;
            let standing = Standing::Waiting;
            let (awake, listed, holder) = (false, false, UnitIx::NONE);
            self.units.push(UnitState { id, scheduler, standing, awake, listed, holder, allowed });
        }
    }

    fn new_view(&mut self, members: &[ProcessorIx], affinity: Option<&CpuSet>) -> Allowed {
        let may_use = |cpu: usize| affinity.is_none_or(|set| set.contains(CpuId(cpu as u32)));
        let members = members.iter().enumerate().filter(|(cpu, _)| may_use(*cpu));
        let processors: Vec<ProcessorIx> = members.map(|(_, &processor)| processor).collect();
        if let [one] = processors[..] {
            return Allowed::One(one);
        }
        self.wide.push(WideView { processors, front: None });
        self.history.views.add();
        Allowed::Several(self.wide.len() as u32 - 1)
    }

    /// The jobs of a task that finished, and those that did not and missed their deadline, in order.
    pub fn jobs(&self, task: TaskIx) -> Vec<JobBlame> {
        self.jobs.list(self.host, task)
    }

    /// What the jobs of each task add up to.
    pub fn tasks(&mut self) -> Vec<TaskBlame> {
        let tasks = (0..self.host.tasks.len()).map(TaskIx);
        tasks.map(|task| self.jobs.sum(self.host, task, &mut self.parts)).collect()
    }

    /// Adds what the jobs of each task add up to. A task that never ends a job has none.
    pub(crate) fn fill_in(mut self, results: &mut Results) {
        let blame = self.tasks();
        for (task, (result, blame)) in results.tasks.iter_mut().zip(blame).enumerate() {
            result.blame = (!is_hog(self.host, TaskIx(task))).then_some(blame);
        }
    }

    fn unit_of(&self, task: TaskIx) -> UnitIx {
        names::unit_of(self.host, task)
    }

    // ---- units --------------------------------------------------------------------------------------

    fn wake(&mut self, unit: UnitIx) {
        let state = &mut self.units[unit.index()];
        (state.awake, state.holder) = (true, UnitIx::NONE);
        // It may have fallen asleep at this instant, and still be picked.
        if state.standing != Standing::Picked {
            self.leave_open(unit);
        }
    }

    /// The task sleeps for a resource that another one holds.
    fn blocked(&mut self, task: TaskIx, holder: TaskIx) {
        let unit = self.unit_of(task);
        self.units[unit.index()].holder = self.unit_of(holder);
        self.leave_open(unit);
    }

    /// What the unit is at is found out when all decisions are taken.
    fn leave_open(&mut self, unit: UnitIx) {
        let state = &mut self.units[unit.index()];
        if state.standing != Standing::Undecided {
            state.standing = Standing::Undecided;
            self.schedulers[state.scheduler.index()].undecided.push(unit);
            self.unsettled += 1;
        }
    }

    /// What a processor was given takes effect.
    #[inline]
    fn dispatched(&mut self, now: Instant, processor: ProcessorIx, occupant: Occupant) {
        let before = std::mem::replace(&mut self.places[processor.index()], occupant);
        if let Some(unit) = occupant.runs() {
            self.units[unit.index()].standing = Standing::Picked;
            self.history.units.write(unit.index(), now, State::Picked(processor));
        }
        if let Some(unit) = before.runs() {
            self.leave_open(unit);
        }
        self.history.views.write(processor.index(), now, Sight { processor, occupant });
        if !self.wide_of[processor.index()].is_empty() {
            self.change_wide_views(now, processor);
        }
    }

    /// Budgets may have grown.
    #[inline]
    fn timer(&mut self, scheduler: SchedulerIx) {
        let state = &mut self.schedulers[scheduler.index()];
        if !state.broke.is_empty() && !std::mem::replace(&mut state.timer, true) {
            self.unsettled += 1;
        }
    }

    /// Is there anything to find out of the scheduler's units? Most of what is settled changes nothing.
    #[inline(always)]
    fn is_unsettled(&self, scheduler: SchedulerIx) -> bool {
        let state = &self.schedulers[scheduler.index()];
        self.unsettled != 0 && (state.timer || !state.undecided.is_empty())
    }

    /// All decisions of the instant are taken: what are the units of the scheduler at that have no
    /// processor?
    fn settled(&mut self, now: Instant, scheduler: Scheduler<'_>) {
        let state = &mut self.schedulers[scheduler.ix.index()];
        if std::mem::take(&mut state.timer) {
            self.unsettled -= 1;
            self.look_at_budgets(scheduler);
        }
        self.unsettled -= self.schedulers[scheduler.ix.index()].undecided.len();
        while let Some(unit) = self.schedulers[scheduler.ix.index()].undecided.pop() {
            let state = &mut self.units[unit.index()];
            if state.standing == Standing::Undecided {
                state.standing = Standing::Waiting;
                if state.awake {
                    self.decide(now, scheduler, unit);
                } else if let (Some(holder), Allowed::One(one)) = (state.holder.some(), state.allowed) {
                    self.history.units.write(unit.index(), now, State::Blocked(ViewIx(one.0), holder));
                }
            }
        }
    }

    /// Which of the units whose budget was used up have got some?
    fn look_at_budgets(&mut self, scheduler: Scheduler<'_>) {
        let of = &mut self.schedulers[scheduler.ix.index()];
        let mut at = 0;
        while let Some(&unit) = of.broke.get(at) {
            let state = &mut self.units[unit.index()];
            if state.standing == Standing::Broke && state.awake {
                let account = scheduler.policy.account(state.id);
                if account.left == Some(Duration::ZERO) && !account.may_overrun {
                    at += 1;
                    continue;
                }
                state.standing = Standing::Undecided;
                of.undecided.push(unit);
                self.unsettled += 1;
            }
            state.listed = false;
            of.broke.swap_remove(at);
        }
    }

    /// The unit has work and no processor.
    fn decide(&mut self, now: Instant, scheduler: Scheduler<'_>, unit: UnitIx) {
        let state = &mut self.units[unit.index()];
        let account = scheduler.policy.account(state.id);
        if account.left == Some(Duration::ZERO) && !account.may_overrun {
            state.standing = Standing::Broke;
            if !std::mem::replace(&mut state.listed, true) {
                self.schedulers[scheduler.ix.index()].broke.push(unit);
            }
            let spender = self.spender(unit);
            return self.history.units.write(unit.index(), now, State::Broke(spender));
        }
        let home = account.home.and_then(|cpu| scheduler.processors.get(cpu.index()));
        let view = match (home, state.allowed) {
            (Some(&one), _) | (None, Allowed::One(one)) => ViewIx(one.0),
            (None, Allowed::Several(wide)) => self.wide_view(now, wide),
        };
        self.history.units.write(unit.index(), now, State::Waits(view));
    }

    /// Who used the last of the unit's budget; none: it idled away.
    fn spender(&self, unit: UnitIx) -> UnitIx {
        let mut spender = unit;
        while let Some(&inside) = self.last_inside.get(spender.index()) {
            // The kernel of a guest is an entry of its own, in the last place.
            if inside == spender {
                break;
            }
            spender = inside;
        }
        spender
    }

    // ---- views of several processors ----------------------------------------------------------------

    /// A unit looks at the view.
    fn wide_view(&mut self, now: Instant, wide: u32) -> ViewIx {
        let view = ViewIx(self.places.len() as u32 + wide);
        let state = &mut self.wide[wide as usize];
        if state.front.is_none() {
            for processor in &state.processors {
                self.wide_of[processor.index()].push(wide);
            }
            self.write_front(now, wide);
        }
        view
    }

    /// A processor does something else: which views does that change?
    fn change_wide_views(&mut self, now: Instant, processor: ProcessorIx) {
        for at in 0..self.wide_of[processor.index()].len() {
            let wide = self.wide_of[processor.index()][at];
            let view = &self.wide[wide as usize];
            let front = view.front.unwrap_or_default();
            let executes = |at: usize| self.places[view.processors[at].index()].runs().is_some();
            // Those that come after the first that executes don't count.
            if !executes(front) || view.processors[..=front].contains(&processor) {
                self.write_front(now, wide);
            }
        }
    }

    /// The first processor that executes a unit counts, and the first of all if none does.
    fn write_front(&mut self, now: Instant, wide: u32) {
        let view = &mut self.wide[wide as usize];
        let executes = |processor: &ProcessorIx| self.places[processor.index()].runs().is_some();
        let front = view.processors.iter().position(executes).unwrap_or(0);
        view.front = Some(front);
        let Some(&processor) = view.processors.get(front) else { return };
        let sight = Sight { processor, occupant: self.places[processor.index()] };
        self.history.views.write(self.places.len() + wide as usize, now, sight);
    }

    // ---- jobs ---------------------------------------------------------------------------------------

    fn release(&mut self, now: Instant, task: TaskIx, number: u64, way: &[Duration]) {
        if !way.is_empty() {
            self.ways[task.0].push_back((number, way.to_vec()));
        }
        let unit = self.unit_of(task);
        let job = &mut self.open[task.0];
        if job.is_open {
            job.queue(&mut self.history, unit, now, number, &mut self.parts);
        }
    }

    fn begin(&mut self, now: Instant, task: TaskIx, number: u64) {
        if !is_hog(self.host, task) {
            self.open[task.0].begin(now, number);
        }
    }

    fn finish(&mut self, now: Instant, task: TaskIx, (number, mut release): (u64, Instant), missed: bool) {
        let unit = self.unit_of(task);
        self.open[task.0].finish(&mut self.history, unit, now, number, &mut self.parts);
        if let Some((_, way)) = self.ways[task.0].pop_front_if(|(of, _)| *of == number) {
            // It begins where the packet was created.
            self.parts.add_way(&way);
            release = Instant::from_ns(release.as_ns() - way.iter().copied().sum::<Duration>().as_ns());
        }
        let response = now.since(release);
        let total = self.parts.total();
        if total != response && self.wrong.is_none() {
            let name = names::unit(self.host, unit);
            self.wrong = Some(format!(
                "at {} ns: the causes of job {number} of {name} add up to {total}, it took {response}",
                now.as_ns()
            ));
        }
        self.jobs.add(task, (number, release), (response, missed), &self.parts);
    }

    /// Reads the history for the jobs that are under way, and forgets it.
    #[cold]
    fn shorten_history(&mut self, now: Instant) {
        for task in 0..self.open.len() {
            let unit = self.unit_of(TaskIx(task));
            if self.open[task].is_open {
                self.open[task].explain(&mut self.history, unit, now, &mut self.parts);
            }
        }
        self.history.forget();
    }

    /// A processor did something: who used a vCPU's budget last?
    #[inline]
    fn slice(&mut self, processor: ProcessorIx, occupant: Occupant) {
        if let Some(vcpu) = processor.index().checked_sub(self.host.processors) {
            if let Some(unit) = occupant.runs() {
                self.last_inside[vcpu] = unit;
            }
        } else if occupant.runs().is_none()
            && let Some(idled) = occupant.charged()
            && let Some(last) = self.last_inside.get_mut(idled.index())
        {
            *last = UnitIx::NONE;
        }
    }
}

fn is_hog(host: &Host, task: TaskIx) -> bool {
    matches!(host.tasks[task.0].work, Work::Hog { .. })
}

impl Observer for Blamer<'_> {
    const STEPS: bool = false;

    #[inline(always)]
    fn observe(&mut self, now: Instant, event: Event<'_>) {
        match event {
            Event::Instant if self.history.len() > self.history_max => self.shorten_history(now),
            Event::Wake { unit, .. } => self.wake(unit),
            Event::Sleep { unit, .. } => self.units[unit.index()].awake = false,
            Event::Dispatched { processor, occupant, changed, start } => {
                if changed {
                    self.dispatched(now, processor, occupant);
                }
                if start > now
                    && processor.index() < self.host.processors
                    && let Some(unit) = occupant.runs()
                {
                    self.history.add_switch(unit, now, start);
                }
            }
            Event::Slice { processor, occupant, .. } => self.slice(processor, occupant),
            // The kernel is no sibling of a task, but it belongs to the guest.
            Event::KernelRan { unit, ran } if !ran.is_zero() => self.last_inside[unit.index()] = unit,
            Event::KernelBusy { unit } => self.history.set_kernel(unit, now, true),
            Event::KernelIdle { unit, .. } => self.history.set_kernel(unit, now, false),
            Event::Timer { scheduler } | Event::Adjusted { scheduler, .. } => self.timer(scheduler),
            Event::Replaced { scheduler, .. } => self.timer(scheduler.ix),
            Event::Release { task, job, way, .. } => self.release(now, task, job, way),
            Event::Begin { task, job, .. } => self.begin(now, task, job),
            Event::Finish { task, job, release, deadline } => {
                self.finish(now, task, (job, release), now > deadline);
            }
            Event::Overdue { task, job, release } => self.finish(now, task, (job, release), true),
            Event::Blocked { task, holder } => self.blocked(task, holder),
            Event::Settled { scheduler } if self.is_unsettled(scheduler.ix) => self.settled(now, scheduler),
            _ => {}
        }
    }

    fn verdict(&mut self) -> Option<String> {
        self.wrong.take()
    }
}
