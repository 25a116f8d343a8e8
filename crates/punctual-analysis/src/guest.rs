//! What is inside a vCPU: its tasks by urgency, and their response times given what the vCPU supplies.

use std::collections::BTreeMap;

use punctual_model::guarantees::Dominant;
use punctual_model::host::{Arrival, Work};
use punctual_model::index::TaskIx;

use crate::demand::{Demand, utilization_at_most};
use crate::edf;
use crate::fixed_priority::{self, Member, Parts, Server};
use crate::host::{Analysis, Cap, Service, Unit, only_processor};
use crate::overhead::Decisions;
use crate::packet_path::busy;
use crate::report::{CounterExample, greatest};
use crate::supply::Supply;

/// How many jobs a counter-example is looked for in when more is asked for than is supplied in the long run.
const JOBS_MAX: u64 = 2_000;

/// The same when only a burst can be too much.
const BURST_MAX: u64 = 4;

/// A task under fixed priorities on every level down to it: each level's priority and the unit that has it.
#[derive(Clone, Debug)]
pub(crate) struct Ranked {
    pub(crate) who: Who,
    path: Vec<(i64, Unit)>,
}

/// Who works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    Task(usize),
    /// The kernel of a guest, on this vCPU.
    Kernel(usize),
}

/// More urgent than every priority: interrupt context.
const INTERRUPTS: i64 = -1;

/// How urgent another task is beside one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Beside {
    MoreUrgent,
    /// Served in the order of arrival.
    Equal,
    LessUrgent,
}

impl Ranked {
    /// A task that is alone.
    fn alone(task: usize) -> Self {
        Ranked { who: Who::Task(task), path: Vec::new() }
    }

    fn task(&self) -> Option<usize> {
        match self.who {
            Who::Task(task) => Some(task),
            Who::Kernel(_) => None,
        }
    }

    /// How urgent `self` is beside `other`: the first level at which they are different units decides.
    fn beside(&self, other: &Ranked) -> Beside {
        match self.first_difference(other).map(|(_, order)| order) {
            Some(std::cmp::Ordering::Less) => Beside::MoreUrgent,
            Some(std::cmp::Ordering::Greater) => Beside::LessUrgent,
            _ => Beside::Equal,
        }
    }

    /// The first level at which both are different units, and the order of these.
    fn first_difference(&self, other: &Ranked) -> Option<(usize, std::cmp::Ordering)> {
        let differ = |((_, a), (_, b)): &(&(i64, Unit), &(i64, Unit))| a != b;
        let level = self.path.iter().zip(&other.path).position(|pair| differ(&pair))?;
        Some((level, self.path[level].0.cmp(&other.path[level].0)))
    }

    /// The outermost level at which another unit has the priority of this task's. Equals are served in the
    /// order of arrival, so there even less urgent tasks of the same vCPU delay the other vCPU, which then
    /// delays this task.
    fn shared_level(&self, all: &[Ranked]) -> Option<usize> {
        let shared = |other: &Ranked| match self.first_difference(other) {
            Some((level, std::cmp::Ordering::Equal)) => Some(level),
            _ => None,
        };
        all.iter().filter_map(shared).min()
    }
}

/// What is inside a unit.
pub(crate) enum Content {
    /// Preemptive fixed priorities, also of nested guests.
    Ranked(Vec<Ranked>),
    /// Earliest deadline first.
    Edf(Vec<usize>),
}

impl Content {
    pub(crate) fn tasks(&self) -> Vec<usize> {
        match self {
            Content::Ranked(ranked) => ranked.iter().filter_map(Ranked::task).collect(),
            Content::Edf(tasks) => tasks.clone(),
        }
    }
}

/// What a unit supplies to those inside it.
pub(crate) enum Supplier {
    /// A fixed-priority server with replenishments at multiples of its period.
    Server(Server),
    /// Anything with a supply bound function.
    Supply(Supply),
}

