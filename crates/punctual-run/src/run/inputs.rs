//! What a run starts from: the configuration, and what was started around its domains.

use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use punctual_model::index::NetworkIx;
use punctual_sched::Duration;

use crate::config::{RunConfig, RunView};
use crate::events::{Event, Events};
use punctual_doctor::doctor;
use punctual_enforce::enforcer::Serving;
use punctual_linux::channel::Stop;
use punctual_vm::qemu::SwitchPort;

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
    pub(super) fn step(&self, text: &str) {
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
    /// The network's MTU, which the device reports to the guest.
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

/// A host outside a network, whose part this process plays.
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
