//! `punctual sockets`: sockets of this host for the guests of a host file, which others start.

use std::fmt::Write as _;
use std::path::PathBuf;

use punctual_model::Histogram;
use punctual_model::file::Overrides;
use punctual_model::text::printable;
use punctual_run::sockets::service::{Ended, Served, Service};
use punctual_run::switch::escaped;
use punctual_sched::Duration;
use punctual_sockets::layout;
use punctual_sockets::{Counts, Segments};
use serde::Serialize;

use super::error::Error;
use super::input::{HostFile, some_time};
use super::live::plain_printer;
use super::output::Ui;
use super::rights::{self, Needs};
use super::{exit, interrupt};

/// Serve guests with sockets of this host, as a host file allows.
///
/// Creates a socket for each domain with `sockets` and prints the arguments with which QEMU connects its
/// ivshmem-doorbell device to it. A module in the guest forwards its programs' socket calls; the file limits
/// the addresses that they may bind and connect to, and their resources. VMs may connect, disconnect and
/// reconnect at any time. Ends with Ctrl-C, closes the guests' connections and removes its sockets.
/// docs/sockets.md explains it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    punctual sockets examples/sockets.toml                   until Ctrl-C\n  \
    punctual sockets host.toml --domain video --directory /run/video\n  \
    punctual sockets host.toml --set 'domain.*.sockets.poll=50us' --duration 60s --json > calls.json")]
pub(super) struct Args {
    /// The host file; `-` reads standard input.
    #[arg(value_name = "HOST.toml")]
    file: PathBuf,
    /// Serve only this domain.
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// Change a key of the host file; `*` matches every name. Repeat for more keys.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Create the sockets in this directory instead of one beside those of live runs.
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    /// End after this long.
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    duration: Option<Duration>,
    /// Print what was counted as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `punctual sockets`.
pub(super) fn run(args: &Args, ui: &Ui) -> Result<u8, Error> {
    interrupt::install();
    let overrides = Overrides { set: args.set.clone(), ..Overrides::default() };
    let host = HostFile::read(&args.file)?.host(&overrides)?;
    if args.directory.is_none() {
        rights::check("sockets", Needs::State)?;
    }
    let events = plain_printer(ui);
    let service = Service::start(&host, args.domain.as_deref(), args.directory.as_deref(), events)?;
    let listing = listing(service.served());
    if args.json {
        eprint!("{listing}")
    } else {
        ui.print(listing)?
    }
    interrupt::when_stopped(service.stopper());
    interrupt::be_graceful();
    let Ended { served, counts, elapsed } = service.serve(args.duration);
    let results = Counted::of(&served, &counts, elapsed);
    if args.json {
        ui.print_json(&results)?
    } else {
        ui.print(results.table())?
    }
    Ok(exit::OK)
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
    let segment = |(name, times): (&'static str, &Histogram)| Segment {
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
