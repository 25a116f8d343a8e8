//! A port as its plane knows it.

use punctual_net::discipline::RING_SLOTS_DEFAULT;
use punctual_net::{InterfaceParams, Packet, Rate, TokenBucket};
use punctual_sched::{Duration, Instant};

use crate::check::urgency;
use crate::error::{DeliverError, RingError};
use crate::limits::IN_FLIGHT_MAX;
use crate::ring::{Chain, Delivery, RxRing, TxRing};
use crate::stats::PortStats;
use crate::vlan::{EthernetHeader, HeaderRewrite, Vlan};

/// Packets of a port that wait for the TX stage at most.
pub const WINDOW: u32 = 8;

/// Packets before the TX stage at which a port is looked at.
const BACKLOG_POLLED_MAX: u32 = 1;

/// Frames to all ports that a port may send: a thousand a second, and a thousand at once.
const FLOOD_RATE: Rate = Rate { bytes: 100, window: Duration::from_ms(100), burst_bytes: 1_000 };

/// A frame in the switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot {
    /// When it was taken in.
    pub(crate) arrived: Instant,
    pub(crate) chain: Chain,
    /// Receivers that it has not reached yet.
    pub(crate) copies: u16,
    /// Has it reached one of several? Then it is not sent again when its ring stops.
    pub(crate) partly_delivered: bool,
}

/// Where the last frame of a port went: those that follow it go there, too, as long as this holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Route {
    /// Both addresses and the VLAN.
    pub(crate) addresses: (u64, u32),
    pub(crate) vlan: Vlan,
    /// The number of changes of the table.
    pub(crate) changes: u64,
    /// When the table wants to hear of the sender again. It does so once a second.
    pub(crate) until: Instant,
    pub(crate) receiver: usize,
}

/// The VLAN of a frame in the switch, and what was read of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tag {
    pub(crate) vlan: Vlan,
    pub(crate) ethernet: EthernetHeader,
}

/// A port as its plane knows it.
#[derive(Debug)]
pub(crate) struct PortQueue {
    pub(crate) send: Option<Box<TxRing>>,
    pub(crate) slots: Box<[Slot]>,
    /// By slot; none where there are no VLANs.
    pub(crate) tags: Box<[Tag]>,
    /// Numbers of the oldest frame in the switch, and of the next one.
    pub(crate) oldest: u32,
    pub(crate) next: u32,
    /// Packets before the TX stage, and at most.
    pub(crate) tx_backlog: u32,
    pub(crate) window: u32,
    /// Slots of its receive ring by the discipline's account.
    pub(crate) ring_slots: u32,
    pub(crate) flood_bucket: TokenBucket,
    pub(crate) route: Route,
    /// The smaller, the more urgent.
    pub(crate) urgency: u64,
    /// How often another port took this one's place. Packets to one that was here before do not arrive.
    pub(crate) incarnation: u8,
    /// Has its driver to hear of frames that it sent, of frames that it received?
    pub(crate) pending: [bool; 2],
    pub(crate) stats: PortStats,
}

impl PortQueue {
    /// Only a port that the plane serves has frames in it.
    pub(crate) fn new(params: &InterfaceParams, is_served: bool, has_vlans: bool) -> Self {
        let frames = if is_served { IN_FLIGHT_MAX } else { 0 };
        let tags = if has_vlans { frames } else { 0 };
        let ring_slots = params.ring_slots.unwrap_or(RING_SLOTS_DEFAULT);
        PortQueue {
            send: None,
            slots: vec![Slot::default(); frames].into_boxed_slice(),
            tags: vec![Tag::default(); tags].into_boxed_slice(),
            oldest: 0,
            next: 0,
            tx_backlog: 0,
            window: WINDOW.min(ring_slots),
            ring_slots,
            flood_bucket: TokenBucket::new(Instant::ZERO, FLOOD_RATE),
            route: Route::default(),
            urgency: urgency(params),
            incarnation: 0,
            pending: [false; 2],
            stats: PortStats::default(),
        }
    }

