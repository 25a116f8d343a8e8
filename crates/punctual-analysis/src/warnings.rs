//! What practitioners should know although it is no verdict.

use std::collections::BTreeMap;

use punctual_model::Host;
use punctual_model::guarantees::Warning;
use punctual_model::host::{Domain, Parent, Vcpu};
use punctual_model::index::{DomainIx, PoolIx, TaskIx, VcpuIx};
use punctual_model::live::{Backend, HelperPolicy};
use punctual_sched::registry::{Budgets, PolicyInfo};
use punctual_sched::utilization::Utilization;
use punctual_sched::{Duration, UnitParams, servers};

use crate::answer::{TaskAnswer, Test};
use crate::inputs::{Index, Inputs, UnitIx, may_run_on};
use crate::pool::{Group, groups};
use crate::reason::deadlock_text;

/// Utilizations in parts per million.
const MILLION: u64 = 1_000_000;
const BILLION: u64 = 1_000_000_000;

/// More than this leaves too little for what the file does not describe.
const HEADROOM: u64 = 900_000;

/// A budget and its period, both above zero.
#[derive(Clone, Copy)]
struct Reserved {
    budget: Duration,
    period: Duration,
}

impl Reserved {
    /// What the file reserves for a unit.
    fn of(params: &UnitParams) -> Option<Self> {
        let (budget, period) = params.budget.zip(params.period)?;
        (!budget.is_zero() && !period.is_zero()).then_some(Reserved { budget, period })
    }
}

/// All warnings, in the host's order.
pub(crate) fn of_host(inputs: Inputs<'_>, tasks: &BTreeMap<TaskIx, TaskAnswer>) -> Vec<Warning> {
    let host = inputs.host;
    let free = host.free_scheduling().map(|text| Warning { about: "machine".into(), text: text.into() });
    let pools = inputs.pools().flat_map(|pool| of_pool(inputs, pool, tasks));
    let helpers = host.domains.iter().filter_map(|domain| of_helpers(host, domain));
    let several = host.domains.iter().flat_map(|domain| of_vcpus(inputs, domain));
    pools.chain(helpers).chain(several).chain(lock_warnings(host)).chain(free).collect()
}

/// Domains whose tasks may wait for each other forever.
pub fn lock_warnings(host: &Host) -> Vec<Warning> {
    let domains = host.domains.iter().enumerate();
    let warning = |(ix, domain): (usize, &Domain)| {
        let text = deadlock_text(host, DomainIx(ix))?;
        Some(Warning { about: domain.name.clone(), text })
    };
    domains.filter_map(warning).collect()
}

/// What several vCPUs of one domain mean for it, and for its bounds.
fn of_vcpus(inputs: Inputs<'_>, domain: &Domain) -> Vec<Warning> {
    let vcpus = domain.vcpus.len();
    // Tasks on vCPUs that share a budget have no bounds.
    if vcpus < 2 || inputs.shares_budget(VcpuIx(domain.vcpus.start)) {
        return Vec::new();
    }
    let text = format!(
        "bounds assume that its {vcpus} vCPUs never wait for each other (spinlocks, interprocessor \
         interrupts)"
    );
    let bounds = Warning { about: domain.name.clone(), text };
    crowded(inputs, domain).into_iter().chain([bounds]).collect()
}

/// Domains with more vCPUs than processors: while a vCPU waits for another one, both have no more than one
/// processor's time.
pub fn vcpu_warnings(host: &Host) -> Vec<Warning> {
    let index = Index::new(host);
    let inputs = Inputs::new(host, &index);
    host.domains.iter().filter_map(|domain| crowded(inputs, domain)).collect()
}

