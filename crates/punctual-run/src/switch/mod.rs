//! The switch of a network that VMs of others use: its directory, its control socket, and ports that follow
//! its description while it works.

pub mod control;
mod directory;
mod find;
mod lines;
mod listing;
mod result;
mod served;
pub mod watch;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Instant;

use punctual_model::Host;
use punctual_model::network::Network;
use punctual_sched::Duration;
use punctual_switch::{Config, Notice, Report, Switch};
use rustix::process::{Resource, Rlimit};

use crate::error::{ServeError, with_source};
use crate::events::{Event, EventQueue, Events, PortLimit, Relay};
use crate::planes::{Placement, PlaneOverrides, Planes};
use crate::uplink::{self, Uplink};
use control::{Asked, Control};
use directory::Directory;
use served::Served;

pub use directory::file_name;
pub(crate) use find::addresses;
pub use find::network;
pub use lines::{Line, Lines};
pub use listing::escaped;
pub use result::result;

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
    queue: EventQueue,
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
    /// A notice, and how many of its port before it are not reported.
    Notice(Notice, u64),
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
        let no_thread = |error| ServeError::Refused(format!("no thread for events: {error}"));
        let queue = EventQueue::start(events).map_err(no_thread)?;
        let events = queue.events();
        let directory = Directory::prepare(config.sockets, config.group, network)?;
        let uplinks = uplink::parse_all(config.uplinks, &network.name)?;
        let planes = planes(config, network, &uplinks);
        let wanted = served::wanted(host, network, &planes, uplinks)?;
        let (ports, kept) = served::open_all(wanted, directory.path(), &events)?;
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
        for socket in kept.iter().filter_map(|port| port.socket(directory.path())) {
            directory.admit(&socket)?;
        }
        let (messages, receiver) = mpsc::channel();
        let asked = messages.clone();
        let control = Control::open(directory.path(), &network.name, move |asks| {
            drop(asked.send(Message::Asked(Box::new(asks))))
        });
        let control = control.map_err(|error| ServeError::Refused(format!("no control socket: {error}")))?;
        let served = Served::new(switch, network.clone(), planes, directory.clone(), kept, events.clone());
        queue.flush();
        Ok(Service { served, notices, messages, receiver, control, directory, events, queue })
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
        let Service { mut served, notices, messages, receiver, control, directory, events, queue } = self;
        let start = Instant::now();
        let relay = relay(notices, move |notice, more| {
            // The service may be gone.
            let _ = messages.send(Message::Notice(notice, more));
        });
        let end = duration.map(|time| start + std::time::Duration::from_nanos(time.as_ns()));
        loop {
            let message = match end {
                Some(end) => receiver.recv_timeout(end.saturating_duration_since(Instant::now())),
                None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match message {
                Ok(Message::Notice(notice, more)) => {
                    report_notice(served.name(notice.port), notice, more, &events)
                }
                Ok(Message::Asked(asked)) => {
                    let (request, answer) = *asked;
                    // The client may be gone.
                    let _ = answer.send(served.answer(request));
                }
                Ok(Message::Stop) | Err(_) => break,
            }
        }
        let names = served.names();
        let (network, lines, report) = served.stop();
        relay.finish();
        report_left_behind(&report, &events);
        // What happened just before the end.
        for message in receiver.try_iter() {
            if let Message::Notice(notice, more) = message {
                report_notice(&names[notice.port], notice, more, &events);
            }
        }
        let elapsed = Duration::from_ns(start.elapsed().as_nanos() as u64);
        drop(control);
        directory.remove();
        // The last events.
        drop(queue);
        Ended { network, lines, report, elapsed }
    }
}

/// Reports the threads that did not end with their switch.
pub(crate) fn report_left_behind(report: &Report, events: &Events) {
    report.left_behind.iter().for_each(|thread| events(Event::LeftBehind { thread: thread.clone() }));
}

/// Passes notices on, not too many of a port, with the number of those before that it left out.
pub(crate) fn relay(notices: Receiver<Notice>, mut to: impl FnMut(Notice, u64) + Send + 'static) -> Relay {
    let mut limits = BTreeMap::new();
    Relay::start(notices, move |notice: Notice| {
        let now = Instant::now();
        let limit = limits.entry(notice.port).or_insert_with(|| PortLimit::new(now));
        if let Some(more) = limit.admit(now) {
            to(notice, more);
        }
    })
}

pub(crate) fn report_notice(port: &str, notice: Notice, more: u64, events: &Events) {
    let port = port.to_owned();
    if more > 0 {
        events(Event::More { port: port.clone(), count: more });
    }
    events(Event::Port { port, event: notice.event });
}

/// Raises RLIMIT_NOFILE to the hard limit: each VM needs about ten file descriptors, and the usual limit of a
/// shell is 1024. Beyond the limit, new VMs wait and an event reports it.
pub(crate) fn raise_limit_of_descriptors() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The planes of a network.
fn planes(config: &ServiceConfig<'_>, network: &Network, uplinks: &[Uplink]) -> Planes {
    let of_guests = network.interfaces.iter().flat_map(|interface| interface.priorities());
    let priorities: Vec<_> = of_guests.chain(uplinks.iter().flat_map(Uplink::priorities)).collect();
    Planes::new(network, &priorities, &config.planes)
}
