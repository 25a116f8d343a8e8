//! A reference driver for policy tests: one level, `m` processors, units with scripted demands.
//!
//! It is a [`punctual_sched::Driver`] with work for its units, so it keeps to the contract of
//! [`punctual_sched::policy`] and to no more than that. It picks on every processor in `resched` and at every
//! slice end, at the same instant. At one instant the order is: completions (sleep), timers, releases (wake),
//! picks; repeated until nothing is left to do.
//!
//! Every run is checked: see `Driver::check_instant` and `Driver::check_slice`. Policies that it builds by
//! name are checked against the whole contract, that charged time is elapsed time among it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::ops::{Deref, DerefMut};

use punctual_sched::contract::{Charges, checked, in_turns, in_vm_servers};
use punctual_sched::registry::{self, Options, PolicyInfo, WorkConservation};
use punctual_sched::{CpuId, CpuSet, Duration, Instant, ParamError, Policy, Run, Slice};
use punctual_sched::{Running, UnitId, UnitParams};

/// More iterations than this at one instant means that policy and driver chase each other.
const ITERATIONS_PER_INSTANT_MAX: usize = 10_000;
/// The same for picks.
const PICKS_PER_INSTANT_MAX: u64 = 10_000;

/// The most processors that affinities of tests know of.
pub const CPUS_MAX: usize = 8;

/// `ms` milliseconds after the origin.
pub fn at_ms(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_ms(ms)
}

/// `us` microseconds after the origin.
pub fn at_us(us: u64) -> Instant {
    Instant::ZERO + Duration::from_us(us)
}

/// The parameters of a unit that may run on these processors only.
pub fn bound(params: UnitParams, cpus: &[u32]) -> UnitParams {
    let mut set = CpuSet::new(CPUS_MAX);
    cpus.iter().for_each(|&cpu| set.insert(CpuId(cpu)));
    UnitParams { affinity: Some(set), ..params }
}

/// Parameters of a server: budget and period in milliseconds, and the priority.
pub fn server_ms(budget_ms: u64, period_ms: u64, priority: u32) -> UnitParams {
    UnitParams {
        budget: Some(Duration::from_ms(budget_ms)),
        period: Some(Duration::from_ms(period_ms)),
        priority: Some(priority),
        ..UnitParams::default()
    }
}

/// What a processor did from `from` to `to`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The processor.
    pub cpu: CpuId,
    /// What it did.
    pub run: Run,
    /// Its begin.
    pub from: Instant,
    /// Its end.
    pub to: Instant,
}

/// A job that was finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Whose job it was.
    pub unit: UnitId,
    /// When it was released.
    pub release: Instant,
    /// When it was finished.
    pub at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    release: Instant,
    remaining: Duration,
    deadline: Option<Instant>,
}

#[derive(Default)]
struct Work {
    jobs: VecDeque<Job>,
    awake: bool,
    affinity: Option<CpuSet>,
    /// The VM whose budget it shares: one of its vCPUs runs at a time.
    server: Option<u32>,
}

/// The driver; owns the policy, the processors and the units' work.
pub struct Driver<P: Policy + ?Sized = dyn Policy> {
    machine: punctual_sched::Driver<P>,
    /// The end of each processor's slice.
    until: Vec<Instant>,
    units: BTreeMap<UnitId, Work>,
    /// Releases to come, in order of time and then of the order in which they were scripted.
    releases: BTreeMap<(Instant, u64), (UnitId, Job)>,
    scripted: u64,
    conservation: WorkConservation,
    /// What the processors did, in order of time.
    pub gantt: Vec<Span>,
    /// The jobs that were finished, in order of time.
    pub completions: Vec<Completion>,
    /// How often the policy picked.
    pub picks: u64,
    /// What `picks` was when time last passed.
    picks_before: u64,
}

impl Driver {
    /// Drives the policy called `name` on `cpus` processors.
    pub fn named(name: &str, cpus: usize, options: &Options) -> Self {
        let info = registry::find(name).unwrap_or_else(|| panic!("no policy is called {name}"));
        Driver::of(info, cpus, options).expect("options are accepted")
    }

