//! What vNIC threads (vhost) do.

use punctual_host_stack::softnet::List;
use punctual_host_stack::{ThreadId, Who};
use punctual_model::results::HostPart;
use punctual_sched::Duration;

use crate::action::list_of;
use crate::machine::Machine;
use crate::packet::{FRAME_BYTES, Packet, Payload, Sent, further_buffers};
use crate::thread::Step;
use crate::watch::Watch;

/// Bytes that a vNIC thread handles in one direction before it looks at the other one, and, in a kernel
/// without preemption, before it lets other threads run (`VHOST_NET_WEIGHT`, `vhost_worker`).
const VHOST_WEIGHT: u32 = 0x80000;

impl<W: Watch> Machine<'_, W> {
    pub(crate) fn vnic_thread(&mut self, thread: ThreadId, instance: usize) {
        let costs = self.costs;
        let goes_on = self.in_batch(thread);
        let state = &mut self.instances[instance];
        let one = &mut self.threads[thread.index()];
        let sends = if goes_on {
            one.sent_last
        } else {
            !state.outgoing.is_empty() && (state.tap.is_empty() || !one.sent_last)
        };
        if !goes_on {
            one.batch = 0;
        }
        one.sent_last = sends;
        let wake = if one.worked { Duration::ZERO } else { costs.vnic_wake };
        let (step, cost) = if sends {
            let Some(sent) = state.outgoing.pop_front() else { return };
            one.worked = true;
            one.batch += FRAME_BYTES;
            (Step::VnicSend(sent), costs.vnic_send)
        } else if let Some(packet) = state.tap.pop_front() {
            one.worked = true;
            one.batch += packet.bytes;
            let buffers = further_buffers(costs.virtio_buffer, packet.bytes);
            let cost = costs.vnic_receive + buffers + self.copy_cost(packet.bytes);
            (Step::VnicReceive(packet), cost)
        } else if one.worked {
            (Step::End, costs.vnic_end)
        } else {
            return self.sleep(thread);
        };
        let cost = self.varied(wake + cost);
        self.begin(thread, step, cost, 0);
    }

    /// Is the vNIC thread amid packets of one direction (`handle_rx`, `handle_tx`)?
    pub(crate) fn in_batch(&self, thread: ThreadId) -> bool {
        let one = &self.threads[thread.index()];
        let Who::Vnic(instance) = one.who else { return false };
        let state = &self.instances[instance];
        let more = if one.sent_last { !state.outgoing.is_empty() } else { !state.tap.is_empty() };
        let works = matches!(one.step, Step::VnicReceive(_) | Step::VnicSend(_));
        works || (more && one.batch > 0 && one.batch < VHOST_WEIGHT)
    }

    pub(crate) fn vnic_received(&mut self, thread: ThreadId, packet: Packet) {
        if let Payload::Request(request) = packet.load {
            let stamp = self.stamp_of(thread, HostPart::VnicReceive, HostPart::VnicReceiveWait);
            self.stamp_step(request, stamp);
        }
        self.copies(packet.server, packet.bytes);
        self.instances[packet.server].guest.ring.push_back(packet);
        self.signal_guest(packet.server, self.threads[thread.index()].cpu);
    }

    /// The packet of the VM is handed to a backlog, and the thread runs the softirq itself (`netif_rx_ni`).
    pub(crate) fn vnic_sent(&mut self, thread: ThreadId, instance: usize, sent: Sent) {
        let cpu = self.threads[thread.index()].cpu;
        let lock = list_of(cpu, List::Common);
        // With threaded NAPI: `netif_receive_skb` under the lock, without the poll list (tun_rx_batched).
        let own = self.stack.method.has_napi_threads();
        let backlog = if own { self.cpus.len() + instance } else { cpu };
        let list = if own { 2 * self.cpus.len() + self.queues.len() + instance } else { lock };
        if let Sent::Answer { request, .. } = sent {
            let stamp = self.stamp_of(thread, HostPart::VnicSend, HostPart::VnicSendWait);
            self.stamp_step(request, stamp);
            self.handed_over(request, backlog);
        }
        self.backlogs[backlog].push_back(sent);
        let device = self.backlog_device(backlog);
        self.lists[list].schedule(device);
        self.begin_softirq(thread, list, Some(lock));
    }
}
