//! What a discipline knows about a packet: where it comes from, where it goes and how long it is.

/// An interface of the manager domain, in the order of [`attach`](crate::Discipline::attach): `0..`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InterfaceId(pub u32);

impl InterfaceId {
    /// As an array index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// That of this array index.
    #[inline]
    pub(crate) const fn of(index: usize) -> InterfaceId {
        InterfaceId(narrow(index))
    }
}

/// An index as interfaces, packets and ports are numbered.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "memory ends long before there are 2^32 of them")]
pub(crate) const fn narrow(index: usize) -> u32 {
    debug_assert!(index <= u32::MAX as usize);
    index as u32
}

/// A flow, numbered by the driver. All packets of a flow have the same source and destination; their order is
/// kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowId(pub u32);

/// A packet without its payload.
///
/// It has no priority of its own: as in RTCA, priorities belong to interfaces. A packet is as urgent as its
/// source if that is a guest or a device with a priority, as its destination if it comes from another device
/// to a guest. Who wants several priorities for what one guest or device sends attaches an interface for
/// each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Packet {
    /// The driver's number for it; unique among the packets on their way.
    pub id: u64,
    /// The flow it belongs to.
    pub flow: FlowId,
    /// The interface it comes from.
    pub source: InterfaceId,
    /// The interface it goes to.
    pub destination: InterfaceId,
    /// Its length in bytes, as rate limits count it.
    pub bytes: u32,
}

/// A stage of the path through the manager domain, in the order packets pass them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stage {
    /// Netback takes a packet from a guest's TX ring (`net_tx_action`, kernel thread).
    Tx,
    /// The network stack bridges it (`NET_RX_SOFTIRQ`).
    Softnet,
    /// Netback copies it to the destination (`net_rx_action`, kernel thread).
    Rx,
}

/// Why a packet was dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DropReason {
    /// The source's ring was full on arrival. A netfront never lets this happen: it stops its queue first
    /// ([`Discipline::room`](crate::Discipline::room)).
    SourceRing,
    /// The `softnet_data` queue was full.
    Softnet,
    /// As many packets as the destination's ring has slots were waiting for it already, or unread in it.
    DestinationRing,
}

/// Packets of one source that were dropped, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Drops {
    /// [`DropReason::SourceRing`].
    pub source_ring: u64,
    /// [`DropReason::Softnet`].
    pub softnet: u64,
    /// [`DropReason::DestinationRing`].
    pub destination_ring: u64,
}

impl Drops {
    /// Counts one more.
    #[inline]
    pub fn count(&mut self, reason: DropReason) {
        *match reason {
            DropReason::SourceRing => &mut self.source_ring,
            DropReason::Softnet => &mut self.softnet,
            DropReason::DestinationRing => &mut self.destination_ring,
        } += 1;
    }

    /// All reasons together.
    pub fn total(&self) -> u64 {
        self.source_ring + self.softnet + self.destination_ring
    }
}
