//! The second stage: the session is there, and every domain was started or found.

use std::thread::Builder;

use punctual_model::index::DomainIx;

use super::domain::{DomainProcess, RunningDomain};
use super::error::Error;
use super::prepare::{Prepared, PreparedDomain, Start};
use super::{ChangeError, LiveRun, RunOptions, attach, join, processors};
use crate::journal::Identity;
use crate::os::proc;
use crate::qemu::Vm;
use crate::session::{Session, Setup};
use crate::unit::UnitThreads;
use crate::workload;

/// A host whose domains run, in the fair class and on any processor.
pub(super) struct Started<'a> {
    pub run: LiveRun<'a>,
}

impl<'a> Prepared<'a> {
    /// Starts a session and the domains; waits until VMs have booted.
    pub fn start(self) -> Result<Started<'a>, Error> {
        let Prepared { host, mut options, pools, domains } = self;
        let mut session = Session::start(Setup {
            name: host.name.clone(),
            program: options.program.clone(),
            processors: processors(host, &pools),
            starve: options.starve,
            lift_rt_limit: true,
            silence: options.silence,
            end: options.end,
            restored: options.restored.clone(),
            driver: options.driver,
        })?;
        let unchanged = apply_changes(&mut session, &mut options);
        let mut run = LiveRun { host, options, pools, session, domains: Vec::new(), unchanged };
        for (index, domain) in domains.into_iter().enumerate() {
            if (run.options.stop)() {
                return Err(Error::Stopped);
            }
            run.session.poll()?;
            run.start_domain(DomainIx(index), domain)?;
        }
        for index in 0..run.domains.len() {
            run.complete_domain(index)?;
        }
        Ok(Started { run })
    }
}

/// Makes the changes of the machine that the options ask for; returns those that could not be made.
fn apply_changes(session: &mut Session, options: &mut RunOptions<'_>) -> Vec<ChangeError> {
    let changes = std::mem::take(&mut options.changes).into_iter();
    let error = |change| match session.apply_change(&change) {
        Ok(()) => None,
        Err(source) => Some(ChangeError { change, source }),
    };
    changes.filter_map(error).collect()
}

impl LiveRun<'_> {
    /// Starts or finds a domain. The vCPUs of a VM are not known yet.
    fn start_domain(&mut self, ix: DomainIx, domain: PreparedDomain<'_>) -> Result<(), Error> {
        let described = &self.host.domains[ix.0];
        let name = &described.name;
        let progress = self.options.progress;
        if let Some(threads_max) = described.live.threads_max {
            self.session.limit_threads(name, threads_max)?;
        }
        let (process, vcpus) = match domain.start {
            Start::Vm(spec) => {
                progress(&format!("booting {name} ({})", spec.accelerator.name()));
                let vm = Vm::start(&spec, self.options.stop)?;
                vm.weaknesses().iter().for_each(|weakness| progress(&format!("{name}: {weakness}")));
                self.session.record_child(vm.pid() as i32, name)?;
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
                (DomainProcess::Guest(process), vec![Some(vcpu)])
            }
            Start::Command { command, environment, directory } => {
                progress(&format!("starting {name}"));
                let process = self.session.launch(name, &command, environment, directory)?;
                (DomainProcess::External, vec![Some(UnitThreads::ProcessTree(process))])
            }
            Start::Attach(attach) => {
                let vcpus = attach::vcpus(name, attach, described.vcpus.len(), self.options.stop)?;
                // Before other domains are started, which takes long.
                vcpus.iter().flatten().try_for_each(|threads| self.session.claim(*threads))?;
                (DomainProcess::External, vcpus)
            }
        };
        self.domains.push(RunningDomain { ix, process, vcpus, tasks: domain.tasks, failed: None });
        Ok(())
    }

    /// Waits for a VM to boot and finds its vCPUs; checks that each domain has the vCPUs of the host file.
    fn complete_domain(&mut self, index: usize) -> Result<(), Error> {
        let LiveRun { host, options, session, domains, .. } = self;
        let domain = &mut domains[index];
        let described = &host.domains[domain.ix.0];
        let name = &described.name;
        if let DomainProcess::Vm(vm) = &mut domain.process {
            let limit = options.boot;
            std::thread::scope(|scope| {
                let boot = || vm.connect(limit).map(|_| ()).map_err(Error::Vm);
                let boot = Builder::new().spawn_scoped(scope, boot).map_err(Error::NoThread)?;
                join(boot, name, session, options.stop)
            })?;
            for tid in vm.vcpu_threads()? {
                domain.vcpus.push(Some(vcpu_thread(name, tid)?));
            }
        }
        let (expected, found) = (described.vcpus.len(), domain.vcpus.len());
        if expected != found {
            return Err(Error::VcpuCount { domain: name.clone(), expected, found });
        }
        Ok(())
    }
}

fn vcpu_thread(domain: &str, tid: u32) -> Result<UnitThreads, Error> {
    let domain = || domain.to_owned();
    match Identity::of(tid as i32) {
        Ok(identity) => Ok(UnitThreads::Thread(identity)),
        Err(error) if proc::is_gone(&error) => Err(Error::ThreadGone { domain: domain(), thread: tid }),
        Err(source) => Err(Error::ThreadUnreadable { domain: domain(), thread: tid, source }),
    }
}
