//! Reading host files.

use punctual_model::AnyHost;
use punctual_model::file::Overrides;
use pyo3::prelude::*;

use crate::error;

/// Parses a host file with changes.
///
/// # Errors
/// `HostFileError`.
pub(crate) fn parse(py: Python<'_>, bytes: &[u8], name: &str, overrides: &Overrides) -> PyResult<AnyHost> {
    let parse = || AnyHost::parse_bytes(bytes, name, overrides);
    py.detach(parse).map_err(|errors| error::host_file(py, &errors))
}

/// The text of a host file as an object of Python's class `Host`.
///
/// # Errors
/// As [`parse`].
pub(crate) fn host_object<'py>(py: Python<'py>, text: &str, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("punctual._punctual")?.getattr("Host")?.call_method1("from_toml", (text, name))
}
