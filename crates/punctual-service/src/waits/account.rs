//! The accountant: what watched threads did and waited for, from what the scheduler did.
//!
//! Events go in (switches, wake-ups, lost records, in the order of time), segments come out: for each watched
//! thread, without gap or overlap, what it waited for from when until when. The accountant reads no clock and
//! knows no names; the book says what a segment means.
//!
//! | state | a switch to it | a switch from it | a wake-up | its processor's records are lost |
//! |---|---|---|---|---|
//! | unknown | running | ready or off | ready | – |
//! | running | – | ready or off | – | unknown |
//! | ready | running | ready or off (a switch was missed) | – | unknown |
//! | off | running (its wake-up was missed) | off | ready | – |
//!
//! A thread that is ready waits on one processor: where it was preempted, or for which it was woken. If it
//! then runs elsewhere, it waited there until it was moved.

use super::ids::ById;

/// How a thread that is not ready left its processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Off {
    /// It sleeps until it is woken.
    Asleep,
    /// A signal stopped it.
    Stopped,
    /// Its cgroup is frozen.
    Frozen,
    /// Punctual froze its cgroup until its next budget.
    Parked,
    /// It sleeps in the kernel, and no signal wakes it.
    Blocked,
}

/// How a thread left its processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Ready,
    Off(Off),
    Ended,
}

/// What the scheduler did. Threads are kernel ids; 0 is the idle thread of each processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Switch { at_ns: u64, processor: u32, from: u32, from_name: [u8; 16], left: Left, to: u32 },
    Wake { at_ns: u64, processor: u32, thread: u32 },
    Lost { at_ns: u64, processor: u32 },
}

impl Event {
    pub(crate) fn at_ns(&self) -> u64 {
        match *self {
            Event::Switch { at_ns, .. } | Event::Wake { at_ns, .. } | Event::Lost { at_ns, .. } => at_ns,
        }
    }
}

/// Why a thread did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Because {
    /// This thread had the processor for which it waited.
    Behind(u32),
    /// It was ready, and its processor idled.
    Idle,
    /// It was ready, and nobody saw who had its processor.
    Unseen,
    /// It was not ready.
    Off(Off),
}

/// A part of a wait with one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) thread: u32,
    /// Segments of one wait have the same number.
    pub(crate) wait: u64,
    /// For which processor it waited; where it was last, of one that was not ready.
    pub(crate) processor: u32,
    pub(crate) from_ns: u64,
    pub(crate) until_ns: u64,
    pub(crate) because: Because,
}

impl Segment {
    pub(crate) fn length_ns(&self) -> u64 {
        self.until_ns - self.from_ns
    }
}

/// A wait that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) thread: u32,
    pub(crate) wait: u64,
    pub(crate) from_ns: u64,
    pub(crate) until_ns: u64,
    /// Did it wait from a wake-up until it ran?
    pub(crate) was_woken: bool,
    /// Was it not ready all the time?
    pub(crate) was_off: bool,
    /// Of one whose wake-up nobody saw: who had the processor just before it, since when.
    pub(crate) after: Option<(Because, u64)>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Unknown,
    Running,
    Ready { was_woken: bool },
    Off(Off),
}

#[derive(Clone, Copy, Debug)]
struct Thread {
    state: State,
    /// Where it runs, waits, or was last.
    processor: u32,
    /// Up to when its time is accounted.
    since_ns: u64,
    /// The number of its wait, and when that began.
    wait: u64,
    began_ns: u64,
    ran_ns: u64,
}

#[derive(Clone, Debug, Default)]
struct Processor {
    /// Who has it, and since when; `None` where nobody saw it.
    occupant: Option<u32>,
    since_ns: u64,
    /// The watched threads that wait for it.
    waiting: Vec<u32>,
    /// How long watched threads had it since that was asked, by thread.
    used: ById<u64>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Accountant {
    now_ns: u64,
    processors: Vec<Processor>,
    threads: ById<Thread>,
    waits: u64,
    outs: Vec<Out>,
    /// What threads were called that others waited for.
    names: ById<[u8; 16]>,
    /// Those of them that came without a name since that was asked.
    nameless: Vec<u32>,
}

/// Something that happened to a watched thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Out {
    Segment(Segment),
    Ended(Ended),
}

/// What happened since the last time it was asked.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// In the order in which it happened to each thread.
    pub(crate) outs: Vec<Out>,
    pub(crate) names: ById<[u8; 16]>,
}

impl Accountant {
    /// Watches a thread from `at_ns` on; what it does is unknown until something happens to it.
    pub(crate) fn watch(&mut self, thread: u32, at_ns: u64) {
        self.threads.entry(thread).or_insert(Thread {
            state: State::Unknown,
            processor: 0,
            since_ns: at_ns,
            wait: 0,
            began_ns: at_ns,
            ran_ns: 0,
        });
    }

    /// Watches it no more.
    pub(crate) fn forget(&mut self, thread: u32) {
        if let Some(known) = self.threads.remove(&thread) {
            self.leave_queue(thread, known.processor);
        }
    }

