//! The book: what the threads of each VM waited for, by cause, and the worst waits with their story.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use super::account::{Account, Because, Ended, Out, Segment};
use super::cause::{Name, WaitCause, Who, cause_of};
use super::ids::ById;
use super::latency::Latency;
use super::share;

/// Worst waits that are kept of each part of the hour.
pub(crate) const WORST_MAX: usize = 10;
/// Parts of the last hour, and how long each is.
pub(crate) const PARTS: usize = 12;
pub(crate) const PART_NS: u64 = 300 * 1_000_000_000;
/// So long, in seconds, causes and the worst waits are kept.
pub const KEPT_S: u64 = PARTS as u64 * PART_NS / 1_000_000_000;
/// Steps of a story; what follows is summed up.
const STEPS_MAX: usize = 48;
/// Names of each part of the hour; the times of others have none.
const NAMES_MAX: usize = 256;
/// A processor that is idle for less does not betray a limit of a cgroup.
const TINY_NS: u64 = 1_000;

/// A thread of a VM: one of its vCPUs, or one of its helpers by role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Part {
    Vcpu(u32),
    Helper(&'static str),
}

/// A cause with the name of who it was.
pub(crate) type By = (WaitCause, Option<Name>);

/// A step of a story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) from_ns: u64,
    pub(crate) until_ns: u64,
    pub(crate) processor: u32,
    pub(crate) by: By,
}

/// A wait until it ends, or up to now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Story {
    pub(crate) wait: u64,
    pub(crate) from_ns: u64,
    pub(crate) until_ns: u64,
    pub(crate) was_woken: bool,
    pub(crate) is_open: bool,
    /// How often the VM's kernel meanwhile asked KVM that another vCPU runs.
    pub(crate) yields: u64,
    /// How often other vCPUs of the VM meanwhile left the guest because they spun.
    pub(crate) spins: u64,
    /// In order.
    pub(crate) steps: Vec<Step>,
    /// What followed.
    pub(crate) rest: BTreeMap<By, u64>,
}

impl Story {
    pub(crate) fn length_ns(&self) -> u64 {
        self.until_ns - self.from_ns
    }

    /// Does it go on?
    fn is_open(&self) -> bool {
        self.is_open && !self.steps.is_empty()
    }

    fn add(&mut self, segment: &Segment, by: By) {
        if self.wait != segment.wait || self.steps.is_empty() {
            self.steps.clear();
            self.rest.clear();
            (self.wait, self.from_ns, self.is_open) = (segment.wait, segment.from_ns, true);
            (self.yields, self.spins) = (0, 0);
        }
        self.until_ns = segment.until_ns;
        let &Segment { from_ns, until_ns, processor, .. } = segment;
        let is_whole = self.rest.is_empty();
        let last = self.steps.last_mut().filter(|last| is_whole && last.by == by && last.until_ns == from_ns);
        if let Some(last) = last {
            last.until_ns = until_ns;
        } else if self.steps.len() < STEPS_MAX {
            self.steps.push(Step { from_ns, until_ns, processor, by });
        } else {
            *self.rest.entry(by).or_default() += until_ns - from_ns;
        }
    }
}

/// What is known of a thread, or of all helpers with one role.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) causes: BTreeMap<WaitCause, u64>,
    /// From a wake-up until it ran.
    pub(crate) latency: Latency,
    /// How often it left the guest because it spun; `None` where that is not counted.
    pub(crate) spins: Option<u64>,
}

/// A part of the last hour.
#[derive(Clone, Debug, Default)]
struct Slot {
    number: u64,
    causes: HashMap<(Part, By), u64>,
    worst: Vec<(Part, Story)>,
    spins: BTreeMap<Part, u64>,
}

impl Slot {
    fn add(&mut self, part: Part, by: By, ns: u64) {
        let (cause, key) = (by.0, (part, by));
        if let Some(known) = self.causes.get_mut(&key) {
            *known += ns;
        } else if self.causes.len() < NAMES_MAX {
            self.causes.insert(key, ns);
        } else {
            *self.causes.entry((part, (cause, None))).or_default() += ns;
        }
    }

    /// Would a wait of this length be among the worst?
    fn takes(&self, ns: u64) -> bool {
        self.worst.len() < WORST_MAX || self.worst.last().is_some_and(|(_, last)| last.length_ns() < ns)
    }

