//! A session: pools under enforcement, the guardian beside them, and the way back.
//!
//! Every change of the machine goes through a session, which writes it down before it makes it. However the
//! session ends, everything is put back.

mod cards;
mod error;
mod groups;
mod heartbeat;
mod helpers;
mod interrupts;
mod isolation;
mod linux;
mod machine;
mod pool;
mod processes;
mod report;
mod restoration;
mod setup;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use punctual_model::host::PolicyChoice;
use punctual_sched::{Instant, UnitParams};

use crate::backend::Backend;
use crate::clock::now;
use crate::enforcer::Enforcement;
use crate::journal::{self, Change, Identity, Journal, Restored};
use crate::notice::Notice;
use crate::unit::{LiveUnit, UnitCounters, UnitThreads};
use groups::{AttachedGroups, DomainGroups};
use isolation::Isolation;
use machine::{JournaledChanges, LimitWatch};
use pool::{Place, Pool};
use processes::Processes;
use punctual_doctor::doctor;
use punctual_linux::os::sched::{self, Attributes};
use punctual_linux::os::{cgroup, proc};
use punctual_linux::partition::{self, Kind, Remains};
use punctual_linux::preflight;
use restoration::Restoration;

pub use cards::{CardChanged, CardSession};
pub use error::{Error, Failed};
pub use helpers::helper_attributes;
pub use interrupts::interrupt_affinity;
pub use isolation::Isolated;
pub use linux::LinuxScheduler;
pub use pool::PoolScheduler;
pub use report::{PoolReport, Report, UnitReport};
pub use setup::Setup;

/// Threads that are a unit of a pool and not scheduled by it yet.
#[derive(Debug)]
pub struct AdoptedUnit {
    pool: usize,
    unit: LiveUnit,
    params: UnitParams,
}

impl AdoptedUnit {
    /// Its threads.
    pub fn threads(&self) -> UnitThreads {
        self.unit.threads()
    }
}

/// A unit that was handed to a session.
#[derive(Clone, Debug)]
pub struct UnitHandle {
    /// Its name.
    pub name: String,
    /// Its pool.
    pub pool: usize,
    /// The directory of its group.
    pub group: PathBuf,
    /// What can be read of it while the session runs.
    pub counters: Arc<UnitCounters>,
}

/// A session in progress. Dropping it puts everything back.
pub struct Session {
    restoration: Restoration,
    groups: DomainGroups,
    attached: AttachedGroups,
    isolation: Isolation,
    /// By domain, how many threads it may have.
    threads_max: Vec<(String, u32)>,
    processes: Processes,
    pools: Vec<Pool>,
    /// How many units were added.
    units: usize,
    /// Files that undo something when they are closed.
    held_open: Vec<File>,
    /// Nothing where the run keeps the kernel's limit for real-time threads.
    limit: Option<LimitWatch>,
    setup: Setup,
    started: Instant,
}

impl Session {
    /// Checks what must hold, starts the guardian, and changes nothing but what keeps this process and the
    /// kernel out of the pools' way.
    ///
    /// # Errors
    /// The machine does not permit it, or the system fails; what was changed by then has been put back.
    pub fn start(setup: Setup) -> Result<Session, Failed> {
        let mut session = Session::begin(setup).map_err(Failed::unchanged)?;
        match session.prepare_machine() {
            Ok(()) => Ok(session),
            Err(error) => Err(Failed { error: Box::new(error), restored: session.abort() }),
        }
    }

    /// A session that has its guardian and its journal.
    fn begin(setup: Setup) -> Result<Session, Error> {
        let left = preflight::processors(&setup.processors, setup.starve)?;
        preflight::real_time()?;
        let mount = preflight::parking()?;
        let restoration = Restoration::start(&setup, left)?;
        prepare_descriptors();
        // Without the right to lock memory a page may be missing at a look, and no more.
        let _ = rustix::mm::mlockall(rustix::mm::MlockAllFlags::CURRENT | rustix::mm::MlockAllFlags::FUTURE);
        let run = std::process::id() as i32;
        let directory = mount.join(journal::group_names(run).0);
        Ok(Session {
            restoration,
            groups: DomainGroups::below(directory),
            attached: AttachedGroups::of_run(&mount, run),
            isolation: Isolation::of_run(&mount, run),
            threads_max: Vec::new(),
            processes: Processes::default(),
            pools: Vec::new(),
            units: 0,
            held_open: Vec::new(),
            limit: None,
            setup,
            started: now(),
        })
    }

