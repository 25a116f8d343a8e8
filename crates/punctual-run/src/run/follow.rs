//! Threads that come and go while a run is attached to them: vCPUs plugged in and out, VMs that are
//! restarted.
//!
//! The threads of a VMM's process are listed now and then; only when they are others than before is the VMM
//! asked which of them are vCPUs. For a while after a change the threads' names are read at each listing:
//! a thread names itself once it runs, and has the name of its creator until then.

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
/// How long after a change of the threads their names may still change: a helper of a busy host may wait for
/// long before it runs for the first time.
const NAMING: Duration = Duration::from_secs(10);
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
    /// The process of the threads, and its threads as they were listed before the VMM was last asked.
    process: Option<u32>,
    threads: Vec<i32>,
    /// Until when to read names although the threads are the same.
    naming_until: Instant,
    next_listing: Instant,
}

impl<'a> FollowedThreads<'a> {
    /// Of a VMM with these vCPUs, some of which may not be there yet.
    fn new(attach: &'a Attach, vcpus: Vec<Option<Identity>>, stop: Stop) -> FollowedThreads<'a> {
        // Threads may have come since the VMM was asked for these: the first listing finds a change.
        let now = Instant::now();
        let mut followed = FollowedThreads {
            attach,
            stop,
            known: vcpus,
            process: None,
            threads: Vec::new(),
            naming_until: now,
            next_listing: now + INTERVAL,
        };
        followed.note_process();
        followed
    }

    /// The vCPUs' threads as they are known now.
    fn vcpus(&self) -> impl Iterator<Item = Identity> {
        self.known.iter().flatten().copied()
    }

    fn note_process(&mut self) {
        let alive = self.known.iter().flatten().find(|identity| identity.is_alive());
        self.process =
            alive.and_then(|identity| vmm::process_of(Path::new("/proc"), identity.id as u32).ok());
    }

    fn listed(&self) -> Vec<i32> {
        self.process.and_then(|pid| proc::threads(pid as i32).ok()).unwrap_or_default()
    }

    /// vCPUs that have a thread that they did not have before: number and thread. Cheap while nothing
    /// changes.
    fn newcomers(&mut self) -> Vec<(usize, Identity)> {
        let now = Instant::now();
        if now < self.next_listing {
            return Vec::new();
        }
        self.next_listing = now + INTERVAL;
        let threads = self.listed();
        let is_changed = threads.is_empty() || threads != self.threads;
        if !is_changed && now >= self.naming_until {
            return Vec::new();
        }
        // Names first: they are there even while another program talks to the monitor. A monitor that does
        // not answer now, or a VM that is being restarted, is asked again the next time.
        let ask = |attach: &Attach| vcpu_threads(attach, MONITOR_LIMIT, self.stop).ok();
        let by_names = self.process.and_then(|pid| ask(&Attach::Process(pid)));
        let asked = by_names.or_else(|| is_changed.then(|| ask(self.attach)).flatten());
        let Some(vcpus) = asked else { return Vec::new() };
        if is_changed {
            // What came after this listing is a change of the next one.
            (self.threads, self.naming_until) = (threads, now + NAMING);
        }
        let mut newcomers = Vec::new();
        for (number, identity) in vcpus {
            if let Some(known) = self.known.get_mut(number as usize)
                && *known != Some(identity)
            {
                *known = Some(identity);
                newcomers.push((number as usize, identity));
            }
        }
        self.note_process();
        newcomers
    }
}
