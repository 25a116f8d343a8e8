//! Results as tables of records, for spreadsheets and data frames: CSV here, Parquet in `crate::parquet`.
//!
//! A record has one thing (a task, a vCPU, ...) of one result; its columns are the metrics, times in ns with
//! `_ns` at the end of the name. The table `distributions` has the buckets of every distribution.

use std::io::{self, Write};

use punctual_model::Histogram;
use punctual_model::results::{
    CauseTime, Enforcement, JobStats, PacketCounts, Segment, SegmentResult, Source, TaskBlame, TaskResult,
    UnitCounts,
};

use crate::Column;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    Text(String),
    /// A count, or a time in ns.
    Number(u64),
    /// What was not measured: an empty cell.
    Unmeasured,
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.to_owned())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Value::Number(number)
    }
}

impl From<Option<u64>> for Value {
    fn from(number: Option<u64>) -> Self {
        number.map_or(Value::Unmeasured, Value::Number)
    }
}

/// Records with the same columns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Records {
    /// What they are about; the name of a file.
    pub name: &'static str,
    /// Names of the columns: `result`, then names, then metrics.
    pub columns: Vec<String>,
    /// As many values as columns each.
    pub rows: Vec<Vec<Value>>,
}

impl Records {
    fn new(name: &'static str, columns: &[&str]) -> Self {
        Records { name, columns: columns.iter().map(|c| (*c).to_owned()).collect(), rows: Vec::new() }
    }

    fn with_jobs(mut self) -> Self {
        self.columns.extend(["released", "completed", "due", "missed"].map(String::from));
        ["response", "tardiness", "start_latency"].into_iter().for_each(|of| self.distribution(of));
        self
    }

    fn with_packets(mut self) -> Self {
        self.columns.extend(PACKETS.map(String::from));
        self
    }

    /// Of each part of a packet's way: mean, 99th percentile and maximum, 0 where no packet spent any time.
    fn with_segments(mut self) -> Self {
        for segment in Segment::ALL {
            let metric = segment_metric(segment);
            self.columns.extend(SEGMENT_SUMMARY.iter().map(|(name, _)| format!("{metric}_{name}_ns")));
        }
        self
    }

    fn distribution(&mut self, of: &str) {
        self.columns.extend(SUMMARY.iter().map(|(name, _)| format!("{of}_{name}_ns")));
    }

    /// As CSV with a header.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_csv(&self, out: impl Write) -> io::Result<()> {
        let mut out = csv::Writer::from_writer(out);
        out.write_record(&self.columns)?;
        for row in &self.rows {
            out.write_record(row.iter().map(|value| match value {
                Value::Text(text) => csv_cell(text),
                Value::Number(number) => number.to_string(),
                Value::Unmeasured => String::new(),
            }))?;
        }
        out.flush()
    }
}

/// A text as a cell of CSV that no spreadsheet takes for a formula: an apostrophe stands before what begins
/// like one (OWASP, "CSV Injection").
pub(crate) fn csv_cell(text: &str) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) {
        format!("'{text}")
    } else {
        text.to_owned()
    }
}

type Summary = fn(&Histogram) -> u64;

/// What a record says about a distribution.
const SUMMARY: [(&str, Summary); 8] = [
    ("min", |r| r.min().as_ns()),
    ("mean", |r| r.mean().as_ns()),
    ("stddev", |r| r.stddev().as_ns()),
    ("p50", |r| r.quantile_ppm(500_000).as_ns()),
    ("p90", |r| r.quantile_ppm(900_000).as_ns()),
    ("p99", |r| r.quantile_ppm(990_000).as_ns()),
    ("p999", |r| r.quantile_ppm(999_000).as_ns()),
    ("max", |r| r.max().as_ns()),
];

/// What a record says about a distribution: nothing where it counted nothing.
fn summary(of: &Histogram) -> impl Iterator<Item = Value> {
    SUMMARY.iter().map(move |(_, number)| (of.count() > 0).then(|| number(of)).into())
}

