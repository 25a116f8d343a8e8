//! The watchdog's check that each unit is where the run put it: in its group, on its processors, in the
//! scheduling class that the enforcer gave it.
//!
//! Another program may change all three at any time (libvirt, systemd, an operator), and a unit may change
//! its own affinity without any right. A unit outside its group has a real-time priority and no budget, and
//! one on other processors takes them from the host. What differs is put back. A thread outside its group is
//! in the fair class until it is back. A unit that cannot be put back, or deviates [`DEVIATIONS_MAX`] times
//! within [`DEVIATIONS_WITHIN`], is given up: it is in the fair class from then on.
//!
//! The watchdog gives no real-time priority: an enforcer, which may just be releasing the unit, does. Nothing
//! here waits for a lock that a unit may hold; what may wait is left to the [`Mover`].

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use super::mover::{Mover, Reply, Request};
use super::pool::Command;
use super::shared::{Shared, UnitMembers};
use crate::journal::Identity;
use crate::notice::Notice;
use crate::unit::{
    DEVIATIONS_MAX, DEVIATIONS_WITHIN, Deviation, Error, HIGHEST, LOWEST, UnitCounters, UnitThreads,
};
use punctual_linux::os::sched::{self, Attributes};
use punctual_linux::os::{cgroup, proc};

/// How often all units are checked.
const INTERVAL: StdDuration = StdDuration::from_millis(50);
/// The checks of very many units take at most one part in this many of a processor.
const SHARE: u32 = 5;
/// For so long a unit that deviated is checked at each tick of the watchdog.
const ALERT: StdDuration = StdDuration::from_secs(1);

/// The checks of a pool's units.
pub(super) struct Placement {
    shared: Arc<Shared>,
    commands: Sender<Command>,
    notices: Sender<Notice>,
    mover: Mover,
    /// By the first thread of each unit.
    watched: HashMap<Identity, Watched>,
    /// [`Shared::units_changes`] when `watched` was brought up to date.
    changes: u64,
    next: StdInstant,
}

/// What is known of a unit from one check to the next.
struct Watched {
    unit: UnitMembers,
    state: State,
    /// The threads in its group at the last check; `None` before the first one.
    inside: Option<Vec<i32>>,
    /// The same at the check before that.
    before: Option<Vec<i32>>,
    /// Was its class another one at the last check? An enforcer may have been changing it.
    is_suspect: bool,
    deviations: Deviations,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    InPlace,
    /// The mover has a request for its thread.
    Moving,
    /// It gets no real-time priority until an enforcer has released it.
    GivenUp,
    /// Its thread has ended, and its process has not collected it yet.
    Ended,
}

/// When a unit deviated, within [`DEVIATIONS_WITHIN`].
#[derive(Default)]
struct Deviations(VecDeque<StdInstant>);

impl Deviations {
    /// Adds one; are they too many?
    fn add(&mut self, now: StdInstant) -> bool {
        self.0.push_back(now);
        self.0.retain(|at| now - *at < DEVIATIONS_WITHIN);
        self.0.len() >= DEVIATIONS_MAX
    }

    fn last(&self) -> Option<StdInstant> {
        self.0.back().copied()
    }
}

/// What a check found.
enum Finding {
    /// It has been put back, but for its class.
    Deviated(Deviation),
    /// Its class may be another one: to be checked again at the next tick.
    Suspect,
    GiveUp(Error),
}

impl Placement {
    /// # Errors
    /// The mover's thread cannot be started.
    pub(super) fn new(
        shared: Arc<Shared>,
        commands: Sender<Command>,
        notices: Sender<Notice>,
    ) -> io::Result<Placement> {
        let mover = Mover::start(shared.clone(), commands.clone())?;
        let (watched, next) = (HashMap::new(), StdInstant::now());
        Ok(Placement { shared, commands, notices, mover, watched, changes: 0, next })
    }

    /// Checks the units that are due. The watchdog calls it at each of its ticks.
    pub(super) fn tick(&mut self) {
        self.update();
        while let Ok(reply) = self.mover.replies.try_recv() {
            self.moved(reply);
        }
        let began = StdInstant::now();
        let is_round = began >= self.next;
        let due = |watched: &Watched| is_round || watched.is_urgent(began);
        let due: Vec<Identity> =
            self.watched.iter().filter(|(_, watched)| due(watched)).map(|(unit, _)| *unit).collect();
        for unit in due {
            self.check(unit);
        }
        if is_round {
            self.next = began + (began.elapsed() * SHARE).max(INTERVAL);
        }
    }

