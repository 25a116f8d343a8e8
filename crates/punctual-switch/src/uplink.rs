//! An uplink: a port behind which there is no VM but a [`Wire`].
//!
//! A thread of its own moves frames between the wire and rings in a memory of its own, as a VM's driver
//! would. So planes see one more port with the discipline's rules, and never make a system call for a wire:
//! a write that takes long delays no urgent packet. Frames are read from the wire into a buffer of the send
//! ring and written to it from a buffer of the receive ring; the only copy is that between rings, which every
//! packet has.
//!
//! # Bounds
//! In a turn at most [`FRAMES_PER_TURN`] frames go in each direction. A port whose rate limit or discipline holds it
//! back fills its ring; then its wire is not read until there is room. What the wire does not take is lost
//! and counted.
//!
//! # Idle
//! The thread sleeps until the wire, the switch or the end wakes it. It has no timer and never polls.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use punctual_sched::Instant;
use rustix::event::{PollFd, PollFlags, epoll, poll};
use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryRegion, MemoryRegionAddress, VolatileSlice};

use crate::budget::{Meter, PlaneBudget};
use crate::counters::Counters;
use crate::driver::{self, DESC_BYTES, DESC_F_WRITE, PAGE_BYTES, Queue};
use crate::features;
use crate::frame::{FRAME_BYTES_MAX, HEADER_BYTES};
use crate::memory::Memory;
use crate::protocol::Region;
use crate::ring::VringConfig;
use crate::sys::{processor_time, signal, timespec};
use crate::wire::Wire;

/// Entries of each ring.
const ENTRIES: u16 = 256;

/// Each buffer holds the longest frame, and so much more that a longer one is seen to be too long.
const BUFFER_BYTES: u32 = (FRAME_BYTES_MAX + HEADER_BYTES as u32 + 1).next_multiple_of(1024);

/// Frames in each direction between two looks at the end.
const FRAMES_PER_TURN: usize = 64;

/// What a wire takes: everything that a port offers but frames in several buffers, which it does not need.
const FEATURES: u64 = features::OFFERED & !(features::MRG_RXBUF | features::INDIRECT_DESC);

/// The rings of an uplink and its wire; see the module.
#[derive(Debug)]
pub(crate) struct Uplink {
    memory: Arc<Memory>,
    receive: Queue,
    send: Queue,
    wire: Box<dyn Wire>,
    epoll: OwnedFd,
    stop: Arc<OwnedFd>,
    stopped: Arc<AtomicBool>,
    counters: Arc<Counters>,
    /// Is the wire read?
    reads_wire: bool,
    /// This thread's part in its plane's budget.
    meter: Option<Meter>,
    start: std::time::Instant,
}

/// How to end an uplink's thread.
#[derive(Clone, Debug)]
pub(crate) struct UplinkStopper {
    event: Arc<OwnedFd>,
    flag: Arc<AtomicBool>,
}

impl UplinkStopper {
    pub(crate) fn stop(&self) {
        self.flag.store(true, Ordering::Release);
        signal(&self.event);
    }
}

/// What is done in a turn.
#[derive(PartialEq, Eq)]
enum Progress {
    /// Something; there may be more.
    Busy,
    /// Nothing.
    Idle,
}

