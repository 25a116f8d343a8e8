//! Threads that come and go while a run is attached to them: vCPUs plugged in and out, VMs that are
//! restarted.
//!
//! The threads of a VMM's process are listed now and then; only when they are others than before is the VMM
//! asked which of them are vCPUs.

use std::path::Path;
use std::time::{Duration, Instant};

use punctual_model::Host;
use punctual_model::host::Domain;
use punctual_model::index::VcpuIx;
use punctual_model::live::{Attach, Backend};

use super::attach::vcpu_threads;
use super::domain::RunningDomain;
use super::error::Error;
use super::helpers;
use punctual_enforce::journal::Identity;
use punctual_enforce::notice::Notice;
use punctual_enforce::session::{Session, UnitHandle};
use punctual_enforce::unit::UnitThreads;
use punctual_linux::channel::Stop;
use punctual_linux::os::proc;
use punctual_linux::vmm;

/// How often to list the threads.
const INTERVAL: Duration = Duration::from_millis(250);
/// How long QEMU's monitor may take for a command. It is asked from the thread that watches the run.
const MONITOR_LIMIT: Duration = Duration::from_millis(100);

/// A domain whose threads may change during the run.
pub(super) struct FollowedDomain<'a> {
    domain: &'a Domain,
    /// The session's number of its pool.
    pool: usize,
    threads: FollowedThreads<'a>,
}

impl<'a> FollowedDomain<'a> {
    /// `None` where nothing says which thread would be the successor of another: a domain that was started,
    /// or explicit threads.
    pub(super) fn new(
        host: &'a Host,
        running: &RunningDomain,
        pool: usize,
        stop: Stop,
    ) -> Option<FollowedDomain<'a>> {
        let domain = &host.domains[running.ix.0];
        let Backend::Attach(attach) = &domain.live.backend else { return None };
        if let Attach::Threads(_) = attach {
            return None;
        }
        let vcpus = running.vcpus.iter().map(|threads| threads.map(|threads| threads.identity()));
        Some(FollowedDomain { domain, pool, threads: FollowedThreads::new(attach, vcpus.collect(), stop) })
    }

    /// Adds vCPUs that have a new thread as units, and places the VMM's helper threads again, for they may be
    /// new as well. So many events of the host have happened.
    pub(super) fn add_newcomers(
        &mut self,
        (host, events): (&Host, usize),
        session: &mut Session,
        left: &[usize],
        units: &mut Vec<UnitHandle>,
        notices: &mut Vec<Notice>,
    ) -> Result<(), Error> {
        let newcomers = self.threads.newcomers();
        if newcomers.is_empty() {
            return Ok(());
        }
        for (number, identity) in newcomers {
            let vcpu = VcpuIx(self.domain.vcpus.start + number);
            let (unit, thread) = (host.vcpus[vcpu.0].name.clone(), UnitThreads::Thread(identity));
            let params = host.vcpu_params_after(vcpu, events);
            match session.add_unit(self.pool, &self.domain.name, &unit, thread, &params) {
                Ok(handle) => {
                    units.push(handle);
                    notices.push(Notice::Came { unit });
                }
                // It may have gone again already.
                Err(error) => notices.push(Notice::NotAdded { unit, reason: error.to_string() }),
            }
        }
        let vcpus: Vec<UnitThreads> = self.threads.vcpus().map(UnitThreads::Thread).collect();
        Ok(helpers::place(session, &vcpus, &self.domain.live.helpers, left)?)
    }
}

/// The vCPU threads of a VMM.
struct FollowedThreads<'a> {
    attach: &'a Attach,
    /// Ends a wait for the monitor.
    stop: Stop,
    /// By vCPU: the thread that it was last.
    known: Vec<Option<Identity>>,
    /// The process of the threads, and its threads when the VMM was last asked.
    process: Option<u32>,
    threads: Vec<i32>,
    next_listing: Instant,
}

impl<'a> FollowedThreads<'a> {
    /// Of a VMM with these vCPUs, some of which may not be there yet.
    fn new(attach: &'a Attach, vcpus: Vec<Option<Identity>>, stop: Stop) -> FollowedThreads<'a> {
        let mut followed = FollowedThreads {
            attach,
            stop,
            known: vcpus,
            process: None,
            threads: Vec::new(),
            next_listing: Instant::now() + INTERVAL,
        };
        followed.note_threads();
        followed
    }

    /// The vCPUs' threads as they are known now.
    fn vcpus(&self) -> impl Iterator<Item = Identity> {
        self.known.iter().flatten().copied()
    }

    fn note_threads(&mut self) {
        let alive = self.known.iter().flatten().find(|identity| identity.is_alive());
        self.process =
            alive.and_then(|identity| vmm::process_of(Path::new("/proc"), identity.id as u32).ok());
        self.threads = self.listed();
    }

    fn listed(&self) -> Vec<i32> {
        self.process.and_then(|pid| proc::threads(pid as i32).ok()).unwrap_or_default()
    }

    /// vCPUs that have a thread that they did not have before: number and thread. Cheap while nothing
    /// changes.
    fn newcomers(&mut self) -> Vec<(usize, Identity)> {
        if Instant::now() < self.next_listing {
            return Vec::new();
        }
        self.next_listing = Instant::now() + INTERVAL;
        let threads = self.listed();
        if !threads.is_empty() && threads == self.threads {
            return Vec::new();
        }
        // Names first: they are there even while another program talks to the monitor. A monitor that does
        // not answer now, or a VM that is being restarted, is asked again the next time.
        let ask = |attach: &Attach| vcpu_threads(attach, MONITOR_LIMIT, self.stop).ok();
        let by_names = self.process.and_then(|pid| ask(&Attach::Process(pid)));
        let Some(vcpus) = by_names.or_else(|| ask(self.attach)) else {
            return Vec::new();
        };
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
