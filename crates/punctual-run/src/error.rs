//! Why a host is not run, or a network not served.

use punctual_enforce::journal::Restored;
use punctual_enforce::session::Failed;
use punctual_model::file;

use crate::run;

/// Why a switch, a server of sockets or a run is refused before it begins.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// What is wrong, in full.
    #[error("{0}")]
    Refused(String),
    /// A host file has errors.
    #[error(transparent)]
    Host(#[from] file::Errors),
}

/// Why there are no results of a run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It was refused before anything was changed on this machine.
    #[error(transparent)]
    Refused(#[from] ServeError),
    /// It failed or was stopped.
    #[error("{error}")]
    Failed {
        #[source]
        error: Box<run::Error>,
        /// What was put back; `None`: nothing had been changed.
        restored: Option<Restored>,
    },
}

impl RunError {
    /// Nothing has been changed yet.
    pub(crate) fn unchanged(error: run::Error) -> RunError {
        RunError::Failed { error: Box::new(error), restored: None }
    }

    pub(crate) fn of_session(failed: Failed) -> RunError {
        RunError::Failed { error: Box::new((*failed.error).into()), restored: failed.restored }
    }

    /// Did the user stop the run?
    pub fn is_stopped(&self) -> bool {
        matches!(self, RunError::Failed { error, .. } if matches!(**error, run::Error::Stopped))
    }
}

/// An error together with its cause.
pub fn with_source(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}
