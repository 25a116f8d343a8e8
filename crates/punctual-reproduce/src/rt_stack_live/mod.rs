//! rt-stack on this machine: questions to one server over each path to it, alone and beside heavy receivers,
//! with the model's prediction and the thesis's figures beside them.
//!
//! Everything is in a network namespace of this process's own (`lab.rs`). Servers that are not asked stand
//! still, and paths take turns, so what else happens on the machine meets all of them. Guests may be
//! translated, and processors be few: only ratios to `virtio` are comparable with the thesis.

mod affinity;
mod client;
mod echo;
mod generator;
mod lab;
mod memcached;
mod path;
mod sip;

use std::time::Instant;

use punctual_linux::os::load::{Load, loads};
use punctual_linux::preflight;
use punctual_model::Histogram;
use punctual_sched::Duration;

use crate::error::Error;
use crate::measures::{Measures, number};
use crate::papers::{self, RtStack};
use crate::reproduction::{Outcome, Table};
use crate::rt_stack::{predict, predict_many};
use crate::target::LiveOptions;
use client::{Asked, Client, Stream};
use generator::{CONCURRENCY, Generated, Generator};
use lab::{Lab, Server};
use path::Path;

/// The experiments, in order.
pub(crate) const EXPERIMENTS: [&str; 4] = ["requests", "memcached", "sip", "scale"];

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
pub(crate) fn rt_stack(options: &LiveOptions<'_>) -> Result<Outcome, Error> {
    if let Some(other) = options.only.iter().find(|name| !EXPERIMENTS.contains(&name.as_str())) {
        return Err(Error::UnknownLiveExperiment { name: other.clone(), known: &EXPERIMENTS });
    }
    let wants = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    let (paper, _) = papers::rt_stack();
    let mut lab = Lab::new(options)?;
    let cache = if wants("memcached") { Some(memcached::Programs::fetch(options)?) } else { None };
    let relay = if wants("sip") { Some(sip::Programs::fetch(options)?) } else { None };
    lab.enter_namespace()?;
    let mut out = Outcome::default();
    if wants("requests") {
        requests(&mut lab, options, &paper, &mut out)?;
    }
    if let Some(programs) = cache {
        memcached(&mut lab, options, &paper, &programs, &mut out)?;
    }
    if let Some(programs) = relay {
        sip(&mut lab, options, &programs, &mut out)?;
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

/// What the processors and the streams did since.
struct Meter<'a> {
    streams: &'a [Stream],
    began: Instant,
    load: Load,
    received_bytes: u64,
}

/// Of all processors together.
fn load_of_all() -> Load {
    let all = loads(&preflight::online()).unwrap_or_default();
    all.into_iter().fold(Load::default(), plus)
}

fn plus(sum: Load, one: Load) -> Load {
    Load {
        busy_ns: sum.busy_ns + one.busy_ns,
        idle_ns: sum.idle_ns + one.idle_ns,
        interrupts_ns: sum.interrupts_ns + one.interrupts_ns,
        steal_ns: sum.steal_ns + one.steal_ns,
    }
}

impl Meter<'_> {
    fn start(streams: &[Stream]) -> Meter<'_> {
        let received_bytes = streams.iter().map(Stream::sent).sum();
        Meter { streams, began: Instant::now(), load: load_of_all(), received_bytes }
    }

    /// Adds what happened to what was measured.
    fn add_to(&self, measured: &mut Measured) {
        measured.elapsed += Duration::from_ns(self.began.elapsed().as_nanos() as u64);
        measured.received_bytes += self.streams.iter().map(Stream::sent).sum::<u64>() - self.received_bytes;
        measured.load = plus(measured.load, load_of_all() - self.load);
    }
}

/// Asks servers in turn, each while all others stand still. `streams` go on meanwhile.
fn ask_all(
    options: &LiveOptions<'_>,
    servers: &[Server],
    clients: &mut [Client],
    streams: &[Stream],
) -> Result<Vec<Measured>, Error> {
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
            let meter = Meter::start(streams);
            clients[at].ask_often(count, options.stop, &mut measured[at].asked);
            meter.add_to(&mut measured[at]);
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
        streams.push(
            Stream::start(sink, options.stop)
                .map_err(|error| Error::Lab(format!("no stream to {sink}: {error}")))?,
        );
        machines.push(machine);
    }
    Ok((machines, streams))
}

fn us(time: Duration) -> f64 {
    time.as_ns() as f64 / 1e3
}

/// Mean, deviation, median and 99 % quantile in us.
fn statistics(latency: &Histogram) -> [f64; 4] {
    [latency.mean(), latency.stddev(), latency.quantile_ppm(500_000), latency.quantile_ppm(990_000)].map(us)
}

