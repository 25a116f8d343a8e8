//! What the threads of VMs wait for, and because of whom, without a guest's help and without enforcement.
//!
//! `source.rs` hands over what the scheduler of the kernel does, `account.rs` makes parts of waits of it;
//! `sums.rs` does so where the kernel adds up itself. `book.rs` adds them up by cause and keeps the worst
//! waits. `limits.rs` knows cgroups, `who.rs` names of threads, `busy.rs` who ran where nobody sees switches.
//! `Waits` drives them: events are read every [`DRAIN_INTERVAL`], and with each sample of the counters the
//! time up to then is accounted for.
//!
//! While the host has no VM, nothing is read.

mod account;
mod book;
mod busy;
mod cause;
mod ids;
mod latency;
mod limits;
mod occupants;
mod rate;
mod share;
mod source;
mod sums;
mod view;
mod who;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use punctual_linux::os::load::{self, Load};
use punctual_linux::os::proc::SchedStat;
use punctual_linux::preflight;
use punctual_linux::vmm::Role;
use punctual_model::service::WaitSource;
use rustix::time::{ClockId, clock_gettime};

use crate::actor::What;
use crate::registry::Registry;

use account::{Account, Accountant, Because, Event, Off, Out};
use book::{Book, Part, Window};
use busy::{Busy, Ran};
use cause::{Name, WaitCause as Cause, Who, cause_of};
use ids::ById;
use limits::Limits;
use rate::Rate;
use source::{Kind, Opened, Reader};
use sums::Taken;
use who::Names;

pub use book::KEPT_S;
pub(crate) use book::{Counted, PART_NS, PARTS};
pub use cause::WaitCause;
pub use latency::BOUNDS_NS;
pub use occupants::{Handover, Occupants};
pub(crate) use source::known_ids;
pub use view::{CauseView, PartView, SourceView, StepView, VmWaitView, WaitView, WhyView};

/// How often events are read: 512 KiB of records last for 100 ms at 60,000 switches a second of one
/// processor.
pub const DRAIN_INTERVAL: Duration = Duration::from_millis(25);
/// An event is read at the latest so long after it happened.
const GRACE_NS: u64 = 1_000_000;
/// Who sleeps for longer may be frozen.
const SLEEP_NS: u64 = 100_000_000;
/// Clocks of threads and of switches differ by less, because the kernel advances the former with its ticks.
const SLACK_NS: u64 = 12_000_000;
/// Cgroups of threads are looked for so often, and names of threads are asked for again, in samples.
const GROUPS_EVERY: u64 = 2;
const NAMES_EVERY: u64 = 5;

/// What the kernel's account of a thread said.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// When it was seen for the first time.
    base: SchedStat,
    /// At the last sample.
    last: SchedStat,
    /// How long it was ready by the accountant, and by inference.
    ready_ns: u64,
    /// Time on a processor that was not its own and is counted.
    taken_ns: u64,
    /// The sleep that was looked at last, by its begin.
    looked_ns: u64,
    /// Was it stopped or frozen at the last sample?
    was_kept: Option<Off>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Waits {
    proc: PathBuf,
    wanted: WaitSource,
    opened: Option<Opened>,
    rate: Rate,
    /// Are events not read for a while, because they are too many?
    is_resting: bool,
    /// Why that is.
    too_many: String,
    accountant: Accountant,
    book: Book,
    limits: Limits,
    names: Names,
    busy: Busy,
    known: ById<Known>,
    /// By process: what VMs are called, and whether they are held.
    vms: BTreeMap<u32, (Name, bool)>,
    processors: Vec<usize>,
    loads: Vec<Load>,
    /// Does the kernel leave out of threads' accounts what a hypervisor below took, and what interrupts took?
    kernel_knows: (bool, bool),
    samples: u64,
    /// Up to when events were read, and when the last sample was.
    read_ns: u64,
    sampled_ns: u64,
}

/// Now, in ns of CLOCK_MONOTONIC.
pub(crate) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

