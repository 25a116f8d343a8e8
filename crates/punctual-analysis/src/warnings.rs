//! What practitioners should know although it is no verdict.

use punctual_model::Host;
use punctual_model::guarantees::Warning;
use punctual_model::host::Domain;
use punctual_model::live::{Backend, HelperPolicy};
use punctual_sched::{Duration, UnitParams, servers};

use crate::host::{Analysis, Index, Unit};

/// Utilisations in parts per million.
const MILLION: u64 = 1_000_000;

/// More than this leaves too little for what the file does not describe.
const HEADROOM: u64 = 900_000;

/// All warnings, in the host's order.
pub(crate) fn of(analysis: &Analysis) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for pool in 0..analysis.host.pools.len() {
        let has_budget = |name: &str| {
            analysis.host.pools[pool].policy.info.unit_params.iter().any(|param| param.name == name)
        };
        if !has_budget("budget") {
            continue;
        }
        let units = analysis.index.in_pool[pool].all();
        for unit in &units {
            if let (Unit::Vcpu(v), Some((budget, period))) = (unit, reserved(analysis.params(*unit))) {
                vcpu(analysis, pool, *v, budget, period, &mut warnings);
            }
        }
        processors(analysis, pool, &units, &mut warnings);
    }
    warnings.extend(analysis.host.domains.iter().filter_map(|domain| helpers(analysis.host, domain)));
    warnings
}

/// Threads of a VMM that are no vCPUs, on processors of a pool: guests wait for them, nobody schedules them
/// there.
fn helpers(host: &Host, domain: &Domain) -> Option<Warning> {
    let helpers = &domain.live.helpers;
    let pooled = |processor: usize| host.pools.iter().find(|pool| pool.processors.contains(&processor));
    let text = match &helpers.processors {
        Some(processors) => {
            let (processor, pool) = processors.iter().find_map(|p| Some((p, pooled(*p)?)))?;
            let pool = &pool.name;
            match helpers.policy {
                HelperPolicy::Other { .. } => format!(
                    "its helper threads share processor {processor} with the vCPUs of {pool} and run only when these leave \
                     time: a vCPU that waits for one waits for less urgent vCPUs as well (priority inversion); give them \
                     a processor outside of the pools, or `policy = \"fifo\"`"
                ),
                HelperPolicy::Fifo { priority } => format!(
                    "its helper threads run at priority {priority} on processor {processor} of {pool}; their time is in \
                     no budget and no bound here"
                ),
            }
        }
        None if matches!(domain.live.backend, Backend::Vm(_) | Backend::Attach(_))
            && (0..host.processors).all(|p| pooled(p).is_some()) =>
        {
            "no processor is outside of the pools for its helper threads: a vCPU that waits for one waits for less urgent \
             vCPUs as well (priority inversion)"
                .into()
        }
        None => return None,
    };
    Some(Warning { about: domain.name.clone(), text })
}

/// What enforcing budgets only every so often means for each vCPU: it is stopped up to that much later than
/// at the end of its budget, and less urgent ones wait as much longer.
pub fn of_enforcement(host: &Host, granularity: Duration) -> Vec<Warning> {
    let index = Index::new(host);
    let mut warnings = Vec::new();
    for (pool, units) in host.pools.iter().zip(&index.in_pool) {
        if !pool.policy.info.unit_params.iter().any(|param| param.name == "budget") {
            continue;
        }
        for vcpu in units.vcpus.iter().map(|v| &host.vcpus[*v]) {
            let Some((budget, _)) = reserved(&vcpu.params) else { continue };
            let text = match () {
                () if budget < granularity => {
                    format!("the budget of {budget} is below the enforcement granularity of {granularity}")
                }
                () if granularity * 10 > budget => {
                    let part = percent(share(granularity, budget));
                    format!("enforced every {granularity}, the budget of {budget} may be overrun by {part}")
                }
                () => continue,
            };
            warnings.push(Warning { about: vcpu.name.clone(), text });
        }
    }
    warnings
}

fn reserved(params: &UnitParams) -> Option<(Duration, Duration)> {
    params.budget.zip(params.period).filter(|(budget, period)| !budget.is_zero() && !period.is_zero())
}

