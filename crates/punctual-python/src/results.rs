//! What a simulation measured.

use std::sync::{Arc, OnceLock};

use punctual_model::file::Overrides;
use punctual_model::host::Host as Pools;
use punctual_model::results::Segment;
use punctual_model::trace::{Entity, JobRecord, PacketRecord, SlicePlace, SliceRecord};
use punctual_model::{AnyHost, Results as Measured};
use punctual_report::html::{self, Page};
use punctual_report::jobs::JobsOf;
use punctual_report::records::{Records, Value, records};
use punctual_report::{Column as Labelled, json, plot, table};
use punctual_sched::{Duration, Instant};
use punctual_sim::{JobLog, PacketLog, SliceLog};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::error::{self, from_json};
use crate::policy::Factories;
use crate::reading;
use crate::signals::{self, Signals};
use crate::table::{Column, Table};
use crate::timeline;

/// What is listed beside the results.
#[derive(Clone, Copy, Default)]
pub(crate) struct Record {
    pub(crate) jobs: bool,
    pub(crate) slices: bool,
    pub(crate) packets: bool,
}

/// The tables that were listed.
#[derive(Default)]
struct Listed {
    jobs: Option<Table>,
    slices: Option<Table>,
    packets: Option<Table>,
}

/// What a simulation measured: the answer of `punctual sim`.
#[pyclass(frozen, module = "punctual")]
pub(crate) struct Results {
    host: Arc<AnyHost>,
    results: Measured,
    /// Did policies in Python schedule it? Then it cannot be simulated again without them.
    in_python: bool,
    jobs: OnceLock<Table>,
    slices: OnceLock<Table>,
    packets: OnceLock<Table>,
}

/// The file of a host that was written again, in errors.
const FILE: &str = "host.toml";

/// Why hosts with `host_stack` have no blame.
const NO_BLAME: &str = "a host with `host_stack` has no jobs to explain";

/// Simulates a host of either kind.
pub(crate) fn simulate(py: Python<'_>, host: Arc<AnyHost>, blame: bool, record: Record) -> PyResult<Results> {
    let (results, listed) = match &*host {
        AnyHost::Pools(pools) => {
            let how = if blame { How::Blamed } else { How::Plain };
            simulate_pools(py, pools, how, record)?
        }
        AnyHost::Stack(_) if blame => return Err(error::punctual(py, NO_BLAME)),
        AnyHost::Stack(_) => {
            let stack = host.clone();
            let work = move || match &*stack {
                AnyHost::Stack(stack) => Some(punctual_host_stack_sim::simulate(stack)),
                AnyHost::Pools(_) => None,
            };
            let results = signals::beside(py, work)?.ok_or_else(|| error::punctual(py, NO_BLAME))?;
            let violation = |e: punctual_host_stack_sim::Violation| punctual_sim::Error::Violation(e.0);
            (results.map_err(|e| error::simulation(py, &violation(e)))?, Listed::default())
        }
    };
    Ok(Results::new(host, results, listed, false))
}

/// Simulates a host with pools under policies in Python.
pub(crate) fn simulate_under(
    py: Python<'_>,
    host: Arc<AnyHost>,
    record: Record,
    policies: &Py<PyDict>,
) -> PyResult<Results> {
    let AnyHost::Pools(pools) = &*host else { return Err(error::punctual(py, NO_BLAME)) };
    let factories = Factories::new(py, pools, policies)?;
    let scheduled = simulate_pools(py, pools, How::Under(&factories), record);
    // The exception says more than that the simulation was stopped.
    factories.raised.take().map_or(Ok(()), Err)?;
    let (results, listed) = scheduled?;
    Ok(Results::new(host, results, listed, true))
}

/// How a host with pools is simulated.
#[derive(Clone, Copy)]
enum How<'f> {
    Plain,
    Blamed,
    Under(&'f Factories<'f>),
}

