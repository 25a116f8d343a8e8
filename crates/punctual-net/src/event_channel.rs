//! Event channels: which pending event the driver domain handles next.
//!
//! # Rules
//! Ongaro, Cox, Rixner, *Scheduling I/O in Virtual Machine Monitors*, VEE 2008 (vmm-io), section 4.1.
//!
//! - **Ports.** The smallest port not in use is given out. So devices get the lowest, then guests in the
//!   order of boot.
//! - **State.** A two-level bit vector: a bit per port that says it is pending, and a bit per 64 ports that
//!   says one of them is.
//! - **Handling** an event clears its bit; the same port may become pending again at once.
//! - **Scan.** Where the search for the next pending port starts is the option [`Scan`]. All but
//!   [`Scan::Resume`] let low ports starve high ones.

use crate::bitmap::Bitmap;
use crate::packet::narrow;

/// A port of the driver domain's event channels.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Port(pub u32);

/// Ports of a domain: two levels of 64-bit words (Xen, `EVTCHN_2L_NR_CHANNELS` on 64-bit).
pub const PORTS: u32 = 64 * 64;

/// Where the scan for pending ports starts after an event was handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scan {
    /// At port 0.
    First,
    /// At the first port of the current second-level word; when no port of that word is pending, at the next
    /// word that was not empty when the scan began; and after the last of these a new scan begins. This is
    /// the driver as the paper found it. Up to 64 ports it equals [`Scan::First`].
    Word,
    /// At the port after the one handled, round and round: the paper's fix. No port is handled a second time
    /// before all other pending ports have been handled once.
    Resume,
}

/// The ports of one driver domain; see the module's rules.
#[derive(Clone, Debug)]
pub struct EventChannels {
    /// Ports not in use.
    free: Bitmap,
    pending: Bitmap,
    scan: Scan,
    /// [`Scan::Resume`]: where the search goes on.
    next: usize,
    /// [`Scan::Word`]: words still to be visited in this scan, the current one included.
    selected: u64,
}

impl EventChannels {
    /// No port is in use.
    pub fn new(scan: Scan) -> Self {
        let mut free = Bitmap::new(PORTS as usize);
        for port in 0..PORTS as usize {
            free.insert(port);
        }
        EventChannels { free, pending: Bitmap::new(PORTS as usize), scan, next: 0, selected: 0 }
    }

    /// Gives out the smallest port not in use; `None` when all are.
    pub fn allocate(&mut self) -> Option<Port> {
        let port = self.free.first()?;
        self.free.remove(port);
        Some(Port(narrow(port)))
    }

    /// Takes a port back; what was pending on it is forgotten. Does nothing to a port not in use.
    pub fn release(&mut self, port: Port) {
        if self.in_use(port) {
            self.pending.remove(port.0 as usize);
            self.free.insert(port.0 as usize);
        }
    }

    /// An event was sent to `port`. Returns false when one was pending already, or the port is not in use:
    /// then the driver domain learns nothing new.
    #[inline]
    pub fn send(&mut self, port: Port) -> bool {
        self.in_use(port) && self.pending.insert(port.0 as usize)
    }

    #[inline]
    fn in_use(&self, port: Port) -> bool {
        port.0 < PORTS && !self.free.contains(port.0 as usize)
    }

    /// Is an event pending on `port`?
    #[inline]
    pub fn is_pending(&self, port: Port) -> bool {
        self.pending.contains(port.0 as usize)
    }

    /// Is any event pending?
    #[inline]
    pub fn any_pending(&self) -> bool {
        self.pending.first().is_some()
    }

    /// The port whose event is handled next, no longer pending.
    #[inline]
    pub fn take(&mut self) -> Option<Port> {
        let port = match self.scan {
            Scan::First => self.pending.first(),
            Scan::Word => self.first_by_word(),
            Scan::Resume => self.pending.first_from(self.next).or_else(|| self.pending.first()),
        }?;
        self.pending.remove(port);
        self.next = port + 1;
        Some(Port(narrow(port)))
    }

    /// The first pending port of the current word, or of the next word of the scan that has one.
    #[inline]
    fn first_by_word(&mut self) -> Option<usize> {
        if !self.any_pending() {
            self.selected = 0;
            return None;
        }
        loop {
            if self.selected == 0 {
                self.selected = self.pending.first_level()[0];
            }
            if let Some(port) = self.pending.first_in_word(self.selected.trailing_zeros() as usize) {
                return Some(port);
            }
            self.selected &= self.selected - 1;
        }
    }
}
