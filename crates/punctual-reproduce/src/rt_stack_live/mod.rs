//! rt-stack on this machine: questions to one server over each path to it, alone and beside heavy receivers,
//! with the model's prediction and the thesis's figures beside them.
//!
//! Everything is in a network namespace of this process's own (`lab.rs`). Servers that are not asked stand
//! still, and paths take turns, so what else happens on the machine meets all of them. Guests may be
//! translated, and processors be few: only ratios to `virtio` are comparable with the thesis.

mod client;
mod lab;
mod memcached;

use std::time::Instant;

use punctual_live::os::load::{Load, loads};
use punctual_live::preflight;
use punctual_model::Recorder;
use punctual_sched::Duration;

use crate::live::LiveOptions;
use crate::measures::number;
use crate::papers::{self, RtStack};
use crate::rt_stack::{predict, predict_many};
use crate::{Error, Outcome, Table};
use client::{Asked, Client, Stream};
use lab::{Lab, Server};

/// The experiments, in order.
pub const EXPERIMENTS: [&str; 3] = ["requests", "memcached", "scale"];

/// A way of packets to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// A VM with a virtio card on a TAP, moved by QEMU.
    Virtio,
    /// A VM with a virtio card at a port of our switch.
    VhostUser,
    /// A VM whose socket calls the host makes, told of messages by interrupts.
    Interrupts,
    /// The same; the guest's idle processor looks for messages itself.
    ExtendedIdle,
    /// A process in a network namespace.
    Container,
    /// A process of the host.
    Process,
}

impl Path {
    const ALL: [Path; 6] =
        [Path::Virtio, Path::VhostUser, Path::Interrupts, Path::ExtendedIdle, Path::Container, Path::Process];

    fn title(self) -> &'static str {
        match self {
            Path::Virtio => "virtio, QEMU",
            Path::VhostUser => "virtio, our switch",
            Path::Interrupts => "sockets, interrupts",
            Path::ExtendedIdle => "sockets, extended idle",
            Path::Container => "container",
            Path::Process => "process",
        }
    }

    /// Its path in the model.
    fn model(self) -> &'static str {
        match self {
            Path::Virtio | Path::VhostUser => "virtio",
            Path::Interrupts => "outsourcing",
            Path::ExtendedIdle => "rt-outsourcing",
            Path::Container => "container",
            Path::Process => "process",
        }
    }

    /// Mean, 99 % quantile and deviation that the thesis prints for it, beside two heavy receivers.
    fn thesis(self, paper: &RtStack) -> Option<[f64; 3]> {
        let of = match self {
            Path::Virtio => paper.loaded.get("vanilla"),
            Path::VhostUser => None,
            Path::Interrupts => paper.techniques.get("virtual-interrupts"),
            Path::ExtendedIdle => paper.loaded.get("outsourcing"),
            Path::Container => paper.containers.get("threaded"),
            Path::Process => paper.loaded.get("host"),
        };
        of.copied()
    }
}

/// What was measured of a path, alone or beside receivers.
#[derive(Clone, Default)]
struct Measured {
    asked: Asked,
    /// Of all processors together.
    load: Load,
    /// What receivers took meanwhile.
    received_bytes: u64,
    elapsed: Duration,
}

/// Runs the experiments on this machine.
///
/// # Errors
/// An unknown experiment, or what is missing here.
pub fn rt_stack(options: &LiveOptions<'_>) -> Result<Outcome, Error> {
    if let Some(other) = options.only.iter().find(|name| !EXPERIMENTS.contains(&name.as_str())) {
        return Err(Error::UnknownLiveExperiment { name: other.clone(), known: &EXPERIMENTS });
    }
    let wants = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    let (paper, _) = papers::rt_stack();
    let mut lab = Lab::new(options)?;
    let cache = if wants("memcached") { Some(memcached::fetch(options)?) } else { None };
    lab.enter_namespace()?;
    let mut out = Outcome::default();
    if wants("requests") {
        requests(&mut lab, options, &paper, &mut out)?;
    }
    if wants("memcached") {
        lab.set_extra(cache);
        cache_requests(&mut lab, options, &mut out)?;
        lab.set_extra(None);
    }
    if wants("scale") {
        scale(&mut lab, options, &mut out)?;
    }
    Ok(out)
}

