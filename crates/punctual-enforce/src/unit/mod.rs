//! A unit on a real host: the threads of a vCPU or of a process tree, how long they ran, and how they are
//! scheduled.

mod adopt;
mod clock;
mod counters;
mod error;
mod tree;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use punctual_sched::Duration;

use crate::driver::Observation;
use crate::journal::Identity;
use clock::Clock;
use punctual_linux::os::cgroup::Group;
use punctual_linux::os::proc::{self, SchedStat};
use punctual_linux::os::sched::{self, Attributes};

pub(crate) use adopt::{join, tree};
pub use counters::UnitCounters;
pub use error::{DEVIATIONS_MAX, DEVIATIONS_WITHIN, Deviation, Error};
pub use tree::THREADS_MAX;

/// The real-time priority of the most urgent unit; each rank is one below, down to [`LOWEST`].
pub const HIGHEST: u32 = 70;
/// The real-time priority that all further ranks share.
pub const LOWEST: u32 = 2;
/// The real-time priority of enforcers: above every unit, below the guardian.
pub const ENFORCER: u32 = 90;

/// The real-time priority of a rank.
pub fn priority_of(rank: u16) -> u32 {
    HIGHEST.saturating_sub(u32::from(rank)).max(LOWEST)
}

/// Which threads a unit consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitThreads {
    /// One thread: a vCPU.
    Thread(Identity),
    /// A process with everything it starts, or everything in its cgroup.
    ProcessTree(Identity),
}

impl UnitThreads {
    /// Its first thread.
    pub fn identity(&self) -> Identity {
        match self {
            UnitThreads::Thread(identity) | UnitThreads::ProcessTree(identity) => *identity,
        }
    }
}

/// A unit that is under enforcement.
#[derive(Debug)]
pub struct LiveUnit {
    /// Its name, the vCPU's.
    pub name: String,
    threads: UnitThreads,
    group: Group,
    clock: Clock,
    /// Processor time at the last look.
    last: Duration,
    /// Its account at the last look.
    account: SchedStat,
    /// What that has more than at the look before.
    since: SchedStat,
    /// Processor time when it was adopted.
    first: Duration,
    is_frozen: bool,
    /// Parked by priority: it may run where no other thread wants to, and is not charged for that.
    is_idle: bool,
    /// How long it has been a crowd since its threads were counted; `None` when it is none.
    crowd: Option<Duration>,
    priority: Option<u32>,
    /// Has a scheduler in the kernel its threads?
    is_ext: bool,
    /// Reads that failed in a row, though the thread is there.
    failures: u32,
    /// What other threads may read.
    pub counters: Arc<UnitCounters>,
}

/// How often the threads of a crowd are counted again.
const CROWD_INTERVAL: Duration = Duration::from_secs(1);

/// How often the threads of a unit are listed until none is new.
const LISTINGS_MAX: usize = 20;

/// How many reads of a unit's clock may fail in a row before the unit is given up.
const FAILURES_MAX: u32 = 100;

impl LiveUnit {
    /// Not scheduled yet, its clock not read yet.
    fn new(name: &str, threads: UnitThreads, group: Group, clock: Clock) -> LiveUnit {
        LiveUnit {
            name: name.to_owned(),
            threads,
            group,
            clock,
            last: Duration::ZERO,
            account: SchedStat::default(),
            since: SchedStat::default(),
            first: Duration::ZERO,
            is_frozen: false,
            is_idle: false,
            crowd: None,
            priority: None,
            is_ext: false,
            failures: 0,
            counters: Arc::default(),
        }
    }

    /// Its threads.
    pub fn threads(&self) -> UnitThreads {
        self.threads
    }

    /// The group of its threads.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Processor time since it was adopted, as of the last look.
    pub fn cpu_time(&self) -> Duration {
        self.last.saturating_sub(self.first)
    }

    /// What its account had more at the last look than at the one before.
    pub fn since_last_look(&self) -> SchedStat {
        self.since
    }

    /// Is it parked, but may run where no other thread wants to?
    pub fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// The real-time priority that it has, if enforcement gave it one.
    pub fn priority(&self) -> Option<u32> {
        self.priority
    }

