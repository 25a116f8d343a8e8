//! A unit on a real host: the threads of a vCPU or of a process tree, their clock, and what was last ordered.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_sched::Duration;
use rustix::event::{PollFd, PollFlags, poll};

use crate::driver::{Observation, Order};
use crate::journal::{Identity, Journal};
use crate::os::cgroup::{self, Group};
use crate::os::proc::{self, Reader, Sleep};
use crate::os::sched::{self, Attributes};

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
    /// A process with everything it starts.
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

/// What other threads may read of a unit at any time, without a lock.
#[derive(Debug, Default)]
pub struct UnitCounters {
    /// Budget left in ns; `u64::MAX` when the policy keeps none.
    pub left_ns: AtomicU64,
    /// Processor time so far.
    pub cpu_time_ns: AtomicU64,
    /// Exhaustions so far.
    pub exhaustions: AtomicU64,
    /// Replenishments so far.
    pub replenishments: AtomicU64,
    /// 0: gone; 1: parked; [`UNMANAGED`]; 2 + rank otherwise.
    pub order: AtomicU64,
}

/// [`UnitCounters::order`] of a unit that plain Linux schedules.
pub const UNMANAGED: u64 = u64::MAX;

impl UnitCounters {
    /// Nobody keeps a budget, nobody parks it.
    pub fn set_unmanaged(&self) {
        self.left_ns.store(u64::MAX, Ordering::Relaxed);
        self.order.store(UNMANAGED, Ordering::Relaxed);
    }

    /// Publishes the order.
    pub fn set_order(&self, order: Option<Order>) {
        let value = match order {
            None => 0,
            Some(Order::Parked) => 1,
            Some(Order::Ranked(rank)) => 2 + u64::from(rank),
        };
        self.order.store(value, Ordering::Relaxed);
    }
}

/// How a unit's threads are read at a look. Not by `/proc/TID/stat`: whoever reads that waits until the
/// thread has become what it is executing (`do_task_stat` takes `exec_update_lock`, seen on Linux 6.18), and
/// an enforcer that waits for a thread that waits for the processor of another unit waits for ever.
#[derive(Debug)]
enum Clock {
    Thread { schedstat: Reader, sleep: Sleep },
    Tree { cpu_stat: Reader, root: OwnedFd, may_see_where: bool },
}

/// A unit that is under enforcement.
#[derive(Debug)]
pub struct LiveUnit {
    /// Its name, the vCPU's.
    pub name: String,
    members: UnitThreads,
    group: Group,
    clock: Clock,
    /// Processor time at the last look.
    last: Duration,
    /// Processor time when it was taken in.
    first: Duration,
    frozen: bool,
    /// Parked by priority: it may have what nobody wants, and is not charged for that.
    idle: bool,
    priority: Option<u32>,
    /// Reads that failed in a row, though the thread is there.
    failures: u32,
    /// What others may read.
    pub counters: Arc<UnitCounters>,
}

/// Why a unit could not be read or ordered.
#[derive(Debug)]
pub enum Error {
    /// Its threads are gone.
    Gone,
    /// Something else, with what was tried.
    Failed(String),
}

fn trouble(what: &str, error: &io::Error) -> Error {
    let gone = matches!(error.raw_os_error(), Some(libc::ESRCH | libc::ENODEV | libc::ENOENT));
    if gone { Error::Gone } else { Error::Failed(format!("{what}: {error}")) }
}

/// How many reads of a unit's clock may fail in a row before the run ends.
const FAILURES_MAX: u32 = 100;

/// How many threads of a tree are asked at a look whether they want to run.
const ASKED_MAX: usize = 64;

