//! Where packets of a less urgent card or VM come before an urgent one's, whatever the priorities of threads.

use punctual_linux::os::net::{DEVICES, RTNET_PRIO};

use super::check::Check;
use super::cpus::Cpus;
use super::finding::{Outcome, Reading};
use super::machine::{Machine, Thread};
use super::parse;
use super::root::ReadError;
use super::threads::{for_each, named};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "softirq-lock",
        title: "The softirq lock of PREEMPT_RT",
        why: "A thread with packets of an urgent card waits until another one on its processor has finished \
              its softirq, and then serves all cards itself: two priority inversions.",
        source: "rt-stack s.3.4.3, Fig. 3-13; Linux, kernel/softirq.c, __local_bh_disable_ip, and since 6.18 \
                 CONFIG_PREEMPT_RT_NEEDS_BH_LOCK",
        judged: "/sys/kernel/realtime or /proc/version, /proc/sys/kernel/osrelease and, from 6.18, the \
                 kernel's configuration: ok without PREEMPT_RT or without the lock. With it a note, and a \
                 warning beside real-time threads of programs; with /proc/sys/net/core/rtnet_prio, of those \
                 below this priority.",
        examine: softirq_lock,
    },
    Check {
        id: "rps",
        title: "Packets passed to pool processors (RPS)",
        why: "The card's processor passes packets on to another one by an interrupt, whose softirq comes \
              before any thread, and on that processor all cards share one backlog.",
        source: "Linux, Documentation/networking/scaling.rst, \"RPS: Receive Packet Steering\"",
        judged: "/sys/class/net/*/queues/rx-*/rps_cpus: a warning when one has a processor of a pool.",
        examine: rps,
    },
    Check {
        id: "vhost",
        title: "Threads of virtual network cards",
        why: "Each packet to or from a VM passes its vhost thread. When that is less urgent than the VM's \
              vCPUs, packets wait for everything in between.",
        source: "rt-stack s.6.1, Table 6.2: vNIC threads above vCPUs; Linux, drivers/vhost/vhost.c",
        judged: "Threads vhost-PID of processes with real-time vCPU threads (\"CPU N/KVM\"): a warning for \
                 those in the fair class, a note for those below a vCPU.",
        examine: vhost,
    },
    Check {
        id: "sockets",
        title: "Threads that make socket calls of guests",
        why: "A guest whose sockets are the host's waits for the thread that makes its calls. In the fair \
              class the thread waits for every vCPU of its processor, and beside a more urgent one for that.",
        source: "rt-stack s.5.2, RT socket outsourcing: the thread's priority is above the vCPU's",
        judged: "Threads called `sockets NAME`: a warning for those in the fair class, a note for those that \
                 share a pool's processor with a more urgent thread of a program.",
        examine: sockets,
    },
];

/// The first kernel in which PREEMPT_RT can do without the lock.
const LOCK_IS_OPTIONAL: (u32, u32) = (6, 18);
const LOCK_OPTION: &str = "CONFIG_PREEMPT_RT_NEEDS_BH_LOCK";

fn softirq_lock(machine: &Machine) -> Result<Outcome, ReadError> {
    let mut readings = vec![machine.root.reading("/proc/sys/kernel/osrelease")?];
    if !machine.is_preempt_rt() {
        return Ok(Outcome::ok("no PREEMPT_RT: softirqs come before all threads instead").readings(readings));
    }
    if machine.kernel_version()? >= LOCK_IS_OPTIONAL {
        let (path, config) = machine.config()?;
        let value = parse::config_option(config, LOCK_OPTION).unwrap_or("n");
        readings.push(Reading { path: format!("{path} {LOCK_OPTION}"), value: value.into() });
        if value == "n" {
            return Ok(Outcome::ok("this kernel has none").readings(readings));
        }
    }
    let mut what = "threads wait for the holder of their processor's softirq lock".to_owned();
    let mut programs = machine.real_time_programs_on_pool()?;
    match machine.root.number(RTNET_PRIO) {
        Ok(0) => {}
        Ok(least) => {
            readings.push(machine.root.reading(RTNET_PRIO)?);
            programs.retain(|thread| i64::from(thread.stat.rt_priority) < least);
            what = format!("threads of priorities below {least} wait for the holder of one softirq lock");
        }
        Err(error) if error.is_absent() => {}
        Err(error) => return Err(error),
    }
    let outcome = if programs.is_empty() {
        Outcome::note(what)
    } else {
        Outcome::warning(format!("{what}, also for {}", named(&programs)))
    };
    Ok(outcome.readings(readings))
}

