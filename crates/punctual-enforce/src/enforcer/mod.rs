//! Enforcers: one thread for each processor of a pool.
//!
//! An enforcer sleeps between *looks*. A look is one round of an enforcer: it reads how long the units of its
//! processor ran, lets the policy decide, and carries out the policy's orders. The enforcer runs above the
//! units of its processor. When it wakes it has preempted the unit that ran there, so the kernel's account of
//! that unit is exact (`update_curr` in `kernel/sched`): no event, no probe and no cost for the guests in
//! between. With one run queue for several processors all their enforcers wake for the same instants for that
//! reason.

mod account;
mod delivery;
mod history;
mod kernel;
mod kernel_looks;
mod locks;
mod mover;
mod observer;
mod occupants;
mod placement;
mod pool;
mod shared;
mod watchdog;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use punctual_sched::{CpuId, Duration, Instant};

use crate::clock::now;
use crate::driver::Driver;
use crate::notice::Notice;
use crate::unit::{ENFORCER, LiveUnit};
use account::Account;
use locks::Locks;
use occupants::Reader;
use placement::Placement;
use pool::{PAUSE_WAIT_MAX, Pool, SLEEP_MAX};
use punctual_linux::os::cgroup;
use punctual_linux::os::sched::{self, Attributes};
use shared::Shared;

pub use delivery::Deliveries;
pub use history::{Entry, History};
pub use kernel::{Decided, Kernel, Said};
pub use observer::{Foreign, Helper, Observations, Observed, Sample, Serving, ServingThread};
pub use occupants::{Occupant, Occupants};
pub use pool::Command;
pub use watchdog::STUCK;

/// A pool under enforcement.
pub struct Enforcement {
    pool: Arc<Mutex<Pool>>,
    commands: Sender<Command>,
    /// What happened, in order.
    pub notices: Receiver<Notice>,
    shared: Arc<Shared>,
    processors: Vec<usize>,
    enforcers: Vec<JoinHandle<io::Result<()>>>,
    watchdog: Option<JoinHandle<()>>,
    locks: Option<JoinHandle<()>>,
    observer: Option<JoinHandle<Observations>>,
}

/// The looks of a pool's enforcers, for a thread that waits for nothing of the pool.
pub struct Pulse {
    shared: Arc<Shared>,
    processors: Vec<usize>,
}

impl Pulse {
    /// By enforcer: its processor, and its looks so far; `None` once it has ended as it was asked to.
    pub fn looks(&self) -> impl Iterator<Item = (usize, Option<u64>)> {
        let looks = |(index, &processor): (usize, &usize)| {
            let has_ended = self.shared.has_ended[index].load(Ordering::Relaxed);
            (processor, (!has_ended).then(|| self.shared.looks[index].load(Ordering::Relaxed)))
        };
        self.processors.iter().enumerate().map(looks)
    }
}

/// What is left when enforcement has ended.
pub struct Finished {
    /// The driver with its accounts.
    pub driver: Driver,
    /// The units by the driver's number; those that went are `None`.
    pub units: Vec<Option<LiveUnit>>,
    /// Processor time of each enforcer.
    pub cost: Vec<Duration>,
    /// How often a look took longer than [`STUCK`] and the units lost their priorities meanwhile.
    pub demotions: u64,
    /// What enforcers saw, and what happened beside them.
    pub observations: Observations,
    /// The name of each unit that there was, by its number in the history.
    pub names: Vec<String>,
}

impl Enforcement {
    /// Starts enforcers for the pool's `processors` (in the machine's numbering, in the policy's order). With
    /// a scheduler in the `kernel` they stay on the processors of the calling thread. If context switches
    /// are `observed` and the kernel does not permit it, a notice reports that. With a `group`, which is a
    /// threaded cgroup, enforcers on the pool's processors are in it.
    ///
    /// # Errors
    /// No thread can be started, or it may not be real-time.
    pub fn start(
        driver: Driver,
        processors: &[usize],
        observed: Observed,
        kernel: Option<Kernel>,
        group: Option<PathBuf>,
    ) -> io::Result<Enforcement> {
        let (commands, commands_out) = channel();
        let (notices_in, notices) = channel();
        let switches = observed.switches.then(|| Reader::open(processors)).and_then(|opened| {
            let unread = |error| notices_in.send(Notice::NoSwitches { error });
            opened.map_err(unread).ok()
        });
        let shared = Arc::new(Shared::new(processors.len())?);
        let placement = Placement::new(shared.clone(), commands.clone(), notices_in.clone())?;
        let events = kernel.as_ref().map(Kernel::events).transpose()?;
        let pool = Pool::new(driver, processors, commands_out, notices_in, shared.clone(), kernel);
        let mut enforcement = Enforcement {
            pool: Arc::new(Mutex::new(pool)),
            commands,
            notices,
            shared,
            processors: processors.to_vec(),
            enforcers: Vec::with_capacity(processors.len()),
            watchdog: None,
            locks: None,
            observer: None,
        };
        let is_in_kernel = events.is_some();
        enforcement.start_enforcers(processors, group, events)?;
        let shared = enforcement.shared.clone();
        let work = move || watchdog::watch(&shared, placement);
        enforcement.watchdog = Some(std::thread::Builder::new().name("watchdog".into()).spawn(work)?);
        if !is_in_kernel {
            let (shared, commands) = (enforcement.shared.clone(), enforcement.commands.clone());
            let work = move || Locks::new(&shared, &commands).watch();
            enforcement.locks = Some(std::thread::Builder::new().name("locks".into()).spawn(work)?);
        }
        let (shared, processors) = (enforcement.shared.clone(), enforcement.processors.clone());
        let work = move || observer::observe(&shared, &processors, switches, observed);
        enforcement.observer = Some(std::thread::Builder::new().name("observer".into()).spawn(work)?);
        Ok(enforcement)
    }

