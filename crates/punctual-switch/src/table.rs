//! Which port an Ethernet address is at.
//!
//! # Rules
//! - An address belongs to the port that first sent from it, or for which the host file set it aside, until
//!   the address was silent for [`SILENCE_MAX`] or the port's VM left. Nobody takes it away meanwhile: a
//!   guest that sends from another's address gets none of its packets.
//! - A learned address holds in the VLAN in which it was seen, one that was set aside in all.
//! - A VM's port has at most [`ADDRESSES_MAX`] addresses that it learned, an uplink
//!   [`UPLINK_ADDRESSES_MAX`]. Frames to others go to all ports.
//!
//! All planes read and write the table without locks. An entry is one word (address, VLAN and port); one
//! beside it says when it was last used. Entries are only taken when they are free or out of date, so two
//! threads that learn at once either take two entries or agree on one.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use punctual_sched::{Duration, Instant};

use crate::frame::Address;
use crate::vlan::Vlan;

/// Addresses that a VM's port learns at most.
pub const ADDRESSES_MAX: u32 = 32;

/// Addresses that an uplink learns at most: the hosts of a network beyond it.
pub const UPLINK_ADDRESSES_MAX: u32 = 1_024;

/// An address that sent nothing for so long is forgotten (Linux's bridge: `ageing_time`).
pub const SILENCE_MAX: Duration = Duration::from_secs(300);

/// Entries that are looked at for an address.
const PROBES: usize = 16;

/// Below the address a word has 9 bits for the port and one, and 7 for the VLAN.
const PLACE_BITS: u32 = 16;
const VLAN_BITS: u32 = 7;
/// All VLANs.
const ALL: Vlan = Vlan((1 << VLAN_BITS) - 1);
const FREE: u64 = 0;
/// The time of an entry that never becomes old.
const PINNED: u32 = u32::MAX;

/// Addresses of all ports.
#[derive(Debug)]
pub struct Table {
    entries: Vec<Entry>,
    /// By port: addresses that it learned, and at most.
    learned: Vec<(AtomicU32, AtomicU32)>,
    /// How often an entry changed.
    changes: AtomicU64,
}

#[derive(Debug, Default)]
struct Entry {
    /// The address and, in the lower bits, the port and one, and the VLAN.
    word: AtomicU64,
    /// Seconds.
    used_s: AtomicU32,
}

fn word_of(address: Address, port: usize, vlan: Vlan) -> u64 {
    address.number() << PLACE_BITS | (port as u64 + 1) << VLAN_BITS | u64::from(vlan.0)
}

/// The port of an entry that is not free.
fn port_of(word: u64) -> usize {
    (word >> VLAN_BITS & ((1 << (PLACE_BITS - VLAN_BITS)) - 1)) as usize - 1
}

/// Does an entry say where this address is in this VLAN?
#[inline]
fn is_about(word: u64, address: u64, vlan: Vlan) -> bool {
    let of = Vlan((word & ((1 << VLAN_BITS) - 1)) as u8);
    word != FREE && word >> PLACE_BITS == address && (of == vlan || of == ALL)
}

fn seconds(now: Instant) -> u32 {
    (now.as_ns() / 1_000_000_000) as u32
}

impl Table {
    /// A table for up to 511 ports, each of which learns so many addresses at most.
    pub fn new(most: &[u32]) -> Self {
        Table::with_room(most, most.len(), 0)
    }

