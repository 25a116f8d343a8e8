//! The observer that lists packets.

use punctual_model::trace::PacketRecord;
use punctual_sched::Instant;

use crate::observe::{Event, Observer, PacketEvent};

/// Gives each packet to a sink when it has arrived. Packets that are lost, or on their way at the end, have
/// no record.
pub struct PacketLog<F> {
    sink: F,
}

impl<F: FnMut(&PacketRecord<'_>)> PacketLog<F> {
    /// For any machine.
    pub fn new(sink: F) -> Self {
        PacketLog { sink }
    }
}

impl<F: FnMut(&PacketRecord<'_>)> Observer for PacketLog<F> {
    const STEPS: bool = false;

    fn observe(&mut self, now: Instant, event: Event<'_>) {
        if let Event::Packet(PacketEvent::Timed { owner, latency, segments }) = event {
            (self.sink)(&PacketRecord { owner: owner as usize, received: now, latency, segments });
        }
    }
}
