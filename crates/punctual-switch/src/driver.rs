//! The driver's side of a split virtqueue (virtio 1.2, section 2.7), for uplinks and tests.

use std::io;
use std::num::Wrapping;
use std::os::fd::OwnedFd;
use std::sync::atomic::{Ordering, fence};

use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use crate::narrow::to_usize;
use crate::sys::eventfd;

pub(crate) const DESC_BYTES: u64 = 16;
/// The used ring of a legacy driver begins on a page of its own.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// `VIRTQ_DESC_F_NEXT`.
pub(crate) const DESC_F_NEXT: u16 = 1;
/// `VIRTQ_DESC_F_WRITE`.
pub(crate) const DESC_F_WRITE: u16 = 2;

/// A driver's queue. Its parts are consecutive in memory, and each entry has a buffer.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) entries: u16,
    pub(crate) descriptors: u64,
    pub(crate) avail: u64,
    pub(crate) used: u64,
    buffers: u64,
    buffer_bytes: u32,
    pub(crate) next_avail: Wrapping<u16>,
    pub(crate) next_used: Wrapping<u16>,
    pub(crate) kick: OwnedFd,
    pub(crate) call: OwnedFd,
    /// Entries that the switch does not have.
    pub(crate) free: Vec<u16>,
}

fn other(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

pub(crate) fn write_descriptor(
    memory: &GuestMemoryMmap,
    place: u64,
    address: u64,
    bytes: u32,
    flags: u16,
    next: u16,
) -> io::Result<()> {
    let mut descriptor = [0; to_usize(DESC_BYTES)];
    descriptor[..8].copy_from_slice(&address.to_le_bytes());
    descriptor[8..12].copy_from_slice(&bytes.to_le_bytes());
    descriptor[12..14].copy_from_slice(&flags.to_le_bytes());
    descriptor[14..].copy_from_slice(&next.to_le_bytes());
    memory.write_slice(&descriptor, GuestAddress(place)).map_err(other)
}

impl Queue {
    /// A queue from guest address `start` on, with its used ring at a multiple of `align` bytes. Returns its
    /// end.
    pub(crate) fn new(start: u64, entries: u16, buffer_bytes: u32, align: u64) -> io::Result<(Queue, u64)> {
        let count = u64::from(entries);
        let page = |address: u64| address.next_multiple_of(PAGE_BYTES);
        let avail = start + count * DESC_BYTES;
        let used = (avail + 6 + 2 * count).next_multiple_of(align);
        let buffers = page(used + 6 + 8 * count);
        let end = page(buffers + count * u64::from(buffer_bytes));
        let queue = Queue {
            entries,
            descriptors: start,
            avail,
            used,
            buffers,
            buffer_bytes,
            next_avail: Wrapping(0),
            next_used: Wrapping(0),
            kick: eventfd()?,
            call: eventfd()?,
            free: (0..entries).rev().collect(),
        };
        Ok((queue, end))
    }

    /// The guest address of an entry's buffer.
    pub(crate) fn buffer(&self, head: u16) -> u64 {
        self.buffers + u64::from(head) * u64::from(self.buffer_bytes)
    }

    /// Writes a chain into the next avail entry. Returns the avail index that publishes it.
    pub(crate) fn push_avail(&self, memory: &GuestMemoryMmap, head: u16) -> io::Result<u16> {
        self.push_avail_at(memory, self.next_avail.0, head)
    }

    /// Writes a chain into the avail entry of index `at`. Returns the avail index that publishes it.
    pub(crate) fn push_avail_at(&self, memory: &GuestMemoryMmap, at: u16, head: u16) -> io::Result<u16> {
        let slot = u64::from(at % self.entries);
        let place = GuestAddress(self.avail + 4 + 2 * slot);
        memory.store(head.to_le(), place, Ordering::Relaxed).map_err(other)?;
        Ok(at.wrapping_add(1))
    }

    /// Stores the avail index. Returns whether the switch wants a kick.
    pub(crate) fn publish_avail(
        &mut self,
        memory: &GuestMemoryMmap,
        index: u16,
        event_idx: bool,
    ) -> io::Result<bool> {
        let before = std::mem::replace(&mut self.next_avail, Wrapping(index));
        let place = GuestAddress(self.avail + 2);
        memory.store(index.to_le(), place, Ordering::Release).map_err(other)?;
        fence(Ordering::SeqCst);
        if event_idx {
            let place = GuestAddress(self.used + 4 + 8 * u64::from(self.entries));
            let event: u16 = memory.load(place, Ordering::Relaxed).map_err(other)?;
            return Ok(Wrapping(index) - Wrapping(event) - Wrapping(1) < Wrapping(index) - before);
        }
        let flags: u16 = memory.load(GuestAddress(self.used), Ordering::Relaxed).map_err(other)?;
        Ok(flags & 1 == 0)
    }

    /// Pops the next used entry: its head and bytes.
    pub(crate) fn pop_used(&mut self, memory: &GuestMemoryMmap) -> io::Result<Option<(u16, u32)>> {
        let index: u16 = memory.load(GuestAddress(self.used + 2), Ordering::Acquire).map_err(other)?;
        if index == self.next_used.0 {
            return Ok(None);
        }
        let slot = u64::from(self.next_used.0 % self.entries);
        self.next_used += Wrapping(1);
        let mut entry = [0; 8];
        memory.read_slice(&mut entry, GuestAddress(self.used + 4 + 8 * slot)).map_err(other)?;
        let word = |at: usize| u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]]);
        if word(0) >= self.entries.into() {
            return Err(other("the switch returned a descriptor beyond the queue size"));
        }
        Ok(Some(((word(0) & 0xffff) as u16, word(4))))
    }

    /// Asks for a call at the next used entry. Returns whether there is one already.
    pub(crate) fn enable_call(&self, memory: &GuestMemoryMmap) -> io::Result<bool> {
        let event = GuestAddress(self.avail + 4 + 2 * u64::from(self.entries));
        memory.store(self.next_used.0.to_le(), event, Ordering::Relaxed).map_err(other)?;
        fence(Ordering::SeqCst);
        let index: u16 = memory.load(GuestAddress(self.used + 2), Ordering::Acquire).map_err(other)?;
        Ok(index != self.next_used.0)
    }
}
