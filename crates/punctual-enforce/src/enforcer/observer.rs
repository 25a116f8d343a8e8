//! A thread on the host's processors that keeps what enforcers saw, and looks for what disturbs them: other
//! threads on their processors, time that a hypervisor below took, and threads that work for VMs and wait:
//! their own VMM's, and those of a switch.
//!
//! Enforcers never wait for it. It takes at most a hundredth of a processor.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration as StdDuration, Instant as StdInstant};

use super::delivery::Deliveries;
use super::history::{Entry, History};
use super::occupants::{Occupants, Reader};
use super::shared::{NAME, Shared};
use crate::clock::now;
use crate::unit::{UnitCounters, UnitThreads};
use punctual_linux::os::load::{self, Load};
use punctual_linux::os::proc;
use punctual_linux::vmm;

/// How often entries are taken from the enforcers.
const INTERVAL: StdDuration = StdDuration::from_millis(20);
/// Between two samples at least, and this many times what a sample takes.
const SAMPLE_INTERVAL: StdDuration = StdDuration::from_millis(100);
/// See [`SAMPLE_INTERVAL`].
const SAMPLE_COSTS: u32 = 100;
/// Samples that are kept: an hour, if one takes less than a millisecond.
const SAMPLES_MAX: usize = 36_000;

/// A thread that is no unit and ran on a processor of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The processor on which it was last, by its place in the pool.
    pub processor: usize,
    /// Its name.
    pub name: String,
    /// How long it ran.
    pub ran_ns: u64,
    /// Is it a real-time thread? Others run only when no unit wants to, but for the kernel's fair server.
    pub is_real_time: bool,
}

/// A thread of a VMM that is no unit, or one that serves units, and ran or waited for a processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Helper {
    /// The units of its VMM, or those that it serves.
    pub units: Vec<String>,
    /// Its name.
    pub name: String,
    /// How long it ran, and waited for a processor.
    pub busy_ns: u64,
}

/// A thread that works for units of other programs, as a switch does for the VMs on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingThread {
    /// The thread.
    pub thread: i32,
    /// Its name in reports of what units waited for.
    pub name: String,
    /// The units.
    pub units: Vec<String>,
}

/// The threads that serve units at present. Their owner keeps the list up to date.
#[derive(Debug, Default)]
pub struct Serving(Mutex<Vec<ServingThread>>);

impl Serving {
    /// Replaces the list.
    pub fn set(&self, threads: Vec<ServingThread>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = threads;
    }

    /// Those of now.
    pub fn threads(&self) -> Vec<ServingThread> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What the observer looks for beside the enforcers.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Context switches of the processors, if the kernel permits it.
    pub switches: bool,
    /// Threads that serve units.
    pub serving: Arc<Serving>,
    /// Keep nothing for finding out afterwards why jobs were late: for enforcement without an end. Numbers of
    /// units that are gone are used again then.
    pub keeps_nothing: bool,
}

/// What happened on the pool's processors from one instant to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// From when, in ns of CLOCK_MONOTONIC.
    pub from_ns: u64,
    /// Until when.
    pub until_ns: u64,
    /// By processor of the pool.
    pub loads: Vec<Load>,
    /// Threads that ran there.
    pub foreign: Vec<Foreign>,
    /// Threads that units may have waited for.
    pub helpers: Vec<Helper>,
}

/// What the observer has when the pool stops.
#[derive(Debug, Default)]
pub struct Observations {
    /// What enforcers saw.
    pub history: History,
    /// What happened beside them, in order of time.
    pub samples: VecDeque<Sample>,
    /// By processor, which other threads had it; empty where context switches were not read.
    pub occupants: Vec<Occupants>,
}

