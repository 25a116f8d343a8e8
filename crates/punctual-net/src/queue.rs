//! FIFO queues as lists over one pool: moving an item from a queue to another costs two links and no copy.

use alloc::vec::Vec;

use crate::packet::{Packet, narrow};

/// No item.
const NONE: u32 = u32::MAX;

/// A FIFO queue of indices; the links stand outside, one per index, so an index is in one queue at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl List {
    pub(crate) const EMPTY: List = List { head: NONE, tail: NONE, len: 0 };

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn head(&self) -> Option<u32> {
        (self.len > 0).then_some(self.head)
    }

    #[inline]
    pub(crate) fn push(&mut self, links: &mut [u32], item: u32) {
        if self.len == 0 {
            self.head = item;
        } else {
            links[self.tail as usize] = item;
        }
        self.tail = item;
        self.len += 1;
    }

    #[inline]
    pub(crate) fn pop(&mut self, links: &[u32]) -> Option<u32> {
        let item = self.head()?;
        self.len -= 1;
        if self.len > 0 {
            self.head = links[item as usize];
        }
        Some(item)
    }
}

/// All packets of a path, and the links of the queues they wait in.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    packets: Vec<Packet>,
    pub(crate) links: Vec<u32>,
    free: List,
}

impl Pool {
    pub(crate) fn new() -> Self {
        Pool { packets: Vec::new(), links: Vec::new(), free: List::EMPTY }
    }

    /// Lets the pool hold `capacity` packets without allocation. The memory is touched when it is used.
    pub(crate) fn reserve(&mut self, capacity: usize) {
        let more = capacity.saturating_sub(self.packets.len());
        self.packets.reserve(more);
        self.links.reserve(more);
    }

    /// Takes the packet in; the last place that became free is used first, while it is still in a cache.
    #[inline]
    pub(crate) fn add(&mut self, packet: Packet) -> u32 {
        if let Some(index) = self.free.pop(&self.links) {
            self.packets[index as usize] = packet;
            return index;
        }
        self.packets.push(packet);
        self.links.push(NONE);
        narrow(self.packets.len() - 1)
    }

    #[inline]
    pub(crate) fn remove(&mut self, index: u32) {
        self.free.push_front(&mut self.links, index);
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Packet {
        &self.packets[index as usize]
    }
}

impl List {
    #[inline]
    fn push_front(&mut self, links: &mut [u32], item: u32) {
        if self.len == 0 {
            self.tail = item;
        } else {
            links[item as usize] = self.head;
        }
        self.head = item;
        self.len += 1;
    }
}
