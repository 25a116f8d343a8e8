//! Why a thread of a VM did not run, in words: an interface of metrics and JSON.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::account::{Because, Off};

/// What a thread waited for. Where blame of runs ([`punctual_model::results::Cause`]) has the cause, it has
/// the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitCause {
    /// A thread of another VM had the processor.
    PreemptedByUnit,
    /// Another vCPU of its own VM had the processor.
    PreemptedBySibling,
    /// A helper thread of its own VM had the processor.
    HelperThread,
    /// A thread of the kernel had the processor.
    KernelThread,
    /// Another process of the host had the processor.
    OtherThread,
    /// Interrupts had the processor, as far as the kernel counts their time.
    Interrupt,
    /// A hypervisor below had the processor, as far as the kernel knows.
    Standstill,
    /// A limit of its cgroup (`cpu.max`) kept it from running.
    Throttled,
    /// Punctual parked it until its next budget.
    BudgetUsedBySelf,
    /// Its cgroup was frozen.
    Frozen,
    /// A signal or a debugger had stopped it.
    Stopped,
    /// The kernel had it wait for a page or a lock.
    Blocked,
    /// Its processor idled: it woke up, or nothing chose the thread.
    ProcessorIdle,
    /// What nothing measured explains.
    Unknown,
}

impl WaitCause {
    /// All of them, in the order in which they are shown.
    pub const ALL: [WaitCause; 14] = [
        WaitCause::PreemptedByUnit,
        WaitCause::PreemptedBySibling,
        WaitCause::HelperThread,
        WaitCause::KernelThread,
        WaitCause::OtherThread,
        WaitCause::Interrupt,
        WaitCause::Standstill,
        WaitCause::Throttled,
        WaitCause::BudgetUsedBySelf,
        WaitCause::Frozen,
        WaitCause::Stopped,
        WaitCause::Blocked,
        WaitCause::ProcessorIdle,
        WaitCause::Unknown,
    ];

    /// As in metrics and JSON.
    pub fn name(self) -> &'static str {
        match self {
            WaitCause::PreemptedByUnit => "preempted-by-unit",
            WaitCause::PreemptedBySibling => "preempted-by-sibling",
            WaitCause::HelperThread => "helper-thread",
            WaitCause::KernelThread => "kernel-thread",
            WaitCause::OtherThread => "other-thread",
            WaitCause::Interrupt => "interrupt",
            WaitCause::Standstill => "standstill",
            WaitCause::Throttled => "throttled",
            WaitCause::BudgetUsedBySelf => "budget-used-by-self",
            WaitCause::Frozen => "frozen",
            WaitCause::Stopped => "stopped",
            WaitCause::Blocked => "blocked",
            WaitCause::ProcessorIdle => "processor-idle",
            WaitCause::Unknown => "unknown",
        }
    }

    /// In words, for tables.
    pub fn words(self) -> &'static str {
        match self {
            WaitCause::PreemptedByUnit => "another VM",
            WaitCause::PreemptedBySibling => "another vCPU of the VM",
            WaitCause::HelperThread => "a helper thread of the VM",
            WaitCause::KernelThread => "the kernel",
            WaitCause::OtherThread => "another process",
            WaitCause::Interrupt => "interrupts",
            WaitCause::Standstill => "a hypervisor below",
            WaitCause::Throttled => "the limit of its cgroup",
            WaitCause::BudgetUsedBySelf => "its budget was used up",
            WaitCause::Frozen => "its cgroup was frozen",
            WaitCause::Stopped => "it was stopped",
            WaitCause::Blocked => "a page or a lock",
            WaitCause::ProcessorIdle => "an idle processor woke up",
            WaitCause::Unknown => "unknown",
        }
    }
}

/// A name, shared by everything that has it.
pub(crate) type Name = Arc<str>;

/// A thread that had a processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// A vCPU of the VM of this process.
    Vcpu(u32, Name),
    /// Another thread of the VM of this process.
    Helper(u32, Name),
    Kernel(Name),
    /// A process of the host.
    Process(Name),
}

/// The cause for a thread of the VM of process `vm`, and who it is; `None` for a sleep.
pub(crate) fn cause_of(
    because: Because,
    vm: u32,
    who: impl FnOnce(u32) -> Who,
) -> Option<(WaitCause, Option<Name>)> {
    let thread = match because {
        Because::Behind(thread) => thread,
        Because::Idle => return Some((WaitCause::ProcessorIdle, None)),
        Because::Unseen => return Some((WaitCause::Unknown, None)),
        Because::Off(Off::Asleep) => return None,
        Because::Off(Off::Stopped) => return Some((WaitCause::Stopped, None)),
        Because::Off(Off::Frozen) => return Some((WaitCause::Frozen, None)),
        Because::Off(Off::Parked) => return Some((WaitCause::BudgetUsedBySelf, None)),
        Because::Off(Off::Blocked) => return Some((WaitCause::Blocked, None)),
    };
    Some(match who(thread) {
        Who::Vcpu(of, name) if of == vm => (WaitCause::PreemptedBySibling, Some(name)),
        Who::Helper(of, name) if of == vm => (WaitCause::HelperThread, Some(name)),
        Who::Vcpu(_, name) | Who::Helper(_, name) => (WaitCause::PreemptedByUnit, Some(name)),
        Who::Kernel(name) => (WaitCause::KernelThread, Some(name)),
        Who::Process(name) => (WaitCause::OtherThread, Some(name)),
    })
}

#[cfg(test)]
mod tests {
    use punctual_model::results::Cause;

    use super::*;

    #[test]
    fn causes_are_called_as_in_json_and_as_blame_calls_them() {
        for cause in WaitCause::ALL {
            assert_eq!(serde_json::to_string(&cause).expect("a name"), format!("\"{}\"", cause.name()));
        }
        let of_blame: Vec<&str> = Cause::ALL.map(Cause::name).to_vec();
        let own: Vec<&str> =
            WaitCause::ALL.map(WaitCause::name).into_iter().filter(|name| !of_blame.contains(name)).collect();
        let expected = [
            "preempted-by-sibling",
            "kernel-thread",
            "interrupt",
            "throttled",
            "frozen",
            "stopped",
            "blocked",
        ];
        assert_eq!(own, expected, "blame has no such cause");
    }

    #[test]
    fn who_had_the_processor_is_a_cause_from_the_view_of_the_vm() {
        let name: Name = "x".into();
        let cause = |who: Who| cause_of(Because::Behind(9), 1, |_| who).map(|(cause, _)| cause);
        assert_eq!(cause(Who::Vcpu(1, name.clone())), Some(WaitCause::PreemptedBySibling));
        assert_eq!(cause(Who::Vcpu(2, name.clone())), Some(WaitCause::PreemptedByUnit));
        assert_eq!(cause(Who::Helper(1, name.clone())), Some(WaitCause::HelperThread));
        assert_eq!(cause(Who::Helper(2, name.clone())), Some(WaitCause::PreemptedByUnit));
        assert_eq!(cause(Who::Kernel(name.clone())), Some(WaitCause::KernelThread));
        assert_eq!(cause(Who::Process(name)), Some(WaitCause::OtherThread));
        assert_eq!(cause_of(Because::Off(Off::Asleep), 1, |_| unreachable!()), None);
    }
}
