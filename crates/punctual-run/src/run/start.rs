//! The second stage: the session is there, and every domain was started or found.

use std::thread::Builder;
use std::time::{Duration, Instant};

use punctual_model::Host;
use punctual_model::index::DomainIx;
use punctual_model::live::Backend;

use super::domain::{DomainProcess, RunningDomain};
use super::error::{ChangeError, Error, RunError};
use super::inputs::StageInputs;
use super::live_run::{LiveRun, join, processors};
use super::prepare::{Prepared, PreparedDomain, Start};
use crate::events::Event;
use punctual_enforce::enforcer::Observed;
use punctual_enforce::journal::Identity;
use punctual_enforce::session::{Session, Setup};
use punctual_enforce::unit::UnitThreads;
use punctual_linux::os::{proc, sched};
use punctual_vm::qemu::Vm;
use punctual_vm::workload;

/// What a guest has at least to announce itself when it is waited for.
const LIMIT_MIN: Duration = Duration::from_secs(1);

/// A host whose domains run, in the fair class and on any processor.
pub(super) struct Started<'a> {
    pub run: LiveRun<'a>,
}

impl<'a> Prepared<'a> {
    /// Starts a session and the domains; waits until their guests have announced themselves.
    pub(super) fn start(self) -> Result<Started<'a>, RunError> {
        let Prepared { host, mut options, pools, domains, ends, enforced_by } = self;
        let config = options.config;
        let started = Session::start(Setup {
            name: host.name.clone(),
            program: config.program.clone(),
            processors: processors(host, &pools),
            starve: config.starve,
            lift_rt_limit: true,
            silence: config.silence,
            end: options.end,
            driver: config.driver,
            enforced_by,
            observed: Observed {
                switches: config.trace,
                serving: options.serving.clone(),
                keeps_nothing: false,
            },
        });
        let mut session = started.map_err(RunError::of_session)?;
        let unchanged = apply_changes(&mut session, &mut options);
        let mut run = LiveRun { host, options, pools, session, domains: Vec::new(), ends, unchanged };
        match run.start_domains(domains) {
            Ok(()) => Ok(Started { run }),
            Err(error) => Err(run.failed(error)),
        }
    }
}

/// Makes the changes of the machine that the options ask for; returns those that could not be made.
fn apply_changes(session: &mut Session, options: &mut StageInputs<'_>) -> Vec<ChangeError> {
    let changes = std::mem::take(&mut options.changes).into_iter();
    let error = |change| match session.apply_change(&change) {
        Ok(()) => None,
        Err(source) => Some(ChangeError { change, source }),
    };
    changes.filter_map(error).collect()
}

