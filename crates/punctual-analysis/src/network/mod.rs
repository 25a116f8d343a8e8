//! Networks: how late packets come, what they make kernels do, and when tasks are released by them.
//!
//! Everything depends on everything: packets delay each other and the tasks whose ends send more packets. The
//! method is that of Tindell & Clark, *Holistic Schedulability Analysis for Distributed Hard Real-Time
//! Systems*, 1994: each flow is a period with a jitter that grows on its way; starting from none, the tests
//! give delays, these give greater jitters, and so on until nothing changes. What does not settle has no
//! bound. [`crate::analyse`] repeats the rounds; this module has the parts of one round:
//!
//! - [`Routes`]: what goes from where to where, and what causes it. It never changes.
//! - [`State`]: when packets are where, as far as that is known after a round.
//! - [`load`]: what they make kernels and tasks do, which the tests of pools then take into account.
//! - [`advance`]: the next state, from what these tests found.
//! - [`bounds`]: the answers for flows and chains, from the last state.
//! - [`Way`]: which domains and tasks a packet or job depends on.
//!
//! On its way a packet waits for the kernel of the sending guest, for the driver domain's
//! ([`crate::packet_path`]), for the receiver's, each as long as the kernel's longest busy period in the time
//! that its vCPU surely gets. Kernels work ahead of all tasks of their vCPU, so tasks see them as work more
//! urgent than all.
//!
//! A bound holds when nothing is lost on the way: every queue must hold all that comes while one packet
//! passes. What has no bound itself is still limited by the kernel that sends it, one packet for each
//! `guest_send`.

mod advance;
mod bounds;
mod costs;
mod curve;
mod forwarding;
mod load;
mod queues;
mod round;
mod routes;
mod state;
mod waits;
mod way;

pub(crate) use advance::advance;
pub(crate) use bounds::{of_chains, of_flows};
pub(crate) use load::load;
pub(crate) use round::Round;
pub(crate) use routes::Routes;
pub(crate) use state::State;
pub(crate) use way::Way;