fn simulate_pools(
    py: Python<'_>,
    host: &Pools,
    how: How<'_>,
    record: Record,
) -> PyResult<(Measured, Listed)> {
    let mut signals = Signals::new();
    let (results, listed) = py.detach(|| {
        let mut jobs = record.jobs.then(|| Jobs::new(host));
        let mut slices = record.slices.then(|| Slices::new(host));
        let mut packets = record.packets.then(|| Packets::new(host));
        let job_log = jobs.as_mut().map(|jobs| JobLog::new(host, |job: &JobRecord| jobs.add(job)));
        let slice_log = slices.as_mut().map(|slices| SliceLog::new(host, |s: &SliceRecord| slices.add(s)));
        let packet_log =
            packets.as_mut().map(|packets| PacketLog::new(|p: &PacketRecord<'_>| packets.add(p)));
        let observer = (&mut signals, (job_log, (slice_log, packet_log)));
        let results = match how {
            How::Plain => punctual_sim::simulate_observed(host, observer),
            How::Blamed => punctual_sim::simulate_blamed(host, observer),
            How::Under(factories) => {
                let wrap = |parent, policy| factories.wrap(host, parent, policy);
                let observer = (factories.raised.clone(), observer);
                punctual_sim::simulate_wrapped_observed(host, observer, wrap)
            }
        };
        let listed = Listed {
            jobs: jobs.map(Jobs::finish),
            slices: slices.map(Slices::finish),
            packets: packets.map(Packets::finish),
        };
        (results, listed)
    });
    signals.check()?;
    Ok((results.map_err(|e| error::simulation(py, &e))?, listed))
}

impl Results {
    fn new(host: Arc<AnyHost>, results: Measured, listed: Listed, in_python: bool) -> Self {
        let cell = |table: Option<Table>| table.map_or_else(OnceLock::new, OnceLock::from);
        let Listed { jobs, slices, packets } = listed;
        Results { host, results, in_python, jobs: cell(jobs), slices: cell(slices), packets: cell(packets) }
    }

    /// Refuses what would simulate the host again under other policies than those of these results.
    fn can_repeat(&self, py: Python<'_>) -> PyResult<()> {
        let text = "these results are of policies in Python: ask simulate() for jobs, slices and packets";
        if self.in_python { Err(error::punctual(py, text)) } else { Ok(()) }
    }

    /// The table in `cell`; simulates once more where it was not listed.
    fn listed(
        &self,
        py: Python<'_>,
        cell: &OnceLock<Table>,
        record: Record,
        take: fn(Listed) -> Option<Table>,
    ) -> PyResult<Table> {
        if let Some(table) = cell.get() {
            return Ok(table.share());
        }
        self.can_repeat(py)?;
        let AnyHost::Pools(host) = &*self.host else {
            let text = "a host with `host_stack` has requests of flows; it lists no jobs, slices or packets";
            return Err(error::punctual(py, text));
        };
        let (_, listed) = simulate_pools(py, host, How::Plain, record)?;
        let table = take(listed).ok_or_else(|| error::punctual(py, "nothing was listed"))?;
        // Another thread may have been faster, with the same table.
        Ok(cell.get_or_init(|| table).share())
    }

    fn columns(&self) -> [Labelled; 1] {
        [Labelled { label: self.results.host.clone(), results: self.results.clone() }]
    }
}

#[pymethods]
impl Results {
    /// The host that was simulated, everything spelled out.
    #[getter]
    fn host<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        reading::host_object(py, &self.host.to_toml(), FILE)
    }

    /// The results as `punctual sim --json` prints them.
    fn to_json(&self) -> String {
        json::to_json(&self.results)
    }

    /// The same as dicts and lists.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        from_json(py, &self.to_json())
    }

    /// Counts of all jobs together, with the names of the JSON form.
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let sum = |of: fn(&punctual_model::results::JobStats) -> u64| -> u64 {
            self.results.pools.iter().map(|pool| of(&pool.jobs)).sum()
        };
        let summary = PyDict::new(py);
        summary.set_item("host", &self.results.host)?;
        summary.set_item("seed", self.results.seed)?;
        summary.set_item("duration_ns", self.results.duration_ns)?;
        summary.set_item("events", self.results.events)?;
        summary.set_item("released", sum(|jobs| jobs.released))?;
        summary.set_item("completed", sum(|jobs| jobs.completed))?;
        summary.set_item("due", sum(|jobs| jobs.due))?;
        summary.set_item("missed", sum(|jobs| jobs.missed))?;
        Ok(summary)
    }

    /// Jobs that missed their deadlines.
    #[getter]
    fn missed(&self) -> u64 {
        self.results.pools.iter().map(|pool| pool.jobs.missed).sum()
    }

    /// A row for each job, as `punctual sim --jobs` writes it.
    #[getter]
    fn jobs(&self, py: Python<'_>) -> PyResult<Table> {
        self.listed(py, &self.jobs, Record { jobs: true, ..Record::default() }, |listed| listed.jobs)
    }

    /// A row for each time in which a processor or vCPU did the same.
    #[getter]
    fn slices(&self, py: Python<'_>) -> PyResult<Table> {
        self.listed(py, &self.slices, Record { slices: true, ..Record::default() }, |listed| listed.slices)
    }

    /// A row for each packet that arrived.
    #[getter]
    fn packets(&self, py: Python<'_>) -> PyResult<Table> {
        self.listed(py, &self.packets, Record { packets: true, ..Record::default() }, |listed| listed.packets)
    }

    /// Why jobs were late; needs `simulate(blame=True)`.
    #[getter]
    fn blame(&self, py: Python<'_>) -> PyResult<Table> {
        let found = records(&self.columns()).into_iter().find(|table| table.name == "blame");
        match found.filter(|table| !table.rows.is_empty()) {
            Some(table) => Ok(of_records(&table)),
            None if self.results.tasks.iter().any(|task| task.blame.is_some()) => Ok(Table::empty()),
            None => Err(error::punctual(py, "the causes were not measured: simulate(blame=True) does")),
        }
    }

    /// The names of the tables that have rows.
    #[getter]
    fn tables(&self) -> Vec<&'static str> {
        let tables = records(&self.columns());
        tables.iter().filter(|table| !table.rows.is_empty()).map(|table| table.name).collect()
    }

    /// A table as `punctual report --csv` writes it: tasks, vcpus, domains, processors, flows and others.
    fn table(&self, name: &str) -> PyResult<Table> {
        let tables = records(&self.columns());
        match tables.iter().find(|table| table.name == name && !table.rows.is_empty()) {
            Some(table) => Ok(of_records(table)),
            None => {
                let text = format!("no table {name:?}; tables: {}", self.tables().join(", "));
                Err(PyKeyError::new_err(text))
            }
        }
    }

    /// The timeline as SVG. Without an interval it begins with the run, or at the first missed deadline.
    #[pyo3(signature = (*, begin = None, end = None, items = 3_000))]
    fn svg(&self, py: Python<'_>, begin: Option<&str>, end: Option<&str>, items: u32) -> PyResult<String> {
        self.can_repeat(py)?;
        let timeline = timeline::read(py, &self.host, begin, end, items)?;
        Ok(plot::gantt(&self.results.host, &timeline))
    }

    fn _repr_svg_(&self, py: Python<'_>) -> PyResult<String> {
        self.svg(py, None, None, 3_000)
    }

    /// Writes what happened as a Perfetto trace, as `punctual sim --trace` does.
    fn perfetto(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<()> {
        self.can_repeat(py)?;
        timeline::write_perfetto(py, &self.host, path)
    }

    /// The page of `punctual sim --report`.
    #[pyo3(signature = (*, begin = None, end = None, items = 300_000))]
    fn _report(
        &self,
        py: Python<'_>,
        begin: Option<&str>,
        end: Option<&str>,
        items: u32,
    ) -> PyResult<String> {
        self.can_repeat(py)?;
        let timeline = timeline::read(py, &self.host, begin, end, items)?;
        let host = self.host.clone();
        let guarantees = signals::beside(py, move || match &*host {
            AnyHost::Pools(host) => Some(punctual_check::check(host)),
            AnyHost::Stack(_) => None,
        })?;
        let columns = self.columns();
        Ok(py.detach(|| {
            let timeline = Some((columns[0].label.as_str(), &timeline));
            html::render(&Page { columns: &columns, guarantees: guarantees.as_ref(), timeline })
        }))
    }

    /// The page of `punctual sim --report`: shown in a notebook, or saved.
    #[pyo3(signature = (path = None, *, begin = None, end = None, items = 300_000))]
    fn report<'py>(
        &self,
        py: Python<'py>,
        path: Option<Bound<'py, PyAny>>,
        begin: Option<&str>,
        end: Option<&str>,
        items: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        let page = self._report(py, begin, end, items)?;
        let report = py.import("punctual._frames")?.call_method1("Report", (page,))?;
        if let Some(path) = path {
            report.call_method1("save", (path,))?;
        }
        Ok(report)
    }

    fn __str__(&self) -> String {
        table::summary(&self.results, false)
    }

    fn __repr__(&self) -> String {
        let due: u64 = self.results.pools.iter().map(|pool| pool.jobs.due).sum();
        format!("<punctual.Results of {:?}: {} of {due} deadlines missed>", self.results.host, self.missed())
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Results>().is_ok_and(|other| other.get().results == self.results)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let rebuild = py.get_type::<Results>().getattr("_restore")?;
        (rebuild, (self.host.to_toml(), self.to_json(), self.in_python)).into_pyobject(py)
    }

    /// Results from what pickles keep of them.
    #[staticmethod]
    fn _restore(py: Python<'_>, host: &str, text: &str, in_python: bool) -> PyResult<Self> {
        let host = Arc::new(reading::parse(py, host.as_bytes(), FILE, &Overrides::default())?);
        let results = json::from_json(text, "a pickle").map_err(|e| error::punctual(py, &e.to_string()))?;
        Ok(Results::new(host, results, Listed::default(), in_python))
    }
}