    /// How long a thread had a processor since it is watched, by the last account.
    pub(crate) fn ran_ns(&self, thread: u32) -> Option<u64> {
        self.threads.get(&thread).map(|known| known.ran_ns)
    }

    /// Hands over how long each watched thread had each processor since the last call, up to the last
    /// account: processor, thread, time in ns.
    pub(crate) fn take_used(&mut self, mut take: impl FnMut(u32, u32, u64)) {
        for (processor, place) in self.processors.iter_mut().enumerate() {
            place.used.drain().for_each(|(thread, ns)| take(processor as u32, thread, ns));
        }
    }

    /// Takes over what another one knows of a thread: where it was last, and how long it had each processor
    /// since the last call.
    pub(crate) fn adopt(&mut self, thread: u32, processor: u32, had_ns: &[u64]) {
        let Some(known) = self.threads.get_mut(&thread) else { return };
        known.processor = processor;
        known.ran_ns += had_ns.iter().sum::<u64>();
        for (number, ns) in had_ns.iter().enumerate().filter(|(_, ns)| **ns > 0) {
            *self.processor(number as u32).used.entry(thread).or_default() += ns;
        }
    }

    /// Since when a thread that sleeps has done so; `None` for others.
    pub(crate) fn asleep_since_ns(&self, thread: u32) -> Option<u64> {
        let known = self.threads.get(&thread)?;
        matches!(known.state, State::Off(Off::Asleep)).then_some(known.began_ns)
    }

    /// The processor where a thread runs, waits, or was last.
    pub(crate) fn processor_of(&self, thread: u32) -> Option<u32> {
        self.threads.get(&thread).map(|known| known.processor)
    }

    /// A sleep was in truth something else, from its begin on.
    pub(crate) fn correct(&mut self, thread: u32, how: Off) {
        if let Some(known) = self.threads.get_mut(&thread)
            && matches!(known.state, State::Off(Off::Asleep))
        {
            known.state = State::Off(how);
        }
    }

    /// Takes an event. Events come in the order of time; one that is late counts as if it came now.
    pub(crate) fn take(&mut self, event: Event) {
        self.now_ns = self.now_ns.max(event.at_ns());
        let at_ns = self.now_ns;
        match event {
            Event::Switch { processor, from, from_name, left, to, .. } => {
                self.comes_unseen(from, processor, at_ns);
                self.pass_queue(processor, from, at_ns);
                if !self.processor(processor).waiting.is_empty() {
                    self.call(from, from_name);
                }
                let before = self.processor(processor).since_ns;
                if self.threads.contains_key(&from) {
                    self.leaves(from, processor, left, at_ns);
                }
                if self.threads.contains_key(&to) && self.comes(to, processor, (from, before), at_ns) {
                    self.call(from, from_name);
                }
                let place = self.processor(processor);
                (place.occupant, place.since_ns) = (Some(to), at_ns);
            }
            Event::Wake { processor, thread, .. } => self.wakes(thread, processor, at_ns),
            Event::Lost { processor, .. } => self.loses(processor, at_ns),
        }
    }

    /// Accounts for all time up to `until_ns`, and hands over what happened since the last call.
    pub(crate) fn account(&mut self, until_ns: u64) -> Account {
        self.now_ns = self.now_ns.max(until_ns);
        let threads: Vec<u32> = self.threads.keys().copied().collect();
        for thread in threads {
            self.advance(thread, self.now_ns, None);
        }
        Account { outs: std::mem::take(&mut self.outs), names: std::mem::take(&mut self.names) }
    }