/// Are there more vCPUs than processors: of all, or of those that are bound to some, or that the policy puts
/// on one?
fn crowded(inputs: Inputs<'_>, domain: &Domain) -> Option<Warning> {
    let host = inputs.host;
    // Those that share a budget run one at a time wherever they are.
    if domain.vcpus.len() > 1 && inputs.shares_budget(VcpuIx(domain.vcpus.start)) {
        return None;
    }
    let (processors, above, kind) = match domain.parent {
        Parent::Pool(pool) => (inputs.pool(pool).processors.len(), &inputs.pool(pool).name, "pool"),
        Parent::Domain(outer) => {
            let outer = &host.domains[outer.0];
            (outer.vcpus.len(), &outer.name, "domain")
        }
    };
    let vcpus = domain.vcpus.len();
    let (crowd, places, cure) = if vcpus > processors {
        let unit = if kind == "pool" { "processors" } else { "vCPUs" };
        (
            vcpus,
            processors,
            format!("give {kind} `{above}` {vcpus} {unit}, or the domain `vcpus = {processors}`"),
        )
    } else if let Some((crowd, places)) = bound_to_few(host, domain, processors) {
        (crowd, places, "widen `affinity`, or give the domain fewer vCPUs".to_owned())
    } else {
        let crowd = placed_on_one(inputs, domain)?;
        (crowd, 1, "give each a processor of its own by `affinity`, or the domain fewer vCPUs".to_owned())
    };
    let places = if places == 1 { "1 processor".to_owned() } else { format!("{places} processors") };
    Some(Warning {
        about: domain.name.clone(),
        text: format!(
            "{crowd} vCPUs on {places}: a vCPU that spins for another one (spinlock, interprocessor \
             interrupt) uses up its own time meanwhile; {cure}"
        ),
    })
}

/// More vCPUs of the domain than processors that they are bound to: how many of each.
fn bound_to_few(host: &Host, domain: &Domain, processors: usize) -> Option<(usize, usize)> {
    let vcpus = &host.vcpus[domain.vcpus.clone()];
    let allowed = |affinity| (0..processors).filter(|p| may_run_on(affinity, *p)).collect::<Vec<_>>();
    let places: Vec<Vec<usize>> = vcpus.iter().map(|vcpu| allowed(vcpu.params.affinity.as_ref())).collect();
    let mut distinct = places.clone();
    distinct.sort_unstable();
    distinct.dedup();
    distinct.iter().find_map(|few| {
        let crowd = places.iter().filter(|place| place.iter().all(|p| few.contains(p))).count();
        (crowd > few.len()).then_some((crowd, few.len()))
    })
}

/// More vCPUs of the domain than one on a processor, where the policy puts each on one: how many.
fn placed_on_one(inputs: Inputs<'_>, domain: &Domain) -> Option<usize> {
    let Parent::Pool(pool) = domain.parent else { return None };
    let groups = groups(inputs, pool).ok()?;
    let own = |unit: &&UnitIx| matches!(unit, UnitIx::Vcpu(vcpu) if domain.vcpus.contains(&vcpu.0));
    let crowds = groups.iter().filter(|group| group.processors == 1);
    crowds.map(|group| group.units.iter().filter(own).count()).find(|crowd| *crowd > 1)
}

fn of_pool(inputs: Inputs<'_>, pool: PoolIx, tasks: &BTreeMap<TaskIx, TaskAnswer>) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if !keeps_budgets(inputs.pool(pool).policy.info) {
        let about = inputs.pool(pool).name.clone();
        return of_demand(inputs, pool)
            .into_iter()
            .map(|text| Warning { about: about.clone(), text })
            .collect();
    }
    let mut warn = |about: &str, texts: Vec<String>| {
        warnings.extend(texts.into_iter().map(|text| Warning { about: about.to_owned(), text }));
    };
    for &vcpu in &inputs.index.in_pool(pool).vcpus {
        let about = &inputs.host.vcpus[vcpu.0];
        if let Some(own) = Reserved::of(&about.params) {
            warn(&about.name, of_budget(inputs, pool, own));
            // Several vCPUs share their tasks; only their sum is meaningful.
            let domain = inputs.domain_of(vcpu);
            if domain.vcpus.len() == 1 {
                warn(&about.name, of_tasks(inputs, vcpu, own, tasks));
            } else if domain.vcpus.start == vcpu.0 {
                warn(&domain.name, of_shared_tasks(inputs, vcpu));
            }
        }
    }
    warn(&inputs.pool(pool).name, of_processors(inputs, pool));
    warnings
}

