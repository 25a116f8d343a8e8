//! The networks of a host file whose VMs are run: a switch for each, for as long as the run lasts.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use punctual_enforce::enforcer::{Serving, ServingThread};
use punctual_linux::preflight;
use punctual_model::Host;
use punctual_model::host::Vcpu;
use punctual_model::index::NetworkIx;
use punctual_model::live::{Backend, VmNetwork};
use punctual_model::network::{self, Network, Transport};
use punctual_model::results::{PlaneResult, PortResult, SwitchResult};
use punctual_net::InterfaceParams;
use punctual_sched::Duration;
use punctual_switch::wire::{Device, VnetHeader};
use punctual_switch::{Config, End, Event, Port, Switch};
use punctual_vm::qemu::SwitchPort;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::config::{DefaultBackend, RunConfig};
use crate::error::{ServeError, with_source};
use crate::events::{self, EventQueue, Events, Relay};
use crate::planes::{Member, Placement, PlaneOverrides, Planes};
use crate::run::{Interface, OutsideHost, OutsideSocket};
use crate::status::{PlaneStatus, PortStatus};
use crate::switch::control::{self, Client};
use crate::switch::{
    Lines, addresses, raise_limit_of_descriptors, relay, report_left_behind, report_notice, result,
};
use crate::uplink::{self, Uplink, class_name};

/// How often a switch is asked what it has counted.
pub(crate) const INTERVAL: std::time::Duration = std::time::Duration::from_millis(500);
/// The real-time priority of planes that have processors of their own: above what is ordinary there.
const PLANE_PRIORITY: u32 = 50;

/// A switch at work.
pub(crate) struct LiveNetwork<'a> {
    network: &'a Network,
    lines: Lines,
    switch: Arc<Switch>,
    start: Instant,
    observer: Observer,
    relay: Relay,
    queue: EventQueue,
    /// The switch sees no end of hosts outside before its own.
    _outside: Vec<OwnedFd>,
}

