//! Pools: which test applies to a pool's policy, and what each of its units gets.

use std::collections::BTreeMap;

use punctual_model::guarantees::Dominant;
use punctual_model::index::TaskIx;
use punctual_sched::servers::{self, sporadic};
use punctual_sched::{Duration, UnitParams};

use crate::demand::{Demand, utilization_at_most};
use crate::fixed_priority::Server;
use crate::global_edf::{self, KeepingServer};
use crate::global_fixed_priority;
use crate::guest::{Content, Supplier, delayed};
use crate::host::{Analysis, Cap, Service, Unit, only_processor};
use crate::overhead::Decisions;
use crate::report::{CounterExample, greatest};
use crate::supply::Supply;

/// Global tests compare every unit with every other, several times; beyond this many only the density test is
/// tried.
const GLOBAL_MAX: usize = 2_000;

/// RTDS's defaults (`punctual policies rtds`).
const RTDS_BUDGET: Duration = Duration::from_ms(4);
const RTDS_PERIOD: Duration = Duration::from_ms(10);

const TIMERS: &str = "a guest below acts on timers of its own, or packets wake a task at any rate, so the time spent on \
                      decisions has no bound here";

/// Which fixed-priority server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Deferrable,
    Periodic,
    Polling,
    Sporadic,
}

/// How a pool's units spread over its processors.
enum Spread {
    /// Each unit on one processor.
    PerProcessor(Vec<Vec<Unit>>),
    /// Every unit on all processors.
    Global,
    /// Something between.
    Mixed,
}

/// A budget and a period in ns.
#[derive(Clone, Copy)]
struct Reserved {
    budget: u64,
    period: u64,
}

impl Reserved {
    fn of(params: &UnitParams, budget: Duration, period: Duration) -> Self {
        let period = params.period.unwrap_or(period).as_ns().max(1);
        Reserved { budget: params.budget.unwrap_or(budget).as_ns().min(period), period }
    }
}

/// Units that share processors, and nobody else does.
#[derive(Clone)]
pub(crate) struct Group {
    pub(crate) units: Vec<Unit>,
    pub(crate) processors: usize,
}

