//! The switch of a network that VMs of others use: its directory, its control socket, and ports that follow
//! its description while it works.

pub mod control;
mod directory;
mod listing;
mod served;
pub mod watch;

use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Instant;

use punctual_model::Host;
use punctual_model::network::Network;
use punctual_model::results::{FrameCounts, PlaneResult, PortDrops, PortResult, SwitchResult};
use punctual_model::text::printable;
use punctual_sched::Duration;
use punctual_switch::frame::Address;
use punctual_switch::stats::{Count, PlaneStats, PortStats};
use punctual_switch::{Config, End, Notice, Port, Report, Switch};
use rustix::process::{Resource, Rlimit};
use serde::Serialize;

use crate::error::{ServeError, with_source};
use crate::events::{Event, Events};
use crate::planes::{Placement, PlaneLine, PlaneOverrides, Planes};
use crate::uplink::{self, Uplink};
use control::{Asked, Control};
use directory::Directory;
use served::Served;

pub use listing::escaped;

/// What a user adds to the network of a host file.
#[derive(Clone, Copy, Debug)]
pub struct ServiceConfig<'a> {
    /// Where the sockets are made; `None`: in a directory of their own.
    pub sockets: Option<&'a Path>,
    /// A group that may connect to them.
    pub group: Option<&'a str>,
    pub uplinks: &'a [String],
    pub planes: PlaneOverrides,
    /// Check invariants all the time.
    pub check: bool,
}

/// A switch at work.
pub struct Service {
    served: Served,
    notices: Receiver<Notice>,
    messages: Sender<Message>,
    receiver: Receiver<Message>,
    control: Control,
    directory: Directory,
    events: Events,
}

/// What a switch counted, when it has ended.
pub struct Ended {
    pub network: Network,
    pub lines: Lines,
    pub report: Report,
    pub elapsed: Duration,
}

/// What happens while the switch works.
enum Message {
    Notice(Notice),
    Asked(Box<Asked>),
    Stop,
}

impl Service {
    /// Starts the switch of a network, with a socket for each of its interfaces.
    ///
    /// # Errors
    /// Something that the user wants is not possible here.
    pub fn start(
        host: &Host,
        network: &Network,
        config: &ServiceConfig<'_>,
        events: Events,
    ) -> Result<Service, ServeError> {
        raise_limit_of_descriptors();
        let directory = Directory::prepare(config.sockets, config.group, network)?;
        let uplinks = uplink::parse_all(config.uplinks, &network.name)?;
        let planes = planes(config, network, &uplinks);
        let wanted = served::wanted(host, network, &planes, uplinks)?;
        let open = |port: &served::Wanted| port.open(directory.path(), false, &events);
        let ports: Vec<Port> = wanted.iter().map(open).collect::<Result<_, _>>()?;
        let lines: Vec<Line> = ports.iter().map(Line::of).collect();
        let switch = Config {
            ports,
            planes: planes.threads(&Placement::default(), &events),
            discipline: network.discipline.info,
            options: network.discipline.options.clone(),
            mtu: network.mtu,
            check: config.check,
        };
        let refused = |error| ServeError::Refused(with_source(&error));
        let (switch, notices) = Switch::start(switch).map_err(refused)?;
        for socket in wanted.iter().filter_map(|port| port.socket(directory.path())) {
            directory.admit(&socket)?;
        }
        let (messages, receiver) = mpsc::channel();
        let asked = messages.clone();
        let control = Control::open(directory.path(), &network.name, move |asks| {
            drop(asked.send(Message::Asked(Box::new(asks))))
        });
        let control = control.map_err(|error| ServeError::Refused(format!("no control socket: {error}")))?;
        let ports = wanted.into_iter().zip(lines).collect();
        let served = Served::new(switch, network.clone(), planes, directory.clone(), ports, events.clone());
        Ok(Service { served, notices, messages, receiver, control, directory, events })
    }

    /// How QEMU or libvirt connects VMs to its ports.
    pub fn listing(&self, libvirt: bool) -> String {
        self.served.listing(libvirt)
    }

