//! The sender by the RFCs: `congestion_control = "reno"` and `"cubic"`.
//!
//! # Rules
//! - **Start.** The congestion window begins with `initial_window` packets (RFC 6928: 10).
//! - **Slow start**, below the threshold: one packet more for each acknowledgement of new data (RFC 5681,
//!   equation 2). **Congestion avoidance**, at the threshold and beyond: Reno adds a packet for each window
//!   acknowledged (RFC 5681, section 3.1, counting what is acknowledged), CUBIC follows RFC 9438.
//! - **Loss.** The first two duplicate acknowledgements allow a new packet each (RFC 3042). The third one
//!   begins fast recovery: the threshold becomes half (CUBIC: 0.7) of what is on its way, at least 2, the
//!   missing packet is sent again, and the window is the threshold and 3, and one more for each further
//!   duplicate. Partial acknowledgements send the next missing packet; recovery ends when all that was on its
//!   way is acknowledged (RFC 6582, section 3.2, with the first option of step 3). Duplicates of packets sent
//!   before the last loss begin no recovery.
//! - **Silence.** The timer runs while packets are on their way, restarts at every acknowledgement of new
//!   data (in recovery at the first) and lasts as RFC 6298 says. When it expires, the threshold falls as
//!   above unless it fell for this loss already, the window is 1, and everything unacknowledged is sent
//!   again.
//! - **Round trips** are measured with one packet at a time that was sent once (Karn's rule).
//!
//! There are no selective acknowledgements and no ECN.

use super::cubic::Cubic;
use super::rto::Rto;

const DUPLICATES: u32 = 3;
/// New packets that duplicates allow before the third (RFC 3042).
const LIMITED_MAX: u32 = 2;

/// How the window grows in congestion avoidance, and what is left of it after a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Algorithm {
    /// RFC 5681.
    Reno,
    /// RFC 9438.
    Cubic,
}

/// What a host file says of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct TcpParams {
    pub algorithm: Algorithm,
    /// The congestion window at the beginning, in packets.
    pub initial_window: u32,
    /// The shortest retransmission timeout.
    pub rto_min_ns: u64,
}

/// What happened to a sender's window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Losses that duplicate acknowledgements showed.
    pub fast_retransmits: u64,
    /// The greatest congestion window so far, in packets.
    pub window_max: u32,
}

/// Fast recovery under way.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    /// It is over when everything before this is acknowledged.
    until: u64,
    /// Has a partial acknowledgement come?
    partial: bool,
}

/// The sender; see the module's rules.
#[derive(Clone, Debug)]
pub struct Tcp {
    /// Packets on their way at most, whatever the congestion window.
    bound: u32,
    acknowledged: u64,
    next: u64,
    /// One beyond the greatest packet ever sent.
    sent: u64,
    congestion: u32,
    threshold: u32,
    /// Reno: packets acknowledged since the congestion window last grew in congestion avoidance.
    grown: u32,
    cubic: Option<Cubic>,
    duplicates: u32,
    /// Packets on their way that limited transmit has sent.
    limited: u32,
    recovery: Option<Recovery>,
    /// What had been sent when the last loss was noticed.
    lost_at: Option<u64>,
    /// The first unacknowledged packet was sent again because the timer expired.
    expired: bool,
    rto: Rto,
    expires_at_ns: Option<u64>,
    /// The packet whose round trip is measured, and when it was sent.
    timed: Option<(u64, u64)>,
    counts: Counts,
}

impl Tcp {
    pub(super) fn new(window: u32, params: TcpParams) -> Self {
        let congestion = params.initial_window.clamp(1, window.max(1));
        Tcp {
            bound: window.max(1),
            acknowledged: 0,
            next: 0,
            sent: 0,
            congestion,
            threshold: u32::MAX,
            grown: 0,
            cubic: (params.algorithm == Algorithm::Cubic).then(Cubic::new),
            duplicates: 0,
            limited: 0,
            recovery: None,
            lost_at: None,
            expired: false,
            rto: Rto::new(params.rto_min_ns),
            expires_at_ns: None,
            timed: None,
            counts: Counts { fast_retransmits: 0, window_max: congestion },
        }
    }

