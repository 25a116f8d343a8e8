//! A port as one plane sees it: its TX ring and the frames of it that are in the switch.
//!
//! Frames have consecutive numbers. `oldest..next` are in the switch, each in the slot of its number modulo
//! [`IN_FLIGHT_MAX`]. A frame is finished when all its receivers have it; finished frames are returned to the
//! driver in the order of their numbers, whatever the order of deliveries.

use punctual_model::network::{CLASS_WINDOW, Groups};
use punctual_net::discipline::RING_SLOTS_DEFAULT;
use punctual_net::{InterfaceId, InterfaceParams, Packet, Rate, TokenBucket};
use punctual_sched::{Duration, Instant};

use crate::check::urgency;
use crate::config::{End, Port};
use crate::error::DeliverError;
use crate::frame::Address;
use crate::limits::IN_FLIGHT_MAX;
use crate::narrow::to_u32;
use crate::ring::{Chain, Delivery, RxRing, TxRing};
use crate::stats::PortStats;
use crate::vlan::{EthernetHeader, HeaderRewrite, Vlan, VlanTag};

/// Packets of a port before stage TX, at most.
pub(crate) const WINDOW: u32 = 8;

/// A port with more packets before stage TX is not polled.
const BACKLOG_POLLED_MAX: u32 = 1;

/// The simulator and the analysis count on it.
const _: () = assert!(IN_FLIGHT_MAX == CLASS_WINDOW as usize);

/// Priority code points of a VLAN tag.
const PCPS: usize = 8;

/// Floods of a port: 1,000 frames a second, and 1,000 at once.
const FLOOD_RATE: Rate = Rate { bytes: 100, window: Duration::from_ms(100), burst_bytes: 1_000 };

/// A frame in the switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot {
    pub(crate) arrived: Instant,
    pub(crate) chain: Chain,
    /// Packets of this frame in the discipline, one for each receiver.
    pub(crate) copies: u16,
    /// One of several receivers has it, or all before an older frame: it is not sent again when the ring
    /// restarts.
    pub(crate) is_partly_delivered: bool,
}

/// Where the last frame of a port went. Frames with the same addresses follow it without a lookup.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Route {
    pub(crate) addresses: (u64, u32),
    pub(crate) vlan: Vlan,
    /// [`Table::changes`](crate::table::Table::changes) when the route was found.
    pub(crate) changes: u64,
    /// Then the table must see the sender again, because addresses age.
    pub(crate) until: Instant,
    pub(crate) receiver: usize,
}

/// The VLAN of a frame, and the header as it was read at ingress.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tag {
    pub(crate) vlan: Vlan,
    pub(crate) ethernet: EthernetHeader,
}

#[derive(Debug)]
pub(crate) struct PortQueue {
    /// The port that has the addresses of what is sent here: another one for a class.
    pub(crate) home: usize,
    /// The interface of the frame that is taken or was last: the port's own, or that of a class.
    pub(crate) source: InterfaceId,
    /// By PCP: the interface of its frames. Those without a tag have the port's own.
    classes: [InterfaceId; PCPS],
    pub(crate) has_classes: bool,
    /// Must the VLAN tag of its frames be read?
    pub(crate) reads_tag: bool,
    pub(crate) tx: Option<Box<TxRing>>,
    pub(crate) slots: Box<[Slot]>,
    /// By slot; empty without VLANs.
    pub(crate) tags: Box<[Tag]>,
    pub(crate) oldest: u32,
    pub(crate) next: u32,
    /// Packets before stage TX.
    pub(crate) tx_backlog: u32,
    window: u32,
    /// A port with more packets before stage TX is not polled.
    backlog_polled_max: u32,
    /// Slots of the RX ring in the discipline's account.
    pub(crate) ring_slots: u32,
    pub(crate) flood_bucket: TokenBucket,
    pub(crate) membership: Membership,
    pub(crate) route: Route,
    /// Of its frames; a smaller number is more urgent. With classes that of the least urgent ones.
    pub(crate) urgency: u64,
    /// That of frames without a class, and of a class its own.
    pub(crate) own_urgency: u64,
    /// That of its most urgent frames, by which it is polled.
    pub(crate) polled_urgency: u64,
    /// Its place among the rings that the plane polls; unused if the plane does not serve it.
    pub(crate) place: usize,
    /// The plane passes over the port this often: its last frame was dropped or had many descriptors.
    pub(crate) looks_to_skip: u8,
    /// How often another port took over this number. A packet to an earlier one is dropped.
    pub(crate) incarnation: u8,
    /// By queue: are there used entries that are not published?
    pub(crate) is_pending: [bool; 2],
    pub(crate) stats: PortStats,
}