    /// A table of these ports and of others that come later, up to `ports` in all, which has room for so many
    /// more addresses.
    pub fn with_room(most: &[u32], ports: usize, more: u32) -> Self {
        let capacity = ((most.iter().sum::<u32>() + more) as usize * 4).next_power_of_two();
        let most = most.iter().copied().chain(std::iter::repeat(0)).take(ports.max(most.len()));
        Table {
            entries: (0..capacity).map(|_| Entry::default()).collect(),
            learned: most.map(|most| (AtomicU32::new(0), AtomicU32::new(most))).collect(),
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

    /// From now on a port learns so many addresses at most.
    pub fn set_most(&self, port: usize, most: u32) {
        self.learned[port].1.store(most, Ordering::Relaxed);
    }

    /// The places at which an address may be.
    #[inline]
    fn places(&self, address: Address) -> impl Iterator<Item = &Entry> {
        // Fibonacci hashing; the length is a power of 2.
        let hash = address.number().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        (0..PROBES).map(move |probe| &self.entries[(hash as usize + probe) & (self.entries.len() - 1)])
    }

    /// The port of an address in a VLAN.
    #[inline]
    pub fn find(&self, address: Address, vlan: Vlan) -> Option<usize> {
        let wanted = address.number();
        let word = self
            .places(address)
            .map(|entry| entry.word.load(Ordering::Relaxed))
            .find(|word| is_about(*word, wanted, vlan))?;
        Some(port_of(word))
    }

    /// Sets an address aside for a port until that is removed, in all VLANs. What was learned of it is
    /// forgotten.
    pub fn pin(&self, address: Address, port: usize) {
        let is_pinned = |entry: &&Entry| entry.used_s.load(Ordering::Relaxed) == PINNED;
        for entry in self.places(address).filter(|entry| !is_pinned(entry)) {
            let word = entry.word.load(Ordering::Relaxed);
            if word >> PLACE_BITS == address.number() {
                self.clear(entry, word);
            }
        }
        let free = |entry: &&Entry| entry.word.load(Ordering::Relaxed) == FREE;
        // Where all places are taken, a learned address is forgotten.
        let place = self.places(address).find(free);
        let place = place.or_else(|| self.places(address).find(|entry| !is_pinned(entry)));
        if let Some(entry) = place {
            entry.used_s.store(PINNED, Ordering::Relaxed);
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
        for entry in self.places(address) {
            let word = entry.word.load(Ordering::Relaxed);
            if is_about(word, wanted, vlan) {
                let used_s = entry.used_s.load(Ordering::Relaxed);
                if port_of(word) == port {
                    if used_s < now_s {
                        entry.used_s.store(now_s, Ordering::Relaxed);
                    }
                    return;
                }
                if !is_old(used_s, now_s) {
                    return;
                }
                break;
            }
        }
        self.insert(address, vlan, port, now_s);
    }

    #[cold]
    fn insert(&self, address: Address, vlan: Vlan, port: usize, now_s: u32) {
        let (learned, most) = &self.learned[port];
        if address.is_group() || learned.load(Ordering::Relaxed) >= most.load(Ordering::Relaxed) {
            return;
        }
        for entry in self.places(address) {
            let word = entry.word.load(Ordering::Relaxed);
            let old = is_old(entry.used_s.load(Ordering::Relaxed), now_s);
            if word != FREE && !old {
                continue;
            }
            let mine = word_of(address, port, vlan);
            if entry.word.compare_exchange(word, mine, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                entry.used_s.store(now_s, Ordering::Relaxed);
                learned.fetch_add(1, Ordering::Relaxed);
                self.unlearned(word);
                self.changed();
                return;
            }
        }
    }

    /// What stood in an entry is forgotten.
    fn unlearned(&self, word: u64) {
        if word != FREE {
            self.learned[port_of(word)].0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Forgets what a port learned: its VM left.
    pub fn forget(&self, port: usize) {
        for entry in &self.entries {
            let word = entry.word.load(Ordering::Relaxed);
            if word != FREE && port_of(word) == port && entry.used_s.load(Ordering::Relaxed) != PINNED {
                self.clear(entry, word);
            }
        }
    }

    /// The port is gone: what was set aside for it is forgotten, too.
    pub fn remove(&self, port: usize) {
        self.forget(port);
        for entry in &self.entries {
            let word = entry.word.load(Ordering::Relaxed);
            if word != FREE && port_of(word) == port {
                // What is pinned was not learned.
                entry.word.store(FREE, Ordering::Relaxed);
                entry.used_s.store(0, Ordering::Relaxed);
                self.changed();
            }
        }
        self.set_most(port, 0);
    }
}

fn is_old(used_s: u32, now_s: u32) -> bool {
    used_s != PINNED && u64::from(now_s) >= u64::from(used_s) + SILENCE_MAX.as_ns() / 1_000_000_000
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
        let table = Table::new(&[ADDRESSES_MAX; 3]);
        assert_eq!(table.find(address(1), NONE), None);
        table.learn(address(1), NONE, 2, at(1));
        table.learn(address(1), NONE, 0, at(2));
        assert_eq!(table.find(address(1), NONE), Some(2), "an address cannot be taken away");
        table.learn(Address([1, 0, 0, 0, 0, 1]), NONE, 0, at(2));
        assert_eq!(table.find(Address([1, 0, 0, 0, 0, 1]), NONE), None, "nobody is a group");
    }

    #[test]
    fn a_silent_address_may_move_and_a_busy_one_may_not() {
        let table = Table::new(&[ADDRESSES_MAX; 2]);
        table.learn(address(1), NONE, 0, at(0));
        table.learn(address(1), NONE, 0, at(200));
        table.learn(address(1), NONE, 1, at(499));
        assert_eq!(table.find(address(1), NONE), Some(0));
        table.learn(address(1), NONE, 1, at(500));
        assert_eq!(table.find(address(1), NONE), Some(1));
    }

    #[test]
    fn a_port_learns_so_many_addresses_until_its_vm_leaves() {
        let table = Table::new(&[ADDRESSES_MAX; 2]);
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
    fn an_address_that_was_set_aside_stays() {
        let table = Table::new(&[ADDRESSES_MAX; 2]);
        table.pin(address(1), 0);
        table.learn(address(1), NONE, 1, at(5));
        table.forget(0);
        table.learn(address(1), NONE, 1, at(4_000_000));
        assert_eq!(table.find(address(1), NONE), Some(0));
    }

    #[test]
    fn the_address_of_a_port_that_is_gone_is_free_and_one_that_comes_takes_its_own_from_others() {
        let table = Table::with_room(&[ADDRESSES_MAX], 3, 64);
        table.learn(address(1), NONE, 0, at(1));
        table.set_most(1, ADDRESSES_MAX);
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
        let table = Table::new(&[ADDRESSES_MAX; 3]);
        table.pin(address(9), 2);
        table.learn(address(1), Vlan(3), 0, at(1));
        table.learn(address(1), Vlan(4), 1, at(1));
        table.learn(address(9), Vlan(4), 1, at(1));
        let found = |last, vlan| table.find(address(last), Vlan(vlan));
        assert_eq!([found(1, 3), found(1, 4), found(1, 5)], [Some(0), Some(1), None]);
        assert_eq!([found(9, 3), found(9, 4)], [Some(2), Some(2)], "what was set aside is so everywhere");
    }
}