fn jobs(of: &JobStats) -> impl Iterator<Item = Value> {
    let counts = [of.released, of.completed, of.due, of.missed].map(Value::Number);
    let distributions = [&of.response, &of.tardiness, &of.start_latency];
    counts.into_iter().chain(distributions.into_iter().flat_map(summary))
}

const PACKETS: [&str; 9] = [
    "created",
    "delivered",
    "dropped_send_queue",
    "dropped_nic",
    "dropped_softnet",
    "dropped_destination_ring",
    "dropped_unknown",
    "in_flight",
    "bytes",
];

fn packets(of: &PacketCounts) -> impl Iterator<Item = Value> {
    let dropped = of.dropped;
    let drops = [dropped.send_queue, dropped.nic, dropped.softnet, dropped.destination_ring, dropped.unknown];
    let counts = [of.created, of.delivered].into_iter().chain(drops).chain([of.in_flight, of.bytes]);
    counts.map(Value::Number)
}

const SEGMENT_SUMMARY: [(&str, Summary); 3] = [
    ("mean", |r| r.mean().as_ns()),
    ("p99", |r| r.quantile_ppm(990_000).as_ns()),
    ("max", |r| r.max().as_ns()),
];

fn segments(parts: &[SegmentResult]) -> impl Iterator<Item = Value> {
    let of = |segment| parts.iter().find(|part| part.segment == segment);
    Segment::ALL.into_iter().flat_map(move |segment| {
        let part = of(segment);
        SEGMENT_SUMMARY.map(|(_, number)| Value::Number(part.map_or(0, |part| number(&part.time))))
    })
}

/// The name of the time in a part of a packet's way; the ending is that of the JSON.
fn segment_metric(segment: Segment) -> &'static str {
    match segment {
        Segment::GuestSend => "segment_guest_send",
        Segment::Link => "segment_link",
        Segment::DriverWait => "segment_driver_wait",
        Segment::Tx => "segment_tx",
        Segment::Softnet => "segment_softnet",
        Segment::Rx => "segment_rx",
        Segment::EventDelivery => "segment_event_delivery",
        Segment::VcpuWait => "segment_vcpu_wait",
        Segment::GuestReceive => "segment_guest_receive",
        Segment::Service => "segment_service",
        Segment::Card => "segment_card",
        Segment::HostReceive => "segment_host_receive",
        Segment::Guest => "segment_guest",
        Segment::HostSend => "segment_host_send",
    }
}

/// A distribution with the names that identify it.
pub struct Distribution<'a> {
    pub result: &'a str,
    /// `task`, `vcpu`, `flow` or `chain`.
    pub of: &'static str,
    /// Domain, pool or network; empty for vCPUs, whose names have the domain's, and for chains.
    pub parent: &'a str,
    /// Name of the task, vCPU, flow or chain.
    pub name: &'a str,
    /// `response`, `tardiness`, `start_latency`, `wake_latency`, `latency` or `segment_` and the part of the
    /// way.
    pub metric: &'static str,
    pub histogram: &'a Histogram,
    /// Length of the runs together, in ns.
    pub length_ns: u64,
}

/// Every distribution that counted something, of tasks, vCPUs, flows and chains.
pub fn distributions(columns: &[Column]) -> Vec<Distribution<'_>> {
    let mut all = Vec::new();
    for Column { label, results } in columns {
        let length_ns = results.duration_ns.saturating_mul(results.runs.into());
        let mut add = |of, parent, name, metric, histogram| {
            all.push(Distribution { result: label, of, parent, name, metric, histogram, length_ns });
        };
        for task in &results.tasks {
            for (metric, histogram) in of_jobs(&task.jobs) {
                add("task", &task.parent, &task.name, metric, histogram);
            }
        }
        for vcpu in &results.vcpus {
            add("vcpu", "", &vcpu.name, "wake_latency", &vcpu.wake_latency);
        }
        for flow in &results.flows {
            add("flow", &flow.network, &flow.name, "latency", &flow.latency);
            for part in &flow.segments {
                add("flow", &flow.network, &flow.name, segment_metric(part.segment), &part.time);
            }
        }
        for chain in &results.chains {
            for (metric, histogram) in of_jobs(&chain.jobs) {
                add("chain", "", &chain.name, metric, histogram);
            }
            for part in &chain.segments {
                add("chain", "", &chain.name, segment_metric(part.segment), &part.time);
            }
        }
    }
    all.retain(|distribution| distribution.histogram.count() > 0);
    all
}

