//! Who had the processors in the last minutes: a ring of seconds of a fixed size.
//!
//! With each sample of the counters comes one moment. Where events are read, VMs' times on a processor are
//! those that the accountant of waits counts. Of units, and of VMs without events, threads that ran for a
//! notable part of the interval are looked up, and their time counts where they ran last. `/proc/stat` says
//! what a processor did besides.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use punctual_linux::os::load::{self, Load};
use punctual_linux::os::proc::parse_processor;
use punctual_linux::preflight;
use serde::{Deserialize, Serialize};

use crate::registry::Registry;
use crate::sample::Sampled;
use crate::waits::{Waits, short};

/// Moments that are kept: five minutes of them, with a sample a second.
pub const MOMENTS: usize = 300;
/// Processors at most.
const PROCESSORS_MAX: usize = 256;
/// VMs and units of each processor and moment; the time of those that had it for less is one sum.
const ACTORS_MAX: usize = 4;
/// Names that are kept; the time of others counts as that of those that had the processor for less.
const NAMES_MAX: usize = 512;
/// Processors in all moments of an answer, which is shorter than what a client may leave unread then.
const USES_MAX: usize = 2048;
/// A thread that ran for less of an interval, in percent, is not looked up.
const NOTABLE_PERCENT: u64 = 2;
/// Threads that are looked up in each sample.
const LOOKED_UP_MAX: usize = 64;
/// Names are examined so often, in moments.
const NAMES_EVERY: u64 = 64;

/// What a processor did in a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    idle_us: u32,
    stolen_us: u32,
    /// Of VMs and units beyond `actors`.
    more_us: u32,
    /// By process, the longest first; 0 is nobody.
    actors: [(u32, u32); ACTORS_MAX],
}

/// When a moment was.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    /// Its end, in us since 1970.
    at_us: u64,
    length_us: u32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct History {
    proc: PathBuf,
    processors: Vec<usize>,
    /// Are they those of pools?
    are_of_pools: bool,
    /// The last sample, and what the processors had done by then.
    before: Option<(Instant, Vec<Load>)>,
    moments: VecDeque<Moment>,
    /// A row for each processor of each moment; as many moments as there are in `moments`.
    uses: VecDeque<Use>,
    /// The number of the last moment.
    number: u64,
    /// What VMs and units are called, and the moment in which each had a processor last.
    names: BTreeMap<u32, (Box<str>, u64)>,
    /// By processor and process, how long it had the processor since the last sample, in ns.
    ran: Vec<(u32, u32, u64)>,
}

impl History {
    pub(crate) fn new(proc: &Path) -> History {
        History {
            proc: proc.to_owned(),
            processors: Vec::new(),
            are_of_pools: false,
            before: None,
            moments: VecDeque::with_capacity(MOMENTS),
            uses: VecDeque::new(),
            number: 0,
            names: BTreeMap::new(),
            ran: Vec::new(),
        }
    }

    /// Takes what happened since the last call; to be called when the counters of all threads were read.
    pub(crate) fn sample(&mut self, registry: &Registry, waits: &mut Waits) {
        self.choose_processors(registry);
        let ran = &mut self.ran;
        ran.clear();
        let has_events = waits.take_used(|processor, vm, ns| ran.push((processor, vm, ns)));
        let loads = load::loads(&self.processors).unwrap_or_default();
        let Some((before, loads_before)) = self.before.replace((Instant::now(), loads)) else { return };
        let length = before.elapsed();
        self.look_up(registry, has_events, length);
        sum_up(&mut self.ran);
        let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_us = u64::try_from(real.as_micros()).unwrap_or(u64::MAX);
        let length_us = u32::try_from(length.as_micros()).unwrap_or(u32::MAX);
        self.push(Moment { at_us, length_us });
        for index in 0..self.processors.len() {
            let after = self.before.as_ref().and_then(|(_, loads)| loads.get(index)).copied();
            let did = after.zip(loads_before.get(index).copied()).map(|(after, before)| after - before);
            let row = self.row(self.processors[index] as u32, did.unwrap_or_default(), length_us, registry);
            self.uses.push_back(row);
        }
        if self.number.is_multiple_of(NAMES_EVERY) {
            let (number, kept) = (self.number, MOMENTS as u64);
            self.names.retain(|_, (_, last)| *last + kept > number);
        }
    }

