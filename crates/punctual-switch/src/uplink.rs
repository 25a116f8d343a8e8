//! An uplink: a port behind which there is no VM but a [`Wire`].
//!
//! A thread of its own moves frames between the wire and rings in a memory of its own, as a VM's driver
//! would. So planes see one more port with the discipline's rules, and never make a system call for a wire:
//! a write that takes long delays no urgent packet. Frames are read from the wire into a buffer of the send
//! ring and written to it from a buffer of the receive ring; the only copy is that between rings, which every
//! packet has.
//!
//! # Bounds
//! In a turn at most [`TURN`] frames go in each direction. A port whose rate limit or discipline holds it
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

use crate::budget::{Account, Meter};
use crate::counters::Counters;
use crate::driver::{self, DESCRIPTOR_BYTES, PAGE_BYTES, Queue, WRITE};
use crate::features;
use crate::frame::{FRAME_BYTES_MAX, HEADER_BYTES};
use crate::memory::Memory;
use crate::protocol::Region;
use crate::ring::Setup;
use crate::sys::{processor_time, ring_bell, timespec};
use crate::wire::Wire;

/// Entries of each ring.
const ENTRIES: u16 = 256;

/// Each buffer holds the longest frame, and so much more that a longer one is seen to be too long.
const BUFFER_BYTES: u32 = (FRAME_BYTES_MAX + HEADER_BYTES as u32 + 1).next_multiple_of(1024);

/// Frames in each direction between two looks at the end.
const TURN: usize = 64;

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
    reads: bool,
    /// This thread's part in its plane's budget.
    meter: Option<Meter>,
    start: std::time::Instant,
}

/// How to end an uplink's thread.
#[derive(Clone, Debug)]
pub(crate) struct StopUplink {
    event: Arc<OwnedFd>,
    flag: Arc<AtomicBool>,
}

impl StopUplink {
    pub(crate) fn stop(&self) {
        self.flag.store(true, Ordering::Release);
        ring_bell(&self.event);
    }
}

/// What is done in a turn.
#[derive(PartialEq, Eq)]
enum Turn {
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
            let place = receive.descriptors + u64::from(head) * DESCRIPTOR_BYTES;
            driver::describe(&memory.guest, place, receive.buffer(head), BUFFER_BYTES, WRITE, 0)?;
            let index = receive.put(&memory.guest, head)?;
            // Nobody listens yet.
            receive.show(&memory.guest, index, true)?;
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
            reads: true,
            meter: None,
            start: std::time::Instant::now(),
        })
    }

    /// How the thread is ended.
    pub(crate) fn stopper(&self) -> StopUplink {
        StopUplink { event: Arc::clone(&self.stop), flag: Arc::clone(&self.stopped) }
    }

    /// The rings as the switch sees them: that with which the uplink receives, and that with which it sends.
    ///
    /// # Errors
    /// When there are too many descriptors.
    pub(crate) fn setups(&self) -> io::Result<[Setup; 2]> {
        let setup = |queue: &Queue| -> io::Result<Setup> {
            Ok(Setup {
                memory: Arc::clone(&self.memory),
                entries: queue.entries,
                descriptors: queue.descriptors,
                available: queue.available,
                used: queue.used,
                features: FEATURES,
                assumed: false,
                kick: Arc::new(queue.kick.try_clone()?),
                call: Some(Arc::new(queue.call.try_clone()?)),
                error: None,
            })
        };
        Ok([setup(&self.receive)?, setup(&self.send)?])
    }

    /// Moves frames until it is told to end, within the budget of its plane, whose clock began at `start`.
    ///
    /// # Errors
    /// When the wire is gone.
    pub(crate) fn run(mut self, account: Option<Arc<Account>>, start: std::time::Instant) -> io::Result<()> {
        self.start = start;
        self.meter = account.map(|account| Meter::new(account, self.now()));
        while !self.stopped.load(Ordering::Acquire) {
            if self.waits_for_budget() {
                continue;
            }
            let (came, went) = (self.come()?, self.go()?);
            if came == Turn::Idle && went == Turn::Idle && !self.listen()? {
                self.sleep();
            }
        }
        // The end is not the flood's.
        self.meter = None;
        // What was delivered before the end.
        for _ in 0..=usize::from(ENTRIES) / TURN {
            self.go()?;
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
    fn waits_for_budget(&mut self) -> bool {
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
    fn come(&mut self) -> io::Result<Turn> {
        for _ in 0..TURN {
            if self.is_due() {
                return Ok(Turn::Busy);
            }
            while let Some((head, _)) = self.send.take_used(&self.memory.guest)? {
                self.send.free.push(head);
            }
            let Some(&head) = self.send.free.last() else {
                return Ok(Turn::Idle);
            };
            let mut room = Uplink::buffer(&self.memory, &self.send, head, BUFFER_BYTES)?;
            let Some(bytes) = self.wire.receive(&mut room)? else {
                return Ok(Turn::Idle);
            };
            self.send.free.pop();
            let place = self.send.descriptors + u64::from(head) * DESCRIPTOR_BYTES;
            driver::describe(&self.memory.guest, place, self.send.buffer(head), bytes as u32, 0, 0)?;
            let index = self.send.put(&self.memory.guest, head)?;
            if self.send.show(&self.memory.guest, index, true)? {
                ring_bell(&self.send.kick);
            }
        }
        Ok(Turn::Busy)
    }

    /// Frames from the switch to the wire.
    fn go(&mut self) -> io::Result<Turn> {
        for _ in 0..TURN {
            if self.is_due() {
                return Ok(Turn::Busy);
            }
            let Some((head, bytes)) = self.receive.take_used(&self.memory.guest)? else {
                return Ok(Turn::Idle);
            };
            let mut frame = Uplink::buffer(&self.memory, &self.receive, head, bytes.min(BUFFER_BYTES))?;
            if !self.wire.send(&mut frame) {
                self.counters.lost.fetch_add(1, Ordering::Relaxed);
            }
            let index = self.receive.put(&self.memory.guest, head)?;
            if self.receive.show(&self.memory.guest, index, true)? {
                ring_bell(&self.receive.kick);
            }
        }
        Ok(Turn::Busy)
    }

    /// Asks to hear of what happens next. Has it happened already?
    fn listen(&mut self) -> io::Result<bool> {
        let is_full = self.send.free.is_empty();
        if is_full == self.reads {
            // A full ring must not be woken for by every frame that comes. Setting the flags again also asks
            // whether something came meanwhile.
            self.reads = !is_full;
            let flags = if is_full { epoll::EventFlags::empty() } else { epoll::EventFlags::IN };
            let flags = flags | epoll::EventFlags::ET;
            epoll::modify(&self.epoll, self.wire.descriptor(), epoll::EventData::new_u64(0), flags)?;
        }
        let frees = is_full && self.send.listen(&self.memory.guest)?;
        Ok(self.receive.listen(&self.memory.guest)? || frees)
    }
}
