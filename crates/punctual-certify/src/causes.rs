//! Who had the processor during a long latency.
//!
//! `History` is pure: switches of one processor in, the parts of an interval out. `Watch` is the thread that
//! reads switches (`punctual_service::waits::Occupants`) and the latencies that the measuring threads hand
//! over, on processors that are not measured.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use punctual_guest::latency::{Kind, Slow, WORST};
use punctual_linux::os::sched;
use punctual_service::waits::{Handover, Occupants};

use crate::certificate::{Cause, CauseKind};

/// How often switches are read: far more often than the source's buffers fill (see
/// `punctual_service::waits`).
const READ_EVERY: Duration = Duration::from_millis(25);
/// A switch is read at the latest so long after it happened.
const GRACE_NS: u64 = 50_000_000;
/// Switches that are kept of a processor: 60,000 a second for a second.
const KEPT: usize = 65_536;
/// Latencies that wait to be explained: each thread hands over its ten longest, and a longer one replaces
/// them more and more rarely.
const WAITING: usize = 4_096;
/// Parts of a latency that are named.
const PARTS: usize = 4;

/// A latency that is to be explained.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) processor: usize,
    pub(crate) kind: Kind,
    pub(crate) slow: Slow,
    /// The measuring thread.
    pub(crate) thread: u32,
}

/// Who had the processor for how long; `None`: nobody knows.
type Part = (Option<(u32, [u8; 16])>, u64);

/// The switches of a processor that were read last.
#[derive(Debug, Default)]
struct History {
    /// When, who came, and what the one that left was called.
    handovers: VecDeque<Handover>,
}

impl History {
    fn take(&mut self, handover: Handover) {
        if self.handovers.len() == KEPT {
            self.handovers.pop_front();
        }
        self.handovers.push_back(handover);
    }

    /// Who had the processor in an interval, by thread, the longest first. `at_end` is known to have it at
    /// the end: some kernels do not record how a thread came to an idle processor.
    fn parts(&self, from_ns: u64, until_ns: u64, at_end: Option<u32>) -> Vec<Part> {
        let begin = self.handovers.partition_point(|one| one.at_ns <= from_ns);
        let mut parts: Vec<Part> = Vec::new();
        let mut add = |who: Option<(u32, [u8; 16])>, time_ns: u64| {
            let same = |one: &&mut Part| one.0.map(|(thread, _)| thread) == who.map(|(thread, _)| thread);
            match parts.iter_mut().find(same) {
                Some(part) => part.1 += time_ns,
                None if time_ns > 0 => parts.push((who, time_ns)),
                None => {}
            }
        };
        let mut at_ns = from_ns;
        for one in self.handovers.iter().skip(begin).take_while(|one| one.at_ns < until_ns) {
            // The thread that leaves had it, even if another one came before: some kernels miss switches.
            let who = one.to.is_some().then_some((one.from, one.from_name));
            add(who, one.at_ns - at_ns);
            at_ns = one.at_ns;
        }
        let end = self.handovers.partition_point(|one| one.at_ns < until_ns);
        let came = end.checked_sub(1).and_then(|last| self.handovers.get(last)).and_then(|last| last.to);
        // Its name comes with the switch away from it.
        let named = |thread: u32| match self.handovers.get(end) {
            Some(after) if after.from == thread => (thread, after.from_name),
            _ => (thread, [0; 16]),
        };
        add(at_end.or(came).map(named), until_ns.saturating_sub(at_ns));
        parts.sort_by_key(|(_, time_ns)| std::cmp::Reverse(*time_ns));
        parts
    }
}

/// The parts of a latency as causes: the idle thread is no thread, nor is the one that measures.
fn causes(parts: Vec<Part>, measuring: u32, name: &mut dyn FnMut(u32, [u8; 16]) -> String) -> Vec<Cause> {
    let known = parts.into_iter().filter_map(|(who, time_ns)| Some((who?, time_ns)));
    let cause = |((thread, called), time_ns)| match thread {
        0 => Cause { kind: CauseKind::Idle, who: String::new(), time_ns },
        thread if thread == measuring => Cause { kind: CauseKind::Itself, who: String::new(), time_ns },
        thread => Cause { kind: CauseKind::Thread, who: name(thread, called), time_ns },
    };
    known.take(PARTS).map(cause).collect()
}