    /// Makes the run's group, and keeps the kernel out of the way of the pools.
    fn prepare_machine(&mut self) -> Result<(), Error> {
        let directory = self.groups.directory().to_owned();
        let journal = &mut self.restoration.journal;
        journal.record(&Change::Group { directory: directory.clone() }).map_err(Error::Journal)?;
        std::fs::create_dir(&directory).map_err(|source| Error::Group { directory, source })?;
        if self.setup.lift_rt_limit {
            machine::lift_rt_limit(journal)?;
            self.limit = Some(LimitWatch::begin());
        }
        machine::keep_rcu_going(journal, &self.setup.processors);
        Ok(())
    }

    /// Makes a change of the machine for the time of the session.
    ///
    /// # Errors
    /// As the system says; then nothing was changed, or it will be put back.
    pub fn apply_change(&mut self, change: &doctor::Change) -> io::Result<()> {
        let (journal, held_open) = (&mut self.restoration.journal, &mut self.held_open);
        change.carry_out(&mut JournaledChanges { journal, held_open })
    }

    /// Puts processors under a scheduler; returns the pool's number. With `isolate` they are a partition of
    /// this kind from then on, and units of the pool are inside.
    ///
    /// # Errors
    /// The policy refuses its options, the kernel refuses the partition, or enforcers cannot be started.
    pub fn add_pool(
        &mut self,
        processors: &[usize],
        scheduler: &PoolScheduler,
        isolate: Option<Kind>,
    ) -> Result<usize, Error> {
        let mut place = Place::default();
        match isolate {
            Some(kind) => {
                partition::check(self.isolation.mount(), &self.setup.processors, &preflight::online())?;
                place.group = Some(self.isolation.make(processors, kind, &mut self.restoration.journal)?);
                place.isolated = Some(Isolated { kind, remains: Remains::on(processors) });
            }
            None => self.isolation.skip(),
        }
        let pool = Pool::start(processors, scheduler, &self.setup, place)?;
        if let Some(enforcement) = pool.enforcement() {
            self.restoration.watch(enforcement.pulse());
        }
        self.pools.push(pool);
        Ok(self.pools.len() - 1)
    }