    /// Follows units that came and went.
    fn update(&mut self) {
        let changes = self.shared.units_changes.load(Ordering::Acquire);
        if std::mem::replace(&mut self.changes, changes) == changes {
            return;
        }
        // Without the lock from here on: enforcers take it.
        let units = self.shared.units().clone();
        let mut before = std::mem::take(&mut self.watched);
        let watch = |unit: UnitMembers| {
            let identity = unit.kind().identity();
            (identity, before.remove(&identity).unwrap_or_else(|| Watched::new(unit)))
        };
        self.watched = units.into_iter().map(watch).collect();
    }

    fn check(&mut self, unit: Identity) {
        let Some(watched) = self.watched.get_mut(&unit) else { return };
        let was_suspect = std::mem::replace(&mut watched.is_suspect, false);
        let is_demoted = self.shared.demoted.load(Ordering::SeqCst);
        if let Some(threads) = watched.leave() {
            self.mover.request(Request { unit: watched.unit.clone(), threads });
        }
        match watched.check(was_suspect, is_demoted) {
            None => {}
            Some(Finding::Suspect) => watched.is_suspect = true,
            Some(Finding::Deviated(deviation)) => self.count(unit, deviation),
            Some(Finding::GiveUp(error)) => self.give_up(unit, error),
        }
    }

    /// The mover is done with a unit.
    fn moved(&mut self, Reply { unit, moved }: Reply) {
        let Some(watched) = self.watched.get_mut(&unit) else { return };
        if watched.state == State::GivenUp {
            return;
        }
        match moved {
            // Threads of a tree come and go.
            Ok(0) if watched.state == State::Moving => watched.state = State::Ended,
            Ok(0) => {}
            Ok(_) => {
                watched.state = State::InPlace;
                watched.unit.counters.is_displaced.store(false, Ordering::SeqCst);
                self.count(unit, Deviation::Group);
            }
            Err(source) => self.give_up(unit, Error::Displaced { deviation: Deviation::Group, source }),
        }
    }

    /// A unit has been put back, but for its class, which an enforcer gives it.
    fn count(&mut self, unit: Identity, deviation: Deviation) {
        let Some(watched) = self.watched.get_mut(&unit) else { return };
        if watched.deviations.add(StdInstant::now()) {
            return self.give_up(unit, Error::Contested(deviation));
        }
        watched.unit.counters.given.forget();
        let unit = watched.unit.name.clone();
        // Fails only when the run does not read notices any more.
        let _ = self.notices.send(Notice::PutBack { unit, deviation, times: 1 });
        self.shared.demoted.store(true, Ordering::SeqCst);
        self.shared.wake_enforcers();
    }

    /// Ends the enforcement of a unit.
    fn give_up(&mut self, unit: Identity, error: Error) {
        let Some(watched) = self.watched.get_mut(&unit) else { return };
        watched.state = State::GivenUp;
        watched.lower();
        // Fails only when every enforcer has ended.
        let _ = self.commands.send(Command::GiveUp(watched.unit.name.clone(), error));
        self.shared.wake_enforcers();
    }
}

impl Watched {
    fn new(unit: UnitMembers) -> Watched {
        Watched {
            unit,
            state: State::InPlace,
            inside: None,
            before: None,
            is_suspect: false,
            deviations: Deviations::default(),
        }
    }

    /// Is it checked at each tick?
    fn is_urgent(&self, now: StdInstant) -> bool {
        self.is_suspect
            || matches!(self.state, State::Moving | State::GivenUp)
            || self.deviations.last().is_some_and(|last| now - last < ALERT)
    }

    /// Lists the threads in its group, and returns those that are there no more, though they may have ended.
    /// They are in the fair class.
    fn leave(&mut self) -> Option<Vec<i32>> {
        if self.state != State::InPlace {
            return None;
        }
        // A crowd has no real-time priority.
        if self.unit.counters.is_crowd.load(Ordering::Relaxed) {
            self.inside = None;
            self.before = None;
            return None;
        }
        self.before = self.inside.replace(threads_in(&self.unit.group));
        let inside = self.inside.as_deref().unwrap_or_default();
        let is_outside = |tid: &i32| inside.binary_search(tid).is_err() && sched::attributes(*tid).is_ok();
        let outside: Vec<i32> = match self.unit.kind() {
            UnitThreads::Thread(thread) => [thread.id].into_iter().filter(is_outside).collect(),
            UnitThreads::ProcessTree(_) => self.before.iter().flatten().copied().filter(is_outside).collect(),
        };
        if outside.is_empty() {
            return None;
        }
        if let UnitThreads::Thread(_) = self.unit.kind() {
            self.state = State::Moving;
            self.unit.counters.is_displaced.store(true, Ordering::SeqCst);
        }
        outside.iter().copied().for_each(lower);
        Some(outside)
    }

