//! A run: pools under enforcement, the guardian beside them, and the way back.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Stdio};
use std::sync::Arc;
use std::time::Duration as StdDuration;

use punctual_model::host::PolicyChoice;
use punctual_sched::registry::OptionValue;
use punctual_sched::{Duration, Instant, UnitParams};

use crate::doctor;
use crate::driver::{Driver, Evidence, Settings};
use crate::enforcer::{Command, Enforcement, Notice, STUCK, now};
use crate::guardian::{Guardian, GuardianOptions};
use crate::journal::{self, Change, Identity, Journal, Restored};
use crate::os::cgroup::{self, Group};
use crate::os::proc;
use crate::os::sched::{self, Attributes};
use crate::preflight;
use crate::unit::{self, HIGHEST, LOWEST, LiveUnit, UnitCounters, UnitThreads};

/// What schedules the units of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolScheduler {
    /// A policy, enforced.
    Policy(PolicyChoice),
    /// Plain Linux, for comparison.
    Linux(LinuxScheduler),
}

/// A scheduler of plain Linux; nothing is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinuxScheduler {
    /// The fair scheduler: the units are confined to the processors, nothing else.
    Cfs,
    /// SCHED_FIFO by the units' priorities, no budgets.
    Fifo,
    /// SCHED_DEADLINE with budget and period as runtime and period. The kernel admits it only for threads
    /// that may run on all processors, so these are not confined to the pool.
    Deadline,
}

impl LinuxScheduler {
    /// All of them with their names on the command line and in results.
    pub const ALL: [(&str, LinuxScheduler); 3] = [
        ("linux-cfs", LinuxScheduler::Cfs),
        ("linux-fifo", LinuxScheduler::Fifo),
        ("linux-deadline", LinuxScheduler::Deadline),
    ];

    /// The one of that name.
    pub fn find(name: &str) -> Option<LinuxScheduler> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, scheduler)| scheduler)
    }

    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        let own = Self::ALL.into_iter().find(|(_, scheduler)| *scheduler == self);
        own.map_or("linux", |(name, _)| name)
    }
}

/// How a session is set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// This program, for the guardian.
    pub program: PathBuf,
    /// The processors of all pools.
    pub processors: Vec<usize>,
    /// Start even if no processor is left for the host.
    pub starve: bool,
    /// Lift the kernel's limit for real-time threads while the session lasts.
    pub lift_rt_limit: bool,
    /// How long enforcers may be silent before the guardian ends the run.
    pub silence: StdDuration,
    /// How often and how exactly enforcers look.
    pub driver: Settings,
}

/// Why a session does not start or go on.
#[derive(Debug)]
pub enum Error {
    /// The machine does not permit it.
    Refused(preflight::Error),
    /// The system failed at something.
    System {
        /// What was tried.
        what: String,
        /// What it said.
        error: io::Error,
    },
    /// A policy refused a unit or its own options.
    Policy(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Refused(refusal) => refusal.fmt(f),
            Error::System { what, error } => write!(f, "{what}: {error}"),
            Error::Policy(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

impl From<preflight::Error> for Error {
    fn from(refusal: preflight::Error) -> Self {
        Error::Refused(refusal)
    }
}

fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
    let what = what.into();
    move |error| Error::System { what, error }
}

enum Rule {
    Enforced(Box<Enforcement>),
    Baseline { linux: LinuxScheduler, units: Vec<LiveUnit> },
}

struct Pool {
    processors: Vec<usize>,
    rule: Rule,
}

/// A unit that was handed to a session.
#[derive(Clone, Debug)]
pub struct UnitHandle {
    /// Its name.
    pub name: String,
    /// Its pool.
    pub pool: usize,
    /// What can be read of it while the session runs.
    pub counters: Arc<UnitCounters>,
}

/// A run in progress. Dropping it puts everything back.
pub struct Session {
    journal: Journal,
    guardian: Option<Guardian>,
    directory: PathBuf,
    domains: Vec<(String, Group)>,
    domains_made: usize,
    pools: Vec<Pool>,
    units: usize,
    children: Vec<Child>,
    started_processes: Vec<Identity>,
    setup: Setup,
    own_affinity: Vec<usize>,
    started: Instant,
    last_looks: Vec<u64>,
    last_progress: std::time::Instant,
    /// Files that undo something when they are closed.
    held: Vec<File>,
}

/// Who makes the doctor's changes, the journal first.
struct Changes<'a> {
    journal: &'a mut Journal,
    held: &'a mut Vec<File>,
}

impl doctor::Apply for Changes<'_> {
    fn set_file(&mut self, path: &Path, value: &str, restore: &str) -> io::Result<()> {
        self.journal.set_file_back_to(path, value, restore)
    }

