//! The end of a run: what processors and servers did, and whether every request is accounted for.

use punctual_host_stack::Load;
use punctual_model::Results;
use punctual_model::results::{
    FlowResult, HostPart, HostPartResult, PacketCounts, ProcessorTotals, SegmentResult, of_host_stack,
};
use punctual_sched::Duration;

use crate::error::Violation;
use crate::machine::Machine;
use crate::packet::FRAME_BYTES;
use crate::request::Times;
use crate::watch::Watch;

impl<W: Watch> Machine<'_, W> {
    pub(crate) fn results(mut self) -> Result<Results, Violation> {
        self.check_requests()?;
        let mut processors = Vec::with_capacity(self.cpus.len());
        for (number, cpu) in self.cpus.iter().enumerate() {
            if cpu.busy > self.end || cpu.interrupts > cpu.busy {
                return Err(Violation(format!("processor {number} was busy for {} ns", cpu.busy)));
            }
            processors.push(ProcessorTotals {
                busy: Duration::from_ns(cpu.busy),
                idle: Duration::from_ns(self.end - cpu.busy),
                overhead: Duration::ZERO,
                decisions: 0,
                context_switches: cpu.switches,
            });
        }
        let times = std::mem::take(&mut self.times);
        let flows = times.into_iter().enumerate().map(|(server, times)| self.flow(server, times)).collect();
        Ok(of_host_stack(self.stack, self.events, &processors, flows))
    }

    /// What clients sent was answered or is on its way.
    fn check_requests(&self) -> Result<(), Violation> {
        let on_their_way = self.requests.len() - self.free.len();
        let sent: u64 = self.instances.iter().map(|one| one.sent).sum();
        let answered: u64 = self.instances.iter().map(|one| one.answered).sum();
        if sent != answered + on_their_way as u64 {
            let what =
                format!("{sent} requests were sent, {answered} answered, {on_their_way} are on their way");
            return Err(Violation(what));
        }
        Ok(())
    }

    fn flow(&self, server: usize, times: Times) -> FlowResult {
        let config = &self.stack.servers[server];
        let own = || self.instances.iter().filter(|one| one.server == server);
        let (sent, answered) = (own().map(|one| one.sent).sum(), own().map(|one| one.answered).sum());
        let bytes = own().map(|one| one.bytes).sum::<u64>();
        let streams = own().filter_map(|one| one.stream).map(|stream| &self.streams[stream]);
        let unread = streams.map(|stream| u64::from(stream.unread)).sum::<u64>();
        let (kind, packets) = match config.load {
            Load::Requests { .. } => (
                "request",
                PacketCounts { created: sent, delivered: answered, bytes, ..PacketCounts::default() },
            ),
            Load::Stream { .. } => {
                let delivered = bytes / u64::from(FRAME_BYTES);
                let created = delivered + unread;
                ("stream", PacketCounts { created, delivered, bytes, ..PacketCounts::default() })
            }
        };
        let in_flight = packets.created - packets.delivered;
        let segments = times.segments.into_iter().filter(|(_, time)| !time.max().is_zero());
        let parts = HostPart::ALL.into_iter().zip(times.parts).filter(|(_, time)| !time.max().is_zero());
        FlowResult {
            name: config.name.clone(),
            network: self.stack.cards[config.card].name.clone(),
            kind: kind.into(),
            from: "outside".into(),
            to: config.name.clone(),
            packets: PacketCounts { in_flight, ..packets },
            timeouts: 0,
            retransmissions: 0,
            deadline_ns: None,
            late: 0,
            congestion: None,
            latency: times.latency,
            segments: segments.map(|(segment, time)| SegmentResult { segment, time }).collect(),
            parts: parts.map(|(part, time)| HostPartResult { part, time }).collect(),
        }
    }
}
