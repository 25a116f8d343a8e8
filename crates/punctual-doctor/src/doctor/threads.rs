//! Threads and kernel work that compete with vCPUs on the pool's processors.

use punctual_linux::os::net::DEVICES;

use super::check::Check;
use super::cpus::Cpus;
use super::finding::{Change, Outcome, Reading};
use super::machine::{Machine, Thread};
use super::root::ReadError;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "irq-threads",
        title: "Threads of interrupts",
        why: "A threaded interrupt is as urgent as its thread: above vCPUs it preempts them, below them its \
              device waits for them.",
        source: "rt-stack s.3.2, threaded interrupt handling; Linux, kernel/irq/manage.c (SCHED_FIFO 50)",
        judged: "Threads irq/* that may run on pool processors: a note with their priorities, and whether \
                 several devices have the same one.",
        examine: irq_threads,
    },
    Check {
        id: "rt-threads",
        title: "Other real-time threads",
        why: "Real-time threads of others compete with vCPUs on a pool's processors by priority alone, and \
              no budget limits them.",
        source: "sched(7), SCHED_FIFO",
        judged: "Threads above the fair class that may run on pool processors, other than those of \
                 interrupts, the kernel's stoppers and Punctual: a warning for programs, a note for the \
                 kernel's.",
        examine: rt_threads,
    },
    Check {
        id: "napi",
        title: "Network receive in threads (threaded NAPI)",
        why: "Packets are handled in a softirq before any thread, all devices in turn. With threads per \
              device, a device's packets are as urgent as its thread; in the fair class they wait for every \
              vCPU.",
        source: "rt-stack s.3.4 and s.4, priority inversion in softirq handling; Linux, \
                 Documentation/networking/napi.rst, threaded NAPI",
        judged: "/sys/class/net/*/threaded of devices with hardware, and the class of threads napi/*: a note \
                 when off, a warning when off with PREEMPT_RT beside real-time threads of programs, and when \
                 on with threads in the fair class.",
        examine: napi,
    },
    Check {
        id: "backlog",
        title: "Backlog threads",
        why: "Packets between devices without hardware (a VM's tap, a veth, loopback) and those that RPS \
              passes on go through a processor's backlog. Where a thread polls it, they wait for every \
              real-time thread above it.",
        source: "Linux 6.10, net/core/dev.c, backlog_napi_setup: threads under PREEMPT_RT, or with \
                 thread_backlog_napi",
        judged: "The class of threads backlog_napi/N of pool processors: a warning in the fair class beside \
                 real-time threads of programs, else a note.",
        examine: backlog,
    },
    Check {
        id: "ksoftirqd",
        title: "Priority of softirq threads",
        why: "When softirq work takes too long, the kernel leaves the rest to ksoftirqd, an ordinary thread. \
              It waits while vCPUs keep its processor busy, and network and timers of ordinary threads wait \
              with it.",
        source: "Linux, kernel/softirq.c, wakeup_softirqd; rt-stack s.3.4",
        judged: "The class of ksoftirqd/N of pool processors: a note in the fair class, a warning with \
                 PREEMPT_RT, where more work goes there.",
        examine: ksoftirqd,
    },
    Check {
        id: "workqueues",
        title: "Kernel work on pool processors",
        why: "The kernel may place unbound work on a pool's processor, where it waits behind vCPUs, together \
              with the threads that wait for it.",
        source: "Linux, Documentation/core-api/workqueue.rst, \"Affinity Scopes\" and cpumask",
        judged: "/sys/devices/virtual/workqueue/cpumask: a note when it has a processor of a pool.",
        examine: workqueues,
    },
    Check {
        id: "watchdog",
        title: "Lockup detectors",
        why: "The soft lockup detector runs above every real-time thread every few seconds; the hard one \
              takes a non-maskable interrupt and a performance counter.",
        source: "Linux, Documentation/admin-guide/lockup-watchdogs.rst",
        judged: "/proc/sys/kernel/watchdog, nmi_watchdog and watchdog_cpumask: a note when one is on for \
                 pool processors.",
        examine: watchdog,
    },
];

