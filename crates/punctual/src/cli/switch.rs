//! `punctual switch`: the switch of a network for VMs that others start.

pub mod control;
mod directory;
mod served;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Instant;

use punctual_model::export::{VhostUserPort, vhost_user};
use punctual_model::file::Overrides;
use punctual_model::network::Network;
use punctual_model::results::{FrameCounts, PlaneResult, PortDrops, PortResult, SwitchResult};
use punctual_model::text::printable;
use punctual_model::{Host, Recorder};
use punctual_sched::Duration;
use punctual_switch::frame::Address;
use punctual_switch::stats::{Count, Drops, PlaneStats, PortStats, UplinkStats};
use punctual_switch::{Config, End, Event, Notice, Port, Report, Switch};
use rustix::process::{Resource, Rlimit};
use serde::Serialize;

use super::error::Error;
use super::input::{HostFile, some_time, time};
use super::output::Ui;
use super::planes::{Place, PlaneLine, Planes, Wishes};
use super::uplink::{self, Uplink};
use super::{exit, interrupt};
use control::{Answer, Asked, Changes, Client, Control, Description, Request};
use directory::Directory;
use served::Served;

/// Connect VMs as a network of a host file says, and put urgent packets first.
///
/// Makes a vhost-user socket for each interface of the network and prints the arguments with which QEMU
/// connects to it. Packets go in the order of the network's discipline, with the file's priorities, batches
/// and rate limits. VMs may come, go and come back while it works; it ends with Ctrl-C and removes its
/// sockets. Hosts beyond the network card are reached by `--uplink`. With `--reload` the switch that works
/// already adds, removes and changes ports until they are those of this command line; others notice nothing.
/// docs/switch.md explains it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual switch examples/network.toml                    until Ctrl-C\n  \
    punctual switch host.toml --set network.lan.discipline=preemptive --check\n  \
    punctual switch host.toml --sockets /run/lan --duration 60s --json > packets.json\n  \
    punctual switch host.toml --urgent 2 --fifo 60 --processor 1     a real-time plane for urgent VMs\n  \
    punctual switch host.toml --libvirt --sockets /run/lan --group kvm   what libvirt's domains need\n  \
    punctual switch host.toml --uplink tap:tap0              this host is on the network\n  \
    punctual switch host.toml --uplink tap:tap0 --reload     the same, for a switch that works already\n  \
    punctual switch host.toml --uplink lan=interface:eth1,priority=2   a card, with a priority")]
pub struct Args {
    /// The host file; `-` reads standard input.
    #[arg(value_name = "HOST.toml")]
    file: PathBuf,
    /// The network, where the file has several.
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// Change a key of the host file; `*` stands for every name. Repeat for more keys.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Make the sockets in this directory instead of one among those of live runs.
    #[arg(long, value_name = "DIRECTORY")]
    sockets: Option<PathBuf>,
    /// Let this group connect to the VMs' sockets, too, such as that as which libvirt runs QEMU (`kvm` in
    /// Debian). Makes the directory of --sockets if it is not there; the group must be able to reach it.
    #[arg(long, value_name = "NAME", requires = "sockets")]
    group: Option<String>,
    /// Connect something beyond the network card, as a port of its own:
    /// [NETWORK=]KIND:WHAT[,priority=N][,vlan=N][,trunk=N+N]. `tap:NAME` opens a TAP or makes it,
    /// `interface:NAME` takes an existing interface over, `program:PATH` listens for programs at a socket,
    /// `replay:FILE` sends what is in a pcap file, and `capture:FILE` writes what arrives to one. Without a
    /// priority it is least urgent. Frames without a tag are in VLAN `vlan`, those of the VLANs `trunk` have
    /// tags. Repeat for more.
    #[arg(long, value_name = "UPLINK")]
    uplink: Vec<String>,
    /// Interfaces whose priority number is at most this have a thread of their own. By default the file's
    /// planes hold, else those with the smallest number have one, if the discipline reads priorities.
    #[arg(long, value_name = "PRIORITY", conflicts_with = "one_plane")]
    urgent: Option<u32>,
    /// Serve all interfaces in one thread.
    #[arg(long)]
    one_plane: bool,
    /// Run the first thread under SCHED_FIFO at this priority.
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u32).range(1..=98))]
    fifo: Option<u32>,
    /// Keep the first thread on this processor.
    #[arg(long, value_name = "N")]
    processor: Option<usize>,
    /// Poll for so long before sleeping when there are no packets; by default as the file's planes say.
    #[arg(long, value_name = "TIME", value_parser = time)]
    poll: Option<Duration>,
    /// Make the switch of this network that works already become what this command line says: interfaces of
    /// the file and uplinks come, go and change. If anything is wrong nothing changes. Its planes, --check
    /// and --duration stay as they are; options for them are refused.
    #[arg(long)]
    reload: bool,
    /// End after this long.
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    duration: Option<Duration>,
    /// Check invariants all the time: order within flows, conservation, and what the discipline promises to
    /// urgent packets. Exit code 3 says that one was violated.
    #[arg(long)]
    check: bool,
    /// Print what libvirt's domains need to connect, instead of arguments of QEMU.
    #[arg(long)]
    libvirt: bool,
    /// Print what was counted as JSON.
    #[arg(long)]
    json: bool,
}