    /// Those of pools; all if there is no pool. With others than before the history begins again.
    fn choose_processors(&mut self, registry: &Registry) {
        let of_pools = || registry.config().pools.iter().flat_map(|pool| pool.processors.iter().copied());
        let has_pools = of_pools().next().is_some();
        let has_same = if has_pools {
            of_pools().take(PROCESSORS_MAX).eq(self.processors.iter().copied())
        } else {
            !self.processors.is_empty()
        };
        if has_same && has_pools == self.are_of_pools {
            return;
        }
        self.are_of_pools = has_pools;
        self.processors = if has_pools { of_pools().collect() } else { preflight::online() };
        self.processors.truncate(PROCESSORS_MAX);
        self.before = None;
        self.moments.clear();
        self.uses = VecDeque::with_capacity(MOMENTS * self.processors.len());
    }

    /// Makes room for the rows of a moment.
    fn push(&mut self, moment: Moment) {
        if self.moments.len() == MOMENTS {
            self.moments.pop_front();
            self.uses.drain(..self.processors.len());
        }
        self.moments.push_back(moment);
        self.number += 1;
    }

    /// Adds what threads of units ran, and those of VMs of which no events tell.
    fn look_up(&mut self, registry: &Registry, has_events: bool, length: Duration) {
        let least_ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX) / 100 * NOTABLE_PERCENT;
        let actors = registry.actors().filter(|actor| !has_events || actor.is_group());
        let threads = actors.flat_map(|actor| {
            let ran = |one: &Sampled| Some((one.thread.tid, one.recent?.ran.as_ns()));
            let threads = actor.threads.list().iter().filter_map(ran);
            threads.filter(|(_, ns)| *ns >= least_ns).map(|(tid, ns)| (ns, actor.process, tid))
        });
        let mut threads: Vec<(u64, u32, u32)> = threads.collect();
        threads.sort_unstable_by(|a, b| b.cmp(a));
        for (ns, process, tid) in threads.into_iter().take(LOOKED_UP_MAX) {
            let stat = std::fs::read_to_string(self.proc.join(format!("{tid}/task/{tid}/stat")));
            if let Some(processor) = stat.ok().and_then(|stat| parse_processor(&stat)) {
                self.ran.push((processor as u32, process, ns));
            }
        }
    }

    /// What a processor did, from what its times say and who ran there.
    fn row(&mut self, processor: u32, did: Load, length_us: u32, registry: &Registry) -> Use {
        let us = |ns: u64| u32::try_from(ns / 1000).unwrap_or(u32::MAX);
        let stolen_us = us(did.steal_ns).min(length_us);
        let mut row = Use { stolen_us, ..Use::default() };
        let mut left_us = length_us - stolen_us;
        let mut places = row.actors.len();
        for index in 0..self.ran.len() {
            let (at, process, ns) = self.ran[index];
            if at != processor {
                continue;
            }
            // Where a thread ran last, it may have run less.
            let ran_us = us(ns).min(left_us);
            left_us -= ran_us;
            if places > 0 && ran_us > 0 && self.is_named(process, registry) {
                row.actors[row.actors.len() - places] = (process, ran_us);
                places -= 1;
            } else {
                row.more_us += ran_us;
            }
        }
        // In ticks: a short time is 0 there, and what VMs ran is known better.
        let is_known = did != Load::default();
        let ran_us = length_us - stolen_us - left_us;
        let other_us = us(did.busy_ns + did.interrupts_ns).saturating_sub(ran_us);
        row.idle_us = if is_known { left_us.saturating_sub(other_us) } else { 0 };
        row
    }

    /// Is the name of this actor kept?
    fn is_named(&mut self, process: u32, registry: &Registry) -> bool {
        let has_room = self.names.len() < NAMES_MAX;
        let known = self.names.get_mut(&process);
        match (known, registry.get(process).map(|actor| short(&actor.name))) {
            (Some((name, last)), actor) => {
                // A later process may have the same number.
                if let Some(other) = actor.filter(|other| **name != **other) {
                    *name = other.into();
                }
                *last = self.number;
                true
            }
            (None, Some(name)) if has_room => {
                self.names.insert(process, (name.into(), self.number));
                true
            }
            (None, _) => false,
        }
    }

    /// The moments after that of this number; as many as fit into an answer, the oldest first.
    pub(crate) fn view(&self, since: u64) -> HistoryView {
        let (count, width) = (self.moments.len(), self.processors.len().max(1));
        let first = self.number - count as u64 + 1;
        // A number from a service before this one may be greater than any here.
        let start = if since > self.number { first } else { first.max(since + 1) };
        let end = (start + (USES_MAX / width).max(1) as u64).min(self.number + 1);
        let mut actors: BTreeMap<u32, &str> = BTreeMap::new();
        let moments = (start..end).map(|number| {
            let index = (number - first) as usize;
            let Moment { at_us, length_us } = self.moments[index];
            let processors = self.processors.iter().enumerate();
            let processors = processors.map(|(column, &processor)| {
                let row = &self.uses[index * width + column];
                for (process, _) in row.actors.iter().filter(|(process, _)| *process != 0) {
                    actors.insert(*process, self.names.get(process).map_or("", |(name, _)| name));
                }
                row.view(processor, length_us)
            });
            MomentView { number, at_us, length_us, processors: processors.collect() }
        });
        let moments: Vec<MomentView> = moments.collect();
        let name = |(process, name): (u32, &str)| NameView { process, name: name.to_owned() };
        HistoryView {
            last: self.number,
            is_complete: end > self.number,
            actors: actors.into_iter().map(name).collect(),
            moments,
        }
    }
}