impl Analysis<'_> {
    pub(crate) fn pool(&mut self, pool: usize) {
        match self.groups(pool) {
            Ok(groups) => groups.iter().for_each(|group| self.group(pool, group)),
            Err(why) => {
                let policy = self.host.pools[pool].policy.info.name;
                self.none_known(&self.index.in_pool[pool].all(), why, policy);
            }
        }
    }

    /// The pool's units by the processors that they share.
    ///
    /// # Errors
    /// Why they do not fall into groups that a test knows.
    pub(crate) fn groups(&self, pool: usize) -> Result<Vec<Group>, &'static str> {
        let units = self.index.in_pool[pool].all();
        let policy = self.host.pools[pool].policy.info.name;
        let one_each =
            |groups: Vec<Vec<Unit>>| groups.into_iter().map(|units| Group { units, processors: 1 }).collect();
        let all = |units| Group { units, processors: self.host.pools[pool].processors.len() };
        if is_partitioned(policy) {
            return self.by_home(pool, &units).map(one_each).ok_or("the policy did not accept its units");
        }
        match self.spread(pool, &units) {
            Spread::PerProcessor(groups) => Ok(one_each(groups)),
            Spread::Global => Ok(vec![all(units)]),
            Spread::Mixed if ["credit", "round-robin"].contains(&policy) => Ok(vec![all(units)]),
            Spread::Mixed => Err(MIXED),
        }
    }

    /// Answers for one of the pool's groups.
    pub(crate) fn group(&mut self, pool: usize, group: &Group) {
        let policy = self.host.pools[pool].policy.info.name;
        let Group { units, processors } = group;
        match policy {
            "deferrable" => self.servers(pool, units, Kind::Deferrable),
            "periodic" => self.servers(pool, units, Kind::Periodic),
            "polling" => self.servers(pool, units, Kind::Polling),
            "sporadic" => self.servers(pool, units, Kind::Sporadic),
            "rtds" | "sedf" => self.keeping_servers(units, *processors, policy),
            "cbs" => self.bandwidth_servers(units, *processors),
            "fixed-priority" if *processors == 1 => self.ranked_group(units),
            "fixed-priority" => self.global_ranked(units, *processors),
            "edf" if *processors == 1 => self.edf_group(units),
            "edf" => self.global_edf(units, *processors),
            "credit" => self.none_known(units, CREDIT, policy),
            "round-robin" => self.none_known(units, ROUND_ROBIN, policy),
            _ => self.none_known(units, "there is no test for this policy", policy),
        }
    }

    fn none_known(&mut self, units: &[Unit], why: &str, test: &'static str) {
        units.iter().for_each(|unit| self.unknown_below(*unit, why, test));
    }

    /// Units by the processor that the policy puts them on.
    fn by_home(&self, pool: usize, units: &[Unit]) -> Option<Vec<Vec<Unit>>> {
        let homes = self.homes(pool, units)?;
        let mut groups = vec![Vec::new(); self.host.pools[pool].processors.len()];
        units.iter().zip(homes).for_each(|(unit, home)| groups[home.index()].push(*unit));
        Some(groups)
    }

    fn spread(&self, pool: usize, units: &[Unit]) -> Spread {
        let processors = self.host.pools[pool].processors.len();
        let affinity = |unit: &Unit| self.params(*unit).affinity.as_ref();
        let homes: Option<Vec<usize>> =
            units.iter().map(|unit| only_processor(affinity(unit), processors)).collect();
        if let Some(homes) = homes {
            let mut groups = vec![Vec::new(); processors];
            units.iter().zip(homes).for_each(|(unit, home)| groups[home].push(*unit));
            return Spread::PerProcessor(groups);
        }
        let everywhere = |unit: &Unit| {
            affinity(unit)
                .is_none_or(|set| (0..processors).all(|p| set.contains(punctual_sched::CpuId(p as u32))))
        };
        if units.iter().all(everywhere) { Spread::Global } else { Spread::Mixed }
    }

    /// What a decision that changes what runs takes on a pool of so many processors, in ns.
    fn change_cost(&self, processors: usize) -> u64 {
        let costs = &self.host.overheads;
        let several =
            if processors > 1 { costs.migration + costs.lock * processors as u64 } else { Duration::ZERO };
        (costs.decision + costs.context_switch + several).as_ns()
    }

    // ---- fixed-priority servers -----------------------------------------------------------------------

    fn servers(&mut self, pool: usize, units: &[Unit], kind: Kind) {
        let options = &self.host.pools[pool].policy.options;
        let refills_max = options.count(&sporadic::REFILLS_MAX);
        if options.word(&servers::ACCOUNTING) == servers::IN_QUANTA {
            return self.none_known(units, QUANTUM_ACCOUNTING, "servers");
        }
        let quantum = servers::quantum(options).map(Duration::as_ns);
        let mut group = units.to_vec();
        // Stable: equal priorities rank in the order of insertion.
        group.sort_by_key(|unit| self.params(*unit).priority.unwrap_or(u32::MAX));
        self.server_processor(&group, kind, quantum, refills_max);
    }

    /// One processor's servers, most urgent first.
    fn server_processor(&mut self, group: &[Unit], kind: Kind, quantum: Option<u64>, refills_max: u64) {
        // What is under way when an interval begins cannot be interrupted, and ends with a decision.
        let mut costs = Decisions::new(self.change_cost(1), 2);
        if let Some(quantum) = quantum {
            costs.quantum(quantum, self.host.overheads.decision.as_ns());
        }
        let reserved: Vec<Reserved> =
            group.iter().map(|u| Reserved::of(self.params(*u), Duration::ZERO, Duration::ZERO)).collect();
        if kind == Kind::Polling {
            // A replenishment without work asks for a decision whoever runs.
            reserved.iter().for_each(|r| costs.every(r.period, 1));
        }
        let mut more_urgent: Vec<Demand> = Vec::new();
        let mut timers = false;
        for (&unit, &own) in group.iter().zip(&reserved) {
            timers |= !self.add_wakes(unit, 1, &mut costs);
            // Budget ends and comes back.
            costs.every(own.period, 2);
            costs.also(2);
            let obstacle = match () {
                () if !costs.free() && kind == Kind::Sporadic => Some(FRAGMENTS),
                () if !costs.free() && timers => Some(TIMERS),
                () if kind == Kind::Sporadic && refills_max == 1 => Some(ONE_REFILL),
                () => None,
            };
            let charged = costs.within(own.period);
            let server = Server {
                usable: own.budget.saturating_sub(charged),
                period: own.period,
                gap: if kind == Kind::Polling { own.period } else { own.period - own.budget },
                more_urgent: more_urgent.clone(),
                costs: costs.clone(),
            };
            let time = server.time_for_budget(own.budget);
            self.server(unit, own, kind, server, time, obstacle);
            // A switch may overrun the budget; what has no guarantee itself may come late.
            let on_time =
                kind == Kind::Sporadic || (kind != Kind::Deferrable && time.is_some() && costs.free());
            let jitter = if on_time { 0 } else { own.period - own.budget };
            let cost = own.budget.saturating_add(costs.change());
            more_urgent.push(Demand::implicit(cost, own.period).late_by(jitter));
        }
    }

    fn server(
        &mut self,
        unit: Unit,
        own: Reserved,
        kind: Kind,
        server: Server,
        time: Option<u64>,
        obstacle: Option<&'static str>,
    ) {
        let cap = Cap { budget: own.budget, period: own.period, more: 0 };
        let test = "servers";
        let problem = match (obstacle, time) {
            (Some(why), _) => Err(why),
            (None, None) => Err("more urgent vCPUs may take the time for its budget"),
            (None, Some(_)) if server.usable == 0 => Err(NOTHING_LEFT),
            (None, Some(time)) => Ok(time),
        };
        self.budget_of(unit, own.period, problem);
        // A sporadic server that is delayed gets its budget back later, so it delays others less than this.
        if problem.is_err()
            && kind != Kind::Sporadic
            && server.costs.free()
            && server.late_when_all_are_busy()
        {
            self.refute_budget(unit, own.period);
        }
        if self.wanted.is_some_and(|wanted| wanted != unit) {
            return;
        }
        if let (Ok(_), Some(time), true) =
            (problem, server.time_for_budget(server.usable), kind != Kind::Sporadic)
        {
            self.serves(unit, delayed(&server, time));
        }
        let content = match self.content(unit) {
            Ok(content) => content,
            Err(why) => return self.unknown_below(unit, &why, test),
        };
        let supplier = match problem {
            Err(why) => return self.unsupplied(&content, cap, why, test),
            Ok(time) if kind == Kind::Sporadic => {
                self.serves(unit, sporadic_supply(own, time));
                Supplier::Supply(sporadic_supply(own, time))
            }
            Ok(_) => Supplier::Server(server),
        };
        self.inside(&content, &supplier, Some(cap));
    }

    /// Nothing is supplied for sure, yet no more than `cap`: refutes what it can.
    fn unsupplied(&mut self, content: &Content, cap: Cap, why: &str, test: &'static str) {
        self.refute_inside(content, cap);
        content.tasks().into_iter().for_each(|task| self.unknown(task, why, test));
    }

    // ---- earliest deadline first with budgets ---------------------------------------------------------

    /// RTDS and SEDF: budgets that are kept, earliest deadline first.
    fn keeping_servers(&mut self, group: &[Unit], processors: usize, policy: &'static str) {
        let mut costs = Decisions::new(self.change_cost(processors), 2 * processors as u64);
        let chain = processors as u64;
        let defaults = if policy == "rtds" { (RTDS_BUDGET, RTDS_PERIOD) } else { Default::default() };
        let reserved: Vec<Reserved> =
            group.iter().map(|u| Reserved::of(self.params(*u), defaults.0, defaults.1)).collect();
        let mut timers = false;
        for (unit, own) in group.iter().zip(&reserved) {
            timers |= !self.add_wakes(*unit, chain, &mut costs);
            costs.every(own.period, 2 * chain);
            costs.also(2 * chain);
        }
        let servers: Vec<KeepingServer> =
            reserved.iter().map(|r| KeepingServer { budget: r.budget, period: r.period }).collect();
        for (i, (unit, own)) in group.iter().zip(&reserved).enumerate() {
            let usable = own.budget.saturating_sub(costs.within(own.period));
            let problem = match () {
                () if own.budget == 0 => Err(BEST_EFFORT),
                () if !costs.free() && timers => Err(TIMERS),
                () if servers.len() > GLOBAL_MAX => Err("too many units for the test"),
                () if usable == 0 => Err(NOTHING_LEFT),
                () => global_edf::time_for_budget(&servers, i, processors, &costs)
                    .ok_or("other vCPUs may take the time for its budget before its deadline"),
            };
            let extra = self.params(*unit).extratime.unwrap_or(policy == "rtds");
            let cap = (!extra).then_some(Cap { budget: own.budget, period: own.period, more: 0 });
            let supply = problem.map(|time| Supply {
                delay: (own.period - own.budget) + (time - usable),
                budget: usable,
                period: own.period,
            });
            self.supplied(*unit, own.period, problem, supply, cap, policy);
        }
    }

    /// CBS: a bandwidth each, earliest deadline first.
    fn bandwidth_servers(&mut self, group: &[Unit], processors: usize) {
        let of = |unit: &Unit| Reserved::of(self.params(*unit), Duration::ZERO, Duration::ZERO);
        let reserved: Vec<Reserved> = group.iter().map(of).collect();
        let shares: Vec<(u64, u64)> = reserved.iter().map(|r| (r.budget, r.period)).collect();
        let fits = if processors == 1 {
            utilization_at_most(shares.iter().copied(), (1, 1))
        } else {
            global_edf::density_test(&shares, processors)
        };
        let problem = match () {
            () if self.change_cost(processors) > 0 => Err("the scheduler's own time is not covered for CBS"),
            () if !fits => Err("the bandwidths do not surely fit on the processors"),
            () => Ok(()),
        };
        for (unit, own) in group.iter().zip(&reserved) {
            let time = problem.map(|()| own.period);
            let supply = time.map(|_| Supply::periodic(own.budget, own.period));
            // A fresh start may come before the end of a period.
            let cap = Cap { budget: own.budget, period: own.period, more: 1 };
            self.supplied(*unit, own.period, time, supply, Some(cap), "cbs");
        }
    }

    fn supplied(
        &mut self,
        unit: Unit,
        period: u64,
        time: Result<u64, &'static str>,
        supply: Result<Supply, &'static str>,
        cap: Option<Cap>,
        test: &'static str,
    ) {
        self.budget_of(unit, period, time);
        if self.wanted.is_some_and(|wanted| wanted != unit) {
            return;
        }
        if let Ok(supply) = supply {
            self.serves(unit, supply);
        }
        match (self.content(unit), supply, cap) {
            (Err(why), ..) => self.unknown_below(unit, &why, test),
            (Ok(content), Ok(supply), cap) => self.inside(&content, &Supplier::Supply(supply), cap),
            (Ok(content), Err(why), Some(cap)) => self.unsupplied(&content, cap, why, test),
            (Ok(_), Err(why), None) => self.unknown_below(unit, why, test),
        }
    }

    /// Notes how a vCPU's kernel, if it has one, gets its time.
    fn serves(&mut self, unit: Unit, supply: Supply) {
        if let Unit::Vcpu(v) = unit
            && self.kernel(v).is_some()
        {
            self.services.insert(v, Service { supply, above: Vec::new(), costs: Decisions::default() });
        }
    }

    // ---- no budgets ---------------------------------------------------------------------------------

    fn ranked_group(&mut self, group: &[Unit]) {
        let test = "response times";
        let mut costs = Decisions::new(self.change_cost(1), 2);
        let timers = !group.iter().all(|unit| self.add_wakes(*unit, 1, &mut costs));
        match self.ranked(group) {
            Ok(_) if timers && !costs.free() => self.none_known(group, TIMERS, test),
            Ok(tasks) => {
                let beside = self.decisions_beside_kernels(group);
                self.ranked_processor(&tasks, &costs, &beside);
            }
            Err(why) => self.none_known(group, &why, test),
        }
    }

    /// By vCPU with kernel work: what decisions take while its kernel is busy. Its vCPU neither wakes nor
    /// sleeps then.
    fn decisions_beside_kernels(&self, group: &[Unit]) -> BTreeMap<usize, Decisions> {
        let kernels = group.iter().filter_map(|unit| match unit {
            Unit::Vcpu(v) => self.kernel(*v).map(|_| *v),
            Unit::Task(_) => None,
        });
        let beside = |v: usize| {
            let mut costs = Decisions::new(self.change_cost(1), 4);
            let others = group.iter().filter(|unit| **unit != Unit::Vcpu(v));
            others.for_each(|unit| _ = self.add_wakes(*unit, 1, &mut costs));
            (v, costs)
        };
        kernels.map(beside).collect()
    }

    fn edf_group(&mut self, group: &[Unit]) {
        match tasks_only(group) {
            Some(tasks) => self.edf_processor(&tasks, &Decisions::new(self.change_cost(1), 2)),
            None => self.none_known(group, EDF_VCPUS, "processor demand"),
        }
    }

    /// Tasks under global EDF: response times, the slack test and the density test; the first that holds
    /// gives the bound.
    fn global_edf(&mut self, units: &[Unit], processors: usize) {
        let Some(tasks) = tasks_only(units) else {
            return self.none_known(units, EDF_VCPUS, "global EDF");
        };
        if self.any_served(&tasks, "global EDF") {
            return;
        }
        let mut costs = Decisions::new(self.change_cost(processors), 2 * processors as u64);
        for unit in units {
            self.add_wakes(*unit, processors as u64, &mut costs);
        }
        let (with, demands) = self.with_deadlines(&tasks);
        let constrained = demands.iter().all(|d| d.cost <= d.deadline && d.deadline <= d.period);
        let responses = (constrained && demands.len() <= GLOBAL_MAX)
            .then(|| global_edf::response_times(&demands, processors, &costs))
            .flatten();
        let densities: Vec<(u64, u64)> = demands.iter().map(|d| (d.cost, d.deadline.min(d.period))).collect();
        let dense = costs.free() && global_edf::density_test(&densities, processors);
        let slack =
            (constrained && costs.free() && demands.len() <= GLOBAL_MAX && responses.is_none() && !dense)
                .then(|| global_edf::slack_test(&demands, processors))
                .flatten();
        for (i, task) in with.iter().enumerate() {
            let demand = &demands[i];
            if let Some(responses) = &responses {
                let parts =
                    [(Dominant::OwnCost, demand.cost), (Dominant::OtherTasks, responses[i] - demand.cost)];
                self.bounded(*task, responses[i], greatest(&parts), "global EDF response times");
            } else if let Some(slack) = &slack {
                self.bounded(
                    *task,
                    demand.deadline - slack[i],
                    Some(Dominant::OtherTasks),
                    "global EDF slack",
                );
            } else if dense {
                self.bounded(*task, demand.deadline, Some(Dominant::OtherTasks), "global EDF density");
            } else if let Some(example) = self.alone_too_long(*task, demand) {
                self.refuted(*task, example, "global EDF");
            } else {
                self.unknown(*task, GLOBAL_EDF, "global EDF");
            }
        }
    }

    /// Tasks under global fixed priorities.
    fn global_ranked(&mut self, units: &[Unit], processors: usize) {
        let test = "global fixed priority response times";
        let Some(tasks) = tasks_only(units) else { return self.none_known(units, GLOBAL_RANKED, test) };
        if self.any_served(&tasks, test) {
            return;
        }
        let mut costs = Decisions::new(self.change_cost(processors), 2 * processors as u64);
        for unit in units {
            self.add_wakes(*unit, processors as u64, &mut costs);
        }
        let priority = |task: &usize| self.params(Unit::Task(*task)).priority.unwrap_or(u32::MAX);
        // Below as many busy loops as there are processors nobody surely runs.
        let hogs: Vec<u32> = tasks.iter().filter(|t| self.demand(**t).is_none()).map(priority).collect();
        let (with, demands) = self.with_deadlines(&tasks);
        let ranked: Vec<_> = with.iter().map(priority).zip(demands).collect();
        let times = match ranked.len() > GLOBAL_MAX {
            true => vec![None; ranked.len()],
            false => global_fixed_priority::response_times(&ranked, processors, &costs),
        };
        for ((task, (priority, demand)), time) in with.iter().zip(&ranked).zip(times) {
            let beside_hog = hogs.iter().any(|hog| hog <= priority);
            match (time, self.alone_too_long(*task, demand)) {
                (_, Some(example)) => self.refuted(*task, example, test),
                (Some(time), None) if !beside_hog => {
                    let parts =
                        [(Dominant::OwnCost, demand.cost), (Dominant::OtherTasks, time - demand.cost)];
                    self.bounded(*task, time, greatest(&parts), test);
                }
                (Some(_), None) => self.unknown(*task, BUSY_LOOPS, test),
                (None, None) => self.unknown(*task, GLOBAL_RESPONSE, test),
            }
        }
    }

    /// A task that asks for more than one processor falls behind wherever it runs.
    fn alone_too_long(&self, task: usize, demand: &Demand) -> Option<CounterExample> {
        let late = |jobs: &u64| jobs * demand.cost > (jobs - 1) * demand.period + demand.deadline;
        let jobs = (demand.cost > demand.period).then(|| (1..=2_000).find(late)).flatten()?;
        let one_of = vec![TaskIx(task)];
        Some(CounterExample::synchronous(one_of, (jobs - 1) * demand.period + demand.deadline))
    }
}