/// Raises RLIMIT_NOFILE to the hard limit: each VM needs about ten descriptors, and a shell's usual limit is 1024.
/// Beyond it, new VMs wait, and their ports report it.
pub fn raise_limit_of_descriptors() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Runs `punctual switch`.
pub fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    interrupt::install();
    let overrides = Overrides { set: args.set.clone(), ..Overrides::default() };
    let file = HostFile::read(&args.file)?;
    let host = file.host(&overrides)?;
    let network = network(&host, args.network.as_deref())?;
    if args.reload {
        return reload(args, &file, network, ui);
    }
    raise_limit_of_descriptors();
    let directory = Directory::prepare(args.sockets.as_deref(), args.group.as_deref(), network)?;
    let uplinks = uplink::parse_all(&args.uplink, &network.name)?;
    if let Some(outside) = network.outside.first()
        && args.uplink.is_empty()
    {
        ui.warn(&format!("{} is beyond the network card: without --uplink nothing reaches it", outside.name));
    }
    let planes = planes(args, network, &uplinks);
    let wanted = served::wanted(&host, network, &planes, uplinks)?;
    let ports: Vec<Port> =
        wanted.iter().map(|port| port.open(directory.path(), false)).collect::<Result<_, _>>()?;
    let lines: Vec<Line> = ports.iter().map(Line::of).collect();
    let config = Config {
        ports,
        planes: planes.threads(&Place::default()),
        discipline: network.discipline.info,
        options: network.discipline.options.clone(),
        mtu: network.mtu,
        check: args.check,
    };
    let (switch, notices) = Switch::start(config).map_err(|error| Error::Usage(with_source(&error)))?;
    for socket in wanted.iter().filter_map(|port| port.socket(directory.path())) {
        directory.admit(&socket)?;
    }
    let (messages, receiver) = mpsc::channel();
    let asked = messages.clone();
    let control = Control::open(directory.path(), &network.name, move |asks| {
        drop(asked.send(Message::Asked(Box::new(asks))))
    });
    let control = control.map_err(|error| Error::Usage(format!("no control socket: {error}")))?;
    let text = if args.libvirt { libvirt_listing(&lines) } else { listing(network, &lines) };
    print_listing(args, text, ui)?;
    let ports = wanted.into_iter().zip(lines).collect();
    let served = Served::new(switch, network.clone(), planes, directory.clone(), ports);
    let ended = serve(args, served, notices, (messages, receiver), ui);
    drop(control);
    directory.remove();
    ended
}

/// Serves until it is time to end. Prints what was counted.
fn serve(
    args: &Args,
    mut served: Served,
    notices: Receiver<Notice>,
    (messages, receiver): (Sender<Message>, Receiver<Message>),
    ui: &Ui,
) -> Result<u8, Error> {
    let start = Instant::now();
    wait(args, &mut served, notices, (messages, receiver), ui);
    let (network, lines, report) = served.stop();
    let elapsed = Duration::from_ns(start.elapsed().as_nanos() as u64);
    if args.json {
        ui.print_json(&Counted::of(&network, &lines, &report, elapsed))?
    } else {
        ui.print(table(&result(&network, &lines, &report), elapsed))?
    }
    match report.checked.into_iter().find_map(Result::err) {
        Some(violation) => Err(Error::Violation(violation.to_string())),
        None => Ok(exit::OK),
    }
}

/// The listing is not in the way of JSON.
fn print_listing(args: &Args, text: String, ui: &Ui) -> Result<(), Error> {
    if args.json {
        eprint!("{text}");
        return Ok(());
    }
    ui.print(text)
}

