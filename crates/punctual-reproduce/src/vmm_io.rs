//! Scheduling I/O in Virtual Machine Monitors: eleven configurations of the scheduler, eight tests of
//! streams, burning guests and pings.

use punctual_model::Histogram;
use punctual_model::host::Host;
use punctual_model::network::Traffic;
use punctual_model::results::{FlowResult, Results};
use punctual_sched::Duration;
use punctual_sched::{credit, sedf};

use crate::error::Error;
use crate::measures::{mean, number, range};
use crate::options::Options;
use crate::papers::VmmIo;
use crate::ranges::{RangeColumn, RangeFigure};
use crate::reproduction::{Outcome, Table};
use crate::scenario::{Progress, Scenario, as_written, run_all};

/// A row of the paper's Table 1.
pub(crate) struct Configuration {
    pub id: &'static str,
    pub policy: &'static str,
    /// With the event-channel fix?
    pub patched: bool,
    pub tickle: bool,
    pub boost: bool,
    pub sort: bool,
}

const fn credit(id: &'static str, patched: bool, tickle: bool, boost: bool, sort: bool) -> Configuration {
    Configuration { id, policy: credit::NAME, patched, tickle, boost, sort }
}

const fn sedf(id: &'static str, patched: bool) -> Configuration {
    Configuration { id, policy: sedf::NAME, patched, tickle: true, boost: false, sort: false }
}

pub(crate) const CONFIGURATIONS: [Configuration; 11] = [
    credit("orig", false, true, true, false),
    credit("all-off", true, false, false, false),
    credit("t", true, true, false, false),
    credit("b", true, false, true, false),
    credit("s", true, false, false, true),
    credit("tb", true, true, true, false),
    credit("ts", true, true, false, true),
    credit("bs", true, false, true, true),
    credit("tbs", true, true, true, true),
    sedf(sedf::NAME, false),
    sedf("sedf-fix", true),
];

/// A test of s.5.2: which guests do what.
struct Test {
    number: u32,
    title: &'static str,
    streams: &'static [u32],
    burns: &'static [u32],
    ping: Option<u32>,
    /// The paper's figure.
    figure: u32,
}

const TESTS: [Test; 8] = [
    test(1, "stream x 7", &[1, 2, 3, 4, 5, 6, 7], &[], None, 5),
    test(2, "stream x 3, burn x 3", &[1, 2, 3], &[4, 5, 6], None, 6),
    test(3, "burn x 7, ping x 1", &[], &[1, 2, 3, 4, 5, 6, 7], Some(8), 7),
    test(4, "ping x 1, burn x 7", &[], &[2, 3, 4, 5, 6, 7, 8], Some(1), 8),
    test(5, "stream x 7, ping x 1", &[1, 2, 3, 4, 5, 6, 7], &[], Some(8), 9),
    test(6, "ping x 1, stream x 7", &[2, 3, 4, 5, 6, 7, 8], &[], Some(1), 10),
    test(7, "stream x 3, burn x 3, ping x 1", &[1, 2, 3], &[4, 5, 6], Some(7), 11),
    test(8, "stream x 3, ping+burn x 1, burn x 3", &[1, 2, 3], &[4, 5, 6, 7], Some(4), 12),
];

const fn test(
    number: u32,
    title: &'static str,
    streams: &'static [u32],
    burns: &'static [u32],
    ping: Option<u32>,
    figure: u32,
) -> Test {
    Test { number, title, streams, burns, ping, figure }
}

fn scenario(configuration: &Configuration, test: &Test, options: &Options) -> Scenario {
    let scan = if configuration.patched { "resume" } else { "word" };
    let mut scenario = Scenario::new("vmm-io", "guests").set(format!("network.lan.scan={scan}"));
    scenario = match configuration.policy {
        credit::NAME => {
            let Configuration { tickle, boost, sort, .. } = configuration;
            scenario
                .set(format!("pool.all.credit.tickle={tickle}"))
                .set(format!("pool.all.credit.boost={boost}"))
                .set(format!("pool.all.credit.sort={sort}"))
        }
        other => scenario.policy(other),
    };
    for guest in test.streams {
        scenario = scenario.set(format!("flow.stream{guest}.start=0s"));
    }
    for guest in test.burns {
        scenario = scenario.set(format!("domain.g{guest}.task.burn.start=0s"));
    }
    if let Some(guest) = test.ping {
        // After the streams have found their windows.
        scenario = scenario.set(format!("flow.ping{guest}.start=100ms"));
    }
    if options.quick { scenario.duration(Duration::from_secs(2)) } else { scenario }
}

