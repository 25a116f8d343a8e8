//! RTCA: packets by the priority of their guest in TX and softnet, in small batches.
//!
//! # Rules
//! Xi, Li, Lu, Gill, *Limitations and Solutions for Real-Time Local Inter-Domain Communication in Xen*,
//! WUCSE-2012-81 (rtca), section V and Algorithm 1. Turns and rounds are those of
//! [`netback`](crate::netback): RX, TX, softnet, none preempted.
//!
//! - **TX.** Before *every* packet the most urgent guest with a packet and credit is chosen; guests of one
//!   priority take turns. A round ends after a batch. When the chosen guest is more urgent than all before it
//!   in this round, the count starts again. `tx_round` bounds the whole. What a round took is handed over in
//!   the order it was taken.
//! - **Batch.** That of the guest at which the count started, if it has one, else the discipline's: a less
//!   urgent guest with a large batch does not hold up the packet of an urgent one with a small batch.
//! - **Softnet** has one queue per priority. A round of the softirq serves only the queue that is most urgent
//!   when it starts, up to the batch of the interface whose packet is first in it.
//! - **Limits.** Each softnet queue holds `softnet_limit` packets; there is no limit for all together.
//! - **RX** is unchanged: FIFO.
//! - **Network cards.** The paper leaves them for later. Here a packet from a card is as urgent as the guest
//!   it goes to and waits in the queue of that priority, and one between two cards is as urgent as the first.

use alloc::boxed::Box;
use alloc::vec::Vec;

use punctual_sched::registry::{OptionError, OptionValue, Options, ParamDefault, ParamInfo};

use crate::discipline::{
    BATCH, BURST_BYTES, CREDIT_BYTES, CREDIT_WINDOW, Discipline, DisciplineInfo, InterfaceParams, PACKETS,
    PRIORITY, Preemption, RING_SLOTS, SOFTNET_LIMIT,
};
use crate::levels::{LevelQueues, Levels};
use crate::packet::{DropReason, InterfaceId, Packet};
use crate::path::Path;
use crate::rounds::{Limits, RX_ROUND, Rounds, SOFTNET_ROUND, SOFTNET_TIME, Stages, TX_ROUND, packets};

/// Parameters of an interface under the disciplines with priorities.
pub(crate) const INTERFACE_PARAMS: &[ParamInfo] =
    &[PRIORITY, BATCH, SOFTNET_LIMIT, RING_SLOTS, CREDIT_BYTES, CREDIT_WINDOW, BURST_BYTES];

/// The option `batch`.
pub const BATCH_OPTION: ParamInfo = ParamInfo {
    name: "batch",
    kind: PACKETS,
    default: Some(ParamDefault::Value(OptionValue::Count(1))),
    help: "packets processed in a stage before the next stage gets its turn, for interfaces without \
           their own",
};

/// The option `softnet_limit`.
pub const SOFTNET_LIMIT_OPTION: ParamInfo = ParamInfo {
    name: "softnet_limit",
    kind: PACKETS,
    default: Some(ParamDefault::Value(OptionValue::Count(600))),
    help: "packets that wait in each softnet_data queue; more are dropped",
};

/// The registry's entry.
pub const INFO: DisciplineInfo = DisciplineInfo {
    name: "rtca",
    summary: "most urgent guest before every packet in TX, softnet split by priority, small batches",
    source: "rtca s.V, Algorithm 1",
    interface_params: INTERFACE_PARAMS,
    options: &[BATCH_OPTION, TX_ROUND, SOFTNET_ROUND, SOFTNET_TIME, SOFTNET_LIMIT_OPTION, RX_ROUND],
    preemption: Preemption::Batches,
    build: |options| Ok(Box::new(build(options)?)),
};

pub(crate) fn build(options: &Options) -> Result<impl Discipline + 'static, OptionError> {
    let limits = Limits::from_options(options)?;
    let batch = packets(options, &BATCH_OPTION)?;
    let softnet_limit = packets(options, &SOFTNET_LIMIT_OPTION)?;
    Ok(Rounds::new(limits, Rtca::new(batch, softnet_limit)))
}

/// A round in progress.
#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    /// TX: the most urgent level so far; softnet: the level served.
    level: usize,
    /// Packets left.
    left: u32,
}