/// What is at the ports of a network.
#[derive(Default)]
pub(crate) struct Ends {
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
pub(crate) fn start<'a>(
    host: &'a Host,
    config: &RunConfig<'_>,
    helpers: &Helpers,
    events: &Events,
) -> Result<(Vec<LiveNetwork<'a>>, Ends), ServeError> {
    let (default, options) = (config.default_backend, config.networks);
    let (mut networks, mut all) = (Vec::new(), Ends::default());
    raise_limit_of_descriptors();
    let names: Vec<&str> = host.networks.iter().map(|network| network.name.as_str()).collect();
    let of_frames = |network: &&Network| network.transport == Transport::Frames;
    let networks_of_frames = host.networks.iter().enumerate().filter(|(_, network)| of_frames(network));
    for (number, network) in networks_of_frames {
        let uplinks = uplink::parse_of(options.uplinks, &network.name, &names)?;
        let (mut ports, planes, ends) = ports(host, network, number, default, (&uplinks, options.one_plane))?;
        if ports.is_empty() || ends.len() + network.outside.len() + uplinks.len() < 2 {
            continue;
        }
        let (mut outside, mut kept) = (Vec::new(), Vec::new());
        for index in 0..network.outside.len() {
            let (port, end) = outside_port(host, (number, network), index, planes.of(None))?;
            if let OutsideSocket::Frames(socket) = &end.socket {
                kept.push(socket.try_clone().map_err(|error| no_socket(&error))?);
            }
            ports.push(port);
            outside.push(end);
        }
        for uplink in uplinks {
            let home = ports.len();
            ports.push(uplink_port(&uplink, End::Uplink(uplink.open(false, events)?), &planes));
            for class in uplink.classes() {
                let end = End::UplinkClass(class.open(false, events)?, home);
                ports.push(uplink_port(&class, end, &planes));
            }
        }
        all.interfaces.extend(ends);
        all.outside.extend(outside);
        networks.push(LiveNetwork::start(
            host,
            network,
            (ports, planes),
            kept,
            (options.check, helpers),
            events,
        )?);
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

/// The ports of a network's VMs, the planes they are in, and what their VMs get.
fn ports(
    host: &Host,
    network: &Network,
    number: usize,
    default: DefaultBackend,
    (uplinks, one_plane): (&[Uplink], bool),
) -> Result<(Vec<Port>, Planes, Vec<Interface>), ServeError> {
    let of_vms = network
        .interfaces
        .iter()
        .enumerate()
        .filter(|(_, interface)| is_on_switch(&host.domains[interface.domain.0].live.backend, default));
    let of_vms: Vec<_> = of_vms.collect();
    let priorities = of_vms.iter().flat_map(|(_, interface)| interface.priorities());
    let priorities: Vec<_> = priorities.chain(uplinks.iter().flat_map(Uplink::priorities)).collect();
    let overrides = PlaneOverrides { one: one_plane, ..PlaneOverrides::default() };
    let planes = Planes::new(network, &priorities, &overrides);
    let (mut ports, mut interfaces) = (Vec::new(), Vec::new());
    let addresses = addresses(host, network);
    for (index, interface) in of_vms {
        let socket = SwitchPort::new();
        let (port, listener) = socket.map_err(|error| no_socket(&error))?;
        let domain = host.domains[interface.domain.0].name.clone();
        let ethernet = addresses[index];
        interfaces.push(Interface {
            domain: domain.clone(),
            port,
            network: NetworkIx(number),
            ethernet: ethernet.0,
            address: format!("10.{}.{}.{}/16", number % 256, (index + 1) / 256, (index + 1) % 256),
            mtu: network.mtu,
        });
        let home = ports.len();
        let port = Port {
            name: domain,
            end: End::Listener(listener),
            params: interface.params.clone(),
            plane: planes.of_interface(network, interface),
            address: Some(ethernet),
            vlans: interface.vlans.clone(),
            groups: interface.groups.clone(),
        };
        let classes = interface.classes.keys().filter(|_| network.has_priorities());
        let classes: Vec<Port> = classes.map(|pcp| class_port(&port, interface, home, *pcp)).collect();
        ports.push(port);
        ports.extend(classes);
    }
    Ok((ports, planes, interfaces))
}

/// The port of the frames with this PCP of the VM at the port `home`.
fn class_port(port: &Port, interface: &network::Interface, home: usize, pcp: u8) -> Port {
    Port {
        name: class_name(&port.name, pcp),
        end: End::VmClass { home, pcp },
        params: InterfaceParams { priority: interface.priority_of(Some(pcp)), ..port.params.clone() },
        plane: port.plane,
        address: None,
        vlans: port.vlans.clone(),
        groups: Vec::new(),
    }
}

fn uplink_port(uplink: &Uplink, end: End, planes: &Planes) -> Port {
    Port {
        end,
        plane: planes.of(uplink.params.priority),
        name: uplink.name.clone(),
        params: uplink.params.clone(),
        address: None,
        vlans: uplink.vlans.clone(),
        groups: Vec::new(),
    }
}

/// The port of a host outside, behind which this process itself stands.
fn outside_port(
    host: &Host,
    (number, network): (usize, &Network),
    index: usize,
    plane: usize,
) -> Result<(Port, OutsideHost), ServeError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (own, other) = pair.map_err(|error| no_socket(&error.into()))?;
    let ethernet = addresses(host, network)[network.interfaces.len() + index];
    let port = Port {
        name: network.outside[index].name.clone(),
        end: End::Uplink(Box::new(Device::new(own, VnetHeader::Virtio1))),
        params: InterfaceParams::default(),
        plane,
        address: Some(ethernet),
        vlans: network.outside[index].vlans.clone(),
        groups: Vec::new(),
    };
    let network = NetworkIx(number);
    let socket = OutsideSocket::Frames(other);
    Ok((port, OutsideHost { network, host: index, ethernet: ethernet.0, socket }))
}

fn no_socket(error: &std::io::Error) -> ServeError {
    ServeError::Refused(format!("no socket: {error}"))
}

/// Where the planes of a network run: the processors of the driver domain's pool if no other domain is in
/// that pool, else those that no pool has. On processors of their own they have a real-time priority, unless
/// that would leave the host none without.
pub(crate) fn placement(host: &Host, network: &Network) -> Placement {
    let pool = host.pool_of(host.domains[network.driver.0].parent);
    let is_driver = |ix: usize| host.networks.iter().any(|network| network.driver.0 == ix);
    let others = |ix: usize| host.pool_of(host.domains[ix].parent) == pool && !is_driver(ix);
    let taken: Vec<usize> = host.pools.iter().flat_map(|pool| pool.processors.clone()).collect();
    let left: Vec<usize> = preflight::online().into_iter().filter(|cpu| !taken.contains(cpu)).collect();
    if (0..host.domains.len()).any(others) {
        Placement { processors: left, fifo: None }
    } else {
        let fifo = (!left.is_empty()).then_some(PLANE_PRIORITY);
        Placement { processors: host.pools[pool.0].processors.clone(), fifo }
    }
}

/// What a switch has counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Status {
    /// By port.
    pub ports: Vec<PortStatus>,
    /// By plane.
    pub planes: Vec<PlaneStatus>,
}

