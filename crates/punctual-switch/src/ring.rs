//! The two rings of a port: frames out of what the driver sends, frames into what it receives with.
//!
//! Rings are those of virtio 1.2, section 2.7 (split virtqueues). `virtio-queue` reads the driver's half;
//! the used half is written here, because a frame that fills several buffers must become visible at once, and
//! because interrupts are also suppressed by a flag.
//!
//! # What a guest can do
//! Everything in its memory is read once, bounded and checked. Whatever cannot be right is [`Broken`]; the
//! port is out of use until its driver resets it. Nothing is allocated.

use std::num::Wrapping;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use virtio_queue::desc::split::Descriptor;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Address as _, GuestAddress, VolatileMemory as _, VolatileSlice};

use crate::driver::{NEXT, WRITE};
use crate::features;
use crate::frame::{self, FIRST_BYTES, FRAME_BYTES_MAX, FirstBytes, HEADER_BYTES};
use crate::memory::{Memory, Part};
use crate::vlan::Front;

/// Entries of a ring at most.
pub const ENTRIES_MAX: u16 = 1024;

/// Descriptors of a frame that is sent, at most: those of a segment in Linux (`MAX_SKB_FRAGS`), and some.
pub const PIECES_MAX: usize = 24;

/// Buffers that a frame fills at most: 64 KiB in buffers of 1,536 bytes, and some.
const BUFFERS_MAX: usize = 64;

/// Descriptors of these buffers at most.
const BUFFER_PIECES_MAX: usize = 128;

/// The descriptor is a table of others (`VIRTQ_DESC_F_INDIRECT`).
const INDIRECT: u16 = 4;

/// The driver wants no interrupts (`VIRTQ_AVAIL_F_NO_INTERRUPT`).
const NO_INTERRUPT: u16 = 1;

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

/// Where a ring is, and how one tells of it.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The VM's memory.
    pub memory: Arc<Memory>,
    /// Entries.
    pub entries: u16,
    /// The guest's address of the descriptor table.
    pub descriptors: u64,
    /// The guest's address of the available ring.
    pub available: u64,
    /// The guest's address of the used ring.
    pub used: u64,
    /// The features that the driver chose.
    pub features: u64,
    /// Are these features assumed? Then the driver may have chosen fewer.
    pub assumed: bool,
    /// The driver rings here.
    pub kick: Arc<OwnedFd>,
    /// The driver hears here.
    pub call: Option<Arc<OwnedFd>>,
    /// The monitor hears of a broken ring here.
    pub error: Option<Arc<OwnedFd>>,
}

/// A part of a frame in a guest's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    address: u64,
    bytes: u32,
}

/// What both directions have in common.
#[derive(Debug)]
struct Ring {
    memory: Arc<Memory>,
    queue: Queue,
    descriptors: Part,
    available: Part,
    used_ring: Part,
    event_idx: bool,
    /// The available ring's index as it was read last.
    seen: u16,
    /// Index of the next used entry, and as the driver sees it.
    used: Wrapping<u16>,
    shown: Wrapping<u16>,
    /// The index when the driver was last told, or spared.
    told: Wrapping<u16>,
    call: Option<Arc<OwnedFd>>,
}

/// A chain that was taken: its head, bytes and pieces, and whether there are more pieces than fit.
struct Found {
    head: u16,
    bytes: u32,
    count: usize,
    more: bool,
}

impl Found {
    /// A single piece, put into `pieces`.
    fn one(head: u16, piece: Piece, pieces: &mut [Piece]) -> Found {
        let Some(first) = pieces.first_mut() else {
            return Found { head, bytes: piece.bytes, count: 0, more: true };
        };
        *first = piece;
        Found { head, bytes: piece.bytes, count: 1, more: false }
    }
}

/// What comes next in a ring.
enum Next {
    /// Nothing is available.
    Nothing,
    /// A chain of one piece, which was taken.
    One { head: u16, piece: Piece },
    /// Another chain, which was not.
    Long,
}

