//! What is wrong with a ring.

/// What is wrong with a ring. Its port is out of use until its driver resets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// Size or places of the ring.
    #[error("a ring with an impossible size or place")]
    BadLayout,
    /// More is available than the ring has entries.
    #[error("more is available than the ring has entries")]
    AvailIndex,
    /// A chain that does not end, leaves its table, or has descriptors of the wrong direction.
    #[error("a chain of descriptors that does not end, leaves its table or has the wrong direction")]
    BadChain,
    /// An address outside of the VM's memory.
    #[error("an address outside of the VM's memory")]
    OutOfBounds,
    /// The driver rang, and nothing is in the ring that the switch sees.
    #[error(
        "the VM's memory is not shared: give QEMU a memory backend with share=on \
         (-object memory-backend-memfd,id=mem,size=SIZE,share=on -machine memory-backend=mem)"
    )]
    NotShared,
}

impl From<virtio_queue::Error> for RingError {
    fn from(error: virtio_queue::Error) -> Self {
        match error {
            virtio_queue::Error::InvalidAvailRingIndex => RingError::AvailIndex,
            _ => RingError::OutOfBounds,
        }
    }
}

/// Whose ring is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliverError {
    /// The sender's.
    Sender(RingError),
    /// The receiver's.
    Receiver(RingError),
}
