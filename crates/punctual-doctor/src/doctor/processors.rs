//! The pool's processors: what they share, how fast they run, how they sleep, what else uses them.

use std::collections::BTreeSet;

use super::check::Check;
use super::cpus::Cpus;
use super::finding::{Change, Outcome, Reading};
use super::machine::Machine;
use super::parse;
use super::root::{ReadError, Reason};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "processors",
        title: "Processors of pools",
        why: "A pool's processor has to be there, and something has to be left for everything else: a \
              real-time thread that never blocks on every processor would starve the machine.",
        source: "sched(7), \"Limiting the CPU usage of real-time and deadline processes\"",
        judged: "The pool's processors against /sys/devices/system/cpu/online: critical when one is not \
                 online, or none is left over.",
        examine: processors,
    },
    Check {
        id: "smt",
        title: "Processors that share a core",
        why: "Siblings of a core share its execution units and caches, so a vCPU runs slower while its \
              sibling is busy, and no scheduler accounts for it.",
        source: "Linux, Documentation/admin-guide/cputopology.rst; rt-stack s.3.5, cache pollution",
        judged: "topology/thread_siblings_list of the pool's processors: a warning when one has an online \
                 sibling. In a VM the list is what the hypervisor claims.",
        examine: smt,
    },
    Check {
        id: "steal",
        title: "Time taken by a hypervisor above",
        why: "While the hypervisor runs another machine on a processor of this one, nothing here can prevent \
              it: whether deadlines are met depends on the hypervisor.",
        source: "proc(5), steal in /proc/stat; Linux, Documentation/virt/kvm/x86/msr.rst, MSR_KVM_STEAL_TIME",
        judged: "The share of steal in all time of the pool's processors since boot: ok below 0.01 %, a note \
                 below 0.1 %, else a warning.",
        examine: steal,
    },
    Check {
        id: "hypervisor",
        title: "This machine is a VM itself",
        why: "In a VM, timers, inter-processor interrupts and idle states cost exits to the hypervisor, and \
              guests run nested or are emulated: a part of the latency cannot be seen from here.",
        source: "Linux, arch/x86/include/asm/cpufeatures.h, X86_FEATURE_HYPERVISOR",
        judged: "The flag `hypervisor` in /proc/cpuinfo: a note.",
        examine: hypervisor,
    },
    Check {
        id: "governor",
        title: "Frequency governor",
        why: "A governor that lowers the frequency of a quiet processor makes the next job run slowly until \
              it is raised again: execution times vary with what ran before.",
        source: "Linux, Documentation/admin-guide/pm/cpufreq.rst",
        judged: "cpufreq/scaling_governor of the pool's processors: a warning unless `performance`. Unknown \
                 where there is none, as in most VMs: firmware or a hypervisor sets the frequency.",
        examine: governor,
    },
    Check {
        id: "turbo",
        title: "Turbo frequencies",
        why: "How far a processor goes above its nominal frequency depends on how many others are busy and \
              on the temperature, so execution times depend on other VMs.",
        source: "Linux, Documentation/admin-guide/pm/intel_pstate.rst, no_turbo; .../cpufreq.rst, boost",
        judged: "intel_pstate/no_turbo or cpufreq/boost below /sys/devices/system/cpu: a note when on.",
        examine: turbo,
    },
    Check {
        id: "idle-states",
        title: "Idle states",
        why: "A processor in a deep idle state needs up to that state's exit latency before it runs the vCPU \
              that woke it.",
        source: "Linux, Documentation/admin-guide/pm/cpuidle.rst; Documentation/power/pm_qos_interface.rst",
        judged: "cpuidle/stateN/latency of the enabled states of the pool's processors that the limit in \
                 /dev/cpu_dma_latency permits: ok up to 2 us, a note up to 20 us, else a warning.",
        examine: idle_states,
    },
    Check {
        id: "thermal",
        title: "Thermal throttling",
        why: "A processor that is too hot is slowed down by its hardware, and every job on it takes longer.",
        source: "Linux, arch/x86/kernel/cpu/mce/therm_throt.c",
        judged: "thermal_throttle/core_throttle_count of the pool's processors: a warning above 0.",
        examine: thermal,
    },
    Check {
        id: "isolcpus",
        title: "Isolation from load balancing",
        why: "On a processor that is not isolated, the kernel balances ordinary threads onto the pool; they \
              run below vCPUs, but leave cold caches and hold locks.",
        source: "Linux, Documentation/admin-guide/kernel-parameters.txt, isolcpus; rt-stack s.3.2, exclusive \
                 CPU",
        judged: "/sys/devices/system/cpu/isolated against the pool's processors: a note when one is missing.",
        examine: isolcpus,
    },
    Check {
        id: "nohz-full",
        title: "Timer tick while a vCPU runs",
        why: "The periodic tick interrupts a running vCPU 100 to 1,000 times a second for some microseconds.",
        source: "Linux, Documentation/timers/no_hz.rst",
        judged: "/sys/devices/system/cpu/nohz_full against the pool's processors: a note when one is \
                 missing.",
        examine: nohz_full,
    },
    Check {
        id: "rcu-nocbs",
        title: "RCU callbacks",
        why: "Callbacks of RCU run in a softirq of the processor that queued them, hundreds at a time, \
              unless they are moved to threads.",
        source: "Linux, Documentation/admin-guide/kernel-parameters.txt, rcu_nocbs and nohz_full; \
                 Documentation/RCU/",
        judged: "rcu_nocbs= and nohz_full= in /proc/cmdline against the pool's processors: a note when one \
                 is missing.",
        examine: rcu_nocbs,
    },
];

