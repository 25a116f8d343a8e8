//! What a source says that adds up in the kernel itself ([`Tally`]): the times since the last look, and the
//! waits that it told one by one.
//!
//! The kernel counts waits that are over. One that goes on is counted here, up to the time of the look, and a
//! [`Mark`] tells the kernel up to when. Its story, which comes later, is cut there.

use std::io;

use punctual_waits_bpf::{self as bpf, Mark, State, Step, Story, Tally, Thread};

use super::account::{Account, Because, Ended, Off, Out, Segment};
use super::ids::ById;
use super::latency::{BOUNDS_NS, Latency};

/// A wait of this length is told one by one, in ns.
const TOLD_FROM_NS: u64 = 1_000_000;
/// So many parts of waits are told in a second at most: where more waits are long, a story costs more than it
/// says.
const TOLD_MAX: u64 = 250;

/// How the kernel is to add up.
pub(crate) fn settings() -> bpf::Settings {
    bpf::Settings { told_from_ns: TOLD_FROM_NS, bounds_ns: BOUNDS_NS, told_max: TOLD_MAX }
}

/// What is known of a thread since the last look.
#[derive(Clone, Debug, Default)]
struct Known {
    last: Thread,
    /// How long it had each processor, up to the last look.
    had_ns: Vec<u64>,
    mark: Mark,
    /// The wait of the mark before, and up to when it was counted.
    before: (u32, u64),
    /// What this look counts itself of the wait that goes on.
    looked: Option<Looked>,
    /// Waits of which the book has the begin and not the end: the one that goes on, and at a look the one
    /// before, which may be over since.
    shown: Vec<Shown>,
}

/// A part of a wait that a look counts itself. What came before it can be in a story that was told since the
/// look before, and what comes after it in one that is told during the look.
#[derive(Clone, Copy, Debug)]
struct Looked {
    wait: u32,
    from_ns: u64,
    until_ns: u64,
    /// Up to when the wait was counted before.
    counted_ns: u64,
}

/// A wait whose begin the book has.
#[derive(Clone, Copy, Debug)]
struct Shown {
    wait: u32,
    began_ns: u64,
    is_off: bool,
}

/// A thread at the time of a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) thread: u32,
    /// Where it runs, waits, or was last.
    pub(crate) processor: u32,
    /// How long it had each processor since the last look.
    pub(crate) had_ns: Vec<u64>,
    /// From wake-ups until it ran, since the last look, without those that were told.
    pub(crate) latency: Latency,
    /// How often it left a guest because it spun there, since the last look; `None` where that is not
    /// counted.
    pub(crate) spins: Option<u64>,
}

/// A time that is not told as a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) thread: u32,
    pub(crate) because: Because,
    pub(crate) name: [u8; 16],
    pub(crate) ns: u64,
}

/// What happened since the last look.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) seen: Vec<Seen>,
    pub(crate) sums: Vec<Sum>,
    pub(crate) told: Account,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Sums {
    tally: Box<dyn Tally>,
    known: ById<Known>,
    /// Threads that could not be watched, and looks that failed.
    failed: u64,
}

fn kept(off: bpf::Off) -> Off {
    match off {
        bpf::Off::Asleep => Off::Asleep,
        bpf::Off::Blocked => Off::Blocked,
        bpf::Off::Stopped => Off::Stopped,
        bpf::Off::Frozen => Off::Frozen,
    }
}

fn because(occupant: Option<u32>) -> Because {
    match occupant {
        Some(0) => Because::Idle,
        Some(thread) => Because::Behind(thread),
        None => Because::Unseen,
    }
}

/// The number of a wait among those of all threads.
fn number(thread: u32, wait: u32) -> u64 {
    u64::from(thread) << 32 | u64::from(wait)
}

impl Known {
    /// Up to when this wait is in the book.
    fn counted_ns(&self, wait: u32) -> u64 {
        let all = [(self.mark.wait, self.mark.until_ns), self.before];
        all.into_iter().find(|(known, _)| *known == wait).map_or(0, |(_, until_ns)| until_ns)
    }

    /// The parts of a story's step that are not counted yet: from when, until when.
    fn uncounted(&self, wait: u32, (from_ns, until_ns): (u64, u64)) -> [(u64, u64); 2] {
        match self.looked.filter(|looked| looked.wait == wait) {
            Some(Looked { from_ns: begin_ns, until_ns: end_ns, counted_ns, .. }) => {
                [(from_ns.max(counted_ns), until_ns.min(begin_ns)), (from_ns.max(end_ns), until_ns)]
            }
            None => [(from_ns.max(self.counted_ns(wait)), until_ns), (0, 0)],
        }
    }

    /// Marks what the thread does: it is counted up to then.
    fn mark(&mut self, wait: u32, until_ns: u64) -> Mark {
        if self.mark.wait != wait {
            self.before = (self.mark.wait, self.mark.until_ns);
        }
        self.mark = Mark { wait, until_ns, ..self.mark };
        self.mark
    }

