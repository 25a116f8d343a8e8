//! Hosts.

use std::sync::Arc;

use punctual_model::AnyHost;
use punctual_model::file::{self, OtherOverheads, Overrides};
use punctual_model::host::{Arrival, Cost, Host as Pools, Parent, Task, Work};
use punctual_sched::Duration;
use punctual_sweep::Source;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple, PyType};

use crate::check::{self, Guarantees};
use crate::error;
use crate::reading;
use crate::results::{self, Record, Results};
use crate::synthesis::{self, Synthesis};
use crate::table::{Column, Table};

/// Greatest size of a host file in bytes, as on the command line; the parser's own limit is lower.
const BYTES_MAX: usize = 64 << 20;

/// A machine, its pools, VMs, tasks and networks, as a host file describes them. It never changes;
/// `replace` makes another one.
#[pyclass(frozen, module = "punctual")]
pub(crate) struct Host {
    host: Arc<AnyHost>,
    source: Arc<Source>,
    overrides: Overrides,
}

/// The changes that a caller asks for, as the command line's options of the same names.
struct Changes {
    set: Vec<String>,
    seed: Option<u64>,
    duration: Option<String>,
    policy: Option<String>,
    overheads: Option<String>,
}

impl Changes {
    fn overrides(self) -> PyResult<Overrides> {
        let Changes { set, seed, duration, policy, overheads } = self;
        let overheads = overheads.as_deref().map(OtherOverheads::read).transpose();
        let overheads = overheads.map_err(|why| PyValueError::new_err(format!("overheads: {why}")))?;
        Ok(Overrides { overheads, policy, set, seed, duration })
    }
}

impl Host {
    fn parse(py: Python<'_>, source: Arc<Source>, overrides: Overrides) -> PyResult<Self> {
        let host = reading::parse(py, &source.bytes, &source.name, &overrides)?;
        Ok(Host { host: Arc::new(host), source, overrides })
    }

    /// What it was read from: the host file, and its changes.
    pub(crate) fn origin(&self) -> (&Source, &Overrides) {
        (&self.source, &self.overrides)
    }

    /// The host where it has pools; `what` needs them.
    fn pools(&self, py: Python<'_>, what: &str) -> PyResult<&Pools> {
        match &*self.host {
            AnyHost::Pools(host) => Ok(host),
            AnyHost::Stack(_) => {
                let text = format!("{what} is of hosts with pools; this one has `host_stack`");
                Err(error::punctual(py, &text))
            }
        }
    }
}