    /// The congestion window, in packets, without what duplicates add to it during recovery.
    pub fn congestion_window(&self) -> u32 {
        let window = if self.recovery.is_some() { self.threshold } else { self.congestion };
        window.min(self.bound)
    }

    /// The slow start threshold, in packets; `None` before the first loss.
    pub fn threshold(&self) -> Option<u32> {
        (self.threshold < u32::MAX).then_some(self.threshold)
    }

    /// The smoothed round trip, once one was measured.
    pub fn srtt_ns(&self) -> Option<u64> {
        self.rto.srtt_ns()
    }

    /// The retransmission timeout.
    pub fn rto_ns(&self) -> u64 {
        self.rto.timeout_ns()
    }

    /// What happened to the window so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    pub(super) fn expires_at_ns(&self) -> Option<u64> {
        self.expires_at_ns
    }

    fn on_their_way(&self) -> u32 {
        u32::try_from(self.next - self.acknowledged).unwrap_or(u32::MAX)
    }

    /// New packets that duplicate acknowledgements allow (RFC 3042).
    fn limited_transmit(&self) -> u32 {
        let allowed = self.recovery.is_none() && self.next == self.sent;
        if allowed { self.duplicates.min(LIMITED_MAX) } else { 0 }
    }

    pub(super) fn send(&mut self, now_ns: u64) -> Option<(u64, bool)> {
        let allowed = self.congestion.saturating_add(self.limited_transmit()).min(self.bound);
        if self.on_their_way() >= allowed {
            return None;
        }
        self.limited += u32::from(self.on_their_way() >= self.congestion);
        let packet = self.next;
        self.next += 1;
        let again = packet < self.sent;
        self.sent = self.sent.max(self.next);
        if !again && self.timed.is_none() {
            self.timed = Some((packet, now_ns));
        }
        if self.expires_at_ns.is_none() {
            self.restart_timer(now_ns);
        }
        Some((packet, again))
    }

    pub(super) fn acknowledge(&mut self, up_to: u64, now_ns: u64) -> Option<u64> {
        debug_assert!(up_to <= self.sent, "a packet was acknowledged that was not sent");
        if up_to > self.acknowledged {
            return self.advance(up_to, now_ns);
        }
        if up_to < self.acknowledged || self.on_their_way() == 0 {
            return None;
        }
        self.duplicates = self.duplicates.saturating_add(1);
        if self.recovery.is_some() {
            // A packet has left the network.
            self.congestion = self.congestion.saturating_add(1);
            return None;
        }
        let is_new_loss = self.lost_at.is_none_or(|sent| up_to > sent);
        (self.duplicates == DUPLICATES && is_new_loss).then(|| self.begin_recovery())
    }

    fn begin_recovery(&mut self) -> u64 {
        // What limited transmit has sent does not count (RFC 5681, section 3.2, step 2).
        let window = self.congestion_window();
        self.reduce(self.on_their_way() - self.limited);
        if let Some(cubic) = &mut self.cubic {
            cubic.lose(window);
        }
        self.congestion = self.threshold + DUPLICATES;
        self.recovery = Some(Recovery { until: self.next, partial: false });
        self.lost_at = Some(self.sent);
        self.timed = None;
        self.counts.fast_retransmits += 1;
        self.acknowledged
    }

    /// The threshold after a loss.
    fn reduce(&mut self, on_their_way: u32) {
        self.threshold = match self.cubic {
            Some(_) => Cubic::threshold(on_their_way),
            None => (on_their_way / 2).max(2),
        };
        self.grown = 0;
    }

    /// New data was acknowledged.
    fn advance(&mut self, up_to: u64, now_ns: u64) -> Option<u64> {
        let new = u32::try_from(up_to - self.acknowledged).unwrap_or(u32::MAX);
        self.acknowledged = up_to;
        self.next = self.next.max(up_to);
        (self.duplicates, self.limited, self.expired) = (0, 0, false);
        if let Some((packet, sent_ns)) = self.timed
            && packet < up_to
        {
            self.rto.measure(now_ns.saturating_sub(sent_ns));
            self.timed = None;
        }
        let partial = self.recovery.filter(|recovery| up_to < recovery.until);
        // After the first partial acknowledgement the timer goes on: with many losses it ends a recovery of
        // one packet a round trip (RFC 6582, section 4).
        if !partial.is_some_and(|recovery| recovery.partial) {
            self.expires_at_ns = None;
            if self.on_their_way() > 0 {
                self.restart_timer(now_ns);
            }
        }
        if let Some(recovery) = partial {
            self.congestion = (self.congestion.saturating_sub(new) + 1).max(1);
            self.recovery = Some(Recovery { partial: true, ..recovery });
            return Some(up_to);
        }
        match self.recovery.take() {
            Some(_) => self.congestion = self.threshold.min(self.on_their_way().max(1) + 1),
            None => self.grow(new, now_ns),
        }
        None
    }

    fn grow(&mut self, new: u32, now_ns: u64) {
        if self.congestion < self.threshold {
            return self.set_window(self.congestion + 1);
        }
        let srtt_ns = self.rto.srtt_ns().unwrap_or(0);
        let window = match &mut self.cubic {
            Some(cubic) => cubic.grow(self.congestion, new, now_ns, srtt_ns),
            None => {
                self.grown = self.grown.saturating_add(new);
                let grows = self.grown >= self.congestion;
                self.grown -= if grows { self.congestion } else { 0 };
                self.congestion + u32::from(grows)
            }
        };
        if window >= self.bound
            && let Some(cubic) = &mut self.cubic
        {
            cubic.cut();
        }
        self.set_window(window);
    }

    fn set_window(&mut self, packets: u32) {
        self.congestion = packets.min(self.bound);
        self.counts.window_max = self.counts.window_max.max(self.congestion);
    }

    fn restart_timer(&mut self, now_ns: u64) {
        self.expires_at_ns = Some(now_ns.saturating_add(self.rto.timeout_ns()));
    }

    /// The timer has expired.
    pub(super) fn expire(&mut self) {
        let window = self.congestion_window();
        if !self.expired {
            // In recovery the threshold has fallen for this window already (as in Linux): what is on its way
            // then counts what the receiver keeps beyond the gap.
            if self.recovery.is_none() {
                self.reduce(self.on_their_way());
            }
            if let Some(cubic) = &mut self.cubic {
                cubic.expire(window);
            }
        }
        self.expired = true;
        (self.congestion, self.limited) = (1, 0);
        (self.duplicates, self.recovery, self.timed) = (0, None, None);
        self.lost_at = Some(self.sent);
        self.next = self.acknowledged;
        self.rto.back_off();
        self.expires_at_ns = None;
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const MS: u64 = 1_000_000;

    fn sender(algorithm: Algorithm, initial_window: u32) -> Tcp {
        Tcp::new(1000, TcpParams { algorithm, initial_window, rto_min_ns: 200 * MS })
    }

    /// All that the window allows.
    fn burst(sender: &mut Tcp, now_ns: u64) -> Vec<u64> {
        core::iter::from_fn(|| sender.send(now_ns).map(|(packet, _)| packet)).collect()
    }

    #[test]
    fn slow_start_adds_a_packet_for_each_acknowledgement() {
        let mut sender = sender(Algorithm::Reno, 10);
        assert_eq!(burst(&mut sender, 0).len(), 10);
        // Every second packet is acknowledged: five acknowledgements.
        for up_to in [2, 4, 6, 8, 10] {
            assert_eq!(sender.acknowledge(up_to, MS), None);
        }
        assert_eq!(sender.congestion_window(), 15);
        assert_eq!(burst(&mut sender, MS), (10..25).collect::<Vec<_>>());
    }

    #[test]
    fn congestion_avoidance_adds_a_packet_for_each_window() {
        let mut sender = sender(Algorithm::Reno, 10);
        sender.threshold = 10;
        for round in 0..4 {
            let sent = burst(&mut sender, round * MS);
            assert_eq!(sent.len() as u64, 10 + round);
            for packet in sent {
                sender.acknowledge(packet + 1, (round + 1) * MS);
            }
        }
    }

    /// RFC 5681, section 3.2, and RFC 6582, section 3.2: 20 packets on their way, 0 and 5 are lost.
    #[test]
    fn fast_recovery_repairs_two_losses_of_one_window() {
        let mut sender = sender(Algorithm::Reno, 20);
        assert_eq!(burst(&mut sender, 0).len(), 20);
        assert_eq!((sender.acknowledge(0, MS), burst(&mut sender, MS)), (None, [20].to_vec()), "limited");
        assert_eq!((sender.acknowledge(0, MS), burst(&mut sender, MS)), (None, [21].to_vec()), "limited");
        assert_eq!(sender.acknowledge(0, MS), Some(0));
        assert_eq!((sender.threshold, sender.congestion), (10, 13), "half of 20, and 3");
        // 17 duplicates more: 22 are on their way, the window is 30.
        for _ in 0..17 {
            assert_eq!(sender.acknowledge(0, MS), None);
        }
        assert_eq!(burst(&mut sender, MS), (22..30).collect::<Vec<_>>());
        // Partial: 5 acknowledged, so the window deflates by 5 and grows by 1; 5 is sent again.
        assert_eq!(sender.acknowledge(5, 2 * MS), Some(5));
        assert_eq!(sender.congestion, 26);
        // Full: everything that was on its way at the loss.
        assert_eq!(sender.acknowledge(22, 3 * MS), None);
        assert_eq!(sender.congestion, 9, "what is on its way and 1, less than the threshold");
        assert_eq!(sender.counts().fast_retransmits, 1);
    }

    #[test]
    fn duplicates_of_packets_sent_before_the_last_loss_begin_no_recovery() {
        let mut sender = sender(Algorithm::Reno, 20);
        burst(&mut sender, 0);
        sender.expire();
        assert_eq!(sender.send(1_000 * MS), Some((0, true)));
        assert_eq!(sender.acknowledge(4, 1_001 * MS), None);
        burst(&mut sender, 1_001 * MS);
        for _ in 0..5 {
            assert_eq!(sender.acknowledge(4, 1_002 * MS), None);
        }
        assert_eq!(sender.counts().fast_retransmits, 0);
    }

    #[test]
    fn a_silence_halves_once_and_sends_everything_again_from_a_window_of_one() {
        let mut sender = sender(Algorithm::Reno, 20);
        burst(&mut sender, 5 * MS);
        assert_eq!(sender.expires_at_ns(), Some(1_005 * MS));
        sender.expire();
        assert_eq!((sender.threshold, sender.congestion), (10, 1));
        assert_eq!(burst(&mut sender, 1_005 * MS), [0]);
        assert_eq!(sender.expires_at_ns(), Some(3_005 * MS), "doubled");
        sender.expire();
        assert_eq!(sender.threshold, 10, "held: the same packet");
        assert_eq!(burst(&mut sender, 3_005 * MS), [0]);
        // Karn: neither packet 0 nor those sent again say how long a round trip is.
        sender.acknowledge(20, 3_006 * MS);
        assert_eq!((sender.srtt_ns(), sender.rto_ns()), (None, 4_000 * MS));
        assert_eq!(burst(&mut sender, 3_006 * MS), [20, 21]);
        sender.acknowledge(21, 3_016 * MS);
        assert_eq!((sender.srtt_ns(), sender.rto_ns()), (Some(10 * MS), 200 * MS));
    }

    #[test]
    fn cubic_keeps_seven_tenths() {
        let mut sender = sender(Algorithm::Cubic, 100);
        burst(&mut sender, 0);
        for _ in 0..3 {
            sender.acknowledge(0, MS);
        }
        assert_eq!(sender.threshold, 70);
    }
}