/// The statistics of paths, and how mean and deviation compare with the first one's.
fn latencies(id: &str, title: &str, paths: &[Path], measured: &[Measured], measures: &mut Measures) -> Table {
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
        let name = path.name();
        for (value, what) in values.into_iter().zip(["mean_us", "sd_us", "p50_us", "p99_us"]) {
            measures.set_one(format!("{id}.{name}.{what}"), value);
        }
    }
    let count = measured.iter().map(|of| of.asked.latency.count()).min().unwrap_or(0);
    table.notes.push(format!("In us; at least {count} of each path, in turn."));
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
    let title = "Round trips of 64 bytes, alone";
    out.tables.push(latencies("requests-alone", title, &Path::ALL, &alone, &mut out.measures));
    let title = format!("Round trips of 64 bytes beside {} heavy receivers", streams.len());
    out.tables.push(latencies("requests-loaded", &title, &Path::ALL, &loaded, &mut out.measures));
    let of = Beside {
        id: "requests-ratios",
        title: "Over virtio's, beside heavy receivers: live, model, thesis",
        figure: "",
        note: "The model is the thesis's machine with a vanilla kernel, as this one's; the thesis has \
               partitioned softirqs beside its sockets, and PREEMPT_RT below its container.",
    };
    let first = Path::Virtio.thesis(paper).unwrap_or([f64::NAN; 3]);
    let thesis = |path: Path| match path.thesis(paper) {
        Some(printed) => [0, 1, 2].map(|at| Some(printed[at] / first[at])),
        None => [None; 3],
    };
    out.tables.push(beside(options, &of, &loaded, thesis)?);
    out.tables.push(throughput("receivers", "What heavy receivers got", &loaded));
    Ok(())
}

/// What ratios to virtio stand beside: the model's, of which host, and the thesis's.
struct Beside {
    id: &'static str,
    title: &'static str,
    /// The model's application, by its figure, or none.
    figure: &'static str,
    note: &'static str,
}

/// Mean, 99 % quantile and deviation over virtio's: live, in the model of a host without PREEMPT_RT, and in
/// the thesis, where it prints them.
fn beside(
    options: &LiveOptions<'_>,
    of: &Beside,
    loaded: &[Measured],
    thesis: impl Fn(Path) -> [Option<f64>; 3],
) -> Result<Table, Error> {
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
    let mut table = Table::new(of.id, of.title, &columns);
    (options.progress)("simulating the model");
    let predicted = predict(&Path::ALL.map(Path::model), of.figure, options.quick)?;
    let live = |of: &Measured| {
        let [mean, deviation, _, p99] = statistics(&of.asked.latency);
        [mean, p99, deviation]
    };
    let (first, first_model) = (live(&loaded[0]), predicted[0]);
    for ((path, of), predicted) in Path::ALL.into_iter().zip(loaded).zip(predicted) {
        let values = live(of);
        let mut row = vec![path.title().to_owned()];
        for (at, printed) in thesis(path).into_iter().enumerate() {
            row.push(format!("{:.2}", values[at] / first[at]));
            row.push(format!("{:.2}", predicted[at] / first_model[at]));
            row.push(printed.map_or_else(|| "-".into(), |printed| format!("{printed:.2}")));
        }
        table.rows.push(row);
    }
    table.notes.push(of.note.into());
    Ok(table)
}

/// What receivers got while each path was asked.
fn throughput(id: &str, title: &str, loaded: &[Measured]) -> Table {
    let mut table = Table::new(id, title, &["path asked", "Mbit/s", "/ virtio"]);
    for (path, of) in Path::ALL.into_iter().zip(loaded) {
        let ratio = format!("{:.2}", received(of) / received(&loaded[0]));
        table.rows.push(vec![path.title().to_owned(), number(received(of)), ratio]);
    }
    table
}

/// What receivers got, Mbit/s.
fn received(of: &Measured) -> f64 {
    of.received_bytes as f64 * 8e3 / of.elapsed.as_ns().max(1) as f64
}

/// A real server, with the client and the load generator that measure it.
struct Application<'a> {
    id: &'static str,
    /// What is timed, by our client.
    timed: &'static str,
    beside: Beside,
    client: &'a dyn Fn(&Server) -> std::io::Result<Client>,
    generator: Option<Generator<'a>>,
}

