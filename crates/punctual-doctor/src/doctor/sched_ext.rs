//! May a run load a scheduler of its own into this kernel?

use super::check::Check;
use super::finding::{Outcome, Reading};
use super::machine::Machine;
use super::root::{ReadError, Root};

pub(super) const CHECKS: &[Check] = &[Check {
    id: "sched-ext",
    title: "A scheduler of the run in the kernel",
    why: "With `enforce = \"sched-ext\"` the kernel itself ends budgets, more exactly and for less processor \
          time than an enforcer in user space. One such scheduler can be loaded at a time.",
    source: "Linux, Documentation/scheduler/sched-ext.rst; docs/live.md, \"What enforces\"",
    judged: "/sys/kernel/sched_ext/state and root/ops, /sys/kernel/btf/vmlinux, the kernel's version: ok \
             where a run can load one, else a note with the reason.",
    examine,
}];

const DIRECTORY: &str = "/sys/kernel/sched_ext";
const BTF: &str = "/sys/kernel/btf/vmlinux";
/// The first version with the kernel functions that the run's scheduler calls (`scx_bpf_dsq_insert` in
/// `kernel/sched/ext.c`).
const VERSION_MIN: (u32, u32) = (6, 13);

/// Why a run cannot load a scheduler of its own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSchedExt {
    /// The kernel has no sched_ext.
    #[error("this kernel has no sched_ext (CONFIG_SCHED_CLASS_EXT)")]
    Absent,
    /// The kernel is too old.
    #[error("Linux {}.{} is older than {}.{}", .0.0, .0.1, VERSION_MIN.0, VERSION_MIN.1)]
    Old((u32, u32)),
    /// The kernel refuses the timers by which budgets end.
    #[error("a kernel with PREEMPT_RT takes no BPF program with a timer")]
    PreemptRt,
    /// The kernel does not describe its types.
    #[error("this kernel has no {BTF} (CONFIG_DEBUG_INFO_BTF)")]
    NoBtf,
    /// Another scheduler is loaded.
    #[error("another scheduler is loaded: `{0}`")]
    InUse(String),
    /// A file cannot be read.
    #[error("{0}")]
    Unread(String),
}

impl From<ReadError> for NoSchedExt {
    fn from(error: ReadError) -> NoSchedExt {
        NoSchedExt::Unread(error.to_string())
    }
}

/// May a run load a scheduler of its own into the kernel of the machine with these files?
///
/// # Errors
/// What stands against it.
pub fn sched_ext(root: Root) -> Result<(), NoSchedExt> {
    judge(&Machine::new(root, None)?).map(|_| ())
}

fn judge(machine: &Machine) -> Result<Reading, NoSchedExt> {
    let version = machine.kernel_version()?;
    let state = match machine.root.reading(&format!("{DIRECTORY}/state")) {
        Err(error) if error.is_absent() => return Err(NoSchedExt::Absent),
        state => state?,
    };
    if version < VERSION_MIN {
        return Err(NoSchedExt::Old(version));
    }
    if machine.is_preempt_rt() {
        return Err(NoSchedExt::PreemptRt);
    }
    if !machine.root.has(BTF) {
        return Err(NoSchedExt::NoBtf);
    }
    if state.value != "disabled" {
        let ops = machine.root.text(&format!("{DIRECTORY}/root/ops"));
        return Err(NoSchedExt::InUse(ops.unwrap_or(state.value)));
    }
    Ok(state)
}

fn examine(machine: &Machine) -> Result<Outcome, ReadError> {
    Ok(match judge(machine) {
        Ok(state) => Outcome::ok("a run may load one (`--enforce sched-ext`)").readings([state]),
        Err(NoSchedExt::Unread(reason)) => Outcome::unknown(reason),
        Err(reason) => {
            let outcome = Outcome::note(format!("none: {reason}"));
            outcome.readings([machine.root.reading("/proc/sys/kernel/osrelease")?])
        }
    })
}
