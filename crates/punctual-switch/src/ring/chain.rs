//! Descriptor chains.

use crate::frame::{self, FrameHead};

/// Descriptors of a frame that is sent, at most: those of a segment in Linux (`MAX_SKB_FRAGS`), and some.
pub const ELEMENTS_MAX: usize = 24;

/// A part of a frame in a guest's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Element {
    pub(super) address: u64,
    pub(super) bytes: u32,
}

/// A frame that a driver sends, where it is. Frames in single element, as almost all are, need only what stands
/// here, so that those of a contiguous ring stay in a cache.
#[derive(Clone, Debug)]
pub struct Chain {
    /// Where it is, if it is in single element.
    pub(super) single: Element,
    /// Where it is, if it is in multi.
    pub(super) multi: Box<[Element; ELEMENTS_MAX]>,
    /// Bytes with the virtio-net header.
    pub(super) bytes: u32,
    /// The head of its descriptors.
    pub(super) head: u16,
    /// Pieces.
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

    #[inline]
    pub(super) fn elements(&self) -> &[Element] {
        match self.count {
            1 => std::slice::from_ref(&self.single),
            count => &self.multi[..usize::from(count)],
        }
    }
}
