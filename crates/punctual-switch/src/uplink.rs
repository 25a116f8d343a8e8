//! An uplink: a port with a [`Wire`] instead of a VM.
//!
//! Its thread moves frames between the wire and rings in memory of its own, as a VM's driver would. Planes
//! see one more port under the discipline's rules and never make a system call for a wire, so a slow write
//! delays no urgent packet. Frames are read from the wire into buffers of the TX ring, and written to it from
//! buffers of the RX ring; the only copy is the one between rings that every packet has.
//!
//! # Bounds
//! A turn moves at most [`FRAMES_PER_TURN`] frames in each direction. Frames are moved in batches of at most
//! [`FRAMES_PER_BATCH`]: the switch sees those of a batch together, and the wire may send them together. So a
//! frame waits for the frames before it in its own direction, for the rest of its batch, and for a nap of the
//! thread ([`NAP`]). Planes wait for none of this. If a rate limit or the discipline holds
//! the port back, its TX ring fills up, and the thread does not read the wire until there is room. Frames
//! that the wire does not accept are dropped and counted as lost.
//!
//! # Idle
//! The thread sleeps until the wire, the switch or the stop event wakes it. It never polls, and has a timer
//! only during a nap, or while the wire has no room for a frame.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use punctual_sched::{Duration, Instant};
use rustix::event::{PollFd, PollFlags, epoll, poll};
use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryRegion, MemoryRegionAddress, VolatileSlice};

use crate::budget::{Meter, PlaneBudget};
use crate::counters::Counters;
use crate::driver::{self, DESC_BYTES, DESC_F_WRITE, PAGE_BYTES, Queue};
use crate::features;
use crate::frame::{FRAME_BYTES_MAX, HEADER_BYTES};
use crate::memory::Memory;
use crate::narrow::{nanos, to_u32};
use crate::protocol::Region;
use crate::ring::VringConfig;
use crate::sys::{processor_time, signal, timespec};
use crate::wire::{Flushed, Wire};

/// The size of each ring.
const ENTRIES: u16 = 256;

/// Room for the longest frame, and for one byte more, so that a longer frame is recognized.
const BUFFER_BYTES: u32 = (FRAME_BYTES_MAX + to_u32(HEADER_BYTES) + 1).next_multiple_of(1024);

/// Frames in each direction between two checks of the stop flag.
const FRAMES_PER_TURN: usize = 64;

/// Frames that the switch sees together, and that the wire sends together.
const FRAMES_PER_BATCH: usize = 32;

/// After a sleep that was shorter than this, the thread takes naps while frames come: a wake-up costs as much
/// as several frames.
const SHORT_SLEEP: Duration = Duration::from_us(20);

/// A nap, which nothing ends (measurements/2026-11-28-switch-uplinks).
const NAP: Duration = Duration::from_us(50);

/// When a wire that had no room for frames is asked again.
const BEHIND_RETRY: Duration = Duration::from_us(100);

/// The uplink's driver accepts all offered features but these two: its buffers hold any frame.
const FEATURES: u64 = features::OFFERED & !(features::MRG_RXBUF | features::INDIRECT_DESC);

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
    /// The epoll set includes the wire.
    reads_wire: bool,
    /// The wire has frames for which it had no room.
    is_behind: bool,
    /// Frames that were moved.
    moved: u64,
    /// The last sleep that something ended was shorter than [`SHORT_SLEEP`].
    slept_little: bool,
    /// This thread's use of its plane's budget.
    meter: Option<Meter>,
    start: std::time::Instant,
}

/// Stops an uplink's thread.
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

/// The result of a turn.
#[derive(PartialEq, Eq)]
enum Progress {
    /// Frames were moved, and there may be more.
    Busy,
    Idle,
}

