//! A vhost-user session: the state that a front-end's requests build up, and the rings that follow from it.
//!
//! A ring starts when everything about it is known: memory, features, size, addresses, kick, and that it is
//! enabled. Front-ends send this in any order: QEMU 7.2 enables rings before it sends the driver's features.
//! A request that changes the layout of a started ring stops it and starts it again at the same entry. The
//! call event changes while the ring runs, since a guest may mask or move an interrupt at any time.
//!
//! # Features lost by QEMU before 8.0
//! Such a QEMU sends a new back-end the features that the driver had accepted when the last connection closed
//! (`chr_closed_bh` in `net/vhost-user.c`). If the driver accepts its features while there is no back-end,
//! they are lost, and the next back-end is told that the driver accepted none. If the ring addresses cannot
//! be those of a legacy driver, the session knows better and assumes that the driver accepted all offered
//! features, as Linux does. Notifications then work for drivers with and without
//! [`EVENT_IDX`](crate::features::EVENT_IDX) ([`VringConfig::features_assumed`]).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::driver::PAGE_BYTES;
use crate::error::RingError;
use crate::memory::{self, Memory};
use crate::protocol::{self, QUEUES, Request, RingAddresses};
use crate::ring::{QUEUE_SIZE_MAX, VringConfig};
use crate::sys::accept_eventfd;

/// The receiveq (`receiveq1` of virtio-net), from which the guest receives.
pub const RX: usize = 0;

/// The transmitq (`transmitq1`), into which the guest sends.
pub const TX: usize = 1;

/// The offered protocol features.
const PROTOCOL_FEATURES: u64 = protocol::PROTOCOL_F_REPLY_ACK | protocol::PROTOCOL_F_RESET_DEVICE;

