//! The experiments of published papers.

use punctual_reproduce::{Error, Figure, Options, Progress, render};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error;
use crate::signals;
use crate::table::{Column, Table};

/// Reproduces a paper.
type Paper = fn(&Options, Progress<'_>) -> Result<punctual_reproduce::Reproduction, Error>;

/// The papers by their names on the command line.
const PAPERS: [(&str, Paper); 5] = [
    ("rt-xen", punctual_reproduce::rt_xen),
    ("rtca", punctual_reproduce::rtca),
    ("vmm-io", punctual_reproduce::vmm_io),
    ("nautilus", punctual_reproduce::nautilus),
    ("rt-stack", punctual_reproduce::rt_stack),
];

/// A paper's tables and figures beside our own numbers, with a verdict on each of its claims.
#[pyclass(frozen, module = "punctual")]
pub(crate) struct Reproduction(punctual_reproduce::Reproduction);

/// Runs the simulated experiments of a paper: `punctual reproduce`.
///
/// # Errors
/// There is no such paper or experiment, or a simulation stops.
pub(crate) fn reproduce(
    py: Python<'_>,
    paper: &str,
    options: Options,
    progress: Option<Py<PyAny>>,
    threads: Option<usize>,
) -> PyResult<Reproduction> {
    let Some((_, run)) = PAPERS.iter().find(|(name, _)| *name == paper) else {
        let names = PAPERS.map(|(name, _)| name).join(", ");
        return Err(PyValueError::new_err(format!("no paper {paper:?}; there are {names}")));
    };
    // Not the pool of all threads: a child of `fork` has none of them.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).build();
    let pool = pool.map_err(|error| error::punctual(py, &format!("cannot start threads: {error}")))?;
    let done = signals::beside(py, move || {
        let report = |what: &str, done: usize, total: usize| {
            // What the caller's function raises ends nothing. While Python ends there is nobody to notify.
            if let Some(progress) = &progress {
                let _ = Python::try_attach(|py| progress.call1(py, (what, done, total)).map(drop));
            }
        };
        pool.install(|| run(&options, &report))
    })?;
    done.map(Reproduction).map_err(|error| match &error {
        Error::Simulation { error, .. } => error::simulation(py, error),
        Error::Host(errors) => error::host_file(py, errors),
        error => error::punctual(py, &error.to_string()),
    })
}

#[pymethods]
impl Reproduction {
    /// The claims of the paper, one a row, with our numbers and a verdict.
    #[getter]
    fn claims(&self) -> Table {
        let mut columns = [(); 7].map(|()| Column::texts());
        let mut unexpected = Column::truths();
        for claim in &self.0.claims {
            let verdict = claim.verdict.to_string();
            let texts = [
                &claim.id,
                &claim.section,
                &claim.statement,
                &claim.paper,
                &claim.ours,
                &verdict,
                &claim.because,
            ];
            columns.iter_mut().zip(texts).for_each(|(column, text)| column.text(Some(text)));
            unexpected.truth(claim.unexpected);
        }
        let names = ["id", "section", "statement", "paper", "ours", "verdict", "because"];
        Table::new(names.into_iter().zip(columns).chain([("unexpected", unexpected)]))
    }

    /// The names of the tables.
    #[getter]
    fn tables(&self) -> Vec<&str> {
        self.0.tables.iter().map(|table| table.id.as_str()).collect()
    }

    /// A table, as it is printed: its cells are texts.
    fn table(&self, name: &str) -> PyResult<Table> {
        let Some(table) = self.0.tables.iter().find(|table| table.id == name) else {
            let names = self.tables().join(", ");
            return Err(PyKeyError::new_err(format!("no table {name:?}; tables: {names}")));
        };
        let mut columns: Vec<Column> = table.columns.iter().map(|_| Column::texts()).collect();
        for row in &table.rows {
            columns.iter_mut().zip(row).for_each(|(column, cell)| column.text(Some(cell)));
        }
        Ok(Table::new(table.columns.iter().zip(columns)))
    }

    /// All curves: a row for each point, with the mean, the least and the greatest over the task sets.
    #[getter]
    fn curves(&self) -> Table {
        let mut texts = [(); 2].map(|()| Column::texts());
        let mut numbers = [(); 4].map(|()| Column::reals());
        for figure in &self.0.figures {
            let Figure { id, series, .. } = figure;
            for series in series {
                for point in &series.points {
                    let names = [id, &series.name];
                    texts.iter_mut().zip(names).for_each(|(column, text)| column.text(Some(text)));
                    numbers.iter_mut().zip(point).for_each(|(column, number)| column.real(*number));
                }
            }
        }
        let columns = texts.into_iter().chain(numbers);
        Table::new(["figure", "series", "x", "mean", "least", "greatest"].into_iter().zip(columns))
    }

    /// What `punctual reproduce --json` prints, as dicts and lists.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let text =
            serde_json::to_string(&self.0).map_err(|error| PyValueError::new_err(error.to_string()))?;
        error::from_json(py, &text)
    }

    /// What `punctual reproduce --out` writes: the content of each file by its name.
    fn files<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let written = render::files(&self.0).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let files = PyDict::new(py);
        written.into_iter().try_for_each(|(name, text)| files.set_item(name, text))?;
        Ok(files)
    }

    fn __str__(&self) -> String {
        render::text(&self.0)
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let page: String = self.files(py)?.as_any().get_item("index.html")?.extract()?;
        let report = py.import("punctual._frames")?.getattr("Report")?.call1((page,))?;
        report.call_method0("_repr_html_")?.extract()
    }

    fn __repr__(&self) -> String {
        let agree = self.0.claims.iter().filter(|claim| claim.verdict.to_string() == "agrees").count();
        let (title, all) = (&self.0.citation.title, self.0.claims.len());
        format!("<punctual.Reproduction of {title:?}: {agree} of {all} claims agree>")
    }
}
