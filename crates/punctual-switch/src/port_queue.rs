//! A port as its plane knows it.

use punctual_net::discipline::RING_SLOTS_DEFAULT;
use punctual_net::{InterfaceParams, Packet, Rate, TokenBucket};
use punctual_sched::{Duration, Instant};

use crate::check::urgency;
use crate::error::{Broken, Culprit};
use crate::limits::IN_FLIGHT_MAX;
use crate::ring::{Chain, Delivery, ReceiveRing, SendRing};
use crate::stats::PortStats;
use crate::vlan::{Front, Start, Vlan};

/// Packets of a port that wait for the TX stage at most.
pub const WINDOW: u32 = 8;

/// Packets before the TX stage at which a port is looked at.
const FEW: u32 = 1;

/// Frames to all ports that a port may send: a thousand a second, and a thousand at once.
const FLOODS: Rate = Rate { bytes: 100, window: Duration::from_ms(100), burst_bytes: 1_000 };

/// A frame in the switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot {
    /// When it was taken in.
    pub(crate) came: Instant,
    pub(crate) chain: Chain,
    /// Receivers that it has not reached yet.
    pub(crate) copies: u16,
    /// Has it reached one of several? Then it is not sent again when its ring stops.
    pub(crate) reached: bool,
}

/// Where the last frame of a port went: those that follow it go there, too, as long as this holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Route {
    /// Both addresses and the VLAN.
    pub(crate) ends: (u64, u32),
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
    pub(crate) start: Start,
}

/// A port as its plane knows it.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) send: Option<Box<SendRing>>,
    pub(crate) slots: Box<[Slot]>,
    /// By slot; none where there are no VLANs.
    pub(crate) tags: Box<[Tag]>,
    /// Numbers of the oldest frame in the switch, and of the next one.
    pub(crate) first: u32,
    pub(crate) next: u32,
    /// Packets before the TX stage, and at most.
    pub(crate) in_tx: u32,
    pub(crate) window: u32,
    /// Slots of its receive ring by the discipline's account.
    pub(crate) ring_slots: u32,
    pub(crate) floods: TokenBucket,
    pub(crate) route: Route,
    /// The smaller, the more urgent.
    pub(crate) urgency: u64,
    /// How often another port took this one's place. Packets to one that was here before do not arrive.
    pub(crate) incarnation: u8,
    /// Has its driver to hear of frames that it sent, of frames that it received?
    pub(crate) untold: [bool; 2],
    pub(crate) stats: PortStats,
}

impl Local {
    /// Only a port that the plane serves has frames in it.
    pub(crate) fn new(params: &InterfaceParams, is_served: bool, has_vlans: bool) -> Self {
        let frames = if is_served { IN_FLIGHT_MAX } else { 0 };
        let tags = if has_vlans { frames } else { 0 };
        let ring_slots = params.ring_slots.unwrap_or(RING_SLOTS_DEFAULT);
        Local {
            send: None,
            slots: vec![Slot::default(); frames].into_boxed_slice(),
            tags: vec![Tag::default(); tags].into_boxed_slice(),
            first: 0,
            next: 0,
            in_tx: 0,
            window: WINDOW.min(ring_slots),
            ring_slots,
            floods: TokenBucket::new(Instant::ZERO, FLOODS),
            route: Route::default(),
            urgency: urgency(params),
            incarnation: 0,
            untold: [false; 2],
            stats: PortStats::default(),
        }
    }

    /// May another frame be taken in?
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.in_tx < self.window && (self.next.wrapping_sub(self.first) as usize) < IN_FLIGHT_MAX
    }

    /// May another frame change a decision, and is there room for it?
    #[inline(always)]
    pub(crate) fn wants_more(&self) -> bool {
        self.in_tx <= FEW && self.has_room()
    }

    /// Is there such a frame?
    #[inline(always)]
    pub(crate) fn has_news(&self) -> bool {
        self.wants_more() && self.send.as_ref().is_some_and(|send| send.has_more())
    }

    /// Frames that its VM offers and that no receiver has yet.
    pub(crate) fn queued(&mut self) -> u64 {
        // A broken ring is noticed when a frame is taken.
        let offered = self.send.as_mut().map_or(0, |send| send.waiting().unwrap_or_default());
        u64::from(offered) + u64::from(self.next.wrapping_sub(self.first))
    }

    /// Is the frame with this number here? Its ring may have stopped meanwhile.
    #[inline]
    pub(crate) fn has(&self, number: u32) -> bool {
        let age = self.next.wrapping_sub(number);
        age > 0 && age <= self.next.wrapping_sub(self.first)
    }

    /// Copies the frame with this number into a receive ring, and gives it back if that was the last
    /// receiver.
    #[inline(always)]
    pub(crate) fn deliver(
        &mut self,
        place: &mut Option<Box<ReceiveRing>>,
        number: u32,
        front: Option<&Front>,
    ) -> Delivered {
        let slot = &mut self.slots[number as usize % IN_FLIGHT_MAX];
        let Some(send) = &self.send else { return (Ok(Delivery::NoRoom), Ok(false)) };
        let done = put(place, send, &slot.chain, front);
        if !matches!(done, Ok(Delivery::Done { .. })) {
            return (done, Ok(false));
        }
        slot.reached |= slot.copies > 1;
        slot.copies = slot.copies.saturating_sub(1);
        let is_over = slot.copies == 0 && number == self.first;
        (done, if is_over { self.give_back() } else { Ok(false) })
    }

    /// Gives the driver what is finished, in order: a driver that goes on where the used ring ends then sends
    /// nothing twice. Was there anything?
    #[inline]
    pub(crate) fn give_back(&mut self) -> Result<bool, Broken> {
        let Some(send) = &mut self.send else { return Ok(false) };
        let first = self.first;
        while self.first != self.next {
            let slot = &self.slots[self.first as usize % IN_FLIGHT_MAX];
            if slot.copies > 0 {
                break;
            }
            self.first = self.first.wrapping_add(1);
            send.give_back(&slot.chain)?;
        }
        Ok(first != self.first)
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
pub(crate) type Delivered = (Result<Delivery, Culprit>, Result<bool, Broken>);

/// Copies a frame into a receive ring. One that is broken goes.
#[inline(always)]
fn put(
    place: &mut Option<Box<ReceiveRing>>,
    send: &SendRing,
    chain: &Chain,
    front: Option<&Front>,
) -> Result<Delivery, Culprit> {
    let Some(ring) = place else { return Ok(Delivery::NoRoom) };
    let done = ring.deliver(send, chain, front);
    if matches!(done, Err(Culprit::Receiver(_))) {
        *place = None;
    }
    done
}
