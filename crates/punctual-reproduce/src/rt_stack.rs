//! rt-stack: response times through the network stack of a Linux/KVM host under each method of handling
//! interrupts, beside servers that receive at full speed.

use std::collections::BTreeMap;

use punctual_model::results::{FlowResult, HostPart, Segment};
use punctual_sched::Duration;

use crate::error::Error;
use crate::measures::number;
use crate::options::Options;
use crate::papers::RtStack;
use crate::reproduction::{Figure, Outcome, Series, Table};
use crate::scenario::{Progress, Scenario, run_each};

/// A way of running the servers of `papers/rt-stack/host.toml`.
#[derive(Clone, Copy)]
struct Setup {
    id: &'static str,
    title: &'static str,
    method: &'static str,
    path: &'static str,
}

const fn setup(id: &'static str, title: &'static str, method: &'static str, path: &'static str) -> Setup {
    Setup { id, title, method, path }
}

const THREADED: Setup = setup("threaded", "threaded", "threaded", "virtio");
const OUTSOURCING: Setup = setup("outsourcing", "outsourcing", "partitioned", "rt-outsourcing");

/// Those of Tables 6.3 and 6.4.
const METHODS: [Setup; 5] = [
    setup("host", "not virtualised", "threaded", "process"),
    setup("vanilla", "vanilla", "vanilla", "virtio"),
    THREADED,
    setup("exclusive", "exclusive CPU", "exclusive", "virtio"),
    OUTSOURCING,
];

/// Those of Table 6.5.
const TECHNIQUES: [Setup; 4] = [
    setup("both", "both, extended idle process", "partitioned", "rt-outsourcing"),
    setup("partitioned", "only partitioned softirq", "partitioned", "virtio"),
    setup("rt-outsourcing", "only RT socket outsourcing", "threaded", "rt-outsourcing"),
    setup("virtual-interrupts", "both, virtual interrupts", "partitioned", "outsourcing"),
];

/// Those of Table 6.6.
const CONTAINERS: [Setup; 2] = [
    setup("threaded", "PREEMPT_RT", "threaded", "container"),
    setup("partitioned", "PREEMPT_RT, partitioned softirq", "partitioned", "container"),
];

/// What Linux has today, not in the thesis.
const TODAY: [Setup; 4] = [
    setup("napi-virtio", "threaded NAPI, VM", "threaded-napi", "virtio"),
    setup("napi-unlocked-virtio", "threaded NAPI without lock, VM", "threaded-napi-unlocked", "virtio"),
    setup("napi-container", "threaded NAPI, container", "threaded-napi", "container"),
    setup(
        "napi-unlocked-container",
        "threaded NAPI without lock, container",
        "threaded-napi-unlocked",
        "container",
    ),
];

/// Servers of the host file.
const SERVERS: [&str; 3] = ["critical", "heavy1", "heavy2"];

impl Setup {
    fn scenario(self, options: &Options) -> Scenario {
        let scenario = Scenario::new("rt-stack", "host").set(format!("host_stack.method={}", self.method));
        let path = |scenario: Scenario, server| {
            scenario.set(format!("host_stack.server.{server}.path={}", self.path))
        };
        let scenario = SERVERS.into_iter().fold(scenario, path);
        if options.quick { scenario.duration(Duration::from_secs(3)) } else { scenario }
    }
}

/// Without heavy receivers.
fn alone(scenario: Scenario) -> Scenario {
    let later = |scenario: Scenario, n| scenario.set(format!("host_stack.server.heavy{n}.start=1000s"));
    (1..=2).fold(scenario, later)
}

/// For experiments that are not a table of the thesis: a third of the time.
fn shorter(options: &Options, scenario: Scenario) -> Scenario {
    if options.quick { scenario } else { scenario.duration(Duration::from_secs(10)) }
}

struct Run {
    critical: FlowResult,
    gbit_s: f64,
    busy_percent: f64,
}

fn simulated(scenario: &Scenario) -> Result<Run, Error> {
    let results = scenario.simulate_host_stack()?;
    let critical = results.flows.iter().find(|flow| flow.name == SERVERS[0]);
    let critical = critical.ok_or_else(|| Error::Missing("there is no critical server".into()))?.clone();
    let streams = results.flows.iter().filter(|flow| flow.kind == "stream");
    let bytes: u64 = streams.map(|flow| flow.packets.bytes).sum();
    let busy: u64 = results.processors.iter().map(|processor| processor.busy_ns).sum();
    let whole = results.duration_ns * results.processors.len() as u64;
    Ok(Run {
        critical,
        gbit_s: bytes as f64 * 8.0 / results.duration_ns as f64,
        busy_percent: busy as f64 / whole as f64 * 100.0,
    })
}