fn of_jobs(jobs: &JobStats) -> [(&'static str, &Histogram); 3] {
    [("response", &jobs.response), ("tardiness", &jobs.tardiness), ("start_latency", &jobs.start_latency)]
}

/// All tables of the results; the same results give the same tables.
pub fn records(columns: &[Column]) -> Vec<Records> {
    vec![
        runs(columns),
        tasks(columns),
        vcpus(columns),
        domains(columns),
        processors(columns),
        pools(columns),
        flows(columns),
        chains(columns),
        networks(columns),
        blame(columns),
        worst_jobs(columns),
        enforcement(columns),
        deliveries(columns),
        host(columns),
        disturbances(columns),
        buckets(columns),
    ]
}

fn runs(columns: &[Column]) -> Records {
    let names = ["result", "source", "machine", "host", "program", "seed", "runs", "duration_ns", "events"];
    let mut table = Records::new("runs", &names);
    for Column { label, results } in columns {
        table.rows.push(vec![
            label.as_str().into(),
            source(results.source).into(),
            results.machine.as_deref().unwrap_or_default().into(),
            results.host.as_str().into(),
            results.program.as_str().into(),
            results.seed.into(),
            u64::from(results.runs).into(),
            results.duration_ns.into(),
            results.events.into(),
        ]);
    }
    table
}

pub(crate) fn source(source: Source) -> &'static str {
    match source {
        Source::Simulation => "simulation",
        Source::Live => "live",
    }
}

fn tasks(columns: &[Column]) -> Records {
    let mut table = Records::new("tasks", &["result", "parent", "name"]).with_jobs();
    table.columns.extend(["cpu_time_ns", "context_switches", "migrations"].map(String::from));
    for Column { label, results } in columns {
        for task in &results.tasks {
            let mut row: Vec<Value> =
                vec![label.as_str().into(), task.parent.as_str().into(), task.name.as_str().into()];
            row.extend(jobs(&task.jobs));
            row.push(task.cpu_time_ns.into());
            row.extend([task.context_switches, task.migrations].map(Value::from));
            table.rows.push(row);
        }
    }
    table
}

/// Why jobs took as long as they did: a row for each task, group of jobs and cause.
fn blame(columns: &[Column]) -> Records {
    let names = ["result", "parent", "name", "of", "jobs", "cause", "by", "time_ns"];
    let mut table = Records::new("blame", &names);
    for (label, task, blame) in blamed_tasks(columns) {
        for (of, sum) in [("all", &blame.all), ("late", &blame.late), ("slowest", &blame.slowest)] {
            for cause in &sum.causes {
                let mut row: Vec<Value> = [label, &task.parent, &task.name, of].map(Value::from).into();
                row.push(sum.jobs.into());
                row.extend(cause_values(cause));
                table.rows.push(row);
            }
        }
    }
    table
}

/// The slowest jobs of each task: a row for each job and cause.
fn worst_jobs(columns: &[Column]) -> Records {
    let names = [
        "result",
        "parent",
        "name",
        "run",
        "job",
        "release_ns",
        "response_ns",
        "missed",
        "cause",
        "by",
        "time_ns",
    ];
    let mut table = Records::new("worst_jobs", &names);
    for (label, task, blame) in blamed_tasks(columns) {
        for job in &blame.worst {
            let numbers = [job.run.into(), job.job, job.release_ns, job.response_ns, job.missed.into()];
            for cause in &job.causes {
                let mut row: Vec<Value> = [label, &task.parent, &task.name].map(Value::from).into();
                row.extend(numbers.map(Value::Number));
                row.extend(cause_values(cause));
                table.rows.push(row);
            }
        }
    }
    table
}