impl Waits {
    pub(crate) fn new(proc: &Path, wanted: WaitSource) -> Waits {
        let processors = preflight::online();
        Waits {
            proc: proc.to_owned(),
            wanted,
            opened: None,
            rate: Rate::default(),
            is_resting: false,
            too_many: String::new(),
            accountant: Accountant::default(),
            book: Book::default(),
            limits: Limits::new(proc),
            names: Names::new(proc),
            busy: Busy::new(proc),
            known: ById::default(),
            vms: BTreeMap::new(),
            loads: load::loads(&processors).unwrap_or_default(),
            processors,
            kernel_knows: (load::kernel_knows_stolen(), load::kernel_knows_interrupts()),
            samples: 0,
            read_ns: 0,
            sampled_ns: 0,
        }
    }

    /// Uses another source from now on; what is counted stays.
    pub(crate) fn set_source(&mut self, wanted: WaitSource) {
        if std::mem::replace(&mut self.wanted, wanted) != wanted {
            self.rate.forget();
            self.close();
        }
    }

    fn close(&mut self) {
        self.opened = None;
        self.accountant = Accountant::default();
        self.busy.forget();
        self.known.clear();
    }

    /// Are there events to be read?
    pub(crate) fn is_reading(&self) -> bool {
        self.opened.as_ref().is_some_and(|opened| matches!(opened.reader, Reader::Events(_)))
    }

    /// Is each switch known, one by one or in sum?
    fn sees_switches(&self) -> bool {
        self.kind().is_some_and(|kind| kind != Kind::Samples)
    }

    fn kind(&self) -> Option<Kind> {
        self.opened.as_ref().map(|opened| opened.kind)
    }

    /// Watches the threads of all VMs, and opens the source if there are any.
    pub(crate) fn watch(&mut self, registry: &Registry) {
        let mut seen: HashSet<u32> = HashSet::new();
        let is_vm = |what: What| matches!(what, What::Vm(_));
        let mut vms = BTreeMap::new();
        let at_ns = self.read_ns.max(now_ns().saturating_sub(GRACE_NS));
        for actor in registry.actors().filter(|actor| is_vm(actor.what)) {
            let is_held = actor.state() == crate::actor::State::Held;
            vms.insert(actor.process, (Name::from(short(&actor.name)), is_held));
            for one in actor.threads.list() {
                let part = match one.thread.role {
                    Role::Vcpu(number) => Part::Vcpu(number),
                    role => Part::Helper(role.name()),
                };
                self.book.open(one.thread.tid, actor.process, part);
                self.accountant.watch(one.thread.tid, at_ns);
                seen.insert(one.thread.tid);
            }
        }
        let gone: Vec<u32> =
            self.book.threads().map(|(thread, ..)| thread).filter(|thread| !seen.contains(thread)).collect();
        self.vms_are(vms);
        self.open_or_close();
        let mut sums = self.opened.as_mut().and_then(Opened::sums);
        for thread in gone {
            sums.iter_mut().for_each(|sums| sums.forget(thread));
            self.accountant.forget(thread);
            self.book.close_thread(thread);
            self.known.remove(&thread);
        }
        if let Some(sums) = sums {
            self.book.threads().for_each(|(thread, ..)| sums.watch(thread));
        }
    }

    /// Forgets VMs that are none of these.
    fn vms_are(&mut self, vms: BTreeMap<u32, (Name, bool)>) {
        let ended: Vec<u32> = self.vms.keys().copied().filter(|vm| !vms.contains_key(vm)).collect();
        ended.into_iter().for_each(|vm| self.book.close_vm(vm));
        self.vms = vms;
    }

    /// The source while events are too many.
    fn resting(&self) -> Opened {
        Opened { kind: Kind::Samples, reader: Reader::Nothing, reason: Some(self.too_many.clone()) }
    }