impl LiveUnit {
    /// Takes threads in: writes down in `journal` how they are, and moves them to groups of their own below
    /// `domain`, a group made for their domain. A single thread's process moves to `domain` first.
    /// Nothing about how they are scheduled changes yet.
    ///
    /// # Errors
    /// A thread is gone, cannot be read or moved.
    pub fn adopt(
        name: &str,
        members: UnitThreads,
        domain: &Group,
        index: usize,
        journal: &mut Journal,
    ) -> io::Result<LiveUnit> {
        let identity = members.identity();
        if Identity::of(identity.id)? != identity {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let (group, clock) = match members {
            UnitThreads::Thread(thread) => {
                let process = proc::process_of(thread.id)?;
                if !is_inside(process, domain.directory())? {
                    for tid in proc::threads(process)? {
                        journal.record_thread(tid)?;
                    }
                    domain.add_process(process)?;
                }
                let group = Group::make(&domain.directory().join(format!("unit{index}")), true)?;
                group.add_thread(thread.id)?;
                let task = format!("/proc/{process}/task/{}", thread.id);
                let schedstat = Reader::open(&format!("{task}/schedstat"))?;
                (
                    group,
                    Clock::Thread {
                        schedstat,
                        sleep: Sleep::of(thread.id, Sleep::may_see_where(thread.id))?,
                    },
                )
            }
            UnitThreads::ProcessTree(root) => {
                let pid = rustix::process::Pid::from_raw(root.id).ok_or(io::ErrorKind::InvalidInput)?;
                let descriptor = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
                // Whatever is forked meanwhile is found in the next round.
                let group = Group::make(&domain.directory().join(format!("unit{index}")), false)?;
                loop {
                    let mut moved = 0;
                    for process in tree(root.id)? {
                        if !is_inside(process, group.directory()).unwrap_or(true) {
                            for tid in proc::threads(process).unwrap_or_default() {
                                let _ = journal.record_thread(tid);
                            }
                            moved += u32::from(group.add_process(process).is_ok());
                        }
                    }
                    if moved == 0 {
                        break;
                    }
                }
                let path = group.directory().join("cpu.stat");
                (
                    group,
                    Clock::Tree {
                        cpu_stat: Reader::open(&path.to_string_lossy())?,
                        root: descriptor,
                        may_see_where: Sleep::may_see_where(root.id),
                    },
                )
            }
        };
        let mut unit = LiveUnit::new(name, members, group, clock);
        unit.last = unit.read_clock()?;
        unit.first = unit.last;
        Ok(unit)
    }

    /// Under nobody's order yet, its clock not read yet.
    fn new(name: &str, members: UnitThreads, group: Group, clock: Clock) -> LiveUnit {
        LiveUnit {
            name: name.to_owned(),
            members,
            group,
            clock,
            last: Duration::ZERO,
            first: Duration::ZERO,
            frozen: false,
            idle: false,
            priority: None,
            failures: 0,
            counters: Arc::new(UnitCounters::default()),
        }
    }

    /// Its threads.
    pub fn members(&self) -> UnitThreads {
        self.members
    }

    /// Processor time since it was taken in, as of the last look.
    pub fn cpu_time(&self) -> Duration {
        self.last.saturating_sub(self.first)
    }

    fn read_clock(&self) -> io::Result<Duration> {
        let mut buffer = [0u8; 512];
        let time = match &self.clock {
            Clock::Thread { schedstat, .. } => proc::parse_schedstat(schedstat.read(&mut buffer)?),
            Clock::Tree { cpu_stat, .. } => proc::parse_cpu_stat(cpu_stat.read(&mut buffer)?),
        };
        time.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a clock that is not understood"))
    }

    /// What it ran since it was last seen and, if asked for, whether it has work. A clock that cannot be read
    /// counts as having run for all of `elapsed`: a unit must not get time for free.
    ///
    /// # Errors
    /// Its threads are gone, or its clock could not be read too many times in a row.
    pub fn observe(&mut self, elapsed: Duration, with_work: bool) -> Result<Observation, Error> {
        let ran = match self.read_clock() {
            Ok(time) => {
                self.failures = 0;
                let ran = time.saturating_sub(self.last);
                self.last = time.max(self.last);
                ran
            }
            Err(e) => {
                let problem = trouble("its processor time cannot be read", &e);
                self.failures += 1;
                if matches!(problem, Error::Gone) || self.failures > FAILURES_MAX {
                    return Err(problem);
                }
                elapsed
            }
        };
        self.counters.cpu_time_ns.store(self.cpu_time().as_ns(), Ordering::Relaxed);
        if let Clock::Tree { root, .. } = &self.clock
            && has_ended(root)
        {
            return Err(Error::Gone);
        }
        Ok(Observation { ran, work: if with_work { self.has_work(ran) } else { None } })
    }

    fn has_work(&self, ran: Duration) -> Option<bool> {
        match &self.clock {
            Clock::Thread { sleep, .. } => sleep.is_asleep().ok().map(|asleep| !asleep),
            // What ran has work more often than not, and need not be asked.
            Clock::Tree { may_see_where, .. } => {
                Some(!ran.is_zero() || self.is_anything_runnable(*may_see_where))
            }
        }
    }

    /// Does one of its threads want to run? A tree too large to ask them all is taken for busy.
    fn is_anything_runnable(&self, may_see_where: bool) -> bool {
        let is_asleep = |thread: i32| Sleep::of(thread, may_see_where)?.is_asleep();
        let runnable = |thread: &i32| is_asleep(*thread).is_ok_and(|asleep| !asleep);
        let threads = self.group.threads().unwrap_or_default();
        threads.len() > ASKED_MAX || threads.iter().any(runnable)
    }

    /// Freezes it if that is not the case. Parking comes before anything else in a look.
    ///
    /// # Errors
    /// Its group is gone, or cannot be written.
    pub fn park(&mut self) -> Result<(), Error> {
        if self.frozen {
            return Ok(());
        }
        self.group.set_frozen(true).map_err(|e| trouble("it cannot be frozen", &e))?;
        self.frozen = true;
        self.idle = false;
        Ok(())
    }

    /// Parks it without a word to the freezer, which may have to wait for the kernel's cgroup lock: it gets
    /// what nobody else wants ([`Attributes::idle`]). One that is frozen is thawed to that, so that admitting
    /// it later needs no freezer either.
    ///
    /// # Errors
    /// As [`LiveUnit::park`].
    pub fn park_by_priority(&mut self) -> Result<(), Error> {
        if self.idle {
            return Ok(());
        }
        self.set_attributes(&Attributes::idle())?;
        self.priority = None;
        self.idle = true;
        self.thaw()
    }

    /// Somebody else changed its priority: the next that it is to have is given to it, whatever it had.
    pub fn forget_priority(&mut self) {
        self.priority = None;
        self.idle = false;
    }

    /// The group of its threads.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Is it parked, but may run where nobody else wants to?
    pub fn is_idle(&self) -> bool {
        self.idle
    }

    /// Lets it go: the fair class, thawed. A real-time priority without a budget would be the processor's.
    ///
    /// # Errors
    /// Its threads are gone, or may not be changed.
    pub fn release(&mut self) -> Result<(), Error> {
        self.set_attributes(&Attributes::other())?;
        self.priority = None;
        self.idle = false;
        self.thaw()
    }

    fn thaw(&mut self) -> Result<(), Error> {
        if self.frozen {
            self.group.set_frozen(false).map_err(|e| trouble("it cannot be thawed", &e))?;
            self.frozen = false;
        }
        Ok(())
    }

    /// The real-time priority that it has, if enforcement gave it one.
    pub fn priority(&self) -> Option<u32> {
        self.priority
    }

    /// Gives it `priority` and thaws it, as far as that is not the case.
    ///
    /// # Errors
    /// Its threads are gone, or may not be changed.
    pub fn admit(&mut self, priority: u32) -> Result<(), Error> {
        if self.priority != Some(priority) {
            self.set_attributes(&Attributes::fifo(priority))?;
            self.priority = Some(priority);
            self.idle = false;
        }
        self.thaw()
    }

    /// Sets the attributes of all its threads.
    ///
    /// # Errors
    /// Its threads are gone, or may not be changed.
    pub fn set_attributes(&self, to: &Attributes) -> Result<(), Error> {
        let set = |tid: i32| sched::set_attributes(tid, to);
        let what = "its scheduling attributes cannot be set";
        match self.members {
            UnitThreads::Thread(thread) => set(thread.id).map_err(|e| trouble(what, &e)),
            UnitThreads::ProcessTree(_) => self.each_thread(what, set),
        }
    }

    /// Confines all its threads to `processors`.
    ///
    /// # Errors
    /// Its threads are gone, or none of the processors is allowed for them.
    pub fn set_affinity(&self, processors: &[usize]) -> Result<(), Error> {
        let set = |tid: i32| sched::set_affinity(tid, processors);
        let what = "its affinity cannot be set";
        match self.members {
            UnitThreads::Thread(thread) => set(thread.id).map_err(|e| trouble(what, &e)),
            UnitThreads::ProcessTree(_) => self.each_thread(what, set),
        }
    }

    fn each_thread(&self, what: &str, set: impl Fn(i32) -> io::Result<()>) -> Result<(), Error> {
        let threads = self.group.threads().map_err(|e| trouble("its threads cannot be listed", &e))?;
        for tid in threads {
            match set(tid).map_err(|e| trouble(what, &e)) {
                Ok(()) | Err(Error::Gone) => {}
                Err(failed) => return Err(failed),
            }
        }
        Ok(())
    }
}

/// Has the process of this descriptor ended? A zombie has.
fn has_ended(process: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    let at_once = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

/// A process and its descendants.
fn tree(root: i32) -> io::Result<Vec<i32>> {
    let parents: Vec<(i32, i32)> =
        proc::processes()?.into_iter().filter_map(|pid| Some((pid, proc::stat(pid).ok()?.parent))).collect();
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(&parent) = tree.get(next) {
        next += 1;
        tree.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
    }
    Ok(tree)
}

/// Is the process in `directory` or a group below it?
fn is_inside(process: i32, directory: &Path) -> io::Result<bool> {
    let group = cgroup::group_of(process)?;
    Ok(cgroup::below(&cgroup::mount()?, &group).starts_with(directory))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A unit of one thread whose clock and group are plain files of a directory.
    fn unit(directory: &Path, thread: Identity, schedstat: &str) -> LiveUnit {
        for (name, text) in [("cgroup.freeze", "0"), ("schedstat", schedstat), ("wchan", "0")] {
            fs::write(directory.join(name), text).expect("written");
        }
        let reader = |name: &str| Reader::open(&directory.join(name).to_string_lossy()).expect("there");
        let group = Group::make(directory, false).expect("a group");
        let clock = Clock::Thread { schedstat: reader("schedstat"), sleep: Sleep::Where(reader("wchan")) };
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
        let Err(Error::Failed(why)) = unit.observe(LOOK, false) else { panic!("that was once too often") };
        assert!(why.contains("processor time cannot be read"), "{why}");
    }

    #[test]
    fn a_clock_that_comes_back_counts_what_ran_and_forgets_its_failures() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut unit = unit(directory.path(), me(), "1000 0 1");
        assert_eq!(
            unit.observe(LOOK, true).expect("readable"),
            Observation { ran: Duration::from_us(1), work: Some(true) }
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
