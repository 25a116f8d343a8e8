//! Xen: configuration of cpupools and domains, and one script for what already runs; with Xen's own
//! schedulers or with Punctual's.
//!
//! Commands: xl(1), xl.cfg(5), xlcpupool.cfg(5). Times of `sched-rtds` are microseconds, from 10 (Xen:
//! `xen/common/sched/rt.c`, RTDS_MIN_PERIOD and RTDS_MIN_BUDGET) to what a C `int` holds
//! (`tools/xl/xl_sched.c`).

use punctual_sched::credit::{self, WEIGHT_DEFAULT};
use punctual_sched::registry::{OptionValue, PolicyInfo, XenScheduler};
use punctual_sched::{Duration, UnitParams};

use super::linux::budget_and_period;
use super::loss::{Loss, Losses};
use super::quota::{us_down, us_up};
use super::target::ExportFile;
use super::text::{argument, cpu_list, header};
use super::units::{common, domains, processors};
use crate::host::{Domain, Host, Pool, Vcpu};
use crate::live::Helpers;

/// The pool that always exists and that domain 0 lives in.
const FIRST_POOL: &str = "Pool-0";
/// Domain 0 is never created, migrated or configured.
const MANAGER: &str = "Domain-0";
/// Limits of RTDS times, us.
const RTDS_US: std::ops::RangeInclusive<u64> = 10..=i32::MAX as u64;
/// Xen's default period (`RTDS_DEFAULT_PERIOD`).
const BEST_EFFORT_PERIOD_US: u64 = 10_000;
/// The smallest weight that Xen's Credit takes.
const WEIGHT_MIN: u32 = 1;

/// Whose schedulers Xen has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Schedulers {
    /// Its own: RTDS and Credit.
    Own,
    /// Punctual's in place of RTDS, which `punctual xen` asks (docs/xen.md).
    Punctual,
}

/// The scheduler of Xen's own that a pool's policy becomes.
fn scheduler(pool: &Pool) -> XenScheduler {
    let info = pool.policy.info;
    let nearest = if info.reads(UnitParams::BUDGET) { XenScheduler::Rtds } else { XenScheduler::Credit };
    info.xen.unwrap_or(nearest)
}

pub(super) fn files(host: &Host, whose: Schedulers, losses: &mut Losses) -> Vec<ExportFile> {
    for pool in &host.pools {
        if whose == Schedulers::Own {
            policy_losses(pool, losses);
        }
        place_losses(host, pool, losses);
    }
    losses.add_tasks(host, "Xen schedules vCPUs only: put the task into a domain");
    losses.add_nested(host);
    let mut script = String::new();
    let mut files = Vec::new();
    for pool in &host.pools {
        script += &pool_commands(pool, whose);
        files.extend((pool.name != FIRST_POOL).then(|| pool_file(host, pool, whose, losses)));
    }
    let mut domain_files = Vec::new();
    for (domain, pool) in domains(host) {
        let pool = &host.pools[pool.0];
        if domain.live.helpers != Helpers::default() {
            losses.add(
                &domain.name,
                "helpers",
                "Xen has no helper threads: the device model is a process of \
                                                 domain 0",
            );
        }
        script += &domain_commands(host, domain, (pool, whose), losses);
        let own = domain.name != MANAGER;
        domain_files.extend(own.then(|| domain_file(host, domain, (pool, whose), losses)));
    }
    files.extend(domain_files);
    let usage = [
        "usage: sh apply.sh   in domain 0, as root, in the directory of the .pool.cfg files".into(),
        "It makes the cpupools and sets the domains that run; new ones take the lines of their .cfg file,"
            .into(),
        "which has no place for the scheduler's parameters: run this again then.".into(),
    ];
    let what = match whose {
        Schedulers::Own => "Scheduling for Xen",
        Schedulers::Punctual => "Scheduling for Xen with sched=punctual",
    };
    let head = header(host, what, &usage, losses.list.iter());
    let text = format!("#!/bin/sh\n{head}set -eu\n{script}");
    files.push(ExportFile { name: "apply.sh".into(), text });
    files
}