/// Options that say what a switch at work does not change.
fn check_reload(args: &Args) -> Result<(), Error> {
    let given = [
        ("--urgent", args.urgent.is_some()),
        ("--one-plane", args.one_plane),
        ("--fifo", args.fifo.is_some()),
        ("--processor", args.processor.is_some()),
        ("--poll", args.poll.is_some()),
        ("--check", args.check),
        ("--group", args.group.is_some()),
        ("--duration", args.duration.is_some()),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((option, _)) => Err(Error::Usage(format!(
            "{option} holds from the start of a switch and cannot be changed by --reload: leave it out, or \
             start the switch anew; nothing changed"
        ))),
    }
}

/// Tells the switch that works already what it becomes.
fn reload(args: &Args, file: &HostFile, network: &Network, ui: &Ui) -> Result<u8, Error> {
    check_reload(args)?;
    let client = match &args.sockets {
        Some(directory) => Client::in_directory(directory),
        None => Client::of_network(&network.name),
    };
    let name = printable(&network.name);
    let client = client.map_err(|error| {
        let hint = if args.sockets.is_some() { "" } else { " (--sockets says where its sockets are)" };
        Error::Usage(format!("no switch of network {name} is found{hint}: {error}"))
    })?;
    let directory =
        std::env::current_dir().map_err(|error| Error::Usage(format!("no directory: {error}")))?;
    let description = Description {
        file: file.name.clone(),
        text: file.text(),
        set: args.set.clone(),
        uplinks: args.uplink.clone(),
        directory,
        libvirt: args.libvirt,
    };
    match client.ask(&Request::Become(description)) {
        Ok(Answer::Became { changes, listing }) => became(args, &changes, listing, ui),
        Ok(Answer::Refused(text)) => Err(Error::Usage(text)),
        Ok(Answer::Counted(_)) => Err(Error::Usage("the switch gave another answer".into())),
        Err(error) => Err(Error::Usage(format!("the switch does not answer: {error}"))),
    }
}

/// Says what changed.
fn became(args: &Args, changes: &Changes, listing: String, ui: &Ui) -> Result<u8, Error> {
    if args.json {
        ui.print_json(changes)?;
        return Ok(exit::OK);
    }
    let mut text = String::new();
    let all = [("added", &changes.added), ("removed", &changes.removed), ("changed", &changes.changed)];
    for (what, ports) in all {
        for port in ports {
            let _ = writeln!(text, "{what} {}", printable(port));
        }
    }
    if text.is_empty() {
        text = "nothing to change\n".into();
    }
    if !(changes.added.is_empty() && changes.changed.is_empty()) {
        text += &listing;
    }
    ui.print(text)?;
    Ok(exit::OK)
}

fn network<'a>(host: &'a Host, name: Option<&str>) -> Result<&'a Network, Error> {
    let names = || host.networks.iter().map(|network| network.name.as_str()).collect::<Vec<_>>().join(", ");
    let found = match (name, &host.networks[..]) {
        (Some(name), networks) => networks.iter().find(|network| network.name == name),
        (None, [network]) => Some(network),
        (None, []) => return Err(Error::Usage("the host file has no network".into())),
        (None, _) => return Err(Error::Usage(format!("say which --network: {}", names()))),
    };
    let network = found.ok_or_else(|| Error::Usage(format!("no such network; there are: {}", names())))?;
    match network.interfaces.is_empty() {
        true => Err(Error::Usage(format!("network {} has no interfaces of guests", network.name))),
        false => Ok(network),
    }
}

/// A name as that of a file.
pub(super) fn file_name(name: &str) -> Result<&str, Error> {
    match name.contains(['/', '\0']) || name.starts_with('.') {
        true => Err(Error::Usage(format!("{} cannot be the name of a file", printable(name)))),
        false => Ok(name),
    }
}

/// The planes of a network.
fn planes(args: &Args, network: &Network, uplinks: &[Uplink]) -> Planes {
    let of_guests = network.interfaces.iter().map(|interface| interface.params.priority);
    let priorities: Vec<_> = of_guests.chain(uplinks.iter().map(|uplink| uplink.params.priority)).collect();
    let Args { urgent, one_plane: one, fifo, processor, poll, .. } = *args;
    Planes::new(network, &priorities, &Wishes { urgent, one, fifo, processor, poll })
}