/// Requests to a real memcached, one set to nine gets: s.6.7.2.
fn memcached(
    lab: &mut Lab<'_>,
    options: &LiveOptions<'_>,
    paper: &RtStack,
    programs: &memcached::Programs,
    out: &mut Outcome,
) -> Result<(), Error> {
    let application = Application {
        id: "memcached",
        timed: "memcached, gets of 1024 bytes over TCP",
        beside: Beside {
            id: "memcached-ratios",
            title: "memcached over virtio's, beside heavy receivers: live, model, thesis",
            figure: "fig6-13",
            note: "The model as for requests; memcached's own time is assumed there. The thesis prints that \
                   outsourcing's 99 % quantile is 74 % below vanilla virtio's.",
        },
        client: &|server| Client::memcached(server.cache, options.stop),
        generator: Some(Generator {
            title: "memaslap, keys of 64 and values of 1024 bytes, one set to nine gets",
            unit: "requests/s",
            told: ["mean, us", "SD, us"],
            generate: &|server, seconds| programs.generate(options, server.cache, seconds),
        }),
    };
    let less = paper.memcached_less_percent.get("vanilla").map(|percent| 1.0 - percent / 100.0);
    let thesis = |path| match path {
        Path::Virtio => [None, Some(1.0), None],
        Path::ExtendedIdle => [None, less, None],
        _ => [None; 3],
    };
    lab.set_extra(Some(programs.server()?));
    ask_application(lab, options, &application, thesis, out)
}

/// Calls through a real SIP relay: s.6.7.1.
fn sip(
    lab: &mut Lab<'_>,
    options: &LiveOptions<'_>,
    programs: &sip::Programs,
    out: &mut Outcome,
) -> Result<(), Error> {
    let application = Application {
        id: "sip",
        timed: "A message through Kamailio, to the other side of the call",
        beside: Beside {
            id: "sip-ratios",
            title: "SIP relay over virtio's, beside heavy receivers: live, model, thesis",
            figure: "fig6-12",
            note: "The model as for requests; the relay's own time is assumed there. The thesis prints no \
                   ratio to vanilla virtio.",
        },
        client: &|server| Ok(Client::Sip(Box::new(sip::Caller::new(server, options.stop)?))),
        generator: None,
    };
    lab.set_extra(Some(programs.server()?));
    ask_application(lab, options, &application, |_| [None; 3], out)
}

/// Asks an application over each path, alone and beside heavy receivers, and lets its load generator ask.
fn ask_application(
    lab: &mut Lab<'_>,
    options: &LiveOptions<'_>,
    of: &Application<'_>,
    thesis: impl Fn(Path) -> [Option<f64>; 3],
    out: &mut Outcome,
) -> Result<(), Error> {
    let (servers, mut clients) = start_all(lab, &Path::ALL, of.client)?;
    lab.set_extra(None);
    let alone = ask_all(options, &servers, &mut clients, &[])?;
    let load_alone = generate_all(options, of, &servers, &mut clients, &[])?;
    let (_machines, streams) = receivers(lab, options)?;
    let loaded = ask_all(options, &servers, &mut clients, &streams)?;
    let load_loaded = generate_all(options, of, &servers, &mut clients, &streams)?;
    let receivers = format!("beside {} heavy receivers", streams.len());
    for (id, how, measured) in [("alone", "alone", &alone), ("loaded", receivers.as_str(), &loaded)] {
        let (id, title) = (format!("{}-{id}", of.id), format!("{}, {how}", of.timed));
        out.tables.push(latencies(&id, &title, &Path::ALL, measured, &mut out.measures));
    }
    out.tables.push(beside(options, &of.beside, &loaded, thesis)?);
    out.tables.push(throughput(&format!("{}-receivers", of.id), "What receivers got meanwhile", &loaded));
    let Some(generator) = &of.generator else { return Ok(()) };
    for (id, how, all) in [("load", "alone", &load_alone), ("load-loaded", receivers.as_str(), &load_loaded)]
    {
        let (id, title) = (format!("{}-{id}", of.id), format!("{} under load, {how}", of.id));
        out.tables.push(generated(&id, &title, generator, all, &mut out.measures));
    }
    Ok(())
}

/// Lets the load generator ask each server in turn.
fn generate_all(
    options: &LiveOptions<'_>,
    of: &Application<'_>,
    servers: &[Server],
    clients: &mut [Client],
    streams: &[Stream],
) -> Result<Vec<(Generated, Measured)>, Error> {
    let mut all = Vec::new();
    let Some(generator) = &of.generator else { return Ok(all) };
    for (server, client) in servers.iter().zip(clients) {
        (options.progress)(&format!("{}, load generator", server.path.title()));
        server.pause(false);
        let (meter, mut measured) = (Meter::start(streams), Measured::default());
        let generated = (generator.generate)(server, if options.quick { 1 } else { 4 })?;
        meter.add_to(&mut measured);
        // Its values may have taken the place of ours.
        client.fill().map_err(no_client(server.path))?;
        server.pause(true);
        all.push((generated, measured));
    }
    Ok(all)
}