impl Uplink {
    /// An uplink to `wire`, whose receive ring is full of buffers.
    ///
    /// # Errors
    /// When the kernel gives no memory or no events.
    pub(crate) fn new(wire: Box<dyn Wire>, counters: Arc<Counters>) -> io::Result<Uplink> {
        let (mut receive, end) = Queue::new(0, ENTRIES, BUFFER_BYTES, PAGE_BYTES)?;
        let (send, end) = Queue::new(end, ENTRIES, BUFFER_BYTES, PAGE_BYTES)?;
        let seals = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create("uplink", seals)?);
        file.set_len(end)?;
        let region = Region { guest_address: 0, bytes: end, user_address: 0, offset: 0, file: file.into() };
        let memory = Memory::map(vec![region]).map_err(|error| io::Error::other(error.to_string()))?;
        for head in 0..ENTRIES {
            let place = receive.descriptors + u64::from(head) * DESC_BYTES;
            driver::write_descriptor(
                &memory.guest,
                place,
                receive.buffer(head),
                BUFFER_BYTES,
                DESC_F_WRITE,
                0,
            )?;
            let index = receive.push_avail(&memory.guest, head)?;
            // Nobody listens yet.
            receive.publish_avail(&memory.guest, index, true)?;
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let stop = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let nothing = epoll::EventData::new_u64(0);
        for event in [stop.as_fd(), receive.call.as_fd(), send.call.as_fd()] {
            epoll::add(&epoll, event, nothing, flags)?;
        }
        epoll::add(&epoll, wire.descriptor(), nothing, flags)?;
        Ok(Uplink {
            memory: Arc::new(memory),
            receive,
            send,
            wire,
            epoll,
            stop: Arc::new(stop),
            stopped: Arc::default(),
            counters,
            reads_wire: true,
            meter: None,
            start: std::time::Instant::now(),
        })
    }

    /// How the thread is ended.
    pub(crate) fn stopper(&self) -> UplinkStopper {
        UplinkStopper { event: Arc::clone(&self.stop), flag: Arc::clone(&self.stopped) }
    }

    /// The rings as the switch sees them: that with which the uplink receives, and that with which it sends.
    ///
    /// # Errors
    /// When there are too many descriptors.
    pub(crate) fn vring_configs(&self) -> io::Result<[VringConfig; 2]> {
        let config = |queue: &Queue| -> io::Result<VringConfig> {
            Ok(VringConfig {
                memory: Arc::clone(&self.memory),
                size: queue.entries,
                desc_table: queue.descriptors,
                avail_ring: queue.avail,
                used_ring: queue.used,
                features: FEATURES,
                features_assumed: false,
                kick: Arc::new(queue.kick.try_clone()?),
                call: Some(Arc::new(queue.call.try_clone()?)),
                err: None,
            })
        };
        Ok([config(&self.receive)?, config(&self.send)?])
    }

    /// Moves frames until it is told to end, within the budget of its plane, whose clock began at `start`.
    ///
    /// # Errors
    /// When the wire is gone.
    pub(crate) fn run(
        mut self,
        plane_budget: Option<Arc<PlaneBudget>>,
        start: std::time::Instant,
    ) -> io::Result<()> {
        self.start = start;
        self.meter = plane_budget.map(|plane_budget| Meter::new(plane_budget, self.now()));
        while !self.stopped.load(Ordering::Acquire) {
            if self.throttle() {
                continue;
            }
            let (read, written) = (self.read_wire()?, self.write_wire()?);
            if read == Progress::Idle && written == Progress::Idle && !self.enable_calls()? {
                self.sleep();
            }
        }
        // The end is not the flood's.
        self.meter = None;
        // What was delivered before the end.
        for _ in 0..=usize::from(ENTRIES) / FRAMES_PER_TURN {
            self.write_wire()?;
        }
        Ok(())
    }

    fn now(&self) -> Instant {
        Instant::from_ns(self.start.elapsed().as_nanos() as u64)
    }

    /// Has the budget to be looked at?
    fn is_due(&self) -> bool {
        self.meter.as_ref().is_some_and(|meter| meter.is_due(self.now()))
    }

    /// Is the budget used up? Then this waits until there is some, or the end.
    fn throttle(&mut self) -> bool {
        let now = self.now();
        let Some(meter) = self.meter.as_mut().filter(|meter| meter.is_due(now)) else { return false };
        let Some(until) = meter.settle(now) else { return false };
        let timeout = (until != Instant::NEVER).then(|| timespec(until.since(now)));
        // Nobody reads this bell, so it is heard whenever it rang.
        let _ = poll(&mut [PollFd::new(&self.stop, PollFlags::IN)], timeout.as_ref());
        true
    }