impl Ring {
    /// It goes on where its used index is, for chains are given back in order. What the monitor says of it
    /// may be wrong: Cloud Hypervisor, connected again, tells the available index, by which all buffers that
    /// its driver offered would be lost. DPDK does likewise (`translate_ring_addresses` in its
    /// lib/vhost/vhost_user.c).
    fn new(setup: &Setup) -> Result<Ring, Broken> {
        let mut queue = Queue::new(ENTRIES_MAX).map_err(|_| Broken::Place)?;
        queue.try_set_size(setup.entries).map_err(|_| Broken::Place)?;
        let place = |address| GuestAddress(address);
        queue.try_set_desc_table_address(place(setup.descriptors)).map_err(|_| Broken::Place)?;
        queue.try_set_avail_ring_address(place(setup.available)).map_err(|_| Broken::Place)?;
        queue.try_set_used_ring_address(place(setup.used)).map_err(|_| Broken::Place)?;
        queue.set_event_idx(setup.features & features::EVENT_IDX != 0);
        queue.set_ready(true);
        if !queue.is_valid(&setup.memory.guest) {
            return Err(Broken::Place);
        }
        let used = queue.used_idx(&setup.memory.guest, Ordering::Acquire)?;
        queue.set_next_avail(used.0);
        queue.set_next_used(used.0);
        let entries = usize::from(setup.entries);
        Ok(Ring {
            memory: Arc::clone(&setup.memory),
            descriptors: setup.memory.part(setup.descriptors, 16 * entries)?,
            available: setup.memory.part(setup.available, 6 + 2 * entries)?,
            used_ring: setup.memory.part(setup.used, 6 + 8 * entries)?,
            // A driver with and one without such events both ring when asked through the used ring, and both
            // say by the flag that they want no interrupts at all.
            event_idx: queue.event_idx_enabled() && !setup.assumed,
            queue,
            seen: used.0,
            used,
            shown: used,
            told: used,
            call: setup.call.clone(),
        })
    }

    /// Where an entry is in a ring of this many.
    #[inline]
    fn at(&self, index: u16) -> usize {
        usize::from(index & (self.queue.size() - 1))
    }

    /// Reads the index of the available ring: how many chains are there?
    #[inline]
    fn look(&mut self) -> Result<u16, Broken> {
        let index = u16::from_le(self.available.index(2)?.load(Ordering::Acquire));
        let count = index.wrapping_sub(self.queue.next_avail());
        if count > self.queue.size() {
            return Err(Broken::Index);
        }
        self.seen = index;
        Ok(count)
    }

    /// Is there a chain beyond those that were taken, or something wrong?
    #[inline]
    fn has_more(&self) -> bool {
        let next = self.queue.next_avail();
        next != self.seen
            || self.available.index(2).is_ok_and(|index| u16::from_le(index.load(Ordering::Acquire)) != next)
    }

    /// Takes the next chain if it is a single descriptor, as almost all are.
    #[inline(always)]
    fn take_one(&mut self, writable: bool) -> Result<Next, Broken> {
        let next = self.queue.next_avail();
        if next == self.seen && self.look()? == 0 {
            return Ok(Next::Nothing);
        }
        let head = u16::from_le(self.available.index(4 + 2 * self.at(next))?.load(Ordering::Relaxed));
        if head >= self.queue.size() {
            return Err(Broken::Chain);
        }
        let (address, rest) = self.descriptors.words(usize::from(head) * 16)?;
        let (bytes, flags) = (rest as u32, (rest >> 32) as u16);
        if flags & (NEXT | INDIRECT) != 0 || bytes == 0 {
            return Ok(Next::Long);
        }
        if (flags & WRITE != 0) != writable {
            return Err(Broken::Chain);
        }
        self.queue.set_next_avail(next.wrapping_add(1));
        Ok(Next::One { head, piece: Piece { address, bytes } })
    }

