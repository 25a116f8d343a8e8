//! Why a paper was not reproduced.

use punctual_model::file;
use punctual_model::results::GuestVerdict;
use punctual_sched::registry::OptionError;

/// Why an experiment did not finish.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no experiment \"{name}\"; there are {}", known.join(", "))]
    UnknownExperiment {
        name: String,
        /// The paper's experiments.
        known: &'static [&'static str],
    },
    #[error("there is no live experiment \"{name}\"; there are {}", known.join(", "))]
    UnknownLiveExperiment { name: String, known: &'static [&'static str] },
    #[error("{0} is not one of the papers' files")]
    File(String),
    #[error("{}", .0.render(false))]
    Host(file::Errors),
    #[error("{0}")]
    Missing(String),
    #[error("policy {policy}: {error}")]
    Policy { policy: &'static str, error: OptionError },
    #[error("{what}: {error}")]
    Simulation {
        /// Which one, as the command that repeats it.
        what: String,
        error: punctual_sim::Error,
    },
    #[error("interrupted; the machine's settings are restored")]
    Interrupted,
    #[error("{0}")]
    Live(String),
    /// After a run on this machine not everything was put back.
    #[error("{0}")]
    NotPutBack(String),
    #[error("{0}")]
    Lab(String),
    #[cfg(feature = "live")]
    #[error(transparent)]
    Xen(punctual_xen_run::error::Error),
    #[error("domain `{domain}`: {}: {}", verdict.fault.words(), verdict.reason)]
    Guest { domain: String, verdict: GuestVerdict },
}