fn us(time: Duration) -> f64 {
    time.as_ns() as f64 / 1e3
}

impl Run {
    /// Mean, 99 % quantile, standard deviation in us.
    fn statistics(&self) -> [f64; 3] {
        let latency = &self.critical.latency;
        [latency.mean(), latency.quantile_ppm(990_000), latency.stddev()].map(us)
    }

    fn segment(&self, segment: Segment, value: impl Fn(&punctual_model::Histogram) -> Duration) -> f64 {
        let found = self.critical.segments.iter().find(|one| one.segment == segment);
        found.map_or(0.0, |one| us(value(&one.time)))
    }
}

/// Mean, 99 % quantile and deviation in us of the thesis's request/response with a vanilla kernel, beside two
/// heavy receivers, by each path: what live measurements stand beside. `figure` is that of an application
/// which is asked instead, or empty.
#[cfg(feature = "live")]
pub(crate) fn predict(paths: &[&'static str], figure: &str, quick: bool) -> Result<Vec<[f64; 3]>, Error> {
    let setups: Vec<Setup> = paths.iter().map(|path| setup(path, path, "vanilla", path)).collect();
    let application = APPLICATIONS.iter().find(|application| application.id == figure);
    predicted(&setups, quick, |scenario| match application {
        Some(application) => application.apply(scenario),
        None => scenario,
    })
}

/// The same with this many RT VMs, on four processors without heavy receivers.
#[cfg(feature = "live")]
pub(crate) fn predict_many(path: &'static str, count: usize, quick: bool) -> Result<[f64; 3], Error> {
    let of = predicted(&[setup(path, path, "vanilla", path)], quick, |scenario| {
        alone(scenario).set("machine.processors=4").set(format!("host_stack.server.critical.count={count}"))
    })?;
    Ok(of.first().copied().unwrap_or([f64::NAN; 3]))
}

#[cfg(feature = "live")]
fn predicted(
    setups: &[Setup],
    quick: bool,
    change: impl Fn(Scenario) -> Scenario,
) -> Result<Vec<[f64; 3]>, Error> {
    let options = Options { quick, ..Options::default() };
    let change = |scenario| shorter(&options, change(scenario));
    let runs = run("prediction", setups, &options, &|_, _, _| (), change)?;
    Ok(runs.iter().map(Run::statistics).collect())
}

/// Runs the setups, each changed by `change`.
fn run(
    what: &str,
    setups: &[Setup],
    options: &Options,
    progress: Progress<'_>,
    change: impl Fn(Scenario) -> Scenario,
) -> Result<Vec<Run>, Error> {
    let scenarios: Vec<_> = setups.iter().map(|setup| change(setup.scenario(options))).collect();
    run_each(what, &scenarios, progress, simulated)
}

const NAMES: [&str; 3] = ["mean_us", "p99_us", "sd_us"];

/// A table of mean, 99 % quantile and deviation, the thesis's beside ours.
fn statistics(
    out: &mut Outcome,
    (id, title): (&str, &str),
    setups: &[Setup],
    runs: &[Run],
    paper: &BTreeMap<String, [f64; 3]>,
) {
    let columns = ["method", "mean: thesis", "ours", "99 %: thesis", "ours", "SD: thesis", "ours"];
    let mut table = Table::new(id, title, &columns);
    for (setup, run) in setups.iter().zip(runs) {
        let mut row = vec![setup.title.to_string()];
        for (at, value) in run.statistics().into_iter().enumerate() {
            out.measures.set_one(format!("{id}.{}.{}", setup.id, NAMES[at]), value);
            row.push(paper.get(setup.id).map_or("-".into(), |printed| number(printed[at])));
            row.push(number(value));
        }
        table.rows.push(row);
    }
    table.notes.push("Response times in us.".into());
    out.tables.push(table);
}

/// The segments of s.3.4.2, and where the time in them went.
fn segments(out: &mut Outcome, (id, title): (&str, &str), setups: &[Setup], runs: &[Run]) {
    let mut columns = vec!["method".to_string()];
    for segment in Segment::HOST {
        columns.extend([format!("{}: mean", segment.name()), "99 %".into(), "SD".into()]);
    }
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new(&format!("{id}-segments"), title, &columns);
    for (setup, run) in setups.iter().zip(runs) {
        let mut row = vec![setup.title.to_string()];
        for segment in Segment::HOST {
            let name = segment.name().replace(' ', "_");
            let values = [
                run.segment(segment, |time| time.mean()),
                run.segment(segment, |time| time.quantile_ppm(990_000)),
                run.segment(segment, |time| time.stddev()),
            ];
            for (value, of) in values.into_iter().zip(NAMES) {
                out.measures.set_one(format!("{id}.{}.{name}.{of}", setup.id), value);
                row.push(number(value));
            }
        }
        table.rows.push(row);
    }
    table.notes.push("us; the thesis shows them as figures only.".into());
    out.tables.push(table);
}

/// The mean of each part that took time anywhere.
fn parts(out: &mut Outcome, (id, title): (&str, &str), setups: &[Setup], runs: &[Run]) {
    let mut columns = vec!["part, mean in us"];
    columns.extend(setups.iter().map(|setup| setup.title));
    let mut table = Table::new(&format!("{id}-parts"), title, &columns);
    for part in HostPart::ALL {
        let mean = |run: &Run| {
            run.critical.parts.iter().find(|one| one.part == part).map_or(0.0, |one| us(one.time.mean()))
        };
        let means: Vec<f64> = runs.iter().map(mean).collect();
        if means.iter().any(|&mean| mean > 0.0) {
            let mut row = vec![format!("{}: {}", part.segment().name(), part.name())];
            row.extend(means.into_iter().map(number));
            table.rows.push(row);
        }
    }
    out.tables.push(table);
}

/// Tables 3.1 and 6.3, Figs. 3-11 and 6-8: without heavy receivers. What the costs are calibrated with.
pub(crate) fn undisturbed(
    options: &Options,
    paper: &RtStack,
    progress: Progress<'_>,
) -> Result<Outcome, Error> {
    let runs = run("Table 6.3", &METHODS, options, progress, alone)?;
    let mut out = Outcome::default();
    let title = "Tables 3.1 and 6.3: without heavy receivers (the costs' calibration)";
    statistics(&mut out, ("table6-3", title), &METHODS, &runs, &paper.undisturbed);
    let title = "Figs. 3-11 and 6-8: segments without heavy receivers";
    segments(&mut out, ("table6-3", title), &METHODS, &runs);
    Ok(out)
}

/// Tables 3.2 and 6.4, Figs. 3-8, 3-9, 3-12, 6-4, 6-5 and 6-9: beside two heavy receivers.
pub(crate) fn loaded(options: &Options, paper: &RtStack, progress: Progress<'_>) -> Result<Outcome, Error> {
    let runs = run("Table 6.4", &METHODS, options, progress, |scenario| scenario)?;
    let mut out = Outcome::default();
    let title = "Tables 3.2 and 6.4: with two heavy receivers (prediction)";
    statistics(&mut out, ("table6-4", title), &METHODS, &runs, &paper.loaded);
    let columns = ["method", "Gbit/s: thesis", "ours", "processors busy"];
    let title = "Figs. 3-8, 3-9, 6-4 and 6-5: heavy receivers together, processors";
    let mut table = Table::new("fig6-4", title, &columns);
    for (setup, run) in METHODS.iter().zip(&runs) {
        out.measures.set_one(format!("fig6-4.{}.gbit_s", setup.id), run.gbit_s);
        out.measures.set_one(format!("fig6-4.{}.busy_percent", setup.id), run.busy_percent);
        let printed = paper.throughput.get(setup.id).map_or("-".into(), |&printed| number(printed));
        let busy = format!("{} %", number(run.busy_percent));
        table.rows.push(vec![setup.title.into(), printed, number(run.gbit_s), busy]);
    }
    out.tables.push(table);
    ratios(&mut out);
    let title = "Figs. 3-12 and 6-9: segments with heavy receivers";
    segments(&mut out, ("table6-4", title), &METHODS, &runs);
    parts(&mut out, ("table6-4", "What the segments of Table 6.4 consist of"), &METHODS, &runs);
    Ok(out)
}

/// The factors that the thesis names.
fn ratios(out: &mut Outcome) {
    let of = |out: &Outcome, name: &str| out.measures.get(name).map_or(0.0, |values| values[0]);
    let response = |method: &str, what: &str| of(out, &format!("table6-4.{method}.{what}_us"));
    let times_less = |method: &str, what: &str| response(method, what) / response("outsourcing", what);
    let busy = |method: &str| of(out, &format!("fig6-4.{method}.busy_percent"));
    let gbit = |method: &str| of(out, &format!("fig6-4.{method}.gbit_s"));
    let all = [
        ("sd.threaded", times_less("threaded", "sd")),
        ("sd.exclusive", times_less("exclusive", "sd")),
        ("mean.exclusive", times_less("exclusive", "mean")),
        ("p99.exclusive", times_less("exclusive", "p99")),
        ("more_gbit_percent", (gbit("outsourcing") / gbit("threaded") - 1.0) * 100.0),
        ("less_busy_percent", (1.0 - busy("outsourcing") / busy("threaded")) * 100.0),
        ("gbit.exclusive", gbit("outsourcing") / gbit("exclusive")),
        ("busier_than_host", busy("outsourcing") - busy("host")),
    ];
    for (name, value) in all {
        out.measures.set_one(format!("ratio.{name}"), value);
    }
}

/// Table 6.5: each technique alone.
pub(crate) fn techniques(
    options: &Options,
    paper: &RtStack,
    progress: Progress<'_>,
) -> Result<Outcome, Error> {
    let runs = run("Table 6.5", &TECHNIQUES, options, progress, |scenario| scenario)?;
    let mut out = Outcome::default();
    let title = "Table 6.5: each technique alone, with two heavy receivers";
    statistics(&mut out, ("table6-5", title), &TECHNIQUES, &runs, &paper.techniques);
    parts(&mut out, ("table6-5", "What the response times of Table 6.5 consist of"), &TECHNIQUES, &runs);
    Ok(out)
}

/// Table 6.6: containers. Beside it, what Linux has today.
pub(crate) fn containers(
    options: &Options,
    paper: &RtStack,
    progress: Progress<'_>,
) -> Result<Outcome, Error> {
    let runs = run("Table 6.6", &CONTAINERS, options, progress, |scenario| scenario)?;
    let mut out = Outcome::default();
    let title = "Table 6.6: containers, with two heavy receivers";
    statistics(&mut out, ("table6-6", title), &CONTAINERS, &runs, &paper.containers);
    let runs = run("Today", &TODAY, options, progress, |scenario| shorter(options, scenario))?;
    let title = "Threaded NAPI, as Linux has it today, with two heavy receivers (not in the thesis)";
    statistics(&mut out, ("today", title), &TODAY, &runs, &BTreeMap::new());
    Ok(out)
}

/// What the cache explains: Table 6.4 with other latencies of memory.
pub(crate) fn cache(options: &Options, paper: &RtStack, progress: Progress<'_>) -> Result<Outcome, Error> {
    let mut out = Outcome::default();
    let columns = [
        "a read from memory, ns",
        "threaded: mean",
        "SD",
        "exclusive: mean",
        "SD",
        "outsourcing: mean",
        "SD",
        "SD threaded / outsourcing",
        "SD exclusive / outsourcing",
    ];
    let title = "What the cache explains of Table 6.4: response times with other latencies of memory";
    let mut table = Table::new("cache", title, &columns);
    let setups = [METHODS[2], METHODS[3], METHODS[4]];
    for miss in [0, 25, 51, 75, 100] {
        let set =
            |scenario: Scenario| shorter(options, scenario.set(format!("host_stack.cache.miss={miss}ns")));
        let runs = run("Cache", &setups, options, progress, set)?;
        let mut row = vec![miss.to_string()];
        for (setup, run) in setups.iter().zip(&runs) {
            let [mean, _, sd] = run.statistics();
            out.measures.set_one(format!("cache.{miss}.{}.mean_us", setup.id), mean);
            out.measures.set_one(format!("cache.{miss}.{}.sd_us", setup.id), sd);
            row.extend([number(mean), number(sd)]);
        }
        let sd = |at: usize| runs[at].statistics()[2];
        row.extend([number(sd(0) / sd(2)), number(sd(1) / sd(2))]);
        table.rows.push(row);
    }
    let mut row = vec!["thesis".to_string()];
    let printed = |id: &str| paper.loaded.get(id).copied().unwrap_or_default();
    let (threaded, exclusive, outsourcing) =
        (printed("threaded"), printed("exclusive"), printed("outsourcing"));
    for values in [threaded, exclusive, outsourcing] {
        row.extend([number(values[0]), number(values[2])]);
    }
    row.extend([number(threaded[2] / outsourcing[2]), number(exclusive[2] / outsourcing[2])]);
    table.rows.push(row);
    table.notes.push("us. 0 switches the cache off. 51 is behind all other tables.".into());
    out.tables.push(table);
    Ok(out)
}

/// Another reading of what an undisturbed request costs: what the sum of its steps leaves open.
struct Reading {
    id: &'static str,
    title: &'static str,
    set: &'static [&'static str],
}

