//! Priorities across all three stages: the most urgent packet goes first wherever it waits.
//!
//! # Rules
//! Beyond the papers. Xi, Li, Lu, Gill, *Limitations and Solutions for Real-Time Local Inter-Domain
//! Communication in Xen*, WUCSE-2012-81, name three things that RTCA leaves: the TX queue is handed over in
//! FIFO order at the end of a round (section V), softnet and RX are not preempted (section V), and there is
//! no strict priority between the queues (section III). Here:
//!
//! - **State.** In each stage one queue per priority; in TX it holds guests, which take turns.
//! - **Decision.** Every decision takes the most urgent priority at which a packet waits in *any* stage. So
//!   an urgent packet waits for at most one packet in one stage. TX passes every packet on as soon as it is
//!   processed.
//! - **Stage.** At that priority the packet that is furthest on its way goes first: RX, then softnet, then
//!   TX, so that queues stay short.
//! - **Batch.** A stage goes on with packets of one priority up to a batch, that of the interface whose
//!   packet came first, before a later stage gets its turn. A more urgent packet ends the batch, in whatever
//!   stage it waits. With a batch of 1, the default, every packet goes through all stages before the next.
//! - **Limits.** As in [`rtca`](crate::rtca): each softnet queue holds `softnet_limit` packets, a guest's RX
//!   ring limits what waits for it. There are no rounds beside the batch.

use alloc::boxed::Box;
use alloc::vec::Vec;

use punctual_sched::ParamError;
use punctual_sched::registry::{OptionError, Options};
use punctual_sched::time::Instant;

use crate::discipline::{
    Discipline, DisciplineInfo, Fate, InterfaceKind, InterfaceParams, Next, Preemption, Step,
};
use crate::levels::{LevelQueues, Levels};
use crate::packet::{DropReason, Drops, InterfaceId, Packet, Stage};
use crate::path::{Busy, Path};
use crate::rounds::packets;
use crate::rtca::{BATCH_OPTION, INTERFACE_PARAMS, SOFTNET_LIMIT_OPTION};

/// The registry's entry.
pub const INFO: DisciplineInfo = DisciplineInfo {
    name: "preemptive",
    summary: "most urgent packet of all three stages first, later stages before earlier ones",
    source: "beyond the papers: what rtca s.III and s.V leave open",
    interface_params: INTERFACE_PARAMS,
    options: &[BATCH_OPTION, SOFTNET_LIMIT_OPTION],
    preemption: Preemption::Packets,
    build: |options| Ok(Box::new(build(options)?)),
};

pub(crate) fn build(options: &Options) -> Result<impl Discipline + 'static, OptionError> {
    let batch = packets(options, &BATCH_OPTION)?;
    let softnet_limit = packets(options, &SOFTNET_LIMIT_OPTION)?;
    Ok(Preemptive::new(batch, softnet_limit))
}

/// Packets of one priority in one stage, one after the other.
#[derive(Clone, Copy, Debug)]
struct Batch {
    stage: Stage,
    level: usize,
    /// Packets left.
    left: u32,
}

/// The discipline; see the module's rules.
#[derive(Clone, Debug)]
struct Preemptive {
    batch_default: u32,
    softnet_limit: u32,
    path: Path,
    levels: Levels,
    /// Guests with a packet and credit.
    guests: LevelQueues,
    guest_links: Vec<u32>,
    softnet: LevelQueues,
    rx: LevelQueues,
    batch: Batch,
}

impl Preemptive {
    fn new(batch: u32, softnet_limit: u32) -> Self {
        Preemptive {
            batch_default: batch,
            softnet_limit,
            path: Path::new(),
            levels: Levels::default(),
            guests: LevelQueues::default(),
            guest_links: Vec::new(),
            softnet: LevelQueues::default(),
            rx: LevelQueues::default(),
            batch: Batch { stage: Stage::Rx, level: 0, left: 0 },
        }
    }

    /// Gives an interface its level.
    fn place(&mut self, id: InterfaceId, params: &InterfaceParams) {
        let limit = params.softnet_limit.unwrap_or(self.softnet_limit);
        if let Some(level) = self.levels.place(&mut self.path, id, params.priority, limit) {
            for queues in [&mut self.guests, &mut self.softnet, &mut self.rx] {
                queues.insert_level(level);
            }
            self.batch.level += usize::from(self.batch.level >= level);
        }
        self.guest_links.resize(self.path.interfaces.len(), 0);
        self.path.reserve(self.levels.capacity());
    }

    #[inline(always)]
    fn ready(&mut self, guest: InterfaceId) {
        self.guests.push(self.path.interface(guest).level, &mut self.guest_links, guest.0);
    }

    #[inline]
    fn queues(&self, stage: Stage) -> &LevelQueues {
        match stage {
            Stage::Tx => &self.guests,
            Stage::Softnet => &self.softnet,
            Stage::Rx => &self.rx,
        }
    }

    /// The most urgent level of all stages, and the last stage at which a packet of that level waits.
    #[inline(always)]
    fn most_urgent(&self) -> Option<(usize, Stage)> {
        let mut best = None;
        for stage in [Stage::Rx, Stage::Softnet, Stage::Tx] {
            if let Some(level) = self.queues(stage).first()
                && best.is_none_or(|(best, _)| level < best)
            {
                best = Some((level, stage));
            }
        }
        best
    }

    /// The batch of the interface whose packet is first at `stage` and `level`.
    #[inline]
    fn batch_at(&self, stage: Stage, level: usize) -> Option<u32> {
        let head = self.queues(stage).queue(level).head()?;
        let owner = match stage {
            Stage::Tx => self.path.interface(InterfaceId(head)),
            Stage::Softnet | Stage::Rx => self.path.owner(head),
        };
        Some(owner.batch.unwrap_or(self.batch_default))
    }