/// What enforcement did, of pools that were under it.
fn enforcement(columns: &[Column]) -> Records {
    let names = ["result", "name", "looks", "enforcer_ns", "session_ns", "stolen_ns", "demotions", "graces"];
    let mut table = Records::new("enforcement", &names);
    ["overrun", "replenishment_lateness", "look_lateness"].into_iter().for_each(|of| table.distribution(of));
    for Column { label, results } in columns {
        for (pool, done) in results.pools.iter().filter_map(|pool| Some((pool, pool.enforcement.as_ref()?))) {
            let mut row: Vec<Value> = vec![label.as_str().into(), pool.name.as_str().into()];
            let &Enforcement { looks, enforcer_ns, session_ns, stolen_ns, demotions, graces, .. } = done;
            let counts = [looks, enforcer_ns, session_ns, stolen_ns, demotions, graces];
            row.extend(counts.map(Value::Number));
            for of in [&done.overrun, &done.replenishment_lateness, &done.look_lateness] {
                row.extend(summary(of));
            }
            table.rows.push(row);
        }
    }
    table
}

/// What vCPUs of a live run were delivered.
fn deliveries(columns: &[Column]) -> Records {
    let names = ["result", "name", "periods", "delivered", "longest_without_ns"];
    let mut table = Records::new("deliveries", &names);
    table.distribution("wait");
    for Column { label, results } in columns {
        for (vcpu, of) in results.vcpus.iter().filter_map(|vcpu| Some((vcpu, vcpu.delivery.as_ref()?))) {
            let mut row: Vec<Value> = vec![label.as_str().into(), vcpu.name.as_str().into()];
            row.extend([of.periods, of.delivered, of.longest_without_ns].map(Value::Number));
            row.extend(summary(&of.wait));
            table.rows.push(row);
        }
    }
    table
}

/// What processors of a live run did beside their pools' work, and how they were taken away.
fn host(columns: &[Column]) -> Records {
    let names = [
        "result",
        "pool",
        "processor",
        "others_ns",
        "interrupts_ns",
        "steal_ns",
        "disturbances",
        "disturbed_ns",
        "disturbance_longest_ns",
    ];
    let mut table = Records::new("host_processors", &names);
    for Column { label, results } in columns {
        for processor in &results.processors {
            let (Some(host), Some(disturbance)) = (processor.host, &processor.disturbance) else { continue };
            let mut row: Vec<Value> =
                vec![label.as_str().into(), processor.pool.as_deref().unwrap_or_default().into()];
            let numbers = [
                processor.processor as u64,
                host.others_ns,
                host.interrupts_ns,
                host.steal_ns,
                disturbance.count,
                disturbance.time_ns,
                disturbance.longest_ns,
            ];
            row.extend(numbers.map(Value::Number));
            table.rows.push(row);
        }
    }
    table
}

/// The times in which processors were taken away from their pools.
fn disturbances(columns: &[Column]) -> Records {
    let names = ["result", "pool", "processor", "from_ns", "until_ns", "cause", "by"];
    let mut table = Records::new("disturbances", &names);
    for Column { label, results } in columns {
        for processor in &results.processors {
            for interval in processor.disturbance.iter().flat_map(|of| &of.intervals) {
                table.rows.push(vec![
                    label.as_str().into(),
                    processor.pool.as_deref().unwrap_or_default().into(),
                    (processor.processor as u64).into(),
                    interval.from_ns.into(),
                    interval.until_ns.into(),
                    interval.cause.name().into(),
                    interval.by.as_deref().unwrap_or_default().into(),
                ]);
            }
        }
    }
    table
}

