//! `punctual switch`: the switch of a network for VMs that others start.

use std::fmt::Write as _;
use std::path::PathBuf;

use punctual_model::Histogram;
use punctual_model::file::Overrides;
use punctual_model::network::Network;
use punctual_model::text::printable;
use punctual_run::planes::{PlaneLine, PlaneOverrides};
use punctual_run::switch::control::{Answer, Changes, Client, Description, Request};
use punctual_run::switch::{Ended, Line, Lines, Service, ServiceConfig, network, result};
use punctual_sched::Duration;
use punctual_switch::Report;
use punctual_switch::stats::{Count, Drops, PlaneStats, UplinkStats};
use serde::Serialize;

use super::error::Error;
use super::input::{HostFile, some_time, time};
use super::live::{plain_printer, switch_table};
use super::output::Ui;
use super::rights::{self, Needs};
use super::{exit, interrupt};

/// Connect VMs as a network of a host file says, and put urgent packets first.
///
/// Creates a vhost-user socket for each interface of the network and prints the arguments with which QEMU
/// connects to it. Packets are ordered by the network's discipline, with the file's priorities, batches and
/// rate limits. VMs may connect, disconnect and reconnect at any time. Ends with Ctrl-C and removes its
/// sockets. `--uplink` connects hosts beyond the network card. `--reload` reconfigures the running switch to
/// match this command line; ports that do not change are not disturbed. docs/switch.md explains it.
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
pub(super) struct Args {
    /// The host file; `-` reads standard input.
    #[arg(value_name = "HOST.toml")]
    file: PathBuf,
    /// The network, if the file has several.
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
    /// Change a key of the host file; `*` matches every name. Repeat for more keys.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Create the sockets in this directory instead of one beside those of live runs.
    #[arg(long, value_name = "DIRECTORY")]
    sockets: Option<PathBuf>,
    /// Let this group connect to the VMs' sockets, for example the group of libvirt's QEMU (`kvm` in
    /// Debian). Creates the directory of --sockets if missing; the group must be able to reach it.
    #[arg(long, value_name = "NAME", requires = "sockets")]
    group: Option<String>,
    /// Connect something beyond the network card, as a port of its own:
    /// [NETWORK=]KIND:WHAT[,priority=N][,pcp=N:N+N:N][,vlan=N][,trunk=N+N]. `tap:NAME` opens or creates a
    /// TAP, `interface:NAME` takes over an existing interface, `program:PATH` listens for programs at a
    /// socket, `replay:FILE` sends the frames of a pcap file, and `capture:FILE` writes received frames to
    /// one. The default priority is the least urgent; `pcp=4:1` gives frames that arrive at an interface with
    /// PCP 4 in their VLAN tag priority 1. Untagged frames belong to VLAN `vlan`; frames of the VLANs in
    /// `trunk` are tagged. Repeat for more.
    #[arg(long, value_name = "UPLINK")]
    uplink: Vec<String>,
    /// Give interfaces whose priority number is at most this a thread of their own. By default the file's
    /// planes apply; without planes, the interfaces with the smallest number get a thread if the discipline
    /// uses priorities.
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
    /// Busy-poll this long before sleeping when there are no packets [default: the file's planes].
    #[arg(long, value_name = "TIME", value_parser = time)]
    poll: Option<Duration>,
    /// Reconfigure the running switch of this network to match this command line: add, remove and change
    /// interfaces and uplinks. Any error leaves the switch unchanged. Planes, --check and --duration cannot
    /// be changed; options for them are refused.
    #[arg(long)]
    reload: bool,
    /// End after this long.
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    duration: Option<Duration>,
    /// Check invariants continuously: order within flows, conservation, and the discipline's guarantee for
    /// urgent packets. Exit code 3 if one is violated.
    #[arg(long)]
    check: bool,
    /// Print what libvirt's domains need to connect, instead of arguments of QEMU.
    #[arg(long)]
    libvirt: bool,
    /// Print what was counted as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `punctual switch`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    interrupt::install();
    let overrides = Overrides { set: args.set.clone(), ..Overrides::default() };
    let file = HostFile::read(&args.file)?;
    let host = file.host(&overrides)?;
    let network = network(&host, args.network.as_deref())?;
    if args.sockets.is_none() {
        rights::check("switch", Needs::State)?;
    }
    if args.reload {
        return reload(args, &file, network, ui);
    }
    if let Some(outside) = network.outside.first()
        && args.uplink.is_empty()
    {
        ui.warn(&format!("{} is beyond the network card: it is unreachable without --uplink", outside.name));
    }
    let Args { urgent, one_plane: one, fifo, processor, poll, .. } = *args;
    let config = ServiceConfig {
        sockets: args.sockets.as_deref(),
        group: args.group.as_deref(),
        uplinks: &args.uplink,
        planes: PlaneOverrides { urgent, one, fifo, processor, poll },
        check: args.check,
    };
    let service = Service::start(&host, network, &config, plain_printer(ui))?;
    print_listing(args, service.listing(args.libvirt), ui)?;
    interrupt::when_stopped(service.stopper());
    interrupt::be_graceful();
    let Ended { network, lines, report, elapsed } = service.serve(args.duration);
    if args.json {
        ui.print_json(&Counted::of(&network, &lines, &report, elapsed))?
    } else {
        ui.print(switch_table(&result(&network, &lines, &report), elapsed))?
    }
    match report.checked.into_iter().find_map(Result::err) {
        Some(violation) => Err(Error::Violation(violation.to_string())),
        None => Ok(exit::OK),
    }
}

/// The listing goes to standard error if standard output carries JSON.
fn print_listing(args: &Args, text: String, ui: &Ui) -> Result<(), Error> {
    if args.json {
        eprint!("{text}");
        return Ok(());
    }
    ui.print(text)
}

/// Options that a running switch cannot change.
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
            "{option} is fixed when the switch starts and --reload cannot change it: leave it out, or \
             restart the switch; nothing changed"
        ))),
    }
}

/// Sends the new configuration to the running switch.
fn reload(args: &Args, file: &HostFile, network: &Network, ui: &Ui) -> Result<u8, Error> {
    check_reload(args)?;
    let client = match &args.sockets {
        Some(directory) => Client::in_directory(directory),
        None => Client::of_network(&network.name),
    };
    let name = printable(&network.name);
    let client = client.map_err(|error| {
        let hint = if args.sockets.is_some() { "" } else { " (--sockets says where its sockets are)" };
        Error::Usage(format!("no running switch of network {name} was found{hint}: {error}"))
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
        Ok(Answer::Counted(_)) => Err(Error::Usage("the switch sent an unexpected answer".into())),
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

/// What was counted of a port.
#[derive(Serialize)]
struct CountedPort {
    #[serde(flatten)]
    line: Line,
    sent: Count,
    delivered: Count,
    received: Count,
    drops: Drops,
    latency: Histogram,
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

impl Counted {
    /// What `report` counted of the ports of `lines`.
    fn of(network: &Network, lines: &Lines, report: &Report, elapsed: Duration) -> Self {
        let ports = lines.ports.iter().cloned().zip(&report.ports).map(|(line, stats)| CountedPort {
            line,
            sent: stats.sent,
            delivered: stats.delivered,
            received: stats.received,
            drops: stats.drops,
            latency: stats.latency.histogram(),
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