#[pymethods]
impl Host {
    /// Reads a host file.
    #[staticmethod]
    #[pyo3(signature = (
        path, *, set = Vec::new(), seed = None, duration = None, policy = None, overheads = None
    ))]
    fn from_file(
        py: Python<'_>,
        path: &Bound<'_, PyAny>,
        set: Vec<String>,
        seed: Option<u64>,
        duration: Option<String>,
        policy: Option<String>,
        overheads: Option<String>,
    ) -> PyResult<Self> {
        let path = py.import("os")?.call_method1("fspath", (path,))?;
        // Python's errors name the file, and their class says what is wrong with it.
        let file = py.import("builtins")?.call_method1("open", (&path, "rb"))?;
        let bytes = file.call_method1("read", (BYTES_MAX,));
        file.call_method0("close")?;
        let bytes = bytes?.cast_into::<PyBytes>()?.as_bytes().to_vec();
        let source = Arc::new(Source { name: path.str()?.to_string_lossy().into_owned(), bytes });
        let changes = Changes { set, seed, duration, policy, overheads };
        Host::parse(py, source, changes.overrides()?)
    }

    /// Parses the text of a host file; `name` stands in its errors.
    #[staticmethod]
    #[pyo3(signature = (
        text, name = "host.toml", *, set = Vec::new(), seed = None, duration = None, policy = None,
        overheads = None
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn from_toml(
        py: Python<'_>,
        text: &Bound<'_, PyAny>,
        name: &str,
        set: Vec<String>,
        seed: Option<u64>,
        duration: Option<String>,
        policy: Option<String>,
        overheads: Option<String>,
    ) -> PyResult<Self> {
        let bytes = if let Ok(text) = text.cast::<PyString>() {
            text.to_cow()?.as_bytes().to_vec()
        } else if let Ok(bytes) = text.cast::<PyBytes>() {
            bytes.as_bytes().to_vec()
        } else {
            return Err(PyTypeError::new_err(format!(
                "expected str or bytes, not {}",
                text.get_type().name()?
            )));
        };
        let changes = Changes { set, seed, duration, policy, overheads };
        Host::parse(py, Arc::new(Source { name: name.into(), bytes }), changes.overrides()?)
    }

    /// A host from tables in Python: dicts with the keys of a host file.
    #[staticmethod]
    #[pyo3(signature = (tables, name = "host.toml"))]
    fn from_dict(py: Python<'_>, tables: &Bound<'_, PyAny>, name: &str) -> PyResult<Self> {
        let text: String = py.import("punctual._toml")?.call_method1("dumps", (tables,))?.extract()?;
        let source = Arc::new(Source { name: name.into(), bytes: text.into_bytes() });
        Host::parse(py, source, Overrides::default())
    }

    /// The same host file with other changes on top of those made already.
    #[pyo3(signature = (*, set = Vec::new(), seed = None, duration = None, policy = None, overheads = None))]
    fn replace(
        &self,
        py: Python<'_>,
        set: Vec<String>,
        seed: Option<u64>,
        duration: Option<String>,
        policy: Option<String>,
        overheads: Option<String>,
    ) -> PyResult<Self> {
        let more = Changes { set, seed, duration, policy, overheads }.overrides()?;
        let mut all = self.overrides.clone();
        all.set.extend(more.set);
        all.seed = more.seed.or(all.seed);
        all.duration = more.duration.or(all.duration);
        all.policy = more.policy.or(all.policy);
        all.overheads = more.overheads.or(all.overheads);
        Host::parse(py, self.source.clone(), all)
    }

    /// The host as a host file with everything spelled out, generated tasks included.
    fn to_toml(&self) -> String {
        self.host.to_toml()
    }

    #[getter]
    fn name(&self) -> &str {
        self.host.name()
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.host.seed()
    }

    /// How long a simulation lasts, in ns.
    #[getter]
    fn duration_ns(&self) -> u64 {
        self.host.duration().as_ns()
    }

    /// The tasks, one a row.
    #[getter]
    fn tasks(&self, py: Python<'_>) -> PyResult<Table> {
        Ok(tasks(self.pools(py, "`tasks`")?))
    }

    /// Which deadlines are guaranteed, without running anything: `punctual check`.
    #[pyo3(signature = (*, enforced_every = None))]
    fn check(&self, py: Python<'_>, enforced_every: Option<&str>) -> PyResult<Guarantees> {
        self.pools(py, "`check`")?;
        let every = enforced_every.map(file::parse_duration).transpose();
        let every = every.map_err(|why| PyValueError::new_err(format!("enforced_every: {why}")))?;
        check::check(py, self.host.clone(), every)
    }

    /// Simulates the host for its duration: `punctual sim`.
    ///
    /// `policies` has policies in Python by the name of the pool or VM whose scheduler they replace.
    #[pyo3(signature = (*, blame = false, jobs = false, slices = false, packets = false, policies = None))]
    fn simulate(
        &self,
        py: Python<'_>,
        blame: bool,
        jobs: bool,
        slices: bool,
        packets: bool,
        policies: Option<Py<PyDict>>,
    ) -> PyResult<Results> {
        let record = Record { jobs, slices, packets };
        match policies {
            None => results::simulate(py, self.host.clone(), blame, record),
            Some(_) if blame => Err(error::punctual(py, "blame is of the built-in policies")),
            Some(policies) => {
                self.pools(py, "`policies`")?;
                results::simulate_under(py, self.host.clone(), record, &policies)
            }
        }
    }

    /// The smallest budgets that guarantee every deadline: `punctual synthesize`.
    #[pyo3(signature = (
        *, periods = "given", candidates = Vec::new(), granularity = "100us", margin = "0%",
        priorities = "given", placement = "auto", effort = 100_000
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn synthesize(
        &self,
        py: Python<'_>,
        periods: &str,
        candidates: Vec<String>,
        granularity: &str,
        margin: &str,
        priorities: &str,
        placement: &str,
        effort: u64,
    ) -> PyResult<Synthesis> {
        self.pools(py, "`synthesize`")?;
        let options =
            synthesis::options(periods, &candidates, granularity, margin, priorities, placement, effort)?;
        synthesis::synthesize(py, (&self.source.bytes, &self.source.name), &self.overrides, &options)
    }

    fn __repr__(&self) -> String {
        let what = match &*self.host {
            AnyHost::Pools(host) => format!("{} VMs, {} tasks", host.domains.len(), host.tasks.len()),
            AnyHost::Stack(stack) => format!("host_stack with {} servers", stack.servers.len()),
        };
        format!("<punctual.Host {:?}: {what}>", self.host.name())
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Host>().is_ok_and(|other| other.get().host == self.host)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let Overrides { overheads, policy, set, seed, duration } = &self.overrides;
        let overheads = overheads.as_ref().map(|overheads| match overheads {
            OtherOverheads::Preset(name) => (name, None),
            OtherOverheads::File { name, text } => (name, Some(text)),
        });
        let rebuild = py.get_type::<Host>().getattr("_restore")?;
        let bytes = PyBytes::new(py, &self.source.bytes);
        let arguments = (bytes, &self.source.name, overheads, policy, set, *seed, duration);
        (rebuild, arguments).into_pyobject(py)
    }

    /// A host from what pickles keep of it.
    #[classmethod]
    #[expect(clippy::too_many_arguments, reason = "the parts of a pickle")]
    fn _restore(
        class: &Bound<'_, PyType>,
        bytes: Vec<u8>,
        name: String,
        overheads: Option<(String, Option<String>)>,
        policy: Option<String>,
        set: Vec<String>,
        seed: Option<u64>,
        duration: Option<String>,
    ) -> PyResult<Self> {
        let overheads = overheads.map(|(name, text)| match text {
            Some(text) => OtherOverheads::File { name, text },
            None => OtherOverheads::Preset(name),
        });
        let overrides = Overrides { overheads, policy, set, seed, duration };
        Host::parse(class.py(), Arc::new(Source { name, bytes }), overrides)
    }
}

