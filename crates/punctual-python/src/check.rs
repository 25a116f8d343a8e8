//! What is guaranteed.

use std::sync::Arc;

use punctual_model::AnyHost;
use punctual_model::guarantees::Verdict;
use punctual_sched::Duration;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::error::{self, from_json};
use crate::signals;
use crate::table::{Column, Table};

/// What is guaranteed of a host: the answer of `punctual check`.
#[pyclass(frozen, module = "punctual")]
pub(crate) struct Guarantees {
    guarantees: punctual_model::Guarantees,
}

/// Checks a host with pools.
pub(crate) fn check(py: Python<'_>, host: Arc<AnyHost>, every: Option<Duration>) -> PyResult<Guarantees> {
    let work = move || match &*host {
        AnyHost::Pools(host) => Some(punctual_check::check_enforced(host, every)),
        AnyHost::Stack(_) => None,
    };
    let found = signals::beside(py, work)?;
    let guarantees = found.ok_or_else(|| error::punctual(py, "`check` is of hosts with pools"))?;
    Ok(Guarantees { guarantees })
}

impl Guarantees {
    fn json(&self) -> String {
        serde_json::to_string(&self.guarantees).expect("keys are strings, and a string takes every byte")
    }
}

#[pymethods]
impl Guarantees {
    /// Is every deadline of a task or chain guaranteed?
    #[getter]
    fn all_guaranteed(&self) -> bool {
        self.guarantees.all_guaranteed()
    }

    /// The answers as `punctual check --json` prints them.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        from_json(py, &self.json())
    }

    /// The tasks with deadlines, one a row.
    #[getter]
    fn tasks(&self) -> Table {
        let mut texts = [(); 4].map(|()| Column::texts());
        let mut numbers = [(); 3].map(|()| Column::numbers());
        for task in &self.guarantees.tasks {
            let (verdict, times, why) = match &task.verdict {
                Verdict::Guaranteed { bound_ns, slack_ns } => {
                    ("guaranteed", [Some(*bound_ns), Some(*slack_ns)], None)
                }
                Verdict::NotGuaranteed { counter_example } => {
                    ("not-guaranteed", [None; 2], Some(counter_example.pattern.to_string()))
                }
                Verdict::Unknown { why } => ("unknown", [None; 2], Some(why.to_string())),
            };
            let row = [Some(task.parent.as_str()), Some(&task.name), Some(verdict), why.as_deref()];
            texts.iter_mut().zip(row).for_each(|(column, text)| column.text(text));
            let row = [Some(task.deadline_ns), times[0], times[1]];
            numbers.iter_mut().zip(row).for_each(|(column, number)| column.number(number));
        }
        let [parent, name, verdict, why] = texts;
        let [deadline, bound, slack] = numbers;
        Table::new([
            ("parent", parent),
            ("name", name),
            ("verdict", verdict),
            ("deadline_ns", deadline),
            ("bound_ns", bound),
            ("slack_ns", slack),
            ("why", why),
        ])
    }

    fn _repr_html_<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("punctual._frames")?.call_method1("html", (self.tasks(),))
    }

    fn __repr__(&self) -> String {
        let tasks = &self.guarantees.tasks;
        let guaranteed = tasks.iter().filter(|task| task.verdict.is_guaranteed()).count();
        format!(
            "<punctual.Guarantees of {:?}: {guaranteed} of {} tasks are guaranteed>",
            self.guarantees.host,
            tasks.len()
        )
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Guarantees>().is_ok_and(|other| other.get().guarantees == self.guarantees)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        (py.get_type::<Guarantees>().getattr("_from_json")?, (self.json(),)).into_pyobject(py)
    }

    /// Guarantees from what pickles keep of them.
    #[staticmethod]
    fn _from_json(py: Python<'_>, text: &str) -> PyResult<Self> {
        let read = punctual_model::Guarantees::from_json(text, "a pickle");
        read.map(|guarantees| Guarantees { guarantees }).map_err(|e| error::punctual(py, &e.to_string()))
    }
}
