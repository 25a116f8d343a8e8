//! Receive queues of cards, and streams that come to them.

use std::collections::VecDeque;

use punctual_host_stack::{Priority, ThreadId};

/// What a frame of a stream takes on the wire, in bytes: Ethernet header, checksum, preamble and gap beside
/// 1500.
const WIRE_BYTES: u64 = 1538;
/// A receive queue of a card, with its interrupt on one processor.
pub(crate) struct Queue {
    pub(crate) card: usize,
    pub(crate) cpu: usize,
    pub(crate) priority: Priority,
    pub(crate) irq_thread: Option<ThreadId>,
    pub(crate) napi_thread: Option<ThreadId>,
    pub(crate) irq_on: bool,
    /// The IRQ thread has an interrupt to handle.
    pub(crate) handle: bool,
    pub(crate) last_interrupt: Option<u64>,
    pub(crate) generation: u32,
    pub(crate) due: Option<u64>,
    /// Requests in the ring with the time at which they came.
    pub(crate) requests: VecDeque<(u64, u32)>,
    pub(crate) streams: Vec<usize>,
    /// Packets that its processor has sent through the card since the last that was looked at.
    pub(crate) sampled: u32,
}

impl Queue {
    pub(crate) fn new(card: usize, cpu: usize, priority: Priority) -> Self {
        Queue {
            card,
            cpu,
            priority,
            irq_thread: None,
            napi_thread: None,
            irq_on: true,
            handle: false,
            last_interrupt: None,
            generation: 0,
            due: None,
            requests: VecDeque::new(),
            streams: Vec::new(),
            sampled: 0,
        }
    }
}

/// A TCP stream to an instance.
pub(crate) struct Stream {
    pub(crate) instance: usize,
    pub(crate) queue: usize,
    /// The queue that it comes to when nothing of it waits in its present one.
    pub(crate) next_queue: usize,
    /// Distance of two frames on the link.
    pub(crate) spacing: u64,
    /// When the next frame arrives, if the window has room.
    pub(crate) next: u64,
    /// Frames that may still come.
    pub(crate) room: u32,
    pub(crate) window: u32,
    /// Frames that the process has not read.
    pub(crate) unread: u32,
}

impl Stream {
    pub(crate) fn new(instance: usize, queue: usize, spacing: u64, next: u64, window: u32) -> Self {
        Stream { instance, queue, next_queue: queue, spacing, next, room: window, window, unread: 0 }
    }
}

/// Distance of the frames of each of `streams` streams on a link.
pub(crate) fn spacing_ns(bandwidth_bps: u64, streams: u64) -> u64 {
    (WIRE_BYTES * 8 * 1_000_000_000 * streams / bandwidth_bps.max(1)).max(1)
}