/// With drivers that need so long for a frame, and IRQ threads that need less, an undisturbed request takes
/// as long as before.
const SLOW_DRIVER: [&str; 2] = ["costs.frame=700ns", "costs.irq_thread=1088ns"];

/// Each changes one assumption that Table 6.3 leaves open, or one rule.
const READINGS: [Reading; 10] = [
    Reading { id: "calibrated", title: "as calibrated", set: &[] },
    Reading {
        id: "rest-ksoftirqd",
        title: "ksoftirqd has what an action leaves over, as in PREEMPT_RT since 2016",
        set: &["softirq_rest=ksoftirqd"],
    },
    Reading {
        id: "frame-200",
        title: "a frame costs the driver 200 ns, an IRQ thread 108 ns more",
        set: &["costs.frame=200ns", "costs.irq_thread=1628ns"],
    },
    Reading {
        id: "frame-600",
        title: "a frame costs the driver 600 ns, an IRQ thread 324 ns less",
        set: &["costs.frame=600ns", "costs.irq_thread=1196ns"],
    },
    Reading {
        id: "frame-700",
        title: "a frame costs the driver 700 ns, an IRQ thread 432 ns less",
        set: &SLOW_DRIVER,
    },
    Reading {
        id: "vnic-packet",
        title: "the vNIC thread's 7 us are all work for a packet, none of them its wake-up",
        set: &["costs.vnic_wake=0ns", "costs.vnic_receive=3400ns", "costs.vnic_send=3600ns"],
    },
    Reading {
        id: "interrupt-650",
        title: "a guest's evicted interrupt handler needs 650 reads from memory, not 44",
        set: &["cache.lines.guest_interrupt=650"],
    },
    Reading {
        id: "exits-600",
        title: "leaving and entering a VM costs 0.6 us each, a socket call to the host nothing",
        set: &["costs.vm_exit=600ns", "costs.vm_entry=600ns", "costs.socket_call=0ns"],
    },
    Reading {
        id: "kworker",
        title: "a kworker of the fair class puts interrupts into VMs, as KVM does with all but MSI",
        set: &["injection=kworker"],
    },
    Reading { id: "miss-75", title: "a read from memory takes 75 ns", set: &["cache.miss=75ns"] },
];