    fn open_or_close(&mut self) {
        let best = match self.wanted {
            WaitSource::Bpf => Some(Kind::Bpf),
            WaitSource::Tracepoints => Some(Kind::Tracepoints),
            WaitSource::Switches => Some(Kind::Switches),
            WaitSource::Samples => Some(Kind::Samples),
            WaitSource::Off => None,
        };
        let is_resting = self.rate.rests(now_ns());
        if std::mem::replace(&mut self.is_resting, is_resting) != is_resting {
            self.close();
        }
        match best.filter(|_| !self.vms.is_empty()) {
            Some(best) if self.opened.is_none() => {
                let may_read = !is_resting || best == Kind::Samples;
                self.opened =
                    Some(if may_read { source::open(best, &preflight::online()) } else { self.resting() });
            }
            None if self.opened.is_some() => self.close(),
            _ => {}
        }
    }

    /// Reads events.
    pub(crate) fn drain(&mut self) {
        let until_ns = now_ns().saturating_sub(GRACE_NS);
        if let Some(source) = self.opened.as_mut().and_then(Opened::events) {
            source.drain(until_ns, &mut |event: Event| {
                self.rate.count(1);
                self.accountant.take(event);
            });
            self.read_ns = until_ns;
        }
        // A thread whose name does not come with the event is asked for it before it ends.
        for thread in self.accountant.take_nameless() {
            if self.book.part_of(thread).is_none() {
                self.names.who(thread, None);
            }
        }
    }

    /// Looks whether threads that sleep for long are in truth frozen or stopped, once for each sleep.
    pub(crate) fn look_at_sleepers(&mut self) {
        let mut asked: HashMap<u32, Option<Off>> = HashMap::new();
        let threads: Vec<(u32, u32)> = self.book.threads().map(|(thread, vm, _)| (thread, vm)).collect();
        for (thread, vm) in threads {
            let Some(since_ns) = self.accountant.asleep_since_ns(thread) else { continue };
            let known = self.known.entry(thread).or_default();
            let is_long = self.read_ns.saturating_sub(since_ns) >= SLEEP_NS;
            if !is_long || known.looked_ns == since_ns {
                continue;
            }
            known.looked_ns = since_ns;
            let kept = *asked.entry(vm).or_insert_with(|| self.kept(thread));
            if let Some(how) = kept {
                self.accountant.correct(thread, how);
            }
        }
    }

    /// Does Punctual hold the VM of this thread?
    fn is_held(&self, thread: u32) -> bool {
        let vm = self.book.part_of(thread).and_then(|(vm, _)| self.vms.get(&vm));
        vm.is_some_and(|(_, is_held)| *is_held)
    }

    /// What keeps a thread of a VM from running that is no wait for a processor.
    fn kept(&self, thread: u32) -> Option<Off> {
        if self.limits.is_frozen(thread) {
            return Some(if self.is_held(thread) { Off::Parked } else { Off::Frozen });
        }
        let path = self.proc.join(format!("{thread}/task/{thread}/stat"));
        let stat = std::fs::read_to_string(path).unwrap_or_default();
        let state = punctual_linux::os::proc::parse_stat(&stat)?.state;
        matches!(state, 'T' | 't').then_some(Off::Stopped)
    }

    /// Notes what KVM counted with the waits that went on meanwhile, after a sample.
    pub(crate) fn note(&mut self, counted: &[Counted]) {
        counted.iter().filter(|counted| counted.yields > 0).for_each(|counted| self.book.note(counted));
    }

    /// Accounts for the time up to now, after the counters of all threads were read.
    pub(crate) fn sample(&mut self, registry: &Registry) {
        self.watch(registry);
        let Some(kind) = self.kind() else { return };
        let threads: Vec<u32> = self.book.threads().map(|(thread, ..)| thread).collect();
        let is_new = threads.iter().any(|thread| !self.known.contains_key(thread));
        if is_new || self.samples.is_multiple_of(GROUPS_EVERY) {
            self.limits.set_threads(threads.into_iter());
        }
        self.samples += 1;
        let (now_ns, since_ns) = (now_ns(), self.sampled_ns);
        if kind == Kind::Samples {
            self.sample_counters(&counters(registry), now_ns, now_ns.saturating_sub(since_ns));
        } else {
            self.catch_up(registry);
            self.rest_if_too_many(kind, now_ns);
        }
        if self.samples.is_multiple_of(NAMES_EVERY) {
            self.names.forget();
        }
        self.sampled_ns = now_ns;
    }