impl Uplink {
    /// An uplink to `wire`, whose RX ring is full of buffers.
    ///
    /// # Errors
    /// When the kernel provides no memory or no events.
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
            // No plane serves the ring yet, so no kick is needed.
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
            is_behind: false,
            moved: 0,
            slept_little: false,
            meter: None,
            start: std::time::Instant::now(),
        })
    }

    pub(crate) fn stopper(&self) -> UplinkStopper {
        UplinkStopper { event: Arc::clone(&self.stop), flag: Arc::clone(&self.stopped) }
    }

    /// The RX and the TX ring as the switch sees them.
    ///
    /// # Errors
    /// When the process has too many file descriptors.
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

    /// Moves frames until it is stopped, within the budget of its plane. `start` is the origin of the
    /// switch's clock.
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
        // Naps end in time. A thread of real-time priority has no slack anyway.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        while !self.stopped.load(Ordering::Acquire) {
            if self.throttle() {
                continue;
            }
            let before = self.moved;
            let (read, written) = (self.read_wire()?, self.write_wire()?);
            if read == Progress::Busy || written == Progress::Busy {
                continue;
            }
            if self.slept_little && self.moved > before {
                self.rest(|_| drop(rustix::thread::nanosleep(&timespec(NAP))));
            } else if !self.enable_calls()? {
                self.slept_little = self.rest(Uplink::sleep) < SHORT_SLEEP;
            }
        }
        // The last frames must not wait for a replenishment.
        self.meter = None;
        // Frames that were delivered before the stop.
        for _ in 0..=usize::from(ENTRIES) / FRAMES_PER_TURN {
            self.write_wire()?;
        }
        Ok(())
    }

    fn now(&self) -> Instant {
        Instant::from_ns(nanos(self.start.elapsed()))
    }

    /// Must the budget be checked?
    fn is_due(&self) -> bool {
        self.meter.as_ref().is_some_and(|meter| meter.is_due(self.now()))
    }

    /// Waits for a replenishment, or the stop event, if the budget is exhausted. Returns whether it was.
    fn throttle(&mut self) -> bool {
        let now = self.now();
        let Some(meter) = self.meter.as_mut().filter(|meter| meter.is_due(now)) else { return false };
        let Some(until) = meter.settle(now) else { return false };
        let timeout = (until != Instant::NEVER).then(|| timespec(until.since(now)));
        // Nobody reads this event, so it stays readable once it is signalled.
        let _ = poll(&mut [PollFd::new(&self.stop, PollFlags::IN)], timeout.as_ref());
        true
    }

    /// Lets the thread sleep. Returns for how long.
    fn rest(&mut self, sleep: impl FnOnce(&Uplink)) -> Duration {
        let took = processor_time().as_ns();
        self.counters.processor_ns.store(took, Ordering::Relaxed);
        let start = self.now();
        if let Some(meter) = &mut self.meter {
            meter.sleep(start);
        }
        sleep(self);
        self.counters.wakeups.fetch_add(1, Ordering::Relaxed);
        let now = self.now();
        if let Some(meter) = &mut self.meter {
            meter.wake(now);
        }
        now.since(start)
    }

    /// Sleeps until the wire, a ring or the stop event is ready.
    fn sleep(&self) {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 4];
        let timeout = self.is_behind.then(|| timespec(BEHIND_RETRY));
        // An interrupted wait is a wake-up like any other.
        let _ = epoll::wait(&self.epoll, &mut events[..], timeout.as_ref());
    }

    fn buffer<'a>(memory: &'a Memory, queue: &Queue, head: u16, bytes: u32) -> io::Result<VolatileSlice<'a>> {
        let address = GuestAddress(queue.buffer(head));
        let outside = || io::Error::other("a buffer is outside of the memory");
        let (region, at): (_, MemoryRegionAddress) =
            memory.guest.to_region_addr(address).ok_or_else(outside)?;
        region.get_slice(at, bytes as usize).map_err(|_| outside())
    }

    /// Moves frames from the wire to the TX ring. The switch sees those of a batch together.
    fn read_wire(&mut self) -> io::Result<Progress> {
        for _ in 0..FRAMES_PER_TURN / FRAMES_PER_BATCH {
            let mut index = self.send.next_avail.0;
            let read = self.read_batch(&mut index);
            if index != self.send.next_avail.0 && self.send.publish_avail(&self.memory.guest, index, true)? {
                signal(&self.send.kick);
            }
            if read? == Progress::Idle {
                return Ok(Progress::Idle);
            }
        }
        Ok(Progress::Busy)
    }

    /// Reads a batch into the TX ring, up to the avail index `index`, and does not publish it.
    fn read_batch(&mut self, index: &mut u16) -> io::Result<Progress> {
        for _ in 0..FRAMES_PER_BATCH {
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
            driver::write_descriptor(&self.memory.guest, place, self.send.buffer(head), to_u32(bytes), 0, 0)?;
            *index = self.send.push_avail_at(&self.memory.guest, *index, head)?;
            self.moved += 1;
        }
        Ok(Progress::Busy)
    }

    /// Moves frames from the RX ring to the wire, which sends those of a batch together.
    fn write_wire(&mut self) -> io::Result<Progress> {
        for _ in 0..FRAMES_PER_TURN / FRAMES_PER_BATCH {
            let mut index = self.receive.next_avail.0;
            let written = self.write_batch(&mut index);
            let Flushed { lost, is_behind } = self.wire.flush();
            self.counters.lost.fetch_add(lost.into(), Ordering::Relaxed);
            self.is_behind = is_behind;
            if index != self.receive.next_avail.0
                && self.receive.publish_avail(&self.memory.guest, index, true)?
            {
                signal(&self.receive.kick);
            }
            if written? == Progress::Idle {
                return Ok(Progress::Idle);
            }
        }
        Ok(Progress::Busy)
    }

    /// Gives the wire a batch, and the buffers back to the RX ring up to the avail index `index`, which is
    /// not published.
    fn write_batch(&mut self, index: &mut u16) -> io::Result<Progress> {
        for _ in 0..FRAMES_PER_BATCH {
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
            *index = self.receive.push_avail_at(&self.memory.guest, *index, head)?;
            self.moved += 1;
        }
        Ok(Progress::Busy)
    }

    /// Enables calls of the rings and events of the wire. Returns whether there is work already.
    fn enable_calls(&mut self) -> io::Result<bool> {
        let is_full = self.send.free.is_empty();
        if is_full == self.reads_wire {
            // While the TX ring is full, frames on the wire must not wake the thread. Modifying the entry
            // also makes epoll report a wire that is readable already.
            self.reads_wire = !is_full;
            let flags = if is_full { epoll::EventFlags::empty() } else { epoll::EventFlags::IN };
            let flags = flags | epoll::EventFlags::ET;
            epoll::modify(&self.epoll, self.wire.descriptor(), epoll::EventData::new_u64(0), flags)?;
        }
        let frees = is_full && self.send.enable_call(&self.memory.guest)?;
        Ok(self.receive.enable_call(&self.memory.guest)? || frees)
    }
}
