//! What holds real-time threads back: throttling, the fair server, and the cgroup of this process.

use super::check::Check;
use super::cpus::Cpus;
use super::finding::{Outcome, Reading};
use super::machine::Machine;
use super::parse;
use super::root::{ReadError, Reason};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "rt-throttling",
        title: "Throttling of real-time threads",
        why: "Once real-time threads have used the runtime within a period, all of them stand still until \
              the period ends: 50 ms of every second with the usual values, whatever their budgets say.",
        source: "Linux, Documentation/scheduler/sched-rt-group.rst; kernel/sched/rt.c, where Linux 6.12 \
                 removed it for kernels without CONFIG_RT_GROUP_SCHED (commit 5f6bd380c7bd)",
        judged: "/proc/sys/kernel/sched_rt_runtime_us and sched_rt_period_us. Ok when the runtime is -1 or \
                 the whole period. A note when the kernel applies it to SCHED_DEADLINE's admission only: \
                 Linux 6.12 or later without group scheduling of real-time threads, by its configuration or \
                 by rt_group_sched=0.",
        examine: rt_throttling,
    },
    Check {
        id: "fair-server",
        title: "Fair server",
        why: "Since Linux 6.12 a deadline server gives starving ordinary threads a share of each processor \
              before any real-time thread: 50 ms of every second unless changed. A vCPU that should run \
              waits meanwhile.",
        source: "Linux, kernel/sched/deadline.c, dl_server (commits 63ba8422f876, d741f297bcea)",
        judged: "/sys/kernel/debug/sched/fair_server/cpuN/runtime and period of the pool's processors. Ok \
                 when the runtime is 0 or the kernel older.",
        examine: fair_server,
    },
    Check {
        id: "rt-group",
        title: "Real-time limit of this cgroup",
        why: "With group scheduling of real-time threads, a cgroup without real-time runtime refuses \
              SCHED_FIFO, and one with little of it throttles its threads as a group.",
        source: "Linux, Documentation/scheduler/sched-rt-group.rst; Documentation/admin-guide/cgroup-v2.rst, \
                 \"CPU\"",
        judged: "Version 1: cpu.rt_runtime_us of this process' cgroup; critical at 0, a warning below the \
                 period in a cgroup other than the root. Version 2: critical in a cgroup with the cpu \
                 controller if the kernel has CONFIG_RT_GROUP_SCHED.",
        examine: rt_group,
    },
    Check {
        id: "cpu-quota",
        title: "CPU quota of this cgroup",
        why: "A quota stops the ordinary threads of the cgroup until its next period. It spares real-time \
              threads, but not a VM's helper threads, for which a vCPU may wait.",
        source: "Linux, Documentation/scheduler/sched-bwc.rst",
        judged: "cpu.max (version 2) or cpu.cfs_quota_us (version 1) of this process' cgroup and those above \
                 it: a warning when one is set.",
        examine: cpu_quota,
    },
    Check {
        id: "cgroup-moves",
        title: "Moves of processes between cgroups",
        why: "Parking a vCPU takes the kernel's cgroup lock. A program that moves a process to another \
              cgroup, for example to start a container or a service, holds that lock through a grace period \
              of RCU: 6 to 14 ms and more on Linux 6.18. Budgets end late by that much, unless the hierarchy \
              is mounted with favordynmods.",
        source: "Linux, Documentation/admin-guide/cgroup-v2.rst, favordynmods (Linux 6.0); \
                 kernel/cgroup/cgroup.c, cgroup_procs_write_start",
        judged: "The options of cgroup version 2 in /proc/self/mountinfo: a note without favordynmods, which \
                 makes forks and exits a little slower. A run does not change it, because Linux 6.18 cannot \
                 undo it completely.",
        examine: cgroup_moves,
    },
];

const RT_RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
const RT_PERIOD: &str = "/proc/sys/kernel/sched_rt_period_us";

fn rt_throttling(machine: &Machine) -> Result<Outcome, ReadError> {
    let (runtime, period) = (machine.root.number(RT_RUNTIME)?, machine.root.number(RT_PERIOD)?);
    let evidence = |outcome: Outcome| outcome.read(RT_RUNTIME, runtime).read(RT_PERIOD, period);
    if runtime < 0 || runtime >= period {
        return Ok(evidence(Outcome::ok("real-time threads are not throttled")));
    }
    let share = format!("{} of every {}", us(runtime), us(period));
    let only_admission = machine.kernel_version().is_ok_and(|version| version >= (6, 12))
        && group_scheduling(machine).is_ok_and(|group| !group);
    if only_admission {
        let summary =
            format!("{share}, but only for the admission of SCHED_DEADLINE: SCHED_FIFO is not throttled");
        return Ok(evidence(Outcome::note(summary)));
    }
    let outcome = Outcome::warning(format!("real-time threads may run {share}"));
    Ok(evidence(outcome).fix(format!("echo -1 > {RT_RUNTIME}")).set(
        RT_RUNTIME,
        "-1",
        &runtime.to_string(),
        "real-time threads are not throttled",
    ))
}