/// What other readings of the undisturbed figures make of Table 6.4 and of the throughputs.
pub(crate) fn readings(options: &Options, paper: &RtStack, progress: Progress<'_>) -> Result<Outcome, Error> {
    let mut out = Outcome::default();
    let setups = [METHODS[0], METHODS[1], METHODS[2], METHODS[3], METHODS[4], TECHNIQUES[3]];
    let columns = ["reading", "method", "mean, us", "99 %", "SD", "Gbit/s", "undisturbed mean, us"];
    let title = "Other readings of the same undisturbed figures, with two heavy receivers";
    let mut table = Table::new("readings", title, &columns);
    for (setup, values) in setups.iter().filter_map(|one| Some((one, paper.loaded.get(one.id)?))) {
        let mut row = vec!["the thesis".to_string(), setup.title.into()];
        row.extend(values.iter().copied().map(number));
        row.push(paper.throughput.get(setup.id).copied().map_or("-".into(), number));
        row.push(paper.undisturbed.get(setup.id).map_or("-".into(), |values| number(values[0])));
        table.rows.push(row);
    }
    for reading in &READINGS {
        let set = |scenario: Scenario| {
            let set = reading.set.iter();
            shorter(options, set.fold(scenario, |s, one| s.set(format!("host_stack.{one}"))))
        };
        let loaded = run("Readings", &setups, options, progress, set)?;
        let undisturbed = run("Readings", &setups, options, progress, |s| alone(set(s)))?;
        for ((setup, run), alone) in setups.iter().zip(&loaded).zip(&undisturbed) {
            let prefix = format!("readings.{}.{}", reading.id, setup.id);
            let values = run.statistics();
            for (value, name) in values.into_iter().zip(NAMES) {
                out.measures.set_one(format!("{prefix}.{name}"), value);
            }
            out.measures.set_one(format!("{prefix}.gbit_s"), run.gbit_s);
            let busy = (format!("{prefix}.busy_percent"), run.busy_percent);
            let segments = [Segment::HostReceive, Segment::Guest, Segment::HostSend].map(|segment| {
                let name = segment.name().replace(' ', "_");
                (format!("{prefix}.{name}.sd_us"), run.segment(segment, |time| time.stddev()))
            });
            segments.into_iter().chain([busy]).for_each(|(name, value)| out.measures.set_one(name, value));
            let quiet = alone.statistics()[0];
            out.measures.set_one(format!("{prefix}.undisturbed_us"), quiet);
            let mut row = vec![reading.title.to_string(), setup.title.into()];
            row.extend(values.map(number));
            row.extend([number(run.gbit_s), number(quiet)]);
            table.rows.push(row);
        }
    }
    out.tables.push(table);
    Ok(out)
}

