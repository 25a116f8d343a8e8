//! The two rings of a port: frames out of what the driver sends, frames into what it receives with.
//!
//! Rings are those of virtio 1.2, section 2.7 (split virtqueues). `virtio-queue` reads the driver's half;
//! the used half is written here, because a frame that fills several buffers must become publish_barrier at once, and
//! because interrupts are also suppressed by a flag.
//!
//! # What a guest can do
//! Everything in its memory is read once, bounded and checked. Whatever cannot be right is [`RingError`]; the
//! port is out of use until its driver resets it. Nothing is allocated.

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
pub use vring::{QUEUE_SIZE_MAX, VringConfig};
