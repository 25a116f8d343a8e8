//! Periods and deadlines for utilizations that another generator drew.

use punctual_model::generate::{DEADLINES, PERIODS, RandomStream, with_periods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// One of these names.
fn check(what: &str, name: &str, names: &[&str]) -> PyResult<()> {
    if names.contains(&name) {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("{what}: no {name:?}; there are {}", names.join(", "))))
}

/// Period, cost and deadline of a task for each utilization, in ns.
#[pyfunction]
pub(crate) fn _task_set(
    utilizations: Vec<f64>,
    seed: u64,
    periods: &str,
    deadlines: &str,
) -> PyResult<Vec<(u64, u64, u64)>> {
    check("periods", periods, &PERIODS)?;
    check("deadlines", deadlines, &DEADLINES)?;
    if let Some(at) = utilizations.iter().position(|u| !(*u > 0.0 && *u <= 1.0)) {
        let (found, number) = (utilizations[at], at + 1);
        let text = format!("utilizations: number {number} is {found}; expected more than 0, at most 1");
        return Err(PyValueError::new_err(text));
    }
    let mut stream = RandomStream::new(seed, "");
    let tasks = with_periods(&mut stream, &utilizations, periods, deadlines);
    let ns = |task: &punctual_model::generate::TaskSpec| {
        (task.period.as_ns(), task.cost.as_ns(), task.deadline.as_ns())
    };
    Ok(tasks.iter().map(ns).collect())
}