/// Fig. 3-14: the guest segment against the requests' distance.
pub(crate) fn intervals(options: &Options, progress: Progress<'_>) -> Result<Outcome, Error> {
    let mut out = Outcome::default();
    let setups = [METHODS[1], METHODS[2], METHODS[3]];
    let mut series: Vec<Series> =
        setups.iter().map(|setup| Series { name: setup.title.into(), points: Vec::new() }).collect();
    let columns = ["distance, ms", "vanilla", "threaded", "exclusive CPU"];
    let title = "Fig. 3-14: 99 % quantile of the guest segment against the requests' distance";
    let mut table = Table::new("fig3-14", title, &columns);
    for ms in [1, 2, 4, 6, 8, 10] {
        let set = |scenario: Scenario| {
            let server = "host_stack.server.critical";
            scenario.set(format!("{server}.gap_min={ms}ms")).set(format!("{server}.gap_max={ms}ms"))
        };
        let runs =
            run("Fig. 3-14", &setups, options, progress, |s| set(s).duration(Duration::from_secs(10)))?;
        let mut row = vec![ms.to_string()];
        for ((setup, run), series) in setups.iter().zip(&runs).zip(&mut series) {
            let value = run.segment(Segment::Guest, |time| time.quantile_ppm(990_000));
            out.measures.set_one(format!("fig3-14.{}.{ms}ms", setup.id), value);
            if let Some([_, shortest, ..]) = series.points.first() {
                out.measures.set_one(format!("fig3-14.{}.growth.{ms}ms", setup.id), value - shortest);
            }
            series.points.push([f64::from(ms), value, value, value]);
            row.push(number(value));
        }
        table.rows.push(row);
    }
    out.tables.push(table);
    let (x, y) = ("distance of requests (ms)".into(), "99 % of the guest segment (us)".into());
    let title = "rt-stack Fig. 3-14: cache pollution".into();
    out.figures.push(Figure { id: "fig3-14".into(), title, x, y, series });
    Ok(out)
}

