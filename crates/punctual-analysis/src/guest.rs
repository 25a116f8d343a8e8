//! What is inside a vCPU: its tasks by urgency, and their response times given what the vCPU supplies.

use punctual_model::host::{Arrival, TaskIx, Work};

use crate::demand::{Demand, utilization_at_most};
use crate::edf;
use crate::fixed_priority::{self, Member, Parts, Server};
use crate::host::{Analysis, Cap, Unit, only_processor};
use crate::overhead::Decisions;
use crate::report::{CounterExample, Dominant};
use crate::supply::Supply;

/// How many jobs a counter-example is looked for in when more is asked for than is supplied in the long run.
const JOBS_MAX: u64 = 2_000;

/// The same when only a burst can be too much.
const BURST_MAX: u64 = 4;

/// A task under fixed priorities on every level down to it: each level's priority and the unit that has it.
#[derive(Clone, Debug)]
pub(crate) struct Ranked {
    pub(crate) task: usize,
    path: Vec<(u32, Unit)>,
}

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
        Ranked { task, path: Vec::new() }
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
        let differ = |((_, a), (_, b)): &(&(u32, Unit), &(u32, Unit))| a != b;
        let level = self.path.iter().zip(&other.path).position(|pair| differ(&pair))?;
        Some((level, self.path[level].0.cmp(&other.path[level].0)))
    }

    /// The outermost level at which another unit has the priority of this task's. Equals are served in the order of
    /// arrival, so there even less urgent tasks of the same vCPU delay the other vCPU, which then delays this task.
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
            Content::Ranked(tasks) => tasks.iter().map(|t| t.task).collect(),
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
const STARVED_EQUAL: &str = "a busy loop of equal priority may run first and never ends";
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
        match domain.guest.info.name {
            "fixed-priority" => self.ranked(&here).map(Content::Ranked),
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
            let level = (self.params(unit).priority.unwrap_or(u32::MAX), unit);
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
    fn bound_to(&self, task: usize, period: u64) -> bool {
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
                self.ranked_inside(tasks, "Davis & Burns", |analysis, task, urgent, limit| {
                    let member =
                        |t: usize, demand| Member { demand, bound: analysis.bound_to(t, server.period) };
                    let more: Vec<Member> = urgent.iter().map(|(t, d)| member(*t, *d)).collect();
                    let parts = server.response(&member(task.0, task.1), &more, limit)?;
                    Some((parts.total(), dominant_of(&parts)))
                });
            }
            (Content::Ranked(tasks), Supplier::Supply(supply)) => {
                self.ranked_inside(tasks, "fixed priority in supply", |_, task, urgent, limit| {
                    let demands: Vec<Demand> = urgent.iter().map(|(_, d)| *d).collect();
                    let bound = fixed_priority::response_in_supply(&task.1, &demands, supply, limit)?;
                    let guest = demands.iter().map(|d| d.requested(bound)).sum::<u64>();
                    let waits = bound.saturating_sub(task.1.cost + guest);
                    let parts = [
                        (Dominant::OwnCost, task.1.cost),
                        (Dominant::OtherTasks, guest),
                        (Dominant::Supply, waits),
                    ];
                    Some((bound, Dominant::greatest(&parts)))
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
                    let demand = self.demand(ranked.task)?;
                    overload(&demand, &self.others(ranked, tasks).urgent, cap)
                };
                tasks.iter().map(|ranked| (ranked.task, late(ranked))).collect()
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
        bound: impl Fn(&Self, (usize, Demand), &[(usize, Demand)], u64) -> Option<(u64, Option<Dominant>)>,
    ) {
        for ranked in tasks {
            let Some(demand) = self.demand(ranked.task) else { continue };
            let others = self.others(ranked, tasks);
            if let Some(answered) = others.starved {
                self.starved(ranked.task, answered, test);
                continue;
            }
            let limit = demand.deadline.min(demand.period);
            match bound(self, (ranked.task, demand), &others.urgent_or_equal, limit) {
                Some((time, dominant)) => self.bounded(ranked.task, time, dominant, test),
                None => self.unknown(ranked.task, self.beyond(&demand), test),
            }
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
        for other in all.iter().filter(|other| other.task != task.task) {
            let mut beside = other.beside(task);
            let inside_shared = |level| other.first_difference(task).is_none_or(|(at, _)| at > level);
            if beside == Beside::LessUrgent && shared.is_some_and(inside_shared) {
                beside = Beside::Equal;
            }
            match self.demand(other.task) {
                _ if beside == Beside::LessUrgent => {}
                None if others.starved != Some(Beside::MoreUrgent) => others.starved = Some(beside),
                None => {}
                Some(demand) => {
                    others.urgent_or_equal.push((other.task, demand));
                    if beside == Beside::MoreUrgent {
                        others.urgent.push(demand);
                    }
                }
            }
        }
        others
    }

    fn edf_inside(&mut self, tasks: &[usize], supply: &Supply) {
        let test = "EDF in supply";
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

    /// Those of `tasks` that are no busy loops, and what they ask for.
    pub(crate) fn with_deadlines(&self, tasks: &[usize]) -> (Vec<usize>, Vec<Demand>) {
        tasks.iter().filter_map(|t| Some((*t, self.demand(*t)?))).unzip()
    }

    // ---- a processor without budgets ----------------------------------------------------------------

    /// Fixed priorities on a processor of their own: exact where scheduling is free and no priorities are equal.
    pub(crate) fn ranked_processor(&mut self, tasks: &[Ranked], costs: &Decisions) {
        let test = "response times";
        for ranked in tasks {
            let Some(demand) = self.demand(ranked.task) else { continue };
            let others = self.others(ranked, tasks);
            if let Some(answered) = others.starved {
                self.starved(ranked.task, answered, test);
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
                self.bounded(ranked.task, bound, Dominant::greatest(&parts), test);
                continue;
            }
            // The first job after synchronous release is delayed by more urgent tasks alone.
            let free = Decisions::default();
            match fixed_priority::response(&demand, &others.urgent, &free, demand.deadline) {
                None => {
                    let example = CounterExample::synchronous(vec![TaskIx(ranked.task)], demand.deadline);
                    self.refuted(ranked.task, example, test);
                }
                Some(_) => self.unknown(ranked.task, self.beyond(&demand), test),
            }
        }
    }

    /// EDF on a processor of its own: exact where scheduling is free.
    pub(crate) fn edf_processor(&mut self, tasks: &[usize], costs: &Decisions) {
        let test = "processor demand";
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

/// The tasks that delay one.
#[derive(Default)]
struct Others {
    urgent: Vec<Demand>,
    urgent_or_equal: Vec<(usize, Demand)>,
    starved: Option<Beside>,
}

/// A server whose usable budget comes within `time` of a replenishment.
fn delayed(server: &Server, time: u64) -> Supply {
    Supply { delay: server.gap + (time - server.usable), budget: server.usable, period: server.period }
}

fn dominant_of(parts: &Parts) -> Option<Dominant> {
    Dominant::greatest(&[
        (Dominant::OwnCost, parts.own),
        (Dominant::OtherTasks, parts.guest),
        (Dominant::Budget, parts.budget),
        (Dominant::OtherVcpus, parts.others),
    ])
}

/// Of a bound in a supply: the wait before supply begins, the own cost, or the others' work.
fn dominant_in(supply: &Supply, cost: u64, bound: u64) -> Option<Dominant> {
    let alone = supply.time_for(cost).min(bound);
    Dominant::greatest(&[
        (Dominant::OwnCost, cost),
        (Dominant::OtherTasks, bound - alone),
        (Dominant::Supply, alone.saturating_sub(cost)),
    ])
}

/// By when a task below `urgent` ones misses a deadline after synchronous release, if a limit on what its vCPU gets
/// makes it: were its k-th job done by its deadline, all that more urgent tasks released until the job before was due
/// would be done, too, and together that is more than the vCPU got.
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