/// The addresses of a network's interfaces, then of its hosts outside, in the range that QEMU uses. An
/// address belongs to its name: it is the same in every run, whatever comes and goes beside it.
pub fn addresses(host: &Host, network: &Network) -> Vec<Address> {
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

pub fn with_source(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

/// QEMU takes a comma in a value as two.
pub(super) fn escaped(value: &str) -> String {
    value.replace(',', ",,")
}

/// The sockets, and how QEMU connects to each.
fn listing(network: &Network, ports: &[Line]) -> String {
    let mut text = format!(
        "{}: {}, {} ports. QEMU connects a VM of SIZE memory with\n  -object \
         memory-backend-memfd,id=memory,size=SIZE,share=on -machine memory-backend=memory\nand\n",
        printable(&network.name),
        network.discipline.info.name,
        ports.len()
    );
    let id = "net0";
    let mtu = network.mtu.map_or_else(String::new, |bytes| format!(",host_mtu={bytes}"));
    for port in ports {
        let Some(socket) = &port.socket else {
            let _ = writeln!(text, "{} is an uplink", printable(&port.name));
            continue;
        };
        let path = escaped(socket);
        let address = port.address.as_ref().map_or_else(String::new, |address| format!(",mac={address}"));
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            text,
            "{}:\n  -chardev socket,id={id},path={path},reconnect=1 -netdev \
             vhost-user,id={id},chardev={id} -device virtio-net-pci,netdev={id}{address}{mtu}",
            printable(&port.name)
        );
    }
    text
}

/// The sockets, and how libvirt connects to each.
fn libvirt_listing(ports: &[Line]) -> String {
    let mut text = String::new();
    for port in ports {
        let Some(socket) = &port.socket else { continue };
        if text.is_empty() {
            text += "<!-- Merge memoryBacking and interface into each domain's own XML: virsh edit. -->\n";
        }
        // Libvirt has another working directory.
        let path = std::path::absolute(socket).map(|path| path.display().to_string());
        let socket = path.as_ref().unwrap_or(socket);
        text += &vhost_user(&VhostUserPort { domain: &port.name, socket, address: port.address.clone() });
    }
    text
}

/// What happens while the switch works.
enum Message {
    Notice(Notice),
    Asked(Box<Asked>),
    Stop,
}

/// Tells what happens to ports, and does what is asked, until it is time to end.
fn wait(
    args: &Args,
    served: &mut Served,
    notices: Receiver<Notice>,
    (messages, receiver): (Sender<Message>, Receiver<Message>),
    ui: &Ui,
) {
    let stop = messages.clone();
    interrupt::when_stopped(move || drop(stop.send(Message::Stop)));
    interrupt::be_graceful();
    // It ends when the switch stops and its notices with it.
    std::thread::spawn(move || notices.into_iter().try_for_each(|n| messages.send(Message::Notice(n))));
    let end = args.duration.map(|time| Instant::now() + std::time::Duration::from_nanos(time.as_ns()));
    loop {
        let message = match end {
            Some(end) => receiver.recv_timeout(end.saturating_duration_since(Instant::now())),
            None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match message {
            Ok(Message::Notice(notice)) => tell(served.name(notice.port), &notice.event, ui),
            Ok(Message::Asked(asked)) => {
                let (request, answer) = *asked;
                // Whoever asked may be gone.
                let _ = answer.send(served.answer(request));
            }
            Ok(Message::Stop) | Err(_) => return,
        }
    }
}

pub fn tell(port: &str, event: &Event, ui: &Ui) {
    let port = printable(port);
    match event {
        Event::Connected => eprintln!("{port}: connected"),
        Event::Unaccepted(reason) => ui.warn(&format!(
            "{port}: cannot accept a front-end: {}; it waits until the switch can",
            printable(reason)
        )),
        Event::Running => eprintln!("{port}: running"),
        Event::Assumed => ui.warn(&format!(
            "{port}: its front-end lost the driver's features, as QEMU before 8.0 does if the driver starts \
             while there is no switch; assuming all offered ones, as Linux accepts, until the driver restarts"
        )),
        Event::Disconnected(None) => eprintln!("{port}: disconnected"),
        Event::Disconnected(Some(reason)) => {
            ui.warn(&format!("{port}: disconnected: {}", printable(reason)));
        }
        Event::Broken(broken) => {
            ui.warn(&format!("{port}: out of service until its driver resets it: {broken}"));
        }
    }
}

/// What is known of a switch beforehand.
#[derive(Clone)]
pub struct Lines {
    /// By port.
    pub ports: Vec<Line>,
    /// By plane.
    pub planes: Vec<PlaneLine>,
}

impl Lines {
    /// What is known of these ports and planes.
    pub fn of(ports: &[Port], planes: &Planes) -> Self {
        Lines { ports: ports.iter().map(Line::of).collect(), planes: planes.lines() }
    }

    /// The processor time of a plane and of its uplinks, in ns.
    pub fn processor_ns(&self, plane: usize, report: &Report) -> u64 {
        let of_plane = self.ports.iter().zip(&report.ports).filter(|(line, _)| line.plane == plane);
        let uplinks = of_plane.filter_map(|(_, stats)| stats.uplink).map(|uplink| uplink.processor_ns);
        report.planes.get(plane).map_or(0, |stats| stats.processor_ns) + uplinks.sum::<u64>()
    }
}

/// What is known of a port beforehand.
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
    /// The port's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is known of `port`.
    pub fn of(port: &Port) -> Self {
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

/// What was counted of a port.
#[derive(Serialize)]
struct CountedPort {
    #[serde(flatten)]
    line: Line,
    sent: Count,
    delivered: Count,
    received: Count,
    drops: Drops,
    latency: Recorder,
    #[serde(skip_serializing_if = "Option::is_none")]
    uplink: Option<UplinkStats>,
}

/// What was counted of a plane.
#[derive(Serialize)]
struct CountedPlane {
    #[serde(flatten)]
    line: PlaneLine,
    #[serde(flatten)]
    stats: PlaneStats,
    /// Its uplinks included.
    processor_with_uplinks_ns: u64,
    /// With `--check`: the most less urgent packets that went before a waiting one in TX, softnet, RX.
    less_urgent_ahead_max: Option<[u64; 3]>,
}

/// What was counted.
#[derive(Serialize)]
struct Counted {
    network: String,
    discipline: &'static str,
    duration_ns: u64,
    ports: Vec<CountedPort>,
    planes: Vec<CountedPlane>,
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
        latency: stats.latency.recorder(),
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

impl Counted {
    /// What `report` counted of the ports of `lines`.
    fn of(network: &Network, lines: &Lines, report: &Report, elapsed: Duration) -> Self {
        let ports = lines.ports.iter().cloned().zip(&report.ports).map(|(line, stats)| CountedPort {
            line,
            sent: stats.sent,
            delivered: stats.delivered,
            received: stats.received,
            drops: stats.drops,
            latency: stats.latency.recorder(),
            uplink: stats.uplink,
        });
        let planes = report.planes.iter().enumerate().map(|(plane, stats)| CountedPlane {
            line: lines.planes[plane].clone(),
            stats: *stats,
            processor_with_uplinks_ns: lines.processor_ns(plane, report),
            less_urgent_ahead_max: report.checked.get(plane).and_then(|checked| checked.clone().ok()),
        });
        Counted {
            network: network.name.clone(),
            discipline: network.discipline.info.name,
            duration_ns: elapsed.as_ns(),
            ports: ports.collect(),
            planes: planes.collect(),
        }
    }
}

/// A line for each port and each plane; the latency is that inside the switch.
pub fn table(of: &SwitchResult, elapsed: Duration) -> String {
    let mut text = String::from(
        "port              sent  delivered    dropped   received   latency p50        p99        max\n",
    );
    for port in &of.ports {
        let us = |time: Duration| format!("{}.{} us", time.as_ns() / 1_000, time.as_ns() % 1_000 / 100);
        let latency = &port.latency;
        let _ = writeln!(
            text,
            "{:<12} {:>9} {:>10} {:>10} {:>10} {:>13} {:>10} {:>10}",
            printable(&port.name),
            port.sent.packets,
            port.delivered.packets,
            port.dropped.of_sent(),
            port.received.packets,
            us(latency.quantile_ppm(500_000)),
            us(latency.quantile_ppm(990_000)),
            us(latency.max()),
        );
    }
    text.push_str("plane          packets  processor   wake-ups     budget    used up\n");
    for plane in &of.planes {
        let share = |part: u64, whole: u64| {
            let per_mille = u128::from(part) * 1_000 / u128::from(whole.max(1));
            format!("{}.{} %", per_mille / 10, per_mille % 10)
        };
        let budget = plane.budget_ns.zip(plane.period_ns);
        let _ = writeln!(
            text,
            "{:<12} {:>9} {:>10} {:>10} {:>10} {:>10}",
            printable(&plane.name),
            plane.rx,
            share(plane.processor_ns, elapsed.as_ns()),
            plane.wakeups,
            budget.map_or("-".into(), |(budget, period)| share(budget, period)),
            plane.exhaustions,
        );
    }
    text
}