/// A table with rows.
fn of_records(table: &Records) -> Table {
    let column = |at: usize, name: &String| {
        let is_text = table.rows.iter().any(|row| matches!(row[at], Value::Text(_)));
        let mut column = if is_text { Column::texts() } else { Column::numbers() };
        for row in &table.rows {
            match &row[at] {
                Value::Text(text) => column.text(Some(text)),
                Value::Number(number) if is_text => column.text(Some(&number.to_string())),
                Value::Number(number) => column.number(Some(*number)),
                Value::Unmeasured if is_text => column.text(None),
                Value::Unmeasured => column.number(None),
            }
        }
        (name.clone(), column)
    };
    Table::new(table.columns.iter().enumerate().map(|(at, name)| column(at, name)))
}

/// The columns of jobs.
struct Jobs {
    of: JobsOf,
    task: Column,
    /// Job, release, deadline, start, finish, response.
    numbers: [Column; 6],
    missed: Column,
}

impl Jobs {
    fn new(host: &Pools) -> Self {
        let numbers = [(); 6].map(|()| Column::numbers());
        Jobs { of: JobsOf::new(host), task: Column::texts(), numbers, missed: Column::truths() }
    }

    fn add(&mut self, job: &JobRecord) {
        let ns = |at: Option<Instant>| at.map(Instant::as_ns);
        let response = job.finish.map(|finish| finish.since(job.release).as_ns());
        let (release, deadline) = (Some(job.release), Some(job.deadline));
        let row = [Some(job.job), ns(release), ns(deadline), ns(job.start), ns(job.finish), response];
        self.numbers.iter_mut().zip(row).for_each(|(column, number)| column.number(number));
        self.task.text(Some(&self.of.tasks[job.task.0]));
        self.missed.truth(job.missed);
    }

