//! The networks of a host file whose VMs are run: a switch for each, for as long as the run lasts.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use punctual_live::os::sched;
use punctual_live::preflight;
use punctual_live::qemu::SwitchPort;
use punctual_live::run::{DefaultBackend, Interface, OutsideHost};
use punctual_model::Host;
use punctual_model::index::NetworkIx;
use punctual_model::live::{Backend, VmNetwork};
use punctual_model::network::Network;
use punctual_net::InterfaceParams;
use punctual_sched::Duration;
use punctual_switch::wire::{Device, HeaderOf};
use punctual_switch::{Config, End, Event, PlaneThread, Port, Switch};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::super::error::Error;
use super::super::output::Ui;
use super::super::switch::{Counted, Line, Planes, address, tell, with_source};

/// A switch at work.
pub struct LiveNetwork<'a> {
    network: &'a Network,
    lines: Vec<Line>,
    switch: Switch,
    start: Instant,
    /// The switch sees no end of hosts outside before its own.
    _outside: Vec<OwnedFd>,
}

/// What is at the ports of a network.
#[derive(Default)]
pub struct Ends {
    /// Of VMs.
    pub interfaces: Vec<Interface>,
    /// Of hosts outside.
    pub outside: Vec<OutsideHost>,
}

/// Starts a switch for each network that has VMs, or a VM and a host outside, which the file gives no network
/// of their own. Nothing of it is left when the process ends, however it ends: sockets have no names, and no
/// device is made.
///
/// # Errors
/// When a switch cannot start.
pub fn start<'a>(
    host: &'a Host,
    default: DefaultBackend,
    ui: &'a Ui,
) -> Result<(Vec<LiveNetwork<'a>>, Ends), Error> {
    let (mut networks, mut all) = (Vec::new(), Ends::default());
    for (number, network) in host.networks.iter().enumerate() {
        let (mut ports, planes, ends) = ports(host, network, number, default)?;
        if ports.is_empty() || ports.len() + network.outside.len() < 2 {
            continue;
        }
        let (mut outside, mut kept) = (Vec::new(), Vec::new());
        for index in 0..network.outside.len() {
            let (port, end) = outside_port(network, number, index, planes.of(None))?;
            kept.push(end.socket.try_clone().map_err(|error| no_socket(&error))?);
            ports.push(port);
            outside.push(end);
        }
        all.interfaces.extend(ends);
        all.outside.extend(outside);
        networks.push(LiveNetwork::start(host, network, ports, planes.count(), kept, ui)?);
    }
    Ok((networks, all))
}

/// Is the domain a VM on the network of the host file?
fn is_on_switch(backend: &Backend, default: DefaultBackend) -> bool {
    match backend {
        Backend::Default => default == DefaultBackend::Vm,
        Backend::Vm(vm) => vm.network == VmNetwork::None,
        Backend::Process(_) | Backend::Attach(_) => false,
    }
}

/// The ports of a network's VMs, in how many planes they are, and what their VMs get.
fn ports(
    host: &Host,
    network: &Network,
    number: usize,
    default: DefaultBackend,
) -> Result<(Vec<Port>, Planes, Vec<Interface>), Error> {
    let of_vms = network
        .interfaces
        .iter()
        .enumerate()
        .filter(|(_, interface)| is_on_switch(&host.domains[interface.domain.0].live.backend, default));
    let of_vms: Vec<_> = of_vms.collect();
    let priorities: Vec<_> = of_vms.iter().map(|(_, interface)| interface.params.priority).collect();
    let planes = Planes::new(network, &priorities, None, false);
    let (mut ports, mut interfaces) = (Vec::new(), Vec::new());
    for (index, interface) in of_vms {
        let socket = SwitchPort::new();
        let (port, listener) = socket.map_err(|error| no_socket(&error))?;
        let domain = host.domains[interface.domain.0].name.clone();
        let ethernet = address(&network.name, index);
        interfaces.push(Interface {
            domain: domain.clone(),
            port,
            network: NetworkIx(number),
            ethernet: ethernet.0,
            address: format!("10.{}.{}.{}/16", number % 256, (index + 1) / 256, (index + 1) % 256),
        });
        ports.push(Port {
            name: domain,
            end: End::Listener(listener),
            params: interface.params.clone(),
            plane: planes.of(interface.params.priority),
            address: Some(ethernet),
        });
    }
    Ok((ports, planes, interfaces))
}

/// The port of a host outside, behind which this process itself stands.
fn outside_port(
    network: &Network,
    number: usize,
    index: usize,
    plane: usize,
) -> Result<(Port, OutsideHost), Error> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (own, other) = pair.map_err(|error| no_socket(&error.into()))?;
    let ethernet = address(&network.name, network.interfaces.len() + index);
    let port = Port {
        name: network.outside[index].name.clone(),
        end: End::Uplink(Box::new(Device::new(own, HeaderOf::Virtio1))),
        params: InterfaceParams::default(),
        plane,
        address: Some(ethernet),
    };
    let network = NetworkIx(number);
    Ok((port, OutsideHost { network, host: index, ethernet: ethernet.0, socket: other }))
}

fn no_socket(error: &std::io::Error) -> Error {
    Error::Usage(format!("no socket: {error}"))
}

/// Keeps a thread on the processors that no pool has.
fn stay_on(processors: &[usize]) {
    if !processors.is_empty()
        && let Err(error) = sched::set_affinity(0, processors)
    {
        eprintln!("warning: the switch does not stay on processors {processors:?}: {error}");
    }
}

impl<'a> LiveNetwork<'a> {
    fn start(
        host: &Host,
        network: &'a Network,
        ports: Vec<Port>,
        planes: usize,
        outside: Vec<OwnedFd>,
        ui: &Ui,
    ) -> Result<Self, Error> {
        let taken: Vec<usize> = host.pools.iter().flat_map(|pool| pool.processors.clone()).collect();
        let left: Vec<usize> = preflight::online().into_iter().filter(|cpu| !taken.contains(cpu)).collect();
        let enter: Arc<dyn Fn() + Send + Sync> = Arc::new(move || stay_on(&left));
        let thread = |plane| PlaneThread { name: format!("switch plane {plane}"), enter: Arc::clone(&enter) };
        let names: Vec<String> = ports.iter().map(|port| port.name.clone()).collect();
        let lines = ports.iter().map(Line::of).collect();
        let config = Config {
            ports,
            planes: (0..planes).map(thread).collect(),
            discipline: network.discipline.info,
            options: network.discipline.options.clone(),
            poll: Duration::ZERO,
            check: false,
        };
        let started = Switch::start(config).map_err(|error| Error::Usage(with_source(&error)))?;
        let (switch, notices) = started;
        let ui = *ui;
        // It ends when the switch stops and its notices with it.
        std::thread::spawn(move || {
            let is_trouble = |event: &Event| matches!(event, Event::Broken(_) | Event::Disconnected(Some(_)));
            for notice in notices.into_iter().filter(|notice| is_trouble(&notice.event)) {
                tell(&names[notice.port], &notice.event, &ui);
            }
        });
        Ok(LiveNetwork { network, lines, switch, start: Instant::now(), _outside: outside })
    }

    /// Ends the switch. Returns what it counted, as text.
    pub fn end(self) -> String {
        let elapsed = Duration::from_ns(self.start.elapsed().as_nanos() as u64);
        let report = self.switch.stop();
        let counted = Counted::of(self.network, self.lines, &report, elapsed);
        format!(
            "\nswitch of {}, {}\n{}",
            self.network.name,
            self.network.discipline.info.name,
            counted.table()
        )
    }
}
