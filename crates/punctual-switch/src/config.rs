//! What a switch is made of.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;

use punctual_model::network::Vlans;
use punctual_net::InterfaceParams;
use punctual_net::discipline::DisciplineInfo;
use punctual_sched::Duration;
use punctual_sched::registry::Options;

use crate::budget::{self, Budget};
use crate::frame::Address;
use crate::limits::PORTS_MAX;
use crate::vlan::TooManyVlans;
use crate::wire::Wire;

/// Why a switch does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No ports, or too many.
    #[error("a switch of {0} ports; it has 1 to {PORTS_MAX}")]
    Ports(usize),
    /// A port's plane that there is not.
    #[error("port {port} is in plane {plane}, which there is not")]
    Plane {
        /// The port's name.
        port: String,
        /// The plane's index.
        plane: usize,
    },
    /// The discipline refuses its options.
    #[error("{0}")]
    Discipline(String),
    /// A budget that cannot be kept.
    #[error("plane {plane}: {source}")]
    Budget {
        /// The plane's name.
        plane: String,
        /// Why.
        #[source]
        source: budget::Error,
    },
    /// Too many VLANs.
    #[error(transparent)]
    Vlans(#[from] TooManyVlans),
    /// The socket of another switch that is at work.
    #[error("another switch listens on {0}")]
    InUse(PathBuf),
    /// A socket cannot be made.
    #[error("cannot listen on {path}")]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The first port with VLANs in a network without.
    #[error("no port has VLANs so far; to begin with them, start the switch anew")]
    FirstVlans,
    /// No place for another port.
    #[error("all {PORTS_MAX} places are taken, some by packets of ports that are gone; try again")]
    NoPlace,
    /// A plane does not answer.
    #[error("a plane does not answer")]
    Silent,
    /// The kernel refuses threads or events.
    #[error("cannot start the switch's threads")]
    Start(#[source] io::Error),
}

/// What is at a port.
#[derive(Debug)]
pub enum End {
    /// A VM, whose monitor connects to this socket.
    Socket(PathBuf),
    /// A VM, whose monitor connects here.
    Listener(UnixListener),
    /// Something beyond the switch.
    Uplink(Box<dyn Wire>),
}

/// A port.
#[derive(Debug)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// What is at it.
    pub end: End,
    /// What the discipline is told of it.
    pub params: InterfaceParams,
    /// The plane that serves what its VM sends.
    pub plane: usize,
    /// The address that is set aside for its VM.
    pub address: Option<Address>,
    /// Its VLANs.
    pub vlans: Vlans,
}

/// A plane's thread.
pub struct PlaneThread {
    /// Its name.
    pub name: String,
    /// Called first in the thread, and in those of the plane's uplinks: sets priority and processor.
    pub enter: Arc<dyn Fn() + Send + Sync>,
    /// How long it polls before it sleeps.
    pub poll: Duration,
    /// Processor time that it may take together with its uplinks, if that is limited.
    pub budget: Option<Budget>,
}

/// A switch to be started.
pub struct Config {
    /// The ports, in the order in which their VMs count as booted.
    pub ports: Vec<Port>,
    /// The planes.
    pub planes: Vec<PlaneThread>,
    /// Which packet is next, in every plane.
    pub discipline: &'static DisciplineInfo,
    /// The discipline's options.
    pub options: Options,
    /// The most bytes behind a frame's addresses, type and tag, if that is limited.
    pub mtu: Option<u32>,
    /// Are the invariants checked?
    pub check: bool,
}

pub(crate) fn check(config: &Config) -> Result<(), Error> {
    if config.ports.is_empty() || config.ports.len() > PORTS_MAX {
        return Err(Error::Ports(config.ports.len()));
    }
    match config.ports.iter().find(|port| port.plane >= config.planes.len()) {
        Some(port) => Err(Error::Plane { port: port.name.clone(), plane: port.plane }),
        None => Ok(()),
    }
}