    /// Starts a thread for each processor and waits until all are real-time.
    fn start_enforcers(
        &mut self,
        processors: &[usize],
        group: Option<PathBuf>,
        events: Option<OwnedFd>,
    ) -> io::Result<()> {
        let events = Arc::new(events);
        let (ready, readiness) = channel();
        for (index, &processor) in processors.iter().enumerate() {
            let (pool, shared) = (self.pool.clone(), self.shared.clone());
            let (ready, events) = (ready.clone(), events.clone());
            let place = Place { processor, group: group.clone() };
            let work = move || {
                let prepared = match *events {
                    Some(_) => sched::set_attributes(0, &Attributes::fifo(ENFORCER)),
                    None => place.take(),
                };
                let failed = prepared.is_err();
                let _ = ready.send(prepared);
                if failed { Ok(()) } else { enforce(index, &place, &pool, &shared, (*events).as_ref()) }
            };
            let name = format!("{}{processor}", shared::NAME);
            self.enforcers.push(std::thread::Builder::new().name(name).spawn(work)?);
        }
        for _ in processors {
            readiness.recv().map_err(|_| io::Error::other("an enforcer ended at once"))??;
        }
        Ok(())
    }

    /// Asks for something; an enforcer does it at once.
    pub fn command(&self, command: Command) {
        // Fails only when every enforcer has ended, and then there is nothing to command.
        let _ = self.commands.send(command);
        self.shared.wake_enforcers();
    }

    /// Calls `moves`, which moves threads from one cgroup to another. The kernel does that with its one
    /// cgroup lock held through a grace period of RCU (`cgroup_procs_write_start` in Linux
    /// `kernel/cgroup/cgroup.c`: 6 to 14 ms on Linux 6.18 with 250 ticks per second), and every write to a
    /// freezer takes the same lock. So no pool freezes meanwhile: enforcers park by priority, and go on as
    /// usual otherwise.
    pub fn without_freezer<T>(pools: &[&Enforcement], moves: impl FnOnce() -> T) -> T {
        let (done, is_done) = channel();
        for pool in pools {
            pool.command(Command::PauseFreezing(done.clone()));
        }
        drop(done);
        for _ in pools {
            // An enforcer that does not answer has ended, or hangs, which the guardian will notice.
            let _ = is_done.recv_timeout(PAUSE_WAIT_MAX);
        }
        let moved = moves();
        for pool in pools {
            pool.command(Command::ResumeFreezing);
        }
        moved
    }

    /// The processors that a unit may run on; `None` while no enforcer has scheduled it.
    pub fn processors_of(&self, name: &str) -> Option<Vec<usize>> {
        self.shared.units().iter().find(|unit| unit.name == name).map(|unit| unit.processors.clone())
    }

    /// The looks of its enforcers, to be read while this is busy.
    pub fn pulse(&self) -> Pulse {
        Pulse { shared: self.shared.clone(), processors: self.processors.clone() }
    }

    /// Looks of each enforcer so far: they grow at least every 100 ms while it is well.
    pub fn looks(&self) -> Vec<u64> {
        self.shared.looks.iter().map(|looks| looks.load(Ordering::Relaxed)).collect()
    }

    /// Processor time of each enforcer so far, in ns.
    pub fn cost_ns(&self) -> Vec<u64> {
        self.shared.cost_ns.iter().map(|cost| cost.load(Ordering::Relaxed)).collect()
    }

    /// Has an enforcer ended without being asked to?
    pub fn has_failed(&self) -> bool {
        self.enforcers.iter().any(JoinHandle::is_finished)
    }

    /// Ends enforcement and hands everything back. Units stay as they are (frozen ones frozen) until the
    /// journal is undone.
    ///
    /// # Errors
    /// Why an enforcer ended before.
    pub fn stop(mut self) -> io::Result<Finished> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.wake_enforcers();
        let mut result = Ok(());
        for thread in self.enforcers.drain(..) {
            let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("an enforcer panicked")));
            result = result.and(ended);
        }
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.thread().unpark();
            // It returns nothing.
            let _ = watchdog.join();
        }
        if let Some(locks) = self.locks.take() {
            locks.thread().unpark();
            let _ = locks.join();
        }
        let observer = self.observer.take();
        let observed = observer.map(|observer| {
            observer.thread().unpark();
            observer.join()
        });
        // One that panicked has seen nothing.
        let mut observations = observed.and_then(Result::ok).unwrap_or_default();
        result?;
        let cost = self.cost_ns().into_iter().map(Duration::from_ns).collect();
        let demotions = self.shared.demotions.load(Ordering::Relaxed);
        let Ok(pool) = Arc::try_unwrap(self.pool) else {
            return Err(io::Error::other("an enforcer still holds the pool"));
        };
        let pool = pool.into_inner().unwrap_or_else(PoisonError::into_inner);
        observations.history.append(&mut pool.history.into_rest());
        let names = self.shared.known().drain(..).map(|known| known.name).collect();
        Ok(Finished { driver: pool.driver, units: pool.units, cost, demotions, observations, names })
    }
}

