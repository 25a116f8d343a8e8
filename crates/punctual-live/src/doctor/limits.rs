//! What the kernel lets real-time threads do: throttling, cgroups, permissions.

use super::finding::{Outcome, Reading};
use super::{Check, Cpus, Machine, Unreadable, allowed_cpus, parse};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "privilege",
        title: "Permission to schedule threads",
        why: "Enforcement gives vCPU threads real-time priorities. Without CAP_SYS_NICE the kernel refuses, except \
              for one's own threads up to RLIMIT_RTPRIO.",
        source: "sched(7), \"Privileges and resource limits\"; capabilities(7)",
        judged: "CapEff of /proc/self/status and RLIMIT_RTPRIO of /proc/self/limits. Critical without either; a note \
                 with RLIMIT_RTPRIO alone, which does not reach VMs of other users.",
        examine: privilege,
    },
    Check {
        id: "affinity",
        title: "Processors this process may use",
        why: "Threads cannot be placed on a pool's processor that is outside the cpuset of their cgroup: \
              sched_setaffinity refuses it.",
        source: "cpuset(7); sched_setaffinity(2), EINVAL",
        judged: "The effective cpuset of this process' cgroup against the pool's processors: critical when one is \
                 missing. A note when only the affinity is narrower, since a run can widen that.",
        examine: affinity,
    },
    Check {
        id: "rt-throttling",
        title: "Throttling of real-time threads",
        why: "Once real-time threads have used the runtime within a period, all of them stand still until the \
              period ends: 50 ms of every second with the usual values, whatever their budgets say.",
        source: "Linux, Documentation/scheduler/sched-rt-group.rst; kernel/sched/rt.c, where Linux 6.12 removed it \
                 for kernels without CONFIG_RT_GROUP_SCHED (commit 5f6bd380c7bd)",
        judged: "/proc/sys/kernel/sched_rt_runtime_us and sched_rt_period_us. Ok when the runtime is -1 or the whole \
                 period. A note when the kernel applies it to SCHED_DEADLINE's admission only: Linux 6.12 or later \
                 without group scheduling of real-time threads, by its configuration or by rt_group_sched=0.",
        examine: rt_throttling,
    },
    Check {
        id: "fair-server",
        title: "Fair server",
        why: "Since Linux 6.12 a deadline server gives starving ordinary threads a share of each processor before any \
              real-time thread: 50 ms of every second unless changed. A vCPU that is due waits for it.",
        source: "Linux, kernel/sched/deadline.c, dl_server (commits 63ba8422f876, d741f297bcea)",
        judged: "/sys/kernel/debug/sched/fair_server/cpuN/runtime and period of the pool's processors. Ok when the \
                 runtime is 0 or the kernel older.",
        examine: fair_server,
    },
    Check {
        id: "rt-group",
        title: "Real-time limit of this cgroup",
        why: "With group scheduling of real-time threads, a cgroup without real-time runtime refuses SCHED_FIFO, and \
              one with little of it throttles its threads as a group.",
        source: "Linux, Documentation/scheduler/sched-rt-group.rst; Documentation/admin-guide/cgroup-v2.rst, \
                 \"CPU\"",
        judged: "Version 1: cpu.rt_runtime_us of this process' cgroup; critical at 0, a warning below the period in \
                 a cgroup other than the root. Version 2: critical in a cgroup with the cpu controller if the \
                 kernel has CONFIG_RT_GROUP_SCHED.",
        examine: rt_group,
    },
    Check {
        id: "cpu-quota",
        title: "CPU quota of this cgroup",
        why: "A quota stops ordinary threads of the cgroup until its next period. It does not hold for real-time \
              threads, but for a VM's helper threads, on which a vCPU may wait.",
        source: "Linux, Documentation/scheduler/sched-bwc.rst",
        judged: "cpu.max (version 2) or cpu.cfs_quota_us (version 1) of this process' cgroup and those above it: a \
                 warning when one is set.",
        examine: cpu_quota,
    },
    Check {
        id: "cgroup-moves",
        title: "Moves of processes between cgroups",
        why: "Parking a vCPU takes the kernel's cgroup lock. Whoever moves a process to another cgroup, to start a \
              container or service say, holds it through a grace period of RCU, 6 to 14 ms and more on Linux 6.18, and budgets end \
              late by that; unless the hierarchy is mounted to favour moves.",
        source: "Linux, Documentation/admin-guide/cgroup-v2.rst, favordynmods (Linux 6.0); kernel/cgroup/cgroup.c, \
                 cgroup_procs_write_start",
        judged: "The options of cgroup version 2 in /proc/self/mountinfo: a note without favordynmods. It makes forks and \
                 exits a little slower. Nothing is changed for a run, because Linux 6.18 cannot take all of it back.",
        examine: cgroup_moves,
    },
    Check {
        id: "rt-time",
        title: "Time limit of real-time threads",
        why: "A real-time thread that runs for longer than RLIMIT_RTTIME without blocking gets SIGXCPU, then SIGKILL: \
              a busy vCPU does so.",
        source: "getrlimit(2), RLIMIT_RTTIME",
        judged: "`Max realtime timeout` of /proc/self/limits: critical unless unlimited, because VMs that are started \
                 inherit it.",
        examine: rt_time,
    },
    Check {
        id: "memory-lock",
        title: "Permission to lock memory",
        why: "Memory that is not locked can be taken away, and the page fault that brings it back takes as long as \
              the disk.",
        source: "mlock(2); capabilities(7)",
        judged: "CAP_IPC_LOCK in CapEff, or RLIMIT_MEMLOCK unlimited: ok. Otherwise a note with the limit.",
        examine: memory_lock,
    },
];

