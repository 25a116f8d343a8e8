//! What can be wrong with a ring.

/// A ring that violates the rules of split virtqueues. Its port is out of service until the driver resets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    #[error("the ring has an invalid size, alignment or address")]
    BadLayout,
    #[error("the avail index is further ahead than the queue size")]
    AvailIndex,
    #[error("a descriptor chain loops, leaves its table, or has descriptors of the wrong direction")]
    BadChain,
    #[error("an address is outside of the VM's memory")]
    OutOfBounds,
    #[error(
        "pages of the VM's memory are missing: its file was shortened, or its file system is full; give \
         /dev/shm more room, or use a memfd"
    )]
    MissingPages,
    /// A frame of any length would take too long to deliver.
    #[error("its receive buffers are too small, or in too many pieces")]
    SmallBuffers,
    /// The driver kicks, but the switch sees nothing in the ring.
    #[error(
        "the VM's memory is not shared: give QEMU a memory backend with share=on \
         (-object memory-backend-memfd,id=mem,size=SIZE,share=on -machine memory-backend=mem)"
    )]
    NotShared,
}

impl RingError {
    const ALL: [RingError; 7] = [
        RingError::BadLayout,
        RingError::AvailIndex,
        RingError::BadChain,
        RingError::OutOfBounds,
        RingError::MissingPages,
        RingError::SmallBuffers,
        RingError::NotShared,
    ];

    /// A number that is not 0.
    pub(crate) fn code(self) -> u8 {
        self as u8 + 1
    }

    pub(crate) fn from_code(code: u8) -> Option<RingError> {
        RingError::ALL.into_iter().find(|error| error.code() == code)
    }
}

impl From<virtio_queue::Error> for RingError {
    fn from(error: virtio_queue::Error) -> Self {
        match error {
            virtio_queue::Error::InvalidAvailRingIndex => RingError::AvailIndex,
            _ => RingError::OutOfBounds,
        }
    }
}

/// Which of the two rings of a delivery is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliverError {
    Sender(RingError),
    Receiver(RingError),
}
