//! What enforcers saw, look by look, kept for finding out afterwards why jobs were late.
//!
//! An enforcer writes entries into memory that it has already and hands them over by exchanging two vectors,
//! without ever waiting (`Mutex::try_lock`). The pool's observer, a thread on the host's processors, takes
//! them and keeps the last [`ENTRIES_MAX`].

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use punctual_sched::{Duration, Instant};

use crate::driver::Order;

/// Entries that a history has at most: 64 MiB, about ten minutes of a thousand looks a second.
const ENTRIES_MAX: usize = 64 * 1024 * 1024 / size_of::<Entry>();
/// Entries that an enforcer keeps at most until the observer has taken those before.
const WRITTEN_MAX: usize = 32 * 1024;
/// From this many entries on they are handed over.
const HANDED_OVER: usize = 512;
/// Fewer are handed over at the first look that comes so long after the last time.
const KEPT_MAX: Duration = Duration::from_ms(500);

/// One thing that an enforcer saw or did. The entries of a look end with its [`Entry::Look`], followed by the
/// orders that changed by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// What a unit ran since the look before.
    Ran {
        /// Its number.
        unit: u32,
        /// How long it ran, stolen time apart.
        ran_ns: u32,
        /// How long it waited for a processor, as far as its thread's account says.
        waited_ns: u32,
        /// How often it came to a processor.
        arrivals: u16,
    },
    /// Why the look came late.
    Late {
        /// How long of that the enforcer waited for the processor, which a thread above it had.
        waited_ns: u32,
        /// Time in which the machine stood still, and which the kernel charged to units.
        stolen_ns: u32,
        /// Did the units go on running, because only the enforcer was late?
        ran_on: bool,
    },
    /// A look of one of the pool's enforcers.
    Look {
        /// When it began, by CLOCK_MONOTONIC.
        at_ns: u64,
        /// How much later than it was due.
        late_ns: u32,
        /// How long it took.
        took_ns: u32,
        /// The number of the enforcer.
        cpu: u16,
    },
    /// What a unit may do from now on.
    Order {
        /// Its number.
        unit: u32,
        /// The order.
        order: Order,
        /// It has budget left, or keeps none.
        has_budget: bool,
    },
    /// Entries before this one are lost.
    Lost,
}

/// A duration in ns as far as 32 bits hold it: 4.29 s.
pub(super) fn short(duration: Duration) -> u32 {
    u32::try_from(duration.as_ns()).unwrap_or(u32::MAX)
}

/// The enforcers' side, under the pool's lock.
#[derive(Debug)]
pub(super) struct Writer {
    entries: Vec<Entry>,
    has_lost: bool,
    /// When entries were handed over the last time.
    handed_over: Instant,
}

impl Writer {
    pub(super) fn new() -> Writer {
        Writer { entries: Vec::with_capacity(WRITTEN_MAX), has_lost: false, handed_over: Instant::ZERO }
    }

    /// Adds an entry. Where the observer has taken none for long, it is lost.
    pub(super) fn push(&mut self, entry: Entry) {
        if self.entries.len() < WRITTEN_MAX { self.entries.push(entry) } else { self.has_lost = true }
    }

    /// Adds the end of a look that began at `at` and was due at `due`.
    pub(super) fn look(&mut self, cpu: u16, due: Instant, at: Instant, end: Instant) {
        let (late_ns, took_ns) = (short(at.since(due)), short(end.since(at)));
        self.push(Entry::Look { at_ns: at.as_ns(), late_ns, took_ns, cpu });
    }

    /// Hands over what was written until `now`, if that is enough and the observer is not at it.
    pub(super) fn hand_over(&mut self, now: Instant, exchange: &Mutex<Vec<Entry>>) {
        if self.entries.len() < HANDED_OVER && now.since(self.handed_over) < KEPT_MAX {
            return;
        }
        if let Ok(mut handed) = exchange.try_lock()
            && handed.is_empty()
            && handed.capacity() >= WRITTEN_MAX
        {
            std::mem::swap(&mut *handed, &mut self.entries);
            self.handed_over = now;
            if std::mem::take(&mut self.has_lost) {
                self.entries.push(Entry::Lost);
            }
        }
    }