fn rps(machine: &Machine) -> Result<Outcome, ReadError> {
    let mut on_pool = Vec::new();
    for device in machine.root.names(DEVICES)? {
        let queues = machine.root.names(&format!("{DEVICES}/{device}/queues")).unwrap_or_default();
        for queue in queues.iter().filter(|queue| queue.starts_with("rx-")) {
            let path = format!("{DEVICES}/{device}/queues/{queue}/rps_cpus");
            let mask = |text: &str| Some((text.to_owned(), Cpus::parse_mask(text)?));
            match machine.root.parse(&path, "a mask of processors", mask) {
                Ok((text, cpus)) if !cpus.intersection(&machine.pool).is_empty() => {
                    on_pool.push((device.clone(), Reading { path, value: text }));
                }
                Ok(_) => {}
                Err(error) if error.is_absent() => {}
                Err(error) => return Err(error),
            }
        }
    }
    if on_pool.is_empty() {
        return Ok(Outcome::ok(format!("none are passed to processors of pools ({})", machine.pool)));
    }
    let mut devices: Vec<&str> = on_pool.iter().map(|(device, _)| device.as_str()).collect();
    devices.dedup();
    let mut outcome = Outcome::warning(format!("those of {} are", devices.join(", ")));
    // Without another processor for them, the card's own keeps them.
    let to = if machine.others.is_empty() { "0".to_owned() } else { machine.others.mask() };
    let paths: Vec<&str> = on_pool.iter().map(|(_, reading)| reading.path.as_str()).collect();
    outcome = outcome.fix(format!("for f in {}; do echo {to} > $f; done", paths.join(" ")));
    for (device, reading) in &on_pool {
        outcome = outcome.set(&reading.path, &to, &reading.value, &format!("packets of {device} keep off"));
    }
    Ok(outcome.readings(on_pool.into_iter().map(|(_, reading)| reading)))
}

