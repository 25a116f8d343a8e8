//! The kernel itself: how it preempts, tells the time and runs guests.

use super::check::Check;
use super::finding::{Outcome, Reading, Severity};
use super::machine::Machine;
use super::parse;
use super::root::{ReadError, Reason};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "preemption",
        title: "Preemption inside the kernel",
        why: "A vCPU that becomes urgent waits until the kernel can be preempted: with `none` until a system \
              call of another thread ends or comes to a point that permits it.",
        source: "Linux, kernel/Kconfig.preempt; Documentation/admin-guide/kernel-parameters.txt, preempt=",
        judged: "/sys/kernel/realtime; else debugfs sched/preempt, preempt= in /proc/cmdline, the kernel's \
                 configuration. Ok with PREEMPT_RT, a note with full or lazy, else a warning.",
        examine: preemption,
    },
    Check {
        id: "kernel-version",
        title: "What this kernel's version means",
        why: "Linux changes how it schedules: figures measured on one version do not hold for another.",
        source: "Linux: commit aab03e05e8f7 (SCHED_DEADLINE, 3.14), 147f3efaa241 (EEVDF, 6.6), 63ba8422f876 \
                 and 5f6bd380c7bd (fair server in place of throttling, 6.12)",
        judged: "/proc/sys/kernel/osrelease: a note on each of these from the version that brought it; a \
                 warning for a kernel without SCHED_DEADLINE.",
        examine: version,
    },
    Check {
        id: "clocksource",
        title: "Reading the clock",
        why: "Enforcement reads clocks at every decision. That takes about 20 ns for a clock that user space \
              can read, and a microsecond or more for one that needs the kernel or a device.",
        source: "Linux, Documentation/timers/timekeeping.rst; vdso(7)",
        judged: "/sys/devices/system/clocksource/clocksource0/current_clocksource: ok for tsc, kvm-clock, \
                 hyperv_clocksource_tsc_page and arch_sys_counter, else a warning.",
        examine: clocksource,
    },
    Check {
        id: "timer-slack",
        title: "Timer slack",
        why: "Timers of ordinary threads, for example of a VM's main loop, may fire late by the slack. \
              Real-time threads have no slack.",
        source: "prctl(2), PR_SET_TIMERSLACK; proc(5), /proc/PID/timerslack_ns",
        judged: "/proc/self/timerslack_ns, which threads started from here inherit: a note above 1 us.",
        examine: timer_slack,
    },
    Check {
        id: "halt-poll",
        title: "Polling of idle vCPUs",
        why: "A vCPU that halts keeps its processor while KVM polls for an interrupt: it uses up its budget \
              while idle, and less urgent vCPUs wait.",
        source: "Linux, Documentation/virt/kvm/halt-polling.rst",
        judged: "/sys/module/kvm/parameters/halt_poll_ns: a warning above 0. Some kernels (5.8 to 6.1) leave \
                 a VM at the value of its start.",
        examine: halt_poll,
    },
    Check {
        id: "nested",
        title: "VMs inside VMs",
        why: "An exit of a guest's guest passes through the guest's hypervisor and costs several exits here. \
              Nothing on this machine bounds its latency.",
        source: "Linux, Documentation/virt/kvm/x86/running-nested-guests.rst",
        judged: "/sys/module/kvm_intel/parameters/nested or that of kvm_amd: a note when on.",
        examine: nested,
    },
    Check {
        id: "kvm-hints",
        title: "What KVM counts of VMs",
        why: "The service tells by these counters that vCPUs of a VM wait for each other: its kernel asks \
              KVM to run one that lost its processor. Without them it knows who had the processor, and not \
              that.",
        source: "Linux, virt/kvm/kvm_main.c (kvm_create_vm_debugfs), arch/x86/kvm/x86.c (kvm_sched_yield); \
                 docs/service.md, \"Hints of KVM\"",
        judged: "/sys/kernel/debug/kvm and /sys/kernel/security/lockdown: ok where the counters can be read \
                 or KVM is not loaded, else a note with the reason. ple_gap of kvm_intel, pause_filter_count \
                 or pause_filter_thresh of kvm_amd at 0 means that no vCPU exits because it spins.",
        examine: kvm_hints,
    },
];

