//! Interrupts of devices on the pool's processors.

use super::check::Check;
use super::finding::{Outcome, Reading};
use super::machine::Machine;
use super::parse::{self, Interrupt};
use super::root::ReadError;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "irqs",
        title: "Interrupts of devices on pool processors",
        why: "The handler and the softirq work it leaves behind run before any thread, real-time or not: a \
              priority inversion that no scheduling policy can prevent.",
        source: "rt-stack s.3.2, interrupt-first kernel; Linux, Documentation/core-api/irq/irq-affinity.rst",
        judged: "/proc/interrupts, /proc/uptime and effective_affinity_list (else smp_affinity_list) below \
                 /proc/irq/N. A warning when pool processors took more than 10 a second on average since \
                 boot from interrupts that still go there; a note when any still goes there.",
        examine: irqs,
    },
    Check {
        id: "irqbalance",
        title: "irqbalance",
        why: "It moves interrupts between processors every ten seconds, also onto a pool's processors, and \
              undoes what was set by hand.",
        source: "irqbalance(1)",
        judged: "A process of that name: a warning.",
        examine: irqbalance,
    },
];

/// Interrupts a second on the pool's processors that are worth a warning.
const RATE_MAX_HZ: u64 = 10;

/// An interrupt that goes to a processor of a pool.
struct OnPool {
    irq: u32,
    name: String,
    /// The file with the processors that it goes to, and its text.
    target: Reading,
    /// How often processors of pools took it since boot.
    count: u64,
}

fn irqs(machine: &Machine) -> Result<Outcome, ReadError> {
    let path = "/proc/interrupts";
    let interrupts =
        machine.root.parse(path, "a table with a column for each processor", parse::interrupts)?;
    let uptime = |text: &str| text.split(['.', ' ']).next()?.parse::<u64>().ok();
    let seconds = machine.root.parse("/proc/uptime", "seconds", uptime)?;
    let mut on_pool: Vec<OnPool> = interrupts
        .into_iter()
        .filter_map(|interrupt| on_pool(machine, interrupt).transpose())
        .collect::<Result<_, _>>()?;
    on_pool.sort_by_key(|interrupt| std::cmp::Reverse(interrupt.count));
    let Some(most) = on_pool.first() else {
        let none = format!("none goes to processors of pools ({})", machine.pool);
        return Ok(Outcome::ok(none));
    };
    let count: u64 = on_pool.iter().map(|interrupt| interrupt.count).sum();
    let rate = count / seconds.max(1);
    let name = if most.name.is_empty() { "no handler" } else { &most.name };
    let summary = format!(
        "sent to processors of pools: {}, taken {count} times since boot ({rate} a second), most often {} \
         ({name})",
        on_pool.len(),
        most.irq
    );
    let outcome = if rate > RATE_MAX_HZ { Outcome::warning(summary) } else { Outcome::note(summary) };
    let outcome = move_away(machine, outcome, &on_pool)?;
    let counts = |interrupt: &OnPool| Reading {
        path: format!("{path} {} on {}", interrupt.irq, machine.pool),
        value: interrupt.count.to_string(),
    };
    let counts: Vec<_> = on_pool.iter().map(counts).collect();
    Ok(outcome.readings(on_pool.into_iter().map(|interrupt| interrupt.target)).readings(counts))
}

/// Adds how the interrupts are sent to the other processors, if there are any.
fn move_away(machine: &Machine, mut outcome: Outcome, on_pool: &[OnPool]) -> Result<Outcome, ReadError> {
    if machine.others.is_empty() {
        return Ok(outcome);
    }
    let to = machine.others.to_string();
    for interrupt in on_pool {
        let path = format!("/proc/irq/{}/smp_affinity_list", interrupt.irq);
        let present = machine.root.text(&path)?;
        outcome = outcome.set(path, &to, &present, &format!("{} is handled elsewhere", interrupt.name));
    }
    let numbers: Vec<String> = on_pool.iter().map(|interrupt| interrupt.irq.to_string()).collect();
    let numbers = numbers.join(" ");
    Ok(outcome.fix(format!("for i in {numbers}; do echo {to} > /proc/irq/$i/smp_affinity_list; done")))
}

/// The interrupt if it goes to a processor of a pool and a driver has requested it.
fn on_pool(machine: &Machine, interrupt: Interrupt) -> Result<Option<OnPool>, ReadError> {
    if interrupt.name.is_empty() {
        return Ok(None);
    }
    let directory = format!("/proc/irq/{}", interrupt.irq);
    let effective = format!("{directory}/effective_affinity_list");
    // The file is empty until the interrupt is first started. Some architectures do not have it.
    let (path, cpus) = match machine.cpus(&effective) {
        Ok(cpus) if !cpus.is_empty() => (effective, cpus),
        _ => {
            let path = format!("{directory}/smp_affinity_list");
            match machine.cpus(&path) {
                // The interrupt was freed meanwhile, or is one of the kernel's own that cannot be moved.
                Err(error) if error.is_absent() => return Ok(None),
                cpus => (path, cpus?),
            }
        }
    };
    if cpus.intersection(&machine.pool).is_empty() {
        return Ok(None);
    }
    let of_pool = interrupt.counts.iter().filter(|(cpu, _)| machine.pool.contains(*cpu));
    let count = of_pool.fold(0u64, |sum, (_, count)| sum.saturating_add(*count));
    let target = Reading { path, value: cpus.to_string() };
    Ok(Some(OnPool { irq: interrupt.irq, name: interrupt.name, target, count }))
}

fn irqbalance(machine: &Machine) -> Result<Outcome, ReadError> {
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
