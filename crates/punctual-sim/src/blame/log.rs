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

pub(super) struct Entry<T> {
    pub at: Instant,
    /// The entry of the same thing before.
    before: u32,
    pub what: T,
}

#[derive(Clone)]
struct Thing {
    last: u32,
    /// Where the explanation of this number has read it.
    read_in: u32,
    read: u32,
}

const NO_ENTRY: u32 = u32::MAX;

impl<T: Copy> Log<T> {
    pub(super) fn new(things: usize) -> Self {
        let nothing = Thing { last: NO_ENTRY, read_in: 0, read: NO_ENTRY };
        Log { entries: Vec::new(), things: vec![nothing; things] }
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

    /// The latest entry about it.
    #[inline]
    pub(super) fn last(&self, thing: usize) -> Option<&Entry<T>> {
        self.entries.get(self.things[thing].last as usize)
    }

    /// The last entry about it from before then. An explanation asks from the latest to the earliest.
    #[inline]
    pub(super) fn before(&mut self, explanation: u32, thing: usize, until: Instant) -> Option<&Entry<T>> {
        let place = self.things[thing].place(explanation);
        while let Some(entry) = self.entries.get(*place as usize)
            && entry.at >= until
        {
            *place = entry.before;
        }
        self.entries.get(*place as usize)
    }

    /// Has anything been written about it?
    #[inline]
    pub(super) fn knows(&self, thing: usize) -> bool {
        self.things.get(thing).is_some_and(|thing| thing.last != NO_ENTRY)
    }

    /// What the thing was at from `from` until `until`, piece by piece, from the latest to the earliest. An
    /// explanation reads everything in this order.
    #[inline]
    pub(super) fn pieces(
        &mut self,
        explanation: u32,
        thing: usize,
        from: Instant,
        until: Instant,
    ) -> Pieces<'_, T> {
        let entries = &self.entries;
        Pieces { entries, read: self.things[thing].place(explanation), from, until }
    }

    /// The last of [`Log::pieces`]: when it ends, and what the thing was at. `until` moves to its begin.
    #[inline]
    pub(super) fn read(
        &mut self,
        explanation: u32,
        thing: usize,
        from: Instant,
        until: &mut Instant,
    ) -> Option<(Instant, T)> {
        let (begin, end, what) = self.pieces(explanation, thing, from, *until).next()?;
        *until = begin;
        Some((end, what))
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

impl Thing {
    /// The entry that the explanation has come to.
    #[inline]
    fn place(&mut self, explanation: u32) -> &mut u32 {
        if self.read_in != explanation {
            self.read_in = explanation;
            self.read = self.last;
        }
        &mut self.read
    }
}

/// What one thing was at in a span of time, from the latest piece to the earliest.
pub(super) struct Pieces<'a, T> {
    entries: &'a [Entry<T>],
    read: &'a mut u32,
    from: Instant,
    until: Instant,
}

impl<T: Copy> Iterator for Pieces<'_, T> {
    /// From when until when, and what.
    type Item = (Instant, Instant, T);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.until <= self.from {
            return None;
        }
        loop {
            let entry = self.entries.get(*self.read as usize)?;
            if entry.at > self.from {
                *self.read = entry.before;
            }
            if entry.at < self.until {
                let begin = entry.at.max(self.from);
                return Some((begin, std::mem::replace(&mut self.until, begin), entry.what));
            }
        }
    }
}
