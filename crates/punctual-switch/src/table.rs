//! The forwarding table: which port an Ethernet address is at.
//!
//! # Rules
//! - An address is either reserved for a VM by the host file, or learned: it belongs to the port that first
//!   sent from it, until it was silent for [`AGEING_TIME`] or the port's VM disconnects. No VM can take it
//!   over before: a guest that sends from another VM's address gets none of that VM's packets.
//! - An uplink takes over an address that a VM has learned as soon as it sends from it. Otherwise a guest
//!   could send from the address of a silent host beyond the uplink and keep it. An uplink that may learn no
//!   more addresses makes the table forget the VM's. A reserved address is never taken over.
//! - A learned address is valid in the VLAN where it was seen, a reserved one in all.
//! - An address may be in one of 16 entries, chosen by a hash with a key that each switch draws by itself, so
//!   that no guest knows which addresses share their entries with another's. If all 16 are taken, an uplink
//!   displaces the entry of a VM that was used least recently. A VM displaces one of the VM that holds most
//!   of the 16, if it holds less itself. Reserved addresses displace any learned one.
//! - A VM's port learns at most [`ADDRESSES_MAX`] addresses, an uplink [`UPLINK_ADDRESSES_MAX`]. Frames to
//!   unknown addresses are flooded.
//!
//! # Concurrency
//! All planes read and write the table without locks. An entry is one word (address, port, VLAN) and the time
//! of its last use. Every change of the word is a compare-and-exchange with the value on which the decision
//! was based. Two threads that learn at once either take two entries or agree on one; of two entries the
//! first is found, and an uplink takes it from a VM with its next frame.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use punctual_sched::{Duration, Instant};

use crate::frame::Address;
use crate::narrow::{low_u64, to_usize};
use crate::vlan::Vlan;

/// Addresses that a VM's port learns.
pub(crate) const ADDRESSES_MAX: u32 = 32;

/// Addresses that an uplink learns.
pub(crate) const UPLINK_ADDRESSES_MAX: u32 = 1_024;

/// A learned address that is silent for this long may be taken over (`ageing_time` of Linux's bridge).
pub(crate) const AGEING_TIME: Duration = Duration::from_secs(300);

/// Entries that may hold an address.
const PROBES: usize = 16;

/// Below the address, a word has 9 bits for the port plus one, and 7 for the VLAN.
const PORT_SHIFT: u32 = 16;
const VLAN_BITS: u32 = 7;
/// All VLANs: the mark of a reserved address.
const ALL: Vlan = Vlan((1 << VLAN_BITS) - 1);
const FREE: u64 = 0;

/// What is at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum PortKind {
    /// Nothing; no address is learned.
    None,
    Vm,
    Uplink,
}

