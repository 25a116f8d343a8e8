//! How much a host file may describe.

use punctual_sched::Duration;

/// Processors of a machine, and vCPUs of one domain, at most. A partitioned policy keeps a table of units per
/// processor: with [`UNITS_MAX`] this bounds its memory to about 300 MiB.
pub(crate) const PROCESSORS_MAX: u64 = 1024;
/// vCPUs of all domains together, and tasks of all parents together, at most.
pub const UNITS_MAX: usize = 65_536;
/// Tasks that one `generate` table makes, at most (RandFixedSum's table grows with the square).
pub(crate) const GENERATED_MAX: u64 = 1000;
/// Copies of a task or flow at most.
pub(crate) const COPIES_MAX: u64 = 1024;
/// Domains inside domains, at most.
pub(crate) const NESTING_MAX: usize = 16;
/// Shortest period of a task or a unit: shorter ones would flood any machine with events.
pub const PERIOD_MIN: Duration = Duration::from_us(1);
/// Resources of a domain, and critical sections of a task, at most.
pub(crate) const LOCKS_MAX: usize = 64;
/// Networks, and hosts outside of one network, at most.
pub(crate) const NETWORKS_MAX: usize = 64;
/// Characters of the name of a pool, domain, task, network, flow or chain at most.
pub(crate) const NAME_MAX: usize = 64;
/// Flows and chains together, at most.
pub(crate) const FLOWS_MAX: usize = 65_536;
/// Steps of a chain at most.
pub(crate) const STEPS_MAX: usize = 64;
/// Least cost of sending and receiving in a guest. A packet that goes round between guests takes this long at
/// least each time; shorter costs would flood any machine with events.
pub(crate) const GUEST_COST_MIN: Duration = Duration::from_ns(100);
/// Greatest id of a process or thread: below `PID_MAX_LIMIT` (Linux, include/linux/threads.h).
pub(crate) const PID_MAX: u64 = (4 << 20) - 1;
/// Kinds of servers of a host's network stack at most.
pub(crate) const STACK_SERVERS_MAX: usize = 256;
/// Servers of a host's network stack with their counts, together, at most.
pub(crate) const STACK_COUNT_MAX: u64 = 1024;
