//! What the rings of both directions have in common.

use std::num::Wrapping;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use virtio_queue::{Queue, QueueT};
use vm_memory::GuestAddress;

use crate::error::Broken;
use crate::features;
use crate::memory::{Memory, Part};

/// Entries of a ring at most.
pub const ENTRIES_MAX: u16 = 1024;

/// Where a ring is, and how one tells of it.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The VM's memory.
    pub memory: Arc<Memory>,
    /// Entries.
    pub entries: u16,
    /// The guest's address of the descriptor table.
    pub descriptors: u64,
    /// The guest's address of the available ring.
    pub available: u64,
    /// The guest's address of the used ring.
    pub used: u64,
    /// The features that the driver chose.
    pub features: u64,
    /// Are these features assumed? Then the driver may have chosen fewer.
    pub assumed: bool,
    /// The driver rings here.
    pub kick: Arc<OwnedFd>,
    /// The driver hears here.
    pub call: Option<Arc<OwnedFd>>,
    /// The monitor hears of a broken ring here.
    pub error: Option<Arc<OwnedFd>>,
}

/// What both directions have in common.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) memory: Arc<Memory>,
    pub(super) queue: Queue,
    pub(super) descriptors: Part,
    pub(super) available: Part,
    pub(super) used_ring: Part,
    pub(super) event_idx: bool,
    /// The available ring's index as it was read last.
    pub(super) seen: u16,
    /// Index of the next used entry, and as the driver sees it.
    pub(super) used: Wrapping<u16>,
    pub(super) shown: Wrapping<u16>,
    /// The index when the driver was last told, or spared.
    pub(super) told: Wrapping<u16>,
    pub(super) call: Option<Arc<OwnedFd>>,
}

impl Ring {
    /// It goes on where its used index is, for chains are given back in order. What the monitor says of it
    /// may be wrong: Cloud Hypervisor, connected again, tells the available index, by which all buffers that
    /// its driver offered would be lost. DPDK does likewise (`translate_ring_addresses` in its
    /// lib/vhost/vhost_user.c).
    pub(super) fn new(setup: &Setup) -> Result<Ring, Broken> {
        let mut queue = Queue::new(ENTRIES_MAX).map_err(|_| Broken::Place)?;
        queue.try_set_size(setup.entries).map_err(|_| Broken::Place)?;
        let place = |address| GuestAddress(address);
        queue.try_set_desc_table_address(place(setup.descriptors)).map_err(|_| Broken::Place)?;
        queue.try_set_avail_ring_address(place(setup.available)).map_err(|_| Broken::Place)?;
        queue.try_set_used_ring_address(place(setup.used)).map_err(|_| Broken::Place)?;
        queue.set_event_idx(setup.features & features::EVENT_IDX != 0);
        queue.set_ready(true);
        if !queue.is_valid(&setup.memory.guest) {
            return Err(Broken::Place);
        }
        let used = queue.used_idx(&setup.memory.guest, Ordering::Acquire)?;
        queue.set_next_avail(used.0);
        queue.set_next_used(used.0);
        let entries = usize::from(setup.entries);
        Ok(Ring {
            memory: Arc::clone(&setup.memory),
            descriptors: setup.memory.part(setup.descriptors, 16 * entries)?,
            available: setup.memory.part(setup.available, 6 + 2 * entries)?,
            used_ring: setup.memory.part(setup.used, 6 + 8 * entries)?,
            // A driver with and one without such events both ring when asked through the used ring, and both
            // say by the flag that they want no interrupts at all.
            event_idx: queue.event_idx_enabled() && !setup.assumed,
            queue,
            seen: used.0,
            used,
            shown: used,
            told: used,
            call: setup.call.clone(),
        })
    }

    /// Where an entry is in a ring of this many.
    #[inline]
    pub(super) fn at(&self, index: u16) -> usize {
        usize::from(index & (self.queue.size() - 1))
    }
}
