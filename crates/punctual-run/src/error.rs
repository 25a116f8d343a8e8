//! Why a host is not run, or a network not served, before anything begins.

use punctual_model::file;

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

/// An error together with its cause.
pub fn with_source(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}
