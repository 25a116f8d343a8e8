//! The scheduler in the running kernel.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, PrintLevel, ProgramInput, RingBuffer,
    RingBufferBuilder,
};

use crate::interface::{Asleep, Decision, Ejected, Event, Mechanism, State, Table, UNITS_MAX, UnitState};

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
    /// What was read of them.
    told: Arc<Mutex<Vec<Event>>>,
    state: MapHandle,
    orders: MapHandle,
    groups: MapHandle,
    /// Which half of the orders is live.
    live: usize,
    /// The halves as the kernel has them.
    halves: Vec<u8>,
}

const KEY: [u8; 4] = [0; 4];
/// Bytes of a `struct decided`.
const DECIDED: usize = 48;
/// Bytes of a `struct order`.
const ORDER: usize = 16 + UNITS_MAX * (4 + DECIDED);
/// Offsets in `struct state`.
const UNITS_AT: usize = 24;
/// Bytes of a `struct unit`.
const UNIT: usize = 48;
const MESSAGE_AT: usize = UNITS_AT + UNITS_MAX * UNIT;
/// Bytes of a `struct told`.
const TOLD: usize = 56;
const TOLD_EXHAUSTED: u32 = 1;

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
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = told.clone();
        let hear = move |bytes: &[u8]| {
            heard.lock().unwrap_or_else(PoisonError::into_inner).extend(event_of(bytes));
            0
        };
        ring.add(&events, hear).map_err(failed)?;
        let ring = ring.build().map_err(failed)?;
        let mut link = None;
        for mut map in object.maps_mut().filter(|map| map.name() == "punctual") {
            link = Some(map.attach_struct_ops().map_err(Error::Attach)?);
        }
        let halves = vec![0; 2 * ORDER];
        Ok(Loaded { link, object, ring, events, told, state, orders, groups, live: 0, halves })
    }
}

impl AsFd for Loaded {
    /// Readable when something happened since [`Mechanism::take_events`].
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

/// The unit in a `struct unit`, or in the same fields of a `struct told`.
fn unit_of(bytes: &[u8]) -> UnitState {
    UnitState {
        used_ns: u64_at(bytes, 0),
        idled_ns: u64_at(bytes, 8),
        limit_ns: u64_at(bytes, 16),
        next_ns: u64_at(bytes, 24),
        replenished: u32_at(bytes, 32),
        runnable: u32_at(bytes, 36),
    }
}

/// The event in a `struct told`.
fn event_of(bytes: &[u8]) -> Option<Event> {
    let state = unit_of(bytes.get(16..TOLD)?);
    let is_exhaustion = u32_at(bytes, 0) == TOLD_EXHAUSTED;
    Some(Event { at_ns: u64_at(bytes, 8), unit: u32_at(bytes, 4), is_exhaustion, state })
}

/// The state in a `struct state`, the current unit charged up to `now_ns`.
fn state_of(bytes: &[u8], now_ns: u64) -> State {
    let since = u64_at(bytes, 0);
    let (current, idling) = (u32_at(bytes, 8), u32_at(bytes, 12));
    let (kind, lost) = (u32_at(bytes, 16), u32_at(bytes, 20));
    let mut units = [UnitState::default(); UNITS_MAX];
    for (index, unit) in units.iter_mut().enumerate() {
        *unit = unit_of(bytes.get(UNITS_AT + index * UNIT..).unwrap_or_default());
        let passed = now_ns.saturating_sub(since);
        if current as usize == index {
            unit.used_ns += passed;
        } else if idling as usize == index {
            let idled = passed.min(unit.limit_ns.saturating_sub(unit.used_ns));
            unit.used_ns += idled;
            unit.idled_ns += idled;
        }
    }
    let message = || {
        let text = bytes.get(MESSAGE_AT..).unwrap_or_default();
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    };
    let ejected = (kind != 0).then(|| Ejected { kind, message: message() });
    State { units, lost, ejected }
}

/// A table as a `struct order`.
fn order_of(table: &Table) -> Vec<u8> {
    let count = table.order.len().min(UNITS_MAX);
    let mut at = [u32::MAX; UNITS_MAX];
    for (place, &unit) in at.iter_mut().zip(&table.order) {
        *place = unit;
    }
    let head = [count as u32, table.by_deadline.into(), table.idles_away.into(), table.wakes.into()];
    let mut bytes = Vec::with_capacity(ORDER);
    bytes.extend(head.iter().chain(&at).flat_map(|value| value.to_ne_bytes()));
    for Decision { key, limit_ns, next_ns, period_ns, budget_ns, asleep, replenished } in &table.units {
        let times = [key, limit_ns, next_ns, period_ns, budget_ns];
        bytes.extend(times.into_iter().flat_map(|value| value.to_ne_bytes()));
        let flags: u32 = match asleep {
            Asleep::Replenished => 0,
            Asleep::Discarded => 1,
            Asleep::Waits => 2,
            Asleep::Restarts => 2 | 4,
        };
        bytes.extend([*replenished, flags].into_iter().flat_map(u32::to_ne_bytes));
    }
    bytes
}

impl Mechanism for Loaded {
    fn read(&mut self, now_ns: u64) -> io::Result<State> {
        let bytes = self.state.lookup(&KEY, MapFlags::ANY).map_err(io::Error::other)?;
        Ok(state_of(&bytes.unwrap_or_default(), now_ns))
    }