fn keeps_budgets(policy: &PolicyInfo) -> bool {
    policy.budgets != Budgets::None
}

/// Threads of a VMM that are no vCPUs, on processors of a pool: guests wait for them, no policy schedules
/// them there.
fn of_helpers(host: &Host, domain: &Domain) -> Option<Warning> {
    let helpers = &domain.live.helpers;
    let pooled = |processor: usize| host.pools.iter().find(|pool| pool.processors.contains(&processor));
    let text = match &helpers.processors {
        Some(processors) => {
            let (processor, pool) = processors.iter().find_map(|p| Some((p, pooled(*p)?)))?;
            let pool = &pool.name;
            match helpers.policy {
                HelperPolicy::Other { .. } => format!(
                    "its helper threads share processor {processor} with the vCPUs of {pool} and run only in \
                     time that these leave: a vCPU that waits for a helper also waits for less urgent vCPUs \
                     (priority inversion); give the helpers a processor outside the pools, or `policy = \
                     \"fifo\"`"
                ),
                HelperPolicy::Fifo { priority } => format!(
                    "its helper threads run at priority {priority} on processor {processor} of {pool}; no \
                     budget and no bound includes their time"
                ),
            }
        }
        None if matches!(domain.live.backend, Backend::Vm(_) | Backend::Attach(_))
            && (0..host.processors).all(|p| pooled(p).is_some()) =>
        {
            "the pools leave no processor for its helper threads: a vCPU that waits for a helper also waits \
             for less urgent vCPUs (priority inversion)"
                .into()
        }
        None => return None,
    };
    Some(Warning { about: domain.name.clone(), text })
}

/// What enforcing budgets only every so often means for each vCPU: it is stopped up to that much later than
/// at the end of its budget, and less urgent ones wait as much longer.
pub fn enforcement_warnings(host: &Host, granularity: Duration) -> Vec<Warning> {
    let index = Index::new(host);
    let inputs = Inputs::new(host, &index);
    let mut warnings = Vec::new();
    for pool in inputs.pools().filter(|pool| keeps_budgets(inputs.pool(*pool).policy.info)) {
        for vcpu in index.in_pool(pool).vcpus.iter().map(|vcpu| &host.vcpus[vcpu.0]) {
            let Some(Reserved { budget, .. }) = Reserved::of(&vcpu.params) else { continue };
            let text = if budget < granularity {
                format!("the budget of {budget} is below the enforcement granularity of {granularity}")
            } else if granularity * 10 > budget {
                let part = percent(share(granularity, budget));
                format!(
                    "with enforcement every {granularity}, it may exceed its budget of {budget} by \
                         {part}"
                )
            } else {
                continue;
            };
            warnings.push(Warning { about: vcpu.name.clone(), text });
        }
    }
    warnings
}

/// The share of a processor that Linux gives its fair class ahead of real-time threads, if ordinary threads
/// want it: the fair server (`dl_server`, Linux `kernel/sched/deadline.c`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FairServer {
    /// In every period.
    pub runtime: Duration,
    /// Above zero.
    pub period: Duration,
}

impl FairServer {
    /// What Linux 6.12 and later have unless it is changed (`fair_server_init`).
    pub const DEFAULT: FairServer =
        FairServer { runtime: Duration::from_ms(50), period: Duration::from_secs(1) };
}