    /// Takes the next chain, which is not a single descriptor, and puts its pieces into `pieces`.
    #[cold]
    fn take_long(&mut self, writable: bool, pieces: &mut [Piece]) -> Result<Found, Broken> {
        let mut available = self.queue.iter(&self.memory.guest)?;
        // The index went back.
        let descriptors = available.next().ok_or(Broken::Index)?;
        let head = descriptors.head_index();
        if head >= self.queue.size() {
            return Err(Broken::Chain);
        }
        let (bytes, count, more) = read_chain(descriptors, writable, pieces)?;
        Ok(Found { head, bytes, count, more })
    }

    /// Takes the next chain, and puts its pieces into `pieces`.
    fn take(&mut self, writable: bool, pieces: &mut [Piece]) -> Result<Option<Found>, Broken> {
        match self.take_one(writable)? {
            Next::Nothing => Ok(None),
            Next::Long => self.take_long(writable, pieces).map(Some),
            Next::One { head, piece } => Ok(Some(Found::one(head, piece, pieces))),
        }
    }

    /// Writes the used entry that is `after` entries behind the next one; nobody sees it yet.
    #[inline]
    fn write_used(&self, after: u16, head: u16, bytes: u32) -> Result<(), Broken> {
        let at = self.at(self.used.0.wrapping_add(after));
        self.used_ring.set_word(4 + at * 8, u64::from(bytes) << 32 | u64::from(head))
    }

    /// Shows the driver what was used. Its processor has the line that this writes, so it is done once for
    /// several frames.
    #[inline]
    fn show_used(&mut self) -> Result<(), Broken> {
        if self.used != self.shown {
            self.used_ring.index(2)?.store(self.used.0.to_le(), Ordering::Release);
            self.shown = self.used;
        }
        Ok(())
    }

    /// Does the driver want to hear of what was shown since the last time? What was shown is visible by a
    /// fence before.
    #[inline]
    fn wants_call(&mut self) -> Result<bool, Broken> {
        let before = std::mem::replace(&mut self.told, self.shown);
        if self.event_idx {
            let event = self.available.index(4 + 2 * usize::from(self.queue.size()))?;
            let event = Wrapping(u16::from_le(event.load(Ordering::Relaxed)));
            return Ok(self.told - event - Wrapping(1) < self.told - before);
        }
        let flags = self.available.index(0)?.load(Ordering::Relaxed);
        Ok(u16::from_le(flags) & NO_INTERRUPT == 0)
    }

    /// Tells the driver of what was shown, behind a fence, if it wants to hear.
    #[inline]
    fn call(&mut self) -> Result<(), Broken> {
        if self.shown != self.told
            && self.wants_call()?
            && let Some(call) = &self.call
        {
            ring_bell(call);
        }
        Ok(())
    }

    /// From now on the driver hears here. It is told once, whatever it wants: what was shown before may have
    /// been told where nobody listens any more.
    fn set_call(&mut self, call: Option<Arc<OwnedFd>>) {
        self.call = call;
        if let Some(call) = &self.call {
            ring_bell(call);
        }
    }

    /// Shows the driver what was used, and tells it if it wants to hear.
    fn tell(&mut self) -> Result<(), Broken> {
        self.show_used()?;
        if self.shown != self.told {
            visible();
        }
        self.call()
    }
}

/// What was shown is visible before any driver's wish is read.
#[inline]
pub(crate) fn visible() {
    fence(Ordering::SeqCst);
}

