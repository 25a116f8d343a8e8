//! Why the cards of a host file cannot be handled as it says.

use crate::doctor::{Cpus, ReadError};

/// Why the cards of a host file cannot be handled as it says.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine has no such device.
    #[error(
        "card `{}`: this machine has no network device `{}`{}\n  expected `device` to be one of: {}",
        .card.escape_debug(),
        .device.escape_debug(),
        .nearest.as_ref().map(|name| format!(", did you mean `{name}`?")).unwrap_or_default(),
        .devices.join(", ")
    )]
    NoDevice {
        /// The card.
        card: String,
        /// What it names.
        device: String,
        /// What was probably meant.
        nearest: Option<String>,
        /// What there is.
        devices: Vec<String>,
    },
    /// The machine has no such processor.
    #[error(
        "card `{}`: processor {processor} is not online\n  expected some of: {online}",
        .card.escape_debug()
    )]
    NoProcessor {
        /// The card.
        card: String,
        /// The processor.
        processor: usize,
        /// What there is.
        online: Cpus,
    },
    /// The device has fewer queues than it is to interrupt processors.
    #[error(
        "card `{}`: {device} has {queues} receive queues for processors {processors}\n  expected one for \
         each: `processors = [{enough}]`, or more queues (ethtool -L)",
        .card.escape_debug()
    )]
    NoQueue {
        /// The card.
        card: String,
        /// Its device.
        device: String,
        /// How many receive queues it has.
        queues: usize,
        /// The processors that it is to interrupt.
        processors: Cpus,
        /// As many of them as it has queues.
        enough: Cpus,
    },
    /// The kernel has no second softirq lock.
    #[error(
        "method `partitioned` needs a kernel with two softirq locks, and this one has no {path}\n  expected \
         Linux 6.12 with the patch that kernel/README.md describes, or a method of a stock kernel: vanilla, \
         threaded, exclusive, threaded-napi or threaded-napi-unlocked"
    )]
    NoPartition {
        /// The switch.
        path: &'static str,
    },
    /// Interrupts are handled in threads, and the method says otherwise.
    #[error(
        "{device}: this kernel handles interrupts in threads, method `{method}` has none\n  expected \
         `threaded`, `exclusive` or `threaded-napi`"
    )]
    HasThreads {
        /// The device.
        device: String,
        /// The method.
        method: &'static str,
    },
    /// Interrupts are not handled in threads, and the method says they are.
    #[error(
        "{device}: this kernel handles its interrupts without threads, method `{method}` needs them\n  \
         expected PREEMPT_RT, or `threadirqs` on the kernel's command line; or `threaded-napi`"
    )]
    NoThreads {
        /// The device.
        device: String,
        /// The method.
        method: &'static str,
    },
    /// The kernel is too old.
    #[error("{path} is not there: threaded NAPI needs Linux 5.12")]
    NoThreadedNapi {
        /// The switch.
        path: String,
    },
    /// A file of the machine cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}