fn policy_losses(pool: &Pool, losses: &mut Losses) {
    let policy = &pool.policy;
    let serves =
        "becomes RTDS, Xen's only scheduler with budgets: a deferrable server, the earliest deadline first";
    let shares = "becomes Credit: Xen has no such scheduler";
    let name = policy.info.name;
    match (policy.info.xen, scheduler(pool)) {
        (Some(_), _) => {}
        (None, XenScheduler::Rtds) => losses.add(&pool.name, "policy", format!("`{name}` {serves}")),
        (None, XenScheduler::Credit) => losses.add(&pool.name, "policy", format!("`{name}` {shares}")),
    }
    if policy.info.reads(UnitParams::PRIORITY) {
        losses.add(&pool.name, "priority", "Xen has no fixed priorities");
    }
    let is_credit = policy.info.xen == Some(XenScheduler::Credit);
    for (option, value) in policy.options.iter() {
        if !(is_credit && credit_option_is_kept(option, value)) {
            losses.add(&pool.name, option, "Xen does not have this option, or not with this value");
        }
    }
    if pool.name == FIRST_POOL {
        let boot = scheduler(pool).name();
        losses.add(
            FIRST_POOL,
            "policy",
            format!("its scheduler is chosen at boot: sched={boot} for the hypervisor"),
        );
    }
}

fn place_losses(host: &Host, pool: &Pool, losses: &mut Losses) {
    if pool.name != FIRST_POOL && !host.pools.iter().any(|p| p.name == FIRST_POOL) && pools_take_all(host) {
        let why = "Pool-0 with domain 0 needs a processor: leave one out of every pool";
        losses.add(&pool.name, "processors", why);
    }
}

/// Does Xen's Credit take this value of the option?
fn credit_option_is_kept(option: &str, value: OptionValue) -> bool {
    match value {
        OptionValue::Duration(d) if option == credit::SLICE.name => {
            d.as_ns() % 1_000_000 == 0 && d.as_ns() / 1_000_000 <= 1_000
        }
        OptionValue::Word(word) if option == credit::RULES.name => word == credit::XEN,
        OptionValue::Word(word) if option == credit::REFILL.name => word == credit::BY_PERIOD,
        OptionValue::Duration(d) if option == credit::RATELIMIT.name => {
            d.is_zero() || (d.as_ns() % 1_000 == 0 && (100..=500_000).contains(&(d.as_ns() / 1_000)))
        }
        _ => false,
    }
}

/// Is there no processor left for [`FIRST_POOL`]?
fn pools_take_all(host: &Host) -> bool {
    host.pools.iter().map(|pool| pool.processors.len()).sum::<usize>() >= host.processors
}

fn pool_file(host: &Host, pool: &Pool, whose: Schedulers, losses: &Losses) -> ExportFile {
    let own = |loss: &&Loss| loss.item == pool.name;
    let head = header(host, &format!("Cpupool {}", pool.name), &[], losses.list.iter().filter(own));
    let cpus: Vec<String> = pool.processors.iter().map(|n| format!("\"{n}\"")).collect();
    // Punctual's has RTDS's number, and so its name.
    let scheduler = match whose {
        Schedulers::Own => scheduler(pool),
        Schedulers::Punctual => XenScheduler::Rtds,
    };
    let (scheduler, cpus) = (scheduler.name(), cpus.join(", "));
    let text = format!("{head}name = \"{}\"\nsched = \"{scheduler}\"\ncpus = [{cpus}]\n", pool.name);
    ExportFile { name: format!("{}.pool.cfg", pool.name), text }
}

fn pool_commands(pool: &Pool, whose: Schedulers) -> String {
    let name = &pool.name;
    let mut out = format!("\n# pool {name}\n");
    if name != FIRST_POOL {
        let cpus = cpu_list(&pool.processors);
        out += &format!("xl cpupool-cpu-remove {FIRST_POOL} {cpus}\nxl cpupool-create {name}.pool.cfg\n");
    }
    if whose == Schedulers::Punctual {
        out += &format!("punctual xen pool {name} --policy {}", pool.policy.info.name);
        for (option, value) in pool.policy.options.iter() {
            out += &format!(" --option {option}={value}");
        }
        return out + "\n";
    }
    if pool.policy.info.xen == Some(XenScheduler::Credit) {
        let (slice, ratelimit) = credit::slice_and_ratelimit(&pool.policy.options);
        let slice_ms = slice.as_ns().div_ceil(1_000_000).min(1_000);
        let ratelimit_us = match us_up(ratelimit) {
            0 => 0,
            us => us.clamp(100, 500_000),
        };
        out += &format!("xl sched-credit -p {name} -s -t {slice_ms} -r {ratelimit_us}\n");
    }
    out
}

