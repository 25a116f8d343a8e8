//! The Python package `punctual`: hosts, their checks and simulations, and results as Arrow tables.
//!
//! This crate translates between Python and the libraries, and decides nothing: a host is parsed by
//! [`punctual_model::file`], checked by [`punctual_check`], simulated by [`punctual_sim`], swept by
//! [`punctual_sweep`], papers are reproduced by [`punctual_reproduce`], a fleet is placed by
//! [`punctual_place`], and results are shown by [`punctual_report`], as on the command line.
//! `python/punctual` has what needs no Rust: classes of errors, the writer of TOML, batches of grids, and
//! stubs. `docs/python.md` is the manual.
//!
//! While Rust works, the interpreter is released, so threads run beside each other; signals are looked at
//! several times a second (`signals.rs`). A panic becomes an exception of PyO3.

#![forbid(unsafe_code)]

mod check;
mod error;
mod generate;
mod grid;
mod host;
mod placement;
mod policy;
mod reading;
mod reproduction;
mod results;
mod signals;
mod synthesis;
mod table;
mod timeline;

#[pyo3::pymodule]
mod _punctual {
    #[pymodule_export]
    use crate::check::Guarantees;
    #[pymodule_export]
    use crate::generate::_task_set;
    #[pymodule_export]
    use crate::grid::Grid;
    #[pymodule_export]
    use crate::host::Host;
    #[pymodule_export]
    use crate::placement::{_place, _what_if, Plan};
    #[pymodule_export]
    use crate::reproduction::Reproduction;
    #[pymodule_export]
    use crate::results::Results;
    #[pymodule_export]
    use crate::synthesis::Synthesis;
    #[pymodule_export]
    use crate::table::Table;

    /// The package's version.
    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "Python's name")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// The policies that a host file can name.
    #[pyo3::pyfunction]
    fn policies() -> Vec<&'static str> {
        punctual_sched::registry::policies().iter().map(|policy| policy.name).collect()
    }

    /// Runs the simulated experiments of a paper, with a verdict on each of its claims.
    #[pyo3::pyfunction]
    #[pyo3(signature = (
        paper, *, quick = false, only = Vec::new(), task_sets = None, progress = None, threads = None
    ))]
    fn reproduce(
        py: pyo3::Python<'_>,
        paper: &str,
        quick: bool,
        only: Vec<String>,
        task_sets: Option<u32>,
        progress: Option<pyo3::Py<pyo3::PyAny>>,
        threads: Option<usize>,
    ) -> pyo3::PyResult<Reproduction> {
        let options = punctual_reproduce::Options { quick, task_sets, only, native: false };
        crate::reproduction::reproduce(py, paper, options, progress, threads)
    }

    /// Panics, so that a test sees what becomes of a panic.
    #[cfg(debug_assertions)]
    #[pyo3::pyfunction]
    fn _panic() {
        panic!("on purpose");
    }
}
