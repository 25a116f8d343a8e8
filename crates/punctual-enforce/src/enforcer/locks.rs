//! A thread that finds parked units that hold a lock of their VMM, and asks for a grace for them.
//!
//! A thread of the VMM that waits for a mutex waits for a futex (futex(2)), whose value says that it is a
//! mutex that somebody waits for: 2 in glibc, with the owner in the third word (`struct
//! __pthread_mutex_s`); the owner and the flag FUTEX_WAITERS in musl and in mutexes with priority
//! inheritance. A thread that has just taken glibc's mutex is not its owner yet: an atomic instruction is
//! where interrupts come most often, so that is no rare place to be parked. Rust's library has the value 2
//! as well, and no owner.
//!
//! Where the owner is not known, it is taken for one of the parked units, in turn.
//!
//! This thread has no priority, and waits at most for a process that executes a program. The pool's lock it
//! does not take.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use super::pool::Command;
use super::shared::Shared;
use crate::driver::GRACE_MAX;
use crate::unit::{UnitCounters, UnitThreads};
use punctual_linux::os::proc::{self, FutexReader, FutexWait, Memory};

/// How often threads are looked at while a unit is parked.
const INTERVAL: Duration = Duration::from_millis(5);
/// The looks at very many threads take at most one part in this many of a processor.
const SHARE: u32 = 100;
/// The longest time between two looks, whatever they take: others may have had the processor.
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// How often the threads of a process are listed.
const OPENED_EVERY: Duration = Duration::from_secs(1);
/// How often it is read during a grace whether the lock is held.
const HELD_EVERY: Duration = Duration::from_micros(100);

/// The units of a pool whose VMMs are looked at.
pub(super) struct Locks<'p> {
    shared: &'p Shared,
    commands: &'p Sender<Command>,
    /// By process.
    vmms: HashMap<i32, Vmm>,
    /// [`Shared::units_changes`] when `vmms` was brought up to date.
    changes: Option<u64>,
}

/// A process with threads that are units.
struct Vmm {
    process: i32,
    units: Vec<Unit>,
    memory: Option<Arc<Memory>>,
    /// Its threads.
    threads: Vec<(i32, FutexReader)>,
    /// When both were opened.
    opened: Option<Instant>,
    /// May both be read?
    is_readable: bool,
    /// How often the owner of a lock was not known.
    unknown: usize,
}

struct Unit {
    name: String,
    thread: i32,
    /// The thread's id as the process sees it.
    own_id: u32,
    counters: Arc<UnitCounters>,
}

impl Unit {
    fn is_parked(&self) -> bool {
        self.counters.order.load(Ordering::Relaxed) == UnitCounters::PARKED
    }
}

impl<'p> Locks<'p> {
    pub(super) fn new(shared: &'p Shared, commands: &'p Sender<Command>) -> Locks<'p> {
        Locks { shared, commands, vmms: HashMap::new(), changes: None }
    }

    /// Watches until the pool's threads are to stop.
    pub(super) fn watch(&mut self) {
        let mut pause = INTERVAL;
        while !self.shared.is_stopping() {
            std::thread::park_timeout(pause);
            let began = Instant::now();
            self.update();
            let found: Vec<Held> = self.vmms.values_mut().filter_map(Vmm::find).collect();
            pause = (began.elapsed() * SHARE).clamp(INTERVAL, PAUSE_MAX);
            found.into_iter().for_each(|held| self.grant(held));
        }
    }

    /// Follows units that came and went.
    fn update(&mut self) {
        let changes = self.shared.units_changes.load(Ordering::Acquire);
        if self.changes.replace(changes) == Some(changes) {
            return;
        }
        // Without the lock from here on: enforcers take it.
        let units = self.shared.units().clone();
        self.vmms.clear();
        for unit in units {
            let UnitThreads::Thread(thread) = unit.kind() else { continue };
            // One that has ended holds no lock.
            let Ok(process) = proc::process_of(thread.id) else { continue };
            let Ok(own_id) = proc::innermost_id(thread.id) else { continue };
            let (name, counters, own_id) = (unit.name, unit.counters, own_id.unsigned_abs());
            let unit = Unit { name, thread: thread.id, own_id, counters };
            self.vmms.entry(process).or_insert_with(|| Vmm::new(process)).units.push(unit);
        }
    }

    /// Asks for a grace, and ends it when the lock has another owner or none.
    fn grant(&self, Held { memory, address, unit, own_id }: Held) {
        let until = Instant::now() + Duration::from_nanos(GRACE_MAX.as_ns());
        // Fails only when every enforcer has ended, as below.
        let _ = self.commands.send(Command::BeginGrace(unit.clone()));
        self.shared.wake_enforcers();
        while Instant::now() < until && !self.shared.is_stopping() {
            std::thread::sleep(HELD_EVERY);
            let is_held = match owner_at(&memory, address) {
                Ok(Owner::Nobody) | Err(_) => false,
                Ok(Owner::Thread(id)) => id == own_id,
                Ok(Owner::Unknown) => true,
            };
            if !is_held {
                let _ = self.commands.send(Command::EndGrace(unit));
                self.shared.wake_enforcers();
                return;
            }
        }
    }
}

/// A lock that a parked unit holds and another thread waits for.
struct Held {
    memory: Arc<Memory>,
    address: u64,
    unit: String,
    own_id: u32,
}