/// Observes until the pool stops; context switches too, where there is somebody who reads them.
pub(super) fn observe(
    shared: &Shared,
    processors: &[usize],
    mut switches: Option<Reader>,
    observed: Observed,
) -> Observations {
    let Observed { serving, keeps_nothing, .. } = observed;
    let mut observations = Observations::default();
    let mut spare = super::history::spare();
    let mut sampler = Sampler::new(processors.to_vec(), serving);
    let mut next = StdInstant::now();
    let mut published = Published::new();
    while !shared.is_stopping() {
        std::thread::park_timeout(INTERVAL);
        let read = |entry: &Entry| published.deliveries.read(*entry);
        if observations.history.take(&shared.exchange, &mut spare, !keeps_nothing, read) {
            published.publish(shared);
        }
        if keeps_nothing {
            continue;
        }
        if let Some(switches) = &mut switches {
            switches.read(shared);
        }
        if StdInstant::now() >= next {
            let began = StdInstant::now();
            observations.add(sampler.sample(shared));
            next = began + (began.elapsed() * SAMPLE_COSTS).max(SAMPLE_INTERVAL);
        }
    }
    if keeps_nothing {
        return observations;
    }
    observations.add(sampler.sample(shared));
    observations.history.take(&shared.exchange, &mut spare, true, |_| {});
    if let Some(mut switches) = switches {
        switches.read(shared);
        observations.occupants = switches.into_occupants();
    }
    observations
}

/// What units were delivered so far, as others may read it.
struct Published {
    deliveries: Deliveries,
    /// By number, whose delivery it is.
    counters: Vec<Arc<UnitCounters>>,
}

impl Published {
    fn new() -> Published {
        Published { deliveries: Deliveries::within((0, u64::MAX)), counters: Vec::new() }
    }

    /// Publishes it, and learns of budgets for what comes.
    fn publish(&mut self, shared: &Shared) {
        // Without the lock from here on: enforcers take it.
        let known = shared.known().clone();
        for (number, unit) in known.iter().enumerate() {
            match self.counters.get_mut(number) {
                None => self.counters.push(unit.counters.clone()),
                Some(before) if !Arc::ptr_eq(before, &unit.counters) => {
                    *before = unit.counters.clone();
                    self.deliveries.forget(number);
                }
                Some(_) => {}
            }
        }
        for (unit, delivery) in known.iter().zip(self.deliveries.by_unit()) {
            unit.counters.set_delivery(delivery);
        }
        for (number, unit) in known.iter().enumerate() {
            self.deliveries.set_budget(number, unit.budget);
        }
    }
}

impl Observations {
    fn add(&mut self, sample: Option<Sample>) {
        let Some(sample) = sample else { return };
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }
}

/// Processor time and time of waiting of a thread so far.
type Times = (u64, u64);

/// Takes samples, each of the time since the one before.
struct Sampler {
    processors: Vec<usize>,
    before: Option<(u64, Vec<Load>)>,
    threads: HashMap<i32, Times>,
    own: i32,
    serving: Arc<Serving>,
}

impl Sampler {
    fn new(processors: Vec<usize>, serving: Arc<Serving>) -> Sampler {
        let own = std::process::id() as i32;
        Sampler { processors, before: None, threads: HashMap::new(), own, serving }
    }

    /// `None` the first time, and where `/proc` cannot be read.
    fn sample(&mut self, shared: &Shared) -> Option<Sample> {
        let loads = load::loads(&self.processors).ok()?;
        let until_ns = now().as_ns();
        let is_first = self.before.is_none();
        let (foreign, helpers) = self.scan(shared, is_first);
        let (from_ns, before) = self.before.replace((until_ns, loads.clone()))?;
        let loads = loads.into_iter().zip(before).map(|(now, before)| now - before).collect();
        Some(Sample { from_ns, until_ns, loads, foreign, helpers })
    }

