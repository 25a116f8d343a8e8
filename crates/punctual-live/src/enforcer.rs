//! Enforcers: one thread per pool processor that looks, tells the policy, and orders.
//!
//! An enforcer runs above the units of its processor. When it wakes it has preempted whoever ran there, so
//! the kernel's account of that unit is exact (`update_curr` in `kernel/sched`): no event, no probe and no
//! cost for the guests in between. With one run queue for several processors all their enforcers wake for the
//! same instants for that reason.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use punctual_sched::{CpuId, Duration, Instant, UnitParams};

use crate::driver::{Driver, Observation, Order};
use crate::os::cgroup;
use crate::os::sched::{self, Attributes};
use crate::unit::{self, ENFORCER, LiveUnit, UnitThreads, priority_of};

/// What can be asked of a pool while it runs.
#[derive(Debug)]
pub enum Command {
    /// Take a unit in; its number is the count of units before it.
    Add(Box<LiveUnit>, UnitParams),
    /// Let the unit with this name go: it is thawed, in the fair class, and no longer looked at. The rest is
    /// put back when the journal is undone.
    Remove(String),
    /// Give the unit with this name other parameters.
    Adjust(String, UnitParams),
    /// Park by priority and not by the freezer until [`Command::ResumeFreezing`]; the answer comes when no unit is
    /// frozen any more. Asked for by [`Enforcement::without_freezer`].
    PauseFreezing(Sender<()>),
    /// The freezer may be used again.
    ResumeFreezing,
}

/// What happened in a pool, in the order in which it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A unit's threads ended.
    Gone(String),
    /// A vCPU was plugged in, or is there again.
    Came(String),
    /// A unit cannot be enforced any more: why. It is in the fair class as far as possible, and the run
    /// should end.
    Failed(String, String),
    /// A command was refused.
    Refused(String, String),
    /// The clock of a domain went wrong during the run, by so many millionths: too fast if positive. The
    /// times that it tells, and the periods of its tasks, are wrong by as much.
    Clock(String, i64),
}

struct State {
    driver: Driver,
    units: Vec<Option<LiveUnit>>,
    seen: Vec<(usize, Observation)>,
    /// By processor, the units that may run since its last look: rank and number.
    ranked: Vec<Vec<(u16, usize)>>,
    /// Was the unit ordered to park and not been read since?
    unread: Vec<bool>,
    looked: Vec<Instant>,
    commands: Receiver<Command>,
    notices: Sender<Notice>,
    shared: Arc<Shared>,
    processors: Vec<usize>,
    /// May units be parked by the freezer? See [`Enforcement::without_freezer`].
    freezes: bool,
}

/// A pool under enforcement.
pub struct Enforcement {
    state: Arc<Mutex<State>>,
    commands: Sender<Command>,
    /// What happened; read by whoever runs the pool.
    pub notices: Receiver<Notice>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    relief: Option<JoinHandle<()>>,
}

struct Shared {
    stop: AtomicBool,
    wake: Vec<OwnedFd>,
    /// By enforcer: when the look began that it is in, in ns; 0 between looks.
    inside_ns: Vec<AtomicU64>,
    /// The units' threads, for [`relieve`].
    roster: Mutex<Vec<Member>>,
    /// Units lost the priorities that they had been given.
    relieved: AtomicBool,
    /// How often.
    reliefs: AtomicU64,
    /// Looks per processor: a heart that beats.
    looks: Vec<AtomicU64>,
    /// Processor time of the enforcers, in ns.
    cost_ns: Vec<AtomicU64>,
}

/// What is left when enforcement has ended.
pub struct Ended {
    /// The driver with its accounts.
    pub driver: Driver,
    /// The units by the driver's number; those that went are `None`.
    pub units: Vec<Option<LiveUnit>>,
    /// Processor time of each enforcer.
    pub cost: Vec<Duration>,
    /// How often a look took longer than [`STUCK`] and the units lost their priorities meanwhile.
    pub reliefs: u64,
}

/// Now, as policies see it: CLOCK_MONOTONIC.
pub fn now() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Instant::from_ns((time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64))
}

fn thread_time_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

/// Between two looks at most this long is spent in the kernel and the enforcer itself, in nobody's account.
const SWITCHING: Duration = Duration::from_us(5);