    /// Starts a program that ends with the session, inside the group that will be the domain's unit. It has
    /// further environment variables and a working directory, if given, and reads and writes nothing; its
    /// errors go where this program's go.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn launch(
        &mut self,
        domain: &str,
        command: &[String],
        environment: &[(String, String)],
        directory: Option<&Path>,
    ) -> Result<Identity, Error> {
        let group = self.groups.of(domain)?.directory().join(format!("unit{}", self.units));
        groups::make(&group)?;
        let mut program = Command::new(&self.setup.program);
        program.arg("launch").arg("--group").arg(&group).arg("--").args(command);
        program.envs(environment.iter().map(|(key, value)| (key, value)));
        if let Some(directory) = directory {
            program.current_dir(directory);
        }
        let name = command.first().cloned().unwrap_or_default();
        let (processes, journal) = (&mut self.processes, &mut self.restoration.journal);
        let launch = || processes.launch(program, name, &group, journal);
        Enforcement::without_freezer(&enforcements(&self.pools), launch)
    }

    /// Limits how many threads what is started for a domain may have at once.
    ///
    /// # Errors
    /// The kernel's pids controller is not there, or the system fails.
    pub fn limit_threads(&mut self, domain: &str, threads_max: u32) -> Result<(), Error> {
        let group = self.groups.of(domain)?;
        cgroup::limit_threads(group.directory(), threads_max)
            .map_err(|source| Error::Limit { domain: domain.to_owned(), source })?;
        self.threads_max.push((domain.to_owned(), threads_max));
        Ok(())
    }

    /// Writes down a process that was started for the session and that must end with it.
    ///
    /// # Errors
    /// It is gone.
    pub fn record_child(&mut self, pid: i32, name: &str) -> Result<(), Error> {
        self.processes.record(pid, name, &mut self.restoration.journal).map(|_| ())
    }

    /// Collects programs that were launched and have ended, and removes the groups of domains that are gone.
    pub fn reap(&mut self) {
        self.processes.reap();
        self.groups.remove_empty();
        self.isolation.remove_empty();
    }

    /// Kills the processes that were started for the session, so that threads which wait for them end.
    pub fn kill_children(&mut self) {
        self.processes.kill();
    }

    /// Gives a thread that is no unit its processors and attributes.
    ///
    /// # Errors
    /// It may not be changed; one that is gone is no error.
    pub fn place_helper(&mut self, tid: i32, processors: &[usize], to: &Attributes) -> Result<(), Error> {
        let journal = &mut self.restoration.journal;
        let placed = journal
            .record_given(&[*to], &[processors.to_vec()])
            .and_then(|()| journal.record_helper(tid))
            .and_then(|()| sched::set_affinity(tid, processors))
            .and_then(|()| sched::set_attributes(tid, to));
        match placed {
            Err(source) if !matches!(source.raw_os_error(), Some(libc::ESRCH | libc::ENOENT)) => {
                Err(Error::Helper { thread: tid, source })
            }
            _ => Ok(()),
        }
    }

    /// Claims threads that run already for this session: while it lasts, no other one may have their process.
    /// What the session started is its own anyway.
    ///
    /// # Errors
    /// Another run has them, or they are gone.
    pub fn claim(&mut self, threads: UnitThreads) -> Result<(), Error> {
        let tid = threads.identity().id;
        let adopt = Error::adopt("a thread");
        if self.processes.has(proc::process_of(tid).map_err(adopt)?) {
            return Ok(());
        }
        Ok(self.restoration.journal.claim_process_of(tid)?)
    }

    /// Writes down how the process of claimed threads is, before a partition takes processors from it.
    ///
    /// # Errors
    /// They are gone, or the journal cannot be written.
    pub fn record(&mut self, threads: UnitThreads) -> Result<(), Error> {
        let recorded = proc::process_of(threads.identity().id)
            .and_then(|process| self.restoration.journal.record_threads(process));
        recorded.map_err(Error::adopt("a thread"))
    }

    /// Takes threads as a unit of a pool.
    ///
    /// # Errors
    /// The threads are gone or may not be changed.
    pub fn add_unit(
        &mut self,
        pool: usize,
        domain: &str,
        name: &str,
        threads: UnitThreads,
        params: &UnitParams,
    ) -> Result<UnitHandle, Error> {
        let adopted = self.adopt_unit(pool, domain, name, threads, params)?;
        Ok(self.schedule(vec![adopted])?.0.remove(0))
    }

    /// Takes threads as a unit of a pool, which schedules them from [`Session::schedule`] on.
    ///
    /// # Errors
    /// The threads are gone or may not be changed.
    pub fn adopt_unit(
        &mut self,
        pool: usize,
        domain: &str,
        name: &str,
        threads: UnitThreads,
        params: &UnitParams,
    ) -> Result<AdoptedUnit, Error> {
        preflight::thread(threads.identity().id)?;
        self.claim(threads)?;
        let mut homes = Homes {
            groups: &mut self.groups,
            attached: &mut self.attached,
            isolation: &mut self.isolation,
            processes: &self.processes,
            threads_max: &self.threads_max,
        };
        let (journal, index) = (&mut self.restoration.journal, self.units);
        let (attributes, affinities) = self.pools[pool].gives(params, index);
        journal.record_given(&attributes, &affinities).map_err(Error::Journal)?;
        let adopt = || {
            let parent = homes.of(pool, domain, name, threads, journal)?;
            LiveUnit::adopt(name, threads, &parent, index, journal).map_err(Error::adopt(name))
        };
        let unit = Enforcement::without_freezer(&enforcements(&self.pools), adopt)?;
        self.units += 1;
        Ok(AdoptedUnit { pool, unit, params: params.clone() })
    }

    /// Takes all processes of the cgroup `home`, a path below the mount, as one unit of a pool, which
    /// schedules them from [`Session::schedule`] on, for as long as the process `first` lives.
    ///
    /// # Errors
    /// They are gone or may not be changed, or the cgroup has others in it.
    pub fn adopt_group(
        &mut self,
        pool: usize,
        name: &str,
        first: Identity,
        home: &str,
        params: &UnitParams,
    ) -> Result<AdoptedUnit, Error> {
        preflight::thread(first.id)?;
        if self.isolation.has(pool) {
            let no_group = "a whole cgroup cannot be in an isolated pool: its processes would leave it";
            return Err(Error::adopt(name)(io::Error::other(no_group)));
        }
        self.claim(UnitThreads::ProcessTree(first))?;
        let (attached, journal, index) = (&mut self.attached, &mut self.restoration.journal, self.units);
        let (attributes, affinities) = self.pools[pool].gives(params, index);
        journal.record_given(&attributes, &affinities).map_err(Error::Journal)?;
        let at_home = attached.below(home);
        let adopt = || {
            let parent = attached.for_group(home, journal)?;
            LiveUnit::adopt_group(name, first, &at_home, &parent, index, journal)
        };
        let unit = Enforcement::without_freezer(&enforcements(&self.pools), adopt);
        self.units += 1;
        Ok(AdoptedUnit { pool, unit: unit.map_err(Error::adopt(name))?, params: params.clone() })
    }

    /// Takes processes that came to the cgroup `home` of a unit, whose first process is `first`, into the
    /// unit; returns how many.
    ///
    /// # Errors
    /// They may not be changed.
    pub fn follow_group(&mut self, unit: &UnitHandle, first: Identity, home: &str) -> Result<usize, Error> {
        let newcomers = cgroup::processes_in(&self.attached.below(home)).unwrap_or_default();
        if newcomers.is_empty() {
            return Ok(0);
        }
        let journal = &mut self.restoration.journal;
        let pool = &self.pools[unit.pool];
        // Their affinity is written down before it changes.
        let confined = newcomers.iter().try_for_each(|&process| match journal.record_threads(process) {
            Err(error) if proc::is_gone(&error) => Ok(()),
            recorded => recorded.map(|()| pool.confine(&unit.name, process)),
        });
        confined.map_err(Error::adopt(&unit.name))?;
        let joined = Enforcement::without_freezer(&enforcements(&self.pools), || {
            crate::unit::join(first.id, &newcomers, &unit.group, journal)
        });
        self.pools[unit.pool].renew(&unit.name);
        joined.map_err(Error::adopt(&unit.name))
    }

    /// Schedules units from one instant on, which is returned: periods of their servers begin there.
    ///
    /// # Errors
    /// Linux refuses them its scheduler.
    pub fn schedule(&mut self, adopted: Vec<AdoptedUnit>) -> Result<(Vec<UnitHandle>, Instant), Error> {
        let at = now();
        let mut handles = Vec::with_capacity(adopted.len());
        let mut by_pool: Vec<_> = self.pools.iter().map(|_| Vec::new()).collect();
        for AdoptedUnit { pool, unit, params } in adopted {
            let (name, counters) = (unit.name.clone(), unit.counters.clone());
            let group = unit.group().directory().to_owned();
            handles.push(UnitHandle { name, pool, group, counters });
            by_pool[pool].push((unit, params));
        }
        for (pool, units) in self.pools.iter_mut().zip(by_pool) {
            pool.add(units, at)?;
        }
        Ok((handles, at))
    }

    /// Frees the processor for guests that plain Linux schedules, until the session ends, so that they can
    /// report what they measured. Programs that could starve them are stopped, and vCPUs get the processor in
    /// turns: otherwise a vCPU that spins could keep another one of its guest from running at all.
    pub fn let_guests_report(&mut self) {
        self.pools.iter_mut().for_each(Pool::let_guests_report);
    }

    /// Ends the enforcement of a unit.
    pub fn remove_unit(&mut self, handle: &UnitHandle) {
        self.pools[handle.pool].remove(&handle.name);
    }

    /// Lets go of a process that was attached to, of which these are the units: they are no longer scheduled,
    /// and all its threads are as they were, or as they would be without the session. One that has ended is
    /// only forgotten.
    ///
    /// # Errors
    /// The journal cannot be read or written. What could not be put back is in [`Restored::failures`], and is
    /// put back at the end.
    pub fn release(&mut self, process: i32, units: &[UnitHandle]) -> Result<Restored, Error> {
        units.iter().for_each(|unit| self.remove_unit(unit));
        let journal = &mut self.restoration.journal;
        // Enforcers have removed the units when they answer that they do not freeze.
        let released = Enforcement::without_freezer(&enforcements(&self.pools), || journal.release(process));
        let (restored, directories) = released.map_err(Error::Journal)?;
        self.attached.forget(&directories);
        Ok(restored)
    }

    /// Gives a unit other parameters.
    pub fn adjust_unit(&mut self, handle: &UnitHandle, params: &UnitParams) {
        self.pools[handle.pool].adjust(&handle.name, params);
    }

    /// Gives the units of a pool another policy. Where that cannot be done, a notice says why.
    pub fn replace_policy(&mut self, pool: usize, choice: &PolicyChoice) {
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.replace(choice);
        }
    }

    /// Returns what happened since the last call.
    ///
    /// # Errors
    /// The guardian is gone, or an enforcer ended: the session must end.
    pub fn poll(&mut self) -> Result<Vec<Notice>, Error> {
        self.restoration.check_guardian()?;
        let mut notices: Vec<Notice> = self.limit.as_mut().and_then(LimitWatch::check).into_iter().collect();
        for pool in &mut self.pools {
            pool.poll(&mut notices)?;
        }
        if notices.iter().any(|notice| matches!(notice, Notice::Gone { .. })) {
            self.attached.remove_empty();
        }
        Ok(notices)
    }

    /// What enforces its policies.
    pub fn backend(&self) -> Backend {
        self.setup.enforced_by.backend
    }

    /// The partition of a pool, if it is one.
    pub fn isolated(&self, pool: usize) -> Option<&Isolated> {
        self.pools.get(pool).and_then(Pool::isolated)
    }

    /// What each enforcer of a pool did so far: looks and processor time in ns. Empty under plain Linux.
    pub fn enforcers(&self, pool: usize) -> Vec<(u64, u64)> {
        self.pools.get(pool).map(Pool::enforcers).unwrap_or_default()
    }

    /// Ends enforcement, puts everything back and reports what happened.
    ///
    /// # Errors
    /// An enforcer had failed, or something could not be put back at all.
    pub fn finish(mut self) -> Result<Report, Failed> {
        let elapsed = now().since(self.started);
        let (mut pools, mut units) = (Vec::new(), Vec::new());
        let mut failed = None;
        for (index, pool) in self.pools.drain(..).enumerate() {
            match pool.finish(index) {
                Ok((pool, of_pool)) => {
                    pools.push(pool);
                    units.extend(of_pool);
                }
                Err(error) => failed = Some(error),
            }
        }
        let restored = self.restoration.put_back();
        self.processes.wait();
        let restored = restored.map_err(Failed::unchanged)?;
        match failed {
            None => Ok(Report { elapsed, pools, units, restored }),
            Some(error) => Err(Failed { error: Box::new(error), restored: Some(restored) }),
        }
    }

    /// Ends a session that failed. Returns what was put back; `None` where that failed, too, which standard
    /// error then says.
    pub fn abort(mut self) -> Option<Restored> {
        self.end().unwrap_or_else(|error| {
            eprintln!("{error}");
            None
        })
    }

    /// Stops enforcement and puts everything back, unless that has been done.
    fn end(&mut self) -> Result<Option<Restored>, Error> {
        self.pools.drain(..).for_each(Pool::stop);
        if self.restoration.is_done() {
            return Ok(None);
        }
        let restored = self.restoration.put_back();
        self.processes.wait();
        restored.map(Some)
    }
}