    fn hold_open(&mut self, path: &Path, value: i32) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).open(path)?;
        file.write_all(&value.to_ne_bytes())?;
        self.held.push(file);
        Ok(())
    }

    fn set_thread_priority(&mut self, tid: u32, name: &str, priority: u32) -> io::Result<()> {
        let tid = tid as i32;
        if proc::name(tid)? != name {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the thread has ended"));
        }
        self.journal.record_thread(tid)?;
        sched::set_attributes(tid, &Attributes::fifo(priority))
    }
}

/// What one unit got.
#[derive(Clone, Debug)]
pub struct UnitReport {
    /// Its name.
    pub name: String,
    /// Its pool.
    pub pool: usize,
    /// Processor time while it was under enforcement.
    pub cpu_time: Duration,
    /// Budget idled away.
    pub idled_away: Duration,
    /// Wake-ups and sleeps that were seen; 0 under policies that need not see them.
    pub wakes: u64,
    /// See `wakes`.
    pub sleeps: u64,
    /// Budget exhaustions.
    pub exhaustions: u64,
    /// Replenishments.
    pub replenishments: u64,
}

/// What one pool's enforcement did.
#[derive(Debug)]
pub struct PoolReport {
    /// Name of the policy, or of the scheduler of plain Linux.
    pub policy: &'static str,
    /// Its processors.
    pub processors: Vec<usize>,
    /// Distributions of overrun and lateness; empty for plain Linux.
    pub evidence: Evidence,
    /// Decisions of the policy.
    pub decisions: u64,
    /// Processor time of the enforcers.
    pub cost: Vec<Duration>,
    /// What is not as the host file says, in sentences without a full stop: plain Linux cannot
    /// do everything.
    pub differences: Vec<String>,
}

/// What is left of a session.
#[derive(Debug)]
pub struct Report {
    /// From the start of the session to its end.
    pub elapsed: Duration,
    /// By pool.
    pub pools: Vec<PoolReport>,
    /// By unit, in the order in which they were added; those that went are missing.
    pub units: Vec<UnitReport>,
    /// What was put back.
    pub restored: Restored,
}

impl Session {
    /// Checks what must hold, starts the guardian, and changes nothing but what keeps this process out of the
    /// pools' way.
    ///
    /// # Errors
    /// A refusal, or a failure of the system.
    pub fn start(setup: Setup) -> Result<Session, Error> {
        let left = preflight::processors(&setup.processors, setup.starve)?;
        preflight::real_time()?;
        let mount = preflight::parking()?;
        let mut journal = Journal::create(&mount)
            .map_err(system(format!("no journal can be written in {}", journal::directory().display())))?;
        let orders = GuardianOptions {
            journal: journal.path().to_owned(),
            limit: setup.silence + StdDuration::from_secs(1),
            processors: left.clone(),
        };
        let guardian = Guardian::start(&setup.program, &orders)
            .map_err(system(format!("the guardian cannot be started ({})", setup.program.display())))?;
        // The calling thread and those it starts stay off the pools; it gets its processors back at the end.
        let own_affinity = sched::affinity(0).map_err(system("this process's affinity cannot be read"))?;
        sched::set_affinity(0, &left).map_err(system("this process cannot leave the pools' processors"))?;
        let _ = rustix::mm::mlockall(rustix::mm::MlockAllFlags::CURRENT | rustix::mm::MlockAllFlags::FUTURE);
        let directory = mount.join(format!("punctual-{}", std::process::id()));
        let change = Change::Group { directory: directory.clone() };
        journal.record(&change).map_err(system("the journal cannot be written"))?;
        std::fs::create_dir(&directory).map_err(system(format!("{} cannot be made", directory.display())))?;
        if setup.lift_rt_limit && preflight::rt_limit().is_some() {
            journal
                .set_file(Path::new(preflight::RT_RUNTIME), "-1")
                .map_err(system(format!("{} cannot be set", preflight::RT_RUNTIME)))?;
        }
        keep_rcu_away(&mut journal, &setup.processors);
        Ok(Session {
            journal,
            guardian: Some(guardian),
            directory,
            domains: Vec::new(),
            domains_made: 0,
            pools: Vec::new(),
            units: 0,
            children: Vec::new(),
            started_processes: Vec::new(),
            setup,
            own_affinity,
            started: now(),
            last_looks: Vec::new(),
            last_progress: std::time::Instant::now(),
            held: Vec::new(),
        })
    }

