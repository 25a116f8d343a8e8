//! The three stages in rounds, as the kernel thread and the softirq take turns; disciplines fill in TX and
//! softnet.
//!
//! # Rules
//! Xi, Li, Lu, Gill, *Limitations and Solutions for Real-Time Local Inter-Domain Communication in Xen*,
//! WUCSE-2012-81 (rtca), sections II.D and V.
//!
//! - **Turns.** The kernel thread makes a round of RX, then one of TX; then the softirq makes a round of
//!   softnet; and so on. A stage without packets is skipped. After a pause it begins with RX.
//! - **Rounds** are not preempted. A round of RX or TX ends after `rx_round` or `tx_round` packets, a round
//!   of softnet after `softnet_round` packets or `softnet_time`, each earlier when the discipline or the lack
//!   of packets ends it. What is left waits for the next round.
//! - **RX** is one FIFO queue for all guests.
//! - **Hand-over.** What a round of TX processed becomes visible to softnet when that round ends, for softnet
//!   does not run before; its queue limits count at the end of each packet, which comes to the same.

use punctual_sched::ParamError;
use punctual_sched::registry::{OptionError, OptionValue, Options, ParamDefault, ParamInfo, ParamKind};
use punctual_sched::time::{Duration, Instant};

use crate::discipline::{COUNT_MAX, Discipline, Fate, InterfaceKind, InterfaceParams, Next, PACKETS, Step};
use crate::packet::{DropReason, Drops, InterfaceId, Packet, Stage};
use crate::path::{Busy, Path};
use crate::queue::List;

/// The option `tx_round`.
pub const TX_ROUND: ParamInfo = ParamInfo {
    name: "tx_round",
    kind: PACKETS,
    default: Some(ParamDefault::Value(OptionValue::Count(238))),
    help: "packets in a round of the TX stage at most",
};

/// The option `rx_round`.
pub const RX_ROUND: ParamInfo = ParamInfo {
    name: "rx_round",
    kind: PACKETS,
    default: Some(ParamDefault::Value(OptionValue::Count(238))),
    help: "packets in a round of the RX stage at most",
};

pub(crate) const SOFTNET_ROUND: ParamInfo = ParamInfo {
    name: "softnet_round",
    kind: PACKETS,
    default: Some(ParamDefault::Value(OptionValue::Count(300))),
    help: "packets in a round of the softirq at most",
};

pub(crate) const SOFTNET_TIME: ParamInfo = ParamInfo {
    name: "softnet_time",
    kind: ParamKind::Duration,
    default: Some(ParamDefault::Value(OptionValue::Duration(Duration::from_ms(2)))),
    help: "no packet of a softirq round starts later than this after its first; 2 jiffies, here of 1ms",
};

/// Limits of the rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    tx_round: u32,
    rx_round: u32,
    softnet_round: u32,
    softnet_time: Duration,
}

impl Limits {
    pub(crate) fn from_options(options: &Options) -> Result<Limits, OptionError> {
        let softnet_time = options.duration(&SOFTNET_TIME);
        if softnet_time.is_zero() {
            return Err(OptionError { option: SOFTNET_TIME.name, expected: "longer than zero".into() });
        }
        Ok(Limits {
            tx_round: packets(options, &TX_ROUND)?,
            rx_round: packets(options, &RX_ROUND)?,
            softnet_round: packets(options, &SOFTNET_ROUND)?,
            softnet_time,
        })
    }
}

/// An option that counts packets.
pub(crate) fn packets(options: &Options, option: &ParamInfo) -> Result<u32, OptionError> {
    let (min, max) = (1, COUNT_MAX);
    let count = u32::try_from(options.count(option)).ok().filter(|count| (min..=max).contains(count));
    count.ok_or_else(|| {
        let expected = alloc::format!("from {min} to {max} packets").into();
        OptionError { option: option.name, expected }
    })
}

/// What a discipline in rounds decides itself.
pub(crate) trait Stages: Send {
    /// An interface was added, or a guest's replaced; sets its level. Returns how many packets the softnet
    /// queues take now.
    fn attached(&mut self, path: &mut Path, id: InterfaceId, params: &InterfaceParams) -> usize;

    /// The guest has a packet that may be sent.
    fn tx_ready(&mut self, path: &Path, guest: InterfaceId);

    /// The guest whose turn it is, in a round that `starts` or goes on; `None` ends the round.
    fn tx_pick(&mut self, path: &Path, starts: bool) -> Option<InterfaceId>;

    /// Queues a packet at softnet.
    fn softnet_put(&mut self, path: &mut Path, index: u32) -> Result<(), DropReason>;

