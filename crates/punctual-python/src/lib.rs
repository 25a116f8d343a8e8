//! The Python package `punctual`: hosts, their checks and simulations, and results as Arrow tables.
//!
//! This crate translates between Python and the libraries, and decides nothing: a host is parsed by
//! [`punctual_model::file`], checked by [`punctual_check`], simulated by [`punctual_sim`], swept by
//! [`punctual_sweep`] and shown by [`punctual_report`], as on the command line. `python/punctual` has what
//! needs no Rust: classes of errors, the writer of TOML, batches of grids, and stubs. `docs/python.md`
//! is the manual.
//!
//! While Rust works, the interpreter is released, so threads run beside each other; signals are looked at
//! several times a second (`signals.rs`). A panic becomes an exception of PyO3.

#![forbid(unsafe_code)]

mod check;
mod error;
mod grid;
mod host;
mod policy;
mod reading;
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
    use crate::grid::Grid;
    #[pymodule_export]
    use crate::host::Host;
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

    /// Panics, so that a test sees what becomes of a panic.
    #[cfg(debug_assertions)]
    #[pyo3::pyfunction]
    fn _panic() {
        panic!("on purpose");
    }
}
