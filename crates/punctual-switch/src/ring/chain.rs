//! A descriptor chain of a TX ring: where a frame is in its sender's memory.

use crate::frame::{self, FrameHead};

/// Elements of a frame that is sent. Linux uses up to `MAX_SKB_FRAGS` (17) and two more.
pub(crate) const ELEMENTS_MAX: usize = 24;

/// A contiguous part of a buffer in guest memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Element {
    pub(super) address: u64,
    pub(super) bytes: u32,
}

/// A frame with a single element, as almost all have, needs nothing outside of this struct, so the frames of
/// a whole ring stay in the cache.
#[derive(Clone, Debug)]
pub struct Chain {
    /// Used if `count` is 1.
    pub(super) single: Element,
    /// Used otherwise.
    pub(super) multi: Box<[Element; ELEMENTS_MAX]>,
    /// With the virtio-net header.
    pub(super) bytes: u32,
    /// The index of its first descriptor.
    pub(super) head: u16,
    /// Elements.
    pub(super) count: u8,
    pub(crate) frame_head: FrameHead,
}

impl Default for Chain {
    fn default() -> Self {
        Chain {
            single: Element::default(),
            multi: Box::new([Element::default(); ELEMENTS_MAX]),
            bytes: 0,
            head: 0,
            count: 0,
            frame_head: FrameHead::default(),
        }
    }
}

impl Chain {
    /// The frame's addresses and type.
    pub fn ethernet_header(&self) -> [u8; frame::ETHERNET_BYTES] {
        self.frame_head.ethernet_header()
    }

    /// Descriptors that were read for it, less an empty one or one too many.
    #[inline]
    pub(crate) fn descriptors(&self) -> u8 {
        self.count
    }

    #[inline]
    pub(super) fn elements(&self) -> &[Element] {
        match self.count {
            1 => std::slice::from_ref(&self.single),
            count => &self.multi[..usize::from(count)],
        }
    }
}