    /// Takes samples for a while where too much happens.
    fn rest_if_too_many(&mut self, kind: Kind, now_ns: u64) {
        let (max, what) = match kind {
            Kind::Bpf => (rate::WAKEUPS_MAX * self.processors.len() as u64, "wake-ups"),
            Kind::Tracepoints | Kind::Switches | Kind::Samples => (rate::EVENTS_MAX, "events"),
        };
        if self.rate.sample(now_ns, max) {
            self.too_many = format!("more than {max} {what} a second cost too much; again in 10 minutes");
            self.open_or_close();
        }
    }

    /// Accounts for the time up to now, if events or sums say what happened.
    pub(crate) fn catch_up(&mut self, registry: &Registry) {
        if self.is_reading() {
            self.drain();
            self.look_at_sleepers();
            self.sample_events(&counters(registry));
        } else if self.kind() == Some(Kind::Bpf) {
            self.sample_sums(&counters(registry));
        }
    }

    /// Hands over how long each VM had each processor since the last call: processor, VM, time in ns. False
    /// where no events tell.
    pub(crate) fn take_used(&mut self, mut take: impl FnMut(u32, u32, u64)) -> bool {
        let book = &self.book;
        self.accountant.take_used(|processor, thread, ns| {
            if let Some((vm, _)) = book.part_of(thread) {
                take(processor, vm, ns);
            }
        });
        self.sees_switches()
    }

    fn sample_events(&mut self, counters: &HashMap<u32, SchedStat>) {
        let account = self.accountant.account(self.read_ns);
        for out in &account.outs {
            if let Out::Segment(segment) = out
                && !matches!(segment.because, Because::Off(_))
            {
                self.known.entry(segment.thread).or_default().ready_ns += segment.length_ns();
            }
        }
        let members = self.members();
        self.write(&account, &members);
        self.infer(&account, counters);
        self.count_taken(counters);
    }

    /// Accounts for what the kernel added up.
    fn sample_sums(&mut self, counters: &HashMap<u32, SchedStat>) {
        let now_ns = now_ns();
        let Some(sums) = self.opened.as_mut().and_then(Opened::sums) else { return };
        let mut taken = sums.take(now_ns);
        let since_ns = std::mem::replace(&mut self.read_ns, now_ns);
        self.tell_parked(&mut taken);
        let Taken { seen, sums, told } = taken;
        for one in &seen {
            self.rate.count(one.latency.count());
            self.accountant.adopt(one.thread, one.processor, &one.had_ns);
            self.book.add_latency(one.thread, &one.latency);
        }
        let members = self.members();
        self.write(&told, &members);
        for sum in sums {
            let Some((vm, _)) = self.book.part_of(sum.thread) else { continue };
            let called = (sum.name[0] != 0).then_some(sum.name);
            let who = |thread| match members.get(&thread) {
                Some(who) => who.clone(),
                None => self.names.who(thread, called),
            };
            if let Some(by) = cause_of(sum.because, vm, who) {
                self.book.add(sum.thread, by, now_ns, sum.ns);
            }
        }
        for one in &seen {
            self.book.add_spins(one.thread, one.spins, (since_ns, now_ns));
        }
        self.count_taken(counters);
        self.set_thresholds(now_ns);
    }

    /// Tells the kernel which short waits need a story.
    fn set_thresholds(&mut self, now_ns: u64) {
        let Some(sums) = self.opened.as_mut().and_then(Opened::sums) else { return };
        let mut thresholds = HashMap::new();
        for (thread, vm, _) in self.book.threads() {
            let of_vm = || self.book.threshold_ns(vm, now_ns);
            sums.set_threshold(thread, *thresholds.entry(vm).or_insert_with(of_vm));
        }
    }

