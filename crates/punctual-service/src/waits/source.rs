//! Where events come from: the best source that the machine permits.
//!
//! | source | sees | needs |
//! |---|---|---|
//! | bpf | the same, added up in the kernel: `sums.rs` | CAP_BPF, CAP_PERFMON, BTF |
//! | tracepoints | switches and why, wake-ups, names of threads that have ended | CAP_PERFMON, tracefs |
//! | switches | switches; wake-ups are inferred from `schedstat` | CAP_PERFMON |
//! | samples | what each thread ran and waited in a second | nothing |
//!
//! A [`Source`] hands over events, which the accountant adds up. Programs in the kernel (BPF) add up
//! themselves: [`Sums`].

use std::fmt::Debug;
use std::fs;
use std::io;
use std::path::Path;

use punctual_linux::os::switches::{self, SwitchReader};
use punctual_linux::os::tracepoints::{self, SchedReader, Tracepoints};

use super::account::{Event, Left, Off};
use super::sums::{self, Sums};

/// Of this machine.
const PROC: &str = "/proc";

/// What hands over events.
pub(crate) trait Source: Debug {
    /// Hands over the events up to `until_ns`, in the order of time.
    fn drain(&mut self, until_ns: u64, take: &mut dyn FnMut(Event));

    /// How often records were lost.
    fn lost(&self) -> u64;
}

/// Which source it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bpf,
    Tracepoints,
    Switches,
    Samples,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Bpf => "bpf",
            Kind::Tracepoints => "tracepoints",
            Kind::Switches => "switches",
            Kind::Samples => "samples",
        }
    }
}

/// What tells.
#[derive(Debug)]
pub(crate) enum Reader {
    Events(Box<dyn Source>),
    Sums(Box<Sums>),
    /// Samples, which are no events.
    Nothing,
}

/// The source that was opened.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) kind: Kind,
    pub(crate) reader: Reader,
    /// Why it is no better one.
    pub(crate) reason: Option<String>,
}

impl Opened {
    pub(crate) fn events(&mut self) -> Option<&mut (dyn Source + 'static)> {
        if let Reader::Events(source) = &mut self.reader { Some(source.as_mut()) } else { None }
    }

    pub(crate) fn sums(&mut self) -> Option<&mut Sums> {
        if let Reader::Sums(sums) = &mut self.reader { Some(sums) } else { None }
    }

    /// Why it is not counted how often vCPUs spin, where the source is one that could.
    pub(crate) fn no_spins(&self) -> Option<&str> {
        if let Reader::Sums(sums) = &self.reader { sums.no_spins() } else { None }
    }

    /// How often records were lost.
    pub(crate) fn lost(&self) -> u64 {
        match &self.reader {
            Reader::Events(source) => source.lost(),
            Reader::Sums(sums) => sums.lost(),
            Reader::Nothing => 0,
        }
    }
}

/// Opens the best source for these processors that the machine permits and that is no better than `best`.
pub(crate) fn open(best: Kind, processors: &[usize]) -> Opened {
    let mut reasons = Vec::new();
    let opened = |kind, reader, reasons: &[String]| {
        let reason = (!reasons.is_empty()).then(|| reasons.join("; "));
        Opened { kind, reader, reason }
    };
    if best == Kind::Bpf {
        match summed() {
            Ok(sums) => return opened(best, Reader::Sums(Box::new(sums)), &reasons),
            Err(error) => reasons.push(format!("no BPF: {error}")),
        }
    }
    if matches!(best, Kind::Bpf | Kind::Tracepoints) {
        match Traced::open(processors) {
            Ok(source) => {
                return opened(Kind::Tracepoints, Reader::Events(Box::new(source)), &reasons);
            }
            Err(error) => reasons.push(format!("no tracepoints: {error}")),
        }
    }
    if best != Kind::Samples {
        match Switched::open(processors) {
            Ok(source) => return opened(Kind::Switches, Reader::Events(Box::new(source)), &reasons),
            Err(error) => reasons.push(format!("no records of switches: {error}")),
        }
    }
    opened(Kind::Samples, Reader::Nothing, &reasons)
}

/// Loads the programs that add up.
fn summed() -> io::Result<Sums> {
    known_ids(Path::new(PROC))?;
    let loaded = punctual_waits_bpf::Loaded::load(&sums::settings()).map_err(io::Error::other)?;
    Ok(Sums::new(Box::new(loaded)))
}

/// An error unless the ids of threads here are those of the kernel.
pub(crate) fn known_ids(proc: &Path) -> io::Result<()> {
    // PROC_PID_INIT_INO in Linux `include/linux/proc_ns.h`.
    let namespace = fs::read_link(proc.join("self/ns/pid"));
    if namespace.is_ok_and(|name| name.as_os_str() == "pid:[4026531836]") {
        return Ok(());
    }
    Err(io::Error::other("ids of threads differ from the kernel's in this PID namespace"))
}

/// Events of several processors, that are put in the order of time.
#[derive(Debug, Default)]
struct Merged {
    events: Vec<Event>,
    lost: u64,
}