/// Where an enforcer is.
struct Place {
    processor: usize,
    /// The cgroup of threads that may use the processor, if not all may.
    group: Option<PathBuf>,
}

impl Place {
    /// Makes the calling thread an enforcer of the processor.
    fn take(&self) -> io::Result<()> {
        if let Some(group) = &self.group {
            cgroup::move_thread_to(group, rustix::thread::gettid().as_raw_nonzero().get())?;
        }
        sched::set_affinity(0, &[self.processor])?;
        sched::set_attributes(0, &Attributes::fifo(ENFORCER))
    }
}

/// How long an enforcer sleeps at `now`, after a look that took `took` of its processor's time, when the next
/// one is due at `next`. It sleeps no shorter than the look took: where looks take longer than the time from
/// one to the next, units and the kernel's own threads keep half of the processor, and looks come late.
fn time_to_sleep(now: Instant, next: Instant, took: Duration) -> Duration {
    next.since(now).max(took).min(SLEEP_MAX)
}

/// What an enforcer does: looks and sleeps in turn until the pool stops.
///
/// `events`: a descriptor that is readable when the scheduler in the kernel has something to tell. Where the
/// kernel ends that scheduler, the enforcer goes to its `place`.
fn enforce(
    index: usize,
    place: &Place,
    pool: &Mutex<Pool>,
    shared: &Shared,
    mut events: Option<&OwnedFd>,
) -> io::Result<()> {
    let cpu = CpuId(index as u32);
    let fd = shared.wake[index].as_fd();
    let mut account = Account::open();
    let mut used_ns = sched::usage().ran_ns;
    shared.threads[index].store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
    while !shared.is_stopping() {
        let next = {
            let mut pool = pool.lock().unwrap_or_else(PoisonError::into_inner);
            shared.look_began_ns[index].store(now().as_ns(), Ordering::Relaxed);
            pool.run_commands();
            let next = pool.look(cpu, &mut account);
            if events.is_some() && pool.kernel.is_none() {
                place.take()?;
                events = None;
            }
            next
        };
        shared.look_began_ns[index].store(0, Ordering::Relaxed);
        if shared.has_lost_priority[index].swap(false, Ordering::Relaxed) {
            sched::set_attributes(0, &Attributes::fifo(ENFORCER))?;
        }
        shared.looks[index].fetch_add(1, Ordering::Relaxed);
        let usage = sched::usage();
        shared.cost_ns[index].store(usage.ran_ns, Ordering::Relaxed);
        let took = Duration::from_ns(usage.ran_ns - std::mem::replace(&mut used_ns, usage.ran_ns));
        let sleep = time_to_sleep(now(), next, took);
        wait(fd, events, sleep)?;
        account.woke(now().since(next), usage.sleeps);
    }
    shared.has_ended[index].store(true, Ordering::Relaxed);
    Ok(())
}

/// Sleeps until somebody wakes the enforcer, the kernel tells something, or the time is over.
fn wait(wake: BorrowedFd<'_>, events: Option<&OwnedFd>, sleep: Duration) -> io::Result<()> {
    let timeout = rustix::time::Timespec {
        tv_sec: (sleep.as_ns() / 1_000_000_000) as i64,
        tv_nsec: (sleep.as_ns() % 1_000_000_000) as i64,
    };
    let descriptors = [Some(wake), events.map(AsFd::as_fd)];
    let readable = |fd| rustix::event::PollFd::from_borrowed_fd(fd, rustix::event::PollFlags::IN);
    let mut fds: Vec<_> = descriptors.into_iter().flatten().map(readable).collect();
    match rustix::event::poll(&mut fds, Some(&timeout)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => Ok(()),
        Ok(_) => {
            // Empty where the kernel has told something; the look takes that.
            let _ = rustix::io::read(wake, &mut [0u8; 8]);
            Ok(())
        }
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_enforcer_sleeps_until_the_next_look_and_no_shorter_than_its_look_took() {
        let (now, us) = (Instant::from_ns(5_000_000), Duration::from_us);
        let sleep = |next_us: u64, took_us: u64| time_to_sleep(now, now + us(next_us), us(took_us));
        assert_eq!(sleep(300, 20), us(300));
        assert_eq!(sleep(30, 900), us(900));
        assert_eq!(time_to_sleep(now, Instant::ZERO, us(25)), us(25));
        assert_eq!(sleep(10_000_000, 20), SLEEP_MAX);
        assert_eq!(sleep(0, 10_000_000), SLEEP_MAX);
    }
}
