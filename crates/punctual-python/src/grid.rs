//! Grids of parameters, whose points any process can compute.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use punctual_sweep::{Axis, Error, Figure, Metric, Outcome, Points, Request, Watch};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple, PyType};
use rayon::prelude::*;

use crate::error;
use crate::host::Host;
use crate::signals;
use crate::table::{Column, Table};

/// The arguments of `Grid` beside the host, as a pickle keeps them.
type Asked = (Vec<(String, Vec<String>)>, Vec<String>, u32, Vec<String>, bool, bool);

/// A host at every combination of values that keys of its file take, the last dimension fastest.
#[pyclass(frozen, module = "punctual")]
pub(crate) struct Grid {
    grid: Arc<punctual_sweep::Grid>,
    host: Py<Host>,
    asked: Asked,
}

/// The caller, who may be interrupted.
struct Caller(Arc<AtomicBool>);

impl Watch for Caller {
    fn stops(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn done(&self, _runs: u64) {}
}

/// Tells the work of a caller that has gone.
struct Leaving(Arc<AtomicBool>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn exception(py: Python<'_>, error: &Error) -> PyErr {
    match error {
        Error::Host(errors) => error::host_file(py, errors),
        Error::Points(text) | Error::Refused(text) => error::punctual(py, text),
        Error::Simulation(error) => error::simulation(py, error),
    }
}

fn metric(name: &str) -> PyResult<Metric> {
    let found = Metric::ALL.into_iter().find(|metric| metric.name() == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = Metric::ALL.iter().map(|metric| metric.name()).collect();
        PyValueError::new_err(format!("no metric {name:?}; there are {}", names.join(", ")))
    })
}

/// Works on a grid with this many threads, one for each processor if it is not said.
fn with_threads<R: Send + 'static>(
    py: Python<'_>,
    threads: Option<usize>,
    work: impl FnOnce(&Caller) -> R + Send + 'static,
) -> PyResult<R> {
    let stop = Arc::new(AtomicBool::new(false));
    let _leaving = Leaving(stop.clone());
    // Not the pool of all threads: a child of `fork` has none of them.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).build();
    let pool = pool.map_err(|error| error::punctual(py, &format!("cannot start threads: {error}")))?;
    signals::beside(py, move || pool.install(|| work(&Caller(stop))))
}

impl Grid {
    fn make(py: Python<'_>, host: Py<Host>, asked: Asked) -> PyResult<Self> {
        let (vary, policies, runs, metrics, results, skip_invalid) = asked.clone();
        let axes: Result<Vec<Axis>, PyErr> = vary
            .into_iter()
            .map(|(key, values)| {
                Axis::new(&key, values).map_err(|why| PyValueError::new_err(format!("{key}: {why}")))
            })
            .collect();
        if runs == 0 {
            return Err(PyValueError::new_err("runs: expected at least 1"));
        }
        let (source, overrides) = host.get().origin();
        let request = Request {
            source: source.clone(),
            overrides: overrides.clone(),
            axes: axes?,
            policies,
            runs,
            metrics: metrics.iter().map(|name| metric(name)).collect::<PyResult<_>>()?,
            keeps_results: results,
            is_lenient: skip_invalid,
        };
        let grid = punctual_sweep::Grid::new(request).map_err(|error| exception(py, &error))?;
        Ok(Grid { grid: Arc::new(grid), host, asked })
    }

    /// The outcomes that `compute` returned for all points.
    fn outcomes(&self, texts: &[Vec<u8>]) -> PyResult<Vec<Outcome>> {
        let points = self.grid.points();
        if texts.len() != points {
            let text = format!("expected the outcomes of {points} points, got {}", texts.len());
            return Err(PyValueError::new_err(text));
        }
        let read = |text: &Vec<u8>| serde_json::from_slice(text);
        let outcomes: Result<_, serde_json::Error> = texts.iter().map(read).collect();
        outcomes.map_err(|error| PyValueError::new_err(format!("no outcome of a point: {error}")))
    }
}