    /// Drives a policy on `cpus` processors; `None` when it refuses the options.
    pub fn of(info: &PolicyInfo, cpus: usize, options: &Options) -> Option<Self> {
        let policy = (info.construct)(cpus, options).ok()?;
        Some(Driver::new(checked(policy, cpus, Charges::Elapsed), cpus, info.work_conservation))
    }

    /// The same, with vCPUs of a VM that take turns.
    pub fn in_turns(info: &PolicyInfo, cpus: usize, options: &Options) -> Option<Self> {
        let policy = checked((info.construct)(cpus, options).ok()?, cpus, Charges::Elapsed);
        Some(Driver::new(in_turns(policy, cpus, Charges::Elapsed), cpus, info.work_conservation))
    }

    /// The same, with VMs whose vCPUs share a budget as well.
    pub fn in_vm_servers(info: &PolicyInfo, cpus: usize, options: &Options) -> Option<Self> {
        let policy = checked((info.construct)(cpus, options).ok()?, cpus, Charges::Elapsed);
        Some(Driver::new(in_vm_servers(policy, cpus, Charges::Elapsed), cpus, info.work_conservation))
    }
}

impl<P: Policy + ?Sized> Deref for Driver<P> {
    type Target = punctual_sched::Driver<P>;
    fn deref(&self) -> &Self::Target {
        &self.machine
    }
}

impl<P: Policy + ?Sized> DerefMut for Driver<P> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.machine
    }
}

impl<P: Policy + ?Sized> Driver<P> {
    /// Drives `policy` on `cpus` processors and holds it to `conservation`.
    pub fn new(policy: Box<P>, cpus: usize, conservation: WorkConservation) -> Self {
        let mut machine = punctual_sched::Driver::new(policy, cpus);
        machine.state.resched = CpuSet::all(cpus);
        Driver {
            machine,
            until: vec![Instant::NEVER; cpus],
            units: BTreeMap::new(),
            releases: BTreeMap::new(),
            scripted: 0,
            conservation,
            gantt: Vec::new(),
            completions: Vec::new(),
            picks: 0,
            picks_before: 0,
        }
    }