    /// Ends the switch when it is called.
    pub fn stopper(&self) -> impl Fn() + Send + 'static {
        let stop = self.messages.clone();
        move || drop(stop.send(Message::Stop))
    }

    /// Reports what happens to ports and answers clients, for `duration` or until it is stopped. Then removes
    /// the sockets.
    pub fn serve(self, duration: Option<Duration>) -> Ended {
        let Service { mut served, notices, messages, receiver, control, directory, events } = self;
        let start = Instant::now();
        // It ends when the switch stops and its notices with it.
        std::thread::spawn(move || notices.into_iter().try_for_each(|n| messages.send(Message::Notice(n))));
        let end = duration.map(|time| start + std::time::Duration::from_nanos(time.as_ns()));
        loop {
            let message = match end {
                Some(end) => receiver.recv_timeout(end.saturating_duration_since(Instant::now())),
                None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match message {
                Ok(Message::Notice(Notice { port, event })) => {
                    events(Event::Port { port: served.name(port).to_owned(), event });
                }
                Ok(Message::Asked(asked)) => {
                    let (request, answer) = *asked;
                    // The client may be gone.
                    let _ = answer.send(served.answer(request));
                }
                Ok(Message::Stop) | Err(_) => break,
            }
        }
        let (network, lines, report) = served.stop();
        let elapsed = Duration::from_ns(start.elapsed().as_nanos() as u64);
        drop(control);
        directory.remove();
        Ended { network, lines, report, elapsed }
    }
}

/// Raises RLIMIT_NOFILE to the hard limit: each VM needs about ten file descriptors, and the usual limit of a
/// shell is 1024. Beyond the limit, new VMs wait and an event reports it.
pub(crate) fn raise_limit_of_descriptors() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The network of this name, or the only one.
///
/// # Errors
/// There is none, there are several, or it has no interfaces.
pub fn network<'a>(host: &'a Host, name: Option<&str>) -> Result<&'a Network, ServeError> {
    let names = || host.networks.iter().map(|network| network.name.as_str()).collect::<Vec<_>>().join(", ");
    let found = match (name, &host.networks[..]) {
        (Some(name), networks) => networks.iter().find(|network| network.name == name),
        (None, [network]) => Some(network),
        (None, []) => return Err(ServeError::Refused("the host file has no network".into())),
        (None, _) => return Err(ServeError::Refused(format!("say which --network: {}", names()))),
    };
    let network =
        found.ok_or_else(|| ServeError::Refused(format!("no such network; there are: {}", names())))?;
    match network.interfaces.is_empty() {
        true => Err(ServeError::Refused(format!("network {} has no interfaces of guests", network.name))),
        false => Ok(network),
    }
}

/// The name, if it can be that of a file.
///
/// # Errors
/// It cannot.
pub fn file_name(name: &str) -> Result<&str, ServeError> {
    match name.contains(['/', '\0']) || name.starts_with('.') {
        true => Err(ServeError::Refused(format!("{} cannot be the name of a file", printable(name)))),
        false => Ok(name),
    }
}

/// The planes of a network.
fn planes(config: &ServiceConfig<'_>, network: &Network, uplinks: &[Uplink]) -> Planes {
    let of_guests = network.interfaces.iter().map(|interface| interface.params.priority);
    let priorities: Vec<_> = of_guests.chain(uplinks.iter().map(|uplink| uplink.params.priority)).collect();
    Planes::new(network, &priorities, &config.planes)
}

/// The addresses of a network's interfaces, then of its hosts outside, in the range that QEMU uses. An
/// address belongs to its name: it is the same in every run, whatever comes and goes beside it.
pub(crate) fn addresses(host: &Host, network: &Network) -> Vec<Address> {
    let of_guests = network.interfaces.iter().map(|interface| host.domains[interface.domain.0].name.as_str());
    let names = of_guests.chain(network.outside.iter().map(|outside| outside.name.as_str()));
    let mut all: Vec<Address> = Vec::new();
    for name in names {
        // FNV-1a.
        let bytes = network.name.bytes().chain([0]).chain(name.bytes());
        let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        let mut hash = bytes.fold(0x811c_9dc5_u32, step);
        loop {
            let [_, a, b, c] = hash.to_be_bytes();
            let address = Address([0x52, 0x54, 0, a, b, c]);
            // Two names of three thousand meet so.
            if !all.contains(&address) {
                all.push(address);
                break;
            }
            hash = hash.wrapping_add(1);
        }
    }
    all
}

