//! A host file carried out: domains started or found, their vCPUs put under the pools' policies, their task
//! sets run, everything put back, and what was measured as [`Results`].
//!
//! A run goes through stages. Each is a type in a file of its own and consumes the stage before:
//!
//! ```text
//! Prepared    prepare.rs    the host can be run here, and the image of its VMs is there
//! Started     start.rs      a session; domains that were started, or found by attach.rs
//! Calibrated  calibrate.rs  the speed of each guest's processor, and its clock (clock.rs)
//! Enforced    enforce.rs    pools under their schedulers, with the vCPUs in them; helpers.rs
//! Measured    measure.rs    the tasks have run; reports.rs of guests, outside.rs, follow.rs for new threads
//! Measurements     results.rs    everything is put back
//! ```
//!
//! A stage that fails ends the session, which puts everything back; the error has what was put back.

mod attach;
mod blame;
mod calibrate;
mod clock;
mod domain;
mod enforce;
mod error;
mod follow;
mod helpers;
mod measure;
mod outside;
mod prepare;
mod reports;
mod results;
mod start;
mod trace;

use std::io;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::ScopedJoinHandle;
use std::time::Duration as StdDuration;

use punctual_model::host::Parent;
use punctual_model::index::{NetworkIx, PoolIx};
use punctual_model::{Host, Results};
use punctual_sched::Duration;

use crate::config::{RunConfig, RunView};
use crate::events::{Event, Events};
use domain::RunningDomain;
use prepare::Prepared;
use punctual_doctor::doctor;
use punctual_enforce::enforcer::Serving;
use punctual_enforce::notice::Notice;
use punctual_enforce::session::{Report, Session};
use punctual_linux::channel::Stop;
use punctual_linux::preflight;
use punctual_vm::qemu::SwitchPort;
use punctual_vm::workload::flows::Ends;

pub use error::{AttachError, Error, RunError};
pub use trace::Trace;

/// The duration of a run that ends only when it is stopped: a year.
pub const ENDLESS: Duration = Duration::from_secs(365 * 24 * 3600);

/// What a run's stages get: the configuration and what was started around them.
pub(crate) struct StageInputs<'a> {
    pub config: &'a RunConfig<'a>,
    /// Ports of switches for VMs that the host file gives no other network.
    pub interfaces: Vec<Interface>,
    /// VMs whose guests have sockets of this host.
    pub sockets: Vec<SocketsGuest>,
    /// Hosts outside these networks.
    pub outside: Vec<OutsideHost>,
    /// Threads that serve units: those of switches.
    pub serving: Arc<Serving>,
    /// What to change on this machine for the time of the run.
    pub changes: Vec<doctor::Change>,
    pub events: Events,
    /// Called often: should the run end early?
    pub stop: Stop,
    /// Ends this process, when the guardian asks for the end of the run.
    pub end: fn() -> !,
    /// Called about twenty times a second while tasks run.
    pub watch: &'a mut dyn FnMut(&RunView<'_>),
}

impl StageInputs<'_> {
    /// Reports what the run does next.
    fn step(&self, text: &str) {
        (self.events)(Event::Step(text.to_owned()));
    }
}

/// A VM's interface in a network that a switch serves.
#[derive(Debug)]
pub struct Interface {
    /// The domain's name.
    pub domain: String,
    /// The socket of its port.
    pub port: SwitchPort,
    /// The network.
    pub network: NetworkIx,
    /// The Ethernet address.
    pub ethernet: [u8; 6],
    /// The IPv4 address with the length of its prefix; the project's guest takes it.
    pub address: String,
    /// The network's MTU, of which the guest is told.
    pub mtu: Option<u32>,
}

/// A VM whose guest has sockets of this host.
#[derive(Debug)]
pub struct SocketsGuest {
    /// The domain's name.
    pub domain: String,
    /// Where the server of its sockets listens.
    pub port: SwitchPort,
    /// The network of datagrams that it is an end of, and its own address there as bytes.
    pub network: Option<(NetworkIx, [u8; 6])>,
}

