//! Policies written in Python, behind the interface of all policies.
//!
//! A call takes the interpreter, so they are slow: for prototypes. The machine checks its invariants as under
//! every policy.

use std::sync::{Arc, Mutex, PoisonError};

use punctual_model::Host;
use punctual_model::host::Parent;
use punctual_sched::{
    Account, CpuId, CpuSet, Duration, Instant, ParamError, Policy, Run, Slice, Timer, UnitId, UnitParams,
};
use punctual_sim::observe::{Event, Observer};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// The first exception of a policy; it ends the simulation.
#[derive(Clone, Default)]
pub(crate) struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    fn keep(&self, error: PyErr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// The exception.
    pub(crate) fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Observer for Raised {
    const STEPS: bool = false;

    fn observe(&mut self, _now: Instant, _event: Event<'_>) {}

    fn stops(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn verdict(&mut self) -> Option<String> {
        self.stops().then(|| "the policy raised an exception".into())
    }
}

/// What makes policies, by the name of the pool or domain whose scheduler they are.
pub(crate) struct Factories<'f> {
    by_name: &'f Py<PyDict>,
    pub(crate) raised: Raised,
}

impl<'f> Factories<'f> {
    /// Those of a host.
    ///
    /// # Errors
    /// A name is that of no pool and no domain.
    pub(crate) fn new(py: Python<'_>, host: &Host, by_name: &'f Py<PyDict>) -> PyResult<Self> {
        for name in by_name.bind(py).keys() {
            let name: String = name.extract()?;
            let is_there = host.pools.iter().any(|pool| pool.name == name)
                || host.domains.iter().any(|domain| domain.name == name);
            if !is_there {
                return Err(PyKeyError::new_err(format!("policies: no pool and no domain {name:?}")));
            }
        }
        Ok(Factories { by_name, raised: Raised::default() })
    }

    /// The policy for a pool or domain: one of Python, or the one that the host names.
    pub(crate) fn wrap(&self, host: &Host, parent: Parent, policy: Box<dyn Policy>) -> Box<dyn Policy> {
        let (name, cpus) = match parent {
            Parent::Pool(pool) => (&host.pools[pool.0].name, host.pools[pool.0].processors.len()),
            Parent::Domain(domain) => (&host.domains[domain.0].name, host.domains[domain.0].vcpus.len()),
        };
        let made = Python::attach(|py| -> PyResult<Option<Py<PyAny>>> {
            let factory = self.by_name.bind(py).get_item(name)?;
            factory.map(|factory| Ok(factory.call1((cpus,))?.unbind())).transpose()
        });
        match made {
            Ok(Some(object)) => Box::new(InPython {
                object,
                cpus,
                units: 0,
                timer: Timer::NEVER,
                raised: self.raised.clone(),
            }),
            Ok(None) => policy,
            Err(error) => {
                self.raised.keep(error);
                policy
            }
        }
    }
}

/// A policy that is an object of Python.
struct InPython {
    object: Py<PyAny>,
    cpus: usize,
    units: u32,
    /// The answer of `next_timer`, which may change with every call.
    timer: Timer,
    raised: Raised,
}

impl InPython {
    /// Calls a method, and asks for the next timer. An exception is kept, and there is no answer.
    fn call<R>(
        &mut self,
        method: &str,
        arguments: impl for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyTuple>>,
        answer: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>,
    ) -> Option<R> {
        let done = Python::attach(|py| {
            let object = self.object.bind(py);
            let found = answer(&object.call_method1(method, arguments(py)?)?)?;
            Ok((found, timer(&object.call_method0("next_timer")?, self.cpus)?))
        });
        match done {
            Ok((found, timer)) => {
                self.timer = timer;
                Some(found)
            }
            Err(error) => {
                self.raised.keep(error);
                self.timer = Timer::NEVER;
                None
            }
        }
    }

    /// Calls a method that answers which processors should pick again: `None` for all of them.
    fn tickle(
        &mut self,
        method: &str,
        arguments: impl for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyTuple>>,
        resched: &mut CpuSet,
    ) {
        let asked = self.call(method, arguments, |answer| answer.extract::<Option<Vec<usize>>>());
        let Some(asked) = asked else { return };
        let asked = asked.unwrap_or_else(|| (0..self.cpus).collect());
        asked.into_iter().filter(|cpu| *cpu < self.cpus).for_each(|cpu| resched.insert(CpuId(cpu as u32)));
    }
}

/// `None`, a time in ns, or a time and the processor to charge before.
fn timer(answer: &Bound<'_, PyAny>, cpus: usize) -> PyResult<Timer> {
    if answer.is_none() {
        return Ok(Timer::NEVER);
    }
    // A policy of one processor need not say which one.
    let only = (cpus == 1).then_some(0);
    let (at, charge) = match answer.extract::<(u64, Option<u32>)>() {
        Ok(both) => both,
        Err(_) => (answer.extract()?, only),
    };
    Ok(Timer { at: Instant::from_ns(at), charge: charge.map(CpuId) })
}

/// A unit, `None` for none, or one of these and until when at most.
fn slice(answer: &Bound<'_, PyAny>, now: Instant) -> PyResult<Slice> {
    let (unit, until) = match answer.extract::<(Option<u32>, Option<u64>)>() {
        Ok(both) => both,
        Err(_) => (answer.extract()?, None),
    };
    let run = unit.map_or(Run::Idle, |unit| Run::Unit(UnitId(unit)));
    let until = until.map_or(Instant::NEVER, Instant::from_ns);
    if until <= now {
        return Err(pyo3::exceptions::PyValueError::new_err("pick: `until` must be later than `now`"));
    }
    Ok(Slice { run, until })
}

fn nothing(_: &Bound<'_, PyAny>) -> PyResult<()> {
    Ok(())
}

impl Policy for InPython {
    fn insert(&mut self, now: Instant, params: &UnitParams) -> Result<UnitId, ParamError> {
        let unit = self.units;
        self.units += 1;
        let ns = |time: Option<Duration>| time.map(Duration::as_ns);
        let (budget, period, deadline) = (ns(params.budget), ns(params.period), ns(params.deadline));
        let (priority, weight) = (params.priority, params.weight);
        self.call(
            "insert",
            |py| {
                let class = py.import("punctual._policy")?.getattr("Params")?;
                let params = class.call1((budget, period, deadline, priority, weight))?;
                (now.as_ns(), unit, params).into_pyobject(py)
            },
            nothing,
        );
        Ok(UnitId(unit))
    }

    // Units of a simulation stay as they are.
    fn remove(&mut self, _now: Instant, _unit: UnitId, _resched: &mut CpuSet) {}

    fn adjust(&mut self, _: Instant, _: UnitId, _: &UnitParams, _: &mut CpuSet) -> Result<(), ParamError> {
        Err(ParamError::OutOfRange { field: UnitParams::BUDGET, expected: "what it was".into() })
    }

    fn wake(&mut self, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        self.tickle("wake", |py| (now.as_ns(), unit.0).into_pyobject(py), resched);
    }

    fn sleep(&mut self, now: Instant, unit: UnitId, resched: &mut CpuSet) {
        self.tickle("sleep", |py| (now.as_ns(), unit.0).into_pyobject(py), resched);
    }

    fn set_deadline(&mut self, now: Instant, unit: UnitId, deadline: Instant, resched: &mut CpuSet) {
        let arguments = (now.as_ns(), unit.0, deadline.as_ns());
        self.tickle("set_deadline", |py| arguments.into_pyobject(py), resched);
    }

    fn charge(&mut self, now: Instant, cpu: CpuId, unit: UnitId, ran: Duration) {
        let arguments = (now.as_ns(), cpu.0, unit.0, ran.as_ns());
        self.call("charge", |py| arguments.into_pyobject(py), nothing);
    }

    fn pick(&mut self, now: Instant, cpu: CpuId, _resched: &mut CpuSet) -> Slice {
        let picked =
            self.call("pick", |py| (now.as_ns(), cpu.0).into_pyobject(py), |answer| slice(answer, now));
        let units = self.units;
        let is_known = |slice: &Slice| slice.run.charged().is_none_or(|unit| unit.0 < units);
        match picked {
            Some(slice) if is_known(&slice) => slice,
            Some(_) => {
                self.raised.keep(PyKeyError::new_err("pick: no unit of this number"));
                Slice { run: Run::Idle, until: Instant::NEVER }
            }
            None => Slice { run: Run::Idle, until: Instant::NEVER },
        }
    }

    fn next_timer(&self) -> Timer {
        self.timer
    }

    fn on_timer(&mut self, now: Instant, resched: &mut CpuSet) {
        let before = self.timer;
        self.tickle("on_timer", |py| (now.as_ns(),).into_pyobject(py), resched);
        if self.timer.at <= now && self.timer == before {
            let text = "on_timer: `next_timer` still answers the time that has just come";
            self.raised.keep(pyo3::exceptions::PyValueError::new_err(text));
            self.timer = Timer::NEVER;
        }
    }

    fn ranking(&self, _cpu: CpuId, out: &mut Vec<UnitId>) {
        out.extend((0..self.units).map(UnitId));
    }

    fn account(&self, unit: UnitId) -> Account {
        let left = Python::attach(|py| {
            self.object.bind(py).call_method1("account", (unit.0,))?.extract::<Option<u64>>()
        });
        let left = left.unwrap_or_else(|error| {
            self.raised.keep(error);
            None
        });
        Account { left: left.map(Duration::from_ns), ..Account::default() }
    }
}
