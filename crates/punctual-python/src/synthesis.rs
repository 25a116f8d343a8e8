//! Budgets that were found.

use std::ops::ControlFlow;
use std::time::{Duration as Time, Instant as Clock};

use punctual_analysis::sensitivity::sensitivity;
use punctual_analysis::synthesize::{
    Error, Options, Periods, Placement, ReadError, Searched, Shortfall, Summary, read_file,
    synthesize as search, write_file,
};
use punctual_analysis::watch::{Stage, Stopped};
use punctual_model::file::{self, Overrides};
use punctual_sched::Duration;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::error::{self, from_json};
use crate::reading;
use crate::signals::check_signals;

/// So often signals are looked at.
const EVERY: Time = Time::from_millis(50);

/// The greatest margin, in parts per 10^9.
const MARGIN_MAX: u64 = 10_000_000_000;

/// Budgets that guarantee every deadline, or why there are none: the answer of `punctual synthesize`.
#[pyclass(frozen, module = "punctual")]
pub(crate) struct Synthesis {
    summary: String,
    /// The host file with these budgets, and its name in errors.
    file: Option<(String, String)>,
}

/// What the search may choose, with the command line's words.
///
/// # Errors
/// A word or a quantity that it does not know.
pub(crate) fn options(
    periods: &str,
    candidates: &[String],
    granularity: &str,
    margin: &str,
    priorities: &str,
    placement: &str,
    effort: u64,
) -> PyResult<Options> {
    let wrong = |key: &str, why: &str| PyValueError::new_err(format!("{key}: {why}"));
    let some_time = |key: &str, text: &str| match file::parse_duration(text) {
        Ok(time) if time.as_ns() >= 1_000 => Ok(time),
        Ok(_) => Err(wrong(key, "expected at least 1us")),
        Err(why) => Err(wrong(key, &why)),
    };
    let candidates: Vec<Duration> =
        candidates.iter().map(|text| some_time("candidates", text)).collect::<PyResult<_>>()?;
    let is_free = |key, word: &str| match word {
        "given" => Ok(false),
        "free" => Ok(true),
        _ => Err(wrong(key, "expected \"given\" or \"free\"")),
    };
    let periods = match (is_free("periods", periods)?, candidates.is_empty()) {
        (true, _) => Periods::Free(candidates),
        (false, true) => Periods::Given,
        (false, false) => return Err(wrong("candidates", "they need periods=\"free\"")),
    };
    let margin = match file::parse_percent(margin) {
        Ok(parts) if parts <= MARGIN_MAX => parts.div_ceil(1_000),
        Ok(_) => return Err(wrong("margin", "expected at most 1000%")),
        Err(why) => return Err(wrong("margin", &why)),
    };
    let placement = match placement {
        "auto" => Placement::Auto,
        "first-fit" => Placement::FirstFit,
        "best-fit" => Placement::BestFit,
        "worst-fit" => Placement::WorstFit,
        "exact" => Placement::Exact,
        _ => {
            let why = "expected \"auto\", \"first-fit\", \"best-fit\", \"worst-fit\" or \"exact\"";
            return Err(wrong("placement", why));
        }
    };
    Ok(Options {
        granularity: some_time("granularity", granularity)?,
        margin_ppm: margin,
        periods,
        free_priorities: is_free("priorities", priorities)?,
        placement,
        effort,
    })
}

/// What a search came to, beside what goes wrong with it.
enum Found {
    /// The summary, and the host file with the budgets.
    Budgets(String, String),
    Nothing(String),
    Interrupted,
    /// The written file is read as another host.
    Violation(String),
}

/// Looks at signals while a search goes on.
struct Watch {
    next: Clock,
    raised: Option<PyErr>,
}

impl Watch {
    fn look(&mut self) -> ControlFlow<()> {
        if Clock::now() >= self.next {
            self.raised = check_signals();
            self.next = Clock::now() + EVERY;
        }
        if self.raised.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Searches the smallest budgets for the host of a file.
pub(crate) fn synthesize(
    py: Python<'_>,
    (bytes, name): (&[u8], &str),
    overrides: &Overrides,
    options: &Options,
) -> PyResult<Synthesis> {
    let is_free = matches!(options.periods, Periods::Free(_));
    let read = read_file(bytes, name, overrides, is_free);
    let Searched { text, host, .. } = read.map_err(|error| match error {
        ReadError::File(errors) => error::host_file(py, &errors),
        ReadError::Periods(_) => error::punctual(py, &error.to_string()),
    })?;
    let mut watch = Watch { next: Clock::now() + EVERY, raised: None };
    let found = py.detach(|| {
        let mut look = |_: Stage| watch.look();
        match search(&host, options, &mut look) {
            Ok(found) => match sensitivity(&found.host, &mut look) {
                Ok(growth) => match write_file(&text, name, &host, &found.host) {
                    Ok(file) => Found::Budgets(json(&Summary::found(&found, &growth)), file),
                    Err(error) => Found::Violation(error.to_string()),
                },
                Err(Stopped) => Found::Interrupted,
            },
            Err(Error::Stopped(_)) => Found::Interrupted,
            Err(Error::Unmet { name, why }) => {
                Found::Nothing(json(&Summary::unmet(&name, why.iter().map(Shortfall::to_string).collect())))
            }
        }
    });
    if let Some(raised) = watch.raised {
        return Err(raised);
    }
    match found {
        Found::Budgets(summary, file) => Ok(Synthesis { summary, file: Some((file, name.into())) }),
        Found::Nothing(summary) => Ok(Synthesis { summary, file: None }),
        Found::Interrupted => Err(error::punctual(py, "the search was stopped")),
        Found::Violation(text) => Err(error::simulation(py, &punctual_sim::Error::Violation(text))),
    }
}

fn json(summary: &Summary<'_>) -> String {
    serde_json::to_string(summary).expect("keys are strings, and a string takes every byte")
}

#[pymethods]
impl Synthesis {
    /// Are there budgets that guarantee every deadline?
    #[getter]
    fn found(&self) -> bool {
        self.file.is_some()
    }

    /// The host with the budgets; `None` if there are none.
    #[getter]
    fn host<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.file.as_ref().map(|(text, name)| reading::host_object(py, text, name)).transpose()
    }

    /// The host file with the budgets: the text that was given, with other numbers.
    #[getter]
    fn toml(&self) -> Option<&str> {
        self.file.as_ref().map(|(text, _)| text.as_str())
    }

    /// The answer as `punctual synthesize --json` prints it.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        from_json(py, &self.summary)
    }

    fn __repr__(&self) -> String {
        format!("<punctual.Synthesis: {}>", if self.file.is_some() { "found" } else { "not found" })
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let rebuild = py.get_type::<Synthesis>().getattr("_restore")?;
        (rebuild, (&self.summary, &self.file)).into_pyobject(py)
    }

    /// A synthesis from what pickles keep of it.
    #[staticmethod]
    fn _restore(summary: String, file: Option<(String, String)>) -> Self {
        Synthesis { summary, file }
    }
}
