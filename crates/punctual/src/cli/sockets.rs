//! `punctual sockets`: sockets of this host for the guests of a host file, which others start.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Instant;

use punctual_model::file::Overrides;
use punctual_model::sockets::Sockets;
use punctual_model::text::printable;
use punctual_model::{Host, Recorder};
use punctual_sched::Duration;
use punctual_sockets::layout;
use punctual_sockets::{Config, Counts, Event, Segments, Server};
use serde::Serialize;

use super::error::Error;
use super::input::{HostFile, some_time};
use super::live;
use super::output::{Ui, make_directory};
use super::switch::{escaped, file_name, with_source};
use super::{exit, interrupt};

/// Give guests sockets of this host, as a host file allows.
///
/// Makes a socket for each domain with `sockets` and prints the arguments with which QEMU connects its
/// ivshmem-doorbell device to it. A module in the guest hands its programs' socket calls over; the file says
/// which addresses they may bind and connect to, and how much. VMs may come, go and come back while it works;
/// it ends with Ctrl-C, closes what the guests opened and removes its sockets. docs/sockets.md explains it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual sockets examples/sockets.toml                   until Ctrl-C\n  \
    punctual sockets host.toml --domain video --directory /run/video\n  \
    punctual sockets host.toml --set 'domain.*.sockets.poll=50us' --duration 60s --json > calls.json")]
pub struct Args {
    /// The host file; `-` reads standard input.
    #[arg(value_name = "HOST.toml")]
    file: PathBuf,
    /// Serve this domain alone.
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// Change a key of the host file; `*` stands for every name. Repeat for more keys.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Make the sockets in this directory instead of one among those of live runs.
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    /// End after this long.
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    duration: Option<Duration>,
    /// Print what was counted as JSON.
    #[arg(long)]
    json: bool,
}

/// A domain that is served.
struct Served {
    name: String,
    socket: PathBuf,
    policy: Sockets,
}

/// Runs `punctual sockets`.
pub fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    interrupt::install();
    let overrides = Overrides { set: args.set.clone(), ..Overrides::default() };
    let host = HostFile::read(&args.file)?.host(&overrides)?;
    let (directory, is_own) = directory(args)?;
    let served = served(&host, args.domain.as_deref(), &directory)?;
    if is_own {
        make_directory(&directory)?;
    }
    let (messages, receiver) = mpsc::channel();
    let mut servers = Vec::new();
    for (index, domain) in served.iter().enumerate() {
        let record = domain.socket.with_extension("vm");
        let (server, events) = Server::start_resuming(config(domain), Some(record))
            .map_err(|error| Error::Usage(format!("{}: {}", printable(&domain.name), with_source(&error))))?;
        servers.push(server);
        let messages = messages.clone();
        // It ends with its server.
        std::thread::spawn(move || {
            events.into_iter().try_for_each(|event| messages.send(Message::Event(index, event)))
        });
    }
    let listing = listing(&served);
    if args.json {
        eprint!("{listing}")
    } else {
        ui.print(listing)?
    }
    let start = Instant::now();
    interrupt::when_stopped(move || drop(messages.send(Message::Stop)));
    interrupt::be_graceful();
    wait(args, &receiver, &served, ui);
    let counts: Vec<(Counts, Segments)> = servers.into_iter().map(Server::finish).collect();
    let elapsed = Duration::from_ns(start.elapsed().as_nanos() as u64);
    if is_own {
        // Another server may use it.
        let _ = std::fs::remove_dir(&directory);
    }
    let results = Counted::of(&served, &counts, elapsed);
    if args.json {
        ui.print_json(&results)?
    } else {
        ui.print(results.table())?
    }
    Ok(exit::OK)
}

/// The domains with `sockets`, or the one that is named.
fn served(host: &Host, name: Option<&str>, directory: &Path) -> Result<Vec<Served>, Error> {
    let all = host.domains.iter().filter_map(|domain| Some((domain, domain.live.sockets.as_ref()?)));
    let chosen: Vec<_> = all.filter(|(domain, _)| name.is_none_or(|name| domain.name == name)).collect();
    if chosen.is_empty() {
        return Err(Error::Usage(match name {
            Some(name) => format!("there is no domain `{}` with `sockets`", printable(name)),
            None => "no domain of the host file has `sockets`, for example sockets = { allow = [\"bind udp \
                     127.0.0.1:5060\"] }"
                .into(),
        }));
    }
    let served = chosen.into_iter().map(|(domain, policy)| {
        let socket = directory.join(format!("{}.sock", file_name(&domain.name)?));
        Ok(Served { name: domain.name.clone(), socket, policy: policy.clone() })
    });
    served.collect()
}

/// Where the sockets are made, and whether the directory is removed at the end.
fn directory(args: &Args) -> Result<(PathBuf, bool), Error> {
    if let Some(given) = &args.directory {
        return Ok((given.clone(), false));
    }
    let state = punctual_enforce::journal::prepare_directory();
    let state =
        state.map_err(|error| Error::Usage(format!("cannot make a directory for sockets: {error}")))?;
    Ok((state.join("sockets"), true))
}

