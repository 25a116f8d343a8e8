//! The receiver of a stream.

use alloc::collections::VecDeque;

/// How long a packet waits for its acknowledgement at most (Linux `TCP_DELACK_MIN`).
pub const ACK_DELAY_NS: u64 = 40_000_000;

/// What the receiver does about a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Packets that are now complete in order.
    pub in_order: u64,
    /// Acknowledge now; otherwise the packet waits for another one or the delay.
    pub acknowledge: bool,
}

#[derive(Clone, Debug)]
pub struct Receiver {
    ack_every: u32,
    missing: u64,
    /// Which packets after it are here.
    beyond: VecDeque<bool>,
    unacknowledged: u32,
}

impl Receiver {
    /// A receiver that acknowledges every `ack_every` packets.
    pub fn new(ack_every: u32) -> Self {
        Receiver { ack_every, missing: 0, beyond: VecDeque::new(), unacknowledged: 0 }
    }

    /// What an acknowledgement says: everything before this packet is here.
    pub fn up_to(&self) -> u64 {
        self.missing
    }

    /// Is a packet waiting to be acknowledged?
    pub fn owes(&self) -> bool {
        self.unacknowledged > 0
    }

    pub fn acknowledged(&mut self) {
        self.unacknowledged = 0;
    }

    pub fn receive(&mut self, packet: u64) -> Received {
        if packet != self.missing {
            // A gap, or known already: say at once where the stream stands.
            if packet > self.missing {
                let at = (packet - self.missing - 1) as usize;
                if self.beyond.len() <= at {
                    self.beyond.resize(at + 1, false);
                }
                self.beyond[at] = true;
            }
            return Received { in_order: 0, acknowledge: true };
        }
        let mut in_order = 1;
        let filled = !self.beyond.is_empty();
        while self.beyond.pop_front() == Some(true) {
            in_order += 1;
        }
        self.missing += in_order;
        self.unacknowledged += 1;
        Received { in_order, acknowledge: filled || self.unacknowledged >= self.ack_every }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receiver_acknowledges_every_second_packet_and_gaps_at_once() {
        let mut receiver = Receiver::new(2);
        let plain = |in_order, acknowledge| Received { in_order, acknowledge };
        assert_eq!(receiver.receive(0), plain(1, false));
        assert_eq!(receiver.receive(1), plain(1, true));
        receiver.acknowledged();
        assert_eq!(receiver.receive(3), plain(0, true));
        assert_eq!(receiver.receive(4), plain(0, true));
        assert_eq!(receiver.up_to(), 2);
        assert_eq!(receiver.receive(2), plain(3, true));
        assert_eq!(receiver.up_to(), 5);
        assert_eq!(receiver.receive(1), plain(0, true), "known already");
    }
}
