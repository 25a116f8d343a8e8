//! What moves a VM's memory while the VM runs.

use super::check::Check;
use super::finding::{Outcome, Reading};
use super::machine::Machine;
use super::parse;
use super::root::ReadError;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "huge-pages",
        title: "Transparent huge pages",
        why: "The kernel collects pages into huge ones while a VM runs: its page tables are locked \
              meanwhile, and a page fault may first move other pages out of the way.",
        source: "Linux, Documentation/admin-guide/mm/transhuge.rst",
        judged: "/sys/kernel/mm/transparent_hugepage/enabled and defrag: a warning when both are `always`, a \
                 note when `enabled` is, else ok. QEMU asks for huge pages itself where `madvise` permits \
                 it.",
        examine: huge_pages,
    },
    Check {
        id: "ksm",
        title: "Merging of equal pages (KSM)",
        why: "A merged page is copied when a VM writes to it, in the middle of that VM's job.",
        source: "Linux, Documentation/admin-guide/mm/ksm.rst",
        judged: "/sys/kernel/mm/ksm/run: a warning at 1.",
        examine: ksm,
    },
    Check {
        id: "swap",
        title: "Swap",
        why: "A page of a VM that was swapped out takes a disk's time to come back.",
        source: "mlock(2); proc(5), /proc/swaps",
        judged: "/proc/swaps: a note when there is an area, a warning when it is used.",
        examine: swap,
    },
    Check {
        id: "numa-balancing",
        title: "Automatic NUMA balancing",
        why: "The kernel unmaps pages of running VMs to see which processors use them, and moves them \
              between nodes.",
        source: "Linux, Documentation/admin-guide/sysctl/kernel.rst, numa_balancing",
        judged: "/proc/sys/kernel/numa_balancing on a machine with several nodes: a warning unless 0.",
        examine: numa_balancing,
    },
];

fn huge_pages(machine: &Machine) -> Result<Outcome, ReadError> {
    let directory = "/sys/kernel/mm/transparent_hugepage";
    let path = format!("{directory}/enabled");
    let enabled = match machine.root.reading(&path) {
        Err(error) if error.is_absent() && machine.root.has("/sys/kernel/mm") => {
            return Ok(Outcome::ok("this kernel has none"));
        }
        enabled => enabled?,
    };
    let defrag = machine.root.reading(&format!("{directory}/defrag"))?;
    let choice = |reading: &Reading| {
        let chosen = parse::chosen(&reading.value).map(str::to_owned);
        chosen.ok_or_else(|| ReadError::unexpected(&reading.path, &reading.value, "one choice in brackets"))
    };
    let (mode, at_fault) = (choice(&enabled)?, choice(&defrag)?);
    let summary = format!("enabled: {mode}; defrag: {at_fault}");
    let always = |outcome: Outcome| {
        let why = "pages are not collected under running programs that did not ask";
        outcome.fix(format!("echo madvise > {path}")).set(&path, "madvise", &mode, why)
    };
    let outcome = match (mode.as_str(), at_fault.as_str()) {
        ("always", "always") => always(Outcome::warning(summary)),
        ("always", _) => always(Outcome::note(summary)),
        _ => Outcome::ok(summary),
    };
    Ok(outcome.readings([enabled, defrag]))
}

fn ksm(machine: &Machine) -> Result<Outcome, ReadError> {
    let path = "/sys/kernel/mm/ksm/run";
    let run = match machine.root.number(path) {
        Err(error) if error.is_absent() && machine.root.has("/sys/kernel/mm") => {
            return Ok(Outcome::ok("this kernel has none"));
        }
        run => run?,
    };
    let outcome = match run {
        1 => Outcome::warning("running")
            .fix(format!("echo 2 > {path}  # 2 also separates what is merged"))
            .set(path, "0", "1", "no more pages are merged"),
        _ => Outcome::ok("not running"),
    };
    Ok(outcome.read(path, run))
}

fn swap(machine: &Machine) -> Result<Outcome, ReadError> {
    let path = "/proc/swaps";
    let text = match machine.root.text(path) {
        Err(error) if error.is_absent() && machine.root.has("/proc/stat") => {
            return Ok(Outcome::ok("this kernel has none"));
        }
        text => text?,
    };
    // Filename, type, size, used, priority; a header comes first.
    let used = |line: &str| line.split_whitespace().nth_back(1)?.parse::<u64>().ok();
    let areas: Vec<u64> = text
        .lines()
        .skip(1)
        .map(|line| used(line).ok_or_else(|| ReadError::unexpected(path, line, "an area with its use")))
        .collect::<Result<_, _>>()?;
    let used_kib = areas.iter().fold(0u64, |sum, &used| sum.saturating_add(used));
    let count = if areas.len() == 1 { "1 area".into() } else { format!("{} areas", areas.len()) };
    let outcome = match (areas.len(), used_kib) {
        (0, _) => Outcome::ok("none"),
        (_, 0) => Outcome::note(format!("{count}, unused")).fix("swapoff -a"),
        (_, used) => Outcome::warning(format!("{count}, {used} KiB used")).fix("swapoff -a"),
    };
    Ok(outcome.read(path, format!("{count}, {used_kib} KiB used")))
}

fn numa_balancing(machine: &Machine) -> Result<Outcome, ReadError> {
    let path = "/proc/sys/kernel/numa_balancing";
    let on = match machine.root.number(path) {
        Err(error) if error.is_absent() && machine.root.has("/proc/sys/kernel") => {
            return Ok(Outcome::ok("this kernel has none"));
        }
        on => on?,
    };
    let nodes_path = "/sys/devices/system/node/online";
    let nodes = match machine.cpus(nodes_path) {
        Err(error) if error.is_absent() => 1,
        nodes => nodes?.len(),
    };
    let outcome = match (on, nodes) {
        (0, _) => Outcome::ok("off"),
        (_, 0 | 1) => Outcome::ok("on, but there is one node"),
        (on, nodes) => Outcome::warning(format!("on, with {nodes} nodes"))
            .fix(format!("echo 0 > {path}"))
            .set(path, "0", &on.to_string(), "pages of running VMs stay where they are"),
    };
    Ok(outcome.read(path, on).read(nodes_path, nodes))
}
