//! Errors as Python's exceptions, whose classes are in `punctual._errors`.

use punctual_model::file::{ErrorRecord, Errors};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

/// An exception of the class `name` in `punctual._errors`; if that fails, why.
fn exception(
    py: Python<'_>,
    name: &str,
    arguments: impl FnOnce(Bound<'_, PyType>) -> PyResult<PyErr>,
) -> PyErr {
    let class = py.import("punctual._errors").and_then(|module| module.getattr(name));
    let class = class.and_then(|class| class.cast_into::<PyType>().map_err(PyErr::from));
    class.and_then(arguments).unwrap_or_else(|error| error)
}

/// What the package cannot do, and why.
pub(crate) fn punctual(py: Python<'_>, text: &str) -> PyErr {
    exception(py, "PunctualError", |class| Ok(PyErr::from_value(class.call1((text,))?)))
}

/// Everything that is wrong with a host file: the text shows each line with a caret, the records are for
/// programs.
pub(crate) fn host_file(py: Python<'_>, errors: &Errors) -> PyErr {
    exception(py, "HostFileError", |class| {
        let record_class = py.import("punctual._errors")?.getattr("ErrorRecord")?;
        let records: PyResult<Vec<_>> =
            errors.records().iter().map(|record| one_record(&record_class, record)).collect();
        let text = errors.render(false);
        Ok(PyErr::from_value(class.call1((text.trim_end(), records?))?))
    })
}

fn one_record<'py>(class: &Bound<'py, PyAny>, record: &ErrorRecord) -> PyResult<Bound<'py, PyAny>> {
    let ErrorRecord { file, option, line, column, text, message, expected, nearest } = record;
    class.call1((file, option, line, column, text, message, expected, nearest))
}

/// Why a simulation stopped.
pub(crate) fn simulation(py: Python<'_>, error: &punctual_sim::Error) -> PyErr {
    match error {
        punctual_sim::Error::Refused(text) => punctual(py, text),
        punctual_sim::Error::Violation(text) => {
            exception(py, "ViolationError", |class| Ok(PyErr::from_value(class.call1((text,))?)))
        }
    }
}

/// JSON as Python's dicts and lists.
pub(crate) fn from_json<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (PyString::new(py, text),))
}