    fn keep(&mut self, part: Part, story: Story) {
        let at = self.worst.partition_point(|(_, known)| known.length_ns() >= story.length_ns());
        self.worst.insert(at, (part, story));
        self.worst.truncate(WORST_MAX);
    }
}

/// What is known of a VM.
#[derive(Clone, Debug, Default)]
pub(crate) struct VmBook {
    pub(crate) parts: BTreeMap<Part, Totals>,
    slots: VecDeque<Slot>,
}

/// What a VM waited for in the last while.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lately {
    pub(crate) causes: BTreeMap<(Part, By), u64>,
    /// The longest first.
    pub(crate) worst: Vec<(Part, Story)>,
    /// How often vCPUs spun, where that is counted and was not 0.
    pub(crate) spins: BTreeMap<Part, u64>,
}

impl VmBook {
    fn slot(&mut self, at_ns: u64) -> &mut Slot {
        let number = at_ns / PART_NS;
        let is_new = self.slots.back().is_none_or(|last| last.number < number);
        if is_new {
            self.slots.push_back(Slot { number, ..Slot::default() });
            while self.slots.front().is_some_and(|first| first.number + (PARTS as u64) < number) {
                self.slots.pop_front();
            }
        }
        let last = self.slots.len() - 1;
        &mut self.slots[last]
    }

    fn add(&mut self, part: Part, by: By, at_ns: u64, ns: u64) {
        *self.parts.entry(part).or_default().causes.entry(by.0).or_default() += ns;
        self.slot(at_ns).add(part, by, ns);
    }
}

/// A watched thread.
#[derive(Clone, Debug)]
struct Thread {
    vm: u32,
    part: Part,
    /// The wait that it is in, or was in last.
    story: Story,
}

/// What KVM counted of a VM between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    /// The VM's process.
    pub(crate) vm: u32,
    pub(crate) from_ns: u64,
    pub(crate) until_ns: u64,
    /// How often its kernel asked that another vCPU runs.
    pub(crate) yields: u64,
}

/// What a window of time adds to what the accountant saw.
pub(crate) struct Window<'w> {
    /// Who a thread is that had a processor, and what it was called then.
    pub(crate) who: &'w mut dyn FnMut(u32, Option<[u8; 16]>) -> Who,
    /// By cgroup, how long its limit kept processors from it, and its threads.
    pub(crate) limits: Vec<(u64, HashSet<u32>)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Book {
    vms: BTreeMap<u32, VmBook>,
    threads: ById<Thread>,
}

impl Book {
    /// Counts a thread as a part of a VM.
    pub(crate) fn open(&mut self, thread: u32, vm: u32, part: Part) {
        let known = self.threads.entry(thread).or_insert(Thread { vm, part, story: Story::default() });
        (known.vm, known.part) = (vm, part);
        self.vms.entry(vm).or_default().parts.entry(part).or_default();
    }

    /// Forgets a thread that has ended; what it waited for stays.
    pub(crate) fn close_thread(&mut self, thread: u32) {
        self.threads.remove(&thread);
    }

    /// Forgets a VM.
    pub(crate) fn close_vm(&mut self, vm: u32) {
        self.vms.remove(&vm);
        self.threads.retain(|_, thread| thread.vm != vm);
    }

    pub(crate) fn vm(&self, vm: u32) -> Option<&VmBook> {
        self.vms.get(&vm)
    }

    /// The threads that are counted.
    pub(crate) fn threads(&self) -> impl Iterator<Item = (u32, u32, Part)> {
        self.threads.iter().map(|(thread, known)| (*thread, known.vm, known.part))
    }

    /// The VM and the part that a thread is.
    pub(crate) fn part_of(&self, thread: u32) -> Option<(u32, Part)> {
        self.threads.get(&thread).map(|known| (known.vm, known.part))
    }

    /// Counts a time whose place in time is not known.
    pub(crate) fn add(&mut self, thread: u32, by: By, at_ns: u64, ns: u64) {
        if let Some(known) = self.threads.get(&thread)
            && let Some(vm) = self.vms.get_mut(&known.vm)
            && ns > 0
        {
            vm.add(known.part, by, at_ns, ns);
        }
    }