fn config(domain: &Served) -> Config {
    let (priority, processor) = (domain.policy.priority, domain.policy.processor);
    let name = domain.name.clone();
    let enter = move || live::take_place(&name, processor.as_slice(), priority);
    Config {
        name: format!("sockets {}", domain.name),
        socket: domain.socket.clone(),
        policy: domain.policy.clone(),
        poll: domain.policy.poll,
        enter: Box::new(enter),
    }
}

/// How QEMU connects to each.
fn listing(served: &[Served]) -> String {
    let mut text = String::from("QEMU connects a VM with\n");
    for domain in served {
        let path = escaped(&domain.socket.display().to_string());
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            text,
            "{}:\n  -chardev socket,id=sockets0,path={path} -device \
             ivshmem-doorbell,chardev=sockets0,vectors={}",
            printable(&domain.name),
            layout::QUEUES,
        );
    }
    text
}

/// What the user is told of while the servers work.
enum Message {
    Event(usize, Event),
    Stop,
}

/// Tells what happens until it is time to end.
fn wait(args: &Args, receiver: &Receiver<Message>, served: &[Served], ui: &Ui) {
    let end = args.duration.map(|time| Instant::now() + std::time::Duration::from_nanos(time.as_ns()));
    loop {
        let message = match end {
            Some(end) => receiver.recv_timeout(end.saturating_duration_since(Instant::now())),
            None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match message {
            Ok(Message::Event(index, event)) => tell(&served[index].name, &event, ui),
            Ok(Message::Stop) | Err(_) => return,
        }
    }
}

/// Says what happened to a guest.
pub fn tell(name: &str, event: &Event, ui: &Ui) {
    let name = printable(name);
    match event {
        Event::Connected => eprintln!("{name}: connected"),
        Event::Resumed => eprintln!("{name}: served again; its sockets before are gone"),
        Event::NotResumed(error) => ui.warn(&format!(
            "{name}: a VM of an earlier server cannot be served before it is started again: {}",
            printable(error)
        )),
        Event::Disconnected(sockets) => eprintln!("{name}: left; {sockets} sockets were closed"),
        Event::OtherVersion(version) => ui.warn(&format!(
            "{name}: its guest's module or library speaks version {version} of the protocol and this server \
             version {}; no socket of it is the host's",
            layout::VERSION
        )),
        Event::Refused => ui.warn(&format!("{name}: a second VM was refused")),
        Event::InvalidRing(error) => {
            ui.warn(&format!("{name}: out of use until it is started again: {error}"))
        }
        Event::Failed(error) => ui.warn(&format!("{name}: {}", printable(error))),
    }
}

/// What was counted of a domain.
#[derive(Serialize)]
struct CountedDomain {
    name: String,
    socket: String,
    #[serde(flatten)]
    counts: Counts,
    /// Where the time of datagrams and their answers went.
    segments: Vec<Segment>,
}

/// A part of each request.
#[derive(Serialize)]
struct Segment {
    name: &'static str,
    count: u64,
    mean_ns: u64,
    stddev_ns: u64,
    p99_ns: u64,
}

/// Those that [`Segments`] has, in order.
fn segments_of(segments: &Segments) -> Vec<Segment> {
    let all = [
        ("host receive", &segments.host_receive),
        ("of it wake", &segments.wake),
        ("guest", &segments.guest),
        ("host send", &segments.host_send),
    ];
    let segment = |(name, times): (&'static str, &Recorder)| Segment {
        name,
        count: times.count(),
        mean_ns: times.mean().as_ns(),
        stddev_ns: times.stddev().as_ns(),
        p99_ns: times.quantile_ppm(990_000).as_ns(),
    };
    all.map(segment).into()
}

/// What was counted.
#[derive(Serialize)]
struct Counted {
    duration_ns: u64,
    domains: Vec<CountedDomain>,
}

impl Counted {
    fn of(served: &[Served], counts: &[(Counts, Segments)], elapsed: Duration) -> Self {
        let domains = served.iter().zip(counts).map(|(domain, (counts, segments))| CountedDomain {
            name: domain.name.clone(),
            socket: domain.socket.display().to_string(),
            counts: *counts,
            segments: segments_of(segments),
        });
        Counted { duration_ns: elapsed.as_ns(), domains: domains.collect() }
    }

    /// A line for each domain.
    fn table(&self) -> String {
        let mut text = String::from(
            "domain           calls  refused     sent KiB received KiB     events interrupts  most sockets\n",
        );
        for domain in &self.domains {
            let counts = &domain.counts;
            let _ = writeln!(
                text,
                "{:<12} {:>9} {:>8} {:>12} {:>12} {:>10} {:>10} {:>13}",
                printable(&domain.name),
                counts.calls,
                counts.refused,
                counts.sent_bytes / 1024,
                counts.received_bytes / 1024,
                counts.events,
                counts.interrupts,
                counts.sockets_most,
            );
        }
        text
    }
}