const BUDGETS: &str = "budgets up to a deadline";
const NESTED: &str = "a vCPU inside an EDF guest has no supply bound";
const SEVERAL: &str = "tasks may move between the guest's vCPUs, and a guest does not see which of them have budget; pin \
                       each task to one (`affinity`) for a bound";
const STARVED: &str = "a busy loop is as urgent or more and never ends";
const STARVED_EQUAL: &str = "a busy loop of equal priority may run first and never ends";
const BESIDE_PACKETS: &str = "packets take time of this vCPU ahead of its tasks, which is counted for guests under fixed \
                              priorities only";
const NO_RATE: &str = "nothing bounds how often its packets come";
const BESIDE_SERVED: &str = "tasks that packets release are counted under fixed priorities only";
const BELOW_PACKETS: &str =
    "a task that is as urgent or more is released by packets, and nothing bounds how often";
const BEYOND_BUSY: &str = "the work that may come before its own does not end in time for a bound";
const BEYOND_PERIOD: &str = "the bound found is beyond the period, where the test does not reach";
const BEYOND_DEADLINE: &str = "the bound found is beyond the deadline; the test is sufficient only";

impl Analysis<'_> {
    /// What is inside a pool's or a guest's unit.
    pub(crate) fn content(&self, unit: Unit) -> Result<Content, String> {
        let v = match unit {
            Unit::Task(t) => return Ok(Content::Ranked(vec![Ranked::alone(t)])),
            Unit::Vcpu(v) => v,
        };
        let domain = &self.host.domains[self.host.vcpus[v].domain.0];
        let units = &self.index.in_domain[self.host.vcpus[v].domain.0];
        let cpu = v - domain.vcpus.start;
        let mut here = Vec::new();
        for unit in units.all() {
            match only_processor(self.params(unit).affinity.as_ref(), domain.vcpus.len()) {
                Some(only) if only == cpu => here.push(unit),
                Some(_) => {}
                None => return Err(SEVERAL.into()),
            }
        }
        let kernel = self.kernel(v);
        match domain.guest.info.name {
            "fixed-priority" => {
                let mut ranked = self.ranked(&here)?;
                let work = kernel.map(|_| Ranked { who: Who::Kernel(v), path: vec![(INTERRUPTS, unit)] });
                ranked.extend(work);
                Ok(Content::Ranked(ranked))
            }
            _ if kernel.is_some_and(|work| !work.is_empty()) => Err(BESIDE_PACKETS.into()),
            "edf" => {
                let task = |unit: &Unit| match unit {
                    Unit::Task(t) => Ok(*t),
                    Unit::Vcpu(_) => Err(NESTED.to_string()),
                };
                here.iter().map(task).collect::<Result<_, _>>().map(Content::Edf)
            }
            name => Err(format!("a guest scheduled by {name} gives its tasks no bound")),
        }
    }

    /// Units under fixed priorities, nested guests spread out.
    pub(crate) fn ranked(&self, units: &[Unit]) -> Result<Vec<Ranked>, String> {
        let mut all = Vec::new();
        for &unit in units {
            let level = (i64::from(self.params(unit).priority.unwrap_or(u32::MAX)), unit);
            let Content::Ranked(inside) = self.content(unit)? else {
                return Err("an EDF guest below fixed priorities without a budget has no supply bound".into());
            };
            all.extend(inside.into_iter().map(|mut ranked| {
                ranked.path.insert(0, level);
                ranked
            }));
        }
        Ok(all)
    }

    /// Is the task released only at multiples of `period`?
    fn bound_to(&self, who: Who, period: u64) -> bool {
        let Who::Task(task) = who else { return false };
        match self.host.tasks[task].work {
            Work::Jobs { arrival: Arrival::Periodic { period: own, offset }, .. } => {
                own.as_ns().is_multiple_of(period) && offset.as_ns().is_multiple_of(period)
            }
            _ => false,
        }
    }

    /// Answers for all tasks inside a unit with this supply and upper limit.
    pub(crate) fn inside(&mut self, content: &Content, supplier: &Supplier, cap: Option<Cap>) {
        // First what is certain; the tests below answer for the rest.
        if let Some(cap) = cap {
            self.refute_inside(content, cap);
        }
        match (content, supplier) {
            (Content::Ranked(tasks), Supplier::Server(server)) => {
                let supply = server.time_for_budget(server.usable).map(|time| delayed(server, time));
                self.ranked_inside(tasks, "Davis & Burns", supply, |analysis, task, urgent, limit| {
                    let member =
                        |who: Who, demand| Member { demand, bound: analysis.bound_to(who, server.period) };
                    let more: Vec<Member> = urgent.iter().map(|(who, d)| member(*who, *d)).collect();
                    let parts = server.response(&member(Who::Task(task.0), task.1), &more, limit)?;
                    Some((parts.total(), dominant_of(&parts)))
                });
            }
            (Content::Ranked(tasks), Supplier::Supply(supply)) => {
                let test = "fixed priority in supply";
                self.ranked_inside(tasks, test, Some(*supply), |_, task, urgent, limit| {
                    let demands: Vec<Demand> = urgent.iter().map(|(_, d)| *d).collect();
                    let bound = fixed_priority::response_in_supply(&task.1, &demands, supply, limit)?;
                    let guest = demands.iter().map(|d| d.requested(bound)).sum::<u64>();
                    let waits = bound.saturating_sub(task.1.cost + guest);
                    let parts = [
                        (Dominant::OwnCost, task.1.cost),
                        (Dominant::OtherTasks, guest),
                        (Dominant::Supply, waits),
                    ];
                    Some((bound, greatest(&parts)))
                });
            }
            (Content::Edf(tasks), Supplier::Server(server)) => {
                // The server's budget comes within its response time.
                match server.time_for_budget(server.usable) {
                    Some(time) => self.edf_inside(tasks, &delayed(server, time)),
                    None => tasks.iter().for_each(|t| self.unknown(*t, BEYOND_PERIOD, "EDF in supply")),
                }
            }
            (Content::Edf(tasks), Supplier::Supply(supply)) => self.edf_inside(tasks, supply),
        }
    }

    /// Refutes those tasks that miss deadlines whenever they get no more than `cap`.
    pub(crate) fn refute_inside(&mut self, content: &Content, cap: Cap) {
        let examples: Vec<(usize, Option<u64>)> = match content {
            Content::Ranked(tasks) => {
                let late = |ranked: &Ranked| {
                    // No packet need ever come.
                    let task = ranked.task().filter(|task| !self.is_served(*task))?;
                    Some((task, overload(&self.demand(task)?, &self.others(ranked, tasks).urgent, cap)))
                };
                tasks.iter().filter_map(late).collect()
            }
            Content::Edf(tasks) => {
                let (with, demands) = self.with_deadlines(tasks);
                let late = |(i, task): (usize, &usize)| (*task, overload_edf(&demands, i, cap));
                with.iter().enumerate().map(late).collect()
            }
        };
        for (task, late) in examples {
            if let Some(by) = late {
                self.refuted(task, CounterExample::synchronous(vec![TaskIx(task)], by), BUDGETS);
            }
        }
    }

    /// Fixed priorities with a test that bounds the response time of a task below others up to a limit.
    fn ranked_inside(
        &mut self,
        tasks: &[Ranked],
        test: &'static str,
        supply: Option<Supply>,
        bound: impl Fn(&Self, (usize, Demand), &[(Who, Demand)], u64) -> Option<(u64, Option<Dominant>)>,
    ) {
        for ranked in tasks {
            let Some(task) = ranked.task() else { continue };
            let Some((demand, others)) = self.answerable(task, ranked, tasks, test) else { continue };
            if self.is_served(task) {
                let service = supply.map(|supply| others.service(supply, Decisions::default()));
                self.served(task, &demand, service, test);
                continue;
            }
            let limit = demand.deadline.min(demand.period);
            match bound(self, (task, demand), &others.urgent_or_equal, limit) {
                Some((time, dominant)) => self.bounded(task, time, dominant, test),
                None => self.unknown(task, self.beyond(&demand), test),
            }
        }
    }

    /// What the task asks for and who delays it, if a test can say more than that these have no bound.
    fn answerable(
        &mut self,
        task: usize,
        ranked: &Ranked,
        all: &[Ranked],
        test: &'static str,
    ) -> Option<(Demand, Others)> {
        let Some(demand) = self.demand(task) else {
            // Busy loops have no deadline.
            self.unknown(task, NO_RATE, test);
            return None;
        };
        let others = self.others(ranked, all);
        match others.starved {
            Some(beside) if !self.is_served(task) => self.starved(task, beside, test),
            Some(_) => self.unknown(task, STARVED, test),
            None if others.unbounded => self.unknown(task, BELOW_PACKETS, test),
            None => return Some((demand, others)),
        }
        None
    }

    /// A task that packets release may have several jobs at a time: each is done by the end of the busy
    /// period.
    fn served(&mut self, task: usize, demand: &Demand, service: Option<Service>, test: &'static str) {
        let time = service.and_then(|service| busy(|w| service.time(demand.requested(w), w)));
        match time {
            Some(time) => {
                self.served_times.insert(task, time);
                self.bounded(task, time, None, test);
            }
            None => self.unknown(task, BEYOND_BUSY, test),
        }
    }

    fn beyond(&self, demand: &Demand) -> &'static str {
        if demand.deadline > demand.period { BEYOND_PERIOD } else { BEYOND_DEADLINE }
    }

    fn starved(&mut self, task: usize, by: Beside, test: &'static str) {
        if by == Beside::MoreUrgent {
            let deadline = self.demand(task).map_or(0, |d| d.deadline);
            let example = CounterExample::synchronous(vec![TaskIx(task)], deadline);
            self.refuted(task, example, "below a busy loop");
        } else {
            self.unknown(task, STARVED_EQUAL, test);
        }
    }

    /// The tasks that delay `task`.
    fn others(&self, task: &Ranked, all: &[Ranked]) -> Others {
        let mut others = Others::default();
        let shared = task.shared_level(all);
        for other in all.iter().filter(|other| other.who != task.who) {
            let mut beside = other.beside(task);
            let inside_shared = |level| other.first_difference(task).is_none_or(|(at, _)| at > level);
            if beside == Beside::LessUrgent && shared.is_some_and(inside_shared) {
                beside = Beside::Equal;
            }
            if beside == Beside::LessUrgent {
                continue;
            }
            let t = match other.who {
                Who::Task(t) => t,
                Who::Kernel(v) => {
                    let work = self.kernel(v).unwrap_or_default();
                    others.urgent_or_equal.extend(work.iter().map(|work| (other.who, work.demand)));
                    continue;
                }
            };
            match self.demand(t) {
                None if self.is_served(t) => others.unbounded = true,
                None if others.starved != Some(Beside::MoreUrgent) => others.starved = Some(beside),
                None => {}
                Some(demand) => {
                    others.urgent_or_equal.push((other.who, demand));
                    if beside == Beside::MoreUrgent && !self.is_served(t) {
                        others.urgent.push(demand);
                    }
                }
            }
        }
        others
    }

    fn edf_inside(&mut self, tasks: &[usize], supply: &Supply) {
        let test = "EDF in supply";
        if self.any_served(tasks, test) {
            return;
        }
        let (with, demands) = self.with_deadlines(tasks);
        match edf::bounds(&demands, supply) {
            Ok(bounds) => {
                for ((task, bound), demand) in with.iter().zip(bounds).zip(&demands) {
                    let dominant = dominant_in(supply, demand.cost, bound);
                    self.bounded(*task, bound, dominant, test);
                }
            }
            Err(failure) => {
                let why = match failure {
                    edf::Failure::Overload(at) => {
                        format!("in {at} ns more can be due than is surely supplied")
                    }
                    edf::Failure::TooLong => "utilisation is too close to the supply's".into(),
                };
                with.iter().for_each(|task| self.unknown(*task, &why, test));
            }
        }
    }

    /// Those of `tasks` that release jobs themselves, and what they ask for.
    pub(crate) fn with_deadlines(&self, tasks: &[usize]) -> (Vec<usize>, Vec<Demand>) {
        let own = tasks.iter().filter(|t| !self.is_served(**t));
        own.filter_map(|t| Some((*t, self.demand(*t)?))).unzip()
    }

    /// Do packets release some of the tasks? Then there is no answer for any of them.
    pub(crate) fn any_served(&mut self, tasks: &[usize], test: &'static str) -> bool {
        let any = tasks.iter().any(|task| self.is_served(*task));
        if any {
            tasks.iter().for_each(|task| self.unknown(*task, BESIDE_SERVED, test));
        }
        any
    }

    // ---- a processor without budgets ----------------------------------------------------------------

    /// Fixed priorities on a processor of their own: exact where scheduling is free and no priorities are
    /// equal. `beside`: by vCPU, what decisions take while its kernel is busy.
    pub(crate) fn ranked_processor(
        &mut self,
        tasks: &[Ranked],
        costs: &Decisions,
        beside: &BTreeMap<usize, Decisions>,
    ) {
        let test = "response times";
        for ranked in tasks {
            let task = match ranked.who {
                Who::Task(task) => task,
                Who::Kernel(v) => {
                    let others = self.others(ranked, tasks);
                    if others.starved.is_none() && !others.unbounded {
                        let costs = beside.get(&v).unwrap_or(costs).clone();
                        self.services.insert(v, others.service(Supply::WHOLE, costs));
                    }
                    continue;
                }
            };
            let Some((demand, others)) = self.answerable(task, ranked, tasks, test) else { continue };
            if self.is_served(task) {
                let service = others.service(Supply::WHOLE, costs.clone());
                self.served(task, &demand, Some(service), test);
                continue;
            }
            let above: Vec<Demand> = others.urgent_or_equal.iter().map(|(_, d)| *d).collect();
            let limit = demand.deadline.min(demand.period);
            if let Some(bound) = fixed_priority::response(&demand, &above, costs, limit) {
                let guest = above.iter().map(|d| d.requested(bound)).sum::<u64>();
                let parts = [
                    (Dominant::OwnCost, demand.cost),
                    (Dominant::OtherTasks, guest),
                    (Dominant::OtherVcpus, costs.within(bound)),
                ];
                self.bounded(task, bound, greatest(&parts), test);
                continue;
            }
            // The first job after synchronous release is delayed by more urgent tasks alone.
            let free = Decisions::default();
            match fixed_priority::response(&demand, &others.urgent, &free, demand.deadline) {
                None => {
                    let example = CounterExample::synchronous(vec![TaskIx(task)], demand.deadline);
                    self.refuted(task, example, test);
                }
                Some(_) => self.unknown(task, self.beyond(&demand), test),
            }
        }
    }

    /// EDF on a processor of its own: exact where scheduling is free.
    pub(crate) fn edf_processor(&mut self, tasks: &[usize], costs: &Decisions) {
        let test = "processor demand";
        if self.any_served(tasks, test) {
            return;
        }
        let (with, demands) = self.with_deadlines(tasks);
        if let Err(edf::Failure::Overload(by)) = edf::bounds(&demands, &Supply::WHOLE) {
            let one_of = |i: &usize| demands[*i].deadline <= by;
            let one_of: Vec<TaskIx> = (0..with.len()).filter(one_of).map(|i| TaskIx(with[i])).collect();
            for (task, demand) in with.iter().zip(&demands) {
                if demand.deadline <= by {
                    self.refuted(*task, CounterExample::synchronous(one_of.clone(), by), test);
                } else {
                    self.unknown(*task, "shorter deadlines of the same processor are already missed", test);
                }
            }
            return;
        }
        let charged: Vec<Demand> = demands
            .iter()
            // Each job is there for two decisions and makes one job of another task resume.
            .map(|d| Demand { cost: d.cost.saturating_add(costs.change().saturating_mul(3)), ..*d })
            .collect();
        let blocked = Supply { delay: costs.change().saturating_mul(2), ..Supply::WHOLE };
        match edf::bounds(&charged, &blocked) {
            Ok(bounds) => {
                for ((task, bound), demand) in with.iter().zip(bounds).zip(&charged) {
                    self.bounded(*task, bound, dominant_in(&blocked, demand.cost, bound), test);
                }
            }
            Err(_) => {
                let why = if costs.free() {
                    "utilisation is too close to the whole processor"
                } else {
                    "with the scheduler's own time, more may be due than fits"
                };
                with.iter().for_each(|task| self.unknown(*task, why, test));
            }
        }
    }
}