/// How many questions in a turn, and how many turns each path has.
fn turns(options: &LiveOptions<'_>) -> (u64, usize) {
    if options.quick { (60, 2) } else { (150, 6) }
}

/// Asks servers in turn, each while all others stand still. `streams` go on meanwhile.
fn ask_all(
    options: &LiveOptions<'_>,
    servers: &[Server],
    clients: &mut [Client],
    streams: &[Stream],
) -> Result<Vec<Measured>, Error> {
    let online = preflight::online();
    let sum = || -> Load {
        let all = loads(&online).unwrap_or_default();
        all.into_iter().fold(Load::default(), |sum, one| Load {
            busy_ns: sum.busy_ns + one.busy_ns,
            idle_ns: sum.idle_ns + one.idle_ns,
            interrupts_ns: sum.interrupts_ns + one.interrupts_ns,
            steal_ns: sum.steal_ns + one.steal_ns,
        })
    };
    let mut measured = vec![Measured::default(); servers.len()];
    let (count, rounds) = turns(options);
    for round in 0..rounds {
        for (at, server) in servers.iter().enumerate() {
            if (options.stop)() {
                return Err(Error::Interrupted);
            }
            (options.progress)(&format!("{}, turn {} of {rounds}", server.path.title(), round + 1));
            server.pause(false);
            // What it missed while it stood still is none of the measurement.
            clients[at].ask_often(10, options.stop, &mut Asked::default());
            let sent = || streams.iter().map(Stream::sent).sum::<u64>();
            let (began, load, received) = (Instant::now(), sum(), sent());
            let of = &mut measured[at];
            clients[at].ask_often(count, options.stop, &mut of.asked);
            of.elapsed += Duration::from_ns(began.elapsed().as_nanos() as u64);
            of.received_bytes += sent() - received;
            let now = sum() - load;
            of.load.busy_ns += now.busy_ns;
            of.load.idle_ns += now.idle_ns;
            of.load.interrupts_ns += now.interrupts_ns;
            of.load.steal_ns += now.steal_ns;
            server.pause(true);
        }
    }
    Ok(measured)
}

fn no_client(path: Path) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::Lab(format!("{}: it cannot be asked: {error}", path.title()))
}

/// Starts a server on each path, and who asks it; all stand still.
fn start_all(
    lab: &mut Lab<'_>,
    paths: &[Path],
    client: impl Fn(&Server) -> std::io::Result<Client>,
) -> Result<(Vec<Server>, Vec<Client>), Error> {
    let (mut servers, mut clients) = (Vec::new(), Vec::new());
    for &path in paths {
        let server = lab.server(path)?;
        clients.push(client(&server).map_err(no_client(path))?);
        server.pause(true);
        servers.push(server);
    }
    Ok((servers, clients))
}

/// Heavy receivers, and the streams to them.
fn receivers(lab: &mut Lab<'_>, options: &LiveOptions<'_>) -> Result<(Vec<Server>, Vec<Stream>), Error> {
    let (mut machines, mut streams) = (Vec::new(), Vec::new());
    for _ in 0..if options.quick { 1 } else { 2 } {
        let (machine, sink) = lab.receiver()?;
        streams
            .push(Stream::start(sink).map_err(|error| Error::Lab(format!("no stream to {sink}: {error}")))?);
        machines.push(machine);
    }
    Ok((machines, streams))
}

fn us(time: Duration) -> f64 {
    time.as_ns() as f64 / 1e3
}

/// Mean, deviation, median and 99 % quantile in us.
fn statistics(latency: &Recorder) -> [f64; 4] {
    [latency.mean(), latency.stddev(), latency.quantile_ppm(500_000), latency.quantile_ppm(990_000)].map(us)
}