struct Cell {
    /// Of each stream, in Mbit/s.
    bandwidths: Vec<f64>,
    /// Processor shares of the burning guests, in percent.
    burns: Vec<f64>,
    driver_percent: f64,
    ping: Histogram,
    /// Pings that were given up although no packet of theirs was lost, and how long each had waited then.
    given_up: (u64, Duration),
    /// How long the last ping without an answer has waited at the end.
    waiting: Duration,
}

fn measure(test: &Test, host: &Host, results: &Results) -> Cell {
    let seconds = results.duration_ns as f64 / 1e9;
    let flow = |name: String| results.flows.iter().find(|f| f.name == name);
    let share = |name: &str| {
        let domain = results.domains.iter().find(|d| d.name == name);
        domain.map_or(0.0, |d| d.cpu_time_ns as f64 / results.duration_ns as f64 * 100.0)
    };
    let ping = test.ping.and_then(|guest| flow(format!("ping{guest}")));
    let latency = ping.map_or_else(Histogram::new, |flow| flow.latency.clone());
    let timeout = ping.map_or(Duration::ZERO, |flow| ping_timeout(host, flow));
    let timeouts = ping.map_or(0, |flow| flow.timeouts);
    let lost = ping.map_or(0, |flow| flow.packets.dropped.total());
    let answered = latency.mean() * latency.count();
    let sent = Duration::from_ns(results.duration_ns.saturating_sub(100_000_000));
    Cell {
        bandwidths: test
            .streams
            .iter()
            .map(|g| flow(format!("stream{g}")).map_or(0.0, |f| f.packets.bytes as f64 * 8.0 / 1e6 / seconds))
            .collect(),
        burns: test.burns.iter().map(|g| share(&format!("g{g}"))).collect(),
        driver_percent: share("dom0"),
        given_up: (timeouts.saturating_sub(lost), timeout),
        waiting: sent.saturating_sub(answered).saturating_sub(timeout * timeouts),
        ping: latency,
    }
}

fn ping_timeout(host: &Host, ping: &FlowResult) -> Duration {
    let flow = host.flows.iter().find(|flow| flow.name == ping.name);
    match flow.map(|flow| flow.traffic) {
        Some(Traffic::Ping { timeout, .. }) => timeout,
        _ => Duration::ZERO,
    }
}

impl Cell {
    /// Mean round trip in ms. A ping that is given up counts as the timeout, which is the least that it
    /// takes, and the last one as long as it has waited: otherwise starvation would look like silence. A
    /// ping whose packet was lost does not count, as for `ping`.
    fn ping_mean_ms(&self) -> f64 {
        let ms = |time: Duration| time.as_ns() as f64 / 1e6;
        let (given_up, timeout) = self.given_up;
        let pings = (self.ping.count() + given_up) as f64;
        let sum = ms(self.ping.mean()) * self.ping.count() as f64 + ms(timeout) * given_up as f64;
        let mean = if pings > 0.0 { sum / pings } else { 0.0 };
        let waiting = ms(self.waiting);
        if waiting > mean { (sum + waiting) / (pings + 1.0) } else { mean }
    }

    fn ping_sd_ms(&self) -> f64 {
        self.ping.stddev().as_ns() as f64 / 1e6
    }

    /// The measures of streams and burning guests: name, end of the range, value.
    fn ranges(&self) -> impl Iterator<Item = (&'static str, [(&'static str, f64); 5])> {
        let both = [("bandwidth_mbit_s", &self.bandwidths), ("burn_percent", &self.burns)];
        both.into_iter().filter(|(_, values)| !values.is_empty()).map(|(name, values)| {
            let (low, high) = range(values);
            let factor = high / low.max(f64::MIN_POSITIVE);
            let spread = high - low;
            (
                name,
                [("mean", mean(values)), ("min", low), ("max", high), ("spread", spread), ("factor", factor)],
            )
        })
    }
}

/// Runs every configuration under every test.
pub(crate) fn run(options: &Options, paper: &VmmIo, progress: Progress<'_>) -> Result<Outcome, Error> {
    let mut out = Outcome::default();
    for test in TESTS.iter().filter(|t| options.runs(&format!("test{}", t.number))) {
        let scenarios: Vec<_> = CONFIGURATIONS.iter().map(|c| scenario(c, test, options)).collect();
        let what = format!("test {}: {}", test.number, test.title);
        let keep = |host: &Host, results: &Results| measure(test, host, results);
        let cells = run_all(&what, &scenarios, progress, as_written, keep)?;
        add_test(&mut out, test, &cells, paper);
    }
    for (with_ping, without) in [(5, 1), (6, 1), (7, 2)] {
        changes(&mut out, with_ping, without);
    }
    for Configuration { id, .. } in &CONFIGURATIONS {
        for test in [3, 4] {
            let ping = |test: u32| Some(out.measures.get(&format!("t{test}.{id}.ping_ms"))?[0]);
            if let (Some(mixed), Some(burners)) = (ping(7), ping(test)) {
                out.measures.set_one(format!("t7.{id}.ping_times_t{test}"), mixed / burners);
            }
        }
    }
    Ok(out)
}