/// Who holds a mutex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// Nobody, or nobody waits for it.
    Nobody,
    /// The thread with this id, as its process sees it.
    Thread(u32),
    /// Somebody.
    Unknown,
}

impl Vmm {
    fn new(process: i32) -> Vmm {
        let (units, threads) = (Vec::new(), Vec::new());
        Vmm { process, units, memory: None, threads, opened: None, is_readable: true, unknown: 0 }
    }

    /// A lock that a parked unit holds.
    fn find(&mut self) -> Option<Held> {
        if !self.is_readable || !self.units.iter().any(Unit::is_parked) {
            return None;
        }
        self.open();
        let memory = self.memory.as_ref()?;
        let parked: Vec<&Unit> = self.units.iter().filter(|unit| unit.is_parked()).collect();
        let mut seen = HashSet::new();
        for (thread, reader) in &self.threads {
            // What a parked one waits for is of no use to it.
            if parked.iter().any(|unit| unit.thread == *thread) {
                continue;
            }
            match reader.wait() {
                Ok(Some(wait)) if is_for_mutex(&wait) && seen.insert(wait.address) => {
                    let unit = match owner_at(memory, wait.address) {
                        Ok(Owner::Nobody) | Err(_) => None,
                        Ok(Owner::Thread(id)) => parked.iter().find(|unit| unit.own_id == id),
                        Ok(Owner::Unknown) => {
                            self.unknown += 1;
                            parked.get(self.unknown % parked.len().max(1))
                        }
                    };
                    if let Some(Unit { name, own_id, .. }) = unit {
                        let (memory, unit) = (memory.clone(), name.clone());
                        return Some(Held { memory, address: wait.address, unit, own_id: *own_id });
                    }
                }
                // One that has ended is in the next list no more.
                Ok(_) => {}
                Err(error) => self.is_readable &= error.kind() != io::ErrorKind::PermissionDenied,
            }
        }
        None
    }

    /// Opens the memory and the threads, now and then: both change.
    fn open(&mut self) {
        if self.opened.is_some_and(|at| at.elapsed() < OPENED_EVERY) {
            return;
        }
        self.opened = Some(Instant::now());
        // A process that is gone has neither.
        let threads = proc::threads(self.process).unwrap_or_default();
        self.threads =
            threads.into_iter().filter_map(|tid| Some((tid, FutexReader::of(tid).ok()?))).collect();
        self.memory = Memory::of(self.process).ok().map(Arc::new);
        self.is_readable = self.memory.is_some();
    }
}

/// The value of glibc's mutex that somebody waits for.
const CONTENDED: u32 = 2;

/// Is it a wait for a mutex, and not for a condition or an event?
fn is_for_mutex(wait: &FutexWait) -> bool {
    match wait.operation as i32 & libc::FUTEX_CMD_MASK {
        libc::FUTEX_LOCK_PI | libc::FUTEX_LOCK_PI2 => true,
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => {
            wait.value == CONTENDED || wait.value & libc::FUTEX_WAITERS != 0
        }
        _ => false,
    }
}

/// Who holds the mutex at an address.
fn owner_at(memory: &Memory, address: u64) -> io::Result<Owner> {
    let mut bytes = [0u8; 12];
    memory.read(address, &mut bytes)?;
    Ok(owner(bytes))
}

/// Who holds a mutex that somebody waits for, by its first three words.
fn owner(bytes: [u8; 12]) -> Owner {
    let word = |at: usize| {
        let mut word = [0; 4];
        word.copy_from_slice(&bytes[at..at + 4]);
        u32::from_ne_bytes(word)
    };
    match (word(0), word(8)) {
        (CONTENDED, 0) => Owner::Unknown,
        (CONTENDED, id) => Owner::Thread(id),
        (futex, _) if futex & libc::FUTEX_WAITERS != 0 => Owner::Thread(futex & libc::FUTEX_TID_MASK),
        _ => Owner::Nobody,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_the_third_word_of_a_contended_mutex_of_glibc_or_the_futex_itself() {
        let owner_of = |words: [u32; 3]| {
            let mut bytes = [0; 12];
            bytes.chunks_mut(4).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_ne_bytes()));
            owner(bytes)
        };
        assert_eq!(owner_of([2, 0, 4711]), Owner::Thread(4711));
        assert_eq!(owner_of([2, 0, 0]), Owner::Unknown, "it has just been taken");
        assert_eq!(owner_of([1, 0, 4711]), Owner::Nobody, "nobody waits for it");
        assert_eq!(owner_of([0x8000_1267, 0, 0]), Owner::Thread(0x1267), "musl, and priority inheritance");
        assert_eq!(owner_of([0x1267, 9, 9]), Owner::Nobody, "a counter");
        // QEMU's events have the value -1 while somebody waits. There is no such thread.
        assert_eq!(owner_of([u32::MAX, 1, 0]), Owner::Thread(0x3fff_ffff));
    }

    #[test]
    fn a_wait_for_a_condition_is_not_one_for_a_mutex() {
        let is_mutex = |operation, value| is_for_mutex(&FutexWait { address: 1 << 40, operation, value });
        // As the kernel showed them of QEMU's threads: its big lock, and a condition.
        assert!(is_mutex(0x80, 2));
        assert!(!is_mutex(0x189, 0));
        assert!(is_mutex(0x86, 0), "FUTEX_LOCK_PI_PRIVATE");
    }
}