fn vhost(machine: &Machine) -> Result<Outcome, ReadError> {
    let threads = machine.threads()?;
    let is_vcpu = |thread: &&Thread| {
        let name = &thread.stat.name;
        name.starts_with("CPU ") && name.ends_with("/KVM") && thread.stat.is_real_time()
    };
    // Of each vhost thread, the most urgent vCPU of its VM. It is a thread of the VM's process, or the
    // kernel's, called after that process.
    let urgent = |vhost: &Thread| {
        let process = vhost.stat.name.strip_prefix("vhost-")?.parse::<u32>().ok()?;
        let vcpus = threads.iter().filter(is_vcpu).filter(|vcpu| vcpu.process == process);
        vcpus.max_by_key(|vcpu| vcpu.stat.rt_priority)
    };
    let beside: Vec<(&Thread, &Thread)> =
        threads.iter().filter_map(|thread| Some((thread, urgent(thread)?))).collect();
    let below = |(vhost, vcpu): &&(&Thread, &Thread)| vhost.stat.rt_priority < vcpu.stat.rt_priority;
    let below: Vec<(&Thread, &Thread)> = beside.iter().filter(below).copied().collect();
    let evidence = below.iter().flat_map(|(vhost, vcpu)| [vhost, vcpu]).map(|thread| Reading {
        path: format!("/proc/{}/task/{}/stat", thread.process, thread.stat.tid),
        value: format!("{}, priority {}", thread.stat.name, thread.stat.rt_priority),
    });
    let evidence: Vec<Reading> = evidence.collect();
    let (fair, lower): (Vec<_>, Vec<_>) =
        below.into_iter().partition(|(vhost, _)| !vhost.stat.is_real_time());
    let show = |all: &[(&Thread, &Thread)]| {
        let one = |(vhost, vcpu): &(&Thread, &Thread)| {
            format!("{} beside {} ({})", vhost.stat.name, vcpu.stat.name, vcpu.stat.rt_priority)
        };
        all.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let raise = |all: &[(&Thread, &Thread)]| {
        let greatest = all.iter().map(|(_, vcpu)| vcpu.stat.rt_priority).max().unwrap_or(1);
        let vhosts: Vec<&Thread> = all.iter().map(|(vhost, _)| *vhost).collect();
        for_each(&vhosts, &format!("chrt -f -p {} $t", (greatest + 1).min(99)))
    };
    let outcome = if !fair.is_empty() {
        Outcome::warning(format!("in the fair class: {}", show(&fair))).fix(raise(&fair))
    } else if !lower.is_empty() {
        Outcome::note(format!("less urgent than a vCPU: {}", show(&lower))).fix(raise(&lower))
    } else if beside.is_empty() {
        Outcome::ok("none belongs to a VM with real-time vCPUs")
    } else {
        Outcome::ok("as urgent as the vCPUs of their VMs")
    };
    Ok(outcome.readings(evidence))
}

fn sockets(machine: &Machine) -> Result<Outcome, ReadError> {
    let servers: Vec<&Thread> =
        machine.threads()?.iter().filter(|thread| thread.stat.name.starts_with("sockets ")).collect();
    if servers.is_empty() {
        return Ok(Outcome::ok("no guest has sockets of this host"));
    }
    let evidence = servers.iter().map(|thread| Reading {
        path: format!("/proc/{}/task/{}/stat", thread.process, thread.stat.tid),
        value: format!("{}, priority {}", thread.stat.name, thread.stat.rt_priority),
    });
    let evidence: Vec<Reading> = evidence.collect();
    let (urgent, fair): (Vec<&Thread>, Vec<&Thread>) =
        servers.into_iter().partition(|thread| thread.stat.is_real_time());
    let programs = machine.real_time_programs_on_pool()?;
    let is_above = |program: &&&Thread, server: &Thread| {
        let shared = |a: &Cpus, b: &Cpus| !a.intersection(b).is_empty();
        program.stat.rt_priority > server.stat.rt_priority
            && program.allowed.as_ref().zip(server.allowed.as_ref()).is_none_or(|(a, b)| shared(a, b))
    };
    let below = urgent.into_iter().filter_map(|server| {
        let above = programs.iter().find(|program| is_above(program, server))?;
        Some((server, *above))
    });
    let below: Vec<(&Thread, &Thread)> = below.collect();
    let outcome = if !fair.is_empty() {
        let cure = for_each(&fair, "chrt -f -p 60 $t") + "  # or `priority` in the domain's `sockets`";
        let names: Vec<&str> = fair.iter().map(|thread| thread.stat.name.as_str()).collect();
        Outcome::warning(format!("in the fair class: {}", names.join(", "))).fix(cure)
    } else if let [(server, above), ..] = below[..] {
        let (server, above) = (&server.stat, &above.stat);
        let what = format!("{} ({})", server.name, server.rt_priority);
        let text = format!("{what} may wait for {} ({})", above.name, above.rt_priority);
        let servers: Vec<&Thread> = below.iter().map(|(server, _)| *server).collect();
        let most = below.iter().map(|(_, above)| above.stat.rt_priority).max().unwrap_or(1);
        Outcome::note(text).fix(for_each(&servers, &format!("chrt -f -p {} $t", (most + 1).min(99))))
    } else {
        Outcome::ok("nothing on their processors is more urgent")
    };
    Ok(outcome.readings(evidence))
}