/// How far the mean bandwidth of streams and the mean share of burning guests in one test are from those in
/// another, in percent of the latter, whatever the direction.
fn changes(out: &mut Outcome, test: u32, from: u32) {
    for Configuration { id, .. } in &CONFIGURATIONS {
        for name in ["bandwidth_mbit_s", "burn_percent"] {
            let mean = |test: u32| Some(out.measures.get(&format!("t{test}.{id}.{name}.mean"))?[0]);
            if let (Some(now), Some(before)) = (mean(test), mean(from)) {
                let change = (now / before - 1.0).abs() * 100.0;
                out.measures.set_one(format!("t{test}.{id}.{name}.change"), change);
            }
        }
    }
}

/// Fig. 2: seven burning guests and nothing else, in the original.
pub(crate) fn burners(options: &Options, progress: Progress<'_>) -> Result<Outcome, Error> {
    const ALONE: Test = Test { ping: None, ..TESTS[2] };
    let scenarios = [scenario(&CONFIGURATIONS[0], &ALONE, options)];
    let keep = |host: &Host, results: &Results| measure(&ALONE, host, results).burns;
    let shares = run_all("Fig. 2", &scenarios, progress, as_written, keep)?.concat();
    let mut out = Outcome::default();
    let (low, high) = range(&shares);
    out.measures.set_one("fig2.burn_percent.min", low);
    out.measures.set_one("fig2.burn_percent.max", high);
    let columns = ["configuration", "burning, % each", "least", "greatest"];
    let mut table = Table::new("fig2", "Fig. 2: burn x 7 and nothing else", &columns);
    let mut row = vec![CONFIGURATIONS[0].id.to_string()];
    row.extend([mean(&shares), low, high].map(number));
    table.rows.push(row);
    out.tables.push(table);
    Ok(out)
}

/// Streams other than those of `guests.toml`.
struct Streams {
    id: &'static str,
    name: &'static str,
    keys: &'static [&'static str],
}

/// The paper prints neither the streams' windows nor the congestion control of the machine that sends them.
/// TCP's begins with 3 packets here, as Linux did before 2.6.39, and may have 1024 packets on their way: more
/// than all queues hold, so that losses end its growth.
const STREAMS: [Streams; 4] = [
    Streams { id: "w16", name: "16 packets", keys: &["window=16"] },
    Streams { id: "w128", name: "128 packets", keys: &["window=128"] },
    Streams {
        id: "reno",
        name: "Reno",
        keys: &["window=1024", "congestion_control=reno", "initial_window=3"],
    },
    Streams {
        id: "cubic",
        name: "CUBIC",
        keys: &["window=1024", "congestion_control=cubic", "initial_window=3"],
    },
];

/// Tests 1 and 2 with other streams, and test 5 in the original.
pub(crate) fn windows(options: &Options, progress: Progress<'_>) -> Result<Outcome, Error> {
    let mut out = Outcome::default();
    let columns = ["test", "streams", "configuration", "streams, Mbit/s", "least", "greatest", "ping, ms"];
    let mut table = Table::new("windows", "Tests 1, 2 and 5 with other streams", &columns);
    for (test, configurations) in [
        (&TESTS[0], &CONFIGURATIONS[..]),
        (&TESTS[1], &CONFIGURATIONS[..]),
        (&TESTS[4], &CONFIGURATIONS[..1]),
    ] {
        for streams in &STREAMS {
            let set = |s: Scenario, guest: &u32| {
                streams.keys.iter().fold(s, |s, key| s.set(format!("flow.stream{guest}.{key}")))
            };
            let scenario = |c| test.streams.iter().fold(scenario(c, test, options), set);
            let scenarios: Vec<_> = configurations.iter().map(scenario).collect();
            let keep = |host: &Host, results: &Results| measure(test, host, results);
            let cells = run_all("windows", &scenarios, progress, as_written, keep)?;
            for (configuration, cell) in configurations.iter().zip(&cells) {
                let prefix = format!("windows.t{}.{}.{}", test.number, streams.id, configuration.id);
                add_measures(&mut out, &prefix, test, cell);
                let names = [&test.number.to_string(), streams.name, configuration.id];
                let mut row = names.map(String::from).to_vec();
                let (low, high) = range(&cell.bandwidths);
                row.extend([mean(&cell.bandwidths), low, high].map(number));
                row.push(test.ping.map_or("-".into(), |_| number(cell.ping_mean_ms())));
                table.rows.push(row);
            }
        }
    }
    out.tables.push(table);
    Ok(out)
}

