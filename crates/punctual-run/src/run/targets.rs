//! What a run attaches to: the threads that it finds, how Linux schedules them, and how the run will.

use std::collections::HashMap;
use std::path::Path;

use punctual_model::Host;
use punctual_model::host::{Domain, Vcpu};
use punctual_model::live::Backend;
use punctual_sched::CpuId;

use super::attach;
use super::attach_target::{AttachTarget, AttachedThread, Scheduling};
use super::backend::{ScheduledBy, chosen};
use super::error::{AttachError, Error};
use super::live_run::{left_by, processors};
use super::pools::pools_with_domains;
use crate::config::RunConfig;
use punctual_enforce::backend::Backend as EnforcedBy;
use punctual_enforce::session::{LinuxScheduler, helper_attributes};
use punctual_enforce::unit::{HIGHEST, LOWEST, UnitThreads, priority_of};
use punctual_linux::channel::Stop;
use punctual_linux::cpuset::Cpusets;
use punctual_linux::os::proc;
use punctual_linux::os::sched::{self, Attributes};
use punctual_linux::{preflight, vmm};

/// Finds what a run of `host` attaches to, and changes nothing. It takes the right to read `/proc`, and
/// QEMU's monitor sockets where the host file names them.
///
/// # Errors
/// A pool has a processor that cannot be used, or something to attach to is not there.
pub fn attach_targets(host: &Host, config: &RunConfig<'_>, stop: Stop) -> Result<Vec<AttachTarget>, Error> {
    let pools = pools_with_domains(host)?;
    let by = ScheduledBy::of(config, chosen(host, config, &pools)?.backend);
    let taken = processors(host, &pools);
    preflight::processors(&taken, config.starve)?;
    let (left, mut found) = (left_by(&taken), Vec::new());
    for domain in &host.domains {
        let Backend::Attach(attach) = &domain.live.backend else { continue };
        found.push((domain, attach::vcpus(&domain.name, attach, domain.vcpus.len(), stop)?));
    }
    let by_domain: Vec<Found<'_>> = found.iter().map(|(domain, vcpus)| (*domain, &vcpus[..])).collect();
    check_targets(host, by, &left, &by_domain)?;
    by_domain.into_iter().map(|(domain, vcpus)| AttachTarget::of(host, domain, vcpus, by, &left)).collect()
}

/// A domain that attaches to something, and by vCPU the thread that was found.
pub(super) type Found<'f> = (&'f Domain, &'f [Option<UnitThreads>]);