    /// Reads the account of every thread of the machine that is neither a unit nor an enforcer.
    fn scan(&mut self, shared: &Shared, is_first: bool) -> (Vec<Foreign>, Vec<Helper>) {
        let Units { threads: units, processes } = Units::of(shared);
        let serving = self.serving.threads();
        let (mut foreign, mut helpers, mut seen) = (Vec::new(), Vec::new(), HashMap::new());
        for process in proc::processes().unwrap_or_default() {
            for thread in proc::threads(process).unwrap_or_default() {
                let Some(times) = times_of(process, thread).filter(|_| !units.contains(&thread)) else {
                    continue;
                };
                if process == self.own && proc::name(thread).is_ok_and(|name| name.starts_with(NAME)) {
                    continue;
                }
                seen.insert(thread, times);
                let before = self.threads.get(&thread).copied();
                let (ran, waited) = match before {
                    Some(before) => (times.0.saturating_sub(before.0), times.1.saturating_sub(before.1)),
                    None if is_first => continue,
                    None => times,
                };
                if ran == 0 && waited == 0 {
                    continue;
                }
                let name = || proc::name(thread).unwrap_or_default();
                if ran > 0
                    && let Some((processor, is_real_time)) = self.place_of(process, thread)
                {
                    let name = vmm::shown_name(Path::new("/proc"), thread as u32, &name());
                    foreign.push(Foreign { processor, name, ran_ns: ran, is_real_time });
                }
                if let Some(serves) = serving.iter().find(|serves| serves.thread == thread) {
                    let (units, name) = (serves.units.clone(), serves.name.clone());
                    helpers.push(Helper { units, name, busy_ns: ran + waited });
                } else if let Some(units) = processes.get(&process) {
                    helpers.push(Helper { units: units.clone(), name: name(), busy_ns: ran + waited });
                }
            }
        }
        self.threads = seen;
        (foreign, helpers)
    }

    /// The place in the pool of the processor on which the thread was last, and whether it is a real-time
    /// one; `None` where the processor is not the pool's.
    fn place_of(&self, process: i32, thread: i32) -> Option<(usize, bool)> {
        let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/stat")).ok()?;
        let processor = proc::parse_processor(&text)?;
        let is_real_time = proc::parse_rt_priority(&text)? > 0;
        Some((self.processors.iter().position(|known| *known == processor)?, is_real_time))
    }
}

/// The threads of all units, and the units of each process that has vCPUs.
struct Units {
    threads: HashSet<i32>,
    processes: HashMap<i32, Vec<String>>,
}

impl Units {
    fn of(shared: &Shared) -> Units {
        // Without the lock from here on: enforcers take it.
        let members = shared.units().clone();
        let mut units = Units { threads: HashSet::new(), processes: HashMap::new() };
        for unit in members {
            if unit.counters.is_crowd.load(Ordering::Relaxed) {
                continue;
            }
            units.threads.extend(unit.threads());
            if let UnitThreads::Thread(thread) = unit.kind()
                && let Ok(process) = proc::process_of(thread.id)
            {
                units.processes.entry(process).or_default().push(unit.name);
            }
        }
        units
    }
}

fn times_of(process: i32, thread: i32) -> Option<Times> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/schedstat")).ok()?;
    let stat = proc::parse_schedstat(&text)?;
    Some((stat.ran.as_ns(), stat.waited.as_ns()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_ran_between_two_samples_is_named_with_its_time() {
        let shared = Shared::new(1).expect("events");
        let processors: Vec<usize> = punctual_linux::preflight::online();
        let mut sampler = Sampler::new(processors, Arc::default());
        // Threads are asked after the sample's time is read, one after the other.
        let all = StdInstant::now();
        assert_eq!(sampler.sample(&shared), None);
        let began = StdInstant::now();
        let mut count = 0u64;
        while began.elapsed() < StdDuration::from_millis(30) {
            count = std::hint::black_box(count + 1);
        }
        let sample = sampler.sample(&shared).expect("the second");
        let all_ns = all.elapsed().as_nanos();
        let me = proc::name(rustix::thread::gettid().as_raw_nonzero().get()).expect("a name");
        let mine: u64 = sample.foreign.iter().filter(|f| f.name == me).map(|f| f.ran_ns).sum();
        assert!(mine > 0 && u128::from(mine) <= all_ns, "{sample:?}");
    }
}