/// SEDF with the same slice for everybody, which `papers/vmm-io/guests.toml` does not have.
const EQUAL_SLICES: [&str; 3] =
    ["domain.dom0.budget=11ms", "domain.dom0.period=100ms", "domain.*.budget=11ms"];

/// All tests under SEDF with equal slices: the paper prints none.
pub(crate) fn slices(options: &Options, progress: Progress<'_>) -> Result<Outcome, Error> {
    let mut out = Outcome::default();
    let columns = [
        "test",
        "configuration",
        "streams, Mbit/s",
        "least",
        "greatest",
        "burning, % each",
        "ping, ms",
        "sd",
    ];
    let title = "All tests under SEDF with 11 ms in 100 ms for every domain";
    let mut table = Table::new("readings", title, &columns);
    for test in &TESTS {
        let sedf: Vec<_> = CONFIGURATIONS.iter().filter(|c| c.policy == sedf::NAME).collect();
        let equal = |s: Scenario| EQUAL_SLICES.into_iter().fold(s, Scenario::set);
        let scenarios: Vec<_> = sedf.iter().map(|c| equal(scenario(c, test, options))).collect();
        let keep = |host: &Host, results: &Results| measure(test, host, results);
        let cells = run_all("Readings", &scenarios, progress, as_written, keep)?;
        for (configuration, cell) in sedf.iter().zip(&cells) {
            let prefix = format!("readings.equal.t{}.{}", test.number, configuration.id);
            add_measures(&mut out, &prefix, test, cell);
            let mut row = vec![test.number.to_string(), configuration.id.to_string()];
            let (low, high) = range(&cell.bandwidths);
            let streams = [mean(&cell.bandwidths), low, high].map(number);
            row.extend(if test.streams.is_empty() { ["-"; 3].map(String::from) } else { streams });
            row.push(if test.burns.is_empty() { "-".into() } else { number(mean(&cell.burns)) });
            let ping = [cell.ping_mean_ms(), cell.ping_sd_ms()].map(number);
            row.extend(if test.ping.is_none() { ["-"; 2].map(String::from) } else { ping });
            table.rows.push(row);
        }
    }
    out.tables.push(table);
    Ok(out)
}

/// Adds a test's table, measures and figures.
fn add_test(out: &mut Outcome, test: &Test, cells: &[Cell], paper: &VmmIo) {
    let title = format!("Test {}, Fig. {}: {}", test.number, test.figure, test.title);
    let mut table = Table::new(&format!("test{}", test.number), &title, &columns(test));
    let mut bars = Bars::default();
    for (configuration, cell) in CONFIGURATIONS.iter().zip(cells) {
        table.rows.push(add_cell(out, &mut bars, test, configuration.id, cell, paper));
    }
    out.tables.push(table);
    let parts = [
        ("bandwidth", "Mbit/s", bars.bandwidths, false),
        ("burn", "processor, % each", bars.burns, false),
        ("ping", "round trip, ms", bars.pings, true),
    ];
    for (part, y, columns, logarithmic) in parts.into_iter().filter(|(_, _, columns, _)| !columns.is_empty())
    {
        out.ranges.push(RangeFigure {
            id: format!("fig{}-{part}", test.figure),
            title: format!("vmm-io Fig. {}: {}", test.figure, test.title),
            y: y.into(),
            logarithmic,
            columns,
        });
    }
}

/// The headings of a test's table.
fn columns(test: &Test) -> Vec<&'static str> {
    let mut columns = vec!["configuration"];
    if !test.streams.is_empty() {
        columns.extend(["streams, Mbit/s", "least", "greatest"]);
    }
    if !test.burns.is_empty() {
        columns.extend(["burning, % each", "least", "greatest"]);
    }
    columns.push("driver, %");
    if test.ping.is_some() {
        columns.extend(["ping, ms", "sd", "pings", "paper, ms"]);
    }
    columns
}

/// The columns of a test's figures, one for each configuration.
#[derive(Default)]
struct Bars {
    bandwidths: Vec<RangeColumn>,
    burns: Vec<RangeColumn>,
    pings: Vec<RangeColumn>,
}

