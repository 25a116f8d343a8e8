//! The two kinds of hosts that a host file describes.

use punctual_host_stack::HostStack;
use punctual_sched::Duration;

use crate::host::Host;

/// A host of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnyHost {
    /// Processors in pools, under policies, with domains, tasks and networks.
    Pools(Host),
    /// A Linux host with its network stack (`[host_stack]`): its own Linux schedules all processors.
    Stack(HostStack),
}

impl AnyHost {
    /// Its name for titles and results.
    pub fn name(&self) -> &str {
        match self {
            AnyHost::Pools(host) => &host.name,
            AnyHost::Stack(stack) => &stack.name,
        }
    }

    /// The seed of everything random.
    pub fn seed(&self) -> u64 {
        match self {
            AnyHost::Pools(host) => host.seed,
            AnyHost::Stack(stack) => stack.seed,
        }
    }

    /// How long to simulate.
    pub fn duration(&self) -> Duration {
        match self {
            AnyHost::Pools(host) => host.duration,
            AnyHost::Stack(stack) => stack.duration,
        }
    }
}
