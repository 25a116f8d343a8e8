//! The other side of a port, for tests and measurements: a load generator, and a guest that can misbehave.
//!
//! A [`FrontEnd`] is a vhost-user front-end and a virtio-net driver in one. It connects with the messages of
//! QEMU 7.2, has memory of its own, and sends and receives frames. Tests misbehave through
//! [`FrontEnd::memory`].

pub mod attack;
mod stepped;

use std::fs::File;
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::num::Wrapping;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};

use crate::driver::{self, DESC_BYTES, DESC_F_NEXT, DESC_F_WRITE, Queue};
use crate::features;
use crate::frame::{ETHERNET_BYTES, HEADER_BYTES};
use crate::narrow::{to_u32, to_usize};
use crate::protocol::{F_PROTOCOL_FEATURES, HEADER_BYTES as MESSAGE_BYTES};
use crate::session::{RX, TX};

pub use self::stepped::{SteppedPlane, address};

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The size of each ring.
    pub entries: u16,
    /// Features that its driver accepts.
    pub features: u64,
    /// Bytes of each buffer.
    pub buffer_bytes: u32,
    /// The memory is shared, as with `share=on`.
    pub shared: bool,
    /// The file of the memory can be sealed, as QEMU's.
    pub sealable: bool,
    /// The front-end has lost the driver's features, as QEMU before 8.0 does (see [`crate::session`]). The
    /// rings are laid out as those of Linux for virtio 1.
    pub features_lost: bool,
    /// The front-end sends the avail index as the vring base, as Cloud Hypervisor does.
    pub base_is_avail: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            entries: 256,
            features: features::OFFERED,
            buffer_bytes: 2048,
            shared: true,
            sealable: true,
            features_lost: false,
            base_is_avail: false,
        }
    }
}

/// The address of the memory in the front-end.
const USER_ADDRESS: u64 = 0x7f00_0000_0000;

#[derive(Debug)]
pub struct FrontEnd {
    options: Options,
    stream: Option<UnixStream>,
    memory: GuestMemoryMmap,
    bytes: usize,
    queues: [Queue; 2],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub header: [u8; HEADER_BYTES],
    pub frame: Vec<u8>,
}

/// A frame of `bytes` bytes that carries `number`.
pub fn frame(to: [u8; 6], from: [u8; 6], number: u64, bytes: usize) -> Vec<u8> {
    let mut frame = [&to[..], &from[..], &[0x88, 0xb5], &number.to_le_bytes()].concat();
    frame.resize(bytes.max(frame.len()), 0xa5);
    frame
}

/// The number that a [`frame`] carries.
pub fn number(frame: &[u8]) -> u64 {
    let bytes = frame.get(ETHERNET_BYTES..ETHERNET_BYTES + 8).and_then(|bytes| bytes.try_into().ok());
    u64::from_le_bytes(bytes.unwrap_or_default())
}