/// Microseconds for people.
fn us(us: i64) -> String {
    match us {
        us if us % 1_000_000 == 0 => format!("{} s", us / 1_000_000),
        us if us % 1000 == 0 => format!("{} ms", us / 1000),
        us => format!("{us} us"),
    }
}

/// Does the kernel schedule real-time threads by group?
fn group_scheduling(machine: &Machine) -> Result<bool, ReadError> {
    let off = |text: &str| parse::parameter(text, "rt_group_sched").is_some_and(|value| value == "0");
    if machine.cmdline().is_ok_and(|text| off(&text)) {
        return Ok(false);
    }
    // The file exists only in kernels that do.
    let file = |group: String| machine.root.has(&format!("{group}/cpu.rt_runtime_us"));
    if machine.cgroups("cpu").is_ok_and(|groups| groups.into_iter().any(file)) {
        return Ok(true);
    }
    let (_, config) = machine.config()?;
    Ok(parse::config_option(config, "CONFIG_RT_GROUP_SCHED") == Some("y"))
}

fn fair_server(machine: &Machine) -> Result<Outcome, ReadError> {
    let (major, minor) = machine.kernel_version()?;
    if (major, minor) < (6, 12) {
        return Ok(Outcome::ok(format!("Linux {major}.{minor} has none")));
    }
    let directory = "/sys/kernel/debug/sched";
    if !machine.root.has(directory) {
        let reason = if machine.root.has("/sys/kernel/debug") {
            "debugfs is not mounted, or may not be read"
        } else {
            "the kernel has no debugfs"
        };
        let outcome = Outcome::unknown(format!("{directory}: {reason}"));
        return Ok(outcome.fix("mount -t debugfs none /sys/kernel/debug"));
    }
    let (mut servers, mut readings) = (Vec::new(), Vec::new());
    for (cpu, path) in machine.each("/sys/kernel/debug/sched/fair_server/cpu{}/runtime") {
        let period_path = path.replace("runtime", "period");
        let (runtime_ns, period_ns) = (machine.root.number(&path)?, machine.root.number(&period_path)?);
        readings.push(Reading { path: path.clone(), value: runtime_ns.to_string() });
        readings.push(Reading { path: period_path, value: period_ns.to_string() });
        if runtime_ns > 0 {
            servers.push(FairServer { cpu, path, runtime_ns, period_ns });
        }
    }
    let Some(longest) = servers.iter().max_by_key(|server| server.runtime_ns) else {
        return Ok(Outcome::ok("switched off").readings(readings));
    };
    let share = format!("{} of every {}", us(longest.runtime_ns / 1000), us(longest.period_ns / 1000));
    let cpus: Cpus = servers.iter().map(|server| server.cpu).collect();
    let fix: Vec<String> = servers.iter().map(|server| format!("echo 0 > {}", server.path)).collect();
    let mut outcome =
        Outcome::warning(format!("ordinary threads may take {share} from real-time threads on {cpus}"))
            .fix(fix.join("; "))
            .readings(readings);
    for server in &servers {
        let why = "no ordinary thread runs before a vCPU";
        outcome = outcome.set(&server.path, "0", &server.runtime_ns.to_string(), why);
    }
    Ok(outcome)
}

/// What the fair server of one of the pool's processors takes at most: runtime and period in ns; those of
/// Linux's default where they cannot be read. `None` where it takes nothing.
pub(super) fn fair_server_share(machine: &Machine) -> Option<(u64, u64)> {
    if machine.kernel_version().is_ok_and(|version| version < (6, 12)) {
        return None;
    }
    let number = |path: &str| machine.root.number(path).ok().and_then(|ns| u64::try_from(ns).ok());
    let paths = machine.each("/sys/kernel/debug/sched/fair_server/cpu{}/runtime");
    let shares = paths.map(|(_, path)| match (number(&path), number(&path.replace("runtime", "period"))) {
        (Some(runtime), Some(period)) if period > 0 => (runtime, period),
        _ => FAIR_SERVER_DEFAULT,
    });
    shares.filter(|(runtime, _)| *runtime > 0).max()
}

/// Runtime and period in ns (Linux `kernel/sched/fair.c`, `fair_server_init`).
const FAIR_SERVER_DEFAULT: (u64, u64) = (50_000_000, 1_000_000_000);

/// A fair server that is switched on.
struct FairServer {
    cpu: usize,
    /// The file with its runtime.
    path: String,
    runtime_ns: i64,
    period_ns: i64,
}

fn rt_group(machine: &Machine) -> Result<Outcome, ReadError> {
    match machine.cgroups("cpu") {
        Ok(groups) => rt_group_v1(machine, &groups),
        Err(ReadError { reason: Reason::NoHierarchy(_), .. }) => rt_group_v2(machine),
        Err(error) => Err(error),
    }
}