/// The name of a task's domain or pool.
fn parent<'h>(host: &'h Pools, task: &Task) -> &'h str {
    match task.parent {
        Parent::Domain(domain) => &host.domains[domain.0].name,
        Parent::Pool(pool) => &host.pools[pool.0].name,
    }
}

fn tasks(host: &Pools) -> Table {
    let mut names = [(); 3].map(|()| Column::texts());
    let mut periodic = Column::truths();
    let mut numbers = [(); 5].map(|()| Column::numbers());
    for task in &host.tasks {
        let (kind, times) = match task.work {
            Work::Jobs { arrival, cost, deadline } => {
                let (Arrival::Periodic { period, .. } | Arrival::Sporadic { separation: period, .. }) =
                    arrival;
                ("jobs", times(Some(period), Some(cost), Some(deadline)))
            }
            Work::Served { cost, deadline } => ("served", times(None, Some(cost), Some(deadline))),
            Work::Hog { .. } => ("hog", times(None, None, None)),
        };
        for (column, text) in names.iter_mut().zip([parent(host, task), &task.name, kind]) {
            column.text(Some(text));
        }
        periodic.truth(matches!(task.work, Work::Jobs { arrival: Arrival::Periodic { .. }, .. }));
        let priority = task.params.priority.map(u64::from);
        for (column, number) in numbers.iter_mut().zip(times.into_iter().chain([priority])) {
            column.number(number);
        }
    }
    let [period, cost_min, cost, deadline, priority] = numbers;
    let [parent, name, work] = names;
    Table::new([
        ("parent", parent),
        ("name", name),
        ("work", work),
        ("is_periodic", periodic),
        ("period_ns", period),
        ("cost_min_ns", cost_min),
        ("cost_ns", cost),
        ("deadline_ns", deadline),
        ("priority", priority),
    ])
}

fn times(period: Option<Duration>, cost: Option<Cost>, deadline: Option<Duration>) -> [Option<u64>; 4] {
    [period, cost.map(|cost| cost.min), cost.map(|cost| cost.max), deadline]
        .map(|time| time.map(Duration::as_ns))
}
