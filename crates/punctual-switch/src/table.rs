//! Which port an Ethernet address is at.
//!
//! # Rules
//! - An address belongs to the port that first sent from it, or for which the host file set it aside, until
//!   the address was silent for [`SILENCE_MAX`] or the port's VM left. Nobody takes it away meanwhile: a
//!   guest that sends from another's address gets none of its packets.
//! - A VM's port has at most [`ADDRESSES_MAX`] addresses that it learned, an uplink
//!   [`UPLINK_ADDRESSES_MAX`]. Frames to others go to all ports.
//!
//! All planes read and write the table without locks. An entry is one word (address and port); one beside it
//! says when it was last used. Entries are only taken when they are free or out of date, so two threads that
//! learn at once either take two entries or agree on one.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use punctual_sched::{Duration, Instant};

use crate::frame::Address;

/// Addresses that a VM's port learns at most.
pub const ADDRESSES_MAX: u32 = 32;

/// Addresses that an uplink learns at most: the hosts of a network beyond it.
pub const UPLINK_ADDRESSES_MAX: u32 = 1_024;

/// An address that sent nothing for so long is forgotten (Linux's bridge: `ageing_time`).
pub const SILENCE_MAX: Duration = Duration::from_secs(300);

/// Entries that are looked at for an address.
const PROBES: usize = 16;

const PORT_BITS: u32 = 16;
const FREE: u64 = 0;
/// The time of an entry that never becomes old.
const PINNED: u32 = u32::MAX;

/// Addresses of all ports.
#[derive(Debug)]
pub struct Table {
    entries: Vec<Entry>,
    /// By port: addresses that it learned, and at most.
    learned: Vec<(AtomicU32, u32)>,
}

#[derive(Debug, Default)]
struct Entry {
    /// The address and, in the lower bits, the port and one.
    word: AtomicU64,
    /// Seconds.
    used_s: AtomicU32,
}

fn word_of(address: Address, port: usize) -> u64 {
    address.number() << PORT_BITS | (port as u64 + 1)
}

fn seconds(now: Instant) -> u32 {
    (now.as_ns() / 1_000_000_000) as u32
}

impl Table {
    /// A table for fewer than 65,535 ports, each of which learns so many addresses at most.
    pub fn new(most: &[u32]) -> Self {
        let capacity = (most.iter().sum::<u32>() as usize * 4).next_power_of_two();
        Table {
            entries: (0..capacity).map(|_| Entry::default()).collect(),
            learned: most.iter().map(|most| (AtomicU32::new(0), *most)).collect(),
        }
    }

    /// The places at which an address may be.
    #[inline]
    fn places(&self, address: Address) -> impl Iterator<Item = &Entry> {
        // Fibonacci hashing; the length is a power of 2.
        let hash = address.number().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        (0..PROBES).map(move |probe| &self.entries[(hash as usize + probe) & (self.entries.len() - 1)])
    }

    /// The port of an address.
    #[inline]
    pub fn find(&self, address: Address) -> Option<usize> {
        let wanted = address.number();
        let word = self
            .places(address)
            .map(|entry| entry.word.load(Ordering::Relaxed))
            .find(|word| *word != FREE && word >> PORT_BITS == wanted)?;
        Some((word & ((1 << PORT_BITS) - 1)) as usize - 1)
    }

    /// Sets an address aside for a port for good.
    pub fn pin(&self, address: Address, port: usize) {
        if let Some(entry) = self.places(address).find(|entry| entry.word.load(Ordering::Relaxed) == FREE) {
            entry.used_s.store(PINNED, Ordering::Relaxed);
            entry.word.store(word_of(address, port), Ordering::Relaxed);
        }
    }