/// `part` of `whole` in parts per million, rounded up.
fn share(part: Duration, whole: Duration) -> u64 {
    let scaled = u128::from(part.as_ns()) * u128::from(MILLION);
    u64::try_from(scaled.div_ceil(u128::from(whole.as_ns().max(1)))).unwrap_or(u64::MAX)
}

fn percent(ppm: u64) -> String {
    format!("{}.{} %", ppm / 10_000, ppm % 10_000 / 1_000)
}

fn vcpu(
    analysis: &Analysis,
    pool: usize,
    v: usize,
    budget: Duration,
    period: Duration,
    warnings: &mut Vec<Warning>,
) {
    let host = analysis.host;
    let mut warn = |text: String| warnings.push(Warning { about: host.vcpus[v].name.clone(), text });
    let switch = host.overheads.decision + host.overheads.context_switch;
    if switch * 10 > budget {
        let part = percent(share(switch, budget));
        warn(format!("a switch takes {part} of the budget of {budget}; longer periods waste less"));
    }
    let policy = &host.pools[pool].policy;
    let has_quantum = policy.info.option(servers::QUANTUM.name).is_some();
    let quantum = servers::quantum(&policy.options).filter(|_| has_quantum);
    if let Some(quantum) = quantum.filter(|quantum| budget < *quantum) {
        warn(format!("the budget of {budget} is below the quantum of {quantum}"));
    }
    let domain = &host.domains[host.vcpus[v].domain.0];
    // Several vCPUs share their tasks; only the whole says something.
    if domain.vcpus.len() > 1 {
        return;
    }
    let tasks = &analysis.index.in_domain[host.vcpus[v].domain.0].tasks;
    let demands = tasks.iter().filter_map(|t| analysis.demand(*t).map(|d| (*t, d)));
    let mut used = 0u64;
    let mut odd = None;
    for (task, demand) in demands {
        used = used.saturating_add(share(Duration::from_ns(demand.cost), Duration::from_ns(demand.period)));
        let odd_period = !analysis.is_served(task) && !demand.period.is_multiple_of(period.as_ns());
        if odd.is_none() && odd_period {
            odd = Some((&host.tasks[task].name, Duration::from_ns(demand.period)));
        }
    }
    if let Some((task, own)) = odd {
        warn(format!(
            "the period of task {task}, {own}, is no multiple of the vCPU's, {period}: its jobs wait up to a whole \
             gap for budget"
        ));
    }
    let supplied = share(budget, period);
    if used > supplied {
        warn(format!("its tasks ask for {}, its budget is {}", percent(used), percent(supplied)));
    } else if u128::from(used) * u128::from(MILLION) > u128::from(supplied) * u128::from(HEADROOM) {
        let part = percent((u128::from(used) * u128::from(MILLION) / u128::from(supplied)) as u64);
        warn(format!("its tasks use {part} of its budget: little headroom"));
    }
}

/// Budgets and periods on each processor, or over the pool where units are not tied to one.
fn processors(analysis: &Analysis, pool: usize, units: &[Unit], warnings: &mut Vec<Warning>) {
    let about = &analysis.host.pools[pool];
    let processors = about.processors.len() as u64;
    let budgets = units.iter().filter_map(|unit| reserved(analysis.params(*unit)));
    let (mut total, mut periods) = (0u64, Vec::new());
    for (budget, period) in budgets {
        total = total.saturating_add(share(budget, period));
        periods.push(period.as_ns());
    }
    let mut warn = |text: String| warnings.push(Warning { about: about.name.clone(), text });
    let capacity = processors * MILLION;
    if total > capacity {
        warn(format!("budgets add up to {} of {processors} processors", percent(total)));
    } else if total > processors * HEADROOM {
        warn(format!("budgets add up to {} of {processors} processors: little headroom", percent(total)));
    }
    periods.sort_unstable();
    periods.dedup();
    if let Some(pair) = periods.windows(2).find(|pair| !pair[1].is_multiple_of(pair[0])) {
        let [short, long] = [pair[0], pair[1]].map(Duration::from_ns);
        warn(format!(
            "periods are not harmonic ({short} does not divide {long}): budgets meet at ever other offsets, and the \
             worst of them counts"
        ));
    }
}
