//! The scheduler in the running kernel.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, PrintLevel, ProgramInput, RingBuffer,
    RingBufferBuilder,
};

use crate::interface::{Ejected, Mechanism, State, Table, UNITS_MAX, UnitState};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/punctual.bpf.o"));

/// Why a scheduler is not loaded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel does not take the program.
    #[error("the kernel does not take the scheduler: {source}{said}")]
    Load {
        /// What the system says.
        source: libbpf_rs::Error,
        /// The end of what the loader says, on a line of its own.
        said: String,
    },
    /// The kernel takes no scheduler now: another one may be loaded.
    #[error("the scheduler cannot start: {0}")]
    Attach(#[source] libbpf_rs::Error),
}

/// The scheduler in the running kernel. It ends when this is dropped, or its process ends; the threads of its
/// units are in the fair class then.
pub struct Loaded {
    /// Dropped first.
    link: Option<Link>,
    object: Object,
    ring: RingBuffer<'static>,
    events: MapHandle,
    state: MapHandle,
    orders: MapHandle,
    groups: MapHandle,
    /// Which half of the orders is live.
    live: usize,
    /// The halves as the kernel has them.
    halves: Vec<u8>,
}

const KEY: [u8; 4] = [0; 4];
/// Bytes of a `struct order`.
const ORDER: usize = 8 + UNITS_MAX * (4 + 4 + 8);
/// Offsets in `struct state`.
const UNITS_AT: usize = 16;
const MESSAGE_AT: usize = UNITS_AT + UNITS_MAX * 16;

/// The last lines of the loader.
static SAID: Mutex<String> = Mutex::new(String::new());
/// Bytes of them at most.
const SAID_MAX: usize = 2000;

fn hear(_level: PrintLevel, text: String) {
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    said.push_str(&text);
    let over = said.len().saturating_sub(SAID_MAX);
    let from = (over..=said.len()).find(|&at| said.is_char_boundary(at)).unwrap_or(0);
    said.drain(..from);
}

impl Loaded {
    /// Loads the scheduler for units on `processor` into the running kernel. `tells_sleep`: wake-ups and
    /// sleeps of units are events, too.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn load(processor: usize, tells_sleep: bool) -> Result<Loaded, Error> {
        libbpf_rs::set_print(Some((PrintLevel::Warn, hear)));
        let failed = |source| {
            let said = std::mem::take(&mut *SAID.lock().unwrap_or_else(PoisonError::into_inner));
            let said = if said.is_empty() { said } else { format!("\n{}", said.trim_end()) };
            Error::Load { source, said }
        };
        let mut open = ObjectBuilder::default().open_memory(OBJECT).map_err(failed)?;
        for mut map in open.maps_mut().filter(|map| map.name() == ".rodata.settings") {
            let settings = [(processor as u32).to_ne_bytes(), u32::from(tells_sleep).to_ne_bytes()].concat();
            map.set_initial_value(&settings).map_err(failed)?;
        }
        let mut object = open.load().map_err(failed)?;
        let map = |name: &str| {
            let found = object.maps().find(|map| map.name() == name);
            let missing = || libbpf_rs::Error::from(io::Error::other(format!("it has no map {name}")));
            found.ok_or_else(missing).and_then(|map| MapHandle::try_from(&map)).map_err(failed)
        };
        let (events, groups) = (map("events")?, map("groups")?);
        let (state, orders) = (map(".data.state")?, map(".data.orders")?);
        let mut ring = RingBufferBuilder::new();
        // What happened is in the state: an event only says that it is time to look.
        ring.add(&events, |_| 0).map_err(failed)?;
        let ring = ring.build().map_err(failed)?;
        let mut link = None;
        for mut map in object.maps_mut().filter(|map| map.name() == "punctual") {
            link = Some(map.attach_struct_ops().map_err(Error::Attach)?);
        }
        let halves = vec![0; 2 * ORDER];
        Ok(Loaded { link, object, ring, events, state, orders, groups, live: 0, halves })
    }

    /// Forgets the events so far: [`Loaded::as_fd`] is ready again when the next one comes.
    pub fn drain(&self) {
        // An event that cannot be read is seen by the next look.
        let _ = self.ring.consume();
    }
}