/// Which frames to group addresses a port sends and receives without the limit of floods.
#[derive(Clone, Debug, Default)]
pub(crate) struct Membership {
    groups: Box<[Groups]>,
    pub(crate) is_uplink: bool,
}

impl Membership {
    pub(crate) fn of(port: &Port) -> Membership {
        let is_uplink = matches!(port.end, End::Uplink(_) | End::UplinkClass(..));
        Membership { groups: port.groups.clone().into(), is_uplink }
    }

    pub(crate) fn has(&self, group: Address) -> bool {
        self.groups.iter().any(|of| of.contains(group.0))
    }
}

impl PortQueue {
    /// Only a port that the plane serves has slots.
    pub(crate) fn new(home: usize, params: &InterfaceParams, is_served: bool, has_vlans: bool) -> Self {
        let frames = if is_served { IN_FLIGHT_MAX } else { 0 };
        let tags = if has_vlans { frames } else { 0 };
        let ring_slots = params.ring_slots.unwrap_or(RING_SLOTS_DEFAULT);
        PortQueue {
            home,
            source: InterfaceId(to_u32(home)),
            classes: [InterfaceId(to_u32(home)); PCPS],
            has_classes: false,
            reads_tag: has_vlans,
            tx: None,
            slots: vec![Slot::default(); frames].into_boxed_slice(),
            tags: vec![Tag::default(); tags].into_boxed_slice(),
            oldest: 0,
            next: 0,
            tx_backlog: 0,
            window: WINDOW.min(ring_slots),
            backlog_polled_max: BACKLOG_POLLED_MAX,
            ring_slots,
            flood_bucket: TokenBucket::new(Instant::ZERO, FLOOD_RATE),
            membership: Membership::default(),
            route: Route::default(),
            urgency: urgency(params),
            own_urgency: urgency(params),
            polled_urgency: urgency(params),
            place: usize::MAX,
            looks_to_skip: 0,
            incarnation: 0,
            is_pending: [false; 2],
            stats: PortStats::default(),
        }
    }

    /// Frames with this PCP are those of the interface `class`. The plane looks at all that the ring can
    /// hold: one of a more urgent class may be behind others.
    pub(crate) fn add_class(&mut self, pcp: u8, class: usize, urgency: u64) {
        self.classes[usize::from(pcp) % PCPS] = InterfaceId(to_u32(class));
        (self.has_classes, self.reads_tag) = (true, true);
        self.urgency = self.urgency.max(urgency);
        self.polled_urgency = self.polled_urgency.min(urgency);
        self.window = to_u32(IN_FLIGHT_MAX).min(self.ring_slots);
        self.backlog_polled_max = self.window;
    }

    /// The frames of this class are those of the port itself again.
    pub(crate) fn remove_class(&mut self, class: usize) {
        let own = InterfaceId(to_u32(self.home));
        for of in &mut self.classes {
            *of = if of.index() == class { own } else { *of };
        }
    }

    /// The frame that is taken has this tag.
    #[inline]
    pub(crate) fn classify(&mut self, tag: Option<VlanTag>) {
        self.source = match tag {
            Some(tag) => self.classes[usize::from(tag.pcp()) % PCPS],
            None => InterfaceId(to_u32(self.home)),
        };
    }