fn processors(machine: &Machine) -> Result<Outcome, ReadError> {
    let missing = machine.pool.without(&machine.online);
    let outcome = if machine.pool.is_empty() {
        Outcome::note("no pool has a processor")
    } else if !missing.is_empty() {
        let switches = missing.iter().map(|cpu| format!("/sys/devices/system/cpu/cpu{cpu}/online"));
        let there: Vec<String> = switches.filter(|switch| machine.root.has(switch)).collect();
        if there.len() == missing.len() {
            let fix: Vec<String> = there.iter().map(|switch| format!("echo 1 > {switch}")).collect();
            Outcome::critical(format!("processors {missing} of pools are not online")).fix(fix.join("; "))
        } else {
            let online = &machine.online;
            Outcome::critical(format!(
                "this machine has processors {online}; pools ask for {missing} as well"
            ))
        }
    } else if machine.others.is_empty() {
        Outcome::critical(
            "pools have every processor of the machine, and nothing is left for everything else",
        )
    } else {
        Outcome::ok(format!("pools have {}, everything else {}", machine.pool, machine.others))
    };
    Ok(outcome.read("/sys/devices/system/cpu/online", &machine.online))
}

fn smt(machine: &Machine) -> Result<Outcome, ReadError> {
    let mut readings = Vec::new();
    let mut inside = Cpus::default();
    let mut outside = Cpus::default();
    for (cpu, path) in machine.each("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list") {
        let siblings = machine.cpus(&path)?;
        readings.push(Reading { path, value: siblings.to_string() });
        let siblings = siblings.without(&[cpu].into_iter().collect()).intersection(&machine.online);
        inside = inside.union(&siblings.intersection(&machine.pool));
        outside = outside.union(&siblings.without(&machine.pool));
    }
    let outcome = match (inside.is_empty(), outside.is_empty()) {
        (true, true) => Outcome::ok("no processor of pools shares its core"),
        (true, false) => {
            Outcome::warning(format!("{outside} outside the pools share cores with processors of pools"))
        }
        (false, true) => {
            Outcome::warning(format!("the pool's processors {inside} share cores with each other"))
        }
        (false, false) => Outcome::warning(format!(
            "the pool's processors {inside} share cores with each other, and {outside} outside the pools \
             with them"
        )),
    };
    let off = |cpu| format!("echo 0 > /sys/devices/system/cpu/cpu{cpu}/online");
    let outcome = match (inside.is_empty(), outside.is_empty()) {
        (true, true) => outcome,
        (true, false) => outcome.fix(outside.iter().map(off).collect::<Vec<_>>().join("; ")),
        _ => outcome.fix("echo off > /sys/devices/system/cpu/smt/control"),
    };
    Ok(outcome.readings(readings))
}

