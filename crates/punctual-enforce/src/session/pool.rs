//! A pool of a session: its processors with their scheduler and units.

use std::io;
use std::path::PathBuf;

use punctual_model::host::PolicyChoice;
use punctual_sched::registry::OptionValue;
use punctual_sched::servers::{EXACT, QUANTUM};
use punctual_sched::{Duration, Instant, UnitParams};

use super::error::Error;
use super::isolation::Isolated;
use super::linux::LinuxScheduler;
use super::report::{PoolReport, UnitReport};
use super::setup::Setup;
use crate::backend::{Backend, Chosen};
use crate::blame::PoolObservations;
use crate::driver::{Driver, Evidence, Settings};
use crate::enforcer::{Command, Enforcement, Finished, Kernel, STUCK};
use crate::notice::Notice;
use crate::unit::{LiveUnit, UnitThreads, priority_of};
use punctual_linux::os::sched::{self, Attributes};
use punctual_linux::os::{load, proc};

/// What schedules the units of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolScheduler {
    /// A policy, enforced.
    Policy(PolicyChoice),
    /// Plain Linux, for comparison.
    Linux(LinuxScheduler),
}

/// A pool of a session.
pub(super) struct Pool {
    processors: Vec<usize>,
    units: Units,
    /// Units of the fair class beside those that are enforced.
    best_effort: Vec<LiveUnit>,
    /// What enforces them.
    enforced_by: Chosen,
    /// Its partition, if it is one.
    isolated: Option<Isolated>,
}

/// Where a pool is.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// The cgroup for its enforcers, if only threads of that one may use the processors.
    pub group: Option<PathBuf>,
    /// Its partition, if it is one.
    pub isolated: Option<Isolated>,
}

/// The units of a pool under their scheduler.
enum Units {
    Enforced(Box<Enforcement>),
    Linux { scheduler: LinuxScheduler, units: Vec<LiveUnit> },
}

impl Pool {
    /// Puts processors under a scheduler.
    pub(super) fn start(
        processors: &[usize],
        scheduler: &PoolScheduler,
        setup: &Setup,
        place: Place,
    ) -> Result<Pool, Error> {
        let Place { group, isolated } = place;
        let observed = setup.observed.clone();
        let kernel_tells = setup.enforced_by.backend == Backend::SchedExt;
        let settings = Settings { reuses_numbers: observed.keeps_nothing, kernel_tells, ..setup.driver };
        let units = match scheduler {
            PoolScheduler::Policy(choice) => {
                let driver = driver(choice, processors.len(), settings)?;
                let kernel = match setup.enforced_by.backend {
                    Backend::Freezer => None,
                    Backend::SchedExt => Some(Kernel::load(processors, driver.needs_work())?),
                };
                let enforcement = Enforcement::start(driver, processors, observed, kernel, group);
                let enforcement = enforcement.map_err(Error::NoEnforcers)?;
                Units::Enforced(Box::new(enforcement))
            }
            PoolScheduler::Linux(scheduler) => Units::Linux { scheduler: *scheduler, units: Vec::new() },
        };
        let (best_effort, enforced_by) = (Vec::new(), setup.enforced_by.clone());
        Ok(Pool { processors: processors.to_vec(), units, best_effort, enforced_by, isolated })
    }

    /// Its partition, if it is one.
    pub(super) fn isolated(&self) -> Option<&Isolated> {
        self.isolated.as_ref()
    }

    /// The enforcement of its units; none under plain Linux.
    pub(super) fn enforcement(&self) -> Option<&Enforcement> {
        match &self.units {
            Units::Enforced(enforcement) => Some(enforcement),
            Units::Linux { .. } => None,
        }
    }

    /// Schedules units; periods of their servers begin at this instant.
    pub(super) fn add(&mut self, units: Vec<(LiveUnit, UnitParams)>, at: Instant) -> Result<(), Error> {
        let (enforced, linux) = match &self.units {
            // The kernel runs its threads when no enforced unit wants to.
            Units::Enforced(_) => units.into_iter().partition(|(_, params)| !params.best_effort),
            Units::Linux { .. } => (Vec::new(), units),
        };
        if let (Units::Enforced(enforcement), false) = (&self.units, enforced.is_empty()) {
            enforcement.command(Command::Add(enforced, at));
        }
        linux.into_iter().try_for_each(|(unit, params)| self.add_to_linux(unit, &params))
    }