impl Use {
    fn view(&self, processor: usize, length_us: u32) -> UseView {
        let actors = self.actors.iter().filter(|(process, _)| *process != 0);
        let actors = actors.map(|&(process, run_us)| RunView { process, run_us }).collect::<Vec<_>>();
        let ran_us: u32 = actors.iter().map(|one| one.run_us).sum();
        let other_us = length_us - self.idle_us - self.stolen_us - self.more_us - ran_us;
        let Use { idle_us, stolen_us, more_us, .. } = *self;
        UseView { processor, idle_us, stolen_us, other_us, more_us, actors }
    }
}

/// One sum for each processor and process, the greatest first.
fn sum_up(ran: &mut Vec<(u32, u32, u64)>) {
    ran.sort_unstable_by_key(|&(processor, process, _)| (processor, process));
    ran.dedup_by(|next, first| {
        let is_same = (next.0, next.1) == (first.0, first.1);
        first.2 += if is_same { next.2 } else { 0 };
        is_same
    });
    ran.sort_unstable_by_key(|&(processor, process, ns)| (processor, std::cmp::Reverse(ns), process));
}

/// How long a VM or a unit had a processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunView {
    pub process: u32,
    pub run_us: u32,
}

/// What a processor did in a moment; the times add up to its length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UseView {
    pub processor: usize,
    pub idle_us: u32,
    /// A hypervisor below had it.
    pub stolen_us: u32,
    /// All that is no VM or unit of the service, and interrupts.
    pub other_us: u32,
    /// VMs and units that are not in `actors`.
    pub more_us: u32,
    /// Those that had it longest.
    pub actors: Vec<RunView>,
}

/// About a second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MomentView {
    pub number: u64,
    /// Its end, in us since 1970.
    pub at_us: u64,
    pub length_us: u32,
    pub processors: Vec<UseView>,
}

/// What a VM or a unit is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameView {
    pub process: u32,
    /// Its begin, if it is long.
    pub name: String,
}

/// Who had the processors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryView {
    /// The number of the last moment that there is.
    pub last: u64,
    /// Is it the last one of `moments`, if there are any?
    pub is_complete: bool,
    /// Those in `moments`.
    pub actors: Vec<NameView>,
    /// The oldest first.
    pub moments: Vec<MomentView>,
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