/// Where the groups of units are made.
struct Homes<'s> {
    groups: &'s mut DomainGroups,
    attached: &'s mut AttachedGroups,
    isolation: &'s mut Isolation,
    processes: &'s Processes,
    threads_max: &'s [(String, u32)],
}

impl Homes<'_> {
    /// The directory in which threads of a domain get a group as a unit of a pool.
    fn of(
        &mut self,
        pool: usize,
        domain: &str,
        name: &str,
        threads: UnitThreads,
        journal: &mut Journal,
    ) -> Result<PathBuf, Error> {
        let started = self.isolation.started(pool);
        match (threads, started) {
            (UnitThreads::ProcessTree(_), None) => Ok(self.groups.of(domain)?.directory().to_owned()),
            (UnitThreads::ProcessTree(_), Some(started)) => self.limited(domain, started),
            (UnitThreads::Thread(thread), started) => {
                let process = proc::process_of(thread.id).map_err(Error::adopt(name))?;
                match started {
                    Some(started) if self.processes.has(process) => {
                        self.isolation.take(domain, process, journal)?;
                        Ok(started)
                    }
                    None if self.processes.has(process) => {
                        Ok(self.groups.take(domain, process, journal)?.to_owned())
                    }
                    _ => {
                        let isolated = self.isolation.for_thread(pool, thread.id, journal);
                        let parent = isolated.and_then(|parent| match parent {
                            Some(parent) => Ok(parent),
                            None => self.attached.for_thread(thread.id, journal),
                        });
                        parent.map_err(Error::adopt(name))
                    }
                }
            }
        }
    }

    /// A group for the units of a domain in the group `started`, with the domain's limit of threads.
    fn limited(&self, domain: &str, started: PathBuf) -> Result<PathBuf, Error> {
        let Some(number) = self.threads_max.iter().position(|(of, _)| of == domain) else {
            return Ok(started);
        };
        let directory = started.join(format!("limited{number}"));
        groups::make(&directory)?;
        // From the partitions' own group down.
        let above: Vec<&Path> = started.ancestors().take(3).collect();
        let limited = above.iter().rev().try_for_each(|group| cgroup::give_pids(group));
        let limited = limited.and_then(|()| cgroup::limit_threads(&directory, self.threads_max[number].1));
        limited.map_err(|source| Error::Limit { domain: domain.to_owned(), source })?;
        Ok(directory)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // After `finish` and `abort` there is nothing left to do.
        restoration::say(self.end());
    }
}