    /// Checks the threads in its group and puts back their affinity. `is_demoted`: an enforcer has yet to
    /// give units their classes.
    fn check(&mut self, was_suspect: bool, is_demoted: bool) -> Option<Finding> {
        match self.state {
            State::InPlace => {}
            // An enforcer that did not know yet may have given it a priority.
            State::Moving | State::GivenUp => {
                self.lower();
                return None;
            }
            State::Ended => return None,
        }
        let inside = self.inside.as_deref()?;
        let own = match self.unit.kind() {
            // The kernel charges whatever is in its group.
            _ if self.is_in_kernel() => inside,
            UnitThreads::Thread(thread) => {
                // What it started shares its group and priority, and only its own time is charged.
                let others = inside.iter().copied().filter(|tid| *tid != thread.id);
                others.filter(|tid| has_priority_of_unit(*tid)).for_each(lower);
                &[thread.id][..]
            }
            UnitThreads::ProcessTree(_) => inside,
        };
        if self.lets_killed_ones_die(own) {
            return None;
        }
        match place(own, &self.unit.processors) {
            // At first, threads that were started while the unit was confined have the affinity of before.
            Ok(true) if self.before.is_some() => Some(Finding::Deviated(Deviation::Affinity)),
            Ok(_) if is_demoted => None,
            Ok(_) => self.check_class(own, was_suspect),
            Err(source) => Some(Finding::GiveUp(Error::Displaced { deviation: Deviation::Affinity, source })),
        }
    }

    /// Has each of its threads the class that the enforcer gave it? Those of another class than that are put
    /// into the fair class once that was seen twice.
    fn check_class(&self, own: &[i32], was_suspect: bool) -> Option<Finding> {
        let given = self.unit.counters.given.read();
        let class = given.class()?;
        let first = self.unit.kind().identity().id;
        let deviates = |tid: &i32| {
            let Ok(now) = sched::attributes(*tid) else { return false };
            // What a process starts inherits a class that may be an earlier one by now. Beside units in the
            // kernel a fair thread would come first.
            let may_differ = *tid != first && class.policy != sched::EXT;
            let is_inherited = may_differ && (!is_real_time(&now) || is_of_unit(&now));
            !now.is_same_class(&class) && !is_inherited
        };
        let deviating: Vec<i32> = own.iter().copied().filter(deviates).collect();
        if deviating.is_empty() || self.unit.counters.given.read() != given {
            return None;
        }
        if !was_suspect {
            return Some(Finding::Suspect);
        }
        deviating.into_iter().for_each(lower);
        Some(Finding::Deviated(Deviation::Class))
    }

    /// Has the scheduler in the kernel its threads?
    fn is_in_kernel(&self) -> bool {
        self.unit.counters.given.read().class().is_some_and(|class| class.policy == sched::EXT)
    }

    /// A unit that the kernel parks does not come to die of SIGKILL before it has budget, unlike one in the
    /// freezer. Its threads go to the fair class, and end; returns whether there are such.
    fn lets_killed_ones_die(&self, threads: &[i32]) -> bool {
        if !self.is_in_kernel() || self.unit.counters.order.load(Ordering::Relaxed) != UnitCounters::PARKED {
            return false;
        }
        let mut are_there = false;
        for &tid in threads.iter().filter(|tid| proc::is_killed(**tid)) {
            are_there = true;
            // One that has ended needs nothing.
            let _ = sched::set_attributes(tid, &Attributes::other());
        }
        are_there
    }

    /// Puts all its threads into the fair class, those outside its group too.
    fn lower(&self) {
        self.unit.counters.is_displaced.store(true, Ordering::SeqCst);
        let before = self.inside.iter().flatten().copied();
        self.unit.threads().into_iter().chain(threads_in(&self.unit.group)).chain(before).for_each(lower);
    }
}

