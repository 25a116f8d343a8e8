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
use vm_memory::{
    Address as _, Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, VolatileSlice,
};

use crate::features;
use crate::frame::{self, FRAME_BYTES_MAX, HEADER_BYTES};
use crate::memory::Memory;

/// Entries of a ring at most.
pub const ENTRIES_MAX: u16 = 1024;

/// Descriptors of a frame that is sent, at most: those of a segment in Linux (`MAX_SKB_FRAGS`), and some.
pub const PIECES_MAX: usize = 24;

/// Buffers that a frame fills at most: 64 KiB in buffers of 1,536 bytes, and some.
const BUFFERS_MAX: usize = 64;

/// Descriptors of these buffers at most.
const BUFFER_PIECES_MAX: usize = 128;

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

impl From<vm_memory::GuestMemoryError> for Broken {
    fn from(_: vm_memory::GuestMemoryError) -> Self {
        Broken::Address
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
    /// Index of the next available entry.
    pub base: u16,
    /// The features that the driver chose.
    pub features: u64,
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
    event_idx: bool,
    /// Index of the next used entry.
    used: Wrapping<u16>,
    /// The index when the driver was last told, or spared.
    told: Wrapping<u16>,
    call: Option<Arc<OwnedFd>>,
}

impl Ring {
    fn new(setup: &Setup) -> Result<Ring, Broken> {
        let mut queue = Queue::new(ENTRIES_MAX).map_err(|_| Broken::Place)?;
        queue.try_set_size(setup.entries).map_err(|_| Broken::Place)?;
        let place = |address| GuestAddress(address);
        queue.try_set_desc_table_address(place(setup.descriptors)).map_err(|_| Broken::Place)?;
        queue.try_set_avail_ring_address(place(setup.available)).map_err(|_| Broken::Place)?;
        queue.try_set_used_ring_address(place(setup.used)).map_err(|_| Broken::Place)?;
        queue.set_event_idx(setup.features & features::EVENT_IDX != 0);
        queue.set_next_avail(setup.base);
        queue.set_ready(true);
        if !queue.is_valid(&setup.memory.guest) {
            return Err(Broken::Place);
        }
        let used = queue.used_idx(&setup.memory.guest, Ordering::Acquire)?;
        queue.set_next_used(used.0);
        Ok(Ring {
            memory: Arc::clone(&setup.memory),
            event_idx: queue.event_idx_enabled(),
            queue,
            used,
            told: used,
            call: setup.call.clone(),
        })
    }

    /// Writes the used entry that is `after` entries behind the next one; nobody sees it yet.
    #[inline]
    fn write_used(&self, after: u16, head: u16, bytes: u32) -> Result<(), Broken> {
        let at = u64::from((self.used.0.wrapping_add(after)) & (self.queue.size() - 1));
        let mut entry = [0; 8];
        entry[..4].copy_from_slice(&u32::from(head).to_le_bytes());
        entry[4..].copy_from_slice(&bytes.to_le_bytes());
        let place = GuestAddress(self.queue.used_ring()).checked_add(4 + at * 8).ok_or(Broken::Address)?;
        Ok(self.memory.guest.write_obj(u64::from_ne_bytes(entry), place)?)
    }

    /// Shows the driver `count` more used entries.
    #[inline]
    fn show_used(&mut self, count: u16) -> Result<(), Broken> {
        self.used += Wrapping(count);
        let place = GuestAddress(self.queue.used_ring()).checked_add(2).ok_or(Broken::Address)?;
        Ok(self.memory.guest.store(self.used.0.to_le(), place, Ordering::Release)?)
    }

    /// Does the driver want to hear of what was shown since the last time?
    #[inline]
    fn wants_call(&mut self) -> Result<bool, Broken> {
        // What was shown must be visible before the driver's wish is read.
        fence(Ordering::SeqCst);
        let before = std::mem::replace(&mut self.told, self.used);
        let ring = GuestAddress(self.queue.avail_ring());
        if self.event_idx {
            let offset = 4 + 2 * u64::from(self.queue.size());
            let place = ring.checked_add(offset).ok_or(Broken::Address)?;
            let event: u16 = self.memory.guest.load(place, Ordering::Relaxed)?;
            let event = Wrapping(u16::from_le(event));
            return Ok(self.used - event - Wrapping(1) < self.used - before);
        }
        let flags: u16 = self.memory.guest.load(ring, Ordering::Relaxed)?;
        Ok(u16::from_le(flags) & NO_INTERRUPT == 0)
    }