    fn finish(self) -> Table {
        let [job, release, deadline, start, finish, response] = self.numbers;
        Table::new([
            ("task", self.task),
            ("job", job),
            ("release_ns", release),
            ("deadline_ns", deadline),
            ("start_ns", start),
            ("finish_ns", finish),
            ("response_ns", response),
            ("missed", self.missed),
        ])
    }
}

/// The columns of slices.
struct Slices {
    processors: Vec<String>,
    vcpus: Vec<String>,
    tasks: Vec<String>,
    /// Level, place, unit.
    texts: [Column; 3],
    /// From, begin, end.
    numbers: [Column; 3],
    idled_away: Column,
}

impl Slices {
    fn new(host: &Pools) -> Self {
        Slices {
            processors: (0..host.processors).map(|processor| processor.to_string()).collect(),
            vcpus: host.vcpus.iter().map(|vcpu| vcpu.name.clone()).collect(),
            tasks: JobsOf::new(host).tasks,
            texts: [(); 3].map(|()| Column::texts()),
            numbers: [(); 3].map(|()| Column::numbers()),
            idled_away: Column::truths(),
        }
    }

    fn add(&mut self, slice: &SliceRecord) {
        let (level, place) = match slice.place {
            SlicePlace::Processor(processor) => ("processor", &self.processors[processor]),
            SlicePlace::Vcpu(vcpu) => ("vcpu", &self.vcpus[vcpu.0]),
        };
        let unit = match slice.unit {
            Entity::Vcpu(vcpu) => &self.vcpus[vcpu.0],
            Entity::Task(task) => &self.tasks[task.0],
        };
        let texts = [level, place, unit];
        self.texts.iter_mut().zip(texts).for_each(|(column, text)| column.text(Some(text)));
        let times = [slice.from, slice.start, slice.end];
        self.numbers.iter_mut().zip(times).for_each(|(column, at)| column.number(Some(at.as_ns())));
        self.idled_away.truth(slice.idled_away);
    }