fn kvm_hints(machine: &Machine) -> Result<Outcome, ReadError> {
    let root = &machine.root;
    if !root.names("/sys/module")?.iter().any(|module| module == "kvm") {
        return Ok(Outcome::ok("KVM is not loaded"));
    }
    let lockdown = root.reading("/sys/kernel/security/lockdown").ok();
    let locked =
        || Outcome::note("none: the kernel is locked down, so that no program reads counters of debugfs");
    if let Some(reading) = lockdown.filter(|reading| !reading.value.contains("[none]")) {
        return Ok(locked().readings([reading]));
    }
    let (debugfs, directory) = ("/sys/kernel/debug", "/sys/kernel/debug/kvm");
    match root.names(directory) {
        Err(error) if error.is_absent() => {
            return Ok(match root.names(debugfs) {
                Ok(names) if names.is_empty() => Outcome::note("none: debugfs is not mounted")
                    .fix(format!("mount -t debugfs none {debugfs}")),
                Ok(_) => Outcome::note(format!("none: KVM has no {directory}")),
                Err(error) if error.is_absent() => Outcome::note("none: the kernel has no debugfs"),
                Err(error) => return Err(error),
            });
        }
        names => _ = names?,
    }
    let parameters = ["kvm_intel ple_gap", "kvm_amd pause_filter_count", "kvm_amd pause_filter_thresh"];
    let path = |parameter: &str| format!("/sys/module/{}", parameter.replace(' ', "/parameters/"));
    let spins: Vec<Reading> =
        parameters.into_iter().filter_map(|parameter| root.reading(&path(parameter)).ok()).collect();
    let is_deaf = spins.iter().any(|reading| reading.value == "0");
    let but = if is_deaf { "; no vCPU exits because it spins" } else { "" };
    let counter = "directed_yield_attempted";
    let outcome = match root.reading(&format!("{directory}/{counter}")) {
        Ok(reading) => Outcome::ok(format!("they can be read{but}")).readings([reading]),
        Err(error) if error.is_absent() => Outcome::note(format!("this kernel's KVM has no {counter}{but}")),
        // Lockdown is known where securityfs is mounted. Without that, it is what refuses the file of a
        // directory that may be read.
        Err(error) if matches!(error.reason, Reason::Denied) => locked(),
        Err(error) => return Err(error),
    };
    Ok(outcome.readings(spins))
}

const DYNAMIC: &str = "/sys/kernel/debug/sched/preempt";

fn preemption(machine: &Machine) -> Result<Outcome, ReadError> {
    let version = machine.root.reading("/proc/version")?;
    if machine.is_preempt_rt() {
        return Ok(Outcome::ok("PREEMPT_RT").readings([version]));
    }
    let dynamic = version.value.contains("PREEMPT_DYNAMIC");
    let (model, evidence) = preemption_model(machine, &version, dynamic)?;
    let outcome = match model.as_str() {
        "full" | "lazy" => Outcome::note(format!("{model}; interrupts and softirqs still come first")),
        "none" | "voluntary" => Outcome::warning(model.clone()),
        other => Outcome::unknown(format!("{}: the model {other:?} is not known", evidence.path)),
    };
    if outcome.severity != Severity::Warning {
        return Ok(outcome.readings([version, evidence]));
    }
    let outcome = match dynamic {
        true if machine.root.has(DYNAMIC) => outcome.fix(format!("echo full > {DYNAMIC}")).set(
            DYNAMIC,
            "full",
            &model,
            "urgent threads do not wait for system calls of others",
        ),
        true => outcome.fix(format!("mount -t debugfs none /sys/kernel/debug && echo full > {DYNAMIC}")),
        false => outcome
            .fix("apt install linux-image-rt-amd64  # or another kernel with PREEMPT_RT or CONFIG_PREEMPT"),
    };
    Ok(outcome.readings([version, evidence]))
}

/// The model in force, and where that is said.
fn preemption_model(
    machine: &Machine,
    version: &Reading,
    dynamic: bool,
) -> Result<(String, Reading), ReadError> {
    if let Ok(reading) = machine.root.reading(DYNAMIC)
        && let Some(model) = parse::chosen(&reading.value)
    {
        return Ok((model.into(), reading));
    }
    let cmdline = machine.cmdline()?;
    if dynamic && let Some(model) = parse::parameter(&cmdline, "preempt") {
        return Ok((
            model.into(),
            Reading { path: "/proc/cmdline".into(), value: format!("preempt={model}") },
        ));
    }
    if !dynamic && version.value.split_whitespace().any(|word| word == "PREEMPT") {
        return Ok(("full".into(), version.clone()));
    }
    let (path, config) = machine.config()?;
    let options = [
        ("CONFIG_PREEMPT", "full"),
        ("CONFIG_PREEMPT_LAZY", "lazy"),
        ("CONFIG_PREEMPT_VOLUNTARY", "voluntary"),
        ("CONFIG_PREEMPT_NONE", "none"),
    ];
    let set = options.iter().find(|(option, _)| parse::config_option(config, option) == Some("y"));
    let (option, model) =
        set.ok_or_else(|| ReadError::unexpected(path, "no model of preemption", "CONFIG_PREEMPT*"))?;
    Ok(((*model).into(), Reading { path: path.into(), value: format!("{option}=y") }))
}

