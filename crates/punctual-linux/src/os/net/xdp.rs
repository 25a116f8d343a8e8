//! Frames sent in batches: an AF_XDP socket in copy mode (Linux `Documentation/networking/af_xdp.rst`).
//!
//! One system call sends up to [`XDP_BATCH`] frames. The kernel copies each of them from memory of this
//! program and hands it to the device itself: past the interface's queueing discipline, and past packet
//! sockets that look at what is sent. No program is attached to the interface, so what it receives goes where
//! it went before.
//!
//! Frames whose checksum or segmentation is left to the device need a header that this socket does not have:
//! the caller sends them by its packet socket, after [`XdpSender::flush`].

use std::io;
use std::num::Wrapping;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memmap2::{MmapMut, MmapOptions, MmapRaw};
use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XdpDesc,
    XdpDescOptions, XdpRingOffset, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sockopt};

/// Frames that one system call sends at most (`TX_BATCH_SIZE` in Linux `net/xdp/xsk.c`).
pub const XDP_BATCH: usize = 32;

/// Frames that the device has not sent, at most.
const CHUNKS: u32 = 64;

/// Bytes of a chunk: a frame of 1,514 bytes with a tag; at least 2,048 (`XDP_UMEM_MIN_CHUNK_SIZE`).
const CHUNK_BYTES: usize = 2048;

/// System calls of a flush: those that a full ring takes, and one more.
const CALLS_MAX: usize = CHUNKS as usize / XDP_BATCH + 1;

/// Where no chunk is: the kernel passes over a descriptor with this address.
const NO_CHUNK: u64 = u64::MAX;

/// What became of the frames that were to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Frames that the interface did not accept: it is down, or gone.
    pub lost: u32,
    /// The device had no room for some frames: flush again soon.
    pub is_behind: bool,
}

/// A ring that is shared with the kernel.
#[derive(Debug)]
struct Shared {
    map: MmapRaw,
    offset: XdpRingOffset,
    entry_bytes: usize,
}

impl Shared {
    fn new(socket: &OwnedFd, offset: XdpRingOffset, entry_bytes: usize, page: u64) -> io::Result<Shared> {
        let bytes = offset.desc as usize + CHUNKS as usize * entry_bytes;
        let map = MmapOptions::new().offset(page).len(bytes).map_raw(socket)?;
        // The kernel says where they are; a place outside of the mapping must not be used.
        let ends = [offset.producer, offset.consumer].map(|at| at as usize + size_of::<u32>());
        if ends.iter().any(|end| *end > bytes) {
            return Err(io::Error::other("the kernel's rings are not where it says"));
        }
        Ok(Shared { map, offset, entry_bytes })
    }

    fn index(&self, at: u64) -> &AtomicU32 {
        // SAFETY: `new` has checked that the index is inside of the mapping, which lives as long as `self`.
        // Both sides have access to it by whole numbers only. The kernel aligns it.
        unsafe { AtomicU32::from_ptr(self.map.as_mut_ptr().wrapping_add(at as usize).cast()) }
    }

    fn producer(&self) -> Wrapping<u32> {
        Wrapping(self.index(self.offset.producer).load(Ordering::Acquire))
    }

    fn consumer(&self) -> Wrapping<u32> {
        Wrapping(self.index(self.offset.consumer).load(Ordering::Acquire))
    }

    /// The address in an entry, with which it begins.
    fn address(&self, at: Wrapping<u32>) -> &AtomicU64 {
        let place = self.offset.desc as usize + (at.0 % CHUNKS) as usize * self.entry_bytes;
        // SAFETY: the entry is inside of the mapping, which has `CHUNKS` of them behind `desc`. The kernel
        // aligns it, and has access to it by whole numbers only.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().wrapping_add(place).cast()) }
    }

    /// Writes an entry of the TX ring, which the kernel does not read before it is published.
    fn describe(&self, at: Wrapping<u32>, descriptor: XdpDesc) {
        let place = self.offset.desc as usize + (at.0 % CHUNKS) as usize * self.entry_bytes;
        // SAFETY: as above; the ring's entries are descriptors. The kernel reads them in `send` only, which
        // this program does not call meanwhile.
        unsafe { self.map.as_mut_ptr().wrapping_add(place).cast::<XdpDesc>().write(descriptor) }
    }
}

/// Sends frames over an interface.
#[derive(Debug)]
pub(super) struct XdpSender {
    socket: OwnedFd,
    tx: Shared,
    completions: Shared,
    chunks: MmapRaw,
    /// Chunks without a frame.
    free: Vec<u32>,
    /// Where the next frame goes. What lies between and the published index, if that is greater, has no
    /// chunk.
    next: Wrapping<u32>,
    published: Wrapping<u32>,
    /// Bytes of the longest frame.
    bytes_max: usize,
}

