//! Why nothing was measured.

use punctual_model::file;

use crate::run::RunError;

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("stopped before there was a result")]
    Stopped,
    #[error("cannot measure: {0}")]
    Os(#[source] std::io::Error),
    #[error("cannot tell which processors may be used: {0}")]
    Processors(#[source] std::io::Error),
    #[error("the switch: {0}")]
    Switch(String),
    #[error("the guests exchanged too few packets to say what one costs; try a longer --seconds")]
    TooFew,
    #[error(transparent)]
    Host(#[from] file::Errors),
    #[error(transparent)]
    Run(#[from] RunError),
    /// After the run not everything was put back.
    #[error("not everything could be put back:\n  {}", .0.join("\n  "))]
    NotPutBack(Vec<String>),
    #[error("{0}")]
    Violation(String),
    #[error(transparent)]
    Simulation(#[from] punctual_sim::Error),
}
