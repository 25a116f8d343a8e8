//! The path as shipped with Xen 4.1 and Linux 3.x: round robin in TX, one queue for all guests in softnet.
//!
//! # Rules
//! Xi, Li, Lu, Gill, *Limitations and Solutions for Real-Time Local Inter-Domain Communication in Xen*,
//! WUCSE-2012-81 (rtca), section II.D. Turns and rounds are those of all disciplines in rounds: RX, TX,
//! softnet, in this order and none preempted, at most `rx_round`, `tx_round` and `softnet_round` packets or
//! `softnet_time`.
//!
//! - **TX.** Guests with pending packets take turns of one packet each. A guest over its rate limit loses its
//!   turn until it has credit.
//! - **Order of turns.** `cyclic`: the guests in the order in which they were attached, starting after the
//!   last one served. `list`: first come, first served; a guest with more packets goes to the end of the list
//!   when its packet is done, so behind a guest whose first packet arrived meanwhile. Section II.D describes
//!   `list`, netback's `schedule_list`; Fig. 6a of the same paper shows `cyclic`, which is the default. They
//!   differ only while guests become active and idle.
//! - **Softnet.** Netback is one device for all guests, beside each network card. Devices with packets take
//!   turns of `softnet_weight` packets; a turn that the end of the round cuts short counts as one.
//! - **Limits.** Netback's softnet queue holds `softnet_limit` packets, a card's queue as many as its ring
//!   has slots, a guest's RX ring limits what waits for it in RX. What exceeds them is dropped and counted.
//! - **Priorities** do not exist.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use punctual_sched::registry::{OptionError, OptionValue, Options, ParamDefault, ParamInfo, ParamKind};

use crate::bitmap::Set;
use crate::discipline::{
    BURST_BYTES, CREDIT_BYTES, CREDIT_WINDOW, Discipline, DisciplineInfo, InterfaceKind, InterfaceParams,
    PACKETS, Preemption, RING_SLOTS,
};
use crate::packet::{DropReason, InterfaceId, Packet, narrow};
use crate::path::Path;
use crate::queue::List;
use crate::rounds::{Limits, RX_ROUND, Rounds, SOFTNET_ROUND, SOFTNET_TIME, Stages, TX_ROUND, packets};

const SOFTNET_WEIGHT: ParamInfo = ParamInfo {
    name: "softnet_weight",
    kind: PACKETS,
    default: Some(ParamDefault::Value(OptionValue::Count(64))),
    help: "packets of one device before the softirq turns to the next",
};

/// The option `softnet_limit`.
pub const SOFTNET_LIMIT: ParamInfo = ParamInfo {
    name: "softnet_limit",
    kind: PACKETS,
    default: Some(ParamDefault::Value(OptionValue::Count(1000))),
    help: "packets of all guests that wait in softnet_data; more are dropped",
};

const TX_TURNS: ParamInfo = ParamInfo {
    name: "tx_turns",
    kind: ParamKind::Choice(&["cyclic", "list"]),
    default: Some(ParamDefault::Value(OptionValue::Word("cyclic"))),
    help: "round robin in the order of attachment, or by a list that newly active guests join at its end",
};

/// The registry's entry.
pub const INFO: DisciplineInfo = DisciplineInfo {
    name: "netback",
    summary: "as shipped: round robin over guests, one softnet queue for all, no priorities",
    source: "rtca s.II.D; Linux drivers/net/xen-netback, net/core/dev.c",
    interface_params: &[RING_SLOTS, CREDIT_BYTES, CREDIT_WINDOW, BURST_BYTES],
    options: &[TX_ROUND, TX_TURNS, SOFTNET_WEIGHT, SOFTNET_ROUND, SOFTNET_TIME, SOFTNET_LIMIT, RX_ROUND],
    preemption: Preemption::None,
    build: |options| Ok(Box::new(build(options)?)),
};

pub(crate) fn build(options: &Options) -> Result<impl Discipline + 'static, OptionError> {
    let limits = Limits::from_options(options)?;
    let limit = packets(options, &SOFTNET_LIMIT)?;
    let weight = packets(options, &SOFTNET_WEIGHT)?;
    Ok(Rounds::new(limits, Netback::new(Turns::from_options(options), limit, weight)))
}

/// Which guest is next in TX.
#[derive(Clone, Debug)]
enum Turns {
    Cyclic {
        ready: Set,
        /// The guest after the last one served.
        next: usize,
    },
    List {
        ready: List,
        links: Vec<u32>,
    },
}

impl Turns {
    fn from_options(options: &Options) -> Turns {
        match options.word(&TX_TURNS) {
            "list" => Turns::List { ready: List::EMPTY, links: Vec::new() },
            _ => Turns::Cyclic { ready: Set::default(), next: 0 },
        }
    }
}

/// A device as the softirq sees it.
#[derive(Clone, Debug)]
struct Device {
    queue: List,
    limit: u32,
    /// What a packet beyond the limit is counted as.
    over_limit: DropReason,
    /// Is it among the active devices? Set when a packet is queued, cleared when its turn finds none.
    active: bool,
}

/// Netback itself, the first of the devices.
const NETBACK: u32 = 0;