    /// A frame from `address` came in at `port`.
    #[inline]
    pub fn learn(&self, address: Address, port: usize, now: Instant) {
        let wanted = address.number();
        let now_s = seconds(now);
        for entry in self.places(address) {
            let word = entry.word.load(Ordering::Relaxed);
            if word != FREE && word >> PORT_BITS == wanted {
                let used_s = entry.used_s.load(Ordering::Relaxed);
                if word == word_of(address, port) {
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
        self.insert(address, port, now_s);
    }

    #[cold]
    fn insert(&self, address: Address, port: usize, now_s: u32) {
        let (learned, most) = &self.learned[port];
        if address.is_group() || learned.load(Ordering::Relaxed) >= *most {
            return;
        }
        for entry in self.places(address) {
            let word = entry.word.load(Ordering::Relaxed);
            let old = is_old(entry.used_s.load(Ordering::Relaxed), now_s);
            if word != FREE && !old {
                continue;
            }
            let mine = word_of(address, port);
            if entry.word.compare_exchange(word, mine, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                entry.used_s.store(now_s, Ordering::Relaxed);
                learned.fetch_add(1, Ordering::Relaxed);
                self.unlearned(word);
                return;
            }
        }
    }

    /// What stood in an entry is forgotten.
    fn unlearned(&self, word: u64) {
        if word != FREE {
            let port = (word & ((1 << PORT_BITS) - 1)) as usize - 1;
            self.learned[port].0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Forgets what a port learned: its VM left.
    pub fn forget(&self, port: usize) {
        for entry in &self.entries {
            let word = entry.word.load(Ordering::Relaxed);
            let is_ports = word != FREE && (word & ((1 << PORT_BITS) - 1)) as usize == port + 1;
            if is_ports
                && entry.used_s.load(Ordering::Relaxed) != PINNED
                && entry.word.compare_exchange(word, FREE, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            {
                self.unlearned(word);
            }
        }
    }
}

fn is_old(used_s: u32, now_s: u32) -> bool {
    used_s != PINNED && u64::from(now_s) >= u64::from(used_s) + SILENCE_MAX.as_ns() / 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(s)
    }

    fn address(last: u8) -> Address {
        Address([0x52, 0x54, 0, 0, 0, last])
    }

    #[test]
    fn an_address_is_found_where_it_was_first_seen() {
        let table = Table::new(&[ADDRESSES_MAX; 3]);
        assert_eq!(table.find(address(1)), None);
        table.learn(address(1), 2, at(1));
        table.learn(address(1), 0, at(2));
        assert_eq!(table.find(address(1)), Some(2), "an address cannot be taken away");
        table.learn(Address([1, 0, 0, 0, 0, 1]), 0, at(2));
        assert_eq!(table.find(Address([1, 0, 0, 0, 0, 1])), None, "nobody is a group");
    }

    #[test]
    fn a_silent_address_may_move_and_a_busy_one_may_not() {
        let table = Table::new(&[ADDRESSES_MAX; 2]);
        table.learn(address(1), 0, at(0));
        table.learn(address(1), 0, at(200));
        table.learn(address(1), 1, at(499));
        assert_eq!(table.find(address(1)), Some(0));
        table.learn(address(1), 1, at(500));
        assert_eq!(table.find(address(1)), Some(1));
    }

    #[test]
    fn a_port_learns_so_many_addresses_until_its_vm_leaves() {
        let table = Table::new(&[ADDRESSES_MAX; 2]);
        for last in 0..200 {
            table.learn(address(last), 0, at(0));
        }
        let found = || (0..200).filter(|&last| table.find(address(last)).is_some()).count();
        assert_eq!(found(), ADDRESSES_MAX as usize);
        table.learn(address(250), 1, at(0));
        assert_eq!(table.find(address(250)), Some(1));
        table.forget(0);
        assert_eq!(found(), 0);
        table.learn(address(7), 0, at(1));
        assert_eq!(table.find(address(7)), Some(0));
    }

    #[test]
    fn an_address_that_was_set_aside_stays() {
        let table = Table::new(&[ADDRESSES_MAX; 2]);
        table.pin(address(1), 0);
        table.learn(address(1), 1, at(5));
        table.forget(0);
        table.learn(address(1), 1, at(4_000_000));
        assert_eq!(table.find(address(1)), Some(0));
    }
}