/// Names and priorities for a sentence; of many threads only the first.
pub(super) fn named(threads: &[&Thread]) -> String {
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

/// A shell loop over threads; `$t` is the id of each in turn.
pub(super) fn for_each(threads: &[&Thread], command: &str) -> String {
    let tids: Vec<String> = threads.iter().map(|thread| thread.stat.tid.to_string()).collect();
    format!("for t in {}; do {command}; done", tids.join(" "))
}

fn irq_threads(machine: &Machine) -> Result<Outcome, ReadError> {
    let on_pool = machine.real_time_threads_on_pool()?;
    let threads: Vec<&Thread> = on_pool.filter(|thread| thread.stat.name.starts_with("irq/")).collect();
    if threads.is_empty() {
        return Ok(Outcome::ok("none may run on processors of pools"));
    }
    let fix = for_each(&threads, "chrt -f -p 50 $t") + "  # above or below the vCPUs, as intended";
    let evidence: Vec<_> = priorities(&threads).collect();
    let mut summary = named(&threads);
    let mut devices: Vec<(u32, &str)> = threads.iter().map(|t| (t.stat.rt_priority, device(t))).collect();
    devices.sort_unstable();
    devices.dedup();
    if devices.windows(2).any(|two| two[0].0 == two[1].0) {
        summary += "; devices of one priority wait for each other";
    }
    Ok(Outcome::note(summary).fix(fix).readings(evidence))
}

/// The device of a thread `irq/NUMBER-DEVICE`, without the number of its queue.
fn device(thread: &Thread) -> &str {
    let name = thread.stat.name.split_once('-').map_or("", |(_, device)| device);
    name.split('-').next().unwrap_or(name)
}

/// Is it a thread of the kernel that stops a processor for migration and hotplug? These are above everything
/// by design, and idle.
fn is_stopper(thread: &Thread) -> bool {
    let name = &thread.stat.name;
    thread.stat.kernel && ["migration/", "idle_inject/", "cpuhp/"].iter().any(|start| name.starts_with(start))
}

fn rt_threads(machine: &Machine) -> Result<Outcome, ReadError> {
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
        (false, _) => {
            let outcome = Outcome::warning(format!("programs: {}", named(&programs)));
            if machine.others.is_empty() {
                outcome
            } else {
                outcome.fix(for_each(&programs, &format!("taskset -pc {} $t", machine.others)))
            }
        }
        (true, false) => Outcome::note(format!("of the kernel: {}", named(&kernel))),
        (true, true) => Outcome::ok("none may run on processors of pools"),
    };
    Ok(outcome.readings(evidence))
}

/// What Linux gives threads of interrupts (`sched_set_fifo`, kernel/sched/syscalls.c), so also those of NAPI.
const INTERRUPT_PRIORITY: u32 = 50;

fn napi(machine: &Machine) -> Result<Outcome, ReadError> {
    let readings = threaded_switches(machine)?;
    if readings.is_empty() {
        return Ok(Outcome::ok("no network device with hardware, or a kernel before Linux 5.12"));
    }
    let threads = machine.threads()?.iter().filter(|thread| thread.stat.name.starts_with("napi/"));
    let fair: Vec<&Thread> = threads.filter(|thread| !thread.stat.is_real_time()).collect();
    let off: Vec<&str> = readings.iter().filter(|r| r.value == "0").map(|r| device_of(&r.path)).collect();
    let outcome = if !fair.is_empty() {
        raise_napi_threads(&fair)
    } else if !off.is_empty() {
        let switch = format!("for d in {}; do echo 1 > {DEVICES}/$d/threaded; done", off.join(" "));
        let then = format!("for t in $(pgrep '^napi/'); do chrt -f -p {INTERRUPT_PRIORITY} $t; done");
        let programs = machine.real_time_programs_on_pool()?;
        let what = format!("off for {}", off.join(", "));
        let outcome = if machine.is_preempt_rt() && !programs.is_empty() {
            Outcome::warning(format!("{what} beside {}", named(&programs)))
        } else {
            Outcome::note(what)
        };
        outcome.fix(format!("{switch}; {then}"))
    } else {
        Outcome::ok("on, with real-time threads")
    };
    Ok(outcome.readings(readings))
}