/// Does the policy put each unit on one processor by itself?
pub(crate) fn is_partitioned(policy: &str) -> bool {
    ["deferrable", "periodic", "polling", "sporadic", "sedf"].contains(&policy)
}

/// The tasks, if there is nothing else.
fn tasks_only(units: &[Unit]) -> Option<Vec<usize>> {
    let task = |unit: &Unit| match unit {
        Unit::Task(t) => Some(*t),
        Unit::Vcpu(_) => None,
    };
    units.iter().map(task).collect()
}

/// What a sporadic server supplies that gets its budget within `time` of having it.
///
/// A stretch of execution comes back one period after it began, or up to two periods when the table of
/// refills was full and it was merged with later ones. A server that waits with all its budget outstanding
/// has therefore run for its budget during the last two periods; a server with budget runs but for `time -
/// budget`. So any interval of two periods and `time - budget` in which it always has work contains its
/// budget.
fn sporadic_supply(own: Reserved, time: u64) -> Supply {
    let period = 2 * own.period + (time - own.budget);
    Supply { delay: period - own.budget, budget: own.budget, period }
}

/// Problems that a greater budget may solve.
pub(crate) const NOTHING_LEFT: &str = "the scheduler's own time may take all of its budget";
pub(crate) const BEST_EFFORT: &str = "a slice of 0 is best effort";

