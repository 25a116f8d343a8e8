//! Interrupts, what follows from them, and real-time threads that are already there.

use super::finding::{Change, Outcome, Reading};
use super::parse::Interrupt;
use super::{Check, Cpus, Machine, Thread, Unreadable, parse};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "irqs",
        title: "Interrupts of devices on pool processors",
        why: "The handler and the softirq work it leaves behind run before any thread, real-time or not: a priority \
              inversion that no scheduling policy can prevent.",
        source: "rt-stack s.3.2, interrupt-first kernel; Linux, Documentation/core-api/irq/irq-affinity.rst",
        judged: "/proc/interrupts, /proc/uptime and effective_affinity_list (else smp_affinity_list) below \
                 /proc/irq/N. A warning when pool processors took more than 10 a second on average since boot from \
                 interrupts that still go there; a note when any still goes there.",
        examine: irqs,
    },
    Check {
        id: "irqbalance",
        title: "irqbalance",
        why: "It moves interrupts between processors every ten seconds, also onto a pool's processors, and undoes \
              what was set by hand.",
        source: "irqbalance(1)",
        judged: "A process of that name: a warning.",
        examine: irqbalance,
    },
    Check {
        id: "irq-threads",
        title: "Threads of interrupts",
        why: "A threaded interrupt is as urgent as its thread: above vCPUs it preempts them, below them its device \
              waits for them.",
        source: "rt-stack s.3.2, threaded interrupt handling; Linux, kernel/irq/manage.c (SCHED_FIFO 50)",
        judged: "Threads irq/* that may run on pool processors: a note with their priorities.",
        examine: irq_threads,
    },
    Check {
        id: "rt-threads",
        title: "Other real-time threads",
        why: "Real-time threads of others compete with vCPUs on a pool's processors by priority alone, and no budget \
              limits them.",
        source: "sched(7), SCHED_FIFO",
        judged: "Threads above the fair class that may run on pool processors, other than those of interrupts, the \
                 kernel's stoppers and Punctual: a warning for programs, a note for the kernel's.",
        examine: rt_threads,
    },
    Check {
        id: "napi",
        title: "Network receive in threads (threaded NAPI)",
        why: "Packets are handled in a softirq before any thread, all devices in turn. With threads per device, a \
              device's packets are as urgent as its thread; in the fair class they wait for every vCPU.",
        source: "rt-stack s.3.4 and s.4, priority inversion in softirq handling; Linux, \
                 Documentation/networking/napi.rst, threaded NAPI",
        judged: "/sys/class/net/*/threaded of devices with hardware, and the class of threads napi/*: a note when \
                 off, a warning when on with threads in the fair class.",
        examine: napi,
    },
    Check {
        id: "ksoftirqd",
        title: "Priority of softirq threads",
        why: "Softirq work that is too much for one go is left to ksoftirqd, an ordinary thread: on a processor kept \
              busy by vCPUs it waits, and with it network and timers of ordinary threads.",
        source: "Linux, kernel/softirq.c, wakeup_softirqd; rt-stack s.3.4",
        judged: "The class of ksoftirqd/N of pool processors: a note in the fair class, a warning with PREEMPT_RT, \
                 where more work goes there.",
        examine: ksoftirqd,
    },
    Check {
        id: "workqueues",
        title: "Kernel work on pool processors",
        why: "Unbound work of the kernel may be placed on a pool's processor and then waits behind vCPUs, together \
              with whoever waits for it.",
        source: "Linux, Documentation/core-api/workqueue.rst, \"Affinity Scopes\" and cpumask",
        judged: "/sys/devices/virtual/workqueue/cpumask: a note when it has a processor of a pool.",
        examine: workqueues,
    },
    Check {
        id: "watchdog",
        title: "Lockup detectors",
        why: "The soft lockup detector runs above every real-time thread every few seconds; the hard one takes a \
              non-maskable interrupt and a performance counter.",
        source: "Linux, Documentation/admin-guide/lockup-watchdogs.rst",
        judged: "/proc/sys/kernel/watchdog, nmi_watchdog and watchdog_cpumask: a note when one is on for pool \
                 processors.",
        examine: watchdog,
    },
];

/// Interrupts a second on the pool's processors that are worth a warning.
const RATE_MAX_HZ: u64 = 10;

/// An interrupt that goes to a processor of a pool.
struct OnPool {
    irq: u32,
    name: String,
    /// The file that says where it goes, and what it says.
    goes: Reading,
    /// How often processors of pools took it since boot.
    count: u64,
}