    /// Tells the driver, if it wants to hear.
    #[inline]
    fn tell(&mut self) -> Result<(), Broken> {
        if self.wants_call()?
            && let Some(call) = &self.call
        {
            ring_bell(call);
        }
        Ok(())
    }
}

/// Adds one to an eventfd. A full one has rung already.
pub(crate) fn ring_bell(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// A frame that a driver sends, where it is.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// The head of its descriptors.
    head: u16,
    /// Is it too long, or in too many pieces, to be sent?
    unfit: bool,
    count: usize,
    /// Bytes with the virtio-net header.
    bytes: u32,
    pieces: [Piece; PIECES_MAX],
}

impl Default for Chain {
    fn default() -> Self {
        Chain { head: 0, unfit: false, count: 0, bytes: 0, pieces: [Piece::default(); PIECES_MAX] }
    }
}

impl Chain {
    fn pieces(&self) -> &[Piece] {
        &self.pieces[..self.count]
    }
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
        /// Addresses and type.
        start: [u8; frame::ETHERNET_BYTES],
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
    #[inline]
    pub fn take(&mut self, chain: &mut Chain) -> Result<Taken, Broken> {
        let memory = &self.ring.memory.guest;
        let mut available = self.ring.queue.iter(memory)?;
        let Some(descriptors) = available.next() else {
            return Ok(Taken::Nothing);
        };
        chain.head = descriptors.head_index();
        if chain.head >= self.ring.queue.size() {
            return Err(Broken::Chain);
        }
        let (bytes, count, more) = read_chain(descriptors, false, &mut chain.pieces)?;
        (chain.bytes, chain.count) = (bytes, count);
        let shortest = (self.header_bytes + frame::ETHERNET_BYTES) as u32;
        chain.unfit = more || bytes < shortest || bytes > FRAME_BYTES_MAX + HEADER_BYTES as u32;
        if chain.unfit {
            return Ok(Taken::Unfit);
        }
        let mut start = [0; frame::ETHERNET_BYTES];
        read(memory, chain.pieces(), self.header_bytes as u32, &mut start)?;
        Ok(Taken::Frame { bytes: bytes - self.header_bytes as u32, start })
    }

    /// The virtio-net header of a frame that was taken.
    #[inline]
    fn header(&self, chain: &Chain) -> Result<[u8; HEADER_BYTES], Broken> {
        let mut header = [0; HEADER_BYTES];
        read(&self.ring.memory.guest, chain.pieces(), 0, &mut header[..self.header_bytes])?;
        Ok(header)
    }

    /// Gives the buffers of a frame back to the driver.
    ///
    /// # Errors
    /// When the ring is broken.
    #[inline]
    pub fn give_back(&mut self, chain: &Chain) -> Result<(), Broken> {
        self.ring.write_used(0, chain.head, 0)?;
        self.ring.show_used(1)?;
        self.ring.tell()
    }