/// Pools whose budgets, with the enforcer's looks at them, leave the fair class less than the fair server
/// takes: live, budgets come short there when ordinary threads want their share.
pub fn fair_server_warnings(host: &Host, server: FairServer) -> Vec<Warning> {
    let index = Index::new(host);
    let inputs = Inputs::new(host, &index);
    let mut warnings = Vec::new();
    for pool in inputs.pools().filter(|pool| keeps_budgets(inputs.pool(*pool).policy.info)) {
        // Where no test knows the units' processors there is one group, of all of them.
        let whole = || Group { units: index.in_pool(pool).all().collect(), processors: usize::MAX };
        let groups = groups(inputs, pool).unwrap_or_else(|_| vec![whole()]);
        for (at, group) in groups.iter().enumerate() {
            let all = &inputs.pool(pool).processors;
            let processors = if group.processors == 1 { &all[at..=at] } else { all };
            let text = beside_fair_server(inputs, &group.units, processors, server);
            warnings.extend(text.map(|text| Warning { about: inputs.pool(pool).name.clone(), text }));
        }
    }
    warnings
}

/// What is wrong with the budgets of `units` on these processors beside the fair server, if anything is.
fn beside_fair_server(
    inputs: Inputs<'_>,
    units: &[UnitIx],
    processors: &[usize],
    server: FairServer,
) -> Option<String> {
    let overheads = &inputs.host.overheads;
    // A budget ends and comes back once in a period.
    let looks = (overheads.decision + overheads.context_switch) * 2;
    let reserved = units.iter().filter_map(|unit| Reserved::of(inputs.params(*unit)));
    let promised = Utilization::of(reserved.flat_map(|own| [own.budget, looks].map(|t| (t, own.period))));
    let mut with_server = promised;
    processors.iter().for_each(|_| with_server += Utilization::share(server.runtime, server.period));
    if with_server.fits(processors.len()) {
        return None;
    }
    let list: Vec<String> = processors.iter().map(usize::to_string).collect();
    let (runtime, period) = (server.runtime, server.period);
    Some(format!(
        "budgets and enforcement take {} of processor {}, but Linux's fair server keeps {runtime} in every \
         {period} for ordinary threads, so budgets come short in a live run; leave that much, or use \
         `--apply`, which switches the fair server off for the run",
        percent(promised.ppm()),
        list.join(","),
    ))
}

/// `part` of `whole` in billionths, rounded down.
fn billionths(part: Duration, whole: Duration) -> u64 {
    let scaled = u128::from(part.as_ns()) * u128::from(BILLION);
    u64::try_from(scaled / u128::from(whole.as_ns().max(1))).unwrap_or(u64::MAX)
}

/// `part` of `whole` in parts per million, rounded up.
fn share(part: Duration, whole: Duration) -> u64 {
    let scaled = u128::from(part.as_ns()) * u128::from(MILLION);
    u64::try_from(scaled.div_ceil(u128::from(whole.as_ns().max(1)))).unwrap_or(u64::MAX)
}

fn percent(ppm: u64) -> String {
    format!("{}.{} %", ppm / 10_000, ppm % 10_000 / 1_000)
}

/// A budget beside a switch and the quantum.
fn of_budget(inputs: Inputs<'_>, pool: PoolIx, own: Reserved) -> Vec<String> {
    let Reserved { budget, .. } = own;
    let overheads = &inputs.host.overheads;
    let switch = overheads.decision + overheads.context_switch;
    let mut texts = Vec::new();
    if switch * 10 > budget {
        let part = percent(share(switch, budget));
        texts.push(format!(
            "a context switch takes {part} of the budget of {budget}; a longer period wastes \
                            less"
        ));
    }
    let policy = &inputs.pool(pool).policy;
    let has_quantum = policy.info.option(servers::QUANTUM.name).is_some();
    let quantum = servers::quantum(&policy.options).filter(|_| has_quantum);
    if let Some(quantum) = quantum.filter(|quantum| budget < *quantum) {
        texts.push(format!(
            "the budget of {budget} is below the accounting quantum of {quantum}; `quantum \
         = \"exact\"` accounts \
                            without quanta"
        ));
    }
    texts
}