impl XdpSender {
    /// Sends frames of at most `bytes_max` bytes by the interface with this index.
    ///
    /// # Errors
    /// When the kernel has no such sockets or refuses one.
    pub(super) fn new(index: u32, bytes_max: usize) -> io::Result<XdpSender> {
        let socket = rustix::net::socket_with(
            AddressFamily::XDP,
            SocketType::RAW,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        let bytes = CHUNKS as usize * CHUNK_BYTES;
        let chunks = MmapRaw::from(MmapMut::map_anon(bytes)?);
        let memory = XdpUmemReg {
            addr: chunks.as_mut_ptr().expose_provenance() as u64,
            len: bytes as u64,
            chunk_size: CHUNK_BYTES as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(&socket, memory)?;
        // Nothing is received, but the kernel wants a ring for it.
        sockopt::set_xdp_umem_fill_ring_size(&socket, 2)?;
        sockopt::set_xdp_umem_completion_ring_size(&socket, CHUNKS)?;
        sockopt::set_xdp_tx_ring_size(&socket, CHUNKS)?;
        // What all chunks take as packets of the kernel, so that only the device limits them.
        let _ = sockopt::set_socket_send_buffer_size_force(&socket, 2 * bytes);
        let offsets = sockopt::xdp_mmap_offsets(&socket)?;
        let tx = Shared::new(&socket, offsets.tx, size_of::<XdpDesc>(), XDP_PGOFF_TX_RING)?;
        let page = XDP_UMEM_PGOFF_COMPLETION_RING;
        let completions = Shared::new(&socket, offsets.cr, size_of::<u64>(), page)?;
        rustix::net::bind(&socket, &SocketAddrXdp::new(SocketAddrXdpFlags::XDP_COPY, index, 0))?;
        Ok(XdpSender {
            socket,
            tx,
            completions,
            chunks,
            free: (0..CHUNKS).rev().collect(),
            next: Wrapping(0),
            published: Wrapping(0),
            bytes_max: bytes_max.min(CHUNK_BYTES),
        })
    }

    /// May a frame be so long?
    pub(super) fn takes(&self, bytes: usize) -> bool {
        (libc::ETH_HLEN as usize..=self.bytes_max).contains(&bytes)
    }

    /// The room of the next frame, which is [taken](XdpSender::takes) by the next flush. `None`: the device
    /// has not sent those before it.
    pub(super) fn room(&mut self, bytes: usize) -> Option<&mut [u8]> {
        debug_assert!(self.takes(bytes));
        if self.free.is_empty() {
            self.reap();
        }
        let chunk = self.free.pop()?;
        let start = chunk as usize * CHUNK_BYTES;
        let (addr, len) = (start as u64, bytes as u32);
        // As many entries as chunks: this one is free.
        self.tx.describe(self.next, XdpDesc { addr, len, options: XdpDescOptions::empty() });
        self.next += 1;
        // SAFETY: the chunk is inside of the mapping, and `bytes` at most its length. It is not in the
        // rings, so the kernel does not read it, and the borrow of `self` ends before `flush` shows it.
        Some(unsafe { std::slice::from_raw_parts_mut(self.chunks.as_mut_ptr().wrapping_add(start), bytes) })
    }

    /// Sends all frames, as far as the device has room.
    pub(super) fn flush(&mut self) -> Flushed {
        let mut consumer = self.tx.consumer();
        for _ in 0..CALLS_MAX {
            if consumer == self.next {
                break;
            }
            if (self.next - self.published).0.cast_signed() > 0 {
                self.published = self.next;
                self.tx.index(self.tx.offset.producer).store(self.published.0, Ordering::Release);
            }
            let sent = rustix::net::send(&self.socket, &[], SendFlags::DONTWAIT);
            consumer = self.tx.consumer();
            if (consumer - self.next).0.cast_signed() > 0 {
                // It passed over entries without a chunk.
                self.next = consumer;
            }
            match sent {
                Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => {}
                Err(_) => return Flushed { lost: self.abandon(consumer), is_behind: false },
            }
        }
        Flushed { lost: 0, is_behind: consumer != self.next }
    }

    /// Frames that the kernel did not take would be sent when the interface is up again: takes them back.
    /// The published index cannot go back, so the entries stay, without a chunk, until frames replace them.
    fn abandon(&mut self, consumer: Wrapping<u32>) -> u32 {
        let lost = self.next - consumer;
        while self.next != consumer {
            self.next -= 1;
            let address = self.tx.address(self.next).swap(NO_CHUNK, Ordering::Relaxed);
            self.give_back(address);
        }
        lost.0
    }

    fn give_back(&mut self, address: u64) {
        let chunk = u32::try_from(address / CHUNK_BYTES as u64).ok().filter(|chunk| *chunk < CHUNKS);
        if self.free.len() < CHUNKS as usize {
            self.free.extend(chunk);
        }
    }

    /// Chunks whose frames the device has sent are free again.
    fn reap(&mut self) {
        let (mut at, end) = (self.completions.consumer(), self.completions.producer());
        while at != end {
            let address = self.completions.address(at).load(Ordering::Relaxed);
            self.give_back(address);
            at += 1;
        }
        self.completions.index(self.completions.offset.consumer).store(at.0, Ordering::Release);
    }
}
