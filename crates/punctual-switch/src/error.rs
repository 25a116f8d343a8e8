//! What is wrong with a ring.

/// What is wrong with a ring. Its port is out of use until its driver resets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Size or places of the ring.
    #[error("a ring with an impossible size or place")]
    Place,
    /// More is available than the ring has entries.
    #[error("more is available than the ring has entries")]
    Index,
    /// A chain that does not end, leaves its table, or has descriptors of the wrong direction.
    #[error("a chain of descriptors that does not end, leaves its table or has the wrong direction")]
    Chain,
    /// An address outside of the VM's memory.
    #[error("an address outside of the VM's memory")]
    Address,
    /// The driver rang, and nothing is in the ring that the switch sees.
    #[error(
        "the VM's memory is not shared: give QEMU a memory backend with share=on \
         (-object memory-backend-memfd,id=mem,size=SIZE,share=on -machine memory-backend=mem)"
    )]
    NotShared,
}

impl From<virtio_queue::Error> for Broken {
    fn from(error: virtio_queue::Error) -> Self {
        match error {
            virtio_queue::Error::InvalidAvailRingIndex => Broken::Index,
            _ => Broken::Address,
        }
    }
}

/// Whose ring is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Culprit {
    /// The sender's.
    Sender(Broken),
    /// The receiver's.
    Receiver(Broken),
}
