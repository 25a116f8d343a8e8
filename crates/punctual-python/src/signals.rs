//! Ctrl-C while Rust works.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant as Clock};

use punctual_sched::Instant;
use punctual_sim::observe::{Event, Observer};
use pyo3::prelude::*;

/// So often signals are looked at: half of what a person notices.
const EVERY: Duration = Duration::from_millis(50);

/// Instants of a simulation after which the clock is read: some microseconds of work.
const INSTANTS: u32 = 256;

/// Stops a simulation when a handler of a signal raises an exception, as that of Ctrl-C does.
pub(crate) struct Signals {
    /// Instants until the clock is read.
    left: u32,
    next: Clock,
    raised: Option<PyErr>,
}

impl Signals {
    pub(crate) fn new() -> Self {
        Signals { left: INSTANTS, next: Clock::now() + EVERY, raised: None }
    }

    /// The exception that a handler raised.
    ///
    /// # Errors
    /// That one.
    pub(crate) fn check(self) -> PyResult<()> {
        self.raised.map_or(Ok(()), Err)
    }

    #[cold]
    fn look(&mut self) {
        self.left = INSTANTS;
        if Clock::now() >= self.next {
            self.raised = check_signals();
            self.next = Clock::now() + EVERY;
        }
    }
}

impl Observer for Signals {
    const STEPS: bool = false;

    #[inline]
    fn observe(&mut self, _now: Instant, event: Event<'_>) {
        if let Event::Instant = event {
            self.left -= 1;
            if self.left == 0 {
                self.look();
            }
        }
    }

    #[inline]
    fn stops(&self) -> bool {
        self.raised.is_some()
    }

    fn verdict(&mut self) -> Option<String> {
        self.raised.as_ref().map(|_| "interrupted".into())
    }
}

/// Runs the handlers of signals that have come, in the main thread; in others there is nothing to do.
pub(crate) fn check_signals() -> Option<PyErr> {
    // While Python ends there is nobody to tell.
    Python::try_attach(|py| py.check_signals().err()).flatten()
}

/// Looks at signals while `work`, which cannot be stopped, is done by another thread. When a handler raises
/// an exception, that thread goes on alone and what it finds is dropped.
///
/// # Errors
/// The exception of a handler.
pub(crate) fn beside<R: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> R + Send + 'static,
) -> PyResult<R> {
    py.detach(|| {
        let (found, finds) = mpsc::channel();
        let worker = std::thread::Builder::new().spawn(move || {
            // Nobody may wait any more.
            let _ = found.send(work());
        })?;
        loop {
            match finds.recv_timeout(EVERY) {
                Ok(found) => return Ok(found),
                Err(RecvTimeoutError::Timeout) => check_signals().map_or(Ok(()), Err)?,
                Err(RecvTimeoutError::Disconnected) => match worker.join() {
                    Err(panic) => std::panic::resume_unwind(panic),
                    Ok(()) => unreachable!("the worker sends before it ends"),
                },
            }
        }
    })
}