fn version(machine: &Machine) -> Result<Outcome, ReadError> {
    let version = machine.kernel_version()?;
    let release = machine.root.reading("/proc/sys/kernel/osrelease")?;
    let said = format!("Linux {}.{}", version.0, version.1);
    let outcome = if version < (3, 14) {
        Outcome::warning(format!("{said} has no SCHED_DEADLINE")).fix("# use Linux 3.14 or later")
    } else if version < (6, 6) {
        Outcome::ok(said)
    } else if version < (6, 12) {
        Outcome::note(format!("{said}: the fair class is EEVDF, so linux-cfs measures EEVDF"))
    } else {
        Outcome::note(format!(
            "{said}: the fair class is EEVDF, so linux-cfs measures EEVDF; a fair server protects it from \
             real-time threads"
        ))
    };
    Ok(outcome.readings([release]))
}

fn clocksource(machine: &Machine) -> Result<Outcome, ReadError> {
    let directory = "/sys/devices/system/clocksource/clocksource0";
    let current = machine.root.reading(&format!("{directory}/current_clocksource"))?;
    let fast = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];
    if fast.contains(&current.value.as_str()) {
        return Ok(Outcome::ok(current.value.clone()).readings([current]));
    }
    let available = machine.root.reading(&format!("{directory}/available_clocksource"))?;
    let better = fast.iter().find(|name| available.value.split_whitespace().any(|there| there == **name));
    let outcome = Outcome::warning(format!("{} is slow to read", current.value));
    let outcome = match better {
        // The kernel has left the better one for a reason, such as clocks that drift apart. A person decides.
        Some(name) => outcome.fix(format!("dmesg | grep -i clocksource; echo {name} > {}", current.path)),
        None => outcome.fix("dmesg | grep -i clocksource"),
    };
    Ok(outcome.readings([current, available]))
}

fn timer_slack(machine: &Machine) -> Result<Outcome, ReadError> {
    let path = "/proc/self/timerslack_ns";
    let ns = machine.root.number(path)?;
    let outcome = if ns <= 1000 {
        Outcome::ok(format!("{ns} ns"))
    } else {
        Outcome::note(format!("{} us for ordinary threads", ns / 1000))
            .fix("echo 1 > /proc/PID/timerslack_ns")
    };
    Ok(outcome.read(path, ns))
}

/// Is the kernel's part of KVM loaded?
fn has_kvm(machine: &Machine) -> Result<bool, ReadError> {
    // Without this directory it is not known which modules are loaded.
    machine.root.names("/sys/module").map(|modules| modules.iter().any(|name| name == "kvm"))
}

fn halt_poll(machine: &Machine) -> Result<Outcome, ReadError> {
    if !has_kvm(machine)? {
        return Ok(Outcome::ok("KVM is not loaded"));
    }
    let path = "/sys/module/kvm/parameters/halt_poll_ns";
    let ns = machine.root.number(path)?;
    let outcome = match ns {
        0 => Outcome::ok("off"),
        ns => {
            Outcome::warning(format!("a vCPU that halts polls for up to {} us at its own expense", ns / 1000))
                .fix(format!("echo 0 > {path}"))
                .set(path, "0", &ns.to_string(), "idle vCPUs use no budget")
        }
    };
    Ok(outcome.read(path, ns))
}

fn nested(machine: &Machine) -> Result<Outcome, ReadError> {
    for module in ["kvm_intel", "kvm_amd"] {
        match machine.root.reading(&format!("/sys/module/{module}/parameters/nested")) {
            Ok(reading) if ["Y", "1"].contains(&reading.value.as_str()) => {
                let off = format!("modprobe -r {module} && modprobe {module} nested=0");
                return Ok(Outcome::note("on").fix(off).readings([reading]));
            }
            Ok(reading) => return Ok(Outcome::ok("off").readings([reading])),
            Err(error) if error.is_absent() => {}
            Err(error) => return Err(error),
        }
    }
    has_kvm(machine)?;
    Ok(Outcome::ok("neither kvm_intel nor kvm_amd is loaded"))
}