/// Checks what a run is to attach to; changes nothing. `left` are the processors that no pool has.
///
/// # Errors
/// A thread is a vCPU of two domains or belongs to the kernel, or its cpuset lacks a processor on which it is
/// to run.
pub(super) fn check_targets(
    host: &Host,
    by: ScheduledBy,
    left: &[usize],
    found: &[Found<'_>],
) -> Result<(), Error> {
    check_owners(found)?;
    let mut cpusets = Cpusets::new();
    for (domain, vcpus) in found {
        let units = threads_of(host, domain, vcpus);
        check_vcpus(host, by, domain, &units, &mut cpusets)
            .and_then(|()| check_helpers(domain, &units, left, &mut cpusets))
            .map_err(|source| Error::Attach { domain: domain.name.clone(), source })?;
    }
    Ok(())
}

/// Is every thread a vCPU of one domain?
fn check_owners(found: &[Found<'_>]) -> Result<(), Error> {
    let mut domains: HashMap<i32, &str> = HashMap::new();
    for (domain, vcpus) in found {
        for thread in vcpus.iter().flatten().map(|threads| threads.identity().id) {
            if let Some(first) = domains.insert(thread, &domain.name) {
                let (domain, first) = (domain.name.clone(), first.to_owned());
                return Err(Error::SharedThread { domain, first, thread: thread as u32 });
            }
        }
    }
    Ok(())
}

/// Are the vCPUs threads of processes that may run on the processors of their pool? Threads that are gone are
/// left out: adopting them fails with the reason.
fn check_vcpus(
    host: &Host,
    by: ScheduledBy,
    domain: &Domain,
    units: &[(&Vcpu, i32)],
    cpusets: &mut Cpusets,
) -> Result<(), AttachError> {
    for &(vcpu, thread) in units {
        if proc::is_kernel_thread(thread) {
            let name = proc::name(thread).unwrap_or_default();
            return Err(AttachError::KernelThread { thread: thread as u32, name });
        }
        let Ok(now) = Scheduling::of(thread) else { continue };
        let Some(cpuset) = cpusets.of(thread) else { continue };
        let then = Scheduling::of_vcpu(host, domain, vcpu, by, &now).processors;
        if let Some(&processor) = then.iter().find(|processor| !cpuset.processors.contains(processor)) {
            return Err(AttachError::Cpuset { thread: thread as u32, processor, cpuset });
        }
    }
    Ok(())
}

/// May each helper thread run on one of its processors at least?
fn check_helpers(
    domain: &Domain,
    units: &[(&Vcpu, i32)],
    left: &[usize],
    cpusets: &mut Cpusets,
) -> Result<(), AttachError> {
    let processors = domain.live.helpers.processors.as_deref().unwrap_or(left);
    let process = units.first().and_then(|&(_, thread)| proc::process_of(thread).ok());
    let threads = process.and_then(|process| proc::threads(process).ok()).unwrap_or_default();
    for thread in threads.into_iter().filter(|tid| !units.iter().any(|(_, vcpu)| vcpu == tid)) {
        let Some(cpuset) = cpusets.of(thread) else { continue };
        if !processors.iter().any(|processor| cpuset.processors.contains(processor)) {
            let processors = processors.to_vec();
            return Err(AttachError::HelperCpuset { thread: thread as u32, processors, cpuset });
        }
    }
    Ok(())
}

/// The vCPUs of a domain that have threads, with these.
fn threads_of<'h>(host: &'h Host, domain: &Domain, vcpus: &[Option<UnitThreads>]) -> Vec<(&'h Vcpu, i32)> {
    let all = host.vcpus[domain.vcpus.clone()].iter().zip(vcpus);
    all.filter_map(|(vcpu, threads)| Some((vcpu, (*threads)?.identity().id))).collect()
}

impl AttachTarget {
    /// What the threads `vcpus` of a domain are part of.
    pub(super) fn of(
        host: &Host,
        domain: &Domain,
        vcpus: &[Option<UnitThreads>],
        by: ScheduledBy,
        left: &[usize],
    ) -> Result<AttachTarget, Error> {
        let found = threads_of(host, domain, vcpus);
        let error = |tid: i32| {
            move |source| Error::Attach {
                domain: domain.name.clone(),
                source: AttachError::of_thread(tid as u32, source),
            }
        };
        let Some(&(_, first)) = found.first() else {
            return Err(Error::VcpuCount { domain: domain.name.clone(), expected: vcpus.len(), found: 0 });
        };
        let process = proc::process_of(first).map_err(error(first))?;
        let of_vcpu = |&(vcpu, tid): &(&Vcpu, i32)| {
            let now = Scheduling::of(tid).map_err(error(tid))?;
            let then = Scheduling::of_vcpu(host, domain, vcpu, by, &now);
            AttachedThread::new(tid, Some(vcpu.name.clone()), now, then).map_err(error(tid))
        };
        let then = Scheduling::of_helpers(domain, left);
        let of_helper = |tid: i32| AttachedThread::new(tid, None, Scheduling::of(tid)?, then.clone());
        let is_vcpu = |tid: &i32| found.iter().any(|(_, vcpu)| vcpu == tid);
        let helpers = proc::threads(process).map_err(error(process))?;
        Ok(AttachTarget {
            domain: domain.name.clone(),
            process: process as u32,
            program: proc::name(process).map_err(error(process))?,
            vm: vmm::vm_name(Path::new("/proc"), process as u32),
            vcpus: found.iter().map(of_vcpu).collect::<Result<_, _>>()?,
            vcpus_absent: vcpus.len() - found.len(),
            // One that ends meanwhile needs no place.
            helpers: helpers
                .into_iter()
                .filter(|tid| !is_vcpu(tid))
                .filter_map(|tid| of_helper(tid).ok())
                .collect(),
        })
    }
}

impl AttachedThread {
    fn new(
        tid: i32,
        vcpu: Option<String>,
        now: Scheduling,
        then: Scheduling,
    ) -> std::io::Result<AttachedThread> {
        Ok(AttachedThread { thread: tid as u32, name: proc::name(tid)?, vcpu, now, then })
    }
}

impl Scheduling {
    /// How a thread is scheduled now.
    fn of(tid: i32) -> std::io::Result<Scheduling> {
        Ok(Scheduling { processors: sched::affinity(tid)?, class: class_of(&sched::attributes(tid)?) })
    }

    /// How a vCPU's thread is scheduled during the run.
    fn of_vcpu(host: &Host, domain: &Domain, vcpu: &Vcpu, by: ScheduledBy, now: &Scheduling) -> Scheduling {
        let pool = &host.pools[host.pool_of(domain.parent).0];
        let params = &vcpu.params;
        let is_allowed = |index: usize| {
            let cpu = CpuId(index as u32);
            matches!(by, ScheduledBy::Linux(_))
                || params.affinity.as_ref().is_none_or(|set| set.contains(cpu))
        };
        let allowed = pool.processors.iter().enumerate().filter(|(index, _)| is_allowed(*index));
        let allowed = allowed.map(|(_, processor)| *processor).collect();
        let fair = class_of(&Attributes::other());
        // As `session::LinuxScheduler` schedules a unit.
        let (processors, class) = match by {
            _ if params.best_effort => (pool.processors.clone(), fair),
            ScheduledBy::Linux(LinuxScheduler::Cfs) => (allowed, fair),
            ScheduledBy::Linux(LinuxScheduler::Fifo) => {
                let below = params.priority.unwrap_or(u32::MAX).min(HIGHEST - LOWEST);
                (allowed, class_of(&Attributes::fifo(HIGHEST - below)))
            }
            // The kernel does not admit confined threads.
            ScheduledBy::Linux(LinuxScheduler::Deadline) => (now.processors.clone(), "SCHED_DEADLINE".into()),
            ScheduledBy::Backend(EnforcedBy::Freezer) => (allowed, ranks(enforced_in(host, domain))),
            ScheduledBy::Backend(EnforcedBy::SchedExt) => (allowed, class_of(&Attributes::ext())),
        };
        Scheduling { processors, class }
    }

    /// How the helper threads of a domain are scheduled during the run.
    fn of_helpers(domain: &Domain, left: &[usize]) -> Scheduling {
        let helpers = &domain.live.helpers;
        let processors = helpers.processors.as_deref().unwrap_or(left).to_vec();
        Scheduling { processors, class: class_of(&helper_attributes(helpers.policy)) }
    }
}

/// How many vCPUs the pool of a domain ranks.
fn enforced_in(host: &Host, domain: &Domain) -> usize {
    let pool = host.pool_of(domain.parent);
    let of_pool = host.domains.iter().filter(|other| host.pool_of(other.parent) == pool);
    let vcpus = of_pool.flat_map(|other| &host.vcpus[other.vcpus.clone()]);
    vcpus.filter(|vcpu| !vcpu.params.best_effort).count()
}

/// The class of a unit that is one of `units` ranks.
fn ranks(units: usize) -> String {
    let lowest = priority_of(u16::try_from(units.saturating_sub(1)).unwrap_or(u16::MAX));
    if lowest == HIGHEST { format!("SCHED_FIFO {HIGHEST}") } else { format!("SCHED_FIFO {lowest}-{HIGHEST}") }
}

/// A class as chrt(1) names it, with what orders threads in it.
fn class_of(attributes: &Attributes) -> String {
    let name = attributes.policy_name();
    match attributes.policy {
        sched::FIFO | sched::RR => format!("{name} {}", attributes.priority),
        sched::OTHER if attributes.nice != 0 => format!("{name} nice {}", attributes.nice),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_named_with_what_orders_threads_in_them() {
        assert_eq!(class_of(&Attributes::fifo(7)), "SCHED_FIFO 7");
        assert_eq!(class_of(&Attributes { nice: -5, ..Attributes::other() }), "SCHED_OTHER nice -5");
        assert_eq!(class_of(&Attributes::other()), "SCHED_OTHER");
        assert_eq!([1, 2, 500].map(ranks), ["SCHED_FIFO 70", "SCHED_FIFO 69-70", "SCHED_FIFO 2-70"]);
    }
}