    /// The kernel does not know who froze a thread.
    fn tell_parked(&self, taken: &mut Taken) {
        let Taken { sums, told, .. } = taken;
        let segments = told.outs.iter_mut().filter_map(|out| match out {
            Out::Segment(segment) => Some((segment.thread, &mut segment.because)),
            Out::Ended(_) => None,
        });
        let all = sums.iter_mut().map(|sum| (sum.thread, &mut sum.because)).chain(segments);
        for (thread, because) in all.filter(|(_, because)| **because == Because::Off(Off::Frozen)) {
            if self.is_held(thread) {
                *because = Because::Off(Off::Parked);
            }
        }
    }

    /// The threads of VMs, by what people call them.
    fn members(&self) -> ById<Who> {
        self.book.threads().map(|(thread, vm, part)| (thread, member(vm, part, &self.vms))).collect()
    }

    /// Writes an account into the book.
    fn write(&mut self, account: &Account, members: &ById<Who>) {
        let limits = self.limits.take();
        let names = &mut self.names;
        let mut who = |thread: u32, called: Option<[u8; 16]>| match members.get(&thread) {
            Some(who) => who.clone(),
            None => names.who(thread, called),
        };
        self.book.take(account, Window { who: &mut who, limits });
    }

    /// Waits after wake-ups that nobody saw: the kernel knows how long they were, switches who ran before.
    fn infer(&mut self, account: &Account, counters: &HashMap<u32, SchedStat>) {
        let mut before: HashMap<u32, Vec<(Because, u64)>> = HashMap::new();
        for out in &account.outs {
            if let Out::Ended(ended) = out
                && let Some((because, since_ns)) = ended.after
            {
                let most_ns = ended.until_ns - since_ns.max(ended.from_ns);
                before.entry(ended.thread).or_default().push((because, most_ns));
            }
        }
        for (thread, all) in before {
            let (Some(total), Some(known)) = (counters.get(&thread), self.known.get_mut(&thread)) else {
                continue;
            };
            if known.base == SchedStat::default() {
                continue;
            }
            let waited_ns = total.since(&known.base).waited.as_ns();
            let missing_ns = waited_ns.saturating_sub(known.ready_ns);
            let weights: Vec<u64> = all.iter().map(|(_, ns)| *ns).collect();
            let most_ns: u64 = weights.iter().sum();
            let parts = share::split(missing_ns.min(most_ns), &weights);
            known.ready_ns += parts.iter().sum::<u64>();
            for ((because, _), ns) in all.into_iter().zip(parts) {
                let called = if let Because::Behind(other) = because {
                    account.names.get(&other).filter(|name| name[0] != 0).copied()
                } else {
                    None
                };
                self.add(thread, because, called, ns);
            }
        }
    }

    fn add(&mut self, thread: u32, because: Because, called: Option<[u8; 16]>, ns: u64) {
        let Some((vm, _)) = self.book.part_of(thread) else { return };
        let (names, vms, book) = (&mut self.names, &self.vms, &self.book);
        let who = |other: u32| match book.part_of(other) {
            Some((vm, part)) => member(vm, part, vms),
            None => names.who(other, called),
        };
        if let Some(by) = cause_of(because, vm, who) {
            self.book.add(thread, by, self.read_ns.max(self.sampled_ns), ns);
        }
    }