impl Status {
    /// [`INTERVAL`] after `before`.
    pub(crate) fn of(switch: &SwitchResult, before: &Status) -> Status {
        let per_s = |now: u64, before: u64| now.saturating_sub(before) * 1000 / INTERVAL.as_millis() as u64;
        let port = |port: &PortResult| {
            let earlier = before.ports.iter().find(|earlier| earlier.name == port.name);
            PortStatus {
                sent_per_s: per_s(port.sent.packets, earlier.map_or(0, |port| port.sent)),
                received_per_s: per_s(port.received.packets, earlier.map_or(0, |port| port.received)),
                network: switch.network.clone(),
                name: port.name.clone(),
                sent: port.sent.packets,
                delivered: port.delivered.packets,
                received: port.received.packets,
                dropped: port.dropped,
                queued: port.queued,
                latency_p99_ns: port.latency.quantile_ppm(990_000).as_ns(),
            }
        };
        let plane = |plane: &PlaneResult| {
            let earlier = before.planes.iter().find(|earlier| earlier.name == plane.name);
            let earlier_ns = earlier.map_or(0, |of| of.processor_ns);
            PlaneStatus {
                network: switch.network.clone(),
                name: plane.name.clone(),
                packets: plane.rx,
                processor_ns: plane.processor_ns,
                processor_ns_per_s: per_s(plane.processor_ns, earlier_ns),
                budget_ns: plane.budget_ns,
                period_ns: plane.period_ns,
                exhaustions: plane.exhaustions,
            }
        };
        Status {
            ports: switch.ports.iter().map(port).collect(),
            planes: switch.planes.iter().map(plane).collect(),
        }
    }
}

/// The threads of switches, for blame: whose units they serve.
#[derive(Clone, Default)]
pub(crate) struct Helpers {
    /// What is handed to enforcers.
    pub serving: Arc<Serving>,
    /// By network.
    known: Arc<Mutex<BTreeMap<String, Vec<ServingThread>>>>,
}

