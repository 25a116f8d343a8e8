//! The sender of `congestion_control = "basic"`: slow start, halving and NewReno's recovery in whole packets,
//! with a fixed timeout.
//!
//! # Rules
//! - The congestion window starts at 2, grows by one for each new packet acknowledged up to the slow start
//!   threshold, and by one for each window beyond it.
//! - **Loss.** Three acknowledgements that acknowledge nothing new: threshold and window become half of what
//!   is on its way (at least 2), the first packet is sent again, and so is the next missing one on every
//!   partial acknowledgement, until all that was on its way is acknowledged.
//! - **Silence.** Nothing acknowledged for the timeout: threshold as above, window 1, everything
//!   unacknowledged is sent again; the timeout doubles until something is acknowledged, up to `BACKOFF_MAX`
//!   times.

/// Doublings of the timeout at most.
const BACKOFF_MAX: u32 = 6;
const INITIAL_WINDOW: u32 = 2;
const DUPLICATES: u32 = 3;

/// The sender with a fixed timeout.
#[derive(Clone, Debug)]
pub struct Basic {
    timeout_ns: u64,
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

impl Basic {
    /// A sender with at most `window` packets on their way.
    pub(super) fn new(window: u32, timeout_ns: u64) -> Self {
        Basic {
            timeout_ns,
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
    pub(super) fn send(&mut self) -> Option<(u64, bool)> {
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
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Is anything on its way?
    pub(super) fn waits(&self) -> bool {
        self.acknowledged < self.next
    }

    /// How long silence may last.
    pub(super) fn patience_ns(&self) -> u64 {
        self.timeout_ns.saturating_mul(1 << self.backoff)
    }

    fn halve(&mut self) {
        let on_its_way = (self.next - self.acknowledged).min(u64::from(u32::MAX)) as u32;
        self.threshold = (on_its_way / 2).max(2);
    }

    /// Everything before `up_to` has arrived. Returns a packet to send again at once.
    pub(super) fn acknowledge(&mut self, up_to: u64) -> Option<u64> {
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
    pub(super) fn give_up(&mut self) {
        self.halve();
        self.congestion = 1;
        self.grown = 0;
        self.duplicates = 0;
        self.recover = None;
        self.next = self.acknowledged;
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// All that the window allows.
    fn burst(sender: &mut Basic) -> Vec<u64> {
        core::iter::from_fn(|| sender.send().map(|(packet, _)| packet)).collect()
    }

    #[test]
    fn the_window_doubles_with_each_round_up_to_the_flows() {
        let mut sender = Basic::new(12, 200);
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
        let mut sender = Basic::new(16, 200);
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
        let mut sender = Basic::new(16, 200);
        burst(&mut sender);
        sender.give_up();
        assert_eq!(sender.patience_ns(), 400);
        assert_eq!(sender.send(), Some((0, true)));
        assert_eq!(sender.send(), None);
        sender.acknowledge(1);
        assert_eq!(sender.patience_ns(), 200);
        assert_eq!(sender.send(), Some((1, true)));
        assert_eq!(sender.send(), Some((2, false)));
    }
}