/// Adds one to an eventfd. A full one has rung already.
pub(crate) fn ring_bell(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// A frame that a driver sends, where it is. Frames in one piece, as almost all are, need only what stands
/// here, so that those of a whole ring stay in a cache.
#[derive(Clone, Debug)]
pub struct Chain {
    /// Where it is, if it is in one piece.
    one: Piece,
    /// Where it is, if it is in several.
    several: Box<[Piece; PIECES_MAX]>,
    /// Bytes with the virtio-net header.
    bytes: u32,
    /// The head of its descriptors.
    head: u16,
    /// Pieces.
    count: u8,
    pub(crate) first: FirstBytes,
}

impl Default for Chain {
    fn default() -> Self {
        Chain {
            one: Piece::default(),
            several: Box::new([Piece::default(); PIECES_MAX]),
            bytes: 0,
            head: 0,
            count: 0,
            first: FirstBytes::default(),
        }
    }
}

impl Chain {
    /// The frame's addresses and type.
    pub fn start(&self) -> [u8; frame::ETHERNET_BYTES] {
        self.first.start()
    }

    #[inline]
    fn pieces(&self) -> &[Piece] {
        match self.count {
            1 => std::slice::from_ref(&self.one),
            count => &self.several[..usize::from(count)],
        }
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

/// Puts the chain's pieces into `pieces`. Returns bytes and count, and whether there are more than fit.
#[inline]
fn read_chain(
    mut descriptors: impl Iterator<Item = Descriptor>,
    writable: bool,
    pieces: &mut [Piece],
) -> Result<(u32, usize, bool), Broken> {
    let (mut bytes, mut count, mut goes_on) = (0u32, 0, true);
    // One descriptor beyond what fits is looked at, no more: a table may have 65,535.
    for _ in 0..=pieces.len() {
        let Some(descriptor) = descriptors.next() else {
            // A chain ends with a descriptor that says so.
            return if goes_on { Err(Broken::Chain) } else { Ok((bytes, count, false)) };
        };
        if descriptor.is_write_only() != writable {
            return Err(Broken::Chain);
        }
        goes_on = descriptor.has_next();
        if descriptor.len() == 0 {
            continue;
        }
        bytes = bytes.saturating_add(descriptor.len());
        let Some(piece) = pieces.get_mut(count) else {
            return Ok((bytes, count, true));
        };
        *piece = Piece { address: descriptor.addr().raw_value(), bytes: descriptor.len() };
        count += 1;
    }
    Ok((bytes, count, goes_on))
}

/// The ring of what a driver sends.
#[derive(Debug)]
pub struct SendRing {
    ring: Ring,
    header_bytes: usize,
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

/// What became of a frame for a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It is in the driver's buffers, so many of them.
    Done {
        /// Buffers.
        buffers: u16,
    },
    /// There are not enough buffers.
    NoRoom,
    /// The driver did not agree to such a frame.
    Offload,
}

/// Whose ring is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Culprit {
    /// The sender's.
    Sender(Broken),
    /// The receiver's.
    Receiver(Broken),
}

/// The ring of buffers with which a driver receives.
#[derive(Debug)]
pub struct ReceiveRing {
    ring: Ring,
    features: u64,
    header_bytes: usize,
    buffers: [(u16, u32); BUFFERS_MAX],
    pieces: [Piece; BUFFER_PIECES_MAX],
}

impl ReceiveRing {
    /// A ring at its place.
    ///
    /// # Errors
    /// When the place is impossible.
    pub fn new(setup: &Setup) -> Result<ReceiveRing, Broken> {
        let mut ring = Ring::new(setup)?;
        // Nobody waits for buffers: a frame without one is dropped.
        ring.queue.disable_notification(&ring.memory.guest)?;
        Ok(ReceiveRing {
            ring,
            features: setup.features,
            header_bytes: frame::header_bytes(setup.features),
            buffers: [(0, 0); BUFFERS_MAX],
            pieces: [Piece::default(); BUFFER_PIECES_MAX],
        })
    }

    /// Buffers that wait for frames, as the ring says now.
    ///
    /// # Errors
    /// When the ring is broken.
    #[inline]
    pub fn free(&mut self) -> Result<u16, Broken> {
        self.ring.look()
    }

    /// Buffers that wait for frames, and maybe more: the ring is not read for it.
    #[inline]
    pub fn free_at_least(&self) -> u16 {
        self.ring.seen.wrapping_sub(self.ring.queue.next_avail())
    }

    /// Copies a frame from its sender's memory into buffers of this ring, with another front if one is given.
    /// The driver sees it after [`ReceiveRing::tell`].
    ///
    /// # Errors
    /// Whose ring is broken.
    #[inline]
    pub fn deliver(
        &mut self,
        sender: &SendRing,
        chain: &Chain,
        front: Option<&Front>,
    ) -> Result<Delivery, Culprit> {
        let start = self.ring.queue.next_avail();
        let done = self.put(sender, chain, front);
        if matches!(done, Ok(Delivery::NoRoom) | Err(Culprit::Sender(_))) {
            // The buffers that were taken for it are still free.
            self.ring.queue.set_next_avail(start);
        }
        // A ring goes on at its used index, so no buffer is taken and not used.
        debug_assert!(
            self.ring.queue.next_avail() == self.ring.used.0 || matches!(done, Err(Culprit::Receiver(_)))
        );
        done
    }

    /// As [`ReceiveRing::deliver`], but the buffers that are taken stay so if that fails.
    #[inline(always)]
    fn put(&mut self, sender: &SendRing, chain: &Chain, front: Option<&Front>) -> Result<Delivery, Culprit> {
        let Some(header) = chain.first.header_for(self.features) else {
            return Ok(Delivery::Offload);
        };
        let first = match self.ring.take_one(true).map_err(Culprit::Receiver)? {
            Next::Nothing => return Ok(Delivery::NoRoom),
            Next::One { head, piece } => {
                if front.is_none()
                    && let Some(bytes) = self.copy_whole(sender, chain, header, piece)?
                {
                    self.ring.write_used(0, head, bytes).map_err(Culprit::Receiver)?;
                    self.ring.used += 1;
                    return Ok(Delivery::Done { buffers: 1 });
                }
                Some((head, piece))
            }
            Next::Long => None,
        };
        self.put_long(sender, chain, front, header, first)
    }

    /// Copies a frame with this header into a buffer, if it lies together there and in its sender's memory.
    /// Returns the bytes that it has in the buffer.
    #[inline(always)]
    fn copy_whole(
        &self,
        sender: &SendRing,
        chain: &Chain,
        header: (u64, u32),
        to: Piece,
    ) -> Result<Option<u32>, Culprit> {
        let is_new = (sender.header_bytes, self.header_bytes) == (HEADER_BYTES, HEADER_BYTES);
        if !is_new || chain.count != 1 || to.bytes < chain.bytes {
            return Ok(None);
        }
        let Some(bytes) = (chain.bytes as usize).checked_sub(HEADER_BYTES) else { return Ok(None) };
        let source = whole(&sender.ring.memory, chain.one, HEADER_BYTES, bytes).map_err(Culprit::Sender)?;
        let target = whole(&self.ring.memory, to, 0, HEADER_BYTES + bytes).map_err(Culprit::Receiver)?;
        let (Some(source), Some(target)) = (source, target) else { return Ok(None) };
        let fits = |_| Culprit::Receiver(Broken::Address);
        target.get_ref(0).map_err(fits)?.store(header.0.to_le());
        target.get_ref(8).map_err(fits)?.store(header.1.to_le());
        let behind = target.offset(HEADER_BYTES).map_err(fits)?;
        source.copy_to_volatile_slice(behind);
        Ok(Some(chain.bytes))
    }

    /// As [`ReceiveRing::put`], into any number of buffers; the first one may be taken already.
    #[cold]
    fn put_long(
        &mut self,
        sender: &SendRing,
        chain: &Chain,
        front: Option<&Front>,
        words: (u64, u32),
        first: Option<(u16, Piece)>,
    ) -> Result<Delivery, Culprit> {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&words.0.to_le_bytes());
        header[8..].copy_from_slice(&words.1.to_le_bytes());
        let replaced = front.map_or(0, |front| front.replaces);
        let skip = sender.header_bytes + replaced;
        // A front replaces bytes that were read when the frame was taken in.
        let frame_bytes = chain.bytes.saturating_sub(skip as u32);
        let mut front_bytes = &[][..];
        if let Some(front) = front {
            frame::move_places(&mut header, front.growth());
            front_bytes = front.bytes();
        }
        let wanted = frame_bytes + (self.header_bytes + front_bytes.len()) as u32;
        let Some((buffers, pieces)) = self.take_buffers(first, wanted).map_err(Culprit::Receiver)? else {
            return Ok(Delivery::NoRoom);
        };
        header[10..].copy_from_slice(&(buffers as u16).to_le_bytes());
        let header = &header[..self.header_bytes];
        let from = Place { memory: &sender.ring.memory, pieces: chain.pieces(), skip };
        let to = Place { memory: &self.ring.memory, pieces: &self.pieces[..pieces], skip: 0 };
        let mut to = Rest::of(to).ok_or(Culprit::Receiver(Broken::Chain))?;
        write(&mut to, header).map_err(Culprit::Receiver)?;
        write(&mut to, front_bytes).map_err(Culprit::Receiver)?;
        copy(from, to, frame_bytes)?;
        self.use_buffers(buffers, wanted).map_err(Culprit::Receiver)?;
        Ok(Delivery::Done { buffers: buffers as u16 })
    }

    /// Shows the driver what it received.
    ///
    /// # Errors
    /// When the ring is broken.
    #[inline]
    pub(crate) fn show(&mut self) -> Result<(), Broken> {
        self.ring.show_used()
    }

    /// The driver hears at another place from now on, and is told there once.
    pub(crate) fn set_call(&mut self, call: Option<Arc<OwnedFd>>) {
        self.ring.set_call(call);
    }

    /// Tells the driver of what it was shown if it wants to hear. [`visible`] stands between.
    ///
    /// # Errors
    /// When the ring is broken.
    #[inline]
    pub(crate) fn call(&mut self) -> Result<(), Broken> {
        self.ring.call()
    }

    /// Shows the driver what it received, and tells it if it wants to hear.
    ///
    /// # Errors
    /// When the ring is broken.
    #[inline]
    pub fn tell(&mut self) -> Result<(), Broken> {
        self.ring.tell()
    }

    /// Takes buffers for so many bytes, of which the first may be taken already: their number and that of
    /// their pieces; `None` when there are not enough, or when a single one must do and does not.
    fn take_buffers(
        &mut self,
        mut first: Option<(u16, Piece)>,
        wanted: u32,
    ) -> Result<Option<(usize, usize)>, Broken> {
        let most = if self.features & features::MRG_RXBUF == 0 { 1 } else { BUFFERS_MAX };
        let (mut room, mut pieces) = (0u32, 0);
        for (buffer, place) in self.buffers[..most].iter_mut().enumerate() {
            let free = &mut self.pieces[pieces..];
            let found = match first.take() {
                Some((head, piece)) => Found::one(head, piece, free),
                None => match self.ring.take(true, free)? {
                    Some(found) => found,
                    None => return Ok(None),
                },
            };
            if found.more {
                return Ok(None);
            }
            if buffer == 0 && found.bytes < HEADER_BYTES as u32 {
                return Err(Broken::Chain);
            }
            *place = (found.head, found.bytes);
            pieces += found.count;
            room = room.saturating_add(found.bytes);
            if room >= wanted {
                return Ok(Some((buffer + 1, pieces)));
            }
        }
        Ok(None)
    }

    /// Uses the first `buffers` of those taken, with so many bytes in them.
    fn use_buffers(&mut self, buffers: usize, bytes: u32) -> Result<(), Broken> {
        let mut left = bytes;
        for (after, &(head, room)) in self.buffers[..buffers].iter().enumerate() {
            let filled = room.min(left);
            left -= filled;
            self.ring.write_used(after as u16, head, filled)?;
        }
        self.ring.used += Wrapping(buffers as u16);
        Ok(())
    }

    /// Where the ring goes on when it is stopped now.
    pub fn base(&self) -> u16 {
        self.ring.queue.next_avail()
    }
}

/// Pieces of a memory, from some byte on.
#[derive(Clone, Copy)]
struct Place<'a> {
    memory: &'a Memory,
    pieces: &'a [Piece],
    skip: usize,
}