/// Why a request cannot be carried out; its connection ends.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Protocol(#[from] protocol::Error),
    #[error(transparent)]
    Memory(#[from] memory::Error),
    #[error("features {0:#x} include some that were not offered")]
    Features(u64),
    #[error("a ring has {0} entries; expected a power of 2 up to {QUEUE_SIZE_MAX}")]
    Entries(u32),
    #[error("a ring is outside of the VM's memory")]
    Address,
    #[error("cannot use the file descriptor of an event")]
    Event(#[source] std::io::Error),
    #[error(transparent)]
    Ring(#[from] RingError),
}

fn accept(event: Option<OwnedFd>) -> Result<Option<Arc<OwnedFd>>, Error> {
    Ok(event.map(accept_eventfd).transpose().map_err(Error::Event)?.map(Arc::new))
}

/// The rings of a port, which a session starts and stops.
pub trait Rings {
    /// # Errors
    /// When the ring's layout is invalid.
    fn start(&mut self, queue: usize, config: VringConfig) -> Result<(), RingError>;

    /// Stops a queue's ring. Returns its vring base; `None` if it was not started.
    fn stop(&mut self, queue: usize) -> Option<u16>;

    /// Replaces the call event of a started ring, and signals it once.
    fn set_call(&mut self, queue: usize, call: Option<Arc<OwnedFd>>);

    /// Replaces the err event of a started ring.
    fn set_err(&mut self, queue: usize, err: Option<Arc<OwnedFd>>);

    /// The driver has reset the device: a broken ring may start again.
    fn clear_error(&mut self);
}

#[derive(Debug, Default)]
struct Ring {
    size: u16,
    addresses: Option<RingAddresses>,
    /// The reply to `GET_VRING_BASE` of a stopped ring.
    base: u16,
    /// A ring without a kick event would have to be polled, and does not start.
    kick: Option<Arc<OwnedFd>>,
    call: Option<Arc<OwnedFd>>,
    err: Option<Arc<OwnedFd>>,
    enabled: bool,
}

#[derive(Debug)]
pub struct Session {
    offered: u64,
    features: Option<u64>,
    protocol_features: u64,
    memory: Option<Arc<Memory>>,
    rings: [Ring; QUEUES],
}

impl Session {
    /// The session of a new connection to a port that offers these features.
    pub fn new(offered: u64) -> Self {
        let (features, protocol_features, memory, rings) = Default::default();
        Session { offered, features, protocol_features, memory, rings }
    }

    /// Was `REPLY_ACK` negotiated?
    pub(crate) fn acknowledges(&self) -> bool {
        self.protocol_features & protocol::PROTOCOL_F_REPLY_ACK != 0
    }

    /// Carries out a request. Returns the body of its reply, if it has one.
    ///
    /// # Errors
    /// The connection must end.
    pub fn handle(&mut self, request: Request<OwnedFd>, rings: &mut dyn Rings) -> Result<Option<u64>, Error> {
        match request {
            Request::GetFeatures => return Ok(Some(self.offered)),
            Request::GetProtocolFeatures => return Ok(Some(PROTOCOL_FEATURES)),
            Request::GetQueueCount => return Ok(Some(1)),
            Request::SetProtocolFeatures(chosen) => self.protocol_features = chosen & PROTOCOL_FEATURES,
            Request::SetOwner => {}
            Request::Reset => self.reset(rings),
            Request::SetFeatures(chosen) => self.set_features(chosen, rings)?,
            Request::SetMemory(regions) => {
                self.stop_all(rings);
                // Unmapped first: both memories at once may exceed the address space.
                self.memory = None;
                self.memory = Some(Arc::new(Memory::map(regions)?));
                self.start_all(rings)?;
            }
            Request::GetRingBase { queue } => {
                let base = self.stop(queue, rings);
                self.rings[queue].kick = None;
                rings.clear_error();
                return Ok(Some(protocol::ring_state(queue, base)));
            }
            request => self.set_ring(request, rings)?,
        }
        Ok(None)
    }

    fn set_features(&mut self, chosen: u64, rings: &mut dyn Rings) -> Result<(), Error> {
        if chosen & !self.offered != 0 {
            return Err(Error::Features(chosen));
        }
        self.stop_all(rings);
        self.features = Some(chosen);
        self.start_all(rings)
    }

    /// A request about one ring.
    fn set_ring(&mut self, request: Request<OwnedFd>, rings: &mut dyn Rings) -> Result<(), Error> {
        let queue = match &request {
            Request::SetRingSize { queue, .. }
            | Request::SetRingAddresses { queue, .. }
            | Request::SetRingBase { queue, .. }
            | Request::SetKick { queue, .. }
            | Request::SetCall { queue, .. }
            | Request::SetError { queue, .. }
            | Request::EnableRing { queue, .. } => *queue,
            _ => return Ok(()),
        };
        let ring = &mut self.rings[queue];
        match request {
            Request::SetCall { event, .. } => {
                ring.call = accept(event)?;
                rings.set_call(queue, ring.call.clone());
                return Ok(());
            }
            Request::SetError { event, .. } => {
                ring.err = accept(event)?;
                rings.set_err(queue, ring.err.clone());
                return Ok(());
            }
            Request::EnableRing { enabled, .. } if enabled == ring.enabled => return Ok(()),
            _ => {}
        }
        self.stop(queue, rings);
        let ring = &mut self.rings[queue];
        match request {
            Request::SetRingSize { entries: size, .. } => {
                let fits = u16::try_from(size).ok().filter(|n| n.is_power_of_two() && *n <= QUEUE_SIZE_MAX);
                ring.size = fits.ok_or(Error::Entries(size))?;
            }
            Request::SetRingAddresses { addresses, .. } => ring.addresses = Some(addresses),
            // The upper half is for packed rings.
            Request::SetRingBase { base, .. } => ring.base = (base & 0xffff) as u16,
            Request::SetKick { event, .. } => ring.kick = accept(event)?,
            Request::EnableRing { enabled, .. } => ring.enabled = enabled,
            _ => {}
        }
        self.start(queue, rings)
    }

    fn reset(&mut self, rings: &mut dyn Rings) {
        self.stop_all(rings);
        rings.clear_error();
        self.features = None;
        self.rings = Default::default();
    }

    /// The connection has ended.
    pub fn end(&mut self, rings: &mut dyn Rings) {
        self.reset(rings);
        self.memory = None;
    }

    fn stop_all(&mut self, rings: &mut dyn Rings) {
        for queue in 0..QUEUES {
            self.stop(queue, rings);
        }
    }

    /// Stops a ring if it is started. Returns its vring base.
    fn stop(&mut self, queue: usize, rings: &mut dyn Rings) -> u16 {
        if let Some(base) = rings.stop(queue) {
            self.rings[queue].base = base;
        }
        self.rings[queue].base
    }

    fn start_all(&mut self, rings: &mut dyn Rings) -> Result<(), Error> {
        (0..QUEUES).try_for_each(|queue| self.start(queue, rings))
    }

    /// Starts a ring if everything about it is known.
    fn start(&mut self, queue: usize, rings: &mut dyn Rings) -> Result<(), Error> {
        let ring = &self.rings[queue];
        let (Some(memory), Some(features)) = (&self.memory, self.features) else { return Ok(()) };
        let (Some(addresses), Some(kick)) = (ring.addresses, &ring.kick) else {
            return Ok(());
        };
        // Without VHOST_USER_F_PROTOCOL_FEATURES rings start enabled.
        let enabled = ring.enabled || features & protocol::F_PROTOCOL_FEATURES == 0;
        if !enabled || ring.size == 0 {
            return Ok(());
        }
        let guest = |user| memory.guest_address(user).ok_or(Error::Address);
        let [desc_table, avail_ring, used_ring] =
            [guest(addresses.descriptors)?, guest(addresses.avail)?, guest(addresses.used)?];
        let is_legacy = is_legacy_layout(ring.size, desc_table, avail_ring, used_ring);
        let features_assumed = features & !protocol::F_PROTOCOL_FEATURES == 0 && !is_legacy;
        let config = VringConfig {
            memory: Arc::clone(memory),
            size: ring.size,
            desc_table,
            avail_ring,
            used_ring,
            features: if features_assumed { self.offered } else { features },
            features_assumed,
            kick: Arc::clone(kick),
            call: ring.call.clone(),
            err: ring.err.clone(),
        };
        Ok(rings.start(queue, config)?)
    }
}

/// Can this be the ring of a legacy driver? It sets only the address of the descriptor table; the other parts
/// follow, the used ring on a page of its own (virtio 1.2, section 2.7.2).
fn is_legacy_layout(size: u16, descriptors: u64, available: u64, used: u64) -> bool {
    let size = u64::from(size);
    let page_after = |address: u64| address.checked_next_multiple_of(PAGE_BYTES);
    descriptors.is_multiple_of(PAGE_BYTES)
        && Some(available) == descriptors.checked_add(16 * size)
        && Some(used) == available.checked_add(6 + 2 * size).and_then(page_after)
}