    /// Is anything available?
    ///
    /// # Errors
    /// When the ring is broken.
    #[inline]
    pub fn has_more(&self) -> Result<bool, Broken> {
        let index = self.ring.queue.avail_idx(&self.ring.memory.guest, Ordering::Acquire)?;
        Ok(index.0 != self.ring.queue.next_avail())
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

    /// Buffers that wait for frames.
    ///
    /// # Errors
    /// When the ring is broken.
    #[inline]
    pub fn free(&self) -> Result<u16, Broken> {
        let index = self.ring.queue.avail_idx(&self.ring.memory.guest, Ordering::Relaxed)?;
        let free = index.0.wrapping_sub(self.ring.queue.next_avail());
        if free > self.ring.queue.size() { Err(Broken::Index) } else { Ok(free) }
    }

    /// Copies a frame from its sender's memory into buffers of this ring, and tells the driver.
    ///
    /// # Errors
    /// Whose ring is broken.
    #[inline]
    pub fn deliver(&mut self, sender: &SendRing, chain: &Chain) -> Result<Delivery, Culprit> {
        let sent = sender.header(chain).map_err(Culprit::Sender)?;
        let Some(mut header) = frame::header_for(&sent, self.features) else {
            return Ok(Delivery::Offload);
        };
        let frame_bytes = chain.bytes - sender.header_bytes as u32;
        let start = self.ring.queue.next_avail();
        let wanted = frame_bytes + self.header_bytes as u32;
        let Some((buffers, pieces)) = self.take_buffers(wanted).map_err(Culprit::Receiver)? else {
            self.ring.queue.set_next_avail(start);
            return Ok(Delivery::NoRoom);
        };
        header[10..].copy_from_slice(&(buffers as u16).to_le_bytes());
        let (memory, into) = (&self.ring.memory.guest, &self.pieces[..pieces]);
        write(memory, into, &header[..self.header_bytes]).map_err(Culprit::Receiver)?;
        copy(
            Place { memory: &sender.ring.memory.guest, pieces: chain.pieces(), skip: sender.header_bytes },
            Place { memory, pieces: into, skip: self.header_bytes },
            frame_bytes,
        )?;
        self.use_buffers(buffers, wanted).map_err(Culprit::Receiver)?;
        Ok(Delivery::Done { buffers: buffers as u16 })
    }

    /// Takes buffers for so many bytes: their number and that of their pieces; `None` when there are not
    /// enough, or when a single one must do and does not.
    #[inline]
    fn take_buffers(&mut self, wanted: u32) -> Result<Option<(usize, usize)>, Broken> {
        let memory = &self.ring.memory.guest;
        let entries = self.ring.queue.size();
        let mut available = self.ring.queue.iter(memory)?;
        let most = if self.features & features::MRG_RXBUF == 0 { 1 } else { BUFFERS_MAX };
        let (mut room, mut pieces) = (0u32, 0);
        for (buffer, place) in self.buffers[..most].iter_mut().enumerate() {
            let Some(descriptors) = available.next() else { return Ok(None) };
            let head = descriptors.head_index();
            if head >= entries {
                return Err(Broken::Chain);
            }
            let (bytes, count, more) = read_chain(descriptors, true, &mut self.pieces[pieces..])?;
            if more {
                return Ok(None);
            }
            if buffer == 0 && bytes < HEADER_BYTES as u32 {
                return Err(Broken::Chain);
            }
            *place = (head, bytes);
            pieces += count;
            room = room.saturating_add(bytes);
            if room >= wanted {
                return Ok(Some((buffer + 1, pieces)));
            }
        }
        Ok(None)
    }

    /// Gives the first `buffers` of those taken to the driver with so many bytes in them.
    #[inline]
    fn use_buffers(&mut self, buffers: usize, bytes: u32) -> Result<(), Broken> {
        let mut left = bytes;
        for (after, &(head, room)) in self.buffers[..buffers].iter().enumerate() {
            let filled = room.min(left);
            left -= filled;
            self.ring.write_used(after as u16, head, filled)?;
        }
        self.ring.show_used(buffers as u16)?;
        self.ring.tell()
    }

    /// Where the ring goes on when it is stopped now.
    pub fn base(&self) -> u16 {
        self.ring.queue.next_avail()
    }
}

/// As much of `bytes` bytes from `address` on as one region holds.
#[inline]
fn slice(memory: &GuestMemoryMmap, address: u64, bytes: usize) -> Result<VolatileSlice<'_>, Broken> {
    let (region, at) = memory.to_region_addr(GuestAddress(address)).ok_or(Broken::Address)?;
    let room = usize::try_from(region.len() - at.raw_value()).unwrap_or(usize::MAX);
    region.get_slice(at, bytes.min(room)).map_err(|_| Broken::Address)
}

/// Fills `into` from the pieces, `skip` bytes after their beginning.
#[inline]
fn read(memory: &GuestMemoryMmap, pieces: &[Piece], skip: u32, into: &mut [u8]) -> Result<(), Broken> {
    let (mut skip, mut filled) = (skip, 0);
    for piece in pieces {
        if skip >= piece.bytes {
            skip -= piece.bytes;
            continue;
        }
        let wanted = (into.len() - filled).min((piece.bytes - skip) as usize);
        let address = piece.address.checked_add(skip.into()).ok_or(Broken::Address)?;
        memory.read_slice(&mut into[filled..filled + wanted], GuestAddress(address))?;
        (skip, filled) = (0, filled + wanted);
        if filled == into.len() {
            return Ok(());
        }
    }
    Err(Broken::Chain)
}

/// Writes to the beginning of the pieces.
#[inline]
fn write(memory: &GuestMemoryMmap, pieces: &[Piece], mut from: &[u8]) -> Result<(), Broken> {
    for piece in pieces {
        let (now, later) = from.split_at(from.len().min(piece.bytes as usize));
        memory.write_slice(now, GuestAddress(piece.address))?;
        from = later;
        if from.is_empty() {
            return Ok(());
        }
    }
    Err(Broken::Chain)
}

/// Pieces of a memory, from some byte on.
#[derive(Clone, Copy)]
struct Place<'a> {
    memory: &'a GuestMemoryMmap,
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
        slice(self.place.memory, address, (first.bytes - self.done).min(most) as usize)
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

/// Copies `bytes` bytes.
#[inline]
fn copy(from: Place<'_>, to: Place<'_>, bytes: u32) -> Result<(), Culprit> {
    let mut from = Rest::of(from).ok_or(Culprit::Sender(Broken::Chain))?;
    let mut to = Rest::of(to).ok_or(Culprit::Receiver(Broken::Chain))?;
    let mut left = bytes;
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
