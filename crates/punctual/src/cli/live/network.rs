//! The networks of a host file whose VMs are run: a switch for each, for as long as the run lasts.

use std::sync::Arc;
use std::time::Instant;

use punctual_live::os::sched;
use punctual_live::preflight;
use punctual_live::qemu::SwitchPort;
use punctual_live::run::{DefaultBackend, Interface};
use punctual_model::Host;
use punctual_model::live::{Backend, VmNetwork};
use punctual_model::network::Network;
use punctual_sched::Duration;
use punctual_switch::{Config, End, Event, PlaneThread, Port, Switch};

use super::super::error::Error;
use super::super::output::Ui;
use super::super::switch::{Counted, Line, Planes, address, tell, with_source};

/// A switch at work.
pub struct LiveNetwork<'a> {
    network: &'a Network,
    lines: Vec<Line>,
    switch: Switch,
    start: Instant,
}

/// Starts a switch for each network that has VMs which the file gives no network of their own. Nothing of it
/// is left when the process ends, however it ends: sockets have no names, and no device is made.
///
/// # Errors
/// When a switch cannot start.
pub fn start<'a>(
    host: &'a Host,
    default: DefaultBackend,
    ui: &'a Ui,
) -> Result<(Vec<LiveNetwork<'a>>, Vec<Interface>), Error> {
    let (mut networks, mut interfaces) = (Vec::new(), Vec::new());
    for (number, network) in host.networks.iter().enumerate() {
        let (ports, count, ends) = ports(host, network, number, default)?;
        if ports.len() < 2 {
            continue;
        }
        interfaces.extend(ends);
        networks.push(LiveNetwork::start(host, network, ports, count, ui)?);
    }
    Ok((networks, interfaces))
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
) -> Result<(Vec<Port>, usize, Vec<Interface>), Error> {
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
        let (port, listener) = socket.map_err(|error| Error::Usage(format!("no socket: {error}")))?;
        let domain = host.domains[interface.domain.0].name.clone();
        let ethernet = address(&network.name, index);
        interfaces.push(Interface {
            domain: domain.clone(),
            port,
            ethernet: ethernet.to_string(),
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
    Ok((ports, planes.count(), interfaces))
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
        Ok(LiveNetwork { network, lines, switch, start: Instant::now() })
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