impl LiveRun<'_> {
    fn start_domains(&mut self, domains: Vec<PreparedDomain<'_>>) -> Result<(), Error> {
        for (index, domain) in domains.into_iter().enumerate() {
            if (self.options.stop)() {
                return Err(Error::Stopped);
            }
            self.session.poll()?;
            self.start_domain(DomainIx(index), domain)?;
        }
        self.wait_for_guests()?;
        let left = self.processors_left();
        self.domains.iter().filter_map(|domain| domain.process.of_vm()).for_each(|vm| allow(vm, &left));
        self.domains.iter_mut().try_for_each(|domain| complete(self.host, domain))
    }

    /// Starts or finds a domain. The vCPUs of a VM are not known yet.
    fn start_domain(&mut self, ix: DomainIx, domain: PreparedDomain<'_>) -> Result<(), Error> {
        let described = &self.host.domains[ix.0];
        let name = &described.name;
        let events = self.options.events.clone();
        let progress = move |line: &str| events(Event::Step(line.to_owned()));
        if let Some(threads_max) = described.live.threads_max {
            self.session.limit_threads(name, threads_max)?;
        }
        let (process, vcpus) = match domain.start {
            Start::Vm(spec) => {
                progress(&format!("booting {name} ({})", spec.accelerator.name()));
                let vm = Vm::start(&spec, self.options.stop)?;
                vm.weaknesses().iter().for_each(|weakness| progress(&format!("{name}: {weakness}")));
                self.session.record_child(vm.pid() as i32, name)?;
                // Nobody is served yet but who is attached to: with the pool's processors guests boot sooner.
                if !self.host.domains.iter().any(|domain| matches!(domain.live.backend, Backend::Attach(_))) {
                    let pool = &self.host.pools[self.host.pool_of(described.parent).0].processors;
                    allow(vm.pid() as i32, &[&self.processors_left()[..], pool].concat());
                }
                (DomainProcess::Vm(Box::new(vm)), Vec::new())
            }
            Start::Guest { program } => {
                progress(&format!("starting {name}"));
                let process = match program {
                    Some(program) => workload::Process::start_program(program, self.options.stop)?,
                    None => workload::Process::start(self.options.stop)?,
                };
                self.session.record_child(process.pid() as i32, name)?;
                let vcpu = vcpu_thread(name, process.pid())?;
                (DomainProcess::Guest(Box::new(process)), vec![Some(vcpu)])
            }
            Start::Command { command, environment, directory } => {
                progress(&format!("starting {name}"));
                let process = self.session.launch(name, &command, environment, directory)?;
                (DomainProcess::External, vec![Some(UnitThreads::ProcessTree(process))])
            }
            Start::Switch => (DomainProcess::Switch, vec![None; described.vcpus.len()]),
            Start::Attach(vcpus) => {
                // Before other domains are started, which takes long.
                vcpus.iter().flatten().try_for_each(|threads| self.session.claim(*threads))?;
                (DomainProcess::External, vcpus)
            }
        };
        self.domains.push(RunningDomain {
            ix,
            process,
            vcpus,
            tasks: domain.tasks,
            network: domain.network,
            failed: None,
        });
        Ok(())
    }

    /// Waits until the guests have announced themselves. One that does not is given up; the others go on.
    ///
    /// # Errors
    /// None has, and nothing else is to run.
    fn wait_for_guests(&mut self) -> Result<(), Error> {
        let LiveRun { host, options, session, domains, .. } = self;
        let mut began = Instant::now();
        for domain in domains.iter_mut() {
            let RunningDomain { ix, process, failed, .. } = domain;
            if let DomainProcess::External | DomainProcess::Switch = process {
                continue;
            }
            let name = &host.domains[ix.0].name;
            // Those that come after one that was given up had as long as that one.
            let waited = Duration::from_secs(began.elapsed().as_secs());
            let limit = options.config.boot.saturating_sub(waited).max(LIMIT_MIN);
            *failed = std::thread::scope(|scope| {
                let announced = Builder::new().spawn_scoped(scope, || process.announce(limit));
                join(announced.map_err(Error::NoThread)?, name, session, options.stop)
            })?;
            match failed {
                None => began = Instant::now(),
                Some(why) => options.step(&format!("{name} did not start: {why}")),
            }
        }
        let is_there = |domain: &RunningDomain| {
            domain.failed.is_none() && !matches!(domain.process, DomainProcess::Switch)
        };
        if domains.iter().any(is_there) {
            return Ok(());
        }
        let silent = domains.iter_mut().find_map(|domain| Some((domain.failed.take()?, domain)));
        silent.map_or(Ok(()), |(source, domain)| {
            let last_words = domain.process.last_words();
            Err(Error::NoGuest { domain: host.domains[domain.ix.0].name.clone(), source, last_words })
        })
    }
}

/// Lets all threads of a VM run on these processors. Who waits for its guest reports a VM that has ended.
fn allow(process: i32, processors: &[usize]) {
    for thread in proc::threads(process).unwrap_or_default() {
        let _ = sched::set_affinity(thread, processors);
    }
}

/// Finds the vCPUs of a VM; checks that a domain has the vCPUs of the host file.
fn complete(host: &Host, domain: &mut RunningDomain) -> Result<(), Error> {
    let described = &host.domains[domain.ix.0];
    let (name, expected) = (&described.name, described.vcpus.len());
    if let DomainProcess::Vm(vm) = &mut domain.process {
        let tids = vm.vcpu_threads().map_err(Error::Vm);
        let threads = |tids: Vec<u32>| tids.into_iter().map(|tid| vcpu_thread(name, tid).map(Some)).collect();
        domain.vcpus = match tids.and_then(threads) {
            Ok(threads) => threads,
            // QEMU has ended, for example, and the guest's verdict reports that.
            Err(_) if domain.failed.is_some() => vec![None; expected],
            Err(error) => return Err(error),
        };
    }
    let found = domain.vcpus.len();
    if expected == found {
        return Ok(());
    }
    Err(Error::VcpuCount { domain: name.clone(), expected, found })
}

fn vcpu_thread(domain: &str, tid: u32) -> Result<UnitThreads, Error> {
    let domain = || domain.to_owned();
    match Identity::of(tid as i32) {
        Ok(identity) => Ok(UnitThreads::Thread(identity)),
        Err(error) if proc::is_gone(&error) => Err(Error::ThreadGone { domain: domain(), thread: tid }),
        Err(source) => Err(Error::ThreadUnreadable { domain: domain(), thread: tid, source }),
    }
}