    /// The packet whose turn it is, in a round that `starts` or goes on, and how many the discipline allows
    /// the round from here on, this one included; `None` ends the round.
    fn softnet_pick(&mut self, path: &Path, starts: bool) -> Option<(u32, u32)>;

    /// Would `tx_pick` go on with the round?
    fn tx_goes_on(&self) -> bool;

    /// The only packet passes softnet: `softnet_put`, and `softnet_pick` in a round that starts. Returns how
    /// many the discipline allows the round, this one included.
    fn softnet_cut_through(&mut self, path: &mut Path, index: u32, packet: &Packet) -> u32;

    /// The only packet passes a round of TX and one of softnet. Returns the same.
    fn pass(&mut self, path: &mut Path, packet: &Packet) -> u32;

    /// Packets that wait for softnet.
    fn softnet_len(&self) -> usize;

    /// Makes room for so many interfaces in all. Returns how many packets the softnet queues take now.
    fn reserve(&mut self, interfaces: usize) -> usize;
}

/// A discipline in rounds; see the module's rules.
#[derive(Clone, Debug)]
pub(crate) struct Rounds<S> {
    path: Path,
    stages: S,
    limits: Limits,
    rx: List,
    /// The stage whose round it is.
    stage: Stage,
    /// Packets of this round so far.
    count: u32,
    softnet_until: Instant,
}

impl<S: Stages> Rounds<S> {
    pub(crate) fn new(limits: Limits, stages: S) -> Self {
        Rounds {
            path: Path::new(),
            stages,
            limits,
            rx: List::EMPTY,
            stage: Stage::Rx,
            count: 0,
            softnet_until: Instant::NEVER,
        }
    }

    /// The next packet of the round, if the round goes on; how many the round takes from here on, and until
    /// when.
    #[inline(always)]
    fn pick(&mut self, now: Instant) -> Option<(u32, u32, Instant)> {
        let starts = self.count == 0;
        Some(match self.stage {
            Stage::Rx => {
                let left = self.limits.rx_round - self.count;
                let index = if left > 0 { self.rx.pop(&self.path.pool.links)? } else { return None };
                (index, left, Instant::NEVER)
            }
            Stage::Tx => {
                let left = self.limits.tx_round - self.count;
                let guest = if left > 0 { self.stages.tx_pick(&self.path, starts)? } else { return None };
                (self.path.take(guest)?, left, Instant::NEVER)
            }
            Stage::Softnet => {
                if starts {
                    self.softnet_until = now + self.limits.softnet_time;
                }
                let left = self.limits.softnet_round - self.count;
                if left == 0 || now >= self.softnet_until {
                    return None;
                }
                let (index, batch_left) = self.stages.softnet_pick(&self.path, starts)?;
                (index, left.min(batch_left), self.softnet_until)
            }
        })
    }

    #[inline]
    fn end_round(&mut self) {
        self.count = 0;
        self.stage = match self.stage {
            Stage::Rx => Stage::Tx,
            Stage::Tx => Stage::Softnet,
            Stage::Softnet => Stage::Rx,
        };
    }

    /// The only packet has passed a round of softnet that had `left` packets to take, and one of RX unless it
    /// was dropped.
    #[inline(always)]
    fn end_cut_through(&mut self, now: Instant, fate: Fate, left: u32) {
        self.softnet_until = now + self.limits.softnet_time;
        if fate == Fate::Delivered && left > 1 {
            // The round of softnet would have gone on.
            let next = self.stages.softnet_pick(&self.path, false);
            debug_assert_eq!(next, None, "no other packet waits");
        }
        (self.stage, self.count) = match fate {
            Fate::Delivered => (Stage::Rx, 1),
            _ if left > 1 => (Stage::Softnet, 1),
            _ => (Stage::Rx, 0),
        };
    }

    #[inline]
    fn put_softnet(&mut self, index: u32) -> Result<(), DropReason> {
        let put = self.stages.softnet_put(&mut self.path, index);
        if let Err(reason) = put {
            self.path.drop_packet(index, reason);
        }
        put
    }
}

impl<S: Stages> Discipline for Rounds<S> {
    fn attach(&mut self, now: Instant, params: &InterfaceParams) -> Result<InterfaceId, ParamError> {
        let id = self.path.add(now, params)?;
        let softnet = self.stages.attached(&mut self.path, id, params);
        self.path.reserve(softnet);
        Ok(id)
    }

