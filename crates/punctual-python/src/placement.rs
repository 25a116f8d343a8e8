//! The VMs of a fleet on its hosts.

use punctual_model::file::{parse_fleet, to_toml};
use punctual_place::{Method, Standing};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::error::{self, from_json};
use crate::reading::host_object;
use crate::signals;
use crate::table::{Column, Table};

/// Which VM of a fleet goes to which host: the answer of `punctual place`.
#[pyclass(frozen, module = "punctual")]
pub(crate) struct Plan {
    plan: punctual_place::Plan,
    /// Host files, in the order of the plan's hosts.
    files: Vec<String>,
}

/// Places the VMs of a fleet file.
///
/// # Errors
/// `HostFileError`; `PunctualError` for a method that is not known.
#[pyfunction]
pub(crate) fn _place(py: Python<'_>, bytes: Vec<u8>, name: &str, method: &str) -> PyResult<Plan> {
    let method = match method {
        "auto" => Method::Auto,
        "exact" => Method::Exact,
        "heuristic" => Method::Heuristic,
        _ => return Err(error::punctual(py, "`method` is one of auto, exact, heuristic")),
    };
    let fleet = py.detach(|| parse_fleet(&bytes, name)).map_err(|errors| error::host_file(py, &errors))?;
    let (plan, files) = signals::beside(py, move || {
        let mut plan = punctual_place::place(&fleet, method);
        let files = plan.take_files().iter().map(to_toml).collect();
        (plan, files)
    })?;
    Ok(Plan { plan, files })
}

/// Where one VM of a fleet file could go while the others stay where they are today.
///
/// # Errors
/// `HostFileError`; `PunctualError` if there is no such VM.
#[pyfunction]
pub(crate) fn _what_if<'py>(
    py: Python<'py>,
    bytes: Vec<u8>,
    name: &str,
    vm: String,
) -> PyResult<Bound<'py, PyAny>> {
    let fleet = py.detach(|| parse_fleet(&bytes, name)).map_err(|errors| error::host_file(py, &errors))?;
    let wanted = vm.clone();
    let answer = signals::beside(py, move || Standing::new(&fleet).ask(&wanted))?;
    let answer = answer.ok_or_else(|| error::punctual(py, &format!("the fleet has no VM `{vm}`")))?;
    from_json(py, &serde_json::to_string(&answer).expect("plain data"))
}

#[pymethods]
impl Plan {
    /// Has every VM a host?
    #[getter]
    fn all_placed(&self) -> bool {
        self.plan.refused.is_empty()
    }

    /// Hosts with VMs.
    #[getter]
    fn hosts_used(&self) -> usize {
        self.plan.hosts_used
    }

    /// Hosts that any plan for the placed VMs has at least.
    #[getter]
    fn hosts_min(&self) -> usize {
        self.plan.hosts_min
    }

    /// The VMs in the order of the hosts, those without a host last, one a row.
    #[getter]
    fn vms(&self) -> Table {
        let mut texts = [(); 4].map(|()| Column::texts());
        let mut node = Column::numbers();
        let mut row = |row: [Option<&str>; 4], number: Option<u64>| {
            texts.iter_mut().zip(row).for_each(|(column, text)| column.text(text));
            node.number(number);
        };
        for host in &self.plan.hosts {
            for vm in &host.vms {
                let number = vm.node.map(|node| node as u64);
                row([Some(&vm.name), Some(&host.name), vm.moved_from.as_deref(), None], number);
            }
        }
        for vm in &self.plan.refused {
            let why = |why: &punctual_place::Why| format!("{}: {}", why.hosts.join(", "), why.reason);
            let why: Vec<String> = vm.why.iter().map(why).collect();
            row([Some(&vm.name), None, None, Some(&why.join("; "))], None);
        }
        let [name, host, moved_from, why] = texts;
        Table::new([("name", name), ("host", host), ("node", node), ("moved_from", moved_from), ("why", why)])
    }

    /// The hosts with VMs, by name.
    fn hosts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let hosts = PyDict::new(py);
        for (host, file) in self.plan.hosts.iter().zip(&self.files) {
            let name = format!("{}.toml", host.name);
            hosts.set_item(&host.name, host_object(py, file, &name)?)?;
        }
        Ok(hosts)
    }

    /// The plan as `punctual place --json` prints it.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        from_json(py, &self.json())
    }

    fn _repr_html_<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("punctual._frames")?.call_method1("html", (self.vms(),))
    }

    fn __repr__(&self) -> String {
        let plan = &self.plan;
        let placed = plan.vms - plan.refused.len();
        format!(
            "<punctual.Plan of {:?}: {placed} of {} VMs on {} hosts>",
            plan.fleet, plan.vms, plan.hosts_used
        )
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        let is_same = |other: &Plan| other.plan == self.plan && other.files == self.files;
        other.cast::<Plan>().is_ok_and(|other| is_same(other.get()))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let rebuild = py.get_type::<Plan>().getattr("_restore")?;
        (rebuild, (self.json(), self.files.clone())).into_pyobject(py)
    }

    /// A plan from what pickles keep of it.
    #[staticmethod]
    fn _restore(py: Python<'_>, text: &str, files: Vec<String>) -> PyResult<Self> {
        let plan: punctual_place::Plan =
            serde_json::from_str(text).map_err(|e| error::punctual(py, &format!("a pickle: {e}")))?;
        if plan.hosts.len() != files.len() {
            return Err(error::punctual(py, "a pickle: a host file for each host is expected"));
        }
        Ok(Plan { plan, files })
    }
}

impl Plan {
    fn json(&self) -> String {
        serde_json::to_string(&self.plan).expect("plain data")
    }
}