/// An application as the critical server: what is set for it.
struct Application {
    id: &'static str,
    title: &'static str,
    set: &'static [&'static str],
}

/// Figs. 6-12 and 6-13. Service times are assumptions: the thesis prints no undisturbed figure of them. Nor
/// does it print lengths of messages: those of SIP make its 2.4 Mbit/s (s.6.7.1), 6 messages in and 7 out a
/// call with their headers; those of the store are a key of 64 and a value of 1024 bytes with headers.
const APPLICATIONS: [Application; 2] = [
    Application {
        id: "fig6-12",
        title: "Fig. 6-12: SIP relay (VoIP), 17 to 167 calls/s of six messages, service 30 us (assumed)",
        set: &[
            "service=30us",
            "bytes=700",
            "reply_bytes=700",
            "call=sip",
            "gap_min=5988us",
            "gap_max=58824us",
        ],
    },
    Application {
        id: "fig6-13",
        title: "Fig. 6-13: key-value store, 100 to 1000 requests/s, 9 GET to 1 SET, service 5 us (assumed)",
        set: &[
            "service=5us",
            "bytes=100",
            "reply_bytes=1124",
            "other_share=10%",
            "other_bytes=1124",
            "other_reply_bytes=64",
        ],
    },
];

impl Application {
    fn apply(&self, scenario: Scenario) -> Scenario {
        let set = self.set.iter();
        set.fold(scenario, |s, one| s.set(format!("host_stack.server.critical.{one}")))
    }
}

