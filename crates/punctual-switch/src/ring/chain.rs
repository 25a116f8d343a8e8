//! Descriptor chains.

use crate::frame::{self, FirstBytes};

/// Descriptors of a frame that is sent, at most: those of a segment in Linux (`MAX_SKB_FRAGS`), and some.
pub const PIECES_MAX: usize = 24;

/// A part of a frame in a guest's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(super) address: u64,
    pub(super) bytes: u32,
}

/// A frame that a driver sends, where it is. Frames in one piece, as almost all are, need only what stands
/// here, so that those of a whole ring stay in a cache.
#[derive(Clone, Debug)]
pub struct Chain {
    /// Where it is, if it is in one piece.
    pub(super) one: Piece,
    /// Where it is, if it is in several.
    pub(super) several: Box<[Piece; PIECES_MAX]>,
    /// Bytes with the virtio-net header.
    pub(super) bytes: u32,
    /// The head of its descriptors.
    pub(super) head: u16,
    /// Pieces.
    pub(super) count: u8,
    pub(crate) first: FirstBytes,
}

impl Default for Chain {
    fn default() -> Self {
        Chain {
            one: Piece::default(),
            several: Box::new([Piece::default(); PIECES_MAX]),
            bytes: 0,
            head: 0,
            count: 0,
            first: FirstBytes::default(),
        }
    }
}

impl Chain {
    /// The frame's addresses and type.
    pub fn start(&self) -> [u8; frame::ETHERNET_BYTES] {
        self.first.start()
    }

    #[inline]
    pub(super) fn pieces(&self) -> &[Piece] {
        match self.count {
            1 => std::slice::from_ref(&self.one),
            count => &self.several[..usize::from(count)],
        }
    }
}
