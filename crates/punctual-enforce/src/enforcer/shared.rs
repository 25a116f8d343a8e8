//! What enforcers, the watchdog and the owner of a pool share without the pool's lock.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use punctual_sched::UnitParams;

use super::history::{self, Entry};
use crate::unit::{LiveUnit, UnitCounters, UnitThreads};
use punctual_linux::os::cgroup;

/// What the names of enforcers begin with.
pub(super) const NAME: &str = "enforcer/";

/// Shared by the threads of one pool.
pub(super) struct Shared {
    pub stop: AtomicBool,
    /// By enforcer: an event that ends its sleep.
    pub wake: Vec<OwnedFd>,
    /// By enforcer: looks so far.
    pub looks: Vec<AtomicU64>,
    /// By enforcer: has it ended because it was asked to?
    pub has_ended: Vec<AtomicBool>,
    /// By enforcer: its processor time, in ns.
    pub cost_ns: Vec<AtomicU64>,
    /// By enforcer: when the look began that it is in, in ns; 0 between looks.
    pub look_began_ns: Vec<AtomicU64>,
    /// By enforcer: its thread; 0 before it runs.
    pub threads: Vec<AtomicI32>,
    /// By enforcer: has the watchdog taken its own priority away?
    pub has_lost_priority: Vec<AtomicBool>,
    /// Has the watchdog taken the units' priorities away since the last look?
    pub demoted: AtomicBool,
    /// How often it did.
    pub demotions: AtomicU64,
    /// What enforcers saw, on its way to the observer.
    pub exchange: Mutex<Vec<Entry>>,
    /// Each unit that there was, by its number.
    known: Mutex<Vec<Known>>,
    units: Mutex<Vec<UnitMembers>>,
    /// How often units came and went.
    pub units_changes: AtomicU64,
}

/// A unit as far as the observer needs it.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub name: String,
    /// Its budget and period in ns, where it has both.
    pub budget: Option<(u64, u64)>,
    pub counters: Arc<UnitCounters>,
}

fn budget_of(params: &UnitParams) -> Option<(u64, u64)> {
    let (budget, period) = params.budget.zip(params.period)?;
    Some((budget.as_ns(), period.as_ns()))
}

/// A unit as far as the watchdog needs it.
#[derive(Clone)]
pub(super) struct UnitMembers {
    pub name: String,
    threads: UnitThreads,
    /// The directory of its group.
    pub group: PathBuf,
    /// The processors that it may run on.
    pub processors: Vec<usize>,
    pub counters: Arc<UnitCounters>,
}

impl Shared {
    pub(super) fn new(enforcers: usize) -> io::Result<Shared> {
        let wake = (0..enforcers)
            .map(|_| rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK))
            .collect::<Result<Vec<OwnedFd>, _>>()?;
        let counters = || (0..enforcers).map(|_| AtomicU64::new(0)).collect();
        let flags = || (0..enforcers).map(|_| AtomicBool::new(false)).collect();
        Ok(Shared {
            stop: AtomicBool::new(false),
            wake,
            looks: counters(),
            has_ended: flags(),
            cost_ns: counters(),
            look_began_ns: counters(),
            threads: (0..enforcers).map(|_| AtomicI32::new(0)).collect(),
            has_lost_priority: flags(),
            demoted: AtomicBool::new(false),
            demotions: AtomicU64::new(0),
            exchange: history::exchange(),
            known: Mutex::new(Vec::new()),
            units: Mutex::new(Vec::new()),
            units_changes: AtomicU64::new(0),
        })
    }

    /// Wakes every enforcer.
    pub(super) fn wake_enforcers(&self) {
        for fd in &self.wake {
            // Fails only when so many wake-ups are pending that one more makes no difference.
            let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The units whose priorities the watchdog takes away if it has to.
    pub(super) fn units(&self) -> MutexGuard<'_, Vec<UnitMembers>> {
        self.units.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Each unit that there was, by its number. Held for a moment only: enforcers take it.
    pub(super) fn known(&self) -> MutexGuard<'_, Vec<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add_unit(&self, unit: &LiveUnit, number: usize, params: &UnitParams, processors: &[usize]) {
        let mut known = self.known();
        let count = known.len().max(number + 1);
        known.resize_with(count, Known::default);
        let counters = unit.counters.clone();
        known[number] = Known { name: unit.name.clone(), budget: budget_of(params), counters };
        drop(known);
        self.units().push(UnitMembers {
            name: unit.name.clone(),
            threads: unit.threads(),
            group: unit.group().directory().to_owned(),
            processors: processors.to_vec(),
            counters: unit.counters.clone(),
        });
        self.units_changes.fetch_add(1, Ordering::Release);
    }

    /// A unit has other parameters from now on.
    pub(super) fn adjust_unit(&self, number: usize, params: &UnitParams) {
        if let Some(known) = self.known().get_mut(number) {
            known.budget = budget_of(params);
        }
    }

    pub(super) fn remove_unit(&self, name: &str) {
        self.units().retain(|unit| unit.name != name);
        self.units_changes.fetch_add(1, Ordering::Release);
    }
}

impl UnitMembers {
    /// Which threads it consists of.
    pub(super) fn kind(&self) -> UnitThreads {
        self.threads
    }

    /// Is a thread in the group with this directory one of its own?
    pub(super) fn has(&self, tid: i32, group: &Path) -> bool {
        match self.threads {
            UnitThreads::Thread(thread) => thread.id == tid,
            UnitThreads::ProcessTree(_) => group.starts_with(&self.group),
        }
    }

    /// The ids of its threads now.
    pub(super) fn threads(&self) -> Vec<i32> {
        match self.threads {
            UnitThreads::Thread(thread) => vec![thread.id],
            UnitThreads::ProcessTree(_) => cgroup::threads_in(&self.group).unwrap_or_default(),
        }
    }
}