fn other(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

/// Its connection ends at once, even while another thread of the tests forks a process, which has a copy of
/// the descriptor until it executes its program.
impl Drop for FrontEnd {
    fn drop(&mut self) {
        self.disconnect();
    }
}

impl FrontEnd {
    /// A VM that is not connected. Its RX ring is full of buffers.
    pub fn new(options: Options) -> io::Result<FrontEnd> {
        let align = if options.features_lost { 64 } else { driver::PAGE_BYTES };
        let (receive, end) = Queue::new(0, options.entries, options.buffer_bytes, align)?;
        let (send, end) = Queue::new(end, options.entries, options.buffer_bytes, align)?;
        let bytes = to_usize(end);
        let mut seals = rustix::fs::MemfdFlags::CLOEXEC;
        seals.set(rustix::fs::MemfdFlags::ALLOW_SEALING, options.sealable);
        let file = File::from(rustix::fs::memfd_create("front end", seals)?);
        file.set_len(end)?;
        let ranges = [(GuestAddress(0), bytes, Some(FileOffset::new(file, 0)))];
        let memory = GuestMemoryMmap::from_ranges_with_files(ranges).map_err(other)?;
        let mut front = FrontEnd { options, stream: None, memory, bytes, queues: [receive, send] };
        for head in 0..options.entries {
            let address = front.queues[RX].buffer(head);
            front.describe(RX, head, address, options.buffer_bytes, DESC_F_WRITE, 0)?;
            front.offer(RX, head)?;
        }
        Ok(front)
    }

    /// A connected VM.
    pub fn connected(socket: &Path, options: Options) -> io::Result<FrontEnd> {
        let mut front = FrontEnd::new(options)?;
        front.connect(socket)?;
        Ok(front)
    }

    /// Connects with the messages of QEMU 7.2. Rings continue where the last switch stopped.
    pub fn connect(&mut self, socket: &Path) -> io::Result<()> {
        self.stream = Some(UnixStream::connect(socket)?);
        let offered = self.request(1, &[])?;
        if offered & self.options.features != self.options.features {
            return Err(other("features are missing"));
        }
        self.request(15, &[])?;
        self.send_request(16, &[crate::protocol::PROTOCOL_F_REPLY_ACK], &[])?;
        self.send_request(3, &[], &[])?;
        for queue in [RX, TX] {
            self.send_request(18, &[queue as u64 | 1 << 32], &[])?;
        }
        let told = if self.options.features_lost { F_PROTOCOL_FEATURES } else { self.options.features };
        self.send_request(2, &[told], &[])?;
        self.share_memory()?;
        for queue in [RX, TX] {
            self.start_ring(queue)?;
        }
        // A reply means that all requests before it are done.
        self.request(1, &[]).map(drop)
    }

    fn memory_file(&self) -> io::Result<FileOffset> {
        let region = vm_memory::GuestMemoryBackend::iter(&self.memory).next();
        let file = region.and_then(|region| vm_memory::GuestMemoryRegion::file_offset(region).cloned());
        file.ok_or_else(|| other("memory without a file"))
    }

    fn share_memory(&self) -> io::Result<()> {
        let file = self.memory_file()?;
        let private;
        let shown = if self.options.shared {
            file.file().as_fd()
        } else {
            // The switch maps a file that the guest does not write.
            private = rustix::fs::memfd_create("private", rustix::fs::MemfdFlags::CLOEXEC)?;
            rustix::fs::ftruncate(&private, self.bytes as u64)?;
            private.as_fd()
        };
        self.send_request(5, &[1, 0, self.bytes as u64, USER_ADDRESS, 0], &[shown])
    }

    /// Sends size, base, addresses and events of a ring.
    pub fn start_ring(&self, queue: usize) -> io::Result<()> {
        let of = &self.queues[queue];
        let number = queue as u64;
        self.send_request(8, &[number | u64::from(of.entries) << 32], &[])?;
        let index = if self.options.base_is_avail { of.avail } else { of.used };
        let base: u16 = self.memory.load(GuestAddress(index + 2), Ordering::Acquire).map_err(other)?;
        self.send_request(10, &[number | u64::from(base) << 32], &[])?;
        let user = |address: u64| USER_ADDRESS + address;
        self.send_request(9, &[number, user(of.descriptors), user(of.used), user(of.avail), 0], &[])?;
        self.send_request(12, &[number], &[of.kick.as_fd()])?;
        self.send_request(13, &[number], &[of.call.as_fd()])
    }

    /// Stops a ring. Returns its vring base.
    pub fn stop_ring(&self, queue: usize) -> io::Result<u16> {
        Ok((self.request(11, &[queue as u64])? >> 32 & 0xffff) as u16)
    }

    pub fn disconnect(&mut self) {
        if let Some(stream) = self.stream.take() {
            // The other end may have closed it.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub fn send_request(&self, request: u32, body: &[u64], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let stream = self.stream.as_ref().ok_or_else(|| other("not connected"))?;
        let words = [request, 1, to_u32(body.len()) * 8];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.extend(body.iter().flat_map(|word| word.to_ne_bytes()));
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
            return Err(other("too many files"));
        }
        sendmsg(stream, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Sends a request and waits for its reply.
    pub fn request(&self, request: u32, body: &[u64]) -> io::Result<u64> {
        self.send_request(request, body, &[])?;
        let mut stream = self.stream.as_ref().ok_or_else(|| other("not connected"))?;
        let mut reply = [0; MESSAGE_BYTES + 8];
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.read_exact(&mut reply)?;
        Ok(u64::from_ne_bytes(reply[MESSAGE_BYTES..].try_into().map_err(other)?))
    }

    /// Writes a descriptor of a queue.
    pub fn describe(
        &mut self,
        queue: usize,
        index: u16,
        address: u64,
        bytes: u32,
        flags: u16,
        next: u16,
    ) -> io::Result<()> {
        let place = self.queues[queue].descriptors + u64::from(index) * DESC_BYTES;
        self.describe_at(place, address, bytes, flags, next)
    }

    /// Writes a descriptor anywhere, for example into an indirect table.
    pub fn describe_at(&self, place: u64, address: u64, bytes: u32, flags: u16, next: u16) -> io::Result<()> {
        driver::write_descriptor(&self.memory, place, address, bytes, flags, next)
    }

    /// Makes a chain available, and kicks if the switch wants it.
    pub fn offer(&mut self, queue: usize, head: u16) -> io::Result<()> {
        let index = self.queues[queue].push_avail(&self.memory, head)?;
        self.publish_avail(queue, index)
    }

    /// Stores the avail index, and kicks if the switch wants it.
    pub fn publish_avail(&mut self, queue: usize, index: u16) -> io::Result<()> {
        let event_idx = self.options.features & features::EVENT_IDX != 0;
        if self.queues[queue].publish_avail(&self.memory, index, event_idx)? {
            self.kick(queue);
        }
        Ok(())
    }

    pub fn kick(&self, queue: usize) {
        crate::sys::signal(&self.queues[queue].kick);
    }

    /// Replaces the call event, as QEMU does when the guest masks or moves an interrupt.
    pub fn replace_call(&mut self, queue: usize) -> io::Result<()> {
        self.queues[queue].call = crate::sys::eventfd()?;
        self.send_request(13, &[queue as u64], &[self.queues[queue].call.as_fd()])
    }

    /// Publishes a used entry in place of a switch that died before the call.
    pub fn use_without_call(&mut self, queue: usize) -> io::Result<()> {
        let place = GuestAddress(self.queues[queue].used + 2);
        let used: u16 = self.memory.load(place, Ordering::Acquire).map_err(other)?;
        self.memory.store(used.wrapping_add(1), place, Ordering::Release).map_err(other)
    }

    /// Shortens the file of the memory to one page. No part of it may be touched any more.
    pub fn shorten_memory(&self) -> io::Result<()> {
        self.memory_file()?.file().set_len(driver::PAGE_BYTES)
    }

    pub fn memory(&self) -> &GuestMemoryMmap {
        &self.memory
    }

    /// The guest address of a descriptor's buffer.
    pub fn buffer(&self, queue: usize, head: u16) -> u64 {
        self.queues[queue].buffer(head)
    }

    /// Sends a frame without offloads; `false` if the ring is full.
    pub fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        self.send_with([0; HEADER_BYTES], frame, usize::MAX)
    }

    /// Sends a frame with this header in descriptors of `piece` bytes; `false` if the ring is full.
    pub fn send_with(&mut self, header: [u8; HEADER_BYTES], frame: &[u8], piece: usize) -> io::Result<bool> {
        self.reclaim()?;
        let bytes = [&header[..], frame].concat();
        let pieces: Vec<&[u8]> = bytes.chunks(piece.min(self.options.buffer_bytes as usize)).collect();
        if self.queues[TX].free.len() < pieces.len() {
            return Ok(false);
        }
        let heads: Vec<u16> = pieces.iter().filter_map(|_| self.queues[TX].free.pop()).collect();
        for (at, (piece, &head)) in pieces.iter().zip(&heads).enumerate() {
            let address = self.buffer(TX, head);
            self.memory.write_slice(piece, GuestAddress(address)).map_err(other)?;
            let next = heads.get(at + 1).copied();
            let flags = next.map_or(0, |_| DESC_F_NEXT);
            self.describe(TX, head, address, to_u32(piece.len()), flags, next.unwrap_or(0))?;
        }
        self.offer(TX, heads[0])?;
        Ok(true)
    }

    /// Descriptors that the switch does not have.
    pub fn free(&self, queue: usize) -> usize {
        self.queues[queue].free.len()
    }

    /// Reclaims the buffers of sent frames. Returns the number of frames.
    pub fn reclaim(&mut self) -> io::Result<u32> {
        let mut count = 0;
        while let Some((head, _)) = self.used(TX)? {
            let (mut next, table) = (Some(head), self.queues[TX].descriptors);
            // A chain of a hostile guest may loop.
            for _ in 0..self.options.entries {
                let Some(index) = next else { break };
                self.queues[TX].free.push(index);
                let place = table + u64::from(index) * DESC_BYTES + 12;
                let [flags, after]: [u16; 2] = [place, place + 2]
                    .map(|place| self.memory.read_obj(GuestAddress(place)).unwrap_or_default());
                next = (flags & DESC_F_NEXT != 0).then_some(after);
            }
            count += 1;
        }
        Ok(count)
    }

    fn used(&mut self, queue: usize) -> io::Result<Option<(u16, u32)>> {
        self.queues[queue].pop_used(&self.memory)
    }

    /// The next received frame. Its buffers are made available again.
    pub fn receive(&mut self) -> io::Result<Option<Received>> {
        let Some((head, bytes)) = self.used(RX)? else { return Ok(None) };
        let mut data = self.take(head, bytes)?;
        let Some(&header) = data.first_chunk::<HEADER_BYTES>() else {
            return Err(other("a frame without a header"));
        };
        for _ in 1..u16::from_le_bytes([header[10], header[11]]) {
            let Some((head, bytes)) = self.used(RX)? else {
                return Err(other("a frame became publish_barrier in parts"));
            };
            data.extend(self.take(head, bytes)?);
        }
        Ok(Some(Received { header, frame: data.split_off(HEADER_BYTES) }))
    }

    /// The content of a used buffer, which is made available again.
    fn take(&mut self, head: u16, bytes: u32) -> io::Result<Vec<u8>> {
        let mut data = vec![0; bytes as usize];
        let address = self.buffer(RX, head);
        self.memory.read_slice(&mut data, GuestAddress(address)).map_err(other)?;
        self.offer(RX, head)?;
        Ok(data)
    }

    /// Waits up to `limit` for a frame.
    pub fn receive_within(&mut self, limit: Duration) -> io::Result<Option<Received>> {
        let end = Instant::now() + limit;
        loop {
            if let Some(received) = self.receive()? {
                return Ok(Some(received));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.wait_for_call(RX, left)?;
        }
    }

    /// Asks for a call, and waits until the next used entry is there.
    pub fn wait_for_call(&mut self, queue: usize, limit: Duration) -> io::Result<()> {
        if self.queues[queue].enable_call(&self.memory)? {
            return Ok(());
        }
        let of = &self.queues[queue];
        let timeout = rustix::time::Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        let mut waits = [rustix::event::PollFd::new(&of.call, rustix::event::PollFlags::IN)];
        if rustix::event::poll(&mut waits, Some(&timeout))? > 0 {
            let mut count = [0; 8];
            let _ = rustix::io::read(&of.call, &mut count);
        }
        Ok(())
    }

    /// Calls of the switch since the last wait.
    pub fn calls(&self, queue: usize) -> u64 {
        let mut count = [0; 8];
        match rustix::io::read(&self.queues[queue].call, &mut count) {
            Ok(8) => u64::from_ne_bytes(count),
            _ => 0,
        }
    }

    /// Fills every entry of the TX ring with this frame; [`FrontEnd::refill`] sends them all again.
    pub fn flood_with(&mut self, frame: &[u8]) -> io::Result<()> {
        self.flood_with_all(&[frame])
    }

    /// Fills the entries of the TX ring with these frames in turn; [`FrontEnd::refill`] sends them all again.
    pub fn flood_with_all(&mut self, frames: &[impl AsRef<[u8]>]) -> io::Result<()> {
        for (head, frame) in (0..self.options.entries).zip(frames.iter().cycle()) {
            let bytes = [&[0; HEADER_BYTES][..], frame.as_ref()].concat();
            let address = self.buffer(TX, head);
            self.memory.write_slice(&bytes, GuestAddress(address)).map_err(other)?;
            self.describe(TX, head, address, to_u32(bytes.len()), 0, 0)?;
            let slot = GuestAddress(self.queues[TX].avail + 4 + 2 * u64::from(head));
            self.memory.store(head.to_le(), slot, Ordering::Relaxed).map_err(other)?;
        }
        Ok(())
    }

    /// Makes `entries` more entries of a queue available, whatever they hold, as far as the switch has used
    /// others. Returns how many.
    pub fn offer_again(&mut self, queue: usize, entries: u16) -> io::Result<u16> {
        let of = &mut self.queues[queue];
        let used: u16 = self.memory.load(GuestAddress(of.used + 2), Ordering::Acquire).map_err(other)?;
        of.next_used = Wrapping(used);
        let busy = (of.next_avail - Wrapping(used)).0;
        let count = entries.min(of.entries - busy);
        let index = of.next_avail + Wrapping(count);
        self.publish_avail(queue, index.0)?;
        Ok(count)
    }

    /// Makes all used entries of a queue available again without reading them, if there are `least` or more.
    /// The switch uses entries in order, so the ring's contents stay valid. Returns their number.
    pub fn refill(&mut self, queue: usize, least: u16) -> io::Result<u16> {
        let of = &mut self.queues[queue];
        let used: u16 = self.memory.load(GuestAddress(of.used + 2), Ordering::Acquire).map_err(other)?;
        let count = Wrapping(used) - of.next_used;
        let is_first = of.next_avail - Wrapping(used) != Wrapping(of.entries) && count.0 == 0;
        if count.0 < least && !is_first {
            return Ok(0);
        }
        of.next_used = Wrapping(used);
        let full = used.wrapping_add(of.entries);
        if full != of.next_avail.0 {
            self.publish_avail(queue, full)?;
        }
        Ok(count.0)
    }
}
