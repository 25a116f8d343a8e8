//! Long searches say how far they are, and can be stopped.

use std::ops::ControlFlow;

/// What a search is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Searching for budgets: the number of analyses so far.
    Search { analyses: u64 },
    /// Looking how much costs may grow.
    Growth { done: usize, total: usize },
}

/// Told about progress; [`ControlFlow::Break`] ends the search.
pub type Watch<'a> = &'a mut dyn FnMut(Stage) -> ControlFlow<()>;

/// The watch ended the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the search was stopped")]
pub struct Stopped;

pub(crate) fn report(watch: &mut Watch<'_>, stage: Stage) -> Result<(), Stopped> {
    match watch(stage) {
        ControlFlow::Break(()) => Err(Stopped),
        ControlFlow::Continue(()) => Ok(()),
    }
}