/// A host outside a network, which this process stands for.
#[derive(Debug)]
pub struct OutsideHost {
    /// The network.
    pub network: NetworkIx,
    /// Which of the network's hosts outside.
    pub host: usize,
    /// Its Ethernet address; of datagrams that of its socket.
    pub ethernet: [u8; 6],
    /// What it sends and receives over.
    pub socket: OutsideSocket,
}

/// What a host outside sends and receives over.
#[derive(Debug)]
pub enum OutsideSocket {
    /// Frames, each with a header of virtio-net in front.
    Frames(OwnedFd),
    /// Datagrams, over a socket that does not block.
    Datagrams(UdpSocket),
}

/// What a run measured and what it left.
#[derive(Debug)]
pub struct Measurements {
    /// As of a simulation; evidence of enforcement is in `report`.
    pub results: Results,
    /// What happened when, if [`RunConfig::trace`] asked for it; of plain Linux, jobs only.
    pub trace: Trace,
    /// Enforcement and restoration.
    pub report: Report,
    /// What happened on the way: units that ended, for example.
    pub notices: Vec<Notice>,
    /// The changes that [`RunConfig::apply`] asked for and that could not be made.
    pub unchanged: Vec<ChangeError>,
    /// Was it ended early? Then the results are of the time until then, and count of the guests' jobs what
    /// the guests had told by then.
    pub stopped: bool,
}

/// Why a change of the machine could not be made.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", change.target())]
pub struct ChangeError {
    /// The change.
    pub change: doctor::Change,
    /// What the system says.
    pub source: io::Error,
}

/// Takes the host through the stages.
///
/// # Errors
/// [`RunError::Failed`]. Where the user wanted an end, its error is [`Error::Stopped`], whatever failed
/// because of it.
pub(crate) fn run<'a>(host: &'a Host, inputs: StageInputs<'a>) -> Result<Measurements, RunError> {
    let stop = inputs.stop;
    let prepared = Prepared::new(host, inputs).map_err(RunError::unchanged);
    let stages = || prepared?.start()?.calibrate()?.enforce()?.measure()?.finish();
    stages().map_err(|error| match error {
        RunError::Failed { restored, .. } if stop() => {
            RunError::Failed { error: Box::new(Error::Stopped), restored }
        }
        error => error,
    })
}

/// What the stages from [`start::Started`] on hand to each other.
struct LiveRun<'a> {
    host: &'a Host,
    options: StageInputs<'a>,
    /// The pools that have domains; the session's pools have the same order.
    pools: Vec<PoolIx>,
    /// Dropped before `domains`: it ends every process, then each domain waits for its own.
    session: Session,
    /// As many as the host has, in the host's order.
    domains: Vec<RunningDomain>,
    /// The ends of flows that there are.
    ends: Ends,
    unchanged: Vec<ChangeError>,
}

impl LiveRun<'_> {
    /// Ends a run that failed: puts everything back, and waits for its processes.
    fn failed(self, error: Error) -> RunError {
        let LiveRun { session, domains, .. } = self;
        let restored = session.abort();
        // The session has ended their processes; this waits for them.
        drop(domains);
        RunError::Failed { error: Box::new(error), restored }
    }

    /// The session's number of the pool in which `parent`'s units are.
    fn session_pool(&self, parent: Parent) -> usize {
        let pool = self.host.pool_of(parent);
        let known = self.pools.iter().position(|known| *known == pool);
        known.expect("pools that have domains are in use")
    }

    /// The processors that no pool has.
    fn processors_left(&self) -> Vec<usize> {
        let taken = processors(self.host, &self.pools);
        preflight::online().into_iter().filter(|cpu| !taken.contains(cpu)).collect()
    }
}

/// The processors of these pools.
fn processors(host: &Host, pools: &[PoolIx]) -> Vec<usize> {
    pools.iter().flat_map(|pool| host.pools[pool.0].processors.iter().copied()).collect()
}

/// How long to wait until a thread is asked again whether it has finished.
const JOIN_INTERVAL: StdDuration = StdDuration::from_millis(10);

/// Waits for a thread that waits for a guest of `domain`, and keeps the session alive meanwhile. Where that
/// fails, all guests are killed, so that the thread ends too.
fn join<T>(
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