/// The lines of a domain's configuration.
fn domain_file(
    host: &Host,
    domain: &Domain,
    (pool, whose): (&Pool, Schedulers),
    losses: &Losses,
) -> ExportFile {
    let units: Vec<&UnitParams> = host.vcpus[domain.vcpus.clone()].iter().map(|v| &v.params).collect();
    let usage = ["Merge into the domain's own configuration.".to_string()];
    let what = format!("Domain {}", domain.name);
    let mut text = header(host, &what, &usage, losses.of_domain(host, domain));
    text += &format!("name = \"{}\"\nvcpus = {}\npool = \"{}\"\n", domain.name, units.len(), pool.name);
    let lists = units.iter().map(|params| cpu_list(&processors(pool, params.affinity.as_ref())));
    let lists: Vec<String> = lists.map(|list| format!("\"{list}\"")).collect();
    text += &if common(&units, |p| p.affinity.clone()) {
        format!("cpus = {}\n", lists[0])
    } else {
        format!("cpus = [{}]\n", lists.join(", "))
    };
    if whose == Schedulers::Own && scheduler(pool) == XenScheduler::Credit {
        let (weight, cap) = weight_and_cap(pool, &units);
        text += &format!("cpu_weight = {weight}\ncap = {cap}\n");
    }
    ExportFile { name: format!("{}.cfg", domain.name), text }
}

fn domain_commands(
    host: &Host,
    domain: &Domain,
    (pool, whose): (&Pool, Schedulers),
    losses: &mut Losses,
) -> String {
    let vcpus = &host.vcpus[domain.vcpus.clone()];
    let units: Vec<&UnitParams> = vcpus.iter().map(|v| &v.params).collect();
    let name = &domain.name;
    let mut out = format!("\n# domain {name}\n");
    if name == MANAGER && pool.name != FIRST_POOL {
        losses.add(name, "pool", "domain 0 never leaves Pool-0");
        return out + "# domain 0 never leaves Pool-0\n";
    }
    if name != MANAGER && pool.name != FIRST_POOL {
        out += &format!("xl cpupool-migrate {} {}\n", argument(name), pool.name);
    }
    out += &match (whose, scheduler(pool)) {
        (Schedulers::Punctual, _) => set_commands(domain, pool, vcpus),
        (Schedulers::Own, XenScheduler::Rtds) => rtds_command(domain, pool, vcpus, losses),
        (Schedulers::Own, XenScheduler::Credit) => credit_command(domain, pool, &units, losses),
    };
    if common(&units, |p| p.affinity.clone()) {
        let list = cpu_list(&processors(pool, units[0].affinity.as_ref()));
        return out + &format!("xl vcpu-pin {} all {list}\n", argument(name));
    }
    for (n, params) in units.iter().enumerate() {
        let list = cpu_list(&processors(pool, params.affinity.as_ref()));
        out += &format!("xl vcpu-pin {} {n} {list}\n", argument(name));
    }
    out
}

/// `punctual xen set` for all vCPUs, or for each.
fn set_commands(domain: &Domain, pool: &Pool, vcpus: &[Vcpu]) -> String {
    let info = pool.policy.info;
    let flags: Vec<String> = vcpus.iter().map(|vcpu| set_flags(info, &vcpu.params)).collect();
    let line = |unit: &str, flags: &str| match flags {
        "" => String::new(),
        flags => format!("punctual xen set{flags} {}\n", argument(unit)),
    };
    if flags.iter().all(|of| *of == flags[0]) {
        return line(&domain.name, &flags[0]);
    }
    (0..).zip(&flags).map(|(n, flags): (usize, _)| line(&format!("{}/{n}", domain.name), flags)).collect()
}

/// Those parameters that the policy reads.
fn set_flags(info: &PolicyInfo, params: &UnitParams) -> String {
    if params.best_effort {
        return " --best-effort true".into();
    }
    let time = |time: Option<Duration>| time.map(|time| time.to_string());
    let number = |number: Option<u32>| number.map(|number| number.to_string());
    [
        (UnitParams::BUDGET, "budget", time(params.budget)),
        (UnitParams::PERIOD, "period", time(params.period)),
        (UnitParams::DEADLINE, "deadline", time(params.deadline)),
        (UnitParams::PRIORITY, "priority", number(params.priority)),
        (UnitParams::WEIGHT, "weight", number(params.weight)),
        (UnitParams::CAP_PERCENT, "cap", number(params.cap_percent)),
        (UnitParams::EXTRATIME, "extratime", params.extratime.map(|extra| extra.to_string())),
    ]
    .into_iter()
    .filter(|(key, ..)| info.reads(key))
    .filter_map(|(_, flag, value)| Some(format!(" --{flag} {}", value?)))
    .collect()
}

