//! The fourth stage: pools are under their schedulers, and the vCPUs are their units.

use punctual_model::index::VcpuIx;
use punctual_model::live::Backend;
use punctual_sched::Instant;

use super::attach_target::AttachTarget;
use super::backend::ScheduledBy;
use super::calibrate::{Calibrated, Guest};
use super::domain::{DomainProcess, RunningDomain};
use super::error::{Error, RunError};
use super::follow::FollowedDomain;
use super::helpers;
use super::live_run::LiveRun;
use super::pools::partition;
use crate::events::Event;
use punctual_enforce::session::{AdoptedUnit, PoolScheduler, UnitHandle};
use punctual_enforce::unit::UnitThreads;
use punctual_linux::os::cgroup;

/// A host whose vCPUs are scheduled as the host file says.
pub(super) struct Enforced<'a> {
    pub run: LiveRun<'a>,
    /// By domain; `None` where no guest program runs.
    pub guests: Vec<Option<Guest>>,
    pub units: Vec<UnitHandle>,
    /// When the servers' periods began.
    pub begun: Instant,
    pub followed: Vec<FollowedDomain<'a>>,
}

impl<'a> Calibrated<'a> {
    /// Puts pools under their schedulers and vCPUs into them, all at one instant: in simulation the servers'
    /// periods begin together, too.
    pub(super) fn enforce(self) -> Result<Enforced<'a>, RunError> {
        let Calibrated { mut run, guests } = self;
        let (units, begun) = match run.schedule() {
            Ok(scheduled) => scheduled,
            Err(error) => return Err(run.failed(error)),
        };
        let (host, stop) = (run.host, run.options.stop);
        let follow = |domain: &RunningDomain| {
            if let DomainProcess::Switch = domain.process {
                return None;
            }
            let pool = run.session_pool(host.domains[domain.ix.0].parent);
            FollowedDomain::new(host, domain, pool, stop)
        };
        let followed = run.domains.iter().filter_map(follow).collect();
        Ok(Enforced { run, guests, units, begun, followed })
    }
}

impl LiveRun<'_> {
    /// Returns also when the servers' periods began.
    fn schedule(&mut self) -> Result<(Vec<UnitHandle>, Instant), Error> {
        let mut adopted = Vec::new();
        let left = self.processors_left();
        self.report_targets(&left);
        self.add_pools()?;
        for index in 0..self.domains.len() {
            adopted.extend(self.adopt_domain(index, &left)?);
        }
        Ok(self.session.schedule(adopted)?)
    }

    /// Reports what is attached to while its threads are still as they were.
    fn report_targets(&self, left: &[usize]) {
        let host = self.host;
        let by = ScheduledBy::of(self.options.config, self.session.backend());
        let target = |running: &RunningDomain| {
            let domain = &host.domains[running.ix.0];
            let Backend::Attach(_) = domain.live.backend else { return None };
            // Adopting threads that are gone fails with the reason.
            AttachTarget::of(host, domain, &running.vcpus, by, left).ok()
        };
        let targets: Vec<AttachTarget> = self.domains.iter().filter_map(target).collect();
        if !targets.is_empty() {
            (self.options.events)(Event::Attaching(targets));
        }
    }

    fn add_pools(&mut self) -> Result<(), Error> {
        self.record_attached()?;
        for &ix in &self.pools {
            let pool = &self.host.pools[ix.0];
            let scheduler = match self.options.config.linux {
                Some(linux) => PoolScheduler::Linux(linux),
                None => PoolScheduler::Policy(pool.policy.clone()),
            };
            let partition = partition(self.host, ix, self.options.config);
            let number = self.session.add_pool(&pool.processors, &scheduler, partition)?;
            if let Some(isolated) = self.session.isolated(number) {
                self.options.step(&format!("pool {} is {isolated}", pool.name));
            }
        }
        Ok(())
    }

    /// Writes down how what is attached to is, before partitions take processors from it.
    fn record_attached(&mut self) -> Result<(), Error> {
        let host = self.host;
        let isolated = |pool| partition(host, pool, self.options.config).is_some();
        if !self.pools.iter().copied().any(isolated) {
            return Ok(());
        }
        for running in &self.domains {
            let described = &host.domains[running.ix.0];
            let Backend::Attach(_) = described.live.backend else { continue };
            for threads in running.vcpus.iter().flatten() {
                self.session.record(*threads)?;
            }
            let first = running.vcpus.iter().flatten().next();
            let group = first.and_then(|first| cgroup::group_of(first.identity().id).ok());
            if let Some(group) = group.filter(|_| isolated(host.pool_of(described.parent))) {
                self.options.step(&format!("{} leaves its cgroup {group} until the end", described.name));
            }
        }
        Ok(())
    }

    /// Takes the vCPUs of a domain as units of its pool and gives its helper threads their place.
    fn adopt_domain(&mut self, index: usize, left: &[usize]) -> Result<Vec<AdoptedUnit>, Error> {
        let described = &self.host.domains[self.domains[index].ix.0];
        if let DomainProcess::Switch = self.domains[index].process {
            return Ok(Vec::new());
        }
        let pool = self.session_pool(described.parent);
        let mut adopted = Vec::new();
        for (vcpu, threads) in described.vcpus.clone().zip(&self.domains[index].vcpus) {
            let Some(threads) = *threads else { continue };
            let (name, params) = (&self.host.vcpus[vcpu].name, self.host.vcpu_params(VcpuIx(vcpu)));
            match self.session.adopt_unit(pool, &described.name, name, threads, &params) {
                Ok(unit) => adopted.push(unit),
                // It has ended, and its guest's verdict reports that.
                Err(_) if self.domains[index].failed.is_some() && !threads.identity().is_alive() => continue,
                Err(error) => return Err(error.into()),
            }
        }
        let vcpus: Vec<UnitThreads> = adopted.iter().map(AdoptedUnit::threads).collect();
        helpers::place(&mut self.session, &vcpus, &described.live.helpers, left)?;
        Ok(adopted)
    }
}