#[derive(Clone, Debug)]
struct Netback {
    turns: Turns,
    weight: u32,
    devices: Vec<Device>,
    /// The device that each interface's packets go through.
    device_of: Vec<u32>,
    /// Devices with packets, the one whose turn it is first.
    active: VecDeque<u32>,
    /// Packets of the current turn so far.
    turn: u32,
}

impl Netback {
    fn new(turns: Turns, limit: u32, weight: u32) -> Self {
        let netback = Device { queue: List::EMPTY, limit, over_limit: DropReason::Softnet, active: false };
        Netback {
            turns,
            weight,
            devices: alloc::vec![netback],
            device_of: Vec::new(),
            active: VecDeque::with_capacity(1),
            turn: 0,
        }
    }

    /// Packets that wait for softnet at most.
    fn softnet_capacity(&self) -> usize {
        self.devices.iter().map(|device| device.limit as usize).sum()
    }

    /// The current device's turn is over; it keeps a place among the active ones if it has packets.
    #[inline]
    fn end_turn(&mut self) {
        self.turn = 0;
        let Some(device) = self.active.pop_front() else {
            return;
        };
        if self.devices[device as usize].queue.is_empty() {
            self.devices[device as usize].active = false;
        } else {
            self.active.push_back(device);
        }
    }
}

impl Stages for Netback {
    fn attached(&mut self, path: &mut Path, id: InterfaceId, _params: &InterfaceParams) -> usize {
        if id.index() < self.device_of.len() {
            // Another guest behind the same device.
            return self.softnet_capacity();
        }
        let interface = path.interface(id);
        let device = match interface.kind {
            InterfaceKind::Guest => NETBACK,
            InterfaceKind::Device => {
                self.devices.push(Device {
                    queue: List::EMPTY,
                    limit: interface.ring_slots,
                    over_limit: DropReason::SourceRing,
                    active: false,
                });
                narrow(self.devices.len() - 1)
            }
        };
        self.device_of.push(device);
        self.active.reserve(self.devices.len() - self.active.len());
        match &mut self.turns {
            Turns::Cyclic { ready, .. } => ready.grow(self.device_of.len()),
            Turns::List { links, .. } => links.resize(self.device_of.len(), 0),
        }
        self.softnet_capacity()
    }

    fn reserve(&mut self, interfaces: usize) -> usize {
        let more = interfaces.saturating_sub(self.device_of.len());
        self.device_of.reserve(more);
        match &mut self.turns {
            Turns::Cyclic { ready, .. } => ready.grow(interfaces),
            Turns::List { links, .. } => links.reserve(more),
        }
        self.softnet_capacity()
    }

    #[inline(always)]
    fn tx_ready(&mut self, _path: &Path, guest: InterfaceId) {
        match &mut self.turns {
            Turns::Cyclic { ready, .. } => ready.insert(guest.index()),
            Turns::List { ready, links } => ready.push(links, guest.0),
        }
    }

    #[inline(always)]
    fn tx_pick(&mut self, _path: &Path, _starts: bool) -> Option<InterfaceId> {
        match &mut self.turns {
            Turns::Cyclic { ready, next } => {
                let guest = ready.first_from(*next).or_else(|| ready.first())?;
                ready.remove(guest);
                *next = guest + 1;
                Some(InterfaceId::of(guest))
            }
            Turns::List { ready, links } => ready.pop(links).map(InterfaceId),
        }
    }

    #[inline(always)]
    fn softnet_put(&mut self, path: &mut Path, index: u32) -> Result<(), DropReason> {
        let id = self.device_of[path.packet(index).source.index()];
        let device = &mut self.devices[id as usize];
        if device.queue.len() >= device.limit {
            return Err(device.over_limit);
        }
        device.queue.push(&mut path.pool.links, index);
        if !device.active {
            device.active = true;
            self.active.push_back(id);
        }
        Ok(())
    }

    #[inline(always)]
    fn softnet_pick(&mut self, path: &Path, starts: bool) -> Option<(u32, u32)> {
        if self.turn > 0 && (starts || self.turn >= self.weight) {
            self.end_turn();
        }
        while let Some(&device) = self.active.front() {
            if let Some(index) = self.devices[device as usize].queue.pop(&path.pool.links) {
                self.turn += 1;
                return Some((index, u32::MAX));
            }
            self.end_turn();
        }
        None
    }

    #[inline(always)]
    fn tx_goes_on(&self) -> bool {
        match &self.turns {
            Turns::Cyclic { ready, .. } => ready.first().is_some(),
            Turns::List { ready, .. } => !ready.is_empty(),
        }
    }

    #[inline(always)]
    fn softnet_cut_through(&mut self, path: &mut Path, index: u32, _packet: &Packet) -> u32 {
        let put = self.softnet_put(path, index);
        debug_assert!(put.is_ok(), "a limit is at least one packet");
        let picked = self.softnet_pick(path, true);
        debug_assert_eq!(picked.map(|(picked, _)| picked), Some(index));
        u32::MAX
    }

    #[inline(always)]
    fn pass(&mut self, path: &mut Path, packet: &Packet) -> u32 {
        if let Turns::Cyclic { next, .. } = &mut self.turns {
            *next = packet.source.index() + 1;
        }
        let index = path.pool.add(*packet);
        let left = self.softnet_cut_through(path, index, packet);
        path.pool.remove(index);
        left
    }

    fn softnet_len(&self) -> usize {
        self.devices.iter().map(|device| device.queue.len() as usize).sum()
    }
}
