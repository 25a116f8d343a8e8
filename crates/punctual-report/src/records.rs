//! Results as tables of records, for spreadsheets and data frames: CSV here, Parquet in [`crate::parquet`].
//!
//! A record has one thing (a task, a vCPU, ...) of one result; its columns are the metrics, times in ns with `_ns`
//! at the end of the name. The table `distributions` has the buckets of every distribution.

use std::io::{self, Write};

use punctual_model::Recorder;
use punctual_model::results::{JobStats, Source};

use crate::html::Column;

/// A field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A name.
    Text(String),
    /// A count, or a time in ns.
    Number(u64),
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
                Value::Text(text) => text.clone(),
                Value::Number(number) => number.to_string(),
            }))?;
        }
        out.flush()
    }
}

type Summary = fn(&Recorder) -> u64;

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

fn summary(of: &Recorder) -> impl Iterator<Item = Value> {
    SUMMARY.iter().map(move |(_, number)| Value::Number(number(of)))
}

fn jobs(of: &JobStats) -> impl Iterator<Item = Value> {
    let counts = [of.released, of.completed, of.due, of.missed].map(Value::Number);
    let distributions = [&of.response, &of.tardiness, &of.start_latency];
    counts.into_iter().chain(distributions.into_iter().flat_map(summary))
}

/// A distribution with the names that identify it.
pub struct Distribution<'a> {
    /// Label of the result.
    pub result: &'a str,
    /// `task` or `vcpu`.
    pub of: &'static str,
    /// Domain or pool; empty for vCPUs, whose names have the domain's.
    pub parent: &'a str,
    /// Name of the task or vCPU.
    pub name: &'a str,
    /// `response`, `tardiness`, `start_latency` or `wake_latency`.
    pub metric: &'static str,
    /// The durations.
    pub recorder: &'a Recorder,
    /// Length of the runs together, in ns.
    pub length_ns: u64,
}

/// Every distribution that counted something, of tasks and then vCPUs.
pub fn distributions(columns: &[Column]) -> Vec<Distribution<'_>> {
    let mut all = Vec::new();
    for Column { label, results } in columns {
        let length_ns = results.duration_ns.saturating_mul(results.runs.into());
        for task in &results.tasks {
            let of = [
                ("response", &task.jobs.response),
                ("tardiness", &task.jobs.tardiness),
                ("start_latency", &task.jobs.start_latency),
            ];
            all.extend(of.map(|(metric, recorder)| Distribution {
                result: label,
                of: "task",
                parent: &task.parent,
                name: &task.name,
                metric,
                recorder,
                length_ns,
            }));
        }
        all.extend(results.vcpus.iter().map(|vcpu| Distribution {
            result: label,
            of: "vcpu",
            parent: "",
            name: &vcpu.name,
            metric: "wake_latency",
            recorder: &vcpu.wake_latency,
            length_ns,
        }));
    }
    all.retain(|distribution| distribution.recorder.count() > 0);
    all
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
        buckets(columns),
    ]
}

fn runs(columns: &[Column]) -> Records {
    let names = ["result", "source", "host", "program", "seed", "runs", "duration_ns", "events"];
    let mut table = Records::new("runs", &names);
    for Column { label, results } in columns {
        table.rows.push(vec![
            label.as_str().into(),
            source(results.source).into(),
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

/// As in JSON.
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
            row.extend([task.cpu_time_ns, task.context_switches, task.migrations].map(Value::Number));
            table.rows.push(row);
        }
    }
    table
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
            let counts = [
                vcpu.cpu_time_ns,
                vcpu.idled_away_ns,
                vcpu.wakes,
                vcpu.sleeps,
                vcpu.exhaustions,
                vcpu.replenishments,
                vcpu.context_switches,
                vcpu.migrations,
            ];
            row.extend(counts.map(Value::Number));
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
                domain.cpu_time_ns,
                domain.decisions,
                domain.context_switches,
                domain.migrations,
                domain.exhaustions,
                domain.replenishments,
            ];
            row.extend(counts.map(Value::Number));
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
            let counts = [
                processor.processor as u64,
                processor.busy_ns,
                processor.idle_ns,
                processor.overhead_ns,
                processor.decisions,
                processor.context_switches,
            ];
            row.extend(counts.map(Value::Number));
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
            let counts = [
                pool.processors as u64,
                pool.busy_ns,
                pool.idle_ns,
                pool.overhead_ns,
                pool.decisions,
                pool.context_switches,
                pool.migrations,
                pool.exhaustions,
                pool.replenishments,
            ];
            row.extend(counts.map(Value::Number));
            table.rows.push(row);
        }
    }
    table
}

fn buckets(columns: &[Column]) -> Records {
    let names = ["result", "of", "parent", "name", "metric", "low_ns", "high_ns", "count"];
    let mut table = Records::new("distributions", &names);
    for distribution in distributions(columns) {
        for (low, high, count) in distribution.recorder.ranges_ns() {
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
