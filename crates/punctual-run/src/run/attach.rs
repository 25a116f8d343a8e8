//! Finding the vCPU threads of something that runs already.

use std::path::Path;
use std::time::Duration;

use punctual_model::live::Attach;

use super::error::{AttachError, Error};
use punctual_enforce::journal::Identity;
use punctual_enforce::unit::UnitThreads;
use punctual_linux::channel::Stop;
use punctual_linux::vmm;
use punctual_vm::qemu::Qmp;

/// How long QEMU's monitor may take before a run begins.
const MONITOR_LIMIT: Duration = Duration::from_secs(5);

/// By vCPU of the domain, its thread. Of several vCPUs some may be plugged in later.
///
/// # Errors
/// None is there, or others than the host file has.
pub(super) fn vcpus(
    domain: &str,
    attach: &Attach,
    expected: usize,
    stop: Stop,
) -> Result<Vec<Option<UnitThreads>>, Error> {
    let threads = vcpu_threads(attach, MONITOR_LIMIT, stop)
        .map_err(|source| Error::Attach { domain: domain.to_owned(), source })?;
    let greatest = threads.iter().map(|(number, _)| *number).max();
    if let Some(number) = greatest.filter(|number| *number as usize >= expected) {
        return Err(Error::VcpuNumber { domain: domain.to_owned(), expected, number });
    }
    let mut vcpus = vec![None; expected];
    for &(number, identity) in &threads {
        vcpus[number as usize] = Some(UnitThreads::Thread(identity));
    }
    let found = threads.len();
    if found == 0 || matches!(attach, Attach::Threads(_)) && found < expected {
        return Err(Error::VcpuCount { domain: domain.to_owned(), expected, found });
    }
    Ok(vcpus)
}

/// The vCPU threads, with the vCPUs' numbers, in their order; QEMU's monitor may take `limit` for a command.
pub(super) fn vcpu_threads(
    attach: &Attach,
    limit: Duration,
    stop: Stop,
) -> Result<Vec<(u32, Identity)>, AttachError> {
    let numbered = match attach {
        Attach::Qmp(path) => Qmp::own_vcpu_threads(path, limit, stop)?,
        Attach::Libvirt(name) => {
            let owners = vmm::trusted_owners(Path::new("/etc/passwd"));
            threads_by_name(vmm::find_by_name(Path::new("/proc"), Path::new("/run"), name, &owners)?)?
        }
        Attach::Process(pid) | Attach::Firecracker(pid) | Attach::CloudHypervisor(pid) => {
            threads_by_name(*pid)?
        }
        Attach::Threads(tids) => (0..).zip(tids.iter().copied()).collect(),
    };
    numbered
        .into_iter()
        .map(|(number, tid)| {
            let identity = Identity::of(tid as i32);
            Ok((number, identity.map_err(|source| AttachError::of_thread(tid, source))?))
        })
        .collect()
}

/// The threads of a process whose names are those of vCPUs, with the vCPUs' numbers.
fn threads_by_name(process: u32) -> Result<Vec<(u32, u32)>, AttachError> {
    let threads = vmm::threads_of(Path::new("/proc"), process)
        .map_err(|source| AttachError::Process { process, source })?;
    let vcpus = vmm::vcpus(&threads);
    if vcpus.is_empty() { Err(AttachError::NoNames { process }) } else { Ok(vcpus) }
}