fn blamed_tasks(columns: &[Column]) -> impl Iterator<Item = (&str, &TaskResult, &TaskBlame)> {
    columns.iter().flat_map(|Column { label, results }| {
        results.tasks.iter().filter_map(|task| Some((label.as_str(), task, task.blame.as_ref()?)))
    })
}

fn cause_values(cause: &CauseTime) -> [Value; 3] {
    [cause.cause.name().into(), cause.by.as_deref().unwrap_or_default().into(), cause.time_ns.into()]
}

fn vcpus(columns: &[Column]) -> Records {
    let names = [
        "result",
        "name",
        "cpu_time_ns",
        "idled_away_ns",
        "wakes",
        "sleeps",
        "exhaustions",
        "replenishments",
        "context_switches",
        "migrations",
    ];
    let mut table = Records::new("vcpus", &names);
    table.distribution("wake_latency");
    for Column { label, results } in columns {
        for vcpu in &results.vcpus {
            let mut row: Vec<Value> = vec![label.as_str().into(), vcpu.name.as_str().into()];
            let of = |count: fn(UnitCounts) -> u64| vcpu.counts.map(count);
            let counts = [
                Some(vcpu.cpu_time_ns),
                of(|counts| counts.idled_away_ns),
                of(|counts| counts.wakes),
                of(|counts| counts.sleeps),
                of(|counts| counts.exhaustions),
                of(|counts| counts.replenishments),
                vcpu.context_switches,
                vcpu.migrations,
            ];
            row.extend(counts.map(Value::from));
            row.extend(summary(&vcpu.wake_latency));
            table.rows.push(row);
        }
    }
    table
}

fn domains(columns: &[Column]) -> Records {
    let mut table = Records::new("domains", &["result", "name"]).with_jobs();
    let counts =
        ["cpu_time_ns", "decisions", "context_switches", "migrations", "exhaustions", "replenishments"];
    table.columns.extend(counts.map(String::from));
    for Column { label, results } in columns {
        for domain in &results.domains {
            let mut row: Vec<Value> = vec![label.as_str().into(), domain.name.as_str().into()];
            row.extend(jobs(&domain.jobs));
            let counts = [
                Some(domain.cpu_time_ns),
                domain.decisions,
                domain.context_switches,
                domain.migrations,
                domain.exhaustions,
                domain.replenishments,
            ];
            row.extend(counts.map(Value::from));
            table.rows.push(row);
        }
    }
    table
}

fn processors(columns: &[Column]) -> Records {
    let names =
        ["result", "pool", "processor", "busy_ns", "idle_ns", "overhead_ns", "decisions", "context_switches"];
    let mut table = Records::new("processors", &names);
    for Column { label, results } in columns {
        for processor in &results.processors {
            let mut row: Vec<Value> =
                vec![label.as_str().into(), processor.pool.as_deref().unwrap_or_default().into()];
            let counts =
                [processor.processor as u64, processor.busy_ns, processor.idle_ns, processor.overhead_ns];
            row.extend(counts.map(Value::Number));
            row.extend([processor.decisions, processor.context_switches].map(Value::from));
            table.rows.push(row);
        }
    }
    table
}

fn pools(columns: &[Column]) -> Records {
    let mut table = Records::new("pools", &["result", "name", "policy"]).with_jobs();
    let counts = [
        "processors",
        "busy_ns",
        "idle_ns",
        "overhead_ns",
        "decisions",
        "context_switches",
        "migrations",
        "exhaustions",
        "replenishments",
    ];
    table.columns.extend(counts.map(String::from));
    for Column { label, results } in columns {
        for pool in &results.pools {
            let mut row: Vec<Value> =
                vec![label.as_str().into(), pool.name.as_str().into(), pool.policy.as_str().into()];
            row.extend(jobs(&pool.jobs));
            let times = [pool.processors as u64, pool.busy_ns, pool.idle_ns, pool.overhead_ns];
            row.extend(times.map(Value::Number));
            let counts = [
                pool.decisions,
                pool.context_switches,
                pool.migrations,
                pool.exhaustions,
                pool.replenishments,
            ];
            row.extend(counts.map(Value::from));
            table.rows.push(row);
        }
    }
    table
}