/// Who delays a task.
#[derive(Default)]
struct Others {
    urgent: Vec<Demand>,
    urgent_or_equal: Vec<(Who, Demand)>,
    /// A busy loop.
    starved: Option<Beside>,
    /// A task whose packets come at any rate.
    unbounded: bool,
}

impl Others {
    /// What is left of a supply.
    fn service(&self, supply: Supply, costs: Decisions) -> Service {
        Service { supply, above: self.urgent_or_equal.iter().map(|(_, demand)| *demand).collect(), costs }
    }
}

/// A server whose usable budget comes within `time` of a replenishment.
pub(crate) fn delayed(server: &Server, time: u64) -> Supply {
    Supply { delay: server.gap + (time - server.usable), budget: server.usable, period: server.period }
}

fn dominant_of(parts: &Parts) -> Option<Dominant> {
    greatest(&[
        (Dominant::OwnCost, parts.own),
        (Dominant::OtherTasks, parts.guest),
        (Dominant::Budget, parts.budget),
        (Dominant::OtherVcpus, parts.others),
    ])
}

/// Of a bound in a supply: the wait before supply begins, the own cost, or the others' work.
fn dominant_in(supply: &Supply, cost: u64, bound: u64) -> Option<Dominant> {
    let alone = supply.time_for(cost).min(bound);
    greatest(&[
        (Dominant::OwnCost, cost),
        (Dominant::OtherTasks, bound - alone),
        (Dominant::Supply, alone.saturating_sub(cost)),
    ])
}

