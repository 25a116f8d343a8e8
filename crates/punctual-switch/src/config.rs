//! What a switch is made of, and why it does not start.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;

use punctual_model::network::{Groups, Vlans};
use punctual_net::InterfaceParams;
use punctual_net::discipline::DisciplineInfo;
use punctual_sched::Duration;
use punctual_sched::registry::Options;

use crate::budget::{self, Budget};
use crate::frame::Address;
use crate::limits::PORTS_MAX;
use crate::vlan::TooManyVlans;
use crate::wire::Wire;

/// Why a switch does not start, or a port is not added.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("a switch has 1 to {PORTS_MAX} ports, not {0}")]
    Ports(usize),
    #[error("port {port}: no plane `{plane}`")]
    Plane { port: String, plane: usize },
    #[error("port {port}: no port {home} before it in its plane")]
    Class { port: String, home: usize },
    /// The discipline rejects an option, or a port's parameters.
    #[error("{0}")]
    Discipline(String),
    #[error("plane {plane}: {source}")]
    Budget {
        plane: String,
        #[source]
        source: budget::Error,
    },
    #[error(transparent)]
    Vlans(#[from] TooManyVlans),
    #[error("another switch listens on {0}")]
    InUse(PathBuf),
    #[error("cannot listen on {path}")]
    Socket {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the running switch has no VLANs; restart it to use them")]
    FirstVlans,
    #[error("all {PORTS_MAX} ports are in use, or packets of removed ports still are in flight; try again")]
    NoPlace,
    #[error("a plane does not respond")]
    Silent,
    #[error(
        "cannot signal front-ends: the kernel has no asynchronous requests (CONFIG_AIO), or no context of \
         them is left (raise the sysctl fs.aio-max-nr)"
    )]
    Signals(#[source] io::Error),
    #[error("cannot start the switch's threads")]
    Start(#[source] io::Error),
}

/// What is at a port.
#[derive(Debug)]
pub enum End {
    /// A VM, whose front-end connects to this socket.
    Socket(PathBuf),
    /// A VM, whose front-end connects to this listener.
    Listener(UnixListener),
    /// No VM.
    Uplink(Box<dyn Wire>),
    /// Some of the frames of the uplink at another port, with a priority of their own. They count as that
    /// port's: it has the addresses that they come from, and nothing is delivered here. That port is removed
    /// after this one.
    UplinkClass(Box<dyn Wire>, usize),
    /// The frames with this PCP of the VM at port `home`, with a priority of their own. They come through
    /// that port's TX ring, in its plane, and nothing is delivered here.
    VmClass { home: usize, pcp: u8 },
}

impl End {
    /// The port that has the addresses of what is sent from `port`.
    pub(crate) fn home(&self, port: usize) -> usize {
        match self {
            End::UplinkClass(_, home) | End::VmClass { home, .. } => *home,
            End::Socket(_) | End::Listener(_) | End::Uplink(_) => port,
        }
    }

    /// The class of a VM's frames, as the port and the PCP.
    pub(crate) fn vm_class(&self) -> Option<(usize, u8)> {
        if let End::VmClass { home, pcp } = self { Some((*home, *pcp)) } else { None }
    }

    /// The socket's file, if it has one.
    pub(crate) fn socket(&self) -> Option<PathBuf> {
        match self {
            End::Socket(path) => Some(path.clone()),
            End::Listener(_) | End::Uplink(_) | End::UplinkClass(..) | End::VmClass { .. } => None,
        }
    }
}

#[derive(Debug)]
pub struct Port {
    pub name: String,
    pub end: End,
    /// Its parameters in the discipline.
    pub params: InterfaceParams,
    /// The plane that serves its TX ring.
    pub plane: usize,
    /// The address that is reserved for its VM.
    pub address: Option<Address>,
    pub vlans: Vlans,
    /// The group addresses whose frames it sends or receives. Uplinks receive those of all ports.
    pub groups: Vec<Groups>,
}

/// A plane's thread.
pub struct PlaneThread {
    pub name: String,
    /// Runs first in the thread, and in those of the plane's uplinks: sets priority and processor.
    pub enter: Arc<dyn Fn() + Send + Sync>,
    /// How long it busy-polls before it sleeps.
    pub poll: Duration,
    /// The processor time of the plane and its uplinks, if it is limited.
    pub budget: Option<Budget>,
}

/// A switch to be started.
pub struct Config {
    /// In the order in which their VMs count as booted.
    pub ports: Vec<Port>,
    pub planes: Vec<PlaneThread>,
    /// Each plane has one of these.
    pub discipline: &'static DisciplineInfo,
    pub options: Options,
    /// Bytes behind a frame's addresses, type and tag, if they are limited.
    pub mtu: Option<u32>,
    /// Check the invariants of `crate::check` all the time.
    pub check: bool,
}

impl Config {
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.ports.is_empty() || self.ports.len() > PORTS_MAX {
            return Err(Error::Ports(self.ports.len()));
        }
        match self.ports.iter().find(|port| port.plane >= self.planes.len()) {
            Some(port) => Err(Error::Plane { port: port.name.clone(), plane: port.plane }),
            None => self.check_classes(),
        }
    }

    /// A class of a VM is behind its port, in the same plane.
    fn check_classes(&self) -> Result<(), Error> {
        for (number, port) in self.ports.iter().enumerate() {
            let Some((home, _)) = port.end.vm_class() else { continue };
            if home >= number || self.ports[home].plane != port.plane {
                return Err(Error::Class { port: port.name.clone(), home });
            }
        }
        Ok(())
    }
}