fn flows(columns: &[Column]) -> Records {
    let names = ["result", "network", "name", "kind", "from", "to"];
    let mut table = Records::new("flows", &names).with_packets();
    table.columns.extend(["timeouts", "retransmissions", "late"].map(String::from));
    table.distribution("latency");
    table = table.with_segments();
    for Column { label, results } in columns {
        for flow in &results.flows {
            let names = [label, &flow.network, &flow.name, &flow.kind, &flow.from, &flow.to];
            let mut row: Vec<Value> = names.map(|name| name.as_str().into()).into();
            row.extend(packets(&flow.packets));
            row.extend([flow.timeouts, flow.retransmissions, flow.late].map(Value::Number));
            row.extend(summary(&flow.latency));
            row.extend(segments(&flow.segments));
            table.rows.push(row);
        }
    }
    table
}

fn chains(columns: &[Column]) -> Records {
    let mut table =
        Records::new("chains", &["result", "name", "steps"]).with_jobs().with_packets().with_segments();
    for Column { label, results } in columns {
        for chain in &results.chains {
            let steps = chain.steps.join(" ");
            let mut row: Vec<Value> =
                vec![label.as_str().into(), chain.name.as_str().into(), steps.as_str().into()];
            row.extend(jobs(&chain.jobs));
            row.extend(packets(&chain.packets));
            row.extend(segments(&chain.segments));
            table.rows.push(row);
        }
    }
    table
}

fn networks(columns: &[Column]) -> Records {
    let names =
        ["result", "name", "driver", "discipline", "tx", "softnet", "rx", "events_handled", "events_sent"];
    let mut table = Records::new("networks", &names);
    for Column { label, results } in columns {
        for network in &results.networks {
            let names = [label, &network.name, &network.driver, &network.discipline];
            let mut row: Vec<Value> = names.map(|name| name.as_str().into()).into();
            let of = [network.tx, network.softnet, network.rx, network.events_handled, network.events_sent];
            row.extend(of.map(Value::Number));
            table.rows.push(row);
        }
    }
    table
}