    /// Makes a change of the machine for the time of the session.
    ///
    /// # Errors
    /// As the system says; then nothing was changed, or it will be put back.
    pub fn apply_change(&mut self, change: &doctor::Change) -> io::Result<()> {
        change.carry_out(&mut Changes { journal: &mut self.journal, held: &mut self.held })
    }

    /// Puts processors under a scheduler; returns the pool's number.
    ///
    /// # Errors
    /// The policy refuses its options, or enforcers cannot be started.
    pub fn add_pool(&mut self, processors: &[usize], scheduler: &PoolScheduler) -> Result<usize, Error> {
        let rule = match scheduler {
            PoolScheduler::Policy(choice) => {
                let mut options = choice.options.clone();
                // Live runs are event driven unless a quantum is asked for (semantics of the servers'
                // option).
                let has_quantum = choice.info.options.iter().any(|option| option.name == "quantum");
                if has_quantum && options.get("quantum").is_none() {
                    options.set("quantum", OptionValue::Word("exact"));
                }
                let driver = Driver::new(choice.info, &options, processors.len(), self.setup.driver)
                    .map_err(|e| Error::Policy(format!("policy `{}`: {e}", choice.info.name)))?;
                let enforcement =
                    Enforcement::start(driver, processors).map_err(system("enforcers cannot be started"))?;
                Rule::Enforced(Box::new(enforcement))
            }
            PoolScheduler::Linux(linux) => Rule::Baseline { linux: *linux, units: Vec::new() },
        };
        self.pools.push(Pool { processors: processors.to_vec(), rule });
        Ok(self.pools.len() - 1)
    }