/// The switch of threaded NAPI of each network device that has one.
fn threaded_switches(machine: &Machine) -> Result<Vec<Reading>, ReadError> {
    let mut switches = Vec::new();
    for device in machine.root.names(DEVICES)? {
        // Software devices (bridges, loopback) have no receive interrupt of their own.
        if !machine.root.has(&format!("{DEVICES}/{device}/device")) {
            continue;
        }
        match machine.root.reading(&format!("{DEVICES}/{device}/threaded")) {
            Ok(reading) => switches.push(reading),
            Err(error) if error.is_absent() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(switches)
}

fn raise_napi_threads(fair: &[&Thread]) -> Outcome {
    let names: Vec<&str> = fair.iter().map(|thread| thread.stat.name.as_str()).collect();
    let mut outcome = Outcome::warning(format!("in the fair class, behind every vCPU: {}", names.join(", ")))
        .fix(for_each(fair, &format!("chrt -f -p {INTERRUPT_PRIORITY} $t")));
    for thread in fair {
        outcome = outcome.change(Change::SetThreadPriority {
            tid: thread.stat.tid,
            name: thread.stat.name.clone(),
            priority: INTERRUPT_PRIORITY,
            why: "packets are as urgent as other interrupts".into(),
        });
    }
    outcome
}

fn device_of(path: &str) -> &str {
    path.rsplit('/').nth(1).unwrap_or(path)
}

fn backlog(machine: &Machine) -> Result<Outcome, ReadError> {
    let names: Vec<String> = machine.each("backlog_napi/{}").map(|(_, name)| name).collect();
    let is_one = |thread: &&Thread| names.contains(&thread.stat.name);
    let threads: Vec<&Thread> = machine.threads()?.iter().filter(is_one).collect();
    let evidence: Vec<_> = priorities(&threads).collect();
    let fair: Vec<&Thread> = threads.iter().filter(|thread| !thread.stat.is_real_time()).copied().collect();
    if fair.is_empty() {
        let summary = if threads.is_empty() { "no threads poll it" } else { "polled by real-time threads" };
        return Ok(Outcome::ok(summary).readings(evidence));
    }
    let names: Vec<&str> = fair.iter().map(|thread| thread.stat.name.as_str()).collect();
    let summary = format!("in the fair class: {}", names.join(", "));
    let programs = machine.real_time_programs_on_pool()?;
    let outcome = if programs.is_empty() {
        Outcome::note(summary)
    } else {
        Outcome::warning(format!("{summary}, beside {}", named(&programs)))
    };
    Ok(outcome.fix(for_each(&fair, &format!("chrt -f -p {INTERRUPT_PRIORITY} $t"))).readings(evidence))
}

fn ksoftirqd(machine: &Machine) -> Result<Outcome, ReadError> {
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
    let outcome = if machine.is_preempt_rt() { Outcome::warning(summary) } else { Outcome::note(summary) };
    Ok(outcome.fix(for_each(&fair, "chrt -f -p 1 $t")).readings(evidence))
}

fn workqueues(machine: &Machine) -> Result<Outcome, ReadError> {
    let path = "/sys/devices/virtual/workqueue/cpumask";
    let (text, mask) = machine
        .root
        .parse(path, "a mask of processors", |text| Some((text.to_owned(), Cpus::parse_mask(text)?)))?;
    let on_pool = mask.intersection(&machine.pool);
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

fn watchdog(machine: &Machine) -> Result<Outcome, ReadError> {
    let directory = "/proc/sys/kernel";
    machine.root.names(directory)?;
    let mut readings = Vec::new();
    let [mut soft, mut hard] = [false; 2];
    for (name, on) in [("watchdog", &mut soft), ("nmi_watchdog", &mut hard)] {
        let path = format!("{directory}/{name}");
        match machine.root.number(&path) {
            Ok(value) => {
                *on = value != 0;
                readings.push(Reading { path, value: value.to_string() });
            }
            // A kernel without the detector has no switch for it.
            Err(error) if error.is_absent() => {}
            Err(error) => return Err(error),
        }
    }
    let which = match (soft, hard) {
        (false, false) => return Ok(Outcome::ok("off").readings(readings)),
        (true, true) => "the soft and the hard detector are",
        (false, true) => "the hard detector is",
        (true, false) => "the soft detector is",
    };
    let path = format!("{directory}/watchdog_cpumask");
    let cpus = machine.cpus(&path)?;
    let on_pool = cpus.intersection(&machine.pool);
    if on_pool.is_empty() {
        return Ok(Outcome::ok("on, but not on processors of pools").readings(readings).read(path, cpus));
    }
    let outcome = Outcome::note(format!("{which} on for {on_pool}")).readings(readings).read(&path, &cpus);
    if machine.others.is_empty() {
        return Ok(outcome);
    }
    let to = machine.others.to_string();
    let why = "lockups are detected on other processors only";
    Ok(outcome.fix(format!("echo {to} > {path}")).set(path, &to, &cpus.to_string(), why))
}