/// By when a task below `urgent` ones misses a deadline after synchronous release, if a limit on what its
/// vCPU gets makes it: were its k-th job done by its deadline, all that more urgent tasks released until the
/// job before was due would be done, too, and together that is more than the vCPU got.
fn overload(task: &Demand, urgent: &[Demand], cap: Cap) -> Option<u64> {
    (0..jobs_to_try(urgent.iter().chain([task]), cap)).find_map(|before| {
        let release = before.checked_mul(task.period)?;
        let due = release.checked_add(task.deadline)?;
        let own = (before + 1).saturating_mul(task.cost);
        let work = urgent.iter().fold(own, |sum, d| sum.saturating_add(d.requested(release.max(1))));
        (work > cap.supplied(due)).then_some(due)
    })
}

fn jobs_to_try<'a>(tasks: impl Iterator<Item = &'a Demand>, cap: Cap) -> u64 {
    let fits = utilization_at_most(tasks.map(|d| (d.cost, d.period)), (cap.budget, cap.period));
    if fits { BURST_MAX } else { JOBS_MAX }
}

/// The same under EDF: what is due before the job and released by the time it is.
fn overload_edf(tasks: &[Demand], of: usize, cap: Cap) -> Option<u64> {
    let task = &tasks[of];
    (0..jobs_to_try(tasks.iter(), cap)).find_map(|before| {
        let release = before.checked_mul(task.period)?;
        let due = release.checked_add(task.deadline)?;
        let others = tasks.iter().enumerate().filter(|(i, _)| *i != of);
        let own = (before + 1).saturating_mul(task.cost);
        let work = others.fold(own, |sum, (_, d)| {
            sum.saturating_add(d.due_within(due - 1).min(d.requested(release.max(1))))
        });
        (work > cap.supplied(due)).then_some(due)
    })
}