impl PortKind {
    /// Addresses that a port of this kind learns.
    pub(crate) fn addresses_max(self) -> u32 {
        match self {
            PortKind::None => 0,
            PortKind::Vm => ADDRESSES_MAX,
            PortKind::Uplink => UPLINK_ADDRESSES_MAX,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Table {
    entries: Vec<Entry>,
    ports: Vec<PortEntry>,
    /// Changes of entries so far.
    changes: AtomicU64,
    key: Key,
}

/// The secret of the hash.
#[derive(Clone, Copy)]
struct Key([u64; 2]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// Drawn by the standard library, which seeds its hash maps from the kernel.
    fn random() -> Key {
        let word = |number: u64| RandomState::new().hash_one(number);
        Key([word(0), word(1)])
    }

    /// The product of two words that a guest does not know, folded: each bit depends on every bit of the
    /// address and of the key (as in wyhash).
    #[inline]
    fn hash(self, address: u64) -> u64 {
        let Key([mask, factor]) = self;
        let product = u128::from(address ^ mask) * u128::from(factor | 1);
        low_u64(product) ^ low_u64(product >> 64)
    }
}

#[derive(Debug)]
struct PortEntry {
    /// A [`PortKind`].
    kind: AtomicU8,
    /// Addresses that it has learned.
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
    /// Address, port plus one, and VLAN; see [`PORT_SHIFT`].
    word: AtomicU64,
    /// The last use, in seconds.
    used_s: AtomicU32,
}

fn word_of(address: Address, port: usize, vlan: Vlan) -> u64 {
    address.number() << PORT_SHIFT | (port as u64 + 1) << VLAN_BITS | u64::from(vlan.0)
}

fn port_of(word: u64) -> usize {
    (word >> VLAN_BITS & ((1 << (PORT_SHIFT - VLAN_BITS)) - 1)) as usize - 1
}

/// Is an entry for this address in this VLAN?
#[inline]
fn matches_entry(word: u64, address: u64, vlan: Vlan) -> bool {
    let of = Vlan((word & ((1 << VLAN_BITS) - 1)) as u8);
    word != FREE && word >> PORT_SHIFT == address && (of == vlan || of == ALL)
}

/// Is the address reserved?
fn is_pinned(word: u64) -> bool {
    word & ((1 << VLAN_BITS) - 1) == u64::from(ALL.0)
}

/// May any port take the entry, because it is free or has aged?
fn is_vacant(word: u64, used_s: u32, now_s: u32) -> bool {
    let is_old = u64::from(now_s) >= u64::from(used_s) + AGEING_TIME.as_ns() / 1_000_000_000;
    word == FREE || is_old && !is_pinned(word)
}

fn seconds(now: Instant) -> u32 {
    ((now.as_ns() / 1_000_000_000) & 0xffff_ffff) as u32
}

impl Table {
    /// A table for ports of these kinds, at most 511.
    #[cfg(test)]
    pub(crate) fn new(kind: &[PortKind]) -> Self {
        Table::with_room(kind, kind.len(), 0)
    }

    /// A table for ports of these kinds and others that are added later, up to `ports` in all, with room for
    /// `more` addresses.
    pub(crate) fn with_room(kind: &[PortKind], ports: usize, more: u32) -> Self {
        let most: u32 = kind.iter().map(|kind| kind.addresses_max()).sum();
        let capacity = ((most + more) as usize * 4).next_power_of_two();
        let all = kind.iter().copied().chain(std::iter::repeat(PortKind::None));
        Table {
            entries: (0..capacity).map(|_| Entry::default()).collect(),
            ports: all.take(ports.max(kind.len())).map(PortEntry::new).collect(),
            changes: AtomicU64::new(0),
            key: Key::random(),
        }
    }

    /// The number of changes so far. A result of [`Table::find`] is valid as long as this number, read before
    /// it, stays the same.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Called after the change is visible.
    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn set_kind(&self, port: usize, kind: PortKind) {
        self.ports[port].kind.store(kind as u8, Ordering::Relaxed);
    }

    /// The entries that may hold an address.
    #[inline]
    fn probe(&self, address: Address) -> impl Iterator<Item = &Entry> {
        // The length is a power of two.
        let hash = to_usize(self.key.hash(address.number()));
        let entry = move |probe| &self.entries[hash.wrapping_add(probe) & (self.entries.len() - 1)];
        (0..PROBES).map(entry)
    }

    #[inline]
    pub(crate) fn find(&self, address: Address, vlan: Vlan) -> Option<usize> {
        let wanted = address.number();
        let word = self
            .probe(address)
            .map(|entry| entry.word.load(Ordering::Relaxed))
            .find(|word| matches_entry(*word, wanted, vlan))?;
        Some(port_of(word))
    }

    /// Reserves an address for a port, in all VLANs, until the port is removed. Learned entries of it are
    /// cleared.
    pub(crate) fn pin(&self, address: Address, port: usize) {
        for entry in self.probe(address) {
            let word = entry.word.load(Ordering::Relaxed);
            if word >> PORT_SHIFT == address.number() && word != FREE && !is_pinned(word) {
                self.clear(entry, word);
            }
        }
        let word_at = |entry: &Entry| entry.word.load(Ordering::Relaxed);
        // If all entries are occupied, a learned address is evicted.
        let place = self.probe(address).find(|entry| word_at(entry) == FREE);
        let place = place.or_else(|| self.probe(address).find(|entry| !is_pinned(word_at(entry))));
        if let Some(entry) = place {
            self.unlearned(entry.word.swap(word_of(address, port, ALL), Ordering::Relaxed));
            self.changed();
        }
    }

    /// Clears an entry, unless it has changed.
    fn clear(&self, entry: &Entry, word: u64) {
        if entry.word.compare_exchange(word, FREE, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.unlearned(word);
            self.changed();
        }
    }

    /// Learns from a frame of `vlan` that `port` sent from `address`.
    #[inline]
    pub(crate) fn learn(&self, address: Address, vlan: Vlan, port: usize, now: Instant) {
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

    /// Another port, with the entry word `mine`, uses the address of an entry as well.
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

    /// Replaces an entry, unless it has changed. Returns whether it did.
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
        if let Some((entry, word)) = self.displaceable(address, port) {
            // If another thread changed the entry meanwhile, the next frame displaces one.
            self.take(entry, word, word_of(address, port, vlan), now_s);
        }
    }

    /// An entry that `port` may take for an address all of whose entries are taken: of those of VMs the one
    /// that was used least recently.
    fn displaceable(&self, address: Address, port: usize) -> Option<(&Entry, u64)> {
        let words: [u64; PROBES] = self.words(address);
        let learned = || words.iter().filter(|word| **word != FREE && !is_pinned(**word));
        let held_by = |port: usize| learned().filter(|word| port_of(**word) == port).count();
        let is_vm = |word: u64| self.ports[port_of(word)].kind() == PortKind::Vm;
        let is_uplink = self.ports[port].kind() == PortKind::Uplink;
        let most = learned().filter(|word| is_vm(**word)).map(|word| held_by(port_of(*word))).max()?;
        let may_take = |word: u64| {
            let is_most = held_by(port_of(word)) == most && most > held_by(port) + 1;
            word != FREE && !is_pinned(word) && is_vm(word) && (is_uplink || is_most)
        };
        let entries = self.probe(address).zip(words).filter(|(_, word)| may_take(*word));
        entries.min_by_key(|(entry, _)| entry.used_s.load(Ordering::Relaxed))
    }

    fn words(&self, address: Address) -> [u64; PROBES] {
        let mut words = [FREE; PROBES];
        for (word, entry) in words.iter_mut().zip(self.probe(address)) {
            *word = entry.word.load(Ordering::Relaxed);
        }
        words
    }

    /// Accounts for a removed entry.
    fn unlearned(&self, word: u64) {
        // A reserved address does not count as learned.
        if word != FREE && !is_pinned(word) {
            self.ports[port_of(word)].learned.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Forgets the learned addresses of a port whose VM has disconnected.
    pub(crate) fn forget(&self, port: usize) {
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

    /// Forgets all addresses of a removed port.
    pub(crate) fn remove(&self, port: usize) {
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
        assert_eq!(table.find(Address([1, 0, 0, 0, 0, 1]), NONE), None, "a group address is never learned");
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
    fn a_port_learns_a_limited_number_of_addresses_until_its_vm_disconnects() {
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
    fn an_uplink_takes_an_address_from_a_vm_and_not_the_other_way_round() {
        let table = Table::new(&[PortKind::Vm, PortKind::Vm, PortKind::Uplink, PortKind::Uplink]);
        let found = |last| table.find(address(last), NONE);
        table.learn(address(1), NONE, 0, at(1));
        assert_eq!(found(1), Some(0), "unclaimed");
        let changes = table.changes();
        table.learn(address(1), NONE, 2, at(1));
        assert_eq!(found(1), Some(2), "at once");
        assert!(table.changes() > changes, "cached routes to it are stale");
        for (port, s) in [(0, 1), (1, 300), (3, 300)] {
            table.learn(address(1), NONE, port, at(s));
            assert_eq!(found(1), Some(2), "port {port} does not take it");
        }
        table.learn(address(1), NONE, 0, at(301));
        assert_eq!(found(1), Some(0), "it has aged");
        table.learn(address(1), NONE, 2, at(302));
        assert_eq!(found(1), Some(2));
        table.pin(address(2), 0);
        table.learn(address(2), NONE, 2, at(4_000_000));
        assert_eq!(found(2), Some(0), "a reserved address is never taken");
        table.learn(address(3), Vlan(3), 0, at(1));
        table.learn(address(3), Vlan(4), 2, at(1));
        assert_eq!([3, 4].map(|vlan| table.find(address(3), Vlan(vlan))), [Some(0), Some(2)]);
    }

    #[test]
    fn an_uplink_at_its_limit_takes_nothing_and_what_it_takes_counts() {
        let table = Table::with_room(&[PortKind::Vm, PortKind::Uplink], 2, 4_096);
        let of = |number: u16| Address([2, 0, 0, 1, (number >> 8) as u8, (number & 0xff) as u8]);
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
    fn threads_that_dispute_an_address_leave_it_with_the_uplink_and_correct_counts() {
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
            // Of two entries a VM's may be the first; the uplink takes it with its next frame.
            (0..20).for_each(|last| table.learn(address(last), NONE, 2, now));
            assert!((0..20).all(|last| table.find(address(last), NONE) == Some(2)), "round {round}");
        }
        (0..3).for_each(|port| table.forget(port));
        let learned = |port: &PortEntry| port.learned.load(Ordering::Relaxed);
        assert_eq!(table.ports.iter().map(learned).collect::<Vec<_>>(), [0; 3]);
    }

    /// Addresses whose entries are those of `of`, under a key that the finder knows.
    fn colliding(table: &Table, of: Address, count: usize) -> Vec<Address> {
        let place = |address: Address| to_usize(table.key.hash(address.number())) & (table.entries.len() - 1);
        let all = (0..u32::MAX).map(|number| {
            let [a, b, c, d] = number.to_be_bytes();
            Address([2, 1, a, b, c, d])
        });
        all.filter(|address| place(*address) == place(of)).take(count).collect()
    }

    #[test]
    fn each_switch_has_a_key_of_its_own() {
        let tables = [Table::new(&[PortKind::Vm; 4]), Table::new(&[PortKind::Vm; 4])];
        assert_ne!(tables[0].key.0, tables[1].key.0);
        // Addresses that share their entries under one key do not under another.
        let found = colliding(&tables[0], address(1), 64);
        let place = |address: &Address| {
            to_usize(tables[1].key.hash(address.number())) & (tables[1].entries.len() - 1)
        };
        let mut places: Vec<usize> = found.iter().map(place).collect();
        places.sort_unstable();
        places.dedup();
        assert!(places.len() > 32, "{} places of 64 addresses in 512 entries", places.len());
    }

    #[test]
    fn a_vm_that_fills_all_entries_of_an_address_does_not_keep_an_uplink_out() {
        let table = Table::new(&[PortKind::Vm, PortKind::Vm, PortKind::Uplink]);
        let gateway = address(1);
        for (s, of) in colliding(&table, gateway, PROBES).into_iter().enumerate() {
            table.learn(of, NONE, 0, at(s as u64));
        }
        let learned = |port: usize| table.ports[port].learned.load(Ordering::Relaxed);
        assert_eq!(learned(0) as usize, PROBES);
        table.learn(gateway, NONE, 2, at(20));
        assert_eq!(table.find(gateway, NONE), Some(2));
        let oldest = colliding(&table, gateway, 1)[0];
        assert_eq!((table.find(oldest, NONE), learned(0) as usize), (None, PROBES - 1), "the least recent");
        // Another VM gets its share, and the first one gets none of it back.
        let own = colliding(&table, gateway, PROBES + 12)[PROBES..].to_vec();
        own.iter().for_each(|of| table.learn(*of, NONE, 1, at(21)));
        let of_first = learned(0);
        assert!(learned(1) >= 7 && of_first <= 8, "{} and {of_first}", learned(1));
        colliding(&table, gateway, PROBES).iter().for_each(|of| table.learn(*of, NONE, 0, at(22)));
        assert_eq!((learned(0), learned(1)), (of_first, 15 - of_first));
        assert_eq!(table.find(gateway, NONE), Some(2));
    }

    #[test]
    fn a_reserved_address_takes_an_entry_among_learned_ones() {
        let table = Table::new(&[PortKind::Vm, PortKind::Vm]);
        colliding(&table, address(1), PROBES).iter().for_each(|of| table.learn(*of, NONE, 0, at(1)));
        table.pin(address(1), 1);
        assert_eq!(table.find(address(1), NONE), Some(1));
    }

    #[test]
    fn a_reserved_address_stays() {
        let table = Table::new(&[PortKind::Vm; 2]);
        table.pin(address(1), 0);
        table.learn(address(1), NONE, 1, at(5));
        table.forget(0);
        table.learn(address(1), NONE, 1, at(4_000_000));
        assert_eq!(table.find(address(1), NONE), Some(0));
    }

    #[test]
    fn a_removed_port_frees_its_addresses_and_an_added_one_takes_its_own() {
        let table = Table::with_room(&[PortKind::Vm], 3, 64);
        table.learn(address(1), NONE, 0, at(1));
        table.set_kind(1, PortKind::Vm);
        table.pin(address(1), 1);
        assert_eq!(table.find(address(1), NONE), Some(1), "even if another port used it before");
        table.learn(address(2), NONE, 1, at(1));
        table.remove(1);
        assert_eq!([1, 2].map(|last| table.find(address(last), NONE)), [None; 2]);
        table.learn(address(2), NONE, 1, at(2));
        assert_eq!(table.find(address(2), NONE), None, "a removed port learns nothing");
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
        assert_eq!(
            [found(9, 3), found(9, 4)],
            [Some(2), Some(2)],
            "a reserved address is valid in all VLANs"
        );
    }
}
