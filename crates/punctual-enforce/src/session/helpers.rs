//! How Linux schedules the threads of a VM that are no vCPUs.

use punctual_linux::os::sched::Attributes;
use punctual_model::live::HelperPolicy;

/// The scheduling attributes of a helper thread.
pub fn helper_attributes(policy: HelperPolicy) -> Attributes {
    match policy {
        HelperPolicy::Other { nice } => Attributes { nice: i32::from(nice), ..Attributes::other() },
        HelperPolicy::Fifo { priority } => Attributes::fifo(u32::from(priority)),
    }
}