    /// What it ran since it was last observed and, if asked for, whether it has work. A clock that cannot be
    /// read counts as having run for all of `elapsed`: a unit must not get time for free.
    ///
    /// # Errors
    /// Its threads are gone, or its clock could not be read too many times in a row.
    pub fn observe(&mut self, elapsed: Duration, with_work: bool) -> Result<Observation, Error> {
        let ran = match self.clock.read() {
            Ok(account) => {
                self.failures = 0;
                self.since = account.since(&self.account);
                self.account = account;
                let time = account.ran;
                let ran = time.saturating_sub(self.last);
                self.last = time.max(self.last);
                ran
            }
            Err(e) => {
                let error = Error::of("its processor time cannot be read")(e);
                self.failures += 1;
                if matches!(error, Error::Gone) || self.failures > FAILURES_MAX {
                    return Err(error);
                }
                elapsed
            }
        };
        self.counters.cpu_time_ns.store(self.cpu_time().as_ns(), Ordering::Relaxed);
        if self.clock.has_ended() {
            return Err(Error::Gone);
        }
        let asks = with_work && self.crowd.is_none();
        let has_work = if asks { self.clock.has_work(ran) } else { None };
        Ok(Observation { ran, idled: None, has_work })
    }

    /// Ends the enforcement of a crowd for as long as it is one: it gets what no other thread wants. Here
    /// nothing is done with its threads; the watchdog gives them [`Attributes::idle`], for that takes as long
    /// as they are many.
    ///
    /// # Errors
    /// Its group is gone, or cannot be written.
    pub fn set_aside(&mut self) -> Result<(), Error> {
        self.crowd = Some(Duration::ZERO);
        self.priority = None;
        self.is_idle = true;
        self.counters.given.forget();
        self.counters.is_crowd.store(true, Ordering::Relaxed);
        self.thaw()
    }

    /// Is it a crowd that was set aside?
    pub fn is_crowd(&self) -> bool {
        self.crowd.is_some()
    }

    /// Counts the threads of a crowd, once a second; `elapsed` is the time since this was called last. True
    /// when they are few again: then it is a unit like any other from now on.
    pub fn has_dispersed(&mut self, elapsed: Duration) -> bool {
        let (Some(waited), Clock::ProcessTree(tree)) = (&mut self.crowd, &self.clock) else { return false };
        *waited += elapsed;
        if *waited < CROWD_INTERVAL {
            return false;
        }
        *waited = Duration::ZERO;
        let mut threads = Vec::new();
        // Half as many: a unit at the limit must not come and go all the time.
        if !tree.list(&mut threads).is_ok_and(|listed| listed && threads.len() <= THREADS_MAX / 2) {
            return false;
        }
        self.crowd = None;
        self.counters.is_crowd.store(false, Ordering::Relaxed);
        true
    }

    /// Freezes it if that is not the case. Parking comes before anything else in a look.
    ///
    /// # Errors
    /// Its group is gone, or cannot be written; [`Error::Crowd`]: the freezer would wake too many threads.
    pub fn park(&mut self) -> Result<(), Error> {
        if self.is_frozen || self.is_crowd() {
            return Ok(());
        }
        if let Clock::ProcessTree(_) = self.clock {
            self.each_of_few("its threads cannot be listed", |_| Ok(()))?;
        }
        self.group.set_frozen(true).map_err(Error::of("it cannot be frozen"))?;
        self.is_frozen = true;
        self.is_idle = false;
        Ok(())
    }

    /// Parks it without the freezer, which may have to wait for the kernel's cgroup lock: it gets what no
    /// other thread wants ([`Attributes::idle`]). One that is frozen is thawed to that, so that admitting it
    /// later needs no freezer either.
    ///
    /// # Errors
    /// As [`LiveUnit::park`].
    pub fn park_by_priority(&mut self) -> Result<(), Error> {
        if self.is_idle {
            return Ok(());
        }
        let set = |tid: i32| sched::set_attributes(tid, &Attributes::idle());
        self.counters.given.forget();
        self.each_of_few(ATTRIBUTES, set)?;
        self.counters.given.set_idle();
        self.priority = None;
        self.is_idle = true;
        self.thaw()
    }

    /// For a unit whose priority was changed elsewhere: the next one is set, whichever it had.
    pub fn forget_priority(&mut self) {
        self.counters.given.forget();
        self.priority = None;
        self.is_ext = false;
        self.is_idle = self.is_crowd();
    }

    /// Gives it `priority` and thaws it, as far as that is not the case. A crowd stays as it is; one that is
    /// displaced is thawed and gets no priority.
    ///
    /// # Errors
    /// Its threads are gone, or may not be changed; [`Error::Crowd`]: they are too many.
    pub fn admit(&mut self, priority: u32) -> Result<(), Error> {
        if self.is_crowd() {
            return Ok(());
        }
        if self.counters.is_displaced.load(Ordering::SeqCst) {
            self.priority = None;
        } else if self.priority != Some(priority) {
            let set = |tid: i32| sched::set_attributes(tid, &Attributes::fifo(priority));
            self.counters.given.forget();
            self.each_of_few(ATTRIBUTES, set)?;
            self.counters.given.set_fifo(priority);
            self.priority = Some(priority);
            self.is_idle = false;
        }
        self.thaw()
    }