    fn finish(self) -> Table {
        let [level, place, unit] = self.texts;
        let [from, begin, end] = self.numbers;
        Table::new([
            ("level", level),
            ("place", place),
            ("unit", unit),
            ("decided_ns", from),
            ("begin_ns", begin),
            ("end_ns", end),
            ("idled_away", self.idled_away),
        ])
    }
}

/// The columns of packets.
struct Packets {
    /// Flows, then chains, and which of the two.
    owners: Vec<(&'static str, String)>,
    texts: [Column; 2],
    received: Column,
    latency: Column,
    segments: Vec<Column>,
}

impl Packets {
    fn new(host: &Pools) -> Self {
        let flows = host.flows.iter().map(|flow| ("flow", flow.name.clone()));
        let chains = host.chains.iter().map(|chain| ("chain", chain.name.clone()));
        Packets {
            owners: flows.chain(chains).collect(),
            texts: [(); 2].map(|()| Column::texts()),
            received: Column::numbers(),
            latency: Column::numbers(),
            segments: Segment::ALL.iter().map(|_| Column::numbers()).collect(),
        }
    }

    fn add(&mut self, packet: &PacketRecord<'_>) {
        let (kind, name) = &self.owners[packet.owner];
        let texts = [kind, name.as_str()];
        self.texts.iter_mut().zip(texts).for_each(|(column, text)| column.text(Some(text)));
        self.received.number(Some(packet.received.as_ns()));
        self.latency.number(Some(packet.latency.as_ns()));
        let times = packet.segments.iter().map(|time: &Duration| time.as_ns());
        self.segments.iter_mut().zip(times).for_each(|(column, time)| column.number(Some(time)));
    }

    fn finish(self) -> Table {
        let [kind, name] = self.texts;
        let head =
            [("of", kind), ("name", name), ("received_ns", self.received), ("latency_ns", self.latency)];
        let head = head.map(|(name, column)| (name.to_owned(), column));
        let segments = Segment::ALL.iter().map(|segment| segment_name(*segment)).zip(self.segments);
        Table::new(head.into_iter().chain(segments))
    }
}

/// The column of a part of the way: the name of the JSON form.
fn segment_name(segment: Segment) -> String {
    let name = serde_json::to_string(&segment).unwrap_or_default();
    format!("{}_ns", name.trim_matches('"').replace('-', "_"))
}
