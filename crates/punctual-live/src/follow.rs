//! Threads that come and go while a run is attached to them: vCPUs plugged in and out, VMs that are
//! restarted.
//!
//! The threads of a VMM's process are listed now and then; only when they are others than before is the VMM
//! asked which of them are vCPUs.

use std::path::Path;
use std::time::{Duration, Instant};

use punctual_model::live::Attach;

use crate::journal::Identity;
use crate::qemu::Qmp;
use crate::vmm;

/// How often to look.
const INTERVAL: Duration = Duration::from_millis(250);
/// How long QEMU's monitor may take. It is asked from the thread that tells the guardian that all is well.
const MONITOR: Duration = Duration::from_millis(100);

/// The vCPU threads of something that runs already, with the vCPUs' numbers, in their order.
///
/// # Errors
/// It is not there, or has no vCPUs; the message is for a person.
pub fn vcpus(attach: &Attach, patience: Duration) -> Result<Vec<(u32, Identity)>, String> {
    let by_names = |pid: u32| {
        let threads = vmm::threads_of(Path::new("/proc"), pid).map_err(|e| format!("process {pid}: {e}"))?;
        let vcpus = vmm::vcpus(&threads);
        if vcpus.is_empty() {
            return Err(format!(
                "process {pid} has no thread whose name is a vCPU's; QEMU names them with \
                 -name NAME,debug-threads=on; otherwise give their ids as `threads = [...]`"
            ));
        }
        Ok(vcpus)
    };
    let numbered = match attach {
        Attach::Qmp(path) => Qmp::connect(path, patience)
            .and_then(|mut qmp| qmp.vcpu_threads())
            .map_err(|error| error.to_string())?,
        Attach::Libvirt(_) | Attach::Process(_) | Attach::Firecracker(_) | Attach::CloudHypervisor(_) => {
            by_names(process(attach)?.ok_or("no process")?)?
        }
        Attach::Threads(tids) => (0..).zip(tids.iter().copied()).collect(),
    };
    numbered
        .into_iter()
        .map(|(number, tid)| {
            let identity = Identity::of(tid as i32).map_err(|_| format!("thread {tid} is gone"))?;
            Ok((number, identity))
        })
        .collect()
}

/// The process that has the vCPUs, if it is known without asking it.
fn process(attach: &Attach) -> Result<Option<u32>, String> {
    match attach {
        Attach::Libvirt(name) => vmm::find_by_name(Path::new("/proc"), Path::new("/run"), name)
            .map(Some)
            .map_err(|error| error.to_string()),
        Attach::Process(pid) | Attach::Firecracker(pid) | Attach::CloudHypervisor(pid) => Ok(Some(*pid)),
        Attach::Qmp(_) | Attach::Threads(_) => Ok(None),
    }
}

/// A domain that is followed.
#[derive(Debug)]
pub struct Followed {
    attach: Attach,
    /// By vCPU: the thread that it was last.
    known: Vec<Option<Identity>>,
    /// The process of the threads, and its threads when it was last asked.
    process: Option<u32>,
    threads: Vec<i32>,
    next_look: Instant,
}

impl Followed {
    /// A domain with these vCPUs, some of which may not be there yet. Explicit threads are not followed:
    /// nothing says which thread would be their successor.
    pub fn new(attach: &Attach, vcpus: Vec<Option<Identity>>) -> Option<Followed> {
        if let Attach::Threads(_) = attach {
            return None;
        }
        let mut followed = Followed {
            attach: attach.clone(),
            known: vcpus,
            process: None,
            threads: Vec::new(),
            next_look: Instant::now() + INTERVAL,
        };
        followed.note_threads();
        Some(followed)
    }

    /// The vCPUs' threads as they are known now.
    pub fn vcpus(&self) -> impl Iterator<Item = Identity> {
        self.known.iter().flatten().copied()
    }

    fn note_threads(&mut self) {
        let alive = self.known.iter().flatten().find(|identity| identity.is_alive());
        self.process =
            alive.and_then(|identity| vmm::process_of(Path::new("/proc"), identity.id as u32).ok());
        self.threads = self.listed();
    }

    fn listed(&self) -> Vec<i32> {
        self.process.and_then(|pid| crate::os::proc::threads(pid as i32).ok()).unwrap_or_default()
    }

    /// vCPUs that have a thread that they did not have before: number and thread. Cheap while nothing
    /// changes.
    pub fn newcomers(&mut self) -> Vec<(usize, Identity)> {
        if Instant::now() < self.next_look {
            return Vec::new();
        }
        self.next_look = Instant::now() + INTERVAL;
        let threads = self.listed();
        if !threads.is_empty() && threads == self.threads {
            return Vec::new();
        }
        // Names first: they are there even while somebody else talks to the monitor. A monitor that does not
        // answer now, or a VM that is being restarted, is asked again the next time.
        let by_names = self.process.and_then(|pid| vcpus(&Attach::Process(pid), MONITOR).ok());
        let Some(vcpus) = by_names.or_else(|| vcpus(&self.attach, MONITOR).ok()) else { return Vec::new() };
        let mut newcomers = Vec::new();
        for (number, identity) in vcpus {
            if let Some(known) = self.known.get_mut(number as usize)
                && *known != Some(identity)
            {
                *known = Some(identity);
                newcomers.push((number as usize, identity));
            }
        }
        self.note_threads();
        newcomers
    }
}