/// `xl sched-credit` for the domain.
fn credit_command(domain: &Domain, pool: &Pool, units: &[&UnitParams], losses: &mut Losses) -> String {
    let name = &domain.name;
    if !common(units, |p| (p.weight, p.cap_percent)) {
        let why = "Xen has one weight and one cap for all vCPUs of a domain: the greatest weight applies";
        losses.add(name, UnitParams::WEIGHT, why);
    }
    let has_cap = |params: &&&UnitParams| params.cap_percent.is_some_and(|cap| cap > 0);
    let caps = units.iter().filter(has_cap).count();
    if pool.policy.info.reads(UnitParams::CAP_PERCENT) && caps > 0 && caps < units.len() {
        let why = "Xen's cap is that of all vCPUs together: with a vCPU that has none, the domain has none";
        losses.add(name, UnitParams::CAP_PERCENT, why);
    }
    if units.iter().any(|params| params.best_effort) {
        let why = "Xen's Credit has no best-effort class: the domain gets the smallest weight";
        losses.add(name, UnitParams::BEST_EFFORT, why);
    }
    let (weight, cap) = weight_and_cap(pool, units);
    format!("xl sched-credit -d {name} -w {weight} -c {cap}\n")
}

/// Credit's weight of the domain, and its cap, which is that of all vCPUs together; 0 is none.
fn weight_and_cap(pool: &Pool, units: &[&UnitParams]) -> (u32, u32) {
    if pool.policy.info.xen != Some(XenScheduler::Credit) {
        let is_best_effort = units.iter().all(|params| params.best_effort);
        return (if is_best_effort { WEIGHT_MIN } else { WEIGHT_DEFAULT }, 0);
    }
    let own = |params: &&UnitParams| {
        if params.best_effort { WEIGHT_MIN } else { params.weight.unwrap_or(WEIGHT_DEFAULT) }
    };
    let weights = units.iter().map(own);
    let weight = weights.max().unwrap_or(WEIGHT_DEFAULT);
    let caps = || units.iter().map(|p| p.cap_percent.unwrap_or(0));
    (weight, if caps().all(|cap| cap > 0) { caps().sum() } else { 0 })
}

/// `xl sched-rtds` for all vCPUs, or for each.
fn rtds_command(domain: &Domain, pool: &Pool, vcpus: &[Vcpu], losses: &mut Losses) -> String {
    let values: Vec<String> = vcpus
        .iter()
        .map(|vcpu| {
            let (period_us, budget_us) = rtds_us(pool, vcpu, losses);
            let extratime = u8::from(vcpu.params.best_effort || pool.policy.info.extratime(&vcpu.params));
            format!("-p {period_us} -b {budget_us} -e {extratime}")
        })
        .collect();
    let mut out = format!("xl sched-rtds -d {}", domain.name);
    if values.iter().all(|v| *v == values[0]) {
        return out + &format!(" -v all {}\n", values[0]);
    }
    for (n, value) in values.iter().enumerate() {
        out += &format!(" -v {n} {value}");
    }
    out + "\n"
}

/// Period and budget in microseconds that Xen takes, no smaller a share than asked for if that can be.
fn rtds_us(pool: &Pool, vcpu: &Vcpu, losses: &mut Losses) -> (u64, u64) {
    if vcpu.params.best_effort {
        let why = "Xen's RTDS has no best-effort class: the unit gets the smallest budget and the time that \
                   others leave";
        losses.add(&vcpu.name, UnitParams::BEST_EFFORT, why);
        return (BEST_EFFORT_PERIOD_US, *RTDS_US.start());
    }
    let (budget, period) = budget_and_period(pool.policy.info, &vcpu.params);
    let period_us = us_down(period).clamp(*RTDS_US.start(), *RTDS_US.end());
    let budget_us = us_up(budget).clamp(*RTDS_US.start(), period_us);
    if (u128::from(budget_us) * 1_000, u128::from(period_us) * 1_000)
        != (budget.as_ns().into(), period.as_ns().into())
    {
        let why = format!(
            "{budget} in every {period} is written as {budget_us} us in every {period_us} us: Xen takes \
             whole microseconds, from 10 us to 2147483647 us"
        );
        losses.add(&vcpu.name, "budget", why);
    }
    (period_us, budget_us)
}
