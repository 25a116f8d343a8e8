//! The policies by name: what each is, its parameters, and how to build it.
//!
//! The list at the end of `src/lib.rs` is the only place that lists the policies. The host file, the command
//! line, its help and the documentation are generated from what each policy says about itself.

pub use crate::info::*;

impl XenScheduler {
    /// Its name in Xen's configuration (`sched=`, xlcpupool.cfg(5)): that of the policy.
    pub const fn name(self) -> &'static str {
        match self {
            XenScheduler::Rtds => crate::rtds::NAME,
            XenScheduler::Credit => crate::credit::NAME,
        }
    }
}

/// All policies, in the order in which they are shown to users.
pub fn policies() -> &'static [PolicyInfo] {
    crate::POLICIES
}

/// The policy called `name`.
pub fn find(name: &str) -> Option<&'static PolicyInfo> {
    policies().iter().find(|p| p.name == name)
}