/// The rest of a [`Place`].
struct Rest<'a> {
    place: Place<'a>,
    /// Bytes of the first piece that are done.
    done: u32,
}

impl<'a> Rest<'a> {
    #[inline]
    fn of(mut place: Place<'a>) -> Option<Self> {
        let mut skip = place.skip as u32;
        while let [first, rest @ ..] = place.pieces {
            if skip < first.bytes {
                return Some(Rest { place, done: skip });
            }
            skip -= first.bytes;
            place.pieces = rest;
        }
        None
    }

    /// The bytes in front, `most` at most.
    #[inline]
    fn front(&self, most: u32) -> Result<VolatileSlice<'a>, Broken> {
        let [first, ..] = self.place.pieces else { return Err(Broken::Chain) };
        let address = first.address.checked_add(self.done.into()).ok_or(Broken::Address)?;
        self.place.memory.slice(address, (first.bytes - self.done).min(most) as usize)
    }

    #[inline]
    fn advance(&mut self, bytes: u32) {
        self.done += bytes;
        if let [first, rest @ ..] = self.place.pieces
            && self.done >= first.bytes
        {
            self.place.pieces = rest;
            self.done = 0;
        }
    }
}

/// `bytes` bytes of a piece behind its first `skip` bytes, if it has them and they lie together in memory.
#[inline(always)]
fn whole(
    memory: &Memory,
    piece: Piece,
    skip: usize,
    bytes: usize,
) -> Result<Option<VolatileSlice<'_>>, Broken> {
    if skip + bytes > piece.bytes as usize {
        return Ok(None);
    }
    let address = piece.address.checked_add(skip as u64).ok_or(Broken::Address)?;
    let all = memory.slice(address, bytes)?;
    // A piece may reach over the end of a region of memory.
    Ok((all.len() == bytes).then_some(all))
}