    fn add_to_linux(&mut self, unit: LiveUnit, params: &UnitParams) -> Result<(), Error> {
        let (scheduler, units) = match &mut self.units {
            Units::Enforced(_) => (LinuxScheduler::Cfs, &mut self.best_effort),
            Units::Linux { scheduler, units } => (*scheduler, units),
        };
        scheduler.schedule(&unit, params, &self.processors).map_err(|source| Error::Schedule {
            unit: unit.name.clone(),
            scheduler: scheduler.name(),
            source,
        })?;
        unit.counters.set_unmanaged();
        units.push(unit);
        Ok(())
    }

    /// What its units get if `before` others were added to the session before a unit with these parameters:
    /// scheduling attributes, and sets of processors.
    pub(super) fn gives(&self, params: &UnitParams, before: usize) -> (Vec<Attributes>, Vec<Vec<usize>>) {
        let attributes = match &self.units {
            Units::Enforced(_) => {
                let lowest = priority_of(u16::try_from(before).unwrap_or(u16::MAX));
                let mut given = vec![Attributes::fifo(lowest), Attributes::idle(), Attributes::other()];
                // The freezer takes over where the kernel ends the scheduler.
                given.extend((self.enforced_by.backend == Backend::SchedExt).then_some(Attributes::ext()));
                given
            }
            Units::Linux { scheduler, .. } => scheduler.attributes(params).into_iter().collect(),
        };
        let each = self.processors.iter().map(|processor| vec![*processor]);
        (attributes, each.chain([self.processors.clone()]).collect())
    }

    pub(super) fn remove(&mut self, name: &str) {
        match &mut self.units {
            Units::Enforced(_) if self.best_effort.iter().any(|unit| unit.name == name) => {
                self.best_effort.retain(|unit| unit.name != name);
            }
            Units::Enforced(enforcement) => enforcement.command(Command::Remove(name.to_owned())),
            Units::Linux { units, .. } => units.retain(|unit| unit.name != name),
        }
    }

    /// Confines the threads of a process that is about to come to a unit.
    pub(super) fn confine(&self, name: &str, process: i32) {
        let processors = match &self.units {
            Units::Enforced(enforcement) => enforcement.processors_of(name),
            Units::Linux { .. } => None,
        };
        let processors = processors.unwrap_or_else(|| self.processors.clone());
        for thread in proc::threads(process).unwrap_or_default() {
            // One that has ended needs none; else the watchdog does it, once the thread is in the unit.
            let _ = sched::set_affinity(thread, &processors);
        }
    }

    /// Threads came to a unit: they get the class that it has.
    pub(super) fn renew(&self, name: &str) {
        match &self.units {
            Units::Enforced(enforcement) => enforcement.command(Command::Renew(name.to_owned())),
            // Plain Linux gave it no class that its threads do not inherit or have.
            Units::Linux { .. } => {}
        }
    }

    /// Under plain Linux a unit keeps its parameters.
    pub(super) fn adjust(&mut self, name: &str, params: &UnitParams) {
        if let Units::Enforced(enforcement) = &self.units {
            enforcement.command(Command::Adjust(name.to_owned(), params.clone()));
        }
    }

    /// Gives its units another policy; plain Linux stays.
    pub(super) fn replace(&mut self, choice: &PolicyChoice) {
        if let Units::Enforced(enforcement) = &self.units {
            enforcement.command(Command::Replace(live_choice(choice)));
        }
    }

    /// Collects what happened.
    pub(super) fn poll(&mut self, notices: &mut Vec<Notice>) -> Result<(), Error> {
        match &mut self.units {
            Units::Enforced(enforcement) => {
                if enforcement.has_failed() {
                    return Err(Error::Enforcement(io::Error::other("an enforcer ended")));
                }
                notices.extend(enforcement.notices.try_iter());
                observe(&mut self.best_effort, notices);
            }
            Units::Linux { units, .. } => observe(units, notices),
        }
        Ok(())
    }

    /// See [`super::Session::let_guests_report`].
    pub(super) fn let_guests_report(&mut self) {
        let Units::Linux { units, .. } = &mut self.units else { return };
        for unit in units {
            // A unit that is gone takes no processor.
            let _ = match unit.threads() {
                UnitThreads::ProcessTree(_) => unit.park(),
                UnitThreads::Thread(_) => unit.set_attributes(&Attributes::other()),
            };
        }
    }

    /// What each enforcer did so far: looks and processor time in ns. Empty under plain Linux.
    pub(super) fn enforcers(&self) -> Vec<(u64, u64)> {
        let enforcers =
            |enforcement: &Enforcement| enforcement.looks().into_iter().zip(enforcement.cost_ns()).collect();
        self.enforcement().map(enforcers).unwrap_or_default()
    }