    /// May another frame be taken?
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.tx_backlog < self.window && (self.next.wrapping_sub(self.oldest) as usize) < IN_FLIGHT_MAX
    }

    /// Is there room for a frame that could change a decision?
    #[inline]
    pub(crate) fn wants_frame(&self) -> bool {
        self.tx_backlog <= self.backlog_polled_max && self.has_room()
    }

    /// Frames in the ring and in the switch that have not reached their receivers.
    pub(crate) fn queued(&mut self) -> u64 {
        // The next pop reports a broken ring.
        let avail = self.tx.as_mut().map_or(0, |tx| tx.avail_len().unwrap_or_default());
        u64::from(avail) + u64::from(self.next.wrapping_sub(self.oldest))
    }

    /// Is the frame still in the switch? Its ring may have stopped.
    #[inline]
    pub(crate) fn contains(&self, number: u32) -> bool {
        let age = self.next.wrapping_sub(number);
        age > 0 && age <= self.next.wrapping_sub(self.oldest)
    }

    /// Copies a frame into an RX ring, and returns it to its driver if that was the last receiver. An RX ring
    /// that turns out to be broken must not be used again.
    #[inline(always)]
    pub(crate) fn deliver(
        &mut self,
        rx: &mut Option<Box<RxRing>>,
        number: u32,
        rewrite: Option<&HeaderRewrite>,
    ) -> Delivered {
        debug_assert!(self.contains(number));
        let slot = &mut self.slots[number as usize % IN_FLIGHT_MAX];
        let Some(tx) = &self.tx else { return (Ok(Delivery::NoBuffers), false) };
        let done = deliver_to(rx, tx, &slot.chain, rewrite);
        if !matches!(done, Ok(Delivery::Delivered { .. })) {
            return (done, false);
        }
        slot.copies = slot.copies.saturating_sub(1);
        if slot.copies == 0 && number == self.oldest {
            (done, self.return_finished())
        } else {
            slot.is_partly_delivered = true;
            (done, false)
        }
    }

    /// Returns finished frames to the driver, in order: a ring that restarts at its used index sends nothing
    /// twice. Returns whether there were any.
    #[inline]
    pub(crate) fn return_finished(&mut self) -> bool {
        let Some(tx) = &mut self.tx else { return false };
        let oldest = self.oldest;
        while self.oldest != self.next {
            let slot = &self.slots[self.oldest as usize % IN_FLIGHT_MAX];
            if slot.copies > 0 {
                break;
            }
            self.oldest = self.oldest.wrapping_add(1);
            tx.push_used(&slot.chain);
        }
        debug_assert!(self.next.wrapping_sub(self.oldest) as usize <= IN_FLIGHT_MAX);
        oldest != self.oldest
    }
}

/// The id of a packet: the source in bits 48 to 63, the frame's number in bits 16 to 47, the destination's
/// incarnation in bits 8 to 15 and its port in bits 0 to 7.
pub(crate) fn packet_id(source: usize, number: u32, destination: usize, incarnation: u8) -> u64 {
    let to = u64::from(incarnation) << 8 | destination as u64 & 0xff;
    (source as u64) << 48 | u64::from(number) << 16 | to
}

/// The port through whose TX ring it came; [`Packet::source`] may be a class of it.
#[inline]
pub(crate) fn sender(packet: &Packet) -> usize {
    (packet.id >> 48) as usize
}

/// The incarnation of the destination to which a packet was sent.
pub(crate) fn incarnation(packet: &Packet) -> u8 {
    (packet.id >> 8 & 0xff) as u8
}

pub(crate) fn frame_number(packet: &Packet) -> u32 {
    (packet.id >> 16 & 0xffff_ffff) as u32
}

/// The result of a delivery, and whether buffers were returned to the sender.
pub(crate) type Delivered = (Result<Delivery, DeliverError>, bool);

/// Copies a frame into an RX ring.
#[inline(always)]
fn deliver_to(
    rx: &mut Option<Box<RxRing>>,
    tx: &TxRing,
    chain: &Chain,
    rewrite: Option<&HeaderRewrite>,
) -> Result<Delivery, DeliverError> {
    let Some(ring) = rx else { return Ok(Delivery::NoBuffers) };
    ring.deliver(tx, chain, rewrite)
}