/// What the load generator counted.
fn generated(
    id: &str,
    title: &str,
    of: &Generator<'_>,
    all: &[(Generated, Measured)],
    measures: &mut Measures,
) -> Table {
    let [one, other] = of.told;
    let columns = ["path", of.unit, "/ virtio", one, other, "receivers, Mbit/s", "processors busy"];
    let mut table = Table::new(id, title, &columns);
    let first = all.first().map_or(f64::NAN, |(first, _)| first.per_second);
    for (path, (counted, measured)) in Path::ALL.into_iter().zip(all) {
        let ratio = format!("{:.2}", counted.per_second / first);
        let mut row = vec![path.title().to_owned(), number(counted.per_second), ratio];
        row.extend(counted.cells.iter().cloned());
        row.extend([number(received(measured)), busy(measured)]);
        table.rows.push(row);
        measures.set_one(format!("{id}.{}.per_second", path.name()), counted.per_second);
    }
    table.notes.push(format!(
        "By {}; {CONCURRENCY} at once. Receivers and processors with its preparation.",
        of.title
    ));
    table
}

/// More and more RT VMs with sockets of the host, all asked at once: Figs. 6-14 to 6-16. The model goes on.
fn scale(lab: &mut Lab<'_>, options: &LiveOptions<'_>, out: &mut Outcome) -> Result<(), Error> {
    let counts: &[usize] = if options.quick { &[1, 2] } else { &[1, 2, 4, 6] };
    let columns =
        ["RT VMs", "requests/s", "mean", "SD", "p50", "p99", "lost", "processors busy", "model: mean", "p99"];
    let title = "RT VMs with sockets of the host, each with its own client";
    let mut table = Table::new("scale", title, &columns);
    let (mut servers, mut clients) = (Vec::new(), Vec::new());
    for count in [1, 2, 4, 6, 10, 20, 40] {
        let mut row = vec![count.to_string()];
        if counts.contains(&count) {
            while servers.len() < count {
                let server = lab.server(Path::Interrupts)?;
                clients.push(Client::echo(server.echo).map_err(no_client(server.path))?);
                servers.push(server);
            }
            row.extend(scaled(count, &ask_at_once(options, &mut clients)?, &mut out.measures));
        } else {
            row.resize(columns.len() - 2, "-".into());
        }
        (options.progress)(&format!("simulating {count} RT VMs"));
        let predicted = predict_many("outsourcing", count, options.quick)?;
        row.extend([predicted[0], predicted[1]].map(number));
        table.rows.push(row);
    }
    table.notes.push(
        "us. The vCPUs share one processor of this machine, all else the others. The model has the thesis's \
         machine and costs, with four processors and without heavy receivers."
            .into(),
    );
    out.tables.push(table);
    Ok(())
}

/// What was measured of so many RT VMs, as a row has it.
fn scaled(count: usize, measured: &Measured, measures: &mut Measures) -> Vec<String> {
    let latency = &measured.asked.latency;
    let [mean, deviation, p50, p99] = statistics(latency);
    let rate = latency.count() as f64 * 1e9 / measured.elapsed.as_ns().max(1) as f64;
    let mut row: Vec<String> = [rate, mean, deviation, p50, p99].map(number).into();
    row.extend([measured.asked.lost.to_string(), busy(measured)]);
    measures.set_one(format!("scale.{count}.mean_us"), mean);
    measures.set_one(format!("scale.{count}.p99_us"), p99);
    row
}

/// Asks all servers at once, each by a thread of its own.
fn ask_at_once(options: &LiveOptions<'_>, clients: &mut [Client]) -> Result<Measured, Error> {
    let (count, rounds) = turns(options);
    (options.progress)(&format!("{} RT VMs", clients.len()));
    let (meter, mut measured) = (Meter::start(&[]), Measured::default());
    let (count, stop) = (count * rounds as u64, options.stop);
    let all: Vec<Asked> = std::thread::scope(|scope| {
        let ask = |client: &mut Client, seed| {
            let mut asked = Asked::default();
            client.ask_often_from(seed, count, stop, &mut asked);
            asked
        };
        let threads: Vec<_> = clients
            .iter_mut()
            .zip(0..)
            .map(|(client, seed)| scope.spawn(move || ask(client, seed * 1009)))
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    meter.add_to(&mut measured);
    if stop() {
        return Err(Error::Interrupted);
    }
    for asked in all {
        measured.asked.latency.merge(&asked.latency);
        measured.asked.lost += asked.lost;
    }
    Ok(measured)
}