/// A thread in words: its name, class and id.
fn described(occupants: &mut Occupants, thread: u32, called: [u8; 16]) -> String {
    let name = occupants.name(thread, called);
    let class = sched::attributes(thread.cast_signed()).ok();
    let class = class.map(|class| match class.priority {
        0 => format!("{}, ", class.policy_name()),
        priority => format!("{} {priority}, ", class.policy_name()),
    });
    format!("{name} ({}thread {thread})", class.unwrap_or_default())
}

/// The explained latencies: by processor and kind, by the instant of the latency's end.
#[derive(Debug, Default)]
pub(crate) struct Answers(BTreeMap<(usize, u8, u64), Vec<Cause>>);

impl Answers {
    /// The causes of a latency; nothing if nobody knows.
    pub(crate) fn of(&self, processor: usize, kind: Kind, at_ns: u64) -> Vec<Cause> {
        self.0.get(&(processor, kind as u8, at_ns)).cloned().unwrap_or_default()
    }

    /// Adds an answer, and forgets those that are no longer among the longest of their kind.
    fn add(
        &mut self,
        question: &Question,
        causes: Vec<Cause>,
        longest: &mut BTreeMap<(usize, u8), Vec<Slow>>,
    ) {
        let Question { processor, kind, slow, .. } = *question;
        let key = (processor, kind as u8);
        let of_kind = longest.entry(key).or_default();
        let at = of_kind.partition_point(|other| other.length_ns >= slow.length_ns);
        of_kind.insert(at, slow);
        self.0.insert((processor, kind as u8, slow.at_ns), causes);
        if of_kind.len() > WORST
            && let Some(shortest) = of_kind.pop()
        {
            self.0.remove(&(processor, kind as u8, shortest.at_ns));
        }
    }
}

/// The thread that explains latencies.
pub(crate) struct Watch {
    sender: SyncSender<Question>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Answers>,
}

impl Watch {
    /// Begins to watch these processors. Returns how causes are known as well, in words.
    pub(crate) fn start(processors: &[usize], now_ns: fn() -> u64) -> (Option<Watch>, String) {
        let (sender, receiver) = sync_channel(WAITING);
        let stop = Arc::new(AtomicBool::new(false));
        let (own_stop, measured) = (stop.clone(), processors.to_vec());
        let (opened, open) = sync_channel(1);
        let work = move || {
            // Not where it would disturb what is measured, if there is another place.
            let elsewhere = sched::affinity(0).unwrap_or_default();
            let elsewhere: Vec<usize> = elsewhere.into_iter().filter(|cpu| !measured.contains(cpu)).collect();
            let _ = sched::set_affinity(0, &elsewhere);
            let occupants = Occupants::open(&measured);
            let (name, reason) = occupants.source();
            // The caller waits for it.
            let _ = opened.send((name, reason.map(str::to_owned)));
            if name.is_some() { watch(occupants, &receiver, &own_stop, now_ns) } else { Answers::default() }
        };
        let thread = match std::thread::Builder::new().name("causes".into()).spawn(work) {
            Ok(thread) => thread,
            Err(error) => return (None, format!("not known: {error}")),
        };
        match open.recv() {
            Ok((Some(name), reason)) => {
                let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
                (Some(Watch { sender, stop, thread }), format!("the kernel's {name}{reason}"))
            }
            Ok((None, reason)) => (None, format!("not known: {}", reason.unwrap_or_default())),
            Err(_) => (None, "not known: the thread that reads switches has ended".into()),
        }
    }

    /// Where measuring threads hand latencies over.
    pub(crate) fn sender(&self) -> SyncSender<Question> {
        self.sender.clone()
    }

