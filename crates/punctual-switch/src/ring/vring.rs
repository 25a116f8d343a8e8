//! What the rings of both directions have in common.

use std::num::Wrapping;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use virtio_queue::{Queue, QueueT};
use vm_memory::GuestAddress;

use crate::error::RingError;
use crate::features;
use crate::memory::{MappedRange, Memory};

/// Entries of a ring at most.
pub const QUEUE_SIZE_MAX: u16 = 1024;

/// Where a ring is, and how one tells of it.
#[derive(Clone, Debug)]
pub struct VringConfig {
    /// The VM's memory.
    pub memory: Arc<Memory>,
    /// Entries.
    pub size: u16,
    /// The guest's address of the descriptor table.
    pub desc_table: u64,
    /// The guest's address of the available ring.
    pub avail_ring: u64,
    /// The guest's address of the used ring.
    pub used_ring: u64,
    /// The features that the driver chose.
    pub features: u64,
    /// Are these features assumed? Then the driver may have chosen fewer.
    pub features_assumed: bool,
    /// The driver rings here.
    pub kick: Arc<OwnedFd>,
    /// The driver hears here.
    pub call: Option<Arc<OwnedFd>>,
    /// The monitor hears of a broken ring here.
    pub err: Option<Arc<OwnedFd>>,
}

/// What both directions have in common.
#[derive(Debug)]
pub(super) struct Vring {
    pub(super) memory: Arc<Memory>,
    pub(super) queue: Queue,
    pub(super) desc_table: MappedRange,
    pub(super) avail_ring: MappedRange,
    pub(super) used_ring: MappedRange,
    pub(super) event_idx: bool,
    /// The available ring's index as it was read last.
    pub(super) avail_idx: u16,
    /// Index of the next used entry, and as the driver sees it.
    pub(super) used_idx: Wrapping<u16>,
    pub(super) published_idx: Wrapping<u16>,
    /// The index when the driver was last told, or spared.
    pub(super) signalled_idx: Wrapping<u16>,
    pub(super) call: Option<Arc<OwnedFd>>,
}

impl Vring {
    /// It goes on where its used index is, for chains are given back in order. What the monitor says of it
    /// may be wrong: Cloud Hypervisor, connected again, tells the available index, by which all buffers that
    /// its driver offered would be lost. DPDK does likewise (`translate_ring_addresses` in its
    /// lib/vhost/vhost_user.c).
    pub(super) fn new(config: &VringConfig) -> Result<Vring, RingError> {
        let mut queue = Queue::new(QUEUE_SIZE_MAX).map_err(|_| RingError::BadLayout)?;
        queue.try_set_size(config.size).map_err(|_| RingError::BadLayout)?;
        let place = |address| GuestAddress(address);
        queue.try_set_desc_table_address(place(config.desc_table)).map_err(|_| RingError::BadLayout)?;
        queue.try_set_avail_ring_address(place(config.avail_ring)).map_err(|_| RingError::BadLayout)?;
        queue.try_set_used_ring_address(place(config.used_ring)).map_err(|_| RingError::BadLayout)?;
        queue.set_event_idx(config.features & features::EVENT_IDX != 0);
        queue.set_ready(true);
        if !queue.is_valid(&config.memory.guest) {
            return Err(RingError::BadLayout);
        }
        let used = queue.used_idx(&config.memory.guest, Ordering::Acquire)?;
        queue.set_next_avail(used.0);
        queue.set_next_used(used.0);
        let entries = usize::from(config.size);
        Ok(Vring {
            memory: Arc::clone(&config.memory),
            desc_table: config.memory.map_range(config.desc_table, 16 * entries)?,
            avail_ring: config.memory.map_range(config.avail_ring, 6 + 2 * entries)?,
            used_ring: config.memory.map_range(config.used_ring, 6 + 8 * entries)?,
            // A driver with and one without such events both ring when asked through the used ring, and both
            // say by the flag that they want no interrupts at all.
            event_idx: queue.event_idx_enabled() && !config.features_assumed,
            queue,
            avail_idx: used.0,
            used_idx: used,
            published_idx: used,
            signalled_idx: used,
            call: config.call.clone(),
        })
    }

    /// Where an entry is in a ring of this many.
    #[inline]
    pub(super) fn slot(&self, index: u16) -> usize {
        usize::from(index & (self.queue.size() - 1))
    }
}