    /// How long it had each processor since the last look, up to `now_ns`.
    fn had(&mut self, thread: &Thread, now_ns: u64) -> Vec<u64> {
        let mut had_ns = thread.ran_ns.clone();
        if thread.state == State::Running
            && let Some(ns) = had_ns.get_mut(thread.processor as usize)
        {
            *ns += now_ns.saturating_sub(thread.since_ns);
        }
        self.had_ns.resize(had_ns.len(), 0);
        let since = |(known, ns): (&mut u64, u64)| {
            let before = std::mem::replace(known, ns.max(*known));
            *known - before
        };
        self.had_ns.iter_mut().zip(had_ns).map(since).collect()
    }

    /// Latencies since the last look.
    fn latency(&self, thread: &Thread) -> Latency {
        let counts = std::array::from_fn(|bucket| {
            thread.latencies[bucket].saturating_sub(self.last.latencies[bucket])
        });
        let sum_ns = thread.latency_sum_ns.saturating_sub(self.last.latency_sum_ns);
        Latency { counts, sum_ns, max_ns: thread.latency_max_ns }
    }
}

/// Puts parts of waits into an account.
#[derive(Default)]
struct Teller {
    /// With the wait and the time, by which they are put in order.
    outs: Vec<(u64, u64, Out)>,
    names: ById<[u8; 16]>,
}

impl Teller {
    fn off(&mut self, thread: u32, wait: u32, processor: u32, (from_ns, until_ns): (u64, u64), how: Off) {
        if from_ns < until_ns {
            let (wait, because) = (number(thread, wait), Because::Off(how));
            let segment = Segment { thread, wait, processor, from_ns, until_ns, because };
            self.outs.push((wait, from_ns, Out::Segment(segment)));
        }
    }

    /// A part of a step.
    fn step(&mut self, thread: u32, wait: u32, step: &Step, (from_ns, until_ns): (u64, u64)) {
        if from_ns >= until_ns {
            return;
        }
        if let Some(occupant) = step.occupant.filter(|_| step.name[0] != 0) {
            self.names.insert(occupant, step.name);
        }
        let (wait, because) = (number(thread, wait), because(step.occupant));
        let segment = Segment { thread, wait, processor: step.processor, from_ns, until_ns, because };
        self.outs.push((wait, from_ns, Out::Segment(segment)));
    }

    fn end(&mut self, thread: u32, wait: u32, ended: Ended) {
        let wait = number(thread, wait);
        self.outs.push((wait, u64::MAX, Out::Ended(Ended { thread, wait, ..ended })));
    }

    fn account(mut self) -> Account {
        self.outs.sort_by_key(|(wait, from_ns, _)| (*wait, *from_ns));
        Account { outs: self.outs.into_iter().map(|(.., out)| out).collect(), names: self.names }
    }
}

impl Sums {
    pub(crate) fn new(tally: Box<dyn Tally>) -> Sums {
        Sums { tally, known: ById::default(), failed: 0 }
    }

    /// How often something was not told or not added up.
    pub(crate) fn lost(&self) -> u64 {
        self.tally.lost() + self.failed
    }

    /// Why it is not counted how often vCPUs spin.
    pub(crate) fn no_spins(&self) -> Option<&str> {
        self.tally.no_spins()
    }

    /// Watches a thread from now on.
    pub(crate) fn watch(&mut self, thread: u32) {
        if self.known.contains_key(&thread) {
            return;
        }
        match self.tally.watch(thread) {
            Ok(()) => _ = self.known.insert(thread, Known::default()),
            Err(_) => self.failed += 1,
        }
    }

    /// Watches it no more.
    pub(crate) fn forget(&mut self, thread: u32) {
        if self.known.remove(&thread).is_some() {
            self.tally.forget(thread);
        }
    }

    /// Waits of a thread that are no longer than this need no story, if they are short.
    pub(crate) fn set_threshold(&mut self, thread: u32, threshold_ns: u64) {
        let Some(known) = self.known.get_mut(&thread) else { return };
        if known.mark.threshold_ns != threshold_ns {
            known.mark.threshold_ns = threshold_ns;
            self.failed += u64::from(self.tally.mark(thread, known.mark).is_err());
        }
    }

    /// What happened up to `now_ns`.
    pub(crate) fn take(&mut self, now_ns: u64) -> Taken {
        let mut taken = Taken::default();
        if self.look(now_ns, &mut taken).is_err() {
            self.failed += 1;
        }
        taken
    }

