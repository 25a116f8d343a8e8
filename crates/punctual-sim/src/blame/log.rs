//! What things were at, written down as it changes, and read from the latest to the earliest.

use punctual_sched::Instant;

use crate::observe::{Occupant, ProcessorIx};

/// What a waiting unit looks at: a processor, or several of them, of which the first that executes a unit
/// counts. The views of single processors come first, as the processors are numbered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ViewIx(pub u32);

/// The processor that counts in a view, and what it does.
#[derive(Clone, Copy)]
pub(super) struct Sight {
    pub processor: ProcessorIx,
    pub occupant: Occupant,
}

/// What each of several things was at, one after the other: an entry holds until the next of the same thing.
pub(super) struct Log<T> {
    entries: Vec<Entry<T>>,
    things: Vec<Thing>,
}

struct Entry<T> {
    at: Instant,
    /// The entry of the same thing before.
    before: u32,
    what: T,
}

#[derive(Clone, Copy)]
struct Thing {
    last: u32,
    /// Where the explanation of this number has read it.
    read_in: u32,
    read: u32,
}

const NO_ENTRY: u32 = u32::MAX;

impl<T: Copy> Log<T> {
    /// With room for this many entries: to make room bit by bit copies all of them again and again.
    pub(super) fn new(things: usize, room: usize) -> Self {
        let nothing = Thing { last: NO_ENTRY, read_in: 0, read: NO_ENTRY };
        Log { entries: Vec::with_capacity(room), things: vec![nothing; things] }
    }

    /// How many entries it has.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// One thing more.
    pub(super) fn add(&mut self) {
        self.things.push(Thing { last: NO_ENTRY, read_in: 0, read: NO_ENTRY });
    }

    #[inline]
    pub(super) fn write(&mut self, thing: usize, at: Instant, what: T) {
        let before = std::mem::replace(&mut self.things[thing].last, self.entries.len() as u32);
        self.entries.push(Entry { at, before, what });
    }

    /// What it is at.
    #[inline]
    pub(super) fn last(&self, thing: usize) -> Option<T> {
        self.entries.get(self.things[thing].last as usize).map(|entry| entry.what)
    }

    /// Has anything been written about it?
    #[inline]
    pub(super) fn knows(&self, thing: usize) -> bool {
        self.things.get(thing).is_some_and(|thing| thing.last != NO_ENTRY)
    }

    /// What the thing was at from `from` until `until`. An explanation reads everything from the latest to
    /// the earliest, and goes on where it has [left](Log::leave) a thing.
    #[inline]
    pub(super) fn read(&self, explanation: u32, thing: usize, from: Instant, until: Instant) -> Pieces {
        let Thing { last, read_in, read } = self.things[thing];
        Pieces { place: if read_in == explanation { read } else { last }, from, until }
    }

    /// The explanation has read this far.
    #[inline]
    pub(super) fn leave(&mut self, explanation: u32, thing: usize, pieces: &Pieces) {
        let thing = &mut self.things[thing];
        (thing.read_in, thing.read) = (explanation, pieces.place);
    }

    pub(super) fn forget(&mut self) {
        let mut kept = Vec::new();
        for thing in self.things.iter_mut().filter(|thing| thing.last != NO_ENTRY) {
            let Entry { at, what, .. } = self.entries[thing.last as usize];
            thing.last = kept.len() as u32;
            kept.push(Entry { at, before: NO_ENTRY, what });
        }
        self.entries.clear();
        self.entries.append(&mut kept);
    }
}

/// What one thing was at in a span of time, from the latest piece to the earliest. It borrows nothing, for
/// what a piece says leads to other things of the same log.
pub(super) struct Pieces {
    /// The entry that comes next.
    place: u32,
    from: Instant,
    /// What has been read begins here.
    pub until: Instant,
}

impl Pieces {
    /// From when until when, and what.
    #[inline]
    pub(super) fn next<T: Copy>(&mut self, log: &Log<T>) -> Option<(Instant, Instant, T)> {
        if self.until <= self.from {
            return None;
        }
        loop {
            let entry = log.entries.get(self.place as usize)?;
            if entry.at > self.from {
                self.place = entry.before;
            }
            if entry.at < self.until {
                let begin = entry.at.max(self.from);
                return Some((begin, std::mem::replace(&mut self.until, begin), entry.what));
            }
        }
    }
}