fn rt_group_v1(machine: &Machine, groups: &[String]) -> Result<Outcome, ReadError> {
    let path = format!("{}/cpu.rt_runtime_us", groups[0]);
    let runtime = match machine.root.number(&path) {
        Err(error) if error.is_absent() => {
            return Ok(Outcome::ok("this kernel does not schedule real-time threads by group"));
        }
        runtime => runtime?,
    };
    let period_path = format!("{}/cpu.rt_period_us", groups[0]);
    let period = machine.root.number(&period_path)?;
    let root_group = groups.len() == 1;
    let outcome = if runtime == 0 {
        let root = &groups[groups.len() - 1];
        Outcome::critical("no real-time runtime: the kernel will refuse real-time priorities in this cgroup")
            .fix(format!("echo $$ > {root}/cgroup.procs"))
    } else if root_group {
        Outcome::ok("this process is in the root cgroup, whose limit is that of rt-throttling")
    } else if (0..period).contains(&runtime) {
        let share = format!("{} of every {}", us(runtime), us(period));
        Outcome::warning(format!("real-time threads of this cgroup may run {share}"))
            .fix(format!("echo {period} > {path}"))
    } else {
        Outcome::ok("no limit below the whole processor")
    };
    Ok(outcome.read(path, runtime).read(period_path, period))
}

fn rt_group_v2(machine: &Machine) -> Result<Outcome, ReadError> {
    let groups = match machine.cgroups("") {
        Err(ReadError { reason: Reason::NoHierarchy(_), .. }) => return Ok(no_hierarchy()),
        groups => groups?,
    };
    if groups.len() == 1 {
        return Ok(Outcome::ok("this process is in the root cgroup"));
    }
    let path = format!("{}/cgroup.controllers", groups[0]);
    let controllers = machine.root.text(&path)?;
    if !controllers.split_whitespace().any(|name| name == "cpu") {
        return Ok(Outcome::ok("this cgroup has no cpu controller").read(path, controllers));
    }
    let outcome = if group_scheduling(machine)? {
        let root = &groups[groups.len() - 1];
        Outcome::critical(
            "real-time threads must be in the root cgroup with this kernel (CONFIG_RT_GROUP_SCHED)",
        )
        .fix(format!("echo $$ > {root}/cgroup.procs"))
    } else {
        Outcome::ok("this kernel does not schedule real-time threads by group")
    };
    Ok(outcome.read(path, controllers))
}

fn no_hierarchy() -> Outcome {
    Outcome::ok("no cgroup hierarchy with a cpu controller is mounted")
}

/// The cgroups whose quotas hold for this process, its own first, and the name of the file with the quota.
/// `None` when there is no hierarchy with a cpu controller.
fn groups_with_quotas(machine: &Machine) -> Result<Option<(Vec<String>, &'static str)>, ReadError> {
    for (controller, file) in [("cpu", "cpu.cfs_quota_us"), ("", "cpu.max")] {
        match machine.cgroups(controller) {
            Ok(groups) => return Ok(Some((groups, file))),
            Err(ReadError { reason: Reason::NoHierarchy(_), .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn cpu_quota(machine: &Machine) -> Result<Outcome, ReadError> {
    let Some((groups, file)) = groups_with_quotas(machine)? else { return Ok(no_hierarchy()) };
    let mut readings = Vec::new();
    for group in &groups {
        // The root cgroup of version 2 and cgroups without the controller have no such file.
        match machine.root.reading(&format!("{group}/{file}")) {
            Ok(reading) => readings.push(reading),
            Err(error) if error.is_absent() => {}
            Err(error) => return Err(error),
        }
    }
    let limited = |reading: &&Reading| !reading.value.starts_with("max") && !reading.value.starts_with('-');
    let Some(limit) = readings.iter().find(limited).cloned() else {
        return Ok(Outcome::ok("none").readings(readings));
    };
    let group = limit.path.trim_end_matches(file).trim_end_matches('/');
    let stat = machine.root.text(&format!("{group}/cpu.stat")).unwrap_or_default();
    let throttled = stat.lines().find_map(|line| line.strip_prefix("nr_throttled "));
    let times = throttled.map(|n| format!(", reached {n} times")).unwrap_or_default();
    let none = if file == "cpu.max" { "max" } else { "-1" };
    let outcome = Outcome::warning(format!("{group} has the quota {}{times}", limit.value));
    Ok(outcome.fix(format!("echo {none} > {}", limit.path)).readings(readings))
}

fn cgroup_moves(machine: &Machine) -> Result<Outcome, ReadError> {
    let path = "/proc/self/mountinfo";
    let mounts = machine.root.text(path)?;
    let Some(mount) = parse::cgroup_mount(&mounts, "") else {
        return Ok(Outcome::unknown("cgroup version 2 is not mounted").read(path, "no cgroup2"));
    };
    let outcome = if mount.options.split(',').any(|option| option == "favordynmods") {
        Outcome::ok("moves do not hold the cgroup lock while they wait")
    } else if machine.kernel_version().is_ok_and(|version| version < (6, 0)) {
        Outcome::note(
            "programs that move processes delay the ends of budgets; before Linux 6.0 nothing helps",
        )
    } else {
        let fix = format!("mount -o remount,favordynmods {}", mount.point);
        Outcome::note("programs that move processes delay the ends of budgets").fix(fix)
    };
    Ok(outcome.read(format!("{path} {}", mount.point), mount.options))
}