    /// Threads for whose names the kernel has to be asked, since the last call.
    pub(crate) fn take_nameless(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.nameless)
    }

    fn call(&mut self, thread: u32, name: [u8; 16]) {
        let is_new = self.names.insert(thread, name).is_none();
        if is_new && name[0] == 0 && thread != 0 {
            self.nameless.push(thread);
        }
    }

    fn processor(&mut self, number: u32) -> &mut Processor {
        let index = number as usize;
        if self.processors.len() <= index {
            self.processors.resize_with(index + 1, Processor::default);
        }
        &mut self.processors[index]
    }

    /// All who wait for the processor waited behind `occupant` until now.
    fn pass_queue(&mut self, processor: u32, occupant: u32, at_ns: u64) {
        for index in 0..self.processor(processor).waiting.len() {
            let thread = self.processors[processor as usize].waiting[index];
            self.advance(thread, at_ns, Some(occupant));
        }
    }

    /// Accounts for a thread's time up to `at_ns`. `occupant` had its processor, if that is known better than
    /// by the last switch.
    fn advance(&mut self, thread: u32, at_ns: u64, occupant: Option<u32>) {
        let Some(known) = self.threads.get_mut(&thread) else { return };
        let (from_ns, state) = (known.since_ns, known.state);
        known.since_ns = at_ns;
        if at_ns <= from_ns {
            return;
        }
        let because = match state {
            State::Unknown => return,
            State::Running => {
                known.ran_ns += at_ns - from_ns;
                if let Some(place) = self.processors.get_mut(known.processor as usize) {
                    *place.used.entry(thread).or_default() += at_ns - from_ns;
                }
                return;
            }
            State::Off(how) => Because::Off(how),
            State::Ready { .. } => {
                let place = self.processors.get(known.processor as usize);
                match occupant.or_else(|| place.and_then(|place| place.occupant)) {
                    Some(0) => Because::Idle,
                    // It cannot wait for itself: a switch was missed.
                    Some(other) if other != thread => Because::Behind(other),
                    _ => Because::Unseen,
                }
            }
        };
        let Thread { wait, processor, .. } = *known;
        let segment = Segment { thread, wait, processor, from_ns, until_ns: at_ns, because };
        self.outs.push(Out::Segment(segment));
    }

    fn set(&mut self, thread: u32, state: State, processor: u32, at_ns: u64) {
        self.waits += 1;
        let wait = self.waits;
        let Some(known) = self.threads.get_mut(&thread) else { return };
        (known.state, known.processor) = (state, processor);
        (known.wait, known.began_ns, known.since_ns) = (wait, at_ns, at_ns);
        if matches!(state, State::Ready { .. }) {
            self.processor(processor).waiting.push(thread);
        }
    }

    fn leave_queue(&mut self, thread: u32, processor: u32) {
        if let Some(place) = self.processors.get_mut(processor as usize) {
            place.waiting.retain(|other| *other != thread);
        }
    }

    /// Ends what a thread waited for, if it did.
    fn ends(&mut self, thread: u32, after: Option<(Because, u64)>) {
        let Some(known) = self.threads.get(&thread).copied() else { return };
        let (was_woken, was_off) = match known.state {
            State::Ready { was_woken } => (was_woken, false),
            State::Off(_) => (false, true),
            State::Unknown | State::Running => return,
        };
        let Thread { wait, began_ns: from_ns, since_ns: until_ns, processor, .. } = known;
        self.outs.push(Out::Ended(Ended { thread, wait, from_ns, until_ns, was_woken, was_off, after }));
        self.leave_queue(thread, processor);
    }

    fn leaves(&mut self, thread: u32, processor: u32, left: Left, at_ns: u64) {
        self.advance(thread, at_ns, None);
        self.ends(thread, None);
        let state = match left {
            Left::Ready => State::Ready { was_woken: false },
            Left::Off(how) => State::Off(how),
            Left::Ended => State::Unknown,
        };
        self.set(thread, state, processor, at_ns);
    }

    /// A thread gets a processor after another one, which had it since then. Was its wake-up missed?
    fn comes(&mut self, thread: u32, processor: u32, (from, since_ns): (u32, u64), at_ns: u64) -> bool {
        self.advance(thread, at_ns, None);
        let is_missed = self.threads.get(&thread).is_some_and(|known| matches!(known.state, State::Off(_)));
        let before = if from == 0 { Because::Idle } else { Because::Behind(from) };
        self.ends(thread, is_missed.then_some((before, since_ns)));
        self.set(thread, State::Running, processor, at_ns);
        is_missed
    }

    /// Some kernels record nothing while a processor is idle: no wake-up, and no switch from the idle thread.
    /// Then who leaves came after it, at a time that nobody knows.
    fn comes_unseen(&mut self, thread: u32, processor: u32, at_ns: u64) {
        let Processor { occupant, since_ns, .. } = *self.processor(processor);
        let is_off = self.threads.get(&thread).is_some_and(|known| matches!(known.state, State::Off(_)));
        if occupant == Some(0) && is_off {
            self.comes(thread, processor, (0, since_ns), at_ns);
        }
    }

    fn wakes(&mut self, thread: u32, processor: u32, at_ns: u64) {
        let Some(known) = self.threads.get(&thread) else { return };
        // One that is woken while it has a processor goes on.
        let has_one = self.processors.iter().any(|place| place.occupant == Some(thread));
        if matches!(known.state, State::Off(_) | State::Unknown) && !has_one {
            self.advance(thread, at_ns, None);
            self.ends(thread, None);
            self.set(thread, State::Ready { was_woken: true }, processor, at_ns);
        }
    }

    /// Nobody saw what happened on a processor up to now.
    fn loses(&mut self, processor: u32, at_ns: u64) {
        let is_there = |known: &Thread| {
            known.processor == processor && matches!(known.state, State::Running | State::Ready { .. })
        };
        let there = self.threads.iter().filter(|(_, known)| is_there(known));
        let there: Vec<u32> = there.map(|(thread, _)| *thread).collect();
        for thread in there {
            self.advance(thread, at_ns, None);
            self.ends(thread, None);
            self.set(thread, State::Unknown, processor, at_ns);
        }
        self.processor(processor).occupant = None;
    }
}

#[cfg(test)]
#[path = "account_tests.rs"]
pub(crate) mod tests;