fn buckets(columns: &[Column]) -> Records {
    let names = ["result", "of", "parent", "name", "metric", "low_ns", "high_ns", "count"];
    let mut table = Records::new("distributions", &names);
    for distribution in distributions(columns) {
        for (low, high, count) in distribution.histogram.ranges_ns() {
            table.rows.push(vec![
                distribution.result.into(),
                distribution.of.into(),
                distribution.parent.into(),
                distribution.name.into(),
                distribution.metric.into(),
                low.into(),
                high.into(),
                count.into(),
            ]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::{disturbed, results, under_linux, with_packets};

    fn columns() -> Vec<Column> {
        let column =
            |label: &str, results| Column { label: label.into(), results: disturbed(with_packets(results)) };
        vec![column("a", results("rtds", 24)), column("b, c", results("credit", 240))]
    }

    #[test]
    fn a_cell_that_a_spreadsheet_would_execute_is_a_text() {
        let row = ["=HYPERLINK(\"http://x\")", "+1", "-1", "@SUM(1)", "\tx", "plain", "a=b"].map(Value::from);
        let records = Records { name: "x", columns: vec!["c".into(); 7], rows: vec![row.to_vec()] };
        let mut out = Vec::new();
        records.write_csv(&mut out).expect("written");
        let text = String::from_utf8(out).expect("text");
        assert_eq!(
            text.lines().nth(1),
            Some("\"'=HYPERLINK(\"\"http://x\"\")\",'+1,'-1,'@SUM(1),'\tx,plain,a=b")
        );
    }

    #[test]
    fn every_row_has_a_value_for_every_column() {
        for table in records(&columns()) {
            assert!(!table.rows.is_empty(), "{}", table.name);
            for row in &table.rows {
                assert_eq!(row.len(), table.columns.len(), "{}", table.name);
            }
        }
    }

    #[test]
    fn tables_of_packets_as_csv() {
        let tables = records(&columns());
        let csv = |name| {
            let mut out = Vec::new();
            let table = tables.iter().find(|table| table.name == name).expect("a table");
            table.write_csv(&mut out).expect("a vector takes everything");
            String::from_utf8(out).expect("text")
        };
        insta::assert_snapshot!(["flows", "chains", "networks"].map(csv).join("\n"));
    }

    #[test]
    fn causes_of_late_jobs_are_rows_and_what_was_not_measured_has_none() {
        let tables = records(&columns());
        let rows = |name| &tables.iter().find(|table| table.name == name).expect("a table").rows;
        let row: Vec<Value> = vec![
            "a".into(),
            "video".into(),
            "task1".into(),
            "late".into(),
            3.into(),
            "preempted-by-unit".into(),
            "control.0".into(),
            33_000_000.into(),
        ];
        assert!(rows("blame").contains(&row), "{:?}", rows("blame"));
        assert_eq!(rows("blame").len(), 2 * 3 * 3, "two results, three groups of jobs, three causes");
        assert!(rows("blame").iter().chain(rows("worst_jobs")).all(|row| row[2] == "task1".into()));
        let unmeasured = records(&[Column { label: "a".into(), results: results("rtds", 24) }]);
        assert!(unmeasured.iter().all(|table| table.name != "blame" || table.rows.is_empty()));
    }

    #[test]
    fn what_a_live_run_does_not_measure_is_an_empty_cell() {
        let simulated = results("rtds", 24);
        let live = disturbed(simulated.clone());
        let columns = [("simulated", simulated), ("live", live)]
            .map(|(label, results)| Column { label: label.into(), results });
        for table in records(&columns) {
            for at in 0..table.columns.len() {
                if matches!(table.columns[at].as_str(), "context_switches" | "migrations") {
                    let is_live = |row: &Vec<Value>| row[0] == Value::from("live");
                    assert!(table.rows.iter().all(|row| is_live(row) == (row[at] == Value::Unmeasured)));
                }
            }
        }
        let mut csv = Vec::new();
        let pools = records(&columns[1..]).into_iter().find(|table| table.name == "pools").expect("a table");
        pools.write_csv(&mut csv).expect("a vector takes everything");
        assert!(String::from_utf8(csv).expect("text").ends_with(",40001,,,1236,3000\n"));
    }

    #[test]
    fn what_plain_linux_does_not_count_is_an_empty_cell() {
        let column = Column { label: "linux".into(), results: under_linux(results("rtds", 24)) };
        let counted = ["decisions", "idled_away_ns", "wakes", "sleeps", "exhaustions", "replenishments"];
        let mut seen = 0;
        for table in records(&[column]) {
            for at in (0..table.columns.len()).filter(|&at| counted.contains(&table.columns[at].as_str())) {
                seen += table.rows.len();
                assert!(table.rows.iter().all(|row| row[at] == Value::Unmeasured), "{}", table.name);
            }
        }
        assert!(seen > 10, "{seen}");
    }

    #[test]
    fn counts_of_buckets_add_up_to_the_distribution() {
        let columns = columns();
        let count = |value: &Value| if let Value::Number(n) = value { *n } else { panic!("{value:?}") };
        let all: u64 = distributions(&columns).iter().map(|of| of.histogram.count()).sum();
        let tables = records(&columns);
        let buckets = tables.iter().find(|table| table.name == "distributions").expect("a table");
        assert_eq!(buckets.rows.iter().map(|row| count(&row[7])).sum::<u64>(), all);
        assert!(all > 10_000, "{all}");
    }

    #[test]
    fn the_parts_of_a_way_are_called_as_in_json() {
        for segment in Segment::ALL {
            let json = serde_json::to_string(&segment).expect("a name");
            assert_eq!(
                segment_metric(segment),
                format!("segment_{}", json.trim_matches('"').replace('-', "_"))
            );
        }
    }
}