    /// Takes the first packet at `stage` and `level` out of its queue.
    #[inline]
    fn take(&mut self, stage: Stage, level: usize) -> Option<u32> {
        match stage {
            Stage::Tx => {
                let guest = self.guests.pop(level, &self.guest_links)?;
                self.path.take(InterfaceId(guest))
            }
            Stage::Softnet => self.softnet.pop(level, &self.path.pool.links),
            Stage::Rx => self.rx.pop(level, &self.path.pool.links),
        }
    }

    #[inline(always)]
    fn choose(&mut self) -> Option<Step> {
        let (level, stage) = self.most_urgent()?;
        let goes_on = self.batch.left > 0
            && self.batch.level == level
            && self.queues(self.batch.stage).first() == Some(level);
        if !goes_on {
            self.batch = Batch { stage, level, left: self.batch_at(stage, level)? };
        }
        let Batch { stage, level, left } = self.batch;
        let index = self.take(stage, level)?;
        self.batch.left -= 1;
        Some(Step {
            stage,
            packet: self.path.start(stage, index),
            starts_round: !goes_on,
            round_packets_max: left,
            round_until: Instant::NEVER,
        })
    }

    #[inline(always)]
    fn put_softnet(&mut self, index: u32) -> Result<(), DropReason> {
        let level = self.path.owner(index).level;
        if self.softnet.queue(level).len() >= self.levels.limit(level) {
            self.path.drop_packet(index, DropReason::Softnet);
            return Err(DropReason::Softnet);
        }
        self.softnet.push(level, &mut self.path.pool.links, index);
        Ok(())
    }
}

impl Discipline for Preemptive {
    fn attach(&mut self, now: Instant, params: &InterfaceParams) -> Result<InterfaceId, ParamError> {
        let id = self.path.add(now, params)?;
        self.place(id, params);
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
            self.place(interface, params);
        }
        Ok(replaced)
    }

    fn reserve(&mut self, interfaces: usize) {
        self.guest_links.reserve(interfaces.saturating_sub(self.guest_links.len()));
        self.path.reserve_interfaces(interfaces, self.levels.capacity());
    }

    #[inline(always)]
    fn arrive(&mut self, now: Instant, packet: Packet) -> Result<(), DropReason> {
        if self.path.interface(packet.source).kind == InterfaceKind::Device {
            let index = self.path.pool.add(packet);
            return self.put_softnet(index);
        }
        if self.path.offer(packet)? && self.path.admit(now, packet.source) {
            self.ready(packet.source);
        }
        Ok(())
    }

    #[inline(always)]
    fn next(&mut self, now: Instant) -> Next {
        assert!(self.path.busy.is_none(), "a packet is being processed");
        while let Some(guest) = self.path.next_credited(now) {
            self.ready(guest);
        }
        match self.choose() {
            Some(step) => Next::Process(step),
            None => self.path.credit_at().map_or(Next::Idle, Next::WaitUntil),
        }
    }

    #[inline(always)]
    fn complete(&mut self, now: Instant) -> Fate {
        let Busy { stage, index } = self.path.busy.take().expect("a packet is being processed");
        match stage {
            Stage::Tx => {
                let guest = self.path.packet(index).source;
                if self.path.sent(now, guest) {
                    self.ready(guest);
                }
                self.put_softnet(index).map_or_else(Fate::Dropped, |()| Fate::Queued(Stage::Softnet))
            }
            Stage::Softnet => {
                let fate = self.path.bridge(index);
                if fate == Fate::Queued(Stage::Rx) {
                    self.rx.push(self.path.owner(index).level, &mut self.path.pool.links, index);
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
        let is_alone = self.softnet.len() + self.rx.len() == 0;
        let packet = *self.path.packet(index);
        if !is_alone || !self.path.may_cut_through(now, &packet) {
            return self.complete(now);
        }
        self.path.busy = None;
        if self.path.sent(now, packet.source) {
            self.ready(packet.source);
        }
        // A packet of stage TX is as urgent as the guest that it comes from.
        let source = self.path.interface(packet.source);
        let (level, batch) = (source.level, source.batch.unwrap_or(self.batch_default));
        // Another guest of this level goes on with the batch, one that is more urgent goes before it.
        let goes_before = |other| other < level || other == level && self.batch.left > 0;
        if self.guests.first().is_some_and(goes_before) {
            return self.put_softnet(index).map_or_else(Fate::Dropped, |()| Fate::Queued(Stage::Softnet));
        }
        self.path.pool.remove(index);
        let fate = self.path.pass(&packet);
        let stage = if fate == Fate::Delivered { Stage::Rx } else { Stage::Softnet };
        self.batch = Batch { stage, level, left: batch - 1 };
        fate
    }

    #[inline(always)]
    fn pass(&mut self, _now: Instant, packet: &Packet) -> Option<Fate> {
        if !self.path.may_pass(packet) || self.softnet.len() + self.rx.len() > 0 {
            return None;
        }
        let source = self.path.interface(packet.source);
        let (level, batch) = (source.level, source.batch.unwrap_or(self.batch_default));
        let fate = self.path.pass(packet);
        let stage = if fate == Fate::Delivered { Stage::Rx } else { Stage::Softnet };
        self.batch = Batch { stage, level, left: batch - 1 };
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
            Stage::Softnet | Stage::Rx => self.queues(stage).len(),
        }
    }
}