/// How long an enforcer sleeps at most: so that its heart beats.
const LONGEST_SLEEP: Duration = Duration::from_ms(100);

/// How long a move of threads waits for enforcers to be ready for it.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(500);

impl Enforcement {
    /// Starts enforcers for the pool's `processors` (in the machine's numbering, in the policy's order).
    ///
    /// # Errors
    /// No thread can be started, or it may not be real-time.
    pub fn start(driver: Driver, processors: &[usize]) -> io::Result<Enforcement> {
        let (commands, incoming) = channel();
        let (notices_in, notices) = channel();
        let wake = processors
            .iter()
            .map(|_| rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK))
            .collect::<Result<Vec<OwnedFd>, _>>()?;
        let counters = || processors.iter().map(|_| AtomicU64::new(0)).collect();
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            wake,
            inside_ns: counters(),
            roster: Mutex::new(Vec::new()),
            relieved: AtomicBool::new(false),
            reliefs: AtomicU64::new(0),
            looks: counters(),
            cost_ns: counters(),
        });
        let state = Arc::new(Mutex::new(State {
            driver,
            units: Vec::new(),
            seen: Vec::with_capacity(64),
            ranked: processors.iter().map(|_| Vec::with_capacity(64)).collect(),
            unread: Vec::new(),
            looked: vec![now(); processors.len()],
            commands: incoming,
            notices: notices_in,
            shared: shared.clone(),
            freezes: true,
            processors: processors.to_vec(),
        }));
        let threads = Vec::with_capacity(processors.len());
        let mut enforcement = Enforcement { state, commands, notices, shared, threads, relief: None };
        let (ready, readiness) = channel();
        for (index, &processor) in processors.iter().enumerate() {
            let (state, shared) = (enforcement.state.clone(), enforcement.shared.clone());
            let ready = ready.clone();
            let work = move || {
                let prepared = prepare(processor);
                let failed = prepared.is_err();
                let _ = ready.send(prepared);
                if failed { Ok(()) } else { enforce(index, &state, &shared) }
            };
            let name = format!("enforcer/{processor}");
            enforcement.threads.push(std::thread::Builder::new().name(name).spawn(work)?);
        }
        for _ in processors {
            readiness.recv().map_err(|_| io::Error::other("an enforcer ended at once"))??;
        }
        let shared = enforcement.shared.clone();
        let work = move || relieve(&shared);
        enforcement.relief = Some(std::thread::Builder::new().name("relief".into()).spawn(work)?);
        Ok(enforcement)
    }

    /// Asks for something; an enforcer does it at once.
    pub fn command(&self, command: Command) {
        // Fails only when every enforcer has ended, and then there is nothing to command.
        let _ = self.commands.send(command);
        self.shared.wake();
    }

    /// Calls `moves`, which moves threads from one cgroup to another. The kernel does that with its one
    /// cgroup lock held through a grace period of RCU (`cgroup_procs_write_start` in Linux
    /// `kernel/cgroup/cgroup.c`: 6 to 14 ms on Linux 6.18 with 250 ticks per second), and every write to a
    /// freezer takes the same lock. So nobody freezes meanwhile: enforcers park by priority, and go on as
    /// usual otherwise.
    pub fn without_freezer<T>(pools: &[&Enforcement], moves: impl FnOnce() -> T) -> T {
        let (done, is_done) = channel();
        for pool in pools {
            pool.command(Command::PauseFreezing(done.clone()));
        }
        drop(done);
        for _ in pools {
            // An enforcer that does not answer has ended, or is hanging: the guardian's business.
            let _ = is_done.recv_timeout(PATIENCE);
        }
        let moved = moves();
        for pool in pools {
            pool.command(Command::ResumeFreezing);
        }
        moved
    }

    /// Looks of each enforcer so far: they grow at least every 100 ms while it is well.
    pub fn looks(&self) -> Vec<u64> {
        self.shared.looks.iter().map(|looks| looks.load(Ordering::Relaxed)).collect()
    }

    /// Processor time of each enforcer so far, in ns.
    pub fn cost_ns(&self) -> Vec<u64> {
        self.shared.cost_ns.iter().map(|cost| cost.load(Ordering::Relaxed)).collect()
    }

    /// Has an enforcer ended of itself?
    pub fn has_failed(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Ends enforcement and hands everything back. Units stay as they are (frozen ones frozen) until the
    /// journal is undone.
    ///
    /// # Errors
    /// Why an enforcer ended before.
    pub fn stop(mut self) -> io::Result<Ended> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.wake();
        let mut result = Ok(());
        for thread in self.threads.drain(..) {
            let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("an enforcer panicked")));
            result = result.and(ended);
        }
        if let Some(relief) = self.relief.take() {
            relief.thread().unpark();
            // It has nothing to say.
            let _ = relief.join();
        }
        result?;
        let cost = self.cost_ns().into_iter().map(Duration::from_ns).collect();
        let reliefs = self.shared.reliefs.load(Ordering::Relaxed);
        let Ok(state) = Arc::try_unwrap(self.state) else {
            return Err(io::Error::other("an enforcer still holds the pool"));
        };
        let state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Ended { driver: state.driver, units: state.units, cost, reliefs })
    }
}

