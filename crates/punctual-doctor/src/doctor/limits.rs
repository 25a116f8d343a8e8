//! Limits of this process that its VMs inherit.

use super::check::Check;
use super::finding::Outcome;
use super::machine::Machine;
use super::parse::Limit;
use super::root::ReadError;

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "rt-time",
        title: "Time limit of real-time threads",
        why: "A real-time thread that runs for longer than RLIMIT_RTTIME without blocking gets SIGXCPU, then \
              SIGKILL. A busy vCPU is such a thread.",
        source: "getrlimit(2), RLIMIT_RTTIME",
        judged: "`Max realtime timeout` of /proc/self/limits: critical unless unlimited, because VMs that \
                 are started inherit it.",
        examine: rt_time,
    },
    Check {
        id: "memory-lock",
        title: "Permission to lock memory",
        why: "The kernel can take away memory that is not locked. The page fault that brings it back takes \
              as long as the disk.",
        source: "mlock(2); capabilities(7)",
        judged: "CAP_IPC_LOCK in CapEff, or RLIMIT_MEMLOCK unlimited: ok. Otherwise a note with the limit.",
        examine: memory_lock,
    },
];

const CAP_IPC_LOCK: u32 = 14;

fn rt_time(machine: &Machine) -> Result<Outcome, ReadError> {
    let (evidence, limit) = machine.limit("Max realtime timeout")?;
    let outcome = match limit {
        Limit::Unlimited => Outcome::ok("unlimited"),
        Limit::AtMost(us) => {
            Outcome::critical(format!("a real-time thread is killed after {us} us without blocking"))
                .fix("ulimit -R unlimited")
        }
    };
    Ok(outcome.readings([evidence]))
}

fn memory_lock(machine: &Machine) -> Result<Outcome, ReadError> {
    let (caps, lock) = machine.capability(CAP_IPC_LOCK)?;
    let (limits, bytes) = machine.limit("Max locked memory")?;
    let outcome = match bytes {
        _ if lock => Outcome::ok("this process has CAP_IPC_LOCK"),
        Limit::Unlimited => Outcome::ok("unlimited"),
        Limit::AtMost(bytes) => {
            Outcome::note(format!("at most {} KiB can be locked", bytes / 1024)).fix("ulimit -l unlimited")
        }
    };
    Ok(outcome.readings([caps, limits]))
}