/// Entries to reserve in the table of file descriptors, if the limit permits: enough for about 16,000 units.
const DESCRIPTORS: u64 = 1 << 16;

/// Raises RLIMIT_NOFILE (a unit takes four descriptors, and the usual limit of a shell is 1024) and grows the
/// table of descriptors in advance. When a thread opens a file and the table is full, the kernel grows it
/// and waits for an RCU grace period, and all other threads that open a file wait with it (Linux
/// `expand_files`). A unit that spins ahead of a preempted reader delays the grace period until the enforcer
/// parks the unit, which never happens if the enforcer waits for one of these threads.
fn prepare_descriptors() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Where it cannot be raised, the thread that needs one more is named with what helps.
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised);
    let current = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let last = current.unwrap_or(DESCRIPTORS).min(DESCRIPTORS).saturating_sub(1);
    if let Ok(event) = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC) {
        // The table keeps its size when the descriptor is closed. Without memory for it, it grows as needed.
        drop(rustix::io::fcntl_dupfd_cloexec(event, i32::try_from(last).unwrap_or(i32::MAX)));
    }
}

fn enforcements(pools: &[Pool]) -> Vec<&Enforcement> {
    pools.iter().filter_map(Pool::enforcement).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_descriptors_has_its_size_before_there_is_a_unit() {
        prepare_descriptors();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let status = std::fs::read_to_string("/proc/self/status").expect("readable");
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:")).expect("a size");
        let size: u64 = size.trim().parse().expect("a number");
        assert!(size >= limit.unwrap_or(DESCRIPTORS).min(DESCRIPTORS), "{size}");
    }
}