fn steal(machine: &Machine) -> Result<Outcome, ReadError> {
    let path = "/proc/stat";
    let times = parse::processor_times(&machine.root.text(path)?);
    let of_pool: Vec<_> = times.iter().filter(|time| machine.pool.contains(time.cpu)).collect();
    if of_pool.len() < machine.pool.len() {
        return Err(ReadError::new(path, Reason::NoTimes));
    }
    let sum = |of: fn(&parse::ProcessorTime) -> u64| of_pool.iter().map(|t| u128::from(of(t))).sum::<u128>();
    let (steal, total) = (sum(|t| t.steal), sum(|t| t.total));
    let ppm = steal * 1_000_000 / total.max(1);
    let share = format!("{}.{:03} %", ppm / 10_000, ppm % 10_000 / 10);
    let summary = format!("{share} of the time of the pool's processors since boot");
    let outcome = match ppm {
        0 if steal == 0 => Outcome::ok("none since boot"),
        0..100 => Outcome::ok(summary),
        100..1000 => Outcome::note(summary),
        _ => Outcome::warning(summary),
    };
    let outcome = if ppm < 100 {
        outcome
    } else {
        outcome.fix("# on the host above: give this VM's vCPUs processors of their own (virsh vcpupin)")
    };
    Ok(outcome.read(format!("{path} steal, ticks"), steal).read(format!("{path} all, ticks"), total))
}

fn hypervisor(machine: &Machine) -> Result<Outcome, ReadError> {
    let path = "/proc/cpuinfo";
    let flags = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("flags"))?;
        Some(line.split_whitespace().any(|flag| flag == "hypervisor"))
    };
    Ok(if machine.root.parse(path, "a line with flags, as on x86", flags)? {
        Outcome::note("this is a virtual machine").read(format!("{path} flags"), "... hypervisor ...")
    } else {
        Outcome::ok("this is no virtual machine").read(format!("{path} flags"), "without hypervisor")
    })
}

fn governor(machine: &Machine) -> Result<Outcome, ReadError> {
    let readings = machine.read_each("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor")?;
    let slow: Vec<&Reading> = readings.iter().filter(|reading| reading.value != "performance").collect();
    let Some(first) = slow.first() else {
        return Ok(Outcome::ok("performance on every processor of pools").readings(readings));
    };
    let mut outcome = Outcome::warning(format!("{} on {} of the pool's processors", first.value, slow.len()))
        .fix(slow.iter().map(|r| format!("echo performance > {}", r.path)).collect::<Vec<_>>().join("; "));
    for reading in &slow {
        outcome =
            outcome.set(&reading.path, "performance", &reading.value, "the frequency stays at its highest");
    }
    Ok(outcome.readings(readings))
}

fn turbo(machine: &Machine) -> Result<Outcome, ReadError> {
    let files = [
        ("/sys/devices/system/cpu/intel_pstate/no_turbo", "0", "1"),
        ("/sys/devices/system/cpu/cpufreq/boost", "1", "0"),
    ];
    for (path, on, off) in files {
        match machine.root.reading(path) {
            Ok(reading) if reading.value == on => {
                return Ok(Outcome::note("on").readings([reading]).fix(format!("echo {off} > {path}")));
            }
            Ok(reading) => return Ok(Outcome::ok("off").readings([reading])),
            Err(error) if error.is_absent() => {}
            Err(error) => return Err(error),
        }
    }
    let [(pstate, ..), (boost, ..)] = files;
    Ok(Outcome::unknown(format!("neither {pstate} nor {boost} is there")))
}

/// An idle state with at most this exit latency is harmless.
const EXIT_OK_US: i64 = 2;
/// An idle state with at most this exit latency is worth a note, with a longer one a warning.
const EXIT_NOTE_US: i64 = 20;

