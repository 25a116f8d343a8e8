//! What both rings of a port have in common.

use std::num::Wrapping;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use virtio_queue::{Queue, QueueT};
use vm_memory::GuestAddress;

use crate::error::RingError;
use crate::features;
use crate::memory::Memory;
use crate::sys::GuestArray;

/// The largest queue size.
pub(crate) const QUEUE_SIZE_MAX: u16 = 1024;

/// A ring as the front-end describes it: `SET_VRING_NUM`, `_ADDR`, `_KICK`, `_CALL` and `_ERR`.
#[derive(Clone, Debug)]
pub struct VringConfig {
    pub memory: Arc<Memory>,
    pub size: u16,
    /// Guest addresses, here and below.
    pub desc_table: u64,
    pub avail_ring: u64,
    pub used_ring: u64,
    /// The features that the driver accepted.
    pub features: u64,
    /// The front-end lost the driver's features; these are all that were offered.
    pub features_assumed: bool,
    /// The driver signals new available entries.
    pub kick: Arc<OwnedFd>,
    /// The switch signals new used entries.
    pub call: Option<Arc<OwnedFd>>,
    /// The switch signals a broken ring to the front-end.
    pub err: Option<Arc<OwnedFd>>,
}

#[derive(Debug)]
pub(super) struct Vring {
    pub(super) memory: Arc<Memory>,
    pub(super) queue: Queue,
    /// The two words of each descriptor.
    pub(super) desc_table: GuestArray<[AtomicU64; 2]>,
    pub(super) avail_flags: GuestArray<AtomicU16>,
    pub(super) avail_index: GuestArray<AtomicU16>,
    /// The heads of chains.
    pub(super) avail_ring: GuestArray<AtomicU16>,
    pub(super) used_event: GuestArray<AtomicU16>,
    pub(super) used_index: GuestArray<AtomicU16>,
    /// A head and its bytes.
    pub(super) used_ring: GuestArray<[AtomicU32; 2]>,
    pub(super) event_idx: bool,
    /// As it was read last.
    pub(super) avail_idx: u16,
    /// The next used entry, and the index as the driver sees it.
    pub(super) used_idx: Wrapping<u16>,
    pub(super) published_idx: Wrapping<u16>,
    /// The published index when the driver was last signalled, or did not want it.
    pub(super) signalled_idx: Wrapping<u16>,
    pub(super) call: Option<Arc<OwnedFd>>,
}

impl Vring {
    /// A ring starts at its used index, since chains are returned in order. The base of `SET_VRING_BASE` can
    /// be wrong: after a reconnect Cloud Hypervisor sends the avail index, and all buffers that are available
    /// would be lost. DPDK does the same (`translate_ring_addresses` in lib/vhost/vhost_user.c).
    pub(super) fn new(config: &VringConfig) -> Result<Vring, RingError> {
        let mut queue = Queue::new(QUEUE_SIZE_MAX).map_err(|_| RingError::BadLayout)?;
        queue.try_set_size(config.size).map_err(|_| RingError::BadLayout)?;
        queue
            .try_set_desc_table_address(GuestAddress(config.desc_table))
            .map_err(|_| RingError::BadLayout)?;
        queue
            .try_set_avail_ring_address(GuestAddress(config.avail_ring))
            .map_err(|_| RingError::BadLayout)?;
        queue.try_set_used_ring_address(GuestAddress(config.used_ring)).map_err(|_| RingError::BadLayout)?;
        queue.set_event_idx(config.features & features::EVENT_IDX != 0);
        queue.set_ready(true);
        if !queue.is_valid(&config.memory.guest) {
            return Err(RingError::BadLayout);
        }
        let used = queue.used_idx(&config.memory.guest, Ordering::Acquire)?;
        queue.set_next_avail(used.0);
        queue.set_next_used(used.0);
        let (memory, entries) = (&config.memory, usize::from(config.size));
        let (avail, used_ring) = (config.avail_ring, config.used_ring);
        let behind = |at: u64, bytes: usize| at.checked_add(bytes as u64).ok_or(RingError::BadLayout);
        Ok(Vring {
            memory: Arc::clone(memory),
            desc_table: memory.array(config.desc_table, entries)?,
            avail_flags: memory.array(avail, 1)?,
            avail_index: memory.array(behind(avail, 2)?, 1)?,
            avail_ring: memory.array(behind(avail, 4)?, entries)?,
            used_event: memory.array(behind(avail, 4 + 2 * entries)?, 1)?,
            used_index: memory.array(behind(used_ring, 2)?, 1)?,
            used_ring: memory.array(behind(used_ring, 4)?, entries)?,
            // With assumed features the driver may not have accepted EVENT_IDX. Both kinds of drivers honour
            // the flags, and both kick when asked through the used ring.
            event_idx: queue.event_idx_enabled() && !config.features_assumed,
            queue,
            avail_idx: used.0,
            used_idx: used,
            published_idx: used,
            signalled_idx: used,
            call: config.call.clone(),
        })
    }
}