/// Figs. 6-12 and 6-13: applications.
pub(crate) fn applications(options: &Options, only: usize, progress: Progress<'_>) -> Result<Outcome, Error> {
    let mut out = Outcome::default();
    let Some(application) = APPLICATIONS.get(only) else { return Ok(out) };
    let set = |scenario: Scenario| application.apply(scenario);
    let id = application.id;
    let runs = run(application.title.split(':').next().unwrap_or(id), &METHODS, options, progress, set)?;
    let columns = ["method", "50 %", "99 %", "99.9 %", "Gbit/s", "processors busy"];
    let mut table = Table::new(id, application.title, &columns);
    for (setup, run) in METHODS.iter().zip(&runs) {
        let quantiles = [500_000, 990_000, 999_000].map(|ppm| us(run.critical.latency.quantile_ppm(ppm)));
        for (value, name) in quantiles.into_iter().zip(["p50_us", "p99_us", "p999_us"]) {
            out.measures.set_one(format!("{id}.{}.{name}", setup.id), value);
        }
        out.measures.set_one(format!("{id}.{}.gbit_s", setup.id), run.gbit_s);
        out.measures.set_one(format!("{id}.{}.busy_percent", setup.id), run.busy_percent);
        let mut row = vec![setup.title.to_string()];
        row.extend(quantiles.map(number));
        row.extend([number(run.gbit_s), format!("{} %", number(run.busy_percent))]);
        table.rows.push(row);
    }
    let other = |set_also: &[&str]| {
        let set_also =
            |s: Scenario| set_also.iter().fold(set(s), |s, one| s.set(format!("host_stack.{one}")));
        self::run("Applications", &METHODS, options, progress, |s| shorter(options, set_also(s)))
    };
    let (slow, short) = (other(&SLOW_DRIVER)?, other(&["server.critical.service=5us"])?);
    let readings = [("", &runs), (".frame-700", &slow), (".service-5", &short)];
    for (reading, runs) in readings {
        let p99 = |at: usize| us(runs[at].critical.latency.quantile_ppm(990_000));
        for (at, setup) in METHODS.iter().enumerate().take(4).skip(1) {
            let less = (1.0 - p99(4) / p99(at)) * 100.0;
            out.measures.set_one(format!("{id}{reading}.less_than_{}_percent", setup.id), less);
        }
        let [threaded, exclusive, outsourcing] = [&runs[2], &runs[3], &runs[4]];
        for (name, value) in [
            ("more_gbit_percent", (outsourcing.gbit_s / threaded.gbit_s - 1.0) * 100.0),
            ("less_busy_percent", (1.0 - outsourcing.busy_percent / threaded.busy_percent) * 100.0),
            ("gbit_times_exclusive", outsourcing.gbit_s / exclusive.gbit_s),
        ] {
            out.measures.set_one(format!("{id}{reading}.{name}"), value);
        }
    }
    table.notes.push("us; of the store GET alone, as in the thesis.".into());
    out.tables.push(table);
    Ok(out)
}

/// One of Figs. 6-14 to 6-16: what the RT VMs run, and the numbers of them that it is sampled at.
struct Scaling {
    id: &'static str,
    title: &'static str,
    application: Option<&'static Application>,
    vms: &'static [u32],
    seconds: u64,
}

const SCALING: [Scaling; 3] = [
    Scaling {
        id: "fig6-14",
        title: "Fig. 6-14: RT VMs with netperf on four processors, with two heavy receivers",
        application: None,
        vms: &[1, 10, 20, 40, 60, 100],
        seconds: 3,
    },
    Scaling {
        id: "fig6-15",
        title: "Fig. 6-15: RT VMs with SIP relays on four processors, with two heavy receivers",
        application: Some(&APPLICATIONS[0]),
        vms: &[1, 20, 60, 100],
        seconds: 2,
    },
    Scaling {
        id: "fig6-16",
        title: "Fig. 6-16: RT VMs with key-value stores on four processors, with two heavy receivers",
        application: Some(&APPLICATIONS[1]),
        vms: &[1, 20, 60, 100],
        seconds: 2,
    },
];

impl Scaling {
    fn scenario(&self, setup: Setup, count: u32, options: &Options) -> Scenario {
        let seconds = Duration::from_secs(if options.quick { 1 } else { self.seconds });
        let scenario = setup.scenario(options).duration(seconds).set("machine.processors=4");
        let scenario = scenario.set("host_stack.exclusive=[1, 2, 3]");
        let scenario = scenario.set(format!("host_stack.server.critical.count={count}"));
        self.application.map_or(scenario.clone(), |application| application.apply(scenario))
    }
}

/// Figs. 6-14 to 6-16: 1 to 100 RT VMs on four processors.
pub(crate) fn scaling(options: &Options, only: usize, progress: Progress<'_>) -> Result<Outcome, Error> {
    let mut out = Outcome::default();
    let Some(scaling) = SCALING.get(only) else { return Ok(out) };
    let id = scaling.id;
    let columns = ["method", "RT VMs", "99 %, us", "Gbit/s", "processors busy"];
    let mut table = Table::new(id, scaling.title, &columns);
    let mut series = Vec::new();
    for setup in METHODS {
        let counts = if setup.id == "exclusive" { &[1, 2, 3] } else { scaling.vms };
        let scenarios: Vec<Scenario> =
            counts.iter().map(|&count| scaling.scenario(setup, count, options)).collect();
        let mut points: Vec<[f64; 4]> = Vec::new();
        let what = scaling.title.split(':').next().unwrap_or(id);
        for (count, run) in counts.iter().zip(run_each(what, &scenarios, progress, simulated)?) {
            let [_, p99, _] = run.statistics();
            let prefix = format!("{id}.{}.{count}", setup.id);
            out.measures.set_one(format!("{prefix}.p99_us"), p99);
            out.measures.set_one(format!("{prefix}.gbit_s"), run.gbit_s);
            out.measures.set_one(format!("{prefix}.busy_percent"), run.busy_percent);
            let busy = format!("{} %", number(run.busy_percent));
            let row = vec![setup.title.into(), count.to_string(), number(p99), number(run.gbit_s), busy];
            table.rows.push(row);
            points.push([f64::from(*count), p99, p99, p99]);
        }
        if let [first, .., last] = &points[..] {
            out.measures.set_one(format!("{id}.{}.p99_growth", setup.id), last[1] / first[1]);
        }
        series.push(Series { name: setup.title.into(), points });
    }
    for count in scaling.vms {
        let p99 = |setup: &str| Some(out.measures.get(&format!("{id}.{setup}.{count}.p99_us"))?[0]);
        if let (Some(outsourcing), Some(host)) = (p99("outsourcing"), p99("host")) {
            out.measures.set_one(format!("{id}.outsourcing.{count}.p99_times_host"), outsourcing / host);
        }
    }
    table.rows.extend(beside(&mut out, scaling, options, progress)?);
    out.tables.push(table);
    let (x, y) = ("RT VMs".into(), "99 % of response times (us)".into());
    let title = format!("rt-stack {}", scaling.title);
    out.figures.push(Figure { id: id.into(), title, x, y, series });
    Ok(out)
}