fn irqs(machine: &Machine) -> Result<Outcome, Unreadable> {
    let path = "/proc/interrupts";
    let interrupts =
        machine.root.parse(path, "a table with a column for each processor", parse::interrupts)?;
    let seconds = machine
        .root
        .parse("/proc/uptime", "seconds", |text| text.split(['.', ' ']).next()?.parse::<u64>().ok())?;
    let mut on_pool: Vec<OnPool> = interrupts
        .into_iter()
        .filter_map(|interrupt| on_pool(machine, interrupt).transpose())
        .collect::<Result<_, _>>()?;
    on_pool.sort_by_key(|interrupt| std::cmp::Reverse(interrupt.count));
    let count: u64 = on_pool.iter().map(|interrupt| interrupt.count).sum();
    let Some(most) = on_pool.first() else {
        let others = format!("none goes to processors of pools ({})", machine.pool);
        return Ok(Outcome::ok(others));
    };
    let rate = count / seconds.max(1);
    let name = if most.name.is_empty() { "no handler" } else { &most.name };
    let summary = format!(
        "{} go there, taken {count} times since boot ({rate} a second), most often {} ({name})",
        on_pool.len(),
        most.irq
    );
    let mut outcome = if rate > RATE_MAX_HZ { Outcome::warning(summary) } else { Outcome::note(summary) };
    let to = machine.others.to_string();
    if !to.is_empty() {
        let numbers: Vec<String> = on_pool.iter().map(|interrupt| interrupt.irq.to_string()).collect();
        outcome = outcome.fix(format!(
            "for i in {}; do echo {to} > /proc/irq/$i/smp_affinity_list; done",
            numbers.join(" ")
        ));
        for interrupt in &on_pool {
            let path = format!("/proc/irq/{}/smp_affinity_list", interrupt.irq);
            let why = format!("{} is handled elsewhere", interrupt.name);
            let present = machine.root.text(&path)?;
            outcome = outcome.set(path, &to, &present, &why);
        }
    }
    let counts = |interrupt: &OnPool| Reading {
        path: format!("{path} {} on {}", interrupt.irq, machine.pool),
        value: interrupt.count.to_string(),
    };
    let counts: Vec<_> = on_pool.iter().map(counts).collect();
    Ok(outcome.readings(on_pool.into_iter().map(|interrupt| interrupt.goes)).readings(counts))
}

/// The interrupt if it goes to a processor of a pool and somebody has requested it.
fn on_pool(machine: &Machine, interrupt: Interrupt) -> Result<Option<OnPool>, Unreadable> {
    if interrupt.name.is_empty() {
        return Ok(None);
    }
    let directory = format!("/proc/irq/{}", interrupt.irq);
    let effective = format!("{directory}/effective_affinity_list");
    // Empty before the interrupt is first started; not there on architectures with one target for each.
    let (path, cpus) = match machine.cpus(&effective) {
        Ok(cpus) if !cpus.is_empty() => (effective, cpus),
        _ => {
            let path = format!("{directory}/smp_affinity_list");
            match machine.cpus(&path) {
                // Freed since, or one of the kernel's own that cannot be moved.
                Err(error) if error.absent => return Ok(None),
                cpus => (path, cpus?),
            }
        }
    };
    if cpus.both(&machine.pool).is_empty() {
        return Ok(None);
    }
    let of_pool = interrupt.counts.iter().filter(|(cpu, _)| machine.pool.contains(*cpu));
    let count = of_pool.fold(0u64, |sum, (_, count)| sum.saturating_add(*count));
    let goes = Reading { path, value: cpus.to_string() };
    Ok(Some(OnPool { irq: interrupt.irq, name: interrupt.name, goes, count }))
}

fn irqbalance(machine: &Machine) -> Result<Outcome, Unreadable> {
    let Some(thread) = machine.threads()?.iter().find(|thread| thread.stat.name == "irqbalance") else {
        return Ok(Outcome::ok("not running"));
    };
    let outcome = Outcome::warning(format!("running as process {}", thread.stat.tid));
    let banned = format!(
        "systemctl stop irqbalance  # or IRQBALANCE_BANNED_CPULIST={} in /etc/default/irqbalance",
        machine.pool
    );
    Ok(outcome.read(format!("/proc/{}/stat", thread.stat.tid), "irqbalance").fix(banned))
}

/// Names and priorities for people; not all when there are many.
fn named(threads: &[&Thread]) -> String {
    const SHOWN: usize = 6;
    let show = |thread: &&Thread| {
        let stat = &thread.stat;
        match stat.policy {
            6 => format!("{} (deadline)", stat.name),
            _ => format!("{} ({})", stat.name, stat.rt_priority),
        }
    };
    let mut text = threads.iter().take(SHOWN).map(show).collect::<Vec<_>>().join(", ");
    if threads.len() > SHOWN {
        text += &format!(" and {} more", threads.len() - SHOWN);
    }
    text
}

