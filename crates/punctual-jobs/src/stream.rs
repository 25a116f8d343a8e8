//! A stream as TCP's bulk transfer: a window that acknowledgements open, halved on a loss.
//!
//! # Rules
//! RFC 5681 and RFC 6582 (NewReno) in whole packets; delayed acknowledgements as in Linux.
//!
//! - **Sender.** Sends while fewer packets are on their way than the congestion window, and than the flow's
//!   window, allow. The congestion window starts at 2, grows by one for each new packet acknowledged up to
//!   the slow start threshold, and by one for each window beyond it.
//! - **Loss.** Three acknowledgements that acknowledge nothing new: threshold and window become half of what
//!   is on its way (at least 2), the first packet is sent again, and so is the next missing one on every
//!   partial acknowledgement, until all that was on its way is acknowledged.
//! - **Silence.** Nothing acknowledged for the timeout: threshold as above, window 1, everything
//!   unacknowledged is sent again; the timeout doubles until something is acknowledged, up to `BACKOFF_MAX`
//!   times.
//! - **Receiver.** Acknowledges every `ack_every` packets, every packet that leaves or fills a gap at once,
//!   and a remaining packet after [`ACK_DELAY_NS`]. Packets beyond a gap are kept.

use alloc::collections::VecDeque;

/// How long a packet waits for its acknowledgement at most (Linux `TCP_DELACK_MIN`).
pub const ACK_DELAY_NS: u64 = 40_000_000;
/// Doublings of the timeout at most.
const BACKOFF_MAX: u32 = 6;
const INITIAL_WINDOW: u32 = 2;
const DUPLICATES: u32 = 3;

#[derive(Clone, Debug)]
pub struct Sender {
    window: u32,
    acknowledged: u64,
    next: u64,
    /// One beyond the greatest packet ever sent.
    sent: u64,
    congestion: u32,
    threshold: u32,
    /// Packets acknowledged since the congestion window last grew, beyond the threshold.
    grown: u32,
    duplicates: u32,
    /// While a loss is repaired: what must be acknowledged for it to be over.
    recover: Option<u64>,
    backoff: u32,
}

impl Sender {
    /// A sender with at most `window` packets on their way.
    pub fn new(window: u32) -> Self {
        Sender {
            window,
            acknowledged: 0,
            next: 0,
            sent: 0,
            congestion: INITIAL_WINDOW.min(window),
            threshold: window,
            grown: 0,
            duplicates: 0,
            recover: None,
            backoff: 0,
        }
    }

    /// The next packet, if the window allows one; it counts as sent. True: it was sent before.
    pub fn send(&mut self) -> Option<(u64, bool)> {
        let allowed = u64::from(self.congestion.min(self.window));
        if self.next >= self.acknowledged + allowed {
            return None;
        }
        let packet = self.next;
        self.next += 1;
        let again = packet < self.sent;
        self.sent = self.sent.max(self.next);
        Some((packet, again))
    }

    /// One beyond the greatest packet ever sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Is anything on its way?
    pub fn waits(&self) -> bool {
        self.acknowledged < self.next
    }

    /// How long silence may last.
    pub fn patience_ns(&self, timeout_ns: u64) -> u64 {
        timeout_ns.saturating_mul(1 << self.backoff)
    }

    fn halve(&mut self) {
        let on_its_way = (self.next - self.acknowledged).min(u64::from(u32::MAX)) as u32;
        self.threshold = (on_its_way / 2).max(2);
    }

    /// Everything before `up_to` has arrived. Returns a packet to send again at once.
    pub fn acknowledge(&mut self, up_to: u64) -> Option<u64> {
        if up_to <= self.acknowledged {
            self.duplicates += u32::from(up_to == self.acknowledged && self.waits());
            if self.duplicates == DUPLICATES && self.recover.is_none() {
                self.halve();
                self.congestion = self.threshold;
                self.recover = Some(self.next);
                return Some(self.acknowledged);
            }
            return None;
        }
        let new = (up_to - self.acknowledged).min(u64::from(self.window)) as u32;
        self.acknowledged = up_to;
        self.next = self.next.max(up_to);
        self.duplicates = 0;
        self.backoff = 0;
        if let Some(recover) = self.recover {
            if up_to < recover {
                return Some(up_to);
            }
            self.recover = None;
            return None;
        }
        self.grow(new);
        None
    }

    fn grow(&mut self, new: u32) {
        let slow_start = new.min(self.threshold.saturating_sub(self.congestion));
        self.congestion += slow_start;
        self.grown += new - slow_start;
        if self.grown >= self.congestion {
            self.grown -= self.congestion;
            self.congestion += 1;
        }
        self.congestion = self.congestion.min(self.window);
    }

    /// Silence lasted too long.
    pub fn give_up(&mut self) {
        self.halve();
        self.congestion = 1;
        self.grown = 0;
        self.duplicates = 0;
        self.recover = None;
        self.next = self.acknowledged;
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
    }
}

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
    use alloc::vec::Vec;

    use super::*;

    /// All that the window allows.
    fn burst(sender: &mut Sender) -> Vec<u64> {
        core::iter::from_fn(|| sender.send().map(|(packet, _)| packet)).collect()
    }

    #[test]
    fn the_window_doubles_with_each_round_up_to_the_flows() {
        let mut sender = Sender::new(12);
        let mut sizes = Vec::new();
        for _ in 0..5 {
            let packets = burst(&mut sender);
            sizes.push(packets.len());
            for packet in packets {
                assert_eq!(sender.acknowledge(packet + 1), None);
            }
        }
        assert_eq!(sizes, [2, 4, 8, 12, 12]);
    }

    #[test]
    fn three_duplicates_send_the_missing_packet_again_and_halve_the_window() {
        let mut sender = Sender::new(16);
        sender.congestion = 8;
        assert_eq!(burst(&mut sender).len(), 8);
        assert_eq!(
            [sender.acknowledge(0), sender.acknowledge(0), sender.acknowledge(0)],
            [None, None, Some(0)]
        );
        assert_eq!(sender.acknowledge(0), None, "once");
        assert_eq!(sender.acknowledge(3), Some(3), "a partial acknowledgement names the next one missing");
        assert_eq!(sender.acknowledge(8), None);
        assert_eq!(burst(&mut sender).len(), 4);
    }

    #[test]
    fn silence_sends_everything_again_ever_more_slowly() {
        let mut sender = Sender::new(16);
        burst(&mut sender);
        sender.give_up();
        assert_eq!(sender.patience_ns(200), 400);
        assert_eq!(sender.send(), Some((0, true)));
        assert_eq!(sender.send(), None);
        sender.acknowledge(1);
        assert_eq!(sender.patience_ns(200), 200);
        assert_eq!(sender.send(), Some((1, true)));
        assert_eq!(sender.send(), Some((2, false)));
    }

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