const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_NICE: u32 = 23;

const STATUS: &str = "/proc/self/status";
const LIMITS: &str = "/proc/self/limits";

/// The effective capabilities of this process as evidence, and whether `number` is among them.
fn capability(machine: &Machine, number: u32) -> Result<(Reading, bool), Unreadable> {
    let (text, bits) = machine.root.parse(STATUS, "a field CapEff", |status| {
        let text = parse::status_field(status, "CapEff")?;
        Some((text.to_owned(), u64::from_str_radix(text, 16).ok()?))
    })?;
    Ok((Reading { path: format!("{STATUS} CapEff"), value: text }, bits >> number & 1 == 1))
}

/// A limit of this process as evidence, and its value; `None` for unlimited.
fn limit(machine: &Machine, name: &str) -> Result<(Reading, Option<u64>), Unreadable> {
    let value = machine.root.parse(LIMITS, name, |text| parse::soft_limit(text, name))?;
    let shown = value.map_or_else(|| "unlimited".into(), |value| value.to_string());
    Ok((Reading { path: format!("{LIMITS} {name}"), value: shown }, value))
}

fn privilege(machine: &Machine) -> Result<Outcome, Unreadable> {
    let (caps, nice) = capability(machine, CAP_SYS_NICE)?;
    if nice {
        return Ok(Outcome::ok("this process has CAP_SYS_NICE").readings([caps]));
    }
    let (limits, priority) = limit(machine, "Max realtime priority")?;
    let outcome = match priority {
        Some(0) => Outcome::critical("neither CAP_SYS_NICE nor a real-time priority limit above 0"),
        limit => {
            let upto = limit.map_or_else(|| "99".into(), |limit| limit.to_string());
            Outcome::note(format!(
                "no CAP_SYS_NICE; RLIMIT_RTPRIO allows priorities up to {upto} for own threads"
            ))
        }
    };
    Ok(outcome.readings([caps, limits]).fix("sudo punctual run HOST.toml"))
}

fn affinity(machine: &Machine) -> Result<Outcome, Unreadable> {
    let allowed = allowed_cpus(&machine.root, STATUS)?;
    let evidence = Reading { path: format!("{STATUS} Cpus_allowed_list"), value: allowed.to_string() };
    if allowed.covers(&machine.pool) {
        let summary = format!("this process may use the pool's processors ({})", machine.pool);
        return Ok(Outcome::ok(summary).readings([evidence]));
    }
    let missing = machine.pool.without(&allowed);
    let cpuset = ["cpuset", ""].into_iter().find_map(|controller| {
        let group = cgroups(machine, controller).ok()?.into_iter().next()?;
        let file = if controller.is_empty() { "cpuset.cpus.effective" } else { "cpuset.effective_cpus" };
        let path = format!("{group}/{file}");
        let cpus = machine.cpus(&path).ok()?;
        Some((path, cpus))
    });
    let Some((path, cpuset)) = cpuset else {
        let summary = format!("this process may not use {missing}, and its cpuset cannot be read");
        return Ok(Outcome::unknown(summary).readings([evidence]));
    };
    let outcome = if cpuset.covers(&machine.pool) {
        Outcome::note(format!("the affinity leaves out {missing}; a run can widen it to the cpuset"))
            .fix(format!("taskset -pc {} $$", machine.pool))
    } else {
        let missing = machine.pool.without(&cpuset);
        let group = path.rsplit_once('/').map_or("", |(group, _)| group);
        Outcome::critical(format!("the pool's processors {missing} are outside the cpuset of this cgroup"))
            .fix(format!("echo {} > {group}/cpuset.cpus", union(&cpuset, &machine.pool)))
    };
    Ok(outcome.readings([evidence]).read(path, cpuset))
}