/// A run beside a figure's that explains it.
struct Beside {
    figure: &'static str,
    /// Names its measures, and what is other.
    id: &'static str,
    setup: Setup,
    vms: u32,
    set: &'static [&'static str],
}

const NOT_VIRTUALISED: Setup = setup("host", "not virtualised, partitioned", "partitioned", "process");

/// Without the common softirq lock; and relays that take 100 us for a message: with more, none could be
/// forwarded within the 111.2 us that the thesis prints as 99 % quantile.
const BESIDE: [Beside; 4] = [
    Beside { figure: "fig6-14", id: "partitioned", setup: NOT_VIRTUALISED, vms: 10, set: &[] },
    Beside { figure: "fig6-14", id: "partitioned", setup: NOT_VIRTUALISED, vms: 100, set: &[] },
    Beside { figure: "fig6-15", id: "service-100", setup: THREADED, vms: 60, set: &["service=100us"] },
    Beside { figure: "fig6-15", id: "service-100", setup: OUTSOURCING, vms: 60, set: &["service=100us"] },
];

/// Runs what stands beside a figure: its measures and rows.
fn beside(
    out: &mut Outcome,
    scaling: &Scaling,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Vec<Vec<String>>, Error> {
    let runs: Vec<&Beside> = BESIDE.iter().filter(|beside| beside.figure == scaling.id).collect();
    let scenario = |beside: &&Beside| {
        let set = |s: Scenario, one: &&str| s.set(format!("host_stack.server.critical.{one}"));
        beside.set.iter().fold(scaling.scenario(beside.setup, beside.vms, options), set)
    };
    let scenarios: Vec<Scenario> = runs.iter().map(scenario).collect();
    let done = run_each(scaling.id, &scenarios, progress, simulated)?;
    let row = |(beside, run): (&&Beside, Run)| {
        let [_, p99, _] = run.statistics();
        let prefix = format!("{}.{}.{}.{}", beside.figure, beside.id, beside.setup.id, beside.vms);
        for (name, value) in [("p99_us", p99), ("gbit_s", run.gbit_s), ("busy_percent", run.busy_percent)] {
            out.measures.set_one(format!("{prefix}.{name}"), value);
        }
        let title = std::iter::once(beside.setup.title).chain(beside.set.iter().copied());
        let busy = format!("{} %", number(run.busy_percent));
        let title = title.collect::<Vec<_>>().join(", ");
        vec![title, beside.vms.to_string(), number(p99), number(run.gbit_s), busy]
    };
    Ok(runs.iter().zip(done).map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::{Verdict, verdict_on};
    use crate::measures::Measures;

    /// Table 6.6 in 2 s, with this method in the place of partitioned softirq handling.
    fn containers(method: &'static str) -> Measures {
        let mut measures = Measures::default();
        let options = Options { quick: true, ..Options::default() };
        for setup in [CONTAINERS[0], Setup { method, ..CONTAINERS[1] }] {
            let run = simulated(&setup.scenario(&options).duration(Duration::from_secs(2))).unwrap();
            for (name, value) in NAMES.into_iter().zip(run.statistics()) {
                measures.set_one(format!("table6-6.{}.{name}", setup.id), value);
            }
        }
        measures
    }

    #[test]
    fn without_partitioned_softirqs_the_claim_about_them_turns() {
        let claims = crate::papers::rt_stack().1;
        let of = |method| verdict_on(&claims, "container-partitioned", &containers(method));
        assert_eq!((of("partitioned"), of("threaded")), (Verdict::Agrees, Verdict::Differs));
    }
}
