//! Which port an Ethernet address is at.
//!
//! # Rules
//! - An address belongs to the port that first sent from it, or for which the host file set it aside, until
//!   the address was silent for [`AGEING_TIME`] or the port's VM left. No VM takes it away meanwhile: a
//!   guest that sends from another's address gets none of its packets.
//! - A VM holds an address that it learned against other VMs only: an uplink that sends from the address
//!   takes it over at once. Otherwise a guest could send from the address of a host beyond the uplink while
//!   that host is silent, and keep it. An uplink that may learn no more makes the table forget the VM's
//!   address instead. An address that was set aside is never taken.
//! - A learned address holds in the VLAN in which it was seen, one that was set aside in all.
//! - A VM's port has at most [`ADDRESSES_MAX`] addresses that it learned, an uplink
//!   [`UPLINK_ADDRESSES_MAX`]. Frames to others go to all ports.
//!
//! All planes read and write the table without locks. An entry is one word (address, VLAN and port); one
//! beside it says when it was last used. The word alone says who may take the entry: each change of it is a
//! compare-and-swap_rx with the word that was judged. Two threads that learn at once either take two entries
//! or agree on one; of two the first is found, and an uplink takes that one from a VM at its next frame.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use punctual_sched::{Duration, Instant};

use crate::frame::Address;
use crate::vlan::Vlan;

/// Addresses that a VM's port learns at most.
pub const ADDRESSES_MAX: u32 = 32;

/// Addresses that an uplink learns at most: the hosts of a network beyond it.
pub const UPLINK_ADDRESSES_MAX: u32 = 1_024;

/// An address that sent nothing for so long is forgotten (Linux's bridge: `ageing_time`).
pub const AGEING_TIME: Duration = Duration::from_secs(300);

/// Entries that are looked at for an address.
const PROBES: usize = 16;

/// Below the address a word has 9 bits for the port and one, and 7 for the VLAN.
const PORT_SHIFT: u32 = 16;
const VLAN_BITS: u32 = 7;
/// All VLANs. An address is learned in one of them, and set aside in all.
const ALL: Vlan = Vlan((1 << VLAN_BITS) - 1);
const FREE: u64 = 0;

/// What is kind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PortKind {
    /// Nothing: no address is learned.
    None,
    /// A VM.
    Vm,
    /// Hosts of a network.
    Uplink,
}

impl PortKind {
    /// Addresses that are learned at most.
    pub fn addresses_max(self) -> u32 {
        match self {
            PortKind::None => 0,
            PortKind::Vm => ADDRESSES_MAX,
            PortKind::Uplink => UPLINK_ADDRESSES_MAX,
        }
    }
}

/// Addresses of all ports.
#[derive(Debug)]
pub struct Table {
    entries: Vec<Entry>,
    ports: Vec<PortEntry>,
    /// How often an entry changed.
    changes: AtomicU64,
}

/// A port.
#[derive(Debug)]
struct PortEntry {
    /// A [`PortKind`].
    kind: AtomicU8,
    /// Addresses that it learned.
    learned: AtomicU32,
}

impl PortEntry {
    fn new(kind: PortKind) -> Self {
        PortEntry { kind: AtomicU8::new(kind as u8), learned: AtomicU32::new(0) }
    }

    fn kind(&self) -> PortKind {
        let kind = self.kind.load(Ordering::Relaxed);
        [PortKind::Vm, PortKind::Uplink].into_iter().find(|of| *of as u8 == kind).unwrap_or(PortKind::None)
    }

    fn may_learn(&self) -> bool {
        self.learned.load(Ordering::Relaxed) < self.kind().addresses_max()
    }
}

#[derive(Debug, Default)]
struct Entry {
    /// The address and, in the lower bits, the port and one, and the VLAN.
    word: AtomicU64,
    /// Seconds.
    used_s: AtomicU32,
}

fn word_of(address: Address, port: usize, vlan: Vlan) -> u64 {
    address.number() << PORT_SHIFT | (port as u64 + 1) << VLAN_BITS | u64::from(vlan.0)
}

/// The port of an entry that is not free.
fn port_of(word: u64) -> usize {
    (word >> VLAN_BITS & ((1 << (PORT_SHIFT - VLAN_BITS)) - 1)) as usize - 1
}

/// Does an entry say where this address is in this VLAN?
#[inline]
fn matches_entry(word: u64, address: u64, vlan: Vlan) -> bool {
    let of = Vlan((word & ((1 << VLAN_BITS) - 1)) as u8);
    word != FREE && word >> PORT_SHIFT == address && (of == vlan || of == ALL)
}

/// Was the address of an entry set aside?
fn is_pinned(word: u64) -> bool {
    word & ((1 << VLAN_BITS) - 1) == u64::from(ALL.0)
}