/// The statistics of paths, and how mean and deviation compare with the first one's.
fn latencies(id: &str, title: &str, paths: &[Path], measured: &[Measured], out: &mut Outcome) -> Table {
    let columns = [
        "path",
        "mean",
        "SD",
        "p50",
        "p99",
        "max",
        "mean / virtio",
        "SD / virtio",
        "lost",
        "processors busy",
    ];
    let mut table = Table::new(id, title, &columns);
    let first = statistics(&measured[0].asked.latency);
    for (path, of) in paths.iter().zip(measured) {
        let values = statistics(&of.asked.latency);
        let mut row = vec![path.title().to_owned()];
        row.extend(values.map(number));
        row.push(number(us(of.asked.latency.max())));
        row.extend([values[0] / first[0], values[1] / first[1]].map(|ratio| format!("{ratio:.2}")));
        row.push(of.asked.lost.to_string());
        row.push(busy(of));
        table.rows.push(row);
        let name = path.title().replace([' ', ','], "_");
        for (value, what) in values.into_iter().zip(["mean_us", "sd_us", "p50_us", "p99_us"]) {
            out.measures.set_one(format!("{id}.{name}.{what}"), value);
        }
    }
    let count = measured.iter().map(|of| of.asked.latency.count()).min().unwrap_or(0);
    table.notes.push(format!("Round trips in us, at least {count} of each path, in turn."));
    table
}

/// The share of all processors that was busy.
fn busy(of: &Measured) -> String {
    let Load { busy_ns, idle_ns, interrupts_ns, steal_ns } = of.load;
    let whole = (busy_ns + idle_ns + interrupts_ns + steal_ns).max(1);
    format!("{} %", number((busy_ns + interrupts_ns) as f64 / whole as f64 * 100.0))
}

/// Questions of 64 bytes to an echo: Tables 6.3 to 6.6.
fn requests(
    lab: &mut Lab<'_>,
    options: &LiveOptions<'_>,
    paper: &RtStack,
    out: &mut Outcome,
) -> Result<(), Error> {
    let (servers, mut clients) = start_all(lab, &Path::ALL, |server| Client::echo(server.echo))?;
    let alone = ask_all(options, &servers, &mut clients, &[])?;
    let (_machines, streams) = receivers(lab, options)?;
    let loaded = ask_all(options, &servers, &mut clients, &streams)?;
    let table = latencies("requests-alone", "Round trips of 64 bytes, alone", &Path::ALL, &alone, out);
    out.tables.push(table);
    let title = format!("Round trips of 64 bytes beside {} heavy receivers", streams.len());
    let table = latencies("requests-loaded", &title, &Path::ALL, &loaded, out);
    out.tables.push(table);
    out.tables.push(beside(options, paper, &loaded)?);
    out.tables.push(throughput(&loaded));
    Ok(())
}

/// Mean and deviation, over virtio's: live, in the model of a host without PREEMPT_RT, and in the thesis.
fn beside(options: &LiveOptions<'_>, paper: &RtStack, loaded: &[Measured]) -> Result<Table, Error> {
    let columns = [
        "path",
        "mean: live",
        "model",
        "thesis",
        "p99: live",
        "model",
        "thesis",
        "SD: live",
        "model",
        "thesis",
    ];
    let title = "Over virtio's, beside heavy receivers: live, model, thesis";
    let mut table = Table::new("requests-ratios", title, &columns);
    (options.progress)("simulating the model");
    let predicted = predict(&Path::ALL.map(Path::model), options.quick)?;
    let live = |of: &Measured| {
        let [mean, deviation, _, p99] = statistics(&of.asked.latency);
        [mean, p99, deviation]
    };
    let (first, first_model) = (live(&loaded[0]), predicted[0]);
    let first_thesis = Path::Virtio.thesis(paper).unwrap_or([f64::NAN; 3]);
    for ((path, of), predicted) in Path::ALL.into_iter().zip(loaded).zip(predicted) {
        let values = live(of);
        let mut row = vec![path.title().to_owned()];
        for at in 0..3 {
            row.push(format!("{:.2}", values[at] / first[at]));
            row.push(format!("{:.2}", predicted[at] / first_model[at]));
            let printed = path.thesis(paper).map(|printed| format!("{:.2}", printed[at] / first_thesis[at]));
            row.push(printed.unwrap_or_else(|| "-".into()));
        }
        table.rows.push(row);
    }
    table.notes.push(
        "The model is the thesis's machine with a vanilla kernel, as this one's; the thesis has partitioned \
         softirqs beside its sockets, and PREEMPT_RT below its container."
            .into(),
    );
    Ok(table)
}