fn priorities<'a>(threads: &'a [&Thread]) -> impl Iterator<Item = Reading> + 'a {
    threads.iter().map(|thread| Reading {
        path: format!("/proc/{0}/task/{0}/stat", thread.stat.tid),
        value: format!(
            "{}, policy {}, priority {}",
            thread.stat.name, thread.stat.policy, thread.stat.rt_priority
        ),
    })
}

/// A shell loop over threads, `$t` in turn.
fn for_each(threads: &[&Thread], command: &str) -> String {
    let tids: Vec<String> = threads.iter().map(|thread| thread.stat.tid.to_string()).collect();
    format!("for t in {}; do {command}; done", tids.join(" "))
}

fn irq_threads(machine: &Machine) -> Result<Outcome, Unreadable> {
    let on_pool = machine.real_time_threads_on_pool()?;
    let threads: Vec<&Thread> = on_pool.filter(|thread| thread.stat.name.starts_with("irq/")).collect();
    if threads.is_empty() {
        return Ok(Outcome::ok("none may run on processors of pools"));
    }
    let fix = for_each(&threads, "chrt -f -p 50 $t") + "  # above or below the vCPUs, as is meant";
    let evidence: Vec<_> = priorities(&threads).collect();
    Ok(Outcome::note(named(&threads)).fix(fix).readings(evidence))
}

/// The kernel's own threads that stop a processor for migration and hotplug: above everything by design, and
/// idle.
fn is_stopper(thread: &Thread) -> bool {
    let name = &thread.stat.name;
    thread.stat.kernel && ["migration/", "idle_inject/", "cpuhp/"].iter().any(|start| name.starts_with(start))
}

fn rt_threads(machine: &Machine) -> Result<Outcome, Unreadable> {
    let known = |thread: &&Thread| {
        let name = &thread.stat.name;
        ["irq/", "napi/", "ksoftirqd/"].iter().any(|start| name.starts_with(start))
            || is_stopper(thread)
            || name.starts_with("punctual")
    };
    let on_pool = machine.real_time_threads_on_pool()?;
    let others: Vec<&Thread> = on_pool.filter(|thread| !known(thread)).collect();
    let (kernel, programs): (Vec<&Thread>, Vec<&Thread>) = others.into_iter().partition(|t| t.stat.kernel);
    let evidence: Vec<_> = priorities(&programs).chain(priorities(&kernel)).collect();
    let outcome = match (programs.is_empty(), kernel.is_empty()) {
        (false, _) => Outcome::warning(format!("programs: {}", named(&programs)))
            .fix(for_each(&programs, &format!("taskset -pc {} $t", machine.others))),
        (true, false) => Outcome::note(format!("of the kernel: {}", named(&kernel))),
        (true, true) => Outcome::ok("none may run on processors of pools"),
    };
    Ok(outcome.readings(evidence))
}

/// What Linux gives threads of interrupts (`sched_set_fifo`, kernel/sched/syscalls.c), so also those of NAPI.
const INTERRUPT_PRIORITY: u32 = 50;

fn napi(machine: &Machine) -> Result<Outcome, Unreadable> {
    let class = "/sys/class/net";
    let mut readings = Vec::new();
    for device in machine.root.names(class)? {
        // Software devices (bridges, loopback) have no receive interrupt of their own.
        if machine.root.has(&format!("{class}/{device}/device")) {
            match machine.root.reading(&format!("{class}/{device}/threaded")) {
                Ok(reading) => readings.push(reading),
                Err(error) if error.absent => {}
                Err(error) => return Err(error),
            }
        }
    }
    if readings.is_empty() {
        return Ok(Outcome::ok("no network device with hardware, or a kernel before Linux 5.12"));
    }
    let off: Vec<&str> = readings.iter().filter(|r| r.value == "0").map(|r| device_of(&r.path)).collect();
    let threads = machine.threads()?.iter().filter(|thread| thread.stat.name.starts_with("napi/"));
    let fair: Vec<&Thread> = threads.filter(|thread| !thread.stat.is_real_time()).collect();
    let mut outcome = if !fair.is_empty() {
        let names: Vec<&str> = fair.iter().map(|thread| thread.stat.name.as_str()).collect();
        Outcome::warning(format!("in the fair class, behind every vCPU: {}", names.join(", ")))
            .fix(for_each(&fair, &format!("chrt -f -p {INTERRUPT_PRIORITY} $t")))
    } else if !off.is_empty() {
        let switch = format!("for d in {}; do echo 1 > {class}/$d/threaded; done", off.join(" "));
        let then = format!("for t in $(pgrep '^napi/'); do chrt -f -p {INTERRUPT_PRIORITY} $t; done");
        Outcome::note(format!("off for {}", off.join(", "))).fix(format!("{switch}; {then}"))
    } else {
        Outcome::ok("on, with real-time threads")
    };
    for thread in fair {
        outcome = outcome.change(Change::SetThreadPriority {
            tid: thread.stat.tid,
            name: thread.stat.name.clone(),
            priority: INTERRUPT_PRIORITY,
            why: "packets are as urgent as other interrupts".into(),
        });
    }
    Ok(outcome.readings(readings))
}