    /// Notes with the waits of a VM's vCPUs what KVM counted while they went on.
    pub(crate) fn note(&mut self, counted: &Counted) {
        let &Counted { vm, from_ns, until_ns, yields } = counted;
        self.each_wait(vm, (from_ns, until_ns), |_, story| story.yields += yields);
    }

    /// Counts how often a thread left its guest because it spun there, between two times, and notes that with
    /// the waits of the other vCPUs that went on meanwhile.
    pub(crate) fn add_spins(&mut self, thread: u32, spins: Option<u64>, span: (u64, u64)) {
        let (Some((vm, part)), Some(spins)) = (self.part_of(thread), spins) else { return };
        let Some(book) = self.vms.get_mut(&vm).filter(|_| matches!(part, Part::Vcpu(_))) else { return };
        *book.parts.entry(part).or_default().spins.get_or_insert(0) += spins;
        if spins > 0 {
            *book.slot(span.1).spins.entry(part).or_default() += spins;
            self.each_wait(vm, span, |other, story| story.spins += if other == part { 0 } else { spins });
        }
    }

    /// The waits of a VM's vCPUs that went on between two times.
    fn each_wait(
        &mut self,
        vm: u32,
        (from_ns, until_ns): (u64, u64),
        mut take: impl FnMut(Part, &mut Story),
    ) {
        let Some(book) = self.vms.get_mut(&vm) else { return };
        let ended = book.slots.iter_mut().flat_map(|slot| &mut slot.worst);
        let ended = ended.map(|(part, story)| (*part, story));
        let of_vm = self.threads.values_mut().filter(|thread| thread.vm == vm);
        let open = of_vm.filter(|thread| thread.story.is_open());
        for (part, story) in ended.chain(open.map(|thread| (thread.part, &mut thread.story))) {
            let overlaps = story.from_ns < until_ns && story.until_ns > from_ns;
            if overlaps && matches!(part, Part::Vcpu(_)) {
                take(part, story);
            }
        }
    }

    /// Counts latencies of a thread that are in no account.
    pub(crate) fn add_latency(&mut self, thread: u32, latency: &Latency) {
        if let Some(known) = self.threads.get(&thread)
            && let Some(vm) = self.vms.get_mut(&known.vm)
        {
            vm.parts.entry(known.part).or_default().latency.add(latency);
        }
    }

    /// A wait of this VM that ends at `at_ns` needs no story if it is no longer than that.
    pub(crate) fn threshold_ns(&self, vm: u32, at_ns: u64) -> u64 {
        let last = self.vms.get(&vm).and_then(|book| book.slots.back());
        let full = last.filter(|slot| slot.number == at_ns / PART_NS && slot.worst.len() >= WORST_MAX);
        full.and_then(|slot| slot.worst.last()).map_or(0, |(_, story)| story.length_ns())
    }

    /// Takes what the accountant saw in a window.
    pub(crate) fn take(&mut self, account: &Account, window: Window) {
        let throttled = throttled(&account.outs, &window.limits);
        let is_throttled = |index: &usize| !throttled.is_empty() && throttled.contains(index);
        for (index, out) in account.outs.iter().enumerate() {
            match out {
                Out::Segment(segment) => {
                    let name = |thread: u32| {
                        let called = account.names.get(&thread).filter(|name| name[0] != 0);
                        (window.who)(thread, called.copied())
                    };
                    self.take_segment(segment, is_throttled(&index), name);
                }
                Out::Ended(ended) => self.take_end(ended),
            }
        }
    }

    fn take_segment(&mut self, segment: &Segment, is_throttled: bool, who: impl FnOnce(u32) -> Who) {
        let Some(thread) = self.threads.get_mut(&segment.thread) else { return };
        let Some(vm) = self.vms.get_mut(&thread.vm) else { return };
        let by = if is_throttled {
            Some((WaitCause::Throttled, None))
        } else {
            cause_of(segment.because, thread.vm, who)
        };
        if let Some(by) = by {
            thread.story.add(segment, by.clone());
            vm.add(thread.part, by, segment.until_ns, segment.length_ns());
        }
    }