    /// What each processor does, by the last decision.
    pub fn slices(&self) -> impl Iterator<Item = Slice> + '_ {
        let slices = self.state.processors.iter().zip(&self.until);
        slices.map(|(processor, &until)| Slice { run: processor.run, until })
    }

    /// Inserts a unit now.
    pub fn insert(&mut self, params: &UnitParams) -> UnitId {
        let unit = self.try_insert(params);
        unit.unwrap_or_else(|error| panic!("{params:?}: {error}"))
    }

    /// Inserts a unit now, or says why not.
    pub fn try_insert(&mut self, params: &UnitParams) -> Result<UnitId, ParamError> {
        let unit = self.machine.insert(params)?;
        let server = params.vm.filter(|_| params.shares_budget);
        let work = Work { affinity: params.affinity.clone(), server, ..Work::default() };
        let old = self.units.insert(unit, work);
        assert!(old.is_none(), "{unit:?} was given out twice");
        Ok(unit)
    }

    /// Removes a unit now; its work is forgotten. The picks that this asks for are left to
    /// [`Driver::settle`].
    pub fn remove(&mut self, unit: UnitId) {
        let cpu = self.cpu_of(unit);
        self.machine.remove(unit);
        assert!(cpu.is_none_or(|cpu| self.state.resched.contains(cpu)), "{cpu:?} ran {unit:?}, removed");
        self.units.remove(&unit);
        self.releases.retain(|_, (of, _)| *of != unit);
    }

    /// Drops the jobs of a unit that are released, wherever it is: it goes to sleep before its work is done.
    pub fn cancel(&mut self, unit: UnitId) {
        let work = self.work(unit);
        work.jobs.clear();
        if !std::mem::take(&mut work.awake) {
            return;
        }
        self.fall_asleep(unit);
    }

    fn fall_asleep(&mut self, unit: UnitId) {
        let cpu = self.cpu_of(unit);
        self.machine.sleep(unit);
        assert!(cpu.is_none_or(|cpu| self.state.resched.contains(cpu)), "{cpu:?} runs {unit:?}, asleep");
    }

    /// Changes a unit's parameters now. The picks that this asks for are left to [`Driver::settle`].
    pub fn adjust(&mut self, unit: UnitId, params: &UnitParams) -> Result<(), ParamError> {
        self.machine.adjust(unit, params)?;
        self.work(unit).affinity = params.affinity.clone();
        Ok(())
    }

    /// Scripts a job of `unit`: released at `at` (not before now), `demand` long.
    pub fn release(&mut self, unit: UnitId, at: Instant, demand: Duration) {
        self.script(unit, at, demand, None);
    }

    /// As [`Driver::release`], with an absolute deadline that is passed on to the policy.
    pub fn release_due(&mut self, unit: UnitId, at: Instant, demand: Duration, deadline: Instant) {
        self.script(unit, at, demand, Some(deadline));
    }

    /// Scripts a job every `period` from `first` up to, not including, `end`.
    pub fn periodic(
        &mut self,
        unit: UnitId,
        first: Instant,
        period: Duration,
        demand: Duration,
        end: Instant,
    ) {
        let mut at = first;
        while at < end {
            self.script(unit, at, demand, Some(at + period));
            at += period;
        }
    }

    /// Scripts a job at `at` that never ends.
    pub fn busy(&mut self, unit: UnitId, at: Instant) {
        self.script(unit, at, Duration::MAX, None);
    }

    fn script(&mut self, unit: UnitId, at: Instant, demand: Duration, deadline: Option<Instant>) {
        assert!(at >= self.now() && !demand.is_zero());
        let job = Job { release: at, remaining: demand, deadline };
        self.releases.insert((at, self.scripted), (unit, job));
        self.scripted += 1;
    }

    /// Runs until `end`, the events at `end` included.
    pub fn run_until(&mut self, end: Instant) {
        while self.step(end) {}
    }

    /// Does what is due now, then runs until the next event, or until `end` if there is none up to then.
    pub fn step(&mut self, end: Instant) -> bool {
        self.settle();
        let next = self.next_event().min(self.policy.next_timer().at);
        self.advance(next.min(end));
        next <= end
    }

    /// Runs until the next event, timers aside, or until `end` if there is none up to then, and does nothing
    /// there: whatever is called next finds timers overdue.
    pub fn run_past_timers(&mut self, end: Instant) {
        self.settle();
        self.advance(self.next_event().min(end));
    }

    /// The earliest instant at which anything but a timer is due.
    fn next_event(&self) -> Instant {
        let release = self.releases.keys().next().map(|&(at, _)| at);
        let mut next = release.unwrap_or(Instant::NEVER);
        for slice in self.slices() {
            next = next.min(slice.until);
            if let Run::Unit(unit) = slice.run {
                next = next.min(self.now() + self.units[&unit].jobs[0].remaining);
            }
        }
        next
    }

    /// Lets the processors do what they do until `to`.
    fn advance(&mut self, to: Instant) {
        let from = self.now();
        let dt = to.since(from);
        if dt.is_zero() {
            return;
        }
        for (cpu, processor) in self.machine.state.processors.iter().enumerate() {
            let (cpu, run) = (CpuId(cpu as u32), processor.run);
            if let Run::Unit(unit) = run {
                let job = &mut self.units.get_mut(&unit).expect("it runs").jobs[0];
                if job.remaining != Duration::MAX {
                    job.remaining -= dt;
                }
            }
            let last = self.gantt.iter_mut().rev().find(|span| span.cpu == cpu);
            match last {
                Some(span) if span.run == run && span.to == from => span.to = to,
                _ => self.gantt.push(Span { cpu, run, from, to }),
            }
        }
        self.machine.pass(to);
        self.picks_before = self.picks;
    }

    /// Does everything that is due at this instant.
    pub fn settle(&mut self) {
        for _ in 0..ITERATIONS_PER_INSTANT_MAX {
            let mut busy = self.complete();
            busy |= self.fire_timers();
            busy |= self.release_due_jobs();
            busy |= self.pick_where_asked();
            if !busy {
                self.check_instant();
                return;
            }
        }
        panic!("{}: the policy does not come to rest", self.now());
    }

    fn complete(&mut self) -> bool {
        let mut any = false;
        for cpu in 0..self.until.len() {
            let Run::Unit(unit) = self.state.processors[cpu].run else {
                continue;
            };
            let now = self.now();
            let work = self.work(unit);
            if !work.awake || !work.jobs[0].remaining.is_zero() {
                continue;
            }
            any = true;
            let done = work.jobs.pop_front().expect("checked above");
            let next = work.jobs.front().copied();
            work.awake = next.is_some();
            self.completions.push(Completion { unit, release: done.release, at: now });
            match next {
                Some(job) => self.announce_deadline(unit, &job),
                None => self.fall_asleep(unit),
            }
        }
        any
    }

    fn announce_deadline(&mut self, unit: UnitId, job: &Job) {
        if let Some(deadline) = job.deadline {
            self.machine.set_deadline(unit, deadline);
        }
    }

    fn fire_timers(&mut self) -> bool {
        // A test may have called the policy itself.
        self.machine.refresh_timer();
        let mut any = false;
        for _ in 0..ITERATIONS_PER_INSTANT_MAX {
            if !self.machine.on_timer() {
                return any;
            }
            any = true;
        }
        panic!("{}: timers never end", self.now());
    }

    fn release_due_jobs(&mut self) -> bool {
        let mut any = false;
        while let Some(entry) = self.releases.first_entry() {
            if entry.key().0 > self.machine.now() {
                break;
            }
            any = true;
            let (unit, job) = entry.remove();
            let work = self.work(unit);
            work.jobs.push_back(job);
            if !work.awake {
                work.awake = true;
                self.announce_deadline(unit, &job);
                self.machine.wake(unit);
            }
        }
        any
    }

    fn pick_where_asked(&mut self) -> bool {
        let now = self.now();
        for (cpu, _) in self.until.iter().enumerate().filter(|(_, until)| **until <= now) {
            self.machine.state.resched.insert(CpuId(cpu as u32));
        }
        let mut any = false;
        while let Some(cpu) = self.machine.take_resched() {
            any = true;
            self.pick(cpu);
        }
        any
    }

    /// Picks on `cpu` alone, whether it was asked to or not, after the releases of this instant.
    pub fn pick_early(&mut self, cpu: CpuId) {
        self.release_due_jobs();
        self.pick(cpu);
    }

    fn pick(&mut self, cpu: CpuId) {
        let slice = self.machine.pick(cpu);
        self.check_slice(cpu, &slice);
        self.until[cpu.index()] = slice.until;
        self.picks += 1;
        let here = self.picks - self.picks_before;
        assert!(here <= PICKS_PER_INSTANT_MAX, "{}: picks never end", self.now());
    }

    /// What `pick` may never answer.
    fn check_slice(&self, cpu: CpuId, slice: &Slice) {
        let now = self.now();
        assert!(slice.until > now, "{now} {cpu:?}: {slice:?} ends at once");
        let Some(unit) = slice.run.charged() else {
            return;
        };
        let has = |processor: &&Running| processor.run.charged() == Some(unit);
        let processors = self.state.processors.iter().filter(has).count();
        assert_eq!(processors, 1, "{now} {cpu:?}: {unit:?} runs already");
        let work = &self.units[&unit];
        let affinity = work.affinity.as_ref();
        assert!(affinity.is_none_or(|set| set.contains(cpu)), "{now}: {unit:?} may not run on {cpu:?}");
        let awake = matches!(slice.run, Run::Unit(_));
        assert_eq!(work.awake, awake, "{now} {cpu:?}: {slice:?}");
        let account = self.policy.account(unit);
        assert!(
            account.left != Some(Duration::ZERO) || account.may_overrun,
            "{now} {cpu:?}: {unit:?} has no budget: {account:?}"
        );
    }

    /// What must hold whenever an instant is over.
    fn check_instant(&self) {
        for &unit in self.units.keys() {
            let account = self.policy.account(unit);
            assert!(
                account.left.unwrap_or_default() <= account.max.unwrap_or(Duration::MAX),
                "{}: {unit:?} holds too much: {account:?}",
                self.now()
            );
        }
        self.check_conservation();
    }

    /// Has it a processor, or another vCPU with the same budget?
    fn has_processor(&self, unit: UnitId) -> bool {
        let server = self.units[&unit].server;
        let shares = |other: &UnitId| server.is_some() && self.units[other].server == server;
        let mut running = self.state.processors.iter().filter_map(|processor| processor.run.charged());
        running.any(|other| other == unit || shares(&other))
    }

    /// No processor idles while a unit that is eligible there ([`Policy::ranking`]) and has work waits.
    /// (A partitioned policy ranks a unit on its home processor only.)
    fn check_conservation(&self) {
        if self.conservation == WorkConservation::Never {
            return;
        }
        let mut ranking = Vec::new();
        for (cpu, processor) in self.state.processors.iter().enumerate() {
            if processor.run != Run::Idle {
                continue;
            }
            ranking.clear();
            self.policy.ranking(CpuId(cpu as u32), &mut ranking);
            for unit in &ranking {
                assert!(
                    !self.units[unit].awake || self.has_processor(*unit),
                    "{}: processor {cpu} idles though {unit:?} waits",
                    self.now()
                );
            }
        }
    }

    fn work(&mut self, unit: UnitId) -> &mut Work {
        self.units.get_mut(&unit).expect("the unit is inserted")
    }

    /// Does `unit` have work?
    pub fn is_awake(&self, unit: UnitId) -> bool {
        self.units[&unit].awake
    }

    /// The inserted units, lowest id first.
    pub fn units(&self) -> Vec<UnitId> {
        self.units.keys().copied().collect()
    }

    /// How long `unit` ran (not: idled) in `[from, to)`.
    pub fn executed(&self, unit: UnitId, from: Instant, to: Instant) -> Duration {
        self.spans_of(Run::Unit(unit), from, to)
    }

    /// How long `unit` ran or idled away in `[from, to)`.
    pub fn supplied(&self, unit: UnitId, from: Instant, to: Instant) -> Duration {
        self.executed(unit, from, to) + self.spans_of(Run::IdleFor(unit), from, to)
    }

    fn spans_of(&self, run: Run, from: Instant, to: Instant) -> Duration {
        let of_run = self.gantt.iter().filter(|span| span.run == run);
        of_run.fold(Duration::ZERO, |sum, span| sum + span.to.min(to).since(span.from.max(from)))
    }

    /// When the jobs of `unit` were finished, in order.
    pub fn completions_of(&self, unit: UnitId) -> Vec<Instant> {
        let of_unit = self.completions.iter().filter(|done| done.unit == unit);
        of_unit.map(|done| done.at).collect()
    }

    /// What `cpu` did, in units of `tick`: `0:0-2 1:2-5 (0):5-6 -:6-10` is unit 0, unit 1, idle for unit 0,
    /// idle. Times that are no multiple of `tick` are shown in full.
    pub fn timeline(&self, cpu: u32, tick: Duration) -> String {
        let mut text = String::new();
        let show = |at: Instant| match at.as_ns() % tick.as_ns() {
            0 => (at.as_ns() / tick.as_ns()).to_string(),
            _ => at.since(Instant::ZERO).to_string(),
        };
        for span in self.gantt.iter().filter(|span| span.cpu == CpuId(cpu)) {
            let who = match span.run {
                Run::Unit(unit) => unit.0.to_string(),
                Run::IdleFor(unit) => format!("({})", unit.0),
                Run::Idle => "-".to_string(),
            };
            let space = if text.is_empty() { "" } else { " " };
            write!(text, "{space}{who}:{}-{}", show(span.from), show(span.to)).expect("a string");
        }
        text
    }
}