impl AsFd for Loaded {
    /// Readable when something happened since [`Loaded::drain`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

/// The state in a `struct state`, the current unit charged up to `now_ns`.
fn state_of(bytes: &[u8], now_ns: u64) -> State {
    let (since, current, kind) = (u64_at(bytes, 0), u32_at(bytes, 8), u32_at(bytes, 12));
    let mut units = [UnitState::default(); UNITS_MAX];
    for (index, unit) in units.iter_mut().enumerate() {
        let at = UNITS_AT + index * 16;
        *unit = UnitState { used_ns: u64_at(bytes, at), runnable: u32_at(bytes, at + 8) };
        if current as usize == index {
            unit.used_ns += now_ns.saturating_sub(since);
        }
    }
    let message = || {
        let text = bytes.get(MESSAGE_AT..).unwrap_or_default();
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    };
    let ejected = (kind != 0).then(|| Ejected { kind, message: message() });
    State { units, ejected }
}

/// A table as a `struct order`.
fn order_of(table: &Table) -> Vec<u8> {
    let count = table.order.len().min(UNITS_MAX);
    let mut at = [u32::MAX; UNITS_MAX];
    let mut rank = [u32::MAX; UNITS_MAX];
    for (position, &unit) in table.order.iter().take(count).enumerate() {
        at[position] = unit;
        if let Some(rank) = rank.get_mut(unit as usize) {
            *rank = position as u32;
        }
    }
    let mut bytes = Vec::with_capacity(ORDER);
    bytes.extend_from_slice(&(count as u32).to_ne_bytes());
    bytes.extend_from_slice(&0u32.to_ne_bytes());
    bytes.extend(at.iter().chain(&rank).flat_map(|value| value.to_ne_bytes()));
    bytes.extend(table.limits_ns.iter().flat_map(|value| value.to_ne_bytes()));
    bytes
}

impl Mechanism for Loaded {
    fn read(&mut self, now_ns: u64) -> io::Result<State> {
        let bytes = self.state.lookup(&KEY, MapFlags::ANY).map_err(io::Error::other)?;
        Ok(state_of(&bytes.unwrap_or_default(), now_ns))
    }

    fn decide(&mut self, table: &Table) -> io::Result<()> {
        let next = 1 - self.live;
        self.halves[next * ORDER..][..ORDER].copy_from_slice(&order_of(table));
        self.orders.update(&KEY, &self.halves, MapFlags::ANY).map_err(io::Error::other)?;
        let decide = self.object.progs_mut().find(|program| program.name() == "decide");
        let decide = decide.ok_or_else(|| io::Error::other("the scheduler has no program `decide`"))?;
        decide.test_run(ProgramInput::default()).map_err(io::Error::other)?;
        self.live = next;
        Ok(())
    }

    fn add(&mut self, unit: u32, group: u64) -> io::Result<()> {
        let (group, unit) = (group.to_ne_bytes(), unit.to_ne_bytes());
        self.groups.update(&group, &unit, MapFlags::ANY).map_err(io::Error::other)
    }

    fn remove(&mut self, group: u64) {
        // One that is not there needs no removal.
        let _ = self.groups.delete(&group.to_ne_bytes());
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.link = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_read_as_the_scheduler_writes_it() {
        let mut bytes = vec![0; MESSAGE_AT + 128];
        bytes[..8].copy_from_slice(&1_000u64.to_ne_bytes());
        bytes[8..12].copy_from_slice(&1u32.to_ne_bytes());
        bytes[UNITS_AT + 16..][..8].copy_from_slice(&500u64.to_ne_bytes());
        bytes[UNITS_AT + 16 + 8..][..4].copy_from_slice(&2u32.to_ne_bytes());
        let state = state_of(&bytes, 1_250);
        assert_eq!(state.units[1], UnitState { used_ns: 750, runnable: 2 });
        assert_eq!((state.units[0], state.ejected), (UnitState::default(), None));
        bytes[12..16].copy_from_slice(&67u32.to_ne_bytes());
        bytes[MESSAGE_AT..][..4].copy_from_slice(b"sysr");
        let ejected = state_of(&bytes, 1_250).ejected.expect("it was");
        assert_eq!(ejected, Ejected { kind: 67, message: "sysr".into() });
    }

    #[test]
    fn a_table_has_places_ranks_and_limits() {
        let mut table = Table { order: vec![2, 0], ..Table::default() };
        table.limits_ns[2] = 7;
        let bytes = order_of(&table);
        assert_eq!(bytes.len(), ORDER);
        assert_eq!((u32_at(&bytes, 0), u32_at(&bytes, 8), u32_at(&bytes, 12)), (2, 2, 0));
        let ranks = 8 + UNITS_MAX * 4;
        assert_eq!([0, 1, 2].map(|unit| u32_at(&bytes, ranks + unit * 4)), [1, u32::MAX, 0]);
        assert_eq!(u64_at(&bytes, 8 + UNITS_MAX * 8 + 2 * 8), 7);
    }

    #[test]
    fn the_object_has_what_the_loader_asks_for() {
        let mut open = ObjectBuilder::default().open_memory(OBJECT).expect("an object of BPF");
        let size = |open: &libbpf_rs::OpenObject, name: &str| {
            let map = open.maps().find(|map| map.name() == name);
            map.unwrap_or_else(|| panic!("no map {name}")).value_size() as usize
        };
        assert_eq!(size(&open, ".data.state"), MESSAGE_AT + 128);
        assert_eq!(size(&open, ".data.orders"), 2 * ORDER);
        assert_eq!(size(&open, ".rodata.settings"), 8);
        assert_eq!(size(&open, "groups"), 4);
        let names: Vec<_> = open.progs_mut().map(|program| program.name().to_owned()).collect();
        assert!(names.iter().any(|name| name == "decide"), "{names:?}");
    }
}