/// May any port take the entry? It is free, or its address was silent for long.
fn is_vacant(word: u64, used_s: u32, now_s: u32) -> bool {
    let is_old = u64::from(now_s) >= u64::from(used_s) + AGEING_TIME.as_ns() / 1_000_000_000;
    word == FREE || is_old && !is_pinned(word)
}

fn seconds(now: Instant) -> u32 {
    (now.as_ns() / 1_000_000_000) as u32
}

impl Table {
    /// A table for up to 511 ports, kind which there is this.
    pub fn new(kind: &[PortKind]) -> Self {
        Table::with_room(kind, kind.len(), 0)
    }

    /// A table of these ports and of others that come later, up to `ports` in all, which has room for so many
    /// more addresses.
    pub fn with_room(kind: &[PortKind], ports: usize, more: u32) -> Self {
        let most: u32 = kind.iter().map(|kind| kind.addresses_max()).sum();
        let capacity = ((most + more) as usize * 4).next_power_of_two();
        let all = kind.iter().copied().chain(std::iter::repeat(PortKind::None));
        Table {
            entries: (0..capacity).map(|_| Entry::default()).collect(),
            ports: all.take(ports.max(kind.len())).map(PortEntry::new).collect(),
            changes: AtomicU64::new(0),
        }
    }

    /// How often the table changed. What was found in it since this number was read holds while the number
    /// stays.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// An entry changed, which others may see already.
    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// From now on this is kind a port.
    pub fn set_kind(&self, port: usize, kind: PortKind) {
        self.ports[port].kind.store(kind as u8, Ordering::Relaxed);
    }

    /// The places at which an address may be.
    #[inline]
    fn probe(&self, address: Address) -> impl Iterator<Item = &Entry> {
        // Fibonacci hashing; the length is a power of 2.
        let hash = address.number().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        (0..PROBES).map(move |probe| &self.entries[(hash as usize + probe) & (self.entries.len() - 1)])
    }

    /// The port of an address in a VLAN.
    #[inline]
    pub fn find(&self, address: Address, vlan: Vlan) -> Option<usize> {
        let wanted = address.number();
        let word = self
            .probe(address)
            .map(|entry| entry.word.load(Ordering::Relaxed))
            .find(|word| matches_entry(*word, wanted, vlan))?;
        Some(port_of(word))
    }

    /// Sets an address aside for a port until that is removed, in all VLANs. What was learned of it is
    /// forgotten.
    pub fn pin(&self, address: Address, port: usize) {
        for entry in self.probe(address) {
            let word = entry.word.load(Ordering::Relaxed);
            if word >> PORT_SHIFT == address.number() && word != FREE && !is_pinned(word) {
                self.clear(entry, word);
            }
        }
        let word_at = |entry: &Entry| entry.word.load(Ordering::Relaxed);
        // Where all places are taken, a learned address is forgotten.
        let place = self.probe(address).find(|entry| word_at(entry) == FREE);
        let place = place.or_else(|| self.probe(address).find(|entry| !is_pinned(word_at(entry))));
        if let Some(entry) = place {
            self.unlearned(entry.word.swap(word_of(address, port, ALL), Ordering::Relaxed));
            self.changed();
        }
    }

    /// Forgets what stands in an entry, unless that has changed.
    fn clear(&self, entry: &Entry, word: u64) {
        if entry.word.compare_exchange(word, FREE, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.unlearned(word);
            self.changed();
        }
    }

    /// A frame of `vlan` from `address` came in at `port`.
    #[inline]
    pub fn learn(&self, address: Address, vlan: Vlan, port: usize, now: Instant) {
        let wanted = address.number();
        let now_s = seconds(now);
        for entry in self.probe(address) {
            let word = entry.word.load(Ordering::Relaxed);
            if matches_entry(word, wanted, vlan) {
                let used_s = entry.used_s.load(Ordering::Relaxed);
                if port_of(word) == port {
                    if used_s < now_s {
                        entry.used_s.store(now_s, Ordering::Relaxed);
                    }
                    return;
                }
                if !is_vacant(word, used_s, now_s) {
                    return self.dispute(entry, word, word_of(address, port, vlan), now_s);
                }
                break;
            }
        }
        self.insert(address, vlan, port, now_s);
    }

    /// The address of an entry is used by another port, too: what of it is to stand there is `mine`.
    #[cold]
    fn dispute(&self, entry: &Entry, word: u64, mine: u64, now_s: u32) {
        let [holder, other] = [word, mine].map(|word| &self.ports[port_of(word)]);
        if is_pinned(word) || (holder.kind(), other.kind()) != (PortKind::Vm, PortKind::Uplink) {
            return;
        }
        if other.may_learn() {
            self.take(entry, word, mine, now_s);
        } else {
            self.clear(entry, word);
        }
    }