#[derive(Clone, Debug)]
struct Rtca {
    batch: u32,
    softnet_limit: u32,
    levels: Levels,
    /// Guests with a packet and credit.
    guests: LevelQueues,
    guest_links: Vec<u32>,
    /// The `softnet_data` queues.
    softnet: LevelQueues,
    tx_batch: Batch,
    softnet_batch: Batch,
}

impl Rtca {
    fn new(batch: u32, softnet_limit: u32) -> Self {
        Rtca {
            batch,
            softnet_limit,
            levels: Levels::default(),
            guests: LevelQueues::default(),
            guest_links: Vec::new(),
            softnet: LevelQueues::default(),
            tx_batch: Batch::default(),
            softnet_batch: Batch::default(),
        }
    }
}

impl Stages for Rtca {
    fn attached(&mut self, path: &mut Path, id: InterfaceId, params: &InterfaceParams) -> usize {
        let limit = params.softnet_limit.unwrap_or(self.softnet_limit);
        if let Some(level) = self.levels.place(path, id, params.priority, limit) {
            self.guests.insert_level(level);
            self.softnet.insert_level(level);
            for batch in [&mut self.tx_batch, &mut self.softnet_batch] {
                batch.level += usize::from(batch.level >= level);
            }
        }
        self.guest_links.resize(path.interfaces.len(), 0);
        self.levels.capacity()
    }

    fn reserve(&mut self, interfaces: usize) -> usize {
        self.guest_links.reserve(interfaces.saturating_sub(self.guest_links.len()));
        self.levels.capacity()
    }

    #[inline(always)]
    fn tx_ready(&mut self, path: &Path, guest: InterfaceId) {
        self.guests.push(path.interface(guest).level, &mut self.guest_links, guest.0);
    }

    #[inline(always)]
    fn tx_pick(&mut self, path: &Path, starts: bool) -> Option<InterfaceId> {
        let level = self.guests.first()?;
        let guest = InterfaceId(self.guests.queue(level).head()?);
        if starts || level < self.tx_batch.level {
            self.tx_batch = Batch { level, left: path.interface(guest).batch.unwrap_or(self.batch) };
        }
        self.tx_batch.left = self.tx_batch.left.checked_sub(1)?;
        self.guests.pop(level, &self.guest_links);
        Some(guest)
    }

    #[inline(always)]
    fn softnet_put(&mut self, path: &mut Path, index: u32) -> Result<(), DropReason> {
        let level = path.owner(index).level;
        if self.softnet.queue(level).len() >= self.levels.limit(level) {
            return Err(DropReason::Softnet);
        }
        self.softnet.push(level, &mut path.pool.links, index);
        Ok(())
    }

    #[inline(always)]
    fn softnet_pick(&mut self, path: &Path, starts: bool) -> Option<(u32, u32)> {
        if starts {
            let level = self.softnet.first()?;
            let head = self.softnet.queue(level).head()?;
            self.softnet_batch = Batch { level, left: path.owner(head).batch.unwrap_or(self.batch) };
        }
        let left = self.softnet_batch.left;
        self.softnet_batch.left = left.checked_sub(1)?;
        let index = self.softnet.pop(self.softnet_batch.level, &path.pool.links)?;
        Some((index, left))
    }

    #[inline(always)]
    fn tx_goes_on(&self) -> bool {
        self.guests.first().is_some_and(|level| level < self.tx_batch.level || self.tx_batch.left > 0)
    }

    #[inline(always)]
    fn softnet_cut_through(&mut self, path: &mut Path, _index: u32, packet: &Packet) -> u32 {
        // A packet of stage TX is as urgent as the guest that it comes from.
        let source = path.interface(packet.source);
        let left = source.batch.unwrap_or(self.batch);
        self.softnet_batch = Batch { level: source.level, left: left - 1 };
        left
    }

    #[inline(always)]
    fn pass(&mut self, path: &mut Path, packet: &Packet) -> u32 {
        let left = self.softnet_cut_through(path, 0, packet);
        self.tx_batch = self.softnet_batch;
        left
    }

    fn softnet_len(&self) -> usize {
        self.softnet.len()
    }
}