fn union(a: &Cpus, b: &Cpus) -> Cpus {
    a.iter().chain(b.iter()).collect()
}

const RT_RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
const RT_PERIOD: &str = "/proc/sys/kernel/sched_rt_period_us";

fn rt_throttling(machine: &Machine) -> Result<Outcome, Unreadable> {
    let (runtime, period) = (machine.root.number(RT_RUNTIME)?, machine.root.number(RT_PERIOD)?);
    let evidence = |outcome: Outcome| outcome.read(RT_RUNTIME, runtime).read(RT_PERIOD, period);
    if runtime < 0 || runtime >= period {
        return Ok(evidence(Outcome::ok("real-time threads are not throttled")));
    }
    let share = format!("{} of every {}", us(runtime), us(period));
    let only_admission = machine.kernel().is_ok_and(|version| version >= (6, 12))
        && group_scheduling(machine).is_ok_and(|group| !group);
    if only_admission {
        let summary =
            format!("{share}, but this kernel only admits SCHED_DEADLINE by it; SCHED_FIFO is not throttled");
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
fn group_scheduling(machine: &Machine) -> Result<bool, Unreadable> {
    let off = |text: &str| parse::parameter(text, "rt_group_sched").is_some_and(|value| value == "0");
    if machine.cmdline().is_ok_and(|text| off(&text)) {
        return Ok(false);
    }
    // Only there when the kernel has it.
    let file = |group: String| machine.root.has(&format!("{group}/cpu.rt_runtime_us"));
    if cgroups(machine, "cpu").is_ok_and(|groups| groups.into_iter().any(file)) {
        return Ok(true);
    }
    let (_, config) = machine.config()?;
    Ok(parse::config_option(config, "CONFIG_RT_GROUP_SCHED") == Some("y"))
}

fn fair_server(machine: &Machine) -> Result<Outcome, Unreadable> {
    let (major, minor) = machine.kernel()?;
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
    let mut outcome = Outcome::warning("");
    let mut serving = Vec::new();
    let mut fix = Vec::new();
    for (cpu, path) in machine.each("/sys/kernel/debug/sched/fair_server/cpu{}/runtime") {
        let period = path.replace("runtime", "period");
        let (runtime_ns, period_ns) = (machine.root.number(&path)?, machine.root.number(&period)?);
        outcome = outcome.read(&path, runtime_ns).read(&period, period_ns);
        if runtime_ns > 0 {
            serving.push((cpu, runtime_ns, period_ns));
            outcome =
                outcome.set(&path, "0", &runtime_ns.to_string(), "no ordinary thread runs before a vCPU");
            fix.push(format!("echo 0 > {path}"));
        }
    }
    let Some(&(_, runtime_ns, period_ns)) = serving.iter().max_by_key(|(_, runtime, _)| runtime) else {
        return Ok(Outcome { severity: super::Severity::Ok, summary: "switched off".into(), ..outcome });
    };
    let cpus: Cpus = serving.iter().map(|(cpu, ..)| *cpu).collect();
    let share = format!("{} of every {}", us(runtime_ns / 1000), us(period_ns / 1000));
    outcome.summary = format!("ordinary threads may take {share} from real-time threads on {cpus}");
    Ok(outcome.fix(fix.join("; ")))
}

/// The directories of this process' cgroup and those above it, the own one first.
fn cgroups(machine: &Machine, controller: &str) -> Result<Vec<String>, Unreadable> {
    let (path, mounts) = ("/proc/self/cgroup", "/proc/self/mountinfo");
    let hierarchy = if controller.is_empty() { "cgroup version 2" } else { controller };
    let missing = |path: &str| Unreadable {
        path: path.into(),
        reason: format!("has no hierarchy for {hierarchy}"),
        absent: true,
    };
    // That a file is missing says nothing about the hierarchy.
    let text = |path| machine.root.text(path).map_err(|error| Unreadable { absent: false, ..error });
    let own = text(path)?;
    let own = parse::cgroup_path(&own, controller).ok_or_else(|| missing(path))?;
    let mount = text(mounts)?;
    let mount = parse::cgroup_mount(&mount, controller).ok_or_else(|| missing(mounts))?;
    let below = own.strip_prefix(mount.root.trim_end_matches('/')).unwrap_or(own);
    let names: Vec<&str> = below.split('/').filter(|name| !name.is_empty()).collect();
    if names.contains(&"..") {
        let reason = format!("{own} is above what is mounted at {}", mount.point);
        return Err(Unreadable { path: path.into(), reason, absent: false });
    }
    let directory = |depth: usize| {
        let mut directory = mount.point.clone();
        names[..depth].iter().for_each(|name| directory += &format!("/{name}"));
        directory
    };
    Ok((0..=names.len()).rev().map(directory).collect())
}

fn rt_group(machine: &Machine) -> Result<Outcome, Unreadable> {
    match cgroups(machine, "cpu") {
        Ok(groups) => rt_group_v1(machine, &groups),
        Err(error) if error.absent => rt_group_v2(machine),
        Err(error) => Err(error),
    }
}

fn rt_group_v1(machine: &Machine, groups: &[String]) -> Result<Outcome, Unreadable> {
    let path = format!("{}/cpu.rt_runtime_us", groups[0]);
    let runtime = match machine.root.number(&path) {
        Err(error) if error.absent => {
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

fn rt_group_v2(machine: &Machine) -> Result<Outcome, Unreadable> {
    let groups = match cgroups(machine, "") {
        Err(error) if error.absent => {
            return Ok(Outcome::ok("no cgroup hierarchy with a cpu controller is mounted"));
        }
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

fn cpu_quota(machine: &Machine) -> Result<Outcome, Unreadable> {
    let (groups, file) = match cgroups(machine, "cpu") {
        Ok(groups) => (groups, "cpu.cfs_quota_us"),
        Err(error) if error.absent => match cgroups(machine, "") {
            Err(error) if error.absent => {
                return Ok(Outcome::ok("no cgroup hierarchy with a cpu controller is mounted"));
            }
            groups => (groups?, "cpu.max"),
        },
        Err(error) => return Err(error),
    };
    let mut readings = Vec::new();
    for group in &groups {
        // The root cgroup of version 2 and cgroups without the controller have no such file.
        match machine.root.reading(&format!("{group}/{file}")) {
            Ok(reading) => readings.push(reading),
            Err(error) if error.absent => {}
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

fn cgroup_moves(machine: &Machine) -> Result<Outcome, Unreadable> {
    let path = "/proc/self/mountinfo";
    let mounts = machine.root.text(path)?;
    let Some(mount) = parse::cgroup_mount(&mounts, "") else {
        return Ok(Outcome::unknown("cgroup version 2 is not mounted").read(path, "no cgroup2"));
    };
    let outcome = if mount.options.split(',').any(|option| option == "favordynmods") {
        Outcome::ok("moves do not wait with the cgroup lock held")
    } else if machine.kernel().is_ok_and(|version| version < (6, 0)) {
        Outcome::note(
            "programs that move processes delay the ends of budgets; before Linux 6.0 nothing helps",
        )
    } else {
        let fix = format!("mount -o remount,favordynmods {}", mount.point);
        Outcome::note("programs that move processes delay the ends of budgets").fix(fix)
    };
    Ok(outcome.read(format!("{path} {}", mount.point), mount.options))
}

fn rt_time(machine: &Machine) -> Result<Outcome, Unreadable> {
    let (evidence, limit) = limit(machine, "Max realtime timeout")?;
    let outcome = match limit {
        None => Outcome::ok("unlimited"),
        Some(us) => Outcome::critical(format!("a real-time thread is killed after {us} us without blocking"))
            .fix("ulimit -R unlimited"),
    };
    Ok(outcome.readings([evidence]))
}

fn memory_lock(machine: &Machine) -> Result<Outcome, Unreadable> {
    let (caps, lock) = capability(machine, CAP_IPC_LOCK)?;
    let (limits, bytes) = limit(machine, "Max locked memory")?;
    let outcome = match bytes {
        _ if lock => Outcome::ok("this process has CAP_IPC_LOCK"),
        None => Outcome::ok("unlimited"),
        Some(bytes) => {
            Outcome::note(format!("at most {} KiB can be locked", bytes / 1024)).fix("ulimit -l unlimited")
        }
    };
    Ok(outcome.readings([caps, limits]))
}
