//! Receive queues of cards: what arrives when, and when they interrupt.
//!
//! Frames of streams are not events: a queue computes how many have arrived when it is polled. A stream has
//! at most its window of frames that the process has not read, and a queue that is full stops its link, so
//! its frames come no earlier than they fit.

use punctual_host_stack::softnet::{List, WEIGHT};
use punctual_model::results::HostPart;

use crate::machine::{Machine, Timed};
use crate::packet::{FRAME_BYTES, Packet, Payload};
use crate::queue::Queue;
use crate::request::Request;
use crate::watch::{Event, Watch};

/// Frames of a stream that are merged to one packet at most: 64 KiB (GRO).
const GRO_FRAMES: u32 = 45;

impl<W: Watch> Machine<'_, W> {
    /// The arrival of the first frame of the queue, past or future.
    fn first_arrival(&self, queue: usize) -> Option<u64> {
        let queue = &self.queues[queue];
        let streams = queue.streams.iter().map(|&stream| &self.streams[stream]);
        let streams = streams.filter(|stream| stream.room > 0).map(|stream| stream.next);
        streams.chain(queue.requests.front().map(|request| request.0)).min()
    }

    /// Schedules the queue's next interrupt.
    pub(crate) fn arm_interrupt(&mut self, queue: usize) {
        if !self.queues[queue].irq_on {
            return;
        }
        let Some(first) = self.first_arrival(queue) else { return };
        let state = &self.queues[queue];
        let coalesce = self.stack.cards[state.card].coalesce.as_ns();
        let earliest = state.last_interrupt.map_or(0, |last| last + coalesce);
        let due = self.now.max(first).max(earliest);
        if state.due.is_some_and(|before| before <= due) {
            return;
        }
        let state = &mut self.queues[queue];
        state.due = Some(due);
        state.generation += 1;
        let what = Timed::Interrupt(queue, state.generation);
        self.at(due, what);
    }

    /// The queue interrupts its processor.
    pub(crate) fn interrupt(&mut self, queue: usize) {
        let state = &mut self.queues[queue];
        (state.irq_on, state.due, state.last_interrupt) = (false, None, Some(self.now));
        let (card, cpu) = (state.card, state.cpu);
        self.stamp_ring(queue, HostPart::CardReceive);
        self.observe(Event::Interrupt { card, cpu });
        self.touch(cpu);
        self.cpus[cpu].raised.push_back(queue);
    }

    /// Stamps all requests in the ring: since their last stamp they spent their time on `part`.
    pub(crate) fn stamp_ring(&mut self, queue: usize, part: HostPart) {
        for at in 0..self.queues[queue].requests.len() {
            let request = self.queues[queue].requests[at].1;
            self.stamp(request, part);
        }
    }

    pub(crate) fn request_arrives(&mut self, queue: usize, request: u32) {
        self.stamp(request, HostPart::CardReceive);
        self.queues[queue].requests.push_back((self.now, request));
        self.arm_interrupt(queue);
    }

    /// The hard IRQ is handled.
    pub(crate) fn hard_irq_done(&mut self, cpu: usize, queue: usize) {
        self.stamp_ring(queue, HostPart::Interrupt);
        if let Some(thread) = self.queues[queue].irq_thread {
            self.queues[queue].handle = true;
            self.wake(thread);
        } else {
            self.schedule_device(queue, cpu, List::Common);
            self.cpus[cpu].irq_returns = self.cpus[cpu].soft.is_none();
        }
    }

    /// Takes the frames that a poll of the queue finds, merged to packets.
    pub(crate) fn take_frames(&mut self, queue: usize, packets: &mut Vec<Packet>) -> u32 {
        self.pause_links(queue);
        packets.clear();
        let mut frames = 0;
        while frames < WEIGHT {
            let ready = self.first_arrival(queue).filter(|&first| first <= self.now);
            let Some(first) = ready else { break };
            frames += 1;
            let front = self.queues[queue].requests.front();
            if let Some((_, request)) = front.filter(|front| front.0 <= first).copied() {
                self.queues[queue].requests.pop_front();
                let Request { instance, bytes, .. } = self.requests[request as usize];
                packets.push(Packet { server: instance, bytes, load: Payload::Request(request) });
                continue;
            }
            let streams = self.queues[queue].streams.iter().copied();
            let Some(stream) = streams.min_by_key(|&s| (self.streams[s].room == 0, self.streams[s].next))
            else {
                break;
            };
            self.take_frame(stream, packets);
        }
        frames
    }

    /// Takes a frame of the stream and merges it with those before.
    fn take_frame(&mut self, stream: usize, packets: &mut Vec<Packet>) {
        let stream = &mut self.streams[stream];
        stream.next += stream.spacing;
        stream.room -= 1;
        stream.unread += 1;
        for packet in packets.iter_mut().rev().filter(|packet| packet.server == stream.instance) {
            if let Payload::Stream { frames } = &mut packet.load
                && *frames < GRO_FRAMES
            {
                *frames += 1;
                packet.bytes += FRAME_BYTES;
                return;
            }
        }
        let load = Payload::Stream { frames: 1 };
        packets.push(Packet { server: stream.instance, bytes: FRAME_BYTES, load });
    }

    /// A full ring has stopped its link: frames that did not fit come later.
    fn pause_links(&mut self, queue: usize) {
        let slots = u64::from(self.stack.cards[self.queues[queue].card].ring_slots);
        for at in 0..self.queues[queue].streams.len() {
            let share = (slots / self.queues[queue].streams.len() as u64).max(1);
            let stream = &mut self.streams[self.queues[queue].streams[at]];
            stream.next = stream.next.max(self.now.saturating_sub(share * stream.spacing));
        }
    }

    /// The process has read frames of its stream: the window opens.
    pub(crate) fn stream_read(&mut self, stream: usize, frames: u32) {
        let state = &mut self.streams[stream];
        if state.room == 0 {
            // The sender learns of it after the card's delay in both directions.
            state.next = state.next.max(self.now + 2 * self.stack.costs.card.as_ns());
        }
        state.room += frames;
        state.unread = state.unread.saturating_sub(frames);
        let queue = state.queue;
        if state.room + state.unread != state.window {
            let (room, unread, window) = (state.room, state.unread, state.window);
            self.violated(|| format!("a window of {window} frames has {room} free and {unread} unread"));
        }
        self.arm_interrupt(queue);
    }

    /// Processor `cpu` has sent a packet for `instance` through its card (`ixgbe_atr`): each
    /// `atr_sample`-th packet moves its stream to that processor's queue.
    pub(crate) fn transmitted(&mut self, instance: usize, cpu: usize) {
        let card = self.stack.servers[self.instances[instance].server].card;
        let sample = self.stack.cards[card].atr_sample;
        if sample == 0 {
            return;
        }
        let of_cpu = |queue: &Queue| (queue.card, queue.cpu) == (card, cpu);
        let Some(queue) = self.queues.iter().position(of_cpu) else { return };
        let state = &mut self.queues[queue];
        state.sampled += 1;
        let Some(stream) = self.instances[instance].stream.filter(|_| state.sampled >= sample) else {
            return;
        };
        state.sampled = 0;
        self.streams[stream].next_queue = queue;
        let state = &self.streams[stream];
        if state.room == 0 || state.next > self.now {
            self.move_stream(stream);
        }
    }

    /// Moves the stream to its next queue. No frame of it waits in the old one.
    fn move_stream(&mut self, stream: usize) {
        let state = &mut self.streams[stream];
        let (from, to) = (state.queue, state.next_queue);
        if from != to {
            state.queue = to;
            self.queues[from].streams.retain(|&other| other != stream);
            self.queues[to].streams.push(stream);
            self.arm_interrupt(to);
        }
    }

    /// A poll has emptied the queue: its interrupt is enabled again.
    pub(crate) fn completes(&mut self, queue: usize) {
        for at in (0..self.queues[queue].streams.len()).rev() {
            self.move_stream(self.queues[queue].streams[at]);
        }
        self.queues[queue].irq_on = true;
        self.arm_interrupt(queue);
    }
}
