//! What stages hand to each other once the session is there.

use std::thread::ScopedJoinHandle;
use std::time::Duration as StdDuration;

use punctual_model::Host;
use punctual_model::host::Parent;
use punctual_model::index::PoolIx;

use super::domain::RunningDomain;
use super::error::{ChangeError, Error, RunError};
use super::inputs::StageInputs;
use punctual_enforce::session::Session;
use punctual_linux::channel::Stop;
use punctual_linux::preflight;
use punctual_vm::workload::flows::Ends;

/// What the stages from [`super::start::Started`] on hand to each other.
pub(super) struct LiveRun<'a> {
    pub(super) host: &'a Host,
    pub(super) options: StageInputs<'a>,
    /// The pools that have domains; the session's pools have the same order.
    pub(super) pools: Vec<PoolIx>,
    /// Dropped before `domains`: it ends every process, then each domain waits for its own.
    pub(super) session: Session,
    /// As many as the host has, in the host's order.
    pub(super) domains: Vec<RunningDomain>,
    /// The ends of flows that there are.
    pub(super) ends: Ends,
    pub(super) unchanged: Vec<ChangeError>,
}

impl LiveRun<'_> {
    /// Ends a run that failed: puts everything back, and waits for its processes.
    pub(super) fn failed(self, error: Error) -> RunError {
        let LiveRun { session, domains, .. } = self;
        let restored = session.abort();
        // The session has ended their processes; this waits for them.
        drop(domains);
        RunError::Failed { error: Box::new(error), restored }
    }

    /// The session's number of the pool in which `parent`'s units are.
    pub(super) fn session_pool(&self, parent: Parent) -> usize {
        let pool = self.host.pool_of(parent);
        let known = self.pools.iter().position(|known| *known == pool);
        known.expect("pools that have domains are in use")
    }

    /// The processors for everything but vCPUs, see [`left_by`].
    pub(super) fn processors_left(&self) -> Vec<usize> {
        left_by(&processors(self.host, &self.pools))
    }
}

/// The processors that are online beside those that pools have; all that are online, where pools have every
/// one (`--starve`).
pub(super) fn left_by(taken: &[usize]) -> Vec<usize> {
    let online = preflight::online();
    let left: Vec<usize> = online.iter().copied().filter(|cpu| !taken.contains(cpu)).collect();
    if left.is_empty() { online } else { left }
}

/// The processors of these pools.
pub(super) fn processors(host: &Host, pools: &[PoolIx]) -> Vec<usize> {
    pools.iter().flat_map(|pool| host.pools[pool.0].processors.iter().copied()).collect()
}

/// How long to wait until a thread is asked again whether it has finished.
const JOIN_INTERVAL: StdDuration = StdDuration::from_millis(10);

/// Waits for a thread that waits for a guest of `domain`, and keeps the session alive meanwhile. Where that
/// fails, all guests are killed, so that the thread ends too.
pub(super) fn join<T>(
    thread: ScopedJoinHandle<'_, Result<T, Error>>,
    domain: &str,
    session: &mut Session,
    stop: Stop,
) -> Result<T, Error> {
    while !thread.is_finished() {
        let polled = if stop() { Err(Error::Stopped) } else { session.poll().map_err(Error::Session) };
        if let Err(error) = polled {
            session.kill_children();
            return Err(error);
        }
        std::thread::sleep(JOIN_INTERVAL);
    }
    thread.join().unwrap_or_else(|_| Err(Error::Panicked { domain: domain.to_owned() }))
}