    /// Ends enforcement.
    pub(super) fn stop(self) {
        if let Units::Enforced(enforcement) = self.units {
            // The session has failed already.
            let _ = enforcement.stop();
        }
    }

    /// Ends enforcement and reports the pool, which is the session's number `index`, and its units.
    pub(super) fn finish(mut self, index: usize) -> Result<(PoolReport, Vec<UnitReport>), Error> {
        match self.units {
            Units::Linux { scheduler, mut units } => {
                let units = units.iter_mut().map(|unit| linux_unit(index, unit)).collect();
                let pool = PoolReport {
                    policy: scheduler.name(),
                    differences: scheduler.differences(&self.processors),
                    processors: self.processors,
                    evidence: Evidence::default(),
                    decisions: 0,
                    cost: Vec::new(),
                    observations: None,
                    demotions: 0,
                    enforced_by: None,
                    isolated: self.isolated,
                };
                Ok((pool, units))
            }
            Units::Enforced(enforcement) => {
                let finished = enforcement.stop().map_err(Error::Enforcement)?;
                let mut units = enforced_units(index, &finished);
                units.extend(self.best_effort.iter_mut().map(|unit| linux_unit(index, unit)));
                let observations = PoolObservations {
                    observations: finished.observations,
                    names: finished.names,
                    processors: self.processors.len(),
                    shared_queue: finished.driver.shared_queue(),
                    budget_idles_away: finished.driver.budget_idles_away(),
                    kernel_knows_stolen: load::kernel_knows_stolen(),
                };
                let pool = PoolReport {
                    policy: finished.driver.policy_name(),
                    processors: self.processors,
                    evidence: finished.driver.evidence().clone(),
                    decisions: finished.driver.decisions(),
                    cost: finished.cost,
                    observations: Some(observations),
                    demotions: finished.demotions,
                    enforced_by: Some(self.enforced_by),
                    isolated: self.isolated,
                    differences: demotions(finished.demotions),
                };
                Ok((pool, units))
            }
        }
    }
}

/// Reads what units of the kernel's own schedulers ran, and leaves out those that ended.
fn observe(units: &mut Vec<LiveUnit>, notices: &mut Vec<Notice>) {
    let gone = units.extract_if(.., |unit| unit.observe(Duration::ZERO, false).is_err());
    notices.extend(gone.map(|unit| Notice::Gone { unit: unit.name }));
}

fn driver(choice: &PolicyChoice, processors: usize, settings: Settings) -> Result<Driver, Error> {
    let PolicyChoice { info, options } = live_choice(choice);
    Driver::new(info, &options, processors, settings)
        .map_err(|source| Error::Policy { policy: info.name, source })
}

/// Live runs are event driven unless a quantum is asked for (semantics of the servers' option).
fn live_choice(choice: &PolicyChoice) -> PolicyChoice {
    let mut options = choice.options.clone();
    if choice.info.option(QUANTUM.name).is_some() && options.get(QUANTUM.name).is_none() {
        options.set(QUANTUM.name, OptionValue::Word(EXACT));
    }
    PolicyChoice { info: choice.info, options }
}

fn linux_unit(pool: usize, unit: &mut LiveUnit) -> UnitReport {
    // One that is gone has its last reading.
    let _ = unit.observe(Duration::ZERO, false);
    UnitReport {
        name: unit.name.clone(),
        pool,
        cpu_time: unit.cpu_time(),
        idled_away: Duration::ZERO,
        wakes: 0,
        sleeps: 0,
        exhaustions: 0,
        replenishments: 0,
    }
}

fn enforced_units(pool: usize, Finished { driver, units, .. }: &Finished) -> Vec<UnitReport> {
    let report = |(number, unit): (usize, &Option<LiveUnit>)| {
        let unit = unit.as_ref()?;
        let account = driver.account(number).unwrap_or_default();
        let counts = driver.counts(number);
        Some(UnitReport {
            name: unit.name.clone(),
            pool,
            cpu_time: unit.cpu_time(),
            idled_away: counts.idled_away,
            wakes: counts.wakes,
            sleeps: counts.sleeps,
            exhaustions: account.exhaustions,
            replenishments: account.replenishments,
        })
    };
    units.iter().enumerate().filter_map(report).collect()
}

/// That units had no priority for a while, if so.
fn demotions(count: u64) -> Vec<String> {
    if count == 0 {
        return Vec::new();
    }
    let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
    vec![format!(
        "{times} the enforcer waited for more than {} ms for a lock of the kernel, and units had no \
         real-time priority meanwhile; another program that moves processes between cgroups makes it wait \
         (punctual doctor --explain cgroup-moves)",
        STUCK.as_ns() / 1_000_000
    )]
}