/// Fills `into` from the pieces, without their first `skip` bytes.
fn read(memory: &Memory, pieces: &[Piece], skip: usize, mut into: &mut [u8]) -> Result<(), Broken> {
    let mut from = Rest::of(Place { memory, pieces, skip }).ok_or(Broken::Chain)?;
    while !into.is_empty() {
        let copied = from.front(into.len() as u32)?.copy_to(into);
        from.advance(copied as u32);
        into = &mut into[copied..];
    }
    Ok(())
}

/// Writes to the beginning of the rest.
#[inline]
fn write(to: &mut Rest<'_>, mut from: &[u8]) -> Result<(), Broken> {
    while !from.is_empty() {
        let target = to.front(from.len() as u32)?;
        let (now, later) = from.split_at(target.len());
        target.copy_from(now);
        to.advance(now.len() as u32);
        from = later;
    }
    Ok(())
}

/// Copies `bytes` bytes.
fn copy(from: Place<'_>, mut to: Rest<'_>, bytes: u32) -> Result<(), Culprit> {
    let mut left = bytes;
    if left == 0 {
        // A frame that was all front.
        return Ok(());
    }
    let mut from = Rest::of(from).ok_or(Culprit::Sender(Broken::Chain))?;
    while left > 0 {
        let source = from.front(left).map_err(Culprit::Sender)?;
        let target = to.front(left).map_err(Culprit::Receiver)?;
        // Neither is empty, and both lie in mapped memory.
        let copied = source.len().min(target.len()) as u32;
        source.copy_to_volatile_slice(target);
        from.advance(copied);
        to.advance(copied);
        left -= copied;
    }
    Ok(())
}