    fn replace(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        params: &InterfaceParams,
    ) -> Result<bool, ParamError> {
        let replaced = self.path.replace(now, interface, params)?;
        if replaced {
            let softnet = self.stages.attached(&mut self.path, interface, params);
            self.path.reserve(softnet);
        }
        Ok(replaced)
    }

    fn reserve(&mut self, interfaces: usize) {
        let softnet = self.stages.reserve(interfaces);
        self.path.reserve_interfaces(interfaces, softnet);
    }

    #[inline(always)]
    fn arrive(&mut self, now: Instant, packet: Packet) -> Result<(), DropReason> {
        if self.path.interface(packet.source).kind == InterfaceKind::Device {
            let index = self.path.pool.add(packet);
            return self.put_softnet(index);
        }
        if self.path.offer(packet)? && self.path.admit(now, packet.source) {
            self.stages.tx_ready(&self.path, packet.source);
        }
        Ok(())
    }

    #[inline(always)]
    fn next(&mut self, now: Instant) -> Next {
        assert!(self.path.busy.is_none(), "a packet is being processed");
        while let Some(guest) = self.path.next_credited(now) {
            self.stages.tx_ready(&self.path, guest);
        }
        // The round under way, and a full one of each stage.
        for _ in 0..4 {
            if let Some((index, left, until)) = self.pick(now) {
                let starts = self.count == 0;
                self.count += 1;
                let stage = self.stage;
                if stage == Stage::Softnet && left == 1 {
                    // Nothing else is picked in this round.
                    self.end_round();
                }
                return Next::Process(Step {
                    stage,
                    packet: self.path.start(stage, index),
                    starts_round: starts,
                    round_packets_max: left,
                    round_until: until,
                });
            }
            self.end_round();
        }
        self.stage = Stage::Rx;
        self.path.credit_at().map_or(Next::Idle, Next::WaitUntil)
    }

    #[inline(always)]
    fn complete(&mut self, now: Instant) -> Fate {
        let Busy { stage, index } = self.path.busy.take().expect("a packet is being processed");
        match stage {
            Stage::Tx => {
                let guest = self.path.packet(index).source;
                if self.path.sent(now, guest) {
                    self.stages.tx_ready(&self.path, guest);
                }
                self.put_softnet(index).map_or_else(Fate::Dropped, |()| Fate::Queued(Stage::Softnet))
            }
            Stage::Softnet => {
                let fate = self.path.bridge(index);
                if fate == Fate::Queued(Stage::Rx) {
                    self.rx.push(&mut self.path.pool.links, index);
                }
                fate
            }
            Stage::Rx => {
                self.path.deliver(index);
                Fate::Delivered
            }
        }
    }

    #[inline(always)]
    fn cut_through(&mut self, now: Instant) -> Fate {
        let Some(Busy { stage: Stage::Tx, index }) = self.path.busy else { return self.complete(now) };
        let packet = *self.path.packet(index);
        if !self.rx.is_empty() || self.stages.softnet_len() > 0 || !self.path.may_cut_through(now, &packet) {
            return self.complete(now);
        }
        self.path.busy = None;
        if self.path.sent(now, packet.source) {
            self.stages.tx_ready(&self.path, packet.source);
        }
        if self.stages.tx_goes_on() {
            return self.put_softnet(index).map_or_else(Fate::Dropped, |()| Fate::Queued(Stage::Softnet));
        }
        let left = self.stages.softnet_cut_through(&mut self.path, index, &packet);
        self.path.pool.remove(index);
        let fate = self.path.pass(&packet);
        let left = left.min(self.limits.softnet_round);
        self.end_cut_through(now, fate, left);
        fate
    }

    #[inline(always)]
    fn pass(&mut self, now: Instant, packet: &Packet) -> Option<Fate> {
        if !self.path.may_pass(packet) || self.stages.softnet_len() > 0 || !self.rx.is_empty() {
            return None;
        }
        let left = self.stages.pass(&mut self.path, packet).min(self.limits.softnet_round);
        let fate = self.path.pass(packet);
        self.end_cut_through(now, fate, left);
        Some(fate)
    }

    #[inline]
    fn set_unread(&mut self, interface: InterfaceId, packets: u32) {
        self.path.set_unread(interface, packets);
    }

    fn room(&self, interface: InterfaceId) -> Option<u32> {
        self.path.room(interface)
    }

    fn drops(&self, interface: InterfaceId) -> Drops {
        self.path.drops(interface)
    }

    fn waiting(&self, stage: Stage) -> usize {
        match stage {
            Stage::Tx => self.path.in_rings(),
            Stage::Softnet => self.stages.softnet_len(),
            Stage::Rx => self.rx.len() as usize,
        }
    }
}