/// The tasks of a guest beside the budget of its only vCPU.
fn of_tasks(
    inputs: Inputs<'_>,
    vcpu: VcpuIx,
    own: Reserved,
    answers: &BTreeMap<TaskIx, TaskAnswer>,
) -> Vec<String> {
    let Reserved { budget, period } = own;
    let (mut used, mut odd) = (0u64, None);
    for task in inputs.tasks_beside(vcpu) {
        let Some(demand) = inputs.demand(task) else { continue };
        used = used.saturating_add(share(demand.cost, demand.period));
        // A budget that is never used up makes nobody wait.
        let waits = answers.get(&task).is_none_or(|answer| answer.test != Test::LightLoad);
        let is_odd = waits && !inputs.is_served(task) && !demand.period.is_multiple_of(period);
        odd = odd.or(is_odd.then_some((task, demand.period)));
    }
    let mut texts = Vec::new();
    if let Some((task, own)) = odd {
        let task = crate::inputs::name(inputs.host, UnitIx::Task(task));
        texts.push(format!(
            "task {task} has a period of {own}, which is not a multiple of the vCPU's {period}: its jobs may \
             wait for budget for a whole gap"
        ));
    }
    let supplied = share(budget, period);
    if used > supplied {
        texts.push(format!(
            "its tasks need {} of a processor, its budget provides {}",
            percent(used),
            percent(supplied)
        ));
    } else if u128::from(used) * u128::from(MILLION) > u128::from(supplied) * u128::from(HEADROOM) {
        let part = percent((u128::from(used) * u128::from(MILLION) / u128::from(supplied)) as u64);
        texts.push(format!("its tasks use {part} of its budget, which leaves little headroom"));
    }
    texts
}

/// The tasks of a guest beside the budgets of all its vCPUs.
fn of_shared_tasks(inputs: Inputs<'_>, first: VcpuIx) -> Vec<String> {
    let vcpus = &inputs.host.vcpus[inputs.domain_of(first).vcpus.clone()];
    let budget = |vcpu: &Vcpu| Reserved::of(&vcpu.params).map(|own| (own.budget, own.period));
    let Some(budgets) = vcpus.iter().map(budget).collect::<Option<Vec<_>>>() else { return Vec::new() };
    let supplied = Utilization::of(budgets).ppm();
    let demands: Vec<_> = inputs.tasks_beside(first).filter_map(|task| inputs.demand(task)).collect();
    let used = Utilization::of(demands.iter().map(|demand| (demand.cost, demand.period))).ppm();
    let text = || {
        let (used, supplied) = (percent(used), percent(supplied));
        format!("its tasks need {used} of a processor, the budgets of its vCPUs provide {supplied} together")
    };
    (used > supplied).then(text).into_iter().collect()
}

/// What a processor, or several that share a queue, must do, and for whom.
struct Asked<'h> {
    /// `processor 2` or `4 processors`.
    place: String,
    /// How many processors that is.
    processors: usize,
    /// By name: in billionths of a processor, rounded down, so that an excess is one.
    shares: Vec<(&'h str, u64)>,
}

impl<'h> Asked<'h> {
    /// Those that share processors, each group by itself; where no test knows the groups, the whole pool.
    /// `share`: what a unit asks for.
    fn by_processors(
        inputs: Inputs<'h>,
        pool: PoolIx,
        share: impl Fn(UnitIx) -> Option<u64>,
    ) -> Vec<Asked<'h>> {
        let all = &inputs.pool(pool).processors;
        let whole = || Group { units: inputs.index.in_pool(pool).all().collect(), processors: all.len() };
        let groups = groups(inputs, pool).unwrap_or_else(|_| vec![whole()]);
        let is_split = groups.len() > 1;
        let asked = |(at, group): (usize, &Group)| Asked {
            place: match group.processors {
                1 if is_split => format!("processor {}", all[at]),
                1 => "1 processor".to_owned(),
                several => format!("{several} processors"),
            },
            processors: group.processors,
            shares: (group.units.iter())
                .filter_map(|unit| Some((crate::inputs::name(inputs.host, *unit), share(*unit)?)))
                .collect(),
        };
        groups.iter().enumerate().map(asked).collect()
    }

    fn total(&self) -> u64 {
        self.shares.iter().fold(0, |sum, (_, share)| sum.saturating_add(*share))
    }

    fn capacity(&self) -> u64 {
        self.processors as u64 * BILLION
    }

    /// By how much it is too much, and the greatest parts of it; `None` if it is not.
    fn excess(&self) -> Option<String> {
        let excess = self.total().checked_sub(self.capacity()).filter(|excess| *excess > 0)?;
        let mut greatest: Vec<&(&str, u64)> = self.shares.iter().filter(|(_, share)| *share > 0).collect();
        greatest.sort_by_key(|(_, share)| std::cmp::Reverse(*share));
        let named =
            greatest.iter().take(NAMED_MAX).map(|(name, share)| format!("{name} {}", percent(share / 1_000)));
        let mut parts: Vec<String> = named.collect();
        if greatest.len() > NAMED_MAX {
            parts.push(format!("{} more", greatest.len() - NAMED_MAX));
        }
        let excess = percent((excess / 1_000).max(1_000));
        Some(format!("{excess} too much ({})", parts.join(", ")))
    }
}