    /// Puts it behind all others that have its priority on its processor. The kernel does that when the
    /// priority of a thread rises (`__sched_setscheduler` in Linux `kernel/sched/syscalls.c`).
    ///
    /// # Errors
    /// Its threads are gone, or may not be changed.
    pub fn yield_turn(&mut self) -> Result<(), Error> {
        let Some(priority) = self.priority else { return Ok(()) };
        self.counters.given.forget();
        for priority in [priority - 1, priority] {
            self.each_of_few(ATTRIBUTES, |tid| sched::set_attributes(tid, &Attributes::fifo(priority)))?;
        }
        self.counters.given.set_fifo(priority);
        Ok(())
    }

    /// Ends its enforcement: the fair class, thawed. With a real-time priority and no budget it would take
    /// the whole processor. The same for what a single thread left in its group: a program that one of its
    /// process's threads executes has the process's id, and the priority of that thread. A class that is none
    /// of a unit's stays.
    ///
    /// # Errors
    /// Its threads are gone, or may not be changed.
    pub fn release(&mut self) -> Result<(), Error> {
        self.counters.given.forget();
        let other = Attributes::other();
        let released = self.set_attributes(&other);
        if let UnitThreads::Thread(_) = self.threads {
            for tid in self.group.threads().unwrap_or_default() {
                // One that has ended takes no processor.
                let _ = lower(tid);
            }
        }
        self.priority = None;
        self.is_ext = false;
        self.is_idle = false;
        released.and(self.thaw())
    }

    /// Gives its threads to the scheduler in the kernel, as far as that is not the case. One that is
    /// displaced stays as it is.
    ///
    /// # Errors
    /// Its threads are gone, or may not be changed.
    pub fn hand_to_kernel(&mut self) -> Result<(), Error> {
        if self.is_ext || self.counters.is_displaced.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.counters.given.forget();
        let ext = Attributes::ext();
        // A thread may start others until it was set itself.
        for _ in 0..LISTINGS_MAX {
            let mut was_set = false;
            for tid in self.group.threads().map_err(Error::of("its threads cannot be listed"))? {
                if sched::attributes(tid).is_ok_and(|now| now.policy != ext.policy) {
                    was_set = true;
                    each_of(&[tid], ATTRIBUTES, |tid| sched::set_attributes(tid, &ext))?;
                }
            }
            if !was_set {
                break;
            }
        }
        self.counters.given.set_ext();
        self.is_ext = true;
        Ok(())
    }

    /// It ran so long since the last look, as the scheduler in the kernel says.
    pub fn add_ran(&mut self, ran: Duration) {
        self.last += ran;
        self.since = SchedStat { ran, ..SchedStat::default() };
        self.counters.cpu_time_ns.store(self.cpu_time().as_ns(), Ordering::Relaxed);
    }

    /// Have its threads ended?
    pub fn has_ended(&self) -> bool {
        self.clock.has_ended() || self.clock.read().is_err_and(|error| proc::is_gone(&error))
    }

    fn thaw(&mut self) -> Result<(), Error> {
        if self.is_frozen {
            self.group.set_frozen(false).map_err(Error::of("it cannot be thawed"))?;
            self.is_frozen = false;
        }
        Ok(())
    }

    /// Sets the attributes of all its threads.
    ///
    /// # Errors
    /// Its threads are gone, or may not be changed.
    pub fn set_attributes(&self, to: &Attributes) -> Result<(), Error> {
        let set = |tid: i32| sched::set_attributes(tid, to);
        self.each_thread(ATTRIBUTES, set)
    }

    /// Confines all its threads to `processors`.
    ///
    /// # Errors
    /// Its threads are gone, or none of the processors is allowed for them.
    pub fn set_affinity(&self, processors: &[usize]) -> Result<(), Error> {
        let set = |tid: i32| sched::set_affinity(tid, processors);
        self.each_thread(AFFINITY, set)
    }

    /// As [`LiveUnit::set_affinity`], for an enforcer.
    ///
    /// # Errors
    /// As [`LiveUnit::set_affinity`]; [`Error::Crowd`]: it has too many threads, and none was confined.
    pub fn confine(&self, processors: &[usize]) -> Result<(), Error> {
        let set = |tid: i32| sched::set_affinity(tid, processors);
        self.each_of_few(AFFINITY, set)
    }

    fn each_thread(&self, what: &'static str, set: impl Fn(i32) -> io::Result<()>) -> Result<(), Error> {
        if let UnitThreads::Thread(thread) = self.threads {
            return set(thread.id).map_err(Error::of(what));
        }
        each_of(&self.group.threads().map_err(Error::of("its threads cannot be listed"))?, what, set)
    }

