//! Split virtqueues (virtio 1.2, section 2.7), the device's side: [`TxRing`] is a port's transmitq, from
//! which the switch takes frames, and [`RxRing`] its receiveq, into which it copies them.
//!
//! `vring.rs` has the common part, `avail.rs` reads the avail ring and descriptor chains, `used.rs` writes
//! the used ring, `copy.rs` copies between two memories. The crate `virtio-queue` walks chains. The used ring
//! is written here, because a frame in several buffers must become visible at once, and because
//! `virtio-queue` does not honour `VIRTQ_AVAIL_F_NO_INTERRUPT`.
//!
//! # Indices
//! Free-running modulo 2^16, as in the specification. In a TX ring `published_idx <= used_idx <= next_avail
//! <= avail_idx`, and between the outer two lie at most as many entries as the ring has. In an RX ring
//! `used_idx == next_avail` between two deliveries. A ring that restarts continues at its used index.
//!
//! # Trust
//! Everything in guest memory is read once, bounded and checked. What violates the rules is a
//! [`RingError`](crate::RingError), and the port is out of service until its driver resets it. Nothing is
//! allocated.

mod avail;
mod chain;
mod copy;
mod rx;
mod tx;
mod used;
mod vring;

pub use chain::Chain;
pub use rx::{Delivery, RxRing};
pub use tx::{Popped, TxRing};
pub(crate) use used::publish_barrier;
pub(crate) use vring::QUEUE_SIZE_MAX;
pub use vring::VringConfig;