    /// The group of a domain, made if it is new.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn domain_group(&mut self, domain: &str) -> Result<PathBuf, Error> {
        if let Some((_, group)) = self.domains.iter().find(|(name, _)| name == domain) {
            return Ok(group.directory().to_owned());
        }
        let directory = self.directory.join(format!("domain{}", self.domains_made));
        self.domains_made += 1;
        let group = Group::make(&directory, false)
            .map_err(system(format!("{} cannot be made", directory.display())))?;
        self.domains.push((domain.to_owned(), group));
        Ok(directory)
    }

    /// Starts a program that ends with the session, inside the group that will be the domain's unit.
    /// Its standard streams are as `program` says.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn launch(
        &mut self,
        domain: &str,
        command: Vec<String>,
        streams: Streams,
    ) -> Result<Launched, Error> {
        self.launch_in(domain, command, (&[], None), streams)
    }

    /// As [`Session::launch`], with further environment variables and a working directory.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn launch_in(
        &mut self,
        domain: &str,
        command: Vec<String>,
        (environment, directory): (&[(String, String)], Option<&Path>),
        streams: Streams,
    ) -> Result<Launched, Error> {
        let group = self.domain_group(domain)?.join(format!("unit{}", self.units));
        Group::make(&group, false).map_err(system(format!("{} cannot be made", group.display())))?;
        let mut program = Program::new(&self.setup.program);
        program.arg("launch").arg("--group").arg(&group).arg("--");
        let name = command.first().cloned().unwrap_or_default();
        program.args(command);
        program.envs(environment.iter().map(|(key, value)| (key, value)));
        if let Some(directory) = directory {
            program.current_dir(directory);
        }
        match streams {
            Streams::Quiet => {
                program.stdin(Stdio::null()).stdout(Stdio::null());
            }
            Streams::Piped => {
                program.stdin(Stdio::piped()).stdout(Stdio::piped());
            }
        }
        let start = || {
            let mut child = program.spawn().map_err(system(format!("{name} cannot be started")))?;
            let process = Identity::of(child.id() as i32).map_err(system(format!("{name} ended at once")))?;
            let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
            self.children.push(child);
            self.started_processes.push(process);
            // Before anything is waited for: until it is in its group, nothing but the journal knows of it.
            let change = Change::Child { process, name };
            self.journal.record(&change).map_err(system("the journal cannot be written"))?;
            wait_until_inside(process, &group);
            Ok(Launched { process, stdin, stdout })
        };
        Enforcement::without_freezer(&enforcements(&self.pools), start)
    }

    /// A process that the run started and that must end with it.
    ///
    /// # Errors
    /// It is gone.
    pub fn record_child(&mut self, pid: i32, name: &str) -> Result<(), Error> {
        let process = Identity::of(pid).map_err(system(format!("{name} ended at once")))?;
        let change = Change::Child { process, name: name.to_owned() };
        self.started_processes.push(process);
        self.journal.record(&change).map_err(system("the journal cannot be written"))
    }

    /// Collects programs that were launched and have ended, and removes the groups of units that are gone.
    pub fn reap(&mut self) {
        self.children.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
        self.started_processes.retain(Identity::is_alive);
        self.domains.retain(|(_, group)| {
            let empty = group.threads().is_ok_and(|threads| threads.is_empty());
            !(empty && cgroup::remove_tree(group.directory()).is_ok())
        });
    }

    /// Ends the processes that the run started: whoever waits for them need not wait any longer.
    pub fn kill_children(&mut self) {
        for process in &self.started_processes {
            if let (true, Some(pid)) = (process.is_alive(), rustix::process::Pid::from_raw(process.id)) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }

    /// Gives a thread that is no unit its place.
    ///
    /// # Errors
    /// It may not be changed; one that is gone is no error.
    pub fn place_helper(&mut self, tid: i32, processors: &[usize], to: &Attributes) -> Result<(), Error> {
        let placed = self
            .journal
            .record_thread(tid)
            .and_then(|()| sched::set_affinity(tid, processors))
            .and_then(|()| sched::set_attributes(tid, to));
        match placed {
            Err(e) if !matches!(e.raw_os_error(), Some(libc::ESRCH | libc::ENOENT)) => {
                Err(system(format!("helper thread {tid} cannot be placed"))(e))
            }
            _ => Ok(()),
        }
    }

    /// Takes threads in as a unit of a pool.
    ///
    /// # Errors
    /// The threads are gone or may not be changed.
    pub fn add_unit(
        &mut self,
        pool: usize,
        domain: &str,
        name: &str,
        members: UnitThreads,
        params: &UnitParams,
    ) -> Result<UnitHandle, Error> {
        preflight::thread(members.identity().id)?;
        self.domain_group(domain)?;
        let Some((_, group)) = self.domains.iter().find(|(known, _)| known == domain) else {
            return Err(Error::Policy(format!("domain `{domain}` has no group")));
        };
        let (journal, index) = (&mut self.journal, self.units);
        let moves = || LiveUnit::adopt(name, members, group, index, journal);
        let unit = Enforcement::without_freezer(&enforcements(&self.pools), moves)
            .map_err(system(format!("`{name}` cannot be taken in")))?;
        self.units += 1;
        let handle = UnitHandle { name: name.to_owned(), pool, counters: unit.counters.clone() };
        let Pool { processors, rule } = &mut self.pools[pool];
        match rule {
            Rule::Enforced(enforcement) => {
                enforcement.command(Command::Add(Box::new(unit), params.clone()));
            }
            Rule::Baseline { linux, units } => {
                apply_baseline(*linux, &unit, params, processors)
                    .map_err(|trouble| baseline_error(name, *linux, trouble))?;
                unit.counters.set_unmanaged();
                units.push(unit);
            }
        }
        Ok(handle)
    }

    /// Lets guests that plain Linux schedules tell what they measured, until the session ends: programs that
    /// could starve them are stopped, and vCPUs get the processor in turns, as a guest may wait for ever for
    /// a vCPU that is ready while another of its own spins.
    pub fn let_guests_report(&mut self) {
        for pool in &mut self.pools {
            let Rule::Baseline { units, .. } = &mut pool.rule else { continue };
            for unit in units {
                // One that is gone starves nobody.
                match unit.members() {
                    UnitThreads::ProcessTree(_) => drop(unit.park()),
                    UnitThreads::Thread(thread) => {
                        drop(sched::set_attributes(thread.id, &Attributes::other()))
                    }
                }
            }
        }
    }

    /// Lets a unit go.
    pub fn remove_unit(&mut self, handle: &UnitHandle) {
        match &mut self.pools[handle.pool].rule {
            Rule::Enforced(enforcement) => enforcement.command(Command::Remove(handle.name.clone())),
            Rule::Baseline { units, .. } => units.retain(|unit| unit.name != handle.name),
        }
    }

    /// Gives a unit other parameters.
    pub fn adjust_unit(&mut self, handle: &UnitHandle, params: &UnitParams) {
        if let Rule::Enforced(enforcement) = &self.pools[handle.pool].rule {
            enforcement.command(Command::Adjust(handle.name.clone(), params.clone()));
        }
    }

    /// To be called at least every 200 ms: tells the guardian that all is well, if it is, and returns what
    /// happened.
    ///
    /// # Errors
    /// The guardian is gone, or an enforcer ended: the session must end.
    pub fn poll(&mut self) -> Result<Vec<Notice>, Error> {
        let mut looks = Vec::new();
        let mut notices = Vec::new();
        for pool in &mut self.pools {
            match &mut pool.rule {
                Rule::Enforced(enforcement) => {
                    if enforcement.has_failed() {
                        let error = io::Error::other("an enforcer ended");
                        return Err(Error::System { what: "enforcement failed".into(), error });
                    }
                    looks.extend(enforcement.looks());
                    notices.extend(enforcement.notices.try_iter());
                }
                Rule::Baseline { units, .. } => {
                    units.retain_mut(|unit| match unit.observe(Duration::ZERO, false) {
                        Ok(_) => true,
                        Err(_) => {
                            notices.push(Notice::Gone(unit.name.clone()));
                            false
                        }
                    });
                }
            }
        }
        let advanced = looks.len() != self.last_looks.len()
            || looks.iter().zip(&self.last_looks).all(|(now, before)| now > before);
        if advanced {
            self.last_progress = std::time::Instant::now();
            self.last_looks = looks;
        }
        if self.last_progress.elapsed() < self.setup.silence
            && let Some(guardian) = self.guardian.as_mut()
        {
            guardian.beat().map_err(system("the guardian is gone"))?;
        }
        Ok(notices)
    }

    /// What each enforcer of a pool did so far: looks and processor time in ns. Empty under plain Linux.
    pub fn enforcers(&self, pool: usize) -> Vec<(u64, u64)> {
        match self.pools.get(pool).map(|pool| &pool.rule) {
            Some(Rule::Enforced(enforcement)) => {
                enforcement.looks().into_iter().zip(enforcement.cost_ns()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// When the session started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// The guardian's process.
    pub fn guardian(&self) -> Option<i32> {
        self.guardian.as_ref().map(Guardian::id)
    }

    /// Ends enforcement, puts everything back and says what happened.
    ///
    /// # Errors
    /// An enforcer had failed, or something could not be put back by anyone.
    pub fn finish(mut self) -> Result<Report, Error> {
        let elapsed = now().since(self.started);
        let mut pools = Vec::new();
        let mut units = Vec::new();
        let mut failed = None;
        for (index, Pool { processors, rule }) in self.pools.drain(..).enumerate() {
            match rule {
                Rule::Baseline { linux, units: mut members } => {
                    for unit in &mut members {
                        let _ = unit.observe(Duration::ZERO, false);
                        units.push(UnitReport {
                            name: unit.name.clone(),
                            pool: index,
                            cpu_time: unit.cpu_time(),
                            idled_away: Duration::ZERO,
                            wakes: 0,
                            sleeps: 0,
                            exhaustions: 0,
                            replenishments: 0,
                        });
                    }
                    pools.push(PoolReport {
                        policy: linux.name(),
                        differences: differences(linux, &processors),
                        processors,
                        evidence: Evidence::default(),
                        decisions: 0,
                        cost: Vec::new(),
                    });
                }
                Rule::Enforced(enforcement) => match enforcement.stop() {
                    Ok(ended) => {
                        for (number, unit) in ended.units.iter().enumerate() {
                            let Some(unit) = unit else { continue };
                            let account = ended.driver.account(number).unwrap_or_default();
                            let (_, idled_away, wakes, sleeps) = ended.driver.counts(number);
                            units.push(UnitReport {
                                name: unit.name.clone(),
                                pool: index,
                                cpu_time: unit.cpu_time(),
                                idled_away,
                                wakes,
                                sleeps,
                                exhaustions: account.exhaustions,
                                replenishments: account.replenishments,
                            });
                        }
                        pools.push(PoolReport {
                            policy: ended.driver.policy_name(),
                            processors,
                            evidence: ended.driver.evidence().clone(),
                            decisions: ended.driver.decisions(),
                            cost: ended.cost,
                            differences: reliefs(ended.reliefs),
                        });
                    }
                    Err(error) => failed = Some(error),
                },
            }
        }
        let restored = self.put_back()?;
        match failed {
            Some(error) => Err(Error::System { what: "enforcement failed".into(), error }),
            None => Ok(Report { elapsed, pools, units, restored }),
        }
    }

    fn put_back(&mut self) -> Result<Restored, Error> {
        let _ = sched::set_affinity(0, &self.own_affinity);
        let by_guardian = self.guardian.take().map(Guardian::finish);
        let restored = match by_guardian {
            Some(Ok(restored)) => Ok(restored),
            // The guardian is gone: the journal is still there.
            _ => journal::restore(self.journal.path()),
        };
        for child in &mut self.children {
            let _ = child.wait();
        }
        restored.map_err(system(format!("{} cannot be undone", self.journal.path().display())))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // After `finish` there is nothing left to do.
        for pool in self.pools.drain(..) {
            if let Rule::Enforced(enforcement) = pool.rule {
                let _ = enforcement.stop();
            }
        }
        if self.guardian.is_some() {
            let _ = self.put_back();
        }
    }
}

/// What a launched program reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// Nothing; its errors go where this program's go.
    Quiet,
    /// Pipes.
    Piped,
}

/// A program that was started.
#[derive(Debug)]
pub struct Launched {
    /// Its process.
    pub process: Identity,
    /// What it reads, if piped.
    pub stdin: Option<std::process::ChildStdin>,
    /// What it writes, if piped.
    pub stdout: Option<std::process::ChildStdout>,
}

/// That units had no priority for a while, if so.
fn reliefs(count: u64) -> Vec<String> {
    if count == 0 {
        return Vec::new();
    }
    let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
    vec![format!(
        "{times} the enforcer waited for more than {} ms for a lock of the kernel, and units had no real-time priority \
         meanwhile; another program that moves processes between cgroups makes it wait (punctual doctor --explain \
         cgroup-moves)",
        STUCK.as_ns() / 1_000_000
    )]
}

/// How far plain Linux is from what the host file says; for SCHED_DEADLINE, from RTDS, which it comes nearest
/// to.
fn differences(linux: LinuxScheduler, processors: &[usize]) -> Vec<String> {
    match linux {
        LinuxScheduler::Cfs => vec!["no budgets and no priorities: everybody gets the same share".into()],
        LinuxScheduler::Fifo => {
            vec!["no budgets: the most urgent that is ready runs for as long as it likes".into()]
        }
        LinuxScheduler::Deadline => {
            let mut differences = vec![
                "a vCPU that wakes up after its deadline, or with more budget left than its share, begins a new period \
                 then (kernel/sched/deadline.c, update_dl_entity); RTDS's periods follow each other from its start"
                    .to_owned(),
                "the end of a budget is noticed at the kernel's tick, unless its feature HRTICK_DL is on; the overrun is \
                 paid back from the next budget"
                    .into(),
                "budgets are hard: there is no extra time, which RTDS gives by default".into(),
            ];
            let online = preflight::online();
            if processors.len() < online.len() {
                differences.push(format!(
                    "vCPUs may run on processors {}, not only on the pool's {}: Linux admits SCHED_DEADLINE threads only \
                     with the whole root domain",
                    preflight::list(&online),
                    preflight::list(processors)
                ));
            }
            differences
        }
    }
}

fn enforcements(pools: &[Pool]) -> Vec<&Enforcement> {
    let enforced = pools.iter().filter_map(|pool| match &pool.rule {
        Rule::Enforced(enforcement) => Some(&**enforcement),
        Rule::Baseline { .. } => None,
    });
    enforced.collect()
}

/// A program that is launched moves itself before it becomes what it is to be.
fn wait_until_inside(process: Identity, group: &Path) {
    let end = std::time::Instant::now() + LAUNCH;
    let is_inside = || {
        cgroup::group_of(process.id).is_ok_and(|now| group.ends_with(now.trim_start_matches('/')))
            || !process.is_alive()
    };
    while !is_inside() && std::time::Instant::now() < end {
        std::thread::sleep(StdDuration::from_millis(1));
    }
}

/// So long may a program take to get into its group; one that takes longer is moved when it becomes a unit.
const LAUNCH: StdDuration = StdDuration::from_millis(500);

/// The threads of RCU are kept off the pools' processors: the kernel moves threads between cgroups with its
/// cgroup lock held through a grace period, and a real-time unit that spins where `rcu_preempt` is ready to
/// run stretches that to the period of the fair server, 1 s (958 ms against 6 to 14 ms, measured on Linux
/// 6.18). Enforcers need that lock to park. Those that may not be moved, and machines without a processor to
/// spare, stay as they are.
fn keep_rcu_away(journal: &mut Journal, from: &[usize]) {
    for tid in proc::kernel_threads("rcu").unwrap_or_default() {
        let Ok(before) = sched::affinity(tid) else { continue };
        let others: Vec<usize> = before.iter().copied().filter(|cpu| !from.contains(cpu)).collect();
        if others.is_empty() || others == before {
            continue;
        }
        let _ = journal.record_thread(tid).and_then(|()| sched::set_affinity(tid, &others));
    }
}

fn baseline_error(name: &str, linux: LinuxScheduler, error: unit::Error) -> Error {
    let why = match error {
        unit::Error::Gone => "its threads are gone".into(),
        unit::Error::Failed(why) => why,
    };
    let what = format!("`{name}` under {}", linux.name());
    Error::System { what, error: io::Error::other(why) }
}

fn apply_baseline(
    linux: LinuxScheduler,
    unit: &LiveUnit,
    params: &UnitParams,
    processors: &[usize],
) -> Result<(), unit::Error> {
    match linux {
        LinuxScheduler::Cfs => {
            unit.set_affinity(processors)?;
            unit.set_attributes(&Attributes::other())
        }
        LinuxScheduler::Fifo => {
            unit.set_affinity(processors)?;
            let below = params.priority.unwrap_or(u32::MAX).min(HIGHEST - LOWEST);
            unit.set_attributes(&Attributes::fifo(HIGHEST - below))
        }
        LinuxScheduler::Deadline => {
            let (Some(budget), Some(period)) = (params.budget, params.period) else {
                return Err(unit::Error::Failed("it has no budget and period".into()));
            };
            unit.set_attributes(&Attributes::deadline(budget.as_ns(), period.as_ns()))
        }
    }
}
