//! The network stack of a Linux host: what such a host is, the rules that its kernel follows, and how long a
//! request takes at most.
//!
//! `docs/host-stack.md` has the rules in prose. Sources: O. F. Garcia Alvarado, *Research on real-time
//! network stacks of commodity hosted virtual machine environments*, University of Tsukuba 2019 (rt-stack),
//! chapters 3 to 5; Linux `net/core/dev.c` and `kernel/softirq.c`.
//!
//! - [`HostStack`]: the host: cards, servers, costs. The host file's parser makes one.
//! - [`Method`]: how a host handles interrupts of network cards.
//! - [`softnet`]: a processor's poll lists (`softnet_data`, `net_rx_action`) and the limits of a softirq.
//! - [`lock`]: the softirq lock with priority inheritance.
//! - [`run_queue`]: which thread a processor runs: `SCHED_FIFO` above the fair class.
//! - [`bounds`]: response times at most; [`inversions`]: the priority inversions of a host.
//!
//! The rules are state machines: events with the time they happened go in, decisions come out. They read no
//! clock and do not allocate once their tables have their size. `punctual-host-stack-sim` drives them.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod bounds;
mod costs;
mod host;
pub mod inversions;
pub mod lock;
mod method;
pub mod run_queue;
pub mod softnet;
mod thread;

pub use costs::{Cache, Lines, StackCosts};
pub use host::{
    Call, CallKind, Card, HostStack, Injection, Load, OtherRequests, Path, Server, SoftirqRest, Who,
};
pub use method::Method;
pub use thread::{Priority, ThreadId};