    fn look(&mut self, now_ns: u64, taken: &mut Taken) -> io::Result<()> {
        self.tally.turn()?;
        let mut teller = Teller::default();
        let threads: Vec<u32> = self.known.keys().copied().collect();
        for id in threads {
            if let Some(thread) = self.tally.thread(id)? {
                self.look_at(id, thread, now_ns, &mut teller, taken)?;
            }
        }
        for story in self.tally.stories()? {
            self.tell(&story, &mut teller);
        }
        self.end_shown(&mut teller);
        taken.sums.extend(self.tally.sums()?.into_iter().map(|sum| Sum {
            thread: sum.thread,
            because: because(sum.occupant),
            name: sum.name,
            ns: sum.ns,
        }));
        taken.told = teller.account();
        Ok(())
    }

    fn look_at(
        &mut self,
        id: u32,
        thread: Thread,
        now_ns: u64,
        teller: &mut Teller,
        taken: &mut Taken,
    ) -> io::Result<()> {
        let Some(known) = self.known.get_mut(&id) else { return Ok(()) };
        known.looked = None;
        taken.seen.push(Seen {
            thread: id,
            processor: thread.processor,
            had_ns: known.had(&thread, now_ns),
            latency: known.latency(&thread),
            spins: thread.spins.map(|spins| spins.saturating_sub(known.last.spins.unwrap_or(0))),
        });
        for (index, how) in bpf::Off::ALL.into_iter().enumerate() {
            let ns = thread.off_ns[index].saturating_sub(known.last.off_ns[index]);
            if ns > 0 {
                taken.sums.push(Sum { thread: id, because: Because::Off(kept(how)), name: [0; 16], ns });
            }
        }
        let is_long = now_ns.saturating_sub(thread.began_ns) >= TOLD_FROM_NS;
        let counted_ns = known.counted_ns(thread.wait);
        let goes_on_from_ns = match thread.state {
            State::Off(how) if how != bpf::Off::Asleep && is_long => {
                let span = (thread.began_ns.max(counted_ns), now_ns);
                teller.off(id, thread.wait, thread.processor, span, kept(how));
                Some(thread.began_ns)
            }
            State::Ready { .. } if is_long => {
                let occupant = self.tally.occupant(thread.processor)?.filter(|other| *other != id);
                let (processor, from_ns) = (thread.processor, thread.since_ns);
                let last = Step { from_ns, until_ns: now_ns, occupant, name: [0; 16], processor };
                for step in thread.steps.iter().chain([&last]) {
                    let span = (step.from_ns.max(counted_ns), step.until_ns);
                    teller.step(id, thread.wait, step, span);
                }
                Some(thread.steps.first().unwrap_or(&last).from_ns)
            }
            _ => None,
        };
        if let Some(from_ns) = goes_on_from_ns.filter(|_| counted_ns < now_ns) {
            let (wait, from_ns) = (thread.wait, from_ns.max(counted_ns));
            known.looked = Some(Looked { wait, from_ns, until_ns: now_ns, counted_ns });
            known.shown.retain(|shown| shown.wait != thread.wait);
            let is_off = matches!(thread.state, State::Off(_));
            known.shown.push(Shown { wait: thread.wait, began_ns: thread.began_ns, is_off });
            self.tally.mark(id, known.mark(thread.wait, now_ns))?;
        }
        known.last = thread;
        Ok(())
    }

    fn tell(&mut self, story: &Story, teller: &mut Teller) {
        let &Story { thread, wait, began_ns, until_ns, .. } = story;
        let Some(known) = self.known.get_mut(&thread) else { return };
        let counted_ns = known.counted_ns(wait);
        if let Some(off) = story.off {
            for span in known.uncounted(wait, (began_ns, until_ns)) {
                teller.off(thread, wait, known.last.processor, span, kept(off));
            }
        }
        for step in &story.steps {
            for span in known.uncounted(wait, (step.from_ns, step.until_ns)) {
                teller.step(thread, wait, step, span);
            }
        }
        if !story.is_over {
            return;
        }
        known.shown.retain(|shown| shown.wait != wait);
        let (was_woken, was_off) = (story.was_woken, story.off.is_some());
        let until_ns = until_ns.max(counted_ns);
        let from_ns = began_ns;
        teller.end(
            thread,
            wait,
            Ended { thread, wait: 0, from_ns, until_ns, was_woken, was_off, after: None },
        );
    }

    /// Waits whose end was not told, for want of room or because they ended at the look, end where they were
    /// looked at last.
    fn end_shown(&mut self, teller: &mut Teller) {
        for (thread, known) in &mut self.known {
            let (open, over): (Vec<Shown>, Vec<Shown>) =
                std::mem::take(&mut known.shown).into_iter().partition(|shown| shown.wait == known.last.wait);
            known.shown = open;
            for Shown { wait, began_ns, is_off } in over {
                let until_ns = known.counted_ns(wait).max(began_ns);
                let ended = Ended {
                    thread: *thread,
                    wait: 0,
                    from_ns: began_ns,
                    until_ns,
                    was_woken: false,
                    was_off: is_off,
                    after: None,
                };
                teller.end(*thread, wait, ended);
            }
        }
    }
}

#[cfg(test)]
#[path = "sums_tests.rs"]
mod tests;
