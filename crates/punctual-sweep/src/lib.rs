//! Grids of parameters: a host file at every combination of values that some of its keys take, simulated,
//! analysed, or both.
//!
//! A [`Grid`] knows its points by number, the last dimension fastest. [`Grid::compute`] works on one of them,
//! on the threads of the rayon pool in which it is called; a directory of [`Points`] keeps what is finished,
//! so that any number of programs on any number of machines share a grid, the command line and the Python
//! package alike. [`Grid::csv`], [`Grid::json`] and [`Grid::figure`] do not depend on which program computed
//! the points.
//!
//! Nothing here reads arguments, catches signals or shows progress: a caller's [`Watch`] is notified of each
//! run and may stop the work.

#![forbid(unsafe_code)]

pub mod axis;
pub mod figure;
pub mod grid;
pub mod metric;
pub mod points;

pub use axis::Axis;
pub use figure::Figure;
pub use grid::{Grid, Outcome, Request, Run, Source, Watch};
pub use metric::Metric;
pub use points::{Points, Shard};

use punctual_model::file::Errors;

/// Why a grid, or a point of it, was not worked on.
#[derive(Debug)]
pub enum Error {
    /// The host file is at fault, whatever the values of the grid.
    Host(Errors),
    /// Points of the grid are no valid host: how many, and what is wrong with the first.
    Points(String),
    /// What was asked for cannot be done, and why.
    Refused(String),
    /// A simulation stopped.
    Simulation(punctual_sim::Error),
}

impl From<Errors> for Error {
    fn from(errors: Errors) -> Self {
        Error::Host(errors)
    }
}

impl From<punctual_sim::Error> for Error {
    fn from(error: punctual_sim::Error) -> Self {
        Error::Simulation(error)
    }
}