const MIXED: &str = "affinities that leave some units several processors, but not all, have no test; pin every unit \
                     to one processor or none";
const GLOBAL_RANKED: &str = "vCPUs under fixed priorities over several processors have no test; pin every unit to one \
                             processor";
const GLOBAL_RESPONSE: &str = "the bound found is beyond the deadline of this task or of a more urgent one; the test is \
                               sufficient only";
const BUSY_LOOPS: &str =
    "a busy loop that is as urgent or more takes a processor for itself, which the test does not know";
const CREDIT: &str = "no guarantee: Credit shares time by weight over its accounting periods and promises no amount \
                      within any shorter interval";
const ROUND_ROBIN: &str = "no guarantee: round robin gives everyone turns, and how long a turn takes to come depends \
                           on who else has work";
const QUANTUM_ACCOUNTING: &str = "no guarantee: with accounting in quanta a vCPU that always runs for less than half a \
                                  quantum is never charged";
const FRAGMENTS: &str = "a sporadic server's budget may come back in pieces as small as a switch, so the time spent on \
                         switches has no useful bound";
const ONE_REFILL: &str = "with `refills_max = 1` every stretch of execution delays the only refill";
const EDF_VCPUS: &str =
    "a vCPU without a budget under EDF has no supply bound; give it one (RTDS, SEDF, CBS)";
const GLOBAL_EDF: &str = "neither the density test nor response times show that all deadlines hold; both are \
                          sufficient only";