    /// As [`LiveUnit::each_thread`], for at most [`THREADS_MAX`] threads; otherwise for none.
    fn each_of_few(&self, what: &'static str, set: impl Fn(i32) -> io::Result<()>) -> Result<(), Error> {
        let Clock::ProcessTree(tree) = &self.clock else { return self.each_thread(what, set) };
        let mut threads = Vec::new();
        if tree.list(&mut threads).map_err(Error::of("its threads cannot be listed"))? {
            each_of(&threads, what, set)
        } else {
            Err(Error::Crowd)
        }
    }
}

/// Puts a thread that has the priority of some rank, or SCHED_EXT, into the fair class, with the nice value
/// that it has beneath.
fn lower(tid: i32) -> io::Result<()> {
    let now = sched::attributes(tid)?;
    let is_ranked = now.policy == sched::FIFO && (LOWEST..=HIGHEST).contains(&now.priority);
    if !is_ranked && now.policy != sched::EXT {
        return Ok(());
    }
    sched::set_attributes(tid, &Attributes { nice: now.nice, ..Attributes::other() })
}

const ATTRIBUTES: &str = "its scheduling attributes cannot be set";
const AFFINITY: &str = "its affinity cannot be set";

/// A thread of a tree that ends meanwhile is left out.
fn each_of(threads: &[i32], what: &'static str, set: impl Fn(i32) -> io::Result<()>) -> Result<(), Error> {
    for &tid in threads {
        match set(tid).map_err(Error::of(what)) {
            Ok(()) | Err(Error::Gone) => {}
            Err(failed) => return Err(failed),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use punctual_linux::os::proc::{Reader, SleepReader};

    /// A unit of one thread whose clock and group are plain files of a directory.
    fn unit(directory: &Path, thread: Identity, schedstat: &str) -> LiveUnit {
        for (name, text) in [("cgroup.freeze", "0"), ("schedstat", schedstat), ("wchan", "0")] {
            fs::write(directory.join(name), text).expect("written");
        }
        let reader = |name: &str| Reader::open(&directory.join(name).to_string_lossy()).expect("there");
        let group = Group::make(directory, false).expect("a group");
        let clock = Clock::Thread {
            schedstat: reader("schedstat"),
            sleep: SleepReader::WaitChannel(reader("wchan")),
        };
        LiveUnit::new("unit", UnitThreads::Thread(thread), group, clock)
    }

    fn me() -> Identity {
        Identity::of(rustix::thread::gettid().as_raw_nonzero().get()).expect("it runs")
    }

    const LOOK: Duration = Duration::from_ms(5);

    #[test]
    fn a_clock_that_cannot_be_read_counts_as_having_run_all_the_time_and_ends_the_run_at_last() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut unit = unit(directory.path(), me(), "nonsense");
        for _ in 0..FAILURES_MAX {
            assert_eq!(unit.observe(LOOK, false).expect("it may come back").ran, LOOK);
        }
        let error = unit.observe(LOOK, false).expect_err("that was once too often");
        assert!(error.to_string().contains("processor time cannot be read"), "{error}");
    }

    #[test]
    fn a_clock_that_comes_back_counts_what_ran_and_forgets_its_failures() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut unit = unit(directory.path(), me(), "1000 0 1");
        assert_eq!(
            unit.observe(LOOK, true).expect("readable"),
            Observation { ran: Duration::from_us(1), idled: None, has_work: Some(true) }
        );
        for _ in 0..3 {
            fs::write(directory.path().join("schedstat"), "").expect("written");
            for _ in 0..FAILURES_MAX {
                unit.observe(LOOK, false).expect("it may come back");
            }
            fs::write(directory.path().join("schedstat"), "1000 0 1").expect("written");
            assert_eq!(unit.observe(LOOK, false).expect("readable").ran, Duration::ZERO);
        }
    }

    #[test]
    fn a_thread_that_vanishes_between_reading_and_setting_is_gone_and_no_failure() {
        let directory = tempfile::tempdir().expect("a directory");
        let ended = std::thread::spawn(me).join().expect("it ends");
        // The kernel may take a moment to forget it.
        let forgotten = (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            !ended.is_alive()
        });
        assert!(forgotten);
        let mut unit = unit(directory.path(), ended, "1000 0 1");
        unit.observe(LOOK, false).expect("it was read while it was there");
        assert!(matches!(unit.admit(50), Err(Error::Gone)));
        assert!(matches!(unit.park_by_priority(), Err(Error::Gone)));
        assert!(matches!(unit.set_affinity(&[0]), Err(Error::Gone)));
        assert!(matches!(unit.release(), Err(Error::Gone)));
    }
}