fn device_of(path: &str) -> &str {
    path.rsplit('/').nth(1).unwrap_or(path)
}

fn ksoftirqd(machine: &Machine) -> Result<Outcome, Unreadable> {
    let names: Vec<String> = machine.each("ksoftirqd/{}").map(|(_, name)| name).collect();
    let threads: Vec<&Thread> =
        machine.threads()?.iter().filter(|thread| names.contains(&thread.stat.name)).collect();
    if threads.len() < names.len() {
        let found =
            format!("{} of {} threads ksoftirqd/N of pool processors found", threads.len(), names.len());
        return Ok(Outcome::unknown(format!("/proc: {found}")));
    }
    let evidence: Vec<_> = priorities(&threads).collect();
    let fair: Vec<&Thread> = threads.iter().filter(|thread| !thread.stat.is_real_time()).copied().collect();
    if fair.is_empty() {
        return Ok(Outcome::ok(named(&threads)).readings(evidence));
    }
    let names: Vec<&str> = fair.iter().map(|thread| thread.stat.name.as_str()).collect();
    let summary = format!("in the fair class: {}", names.join(", "));
    let outcome = match super::kernel::is_preempt_rt(machine) {
        true => Outcome::warning(summary),
        false => Outcome::note(summary),
    };
    Ok(outcome.fix(for_each(&fair, "chrt -f -p 1 $t")).readings(evidence))
}

fn workqueues(machine: &Machine) -> Result<Outcome, Unreadable> {
    let path = "/sys/devices/virtual/workqueue/cpumask";
    let (text, mask) = machine
        .root
        .parse(path, "a mask of processors", |text| Some((text.to_owned(), Cpus::parse_mask(text)?)))?;
    let on_pool = mask.both(&machine.pool);
    if on_pool.is_empty() {
        return Ok(Outcome::ok("unbound work keeps off the pool's processors").read(path, text));
    }
    let outcome = Outcome::note(format!("unbound work may run on {on_pool}"));
    if machine.others.is_empty() {
        return Ok(outcome.read(path, text));
    }
    let value = machine.others.mask();
    let why = "unbound work of the kernel keeps off the pool's processors";
    Ok(outcome.fix(format!("echo {value} > {path}")).set(path, &value, &text, why).read(path, text))
}

fn watchdog(machine: &Machine) -> Result<Outcome, Unreadable> {
    let directory = "/proc/sys/kernel";
    machine.root.names(directory)?;
    let [soft, hard] = ["watchdog", "nmi_watchdog"].map(|name| {
        let path = format!("{directory}/{name}");
        match machine.root.number(&path) {
            // A kernel without the detector has no switch for it.
            Err(error) if error.absent => Ok(None),
            value => value.map(|value| Some((path, value))),
        }
    });
    let [soft, hard] = [soft?, hard?];
    let on = |switch: &Option<(String, i64)>| switch.as_ref().is_some_and(|(_, value)| *value != 0);
    let switches = [&soft, &hard].into_iter().flatten();
    let readings: Vec<Reading> =
        switches.map(|(path, value)| Reading { path: path.clone(), value: value.to_string() }).collect();
    if !on(&soft) && !on(&hard) {
        return Ok(Outcome::ok("off").readings(readings));
    }
    let path = format!("{directory}/watchdog_cpumask");
    let cpus = machine.cpus(&path)?;
    let on_pool = cpus.both(&machine.pool);
    if on_pool.is_empty() {
        return Ok(Outcome::ok("on, but not on processors of pools").readings(readings).read(path, cpus));
    }
    let which = match (on(&soft), on(&hard)) {
        (true, true) => "the soft and the hard one are",
        (false, true) => "the hard one is",
        _ => "the soft one is",
    };
    let outcome = Outcome::note(format!("{which} on for {on_pool}")).readings(readings).read(&path, &cpus);
    if machine.others.is_empty() {
        return Ok(outcome);
    }
    let to = machine.others.to_string();
    let why = "lockups are looked for elsewhere only";
    Ok(outcome.fix(format!("echo {to} > {path}")).set(path, &to, &cpus.to_string(), why))
}