/// The threads in a group, ascending; none where it is gone.
fn threads_in(group: &Path) -> Vec<i32> {
    let mut threads = cgroup::threads_in(group).unwrap_or_default();
    threads.sort_unstable();
    threads
}

fn is_real_time(attributes: &Attributes) -> bool {
    matches!(attributes.policy, sched::FIFO | sched::RR | sched::DEADLINE)
}

/// Is this the real-time priority of some rank?
fn is_of_unit(attributes: &Attributes) -> bool {
    attributes.policy == sched::FIFO && (LOWEST..=HIGHEST).contains(&attributes.priority)
}

fn has_priority_of_unit(tid: i32) -> bool {
    sched::attributes(tid).is_ok_and(|now| is_of_unit(&now))
}

/// Puts a thread that has a real-time priority into the fair class, with the nice value that it has beneath.
fn lower(tid: i32) {
    if let Ok(now) = sched::attributes(tid)
        && is_real_time(&now)
    {
        // One that has ended meanwhile takes no processor.
        let _ = sched::set_attributes(tid, &Attributes { nice: now.nice, ..Attributes::other() });
    }
}

/// Confines threads to `processors`; returns whether one was elsewhere. A processor that is offline, or that
/// a cpuset excludes, is left out as long as others remain.
///
/// # Errors
/// The kernel does not let a thread run there.
fn place(threads: &[i32], processors: &[usize]) -> io::Result<bool> {
    let mut was_elsewhere = false;
    for &tid in threads {
        // One that has ended is nowhere.
        let Ok(now) = sched::affinity(tid) else { continue };
        if now == processors {
            continue;
        }
        match sched::set_affinity(tid, processors) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                return Err(io::Error::other("its processors are offline, or a cpuset excludes them"));
            }
            set => set?,
        }
        // Where it is elsewhere again already, another program was faster, and the next look counts that too.
        let after = sched::affinity(tid).unwrap_or_default();
        was_elsewhere |= after != now;
    }
    Ok(was_elsewhere)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_contested_at_the_fifth_deviation_within_five_seconds() {
        let mut deviations = Deviations::default();
        let start = StdInstant::now();
        let mut at = |ms: u64| deviations.add(start + StdDuration::from_millis(ms));
        assert_eq!([0, 2_000, 4_000, 5_000, 6_000, 7_000].map(&mut at), [false; 6]);
        assert_eq!([7_100, 7_200].map(&mut at), [true, true]);
    }

    /// A thread that runs `work` and then sleeps until the sender is dropped.
    fn thread(work: impl FnOnce() + Send + 'static) -> (i32, std::sync::mpsc::Sender<()>) {
        let (told, id) = std::sync::mpsc::channel();
        let (waker, sleep) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || {
            work();
            told.send(rustix::thread::gettid().as_raw_nonzero().get()).expect("received");
            // The sender is dropped.
            let _ = sleep.recv();
        });
        (id.recv().expect("it runs"), waker)
    }

    #[test]
    fn a_thread_elsewhere_is_confined_again_and_says_so_once() {
        let all = sched::affinity(0).expect("readable");
        let (tid, _waker) = thread(|| ());
        assert!(!place(&[tid], &all).expect("placed"));
        assert_eq!(place(&[tid], &all[..1]).expect("placed"), all.len() > 1);
        assert_eq!(sched::affinity(tid).expect("it lives"), all[..1]);
        assert!(!place(&[tid], &all[..1]).expect("placed"));
        let error = place(&[tid], &[1023]).expect_err("there is no such processor");
        assert!(error.to_string().contains("offline"), "{error}");
    }

    #[test]
    fn only_real_time_threads_are_lowered() {
        let (idle, _waker) = thread(|| sched::set_attributes(0, &Attributes::idle()).expect("permitted"));
        lower(idle);
        assert_eq!(sched::attributes(idle).expect("it lives").policy, sched::IDLE);
        let (tid, _waker) = thread(|| ());
        if sched::set_attributes(tid, &Attributes::fifo(2)).is_err() {
            return eprintln!("skipped: real-time priorities are not permitted");
        }
        rustix::process::setpriority_process(rustix::process::Pid::from_raw(tid), 7).expect("permitted");
        lower(tid);
        let lowered = sched::attributes(tid).expect("it lives");
        assert_eq!((lowered.policy, lowered.nice), (sched::OTHER, 7));
    }
}