    /// An entry gets another word, unless it has changed. Did it get that?
    fn take(&self, entry: &Entry, word: u64, mine: u64, now_s: u32) -> bool {
        if entry.word.compare_exchange(word, mine, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return false;
        }
        entry.used_s.store(now_s, Ordering::Relaxed);
        self.ports[port_of(mine)].learned.fetch_add(1, Ordering::Relaxed);
        self.unlearned(word);
        self.changed();
        true
    }

    #[cold]
    fn insert(&self, address: Address, vlan: Vlan, port: usize, now_s: u32) {
        if address.is_group() || !self.ports[port].may_learn() {
            return;
        }
        for entry in self.probe(address) {
            let word = entry.word.load(Ordering::Relaxed);
            let is_vacant = is_vacant(word, entry.used_s.load(Ordering::Relaxed), now_s);
            if is_vacant && self.take(entry, word, word_of(address, port, vlan), now_s) {
                return;
            }
        }
    }

    /// What stood in an entry is forgotten.
    fn unlearned(&self, word: u64) {
        // What is pinned was not learned.
        if word != FREE && !is_pinned(word) {
            self.ports[port_of(word)].learned.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Forgets what a port learned: its VM left.
    pub fn forget(&self, port: usize) {
        self.forget_if(port, |word| !is_pinned(word));
    }

    fn forget_if(&self, port: usize, is_meant: impl Fn(u64) -> bool) {
        for entry in &self.entries {
            let word = entry.word.load(Ordering::Relaxed);
            if word != FREE && port_of(word) == port && is_meant(word) {
                self.clear(entry, word);
            }
        }
    }

    /// The port is gone: what was set aside for it is forgotten, too.
    pub fn remove(&self, port: usize) {
        self.forget_if(port, |_| true);
        self.set_kind(port, PortKind::None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Vlan = Vlan(0);

    fn at(s: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(s)
    }

    fn address(last: u8) -> Address {
        Address([0x52, 0x54, 0, 0, 0, last])
    }

    #[test]
    fn an_address_is_found_where_it_was_first_seen() {
        let table = Table::new(&[PortKind::Vm; 3]);
        assert_eq!(table.find(address(1), NONE), None);
        table.learn(address(1), NONE, 2, at(1));
        table.learn(address(1), NONE, 0, at(2));
        assert_eq!(table.find(address(1), NONE), Some(2), "an address cannot be taken away");
        table.learn(Address([1, 0, 0, 0, 0, 1]), NONE, 0, at(2));
        assert_eq!(table.find(Address([1, 0, 0, 0, 0, 1]), NONE), None, "nobody is a group");
    }

    #[test]
    fn a_silent_address_may_move_and_a_busy_one_may_not() {
        let table = Table::new(&[PortKind::Vm; 2]);
        table.learn(address(1), NONE, 0, at(0));
        table.learn(address(1), NONE, 0, at(200));
        table.learn(address(1), NONE, 1, at(499));
        assert_eq!(table.find(address(1), NONE), Some(0));
        table.learn(address(1), NONE, 1, at(500));
        assert_eq!(table.find(address(1), NONE), Some(1));
    }

    #[test]
    fn a_port_learns_so_many_addresses_until_its_vm_leaves() {
        let table = Table::new(&[PortKind::Vm; 2]);
        for last in 0..200 {
            table.learn(address(last), NONE, 0, at(0));
        }
        let found = || (0..200).filter(|&last| table.find(address(last), NONE).is_some()).count();
        assert_eq!(found(), ADDRESSES_MAX as usize);
        table.learn(address(250), NONE, 1, at(0));
        assert_eq!(table.find(address(250), NONE), Some(1));
        table.forget(0);
        assert_eq!(found(), 0);
        table.learn(address(7), NONE, 0, at(1));
        assert_eq!(table.find(address(7), NONE), Some(0));
    }

    #[test]
    fn an_uplink_that_speaks_takes_an_address_from_a_vm_and_not_the_other_way_round() {
        let table = Table::new(&[PortKind::Vm, PortKind::Vm, PortKind::Uplink, PortKind::Uplink]);
        let found = |last| table.find(address(last), NONE);
        table.learn(address(1), NONE, 0, at(1));
        assert_eq!(found(1), Some(0), "nobody uses it");
        let changes = table.changes();
        table.learn(address(1), NONE, 2, at(1));
        assert_eq!(found(1), Some(2), "at once");
        assert!(table.changes() > changes, "frames to it must look again");
        for (port, s) in [(0, 1), (1, 300), (3, 300)] {
            table.learn(address(1), NONE, port, at(s));
            assert_eq!(found(1), Some(2), "port {port} does not take it");
        }
        table.learn(address(1), NONE, 0, at(301));
        assert_eq!(found(1), Some(0), "it was silent");
        table.learn(address(1), NONE, 2, at(302));
        assert_eq!(found(1), Some(2));
        table.pin(address(2), 0);
        table.learn(address(2), NONE, 2, at(4_000_000));
        assert_eq!(found(2), Some(0), "its own is never taken");
        table.learn(address(3), Vlan(3), 0, at(1));
        table.learn(address(3), Vlan(4), 2, at(1));
        assert_eq!([3, 4].map(|vlan| table.find(address(3), Vlan(vlan))), [Some(0), Some(2)]);
    }

    #[test]
    fn what_an_uplink_takes_counts_as_learned_and_one_that_may_learn_no_more_takes_nothing() {
        let table = Table::with_room(&[PortKind::Vm, PortKind::Uplink], 2, 4_096);
        let of = |number: u16| Address([2, 0, 0, 1, (number >> 8) as u8, number as u8]);
        let found = |number| table.find(of(number), NONE);
        for number in 0..10 {
            table.learn(of(number), NONE, 0, at(1));
            table.learn(of(number), NONE, 1, at(1));
        }
        for number in 100..132 {
            table.learn(of(number), NONE, 0, at(1));
        }
        assert_eq!(
            (100..140).filter(|&number| found(number) == Some(0)).count(),
            32,
            "the VM has room again"
        );
        for number in 1_000..3_000 {
            table.learn(of(number), NONE, 1, at(1));
        }
        let of_uplink = || (0..3_000).filter(|&number| found(number) == Some(1)).count();
        assert_eq!(of_uplink(), UPLINK_ADDRESSES_MAX as usize);
        table.learn(of(100), NONE, 1, at(1));
        assert_eq!((found(100), of_uplink()), (None, UPLINK_ADDRESSES_MAX as usize), "to all ports");
        table.learn(of(140), NONE, 0, at(1));
        assert_eq!(found(140), Some(0), "the VM may learn another one");
    }

    #[test]
    fn threads_that_dispute_an_address_leave_it_with_the_uplink_and_counts_right() {
        let table = Table::new(&[PortKind::Vm, PortKind::Vm, PortKind::Uplink]);
        for round in 0..200 {
            let now = at(1 + 400 * round);
            std::thread::scope(|scope| {
                for port in 0..3 {
                    let table = &table;
                    scope.spawn(move || {
                        for last in 0..20 {
                            table.learn(address(last), NONE, port, now);
                        }
                    });
                }
            });
            // Of two entries a VM's may be the first; it is taken at the next frame.
            (0..20).for_each(|last| table.learn(address(last), NONE, 2, now));
            assert!((0..20).all(|last| table.find(address(last), NONE) == Some(2)), "round {round}");
        }
        (0..3).for_each(|port| table.forget(port));
        let learned = |port: &PortEntry| port.learned.load(Ordering::Relaxed);
        assert_eq!(table.ports.iter().map(learned).collect::<Vec<_>>(), [0; 3]);
    }

    #[test]
    fn an_address_that_was_set_aside_stays() {
        let table = Table::new(&[PortKind::Vm; 2]);
        table.pin(address(1), 0);
        table.learn(address(1), NONE, 1, at(5));
        table.forget(0);
        table.learn(address(1), NONE, 1, at(4_000_000));
        assert_eq!(table.find(address(1), NONE), Some(0));
    }

    #[test]
    fn the_address_of_a_port_that_is_gone_is_free_and_one_that_comes_takes_its_own_from_others() {
        let table = Table::with_room(&[PortKind::Vm], 3, 64);
        table.learn(address(1), NONE, 0, at(1));
        table.set_kind(1, PortKind::Vm);
        table.pin(address(1), 1);
        assert_eq!(table.find(address(1), NONE), Some(1), "whoever used it before");
        table.learn(address(2), NONE, 1, at(1));
        table.remove(1);
        assert_eq!([1, 2].map(|last| table.find(address(last), NONE)), [None; 2]);
        table.learn(address(2), NONE, 1, at(2));
        assert_eq!(table.find(address(2), NONE), None, "a port that is gone learns nothing");
        table.learn(address(1), NONE, 0, at(2));
        assert_eq!(table.find(address(1), NONE), Some(0));
    }

    #[test]
    fn an_address_is_learned_in_each_vlan_by_itself() {
        let table = Table::new(&[PortKind::Vm; 3]);
        table.pin(address(9), 2);
        table.learn(address(1), Vlan(3), 0, at(1));
        table.learn(address(1), Vlan(4), 1, at(1));
        table.learn(address(9), Vlan(4), 1, at(1));
        let found = |last, vlan| table.find(address(last), Vlan(vlan));
        assert_eq!([found(1, 3), found(1, 4), found(1, 5)], [Some(0), Some(1), None]);
        assert_eq!([found(9, 3), found(9, 4)], [Some(2), Some(2)], "what was set aside is so everywhere");
    }
}
