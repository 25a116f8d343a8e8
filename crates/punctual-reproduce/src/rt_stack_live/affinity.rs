//! The processors that RT VMs do not have, for everything else.

use std::path::Path;
use std::process::Command;

use punctual_linux::os::sched::{self, Attributes};
use punctual_linux::preflight;

/// Puts a thread under `SCHED_FIFO`, on the processors that RT VMs do not have: the kernel would move it to
/// the vCPU's while somebody more urgent, such as who asks, has the other one.
pub(super) fn keep_from_vcpus(thread: i32, priority: u32) {
    let online = preflight::online();
    if let Some((_, others)) = online.split_last()
        && !others.is_empty()
    {
        // A thread of QEMU's pool may have ended.
        let _ = sched::set_affinity(thread, others);
    }
    // Without rights it is in the fair class, and the results show it.
    let _ = sched::set_attributes(thread, &Attributes::fifo(priority));
}

/// A program on the processors that RT VMs do not have, in the fair class, for it may never sleep.
pub(super) fn of_others(program: &Path) -> Command {
    let online = preflight::online();
    let others = online.split_last().map(|(_, others)| others).filter(|others| !others.is_empty());
    let list: Vec<String> = others.unwrap_or(&online).iter().map(usize::to_string).collect();
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &list.join(",")]).arg(program);
    command
}