    /// Ends it, after everything that was handed over is explained.
    pub(crate) fn finish(self) -> Answers {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

fn watch(
    mut occupants: Occupants,
    receiver: &Receiver<Question>,
    stop: &AtomicBool,
    now_ns: fn() -> u64,
) -> Answers {
    let mut histories: BTreeMap<u32, History> = BTreeMap::new();
    let mut waiting: VecDeque<Question> = VecDeque::new();
    let (mut answers, mut longest) = (Answers::default(), BTreeMap::new());
    loop {
        // Before switches are read: all that was handed over until here is explained below.
        let is_over = stop.load(Ordering::Relaxed);
        if is_over {
            std::thread::sleep(Duration::from_nanos(GRACE_NS));
        }
        waiting.extend(receiver.try_iter());
        let now = now_ns();
        occupants.drain(now, &mut |handover| {
            histories.entry(handover.processor).or_default().take(handover);
        });
        while let Some(question) = waiting.pop_front() {
            let Question { processor, kind, slow, thread } = question;
            if !is_over && slow.at_ns + GRACE_NS > now {
                waiting.push_front(question);
                break;
            }
            let history = histories.entry(processor as u32).or_default();
            // Who spins sees the end of a gap at once; who wakes up has its processor for a moment.
            let at_end = (kind != Kind::Wakeup).then_some(thread);
            let parts = history.parts(slow.at_ns.saturating_sub(slow.length_ns), slow.at_ns, at_end);
            let named =
                causes(parts, thread, &mut |thread, called| described(&mut occupants, thread, called));
            answers.add(&question, named, &mut longest);
        }
        if is_over {
            return answers;
        }
        std::thread::sleep(READ_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handover(at_ns: u64, from: u32, to: u32) -> Handover {
        let mut from_name = [0; 16];
        from_name[0] = b'a' + from as u8;
        Handover { at_ns, processor: 1, from, from_name, to: Some(to) }
    }

    fn named(history: &History, from_ns: u64, until_ns: u64) -> Vec<(CauseKind, String, u64)> {
        let name =
            &mut |thread: u32, called: [u8; 16]| format!("{}{thread}", char::from(called[0].max(b'?')));
        let all = causes(history.parts(from_ns, until_ns, None), 9, name);
        all.into_iter().map(|cause| (cause.kind, cause.who, cause.time_ns)).collect()
    }

    #[test]
    fn a_latency_is_divided_among_those_who_had_the_processor() {
        let mut history = History::default();
        [handover(100, 0, 7), handover(900, 7, 0), handover(950, 0, 9), handover(1_200, 9, 8)]
            .into_iter()
            .for_each(|one| history.take(one));
        // Due at 200, ran at 1,000.
        let expected = [
            (CauseKind::Thread, "h7".to_owned(), 700),
            (CauseKind::Idle, String::new(), 50),
            (CauseKind::Itself, String::new(), 50),
        ];
        assert_eq!(named(&history, 200, 1_000), expected);
        // While it has the processor.
        assert_eq!(named(&history, 1_000, 1_100), [(CauseKind::Itself, String::new(), 100)]);
        // After the last switch.
        assert_eq!(named(&history, 1_300, 1_400), [(CauseKind::Thread, "?8".to_owned(), 100)]);
        // Nobody knows who had it before the first one.
        assert_eq!(named(&History::default(), 0, 50), []);
    }

    #[test]
    fn a_thread_that_spins_has_the_processor_at_the_end_whatever_was_recorded() {
        let mut history = History::default();
        history.take(handover(100, 9, 0));
        history.take(handover(700, 9, 0));
        let parts = history.parts(300, 400, Some(9));
        let who: Vec<Option<u32>> = parts.iter().map(|(who, _)| who.map(|(thread, _)| thread)).collect();
        assert_eq!(who, [Some(9)]);
        assert_eq!(named(&history, 300, 400), [(CauseKind::Idle, String::new(), 100)]);
    }

    #[test]
    fn lost_switches_are_no_cause() {
        let mut history = History::default();
        history.take(handover(100, 0, 7));
        history.take(Handover { to: None, ..handover(500, 7, 0) });
        history.take(handover(600, 7, 9));
        assert_eq!(named(&history, 50, 560), [(CauseKind::Idle, String::new(), 50)]);
    }

    #[test]
    fn answers_are_kept_of_the_longest_alone() {
        let (mut answers, mut longest) = (Answers::default(), BTreeMap::new());
        for length_ns in 1..=30 {
            let slow = Slow { at_ns: length_ns * 10, length_ns };
            let question = Question { processor: 1, kind: Kind::Noise, slow, thread: 9 };
            let cause = Cause { kind: CauseKind::Idle, who: String::new(), time_ns: length_ns };
            answers.add(&question, vec![cause], &mut longest);
        }
        let kept = (1..=30).filter(|at| !answers.of(1, Kind::Noise, at * 10).is_empty()).count();
        assert_eq!((kept, answers.of(1, Kind::Noise, 300).len()), (WORST, 1));
        assert!(answers.of(1, Kind::Wakeup, 300).is_empty());
    }
}