/// Makes the calling thread an enforcer of `processor`.
fn prepare(processor: usize) -> io::Result<()> {
    sched::set_affinity(0, &[processor])?;
    sched::set_attributes(0, &Attributes::fifo(ENFORCER))
}

fn enforce(index: usize, state: &Mutex<State>, shared: &Shared) -> io::Result<()> {
    let cpu = CpuId(index as u32);
    let fd = shared.wake[index].as_fd();
    let mut drain = [0u8; 8];
    while !shared.stop.load(Ordering::Relaxed) {
        let next = {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            shared.inside_ns[index].store(now().as_ns(), Ordering::Relaxed);
            state.obey();
            state.look(cpu)
        };
        shared.inside_ns[index].store(0, Ordering::Relaxed);
        shared.looks[index].fetch_add(1, Ordering::Relaxed);
        shared.cost_ns[index].store(thread_time_ns(), Ordering::Relaxed);
        let sleep = next.since(now()).min(LONGEST_SLEEP);
        let timeout = rustix::time::Timespec {
            tv_sec: (sleep.as_ns() / 1_000_000_000) as i64,
            tv_nsec: (sleep.as_ns() % 1_000_000_000) as i64,
        };
        let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => {
                let _ = rustix::io::read(fd, &mut drain);
            }
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// How often the relief looks whether an enforcer is stuck.
const RELIEF: std::time::Duration = std::time::Duration::from_millis(10);
/// So long is a look that is stuck: longer than the cgroup lock is held while a process is moved (up to 14
/// ms, see [`Enforcement::without_freezer`]).
pub const STUCK: Duration = Duration::from_ms(20);

/// A unit as the relief knows it.
struct Member {
    name: String,
    members: UnitThreads,
    group: PathBuf,
}

/// Gives the units' processors to the kernel while an enforcer is stuck in a look. It waits then for a lock
/// of the kernel, the one of cgroups say, and whoever has that may be waiting for the processor that a unit
/// has that the enforcer was about to park: a fork on the pool's processor, or a kernel worker of that
/// processor, beside another program that moves a process. Real-time units would keep it from running for
/// ever; in the fair class they do not.
fn relieve(shared: &Shared) {
    // Without the priority it is later on a busy machine, and no less right.
    let _ = sched::set_attributes(0, &Attributes::fifo(ENFORCER));
    let mut relieved_ns = vec![0; shared.inside_ns.len()];
    while !shared.stop.load(Ordering::Relaxed) {
        std::thread::park_timeout(RELIEF);
        let mut is_stuck = false;
        for (inside, relieved_ns) in shared.inside_ns.iter().zip(&mut relieved_ns) {
            let inside_ns = inside.load(Ordering::Relaxed);
            // Each look is relieved once.
            if inside_ns != 0 && inside_ns != *relieved_ns && now().since(Instant::from_ns(inside_ns)) > STUCK
            {
                *relieved_ns = inside_ns;
                is_stuck = true;
            }
        }
        if !is_stuck {
            continue;
        }
        for member in shared.roster.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            for thread in member.listed() {
                // One that is gone holds nothing up.
                let _ = sched::set_attributes(thread, &Attributes::other());
            }
        }
        shared.reliefs.fetch_add(1, Ordering::Relaxed);
        // Last, so that no priority which the enforcer gave meanwhile is lost without its knowing.
        shared.relieved.store(true, Ordering::Relaxed);
        shared.wake();
    }
}

impl Member {
    fn listed(&self) -> Vec<i32> {
        match self.members {
            UnitThreads::Thread(thread) => vec![thread.id],
            UnitThreads::ProcessTree(_) => cgroup::threads_in(&self.group).unwrap_or_default(),
        }
    }
}

impl Shared {
    fn wake(&self) {
        for fd in &self.wake {
            let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
        }
    }
}

impl State {
    fn obey(&mut self) {
        if self.shared.relieved.swap(false, Ordering::Relaxed) {
            self.units.iter_mut().flatten().for_each(LiveUnit::forget_priority);
        }
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Add(unit, params) => self.add(*unit, &params),
                Command::Remove(name) => {
                    if let Some(number) = self.find(&name) {
                        self.release(number);
                    }
                }
                Command::PauseFreezing(done) => {
                    self.freezes = false;
                    for number in 0..self.units.len() {
                        self.park(number);
                    }
                    // Whoever asked may have lost patience.
                    let _ = done.send(());
                }
                Command::ResumeFreezing => self.freezes = true,
                Command::Adjust(name, params) => {
                    let Some(number) = self.find(&name) else { continue };
                    if let Err(refused) = self.driver.adjust(now(), number, &params) {
                        let _ = self.notices.send(Notice::Refused(name, refused.to_string()));
                    }
                }
            }
        }
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.units.iter().position(|unit| unit.as_ref().is_some_and(|unit| unit.name == name))
    }

    fn add(&mut self, unit: LiveUnit, params: &UnitParams) {
        let number = match self.driver.insert(now(), params) {
            Ok(number) => number,
            Err(refused) => {
                let _ = self.notices.send(Notice::Refused(unit.name, refused.to_string()));
                return;
            }
        };
        let home = self.driver.home(number).index();
        let processors =
            if self.driver.shared_queue() { &self.processors[..] } else { &self.processors[home..=home] };
        let confined = unit.set_affinity(processors);
        // Whatever number the driver gives: the others keep theirs.
        let count = self.units.len().max(number + 1);
        self.units.resize_with(count, || None);
        self.unread.resize(count, true);
        self.unread[number] = true;
        self.seen.reserve(number + 1);
        self.ranked.iter_mut().for_each(|ranked| ranked.reserve(number + 1));
        let name = unit.name.clone();
        let group = unit.group().directory().to_owned();
        let member = Member { name: name.clone(), members: unit.members(), group };
        self.shared.roster.lock().unwrap_or_else(PoisonError::into_inner).push(member);
        self.units[number] = Some(unit);
        if let Err(problem) = confined {
            self.lose(number, name, problem);
        }
    }

    /// Lets a unit go, thawed.
    fn release(&mut self, number: usize) {
        self.driver.remove(now(), number);
        if let Some(mut unit) = self.units.get_mut(number).and_then(Option::take) {
            let is_other = |member: &Member| member.name != unit.name;
            self.shared.roster.lock().unwrap_or_else(PoisonError::into_inner).retain(is_other);
            // A failure means that it is gone, or that undoing the journal will say so.
            let _ = unit.release();
            unit.counters.set_order(None);
        }
    }

    fn lose(&mut self, number: usize, name: String, problem: unit::Error) {
        self.release(number);
        let _ = self.notices.send(match problem {
            unit::Error::Gone => Notice::Gone(name),
            unit::Error::Failed(why) => Notice::Failed(name, why),
        });
    }

    fn look(&mut self, cpu: CpuId) -> Instant {
        let shared = self.driver.shared_queue();
        let with_work = self.driver.needs_work();
        let at = now();
        let elapsed = at.since(self.looked[cpu.index()]);
        self.looked[cpu.index()] = at;
        self.seen.clear();
        // Whoever was parked or came since the last look, then those that could run, the most urgent first:
        // once all the time is accounted for, the others have not run and need not be read.
        for number in 0..self.units.len() {
            if self.unread[number] && (shared || self.driver.home(number) == cpu) {
                self.unread[number] = false;
                self.read(number, elapsed, false);
            }
        }
        let all = shared || with_work;
        let mut ran = self.seen.iter().fold(Duration::ZERO, |sum, (_, seen)| sum + seen.ran);
        let ranked = core::mem::take(&mut self.ranked[cpu.index()]);
        for &(_, number) in &ranked {
            if !all && ran + SWITCHING >= elapsed {
                break;
            }
            if self.seen.iter().all(|(known, _)| *known != number) {
                self.read(number, elapsed, with_work);
                ran = self.seen.last().map_or(ran, |(_, seen)| ran + seen.ran);
            }
        }
        self.ranked[cpu.index()] = ranked;
        let cpu = if shared { CpuId(0) } else { cpu };
        let mut next = self.driver.observe(at, cpu, &self.seen);
        let mut ranked = core::mem::take(&mut self.ranked[cpu.index()]);
        ranked.clear();
        for number in 0..self.units.len() {
            if !shared && self.driver.home(number) != cpu {
                continue;
            }
            let order = self.driver.order(number);
            self.publish(number, order);
            match order {
                Order::Ranked(rank) => ranked.push((rank, number)),
                Order::Parked if self.park(number) => {}
                Order::Parked => next = at,
            }
        }
        ranked.sort_unstable();
        let keep = self.priorities_hold(&ranked);
        for (position, &(_, number)) in ranked.iter().enumerate() {
            let Some(unit) = self.units[number].as_mut() else { continue };
            let priority = match unit.priority() {
                Some(priority) if keep => priority,
                _ => priority_of(position as u16),
            };
            if let Err(problem) = unit.admit(priority) {
                let name = unit.name.clone();
                self.lose(number, name, problem);
                next = at;
            }
        }
        self.ranked[cpu.index()] = ranked;
        // A look may take longer than it was to the next one. Were that taken at once, the units would get
        // nothing, and what they should have used up before it (the rest of a slice) would still be there,
        // for ever.
        if next > at { next.max(now() + self.driver.settings().granularity) } else { next }
    }

    /// Sees to it that a unit that its order parks does not run, at the cost of anybody at least. False: it
    /// is lost.
    fn park(&mut self, number: usize) -> bool {
        let Some(unit) = self.units[number].as_mut() else { return true };
        if self.driver.order(number) != Order::Parked {
            return true;
        }
        let parked = if self.freezes { unit.park() } else { unit.park_by_priority() };
        // What it runs all the same is read at each look, so that it is not taken for what it does with a
        // budget.
        self.unread[number] |= unit.is_idle();
        let Err(problem) = parked else { return true };
        let name = unit.name.clone();
        self.lose(number, name, problem);
        false
    }

    fn read(&mut self, number: usize, elapsed: Duration, with_work: bool) {
        let Some(unit) = self.units[number].as_mut() else { return };
        match unit.observe(elapsed, with_work) {
            // Nobody else wanted that time, and it was no budget's.
            Ok(seen) if unit.is_idle() => {
                self.seen.push((number, Observation { ran: Duration::ZERO, ..seen }))
            }
            Ok(seen) => self.seen.push((number, seen)),
            Err(problem) => {
                let name = unit.name.clone();
                self.lose(number, name, problem);
            }
        }
    }

    /// Do the priorities that units have already order them as they are ranked? With fixed priorities that is
    /// so whoever is parked meanwhile, which saves most of the system calls.
    fn priorities_hold(&self, ranked: &[(u16, usize)]) -> bool {
        let mut above = u32::MAX;
        ranked.iter().all(|&(_, number)| {
            let priority = self.units[number].as_ref().and_then(LiveUnit::priority);
            priority.is_some_and(|priority| std::mem::replace(&mut above, priority) > priority)
        })
    }

    fn publish(&mut self, number: usize, order: Order) {
        let Some(unit) = self.units[number].as_ref() else { return };
        if order == Order::Parked && unit.counters.order.load(Ordering::Relaxed) != 1 {
            // It may run a little until the freezer has it.
            self.unread[number] = true;
        }
        unit.counters.set_order(Some(order));
        if let Some(account) = self.driver.account(number) {
            let left = account.left.map_or(u64::MAX, Duration::as_ns);
            unit.counters.left_ns.store(left, Ordering::Relaxed);
            unit.counters.exhaustions.store(account.exhaustions, Ordering::Relaxed);
            unit.counters.replenishments.store(account.replenishments, Ordering::Relaxed);
        }
    }
}