    /// What a hypervisor below or interrupts took while a thread had a processor: the kernel leaves it out of
    /// the thread's account, and switches do not know of it.
    fn count_taken(&mut self, counters: &HashMap<u32, SchedStat>) {
        let loads = load::loads(&self.processors).unwrap_or_default();
        let mut left: HashMap<u32, Load> = HashMap::new();
        for (index, processor) in self.processors.iter().enumerate() {
            if let (Some(now), Some(before)) = (loads.get(index), self.loads.get(index)) {
                let mut taken = *now - *before;
                taken.steal_ns *= u64::from(self.kernel_knows.0);
                taken.interrupts_ns *= u64::from(self.kernel_knows.1);
                left.insert(*processor as u32, taken);
            }
        }
        self.loads = loads;
        for (thread, total) in counters {
            let Some(ran_ns) = self.accountant.ran_ns(*thread) else { continue };
            let known = self.known.entry(*thread).or_default();
            known.last = *total;
            if known.base == SchedStat::default() {
                (known.base, known.taken_ns, known.ready_ns) = (*total, ran_ns, 0);
                continue;
            }
            let own_ns = total.since(&known.base).ran.as_ns() + known.taken_ns;
            let excess_ns = ran_ns.saturating_sub(own_ns).saturating_sub(SLACK_NS);
            let place = self.accountant.processor_of(*thread).and_then(|place| left.get_mut(&place));
            let Some(place) = place.filter(|_| excess_ns > 0) else { continue };
            let stolen_ns = excess_ns.min(place.steal_ns);
            let interrupts_ns = (excess_ns - stolen_ns).min(place.interrupts_ns);
            place.steal_ns -= stolen_ns;
            place.interrupts_ns -= interrupts_ns;
            known.taken_ns += stolen_ns + interrupts_ns;
            self.book.add(*thread, (Cause::Standstill, None), self.read_ns, stolen_ns);
            self.book.add(*thread, (Cause::Interrupt, None), self.read_ns, interrupts_ns);
        }
    }

    /// Without events: shares out what each thread waited since the last sample.
    fn sample_counters(&mut self, counters: &HashMap<u32, SchedStat>, now_ns: u64, interval_ns: u64) {
        self.read_ns = now_ns;
        let threads: Vec<(u32, u32)> = self.book.threads().map(|(thread, vm, _)| (thread, vm)).collect();
        let limits = self.limits.take();
        let waited = |known: &Known, total: &SchedStat| total.since(&known.last).waited.as_ns();
        let is_waiting = threads.iter().any(|(thread, _)| {
            let both = self.known.get(thread).zip(counters.get(thread));
            both.is_some_and(|(known, total)| waited(known, total) * 100 > interval_ns)
        });
        // All threads of the machine are looked at only while somebody waits.
        let ran = if is_waiting { self.busy.take() } else { Vec::new() };
        if !is_waiting {
            self.busy.forget();
        }
        let mut asked: HashMap<u32, Option<Off>> = HashMap::new();
        for (thread, vm) in threads {
            let Some(total) = counters.get(&thread).copied() else { continue };
            let is_first = !self.known.contains_key(&thread);
            let known = self.known.entry(thread).or_default();
            let since = total.since(&known.last);
            known.last = total;
            if is_first {
                continue;
            }
            let was_kept = known.was_kept;
            // A VM is stopped, and as a rule frozen, as a whole.
            let kept = *asked.entry(vm).or_insert_with(|| self.kept(thread));
            self.known.entry(thread).or_default().was_kept = kept;
            let limit_ns =
                limits.iter().find(|(_, threads)| threads.contains(&thread)).map_or(0, |(ns, _)| *ns);
            self.share_out(thread, since, limit_ns, &ran);
            if let Some(how) = kept.filter(|_| kept == was_kept || since.ran.as_ns() * 10 < interval_ns * 9) {
                let off_ns = interval_ns.saturating_sub(since.ran.as_ns() + since.waited.as_ns());
                self.add(thread, Because::Off(how), None, off_ns);
            }
        }
    }

    fn share_out(&mut self, thread: u32, since: SchedStat, limit_ns: u64, ran: &[Ran]) {
        let waited_ns = since.waited.as_ns();
        let throttled_ns = waited_ns.min(limit_ns);
        self.book.add(thread, (Cause::Throttled, None), self.read_ns, throttled_ns);
        let waited_ns = waited_ns - throttled_ns;
        if waited_ns == 0 {
            return;
        }
        let stat = std::fs::read_to_string(self.proc.join(format!("{thread}/task/{thread}/stat")));
        let place = stat.ok().and_then(|stat| punctual_linux::os::proc::parse_processor(&stat));
        let others: Vec<&Ran> = ran
            .iter()
            .filter(|ran| ran.thread != thread && place.is_some_and(|place| ran.processor as usize == place))
            .collect();
        let weights: Vec<u64> = others.iter().map(|ran| ran.ran_ns).collect();
        let parts = share::split(waited_ns, &weights);
        let unknown_ns = waited_ns - parts.iter().sum::<u64>();
        for (ran, ns) in others.into_iter().zip(parts) {
            self.add(thread, Because::Behind(ran.thread), None, ns);
        }
        self.add(thread, Because::Unseen, None, unknown_ns);
    }
}