#[pymethods]
impl Grid {
    #[new]
    #[pyo3(signature = (
        host, vary, *, policy = Vec::new(), runs = 1, metrics = Vec::new(), results = false,
        skip_invalid = false
    ))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn new(
        py: Python<'_>,
        host: Py<Host>,
        vary: &Bound<'_, PyAny>,
        policy: Vec<String>,
        runs: u32,
        metrics: Vec<String>,
        results: bool,
        skip_invalid: bool,
    ) -> PyResult<Self> {
        let vary = py.import("punctual._sweep")?.call_method1("axes", (vary,))?.extract()?;
        let made = Grid::make(py, host, (vary, policy, runs, metrics, results, skip_invalid))?;
        let grid = made.grid.clone();
        let valid = with_threads(py, None, move |_| grid.validate(|_| true))?;
        valid.map_err(|error| exception(py, &error))?;
        Ok(made)
    }

    /// How many points there are.
    fn __len__(&self) -> usize {
        self.grid.points()
    }

    /// The keys, `policy` last where policies vary.
    #[getter]
    fn keys(&self) -> Vec<&str> {
        self.grid.dimensions().iter().map(|dimension| dimension.key.as_str()).collect()
    }

    /// The values of a point by their keys.
    fn __getitem__<'py>(&self, py: Python<'py>, point: usize) -> PyResult<Bound<'py, PyDict>> {
        if point >= self.grid.points() {
            let text = format!("the grid has points 0 to {}", self.grid.points() - 1);
            return Err(PyIndexError::new_err(text));
        }
        let values = PyDict::new(py);
        for (key, value) in self.keys().into_iter().zip(self.grid.values(point)) {
            values.set_item(key, value)?;
        }
        Ok(values)
    }

    /// Computes points, or takes those from `directory` that are finished and keeps the others there.
    ///
    /// An outcome is bytes that only the other methods read. They can go from process to process.
    #[pyo3(signature = (points, *, directory = None, threads = None))]
    fn compute<'py>(
        &self,
        py: Python<'py>,
        points: Vec<usize>,
        directory: Option<PathBuf>,
        threads: Option<usize>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        if let Some(wrong) = points.iter().find(|point| **point >= self.grid.points()) {
            let text = format!("no point {wrong}: the grid has points 0 to {}", self.grid.points() - 1);
            return Err(PyIndexError::new_err(text));
        }
        let kept = directory.as_deref().map(Points::open).transpose();
        let kept = kept.map_err(|error| exception(py, &error))?;
        let grid = self.grid.clone();
        let computed = with_threads(py, threads, move |caller| {
            let one = |&point: &usize| -> Result<Vec<u8>, Error> {
                let outcome = match &kept {
                    Some(kept) => grid.resume(point, kept, caller)?,
                    None => grid.compute(point, caller)?,
                };
                serde_json::to_vec(&outcome).map_err(|error| Error::Refused(error.to_string()))
            };
            points.par_iter().with_max_len(1).map(one).collect::<Result<Vec<_>, Error>>()
        })?;
        let outcomes = computed.map_err(|error| exception(py, &error))?;
        Ok(outcomes.iter().map(|outcome| PyBytes::new(py, outcome)).collect())
    }

    /// What `punctual sweep --csv` prints of these outcomes, those of all points.
    fn csv(&self, outcomes: Vec<Vec<u8>>) -> PyResult<String> {
        Ok(self.grid.csv(&self.outcomes(&outcomes)?))
    }

    /// What `punctual sweep --json` prints of these outcomes, those of all points of a grid with `results`.
    fn json(&self, outcomes: Vec<Vec<u8>>) -> PyResult<String> {
        Ok(self.grid.json(&self.outcomes(&outcomes)?) + "\n")
    }

    /// The same as `csv`, as a table.
    fn table(&self, outcomes: Vec<Vec<u8>>) -> PyResult<Table> {
        let rows = self.grid.rows(&self.outcomes(&outcomes)?);
        let mut keys: Vec<Column> = self.grid.dimensions().iter().map(|_| Column::texts()).collect();
        let mut numbers: Vec<Column> = rows.columns.iter().map(|_| Column::numbers()).collect();
        for row in &rows.rows {
            for (column, value) in keys.iter_mut().zip(self.grid.values(row.point)) {
                column.text(Some(value));
            }
            for (column, number) in numbers.iter_mut().zip(&row.numbers) {
                column.number(*number);
            }
        }
        let names = self.keys().into_iter().chain(rows.columns.iter().map(String::as_str));
        Ok(Table::new(names.zip(keys.into_iter().chain(numbers))))
    }

    /// What `punctual sweep --svg` writes of these outcomes, those of all points.
    #[pyo3(signature = (outcomes, metric, x = None, over = Vec::new()))]
    fn svg(
        &self,
        py: Python<'_>,
        outcomes: Vec<Vec<u8>>,
        metric: &str,
        x: Option<&str>,
        over: Vec<String>,
    ) -> PyResult<String> {
        let over = over.iter().map(String::as_str).collect();
        let figure = Figure { metric: self::metric(metric)?, x, over };
        let svg = self.grid.figure(&self.outcomes(&outcomes)?, &figure);
        svg.map_err(|error| exception(py, &error))
    }

    fn __repr__(&self) -> String {
        let keys: Vec<String> =
            self.grid.dimensions().iter().map(|d| format!("{} of {}", d.values.len(), d.key)).collect();
        format!("<punctual.Grid of {} points: {}>", self.grid.points(), keys.join(", "))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let rebuild = py.get_type::<Grid>().getattr("_restore")?;
        (rebuild, (self.host.clone_ref(py), self.asked.clone())).into_pyobject(py)
    }

    /// A grid from what pickles keep of it. Its points were validated when it was made.
    #[classmethod]
    fn _restore(class: &Bound<'_, PyType>, host: Py<Host>, asked: Asked) -> PyResult<Self> {
        Grid::make(class.py(), host, asked)
    }
}
