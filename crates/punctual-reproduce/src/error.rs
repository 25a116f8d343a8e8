//! Why a paper was not reproduced.

use punctual_model::file;
use punctual_model::results::GuestVerdict;
use punctual_sched::registry::OptionError;

/// Why an experiment did not finish.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The paper has no experiment of this name.
    #[error("there is no experiment \"{name}\"; there are {}", known.join(", "))]
    UnknownExperiment {
        /// The name.
        name: String,
        /// The paper's experiments.
        known: &'static [&'static str],
    },
    /// No experiment of this name can be carried out live.
    #[error("there is no live experiment \"{name}\"; there are {}", known.join(", "))]
    UnknownLiveExperiment {
        /// The name.
        name: String,
        /// The live experiments.
        known: &'static [&'static str],
    },
    /// No host file of the papers has this path.
    #[error("{0} is not one of the papers' files")]
    File(String),
    /// A host file of the papers does not fit this program.
    #[error("{}", .0.render(false))]
    Host(file::Errors),
    /// A host of the papers lacks what its experiment needs.
    #[error("{0}")]
    Missing(String),
    /// A policy cannot be built outside of a simulation.
    #[error("policy {policy}: {error}")]
    Policy {
        /// The policy.
        policy: &'static str,
        /// Why.
        error: OptionError,
    },
    /// A simulation stopped.
    #[error("{what}: {error}")]
    Simulation {
        /// Which one, as the command that repeats it.
        what: String,
        /// Why.
        error: punctual_sim::Error,
    },
    /// A live run was interrupted.
    #[error("interrupted; the machine is as it was")]
    Interrupted,
    /// A live run failed or was refused; the machine is as it was.
    #[error("{0}")]
    Live(String),
    /// A measurement cannot be carried out here; the machine is as it was.
    #[error("{0}")]
    Lab(String),
    /// A run in Xen failed or was refused; Xen is as it was.
    #[error(transparent)]
    Xen(punctual_xen_run::error::Error),
    /// A guest did not tell what it measured, or not the truth.
    #[error("domain `{domain}`: {}: {}", verdict.fault.words(), verdict.reason)]
    Guest {
        /// The domain.
        domain: String,
        /// What was wrong.
        verdict: GuestVerdict,
    },
}