    /// What was not handed over.
    pub(super) fn into_rest(self) -> Vec<Entry> {
        self.entries
    }
}

/// What is between the enforcers and the observer.
pub(super) fn exchange() -> Mutex<Vec<Entry>> {
    Mutex::new(Vec::with_capacity(WRITTEN_MAX))
}

/// What the observer gives in exchange.
pub(super) fn spare() -> Vec<Entry> {
    Vec::with_capacity(WRITTEN_MAX)
}

/// What enforcers saw, the latest entries.
#[derive(Debug, Default)]
pub struct History {
    entries: VecDeque<Entry>,
    /// Has it lost its oldest entries?
    has_lost: bool,
}

impl History {
    /// Takes what enforcers have handed over, tells `each` of it, and adds it if it is to be kept; `spare` is
    /// an empty vector that they get in exchange. False where there was nothing.
    pub(super) fn take(
        &mut self,
        exchange: &Mutex<Vec<Entry>>,
        spare: &mut Vec<Entry>,
        is_kept: bool,
        each: impl FnMut(&Entry),
    ) -> bool {
        let is_worth_it = {
            let mut handed = exchange.lock().unwrap_or_else(PoisonError::into_inner);
            let has_some = !handed.is_empty();
            if has_some {
                std::mem::swap(&mut *handed, spare);
            }
            has_some
        };
        if is_worth_it {
            spare.iter().for_each(each);
            if is_kept {
                self.append(spare);
            } else {
                spare.clear();
            }
        }
        is_worth_it
    }

    /// Adds entries, which come after all others, and empties `entries`.
    pub fn append(&mut self, entries: &mut Vec<Entry>) {
        let beyond = (self.entries.len() + entries.len()).saturating_sub(ENTRIES_MAX);
        if beyond > 0 {
            self.entries.drain(..beyond.min(self.entries.len()));
            self.has_lost = true;
        }
        self.entries.extend(entries.drain(..));
    }

    /// The entries, the oldest first.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        self.has_lost.then_some(Entry::Lost).into_iter().chain(self.entries.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at_ns: u64) -> Entry {
        Entry::Look { at_ns, late_ns: 0, took_ns: 1, cpu: 0 }
    }

    #[test]
    fn an_entry_is_small() {
        assert_eq!(size_of::<Entry>(), 24);
    }

    #[test]
    fn what_is_written_arrives_in_order_and_what_is_too_much_is_said_to_be_lost() {
        let (mut writer, exchange) = (Writer::new(), exchange());
        let (mut history, mut spare) = (History::default(), Vec::with_capacity(WRITTEN_MAX));
        let count = HANDED_OVER as u64;
        for at in 0..3 * count {
            writer.push(look(at));
            writer.hand_over(Instant::from_ns(at), &exchange);
            if at % count == count - 1 {
                history.take(&exchange, &mut spare, true, |_| {});
            }
        }
        assert!(history.entries().eq((0..3 * count).map(look)));
        // The observer takes none.
        for at in 0..3 * WRITTEN_MAX as u64 {
            writer.push(look(at));
            writer.hand_over(Instant::from_ns(at), &exchange);
        }
        history.take(&exchange, &mut spare, true, |_| {});
        writer.hand_over(Instant::ZERO, &exchange);
        history.take(&exchange, &mut spare, true, |_| {});
        history.append(&mut writer.into_rest());
        assert_eq!(history.entries().filter(|entry| *entry == Entry::Lost).count(), 1);
    }

    #[test]
    fn an_enforcer_that_finds_the_exchange_locked_goes_on() {
        let (mut writer, exchange) = (Writer::new(), exchange());
        let held = exchange.lock().expect("nobody has it");
        (0..2 * HANDED_OVER as u64).for_each(|at| writer.push(look(at)));
        writer.hand_over(Instant::ZERO, &exchange);
        drop(held);
        writer.hand_over(Instant::ZERO, &exchange);
        assert_eq!(exchange.lock().expect("nobody has it").len(), 2 * HANDED_OVER);
    }
}