impl Helpers {
    /// These threads serve the units of a network now.
    fn set(&self, network: &str, members: Vec<Member>, units: &[String]) {
        let serving = |member: Member| ServingThread {
            thread: member.thread,
            name: member.name,
            units: units.to_vec(),
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(network.to_owned(), members.into_iter().map(serving).collect());
        self.serving.set(known.values().flatten().cloned().collect());
    }
}

/// The vCPUs of a network's guests.
fn units(host: &Host, network: &Network) -> Vec<String> {
    let is_on = |vcpu: &&Vcpu| network.interfaces.iter().any(|interface| interface.domain == vcpu.domain);
    host.vcpus.iter().filter(is_on).map(|vcpu| vcpu.name.clone()).collect()
}

/// Asks a switch from time to time what it has counted, in a thread of its own: planes may be slow to answer.
struct Observer {
    /// What it had counted a moment ago.
    status: Arc<Mutex<Status>>,
    /// It ends with its sender.
    thread: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

impl Observer {
    fn start(mut ask: impl FnMut() -> Option<SwitchResult> + Send + 'static) -> Observer {
        let (stop, stopped) = mpsc::channel::<()>();
        let status = Arc::<Mutex<Status>>::default();
        let shown = Arc::clone(&status);
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                let Some(result) = ask() else { continue };
                let mut status = shown.lock().unwrap_or_else(PoisonError::into_inner);
                *status = Status::of(&result, &status);
            }
        });
        Observer { status, thread: Some((stop, thread)) }
    }

    fn status(&self) -> Status {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn end(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

/// A switch that works already, beside what is attached to.
pub(crate) struct FoundNetwork {
    client: Client,
    /// What it had counted when it was found.
    before: SwitchResult,
    observer: Observer,
}

/// The switches that serve networks of the host file already. A line names the networks that have none.
pub(crate) fn find(host: &Host, helpers: &Helpers, events: &Events) -> Vec<FoundNetwork> {
    let of_frames = host.networks.iter().filter(|network| network.transport == Transport::Frames);
    let mut found = Vec::new();
    for network in of_frames.filter(|network| !network.interfaces.is_empty()) {
        let counted =
            Client::of_network(&network.name).ok().and_then(|client| Some((client.count()?, client)));
        let Some((counted, client)) = counted else {
            events(events::Event::SwitchMissing { network: network.name.clone() });
            continue;
        };
        let (network_name, process) = (network.name.clone(), client.process);
        events(events::Event::SwitchFound { network: network_name, process });
        found.push(FoundNetwork::new(counted, client, units(host, network), helpers.clone()));
    }
    found
}

impl FoundNetwork {
    fn new(counted: control::Counted, client: Client, units: Vec<String>, helpers: Helpers) -> FoundNetwork {
        let control::Counted { result: before, members } = counted;
        helpers.set(&before.network, members, &units);
        let asked = client.clone();
        let observer = Observer::start(move || {
            let control::Counted { result, members } = asked.count()?;
            helpers.set(&result.network, members, &units);
            Some(result)
        });
        FoundNetwork { client, before, observer }
    }

    /// What it had counted a moment ago.
    pub(crate) fn status(&self) -> Status {
        self.observer.status()
    }

    /// What it counted since it was found; latencies are those since it started. `None` when it has ended.
    pub(crate) fn end(mut self) -> Option<SwitchResult> {
        self.observer.end();
        let mut result = self.client.count()?.result;
        result.subtract(&self.before);
        Some(result)
    }
}

impl<'a> LiveNetwork<'a> {
    fn start(
        host: &Host,
        network: &'a Network,
        (ports, planes): (Vec<Port>, Planes),
        outside: Vec<OwnedFd>,
        (check, helpers): (bool, &Helpers),
        events: &Events,
    ) -> Result<Self, ServeError> {
        let names: Vec<String> = ports.iter().map(|port| port.name.clone()).collect();
        let (lines, roster) = (Lines::of(&ports, &planes), planes.roster().clone());
        let config = Config {
            ports,
            planes: planes.threads(&placement(host, network), events),
            discipline: network.discipline.info,
            options: network.discipline.options.clone(),
            mtu: network.mtu,
            check,
        };
        let started = Switch::start(config).map_err(|error| ServeError::Refused(with_source(&error)))?;
        let (switch, notices) = started;
        let queue = EventQueue::start(events.clone())
            .map_err(|error| ServeError::Refused(format!("no thread for events: {error}")))?;
        let events = queue.events();
        let relay = relay(notices, move |notice, more| {
            use Event::{Assumed, Broken, Disconnected, Unaccepted};
            if let Broken(_) | Disconnected(Some(_)) | Assumed | Unaccepted(_) = notice.event {
                report_notice(&names[notice.port], notice, more, &events);
            }
        });
        let switch = Arc::new(switch);
        let (asked, shown, of) = (Arc::clone(&switch), lines.clone(), network.clone());
        let (helpers, units) = (helpers.clone(), units(host, network));
        helpers.set(&network.name, roster.members(), &units);
        let observer = Observer::start(move || {
            helpers.set(&of.name, roster.members(), &units);
            Some(result(&of, &shown, &asked.count()))
        });
        Ok(LiveNetwork {
            network,
            lines,
            switch,
            start: Instant::now(),
            observer,
            relay,
            queue,
            _outside: outside,
        })
    }

    /// What it had counted a moment ago.
    pub(crate) fn status(&self) -> Status {
        self.observer.status()
    }

    /// Ends the switch. Returns what it counted, and the invariant that broke, if one did.
    pub(crate) fn end(mut self) -> Ended {
        let elapsed = Duration::from_ns(self.start.elapsed().as_nanos() as u64);
        self.observer.end();
        // The observer had the only other reference.
        let report = match Arc::try_unwrap(self.switch) {
            Ok(switch) => {
                let report = switch.stop();
                self.relay.finish();
                report
            }
            Err(switch) => switch.count(),
        };
        report_left_behind(&report, &self.queue.events());
        let result = result(self.network, &self.lines, &report);
        let violation = report.checked.into_iter().find_map(Result::err);
        Ended { result, elapsed, violation: violation.map(|violation| violation.to_string()) }
    }
}

/// What is left of a switch.
pub(crate) struct Ended {
    pub result: SwitchResult,
    /// How long it worked.
    pub elapsed: Duration,
    /// The invariant that broke.
    pub violation: Option<String>,
}