/// What receivers got while each path was asked.
fn throughput(loaded: &[Measured]) -> Table {
    let mut table =
        Table::new("receivers", "What heavy receivers got", &["path asked", "Mbit/s", "/ virtio"]);
    let rate = |of: &Measured| of.received_bytes as f64 * 8e3 / of.elapsed.as_ns().max(1) as f64;
    for (path, of) in Path::ALL.into_iter().zip(loaded) {
        let ratio = format!("{:.2}", rate(of) / rate(&loaded[0]));
        table.rows.push(vec![path.title().to_owned(), number(rate(of)), ratio]);
    }
    table
}

/// Gets and sets of a real memcached, one set in ten: s.6.4.
fn cache_requests(lab: &mut Lab<'_>, options: &LiveOptions<'_>, out: &mut Outcome) -> Result<(), Error> {
    let (servers, mut clients) = start_all(lab, &Path::ALL, |server| Client::memcached(server.cache))?;
    let alone = ask_all(options, &servers, &mut clients, &[])?;
    let (_machines, streams) = receivers(lab, options)?;
    let loaded = ask_all(options, &servers, &mut clients, &streams)?;
    let title = "memcached, gets and sets of 200 bytes over TCP, alone";
    let table = latencies("memcached-alone", title, &Path::ALL, &alone, out);
    out.tables.push(table);
    let title = format!("memcached beside {} heavy receivers", streams.len());
    let table = latencies("memcached-loaded", &title, &Path::ALL, &loaded, out);
    out.tables.push(table);
    Ok(())
}

/// More and more RT VMs with sockets of the host, all awake, asked in turn: Figs. 6-14 to 6-16.
fn scale(lab: &mut Lab<'_>, options: &LiveOptions<'_>, out: &mut Outcome) -> Result<(), Error> {
    let counts: &[usize] = if options.quick { &[1, 2] } else { &[1, 2, 4, 8] };
    let columns = ["RT VMs", "mean", "SD", "p50", "p99", "lost", "processors busy", "model: mean", "p99"];
    let mut table = Table::new("scale", "RT VMs with sockets of the host, asked in turn", &columns);
    let (mut servers, mut clients) = (Vec::new(), Vec::new());
    for &count in counts {
        while servers.len() < count {
            let server = lab.server(Path::Interrupts)?;
            clients.push(Client::echo(server.echo).map_err(no_client(server.path))?);
            servers.push(server);
        }
        let measured = ask_awake(options, &mut clients)?;
        let [mean, deviation, p50, p99] = statistics(&measured.asked.latency);
        let predicted = predict_many("outsourcing", count, options.quick)?;
        let mut row = vec![count.to_string()];
        row.extend([mean, deviation, p50, p99].map(number));
        row.extend([measured.asked.lost.to_string(), busy(&measured)]);
        row.extend([predicted[0], predicted[1]].map(number));
        table.rows.push(row);
        out.measures.set_one(format!("scale.{count}.mean_us"), mean);
        out.measures.set_one(format!("scale.{count}.p99_us"), p99);
    }
    table.notes.push(
        "us. The model has the thesis's machine and costs, without heavy receivers; `reproduce rt-stack \
         --only fig6-14,fig6-15,fig6-16` goes on to 40."
            .into(),
    );
    out.tables.push(table);
    Ok(())
}

/// Asks servers that are all awake, a question each in turn.
fn ask_awake(options: &LiveOptions<'_>, clients: &mut [Client]) -> Result<Measured, Error> {
    let (count, rounds) = turns(options);
    (options.progress)(&format!("{} RT VMs", clients.len()));
    let mut measured = Measured::default();
    let online = preflight::online();
    let before = loads(&online).unwrap_or_default();
    for number in 0..count * rounds as u64 {
        if (options.stop)() {
            return Err(Error::Interrupted);
        }
        let at = number as usize % clients.len();
        clients[at].ask_often(1, options.stop, &mut measured.asked);
    }
    for (now, before) in loads(&online).unwrap_or_default().into_iter().zip(before) {
        let of = now - before;
        measured.load.busy_ns += of.busy_ns;
        measured.load.idle_ns += of.idle_ns;
        measured.load.interrupts_ns += of.interrupts_ns;
        measured.load.steal_ns += of.steal_ns;
    }
    Ok(measured)
}
