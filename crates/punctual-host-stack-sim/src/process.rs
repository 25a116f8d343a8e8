//! What processes of the host do, and answers that it sends for guests.

use punctual_host_stack::{Load, ThreadId};
use punctual_model::results::HostPart;

use crate::machine::{Machine, Use};
use crate::packet::{Packet, Payload, read_packets};
use crate::thread::Step;
use crate::watch::Watch;

impl<W: Watch> Machine<'_, W> {
    pub(crate) fn process_thread(&mut self, thread: ThreadId, instance: usize) {
        let Some(packet) = read_packets(&mut self.instances[instance].socket) else {
            return self.sleep(thread);
        };
        let cost = self.costs.receive + self.copy_cost(packet.bytes) + self.service(&packet);
        let cost = self.varied(cost);
        let own = match self.stack.servers[self.instances[instance].server].load {
            Load::Requests { lines, .. } => lines + self.lines().host_receive,
            Load::Stream { .. } => 0,
        };
        let refill = self.refill(instance, Use::Process, own);
        self.begin(thread, Step::Process(packet), cost, refill);
    }

    pub(crate) fn processed(&mut self, thread: ThreadId, instance: usize, packet: Packet) {
        self.copies(instance, packet.bytes);
        match packet.load {
            Payload::Request(request) => {
                let mut stamp = self.stamp_of(thread, HostPart::Process, HostPart::ProcessWait);
                // The process does not run before the processor has switched to it.
                stamp.cost -= self.threads[thread.index()].switched;
                self.stamp_step(request, stamp);
                self.begin_answer(thread, instance, request);
            }
            Payload::Stream { frames } => self.read(instance, frames, packet.bytes),
        }
    }

    /// The host sends the answer: system call, protocols, driver.
    pub(crate) fn begin_answer(&mut self, thread: ThreadId, instance: usize, request: u32) {
        let reply = self.requests[request as usize].reply_bytes;
        let cost = self.costs.send + self.costs.transmit + self.copy_cost(reply);
        let cost = self.varied(cost);
        let refill = self.refill(instance, Use::Send, self.lines().host_send);
        self.copies(instance, reply);
        self.begin(thread, Step::Answer(request), cost, refill);
    }

    /// The process has read so much of its stream.
    pub(crate) fn read(&mut self, instance: usize, frames: u32, bytes: u32) {
        let state = &mut self.instances[instance];
        state.bytes += u64::from(bytes);
        if let Some(stream) = state.stream {
            self.stream_read(stream, frames);
        }
    }
}