    /// May another frame be taken in?
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.tx_backlog < self.window && (self.next.wrapping_sub(self.oldest) as usize) < IN_FLIGHT_MAX
    }

    /// May another frame change a decision, and is there room for it?
    #[inline(always)]
    pub(crate) fn wants_frame(&self) -> bool {
        self.tx_backlog <= BACKLOG_POLLED_MAX && self.has_room()
    }

    /// Is there such a frame?
    #[inline(always)]
    pub(crate) fn has_pending(&self) -> bool {
        self.wants_frame() && self.send.as_ref().is_some_and(|send| send.has_pending())
    }

    /// Frames that its VM offers and that no receiver has yet.
    pub(crate) fn queued(&mut self) -> u64 {
        // A broken ring is noticed when a frame is taken.
        let offered = self.send.as_mut().map_or(0, |send| send.avail_len().unwrap_or_default());
        u64::from(offered) + u64::from(self.next.wrapping_sub(self.oldest))
    }

    /// Is the frame with this number here? Its ring may have stopped meanwhile.
    #[inline]
    pub(crate) fn contains(&self, number: u32) -> bool {
        let age = self.next.wrapping_sub(number);
        age > 0 && age <= self.next.wrapping_sub(self.oldest)
    }

    /// Copies the frame with this number into a receive ring, and gives it back if that was the last
    /// receiver.
    #[inline(always)]
    pub(crate) fn deliver(
        &mut self,
        place: &mut Option<Box<RxRing>>,
        number: u32,
        rewrite: Option<&HeaderRewrite>,
    ) -> Delivered {
        let slot = &mut self.slots[number as usize % IN_FLIGHT_MAX];
        let Some(send) = &self.send else { return (Ok(Delivery::NoBuffers), Ok(false)) };
        let done = deliver_to(place, send, &slot.chain, rewrite);
        if !matches!(done, Ok(Delivery::Delivered { .. })) {
            return (done, Ok(false));
        }
        slot.partly_delivered |= slot.copies > 1;
        slot.copies = slot.copies.saturating_sub(1);
        let is_over = slot.copies == 0 && number == self.oldest;
        (done, if is_over { self.return_finished() } else { Ok(false) })
    }

    /// Gives the driver what is finished, in order: a driver that goes on where the used ring ends then sends
    /// nothing twice. Was there anything?
    #[inline]
    pub(crate) fn return_finished(&mut self) -> Result<bool, RingError> {
        let Some(send) = &mut self.send else { return Ok(false) };
        let oldest = self.oldest;
        while self.oldest != self.next {
            let slot = &self.slots[self.oldest as usize % IN_FLIGHT_MAX];
            if slot.copies > 0 {
                break;
            }
            self.oldest = self.oldest.wrapping_add(1);
            send.push_used(&slot.chain)?;
        }
        Ok(oldest != self.oldest)
    }
}

/// Packets of a source have the numbers of their frames, in bits 16 to 47; above them stands the source,
/// below the destination and its incarnation.
pub(crate) fn id_of(source: usize, number: u32, destination: usize, incarnation: u8) -> u64 {
    let to = u64::from(incarnation) << 8 | destination as u64 & 0xff;
    (source as u64) << 48 | u64::from(number) << 16 | to
}

/// The incarnation of the destination to which a packet goes.
pub(crate) fn incarnation_of(packet: &Packet) -> u8 {
    (packet.id >> 8) as u8
}

pub(crate) fn number_of(packet: &Packet) -> u32 {
    (packet.id >> 16) as u32
}

/// What became of a frame for its receiver, and whether its driver gets something back.
pub(crate) type Delivered = (Result<Delivery, DeliverError>, Result<bool, RingError>);

/// Copies a frame into a receive ring. One that is broken goes.
#[inline(always)]
fn deliver_to(
    place: &mut Option<Box<RxRing>>,
    send: &TxRing,
    chain: &Chain,
    rewrite: Option<&HeaderRewrite>,
) -> Result<Delivery, DeliverError> {
    let Some(ring) = place else { return Ok(Delivery::NoBuffers) };
    let done = ring.deliver(send, chain, rewrite);
    if matches!(done, Err(DeliverError::Receiver(_))) {
        *place = None;
    }
    done
}
