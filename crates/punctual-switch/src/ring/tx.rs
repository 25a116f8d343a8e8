//! The ring of what a driver sends.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use virtio_queue::QueueT;
use vm_memory::{VolatileMemory as _, VolatileSlice};

use super::avail::Next;
use super::chain::Chain;
use super::copy::{read, whole};
use super::vring::{Ring, Setup};
use crate::error::Broken;
use crate::frame::{self, FIRST_BYTES, FRAME_BYTES_MAX, FirstBytes, HEADER_BYTES};

/// The ring of what a driver sends.
#[derive(Debug)]
pub struct SendRing {
    pub(super) ring: Ring,
    pub(super) header_bytes: usize,
    pub(crate) kick: Arc<OwnedFd>,
    pub(crate) error: Option<Arc<OwnedFd>>,
}

/// The beginning of a frame that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Nothing is available.
    Nothing,
    /// A frame, without its virtio-net header.
    Frame {
        /// Bytes of the frame.
        bytes: u32,
    },
    /// Something that is no frame: too short, too long, in too many pieces.
    Unfit,
}

impl SendRing {
    /// A ring at its place.
    ///
    /// # Errors
    /// When the place is impossible.
    pub fn new(setup: &Setup) -> Result<SendRing, Broken> {
        Ok(SendRing {
            ring: Ring::new(setup)?,
            header_bytes: frame::header_bytes(setup.features),
            kick: Arc::clone(&setup.kick),
            error: setup.error.clone(),
        })
    }

    /// Entries.
    pub fn entries(&self) -> u16 {
        self.ring.queue.size()
    }

    /// Takes the next frame that is available; `chain` says where it is.
    ///
    /// # Errors
    /// When the ring is broken.
    #[inline(always)]
    pub fn take(&mut self, chain: &mut Chain) -> Result<Taken, Broken> {
        let is_whole = match self.ring.take_one(false)? {
            Next::Nothing => return Ok(Taken::Nothing),
            Next::One { head, piece } => {
                (chain.head, chain.bytes, chain.count, chain.one) = (head, piece.bytes, 1, piece);
                true
            }
            Next::Long => {
                let found = self.ring.take_long(false, &mut chain.several[..])?;
                (chain.head, chain.bytes, chain.count) = (found.head, found.bytes, found.count as u8);
                chain.one = chain.several[0];
                !found.more
            }
        };
        let bytes = chain.bytes;
        let shortest = (self.header_bytes + frame::ETHERNET_BYTES) as u32;
        if !is_whole || bytes < shortest || bytes > FRAME_BYTES_MAX + HEADER_BYTES as u32 {
            return Ok(Taken::Unfit);
        }
        if self.header_bytes == HEADER_BYTES
            && let Some(front) = whole(&self.ring.memory, chain.one, 0, FIRST_BYTES)?
        {
            chain.first = read_first(&front)?;
        } else {
            chain.first = self.read_first(chain)?;
        }
        Ok(Taken::Frame { bytes: bytes - self.header_bytes as u32 })
    }

    /// Reads header, addresses and type of a frame, however they lie.
    #[cold]
    fn read_first(&self, chain: &Chain) -> Result<FirstBytes, Broken> {
        let mut first = [0; FIRST_BYTES];
        let missing = HEADER_BYTES - self.header_bytes;
        read(&self.ring.memory, chain.pieces(), 0, &mut first[missing..])?;
        // The older header has no count of buffers.
        first[..HEADER_BYTES].rotate_left(missing);
        Ok(first.into())
    }

    /// The VLAN tag of a frame that was taken, whose type says that it has one and which is long enough.
    ///
    /// # Errors
    /// When the ring is broken.
    pub fn tag(&self, chain: &Chain) -> Result<u16, Broken> {
        let skip = self.header_bytes + frame::ETHERNET_BYTES;
        let mut tag = [0; 2];
        read(&self.ring.memory, chain.pieces(), skip, &mut tag)?;
        Ok(u16::from_be_bytes(tag))
    }

    /// Gives the buffers of a frame back to the driver, which sees them after [`SendRing::show`] or
    /// [`SendRing::tell`].
    ///
    /// # Errors
    /// When the ring is broken.
    #[inline]
    pub fn give_back(&mut self, chain: &Chain) -> Result<(), Broken> {
        self.ring.write_used(0, chain.head, 0)?;
        self.ring.used += 1;
        Ok(())
    }

    /// Shows the driver what it got back.
    ///
    /// # Errors
    /// When the ring is broken.
    #[inline]
    pub fn show(&mut self) -> Result<(), Broken> {
        self.ring.show_used()
    }

    /// Tells the driver of what it was shown if it wants to hear. [`visible`] stands between.
    ///
    /// # Errors
    /// When the ring is broken.
    #[inline]
    pub(crate) fn call(&mut self) -> Result<(), Broken> {
        self.ring.call()
    }

    /// Shows the driver what it got back, and tells it if it wants to hear.
    ///
    /// # Errors
    /// When the ring is broken.
    #[inline]
    pub fn tell(&mut self) -> Result<(), Broken> {
        self.ring.tell()
    }

    /// Frames beyond those that were taken.
    ///
    /// # Errors
    /// When the ring is broken.
    pub fn waiting(&mut self) -> Result<u16, Broken> {
        self.ring.look()
    }

    /// Is there a frame beyond those that were taken, or something wrong, which taking it finds?
    #[inline]
    pub fn has_more(&self) -> bool {
        self.ring.has_more()
    }

    /// The driver hears at another place from now on, and is told there once.
    pub(crate) fn set_call(&mut self, call: Option<Arc<OwnedFd>>) {
        self.ring.set_call(call);
    }

    /// Asks the driver to ring from now on. Is something available already?
    ///
    /// # Errors
    /// When the ring is broken.
    pub fn listen(&mut self) -> Result<bool, Broken> {
        Ok(self.ring.queue.enable_notification(&self.ring.memory.guest)?)
    }

    /// Tells the driver that it need not ring.
    ///
    /// # Errors
    /// When the ring is broken.
    pub fn ignore(&mut self) -> Result<(), Broken> {
        Ok(self.ring.queue.disable_notification(&self.ring.memory.guest)?)
    }

    /// Where the ring goes on when it is stopped now: what was not given back is taken again then.
    pub fn base(&self) -> u16 {
        self.ring.used.0
    }
}

/// Reads header, addresses and type of a frame where they lie together.
#[inline]
fn read_first(first: &VolatileSlice<'_>) -> Result<FirstBytes, Broken> {
    let fits = |_| Broken::Address;
    let word = |at| first.get_ref::<u64>(at).map(|word| u64::from_le(word.load())).map_err(fits);
    let last = u16::from_le(first.get_ref::<u16>(24).map_err(fits)?.load());
    Ok(FirstBytes { words: [word(0)?, word(8)?, word(16)?], last })
}
