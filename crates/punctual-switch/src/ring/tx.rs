//! The ring of what a driver sends.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use virtio_queue::QueueT;
use vm_memory::{VolatileMemory as _, VolatileSlice};

use super::avail::NextChain;
use super::chain::Chain;
use super::copy::{contiguous, read};
use super::vring::{Vring, VringConfig};
use crate::error::RingError;
use crate::frame::{self, FRAME_BYTES_MAX, FRAME_HEAD_BYTES, FrameHead, HEADER_BYTES};

/// The ring of what a driver sends.
#[derive(Debug)]
pub struct TxRing {
    pub(super) ring: Vring,
    pub(super) header_bytes: usize,
    pub(crate) kick: Arc<OwnedFd>,
    pub(crate) err: Option<Arc<OwnedFd>>,
}

/// The beginning of a frame that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Popped {
    /// Nothing is available.
    Empty,
    /// A frame, without its virtio-net header.
    Frame {
        /// Bytes of the frame.
        bytes: u32,
    },
    /// Something that is no frame: too short, too long, in too many elements.
    Malformed,
}

impl TxRing {
    /// A ring at its place.
    ///
    /// # Errors
    /// When the place is impossible.
    pub fn new(config: &VringConfig) -> Result<TxRing, RingError> {
        Ok(TxRing {
            ring: Vring::new(config)?,
            header_bytes: frame::header_bytes(config.features),
            kick: Arc::clone(&config.kick),
            err: config.err.clone(),
        })
    }

    /// Entries.
    pub fn size(&self) -> u16 {
        self.ring.queue.size()
    }

    /// Takes the next frame that is available; `chain` says where it is.
    ///
    /// # Errors
    /// When the ring is broken.
    #[inline(always)]
    pub fn pop(&mut self, chain: &mut Chain) -> Result<Popped, RingError> {
        let is_whole = match self.ring.pop_single(false)? {
            NextChain::Empty => return Ok(Popped::Empty),
            NextChain::Single { head, element } => {
                (chain.head, chain.bytes, chain.count, chain.single) = (head, element.bytes, 1, element);
                true
            }
            NextChain::Multi => {
                let found = self.ring.pop_multi(false, &mut chain.multi[..])?;
                (chain.head, chain.bytes, chain.count) = (found.head, found.bytes, found.count as u8);
                chain.single = chain.multi[0];
                !found.more
            }
        };
        let bytes = chain.bytes;
        let shortest = (self.header_bytes + frame::ETHERNET_BYTES) as u32;
        if !is_whole || bytes < shortest || bytes > FRAME_BYTES_MAX + HEADER_BYTES as u32 {
            return Ok(Popped::Malformed);
        }
        if self.header_bytes == HEADER_BYTES
            && let Some(rewrite) = contiguous(&self.ring.memory, chain.single, 0, FRAME_HEAD_BYTES)?
        {
            chain.frame_head = read_head(&rewrite)?;
        } else {
            chain.frame_head = self.read_head(chain)?;
        }
        Ok(Popped::Frame { bytes: bytes - self.header_bytes as u32 })
    }

    /// Reads header, addresses and type of a frame, however they lie.
    #[cold]
    fn read_head(&self, chain: &Chain) -> Result<FrameHead, RingError> {
        let mut first = [0; FRAME_HEAD_BYTES];
        let missing = HEADER_BYTES - self.header_bytes;
        read(&self.ring.memory, chain.elements(), 0, &mut first[missing..])?;
        // The older header has no count of buffers.
        first[..HEADER_BYTES].rotate_left(missing);
        Ok(first.into())
    }

    /// The VLAN tag of a frame that was taken, whose type says that it has one and which is long enough.
    ///
    /// # Errors
    /// When the ring is broken.
    pub fn vlan_tag(&self, chain: &Chain) -> Result<u16, RingError> {
        let skip = self.header_bytes + frame::ETHERNET_BYTES;
        let mut tag = [0; 2];
        read(&self.ring.memory, chain.elements(), skip, &mut tag)?;
        Ok(u16::from_be_bytes(tag))
    }

    /// Gives the buffers of a frame back to the driver, which sees them after [`TxRing::publish`] or
    /// [`TxRing::publish_and_signal`].
    ///
    /// # Errors
    /// When the ring is broken.
    #[inline]
    pub fn push_used(&mut self, chain: &Chain) -> Result<(), RingError> {
        self.ring.write_used_elem(0, chain.head, 0)?;
        self.ring.used_idx += 1;
        Ok(())
    }

    /// Shows the driver what it got back.
    ///
    /// # Errors
    /// When the ring is broken.
    #[inline]
    pub fn publish(&mut self) -> Result<(), RingError> {
        self.ring.publish_used()
    }

    /// Tells the driver of what it was shown if it wants to hear. [`publish_barrier`] stands between.
    ///
    /// # Errors
    /// When the ring is broken.
    #[inline]
    pub(crate) fn signal_driver(&mut self) -> Result<(), RingError> {
        self.ring.signal_driver()
    }

    /// Shows the driver what it got back, and tells it if it wants to hear.
    ///
    /// # Errors
    /// When the ring is broken.
    #[inline]
    pub fn publish_and_signal(&mut self) -> Result<(), RingError> {
        self.ring.publish_and_signal()
    }

    /// Frames beyond those that were taken.
    ///
    /// # Errors
    /// When the ring is broken.
    pub fn avail_len(&mut self) -> Result<u16, RingError> {
        self.ring.refresh_avail()
    }

    /// Is there a frame beyond those that were taken, or something wrong, which taking it finds?
    #[inline]
    pub fn has_pending(&self) -> bool {
        self.ring.has_pending()
    }

    /// The driver hears at another place from now on, and is told there once.
    pub(crate) fn set_call(&mut self, call: Option<Arc<OwnedFd>>) {
        self.ring.set_call(call);
    }

    /// Asks the driver to ring from now on. Is something available already?
    ///
    /// # Errors
    /// When the ring is broken.
    pub fn enable_kick(&mut self) -> Result<bool, RingError> {
        Ok(self.ring.queue.enable_notification(&self.ring.memory.guest)?)
    }

    /// Tells the driver that it need not ring.
    ///
    /// # Errors
    /// When the ring is broken.
    pub fn disable_kick(&mut self) -> Result<(), RingError> {
        Ok(self.ring.queue.disable_notification(&self.ring.memory.guest)?)
    }

    /// Where the ring goes on when it is stopped now: what was not given back is taken again then.
    pub fn vring_base(&self) -> u16 {
        self.ring.used_idx.0
    }
}

/// Reads header, addresses and type of a frame where they lie together.
#[inline]
fn read_head(first: &VolatileSlice<'_>) -> Result<FrameHead, RingError> {
    let fits = |_| RingError::OutOfBounds;
    let word = |at| first.get_ref::<u64>(at).map(|word| u64::from_le(word.load())).map_err(fits);
    let last = u16::from_le(first.get_ref::<u16>(24).map_err(fits)?.load());
    Ok(FrameHead { words: [word(0)?, word(8)?, word(16)?], last })
}