impl Merged {
    fn hand_over(&mut self, until_ns: u64, take: &mut dyn FnMut(Event)) {
        // Each processor's are in order already, which this sort makes use of.
        self.events.sort_by_key(Event::at_ns);
        let end = self.events.partition_point(|event| event.at_ns() <= until_ns);
        self.events.drain(..end).for_each(take);
    }
}

#[derive(Debug)]
struct Traced {
    readers: Vec<(u32, SchedReader)>,
    merged: Merged,
}

impl Traced {
    fn open(processors: &[usize]) -> io::Result<Traced> {
        known_ids(Path::new(PROC))?;
        let tracepoints = Tracepoints::find()?;
        let open = |&processor: &usize| Ok((processor as u32, SchedReader::open(&tracepoints, processor)?));
        let readers = processors.iter().map(open).collect::<io::Result<_>>()?;
        Ok(Traced { readers, merged: Merged::default() })
    }
}

impl Source for Traced {
    fn drain(&mut self, until_ns: u64, take: &mut dyn FnMut(Event)) {
        let Merged { events, lost } = &mut self.merged;
        for (processor, reader) in &mut self.readers {
            let (processor, mut last_ns) = (*processor, 0);
            reader.read(|record| {
                let event = match record {
                    tracepoints::Record::Switch { at_ns, from, from_name, state, to } => {
                        last_ns = at_ns;
                        let left = left(state);
                        Event::Switch { at_ns, processor, from, from_name, left, to }
                    }
                    tracepoints::Record::Wake { at_ns, thread, processor } => {
                        Event::Wake { at_ns, processor, thread }
                    }
                    tracepoints::Record::LostSwitches => {
                        *lost += 1;
                        Event::Lost { at_ns: last_ns, processor }
                    }
                    tracepoints::Record::LostWakes => {
                        *lost += 1;
                        return;
                    }
                };
                events.push(event);
            });
        }
        self.merged.hand_over(until_ns, take);
    }

    fn lost(&self) -> u64 {
        self.merged.lost
    }
}

fn left(state: tracepoints::State) -> Left {
    match state {
        tracepoints::State::Ready => Left::Ready,
        tracepoints::State::Asleep => Left::Off(Off::Asleep),
        tracepoints::State::Blocked => Left::Off(Off::Blocked),
        tracepoints::State::Stopped => Left::Off(Off::Stopped),
        tracepoints::State::Ended => Left::Ended,
    }
}

#[derive(Debug)]
struct Switched {
    /// By processor: its number, and who has it.
    readers: Vec<(u32, Option<u32>, SwitchReader)>,
    merged: Merged,
}

impl Switched {
    fn open(processors: &[usize]) -> io::Result<Switched> {
        let open = |&processor: &usize| Ok((processor as u32, None, SwitchReader::open(processor)?));
        let readers = processors.iter().map(open).collect::<io::Result<_>>()?;
        Ok(Switched { readers, merged: Merged::default() })
    }
}

impl Source for Switched {
    fn drain(&mut self, until_ns: u64, take: &mut dyn FnMut(Event)) {
        for (processor, occupant, reader) in &mut self.readers {
            let (processor, mut last_ns) = (*processor, 0);
            for record in reader.by_ref() {
                let event = match record {
                    switches::Record::Switch { at_ns, from, preempted, to } => {
                        let [from, to] = [from, to].map(i32::cast_unsigned);
                        last_ns = at_ns;
                        // A switch is told twice, by the thread that leaves and by the one that comes.
                        if occupant.replace(to) == Some(to) {
                            continue;
                        }
                        let is_ready = preempted == Some(true);
                        let left = if is_ready { Left::Ready } else { Left::Off(Off::Asleep) };
                        Event::Switch { at_ns, processor, from, from_name: [0; 16], left, to }
                    }
                    switches::Record::Lost => {
                        self.merged.lost += 1;
                        *occupant = None;
                        Event::Lost { at_ns: last_ns, processor }
                    }
                };
                self.merged.events.push(event);
            }
        }
        self.merged.hand_over(until_ns, take);
    }

    fn lost(&self) -> u64 {
        self.merged.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_processors_are_merged_and_those_of_the_future_wait() {
        let wake = |at_ns, processor| Event::Wake { at_ns, processor, thread: 1 };
        let mut merged = Merged { events: vec![wake(1, 0), wake(9, 0), wake(2, 1), wake(5, 1)], lost: 0 };
        let mut taken = Vec::new();
        merged.hand_over(5, &mut |event| taken.push(event.at_ns()));
        assert_eq!(taken, [1, 2, 5]);
        merged.hand_over(9, &mut |event| taken.push(event.at_ns()));
        assert_eq!(taken, [1, 2, 5, 9]);
    }

    #[test]
    fn samples_are_left_where_nothing_else_is_wanted() {
        let opened = open(Kind::Samples, &[0]);
        assert_eq!((opened.kind, opened.reason), (Kind::Samples, None));
        assert!(matches!(opened.reader, Reader::Nothing));
    }
}