    /// Sleeps until something happens.
    fn sleep(&mut self) {
        let took = processor_time().as_ns();
        self.counters.processor_ns.store(took, Ordering::Relaxed);
        let now = self.now();
        if let Some(meter) = &mut self.meter {
            meter.sleep(now);
        }
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 4];
        // An interrupted wait is as good as any.
        let _ = epoll::wait(&self.epoll, &mut events[..], None);
        self.counters.wakeups.fetch_add(1, Ordering::Relaxed);
        let now = self.now();
        if let Some(meter) = &mut self.meter {
            meter.wake(now);
        }
    }

    /// An entry's buffer.
    fn buffer<'a>(memory: &'a Memory, queue: &Queue, head: u16, bytes: u32) -> io::Result<VolatileSlice<'a>> {
        let address = GuestAddress(queue.buffer(head));
        let outside = || io::Error::other("a buffer outside of the memory");
        let (region, at): (_, MemoryRegionAddress) =
            memory.guest.to_region_addr(address).ok_or_else(outside)?;
        region.get_slice(at, bytes as usize).map_err(|_| outside())
    }

    /// Frames from the wire to the switch.
    fn read_wire(&mut self) -> io::Result<Progress> {
        for _ in 0..FRAMES_PER_TURN {
            if self.is_due() {
                return Ok(Progress::Busy);
            }
            while let Some((head, _)) = self.send.pop_used(&self.memory.guest)? {
                self.send.free.push(head);
            }
            let Some(&head) = self.send.free.last() else {
                return Ok(Progress::Idle);
            };
            let mut room = Uplink::buffer(&self.memory, &self.send, head, BUFFER_BYTES)?;
            let Some(bytes) = self.wire.receive(&mut room)? else {
                return Ok(Progress::Idle);
            };
            self.send.free.pop();
            let place = self.send.descriptors + u64::from(head) * DESC_BYTES;
            driver::write_descriptor(&self.memory.guest, place, self.send.buffer(head), bytes as u32, 0, 0)?;
            let index = self.send.push_avail(&self.memory.guest, head)?;
            if self.send.publish_avail(&self.memory.guest, index, true)? {
                signal(&self.send.kick);
            }
        }
        Ok(Progress::Busy)
    }

    /// Frames from the switch to the wire.
    fn write_wire(&mut self) -> io::Result<Progress> {
        for _ in 0..FRAMES_PER_TURN {
            if self.is_due() {
                return Ok(Progress::Busy);
            }
            let Some((head, bytes)) = self.receive.pop_used(&self.memory.guest)? else {
                return Ok(Progress::Idle);
            };
            let mut frame = Uplink::buffer(&self.memory, &self.receive, head, bytes.min(BUFFER_BYTES))?;
            if !self.wire.send(&mut frame) {
                self.counters.lost.fetch_add(1, Ordering::Relaxed);
            }
            let index = self.receive.push_avail(&self.memory.guest, head)?;
            if self.receive.publish_avail(&self.memory.guest, index, true)? {
                signal(&self.receive.kick);
            }
        }
        Ok(Progress::Busy)
    }

    /// Asks to hear of what happens next. Has it happened already?
    fn enable_calls(&mut self) -> io::Result<bool> {
        let is_full = self.send.free.is_empty();
        if is_full == self.reads_wire {
            // A full ring must not be woken for by every frame that comes. Setting the flags again also asks
            // whether something came meanwhile.
            self.reads_wire = !is_full;
            let flags = if is_full { epoll::EventFlags::empty() } else { epoll::EventFlags::IN };
            let flags = flags | epoll::EventFlags::ET;
            epoll::modify(&self.epoll, self.wire.descriptor(), epoll::EventData::new_u64(0), flags)?;
        }
        let frees = is_full && self.send.enable_call(&self.memory.guest)?;
        Ok(self.receive.enable_call(&self.memory.guest)? || frees)
    }
}