/// How many of those that ask for too much are named.
const NAMED_MAX: usize = 4;

/// Tasks and guests without budgets that ask for more than the processors can do. Which of them miss is the
/// policy's choice; under fixed priorities the least urgent ones.
fn of_demand(inputs: Inputs<'_>, pool: PoolIx) -> Vec<String> {
    let asked = Asked::by_processors(inputs, pool, |unit| Some(demand_below(inputs, unit)));
    let text = |asked: &Asked<'_>| {
        let excess = asked.excess()?;
        let total = percent(asked.total() / 1_000);
        Some(format!(
            "tasks need {total} of {}, which is {excess}: at their highest rate some miss",
            asked.place
        ))
    };
    asked.iter().filter_map(text).collect()
}

/// What the jobs of a task, or of all tasks in a guest, need of a processor, in billionths rounded down. For
/// the first vCPU of several; the others share its tasks.
fn demand_below(inputs: Inputs<'_>, unit: UnitIx) -> u64 {
    match unit {
        UnitIx::Task(task) => inputs.demand(task).map_or(0, |of| billionths(of.cost, of.period)),
        UnitIx::Vcpu(vcpu) if inputs.domain_of(vcpu).vcpus.start == vcpu.0 => {
            inputs.units_beside(vcpu).fold(0, |sum, unit| sum.saturating_add(demand_below(inputs, unit)))
        }
        UnitIx::Vcpu(_) => 0,
    }
}

/// Budgets and periods on each processor, or over the pool where units are not tied to one.
fn of_processors(inputs: Inputs<'_>, pool: PoolIx) -> Vec<String> {
    let reserved = |unit| Reserved::of(inputs.params(unit));
    let asked = Asked::by_processors(inputs, pool, |unit| {
        reserved(unit).map(|own| billionths(own.budget, own.period))
    });
    let text = |asked: &Asked<'_>| {
        let (total, place) = (percent(asked.total() / 1_000), &asked.place);
        match asked.excess() {
            Some(excess) => Some(format!(
                "budgets add up to {total} of {place}, which is {excess}: some budget is not delivered when \
                 all vCPUs are busy"
            )),
            None if asked.total() / 1_000 > asked.processors as u64 * HEADROOM => {
                Some(format!("budgets add up to {total} of {place}, which leaves little headroom"))
            }
            None => None,
        }
    };
    let mut texts: Vec<String> = asked.iter().filter_map(text).collect();
    let units = inputs.index.in_pool(pool).all();
    let mut periods: Vec<Duration> = units.filter_map(reserved).map(|own| own.period).collect();
    periods.sort_unstable();
    periods.dedup();
    if let Some(pair) = periods.windows(2).find(|pair| !pair[1].is_multiple_of(pair[0])) {
        let [short, long] = [pair[0], pair[1]];
        texts.push(format!(
            "periods are not harmonic ({short} does not divide {long}): budgets overlap at every offset over \
             time, so the worst case applies"
        ));
    }
    texts
}