    fn take_events(&mut self, events: &mut Vec<Event>) {
        // One that cannot be read is in the state that the next look reads.
        let _ = self.ring.consume();
        events.append(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner));
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
        bytes[12..16].copy_from_slice(&2u32.to_ne_bytes());
        bytes[UNITS_AT + UNIT..][..8].copy_from_slice(&500u64.to_ne_bytes());
        bytes[UNITS_AT + UNIT + 36..][..4].copy_from_slice(&2u32.to_ne_bytes());
        bytes[UNITS_AT + 2 * UNIT + 16..][..8].copy_from_slice(&100u64.to_ne_bytes());
        let state = state_of(&bytes, 1_250);
        assert_eq!(state.units[1], UnitState { used_ns: 750, runnable: 2, ..UnitState::default() });
        let idled = UnitState { used_ns: 100, idled_ns: 100, limit_ns: 100, ..UnitState::default() };
        assert_eq!(state.units[2], idled, "no more than it has left");
        assert_eq!((state.units[0], state.ejected), (UnitState::default(), None));
        bytes[16..20].copy_from_slice(&67u32.to_ne_bytes());
        bytes[MESSAGE_AT..][..4].copy_from_slice(b"sysr");
        let ejected = state_of(&bytes, 1_250).ejected.expect("it was");
        assert_eq!(ejected, Ejected { kind: 67, message: "sysr".into() });
    }

    #[test]
    fn an_event_is_read_as_the_scheduler_writes_it() {
        let mut bytes: Vec<u8> = (0..TOLD as u8).collect();
        let event = event_of(&bytes).expect("a whole one");
        assert_eq!((event.unit, event.at_ns), (0x0706_0504, 0x0f0e_0d0c_0b0a_0908));
        assert_eq!((event.state.used_ns, event.state.runnable), (0x1716_1514_1312_1110, 0x3736_3534));
        assert!(!event.is_exhaustion);
        bytes[..4].copy_from_slice(&1u32.to_ne_bytes());
        assert!(event_of(&bytes).is_some_and(|event| event.is_exhaustion));
        assert_eq!(event_of(&bytes[..TOLD - 1]), None);
    }

    #[test]
    fn a_table_has_places_and_decisions() {
        let mut table = Table { order: vec![2, 0], ..Table::default() };
        (table.units[2].limit_ns, table.units[2].asleep) = (7, Asleep::Restarts);
        let bytes = order_of(&table);
        assert_eq!(bytes.len(), ORDER);
        assert_eq!([0, 12, 16, 20, 24].map(|at| u32_at(&bytes, at)), [2, 1, 2, 0, u32::MAX]);
        let unit = 16 + UNITS_MAX * 4 + 2 * DECIDED;
        assert_eq!((u64_at(&bytes, unit + 8), u32_at(&bytes, unit + 44)), (7, 6));
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
