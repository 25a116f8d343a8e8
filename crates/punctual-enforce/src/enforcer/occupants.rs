//! Which threads that are no units had the pool's processors, to the nanosecond: from context switches.
//!
//! The observer reads the switches some milliseconds later and asks then what a thread is. One that has ended
//! by then, and was never asked for before, has no name.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

use crate::spans::Span;

use super::shared::{NAME, Shared, UnitMembers};
use crate::unit::HIGHEST;
use punctual_linux::os::switches::{Record, SwitchReader};
use punctual_linux::os::{cgroup, proc, sched};
use punctual_linux::vmm;

/// Spans that are kept of a processor: 24 MiB.
const SPANS_MAX: usize = 1024 * 1024;

/// A thread that is neither a unit's nor an enforcer, and had a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupant<'a> {
    /// When.
    pub span: Span,
    /// Its name.
    pub name: &'a str,
    /// Is it more urgent than every unit?
    pub is_above: bool,
}

/// Who else had a processor.
#[derive(Clone, Debug, Default)]
pub struct Occupants {
    /// In order of time: when, the number of the name, whether it is above all units.
    spans: VecDeque<(Span, u32, bool)>,
    names: Vec<String>,
}

impl Occupants {
    /// Those that had the processor within a span, in order of time.
    pub fn within(&self, span: Span) -> impl Iterator<Item = Occupant<'_>> {
        let first = self.spans.partition_point(|(known, ..)| known.1 <= span.0);
        let of_span = self.spans.range(first..).take_while(move |(known, ..)| known.0 < span.1);
        of_span.map(move |&((from, until), name, is_above)| Occupant {
            span: (from.max(span.0), until.min(span.1)),
            name: &self.names[name as usize],
            is_above,
        })
    }

    /// Adds one that comes after all others.
    pub fn push(&mut self, occupant: Occupant<'_>) {
        let known = self.names.iter().position(|known| known == occupant.name);
        let number = known.unwrap_or_else(|| {
            self.names.push(occupant.name.to_owned());
            self.names.len() - 1
        });
        if self.spans.len() == SPANS_MAX {
            self.spans.pop_front();
        }
        self.spans.push_back((occupant.span, number as u32, occupant.is_above));
    }
}

/// What a thread is that had a processor.
#[derive(Clone, Debug)]
enum Kind {
    /// A unit's, an enforcer, or the idle thread.
    Known,
    /// Another one.
    Foreign { name: String, is_above: bool },
}

/// Reads the switches of a pool's processors.
pub(super) struct Reader {
    /// Where cgroup version 2 is.
    mount: PathBuf,
    processors: Vec<Processor>,
    /// What threads were when they were asked for last: those that have ended since, too.
    known: HashMap<i32, Kind>,
}

/// Threads that are remembered at most.
const KNOWN_MAX: usize = 16 * 1024;

struct Processor {
    switches: SwitchReader,
    /// Who has it, and since when; unknown after records were lost.
    occupant: Option<(u64, i32)>,
    occupants: Occupants,
}

impl Reader {
    /// Of these processors, from now on.
    ///
    /// # Errors
    /// As [`SwitchReader::open`]; cgroup version 2 is not mounted.
    pub(super) fn open(processors: &[usize]) -> io::Result<Reader> {
        let open = |processor: &usize| {
            let switches = SwitchReader::open(*processor)?;
            Ok(Processor { switches, occupant: None, occupants: Occupants::default() })
        };
        let processors = processors.iter().map(open).collect::<io::Result<_>>()?;
        Ok(Reader { mount: cgroup::mount()?, processors, known: HashMap::new() })
    }

    /// Takes the switches since the last call.
    pub(super) fn read(&mut self, shared: &Shared) {
        if self.known.len() > KNOWN_MAX {
            self.known.clear();
        }
        // Asked once in each call: an id may be another thread's by the next, and a thread a unit.
        let mut asked: HashSet<i32> = HashSet::new();
        // Without the lock from here on: enforcers take it.
        let units = shared.units().clone();
        for processor in &mut self.processors {
            processor.read(|tid| {
                if asked.insert(tid)
                    && let Some(kind) = kind_of(tid, &units, &self.mount)
                {
                    self.known.insert(tid, kind);
                }
                self.known.get(&tid).cloned()
            });
        }
    }

    /// By processor, who had it.
    pub(super) fn into_occupants(self) -> Vec<Occupants> {
        self.processors.into_iter().map(|processor| processor.occupants).collect()
    }
}

impl Processor {
    fn read(&mut self, mut kind_of: impl FnMut(i32) -> Option<Kind>) {
        for record in &mut self.switches {
            let next = match record {
                Record::Switch { at_ns, to, .. } => Some((at_ns, to)),
                Record::Lost => None,
            };
            // A switch is told twice.
            if let (Some((_, tid)), Some((_, to))) = (self.occupant, next)
                && tid == to
            {
                continue;
            }
            let before = std::mem::replace(&mut self.occupant, next);
            if let (Some((from, tid)), Some((until, _))) = (before, next)
                && let Some(Kind::Foreign { name, is_above }) = kind_of(tid)
            {
                self.occupants.push(Occupant { span: (from, until), name: &name, is_above });
            }
        }
    }
}

/// What a thread is; `None` for one that has ended.
fn kind_of(tid: i32, units: &[UnitMembers], mount: &Path) -> Option<Kind> {
    if tid == 0 {
        return Some(Kind::Known);
    }
    let group = cgroup::below(mount, &cgroup::group_of(tid).ok()?);
    let name = proc::name(tid).ok()?;
    let is_known = name.starts_with(NAME) || units.iter().any(|unit| unit.has(tid, &group));
    if is_known {
        return Some(Kind::Known);
    }
    let attributes = sched::attributes(tid).ok()?;
    let is_above = match attributes.policy {
        sched::FIFO | sched::RR => attributes.priority > HIGHEST,
        policy => policy == sched::DEADLINE,
    };
    Some(Kind::Foreign { name: vmm::shown_name(Path::new("/proc"), tid as u32, &name), is_above })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_had_a_processor_within_a_span_is_cut_to_it() {
        let mut occupants = Occupants::default();
        let occupant = |span, name| Occupant { span, name, is_above: name == "a" };
        for (span, name) in [((10, 20), "a"), ((30, 40), "b"), ((50, 60), "a")] {
            occupants.push(occupant(span, name));
        }
        let within = |span: Span| occupants.within(span).collect::<Vec<_>>();
        assert_eq!(within((15, 35)), [occupant((15, 20), "a"), occupant((30, 35), "b")]);
        assert_eq!(within((40, 50)), []);
        assert_eq!(within((0, 100)).len(), 3);
    }

    #[test]
    fn the_switches_of_this_machine_name_this_thread() {
        let processors = punctual_linux::preflight::online();
        let Ok(mut reader) = Reader::open(&processors) else {
            eprintln!("skipped: context switches cannot be read here (perf_event_open)");
            return;
        };
        let shared = Shared::new(1).expect("events");
        let me = proc::name(rustix::thread::gettid().as_raw_nonzero().get()).expect("a name");
        let mut count = 0u64;
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(1));
            (0..100_000u64).for_each(|n| count = std::hint::black_box(count + n));
        }
        reader.read(&shared);
        let occupants = reader.into_occupants();
        let mine = |of: &Occupants| of.within((0, u64::MAX)).filter(|occupant| occupant.name == me).count();
        assert!(occupants.iter().map(mine).sum::<usize>() >= 10, "{me}: {occupants:?}");
    }
}