/// The ports and planes of a switch.
#[derive(Clone)]
pub struct Lines {
    pub ports: Vec<Line>,
    pub planes: Vec<PlaneLine>,
}

impl Lines {
    pub(crate) fn of(ports: &[Port], planes: &Planes) -> Self {
        Lines { ports: ports.iter().map(Line::of).collect(), planes: planes.lines() }
    }

    /// The processor time of a plane and of its uplinks, in ns.
    pub fn processor_ns(&self, plane: usize, report: &Report) -> u64 {
        let of_plane = self.ports.iter().zip(&report.ports).filter(|(line, _)| line.plane == plane);
        let uplinks = of_plane.filter_map(|(_, stats)| stats.uplink).map(|uplink| uplink.processor_ns);
        report.planes.get(plane).map_or(0, |stats| stats.processor_ns) + uplinks.sum::<u64>()
    }
}

/// A port: its name, priority, plane and socket.
#[derive(Clone, Serialize)]
pub struct Line {
    name: String,
    priority: Option<u32>,
    plane: usize,
    /// Uplinks have none.
    socket: Option<String>,
    address: Option<String>,
}

impl Line {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn of(port: &Port) -> Self {
        Line {
            name: port.name.clone(),
            priority: port.params.priority,
            plane: port.plane,
            socket: match &port.end {
                End::Socket(path) => Some(path.display().to_string()),
                End::Listener(_) | End::Uplink(_) => None,
            },
            address: port.address.map(|address| address.to_string()),
        }
    }
}

/// What was counted, as part of a run's results.
pub fn result(network: &Network, lines: &Lines, report: &Report) -> SwitchResult {
    let counts = |of: Count| FrameCounts { packets: of.packets, bytes: of.bytes };
    let port = |(line, stats): (&Line, &PortStats)| PortResult {
        name: line.name.clone(),
        priority: line.priority,
        plane: line.plane as u64,
        sent: counts(stats.sent),
        delivered: counts(stats.delivered),
        received: counts(stats.received),
        dropped: dropped(stats),
        queued: stats.queued,
        latency: stats.latency.histogram(),
    };
    let plane = |(plane, stats): (usize, &PlaneStats)| {
        let [tx, softnet, rx] = stats.carried;
        let checked = report.checked.get(plane).and_then(|checked| checked.clone().ok());
        let line = &lines.planes[plane];
        PlaneResult {
            name: line.name.clone(),
            tx,
            softnet,
            rx,
            wakeups: stats.wakeups,
            processor_ns: lines.processor_ns(plane, report),
            budget_ns: line.budget_ns,
            period_ns: line.period_ns,
            exhaustions: stats.exhaustions,
            less_urgent_ahead_max: checked,
        }
    };
    SwitchResult {
        network: network.name.clone(),
        discipline: network.discipline.info.name.into(),
        planes: report.planes.iter().enumerate().map(plane).collect(),
        ports: lines.ports.iter().zip(&report.ports).map(port).collect(),
    }
}

/// What of a port was dropped.
fn dropped(of: &PortStats) -> PortDrops {
    let drops = of.drops;
    PortDrops {
        source_ring: drops.source_ring,
        softnet: drops.softnet,
        destination_ring: drops.destination_ring,
        offload: drops.offload,
        malformed: drops.malformed,
        flood: drops.flood,
        no_receiver: drops.no_receiver,
        vlan: drops.vlan,
        mtu: drops.mtu,
        stopped: drops.stopped,
        lost: of.uplink.map_or(0, |uplink| uplink.lost),
    }
}