/// The kernel's account of each thread, as of the last sample.
fn counters(registry: &Registry) -> HashMap<u32, SchedStat> {
    let all = registry.actors().flat_map(|actor| actor.threads.list());
    all.map(|one| (one.thread.tid, one.total)).collect()
}

/// So much of a name, in bytes, that many of them fit into a reply.
const NAME_BYTES_MAX: usize = 120;

/// The begin of a name, which is a stranger's text of any length.
pub(crate) fn short(name: &str) -> &str {
    &name[..name.floor_char_boundary(NAME_BYTES_MAX)]
}

/// A thread of a VM.
fn member(vm: u32, part: Part, vms: &BTreeMap<u32, (Name, bool)>) -> Who {
    let name = vms.get(&vm).map_or("?", |(name, _)| name);
    match part {
        Part::Vcpu(number) => Who::Vcpu(vm, format!("VM {name} vCPU {number}").into()),
        Part::Helper(role) => Who::Helper(vm, format!("VM {name} {role}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source with so many events in each read.
    #[derive(Debug)]
    struct Many(u64);

    impl source::Source for Many {
        fn drain(&mut self, until_ns: u64, take: &mut dyn FnMut(Event)) {
            (0..self.0).for_each(|_| take(Event::Wake { at_ns: until_ns, processor: 0, thread: 1 }));
        }

        fn lost(&self) -> u64 {
            0
        }
    }

    fn reading(events: u64) -> Waits {
        let mut waits = Waits::new(Path::new("/proc"), WaitSource::Tracepoints);
        waits.vms.insert(1, ("vm".into(), false));
        let source: Box<dyn source::Source> = Box::new(Many(events));
        let reader = Reader::Events(source);
        waits.opened = Some(Opened { kind: Kind::Tracepoints, reader, reason: None });
        waits
    }

    /// The samples come one after the other here, so a few events are too many.
    #[test]
    fn where_events_are_too_many_samples_are_taken_and_the_reason_is_said() {
        let mut waits = reading(1_000);
        for _ in 0..8 {
            waits.drain();
            waits.rest_if_too_many(Kind::Tracepoints, now_ns());
        }
        let opened = waits.opened.as_ref().expect("a source");
        assert_eq!((opened.kind, waits.is_reading()), (Kind::Samples, false));
        assert!(opened.reason.as_ref().is_some_and(|why| why.contains("20000 events a second")));
        // With another choice in the configuration events are read again.
        waits.set_source(WaitSource::Switches);
        assert!(!waits.rate.rests(now_ns()));
    }

    #[test]
    fn programs_in_the_kernel_may_see_so_many_wakeups_for_each_processor() {
        let second_ns = 1_000_000_000;
        for (wakeups, is_resting) in [(20_000, false), (20_001, true)] {
            let mut waits = reading(0);
            waits.wanted = WaitSource::Bpf;
            waits.processors = vec![0, 1];
            for second in 0..4 {
                // What a look of the first second counts is of longer.
                waits.rate.count(if second == 0 { 0 } else { wakeups });
                waits.rest_if_too_many(Kind::Bpf, now_ns() + second * second_ns);
            }
            let reason = waits.opened.as_ref().and_then(|opened| opened.reason.clone());
            let expected = "more than 20000 wake-ups a second cost too much; again in 10 minutes";
            assert_eq!(reason.as_deref(), is_resting.then_some(expected));
        }
    }
}