fn idle_states(machine: &Machine) -> Result<Outcome, ReadError> {
    let device = "/dev/cpu_dma_latency";
    let limit =
        machine.root.bytes(device).ok().and_then(|bytes| Some(i32::from_ne_bytes(bytes.try_into().ok()?)));
    let mut readings: Vec<Reading> =
        limit.iter().map(|us| Reading { path: format!("{device}, us"), value: us.to_string() }).collect();
    let mut deepest: Option<(i64, String)> = None;
    let (mut slow_on, mut slow) = (BTreeSet::new(), BTreeSet::new());
    for (cpu, path) in machine.each("/sys/devices/system/cpu/cpu{}/cpuidle") {
        for name in machine.root.names(&path)?.iter().filter(|name| name.starts_with("state")) {
            let state = format!("{path}/{name}");
            let latency = machine.root.number(&format!("{state}/latency"))?;
            let enabled = machine.root.number(&format!("{state}/disable"))? == 0;
            let permitted = limit.is_none_or(|limit| latency <= limit.into());
            if enabled && permitted && deepest.as_ref().is_none_or(|(most, _)| latency > *most) {
                deepest = Some((latency, machine.root.text(&format!("{state}/name"))?));
            }
            if enabled && latency > EXIT_OK_US {
                slow_on.insert(cpu.to_string());
                slow.insert(name.clone());
            }
        }
    }
    let Some((latency_us, name)) = deepest else {
        return Ok(Outcome::ok("no idle state is enabled").readings(readings));
    };
    readings.push(Reading { path: "deepest state's latency, us".into(), value: latency_us.to_string() });
    let summary = format!("{name} takes {latency_us} us to leave");
    if latency_us <= EXIT_OK_US {
        return Ok(Outcome::ok(summary).readings(readings));
    }
    let outcome = if latency_us <= EXIT_NOTE_US { Outcome::note(summary) } else { Outcome::warning(summary) };
    let outcome = if machine.root.has(device) {
        outcome.change(Change::HoldOpen {
            path: device.into(),
            value: 0,
            why: "no idle state that takes time to leave".into(),
        })
    } else {
        outcome
    };
    let words = |of: BTreeSet<String>| of.into_iter().collect::<Vec<_>>().join(" ");
    let fix = format!(
        "for c in {}; do for s in {}; do echo 1 > /sys/devices/system/cpu/cpu$c/cpuidle/$s/disable; done; \
         done",
        words(slow_on),
        words(slow)
    );
    Ok(outcome.fix(fix).readings(readings))
}

fn thermal(machine: &Machine) -> Result<Outcome, ReadError> {
    let readings = machine.read_each("/sys/devices/system/cpu/cpu{}/thermal_throttle/core_throttle_count")?;
    let times: u64 = readings.iter().filter_map(|reading| reading.value.parse::<u64>().ok()).sum();
    let outcome = match times {
        0 => Outcome::ok("never since boot"),
        times => Outcome::warning(format!("{times} times since boot")).fix("# improve the cooling"),
    };
    Ok(outcome.readings(readings))
}

/// A note when the pool has processors without `property`; `parameter` is the kernel parameter to boot with,
/// in which `{}` is replaced by the pool's processors.
fn judge_property(machine: &Machine, with: &Cpus, property: &str, parameter: &str) -> Outcome {
    let without = machine.pool.without(with);
    if without.is_empty() {
        return Outcome::ok(format!("{property}: every processor of pools"));
    }
    let outcome = Outcome::note(format!("not {property}: {without}"));
    if machine.others.is_empty() {
        // The kernel keeps at least one processor for everything else.
        return outcome;
    }
    let pool = machine.pool.intersection(&machine.online);
    outcome.fix(format!("# boot with: {}", parameter.replace("{}", &pool.to_string())))
}

fn isolcpus(machine: &Machine) -> Result<Outcome, ReadError> {
    let path = "/sys/devices/system/cpu/isolated";
    let cpus = machine.cpus(path)?;
    Ok(judge_property(machine, &cpus, "isolated", "isolcpus=domain,managed_irq,{}").read(path, cpus))
}

fn nohz_full(machine: &Machine) -> Result<Outcome, ReadError> {
    let path = "/sys/devices/system/cpu/nohz_full";
    let cpus = match machine.root.text(path) {
        // A kernel without CONFIG_NO_HZ_FULL has no such file, and a tick everywhere.
        Err(error) if error.is_absent() => Cpus::default(),
        // The kernel writes this for the empty set.
        Ok(text) if text == "(null)" => Cpus::default(),
        _ => machine.cpus(path)?,
    };
    Ok(judge_property(machine, &cpus, "tickless", "nohz_full={}").read(path, cpus))
}

fn rcu_nocbs(machine: &Machine) -> Result<Outcome, ReadError> {
    let path = "/proc/cmdline";
    let cmdline = machine.cmdline()?;
    let mut moved = Cpus::default();
    let mut given = Vec::new();
    for name in ["rcu_nocbs", "nohz_full"] {
        let Some(value) = parse::parameter(&cmdline, name) else { continue };
        // rcu_nocbs without a list means every processor.
        let list = if name == "rcu_nocbs" && value.is_empty() { "all" } else { value };
        let parameter = format!("{name}={value}");
        let cpus = Cpus::parse_list(list, machine.count());
        let cpus = cpus.ok_or_else(|| ReadError::unexpected(path, &parameter, "processors"))?;
        moved = moved.union(&cpus);
        given.push(parameter);
    }
    let outcome = judge_property(machine, &moved, "moved to threads", "rcu_nocbs={}");
    Ok(outcome.read(path, if given.is_empty() { "neither".into() } else { given.join(" ") }))
}