/// Adds what configuration `id` showed to measures and figures, and returns its row of the table.
fn add_cell(
    out: &mut Outcome,
    bars: &mut Bars,
    test: &Test,
    id: &str,
    cell: &Cell,
    paper: &VmmIo,
) -> Vec<String> {
    let prefix = format!("t{}.{id}", test.number);
    add_measures(out, &prefix, test, cell);
    let mut row = vec![id.to_string()];
    for (_, [(_, mean), (_, low), (_, high), ..]) in cell.ranges() {
        row.extend([mean, low, high].map(number));
    }
    for (values, columns) in [(&cell.bandwidths, &mut bars.bandwidths), (&cell.burns, &mut bars.burns)] {
        if !values.is_empty() {
            columns.push(RangeFigure::bar(id, values));
        }
    }
    row.push(number(cell.driver_percent));
    if test.ping.is_some() {
        let (mean, sd) = (cell.ping_mean_ms(), cell.ping_sd_ms());
        let printed = paper.ping.iter().find(|p| p.test == test.number && p.configuration == id);
        row.extend([number(mean), number(sd), cell.ping.count().to_string()]);
        row.push(printed.map_or("-".into(), |p| number(p.mean_ms)));
        bars.pings.push(RangeFigure::mean_and_deviation(id, mean, sd));
    }
    row
}

fn add_measures(out: &mut Outcome, prefix: &str, test: &Test, cell: &Cell) {
    for (name, ends) in cell.ranges() {
        for (end, value) in ends {
            out.measures.set_one(format!("{prefix}.{name}.{end}"), value);
        }
    }
    out.measures.set_one(format!("{prefix}.driver_percent"), cell.driver_percent);
    if test.ping.is_some() {
        out.measures.set_one(format!("{prefix}.ping_ms"), cell.ping_mean_ms());
        out.measures.set_one(format!("{prefix}.ping_sd_ms"), cell.ping_sd_ms());
        out.measures.set_one(format!("{prefix}.pings"), cell.ping.count() as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::{Verdict, verdict_on};
    use crate::measures::Measures;

    /// The spreads of seven streams as shipped and with the fix alone, which looks for events by `scan`.
    fn spreads(scan: &str) -> Measures {
        let mut out = Outcome::default();
        let options = Options { quick: true, ..Options::default() };
        for (id, scan) in [("orig", "word"), ("tb", scan)] {
            let configuration = CONFIGURATIONS.iter().find(|c| c.id == id).unwrap();
            let scenario = scenario(configuration, &TESTS[0], &options);
            let scenario = scenario.set(format!("network.lan.scan={scan}"));
            let host = scenario.host().unwrap();
            let cell = measure(&TESTS[0], &host, &scenario.simulate(&host).unwrap());
            add_measures(&mut out, &format!("t1.{id}"), &TESTS[0], &cell);
        }
        out.measures
    }

    #[test]
    fn without_the_event_channel_fix_the_claim_about_it_turns() {
        let claims = crate::papers::vmm_io().1;
        let id = "the-fix-narrows-the-spread";
        assert_eq!(verdict_on(&claims, id, &spreads("resume")), Verdict::Agrees);
        assert_eq!(verdict_on(&claims, id, &spreads("word")), Verdict::Differs);
    }

    #[test]
    fn a_ping_that_is_given_up_counts_as_its_timeout_and_a_lost_one_does_not() {
        let mut ping = Histogram::new();
        ping.record(Duration::from_ms(10));
        ping.record(Duration::from_ms(20));
        let cell = |given_up, waiting_ms| Cell {
            bandwidths: Vec::new(),
            burns: Vec::new(),
            driver_percent: 0.0,
            ping: ping.clone(),
            given_up: (given_up, Duration::from_secs(1)),
            waiting: Duration::from_ms(waiting_ms),
        };
        assert_eq!(cell(0, 5).ping_mean_ms(), 15.0);
        assert_eq!(cell(1, 5).ping_mean_ms(), 1030.0 / 3.0);
        assert_eq!(cell(0, 900).ping_mean_ms(), 930.0 / 3.0);
    }

    /// In test 6 some pings are lost at the card: with a timeout of minutes the first would have ended them.
    #[test]
    fn a_lost_ping_does_not_end_the_pings() {
        let configuration = CONFIGURATIONS.iter().find(|c| c.id == "ts").unwrap();
        let scenario = scenario(configuration, &TESTS[5], &Options::default());
        let scenario = scenario.duration(Duration::from_secs(4));
        let host = scenario.host().unwrap();
        let cell = measure(&TESTS[5], &host, &scenario.simulate(&host).unwrap());
        assert!(cell.ping.count() > 100 && cell.ping_mean_ms() < 20.0, "{}", cell.ping_mean_ms());
    }
}
