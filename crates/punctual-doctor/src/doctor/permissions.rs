//! What this process may do: priorities, processors.

use super::check::Check;
use super::cpus::Cpus;
use super::finding::{Outcome, Reading};
use super::machine::Machine;
use super::parse::Limit;
use super::root::ReadError;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "privilege",
        title: "Permission to schedule threads",
        why: "Enforcement gives vCPU threads real-time priorities. Without CAP_SYS_NICE the kernel refuses, \
              except for one's own threads up to RLIMIT_RTPRIO.",
        source: "sched(7), \"Privileges and resource limits\"; capabilities(7)",
        judged: "CapEff of /proc/self/status and RLIMIT_RTPRIO of /proc/self/limits. Critical without \
                 either; a note with RLIMIT_RTPRIO alone, which does not reach VMs of other users.",
        examine: privilege,
    },
    Check {
        id: "affinity",
        title: "Processors this process may use",
        why: "Threads cannot be placed on a pool's processor that is outside the cpuset of their cgroup: \
              sched_setaffinity refuses it.",
        source: "cpuset(7); sched_setaffinity(2), EINVAL",
        judged: "The effective cpuset of this process' cgroup against the pool's processors: critical when \
                 one is missing. A note when only the affinity is narrower, since a run can widen that.",
        examine: affinity,
    },
];

const CAP_SYS_NICE: u32 = 23;

fn privilege(machine: &Machine) -> Result<Outcome, ReadError> {
    let (caps, nice) = machine.capability(CAP_SYS_NICE)?;
    if nice {
        return Ok(Outcome::ok("this process has CAP_SYS_NICE").readings([caps]));
    }
    let (limits, priority) = machine.limit("Max realtime priority")?;
    let outcome = match priority {
        Limit::AtMost(0) => Outcome::critical("neither CAP_SYS_NICE nor a real-time priority limit above 0"),
        limit => {
            let upto = match limit {
                Limit::Unlimited => 99,
                Limit::AtMost(limit) => limit,
            };
            Outcome::note(format!(
                "no CAP_SYS_NICE; RLIMIT_RTPRIO allows priorities up to {upto} for own threads"
            ))
        }
    };
    Ok(outcome.readings([caps, limits]).fix("sudo punctual run HOST.toml"))
}

fn affinity(machine: &Machine) -> Result<Outcome, ReadError> {
    let allowed = machine.own_affinity()?;
    let evidence = Reading { path: "/proc/self/status Cpus_allowed_list".into(), value: allowed.to_string() };
    if allowed.covers(&machine.pool) {
        let summary = format!("this process may use the pool's processors ({})", machine.pool);
        return Ok(Outcome::ok(summary).readings([evidence]));
    }
    // One that is offline is the check `processors`'.
    let pool = machine.pool.intersection(&machine.online);
    let missing = pool.without(&allowed);
    if missing.is_empty() {
        let summary = format!("this process may use those of the pool's processors that are online ({pool})");
        return Ok(Outcome::ok(summary).readings([evidence]));
    }
    let Some((group, path, cpuset)) = cpuset(machine) else {
        let summary = format!("this process may not use {missing}, and its cpuset cannot be read");
        return Ok(Outcome::unknown(summary).readings([evidence]));
    };
    let outcome = if cpuset.covers(&pool) {
        Outcome::note(format!("the affinity leaves out {missing}; a run can widen it to the cpuset"))
            .fix(format!("taskset -pc {pool} $$"))
    } else {
        let missing = pool.without(&cpuset);
        Outcome::critical(format!("the pool's processors {missing} are outside the cpuset of this cgroup"))
            .fix(format!("echo {} > {group}/cpuset.cpus", cpuset.union(&pool)))
    };
    Ok(outcome.readings([evidence]).read(path, cpuset))
}

/// The effective cpuset of this process: its cgroup, the file, the processors.
fn cpuset(machine: &Machine) -> Option<(String, String, Cpus)> {
    [("cpuset", "cpuset.effective_cpus"), ("", "cpuset.cpus.effective")].into_iter().find_map(
        |(controller, file)| {
            let group = machine.cgroups(controller).ok()?.into_iter().next()?;
            let path = format!("{group}/{file}");
            let cpus = machine.cpus(&path).ok()?;
            Some((group, path, cpus))
        },
    )
}