    fn take_end(&mut self, ended: &Ended) {
        let Some(thread) = self.threads.get_mut(&ended.thread) else { return };
        let Some(vm) = self.vms.get_mut(&thread.vm) else { return };
        if ended.was_woken {
            let latency = &mut vm.parts.entry(thread.part).or_default().latency;
            latency.record(ended.until_ns - ended.from_ns);
        }
        let story = &mut thread.story;
        if story.wait == ended.wait && !story.steps.is_empty() {
            (story.is_open, story.was_woken) = (false, ended.was_woken);
            let slot = vm.slot(ended.until_ns);
            if slot.takes(story.length_ns()) {
                slot.keep(thread.part, story.clone());
            }
            story.steps.clear();
        }
    }

    /// What a VM waited for since `from_ns`, to the five minutes, by cause alone.
    pub(crate) fn causes(&self, vm: u32, from_ns: u64) -> BTreeMap<WaitCause, u64> {
        let mut sums = BTreeMap::new();
        let slots = self.vms.get(&vm).map(|book| book.slots.iter()).into_iter().flatten();
        for slot in slots.filter(|slot| (slot.number + 1) * PART_NS > from_ns) {
            for ((_, (cause, _)), ns) in &slot.causes {
                *sums.entry(*cause).or_default() += ns;
            }
        }
        sums
    }

    /// The longest waits of all VMs that ended since `from_ns` or go on; the longest first.
    pub(crate) fn worst(&self, from_ns: u64) -> Vec<(u32, Part, Story)> {
        let open = self.threads.values().filter(|thread| thread.story.is_open());
        let mut all: Vec<(u32, Part, &Story)> =
            open.map(|thread| (thread.vm, thread.part, &thread.story)).collect();
        for (vm, book) in &self.vms {
            let ended = book.slots.iter().flat_map(|slot| &slot.worst);
            let ended = ended.filter(|(_, story)| story.until_ns >= from_ns);
            all.extend(ended.map(|(part, story)| (*vm, *part, story)));
        }
        all.sort_by_key(|(.., story)| std::cmp::Reverse(story.length_ns()));
        all.truncate(WORST_MAX);
        all.into_iter().map(|(vm, part, story)| (vm, part, story.clone())).collect()
    }

    /// What a VM waited for since `from_ns`, to the five minutes, and the longest waits that ended then or go
    /// on.
    pub(crate) fn lately(&self, vm: u32, from_ns: u64) -> Lately {
        let mut lately = Lately::default();
        let Some(book) = self.vms.get(&vm) else { return lately };
        for slot in book.slots.iter().filter(|slot| (slot.number + 1) * PART_NS > from_ns) {
            for ((part, by), ns) in &slot.causes {
                *lately.causes.entry((*part, by.clone())).or_default() += ns;
            }
            for (part, spins) in &slot.spins {
                *lately.spins.entry(*part).or_default() += spins;
            }
            let ended = slot.worst.iter().filter(|(_, story)| story.until_ns >= from_ns);
            lately.worst.extend(ended.cloned());
        }
        let of_vm = self.threads.values().filter(|thread| thread.vm == vm);
        let open = of_vm.filter(|thread| thread.story.is_open());
        lately.worst.extend(open.map(|thread| (thread.part, thread.story.clone())));
        lately.worst.sort_by_key(|(_, story)| std::cmp::Reverse(story.length_ns()));
        lately.worst.truncate(WORST_MAX);
        lately
    }
}

/// The places of segments that limits of cgroups caused.
fn throttled(outs: &[Out], limits: &[(u64, HashSet<u32>)]) -> HashSet<usize> {
    let mut all = HashSet::new();
    for (limit_ns, threads) in limits.iter().filter(|(limit_ns, _)| *limit_ns > 0) {
        let ready = outs.iter().enumerate().filter_map(|(index, out)| match out {
            Out::Segment(segment)
                if threads.contains(&segment.thread)
                    && !matches!(segment.because, Because::Off(_))
                    && segment.length_ns() > TINY_NS =>
            {
                Some((index, segment))
            }
            _ => None,
        });
        let (places, segments): (Vec<usize>, Vec<&Segment>) = ready.unzip();
        let is = share::throttled(&segments, *limit_ns);
        all.extend(places.into_iter().zip(is).filter(|(_, is)| *is).map(|(place, _)| place));
    }
    all
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
