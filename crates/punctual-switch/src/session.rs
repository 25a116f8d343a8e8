//! What a VM's monitor and a port agree on, request by request.
//!
//! A ring runs when everything about it is known: memory, size, place, and that it is enabled. The order in
//! which a monitor tells it is its own affair: QEMU 7.2 enables rings before it says which features the
//! driver chose. What changes the place of a running ring stops it and starts it again at the same entry.
//! Where the driver is told changes while it runs: a guest that masks or moves an interrupt does it at any
//! time.
//!
//! # What QEMU before 8.0 forgets
//! That QEMU tells the next back end what the driver had chosen when the connection to the last one closed
//! (`chr_closed_bh` in `net/vhost-user.c`). If the driver chooses while no back end is there, its choice is
//! lost, and the next back end is told that it chose nothing. The places of its rings show that this is not
//! so, where an older driver's cannot be there. Such a driver is taken to have chosen all that it was
//! offered, as Linux's does. Rings then tell each other of new size in the way that a driver with and
//! one without [`EVENT_IDX`](crate::features::EVENT_IDX) understand ([`VringConfig::assumed`]).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::driver::PAGE_BYTES;
use crate::error::RingError;
use crate::memory::{self, Memory};
use crate::protocol::{self, QUEUES, Request, RingAddresses};
use crate::ring::{QUEUE_SIZE_MAX, VringConfig};

/// The queue into which the guest puts what it receives with.
pub const RX: usize = 0;

/// The queue of what the guest sends.
pub const TX: usize = 1;

/// Protocol features that are offered.
const PROTOCOL_FEATURES: u64 = protocol::PROTOCOL_F_REPLY_ACK | protocol::PROTOCOL_F_RESET_DEVICE;

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A message that is none.
    #[error(transparent)]
    Protocol(#[from] protocol::Error),
    /// Memory that cannot be mapped.
    #[error(transparent)]
    Memory(#[from] memory::Error),
    /// Features that were not offered.
    #[error("features {0:#x}, of which some were not offered")]
    Features(u64),
    /// A ring's size.
    #[error("a ring of {0} size; it must be a power of 2 up to {QUEUE_SIZE_MAX}")]
    Entries(u32),
    /// A ring's place.
    #[error("a ring at addresses outside of the VM's memory")]
    Place,
    /// A ring's place, as the ring sees it.
    #[error(transparent)]
    Ring(#[from] RingError),
}

/// Whatever runs the rings.
pub trait Rings {
    /// Starts a queue's ring.
    ///
    /// # Errors
    /// When the ring cannot be where it is said to be.
    fn start(&mut self, queue: usize, config: VringConfig) -> Result<(), RingError>;

    /// Stops a queue's ring. Returns where it goes on; `None` when it did not run.
    fn stop(&mut self, queue: usize) -> Option<u16>;

    /// A queue's ring that runs tells its driver here from now on, and does so once.
    fn set_call(&mut self, queue: usize, call: Option<Arc<OwnedFd>>);

    /// The monitor hears of a queue's ring that runs here, when it is found to be broken.
    fn set_err(&mut self, queue: usize, err: Option<Arc<OwnedFd>>);

    /// The driver starts anew: a broken ring is forgotten.
    fn clear_error(&mut self);
}

/// What is known about a ring.
#[derive(Debug, Default)]
struct Ring {
    size: u16,
    addresses: Option<RingAddresses>,
    /// What is answered for a ring that does not run.
    base: u16,
    /// A ring without a kick, which would have to be polled, does not run.
    kick: Option<Arc<OwnedFd>>,
    call: Option<Arc<OwnedFd>>,
    err: Option<Arc<OwnedFd>>,
    enabled: bool,
}

/// The state of an agreement; see the module.
#[derive(Debug)]
pub struct Session {
    offered: u64,
    features: Option<u64>,
    protocol_features: u64,
    memory: Option<Arc<Memory>>,
    rings: [Ring; QUEUES],
}

impl Session {
    /// A session in which nothing was said, at a port that offers these features.
    pub fn new(offered: u64) -> Self {
        let (features, protocol_features, memory, rings) = Default::default();
        Session { offered, features, protocol_features, memory, rings }
    }

    /// Does the monitor get an acknowledgement of a request that asks for it?
    pub fn acknowledges(&self) -> bool {
        self.protocol_features & protocol::PROTOCOL_F_REPLY_ACK != 0
    }

    /// Does what is requested. Returns the reply's body, if the request has one.
    ///
    /// # Errors
    /// When it cannot be done: the connection ends.
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
                // The old memory goes first: both at once may be more than the machine maps.
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
                ring.call = event.map(Arc::new);
                rings.set_call(queue, ring.call.clone());
                return Ok(());
            }
            Request::SetError { event, .. } => {
                ring.err = event.map(Arc::new);
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
            // The upper half is that of packed rings.
            Request::SetRingBase { base, .. } => ring.base = base as u16,
            Request::SetKick { event, .. } => ring.kick = event.map(Arc::new),
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

    /// Everything stops: the connection is gone.
    pub fn end(&mut self, rings: &mut dyn Rings) {
        self.reset(rings);
        self.memory = None;
    }

    fn stop_all(&mut self, rings: &mut dyn Rings) {
        for queue in 0..QUEUES {
            self.stop(queue, rings);
        }
    }

    /// Stops a ring if it runs. Returns where it goes on.
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
        // Without protocol features there is no message that enables a ring.
        let enabled = ring.enabled || features & protocol::F_PROTOCOL_FEATURES == 0;
        if !enabled || ring.size == 0 {
            return Ok(());
        }
        let place = |user| memory.guest_address(user).ok_or(Error::Place);
        let [desc_table, avail_ring, used_ring] =
            [place(addresses.descriptors)?, place(addresses.available)?, place(addresses.used)?];
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

/// Can this be the ring of a driver older than virtio 1? It says only where its descriptors are, and the
/// other parts follow, the used ring on a page of its own (virtio 1.2, section 2.7.2).
fn is_legacy_layout(size: u16, descriptors: u64, available: u64, used: u64) -> bool {
    let size = u64::from(size);
    let page_after = |address: u64| address.checked_next_multiple_of(PAGE_BYTES);
    descriptors.is_multiple_of(PAGE_BYTES)
        && Some(available) == descriptors.checked_add(16 * size)
        && Some(used) == available.checked_add(6 + 2 * size).and_then(page_after)
}
